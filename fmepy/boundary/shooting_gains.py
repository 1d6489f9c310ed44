"""Gains that are unknown, found from one continuous path to the next.

Continuity makes the question of a gain well posed, and nothing else does. Take one state that is observed, constant but
for its corrections, and a start x_1 that is free; the errors e_j = y_j - x_j obey::

    x_(j+1) = x_j + K e_j        =>        e_j = (e_(j+1) - (y_(j+1) - y_j)) / (1 - K)

With |1 - K| > 1 the predictor is unstable, but solved from the last sample back there is a start from which it follows
any data, with errors of about (y_(j+1) - y_j) / K: the larger the gain, the smaller they are, as in the continuous form
with a free K. While continuity is soft every segment has such a start. So gains are held at their first guess until the
path is continuous. From there the squares are those of the causal predictor, a function of the unknowns alone, and are
brought down among predictors that are stable, or as unstable as at the first guess. (Where initial values are unknown
they have that other minimum still.)

With S the squares of the gains in the Gauss-Newton step, everything else eliminated, and dK what that step does to
them, -S dK is the gradient of the least squares that gains K allow. It teaches a quasi-Newton matrix, S at first
(Broyden, Fletcher, Goldfarb, Shanno), as errors of prediction are no small residuals: with S alone the steps overshoot.
A step gives the gains a share of theirs, and exact steps with these gains make the path continuous again; it is taken
if the squares have fallen. Where there is no way on but into instability, the search begins once more on the other side
of the first guess: to first order, what makes a mode on the boundary of stability grow damps it with the other sign.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fmepy.boundary.shooting_linear import ShootingStep
from fmepy.boundary.shooting_segments import DEFECT, LONGEST, Iterate, Segments
from fmepy.boundary.superposition import is_negligible
from fmepy.errors import ArgumentError
from fmepy.types import Matrix, Vector

_SHARES = tuple(0.5**k for k in range(10))
"""Of a step of the gains."""
_ENOUGH = 4
"""Steps in a row by which observations hardly move: rounding may keep corrections from shrinking further."""
_MOST_STEPS = 8
"""In which a path is to be continuous again."""
_MORE = 0.05
"""By which the growth of an error over an observation (its logarithm) may exceed that at the first guess, or none."""
_MOST_GROWTH, _MOST_EACH = np.log(1e3), np.log(1.2)
"""Of the growth of an error of a corrected state: over a segment; over a record, and on average over an observation."""
_UNSTABLE = (
    "Gains that fit closer make the predictor unstable, and are not taken: with free starts such a predictor follows "
    "any data, the closer the larger the gain. Give gain='stationary', the gain as numbers, or another first guess of "
    "it."
)


def fit_gains(search: Any) -> tuple[bool, str]:
    """Minimise the squares over the gains too, from a continuous path; return whether it converged, and the message.

    search : see `fmepy.boundary.shooting`
    """
    p, way, n_small = search.problem, _GainSearch(search), 0
    while not search.is_used_up:
        search.held = {}
        linear = search.linear(search.at)
        full = search.step(search.at, linear, None, 0.0)
        way.learn(full)
        effect = linear.effect(full) * search.size
        is_last = is_negligible(effect, search.at.r, len(p.names), search.segments.size_of_obs)
        share, found = way.next_path(is_last)
        if found is None:
            return False, way.reason
        search.accept(found, 0.0, 0.0)
        n_small = n_small + 1 if is_last and share == 1 else 0
        if n_small >= _ENOUGH or (n_small and search.corrections[-1] <= p.tol):
            end: tuple[bool, str] | None = search.ended(effect)
            if end is not None:
                return end
    return False, f"max_iter={p.max_iter} steps are used up; the gains still change. Allow more, or begin nearer."


def check_gain(segments: Segments, at: Iterate) -> None:
    """Raise an error for a gain with which the predictor is less stable than the model by itself.

    Raises
    ------
    ArgumentError
        Errors of the state grow over a segment, or over a whole record of segments.
    """
    growth, n = segments.growth(at), np.maximum(segments.counts, 1)
    of_records, n_record = segments.growth_of_records(at)
    bad = ~(growth <= _MOST_GROWTH)
    bad_records = (of_records > _MOST_GROWTH) & (of_records > n_record * _MOST_EACH)
    if not (bad.any() or bad_records.any()):
        return
    plain, there = _uncorrected(segments, at)
    bad &= ~(growth <= plain.growth(there) + n * _MORE)
    bad_records &= ~(of_records <= plain.growth_of_records(there)[0] + n_record * _MORE)
    if bad.any():
        k = int(np.argmax(bad))
        where = f"{_fold(growth[k])} over the segment that begins at {segments.begins[k]:g}"
    elif bad_records.any():
        k = int(np.argmax(bad_records))
        of = f" of {segments.records[k].label!r}" if segments.records[k].label else ""
        worst = int(np.argmax(np.where(segments.layout.record == k, growth / n, -np.inf)))
        where = f"{_fold(of_records[k])} over the segments{of} together, most at {segments.begins[worst]:g}"
    else:
        return
    raise ArgumentError(
        f"With this gain an error of the state grows {where}: it makes the predictor unstable there. Give a smaller "
        "gain (per sample, 1 takes the state to the datum), or gain=None."
    )


def _fold(logarithm: float) -> str:
    return f"{np.exp(logarithm):.2g}-fold" if logarithm < 500 else "beyond all bounds"


def _uncorrected(segments: Segments, at: Iterate) -> tuple[Segments, Iterate]:
    """Return the segments from the same starts without corrections."""
    p = segments.problem
    state, variable = p.cost.model.states[0], p.cost.comparison.group_names[0]
    keep = [i for i in range(len(p.names)) if i not in p.gains]
    names = tuple(p.names[i] for i in keep)
    cost = p.cost.replace(gain={state: {variable: 0.0}})
    there = replace(p, cost=cost, names=names, start=p.start[keep], lower=p.lower[keep], upper=p.upper[keep], gains=())
    plain = Segments(there)
    return plain, plain.at(at.theta[keep], at.X)


class _GainSearch:
    """The search over gains, from one continuous path to the next."""

    def __init__(self, search: Any) -> None:
        self._search, self._gains = search, list(search.problem.gains)
        growth, n = search.segments.growth_of_records(search.at)
        self._most_growth: Vector = np.maximum(growth / n, 0.0) + _MORE
        self._went_unstable = self._has_turned = False
        self._first: Iterate = search.at
        self._S: Matrix = np.empty((0, 0))
        self._B: Matrix | None = None
        self._last: tuple[Vector, Vector] = (np.empty(0), np.empty(0))

    def learn(self, full: ShootingStep) -> None:
        """Update the quasi-Newton matrix of the gains by an exact step."""
        search, gains = self._search, self._gains
        scale, K = search.scale(search.at)[gains], search.at.theta[gains]
        _, s, V = np.linalg.svd(full.squares, full_matrices=False)
        half = scale[:, None] * (full.basis[gains] @ (V.T / np.maximum(s, 1e-12 * s.max(initial=0.0)))) / search.size
        S = np.linalg.pinv(half @ half.T, hermitian=True)
        self._full: Vector = full.dp[gains] * scale
        gradient = -S @ self._full
        if self._B is not None:
            self._B = _updated(self._B, K - self._last[0], gradient - self._last[1])
        is_held = not (half != 0).any(axis=1).all()  # on a bound, of which S is 0
        self._B = None if is_held else S if self._B is None else self._B
        self._S, self._last = S, (K, gradient)

    def next_path(self, is_last: bool) -> tuple[float, Iterate | None]:
        """Return the next continuous path, and which share of the step it is; None: there is none.

        is_last : bool
            The step is so small that the squares need not fall.
        """
        squares, self._went_unstable = float(self._search.at.r @ self._search.at.r), False
        steps: list[Any] = [self._full]
        if self._B is not None and self._B is not self._S:
            steps.insert(0, -np.linalg.lstsq(self._B, self._last[1], rcond=1e-12)[0])
        for step in steps:
            for share in _SHARES:
                found = self._with_gains(self._last[0] + share * step)
                if found is not None and (float(found.r @ found.r) < squares or (is_last and share == 1)):
                    return share, found
            self._B = None
        if self._went_unstable and not self._has_turned:
            self._has_turned, self._B = True, None
            self._search.at, begin = self._first, self._first.theta[self._gains]
            for share in _SHARES:
                found = self._with_gains(begin + share * (begin - self._last[0] - step))
                if found is not None:
                    return 0.0, found
        return 0.0, None

    def _with_gains(self, K: Vector) -> Iterate | None:
        """Return the continuous path with these gains; None where there is none."""
        search, p, begin = self._search, self._search.problem, self._search.at
        K = np.clip(K, p.lower[self._gains], p.upper[self._gains])
        steps = (K - begin.theta[self._gains]) / search.scale(begin)[self._gains]
        search.held = dict(zip(self._gains, steps.tolist(), strict=True))
        try:
            for _ in range(_MOST_STEPS):
                step = search.step(search.at, search.linear(search.at), None, 0.0)
                found: Iterate | None = None if np.abs(step.dp).max() > LONGEST else search.try_step(search.at, step)
                if found is None or self._is_unstable(found):
                    return None
                search.at, search.held = found, dict.fromkeys(self._gains, 0.0)
                if search.defect(found) <= DEFECT:
                    return found
            return None
        finally:
            search.at, search.held = begin, {}

    def _is_unstable(self, found: Iterate) -> bool:
        growth, n = self._search.segments.growth_of_records(found)
        is_bad = bool(((growth > np.log(10)) & (growth / n > self._most_growth)).any())
        self._went_unstable |= is_bad
        return is_bad

    @property
    def reason(self) -> str:
        """Why there is no next path, as a message."""
        if self._went_unstable or self._has_turned:
            return _UNSTABLE
        return "No change of the gains brings a continuous path nearer to the observations. Start nearer."


def _updated(B: Matrix, s: Vector, y: Vector) -> Matrix | None:
    """Return the matrix that maps the last step to the change of the gradient; None where no positive one does."""
    if not s @ y > 1e-8 * np.linalg.norm(s) * np.linalg.norm(y):
        return None
    Bs = B @ s
    out: Matrix = B - np.outer(Bs, Bs) / (s @ Bs) + np.outer(y, y) / (s @ y)
    return out
