"""Expressions -> Python functions on numbers or on arrays.

Only expressions of our own making come here (traced, or parsed from checked text), and every symbol is renamed to a
generated name first, so no text of a user is ever executed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sympy

__all__ = ["array_function", "scalar_function"]


def scalar_function(groups: Sequence[Sequence[sympy.Symbol]], expressions: Sequence[Any]) -> Callable[..., list[float]]:
    """Return ``f(group1, group2, ...) -> list of float`` for scalar arguments, on Python's `math`.

    It raises ValueError, OverflowError or ZeroDivisionError where the mathematics does.
    """
    return _lambdified(tuple(map(tuple, groups)), tuple(expressions), "math")


def array_function(groups: Sequence[Sequence[sympy.Symbol]], expressions: Sequence[Any]) -> Callable[..., list[Any]]:
    """Return ``f(group1, group2, ...) -> list`` on numpy, for scalars and arrays mixed.

    Constant expressions come back as numbers, so results are to be broadcast.
    """
    return _lambdified(tuple(map(tuple, groups)), tuple(expressions), "numpy")


@lru_cache(maxsize=256)
def _lambdified(groups: tuple[tuple[Any, ...], ...], expressions: tuple[Any, ...], modules: str) -> Callable[..., Any]:
    """Return the function, made once for equal expressions: forecasts and simulations ask for the same ones again."""
    import sympy

    names = {s: sympy.Symbol(f"v{i}x{j}", real=True) for i, g in enumerate(groups) for j, s in enumerate(g)}
    renamed = [sympy.sympify(e).xreplace(names) for e in expressions]
    arguments = [[names[s] for s in g] for g in groups]
    function: Callable[..., Any] = sympy.lambdify(arguments, renamed, modules=modules, cse=True)
    return function
