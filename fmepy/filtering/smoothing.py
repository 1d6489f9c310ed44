# mypy: disallow-untyped-defs=false, allow-untyped-calls
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

A limit counts as the plain reading that would have done the same (`filtering.limits`); it has no diagnostics.

What data say of a start of which nothing was known (de Jong 1991).

The filter runs from a fixed start and carries, for every quantity, its derivative V to the d unknown components. With
the whitened innovations W and their derivatives, over the data seen so far::

    A = sum V_w' V_w,   b = sum V_w' W,   shift = - A^-1 b,   covariance of the shift = A^-1

While A is singular, quantities whose derivative reaches into its null space are not determined.

All of this is done for all nodes at once, but for the two recursions: that of dx/dx0, and the way back, a kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import new, packed
from fmepy.filtering.arrays import multiply
from fmepy.filtering.limits import equivalent_readings
from fmepy.filtering.loop_arguments import VARIANCE_NOT_POSITIVE, PassRecord
from fmepy.filtering.run import Pass
from fmepy.filtering.schedule import Schedule
from fmepy.journal.encoding import Stored
from fmepy.types import BoolVector, Cube, IntVector, Matrix, Vector

_NOTHING = 1e-9
"""A variance that cancelled below this fraction of its parts is zero."""
_SINGULAR = 1e-12
"""Eigenvalues of the scaled information below this fraction of the largest are zero."""
_REACHES = 1e-6
"""A derivative lies in the determined space if less than this fraction of it lies outside."""


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
    nodes, n = run.record.x_predicted.shape
    out = History.empty(nodes, len(schedule.readings), n, n_variables)
    sizes = np.diff(schedule.row_at)
    if run.node >= 0:  # where it broke down at the data, the prediction stands
        sizes = sizes[: run.node + (run.reason == VARIANCE_NOT_POSITIVE)].copy()
        sizes[run.node :] = 0
    if not len(sizes):
        return out
    with np.errstate(all="ignore"):  # what overflows is infinite, and shows in the tables
        samples = _samples(schedule, run, correlation, free, sizes)
        known = StartInformation.of(samples.w[:, 1:], samples.w[:, 0])
        limits = schedule.readings.all_marks != 0
        _write_forward(out, run.record, samples, known, len(sizes) if run.node < 0 else run.node, limits)
        if smooth and run.node < 0 and known.is_complete:
            _write_smoothed(out, run.record, samples, known[-1:])
    for values in (out.innovations, out.sds, out.whitened, out.numr, out.auxm):
        values[limits] = np.nan
    out.predictions[limits] = run.record.predictions[limits]
    return out


def drawn_states(
    schedule: Schedule, run: Pass, correlation: Matrix, free: IntVector, n: int, rng: np.random.Generator
) -> Cube | None:
    """Return paths of the states given all data, shape (n, n_node, n_state); None if the data leave the start open.

    A path is drawn from its end: with G = P(k|k) T' P(k+1|k)^- and x(k+1) drawn, x(k) has ::

        the mean        x(k|k) + G (x(k+1) - x(k+1|k))       and the covariance      P(k|k) - G T P(k|k)

    so that all times are jointly distributed as the filter has it (Fruehwirth-Schnatter 1994). The inverse is that
    within the range of P(k+1|k). An unknown start is drawn first.
    """
    record = run.record
    assert record is not None, "a recorded pass"
    samples = _samples(schedule, run, correlation, free, np.diff(schedule.row_at))
    known = StartInformation.of(samples.w[:, 1:], samples.w[:, 0])[-1:]
    if not known.is_complete:
        return None
    shift = known.shift + rng.standard_normal((n, len(free))) @ _transposed(_root(known.covariance)[0])
    P, T, ahead = record.P_filtered, record.transitions[1:], record.P_predicted[1:]
    size, values, vectors = _scaled_eigen(ahead)
    seen = values > _SINGULAR * np.maximum(values[:, -1:], 1e-300)
    scaled = vectors / size[:, :, None]
    weights = (seen / np.where(seen, values, 1.0))[:, None, :]
    G = P[:-1] @ _transposed(T) @ (scaled * weights) @ _transposed(scaled)
    rest = P.copy()
    rest[:-1] -= G @ T @ P[:-1]
    errors = rng.standard_normal((*P.shape[:2], n)).transpose(2, 0, 1)
    filtered = record.x_filtered + np.einsum("kij,nj->nki", samples.X_filtered, shift)
    predicted = record.x_predicted + np.einsum("kij,nj->nki", samples.X_predicted, shift)
    out: Cube = filtered + np.einsum("kij,nkj->nki", _root(rest), errors)
    for k in range(len(G) - 1, -1, -1):
        out[:, k] += (out[:, k + 1] - predicted[:, k + 1]) @ G[k].T
    return out


