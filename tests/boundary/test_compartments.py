"""Linear compartments whose exchange slows down with time, one never observed: against the closed form.

With rates k/(1+t) and m/(1+t), s = log(1+t) is a time in which coefficients are constant (Bateman)::

    dA/dt = -k/(1+t) A                  A = A0 exp(-k s)
    dB/dt = (k A - m B)/(1+t)           B = B0 exp(-m s) + A0 k/(m-k) (exp(-k s) - exp(-m s))
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

import fmepy as fme

TRUTH = {"k": 0.7, "m": 1.6, "A0": 10.0, "B0": 1.5}
GUESS = {"k": 0.4, "m": 1.0, "A0": 6.0, "B0": 1.0}
T = np.array([0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0])
SEEN = np.array([True, True, False, True, True, True, False, True, True, True])  # the others were lost


def closed(t, k, m, A0, B0):
    s = np.log1p(t)
    return A0 * np.exp(-k * s), B0 * np.exp(-m * s) + A0 * k / (m - k) * (np.exp(-k * s) - np.exp(-m * s))


def compartments(**words):
    equations = "d(A)/dt = -k/(1 + t)*A\nd(B)/dt = (k*A - m*B)/(1 + t)"
    return fme.OdeModel(equations, state={"A": "A0", "B": "B0"}, parms=GUESS, times=np.linspace(0, 10, 41),
                        **{"rtol": 1e-11, "atol": 1e-12, **words})  # fmt: skip


def record(noise=0.0):
    B = closed(T, **TRUTH)[1] + noise * np.cos(11 * np.arange(len(T)))
    return pd.DataFrame({"time": T, "B": np.where(SEEN, B, np.nan)})


@pytest.mark.parametrize("strategy", ["complementary", "particular"])
@pytest.mark.parametrize("engine", ["auto", "scipy"])
def test_exact_observations_of_one_give_rates_and_both_starts(strategy, engine):
    fit = fme.fit_boundary(compartments(engine=engine), record(), strategy=strategy)
    assert fit.converged
    assert fit.par.to_dict() == pytest.approx(TRUTH, rel=1e-6)
    A, B = closed(fit.trajectory["time"], **TRUTH)
    np.testing.assert_allclose(fit.trajectory["A"], A, rtol=1e-6)
    np.testing.assert_allclose(fit.trajectory["B"], B, rtol=1e-6)


def test_as_many_observations_as_unknowns_are_enough():
    few = record().dropna().iloc[[0, 2, 4, 6]]
    fit = fme.fit_boundary(compartments(), few)
    assert fit.par.to_dict() == pytest.approx(TRUTH, rel=1e-5)


def test_starts_alone_are_found_in_one_step_as_the_equations_are_linear():
    model = compartments().replace(parms={"k": TRUTH["k"], "m": TRUTH["m"]})
    fit = fme.fit_boundary(model, record(), {"A0": 1.0, "B0": 0.0})
    assert len(fit.iterations) <= 3
    assert fit.iterations.loc[1, ["A0", "B0"]].to_numpy(dtype=float) == pytest.approx([10.0, 1.5], rel=1e-7)


@pytest.mark.parametrize("strategy", ["complementary", "particular"])
def test_noisy_observations_give_the_least_squares_of_the_closed_form(strategy):
    data = record(noise=0.02)
    rows = data.dropna()

    def residuals(q):
        return closed(rows["time"].to_numpy(), *q)[1] - rows["B"].to_numpy()

    best = least_squares(residuals, list(GUESS.values()), xtol=1e-15, ftol=1e-15, gtol=1e-15)
    fit = fme.fit_boundary(compartments(), data, strategy=strategy)
    assert fit.converged
    assert fit.ssr == pytest.approx(2 * best.cost, rel=1e-6)
    covariance = np.linalg.inv(best.jac.T @ best.jac) * 2 * best.cost / (len(rows) - 4)
    assert fit.std_error.to_numpy() == pytest.approx(np.sqrt(np.diag(covariance)), rel=1e-3)
    assert (np.abs(fit.par.to_numpy() - best.x) < 1e-3 * fit.std_error.to_numpy()).all()


def test_the_same_as_difference_equations_to_rounding():
    """By hand: A' = A (1 - k/(1+n)), B' = B (1 - m/(1+n)) + k/(1+n) A, n the new time."""
    truth = {"k": 0.4, "m": 0.7, "A0": 10.0, "B0": 1.5}
    model = fme.DifferenceModel("next(A) = A*(1 - k/(1 + t))\nnext(B) = B*(1 - m/(1 + t)) + k/(1 + t)*A",
                                state={"A": "A0", "B": "B0"}, parms=GUESS, times=range(13))  # fmt: skip
    A, B, path = truth["A0"], truth["B0"], []
    for n in range(1, 14):
        path.append(B)
        A, B = A * (1 - truth["k"] / (1 + n)), B * (1 - truth["m"] / (1 + n)) + truth["k"] / (1 + n) * A
    data = pd.DataFrame({"time": range(13), "B": path}).drop(index=[0, 3, 7])
    for strategy in ("complementary", "particular"):
        fit = fme.fit_boundary(model, data, {"k": 0.3, "m": 0.6, "A0": 7.0, "B0": 1.0}, strategy=strategy)
        assert fit.par.to_dict() == pytest.approx(truth, rel=1e-11)
        assert np.abs(fit.residuals).max() < 1e-13
