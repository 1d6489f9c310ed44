"""sensFun: how the outputs of a model, or a model at the data of a cost, respond to its parameters.

For output i (a variable at one x, or the modelled value of one observation) and parameter j::

    S_ij = dy_i/dp_j * parscale_j / varscale_i

By default parscale_j = p_j and varscale_i = y_i: relative (log-log) sensitivities. ``varscale=1`` gives dy/dp * p, both
1 gives dy/dp. With `weighted`, varscale_i is the error of datum i, so that S'S is the Fisher information of relative
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import between_0_and_1
from fmepy.costs.user_function import is_cost, is_model, is_ours
from fmepy.errors import ArgumentError, ParameterError, listed, warn
from fmepy.models.on_grid import profiles_at_rest
from fmepy.parallel.resumable import resumable_tasks
from fmepy.parameters.named import check_names
from fmepy.parameters.selection import chosen
from fmepy.results.tables import Framed, Part, long_table
from fmepy.sensitivity.differences import DifferenceRuns
from fmepy.sensitivity.outputs import FirstCallCached, Outputs, of_cost, of_model, returns_modcost
from fmepy.sensitivity.summary import SensFunSummary, summarise
from fmepy.types import Axes, AxesArray, Matrix, UserBounds, UserParameters, Vector
from fmepy.vocabulary import own_words

_FLOOR = 1e-8 * 1e-12  # what FME puts in the place of a scale of zero, with its default `tiny`


@dataclass(frozen=True, eq=False, repr=False)  # no slots: its tables are cached
class SensFun(Framed):
    """Sensitivities of outputs to parameters; made by `sensFun`.

    Attributes
    ----------
    frame : DataFrame
        Columns x, var, and one per parameter; rows variable by variable. Of profiles a column depth after var.
    pars, parscale : Series
        Values and scales of the parameters.
    names, labels, row_x, values, theta, scale
        The same as arrays: parameters; variable and x of every row; sensitivities, shape (n_row, n_par);
        values and scales of the parameters.
    varscale : ndarray, shape (n_row,)
        Scale of every row.
    var : tuple of str
        The variables, in order of first appearance.
    x : ndarray
        The values of x: of one variable for a model (n_x), of every row for a cost.
    xname : str
        Name of x.
    method : str
        How the derivatives were taken: "exact", "differences (...)" with the step, or "forward, tiny=...".
    weighted : bool
        True if the rows are divided by the errors of the data.
    noise : ndarray, shape (n_row, n_par), or None
        The approximate error of the sensitivities: the noise of the function over the step of the differences,
        the rounding of exact ones.
    depths : ndarray, shape (n_row,), or None
        Of a model on a grid, or data by depth: the place of every row; NaN of what has none.
    spreads : ndarray of bool, shape (n_row,), or None
        Of a likelihood that depends on the spread of the readings, which rows are of the spread.
    profiles : tuple of str
        Of a steady state on a grid, the variables whose x is a depth.
    calendar : tuple or None
        The dates of the cost's data, see `fmepy.tables.sheet.with_times`.
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    row_x: Vector
    values: Matrix
    theta: Vector
    scale: Vector
    varscale: Vector
    var: tuple[str, ...]
    x: Vector
    xname: str
    method: str
    weighted: bool = False
    noise: Matrix | None = field(default=None, repr=False)
    depths: Vector | None = None
    calendar: Any = None
    spreads: Any = None
    profiles: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Columns x, var, depth of profiles, and one per parameter."""
        table = pd.DataFrame(self.values, columns=list(self.names))
        table.insert(0, "x", self.row_x, allow_duplicates=True)  # a parameter may be called x
        table.insert(1, "var", list(self.labels), allow_duplicates=True)
        if self.depths is not None:
            table.insert(2, "depth", self.depths, allow_duplicates=True)
        return table

    @cached_property
    def pars(self) -> pd.Series:
        """Values of the parameters."""
        return pd.Series(self.theta, index=list(self.names))

    @cached_property
    def parscale(self) -> pd.Series:
        """Scales of the parameters."""
        return pd.Series(self.scale, index=list(self.names))

    @property
    def matrix(self) -> pd.DataFrame:
        """The parameter columns alone, shape (n_row, n_par)."""
        return self.frame.iloc[:, -len(self.names) :]

    def summary(self, vars: bool = False) -> SensFunSummary:
        """Return L1, L2, mean, least and largest sensitivity per parameter, or per parameter and variable.

        Parameters
        ----------
        vars : bool
            True: one row per parameter and variable, parameters outermost, variables in the order of the rows.

        Returns
        -------
        SensFunSummary
            Columns value, scale, L1 = mean|S|, L2 = sqrt(mean S^2), Mean, Min, Max, N (and var).

        Notes
        -----
        **Differs from FME** in the order of the variables, which there follows the alphabet of the locale.
        """
        labels = self.frame.iloc[:, 1].to_numpy() if vars else None
        return SensFunSummary(summarise(self.matrix.to_numpy(), self.pars, self.parscale, labels, self.var), vars)

    def ranking(self, by: str = "L2") -> pd.Series:
        """Return the parameters with their importance, the largest first.

        Parameters
        ----------
        by : {"L2", "L1", "Mean", "Min", "Max"}
            The measure; Mean, Min and Max are ranked by size.
        """
        return self.summary().ranking(by)

    def plot(self, which: Any = None, legpos: str | None = "above", *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw sensitivities against x, a panel a variable (of `which`), a line a parameter; return the Axes."""
        from fmepy.plotting.sensitivity import plot_sensitivities

        return plot_sensitivities(self, which, legpos=legpos, axes=axes, **kwargs)

    def pairs(self, which: Any = None, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw the sensitivities of every two parameters against each other, with their correlations; return the Axes.

        With `which` (names or positions from 0) the points of those variables alone, a colour each.
        """
        from fmepy.plotting.ranges import plot_pairs

        variables = chosen(which, self.var)
        labels = self.frame.iloc[:, 1].to_numpy()
        selected = np.isin(labels, variables)
        by = None if which is None or len(variables) < 2 else labels[selected]
        return plot_pairs(self.matrix[selected], by=by, axes=axes, **kwargs)

    def plot_ranking(self, by: str = "L2", *, ax: Axes | None = None, **kwargs: Any) -> Axes:
        """Draw the importance of the parameters as bars, the largest on top, parted by variable; return the Axes."""
        from fmepy.plotting.sensitivity import plot_ranking

        return plot_ranking(self, by, ax=ax, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the table, and how it was computed."""
        return [long_table(self.frame), f"({self.method})"]


@own_words
def sensFun(
    func: Any,
    parms: UserParameters = None,
    *,
    sensvar: Any = None,
    senspar: Any = None,
    varscale: Any = None,
    parscale: Any = None,
    tiny: float | None = None,
    map: int | str | None = 0,
    weighted: bool = False,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    executor: Any = None,
    progress: Any = False,
    checkpoint: Any = None,
) -> SensFun:
    r"""Return the sensitivities of a model's outputs, or of a model at the data of a cost, to its parameters.

    Parameters
    ----------
    func : fmepy model or cost, or callable ``func(p, *args, **kwargs)``
        A callable returns a table (one column of x, one per variable), one row (a Series, dict, number), or a ModCost.
        For costs the outputs are the *modelled values at the data points*, grouped by variable in order of first
        appearance; with a `transform`, the transformed values.
    parms : dict, Series, sequence, ...; for a fmepy model or cost also names, or None for all
        The point at which the derivatives are taken.
    sensvar : names or positions from 0, optional
        The variables of a model; default all. Costs have what is observed.
    senspar : names or positions from 0, optional
        The parameters, in this order; default those of `parms`.
    varscale : number, dict by variable, sequence, optional
        What sensitivities are divided by: one for all, one per variable, or one per row. Default: the output itself,
        so that they are relative; of logarithms (a cost with `transform`) 1, for their changes are relative already.
    parscale : number, dict by parameter, sequence, optional
        What they are multiplied by: one for all, or one per parameter. Default: the parameter's value.
    tiny : float, optional
        None: exact sensitivities where the model has them, else differences whose step fits the noise of the solver. A
        number: a forward difference with the step ``|p| * tiny`` (`tiny` itself for p = 0), one run per parameter.
    map : int, str or None
        The column of x in a table: position from 0, name, or None for none.
    weighted : bool
        For costs: divide each row by the error of its datum, in the place of `varscale`.
    lower, upper : number, sequence, or dict by name
        Bounds of the parameters of the result, outside which nothing is run: at a bound differences go inward. Those
        that a cost or lmfit declares hold where nothing is given.
    args, kwargs
        Passed on to a function of your own.
    executor, progress
        Where the runs for differences go, see `run_many`. Exact sensitivities are one run.
    checkpoint : path, optional
        A folder that stores the runs for differences that take 5 ms or more. The same call with the same folder
        continues from there.

    Returns
    -------
    SensFun
        ``.method`` says which derivatives were used.

    Raises
    ------
    ParameterError
        An unknown parameter, a scale that does not fit.
    ArgumentError
        An unknown variable; `tiny` not positive; `weighted` with a model or together with `varscale`; an output that
        is not finite; a cost of one number.
    SimulationError
        A run failed at `parms`, or on both sides of it.

    Warns
    -----
    UserWarning
        A parameter at zero with the default `parscale`, or an output at zero with the default `varscale`: relative
        sensitivities are not defined there. The scale is then 1e-12 times `tiny` (1e-8 if None), as in FME.

    See Also
    --------
    collin, identifiability : what the sensitivities say of the parameters together.

    Notes
    -----
    A cost whose value is -2 log L alone, but that has an expected information I, gives rows S with S'S = I, scaled by
    `parscale`: weighted, whatever `weighted` says. A reading has one row for its prediction and, where the spread
    depends on parameters, one for its spread.

    For a function of your own, differences with ``tiny=None`` take eight runs to measure its noise, then one or two per
    parameter; a parameter whose effect does not exceed the noise is tried once more with a step of a hundredth of its
    size. ``.noise`` is their approximate error; `collin` and `identifiability` count what does not exceed it as zero,
    with a warning.

    Derivatives are exact where the model has them. The step of differences is relative to the parameter. `varscale` may
    be one per variable. Rows belong to variables by their column `var`; positions count from 0, those of variables
    without the column of x. **Differs from FME** in these; the page "From R to Python" (docs/from_r.md) has the
    reasons.

    References
    ----------
    Soetaert and Petzoldt (2010), J. Stat. Softw. 33(3), section 4. Brun, Reichert and Künsch (2001), Water Resour.
    Res. 37, 1015-1030. FME: sensFun.

    Examples
    --------
    >>> import numpy as np
    >>> def decay(p):
    ...     t = np.array([0.0, 1.0, 2.0])
    ...     return {"time": t, "y": p["y0"] * np.exp(-p["k"] * t)}
    >>> sens = sensFun(decay, {"y0": 10.0, "k": 0.5})
    >>> sens.frame.round(4)
         x var   y0    k
    0  0.0   y  1.0  0.0
    1  1.0   y  1.0 -0.5
    2  2.0   y  1.0 -1.0
    >>> sens.summary()
        value  scale   L1    L2  Mean Min Max  N
    y0   10.0   10.0  1.0  1.00   1.0   1   1  3
    k     0.5    0.5  0.5  0.65  -0.5  -1   0  3
    """
    if tiny is not None:
        tiny = between_0_and_1(tiny, "tiny", " (a relative step), or be None")
    user = {"args": args, "kwargs": kwargs}
    if callable(func) and not is_ours(func):
        func = FirstCallCached(func)
    with resumable_tasks(checkpoint, "sensitivities") as tasks:
        runs = DifferenceRuns(executor, progress, lower, upper, tiny, tasks)
        if is_cost(func) or (not is_model(func) and returns_modcost(func, parms, **user)):
            outputs = of_cost(func, parms, senspar, user, runs)
        elif weighted:
            raise ArgumentError("`weighted=True` needs a cost, which knows the errors of its data; `func` is a model.")
        else:
            outputs = of_model(func, parms, sensvar, senspar, map, user, runs)
    if weighted and varscale is not None:
        raise ArgumentError("`weighted=True` divides the rows by the errors of the data; leave `varscale` out.")
    floor = _FLOOR if tiny is None else 1e-12 * tiny
    _warn_of_zero_sds(outputs.zero_sds)
    p = _parameter_scale(parscale, outputs, floor)
    v = outputs.error if weighted else _variable_scale(varscale, outputs, floor)
    shared = ("names", "labels", "row_x", "theta", "var", "x", "depths", "calendar", "spreads")
    return SensFun(
        **{name: getattr(outputs, name) for name in shared},
        values=outputs.derivatives.matrix * p / v[:, None],
        scale=p,
        varscale=v,
        xname=outputs.x_name,
        method=outputs.derivatives.method,
        weighted=weighted or (outputs.is_information and varscale is None),
        noise=outputs.derivatives.noise * np.abs(p) / np.abs(v)[:, None],
        profiles=profiles_at_rest(func),
    )


# --- what sensitivities are multiplied by and divided by


def _warn_of_zero_sds(sds: Sequence[str]) -> None:
    """Warn of standard deviations of noise at zero: their columns are zero whatever the data."""
    if not sds:
        return
    are = "is a standard deviation of noise" if len(sds) == 1 else "are standard deviations of noise"
    warn(
        f"sensFun: {listed(sds)} {are} at 0. The likelihood depends on the variance, so the sensitivities are "
        "zero there whatever the data say, and tell nothing of whether they determine it. Take a value above zero, or "
        "leave it out by `senspar`."
    )


def _parameter_scale(parscale: Any, outputs: Outputs, floor: float) -> Vector:
    """Return what the sensitivities to each parameter are multiplied by, shape (n_par,)."""
    names, theta = outputs.names, outputs.theta
    if parscale is None:
        zero = [n for n, v in zip(names, theta, strict=True) if v == 0 and n not in outputs.zero_sds]
        if zero:
            warn(
                f"sensFun: {listed(zero)} {'is' if len(zero) == 1 else 'are'} at 0, where relative sensitivities are "
                f"not defined; the scale is {floor:g}, as in FME, and the column practically zero. Give `parscale`."
            )
        return np.where(theta == 0, floor, theta)
    scale = _numbers(_in_order(parscale, names, "parscale", "parameter"), "parscale")
    if scale.size not in (1, len(names)):
        raise ParameterError(
            f"`parscale` has {scale.size} values for {len(names)} parameters ({listed(names)}). Give one number, one "
            "per parameter, or a dict by name."
        )
    return np.broadcast_to(scale, (len(names),)).copy()


def _variable_scale(varscale: Any, outputs: Outputs, floor: float) -> Vector:
    """Return what the rows are divided by, shape (n_row,)."""
    n, var = len(outputs.labels), outputs.var
    if varscale is None:
        _warn_of_zeros(outputs, floor)
        values = outputs.values if outputs.relative is None else outputs.relative
        return np.where(values == 0, floor, values)
    scale = _numbers(_in_order(varscale, var, "varscale", "variable"), "varscale")
    if scale.size == 1:
        return np.full(n, scale[0])
    if scale.size == len(var):
        return scale[[var.index(label) for label in outputs.labels]]
    if scale.size == n:
        return scale
    raise ArgumentError(
        f"`varscale` has {scale.size} values for {len(var)} variables ({listed(var)}) in {n} rows. Give one number, "
        "one per variable (or a dict by name), or one per row."
    )


def _in_order(scale: Any, names: Sequence[str], argument: str, what: str) -> Any:
    """Return scales by name as a list in the order of the names, which must all be there; others as they are."""
    if not isinstance(scale, (Mapping, pd.Series)):
        return scale
    known = check_names(scale.keys(), names, argument=argument, what=what)
    by_name = dict(zip(known, dict(scale).values(), strict=True))
    missing = [n for n in names if n not in by_name]
    if missing:
        raise ParameterError(f"`{argument}` has no entry for {listed(missing)}.")
    return [by_name[n] for n in names]


def _warn_of_zeros(outputs: Outputs, floor: float) -> None:
    """Warn of outputs at zero that depend on parameters: their relative sensitivity is not defined."""
    values = outputs.values if outputs.relative is None else outputs.relative
    moved = (values == 0) & np.any(outputs.derivatives.matrix != 0, axis=1)
    if moved.any():
        i = int(np.argmax(moved))
        names = dict.fromkeys(label for label, m in zip(outputs.labels, moved, strict=True) if m)
        warn(
            f"sensFun: {listed(names)} {'is' if moved.sum() == 1 else 'are'} 0 at {int(moved.sum())} "
            f"{'row' if moved.sum() == 1 else 'rows'} (first at {outputs.x_name} = {outputs.row_x[i]:g}), where "
            f"relative sensitivities are not defined; the scale is {floor:g}, as in FME. Give `varscale`."
        )


def _numbers(values: Any, argument: str) -> Vector:
    items = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    try:
        out = np.array([float(v) for v in items])
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(f"`{argument}` must hold numbers; got {values!r}.") from None
    if out.size == 0 or not np.isfinite(out).all() or np.any(out == 0):
        raise ArgumentError(f"`{argument}` must hold finite numbers other than 0; got {values!r}.")
    return out
