"""Data tables, parsed once, and the comparison that is prepared from them.

Two steps lead from a table to numbers that can be compared with a model::

    read_observations   any table -> one set of arrays per variable, missing values dropped and counted
    prepare             ... -> one flat set of arrays: what is used, its weights, its groups; fixed from then on

Tables are **wide** (one column per variable), or **long** (the first column names the variable, ``y`` is the column of
values). Equal names are one variable: repeated columns of a wide table are replicates, and the rows of a variable in a
long table need not stand together. Variables keep the order in which they first appear.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import CostData, joined_data
from fmepy.costs.censored import mark_columns, marks_by_variable
from fmepy.costs.data_fingerprint import ObservedData
from fmepy.costs.interpolation import resolution
from fmepy.costs.observation_scale import ObservationScale, observation_scale
from fmepy.errors import ArgumentError, DataError, check_choice, did_you_mean, listed, warn
from fmepy.parameters.maps import TRANSFORMS
from fmepy.parameters.names import normal_name
from fmepy.parameters.selection import names_in_short
from fmepy.tables.columns import Columns
from fmepy.tables.sheet import one_calendar
from fmepy.types import BoolVector, IntVector, Vector

_FEWEST_REPEATED = 3  # rows: two equal pairs of readings may well be chance
WEIGHTS = ("none", "std", "mean")
OUTSIDE = ("error", "drop")


@dataclass(frozen=True, slots=True, eq=False)
class ObservedVariable:
    """The observations of one variable; missing ones are gone.

    Attributes
    ----------
    name : str
        Its name.
    x, values : ndarray, shape (n_obs,)
        Where it was observed (zeros without an independent variable), and what.
    errors : ndarray, shape (n_obs,), or None
        Standard errors of the observations, None if the table has none.
    rows : tuple
        The table's label of every observation, for messages.
    places : ndarray of int, shape (n_obs,)
        The position of every observation's row in the table.
    missing : ndarray of int
        The positions of the rows whose values are missing, and were dropped.
    marks : ndarray of int, shape (n_obs,), or None
        -1 where the value is a limit below which the reading lies, 1 above, 0 of a plain one; None: all are plain.
    """

    name: str
    x: Vector
    values: Vector
    errors: Vector | None
    rows: tuple[Any, ...]
    places: IntVector
    missing: IntVector
    marks: IntVector | None = None

    @property
    def n_missing(self) -> int:
        """Number of missing values that were dropped."""
        return len(self.missing)

    def only(self, keep: BoolVector | IntVector) -> ObservedVariable:
        """Return the variable with some of its observations."""
        columns = ("x", "values", "errors", "places", "marks")
        some: dict[str, Any] = {k: own[keep] for k in columns if (own := getattr(self, k)) is not None}
        return replace(self, rows=tuple(self.rows[i] for i in np.arange(len(self.rows))[keep]), **some)


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """A data table, by variable in order of first appearance.

    Attributes
    ----------
    variables : tuple of ObservedVariable
        At least one, each with at least one observation.
    x_name : str or None
        Name of the independent variable.
    calendar : tuple or None
        What its dates were, see `fmepy.tables.sheet.with_times`.
    """

    variables: tuple[ObservedVariable, ...]
    x_name: str | None
    calendar: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables."""
        return tuple(v.name for v in self.variables)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison(CostData):
    """All that is fixed before a model is compared with data: observations, weights, groups.

    Attributes
    ----------
    obs : ndarray, shape (n_obs,)
        Value, on the scale of comparison, as the weights are. Without an independent variable x is 0.
    scale : ObservationScale
        The transforms.
    n_missing, n_outside : ndarray of int, shape (n_group,)
        Observations that were dropped: missing, and outside the model's range.
    x_name : str or None
        Name of the independent variable.
    with_error : ndarray of bool, shape (n_obs,), or None
        Observations whose error stands in the table; None: nobody's does.
    places : ndarray of int, shape (n_obs,), or None
        The position of every observation's row in its table.
    entities : tuple, length n_obs, or None
        The entity of every observation; None: there is but one.
    marks : ndarray of int, shape (n_obs,), or None
        -1 where the value is a limit below which the reading lies, 1 above, 0 of a plain one; None: all are plain.
    own_scale : ndarray of bool, shape (n_obs,), or None
        Readings whose density is their own, not that of what is compared; None: nobody's is.
    laplace : ndarray of bool, shape (n_obs,), or None
        Readings with Laplace errors; None: all errors are normal.
    depths : ndarray, shape (n_obs,), or None
        Where in a profile every observation was made; None: x is all.
    calendar : tuple or None
        What the dates of x were, see `fmepy.tables.sheet.with_times`.

    The others are those of `CostData`; its groups are the variables, in the order of ``ModCost.var``.
    """

    obs: Vector
    scale: ObservationScale
    n_missing: IntVector
    n_outside: IntVector
    x_name: str | None
    with_error: BoolVector | None = None
    places: IntVector | None = None
    entities: tuple[Any, ...] | None = None
    marks: IntVector | None = None
    own_scale: BoolVector | None = None
    laplace: BoolVector | None = None
    depths: Vector | None = None
    calendar: Any = None

    @property
    def all_marks(self) -> IntVector:
        """The marks, zeros where there are none."""
        return np.zeros(len(self), dtype=np.intp) if self.marks is None else self.marks

    @property
    def all_depths(self) -> Vector:
        """The depths, NaN where there are none."""
        return np.full(len(self), np.nan) if self.depths is None else self.depths

    def repeats(self, other: Comparison) -> bool:
        """Tell whether the same data are compared in the same way."""
        if self.names != other.names or self.entities != other.entities:
            return False
        arrays = ("obs", "x", "weights", "all_marks", "own_scale", "laplace")
        same = all(np.array_equal(getattr(self, name), getattr(other, name)) for name in arrays)
        return same and np.array_equal(self.all_depths, other.all_depths, equal_nan=True)

    @property
    def observed(self) -> ObservedData:
        """The observations in their own units, by which likelihoods are told to be of the same data."""
        raw, kinds = self.scale.back(self.obs), self.scale.kinds
        with_error = False if self.with_error is None else self.with_error
        errors = np.where(with_error, 1 / self.weights, np.nan)
        of = tuple(kinds.get(i) for i in range(len(self))) if kinds else (None,) * len(self)
        counted = self.all_marks == 0  # a probability has no unit: no Jacobian of a limit
        if self.own_scale is not None:
            counted &= ~self.own_scale
        log_jacobian = self.scale.log_jacobian(raw, counted)
        return ObservedData(self.names, self.x, raw, errors, of, log_jacobian, self.marks)

    @property
    def own_log_slopes(self) -> Vector:
        """Log T' of the readings whose density is their own, zeros of the others."""
        if self.own_scale is None:
            return np.zeros(len(self))
        return np.where(
            self.own_scale & (self.all_marks == 0), np.log(self.scale.slope(self.scale.back(self.obs))), 0.0
        )


