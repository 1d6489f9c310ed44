"""Crossings known before a run: of conditions, and of floors, that depend on time and parameters alone.

If g is a straight line in time, the crossings are computed; other functions of time (``sin(2*pi*t) > 0.9``) are sampled
at `SAMPLES` times and changes found by bisection, so that changes shorter than that part of the run may be missed. A
condition may contain the modes of others (``t % 1 < 0.1`` is ``0.1 > t - k`` with k = floor(t)): the inner ones
come first, and between two of their crossings the outer one has one form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.python_code import array_function
from fmepy.errors import SimulationError
from fmepy.language.derivatives import derivative
from fmepy.language.nodes import ZERO
from fmepy.models.running.system import System, is_line
from fmepy.types import Matrix, Vector

MOST_STOPS = 100_000
"""Crossings in one run."""
SAMPLES, MOST_SAMPLES = 2_000, 2_000_000
"""Times at which a curve is sampled, at first and at most: four times as many until there is no new crossing."""
_RESOLUTION = 1e-12
"""Relative distance below which two crossings are equal."""


def planned_crossings(system: System, p: Vector, start: float, last: float) -> tuple[tuple[float, int], ...]:
    """Return (time, switch) of all crossings between start and last, at the parameters p (all of the model's).

    Raises
    ------
    SimulationError
        More than `MOST_STOPS`.
    """
    return _crossings(system, tuple(p[_used(system)].tolist()), start, last)


def planned_modes(system: System, p: Vector, stretches: Sequence[tuple[float, float]]) -> Matrix:
    """Return the modes of the planned switches in stretches without a crossing, shape (n_stretch, n_planned)."""
    inside = _within(*np.array(stretches).reshape(-1, 2).T)
    return _modes(system, p[_used(system)].tolist(), inside, len(system.planned)).T


def plans_depend_on_parameters(system: System) -> bool:
    """Tell whether the times of planned crossings depend on the parameters."""
    return bool(_used(system).size)


@lru_cache(maxsize=64)
def _used(system: System) -> Any:
    """Return the places of the parameters that occur in planned conditions."""
    occur = {s for i in system.planned for s in system.switches[i].g.free_symbols}
    parameters = system.inputs[: system.layout.n_parameters]
    return np.array([i for i, s in enumerate(parameters) if s in occur], dtype=np.intp)


_Function = Callable[..., list[Any]]


@lru_cache(maxsize=64)
def _functions(system: System) -> list[tuple[_Function, bool]]:
    """Return for every planned switch the function of g(t) (of a line g(0)) and its slope, and whether it is a line."""
    planned = [system.switches[i] for i in system.planned]
    groups = [[system.time], [system.inputs[i] for i in _used(system)], [w.mode for w in planned]]
    out = []
    for w in planned:
        straight = is_line(w.g, system.time)
        g = w.g.subs({system.time: ZERO}) if straight else w.g
        out.append((array_function(groups, [g, derivative(w.g, system.time)]), straight))
    return out


def _modes(system: System, p: Any, times: Vector, n: int) -> Matrix:
    """Return the modes of the first n planned switches at times."""
    M = np.zeros((len(system.planned), len(times)))
    for k, (function, straight) in enumerate(_functions(system)[:n]):
        values = function((times,), p, M)
        g = values[0] + values[1] * times if straight else values[0]
        M[k] = _state(g, system.switches[system.planned[k]].is_level)
    return M


def _within(starts: Vector, ends: Vector) -> Vector:
    """Return a time within each interval at which its modes are evaluated.

    It is not the middle, where a symmetric function, such as a sine between two zeros, may touch a whole number.
    """
    return starts + 0.381966 * (ends - starts)


def _state(g: Any, is_level: bool) -> Vector:
    return np.asarray(np.nan_to_num(np.floor(g)) if is_level else np.where(np.greater(g, 0), 1.0, 0.0))


@lru_cache(maxsize=256)
def _crossings(system: System, p: tuple[float, ...], start: float, last: float) -> tuple[tuple[float, int], ...]:
    found: list[tuple[float, int]] = []
    edges = np.array([start, last])
    eps = _RESOLUTION * max(abs(start), abs(last))
    for k, (function, straight) in enumerate(_functions(system)):
        i = system.planned[k]
        is_level = system.switches[i].is_level
        M = _modes(system, p, _within(edges[:-1], edges[1:]), k)
        if straight:
            g0, slope = (np.broadcast_to(v, len(edges) - 1) for v in function((0.0,), p, M))
            times = _of_lines(g0, slope, edges, is_level)
        else:
            times = _of_curves(function, p, M, edges, is_level)
        after = edges[np.clip(np.searchsorted(edges, times), 1, len(edges) - 1)]
        before = edges[np.clip(np.searchsorted(edges, times) - 1, 0, len(edges) - 1)]
        nearest = np.where(np.abs(times - before) < np.abs(times - after), before, after)
        is_near = np.abs(times - nearest) <= eps
        together = np.unique(nearest[is_near])  # coincident crossings: sensitivities jump at each
        found += [(t, i) for t in together.tolist() if start < t < last]
        times = times[~is_near]
        found += [(t, i) for t in times.tolist()]
        if len(found) > MOST_STOPS:
            raise _too_many(len(found))
        edges = np.unique(np.concatenate([edges, times]))
    return tuple(found)


def _too_many(n: float) -> SimulationError:
    return SimulationError(
        f"the conditions and floors of time in the model change {n:.3g} times in the run; at most {MOST_STOPS} "
        "such times are possible. Make the steps coarser or the run shorter"
    )


def _of_lines(g0: Vector, slope: Vector, edges: Vector, is_level: bool) -> Vector:
    """Return where lines g0 + slope t, one an interval, are zero (of levels: whole)."""
    a, b = edges[:-1], edges[1:]
    with np.errstate(all="ignore"):
        if not is_level:
            t = -g0 / slope
            return np.asarray(t[(t > a) & (t <= b)])
        ends = np.array([g0 + slope * a, g0 + slope * b])
        low, high = np.ceil(ends.min(axis=0)), np.floor(ends.max(axis=0))
        count = np.where(np.isfinite(ends).all(axis=0) & (slope != 0), np.maximum(high - low + 1, 0), 0.0)
    if count.sum() > MOST_STOPS:
        raise _too_many(float(count.sum()))
    pieces = [(low[j] + np.arange(count[j]) - g0[j]) / slope[j] for j in np.flatnonzero(count)]
    times = [t[(t > a[j]) & (t <= b[j])] for j, t in zip(np.flatnonzero(count), pieces, strict=True)]
    return np.concatenate(times) if times else np.empty(0)


@lru_cache(maxsize=8)
def _irregular(n: int) -> Vector:
    """Return n + 1 times from 0 to 1 with irregular distances of 0.5/n to 1.5/n, so that no period fits them."""
    t = np.arange(n + 1.0)
    t[1:-1] += 0.5 * (t[1:-1] * 0.6180339887498949 % 1.0) - 0.25
    return np.asarray(t / n)


def _of_curves(function: _Function, p: Any, M: Matrix, edges: Vector, is_level: bool) -> Vector:
    """Return where a function of time changes its sign (of levels: its floor)."""

    def with_slope_sign(t: Vector, m: Matrix) -> tuple[Vector, Vector]:
        g, slope = (np.broadcast_to(v, t.shape) for v in function((t,), p, m))
        return g, np.sign(slope)

    def state(t: Vector, m: Matrix) -> Vector:
        return _state(with_slope_sign(t, m)[0], is_level)

    def brackets(n: int) -> tuple[Vector, Vector, Vector, Matrix]:
        samples = np.union1d(edges[0] + (edges[-1] - edges[0]) * _irregular(n), edges)
        low, high = samples[:-1], samples[1:]
        modes = M[:, np.clip(np.searchsorted(edges, low, side="right") - 1, 0, len(edges) - 2)]
        (g, sign), (g_high, sign_high) = with_slope_sign(low, modes), with_slope_sign(high, modes)
        left = _state(g, is_level)
        changed = left != _state(g_high, is_level)
        turns = ~changed & (sign * sign_high < 0) & (is_level | (g * sign < 0))  # extrema may cross
        a, b, m, sign = low[turns], high[turns], modes[:, turns], sign[turns]
        for _ in range(60 if len(a) else 0):
            middle = 0.5 * (a + b)
            same = with_slope_sign(middle, m)[1] == sign
            a, b = np.where(same, middle, a), np.where(same, b, middle)
        is_beyond = state(b, m) != left[turns]
        twice, b, m = np.flatnonzero(turns)[is_beyond], b[is_beyond], m[:, is_beyond]
        return (
            np.concatenate([low[changed], low[twice], b]),
            np.concatenate([high[changed], b, high[twice]]),
            np.concatenate([left[changed], left[twice], state(b, m)]),
            np.hstack([modes[:, changed], m, m]),
        )

    n, found = SAMPLES, brackets(SAMPLES)
    while (finer := brackets(n := 4 * n)) and len(finer[0]) != len(found[0]) and n < MOST_SAMPLES:
        found = finer
        if len(found[0]) > 2 * MOST_STOPS:
            raise _too_many(len(found[0]))
    low, high, left, modes = finer
    for _ in range(60 if len(low) else 0):
        middle = 0.5 * (low + high)
        same = state(middle, modes) == left
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.sort(high)
