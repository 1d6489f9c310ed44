"""How many segments a record is cut into, where it is left to us: by how often data swing, and how fast errors grow.

A path from a wrong start or at wrong parameters falls out of step with data that swing, and the squares have a minimum
for each swing that it is off: a segment a swing, from one peak to the next, holds it in step. Where errors of the state
grow, a segment is to magnify them tenfold at most. The larger of the two numbers is taken, of several records that of
the one that asks for most; but no more than leave each segment twice as many data as there are states. Neither swings
nor growth is one segment: single shooting.

A swing counts where it is larger than half the standard deviation of the data, and than six of their noise, taken from
the median of their second differences. Growth is that of the linearised equations along starts at the first guess,
observed states being set to their data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fmepy.boundary.problem import BoundaryProblem
from fmepy.boundary.shooting_segments import Segments, records_of
from fmepy.boundary.shooting_starts import first_starts
from fmepy.errors import ArgumentError, SimulationError
from fmepy.types import IntVector, Vector

_OF_SD, _OF_NOISE = 0.5, 6.0
"""Least height of a swing, in standard deviations of data, and of their noise."""
_FOLD = 10.0
"""By which an error grows over a segment, at most."""
_DATA = 2
"""For each state that a segment starts with, at least."""


def number_of_segments(problem: BoundaryProblem) -> tuple[int, str]:
    """Return how many segments suit a model and its data, and why, as a sentence."""
    try:
        most = _most_segments(problem)
    except ArgumentError as error:
        return 1, f"segments='auto': 1, as {str(error)[0].lower()}{str(error)[1:]}"
    if most < 2:
        return 1, "segments='auto': 1, as there are few observations for each state."
    segments = Segments(replace(problem, segments=most))
    swings = max(swings_of(y) for record in segments.records for y in _series(problem, record.rows))
    growth = _growth(segments)
    wanted = max(1, int(np.ceil(max(swings, growth / np.log(_FOLD)))))
    number = min(wanted, most)
    if problem.path is not None:
        number = max(number, 2)
    fold = f"{np.exp(growth):.2g}-fold" if growth < 500 else f"e^{growth:.0f}-fold"
    limit = "" if wanted == number else f", and no more than {number} leave each of them enough observations"
    return number, f"segments='auto': {number}, as data swing {swings:g} times and errors grow {fold}{limit}."


def _most_segments(problem: BoundaryProblem) -> int:
    """Return how many segments the data of the longest record allow."""
    out = 1
    for record in records_of(replace(problem, segments=1)):
        out = max(out, len(record.rows) // (_DATA * len(record.closed.states)))
        out = min(out, len(np.unique(problem.x[record.rows])))
    return out


def _series(problem: BoundaryProblem, rows: IntVector) -> Iterator[Vector]:
    """Yield what was observed of each variable, in order of time, means of what was observed twice."""
    c, x = problem.cost.comparison, problem.x
    names = np.array(c.names)[rows]
    for name in np.unique(names):
        mine = rows[names == name]
        _, group = np.unique(x[mine], return_inverse=True)
        yield np.bincount(group, c.obs[mine]) / np.bincount(group)


def swings_of(y: Vector) -> float:
    """Return how often data go up and down again: half the number of turns that are higher than their noise.

    Examples
    --------
    >>> swings_of(np.sin(np.linspace(0, 8 * np.pi, 101)))
    4.0
    >>> swings_of(np.exp(-np.linspace(0, 8, 101)))
    0.0
    """
    if len(y) < 3:
        return 0.0
    noise = float(np.median(np.abs(np.diff(y, 2)))) / (0.6745 * np.sqrt(6))
    least = max(_OF_SD * float(y.std()), _OF_NOISE * noise)
    low = high = extreme = float(y[0])
    turns, up = 0, 0.0
    for value in y.tolist():
        if up == 0.0:
            low, high = min(low, value), max(high, value)
            up, extreme = (value - low > least) - 1.0 * (high - value > least), value
        elif up * (value - extreme) > 0:
            extreme = value
        elif up * (extreme - value) > least:
            turns, up, extreme = turns + 1, -up, value
    return turns / 2


def _growth(segments: Segments) -> float:
    """Return the logarithm of how much an error grows over a record, at most of all; 0 where the model fails."""
    best, growth = np.inf, 0.0
    for X in first_starts(segments, segments.problem.start):
        try:
            at = segments.at(segments.problem.start, X)
        except SimulationError:
            continue
        if at.r @ at.r < best:
            best, growth = float(at.r @ at.r), float(max(segments.growth_of_records(at)[0].max(), 0.0))
    return growth
