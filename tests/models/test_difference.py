"""A difference model advances one step per unit of time, and its sensitivities are exact."""

import json
import logging
import math
import os
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.compiled import folder as compiled_folder
from fmepy.compiled import llvm_code, machine
from fmepy.errors import ModelError, ParameterError, SimulationError
from fmepy.models import difference
from fmepy.models.base import Model
from fmepy.models.difference import DifferenceModel
from tests.plain import plain

ENGINES = ["compiled", "python"]


def peterson(n, x, *, A=0.8, x0=10.0):
    return A * x


def growth(n, N, *, r=0.3, K=100.0):
    return N + r * N * (1 - N / K)


def driven(n, x, y, *, a, b, u):
    return a * x + b * u + 0.01 * n, np.where(x > 1, x * y, y + a)


DRIVE = {"u": (np.arange(11), np.sin(np.arange(11)))}


def driven_model(**changes):
    arguments = {
        "state": {"x": "x0", "y": "2 * x0"}, "times": np.arange(11), "parms": {"a": 0.9, "b": 0.4, "x0": 1.5},
        "forcings": DRIVE, "outputs": {"z": "log(x**2 + 1) + b * u", "w": "z * x0"},
    }  # fmt: skip
    return DifferenceModel(driven, **{**arguments, **changes})


def central_differences(f, theta, h=1e-5):
    columns = []
    for j in range(len(theta)):
        e = np.zeros(len(theta))
        e[j] = h * max(1.0, abs(theta[j]))
        columns.append((f(theta + e) - f(theta - e)) / (2 * e[j]))
    return np.stack(columns, axis=-1)


# --- exact answers


@pytest.mark.parametrize("engine", ENGINES)
def test_steps_of_another_length_are_the_same_steps_at_other_times(engine):
    def weekly(n, x, y, *, a, b, u):
        return a * x + b * u + 0.01 * (n - 1990) / 0.25, np.where(x > 1, x * y, y + a)

    plain = driven_model(engine=engine)
    moved = DifferenceModel(weekly, state={"x": "x0", "y": "2 * x0"}, times=1990 + 0.25 * np.arange(11), dt=0.25,
                            parms=plain.parms, outputs={"z": "log(x**2 + 1) + b * u", "w": "z * x0"}, engine=engine,
                            forcings={"u": (1990 + 0.25 * np.arange(11), np.sin(np.arange(11)))})  # fmt: skip
    np.testing.assert_allclose(moved().iloc[:, 1:], plain().iloc[:, 1:], rtol=1e-12)
    assert moved()["time"].tolist() == (1990 + 0.25 * np.arange(11)).tolist()
    (_, S), (_, other) = (b.sensitivities(b.theta0) for b in (moved.bind(), plain.bind()))
    np.testing.assert_allclose(S, other, rtol=1e-6 if engine == "python" else 1e-10, atol=1e-8)
    assert moved.replace(times=[1990, 1992])().shape == (2, 5)
    with pytest.raises(ModelError, match=r"every 0.25, .* nearest such time is 1990.5. .*`dt`"):
        moved.replace(times=[1990, 1990.6])
    for bad in (0, -1, np.nan, "day"):
        with pytest.raises(ModelError, match="`dt"):
            moved.replace(dt=bad)


