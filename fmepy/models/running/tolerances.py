"""Accuracy of runs: tolerances by the scale of the model, the largest step, and warnings about them.

A solver accepts a step whose error is below ``atol + rtol |y|`` in every state. An atol of 1e-6 is noise for a state
that is never above 1e-9: so the default is a millionth of the largest value that each state takes in a first run at the
model's own parameters, and at most 1e-6. The first run needs tolerances itself. They come from the initial values, and
the run is repeated with the tolerances found while a state is not far above its own.

A state that grows from a small value to a large one carries the error of its beginning along: an epidemic that starts
from 1e-7 of a population needs an atol far below that. So atol is at most a thousandth of a start that is not zero. The
same holds if a state grows from a trough, from a small event, or from the inflow of a small state. The first run shows
this, and a second one with that atol shows whether it matters: growth that is fed from outside, and a state that goes
through zero, do not need it. The long steps of a stiff method damp growth, too: a state below its atol may stay there
although it should have recovered, as the integral of its own growth rate shows.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import ge
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number
from fmepy.compiled.python_code import array_function
from fmepy.errors import ModelError, SimulationError
from fmepy.language.derivatives import gradients
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.nodes import ZERO, Node, Symbol, as_node
from fmepy.models.definition.definition import Definition
from fmepy.models.running.forcings import forcing_values
from fmepy.models.running.timeline import merged
from fmepy.parameters.named import check_names
from fmepy.types import BoolVector, Matrix, Vector

Rise = Callable[[Matrix, int], Vector]
"""``rise(Y, i)``: the exponents by which a small difference of state i has grown by itself, at the rows of a run."""

LEAST_RTOL = 1e-14
"""About fifty rounding errors: below it no step can be accepted."""
RELATIVE = 1e-6
"""Default atol of a state, relative to its largest value; and the largest default."""
RESOLVED = 1000.0
"""A state that stays below this multiple of its atol is mostly the solver's error."""
_SMALLEST = 1e-290
_ROUNDING = 16 * float(np.finfo(float).eps)  # of the largest state: what is left of sums that cancel
_SHARP = 1e-8  # of the atol of a first run that failed: that of a second one
_UNKNOWN = 1e-9  # of the largest initial value: the smallest scale that a state that begins at zero is taken to have
_MOST_TRIALS = 5
_FEW = 50
"""States up to which growth is looked for at all times; in larger models, grids with moving fronts, at the start."""
_MATTERS = 1e-4
"""A change of a state, relative to its largest value, that shows that a smaller atol matters."""
_WRONG = 1e-3
"""A change of a state, relative to its largest value, that is worth a warning."""
MOST_SMALL_STEPS = 1e6
"""Largest number of steps in a run that `max_step` may ask of an adaptive solver."""
MOST_FIXED_STEPS = 1e8
"""Largest number of steps of fixed length in a run: all of them are in memory."""
_LEAST_STEPS, _MOST_FORCED, _GOLDEN = 32, 200, 0.618
"""Steps of a run on scipy whose rates read the time: at least, and at most where that is for the sake of rows alone; a
factor that keeps steps from falling together with periods."""
_EXTRA_ROWS = 101  # rows of the first run beside the model's own, so that it sees what happens between two of them


