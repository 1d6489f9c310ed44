"""A model as one of several experiments runs it: a function of the parameters of the whole.

`EntityModel` is a Model like any other. All entities of a whole bind the same parameters of the model beneath, and what
differs between them (numbers, times, events) is an input of what is compiled, so that one compilation serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from fmepy.errors import counted
from fmepy.models.mapped import Around, BoundMappedModel, tell_once, with_values
from fmepy.models.preequilibration import BoundFromRest, StartAtRest, opened, resting, start_name
from fmepy.parameters.entities import EntityParameters
from fmepy.parameters.named import merge_parameters
from fmepy.types import UserParameters


@dataclass(frozen=True, eq=False, repr=False)
class EntityModel(Around):
    """A model with the parameters of one entity, as a function of those of the whole; see `models.base.Model`.

    Parameters
    ----------
    model : Model
        As the whole has it.
    parameters : EntityParameters
        Of the whole; those that the model does not have, such as those of noise, do not matter here.
    k : int
        Which entity.
    before : int, optional
        The entity in whose steady state it starts; `model` is then one whose initial values are parameters
        (`fmepy.models.preequilibration.opened`), and `closed` the same without that.
    closed : Model, optional
    anew : tuple of str
        The states that begin at their initial value all the same.
    """

    model: Any
    parameters: EntityParameters
    k: int
    before: int | None = None
    closed: Any = None
    anew: tuple[str, ...] = ()
    inner: Any = field(init=False)

    def __post_init__(self) -> None:
        own, model = self.parameters.own(self.k), self._with_inputs(self.model)
        given = {n: own[n] for n, value in model.parms.items() if own.get(n, value) != value}
        object.__setattr__(self, "inner", with_values(model, given))
        tell_once(self.inner, self.model if self.closed is None else self.closed)

    @property
    def label(self) -> str:
        """The entity, as text."""
        return self.parameters.labels[self.k]

    @property
    def told(self) -> str:
        """What a message says of whose run it is; "" where there is but one experiment."""
        return f"Entity {self.label!r}" if self.label else ""

    @property
    def beneath(self) -> Any:
        """The model as the whole has it, with the events and forcings of the entity."""
        return self._with_inputs(self.model if self.closed is None else self.closed)

    def _with_inputs(self, model: Any) -> Any:
        return model if getattr(model, "entity_inputs", None) is None else model.of_entity(self.label)

    @property
    def parms(self) -> pd.Series:
        """The parameters of the whole that move a model's parameter, of whatever entity."""
        of_model = set(self.inner.parms.index)
        own = self.parameters
        columns = [j for j, n in enumerate(own.full_names) if n in of_model]
        return own.parms[own.behind(columns)].copy()

    @property
    def transforms(self) -> dict[str, str]:
        """How parameters of the whole are transformed, by name."""
        return self.parameters.transforms(getattr(self.inner, "transforms", {}))

    def __call__(self, parms: UserParameters = None, times: Any = None) -> pd.DataFrame:
        """Run the model with the entity's parameters, of some or all of the whole, and return its table."""
        whole = merge_parameters(self.parms, parms)
        if self.before is not None:
            bound = self.bind(times=self.times if times is None else times)
            table = pd.DataFrame(bound.simulate(whole.to_numpy(dtype=float)), columns=list(self.var_names))
            table.insert(0, "time", bound.times)
            return table
        names = list(self.inner.parms.index)
        full = self.parameters.map(self.k, tuple(whole.index), names).full(whole.to_numpy(dtype=float))
        out: pd.DataFrame = self.inner(dict(zip(names, full.tolist(), strict=True)), times)
        return out

    def bind(self, names: Sequence[str] | None = None, **words: Any) -> BoundMappedModel | BoundFromRest:
        """Return the model as a function of the parameters `names` of the whole (None: all that it has)."""
        chosen = tuple(self.parms.index) if names is None else self.parameters.checked(names)
        moved = self.moved_by(chosen)
        own = self.parameters.map(self.k, chosen, moved)
        start = self.at_rest(chosen, hold_engine=words.get("hold_engine", False))
        if start is None:
            return BoundMappedModel(self.inner.bind(moved, **words), own)
        run = self.inner.bind([*moved, *map(start_name, self.states)], **words)
        return BoundFromRest(run, own, start)

    def at_rest(self, names: tuple[str, ...], **words: Any) -> StartAtRest | None:
        """Return the state that it starts in as a function of the parameters `names` of the whole; None if given."""
        if self.before is None:
            return None
        source = EntityModel(resting(self.closed), self.parameters, self.before, closed=self.closed)
        moved = source.moved_by(names)
        d, of = self.beneath.definition, self.parameters
        own = of.map(self.k, names, d.parameters)
        map = of.map(self.before, names, moved)
        return StartAtRest(source.inner, source.label, map, d, self.anew, own, **words)

    def moved_by(self, names: tuple[str, ...]) -> list[str]:
        """Return the model's parameters that any of `names` moves; an empty theta is not asked of a model."""
        of_model = list(map(str, self.inner.parms.index))
        return [n for n in self.parameters.moved_by(names) if n in of_model] or of_model[:1]

    def replace(self, **arguments: Any) -> EntityModel:
        """Return a copy with other values of `parms`, of the whole, or other arguments of the model changed."""
        parms = merge_parameters(self.parameters.parms, arguments.pop("parms", None))
        of_whole = replace(self.parameters, parms=parms)
        if self.before is not None:
            closed = self.closed.replace(**arguments) if arguments else self.closed
            return EntityModel(opened(closed), of_whole, self.k, self.before, closed, self.anew)
        return EntityModel(self.model.replace(**arguments) if arguments else self.model, of_whole, self.k)

    def __repr__(self) -> str:
        return f"{self.inner!r}\nas entity {self.label!r}, of {counted(len(self.parms), 'parameter')}"
