"""Starts of segments: what is observed from the data, what is not from an observer or from a run.

Two kinds of paths are at hand: the run of the model, and observers, the same run in which observed states are set to
their data wherever there are some. Unobserved states that follow the observed ones (a chaotic model driven by one of
its states, say) are then near the truth although the parameters are not; others are as in the run. The segments are run
from all, and every segment begins as the path says with which squares and defects are smallest together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.boundary.shooting_segments import Experiment, Iterate, Segments
from fmepy.errors import DataError, ModelError, SimulationError
from fmepy.models.difference import DifferenceModel
from fmepy.tables.columns import as_table
from fmepy.types import Matrix, Vector


def first_starts(segments: Segments, theta: Vector) -> Iterator[Matrix]:
    """Yield starts of all segments, shape (n_segment, n_state), the simplest first; those that can be had."""
    if segments.problem.path is not None:
        yield given_path(segments, segments.problem.path)
    else:
        yield from starts_at(segments, theta)


def starts_at(segments: Segments, theta: Vector) -> Iterator[Matrix]:
    """Yield the starts of all segments that runs from given unknowns say; those that can be had."""
    yield np.concatenate([with_data(segments, r, _constant(r, theta)) for r in segments.records])
    seen = dict.fromkeys(s for r in segments.records for s in observed_states(segments, r))
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
    """Return what the starts of several paths come to, of every segment the one with which all fit best.

    Squares of segments and of defects between neighbours add up, so that the least sum is found from segment to segment
    (Bellman's principle), in a time that grows as their number.

    paths : with the same unknowns
    sigma : scales of the defects, shape (n_state,)
    size : of a weighted residual
    """
    X, ends = np.array([p.X for p in paths]) / sigma, np.array([p.ends for p in paths]) / sigma
    first = segments.layout.is_first
    own = np.array([(p.squares[:, :, -1] ** 2).sum(axis=1) for p in paths]) / size**2  # shape (n_path, n_segment)
    own[:, first] += ((np.array([p.begin for p in paths]) / sigma - X[:, first]) ** 2).sum(axis=2)
    least, before = own[:, 0], np.zeros((own.shape[1], len(paths)), dtype=np.intp)
    for s in range(1, own.shape[1]):
        to = least[:, None] + ((ends[:, None, s - 1] - X[None, :, s]) ** 2).sum(axis=2) * (not first[s])
        before[s] = to.argmin(axis=0)
        least = to.min(axis=0) + own[:, s]
    taken = np.full(own.shape[1], least.argmin())
    for s in range(len(taken) - 1, 0, -1):
        taken[s - 1] = before[s, taken[s]]
    if (taken == taken[0]).all():
        return paths[int(taken[0])]
    return segments.at(paths[0].theta, np.array([p.X for p in paths])[taken, np.arange(len(taken))])


def _constant(record: Experiment, theta: Vector) -> Matrix:
    return np.tile(record.initial(theta)[0], (len(record.cuts) - 1, 1))


def _run(segments: Segments, record: Experiment, theta: Vector, corrected: Sequence[str]) -> Matrix:
    """Return the run from the first guess where the segments begin, some states set to the data on its way."""
    seen = {s: data for s, data in observed_states(segments, record).items() if s in corrected}
    if seen and isinstance(record.closed, DifferenceModel):
        return _set_at_cuts(segments, record, theta, seen)
    bound = segments.once((record, tuple(corrected)), lambda: _observer(record, seen))
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


def observed_states(segments: Segments, record: Experiment) -> dict[str, tuple[Vector, Vector]]:
    """Return by observed state its times and data, means where it has several; outputs that are a state count as it."""
    return segments.once(record, lambda: _observed(segments, record))


def _observed(segments: Segments, record: Experiment) -> dict[str, tuple[Vector, Vector]]:
    d = record.closed.definition
    stands_for = {s: s for s in d.states} | {n: str(e) for n, e in d.outputs if str(e) in d.states}
    c, x = segments.problem.cost.comparison, segments.problem.cost.places.x
    assert x is not None, "fit_boundary asks for times"
    out = {}
    for state in d.states:
        mine = np.array([i for i in record.rows if stands_for.get(c.names[i]) == state], dtype=np.intp)
        if len(mine):
            times, group = np.unique(x[mine], return_inverse=True)
            out[state] = times, np.bincount(group, c.obs[mine]) / np.bincount(group)
    return out


def with_data(segments: Segments, record: Experiment, path: Matrix) -> Matrix:
    """Return starts with the data, between two of them interpolated, in the place of observed states."""
    out = path.copy()
    for state, (x, y) in observed_states(segments, record).items():
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
