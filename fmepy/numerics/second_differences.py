"""Second derivatives by differences: of a noisy cost, and of a likelihood whose expected information is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.numerics.covariance import SINGULAR
from fmepy.types import BoolVector, Matrix, Vector

_WHITE_STEP, _LEAST_STEP = 0.03, 1e-4  # in standard errors
_OF_NOISE = 4.0  # times its square root is what noise of the cost puts into curvatures, with parameters of one size
_MOST_NOISE = 1e-3
_OF_SIZE = 0.02  # of a parameter's size: a longer step may lead to where the cost is another


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
    fourth derivatives both weigh little, whatever the parameter's size. What is left, about ``sqrt(noise)``, may not
    pass for the curvature of a combination of parameters that the cost does not tell: below it, it is zero. Off the
    diagonal::

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
            rise = abs(_along(cost, np.clip(theta, lower + h, upper - h), np.diag(h)[j]))
            if not np.isfinite(rise) or 0.1 * target <= rise <= 10 * target:
                break
            factor = np.sqrt(target / rise) if rise > 0 else 10.0
            h[j] = min(h[j] * float(np.clip(factor, 1e-4, 10.0)), room[j], 0.1 * scale[j])
    centre, steps = np.clip(theta, lower + h, upper - h), np.diag(h)
    H = np.empty((n, n))
    for j in range(n):
        H[j, j] = 2 * _along(cost, centre, steps[j]) / h[j] ** 2
        for k in range(j):
            H[j, k] = H[k, j] = _mixed(cost, centre, steps[j], steps[k]) / (4 * h[j] * h[k])
    return _without_noise(H, min(_OF_NOISE * np.sqrt(noise), _MOST_NOISE))


def whitened_second_differences(
    cost: Callable[[Vector], float], theta: Vector, information: Matrix, lower: Vector, upper: Vector,
    gradient: Callable[[Vector], Vector] | None = None, size: Vector | float = np.inf,
) -> Matrix:  # fmt: skip
    """Return the second derivatives of -2 log L where its expected information is known.

    Parameters
    ----------
    cost : callable
    theta : ndarray, shape (n_par,)
    information : ndarray, shape (n_par, n_par)
        Expected; half the second derivatives to be found, about.
    lower, upper : ndarray, shape (n_par,)
        Probes stay inside: beside a bound the centre is moved inward, in a narrow box the steps are shorter.
    gradient : callable, optional
        Of the cost, where it is exact: 2 n of it serve instead of n^2 + n values, and to more digits.
    size : ndarray, shape (n_par,)
        Of the parameters. With a gradient no step is longer than a fiftieth of it: where data hardly tell a parameter
        its standard error is many times its size, and the cost so far off says nothing of its bend here.

    Returns
    -------
    ndarray, shape (n_par, n_par)
        Twice the expected information where a probe failed or directions carry no information.

    Notes
    -----
    With information = B'B the coordinates psi = B (theta' - theta) have the expected information one. Central
    differences with steps h of 0.03 in psi, or shorter by `size`::

        d2F/dpsi_j^2       = (F(+j) - 2 F + F(-j)) / h_j^2
        d2F/dpsi_j dpsi_k  = (F(+j+k) + F(-j-k) - F(+j) - F(-j) - F(+k) - F(-k) + 2 F) / (2 h_j h_k)

    or, with the gradient g of F to psi, ``dg/dpsi_j = (g(+j) - g(-j)) / (2 h_j)``.
    """
    information = np.asarray(information, dtype=float)
    expected = 2 * information
    if not (np.diag(information) > 0).all() or not np.isfinite(information).all():
        return expected
    error = 1 / np.sqrt(np.diag(information))
    values, vectors = np.linalg.eigh(information * np.outer(error, error))
    if values[0] <= SINGULAR**2 * values[-1]:
        return expected
    back = error[:, None] * vectors / np.sqrt(values)  # theta - theta0 = back psi
    forth = (vectors * np.sqrt(values)).T / error
    n, h = theta.size, np.full(theta.size, _WHITE_STEP)
    if gradient is not None:
        with np.errstate(divide="ignore"):
            h = np.clip(_OF_SIZE * (np.reshape(size, (-1, 1)) / np.abs(back)).min(axis=0), _LEAST_STEP, _WHITE_STEP)
    reach = 2 * np.abs(h * back).max(axis=1)
    h = h * min(1.0, float(np.min(0.5 * (upper - lower) / reach)))
    steps, reach = h * back, 2 * np.abs(h * back).max(axis=1)
    theta = np.clip(theta, lower + reach, upper - reach)

    def at(change: Vector, of: Callable[[Vector], Any] = cost) -> Any:
        return of(np.clip(theta + change, lower, upper))  # rounding may take a probe an ulp past a bound

    def by_values() -> Matrix:
        centre = cost(theta)
        single = np.array([[at(sign * steps[:, j]) for sign in (1, -1)] for j in range(n)])
        H = np.diag(single.sum(axis=1) - 2 * centre)
        for j in range(n):
            for k in range(j):
                both = steps[:, j] + steps[:, k]
                mixed = at(both) + at(-both) - single[j].sum() - single[k].sum() + 2 * centre
                H[j, k] = H[k, j] = 0.5 * mixed
        return np.asarray(H)

    try:
        if gradient is None:
            H = by_values()
        else:
            H = 0.5 * steps.T @ np.column_stack([at(s, gradient) - at(-s, gradient) for s in steps.T])
    except SimulationError:
        return expected
    H = forth.T @ (H / np.outer(h, h)) @ forth
    return np.asarray(0.5 * (H + H.T)) if np.isfinite(H).all() else expected


def sparse_second_differences(
    gradient: Callable[[Vector], Vector], theta: Vector, information: Matrix, lower: Vector, upper: Vector,
    size: Vector | float = np.inf,
) -> Matrix:  # fmt: skip
    """Return the second derivatives of -2 log L of many parameters, most of which do not meet in any datum.

    Two of them meet where the expected information is not zero. Those that meet many others are moved one by one; of
    the others all that meet no other in common are moved together, as each shows in its own part of the gradient
    (Coleman, T. F. and More, J. J. (1984). Mathematical Programming 28, 243-270). Arguments, and what is returned where
    a probe fails, as for `whitened_second_differences`; steps are 0.03 standard errors, the others held,
    or shorter by `size`.
    """
    expected, diagonal = 2 * information, np.diag(information)
    if not (diagonal > 0).all() or not np.isfinite(information).all():
        return expected
    errors = 1 / np.sqrt(diagonal)
    h = np.minimum(np.clip(_OF_SIZE * size, _LEAST_STEP * errors, _WHITE_STEP * errors), 0.25 * (upper - lower))
    theta = np.clip(theta, lower + h, upper - h)
    meet = information != 0
    shared = np.count_nonzero(meet, axis=1) > max(10.0, 0.1 * theta.size)
    groups = [[int(j)] for j in np.flatnonzero(shared)]
    seen: list[BoolVector] = []  # what the members of a group meet, of those that meet few
    for j in np.flatnonzero(~shared).tolist():
        own = meet[j] & ~shared
        k = next((k for k, of in enumerate(seen) if not (of & own).any()), len(seen))
        if k == len(seen):
            seen.append(np.zeros(theta.size, dtype=bool))
            groups.append([])
        seen[k] |= own
        groups[int(shared.sum()) + k].append(j)
    H = np.zeros_like(information)
    try:
        for group in groups:
            step = np.zeros(theta.size)
            step[group] = h[group]
            change = gradient(theta + step) - gradient(theta - step)
            for j in group:
                own = np.ones(theta.size, dtype=bool) if shared[j] else meet[j] & ~shared
                H[own, j] = change[own] / (2 * h[j])
    except SimulationError:
        return expected
    H[np.ix_(shared, ~shared)] = H[np.ix_(~shared, shared)].T
    return np.asarray(0.5 * (H + H.T)) if np.isfinite(H).all() else expected


def _without_noise(H: Matrix, noise: float) -> Matrix:
    """Return second derivatives whose curvatures below their noise are zero, with parameters brought to one size."""
    root = np.sqrt(np.abs(np.diag(H)))
    if not (np.isfinite(H).all() and (root > 0).all()):
        return H
    values, vectors = np.linalg.eigh(H / np.outer(root, root))
    lost = np.abs(values) < noise * np.abs(values).max()
    return (vectors * np.where(lost, 0.0, values)) @ vectors.T * np.outer(root, root) if lost.any() else H


def _along(cost: Callable[[Vector], float], theta: Vector, step: Vector) -> float:
    """Return the mean rise of the cost one step to either side."""
    with np.errstate(invalid="ignore"):
        return float(0.5 * (cost(theta + step) + cost(theta - step)) - cost(theta))


def _mixed(cost: Callable[[Vector], float], theta: Vector, a: Vector, b: Vector) -> float:
    """Return what two steps together change beyond each by itself, four times."""
    with np.errstate(invalid="ignore"):
        return float(cost(theta + a + b) - cost(theta + a - b) - cost(theta - a + b) + cost(theta - a - b))