@pytest.mark.parametrize("update", ["ekf", "unscented"])
def test_filters_and_predictors_follow_steps_of_another_length(update):
    fives = np.arange(0, 41, 5.0)
    daily = DifferenceModel("next(x) = a * x + u", state={"x": 4.0}, times=np.arange(9), parms={"a": 0.8},
                            forcings={"u": (np.arange(9), np.cos(np.arange(9)))})  # fmt: skip
    slow = daily.replace(times=fives, dt=5, forcings={"u": (fives, np.cos(np.arange(9)))})
    seen = np.sin(np.arange(1, 9)) + 3
    noise = {"process_noise": {"x": 0.5}, "measurement_noise": {"x": 0.1}}
    a = fme.FimlofCost(daily, {"time": np.arange(1, 9), "x": seen}, update=update, **noise)
    b = fme.FimlofCost(slow, {"time": fives[1:], "x": seen}, update=update, **noise)
    assert b() == pytest.approx(a(), rel=1e-12)
    with pytest.warns(UserWarning, match="forcing 'u' ends at"):
        ahead, later = a.filter().forecast(steps=3).frame, b.filter().forecast(steps=3).frame
    assert later["time"].unique().tolist() == [45, 50, 55]
    np.testing.assert_allclose(later[["mean", "sd"]], ahead[["mean", "sd"]], rtol=1e-12)
    np.testing.assert_allclose(b.filter().at([2 * 5]).smoothed["x"], a.filter().at([2]).smoothed["x"], rtol=1e-12)
    gained = {"gain": {"x": {"x": 0.4}}}
    for steps in (1, 2):
        c = fme.PredictionErrorCost(daily, {"time": np.arange(1, 9), "x": seen}, steps=steps, **gained)
        d = fme.PredictionErrorCost(slow, {"time": fives[1:], "x": seen}, steps=steps, **gained)
        assert d().model == pytest.approx(c().model, rel=1e-12)
    hurried = "next(x) = a * x + t / {0}\ny = x * (1 + t / {0} / 10)"
    by_output = {"gain": {"x": {"y": 0.3}}}
    c, d = (
        fme.PredictionErrorCost(
            DifferenceModel(hurried.format(h), state={"x": 4.0}, times=h * np.arange(9), parms={"a": 0.8}, dt=h),
            {"time": h * np.arange(1, 9), "y": seen}, **by_output)
        for h in (1, 5)
    )  # fmt: skip
    assert d().model == pytest.approx(c().model, rel=1e-12)
    still = {"gain": "stationary", **noise}
    c = fme.PredictionErrorCost(daily, {"time": np.arange(1, 9), "x": seen}, **still)
    d = fme.PredictionErrorCost(slow, {"time": fives[1:], "x": seen}, **still)
    assert d.stationary.gain == c.stationary.gain
    sums = {"accumulate": {"x": 2}}, {"accumulate": {"x": (10, "mean")}}
    rows = np.arange(2, 9, 2)
    e = fme.FimlofCost(daily, {"time": rows, "x": 2 * seen[rows - 1]}, **sums[0], process_noise={"x": 0.5},
                       measurement_noise={"x": 0.2})  # fmt: skip
    f = fme.FimlofCost(slow, {"time": 5.0 * rows, "x": seen[rows - 1]}, **sums[1], **noise)
    assert e() == pytest.approx(f() + 2 * len(rows) * np.log(2), rel=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_petersons_model_is_a_geometric_sequence_with_known_derivatives(engine):
    model = DifferenceModel(peterson, state={"x": "x0"}, times=np.arange(0, 21), outputs={"z": "2 * x"}, engine=engine)
    n = np.arange(21)
    table = model()
    assert list(table.columns) == ["time", "x", "z"]
    assert table["time"].tolist() == n.tolist()
    np.testing.assert_allclose(table["x"], 10 * 0.8**n, rtol=1e-13)
    np.testing.assert_allclose(table["z"], 20 * 0.8**n, rtol=1e-13)
    bound = model.bind(["x0", "A"])
    Y, S = bound.sensitivities(bound.theta0)
    assert bound.exact == (engine == "compiled")
    rtol = 1e-12 if bound.exact else 1e-6
    np.testing.assert_allclose(S[:, 0, 0], 0.8**n, rtol=rtol)
    np.testing.assert_allclose(S[:, 0, 1], 10 * n * 0.8 ** np.maximum(n - 1, 0), rtol=rtol)
    np.testing.assert_allclose(S[:, 1], 2 * S[:, 0], rtol=1e-9)
    np.testing.assert_allclose(Y, table[["x", "z"]], rtol=0)


def test_a_linear_system_is_a_power_of_its_matrix():
    rng = np.random.default_rng(3)
    M = rng.normal(size=(3, 3)) * 0.5
    text = "\n".join(f"next(x{i}) = " + " + ".join(f"m{i}{j} * x{j}" for j in range(3)) for i in range(3))
    parms = {f"m{i}{j}": M[i, j] for i in range(3) for j in range(3)}
    model = DifferenceModel(text, state={"x0": 1, "x1": 2, "x2": 3}, times=[0, 1, 7], parms=parms)
    expected = [np.linalg.matrix_power(M, k) @ [1, 2, 3] for k in (0, 1, 7)]
    np.testing.assert_allclose(model()[["x0", "x1", "x2"]], expected, rtol=1e-12)


def test_a_level_that_stays_stays():
    model = DifferenceModel(
        "next(level) = level", state={"level": 1000}, times=np.arange(1871, 1971), outputs={"flow": "level"}
    )
    assert (model()[["level", "flow"]] == 1000).all().all()
    assert model()["time"].iloc[[0, -1]].tolist() == [1871, 1970]
    assert model.bind().sensitivities(np.empty(0))[1].shape == (100, 2, 0)


def test_the_function_gets_the_time_and_the_forcing_of_the_new_row():
    def clock(n, x, last, *, u):
        return n, x + 1000 * u

    forcing = {"u": ([5, 6, 7, 8], [50, 60, 70, 80])}
    for engine in ENGINES:
        model = DifferenceModel(clock, state={"x": 0, "last": 0}, times=[5, 6, 8], forcings=forcing, engine=engine)
        assert model()["x"].tolist() == [0, 6, 8]
        assert model()["last"].tolist() == [0, 60_000, 80_007]


def test_rows_may_be_asked_at_any_whole_step_and_do_not_change_the_run():
    model = DifferenceModel(growth, state={"N": 5}, times=np.arange(0, 11))
    every = model(times=np.arange(0, 31)).set_index("time")["N"]
    assert model(times=[0, 5]).set_index("time")["N"].tolist() == every[[0, 5]].tolist()
    assert model(times=[7, 30])["N"].tolist() == every[[7, 30]].tolist()


def test_times_may_be_fractions_a_whole_number_apart():
    model = DifferenceModel(growth, state={"N": 5}, times=[0.1, 1.1, 3.1])
    assert model()["time"].tolist() == [0.1, 1.1, 3.1]
    assert model()["N"].iloc[1] == pytest.approx(5 + 0.3 * 5 * 0.95)


# --- sources agree


def test_the_three_sources_give_the_same_numbers_and_sensitivities():
    text = """
        next(prey) = prey + r * prey - eaten
        next(pred) = pred + e * eaten - m * pred
        eaten = a * prey * pred
        prey(0) = start
        pred(0) = 2
    """

    def named(n, prey, pred, *, r, e, m, a, start):
        eaten = a * prey * pred
        return {"pred": pred + e * eaten - m * pred, "prey": prey + r * prey - eaten}, {"eaten": eaten}

    def vector(n, x, p):
        eaten = p["a"] * x[0] * x[1]
        return np.array([x[0] + p["r"] * x[0] - eaten, x[1] + p["e"] * eaten - p["m"] * x[1]]), {"eaten": eaten}

    parms = {"r": 0.05, "e": 0.3, "m": 0.1, "a": 0.02, "start": 20.0}
    state = {"prey": "start", "pred": 2}
    common = {"times": np.arange(31), "parms": parms}
    models = [DifferenceModel(text, **common)]
    models += [DifferenceModel(f, state=state, engine=e, **common) for f in (named, vector) for e in ENGINES]
    first = models[0].bind()
    Y, S = first.sensitivities(first.theta0)
    for model in models[1:]:
        assert model.var_names == ("prey", "pred", "eaten")
        bound = model.bind()
        Y2, S2 = bound.sensitivities(bound.theta0)
        np.testing.assert_allclose(Y2, Y, rtol=1e-10)
        np.testing.assert_allclose(S2, S, rtol=1e-5 if not bound.exact else 1e-9, atol=1e-6)


@pytest.mark.parametrize("names", [["a"], ["x0", "b"], ["b", "a", "x0"]])
def test_exact_sensitivities_agree_with_differences_through_forcings_switches_and_outputs(names):
    bound = driven_model().bind(names)
    Y, S = bound.sensitivities(bound.theta0)
    assert S.shape == (11, 4, len(names))
    np.testing.assert_allclose(S, central_differences(bound.simulate, bound.theta0), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(Y, bound.simulate(bound.theta0))


def test_large_systems_are_written_in_blocks_with_the_same_result(monkeypatch):
    names = ["b", "x0", "a"]
    straight = driven_model().bind(names)
    Y, S = straight.sensitivities(straight.theta0)
    monkeypatch.setattr(llvm_code, "MOST_OPERATIONS", 3)
    written = []
    monkeypatch.setattr(difference, "compiled", lambda text: written.append(text) or machine.compiled(text))
    blocked = driven_model().bind(names)
    Y2, S2 = blocked.sensitivities(blocked.theta0)
    assert "@step.3(" in written[-1]
    np.testing.assert_allclose(Y2, Y, rtol=1e-14)
    np.testing.assert_allclose(S2, S, rtol=1e-13)
    assert blocked.simulate(blocked.theta0).tolist() == Y.tolist()
    growing = DifferenceModel("next(x) = x**2", state={"x": "x0"}, times=[0, 30], parms={"x0": 10}).bind()
    with pytest.raises(SimulationError, match="step 9"):
        growing.sensitivities(np.array([10.0]))


def test_both_engines_agree_on_a_model_of_everything():
    rows = [0, 3, 10]
    fast, slow = driven_model().bind(times=rows), driven_model(engine="python").bind(times=rows)
    theta = fast.theta0 * 1.1
    np.testing.assert_allclose(slow.simulate(theta), fast.simulate(theta), rtol=1e-12)
    np.testing.assert_allclose(slow.sensitivities(theta)[1], fast.sensitivities(theta)[1], rtol=1e-6, atol=1e-7)


def test_every_function_of_the_language_compiles_to_its_value():
    expressions = {
        "e1": "exp(x/9) + log(x) + log10(x) + log2(x) + sqrt(x) + x**0.5 + x**-0.5",
        "e2": "sin(x) + cos(x) + tan(x) + asin(x/9) + acos(x/9) + atan(x) + sinh(x) + cosh(x) + tanh(x) + asinh(x)",
        "e3": "abs(-x) + sign(1 - x) + min(x, 2, 1.5) + max(x, 4, 1) + pow(x, 1.3) + x**-3 + x**7 + x**100/1e40 + pi",
        "e4": "where(x > 1 and (x < 2 or not x > 2.5), 7, 8) + (1 if 1 < x <= 3 else 2) + x**x + 2**x + x/3",
        "e5": "where(where(x > 1, x, 2) > 2, x, -x)",
        "e6": "123456789012345 * x * 1e-14",
    }  # fmt: skip
    model = DifferenceModel("next(x) = x + 0.1*k", state={"x": 2.2}, times=[0, 1], parms={"k": 1}, outputs=expressions)
    slow = model.replace(engine="python")
    np.testing.assert_allclose(model().to_numpy(), slow().to_numpy(), rtol=1e-13)
    x = 2.3
    e2 = sum(f(x) for f in (math.sin, math.cos, math.tan, math.atan, math.sinh, math.cosh, math.tanh, math.asinh))
    assert model()["e2"].iloc[1] == pytest.approx(e2 + math.asin(x / 9) + math.acos(x / 9), rel=1e-13)
    e3 = x - 1 + 1.5 + 4 + x**1.3 + x**-3 + x**7 + x**100 / 1e40 + math.pi
    assert model()["e3"].iloc[1] == pytest.approx(e3, rel=1e-13)
    assert model()["e4"].iloc[1] == pytest.approx(7 + 1 + x**x + 2**x + x / 3, rel=1e-13)
    bound = model.bind(["k"])
    S = bound.sensitivities(bound.theta0)[1]
    np.testing.assert_allclose(S, central_differences(bound.simulate, bound.theta0), rtol=1e-6, atol=1e-7)


# --- engines


def undecided(n, x, *, a=0.5):
    if plain(x) > 1:
        return a * x
    return x + a


def test_what_cannot_be_traced_runs_as_python_and_says_why(caplog):
    with caplog.at_level(logging.INFO, logger="fmepy"):
        model = DifferenceModel(undecided, state={"x": 3}, times=[0, 1, 2, 3])
    assert model.engine == "python"
    assert "leave float() out" in model.engine_note
    assert "runs on python" in caplog.text
    assert model()["x"].tolist() == [3, 1.5, 0.75, 1.25]
    bound = model.bind()
    assert not bound.exact
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][:, 0, 0], [0, 3, 3, 4], atol=1e-8)


