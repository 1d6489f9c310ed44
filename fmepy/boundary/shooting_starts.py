"""Starts of segments: observed states from the data, others from an observer or from a run.

Two kinds of paths are at hand: the run of the model, and observers, the same run in which observed states are set to
their data wherever there are some. Unobserved states that follow the observed ones (a chaotic model driven by one of
its states, say) are then near the truth although the parameters are not; others are as in the run. The segments are run
from all, and every segment begins as the path says with which squares and defects are smallest together.

**Other starts of what is not observed.** A state without data in a segment begins where a run says, and all runs begin
at the first guess. Where that lies in another fold of the solutions, no small step leads out of it. So every segment is
started from values that unobserved states take anywhere along the path, all segments at once, and a few steps of
Levenberg and Marquardt bring each segment near its own data, the unknowns and the other segments being as they are.
With R of ``[S, r] = QR`` of a segment a step of its start is::

    dx = -(J'J + mu I)^-1 J'r        J, r the columns of R that belong to the start and to the residuals

Which of them go on from one another is found as of all paths (`composed`); initial values that are unknown follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.boundary.shooting_segments import Experiment, Iterate, Segments
from fmepy.errors import DataError, ModelError, SimulationError
from fmepy.models.difference import DifferenceModel
from fmepy.parallel.interruption import check_stop
from fmepy.tables.columns import as_table
from fmepy.types import BoolVector, Matrix, Vector

_POINTS = 8
"""Of the path, whose unobserved states other segments are started from."""
_STEPS, _DAMPINGS = 4, (1e-6, 1e-2)
"""By which segments come near to their own data; how much their squares are damped, relative to the largest."""
_NEWTON = 20
"""Steps of initial values towards the start of a path, at most."""


def first_starts(segments: Segments, theta: Vector) -> Iterator[Matrix]:
    """Yield starts of all segments, shape (n_segment, n_state), the simplest first; runs that fail are left out."""
    if segments.problem.path is not None:
        yield given_path(segments, segments.problem.path)
    else:
        yield from starts_at(segments, theta)


def starts_at(segments: Segments, theta: Vector) -> Iterator[Matrix]:
    """Yield starts of all segments by runs at given unknowns; runs that fail are left out."""
    yield np.concatenate([with_data(segments, r, _constant(r, theta)) for r in segments.records])
    seen = dict.fromkeys(s for r in segments.records for s in r.observed)
    if segments.problem.gain is not None:  # it is set to the data as the gain says
        seen = {}
    corrected = [(), *((s,) for s in seen), tuple(seen)] if len(seen) > 1 else [(), *((s,) for s in seen)]
    for states in corrected:
        try:
            paths = [_run(segments, r, theta, states) for r in segments.records]
        except (SimulationError, ModelError):  # an event of its own at a datum, say
            continue
        yield np.concatenate([with_data(segments, r, path) for r, path in zip(segments.records, paths, strict=True)])


def composed(segments: Segments, paths: Sequence[Iterate], sigma: Vector, size: float) -> Iterate:
    """Return the path made of starts of several paths: for every segment the start with which all fit best.

    Squares of segments and of defects between neighbours add up, so that the least sum is found from segment to segment
    (Bellman's principle), in a time that grows as their number.

    paths : with the same unknowns
    sigma : scales of the defects, shape (n_state,)
    size : of a weighted residual
    """
    X, ends = np.array([p.X for p in paths]) / sigma, np.array([p.ends for p in paths]) / sigma
    first = segments.layout.is_first
    own = np.array([squares_of(p) for p in paths]) / size**2  # shape (n_path, n_segment)
    own[:, first] += ((np.array([p.begin for p in paths]) / sigma - X[:, first]) ** 2).sum(axis=2)
    least, before = own[:, 0], np.zeros((own.shape[1], len(paths)), dtype=np.intp)
    for s in range(1, own.shape[1]):
        to = least[:, None] + ((ends[:, None, s - 1] - X[None, :, s]) ** 2).sum(axis=2) * (not first[s])
        before[s] = to.argmin(axis=0)
        least = to.min(axis=0) + own[:, s]
    path = np.full(own.shape[1], least.argmin())
    for s in range(len(path) - 1, 0, -1):
        path[s - 1] = before[s, path[s]]
    if (path == path[0]).all():
        return paths[int(path[0])]
    return segments.at(paths[0].theta, np.array([p.X for p in paths])[path, np.arange(len(path))])


def _constant(record: Experiment, theta: Vector) -> Matrix:
    return np.tile(record.initial(theta)[0], (len(record.cuts) - 1, 1))


def _run(segments: Segments, record: Experiment, theta: Vector, corrected: Sequence[str]) -> Matrix:
    """Return the run from the first guess where the segments begin, some states set to the data on its way."""
    seen = {s: data for s, data in record.observed.items() if s in corrected}
    if seen and isinstance(record.closed, DifferenceModel):
        return _set_at_cuts(segments, record, theta, seen)
    key = record, tuple(corrected)
    if key not in segments.observers:
        segments.observers[key] = _observer(record, seen)
    bound = segments.observers[key]
    Y: Matrix = bound.simulate(record.full(theta))[:, : len(segments.states)]
    return Y


def _observer(record: Experiment, seen: Mapping[str, tuple[Vector, Vector]]) -> Any:
    """Return the model of a record, bound, with events that set some states to their data."""
    d, model, last = record.closed.definition, record.closed, record.cuts[-1]
    sets = [
        {"var": s, "time": t, "value": v}
        for s, xy in seen.items()
        for t, v in zip(*map(list, xy), strict=True)
        if t < last
    ]
    if sets:
        atol = dict(zip(d.states, model.scaled_options().atol.tolist(), strict=True))
        model = model.replace(events=[*(e.row(d.states) for e in d.events), *sets], atol=atol)
    return model.bind(record.moved, times=record.cuts[:-1])


def _set_at_cuts(segments: Segments, record: Experiment, theta: Vector, seen: Mapping[str, Any]) -> Matrix:
    """Return the run that is set to the data where segments begin."""
    cuts, full = record.cuts, record.full(theta)
    places = [record.moved.index(n) for n in segments.names[: -len(segments.states)]]
    out = with_data(segments, record, _constant(record, theta))
    for k in range(len(cuts) - 2):
        bound = record.model.bind(segments.names, times=cuts[k + 1 : k + 2], start=float(cuts[k]))
        out[k + 1] = bound.simulate(np.concatenate([full[places], out[k]]))[-1, : len(segments.states)]
        for state, (x, y) in seen.items():
            out[k + 1, segments.states.index(state)] = np.interp(cuts[k + 1], x, y)
    return out


def with_data(segments: Segments, record: Experiment, path: Matrix) -> Matrix:
    """Return starts with the data, between two of them interpolated, in the place of observed states."""
    out = path.copy()
    for state, (x, y) in record.observed.items():
        out[:, segments.states.index(state)] = np.interp(record.cuts[:-1], x, y)
    known = ~record.unknown_starts
    out[0, known] = path[0, known]
    return out


def given_path(segments: Segments, path: Any) -> Matrix:
    """Return the starts that a user gave as a path: a table of times and states, linear in between.

    Raises
    ------
    DataError
        What a table of times and states cannot be.
    """
    table, problem = as_table(path, "path"), segments.problem
    missing = [s for s in ("time", *segments.states) if s not in table.columns]
    if missing:
        raise DataError(f"`path` needs the columns time and {', '.join(segments.states)}; {missing[0]!r} is not there.")
    if len(segments.records) > 1 and problem.cost.entity not in table.columns:
        raise DataError(f"`path` needs the column {problem.cost.entity!r}: every experiment has a path of its own.")
    out = []
    for record in segments.records:
        own = table if len(segments.records) == 1 else table[table[problem.cost.entity].map(str) == record.label]
        numbers = own[["time", *segments.states]].apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
        if not len(own) or not np.isfinite(numbers).all() or (np.diff(numbers[:, 0]) <= 0).any():
            of = f" of {record.label!r}" if record.label else ""
            raise DataError(f"`path`{of} must have rows of finite numbers whose times increase.")
        out.append(np.column_stack([np.interp(record.cuts[:-1], numbers[:, 0], y) for y in numbers[:, 1:].T]))
    return np.concatenate(out)


# --- other starts of what is not observed


def squares_of(at: Iterate) -> Vector:
    """Return the weighted sum of squares of every segment."""
    out: Vector = (at.squares[:, :, -1] ** 2).sum(axis=1)
    return out


def other_paths(segments: Segments, at: Iterate, scale: Vector, known: list[Iterate]) -> Iterator[Iterate]:
    """Yield paths from other starts at the same unknowns, and from starts with which segments fit their own data.

    Parameters
    ----------
    at : Iterate
    scale : ndarray, shape (n_state,)
        Sizes of the states.
    known : list of Iterate
        Other paths, of which every segment goes on from the best.
    """
    blind, paths = segments.unobserved, list(known)
    if not blind.any():
        return
    begins = segments.layout.begins
    data = [with_data(segments, r, at.X[a:b]) for r, a, b in zip(segments.records, begins, begins[1:], strict=False)]
    for point in _points(segments, at, scale, blind.any(axis=0)):
        X = np.where(blind, point, np.concatenate(data))
        with contextlib.suppress(SimulationError):
            paths.append(_run_from(segments, at.theta, X))
            yield paths[-1]
    yield from near_their_data(segments, paths, scale)


def near_their_data(segments: Segments, paths: list[Iterate], scale: Vector) -> Iterator[Iterate]:
    """Yield paths whose segments come nearer to their own data, from those of several where each fits best."""
    theta = paths[0].theta
    fixed = np.zeros((len(segments.begins), len(segments.states)), dtype=bool)
    fixed[segments.layout.is_first] = [~r.unknown_starts for r in segments.records]
    best = np.array([squares_of(p) for p in paths])
    at = best.argmin(axis=0), np.arange(best.shape[1])
    X, value = np.array([p.X for p in paths])[at], best[at]
    R = np.array([p.squares for p in paths])[at]
    k = R.shape[2] - 1 - len(segments.states)
    for _ in range(_STEPS):
        J, r = R[:, :, k:-1] * np.where(fixed, 0.0, scale)[:, None], R[:, :, -1:]
        H, g = J.transpose(0, 2, 1) @ J, J.transpose(0, 2, 1) @ r
        largest = np.maximum(H.diagonal(axis1=1, axis2=2).max(axis=1), 1e-300)[:, None, None]
        for damping in _DAMPINGS:
            dx = -np.linalg.solve(H + damping * largest * np.eye(H.shape[1]), g)[:, :, 0]
            with contextlib.suppress(SimulationError):
                found = _run_from(segments, theta, X + np.clip(dx, -1, 1) * scale)
                yield found
                new = squares_of(found)
                better = new < value
                X, value, R = (
                    np.where(better[:, None], found.X, X), np.where(better, new, value),
                    np.where(better[:, None, None], found.squares, R),
                )  # fmt: skip


def _run_from(segments: Segments, theta: Vector, X: Matrix) -> Iterate:
    check_stop()
    return segments.at(following(segments, theta, X), X)


def _points(segments: Segments, at: Iterate, scale: Vector, of: BoolVector) -> Iterator[Vector]:
    """Yield states of segments that fit, far apart in what is not observed, the middle first."""
    each = squares_of(at) / np.maximum(segments.counts, 1)
    fits = each <= np.median(each)
    cloud = np.concatenate([at.X[fits], at.ends[fits]])
    units = cloud[:, of] / scale[of]
    chosen = [int(((units - np.median(units, axis=0)) ** 2).sum(axis=1).argmin())]
    away = np.full(len(cloud), np.inf)
    while len(chosen) <= min(_POINTS, len(cloud)):
        yield cloud[chosen[-1]]
        away = np.minimum(away, ((units - units[chosen[-1]]) ** 2).sum(axis=1))
        if not away.max() > 0:
            return
        chosen.append(int(away.argmax()))


def following(segments: Segments, theta: Vector, X: Matrix) -> Vector:
    """Return the unknowns with initial values, and nothing else, moved to where unobserved states begin.

    Newton's steps, shortened until the model's own start comes nearer; bounds hold.
    """
    first = segments.layout.is_first
    free = segments.unobserved[first]
    if not free.any():
        return theta
    p, target = segments.problem, X[first][free]

    def begin(theta: Vector) -> tuple[Vector, Matrix]:
        starts = [r.initial(theta) for r in segments.records]
        slopes = [s @ r.slopes(theta) for (_, s), r in zip(starts, segments.records, strict=True)]
        return np.array([y for y, _ in starts])[free], np.array(slopes)[free]

    only = np.isin(np.arange(len(theta)), segments.layout.own, invert=True)
    at, slopes = begin(theta)
    for _ in range(_NEWTON):
        gap = target - at
        step = np.zeros(len(theta))
        step[only] = np.linalg.lstsq(slopes[:, only], gap, rcond=1e-10)[0]
        for share in 0.5 ** np.arange(8):
            new = np.clip(theta + share * step, p.lower, p.upper)
            there, slopes_there = begin(new)
            if np.linalg.norm(target - there) < (1 - 1e-6) * np.linalg.norm(gap):
                theta, at, slopes = new, there, slopes_there
                break
        else:
            break
    return theta