def _scaled_eigen(P: Cube) -> tuple[Matrix, Matrix, Cube]:
    """Return the roots of the diagonals, and eigenvalues and eigenvectors of the correlations."""
    diagonal = P.diagonal(axis1=1, axis2=2)
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(P / (size[:, :, None] * size[:, None, :]))
    return size, values, vectors


def _root(P: Cube) -> Cube:
    """Return a root of covariances, which may be singular."""
    size, values, vectors = _scaled_eigen((P + _transposed(P)) / 2)
    return np.asarray(size[:, :, None] * vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :])


@dataclass(frozen=True, slots=True, eq=False)
class _Samples:
    """What the data of the nodes say, by themselves; the smaller samples are filled up with rows of nothing.

    Attributes
    ----------
    first, sizes : ndarray of int, shape (n_node,)
    there : ndarray of bool, shape (n_node, m)
        Which rows are data.
    variables : ndarray of int, shape (n_node, m)
    H, S, inverse : ndarray, shape (n_node, m, n) and (n_node, m, m)
        Inverse: S^-1.
    K, L : ndarray, shape (n_node, n, m) and (n_node, n, n)
        The gain, and I - K H.
    X_predicted, X_filtered : ndarray, shape (n_node, n, d)
        dx/dx0.
    delta, u : ndarray, shape (n_node, m, 1 + d)
        Innovations and S^-1 delta, each with its derivatives to the unknown start.
    w : ndarray, shape (n_obs, 1 + d)
        C^-1 delta, datum by datum.
    information : ndarray, shape (n_node, n, n)
        H'S^-1 H.
    """

    first: IntVector
    sizes: IntVector
    there: BoolVector
    variables: IntVector
    H: Cube
    S: Cube
    inverse: Cube
    K: Cube
    L: Cube
    X_predicted: Cube
    X_filtered: Cube
    delta: Cube
    u: Cube
    w: Matrix
    information: Cube


def _samples(schedule: Schedule, run: Pass, correlation: Matrix, free: IntVector, sizes: IntVector) -> _Samples:
    record = run.record
    assert record is not None, "a recorded pass"
    count, m, n, d = len(sizes), int(sizes.max(initial=0)), record.x_predicted.shape[1], len(free)
    first, place, readings = schedule.row_at[:count], np.arange(m), schedule.readings
    there = place < sizes[:, None]
    rows = np.where(there, first[:, None] + place, 0)
    H, P = record.gradients[rows] * there[:, :, None], record.P_predicted[:count]
    variables = readings.variables[rows]
    of_record = record.predictions, record.sds
    distances, sds = equivalent_readings(readings.values, readings.all_marks, *of_record, run.nu, run.s)
    R = error_covariance(sds[rows] * there, correlation, variables)
    if len(record.excess):  # the curvature of the readings, where the update takes account of it
        R += record.excess[rows][:, :, :m] * (there[:, :, None] & there[:, None, :])
    S = H @ P @ _transposed(H) + R
    S[:, place, place] += ~there
    whiten = _inverse_factor(S)
    inverse = _transposed(whiten) @ whiten
    K = P @ _transposed(H) @ inverse
    L = np.eye(n) - K @ H
    X = np.zeros((2, count, n, d))
    now = np.zeros((n, d))
    now[free, np.arange(d)] = 1.0
    for node in range(count if d else 0):
        X[0, node] = record.transitions[node] @ now if node > 0 else now
        now = X[1, node] = L[node] @ X[0, node]
    delta = distances[rows] * there
    delta = np.concatenate([delta[:, :, None], -H @ X[0]], axis=2)
    w, information = (whiten @ delta)[there], _transposed(H) @ inverse @ H
    return _Samples(
        first, sizes, there, variables, H, S, inverse, K, L, X[0], X[1], delta, inverse @ delta, w, information
    )


