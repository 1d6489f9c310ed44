"""The result of a filter at some parameters: likelihood, residuals, states, and tests of model and data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, whole_number
from fmepy.costs.observation_scale import observation_scale
from fmepy.errors import ArgumentError, SimulationError, counted, did_you_mean
from fmepy.filtering.smoothing import History, drawn_states, history_of
from fmepy.fimlof.bound_likelihood import BoundFimlof
from fmepy.fimlof.diagnostics import (
    Correlations,
    Normality,
    Periodogram,
    SumsqTest,
    Whitened,
    correlations_of,
    normality_of,
    periodogram_of,
    scale_is_estimated,
    whitened,
)
from fmepy.fimlof.filtered import Filtered
from fmepy.fimlof.forecasting import forecast as forecast_of
from fmepy.fimlof.outputs import band
from fmepy.fimlof.report import FilterSummary, summary_of
from fmepy.models.difference import whole_steps
from fmepy.parameters.named import check_names
from fmepy.parameters.names import split_local
from fmepy.results.tables import as_html
from fmepy.tables.sheet import numbers_of_times
from fmepy.types import AxesArray, Seed, Vector
from fmepy.vocabulary import by_name


@dataclass(frozen=True, eq=False, repr=False)
class FilterResult(Filtered):
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
    cost : FimlofCost
        What was filtered.

    Notes
    -----
    Nothing here raises because a filter broke down: its tables are NaN from there on, and `failure` says why.
    Tables hold an entity's column only if there are entities.

    Examples
    --------
    >>> from fmepy.fimlof.cost import FimlofCost
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

    # --- do model and data agree

    @cached_property
    def _whitened(self) -> Whitened:
        return whitened(self.runs, self.histories, len(self.variables))

    def correlations(self, max_lag: int = 10, *, estimated: Any = None) -> Correlations:
        """Return serial and cross correlations of the whitened innovations, with limits and portmanteau.

        Its `frame` holds both R(j) (`r`), as the tests take it, and the correlation proper (`rho`).

        Parameters
        ----------
        max_lag : int
            In samples; less if the series is shorter and `max_lag` is left alone.
        estimated : names, a Series such as ``fit.par``, or a fit, optional
            Parameters that were estimated from these data; those of the mean equations cost the portmanteau degrees of
            freedom.
        """
        longest = max((len(s) for s in self._whitened.series), default=1)
        lags = min(max_lag, max(longest - 1, 1)) if max_lag == 10 else max_lag
        return correlations_of(self._whitened, self.variables, lags, len(self._mean_parameters(estimated)))

    def sumsq_test(self, estimated: Any = None) -> SumsqTest:
        """Return the test of the size of the innovations.

        Parameters
        ----------
        estimated : names, a Series such as ``fit.par``, or a fit, optional
            Parameters that were estimated from these data.
        """
        squares = np.concatenate([h.whitened[np.isfinite(h.whitened)] ** 2 for h in self.histories])
        scales = [k for k in self._names(estimated) if split_local(k)[0] in self.facts.scales]
        scale = bool(scales) and scale_is_estimated(self.bound.spec, scales)
        nobs = self.nobs - sum(int(np.count_nonzero(r.schedule.readings.all_marks)) for r in self.runs)
        return SumsqTest(self.sumsq, nobs, len(self._mean_parameters(estimated)), scale, squares)

    def normality(self) -> Normality:
        """Return moments and tests of normality of the whitened innovations."""
        return normality_of(self._whitened, self.variables)

    def periodogram(self) -> Periodogram:
        """Return the cumulative periodograms of the whitened innovations."""
        return periodogram_of(self._whitened, self.variables)

    def _names(self, estimated: Any) -> list[str]:
        """Return the names of estimated parameters."""
        if estimated is None:
            return []
        estimated = getattr(estimated, "par", estimated)  # of a fit
        if isinstance(estimated, str):
            estimated = [estimated]
        if not isinstance(estimated, Iterable):
            raise ArgumentError(f"`estimated` must be names, or a fit; got {type(estimated).__name__}.")
        names = [str(k) for k in (estimated.index if isinstance(estimated, pd.Series) else estimated)]
        return list(check_names(names, self.parms.index, argument="estimated"))

    def _mean_parameters(self, estimated: Any) -> list[str]:
        """Return those of the estimated parameters that the mean equations hold."""
        known = self.facts.parameters
        names = [(k, split_local(k, known)[0]) for k in self._names(estimated)]
        return [k for k, own in names if own in known and own not in self.facts.scales]

    def nonlinearity(self) -> pd.DataFrame:
        """Return how far the extended filter's linearisation can be trusted, by state.

        The model is moved by a filtered standard deviation of each state and compared with its tangent, in standard
        deviations of what comes next. Well below 1 the likelihood is good; near 1 or above, compare with
        ``update="second_order"`` or ``"unscented"``.

        Returns
        -------
        DataFrame
            Index: the states; columns step_mean, step_max, step_time, reading_mean, reading_max, reading_time: means,
            largest values along the data, and where they are (the entity first where there are several).

        Raises
        ------
        SimulationError
            The filter breaks down.
        """
        labels = self.entities
        table: pd.DataFrame = self.bound.nonlinearity(
            self.parms.to_numpy(dtype=float), None if labels == [None] else labels
        )
        return table

    def summary(self, estimated: Any = None) -> FilterSummary:
        """Return the filter on one page: agreement of model and data, suspected and missing data, weak spots.

        Parameters
        ----------
        estimated : names, a Series such as ``fit.par``, or a fit, optional
            Parameters that were estimated from these data; without it the tests take the parameters as given.
        """
        return summary_of(self, estimated)

    # --- pictures

    def plot(self, which: Any = None, kind: str = "smoothed", *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw states and outputs with bands and data, suspected data ringed, one panel a variable; return the Axes.

        Parameters
        ----------
        which : names or positions from 0, optional
            States and outputs; by default all but states that are observed under another name.
        kind : {"smoothed", "filtered", "predicted"}
        axes : array of Axes, optional
        **kwargs
            `level` of the band (0.95); the rest goes to the lines.
        """
        from fmepy.plotting.filtering import plot_states

        return plot_states(self, which, kind, axes=axes, **kwargs)

    def plot_innovations(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the standardised innovations over time with their limits; return the Axes."""
        from fmepy.plotting.filtering import plot_innovations

        return plot_innovations(self, which, axes=axes, **kwargs)

    def plot_diagnostics(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw innovations, correlations, quantiles and periodogram, one row a variable; return the Axes."""
        from fmepy.plotting.filtering import plot_diagnostics

        return plot_diagnostics(self, which, axes=axes, **kwargs)

    @property
    def values(self) -> dict[str, float]:
        """The parameters as a dict."""
        return {str(k): float(v) for k, v in self.parms.items()}

    @property
    def positive(self) -> set[str]:
        """States and outputs that cannot be negative: `fmepy.fimlof.outputs` says how that is known."""
        return self.facts.positive

    def limits(self, kind: str = "smoothed", level: float = 0.95) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the lower and upper ends of the bands of states and outputs, as tables like those of `kind`."""
        from scipy.special import ndtri

        values, sds, q = getattr(self, kind), self.sd(kind), float(ndtri((1 + level) / 2))
        lower, upper = values.copy(), values.copy()
        for name in values.columns.difference(["time", self.entity_column]):
            ends = band(values[name].to_numpy(), sds[name].to_numpy(), q, name in self.positive)
            lower[name], upper[name] = ends
        return lower, upper

    def drawn_through(self, points: int = 200) -> FilterResult:
        """Return the result with so many further times between its own where they are few: for smooth lines."""
        nodes = np.unique(np.concatenate([r.schedule.times for r in self.runs]))
        if self.loaded is not None or self.failure is not None or len(nodes) < 2 or len(nodes) >= points:
            return self
        if self.bound.spec.definition.kind == "difference":
            h = self.bound.spec.dt or 1.0
            between = nodes[0] + h * np.arange(round((nodes[-1] - nodes[0]) / h) + 1)
            return self if len(between) == len(nodes) else self.at(between[:: -(-len(between) // 2000)])
        return self.at(np.linspace(nodes[0], nodes[-1], points + 1))

    @property
    def measured_states(self) -> dict[str, str]:
        """States that are observed directly under another name, and that name."""
        pairs = ((s, self.facts.measured.get(s)) for s in self.facts.states if s not in self.variables)
        return {s: name for s, name in pairs if name in self.variables}

    @property
    def data_as_given(self) -> pd.DataFrame:
        """The rows of `residuals` with obs on the data's own scale; of sums with the name "sum of <variable>"."""
        table = self.residuals.copy()
        kinds = dict(zip(self.variables, self.facts.transforms, strict=True))
        table["obs"] = observation_scale([kinds[name] for name in table["name"]]).back(table["obs"].to_numpy())
        table["name"] = table["name"].replace(self.facts.sums)
        return table

    def rows_of(self, table: pd.DataFrame, entity: Any) -> pd.DataFrame:
        """Return the rows of a table that belong to an entity."""
        return table if self.entity_column is None else table[table[self.entity_column] == entity]

    # --- forecasts

    forecast = forecast_of
    elsewhere = by_name(
        {
            "llf loglike llk logLik": "`loglik`",
            "aic bic AIC BIC params pvalues": "of the fit: fit.aic, fit.bic, fit.par",
            "resid innovations errors": "`residuals`, a row a datum",
            "predict simulate get_forecast": "`forecast(10)`; paths of the states: `draw(100)`",
            "states smoothed_state": "`smoothed`, `filtered` and `predicted`",
            "simulate_smoother simulation_smoother": "`draw(100)`",
            "alphahat": "`smoothed`",
            "smoothed_state_cov": "`smoothed_cov`",
            "test_serial_correlation": "`correlations()`",
            "fittedvalues": "`residuals`, with what was predicted",
        }
    )

    def draw(self, n: int = 100, seed: Seed = None) -> pd.DataFrame:
        """Return paths of the states drawn from their distribution given all data.

        Parameters
        ----------
        n : int
            How many.
        seed : int, Generator or None

        Returns
        -------
        DataFrame
            draw (from 0), [entity,] time, states: the rows of `smoothed` for every draw. Mean and sd of many draws at a
            time are those of `smoothed` and ``sd()``; beyond that the values of one draw at different times belong
            together, so that maxima, sums and times of passing a level can be read off. Parameters stay at `parms`, and
            the filter's own linearisation holds: a state that cannot be negative may be drawn so.

        Raises
        ------
        ArgumentError
            `n` is no whole number from 1 on.
        SimulationError
            The filter broke down, or the data leave a part of an unknown start open.

        Examples
        --------
        >>> import fmepy as fme
        >>> model = fme.DifferenceModel("next(x) = a * x", state={"x": 0.0}, times=[0, 3], parms={"a": 0.9})
        >>> cost = fme.FimlofCost(model, {"time": [1, 3], "x": [0.8, 1.4]}, process_noise={"x": 0.5},
        ...                       measurement_noise={"x": 0.1})
        >>> paths = cost.filter().draw(2000, seed=1)
        >>> list(paths.columns), float(abs(paths.groupby("time")["x"].std()[1] - 0.098).round(2))
        (['draw', 'time', 'x'], 0.0)
        """
        whole_number(n, "n", 1)
        if self.failure is not None:
            raise SimulationError(f"There are no paths to draw: {self.failure}")
        rng, free, tables = as_rng(seed), np.array(self.bound.spec.free_states, dtype=np.intp), []
        for run in self.runs:
            assert run.run is not None, "a run that did not fail"
            paths = drawn_states(run.schedule, run.run, run.correlation, free, n, rng)
            if paths is None:
                raise SimulationError(
                    "There are no paths to draw: the data say nothing of a part of the unknown start."
                )
            table = pd.DataFrame(paths.reshape(-1, paths.shape[2]), columns=list(self.facts.states))
            table.insert(0, "time", np.tile(run.schedule.times, n))
            table.insert(0, "draw", np.repeat(np.arange(n), paths.shape[1]))
            if self.entity_column is not None:
                table.insert(1, self.entity_column, pd.Series([run.label] * len(table), dtype=object).infer_objects())
            tables.append(table)
        return pd.concat(tables, ignore_index=True).sort_values("draw", kind="stable", ignore_index=True)

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
                f"`entity={entity!r}` was not filtered.{_near(entity, labels)} There are "
                f"{', '.join(map(repr, labels[:12]))}{'' if len(labels) <= 12 else f', ... ({len(labels)} in all)'}."
            )
        k = labels.index(entity)
        part = slice(k, k + 1)
        loaded = None if self.loaded is None else (self.loaded[0], self.loaded[1][part])
        return replace(self, runs=self.runs[part], histories=self.histories[part], loaded=loaded)

    def at(self, times: Any) -> FilterResult:
        """Return the result with further times in the tables of states; the likelihood stays what it is.

        Parameters
        ----------
        times : sequence
            From the filter's start on, dates where the data had dates; for difference equations whole steps. Rows of
            the data without any reading ask for their times by themselves.
        """
        further = np.unique(numbers_of_times(times, self.cost.calendar))
        start = float(self.bound.spec.grid[0])
        if not np.isfinite(further).all() or (further < start).any():
            raise ArgumentError(f"`times` must hold finite times from the model's start at {start:g} on.")
        if self.bound.spec.definition.kind == "difference":
            whole_steps(further, start, self.bound.spec.dt or 1.0)
        return replace(self, **_run(self.bound, self.parms, self.smooth, self.entities, further))

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: self.__dict__[f.name] for f in fields(self)}

    def _repr_html_(self) -> str:
        return as_html(self.summary().shown())

    def __repr__(self) -> str:
        of = f" of {len(self.runs)} entities" if self.entity_column is not None and len(self.runs) > 1 else ""
        if self.failure is not None:
            return f"FilterResult{of}: {self.failure}"
        flags, jumps = int(self.residuals["flag"].sum()), int(self.shocks["flag"].sum())
        suspected = counted(flags, "suspected datum", "suspected data")
        return (
            f"FilterResult{of}: {counted(self.nobs, 'datum', 'data')}, log-likelihood {self.loglik:.7g}, "
            f"sum of squares {self.sumsq:.5g}; "
            f"{suspected}, {jumps} {'jump' if jumps == 1 else 'jumps'} of states beyond {self.threshold:g} sd"
        )


