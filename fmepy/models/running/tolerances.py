"""How accurate a run is asked to be: tolerances that fit the model's scale, the largest step, and what is told of both.

A solver accepts a step whose error is below ``atol + rtol |y|`` in every state. An atol of 1e-6 is noise for a state
that is never above 1e-9: so the default is a millionth of the largest value that each state takes in a first run at the
model's own parameters, and at most 1e-6. The first run needs tolerances itself. They come from the initial values, and
it is repeated, with those that it found, while a state is not far above its own.

A state that grows from a small value to a large one carries the error of its beginning along: an epidemic that starts
from 1e-7 of a population needs an atol far below that. So atol is at most a thousandth of a start that is not zero. The
same holds where a state grows from a trough, from a small event, or from what a small state feeds into it. There the
first run shows it, and a second one with that atol shows whether it matters: growth that is fed from outside, and a
state that goes through zero, do not need it. A stiff method's long steps damp what grows, too: a state below its atol
may stay there though it would have come back long since, which its own growth along the run shows.
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
"""Some fifty roundings: below it no step can be accepted for its accuracy."""
RELATIVE = 1e-6
"""Default atol of a state, relative to its largest value; and the largest default."""
RESOLVED = 1000.0
"""A state that stays below so many times its atol is mostly the solver's error."""
_SMALLEST = 1e-290
_ROUNDING = 16 * float(np.finfo(float).eps)  # of the largest state: what is left of sums that cancel
_SHARP = 1e-8  # of the atol of a first run that failed: that of a second one
_UNKNOWN = 1e-9  # of the largest initial value: the smallest scale that a state that begins at zero is taken to have
_MOST_TRIALS = 5
_FEW = 50
"""States of a model in which growth is looked for at all times; of a grid, where fronts move, at the start alone."""
_FELT = 1e-4
"""A change of a state, relative to its largest value, that shows that a smaller atol matters."""
_WRONG = 1e-3
"""The same, of a run that is worth a warning."""
MOST_SMALL_STEPS = 1e6
"""Steps of an adaptive solver that `max_step` may ask for in a run."""
MOST_FIXED_STEPS = 1e8
"""Steps of a fixed length that a run may have: all of them are kept in memory."""
_LEAST_STEPS, _GOLDEN = 32, 0.618  # of runs whose rates read the time; steps that never fall together with periods
_LOOKS = 101  # rows of the first run beside the model's own, so that it sees what happens between two of them


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
    """Return the largest step, infinite where none is given; one that asks for millions of steps is refused."""
    if max_step is None:
        return np.inf
    longest = positive_number(max_step, "max_step", error=ModelError)
    check_number_of_steps(span, longest, f"max_step={max_step!r}", MOST_SMALL_STEPS)
    return longest


def default_max_step(definition: Definition, start: float, rows: Vector) -> float:
    """Return the largest step of a run on scipy's solvers: shorter than the largest gap of its rows.

    LSODA may make its second step ten thousand times as long as its first: where rates are zero at the start, it is the
    whole run. Rates that do not read the time cannot begin to change behind its back.
    """
    d, gaps = definition, np.diff(rows, prepend=start)
    reads = reads_time(d.source) if d.equations is None else d.time in names_in(d.equations.rates)
    return _GOLDEN * float(min(gaps.max(), gaps.sum() / _LEAST_STEPS)) if reads and gaps.any() else np.inf


def check_number_of_steps(span: float, step: float, told: str, most: float) -> None:
    """Refuse steps that are too many to be meant, such as by a slip of the unit of time (ModelError)."""
    if span / step > most:
        raise ModelError(
            f"`{told}` takes {span / step:.2g} steps from the first to the last of `times`, more than {most:.0e}. Give "
            "a longer step, or a shorter time."
        )