def _write_forward(
    out: History, record: PassRecord, samples: _Samples, known: StartInformation, sound: int, limits: BoolVector
) -> None:
    """Write what the data until a node, or a row, say; those of the first `sound` nodes were taken up."""
    there, H, count, total = samples.there, samples.H, len(samples.there), int(samples.sizes.sum())
    before, after = known[samples.first], known[samples.first + samples.sizes]
    X, Y = samples.X_predicted, samples.X_filtered[:sound]
    predicted = record.x_predicted[:count], record.P_predicted[:count]
    filtered = record.x_filtered[:sound], record.P_filtered[:sound]
    out.x_predicted[:count], out.P_predicted[:count] = _with_start(*predicted, X, before)
    out.x_filtered[:sound], out.P_filtered[:sound] = _with_start(*filtered, Y, after[:sound])
    innovations, spread = _moved(samples.delta, before)
    seen = before.determines(samples.delta[:, :, 1:])
    out.innovations[:total] = np.where(seen, innovations, np.nan)[there]
    out.predictions[:total] = record.predictions[:total] + (samples.delta[there][:, 0] - out.innovations[:total])
    variances = samples.S.diagonal(axis1=1, axis2=2) + spread
    out.sds[:total] = np.sqrt(np.where(seen, variances, np.nan))[there]
    w = samples.w[:, None]  # what one datum says of the start, the next one knows
    value, more = _moved(w, known[:-1])
    out.whitened[:total] = np.where(known[:-1].determines(w[:, :, 1:]), value / np.sqrt(1 + more), np.nan)[:, 0]
    out.numr[:total] = _standardised(samples.u, samples.inverse, after)[there]
    out.nusr[:count] = _standardised(_transposed(H) @ samples.u, samples.information, after)
    squares = np.zeros(there.shape)
    squares[there] = np.where(limits[:total], 0.0, out.whitened[:total] ** 2)
    chi2 = squares.sum(axis=1)
    out.chi2[:count] = np.where((samples.sizes > 0) & np.isfinite(chi2), chi2, np.nan)
    _write_gains(out, samples, predicted[1])


def _write_gains(out: History, samples: _Samples, P_known: Cube) -> None:
    """Write the gains; while the start is open, those of the uncertainty that is left, or NaN.

    P_known : the covariance from a start that is known
    """
    K, H, P = samples.K, samples.H, out.P_predicted[: len(samples.there)]
    if samples.X_predicted.shape[2]:
        whiten = _inverse_factor(samples.S + H @ (P - P_known) @ _transposed(H))
        K = P @ _transposed(H) @ _transposed(whiten) @ whiten
    full = np.isfinite(out.chi2[: len(P)]) & np.isfinite(P).all(axis=(1, 2))
    of_variable = samples.variables[:, :, None] == np.arange(out.gains.shape[2])
    read = of_variable & (samples.there & full[:, None])[:, :, None]
    out.gains[: len(P)] = np.where(read.any(axis=1)[:, None], K @ read, np.nan)  # of repeated readings the sum