def test_asking_for_numba_where_it_cannot_be_is_an_error():
    with pytest.raises(ModelError, match="needs equations"):
        DifferenceModel(undecided, state={"x": 3}, times=[0, 1], engine="compiled")


def test_outputs_of_python_models_may_use_the_extra_ones():
    def step(n, x, *, a=0.5):
        return (a * x if plain(x) > 0 else x), {"double": 2 * x}

    model = DifferenceModel(step, state={"x": 8}, times=[0, 2], outputs={"more": "double + a"})
    assert model.engine == "python"
    assert model.var_names == ("x", "double", "more")
    assert model().to_numpy().tolist() == [[0, 8, 16, 16.5], [2, 2, 4, 4.5]]


def test_a_model_meets_the_contract():
    model = driven_model()
    assert isinstance(model, Model)
    assert model.states == ("x", "y")
    assert model.var_names == ("x", "y", "z", "w")
    assert (model.engine, model.engine_note) == ("compiled", "")
    bound = model.bind(["b", "a"], hold_engine=True)
    assert bound.names == ("b", "a")
    assert bound.theta0.tolist() == [0.4, 0.9]
    assert bound.retries == 0
    np.testing.assert_array_equal(bound.simulate(np.array([0.5, 0.8])), model({"b": 0.5, "a": 0.8}).to_numpy()[:, 1:])
    assert "next(x)" in str(model.equations)
    assert "compiled" in repr(model)


