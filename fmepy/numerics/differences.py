"""Differences inside bounds that fit the noise of a function: how derivatives are taken where nobody gives them.

**Inside the bounds.** No function is evaluated outside its box. Where a step to either side fits, differences are
central (or one-sided, if that is enough); at a bound, or beside a probe that failed, they go to the other side, of
second order by a third point where central ones were wanted. A parameter without room has the derivative zero.

**The step fits the noise of the function.** The noise of a computed function (an ODE solver's tolerance, say) is read
off a table of differences of seven evaluations along one line (Hamming; Moré and Wild 2011)::

    eps_k^2 = (k!)^2 / (2k)!  mean_i (Delta^k f_i)^2,     eps = median over k = 4, 5, 6

for a smooth function high differences vanish, so what is left is noise. But a table too wide for the function, such as
a peak 4 wide at 20,000, sees its shape as noise. The first table reaches 1.2 % of the parameters; it is narrowed
tenfold until what it finds is negligible, or settles: noise stays, and what belongs to the shape falls. An adaptive
solver is smooth in patches: its noise shows only in a table that is wider than they are. That is why a first table
whose eps_4, eps_5, eps_6 agree, and which is small beside what the function changes by, is believed, and why the noise
is measured once more where a search ends; the larger one counts, since too large a step costs little accuracy and too
small a one all of it. With ``e`` = eps relative to the response of f to a change of the parameters by their size:

    e < 1e-13   "noise free": forward differences, step max(1.5e-8, 2 e^(1/2)) of the parameter's size
    else        central differences, step 0.3 e^(1/3) of the parameter's size, at most 1e-2

The cube root balances rounding against curvature (noise / step against step^2); the factor 0.3 leans to the small side,
since fitted logarithms vary over less than their size. Where the table shows that f bends over much less than a
parameter's size, the step is what its second or third differences, d2 and d3, allow, if that is smaller::

    forward  2 (eps / d2)^(1/2)        central  (3 eps / d3)^(1/3)

References
----------
Moré, J. J. and Wild, S. M. (2011). Estimating computational noise. SIAM J. Sci. Comput. 33, 1292-1314.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any

import numpy as np

from fmepy.types import Matrix, Vector

NOISE_FREE = 1e-13
_FORWARD_STEP = 1.5e-8  # about the square root of the machine epsilon
_SPACINGS = (2e-3, 2e-4, 2e-5, 2e-6, 2e-7, 2e-8, 2e-9, 2e-10)
"""Of tables, relative; the first leaves the patch in which an adaptive solver is smooth."""
_SETTLED = 10.0  # what belongs to the shape of f falls by more than this when the table is narrowed tenfold
_BELIEVED = 1e-4  # noise relative to what f changes by in a table, above which a narrower one has to confirm it,
_SETTLED_SHARE = 3e-3  # and above which it may well be the shape of f, seen from too far,
_ALL_NOISE = 0.06  # and from which on there is nothing but noise, or waves much shorter than the table
_ROWS = 7  # of a table
_UNKNOWN = 1e-6  # where no table can be made: a solver with default tolerances


def magnitudes(theta: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return the size of every parameter, positive: its absolute value; for a start at 0 a tenth of its box, else 1.

    Examples
    --------
    >>> magnitudes(np.array([-3.0, 0.0, 0.0]), np.full(3, -np.inf), np.array([np.inf, np.inf, 5.0]))
    array([3., 1., 1.])
    """
    size = np.abs(theta)
    box = 0.1 * (upper - lower)
    return np.where(size > 0, size, np.where(np.isfinite(box) & (box > 0), box, 1.0))


def replaced(theta: Vector, places: Any, values: Any) -> Vector:
    """Return theta with some entries replaced."""
    out = theta.copy()
    out[places] = values
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Differences:
    """How derivatives are taken by differences.

    Attributes
    ----------
    noise : float
        Noise of the function, relative to its response to the parameters (dimensionless).
    step : float
        Step of first derivatives, relative to a parameter's size.
    central : bool
        Central differences; else forward ones.
    absolute : float
        The noise itself, in the unit of the function.
    """

    noise: float
    step: float
    central: bool
    absolute: float = 0.0

    @classmethod
    def for_noise(cls, noise: float, absolute: float = 0.0, longest: tuple[float, float] = (1.0, 1.0)) -> Differences:
        """Return the differences that fit a relative noise; `longest`: the steps that the bend of f allows."""
        if noise < NOISE_FREE:
            return cls(noise, min(max(_FORWARD_STEP, 2 * noise**0.5), longest[0]), False, absolute)
        return cls(noise, float(min(1e-2, 0.3 * noise ** (1 / 3), longest[1])), True, absolute)


