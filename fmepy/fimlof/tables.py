"""The tables of a filter's result: what each row says is told in `fimlof.result`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.filtering.smoothing import History
from fmepy.fimlof.entity_run import EntityRun
from fmepy.types import BoolVector, Cube, Matrix, Vector

_TIE = 1e-9
"""Components that differ by less share the blame: with H = I a typo and a jump look the same until the next sample."""

Parts = Sequence[EntityRun]
Histories = Sequence[History]


def _joined(parts: Sequence[pd.DataFrame], runs: Parts, entity: str | None) -> pd.DataFrame:
    """Return the entities' tables as one, with their column of labels in front if there are entities."""
    if entity is not None:
        for part, run in zip(parts, runs, strict=True):
            part.insert(0, entity, pd.Series([run.label] * len(part), index=part.index, dtype=object))
    table = pd.concat(parts, ignore_index=True)
    if entity is not None:
        table[entity] = table[entity].infer_objects()
    return table


def residual_table(
    runs: Parts, histories: Histories, variables: Sequence[str], entity: str | None, threshold: float
) -> pd.DataFrame:
    """Return one row a datum."""
    parts = []
    for run, h in zip(runs, histories, strict=True):
        r, used = run.schedule.readings, run.used
        with np.errstate(invalid="ignore", divide="ignore"):
            standardized = h.innovations / h.sds
        flags, _ = flags_of(run, h, threshold)
        columns = {
            "name": np.array(variables, dtype=object)[r.variables],
            **{"x": r.times, "obs": r.values, "mod": h.predictions, "innovation": h.innovations, "sd": h.sds},
            **{"standardized": standardized, "NUMR": h.numr, "AUXM": h.auxm, "flag": flags},
        }
        part = pd.DataFrame(columns)
        if used is not None and len(used):
            names = np.array(variables, dtype=object)[used.variables]
            first = pd.DataFrame({"name": names, "x": used.times, "obs": used.values})
            part = pd.DataFrame({c: [*first[c], *part[c]] if c in first else _late(part[c], len(first)) for c in part})
        parts.append(part)
    return _joined(parts, runs, entity)


def _late(column: pd.Series, n: int) -> list[Any]:
    """Return a column with n rows without a value before it."""
    return [*([False] * n if column.dtype == bool else [np.nan] * n), *column]


def flags_of(run: EntityRun, h: History, threshold: float) -> tuple[BoolVector, BoolVector]:
    """Return which data and which states, shape (n_node, n), are to blame for what goes beyond the threshold.

    Of every sample the component of the largest magnitude, by the smoothed diagnostics where they are there. A wrong
    datum makes the states around it look wrong too, and a jump those many samples away: a datum is blamed only if no
    state of the samples beside it is worse, a state only if nothing there is, and only where it is worst among the
    samples in which it stays beyond the threshold. Where a datum and a state are equal, both are told.
    """
    data, states, around = magnitudes(run, h)
    nodes = np.flatnonzero(
        (np.diff(run.schedule.row_at) > 0) | (np.arange(len(states)) == 0)
    )  # jumps are told at samples
    of_node = np.zeros(len(states))
    np.maximum.at(of_node, run.schedule.nodes_of_rows, data)
    own = of_node[run.schedule.nodes_of_rows]
    flagged = (data > threshold) & (data >= np.maximum(own, around) * (1 - _TIE))
    largest = np.maximum(of_node[nodes], states[nodes].max(axis=1, initial=0.0))
    jumped = np.zeros(states.shape, dtype=bool)
    worst = np.maximum(_around(largest)[:, None], _largest_of_runs(states[nodes], threshold))
    jumped[nodes] = (states[nodes] > threshold) & (states[nodes] >= worst * (1 - _TIE))
    return flagged, jumped


def magnitudes(run: EntityRun, h: History) -> tuple[Vector, Matrix, Vector]:
    """Return the sizes of the diagnostics of data and of states, and for every datum the worst state around it.

    Around it: at its own sample, and the ones before and after it (or the start).
    """
    smoothed = bool(np.isfinite(h.auxm).any())
    data = np.nan_to_num(np.abs(h.auxm if smoothed else h.numr))
    states = np.nan_to_num(np.abs(h.auxs if smoothed else h.nusr))
    nodes = np.unique(np.concatenate([[0], run.schedule.nodes_of_rows]))
    worst = _around(states[nodes].max(axis=1, initial=0.0))
    return data, states, worst[np.searchsorted(nodes, run.schedule.nodes_of_rows)]


