"""A model of transformed parameters as a filter follows it: the same equations, with exp(k) where k stood."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fmepy.fimlof.specification import Specification
from fmepy.language.equations import symbol
from fmepy.language.nodes import call
from fmepy.models.mapped import MappedModel, with_values
from fmepy.models.running.events import Event
from fmepy.parameters.mapped import Transforms


def with_equations(model: Any) -> Any:
    """Return a model of the same parameters that has a definition; of one that can have none the model itself."""
    if not isinstance(model, MappedModel):
        return model
    inner = with_equations(model.inner)
    if not isinstance(model.how, Transforms):
        return with_values(inner, {str(k): float(v) for k, v in model.how.values.items()})
    definition = getattr(inner, "definition", None)
    if definition is None or definition.equations is None:
        return model
    back = {symbol(name): _back(kind, symbol(name)) for name, kind in model.how.kinds.items()}
    equations = definition.equations
    return inner.of_equations(
        replace(
            equations,
            rates=tuple(e.subs(back) for e in equations.rates),
            outputs=tuple((name, e.subs(back)) for name, e in equations.outputs),
        ),
        state={s: as_given(v, back) for s, v in zip(definition.states, definition.initial, strict=True)},
        parms=model.parms.to_dict(),
        forcings={f.name: f for f in definition.forcings} or None,
        events=[e.row(definition.states, as_given(e.value, back)) for e in definition.events] or None,
    )


def with_inputs(spec: Specification, model: Any) -> Specification:
    """Return a specification with the events and forcings of a model that differs in them alone."""
    if spec.definition.is_closed:  # its runs alone are known
        return spec
    own, kinds = model, []
    while isinstance(own, MappedModel):
        kinds += [own.how.kinds] if isinstance(own.how, Transforms) else []
        own = own.inner
    events: tuple[Event, ...] = own.definition.events
    for one in reversed(kinds):
        back = {symbol(name): _back(kind, symbol(name)) for name, kind in one.items()}
        events = tuple(e if isinstance(e.value, float) else replace(e, value=e.value.subs(back)) for e in events)
    definition = replace(spec.definition, forcings=own.definition.forcings, events=events)
    return replace(spec, definition=definition, events=events, model=own)


def as_given(value: Any, back: dict[Any, Any] | None = None) -> Any:
    """Return a number, or an expression as text, with other expressions for some names."""
    if not getattr(value, "free_symbols", None):
        return float(value)
    return str(value.subs(back or {}))


def _back(kind: str, s: Any) -> Any:
    """Return the parameter itself, from its transform."""
    return {"log": call("exp", s), "log10": 10.0**s, "logit": 1 / (1 + call("exp", -s))}[kind]
