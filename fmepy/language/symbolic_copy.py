"""A copy of a user's function that accepts symbols: its arrays hold them, and functions of `math` are numpy's.

``d = np.zeros(3); d[0] = -k * y[0]`` asks a symbol for its value, and so do ``math.exp(y[0])`` and ``max(y[0], 0)``.
A function that fails so is called again as a copy, with the other functions of its file, whose `numpy`, `math`,
`max`, `min`, `float` and `int` are stand-ins, those that it imports itself, too, and so are interpolants of scipy's,
arrays and lists of numbers. The function itself and the modules stay unchanged.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import partial, reduce
from operator import methodcaller
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from fmepy.errors import TracingError
from fmepy.language.functions import numpy_function
from fmepy.language.interpolants import for_symbols, is_interpolant, is_symbol

_MAKERS = (
    "zeros", "ones", "empty", "full", "eye", "identity", "array", "asarray", "zeros_like", "ones_like", "empty_like",
    "full_like",
)  # fmt: skip
_OF_NUMPY = {"pow": "power", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
             "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}  # fmt: skip


class _StandIn(ModuleType):
    """A module with some names replaced."""

    def __init__(self, module: ModuleType, own: dict[str, Any]) -> None:
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def accepting_symbols(function: Callable[..., Any], kind: type[np.ndarray]) -> Callable[..., Any]:
    """Return a copy of a function that can be called with symbols where the function asks for values.

    Parameters
    ----------
    function : callable
        Also a method, a partial one, or one that calls another and has ``with_function(change)``, which returns it with
        that one changed. Anything else is returned as it is.
    kind : type
        Of the arrays, of objects, that it makes.
    """
    if type(function) is partial:
        return partial(accepting_symbols(function.func, kind), *function.args, **function.keywords)
    if hasattr(function, "with_function"):
        other: Callable[..., Any] = function.with_function(lambda f: accepting_symbols(f, kind))
        return other
    plain, owner = function, None
    if isinstance(function, MethodType):
        plain, owner = function.__func__, function.__self__
    plain = getattr(plain, "py_func", plain)  # one that numba compiles
    if not isinstance(plain, FunctionType):
        return function
    home, space = plain.__globals__, dict[str, Any]()
    replaced: dict[int, Any] = {}
    for module, ours in (
        (np, {name: _maker(name, kind) for name in _MAKERS}),
        (math, {name: f for name in vars(math) if (f := _of_math(name)) is not None}),
    ):
        replaced[id(module)] = _StandIn(module, ours)
        replaced.update({id(getattr(module, name)): f for name, f in ours.items()})

    def copied(value: Any) -> Any:
        if is_interpolant(value):
            return for_symbols(value, kind)
        if type(value) is np.ndarray and value.ndim and value.dtype.kind in "iufb":
            return value.view(_ArrayTable)
        if type(value) is list and value and all(isinstance(v, int | float) for v in value):
            return _ListTable(value)
        if type(value) in (dict, list, tuple) and any(
            is_interpolant(v) or type(v) in (np.ndarray, list)
            for v in (value.values() if type(value) is dict else value)
        ):
            return {k: copied(v) for k, v in value.items()} if type(value) is dict else type(value)(map(copied, value))
        if type(value).__module__ in ("types", home.get("__name__")) and id(value) not in replaced:
            own = getattr(value, "__dict__", None)
            with suppress(Exception):  # of what cannot be copied
                if type(own) is dict:  # an object of the user's: its attributes may be such tables
                    replaced[id(value)] = twin = copy(value)  # before these, which may lead back to it
                    vars(twin).update({k: copied(v) for k, v in own.items()})
        value = getattr(value, "py_func", value)  # one that numba compiles
        if id(value) in replaced or not isinstance(value, FunctionType) or value.__globals__ is not home:
            return replaced.get(id(value), value)
        cells = tuple(CellType() for _ in value.__closure__ or ())
        twin = FunctionType(value.__code__, space, value.__name__, value.__defaults__, cells)
        twin.__kwdefaults__ = value.__kwdefaults__
        replaced[id(value)] = twin  # before its cells: it may be recursive
        for cell, of_value in zip(cells, value.__closure__ or (), strict=True):
            with suppress(ValueError):  # an empty one
                cell.cell_contents = copied(of_value.cell_contents)
        return twin

    def imported(*args: Any, **kwargs: Any) -> Any:
        module = builtins.__import__(*args, **kwargs)
        return replaced.get(id(module), module)

    own = dict(
        max=_extreme(max, np.maximum), min=_extreme(min, np.minimum), float=_Float, int=_Int, __import__=imported
    )
    space["__builtins__"] = {**vars(builtins), **own}
    space.update({name: copied(value) for name, value in home.items() if name != "__builtins__"})
    result: Callable[..., Any] = copied(plain)
    return result if owner is None else MethodType(result, copied(owner))


def _maker(name: str, kind: type[np.ndarray]) -> Callable[..., Any]:
    """Return a function of numpy that makes an array; of floats, they become objects."""
    make = getattr(np, name.replace("empty", "zeros"))  # uninitialised memory would look like numbers of the user

    def made(first: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            array = make(first, *args, **kwargs)
        except TracingError:  # floats of symbols
            array = make(first, dtype=object)
        return array.astype(object).view(kind) if array.dtype in (float, object) else array

    return made


def _extreme(plain: Callable[..., Any], of_two: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return Python's `max` or `min`, which takes numpy's for symbols: it would decide between them, a way for each."""

    def function(*args: Any, **kwargs: Any) -> Any:
        of = args if len(args) > 1 else tuple(*args)
        if not kwargs and any(is_symbol(v) and not isinstance(v, np.ndarray) for v in of):
            return reduce(of_two, of)
        return plain(of, **kwargs)

    return function


