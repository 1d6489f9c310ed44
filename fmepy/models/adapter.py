"""Turn whatever the user gave as a model into one `Simulator`: the only place that asks "is this one of ours?".

What `func` may be, and what it becomes::

    a fmepy model (bind, var_names)       its bound form: rows at its times, variables by name
    f(p) that returns a table             x from the column `map`, one variable per other column
    f(p) that returns one row             a Series, a dict of numbers, one number, an array: one value per variable

For the verbs that ask "what would happen?" (sensRange, modCRL, sensFun) all of them are then a function of a plain
vector ``theta``, which holds the *varied* parameters; the others stay at their start values.

The kind and the columns of a function's result are found by one run at the start. From then on they are fixed: a run
that returns other columns, or another number of rows, is a failed run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, SimulationError, did_you_mean, listed
from fmepy.models.base import bound_to, keep_within, simulate_many
from fmepy.parameters.named import Parameters, as_parameters, check_names, merge_parameters
from fmepy.types import Cube, IntVector, Matrix, UserParameters, Vector

__all__ = ["Simulator", "as_simulator"]

_FIXED_STEP = ("euler", "rk4")  # their error does not follow `rtol`


class _Source(Protocol):
    """What stands behind a Simulator."""

    @property
    def exact(self) -> bool: ...

    @property
    def retries(self) -> int: ...

    def run(self, theta: Vector) -> Matrix: ...
    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]: ...


Many = Callable[[Sequence[Vector]], list[tuple[bool, Any]]]
"""Many runs at once, and their outcomes: (True, result) or (False, (name of the error, message))."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulator:
    """A model, whoever wrote it, as a function of a plain vector; it pickles if the user's function does (cloudpickle).

    Attributes
    ----------
    names : tuple of str, length n_par
        The varied parameters, in the order of ``theta``.
    theta0 : ndarray, shape (n_par,)
        Their start values.
    parameters : Parameters
        All that a user's function receives (varied and fixed), or all of a fmepy model; ``parameters.given(full)`` is
        what the function gets.
    var_names : tuple of str, length n_var
        The variables, the columns of `run`.
    x : ndarray, shape (n_x,)
        The independent variable, in its own unit; row numbers from 1 if there is no such column.
    x_name : str
        Its name: "time" for fmepy models, "x" where there is none.
    x_place : int or None
        The position of x among the columns of the table, None if there is no such column.
    is_single_row : bool
        True if every run gives one value per variable.
    rtol : float or None
        Relative tolerance of the solver where it is known (fmepy models of differential equations with error control);
        None says nothing about the noise of a run.
    """

    names: tuple[str, ...]
    theta0: Vector
    parameters: Parameters
    var_names: tuple[str, ...]
    x: Vector
    x_name: str
    x_place: int | None
    is_single_row: bool
    rtol: float | None
    _source: _Source

    @property
    def exact(self) -> bool:
        """Whether `sensitivities` solves the variational equations; False: by differences, or there are none.

        Asking a compiled model may compile its sensitivity equations.
        """
        return self._source.exact

    @property
    def is_model(self) -> bool:
        """Whether a fmepy model stands behind it, so that there are `sensitivities`."""
        return isinstance(self._source, _ModelSource)

    @property
    def retries(self) -> int:
        """Runs so far, in this process, that the first engine could not finish and another one did."""
        return self._source.retries

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of `sensitivities` inside these bounds, shape (n_par,) each."""
        if isinstance(self._source, _ModelSource):
            self._source.keep_within(lower, upper)

    def run(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_x, n_var).

        Non-finite values are returned as they are.

        Raises
        ------
        SimulationError
            The run failed, or gave other columns or rows than the first; it carries the parameters.
        """
        return self._source.run(theta)

    def in_batches(self, places: Any, failure: Callable[[Matrix, Vector], SimulationError]) -> Many | None:
        """Return what runs many theta at once, for `fmepy.parallel`; None where a run holds Python's lock.

        A result is ``Y[:, places].T``, shape (n_place, n_x); of one that is not finite ``failure(Y[:, places], theta)``
        says so.
        """
        if not (isinstance(self._source, _ModelSource) and getattr(self._source.bound, "runs_on_threads", False)):
            return None
        source = self._source

        def many(thetas: Sequence[Vector]) -> list[tuple[bool, Any]]:
            Y, why = source.run_many(np.array(thetas))
            values = Y.transpose(0, 2, 1)[:, places]
            out: list[tuple[bool, Any]] = [(True, v) for v in values]
            for i in np.flatnonzero(~np.isfinite(values).all(axis=(1, 2))).tolist():
                told = why[i] or str(failure(values[i].T, thetas[i]))
                out[i] = (False, (SimulationError.__name__, told))
            return out

        return many

    def places(self, sensvar: str | int | Sequence[str | int] | None) -> IntVector:
        """Return the columns of Y that `sensvar` selects, in its order.

        Parameters
        ----------
        sensvar : names, positions, or None for all
            Positions are those of the columns of the table, from 0, x among them (as `map` counts).

        Raises
        ------
        ArgumentError
            There is no such variable, or it is x, or none is selected.
        """
        if sensvar is None:
            return np.arange(len(self.var_names), dtype=np.intp)
        wanted = [sensvar] if isinstance(sensvar, (str, int, np.integer)) else list(sensvar)
        if not wanted:
            raise ArgumentError("`sensvar` is empty; name at least one variable, or pass None for all.")
        return np.array([self._place(w) for w in wanted], dtype=np.intp)

    def _place(self, wanted: object) -> int:
        table = list(self.var_names)
        if self.x_place is not None:
            table.insert(self.x_place, self.x_name)
        if isinstance(wanted, (int, np.integer)) and not isinstance(wanted, bool):
            if not 0 <= wanted < len(table):
                raise ArgumentError(f"`sensvar`: there is no column {wanted}; positions go from 0 to {len(table) - 1}.")
            wanted = table[int(wanted)]
            if self.x_place is not None and wanted == self.x_name:
                raise ArgumentError(f"`sensvar`: column {self.x_place} is {self.x_name!r}, which is x, not a variable.")
        (name,) = check_names([wanted], self.var_names, argument="sensvar", what="variable")
        return self.var_names.index(name)

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y, and S, shape (n_x, n_var, n_par): the derivatives of Y to theta. fmepy models only.

        Raises
        ------
        SimulationError
            The run failed.
        ArgumentError
            A user's function stands behind it: it has none.
        """
        return self._source.sensitivities(theta)


def as_simulator(
    func: Any,
    parms: UserParameters = None,
    *,
    varied: Sequence[str] | None = None,
    map: int | str | None = 0,
    args: Any = (),
    kwargs: Any = None,
    runs: int = 1,
) -> Simulator:
    """Return whatever the user gave as a model as a function of the parameters `varied`.

    Parameters
    ----------
    func : fmepy model, or callable
        A callable ``func(p, *args, **kwargs)`` returns a table (DataFrame, mapping of columns, or array of shape (n_x,
        n_column) with columns X1, X2, ...), or one row: a Series, a dict of numbers, a one-row table, a number (called
        X1), a one-dimensional array (X1, X2, ...).
    parms : dict, Series, sequence, number, lmfit.Parameters; for a fmepy model also names, or None for its own
        The start values, and what a user's function receives.
    varied : sequence of str, optional
        The parameters of ``theta``; default all of `parms` (of lmfit those that vary).
    map : int, str or None
        The column of x in a table: its position from 0, its name, or None for none. fmepy models know their own time.
    args, kwargs
        Passed on to a user's function.
    runs : int
        How often it will be run, about, see `fmepy.models.base.bound_to`.

    Raises
    ------
    ParameterError
        `parms` is not usable, or `varied` names what is not in it.
    ArgumentError
        `func` is a cost or no function, fails at the start, or returns something else; there is no column `map`.

    Examples
    --------
    >>> def line(p):
    ...     return {"x": [0.0, 1.0], "y": [p["a"], p["a"] + p["b"]]}
    >>> simulator = as_simulator(line, {"a": 1, "b": 2}, varied=["b"])
    >>> simulator.names, simulator.var_names, simulator.x.tolist()
    (('b',), ('y',), [0.0, 1.0])
    >>> simulator.run(np.array([5.0])).tolist()
    [[1.0], [6.0]]
    """
    if callable(getattr(func, "bind", None)):
        if not hasattr(func, "var_names"):
            raise ArgumentError(
                "`func` is a cost; a model is needed here: something that returns a table of variables. Give the model "
                "itself."
            )
        if args or kwargs:
            raise ArgumentError(
                "`args` and `kwargs` are for functions of your own; a fmepy model takes parameters only."
            )
        return _model_simulator(func, parms, varied, runs)
    if not callable(func):
        raise ArgumentError(f"`func` must be a fmepy model or a function of p; got {type(func).__name__}.")
    if isinstance(args, (str, bytes)) or not isinstance(args, (tuple, list)):
        raise ArgumentError(f"`args` must be a tuple of further arguments; got {args!r}. Write args=({args!r},).")
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise ArgumentError(f"`kwargs` must be a dict of further named arguments; got {type(kwargs).__name__}.")
    parameters = as_parameters(parms, argument="parms")
    names = _varied(varied, parameters.names)
    return _function_simulator(_FunctionSource(func, parameters, names, map, tuple(args), kwargs or {}))


def _varied(varied: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    if varied is None:
        return tuple(known)
    return check_names([varied] if isinstance(varied, str) else varied, known, argument="parms")


# --- fmepy models


class _ModelSource:
    """A bound model. It travels as the model and its names, and is bound again where it arrives."""

    def __init__(self, model: Any, names: tuple[str, ...], fixed: Mapping[str, float], runs: int = 1) -> None:
        self.model, self.names, self.fixed = model, names, dict(fixed)
        self.runs = runs
        self.bound = bound_to(model, (*names, *self.fixed), runs=runs)
        self.tail: Vector = np.array(list(self.fixed.values()), dtype=float)
        # one call less per run where nothing is to be filled in
        self.run: Callable[[Vector], Matrix] = self.run_filled if self.fixed else self.bound.simulate

    @property
    def exact(self) -> bool:
        return bool(self.bound.exact)

    @property
    def retries(self) -> int:
        return int(self.bound.retries)

    def run_filled(self, theta: Vector) -> Matrix:
        Y: Matrix = self.bound.simulate(np.concatenate((theta, self.tail)))
        return Y

    def run_many(self, Theta: Matrix) -> tuple[Cube, Any]:
        tail = np.broadcast_to(self.tail, (len(Theta), len(self.tail)))
        return simulate_many(self.bound, np.concatenate((Theta, tail), axis=1))

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        Y, S = self.bound.sensitivities(np.concatenate((theta, self.tail)))
        return Y, S[:, :, : len(self.names)]

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        keep_within(self.bound, np.concatenate((lower, self.tail)), np.concatenate((upper, self.tail)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _ModelSource, (self.model, self.names, self.fixed, self.runs)


def _model_simulator(model: Any, parms: UserParameters, varied: Sequence[str] | None, runs: int) -> Simulator:
    given = as_parameters(parms, model.parms, argument="parms")
    if given.lmfit is not None and any(q.expr is not None for q in given.lmfit.values()):
        # tied parameters move with the free ones, which no bound vector says: run it as a function of all of them
        return _function_simulator(_FunctionSource(model, given, _varied(varied, given.names), "time", (), {}))
    start = merge_parameters(model.parms, parms)
    names = given.names if varied is None else _varied(varied, tuple(map(str, start.index)))
    values = {} if parms is None else given.expand(given.values)
    if hasattr(model, "transforms"):  # its `replace` speaks of the inner model's scale: fill in the values here
        source = _ModelSource(model, names, {k: v for k, v in values.items() if k not in names}, runs)
    else:
        source = _ModelSource(model.replace(parms=values) if values else model, names, {}, runs)
    return Simulator(
        names=names,
        theta0=start[list(names)].to_numpy(dtype=float, copy=True),
        parameters=as_parameters(start.to_dict(), argument="parms"),
        var_names=tuple(source.bound.var_names),
        x=np.array(source.bound.times, dtype=float),
        x_name="time",
        x_place=0,
        is_single_row=len(source.bound.times) == 1,
        rtol=_rtol(model),
        _source=source,
    )


def _rtol(model: Any) -> float | None:
    """Return the relative tolerance of a model's solver, None if it has no error control or none is known."""
    inner = getattr(model, "inner", model)
    options = getattr(inner, "options", None)
    if options is None or getattr(inner, "method", None) in _FIXED_STEP:
        return None
    return float(options.rtol)


