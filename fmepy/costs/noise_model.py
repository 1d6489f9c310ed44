"""How large the errors of readings are: sds as expressions of predictions, parameters and what is known of a row.

For reading i of variable v, with m the model's predictions at its place (in their own unit) and q parameters::

    s_i      = g_v(m_i, q, err_i, t_i)
    ds_i/dth = sum_k dg_v/dm_k dm_ik/dth + sum_k dg_v/dq_k dq_ik/dth

with the derivatives of g_v in symbols (`fmepy.language`), evaluated for all rows of a variable at once.

What a simulation cost is told of its noise, checked, and turned into the noise of every reading.

An observed variable has its noise from the words of `measurement_noise` (`fmepy.costs.noise` reads them), where ``err``
is the datum's own error, or from the column of errors alone; never from both, and never from nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.compiled.python_code import array_function
from fmepy.costs.noise import (
    ERR,
    MEASUREMENT,
    check_error_sd,
    guessed_sd,
    no_error_said,
    read_noise,
    scale_parameters,
    with_noise_parameters,
)
from fmepy.costs.observations import Comparison
from fmepy.errors import ArgumentError
from fmepy.language.derivatives import derivative
from fmepy.language.equations import names_in, symbol
from fmepy.models.running.forcings import forcing_values
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

    def functions(self, names: Sequence[str]) -> tuple[list[int], Callable[..., Any], Callable[..., Any]]:
        """Return which parameters it depends on, and as functions of `arguments` the sd and its derivatives.

        Those to the predictions come first, then those to the parameters.
        """
        used = [j for j, name in enumerate(names) if name in names_in([self.sd])]
        moving = [*map(symbol, self.predictions), *(symbol(names[j]) for j in used)]
        inputs = [[*moving, *map(symbol, self.known)]]
        return used, array_function(inputs, [self.sd]), array_function(inputs, [derivative(self.sd, s) for s in moving])

    def arguments(self, predictions: Vector, q: Matrix, used: Sequence[int]) -> list[Any]:
        """Return what the functions take: predictions, the parameters that are used, and what is known."""
        parameters = [q[j] if q.ndim == 1 else q[self.rows, j] for j in used]
        return [*(predictions[at] for at in self.predictions.values()), *parameters, *self.known.values()]


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
        self._pieces, self._names, self._parameters = tuple(pieces), tuple(names), parameters
        self.n_obs = sum(len(p.rows) for p in pieces)
        self._functions = [piece.functions(self._names) for piece in self._pieces]

    def __reduce__(self) -> Any:  # what is compiled does not travel
        return NoiseModel, (self._pieces, self._names, self._parameters)

    def sds(self, predictions: Vector, theta: Vector) -> Vector:
        """Return s, shape (n_obs,), whatever its sign."""
        q, out = self._parameters.values(theta), np.empty(self.n_obs)
        for piece, (used, sd, _) in zip(self._pieces, self._functions, strict=True):
            out[piece.rows] = sd(piece.arguments(predictions, q, used))[0]
        return out

    def slopes(self, predictions: Vector, moved: Any, theta: Vector) -> Any:
        """Return ds/dtheta, shape (n_obs, n_par), with `moved` = d predictions / d theta; sparse if that is."""
        to_parameters, to_predictions = self._partials(predictions, theta)
        out = self._parameters.pull(to_parameters, is_sparse(moved))
        for rows, places, slope in to_predictions:
            own = scaled_rows(moved[places], np.broadcast_to(slope, rows.shape))
            if is_sparse(moved):
                out = out + rows_at(own, rows, self.n_obs)
            else:
                out[rows] += own
        return out

    def pulled(self, predictions: Vector, theta: Vector, of_s: Vector) -> tuple[Vector, Vector]:
        """Return dL/dpredictions and dL/dtheta, the former held, from dL/ds, shape (n_obs,), of a number L."""
        to_parameters, to_predictions = self._partials(predictions, theta)
        out = np.zeros(len(predictions))
        for rows, places, slope in to_predictions:
            np.add.at(out, places, of_s[rows] * slope)
        return out, of_s @ self._parameters.pull(to_parameters, False)

    def _partials(self, predictions: Vector, theta: Vector) -> tuple[Matrix, list[tuple[Any, Any, Any]]]:
        """Return ds by the noise's parameters, and of every piece its rows, which predictions, and ds by these."""
        q, to_parameters = self._parameters.values(theta), np.zeros((self.n_obs, len(self._names)))
        to_predictions = []
        for piece, (used, _, slopes) in zip(self._pieces, self._functions, strict=True):
            found = slopes(piece.arguments(predictions, q, used))
            for j, slope in zip(used, found[len(piece.predictions) :], strict=True):
                to_parameters[piece.rows, j] = slope
            to_predictions += [(piece.rows, *both) for both in zip(piece.predictions.values(), found, strict=False)]
        return to_parameters, to_predictions


