"""Every method reaches the optimum of every reference problem, with bounds and without."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import SimulationCost
from fmepy.errors import SimulationError
from fmepy.fitting import modFit
from fmepy.fitting.methods.registry import METHODS
from fmepy.models.ode import OdeModel
from tests.fitting.problems import PROBLEMS, case

LOCAL = ["Marq", "Port", "Newton", "Nelder-Mead", "BFGS", "CG", "L-BFGS-B", "bobyqa"]
GLOBAL = ["SANN", "Pseudo"]
by_name = pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.name)


def truth(problem):
    """The optimum and its standard errors by Gauss-Newton to machine precision, from the reference's estimate."""
    known = {"monod": "monod_truth", "bod": "bod_Marq", "logistic": "logistic_Marq"}[problem.name]
    p = np.array(list(case(known)["outputs"]["par"].values()))
    for _ in range(50):
        J = problem.jacobian(p)
        p = p - np.linalg.solve(J.T @ J, J.T @ problem.residuals(p))
    r, J = problem.residuals(p), problem.jacobian(p)
    cov = np.linalg.inv(J.T @ J) * (r @ r) / (len(r) - len(p))
    return p, np.sqrt(np.diag(cov))


@by_name
def test_the_truth_computed_here_is_that_of_the_reference(problem):
    p, se = truth(problem)
    assert problem.residuals(p) @ problem.residuals(p) == pytest.approx(problem.ssr, rel=1e-8)
    if problem.name == "monod":
        np.testing.assert_allclose(se, case("monod_truth")["outputs"]["std_error"], rtol=1e-7)


@by_name
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "box"])
@pytest.mark.parametrize("method", LOCAL)
def test_local_methods_reach_the_reference_sum_of_squares(problem, method, bounded):
    with np.errstate(over="ignore", invalid="ignore"):  # probes of far parameters may overflow in exp
        fit = modFit(problem.residuals, problem.start, method=method, **(problem.box() if bounded else {}))
    assert fit.ssr == pytest.approx(problem.ssr, rel=1e-6)
    assert fit.converged, fit.message
    assert fit.method == method


@by_name
@pytest.mark.parametrize("exact", [False, True], ids=["differences", "jac"])
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "box"])
def test_gauss_newton_reaches_the_tight_optimum_within_a_ten_thousandth_standard_error(problem, bounded, exact):
    fit = modFit(
        problem.residuals, problem.start, jac=problem.jacobian if exact else None, **(problem.box() if bounded else {})
    )
    p, se = truth(problem)
    assert np.max(np.abs(fit.par - p) / se) < 1e-4
    np.testing.assert_allclose(fit.std_error, se, rtol=1e-3)


@by_name
@pytest.mark.parametrize("method", GLOBAL)
def test_global_methods_reach_the_sum_of_squares_within_a_thousandth(problem, method):
    control = {"maxit": 4000} if method == "SANN" else {"numiter": 10000}
    with np.errstate(over="ignore"):
        fit = modFit(problem.residuals, problem.start, method=method, control=control, seed=1, **problem.box())
    assert fit.ssr == pytest.approx(problem.ssr, rel=1e-3)
    assert fit.converged, fit.message


@pytest.mark.parametrize("method", GLOBAL)
def test_the_same_seed_gives_the_same_fit_and_another_seed_another(method):
    monod = PROBLEMS[0]
    control = {"maxit": 300, "maxsteps": 20} if method == "SANN" else {"numiter": 300}

    def points(seed):
        seen = []

        def f(p):
            seen.append(p.tolist())
            return monod.residuals(p)

        modFit(f, monod.start, method=method, control=control, seed=seed, **monod.box())
        return seen

    assert points(0) == points(0)
    assert points(0) != points(1)


@pytest.mark.parametrize("method", ["Marq", "Port", "BFGS", "Newton", "L-BFGS-B"])
def test_thirty_linear_equations_are_solved_with_their_jacobian(method):
    data = case("linear30_data")["outputs"]
    A = np.array(data["A"]["matrix"])
    x = np.array(data["x"])
    b = A @ x
    start = np.array(case("linear30_Marq")["inputs"]["p"])
    fit = modFit(lambda p: A @ p - b, start, method=method, jac=lambda p: A, control={"reltol": 1e-9})
    np.testing.assert_allclose(fit.hessian, 2 * A.T @ A, rtol=1e-12)
    assert fit.ssr < 1e-12
    if method in ("Marq", "Newton"):
        assert np.max(np.abs(fit.par - x)) < 1e-7


