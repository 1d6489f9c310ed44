"""`SimulationCost`: simulate, then compare; prepared once, evaluated exactly at the observations.

For observation i of variable j, T the variable's transform (identity if none)::

    r_i = (T(mod_i) - T(obs_i)) / e_i                           mod_i: the model at the time of the observation
    dr_i/dp = T'(mod_i) / e_i dmod_i/dp                         from the model's sensitivities
    -2 log L = sum_i r_i^2 + log(2 pi) + 2 log e_i

What is fixed when the cost is built - matched names, used observations, weights - is a `Comparison`; what is fixed
when it is bound - the model, and where the observations stand in its run - are `Predictions`. An evaluation is numpy
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import changed_arguments
from fmepy.costs.base import AddableCost, OfData
from fmepy.costs.entities import (
    EntityColumn,
    Experiments,
    check_given,
    check_needed,
    given_values,
    read_conditions,
    read_entity_column,
    read_experiments,
)
from fmepy.costs.interpolation import Places
from fmepy.costs.modcost import ModCost, tabulate
from fmepy.costs.observation_scale import transforms_by_variable
from fmepy.costs.observations import Comparison, check_observed, concatenate, prepare, read_observations
from fmepy.costs.predictions import Predictions, predictions_by_entity, predictions_of
from fmepy.costs.tables import as_table
from fmepy.errors import ArgumentError, check_choice
from fmepy.models.base import Model
from fmepy.models.entity import EntityModel
from fmepy.parameters.named import check_names, merge_parameters
from fmepy.parameters.names import normal_name
from fmepy.types import Matrix, UserParameters, Vector

__all__ = ["BoundSimulation", "SimulationCost"]

_ARGUMENTS = (
    *("model", "obs", "x", "y", "err", "weight", "scaleVar", "transform", "interpolate", "outside"),
    *("parms", "entity", "entity_parms", "conditions"),
)
_MERGED = ("transform", "parms")


class BoundSimulation(OfData):
    """Simulation costs of one model as a function of a plain vector: predictions, and residuals of known errors.

    It is what `SimulationCost.bind` returns; see `fmepy.costs.base.BoundCost` for what it offers.

    Parameters
    ----------
    predictions : Predictions
        The model at the observations.
    pieces : sequence of Comparison
        One or more, in the order of the residuals: what the data of the predictions were joined from.
    """

    def __init__(self, predictions: Predictions, pieces: Sequence[Comparison]) -> None:
        c = predictions.data
        self.parameter_names, self.theta0 = predictions.parameter_names, predictions.theta0
        self.lower = np.full(len(self.parameter_names), -np.inf)
        self.upper = np.full(len(self.parameter_names), np.inf)
        self.is_scalar, self.has_jacobian = False, True
        self.predictions, self.pieces = predictions, tuple(pieces)
        self._obs, self._weights = c.obs, c.weights
        self._constant = float(len(c) * np.log(2 * np.pi) - 2 * np.log(c.weights).sum())

    @property
    def exact(self) -> bool:
        """True if the model solves its sensitivity equations."""
        return self.predictions.exact

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return self.predictions.retries

    @property
    def engine(self) -> str:
        """The engine that runs the model, as far as it says."""
        return self.predictions.engine

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self.predictions.keep_within(lower, upper)

    def tightened(self) -> BoundSimulation | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        tight = self.predictions.tightened()
        return None if tight is None else BoundSimulation(tight, self.pieces)

    @property
    def data(self) -> Comparison:
        """What is fixed of the data."""
        return self.predictions.data

    def residuals(self, theta: Vector) -> Vector:
        """Return r, shape (n_obs,): weighted, not scaled."""
        return (self.predictions.compared(theta) - self._obs) * self._weights

    def residuals_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return r of many theta, shape (n, n_obs), and why they failed; see `fmepy.costs.base.residuals_many`."""
        mod, why = self.predictions.compared_many(Theta)
        return (mod - self._obs) * self._weights, why

    def jacobian(self, theta: Vector) -> Matrix:
        """Return dr/dtheta, shape (n_obs, n_par), from the model's sensitivities."""
        return self.predictions.compared_with_slopes(theta)[1] * self._weights[:, None]

    def minus2loglik(self, theta: Vector) -> float:
        """Return -2 log L for normal errors of the given size."""
        r = self.residuals(theta)
        with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
            return float(r @ r) + self._constant

    def modcost(self, theta: Vector) -> ModCost:
        """Return the `ModCost` at theta; obs and mod are on the scale of comparison."""
        return tabulate(self.data, self.predictions.compared(theta))

    def modcosts(self, theta: Vector) -> list[ModCost]:
        """Return the `ModCost` of every piece, from one run."""
        mod = self.predictions.compared(theta)
        ends = np.cumsum([len(c) for c in self.pieces])
        return [tabulate(c, part) for c, part in zip(self.pieces, np.split(mod, ends[:-1]), strict=True)]


