"""What an engine for differential equations must provide.

An engine carries z over one *segment*, a stretch of time without events, kinks or jumps; the driver
(`models.running.timeline`) cuts a run into segments and does everything that happens between them, the same way for
every engine. So a new engine is one class with one method, `advance`, and one line in `models.engines.choice`:

1. it starts at ``(start, z)`` and returns z at ``times`` (increasing, ``times[0] >= start``, at least one later than
   `start`; the last is the end of the segment), shape (n_times, n_z);
2. it never evaluates the rates beyond ``times[-1]``;
3. if it watches switches (``watches_switches``) it may come back early: it then returns fewer rows, the last of them at
   the crossing, and the times that belong to them;
4. it raises SimulationError if it cannot go on (step limit, step size, no convergence), with the time reached where
   that is known; it need not look for NaN, the driver does;
5. it keeps nothing from one call to the next that could change a result.
"""

from __future__ import annotations

from typing import Protocol

from fmepy.types import Matrix, Vector

__all__ = ["Stepper", "steps_of"]


def steps_of(span: float, max_step: float) -> int:
    """Return the steps that `max_step` alone takes over a span, at most ten million; limits of steps allow for them."""
    return int(min(span / max_step, 1e7))


class Stepper(Protocol):
    """An engine, ready to run one system; see the module's text."""

    name: str
    watches_switches: bool

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them)."""
        ...
