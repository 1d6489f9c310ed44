"""Fixed steps: euler and rk4, on a grid that does not depend on which rows are asked for.

The grid is the model's own times (going on with their last spacing where later rows are asked for), each interval
divided into equal steps no longer than `dt` (a larger `dt` has no effect), as in deSolve; event times and the jumps of
forcings are grid points too, so that no pulse falls between two stages. A row off the grid is one shorter step from the
grid point before it, taken aside. Sensitivities are those of the discrete scheme, exactly: the scheme applied to the
variational equations is the derivative of the scheme.

A step that crosses a root is cut in two where the scheme's own step, shortened, meets the root, so that a hit has the
order of the scheme; roots are looked at along the whole of a step, by shorter ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.models.engines.base import Engine, Step, as_failures, carried
from fmepy.models.running.forcings import forced_at, stage_values
from fmepy.models.running.problem import InitialValueProblem
from fmepy.types import Matrix, Vector


def continued(grid: Vector, until: float) -> Vector:
    """Return a model's times, going on until a later one with their last spacing."""
    if len(grid) < 2 or until <= grid[-1]:
        return grid
    spacing = float(grid[-1] - grid[-2])
    return np.append(grid, np.arange(1.0, np.floor((until - grid[-1]) / spacing + 1e-9) + 1) * spacing + grid[-1])


def fixed_grid(times: Vector, dt: float | None, stops: Vector) -> Vector:
    """Return the grid: `times` divided into steps of at most `dt`, and the `stops` (events, jumps of forcings)."""
    nodes = np.unique(np.concatenate([times, stops[(stops > times[0]) & (stops < times[-1])]]))
    if dt is None:
        return nodes
    pieces = [nodes[:1]]
    for a, b in itertools.pairwise(nodes):
        n = max(1, int(np.ceil((b - a) / dt * (1 - 1e-12))))
        inner = a + (b - a) * np.arange(1, n + 1) / n
        inner[-1] = b
        pieces.append(inner)
    return np.concatenate(pieces)


Rates = Callable[[float, Vector, Any], Any]


def _euler(rates: Rates, t: float, z: Vector, h: float, u: Any) -> Vector:
    step: Vector = z + h * np.asarray(rates(t, z, u[0]))
    return step


def _rk4(rates: Rates, t: float, z: Vector, h: float, u: Any) -> Vector:
    k1 = np.asarray(rates(t, z, u[0]))
    k2 = np.asarray(rates(t + 0.5 * h, z + 0.5 * h * k1, u[1]))
    k3 = np.asarray(rates(t + 0.5 * h, z + 0.5 * h * k2, u[1]))
    k4 = np.asarray(rates(t + h, z + h * k3, u[2]))
    step: Vector = z + h / 6 * (k1 + 2 * (k2 + k3) + k4)
    return step


_STEPS = {"euler": _euler, "rk4": _rk4}
ENGINE = Engine("scipy", tuple(_STEPS), steps=_STEPS, watches_switches=True)


class FixedStepper:
    """A scheme of fixed steps on one system; see the module's text.

    Parameters
    ----------
    problem : InitialValueProblem
        Whose rates hold their conditions.
    step : callable
        ``step(rates, t, z, h, u)`` returns z at t + h; u holds the forcings at t, in the middle, and at t + h.
    grid : ndarray
        Points at which steps end, the first the start of all runs.
    """

    name = "scipy"

    def __init__(self, problem: InitialValueProblem, step: Callable[..., Vector], grid: Vector) -> None:
        self.problem, self.constraints, self._step, self._grid = problem, problem.constraints, step, grid
        self.watches_switches = problem.n_watched > 0

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`. Where roots are watched `inputs` are those there."""
        problem, step, constraints = self.problem, self._step, self.constraints
        forcings, lines, plain, end = problem.definition.forcings, problem.layout.lines, inputs.tolist(), times[-1]
        reached = [start]

        def inputs_at(u: Any) -> Any:
            if u:
                plain[lines] = [c for v in u for c in (v, 0.0)]
            return plain

        def rates(t: float, z: Vector, u: Any) -> Any:
            reached[0] = t
            return problem.rates(t, z, inputs_at(u))

        def to(t: float, z: Vector, u: Any, then: float) -> Vector:
            u = stage_values(forcings, np.array([t]), np.array([then]))[0].tolist() if u is None else u
            z = step(rates, t, z, then - t, u)
            return z if constraints is None else constraints.completed(then, z, inputs_at(u[2]))

        def watch(t: float, z: Vector) -> Any:
            return problem.watched(t, z.tolist(), inputs_at(forced_at(forcings, t)))

        def steps() -> Iterator[Step]:
            points = np.concatenate([[start], self._grid[(self._grid > start) & (self._grid < end)], [end]])
            stages, before = stage_values(forcings, points[:-1], points[1:]).tolist(), z
            for (t, then), u in zip(itertools.pairwise(points.tolist()), stages, strict=True):
                after = to(t, before, u, then)
                if not isfinite(float(after.sum())) and not np.isfinite(after).all():
                    raise SimulationError("a state became NaN or infinite in the step that begins here", time=t)

                def within(
                    times: Vector, t: float = t, then: float = then, before: Vector = before, after: Vector = after
                ) -> Matrix:
                    return np.array([after if s == then else to(t, before, None, s) for s in times.tolist()])

                yield t, then, after, within
                before = after

        with np.errstate(all="ignore"), as_failures(reached):
            at, rows = carried(steps(), watch, problem.n_watched, start, z, times)
        if self.watches_switches:
            inputs[lines] = inputs_at(forced_at(forcings, float(at[-1])))[lines]
        return at, rows
