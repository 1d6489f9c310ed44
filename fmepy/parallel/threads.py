"""Work on threads, for compiled loops that leave Python's lock to others while they run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import numpy as np

_Piece = TypeVar("_Piece")
_EACH = 4  # pieces a thread: they do not all take the same time


def on_threads(function: Callable[[_Piece], object], pieces: Sequence[_Piece]) -> None:
    """Call a function with every piece of a work; what it returns is dropped, what it raises is raised."""
    if len(pieces) > 1 and (os.cpu_count() or 1) > 1:
        list(_threads().map(function, pieces))
    else:
        for piece in pieces:
            function(piece)


def in_pieces(n: int) -> list[tuple[int, int]]:
    """Return where the pieces begin and end into which n things are cut for the threads of this machine.

    Examples
    --------
    >>> pieces = in_pieces(100)
    >>> pieces[0][0], pieces[-1][1], all(a[1] == b[0] for a, b in zip(pieces, pieces[1:]))
    (0, 100, True)
    """
    cuts = np.linspace(0, n, min(n, _EACH * (os.cpu_count() or 1)) + 1).astype(int).tolist()
    return list(pairwise(cuts))


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="fmepy")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not come along
