"""A model, whoever wrote it, as a function of a plain vector: what the verbs that ask "what would happen?" run.

``theta`` holds the *varied* parameters; the others stay at their start values. What the user gave becomes a `Simulator`
in `fmepy.costs.user_function`; here is what stands behind it: a fmepy model, bound (`BoundAnew`), or a function of the
user (`TableFunction`). A function's run that returns other columns, or another number of rows, than the one at the
start is a failed run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list
from fmepy.errors import ArgumentError, SimulationError, did_you_mean, listed, repeated
from fmepy.models.base import OfRuns, simulate_many
from fmepy.models.mapped import BoundMappedModel
from fmepy.parameters.functions import UserFunction
from fmepy.parameters.maps import Map, Selected
from fmepy.parameters.named import Parameters
from fmepy.parameters.selection import cells_of, chosen
from fmepy.tables.cells import Cells
from fmepy.tables.columns import Columns
from fmepy.types import Cube, IntVector, Matrix, Vector

Many = Callable[[Sequence[Vector]], list[tuple[bool, Any]]]
"""Many runs at once, and their outcomes: (True, result) or (False, (name of the error, message))."""


@dataclass(frozen=True, slots=True, eq=False)
class Simulator(OfRuns):
    """A model, whoever wrote it, as a function of a plain vector; it pickles if the user's function does (cloudpickle).

    Attributes
    ----------
    names : tuple of str, length n_par
        The varied parameters, in the order of ``theta``.
    theta0 : ndarray, shape (n_par,)
        Their start values.
    parameters : Parameters
        All that a user's function receives (varied and fixed), or all of a fmepy model; the function gets
        ``parameters.for_user(full)``.
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
    bound : BoundAnew or TableFunction
        What stands behind it, and runs.
    cells : Cells or None
        Of a model on a grid, which variables are cells of profiles.
    profiles : tuple of str
        Of a steady state on a grid, whose x is a depth: the variables that are profiles.
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
    bound: BoundAnew | TableFunction
    cells: Cells | None = None
    profiles: tuple[str, ...] = ()

    @property
    def is_model(self) -> bool:
        """Whether a fmepy model stands behind it, so that there are `sensitivities`."""
        return isinstance(self.bound, BoundAnew)

    def run(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_x, n_var).

        Non-finite values are returned as they are.

        Raises
        ------
        SimulationError
            The run failed, or gave other columns or rows than the first; it carries the parameters.
        """
        return self.bound.run(theta)

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
        wanted = [one for w in as_list(sensvar, "sensvar") for one in cells_of(w, self.var_names) or [w]]
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
        (name,) = chosen([wanted], self.var_names, "sensvar")
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
        if not isinstance(self.bound, BoundAnew):
            raise ArgumentError("A function of your own has no sensitivities; take differences of its runs.")
        found: tuple[Matrix, Cube] = self.bound.sensitivities(theta)
        return found


class ChosenOutputs:
    """Some variables of a simulator as a function of theta, shape (n_chosen, n_x); it travels to workers.

    A run that is not finite there has failed. `many` runs many theta at once, for `fmepy.parallel`; None where a run
    holds Python's lock.
    """

    def __init__(self, simulator: Simulator, places: IntVector) -> None:
        self.simulator, self.places = simulator, places
        self._run = simulator.run  # looked up once
        self._all = np.array_equal(places, np.arange(len(simulator.var_names)))
        bound = simulator.bound
        absent = getattr(bound.model, "absent", None) if isinstance(bound, BoundAnew) else None
        self._absent = False if absent is None else absent[:, places]
        on_threads = isinstance(bound, BoundAnew) and getattr(bound.bound, "runs_on_threads", False)
        self.many: Many | None = self._at_once if on_threads else None

    def __call__(self, theta: Vector) -> Matrix:  # noqa: D102    # told by its class
        Y = self._run(theta)
        if not self._all:
            Y = Y[:, self.places]
        if not (np.isfinite(Y) | self._absent).all():
            raise self._not_finite(Y, theta)
        return Y.T

    def _at_once(self, thetas: Sequence[Vector]) -> list[tuple[bool, Any]]:
        Y, why = simulate_many(self.simulator.bound.bound, np.array(thetas))  # type: ignore[union-attr]
        values = (Y if self._all else Y[:, :, self.places]).transpose(0, 2, 1)
        out: list[tuple[bool, Any]] = [(True, v) for v in values]
        is_finite = np.isfinite(values) | np.transpose(self._absent)
        for i in [] if is_finite.all() else np.flatnonzero(~is_finite.all(axis=(1, 2))).tolist():
            told = why[i] or str(self._not_finite(values[i].T, thetas[i]))
            out[i] = (False, (SimulationError.__name__, told))
        return out

    def _not_finite(self, Y: Matrix, theta: Vector) -> SimulationError:
        bad = ~(np.isfinite(Y) | self._absent)
        names = [self.simulator.var_names[self.places[j]] for j in np.flatnonzero(bad.any(axis=0))]
        row, column = np.argwhere(bad)[0]
        where = f" at {self.simulator.x_name} = {self.simulator.x[row]:g}" if len(Y) > 1 else ""
        first = f"{self.simulator.var_names[self.places[column]]!r} is {Y[row, column]:g}{where}"
        return SimulationError(
            f"{int(bad.sum())} of {Y.size} values are not finite (of {listed(names)}): {first}.",
            parameters=dict(zip(self.simulator.names, theta.tolist(), strict=True)),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ChosenOutputs, (self.simulator, self.places)


class BoundAnew(OfRuns):
    """A bound model that travels as the model and its names, and is bound again where it arrives.

    Parameters
    ----------
    model : Model
    names : tuple of str
        The parameters to be bound.
    maps : sequence of Map
        What makes them out of theta, the nearest to the model first.
    """

    def __init__(self, model: Any, names: tuple[str, ...], maps: Sequence[Map] = ()) -> None:
        self._given = model, names, tuple(maps)
        self.model, self.bound = model, model.bind(names)
        for map in maps:
            self.bound = BoundMappedModel(self.bound, map)
        self.run, self.sensitivities = self.bound.simulate, self.bound.sensitivities  # looked up once

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundAnew, self._given


class TableFunction:
    """A user's function of a model, of some of its parameters; the others stay at their values."""

    exact = False
    retries = 0

    def __init__(self, function: UserFunction, names: tuple[str, ...], map: int | str | None) -> None:
        parameters = function.parameters
        values = parameters.series()
        self._function, self._column = function, map
        self._all = Selected.by_name(names, {n: n for n in names}, values)
        try:
            self.first = self._table(self._all.start(self._all.values))
        except SimulationError as error:
            raise ArgumentError(
                f"`func` fails at the start {values.to_dict()}: {error} Try func(p) by hand, or other `parms`."
            ) from error

    def run(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_x, n_var)."""
        try:
            result = self._table(theta)
        except ArgumentError as error:
            raise SimulationError(str(error), parameters=self._function.named(self._all.full(theta))) from error
        if why := self._differs(result):
            raise SimulationError(
                f"`func` returned {why}. Every run must give the same table, other numbers in it.",
                parameters=self._function.named(self._all.full(theta)),
            )
        return result.Y

    def _table(self, theta: Vector) -> UserTable:
        return as_user_table(self._function(self._all.full(theta)), self._column)

    def _differs(self, result: UserTable) -> str:
        """Return what is not as it was at the start, in words, or an empty string."""
        first = self.first
        if result.var_names != first.var_names or result.x_name != first.x_name:
            return f"the variables {listed(result.var_names)}, but {listed(first.var_names)} at the start"
        if result.Y.shape != first.Y.shape:
            return f"{len(result.Y)} rows, but {len(first.Y)} at the start"
        if result.x is None or first.x is None or (result.x == first.x).all():  # exactly: allclose takes its time
            return ""
        if not np.allclose(result.x, first.x, rtol=1e-9, atol=0):
            return f"other values of {first.x_name!r}, its x, than at the start"
        return ""


# --- what a user's function returned, as numbers: a table by columns, everything else as one row


@dataclass(frozen=True, slots=True, eq=False)
class UserTable:
    """What a user's function returned, as numbers."""

    x: Vector | None  # None: there is no such column
    x_name: str
    var_names: tuple[str, ...]
    Y: Matrix
    x_place: int | None = None