def _near(entity: Any, labels: Sequence[Any]) -> str:
    """Return a hint at the label that was meant: of numbers that may be one of another type."""
    same = [k for k in labels if str(k) == str(entity)]
    return f" Did you mean {same[0]!r}, a {type(same[0]).__name__}?" if same else did_you_mean(entity, labels)


def filter_result(cost: Any, bound: BoundFimlof, parms: pd.Series, smooth: bool) -> FilterResult:
    """Return the result of a filter.

    Parameters
    ----------
    cost : FimlofCost
    bound : BoundFimlof
        The same, of all its parameters.
    parms : Series
        Their values.
    smooth : bool
    """
    return FilterResult(
        parms.copy(), bool(smooth), bound.spec.variables, **_run(bound, parms, smooth), bound=bound, cost=cost,
        xlabel=cost.x, entity_column=cost.entity, threshold=float(cost.threshold),
    )  # fmt: skip


def _run(
    bound: BoundFimlof,
    parms: pd.Series,
    smooth: bool,
    labels: Sequence[Any] | None = None,
    further: Vector | None = None,
) -> dict[str, Any]:
    """Return runs and histories of all entities, or of some, at the times of their tables and further ones."""
    spec = bound.spec
    runs = tuple(bound.records(parms.to_numpy(dtype=float), labels, further))
    n, m = len(spec.space.states), len(spec.variables)
    free = np.array(spec.free_states, dtype=np.intp)
    histories = tuple(
        history_of(r.schedule, r.run, r.correlation, free, m, smooth)
        if r.run is not None
        else History.empty(len(r.schedule.times), len(r.schedule.readings), n, m)
        for r in runs
    )
    return {"runs": runs, "histories": histories}