def test_conjugate_gradients_say_so_when_they_crawl():
    # thirty equations of condition 1e4 and more: not one of them is solved after ten iterations, whatever the last bits
    data = case("linear30_data")["outputs"]
    A, x = np.array(data["A"]["matrix"]), np.array(data["x"])
    start = np.array(case("linear30_CG_jac")["inputs"]["p"])
    fit = modFit(lambda p: A @ p - A @ x, start, method="CG", jac=lambda p: A, control={"maxiter": 10})
    assert fit.ssr < np.sum((A @ (start - x)) ** 2)
    assert np.max(np.abs(fit.par - x)) > 0.1
    assert not fit.converged


def test_an_optimum_on_a_bound_is_reached_exactly_by_every_bounded_method():
    monod, reference = PROBLEMS[0], case("monod_Port_active")["outputs"]
    for method in [m for m in METHODS if m != "scoring"]:
        fit = modFit(monod.residuals, monod.start, lower=0, upper=[1, 40], method=method, seed=1)
        tolerance = 1e-3 if method in GLOBAL else 1e-6
        assert fit.ssr == pytest.approx(reference["ssr"], rel=tolerance), method
        if method not in GLOBAL:
            assert fit.par["p2"] == 40.0, method
            assert fit.at_bound == ("p2",), method
            assert fit.converged, (method, fit.message)
            assert fit.par["p1"] == pytest.approx(reference["par"]["mumax"], rel=1e-5), method


def test_marquardt_finishes_on_the_bound_of_the_reaction_problem():
    problem = case("reaction_Marq")["inputs"]["problem"]
    t, y = np.array(problem["t"], dtype=float), np.array(problem["y"], dtype=float)

    def residuals(p):
        f = p["k1"] / (p["k1"] + p["k2"])
        return y - (f + (1 - f) * np.exp(-(p["k1"] + p["k2"]) * t))

    fit = modFit(residuals, {"k1": 0.5, "k2": 0.5}, lower=0, upper=1)
    expected = case("reaction_Marq")["outputs"]
    assert fit.par["k1"] == 1.0
    assert fit.ssr <= expected["ssr"]
    assert fit.ssr == pytest.approx(expected["ssr"], rel=1e-6)
    assert fit.par["k2"] == pytest.approx(expected["par"]["k2"], rel=1e-4)


@pytest.mark.parametrize("method", LOCAL)
@pytest.mark.parametrize("start", [(0.01, 30.0), (0.12, 500.0), (0.01, 1.0), (1.0, 500.0)])
def test_quirk_22_a_start_on_a_bound_works(method, start):
    monod = PROBLEMS[0]
    fit = modFit(monod.residuals, start, method=method, **monod.box())
    assert fit.ssr == pytest.approx(monod.ssr, rel=1e-6)
    assert fit.at_bound == ()


@pytest.mark.parametrize("method", ["BFGS", "CG", "Port", "L-BFGS-B", "Newton", "Marq"])
def test_quirk_19_bounded_gradient_methods_solve_two_linear_equations(method):
    # R's gradient lacks the chain rule of its transformed bounds: it stops at (0.38, 0.51)
    A = np.array([[2.0, 1.0], [1.0, 3.0]])
    b = A @ [0.2, 0.6]
    fit = modFit(lambda p: A @ p - b, [1.0, 1.0], lower=0, upper=5, method=method, jac=lambda p: A)
    np.testing.assert_allclose(fit.par, [0.2, 0.6], rtol=1e-5)


def test_marquardt_uses_jac_in_the_iteration_and_takes_no_differences():
    monod = PROBLEMS[0]
    calls = {"f": 0, "jac": 0}

    def f(p):
        calls["f"] += 1
        return monod.residuals(p)

    def jac(p):
        calls["jac"] += 1
        return monod.jacobian(p)

    fit = modFit(f, monod.start, jac=jac)
    assert calls["jac"] >= 4
    assert calls["f"] <= 2 * calls["jac"] + 2
    assert fit.evaluations == calls["f"]


def test_no_jacobian_is_taken_at_a_rejected_point():
    monod = PROBLEMS[2]
    trials, slopes = [], []

    def f(p):
        trials.append(float(np.sum(monod.residuals(p) ** 2)))
        return monod.residuals(p)

    def jac(p):
        slopes.append(float(np.sum(monod.residuals(p) ** 2)))
        return monod.jacobian(p)

    modFit(f, (2.0, 10.0, 5.0), jac=jac)
    assert max(trials) > trials[0], "the start is far enough for rejected steps, or this test shows nothing"
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(slopes))


@pytest.mark.parametrize("method", LOCAL)
def test_a_model_that_fails_in_half_the_space_is_fitted_all_the_same(method):
    monod = PROBLEMS[0]

    def f(p):
        if p[1] > 60:
            raise SimulationError("too stiff")
        if p[0] > 0.3:
            raise ZeroDivisionError("by hand")
        return monod.residuals(p)

    fit = modFit(f, monod.start, method=method, lower=[0.01, 1], upper=[1, 500])
    assert fit.ssr == pytest.approx(monod.ssr, rel=1e-6)
    if fit.failures:
        assert "runs failed" in fit.message


