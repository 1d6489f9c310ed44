"""A recorded pass -> states with all data, and what the data and the equations say against each other.

With innovation delta, S = H P H' + R, K = P H' S^-1 at every node, and T the map of a change of the state from behind
the data of a node to before those of the next (events, resets and all steps between them composed), backwards from
r = 0, N = 0 behind the last data (de Jong 1988; Peterson 1976 for the unsmoothed forms)::

    u  = S^-1 delta             NUMR = u / sqrt diag S^-1              NUSR = H'u / sqrt diag H'S^-1 H
    u* = u - K' r               AUXM = u* / sqrt diag (S^-1 + K'N K)
                                x(n|N) = x(n|n) + P(n|n) r             P(n|N) = P(n|n) - P(n|n) N P(n|n)
    r <- H'u + (I - K H)' r     AUXS = r / sqrt diag N
    N <- H'S^-1 H + (I - K H)' N (I - K H)
    r <- T' r,  N <- T' N T     between nodes

No P and no R is inverted: P may be singular, R zero, T singular. All diagnostics have variance one under the model;
NUMR^2 / 2 and AUXM^2 / 2 are what a free error of that datum would add to the log-likelihood of the data until then,
and of all data; NUSR and AUXS are the same for a jump of a state. Where 0/0 they are NaN.

With an unknown start every quantity carries its derivative to it, and its estimate enters with its uncertainty
(`filtering.smoothing`): u = M (z - mean) with the covariance M = S^-1 - U A^-1 U'.

What data say of a start of which nothing was known (de Jong 1991).

The filter runs from a fixed start and carries, for every quantity, its derivative V to the d unknown components. With
the whitened innovations W and their derivatives, over the data seen so far::

    A = sum V_w' V_w,   b = sum V_w' W,   shift = - A^-1 b,   covariance of the shift = A^-1

While A is singular, quantities whose derivative reaches into its null space are not determined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fmepy.filtering.loop_arguments import PassRecord
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import Schedule
from fmepy.journal.encoding import Stored
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector

_NOTHING = 1e-9
"""A variance that cancelled below this fraction of its parts is zero."""


@dataclass(frozen=True, slots=True, eq=False)
class History(Stored):
    """States and diagnostics of one entity, by node and by row of data; NaN where there is no value.

    Attributes
    ----------
    x_predicted, x_filtered, x_smoothed : ndarray, shape (n_node, n)
    P_predicted, P_filtered, P_smoothed : ndarray, shape (n_node, n, n)
    nusr, auxs : ndarray, shape (n_node, n)
    chi2 : ndarray, shape (n_node,)
        delta' S^-1 delta; NaN without data.
    gains : ndarray, shape (n_node, n, n_var)
        K by observed variable, of repeated readings the sum; NaN where a variable was not read.
    predictions, innovations, sds, whitened, numr, auxm : ndarray, shape (n_obs,)
        `sds` are the roots of the diagonal of S, `whitened` is C^-1 delta with S = C C', C lower.
    """

    x_predicted: Matrix
    x_filtered: Matrix
    x_smoothed: Matrix
    P_predicted: Cube
    P_filtered: Cube
    P_smoothed: Cube
    nusr: Matrix
    auxs: Matrix
    chi2: Vector
    gains: Cube
    predictions: Vector
    innovations: Vector
    sds: Vector
    whitened: Vector
    numr: Vector
    auxm: Vector

    @classmethod
    def empty(cls, nodes: int, rows: int, n: int, n_variables: int) -> History:
        """Return a history of NaN."""
        states, cubes = [(nodes, n)] * 3, [(nodes, n, n)] * 3
        shapes = [*states, *cubes, (nodes, n), (nodes, n), (nodes,), (nodes, n, n_variables), *[(rows,)] * 6]
        return cls(*(np.full(shape, np.nan) for shape in shapes))


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """What the backward pass needs of the data of a node."""

    rows: slice
    H: Matrix
    inverse: Matrix  # S^-1
    u: Vector
    U: Matrix  # du/dx0
    K: Matrix


def history_of(
    schedule: Schedule, run: Pass, correlation: Matrix, free: IntVector, n_variables: int, smooth: bool
) -> History:
    """Return states and diagnostics of a recorded pass; NaN from the node at which it broke down.

    Parameters
    ----------
    correlation : ndarray, shape (n_var, n_var) or (0, 0)
        Of the measurement errors.
    free : ndarray of int, shape (d,)
        States of whose start nothing is known.
    smooth : bool
        False leaves x_smoothed, P_smoothed, auxm and auxs NaN.
    """
    assert run.record is not None, "a recorded pass"
    n, nodes = run.record.x_predicted.shape[1], len(schedule.times)
    out = History.empty(nodes, len(schedule.readings), n, n_variables)
    way = _WayForward(out, schedule, run.record, correlation, free)
    with np.errstate(all="ignore"):  # what overflows is infinite, and shows in the tables
        for node in range(nodes if run.node < 0 else run.node):
            way.go(node)
        if not way.known.is_complete:
            return out
        if run.node >= 0 and run.reason == 2:  # it broke down at the data, the prediction stands
            way.predict(run.node)
        elif smooth and run.node < 0:
            _backward(out, run.record, way.samples, way.slopes, way.known)
    return out


class _WayForward:
    """What the data until a node say, node by node.

    Attributes
    ----------
    X : ndarray, shape (n, d)
        dx/dx0.
    known : StartInformation
    samples : list of (_Sample or None)
        Of every node.
    slopes : list of ndarray
        X behind every node.
    """

    def __init__(
        self, out: History, schedule: Schedule, record: PassRecord, correlation: Matrix, free: IntVector
    ) -> None:
        self.out, self.schedule, self.record, self.correlation = out, schedule, record, correlation
        self.X: Matrix = np.zeros((record.x_predicted.shape[1], len(free)))
        self.X[free, np.arange(len(free))] = 1.0
        self.known = StartInformation.none(len(free))
        self.samples: list[_Sample | None] = []
        self.slopes: list[Matrix] = []

    def predict(self, node: int) -> None:
        """Go to a node, and write its prediction."""
        if node > 0:
            self.X = self.record.transitions[node] @ self.X
        self._write("predicted", node)

    def go(self, node: int) -> None:
        """Go to a node, and take up its data."""
        self.predict(node)
        rows = slice(int(self.schedule.row_at[node]), int(self.schedule.row_at[node + 1]))
        self.samples.append(self._sample(node, rows) if rows.stop > rows.start else None)
        self._write("filtered", node)
        self.slopes.append(self.X)

    def _write(self, kind: str, node: int) -> None:
        """Write state and covariance with what is known of the start; NaN for components that are not determined."""
        states, covariances = getattr(self.out, f"x_{kind}"), getattr(self.out, f"P_{kind}")
        states[node], covariances[node] = (getattr(self.record, f"{what}_{kind}")[node] for what in "xP")
        if self.X.shape[1]:
            states[node] += self.X @ self.known.shift
            covariances[node] += self.X @ self.known.covariance @ self.X.T
            open_ = ~self.known.determines(self.X)
            states[node, open_] = covariances[node, open_, :] = covariances[node, :, open_] = np.nan

    def _sample(self, node: int, rows: slice) -> _Sample:
        """Write what the data of a node say, and return what the way back needs of them."""
        out, record, readings = self.out, self.record, self.schedule.readings
        variables, P, H = readings.variables[rows], record.P_predicted[node], record.gradients[rows]
        delta, V = readings.values[rows] - record.predictions[rows], -H @ self.X
        R = error_covariance(record.sds[rows], self.correlation, variables) + _excess(record, rows)
        S = H @ P @ H.T + R
        whiten = _inverse_factor(S)
        W, VW = whiten @ delta, whiten @ V
        inverse = whiten.T @ whiten
        K = P @ H.T @ inverse
        sample = _Sample(rows, H, inverse, whiten.T @ W, whiten.T @ VW, K)
        self._innovations(rows, delta, S, V, W, VW)
        self.known = known = self.known.with_data(VW, W) if self.X.shape[1] else self.known
        u = sample.u + sample.U @ known.shift
        M = inverse - sample.U @ known.covariance @ sample.U.T
        out.numr[rows] = _standardised(u, M, inverse)
        out.nusr[node] = _standardised(H.T @ u, H.T @ M @ H, H.T @ inverse @ H)
        if np.isfinite(out.whitened[rows]).all():
            out.chi2[node] = np.sum(out.whitened[rows] ** 2)
            self._gains(node, variables, K, H, R)
        self.X = self.X + K @ V
        return sample

    def _innovations(self, rows: slice, delta: Vector, S: Matrix, V: Matrix, W: Vector, VW: Matrix) -> None:
        """Write predictions, innovations, their sds and the whitened innovations of a sample."""
        out, predictions, known = self.out, self.record.predictions[rows], self.known
        if not V.shape[1]:
            out.predictions[rows], out.innovations[rows] = predictions, delta
            out.sds[rows], out.whitened[rows] = np.sqrt(np.diag(S)), W
            return
        seen = known.determines(V)
        out.innovations[rows] = np.where(seen, delta + V @ known.shift, np.nan)
        out.predictions[rows] = np.where(seen, predictions - V @ known.shift, np.nan)
        out.sds[rows] = np.where(seen, np.sqrt(np.diag(S + V @ known.covariance @ V.T)), np.nan)
        for i in range(len(W)):  # what one datum says of the start, the next one knows
            v = VW[i : i + 1]
            if known.determines(v)[0]:
                variance = 1 + (v @ known.covariance @ v.T)[0, 0]
                out.whitened[rows.start + i] = (W[i] + v[0] @ known.shift) / np.sqrt(variance)
            known = known.with_data(v, W[i : i + 1])

    def _gains(self, node: int, variables: IntVector, K: Matrix, H: Matrix, R: Matrix) -> None:
        """Write the gains; while the start is open, those of the uncertainty that is left, or NaN."""
        P = self.out.P_predicted[node]
        if not np.isfinite(P).all():
            return
        if self.X.shape[1]:
            whiten = _inverse_factor(H @ P @ H.T + R)
            K = P @ H.T @ whiten.T @ whiten
        self.out.gains[node, :, variables] = 0.0
        for i, v in enumerate(variables):
            self.out.gains[node, :, v] += K[:, i]


def _backward(
    out: History, record: PassRecord, samples: list[_Sample | None], slopes: list[Matrix], known: StartInformation
) -> None:
    """Write the smoothed states and the diagnostics that use all data."""
    n, d = slopes[0].shape
    r, N, Q = np.zeros(n), np.zeros((n, n)), np.zeros((n, d))  # Q = dr/dx0
    for node in range(len(samples) - 1, -1, -1):
        if node + 1 < len(samples):
            T = record.transitions[node + 1]
            r, N, Q = T.T @ r, T.T @ N @ T, T.T @ Q
        P, X = record.P_filtered[node], slopes[node]  # less cancels than from the prediction
        out.x_smoothed[node] = record.x_filtered[node] + P @ r + (X + P @ Q) @ known.shift
        smoothed = P - P @ N @ P + (X + P @ Q) @ known.covariance @ (X + P @ Q).T
        out.P_smoothed[node] = (smoothed + smoothed.T) / 2
        sample = samples[node]
        if sample is not None:
            K, H = sample.K, sample.H
            U = sample.U - K.T @ Q
            D = sample.inverse + K.T @ N @ K
            out.auxm[sample.rows] = _standardised(
                sample.u - K.T @ r + U @ known.shift, D - U @ known.covariance @ U.T, D
            )
            L = np.eye(n) - K @ H
            r = H.T @ sample.u + L.T @ r
            Q = H.T @ sample.U + L.T @ Q
            N = H.T @ sample.inverse @ H + L.T @ N @ L
        out.auxs[node] = _standardised(r + Q @ known.shift, N - Q @ known.covariance @ Q.T, N)


def error_covariance(sds: Vector, correlation: Matrix, variables: IntVector) -> Matrix:
    """Return R of one sample; repeated readings of one variable have errors of their own."""
    if not len(correlation):
        return np.diag(sds**2)
    R = np.outer(sds, sds) * correlation[np.ix_(variables, variables)]
    R[variables[:, None] == variables[None, :]] = 0.0
    R[np.diag_indices_from(R)] = sds**2
    return R


def _excess(record: PassRecord, rows: slice) -> Matrix:
    """Return what S has beside H P H' and the errors: curvature, where the update takes account of it."""
    excess = getattr(record, "excess", None)
    k = rows.stop - rows.start
    return np.zeros((k, k)) if excess is None or not len(excess) else excess[rows, :k]


