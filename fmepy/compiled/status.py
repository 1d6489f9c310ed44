"""What the compiled solver and those who call it agree upon: room to work in, how a run ends, what an explosion is."""

from __future__ import annotations

import math

from fmepy.types import Vector

DONE = 0
CROSSED = 1
TOO_MANY_STEPS = 2
STEP_TOO_SMALL = 3
STIFF = 4
NO_RATES = 5
EXPLODED = 6
NO_VALUE = 7
"""An initial value or that of a change is not finite."""
NOT_FINITE = 8
"""A state is not, at a row."""
NO_DELAY = 9
"""A delay is negative, or no finite number."""
SHORT_DELAY = 10
"""A delay is too short for the run: no step is longer than the shortest."""
LOST_DELAY = 12
"""A delay that varies came to zero, or is negative or no number."""
NO_ROOM = 11
"""The steps of the past are more than there is room for; the run is begun again with more."""
ALONE = 13
"""A run among lanes that does not come to its end; it is to be run by itself, see `compiled.lanes`."""

WORK, STOP = 15, 14
"""Rows of the array that a run works in: y, its new value, an argument, seven stages, four of the polynomial; and the
row whose first number is 0, until somebody else wants the run to end.
"""
SEEN = 8
"""Rows of the array in which conditions are looked at, see `compiled.crossings`."""

MOST_GROWTH = 1e3
"""A state that has grown by more, of its start or of atol/rtol, and grows as fast as SHORTEST says, has exploded."""
SHORTEST = 1e-8
"""Part of the time since it began within which a state that has exploded grows by a factor of e."""
HUGE, SHARE = 1e15, 0.5
"""The same of a state so far off that its start is lost in rounding: it does so at this share of its average speed."""
ROUNDED = 1e-6
"""Part of the present time that a run has lasted at least: rounding hides what is shorter than `SHORTEST` of that."""
ENDLESS = 1e100
"""A state that has grown by more has exploded, however fast it grows."""


def has_exploded(
    start: Vector, y: Vector, slope: Vector, n_states: int, began: float, t: float, rtol: float, atol: Vector
) -> bool:
    """Tell whether a state where a solver gave up at t, and its rate, are beyond all bounds.

    That a step became too small says nothing by itself: it does so too where rates jump or have no value.
    """
    lasted = max(t - began, ROUNDED * abs(t))
    for i in range(n_states):
        size, scale = abs(y[i]), max(abs(start[i]), atol[i] / rtol)
        part = 1.0 / (SHARE * math.log(size / scale)) if size > HUGE * scale else SHORTEST
        is_fast = size > ENDLESS * scale or size < part * lasted * abs(slope[i])
        if is_fast and size > MOST_GROWTH * scale and (y[i] > 0.0) == (slope[i] > 0.0):
            return True
    return False
