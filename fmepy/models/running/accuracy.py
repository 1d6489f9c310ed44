"""How accurate a run is asked to be: tolerances that fit the model's scale, the largest step, and what is told of both.

A solver accepts a step whose error is below ``atol + rtol |y|`` in every state. An atol of 1e-6 is noise for a state
that is never above 1e-9: so the default is a millionth of the largest value that each state takes in a first run at the
model's own parameters, and at most 1e-6. The first run needs tolerances itself. They come from the initial values, and
it is repeated, with those that it found, while a state is not far above its own.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from operator import ge
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number
from fmepy.errors import ModelError, SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.changes import sizes_set
from fmepy.models.running.events import Event
from fmepy.models.running.timeline import merged
from fmepy.parameters.named import check_names
from fmepy.types import Matrix, Vector

RELATIVE = 1e-6
"""Default atol of a state, relative to its largest value; and the largest default."""
RESOLVED = 1000.0
"""A state that stays below so many times its atol is mostly the solver's error."""
_ROUNDING = 16 * float(np.finfo(float).eps)  # of the largest state: what is left of sums that cancel
_UNKNOWN = 1e-9  # of the largest initial value: the smallest scale that a state that begins at zero is taken to have
_MOST_TRIALS = 5
MOST_SMALL_STEPS = 1e6
"""Steps of an adaptive solver that `max_step` may ask for in a run."""
MOST_FIXED_STEPS = 1e8
"""Steps of a fixed length that a run may have: all of them are kept in memory."""
_LOOKS = 101  # rows of the first run beside the model's own, so that it sees what happens between two of them


def read_tolerances(rtol: Any, atol: Any, states: Sequence[str]) -> tuple[float, Vector]:
    """Return rtol, and atol by state, NaN where the model's scale decides.

    Raises
    ------
    ModelError, ParameterError
        A value that is not positive, a wrong number of them, an unknown state.
    """
    if isinstance(atol, Mapping | pd.Series):
        found = check_names(list(atol.keys()), states, argument="atol", what="state")
        by_state = dict(zip(found, dict(atol).values(), strict=True))
        given = [by_state.get(s) for s in states]
    elif np.ndim(atol) > 1:
        raise ModelError(f"`atol` must be a number, one number a state, or a dict by state; got {np.ndim(atol)} axes.")
    elif atol is None or np.ndim(atol) == 0:
        given = [atol] * len(states)
    else:
        given = list(atol)
        if len(given) != len(states):
            raise ModelError(f"`atol` has {len(given)} values for {len(states)} states.")
    return positive_number(rtol, "rtol", error=ModelError), np.array(
        [np.nan if a is None else positive_number(a, "atol", error=ModelError) for a in given]
    )


def read_max_step(max_step: Any, span: float) -> float:
    """Return the largest step, infinite where none is given; one that asks for millions of steps is refused."""
    if max_step is None:
        return np.inf
    longest = positive_number(max_step, "max_step", error=ModelError)
    check_number_of_steps(span, longest, f"max_step={max_step!r}", MOST_SMALL_STEPS)
    return longest


def check_number_of_steps(span: float, step: float, told: str, most: float) -> None:
    """Refuse steps that are too many to be meant, such as by a slip of the unit of time (ModelError)."""
    if span / step > most:
        raise ModelError(
            f"`{told}` takes {span / step:.2g} steps from the first to the last of `times`, more than {most:.0e}. Give "
            "a longer step, or a shorter time."
        )


def scaled_tolerances(given: Vector, start: Vector, trial: Callable[[Vector], Matrix]) -> Vector:
    """Return atol by state: as given, and where that is NaN as the scale of the model asks.

    Parameters
    ----------
    given : ndarray, shape (n_state,)
    start : ndarray, shape (n_state,)
        Values that the states are known to take: at the start, or by an event; 0 where none is known.
    trial : callable
        ``trial(atol)`` runs the model and returns its states, shape (n_time, n_state).
    """
    free = np.isnan(given)
    worked, atol = np.where(free, RELATIVE, given), np.where(free, _first_guess(start), given)
    for _ in range(_MOST_TRIALS):
        try:
            Y = trial(atol)
        except SimulationError:
            return worked
        worked = atol
        largest = np.maximum(np.abs(Y).max(axis=0), np.abs(start))
        largest[largest <= _ROUNDING * largest.max()] = 0.0
        small = free & (largest > 0) & (largest < RESOLVED * atol)
        atol = np.where(free, RELATIVE * np.where(largest > 0, np.minimum(largest, 1.0), 1.0), given)
        if not small.any():
            break
    return atol


def first_rows(times: Vector) -> Vector:
    """Return the rows of the first run."""
    return np.unique(merged(np.concatenate([times, np.linspace(times[0], times[-1], _LOOKS)])))


def _first_guess(start: Vector) -> Vector:
    """Return atol for the first run; states of unknown size are taken to be of that of the smallest other."""
    size = np.abs(start)
    most = size.max(initial=0.0)
    begins = size > _ROUNDING * most
    if not begins.any() or not np.isfinite(most):
        return np.full(len(start), RELATIVE)
    other = max(size[begins].min(), _UNKNOWN * most)
    return np.asarray(RELATIVE * np.minimum(np.where(begins, size, other), 1.0))


def known_sizes(definition: Definition, events: Sequence[Event], p: list[float]) -> Vector:
    """Return the largest value that each state is set to, at the start and by events."""
    try:
        sizes = np.abs(ValueTable(definition.initial, definition.parameters).value(p))
    except SimulationError:  # the first run will fail too
        return np.zeros(len(definition.states))
    sizes[definition.algebraic_places] = 0.0  # guesses say nothing of the values that are taken
    return np.maximum(sizes, sizes_set(events, definition, p))


def unresolved(Y: Matrix, limits: list[float], states: Sequence[str]) -> str:
    """Return a sentence on the states that stay below their limit without being zero, but for rounding; or nothing."""
    if all(map(ge, map(abs, Y[-1].tolist()), limits)):  # enough in nearly every run, and this is asked in every run
        return ""
    largest = np.abs(Y[:, : len(limits)]).max(axis=0)
    least = _ROUNDING * largest.max()
    low = [i for i, most in enumerate(limits) if least < largest[i] < most]
    if not low:
        return ""
    told = ", ".join(f"{states[i]} (at most {largest[i]:.2g})" for i in low)
    advice = ", ".join(f"{states[i]!r}: {RELATIVE * largest[i]:.1g}" for i in low)
    return (
        "In a run of the model some states stay so small that they may be the solver's error, below "
        f"{RESOLVED:g} times their absolute tolerance: {told}. If they matter, pass atol={{{advice}}}."
    )


def reads_time(rhs: Any) -> bool:
    """Tell whether a function uses its first argument, the time; True where its code cannot be read."""
    function = inspect.unwrap(rhs)
    code, place = getattr(function, "__code__", None), int(inspect.ismethod(function))
    if code is None or code.co_argcount <= place:
        return True
    time = code.co_varnames[place]
    for instruction in dis.get_instructions(code):
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if instruction.opname.startswith("LOAD") and time in names:
            return True
    return False
