"""What a saved result may hold, of files that anybody may have changed: a field what its annotation says, and so on.

The annotation is read as text, for a class may name others that are imported for the type checker alone.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd


def _array(kinds: str, *dimensions: int) -> Callable[[Any], bool]:
    def is_one(value: Any) -> bool:
        is_array = isinstance(value, np.ndarray) and value.dtype.kind in kinds
        return is_array and (not dimensions or value.ndim in dimensions)

    return is_one


def _kind(*kinds: type, but: tuple[type, ...] = ()) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, kinds) and not isinstance(value, but)


_NAMED: dict[str, Callable[[Any], bool]] = {
    "Any": lambda value: True,
    "object": lambda value: True,
    "str": _kind(str),
    "bool": _kind(bool, np.bool_),
    "int": _kind(int, np.integer, but=(bool,)),
    "float": _kind(int, float, np.integer, np.floating, but=(bool,)),
    "Vector": _array("f", 1),
    "Matrix": _array("f", 2),
    "Cube": _array("f", 3),
    "IntVector": _array("iu", 1),
    "BoolVector": _array("b", 1),
    "pd.DataFrame": _kind(pd.DataFrame),
    "pd.Series": _kind(pd.Series),
}
_MANY: dict[str, Any] = {"list": list, "set": set, "tuple": tuple}


def holds(annotation: str, value: Any) -> bool:
    """Tell whether a value is what an annotation says."""
    return _holds(_parsed(annotation), value)


@cache
def _parsed(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _holds(node: ast.expr, value: Any) -> bool:
    if isinstance(node, ast.BinOp):  # a | b
        return _holds(node.left, value) or _holds(node.right, value)
    if isinstance(node, ast.Constant):  # None, or a name in quotes
        return value is None if node.value is None else holds(str(node.value), value)
    if not isinstance(node, ast.Subscript):
        name = ast.unparse(node)
        if name in _NAMED:
            return _NAMED[name](value)
        return any(cls.__name__ == name.rpartition(".")[2] for cls in type(value).__mro__)
    name = ast.unparse(node.value)
    inner: Sequence[ast.expr] = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "dict":
        key, item = inner
        return isinstance(value, Mapping) and all(_holds(key, k) and _holds(item, v) for k, v in value.items())
    if name not in _MANY:  # pd.Series[float]
        return _holds(node.value, value)
    if not isinstance(value, _MANY[name]):
        return False
    if name == "tuple" and not (len(inner) == 2 and ast.unparse(inner[1]) == "..."):
        return len(value) == len(inner) and all(map(_holds, inner, value))
    return all(_holds(inner[0], item) for item in value)


def shape_of(plain: Any) -> tuple[int, ...]:
    """Return the shape that a structure gives, checked."""
    shape = tuple(map(operator.index, plain["shape"]))
    if any(n < 0 for n in shape):
        raise ValueError(f"an array of shape {shape}")
    return shape


def check_length(values: Any, index: pd.Index) -> None:
    """Refuse values that are more or fewer than their labels."""
    if len(values) != len(index):  # pandas would repeat a single one
        raise ValueError(f"{len(values)} values have {len(index)} labels")