@dataclass(frozen=True, slots=True, eq=False)
class MeasurementNoise:
    """The noise of the readings of a cost.

    Attributes
    ----------
    sds : mapping of str to Node
        By observed variable.
    names : tuple of str
        Parameters in the expressions, those of the model included.
    values : mapping of str to float
        Those that the model does not have.
    guesses : tuple of str
        Those among them whose value nobody gave.
    scales : tuple of str
        Those among them that only scale sds.
    others : mapping of str to tuple of str
        By observed variable: further variables of the model that its sd wants to know.
    known : mapping of str to ndarray, shape (n_obs,)
        What is known of every reading, by name: time and forcings.
    """

    sds: Mapping[str, Any]
    names: tuple[str, ...]
    values: Mapping[str, float]
    guesses: tuple[str, ...]
    scales: tuple[str, ...]
    others: Mapping[str, tuple[str, ...]]
    known: Mapping[str, Vector]

    def further(self, c: Comparison) -> tuple[tuple[str, ...], IntVector]:
        """Return what else is to be looked up in a run: variables, and the readings at whose places."""
        wanted = [(other, _rows(c, name)) for name, others in self.others.items() for other in others]
        names = tuple(other for other, rows in wanted for _ in rows)
        return names, np.concatenate([np.empty(0, dtype=np.intp), *(rows for _, rows in wanted)]).astype(np.intp)

    def of_rows(self, c: Comparison, first: int, further: int) -> list[NoiseOfRows]:
        """Return the noise of the readings of every variable.

        first, further : int
            Where the predictions of the readings begin among all that are made, and those of `further`.
        """
        out = []
        for name, sd in self.sds.items():
            rows, used = _rows(c, name), names_in([sd])
            places = {name: rows + first} if name in used else {}
            for other in self.others.get(name, ()):
                places[other] = further + np.arange(len(rows))
                further += len(rows)
            known = {k: at[rows] for k, at in self.known.items() if k in used}
            out.append(NoiseOfRows(sd, rows, places, known | ({ERR: 1 / c.weights[rows]} if ERR in used else {})))
        return out


