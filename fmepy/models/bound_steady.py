"""A model's steady state as a function of a plain vector: `BoundSteady`."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.models.bound import BoundDynamic
from fmepy.models.definition.definition import Definition
from fmepy.models.steady_rates import AtParameters, Source, slopes_at_rest
from fmepy.models.steady_state import come_to_rest, refused, why_not
from fmepy.numerics.at_rest import Found, rest_from
from fmepy.types import Cube, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.models.steady import SteadyModel


class BoundSteady(BoundDynamic):
    """A SteadyModel as a function of a plain vector; see `models.base.BoundModel`.

    `retries` counts the runs that Newton's method did not finish from where it began.
    """

    exact = True

    def __init__(self, model: SteadyModel, definition: Definition, names: tuple[str, ...], rows: Vector) -> None:
        grid = model.times
        super().__init__(definition, names, rows, np.empty((0, len(grid))))
        self._model, self._tol, self._grid = model, model.tolerances, grid
        self._between: tuple[Any, Any, Any] | None = None
        if not np.array_equal(rows, grid):
            high = np.clip(np.searchsorted(grid, rows), 1, max(len(grid) - 1, 1)) if len(grid) > 1 else np.zeros(1, int)
            low = np.maximum(high - 1, 0)
            wide = grid[high] - grid[low]
            weight = (rows - grid[low]) / np.where(wide > 0, wide, 1.0)
            self._between = low, high, np.where(np.abs(weight - np.rint(weight)) < 1e-12, np.rint(weight), weight)
        self._forget_compiled()

    def _forget_compiled(self) -> None:
        """Set what is found at its first use."""
        self._source: Source | None = None
        self._own: Found | None = None
        self._own_slopes: Matrix | None = None
        self._last: tuple[bytes, AtParameters, Found] | None = None

    # --- the search

    def _system(self, p: Vector) -> AtParameters:
        if self._source is None:
            self._source = self._model.source()
        return AtParameters(self._source, p, self._tol.positive, self._source.structure)

    def _given(self, p: Vector) -> tuple[AtParameters, Found]:
        """Return the steady state that the model's `state` leads to."""
        return come_to_rest(self._system(p), self._model.first(p), self._tol)

    def _own_rest(self) -> Found | None:
        """Return the steady state of the model's own parameters, None if there is none: the start of all runs."""
        if self._own is None:
            try:
                self._own = self._given(self._base)[1]
            except SimulationError:
                self._own = Found(self._base, self._base, None, False, 0)
        return self._own if self._own.converged else None

    def _search(self, theta: Vector) -> tuple[AtParameters, Found]:
        """Return the steady state at theta; SimulationError if there is none."""
        key = theta.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1:]
        p = self._parameters(theta)
        with np.errstate(all="ignore"):
            system, found = self._from_own(p, theta) if self._model.start == "last" else (self._system(p), None)
            if found is None or not found.converged:
                self.retries += found is not None
                system, found = self._given(p)
            name, first = self._model.name_of, self._model.first
            why = why_not(system, found, self._tol, name, first(p))
        if why:
            parameters = dict(zip(self._definition.parameters, p.tolist(), strict=True))
            n_species = None if self._model.grid is None else len(self._model.states)
            raise refused(why, found, found.y, parameters, n_species)
        self._last = key, system, found
        return system, found

    def _from_own(self, p: Vector, theta: Vector) -> tuple[AtParameters, Found | None]:
        """Return where Newton's method leads from the steady state of the model's own parameters."""
        system, own = self._system(p), self._own_rest()
        if own is None:
            return system, None
        if np.array_equal(p, self._base):
            return system, own
        if self._own_slopes is None:
            at_own = self._system(self._base)
            own.factored = at_own.structure.solver(at_own.jacobian(own.y, own.f))
            self._own_slopes = slopes_at_rest(at_own, own.y, own.f, own.factored, self._places, self._box)[0]
        y = own.y + self._own_slopes @ (theta - self.theta0)
        if self._tol.positive:
            y = np.maximum(y, 0.1 * own.y)
        starts = [(z, system.rates(z)) for z in (y, own.y)]
        lengths = [self._tol.size(own.y, own.factored.solve(f)) if np.isfinite(f).all() else np.inf for _, f in starts]
        best = int(lengths[1] < lengths[0])
        if not np.isfinite(lengths[best]):
            return system, None
        y, f = starts[best]
        return system, rest_from(system, y, self._tol, own.factored, f)

    def tightened(self) -> BoundSteady:
        """Return the same at tolerances a hundred times smaller; see `models.base.tightened`."""
        out, tol = copy(self), self._tol
        out._forget_compiled()
        out._tol = replace(tol, rtol=max(tol.rtol / 100, 1e-14), atol=tol.atol / 100, ctol=tol.ctol / 100)
        return out

    # --- the contract

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_row, n_var)."""
        theta = np.asarray(theta, dtype=float)
        system, found = self._search(theta)
        Y: Matrix = self._picked_rows(self._table(system, found.y))
        return Y

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_row, n_var, n_par)."""
        theta = np.asarray(theta, dtype=float)
        system, found = self._search(theta)
        d, n_par = self._definition, len(self.names)
        with np.errstate(all="ignore"):
            fresh = system.structure.solver(system.jacobian(found.y, found.f))
            of_states, of_extras = slopes_at_rest(system, found.y, found.f, fresh, self._places, self._box)
            n_rows = system.source.n_rows
            S = of_states.reshape(-1, n_rows, n_par).transpose(1, 0, 2)
            if d.extra_names:
                S = np.concatenate([S, of_extras.reshape(n_rows, -1, n_par)], axis=1)
            Y = self._table(system, found.y)
            if d.outputs:
                known, slopes = Y[:, : S.shape[1]], self._output_functions(self.names)
                S = slopes.sensitivities_beside(self._times(n_rows), known, S, system.p, np.empty((0, n_rows)))
        return self._picked_rows(Y), self._picked_rows(S)

    def _times(self, n_rows: int) -> Vector:
        return np.full(n_rows, self._model.t)

    def _table(self, system: AtParameters, y: Vector) -> Matrix:
        """Return states, extras and outputs in every cell, shape (n_cell, n_var)."""
        d, n_rows = self._definition, system.source.n_rows
        Y = np.ascontiguousarray(y.reshape(-1, n_rows).T)
        with np.errstate(all="ignore"):
            if d.extra_names:
                Y = np.concatenate([Y, system.source.with_extras(y, system.p)[1]], axis=1)
            if d.outputs:
                Y = self._output_functions().beside(self._times(n_rows), Y, system.p, np.empty((0, n_rows)))
        return Y

    def _picked_rows(self, table: Any) -> Any:
        """Return a table of all cells at the rows that were asked for, linear between middles."""
        if self._between is None:
            return table
        low, high, weight = self._between
        weight = weight.reshape(-1, *[1] * (table.ndim - 1))
        return np.where(weight == 0, table[low], (1 - weight) * table[low] + weight * table[high])
