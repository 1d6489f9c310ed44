"""Arguments of a compiled loop of filters, and the reasons why it may end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fmepy.compiled.kernels import packed_once
from fmepy.filtering.schedule import ScheduleArrays
from fmepy.journal.encoding import Stored
from fmepy.types import Cube, IntVector, Matrix, Vector

STATE_NOT_FINITE, VARIANCE_NOT_POSITIVE, COVARIANCE_NOT_FINITE, START_NOT_SETTLED = 1, 2, 3, 4
"""Why a filter stopped: the second can another arithmetic mend; for the last one see `filtering.likelihood`."""


class CrossingWorkspace(NamedTuple):
    """Workspace of a pass through the conditions of its model, see `filtering.continuous_transition`.

    Attributes
    ----------
    loop : int
        Address of `compiled.switching.run_stretch`; 0: there are no conditions.
    course, runs, switches : int
        Addresses of what it gets.
    n_parameters, lines, origin, first_mode : int
        Among the inputs: parameters, behind which the size of the noise stands; where lines, origin and modes begin.
    begins, ends : ndarray, shape (1,)
        Of the stretch.
    inputs, values, ended : ndarray
        See `compiled.courses.RunArrays`.
    planned : ndarray of int
        Conditions of time alone.
    cuts, modes : ndarray, shape (n_cut,), (n_cut + 1, n_planned)
        Where one of these changes, and what they are before, between and behind.
    """

    loop: int
    course: int
    runs: int
    switches: int
    n_parameters: int
    lines: int
    origin: int
    first_mode: int
    begins: Vector
    ends: Vector
    inputs: Matrix
    values: Vector
    ended: Matrix
    planned: IntVector
    cuts: Vector
    modes: Matrix


NO_CROSSINGS = packed_once(CrossingWorkspace(
    *(0,) * 8, *(np.empty(0),) * 2, np.empty((0, 0)), np.empty(0), np.empty((0, 0)), np.empty(0, dtype=np.int64),
    np.empty(0), np.empty((0, 0)),
))  # fmt: skip


class LoopModel(NamedTuple):
    """A model in the form that loops take.

    Attributes
    ----------
    advance, observe, curvature, curvature_of_readings : int
        Addresses of its functions, see `filtering.statespace`; 0: there is none.
    solver : int
        Address of the function that takes a step that the explicit method cannot take; 0: there is none.
    kind : int
        What a step is, see `filtering.transition`.
    per_step : bool
        Noise is drawn once a fixed step; else it is Brownian.
    n_noise, n_variables : int
        Columns of A; observed variables.
    rtol, max_step : float
        Of the explicit method.
    atol : ndarray, shape (n + 2 n^2,) or (0,)
        Of x, Phi by rows, S by rows, this in units of the size of the noise.
    crossings : CrossingRoom
    """

    advance: int
    observe: int
    curvature: int
    curvature_of_readings: int
    solver: int
    kind: int
    per_step: bool
    n_noise: int
    n_variables: int
    rtol: float
    max_step: float
    atol: Vector
    crossings: CrossingWorkspace = NO_CROSSINGS


@dataclass(frozen=True, slots=True, eq=False)
class PassRecord(Stored, formerly="Record"):
    """States, covariances and predictions at the nodes and rows of a pass.

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
        Covariance of a sample's innovations minus H P H' + R (updates of second order, sigma points):
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


class LoopArguments(NamedTuple):
    """One pass.

    Attributes
    ----------
    update : int
        Of `filtering.square_root_loop`; the plain loop has but one.
    x, P : ndarray
        The start.
    X : ndarray, shape (n, d)
        dx/dx0 at the start.
    p : ndarray
        What the model's functions see of the parameters.
    event_values : ndarray, shape (n_event,)
    correlation : ndarray, shape (n_var, n_var) or (0, 0)
        Of the measurement errors; empty: independent.
    nu, s, v : ndarray
        The result, see `run.Pass`.
    outcome : ndarray of int, shape (3,)
        Is set to: the node at which it broke down, or -1; why; at which row.
    recorded : bool
    """

    model: LoopModel
    schedule: ScheduleArrays
    update: int
    x: Vector
    P: Matrix
    X: Matrix
    p: Vector
    event_values: Vector
    correlation: Matrix
    nu: Vector
    s: Vector
    v: Matrix
    outcome: IntVector
    recorded: bool
    record: PassRecord
