"""The joint information of possible readings of a noisy system, which are correlated through its path.

Along the path of the mean a filter turns readings y into innovations e = T (y - m) with the variances D, T unit lower
triangular in the order of time. So all readings, present and possible ones, are normal with the mean
m and the covariance V = A D A', A = T^-1, and the information of any of them is (exact where the model is linear)::

    I_ab = dm_a' V^-1 dm_b + tr(V^-1 dV_a V^-1 dV_b) / 2

T follows column by column from slightly changed data, and the derivatives of V by differences. Random effects are such
models: constant states that are unknown at the start, whose information is that of the first-order approximation
(Mentré, Mallet and Baccar 1997, Biometrika 84).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.designs.information import PRICE, SD, VARIABLE, Readings
from fmepy.errors import ArgumentError, SimulationError, listed
from fmepy.fimlof.cost import FimlofCost
from fmepy.types import Cube, IntVector, Matrix, Vector

_MOVE = 1e-4  # of a reading, in its sds
_STEP = 1e-4  # of a parameter, relative
_CLOSE = 1e-10  # innovations along the path of the mean, in their sds
_MOST_READINGS = 1000


class JointReadings(Readings):
    """The information of sets of possible readings of a `FimlofCost`, at one point of the parameters."""

    kinds: tuple[type, ...] = (FimlofCost,)
    is_joint = True
    has_errors = True

    def __init__(self, source: FimlofCost, theta: pd.Series, sd: Any) -> None:
        super().__init__(source, theta, sd)
        why = ""
        if source.accumulate or source.initial != "known":
            why = "readings of sums or of an unknown start are not each of one time: take `accumulate` out, and "
            why += 'initial="known" with `initial_sd`'
        elif sd is not None:
            why = "its readings have its own noise: leave `sd` out, or change its `measurement_noise`"
        if why:
            raise ArgumentError(f"`design` of a FimlofCost: {why}.")
        self._own = _present(source, self.x, self.entity)
        self._set(self._own)

    def _variables(self) -> list[str]:
        return list(self.source.specification.variables)

    @property
    def present(self) -> Matrix:
        """The information of the present data."""
        return self.of_places(np.arange(len(self._own)))

    def of(self, table: pd.DataFrame) -> Cube:
        """Return what every row of a table alone adds to the present information; `with_each` is then of it."""
        own = {self.x, VARIABLE, PRICE, self.entity}
        if SD in table.columns or (controls := [c for c in table.columns if c not in own and c in self.source.parms]):
            which = "an sd" if SD in table.columns else listed(controls)
            raise ArgumentError(f"`candidates` of a FimlofCost set no parameters and no noise; these set {which}.")
        new = pd.DataFrame({"name": table[VARIABLE], self.x: table[self.x].astype(float), "value": 1.0})
        if self.entity is not None:
            new[self.entity] = table[self.entity]
        self._set(pd.concat([self._own, new.assign(err=1.0)], ignore_index=True))
        return self.with_each([], [np.array([i]) for i in range(len(table))]) - self.present

    def with_each(self, taken: Sequence[int], units: Sequence[IntVector]) -> Cube:
        """Return the information of the present and some further rows, with each of some units of rows, one by one."""
        n = len(self._own)
        before = np.concatenate([np.arange(n), n + np.asarray(taken, dtype=np.intp)])
        if any(len(u) > 1 for u in units):
            return np.array([self.of_places(np.concatenate([before, n + u])) for u in units])
        new = n + np.concatenate([*units, np.empty(0, dtype=np.intp)])
        return self.of_places(before) + self._further(before, new)

    def of_rows(self, taken: IntVector) -> Matrix:
        """Return the information of the present and some further rows."""
        n = len(self._own)
        return self.of_places(np.concatenate([np.arange(n), n + np.asarray(taken, dtype=np.intp)]))

    def of_places(self, at: IntVector) -> Matrix:
        """Return the information of some readings together."""
        dm, G = self._dm[at], np.linalg.inv(self._V[np.ix_(at, at)])
        Z = np.array([G @ dV[np.ix_(at, at)] for dV in self._dV]).reshape(-1, len(at), len(at))
        return np.asarray(dm.T @ G @ dm + 0.5 * np.einsum("aij,bji->ab", Z, Z))

    def _further(self, at: IntVector, new: IntVector) -> Cube:
        """Return what each of some readings adds to others: the information of it, given these.

        It has the mean m_j + k'(y - m) and the variance v, k = V^-1 V_j.
        """
        G, V_j = np.linalg.inv(self._V[np.ix_(at, at)]), self._V[np.ix_(at, new)]
        k = G @ V_j
        v = np.diag(self._V)[new] - np.einsum("ij,ij->j", k, V_j)
        dm = self._dm[new] - k.T @ self._dm[at]
        dV_j = [dV[np.ix_(at, new)] for dV in self._dV]
        dV_k = [dV[np.ix_(at, at)] @ k for dV in self._dV]
        dk = np.array([G @ (a - b) for a, b in zip(dV_j, dV_k, strict=True)])
        dv = np.array([
            np.diag(dV)[new] - 2 * np.einsum("ij,ij->j", k, a) + np.einsum("ij,ij->j", k, b)
            for dV, a, b in zip(self._dV, dV_j, dV_k, strict=True)
        ])  # fmt: skip
        spread = np.einsum("aij,bij->jab", dk, self._V[np.ix_(at, at)] @ dk)
        of_variance = np.einsum("aj,bj->jab", dv, dv) / (2 * v**2)[:, None, None]
        return np.asarray((dm[:, :, None] * dm[:, None] + spread) / v[:, None, None] + of_variance)

    def _set(self, long: pd.DataFrame) -> None:
        """Compute the derivatives of the mean, the covariance and its derivatives for all readings of a table."""
        if len(long) > _MOST_READINGS:
            raise ArgumentError(
                f"A FimlofCost takes {_MOST_READINGS} candidates and present readings, not {len(long)}."
            )
        errors = "err" if self.source.err is not None else None
        table = long if errors else long.drop(columns="err")
        cost = self.source.replace(obs=table, y="value", err=errors, censored=None)
        cost = cost.replace(obs=cost.simulate(self.theta, seed=0))
        bound, theta = cost.bind(list(self.theta.index)), self.theta.to_numpy(dtype=float)
        y, A, s = _along_the_mean(bound, theta)
        V = (A * s) @ A.T
        rows = bound.with_values(y).sensitivity_rows(theta)[2]
        dm = -A @ (rows[: len(s)] * np.sqrt(s)[:, None])
        dV = np.empty((len(theta), *V.shape))
        for j, step in enumerate(_STEP * np.where(theta == 0, 1.0, np.abs(theta))):
            both = []
            for sign in (1.0, -1.0):
                at = theta.copy()
                at[j] += sign * step
                _, there, s = _along_the_mean(bound.with_values(y), at)
                both.append((there * s) @ there.T)
            dV[j] = (both[0] - both[1]) / (2 * step)
        lines = np.array([place for schedule, _ in bound.schedules for place in schedule.readings.places])
        order = np.argsort(lines)
        self._dm, self._V, self._dV = dm[order], V[np.ix_(order, order)], dV[:, order][:, :, order]


def _along_the_mean(bound: Any, theta: Vector) -> tuple[Vector, Matrix, Vector]:
    """Return the readings of the path of the mean, A = T^-1 there, and the variances of innovations.

    That path is the one without innovations; it is iterated to, one reading a step at the least.
    """
    sizes = [len(schedule.readings) for schedule, _ in bound.schedules]
    starts, of_row = np.cumsum([0, *sizes])[:-1], np.repeat(np.arange(len(sizes)), sizes)
    y = np.concatenate([schedule.readings.values for schedule, _ in bound.schedules])
    for _ in range(len(y) + 1):
        nu, s = _innovations(bound.with_values(y), theta)
        if np.abs(nu / np.sqrt(s)).max() < _CLOSE:
            break
        y = y - nu
    else:
        raise SimulationError("`design`: the path of the mean of this FimlofCost was not found.")
    T = np.eye(len(y))
    for k in range(max(sizes)):  # the k-th reading of every entity at once
        at = np.array([a + k for a, size in zip(starts, sizes, strict=True) if k < size])
        moved, columns = y.copy(), np.full(len(sizes), -1)
        moved[at] += _MOVE * np.sqrt(s[at])
        columns[of_row[at]] = at
        rows = np.flatnonzero(columns[of_row] >= 0)
        j = columns[of_row[rows]]
        T[rows, j] = (_innovations(bound.with_values(moved), theta)[0] - nu)[rows] / (moved - y)[j]
    return y, np.asarray(np.linalg.inv(T), dtype=float), s


def _innovations(bound: Any, theta: Vector) -> tuple[Vector, Vector]:
    likelihoods = bound.likelihoods(theta)
    return np.concatenate([one.nu for one in likelihoods]), np.concatenate([one.s for one in likelihoods])


def _present(cost: FimlofCost, x: str, entity: str | None) -> pd.DataFrame:
    """Return the data of a cost as a long table."""
    parts = []
    for e in cost.entities:
        r = e.readings
        names = [e.variables[i] for i in r.variables]
        own = pd.DataFrame({"name": names, x: r.times, "value": e.raw, "err": r.errors})
        parts.append(own if entity is None else own.assign(**{entity: e.label}))
    return pd.concat(parts, ignore_index=True)
