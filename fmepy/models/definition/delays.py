"""Delays in a definition: ``lag(x, tau)`` checked and brought to lags of single states, and the history.

A delay is a number, or an expression of parameters, or of states and time too. The past of an expression is made of
that of its states: ``lag(N * M, tau)`` is ``lag(N, tau) * lag(M, tau)``, ``lag(lag(N, a), b)`` is ``lag(N, a + b)``,
and the time in it goes back too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from fmepy.errors import ModelError, did_you_mean, listed
from fmepy.language.equations import names_in, symbol
from fmepy.language.nodes import ZERO, Node, as_node, call, mapped, nodes_in
from fmepy.language.text import ONLY_IN_RATES, read_value
from fmepy.models.definition.arguments import ModelArguments, by_name

if TYPE_CHECKING:
    from fmepy.models.definition.definition import Definition, Draft


def has_lags(expressions: Iterable[Any]) -> bool:
    """Tell whether a lag stands in any of the expressions."""
    return bool(nodes_in((e for e in expressions if isinstance(e, Node)), "lag"))


def at_present(e: Any) -> Any:
    """Return an expression with the present in the place of the past: what holds at rest."""
    return _rebuilt(e, lambda x, tau: x)


def at_rest(definition: Definition) -> Definition:
    """Return the definition of what a model is at rest, where the past is as the present."""
    e = definition.equations
    if e is None or not definition.has_delays:
        return definition
    rates, outputs = tuple(map(at_present, e.rates)), tuple((k, at_present(v)) for k, v in e.outputs)
    return replace(definition, equations=replace(e, rates=rates, outputs=outputs), outputs=outputs, history=())


def with_plain_lags(e: Any, draft: Draft, given: ModelArguments) -> Any:
    """Return an expression whose lags are all of a single state, by expressions of parameters.

    Raises
    ------
    ModelError
        A delay that is negative or changes in a run, or the past of what is no state or made of states.
    """
    return _rebuilt(e, lambda x, tau: _plain_lag(x, tau, draft, given))


def _plain_lag(x: Any, tau: Any, draft: Draft, given: ModelArguments) -> Any:
    here = f"lag({x}, {tau})"
    if given.kind != "ode":
        raise ModelError(f"{here} is not allowed here: {ONLY_IN_RATES}. A difference equation remembers by a state.")
    for name in sorted(names_in([tau]) & set(given.forcing_names)):
        raise draft.error(
            f"The delay of {here} is of {name!r}, a forcing; a delay is a number or an expression of parameters, "
            "states and the time", name
        )  # fmt: skip
    inner = nodes_in([x], "lag")
    if nodes_in([tau], "lag") or any(names_in([lag.args[1]]) - set(draft.parms) for lag in inner):
        raise ModelError(f"{here}: within another lag only a delay that does not change in a run can stand.")
    if tau.is_constant and not float(tau) >= 0:
        raise ModelError(f"The delay of {here} is negative; lag(x, tau) is what x was tau ago.")
    names = names_in([x])
    for name in sorted(names - {*draft.states, *draft.parms, draft.time}):
        what = "a forcing" if name in given.forcing_names else "not a state"
        raise draft.error(
            f"{here}: {name!r} is {what}, and only of states is the past known."
            f"{did_you_mean(name, draft.states)} States are {listed(draft.states)}", name
        )  # fmt: skip
    if not names & {*draft.states, draft.time}:
        raise ModelError(f"{here}: {x} does not change in a run, so it has no past; lag is of states.")
    if tau is ZERO:
        return x
    earlier = {lag: call("lag", lag.args[0], lag.args[1] + tau) for lag in inner}
    earlier |= {symbol(s): call("lag", symbol(s), tau) for s in draft.states}
    return x.subs({**earlier, symbol(draft.time): symbol(draft.time) - tau})


def _rebuilt(e: Any, lag: Callable[[Any, Any], Any]) -> Any:
    """Return an expression with something in the place of its lags, inner ones first."""
    return mapped([e], lambda e, parts: lag(*parts) if e.word == "lag" else e.rebuilt(parts) if parts else e)[0]


def as_history(history: Any) -> dict[str, Any]:
    """Return what the user gave as history by state: numbers and expressions."""
    given = by_name(history, "history", "states and what they were before the start")
    return {name: _past(name, value) for name, value in given.items()}


def _past(name: str, value: Any) -> Any:
    """Return what a state was before the start as an expression."""
    past = read_value(value, f"history[{name!r}]")
    if isinstance(past, float) and not isfinite(past):
        raise ModelError(
            f"`history[{name!r}]` is {value!r}; a finite number, a parameter's name or an expression of parameters and "
            "the time is needed, such as 'N0 * exp(t)'."
        )
    return as_node(past)


def check_history(history: dict[str, Any], draft: Draft, is_read: bool) -> None:
    """Refuse a history of no state, of anything but parameters and the time, or that nothing reads."""
    for name, value in history.items():
        if name not in draft.states:
            raise ModelError(
                f"`history`: {name!r} is not a state of the model.{did_you_mean(name, draft.states)} States are "
                f"{listed(draft.states)}."
            )
        known = (*draft.parms, draft.time)
        for used in sorted(names_in([value]) - set(known)):
            why = f"{used!r}, which has no value. Give it in `parms`.{did_you_mean(used, known)}"
            if used in draft.states:
                why = f"the state {used!r}; it may only depend on parameters and the time ({draft.time})."
            raise ModelError(f"`history[{name!r}]` uses {why}")
    if history and not is_read:
        raise ModelError("`history` is given, but the model reads no past: no lag(x, tau) stands in it.")
