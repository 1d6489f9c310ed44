"""From what a user gives to a `Definition`: read the source, check the names and values, keep what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

import pandas as pd

from fmepy.errors import ModelError, ParameterError, did_you_mean, listed
from fmepy.language.equations import Equations, names_in, symbol
from fmepy.language.nodes import Number
from fmepy.models.definition.arguments import Kind, ModelArguments, as_names, as_parms, as_state, by_name, read_outputs
from fmepy.models.definition.definition import Definition, Draft, ModelExpressions, Readable
from fmepy.models.definition.delays import as_history, check_history, has_lags, with_plain_lags
from fmepy.models.definition.function import read_function
from fmepy.models.definition.text import read_text
from fmepy.models.running.events import Event, check_roots, read_events
from fmepy.models.running.forcings import Forcing, as_forcings
from fmepy.parameters.named import check_names


def define(
    kind: Kind,
    source: Any,
    *,
    state: Any = None,
    parms: Any = None,
    outputs: Any = None,
    forcings: Any = None,
    events: Any = None,
    start: float = 0.0,
    trace: bool = True,
    most_states: int,
    like: Definition | None = None,
    algebraic: Any = None,
    history: Any = None,
) -> Definition:
    """Return a model's definition.

    Parameters
    ----------
    kind : {"ode", "difference"}
    source : callable, str, Equations or Readable
        ``f(t, <states>, <parameters>, <forcings>)`` by name, ``f(t, y, p)``, text, the equations of another model, or
        what can draft itself.
    state : mapping, Series or sequence
        Initial values: numbers, parameter names or expressions of parameters. Text may hold them itself.
    parms : mapping or Series
        Parameter values; keyword defaults of a function are values too.
    outputs : mapping of name to expression or function, optional
    forcings : mapping of name to series, optional
    events : table, optional
    start : float
        Start of the runs, where a function is tried once.
    trace : bool
        False: do not try to turn a function into equations.
    most_states : int
        Vector functions with more states become loops over arrays, if anything: expanded cell by cell they compile
        slower than they would gain.
    like : Definition, optional
        A definition whose equations are taken over if nothing but numbers differs.
    algebraic : sequence of str, optional
        States of a function without a rate: what it returns in their place is zero at every time.
    history : mapping of state to number or expression of parameters and time, optional
        What states were before the start, for models with delays; default their initial values.

    Raises
    ------
    ModelError
        Whatever is wrong with the definition, with the nearest name where a name is unknown.
    """
    given = ModelArguments(
        kind=kind,
        initial=as_state(state),
        parms=as_parms(parms),
        forcings=as_forcings(forcings),
        outputs=by_name(outputs, "outputs", "name and expression", kinds=Mapping),
        start=start,
        trace=trace,
        most_states=most_states,
        is_copy=like is not None,
        algebraic=as_names(algebraic),
    )
    draft = _with_algebraic(_read(source, given), given)
    past = as_history(history)
    _check_apart(draft, given)
    _check_start(draft, given)
    equations, found = _expressions(draft, given, *_reused(draft, given, source, like))
    given = replace(given, forcings=(*given.forcings, *found.series))
    is_delayed = has_lags([*(found.rates or ()), *found.own.values()])
    check_history(past, draft, is_delayed)
    if is_delayed and draft.algebraic:
        raise ModelError(
            f"The model reads the past (lag) and has algebraic states ({listed(draft.algebraic)}); no engine here has "
            "both. Solve the algebraic equation, and write what it gives as an assignment."
        )
    inputs = {**draft.parms, **{f.name: float(f.at(start)) for f in given.forcings}}
    timed, roots = read_events(events, draft.states, inputs, draft.time)
    by_symbol = {symbol(k): e for k, e in found.own.items()}
    definition = Definition(
        kind=kind,
        source=source,
        states=draft.states,
        parms=pd.Series(draft.parms, dtype=float),
        initial=tuple(_number(draft.initial[s]) for s in draft.states),
        forcings=given.forcings,
        events=_of_outputs(timed, by_symbol),
        extra_names=found.extra_names,
        outputs=tuple(found.own.items()),
        equations=equations,
        note=found.note,
        function=draft.function,
        time=draft.time,
        given_outputs=given.outputs,
        algebraic=draft.algebraic,
        history=tuple(past.get(s) for s in draft.states) if is_delayed else (),
        roots=tuple(r.mapped(lambda e: e.subs(by_symbol)) for r in roots),
        arrays=found.arrays,
    )
    _check_events(definition)
    _check_used(draft, definition, () if like is None else like.parameters)
    return definition


def _read(source: Any, given: ModelArguments) -> Draft:
    """Return what a source holds."""
    if isinstance(source, str):
        return read_text(source, given)
    if isinstance(source, Equations):
        return _read_equations(source, given)
    if isinstance(source, Readable):
        return source.draft(given)
    if callable(source):
        return read_function(source, given)
    hint = ""
    if isinstance(source, Mapping) and source and all(isinstance(v, str) for v in source.values()):
        rate = "d({})/dt" if given.kind == "ode" else "next({})"
        lines = "\n".join(f"    {rate.format(name)} = {right}" for name, right in source.items())
        hint = f" Write the equations as a text, one line a state:\n{lines}"
    raise ModelError(f"A model is a Python function, text or Equations; got {type(source).__name__}.{hint}")


def _read_equations(source: Equations, given: ModelArguments) -> Draft:
    if source.kind != given.kind:
        raise ModelError(f"These are equations of the kind {source.kind!r}; {given.kind!r} is needed here.")
    found = ModelExpressions(source.rates, dict(source.outputs))
    return Draft(source.states, given.parms, given.initial, lambda: found, source.time, algebraic=source.algebraic)


def _with_algebraic(draft: Draft, given: ModelArguments) -> Draft:
    """Return a draft with the states that were said to be algebraic."""
    if not given.algebraic:
        return draft
    if draft.function is None:
        raise ModelError(
            "`algebraic` is for functions; text says itself which equations are algebraic, by lines such as "
            "`0 = B - K*A**2`."
        )
    if given.kind != "ode":
        raise ModelError("`algebraic` is for differential equations (OdeModel); these are difference equations.")
    named = check_names(given.algebraic, draft.states, argument="algebraic", what="state")
    return replace(draft, algebraic=tuple(s for s in draft.states if s in named))


def _reused(
    draft: Draft, given: ModelArguments, source: Any, like: Definition | None
) -> tuple[Equations | ModelExpressions | None, tuple[Forcing, ...]]:
    """Return equations, or what is known of a vector function, where the new model differs in numbers only; its series.

    Series are those that the function looks up.
    """
    is_copy = like is not None and like.source is source
    series = tuple(f for f in like.forcings if f.of_function) if like is not None and is_copy else ()
    names = (draft.states, tuple(draft.parms), (*given.forcing_names, *(f.name for f in series)))
    there = None
    own = [*source.rates, *dict(source.outputs).values()] if isinstance(source, Equations) else []
    if own and not given.outputs and not has_lags(own):  # lags are brought to those of states first
        there = source
    elif like is not None and is_copy and like.given_outputs == given.outputs:
        there = like.equations
    if there is not None and (there.states, there.parameters, there.forcings) == names:
        return (there if there.algebraic == draft.algebraic else None), series
    if like is None or not is_copy or like.arrays is None:
        return None, ()
    if (like.states, like.parameters, like.forcing_names) != names:
        return None, ()
    return ModelExpressions(None, extra_names=like.extra_names, note=like.note, arrays=like.arrays), series


def _expressions(
    draft: Draft, given: ModelArguments, there: Equations | ModelExpressions | None, series: tuple[Forcing, ...]
) -> tuple[Equations | None, ModelExpressions]:
    """Return the expressions of a model, with the outputs that were given."""
    if isinstance(there, Equations):
        return there, ModelExpressions(there.rates, dict(there.outputs), series=series)
    found = draft.find() if there is None else replace(there, series=series)
    given = replace(given, forcings=(*given.forcings, *found.series))
    _check_apart(draft, given, (*found.own, *found.extra_names))
    known = [*draft.states, *draft.parms, *given.forcing_names, *found.extra_names, draft.time]
    found = replace(found, own={**found.own, **read_outputs(given.outputs, known, found.own)})
    if found.rates is None:
        if has_lags(found.own.values()):
            raise ModelError(
                f"The outputs read the past, for which the model must have equations, and it has none: {found.note}."
            )
        return None, found
    rates = found.rates
    if has_lags([*rates, *found.own.values()]):
        plain = partial(with_plain_lags, draft=draft, given=given)
        rates, found = tuple(map(plain, rates)), replace(found, own={k: plain(e) for k, e in found.own.items()})
    names = (draft.states, tuple(draft.parms), given.forcing_names)
    outputs = tuple(found.own.items())
    return Equations(given.kind, *names, rates, outputs, draft.time, draft.algebraic), replace(found, rates=rates)


def _of_outputs(events: tuple[Event, ...], by_symbol: dict[Any, Any]) -> tuple[Event, ...]:
    """Return events whose values are of states, parameters, forcings and time: outputs are put in by what they are."""
    made = {e.value: e.value.subs(by_symbol) for e in events if not isinstance(e.value, float)}
    return tuple(replace(e, value=made[e.value]) if e.value in made else e for e in events)


def _number(value: Any) -> Any:
    """Return constant expressions as floats, the others as they are."""
    return value if getattr(value, "free_symbols", None) else float(value)


# --- checks


def _check_events(definition: Definition) -> None:
    """Refuse events of algebraic states: their equations say what they are after it."""
    changed = [e.state for e in definition.events] + [c.state for r in definition.roots for c in r.changes]
    for place in changed:
        if (state := definition.states[place]) in definition.algebraic:
            raise ModelError(
                f"`events`: {state!r} is an algebraic state, which its equation determines at every time; an event "
                "changes states that have a rate."
            )
    if has_lags(_in_events(definition)):
        raise ModelError("`events`: a row is of an output that reads the past; an event knows the present alone.")


def _in_events(d: Definition) -> set[Any]:
    return {e.value for e in d.events}.union(*(r.expressions for r in d.roots))


def _check_apart(draft: Draft, given: ModelArguments, outputs: Sequence[str] = ()) -> None:
    """Refuse a name that stands for two things, or for the first column of the result."""
    time = "the time" if draft.function is None else "the time, the function's first argument"
    groups = {
        "a state": draft.states,
        "a parameter": tuple(draft.parms),
        "a forcing": given.forcing_names,
        "an output": outputs,
        time: () if draft.reads is None else (draft.time,),
    }
    for (one, a), (other, b) in combinations(groups.items(), 2):
        for name in a:
            if name in b:
                raise ModelError(f"{name!r} is both {one} and {other}; give one of them another name.")
    if "time" in (*draft.states, *outputs, *given.outputs):
        raise ModelError(
            "A state or output is called 'time', like the first column of the result; choose another name."
        )


def _check_start(draft: Draft, given: ModelArguments) -> None:
    """Refuse initial values that are missing, of no state, or of anything but parameters."""
    ode, states = given.kind == "ode", set(draft.states)
    for name in given.initial:
        if name not in states:
            needed = f" It needs a rate, d({name})/dt = ..., or an algebraic equation, 0 = ..." if ode else ""
            hint = did_you_mean(name, draft.states) or needed
            raise ModelError(f"`state`: {name!r} has no equation in the model.{hint}")
    missing = [s for s in draft.states if s not in draft.initial]
    if missing:
        raise ModelError(
            f"No initial value for {listed(missing)}. Write a line such as `{missing[0]}(0) = 1`, or give "
            f"state={{{missing[0]!r}: 1}}."
        )
    for name, value in draft.initial.items():
        for used in sorted(names_in([value]) - set(draft.parms)):
            why = f"{used!r}, which has no value. Give it in `parms`.{did_you_mean(used, draft.parms)}"
            if used in draft.states:
                why = f"the state {used!r}; it may only depend on parameters."
            raise draft.error(f"The initial value of {name!r} uses {why}", f"{name}(0)")


def _check_used(draft: Draft, definition: Definition, kept: Sequence[str]) -> None:
    """Refuse names without a value, and values and forcings that nothing uses; a copy keeps all of its parameters."""
    d, parameters = definition, definition.parameters
    forcings = d.forcing_names
    known = (*d.states, *parameters, *forcings, *d.extra_names, d.time)
    inside = names_in([*(() if d.equations is None else d.equations.rates), *(e for _, e in d.outputs)])
    for name in sorted(inside - set(known)):
        why = f"{name!r} has no value: it is not a state, and is missing in `parms` and `forcings`."
        near = f" The time is called {d.time!r}." if name == "time" else did_you_mean(name, known)
        raise draft.error(why + near, name)
    in_events = names_in(_in_events(d))
    check_names(sorted(in_events), known, argument="events", what="state, parameter, forcing or output")
    rates = () if d.equations is None else d.equations.rates
    still = {*parameters, *(s for s, e in zip(d.states, rates, strict=False) if isinstance(e, Number) and e.value == 0)}
    check_roots(d.roots, (*d.states, *forcings, *d.extra_names, d.time), still)
    if draft.reads is None:
        return
    used = {*draft.reads, *inside, *in_events, *names_in(d.initial), *names_in(d.history)}
    for name in (f.name for f in d.forcings if not f.of_function):
        if name not in used:
            raise ModelError(f"The forcing {name!r} is used nowhere in the model.{did_you_mean(name, used)}")
    for name in parameters:
        if name not in used and name not in kept:
            raise ParameterError(
                f"`parms`: {name!r} is used nowhere in the model.{did_you_mean(name, used)} It uses "
                f"{listed(sorted(used - set(d.states)))}."
            )
