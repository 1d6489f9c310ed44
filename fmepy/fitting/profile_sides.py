"""The sides of all profiles, side by side; begun anew from whatever is better than the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fmepy.fitting.optimum import Optimum
from fmepy.fitting.profile_walk import Settings, Side, walked
from fmepy.fitting.refits import Held, Refit, fitted
from fmepy.journal.encoding import Stored
from fmepy.parallel.interruption import Stopped, outermost
from fmepy.parallel.resumable import resumable_tasks
from fmepy.types import Matrix, Vector

_MOST_ROUNDS = 10
_PATIENCE = 30.0  # seconds after Ctrl-C for sides under way to come to the end of an evaluation


@dataclass(frozen=True, slots=True, eq=False)
class Walked(Stored):
    """One side, as plain arrays: what travels from workers and is kept in checkpoints.

    Attributes
    ----------
    values, costs, thetas : ndarray, shape (n,), (n,) and (n, n_par)
        The profile, outwards, without the optimum.
    ends : ndarray
        Where the thresholds are crossed, as far as they are.
    ended : str
        See `fmepy.fitting.profile_walk.Side`.
    failed, messages
        Places of failed re-fits, and what was said of them.
    better : ndarray
        What is better than the optimum; empty if nothing is.
    better_cost, standard_error : float
    evaluations : int
    """

    values: Vector
    costs: Vector
    thetas: Matrix
    ends: Vector
    ended: str
    failed: Vector
    messages: list[str]
    better: Vector
    better_cost: float
    standard_error: float
    evaluations: int

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended it."""
        return self.ended == "interrupted"

    @classmethod
    def of(cls, side: Side, standard_error: float, evaluations: int, n_par: int) -> Walked:
        """Return a side as plain arrays."""
        return cls(
            values=np.array([p.place for p in side.points]),
            costs=np.array([p.cost for p in side.points]),
            thetas=np.array([p.theta for p in side.points]).reshape(-1, n_par),
            ends=np.array(side.ends, dtype=float),
            ended=side.ended,
            failed=np.array([p.place for p in side.failed]),
            messages=[p.message for p in side.failed],
            better=np.empty(0) if side.better is None else side.better.theta,
            better_cost=np.nan if side.better is None else side.better.cost,
            standard_error=standard_error,
            evaluations=evaluations,
        )

    @classmethod
    def of_failure(cls, ended: str, message: str, n_par: int) -> Walked:
        """Return a side of which nothing is known but why."""
        side = Side(ended=ended)
        if message:
            side.failed.append(Refit(np.nan, np.full(n_par, np.nan), np.nan, message=message))
        return cls.of(side, np.nan, 0, n_par)


@dataclass(slots=True, eq=False)
class _Sides:
    """One side of a profile after the other; it travels to workers."""

    best: Optimum
    things: Mapping[str, Held]
    levels: Sequence[float]
    num: int
    most: int | None

    def __call__(self, task: tuple[str, float]) -> Walked:
        name, sign = task
        best, search, held = self.best, copy(self.best.search), copy(self.things[name])
        search.objective = search.objective.alone(best.theta, search.lower, search.upper)
        side, se = Side(), np.nan
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                se, tangent = held.standard_error(search, best.theta)
                thresholds = [best.threshold(level) for level in self.levels]
                walked(
                    search,
                    held,
                    Refit(held.place(best.theta), best.theta, best.cost, 0.0, tangent),
                    sign,
                    Settings(
                        thresholds,
                        thresholds[-1] / max((self.num - 1) // 2 - 1, 1),
                        se,
                        held.size(search, best.theta),
                        held.limits(search)[int(sign > 0)],
                        self.most or max(4 * self.num, 60),
                    ),
                    side,
                )
            except KeyboardInterrupt:
                if not outermost():
                    raise
                raise Stopped(Walked.of(side, se, search.objective.evaluations, best.theta.size)) from None
        return Walked.of(side, se, search.objective.evaluations, best.theta.size)


@dataclass(slots=True, eq=False)
class Found:
    """All sides, and the optimum that they belong to.

    Attributes
    ----------
    best : Optimum
    sides : dict of (name, sign) to Walked
    better : list of (name, value, cost before, cost after)
        Better optima that were found on the way, one after the other.
    interrupted : bool
    evaluations : int
    notes : list of str
        What is to be said of the checkpoint.
    """

    best: Optimum
    sides: dict[tuple[str, float], Walked] = field(default_factory=dict)
    better: list[tuple[str, float, float, float]] = field(default_factory=list)
    interrupted: bool = False
    evaluations: int = 0
    notes: list[str] = field(default_factory=list)


def walk_all(
    best: Optimum,
    things: Mapping[str, Held],
    levels: Sequence[float],
    num: int,
    *,
    most: int | None = None,
    executor: Any = None,
    progress: Any = False,
    checkpoint: Any = None,
) -> Found:
    """Return both sides of every thing; where one finds a better optimum, all are begun anew from it.

    Parameters
    ----------
    levels : sequence of float
        Rising.
    num : int
        Places of a profile up to the last of them, about, both sides together.
    most : int, optional
        Re-fits on the way of one side, at most.
    """
    found = Found(best)
    tasks = [(name, sign) for name in things for sign in (-1.0, 1.0)]
    words = {"executor": executor, "progress": progress, "patience": _PATIENCE}
    with resumable_tasks(checkpoint, "a profile") as journal:
        for round_ in range(_MOST_ROUNDS):
            question = {**best.question, "profiles of": list(things), "levels": list(levels), "num": num}
            question |= {"optimum": found.best.cost, "round": round_}
            walk = _Sides(found.best, things, levels, num, most)
            runs = journal.spread(walk, tasks, question=question, name=f"round{round_ + 1}", **words)
            why = dict(zip(runs.failures["run"], runs.failures["message"], strict=True))
            ended = "interrupted" if runs.interrupted else "failed"
            for k, (task, side) in enumerate(zip(tasks, runs.results, strict=True)):
                found.sides[task] = side or Walked.of_failure(ended, why.get(k, ""), best.theta.size)
                found.evaluations += found.sides[task].evaluations
            found.interrupted = runs.interrupted
            if found.interrupted or not _begun_anew(found, things):
                break
        found.notes += journal.notes
    return found


def _begun_anew(found: Found, things: Mapping[str, Held]) -> bool:
    """Go to the best of the better optima that the sides came upon; tell whether there was one."""
    better = [(side.better_cost, task) for task, side in found.sides.items() if side.ended == "better"]
    if not better:
        return False
    _, (name, sign) = min(better)
    start = found.sides[name, sign].better
    with np.errstate(over="ignore", invalid="ignore"):
        theta, cost = fitted(found.best.search, start)
    found.better.append((name, things[name].place(start), found.best.cost, cost))
    found.best = found.best.at(theta, cost)
    return True
