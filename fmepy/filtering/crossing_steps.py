"""Steps of a filter through the conditions of its model, in the compiled loop: see `filtering.transition`.

The augmented system (`filtering.continuous_transition`) has its conditions taken out as modes; `compiled.switching`
flips them where they cross. Conditions of time and parameters alone are cut out of the steps: their crossings are
found once a pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from fmepy.compiled.c_loops import address, loop_address
from fmepy.compiled.explicit_runs import Course, ExplicitRuns, Stretch
from fmepy.compiled.kernels import packed
from fmepy.compiled.switching import Switches, run_stretch, with_room
from fmepy.filtering.loop_arguments import CrossingRoom
from fmepy.models.engines.explicit import CompiledStepper
from fmepy.models.running.crossings import watch_table
from fmepy.models.running.time_switches import planned_crossings, planned_modes
from fmepy.types import Vector

_MOST_FLIPS = 1000
"""Crossings of one step that there is room for; of more it is given back."""


class CrossingSteps:
    """Rooms for passes through the conditions of one augmented system; threads may share it.

    Parameters
    ----------
    stepper : CompiledStepper
        Of the augmented system, whose last parameter is the size of the noise.
    switches : Switches
        Its conditions.
    """

    def __init__(self, stepper: CompiledStepper, switches: Switches) -> None:
        self._stepper, self._switches, self._free = stepper, switches, list[tuple[CrossingRoom, Any]]()

    @classmethod
    def of(cls, stepper: CompiledStepper | None) -> CrossingSteps | None:
        """Return those of a system with conditions that can be watched in the compiled loop; None of others."""
        if stepper is None or not stepper.system.switches:
            return None
        switches = watch_table(stepper.system).switches
        return None if switches is None else cls(stepper, switches)

    @contextmanager
    def room(self, p: Vector, times: Vector) -> Iterator[CrossingRoom]:
        """Give room for a pass over times at the parameters p, behind which more may stand."""
        try:
            room, lives = self._free.pop()  # of no other thread's
        except IndexError:
            room, lives = self._made()
        system, start, last = self._stepper.system, float(times[0]), float(times[-1])
        if system.planned:
            theta = np.append(p[: room.n_parameters], 1.0)
            cuts = np.unique([at for at, _ in planned_crossings(system, theta, start, last)])
            ends = np.concatenate([[start], cuts, [max(last, start)]])
            modes = planned_modes(system, theta, list(itertools.pairwise(ends)))
            room = room._replace(cuts=cuts, modes=np.ascontiguousarray(modes))
        room.ended[:] = 0.0  # no step is known
        yield room
        self._free.append((room, lives))

    def _made(self) -> tuple[CrossingRoom, Any]:
        """Return a room, and what must live as long."""
        s, at = self._stepper, np.zeros(1)
        course = Course(0.0, at, 0, (Stretch(0.0, at, 1),))
        runs = ExplicitRuns(replace(s.functions, stiff=None), s.solver, course, s.n_inputs)
        arrays, at_arrays, lives = runs.arrays(np.zeros((1, runs.n_inputs)))
        own = with_room(self._switches, _MOST_FLIPS)
        words, layout = packed(own), s.system.layout
        room = CrossingRoom(
            loop_address(run_stretch, "the filter through conditions"), runs.at_course, at_arrays, address(words),
            layout.n_parameters - 1, layout.lines.start, layout.origin, layout.modes.start, runs.tables.begins,
            runs.tables.times, arrays.inputs, arrays.values, arrays.ended, np.array(s.system.planned, dtype=np.int64),
            np.zeros(0), np.zeros((1, 0)),
        )  # fmt: skip
        return room, (runs, arrays, lives, own, words)
