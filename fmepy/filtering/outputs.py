"""States -> outputs of the model, with their derivatives: what the tables show beside the states."""

from __future__ import annotations

import numpy as np

from fmepy.filtering.specification import Specification
from fmepy.models.code import array_function
from fmepy.models.equations import symbol
from fmepy.models.switches import as_piecewise
from fmepy.types import Cube, Matrix, Vector

__all__ = ["OutputFunctions"]


class OutputFunctions:
    """The outputs of a model and their derivatives to the states of its filter.

    Attributes
    ----------
    names : tuple of str
    """

    def __init__(self, spec: Specification) -> None:
        import sympy

        equations = spec.definition.equations
        assert equations is not None, "a filter has equations"
        space = spec.space
        self.names = tuple(name for name, _ in equations.outputs)
        self._n = len(space.states)
        expressions = [as_piecewise(e) for _, e in equations.outputs]
        self._entries = [
            (i, j, as_piecewise(sympy.diff(e, symbol(s))))
            for i, e in enumerate(expressions)
            for j, s in enumerate(space.states)
            if symbol(s) in e.free_symbols
        ]
        groups = [
            [symbol(space.time)],
            *([symbol(k) for k in g] for g in (space.states, spec.parameters, space.forcings)),
        ]
        self._function = array_function(groups, [*expressions, *(e for _, _, e in self._entries)])

    def at(self, times: Vector, x: Matrix, p: Vector, inputs: Matrix) -> tuple[Matrix, Cube]:
        """Return outputs, shape (n_time, n_output), and derivatives, (n_time, n_output, n); NaN where x is.

        inputs : ndarray, shape (n_time, n_forcing)
        """
        k = len(self.names)
        y, slopes = np.full((len(times), k), np.nan), np.zeros((len(times), k, self._n))
        if k:
            with np.errstate(all="ignore"):
                values = self._function((times,), list(x.T), p.tolist(), list(inputs.T))
            for i in range(k):
                y[:, i] = values[i]
            for (row, column, _), value in zip(self._entries, values[k:], strict=True):
                slopes[:, row, column] = value
            y[np.isnan(x).all(axis=1)] = np.nan  # an output that does not depend on the states has none either
        return y, slopes
