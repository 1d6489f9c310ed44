# mypy: ignore-errors
"""How kernels are compiled: where they are called, and kept for the next process."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fmepy.compiled.machine import object_of, optimised
from fmepy.compiled.numba_cache import cfunc, njit

__all__ = ["call", "kernel", "kernel_by_pointer", "object_file", "part"]


def kernel(function: Callable[..., Any]) -> Any:
    """Return a function compiled when it is first called, and kept."""
    return njit(cache=True, error_model="numpy", nogil=True)(function)


def kernel_by_pointer(signature: Any, function: Callable[..., Any]) -> Any:
    """Return a function compiled for one signature, to be called by its address; kept as above."""
    return cfunc(signature, cache=True)(function)


def part(function: Callable[..., Any]) -> Any:
    """Return a function that becomes part of the kernels that call it, and may be handed functions to call."""
    return njit(error_model="numpy", nogil=True, forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(
        function
    )


@intrinsic
def call(typing, function, t, y, inputs, out):
    """Call the C function at an address: void (double, double*, double*, double*)."""

    def generate(context, builder, signature, arguments):
        address, t, *arrays = arguments
        pointers = [
            context.make_array(kind)(context, builder, value=array).data
            for kind, array in zip(signature.args[2:], arrays, strict=True)
        ]
        kind = ir.FunctionType(ir.VoidType(), [t.type, *(p.type for p in pointers)])
        builder.call(builder.inttoptr(address, kind.as_pointer()), [t, *pointers])
        return context.get_dummy_value()

    return types.void(function, types.float64, y, inputs, out), generate


_TYPES = {"i": types.int64, "d": types.float64, "p": types.CPointer(types.float64), "q": types.CPointer(types.int64)}
_WORDS = {"i": "i64", "d": "double", "p": "ptr", "q": "ptr"}


def object_file(function: Callable[..., None], kinds: str) -> bytes:
    """Return an object file of a function that allocates nothing, as the C function `run`; see `compiled.c_loops`.

    numba writes it and LLVM optimises it on its own, without numba's wrappers, which need Python: so it can be read
    back without numba.
    """
    cpu_target.target_context  # noqa: B018    # made before the level is changed, which it would keep
    with global_compiler_lock:
        level, config.OPT = config.OPT, type(config.OPT)(0)  # below it is optimised again
        try:
            made = numba.cfunc(types.void(*(_TYPES[kind] for kind in kinds)), error_model="numpy")(function)
        finally:
            config.OPT = level
    name, arguments = (
        made.native_name.removeprefix("cfunc."),
        ", ".join(f"{_WORDS[k]} %a{i}" for i, k in enumerate(kinds)),
    )
    text = _COUNT.sub(r"define internal void @\1(ptr %array) alwaysinline {\n  ret void\n}\n", made.inspect_llvm())
    module = optimised(text + _CALLER.format(name=name, arguments=arguments), 3, "run")
    foreign = [f.name for f in module.functions if f.is_declaration and f.name.startswith(("NRT_", "numba_", "Py"))]
    if foreign:
        raise TypeError(f"{function.__name__} allocates or raises: it needs {', '.join(foreign)}.")
    return object_of(module)


_COUNT = re.compile(r"define [^\n]*@(NRT_(?:in|de)cref)\(.*?\n}\n", re.DOTALL)
"""numba's counting of who uses an array: nothing is allocated or freed."""
_CALLER = """
define void @run({arguments}) {{
  %value = alloca ptr
  %error = alloca ptr
  call i32 @{name}(ptr %value, ptr %error, {arguments})
  ret void
}}
"""
