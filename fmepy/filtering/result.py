"""What a filter gives at some parameters: likelihood, residuals, states, and how far model and data agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, check_choice, did_you_mean, listed
from fmepy.filtering import tables
from fmepy.filtering.entity_run import EntityRun
from fmepy.filtering.outputs import OutputFunctions
from fmepy.filtering.smoothing import History, history_of
from fmepy.types import Cube, Matrix

__all__ = ["FilterResult", "filter_result"]

KINDS = ("predicted", "filtered", "smoothed")


@dataclass(frozen=True, eq=False, repr=False)
class FilterResult:
    """Result of ``FimlofCost.filter``: a filter run at some parameters.

    Attributes
    ----------
    parms : Series
        The parameters it was run at.
    smooth : bool
        Whether the data that come later were used too.
    loglik : float
        Log-likelihood, full Gaussian; -inf if the filter broke down.
    xi : float
        The same without ``nobs ln(2 pi) / 2`` (Peterson 1976).
    sumsq : float
        Sum of squared standardised innovations, about `nobs` for a right model; NaN after a breakdown.
    nobs : int
        Scalar data that count.
    log_jacobian : float
        To be added to `loglik` of transformed data before it is compared with one of data as they are.
    failure : str or None
        What went wrong, with time and sample; None if nothing did.
    variables : tuple of str
        What was observed.

    Notes
    -----
    Nothing here raises because a filter broke down: its tables are NaN from there on, and `failure` says why.
    Tables hold an entity's column only if there are entities.

    Examples
    --------
    >>> from fmepy.costs.fimlof import FimlofCost
    >>> from fmepy.models.difference import DifferenceModel
    >>> model = DifferenceModel(lambda n, level: level, state={"level": 0.0}, times=[0, 1, 2])
    >>> cost = FimlofCost(model, {"time": [1, 2], "level": [1.0, 3.0]}, process_noise={"level": 1.0},
    ...                   measurement_noise={"level": 1.0}, initial_sd={"level": 1.0})
    >>> flt = cost.filter()
    >>> round(flt.loglik, 6), flt.nobs
    (-4.065098, 2)
    >>> flt.residuals[["name", "x", "obs", "mod", "innovation"]].round(4)
        name    x  obs     mod  innovation
    0  level  1.0  1.0  0.0000      1.0000
    1  level  2.0  3.0  0.6667      2.3333
    >>> flt.smoothed.round(4)
       time  level
    0   0.0  0.625
    1   1.0  1.250
    2   2.0  2.125
    """

    parms: pd.Series
    smooth: bool
    variables: tuple[str, ...]
    runs: tuple[EntityRun, ...] = field(repr=False)
    histories: tuple[History, ...] = field(repr=False)
    cost: Any = field(repr=False)

    # --- the likelihood

    @property
    def failure(self) -> str | None:
        """What went wrong, in a sentence; None if nothing did."""
        return next((r.failure for r in self.runs if r.failure is not None), None)

    @property
    def loglik(self) -> float:
        """Log-likelihood of all data, full Gaussian; -inf if the filter broke down."""
        return self._total("loglik", -np.inf)

    @property
    def xi(self) -> float:
        """Log-likelihood without its constant, as Peterson has it."""
        return self._total("xi", -np.inf)

    @property
    def sumsq(self) -> float:
        """Sum of squared standardised innovations."""
        return self._total("sumsq", np.nan)

    @property
    def nobs(self) -> int:
        """Scalar data that count in the likelihood."""
        return sum(len(r.plan.readings) for r in self.runs) - len(self.runs) * len(self._spec.free_states)

    @property
    def log_jacobian(self) -> float:
        """Sum of log |dT/dz| of transformed data."""
        return float(sum(r.log_jacobian for r in self.runs))

    def _total(self, name: str, broken: float) -> float:
        if self.failure is not None:
            return broken
        return float(sum(getattr(r.likelihood, name) for r in self.runs))

    @property
    def _spec(self) -> Any:
        return self.cost.specification

    # --- tables of data

    @cached_property
    def residuals(self) -> pd.DataFrame:
        """One row a datum: [entity,] name, x, obs, mod, innovation, sd, standardized, NUMR, AUXM, flag.

        `mod` is predicted from all data before this time, ``innovation = obs - mod``, `sd` that of the innovation,
        ``standardized = innovation / sd``. NUMR and AUXM are the deleted residuals of the datum, in their sds: it minus
        what everything else until its time (NUMR), or all other data (AUXM), say of it. `flag` marks suspected data:
        beyond the cost's `threshold`, and the largest of their sample, states included. All on the scale of comparison
        (of a transform). Data that the start uses up have no prediction.
        """
        return tables.residual_table(self.runs, self.histories, self.variables, self._entity, self._threshold)

    @cached_property
    def shocks(self) -> pd.DataFrame:
        """Jumps of states that the data ask for: [entity,] time, state, NUSR, AUXS, flag.

        In their sds: with the data until then, and with all. A first row that stands out says that the start is wrong.
        """
        names = self._state_names
        return tables.shock_table(self.runs, self.histories, names, self._entity, self._threshold)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row a sample: [entity,] time, n, chi2, p: delta' S^-1 delta is chi-squared with n degrees of freedom."""
        return tables.sample_table(self.runs, self.histories, self._entity)

    @cached_property
    def contributions(self) -> pd.DataFrame:
        """What every variable adds to the log-likelihood: n, loglik, sumsq, mean_square (1 for a right model).

        A variable is given those before it in the same sample. With an unknown start the data it uses up are not
        counted, and the row "start" is what the determinant of their information adds.
        """
        return tables.contribution_table(self.runs, self.histories, self.variables, self.loglik)

    # --- tables of states

    @cached_property
    def predicted(self) -> pd.DataFrame:
        """States and outputs from the data before: [entity,] time, states, outputs."""
        return self._states("predicted")

    @cached_property
    def filtered(self) -> pd.DataFrame:
        """States and outputs with the data of their time too; NaN while an unknown start is not determined."""
        return self._states("filtered")

    @cached_property
    def smoothed(self) -> pd.DataFrame:
        """States and outputs with all data; NaN with ``smooth=False``."""
        return self._states("smoothed")

    def sd(self, kind: str = "smoothed") -> pd.DataFrame:
        """Return the standard deviations that belong to a table of states; of outputs the root of H P H'.

        Parameters
        ----------
        kind : {"smoothed", "filtered", "predicted"}
        """
        check_choice(kind, KINDS, "kind")
        sds = []
        for run, history in zip(self.runs, self.histories, strict=True):
            x, P = _states_of(history, kind)
            _, H = self._outputs.at(run.plan.times, x, run.p, run.plan.inputs)
            sds.append(np.concatenate([_roots(np.einsum("tii->ti", P)), _roots(tables.propagated(H, P))], axis=1))
        return self._table(sds)

    @property
    def predicted_cov(self) -> Cube:
        """Covariances of the states, shape (n_time, n, n), in the rows of `predicted`."""
        return np.concatenate([h.P_predicted for h in self.histories])

    @property
    def filtered_cov(self) -> Cube:
        """Covariances of the states, shape (n_time, n, n), in the rows of `filtered`."""
        return np.concatenate([h.P_filtered for h in self.histories])

    @property
    def smoothed_cov(self) -> Cube:
        """Covariances of the states, shape (n_time, n, n), in the rows of `smoothed`."""
        return np.concatenate([h.P_smoothed for h in self.histories])

    @property
    def gains(self) -> Cube:
        """Gains K, shape (n_time, n, n_var), in the rows of the state tables; NaN where a variable was not read."""
        return np.concatenate([h.gains for h in self.histories])

    def _states(self, kind: str) -> pd.DataFrame:
        values = []
        for run, history in zip(self.runs, self.histories, strict=True):
            x, _ = _states_of(history, kind)
            y, _ = self._outputs.at(run.plan.times, x, run.p, run.plan.inputs)
            values.append(np.concatenate([x, y], axis=1))
        return self._table(values)

    def _table(self, values: Sequence[Matrix]) -> pd.DataFrame:
        return tables.state_table(self.runs, values, (*self._state_names, *self._outputs.names), self._entity)

    @property
    def _state_names(self) -> tuple[str, ...]:
        return tuple(self._spec.space.states)

    @cached_property
    def _outputs(self) -> OutputFunctions:
        return OutputFunctions(self._spec)

    @property
    def _entity(self) -> str | None:
        name: str | None = self.cost.entity
        return name

    @property
    def _threshold(self) -> float:
        return float(self.cost.threshold)

    # --- parts

    @property
    def entities(self) -> list[Any]:
        """Labels of the entities; [None] if there is but one."""
        return [r.label for r in self.runs]

    def of(self, entity: Any) -> FilterResult:
        """Return the result of one entity: its likelihood, its tables."""
        labels = self.entities
        if entity not in labels:
            raise ArgumentError(
                f"`entity={entity!r}` was not filtered.{did_you_mean(entity, labels)} There are {listed(labels)}."
            )
        k = labels.index(entity)
        part = slice(k, k + 1)
        return replace(self, runs=self.runs[part], histories=self.histories[part])

    def __getstate__(self) -> dict[str, Any]:
        names = ("parms", "smooth", "variables", "runs", "histories", "cost")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        of = f" of {len(self.runs)} entities" if self._entity is not None and len(self.runs) > 1 else ""
        if self.failure is not None:
            return f"FilterResult{of}: {self.failure}"
        flags, jumps = int(self.residuals["flag"].sum()), int(self.shocks["flag"].sum())
        return (
            f"FilterResult{of}: {self.nobs} data, log-likelihood {self.loglik:.7g}, SUMSQ {self.sumsq:.5g}; "
            f"{flags} suspected data, {jumps} jumps of states beyond {self._threshold:g} sd"
        )


def _states_of(history: History, kind: str) -> tuple[Matrix, Cube]:
    return getattr(history, f"x_{kind}"), getattr(history, f"P_{kind}")


def _roots(variances: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))


def filter_result(cost: Any, theta: pd.Series, smooth: bool) -> FilterResult:
    """Return the result of a filter at parameters `theta`.

    Parameters
    ----------
    cost : FimlofCost
    theta : Series
        All of its parameters.
    smooth : bool
    """
    spec = cost.specification
    runs = tuple(cost.bind().records(theta.to_numpy(dtype=float)))
    n, m = len(spec.space.states), len(spec.variables)
    free = np.array(spec.free_states, dtype=np.intp)
    histories = tuple(
        history_of(r.plan, r.run, r.correlation, free, m, smooth)
        if r.run is not None
        else History.empty(len(r.plan.times), len(r.plan.readings), n, m)
        for r in runs
    )
    return FilterResult(theta.copy(), bool(smooth), tuple(spec.variables), runs, histories, cost)
