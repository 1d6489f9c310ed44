"""How the kernels of filters are compiled: where they are called, and kept for the next process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cfunc, njit

__all__ = ["kernel", "kernel_by_address"]

_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}


def kernel(function: Callable[..., Any]) -> Any:
    """Return a function compiled when it is first called.

    It is kept on disk, unless there is no place to write to (a read-only installation without a home): then every
    process compiles anew.
    """
    try:
        return njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:
        return njit(**_OPTIONS)(function)


def kernel_by_address(signature: Any, function: Callable[..., Any]) -> Any:
    """Return a function compiled for one signature, to be called by its address; kept as above."""
    try:
        return cfunc(signature, cache=True)(function)
    except RuntimeError:
        return cfunc(signature)(function)
