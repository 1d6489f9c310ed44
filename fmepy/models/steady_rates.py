"""The rates of a model whose steady state is wanted, and their derivatives, whatever they come from.

Equations give exact derivatives to states and parameters, and so do loops over arrays. Other
functions, of single numbers, of a vector or of the profiles on a grid, are differentiated by differences, by as few
evaluations as the structure of the Jacobian allows.

A state vector holds one species after the other (of a grid: all cells of the first, then of the second).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, Self

import numpy as np

from fmepy.checks import whole_number
from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ArgumentError, FmepyError, ModelError, SimulationError, listed
from fmepy.language.arrays import ArrayProgram
from fmepy.language.derivatives import derivative
from fmepy.language.equations import Equations, symbol, symbols
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.running.problem import ArraysAt
from fmepy.models.transport import Transport
from fmepy.numerics.differences import central_differences, steps_beside
from fmepy.numerics.structure import Structure, difference_jacobian, found_structure
from fmepy.types import Matrix, Vector

_PARAMETER_STEP = float(np.finfo(float).eps ** (1 / 3))
_SMALL = 1e-3  # of the largest value of its species: the size of a state that is smaller still
_SEEN = 3e-5  # of the terms of a derivative: above what differences of the rates may be wrong by
_AGREED = 1e-6  # relative change of sensitivities from one correction to the next
_CONTRACTS = 0.1  # what a correction is to the one before, at most, if the Jacobian is right
_MOST_CORRECTIONS = 8


class SteadyRates:
    """Rates of a model at some parameters, `fmepy.numerics.at_rest.Resting`.

    Attributes
    ----------
    n : int
        States in all.
    n_species : int
    p : ndarray
        The parameters; `at` returns the same at others.
    positive : bool
        No state is moved below zero.
    extra_names : tuple of str
        What comes beside the rates.
    algebraic : tuple of int
        States in whose place stands an equation that holds at any time, and no rate.
    raised : str
        What the function raised last, in words, or an empty string.
    structure : Structure
        Of the Jacobian, at the model's own start and parameters.
    rates : callable
        ``rates(y)`` returns f(y; p), shape (n,); NaN where it has no value.
    jacobian : callable
        ``jacobian(y, f)`` returns the entries of df/dy.
    """

    n: int
    n_species: int
    p: Vector
    positive: bool
    extra_names: tuple[str, ...] = ()
    algebraic: tuple[int, ...] = ()
    raised = ""
    structure: Any
    rates: Callable[[Vector], Vector]
    jacobian: Callable[[Vector, Vector], Vector]

    @property
    def n_rows(self) -> int:
        """Cells, 1 without a grid."""
        return self.n // self.n_species

    def at(self, p: Vector) -> Self:
        """Return the same at other parameters."""
        _ = self.structure  # found once for all
        out = copy(self)
        out.p = p
        return out

    def with_extras(self, y: Vector) -> tuple[Vector, Matrix]:
        """Return the rates, and what comes beside them, shape (n_rows, n_extra)."""
        return self.rates(y), np.empty((self.n_rows, 0))

    def to_parameters(self, y: Vector, places: Any) -> Matrix | None:
        """Return df/dp, shape (n, n_par), None where it is not known exactly."""
        return None

    def extras_along(self, y: Vector, places: Any, S: Matrix) -> Matrix:
        """Return the derivatives of what comes beside the rates, the states moving by S, where `to_parameters` is."""
        return np.empty((0, len(places)))


class OfEquations(SteadyRates):
    """Rates by equations."""

    def __init__(self, equations: Equations, t: float, p: Vector, u: Sequence[float], positive: bool) -> None:
        self._equations, self._t, self.p, self._u, self.positive = equations, t, p, u, positive
        self.n = self.n_species = len(equations.states)
        self.algebraic = tuple(equations.states.index(s) for s in equations.algebraic)
        self._groups = symbols((equations.time,), equations.states, equations.parameters, equations.forcings)
        self._rates = scalar_function(self._groups, self._equations.rates)
        self._slopes: dict[Any, Callable[..., list[float]]] = {}

    @cached_property
    def structure(self) -> Structure:
        """By the symbols that stand in the equations."""
        used = [e.free_symbols for e in self._equations.rates]
        states = [symbol(s) for s in self._equations.states]
        return Structure.of(np.array([[s in names for s in states] for names in used], dtype=bool))

    def _values(self, function: Callable[..., list[float]], y: Vector) -> Vector:
        return np.array(function((self._t,), y.tolist(), self.p.tolist(), self._u))

    def rates(self, y: Vector) -> Vector:
        """Return f(y; p)."""
        return self._values(self._rates, y)

    def jacobian(self, y: Vector, f: Vector) -> Vector:
        """Return the entries of df/dy, exactly."""
        if "states" not in self._slopes:
            s, states = self.structure, [symbol(k) for k in self._equations.states]
            pairs = zip(s.rows, s.columns, strict=True)
            entries = [derivative(self._equations.rates[i], states[j]) for i, j in pairs]
            self._slopes["states"] = scalar_function(self._groups, entries)
        return self._values(self._slopes["states"], y)

    def to_parameters(self, y: Vector, places: Any) -> Matrix:
        """Return df/dp, exactly."""
        key = tuple(places)
        if key not in self._slopes:
            moved = [symbol(self._equations.parameters[k]) for k in key]
            slopes = [derivative(e, s) for e in self._equations.rates for s in moved]
            self._slopes[key] = scalar_function(self._groups, slopes)
        return self._values(self._slopes[key], y).reshape(self.n, len(key))


class OfFunction(SteadyRates):
    """Rates by a function of the user's; by loops over arrays in its place, where it has them and they give numbers.

    Parameters
    ----------
    function : RatesFunction
    t : float
    y, p : ndarray
        The model's own start and parameters, where it is tried.
    cells : int or None
        Cells of a grid, whose profiles a function with named arguments gets as arrays; None without one.
    blocks : int
        Species of a vector function, one after the other; 0 where that is not known.
    arrays : ArrayProgram, optional
        What the function computes.
    """

    def __init__(
        self,
        function: RatesFunction,
        t: float,
        y: Vector,
        p: Vector,
        cells: int | None = None,
        *,
        positive: bool = False,
        blocks: int = 0,
        extra_names: tuple[str, ...] = (),
        arrays: ArrayProgram | None = None,
    ) -> None:
        self._function, self.time, self._cells, self._own = function, t, cells, y
        self.n, self.p, self.positive, self.extra_names = len(y), p, positive, extra_names
        self.n_species = len(function.states) if cells is not None else self.n
        self._blocks = blocks or (self.n_species if cells is not None else 0)
        self._arrays, self._is_completed = arrays, False
        self._loops: ArraysAt | None = None

    def at(self, p: Vector) -> Self:
        """Return the same at other parameters."""
        out = super().at(p)
        out._loops = None if self._arrays is None else ArraysAt(self._arrays, p)
        return out

    def at_time(self, t: float) -> OfFunction:
        """Return the same at another time."""
        out = copy(self)
        out.time = t
        return out

    def _call(self, y: Vector) -> tuple[Any, dict[str, Any]]:
        states: Any = y
        if self._cells is not None and self._function.form == "named":
            states = y.reshape(self.n_species, self._cells)
            states.flags.writeable = False
        return self._function.raw(self.time, states, self.p.tolist(), ())

    def _read(self, result: Any) -> Vector:
        """Return what a function gave as rates."""
        if self._cells is None:
            return self._function.checked(result, self.time)
        try:
            rates = np.array(result, dtype=float)
        except (TypeError, ValueError):
            rates = np.empty((0, 0, 0))
        if rates.size != self.n or rates.ndim > 2:
            raise ModelError(
                f"The function must return the rates of {listed(self._function.states)} in {self._cells} cells: an "
                f"array of {self._cells} numbers a species, in that order. It returned {told_shapes(result)}."
            )
        return rates.reshape(-1)

    def rates(self, y: Vector) -> Any:
        """Return f(y; p); NaN where the function raises for want of a value."""
        if self._loops is not None:
            of_loops = self._loops.rates(self.time, y)
            if of_loops is not None and np.isfinite(of_loops.dot(of_loops)):
                return of_loops
        return self._tried(y, lambda result, extra: self._read(result), np.full(self.n, np.nan))

    def _tried(self, y: Vector, read: Callable[[Any, dict[str, Any]], Any], otherwise: Any) -> Any:
        """Return what is read of a call, `otherwise` where the function raises for want of a value."""
        try:
            return read(*self._call(y.copy()))
        except SimulationError as error:
            self.raised = str(error)
        except FmepyError:
            raise
        except (ValueError, ArithmeticError) as error:
            self.raised = f"{type(error).__name__}: {error}"
        except Exception as error:
            raise SimulationError(f"the model's function failed: {type(error).__name__}: {error}") from error
        return otherwise

    def outputs(self, y: Vector) -> Any:
        """Return what the function gives beside the rates, as it is, by name."""
        return self._tried(y, lambda result, extra: extra, {})

    def with_extras(self, y: Vector) -> Any:
        """Return the rates and what comes beside them; one number of a run stands in every row."""
        nothing = np.full(self.n, np.nan), np.full((self.n_rows, len(self.extra_names)), np.nan)
        return self._tried(y, lambda result, extra: (self._read(result), self._columns(extra)), nothing)

    def _columns(self, extra: Mapping[str, Any]) -> Matrix:
        out = np.empty((self.n_rows, len(extra)))
        for k, (name, value) in enumerate(extra.items()):
            try:
                out[:, k] = np.asarray(value, dtype=float)
            except (TypeError, ValueError):
                many = f"one number, or {self.n_rows}, one a cell" if self._cells is not None else "one number"
                raise ModelError(
                    f"The function's output {name!r} must be {many}; it is {told_shapes(value)}. Of a flux at every "
                    "edge give the one that is meant, such as flow.flux[0], or flow.flux_mid, its profile."
                ) from None
        return out

    def tried(self, columns: bool = True) -> tuple[str, ...]:
        """Call the function once as it will be called, so that its mistakes show at the door; return its extras.

        columns : bool
            They must be one number, or one a cell.
        """
        try:
            with np.errstate(all="ignore"):
                result, extra = self._call(self._own.copy())
        except FmepyError as error:
            if isinstance(error.__cause__, ArgumentError):  # of what it calls, such as transport
                raise ModelError(
                    f"The model's function fails when it is called at the start: {error.__cause__}"
                ) from error
            raise
        except Exception as error:
            raise ModelError(
                f"The model's function fails when it is called at the start: {type(error).__name__}: {error}."
            ) from error
        self._read(result)
        if columns:
            self._columns(extra)
        return tuple(extra)

    @cached_property
    def structure(self) -> Structure:
        """As the steps of the computation say; else as it is found at the model's own start and parameters."""
        if self._arrays is not None:
            return Structure.of(self._arrays.reached, self._blocks or 1)
        return self._structure_near(self._own)

    def _structure_near(self, y: Vector) -> Structure:
        """Return the structure of the Jacobian as it is found near y."""
        with np.errstate(all="ignore"):
            return found_structure(self.rates, y, self._blocks or 1)

    @cached_property
    def _least(self) -> Vector:
        """The least sizes of states: a part of those that they begin with, of their species or of all others."""
        size = np.abs(self._own)
        typical = float(np.median(size[size > 0])) if (size > 0).any() else 1.0
        by_species = size.reshape(self._blocks or 1, -1).max(axis=1, keepdims=True) if self._blocks else 0.0
        other = np.broadcast_to(np.where(by_species > 0, by_species, typical), (self._blocks or 1, 1))
        zero = np.repeat(other.ravel(), self.n // (self._blocks or 1))
        return np.asarray(_SMALL * np.where(size > 0, size, zero))

    def _sizes(self, y: Vector) -> Vector:
        """Return the sizes of states, which steps are relative to."""
        size = np.maximum(np.abs(y), self._least)
        if not self._blocks:
            return size
        most = size.reshape(self._blocks, -1).max(axis=1)
        return np.asarray(np.maximum(size, np.repeat(_SMALL * most, self.n // self._blocks)))

    def jacobian(self, y: Vector, f: Vector) -> Vector:
        """Return the entries of df/dy, of loops exactly where they are finite, else by differences."""
        if self._loops is not None and not self._is_completed:
            entries = self._loops.jacobian(self.time, y)
            if np.isfinite(entries).all():
                return entries
        return difference_jacobian(self.rates, y, f, self.structure, self._sizes(y), positive=self.positive)

    def misses(self, y: Vector, f: Vector) -> bool:
        """Tell whether the Jacobian misses what the rates depend on, by their derivative along one direction."""
        if self.structure.is_dense:
            return False
        size = np.abs(y) + 1e-3 * (float(np.abs(y).max(initial=0.0)) or 1.0)
        v = size * np.random.default_rng(7).uniform(0.5, 1.0, len(y))
        s, h = self.structure, 1e-6
        entries = self.jacobian(y, f) * v[s.columns]
        along, terms = (np.bincount(s.rows, e, len(y)) for e in (entries, np.abs(entries)))
        seen = (self.rates(y + h * v) - f) / h
        off = np.abs(seen - along) > _SEEN * (np.abs(terms) + np.abs(seen)) + 1e-9 * float(terms.max(initial=0.0))
        return bool(np.isfinite(seen).all() and off.any())

    def completed(self, y: Vector) -> OfFunction:
        """Return the same with a structure that holds what is found here, too."""
        return self._with_structure(self._structure_near(y).joined(self.structure))

    def completed_or_dense(self, y: Vector) -> OfFunction:
        """Return the same, or with a dense structure where nothing more is found here."""
        out = self.completed(y)
        gained = len(out.structure.rows) > len(self.structure.rows)
        return out if gained else self._with_structure(Structure.dense(len(y)))

    def _with_structure(self, structure: Structure) -> OfFunction:
        out = copy(self)
        out.structure, out._is_completed = structure, True
        return out

    def to_parameters(self, y: Vector, places: Any) -> Matrix | None:
        """Return df/dp of loops, exactly; None where it has no finite value."""
        if self._arrays is None:
            return None
        slopes = ArraysAt(self._arrays, self.p, places, np.ones(len(places))).to_parameters(self.time, y)
        return slopes if np.isfinite(slopes).all() else None

    def extras_along(self, y: Vector, places: Any, S: Matrix) -> Matrix:
        """Return the derivatives of the extras where the states move by S, shape (n_rows * n_extra, n_par)."""
        assert self._arrays is not None, "only loops are exact"
        at = ArraysAt(self._arrays, self.p, places, np.ones(len(places)))
        flat = at.extra_slopes(self.time, np.concatenate([y, S.T.ravel()]))
        out, at_entry = np.empty((self.n_rows, len(self._arrays.extras), len(places))), 0
        for k, run in enumerate(self._arrays.extras):
            out[:, k] = flat[at_entry : at_entry + run.length]  # one number of a run stands in every row
            at_entry += run.length
        return out.reshape(-1, len(places))


def check_species(n: int, nspec: Any) -> int:
    """Return how many species there are; ModelError for n states of unequal numbers."""
    species = whole_number(nspec, "nspec", 1)
    if n % species:
        raise ModelError(
            f"`y` has {n} states, which is not a multiple of nspec={nspec}: each species needs one value a cell."
        )
    return species


def told_shapes(value: Any) -> str:
    """Return what a value looks like, for messages."""
    if value is None:
        return "None"
    if any(isinstance(v, Transport) for v in (value if isinstance(value, tuple | list) else [value])):
        return (
            "what `transport_1d` gives as it is; its rates are `.rate` of it, such as transport_1d(C, grid, D=D).rate"
        )
    if isinstance(value, tuple | list):
        return f"{len(value)} entries of the shapes {', '.join(str(np.shape(v)) for v in value[:6])}"
    return f"{type(value).__name__} of shape {np.shape(value)}" if np.ndim(value) else repr(value)


def slopes_at_rest(
    system: SteadyRates, y: Vector, f: Vector, factored: Any, places: Any, box: Any
) -> tuple[Matrix, Matrix]:
    """Return dy/dp at rest, shape (n, n_par), and the derivatives of the extras, shape (n_rows * n_extra, n_par).

    By the implicit function theorem, J dy/dp = -df/dp. Of a function both are differences: what is left of d/dp of
    ``f(y + dy/dp (p' - p), p')`` corrects dy/dp, until it changes no more.
    """
    exact = system.to_parameters(y, places)
    if exact is not None:
        S = -factored.solve(exact)
        return S, system.extras_along(y, places, S)
    assert isinstance(system, OfFunction), "those of equations are exact"
    theta, S = system.p[places], np.zeros((len(y), len(places)))

    def along(moved: Vector) -> Vector:
        q = system.p.copy()
        q[places] = moved
        z = y + S @ (moved - theta)
        if system.positive:
            z = np.where(y >= 0, np.maximum(z, 0.0), z)
        beside = system.at(q)
        if not system.extra_names:
            return np.asarray(beside.rates(z))
        rates, extras = beside.with_extras(z)
        return np.concatenate([rates, extras.ravel()])

    steps = steps_beside(theta, _PARAMETER_STEP)
    before = np.inf
    for _ in range(_MOST_CORRECTIONS):
        slopes = central_differences(along, theta, steps / _curved(S, theta, y), box)
        correction = -factored.solve(slopes[: len(y)])
        S = S + correction
        size = np.abs(S).max(axis=0)
        change = float((np.abs(correction).max(axis=0) / np.where(size > 0, size, 1.0)).max(initial=0.0))
        if change <= _AGREED:
            return S, slopes[len(y) :]
        if not change < _CONTRACTS * before and not system.structure.is_dense:
            system = system.completed_or_dense(y)  # it depends on what was not seen, elsewhere
            factored, change = system.structure.solver(system.jacobian(y, f)), np.inf
        before = change
    return S, slopes[len(y) :]


def _curved(S: Matrix, theta: Vector, y: Vector) -> Vector:
    """Return how much shorter the step of a parameter must be for the states to move by as small a part."""
    size = np.abs(y)[:, None] + _SMALL * float(np.abs(y).max(initial=0.0))
    moved = np.abs(S) * np.where(theta != 0, np.abs(theta), 1.0) / np.where(size > 0, size, 1.0)
    return np.asarray(np.maximum(1.0, moved.max(axis=0, initial=0.0)))
