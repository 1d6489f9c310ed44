"""A Python function as the source of a model: its form by its signature, its expressions by tracing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fmepy.compiled.array_code import MOST_BAND
from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ArgumentError, ModelError, SimulationError, TracingError, did_you_mean, listed, sentence, warn
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.functions import holds_choices
from fmepy.language.interpolants import Line, Series, series_of_time
from fmepy.language.nodes import ZERO, Number, Symbol, in_order
from fmepy.language.tracing import SymbolArray, Traced, agree, as_expression, at_most, lags_tried, traced, with_symbols
from fmepy.models.definition.arguments import ModelArguments, as_parms
from fmepy.models.definition.array_tracing import traced_arrays
from fmepy.models.definition.definition import Draft, ModelExpressions
from fmepy.models.definition.delays import at_present
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.forcings import Forcing, forced_at
from fmepy.types import Vector

MOST_WRITTEN_OUT = 1000
"""States of a vector function that is written out cell by cell where equations are asked for, if it is a grid."""
MOST_OPERATIONS = 20_000
"""Operations up to which a function whose expressions are large becomes equations: a second of them, or some."""


def read_function(function: Callable[..., Any], given: ModelArguments) -> Draft:
    """Return the draft of a model that is a function, in either form."""
    if not given.initial:
        raise ModelError("`state` is missing: give the initial values as a dict, such as state={'N': 0.1}.")
    rates, parms, time = read_signature(function, given)
    return drafted(rates, parms, time, given, partial(_find, rates, parms, time, given))


def drafted(rates: RatesFunction, parms: dict[str, float], time: str, given: ModelArguments, find: Any) -> Draft:
    """Return the draft of a model that is a function; of one of arrays nobody knows what it reads."""
    reads = frozenset((*rates.positional, *rates.keywords)) if rates.form == "named" else None
    return Draft(rates.states, parms, given.initial, find, time, reads, rates)


def read_signature(function: Callable[..., Any], given: ModelArguments) -> tuple[RatesFunction, dict[str, float], str]:
    """Tell the two forms apart, and find the parameters with their values."""
    states, forcings = tuple(given.initial), given.forcing_names
    try:
        signature = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ModelError("The arguments of the model's function cannot be read; wrap it in a def.") from None
    if any(a.kind in (a.VAR_POSITIONAL, a.VAR_KEYWORD) for a in signature):
        raise ModelError(
            "The model's function has *args or **kwargs; its arguments' names are the model, so write "
            "them out: f(t, <states>, *, <parameters>)."
        )
    by_position = [a.name for a in signature if a.kind is not a.KEYWORD_ONLY]
    if not by_position:
        raise ModelError("The model's function needs the time as its first argument: f(t, <states>, *, <parameters>).")
    time, rest = by_position[0], tuple(by_position[1:])
    known = {*states, *given.parms, *forcings}
    if len(rest) == 2 == len(signature) - 1 and not known & set(rest):
        return RatesFunction(function, "vector", states, tuple(given.parms), forcings), given.parms, "t"
    keywords = tuple(a.name for a in signature if a.kind is a.KEYWORD_ONLY)
    values = {**{a.name: a.default for a in signature if a.default is not a.empty}, **given.parms}
    names = [k for k in (*rest, *keywords) if k not in states and k not in forcings]
    for name in names:
        if name not in values:
            near = known - {time, *rest, *keywords} or known
            if all(s.isdecimal() for s in states):  # numbered, for want of names
                raise ModelError(
                    f"`state` has no names, and the function's argument {name!r} is one, or a parameter without a "
                    f"value. Write a dict: state={{{name!r}: 1.0, ...}}."
                )
            raise ModelError(
                f"The function's argument {name!r} is neither a state nor a forcing, and has no value in "
                f"`parms` and no default.{did_you_mean(name, near)} States are {listed(states)}. "
                "(A function of arrays is f(t, y, p), and neither y nor p the name of a state or parameter.)"
            )
    parms = as_parms({k: values[k] for k in (*names, *(k for k in given.parms if k not in names))})
    return RatesFunction(function, "named", states, tuple(parms), forcings, rest, keywords), parms, time


# --- its expressions


def _find(rates: RatesFunction, parms: Mapping[str, float], time: str, given: ModelArguments) -> ModelExpressions:
    """Return the expressions of a function that gives, with numbers, what they give."""
    p = np.array(list(parms.values()), dtype=float)
    u = np.array([float(f.at(given.start)) for f in given.forcings])
    start = given.start, _start(given.initial, parms), p, u
    with lags_tried() as lags:
        extra_names = _try_once(rates, *start)
        warn_of_order(rates, *start)
        try:
            if not given.trace:
                raise TracingError("tracing was switched off")
            of_arrays = rates, extra_names, given.kind == "ode" and not (lags or given.algebraic), *start
            if rates.form == "vector" and len(rates.states) > given.most_states:
                return _as_arrays(*of_arrays)
            if rates.form == "vector" and len(rates.states) > MOST_WRITTEN_OUT and (grid := _as_grid(*of_arrays)):
                return grid
            found = _traced(rates, time)
            if not _gives_the_same(found, rates, time, *start):
                raise TracingError(
                    "its equations, traced with symbols, do not give the numbers that the function gives; "
                    "it may use random numbers or keep something between calls"
                )
        except TracingError as error:
            if lags:
                raise ModelError(
                    "The model's function calls lag(), so it must be turned into equations, and it cannot be: "
                    f"{error}. Write what has a symbolic form, with an OdeModel, or the model as text."
                ) from error
            return ModelExpressions(None, extra_names=extra_names, note=str(error))
    return found


def _start(initial: Mapping[str, Any], parms: Mapping[str, float]) -> Vector:
    """Return initial values as numbers."""
    try:
        return ValueTable(list(initial.values()), list(parms)).value(list(parms.values()))
    except SimulationError as error:
        raise ModelError(f"The start cannot be computed from the parameters: {error}.") from error


def _try_once(rates: RatesFunction, t0: float, y0: Vector, p: Any, u: Any) -> tuple[str, ...]:
    """Call the function once with numbers, so that its mistakes show at the door; return the extra outputs' names."""
    try:
        with np.errstate(all="ignore"):
            rates(t0, y0, p, u)
            return tuple(rates.extras(t0, y0, p, u))
    except ModelError:
        raise
    except (ArithmeticError, SimulationError) as error:
        if isinstance(error.__cause__, ArgumentError):
            raise ModelError(f"The model's function fails when it is called at the start: {error.__cause__}") from error
        parameters = dict(zip(rates.parameters, p, strict=True))
        why = f"The model's function fails at its start: {_told(error)}."
        raise SimulationError(why, parameters=parameters, time=t0) from error
    except Exception as error:
        why = str(error) if isinstance(error, ValueError) else _told(error)
        hint = f" Of f(t, y, p), y is an array, of {listed(rates.states)}." if isinstance(error, IndexError) else ""
        raise ModelError(f"The model's function fails when it is called at the start: {sentence(why)}{hint}") from error