# --- derivatives inside bounds


def steps_beside(theta: Vector, relative: float) -> Vector:
    """Return steps relative to the parameters, absolute where they are 0."""
    return np.asarray(relative * np.where(theta != 0, np.abs(theta), 1.0))


def roomy_steps(steps: Vector, lower: Vector, upper: Vector) -> Vector:
    """Return steps of at most a quarter of the box, so that on one side at least two of them fit."""
    return np.minimum(steps, 0.25 * (upper - lower))


def derivatives(
    evaluate: Callable[[list[Vector]], Sequence[Any]], theta: Vector, steps: Vector, lower: Vector, upper: Vector, *,
    central: bool, base: Any = None,
) -> list[Any]:  # fmt: skip
    """Return the derivatives of a function to every parameter, None where the probes on both sides failed.

    Parameters
    ----------
    evaluate : callable
        ``evaluate(points)``: the function at each of them, None where it failed; it may run them at once. Theta itself
        is asked for only where one-sided differences need it.
    theta, lower, upper : ndarray, shape (n_par,)
        No point lies outside these bounds.
    steps : ndarray, shape (n_par,)
        At least zero, see `roomy_steps`. Zero: the parameter does not move, and its derivative is zero.
    central : bool
        Second order: central differences, one-sided ones with a third point at a bound or beside a failure.
    base : optional
        The function at theta, if it is known.

    Examples
    --------
    >>> def square(points):
    ...     return [p**2 for p in points]
    >>> box = np.array([0.0]), np.array([1.0])
    >>> derivatives(square, np.array([1.0]), np.array([1e-3]), *box, central=True)[0].round(6)
    array([2.])
    """
    at, low, high, wide = theta.tolist(), lower.tolist(), upper.tolist(), steps.tolist()  # floats: arithmetic is by one
    sides: list[dict[float, tuple[float, Any]]] = [{} for _ in at]  # by offset: step taken, value
    failed: set[tuple[int, float]] = set()

    def probe(wanted: list[tuple[int, float]]) -> None:
        places, points = [], []
        for j, offset in wanted:
            there = at[j] + offset
            if low[j] <= there <= high[j] and there != at[j] and (j, offset) not in failed:
                point = theta.copy()
                point[j] = there
                places.append((j, offset, there - at[j]))
                points.append(point)
        for (j, offset, step), value in zip(places, evaluate(points) if points else (), strict=True):
            if value is None:
                failed.add((j, offset))
            else:
                sides[j][offset] = (step, np.asarray(value, dtype=float))

    if base is None and not central:
        base = evaluate([theta])[0]
    first: list[tuple[int, float]] = []
    for j, h in enumerate(wide):
        ahead, behind = at[j] + h <= high[j], at[j] - h >= low[j]
        if central and ahead and behind:
            first += [(j, h), (j, -h)]
        else:
            side = h if ahead else -h
            first += [(j, side), (j, 2 * side)] if central else [(j, side)]
    probe(first)
    second: list[tuple[int, float]] = []
    for j, (h, found) in enumerate(zip(wide, sides, strict=True)):
        if not (h in found or -h in found):
            second += [(j, h), (j, -h)]
        elif central and len(found) == 1:
            second.append((j, 2 * next(iter(found))))
    if second:
        probe(second)
    if base is None and any(not (h in found and -h in found) for h, found in zip(wide, sides, strict=True)):
        base = evaluate([theta])[0]
    return [_slope(found, h, base) for h, found in zip(wide, sides, strict=True)]


