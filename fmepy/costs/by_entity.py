"""Predictions of several entities, put together in the order of the observations."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import partial
from itertools import pairwise
from typing import Any, Self

import numpy as np

from fmepy.costs.interpolation import Places
from fmepy.costs.observations import Comparison
from fmepy.costs.predictions import Predictions, PredictionsOfRun, of_run, predictions_of, renamed
from fmepy.costs.together import PredictionsTogether, groups_of
from fmepy.errors import SimulationError
from fmepy.models.entity import EntityModel
from fmepy.parameters.named import values_by_name
from fmepy.types import IntVector, Matrix, Vector


class PredictionsByEntity(Predictions):
    """Predictions of several runs, put together in the order of the observations.

    Parameters
    ----------
    parts : sequence of PredictionsOfRun or PredictionsTogether
        All of the same parameters: of one entity, or of several.
    rows : sequence of ndarray of int
        Where the values of each belong.
    told : sequence of str
        What each is of, for messages; "" of several.
    theta0 : ndarray, shape (n_par,)
    data : Comparison
        All observations.
    """

    def __init__(
        self,
        parts: Sequence[PredictionsOfRun | PredictionsTogether],
        rows: Sequence[IntVector],
        told: Sequence[str],
        theta0: Vector,
        data: Comparison,
    ) -> None:
        super().__init__(data)
        self.parts, self.rows, self._told = tuple(parts), tuple(rows), tuple(told)
        self.parameter_names, self.theta0 = parts[0].parameter_names, theta0
        self._size = sum(map(len, rows))

    @property
    def exact(self) -> bool:
        """True if the model solves its sensitivity equations."""
        return all(part.exact for part in self.parts)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return sum(part.retries for part in self.parts)

    @property
    def engine(self) -> str:
        """The engines that run the models, as far as they say."""
        return ", ".join(dict.fromkeys(filter(None, (part.engine for part in self.parts))))

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        for part in self.parts:
            part.keep_within(lower, upper)

    def tightened(self) -> Self | None:
        """Return the same at smaller tolerances where a part has any."""
        tight = [part.tightened() for part in self.parts]
        if all(t is None for t in tight):
            return None
        out = copy(self)
        out.parts = tuple(part if t is None else t for part, t in zip(self.parts, tight, strict=True))
        return out

    def values(self, theta: Vector) -> Vector:
        """Return mod, shape (n_obs,)."""
        out = np.empty(self._size)
        for part, rows, told in zip(self.parts, self.rows, self._told, strict=True):
            out[rows] = of_run(told, part.values, theta)
        return out

    def values_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return mod of many theta, shape (n, n_obs), and why they failed."""
        out, why = np.empty((len(Theta), self._size)), np.full(len(Theta), "", dtype=object)
        for part, rows, told in zip(self.parts, self.rows, self._told, strict=True):
            out[:, rows], failed = part.values_many(Theta)
            for i in np.flatnonzero((why == "") & (failed != "")):
                why[i] = f"{told}: {failed[i]}" if told else failed[i]
        return out, why

    def with_slopes(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return mod, shape (n_obs,), and dmod/dtheta, shape (n_obs, n_par)."""
        mod, slopes = np.empty(self._size), np.empty((self._size, len(self.parameter_names)))
        for part, rows, told in zip(self.parts, self.rows, self._told, strict=True):
            mod[rows], slopes[rows] = of_run(told, part.with_slopes, theta)
        return mod, slopes

    def compared_with_local_slopes(self, theta: Vector) -> tuple[Matrix, IntVector]:
        """Return the derivatives of T(mod) as `with_local_slopes` those of mod."""
        mod, local, columns = self.with_local_slopes(theta)
        if self._scale is not None:
            self.scaled(mod, theta)
            local = self._finite_slopes(self.scaled_slopes(mod, local, theta), theta)
        return local, columns

    def with_local_slopes(self, theta: Vector) -> tuple[Vector, Matrix, IntVector]:
        """Return mod, and those derivatives that may not be zero, with their columns, see `fmepy.costs.together`."""
        found = []
        for part, told in zip(self.parts, self._told, strict=True):
            if isinstance(part, PredictionsTogether):
                found.append(part.with_local_slopes(theta))
            else:
                mod, slopes = of_run(told, part.with_slopes, theta)
                at = np.flatnonzero(slopes.any(axis=0))
                found.append((mod, slopes[:, at], np.broadcast_to(at, (len(mod), len(at)))))
        width = max(local.shape[1] for _, local, _ in found)
        mod, local = np.empty(self._size), np.zeros((self._size, width))
        columns = np.full((self._size, width), -1, dtype=np.intp)
        for rows, (of_part, slopes, at) in zip(self.rows, found, strict=True):
            mod[rows], local[rows, : slopes.shape[1]], columns[rows, : slopes.shape[1]] = of_part, slopes, at
        return mod, local, columns

    def failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a prediction that will not do: `what` is wrong with value `i`."""
        k = next(k for k, rows in enumerate(self.rows) if i in rows)
        place = int(np.flatnonzero(self.rows[k] == i)[0])
        return renamed(self.parts[k].failure(place, theta, what), self._told[k])


def predictions_by_entity(
    models: Sequence[EntityModel], places: Sequence[Places], data: Comparison, names: Sequence[str], **words: Any
) -> PredictionsByEntity:
    """Return what the models of several entities predict.

    Parameters
    ----------
    models : sequence of EntityModel
    places : sequence of Places
        Their `runs` are places in `models`.
    data, names, **words
        As for `predictions_of`.
    """
    names = tuple(names)
    first = np.cumsum([0, *(len(p.names) for p in places)])
    run_of = np.concatenate([p.runs for p in places if p.runs is not None])
    order = np.argsort(run_of, kind="stable")
    ends = np.searchsorted(run_of[order], np.arange(len(models) + 1))
    rows_of = [order[ends[k] : ends[k + 1]] for k in range(len(models))]
    alone = partial(_alone, list(models), list(places), data, names, first, rows_of, words)
    found: list[tuple[PredictionsOfRun | PredictionsTogether, IntVector, str]] = []
    taken: set[int] = set()
    for members, times in groups_of(models, places):
        bound = models[members[0]].inner.bind(models[members[0]].moved_by(names), times=times, **words)
        if not callable(getattr(bound, "together", None)):
            continue
        place = np.full(len(models), -1, dtype=np.intp)
        place[members] = np.arange(len(members))
        mine = np.flatnonzero(place[run_of] >= 0)
        of_places = [mine[(mine >= a) & (mine < b)] - a for a, b in pairwise(first)]
        at = [(place[p.runs[own]], p.only(own)) for p, own in zip(places, of_places, strict=True) if p.runs is not None]
        own, each = [models[k] for k in members], [partial(alone, k) for k in members]
        found.append((PredictionsTogether(bound, own, names, at, data, each), mine, ""))
        taken |= set(members)
    found += [(alone(k), rows_of[k], model.told) for k, model in enumerate(models) if k not in taken]
    parts, rows, told = zip(*found, strict=True)
    theta0 = values_by_name(models[0].parameters.parms, names)
    return PredictionsByEntity(parts, rows, told, theta0, data)


def _alone(
    models: Sequence[EntityModel],
    places: Sequence[Places],
    data: Comparison,
    names: tuple[str, ...],
    first: IntVector,
    rows_of: Sequence[IntVector],
    words: dict[str, Any],
    k: int,
) -> PredictionsOfRun:
    """Return the predictions of one of several entities by itself."""
    rows = rows_of[k]
    of_places = (rows[(rows >= a) & (rows < b)] - a for a, b in pairwise(first))
    at = [p.only(own) for p, own in zip(places, of_places, strict=True)]
    return predictions_of(models[k], at, data.only(rows[rows < len(data)]), names, **words)
