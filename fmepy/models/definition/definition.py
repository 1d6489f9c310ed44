"""What a model is, whatever it came from: names, values, and either equations or a Python function.

`define` reads the three sources (a function with named arguments, a vector function, text) into one `Definition`. The
equations hold no numbers, so a changed copy of a model (other initial values, parameters, forcings) shares them.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pandas as pd

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError, ParameterError, SimulationError, TracingError, did_you_mean, listed
from fmepy.expressions.equations import Equations, names_in, symbol
from fmepy.models.definition.text import ModelText, parse_expression, parse_model
from fmepy.models.definition.tracing import as_expression, call_traced, traced
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.forcings import Forcing, as_forcings
from fmepy.parameters.names import normal_name
from fmepy.parameters.scales import check_scale
from fmepy.types import Vector

__all__ = ["Definition", "RatesFunction", "as_times", "define"]

logger = logging.getLogger(__name__)

Kind = Literal["ode", "difference"]

MOST_TRACED_STATES = 20
"""Vector functions with more states run as they are: expanded cell by cell they compile slower than they would gain."""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A model's names and values.

    Attributes
    ----------
    kind : {"ode", "difference"}
    source : callable or str
        What the user gave.
    states : tuple of str
    parms : Series
        All parameters and their values.
    initial : tuple of (float or sympy.Expr)
        One for each state; expressions are of parameters alone.
    forcings : tuple of Forcing
    extra_names : tuple of str
        Outputs that the user's function returns beside the rates (models without equations).
    outputs : tuple of (str, sympy.Expr)
        Named expressions, of states, parameters, forcings, time and (models without equations) extra outputs.
    equations : Equations or None
        None if the function could not be traced; then `function` is what runs.
    note : str
        Why there are no equations.
    function : RatesFunction or None
        None for text.
    time : str
        Name of the independent variable in expressions.
    """

    kind: Kind
    source: Any
    states: tuple[str, ...]
    parms: pd.Series
    initial: tuple[Any, ...]
    forcings: tuple[Forcing, ...]
    extra_names: tuple[str, ...]
    outputs: tuple[tuple[str, Any], ...]
    equations: Equations | None
    note: str
    function: RatesFunction | None
    time: str = "t"
    given_outputs: Any = field(default=None, repr=False)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.parms.index)

    @property
    def var_names(self) -> tuple[str, ...]:
        """States, then outputs."""
        if self.equations is not None:
            return self.equations.var_names
        return self.states + self.extra_names + tuple(name for name, _ in self.outputs)


def as_times(times: Any, argument: str = "times") -> Vector:
    """Return times as an array; they must be finite and increase.

    Raises
    ------
    ModelError
        Empty, not numbers, not finite, or out of order.
    """
    try:
        out: Vector = np.array(times, dtype=float)
    except (TypeError, ValueError):
        raise ModelError(f"`{argument}` must be numbers; got {times!r}.") from None
    if out.ndim == 0:
        raise ModelError(
            f"`{argument}={times!r}` is one number; the times of all rows are needed, such as np.linspace(0, "
            f"{float(out):g}, 101), or a list of one for one row."
        )
    if out.ndim != 1 or not len(out):
        raise ModelError(f"`{argument}` must be a sequence of at least one number.")
    if not np.isfinite(out).all():
        raise ModelError(f"`{argument}` holds NaN or infinite numbers.")
    back = np.flatnonzero(np.diff(out) <= 0)
    if len(back):
        i = int(back[0])
        raise ModelError(
            f"`{argument}` must increase: {out[i + 1]:g} (position {i + 1}) comes after {out[i]:g}. "
            "Sort them and keep each once, as np.unique does."
        )
    return out