def _slope(found: dict[float, tuple[float, Any]], h: float, base: Any) -> Any:
    """Return the derivative from values beside theta: central, of three points on one side, or of two."""
    if not h > 0:
        return None if base is None else np.zeros_like(np.asarray(base, dtype=float))
    if h in found and -h in found:
        (up, above), (down, below) = found[h], found[-h]
        return (above - below) / (up - down)
    near = h if h in found else -h
    if near not in found or base is None:
        return None
    step, value = found[near]
    if 2 * near not in found:
        return (value - base) / step
    further = found[2 * near][1]
    return (4 * value - further - 3 * np.asarray(base, dtype=float)) / (2 * step)


def central_differences(
    function: Callable[[Vector], Any], theta: Vector, steps: Vector, box: tuple[Vector, Vector] | None = None,
    base: Any = None,
) -> Any:  # fmt: skip
    """Return d function / d theta, shape ``(*shape of its value, n_par)``, by central differences.

    Parameters
    ----------
    function : callable
        It raises where it fails; so does this.
    theta : ndarray, shape (n_par,)
    steps : ndarray, shape (n_par,)
        Cut to a quarter of the box; zero for a parameter that does not move.
    box : (lower, upper), optional
        No point lies outside; there a third one on the other side serves.
    base : optional
        The function at theta, if it is known.

    Examples
    --------
    >>> central_differences(lambda p: np.array([p[0] * p[1], p[0]]), np.array([2.0, 3.0]), np.full(2, 1e-5)).round(6)
    array([[3., 2.],
           [1., 0.]])
    """
    if not theta.size:
        return np.empty((*np.shape(function(theta) if base is None else base), 0))
    lower, upper = (np.full(theta.size, -np.inf), np.full(theta.size, np.inf)) if box is None else box
    steps = roomy_steps(steps, lower, upper)
    slopes = derivatives(
        lambda points: [function(p) for p in points], theta, steps, lower, upper, central=True, base=base
    )
    return np.stack(slopes, axis=-1)


def differences_of_rows(
    function: Callable[[Vector], tuple[Any, Any]], theta: Vector, steps: Vector,
    box: tuple[Vector, Vector] | None = None,
) -> Any:  # fmt: skip
    """Return `central_differences` of a function whose rows jump: of a row that does on one side, those of the other.

    Parameters
    ----------
    function : callable
        Returns its value, and of each row of it, shape (n_row, ...), marks that differ where the row has jumped.
    theta, steps, box
        As of `central_differences`.

    Examples
    --------
    >>> def falls(p):
    ...     return 10 * p + 100 * (p > 2), p > 2
    >>> differences_of_rows(falls, np.array([2.0]), np.full(1, 1e-5)).round(6)
    array([[10.]])
    """
    seen: list[tuple[Vector, Any]] = []

    def value(p: Vector) -> Any:
        out, marks = function(p)
        seen.append((p, marks))
        return out

    base, slopes = function(theta)[1], central_differences(value, theta, steps, box)
    for j in range(theta.size):
        jumped = {side: np.zeros(len(base), dtype=bool) for side in (1, -1)}
        for p, marks in seen:
            if p[j] != theta[j]:
                jumped[1 if p[j] > theta[j] else -1] |= (marks != base).reshape(len(base), -1).any(axis=1)
        for side in (1, -1):
            rows, alone = jumped[side] & ~jumped[-side], np.where(np.arange(theta.size) == j, steps, 0.0)
            if rows.any():
                lower, upper = (b.copy() for b in box or (np.full(theta.size, -np.inf), np.full(theta.size, np.inf)))
                (upper if side > 0 else lower)[j] = theta[j]
                own = central_differences(lambda p: function(p)[0], theta, alone, (lower, upper))
                slopes[rows, ..., j] = own[rows, ..., j]
    return slopes


# --- the noise of a function


