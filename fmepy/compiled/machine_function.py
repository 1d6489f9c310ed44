"""Many expressions of numbers as one function in machine code: worth its compilation where it is called often."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fmepy.compiled.c_loops import address
from fmepy.compiled.llvm_code import LlvmProgram, Place
from fmepy.compiled.machine import Code, compiled
from fmepy.language.nodes import Symbol, as_node
from fmepy.types import Vector


def machine_code(groups: Sequence[Sequence[Symbol]], functions: Mapping[str, Sequence[Any]]) -> Code:
    """Return several such functions, compiled at once, see `machine_function`."""
    names = [f"g{i}" for i in range(len(groups))]
    where: dict[Any, Place] = {s: (g, j) for g, group in zip(names, groups, strict=True) for j, s in enumerate(group)}
    program = LlvmProgram([], [*names, "out"])
    for name, expressions in functions.items():
        program.function(name, [("out", i, as_node(e)) for i, e in enumerate(expressions)], where)
    return compiled(program.text())


def machine_function(groups: Sequence[Sequence[Symbol]], expressions: Sequence[Any]) -> Callable[..., Vector]:
    """Return ``f(group1, group2, ...) -> ndarray``, each group an array of floats of its length at least, or a float.

    Its `address` is that of ``void f(double* group1, double* group2, ..., double* out)``.

    Raises
    ------
    NotWritableError
        A function that there is no word for.

    Examples
    --------
    >>> x, y = Symbol("x"), Symbol("y")
    >>> machine_function([[x], [y]], [x * y, x + y])(np.array([2.0]), np.array([5.0, 9.0])).tolist()
    [10.0, 7.0]
    """
    code, n = machine_code(groups, {"f": expressions}), len(expressions)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(groups) + 1))(code.address("f"))

    def function(*values: Any) -> Vector:
        out = np.empty(n)
        held = [np.ascontiguousarray(v, dtype=float) for v in values]
        call(*map(address, held), address(out))
        return out

    function.code, function.address = code, code.address("f")  # type: ignore[attr-defined]  # it lives as long
    return function
