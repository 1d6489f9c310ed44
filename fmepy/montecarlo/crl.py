"""modCRL: what becomes of one number per variable when the parameters change.

It is `sensRange` for functions that return one value per variable, with pictures of outputs against parameters.

References
----------
Soetaert, K. and Petzoldt, T. (2010). Inverse modelling, sensitivity and Monte Carlo analysis in R using package FME.
J. Stat. Softw. 33(3). FME: modCRL.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, listed
from fmepy.montecarlo.ensemble import prepare
from fmepy.montecarlo.ranges import RangeSummary, summarise
from fmepy.montecarlo.summaries import completed, counted_runs, statistics
from fmepy.parallel.interruption import interruptible
from fmepy.parameters.selection import chosen
from fmepy.results.tables import Framed, Part, long_table
from fmepy.types import AxesArray, IntVector, Seed, UserParameters, Which


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ModCRL(Framed):
    """One value per variable over parameter sets.

    Attributes
    ----------
    frame : DataFrame, shape (num, n_par + n_var)
        The varied parameters, then the outputs; NaN where a run failed.
    pars : DataFrame, shape (num, n_par)
    var : tuple of str, length n_var
    pset : ndarray of int, shape (num,)
        Rows of `parInput` that were used, from 0; else 0, 1, ...
    failures : DataFrame
        One row per failed run: `run`, `parameters`, `error`, `message`.
    interrupted : bool
        True if Ctrl-C ended it; the sets that were not run are failures named "Interrupted".
    engine : str
        What ran the model; "" of a function of yours.
    """

    frame: pd.DataFrame
    pars: pd.DataFrame
    var: tuple[str, ...]
    pset: IntVector
    failures: pd.DataFrame
    interrupted: bool = False
    engine: str = ""

    def shown(self) -> list[str | Part]:
        """Return how many runs there were, and their table."""
        return [counted_runs(self), long_table(self.frame)]

    def summary(self) -> RangeSummary:
        """Return mean, standard deviation, extremes and quantiles of every output, failed runs left out."""
        values = self.frame[list(self.var)].to_numpy(dtype=float)
        table = statistics(np.ascontiguousarray(values[~np.isnan(values[:, 0])].T))
        return summarise(table, self.var, np.ones(1), "x")

    def plot(self, which: Which = None, trace: bool = False, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw every output against every parameter, one panel a pair; return the Axes.

        Parameters
        ----------
        which : names or positions from 0 in the frame, optional
            Parameters and outputs; without any parameter among them all parameters, likewise outputs.
        trace : bool
            Add a smooth line (straight lines fitted locally, see `fmepy.plotting.ranges.local_lines`).
        axes : Axes or array of Axes, optional
        **kwargs
            ``xlabel ylabel xlim ylim xscale yscale title`` for the axes (a list: one a panel); the rest for the points.
        """
        from fmepy.plotting.ranges import plot_responses

        return plot_responses(self, which=which, trace=trace, axes=axes, **kwargs)

    def pairs(self, which: Which = None, nsample: int | None = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw all columns against each other: points above, correlations below, histograms on the diagonal.

        Parameters
        ----------
        which : names or positions from 0 in the frame, optional
        nsample : int, optional
            Draw only so many points, evenly spaced over the runs; correlations are of all.
        axes : array of Axes, shape (n, n), optional
        **kwargs
            For the points: keywords of ``Axes.plot``.
        """
        from fmepy.plotting.ranges import plot_pairs

        columns = chosen(which, [str(c) for c in self.frame.columns], what="column")
        return plot_pairs(self.frame[columns], nsample=nsample, axes=axes, **kwargs)

    def hist(self, which: Which = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw a histogram of every column, parameters and outputs; return the Axes.

        Parameters
        ----------
        which : names or positions from 0 in the frame, optional
        axes : Axes or array of Axes, optional
        **kwargs
            Keywords of ``Axes.hist``, such as ``bins``.
        """
        from fmepy.plotting.ranges import plot_histograms

        columns = chosen(which, [str(c) for c in self.frame.columns], what="column")
        return plot_histograms(self.frame[columns], axes=axes, **kwargs)


@interruptible(completed)
def modCRL(
    func: Any,
    parms: UserParameters = None,
    *,
    sensvar: Which = None,
    dist: str = "unif",
    parInput: Any = None,
    parRange: Any = None,
    parMean: Any = None,
    parCovar: Any = None,
    num: int = 100,
    args: Any = (),
    kwargs: Any = None,
    seed: Seed = None,
    executor: Any = None,
    progress: bool | Callable[[int, int], object] = False,
) -> ModCRL:
    """Return one value per variable over many parameter sets.

    Parameters
    ----------
    func : callable
        ``func(p, *args, **kwargs)`` returns one row: a Series, a dict of numbers, a one-row table, or one number
        (called X1).
    parms, sensvar, dist, parInput, parRange, parMean, parCovar, num, args, kwargs, seed, executor, progress
        As for `sensRange`.

    Returns
    -------
    ModCRL

    Raises
    ------
    ArgumentError
        `func` returns several rows, or a variable has the name of a varied parameter; and as for `sensRange`.
    ParameterError
        As for `sensRange`.

    Notes
    -----
    FME: ``modCRL``. Differs from FME: several outputs against several parameters can be drawn, where R stops; a failed
    run is a row of NaN and a line of `failures`; Sd is defined for a single output.

    Examples
    --------
    >>> area = modCRL(lambda p: p["a"] * p["b"], {"a": 2.0, "b": 3.0}, dist="grid", parRange={"b": (1, 3)}, num=3)
    >>> area.frame
         b   X1
    0  1.0  2.0
    1  2.0  4.0
    2  3.0  6.0
    >>> area.summary()[["Mean", "Sd", "N"]]
        Mean   Sd  N
    X1   4.0  2.0  3
    """
    ensemble = prepare(
        func, parms, sensvar=sensvar, dist=dist, parInput=parInput, parRange=parRange, parMean=parMean,
        parCovar=parCovar, map=None, num=num, args=args, kwargs=kwargs, seed=seed,
    )  # fmt: skip
    simulator = ensemble.simulator
    if not simulator.is_single_row:
        advice = "Return one row (such as table.iloc[-1]) or a number made of it"
        if simulator.is_model:
            name, how = ensemble.var[0], ", wide=True" if simulator.cells else ""
            advice = (
                "Pass a function of the parameters that returns one row of its table, or a number made of it: "
                f"modCRL(lambda p: model(p{how})[{name!r}].iloc[-1], model.parms, ...)"
            )
        raise ArgumentError(
            f"`func` returns {len(simulator.x)} rows; modCRL needs one value per variable. {advice}; or use sensRange."
        )
    clash = sorted(set(ensemble.var) & set(simulator.names))
    if clash:
        raise ArgumentError(f"`func` returns {listed(clash)}, the name of a varied parameter. Return another name.")
    values, ran = ensemble.run(executor, progress)
    pars = ensemble.sets.labelled()
    outputs = pd.DataFrame(values[:, :, 0], columns=list(ensemble.var), index=pars.index)
    return ModCRL(pd.concat([pars, outputs], axis=1), pars, ensemble.var, ensemble.sets.pset, *ran)
