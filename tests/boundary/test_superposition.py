"""Complementary functions and particular solutions: the worked example, number by number; the answer of shooting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError

STRATEGIES = ("complementary", "particular")
LYNX_HARE = """
    d(Hare)/dt = alpha * Hare - beta * Hare * Lynx
    d(Lynx)/dt = delta * Hare * Lynx - gamma * Lynx
    Hare(1900) = Hare0
    Lynx(1900) = Lynx0
"""
FIRST_GUESS = {"alpha": 0.5, "beta": 0.02, "gamma": 1.0, "delta": 0.02, "Hare0": 30.0, "Lynx0": 4.0}


def growth_step(n, Y1, Y2, *, a11=0.5, a21=0.5):
    return Y1 + a11 * Y1 + 0.75 * Y2, Y2 + a21 * Y1 + 0.25 * Y2


def untraced_step(n, Y1, Y2, *, a11=0.5, a21=0.5):
    if Y1 > 1e9:
        return Y1, Y2
    return growth_step(n, Y1, Y2, a11=a11, a21=a21)


def two(step=growth_step, **words):
    return fme.DifferenceModel(step, **{"state": {"Y1": 1, "Y2": 4}, "times": [0, 1], **words})


SEEN = {"time": [1], "Y1": [4.4], "Y2": [5.6]}


# --- Leary's worked example


def test_leary_by_complementary_functions():
    fit = fme.fit_boundary(two(), SEEN, ["a11", "a21"], strategy="complementary")
    expected = pd.DataFrame(
        {
            "step": [1, 2],
            "a11": [0.5, 0.4],
            "a21": [0.5, 0.6],
            "c.a11": [-0.1, -0.1],
            "c.a21": [0.1, 0.1],
            "damping": [0.0, 0.0],
            "correction": [0.2, 0.0],
            "residual": [np.sqrt(0.02), 0.0],
        }
    )
    pd.testing.assert_frame_equal(fit.iterations, expected, rtol=0, atol=1e-14)
    told = fit.solutions.set_index(["step", "name"]).drop(columns="x")
    assert told.columns.tolist() == ["obs", "nonlinear", "particular", "h.a11", "h.a21"]
    expected = [[4.4, 4.5, 4.5, 1, 0], [5.6, 5.5, 5.5, 0, 1], [4.4, 4.4, 4.5, 1, 0], [5.6, 5.6, 5.5, 0, 1]]
    np.testing.assert_allclose(told.to_numpy(), expected, rtol=0, atol=1e-14)
    assert fit.par.to_dict() == pytest.approx({"a11": 0.4, "a21": 0.6}, abs=1e-14)
    assert fit.multipliers.to_dict() == pytest.approx({"a11": -0.1, "a21": 0.1}, abs=1e-14)
    assert fit.converged


def test_leary_by_particular_solutions():
    fit = fme.fit_boundary(two(), SEEN, ["a11", "a21"], strategy="particular")
    expected = pd.DataFrame(
        {
            "step": [1, 2],
            "a11": [0.5, 0.4],
            "a21": [0.5, 0.6],
            "a.0": [1.0, 1.0],
            "a.a11": [-1.0, 0.0],
            "a.a21": [1.0, 0.0],
            "damping": [0.0, 0.0],
            "correction": [0.2, 0.0],
            "residual": [np.sqrt(0.02), 0.0],
        }
    )
    pd.testing.assert_frame_equal(fit.iterations, expected, rtol=0, atol=1e-14)
    told = fit.solutions.set_index(["step", "name"]).drop(columns=["x", "obs"])
    assert told.columns.tolist() == ["nonlinear", "particular.0", "particular.a11", "particular.a21"]
    expected = [[4.5, 4.5, 4.6, 4.5], [5.5, 5.5, 5.5, 5.6], [4.4, 4.4, 4.48, 4.4], [5.6, 5.6, 5.6, 5.72]]
    np.testing.assert_allclose(told.to_numpy(), expected, rtol=0, atol=1e-14)
    assert fit.multipliers.to_dict() == pytest.approx({"0": 1.0, "a11": 0.0, "a21": 0.0}, abs=1e-14)
    assert fit.converged


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_leary_with_a_function_that_cannot_be_traced(strategy):
    fit = fme.fit_boundary(two(untraced_step), SEEN, ["a11", "a21"], strategy=strategy)
    assert fit.par.to_numpy() == pytest.approx([0.4, 0.6], abs=1e-9)
    assert fit.iterations["a11"].to_numpy() == pytest.approx([0.5, 0.4], abs=1e-9)


def test_a_perturbation_of_zero_is_an_additive_step():
    fit = fme.fit_boundary(two(), SEEN, {"a11": 0.0, "a21": 0.0}, strategy="particular")
    assert fit.solutions.loc[0, "particular.a11"] == pytest.approx(4.2)  # 1 + 0 + 3, and 0.2 of a step to a11 = 1
    assert fit.multipliers.to_numpy() == pytest.approx([1, 0, 0], abs=1e-12)
    assert fit.par.to_numpy() == pytest.approx([0.4, 0.6])


# --- the answer of shooting


def lynx_hare(**words):
    pelts = fme.datasets.load("lynx_hare")
    logs = {"time": pelts["year"], "log_hare": np.log(pelts["Hare"]), "log_lynx": np.log(pelts["Lynx"])}
    model = fme.OdeModel(
        LYNX_HARE,
        times=np.linspace(1900, 1920, 41),
        parms=FIRST_GUESS,
        rtol=1e-9,
        outputs={"log_hare": "log(Hare)", "log_lynx": "log(Lynx)"},
        **words,
    )
    return model, pd.DataFrame(logs)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("engine", ["auto", "scipy"])
def test_lynx_and_hare_from_unknown_starts_as_modfit_finds_them(strategy, engine):
    model, logs = lynx_hare(engine=engine)
    shot = fme.modFit(fme.SimulationCost(model, logs))
    fit = fme.fit_boundary(model, logs, strategy=strategy)
    assert fit.converged
    assert fit.std_error.to_numpy() == pytest.approx(shot.std_error.to_numpy(), rel=1e-4)
    assert (np.abs(fit.par - shot.par) < 1e-4 * shot.std_error).all()
    assert fit.ssr == pytest.approx(shot.ssr, rel=1e-6)
    assert fit.residuals.to_numpy() == pytest.approx(shot.residuals.to_numpy(), abs=1e-4)
    assert fit.fit.minus2loglik == pytest.approx(shot.minus2loglik, abs=1e-4)
    assert fit.fit.var_ms_unweighted.to_numpy() == pytest.approx(shot.var_ms_unweighted.to_numpy(), rel=1e-5)


def test_both_strategies_walk_the_same_way():
    model, logs = lynx_hare()
    one, other = (fme.fit_boundary(model, logs, strategy=s).iterations for s in STRATEGIES)
    n = min(len(one), len(other)) - 2
    assert n >= 5
    np.testing.assert_allclose(one.iloc[:n, 1:7], other.iloc[:n, 1:7], rtol=1e-7)


def test_the_multipliers_lead_from_start_to_start():
    model, logs = lynx_hare()
    names = list(FIRST_GUESS)
    steps = fme.fit_boundary(model, logs, strategy="complementary").iterations
    first, c = steps[names].iloc[0].to_numpy(), steps[[f"c.{n}" for n in names]].to_numpy()
    np.testing.assert_allclose(steps[names].to_numpy()[1:], first + c[:-1], rtol=1e-12)
    steps = fme.fit_boundary(model, logs, strategy="particular").iterations
    start, a = steps[names].to_numpy(), steps[[f"a.{n}" for n in names]].to_numpy()
    np.testing.assert_allclose(steps["a.0"] + a.sum(axis=1), 1, atol=1e-12)
    starts = np.array([[s * np.where(np.arange(6) == k, 1.2, 1.0) for k in range(6)] for s in start])
    superposed = steps["a.0"].to_numpy()[:, None] * start + np.einsum("ik,ikj->ij", a, starts)
    np.testing.assert_allclose(start[1:], superposed[:-1], rtol=1e-10)


def test_weights_count():
    model = fme.OdeModel("d(A)/dt = -k*A", state={"A": "A0"}, parms={"k": 0.4, "A0": 5.0}, times=np.linspace(0, 4, 9),
                         outputs={"B": "A**2"}, rtol=1e-10)  # fmt: skip
    obs = {"var": ["A", "A", "B", "B"], "time": [1, 3, 1, 4], "v": [4.0, 1.5, 15.0, 1.0], "sd": [0.1, 0.2, 1.0, 0.5]}
    words = {"y": "v", "err": "sd"}
    shot = fme.modFit(fme.SimulationCost(model, obs, **words))
    fit = fme.fit_boundary(model, obs, **words)
    assert fit.par.to_numpy() == pytest.approx(shot.par.to_numpy(), rel=1e-6)
    assert fit.cov_scaled.to_numpy() == pytest.approx(shot.cov_scaled.to_numpy(), rel=1e-5)
    assert fit.fit.minus2loglik == pytest.approx(shot.minus2loglik, abs=1e-3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bounds_hold_and_the_others_are_found_beside_them(strategy):
    model = fme.OdeModel("d(A)/dt = -k*A", state={"A": "A0"}, parms={"k": 0.2, "A0": 4.0}, times=np.linspace(0, 5, 11),
                         rtol=1e-10)  # fmt: skip
    obs = {"time": [0.5, 1, 2, 4], "A": [6.3, 4.8, 3.0, 1.1]}
    fit = fme.fit_boundary(model, obs, ["k", "A0"], upper={"k": 0.4}, strategy=strategy)
    t, A = np.array(obs["time"]), np.array(obs["A"])
    shape = np.exp(-0.4 * t)
    assert fit.converged
    assert fit.par["k"] == 0.4
    assert fit.par["A0"] == pytest.approx(shape @ A / (shape @ shape), rel=1e-6)
    assert np.isnan(fit.std_error["k"])
    s2 = fit.ssr / 2
    assert fit.std_error["A0"] == pytest.approx(np.sqrt(s2 / (shape @ shape)), rel=1e-6)
    assert "On a bound: k" in fit.message


def test_a_step_too_far_is_damped_and_arrives():
    model = fme.OdeModel("d(N)/dt = r*N*(1 - N/K)", state={"N": 1.0}, times=np.linspace(0, 10, 21),
                         parms={"r": 0.1, "K": 30.0})  # fmt: skip
    t = np.linspace(1, 10, 10)
    seen = {"time": t, "N": 10 / (1 + 9 * np.exp(-1.2 * t))}
    fit = fme.fit_boundary(model, seen, lower=0)
    assert fit.converged
    assert (fit.iterations["damping"] > 0).any()
    assert (np.diff(fit.iterations["residual"]) < 1e-3).all()
    assert fit.par.to_numpy() == pytest.approx([1.2, 10.0], rel=1e-5)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(("last", "best"), [(8.0, np.log(2)), (3.0, 0.44005), (-4.0, -0.37193), (-8.0, -0.79148)])
def test_where_residuals_stay_large_it_arrives_though_plain_steps_do_not(strategy, last, best):
    """exp(b t) through 2, 4, and what it cannot reach (Dennis and Schnabel 1983, Numerical Methods, section 10.2)."""
    model = fme.DifferenceModel("next(x) = x * exp(b)", state={"x": 1.0}, parms={"b": 1.0}, times=range(4))
    fit = fme.fit_boundary(model, {"time": [1, 2, 3], "x": [2.0, 4.0, last]}, strategy=strategy)
    assert fit.converged, fit.message
    assert "below tol" in fit.message
    assert fit.par["b"] == pytest.approx(best, abs=1e-5)
    J = np.arange(1, 4) * np.exp(fit.par["b"] * np.arange(1, 4))
    assert fit.std_error["b"] == pytest.approx(np.sqrt(fit.ssr / 2 / (J @ J)), rel=1e-9, abs=1e-12)


def test_a_step_that_keeps_little_of_what_it_promised_is_taken_anew():
    """Where any step would do after which the sum of squares is less, this search is lost after fifty."""
    text = "next(N) = N*exp(a - b*P)\nnext(P) = P*exp(d*N - c)"
    truth = {"a": 0.2, "b": 0.02, "c": 0.2, "d": 0.01, "N0": 15.0, "P0": 8.0}
    model = fme.DifferenceModel(text, state={"N": "N0", "P": "P0"}, parms=truth, times=range(31))
    guess = {"a": 0.314, "b": 0.016, "c": 0.104, "d": 0.014, "N0": 24.186, "P0": 10.399}
    fit = fme.fit_boundary(model, model()[1:], guess)
    assert fit.converged, fit.message
    assert fit.par.to_dict() == pytest.approx(truth, rel=1e-9)
    assert len(fit.iterations) < 20


def test_corrections_that_a_solver_keeps_from_shrinking_end_the_search():
    """A step of the solver more or less moves the path, wherever the search stands."""
    model = fme.OdeModel("d(x)/dt = v\nd(v)/dt = mu*(1 - x**2)*v - x", state={"x": "x0", "v": 0.0}, rtol=1e-3,
                         atol=1e-3, parms={"mu": 1.5, "x0": 1.8}, times=np.linspace(0, 30, 61),
                         engine="scipy")  # fmt: skip
    exact = model.replace(rtol=1e-10, atol=1e-10)({"mu": 1.6, "x0": 2.0})
    fit = fme.fit_boundary(model, exact[["time", "x"]][1:], tol=1e-14)
    assert "no longer shrink" in fit.message
    assert fit.fit.solver_error > 1  # residuals are the solver's
    assert not fit.converged


def test_an_unknown_that_ends_at_zero_is_found():
    model = fme.OdeModel("d(A)/dt = -k*A + q", state={"A": 5.0}, times=np.linspace(0, 4, 9), parms={"k": 1.0, "q": 1.0})
    t = np.linspace(0.5, 4, 8)
    fit = fme.fit_boundary(model, {"time": t, "A": 5 * np.exp(-0.7 * t)})
    assert fit.converged
    assert fit.par.to_numpy() == pytest.approx([0.7, 0.0], abs=1e-4)


# --- what cannot be


def decay(**words):
    return fme.OdeModel("d(A)/dt = -k*r*A\nd(B)/dt = -z*B", state={"A": "A0", "B": 1.0}, times=np.linspace(0, 5, 11),
                        parms={"k": 0.3, "r": 2.0, "A0": 5.0, "z": 1.0}, **words)  # fmt: skip


FOUR = {"time": [1, 2, 3, 4], "A": [4.0, 3.0, 2.0, 1.5]}


@pytest.mark.parametrize("engine", ["auto", "scipy"])
def test_collinear_unknowns_are_named(engine):
    with pytest.raises(ArgumentError, match=r"homogeneous solutions of 'k', 'r' are collinear .* collin\("):
        fme.fit_boundary(decay(engine=engine), FOUR, ["k", "r", "A0"])


def test_an_unknown_that_nothing_depends_on_is_named():
    with pytest.raises(ArgumentError, match="no observation depends on 'z'"):
        fme.fit_boundary(decay(), FOUR, ["k", "z"])


def untraced_decay(t, A, B, *, k, r, z):
    if A < -1e9:
        return 0.0, 0.0
    return -k * r * A, -z * B


@pytest.mark.parametrize(("names", "told"), [(["k", "r"], "'k', 'r' are collinear"), (["k", "z"], "depends on 'z'")])
def test_the_same_by_differences_of_runs(names, told):
    model = fme.OdeModel(untraced_decay, state={"A": "A0", "B": 1.0}, times=np.linspace(0, 5, 11), atol=1e-9,
                         parms={"k": 0.3, "r": 2.0, "A0": 5.0, "z": 1.0}, engine="scipy")  # fmt: skip
    with pytest.raises(ArgumentError, match=told):
        fme.fit_boundary(model, FOUR, names)


def test_a_first_guess_that_cannot_be_run_is_told():
    with pytest.raises(ArgumentError, match=r"fails at the first guess \{'k': -500.0\}"):
        fme.fit_boundary(decay(), FOUR, {"k": -500.0})


def test_the_last_iterate_is_kept_where_steps_are_used_up():
    fit = fme.fit_boundary(decay(), FOUR, ["k", "A0"], max_iter=1)
    assert not fit.converged
    assert "max_iter=1" in fit.message
    assert len(fit.iterations) == 1
    further = fme.fit_boundary(decay(), FOUR, fit.par)
    assert further.converged
    assert further.ssr < fit.ssr


@pytest.mark.parametrize("guess", [1 + 0.999e-2 / np.sqrt(2), 1.02])
def test_where_no_step_helps_it_says_what_to_do(guess):
    def still(n, A, *, k=0.0):
        return A + 0 * k

    bump = "exp(-1e4*(k - 1)**2)*(k - 1)"  # at most 0.004, with a slope of zero there, and nothing further out
    model = fme.DifferenceModel(still, state={"A": 1.0}, times=[0, 1], outputs={"y": bump})
    fit = fme.fit_boundary(model, {"time": [1], "y": [1.0]}, {"k": guess})
    assert not fit.converged
    assert "segments=10" in fit.message
    assert np.isfinite(fit.par["k"])
