"""Interpolants in a function that is traced: np.interp, and the objects of scipy.interpolate.

An interpolant is a polynomial P_i between each two of its breaks x_i. Of the time, or of the time in a cycle as the day
of the year, it becomes a series, as a forcing is one, so that runs stop where the polynomial changes. Of anything else
it is a sum over the pieces, which holds where neighbours meet, with r_i = min(max(x - x_i, 0), x_{i+1} - x_i)::

    f(x) = f(x_0) + sum_i (P_i(r_i) - P_i(0))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import comb
from typing import Any, NamedTuple

import numpy as np

from fmepy.errors import TracingError
from fmepy.types import Matrix, Vector

MOST_PIECES = 100
"""Of an interpolant of a single number other than the time: every rate computes all of them, and runs stop between."""
MOST_POINTS = 50_000
"""Of an interpolant of the time: runs stop at each."""
_INSIDE, _DEGREE = np.array([0.1, 0.4, 0.6, 0.9]), 3
"""Where pieces are looked at, as parts of their length, and the highest degree that so many values determine."""
_ROUNDING, _JUMP = 1e-9, 1e-7


class Clock(NamedTuple):
    """A number that goes with the time: a + b t, or a + b ((c + d t) modulo the period); b, d > 0."""

    a: float
    b: float
    period: float = 0.0
    c: float = 0.0
    d: float = 1.0


class Series(NamedTuple):
    """A series that a function looks up by the time.

    Attributes
    ----------
    times, values : ndarray
        A "linear" one jumps where a time stands twice.
    method : {"linear", "constant"}
    period : float
        Of a series that is repeated: the last of the times less the first; 0: it is held constant outside.
    """

    times: Vector
    values: Vector
    method: str
    period: float = 0.0

    def cycle_offset(self, t: Any) -> Any:
        """Return the distance from the first cycle to that of t; 0 of a series without a period."""
        if not self.period:
            return 0.0
        return self.period * np.floor((t - self.times[0]) / self.period + 1e-13)

    def at(self, t: Any) -> Vector:
        """Return its values at times; at a jump, the value after it."""
        t = t - self.cycle_offset(t)
        if self.method == "linear":
            return np.asarray(np.interp(t, self.times, self.values))
        near = 1e-13 * np.maximum(np.abs(t), self.times[-1] - self.times[0])  # 0.3 is not before a jump at 3 * 0.1
        place = np.searchsorted(self.times, t + near, side="right") - 1
        return np.asarray(self.values[np.clip(place, 0, len(self.values) - 1)])


class SeriesOfTime:
    """The series of the time in a function that is traced.

    Parameters
    ----------
    clock : callable
        ``clock(x)``: a symbol as a `Clock`; None where it is none.
    entry : callable
        ``entry(k)``: the symbol that stands for the k-th series.
    most_pieces : float
        Of interpolants of something other than the time.
    """

    def __init__(self, clock: Callable[[Any], Clock | None], entry: Callable[[int], Any], most_pieces: float) -> None:
        self.clock, self._entry, self.most_pieces = clock, entry, most_pieces
        self.found: list[Series] = []
        self._places: dict[tuple[bytes, bytes, str, float], int] = {}

    def symbol(self, series: Series) -> Any:
        """Return the symbol of a series, the same for equal ones."""
        if len(series.times) > MOST_POINTS:
            raise TracingError(
                f"an interpolant of {len(series.times)} points, at which runs would stop, is more than {MOST_POINTS}; "
                "thin it out, or give it as a forcing, at whose points they stop however many there are"
            )
        key = series.times.tobytes(), series.values.tobytes(), series.method, series.period
        if key not in self._places:
            self._places[key] = len(self.found)
            self.found.append(series)
        return self._entry(self._places[key])


_CURRENT: ContextVar[SeriesOfTime | None] = ContextVar("the series of the function that is traced", default=None)


@contextmanager
def series_of_time(
    clock: Callable[[Any], Clock | None], entry: Callable[[int], Any], most_pieces: float = MOST_PIECES
) -> Iterator[list[Series]]:
    """Let interpolants of the time become series meanwhile; yields the list of them, see `SeriesOfTime`."""
    series = SeriesOfTime(clock, entry, most_pieces)
    token = _CURRENT.set(series)
    try:
        yield series.found
    finally:
        _CURRENT.reset(token)


@dataclass(frozen=True, slots=True, eq=False)
class Interpolant:
    """Polynomials between breaks.

    Attributes
    ----------
    at : ndarray, shape (n + 1,)
        The breaks, increasing.
    values : ndarray, shape (n + 1,)
        At the breaks.
    coefficients : ndarray, shape (degree + 1, n)
        Of powers of x - at[i], the lowest first.
    left, right : float or None
        The value outside, NaN where there is none; None: the first and the last polynomial continue.
    """

    at: Vector
    values: Vector
    coefficients: Matrix
    left: float | None
    right: float | None

    @property
    def ends(self) -> Vector:
        """What the pieces end at: where they meet the next one, its value."""
        ends, values = _polynomial(self.coefficients, np.diff(self.at)), self.values[1:]
        return np.where(np.abs(ends - values) <= _JUMP * np.nanmax(np.abs(self.values)), values, ends)

    def __call__(self, x: Any) -> Any:
        """Return its value at a symbol."""
        series = _CURRENT.get()
        clock = None if series is None else series.clock(x)
        ends: tuple[Any, Any] = self.values[0], self.values[-1]
        if series is None or clock is None:
            value = self._of_pieces(x, MOST_PIECES if series is None else series.most_pieces)
        elif clock.period:
            return self._over(clock.a, clock.a + clock.b * clock.period)._of_time(x, series, clock)[0]
        else:
            value, ends = self._of_time(x, series, clock)
        for outside, known, is_out in zip(
            (self.left, self.right), ends, (x < self.at[0], x > self.at[-1]), strict=True
        ):
            if outside is not None and outside != known:
                value = np.where(is_out, outside, value)
        return value

    def _of_time(self, x: Any, series: SeriesOfTime, clock: Clock) -> tuple[Any, tuple[Any, Any]]:
        """Return its value, and what this is outside; None: the polynomials continue."""
        times, c, period = (self.at - clock.a) / clock.b, self.coefficients, clock.period / clock.d
        if period:
            times = (times - clock.c) / clock.d
        is_held = self.left is not None and self.right is not None
        if len(c) == 1:
            levels = np.append(c[0], self.values[-1])
            return series.symbol(Series(times, levels, "constant", period)), (levels[0], levels[-1])
        if len(c) == 2 and is_held:
            lines = _with_jumps(times, c[0], self.ends, period)
            return series.symbol(lines), (lines.values[0], lines.values[-1])
        steps = [series.symbol(Series(times, np.append(each, each[-1]), "constant", period)) for each in c]
        if period:
            rest = series.symbol(_with_jumps(times, np.zeros(len(times) - 1), np.diff(self.at), period))
        else:
            rest = x - series.symbol(Series(times[:-1], self.at[:-1], "constant"))
        return _polynomial(steps, rest), (None, None)

    def _over(self, low: float, high: float) -> Interpolant:
        """Return it between two places, with pieces of their own where it is constant outside its breaks."""
        at = np.concatenate([[low], self.at[(self.at > low) & (self.at < high)], [high]])
        begins, degrees = at[:-1], range(len(self.coefficients))
        k = np.clip(np.searchsorted(self.at, begins, side="right") - 1, 0, len(self.at) - 2)
        d, own = begins - self.at[k], self.coefficients[:, k]
        c = np.array([sum(comb(i, j) * d ** (i - j) * own[i] for i in degrees[j:]) for j in degrees])
        for outside, is_out in ((self.left, begins < self.at[0]), (self.right, begins >= self.at[-1])):
            if outside is not None:
                c[:, is_out] = 0.0
                c[0, is_out] = outside
        last = float(_polynomial(c[:, -1], at[-1] - at[-2]))
        return Interpolant(at, np.append(c[0], last), c, c[0, 0], last)

    def _of_pieces(self, x: Any, most: float) -> Any:
        c, width = self.coefficients, np.diff(self.at)
        if not np.array_equal(self.ends, self.values[1:]):
            raise TracingError("an interpolant with jumps has a form of the time alone")
        if len(width) > most:
            raise TracingError(f"an interpolant of more than {most} pieces has a form of the time alone")
        least, longest = np.zeros(len(width)), width.copy()
        if self.left is None:
            least[0] = -np.inf
        if self.right is None:
            longest[-1] = np.inf
        r = (x[..., None] if np.ndim(x) else x) - self.at[:-1]
        r = np.minimum(np.maximum(r, least), longest)
        return self.values[0] + np.sum(r * _polynomial(c[1:], r), axis=-1)


def _with_jumps(times: Vector, begins: Vector, ends: Vector, period: float) -> Series:
    """Return a series of straight lines by what each begins and ends at; where it jumps two knots stand."""
    knots, values = np.repeat(times, 2)[1:-1], np.column_stack([begins, ends]).ravel()
    jumps = ~(np.abs(np.diff(values)) <= _JUMP * np.nanmax(np.abs(values)))
    is_needed = np.append((np.diff(knots) > 0) | jumps, True)
    return Series(knots[is_needed], values[is_needed], "linear", period)


def _polynomial(coefficients: Any, x: Any) -> Any:
    """Return a polynomial by Horner's rule."""
    *others, value = coefficients
    for c in reversed(others):
        value = c + x * value
    return value


