"""Models as functions of other parameters than their own: transformed, held at values, tied.

With ``full(theta)`` a map of parameters (`fmepy.parameters.maps`) and D its derivative::

    Y(theta) = Y(full(theta))      dY/dtheta = dY/dfull D
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from fmepy.models.base import OfRuns, keep_within, simulate_many, tightened
from fmepy.parameters.mapped import HeldValues, Mapped
from fmepy.parameters.maps import Map, many_of
from fmepy.types import Cube, Matrix, UserParameters, Vector


class BoundMappedModel(OfRuns):
    """A bound model as a function of other parameters; see `fmepy.models.base.BoundModel`."""

    runs_on_threads: Any = property(lambda self: getattr(self.bound, "runs_on_threads", False))

    def __init__(self, bound: Any, map: Map) -> None:
        self.bound, self.map = bound, map
        self.names = tuple(map.names)
        self.theta0 = map.start(np.asarray(bound.theta0, dtype=float))
        self.var_names = tuple(bound.var_names)
        self.times = bound.times
        self._full, self._simulate = map.full, bound.simulate

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self.bound, *self.map.box(lower, upper))

    def tightened(self) -> BoundMappedModel | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        bound = tightened(self.bound)
        return None if bound is None else BoundMappedModel(bound, self.map)

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        Y: Matrix = self._simulate(self._full(theta))
        return Y

    def simulate_many(self, Theta: Matrix) -> tuple[Cube, Any]:
        """Return Y of many runs, and why runs failed, see `fmepy.models.base.simulate_many`."""
        return many_of(self.map, Theta, lambda full: simulate_many(self.bound, full))

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, the derivatives of Y to the mapped parameters."""
        Y, S = self.bound.sensitivities(self._full(theta))
        return Y, self.map.pull(theta, S)

    @property
    def has_pull(self) -> bool:
        """Whether `with_pull` takes less time than `sensitivities`."""
        return bool(getattr(self.bound, "has_pull", False))

    def with_pull(self, theta: Vector) -> tuple[Matrix, Callable[[Matrix], Vector]]:
        """Return Y, and ``pull(dL/dY)``, which returns dL/dtheta, shape (n_par,), of a number L."""
        Y, pull = self.bound.with_pull(self._full(theta))
        return Y, lambda weights: np.asarray(self.map.pull(theta, pull(weights)))


class Around:
    """What a model around another one, `inner`, shows of it."""

    inner: Any
    states: Any = property(attrgetter("inner.states"))
    var_names: Any = property(attrgetter("inner.var_names"))
    x_name: Any = property(lambda self: getattr(self.inner, "x_name", "time"))
    times: Any = property(attrgetter("inner.times"))
    engine: Any = property(attrgetter("inner.engine"))
    engine_note: Any = property(attrgetter("inner.engine_note"))


class MappedModel(Around, Mapped):
    """A model as a function of transformed parameters, or with other values of its own; made by `transformed`."""

    @property
    def entity_inputs(self) -> Any:
        """Events and forcings of the model that belong to entities."""
        return getattr(self.inner, "entity_inputs", None)

    def of_entity(self, entity: Any) -> MappedModel:
        """Return the model with the events and forcings of one entity."""
        return MappedModel(self.inner.of_entity(entity), self.how)

    def __call__(self, parms: UserParameters = None, times: Any = None, **words: Any) -> pd.DataFrame:
        """Run the model at mapped parameters and return its table."""
        table: pd.DataFrame = self.inner(self.inner_parms(parms), times, **words)
        return table

    def hits(self, parms: UserParameters = None) -> pd.DataFrame:
        """Return when root events fire in a run at mapped parameters, see `OdeModel.hits`."""
        table: pd.DataFrame = self.inner.hits(self.inner_parms(parms))
        return table

    def bind(self, names: Sequence[str] | None = None, **words: Any) -> BoundMappedModel:
        """Return the model as a function of the mapped parameters `names` (None: all)."""
        map = self.map(self.checked_names(names))
        return BoundMappedModel(self.inner.bind(map.full_names, **words), map)


def tell_once(model: Any, other: Any) -> None:
    """Let a model and another one, or those that they are made of, warn once together of what models warn of once."""
    while hasattr(model, "inner"):
        model = model.inner
    while hasattr(other, "inner"):
        other = other.inner
    if model is not other and hasattr(model, "tell_with"):
        model.tell_with(other)


def with_values(model: Any, values: Mapping[str, float]) -> Any:
    """Return a model with other values of some of its parameters, on its own scale."""
    if not values:
        return model
    # the `replace` of a mapped model speaks of the inner one's scale
    speaks = not isinstance(model, MappedModel)
    return model.replace(parms=dict(values)) if speaks else MappedModel(model, HeldValues(pd.Series(values)))
