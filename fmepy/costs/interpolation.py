"""How a model's run becomes values at the observations: picked rows, linear interpolation, or means.

A run is ``Y``, shape (n_time, n_var), its sensitivities ``S``, shape (n_time, n_var, n_par). All lookups are linear in
``Y``, so one lookup serves both::

    Picked        mod_i = Y[row_i, col_i]                                        the run has a row at every observation
    Interpolated  mod_i = (1 - w_i) Y[low_i, col_i] + w_i Y[high_i, col_i]       FME's way, on the model's own times
    Averaged      mod_i = mean over the model's own times of Y[:, col_i]         data without an independent variable
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from fmepy.types import Cube, IntVector, Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Lookup:
    """Values at the observations: entries of a run, or weighted sums of them.

    Attributes
    ----------
    at : ndarray of int, shape (n_term, n_obs)
        Positions in the flattened ``Y``.
    weights : ndarray, shape (n_term, n_obs), or None
        None of single entries. An entry of weight zero does not matter, whatever it is.
    """

    at: IntVector
    weights: Matrix | None = None

    def values(self, Y: Any) -> Vector:
        """Return the model's values, shape (n_obs,); of many runs, Y of shape (n_run, n_time, n_var), a row a run."""
        flat = Y.reshape(*Y.shape[:-2], -1)
        if self.weights is None:
            return np.asarray(flat.take(self.at[0], axis=-1))
        return np.asarray(self._summed(flat.take(self.at, axis=-1), self.weights))

    def sensitivities(self, S: Cube) -> Matrix:
        """Return their derivatives, shape (n_obs, n_par)."""
        flat = S.reshape(-1, S.shape[-1])
        if self.weights is None:
            return np.asarray(flat.take(self.at[0], axis=0))
        return np.asarray(self._summed(np.moveaxis(flat.take(self.at, axis=0), -1, 0), self.weights).T)

    def pulled(self, of_values: Vector, shape: tuple[int, ...]) -> Matrix:
        """Return dL/dY, of that shape, from dL/dvalues, shape (n_obs,), of a number L."""
        terms = of_values if self.weights is None else np.where(self.weights == 0, 0.0, self.weights * of_values)
        out = np.zeros(int(np.prod(shape)))
        np.add.at(out, self.at.ravel(), terms.ravel())
        return out.reshape(shape)

    @staticmethod
    def _summed(terms: Any, weights: Matrix) -> Any:
        with np.errstate(invalid="ignore", over="ignore"):  # values that are not finite are told by name later
            return np.where(weights == 0, 0.0, weights * terms).sum(axis=-2)

    def behind(self, first: IntVector) -> Lookup:
        """Return the same in one of several runs one after the other, which begins at `first` for every value."""
        return replace(self, at=self.at + first)