def read_measurement_noise(
    model: Any, c: Comparison, given: Any, parms: Mapping[str, float], set_elsewhere: Collection[str] = ()
) -> MeasurementNoise:
    """Return the noise of a cost.

    Parameters
    ----------
    model : Model
    c : Comparison
        The data; their weights are one over the errors of the table, where it has any.
    given : None, or mapping of variable to sd
        `measurement_noise`.
    parms : mapping of str to float
        Values of parameters that the model does not have, also of those that the noise does not know.
    set_elsewhere : collection of str
        Parameters that need no value here: conditions give them one.

    Raises
    ------
    ArgumentError
        A variable that is not observed, of whose noise nothing is said, or that has two: a column of errors and an
        expression without them; a name without a value.
    ParameterError
        See `fmepy.costs.noise.with_noise_parameters`.
    """
    if isinstance(given, pd.DataFrame):
        raise ArgumentError(
            "`measurement_noise` is a table: correlated errors are a FimlofCost's alone (process_noise={}). Give a "
            "dict of variables and standard deviations."
        )
    noise = read_noise(given, "measurement_noise", c.group_names, "an observed variable", MEASUREMENT)
    own = set(map(str, model.parms.index))
    made = {name: guessed_sd(_series(c, variable)) for name, variable in noise.made}
    used = noise.names() - own
    mine = {k: 1.0 for k in used & set(set_elsewhere)} | {k: v for k, v in parms.items() if k in used or k in made}
    values = with_noise_parameters(dict(model.parms), mine, made, noise)
    known = _known_of_rows(model, c)
    sds, others = {}, {}
    for name in c.group_names:
        with_error = c.with_error is not None and bool(c.with_error[_rows(c, name)].all())
        if name not in noise.keys:
            if not with_error:
                raise _no_noise(name) if given is None else no_error_said(name)
            sds[name] = symbol(ERR)
            continue
        sd = noise.sds[noise.keys.index(name)]
        if not check_error_sd(name, sd, (*values, *model.var_names, name, *known), with_error) and with_error:
            raise ArgumentError(
                f"{name!r} has errors in the column of `err`, and measurement_noise[{name!r}] beside them. Write 'err' "
                f"into the expression, such as measurement_noise={{{name!r}: 'scale * err'}}, or leave one of the two "
                "out (a long table may leave the errors of a variable empty)."
            )
        others[name] = tuple(sorted((names_in([sd]) & set(map(str, model.var_names))) - {name, *values}))
        sds[name] = sd
    scales = tuple(scale_parameters(list(sds.values()), own | {*map(str, model.var_names), *c.group_names, *known}))
    extra = {k: v for k, v in values.items() if k not in own}
    names = tuple(k for k in values if k in names_in(sds.values()))
    guesses = tuple(k for k in made if k not in parms)
    return MeasurementNoise(sds, names, extra, guesses, scales, others, known)


def _no_noise(name: str) -> ArgumentError:
    return ArgumentError(
        f"`censored`: how likely a reading of {name!r} is beyond its limit depends on the size of its noise, of which "
        f"nothing is said. Pass measurement_noise={{{name!r}: 'estimate'}}, a number, or the column of errors, err=."
    )


def _rows(c: Comparison, name: str) -> IntVector:
    return np.flatnonzero(c.groups == c.group_names.index(name))


def _series(c: Comparison, name: str) -> Iterator[Vector]:
    """Yield the plain readings of a variable in order of x, entity by entity."""
    rows = _rows(c, name)
    rows = rows if c.marks is None else rows[c.marks[rows] == 0]
    rows = rows[np.argsort(c.x[rows], kind="stable")]
    places = {} if c.entities is None else {entity: k for k, entity in enumerate(dict.fromkeys(c.entities))}
    of = np.array([0 if c.entities is None else places[c.entities[i]] for i in rows])
    rows = rows[np.argsort(of, kind="stable")]
    yield from np.split(c.obs[rows], np.flatnonzero(np.diff(np.sort(of))) + 1)


def _known_of_rows(model: Any, c: Comparison) -> dict[str, Vector]:
    """Return time and forcings at the readings, by name, of a model that says what they are called."""
    definition = getattr(model, "definition", None)
    if definition is None or c.x_name is None:
        return {}
    at = np.array(forcing_values(definition.forcings, c.x))
    if getattr(model, "entity_inputs", None) is not None and definition.forcings and c.entities is not None:
        for label in dict.fromkeys(c.entities):
            own = [i for i, one in enumerate(c.entities) if one == label]
            at[:, own] = forcing_values(model.of_entity(label).definition.forcings, c.x[own])
    return {str(definition.time): c.x, **{f.name: at[k] for k, f in enumerate(definition.forcings)}}
