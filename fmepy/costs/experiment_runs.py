"""The runs behind a cost: what is told of experiments and noise, the model as every experiment has it, tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from fmepy.checks import changed_arguments, copied
from fmepy.costs.censored import signs
from fmepy.costs.conditions import read_conditions
from fmepy.costs.entities import EntityColumn, Experiments, read_experiments
from fmepy.costs.error_kinds import COUNTS, LIKELIHOODS, is_of_counts, is_word
from fmepy.costs.noise import SaidNoise, said_noise_of
from fmepy.costs.observable_parameters import RowParameters, known_names, uses_of
from fmepy.costs.observations import Comparison, Observations
from fmepy.errors import ArgumentError, ParameterError, listed
from fmepy.models.entity import EntityModel
from fmepy.models.on_grid import profiles_at_rest
from fmepy.models.preequilibration import opened
from fmepy.parameters.entities import local_name
from fmepy.parameters.named import merge_parameters
from fmepy.parameters.names import normal_name, split_local
from fmepy.tables.columns import as_table
from fmepy.tables.sheet import with_times
from fmepy.types import UserParameters

if TYPE_CHECKING:
    from fmepy.costs.noise_model import MeasurementNoise


class ModelsOfCost:
    """The model as every experiment of a cost has it; a base of costs of several experiments."""

    model: Any
    predictor: Any
    entity: str | None
    parms: pd.Series
    _given: dict[str, float]
    cases: Experiments

    def _copy_arguments(self) -> None:
        """Put copies in the place of the arguments, which a caller may write into."""
        own: Any = self  # a dataclass
        vars(self).update({f.name: copied(getattr(self, f.name)) for f in fields(own) if f.init})

    @property
    def experiments(self) -> Experiments | None:
        """Which parameters every entity has; None without entities."""
        return None if self.entity is None else self.cases

    @cached_property
    def calendar(self) -> Any:
        """Name of the times, their origin, and the seconds of their unit; None where the data give no dates."""
        given = [getattr(self, name) for name in ("obs", "x", "unit", "origin")]
        return None if given[2] is None else with_times(*given).attrs.get("calendar")

    @cached_property
    def plain_run(self) -> bool:
        """Whether one run of the model, with its parameters as they are, serves all readings."""
        return self.entity is None and self.cases.is_plain

    @property
    def noise_scales(self) -> Sequence[str]:
        """Parameters of a run that scale noise, and do nothing else."""
        raise NotImplementedError

    @property
    def scales(self) -> tuple[str, ...]:
        """Parameters of the cost that scale noise, and do nothing else."""
        return self.cases.parameters.taken_by(self.noise_scales)

    @property
    def to_estimate(self) -> tuple[str, ...]:
        """Parameters that "estimate" made, without a value from the user."""
        own: Any = self  # of a FimlofCost
        made = [name for name, _ in (*own.specification.noise.made, *own.specification.errors.made)]
        return tuple(name for name in self.cases.parameters.taken_by(made) if name not in own._given)

    @property
    def lower(self) -> pd.Series:
        """Lower bounds: zero for the sds of the noise."""
        scales = self.scales
        return pd.Series([0.0 if k in scales else -np.inf for k in self.parms.index], self.parms.index, dtype=float)

    @property
    def upper(self) -> pd.Series:
        """Upper bounds: none."""
        return pd.Series(np.inf, index=self.parms.index)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that make the cost, by name."""
        own: Any = self  # a dataclass
        as_given = {"parms": self._given, "x": getattr(self, "given_x", own.x)}
        return {f.name: getattr(self, f.name) for f in fields(own) if f.init} | as_given

    merged: ClassVar[tuple[str, ...]] = ()
    """Arguments that `replace` merges with those given before."""

    def replace(self, **arguments: Any) -> Self:
        """Return a copy with some arguments of the constructor changed; dicts are merged.

        Parameters that nothing but what was changed had a use for are dropped.
        """
        old, given = self.arguments, arguments.get("parms")
        new = changed_arguments(old, arguments, self.merged, type(self).__name__)
        explicit = {*dict(given)} if isinstance(given, Mapping | pd.Series) else set()
        gone = self._names_used(old) - self._names_used(new)
        if gone and new["parms"] is not None:
            new["parms"] = {
                k: v for k, v in new["parms"].items() if k in explicit or split_local(str(k))[0] not in gone
            }
        made: Any = type(self)
        out: Self = made(**new)
        return out

    @classmethod
    def _names_used(cls, arguments: Mapping[str, Any]) -> set[str]:
        """Return the names that some arguments hold: here, in cells of conditions."""
        said = arguments["conditions"]
        return set() if said is None else {str(cell) for cell in as_table(said, "conditions").to_numpy().ravel()}

    def _check_scales(self) -> None:
        for name in self.scales:
            if (value := self.parms[name]) < 0:
                raise ParameterError(f"`parms`: {name!r} is {value:g}; it scales a noise, and is not below zero.")

    @property
    def transforms(self) -> dict[str, str]:
        """How parameters are transformed, by name, where the model's are (`transformed`)."""
        return self.cases.parameters.transforms(getattr(self.model, "transforms", {}))

    def _said(self, sds: Any, scales: Any, errors: Any, read: Sequence[set[str]]) -> SaidNoise:
        """Return what `said_noise_of` says, with the variables that are read in every case."""
        texts = [None] if self.entity is None else self.cases.column.texts
        cases = [(k, texts[e], read[k]) for k, e in enumerate(self.cases.entity_of.tolist())]
        found = said_noise_of(sds, scales, errors, self.cases.parameters, cases)
        return found.mapped(self.transforms, found.values)

    @cached_property
    def models(self) -> tuple[EntityModel, ...]:
        """The model as every run has it; entities and readings that differ in nothing share one."""
        return tuple(self._model_of(k) for k in self.cases.apart[0])

    @cached_property
    def _opened(self) -> Any:
        return opened(self.predictor)

    def _model_of(self, k: int) -> EntityModel:
        own, before = self.cases.parameters, self.cases.starts[k]
        if before is None:
            return EntityModel(self.predictor, own, k)
        return EntityModel(self._opened, own, k, before, self.predictor, self.cases.anew[k])

    def model_of(self, entity: Any = None, noise_parms: Mapping[str, Any] | None = None) -> EntityModel:
        """Return the model as one entity runs it, a Model of the cost's parameters: for predictions, ranges, pictures.

        Parameters
        ----------
        entity : str or number
            As it stands in the data; None of a cost of one experiment.
        noise_parms : mapping of str to str or number, optional
            What stands for parameters of the model that readings name by row, such as ``{"scale": "scale_gel2"}``, if
            it differs between the readings of the entity. Some readings must have it.

        Raises
        ------
        ArgumentError
            A cost of one experiment whose readings name no parameters by row; readings that differ.
        ParameterError
            No such entity, with the nearest.
        """
        if self.experiments is None and (entity is not None or not self.cases.by_row):
            raise ArgumentError("This cost has one experiment (entity=None): its model is `cost.model`.")
        place = 0 if self.experiments is None else self.experiments.position(entity)
        return self._model_of(self.cases.run_of(place, dict(noise_parms or {})))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_bound", "_opened", "models")}


