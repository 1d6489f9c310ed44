"""Curvature at the optimum: the Hessian, the covariance, and what is undetermined if it is singular.

One definition for all least-squares costs, whatever method found the optimum, with J the Jacobian of the scaled
residuals (prior rows included)::

    hessian = 2 J'J,    cov_unscaled = inverse(hessian / 2) = (J'J)^-1

For a number, -2 log L, the Hessian is that of second differences and ``inverse(hessian / 2)`` the covariance itself.

Columns are brought to length one before anything is inverted, so that the size of parameters plays no part in what
counts as singular. A combination of parameters is undetermined if its singular value is below 1e-7 of the largest
(1e-14 in J'J, where double precision ends).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fmepy.types import BoolVector, Matrix, Vector

__all__ = [
    "Spectra",
    "Spectrum",
    "correlation_of",
    "covariance_of",
    "rank_of",
    "second_differences",
    "whitened_second_differences",
]

_SINGULAR = 1e-7
_WHITE_STEP = 0.03


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """A Hessian in its own axes, its parameters brought to one size: rank, covariance, and what is undetermined.

    Attributes
    ----------
    kept : ndarray of bool, shape (n_par,)
        Parameters that count.
    diagonal, size : ndarray, shape (n_kept,)
        Of the Hessian, and what brings it to one (zero where it is zero).
    values, vectors : ndarray, shape (n_kept,) and (n_kept, n_kept)
        Eigenvalues of the Hessian brought to size, rising, NaN if it is not finite; eigenvectors in columns.
    """

    kept: BoolVector
    diagonal: Vector
    size: Vector
    values: Vector
    vectors: Matrix

    @classmethod
    def of(cls, hessian: Matrix, kept: BoolVector | None = None) -> Spectrum:
        """Return the spectrum of a Hessian, of the parameters `kept` (None: all) that are not NaN in it."""
        diagonal = hessian.diagonal()
        mine = ~np.isnan(diagonal) if kept is None else kept & ~np.isnan(diagonal)
        if not mine.all():
            hessian, diagonal = hessian[mine][:, mine], diagonal[mine]
        root = np.sqrt(np.abs(diagonal))
        size = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
        unit = hessian * (size[:, None] * size)
        if not np.isfinite(unit).all():
            return cls(mine, diagonal, size, np.full(root.size, np.nan), np.zeros_like(unit))
        values, vectors = np.linalg.eigh(unit)
        return cls(mine, diagonal, size, values, vectors)

    @property
    def rank(self) -> int:
        """Numerical rank; 0 for a Hessian that is not finite."""
        if not self.values.size or np.isnan(self.values[0]):
            return 0
        values = np.abs(self.values)
        return int(np.count_nonzero(values > _SINGULAR**2 * values.max()))

    @property
    def is_definite(self) -> bool:
        """True if it is positive definite, beyond rounding."""
        if not self.values.size or np.isnan(self.values[0]):
            return False
        return bool((self.diagonal > 0).all() and self.values[0] > _SINGULAR**2 * self.values[-1])

    @property
    def covariance(self) -> Matrix:
        """inverse(hessian / 2), shape (n_par, n_par); NaN if it is not definite, and where parameters do not count."""
        out = np.full((self.kept.size,) * 2, np.nan)
        if self.is_definite:
            inverse = (self.vectors / self.values) @ self.vectors.T
            out[np.ix_(self.kept, self.kept)] = 2 * inverse * (self.size[:, None] * self.size)
        return out

    def undetermined(self, names: Sequence[str], scale: Vector) -> str:
        """Return the combination of parameters that a singular Hessian leaves undetermined; "" if there is none.

        Parameters
        ----------
        names : sequence of str, length n_par
        scale : ndarray, shape (n_par,)
            Sizes of the parameters; the combination is told in relative changes.

        Examples
        --------
        >>> H = np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
        >>> Spectrum.of(H).undetermined(["a", "b", "c"], np.ones(3))
        '+1.00 a -1.00 b'
        """
        if not self.values.size or np.isnan(self.values[0]):
            return ""
        mine = [name for name, kept in zip(names, self.kept, strict=True) if kept]
        own = scale[self.kept]
        diagonal = self.diagonal * own**2
        dead = diagonal <= 0 if (diagonal <= 0).any() else diagonal <= 1e-28 * diagonal.max()
        if dead.any():
            return ", ".join(n for n, d in zip(mine, dead, strict=True) if d)
        if self.values[0] > _SINGULAR**2 * self.values[-1]:
            return ""
        direction = self.vectors[:, 0] * self.size / own
        direction = direction / direction[np.argmax(np.abs(direction))]
        return " ".join(f"{c:+.2f} {n}" for c, n in zip(direction, mine, strict=True) if abs(c) > 0.01)


class Spectra:
    """The spectra of one Hessian by the parameters that count, each found once."""

    def __init__(self, hessian: Matrix) -> None:
        self.hessian = hessian
        self._known: dict[bytes, Spectrum] = {}

    def __call__(self, kept: BoolVector) -> Spectrum:
        """Return the spectrum of the parameters `kept`."""
        key = kept.tobytes()
        if key not in self._known:
            self._known[key] = Spectrum.of(self.hessian, kept)
        return self._known[key]


def covariance_of(hessian: Matrix) -> Matrix:
    """Return inverse(hessian / 2), all NaN if it is singular or not positive definite.

    Parameters
    ----------
    hessian : ndarray, shape (n_par, n_par)
        Rows and columns that are NaN belong to parameters that are left out; they stay NaN.

    Examples
    --------
    >>> covariance_of(np.array([[2.0, 0.0], [0.0, 8.0]]))
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    return Spectrum.of(np.asarray(hessian, dtype=float)).covariance