@dataclass(frozen=True, eq=False, repr=False)
class SimulationCost(AddableCost):
    """A dynamic model held against data: simulate, then compare. Call it with parameters for a `ModCost`.

    Parameters
    ----------
    model : Model
        A fmepy model (`OdeModel`, `DifferenceModel`, ...).
    obs : DataFrame, or mapping of names to columns
        The data, wide or long, as `modCost` takes them.
    x : str or None
        The column of the observation times (a fmepy model knows its own time). None: the mean of a variable's
        observations is compared with its mean over the model's times.
    y, err : str, optional
        Columns of the values of a long table, and of standard errors. With a `transform`, errors are on the
        transformed scale: with ``transform="log"`` an error of 0.1 is about ten per cent.
    weight : {"none", "std", "mean"}
        Without `err`, the error of a variable: 1, the standard deviation, or the mean absolute value of its
        observations that are used, on the transformed scale.
    scaleVar : bool
        As in `modCost`: the cost of a variable is divided by n_j^3.
    transform : {"log", "sqrt"} or dict by variable, optional
        Compare transformed values, on both sides. "Unweighted" then means on the transformed scale, and the tables of
        the `ModCost` hold transformed values.
    interpolate : {"exact", "grid"}
        "exact" runs the model to the observation times; "grid" interpolates linearly between the model's own times,
        as `modCost` does. They agree if every observation lies on the grid.
    outside : {"error", "drop"}
        Observations outside ``[model.times[0], model.times[-1]]``: an error, or left out and counted.
    parms : mapping, optional
        Values of the parameters that the model does not have: those that `conditions` name, and starts of local ones
        (``{"ka[3]": 1.2}``; otherwise the model's value).
    entity : str, optional
        Column that names the experiment of a row (subject, batch, rat): each runs by itself.
    entity_parms : sequence of str
        Parameters that every entity has for itself, as ``name[entity]``; all others are shared.
    conditions : DataFrame or mapping of columns, optional
        One row an entity, named by the index or by a column called as `entity`. Columns are parameters (initial values
        that are parameters among them): a number holds the parameter there, a name is the parameter of the cost that
        it takes its value from. What conditions set in every entity is no parameter of the cost.

    Attributes
    ----------
    parms, lower, upper : Series
        All parameters: the model's, local ones in their place; this cost declares no bounds.
    comparison : Comparison
        What is fixed: the observations in use, their weights and groups.
    experiments : Experiments or None
        Which parameters every entity has.

    Raises
    ------
    DataError
        As `modCost`; also observations that cannot be transformed. Variable and row are named.
    SimulationError
        When evaluated: the run fails, or a compared value is not finite or cannot be transformed. It carries the
        parameters. Values that nobody compares do not matter.
    ParameterError
        When evaluated: an unknown parameter, with the nearest.

    See Also
    --------
    modCost : the same for any table of output.
    transformed : a cost as a function of transformed parameters.

    Notes
    -----
    ``a + b`` is a `SumCost`; parts that share a model object are solved together. A cost is immutable and pickles;
    which observations are used never changes, so that residual vectors keep their length.

    **Differs from FME**: there is no such object in FME, where every objective function calls `modCost`; see there for
    the quirks that are mended. `interpolate="exact"` has no interpolation error.

    Examples
    --------
    >>> from fmepy.models.ode import OdeModel
    >>> def decay(t, A, *, k=0.5):
    ...     return -k * A
    >>> model = OdeModel(decay, state={"A": 10.0}, times=[0, 1, 2, 3], rtol=1e-10, atol=1e-10)
    >>> cost = SimulationCost(model, {"time": [0.5, 2.5], "A": [7.8, 2.9]})
    >>> round(cost({"k": 0.5}).model, 6)
    0.001365
    >>> bound = cost.bind(["k"])
    >>> bound.jacobian(bound.theta0).round(3)
    array([[-3.894],
           [-7.163]])

    Two vessels with different starts and a rate each:

    >>> vessels = {"vessel": ["a", "a", "b"], "time": [1, 2, 1], "A": [6.0, 4.0, 1.6]}
    >>> cost = SimulationCost(model.replace(state={"A": "A0"}, parms={"A0": 10.0}), vessels, entity="vessel",
    ...                       entity_parms=["k"], conditions={"vessel": ["a", "b"], "A0": [10, 2]})
    >>> cost.parms.to_dict()
    {'k[a]': 0.5, 'k[b]': 0.5}
    """

    model: Any
    obs: Any
    _: KW_ONLY
    x: str | None = "time"
    y: str | None = None
    err: str | None = None
    weight: str = "none"
    scaleVar: bool = False
    transform: Any = None
    interpolate: str = "exact"
    outside: str = "error"
    parms: Any = None  # given as a mapping, kept as the Series of all parameters
    entity: str | None = None
    entity_parms: Sequence[str] = ()
    conditions: Any = None
    comparison: Comparison = field(init=False)
    experiments: Experiments | None = field(init=False)
    _given: dict[str, float] = field(init=False)
    _own: pd.Series = field(init=False)

    def __post_init__(self) -> None:
        _check_model(self.model)
        check_choice(self.interpolate, ("exact", "grid"), "interpolate")
        table = as_table(self.obs)
        check_needed(self.entity, self.model, entity_parms=self.entity_parms, conditions=self.conditions)
        column = None if self.entity is None else read_entity_column(table, self.entity)
        used = table if self.entity is None else table.drop(columns=normal_name(self.entity))
        observations = read_observations(used, x=self.x, y=self.y, err=self.err)
        check_observed(observations.names, self.model.var_names)
        first, last = float(self.model.times[0]), float(self.model.times[-1])
        comparison = prepare(
            observations,
            None if self.x is None else dict.fromkeys(observations.names, (first, last)),
            weight=self.weight,
            scaleVar=self.scaleVar,
            outside=self.outside,
            transforms=transforms_by_variable(self.transform, observations.names),
            experiments=None if column is None else column.of_row,
        )
        object.__setattr__(self, "obs", table.copy())
        object.__setattr__(self, "_given", given_values(self.parms))
        experiments = self._read_experiments(column)
        object.__setattr__(self, "experiments", experiments)
        object.__setattr__(self, "comparison", comparison if column is None else column.of(comparison))
        parms = self.model.parms.copy() if experiments is None else experiments.parameters.parms
        check_given(self._given, self.model.parms, parms.index)
        object.__setattr__(self, "parms", parms.copy())  # whoever writes to it changes no value of the cost
        object.__setattr__(self, "_own", parms)

    def _read_experiments(self, column: EntityColumn | None) -> Experiments | None:
        """Return what is said of several experiments, None if there is one."""
        if column is None or self.entity is None:
            return None
        return read_experiments(
            column,
            read_conditions(self.conditions, self.entity, column.texts),
            self.model.parms,
            local=self.entity_parms,
            given=self._given,
            model=self.model,
        )

    @property
    def lower(self) -> pd.Series:
        """Lower bounds: none."""
        return pd.Series(-np.inf, index=self.parms.index)

    @property
    def upper(self) -> pd.Series:
        """Upper bounds: none."""
        return pd.Series(np.inf, index=self.parms.index)

    def __call__(self, parms: UserParameters = None) -> ModCost:
        """Return the `ModCost`.

        Parameters
        ----------
        parms : dict, Series, ...
            Some or all of the parameters; the others stay at the cost's values.
        """
        return self._bound.modcost(merge_parameters(self._own, parms).to_numpy(dtype=float))

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False, runs: int = 1) -> BoundSimulation:
        """Return the cost as a function of the parameters `names` (None: all)."""
        known = self.parms.index
        wanted = tuple(known) if names is None else check_names(names, known, argument="names")
        words: dict[str, Any] = {"hold_engine": hold_engine, "runs": runs}
        if self.experiments is None:
            return self.bind_together([self], wanted, **words)
        found = predictions_by_entity(self.models, [self.places], self.comparison, wanted, **words)
        return BoundSimulation(found, [self.comparison])

    @cached_property
    def models(self) -> tuple[EntityModel, ...]:
        """The model as every run of an entity has it; entities that differ in nothing share one."""
        assert self.experiments is not None, "asked of costs of several experiments"
        return tuple(EntityModel(self.model, self.experiments.parameters, k) for k in self.experiments.apart[0])

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
        return EntityModel(self.model, self.experiments.parameters, self.experiments.position(entity))

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
        if self.experiments is None:
            from fmepy.plotting.models import plot_model

            obs = seen.rename(columns={"x": "time"})
            return plot_model(curves, obs=obs, which=list(c.group_names), axes=axes, **kwargs)
        from fmepy.plotting.entities import plot_entities

        seen["entity"] = list(c.entities or ())
        shown = curves[[self.entity, "time", *c.group_names]]
        return plot_entities(shown, seen, entity=str(self.entity), axes=axes, **kwargs)

    def repeats(self, other: object) -> bool:
        """Tell whether another cost holds the same model against the same data."""
        if not isinstance(other, SimulationCost):
            return False
        return self.model is other.model and self.comparison.repeats(other.comparison)

    def shared_run(self) -> object | None:
        """Return the model: costs of the same model object share its runs; those of several experiments do not."""
        return self.model if self.experiments is None else None

    @classmethod
    def bind_together(
        cls, parts: Sequence[SimulationCost], names: Sequence[str], *, hold_engine: bool = False, runs: int = 1
    ) -> BoundSimulation:
        """Return costs of the same model as one function; the model is run once for all of them."""
        pieces = [part.comparison for part in parts]
        places = [part.places for part in parts]
        words: dict[str, Any] = {"hold_engine": hold_engine, "runs": runs}
        return BoundSimulation(predictions_of(parts[0].model, places, concatenate(pieces), names, **words), pieces)

    def replace(self, **arguments: Any) -> SimulationCost:
        """Return a copy with some arguments of the constructor changed; dicts are merged."""
        given = {name: getattr(self, name) for name in _ARGUMENTS} | {"parms": self._given}
        new = changed_arguments(given, arguments, _MERGED, "SimulationCost")
        return SimulationCost(new.pop("model"), new.pop("obs"), **new)

    def __repr__(self) -> str:
        c = self.comparison
        counts = np.bincount(c.groups, minlength=len(c.group_names))
        told = ", ".join(f"{name} ({n})" for name, n in zip(c.group_names, counts, strict=True))
        lost = int(c.n_missing.sum() + c.n_outside.sum())
        of = "" if self.experiments is None else f" of {len(self.experiments.column.labels)} entities ({self.entity!r})"
        return f"SimulationCost: {told}{of}; {len(self.parms)} parameters" + (f"; {lost} dropped" if lost else "")

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_bound", "models")}

    @cached_property
    def _bound(self) -> BoundSimulation:
        return self.bind()

    @property
    def places(self) -> Places:
        """What is looked up in a run."""
        c, runs = self.comparison, None
        if self.experiments is not None:
            assert c.places is not None, "prepared from a table"
            runs = self.experiments.apart[1][self.experiments.column.of_row[c.places]]
        return Places(c.names, None if self.x is None else c.x, self.interpolate == "grid", c.x_name, runs)


def _check_model(model: Any) -> None:
    if isinstance(model, Model):
        return
    advice = "In a function of your own, return modCost(output, obs) instead." if callable(model) else ""
    raise ArgumentError(
        f"`model` must be a fmepy model, such as an OdeModel; got {type(model).__name__}. {advice}".rstrip()
    )