# ---------------------------------------------------------------------------------------------------- reading tables


def read_observations(
    obs: Any,
    *,
    x: str | None = "time",
    y: str | None = None,
    err: str | None = None,
    censored: Any = None,
    noisy: Collection[str] = (),
    experiments: IntVector | None = None,
    at_rest: bool = False,
) -> Observations:
    """Return a data table by variable; missing observations are dropped, with their errors, and counted.

    Parameters
    ----------
    obs : DataFrame, mapping or Series
        Wide (`y` None), or long (its first column holds the names of the variables).
    x : str or None
        Column of the independent variable; None for data without one.
    y : str, optional
        Column of the values of a long table.
    err : str, optional
        Column of standard errors. In a wide table it serves every variable.
    censored : str, or mapping of variable to str, optional
        Column of marks, see `fmepy.costs.censored`. A mapping is for wide tables, whose rows hold several variables.
    noisy : collection of str
        Variables whose noise is said elsewhere: a long table may leave all their errors out.
    experiments : ndarray of int, optional
        The experiment of every row: rows of several may be alike.
    at_rest : bool
        Whether x may be inf, which stands for the steady state.

    Raises
    ------
    DataError
        Whatever cannot be: unknown columns, text among the numbers, infinite values, errors that are missing, zero or
        negative, a variable without any observation, a column given twice. Variable and row are named.

    Warns
    -----
    UserWarning
        Every row of a variable is there several times.

    Examples
    --------
    >>> data = read_observations({"time": [1, 2, 3], "A": [5.0, None, 7.0]})
    >>> data.names, data.variables[0].x, data.variables[0].n_missing
    (('A',), array([1., 3.]), 1)
    """
    table = Columns(obs)
    if len(set(table.names)) < len(table.names):
        _refuse_copies(table.frame)
    x_position = None if x is None else table.position(x, "x")
    err_position = None if err is None else table.position(err, "err")
    if err is not None and err == x:
        raise DataError(f"`err={err!r}` is the column of `x`.")
    dates = " If it holds dates, say in which unit they count, such as unit='days'."
    x_values = np.zeros(len(table)) if x_position is None else table.numbers(x_position, dates)
    errors = None if err_position is None else table.numbers(err_position)
    rows = table.rows
    columns_of_marks = mark_columns(table, censored, y)
    if y is None:
        taken = {x_position, err_position, *columns_of_marks.values()}
        cells = _wide_cells(table, [j for j in range(len(table.names)) if j not in taken])
    else:
        cells = _long_cells(table, x, y, err)
    marks = marks_by_variable(table, columns_of_marks, cells)
    variables = []
    for name, (values, take) in cells.items():
        own = None if errors is None or (name in noisy and np.isnan(errors[take]).all()) else errors[take]
        v = _observed(
            name, x_values[take], values, own, [rows[i] for i in take], take, "x" if x is None else x, at_rest
        )
        variables.append(replace(v, marks=marks[name][v.places]) if name in marks else v)
        if x is not None:
            _warn_of_repeated_rows(variables[-1], x, experiments)
    return Observations(tuple(variables), x, getattr(obs, "attrs", {}).get("calendar"))


