"""What a simulation cost is told of its noise, checked, and turned into the noise of every reading.

An observed variable has its noise from the words of `measurement_noise` (`fmepy.costs.noise` reads them), where ``err``
is the datum's own error, or from the column of errors alone; never from both, and never from nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.base import errors_unknown
from fmepy.costs.by_entity import predictions_by_entity
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
from fmepy.costs.noise_model import NoiseModel, NoiseOfRows, NoiseParameters
from fmepy.costs.observations import Comparison, concatenate
from fmepy.costs.predictions import Predictions, predictions_of
from fmepy.costs.scored import BoundLikelihood, BoundNoisy
from fmepy.errors import ArgumentError
from fmepy.language.equations import names_in, symbol
from fmepy.models.running.forcings import forcing_values
from fmepy.types import IntVector, Vector


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


def check_noisy(cost: Any) -> None:
    """Refuse what has no meaning in a likelihood."""
    if cost.weight != "none":
        raise ArgumentError(
            f"`weight={cost.weight!r}` makes up errors, and the noise is said in words (measurement_noise, censored). "
            "Leave it out; where nothing is known of the noise, say 'estimate'."
        )
    if cost.scaleVar:
        raise ArgumentError("`scaleVar` divides sums of squares, and a likelihood has none: leave it out.")
    if cost.likelihood is not None:
        if not (isinstance(cost.likelihood, type) and issubclass(cost.likelihood, BoundLikelihood)):
            raise ArgumentError(
                f"`likelihood` must be a class derived from fmepy.costs.BoundLikelihood; got {cost.likelihood!r}."
            )
        if cost.censored is not None:
            raise ArgumentError(
                "`censored` is of normal errors; a `likelihood` of your own knows nothing of limits. Leave one out."
            )
    if cost.censored is not None and cost.x is None:
        raise ArgumentError("`censored` is of single readings; with x=None their means are compared. Name `x`.")


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
    noise = read_noise(given, "measurement_noise", c.group_names, "observed variable", MEASUREMENT)
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
        if not check_error_sd(name, sd, (*values, *model.var_names, *known), with_error) and with_error:
            raise ArgumentError(
                f"{name!r} has errors in the column of `err`, and measurement_noise[{name!r}] beside them. Write 'err' "
                f"into the expression, such as measurement_noise={{{name!r}: 'scale * err'}}, or leave one of the two "
                "out (a long table may leave the errors of a variable empty)."
            )
        others[name] = tuple(sorted((names_in([sd]) & set(map(str, model.var_names))) - {name, *values}))
        sds[name] = sd
    scales = tuple(scale_parameters(list(sds.values()), own | set(map(str, model.var_names)) | set(known)))
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


# ------------------------------------------------------------------------------------------------------------ binding


def bound_with_noise(parts: Sequence[Any], names: Sequence[str], **words: Any) -> BoundLikelihood:
    """Return simulation costs of one model, of which some have words of noise, as a function of a plain vector.

    Parameters
    ----------
    parts : sequence of SimulationCost
        One, where it is of several experiments.
    names : sequence of str
        The parameters of theta.
    **words
        Of the model's ``bind``.

    Raises
    ------
    ArgumentError
        A part without words of noise, of whose errors nothing is known.
    """
    pieces = [part.comparison for part in parts]
    starts = np.cumsum([0, *map(len, pieces)])
    first_further = int(starts[-1])
    behind, noises = [], []
    for part, first in zip(parts, starts, strict=False):
        c, noise = part.comparison, _noise_of(part)
        if noise is None:
            continue
        rows = noise.of_rows(c, int(first), first_further)
        noises.append(NoiseModel(rows, noise.names, _parameters_of(part, noise.names, names)))
        further, at = noise.further(c)
        first_further += len(further)
        if further:
            behind.append(part.places.elsewhere(further, at))
    places, model = [*(part.places for part in parts), *behind], parts[0].predictor
    if parts[0].plain_run:
        own = [n for n in names if n in model.parms.index]
        predictions: Predictions = predictions_of(model, places, concatenate(pieces), own, **words)
    else:
        predictions = predictions_by_entity(parts[0].models, places, pieces[0], names, **words)
    noisy = [part for part in parts if part.noise is not None]
    otherwise = {k for part in noisy for k in part.noise.names if k not in part.noise.scales}
    scales = {k for part in noisy for k in part.scales} - otherwise
    theta0 = {n: float(next(p.parms[n] for p in parts if n in p.parms.index)) for n in names}
    return (parts[0].likelihood or BoundNoisy)(predictions, pieces, noises, theta0, scales)


def _noise_of(part: Any) -> MeasurementNoise | None:
    """Return the noise of a cost; of one without words of it the errors of its table; a likelihood may need none."""
    if part.noise is not None:
        noise: MeasurementNoise = part.noise
        return noise
    if (unknown := errors_unknown(part.comparison)) is not None:
        if part.likelihood is not None:
            return None
        raise unknown
    return MeasurementNoise(dict.fromkeys(part.comparison.group_names, symbol(ERR)), (), {}, (), (), {}, {})


def _parameters_of(part: Any, wanted: Sequence[str], names: Sequence[str]) -> NoiseParameters:
    """Return where the parameters of a cost's noise come from; by reading, where they differ."""
    if part.cases is None:
        own = part.parms
        take = np.array([list(own.index).index(k) for k in wanted], dtype=np.intp)
        return NoiseParameters(own.to_numpy(dtype=float), list(own.index), take, names)
    parameters = part.cases.parameters
    of_case = parameters.take[:, [parameters.full_names.index(k) for k in wanted]]
    return NoiseParameters(parameters.values, list(parameters.parms.index), of_case[part.cases.case_of], names)
