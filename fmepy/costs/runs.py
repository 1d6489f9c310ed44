"""The runs behind a simulation cost: the model as every experiment has it, their tables and pictures."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import pandas as pd

from fmepy.costs.censored import signs
from fmepy.costs.entities import Experiments
from fmepy.costs.observations import Comparison
from fmepy.errors import ArgumentError
from fmepy.models.entity import EntityModel
from fmepy.models.from_rest import opened
from fmepy.parameters.named import merge_parameters
from fmepy.types import UserParameters


class RunsOfCost:
    """What a cost says of the runs that it compares with data; a base of `SimulationCost`."""

    model: Any
    x: str | None
    entity: str | None
    experiments: Experiments | None
    comparison: Comparison
    _own: pd.Series

    @cached_property
    def models(self) -> tuple[EntityModel, ...]:
        """The model as every run of an entity has it; entities that differ in nothing share one."""
        assert self.experiments is not None, "asked of costs of several experiments"
        return tuple(self._model_of(k) for k in self.experiments.apart[0])

    @cached_property
    def _opened(self) -> Any:
        return opened(self.model)

    def _model_of(self, k: int) -> EntityModel:
        assert self.experiments is not None, "asked of costs of several experiments"
        own, before = self.experiments.parameters, self.experiments.starts[k]
        if before is None:
            return EntityModel(self.model, own, k)
        return EntityModel(self._opened, own, k, before, self.model)

    def model_of(self, entity: Any) -> EntityModel:
        """Return the model as one entity runs it, a Model of the cost's parameters: for predictions, ranges, pictures.

        Parameters
        ----------
        entity : str or number
            As it stands in the data.

        Raises
        ------
        ArgumentError
            A cost of one experiment.
        ParameterError
            No such entity, with the nearest.
        """
        if self.experiments is None:
            raise ArgumentError("This cost is of one experiment (entity=None): its model is `cost.model`.")
        return self._model_of(self.experiments.position(entity))

    def run(self, parms: UserParameters = None, times: Any = None) -> pd.DataFrame:
        """Return the runs behind the cost: of several experiments one below the other, the entity in the first column.

        Parameters
        ----------
        parms : dict, Series, ...
            As in a call, such as ``fit.par``.
        times : array_like, optional
            Default: the model's own.
        """
        values = merge_parameters(self._own, parms)
        if self.experiments is None:
            table: pd.DataFrame = self.model(values[self.model.parms.index], times)
            return table
        tables = []
        for label in self.experiments.column.labels:
            model = self.model_of(label)
            tables.append(model(values[model.parms.index], times))
            tables[-1].insert(0, self.entity, label)
        return pd.concat(tables, ignore_index=True)

    def plot(self, parms: UserParameters = None, *, times: Any = None, axes: Any = None, **kwargs: Any) -> Any:
        """Draw the runs behind the cost with the data, in their own units: a panel an entity, or else a variable.

        Parameters
        ----------
        parms, times
            As for `run`.
        axes : array of Axes, optional
        **kwargs
            Labels and limits (``xlabel``, ``yscale``, ...), and properties of the curves.

        Returns
        -------
        ndarray of Axes
        """
        if self.x is None:
            raise ArgumentError("Means (x=None) have no time to be drawn against.")
        c, curves = self.comparison, self.run(parms, times)
        if len(c.scale.log) == len(c):  # what is compared as logarithms is seen as such
            kwargs.setdefault("yscale", "log")
        seen = pd.DataFrame({"name": list(c.names), "x": c.x, "obs": c.scale.back(c.obs)})
        if c.marks is not None:
            seen["censored"] = signs(c.marks)
        if self.experiments is None:
            from fmepy.plotting.models import plot_model

            obs = seen.rename(columns={"x": "time"})
            return plot_model(curves, obs=obs, which=list(c.group_names), axes=axes, **kwargs)
        from fmepy.plotting.entities import plot_entities

        seen["entity"] = list(c.entities or ())
        shown = curves[[self.entity, "time", *c.group_names]]
        return plot_entities(shown, seen, entity=str(self.entity), axes=axes, **kwargs)
