"""Bounds: nothing is evaluated outside them, an optimum on one is found, told, and has no t and p."""

import lmfit
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import lsq_linear

import fmepy as fme
from fmepy.costs.user_function import as_objective
from fmepy.errors import ArgumentError, ParameterError
from fmepy.fitting import modFit
from fmepy.fitting.derived import derived
from fmepy.fitting.methods.registry import METHODS
from fmepy.fitting.profiles import confidence
from tests.fitting.problems import PROBLEMS
from tests.plain import plain

MONOD, BOD, LOGISTIC = PROBLEMS
METHODS_OF_FUNCTIONS = [m for m in METHODS if m != "scoring"]
LOCAL = [m for m in METHODS_OF_FUNCTIONS if m not in ("SANN", "Pseudo")]
SHORT = {"SANN": {"maxit": 200, "maxsteps": 10}, "Pseudo": {"numiter": 200}}


class Fenced:
    """A function that counts its calls outside a box, and raises there."""

    def __init__(self, f, lower, upper):
        self.f, self.lower, self.upper, self.outside = f, np.asarray(lower), np.asarray(upper), 0

    def __call__(self, p):
        p = np.asarray(p)
        if (p < self.lower).any() or (p > self.upper).any():
            self.outside += 1
            raise ValueError("outside")
        return self.f(p)


@pytest.mark.parametrize("scalar", [False, True], ids=["residuals", "number"])
@pytest.mark.parametrize("method", METHODS_OF_FUNCTIONS)
def test_nothing_is_evaluated_outside_the_bounds(method, scalar):
    if scalar and METHODS[method].least_squares:
        pytest.skip("takes residuals only")
    for problem in PROBLEMS:
        for start in (problem.start, problem.lower, problem.upper):
            cost = (lambda p, of=problem: float(np.sum(of.residuals(p) ** 2))) if scalar else problem.residuals
            f = Fenced(cost, problem.lower, problem.upper)
            with np.errstate(all="ignore"):
                modFit(f, start, method=method, seed=1, control=SHORT.get(method), **problem.box())
            assert f.outside == 0, (problem.name, start)


@pytest.mark.parametrize("starts", [1, 4])
def test_several_starts_and_priors_stay_inside_too(starts):
    from scipy.stats import lognorm

    f = Fenced(MONOD.residuals, MONOD.lower, MONOD.upper)
    prior = {"p1": lognorm(0.5, scale=0.1), "p2": lognorm(0.5, scale=30)}
    modFit(f, MONOD.upper, prior=prior, starts=starts, seed=1, **MONOD.box())
    assert f.outside == 0


def test_the_noise_of_a_cost_is_that_of_the_inside_where_the_start_is_on_a_bound():
    def f(p):
        if p[0] > 1:
            raise ValueError("a probability")
        return np.array([p[0] - 0.3, 2 * p[0] - 0.7])

    fit = modFit(f, [1.0], lower=0, upper=1)
    assert fit.failures == 0
    assert fit.par["p1"] == pytest.approx(0.34, rel=1e-6)
    objective = as_objective(f, [1.0])
    objective.begin(np.ones(1), np.zeros(1), np.ones(1))
    assert objective.differences.noise < 1e-13
    unaware = as_objective(f, [1.0])  # without bounds: the side on which it fails is left
    assert unaware.differences.noise < 1e-13


@pytest.mark.parametrize("engine", ["scipy", "difference"])
def test_a_models_own_differences_stay_inside_the_bounds(engine):
    seen = []
    if engine == "scipy":

        def rhs(t, y, p):
            seen.append(plain(p["k"]))
            return [-p["k"] * y[0] if plain(y[0]) > -1 else 0.0]  # no equations

        model = fme.OdeModel(rhs, state={"x": 1.0}, times=np.arange(5.0), parms={"k": 1.0}, engine="scipy")
        values = np.exp(-2.0 * np.arange(5.0))
    else:

        def step(n, x, *, k):
            seen.append(plain(k))
            return x * (1 - k) if plain(k) >= 0 else x  # an `if`: no equations

        model = fme.DifferenceModel(step, state={"x": 1.0}, times=np.arange(5), parms={"k": 0.9}, engine="python")
        values = 0.001 ** np.arange(5.0)
    seen.clear()
    start = float(model.parms["k"])
    cost = fme.SimulationCost(model, pd.DataFrame({"time": np.arange(5.0), "x": values}))
    seen.clear()
    fit = modFit(cost, {"k": start}, lower=0.1, upper=start)
    assert fit.at_bound == ("k",)
    fit.predict(model)
    fme.sensFun(cost, {"k": start}, lower=0.1, upper=start)
    fme.sensFun(model, {"k": start}, lower=0.1, upper=start)
    assert max(seen) <= start
    assert min(seen) >= 0.1


def test_lmfits_expressions_are_not_taken_outside_the_bounds_of_what_they_use():
    q = lmfit.Parameters()
    q.add("a", value=0.0, min=0)
    q.add("root", expr="sqrt(a) + 1")
    q.add("fixed", value=2.0, vary=False)
    fit = modFit(lambda p: np.array([p["root"] - 1 + p["a"], p["a"] + p["fixed"] - 1, p["a"]]), q)
    assert fit.at_bound == ("a",)
    assert fit.to_lmfit().params["a"].stderr is None


# --- boxes without room


