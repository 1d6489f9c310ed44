"""Kernels: functions of Python on numbers and arrays that become machine code, in a second, with nothing beside LLVM.

A kernel is a plain function of a small part of Python, and runs as Python too. It may hold

* whole numbers, floats, truth values; arrays of floats or of whole numbers, contiguous, by rows; tuples, named or not;
* ``for i in range()``, while, if, break, continue, return; assignments, also to entries, also of tuples;
* arithmetic, comparisons, choices; abs, min, max, len, int, float, and what `dialect.expressions` lists of math and
  numpy;
* ``a[i, j]``, ``a[i]`` (a part of an array), ``a[i:j]``, ``a[i, j:]``, ``a.shape``, ``a.reshape(())``; only a literal
  index counts from the end;
* calls of other kernels; of `new`, `doubles`, `integers`, `structure`, `multiply_add`, `weighted`, `choose_above`,
  `in_lanes`, `lanes`, `lanes_at`, `set_lanes`, `call`, below.
  Kernels may be handed on as arguments.

What a name holds has one type throughout a kernel, except that a whole number becomes a float, and a float lanes, where
it must. A kernel is translated once for each combination of the types of its arguments; what is None, a kernel or
another object of Python is known then, and branches that ask for it (``if record is not None``) are decided. Nothing is
checked at run time, and nothing is raised: x / 0 is infinite, an index too large ends in the void.

The outermost kernel gets numbers, by annotation ``int`` or ``float``, or a named tuple or dataclass whose fields are
annotated too (int, float, bool, arrays of `fmepy.types`, such tuples again): as one array of 64-bit words that `packed`
returns.
"""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import is_dataclass
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class KernelError(TypeError):
    """A kernel holds what cannot be translated."""


def new(*shape: int) -> Any:
    """Return an array of zeros, which lives as long as the outermost kernel runs."""
    return np.zeros(shape)


def doubles(address: int, *shape: int) -> Any:
    """Return the array of floats at an address."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_double)), shape)


def integers(address: int, *shape: int) -> Any:
    """Return the array of whole numbers at an address."""
    return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)), shape)


def independent(n: int) -> Any:
    """Return ``range(n)``, whose turns read nothing that another turn writes: several may be taken at once."""
    return range(n)


def multiply_add(a: float, b: float, c: float) -> float:
    """Return a b + c, rounded once where the machine can."""
    return a * b + c


def choose_above(a: Any, b: Any, yes: Any, no: Any) -> Any:
    """Return one of two numbers: `yes` where a > b, else `no`, also where either is NaN; of lanes, each by itself."""
    return np.where(a > b, yes, no)[()]


def in_lanes(a: Any, n: int) -> Any:
    """Return an array of floats, whose last dimension is of n, as one of lanes: without that dimension."""
    return a


def lanes(*x: float) -> Any:
    """Return four or eight numbers that are computed with at once: ``+ - * /``, abs, sqrt, and what is here."""
    return np.array(x)


def lanes_at(a: Any, i: int, n: int) -> Any:
    """Return n entries of an array of one dimension, from the i-th on."""
    return a[i : i + n].copy()


def set_lanes(a: Any, i: int, x: Any) -> None:
    """Set as many as x has."""
    a[i : i + len(x)] = x


def copy(values: Any, out: Any) -> None:
    """Set the first numbers of `out`: a kernel."""
    for i in range(len(values)):
        out[i] = values[i]


def are_finite(values: Any) -> bool:
    """Tell whether all numbers of an array are finite: a kernel."""
    for i in range(len(values)):  # noqa: SIM110    # a kernel has no all()
        if not abs(values[i]) < math.inf:
            return False
    return True


def inner(u: Any, v: Any, begin: int, end: int) -> float:
    """Return the scalar product of parts of two arrays: a kernel, of four sums, none of which waits for another."""
    a = b = c = d = 0.0
    whole = begin + 4 * ((end - begin) // 4)
    for i in range(begin, whole, 4):
        a, b = a + u[i] * v[i], b + u[i + 1] * v[i + 1]
        c, d = c + u[i + 2] * v[i + 2], d + u[i + 3] * v[i + 3]
    for i in range(whole, end):
        a += u[i] * v[i]
    return (a + b) + (c + d)


def weighted(weights: tuple[float, ...], rows: Any, i: int, *start: float) -> Any:
    """Return start + weights[0] rows[0, i] + weights[1] rows[1, i] + ..., added in this order, but for zero weights.

    The weights are known when a kernel is translated.
    """
    total = start[0] if start else None
    for weight, row in zip(weights, rows, strict=False):
        if weight != 0:
            total = weight * row[i] if total is None else total + weight * row[i]
    return total


def call(address: Any, *arguments: Any) -> None:
    """Call the C function at an address: of whole numbers, floats, and where arrays begin."""
    if callable(address):  # a test's
        address(*arguments)
        return
    kinds = [ctypes.c_void_p if isinstance(a, np.ndarray) else ctypes.c_double for a in arguments]
    passed = [a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments]
    ctypes.CFUNCTYPE(None, *kinds)(int(address))(*passed)


_NOTHING = ctypes.c_char * 0


def address(array: Any) -> int:
    """Return where the numbers of an array lie; it must be contiguous, and live while the address is used."""
    try:
        return ctypes.addressof(_NOTHING.from_buffer(array))  # in a third of the time of the array's own words
    except (TypeError, ValueError):  # it may not be written to
        at: int = array.__array_interface__["data"][0]
        return at


def packed(values: Any) -> Any:
    """Return a tuple of numbers, arrays and tuples as the words that a kernel gets; the arrays must live as long."""
    words: list[int] = []
    _pack(values, words)
    return np.array(words, dtype=np.int64)


class _Packed:
    """A tuple, or a dataclass, with its words."""

    __slots__ = ("values", "words")

    def __init__(self, values: Any) -> None:
        self.values, self.words = values, list[int]()
        _pack([values], self.words)

    def __getattr__(self, name: str) -> Any:
        if name == "values":  # not there yet, while it is copied or read from a file
            raise AttributeError(name)
        return getattr(self.values, name)


def packed_once(values: T) -> T:
    """Return a tuple or dataclass as one that `packed` knows the words of: for what goes into many calls."""
    return _Packed(values)  # type: ignore[return-value]  # it stands for the tuple


def _pack(values: Any, words: list[int]) -> None:
    for value in values:
        if isinstance(value, int):
            words.append(value)
        elif isinstance(value, np.ndarray):
            if not value.flags.c_contiguous:
                raise KernelError(f"a kernel was given an array of shape {value.shape} that is not contiguous, by rows")
            words.append(address(value))
            words.extend(value.shape)
        elif isinstance(value, _Packed):
            words.extend(value.words)
        elif isinstance(value, tuple):
            _pack(value, words)
        elif isinstance(value, float):
            words.append(struct.unpack("q", struct.pack("d", value))[0])
        elif is_dataclass(value):
            _pack([getattr(value, name) for name in type(value).__annotations__], words)
        else:
            words.append(int(value))