def define(
    kind: Kind,
    source: Any,
    *,
    state: Any = None,
    parms: Any = None,
    outputs: Any = None,
    forcings: Any = None,
    trace: bool = True,
    most_states: int = MOST_TRACED_STATES,
    t0: float = 0.0,
    event_names: Sequence[str] = (),
    like: Definition | None = None,
) -> Definition:
    """Read a model's definition.

    Parameters
    ----------
    kind : {"ode", "difference"}
    source : callable, str or Equations
        ``f(t, <states>, <parameters>, <forcings>)`` by name, ``f(t, y, p)``, text, or the equations of another model.
    state : mapping, Series or sequence
        Initial values: numbers, parameter names or expressions of parameters. Text may hold them itself.
    parms : mapping or Series
        Parameter values; keyword defaults of a function are values too.
    outputs : mapping of name to expression or function, optional
    forcings : mapping of name to series, optional
    trace : bool
        False: do not try to turn a function into equations.
    most_states : int
        Vector functions with more states are not traced.
    t0 : float
        Start of the runs, where a function is tried once.
    event_names : sequence of str
        Parameters that events use (so that they count as used).
    like : Definition, optional
        A definition whose equations are taken over if nothing but numbers differs.

    Raises
    ------
    ModelError
        Whatever is wrong with the definition, with the nearest name where a name is unknown.
    """
    drivers = as_forcings(forcings)
    given = _as_parms(parms)
    if isinstance(source, str):
        return _from_text(kind, source, state, given, outputs, drivers, event_names, like, t0)
    if isinstance(source, Equations):
        return _from_equations(kind, source, state, given, outputs, drivers, event_names)
    if not callable(source):
        raise ModelError(f"A model is a Python function, text or Equations; got {type(source).__name__}.")
    return _from_function(kind, source, state, given, outputs, drivers, trace, most_states, t0, event_names, like)


# --- parameters, states, initial values, outputs
# -----------------------------------------------------------------------


def _as_parms(parms: Any) -> dict[str, float]:
    if parms is None:
        return {}
    if not isinstance(parms, Mapping | pd.Series):
        raise ParameterError(f"`parms` must be a dict or Series of names and values; got {type(parms).__name__}.")
    check_scale(parms, {str(name): None for name in parms.keys()}, "parms")  # noqa: SIM118    # a Series, too
    out: dict[str, float] = {}
    for key, value in parms.items():
        name = normal_name(key)
        if name in out:
            raise ParameterError(f"`parms` names {name!r} more than once.")
        try:
            out[name] = float(value)
        except (TypeError, ValueError):
            out[name] = np.nan
        if not np.isfinite(out[name]):
            raise ParameterError(f"`parms`: {name!r} is {value!r}; a finite number is needed.")
    return out


def _as_state(state: Any) -> dict[str, Any]:
    """Return initial values by name; a bare sequence gets the names 1, 2, ... as in R."""
    if state is None:
        return {}
    if isinstance(state, Mapping | pd.Series):
        names = [normal_name(k) for k in state.keys()]  # noqa: SIM118  # a Series iterates over its values
        repeated = sorted({n for n in names if names.count(n) > 1})
        if repeated:
            raise ModelError(f"`state` names {listed(repeated)} more than once.")
        values = list(state.values()) if isinstance(state, Mapping) else list(state)
        return dict(zip(names, values, strict=True))
    values = list(np.atleast_1d(np.asarray(state, dtype=object)))
    return {str(i + 1): v for i, v in enumerate(values)}


def _initial_value(name: str, value: Any) -> Any:
    """Return an initial value as a float or an expression."""
    if isinstance(value, str):
        expression = parse_expression(value, where=f"state[{name!r}]")
        return expression if expression.free_symbols else float(expression)
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ModelError(
            f"The initial value of {name!r} is {value!r}; a number, a parameter's name or an expression "
            "of parameters is needed."
        ) from None
    if not np.isfinite(number):
        raise ModelError(f"The initial value of {name!r} is {number}; a finite number is needed.")
    return number


def _check_initial(initial: Mapping[str, Any], parameters: Sequence[str], states: Sequence[str]) -> None:
    for name, value in initial.items():
        for used in sorted(names_in([value])):
            if used in parameters:
                continue
            if used in states:
                raise ModelError(
                    f"The initial value of {name!r} uses the state {used!r}; it may only depend on parameters."
                )
            raise ModelError(
                f"The initial value of {name!r} uses {used!r}, which has no value. Give it in `parms`."
                f"{did_you_mean(used, parameters)}"
            )


def _read_outputs(outputs: Any, known: Sequence[str], defined: Mapping[str, Any], time: str) -> dict[str, Any]:
    """Return outputs as expressions; each may use the ones before it (they are put in its place)."""
    if outputs is None:
        return {}
    if not isinstance(outputs, Mapping):
        raise ModelError(f"`outputs` must be a dict of name and expression; got {type(outputs).__name__}.")
    out: dict[str, Any] = {}
    for key, value in outputs.items():
        name = normal_name(key)
        if name in known or name in defined or name in out:
            raise ModelError(f"The output {name!r} has the name of something else in the model; choose another.")
        expression = _output_expression(name, value, [*known, *defined, *out, time])
        earlier = {symbol(k): e for k, e in {**defined, **out}.items()}
        for used in sorted(names_in([expression])):
            if used not in known and used != time and symbol(used) not in earlier:
                raise ModelError(
                    f"The output {name!r} uses {used!r}, which the model does not have."
                    f"{did_you_mean(used, [*known, *defined, *out])}"
                )
        out[name] = expression.xreplace(earlier)
    return out


