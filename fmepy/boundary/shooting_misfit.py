"""The misfit of a path by segment, and whether a segment that stands out is in a false minimum.

With q_s the weighted squares of the n_s data of segment s and v the median of ``q_s / m(n_s)``, m being the median of
chi-squared, ``n_s v`` is what is expected of a segment. One stands out where q_s is ten times that, and by F's
distribution more than noise makes of any segment. That may be noise of another size, outliers, or a model that does not
hold there. It is a false minimum if the same data are followed, at the same unknowns, from another start: with a_s the
squares from there, k states and F = ``(q_s - a_s) / k / (a_s / (n_s - k))``, which compares a segment with itself, so
that it does not matter how large the errors of its data are. And it is one if three quarters of its residuals are
large beside the variance of all data: no outliers make that.

Where segments stand out, or a search has not converged, it is made again with twice as many segments, then four times:
the shorter they are, the farther they find the way from. A better path of theirs is a path of the segments that were
asked for. Where no number of segments finds a better one than a false minimum, the search has not converged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import scipy  # its rooms are loaded where they are asked for

from fmepy.boundary.problem import BoundaryProblem
from fmepy.boundary.shooting_linear import GROWS, undetermined
from fmepy.boundary.shooting_segments import Iterate, Segments
from fmepy.boundary.shooting_starts import squares_of
from fmepy.errors import ArgumentError, SimulationError
from fmepy.types import BoolVector, Vector

FAR = 10
"""Squares of a segment that stands out, in what is expected."""
_RARE = 1e-3
"""Chance of noise to make any segment stand out, or better from another start, at most."""
_EXACT = 1e-12
"""Squares, in those of the observations, that are nothing but the solver's error."""
LAST = 0.003
"""Scale of the defects, in sizes of the states, in the last stage of soft continuity."""
_FINER = (2, 4)
"""Segments of further searches, in multiples of the requested number."""
_LEAST = 2
"""Observations a segment of those, on average."""
_SAME = 1e-4
"""Relative difference of squares of what is one minimum."""
_LARGE_RESIDUALS = 0.1
"""Mean of three quarters of the squared residuals, the smaller ones, of a segment that follows nothing of its data; in
the variance of all data. Of noise it is a third of the mean of all."""
_SHOWN = 4
_NOISE = (
    "No other start mends that: outliers, errors of another size (`err=`), or a model that does not hold there; "
    "`misfit` has all segments."
)
_ADVICE = (
    "Give other first guesses of what is not observed, a path to begin with (path=), or more segments; or the model "
    "does not hold there. `misfit` has all segments."
)