def test_models_and_bound_models_pickle():
    model = DifferenceModel(peterson, state={"x": "x0"}, times=np.arange(5))
    bound = model.bind(["A"])
    expected = bound.simulate(bound.theta0)
    for again in (pickle.loads(pickle.dumps(model)).bind(["A"]), pickle.loads(pickle.dumps(bound))):
        np.testing.assert_array_equal(again.simulate(again.theta0), expected)
        np.testing.assert_array_equal(again.sensitivities(again.theta0)[1], bound.sensitivities(bound.theta0)[1])


def test_replace_merges_and_shares_the_equations():
    model = driven_model()
    other = model.replace(parms={"a": 0.5}, state={"y": 7}, times=np.arange(3))
    assert other.parms.to_dict() == {"a": 0.5, "b": 0.4, "x0": 1.5}
    assert other().iloc[0][["x", "y"]].tolist() == [1.5, 7]
    assert other.equations is model.equations
    assert model.parms["a"] == 0.9
    with pytest.raises(ValueError, match="'stpe'"):
        model.replace(stpe=1)


def test_parameters_of_the_model_cannot_be_changed_from_outside():
    model = driven_model()
    parms = model.parms
    parms["a"] = 5
    assert model.parms["a"] == 0.9
    theta = np.array([0.9, 0.4, 1.5])
    model.bind().sensitivities(theta)
    assert theta.tolist() == [0.9, 0.4, 1.5]