def measured_noise(
    evaluate: Callable[[Vector], Any], theta: Vector, lower: Vector, upper: Vector, scalar: bool
) -> Differences:
    """Return the differences that fit the noise of a function around theta, from tables inside the bounds.

    Parameters
    ----------
    evaluate : callable
        Returns an array, or None where it fails.
    scalar : bool
        True for one number such as -2 log L: its noise is relative to its size also where it hardly changes.
    """
    size = magnitudes(theta, lower, upper) * (1.0 - 0.4 * np.arange(theta.size) / max(theta.size - 1, 1))  # askew
    room = {1.0: upper - theta, -1.0: theta - lower}
    side = np.where(room[1.0] >= room[-1.0], 1.0, -1.0)
    found: list[_Table] = []
    for spacing in _SPACINGS:
        reach = np.where(side > 0, room[1.0], room[-1.0]) / 8
        step = side * np.minimum(spacing * size, reach)
        rows = [evaluate(point) for point in theta + np.arange(_ROWS)[:, None] * step]
        if any(row is None for row in rows):
            side = -side  # the other side may be defined, or a narrower table
            continue
        new = _Table.of(np.array(rows, dtype=float).reshape(_ROWS, -1), spacing, scalar)
        if not new.change > 0 and not found:
            return Differences.for_noise(0.0)
        if new.noise < NOISE_FREE or (new.alike and new.share <= _BELIEVED):
            return new.differences
        settled = bool(found) and new.absolute > found[-1].absolute / _SETTLED
        if settled and min(new.share, found[-1].share) <= _SETTLED_SHARE:
            return max(found[-1], new, key=lambda table: table.noise).differences
        found.append(new)
        if new.share >= _ALL_NOISE and new.absolute <= 1e-3 * new.size:
            break  # a function that is flat here: narrower tables see less of it still
    if not found:
        return Differences.for_noise(_UNKNOWN)
    return min(found, key=lambda table: table.share).differences


@dataclass(frozen=True, slots=True, eq=False)
class _Table:
    """What one table of differences shows: see the module's text."""

    absolute: float
    noise: float
    change: float
    size: float
    alike: bool
    longest: tuple[float, float]

    @classmethod
    def of(cls, values: Matrix, spacing: float, scalar: bool) -> _Table:
        squares = _mean_squares(values)
        change = squares[1] ** 0.5
        response = max(change / spacing, float(np.abs(values[0]).max()) if scalar else 0.0)
        noises = _noises(squares)
        noise = noises[len(noises) // 2]
        relative = noise / response if response > 0 else 0.0
        error = max(noise, 1e-16 * response, 1e-16 * squares[0] ** 0.5)  # at least that of rounding
        longest = []
        for k, of_noise in ((2, 6.0), (3, 20.0)):  # Delta^k holds so many times the square of the noise
            bend = squares[k] ** 0.5 / spacing**k if squares[k] > 10 * of_noise * noise**2 else 0.0
            longest.append((k * error / bend) ** (1 / k) * (2**0.5 if k == 2 else 1.0) if bend > 0 else 1.0)
        alike = noises[-1] <= 10 * noises[0]
        return cls(noise, relative, change, squares[0] ** 0.5, alike, (longest[0], longest[1]))

    @property
    def share(self) -> float:
        """The noise relative to what the function changes by from one end of the table to the other."""
        return self.absolute / (6 * self.change) if self.change > 0 else np.inf

    @property
    def differences(self) -> Differences:
        return Differences.for_noise(self.noise, self.absolute, self.longest)


def _differencing(n: int) -> Matrix:
    """Return the matrix that takes a table of n rows to its differences of the orders 1, 2, ..., one below another."""
    orders: list[Matrix] = [np.diff(np.eye(n), axis=0)]
    while len(orders[-1]) > 1:
        orders.append(np.diff(orders[-1], axis=0))
    return np.concatenate(orders)


_DIFFERENCING = _differencing(_ROWS)
_COUNTS = np.arange(_ROWS - 1, 0, -1)  # differences of the orders 1 to 6
_STARTS = np.cumsum(_COUNTS) - _COUNTS
_OF_NOISE = [factorial(k) ** 2 / factorial(2 * k) for k in range(_ROWS)]


def _mean_squares(values: Matrix) -> list[float]:
    """Return the mean squares of a table, shape (7, n), and of its differences of the orders 1 to 6."""
    differences = _DIFFERENCING @ (values - values[0])  # the level goes first: its rounding is no noise
    by_order = np.add.reduceat((differences**2).sum(axis=1), _STARTS) / (_COUNTS * values.shape[1])
    return [float(np.vdot(values, values)) / values.size, *by_order.tolist()]


def _noises(squares: list[float]) -> list[float]:
    """Return eps_4, eps_5 and eps_6 in rising order, from the mean squares of the differences."""
    return sorted((_OF_NOISE[k] * squares[k]) ** 0.5 for k in range(4, _ROWS))
