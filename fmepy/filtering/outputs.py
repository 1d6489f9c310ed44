"""States -> outputs of the model and readings, with their derivatives: what tables and forecasts show beside states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.filtering.specification import Specification
from fmepy.models.code import array_function
from fmepy.models.equations import symbol
from fmepy.models.switches import as_piecewise
from fmepy.types import Cube, Matrix, Vector

__all__ = ["StateFunctions", "output_functions"]


class StateFunctions:
    """Functions of time, states, parameters and forcings, and their derivatives to the states.

    Parameters
    ----------
    spec : Specification
    names : sequence of str
    expressions : sequence of sympy.Expr

    Attributes
    ----------
    names : tuple of str
    """

    def __init__(self, spec: Specification, names: Sequence[str], expressions: Sequence[Any]) -> None:
        import sympy

        space = spec.space
        self.names = tuple(names)
        self._n = len(space.states)
        smooth = [as_piecewise(e) for e in expressions]
        self._entries = [
            (i, j, as_piecewise(sympy.diff(e, symbol(s))))
            for i, e in enumerate(smooth)
            for j, s in enumerate(space.states)
            if symbol(s) in e.free_symbols
        ]
        arguments = (space.states, spec.parameters, space.forcings)
        groups = [[symbol(space.time)], *([symbol(k) for k in own] for own in arguments)]
        self._function = array_function(groups, [*smooth, *(e for _, _, e in self._entries)])

    def at(self, times: Vector, x: Matrix, p: Vector, inputs: Matrix) -> tuple[Matrix, Cube]:
        """Return values, shape (n_time, k), and derivatives, (n_time, k, n); NaN where x is.

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
            y[np.isnan(x).all(axis=1)] = np.nan  # one that does not depend on the states has no value either
        return y, slopes


def output_functions(spec: Specification) -> StateFunctions:
    """Return the outputs of a model as functions of the states of its filter."""
    equations = spec.definition.equations
    assert equations is not None, "a filter has equations"
    return StateFunctions(spec, [name for name, _ in equations.outputs], [e for _, e in equations.outputs])
