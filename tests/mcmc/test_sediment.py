"""The oxygen in a sediment, of the vignette "steady": one variance for 35 concentrations and a flux, in three ways.

The posterior is known from R's long chain (with its Monte Carlo errors) and from quadrature over the parameters, the
variance integrated out: 1 / sigma^2 given SS is a gamma, so that the density of the parameters is, in their box, as
(n0 var0 + SS)^(-(n0 + N) / 2), and the mean of sigma^2 that of (n0 var0 + SS) / (n0 + N - 2).
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import solve_banded

from fmepy.mcmc import modMCMC
from fmepy.mcmc.convergence import mcse
from tests.mcmc.problems import FOLDER, PlainCost, by_chain, cases, monod_residuals

CASE = cases("modMCMC_models")["steady_pooled"]
ARGS, LONG = CASE["inputs"]["args"], CASE["outputs"]["long_chain"]
START = CASE["inputs"]["p"]
NAMES = ("upO2", "cons", "ks")
PROFILE = pd.read_csv(FOLDER / "data" / "sediment_o2.csv")
UP_FLUX = 170.0
CELLS, SIZE = 100, 0.05
MIDDLES = (np.arange(CELLS) + 0.5) * SIZE
BETWEEN = 1 / np.r_[SIZE / 2, np.full(CELLS - 1, SIZE)]  # D / dx above each cell, D = 1


# --- the model, for one set of parameters and for many at once


def residuals(p):
    """Return model minus data: concentrations at the depths, then the flux through the surface."""
    up, cons, ks = (p[k] for k in NAMES) if isinstance(p, dict) else p
    beneath = np.r_[BETWEEN[1:], 0.0]
    bands = np.zeros((3, CELLS))
    bands[0, 1:], bands[2, :-1] = beneath[:-1] / SIZE, BETWEEN[1:] / SIZE
    O2 = up * np.maximum(1 - MIDDLES / np.sqrt(2 * up / cons), 0.01) ** 2  # that of ks = 0: near the answer
    for _ in range(200):
        flux = np.append(BETWEEN * (np.append(up, O2[:-1]) - O2), 0.0)
        bands[1] = -(BETWEEN + beneath) / SIZE - cons * ks / (O2 + ks) ** 2
        step = solve_banded((1, 1), bands, (flux[:-1] - flux[1:]) / SIZE - cons * O2 / (O2 + ks), check_finite=False)
        O2 = np.maximum(O2 - step, 0.1 * O2)  # concentrations stay positive
        if np.abs(step).max() < 1e-7 * up:  # the next step is about the square of this
            break
    return np.append(np.interp(PROFILE["x"], MIDDLES, O2) - PROFILE["O2"], BETWEEN[0] * (up - O2[0]) - UP_FLUX)


def sums_of_squares(up, cons, ks):
    """Return SS for arrays of parameters: Newton's method, the elimination along the cells, all sets in each step."""
    O2 = np.linspace(up, np.full_like(up, 0.01), CELLS)
    beneath = np.r_[BETWEEN[1:], 0.0]
    active = np.arange(up.size)
    for _ in range(200):
        c, u, k, q = O2[:, active], up[active], ks[active], cons[active]
        flux = np.vstack([BETWEEN[:, None] * (np.vstack([u, c[:-1]]) - c), np.zeros(active.size)])
        right = (flux[:-1] - flux[1:]) / SIZE - q * c / (c + k)
        pivot = -((BETWEEN + beneath) / SIZE)[:, None] - q * k / (c + k) ** 2
        for i in range(1, CELLS):
            ratio = BETWEEN[i] / SIZE / pivot[i - 1]
            pivot[i] -= ratio * beneath[i - 1] / SIZE
            right[i] -= ratio * right[i - 1]
        right[-1] /= pivot[-1]
        for i in range(CELLS - 2, -1, -1):
            right[i] = (right[i] - beneath[i] / SIZE * right[i + 1]) / pivot[i]
        O2[:, active] = np.maximum(c - right, 0.1 * c)
        active = active[np.abs(right).max(axis=0) >= 1e-7 * u]
        if not active.size:
            break
    x = PROFILE["x"].to_numpy()
    left = np.searchsorted(MIDDLES, x) - 1
    part = ((x - MIDDLES[left]) / SIZE)[:, None]
    apart = (1 - part) * O2[left] + part * O2[left + 1] - PROFILE["O2"].to_numpy()[:, None]
    return np.sum(apart**2, axis=0) + (BETWEEN[0] * (up - O2[0]) - UP_FLUX) ** 2


