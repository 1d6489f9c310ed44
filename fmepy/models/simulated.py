"""A model whose runs are somebody else's code: a delay equation, a program, a table of another tool.

Give `SimulatedModel` a method ``run``, and every verb takes it: costs, fits, sensitivities (by differences), chains,
ranges; and a filter, as long as the process has no noise and the start is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, FmepyError, SimulationError, listed
from fmepy.models.base import TakesDifferences
from fmepy.models.dynamic import Runnable
from fmepy.parameters.named import merge_parameters
from fmepy.parameters.names import as_theta, normal_name
from fmepy.types import Cube, Matrix, Vector


class SimulatedModel(Runnable):
    """Base of models that are run by code of their own.

    A subclass provides ``run(p, times)``: the values of all variables, shape (n_time, n_var), from a dict of all
    parameters; the run starts at ``self.times[0]`` whatever `times` are. Any exception is a failed run.

    Parameters
    ----------
    parms : mapping
        All parameters and their values.
    times : array_like
        Increasing; the first is the start of every run.
    states : sequence of str
    outputs : sequence of str
        Further variables.

    Attributes
    ----------
    relative_step : float
        Of the differences that sensitivities are taken by: about the cube root of the relative error of a run.

    Examples
    --------
    >>> class Decay(SimulatedModel):
    ...     def run(self, p, times):
    ...         return p["y0"] * np.exp(-p["k"] * times)[:, None]
    >>> Decay({"y0": 2.0, "k": 0.5}, [0, 1, 2], ["y"])({"y0": 1.0}).round(3)
       time      y
    0     0  1.000
    1     1  0.607
    2     2  0.368
    """

    engine, engine_note = "python", ""
    relative_step = 6e-6

    def __init__(self, parms: Any, times: Any, states: Sequence[str], outputs: Sequence[str] = ()) -> None:
        self._parms = pd.Series({normal_name(k): float(v) for k, v in dict(parms).items()}, dtype=float)
        self._set_times(times)
        self.states = tuple(map(str, states))
        self.var_names = (*self.states, *map(str, outputs))

    def run(self, p: dict[str, float], times: Vector) -> Any:
        """Return the values of all variables at `times`, shape (n_time, n_var)."""
        raise NotImplementedError(f"{type(self).__name__} must have a method run(p, times).")

    def bind(self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False) -> BoundRuns:
        """Return the model as a function of a plain vector; see `models.base.Model`."""
        return BoundRuns(self, *self._asked(names, times))

    def replace(self, **arguments: Any) -> Self:
        """Return a copy with other values of `parms` (some of them), or other `times`."""
        out = copy(self)
        out._parms, out._bound = merge_parameters(self._parms, arguments.pop("parms", None)), None
        out._set_times(arguments.pop("times", self.times))
        if arguments:
            raise ArgumentError(
                f"`replace` of a {type(self).__name__} takes `parms` and `times`, not {listed(arguments)}."
            )
        return out


class BoundRuns(TakesDifferences):
    """A SimulatedModel as a function of a plain vector; see `models.base.BoundModel`."""

    exact = False
    retries = 0

    def __init__(self, model: SimulatedModel, names: tuple[str, ...], times: Vector) -> None:
        self._model, self.names, self.times, self.var_names = model, names, times, model.var_names
        self._values = {str(k): float(v) for k, v in model.parms.items()}
        self.theta0: Vector = np.array([self._values[k] for k in names], dtype=float)

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        p = {**self._values, **dict(zip(self.names, as_theta(theta, self.names).tolist(), strict=True))}
        try:
            Y = np.array(self._model.run(p, self.times.copy()), dtype=float)
        except FmepyError:
            raise
        except Exception as error:  # whatever goes wrong in the code of others is a failed run
            raise SimulationError(f"The run failed: {type(error).__name__}: {error}", parameters=p) from error
        shape = (len(self.times), len(self.var_names))
        if Y.shape != shape:
            raise ArgumentError(
                f"`run` of {type(self._model).__name__} must return one row a time and one column a variable, shape "
                f"{shape}; it returned {Y.shape}."
            )
        bad = ~np.isfinite(Y[:, : len(self._model.states)]).all(axis=1)
        if bad.any():
            time = float(self.times[bad][0])
            raise SimulationError(
                f"The run failed at time {time:.6g}: a state is NaN or infinite.", parameters=p, time=time
            )
        return Y

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and central differences, shape (n_time, n_var, n_par)."""
        return self.differences(theta, self._model.relative_step)
