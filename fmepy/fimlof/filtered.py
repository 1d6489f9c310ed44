"""Numbers of a filter at some parameters: the likelihood, tables of the data, tables of the states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from fmepy.costs.censored import signs
from fmepy.errors import check_choice
from fmepy.filtering.likelihood import limit_log_probability
from fmepy.filtering.run import Pass
from fmepy.filtering.smoothing import History, StartInformation
from fmepy.fimlof.bound_likelihood import BoundFimlof
from fmepy.fimlof.data import EntityRun
from fmepy.fimlof.filter_model import Specification
from fmepy.fimlof.outputs import names_of_sums, output_functions, outputs_of, positive_names
from fmepy.journal.encoding import Stored, live
from fmepy.journal.saving import Saved
from fmepy.language.nodes import Symbol
from fmepy.types import BoolVector, Cube, Matrix, Vector

KINDS = ("predicted", "filtered", "smoothed")
_ADVICE = "Filter again for it: cost.filter(result.parms), with the cost that you made it with."


@dataclass(frozen=True, slots=True, eq=False)
class FilterDescription(Stored, formerly="Facts"):
    """Names and settings of a filtered model for the tables, tests and pages of its result.

    A new result makes it from its bound cost; a loaded one, whose file holds no models, has it from the file.

    Attributes
    ----------
    states, outputs : tuple of str
    transforms : tuple of (str or None)
        By observed variable.
    initial : {"known", "data", "diffuse", "stationary"}
    start : tuple of str
        States whose start is uncertain by a given sd.
    n_free, n_noise : int
        States of whose start nothing is known; noise inputs.
    scales, parameters : tuple of str
        Parameters that scale noise and do nothing else; those of the model.
    sums : dict of str to str
        By variable what is shown of one that was read as a sum or mean.
    positive : set of str
        States and outputs that cannot be negative.
    measured : dict of str to str
        States that are read directly under the name of an output.
    """

    states: tuple[str, ...]
    outputs: tuple[str, ...]
    transforms: tuple[str | None, ...]
    initial: str
    start: tuple[str, ...]
    n_free: int
    n_noise: int
    scales: tuple[str, ...]
    parameters: tuple[str, ...]
    sums: dict[str, str]
    positive: set[str]
    measured: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class OutputValues(Stored):
    """Outputs of one entity, shape (n_time, n_output) each, in the rows of a table of states; and their sds."""

    values: Matrix
    sds: Matrix


def describe_filter(spec: Specification) -> FilterDescription:
    """Return the names and settings of a specification."""
    outputs = outputs_of(spec)
    return FilterDescription(
        states=tuple(spec.space.states),
        outputs=tuple(name for name, _ in outputs),
        transforms=tuple(spec.transforms),
        initial=spec.initial,
        start=tuple(spec.start.keys),
        n_free=len(spec.free_states),
        n_noise=int(spec.space.n_noise),
        scales=tuple(spec.scales),
        parameters=tuple(map(str, spec.definition.parameters)),
        sums=names_of_sums(spec),
        positive=set(positive_names(spec)),
        measured={e.name: name for name, e in outputs if isinstance(e, Symbol)},
    )


@dataclass(frozen=True, eq=False, repr=False)
class Filtered(Saved):
    """A filter run at some parameters; see `fmepy.fimlof.result.FilterResult`."""

    parms: pd.Series
    smooth: bool
    variables: tuple[str, ...]
    runs: tuple[EntityRun, ...] = field(repr=False)
    histories: tuple[History, ...] = field(repr=False)
    bound: BoundFimlof = field(repr=False, metadata=live(_ADVICE))
    cost: Any = field(repr=False, metadata=live(_ADVICE))  # for the user: nothing here asks it anything
    xlabel: str
    entity_column: str | None
    threshold: float
    loaded: tuple[FilterDescription, tuple[dict[str, OutputValues], ...]] | None = field(default=None, repr=False)

    def as_stored(self) -> Self:
        """Return the result as it is written: with what its tables need of the model."""
        return self if self.loaded is not None else replace(self, loaded=(self.facts, self._own_outputs))

    @cached_property
    def facts(self) -> FilterDescription:
        """Names and settings of the model."""
        return describe_filter(self.bound.spec) if self.loaded is None else self.loaded[0]

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
        return sum(len(r.schedule.readings) for r in self.runs) - len(self.runs) * self.facts.n_free

    @property
    def log_jacobian(self) -> float:
        """Sum of log |dT/dz| of transformed data."""
        return float(sum(r.log_jacobian for r in self.runs))

    def _total(self, name: str, broken: float) -> float:
        if self.failure is not None:
            return broken
        return float(sum(getattr(r.likelihood, name) for r in self.runs))

    # --- tables of data

    @cached_property
    def residuals(self) -> pd.DataFrame:
        """One row a datum: [entity,] name, x, obs, mod, innovation, sd, standardized, NUMR, AUXM, flag.

        `mod` is predicted from all data before this time, ``innovation = obs - mod``, `sd` that of the innovation,
        ``standardized = innovation / sd``. NUMR and AUXM are the deleted residuals of the datum, in their sds: it minus
        what everything else until its time (NUMR), or all other data (AUXM), say of it. `flag` marks suspected data:
        beyond the cost's `threshold`, and the largest of their sample, states included. All on the scale of comparison
        (of a transform). Data that the start uses up have no prediction. Where some are limits, `censored` holds their
        marks; they have a prediction, and no residuals.
        """
        parts, variables = [], np.array(self.variables, dtype=object)
        for run, h in zip(self.runs, self.histories, strict=True):
            r, used = run.schedule.readings, run.used
            with np.errstate(invalid="ignore", divide="ignore"):
                standardized = h.innovations / h.sds
            flags, _ = flags_of(run, h, self.threshold)
            columns = {
                **{"name": variables[r.variables], "x": r.times, "obs": r.values, "mod": h.predictions},
                **{"innovation": h.innovations, "sd": h.sds},
                **{"standardized": standardized, "NUMR": h.numr, "AUXM": h.auxm, "flag": flags},
            }
            part = pd.DataFrame(columns)
            if any(one.schedule.readings.marks is not None for one in self.runs):
                part.insert(3, "censored", signs(r.all_marks))
            if used is not None and len(used):
                first: dict[Any, Any] = {"name": variables[used.variables], "x": used.times, "obs": used.values}
                first["censored"] = [""] * len(used)
                part = pd.DataFrame({c: [*first.get(c, _nothing(part[c], len(used))), *part[c]] for c in part})
            parts.append(part)
        return self._joined(parts)

    @cached_property
    def shocks(self) -> pd.DataFrame:
        """Jumps of states that the data ask for: [entity,] time, state, NUSR, AUXS, flag.

        In their sds: with the data until then, and with all. A first row that stands out says that the start is wrong.
        """
        parts, states = [], np.array(self.facts.states, dtype=object)
        for run, h in zip(self.runs, self.histories, strict=True):
            k, n = len(run.schedule.times), len(states)
            _, jumped = flags_of(run, h, self.threshold)
            part = pd.DataFrame({"time": np.repeat(run.schedule.times, n), "state": np.tile(states, k)})
            parts.append(part.assign(NUSR=h.nusr.ravel(), AUXS=h.auxs.ravel(), flag=jumped.ravel()))
        return self._joined(parts)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row a sample: [entity,] time, n, chi2, p: delta' S^-1 delta is chi-squared with n degrees of freedom.

        Limits are not counted.
        """
        from scipy.special import chdtrc

        parts = []
        for run, h in zip(self.runs, self.histories, strict=True):
            nodes, plain = run.schedule.nodes_of_rows, run.schedule.readings.all_marks == 0
            counts = np.bincount(nodes[plain], minlength=len(run.schedule.times))
            some = counts > 0
            n, chi2 = counts[some], h.chi2[some]
            parts.append(pd.DataFrame({"time": run.schedule.times[some], "n": n, "chi2": chi2, "p": chdtrc(n, chi2)}))
        return self._joined(parts)

    @cached_property
    def contributions(self) -> pd.DataFrame:
        """Contribution of every variable to the log-likelihood: n, loglik, sumsq, mean_square (1 for a right model).

        A variable is given those before it in the same sample. With an unknown start the data it uses up are not
        counted, and the row "start" is what the determinant of their information adds. Limits count in n and loglik
        alone.
        """
        m = len(self.variables)
        n, limits, total, squares = np.zeros((4, m))
        for run, h in zip(self.runs, self.histories, strict=True):
            if run.run is None or run.failure is not None:
                total += np.nan
                squares += np.nan
                continue
            seen = np.isfinite(h.whitened)
            which, w = run.schedule.readings.variables[seen], h.whitened[seen]
            n += np.bincount(which, minlength=m)
            squares += np.bincount(which, weights=w**2, minlength=m)
            log_s = np.log(_conditional_variances(run.run)[seen])
            total += np.bincount(which, weights=-0.5 * (np.log(2 * np.pi) + log_s + w**2), minlength=m)
            marks = run.schedule.readings.all_marks
            which, found = (
                run.schedule.readings.variables[marks != 0],
                limit_log_probability(run.run.nu, run.run.s, marks),
            )
            limits += np.bincount(which, minlength=m)
            total += np.bincount(which, weights=found[marks != 0], minlength=m)
        with np.errstate(invalid="ignore", divide="ignore"):
            columns = {"n": (n + limits).astype(int), "loglik": total, "sumsq": squares, "mean_square": squares / n}
        table = pd.DataFrame(columns, index=list(self.variables))
        if any(run.run is not None and run.run.v.shape[1] for run in self.runs):
            table.loc["start"] = [0, self.loglik - float(np.sum(total)), np.nan, np.nan]
            table["n"] = table["n"].astype(int)
        return table

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
        own = zip(self.histories, self._own_outputs, strict=True)
        return self._table(
            [
                np.concatenate([_roots(np.einsum("tii->ti", _states_of(history, kind)[1])), outputs[kind].sds], axis=1)
                for history, outputs in own
            ]
        )

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
        own = zip(self.histories, self._own_outputs, strict=True)
        return self._table(
            [np.concatenate([_states_of(history, kind)[0], outputs[kind].values], axis=1) for history, outputs in own]
        )

    def _table(self, values: Sequence[Matrix]) -> pd.DataFrame:
        parts = []
        for run, own in zip(self.runs, values, strict=True):
            parts.append(pd.DataFrame(own, columns=[*self.facts.states, *self.facts.outputs]))
            parts[-1].insert(0, "time", run.schedule.times)
        return self._joined(parts)

    def _joined(self, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
        """Return the entities' tables as one, with their column of labels in front if there are entities."""
        entity = self.entity_column
        if entity is None:
            return pd.concat(parts, ignore_index=True)
        for part, run in zip(parts, self.runs, strict=True):
            part.insert(0, entity, pd.Series([run.label] * len(part), index=part.index, dtype=object))
        table = pd.concat(parts, ignore_index=True)
        table[entity] = table[entity].infer_objects()
        return table

    @cached_property
    def _own_outputs(self) -> tuple[dict[str, OutputValues], ...]:
        """Outputs and their sds, by entity and kind of table."""
        if self.loaded is not None:
            return self.loaded[1]
        functions = output_functions(self.bound.spec)

        def of(run: EntityRun, history: History, kind: str) -> OutputValues:
            x, P = _states_of(history, kind)
            y, H = functions.at(run.schedule.times, x, run.p, run.schedule.inputs)
            return OutputValues(y, _roots(propagated(H, P)))

        pairs = zip(self.runs, self.histories, strict=True)
        return tuple({kind: of(run, history, kind) for kind in KINDS} for run, history in pairs)


def _states_of(history: History, kind: str) -> tuple[Matrix, Cube]:
    return getattr(history, f"x_{kind}"), getattr(history, f"P_{kind}")


def _roots(variances: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))