_ENOUGH_TO_TELL = 5
"""Rows in which columns of one name must agree to be copies, if a reading is missing in one of them alone."""


def _refuse_copies(table: pd.DataFrame) -> None:
    """Raise a DataError for two columns of one name and equal values: every reading would count twice.

    Columns of one name that differ are replicates.
    """
    seen: dict[str, list[pd.Series]] = {}
    for j, name in enumerate(table.columns):
        column = table.iloc[:, j]
        if any(_equal_numbers(column, other) for other in seen.get(name, [])):
            raise DataError(
                f"`obs` has the column {name!r} twice, with equal values, so that each of its observations would count "
                "twice. Leave one of them out. (Columns of one name are replicates, and those differ.)"
            )
        seen.setdefault(name, []).append(column)


def _equal_numbers(a: pd.Series, b: pd.Series) -> bool:
    """Tell whether two columns hold the same numbers: where both have one, which must be in several rows, or in all."""
    try:
        one, two = (c.to_numpy(dtype=float, na_value=np.nan) for c in (a, b))
    except (TypeError, ValueError):
        return False  # what is no number is told later
    both = ~np.isnan(one) & ~np.isnan(two)
    if np.array_equal(np.isnan(one), np.isnan(two)):
        both[:] = True
    elif both.sum() < _ENOUGH_TO_TELL:
        return False
    return np.allclose(one[both], two[both], rtol=1e-13, atol=0.0, equal_nan=True)


def _wide_cells(table: Columns, positions: Sequence[int]) -> dict[str, tuple[Vector, IntVector]]:
    """Return values and rows by variable; columns of the same name are one variable."""
    if not positions:
        raise DataError(f"`obs` has no column of observations (columns: {listed(table.names)}).")
    hint = (
        " If the table is long, pass the name of its value column as `y`; a column of subjects is entity='...'; "
        "else leave the column out."
    )
    rows = np.arange(len(table))
    cells: dict[str, tuple[Vector, IntVector]] = {}
    for j in positions:
        name, values = table.names[j], table.numbers(j, hint)
        if name in cells:
            before, taken = cells[name]
            cells[name] = (np.concatenate([before, values]), np.concatenate([taken, rows]))
        else:
            cells[name] = (values, rows)
    return cells