# --- bad input, faults


@pytest.mark.parametrize(
    ("times", "words"),
    [([0, 1, 2.5], "2.5"), (np.arange(0, 2, 0.5), "whole numbers"), ([3, 2], "increase"), ([], "at least one")],
)
def test_times_between_steps_are_refused(times, words):
    with pytest.raises(ModelError, match=words):
        DifferenceModel(growth, state={"N": 5}, times=times)


def test_rows_between_steps_or_before_the_start_are_refused():
    model = DifferenceModel(growth, state={"N": 5}, times=[2, 3])
    with pytest.raises(ModelError, match=r"2\.5, which is 0\.5 after the start at 2"):
        model(times=[2.5])
    with pytest.raises(ModelError, match="before the model's start at 2"):
        model(times=[1, 2])


def test_wrong_names_are_told_with_the_nearest():
    with pytest.raises(ModelError, match="Did you mean"):
        DifferenceModel("next(level) = levle", state={"level": 1}, times=[0, 1])
    with pytest.raises(ParameterError, match="'rr'"):
        DifferenceModel(growth, state={"N": 5}, times=[0, 1], parms={"rr": 1})
    with pytest.raises(ParameterError, match="'q'"):
        DifferenceModel(growth, state={"N": 5}, times=[0, 1]).bind(["q"])
    with pytest.raises(ModelError, match=r"write next\(x\)"):
        DifferenceModel("d(x)/dt = 1", state={"x": 5}, times=[0, 1])
    with pytest.raises(ValueError, match="engine"):
        DifferenceModel(growth, state={"N": 5}, times=[0, 1], engine="explicit")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_blow_up_is_an_error_that_knows_its_step(engine):
    model = DifferenceModel("next(x) = x**2", state={"x": "x0"}, times=[3, 33], parms={"x0": 10}, engine=engine)
    with pytest.raises(SimulationError, match=r"step 9") as caught:  # 10**(2**9) is beyond the floats
        model()
    assert caught.value.time == 12
    assert caught.value.parameters == {"x0": 10.0}
    with pytest.raises(SimulationError):
        model.bind().sensitivities(np.array([10.0]))
    assert np.isfinite(model({"x0": 0.5})["x"]).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_state_that_becomes_nan_is_an_error(engine):
    model = DifferenceModel("next(x) = sqrt(x - k)", state={"x": 5}, times=[0, 3], parms={"k": 3.9}, engine=engine)
    with pytest.raises(SimulationError, match="step 2"):
        model()


@pytest.mark.parametrize("engine", ENGINES)
def test_outputs_may_be_infinite(engine):
    model = DifferenceModel("next(x) = x - 1", state={"x": 1}, times=[0, 1], outputs={"l": "log(x)"}, engine=engine)
    assert model()["l"].tolist() == [0, -math.inf]


