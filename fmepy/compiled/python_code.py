"""Expressions -> Python functions on numbers or on arrays.

Only expressions of our own making come here (traced, or parsed from checked text), and every symbol is renamed to a
generated name first, so no text of a user is ever executed.

All functions are total: where the mathematics has no real value (a root or a real power of less than zero, 0 / 0) they
give NaN, beyond the range of floating point they give infinity, as numpy does; nothing is raised and nothing complex
comes out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.compiled.python_source import straight_line
from fmepy.expressions.functions import ELEMENTARY

if TYPE_CHECKING:
    import sympy


def scalar_function(groups: Sequence[Sequence[sympy.Symbol]], expressions: Sequence[Any]) -> Callable[..., list[float]]:
    """Return ``f(group1, group2, ...) -> list of float`` for scalar arguments.

    It computes with Python's floats, and once more with numpy's where those raise.
    """
    code = _code(tuple(map(tuple, groups)), tuple(expressions), False)
    quick = _executed(code, {"math": math, "np": np})
    careful = _executed(code, {"math": _NumpyMath, "np": np})

    def function(*values: Any) -> list[float]:
        try:
            return quick(*values)
        except (ArithmeticError, ValueError):
            pass
        with np.errstate(all="ignore"):
            return [float(v) for v in careful(*([np.float64(v) for v in group] for group in values))]

    return function


def array_function(groups: Sequence[Sequence[sympy.Symbol]], expressions: Sequence[Any]) -> Callable[..., list[Any]]:
    """Return ``f(group1, group2, ...) -> list`` on numpy, for scalars and arrays mixed.

    A group is a sequence of numbers and arrays, or an array with one row a symbol; only what is used of it is read.
    Constant expressions come back as numbers, so results are to be broadcast.
    """
    helpers: dict[str, Any] = {
        "of": _as_numpy,
        "choose": _choose,
        "largest": _largest,
        "smallest": _smallest,
        "nan_of": _nan_of,
    }
    function = _executed(
        _code(tuple(map(tuple, groups)), tuple(expressions), True), {"math": _NumpyMath, "np": np, **helpers}
    )

    def careful(*values: Any) -> list[Any]:
        with np.errstate(all="ignore"):
            return function(*values)

    return careful


@lru_cache(maxsize=256)
def _code(groups: tuple[tuple[Any, ...], ...], expressions: tuple[Any, ...], arrays: bool) -> Any:
    """Return the compiled definition of a function `f`, once for equal expressions: forecasts ask for them again."""
    names = {s: f"v{i}x{j}" for i, group in enumerate(groups) for j, s in enumerate(group)}
    results = [f"r{i}" for i in range(len(expressions))]
    if arrays:
        used = {s for e in expressions for s in getattr(e, "free_symbols", ())}
        places = [(s, f"g{i}[{j}]") for i, group in enumerate(groups) for j, s in enumerate(group)]
        read = [f"{names[s]} = of({place})" for s, place in places if s in used]
    else:
        read = [f"{''.join(f'{names[s]}, ' for s in group)}= g{i}" for i, group in enumerate(groups) if len(group)]
    lines = [*read, *straight_line(list(zip(results, expressions, strict=True)), names, arrays=arrays)]
    head = f"def f({', '.join(f'g{i}' for i in range(len(groups)))}):"
    text = "\n    ".join([head, *lines, f"return [{', '.join(results)}]"])
    return compile(text, "<fmepy: a model's expressions>", "exec")


def _executed(code: Any, names: dict[str, Any]) -> Callable[..., list[Any]]:
    exec(code, names)
    function: Callable[..., list[Any]] = names["f"]
    return function


def _as_numpy(value: Any) -> Any:
    return value if isinstance(value, np.ndarray) else np.float64(value)


class _NumpyMath:
    """What is called math in generated code, from numpy: NaN where there is no value."""

    pi, e, nan, inf = math.pi, math.e, math.nan, math.inf
    sqrt, pow, copysign, acosh, atanh = np.sqrt, np.power, np.copysign, np.arccosh, np.arctanh


for _name, _numpy in ELEMENTARY.items():
    setattr(_NumpyMath, _name, getattr(np, _numpy))


def _choose(left: Any, right: Any, yes: Any, no: Any) -> Any:
    return np.where(left > right, yes, np.where(np.less_equal(left, right), no, np.nan))


def _largest(*x: Any) -> Any:
    out = x[0]
    for other in x[1:]:
        out = np.maximum(out, other)  # hands on NaN, as fmax does not
    return out


def _smallest(*x: Any) -> Any:
    out = x[0]
    for other in x[1:]:
        out = np.minimum(out, other)
    return out


def _nan_of(x: Any) -> Any:
    return np.where(np.isnan(x), np.nan, 0.0)