def _long_cells(table: Columns, x: str | None, y: str, err: str | None) -> dict[str, tuple[Vector, IntVector]]:
    values = table.numbers(table.position(y, "y"))
    first = table.names[0]
    for argument, name in (("x", x), ("y", y), ("err", err)):
        if name == first:
            raise DataError(
                f"`{argument}={name!r}` is the first column of `obs`, but the first column of a long table holds the "
                "names of the variables. Move that column to the front."
            )
    for argument, name in (("x", x), ("err", err)):
        if name == y:
            raise DataError(f"`y={y!r}` is the column of `{argument}`.")
    labels = table.column(0).tolist()
    unnamed = [i for i, label in enumerate(labels) if pd.isna(label) and not np.isnan(values[i])]
    if unnamed:
        raise DataError(
            f"`obs`: the name of the variable (column {first!r}) is missing in row {table.rows[unnamed[0]]}."
        )
    rows: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        if not pd.isna(label):
            rows.setdefault(normal_name(label), []).append(i)
    if not rows:
        raise DataError(f"`obs`: column {first!r} names no variable.")
    return {name: (values[take], np.array(take, dtype=np.intp)) for name, take in rows.items()}


def _observed(
    name: str,
    x: Vector,
    values: Vector,
    errors: Vector | None,
    rows: list[Any],
    places: IntVector,
    x_name: str,
    at_rest: bool,
) -> ObservedVariable:
    """Return the variable without its missing observations, every number checked."""
    there = ~np.isnan(values)
    if not there.any():
        raise DataError(
            f"No observations of {name!r} are left: all {len(values)} are missing. Leave the variable out of `obs`."
        )
    v = ObservedVariable(name, x, values, errors, tuple(rows), places, places[~there])
    if v.n_missing:
        v = v.only(there)
    rows, x, values, errors = list(v.rows), v.x, v.values, v.errors
    _refuse(
        np.isinf(values), values, f"The observation of {name!r}", rows, "A finite number or a missing one is needed."
    )
    bad_x = ~np.isfinite(x) & ~(at_rest & (x == np.inf))
    _refuse(bad_x, x, f"{x_name!r} of an observation of {name!r}", rows, "A finite number is needed.")
    if errors is not None:
        bad = ~(np.isfinite(errors) & (errors > 0))
        _refuse(bad, errors, f"The error of {name!r}", rows, "Errors are standard deviations: finite and above zero.")
    return v


def _warn_of_repeated_rows(v: ObservedVariable, x_name: str, experiments: IntVector | None) -> None:
    """Warn if every row is there equally often: a table stacked on itself. Replicates hardly all agree."""
    if v.marks is not None:
        v = v.only(v.marks == 0)  # replicates beyond one limit do agree
    xs: list[Any] = v.x.tolist()
    if experiments is not None:
        xs = list(zip(xs, experiments[v.places].tolist(), strict=True))
    n = len(xs)
    if n < 2 * _FEWEST_REPEATED or 2 * len(set(xs)) > n:
        return
    counts = Counter(zip(xs, v.values.tolist(), strict=True))
    times = min(counts.values())
    if len(counts) >= _FEWEST_REPEATED and times > 1 and times == max(counts.values()):
        warn(
            f"Every observation of {v.name!r} is in the table {times} times: {n} rows hold {len(counts)} pairs of "
            f"{x_name!r} and value. If the table was joined to itself, drop the copies (obs.drop_duplicates()): they "
            "count as further observations, and standard errors become too small."
        )


def _refuse(bad: Any, values: Vector, what: str, rows: Sequence[Any], advice: str) -> None:
    if bad.any():
        i = int(np.argmax(bad))
        given = "missing" if np.isnan(values[i]) else f"{values[i]:g}"
        raise DataError(f"{what} in row {rows[i]} is {given}. {advice}")


def check_observed(names: Sequence[str], known: Sequence[str], what: str = "the model") -> None:
    """Raise a DataError for the first observed variable that is not `known`, with the nearest that is."""
    for name in names:
        if name not in known:
            profiles = [n for n in names if f"{n}[1]" in known]
            profile = f" {profiles[0]!r} is a profile: x=['day', 'depth'] compares by depth." if profiles else ""
            short = names_in_short(known)
            if len(names) > 1 and not {*names} & {*known, *short}:
                profile += f" One column a subject: obs.melt(x, var_name='subject', value_name={short[-1]!r})."
            raise DataError(
                f"Observed variable {name!r} is not a variable of {what}.{did_you_mean(name, short)} There are "
                f"{listed(short)}.{profile} If the column names the experiment or the subject, pass "
                f"entity={name!r}. Leave other columns out of a wide table; in a long one the first column names the "
                "variables and `y` the values."
            )