@pytest.mark.parametrize("method", METHODS_OF_FUNCTIONS)
def test_a_parameter_between_two_bounds_that_are_all_but_one_stays_there(method):
    upper = 30.0 + 1e-13
    f = Fenced(MONOD.residuals, [0.01, 30.0], [1.0, upper])
    fit = modFit(f, [0.12, 30.0], lower=[0.01, 30.0], upper=[1.0, upper], method=method, seed=1,
                 control={"maxit": 300} if method == "SANN" else None)  # fmt: skip
    alone = modFit(lambda p: MONOD.residuals([p[0], 30.0]), [0.12])
    assert f.outside == 0
    assert fit.at_bound == ("p2",)
    assert fit.par["p1"] == pytest.approx(alone.par["p1"], rel=1e-3)
    if method in LOCAL:
        assert fit.converged, fit.message
        se = alone.std_error["p1"] * np.sqrt(alone.df_residual / fit.df_residual)
        assert fit.std_error["p1"] == pytest.approx(se, rel=1e-4)


def test_bounds_that_are_one_are_told_and_a_box_without_any_room_is_its_point():
    with pytest.raises(ParameterError, match="nothing to fit"):
        modFit(MONOD.residuals, [0.12, 30.0], lower=[0.01, 30.0], upper=[1.0, 30.0])
    point = np.array(MONOD.start)
    fit = modFit(MONOD.residuals, point, lower=point, upper=point * (1 + 1e-15))
    assert fit.par.tolist() == point.tolist()
    assert fit.at_bound == ("p1", "p2")


# --- optima on a bound


@pytest.mark.parametrize("method", ["Marq", "Port", "Newton", "BFGS", "CG", "L-BFGS-B", "bobyqa"])
def test_random_optima_on_bounds_are_reached_exactly_and_told(method):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        A = rng.standard_normal((12, n))
        b = A @ rng.uniform(-1, 2, n) + 0.1 * rng.standard_normal(12)
        exact = lsq_linear(A, b, bounds=(np.zeros(n), np.ones(n)), method="bvls").x
        fit = modFit(lambda p, A=A, b=b: A @ p - b, np.full(n, 0.5), lower=0, upper=1, method=method)
        held = [f"p{j + 1}" for j in np.flatnonzero((exact == 0) | (exact == 1))]
        assert fit.converged, (seed, fit.message)
        assert list(fit.at_bound) == held, seed
        np.testing.assert_allclose(fit.par, exact, atol=1e-4)


def test_a_small_optimum_beside_a_bound_is_not_put_on_it():
    x = np.linspace(0, 4, 20) * 1e10
    fit = modFit(lambda p: np.exp(-p[0] * x) - np.exp(-1e-10 * x), [1.0], lower=0, method="Nelder-Mead",
                 starts=pd.DataFrame({"p1": [1e-9]}))  # fmt: skip
    assert fit.at_bound == ()
    assert fit.par["p1"] == pytest.approx(1e-10, rel=1e-4)


@pytest.fixture(scope="module")
def held():
    return modFit(MONOD.residuals, MONOD.start, lower=0, upper=[1, 40])


def test_on_a_bound_there_is_no_standard_error_and_the_others_hold_for_it_fixed_there(held):
    J = MONOD.jacobian(held.par.to_numpy())
    assert held.at_bound == ("p2",)
    assert np.isnan(held.std_error["p2"])
    assert held.std_error["p1"] == pytest.approx(np.sqrt(held.ssr / 5 / (J[:, 0] @ J[:, 0])), rel=1e-5)
    np.testing.assert_allclose(held.hessian, 2 * J.T @ J, rtol=1e-5)
    table = held.summary().par
    assert table.loc["p2", ["Std. Error", "t value", "Pr(>|t|)"]].isna().all()
    assert table.loc["p1"].notna().all()
    text = str(held.summary())
    assert next(line for line in text.splitlines() if line.startswith("p2")).split()[1:] == [
        "40.000000",
        "NA",
        "NA",
        "NA",
    ]
    assert "NA: p2 on a bound" in text
    assert "NA: p2" in held.summary()._repr_html_()
    assert "On a bound: p2, without standard error" in held.message


def test_what_follows_from_a_fit_on_a_bound_agrees_with_it(held):
    x, se = MONOD.x, held.std_error["p1"]
    band = held.predict(lambda p: pd.DataFrame({"x": x, "y": MONOD.curve(np.asarray(p), x)}))
    slope = x / (x + 40.0)
    np.testing.assert_allclose(band["se"], slope * se, rtol=1e-6)
    one = derived(held, lambda p: p["p1"] / p["p2"])
    assert one["std_error"].iloc[0] == pytest.approx(se / 40, rel=1e-6)
    back = held.to_lmfit()
    assert back.params["p2"].stderr is None
    assert back.params["p1"].stderr == pytest.approx(se)
    assert back.var_names == ["p1"]
    assert back.covar.shape == (1, 1)
    assert "p1" in lmfit.fit_report(back)
    with pytest.raises(ValueError, match="lies on a bound"):
        confidence(MONOD.residuals, held)


def test_a_name_that_lmfit_cannot_hold_is_told():
    fit = fme.modFit(lambda p: [p["k 1"] - 1.0, p["k 1"] - 3.0], {"k 1": 0.0})
    with pytest.raises(ArgumentError, match=r"lmfit cannot hold the parameter 'k 1': 'k 1' is not a valid"):
        fit.to_lmfit()
