r"""Coordinates in which a posterior is about standard normal, as far as one by one and their covariance can make it so.

Bounds, and the supports of priors, are transformed away, u being unbounded::

    theta = a + (b - a) / (1 + exp(-u))    between two bounds        theta = a + exp(u), b - exp(u)    beside one

A parameter that the data bound on one side only runs, in u, along an exponential into its bound and falls off a cliff
on the other side. With Phi the normal distribution function, such a u is a **bent** normal v, s and r at least zero::

    u = c + d v + s log Phi(v) - r log Phi(-v)      s = r = 0: normal; s alone: as described; d = 0, s = r = 1: logistic

c, d, s and r are found by least squares of sorted draws of u to normal scores; d has a floor, so that every u has a v.
A parameter whose draws are straight against these scores stays as it is.

The metric M^-1 of draws of v and of slopes of their log density is the one in which both have the same covariance,
``M^-1 cov(slopes) M^-1 = cov(v)``, which of a normal is its covariance after few draws.

References
----------
Blom, G. (1958). Statistical Estimates and Transformed Beta-Variables (normal scores).
Seyboldt, A., Carlson, E. and Carpenter, B. (2026). Preconditioning Hamiltonian Monte Carlo by minimizing Fisher
divergence. arXiv:2603.18845.
"""

from __future__ import annotations

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.numerics.tails import inverse_mills, log_probability
from fmepy.types import BoolVector, Matrix, Vector

_LARGEST = 600.0  # an exponent below overflow
_NEAR = 1e-4  # of the width, or of the size: a start on a bound is moved inside by so much
_FEWEST, _STRAIGHT = 30, 0.01  # draws, and 1 - r**2 beyond the 3 / n of chance, that make a parameter bent
_FLOOR = 0.1  # of the sd: least d
_FARTHEST = 1e4  # |v|
_PRIOR_DRAWS = 5.0  # so many draws of a diagonal metric are added


class Unbounded:
    """Unbounded coordinates of bounded parameters, about normal once they are fitted to draws; see the module.

    Parameters
    ----------
    lower, upper : ndarray, shape (n_par,)
    bend : ndarray, shape (4, n_par), optional
        c, d, s and r.
    """

    def __init__(self, lower: Vector, upper: Vector, bend: Matrix | None = None) -> None:
        has_lower, has_upper = np.isfinite(lower), np.isfinite(upper)
        self.lower, self.upper = lower, upper
        self.both: BoolVector = has_lower & has_upper
        self.above: BoolVector = has_lower & ~has_upper
        self.below: BoolVector = ~has_lower & has_upper
        self.width = np.where(self.both, upper - lower, 1.0)
        self.is_bounded = has_lower | has_upper
        self.bend = np.tile([[0.0], [1.0], [0.0], [0.0]], lower.size) if bend is None else bend
        self.bent = np.flatnonzero(self.bend[2:].any(axis=0))
        self.is_identity = not self.is_bounded.any() and not self.bent.size

    def forward(self, v: Vector) -> Vector:
        """Return theta."""
        if self.is_identity:
            return v
        u = self.from_normal(v)
        theta, e = u.copy(), np.exp(np.minimum(u, _LARGEST))
        theta[self.above] = (self.lower + e)[self.above]
        theta[self.below] = (self.upper - e)[self.below]
        theta[self.both] = (self.lower + self.width / (1 + np.exp(np.minimum(-u, _LARGEST))))[self.both]
        return np.asarray(np.minimum(np.maximum(theta, self.lower), self.upper))

    def inverse(self, theta: Vector) -> Vector:
        """Return v; of a parameter on a bound that of a place just inside."""
        u, size = theta.copy(), np.maximum(np.abs(theta), 1.0)
        inside = _NEAR * np.where(self.both, self.width, size)
        low, high = np.maximum(theta - self.lower, inside), np.maximum(self.upper - theta, inside)
        u[self.above] = np.log(low[self.above])
        u[self.below] = np.log(high[self.below])
        u[self.both] = np.log(low[self.both] / high[self.both])
        return self.to_normal(u)

    def slopes(self, v: Vector) -> tuple[Vector, float, Vector]:
        """Return dtheta/dv, the logarithm of its product, and the derivatives of that."""
        slope, of_log = np.ones(v.size), np.zeros(v.size)
        if self.is_identity:
            return slope, 0.0, of_log
        u, half = self.from_normal(v), self.above | self.below
        slope[half], of_log[half] = np.exp(np.minimum(u[half], _LARGEST)), 1.0
        slope[self.below] *= -1
        x = u[self.both]
        e = np.exp(-np.abs(x))
        slope[self.both] = self.width[self.both] * e / (1 + e) ** 2
        of_log[self.both] = -np.sign(x) * (1 - e) / (1 + e)
        logs = u[half].sum() + (np.log(self.width[self.both]) - np.abs(x) - 2 * np.log1p(e)).sum()
        if self.bent.size:
            steep, of_steep = self.steepness(v)
            slope, logs, of_log = slope * steep, logs + np.log(steep).sum(), of_log * steep + of_steep
        return slope, float(logs), of_log

    # --- bent

    def from_normal(self, v: Matrix) -> Matrix:
        """Return u, of one v or of one v a row."""
        if not self.bent.size:
            return v
        u, x, (c, d, s, r) = v.copy(), v[..., self.bent], self.bend[:, self.bent]
        u[..., self.bent] = c + d * x + s * log_probability(x) - r * log_probability(-x)
        return u

    def to_normal(self, u: Matrix) -> Matrix:
        """Return v, of one u or of one u a row, by bisection."""
        v = u.copy()
        v[..., self.bent] = 0.0
        step = _FARTHEST / 2
        while self.bent.size and step > 1e-13:
            v[..., self.bent] += step * np.sign(u - self.from_normal(v))[..., self.bent]
            step /= 2
        return v

    def steepness(self, v: Matrix) -> tuple[Matrix, Matrix]:
        """Return du/dv, and the derivative of its logarithm."""
        steep, of_log = np.ones(v.shape), np.zeros(v.shape)
        x, (_, d, s, r) = v[..., self.bent], self.bend[:, self.bent]
        low, high = inverse_mills(x), inverse_mills(-x)
        steep[..., self.bent] = t = d + s * low + r * high
        of_log[..., self.bent] = (r * high * (high - x) - s * low * (low + x)) / t
        return steep, of_log

    def adapted(self, V: Matrix, slopes: Matrix) -> tuple[Unbounded, Matrix, Matrix]:
        """Return coordinates fitted to draws, one a row, with the draws and the slopes of their log density in them."""
        n, U = len(V), self.from_normal(V)
        if n < _FEWEST:
            return self, V, slopes
        steep, of_log = self.steepness(V)
        new = Unbounded(self.lower, self.upper, np.column_stack([fit_bend(u) for u in np.sort(U, axis=0).T]))
        V = new.to_normal(U)
        new_steep, of_new_log = new.steepness(V)
        return new, V, (slopes - of_log) / steep * new_steep + of_new_log