def rank_of(hessian: Matrix) -> int:
    """Return the numerical rank of a Hessian, its parameters brought to one size; NaN rows are left out.

    Examples
    --------
    >>> rank_of(np.array([[2.0, 2e-6, 0.0], [2e-6, 2e-12, 0.0], [0.0, 0.0, 0.0]]))
    1
    """
    return Spectrum.of(np.asarray(hessian, dtype=float)).rank


def correlation_of(covariance: Matrix) -> Matrix:
    """Return the correlations of a covariance, the diagonal exactly one (NaN stays NaN)."""
    sd = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        out = covariance / np.outer(sd, sd)
    out[np.diag_indices_from(out)] = np.where(np.isfinite(sd), 1.0, np.nan)
    return np.asarray(out)


def second_differences(
    cost: Callable[[Vector], float], theta: Vector, lower: Vector, upper: Vector, scale: Vector, noise: float
) -> Matrix:
    """Return the second derivatives of a cost by central differences, steps fit to its noise and curvature.

    Parameters
    ----------
    cost : callable
    theta, lower, upper, scale : ndarray, shape (n_par,)
        Probes stay inside the bounds: at a bound the centre is moved inside by one step.
    noise : float
        Noise of the cost, relative to its size.

    Returns
    -------
    ndarray, shape (n_par, n_par)
        NaN where a probe failed.

    Notes
    -----
    A step h_j is chosen such that the cost changes by about ``sqrt(noise) |F|``: then rounding (noise / change) and
    fourth derivatives both weigh little, whatever the parameter's size. Off the diagonal::

        d2F / dj dk = (F(+h_j +h_k) - F(+h_j -h_k) - F(-h_j +h_k) + F(-h_j -h_k)) / (4 h_j h_k)
    """
    n = theta.size
    noise = max(noise, 2e-16)
    h = noise**0.25 * scale
    room = 0.25 * (upper - lower)
    h = np.minimum(h, room)
    level = max(abs(cost(theta)), 1e-300)
    target = np.sqrt(noise) * level
    for j in range(n):
        for _ in range(3):
            centre = _centre(theta, h, lower, upper)
            rise = abs(_along(cost, centre, h, j))
            if not np.isfinite(rise) or 0.1 * target <= rise <= 10 * target:
                break
            factor = np.sqrt(target / rise) if rise > 0 else 10.0
            h[j] = min(h[j] * float(np.clip(factor, 1e-4, 10.0)), room[j], 0.1 * scale[j])
    centre = _centre(theta, h, lower, upper)
    H = np.empty((n, n))
    for j in range(n):
        H[j, j] = 2 * _along(cost, centre, h, j) / h[j] ** 2
        for k in range(j):
            H[j, k] = H[k, j] = _mixed(cost, centre, h, j, k)
    return H