_TIE = 1e-9
"""Components that differ by less share the blame: with H = I a typo and a jump look the same until the next sample."""


def _nothing(column: pd.Series, n: int) -> list[Any]:
    """Return n entries of a column that say nothing."""
    return [False] * n if column.dtype == bool else [np.nan] * n


def flags_of(run: EntityRun, h: History, threshold: float) -> tuple[BoolVector, BoolVector]:
    """Return which data and which states, shape (n_node, n), are to blame for what goes beyond the threshold.

    Of every sample the component of the largest magnitude, by the smoothed diagnostics where they are there. A wrong
    datum makes the states around it look wrong too, and a jump those many samples away: a datum is blamed only if no
    state of the samples beside it is worse, a state only if nothing there is, and only where it is worst among the
    samples in which it stays beyond the threshold. Where a datum and a state are equal, both are flagged.
    """
    data, states, around = magnitudes(run, h)
    nodes = np.flatnonzero(
        (np.diff(run.schedule.row_at) > 0) | (np.arange(len(states)) == 0)
    )  # jumps are flagged at samples
    of_node = np.zeros(len(states))
    np.maximum.at(of_node, run.schedule.nodes_of_rows, data)
    own = of_node[run.schedule.nodes_of_rows]
    flagged = (data > threshold) & (data >= np.maximum(own, around) * (1 - _TIE))
    largest = np.maximum(of_node[nodes], states[nodes].max(axis=1, initial=0.0))
    jumped = np.zeros(states.shape, dtype=bool)
    worst = np.maximum(_around(largest)[:, None], _largest_of_runs(states[nodes], threshold))
    jumped[nodes] = (states[nodes] > threshold) & (states[nodes] >= worst * (1 - _TIE))
    return flagged, jumped


