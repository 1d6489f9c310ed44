"""The two sides of a profile: re-fits from the optimum outwards, until the likelihood ratio crosses its thresholds.

With F the profile (`fmepy.fitting.refits`), F* its minimum and s^2 the unit of the likelihood ratio::

    T(psi) = (F(psi) - F*) / s^2        tau = sqrt(T)        dtau/dpsi = F'(psi) / (2 tau s^2)

For a linear model tau is a straight line, |psi - psi*| / se. Steps aim at equal rises of tau, predicted by a parabola
for T. The end of the interval is where tau reaches its threshold: found on the re-fitted profile itself, by repeated
inverse cubic interpolation of tau and its slopes between the last place below and the first one above.

A side ends one step beyond the crossing of the last threshold, at a bound, after eight decades, where re-fits fail, or
at once where a place is better than the optimum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fmepy.fitting.optimum import Optimum
from fmepy.fitting.refits import BETTER, Held, Refit, Search, fitted, predicted_start
from fmepy.journal.encoding import Stored
from fmepy.parallel.interruption import Stopped, outermost
from fmepy.parallel.resumable import resumable_tasks
from fmepy.types import Matrix, Vector

_DECADES = 1e8
_GROWTH = 5.0  # of a step, at most, from one to the next
_COARSE = 3.0  # times the rise aimed at: a longer step is taken in parts
_EXACT = 1e-8  # of the threshold: nearer is there
_NARROW = 1e-10  # of the distance from the optimum: a bracket in which nothing more is looked for
_CROWDED = 1e-2  # of the distance from the optimum: places nearer to an end than this are not kept
_MOST = 40  # re-fits for one end
_SHORTEST = 1e-9  # of the size: steps before failing re-fits
_MOST_ROUNDS = 10
_PATIENCE = 30.0  # seconds after Ctrl-C for sides under way to come to the end of an evaluation


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """A re-fit on its side: u the distance from the optimum, tau and dtau/du."""

    u: float
    tau: float
    rise: float
    refit: Refit


@dataclass(slots=True, eq=False)
class Side(Stored):
    """One side of a profile, in plain numbers and arrays; it travels from workers and is stored in checkpoints.

    Attributes
    ----------
    n_par : int
    points : list of Refit
        Outwards, without the optimum.
    ends : list of float
        Where the thresholds are crossed, as far as they are.
    ended : str
        "crossed", "bound", "decades", "failed", "better", "most", "interrupted".
    failed : list of Refit
        Re-fits that came to nothing.
    better : Refit or None
        One that is better than the optimum.
    standard_error : float
        Of what is held, at the optimum.
    evaluations : int
    """

    n_par: int
    points: list[Refit] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    ended: str = "interrupted"
    failed: list[Refit] = field(default_factory=list)
    better: Refit | None = None
    standard_error: float = np.nan
    evaluations: int = 0

    @property
    def interrupted(self) -> bool:
        """True if Ctrl-C ended it."""
        return self.ended == "interrupted"

    @property
    def values(self) -> Vector:
        """The places of the points."""
        return np.array([p.place for p in self.points], dtype=float)

    @property
    def costs(self) -> Vector:
        """The costs of the points."""
        return np.array([p.cost for p in self.points], dtype=float)

    @property
    def thetas(self) -> Matrix:
        """The parameters at the points, shape (n, n_par)."""
        return np.array([p.theta for p in self.points], dtype=float).reshape(-1, self.n_par)


@dataclass(slots=True, eq=False)
class _Walk:
    """A walk outwards from the optimum; `side` is filled on the way, so that Ctrl-C leaves the points so far.

    Attributes
    ----------
    origin : Refit
        The optimum.
    sign : float
        1 upwards, -1 downwards.
    thresholds : sequence of float
        Of tau, rising.
    rise : float
        Of tau in one step.
    standard_error, size : float
        Of what is held, at the optimum; infinite where not known. What counts as its size.
    limit : float
        The place beyond which it may not go: a bound, or infinite.
    most : int
        Re-fits on the way, at most.
    """

    search: Search
    held: Held
    side: Side
    origin: Refit
    sign: float
    thresholds: Sequence[float]
    rise: float
    standard_error: float
    size: float
    limit: float
    most: int
    points: list[_Point] = field(init=False)
    farthest: float = field(init=False)
    wall: float = field(init=False, default=np.inf)
    tried: int = field(init=False, default=0)
    has_failed: bool = field(init=False, default=False)
    over: _Point | None = field(init=False, default=None)  # above a threshold, but too far from the last for the eye

    def __post_init__(self) -> None:
        se = self.standard_error
        self.points = [_Point(0.0, 0.0, 1.0 / se if se > 0 else 0.0, self.origin)]
        self.farthest = min(abs(self.limit - self.origin.place), _DECADES * self.size)

    def run(self) -> None:
        """Walk until the side ends."""
        self.side.ended = self._outwards()

    def _outwards(self) -> str:
        if self.standard_error == 0:  # a prediction that no parameter moves
            self.side.ends = [self.origin.place] * len(self.thresholds)
            return "crossed"
        if self.farthest == 0:
            return "bound"
        for tau in self.thresholds:
            outcome = self._cross(tau)
            if outcome != "crossed":
                return outcome
            k = next(k for k, p in enumerate(self.points) if p.tau >= tau)
            outcome, end = self._root(tau, self.points[k - 1], self.points[k])
            if outcome != "crossed":
                return outcome
            self.side.ends.append(end)
        self._step_beyond()
        return "crossed" if self.side.better is None else "better"

    # --- outwards

    def _cross(self, tau: float) -> str:
        """Step outwards until tau is crossed; return how the walk ended."""
        while self.points[-1].tau < tau:
            here = self.points[-1]
            u = self._next(here)
            if self.over is not None and u >= self.over.u * (1 - 1e-9):  # a place is what rounding makes of it
                if not self._is_coarse(here, self.over):
                    outcome = self._refit_nearby(here, self.over)
                    if outcome:
                        return outcome
                    continue
                u = here.u + 0.5 * (self.over.u - here.u)
            if self.wall - here.u <= max(_SHORTEST * max(self.size, here.u), _NARROW * self.farthest):
                return "failed" if self.wall < self.farthest else self._at_the_end()
            if self.tried >= self.most:
                return "most"
            self.tried += 1
            found = self._at(u, here)
            self.has_failed = found is None
            if found is None:
                self.wall = min(self.wall, u)
                continue
            if self.side.better is not None:
                return "better"
            if found.u <= here.u + 1e-3 * (u - here.u):  # a prediction that the model cannot give
                return "bound"
            if found.tau > tau and self._is_coarse(here, found):
                self.over = found
                continue
            self._keep(found)
            if found.tau < tau and found.u >= self.farthest * (1 - 1e-12):
                return self._at_the_end()
        return "crossed"

    def _refit_nearby(self, here: _Point, over: _Point) -> str:
        """Keep the point above the threshold, or a refit of it from the point nearby if that is lower.

        A refit that began far away may have missed the optimum. Returns "better" if it beats the optimum, else "".
        """
        again = self._at(over.u, here)
        self.over = None
        self._keep(over if again is None or not here.u < again.u or again.tau >= over.tau else again)
        return "" if self.side.better is None else "better"

    def _at_the_end(self) -> str:
        return "bound" if self.farthest < _DECADES * self.size else "decades"

    def _is_coarse(self, here: _Point, found: _Point) -> bool:
        """Tell whether a step rose too far and can still be divided; where the profile jumps it cannot."""
        may_split = found.u - here.u > 1e-2 * max(here.u, min(self.size, self.farthest))
        return may_split and found.tau - here.tau > _COARSE * self.rise

    def _next(self, here: _Point) -> float:
        """Return the next distance, from a parabola for T (near the optimum tau is noisier than T)."""
        before = self.points[-2] if len(self.points) > 1 else None
        gap = 0.1 * self.size if before is None else here.u - before.u
        step = longest = max(_GROWTH * gap, 0.5 * here.u)
        wanted, unit = (here.tau + self.rise) ** 2 - here.tau**2, self.search.unit
        slope = self.sign * here.refit.slope / unit
        bend = 2 / self.standard_error**2
        if before is not None:
            bend = (slope - self.sign * before.refit.slope / unit) / gap
        inside = slope**2 + 2 * bend * wanted
        if inside >= 0 and slope + inside**0.5 > 0:
            step = min(2 * wanted / (slope + inside**0.5), longest)
        elif abs(slope) * gap > 1e-3 * wanted:  # it falls, or bends down: in small steps, there may be a valley
            step = min(max(gap, -slope / bend), longest)
        u = here.u + (max(step, 0.05 * gap) if before is not None else step)
        if u >= self.wall:  # nearer to where it failed
            u = here.u + (0.5 if self.has_failed else 0.9) * (self.wall - here.u)
        return min(u, self.farthest)

    def _step_beyond(self) -> None:
        """Take one more step, so that plots show the crossing."""
        here = self.points[-1]
        if here.rise > 0 and np.isfinite(here.rise):
            u = min(here.u + self.rise / here.rise, self.farthest)
            found = self._at(u, here) if here.u < u < self.wall else None
            if found is not None and found.u > here.u:
                self._keep(found)

    # --- the end

    def _root(self, tau: float, low: _Point, high: _Point) -> tuple[str, float]:
        """Locate a crossing of tau; return how the search ended, and the place."""
        stuck, on_the_way = 0, []
        for k in range(_MOST):
            best = min((low, high), key=lambda p: abs(p.tau - tau))
            if abs(best.tau - tau) <= _EXACT * tau:
                break
            if high.u - low.u <= _NARROW * high.u or self.farthest - low.u <= _NARROW * self.farthest:
                break
            share = 0.9 if stuck >= 3 else 0.5 if k % 4 == 3 else None
            u = _between(tau, low, high) if share is None else low.u + share * (high.u - low.u)
            found = self._at(u, best)
            if self.side.better is not None:
                return "better", np.nan
            if found is None or not low.u < found.u < high.u:
                found = self._at(0.5 * (low.u + high.u), low)
                if found is None or not low.u < found.u < high.u:
                    break
            on_the_way.append(found)
            stuck = stuck + 1 if found.tau < tau and found.tau - low.tau < 1e-3 * tau else 0
            low, high = (found, high) if found.tau < tau else (low, found)
        best = min((low, high), key=lambda p: abs(p.tau - tau))
        if low.tau < 0.99 * tau and self.farthest - low.u <= 1e-7 * self.farthest and self.farthest <= high.u:
            self._keep(low)
            return self._at_the_end(), np.nan  # the profile jumps at the bound itself, such as zero
        end = best if abs(best.tau - tau) < 1e-3 * tau else low
        self._keep(*on_the_way, end)
        self.points = [p for p in self.points if p is end or not abs(p.u - end.u) <= _CROWDED * end.u]
        self._keep()
        return "crossed", end.refit.place

    # --- one place

    def _at(self, u: float, near: _Point) -> _Point | None:
        """Return the refit at distance u, None if it failed; it starts along the tangent, else from `near`."""
        at = self.origin.place + self.sign * u
        if u >= self.farthest and np.isfinite(self.limit):
            at = self.limit
        before = max((p for p in self.points if p.u < near.u), key=lambda p: p.u, default=None)
        last = None if before is None else before.refit
        plain = self.held.start(near.refit.theta, at)
        starts = [predicted_start(self.search, self.held, near.refit, last, at), plain]
        if near.u > 0:
            slope = near.refit.slope * u / near.u
        else:
            slope = self.sign * 2 * u * self.search.unit / self.standard_error**2
        for start in starts[:1] if np.array_equal(starts[0], plain) else starts:
            found = self.held.fit(self.search, start, at, slope)
            if not found.message and np.isfinite(found.cost):
                return self._placed(found)
            self.side.failed.append(found)
        return None

    def _placed(self, found: Refit) -> _Point:
        ratio = (found.cost - self.origin.cost) / self.search.unit
        if ratio < -BETTER:
            self.side.better = found
        tau = float(np.sqrt(max(ratio, 0.0)))
        rise = self.sign * found.slope / (2 * tau * self.search.unit) if tau > 0 else 0.0
        return _Point(self.sign * (found.place - self.origin.place), tau, rise if np.isfinite(rise) else 0.0, found)

    def _keep(self, *points: _Point) -> None:
        self.points = sorted({*self.points, *points}, key=lambda p: p.u)
        self.side.points = [p.refit for p in self.points[1:]]


def _between(tau: float, low: _Point, high: _Point) -> float:
    """Return where tau is reached, about: by inverse cubic interpolation where both slopes rise, else linearly."""
    h, width = high.tau - low.tau, high.u - low.u
    x = (tau - low.tau) / h if h > 0 else 0.5
    u = low.u + width * x
    if low.rise > 0 and high.rise > 0 and h > 0:
        cubic = (
            (1 + 2 * x) * (1 - x) ** 2 * low.u
            + x * (1 - x) ** 2 * h / low.rise
            + x**2 * (3 - 2 * x) * high.u
            + x**2 * (x - 1) * h / high.rise
        )
        u = cubic if low.u < cubic < high.u else u
    return float(u) if low.u < u < high.u else low.u + 0.5 * width


# --- all sides, side by side; begun anew from whatever is better than the optimum


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
                _Walk(
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
    """Return both sides of every profile; where one finds a better optimum, all start again from it.

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
            if found.interrupted or not _restart_at_better(found, things):
                break
        found.notes += journal.notes
    return found


def _failed(n_par: int, ended: str, message: str) -> Side:
    """Return a side of which nothing is known but why."""
    refit = Refit(np.nan, np.full(n_par, np.nan), np.nan, message=message)
    return Side(n_par, ended=ended, failed=[refit] if message else [])


def _restart_at_better(found: Sides, things: Mapping[str, Held]) -> bool:
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
