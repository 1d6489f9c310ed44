"""Whole runs of one model with delays: `compiled.delay_loop` behind the face of `ExplicitRuns`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fmepy.compiled import delay_loop
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.explicit_runs import ExplicitRuns
from fmepy.compiled.status import NO_ROOM
from fmepy.types import Matrix, Vector

FIRST_ROOM = 200
"""Steps of the past that there is room for at first."""


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """Delays of a model, and its past, by addresses of functions like those of `ModelFunctions`.

    Attributes
    ----------
    states : tuple of int
        Of which state each delay reads the past.
    varies : tuple of bool
        Whether it changes in a run.
    values : int
        Gives the delays, and their derivatives to each parameter asked for, times its scale.
    history : int
        Gives z before the start, and behind it the slopes of the states in time.
    at : int
        Where in the inputs of a run the lagged values begin.
    """

    states: tuple[int, ...]
    varies: tuple[bool, ...]
    values: int
    history: int
    at: int


class DelayedRuns(ExplicitRuns):
    """Runs along one course of a model with delays; threads may share it.

    Parameters
    ----------
    delays : Delays
    functions, solver, course, n_inputs
        As those of `ExplicitRuns`; rates and outputs find the lagged values among their inputs, the outputs behind the
        forcings.
    """

    def __init__(self, delays: Delays, *rest: Any) -> None:
        super().__init__(*rest)
        d = delays
        self._said = np.array([d.values, d.history, d.at, len(d.states), 0, *d.states, *d.varies], dtype=np.int64)
        run = delay_loop.run_delayed_watched if self._functions.n_watched else delay_loop.run_delayed
        self._loop = c_loop(run, "the explicit solver with delays")
        self._room = FIRST_ROOM

    def _call(self, told: Vector, n_runs: int, *addresses: int) -> None:
        first = 0
        while True:
            self._loop(*self._fixed, n_runs, *addresses, address(self._said), first, self._room)
            full = np.flatnonzero(told[3 * first : 3 * n_runs : 3] == NO_ROOM)
            if not len(full):
                return
            first += int(full[0])
            self._room *= 4

    def up_to_crossing(self, inputs: Vector, first: int) -> tuple[Matrix, list[float], Vector, Vector]:
        """Return the rows of a run and how it ended, its last z, and its inputs there with the lagged values.

        first : the stretch from which on conditions are watched; what crosses zero then ends the run
        """
        self._said[4] = first
        own = np.empty(self._size)
        own[3 : 3 + len(inputs)] = inputs
        told = address(own)
        _, work, seen, values, out = self._offsets
        self._call(own, 1, told + 24, told + work, told + seen, told + values, told + out, told)
        z, rows = own[self._places[3] :], own[self._places[4] :].reshape(self._rows, self._width)
        return rows, own[:3].tolist(), z[: self._head[4]], own[3 : 3 + len(inputs)]
