"""What a simulation cost is told of experiments and of noise, read: a base of `SimulationCost`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.costs.conditions import Conditions, read_conditions
from fmepy.costs.entities import EntityColumn, read_experiments
from fmepy.costs.error_kinds import COUNTS, LIKELIHOODS, is_word
from fmepy.costs.experiment_runs import RunsOfCost
from fmepy.costs.observable_parameters import RowParameters, known_names, uses_of
from fmepy.costs.observations import Observations
from fmepy.errors import ArgumentError, ParameterError, listed
from fmepy.models.preequilibration import opened
from fmepy.parameters.entities import local_name
from fmepy.parameters.names import normal_name

ONLY = ""
"""The entity of data that have none."""


class WordsOfCost(RunsOfCost):
    """What a cost is told of experiments and noise; a base of `SimulationCost`, which has the words."""

    is_plain_simulation: ClassVar[bool] = True
    """Whether runs are the model's own: readings may be of its steady state, conditions may hold expressions."""
    entity_parms: Sequence[str]
    conditions: Any
    measurement_noise: Any
    censored: Any
    noise_parms: Any

    def _predictor(self, observations: Observations, column: EntityColumn | None, set_by: Collection[str]) -> Any:
        """Return whose runs are compared with the data."""
        return self.model

    def _read_cases(
        self, observations: Observations, column: EntityColumn | None, by_row: RowParameters | None, n_row: int
    ) -> pd.Series:
        """Read noise, conditions, and what is named by row; return the parameters of the cost."""
        conditions = Conditions({}, (ONLY,), {})
        if column is not None:
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
        texts = [] if column is None else column.texts  # local ones whose start is given by each entity need no other
        starts = [n for n in self.entity_parms if texts and all(local_name(n, t) in self._given for t in texts)]
        set_by = (*conditions.cells, *placeholders, *starts)
        predictor = self._predictor(observations, column, set_by)
        object.__setattr__(self, "predictor", opened(predictor, states) if states else predictor)
        full = self._read_noise(set_by)
        of = EntityColumn((ONLY,), np.zeros(n_row, dtype=np.intp)) if column is None else column
        c = self.comparison
        assert c.places is not None, "prepared from a table"
        if by_row is None:
            cases = of.cases(c.places)
        else:
            if self.x is None:
                raise ArgumentError("`noise_parms` is for single readings; with x=None their means are compared.")
            gone = ({*conditions.cells} - by_row.named()) | ({*placeholders} - by_row.own_names())
            cases = by_row.cases(
                c, of.of_row, of_model=self.model.parms.index, full=full,
                known=known_names(full, gone, self.entity_parms, self._given),
                uses=uses_of(self.model, {} if self.noise is None else self.noise.sds, of.labels),
            )  # fmt: skip
        found = read_experiments(self, self._given, of, conditions, full, cases)
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
    def guesses(self) -> tuple[str, ...]:
        """Parameters of the noise without a value from the user."""
        mine = () if self.noise is None else self.noise.guesses
        return tuple(name for name in self.cases.parameters.taken_by(mine) if name not in self._given)


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