def whitened_second_differences(
    cost: Callable[[Vector], float], theta: Vector, information: Matrix, lower: Vector, upper: Vector
) -> Matrix:
    """Return the second derivatives of -2 log L where its expected information is known.

    Parameters
    ----------
    cost : callable
    theta : ndarray, shape (n_par,)
    information : ndarray, shape (n_par, n_par)
        Expected; half the second derivatives to be found, about.
    lower, upper : ndarray, shape (n_par,)
        Probes stay inside: beside a bound the centre is moved inward, in a narrow box the steps are shorter.

    Returns
    -------
    ndarray, shape (n_par, n_par)
        Twice the expected information where a probe failed or directions carry no information.

    Notes
    -----
    With information = B'B the coordinates psi = B (theta' - theta) have the expected information one. Central
    differences with the step h = 0.03 in psi::

        d2F/dpsi_j^2       = (F(+j) - 2 F + F(-j)) / h^2
        d2F/dpsi_j dpsi_k  = (F(+j+k) + F(-j-k) - F(+j) - F(-j) - F(+k) - F(-k) + 2 F) / (2 h^2)
    """
    from fmepy.errors import SimulationError

    information = np.asarray(information, dtype=float)
    expected = 2 * information
    if not (np.diag(information) > 0).all() or not np.isfinite(information).all():
        return expected
    size = 1 / np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information * np.outer(size, size))
    if values[0] <= _SINGULAR**2 * values[-1]:
        return expected
    back = size[:, None] * vectors / np.sqrt(values)  # theta - theta0 = back psi
    forth = (vectors * np.sqrt(values)).T / size
    n, h = theta.size, _WHITE_STEP
    reach = 2 * h * np.abs(back).max(axis=1)
    h *= min(1.0, float(np.min(0.5 * (upper - lower) / reach)))
    steps, reach = h * back, 2 * h * np.abs(back).max(axis=1)
    theta = np.clip(theta, lower + reach, upper - reach)

    def at(change: Vector) -> float:
        return cost(np.clip(theta + change, lower, upper))  # rounding may take a probe an ulp past a bound

    try:
        centre = cost(theta)
        single = np.array([[at(sign * steps[:, j]) for sign in (1, -1)] for j in range(n)])
        H = np.diag(single.sum(axis=1) - 2 * centre)
        for j in range(n):
            for k in range(j):
                both = steps[:, j] + steps[:, k]
                mixed = at(both) + at(-both) - single[j].sum() - single[k].sum() + 2 * centre
                H[j, k] = H[k, j] = 0.5 * mixed
    except SimulationError:
        return expected
    H = forth.T @ (H / h**2) @ forth
    return np.asarray(0.5 * (H + H.T)) if np.isfinite(H).all() else expected


def _centre(theta: Vector, h: Vector, lower: Vector, upper: Vector) -> Vector:
    return np.asarray(np.clip(theta, lower + h, upper - h))


def _along(cost: Callable[[Vector], float], theta: Vector, h: Vector, j: int) -> float:
    """Return the mean rise of the cost one step to either side."""
    e = np.zeros(theta.size)
    e[j] = h[j]
    with np.errstate(invalid="ignore"):
        return float(0.5 * (cost(theta + e) + cost(theta - e)) - cost(theta))


def _mixed(cost: Callable[[Vector], float], theta: Vector, h: Vector, j: int, k: int) -> float:
    a, b = np.zeros(theta.size), np.zeros(theta.size)
    a[j], b[k] = h[j], h[k]
    with np.errstate(invalid="ignore"):
        total = cost(theta + a + b) - cost(theta + a - b) - cost(theta - a + b) + cost(theta - a - b)
    return float(total / (4 * h[j] * h[k]))
