"""How large the errors of readings are: sds as expressions of predictions, parameters and what is known of a row.

For reading i of variable v, with m the model's predictions at its place (in their own unit) and q parameters::

    s_i      = g_v(m_i, q, err_i, t_i)
    ds_i/dth = sum_k dg_v/dm_k dm_ik/dth + sum_k dg_v/dq_k dq_ik/dth

with the derivatives of g_v in symbols (`fmepy.language`), evaluated for all rows of a variable at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled.python_code import array_function
from fmepy.language.derivatives import derivative
from fmepy.language.equations import symbol
from fmepy.numerics.sparse import dense_jacobian, is_sparse, rows_at, scaled_rows, sparse_jacobian
from fmepy.types import IntVector, Matrix, Vector


class NoiseParameters:
    """Where the parameters of the noise come from: entries of theta, or values that are held.

    Parameters
    ----------
    values : ndarray
        Values of everything, theta's parameters among them.
    known : sequence of str
        What the first of these are called.
    take : ndarray of int, shape (n_noise_par,), or (n_obs, n_noise_par)
        The places of the noise's parameters among the values, for all readings or by reading.
    names : sequence of str
        The parameters of theta.
    """

    def __init__(self, values: Vector, known: Sequence[str], take: IntVector, names: Sequence[str]) -> None:
        place = {name: i for i, name in enumerate(known)}
        mine = [j for j, name in enumerate(names) if name in place]
        self._from, self._at = np.array(mine, dtype=np.intp), np.array([place[names[j]] for j in mine], dtype=np.intp)
        self._values, self._take, self._n_par = values, take, len(names)
        to_theta = np.full(len(values), -1, dtype=np.intp)
        to_theta[self._at] = self._from
        self._to_theta = to_theta[take]

    def values(self, theta: Vector) -> Matrix:
        """Return them, shape (n_noise_par,), or (n_obs, n_noise_par)."""
        now = self._values.copy()
        now[self._at] = theta[self._from]
        return now[self._take]

    def pull(self, slopes: Matrix, is_sparse: bool) -> Any:
        """Return derivatives to theta, shape (n_obs, n_par), of those to them, shape (n_obs, n_noise_par)."""
        jacobian = sparse_jacobian if is_sparse else dense_jacobian
        return jacobian(slopes, np.broadcast_to(self._to_theta, slopes.shape), self._n_par)


@dataclass(frozen=True, slots=True, eq=False)
class NoiseOfRows:
    """The sd of some readings, all by one expression.

    Attributes
    ----------
    sd : Node
    rows : ndarray of int, shape (n_row,)
        The readings.
    predictions : mapping of str to ndarray of int
        By name in the expression: where the prediction stands among all that are made.
    known : mapping of str to ndarray, shape (n_row,)
        What is known of a row: its own error, its time.
    """

    sd: Any
    rows: IntVector
    predictions: Mapping[str, IntVector]
    known: Mapping[str, Vector]

    def moved(self, rows: int, predictions: int) -> NoiseOfRows:
        """Return the same behind so many other readings, and predictions."""
        at = {name: place + predictions for name, place in self.predictions.items()}
        return NoiseOfRows(self.sd, self.rows + rows, at, self.known)


class NoiseModel:
    """The sds of all readings, and their derivatives.

    Parameters
    ----------
    pieces : sequence of NoiseOfRows
        Together they are of every reading once.
    names : sequence of str
        Parameters of the noise, in the order of `parameters`.
    parameters : NoiseParameters
    """

    def __init__(self, pieces: Sequence[NoiseOfRows], names: Sequence[str], parameters: NoiseParameters) -> None:
        self._pieces, self._parameters = tuple(pieces), parameters
        self._names = tuple(names)
        self._n_obs, self._n_noise = sum(len(p.rows) for p in pieces), len(names)
        own = [symbol(k) for k in names]
        groups, sds, to_prediction, to_parameter = [], [], [], []
        self._of_prediction: list[tuple[int, str]] = []
        self._of_parameter: list[tuple[int, int]] = []
        for k, piece in enumerate(self._pieces):
            sd, used = _apart(piece, own, k)
            groups.append([*used.values()])
            sds.append(sd)
            for name in piece.predictions:
                to_prediction.append(derivative(sd, used[symbol(name)]))
                self._of_prediction.append((k, name))
            for j, s in enumerate(own):
                if s in used:
                    to_parameter.append(derivative(sd, used[s]))
                    self._of_parameter.append((k, j))
        self._asked = [[j for j, s in enumerate(own) if s in piece.sd.free_symbols] for piece in self._pieces]
        self._sds, self._slopes = array_function(groups, sds), array_function(groups, [*to_prediction, *to_parameter])

    def __reduce__(self) -> Any:  # what is compiled does not travel
        return NoiseModel, (self._pieces, self._names, self._parameters)

    def sds(self, predictions: Vector, theta: Vector) -> Vector:
        """Return s, shape (n_obs,), whatever its sign."""
        return self._filled(self._sds(*self._arguments(predictions, theta)))

    def slopes(self, predictions: Vector, moved: Any, theta: Vector) -> Any:
        """Return ds/dtheta, shape (n_obs, n_par), with `moved` = d predictions / d theta; sparse if that is."""
        found = self._slopes(*self._arguments(predictions, theta))
        to_parameters = np.zeros((self._n_obs, self._n_noise))
        n = len(self._of_prediction)
        for (k, j), slope in zip(self._of_parameter, found[n:], strict=True):
            to_parameters[self._pieces[k].rows, j] = slope
        out = self._parameters.pull(to_parameters, is_sparse(moved))
        for (k, name), slope in zip(self._of_prediction, found, strict=False):
            piece = self._pieces[k]
            own = scaled_rows(moved[piece.predictions[name]], np.broadcast_to(slope, piece.rows.shape))
            if is_sparse(moved):
                out = out + rows_at(own, piece.rows, self._n_obs)
            else:
                out[piece.rows] += own
        return out

    def _arguments(self, predictions: Vector, theta: Vector) -> list[list[Any]]:
        q = self._parameters.values(theta)
        return [
            [
                *(predictions[at] for at in piece.predictions.values()),
                *piece.known.values(),
                *(q[j] if q.ndim == 1 else q[piece.rows, j] for j in asked),
            ]
            for piece, asked in zip(self._pieces, self._asked, strict=True)
        ]

    def _filled(self, values: Sequence[Any]) -> Vector:
        out = np.empty(self._n_obs)
        for piece, value in zip(self._pieces, values, strict=True):
            out[piece.rows] = value
        return out


def _apart(piece: NoiseOfRows, own: Sequence[Any], k: int) -> tuple[Any, dict[Any, Any]]:
    """Return the sd with names of its own, and those by what they stand for: predictions, what is known, parameters.

    The same name stands for other rows in another piece.
    """
    free = piece.sd.free_symbols
    wanted = [*map(symbol, piece.predictions), *map(symbol, piece.known), *(s for s in own if s in free)]
    used = {s: symbol(f"{s.name} of {k}") for s in wanted}
    return piece.sd.subs(used), used
