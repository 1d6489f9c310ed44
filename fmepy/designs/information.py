"""The expected information of possible readings about parameters, reading by reading.

Readings of a cost are rows of its own table with other times, and so their noise, entities and transforms are the
cost's; controls are parameters that a row sets. The information of a reading with mean mu and sd s is::

    I = (dmu/dp)' (dmu/dp) / s^2 + 2 (ds/dp)' (ds/dp) / s^2
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers, finite_number, positive_number
from fmepy.costs.noise import ERR, names_of_noise
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.models.base import Model
from fmepy.parameters.entities import entity_text
from fmepy.tables.sheet import calendar_of
from fmepy.types import Cube, Matrix, Vector

VARIABLE, SD, PRICE = "variable", "sd", "cost"
"""Columns of a table of candidates."""
_TINY = 1e-12  # of the largest eigenvalue


class Readings:
    """The information of possible readings of a model or cost, at one point of the parameters.

    Parameters
    ----------
    source : Cost or Model
    theta : Series
        The parameters of interest, at their values.
    sd : number, mapping by variable, or None
        Of a reading, where neither the table nor the cost has it.
    """

    kinds: tuple[type, ...] = (SimulationCost,)
    is_joint = False

    def __init__(self, source: Any, theta: pd.Series, sd: Any) -> None:
        self.is_cost = isinstance(source, self.kinds)
        if isinstance(source, PredictionErrorCost) or not (self.is_cost or isinstance(source, Model)):
            raise ArgumentError(
                "`design` judges readings by a model, or by a SimulationCost or FimlofCost on the natural scale; got "
                f"{type(source).__name__}. Readings of a predictor are not independent, and the parts of a sum or a "
                "transformed cost have other tables: give the SimulationCost of the same model, or its model."
            )
        self.source, self.theta, self._sd = source, theta, sd
        self.model = source.model if self.is_cost else source
        self.x = str(getattr(source, "x", None) or getattr(self.model, "x_name", "time"))
        self.entity, self.calendar = getattr(source, "entity", None), calendar_of(source)
        columns = getattr(source, "given_x", None)
        self.depth = str(columns[1]) if isinstance(columns, list | tuple) else None
        self.variance = 1.0  # of a reading without an sd of its own
        for name in theta.index:
            if name not in source.parms.index:
                raise ArgumentError(f"`p`: {name!r} is no parameter.{did_you_mean(str(name), source.parms.index)}")
        self.variables = self._variables()

    def _variables(self) -> list[str]:
        if self.is_cost:
            return list(self.source.comparison.group_names)
        outputs = [n for n in self.model.var_names if n not in getattr(self.model, "states", ())]
        return outputs or list(self.model.var_names)

    @property
    def has_errors(self) -> bool:
        """Whether the readings of the cost have standard errors; those of a model have none."""
        if not self.is_cost:
            return False
        bound = self.source.bind(list(self.theta.index))
        with_error = getattr(self.source.comparison, "with_error", None)
        return bool(bound.is_scalar or (with_error is not None and with_error.any()))

    @property
    def present(self) -> Matrix:
        """The information of the present data; zeros for a model."""
        n = len(self.theta)
        if not self.is_cost:
            return np.zeros((n, n))
        M = _information(self.source.bind(list(self.theta.index)), self.theta.to_numpy(dtype=float))
        return np.asarray(M / self.variance)

    def of(self, table: pd.DataFrame) -> Cube:
        """Return the information of every row of a table of readings, shape (n_row, n_par, n_par)."""
        n = len(self.theta)
        out = np.zeros((len(table), n, n))
        own = {self.x, VARIABLE, SD, PRICE, self.entity, self.depth}
        set_by = [c for c in table.columns if c not in own and c in self.model.parms.index]
        variance = 1.0 if SD in table.columns else self.variance
        if not set_by:
            return self._of_rows(table, {}) / variance
        for values, rows in table.groupby(set_by, sort=False).indices.items():
            at = values if isinstance(values, tuple) else (values,)
            out[rows] = self._of_rows(table.iloc[rows], dict(zip(set_by, map(float, at), strict=True)))
        return out / variance

    def _of_rows(self, table: pd.DataFrame, controls: Mapping[str, float]) -> Cube:
        long = pd.DataFrame(
            {
                "name": table[VARIABLE].to_numpy(),
                self.x: table[self.x].to_numpy(dtype=float),
                "value": 1.0 + np.arange(len(table)),
            }
        )
        for column in (self.entity, self.depth):
            if column is not None:
                long[column] = table[column].to_numpy()
        cost = self._cost(long, self._sds(table))
        if controls:
            cost = cost.replace(model=cost.model.replace(parms=dict(controls)))
        names = [n for n in self.theta.index if n not in controls and n in cost.parms.index]
        bound = cost.bind(names)
        J, mean = _rows(bound, self.theta[names].to_numpy(dtype=float))
        places = np.asarray(cost.comparison.places)
        both = np.concatenate([places, places[: len(J) - mean]]) if len(J) > mean else places
        J, both = J[both < len(table)], both[both < len(table)]
        keep = [self.theta.index.get_loc(n) for n in names]
        out = np.zeros((len(table), len(self.theta), len(self.theta)))
        np.add.at(out, (both[:, None, None], np.array(keep)[None, :, None], np.array(keep)[None, None, :]),
                  J[:, :, None] * J[:, None, :])  # fmt: skip
        return out

    def _cost(self, long: pd.DataFrame, sds: Vector | None) -> Any:
        """Return a cost of these readings, followed by one of every variable and entity without any."""
        if not self.is_cost:
            return SimulationCost(
                self.model, long.assign(sd=1.0 if sds is None else sds), x=self.x, y="value", err="sd"
            )
        words, noise = {**self.source.arguments, "y": "value", "err": None, "outside": "error"}, {}
        if sds is not None:  # they replace the cost's noise, unless that is a multiple of them
            own = {} if words["measurement_noise"] is None else dict(words["measurement_noise"])
            noise = {k: v for k, v in own.items() if ERR not in names_of_noise(None, {k: v})}
            words["measurement_noise"] = {k: v for k, v in own.items() if k not in noise} or None
            used = names_of_noise(None, words["measurement_noise"]) | set(self.model.parms.index)
            gone = names_of_noise(None, noise) - used
            words["parms"] = {k: v for k, v in (words["parms"] or {}).items() if str(k) not in gone} or None
            long, words["err"] = long.assign(sd=sds), "sd"
        elif getattr(self.source, "err", None) is not None:
            raise ArgumentError(
                "The readings of the cost have errors of their own (`err`); give those of the candidates in a column "
                "'sd', or by `sd=`."
            )
        whole = pd.concat([long, *self._lacking(long)], ignore_index=True)
        return type(self.source)(**{**words, "obs": whole, "weight": "none", "censored": None})

    def _lacking(self, long: pd.DataFrame) -> list[pd.DataFrame]:
        """Return a reading of every variable and entity without one: the cost's arguments name all of them."""
        first = long.iloc[[0]]
        rows = [first.assign(name=v) for v in self.variables if v not in set(long["name"])]
        if self.entity is not None:
            have = {entity_text(e) for e in long[self.entity]}
            rows += [
                first.assign(**{self.entity: e})
                for e in self.source.readings["entity"].unique()
                if entity_text(e) not in have
            ]
        return rows

    def _sds(self, table: pd.DataFrame) -> Vector | None:
        if SD in table.columns:
            return as_numbers(table[SD], f"candidates[{SD!r}]")
        if isinstance(self._sd, Mapping | pd.Series):
            lacking = sorted(set(table[VARIABLE]) - set(self._sd.keys()))
            if lacking:
                raise ArgumentError(f"`sd` has no value of {listed(lacking)}.")
            return np.array([positive_number(self._sd[v], f"sd[{v!r}]") for v in table[VARIABLE]])
        if self._sd is not None:
            return np.full(len(table), positive_number(self._sd, "sd"))
        if self.is_cost and self.source.weight != "none":  # the error of a variable, whatever is read of it
            c = self.source.comparison
            by_variable = dict(zip(c.names, 1 / c.weights, strict=True))
            return np.array([by_variable.get(v, 1.0) for v in table[VARIABLE]])
        return None

    def gradient(self, row: Mapping[str, Any]) -> Vector:
        """Return the gradient of a prediction, one variable at one time."""
        model = self.model
        if (name := str(row[VARIABLE])) not in model.var_names:
            raise ArgumentError(f"`for_`: there is no variable {name!r}.{did_you_mean(name, model.var_names)}")
        names = [n for n in self.theta.index if n in model.parms.index]  # the others are the noise's
        time = finite_number(row.get(self.x), f"for_[{self.x!r}]")
        bound = model.bind(names, times=np.unique([float(model.times[0]), time]))
        _, S = bound.sensitivities(self.theta[names].to_numpy(dtype=float))
        out = pd.Series(0.0, index=self.theta.index)
        out[names] = S[-1, list(bound.var_names).index(name)]
        return np.asarray(out, dtype=float)


def _rows(bound: Any, theta: Vector) -> tuple[Matrix, int]:
    """Return rows whose product is the information, and how many of them are of means."""
    if bound.is_scalar:
        return np.asarray(bound.sensitivity_rows(theta)[2]), int(bound.nobs)
    J = np.asarray(bound.jacobian(theta))
    return J, len(J)


def _information(bound: Any, theta: Vector) -> Matrix:
    if bound.is_scalar:
        return np.asarray(bound.information(theta))
    J = np.asarray(bound.jacobian(theta))
    return np.asarray(J.T @ J)


def errors_of(M: Matrix) -> Vector:
    """Return the standard errors by an information matrix; infinite for undetermined parameters."""
    size = np.sqrt(np.diag(M))
    scale = np.where(size > 0, size, 1.0)
    value, V = np.linalg.eigh(M / np.outer(scale, scale))
    good = value > _TINY * max(value.max(initial=0.0), 1e-300)
    is_open = (np.abs(V[:, ~good]) > 1e-6).any(axis=1) | (size == 0)
    with np.errstate(divide="ignore"):
        errors = np.sqrt((V[:, good] ** 2 / value[good]).sum(axis=1)) / scale
    return np.where(is_open, np.inf, errors)
