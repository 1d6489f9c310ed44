"""Models and costs from outside the package: the public contract is enough for every verb."""

import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError, SimulationError
from fmepy.models.base import Model
from fmepy.models.simulated import SimulatedModel
from tests.models.delay import DelayModel

TIMES = np.arange(0, 6.5, 0.5)
TRUTH = {"k": 0.7, "tau": 1.3}


@pytest.fixture(scope="module")
def model():
    return DelayModel({"k": 0.6, "tau": 1.5}, TIMES, ["y"])


@pytest.fixture(scope="module")
def data(model):
    table = model(TRUTH).iloc[1:]
    return table.assign(y=table["y"] + 0.02 * np.random.default_rng(1).standard_normal(len(table)))


def exact(t, k, tau):
    """Return the sum of the method of steps: 1 + sum_n (-k)^n (t - (n - 1) tau)^n / n! over n with t > (n - 1) tau."""
    total, n = 1.0, 1
    while t > (n - 1) * tau:
        total, n = total + (-k) ** n * (t - (n - 1) * tau) ** n / np.prod(np.arange(1.0, n + 1)), n + 1
    return total


def test_a_delay_model_runs(model):
    assert isinstance(model, Model)
    table = model(TRUTH, times=[0.0, 0.4, 2.7, 6.0])
    np.testing.assert_allclose(table["y"], [exact(t, **TRUTH) for t in table["time"]], rtol=1e-8)
    assert model.replace(parms={"k": 0.9}).parms["k"] == 0.9
    assert pickle.loads(pickle.dumps(model))().equals(model())


def test_a_delay_model_is_fitted_ranged_and_screened(model, data):
    cost = fme.SimulationCost(model, data)
    fit = fme.modFit(cost, {"k": 0.6, "tau": 1.5})
    assert fit.par["k"] == pytest.approx(0.7, abs=0.05)
    assert fit.par["tau"] == pytest.approx(1.3, abs=0.1)
    assert fme.modFit(lambda p: fme.modCost(model(p), data), fit.par).ssr == pytest.approx(fit.ssr, rel=1e-5)
    assert fme.collin(fme.sensFun(cost, fit.par)).frame["collinearity"].iloc[-1] < 50
    ranges = pd.DataFrame({"min": [0.5], "max": [0.9]}, ["k"])
    assert len(fme.sensRange(model, parms=fit.par, parRange=ranges, num=5, seed=1)) == 5
    chain = fme.modMCMC(cost, fit.par, jump=fit.cov_scaled, var0=fit.var_ms_unweighted, niter=40, seed=1)
    assert np.isfinite(chain.pars).all(axis=None)


def test_a_delay_model_is_filtered_where_that_is_a_run(model, data):
    cost = fme.FimlofCost(model, data, process_noise={}, measurement_noise={"y": "sd_v"}, parms={"sd_v": 0.02})
    plain = fme.SimulationCost(model, data.assign(sd=0.02), err="sd")
    n = len(data)
    for p in (None, TRUTH):
        assert cost(p) == pytest.approx(plain(p).model + n * np.log(2 * np.pi * 0.02**2), rel=1e-10)
    fit = fme.modFit(cost, {"k": 0.6, "tau": 1.5, "sd_v": 0.1})
    least_squares = fme.modFit(fme.SimulationCost(model, data), {"k": 0.6, "tau": 1.5})
    np.testing.assert_allclose(fit.par[["k", "tau"]], least_squares.par, rtol=1e-3)
    assert fit.par["sd_v"] == pytest.approx(np.sqrt(least_squares.ssr / n), rel=1e-3)
    flt = cost.filter(fit.par)
    assert -2 * flt.loglik == pytest.approx(cost(fit.par), rel=1e-9)
    np.testing.assert_allclose(flt.smoothed["y"], model(fit.par[["k", "tau"]])["y"], rtol=1e-9)
    assert flt.residuals["standardized"].abs().max() < 4
    assert "log-likelihood" in repr(flt)
    assert cost.simulate(fit.par, seed=1)["y"].std() == pytest.approx(data["y"].std(), rel=0.2)
    typo = data.assign(y=data["y"].where(data["time"] != 3.0, 5.0))
    assert fme.screen_bad_data(cost.replace(obs=typo), fit.par).frame["time"].tolist() == [3.0]


def test_what_a_filter_needs_beyond_is_said(model, data):
    words = {"measurement_noise": {"y": 0.02}}
    for more in ({"process_noise": {"y": 0.1}}, {"process_noise": {}, "initial_sd": {"y": 0.1}},
                 {"process_noise": {}, "initial": "data"}, {"process_noise": {}, "propagation": "ode"}):  # fmt: skip
        with pytest.raises(ModelError, match=r"DelayModel offers none.*definition.*process_noise=\{\}"):
            fme.FimlofCost(model, data, **more, **words)
    flt = fme.FimlofCost(model, data, process_noise={}, **words).filter()
    with pytest.raises(ModelError, match="DelayModel has no attribute `definition`"):
        flt.forecast(2)


def test_a_run_that_fails_is_a_failed_run(data):
    class Broken(SimulatedModel):
        def run(self, p, times):
            return {"raise": lambda: 1 / 0, "nan": lambda: times[:, None] * np.nan, "shape": lambda: times}[kind]()

    model = Broken({"a": 1.0}, TIMES, ["y"])
    for how, error in (("raise", SimulationError), ("nan", SimulationError), ("shape", ArgumentError)):
        kind = how
        with pytest.raises(error, match=r"ZeroDivisionError|NaN|shape"):
            model()
    kind = "raise"
    assert fme.FimlofCost(model, data, process_noise={}, measurement_noise={"y": 1.0})() == np.inf
    with pytest.raises(ArgumentError, match=r"not .*states"):
        model.replace(states=["z"])
    with pytest.raises(ModelError, match="before the model's start"):
        model(times=[-1.0])


