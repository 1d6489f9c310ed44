"""What a filter gives at some parameters, in numbers: the likelihood, tables of the data, tables of the states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd

from fmepy.errors import check_choice
from fmepy.filtering.smoothing import History
from fmepy.fimlof import tables
from fmepy.fimlof.bands import positive_names
from fmepy.fimlof.bound import BoundFimlof
from fmepy.fimlof.entity_run import EntityRun
from fmepy.fimlof.outputs import names_of_sums, output_functions, outputs_of
from fmepy.fimlof.specification import Specification
from fmepy.journal.encoding import Stored, live
from fmepy.journal.saving import Saved
from fmepy.language.nodes import Symbol
from fmepy.types import Cube, Matrix

KINDS = ("predicted", "filtered", "smoothed")
_ADVICE = "Filter again for it: cost.filter(result.parms), with the cost that you made it with."


@dataclass(frozen=True, slots=True, eq=False)
class Facts(Stored):
    """Names and settings of a filtered model: what tables, tests and pages of its result need to know of it.

    A result that is there has it from its bound cost; one that was loaded from a file, where models cannot be, from
    there.

    Attributes
    ----------
    states, outputs : tuple of str
    transforms : tuple of (str or None)
        By observed variable.
    initial : {"known", "data", "diffuse"}
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


def facts_of(spec: Specification) -> Facts:
    """Return what is to be known of a specification."""
    outputs = outputs_of(spec)
    return Facts(
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
    loaded: tuple[Facts, tuple[dict[str, OutputValues], ...]] | None = field(default=None, repr=False)  # from a file

    def as_stored(self) -> Self:
        """Return the result as it is written: with what its tables need of the model."""
        return self if self.loaded is not None else replace(self, loaded=(self.facts, self._own_outputs))

    @cached_property
    def facts(self) -> Facts:
        """Names and settings of the model."""
        return facts_of(self.bound.spec) if self.loaded is None else self.loaded[0]

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
        (of a transform). Data that the start uses up have no prediction.
        """
        return tables.residual_table(self.runs, self.histories, self.variables, self.entity_column, self.threshold)

    @cached_property
    def shocks(self) -> pd.DataFrame:
        """Jumps of states that the data ask for: [entity,] time, state, NUSR, AUXS, flag.

        In their sds: with the data until then, and with all. A first row that stands out says that the start is wrong.
        """
        names = self._state_names
        return tables.shock_table(self.runs, self.histories, names, self.entity_column, self.threshold)

    @cached_property
    def samples(self) -> pd.DataFrame:
        """One row a sample: [entity,] time, n, chi2, p: delta' S^-1 delta is chi-squared with n degrees of freedom."""
        return tables.sample_table(self.runs, self.histories, self.entity_column)

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
        return tables.state_table(self.runs, values, (*self._state_names, *self.facts.outputs), self.entity_column)

    @property
    def _state_names(self) -> tuple[str, ...]:
        return self.facts.states

    @cached_property
    def _own_outputs(self) -> tuple[dict[str, OutputValues], ...]:
        """Outputs and their sds, by entity and kind of table."""
        if self.loaded is not None:
            return self.loaded[1]
        functions = output_functions(self.bound.spec)

        def of(run: EntityRun, history: History, kind: str) -> OutputValues:
            x, P = _states_of(history, kind)
            y, H = functions.at(run.schedule.times, x, run.p, run.schedule.inputs)
            return OutputValues(y, _roots(tables.propagated(H, P)))

        pairs = zip(self.runs, self.histories, strict=True)
        return tuple({kind: of(run, history, kind) for kind in KINDS} for run, history in pairs)


def _states_of(history: History, kind: str) -> tuple[Matrix, Cube]:
    return getattr(history, f"x_{kind}"), getattr(history, f"P_{kind}")


def _roots(variances: Matrix) -> Matrix:
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)))