def read_tolerances(rtol: Any, atol: Any, states: Sequence[str]) -> tuple[float, Vector]:
    """Return rtol, and atol by state, NaN where the model's scale decides; 0 is the smallest there is.

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
    relative = positive_number(rtol, "rtol", error=ModelError)
    if relative < LEAST_RTOL:
        raise ModelError(
            f"`rtol={rtol!r}` is below what numbers of double precision can hold; give at least {LEAST_RTOL:g}."
        )
    least = [_SMALLEST if a == 0 else a for a in given]
    return relative, np.array([np.nan if a is None else positive_number(a, "atol", error=ModelError) for a in least])


def read_max_step(max_step: Any, span: float) -> float:
    """Return the largest step, infinite if none is given; refuse one that needs millions of steps."""
    if max_step is None:
        return np.inf
    longest = positive_number(max_step, "max_step", error=ModelError)
    check_number_of_steps(span, longest, f"max_step={max_step!r}", MOST_SMALL_STEPS)
    return longest


def default_max_step(definition: Definition, start: float, rows: Vector) -> float:
    """Return the largest step of a run on scipy's solvers: shorter than the largest gap of its rows.

    LSODA may make its second step ten thousand times as long as its first: where rates are zero at the start, it is the
    whole run. Rates that do not read the time cannot begin to change behind its back. Many rows do not make a run slow.
    """
    d, gaps = definition, np.diff(rows, prepend=start)
    reads = reads_time(d.source) if d.equations is None else d.time in names_in(d.equations.rates)
    longest, span = float(gaps.max(initial=0.0)), float(gaps.sum())
    return _GOLDEN * max(min(longest, span / _LEAST_STEPS), span / _MOST_FORCED) if reads and span else np.inf


def check_number_of_steps(span: float, step: float, argument: str, most: float) -> None:
    """Raise a ModelError if there are far too many steps, as by a mistaken unit of time."""
    if span / step > most:
        raise ModelError(
            f"`{argument}` takes {span / step:.2g} steps from the first to the last of `times`, more than {most:.0e}. "
            "Give a longer step, or a shorter time."
        )


def scaled_tolerances(
    given: Vector,
    start: Vector,
    trial: Callable[[Vector], Matrix],
    by_events: Vector | float = 0.0,
    rise: Rise | None = None,
) -> Vector:
    """Return atol by state: as given, or where that is NaN by the scale of the model.

    Parameters
    ----------
    given : ndarray, shape (n_state,)
    start : ndarray, shape (n_state,)
        Values at the start; 0 where none is known.
    trial : callable
        ``trial(atol)`` runs the model and returns its states, shape (n_time, n_state), the first row at the start.
    by_events : ndarray, shape (n_state,)
        The largest values that events set the states to, or add.
    rise : callable, optional
        Of the runs of `trial`, see `rise_of`.
    """
    free, sizes = np.isnan(given), np.abs(start)
    first = _first_run(given, sizes, by_events, trial)
    if first is None:
        return np.where(free, RELATIVE, given)
    worked, Y, sizes, has_failed = first
    start = np.maximum(sizes, by_events)
    for _ in range(_MOST_TRIALS):
        largest = np.maximum(np.abs(Y).max(axis=0), start)
        largest[largest <= _ROUNDING * largest.max()] = 0.0
        small = free & (largest > 0) & (largest < RESOLVED * worked)
        atol = np.where(free, RELATIVE * np.where(largest > 0, np.minimum(largest, 1.0), 1.0), given)
        if not small.any():
            break
        again = _trial_run(trial, atol)
        if again is None:
            return worked
        Y, worked = again, atol
    atol = np.where(free & (sizes > 0), np.minimum(atol, sizes / RESOLVED), atol)
    atol = _for_growth(atol, free, Y, trial, rise)
    return worked if has_failed and _trial_run(trial, atol) is None else atol


def _first_run(
    given: Vector, sizes: Vector, by_events: Vector | float, trial: Callable[[Vector], Matrix]
) -> tuple[Vector, Matrix, Vector, bool] | None:
    """Return atol of a first run that works, its states, the starts that count, and whether a larger atol failed.

    None if no run works.

    A start as small as the rounding of another may be intended, or may be noise that no solver can follow. A state that
    falls to nothing before it grows, or reacts with another, may become negative if atol is large, and then run towards
    minus infinity until no step is small enough.
    """
    meant = np.where(sizes > _ROUNDING * sizes.max(initial=0.0), sizes, 0.0)
    for counted, factor in ((sizes, 1.0), (meant, 1.0), (meant, _SHARP), (meant, 0.0)):
        if factor == 1 and counted is meant and (meant == sizes).all():
            continue
        guess = np.maximum(factor * _first_guess(np.maximum(counted, by_events)), _SMALLEST)
        atol = np.where(np.isnan(given), guess, given)
        Y = _trial_run(trial, atol)
        if Y is not None:
            return atol, Y, counted, factor < 1
    return None


def _for_growth(
    atol: Vector, free: BoolVector, Y: Matrix, trial: Callable[[Vector], Matrix], rise: Rise | None
) -> Vector:
    """Return atol, reduced if a state grows from such a small value that it changes the run Y of the model."""
    coarse: Matrix | None = None
    for k in range(_MOST_TRIALS):
        fine = np.where(free, finer(Y, atol, rise), atol)
        if (fine == atol).all():
            break
        if k == 0:
            coarse = _trial_run(trial, atol)
        sharp = _trial_run(trial, fine)
        if sharp is None:  # a state may start at zero
            fine = np.where(free, finer(Y, atol), atol)
            sharp = _trial_run(trial, fine)
        if sharp is None:  # noise may grow to minus infinity
            fine = np.where(fine < atol, _SMALLEST, atol)
            sharp = _trial_run(trial, fine)
        if sharp is None or (coarse is not None and changes(coarse, sharp).max() < _MATTERS):
            break
        atol, coarse, Y = fine, sharp, sharp
    return atol


def _trial_run(trial: Callable[[Vector], Matrix], atol: Vector) -> Matrix | None:
    try:
        return trial(atol)
    except SimulationError:
        return None


def finer(Y: Matrix, atol: Vector, rise: Rise | None = None) -> Vector:
    """Return atol by state, a thousandth of the least value from which a state grows more than a thousandfold.

    A state that has not grown so, but should have by its `rise`, gets the smallest atol.

    Y : ndarray, shape (n_time, n_state)
        The first row is the start. States that take both signs go through zero, and do not grow from there.
    """
    size, enough = np.abs(Y), RESOLVED * atol
    ahead = np.maximum.accumulate(size[::-1])[::-1]  # the largest from each row on
    low = (size > 0) & (size < enough) & (ahead > RESOLVED * size) & (ahead > enough)
    one_sign = (Y.max(axis=0) < enough) | (Y.min(axis=0) > -enough)
    low &= one_sign
    if len(atol) > _FEW:
        low[1:] = False
    least = np.where(low, size, np.inf).min(axis=0)
    fine = np.minimum(atol, np.maximum(least / RESOLVED, _SMALLEST))
    noise = (size > 0) & (size < atol) & one_sign
    if rise is None or len(atol) > _FEW:
        return np.asarray(fine)
    for i in np.flatnonzero(noise.any(axis=0)).tolist():
        grown_by = rise(Y, i)
        begun = np.log(size[:, i], where=noise[:, i], out=np.full(len(Y), -np.inf)) - grown_by
        due = np.maximum.accumulate(begun) + grown_by > np.log(RESOLVED * enough[i])
        if (due & (size[:, i] < enough[i])).any():
            fine[i] = _SMALLEST
    return np.asarray(fine)


def rise_of(definition: Definition, times: Vector, p: list[float]) -> Rise | None:
    """Return the function `Rise` of runs at `times`; None for a model without equations, or with delays.

    The exponents are the integral of the derivative of the state's rate with respect to itself.
    """
    d = definition
    if d.equations is None or d.has_delays or d.algebraic:
        return None
    rates, forced = d.equations.rates, forcing_values(d.forcings, times)

    def rise(Y: Matrix, i: int) -> Vector:
        slope = _slope(d.groups[:4], rates[i], symbol(d.states[i]))((times,), Y.T, p, forced)[0]
        values = np.nan_to_num(np.broadcast_to(slope, len(times)))
        return np.concatenate([[0.0], np.cumsum(np.diff(times) * (values[1:] + values[:-1]) / 2)])

    return rise


@lru_cache(maxsize=256)
def _slope(groups: tuple[tuple[str, ...], ...], rate: Node, state: Symbol) -> Callable[..., list[Any]]:
    return array_function(symbols(*groups), [gradients([rate], [state])[0].get(state, ZERO)])


def changes(Y: Matrix, other: Matrix) -> Vector:
    """Return the largest change of each state from one run to another, relative to its largest value."""
    largest = np.abs(other).max(axis=0)
    return np.asarray(np.abs(Y - other).max(axis=0) / np.where(largest > 0, largest, 1.0))


def first_rows(times: Vector) -> Vector:
    """Return the times of the rows of the first run."""
    return np.unique(merged(np.concatenate([times, np.linspace(times[0], times[-1], _EXTRA_ROWS)])))


def _first_guess(start: Vector) -> Vector:
    """Return atol for the first run; states of unknown size are taken to be as small as the smallest other one."""
    size = np.abs(start)
    most = size.max(initial=0.0)
    sizes = size > 0
    if not sizes.any() or not np.isfinite(most):
        return np.full(len(start), RELATIVE)
    other = max(size[sizes].min(), _UNKNOWN * most)
    return np.asarray(RELATIVE * np.minimum(np.where(sizes, size, other), 1.0))


def known_starts(definition: Definition) -> Callable[[list[float]], Vector]:
    """Return a function of the parameters: sizes of the states at the start, 0 where unknown."""
    table, guesses = definition.starts(), definition.algebraic_places

    def starts(p: list[float]) -> Vector:
        try:
            sizes: Vector = np.abs(table.value(p))
        except SimulationError:  # the run will fail too
            return np.zeros(len(definition.states))
        if guesses:
            sizes[guesses] = 0.0  # guesses say nothing about the values
        return sizes

    return starts


def known_starts_of_many(definition: Definition) -> Callable[[Matrix], Matrix]:
    """Return `known_starts` for many runs at once, shape (n_run, n_state); NaN where a run cannot start."""
    guesses = definition.algebraic_places
    table = array_function(symbols(definition.parameters), [as_node(v) for v in definition.initial])

    def starts(P: Matrix) -> Matrix:
        sizes: Matrix = np.abs(np.stack([np.broadcast_to(v, len(P)) for v in table(P.T)], axis=1))
        sizes[:, guesses] = 0.0
        return sizes

    return starts


def unresolved(Y: Matrix, limits: list[float], states: Sequence[str]) -> str:
    """Return a warning about nonzero states that stay below their limit, or an empty string."""
    if all(map(ge, map(abs, Y[-1].tolist()), limits)):  # enough in nearly every run, and this is asked in every run
        return ""
    largest = np.abs(Y[:, : len(limits)]).max(axis=0)
    least = _ROUNDING * largest.max()
    low = [i for i, most in enumerate(limits) if least < largest[i] < most]
    if not low:
        return ""
    which = ", ".join(f"{states[i]} (at most {largest[i]:.2g})" for i in low)
    advice = ", ".join(f"{states[i]!r}: {RELATIVE * largest[i]:.1g}" for i in low)
    return (
        "In a run of the model some states stay so small that they may be the solver's error, below "
        f"{RESOLVED:g} times their absolute tolerance: {which}. If they matter, pass atol={{{advice}}}."
    )


def grown(
    Y: Matrix, atol: Vector, again: Callable[[Vector], Matrix], states: Sequence[str], rise: Rise | None = None
) -> str:
    """Return a warning about states that grow from such small values that atol makes a run wrong, or an empty string.

    Parameters
    ----------
    Y : ndarray, shape (n_time, n_state)
        The run; the first row is the start.
    again : callable
        ``again(atol)`` repeats the run with other tolerances.
    rise : callable, optional
        Of this run, see `rise_of`.
    """
    fine = finer(Y, atol, rise)
    small: list[int] = np.flatnonzero(fine < atol).tolist()
    if not small:
        return ""
    try:
        change = changes(Y, again(fine))
    except SimulationError:
        return ""
    worst = int(change.argmax())
    if change[worst] < _WRONG:
        return ""
    least = [f"{RESOLVED * v:.2g}" if v > _SMALLEST else "next to nothing" for v in fine]
    which = ", ".join(f"{states[i]} (from {least[i]}, atol {atol[i]:.2g})" for i in small)
    advice = ", ".join(f"{states[i]!r}: {fine[i]:.1g}" for i in small)
    return (
        f"In a run of the model some states grow from values that are small beside their absolute tolerance: {which}. "
        f"Smaller tolerances change the run: {states[worst]} by {100 * change[worst]:.2g} % of its largest value. Pass "
        f"atol={{{advice}}} to the model, or build it with parameters at which its states start as small."
    )


def reads_time(rhs: Any) -> bool:
    """Tell whether a function uses its first argument, the time; True if its code cannot be read."""
    function = inspect.unwrap(getattr(rhs, "function", rhs))  # of profiles, the user's own
    code, place = getattr(function, "__code__", None), int(inspect.ismethod(function))
    if code is None or code.co_argcount <= place:
        return True
    time = code.co_varnames[place]
    for instruction in dis.get_instructions(code):
        names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        if instruction.opname.startswith("LOAD") and time in names:
            return True
    return False
