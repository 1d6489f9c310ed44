"""A modular model as a function of a vector of parameters: runs, and sensitivities, exact where there are such."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.dmi.modular_run import ModularRun
from fmepy.dmi.stateful_functions import drawn
from fmepy.dmi.statements import END, START
from fmepy.errors import ModelError, SimulationError
from fmepy.models.simulated import BoundRuns
from fmepy.types import Cube, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.dmi.model import ModularModel

MOST_ELEMENTS = 3000
"""Elements of all variables up to which a system's steps become equations for its sensitivities: some seconds' work."""


class BoundModular(BoundRuns):
    """The model with its series on the grid: what does not depend on parameters is done once."""

    _model: ModularModel

    def __init__(self, model: ModularModel, names: tuple[str, ...], times: Vector) -> None:
        super().__init__(model, names, times)
        self.engine = model.engine
        program, inputs = model.program, model.inputs
        self._program = program
        self._keep = model.steps_of(times).astype(np.int64)
        self._start, self._dt = float(model.times[0]), model.dt
        grid = self._start + np.arange(program.rows_per_step * self._keep[-1] + 1) * (model.dt / program.rows_per_step)
        random = np.repeat(drawn(program.work.draws, model.seed, int(self._keep[-1])), program.rows_per_step, axis=0)
        self._series = np.hstack([inputs.sampled(grid, program.rows_per_step), random[: len(grid)]])
        ends = {START: self._start, END: float(model.times[-1])}
        self._z = program.values(inputs.starts(self._start) | self._values | ends)
        self._places = program.places(names)
        at = {name: i for i, name in enumerate(program.columns)}
        self.columns = np.array([at[name] for name in self.var_names], dtype=np.intp)
        self.runs_on_threads = not program.python_modules

    def run(self, theta: Vector, report: Callable[[int], None] | None = None) -> ModularRun:
        """Return a run, with its rows of all columns of the program, and how its loops settled.

        Raises
        ------
        SimulationError
            It failed; with the parameters and the time.
        """
        z = self._z.copy()
        z[self._places] = theta
        run = self._program.run(z, self._series, self._start, self._keep, report)
        if run.failed:
            p = {**self._values, **dict(zip(self.names, map(float, theta), strict=True))}
            time = self._start + float(run.failed_step) * self._dt
            raise SimulationError(run.failed, parameters=p, time=time)
        return run

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        rows: Matrix = self.run(theta).rows[:, self.columns]
        return rows

    @cached_property
    def _equations(self) -> Any:
        """The steps of the system as difference equations with the same runs, bound; None where there are none."""
        model = self._model
        if len(self._program.columns) > MOST_ELEMENTS:
            return None
        try:
            steps = model.compiled("difference")
            known = set(map(str, steps.parms.index))
            names = [k if k in known else f"{k}(0)" for k in self.names]
            if not known >= set(names) or not set(self.var_names) <= set(steps.var_names):
                return None
            bound = steps.bind(names, times=np.unique([model.times[0], *self.times]))
            rows, order = np.isin(bound.times, self.times), [steps.var_names.index(k) for k in self.var_names]
            if not np.allclose(bound.simulate(self.theta0)[rows][:, order], self.simulate(self.theta0), rtol=1e-8):
                return None
        except (ModelError, SimulationError):
            return None
        return bound, rows, order

    @property
    def exact(self) -> bool:  # type: ignore[override]  # it is found out when it is asked for
        """Whether sensitivities are exact: those of the system's difference equations."""
        return self._equations is not None

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par): exact where the steps are equations, else by differences."""
        if self._equations is None:
            return super().sensitivities(theta)
        bound, rows, order = self._equations
        _, S = bound.sensitivities(np.asarray(theta, dtype=float))
        return self.simulate(theta), S[rows][:, order]
