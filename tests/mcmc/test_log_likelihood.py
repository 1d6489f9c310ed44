"""ArviZ gets the log density of every reading: its sum is the log likelihood of the draw, whatever the cost is."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import norm

import fmepy as fme

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what ArviZ says of itself and of others when it is imported
    import arviz

PARMS = {"k": 0.4, "A0": 10.0}
MODEL = fme.OdeModel("dA/dt = -k*A", state={"A": "A0"}, times=range(8), parms=PARMS)


def data():
    table = MODEL()[["time", "A"]]
    return table.assign(A=table["A"] * np.exp(np.random.default_rng(1).normal(0, 0.1, 8)))


def filtered(**words):
    return fme.FimlofCost(MODEL, data(), process_noise={"A": 0.1}, measurement_noise={"A": 0.3}, **words)


def simulated(**words):
    return fme.SimulationCost(MODEL, data(), **words)


def readings_of(cost, p=PARMS, **words):
    chain = fme.modMCMC(cost, p, niter=60, seed=1, jump=0.05 * np.abs(list(p.values())), **words)
    found = chain.to_arviz().log_likelihood["readings"].to_numpy()
    assert found.shape[:2] == (len(chain.chains), chain.n_draw)
    return chain, found.reshape(len(chain), -1)


LIKELIHOODS = {
    "estimated noise": lambda: simulated(measurement_noise={"A": "estimate"}, parms={"sd_v_A": 0.9}),
    "log-normal": lambda: simulated(measurement_noise={"A": 0.1}, likelihood="log-normal"),
    "laplace": lambda: simulated(measurement_noise={"A": 0.5}, likelihood="laplace"),
    "a filter": filtered,
    "a sum": lambda: simulated(measurement_noise={"A": 0.3}) + filtered(),
    "logarithms of parameters": lambda: fme.transformed(filtered(), {"k": "log"}),
    "limits": lambda: fme.SimulationCost(
        MODEL, data().assign(c=["", ""] + ["<"] * 2 + [""] * 4), censored={"A": "c"}, measurement_noise={"A": 0.3}
    ),
}


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_readings_add_up_to_the_likelihood_of_the_draw(name):
    p = {"k": np.log(0.4), "A0": 10.0} if name.startswith("logarithms") else PARMS
    chain, found = readings_of(LIKELIHOODS[name](), p)
    np.testing.assert_allclose(found.sum(axis=1), -0.5 * chain.SS, rtol=1e-9)


def test_a_transform_is_undone_so_that_costs_on_two_scales_can_be_compared():
    chain, found = readings_of(simulated(measurement_noise={"A": 0.1}, transform="log"))
    _, own = readings_of(simulated(measurement_noise={"A": 0.1}, likelihood="log-normal"))
    np.testing.assert_allclose(found, own)
    np.testing.assert_allclose(found.sum(axis=1), -0.5 * chain.SS - np.log(data()["A"]).sum())


@pytest.mark.parametrize("var0", [1.0, {"A": 0.5}, np.linspace(0.2, 2, 8)], ids=["pooled", "by variable", "by datum"])
@pytest.mark.parametrize("wvar0", [None, 1])
def test_variances_are_those_of_the_draw(var0, wvar0):
    chain, found = readings_of(simulated(), var0=var0, wvar0=wvar0, chains=2)
    for i in (0, 37, 101):
        sd = np.sqrt(np.broadcast_to(chain.sig.iloc[i], 8))
        expected = norm(MODEL(dict(chain.pars.iloc[i]))["A"], sd).logpdf(data()["A"])
        np.testing.assert_allclose(found[i], expected, rtol=1e-6)


def test_residuals_of_a_function_and_their_weights():
    def residuals(p):
        return MODEL(p)["A"].to_numpy() - data()["A"].to_numpy()

    chain, found = readings_of(residuals, var0=1.0)
    np.testing.assert_allclose(found[5], norm.logpdf(residuals(dict(chain.pars.iloc[5]))), rtol=1e-9)
    errors = np.linspace(0.3, 1, 8)
    chain, found = readings_of(fme.SimulationCost(MODEL, data().assign(sd=errors), err="sd", y=None))
    expected = norm(MODEL(dict(chain.pars.iloc[5]))["A"], errors).logpdf(data()["A"])
    np.testing.assert_allclose(found[5], expected, rtol=1e-6)


def test_a_diffuse_start_is_predicted_from_the_data_before():
    chain, found = readings_of(filtered(initial="diffuse"), {"k": 0.4})
    k, y, seen = float(chain.pars["k"].iloc[7]), data()["A"].to_numpy(), []
    mean, variance = y[0], 0.09  # the first datum is used up
    for datum in y[1:]:
        growth = np.exp(-k)
        mean, variance = growth * mean, growth**2 * variance + 0.01 * (1 - growth**2) / (2 * k)
        seen.append(norm(mean, np.sqrt(variance + 0.09)).logpdf(datum))
        gain = variance / (variance + 0.09)
        mean, variance = mean + gain * (datum - mean), (1 - gain) * variance
    np.testing.assert_allclose(found[7], seen, rtol=1e-5)


def test_leave_one_out_and_comparisons_work():
    costs = {"right": simulated(measurement_noise={"A": 0.5}), "no noise": simulated(measurement_noise={"A": 20.0})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runs = {k: fme.modMCMC(c, PARMS, niter=800, seed=2, jump=[0.03, 0.5]).to_arviz() for k, c in costs.items()}
        loo = arviz.loo(runs["right"])
        assert np.isfinite(float(loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo))  # before ArviZ 1
        assert arviz.compare(runs).index[0] == "right"


def test_it_is_left_out_where_readings_are_not_known_or_not_asked_for(tmp_path):
    chain = fme.modMCMC(lambda p: float((p["a"] - 1) ** 2), {"a": 1.0}, niter=50, seed=1)
    assert not hasattr(chain.to_arviz(), "log_likelihood")
    chain, _ = readings_of(simulated(measurement_noise={"A": 0.3}))
    assert not hasattr(chain.to_arviz(log_likelihood=False), "log_likelihood")
    assert not hasattr(chain.transform(np.log).to_arviz(), "log_likelihood")
    chain.save(tmp_path / "chain.fme")
    assert not hasattr(fme.load(tmp_path / "chain.fme").to_arviz(), "log_likelihood")