def scaled_tolerances(
    given: Vector,
    start: Vector,
    trial: Callable[[Vector], Matrix],
    by_events: Vector | float = 0.0,
    rise: Rise | None = None,
) -> Vector:
    """Return atol by state: as given, and where that is NaN as the scale of the model asks.

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
    free, begins = np.isnan(given), np.abs(start)
    first = _first_run(given, begins, by_events, trial)
    if first is None:
        return np.where(free, RELATIVE, given)
    worked, Y, begins, has_failed = first
    start = np.maximum(begins, by_events)
    for _ in range(_MOST_TRIALS):
        largest = np.maximum(np.abs(Y).max(axis=0), start)
        largest[largest <= _ROUNDING * largest.max()] = 0.0
        small = free & (largest > 0) & (largest < RESOLVED * worked)
        atol = np.where(free, RELATIVE * np.where(largest > 0, np.minimum(largest, 1.0), 1.0), given)
        if not small.any():
            break
        again = _or_none(trial, atol)
        if again is None:
            return worked
        Y, worked = again, atol
    atol = np.where(free & (begins > 0), np.minimum(atol, begins / RESOLVED), atol)
    atol = _for_growth(atol, free, Y, trial, rise)
    return worked if has_failed and _or_none(trial, atol) is None else atol


def _first_run(
    given: Vector, begins: Vector, by_events: Vector | float, trial: Callable[[Vector], Matrix]
) -> tuple[Vector, Matrix, Vector, bool] | None:
    """Return atol of a first run that works, its states, the starts that count, and whether one with more failed.

    None where none works.

    A start that is but the rounding of another may be meant, or may be noise that no solver can follow. A state that
    falls to nothing before it grows, or reacts with another, may turn negative where atol is large, and grow to minus
    infinity or towards it until no step is small enough.
    """
    meant = np.where(begins > _ROUNDING * begins.max(initial=0.0), begins, 0.0)
    for counted, factor in ((begins, 1.0), (meant, 1.0), (meant, _SHARP), (meant, 0.0)):
        if factor == 1 and counted is meant and (meant == begins).all():
            continue
        guess = np.maximum(factor * _first_guess(np.maximum(counted, by_events)), _SMALLEST)
        atol = np.where(np.isnan(given), guess, given)
        Y = _or_none(trial, atol)
        if Y is not None:
            return atol, Y, counted, factor < 1
    return None


def _for_growth(
    atol: Vector, free: BoolVector, Y: Matrix, trial: Callable[[Vector], Matrix], rise: Rise | None
) -> Vector:
    """Return atol, smaller where a state grows from so little that this changes the run; Y is a run of the model."""
    coarse: Matrix | None = None
    for k in range(_MOST_TRIALS):
        fine = np.where(free, finer(Y, atol, rise), atol)
        if (fine == atol).all():
            break
        if k == 0:
            coarse = _or_none(trial, atol)
        sharp = _or_none(trial, fine)
        if sharp is None:  # a state may start at zero
            fine = np.where(free, finer(Y, atol), atol)
            sharp = _or_none(trial, fine)
        if sharp is None:  # noise may grow to minus infinity
            fine = np.where(fine < atol, _SMALLEST, atol)
            sharp = _or_none(trial, fine)
        if sharp is None or (coarse is not None and changes(coarse, sharp).max() < _FELT):
            break
        atol, coarse, Y = fine, sharp, sharp
    return atol


def _or_none(trial: Callable[[Vector], Matrix], atol: Vector) -> Matrix | None:
    try:
        return trial(atol)
    except SimulationError:
        return None


def finer(Y: Matrix, atol: Vector, rise: Rise | None = None) -> Vector:
    """Return atol by state, a thousandth of the least value from which a state grows more than a thousandfold.

    Of a state that has not, but would have by its `rise`, it is next to nothing.

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
    """Return how the states of runs at `times` grow by themselves; None of what has no equations for it.

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
    """Return the rows of the first run."""
    return np.unique(merged(np.concatenate([times, np.linspace(times[0], times[-1], _LOOKS)])))


def _first_guess(start: Vector) -> Vector:
    """Return atol for the first run; states of unknown size are taken to be of that of the smallest other."""
    size = np.abs(start)
    most = size.max(initial=0.0)
    begins = size > 0
    if not begins.any() or not np.isfinite(most):
        return np.full(len(start), RELATIVE)
    other = max(size[begins].min(), _UNKNOWN * most)
    return np.asarray(RELATIVE * np.minimum(np.where(begins, size, other), 1.0))


def known_starts(definition: Definition) -> Callable[[list[float]], Vector]:
    """Return a function of the parameters: the sizes of the states at the start, 0 where they are not known."""
    table, guesses = definition.starts(), definition.algebraic_places

    def starts(p: list[float]) -> Vector:
        try:
            sizes: Vector = np.abs(table.value(p))
        except SimulationError:  # the run will fail too
            return np.zeros(len(definition.states))
        if guesses:
            sizes[guesses] = 0.0  # they say nothing of the values that are taken
        return sizes

    return starts


def known_starts_of_many(definition: Definition) -> Callable[[Matrix], Matrix]:
    """Return the same of the parameters of many runs, shape (n_run, n_state); NaN where a run cannot start."""
    guesses = definition.algebraic_places
    table = array_function(symbols(definition.parameters), [as_node(v) for v in definition.initial])

    def starts(P: Matrix) -> Matrix:
        sizes: Matrix = np.abs(np.stack([np.broadcast_to(v, len(P)) for v in table(P.T)], axis=1))
        sizes[:, guesses] = 0.0
        return sizes

    return starts


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


def grown(
    Y: Matrix, atol: Vector, again: Callable[[Vector], Matrix], states: Sequence[str], rise: Rise | None = None
) -> str:
    """Return a sentence on states that grow from so little that their atol makes a run wrong, or an empty string.

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
    told = ", ".join(f"{states[i]} (from {least[i]}, atol {atol[i]:.2g})" for i in small)
    advice = ", ".join(f"{states[i]!r}: {fine[i]:.1g}" for i in small)
    return (
        f"In a run of the model some states grow from values that are small beside their absolute tolerance: {told}. "
        f"Smaller tolerances change the run: {states[worst]} by {100 * change[worst]:.2g} % of its largest value. Pass "
        f"atol={{{advice}}} to the model, or build it with parameters at which its states start as small."
    )


def reads_time(rhs: Any) -> bool:
    """Tell whether a function uses its first argument, the time; True where its code cannot be read."""
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