def magnitudes(run: EntityRun, h: History) -> tuple[Vector, Matrix, Vector]:
    """Return the sizes of the diagnostics of data and of states, and for every datum the worst state around it.

    Around it: at its own sample, and the ones before and after it (or the start).
    """
    smoothed = bool(np.isfinite(h.auxm).any())
    data = np.nan_to_num(np.abs(h.auxm if smoothed else h.numr))
    states = np.nan_to_num(np.abs(h.auxs if smoothed else h.nusr))
    nodes = np.unique(np.concatenate([[0], run.schedule.nodes_of_rows]))
    worst = _around(states[nodes].max(axis=1, initial=0.0))
    return data, states, worst[np.searchsorted(nodes, run.schedule.nodes_of_rows)]


def _largest_of_runs(values: Matrix, threshold: float) -> Matrix:
    """Return for each entry the largest of its column among the neighbours that are beyond the threshold as well."""
    out = np.zeros_like(values)
    for j, column in enumerate(values.T):
        beyond = column > threshold
        runs = np.cumsum(np.diff(beyond, prepend=False) != 0)
        for run in np.unique(runs[beyond]):
            out[runs == run, j] = column[runs == run].max()
    return out


def _around(values: Vector) -> Vector:
    """Return the largest of each value and its two neighbours."""
    padded = np.concatenate([[0.0], values, [0.0]])
    return np.asarray(np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:]))


def _conditional_variances(run: Pass) -> Vector:
    """Return the variance of every datum given those before it, the unknown start's part included."""
    if not run.v.shape[1]:
        return run.s
    root = np.sqrt(run.s)
    return StartInformation.of(run.v / root[:, None], run.nu / root)[:-1].variances(run.s, run.v)


def propagated(H: Cube, P: Cube) -> Matrix:
    """Return the diagonals of H P H', shape (n_time, k); NaN where it needs a variance that is not there."""
    missing = np.isnan(np.einsum("tii->ti", P))
    variances = np.einsum("tki,tij,tkj->tk", H, np.where(np.isnan(P), 0.0, P), H)
    needed = ((H != 0) & missing[:, None, :]).any(axis=2) | missing.all(axis=1)[:, None]
    return np.asarray(np.where(needed, np.nan, variances))