def as_user_table(result: Any, map: int | str | None) -> UserTable:
    """Return what a user's function returned, as numbers; tables by columns, everything else as one row."""
    if isinstance(result, pd.Series):
        return _one_row([str(k) for k in result.index], result.tolist())
    if isinstance(result, Mapping):
        sizes = {np.ndim(v): np.size(v) for v in result.values()}
        if set(sizes) <= {0}:
            return _one_row([str(k) for k in result], list(result.values()))
        if set(sizes) != {1} or len({np.size(v) for v in result.values()}) > 1:
            raise ArgumentError(
                "`func` returned a mapping whose entries differ in length: "
                f"{ {str(k): np.shape(v) for k, v in result.items()} }. Return numbers, or equally long columns."
            )
        result = {k: np.asarray(v) for k, v in result.items()}  # which takes no table of pandas' on the way
    if isinstance(result, pd.DataFrame | Mapping):
        return _from_columns(Columns(result, "func"), map)
    if hasattr(result, "model") and hasattr(result, "residuals") and hasattr(result, "var"):
        raise ArgumentError("`func` returned a ModCost; the model's own output is needed: a table, or one row.")
    if np.iscomplexobj(result):
        raise ArgumentError("`func` returned complex numbers; return their real and imaginary parts apart.")
    try:
        values = np.asarray("" if result is None else result, dtype=float)  # numpy takes None for NaN
    except (TypeError, ValueError):
        raise ArgumentError(
            f"`func` returned {type(result).__name__}; a table (DataFrame, mapping of columns) or one row (Series, "
            "dict of numbers, number) is needed."
        ) from None
    if values.ndim > 2:
        raise ArgumentError(f"`func` returned an array of shape {values.shape}; one or two dimensions are needed.")
    if values.ndim < 2:
        return _one_row([f"X{j + 1}" for j in range(values.size)], values.ravel().tolist())
    return _from_columns(Columns({f"X{j + 1}": column for j, column in enumerate(values.T)}, "func"), map)


def _one_row(names: list[str], values: list[Any]) -> UserTable:
    _check_columns(names)
    return UserTable(None, "x", tuple(names), np.array([[_number(v, k) for k, v in zip(names, values, strict=True)]]))


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ArgumentError(f"`func` returned {value!r} for {name!r}; a number is needed.") from None


def _from_columns(columns: Columns, map: int | str | None) -> UserTable:
    names, place = columns.names, _place(columns.names, map)
    _check_columns(names if place is None else names[:place] + names[place + 1 :])
    values = columns.matrix()
    if place is None:
        return UserTable(None, "x", tuple(names), values)
    others = np.arange(len(names)) != place
    variables = tuple(names[:place] + names[place + 1 :])
    return UserTable(values[:, place].copy(), names[place], variables, values[:, others], place)


def _check_columns(names: Sequence[str]) -> None:
    if not names:
        raise ArgumentError(
            "`func` returned no variable: the only column is x. If it is a variable, pass map=None (there is no x)."
        )
    if twice := repeated(names):
        raise ArgumentError(f"`func` returned more than one variable {listed(twice)}.")


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