def _inverse_factor(S: Matrix) -> Matrix:
    """Return C^-1 with S = C C', C lower; NaN if S is not positive."""
    try:
        C = np.linalg.cholesky(S)
    except np.linalg.LinAlgError:
        return np.full_like(S, np.nan)
    out = np.zeros_like(S)
    for i, row in enumerate(C):  # LAPACK's threads cost more than such small triangles
        out[i, i] = 1.0
        out[i] = (out[i] - row[:i] @ out[:i]) / row[i]
    return out


def _standardised(values: Vector, covariance: Matrix, before: Matrix) -> Vector:
    """Return values over the roots of a diagonal; NaN where it is zero, or but the rounding of `before`."""
    variance = covariance.diagonal()
    return np.where(variance > _NOTHING * np.abs(before.diagonal()), values / np.sqrt(variance), np.nan)


_SINGULAR = 1e-12
"""Eigenvalues of the scaled information below this fraction of the largest are zero."""
_REACHES = 1e-6
"""A derivative lies in the determined space if less than this fraction of it lies outside."""


@dataclass(frozen=True, slots=True, eq=False)
class StartInformation:
    """The information of data on the unknown components of a start.

    Attributes
    ----------
    A : ndarray, shape (d, d)
    b : ndarray, shape (d,)
    shift : ndarray, shape (d,)
        Smallest one that fits the data.
    covariance : ndarray, shape (d, d)
        Of the shift, within the determined space.
    null : ndarray, shape (d, k)
        Directions that the data have said nothing of.
    """

    A: Matrix
    b: Vector
    shift: Vector
    covariance: Matrix
    null: Matrix

    @classmethod
    def none(cls, d: int) -> StartInformation:
        """Return what is known before any data."""
        return cls(np.zeros((d, d)), np.zeros(d), np.zeros(d), np.zeros((d, d)), np.eye(d))

    def with_data(self, V: Matrix, W: Vector) -> StartInformation:
        """Return the information with further whitened innovations W, shape (m,), and their derivatives V, (m, d)."""
        A, b = self.A + V.T @ V, self.b + V.T @ W
        diagonal = np.diag(A)
        size = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        values, vectors = np.linalg.eigh(A * np.outer(size, size))
        seen = values > _SINGULAR * max(values[-1], 1e-300)
        scaled = size[:, None] * vectors[:, seen]
        covariance = (scaled / values[seen]) @ scaled.T
        return StartInformation(A, b, -covariance @ b, covariance, vectors[:, ~seen] / size[:, None])

    @property
    def is_complete(self) -> bool:
        """Whether every component is determined."""
        return not self.null.shape[1]

    def determines(self, V: Matrix) -> BoolVector:
        """Tell of every row of derivatives, shape (k, d), whether its quantity is determined."""
        if self.is_complete:
            return np.ones(len(V), dtype=bool)
        # `null` holds unit vectors of the scaled space divided by its scale: reach and length in the same units
        diagonal = np.diag(self.A)
        size = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        scaled = V * size
        reach = np.linalg.norm(scaled @ (self.null * size[:, None]), axis=1)
        return np.asarray(reach <= _REACHES * np.linalg.norm(scaled, axis=1))