def misfit_of(segments: Segments, at: Iterate) -> pd.DataFrame:
    """Return squares by segment: experiment (of several), segment, begin, end, n_obs, ssr, expected, stands_out."""
    n, q = segments.counts, squares_of(at)
    seen = n > 0
    typical = float(np.median(q[seen] / scipy.special.chdtri(n[seen], 0.5)))
    expected = n * typical
    few = scipy.special.fdtrc(np.maximum(n, 1), max(n.sum() // 2, 1), q / np.where(expected > 0, expected, np.inf))
    exact = q.sum() <= _EXACT * segments.size_of_obs**2
    out = (q > FAR * expected) & (few * len(n) < _RARE) & (len(n) > 2) & (not exact)
    cuts = [r.cuts for r in segments.records]
    table = pd.DataFrame({
        "segment": np.concatenate([np.arange(1, len(c)) for c in cuts]), "begin": segments.begins,
        "end": np.concatenate([c[1:] for c in cuts]), "n_obs": n, "ssr": q, "expected": expected, "stands_out": out,
    })  # fmt: skip
    if segments.problem.cost.entity is not None:
        table.insert(0, str(segments.problem.cost.entity), [segments.records[k].label for k in segments.layout.record])
    return table


def check_misfit(search: Any, end: tuple[bool, str], begin: Callable[[BoundaryProblem], Any]) -> tuple[bool, str]:
    """Return whether a search has converged, and its message, after a check of the misfit by segment.

    Parameters
    ----------
    search : see `fmepy.boundary.shooting`
    end : tuple of bool and str
        Whether the search converged, and its message.
    begin : callable
        Begins a search of a problem.
    """
    (converged, message), segments = end, search.segments
    for factor in _FINER:
        out = misfit_of(segments, search.at)["stands_out"].to_numpy()
        if undetermined(search, search.held) not in ("", GROWS) or (converged and not out.any()):
            return converged, message
        better = _by_finer(search, converged, factor, begin)
        if better is None:
            break
        converged, message = better if better[0] else (converged, message)
    table = misfit_of(segments, search.at)
    out = table["stands_out"].to_numpy()
    if not out.any():
        return converged, message
    if not converged:
        return converged, f"{message} At this iterate {_description(table, out)}."
    other = np.array([squares_of(p) for p in (search.at, *search.others())]).min(axis=0)
    false = out & (_is_better(segments, squares_of(search.at), other) | _follows_nothing(segments, search.at))
    if false.any():
        return False, f"A false minimum, as it seems: {_description(table, false)}. {_ADVICE}"
    return True, f"{message} But {_description(table, out)}. {_NOISE}"


def _by_finer(search: Any, converged: bool, factor: int, begin: Callable[[BoundaryProblem], Any]) -> Any:
    """Go to the path of a search with more segments, if it is better; return whether it converged, and its message.

    None: it is no better, and more segments are not expected to help.
    """
    problem, segments = search.problem, search.segments
    finer = replace(problem, segments=factor * problem.segments)
    if finer.segments * len(segments.records) * _LEAST > len(segments.obs):
        return None
    try:
        other = begin(finer)
        is_found = other.search()[0]
    except (ArgumentError, SimulationError):
        return False, ""
    segments.evaluations += other.segments.evaluations
    search.failures += other.failures
    before, now = search.at, other.at
    if not is_found or (converged and now.r @ now.r > (1 + _SAME) * (before.r @ before.r)):
        return False, ""
    if converged and now.r @ now.r > (1 - _SAME) * (before.r @ before.r):
        return None
    at = np.concatenate([
        other.segments.layout.begins[k] + np.searchsorted(fine.cuts, own.cuts[:-1])
        for k, (own, fine) in enumerate(zip(segments.records, other.segments.records, strict=True))
    ])  # fmt: skip
    if not np.array_equal(other.segments.begins[at], segments.begins):
        return None
    saved = search.rows, search.corrections, search.last, search.exact
    search.at = segments.at(now.theta, now.X[at])
    search.rows, search.corrections, search.last = other.rows, other.corrections, other.last
    search.exact = len(search.rows) // 2  # so that a few steps more are left
    end = search.tighten(LAST)
    if end[0]:
        return end
    search.at, (search.rows, search.corrections, search.last, search.exact) = before, saved
    return False, ""


def _is_better(segments: Segments, squares: Vector, other: Vector) -> BoolVector:
    """Return which segments fit far better from another start, by more than a free start absorbs of noise."""
    k, n = len(segments.states), segments.counts
    left = np.maximum(n - k, 1)
    with np.errstate(divide="ignore"):
        F = (squares - other) / k / (other / left)
    better: BoolVector = (n > k) & (scipy.special.fdtrc(k, left, F) * len(n) < _RARE) & (FAR * other < squares)
    return better


def _follows_nothing(segments: Segments, at: Iterate) -> BoolVector:
    """Return which segments do not follow their data: most residuals are as large as the data vary."""
    c = segments.problem.cost.comparison
    names = np.unique(np.array(c.names), return_inverse=True)[1]
    mean = (np.bincount(names, c.obs) / np.bincount(names))[names]
    least = _LARGE_RESIDUALS * float(np.mean(((c.obs - mean) * c.weights) ** 2))
    most = [np.sort(at.r[mine] ** 2)[: len(mine) * 3 // 4] for mine in segments.rows_of_segments]
    return np.array([part.mean() if len(part) else 0.0 for part in most]) > least


def _description(table: pd.DataFrame, of: BoolVector) -> str:
    """Return which segments miss their data, and how far."""
    mine = table[of]
    each = [
        f"{row.segment} ({f'{row[0]}, ' if table.columns[0] != 'segment' else ''}{row.begin:g} to {row.end:g})"
        for row in mine.head(_SHOWN).itertuples(index=False)
    ]
    more = f" and {len(mine) - len(each)} more" if len(mine) > len(each) else ""
    with np.errstate(divide="ignore"):
        fold = (mine["ssr"] / mine["expected"]).max()
    times = f"{fold:.2g} times" if np.isfinite(fold) else "beyond all measure of"
    return (
        f"{'segments' if len(mine) > 1 else 'segment'} {', '.join(each)}{more} misses the data by {times} the weighted "
        "squares that are typical of the others"
    ).replace("misses", "miss" if len(mine) > 1 else "misses")
