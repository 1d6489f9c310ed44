"""Predictions of several entities, put together in the order of the observations.

Predictions of many entities from runs of one bound model: one call of compiled code for all of them.

Entities whose model is the same but for the values of what theta moves share a bound model, with rows at the times of
all. Derivatives are those to the parameters of a run; in which column of theta each of them belongs is known by run, so
that the table of all derivatives, nearly all of them zero, need not be written out::

    local     shape (n_obs, n_moved)        dmod_i / d(parameter m of the run of i)
    columns   shape (n_obs, n_moved)        which of theta that is, -1: none
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Self

import numpy as np

from fmepy.costs.base import OfSeveral
from fmepy.costs.interpolation import Places, joined_places, merge_times, rows_by_group
from fmepy.costs.observations import Comparison, concatenate
from fmepy.costs.predictions import (
    Predictions,
    PredictionsOfRun,
    Pull,
    each_of_many,
    of_run,
    predictions_of,
    renamed,
)
from fmepy.errors import SimulationError
from fmepy.models.entity import EntityModel
from fmepy.numerics.sparse import dense_jacobian, sparse_jacobian, stacked
from fmepy.parameters.named import values_by_name
from fmepy.parameters.names import as_theta
from fmepy.types import BoolVector, IntVector, Matrix, Vector


class PredictionsByEntity(OfSeveral, Predictions):
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

    by_entity = True

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
        order = np.argsort(np.concatenate(rows))
        self._size, self._order = len(order), None if (np.diff(order) == 1).all() else order

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

    def with_slopes(self, theta: Vector, sparse: bool = False) -> tuple[Vector, Any]:
        """Return mod, shape (n_obs,), and dmod/dtheta, shape (n_obs, n_par); if asked for, as a sparse array."""
        found = [
            of_run(told, part.with_slopes, theta, sparse) for part, told in zip(self.parts, self._told, strict=True)
        ]
        mod, slopes = np.concatenate([mod for mod, _ in found]), stacked([slopes for _, slopes in found])
        return (mod, slopes) if self._order is None else (mod[self._order], slopes[self._order])

    @property
    def has_pull(self) -> bool:
        """True if `with_pull` takes less time than `with_slopes`."""
        return all(part.has_pull for part in self.parts)

    def with_pull(self, theta: Vector) -> tuple[Vector, Pull]:
        """Return mod, shape (n_obs,), and ``pull(dL/dmod)``, which returns dL/dtheta of a number L."""
        mod, pulls = np.empty(self._size), []
        for part, rows, told in zip(self.parts, self.rows, self._told, strict=True):
            mod[rows], pull = of_run(told, part.with_pull, theta)
            pulls.append(pull)
        return mod, lambda of_mod: sum(pull(of_mod[rows]) for pull, rows in zip(pulls, self.rows, strict=True))

    def failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a prediction that will not do: `what` is wrong with value `i`."""
        k = next(k for k, rows in enumerate(self.rows) if i in rows)
        place = int(np.flatnonzero(self.rows[k] == i)[0])
        return renamed(self.parts[k].failure(place, theta, what), self._told[k])


def predictions_of_parts(parts: Sequence[Any], places: Sequence[Places], names: Sequence[str], **words: Any) -> Any:
    """Return what the model of simulation costs predicts: of costs that share it, or of one of several experiments.

    Parameters
    ----------
    parts : sequence of SimulationCost
    places : sequence of Places
        Those of the parts, one after the other; further places may follow.
    names, **words
        As for `predictions_of`.
    """
    first, data = parts[0], concatenate([part.comparison for part in parts])
    if first.plain_run:
        own = [n for n in names if n in first.predictor.parms.index]
        return predictions_of(first.predictor, places, data, own, **words)
    return predictions_by_entity(first.models, places, data, names, **words)


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
    names, at = tuple(names), joined_places(places)
    assert at.runs is not None, "of several runs"
    found: list[tuple[PredictionsOfRun | PredictionsTogether, IntVector, str]] = []
    alone = dict(enumerate(rows_by_group(at.runs, len(models))))
    for members, times in groups_of(models, at):
        own = [models[k] for k in members]
        bound = _shared_model(own, names, times=times, **words)
        if not callable(getattr(bound, "together", None)):
            continue
        place = np.full(len(models), -1, dtype=np.intp)
        place[members] = np.arange(len(members))
        rows = np.flatnonzero(place[at.runs] >= 0)
        together = PredictionsTogether(bound, own, names, place[at.runs[rows]], at.only(rows), data, words)
        found.append((together, rows, ""))
        for k in members:
            del alone[k]
    for k, rows in alone.items():
        found.append((predictions_of(models[k], [at.only(rows)], data, names, **words), rows, models[k].told))
    parts, rows_of_parts, told = zip(*found, strict=True)
    return PredictionsByEntity(parts, rows_of_parts, told, values_by_name(models[0].parameters.parms, names), data)