def test_a_sensitivity_that_is_not_finite_is_an_error():
    model = DifferenceModel("next(x) = sqrt(x - k)", state={"x": 4}, times=[0, 1], parms={"k": 4})
    assert model()["x"].tolist() == [4, 0]
    with pytest.raises(SimulationError, match="sensitivity"):
        model.bind().sensitivities(np.array([4.0]))


def test_initial_values_that_have_no_value_are_a_failed_run():
    model = DifferenceModel("next(x) = x", state={"x": "1 / k"}, times=[0, 1], parms={"k": 4})
    with pytest.raises(SimulationError, match=r"k=0"):
        model({"k": 0})


def test_a_forcing_may_be_a_series():
    u = pd.Series([1.0, 2.0, 4.0], index=[0, 1, 2])
    model = DifferenceModel("next(x) = x + u", state={"x": 0}, times=[0, 1, 2], forcings={"u": u}, outputs={"now": "u"})
    assert model()["x"].tolist() == [0, 2, 6]
    assert model()["now"].tolist() == [1, 2, 4]


# --- cost


PROGRAM = textwrap.dedent("""
    import json, logging, pathlib, sys
    import numpy as np
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    from fmepy.models.difference import DifferenceModel
    from fmepy.compiled.folder import cache_folder
    model = DifferenceModel("next(x) = a * x + where(x > 1, b, u)", state={"x": 1}, times=np.arange(9),
                            parms={"a": 0.5, "b": 2}, forcings={"u": ([0, 9], [1, 2])}, outputs={"l": "log(x)"})
    bound = model.bind()
    value = bound.sensitivities(bound.theta0)[1][-1, 0, 0] + bound.simulate(bound.theta0)[-1, 0]
    files = {str(f): f.stat().st_mtime_ns for f in cache_folder().rglob("*") if f.is_file()}
    print(json.dumps([value, files]))
""")


def run_program(cache):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache), "LOCALAPPDATA": str(cache), "HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    return *json.loads(done.stdout), done.stderr


def test_a_second_process_uses_the_compiled_code_of_the_first(tmp_path):
    value, files, said = run_program(tmp_path)
    assert "for the first time" in said
    assert sum(f.endswith(".o") for f in files) == 1
    assert not any(f.endswith((".py", ".nbc")) for f in files)  # the model itself is nowhere
    again, files_again, said_again = run_program(tmp_path)
    assert again == value
    assert files_again == files  # nothing written, nothing touched
    assert "for the first time" not in said_again


@pytest.mark.skipif(sys.platform == "win32", reason="modes and owners are those of POSIX")
def test_a_cache_folder_that_others_may_write_to_is_not_used(tmp_path):
    folder = tmp_path / "fmepy" / "compiled"
    folder.parent.mkdir(mode=0o700)
    folder.mkdir()
    folder.chmod(0o777)
    _, files, said = run_program(tmp_path)
    assert "others may write" in said
    assert not any(f.startswith(str(tmp_path)) for f in files)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="modes and owners are those of POSIX")
def test_a_cache_folder_behind_a_symbolic_link_is_not_used(tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "fmepy").mkdir(mode=0o700)
    (tmp_path / "fmepy" / "compiled").symlink_to(tmp_path / "elsewhere")
    assert "symbolic link" in compiled_folder._why_not_private(tmp_path / "fmepy" / "compiled")
    assert compiled_folder._why_not_private(tmp_path / "elsewhere") == ""


def test_a_fresh_cache_folder_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled_folder.sys, "platform", "linux")
    folder = compiled_folder.cache_folder.__wrapped__()
    assert folder == tmp_path / "fmepy" / "compiled"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_a_run_may_begin_later():
    def grows(n, x, *, a=2.0):
        return x + a * n

    model = DifferenceModel(grows, state={"x": "x0"}, parms={"x0": 5.0}, times=np.arange(7))
    whole = model({"a": 3.0}).x
    Y, S = model.bind(["a", "x0"], times=[3.0, 6.0], start=2.0).sensitivities(np.array([3.0, whole[2]]))
    assert Y[:, 0].tolist() == whole[[3, 6]].tolist()
    assert (3 * S[:, 0, 0]).tolist() == (whole[[3, 6]] - whole[2]).tolist()
    assert S[:, 0, 1].tolist() == [1, 1]
    with pytest.raises(ModelError, match="whole number"):
        model.bind(times=[3.0, 6.0], start=2.5)
