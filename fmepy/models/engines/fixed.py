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
from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.models.engines.base import Engine
from fmepy.types import Cube, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.models.running.root_run import StepRootRun


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


def fixed_run(
    step: Callable[..., Vector],
    rates: Rates,
    z: Vector,
    grid: Vector,
    rows: Vector,
    inputs: Callable[[Vector, Vector], Cube],
    after: Callable[[float, Vector], Vector],
    roots: StepRootRun | None = None,
) -> Matrix:
    """Run a fixed-step scheme.

    Parameters
    ----------
    step : callable
        ``step(rates, t, z, h, u)`` returns z at t + h; u holds the forcings at t, in the middle, and at t + h.
    rates : callable
        ``rates(t, z, u)`` with u the forcings at the stage.
    z : ndarray
        Start.
    grid : ndarray
        Grid points; the first is the start.
    rows : ndarray
        Times of the rows wanted, increasing, within the grid.
    inputs : callable
        ``inputs(starts, ends)`` of steps: the forcings at their stages, shape (n_step, 3, n_forcing).
    after : callable
        ``after(t, z)`` applies the events at t.
    roots : StepRootRun, optional
        Root events: a step that crosses one is cut in two there.

    Returns
    -------
    ndarray, shape (n_row, n_z)
        The state before the events of its time in every row.
    """
    out = np.empty((len(rows), len(z)))
    place = np.searchsorted(grid, rows, side="right") - 1  # the grid point at or before each row
    U = inputs(grid[:-1], grid[1:]).tolist()
    row = 0
    for i, t in enumerate(grid.tolist()):
        while row < len(rows) and place[row] == i and rows[row] == t:
            out[row] = z
            row += 1
        z = after(t, z)

        def to(at: float, then: float, z: Vector) -> Vector:
            return step(rates, at, z, then - at, inputs(np.array([at]), np.array([then]))[0].tolist())

        if roots is not None:
            roots.begin(t, z)
            end = float(grid[i + 1]) if i + 1 < len(grid) else float(rows[-1])
            while (hit := roots.next(t, end, z, to)) is not None:
                while row < len(rows) and rows[row] <= hit[0]:
                    out[row] = to(t, float(rows[row]), z)
                    row += 1
                t, z = hit
        while row < len(rows) and place[row] == i:
            out[row] = to(t, float(rows[row]), z)
            row += 1
        if row == len(rows):
            break
        if i + 1 < len(grid):
            z = step(rates, t, z, grid[i + 1] - t, U[i]) if t == grid[i] else to(t, float(grid[i + 1]), z)
            if not isfinite(float(z.sum())) and not np.isfinite(z).all():
                raise SimulationError("a state became NaN or infinite in the step that begins here", time=t)
    return out