def _largest_of_runs(values: Matrix, threshold: float) -> Matrix:
    """Return for each entry the largest of its column among the neighbours that are beyond the threshold as well."""
    out = np.zeros_like(values)
    for j, column in enumerate(values.T):
        beyond = column > threshold
        runs = np.cumsum(np.diff(beyond, prepend=False) != 0)
        for run in np.unique(runs[beyond]):
            out[runs == run, j] = column[runs == run].max()
    return out


def _around(values: Vector) -> Vector:
    """Return the largest of each value and its two neighbours."""
    padded = np.concatenate([[0.0], values, [0.0]])
    return np.asarray(np.maximum(np.maximum(padded[:-2], padded[1:-1]), padded[2:]))


def shock_table(
    runs: Parts, histories: Histories, states: Sequence[str], entity: str | None, threshold: float
) -> pd.DataFrame:
    """Return one row a time and state."""
    parts = []
    for run, h in zip(runs, histories, strict=True):
        k, n = len(run.schedule.times), len(states)
        _, jumped = flags_of(run, h, threshold)
        columns = {"time": np.repeat(run.schedule.times, n), "state": np.tile(np.array(states, dtype=object), k)}
        parts.append(pd.DataFrame({**columns, "NUSR": h.nusr.ravel(), "AUXS": h.auxs.ravel(), "flag": jumped.ravel()}))
    return _joined(parts, runs, entity)


def sample_table(runs: Parts, histories: Histories, entity: str | None) -> pd.DataFrame:
    """Return one row a time with data."""
    from scipy.special import chdtrc

    parts = []
    for run, h in zip(runs, histories, strict=True):
        counts = np.diff(run.schedule.row_at)
        some = counts > 0
        n, chi2 = counts[some], h.chi2[some]
        parts.append(pd.DataFrame({"time": run.schedule.times[some], "n": n, "chi2": chi2, "p": chdtrc(n, chi2)}))
    return _joined(parts, runs, entity)


def contribution_table(runs: Parts, histories: Histories, variables: Sequence[str], loglik: float) -> pd.DataFrame:
    """Return one row a variable."""
    n, total, squares = (np.zeros(len(variables)) for _ in range(3))
    for run, h in zip(runs, histories, strict=True):
        if run.failure is not None:
            total += np.nan
            squares += np.nan
            continue
        assert run.run is not None, "it did not fail"
        seen = np.isfinite(h.whitened)
        which, w = run.schedule.readings.variables[seen], h.whitened[seen]
        n += np.bincount(which, minlength=len(variables))
        squares += np.bincount(which, weights=w**2, minlength=len(variables))
        log_s = np.log(_conditional_variances(run, h)[seen])
        total += np.bincount(which, weights=-0.5 * (np.log(2 * np.pi) + log_s + w**2), minlength=len(variables))
    with np.errstate(invalid="ignore", divide="ignore"):
        table = pd.DataFrame(
            {"n": n.astype(int), "loglik": total, "sumsq": squares, "mean_square": squares / n}, index=list(variables)
        )
    if any(run.run is not None and run.run.v.shape[1] for run in runs):
        table.loc["start"] = [0, loglik - float(np.sum(total)), np.nan, np.nan]
        table["n"] = table["n"].astype(int)
    return table


def _conditional_variances(run: EntityRun, h: History) -> Vector:
    """Return the variance of every datum given those before it, the unknown start's part included."""
    assert run.run is not None, "it did not fail"
    if not run.run.v.shape[1]:
        return run.run.s
    from fmepy.filtering.unknown_start import StartInformation

    out, known = np.empty(len(run.run.s)), StartInformation.none(run.run.v.shape[1])
    for i, (nu, s, v) in enumerate(zip(run.run.nu, run.run.s, run.run.v, strict=True)):
        out[i] = s + v @ known.covariance @ v
        known = known.with_data(v[None, :] / np.sqrt(s), np.array([nu / np.sqrt(s)]))
    return out


def state_table(runs: Parts, values: Sequence[Matrix], names: Sequence[str], entity: str | None) -> pd.DataFrame:
    """Return one row a time: states, then outputs."""
    parts = []
    for run, table in zip(runs, values, strict=True):
        part = pd.DataFrame(table, columns=list(names))
        part.insert(0, "time", run.schedule.times)
        parts.append(part)
    return _joined(parts, runs, entity)


def propagated(H: Cube, P: Cube) -> Matrix:
    """Return the diagonals of H P H', shape (n_time, k); NaN where it needs a variance that is not there."""
    missing = np.isnan(np.einsum("tii->ti", P))
    variances = np.einsum("tki,tij,tkj->tk", H, np.where(np.isnan(P), 0.0, P), H)
    needed = ((H != 0) & missing[:, None, :]).any(axis=2) | missing.all(axis=1)[:, None]
    return np.asarray(np.where(needed, np.nan, variances))
