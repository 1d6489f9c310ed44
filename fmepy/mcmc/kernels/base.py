"""The contract of a kernel: what a new one must provide.

A **kernel** makes the moves; the runner (`fmepy.mcmc.runner`) owns iterations, thinning, burn-in, progress and
checkpoints. A kernel moves `n_member` points at a time: 1 for Metropolis, the whole population for an ensemble.

1. ``start(starts, dispersed, rng)``: a first state;
2. ``step(state, rng) -> state, info``;
3. ``record(state)``: a row of the chain;
4. ``counts(state)``: counts over all iterations;
5. ``arrays(state)`` and ``restore(arrays)``: the state as plain arrays and back.

All random numbers come from `rng`, and later steps depend only on the state and the stream of `rng`: so a resumed chain
equals the chain of an uninterrupted run.

The file of a kernel ends in a `Sampler`, which describes how it is made and the keys of its `control`; one line in
`fmepy.mcmc.kernels.registry` gives it the name that users type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.mcmc.proposals import JumpFunction, default_sd
from fmepy.mcmc.target import Point, Target
from fmepy.types import Matrix, Vector

_FEW = 8  # numbers that numpy also adds in sequence
_TRIALS = 200  # tries of a dispersed start before giving up
_SHRINK = 0.95  # factor of the distance of a dispersed start from try to try
_SPREAD = 2.0  # distance of dispersed starts, in standard deviations of the proposal


class Info(NamedTuple):
    """The outcome of a step: accepted moves, and tries made."""

    accepted: int
    tries: int


class Record(NamedTuple):
    """The saved part of a state, one row per member."""

    pars: Matrix  # (n_member, n_par) or (n_par,)
    SS: Any  # (n_member,), or a number
    sig: Any  # (n_member, n_variance), (n_variance,), or None
    prior: Any
    log_posterior: Any


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Counts over all iterations, by member.

    Attributes
    ----------
    by_try : tuple of int, optional
        Moves accepted at the k-th try of delayed rejection.
    divergences : int
        Divergent trajectories after burn-in; `divergent` has a row for each start of some of them.
    """

    accepted: Vector
    dr_steps: int
    alfasteps: int
    covupdates: int
    best: Vector
    best_log_posterior: float
    by_try: tuple[int, ...] | None = None
    divergences: int = 0
    divergent: Matrix | None = None


class Kernel(Protocol):
    """A kernel; see the docstring of the module."""

    @property
    def n_member(self) -> int: ...

    def start(self, starts: Matrix, dispersed: bool, rng: np.random.Generator) -> Any:
        """Return the first state; `starts` has one row per member, or one row.

        With one row, the first member starts there and the others are dispersed around it; all are, if `dispersed`.
        """

    def step(self, state: Any, rng: np.random.Generator) -> tuple[Any, Info]:
        """Return the next state and the outcome; the old state must not be used again."""

    def record(self, state: Any) -> Record:
        """Return a row of the chain; the caller copies the arrays."""

    def counts(self, state: Any) -> Counts:
        """Return the counts so far."""

    def arrays(self, state: Any) -> dict[str, Any]:
        """Return the state as plain arrays."""

    def restore(self, arrays: Mapping[str, Any]) -> Any:
        """Return the state that `arrays` was made of."""


class SinglePoint:
    """Base of kernels that move one point; their state has `point` and the `precision` of the residuals."""

    n_member = 1
    target: Target

    def record(self, state: Any) -> Record:
        """Return one row; the variance is the current draw."""
        p, target = state.point, self.target
        sig = None if target.variances is None else 1.0 / state.precision if target.sampled else target.variance0
        SS = sum(p.SS.tolist()) if len(p.SS) < _FEW else p.SS.sum()
        return Record(p.theta, SS, sig, p.prior, p.log_posterior)


@dataclass(frozen=True, slots=True, eq=False)
class Dispersion:
    """Dispersed starts of chains for which the user gave none.

    A start is ``p + 2 s L z`` with z standard normal and L L' the proposal covariance of `jump` (0.1 |p| where jump is
    a function). It must lie inside the bounds and have a finite posterior; each failure shrinks s from 1 by 5 %.
    """

    target: Target
    chol: Matrix

    @classmethod
    def of(cls, target: Target, jump: Matrix | JumpFunction, theta0: Vector) -> Dispersion:
        """Return the dispersion that goes with a proposal."""
        if isinstance(jump, JumpFunction):
            jump = np.diag(default_sd(theta0, target.lower, target.upper))
        return cls(target, jump)

    def given(self, theta: Vector) -> Point:
        """Return the point at a start that the user gave."""
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow has its message below
            point = self.target.evaluate(np.array(theta, dtype=float))
            why = self.target.why_impossible(theta) if point is None else ""
        if point is None:
            named = dict(zip(self.target.names, map(float, theta), strict=True))
            raise ArgumentError(f"The start {named} has zero probability: {why} Give another start.")
        return point

    def around(self, theta: Vector, rng: np.random.Generator) -> Point:
        """Return a dispersed start."""
        scale = _SPREAD
        for _ in range(_TRIALS):
            point = self.target.evaluate(theta + scale * (self.chol @ rng.standard_normal(theta.size)))
            if point is not None:
                return point
            scale *= _SHRINK
        raise ArgumentError(
            f"No dispersed start of nonzero probability was found around {theta.tolist()} in {_TRIALS} tries. Give a "
            "smaller `jump`, or a table of starts as `p`."
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """How a chain moves, as values that a checkpoint can store.

    Attributes
    ----------
    method : str
    updatecov, covscale, drscale, adapt_until
        For samplers that adapt: arguments of `modMCMC`, and the last iteration that may adapt.
    control : dict
        Settings of one sampler only.
    """

    method: str
    updatecov: int
    covscale: float
    drscale: tuple[float, ...]
    control: dict[str, Any]
    adapt_until: int


def _as_given(control: dict[str, Any], n_par: int) -> dict[str, Any]:
    return control


@dataclass(frozen=True, slots=True, eq=False)
class Sampler:
    """The description of a sampler before it runs.

    Attributes
    ----------
    kernel : callable
        ``kernel(target, proposal, dispersion, settings) -> Kernel``, the proposal being the lower factor of a
        covariance, or a function.
    control : mapping
        The names that `control` may hold, and their defaults.
    checked : callable
        ``checked(control, n_par) -> control``, whose values cannot be wrong; it raises ArgumentError.
    adapts : bool
        Whether `updatecov`, `covscale`, `ntrydr`, `drscale`, and a function as `jump`, are for it.
    """

    kernel: Callable[[Target, Matrix | JumpFunction, Dispersion, Settings], Kernel]
    control: Mapping[str, Any] = field(default_factory=dict)
    checked: Callable[[dict[str, Any], int], dict[str, Any]] = _as_given
    adapts: bool = False
