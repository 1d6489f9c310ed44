"""Without process noise, from a known start, a filter is a run of its model: the same numbers, by its sensitivities."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import SimulationError
from tests.plain import plain

NO_W = {"x": "sd_w"}  # free at zero, it leaves the work to the filter


def grow(n, x, y, *, r=0.3, K=20.0, a=0.1):
    return x + r * x * (1 - x / K) - a * y, 0.8 * y + a * x


def decay(t, x, y, *, k=0.4, m=0.1, dose=2.0):
    return -k * x, k * x - m * y


def difference():
    return fme.DifferenceModel(grow, state={"x": 2.0, "y": "y0"}, times=np.arange(13), parms={"y0": 1.0},
                               outputs={"both": "x + y"})  # fmt: skip


def ode(**words):
    events = pd.DataFrame(
        {"var": ["x", "y"], "time": [3.0, 5.2], "value": ["dose", 0.7], "method": ["add", "multiply"]}
    )
    return fme.OdeModel(decay, state={"x": 8.0, "y": "y0"}, times=np.arange(0, 11.0), parms={"y0": 1.0},
                        outputs={"both": "x + y"}, events=events, rtol=1e-10, atol=1e-10, **words)  # fmt: skip


def records(model, seed=1):
    rng = np.random.default_rng(seed)
    table = model().iloc[1:][["time", "x", "both"]]
    table[["x", "both"]] *= np.exp(0.1 * rng.standard_normal((len(table), 2)))
    table.iloc[2, 1] = np.nan
    return pd.concat([table, table.iloc[4:6] * [1.0, 1.1, np.nan]]).sort_values("time")  # twice read at two times


MODELS = pytest.mark.parametrize("model", [difference(), ode()], ids=["difference", "ode"])
NOISES = pytest.mark.parametrize(
    ("noise", "parms", "transform"),
    [
        ({"x": "sd_v * x", "both": "estimate"}, {"sd_v": 0.1}, None),
        ({"x": "s", "both": "s * sqrt(1 + y**2)"}, {"s": 0.2}, {"both": "log"}),
        ({"x": 0.3, "both": "q"}, {"q": 0.1}, "sqrt"),
    ],
    ids=["proportional", "of states", "roots"],
)


def both_ways(cost, **parms):
    """Return the bound cost that runs the model, that which filters, and a theta of each."""
    p = pd.Series({**cost.parms, **parms})
    names = [k for k in p.index if k != "sd_w"]
    return cost.bind(names), cost.bind([*names, "sd_w"]), p[names].to_numpy(), np.append(p[names].to_numpy(), 0.0)


def check_the_same(cost, rel=1e-6, **parms):
    runs, filtered, theta, with_zero = both_ways(cost, **parms)
    assert runs.minus2loglik(theta) == pytest.approx(filtered.minus2loglik(with_zero), rel=1e-8, abs=1e-5)
    score = filtered.score(with_zero)[:-1]
    np.testing.assert_allclose(runs.score(theta), score, rtol=rel, atol=rel * np.abs(score).max())
    information = filtered.information(with_zero)[:-1, :-1]
    np.testing.assert_allclose(runs.information(theta), information, rtol=rel, atol=rel * np.abs(information).max())
    np.testing.assert_allclose(runs.sample_scores(theta).sum(axis=0), score, rtol=rel, atol=rel * np.abs(score).max())


@MODELS
@NOISES
def test_value_score_and_information_are_those_of_the_filter(model, noise, parms, transform):
    cost = fme.FimlofCost(model, records(model), process_noise=NO_W, measurement_noise=noise, transform=transform,
                          parms={**parms, "sd_w": 0.0})  # fmt: skip
    check_the_same(cost, 1e-5)
    check_the_same(cost, 1e-5, y0=1.5)


@MODELS
def test_correlated_errors(model):
    table = records(model).dropna().drop_duplicates("time")
    noise = pd.DataFrame([["v", "cov"], ["cov", 0.3]], ["x", "both"], ["x", "both"])
    cost = fme.FimlofCost(model, table, process_noise=NO_W, measurement_noise=noise,
                          parms={"v": 0.2, "cov": 0.1, "sd_w": 0.0})  # fmt: skip
    check_the_same(cost, 1e-5)
    table.iloc[1, 1] = np.nan
    check_the_same(cost.replace(obs=table), 1e-5)


@MODELS
def test_repeated_readings_have_errors_of_their_own_beside_a_table_of_covariances(model):
    noise = pd.DataFrame([["v", 0.0], [0.0, 0.3]], ["x", "both"], ["x", "both"])
    cost = fme.FimlofCost(model, records(model), process_noise=NO_W, measurement_noise=noise,
                          parms={"v": 0.2, "sd_w": 0.0})  # fmt: skip
    check_the_same(cost, 1e-5)


@MODELS
def test_entities_with_parameters_of_their_own(model):
    table = pd.concat([
        records(model).assign(who="A"), records(model, 2).iloc[2:].assign(who="B"), records(model, 3).assign(who="C")
    ])  # fmt: skip
    cost = fme.FimlofCost(model, table, process_noise=NO_W, measurement_noise={"x": 0.3, "both": "sd"}, entity="who",
                          entity_parms=["y0"], parms={"sd": 0.4, "y0[B]": 2.0, "sd_w": 0.0})  # fmt: skip
    check_the_same(cost, 1e-5)
    some = [k for k in cost.parms.index if k not in ("sd_w", "y0[B]")]
    theta = cost.parms[some].to_numpy()
    whole = cost.bind([k for k in cost.parms.index if k != "sd_w"])
    kept = [whole.parameter_names.index(k) for k in some]
    np.testing.assert_allclose(cost.bind(some).score(theta), whole.score(whole.theta0)[kept], rtol=1e-8)


def test_errors_of_the_data_and_a_function_without_equations():
    def jump(n, x, y, *, r=0.3, K=20.0, a=0.1):
        return (x + r * x * (1 - x / K) - a * y, 0.8 * y + a * x) if plain(x) > -5 else (x, y)

    model = fme.DifferenceModel(jump, state={"x": 2.0, "y": 1.0}, times=np.arange(13))
    table = records(difference())[["time", "x"]].assign(err=0.2)
    long = table.rename(columns={"x": "value"}).assign(name="x")[["name", "time", "value", "err"]]
    cost = fme.FimlofCost(model, long, y="value", err="err", process_noise=NO_W, parms={"sd_w": 0.0, "scale": 1.2},
                          measurement_noise={"x": "scale * err"})  # fmt: skip
    check_the_same(cost, 1e-5)


@MODELS
def test_it_costs_one_run_and_a_score_one_with_sensitivities(model, monkeypatch):
    cost = fme.FimlofCost(model, records(model), process_noise={}, measurement_noise={"x": 0.3, "both": "sd"},
                          parms={"sd": 0.4})  # fmt: skip
    calls = []
    kind = type(model.bind())
    for name in ("simulate", "sensitivities"):
        method = getattr(kind, name)
        monkeypatch.setattr(
            kind, name, lambda self, theta, name=name, method=method: calls.append(name) or method(self, theta)
        )
    bound = cost.bind()
    bound.minus2loglik(bound.theta0)
    bound.minus2loglik(bound.theta0)
    bound.score(bound.theta0)
    bound.information(bound.theta0)
    assert calls == ["simulate", "sensitivities"]


@MODELS
def test_a_fit_is_that_of_the_filter_and_its_tables_agree(model):
    data = records(model)
    cost = fme.FimlofCost(model, data, process_noise={}, measurement_noise={"x": 0.3, "both": "sd"}, parms={"sd": 0.4})
    filtered = cost.replace(process_noise={"x": "sd_w"}, parms={"sd_w": 1e-9})
    p = {k: cost.parms[k] for k in cost.parms.index if k not in ("dose", "m", "K")}
    fit, other = fme.modFit(cost, p), fme.modFit(filtered, p)
    pd.testing.assert_series_equal(fit.par, other.par, rtol=1e-4)
    sizes = np.sqrt(np.outer(np.diag(fit.cov_scaled), np.diag(fit.cov_scaled)))
    np.testing.assert_allclose(fit.cov_scaled / sizes, other.cov_scaled / sizes, atol=1e-3)
    flt = cost.filter(fit.par)
    assert -2 * flt.loglik == pytest.approx(cost(fit.par), rel=1e-7)
    np.testing.assert_allclose(flt.filtered[["x"]], flt.predicted[["x"]], rtol=1e-9)
    assert flt.forecast(2).frame["sd"].abs().max() == 0.0


def test_a_reading_without_variance_and_a_run_that_fails_are_told():
    model = difference()
    cost = fme.FimlofCost(model, records(model), process_noise={}, measurement_noise={"x": "sd_v", "both": 1.0},
                          parms={"sd_v": 1.0})  # fmt: skip
    bound = cost.bind()
    theta = pd.Series(bound.theta0, bound.parameter_names)
    with pytest.raises(SimulationError, match=r"broke down at time 1 \(sample 1\).*variance.*'x'"):
        bound.minus2loglik(theta.mask(theta.index == "sd_v", 0.0).to_numpy())
    assert cost({"sd_v": 0.0}) == np.inf
    assert cost({"r": 1e200}) == np.inf


def test_it_tightens_and_takes_an_engine_for_many_runs():
    cost = fme.FimlofCost(ode(), records(ode()), process_noise={}, measurement_noise={"x": 0.3, "both": 0.2})
    cost = cost.replace(model=cost.model.replace(rtol=1e-5, atol=1e-6))
    bound = cost.bind(["k", "dose"])
    value = bound.minus2loglik(bound.theta0)
    tight = bound.tightened()
    assert tight.minus2loglik(bound.theta0) != value
    assert tight.minus2loglik(bound.theta0) == pytest.approx(value, abs=1e-2)
    assert cost.bind(["k"], hold_engine=True).minus2loglik([0.4]) == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize(
    "words", [{"initial": "data"}, {"initial_sd": {"x": 0.5}}, {"accumulate": {"both": 1}}, {"propagation": "rk4"}]
)
def test_what_is_more_than_a_run_is_filtered(words):
    model = ode() if "propagation" in words else difference()
    cost = fme.FimlofCost(model, records(model).drop_duplicates("time"), process_noise={},
                          measurement_noise={"x": 0.3, "both": 0.2}, **words)  # fmt: skip
    bound = cost.bind()
    found = [one.loglik for _, one in bound.passes(bound.theta0)]
    assert bound.minus2loglik(bound.theta0) == -2 * sum(found)


def test_data_beyond_the_times_of_the_model_are_read_off_its_run():
    model = fme.OdeModel("d(A)/dt = -k*A", state={"A": 10.0}, times=[0.0], parms={"k": 0.5})
    data = {"time": [1.0, 2.0, 3.0], "A": [6.0, 3.7, 2.2]}
    cost = fme.FimlofCost(model, data, process_noise={}, measurement_noise={"A": 0.2})
    r = (10 * np.exp(-0.5 * np.arange(1.0, 4.0)) - data["A"]) / 0.2
    assert cost() == pytest.approx(float(r @ r + 3 * np.log(2 * np.pi * 0.04)), rel=1e-5)