def warn_of_order(rates: RatesFunction, *start: Any) -> None:
    """Warn where the function's arguments and `state` name the states in two orders, and rates come without names."""
    named = tuple(k for k in (*rates.positional, *rates.keywords) if k in rates.states)
    if sorted(named) != sorted(rates.states) or named == rates.states:
        return
    result = rates.returned(*start)
    rates_alone = result[0] if isinstance(result, tuple) and isinstance(result[-1], Mapping) else result
    if isinstance(rates_alone, tuple | list | np.ndarray):
        warn(
            f"The function's arguments name the states as {listed(named)}, and `state` as {listed(rates.states)}: what "
            "it returns is taken in the order of `state`. Use one order, or return a dict by name."
        )


def _told(error: Exception) -> str:
    """Return an error in words; the kinds of our own need no name."""
    return str(error) if isinstance(error, SimulationError) else f"{type(error).__name__}: {error}"


def as_loops(
    rates: RatesFunction,
    extra_names: tuple[str, ...],
    shape: tuple[int, ...],
    what: str,
    as_it_is: str,
    read: Callable[[float, Vector, Vector, Vector], Vector],
    t: float,
    y: Vector,
    p: Vector,
    u: Vector,
) -> ModelExpressions:
    """Return a function of arrays as loops over arrays, checked against itself; where there are none, as it is.

    Parameters
    ----------
    shape : tuple of int
        Of the states that it gets.
    what, as_it_is : str
        What it is called in notes, and how it runs without loops.
    read : callable
        The rates by the function.
    """
    from fmepy.models.running.problem import ArraysAt

    moved = y * np.linspace(1.07, 1.02, len(y)) + 1e-3
    points = (t, y, p), (t + 0.37, moved, p), (t + 0.11, moved * 1.03, p * 1.013)
    try:
        arrays = traced_arrays(rates, shape)
        series = _as_forcings(arrays.series, rates)
        if not agree(
            lambda t, y, p: ArraysAt(arrays, p).rates(t, y, u),
            lambda t, y, p: read(t, y.copy(), p, u),
            points,
        ):
            raise TracingError(
                "what was traced does not give the numbers that the function gives; it may use random numbers, keep "
                "something between calls, or write into arrays that it was given"
            )
    except TracingError as error:
        note = f"{what} {as_it_is}, for it cannot be turned into loops over arrays: {error}"
        return ModelExpressions(None, extra_names=extra_names, note=note)
    note = f"{what} is compiled as loops over arrays"
    return ModelExpressions(None, extra_names=extra_names, note=note, arrays=arrays, series=series)


