# mypy: ignore-errors
"""The rates of a model with delays: lagged values are interpolated in the steps that the loop has stored.

See `compiled.delay_loop`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from fmepy.compiled.kernels import call
from fmepy.types import IntVector

CLOSE = 1e-12
"""Relative distance below which two times are equal."""
BEFORE, PRESENT, VARIES, UNKNOWN = -1, -2, -3, -4
"""What a delay reads, in the column FIRST: the history before the start; the present, if it is zero; a source that its
current value decides; or nothing yet, since that step is still being taken. Else the first step that it may read."""

N_STEPS, ZERO_MOVES, VARYING, LOST, REACHED = 0, 1, 2, 3, 4
"""Columns of the last row: number of stored steps; whether a delay of zero depends on a parameter; number of varying
delays; number, from one, of the last of these without a value since the last step; end of the last step."""
STATE, FIRST, LAST, LAST_READ, PIECE, VALUE = 0, 1, 2, 3, 4, 5
"""Columns of a delay: its state; the first and last step that it may read (last -1: no limit), and the step read last;
the piece of the past that the first belongs to (all whole numbers, as floats); its value, followed by derivatives."""


class DelayTables(NamedTuple):
    """Delays and history of a model as addresses of functions, see `ModelFunctions`.

    Attributes
    ----------
    values : int
        Computes the delays, and their derivatives to each parameter of the sensitivities, times its scale.
    history : int
        Computes z before the start, followed by the time derivatives of the states.
    first_lag : int
        Index of the first lagged value in the inputs of a run.
    states : ndarray of int
        The state whose past each delay reads.
    varies : ndarray of int
        Whether each delay changes within a run.
    """

    values: int
    history: int
    first_lag: int
    states: IntVector
    varies: IntVector


class DelayedRates(NamedTuple):
    """A model with delays as its `rates` read it in one run.

    Attributes
    ----------
    tables : DelayTables
    rates, watch : int
        Addresses of the rates and of the roots of events.
    start : float
        Start of the run.
    inputs : array
    delays : array, shape (n_delays + 1, VALUE + n_blocks)
        A row for each delay and a last one, see the names of their columns above.
    steps : array, shape (n_steps, 2 + 5 n)
        Start and reciprocal length of each step, then for each entry of z its value at the start and 4 coefficients.
    history : array
        Output of the function `history`.
    current : array, shape (n_blocks, n_delays)
        Output of the function `values`: delays and derivatives at the present time.
    """

    tables: Any
    rates: Any
    watch: Any
    start: Any
    inputs: Any
    delays: Any
    steps: Any
    history: Any
    current: Any


def store_step(m, t, h, y, c):
    """Store the polynomial of a step; return False if there is no room for it."""
    last = len(m.delays) - 1
    r = int(m.delays[last, N_STEPS])
    m.delays[last, LOST], m.delays[last, REACHED] = 0.0, t + h
    if t + h == t:  # the end was reached, apart from rounding
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
    """Return the number of the step, among those that a delay may read, that contains the time s."""
    first, last, r = max(int(delay[FIRST]), 0), int(delay[LAST]), int(delay[LAST_READ])
    if last < 0:
        last = int(m.delays[len(m.delays) - 1, N_STEPS]) - 1
    r = min(max(r, first), last)
    while r > first and s < m.steps[r, 0]:
        r -= 1
    while r < last and s >= m.steps[r + 1, 0]:
        r += 1
    delay[LAST_READ] = r
    return r


def look_up(t, y, m):
    """Set the lagged values at time t, and those of the sensitivities; y is the present state."""
    n_delays = len(m.delays) - 1
    n_blocks = m.delays.shape[1] - VALUE
    n = len(y) // n_blocks
    if m.delays[n_delays, VARYING] > 0.0:
        call(m.tables.values, t, y, m.inputs, m.current)
    for k in range(n_delays):
        delay = m.delays[k]
        source = int(delay[FIRST])
        if source == VARIES:
            for b in range(n_blocks):
                delay[VALUE + b] = m.current[b, k]
            source = _source(m, delay, t)
        i, at, s = int(delay[STATE]), m.tables.first_lag + k, t - delay[VALUE]
        if source >= 0:
            step = m.steps[_step_of(m, delay, s)]
            part, slope = (s - step[0]) * step[1], 0.0
            left = 1.0 - part
            for b in range(n_blocks):
                p = 2 + 5 * (b * n + i)
                inner = step[p + 3] + left * step[p + 4]
                bow = step[p + 2] + part * inner
                rise = step[p + 1] + left * bow
                value = step[p] + part * rise
                if b == 0:
                    slope = (rise + part * (left * (inner - part * step[p + 4]) - bow)) * step[1]
                    m.inputs[at] = value
                else:
                    m.inputs[at + b * n_delays] = value - slope * delay[VALUE + b]
        else:
            _look_up_elsewhere(s, y, m, k, source)


def _source(m, delay, t):
    """Return what a varying delay reads: 0 (a stored step), BEFORE, PRESENT or UNKNOWN."""
    n_steps, s, tau = int(m.delays[len(m.delays) - 1, N_STEPS]), t - delay[VALUE], delay[VALUE]
    if not tau >= 0.0:
        return UNKNOWN
    if tau == 0.0:
        for b in range(VALUE + 1, len(delay)):
            if delay[b] != 0.0:  # its derivatives need rates that are not known yet
                return UNKNOWN
        return PRESENT
    if s < m.start:
        return BEFORE
    if n_steps == 0:
        return BEFORE if s == m.start else UNKNOWN
    end = m.delays[len(m.delays) - 1, REACHED]
    return 0 if s <= end + CLOSE * abs(end) else UNKNOWN


def _look_up_elsewhere(s, y, m, k, source):
    """Set the lagged values of a delay that reads no stored step."""
    n_delays = len(m.delays) - 1
    n_blocks = m.delays.shape[1] - VALUE
    n, delay, at = len(y) // n_blocks, m.delays[k], m.tables.first_lag + k
    i = int(delay[STATE])
    if source == UNKNOWN:
        m.delays[n_delays, LOST] = k + 1
        m.inputs[at] = math.nan
    elif source == PRESENT:
        for b in range(n_blocks):
            m.inputs[at + b * n_delays] = y[b * n + i]
    else:
        call(m.tables.history, s, y, m.inputs, m.history)
        m.inputs[at] = m.history[i]
        for b in range(1, n_blocks):
            m.inputs[at + b * n_delays] = m.history[b * n + i] - m.history[n_blocks * n + i] * delay[VALUE + b]


def rates(t, y, m, out):
    """Compute the rates, after looking up the lagged values."""
    look_up(t, y, m)
    call(m.rates, t, y, m.inputs, out)
    if m.delays[len(m.delays) - 1, ZERO_MOVES] != 0.0:
        _rates_of_present(t, y, m, out)


def watch(t, y, m, out):
    """Compute the roots."""
    call(m.watch, t, y, m.inputs, out)


def _rates_of_present(t, y, m, out):
    """Correct the sensitivities' rates for delays of zero that depend on parameters, by the present rates."""
    n_delays = len(m.delays) - 1
    for k in range(n_delays):
        delay = m.delays[k]
        if int(delay[FIRST]) == PRESENT:
            for b in range(1, m.delays.shape[1] - VALUE):
                m.inputs[m.tables.first_lag + b * n_delays + k] -= out[int(delay[STATE])] * delay[VALUE + b]
    call(m.rates, t, y, m.inputs, out)


def is_sensitive(m, k):
    """Tell whether a delay depends on a parameter of the sensitivities."""
    for b in range(VALUE + 1, m.delays.shape[1]):  # noqa: SIM110    # a kernel has no any()
        if m.delays[k, b] != 0.0:
            return True
    return False
