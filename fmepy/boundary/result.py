"""The result of `fit_boundary`: the estimate with its covariance, the steps, and the fitted path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.fitting.result import ModFit
from fmepy.fitting.summary import ModFitSummary
from fmepy.numerics.differences import magnitudes
from fmepy.results.tables import Part, Shown, as_html, long_table, wrapped
from fmepy.types import AxesArray, Cube


class WithFit:
    """Base of results with a field `fit`, a `ModFit`, all attributes of which they have too."""

    __slots__ = ()
    fit: ModFit
    if TYPE_CHECKING:
        par: pd.Series
        residuals: pd.Series
        cov_scaled: pd.DataFrame
        cov_unscaled: pd.DataFrame
        correlation: pd.DataFrame
        std_error: pd.Series
        ssr: float
        df_residual: float
        converged: bool
        message: str
        interrupted: bool

    def __getattr__(self, name: str) -> Any:
        if name == "fit" or name.startswith("_"):  # before it is set
            raise AttributeError(name)
        return getattr(self.fit, name)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BoundaryFit(WithFit, Shown):
    """Result of `fit_boundary`.

    Attributes
    ----------
    fit : ModFit
        The estimate as a fit like any other: for `predict`, `compare_fits`, `profile`.
    iterations : DataFrame
        A row a step: ``step``; a column an unknown, where the step starts; multipliers, ``c.<unknown>`` of
        complementary functions, ``a.0`` and ``a.<unknown>`` of particular solutions; ``damping``, 0 of a plain step;
        ``correction``, the largest, relative to the unknown; ``residual``, the root of the weighted sum of squares at
        the start. Multiple shooting has columns of its own.
    multipliers : Series
        Of the last step.
    trajectory : DataFrame or None
        The fitted path at the model's times, of several experiments one below the other with the experiment in the
        first column; None where it cannot be run to its end.
    defect : float
        The largest gap between segments, scaled; 0 for one segment.
    misfit : DataFrame or None
        Of multiple shooting, a row a segment: the experiment (of several), ``segment``, ``begin``, ``end``; ``n_obs``;
        ``ssr``, the weighted sum of squares; ``expected``, what it would be if the segment fitted as most of them do,
        per observation; ``stands_out``: ten times that, and more than noise makes of any segment.
    segments : int
    entity : str or None
        What tells experiments apart.
    par, residuals, cov_scaled, cov_unscaled, correlation, std_error, ssr, df_residual, converged, message, interrupted
        Those of `fit`. Where it did not converge, `par` is the last iterate that could be run, and `message` says why
        and what to do. Without degrees of freedom (as many observations as unknowns) there are no standard errors.
    """

    fit: ModFit
    iterations: pd.DataFrame
    multipliers: pd.Series
    trajectory: pd.DataFrame | None
    defect: float
    segments: int
    entity: str | None = None
    misfit: pd.DataFrame | None = None
    linearised: Cube | None = field(default=None, repr=False)

    @property
    def strategy(self) -> str:
        """How it was solved: "complementary", "particular", or "multiple shooting"."""
        return self.fit.method

    @property
    def solutions(self) -> pd.DataFrame:
        """The solutions that every step superposed, at the observations (one segment).

        A row an observation of a step: ``step, name, x, obs``; ``nonlinear``, the solution from the start of the step;
        ``particular`` and ``h.<unknown>``, the particular solution and the homogeneous ones ("complementary"), or
        ``particular.0``, ``particular.<unknown>`` ("particular"). Of long searches (two million numbers) the last step
        alone is kept.
        """
        if self.linearised is None:
            raise ArgumentError("Multiple shooting superposes no solutions; its progress is in `iterations`.")
        from fmepy.boundary.superposition import perturbations

        seen, names = self.fit.cost.residuals[["name", "x", "obs"]], list(self.fit.names)
        rows = self.iterations.iloc[len(self.iterations) - len(self.linearised) :]
        first = self.iterations[names].iloc[0].to_numpy() if len(self.iterations) else self.fit.theta
        scale, tables = magnitudes(first, *self.fit.bounds), []
        for (_, row), (mod, *S) in zip(rows.iterrows(), np.moveaxis(self.linearised, 2, 1), strict=True):
            theta, table = row[names].to_numpy(dtype=float), seen.copy()
            table.insert(0, "step", int(row["step"]))
            table["nonlinear"] = mod
            if self.strategy == "complementary":
                table["particular"] = mod + (first - theta) @ np.array(S)
                table[[f"h.{n}" for n in names]] = np.array(S).T
            else:
                size = perturbations(theta, scale)
                table["particular.0"] = mod
                table[[f"particular.{n}" for n in names]] = mod[:, None] + np.array(S).T * size
            tables.append(table)
        out: pd.DataFrame = pd.concat(tables, ignore_index=True)
        return out

    def summary(self, cov: bool = True) -> ModFitSummary:
        """Return the table of estimates with standard errors, as that of `modFit`."""
        return self.fit.summary(cov)

    def by_entity(self) -> pd.DataFrame:
        """Return the local unknowns of several experiments as a table, see `ModFit.by_entity`."""
        return self.fit.by_entity()

    def plot(
        self, obs: Any = None, *, which: Sequence[str] | None = None, axes: Any = None, **kwargs: Any
    ) -> AxesArray:
        """Draw the fitted path with the observations, and how the residual fell; return the Axes.

        Parameters
        ----------
        obs : DataFrame or mapping, optional
            Other observations than those that were fitted, wide (a column ``time``) or long.
        which : sequence of str, optional
            Variables; default: those that are observed.
        axes : array of Axes, optional
            One a variable (of several experiments: one each) and one for the steps.
        **kwargs
            Labels and limits, and properties of the curves.
        """
        from fmepy.plotting.boundary import plot_boundary

        return plot_boundary(self, obs, which=which, axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the method, the estimates, the steps, and the message."""
        how = {"complementary": "complementary functions", "particular": "particular solutions"}
        pieces = f", {self.segments} segments, defect {self.defect:.2g}" if self.segments > 1 else ""
        verdict = "converged" if self.converged else "NOT converged"
        head = f"BoundaryFit by {how.get(self.strategy, self.strategy)}{pieces}: ssr {self.ssr:.7g}, {verdict}"
        values = "\n".join(f"  {n:<12s} {v: .6g}" for n, v in self.par.items())
        estimates = Part(values, as_html(self.summary().shown()))
        return [head, estimates, "", "Steps:", long_table(self.iterations), "", wrapped(self.message)]
