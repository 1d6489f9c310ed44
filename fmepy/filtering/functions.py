"""A model's functions as filters call them: C functions of numbers and of arrays by rows, by their addresses.

They are compiled from equations, or call Python. Both can be called from Python too, with arrays.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from fmepy.compiled.c_loops import address
from fmepy.compiled.kernels import doubles
from fmepy.compiled.machine import Code

_MOST_KNOWN = 500


@cache
def _kind(scalars: int, arrays: int) -> Any:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_double] * scalars, *[ctypes.c_void_p] * arrays)


class CompiledFunction:
    """A function in machine code.

    Parameters
    ----------
    code : Code
    name : str
    scalars, arrays : int
        How many numbers it takes, and then how many arrays.

    Attributes
    ----------
    address : int
    """

    is_compiled = True

    def __init__(self, code: Code, name: str, scalars: int, arrays: int) -> None:
        self.address, self._code, self._scalars = code.address(name), code, scalars
        self._call = _kind(scalars, arrays)(self.address)

    def __call__(self, *arguments: Any) -> None:
        """Call it, with numbers and contiguous arrays."""
        self._call(*arguments[: self._scalars], *map(address, arguments[self._scalars :]))

    def raise_error(self) -> None:
        """Do nothing: machine code raises no errors."""


class PythonFunction:
    """A function of Python that compiled loops call.

    What it raises cannot pass through a loop: it writes NaN, which ends the loop, and `raise_error` raises it then.

    Parameters
    ----------
    function : callable
        It gets copies of its inputs, and writes into its outputs.
    scalars : int
        How many numbers it takes first.
    inputs, outputs : sequence of tuple
        Shapes of the arrays that it takes then.
    """

    is_compiled = False

    def __init__(
        self,
        function: Callable[..., None],
        scalars: int,
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
    ) -> None:
        self._function, self._scalars, self._inputs = function, scalars, len(inputs)
        self._shapes = [*inputs, *outputs]
        self._known: dict[tuple[int, int], Any] = {}
        self._raised = threading.local()
        self._c = _kind(scalars, len(self._shapes))(self._from_c)
        self.address = ctypes.cast(self._c, ctypes.c_void_p).value

    def __call__(self, *arguments: Any) -> None:
        """Call it from Python."""
        self._function(*arguments)

    def raise_error(self) -> None:
        """Raise what it raised when a loop called it in this thread."""
        error, self._raised.error = getattr(self._raised, "error", None), None
        if error is not None:
            raise error

    def _from_c(self, *arguments: Any) -> None:
        arrays = [self._array(at or 0, i) for i, at in enumerate(arguments[self._scalars :])]
        inputs, outputs = arrays[: self._inputs], arrays[self._inputs :]
        if getattr(self._raised, "error", None) is None:
            try:
                self._function(*arguments[: self._scalars], *(a.copy() for a in inputs), *outputs)
                return
            except BaseException as error:  # also Ctrl-C: raised when the loop has ended
                self._raised.error = error
        for a in outputs:
            a[...] = np.nan

    def _array(self, at: int, i: int) -> Any:
        """Return the array at an address; the loop works in the same places again and again."""
        if (found := self._known.get((at, i))) is None:
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            shape = self._shapes[i]
            found = self._known[at, i] = doubles(at, *shape) if np.prod(shape) else np.empty(shape)
        return found