def stack(lookups: Sequence[Lookup]) -> Lookup:
    """Return several lookups of the same run as one."""
    if len(lookups) == 1:
        return lookups[0]
    if all(one.weights is None for one in lookups):
        return Lookup(np.concatenate([one.at for one in lookups], axis=1))
    most = max(len(one.at) for one in lookups)
    weights = [np.ones(one.at.shape) if one.weights is None else one.weights for one in lookups]
    at = [np.pad(one.at, ((0, most - len(one.at)), (0, 0)), mode="edge") for one in lookups]
    padded = [np.pad(w, ((0, most - len(w)), (0, 0))) for w in weights]
    return Lookup(np.concatenate(at, axis=1), np.concatenate(padded, axis=1))


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """What is looked up in a run: variables, and where.

    Attributes
    ----------
    names : tuple of str, length n_obs
    x : ndarray, shape (n_obs,), or None
        None: the means over the model's own times.
    on_grid : bool
        Interpolate between the model's own times, rather than run to the times themselves.
    x_name : str or None
        What x is called in messages.
    runs : ndarray of int, shape (n_obs,), or None
        In which of several runs; None: there is one.
    depths : ndarray, shape (n_obs,), or None
        Where in profiles, whose cells are variables ``name[1]``, ``name[2]``, ...; None: the names are all.
    mid : ndarray, shape (n_cell,), or None
        The middles of the cells.
    """

    names: tuple[str, ...]
    x: Vector | None
    on_grid: bool = False
    x_name: str | None = "time"
    runs: IntVector | None = None
    depths: Vector | None = None
    mid: Vector | None = None

    def only(self, rows: IntVector) -> Places:
        """Return some of them, as places of one run."""
        return replace(self.elsewhere([self.names[i] for i in rows], rows), runs=None)

    def elsewhere(self, names: Sequence[str], rows: IntVector) -> Places:
        """Return other variables at some of these places."""
        x = None if self.x is None else self.x[rows]
        runs = None if self.runs is None else self.runs[rows]
        return replace(
            self, names=tuple(names), x=x, runs=runs, depths=None if self.depths is None else self.depths[rows]
        )

    @property
    def reads_grid(self) -> bool:
        """True if the model's own times serve."""
        return self.x is None or self.on_grid

    def rows_wanted(self, grid: Vector) -> Vector:
        """Return the times at which rows are needed; those on the model's own times are taken from there."""
        if self.x is None or self.on_grid:
            return grid
        if not self.x.size:
            return grid
        nearest = grid[nearest_rows(grid, self.x)]
        return np.where(np.abs(self.x - nearest) <= resolution(grid), nearest, self.x)

    def lookup(self, rows: Vector, grid: Vector, var_names: Sequence[str]) -> Lookup:
        """Return where they stand in a run with these `rows`, of a model whose own times are `grid`."""
        position = {name: k for k, name in enumerate(var_names)}
        if self.depths is not None:
            return self._in_profiles(rows, grid, var_names)
        cols = np.array([position[name] for name in self.names], dtype=np.intp)
        own, n_var = nearest_rows(rows, grid), len(var_names)
        if self.x is None:
            at = own[:, None] * n_var + cols
            return Lookup(at, np.full(at.shape, 1 / len(own)))
        if not self.on_grid:
            return Lookup((nearest_rows(rows, self.x) * n_var + cols)[None])
        low, high, weight = brackets(grid, self.x)
        return Lookup(np.stack([own[low], own[high]]) * n_var + cols, np.stack([1 - weight, weight]))

    def _in_profiles(self, rows: Vector, grid: Vector, var_names: Sequence[str]) -> Lookup:
        """Return the same linear between the cells around every depth; what is no profile has one value."""
        mid = np.asarray(self.mid, dtype=float)
        *around, weight = brackets(mid, np.clip(np.asarray(self.depths), mid[0], mid[-1]))
        known, parts = set(var_names), []
        for cells, part in zip(around, (1 - weight, weight), strict=True):
            named = zip(self.names, (cells + 1).tolist(), strict=True)
            names = tuple(cell if (cell := f"{name}[{i}]") in known else name for name, i in named)
            one = replace(self, names=names, depths=None).lookup(rows, grid, var_names)
            parts.append((one.at, part * (1.0 if one.weights is None else one.weights) * np.ones(one.at.shape)))
        return Lookup(*(np.concatenate(both) for both in zip(*parts, strict=True)))


def joined_places(places: Sequence[Places]) -> Places:
    """Return places of one kind in several runs as one, in order."""
    x, runs = ([getattr(p, name) for p in places] for name in ("x", "runs"))
    return replace(
        places[0],
        names=tuple(chain.from_iterable(p.names for p in places)),
        x=None if places[0].x is None else np.concatenate(x),
        runs=np.concatenate(runs),
    )


def resolution(times: Vector) -> float:
    """Return the difference below which two times are the same: what np.arange(1900, 1920.05, 0.1) misses 1920 by."""
    return float(1e-12 * np.abs(times[np.isfinite(times)]).max(initial=0.0))


def merge_times(*times: Vector) -> Vector:
    """Return all times in order, each once; those that differ by rounding alone are one (the first that is given)."""
    given = np.concatenate(times)
    order = np.argsort(given, kind="stable")
    ordered = given[order]
    with np.errstate(invalid="ignore"):  # of two infinite ones
        starts = np.r_[True, np.diff(ordered) > resolution(given)]
    chosen = np.minimum.reduceat(order, np.flatnonzero(starts))
    return given[chosen]


def nearest_rows(times: Vector, x: Vector) -> IntVector:
    """Return the position in ascending `times` of the time nearest to every `x`."""
    if len(times) == 1:
        return np.zeros(len(x), dtype=np.intp)
    high = np.clip(np.searchsorted(times, x), 1, len(times) - 1)
    with np.errstate(invalid="ignore"):  # of two infinite ones
        return np.where(x - times[high - 1] <= times[high] - x, high - 1, high)


def brackets(times: Vector, x: Vector) -> tuple[IntVector, IntVector, Vector]:
    """Return the rows around every `x` in ascending `times`, and the weight of the upper one.

    An `x` on one of the times (up to rounding) has that row twice and weight 0, so that its neighbours do not matter.
    """
    if len(times) == 1:
        nearest = nearest_rows(times, x)
        return nearest, nearest, np.zeros(len(x))
    high = np.minimum(np.maximum(np.searchsorted(times, x), 1), len(times) - 1)
    low = high - 1
    after, before = x - times[low], times[high] - x
    nearest = np.where(after <= before, low, high)
    weight = after / (times[high] - times[low])
    on_row = np.minimum(np.abs(after), np.abs(before)) <= resolution(times)
    return np.where(on_row, nearest, low), np.where(on_row, nearest, high), np.where(on_row, 0.0, weight)


def rows_by_group(of: IntVector, n: int) -> list[IntVector]:
    """Return the positions that belong to each of n groups, in order."""
    order = np.argsort(of, kind="stable")
    return np.split(order, np.searchsorted(of[order], np.arange(1, n)))