def linear(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Return ``np.interp`` with a symbol as x, or among the values fp; its arguments."""
    if is_symbol(np.asarray(xp)) or any(map(is_symbol, (left, right, period))):
        raise TracingError("np.interp has a form between constant points alone")
    at, values = np.array(xp, dtype=float), np.asarray(fp)
    if is_symbol(values):  # a sum of hats
        if left is not None or right is not None:
            raise TracingError("np.interp of values that are symbols has no form with left= and right=")
        return sum(f * linear(x, at, hat, period=period) for f, hat in zip(values, np.eye(len(at)), strict=True))
    if period is not None:
        order = np.argsort(at % period, kind="stable")
        at, values, x = (at % period)[order], values[order], in_cycle(x, 0.0, period)
        at = np.concatenate([at[-1:] - period, at, at[:1] + period])
        values = np.concatenate([values[-1:], values, values[:1]])
    if len(at) == 1:
        return values[0] + 0.0 * x
    width = np.diff(at)
    if (width < 0).any():
        raise TracingError("np.interp between points that do not increase has no symbolic form")
    begins, last = np.append(width > 0, False), len(at) - 1  # it jumps at a repeated point
    places = np.append(np.flatnonzero(begins), last)
    slopes = (np.diff(values) / np.where(width > 0, width, 1.0))[begins[:-1]]
    outside = (float(end if given is None else given) for end, given in ((values[0], left), (values[-1], right)))
    return Interpolant(at[places], values[places], np.array([values[begins], slopes]), *outside)(x)


def in_cycle(x: Any, low: float, period: float) -> Any:
    """Return a symbol less so many periods that it lies in [low, low + period)."""
    series = _CURRENT.get()
    clock = None if series is None else series.clock(x)
    if clock is not None and clock.period and low <= clock.a and clock.a + clock.b * clock.period <= low + period:
        return x  # it does so already
    return low + np.remainder(x - low, period)


def is_symbol(x: Any) -> bool:
    """Tell whether something is a symbol, or an array of them."""
    return x.dtype == object if isinstance(x, np.ndarray) else hasattr(x, "__array_ufunc__")


# --- those of scipy


def is_interpolant(value: Any) -> bool:
    """Tell whether something is an interpolant of scipy's."""
    return type(value).__module__.startswith("scipy.interpolate") and callable(value)


def for_symbols(interpolant: Any, kind: type[np.ndarray]) -> Callable[..., Any]:
    """Return an interpolant of scipy's as a function of numbers or symbols; of one that is not piecewise, as it is.

    Only its values are used, between its breaks and outside.
    """

    def function(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_symbol(x):
            return interpolant(x, *args, **kwargs)
        if args or kwargs:
            raise TracingError("an interpolant is called with further arguments")
        if _is_periodic(interpolant):
            at = _breaks(interpolant)
            x = in_cycle(x, at[0], at[-1] - at[0])
        components = _read(interpolant)
        if np.ndim(interpolant(components[0].at[0])) == 0:
            return components[0](x)
        return np.array([f(x) for f in components], dtype=object).view(kind)

    return function


def _is_periodic(interpolant: Any) -> bool:
    return bool(getattr(interpolant, "extrapolate", None) == "periodic")


def _breaks(interpolant: Any) -> Vector:
    """Return where the polynomials of an interpolant of scipy's meet."""
    if hasattr(interpolant, "get_knots"):
        return np.asarray(interpolant.get_knots(), dtype=float)
    if hasattr(interpolant, "t") and hasattr(interpolant, "k"):
        k, t = interpolant.k, np.asarray(interpolant.t, dtype=float)
        return np.unique(t[k : len(t) - k])
    at = np.asarray(getattr(interpolant, "x", ()), dtype=float)
    if at.ndim != 1 or len(at) < 2 or (np.diff(at) <= 0).any():
        raise TracingError(f"a {type(interpolant).__name__} has no symbolic form")
    return at


def _read(interpolant: Any) -> list[Interpolant]:
    """Return the components of an interpolant of scipy's."""
    at = _breaks(interpolant)
    width = np.diff(at)
    inside = np.array([_at(interpolant, at[:-1] + part * width) for part in (*_INSIDE, 0.25)])
    ends = _at(interpolant, at)
    if ends.ndim > 2:
        raise TracingError("an interpolant of matrices has no symbolic form")
    steps = () if _is_periodic(interpolant) else ((at[0], -width[0]), (at[-1], width[-1]))
    outside = [_outside(interpolant, end, step) for end, step in steps]
    columns = range(ends[0].size)
    return [
        _component(at, ends.reshape(len(at), -1)[:, j], inside.reshape(5, len(width), -1)[:, :, j],
                   [values.reshape(2, -1)[:, j] for values in outside])
        for j in columns
    ]  # fmt: skip


def _at(interpolant: Any, x: Vector) -> Any:
    """Return values of an interpolant, those of one place in a row."""
    values = np.array(interpolant(x), dtype=float)
    return values if np.array_equal(values[0], interpolant(x[0]), equal_nan=True) else np.moveaxis(values, -1, 0)


def _outside(interpolant: Any, end: float, step: float) -> Any:
    """Return the values half and a whole step outside, NaN where there are none."""
    try:
        return _at(interpolant, end + step * np.array([0.5, 1.0]))
    except ValueError:
        return np.full((2, np.size(interpolant(end))), np.nan)


def _component(at: Vector, values: Vector, inside: Matrix, outside: list[Vector]) -> Interpolant:
    """Return polynomials from their values inside the pieces, those at the breaks, and those outside, if any."""
    width, size = np.diff(at), np.abs(inside).max(initial=1e-300)
    powers = np.linalg.solve(np.vander(_INSIDE, increasing=True), inside[:-1])
    if not np.allclose(_polynomial(powers, 0.25), inside[-1], rtol=0, atol=_ROUNDING * size):
        raise TracingError("an interpolant is no polynomial of degree three or less between its points")
    degree = max((k for k in range(_DEGREE + 1) if np.abs(powers[k]).max() > _ROUNDING * size), default=0)
    c = powers[: degree + 1] / width ** np.arange(degree + 1)[:, None]
    ends: list[float | None] = []
    for i, step, found in zip((0, -1), (-0.5 * width[0], 1.5 * width[-1]), outside, strict=False):
        goes_on = np.allclose(_polynomial(c[:, i], step), found[0], rtol=0, atol=1e-6 * size)
        if not goes_on and not (found[0] == found[1] or np.isnan(found).all()):
            raise TracingError("an interpolant is neither constant outside its points nor goes on as within")
        ends.append(None if goes_on else float(found[0]))
    return Interpolant(at, values, c, *(ends or (None, None)))