# --- without any base class


class BareBound:
    exact, retries = True, 0

    def __init__(self, model, names, times):
        self.names, self.times, self.var_names = tuple(names), times, model.var_names
        self.parms, self.theta0 = model.parms, model.parms[list(names)].to_numpy()

    def simulate(self, theta):
        p = {**self.parms, **dict(zip(self.names, theta, strict=True))}
        return p["y0"] * np.exp(-p["k"] * self.times)[:, None]

    def sensitivities(self, theta):
        p = {**self.parms, **dict(zip(self.names, theta, strict=True))}
        decay = np.exp(-p["k"] * self.times)
        slopes = {"y0": decay, "k": -p["y0"] * self.times * decay}
        return self.simulate(theta), np.stack([slopes[k] for k in self.names], axis=-1)[:, None, :]


class BareModel:
    states = var_names = ("y",)
    engine, engine_note = "by hand", ""

    def __init__(self, times, **parms):
        self.parms, self.times = pd.Series(parms), np.asarray(times, dtype=float)

    def __call__(self, parms=None, times=None):
        bound = self.bind(times=times)
        values = {**self.parms, **dict(parms if parms is not None else {})}
        Y = bound.simulate([values[k] for k in bound.names])
        return pd.DataFrame({"time": bound.times, "y": Y[:, 0]})

    def bind(self, names=None, *, times=None, hold_engine=False):
        rows = self.times if times is None else np.asarray(times, dtype=float)
        return BareBound(self, self.parms.index if names is None else names, rows)

    def replace(self, **arguments):
        return BareModel(arguments.get("times", self.times), **{**self.parms, **dict(arguments.get("parms", {}))})


def test_the_contract_without_a_base_class():
    model = BareModel(TIMES, y0=2.0, k=0.5)
    data = model({"k": 0.8}).iloc[1:].assign(y=lambda d: d["y"] * (1 + 0.03 * np.cos(7 * d["time"])))
    fits = [
        fme.modFit(fme.SimulationCost(model, data)),
        fme.modFit(fme.FimlofCost(model, data, process_noise={}, measurement_noise={"y": 0.1})),
        fme.modFit(lambda p: model(p, data["time"])["y"].to_numpy() - data["y"].to_numpy(), {"y0": 2.0, "k": 0.5}),
    ]
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.par[["y0", "k"]], fits[0].par[["y0", "k"]], rtol=1e-4)
    ranges = pd.DataFrame({"min": [0.5], "max": [0.9]}, ["k"])
    assert len(fme.sensRange(model, parRange=ranges, num=4, seed=1)) == 4


# --- costs


def square(p):
    return np.array([p["a"] - 1.0, p["b"] - 2.0, p["a"] * p["b"] - 2.1])


class OutsideBound:
    """The bound contract of `fmepy.costs.base`, by hand."""

    is_scalar, has_jacobian, retries = False, True, 0

    def __init__(self, cost, names):
        self.parameter_names, self.parms = tuple(names), cost.parms
        self.theta0 = cost.parms[list(names)].to_numpy()
        self.lower, self.upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        self.names, self.group_names = ("r", "r", "r"), ("r",)
        self.x, self.weights, self.scales = np.arange(3.0), np.ones(3), np.ones(1)
        self.groups, self.data = np.zeros(3, dtype=int), None

    def residuals(self, theta):
        return square({**self.parms, **dict(zip(self.parameter_names, theta, strict=True))})

    def jacobian(self, theta):
        p = {**self.parms, **dict(zip(self.parameter_names, theta, strict=True))}
        whole = np.array([[1.0, 0.0], [0.0, 1.0], [p["b"], p["a"]]])
        return whole[:, [("a", "b").index(k) for k in self.parameter_names]]

    def minus2loglik(self, theta):
        return float(np.sum(self.residuals(theta) ** 2))


class OutsideCost:
    def __init__(self, **parms):
        self.parms = pd.Series(parms)

    lower = property(lambda self: pd.Series(-np.inf, self.parms.index))
    upper = property(lambda self: pd.Series(np.inf, self.parms.index))

    def __call__(self, parms=None):
        return square({**self.parms, **dict(parms if parms is not None else {})})

    def bind(self, names=None, *, hold_engine=False):
        return OutsideBound(self, self.parms.index if names is None else names)


def test_a_cost_from_outside_with_a_call_alone_and_with_the_bound_contract():
    plain = fme.modFit(square, {"a": 3.0, "b": 3.0})
    bound = fme.modFit(OutsideCost(a=3.0, b=3.0))
    np.testing.assert_allclose(bound.par, plain.par, rtol=1e-6)
    assert bound.ssr == pytest.approx(plain.ssr, rel=1e-8)
    np.testing.assert_allclose(bound.cov_scaled, plain.cov_scaled, rtol=1e-4)
    assert len(fme.sensFun(square, plain.par).frame) == 3
    for cost in (square, OutsideCost(a=3.0, b=3.0)):
        assert len(fme.modMCMC(cost, plain.par, var0=0.01, niter=30, seed=1).pars) > 0
