"""A ModularModel as a function of a plain vector; see `models.base.BoundModel`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from fmepy.errors import SimulationError
from fmepy.models.simulated import BoundRuns
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.dmi.model import ModularModel
    from fmepy.dmi.running import Run


class BoundModular(BoundRuns):
    """The model with its series on the grid: what does not depend on parameters is done once."""

    def __init__(self, model: ModularModel, names: tuple[str, ...], times: Vector) -> None:
        super().__init__(model, names, times)
        self.engine = model.engine
        program, inputs = model.program, model.inputs
        self._program = program
        self._keep = model.steps_of(times).astype(np.int64)
        self._start, self._dt = float(model.times[0]), model.dt
        grid = self._start + np.arange(program.rows_per_step * self._keep[-1] + 1) * (model.dt / program.rows_per_step)
        self._series = [
            inputs.sampled(name, shape, grid, program.steps_of[name], program.rows_per_step)
            for name, shape in program.series
        ]
        self._constants, places = inputs.constants(program.constants, self._start)
        for name, place in places.items():
            self._constants[place] = self._values[name]
        self._places = np.array([places[name] for name in names], dtype=np.intp)
        at = {name: i for i, name in enumerate(program.columns)}
        self.columns = np.array([at[name] for name in self.var_names], dtype=np.intp)
        self.runs_on_threads = not program.python_modules

    def run(self, theta: Vector, told: Callable[[int], None] | None = None) -> Run:
        """Return a run, with its rows of all columns of the program, and how its loops settled.

        Raises
        ------
        SimulationError
            It failed; with the parameters and the time.
        """
        constants = self._constants.copy()
        constants[self._places] = theta
        run = self._program.run(constants, self._series, self._start, self._keep, told)
        if run.failed:
            p = {**self._values, **dict(zip(self.names, map(float, theta), strict=True))}
            time = self._start + float(run.failed_step) * self._dt
            raise SimulationError(run.failed, parameters=p, time=time)
        return run

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        rows: Matrix = self.run(theta).rows[:, self.columns]
        return rows