def _write_smoothed(out: History, record: PassRecord, samples: _Samples, known: StartInformation) -> None:
    """Write the smoothed states and the diagnostics that use all data; `known` is the last of them."""
    K, X, P = samples.K, samples.X_filtered, record.P_filtered
    data, information = _transposed(samples.H) @ samples.u, samples.information.copy()
    # a path without noise hands its arrays on as it made them, whatever their order in memory
    given = record.transitions, samples.L, np.zeros(data.shape), np.zeros(information.shape), data, information
    sweep = BackwardPass(*map(np.ascontiguousarray, given))
    words = packed(sweep)
    c_loop(backward_pass, "the way back of the smoother")(address(words))
    Pr = P @ sweep.r  # less cancels than from the prediction
    out.x_smoothed[:], smoothed = _with_start(
        record.x_filtered + Pr[:, :, 0], P - P @ sweep.N @ P, X + Pr[:, :, 1:], known
    )
    out.P_smoothed[:] = (smoothed + _transposed(smoothed)) / 2
    D = samples.inverse + _transposed(K) @ sweep.N @ K
    out.auxm[:] = _standardised(samples.u - _transposed(K) @ sweep.r, D, known)[samples.there]
    out.auxs[:] = _standardised(sweep.r_before, sweep.N_before, known)


class BackwardPass(NamedTuple):
    """The recursion backwards; of r its derivative to the unknown start goes along.

    Attributes
    ----------
    transitions, L : ndarray, shape (n_node, n, n)
    r, N : ndarray, shape (n_node, n, 1 + d) and (n_node, n, n)
        Behind the data of a node: zeros, to be written.
    r_before, N_before : ndarray
        Before them: H'u and H'S^-1 H, to which the rest is added.
    """

    transitions: Cube
    L: Cube
    r: Cube
    N: Cube
    r_before: Cube
    N_before: Cube


def _add_transposed_product(F, A, out):
    """Add F' A."""
    for k in range(F.shape[0]):
        for i in range(F.shape[1]):
            f = F[k, i]
            for j in range(A.shape[1]):
                out[i, j] += f * A[k, j]


def backward_pass(sweep: BackwardPass) -> None:
    """Go back from the last node."""
    last, n = sweep.N.shape[0] - 1, sweep.N.shape[1]
    work = new(n, n)
    for node in range(last, -1, -1):
        if node < last:
            T = sweep.transitions[node + 1]
            _add_transposed_product(T, sweep.r_before[node + 1], sweep.r[node])
            multiply(sweep.N_before[node + 1], T, n, work, 0)
            _add_transposed_product(T, work, sweep.N[node])
        _add_transposed_product(sweep.L[node], sweep.r[node], sweep.r_before[node])
        multiply(sweep.N[node], sweep.L[node], n, work, 0)
        _add_transposed_product(sweep.L[node], work, sweep.N_before[node])


def error_covariance(sds: Matrix, correlation: Matrix, variables: IntVector) -> Cube:
    """Return R of one sample, or of several; repeated readings of one variable have errors of their own."""
    a, b = variables[..., :, None], variables[..., None, :]
    own = np.arange(sds.shape[-1])
    R = np.zeros((*sds.shape, len(own)))
    if len(correlation):
        R = np.where(a == b, 0.0, sds[..., :, None] * sds[..., None, :] * correlation[a, b])
    R[..., own, own] = sds**2
    return R


def _transposed(A: Cube) -> Cube:
    return A.swapaxes(-1, -2)


def _inverse_factor(S: Cube) -> Cube:
    """Return C^-1 with S = C C', C lower; NaN where S is not positive."""
    m = S.shape[1]
    W = np.concatenate([S, np.broadcast_to(np.eye(m), S.shape)], axis=2)
    for i in range(m):  # [S, I] becomes [C', C^-1]
        W[:, i] /= np.sqrt(W[:, i, i])[:, None]
        W[:, i + 1 :] -= W[:, i, i + 1 : m, None] * W[:, i, None]
    W[~np.isfinite(W).all(axis=(1, 2))] = np.nan
    return W[:, :, m:]


