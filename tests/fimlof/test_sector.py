"""A sector is the model of its states with the others' data as inputs; put together, the sectors make the whole."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from tests.fimlof.market import market_cost


def chain(n, a, b, c, *, k=0.8, m=0.3, s=0.6, inflow=1.0):
    return k * a + inflow, b - 0.1 * b + m * a, s * c + 0.2 * b


@pytest.fixture(scope="module")
def whole():
    rng = np.random.default_rng(3)
    model = fme.DifferenceModel(
        chain, state={"a": 8.0, "b": 1.0, "c": 1.0}, times=np.arange(61), outputs={"twice": "2 * b", "mixed": "a + b"}
    )
    x, rows = np.array([8.0, 1.0, 1.0]), []
    for n in range(1, 61):
        x = np.array(chain(n, *x)) + 0.2 * rng.standard_normal(3)
        a, b, c = x + 0.05 * rng.standard_normal(3)
        rows.append((n, a, b, c, 2 * x[1] + 0.1 * rng.standard_normal(), x[0] + x[1]))
    data = pd.DataFrame(rows, columns=["time", "a", "b", "c", "twice", "mixed"])
    return fme.FimlofCost(
        model, data, process_noise=dict.fromkeys("abc", "sd_w"), parms={"sd_w": 0.2},
        measurement_noise={"a": 0.05, "b": 0.05, "c": 0.05, "twice": 0.1, "mixed": 0.1},
        initial_sd={"a": 1.0, "b": 1.0, "c": 1.0},
    )  # fmt: skip


def test_a_sector_is_the_model_written_by_hand_with_the_data_as_forcing(whole):
    part = fme.sector(whole, ["b"])
    assert part.inputs == ("a",)
    assert list(part.cost.parms.index) == ["m", "sd_w"]
    data = whole.obs
    by_hand = fme.DifferenceModel(
        "next(b) = b - 0.1 * b + m * u\ntwice = 2 * b", state={"b": 1.0}, times=np.arange(61), parms={"m": 0.3},
        forcings={"u": (data.time + 1, data.a)},
    )  # fmt: skip
    cost = fme.FimlofCost(
        by_hand, data[["time", "b", "twice"]], process_noise={"b": "sd_w"}, parms={"sd_w": 0.2},
        measurement_noise={"b": 0.05, "twice": 0.1}, initial_sd={"b": 1.0},
    )  # fmt: skip
    for p in (None, {"m": 0.4, "sd_w": 0.1}):
        assert part.cost(p) == pytest.approx(cost(p), rel=1e-12)


def test_a_sector_of_other_steps_is_the_same_at_other_times(whole):
    data = whole.obs.assign(time=0.25 * whole.obs["time"])
    quarters = whole.model.replace(times=0.25 * np.arange(61), dt=0.25)
    slow = whole.replace(model=quarters, obs=data)
    assert fme.sector(slow, ["b"]).cost() == pytest.approx(fme.sector(whole, ["b"]).cost(), rel=1e-12)


def test_sector_by_sector_the_parameters_are_found_and_one_filter_of_the_whole_confirms_them(whole):
    first = fme.modFit(fme.sector(whole, ["a"]).cost, ["k", "inflow"])
    second = fme.modFit(fme.sector(whole, ["b"]).cost, ["m"])
    third = fme.modFit(fme.sector(whole, ["c"]).cost, ["s"])
    together = {**first.par, **second.par, **third.par}
    at_once = fme.modFit(whole, ["k", "m", "s", "inflow"])
    for name, value in together.items():
        assert value == pytest.approx(at_once.par[name], abs=2.5 * at_once.std_error[name]), name
    assert whole(together) < at_once.deviance + 12


def test_missing_inputs_are_interpolated_and_told(whole):
    data = whole.obs.copy()
    data.loc[data.time.isin([5, 6]), "a"] = np.nan
    part = fme.sector(whole.replace(obs=data), ["b"])
    assert part.interpolated["time"].tolist() == [0, 5, 6]  # the data begin one step after the start
    assert part.interpolated["value"][0] == data.a[0]
    a4, a7 = data.a[data.time == 4].item(), data.a[data.time == 7].item()
    np.testing.assert_allclose(part.interpolated["value"][1:], a4 + (a7 - a4) * np.array([1 / 3, 2 / 3]))
    assert "a: 3 values were not measured and are interpolated" in repr(part)


def test_several_entities_have_inputs_of_their_own_in_one_cost():
    cost, _ = market_cost("single")
    rng = np.random.default_rng(2)
    other = cost.obs.assign(firm=2, DRA=lambda t: t.DRA * (1 + 0.02 * rng.standard_normal(len(t))))
    panel = cost.replace(obs=pd.concat([cost.obs, other]))
    part = fme.sector(panel, ["SM"])
    assert repr(part).splitlines()[1:] == [f"  {part.cost!r}"]
    assert part.inputs == ("DRA",)
    alone = [fme.sector(cost.replace(obs=obs), ["SM"]).cost for obs in (cost.obs, other)]
    p = {"SAT": 15.0}
    assert part.cost(p) == pytest.approx(sum(one(p) for one in alone), rel=1e-12)
    assert set(part.cost.parms.index) == {"SAT", "w_SM"}
    fit = fme.modFit(part.cost, ["SAT"])
    assert fit.converged
    filters = [part.cost.filter(fit.par).of(firm) for firm in (1, 2)]
    assert [flt.nobs for flt in filters] == [200, 200]
    assert -2 * sum(flt.loglik for flt in filters) == pytest.approx(fit.deviance, rel=1e-12)
    assert 5 < fit.par["SAT"] < 30


def test_what_a_sector_needs_must_be_measured(whole):
    hidden = fme.FimlofCost(whole.model, whole.obs[["time", "b", "c"]], process_noise=whole.process_noise,
                            parms={"sd_w": 0.2}, measurement_noise={"b": 0.05, "c": 0.05})  # fmt: skip
    with pytest.raises(
        ArgumentError, match=r"needs 'a' of the other sectors, which is not measured.*states=\['b', 'a'\]"
    ):
        fme.sector(hidden, ["b"])
    with pytest.raises(ArgumentError, match=r"no state 'bb'. Did you mean 'b'"):
        fme.sector(whole, ["bb"])
    with pytest.raises(ArgumentError, match=r"`states` names none.*there are 'a', 'b'"):
        fme.sector(whole, [])
    with pytest.raises(ArgumentError, match="Nothing of the sector 'a' is measured"):
        fme.sector(hidden, "a")


def test_sums_that_were_read_stay_sums_in_a_sector(whole):
    data = whole.obs.copy()
    data["twice"] = data["twice"].rolling(4).sum().where(data.time % 4 == 0)
    part = fme.sector(whole.replace(obs=data, accumulate={"twice": 4}), ["b"])
    assert part.cost.accumulate == {"twice": 4}
    assert part.cost.filter().sumsq < 3 * part.cost.nobs


def test_events_of_a_sector_s_states_stay_with_it():
    model = fme.OdeModel(
        lambda t, a, b, *, k=0.3, m=0.5, dose=2.0: (-k * a, m * a - b),
        state={"a": 1.0, "b": 0.0}, times=np.arange(5.0), method="euler", dt=0.5,
        events=[{"var": "a", "time": 2.0, "value": "dose", "method": "add"},
                {"var": "b", "time": 3.0, "value": 1.0, "method": "replace"}],
    )  # fmt: skip
    data = {"time": [1, 2, 3, 4], "a": [0.8, 0.6, 2.0, 1.4], "b": [0.3, 0.3, 0.6, 0.9]}
    cost = fme.FimlofCost(model, data, process_noise={"a": 0.1, "b": 0.1}, measurement_noise={"a": 0.1, "b": 0.1})
    assert set(fme.sector(cost, ["a"]).cost.parms.index) == {"k", "dose"}
    alone = fme.FimlofCost(model, {k: data[k] for k in ("time", "a")}, process_noise={"a": 0.1},
                           measurement_noise={"a": 0.1})  # fmt: skip
    for p in (None, {"dose": 1.5}):
        assert fme.sector(cost, ["a"]).cost(p) == pytest.approx(alone(p), rel=1e-12)
    assert fme.sector(cost, ["b"]).cost.filter().predicted["b"].iloc[-1] > 0.9  # it was set to 1 at time 3


def test_parameters_of_entities_stay_their_own_in_a_sector(whole):
    panel = pd.concat([whole.obs.assign(firm=1), whole.obs.assign(firm=2)])
    cost = whole.replace(obs=panel, entity="firm", entity_parms=["m"], process_noise={"a": "estimate", "b": "estimate"},
                         parms={"m[1]": 0.2, "m[2]": 0.4, "sd_w_b": 0.3})  # fmt: skip
    part = fme.sector(cost, ["b"]).cost
    assert part.parms.to_dict() == {"m[1]": 0.2, "sd_w_b": 0.3, "m[2]": 0.4}
    one = fme.sector(whole.replace(process_noise={"b": 0.3}), ["b"]).cost
    assert part() == pytest.approx(one({"m": 0.2}) + one({"m": 0.4}), rel=1e-12)


def test_tolerances_by_state_and_the_longest_step_go_with_the_states():
    text, times = "d(a)/dt = -k*a\nd(b)/dt = k*a - m*b", [0.0, 1.0, 2.0, 3.0]
    model = fme.OdeModel(
        text, state={"a": 1.0, "b": 0.0}, times=times, parms={"k": 0.5, "m": 0.2}, atol={"b": 1e-9}, max_step=0.5
    )
    data = {"time": times[1:], "a": [0.6, 0.4, 0.2], "b": [0.4, 0.5, 0.6]}
    noise = {"a": 0.1, "b": 0.1}
    cost = fme.FimlofCost(model, data, process_noise=noise, measurement_noise=noise)
    a, b = (fme.sector(cost, [k]).cost.model for k in ("a", "b"))
    assert (a.atol["a"], b.atol["b"]) == (1e-6, 1e-9)
    assert a.engine == b.engine == "compiled"
    assert a.options.max_step == b.options.max_step == 0.5


def test_the_cost_of_a_simulation_has_no_sectors():
    model = fme.OdeModel("d(x)/dt = -k * x", state={"x": 1.0}, parms={"k": 0.3}, times=[0, 1])
    with pytest.raises(ArgumentError, match=r"must be a FimlofCost of the whole model; got SimulationCost"):
        fme.sector(fme.SimulationCost(model, {"time": [1.0], "x": [0.7]}), ["x"])