# --------------------------------------------------------------------------------------------- preparing a comparison


def prepare(
    observations: Observations,
    ranges: Mapping[str, tuple[float, float]] | None,
    *,
    weight: str = "none",
    scaleVar: bool = False,
    outside: str = "error",
    transforms: Mapping[str, str | None] | None = None,
    experiments: IntVector | None = None,
) -> Comparison:
    """Return what is fixed before a model is compared with the observations.

    Parameters
    ----------
    observations : Observations
        From `read_observations`.
    ranges : mapping of variable to (first, last), or None
        Range of x in which the model has values; None without an independent variable: then the mean of the
        observations of a variable is its only observation.
    weight : {"none", "std", "mean"}
        Error of a variable whose table has no column of errors: 1, the standard deviation (divisor n - 1) or the
        mean absolute value of the observations that are used, on the scale of comparison.
    scaleVar : bool
        Scale of a variable: 1/n_j if True, else 1.
    outside : {"error", "drop"}
        What to do with observations outside the model's range.
    transforms : mapping of variable to "log", "log10", "sqrt" or None
        Transform of the observations; errors are on the transformed scale.
    experiments : ndarray of int, optional
        The experiment of every row of the table: without an independent variable a mean is of one experiment each.

    Raises
    ------
    ArgumentError
        Unknown `weight` or `outside`.
    DataError
        Observations outside the range, none left, values that cannot be transformed, a `weight` that is zero.
    """
    check_choice(weight, WEIGHTS, "weight")
    check_choice(outside, OUTSIDE, "outside")
    transforms = transforms or {}
    pieces = []
    for variable in observations.variables:
        kept, n_outside, kind = variable, 0, transforms.get(variable.name)
        if ranges is not None:
            kept, n_outside = _inside(variable, ranges[variable.name], observations.x_name, outside)
        x, values, places = kept.x, transformed_values(kept, kind), kept.places
        errors = _errors(kept, values, weight)
        if ranges is None:
            x, values, errors, places = _means(kept, values, errors, kind, experiments)
        n = len(values)
        piece = Comparison(
            names=(variable.name,) * n,
            x=x,
            obs=values,
            weights=1.0 / errors,
            groups=np.zeros(n, dtype=np.intp),
            group_names=(variable.name,),
            scales=np.array([1.0 / n if scaleVar else 1.0]),
            scale=observation_scale([kind] * n),
            n_missing=np.array([variable.n_missing], dtype=np.intp),
            n_outside=np.array([n_outside], dtype=np.intp),
            x_name=observations.x_name,
            with_error=np.full(n, variable.errors is not None),
            places=places,
            marks=kept.marks if ranges is not None and kept.marks is not None and kept.marks.any() else None,
            calendar=observations.calendar,
        )
        pieces.append(piece)
    return replace(concatenate(pieces), places=np.concatenate([c.places for c in pieces if c.places is not None]))


def _inside(
    v: ObservedVariable, limits: tuple[float, float], x_name: str | None, outside: str
) -> tuple[ObservedVariable, int]:
    """Return the variable without the observations outside the model's range, and their number."""
    first, last = limits
    slack = resolution(np.array(limits))  # 0.1 * 3 is not outside a model that ends at 0.3
    keep = ((v.x >= first - slack) & (v.x <= last + slack)) | np.isinf(v.x)
    if keep.all():
        return v, 0
    n_outside = int((~keep).sum())
    both = (
        f"{x_name!r} of the observations goes from {v.x.min():g} to {v.x.max():g}, that of the model from {first:g} to "
        f"{last:g}."
    )
    if outside == "error":
        if first == last:
            both += " A steady state has one row and no time: x=None compares it."
        raise DataError(
            f"{n_outside} of {len(keep)} observations of {v.name!r} lie outside the model's range: {both} Run the "
            "model over the whole range, or leave them out: outside='drop' of SimulationCost and modCost counts them."
        )
    if not keep.any():
        raise DataError(f"No observations of {v.name!r} are left: all lie outside the model's range. {both}")
    return v.only(keep), n_outside