def test_bobyqa_takes_a_single_parameter():
    fit = modFit(lambda p: np.array([p[0] - 3.0, 2 * p[0] - 6.2]), [1.0], method="bobyqa", lower=0, upper=10)
    assert fit.par["p1"] == pytest.approx(3.08, rel=1e-6)
    assert "COBYLA" in fit.engine


@pytest.mark.parametrize("method", ["Port", "Newton", "Nelder-Mead", "BFGS", "CG", "L-BFGS-B", "bobyqa"])
def test_a_scalar_cost_is_minimised_as_it_is(method):
    # Rosenbrock's valley minus 5: its square would have its minimum elsewhere
    fit = modFit(lambda p: 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2 - 5, [-1.2, 1.0], method=method)
    tolerance = 2e-2 if method in ("CG", "bobyqa") else 2e-3
    np.testing.assert_allclose(fit.par, [1, 1], rtol=tolerance)
    assert fit.minus2loglik == pytest.approx(-5, abs=1e-4)
    assert np.isnan(fit.ssr)


class FakeLikelihood:
    """A cost with score and information: two normal means, the second bounded; theta = (mu, log-free sd)."""

    def __init__(self, data):
        self.data = np.asarray(data)
        self.parms = pd.Series({"mu": 0.0, "sd": 1.0})
        self.lower = pd.Series({"mu": -np.inf, "sd": 1e-3})
        self.upper = pd.Series({"mu": np.inf, "sd": np.inf})

    def __call__(self, parms=None):
        raise AssertionError("the bound form is enough")

    def bind(self, names=None, *, hold_engine=False):
        return self

    is_scalar, has_jacobian, retries = True, False, 0
    parameter_names = ("mu", "sd")

    def minus2loglik(self, theta):
        mu, sd = theta
        return float(np.sum(((self.data - mu) / sd) ** 2 + np.log(2 * np.pi * sd**2)))

    def score(self, theta, rough=False):
        mu, sd = theta
        e = self.data - mu
        return np.array([np.sum(e) / sd**2, np.sum(e**2) / sd**3 - len(e) / sd])

    def information(self, theta, rough=False):
        n, sd = len(self.data), theta[1]
        return np.diag([n / sd**2, 2 * n / sd**2])


def test_scoring_finds_the_maximum_likelihood_of_a_normal_sample():
    data = np.random.default_rng(1).normal(3.0, 0.5, size=40)
    fit = modFit(FakeLikelihood(data))
    assert fit.method == "scoring"
    assert fit.converged, fit.message
    assert fit.par["mu"] == pytest.approx(data.mean(), rel=1e-6)
    assert fit.par["sd"] == pytest.approx(data.std(), rel=1e-4)
    # no residual variance scales the covariance of a likelihood; second differences give it to a few digits
    np.testing.assert_allclose(fit.std_error, [data.std() / np.sqrt(40), data.std() / np.sqrt(80)], rtol=1e-3)


def test_scoring_stops_on_a_declared_bound():
    data = np.full(5, 2.0) + 1e-9 * np.arange(5)
    fit = modFit(FakeLikelihood(data))
    assert fit.par["sd"] == 1e-3
    assert fit.at_bound == ("sd",)


def test_a_simplex_ends_where_residuals_are_nothing_but_rounding():
    """From there on the cost of a solver's runs only flickers: no simplex on it collapses."""
    t = np.linspace(0, 10, 21)
    logistic = OdeModel("d(x)/dt = r*x*(1 - x/K)", state={"x": "x0"}, parms={"r": 0.8, "K": 12, "x0": 0.5}, times=t)
    fit = modFit(SimulationCost(logistic, logistic()), {"r": 0.6, "K": 10, "x0": 0.7}, method="Nelder-Mead")
    assert fit.converged
    assert fit.message == "The cost is zero but for rounding."
    assert fit.evaluations < 2000


@pytest.mark.parametrize("method", ["Nelder-Mead", "BFGS", "bobyqa"])
def test_a_cost_below_zero_is_not_taken_for_one_of_zero(method):
    """A -2 log L has no floor: the search is taken up once more, as above zero."""
    above, below = (
        modFit(lambda p, c=c: (p["x"] - 1) ** 4 + (p["y"] - p["x"] ** 2) ** 2 + c, {"x": -1.2, "y": 1.0}, method=method)
        for c in (3.0, -3.0)
    )
    assert below.message == above.message
    assert "fresh start" in below.message