# --- functions of the user


@dataclass(frozen=True, slots=True, eq=False)
class _Result:
    """What a user's function returned, as numbers."""

    x: Vector | None  # None: there is no such column
    x_name: str
    var_names: tuple[str, ...]
    Y: Matrix
    x_place: int | None = None


class _FunctionSource:
    """A user's function; whatever goes wrong in it becomes a SimulationError with the parameters."""

    exact = False
    retries = 0

    def __init__(
        self,
        func: Callable[..., Any],
        parameters: Parameters,
        names: tuple[str, ...],
        map: int | str | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> None:
        self.func, self.parameters, self.names, self.map = func, parameters, names, map
        self.args, self.kwargs = args, dict(kwargs)
        self.places: IntVector = np.array([parameters.names.index(k) for k in names], dtype=np.intp)
        self.first: _Result | None = None

    def full(self, theta: Vector) -> Vector:
        """Return all parameters, the varied ones at `theta`."""
        values = np.array(self.parameters.values, dtype=float)
        values[self.places] = theta
        return values

    def call(self, theta: Vector) -> _Result:
        full = self.full(theta)
        try:
            result = self.func(self.parameters.given(full), *self.args, **self.kwargs)
        except SimulationError:
            raise
        except (Exception, SystemExit) as error:  # a failed run, not the end of an ensemble
            raise SimulationError(f"{type(error).__name__}: {error}", parameters=self._named(full)) from error
        return _as_result(result, self.map)

    def run(self, theta: Vector) -> Matrix:
        try:
            result = self.call(theta)
        except ArgumentError as error:
            raise SimulationError(str(error), parameters=self._named(self.full(theta))) from error
        if why := self._differs(result):
            raise SimulationError(
                f"`func` returned {why}. Every run must give the same table, other numbers in it.",
                parameters=self._named(self.full(theta)),
            )
        return result.Y

    def _differs(self, result: _Result) -> str:
        """Return what is not as it was at the start, in words, or an empty string."""
        first = self.first
        if first is None:
            return ""
        if result.var_names != first.var_names or result.x_name != first.x_name:
            return f"the variables {listed(result.var_names)}, but {listed(first.var_names)} at the start"
        if result.Y.shape != first.Y.shape:
            return f"{len(result.Y)} rows, but {len(first.Y)} at the start"
        if result.x is None or first.x is None or (result.x == first.x).all():  # exactly: allclose takes its time
            return ""
        if not np.allclose(result.x, first.x, rtol=1e-9, atol=0):
            return f"other values of {first.x_name!r} than at the start"
        return ""

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        raise ArgumentError("A function of your own has no sensitivities; take differences of its runs.")

    def _named(self, full: Vector) -> dict[str, float]:
        return dict(zip(self.parameters.names, full.tolist(), strict=True))


def _function_simulator(source: _FunctionSource) -> Simulator:
    parameters = source.parameters
    theta0 = np.array(parameters.values, dtype=float)[source.places]
    try:
        first = source.call(theta0)
    except SimulationError as error:
        raise ArgumentError(
            f"`func` fails at the start {parameters.series().to_dict()}: {error} Try func(p) by hand, or other `parms`."
        ) from error
    source.first = first
    n = len(first.Y)
    return Simulator(
        names=source.names,
        theta0=theta0,
        parameters=parameters,
        var_names=first.var_names,
        x=np.arange(1.0, n + 1) if first.x is None else first.x,
        x_name=first.x_name,
        x_place=first.x_place,
        is_single_row=n == 1,
        rtol=None,
        _source=source,
    )


def _as_result(result: Any, map: int | str | None) -> _Result:
    """Return what a user's function returned, as numbers; tables by columns, everything else as one row."""
    if isinstance(result, pd.DataFrame):
        names = [str(c) for c in result.columns]
        try:
            values = result.to_numpy(dtype=float)
        except (TypeError, ValueError):  # some column is not of numbers: which one is told on the way by columns
            return _from_table(names, [result.iloc[:, j] for j in range(result.shape[1])], map)
        return _from_matrix(names, values, map)
    if isinstance(result, pd.Series):
        return _one_row([str(k) for k in result.index], result.to_numpy())
    if isinstance(result, Mapping):
        names = [str(k) for k in result]
        sizes = {np.ndim(v): np.size(v) for v in result.values()}
        if set(sizes) <= {0}:
            return _one_row(names, list(result.values()))
        if set(sizes) == {1} and len({np.size(v) for v in result.values()}) == 1:
            return _from_table(names, list(result.values()), map)
        raise ArgumentError(
            "`func` returned a mapping whose entries differ in length: "
            f"{ {str(k): np.shape(v) for k, v in result.items()} }. Return numbers, or equally long columns."
        )
    if hasattr(result, "model") and hasattr(result, "residuals") and hasattr(result, "var"):
        raise ArgumentError("`func` returned a ModCost; the model's own output is needed: a table, or one row.")
    try:
        values = np.asarray("" if result is None else result, dtype=float)  # numpy takes None for NaN
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`func` returned {type(result).__name__}; a table (DataFrame, mapping of columns) or one row (Series, "
            "dict of numbers, number) is needed."
        ) from None
    if values.ndim == 2:
        return _from_matrix([f"X{j + 1}" for j in range(values.shape[1])], values, map)
    if values.ndim > 2:
        raise ArgumentError(f"`func` returned an array of shape {values.shape}; one or two dimensions are needed.")
    return _one_row([f"X{j + 1}" for j in range(values.size)], values.reshape(-1))


def _one_row(names: list[str], values: Any) -> _Result:
    _check_columns(names)
    return _Result(None, "x", tuple(names), np.array([[_number(v, k) for k, v in zip(names, values, strict=True)]]))


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"`func` returned {value!r} for {name!r}; a number is needed.") from None


