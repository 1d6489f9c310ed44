"""What a fit says of where it ended: convergence is an optimum at which the cost knows its parameters."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.fitting import modFit
from fmepy.fitting.methods.registry import METHODS
from tests.fitting.problems import PROBLEMS

MONOD, BOD, LOGISTIC = PROBLEMS
LOCAL = [m for m in METHODS if m not in ("scoring", "SANN", "Pseudo")]
GLOBAL = ["SANN", "Pseudo"]
X = np.linspace(0, 10, 50)
PEAK = np.exp(-0.5 * ((X - 5) / 0.3) ** 2)


def peak(p):
    return p[0] * np.exp(-0.5 * ((X - p[1]) / 0.3) ** 2) - PEAK


def decay(p):
    return p[0] * np.exp(-p[1] * X) - 2 * np.exp(-0.5 * X)


def sigmoid(p):
    with np.errstate(over="ignore"):
        return p[0] / (1 + np.exp((p[1] - X) / 0.01)) - 1 / (1 + np.exp(5 - X))


def step(p):
    return p[0] * (p[1] < X) - (X > 5.0)


PLATEAUS = {
    "peak far off": (peak, [1e-3, -40.0], "'p1', 'p2'"),
    "peak of size one": (peak, [1.0, -3.0], "'p1', 'p2'"),
    "decay at once": (decay, [1.0, 500.0], "'p2'"),
    "step smoothed": (sigmoid, [1.0, 50.0], "'p1', 'p2'"),
}


def as_number(f):
    return lambda p: float(np.sum(f(p) ** 2))


@pytest.mark.parametrize("scalar", [False, True], ids=["residuals", "number"])
@pytest.mark.parametrize("name", PLATEAUS)
@pytest.mark.parametrize("method", LOCAL)
def test_a_plateau_is_no_optimum_and_what_does_nothing_is_named(method, name, scalar):
    if scalar and METHODS[method].least_squares:
        pytest.skip("takes residuals only")
    f, start, named = PLATEAUS[name]
    with np.errstate(all="ignore"):
        fit = modFit(as_number(f) if scalar else f, start, method=method)
    if fit.deviance < 1e-6:
        return  # a method that finds its way out has done well
    assert not fit.converged
    assert f"does not respond to {named}" in fit.message
    assert fit.rank == 2 - named.count("p")


@pytest.mark.parametrize("method", GLOBAL)
def test_global_methods_on_a_plateau_do_not_claim_to_have_converged(method):
    control = {"maxit": 100, "maxsteps": 5} if method == "SANN" else {"numiter": 100}
    fit = modFit(peak, [1e-3, -40.0], lower=[0, -60], upper=[1, -20], method=method, control=control, seed=1)
    assert not fit.converged
    assert "does not respond" in fit.message


@pytest.mark.parametrize("method", LOCAL)
def test_a_parameter_that_acts_in_jumps_alone_is_not_fitted(method):
    fit = modFit(step, [0.4, 3.1], method=method)
    assert fit.converged == (fit.ssr < 1e-6)


def test_a_plateau_is_seen_with_exact_derivatives_too():
    def jac(p):
        e = np.exp(-0.5 * ((X - p[1]) / 0.3) ** 2)
        return np.column_stack([e, p[0] * e * (X - p[1]) / 0.09])

    fit = modFit(peak, [1e-3, -40.0], jac=jac)
    assert not fit.converged
    assert "does not respond to 'p1', 'p2'" in fit.message


def test_a_parameter_without_influence_is_not_converged_and_costs_a_rank():
    fit = modFit(lambda p: np.array([p["a"] - 1, p["a"] - 2, p["a"] - 3.0]), {"a": 0.0, "idle": 1.0})
    assert fit.par["a"] == pytest.approx(2.0)
    assert not fit.converged
    assert "does not respond to 'idle'" in fit.message
    assert fit.rank == 1
    assert fit.df_residual == 2


@pytest.mark.parametrize("method", LOCAL)
def test_a_valley_has_the_rank_that_the_data_determine(method):
    x = np.arange(1.0, 8.0)
    fit = modFit(lambda p: p[0] * p[1] * x + p[2] - (6 * x + 1) - 0.1 * np.sin(x), [2.0, 2.0, 0.5], method=method)
    assert fit.rank == 2
    assert "undetermined" in fit.message


def test_a_number_has_the_rank_of_its_second_derivatives():
    fit = modFit(lambda p: (p[0] + p[1] - 3) ** 2 + p[2] ** 2 + 1, [0.5, 1.0, 1.0])
    assert fit.rank == 2
    full = modFit(lambda p: (p[0] - 3) ** 2 + p[1] ** 2 + p[2] ** 2 + 1, [0.5, 1.0, 1.0])
    assert full.rank == 3
    assert full.converged


def test_derivatives_that_have_become_dependent_are_told():
    # two exponentials for the data of one: they merge, and nothing is known of the shares
    x = np.linspace(0, 5, 40)
    y = 2 * np.exp(-x)
    fit = modFit(lambda p: p[0] * np.exp(-p[1] * x) + p[2] * np.exp(-p[3] * x) - y, [1.0, 0.9, 0.5, 1.4])
    assert fit.ssr < 1e-10
    if fit.rank < 4:
        assert not fit.converged


@pytest.mark.parametrize("method", ["Port", "BFGS", "L-BFGS-B", "CG"])
def test_a_saddle_is_no_optimum(method):
    fit = modFit(lambda p: (p[0] ** 2 - 1) ** 2 + p[1] ** 2, [0.0, 0.5], method=method)
    assert fit.converged == (fit.deviance < 1e-6)


@pytest.mark.parametrize("method", LOCAL)
def test_an_optimum_at_which_first_derivatives_vanish_is_one(method):
    fit = modFit(lambda p: np.array([p[0] ** 2 + 1.0, p[0] ** 2 + 2.0, p[1] - 3.0]), [0.3, 1.0], lower=0, method=method)
    assert fit.par["p1"] == pytest.approx(0, abs=1e-2)
    assert "respond" not in fit.message


# --- limits


@pytest.mark.parametrize(
    ("method", "control", "typed"),
    [
        ("Marq", {"maxiter": 2}, "control={'maxiter': 20}"),
        ("Marq", {"maxfev": 4}, "control={'maxfev': 40}"),
        ("Port", {"maxiter": 2}, "control={'maxiter': 20}"),
        ("Newton", {"maxiter": 2}, "control={'maxiter': 20}"),
        ("Nelder-Mead", {"maxiter": 2}, "control={'maxiter': 20}"),
        ("BFGS", {"maxit": 2}, "control={'maxiter': 20}"),
        ("CG", {"maxiter": 2}, "control={'maxiter': 20}"),
        ("L-BFGS-B", {"maxiter": 2}, "control={'maxiter': 20}"),
        ("bobyqa", {"maxfun": 8}, "control={'maxiter': 80}"),
        ("Pseudo", {"numiter": 20}, "control={'numiter': 200}"),
        ("SANN", {"maxit": 50, "maxsteps": 3}, "control={'maxit': ..., 'maxsteps': ...}"),
    ],
)
@pytest.mark.parametrize("bounded", [False, True], ids=["free", "box"])
def test_a_limit_is_told_with_what_to_type(method, control, typed, bounded):
    if method in GLOBAL and not bounded:
        pytest.skip("searches a box")
    with np.errstate(all="ignore"):
        fit = modFit(LOGISTIC.residuals, (2.0, 20.0, 5.0), method=method, control=control, seed=1,
                     **(LOGISTIC.box() if bounded else {}))  # fmt: skip
    assert typed in fit.message
    if method != "SANN":
        assert not fit.converged


def test_scoring_tells_its_limit_too():
    from tests.fitting.methods.test_methods import FakeLikelihood

    fit = modFit(FakeLikelihood(np.random.default_rng(1).normal(3.0, 0.5, size=40)), control={"maxiter": 1})
    assert "control={'maxiter': 10}" in fit.message
    assert not fit.converged


# --- exact data, and runs that fail beside the end

T = np.arange(0.0, 11)


def exact(p):
    return p["y0"] * np.exp(-p["k"] * T) - 2 * np.exp(-0.3 * T)


@pytest.mark.parametrize("method", ["Marq", "Port", "Newton", "Nelder-Mead", "BFGS", "CG", "L-BFGS-B", "bobyqa"])
@pytest.mark.parametrize("kind", ["residuals", "modcost", "compiled"])
def test_exact_data_are_met_by_every_method(method, kind):
    box = {"lower": 0, "upper": 5} if method == "bobyqa" else {}
    table = {"time": T, "y": 2 * np.exp(-0.3 * T)}
    cost = exact
    if kind == "modcost":

        def cost(p):
            return fme.modCost({"time": T, "y": p["y0"] * np.exp(-p["k"] * T)}, table)

    elif kind == "compiled":
        model = fme.OdeModel("d(y)/dt = -k*y", state={"y": "y0"}, parms={"k": 0.3, "y0": 2.0}, times=T)
        cost = fme.SimulationCost(model, model().iloc[1:])
    fit = modFit(cost, {"k": 0.2, "y0": 1.0}, method=method, **box)
    assert fit.converged, fit.message
    np.testing.assert_allclose(fit.par, [0.3, 2.0], rtol=1e-5)


def test_a_search_far_from_exact_data_is_still_no_optimum():
    fit = modFit(exact, {"k": 0.2, "y0": 1.0}, method="Nelder-Mead", control={"reltol": 1e-2})
    if np.abs(fit.par / [0.3, 2.0] - 1).max() > 1e-3:
        assert not fit.converged
    stuck = modFit(exact, {"k": 0.2, "y0": 1.0}, method="Port", control={"maxiter": 3})
    assert "standard errors long" in stuck.message


def fails_above(limit, f):
    def g(p):
        if p["k"] > limit:
            raise ValueError("beyond")
        return f(p)

    return g


METHODS_OF_NUMBERS = ["Port", "BFGS", "CG", "Newton", "Nelder-Mead"]


@pytest.mark.parametrize("method", ["Marq", *METHODS_OF_NUMBERS])
@pytest.mark.parametrize("number", [False, True])
@pytest.mark.parametrize("start", [1.0, 1 - 1e-9])
def test_a_plateau_beside_runs_that_fail_is_no_optimum(method, number, start):
    if number and method == "Marq":
        pytest.skip("takes residuals only")
    flat = fails_above(1.0, lambda p: 6.0 if number else np.array([1.0, 2.0, 3.0]))
    fit = modFit(flat, {"k": start}, method=method)
    assert not fit.converged
    assert "does not respond to 'k' here" in fit.message


@pytest.mark.parametrize("method", METHODS_OF_NUMBERS)
def test_where_all_runs_beside_the_start_fail_nothing_is_claimed(method):
    def f(p):
        if abs(p["k"] - 1) > 1e-9:
            raise ValueError("beyond")
        return 3.0

    fit = modFit(f, {"k": 1.0}, method=method)
    assert not fit.converged
    assert "No derivative with respect to 'k' could be taken" in fit.message


@pytest.mark.parametrize("method", METHODS_OF_NUMBERS)
def test_an_edge_to_which_a_number_falls_is_no_optimum(method):
    x = np.arange(1.0, 6)
    fit = modFit(
        fails_above(1.0, lambda p: float(np.sum((p["k"] * x - 1.7 * x) ** 2)) / 0.01), {"k": 0.9}, method=method
    )
    assert fit.par["k"] == pytest.approx(1, abs=1e-3)
    assert not fit.converged
    assert "falls along 'k' to where runs fail" in fit.message


@pytest.mark.parametrize("method", METHODS_OF_NUMBERS)
def test_an_optimum_from_a_start_beside_runs_that_fail_is_one(method):
    x = np.arange(1.0, 6)
    f = fails_above(1.0, lambda p: float(np.sum((p["k"] * x - 0.7 * x + 0.1 * np.sin(9 * x)) ** 2)) / 0.01)
    assert modFit(f, {"k": 1.0}, method=method).converged


def test_an_end_that_a_scale_does_not_reach_is_named_with_what_to_type():
    times = np.arange(10.0)
    model = fme.OdeModel("dy/dt = -k * y", state={"y": "10 * f"}, parms={"f": 0.5, "k": 0.2}, times=times)
    data = pd.DataFrame({"time": times, "y": 10.8 * np.exp(-0.3 * times)})
    cost = fme.SimulationCost(model, data)
    fit = modFit(fme.transformed(cost, {"f": "logit", "k": "log"}))
    assert not fit.converged
    assert "f goes to 1, an end that its scale does not reach (logit(f) is " in fit.message
    assert "with upper=1 as a bound" in fit.message
    rising = fme.SimulationCost(cost.model, data.assign(y=5 * np.exp(0.1 * times)))
    fit = modFit(fme.transformed(rising, {"k": "log"}))
    assert "k goes to 0" in fit.message
    assert "with lower=0 as a bound" in fit.message
    assert "does not respond" not in fit.message
    assert "ran away" not in fit.message
    idle = fme.SimulationCost(model.replace(parms={"idle": 0.5}, state={"y": "10 * f + max(idle - 2, 0)"}), data)
    fit = modFit(fme.transformed(idle, {"idle": "logit"}), ["f", "k", "idle"])
    assert "does not respond to 'idle'" in fit.message
    assert "an end that its scale" not in fit.message