def _output_expression(name: str, value: Any, known: Sequence[str]) -> Any:
    if not callable(value):
        return parse_expression(value if isinstance(value, str) else repr(float(value)), where=f"outputs[{name!r}]")
    arguments = list(inspect.signature(value).parameters)
    for a in arguments:
        if a not in known:
            raise ModelError(
                f"The output function {name!r} has an argument {a!r} that the model does not have."
                f"{did_you_mean(a, known)}"
            )
    try:
        return as_expression(call_traced(value, **{a: traced(a) for a in arguments}))
    except TracingError as error:
        raise ModelError(
            f"The output function {name!r} cannot be turned into an expression: {error}. Return such an "
            "output from the model's own function, as (rates, {name: value})."
        ) from error


def _check_used(given: Mapping[str, float], used: set[str], what: str) -> None:
    for name in given:
        if name not in used:
            raise ParameterError(f"`parms`: {name!r} is used nowhere in the model.{did_you_mean(name, used)} {what}")


def _check_apart(states: Sequence[str], parameters: Sequence[str], forcings: Sequence[str]) -> None:
    for a, b, one, other in (
        (states, parameters, "state", "parameter"),
        (states, forcings, "state", "forcing"),
        (parameters, forcings, "parameter", "forcing"),
    ):
        both = sorted(set(a) & set(b))
        if both:
            raise ModelError(f"{both[0]!r} is both a {one} and a {other}; give one of them another name.")


# --- from text
# ---------------------------------------------------------------------------------------------------------


def _from_text(
    kind: Kind,
    text: str,
    state: Any,
    given: dict[str, float],
    outputs: Any,
    drivers: tuple[Forcing, ...],
    event_names: Sequence[str],
    like: Definition | None,
    t0: float,
) -> Definition:
    model = parse_model(text, kind=kind)
    states = model.states
    if not states:
        rate = "d(N)/dt = r * N" if kind == "ode" else "next(N) = r * N"
        raise ModelError(f"The text has no state: it needs a line such as `{rate}`.")
    extra = _as_state(state)
    for name in extra:
        if name not in states:
            raise ModelError(f"`state`: {name!r} has no equation in the text.{did_you_mean(name, states)}")
    _check_start(model, extra, t0, like)
    initial = {**model.substituted_initial(), **{k: _initial_value(k, v) for k, v in extra.items()}}
    _need_initial(states, initial)
    forcing_names = tuple(f.name for f in drivers)
    _check_apart(states, list(given), forcing_names)
    assigned = model.substituted_assignments()
    rates = model.substituted_rates()
    known = [*states, *given, *forcing_names]
    own = {**assigned, **_read_outputs(outputs, known, assigned, "t")}
    used = names_in([*rates.values(), *own.values(), *initial.values()])
    for name in sorted(used - set(known) - {"t"}):
        line = model.line_of(name)
        raise ModelError(
            f"{f'line {line}: ' if line else ''}{name!r} has no value: it is no state, and is missing in "
            f"`parms` and `forcings`.{did_you_mean(name, known)}"
        )
    _check_used(given, used | set(event_names), f"The text uses {listed(sorted(used - set(states)))}.")
    _check_initial(initial, list(given), states)
    _name_forcings(forcing_names, used)
    equations = _shared(like, text, states, given, forcing_names, outputs)
    if equations is None:
        equations = Equations(
            kind, states, tuple(given), forcing_names, tuple(rates[s] for s in states), tuple(own.items())
        )
    return Definition(
        kind,
        text,
        states,
        pd.Series(given, dtype=float),
        tuple(_number(initial[s]) for s in states),
        drivers,
        (),
        equations.outputs,
        equations,
        "",
        None,
        given_outputs=outputs,
    )


