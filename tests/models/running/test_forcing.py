"""What solvers see of a forcing: nothing is stepped over, and a step sees what holds within it."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ModelError
from fmepy.models.running.forcings import as_forcings, stage_values
from tests.plain import plain

STEP = {"u": ([0, 1, 2], [0, 1, 1], "constant")}


def integral_of(u, times, **options):
    """Return a model whose state is the integral of its forcing."""
    return fme.OdeModel("d(y)/dt = u", state={"y": 0.0}, times=times, forcings={"u": u}, **options)


@pytest.mark.parametrize("method", ["euler", "rk4"])
@pytest.mark.parametrize("dt", [None, 0.25, 0.4])
@pytest.mark.parametrize("is_traced", [True, False])
def test_a_fixed_step_that_ends_at_a_jump_sees_the_value_before_it(method, dt, is_traced):
    def rate(t, y, u):
        return u if is_traced or plain(y) < 1e9 else 0.0  # plain() of a state cannot be traced

    model = fme.OdeModel(rate, state={"y": 0.0}, times=[0, 1, 2], forcings=STEP, method=method, dt=dt)
    assert (model.equations is not None) == is_traced
    np.testing.assert_allclose(model().y, [0, 0, 1], atol=1e-14)
    np.testing.assert_allclose(model(times=[0.5, 1, 1.75]).y, [0, 0, 0.75], atol=1e-14)


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_fixed_steps_do_not_step_over_a_pulse_between_their_stages(method):
    model = integral_of(([0, 0.6, 0.9, 2.2, 2.3], [0, 1, 0, 5, 0], "constant"), [0, 1, 2, 3], method=method)
    np.testing.assert_allclose(model().y, [0, 0.3, 0.3, 0.8], atol=1e-12)


@pytest.mark.parametrize("method", ["euler", "rk4"])
def test_a_jump_that_misses_a_grid_point_by_rounding_is_on_it(method):
    times = np.arange(11) * 0.1  # 0.30000000000000004 among them
    for jump in (0.3, 3 * 0.1):
        model = integral_of(([0, jump], [0, 1], "constant"), times, method=method)
        np.testing.assert_allclose(model().y, np.maximum(times - 0.3, 0), atol=1e-12)


def test_the_sensitivity_of_a_fixed_step_scheme_sees_the_same_forcing():
    model = fme.OdeModel(
        "d(y)/dt = a * u", state={"y": 0}, times=[0, 1, 2], parms={"a": 3}, forcings=STEP, method="rk4"
    )
    _, S = model.bind().sensitivities(np.array([3.0]))
    np.testing.assert_allclose(S[:, 0, 0], [0, 0, 1], atol=1e-14)


@pytest.mark.parametrize("propagation", ["euler", "rk4", "ode", "moment"])
def test_every_propagation_of_a_filter_sees_a_jump_at_the_end_of_a_step_from_the_left(propagation):
    data = pd.DataFrame({"time": [0.0, 1, 2, 3], "y": [0.0, 0, 1, 2.3]})
    u = ([0, 1, 2.6, 2.9], [0, 1, 2, 1], "constant")
    noise = {"process_noise": {"y": 1e-9}, "measurement_noise": {"y": 1.0}}
    cost = fme.FimlofCost(integral_of(u, [0, 1, 2, 3]), data, propagation=propagation, **noise)
    # the data are the exact solution: nothing is left but the log of the variances
    assert cost.bind([]).minus2loglik(np.empty(0)) == pytest.approx(4 * np.log(2 * np.pi), abs=1e-7)


def test_a_forcing_reads_at_a_jump_what_comes_after_and_stages_see_one_level():
    (u,) = as_forcings(STEP)
    assert u.at(np.array([1.0, 1 - 1e-15, 1 - 1e-9])).tolist() == [1, 1, 0]
    values = stage_values((u,), np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    assert values[:, :, 0].tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_table_or_a_series_is_held_where_constant_is_said_and_one_column_is_answered():
    table = pd.DataFrame({"t": [0.0, 1.0], "level": [2.0, 4.0]})
    level = table.set_index("t")["level"]
    for u in ((table, "constant"), (level, "constant"), ([0, 1], [2, 4], "constant"), (([0, 1], [2, 4]), "constant")):
        assert integral_of(u, [0.0, 3.0])()["y"].iloc[-1] == pytest.approx(2 + 2 * 4)
    assert integral_of(table, [0.0, 1.0])()["y"].iloc[-1] == pytest.approx(3.0)
    with pytest.raises(ModelError, match=r"its index holds the times, pass table\.reset_index"):
        integral_of(table.set_index("t"), [0.0, 1.0])
    with pytest.raises(ModelError, match="a formula of t stands in the equations"):
        integral_of("sin(t)", [0.0, 1.0])


@pytest.mark.parametrize(("word", "end"), [({}, 7.5), ({"interpolation": "constant"}, 6.0)])
def test_a_forcing_is_said_as_in_a_file_of_a_calibration(word, end):
    series = {"time": [0, 1, 2], "value": [2.0, 4.0, 5.0], **word}
    model = fme.OdeModel("d(x)/dt = u", state={"x": 0}, times=[0, 2], forcings={"u": series})
    assert model()["x"].iloc[-1] == pytest.approx(end)
    for wrong in ({**series, "method": "constant"}, {"time": [0, 1]}):
        with pytest.raises(ModelError, match=r"or dict\(time=, value=, interpolation=\); got dict"):
            model.replace(forcings={"u": wrong})
