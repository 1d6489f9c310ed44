# mypy: ignore-errors
"""The rates of a model with delays: where each delay reads, what stands there, and what the loop keeps of its steps.

See `compiled.delay_loop`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fmepy.compiled.kernels import call
from fmepy.types import IntVector

CLOSE = 1e-12
"""Relative distance below which two times are one."""
BEFORE, PRESENT, VARIES, NOWHERE = -1, -2, -3, -4
"""Where a delay reads: before the start; nowhere else than here, its delay being zero; where its value says, and that
may be in the step that is being taken, or ahead. Else the first of its steps."""


N_STEPS, IS_MOVING, VARYING, LOST, REACHED = 0, 1, 2, 3, 4
"""In the last row: how many steps are kept; whether a delay of zero moves with a parameter; how many delays vary; of
these the last that read nowhere since a step was taken, counted from one; the time up to which the steps count."""
STATE, FIRST, LAST, READ, PART, OF_DELAY = 0, 1, 2, 3, 4, 5
"""Of a delay: the state it is of; the first and last step that it may read (last -1: no end), and the one it read last;
the part of the past that the first belongs to. (All are whole numbers, in an array of floats.)"""


class DelayTables(NamedTuple):
    """The delays of a model, and its past, by addresses of functions like those of `ModelFunctions`.

    Attributes
    ----------
    values : int
        Gives the delays, and their derivatives to each parameter asked for, times its scale.
    history : int
        Gives z before the start, and behind it the slopes of the states in time.
    at : int
        Where in the inputs of a run the lagged values begin.
    states : ndarray of int
        Of which state each delay reads the past.
    varies : ndarray of int
        Whether it changes in a run.
    """

    values: int
    history: int
    at: int
    states: IntVector
    varies: IntVector


class Delayed(NamedTuple):
    """What the rates of one run read beside time and states.

    Attributes
    ----------
    tables : DelayTables
    rates, watch : int
        Of the model; the roots of its events.
    start : float
        Of the run.
    inputs : array
    delays : array, shape (n_delays + 1, OF_DELAY + n_blocks)
        Of each: what the names above say, then its value, and its derivatives to each parameter asked for; and a last
        row.
    steps : array, shape (n_kept, 2 + 5 n)
        Start of each, one over its length, and for each entry of z its value there and the coefficients.
    before : array
        Room for what the history gives.
    now : array, shape (n_blocks, n_delays)
        Room for the delays, and their derivatives.
    """

    tables: Any
    rates: Any
    watch: Any
    start: Any
    inputs: Any
    delays: Any
    steps: Any
    before: Any
    now: Any


def keep_step(m, t, h, y, c):
    """Keep the polynomial of a step; return whether there was room."""
    last = len(m.delays) - 1
    r = int(m.delays[last, N_STEPS])
    m.delays[last, LOST], m.delays[last, REACHED] = 0.0, t + h
    if t + h == t:  # an end that was reached but for rounding
        return True
    if r >= len(m.steps):
        return False
    step = m.steps[r]
    step[0] = t
    step[1] = 1.0 / h
    for i in range(len(y)):
        at = 2 + 5 * i
        step[at] = y[i]
        for j in range(4):
            step[at + 1 + j] = c[j, i]
    m.delays[last, N_STEPS] = r + 1
    return True


def _step_of(m, delay, s):
    """Return the step in which a delay finds the time s."""
    first, last, r = max(int(delay[FIRST]), 0), int(delay[LAST]), int(delay[READ])
    if last < 0:
        last = int(m.delays[len(m.delays) - 1, N_STEPS]) - 1
    r = min(max(r, first), last)
    while r > first and s < m.steps[r, 0]:
        r -= 1
    while r < last and s >= m.steps[r + 1, 0]:
        r += 1
    delay[READ] = r
    return r


def look_up(t, y, m):
    """Set the lagged values at a time, and what the sensitivities read; y is the present."""
    n_delays = len(m.delays) - 1
    n_blocks = m.delays.shape[1] - OF_DELAY
    n = len(y) // n_blocks
    if m.delays[n_delays, VARYING] > 0.0:
        call(m.tables.values, t, y, m.inputs, m.now)
    for k in range(n_delays):
        delay = m.delays[k]
        where = int(delay[FIRST])
        if where == VARIES:
            for b in range(n_blocks):
                delay[OF_DELAY + b] = m.now[b, k]
            where = _place(m, delay, t)
        i, at, s = int(delay[STATE]), m.tables.at + k, t - delay[OF_DELAY]
        if where >= 0:
            step = m.steps[_step_of(m, delay, s)]
            part, slope = (s - step[0]) * step[1], 0.0
            rest = 1.0 - part
            for b in range(n_blocks):
                p = 2 + 5 * (b * n + i)
                inner = step[p + 3] + rest * step[p + 4]
                bow = step[p + 2] + part * inner
                rise = step[p + 1] + rest * bow
                value = step[p] + part * rise
                if b == 0:
                    slope = (rise + part * (rest * (inner - part * step[p + 4]) - bow)) * step[1]
                    m.inputs[at] = value
                else:
                    m.inputs[at + b * n_delays] = value - slope * delay[OF_DELAY + b]
        else:
            _look_elsewhere(s, y, m, k, where)


def _place(m, delay, t):
    """Return where a delay that varies reads: in a step that is kept, before them all, here, or nowhere."""
    n_kept, s, tau = int(m.delays[len(m.delays) - 1, N_STEPS]), t - delay[OF_DELAY], delay[OF_DELAY]
    if not tau >= 0.0:
        return NOWHERE
    if tau == 0.0:
        for b in range(OF_DELAY + 1, len(delay)):
            if delay[b] != 0.0:  # its derivatives hang on slopes that are not known yet
                return NOWHERE
        return PRESENT
    if s < m.start:
        return BEFORE
    if n_kept == 0:
        return BEFORE if s == m.start else NOWHERE
    end = m.delays[len(m.delays) - 1, REACHED]
    return 0 if s <= end + CLOSE * abs(end) else NOWHERE


def _look_elsewhere(s, y, m, k, where):
    """Do so for a delay that reads the present, what was before the start, or nowhere."""
    n_delays = len(m.delays) - 1
    n_blocks = m.delays.shape[1] - OF_DELAY
    n, delay, at = len(y) // n_blocks, m.delays[k], m.tables.at + k
    i = int(delay[STATE])
    if where == NOWHERE:
        m.delays[n_delays, LOST] = k + 1
        m.inputs[at] = math.nan
    elif where == PRESENT:
        for b in range(n_blocks):
            m.inputs[at + b * n_delays] = y[b * n + i]
    else:
        call(m.tables.history, s, y, m.inputs, m.before)
        m.inputs[at] = m.before[i]
        for b in range(1, n_blocks):
            m.inputs[at + b * n_delays] = m.before[b * n + i] - m.before[n_blocks * n + i] * delay[OF_DELAY + b]


def rates(t, y, m, out):
    """Set the rates, with the past that they read."""
    look_up(t, y, m)
    call(m.rates, t, y, m.inputs, out)
    if m.delays[len(m.delays) - 1, IS_MOVING] != 0.0:
        _rates_of_present(t, y, m, out)


def watch(t, y, m, out):
    """Set the roots."""
    call(m.watch, t, y, m.inputs, out)


def _rates_of_present(t, y, m, out):
    """Correct the rates of sensitivities for delays of zero that move: now that the present slopes are known."""
    n_delays = len(m.delays) - 1
    for k in range(n_delays):
        delay = m.delays[k]
        if int(delay[FIRST]) == PRESENT:
            for b in range(1, m.delays.shape[1] - OF_DELAY):
                m.inputs[m.tables.at + b * n_delays + k] -= out[int(delay[STATE])] * delay[OF_DELAY + b]
    call(m.rates, t, y, m.inputs, out)


def moves(m, k):
    """Tell whether a delay depends on a parameter that sensitivities are asked for."""
    for b in range(OF_DELAY + 1, m.delays.shape[1]):  # noqa: SIM110    # a kernel has no any()
        if m.delays[k, b] != 0.0:
            return True
    return False
