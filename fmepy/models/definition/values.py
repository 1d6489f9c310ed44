"""Initial values and event values: numbers or expressions of parameters, with their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import SimulationError
from fmepy.language.derivatives import gradients
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.nodes import ZERO, as_node
from fmepy.types import Matrix, Vector


class ValueTable:
    """Numbers or expressions of parameters, with their derivatives to some of them.

    Parameters
    ----------
    values : sequence of (float or Node)
    parameters : sequence of str
        All parameters, in the order of p.
    names : sequence of str
        Those to take derivatives for.
    """

    def __init__(self, values: Sequence[Any], parameters: Sequence[str], names: Sequence[str] = ()) -> None:
        self.shape = (len(values), len(names))
        self._constant: Vector | None = None
        if not any(getattr(v, "free_symbols", None) for v in values):
            self._constant = np.array([float(v) for v in values])
            return
        self._key = (tuple(values), tuple(parameters))
        self._names = tuple(names)
        self._value = _values(*self._key)
        self._slope: Callable[..., list[float]] | None = None

    def value(self, p: list[float]) -> Vector:
        """Return the values, shape (n,); SimulationError where they have none."""
        if self._constant is not None:
            return self._constant
        return _computed(self._value, p)

    def slope(self, p: list[float]) -> Matrix:
        """Return the derivatives, shape (n, n_names)."""
        if self._constant is not None:
            return np.zeros(self.shape)
        if self._slope is None:
            self._slope = _slopes(*self._key, self._names)
        return _computed(self._slope, p).reshape(self.shape)


class Expression:
    """An expression as a function of the parameters that it names, with its derivatives.

    Attributes
    ----------
    node : Node
    names : tuple of str
        What it names, in the order of p.
    """

    def __init__(self, node: Any) -> None:
        self.node, self.names = node, tuple(sorted(names_in([node])))
        self._table = ValueTable([node], self.names, self.names)

    def __reduce__(self) -> Any:  # what is compiled does not travel
        return Expression, (self.node,)

    def __str__(self) -> str:
        return str(self.node)

    def _of(self, what: Callable[[list[float]], Any], p: list[float]) -> Any:
        try:
            return what(p)[0]
        except SimulationError:
            told = ", ".join(f"{n} = {v:g}" for n, v in zip(self.names, p, strict=True))
            raise SimulationError(f"the expression {self} has no finite value where {told}") from None

    def value(self, p: list[float]) -> float:
        """Return the value; SimulationError where it has none."""
        return float(self._of(self._table.value, p))

    def slope(self, p: list[float]) -> Vector:
        """Return the derivatives, shape (n_names,)."""
        return np.asarray(self._of(self._table.slope, p))


def _computed(function: Callable[..., list[float]], p: list[float]) -> Vector:
    try:
        values = function(p)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise SimulationError(f"an initial or event value cannot be computed: {error}") from None
    if not isfinite(sum(values)) and not all(map(isfinite, values)):  # a finite sum has finite terms
        raise SimulationError("an initial or event value is not finite")
    return np.array(values, dtype=float)


@lru_cache(maxsize=64)
def _values(values: tuple[Any, ...], parameters: tuple[str, ...]) -> Callable[..., list[float]]:
    """Return the values as a function of p; models that differ in numbers share it."""
    return scalar_function(symbols(parameters), [as_node(v) for v in values])


@lru_cache(maxsize=64)
def _slopes(values: tuple[Any, ...], parameters: tuple[str, ...], names: tuple[str, ...]) -> Callable[..., list[float]]:
    """Return their derivatives, row by row, as a function of p."""
    found = gradients([as_node(v) for v in values], map(symbol, names))
    return scalar_function(symbols(parameters), [g.get(symbol(k), ZERO) for g in found for k in names])
