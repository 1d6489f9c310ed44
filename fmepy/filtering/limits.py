# mypy: disallow-untyped-defs=false, allow-untyped-calls
"""Readings of which only a limit is known, in a filter: their likelihood, and the update that matches moments.

A reading z is predicted as normal with mean h and variance s = H P H' + r, its error included. If it lies below or
above c (mark -1, 1), then with e = c - h, t = - mark e / sqrt s, and lam, w of `fmepy.numerics.tails`::

    log L   = log Phi(t)
    E z     = h + mark lam sqrt s               Var z = s (1 - w)
    x       <- x + (P H' / s) mark lam sqrt s   P <- P - w P H' H P / s

These are the moments of the truncated normal, and the state that a normal one with them has. Of one limit the
likelihood is exact; what comes behind it takes the state for normal, which it no longer is (assumed-density filtering).
The limits of a sample come after its other readings, one after the other.

In smoothing and diagnostics a limit is replaced by the plain reading of the same effect::

    r <- r + s / w - s      innovation  mark lam sqrt s / w = mark sqrt s / (lam + t)

References
----------
Minka, T. (2001). A family of algorithms for approximate Bayesian inference, MIT, ch. 3. Allik, B. et al. (2016). The
Tobit Kalman filter: an estimator for censored measurements. IEEE Trans. Control Syst. Technol. 24, 365-371.
"""

from __future__ import annotations

import numpy as np

from fmepy.numerics.tails import generalised, steepness
from fmepy.types import IntVector, Vector

_ROOT_2_PI = 2.5066282746310002
_NO_NEWS = 1e-12
"""A limit that reduces a variance by less than this part is of no effect in smoothing."""


def tail(t):
    """Return lam = phi(t) / Phi(t), w = lam (lam + t), which is between 0 and 1, and dw/dt; with all digits far out.

    Of Phi beyond 2 by Laplace's fraction phi(a) / Phi(-a) = a + 1 / (a + 2 / (a + 3 / ...)), else by its series.
    """
    density = np.exp(-0.5 * t * t) / _ROOT_2_PI
    if abs(t) > 2.0:
        a, q = abs(t), 0.0
        for i in range(60, 1, -1):
            q = i / (a + q)
        g = 1.0 / (a + q)  # lam + t where t = -a
        if t < 0.0:
            return a + g, (a + g) * g, (a + g) * g * (q - 2.0 * g)
        lam = density / (1.0 - density / (a + g))
    else:
        term, total = t, t
        for i in range(1, 40):
            term *= t * t / (2.0 * i + 1.0)
            total += term
        lam = density / (0.5 + density * total)
    w = lam * (lam + t)
    return lam, w, lam - w * (2.0 * lam + t)


def matched_moments(mark, e, s):
    """Return the mean of a reading minus its prediction, and the part of s by which it reduces the variance."""
    if mark == 0:
        return e, 1.0
    root = np.sqrt(s)
    lam, w, _ = tail(-mark * e / root)
    return mark * lam * root, w


def differentiate_moments(mark, e, s, de, ds, dw):
    """Turn the derivatives of e (and s) into those of what `matched_moments` returns; de and dw are written."""
    if mark == 0:
        return
    root = np.sqrt(s)
    lam, w, bend = tail(-mark * e / root)
    for q in range(de.shape[0]):
        dt = -mark * (de[q] - 0.5 * e * ds[q] / s) / root
        de[q], dw[q] = mark * (0.5 * lam * ds[q] / root - w * dt * root), bend * dt


def plain_rows(marks, first, count):
    """Return how many of the rows of a node are no limits; they come first."""
    plain = 0
    for i in range(count):
        if marks[first + i] == 0:
            plain += 1
    return plain


def equivalent_readings(
    values: Vector, marks: IntVector, predictions: Vector, sds: Vector, nu: Vector, s: Vector
) -> tuple[Vector, Vector]:
    """Return readings minus predictions, and their error sds; for limits those of readings of the same effect.

    Parameters
    ----------
    values, marks : ndarray, shape (n_obs,)
    predictions, sds : ndarray, shape (n_obs,)
        Of a record.
    nu, s : ndarray, shape (n_obs,)
        Conditional innovations and their variances, of limits.
    """
    delta, sds, limits = values - predictions, sds.copy(), np.flatnonzero(marks)
    root, marks = np.sqrt(s[limits]), marks[limits]
    r = -nu[limits] / root
    w = np.maximum(steepness(r, marks), _NO_NEWS)
    delta[limits] += root * (r - generalised(r, marks) / w)
    sds[limits] = np.sqrt(sds[limits] ** 2 + root**2 * (1 / w - 1))
    return delta, sds