def _shared_model(models: Sequence[EntityModel], names: tuple[str, ...], **words: Any) -> Any:
    """Return what serves several entities, bound to all that theta moves, and to what else differs between them."""
    first, moved = models[0], models[0].moved_by(names)
    if all(m.inner is first.inner for m in models):
        return first.inner.bind(moved, **words)
    own = first.model.parms
    values, _ = first.parameters.maps([m.k for m in models], names, list(own.index))
    held = own.index[(values != own.to_numpy(dtype=float)).any(axis=0)]
    return first.model.bind([*moved, *(str(n) for n in held if n not in moved)], **words)


MOST_ROWS = 200
"""Rows of a run that serves entities with times of their own."""
MOST_AT_ONCE = 100_000
"""Rows of all runs of one call, which are in memory together."""
MANY = 50
"""Entities from which on those share runs whose last times differ: the numbers differ by the solver's error."""


class PredictionsTogether(Predictions):
    """Predictions of several entities from runs of one bound model.

    Parameters
    ----------
    bound : BoundModel
        Of the parameters that theta moves in any of them, with rows at all times.
    models : sequence of EntityModel
    names : tuple of str
        The parameters of theta.
    run_of : ndarray of int
        Of which of the models every value is.
    places : Places
        What is looked up there.
    data : Comparison
        All observations: what is put together is compared.
    words : mapping
        Of the models' ``bind``: one whose run here does not come to an end is run by itself.
    """

    def __init__(
        self,
        bound: Any,
        models: Sequence[EntityModel],
        names: tuple[str, ...],
        run_of: IntVector,
        places: Places,
        data: Comparison,
        words: Mapping[str, Any],
    ) -> None:
        super().__init__(data)
        self.bound, self.parameter_names, self._models = bound, names, tuple(models)
        self._values, self._source = models[0].parameters.maps([m.k for m in models], names, bound.names)
        self._moving = self._source >= 0
        self._run_of, self._places, self._words = run_of, places, words
        self._alone: dict[int, PredictionsOfRun] = {}
        self._box: tuple[Vector, Vector] | None = None
        self._is_tight = False
        grid, size = np.asarray(models[0].times, dtype=float), len(bound.times) * len(bound.var_names)
        lookup = places.lookup(np.asarray(bound.times, dtype=float), grid, bound.var_names)
        self._lookup = lookup.behind(run_of * size)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return sum(one.retries for one in self._alone.values())

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self._box = lower, upper
        for one in self._alone.values():
            one.keep_within(lower, upper)

    def forget(self) -> None:
        """Run no entity by itself as before: at the tolerances of another `bound`, the smaller ones."""
        self._alone, self._is_tight = {}, True

    def values(self, theta: Vector) -> Vector:
        """Return mod, shape (n_obs,)."""
        mod, _, ok = self._together(theta, slopes=False)
        for i in np.flatnonzero(~ok).tolist():
            mod[self._run_of == i] = of_run(self._models[i].told, self._one(i).values, theta)
        return self._checked(mod, theta)

    def _together(self, theta: Vector, slopes: bool) -> tuple[Vector, Any, BoolVector]:
        """Return mod, derivatives if asked for, and which runs came to their end: none where one call cannot do it."""
        ran = self.bound.together(self._parameters(theta), slopes=slopes)
        if ran is None:
            n = len(self._run_of)
            return np.empty(n), np.empty((n, self._source.shape[1])), np.zeros(len(self._models), dtype=bool)
        Y, S, ok = ran
        mod = self._lookup.values(Y.reshape(-1, Y.shape[-1]))
        return mod, self._lookup.sensitivities(S) if slopes else None, ok

    def values_many(self, Theta: Matrix) -> tuple[Matrix, Any]:
        """Return mod of many theta, shape (n, n_obs), and why they failed."""
        out, why = np.empty((len(Theta), len(self._run_of))), np.full(len(Theta), "", dtype=object)
        return each_of_many(out, why, Theta, lambda _, theta: self.values(theta))

    def with_slopes(self, theta: Vector, sparse: bool = False) -> tuple[Vector, Any]:
        """Return mod, shape (n_obs,), and dmod/dtheta, shape (n_obs, n_par); if asked for, as a sparse array."""
        mod, local, ok = self._together(theta, slopes=True)
        for i in np.flatnonzero(~ok).tolist():
            rows = self._run_of == i
            mod[rows], local[rows] = self._slopes_alone(i, theta)
        mod, local = self._checked(mod, theta), self._finite_slopes(local, theta)
        jacobian = sparse_jacobian if sparse else dense_jacobian
        return mod, jacobian(local, self._source[self._run_of], len(self.parameter_names))

    def with_pull(self, theta: Vector) -> tuple[Vector, Pull]:
        """Return mod, shape (n_obs,), and ``pull(dL/dmod)``, which returns dL/dtheta of a number L."""
        found = [
            of_run(m.told, self.bound.with_pull, p)
            for m, p in zip(self._models, self._parameters(theta), strict=True)
        ]  # fmt: skip
        Y = np.concatenate([Y for Y, _ in found])
        mod = self._checked(self._lookup.values(Y), theta)

        def pull(of_mod: Vector) -> Vector:
            of_runs = np.split(self._lookup.pulled(of_mod, Y.shape), len(found))
            local = np.array([pull(of_run) for (_, pull), of_run in zip(found, of_runs, strict=True)])
            out = np.zeros(len(self.parameter_names))
            np.add.at(out, self._source[self._moving], local[self._moving])
            return out

        return mod, pull

    def failure(self, i: int, theta: Vector, what: str) -> SimulationError:
        """Return the error of a prediction that will not do: `what` is wrong with value `i`."""
        run = int(self._run_of[i])
        place = int(np.count_nonzero(self._run_of[:i] == run))
        return renamed(self._one(run).failure(place, theta, what), self._models[run].told)

    def _parameters(self, theta: Vector) -> Matrix:
        """Return what the bound model takes, a row a run."""
        return np.where(self._moving, as_theta(theta, self.parameter_names)[self._source], self._values)

    def _one(self, i: int) -> PredictionsOfRun:
        if i not in self._alone:
            places = self._places.only(np.flatnonzero(self._run_of == i))
            one = predictions_of(self._models[i], [places], self.data, self.parameter_names, **self._words)
            one = (one.tightened() or one) if self._is_tight else one
            if self._box is not None:
                one.keep_within(*self._box)
            self._alone[i] = one
        return self._alone[i]

    def _slopes_alone(self, i: int, theta: Vector) -> tuple[Vector, Matrix]:
        mod, dense = of_run(self._models[i].told, self._one(i).with_slopes, theta)
        source = self._source[i]
        once = [m >= 0 and m not in source[:j] for j, m in enumerate(source)]  # a column that two share comes once
        return mod, np.where(once, dense[:, source], 0.0)