def _moved(values: Cube, known: StartInformation) -> tuple[Matrix, Matrix]:
    """Return values, shape (k, m, 1 + d) with their derivatives, at the known start, and its part of variances."""
    slopes = values[:, :, 1:]
    return values[:, :, 0] + (slopes @ known.shift[:, :, None])[:, :, 0], ((slopes @ known.covariance) * slopes).sum(
        axis=2
    )


def _standardised(values: Cube, covariance: Cube, known: StartInformation) -> Matrix:
    """Return values over the roots of their variances; NaN where one is zero, or but the rounding of its parts.

    covariance : of the values, were the start known
    """
    own = covariance.diagonal(axis1=1, axis2=2)
    value, less = _moved(values, known)
    return np.where(own - less > _NOTHING * np.abs(own), value / np.sqrt(own - less), np.nan)


def _with_start(x: Matrix, P: Cube, X: Cube, known: StartInformation) -> tuple[Matrix, Cube]:
    """Return states and covariances with what is known of the start; NaN for components that are not determined."""
    if not X.shape[2]:
        return x, P
    x, P = x + (X @ known.shift[:, :, None])[:, :, 0], P + X @ known.covariance @ _transposed(X)
    open_ = ~known.determines(X)
    x[open_] = P[open_[:, :, None] | open_[:, None, :]] = np.nan
    return x, P


@dataclass(frozen=True, slots=True, eq=False)
class StartInformation:
    """The information of data on the unknown components of a start: before the first datum, and after each of them.

    Attributes
    ----------
    shift : ndarray, shape (k, d)
        Smallest one that fits the data.
    covariance : ndarray, shape (k, d, d)
        Of the shift, within the determined space.
    size : ndarray, shape (k, d)
        What brings derivatives to one scale.
    null : ndarray, shape (k, d, d)
        On that scale, directions that the data have said nothing of; zeros in the place of the others.
    """

    shift: Matrix
    covariance: Cube
    size: Matrix
    null: Cube

    @classmethod
    def of(cls, V: Matrix, W: Vector) -> StartInformation:
        """Return the information of whitened innovations W, shape (n_obs,), and their derivatives V, (n_obs, d)."""
        d = V.shape[1]
        A, b = np.zeros((len(V) + 1, d, d)), np.zeros((len(V) + 1, d))
        np.cumsum(V[:, :, None] * V[:, None, :], axis=0, out=A[1:])
        np.cumsum(V * W[:, None], axis=0, out=b[1:])
        diagonal = A.diagonal(axis1=1, axis2=2)
        size = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
        values, vectors = np.linalg.eigh(A * size[:, :, None] * size[:, None, :])
        seen = values > _SINGULAR * np.maximum(values[:, -1:], 1e-300)
        scaled = size[:, :, None] * vectors
        covariance = (scaled * (seen / np.where(seen, values, 1.0))[:, None, :]) @ _transposed(scaled)
        shift = -(covariance @ b[:, :, None])[:, :, 0]
        return cls(shift, covariance, size, vectors * ~seen[:, None, :])

    def __getitem__(self, at: slice | IntVector) -> StartInformation:
        return StartInformation(self.shift[at], self.covariance[at], self.size[at], self.null[at])

    def variances(self, s: Vector, v: Matrix) -> Vector:
        """Return variances s given the start, of data with the derivatives v, with the part of the unknown start."""
        return np.asarray(s + np.einsum("ij,ijk,ik->i", v, self.covariance, v))

    @property
    def is_complete(self) -> bool:
        """Whether in the end every component is determined."""
        return not self.null[-1].any()

    def determines(self, V: Cube) -> BoolVector:
        """Tell of every row of derivatives, shape (k, m, d), whether its quantity is determined."""
        scaled = V * self.size[:, None, :]
        reach = np.linalg.norm(scaled @ self.null, axis=2)
        return np.asarray(reach <= _REACHES * np.linalg.norm(scaled, axis=2))