def _as_arrays(rates: RatesFunction, extra_names: tuple[str, ...], can_be: bool, *start: Any) -> ModelExpressions:
    """Return a vector function as loops over arrays; where there are none, or may be none, as it is."""
    n = len(rates.states)
    what, as_it_is = f"a vector function of {n} states", "runs as it is (cell by cell it would compile too slowly)"
    if not can_be:
        raise TracingError(f"{what} {as_it_is}")
    return as_loops(rates, extra_names, (n,), what, as_it_is, lambda t, y, p, u: rates(t, y, p, u), *start)


def _as_grid(*of_arrays: Any) -> ModelExpressions | None:
    """Return a vector function as loops that the compiled engine runs, None where they are none for it."""
    from fmepy.models.running.problem import code_of

    try:
        found = _as_arrays(*of_arrays)
    except TracingError:
        return None
    return found if found.arrays is not None and code_of(found.arrays).band_width <= MOST_BAND else None


@at_most(MOST_OPERATIONS)
def _traced(rates: RatesFunction, time: str) -> ModelExpressions:
    """Return the function's expressions; TracingError if it has none."""
    groups = (rates.states, rates.parameters, rates.forcings)
    y, p, u = (np.array([traced(k) for k in names], dtype=object).view(SymbolArray) for names in groups)

    def with_series(f: Any, follow: Any) -> tuple[Any, Sequence[Series]]:
        with series_of_time(partial(_line, symbol(time)), lambda k: traced(_name_of_series(k, rates))) as series:
            return follow(lambda: replace(rates, function=f).raw(traced(time), y, p, u)), series

    (result, extra), series = with_symbols(rates.function, with_series, SymbolArray)
    expressions = tuple(as_expression(e) for e in np.ravel(np.array(result, dtype=object)))
    own = {k: as_expression(v) for k, v in extra.items()}
    used = names_in([*expressions, *own.values()])
    return ModelExpressions(expressions, own, series=tuple(f for f in _as_forcings(series, rates) if f.name in used))


def _line(time: Symbol, x: Any) -> Line | None:
    """Return the line in the time that a traced number is, with a slope above zero, or a remainder of one; or None."""
    if not isinstance(x, Traced) or x.expression.free_symbols != {time}:
        return None
    expression, turns = x.expression, None
    for remainder in (n for n in in_order([expression]) if n.word == "mod"):
        (inner, divisor), stand_in = remainder.args, Symbol("remainder")
        line, outer = _line(time, Traced(inner)), expression.subs({remainder: stand_in})
        if turns or line is None or not isinstance(divisor, Number) or outer.free_symbols != {stand_in}:
            return None
        expression, turns = outer.subs({stand_in: inner}), line.modulo(divisor.value)
    slope = ZERO if holds_choices([expression]) else derivative(expression, time)
    if not isinstance(slope, Number) or not slope.value > 0:
        return None
    return (turns or Line(0.0, 1.0))._replace(offset=float(expression.subs({time: ZERO})), slope=slope.value)


def _name_of_series(k: int, rates: RatesFunction) -> str:
    name = f"series_{k + 1}"
    while name in {*rates.states, *rates.parameters, *rates.forcings}:
        name = f"_{name}"
    return name


def _as_forcings(series: Sequence[Series], rates: RatesFunction) -> tuple[Forcing, ...]:
    """Return the series that a function looks up as forcings of its model."""
    return tuple(Forcing(_name_of_series(k, rates), *s, of_function=True) for k, s in enumerate(series))


def _gives_the_same(
    found: ModelExpressions, rates: RatesFunction, time: str, t: float, y: Vector, p: Vector, u: Vector
) -> bool:
    assert found.rates is not None, "it was traced"
    series = found.series
    groups = symbols((time,), rates.states, rates.parameters, (*rates.forcings, *(f.name for f in series)))
    function, plain = scalar_function(groups, [at_present(e) for e in found.rates]), p.tolist()
    points = (t, y), (t + 0.37, y * 1.07 + 1e-3)
    return agree(
        lambda t, y: function([t], y.tolist(), plain, [*u.tolist(), *forced_at(series, t)]),
        lambda t, y: rates(t, y, p, u),
        points,
    )
