"""Other starts of what is not observed: what the path takes elsewhere, and what fits the data of each segment alone.

A state without data in a segment begins where a run says, and all runs begin at the first guess. Where that lies in
another fold of the solutions, no small step leads out of it. So every segment is started from values that unobserved
states take anywhere along the path, all segments at once, and a few steps of Levenberg and Marquardt bring each segment
near its own data, the unknowns and the other segments being as they are. With R of ``[S, r] = QR`` of a segment a step
of its start is::

    dx = -(J'J + mu I)^-1 J'r        J, r the columns of R that belong to the start and to the residuals

Which of them go on from one another is found as of all paths (`fmepy.boundary.shooting_starts.composed`); initial
values that are unknown follow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fmepy.boundary.shooting_segments import Iterate, Segments
from fmepy.boundary.shooting_starts import observed_states, with_data
from fmepy.errors import SimulationError
from fmepy.parallel.interruption import check_stop
from fmepy.types import BoolVector, Matrix, Vector

_POINTS = 8
"""Of the path, whose unobserved states other segments are started from."""
_STEPS, _DAMPINGS = 4, (1e-6, 1e-2)
"""By which segments come near to their own data; how much their squares are damped, relative to the largest."""
_NEWTON = 20
"""Steps of initial values towards the start of a path, at most."""


def unobserved(segments: Segments) -> Any:
    """Return which starts of segments are free and without data of their own, shape (n_segment, n_state)."""
    return segments.once("unobserved", lambda: _unobserved(segments))


def _unobserved(segments: Segments) -> Any:
    out = np.ones((len(segments.begins), len(segments.states)), dtype=bool)
    for record, s in zip(segments.records, np.flatnonzero(segments.layout.is_first).tolist(), strict=True):
        n = len(record.cuts) - 1
        for state, (x, _) in observed_states(segments, record).items():
            of = np.clip(np.searchsorted(record.cuts, x, side="right") - 1, 0, n - 1)
            out[s + of, segments.states.index(state)] = False
        out[s] &= record.unknown_starts
    return out


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
    blind, paths = unobserved(segments), list(known)
    if not blind.any():
        return
    begins = segments.layout.begins
    data = [with_data(segments, r, at.X[a:b]) for r, a, b in zip(segments.records, begins, begins[1:], strict=False)]
    for point in _points(segments, at, scale, blind.any(axis=0)):
        X = np.where(blind, point, np.concatenate(data))
        with contextlib.suppress(SimulationError):
            paths.append(_run(segments, at.theta, X))
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
                found = _run(segments, theta, X + np.clip(dx, -1, 1) * scale)
                yield found
                new = squares_of(found)
                better = new < value
                X, value, R = (
                    np.where(better[:, None], found.X, X), np.where(better, new, value),
                    np.where(better[:, None, None], found.squares, R),
                )  # fmt: skip


def _run(segments: Segments, theta: Vector, X: Matrix) -> Iterate:
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
    asked = unobserved(segments)[first]
    if not asked.any():
        return theta
    p, target = segments.problem, X[first][asked]

    def begin(theta: Vector) -> tuple[Vector, Matrix]:
        starts = [r.initial(theta) for r in segments.records]
        slopes = [s @ r.slopes(theta) for (_, s), r in zip(starts, segments.records, strict=True)]
        return np.array([y for y, _ in starts])[asked], np.array(slopes)[asked]

    only = np.isin(np.arange(len(theta)), segments.layout.own, invert=True)
    at, slopes = begin(theta)
    for _ in range(_NEWTON):
        away = target - at
        step = np.zeros(len(theta))
        step[only] = np.linalg.lstsq(slopes[:, only], away, rcond=1e-10)[0]
        for share in 0.5 ** np.arange(8):
            new = np.clip(theta + share * step, p.lower, p.upper)
            there, slopes_there = begin(new)
            if np.linalg.norm(target - there) < (1 - 1e-6) * np.linalg.norm(away):
                theta, at, slopes = new, there, slopes_there
                break
        else:
            break
    return theta
