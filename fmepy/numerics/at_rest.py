"""Where a system y' = f(y) is at rest: Newton's method, and when it does not arrive, steps in time that grow.

**Newton.** With J = df/dy::

    J d = -f(y),    y <- y + lambda d

A full step (lambda = 1) is taken where the correction that the same J gives afterwards is shorter, ``|J^-1 f(y + d)| <=
theta |d|``, else lambda is halved (the natural monotonicity test; Deuflhard 2004, section 3.2). J is kept while theta
is small, since a Jacobian by differences costs as much as many evaluations. With `positive`, no state falls below a
tenth of itself in a step, and none below zero at the end.

**Steps in time** (pseudo-transient continuation; Kelley and Keyes 1998) are implicit Euler's with a step that grows::

    (J - I / dt) d = -f(y)

They follow the way that the system itself takes to its rest, only coarsely, and end as Newton's.

It has arrived when what is left is estimated to be below a ten-thousandth of ``rtol |y| + atol`` in every state.

References
----------
Deuflhard, P. (2004). Newton Methods for Nonlinear Problems. Springer.
Kelley, C. T. and Keyes, D. E. (1998). Convergence analysis of pseudo-transient continuation. SIAM J. Numer. Anal. 35,
508-523.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from fmepy.numerics.finite import all_finite
from fmepy.numerics.structure import Structure
from fmepy.types import BoolVector, Vector

_KEPT = 0.3  # contraction up to which a Jacobian is kept
_LEFT = 1e-4  # of the tolerance: what may be left
_SHORTEST = 1e-4  # damping at which Newton gives up
_KEEP = 0.1  # the part of a positive state that a step leaves at least
_MOST_IN_TIME = 20  # steps in time, in units of max_iter
_LOCAL = 0.1  # relative change up to which a step in time is followed by a longer one
_TOO_FAR = 1.0  # and above which it is taken again, shorter
SINGULAR_HERE = "the Jacobian is singular where it stands"
SINGULAR = 1e-7
"""Pivots below: the matrix may be singular, which differences of f can only tell roughly."""


class Resting(Protocol):
    """A system y' = f(y).

    Attributes
    ----------
    structure : Structure
        Of its Jacobian.
    """

    @property
    def structure(self) -> Structure:
        """Of the Jacobian."""

    def rates(self, y: Vector) -> Vector:
        """Return f, shape (n,); NaN where it has no value."""

    def jacobian(self, y: Vector, f: Vector) -> Vector:
        """Return the entries of J that the structure names."""


@dataclass(frozen=True, slots=True)
class SteadyTolerances:
    """When a state is said to rest.

    Attributes
    ----------
    rtol, atol : float or ndarray
    ctol : float
        A change of all states below it counts as none, too.
    max_iter : int
        Most Newton steps.
    positive : bool
        States are not negative.
    in_all : int or None
        Most steps of a search, of all kinds; None: as many steps in time as it may take.
    """

    rtol: float
    atol: Any
    ctol: float
    max_iter: int
    positive: bool
    in_all: int | None = None

    def used_up(self, steps: int) -> bool:
        """Tell whether so many steps are all that a search may take."""
        return self.in_all is not None and steps >= self.in_all

    def left(self, steps: int) -> SteadyTolerances:
        """Return what is left of the steps after some of them."""
        if self.in_all is None:
            return self
        most = max(self.in_all - steps, 0)
        return replace(self, max_iter=min(self.max_iter, most), in_all=most)

    def size(self, y: Vector, d: Vector) -> float:
        """Return the largest correction relative to what is allowed."""
        atol = self.atol * min(1.0, float(np.abs(y).max(initial=0.0)) or 1.0)  # 1e-8 of a state of 1e-9 is no rest
        return float((np.abs(d) / (self.rtol * np.abs(y) + atol)).max(initial=0.0))


@dataclass(slots=True)
class NewtonState:
    """Where an iteration stands.

    Attributes
    ----------
    y, f : ndarray, shape (n,)
        The state and its rates.
    factored : Factored or None
        The last Jacobian.
    converged : bool
    iterations : int
    why : str
        Why not.
    """

    y: Vector
    f: Vector
    factored: Any
    converged: bool
    iterations: int
    why: str = ""


def rest_from(system: Resting, y: Vector, tol: SteadyTolerances, factored: Any = None, f: Any = None) -> NewtonState:
    """Return the state at rest that Newton's method leads to.

    Parameters
    ----------
    system : Resting
    y : ndarray, shape (n,)
        Where to begin.
    tol : Tolerances
    factored : Factored, optional
        A Jacobian to begin with, of some state nearby.
    f : ndarray, optional
        The rates at y, if they are known.
    """
    f = system.rates(y) if f is None else f
    if not all_finite(f):
        return NewtonState(y, f, None, False, 0, "the rates have no value where it begins")
    found = NewtonState(y, f, factored, False, 0)
    fresh = factored is None
    if fresh:
        found.factored = _factored(system, y, f)
    d = -found.factored.solve(f)
    while found.iterations < tol.max_iter:
        if not all_finite(d):
            if not fresh:
                fresh, d = _renewed(system, found)
                continue
            found.why = SINGULAR_HERE
            return found
        step = _step(system, found, d, tol, patient=fresh)
        found.iterations += 1
        if step is None:
            if fresh:
                found.why = "Newton's steps do not get nearer"
                return found
            fresh, d = _renewed(system, found)
            continue
        after, theta, clipped = step
        if not clipped and _has_arrived(found, after, theta, tol, fresh):
            return _ended(system, found, after, tol)
        if theta <= _KEPT and not clipped:
            fresh, d = False, after
        else:
            fresh, d = _renewed(system, found)
    found.why = "the limit of steps is reached"
    return found


def _factored(system: Resting, y: Vector, f: Vector) -> Any:
    return system.structure.solver(system.jacobian(y, f))


def _renewed(system: Resting, found: NewtonState) -> tuple[bool, Vector]:
    """Return a step with a Jacobian of here."""
    found.factored = _factored(system, found.y, found.f)
    return True, -found.factored.solve(found.f)


def _step(
    system: Resting, found: NewtonState, d: Vector, tol: SteadyTolerances, patient: bool
) -> tuple[Vector, float, bool] | None:
    """Take a step; return the next correction by the same Jacobian, how it contracts, and whether states were kept.

    None where no part of the step leads nearer; a step by an old Jacobian is not shortened.
    """
    length, damping = tol.size(found.y, d), 1.0
    while True:
        y, clipped = _moved(found.y, damping * d, tol)
        f = system.rates(y)
        if all_finite(f):
            after = -found.factored.solve(f)
            theta = tol.size(y, after) / length if length > 0 else 0.0
            if clipped or theta <= 1 - damping / 4 or tol.size(y, after) <= 1:
                found.y, found.f = y, f
                return after, theta if damping == 1 else 1.0, clipped
        if not patient:
            return None
        damping /= 2
        if damping < _SHORTEST:
            return None


def _moved(y: Vector, d: Vector, tol: SteadyTolerances) -> tuple[Vector, bool]:
    moved = y + d
    if not tol.positive:
        return moved, False
    least = _KEEP * y
    low: BoolVector = moved < least
    if not low.any():
        return moved, False
    kept = np.where(low, least, moved)
    # what falls from nothing to nothing has not been kept
    return kept, tol.size(y, np.where(low, d, 0.0)) > 1


def _has_arrived(found: NewtonState, after: Vector, theta: float, tol: SteadyTolerances, fresh: bool) -> bool:
    """Tell whether the next correction is the last that matters, or nothing but rounding."""
    if not all_finite(after):
        return False
    if fresh and theta > _KEPT and tol.size(found.y, after) <= 1:
        return True
    if theta >= 1:
        return False
    left = tol.size(found.y, after) * (theta / (1 - theta) if theta > 0 else 0.0)
    return left <= _LEFT or float(np.abs(after).max(initial=0.0)) <= _LEFT * tol.ctol * min(
        1.0, float(np.abs(found.y).max(initial=0.0)) or 1.0
    )


def _ended(system: Resting, found: NewtonState, after: Vector, tol: SteadyTolerances) -> NewtonState:
    """Take the last correction."""
    y = found.y + after
    if tol.positive:
        y = np.maximum(y, 0.0)
    f = system.rates(y)
    if all_finite(f):
        found.y, found.f = y, f
    found.converged = True
    return found


def rest_in_time(system: Resting, y: Vector, tol: SteadyTolerances, algebraic: Any = ()) -> NewtonState:
    """Return the state at rest that steps in time lead to; `algebraic`: positions of what is zero at any time."""
    f = system.rates(y)
    found = NewtonState(y, f, None, False, 0, "the rates have no value where it begins")
    if not all_finite(f):
        return found
    values = system.jacobian(y, f)
    structure = system.structure
    moves = np.ones(structure.n, dtype=bool)
    moves[list(algebraic)] = False
    diagonal = (structure.rows == structure.columns) & moves[structure.rows]
    size = sizes_of(y)
    dt = 0.1 / max(float((np.abs(f) / size)[moves].max(initial=0.0)), 1e-300)
    found.why = "steps in time do not come to rest"
    most = _MOST_IN_TIME * tol.max_iter if tol.in_all is None else tol.in_all
    for found.iterations in range(1, most + 1):
        shifted = values.copy()
        shifted[diagonal] -= 1 / dt
        d = -structure.solver(shifted).solve(found.f)
        moved, _ = _moved(found.y, d, tol)
        f = system.rates(moved)
        change = float((np.abs(moved - found.y) / size).max()) if all_finite(f) else np.inf
        if not change <= _TOO_FAR:
            dt /= 4
            if dt < 1e-300:
                break
            continue
        found.y, found.f, size = moved, f, sizes_of(moved)
        values = system.jacobian(moved, f)
        if tol.size(moved, d) <= 1 or (
            change < _LOCAL and dt * float((np.abs(f) / size)[moves].max(initial=0.0)) < 1e-6
        ):
            steps = found.iterations
            end = rest_from(system, moved, tol.left(steps), f=f)
            end.iterations += steps
            if end.converged or end.why == SINGULAR_HERE or tol.used_up(end.iterations):
                return end
        dt *= 4 if change < _LOCAL else 1.5 if change < 3 * _LOCAL else 1
    return found


def sizes_of(y: Vector) -> Vector:
    """Return the sizes that changes are relative to."""
    return np.maximum(np.abs(y), 1e-3 * (float(np.abs(y).max(initial=0.0)) or 1.0))


def null_direction(system: Resting, found: NewtonState, rates: Callable[[Vector], Vector]) -> Vector | None:
    """Return a direction in which no rate changes, scaled to 1, or None: the Jacobian is regular.

    Pivots of a Jacobian by differences cannot tell a singular matrix; the derivative of the rates along the direction
    that it changes least can.
    """
    if found.factored is None or found.factored.pivots > SINGULAR:
        return None
    size = sizes_of(found.y)
    values = system.jacobian(found.y, found.f)
    s = system.structure
    J = np.zeros((s.n, s.n))
    J[s.rows, s.columns] = values * size[s.columns]
    if not np.isfinite(J).all():
        return None
    scale = np.abs(J).max(axis=1)
    scale[scale == 0] = 1.0
    _, singular, V = np.linalg.svd(J / scale[:, None])
    v = V[-1]
    if singular[-1] > 1e-6 * singular[0]:
        return None
    h = 1e-5
    along = (rates(found.y + h * size * v) - rates(found.y - h * size * v)) / (2 * h) / scale
    least = float(np.abs(along).max())
    return v if not least > 1e-9 * singular[0] else None
