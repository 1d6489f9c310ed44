"""sensRange: bands of a model's output over ranges, distributions or a chain of its parameters.

A band says one of two things, and the summary's `kind` and the picture's legend say which:

* *parameter uncertainty*: the runs as they are, ``y_k(x) = f(x; p_k)``. Where the curve is.
* *prediction*: with one draw of the observation error per point, ``y_k(x) + e``, ``e ~ N(0, s2_k)``, independent over
  runs, variables and x (`SensRange.with_error`). Where the next reading will be.

References
----------
Soetaert, K. and Petzoldt, T. (2010). Inverse modelling, sensitivity and Monte Carlo analysis in R using package FME.
J. Stat. Softw. 33(3). FME: sensRange.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers, as_rng
from fmepy.costs.noise import places_of_variances
from fmepy.errors import ArgumentError, check_choice, listed
from fmepy.montecarlo.ensemble import Ensemble, Status, output_names, prepare
from fmepy.montecarlo.summaries import STATISTICS, Scratch, column_groups, completed, counted_runs, statistics
from fmepy.parallel.interruption import interruptible
from fmepy.parallel.resumable import resumable_tasks
from fmepy.parameters.named import check_names
from fmepy.parameters.selection import cells_of
from fmepy.results.tables import Framed, Part, long_table
from fmepy.tables.cells import Cells, by_place, profiles_among
from fmepy.types import AxesArray, Cube, IntVector, Matrix, Seed, UserParameters, Vector, Which

PARAMETERS, PREDICTION = "parameter uncertainty", "prediction"
_CHUNK_BYTES = 4_000_000  # of output per chunk when runs are not kept
_MOST_ROWS = 20_000  # per chunk, however small the output


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RangeSummary(Framed):
    """Statistics of every output over the runs.

    Attributes
    ----------
    frame : DataFrame, one row per variable and x, labelled as the columns of the ensemble
        Columns ``x``, ``var``, ``Mean``, ``Sd`` (divisor N - 1), ``Min``, ``Max``, ``q05``, ``q25``, ``q50``, ``q75``,
        ``q95`` (R's type 7), ``N`` (runs that came to their end). Of a model on a grid ``time``, ``x`` (the place; NaN
        of what is one number of a run) and ``var``, in the place of x and var.
    kind : str
        "parameter uncertainty", or "prediction" if observation errors were added.
    predicted : tuple of str
        The variables that carry observation errors.
    x_name : str
        What x is called.
    profiles : tuple of str
        Of a steady state on a grid, the variables that are profiles over x.
    """

    frame: pd.DataFrame
    kind: str
    predicted: tuple[str, ...]
    x_name: str
    profiles: tuple[str, ...] = ()

    @property
    def by_depth(self) -> bool:
        """Whether these are profiles by time and place."""
        return str(self.frame.columns[1]) == "x"

    @property
    def var(self) -> tuple[str, ...]:
        """The variables."""
        return tuple(str(v) for v in self.frame["var"].unique())

    def kind_of(self, variable: str) -> str:
        """Return the kind of band of one variable."""
        return PREDICTION if variable in self.predicted else PARAMETERS

    def plot(
        self,
        xyswap: bool | None = None,
        which: Which = None,
        legpos: str | None = "above",
        quant: bool = False,
        obs: Any = None,
        obspar: Mapping[str, Any] | None = None,
        *,
        axes: Any = None,
        **kwargs: Any,
    ) -> AxesArray:
        """Draw a light and a dark band per variable, observations on top; return the Axes.

        Parameters
        ----------
        xyswap : bool, optional
            x on the vertical axis, downwards from its top: the default of a `SteadyModel` on a grid.
        which : names or positions from 0, optional
            The variables; all by default.
        legpos : str or None
            Where the legend stands: "above" the panel, or inside it (R's words or matplotlib's); None: none.
        quant : bool
            False: Min to Max and Mean +- Sd around the mean. True: q05 to q95 and q25 to q75 around the median.
        obs : table or list of tables, optional
            Observations: wide (a column named like x, one per variable) or long (variable, x, value). Of profiles with
            the depth behind the time, whose times are then drawn.
        obspar : dict, optional
            Their look: keywords of ``Axes.plot``.
        axes : Axes or array of Axes, optional
        **kwargs
            ``xlabel ylabel xlim ylim xscale yscale title`` for the axes (a list: one a panel); ``color`` of the bands;
            anything else goes to the middle line.
        """
        from fmepy.plotting.ranges import plot_bands

        return plot_bands(
            self, xyswap=xyswap, which=which, legpos=legpos, quant=quant, obs=obs, obspar=obspar, axes=axes, **kwargs
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SensRange(Framed):
    """Runs of a model over parameter sets.

    Attributes
    ----------
    frame : DataFrame
        One row per run: the varied parameters, then every variable at every x, variables outermost, named variable + x
        ("Bact0.5"; the variable alone for a single x). Only the parameters with ``keep="summary"``.
    values : ndarray, shape (num, n_var, n_x)
        The outputs; NaN where a run failed. Shape (0, n_var, n_x) with ``keep="summary"``.
    pars : DataFrame, shape (num, n_par)
        The sets, labelled (chain, iteration) if they come from a chain.
    x : ndarray, shape (n_x,)
    var : tuple of str, length n_var
    pset : ndarray of int, shape (num,)
        Rows of `parInput` that were used, from 0; else 0, 1, ...
    failures : DataFrame
        One row per failed run: `run` (position in `frame`), `parameters` (the varied ones), `error`, `message`.
    x_name : str
    kind : str
        "parameter uncertainty" or "prediction".
    predicted : tuple of str
        The variables that carry observation errors.
    interrupted : bool
        True if Ctrl-C ended it; the sets that were not run are failures named "Interrupted".
    engine : str
        What ran the model; "" of a function of yours.
    cells : dict or None
        Of a model on a grid, of every variable that is a cell (``O2[3]``) the profile and its place; summaries and
        pictures are of profiles.
    profiles : tuple of str
        Of a steady state on a grid, the variables that are profiles over x.
    """

    frame: pd.DataFrame
    values: Cube
    pars: pd.DataFrame
    x: Vector
    var: tuple[str, ...]
    pset: IntVector
    failures: pd.DataFrame
    x_name: str = "x"
    kind: str = PARAMETERS
    predicted: tuple[str, ...] = ()
    interrupted: bool = False
    engine: str = ""
    _summary: RangeSummary | None = None
    cells: dict[str, tuple[str, float]] | None = None
    profiles: tuple[str, ...] = ()

    def shown(self) -> list[str | Part]:
        """Return the description of the runs, and their table."""
        note = "; only their summary was kept" if self._summary is not None else ""
        return [
            f"{counted_runs(self)}: {self.kind} of {', '.join(profiles_among(self.var, self.cells))}{note}",
            long_table(self.frame),
        ]

    def summary(self) -> RangeSummary:
        """Return mean, standard deviation, extremes and quantiles of every output, failed runs left out."""
        if self._summary is not None:
            return self._summary
        n_runs = len(self.values)
        values = self.values.reshape(n_runs, -1)
        ok = np.any(~np.isnan(values), axis=1)  # a failed run is NaN in all its outputs
        table = np.concatenate([statistics(group) for group in column_groups(values, ok)])
        return summarise(table, self.var, self.x, self.x_name, self.kind, self.predicted, self.cells, self.profiles)

    def with_error(self, var: Any, *, seed: Seed = None) -> SensRange:
        """Return the runs with observation errors added: one independent normal draw per run, variable and x.

        Parameters
        ----------
        var : number, dict or Series by variable, or DataFrame of sampled variances
            The variance of an observation, in the variable's unit squared. A number holds for every variable. Variables
            that a dict leaves out get no error. A table such as ``chain.sig`` has one row per row of the chain and
            columns ``var_<variable>``, or ``var_model`` for all; every run takes the row of its own parameters: by
            label where `parInput` and the table are labelled (chain, iteration), else by `pset`. Where several parts
            of a cost observe a variable (``var_A[0]``, ``var_A[1]``, or two columns of one name), each run gives
            readings of one of the parts, drawn with equal chances; ``chain.sig[["var_A[1]"]]`` chooses one.
        seed : int, Generator or None

        Returns
        -------
        SensRange
            Its summary's `kind` is "prediction".

        Raises
        ------
        ArgumentError
            A variance that is negative or not finite, an unknown variable, a table without the rows that are needed;
            runs that were not kept, or already carry errors.

        Notes
        -----
        Differs from FME: R has no such switch, and its vignette adds *one* draw per run to all x, which shifts curves
        as a whole instead of scattering readings.

        Examples
        --------
        >>> def line(p):
        ...     return {"x": [0, 1], "y": [p["a"], 2 * p["a"]]}
        >>> runs = sensRange(line, parRange={"a": (1, 1)}, num=2000, seed=1)
        >>> runs.summary()["Sd"].tolist()
        [0.0, 0.0]
        >>> noisy = runs.with_error(4.0, seed=2).summary()
        >>> noisy.kind, noisy["Sd"].round(1).tolist()
        ('prediction', [2.0, 2.0])
        """
        if self._summary is not None:
            raise ArgumentError("The runs were not kept (keep='summary'), so errors cannot be added; use keep='all'.")
        if self.predicted:
            raise ArgumentError(f"The runs carry observation errors already (of {listed(self.predicted)}).")
        rng = as_rng(seed)
        variances = self._variances(var, rng)
        values = self.values.copy()
        for j, name in enumerate(self.var):
            if name in variances:
                s2 = variances[name]
                if (bad := ~(np.isfinite(s2) & (s2 >= 0))).any():
                    raise ArgumentError(
                        f"`var`: the variance of {name!r} is {s2[bad][0]:g}; it must be a finite number, at least 0."
                    )
                values[:, j] += np.sqrt(s2)[:, np.newaxis] * rng.standard_normal(values[:, j].shape)
        return replace(
            self,
            frame=_frame(self.pars, values, self.var, self.x),
            values=values,
            kind=PREDICTION,
            predicted=tuple(v for v in self.var if v in variances),
        )

    def _variances(self, var: Any, rng: np.random.Generator) -> dict[str, Vector]:
        """Return the variance of every run, shape (num,), by variable."""
        n = len(self.pars)
        if isinstance(var, pd.Series) and (isinstance(var.index, pd.MultiIndex) or str(var.name).startswith("var_")):
            var = var.to_frame()
        if isinstance(var, pd.DataFrame):
            return self._sampled_variances(var, rng)
        if isinstance(var, (Mapping, pd.Series)):
            known = list(dict.fromkeys([*profiles_among(self.var, self.cells), *self.var]))
            names = check_names(list(var.keys()), known, argument="var", what="variable")
            by_name = zip(names, (value for _, value in var.items()), strict=True)
            values = {k: value for name, value in by_name for k in cells_of(name, self.var) or [name]}
        else:
            values = dict.fromkeys(self.var, var)
        return {k: np.full(n, _number(v, k)) for k, v in values.items()}

    def _sampled_variances(self, table: pd.DataFrame, rng: np.random.Generator) -> dict[str, Vector]:
        columns = [str(c) for c in table.columns]
        values = as_numbers(table, "var")
        cells = self.cells or {}
        of = {v: places for v in self.var if (places := places_of_variances(cells.get(v, (v,))[0], columns))}
        if not of and "var_model" in columns:
            of = {v: [columns.index("var_model")] for v in self.var}
        if not of:
            raise ArgumentError(
                f"`var` has the columns {listed(columns)}, none of which is the variance of a variable here: "
                f"{listed(f'var_{v}' for v in self.var)}, or var_model for all of them."
            )
        rows = self._rows_of(table)
        out = {}
        for v, places in of.items():  # no random number is drawn where there is one part only
            chosen = rng.choice(places, size=len(rows)) if len(places) > 1 else np.repeat(places, len(rows))
            out[v] = values[rows, chosen]
        return out

    def _rows_of(self, table: pd.DataFrame) -> IntVector:
        """Return the row of `table` that belongs to each run."""
        labels: Any = self.pars.index
        if isinstance(labels, pd.MultiIndex) and isinstance(table.index, pd.MultiIndex):
            rows = table.index.get_indexer(labels)
            if (rows < 0).any():
                missing = ", ".join(str(k) for k in labels[int(np.flatnonzero(rows < 0)[0])])
                raise ArgumentError(
                    f"`var` has no row ({missing}), from which a run took its parameters. Give the variances of the "
                    "same chain as `parInput`."
                )
            return np.asarray(rows, dtype=np.intp)
        if len(table) <= int(self.pset.max()):
            raise ArgumentError(
                f"`var` has {len(table)} rows, but a run took its parameters from row {int(self.pset.max())} of "
                "`parInput` (from 0). Give one row of variances per row of `parInput`."
            )
        return self.pset

    def plot(self, which: Which = None, xyswap: bool | None = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw all runs as lines, one panel per variable (boxes for a single x); return the Axes.

        Parameters
        ----------
        which : names or positions from 0, optional
        xyswap : bool, optional
            x on the vertical axis, downwards from its top: the default of a `SteadyModel` on a grid.
        axes : Axes or array of Axes, optional
        **kwargs
            ``xlabel ylabel xlim ylim xscale yscale title`` for the axes (a list: one a panel); the rest (``color``,
            ``alpha``, ``linewidth``) for the lines.

        Raises
        ------
        ArgumentError
            The runs were not kept.
        """
        from fmepy.plotting.ranges import plot_runs

        if self._summary is not None:
            raise ArgumentError("The runs were not kept (keep='summary'); .summary().plot() draws their bands.")
        return plot_runs(self, which=which, xyswap=xyswap, axes=axes, **kwargs)


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        hint = " Chains sample variances (`sig`) where `var0=` is given." if value is None else ""
        raise ArgumentError(f"`var`: the variance of {name!r} is {value!r}; a number is needed.{hint}") from None


