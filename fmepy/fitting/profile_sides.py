"""The sides of all profiles, side by side; begun anew from whatever is better than the optimum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fmepy.fitting.optimum import Optimum
from fmepy.fitting.profile_walk import Side, Walk
from fmepy.fitting.refits import Held, Refit, fitted
from fmepy.parallel.interruption import Stopped, outermost
from fmepy.parallel.resumable import resumable_tasks

_MOST_ROUNDS = 10
_PATIENCE = 30.0  # seconds after Ctrl-C for sides under way to come to the end of an evaluation


@dataclass(slots=True, eq=False)
class _Sides:
    """One side of a profile after the other; it travels to workers."""

    best: Optimum
    things: Mapping[str, Held]
    levels: Sequence[float]
    num: int
    most: int | None

    def __call__(self, task: tuple[str, float]) -> Side:
        name, sign = task
        best, search, held = self.best, copy(self.best.search), copy(self.things[name])
        search.objective = search.objective.alone(best.theta, search.lower, search.upper)
        side = Side(best.theta.size)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            try:
                side.standard_error, tangent = held.standard_error(search, best.theta)
                thresholds = [best.threshold(level) for level in self.levels]
                Walk(
                    search,
                    held,
                    side,
                    Refit(held.place(best.theta), best.theta, best.cost, 0.0, tangent),
                    sign,
                    thresholds,
                    rise=thresholds[-1] / max((self.num - 1) // 2 - 1, 1),
                    standard_error=side.standard_error,
                    size=held.size(search, best.theta),
                    limit=held.limits(search)[int(sign > 0)],
                    most=self.most or max(4 * self.num, 60),
                ).run()
            except KeyboardInterrupt:
                if not outermost():
                    raise
                raise Stopped(side) from None
            finally:
                side.evaluations = search.objective.evaluations
        return side


@dataclass(slots=True, eq=False)
class Sides:
    """All sides, and the optimum that they belong to.

    Attributes
    ----------
    best : Optimum
    sides : dict of (name, sign) to Side
    better : list of (name, value, cost before, cost after)
        Better optima that were found on the way, one after the other.
    interrupted : bool
    evaluations : int
    notes : list of str
        What is to be said of the checkpoint.
    """

    best: Optimum
    sides: dict[tuple[str, float], Side] = field(default_factory=dict)
    better: list[tuple[str, float, float, float]] = field(default_factory=list)
    interrupted: bool = False
    evaluations: int = 0
    notes: list[str] = field(default_factory=list)


def walk_all(
    best: Optimum, things: Mapping[str, Held], levels: Sequence[float], num: int, *, most: int | None = None,
    executor: Any = None, progress: Any = False, checkpoint: Any = None,
) -> Sides:  # fmt: skip
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
    found = Sides(best)
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
                found.sides[task] = side or _failed(best.theta.size, ended, why.get(k, ""))
                found.evaluations += found.sides[task].evaluations
            found.interrupted = runs.interrupted
            if found.interrupted or not _begun_anew(found, things):
                break
        found.notes += journal.notes
    return found


def _failed(n_par: int, ended: str, message: str) -> Side:
    """Return a side of which nothing is known but why."""
    refit = Refit(np.nan, np.full(n_par, np.nan), np.nan, message=message)
    return Side(n_par, ended=ended, failed=[refit] if message else [])


def _begun_anew(found: Sides, things: Mapping[str, Held]) -> bool:
    """Go to the best of the better optima that the sides came upon; tell whether there was one."""
    better = [
        (side.better.cost, task, side.better.theta)
        for task, side in found.sides.items()
        if side.ended == "better" and side.better is not None
    ]
    if not better:
        return False
    _, (name, _), start = min(better, key=lambda known: known[:2])
    with np.errstate(over="ignore", invalid="ignore"):
        theta, cost = fitted(found.best.search, start)
    found.better.append((name, things[name].place(start), found.best.cost, cost))
    found.best = found.best.at(theta, cost)
    return True
