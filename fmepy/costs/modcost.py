"""The cost of a model's output compared with data: `modCost`, and its result `ModCost`.

For observation i of variable j, with error e_i (a column of the data, or one number for the whole variable)::

    res.unweighted_i = mod_i - obs_i          mod_i: linear interpolation on the model's output
    res_i            = (mod_i - obs_i) / e_i
    SSR.unweighted_j = sum_i res.unweighted_i^2
    SSR.unscaled_j   = sum_i res_i^2
    SSR_j            = sum_i (s_j res_i)^2                        s_j = 1/n_j with scaleVar, else 1
    model            = sum_j s_j SSR_j
    minlogp          = sum_i 0.5 log(2 pi) + log e_i + 0.5 res_i^2     minus ONE times the log-likelihood
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import CostData
from fmepy.costs.censored import signs
from fmepy.costs.data_fingerprint import ObservedData
from fmepy.costs.interpolation import brackets, resolution
from fmepy.costs.observations import (
    Comparison,
    Observations,
    check_observed,
    concatenate,
    prepare,
    read_observations,
    warn_of_copy,
)
from fmepy.errors import ArgumentError, DataError, SimulationError, listed, warn
from fmepy.numerics.tails import minus2loglik_of_marked, residuals_of_marked
from fmepy.results.tables import Part, Shown, table
from fmepy.tables.columns import Columns
from fmepy.tables.sheet import one_calendar, warn_of_calendars, with_times
from fmepy.types import Axes, Vector
from fmepy.vocabulary import own_words


@dataclass(frozen=True, eq=False, repr=False)
class ModCost(Shown):
    """A model compared with data: sums of squares, likelihood, residuals.

    Attributes
    ----------
    model : float
        The cost: sum of the squared weighted (and scaled) residuals of all variables.
    minlogp : float
        Minus the logarithm of the likelihood (not twice it), for normal errors of the given size. Always finite.
    var : DataFrame
        One row per variable of every call: ``name, scale, N, SSR.unweighted, SSR.unscaled, SSR``.
    residuals : DataFrame
        One row per observation: ``name, x, obs, mod, weight, res.unweighted, res``; ``res`` is (mod - obs) * weight.
        Variable by variable, within a variable in the order of the data. Of several experiments also ``entity``; of a
        `SumCost` also ``part``, which of its parts, counted from 0. With readings beyond a limit also ``censored``, the
        mark: their ``obs`` is the limit, their ``res`` the mean of (mod - reading) * weight given that the reading lies
        beyond it (`fmepy.numerics.tails`).
    dropped : DataFrame
        Observations that were not used, rows as in `var`: ``name, missing, outside`` (the model's range).
    minus2loglik, sds : float, ndarray of shape (n_obs,)
        Twice `minlogp`; the standard deviation of every observation, in the order of `residuals`: 1 / weight.
    is_likelihood : bool
        True if the noise is said in words: a fit minimises `minus2loglik`, not `model`.

    Notes
    -----
    The tables are made from `pieces` (what was compared, and the model's values) when they are first asked for.

    ``a + b`` adds the costs and appends the tables in the order written. A variable observed in both has two rows in
    `var` and is two variables everywhere: in fits, and for the variances that `modMCMC` samples. Both rows bear its
    name, as in FME; those of a `SumCost` are told apart by the number of the part.
    """

    model: float
    minlogp: float
    pieces: tuple[tuple[Comparison, Vector], ...]
    parts: tuple[int, ...] | None = None  # of a SumCost: which part every piece is of
    row_names: tuple[str, ...] | None = None  # of a SumCost: what the rows of `var` are called
    is_likelihood: bool = False

    @cached_property
    def var(self) -> pd.DataFrame:
        """One row per variable; made when it is first asked for, as fits need only arrays."""
        return self._named(_appended([_table_of_variables(c, mod) for c, mod in self.pieces]))

    @cached_property
    def residuals(self) -> pd.DataFrame:
        """One row per observation."""
        with_marks = any(c.marks is not None for c, _ in self.pieces)
        table = _appended([_table_of_residuals(c, mod, with_marks) for c, mod in self.pieces])
        if self.parts is not None:
            table["part"] = np.repeat(self.parts, [len(c) for c, _ in self.pieces])
        return table

    @cached_property
    def dropped(self) -> pd.DataFrame:
        """One row per variable: how many observations were not used."""
        columns = [
            {"name": list(c.group_names), "missing": c.n_missing, "outside": c.n_outside} for c, _ in self.pieces
        ]
        return self._named(_appended([pd.DataFrame(own) for own in columns]))

    def _named(self, table: pd.DataFrame) -> pd.DataFrame:
        return table if self.row_names is None else table.assign(name=list(self.row_names))

    @property
    def variables(self) -> tuple[str, ...]:
        """The variable of every row of `var`, whatever the row is called."""
        return tuple(chain.from_iterable(c.group_names for c, _ in self.pieces))

    @property
    def data(self) -> ObservedData:
        """The observations in their own units, which tell whether likelihoods are of the same data."""
        return concatenate([c for c, _ in self.pieces]).observed

    @property
    def fixed(self) -> CostData:
        """What is fixed of the data, its groups named as the rows of `var`."""
        fixed = concatenate([c for c, _ in self.pieces])
        return fixed if self.row_names is None else replace(fixed, group_names=self.row_names)

    @property
    def x_name(self) -> str:
        """The name of x in the tables of observations; "x" where it has none."""
        return ", ".join(dict.fromkeys(c.x_name for c, _ in self.pieces if c.x_name is not None)) or "x"

    @property
    def calendar(self) -> Any:
        """What the dates of all observations were, see `fmepy.tables.sheet.with_times`; None of numbers."""
        return one_calendar(c.calendar for c, _ in self.pieces)

    @property
    def res(self) -> Vector:
        """The column ``res`` of `residuals`, as an array."""
        return np.concatenate([_residuals(c, mod)[1] for c, mod in self.pieces])

    @property
    def minus2loglik(self) -> float:
        """-2 log L."""
        return 2 * self.minlogp

    @property
    def sds(self) -> Vector:
        """The standard deviation of every observation."""
        return np.concatenate([1 / c.weights for c, _ in self.pieces])

    def __add__(self, other: object) -> ModCost:
        if not isinstance(other, ModCost):
            return NotImplemented
        for c, mod in self.pieces:
            for other_c, other_mod in other.pieces:
                if c.repeats(other_c) and np.array_equal(mod, other_mod):
                    warn_of_copy(f"of {listed(c.group_names)}")
        warn_of_calendars(c.calendar for c, _ in (*self.pieces, *other.pieces))
        return joined_costs([self, other])

    def __radd__(self, other: object) -> ModCost:
        return self if isinstance(other, int) and other == 0 else NotImplemented  # the start of sum([...])

    def shown(self) -> list[str | Part]:
        """Return the cost, its variables, and what was dropped."""
        dropped = self.dropped[(self.dropped[["missing", "outside"]] > 0).any(axis=1)]
        told = ["dropped:", table(dropped, index=False)] if len(dropped) else ["dropped: none"]
        head = [f"Cost of {len(self.residuals)} observations", f"model:   {self.model:.7g}"]
        return [*head, f"minlogp: {self.minlogp:.7g}", "", "var:", table(self.var, index=False), "", *told]

    def plot(self, legpos: str | None = "above", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the weighted residuals against x, one symbol and colour per variable; return the Axes.

        Parameters
        ----------
        legpos : str or None
            Position of the legend: "above" the panel, or inside it in R's words ("topleft") or matplotlib's ("upper
            left"); None for no legend.
        ax : Axes, optional
            Where to draw.
        **kwargs
            ``xyswap``: x downwards, by default where it is called depth; labels and limits (``xlabel``, ``title``,
            ``ylim``, ...); properties of the points.
        """
        from fmepy.plotting.fits import plot_residuals

        return plot_residuals(self, legpos=legpos, ax=ax, **kwargs)


def joined_costs(costs: Sequence[ModCost], row_names: tuple[str, ...] | None = None) -> ModCost:
    """Return several costs as one, in order; `row_names` make them the parts of a sum, whose rows are told apart."""
    parts = tuple(k for k, cost in enumerate(costs) for _ in cost.pieces)
    return ModCost(
        sum(cost.model for cost in costs),
        sum(cost.minlogp for cost in costs),
        tuple(chain.from_iterable(cost.pieces for cost in costs)),
        None if row_names is None else parts,
        row_names,
        any(cost.is_likelihood for cost in costs),
    )


def tabulate(comparison: Comparison, mod: Vector, *, is_likelihood: bool = False) -> ModCost:
    """Return the `ModCost` of a prepared comparison and the model's values on the scale of comparison.

    Parameters
    ----------
    comparison : Comparison
        Observations and weights.
    mod : ndarray, shape (n_obs,)
        The model at the observations; finite.
    """
    c = comparison
    unscaled = _sums_of_squares(_residuals(c, mod)[1], c)
    if c.marks is None:
        minlogp = 0.5 * len(c) * np.log(2 * np.pi) - np.log(c.weights).sum() + 0.5 * unscaled.sum()
    else:
        minlogp = 0.5 * minus2loglik_of_marked((mod - c.obs) * c.weights, 1 / c.weights, c.marks)
    if c.own_scale is not None:
        minlogp -= c.own_log_slopes.sum()
    return ModCost(float(c.scales**3 @ unscaled), float(minlogp), ((c, mod),), is_likelihood=is_likelihood)


def _residuals(c: Comparison, mod: Vector) -> tuple[Vector, Vector]:
    """Return the residuals, unweighted and weighted; generalised ones of readings beyond a limit."""
    unweighted = mod - c.obs
    res = unweighted * c.weights
    if c.marks is None:
        return unweighted, res
    res = residuals_of_marked(res, c.marks)
    return res / c.weights, res


def _sums_of_squares(values: Vector, c: Comparison) -> Vector:
    """Return the sum of squares of every variable."""
    with np.errstate(over="ignore"):  # residuals beyond 1e154 have an infinite square, as they should
        return np.bincount(c.groups, values**2, len(c.group_names)).astype(np.float64)


def _table_of_variables(c: Comparison, mod: Vector) -> pd.DataFrame:
    unweighted, res = _residuals(c, mod)
    unscaled = _sums_of_squares(res, c)
    return pd.DataFrame(
        {
            "name": list(c.group_names),
            "scale": c.scales,
            "N": np.bincount(c.groups, minlength=len(c.group_names)),
            "SSR.unweighted": _sums_of_squares(unweighted, c),
            "SSR.unscaled": unscaled,
            "SSR": c.scales**2 * unscaled,
        }
    )


def _table_of_residuals(c: Comparison, mod: Vector, with_marks: bool) -> pd.DataFrame:
    unweighted, res = _residuals(c, mod)
    table = pd.DataFrame(
        {
            "name": list(c.names),
            "x": c.x,
            "obs": c.obs,
            "mod": mod,
            "weight": c.weights,
            "res.unweighted": unweighted,
            "res": res,
        }
    )
    if c.depths is not None:
        table.insert(2, "depth", c.depths)
    if with_marks:
        table["censored"] = "" if c.marks is None else signs(c.marks)
    if c.entities is not None:
        table["entity"] = list(c.entities)
    return table


def _appended(tables: list[pd.DataFrame]) -> pd.DataFrame:
    return tables[0] if len(tables) == 1 else pd.concat(tables, ignore_index=True)


@own_words
def modCost(
    model: Any,
    obs: Any,
    *,
    x: str | None = "time",
    y: str | None = None,
    err: str | None = None,
    unit: str | None = None,
    origin: Any = None,
    weight: str = "none",
    scaleVar: bool = False,
    cost: ModCost | None = None,
    outside: str = "error",
) -> ModCost:
    """Return the cost of a model's output compared with data, as FME's function of this name does.

    Parameters
    ----------
    model : DataFrame, or mapping of names to columns
        The output of a run: a column for the independent variable and one per variable. With ``x=None`` also a Series
        or mapping of numbers.
    obs : DataFrame, or mapping of names to columns
        The data. Wide (`y` None): every column but `x` and `err` is an observed variable. Long: the first column,
        whatever it is called, names the variable. Missing values are dropped and counted.
    x : str or None
        Name of the independent variable, a column of both tables. None: the data have none; then the mean of a
        variable's observations is compared with the mean of the model's values, and x is recorded as 0.
    y : str, optional
        Column of the values of a long table.
    err : str, optional
        Column of standard errors, in the unit of the observations. In a wide table it serves every variable.
    unit : {"seconds", "minutes", "hours", "days", "weeks", "years"}, optional
        Unit in which the model counts, where `x` of the data is a column of dates (datetimes, or texts such as
        2001-12-31); numbers stay.
    origin : date, optional
        The date of the model's time 0; the default is the first of the data.
    weight : {"none", "std", "mean"}
        Without `err`, the error of a variable: 1, the standard deviation (divisor n - 1), or the mean absolute value
        of its observations that are used.
    scaleVar : bool
        Scale every variable by 1/n_j, n_j its number of observations; see Notes for what that does.
    cost : ModCost, optional
        The cost of an earlier call, to which this one is added. The rows of the newest call come first, as in R;
        ``a + b`` keeps the order written.
    outside : {"error", "drop"}
        Observations outside the model's range of x: an error, or left out and counted in `ModCost.dropped`.

    Returns
    -------
    ModCost
        Fields model, minlogp, var, residuals, dropped.

    Raises
    ------
    DataError
        Tables that cannot be compared: unknown columns (the nearest is named), infinite observations, errors that are
        missing, zero or negative, observations outside the model's range, none left. Variable and row are named.
    SimulationError
        The model has no finite value at an observation.
    ArgumentError
        An unknown `weight` or `outside`.

    Warns
    -----
    UserWarning
        The model has several rows at the same x; their mean is used.

    See Also
    --------
    SimulationCost : the same comparison, prepared once and evaluated exactly at the observations.

    Notes
    -----
    The formulas stand at the top of this module. The model is interpolated linearly between its rows; rows where x or
    the variable is missing (NaN) are skipped.

    Columns of a wide table that share a name are replicates of one variable. The scale of `scaleVar` acts three times,
    as in FME: the cost of a variable is its sum of squares divided by n_j^3.

    **Differs from FME**, whose quirks 1, 2, 4, 5, 6 and 8 are mended (the names are those of the tests), as the page
    "From R to Python" (docs/from_r.md) lists with the reasons.

    References
    ----------
    Soetaert, K. and Petzoldt, T. (2010). Inverse Modelling, Sensitivity and Monte Carlo Analysis in R Using Package
    FME. Journal of Statistical Software 33(3), section 3. FME: modCost.

    Examples
    --------
    >>> import pandas as pd
    >>> data = pd.DataFrame({"name": ["Obs1", "Obs1", "Obs2", "Obs2"], "time": [1, 2, 1, 2],
    ...                      "val": [50, 150, 1, 2], "err": [5, 15, 0.1, 0.2]})
    >>> run = pd.DataFrame({"time": [0, 1, 2, 3], "Obs1": 4.0, "Obs2": [1.0, 2, 3, 4]})
    >>> cost = modCost(run, data, y="val", err="err")
    >>> print(cost)
    Cost of 4 observations
    model:   304.3778
    minlogp: 156.2701
    <BLANKLINE>
    var:
    name  scale  N  SSR.unweighted  SSR.unscaled        SSR
    Obs1    1.0  2         23432.0    179.377778 179.377778
    Obs2    1.0  2             2.0    125.000000 125.000000
    <BLANKLINE>
    dropped: none
    >>> modCost({"UpFlux": 168.4}, {"UpFlux": 170}, x=None, cost=cost).var.name.tolist()
    ['UpFlux', 'Obs1', 'Obs2']
    """
    if cost is not None and not isinstance(cost, ModCost):
        raise ArgumentError(f"`cost` must be the ModCost of an earlier call; got {type(cost).__name__}.")
    if callable(model) and not hasattr(model, "columns"):
        raise DataError(
            "`model` must be the output of a run, a table; got something that can be called. Run it first, as in "
            "modCost(model(p), obs); or let SimulationCost(model, obs) run a fmepy model."
        )
    table = Columns(model, "model")
    observations = read_observations(with_times(obs, x, unit, origin), x=x, y=y, err=err)
    check_observed(observations.names, [c for c in table.names if c != x], "`model`")
    output = {name: _model_column(table, name) for name in observations.names}
    if x is None:
        comparison = prepare(observations, None, weight=weight, scaleVar=scaleVar, outside=outside)
        mod = np.array([output[name].mean() for name in observations.names])
    else:
        grid = _model_grid(table, x)
        _warn_of_ties(grid, x)
        curves = {name: _usable(grid, name, values) for name, values in output.items()}
        ends = _ranges(grid, curves, outside)
        comparison = prepare(observations, ends, weight=weight, scaleVar=scaleVar, outside=outside)
        mod = _interpolate(curves, comparison, observations)
    _check_finite(mod, comparison)
    new = tabulate(comparison, mod)
    return new if cost is None else new + cost


def _model_column(table: Columns, name: str) -> Vector:
    columns = table.names
    if columns.count(name) > 1:
        raise DataError(f"`model` has {columns.count(name)} columns called {name!r}; it is not clear which to compare.")
    return table.numbers(columns.index(name))


def _model_grid(table: Columns, x: str) -> Vector:
    """Return the model's x, NaN where it is missing."""
    grid = table.numbers(table.position(x, "x"))
    if (~np.isnan(grid)).sum() < 2:
        raise DataError(
            f"`model` has {len(grid)} row for the interpolation in {x!r}; two are needed. For data without an "
            "independent variable pass x=None."
        )
    return grid


def _usable(grid: Vector, name: str, values: Vector) -> tuple[Vector, Vector]:
    """Return the rows of the model where x and the variable are there, ascending, ties averaged."""
    missing = np.isnan(values)
    if not missing.any() and _ascends(grid):
        return grid, values
    there = ~(np.isnan(grid) | missing)
    if there.sum() < 2:
        raise SimulationError(
            f"The model has {there.sum()} values of {name!r} that are not missing; the interpolation needs two."
        )
    grid, values = grid[there], values[there]
    unique, which = np.unique(grid, return_inverse=True)
    if len(unique) == len(grid):
        order = np.argsort(grid)
        return grid[order], values[order]
    return unique, np.bincount(which, values) / np.bincount(which)


def _ascends(grid: Vector) -> bool:
    """Tell whether there is nothing to sort, to average or to skip."""
    return bool((grid[1:] > grid[:-1]).all())


def _warn_of_ties(grid: Vector, x: str) -> None:
    there = grid[~np.isnan(grid)]
    if not _ascends(grid) and (repeated := len(there) - len(np.unique(there))):
        warn(f"`model` has several rows at the same {x!r} ({repeated} too many); their mean is used.")


def _ranges(grid: Vector, curves: dict[str, tuple[Vector, Vector]], outside: str) -> dict[str, tuple[float, float]]:
    """Return the range of x in which observations may lie: the model's, or with "drop" that of its usable rows."""
    if isinstance(outside, str) and outside == "drop":
        return {name: (used[0], used[-1]) for name, (used, _) in curves.items()}
    ends = (grid[0], grid[-1]) if _ascends(grid) else (np.nanmin(grid), np.nanmax(grid))
    return dict.fromkeys(curves, (float(ends[0]), float(ends[1])))


def _interpolate(curves: dict[str, tuple[Vector, Vector]], c: Comparison, observations: Observations) -> Vector:
    mod = np.empty(len(c))
    for j, name in enumerate(observations.names):
        mine = c.groups == j
        grid, values = curves[name]
        low, high, w = brackets(grid, c.x[mine])
        with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is told by name
            mod[mine] = values[low] + w * (values[high] - values[low])
        slack = resolution(grid)
        mod[mine & ((c.x < grid[0] - slack) | (c.x > grid[-1] + slack))] = np.nan
    return mod


def _check_finite(mod: Vector, c: Comparison) -> None:
    bad = np.flatnonzero(~np.isfinite(mod))
    if not len(bad):
        return
    i = int(bad[0])
    names = listed(dict.fromkeys(c.names[k] for k in bad))
    where = "" if c.x_name is None else f" at {c.x_name} = {c.x[i]:g}"
    raise SimulationError(
        f"The model's value of {c.names[i]!r}{where} is {mod[i]:g}; a finite number is needed ({len(bad)} of "
        f"{len(mod)} compared values are not: {names}). The run may have failed before its end.",
        time=None if c.x_name is None else float(c.x[i]),
    )