def _frame(pars: pd.DataFrame, values: Cube, var: tuple[str, ...], x: Vector) -> pd.DataFrame:
    outputs = pd.DataFrame(values.reshape(len(values), -1), columns=output_names(var, x), index=pars.index)
    return pd.concat([pars, outputs], axis=1)


def summarise(
    table: Matrix, var: tuple[str, ...], x: Vector, x_name: str, kind: str = PARAMETERS,
    predicted: tuple[str, ...] = (), cells: Cells | None = None, profiles: tuple[str, ...] = (),
) -> RangeSummary:  # fmt: skip
    """Return statistics, shape (n_var * n_x, n_statistic), as a summary."""
    frame = pd.DataFrame(table, columns=list(STATISTICS), index=output_names(var, x))
    frame.insert(0, "x", np.tile(x, len(var)))
    frame.insert(1, "var", np.repeat(np.array(var, dtype=object), len(x)))
    frame["N"] = frame["N"].astype(int)
    return RangeSummary(by_place(frame, "x", x_name, cells), kind, profiles_among(predicted, cells), x_name, profiles)


@interruptible(completed)
def sensRange(
    func: Any,
    parms: UserParameters = None,
    *,
    sensvar: Which = None,
    dist: str = "unif",
    parInput: Any = None,
    parRange: Any = None,
    parMean: Any = None,
    parCovar: Any = None,
    map: int | str | None = 0,
    num: int = 100,
    args: Any = (),
    kwargs: Any = None,
    seed: Seed = None,
    executor: Any = None,
    progress: bool | Callable[[int, int], object] = False,
    keep: str = "all",
    checkpoint: Any = None,
) -> SensRange:
    """Return the outputs of a model over many parameter sets.

    Parameters
    ----------
    func : fmepy model, or callable
        ``func(p, *args, **kwargs)`` returns a table (one column is x, see `map`) or one row of values.
    parms : dict, Series, sequence, lmfit.Parameters, optional
        The parameters that `func` receives, the varied ones among them. None: a model's own; for a function, the varied
        ones alone (the first row of `parInput`, the means, or the middle of the ranges).
    sensvar : names or positions, optional
        The variables; positions are those of columns of the table, from 0, x included. All by default.
    dist : {"unif", "norm", "latin", "grid", "sobol", "halton"}
        How sets are drawn: from `parRange`, or with "norm" from `parMean` and `parCovar` (truncated to `parRange` if it
        is given); see `Unif`, `Norm`, `Latinhyper`, `Grid`, `Sobol`, `Halton`.
    parInput : table, chain or fit, optional
        Sets of its own, one per row, such as the draws of a chain (or the chain); overrides `dist`. Of a fit, `num`
        draws from the normal distribution of its estimates and covariance, inside its bounds. If it has more than
        `num` rows, `num` of them are drawn without replacement (and kept in their order); else all are used. Of a chain
        the parameters that belong to the cost alone (its noise) are left out.
    parRange, parMean, parCovar
        What `dist` needs; what would not count is refused.
    map : int, str or None
        The column of x in the table of a user's function: position from 0, name, or None (x is then the row number,
        from 1). fmepy models know their own time.
    num : int
        Number of runs; a grid has at most so many.
    args, kwargs
        Passed on to a user's function.
    seed : int, Generator or None
        Of the sets; the same for any number of workers.
    executor : None, int, or Executor
        Where the runs go, see `run_many`. Many runs of a compiled model share threads, which costs nothing to begin.
    progress : bool or callable
    keep : {"all", "summary"}
        "summary" keeps no run: values go to a scratch file on disk (8 bytes a number, in the folder of TMPDIR), a
        second pass reads it back output by output, and the file is gone when this function returns. Nothing is
        approximated: the summary is that of "all", quantiles included, in memory that does not grow with the number of
        runs times outputs.
    checkpoint : path, optional
        A folder, new or of this very call, in which every run is kept as it ends: killed or interrupted, the same call
        runs what is missing, and gives what an uninterrupted one gives. 8 bytes a number; not with
        ``keep="summary"``.

    Returns
    -------
    SensRange

    Raises
    ------
    ParameterError
        Ranges, means or covariance that cannot be; an unknown parameter; what `dist` needs is missing; estimates or
        draws of transformed parameters for a model that takes others.
    ArgumentError
        An unknown variable, ``num < 1``, a function that fails at the start or returns no table; a checkpoint of other
        runs, or of ``keep="summary"``.

    Notes
    -----
    A run equal to the one before is not run again (rejected steps of a chain). A run that fails, or gives a value of an
    asked-for variable that is not finite, is a row of NaN and a line of `failures`; summaries leave it out and count
    the others in ``N``.

    FME: ``sensRange``. Differs from FME: a grid whose `num` is no power runs the sets there are; `parInput` may
    have one row; a failed run does not end the others, and summaries do not stop at missing values; Sd is defined for a
    single output; observation errors can be added (`SensRange.with_error`).

    Examples
    --------
    >>> def line(p):
    ...     return {"x": [0.0, 1.0], "y": [p["a"], p["a"] + p["b"]]}
    >>> runs = sensRange(line, {"a": 1.0, "b": 0.0}, dist="grid", parRange={"b": (0, 4)}, num=5)
    >>> runs.frame
         b   y0   y1
    0  0.0  1.0  1.0
    1  1.0  1.0  2.0
    2  2.0  1.0  3.0
    3  3.0  1.0  4.0
    4  4.0  1.0  5.0
    >>> runs.summary()[["x", "var", "Mean", "Min", "Max", "q25", "N"]]
          x var  Mean  Min  Max  q25  N
    y0  0.0   y   1.0  1.0  1.0  1.0  5
    y1  1.0   y   3.0  1.0  5.0  2.0  5
    """
    check_choice(keep, ("all", "summary"), "keep")
    if checkpoint is not None and keep == "summary":
        raise ArgumentError("`checkpoint` keeps the runs, which keep='summary' does not; leave one of them out.")
    with resumable_tasks(checkpoint, "an ensemble", seed=None if checkpoint is None else seed) as tasks:
        ensemble = prepare(
            func, parms, sensvar=sensvar, dist=dist, parInput=parInput, parRange=parRange, parMean=parMean,
            parCovar=parCovar, map=map, num=num, args=args, kwargs=kwargs,
            seed=seed if checkpoint is None else tasks.rng,
        )  # fmt: skip
        pars = ensemble.sets.labelled()
        x, x_name, var = ensemble.simulator.x, ensemble.simulator.x_name, ensemble.var
        summary: RangeSummary | None = None
        if keep == "summary":
            summary, ran = _run_streamed(ensemble, executor, progress)
            values, frame = np.empty((0, len(var), len(x))), pars
        else:
            values, ran = ensemble.run(executor, progress, tasks)
            frame = _frame(pars, values, var, x)
    return SensRange(
        frame, values, pars, x, var, ensemble.sets.pset, ran.failures, x_name,
        interrupted=ran.interrupted, engine=ran.engine, _summary=summary, cells=ensemble.simulator.cells,
        profiles=ensemble.simulator.profiles,
    )  # fmt: skip


def _run_streamed(ensemble: Ensemble, executor: Any, progress: Any) -> tuple[RangeSummary, Status]:
    """Return the summary and the status of runs that are not stored."""
    rows = max(1, min(_MOST_ROWS, _CHUNK_BYTES // (8 * ensemble.n_output)))
    with closing(Scratch(ensemble.n_output)) as scratch:
        ran = ensemble.stream(scratch.write, rows, executor, progress)
        table = np.concatenate([statistics(group) for group in scratch.column_groups()])
    simulator = ensemble.simulator
    of = simulator.x, simulator.x_name, PARAMETERS, (), simulator.cells, simulator.profiles
    return summarise(table, ensemble.var, *of), ran
