"""Many expressions of numbers compiled as one function, which pays where it is called often."""

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
    """Compile several named functions at once, each as in `machine_function`."""
    names = [f"g{i}" for i in range(len(groups))]
    where: dict[Any, Place] = {s: (g, j) for g, group in zip(names, groups, strict=True) for j, s in enumerate(group)}
    program = LlvmProgram([], [*names, "out"])
    for name, expressions in functions.items():
        program.function(name, [("out", i, as_node(e)) for i, e in enumerate(expressions)], where)
    return compiled(program.text())


def machine_function(groups: Sequence[Sequence[Symbol]], expressions: Sequence[Any]) -> Callable[..., Vector]:
    """Return ``f(group1, group2, ...) -> ndarray``; each group is an array at least as long as its symbols, or a float.

    Its attribute `address` is that of ``void f(double* group1, double* group2, ..., double* out)``.

    Raises
    ------
    NotWritableError
        An expression has a function that cannot be compiled.

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
        arrays = [np.ascontiguousarray(v, dtype=float) for v in values]
        call(*map(address, arrays), address(out))
        return out

    function.code, function.address = code, code.address("f")  # type: ignore[attr-defined]  # keeps the code alive
    return function