@cache
def posterior():
    """Return mean and sd of the parameters and the mean of sigma^2, by quadrature on a grid along the ridge."""
    n_ks, n_other, ks_end, reach = 60, 15, 18.0, 6.0
    mean, cov = np.array(list(LONG["mean"].values())), np.array(LONG["cor"]["matrix"])
    cov = cov * np.outer(list(LONG["sd"].values()), list(LONG["sd"].values()))
    slope = cov[:2, 2] / cov[2, 2]
    root = np.linalg.cholesky(cov[:2, :2] - np.outer(slope, cov[2, :2]))
    square = np.linspace(-reach, reach, n_other)
    ks, z1, z2 = (a.ravel() for a in np.meshgrid((np.arange(n_ks) + 0.5) * ks_end / n_ks, square, square))
    up, cons = mean[:2, None] + slope[:, None] * (ks - mean[2]) + root @ np.vstack([z1, z2])
    n = len(PROFILE) + 1
    n0 = ARGS["wvar0"] * n
    a, b = n0 + n, n0 * ARGS["var0"] + sums_of_squares(up, cons, ks)
    weight = (b / b.min()) ** (-a / 2)
    edge = (np.abs(z1) == reach) | (np.abs(z2) == reach) | (ks == ks.max())
    assert weight[edge].sum() < 1e-3 * weight.sum()  # the grid holds the posterior
    theta = np.vstack([up, cons, ks])
    centre = np.average(theta, axis=1, weights=weight)
    sd = np.sqrt(np.average((theta - centre[:, None]) ** 2, axis=1, weights=weight))
    variance = np.average(b / (a - 2), weights=weight)
    return dict(zip(NAMES, centre, strict=True)), dict(zip(NAMES, sd, strict=True)), variance


# --- chains


def assert_mean(column, expected, error=0.0):
    """Assert that the mean of draws is the expected one within 5 standard errors, of the draws and of R's together."""
    own = mcse(by_chain(column))
    assert own < 0.2 * column.std()  # a chain that says nothing agrees with everything
    assert abs(column.mean() - expected) < 5 * np.hypot(own, error), (column.mean(), expected, own, error)


@cache
def chain():
    """Return one chain of fmepy, shorter than R's."""
    settings = {k: ARGS[k] for k in ("lower", "upper", "var0", "wvar0", "updatecov", "burninlength")}
    return modMCMC(residuals, START, jump=np.array(ARGS["jump"]["matrix"]), niter=7500, seed=12, **settings)


def test_the_steady_profile_is_that_of_the_vignette():
    expected = cases("vignettes")["steady_objective"]["outputs"]["fit"]["ssr"]
    start = [np.array([START[k]]) for k in NAMES]
    assert np.sum(residuals(START) ** 2) == pytest.approx(expected, rel=1e-9)
    assert sums_of_squares(*start) == pytest.approx(expected, rel=1e-9)


def test_the_quadrature_agrees_with_the_long_chain_of_r():
    mean, sd, variance = posterior()
    for name in NAMES:
        assert abs(mean[name] - LONG["mean"][name]) < 5 * LONG["mcse_mean"][name]
        assert sd[name] == pytest.approx(LONG["sd"][name], rel=0.1)
    assert 18 < variance < 20  # not 164, which is R's from the single flux


def test_the_sediment_of_the_vignette_by_quadrature():
    mean, sd, variance = posterior()
    for name in NAMES:
        x = chain().pars[name]
        assert_mean(x, mean[name])
        assert_mean(x, LONG["mean"][name], LONG["mcse_mean"][name])
        assert_mean((x - mean[name]) ** 2, sd[name] ** 2)
    assert list(chain().sig.columns) == ["var_model"]
    assert_mean(chain().sig["var_model"], variance)


def test_one_variance_of_two_variables_is_pooled():
    cost = PlainCost(lambda t: residuals(tuple(t)), START, [0] * len(PROFILE) + [1], ("O2", "UpFlux"))
    settings = {k: ARGS[k] for k in ("lower", "upper", "var0", "wvar0")}
    pooled = modMCMC(cost, START, jump=np.array(ARGS["jump"]["matrix"]), niter=300, seed=13, **settings)
    vector = modMCMC(residuals, START, jump=np.array(ARGS["jump"]["matrix"]), niter=300, seed=13, **settings)
    pd.testing.assert_frame_equal(pooled.pars, vector.pars)
    np.testing.assert_allclose(pooled.sig.to_numpy(), vector.sig.to_numpy())
    np.testing.assert_allclose(pooled.sig.mean(), posterior()[2], rtol=0.2)


def test_the_monod_model_whose_variance_has_a_prior_by_n0():
    case = cases("modMCMC")["monod_n0"]
    args, exact = case["inputs"]["args"], case["outputs"]["exact"]
    settings = {k: args[k] for k in ("lower", "upper", "var0", "n0")}
    chain = modMCMC(monod_residuals, case["inputs"]["p"], jump=np.array(args["jump"]["matrix"]), niter=20000, seed=14,
                    burninlength=1000, updatecov=200, **settings)  # fmt: skip
    for name in ("mumax", "ks"):
        x = chain.pars[name]
        assert_mean(x, exact["mean"][name])
        assert_mean((x - exact["mean"][name]) ** 2, exact["sd"][name] ** 2)
        for q, value in zip(exact["quantiles"]["probs"], exact["quantiles"][name], strict=True):
            assert_mean((x <= value).astype(float), q)
    assert_mean(chain.sig["var_model"], exact["extra"]["mean_sigma2"])