class RunsOfCost(ModelsOfCost):
    """What a cost is told of experiments and noise, and what it says of its runs; a base of `SimulationCost`."""

    is_plain_simulation: ClassVar[bool] = True
    """Whether runs are the model's own: readings may be of its steady state, conditions may hold expressions."""
    x: str | None
    entity_parms: Sequence[str]
    conditions: Any
    measurement_noise: Any
    censored: Any
    noise_parms: Any
    likelihood: Any
    comparison: Comparison
    noise: MeasurementNoise | None
    _own: pd.Series

    # --- what it is told

    def _predictor(self, observations: Observations, column: EntityColumn, set_by: Collection[str]) -> Any:
        """Return whose runs are compared with the data."""
        return self.model

    def _read_cases(self, observations: Observations, column: EntityColumn, by_row: RowParameters | None) -> pd.Series:
        """Read noise, conditions, and what is named by row; return the parameters of the cost."""
        conditions = read_conditions(self.conditions, str(self.entity), column.texts, self.is_plain_simulation)
        states: dict[str, str] = {}
        if self.is_plain_simulation:
            conditions, states = conditions.of_states(self.model)
        placeholders = () if by_row is None else tuple(by_row.columns)
        for argument, other in (("conditions", conditions.cells), ("entity_parms", self.entity_parms)):
            for name in set(placeholders) & set(other):
                raise ParameterError(
                    f"{name!r} is in `noise_parms`, which sets it by row, and in `{argument}`, which sets it by "
                    "entity. Leave it out of one of them."
                )
        # local ones whose start is given by each entity need no other
        starts = [n for n in self.entity_parms if all(local_name(n, t) in self._given for t in column.texts)]
        set_by = (*conditions.cells, *placeholders, *starts)
        predictor = self._predictor(observations, column, set_by)
        object.__setattr__(self, "predictor", opened(predictor, states) if states else predictor)
        full = self._read_noise(set_by)
        c = self.comparison
        assert c.places is not None, "prepared from a table"
        if by_row is None:
            cases = column.cases(c.places)
        else:
            if self.x is None:
                raise ArgumentError("`noise_parms` is for single readings; with x=None their means are compared.")
            gone = ({*conditions.cells} - by_row.named()) | ({*placeholders} - by_row.own_names())
            cases = by_row.cases(
                c, column.of_row, of_model=self.model.parms.index, full=full,
                known=known_names(full, gone, self.entity_parms, self._given),
                uses=uses_of(self.model, {} if self.noise is None else self.noise.sds, column.labels),
            )  # fmt: skip
        found = read_experiments(self, self._given, column, conditions, full, cases)
        object.__setattr__(self, "cases", found)
        return found.parameters.parms

    def _read_noise(self, set_by: Collection[str]) -> pd.Series:
        """Read the noise, and return all parameters of a run: the predictor's, then those of the noise.

        set_by : collection of str
            Parameters that conditions set.
        """
        own: pd.Series = self.predictor.parms.copy()
        noise = None
        if self._is_noisy or self.likelihood is not None:
            from fmepy.costs.noise_model import read_measurement_noise

            _check_noisy(self)
        if self._is_noisy:
            words = self._noise_said
            if words is None and is_word(self.likelihood):
                words = {}
            if self._is_column_of_sds:
                words = dict.fromkeys(self.comparison.group_names, self.noise_parms)
            noise = read_measurement_noise(self.predictor, self.comparison, words, self._given, set_by)
            own = pd.concat([own, pd.Series(noise.values, dtype=float)])
            own.attrs.update(self.predictor.parms.attrs)
        object.__setattr__(self, "noise", noise)
        return own

    @property
    def _is_noisy(self) -> bool:
        said = self.measurement_noise is not None or self.censored is not None or is_word(self.likelihood)
        return said or self._is_column_of_sds

    @property
    def _is_column_of_sds(self) -> bool:
        """Whether `noise_parms` is a column of sds, and nothing else is said of the noise."""
        column = self.noise_parms
        is_sd = isinstance(column, str) and normal_name(column) not in self.model.parms.index
        return is_sd and self.measurement_noise is None

    @property
    def _noise_said(self) -> Any:
        return self.measurement_noise

    @property
    def noise_scales(self) -> tuple[str, ...]:
        """Parameters of a run that scale noise, and do nothing else."""
        return () if self.noise is None else self.noise.scales

    @property
    def to_estimate(self) -> tuple[str, ...]:
        """Parameters that "estimate" made, without a value from the user."""
        return self.guesses

    @property
    def guesses(self) -> tuple[str, ...]:
        """Parameters of the noise without a value from the user."""
        mine = () if self.noise is None else self.noise.guesses
        return tuple(name for name in self.cases.parameters.taken_by(mine) if name not in self._given)

    # --- what it says

    @property
    def own_likelihood(self) -> Any:
        """The class of a likelihood without errors: the user's own, or of counts; None where words say their kind."""
        if is_of_counts(self.likelihood):
            from fmepy.costs.counts import CLASSES

            return CLASSES[self.likelihood]
        return None if is_word(self.likelihood) else self.likelihood

    @property
    def said_noise(self) -> SaidNoise | None:
        """The noise model, in the form that results store; None of a sum of squares."""
        if self.own_likelihood is not None:
            return SaidNoise({}, {}, {}, {}, tuple(self.comparison.group_names))
        if self.noise is None:
            return None
        c, by, kinds, variables = self.comparison, self.cases, self.comparison.scale.kinds, self.comparison.group_names
        rows = {v: np.flatnonzero(c.groups == k) for k, v in enumerate(variables)}
        errors = {v: float(1 / c.weights[r[0]]) if np.ptp(c.weights[r]) == 0 else None for v, r in rows.items()}
        read = [{v for v in variables if (by.case_of[rows[v]] == k).any()} for k in range(len(by.entity_of))]
        found = self._said(self.noise.sds, {v: kinds.get(int(r[0])) for v, r in rows.items()}, errors, read)
        if c.laplace is not None:
            found = replace(found, not_normal=tuple(v for v, r in rows.items() if c.laplace[r].any()))
        return found

    def runs_of(self, entity: Any = None, variable: str | None = None) -> dict[str, EntityModel]:
        """Return the models of one entity, by what readings (of a variable) name by row: several where that differs."""
        place = 0 if self.experiments is None else self.experiments.position(entity)
        cases, moving = self.cases.runs_of(place), list(self.cases.by_row)
        if variable is not None:
            uses = uses_of(self.model, {}, self.cases.column.labels)
            moving = [name for name in moving if uses(name, variable)]
            read = [k for k in cases if variable in self._read_of(int(self.cases.apart[1][k]))]
            cases = read or cases
        out: dict[str, EntityModel] = {}
        for k in cases:
            out.setdefault(self.cases.told(k, moving), self._model_of(k))
        return out

    def _read_of(self, kind: int) -> set[str]:
        """Return the variables that are read off a run."""
        mine = self.cases.apart[1][self.cases.case_of] == kind
        return {name for name, m in zip(self.comparison.names, mine, strict=True) if m}

    def run(self, parms: UserParameters = None, times: Any = None) -> pd.DataFrame:
        """Return the runs behind the cost: of several experiments one below the other, the entity in the first column.

        Where readings name parameters of the model by row, every run is there, and a column ``by_row`` says of which.

        Parameters
        ----------
        parms : dict, Series, ...
            As in a call, such as ``fit.par``.
        times : array_like, optional
            Default: the model's own.
        """
        values = merge_parameters(self._own, parms)
        if self.plain_run:
            table: pd.DataFrame = self.predictor(values[self.predictor.parms.index], times)
            return table
        of_rows = self.cases.by_row
        tables = []
        for label in self.cases.column.labels:
            for told, model in self.runs_of(label).items():
                tables.append(model(values[model.parms.index], times))
                if of_rows:
                    tables[-1].insert(0, "by_row", told)
                if self.experiments is not None:
                    tables[-1].insert(0, self.entity, label)
        return pd.concat(tables, ignore_index=True)

    def _read_only(self, curves: pd.DataFrame) -> list[pd.DataFrame]:
        """Return the runs one by one, without the variables that are not read off them."""
        kinds = self.cases.apart[1]
        order = [kinds[k] for e in range(len(self.cases.column.labels)) for k in self.cases.runs_of(e)]
        out, size = [], len(curves) // len(order)
        for at, kind in enumerate(order):
            unread = [n for n in self.predictor.var_names if n not in self._read_of(int(kind))]
            out.append(curves.iloc[at * size : (at + 1) * size].drop(columns=unread))
        return out

    @property
    def readings(self) -> pd.DataFrame:
        """The data in their own units: name, x, obs, censored ("<", ">", where some are limits), entity (if any)."""
        c = self.comparison
        seen = pd.DataFrame({"name": list(c.names), "x": c.x, "obs": c.scale.back(c.obs)})
        if c.marks is not None:
            seen["censored"] = signs(c.marks)
        return seen if self.experiments is None else seen.assign(entity=list(c.entities or ()))

    def plot(self, parms: UserParameters = None, *, times: Any = None, axes: Any = None, **kwargs: Any) -> Any:
        """Draw the runs behind the cost with the data, in their own units: a panel an entity, or else a variable.

        Of data by time and depth: profiles at the days of the data, depth downwards, a panel a variable and entity.

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
        if self.comparison.depths is not None:
            from fmepy.plotting.profiles_in_time import plot_days

            seen = self.readings.assign(depth=self.comparison.depths)
            curves = self.run(parms, np.unique(seen["x"]))
            return plot_days(curves, seen, day=self.x, entity=self.entity, axes=axes, **kwargs)
        c, curves, x_name = self.comparison, self.run(parms, times), str(getattr(self.predictor, "x_name", "time"))
        curves.attrs["calendar"] = self.calendar
        upright = kwargs.setdefault("xyswap", bool(profiles_at_rest(self.predictor)))
        if c.scale.is_logarithmic(len(c)):  # what is compared as logarithms is seen as such
            kwargs.setdefault("xscale" if upright else "yscale", "log")
        kwargs.setdefault("ylabel" if upright else "xlabel", str(self.x))  # as the data call it
        seen = self.readings
        if self.experiments is None:
            from fmepy.plotting.models import plot_model

            obs = seen.rename(columns={"x": x_name})
            runs = [curves] if self.plain_run else self._read_only(curves)
            if len(runs) > 1:
                kwargs.setdefault("labels", [one["by_row"].iloc[0] for one in runs])
                runs = [one.drop(columns="by_row") for one in runs]
            return plot_model(*runs, obs=obs, which=list(c.group_names), axes=axes, **kwargs)
        from fmepy.plotting.models import plot_entities

        if self.cases.by_row:  # a gap between the runs of an entity
            curves = pd.concat(
                [pd.concat([one, one.tail(1).assign(**{x_name: np.nan})]) for one in self._read_only(curves)]
            )
        shown = curves[[self.entity, x_name, *c.group_names]]
        return plot_entities(shown, seen, entity=str(self.entity), axes=axes, **kwargs)


def _check_noisy(cost: Any) -> None:
    """Refuse what has no meaning in a likelihood."""
    from fmepy.costs.likelihood_cost import BoundLikelihood

    if cost.weight != "none":
        raise ArgumentError(
            f"`weight={cost.weight!r}` makes up errors, and the noise is said in words (measurement_noise, censored). "
            "Leave it out; where nothing is known of the noise, say 'estimate'."
        )
    if cost.scaleVar:
        raise ArgumentError("`scaleVar` divides sums of squares, and a likelihood has none: leave it out.")
    if (own := cost.own_likelihood) is not None:
        if not (isinstance(own, type) and issubclass(own, BoundLikelihood)):
            raise ArgumentError(
                f"`likelihood` must be one of {listed([*LIKELIHOODS, *COUNTS])}, a dict of the former by variable, or "
                f"a class derived from fmepy.costs.BoundLikelihood; got {own!r}."
            )
        if cost.censored is not None:
            raise ArgumentError("`censored` is for normal errors; this `likelihood` has no limits. Leave one out.")
        own.check(cost)
    if cost.censored is not None and cost.x is None:
        raise ArgumentError("`censored` is for single readings; with x=None their means are compared. Name `x`.")
