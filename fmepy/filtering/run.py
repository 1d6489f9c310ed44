"""One pass of a filter over one entity: arrays in, arrays out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.filtering.schedule import Schedule
from fmepy.results.encoding import Stored
from fmepy.types import Cube, Matrix, Vector

__all__ = ["Functions", "Pass", "Record", "Scheme", "Start", "run_filter"]

VARIANCE_NOT_POSITIVE = 2
"""The reason (see `filtering.loop`) that another arithmetic can mend."""


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """A model's functions, ready for a loop.

    Attributes
    ----------
    by_pointer : bool
        Compiled, for a compiled loop; else callables, for an interpreted one.
    advance, observe : any
        See `filtering.statespace`.
    step_kind : int
        See `filtering.loop`.
    n_noise : int
        Columns of A.
    """

    by_pointer: bool
    advance: Any
    observe: Any
    step_kind: int
    n_noise: int


@dataclass(frozen=True, slots=True, eq=False)
class Scheme:
    """How a filter goes on: its two functions and the loop's options.

    Attributes
    ----------
    loop : callable
        That of `filtering.loop` or of `filtering.square_root_loop`, compiled or interpreted.
    advance, observe : any
        What that loop calls.
    step_kind, algorithm : int
        See `filtering.loop`; for `filtering.square_root_loop` the update.
    per_step : bool
        Fixed steps: noise is drawn once a step; else it is Brownian.
    n_noise : int
        Columns of A.
    n_variables : int
        Observed variables.
    curvatures : tuple
        The two further functions of `filtering.square_root_loop`; empty: the plain loop.
    safe : callable or None
        Returns the scheme for a pass that broke down here.
    options : (bool or None, bool or None)
        Of the plain loop: True for Runge and Kutta's steps, for the joint update; None where they are not wanted.
    """

    loop: Any
    advance: Any
    observe: Any
    step_kind: int
    algorithm: int
    per_step: bool
    n_noise: int
    n_variables: int
    curvatures: tuple[Any, ...] = ()
    safe: Callable[[], Scheme] | None = None
    options: tuple[bool | None, bool | None] = (True, True)


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
class Record(Stored):
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
    excess : ndarray, shape (n_obs, most rows of a sample), or (0, 0)
        What the covariance of a sample's innovations has beside H P H' + R (updates of second order, sigma points):
        row i, column j is that of data i and of the j-th of its sample.
    """

    x_predicted: Matrix
    P_predicted: Cube
    x_filtered: Matrix
    P_filtered: Cube
    transitions: Cube
    predictions: Vector
    gradients: Matrix
    sds: Vector
    excess: Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Pass(Stored):
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
    is_safe : bool
        Square roots of covariances were kept, as asked or because the plain pass broke down.
    """

    nu: Vector
    s: Vector
    v: Matrix
    node: int
    reason: int
    row: int
    record: Record | None
    is_safe: bool = False


def _empty_record(nodes: int, rows: int, n: int, together: int) -> Record:
    return Record(
        *(np.empty((nodes, n)), np.empty((nodes, n, n)), np.empty((nodes, n)), np.empty((nodes, n, n))),
        *(np.empty((nodes, n, n)), np.empty(rows), np.empty((rows, n)), np.empty(rows)),
        np.zeros((rows if together else 0, together)),
    )


_NOTHING = _empty_record(0, 0, 0, 0)


def run_filter(
    scheme: Scheme,
    schedule: Schedule,
    start: Start,
    p: Vector,
    event_values: Vector,
    correlation: Matrix,
    record: bool = False,
) -> Pass:
    """Run a filter once; where it loses its digits, once more with factors of covariances.

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
    run = _one_pass(scheme, schedule, start, p, event_values, correlation, record)
    if run.node >= 0 and run.reason == VARIANCE_NOT_POSITIVE and scheme.safe is not None:
        run = _one_pass(scheme.safe(), schedule, start, p, event_values, correlation, record)
    return run


def _one_pass(
    scheme: Scheme, schedule: Schedule, start: Start, p: Vector, event_values: Vector, correlation: Matrix, record: bool
) -> Pass:
    n, d, n_obs, n_node = len(start.x), len(start.free), len(schedule.readings), len(schedule.times)
    X = np.zeros((n, d))
    X[start.free, np.arange(d)] = 1.0
    nu, s, v = np.empty(n_obs), np.empty(n_obs), np.empty((n_obs, d))
    failed = np.zeros(2, dtype=np.int64)
    kept = _NOTHING
    if record:
        together = int(np.max(np.diff(schedule.row_at), initial=0)) if scheme.curvatures else 0
        kept = _empty_record(n_node, n_obs, n, together)
    r = schedule.readings
    with np.errstate(all="ignore"):
        node = scheme.loop(
            *(scheme.advance, scheme.observe, *(scheme.curvatures or scheme.options)),
            *(scheme.step_kind, scheme.per_step, scheme.algorithm),
            *(scheme.n_noise, scheme.n_variables, start.x.copy(), start.P.copy(), X, p),
            *(schedule.times, schedule.step_at, schedule.step_times, schedule.step_lengths, schedule.step_inputs),
            *(schedule.row_at, r.variables, r.values, r.errors, schedule.inputs),
            *(
                schedule.event_at,
                schedule.event_states,
                schedule.event_kinds,
                event_values[schedule.event_places],
                correlation,
            ),
            *(nu, s, v, failed),
            *(kept.x_predicted, kept.P_predicted, kept.x_filtered, kept.P_filtered, kept.transitions),
            *(kept.predictions, kept.gradients, kept.sds),
            *((kept.excess,) if scheme.curvatures else ()),
        )
    reason, row = failed.tolist()
    return Pass(nu, s, v, int(node), reason, row, kept if record else None, bool(scheme.curvatures))