def groups_of(models: Sequence[EntityModel], places: Places) -> list[tuple[list[int], Vector]]:
    """Return which models share runs, and the times at which these need rows.

    Those of one model beneath, which all start from values of their own, and with rows at the same last time; of many
    models also those that end at different times, and those with numbers of their own. Times of their own are shared by
    few, so that runs stay short.
    """
    if places.x is None:
        return []
    assert places.runs is not None, "of several runs"
    rests = np.zeros(len(models), dtype=bool)  # those read at the steady state run on by themselves
    rests[places.runs[np.isinf(places.x)]] = True
    if models[0].parameters.derived:  # what runs together is moved by parameters, not by expressions of them
        return []
    own = [None if model.before is not None or rests[k] else model.inner for k, model in enumerate(models)]
    same = _together(own)
    if len(same) >= MANY:  # numbers of conditions are inputs then, each at the price of a sensitivity
        whole = zip(models, own, strict=True)
        same = _together([m.model if one is not None and m.beneath is m.model else None for m, one in whole])
    out: list[tuple[list[int], Vector]] = []
    for members in same.values():
        if len(members) > 1:
            grid = np.asarray(models[members[0]].times, dtype=float)
            out += _by_times(members, grid, places, len(members) >= MANY)
    return out


def _together(models: Sequence[Any]) -> dict[int, list[int]]:
    """Return the places of every model, in one list those of the same; of none, or what cannot be bound, no place."""
    same: dict[int, list[int]] = {}
    for k, model in enumerate(models):
        if callable(getattr(model, "bind", None)):
            same.setdefault(id(model), []).append(k)
    return same


def _by_times(members: Sequence[int], grid: Vector, places: Places, any_end: bool) -> list[tuple[list[int], Vector]]:
    """Return members in groups by their times, with the times of each group."""
    times = _times_of(members, grid, places)
    kinds: dict[bytes, list[int]] = {}
    for k in members:
        kinds.setdefault(times[k].tobytes(), []).append(k)
    found: dict[float, list[tuple[list[int], list[Vector], int]]] = {}
    for same in kinds.values():
        own = times[same[0]]
        open_ones = found.setdefault(0.0 if any_end else float(own[-1]), [])
        if open_ones and open_ones[-1][2] + len(own) <= MOST_ROWS:
            group, all_times, size = open_ones.pop()
            open_ones.append(([*group, *same], [*all_times, own], size + len(own)))
        else:
            open_ones.append((list(same), [own], len(own)))
    out = []
    for group, of_members, _ in (one for ones in found.values() for one in ones):
        rows = merge_times(*of_members)
        most = max(MOST_AT_ONCE // len(rows), 1)
        pieces = (group[i : i + most] for i in range(0, len(group), most))
        out += [(piece, rows) for piece in pieces if len(piece) > 1]
    return out


def _times_of(members: Sequence[int], grid: Vector, places: Places) -> dict[int, Vector]:
    """Return the times at which every member needs rows."""
    if places.reads_grid:
        return dict.fromkeys(members, grid)
    assert places.runs is not None, "of several runs"
    wanted, rows = places.rows_wanted(grid), rows_by_group(places.runs, int(places.runs.max(initial=0)) + 1)
    return {k: np.unique(wanted[rows[k]]) for k in members}
