"""The unknown parameters: names, first guesses and bounds, of one experiment or of several.

Of several experiments an unknown initial value is local: every experiment has its own, ``A0[a]``, ``A0[b]``, ... All
other unknowns are shared, unless they are named with an experiment, as ``k[a]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fmepy.costs.observer_gain import names_of_gain
from fmepy.errors import ModelError, ParameterError
from fmepy.language.equations import names_in
from fmepy.parameters.entities import local_name
from fmepy.parameters.named import check_names
from fmepy.parameters.names import normal_name, split_local


def definition_of(model: Any) -> Any:
    """Return the definition of a model, of one around another one that of the inner; None where there is none."""
    while getattr(model, "definition", None) is None and hasattr(model, "inner"):
        model = model.inner
    return getattr(model, "definition", None)


def _used_by_equations(definition: Any) -> set[str]:
    """Return the names in outputs, events and equations; not those that a function of the user's may use."""
    d = definition
    used = names_in([*(e for _, e in d.outputs), *(event.value for event in d.events)])
    return used if d.equations is None else used | d.equations.free_names()


def initial_values(model: Any) -> tuple[str, ...]:
    """Return the parameters of a model that make initial values and, as far as can be seen, nothing else."""
    d = definition_of(model)
    if d is None:
        return _starts_of_modules(model)
    elsewhere = _used_by_equations(d)
    if d.equations is None and d.function is not None:
        elsewhere |= {*d.function.positional, *d.function.keywords}
    mine = names_in(d.initial) - elsewhere
    return tuple(name for name in d.parameters if name in mine)


def _starts_of_modules(model: Any) -> tuple[str, ...]:
    """Return the parameters of a system of modules that make initial values, as its equations say, or as levels."""
    while hasattr(model, "inner"):
        model = model.inner
    if not hasattr(model, "compiled"):
        return ()
    try:
        starts = {name.removesuffix("(0)") for name in initial_values(model.compiled("difference"))}
    except ModelError:
        starts = set(model.states)
    return tuple(name for name in map(str, model.parms.index) if name in starts)


def gains_among(names: Sequence[str], model: Any, gain: Any) -> tuple[int, ...]:
    """Return the positions of the unknowns that are in the gain alone, and not in the model."""
    d = definition_of(model)
    only = set(names_of_gain(gain)) - names_in(d.initial) - _used_by_equations(d)
    return tuple(i for i, name in enumerate(names) if split_local(name)[0] in only)


def starts_of(model: Any, names: Iterable[str]) -> dict[str, str]:
    """Return the unknown that is the initial value of a state, by state."""
    d = getattr(model, "definition", None)
    if d is None:
        return {}
    unknown = {split_local(name, model.parms.index)[0] for name in names}
    starts = {s: getattr(e, "name", "") for s, e in zip(d.states, d.initial, strict=True)}
    return {s: name for s, name in starts.items() if name in unknown}


def check_unknowns(p: Any, model: Any) -> None:
    """Raise an error unless `p` is a list of names, a dict or Series of first guesses, or None; and for a state's name.

    What is unknown of a state is its initial value. A model with a history besides its states is refused, too.
    """
    if (definition := definition_of(model)) is not None:
        definition.check_plain("fit_boundary")
    is_mapping = isinstance(p, pd.Series) or (isinstance(p, Mapping) and type(p).__name__ != "Parameters")
    if not (p is None or isinstance(p, str) or is_mapping):
        is_list = isinstance(p, Sequence | pd.Index) or hasattr(p, "tolist")
        if not (is_list and all(isinstance(name, str) for name in p)):
            raise ParameterError(
                "`p` must be the names of the unknowns, or a dict of them and their first guesses, such as "
                f"{{'k': 0.5}}; got {'values without names' if is_list else type(p).__name__}."
            )
    known = tuple(map(str, model.parms.index))
    for name in names_in_order(p, known):
        if name in model.states and name not in known:
            raise ParameterError(
                f"`p`: {name!r} is a state. Make its initial value a parameter of the model, "
                f"state={{{name!r}: {name + '0'!r}}} with parms={{{name + '0'!r}: ...}}, and name that: {name + '0'!r}."
            )


def names_in_order(p: Any, own: Iterable[str]) -> dict[str, Any]:
    """Return the names of the unknowns with their first guesses, None where there is none."""
    if p is None:
        return dict.fromkeys(own)
    if isinstance(p, Mapping | pd.Series):
        return {normal_name(k): v for k, v in dict(p).items()}
    return dict.fromkeys(map(normal_name, [p] if isinstance(p, str) else p))


@dataclass(frozen=True, slots=True, eq=False)
class Requested:
    """The unknowns of several experiments, as the user named them.

    Attributes
    ----------
    guesses : dict of str to float or None
        Names as the user wrote them, with their first guesses (None: the model's value).
    local : tuple of str
        Parameters that every experiment has for itself.
    further : tuple of str
        Those that the model does not have.
    """

    guesses: dict[str, Any]
    local: tuple[str, ...]
    further: tuple[str, ...] = ()

    def spread(self, values: Mapping[str, Any], texts: Sequence[str]) -> dict[str, Any]:
        """Return values by the names of all experiments: the value of a plain local name is that of each experiment."""
        out: dict[str, Any] = {}
        for name, value in values.items():
            everywhere = name in self.local
            out |= {local_name(name, t): value for t in texts} if everywhere else {name: value}
        return out | {name: value for name, value in values.items() if name not in self.local}

    def bound(self, bound: Any, texts: Sequence[str]) -> Any:
        """Return a user's bound, by name or in the order of the unknowns, for all experiments."""
        if isinstance(bound, Mapping | pd.Series):
            by_name = {normal_name(k): v for k, v in dict(bound).items()}
        elif isinstance(bound, Iterable) and not isinstance(bound, str) and len(list(bound)) == len(self.guesses):
            by_name = dict(zip(self.guesses, bound, strict=True))
        else:
            return bound
        return self.spread(by_name, texts)


def entity_unknowns(p: Any, model: Any, further: Sequence[str] = ()) -> Requested:
    """Return the unknowns of several experiments that `p` names (None: all), the model's own and `further` ones.

    Raises
    ------
    ParameterError
        A name that the model does not have, with the nearest.
    """
    own = (*map(str, model.parms.index), *further)
    guesses = names_in_order(p, own)
    pairs = [split_local(name, own) for name in guesses]
    plain = list(dict.fromkeys(name for name, _ in pairs))
    check_names(plain, own, argument="p")
    of_starts = initial_values(model)
    named = {name for name, entity in pairs if entity is not None}
    local = tuple(n for n in own if n in named or (n in guesses and n in of_starts))
    return Requested(guesses, local, tuple(further))