class _ArrayTable(np.ndarray):
    """An array that takes whole numbers of symbols as places (`language.whole_numbers`)."""

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        symbols = [i for i, k in enumerate(keys) if hasattr(k, "entry_of")]
        if len(symbols) != 1:
            return super().__getitem__(key)
        (at,) = symbols
        rest = np.asarray(self)[(*keys[:at], slice(None), *keys[at + 1 :])]
        return keys[at].entry_of(np.moveaxis(rest, sum(not isinstance(k, int | np.integer) for k in keys[:at]), 0))


class _ListTable(list[Any]):
    """A list of numbers that takes them too."""

    def __getitem__(self, key: Any) -> Any:
        return key.entry_of(self) if hasattr(key, "entry_of") else super().__getitem__(key)


class _IsNumber(type):
    """The kind of `_Float` and `_Int`, of which every float, or int, is one."""

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, cls.__mro__[1])


class _Int(int, metaclass=_IsNumber):
    """Python's `int`, which gives a whole number of a symbol."""

    dtype = np.dtype(int)

    def __new__(cls, x: Any = 0, *base: Any) -> Any:
        x = x.item() if isinstance(x, np.ndarray) and is_symbol(x) else x
        return x.whole() if hasattr(x, "whole") else int(x, *base)


class _Float(float, metaclass=_IsNumber):
    """Python's `float`, which leaves a symbol as it is; to numpy it is the type of numbers that `float` is."""

    dtype = np.dtype(float)

    def __new__(cls, x: Any = 0.0) -> Any:
        return x.item() if isinstance(x, np.ndarray) and is_symbol(x) else x if is_symbol(x) else float(x)


def _of_math(name: str) -> Callable[..., Any] | None:
    """Return a function of `math` that falls back to numpy's for symbols; None if numpy has none."""
    plain, of_arrays = getattr(math, name), getattr(np, _OF_NUMPY.get(name, name), None)
    if of_arrays is None and numpy_function(name) is not None:  # scipy's
        of_arrays = methodcaller(name)
    if not callable(plain) or of_arrays is None:
        return None

    def function(x: Any, *others: Any) -> Any:
        try:
            return plain(x, *others)
        except TracingError:
            if name == "log" and others:
                return np.log(x) / np.log(*others)
            return of_arrays(x, *others)

    return function
