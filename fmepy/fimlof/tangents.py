"""Derivatives of innovations that go along with a pass of the filter, see `fmepy.filtering.score_loop`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from fmepy.filtering.run import has_tangents, innovation_slopes
from fmepy.filtering.schedule import Readings, Schedule
from fmepy.filtering.score_loop import Directions
from fmepy.fimlof.bound_filter import BoundFilter, settings_of
from fmepy.types import BoolVector, Matrix, Vector

STEP, ROUGH_STEP = 6e-6, 1e-7
"""Relative step of central differences of the filter, the cube root of the machine epsilon, and of forward ones."""
Side: TypeAlias = tuple[float, Vector, Vector | None]
"""A point of a difference: its distance from the parameter's value, and there the parameters of the filter, and the
initial values where they are not those that the model gives."""


def points_of_differences(
    theta: Vector, typical: Vector, lower: Vector, upper: Vector, rough: bool
) -> dict[int, tuple[float, float]]:
    """Return by parameter how far ahead and behind of theta differences look, within bounds.

    A parameter without a typical size, which needs steps that are found by trying, has none.
    """
    out = {}
    for j, value in enumerate(theta):
        h = (ROUGH_STEP if rough else STEP) * max(abs(value), 1e-3 * abs(float(typical[j])))
        h = min(h, 0.25 * float(upper[j] - lower[j]))
        ahead = h if value + h <= upper[j] else 0.0
        behind = 0.0 if (rough and ahead > 0.0) or value - h < lower[j] else -h
        if typical[j] != 0.0 and value + ahead != value + behind:
            out[j] = ahead, behind
    return out


def tangents(
    bound_filter: BoundFilter,
    schedule: Schedule,
    used: Readings | None,
    p: Vector,
    states: Vector | None,
    inflation: float,
    sides: Sequence[tuple[Side, Side, BoolVector]],
) -> tuple[Matrix, Matrix] | None:
    """Return the derivatives of innovations and variances, shape (n_obs, n_par); None where a pass does not carry them.

    Parameters
    ----------
    used : Readings, optional
        Data that the start uses up.
    p, states : ndarray
        The parameters, and the initial values where they are not those that the model gives.
    sides : sequence of (Side, Side, ndarray)
        By parameter the points ahead and behind, and which of p move with it.
    """
    inputs, events, correlation = settings_of(bound_filter, p, inflation)
    if not (sides and has_tangents(bound_filter.scheme)) or len(correlation):
        return None
    n, rows = len(bound_filter.spec.space.states), []
    for (ahead, q_up, y_up), (behind, q_down, y_down), moved in sides:
        width, x, P = ahead - behind, np.zeros(n), np.zeros((n, n))
        p_up, events_up, _ = settings_of(bound_filter, q_up, inflation)
        p_down, events_down, _ = settings_of(bound_filter, q_down, inflation)
        if states is not None or bound_filter.moves_start(moved):
            up = bound_filter.start(q_up, used, schedule, states=y_up)
            down = bound_filter.start(q_down, used, schedule, states=y_down)
            x, P = (up.x - down.x) / width, (up.P - down.P) / width
        of_events = ((events_up - events_down) / width)[schedule.event_places]
        rows.append((ahead, behind, p_up, p_down, of_events, x, P))
    at = Directions(*(np.ascontiguousarray(np.array(part, dtype=float)) for part in zip(*rows, strict=True)))
    start = bound_filter.start(p, used, schedule, states=states)
    found = innovation_slopes(bound_filter.scheme, schedule, start, inputs, events, at)
    return found if found is not None and all(np.isfinite(part).all() for part in found) else None