def _from_equations(
    kind: Kind,
    source: Equations,
    state: Any,
    given: dict[str, float],
    outputs: Any,
    drivers: tuple[Forcing, ...],
    event_names: Sequence[str],
) -> Definition:
    if source.kind != kind:
        raise ModelError(f"These are equations of the kind {source.kind!r}; {kind!r} is needed here.")
    initial = {k: _initial_value(k, v) for k, v in _as_state(state).items()}
    for name in initial:
        if name not in source.states:
            raise ModelError(f"`state`: {name!r} is no state of the equations.{did_you_mean(name, source.states)}")
    _need_initial(source.states, initial)
    forcing_names = tuple(f.name for f in drivers)
    _check_apart(source.states, list(given), forcing_names)
    known = [*source.states, *given, *forcing_names]
    own = {**dict(source.outputs), **_read_outputs(outputs, known, dict(source.outputs), source.time)}
    used = names_in([*source.rates, *own.values(), *initial.values()])
    for name in sorted(used - set(known) - {source.time}):
        raise ModelError(f"{name!r} has no value: it is missing in `parms` and `forcings`.{did_you_mean(name, known)}")
    _check_used(given, used | set(event_names), f"The equations use {listed(sorted(used - set(source.states)))}.")
    _check_initial(initial, list(given), source.states)
    _name_forcings(forcing_names, used)
    same = source.parameters == tuple(given) and source.forcings == forcing_names and len(own) == len(source.outputs)
    equations = source
    if not same:
        equations = Equations(
            kind, source.states, tuple(given), forcing_names, source.rates, tuple(own.items()), source.time
        )
    return Definition(
        kind,
        source,
        source.states,
        pd.Series(given, dtype=float),
        tuple(_number(initial[s]) for s in source.states),
        drivers,
        (),
        equations.outputs,
        equations,
        "",
        None,
        source.time,
        outputs,
    )


def _check_start(model: ModelText, state: Mapping[str, Any], t0: float, like: Definition | None) -> None:
    """Refuse what is given both in the text and as `state`, and a start in the text that is not that of the run."""
    twice = [s for s in model.initial if s in state]
    if twice and like is None:
        s = twice[0]
        raise ModelError(
            f"line {model.line_of(f'{s}(0)')}: {s}(0) is given in the text and in `state`. Keep one of them; "
            "model.replace(state=...) changes the start of a model that there is."
        )
    at_zero = []
    for given in (s for s in model.statements if s.kind == "initial" and s.name not in state and s.at != t0):
        x, there = given.name, f"{given.name}({t0:.15g})"
        if given.at != 0:
            raise ModelError(
                f"line {given.line}: {x}({given.at:.15g}) is no initial value, for `times` begin at {t0:.15g}. Write "
                f"{there} = ..., or let `times` begin at {given.at:.15g}."
            )
        at_zero.append(there)
    if at_zero and like is None:
        logger.warning(
            "In the text x(0) stands for the start of the run, which is time %.15g here. To say so, write %s = ...",
            t0, " = ..., ".join(at_zero),
        )  # fmt: skip


def _number(value: Any) -> Any:
    """Return constant expressions as floats, the others as they are."""
    return value if getattr(value, "free_symbols", None) else float(value)


def check_time_name(names: Sequence[str]) -> None:
    """Refuse a variable that has the name of the result's first column."""
    if "time" in names:
        raise ModelError(
            "A state or output is called 'time', like the first column of the result; choose another name."
        )


def _need_initial(states: Sequence[str], initial: Mapping[str, Any]) -> None:
    missing = [s for s in states if s not in initial]
    if missing:
        raise ModelError(
            f"No initial value for {listed(missing)}. Write a line such as `{missing[0]}(0) = 1`, or give "
            f"state={{{missing[0]!r}: 1}}."
        )


def _name_forcings(names: Sequence[str], used: set[str]) -> None:
    for name in names:
        if name not in used:
            raise ModelError(f"The forcing {name!r} is used nowhere in the model.{did_you_mean(name, used)}")


def _shared(
    like: Definition | None,
    source: Any,
    states: tuple[str, ...],
    parameters: Mapping[str, float],
    forcings: tuple[str, ...],
    outputs: Any,
) -> Equations | None:
    """Return the equations of `like` if the new definition differs from it in numbers only."""
    if like is None or like.equations is None or like.source is not source or like.given_outputs != outputs:
        return None
    e = like.equations
    same = e.states == states and e.parameters == tuple(parameters) and e.forcings == forcings
    return e if same else None


# --- from a function
# ---------------------------------------------------------------------------------------------------


