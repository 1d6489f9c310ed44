"""Design spaces: rows of a table, times between bounds, experiments with controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list, as_numbers, finite_number, positive_number
from fmepy.designs.information import PRICE, VARIABLE, Readings
from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.montecarlo.samplers import as_ranges
from fmepy.parameters.named import check_names
from fmepy.tables.columns import as_table
from fmepy.tables.sheet import holds_dates, numbers_of_times
from fmepy.types import Cube, IntVector, Vector

_GRID = 201  # times between two bounds of the first grid
_SETTINGS = 25  # of controls, by control, of the first grid
_MOST_SETTINGS = 400
_REFINED = 1e-6  # of the range of a time or control


class DesignSpace:
    """The units that can be chosen, each some rows of a table."""

    task: Any
    table: pd.DataFrame
    units: list[IntVector]
    information: Cube
    """Of every unit, shape (n_point, n_unit, n_par, n_par)."""
    repeats = False
    prices: Vector | None = None
    budget: float | None = None
    min_gap = 0.0

    def __len__(self) -> int:
        return len(self.units)

    def _set(self, table: pd.DataFrame, units: list[IntVector]) -> None:
        self.table, self.units = table, units
        rows = self.task.information(table)
        self.information = np.stack([rows[:, u].sum(axis=1) for u in units], axis=1)

    def with_each(self, taken: Sequence[int], units: IntVector) -> Cube:
        """Return the information of the present and some units, with each of others: (n_point, n_unit, p, p)."""
        if self.task.is_joint:
            own = [self.units[i] for i in units]
            of_readings = np.array([r.with_each(self.row_numbers(taken), own) for r in self.task.readings])
            return np.asarray(of_readings + self.task.of_prior[:, None])
        return np.asarray(self.together(taken)[:, None] + self.information[:, units])

    def together(self, taken: Sequence[int]) -> Cube:
        """Return the information of the present and some units, shape (n_point, n_par, n_par)."""
        if self.task.is_joint:
            of_readings = np.array([r.of_rows(self.row_numbers(taken)) for r in self.task.readings])
            return np.asarray(of_readings + self.task.of_prior)
        return np.asarray(self.task.present + self.information[:, list(taken)].sum(axis=1))

    def row_numbers(self, taken: Sequence[int]) -> IntVector:
        """Return the rows of some units."""
        return np.concatenate([*(self.units[i] for i in taken), np.empty(0, dtype=np.intp)])

    def allowed(self, taken: Sequence[int]) -> Any:
        """Return which units may join the chosen ones."""
        out = np.ones(len(self), dtype=bool)
        if not self.repeats:
            out[list(taken)] = False
        if self.prices is not None and self.budget is not None:
            out &= self.prices <= self.budget - self.prices[list(taken)].sum() + 1e-12
        return out

    def refined(self, chosen: list[int]) -> list[Any]:
        """Return the chosen units, moved continuously where that is possible."""
        return [self.rows(i) for i in chosen]

    def rows(self, unit: int) -> pd.DataFrame:
        """Return the rows of a unit."""
        return self.table.iloc[self.units[unit]]


class ListedReadings(DesignSpace):
    """Rows of a table, or groups of them."""

    def __init__(self, task: Any, candidates: Any, variables: Any, by: str | None, budget: float | None) -> None:
        self.task = task
        if candidates is None:
            raise ArgumentError("`candidates`, a table of possible readings, or `times`, two bounds, is needed.")
        if not isinstance(candidates, pd.DataFrame | Mapping | Sequence | np.ndarray) or isinstance(candidates, str):
            raise ArgumentError(f"`candidates` must be a table of possible readings; got {candidates!r}.")
        table = _with_variables(task.readings[0], pd.DataFrame(candidates), variables)
        if by is not None and by not in table.columns:
            raise ArgumentError(f"`by`: the candidates have no column {by!r}.{did_you_mean(by, table.columns)}")
        groups = [np.array([i]) for i in range(len(table))]
        if by is not None:
            groups = [np.asarray(rows) for rows in table.groupby(by, sort=False).indices.values()]
        if budget is not None:
            if PRICE not in table.columns:
                raise ArgumentError("`budget` needs a column 'cost' of the candidates.")
            prices = as_numbers(table[PRICE], f"candidates[{PRICE!r}]")
            if not (np.isfinite(prices) & (prices >= 0)).all():
                raise ArgumentError(f"`candidates[{PRICE!r}]` must hold finite numbers, at least 0.")
            self.prices = np.array([prices[g].sum() for g in groups])
            self.budget = positive_number(budget, "budget")
            if not (self.prices <= self.budget).any():
                raise ArgumentError(
                    f"`budget={budget!r}` buys nothing: the cheapest reading costs {self.prices.min():g}."
                )
        self._set(table, groups)


class ReadingsInTime(DesignSpace):
    """Readings at any times between two bounds."""

    def __init__(self, task: Any, times: Any, variables: Any, min_gap: float) -> None:
        self.task, self.min_gap = task, finite_number(min_gap, "min_gap")
        ends = numbers_of_times(times, task.readings[0].calendar)
        if np.shape(ends) != (2,):
            raise ArgumentError(f"`times={times!r}` must be two bounds, such as (0, 48).")
        low, high = map(float, ends)
        if not low < high:
            raise ArgumentError(f"`times=({low:g}, {high:g})`: the bounds are crossed.")
        self.low, self.high = low, high
        readings = task.readings[0]
        if more := [c for c in (readings.entity, readings.depth) if c is not None]:
            raise ArgumentError(
                f"`times` are chosen for data of one experiment by time alone. Give `candidates`, a table of possible "
                f"readings with the columns {listed([readings.x, *more])}."
            )
        if low < float(readings.model.times[0]):
            raise ArgumentError(f"`times` begins at {low:g}, before the model's start at {readings.model.times[0]:g}.")
        if not task.is_joint and high > (last := float(readings.model.times[-1])):
            how = "cost.replace(model=model.replace(times=...))" if readings.is_cost else "model.replace(times=...)"
            raise ArgumentError(f"`times` ends at {high:g}, after the model's end at {last:g}. Let it run on: {how}.")
        steps = _steps_between(readings.model, low, high)
        self.repeats = self.moves = steps is None and not task.is_joint
        grid = np.linspace(low, high, _GRID) if steps is None else steps
        if not self.moves and steps is None:
            task.notes.append(f"Times are chosen among {_GRID}, {(high - low) / (_GRID - 1):.3g} apart.")
        table = _with_variables(readings, pd.DataFrame({readings.x: grid}), variables)
        self._set(table, [np.array([i]) for i in range(len(table))])

    def allowed(self, taken: Sequence[int]) -> Any:
        """Return which times keep their distance."""
        x, out = self.table[self.task.readings[0].x].to_numpy(dtype=float), super().allowed(taken)
        for i in taken if self.min_gap else ():
            out &= np.abs(x - x[i]) >= self.min_gap * (1 - 1e-12)
        return out

    def refined(self, chosen: list[int]) -> list[Any]:
        """Return the times moved to their best places."""
        if not self.moves:
            return super().refined(chosen)
        name = self.task.readings[0].x
        table = self.table.iloc[chosen].copy().reset_index(drop=True)
        step = (self.high - self.low) / (_GRID - 1)

        def moved(i: int, x: float) -> pd.DataFrame:
            out = table.copy()
            out.loc[i, name] = x
            return out

        def limits(i: int) -> tuple[float, float]:
            all_of_them = table[name].to_numpy(dtype=float)
            x, others = float(all_of_them[i]), np.delete(all_of_them, i)
            below, above = others[others <= x], others[others > x]
            low = max(self.low, x - step, below.max() + self.min_gap if self.min_gap and len(below) else -np.inf)
            high = min(self.high, x + step, above.min() - self.min_gap if self.min_gap and len(above) else np.inf)
            return min(low, x), max(high, x)

        table = _coordinate_search(self.task, table, moved, limits, name, self.high - self.low)
        return [table.iloc[[i]] for i in range(len(table))]


class ControlledExperiments(DesignSpace):
    """Experiments, each the table of a function of controls."""

    repeats = True

    def __init__(self, task: Any, candidates: Any, controls: Any) -> None:
        self.task, self.function = task, candidates
        if task.is_joint:
            raise ArgumentError("`controls` are of a model or a SimulationCost: candidates of a FimlofCost set none.")
        if not callable(candidates):
            raise ArgumentError("With `controls`, `candidates` is a function of a dict of them that returns a table.")
        ranges = as_ranges(controls, argument="controls", varying=True)
        names = check_names(ranges.names, task.readings[0].model.parms.index, argument="controls")
        self.bounds = dict(zip(names, zip(ranges.low.tolist(), ranges.high.tolist(), strict=True), strict=True))
        each = max(2, min(_SETTINGS, int(_MOST_SETTINGS ** (1 / len(self.bounds)))))
        axes = np.meshgrid(*(np.linspace(a, b, each) for a, b in self.bounds.values()), indexing="ij")
        settings = np.column_stack([a.ravel() for a in axes])
        parts = [self.experiment(dict(zip(self.bounds, row.tolist(), strict=True))) for row in settings]
        ends = np.cumsum([0, *map(len, parts)])
        self._set(pd.concat(parts, ignore_index=True), [np.arange(a, b) for a, b in pairwise(ends)])

    def experiment(self, setting: Mapping[str, float]) -> pd.DataFrame:
        """Return the readings of an experiment with these controls."""
        table = _with_variables(self.task.readings[0], as_table(self.function(dict(setting)), "candidates"), None)
        return table.assign(**{k: v for k, v in setting.items() if k not in table.columns})

    def refined(self, chosen: list[int]) -> list[Any]:
        """Return the experiments with their controls moved to their best places."""
        from scipy.optimize import minimize

        parts = [self.rows(i) for i in chosen]
        names, bounds = list(self.bounds), list(self.bounds.values())
        own = [self.task.information(part).sum(axis=1) for part in parts]
        for _ in range(3):
            before = [part[names].iloc[0].to_numpy(dtype=float) for part in parts]
            for i in range(len(parts)):
                rest = self.task.present + sum(own) - own[i]

                def worse(x: Vector, rest: Any = rest) -> float:
                    part = self.experiment(dict(zip(names, x.tolist(), strict=True)))
                    M = rest + self.task.information(part).sum(axis=1)
                    return -float(self.task.value(M[:, None])[0])

                found = minimize(worse, before[i], method="Nelder-Mead", bounds=bounds,
                                 options={"xatol": 1e-6 * max(b - a for a, b in bounds), "fatol": 1e-12})  # fmt: skip
                parts[i] = self.experiment(dict(zip(names, found.x.tolist(), strict=True)))
                own[i] = self.task.information(parts[i]).sum(axis=1)
            after = [part[names].iloc[0].to_numpy(dtype=float) for part in parts]
            if np.allclose(before, after, rtol=1e-6):
                break
        return parts


def _with_variables(readings: Readings, table: pd.DataFrame, variables: Any) -> pd.DataFrame:
    """Return valid candidates with a column of variables."""
    if not len(table):
        raise ArgumentError("`candidates` is empty.")
    if readings.x not in table.columns:
        raise ArgumentError(
            f"`candidates` has no column {readings.x!r}, the times of readings (its columns: {listed(table.columns)})."
        )
    if holds_dates(table[readings.x]):
        days = numbers_of_times(table[readings.x], readings.calendar, f"`candidates`, column {readings.x!r}")
        table = table.assign(**{readings.x: days})
    as_numbers(table[readings.x], f"candidates[{readings.x!r}]")  # raises an error for text
    names = readings.variables if variables is None else as_list(variables, "variables")
    if VARIABLE not in table.columns:
        table = table.merge(pd.DataFrame({VARIABLE: names}), how="cross")
    known = [*readings.model.var_names, *readings.variables]  # of data by depth the profiles
    for name in dict.fromkeys(table[VARIABLE]):
        if name not in known:
            near = did_you_mean(str(name), known)
            raise ArgumentError(f"`candidates`: the model has no variable {name!r}.{near}")
    for column, what in ((readings.entity, "entity"), (readings.depth, "depth")):
        if column is not None and column not in table.columns:
            raise ArgumentError(f"`candidates` has no column {column!r}, the {what} of a reading.")
    return table.reset_index(drop=True)


def _steps_between(model: Any, low: float, high: float) -> Vector | None:
    """Return the times of a model of steps (of differences, of modules) between two bounds; None of any other."""
    is_modular = getattr(model, "modules", None) is not None
    if not is_modular and getattr(getattr(model, "definition", None), "kind", "") != "difference":
        return None
    start, h = float(model.times[0]), float(model.dt)
    return np.asarray(start + h * np.arange(np.ceil((low - start) / h - 1e-9), np.floor((high - start) / h + 1e-9) + 1))


def _coordinate_search(
    task: Any, table: pd.DataFrame, moved: Callable[[int, float], pd.DataFrame],
    limits: Callable[[int], tuple[float, float]], name: str, span: float,
) -> pd.DataFrame:  # fmt: skip
    """Move the times of a table one by one, each to its best place within its limits, until none moves."""
    from scipy.optimize import minimize_scalar

    own = task.information(table)
    for _ in range(20):
        farthest = 0.0
        for i in range(len(table)):
            low, high = limits(i)
            if high - low < 2 * _REFINED * span:
                continue
            rest = task.present + own.sum(axis=1) - own[:, i]

            def worse(x: float, i: int = i, rest: Any = rest) -> float:
                M = rest + task.information(moved(i, float(x)).iloc[[i]])[:, 0]
                return -float(task.value(M[:, None])[0])

            found = minimize_scalar(worse, bounds=(low, high), method="bounded", options={"xatol": _REFINED * span})
            now = float(table[name].to_numpy(dtype=float)[i])
            best = min([float(found.x), low, high, now], key=worse)
            farthest = max(farthest, abs(best - now))
            table.loc[i, name] = best
            own[:, i] = task.information(table.iloc[[i]])[:, 0]
        if farthest < 2 * _REFINED * span:
            break
    return table
