"""One pass of a filter over one entity: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.filtering.plan import Plan
from fmepy.types import Cube, Matrix, Vector

__all__ = ["Pass", "Record", "Scheme", "Start", "run_filter"]


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """How a filter goes on: its two functions and the loop's options.

    Attributes
    ----------
    loop : callable
        `filtering.loop.compiled` or `interpreted`.
    advance, observe : any
        What that loop calls.
    step_kind, algorithm : int
        See `filtering.loop`.
    per_step : bool
        Fixed steps: noise is drawn once a step; else it is Brownian.
    n_noise : int
        Columns of A.
    n_variables : int
        Observed variables.
    """

    loop: Any
    advance: Any
    observe: Any
    step_kind: int
    algorithm: int
    per_step: bool
    n_noise: int
    n_variables: int


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """Where a filter starts.

    Attributes
    ----------
    x : ndarray, shape (n,)
    P : ndarray, shape (n, n)
    free : ndarray of int, shape (d,)
        States of whose start nothing is known.
    """

    x: Vector
    P: Matrix
    free: Any


@dataclass(frozen=True, slots=True, eq=False)
class Record:
    """What happened at the nodes and rows.

    Attributes
    ----------
    x_predicted, x_filtered : ndarray, shape (n_node, n)
    P_predicted, P_filtered, transitions : ndarray, shape (n_node, n, n)
        A transition maps a change of the state after the data of the last node to one before those of this node.
    predictions, sds : ndarray, shape (n_obs,)
        Predicted readings, sds of their errors.
    gradients : ndarray, shape (n_obs, n)
        Rows of H.
    """

    x_predicted: Matrix
    P_predicted: Cube
    x_filtered: Matrix
    P_filtered: Cube
    transitions: Cube
    predictions: Vector
    gradients: Matrix
    sds: Vector


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """What a pass gives.

    Attributes
    ----------
    nu, s : ndarray, shape (n_obs,)
        Conditional innovations and their variances.
    v : ndarray, shape (n_obs, d)
        Derivatives of nu to the free components of the start.
    node : int
        Where it broke down, -1 if it did not.
    reason, row : int
        Why (see `filtering.loop`), and at which row if it was one.
    record : Record or None
    """

    nu: Vector
    s: Vector
    v: Matrix
    node: int
    reason: int
    row: int
    record: Record | None


def _empty_record(nodes: int, rows: int, n: int) -> Record:
    return Record(
        *(np.empty((nodes, n)), np.empty((nodes, n, n)), np.empty((nodes, n)), np.empty((nodes, n, n))),
        *(np.empty((nodes, n, n)), np.empty(rows), np.empty((rows, n)), np.empty(rows)),
    )


_NOTHING = _empty_record(0, 0, 0)


def run_filter(
    scheme: Scheme,
    plan: Plan,
    start: Start,
    p: Vector,
    event_values: Vector,
    correlation: Matrix,
    record: bool = False,
) -> Pass:
    """Run a filter once.

    Parameters
    ----------
    p : ndarray
        The parameters that the two functions see.
    event_values : ndarray
        Values of the model's events; a last entry 0 stands for the resets.
    correlation : ndarray, shape (n_var, n_var) or (0, 0)
        Of the measurement errors; empty: independent.
    record : bool
        Keep the states, covariances and transitions.
    """
    n, d, n_obs, n_node = len(start.x), len(start.free), len(plan.readings), len(plan.times)
    X = np.zeros((n, d))
    X[start.free, np.arange(d)] = 1.0
    nu, s, v = np.empty(n_obs), np.empty(n_obs), np.empty((n_obs, d))
    failed = np.zeros(2, dtype=np.int64)
    kept = _empty_record(n_node, n_obs, n) if record else _NOTHING
    r = plan.readings
    with np.errstate(all="ignore"):
        node = scheme.loop(
            *(scheme.advance, scheme.observe, scheme.step_kind, scheme.per_step, scheme.algorithm),
            *(scheme.n_noise, scheme.n_variables, start.x.copy(), start.P.copy(), X, p),
            *(plan.times, plan.step_at, plan.step_times, plan.step_lengths, plan.step_inputs),
            *(plan.row_at, r.variables, r.values, r.errors, plan.inputs),
            *(plan.event_at, plan.event_states, plan.event_kinds, event_values[plan.event_places], correlation),
            *(nu, s, v, failed),
            *(kept.x_predicted, kept.P_predicted, kept.x_filtered, kept.P_filtered, kept.transitions),
            *(kept.predictions, kept.gradients, kept.sds),
        )
    return Pass(nu, s, v, int(node), int(failed[0]), int(failed[1]), kept if record else None)