def _from_function(
    kind: Kind,
    function: Callable[..., Any],
    state: Any,
    given: dict[str, float],
    outputs: Any,
    drivers: tuple[Forcing, ...],
    trace: bool,
    most_states: int,
    t0: float,
    event_names: Sequence[str],
    like: Definition | None,
) -> Definition:
    initial = {k: _initial_value(k, v) for k, v in _as_state(state).items()}
    if not initial:
        raise ModelError("`state` is missing: give the initial values as a dict, such as state={'N': 0.1}.")
    states = tuple(initial)
    forcing_names = tuple(f.name for f in drivers)
    rates, parms, time = _read_signature(function, states, given, forcing_names)
    _check_apart(states, list(parms), forcing_names)
    _check_initial(initial, list(parms), states)
    if rates.form == "named":
        named = {*rates.positional, *rates.keywords, *names_in(initial.values()), *event_names}
        named |= _names_in_outputs(outputs)
        _check_used(given, named, f"The function's arguments are {listed([*rates.positional, *rates.keywords])}.")
        _name_forcings(forcing_names, named)
    shared = _shared(like, function, states, parms, forcing_names, outputs)
    series = pd.Series(parms, dtype=float)
    if shared is not None:
        return Definition(
            kind,
            function,
            states,
            series,
            tuple(initial.values()),
            drivers,
            (),
            shared.outputs,
            shared,
            "",
            rates,
            time,
            outputs,
        )
    y0 = _numbers(initial.values(), parms)
    u0 = np.array([float(f.at(t0)) for f in drivers])
    extra_names = _try_once(rates, t0, y0, series.to_numpy(dtype=float), u0)
    equations, note = None, "tracing was switched off"
    if trace:
        equations, note = _trace(kind, rates, outputs, time, most_states)
    if equations is not None and not _agree(equations, rates, t0, y0, series.to_numpy(), u0):
        equations, note = (
            None,
            (
                "its equations, traced with symbols, do not give the numbers that the function gives; "
                "it may use random numbers or keep something between calls"
            ),
        )
    if equations is not None:
        return Definition(
            kind,
            function,
            states,
            series,
            tuple(initial.values()),
            drivers,
            (),
            equations.outputs,
            equations,
            "",
            rates,
            time,
            outputs,
        )
    known = [*states, *parms, *forcing_names, *extra_names]
    own = _read_outputs(outputs, known, {}, time)
    return Definition(
        kind,
        function,
        states,
        series,
        tuple(initial.values()),
        drivers,
        extra_names,
        tuple(own.items()),
        None,
        note,
        rates,
        time,
        outputs,
    )


def _names_in_outputs(outputs: Any) -> set[str]:
    """Return the names that outputs use, as far as they can be read (they are checked in full later)."""
    if not isinstance(outputs, Mapping):
        return set()
    used: set[str] = set()
    for value in outputs.values():
        if callable(value):
            used |= set(inspect.signature(value).parameters)
        elif isinstance(value, str):
            used |= names_in([parse_expression(value, where="outputs")])
    return used


def _read_signature(
    function: Callable[..., Any], states: tuple[str, ...], given: Mapping[str, float], forcings: tuple[str, ...]
) -> tuple[RatesFunction, dict[str, float], str]:
    """Tell the two forms apart, and find the parameters with their values."""
    try:
        signature = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise ModelError("The arguments of the model's function cannot be read; wrap it in a def.") from None
    if any(a.kind in (a.VAR_POSITIONAL, a.VAR_KEYWORD) for a in signature):
        raise ModelError(
            "The model's function has *args or **kwargs; its arguments' names are the model, so write "
            "them out: f(t, <states>, *, <parameters>)."
        )
    by_position = [a for a in signature if a.kind is not a.KEYWORD_ONLY]
    if not by_position:
        raise ModelError("The model's function needs the time as its first argument: f(t, <states>, *, <parameters>).")
    time, rest = by_position[0].name, by_position[1:]
    known = {*states, *given, *forcings}
    if len(by_position) == 3 == len(signature) and not {a.name for a in rest} & known:
        return RatesFunction(function, "vector", states, tuple(given), forcings), dict(given), "t"
    defaults = {a.name: a.default for a in signature[1:] if a.default is not a.empty}
    parms: dict[str, float] = {}
    for a in [*rest, *[a for a in signature if a.kind is a.KEYWORD_ONLY]]:
        if a.name in states or a.name in forcings:
            continue
        if a.name not in given and a.name not in defaults:
            near = [n for n in known if n not in {b.name for b in signature}] or list(known)
            raise ModelError(
                f"The function's argument {a.name!r} is no state and no forcing, and has no value in "
                f"`parms` and no default.{did_you_mean(a.name, near)} States are {listed(states)}. "
                "(A function of arrays is f(t, y, p), and neither y nor p the name of a state or parameter.)"
            )
        parms[a.name] = given[a.name] if a.name in given else defaults[a.name]
    parms = _as_parms({**parms, **{k: v for k, v in given.items() if k not in parms}})
    keywords = tuple(a.name for a in signature if a.kind is a.KEYWORD_ONLY)
    if time in {*states, *parms, *forcings}:
        raise ModelError(
            f"The function's first argument is the time, but it is called {time!r}, as is something else "
            "in the model. Write f(t, <states>, *, <parameters>)."
        )
    rates = RatesFunction(function, "named", states, tuple(parms), forcings, tuple(a.name for a in rest), keywords)
    return rates, parms, time


