"""The functions of the model language, in one table: what they are called in a text and in numpy, and what they are.

Everything that a text or a traced Python function may call is here. What comes out of it are expressions of sums,
products, powers, the nodes of `expressions.nodes`, and the functions of `ELEMENTARY`: so much, and no more, must an
engine be able to write.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

ELEMENTARY = {
    "exp": "exp", "log": "log", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos",
    "atan": "arctan", "atan2": "arctan2", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "asinh": "arcsinh",
}  # fmt: skip
"""Functions that expressions hold as such: their name in sympy, math and C, and the one in numpy."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the model language.

    Attributes
    ----------
    build : str or callable
        Its expression: its name in `expressions.nodes` or sympy, or a function of sympy, the module of nodes and the
        arguments.
    numpy : tuple of str
        What numpy calls it.
    number : callable or None
        Its value for floats; None where the node itself computes it.
    least, most : int
        How many arguments it takes.
    """

    build: str | Callable[..., Any]
    numpy: tuple[str, ...] = ()
    number: Callable[..., Any] | None = None
    least: int = 1
    most: int = 1

    def of(self, *arguments: Any) -> Any:
        """Return its expression for expressions."""
        return _built(self.build, arguments)


def _built(build: str | Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    import sympy

    from fmepy.expressions import nodes

    if isinstance(build, str):
        return getattr(nodes if build in nodes.__all__ else sympy, build)(*arguments)
    return build(sympy, nodes, *arguments)


FUNCTIONS: dict[str, Function] = {
    **{name: Function(name, (numpy,), getattr(math, name)) for name, numpy in ELEMENTARY.items() if name != "atan2"},
    "exp": Function(lambda s, n, x: n.exponential(x), ("exp",), math.exp),
    "sqrt": Function("sqrt", ("sqrt",), math.sqrt),
    "log10": Function(lambda s, n, x: s.log(x) / s.log(10), ("log10",), math.log10),
    "log2": Function(lambda s, n, x: s.log(x) / s.log(2), ("log2",), math.log2),
    "abs": Function("Absolute", ("absolute", "fabs")),
    "sign": Function("Sign", ("sign",)),
    "floor": Function("Floor", ("floor",)),
    "ceil": Function("Ceiling", ("ceil",)),
    "min": Function("Smallest", ("minimum",), None, 2, 20),
    "max": Function("Largest", ("maximum",), None, 2, 20),
    "pow": Function(lambda s, n, a, b: a**b, ("power", "float_power"), math.pow, 2, 2),
    "where": Function("Where", (), None, 3, 3),  # of a condition and two values; np.where is no ufunc
}
"""The functions that a text may call."""


def _trunc(s: Any, n: Any, x: Any) -> Any:
    return n.Where(x, s.S.Zero, n.Floor(x), n.Ceiling(x))


_FURTHER: dict[str, str | Callable[..., Any]] = {
    "add": lambda s, n, a, b: a + b,
    "subtract": lambda s, n, a, b: a - b,
    "multiply": lambda s, n, a, b: a * b,
    "divide": lambda s, n, a, b: a / b,
    "true_divide": lambda s, n, a, b: a / b,
    "floor_divide": lambda s, n, a, b: n.Floor(a / b),
    "remainder": "Modulo",
    "fmod": lambda s, n, a, b: a - b * _trunc(s, n, a / b),
    "negative": lambda s, n, a: -a,
    "positive": lambda s, n, a: a,
    "square": lambda s, n, a: a**2,
    "reciprocal": lambda s, n, a: 1 / a,
    "cbrt": lambda s, n, a: n.Sign(a) * n.Absolute(a) ** s.Rational(1, 3),
    "hypot": lambda s, n, a, b: s.sqrt(a**2 + b**2),
    "exp2": lambda s, n, a: 2**a,
    "expm1": lambda s, n, a: n.exponential(a) - 1,
    "log1p": lambda s, n, a: s.log(1 + a),
    "arctan2": "atan2",
    "trunc": _trunc,
    "heaviside": lambda s, n, x, middle: n.Where(x, s.S.Zero, s.S.One, n.Where(s.S.Zero, x, s.S.Zero, middle)),
}
"""What only numpy has, by numpy's names."""


@lru_cache(maxsize=1)
def _by_numpy() -> dict[str, str | Callable[..., Any]]:
    return {name: f.build for f in FUNCTIONS.values() for name in f.numpy} | _FURTHER


def of_numpy(name: str) -> Callable[..., Any] | None:
    """Return one of numpy's functions as a function of expressions, None if it is none of the language."""
    build = _by_numpy().get(name)
    return None if build is None else lambda *arguments: _built(build, arguments)
