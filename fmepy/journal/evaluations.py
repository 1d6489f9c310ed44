"""Evaluations of a function of a vector, kept where they took long: what is looked up need not be run again.

A search that goes on after a kill asks for the same points in the same order as before, so that whatever has been
evaluated and is quick, or was not kept, is evaluated again, and the search is the same to the last bit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from fmepy.journal.records import RecordSeries
from fmepy.types import Vector

_QUICK = 5e-3  # seconds: sooner evaluated again than read
_SPEED = 50e6  # bytes a second: a disk takes no more


class Evaluations:
    """What is known of some functions of a vector.

    Parameters
    ----------
    records : RecordSeries or None
        None: nothing is kept.
    """

    def __init__(self, records: RecordSeries | None) -> None:
        self._records = records
        self._known: dict[str, Any] = {} if records is None else records.load()

    def find(self, name: str, theta: Vector, *more: Any) -> Any:
        """Return the value of a function at theta (and further arguments), None where it is not known."""
        if not self._known:
            return None
        found = self._known.get(_key(name, theta, more))
        return found.copy() if isinstance(found, np.ndarray) else found

    def evaluate(
        self,
        name: str,
        function: Callable[..., Any],
        theta: Vector,
        *more: Any,
        trusted: Callable[[], bool] = lambda: True,
    ) -> Any:
        """Return the value of a function at theta, looked up or evaluated; it is kept if it can be `trusted` then."""
        found = self.find(name, theta, *more)
        if found is not None:
            return found
        began = time.perf_counter()
        value = function(theta, *more)
        return self.keep(time.perf_counter() - began if trusted() else -np.inf, value, name, theta, *more)

    def keep(self, seconds: float, value: Any, name: str, theta: Vector, *more: Any) -> Any:
        """Keep a value that took so many seconds, if it took long, and return it in the form that `find` gives."""
        value = np.array(value) if isinstance(value, np.ndarray) else value
        if self._records is not None and seconds > _QUICK + np.size(value) * 8 / _SPEED:
            self._records.keep(_key(name, theta, more), value.copy() if isinstance(value, np.ndarray) else value)
        return value


def _key(name: str, theta: Vector, more: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr((name, more)).encode() + np.asarray(theta, dtype=float).tobytes()).hexdigest()
