"""Conditional innovations -> likelihood, its score and its expected information.

With the conditional innovations nu_i and variances s_i of all data (Schweppe 1965)::

    xi     = - 1/2 sum_i (ln s_i + nu_i^2 / s_i)             Peterson 1976
    loglik = xi - 1/2 ln(2 pi) n_obs
    SUMSQ  = sum_i nu_i^2 / s_i

and with their derivatives nu_ij, s_ij to parameter j::

    d xi / d theta_j = - sum_i [ nu_i nu_ij / s_i + 1/2 s_ij (1/s_i - nu_i^2/s_i^2) ]
    I_jk             =   sum_i [ nu_ij nu_ik / s_i + 1/2 s_ij s_ik / s_i^2 ]

Diffuse start (de Jong 1991): with v_i = d nu_i / d x0, A = sum v_i v_i' / s_i and b = sum v_i nu_i / s_i the start that
the data want is moved by d = - A^-1 b, and::

    loglik_diffuse = loglik + 1/2 b'A^-1 b - 1/2 ln det A + 1/2 d ln(2 pi)

so that the data which are used up by the start are not counted.

A limit (`filtering.limits`) adds ln Phi(t), t = - mark nu / sqrt s, and to the information w t_j t_k: that of what was
seen, as in `fmepy.numerics.tails`. It is no part of SUMSQ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fmepy.filtering.loop_arguments import START_NOT_SETTLED
from fmepy.filtering.run import Pass
from fmepy.filtering.smoothing import StartInformation
from fmepy.journal.encoding import Stored
from fmepy.numerics.tails import generalised, log_probability, steepness
from fmepy.types import IntVector, Matrix, Vector

_SINGULAR = 1e-12
_MOST_SHIFTS = 20
_SMALL, _SETTLED = 1e-13, 1e-8
"""Squared moves of a start, in sds, which are none: at first, and where it was hard to find."""
_FAR = 1e3
"""The shift that stands for a start from which nothing can be computed."""
_KNOWN: Vector = np.zeros(0)
"""The shift of a start that is known."""


@dataclass(frozen=True, slots=True, eq=False)
class Likelihood(Stored):
    """The likelihood of one entity's data.

    Attributes
    ----------
    xi, loglik, sumsq : float
    nobs : int
        Scalar data that count; those that a diffuse start uses up do not.
    nu, s : ndarray, shape (n_obs,)
        Innovations from the start that was estimated, where it was, and their variances given that start.
    shift : ndarray, shape (d,)
        Estimated shift of the free components of the start.
    A : ndarray, shape (d, d)
        Information of the data on the start.
    marks : ndarray of int, shape (n_obs,), or None
        -1, 1 of data that lie below, above a limit; None: there are none.
    """

    xi: float
    loglik: float
    sumsq: float
    nobs: int
    nu: Vector
    s: Vector
    shift: Vector
    A: Matrix
    marks: IntVector | None = None

    @property
    def move(self) -> float:
        """Squared length of the shift, in sds."""
        return float(self.shift @ self.A @ self.shift)


def likelihood_of(run: Pass, marks: IntVector | None = None) -> Likelihood:
    """Return the likelihood of a pass that came to its end; -inf if the data do not determine a part of the start."""
    nu, s, d = run.nu, run.s, run.v.shape[1]
    shift, A = np.zeros(d), np.zeros((d, d))
    extra = 0.0
    if d:
        A, b = start_of(run)
        size = 1 / np.sqrt(np.maximum(np.diag(A), 1e-300))
        values, vectors = np.linalg.eigh(A * np.outer(size, size))
        if values[0] <= _SINGULAR * values[-1]:
            extra = -np.inf
        else:
            shift = -size * (vectors @ ((vectors.T @ (size * b)) / values))
            nu = nu + run.v @ shift
            extra = -0.5 * float(np.sum(np.log(values)) - 2 * np.sum(np.log(size)))
    return likelihood_of_innovations(nu, s, extra, shift, A, marks)


def pass_with_estimated_start(
    at: Callable[[Vector], tuple[Pass, Likelihood | None]], first: Vector
) -> tuple[Pass, Likelihood | None]:
    """Return the pass, and its likelihood, whose linearisation is about the start that it estimates.

    Each pass starts from the free components that the last one estimated. Where that does not converge, Powell's hybrid
    method (`scipy.optimize.root`) looks for a start that is its own estimate.

    Parameters
    ----------
    at : callable
        ``at(shift)`` returns the pass from the initial values and a shift of the free components, and its likelihood.
    first : ndarray, shape (d,)

    Returns
    -------
    run, likelihood : Pass, Likelihood or None
        None where the pass broke down, or the start does not settle (`START_NOT_SETTLED`).
    """
    shift = first
    for _ in range(_MOST_SHIFTS):
        run, one = at(shift)
        if one is None or not np.isfinite(one.loglik) or one.move < _SMALL:
            return run, one
        shift = shift + one.shift

    def move(shift: Vector) -> Vector:
        _, one = at(shift)
        return one.shift if one is not None and np.isfinite(one.loglik) else np.full(shift.size, _FAR)

    from scipy.optimize import root

    run, one = at(root(move, shift, options={"maxfev": 50 * shift.size}).x)
    if one is not None and np.isfinite(one.loglik) and one.move > _SETTLED:
        return replace(run, node=0, reason=START_NOT_SETTLED), None
    return run, one


def likelihood_of_innovations(
    nu: Vector,
    s: Vector,
    extra: float = 0.0,
    shift: Vector = _KNOWN,
    A: Matrix = _KNOWN[:, None],
    marks: IntVector | None = None,
) -> Likelihood:
    """Return the likelihood of conditional innovations and their variances; the start is known, or adds `extra`."""
    limits: Any = np.empty(0, dtype=bool) if marks is None else marks != 0
    plain = slice(None) if marks is None else ~limits
    sumsq = float((nu * nu / s)[plain].sum())
    xi = -0.5 * (float(np.log(s[plain]).sum()) + sumsq) + extra
    if marks is not None:
        xi += float(limit_log_probability(nu, s, marks)[limits].sum())
    nobs = len(nu) - len(shift)
    loglik = xi - 0.5 * np.log(2 * np.pi) * (nobs - np.count_nonzero(limits))
    return Likelihood(xi, loglik, sumsq, nobs, nu, s, shift, A, marks)


def predictive_log_densities(nu: Vector, s: Vector, v: Matrix, marks: IntVector | None = None) -> Vector:
    """Return the log density of every datum given those before it, but for those that a diffuse start uses up.

    Of a limit it is the log probability.

    nu, s, v: of a pass; v has no columns where the start is known. With the information A and b of the data before it
    on the start, a datum has the mean error nu + v'd, d = - A^-1 b, and the variance s + v' A^-1 v.
    """
    if v.shape[1]:
        root = np.sqrt(s)
        before = StartInformation.of(v / root[:, None], nu / root)[:-1]
        determined = ~before.null.any(axis=(1, 2))
        nu, s = (nu + np.einsum("ij,ij->i", v, before.shift))[determined], before.variances(s, v)[determined]
    plain = -0.5 * (nu * nu / s + np.log(2 * np.pi * s))
    return np.asarray(plain if marks is None else np.where(marks, limit_log_probability(nu, s, marks), plain))


def limit_log_probability(nu: Vector, s: Vector, marks: IntVector) -> Vector:
    """Return the log probability that a reading lies beyond its limit; of a plain one it says nothing."""
    return log_probability(-marks * nu / np.sqrt(s))


def start_of(run: Pass) -> tuple[Matrix, Vector]:
    """Return A and b of the free components of the start."""
    scaled = run.v / run.s[:, None]
    return scaled.T @ run.v, scaled.T @ run.nu


def unknown_part(A: Matrix, states: Sequence[str]) -> str:
    """Return as text the states, or the combination of them, whose start the information A does not determine.

    Examples
    --------
    >>> unknown_part(np.array([[1.0, 1.0], [1.0, 1.0]]), ["a", "b"])
    '+1.00 a -1.00 b'
    >>> unknown_part(np.diag([2.0, 0.0]), ["a", "b"])
    'b'
    """
    diagonal = np.diag(A)
    dead = np.flatnonzero(diagonal <= _SINGULAR * max(float(diagonal.max(initial=0.0)), 1e-300))
    if len(dead):
        return ", ".join(states[int(i)] for i in dead)
    size = 1 / np.sqrt(diagonal)
    direction = size * np.linalg.eigh(A * np.outer(size, size))[1][:, 0]
    direction = direction / direction[np.argmax(np.abs(direction) > 0.999999 * np.abs(direction).max())]
    return " ".join(f"{c:+.2f} {s}" for c, s in zip(direction, states, strict=True) if abs(c) > 0.01)


def score_rows(one: Likelihood, nu_slopes: Matrix, s_slopes: Matrix) -> Matrix:
    """Return the part of every datum in d xi / d theta, shape (n_obs, n_par); the slopes have the same shape."""
    a, b = _of_innovations(one)
    return np.asarray(a[:, None] * nu_slopes + b[:, None] * s_slopes)


def _of_innovations(one: Likelihood) -> tuple[Vector, Vector]:
    """Return the derivatives of xi to every innovation, and to its variance."""
    nu, s = one.nu, one.s
    a, b = -(nu / s), -0.5 * (1 / s - (nu / s) ** 2)
    if one.marks is not None:
        of_limit = generalised(-nu / np.sqrt(s), one.marks) / np.sqrt(s)
        a, b = np.where(one.marks, of_limit, a), np.where(one.marks, -0.5 * of_limit * nu / s, b)
    return a, b


def score_of(one: Likelihood, nu_slopes: Matrix, s_slopes: Matrix) -> Vector:
    """Return d xi / d theta, shape (n_par,); the slopes have shape (n_obs, n_par)."""
    a, b = _of_innovations(one)
    return np.asarray(np.einsum("i,ij->j", a, nu_slopes) + np.einsum("i,ij->j", b, s_slopes))


def information_rows(one: Likelihood, nu_slopes: Matrix, s_slopes: Matrix) -> tuple[Matrix, Matrix]:
    """Return two rows a datum, shape (n_obs, n_par): the sum of their products is the information of theta."""
    root = np.sqrt(one.s)[:, None]
    a, b = nu_slopes / root, s_slopes / (np.sqrt(2) * one.s)[:, None]
    if one.marks is not None:
        limit, r = one.marks[:, None] != 0, -one.nu / root[:, 0]
        of_limit = np.sqrt(steepness(r, one.marks))[:, None] * (a + r[:, None] * b / np.sqrt(2))
        a, b = np.where(limit, of_limit, a), np.where(limit, 0.0, b)
    return a, b


def expected_information(one: Likelihood, nu_slopes: Matrix, s_slopes: Matrix) -> Matrix:
    """Return the expected information of theta, shape (n_par, n_par)."""
    a, b = information_rows(one, nu_slopes, s_slopes)
    return np.asarray(a.T @ a + b.T @ b)


def movement(ahead: Likelihood, behind: Likelihood, base: Likelihood) -> float:
    """Return the largest change of an innovation, in sds, or of a variance, relative to it."""
    nu, s = np.abs(ahead.nu - behind.nu) / np.sqrt(base.s), np.abs(ahead.s - behind.s) / base.s
    return float(max(np.max(nu, initial=0.0), np.max(s, initial=0.0)))
