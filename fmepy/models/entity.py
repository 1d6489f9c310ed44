"""A model as one of several experiments runs it: a function of the parameters of the whole.

`EntityModel` is a Model like any other. All entities of a whole bind the same parameters of the model beneath, and what
differs between them (numbers, times, events) is an input of what is compiled, so that one compilation serves them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.models.base import bound_to
from fmepy.models.from_rest import BoundFromRest, Rest, opened, start_name, without_events
from fmepy.models.mapped import Around, BoundMappedModel, with_values
from fmepy.parameters.entities import EntityParameters
from fmepy.parameters.named import check_names, merge_parameters
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
        (`fmepy.models.from_rest.opened`), and `closed` the same without that.
    closed : Model, optional
    """

    model: Any
    parameters: EntityParameters
    k: int
    before: int | None = None
    closed: Any = None
    inner: Any = field(init=False)

    def __post_init__(self) -> None:
        own, model = self.parameters.own(self.k), self.model
        if getattr(model, "entity_inputs", None) is not None:
            model = model.of_entity(self.label)
        given = {n: own[n] for n, value in model.parms.items() if own.get(n, value) != value}
        object.__setattr__(self, "inner", with_values(model, given))

    @property
    def label(self) -> str:
        """The entity, as text."""
        return self.parameters.labels[self.k]

    @property
    def told(self) -> str:
        """What a message says of whose run it is; "" where there is but one experiment."""
        return f"Entity {self.label!r}" if self.label else ""

    @property
    def parms(self) -> pd.Series:
        """The parameters of the whole that move a model's parameter, of whatever entity."""
        of_model = set(self.inner.parms.index)
        own = self.parameters
        columns = [j for j, n in enumerate(own.full_names) if n in of_model]
        return own.parms[np.isin(np.arange(len(own.parms)), own.take[:, columns])].copy()

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
        known = self.parameters.parms.index
        chosen = tuple(self.parms.index) if names is None else check_names(names, known, argument="names")
        moved = [n for n in self.parameters.moved_by(chosen) if n in self.inner.parms.index]
        moved = moved or [str(self.inner.parms.index[0])]  # an empty theta is not asked of a model
        own = self.parameters.map(self.k, chosen, moved)
        if self.before is None:
            return BoundMappedModel(bound_to(self.inner, moved, **words), own)
        run = bound_to(self.inner, [*moved, *map(start_name, self.states)], **words)
        resting = EntityModel(without_events(self.closed), self.parameters, self.before)
        at_rest = [n for n in self.parameters.moved_by(chosen) if n in resting.inner.parms.index] or moved
        rest = Rest(resting.inner, at_rest, resting.label, hold_engine=words.get("hold_engine", False))
        return BoundFromRest(run, own, rest, self.parameters.map(self.before, chosen, at_rest))

    def replace(self, **arguments: Any) -> EntityModel:
        """Return a copy with other values of `parms`, of the whole, or other arguments of the model changed."""
        parms = merge_parameters(self.parameters.parms, arguments.pop("parms", None))
        of_whole = replace(self.parameters, parms=parms)
        if self.before is not None:
            closed = self.closed.replace(**arguments) if arguments else self.closed
            return EntityModel(opened(closed), of_whole, self.k, self.before, closed)
        return EntityModel(self.model.replace(**arguments) if arguments else self.model, of_whole, self.k)

    def __repr__(self) -> str:
        return f"{self.inner!r}\nas entity {self.label!r}, of {len(self.parms)} parameters"
