"""The part in a likelihood of readings that lie beyond a limit.

With the residual r = (mod - limit) / s of a reading of which only the limit is known, Phi the normal distribution
function, phi its density, and t = r where the reading lies above its limit, t = - r where it lies below::

    log L    = log Phi(t)                          the probability of what was seen
    lam      = phi(t) / Phi(t)
    res      = d(-log L)/dr = - lam (above), lam (below)
    w        = d2(-log L)/dr2 = lam (lam + t)      between 0 and 1: the observed information of r

The *generalised residual* ``res`` (Gourieroux et al. 1987) is the mean of (mod - reading) / s given what was seen, and
zero on average where the model is right; of a plain reading it is r itself.

References
----------
Tobin, J. (1958). Econometrica 26, 24-36. Gourieroux, C. et al. (1987). J. Econometrics 34, 5-32.
"""

from __future__ import annotations

import numpy as np

from fmepy.types import IntVector, Vector

_FAR = -80.0
_ROOT_2, _ROOT_2_OVER_PI = float(np.sqrt(2.0)), float(np.sqrt(2.0 / np.pi))


def log_probability(t: Vector) -> Vector:
    """Return log Phi(t), also far out in the tail."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(t))


def inverse_mills(t: Vector) -> Vector:
    """Return phi(t) / Phi(t), without a quotient of two vanishing numbers."""
    from scipy.special import erfcx

    with np.errstate(over="ignore"):  # far inside the limit: 1 / inf is the 0 that is meant
        return np.asarray(_ROOT_2_OVER_PI / erfcx(-t / _ROOT_2))


def minus2loglik_of_marked(r: Vector, s: Vector, marks: IntVector) -> float:
    """Return -2 log L of residuals r = (mod - obs) / s, of which some are of limits."""
    beyond = marks != 0
    r_plain, s_plain = r[~beyond], s[~beyond]
    with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
        plain = float(r_plain @ r_plain + 2 * np.log(s_plain).sum() + len(r_plain) * np.log(2 * np.pi))
    return plain - 2 * float(log_probability(marks[beyond] * r[beyond]).sum())


def residuals_of_marked(r: Vector, marks: IntVector) -> Vector:
    """Return residuals, generalised ones of those that are of limits."""
    beyond = marks != 0
    out = r.copy()
    out[beyond] = generalised(r[beyond], marks[beyond])
    return out


def generalised(r: Vector, marks: IntVector) -> Vector:
    """Return the generalised residuals of readings marked -1 or 1."""
    return -marks * inverse_mills(marks * r)


def steepness(r: Vector, marks: IntVector) -> Vector:
    """Return w, the observed information of r."""
    t = marks * r
    lam = inverse_mills(t)
    far = t < _FAR  # lam + t is a difference of nearly equal numbers there
    u = np.where(far, t, _FAR) ** -2
    return np.where(far, 1 - u * (1 - u * (6 - 50 * u)), lam * (lam + np.where(far, 0.0, t)))