def transformed_values(v: ObservedVariable, kind: str | None) -> Vector:
    """Return the values on the scale of comparison; DataError for one that has no logarithm or root."""
    if kind is None:
        return v.values
    scale = observation_scale([kind] * len(v.values))
    bad = scale.first_undefined(v.values)
    if bad is not None:
        raise DataError(
            f"The observation of {v.name!r} in row {v.rows[bad]} is {v.values[bad]:g}, which has no {kind}. With "
            f"transform={kind!r} observations must be {TRANSFORMS[kind].needed}; drop those that are not, or choose "
            "another transform."
        )
    return scale.forward(v.values)


def _errors(v: ObservedVariable, values: Vector, weight: str) -> Vector:
    """Return the standard error of every observation."""
    if v.errors is not None:
        return v.errors
    error = 1.0
    if weight == "std":
        if len(values) < 2:
            raise DataError(
                f"weight='std' needs at least two observations of {v.name!r}; there is one. Give its error in a "
                "column (`err`), or use weight='mean' or 'none'."
            )
        error = float(np.std(values, ddof=1))
    elif weight == "mean":
        error = float(np.mean(np.abs(values)))
    if not error > 0:
        same = "do not differ" if weight == "std" else "are all zero"
        raise DataError(
            f"weight={weight!r} is zero for {v.name!r}: its observations {same}. Give errors in a column (`err`), or "
            "use another weight."
        )
    return np.full(len(values), error)


def _means(
    v: ObservedVariable, values: Vector, errors: Vector, kind: str | None, experiments: IntVector | None
) -> tuple[Vector, Vector, Vector, IntVector]:
    """Return x, value, error and place of the mean observation, which stands for all of its experiment without an x."""
    of = np.zeros(len(values), dtype=np.intp) if experiments is None else experiments[v.places]
    found, first, counts = np.unique(of, return_index=True, return_counts=True)
    if v.errors is not None and counts.max() > 1:
        raise DataError(
            f"x=None compares the mean of {v.name!r} with the mean of the model, but `err` gives {counts.max()} "
            "errors. Give one observation per variable, or name the column of `x`."
        )
    mean = observation_scale([kind] * len(found)).forward(np.array([v.values[of == k].mean() for k in found]))
    return np.zeros(len(found)), mean, errors[first], v.places[first]


def warn_of_copy(told: str) -> None:
    """Warn that a sum of costs holds the same data and model twice."""
    warn(
        f"Two parts of this sum compare the same model with the same data ({told}): each observation counts twice, and "
        "standard errors become too small. Leave one of them out."
    )


def concatenate(comparisons: Sequence[Comparison]) -> Comparison:
    """Return several comparisons as one, in the order given; every variable of every one is a group of its own."""
    if len(comparisons) == 1:
        return comparisons[0]
    if not comparisons:
        raise ArgumentError("There is nothing to concatenate.")
    return Comparison(
        **joined_data(comparisons),
        obs=np.concatenate([c.obs for c in comparisons]),
        scale=ObservationScale.joined([c.scale for c in comparisons], [*map(len, comparisons)]),
        n_missing=np.concatenate([c.n_missing for c in comparisons]),
        n_outside=np.concatenate([c.n_outside for c in comparisons]),
        x_name=comparisons[0].x_name,
        calendar=one_calendar(c.calendar for c in comparisons),
        entities=None
        if all(c.entities is None for c in comparisons)
        else tuple(chain.from_iterable(c.entities or (None,) * len(c) for c in comparisons)),
        **{name: _joined(comparisons, name, absent) for name, absent in _WHERE_ABSENT.items()},
    )


_WHERE_ABSENT = {"with_error": False, "marks": 0, "own_scale": False, "laplace": False, "depths": np.nan}
"""What stands for an array of a comparison that is None."""


def _joined(comparisons: Sequence[Comparison], name: str, absent: Any) -> Any:
    """Return an array of several comparisons as one; None where none of them has it."""
    own = [getattr(c, name) for c in comparisons]
    if all(part is None for part in own):
        return None
    filled = zip(own, comparisons, strict=True)
    return np.concatenate([np.full(len(c), absent) if part is None else part for part, c in filled])
