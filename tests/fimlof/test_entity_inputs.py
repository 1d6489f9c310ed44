"""Events, forcings and starts at rest of several entities: the filter of each is that of its model made by hand."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError
from fmepy.fimlof import FimlofCost

T = np.arange(1.0, 9.0)
LABELS = ("a", "b", "c")
DOSES = pd.DataFrame({
    "tank": ["a", "a", "b", "c"], "var": "x", "time": [2.0, 5.0, 3.5, 0.0], "value": [2.0, "dose", 4.0, 0.0],
    "method": "add",
})  # fmt: skip
INFLOW = pd.DataFrame({
    "tank": np.repeat(LABELS, 2), "time": [0, 8] * 3, "value": [0.5, 1.0, 2.0, 2.0, 1.0, 0.0],
})  # fmt: skip
NOISE = {"process_noise": {"x": "sd_w"}, "measurement_noise": {"x": "sd_v"}, "parms": {"sd_w": 0.2, "sd_v": 0.1}}
P = {"k": 0.35, "dose": 1.5, "sd_w": 0.3, "sd_v": 0.15}


def tank(t, x, inflow, *, k=0.4, dose=1.0, x0=3.0):
    return inflow - k * x


def model(events=DOSES, inflow=INFLOW, **words):
    return fme.OdeModel(
        tank, state={"x": "x0"}, times=np.arange(9.0), events=events, forcings={"inflow": inflow}, **words
    )


def data(labels=LABELS):
    rng = np.random.default_rng(5)
    return pd.DataFrame({
        "tank": np.repeat(labels, len(T)), "time": np.tile(T, len(labels)),
        "x": 3 + rng.standard_normal(len(T) * len(labels)),
    })  # fmt: skip


def by_hand(label, **words):
    """Return the cost of one entity, with plain events and forcings."""
    mine = {name: table[table["tank"] == label] for name, table in (("events", DOSES), ("inflow", INFLOW))}
    own = model(mine["events"].drop(columns="tank"), (mine["inflow"]["time"], mine["inflow"]["value"]), **words)
    return FimlofCost(own, data().query("tank == @label").drop(columns="tank"), **NOISE)


METHODS = {"ode": {}, "rk4": {"method": "rk4", "dt": 0.25}, "euler": {"method": "euler", "dt": 0.5}}


@pytest.mark.parametrize("how", METHODS)
def test_events_and_forcings_by_entity_are_those_of_the_model_made_by_hand(how):
    whole = FimlofCost(model(**METHODS[how]), data(), entity="tank", **NOISE)
    apart = {label: by_hand(label, **METHODS[how]) for label in LABELS}
    assert whole(P) == pytest.approx(sum(one(P) for one in apart.values()), rel=1e-10)
    names, theta = list(P), np.array(list(P.values()))
    bound, bounds = whole.bind(names), [one.bind(names) for one in apart.values()]
    np.testing.assert_allclose(bound.score(theta), sum(b.score(theta) for b in bounds), rtol=1e-7)
    np.testing.assert_allclose(bound.information(theta), sum(b.information(theta) for b in bounds), rtol=1e-7)
    flt = whole.filter(P)
    for label, one in apart.items():
        expected = one.filter(P)
        mine = flt.rows_of(flt.smoothed, label).drop(columns="tank").reset_index(drop=True)
        pd.testing.assert_frame_equal(mine, expected.smoothed, rtol=1e-8)
        assert flt.of(label).loglik == pytest.approx(expected.loglik, rel=1e-10)


def test_a_value_of_an_event_of_whichever_entity_is_no_scale_of_noise():
    words = {"entity": "tank", "process_noise": {"x": "dose"}, "measurement_noise": {"x": 0.1}}
    assert FimlofCost(model(DOSES.assign(value=1.0)), data(), **words).lower["dose"] == 0
    for value in ([2.0, 1.0, "dose", 0.0], [2.0, "dose", 1.0, 0.0]):
        assert FimlofCost(model(DOSES.assign(value=value)), data(), **words).lower["dose"] == -np.inf


def test_local_and_shared_parameters_with_inputs_by_entity_are_separate_and_pooled_fits():
    cost = FimlofCost(model(method="rk4", dt=0.5), data(), entity="tank", **NOISE)
    local = cost.replace(entity_parms=["k", "sd_w", "sd_v"])
    fit = fme.modFit(local, [f"{n}[{e}]" for e in LABELS for n in ("k", "sd_v")])
    deviance = 0.0
    for label in LABELS:
        alone = fme.modFit(by_hand(label, method="rk4", dt=0.5), ["k", "sd_v"])
        deviance += alone.deviance
        assert fit.par[f"k[{label}]"] == pytest.approx(alone.par["k"], rel=1e-6)
        assert fit.par[f"sd_v[{label}]"] == pytest.approx(alone.par["sd_v"], rel=1e-5)
    assert fit.deviance == pytest.approx(deviance, rel=1e-8)
    pooled = fme.modFit(cost, ["k", "sd_v"])
    by_sum = fme.modFit(sum((by_hand(e, method="rk4", dt=0.5) for e in "bc"), by_hand("a", method="rk4", dt=0.5)),
                        ["k", "sd_v"])  # fmt: skip
    assert pooled.deviance == pytest.approx(by_sum.deviance, rel=1e-10)
    np.testing.assert_allclose(list(pooled.par), list(by_sum.par), rtol=1e-6)


def test_forecasts_and_histories_know_the_entity():
    whole, alone = FimlofCost(model(), data(), entity="tank", **NOISE), by_hand("b")
    with pytest.warns(UserWarning, match="'inflow' ends at 8: its last value"):
        ahead, expected = (c.filter(P).forecast(times=[9.0, 10.0]) for c in (whole, alone))
    mine = ahead.frame.query("tank == 'b'").drop(columns="tank").reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, expected.frame, rtol=1e-8)
    more = {"inflow": INFLOW.assign(time=[8, 12] * 3, value=[9.0, 9.0, 1.0, 1.0, 5.0, 5.0])}
    ahead = whole.filter(P).forecast(times=[10.0], forcings=more).frame.set_index("tank")["mean"]
    expected = alone.filter(P).forecast(times=[10.0], forcings={"inflow": ([0, 1], [1, 1])}).frame["mean"]
    assert ahead["b"] == pytest.approx(expected.item(), rel=1e-8)
    assert ahead["a"] > ahead["c"] > ahead["b"]
    quiet = {"sd_w": 0.0, "sd_v": 1e-9}
    drawn = whole.replace(process_noise={}).simulate(quiet, seed=1)
    path = model()(None, [0, *T], entity="a")["x"][1:]
    np.testing.assert_allclose(drawn.query("tank == 'a'")["x"], path, rtol=1e-5)


def test_noise_free_filters_are_runs_of_every_entity():
    words = {"process_noise": {}, "measurement_noise": {"x": "sd_v"}, "parms": {"sd_v": 0.2}, "entity": "tank"}
    cost = FimlofCost(model(), data(), **words)
    simulation = fme.SimulationCost(model(), data(), measurement_noise={"x": "sd_v"}, parms={"sd_v": 0.2},
                                    entity="tank")  # fmt: skip
    names = ["k", "dose", "sd_v"]
    theta = np.array([0.35, 1.5, 0.3])
    a, b = cost.bind(names), simulation.bind(names)
    assert a.minus2loglik(theta) == pytest.approx(b.minus2loglik(theta), rel=1e-6)
    np.testing.assert_allclose(a.score(theta), b.score(theta), rtol=1e-4)
    np.testing.assert_allclose(a.information(theta), b.information(theta), rtol=1e-4)


# --- starts at rest

ROWS = pd.DataFrame({"u": [1.0, 4.0, 2.0], "start_from": [None, "calm", "calm"]}, index=["calm", "high", "low"])


def filling(t, x, *, k=0.5, u=1.0, x0=0.3):
    return u - k * x


@pytest.mark.parametrize("how", METHODS)
@pytest.mark.parametrize("noise", [0.2, 0.0])
def test_a_start_at_rest_is_the_steady_state_given_by_hand_and_moves_with_the_parameters(how, noise):
    words = {"process_noise": {"x": "sd_w"} if noise else {}, "measurement_noise": {"x": 0.1}}
    parms = {"parms": {"sd_w": noise}} if noise else {}
    basin = fme.OdeModel(filling, state={"x": "x0"}, times=np.arange(9.0), rtol=1e-10, atol=1e-12, **METHODS[how])
    obs = data(["high", "low"])
    cost = FimlofCost(basin, obs, entity="tank", conditions=ROWS, **words, **parms)
    by_rest = basin.replace(state={"x": "rest / k"}, parms={"rest": 1.0})
    rows = ROWS.loc[["high", "low"], ["u"]].assign(rest=1.0)
    known = FimlofCost(by_rest, obs, entity="tank", conditions=rows, **words, **parms)
    a, b = cost.bind(["k"]), known.bind(["k"])
    for k in (0.5, 0.4):
        theta = np.array([k])
        assert a.minus2loglik(theta) == pytest.approx(b.minus2loglik(theta), rel=1e-8)
        np.testing.assert_allclose(a.score(theta), b.score(theta), rtol=1e-5)
        np.testing.assert_allclose(a.information(theta), b.information(theta), rtol=1e-5)
    first = cost.filter({"k": 0.4}).smoothed
    np.testing.assert_allclose(first.loc[first["time"] == 0, "x"], 1 / 0.4, rtol=1e-6)
    assert fme.modFit(cost, ["k"]).par["k"] == pytest.approx(fme.modFit(known, ["k"]).par["k"], rel=1e-6)
    assert cost.simulate({"k": 0.4}, seed=2)["x"].to_numpy() == pytest.approx(
        known.simulate({"k": 0.4}, seed=2)["x"].to_numpy(), rel=1e-6
    )
    drawn = cost.filter().forecast(2)
    np.testing.assert_allclose(drawn.frame["mean"], known.filter().forecast(2).frame["mean"], rtol=1e-7)
    assert cost.model_of("high")({"k": 0.4})["x"].iloc[0] == pytest.approx(1 / 0.4, rel=1e-6)


def test_a_start_at_rest_may_be_uncertain_and_its_row_may_have_inputs():
    uncertain = FimlofCost(
        fme.OdeModel(filling, state={"x": "x0"}, times=np.arange(9.0), method="rk4", dt=0.5), data(["high"]),
        entity="tank", conditions=ROWS.loc[["calm", "high"]], initial_sd={"x": 0.7}, **NOISE,
    )  # fmt: skip
    assert uncertain.filter().sd("predicted")["x"].iloc[0] == pytest.approx(0.7)
    rows = pd.DataFrame({"k": ["k", 0.2], "start_from": ["b", None]}, index=["a", "b"])
    cost = FimlofCost(model(), data(["a"]), entity="tank", conditions=rows, **NOISE)
    first = cost.filter().filtered
    assert first["x"].iloc[0] == pytest.approx(2.0 / 0.2, rel=1e-6)  # its inflow goes on as it ends; no events


@pytest.mark.parametrize("noise", [{"x": 0.3}, {}])
def test_a_start_at_rest_moves_with_parameters_of_the_other_row_and_with_what_begins_anew(noise):
    basin = fme.OdeModel(
        "d(x)/dt = u - k*x\nd(y)/dt = k*x - 0.8*y\nx(0) = x0\ny(0) = 0.1", times=np.arange(9.0),
        parms={"u": 1.0, "k": 0.5, "x0": 0.3}, rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    obs = pd.DataFrame({"tank": np.repeat(["a", "b"], 8), "time": np.tile(np.arange(1, 9.0), 2),
                        "x": 2 + rng.standard_normal(16), "y": 1 + rng.standard_normal(16)})  # fmt: skip
    rows = pd.DataFrame({"u": ["before", "u", "u"], "x0": [0.3, "begin", None], "start_from": [None, "calm", "calm"]},
                        index=["calm", "a", "b"])  # fmt: skip
    words = {"entity": "tank", "process_noise": noise, "measurement_noise": {"x": 0.2, "y": 0.2}}
    cost = FimlofCost(basin, obs, conditions=rows, parms={"before": 1.2, "begin": 3.0}, **words)
    bound = cost.bind(["before", "u", "k", "begin"])
    theta = np.array([1.2, 1.1, 0.5, 3.0])
    given = pd.DataFrame({"x0": [3.0, 2.4], "y0": [1.5, 1.5]}, index=["a", "b"])
    known = FimlofCost(basin.replace(state={"y": "y0"}, parms={"y0": 0.1}), obs, conditions=given, **words)
    assert bound.minus2loglik(theta) == pytest.approx(known({"u": 1.1}), rel=1e-7)
    score = bound.score(theta)
    for j, e in enumerate(1e-4 * np.eye(4)):
        slope = -0.5 * (bound.minus2loglik(theta + e) - bound.minus2loglik(theta - e)) / 2e-4
        assert score[j] == pytest.approx(slope, rel=1e-4)


def test_what_is_missing_is_told_with_the_nearest_name():
    with pytest.raises(ModelError, match=r"no row of entity 'aa'.*Did you mean 'a'"):
        FimlofCost(model(), data(["aa", "b"]), entity="tank", **NOISE)
    with pytest.raises(ArgumentError, match="must be called so: entity='tank'"):
        FimlofCost(model(), data().rename(columns={"tank": "basin"}), entity="basin", **NOISE)
    with pytest.raises(ArgumentError, match="entity='tank'"):
        FimlofCost(model(), data().drop(columns="tank"), **NOISE)
    rows = pd.DataFrame({"start_from": ["d", None]}, index=["a", "d"])
    with pytest.raises(ModelError, match="no row of entity 'd'"):
        FimlofCost(model(), data(["a"]), entity="tank", conditions=rows, **NOISE)
    flt = FimlofCost(model(), data(), entity="tank", **NOISE).filter()
    with pytest.raises(ModelError, match="no row of entity 'c'"):
        flt.forecast(1, forcings={"inflow": INFLOW.query("tank != 'c'")})


def test_what_never_rests_is_a_failure_that_says_so():
    swing = fme.OdeModel("d(x)/dt = w*y\nd(y)/dt = -w*x\nx(0) = 1\ny(0) = 0", times=[0, 1], parms={"w": 1.0})
    rows = {"tank": ["before", "after"], "start_from": [None, "before"]}
    cost = FimlofCost(swing, {"tank": ["after"], "time": [1.0], "x": [0.5]}, entity="tank", conditions=rows,
                      process_noise={"x": 0.1}, measurement_noise={"x": 0.1})  # fmt: skip
    assert cost() == np.inf
    failure = cost.filter().failure
    assert "come to rest" in failure or "failed" in failure


# --- sectors


def chain(n, a, b, *, k=0.8, m=0.3, inflow=1.0, b0=1.0):
    return k * a + inflow, 0.9 * b + m * a


def test_a_sector_keeps_conditions_and_events_by_entity():
    rng = np.random.default_rng(2)
    obs = pd.DataFrame({"tank": np.repeat([1, 2], 10), "time": np.tile(np.arange(1, 11), 2),
                        "a": 4 + rng.standard_normal(20), "b": 9 + rng.standard_normal(20)})  # fmt: skip
    whole = fme.DifferenceModel(chain, state={"a": 5.0, "b": "b0"}, times=np.arange(11))
    rows = pd.DataFrame({"b0": [1.0, "start"], "k": [0.7, 0.9], "m": ["m", "quick"], "sd_w": [0.2, "sd_w"]},
                        index=[1, 2])  # fmt: skip
    cost = FimlofCost(whole, obs, entity="tank", conditions=rows, process_noise={"a": 0.1, "b": "sd_w"},
                      measurement_noise={"a": 0.1, "b": 0.1},
                      parms={"start": 2.0, "quick": 0.4, "sd_w": 0.3})  # fmt: skip
    part = fme.sector(cost, ["b"]).cost
    assert set(part.parms.index) == {"m", "quick", "start", "sd_w"}
    p = {"m": 0.25, "quick": 0.5, "start": 1.5, "sd_w": 0.4}
    alone = 0.0
    for label, own in ((1, {"b0": 1.0, "m": 0.25, "sd_w": 0.2}), (2, {"b0": 1.5, "m": 0.5, "sd_w": 0.4})):
        mine = obs[obs["tank"] == label].drop(columns="tank")
        one = cost.replace(obs=mine, entity=None, conditions=None)
        alone += fme.sector(one, ["b"]).cost(own)
    assert part(p) == pytest.approx(alone, rel=1e-12)
    assert list(fme.sector(cost, ["a"]).cost.parms.index) == ["inflow"]


def test_a_sector_keeps_events_by_entity_and_refuses_a_rest_without_inputs():
    text = "d(a)/dt = u - k*a\nd(b)/dt = m*a - b\na(0) = 1\nb(0) = 0"
    events = pd.DataFrame({"tank": ["s", "s", "r"], "var": ["a", "b", "a"], "time": [2.0, 3.0, 2.5],
                           "value": [1.0, 2.0, "dose"], "method": "add"})  # fmt: skip
    two = fme.OdeModel(text, times=np.arange(6.0), parms={"k": 0.3, "m": 0.5, "u": 0.4, "dose": 1.0}, events=events,
                       method="euler", dt=0.5)  # fmt: skip
    obs = pd.DataFrame({"tank": np.repeat(["s", "r"], 5), "time": np.tile(np.arange(1.0, 6.0), 2),
                        "a": np.linspace(1, 2, 10), "b": np.linspace(0.5, 1, 10)})  # fmt: skip
    cost = FimlofCost(two, obs, entity="tank", process_noise={"a": 0.1, "b": 0.1},
                      measurement_noise={"a": 0.1, "b": 0.1})  # fmt: skip
    alone = FimlofCost(two, obs.drop(columns="b"), entity="tank", process_noise={"a": 0.1},
                       measurement_noise={"a": 0.1})  # fmt: skip
    p = {"dose": 1.5, "k": 0.4}
    part = fme.sector(cost, ["a"]).cost
    assert part(p) == pytest.approx(alone(p), rel=1e-12)
    of_b, apart = fme.sector(cost, ["b"]).cost, 0.0
    for label in ("s", "r"):
        mine = obs[obs["tank"] == label].drop(columns="tank")
        one = FimlofCost(two.of_entity(label), mine, process_noise={"a": 0.1, "b": 0.1},
                         measurement_noise={"a": 0.1, "b": 0.1})  # fmt: skip
        apart += fme.sector(one, ["b"]).cost({"m": 0.7})
    assert of_b({"m": 0.7}) == pytest.approx(apart, rel=1e-12)
    resting = cost.replace(conditions=pd.DataFrame({"start_from": [None, "s"]}, index=["s", "r"]))
    assert fme.sector(resting, ["a"]).cost.filter().predicted.query("tank == 'r'")["a"].iloc[0] > 1.3
    with pytest.raises(ArgumentError, match=r"steady state of another row.*states=\['b', 'a'\]"):
        fme.sector(resting, ["b"])


def test_transformed_models_have_inputs_by_entity_and_start_at_rest():
    logged = fme.transformed(model(), "log", names=["k"])
    cost = FimlofCost(logged, data(), entity="tank", **NOISE)
    plain = FimlofCost(model(), data(), entity="tank", **NOISE)
    assert cost(P | {"k": np.log(P["k"])}) == pytest.approx(plain(P), rel=1e-9)
    basin = fme.OdeModel(filling, state={"x": "x0"}, times=np.arange(9.0))
    a, b = (
        FimlofCost(m, data(["high"]), entity="tank", conditions=ROWS.loc[["calm", "high"]], **NOISE)
        for m in (fme.transformed(basin, "log", names=["k"]), basin)
    )
    assert a({"k": np.log(0.4)}) == pytest.approx(b({"k": 0.4}), rel=1e-7)


def test_transformed_difference_models_and_systems_of_arrays_are_filtered():
    walk = fme.DifferenceModel("next(x) = a*x + 1", state={"x": "x0"}, times=range(9), parms={"a": 0.5, "x0": 2.0})
    herds = fme.dmi.Module("herds", "dims herd[2]\nd(herd)/dt = 1 - graze*herd\noutput herd")
    system = fme.dmi.ModularModel([herds], {"herd": [2.0, 3.0], "graze": 0.5}, times=range(9), dt=1.0)
    for plain, name, state in ((walk, "a", "x"), (system.compiled("ode"), "graze", "herd[0]")):
        obs = {"time": T, state: 2 + 0.2 * np.cos(T)}
        words = {"process_noise": {state: 0.1}, "measurement_noise": {state: 0.1}}
        logged = FimlofCost(fme.transformed(plain, "log"), obs, **words)
        assert logged({name: np.log(0.6)}) == pytest.approx(FimlofCost(plain, obs, **words)({name: 0.6}))


@pytest.mark.parametrize("noise", [{"x": 0.3}, {}])
def test_root_events_in_a_transformed_model_are_refused(noise):
    drained = model(events=[dict(root="x - 2", direction=1, var="x", value=0.5)], inflow=([0, 8], [1.0, 1.0]))
    for given in (drained, fme.transformed(drained, "log", names=["k"])):
        with pytest.raises(ModelError, match="has root events"):
            FimlofCost(given, {"time": T, "x": T}, process_noise=noise, measurement_noise={"x": 0.1})