def _numbers(values: Any, parms: Mapping[str, float]) -> Vector:
    """Return initial values as numbers."""
    try:
        return ValueTable(list(values), list(parms)).value(list(parms.values()))
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
    except (ArithmeticError, ValueError, SimulationError) as error:
        if not isinstance(error, ValueError):
            raise SimulationError(
                f"The model's function fails at its start: {_told(error)}.",
                parameters=dict(zip(rates.parameters, p, strict=True)),
                time=t0,
            ) from error
        raise ModelError(f"The model's function fails when it is called at the start: {error}.") from error
    except Exception as error:
        raise ModelError(f"The model's function fails when it is called at the start: {_told(error)}.") from error


def _told(error: Exception) -> str:
    """Return an error in words; the kinds of our own need no name."""
    return str(error) if isinstance(error, SimulationError) else f"{type(error).__name__}: {error}"


def _trace(kind: Kind, rates: RatesFunction, outputs: Any, time: str, most_states: int) -> tuple[Equations | None, str]:
    """Return the function's equations, or None and the reason."""
    if rates.form == "vector" and len(rates.states) > most_states:
        return None, (
            f"a vector function of {len(rates.states)} states runs as it is (compiling it cell by cell would "
            "take longer than it saves); bandwidth= makes its Jacobian banded"
        )
    try:
        y: Any = [traced(s) for s in rates.states]
        if rates.form == "vector":
            y = np.array([None] * len(y), dtype=object)
            y[:] = [traced(s) for s in rates.states]
        names = (rates.parameters, rates.forcings)
        result, extra = call_traced(rates.raw, traced(time), y, *([traced(k) for k in group] for group in names))
        expressions = tuple(as_expression(e) for e in np.ravel(np.array(result, dtype=object)))
        own = {k: as_expression(v) for k, v in extra.items()}
    except TracingError as error:
        cause = error.__cause__
        return None, str(_retraced(rates.function, error) if cause is not None else error)
    known = [*rates.states, *rates.parameters, *rates.forcings]
    clash = sorted(set(own) & set(known))
    if clash:
        raise ModelError(f"The extra output {clash[0]!r} has the name of something else in the model.")
    own = {**own, **_read_outputs(outputs, known, own, time)}
    return Equations(kind, rates.states, rates.parameters, rates.forcings, expressions, tuple(own.items()), time), ""


def _retraced(function: Callable[..., Any], error: TracingError) -> str:
    """Return the message with the line of the user's function rather than of ours."""
    from fmepy.models.definition.tracing import place_of

    cause = error.__cause__
    why = str(cause) if isinstance(cause, TracingError) else f"{type(cause).__name__}: {cause}"
    return f"{place_of(function, cause)}{why}" if isinstance(cause, Exception) else why


def _agree(equations: Equations, rates: RatesFunction, t0: float, y0: Vector, p: Any, u: Any) -> bool:
    """Tell whether traced equations give the function's own numbers, at the start and beside it."""
    groups = [
        [symbol(equations.time)],
        *([symbol(k) for k in g] for g in (equations.states, equations.parameters, equations.forcings)),
    ]
    function = scalar_function(groups, equations.rates)
    for t, y in ((t0, y0), (t0 + 0.37, y0 * 1.07 + 1e-3)):
        try:
            with np.errstate(all="ignore"):
                direct = rates(t, y, p, u)
        except Exception:  # the function itself fails there: nothing to compare
            continue
        try:
            ours = np.array(function([t], y.tolist(), p.tolist(), u.tolist()), dtype=float)
        except (ValueError, OverflowError, ZeroDivisionError, TypeError):  # a complex number is no value
            if np.isfinite(direct).all():
                return False
            continue
        if np.isfinite(direct).all() and not np.allclose(ours, direct, rtol=1e-8, atol=1e-12 * np.abs(direct).max()):
            return False
    return True