def fit_bend(u: Vector) -> Vector:
    """Return c, d, s and r of sorted draws.

    Examples
    --------
    >>> from scipy.stats import expon, norm
    >>> rank = (np.arange(500) + 0.5) / 500
    >>> fit_bend(norm.ppf(rank)), fit_bend(-expon.ppf(1 - rank)).round(1)
    (array([0., 1., 0., 0.]), array([-0.1,  0.1,  0.9,  0. ]))
    """
    n = u.size
    z = scipy.special.ndtri((np.arange(n) + 0.625) / (n + 0.25))
    mean, sd = u.mean(), u.std()
    if not sd > 0 or 1 - np.corrcoef(u, z)[0, 1] ** 2 < _STRAIGHT + 3 / n:
        return np.array([0.0, 1.0, 0.0, 0.0])
    A = np.column_stack([z, log_probability(z), -log_probability(-z)])
    least = np.array([_FLOOR * sd, 0.0, 0.0])
    slopes = least + scipy.optimize.nnls(A - A.mean(axis=0), u - mean - A @ least)[0]
    return np.array([mean - A.mean(axis=0) @ slopes, *slopes])


def metric(V: Matrix, slopes: Matrix) -> Matrix:
    """Return M^-1, from draws and slopes of their log density, one a row; of few draws nearly diagonal.

    Examples
    --------
    >>> V = np.random.default_rng(1).multivariate_normal([0, 0], [[4, 1], [1, 2]], 2000)
    >>> metric(V, -V @ np.linalg.inv([[4, 1], [1, 2]])).round(1)
    array([[4., 1.],
           [1., 2.]])
    """
    n, k = V.shape
    of_draws, of_slopes = np.atleast_2d(np.cov(V.T)), np.atleast_2d(np.cov(slopes.T))
    variance = of_draws.diagonal()
    scale = (variance / np.maximum(of_slopes.diagonal(), 1e-6 / variance)) ** 0.25
    square, weight = np.outer(scale, scale), n / (n + _PRIOR_DRAWS)
    C, G = (weight * X + (1 - weight) * np.eye(k) for X in (of_draws / square, of_slopes * square))
    root, inverse = _roots(G)
    return np.asarray(square * (inverse @ _roots(root @ C @ root)[0] @ inverse))


def _roots(A: Matrix) -> tuple[Matrix, Matrix]:
    """Return the square root of a symmetric positive matrix, and its inverse."""
    values, vectors = np.linalg.eigh(A)
    root = np.sqrt(np.maximum(values, 1e-300))
    return (vectors * root) @ vectors.T, (vectors / root) @ vectors.T
