"""Conventions of the compiled solver and its callers: status codes, sizes of working arrays, when a state explodes."""

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
"""An initial value or the value of a change is not finite."""
NOT_FINITE = 8
"""A state is not finite at a row."""
NO_DELAY = 9
"""A delay is negative or not finite."""
SHORT_DELAY = 10
"""A delay is too short for the run: no step is longer than the shortest."""
LOST_DELAY = 12
"""A varying delay became zero, negative or NaN."""
NO_ROOM = 11
"""There is no room for further steps of the past; the run is repeated with more."""
FALLBACK = 13
"""The fast loop (`compiled.lanes`, `compiled.switching`) cannot finish the run; a more general one must do it."""

WORK, STOP = 15, 14
"""Rows of a run's working array: y, the new y, an argument, seven stages, four coefficients of the polynomial; and the
row whose first number is set to 1 by another thread to stop the run.
"""
WATCH_ROWS = 8
"""Rows of the array of values of conditions, see `compiled.crossings`."""

MOST_GROWTH = 1e3
"""Growth of a state (relative to its start or to atol/rtol) above which it has exploded, if it grows that fast."""
SHORTEST = 1e-8
"""An exploding state grows by a factor of e within this part of the time since the run began."""
HUGE, SHARE = 1e15, 0.5
"""A state that has grown by more than HUGE (rounding hides its start) explodes at this share of its mean speed."""
ROUNDED = 1e-6
"""A run counts as having lasted at least this part of the present time, since rounding hides shorter times."""
ENDLESS = 1e100
"""A state that has grown by more has exploded, however fast it grows."""


def has_exploded(
    start: Vector, y: Vector, slope: Vector, n_states: int, began: float, t: float, rtol: float, atol: Vector
) -> bool:
    """Tell whether some state is exploding at t, where a solver gave up.

    A step that became too small is no proof of it: rates that jump or have no value also have that effect.
    """
    lasted = max(t - began, ROUNDED * abs(t))
    for i in range(n_states):
        size, scale = abs(y[i]), max(abs(start[i]), atol[i] / rtol)
        part = 1.0 / (SHARE * math.log(size / scale)) if size > HUGE * scale else SHORTEST
        is_fast = size > ENDLESS * scale or size < part * lasted * abs(slope[i])
        if is_fast and size > MOST_GROWTH * scale and (y[i] > 0.0) == (slope[i] > 0.0):
            return True
    return False
