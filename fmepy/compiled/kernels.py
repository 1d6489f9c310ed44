"""How the kernels of filters are compiled: where they are called, and kept for the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmepy.compiled.numba_cache import cfunc, njit

__all__ = ["kernel", "kernel_by_pointer", "part"]


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