def _from_table(names: list[str], columns: Sequence[Any], map: int | str | None) -> _Result:
    place = _place(names, map)
    values = np.empty((len(columns[0]), len(names)))
    for j, (name, column) in enumerate(zip(names, columns, strict=True)):
        advice = "x must hold numbers; pass map=None or another column" if j == place else "leave it out"
        values[:, j] = _column(column, name, advice)
    return _from_matrix(names, values, map)


def _from_matrix(names: list[str], values: Matrix, map: int | str | None) -> _Result:
    place = _place(names, map)
    if len(values) == 0:
        raise ArgumentError("`func` returned a table without rows.")
    variables = names if place is None else names[:place] + names[place + 1 :]
    _check_columns(variables)
    if place is None:
        return _Result(None, "x", tuple(variables), values.copy())
    kept = np.arange(len(names)) != place
    return _Result(values[:, place].copy(), names[place], tuple(variables), values[:, kept], place)


def _column(values: Any, name: str, advice: str) -> Vector:
    try:
        return np.array(values, dtype=float)
    except (TypeError, ValueError):
        raise ArgumentError(f"`func`: the column {name!r} does not hold numbers ({advice}).") from None


def _check_columns(names: Sequence[str]) -> None:
    if not names:
        raise ArgumentError(
            "`func` returned no variable: the only column is x. If it is a variable, pass map=None (there is no x)."
        )
    repeated = sorted({k for k in names if names.count(k) > 1})
    if repeated:
        raise ArgumentError(f"`func` returned more than one variable {listed(repeated)}.")


def _place(names: Sequence[str], map: int | str | None) -> int | None:
    """Return the position of the column of x."""
    if map is None:
        return None
    if isinstance(map, str):
        if map not in names:
            raise ArgumentError(
                f"`map={map!r}`: there is no such column.{did_you_mean(map, names)} There are {listed(names)}."
            )
        return names.index(map)
    if isinstance(map, bool) or not isinstance(map, (int, np.integer)):
        raise ArgumentError(f"`map={map!r}` must be the position of the column of x from 0, its name, or None.")
    if not 0 <= map < len(names):
        raise ArgumentError(f"`map={map}`: positions go from 0 to {len(names) - 1} ({listed(names)}).")
    return int(map)
