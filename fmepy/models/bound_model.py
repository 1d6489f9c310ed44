"""What bound models of fmepy share: parameters from a vector, outputs beside the states, the words of a failed run."""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.errors import SimulationError
from fmepy.models.definition.definition import Definition
from fmepy.models.running.system import OutputFunctions, build_outputs
from fmepy.types import Matrix, Vector


class BoundDynamic:
    """Base of fmepy's own bound models; see `models.base.BoundModel`.

    Parameters
    ----------
    definition : Definition
    names : tuple of str
        The parameters that theta holds.
    times : ndarray, shape (n_time,)
        The rows.
    at_rows : ndarray, shape (n_forcing, n_time)
        The forcings there.
    """

    def __init__(self, definition: Definition, names: tuple[str, ...], times: Vector, at_rows: Matrix) -> None:
        self._definition = definition
        self.names, self.times, self.var_names = names, times, definition.var_names
        self._base = definition.parms.to_numpy(dtype=float, copy=True)
        self._places = np.array([definition.parameters.index(k) for k in names], dtype=int)
        self.theta0 = self._base[self._places]
        self.retries = 0
        self._box: tuple[Vector, Vector] | None = None
        self._at_rows = at_rows
        self._outputs: OutputFunctions | None = None

    def _forget_compiled(self) -> None:
        """Set what is found or compiled at its first use, and does not travel to other processes."""

    def __getstate__(self) -> dict[str, Any]:
        anew = object.__new__(type(self))
        anew._forget_compiled()
        return self.__dict__ | anew.__dict__

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self._box = (lower, upper)

    def _parameters(self, theta: Vector) -> Vector:
        p = self._base.copy()
        p[self._places] = theta
        return p

    def _output_functions(self, names: tuple[str, ...] | None = None) -> OutputFunctions:
        d = self._definition
        forcings = tuple(f.name for f in d.forcings)
        return build_outputs(d.states + d.extra_names, d.parameters, forcings, d.time, d.outputs, names)

    def _with_outputs(self, p: Vector, Y: Matrix) -> Matrix:
        """Return the states with the outputs beside them, shape (n_time, n_var)."""
        d = self._definition
        if Y.shape[1] == len(self.var_names):
            return Y
        if d.extra_names:
            Y = np.concatenate((Y, self._extras(p, Y)), axis=1)
        if not d.outputs:
            return Y
        if self._outputs is None:
            self._outputs = self._output_functions()
        return self._outputs.beside(self.times, Y, p, self._at_rows)

    def _extras(self, p: Vector, Y: Matrix) -> Matrix:
        """Return what the user's function gives beside the rates, row by row."""
        d = self._definition
        assert d.function is not None, "only functions have extra outputs without equations"
        plain, out = p.tolist(), np.empty((len(Y), len(d.extra_names)))
        with np.errstate(all="ignore"):
            for i, (t, y) in enumerate(zip(self.times, Y, strict=True)):
                extra = d.function.extras(t, y, plain, self._at_rows[:, i])
                out[i] = [extra[k] for k in d.extra_names]
        return out

    def _failure(self, where: str, why: str, p: Vector, time: float | None, exploded: bool = False) -> SimulationError:
        """Return the error of a failed run."""
        parameters = dict(zip(self._definition.parameters, p.tolist(), strict=True))
        values = ", ".join(f"{k}={v:.6g}" for k, v in list(parameters.items())[:12])
        message = f"The run failed{where}: {why}.{f' Parameters: {values}.' if values else ''}"
        return SimulationError(message, parameters=parameters, time=time, exploded=exploded)
