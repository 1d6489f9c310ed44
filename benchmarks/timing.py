"""Times of things side by side: interleaved, so that a busy machine slows all of them alike."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def side_by_side(
    *functions: Callable[[], Any],
    rounds: int = 15,
    seconds: float = 0.03,
    clock: Callable[[], float] = time.process_time,
) -> list[float]:
    """Return the seconds a call of each function takes: the least of many short means, taken in turn.

    In each of the `rounds` every function has about `seconds`, one call at least, and its means are over calls that
    take a tenth of that together: short, so that some are not interrupted on a busy machine.

    clock : callable
        The time of the processor, in all threads: a long run has one of its own. `time.perf_counter` where workers
        help.
    """
    calls = [_calls_in(f, seconds / 10) for f in functions]
    best = [np.inf] * len(functions)
    for _ in range(rounds):
        for i, (function, n) in enumerate(zip(functions, calls, strict=True)):
            end = clock() + seconds
            while True:
                began = clock()
                for _ in range(n):
                    function()
                now = clock()
                best[i] = min(best[i], (now - began) / n)
                if now >= end:
                    break
    return best


def _calls_in(function: Callable[[], Any], seconds: float) -> int:
    function()  # what is done once is not what is timed
    began = time.perf_counter()
    function()
    return max(1, int(seconds / max(time.perf_counter() - began, 1e-7)))


def fresh_process(codes: Sequence[str], rounds: int = 7, **variables: str) -> list[float]:
    """Return the seconds that each piece of code says it took (its only output), in processes of their own, in turn.

    variables : str
        Set in their environment.
    """
    best = [np.inf] * len(codes)
    # bytecode is kept from one process to the next, as it is for a user
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | variables
    for _, (i, code) in itertools.product(range(rounds), enumerate(codes)):
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        best[i] = min(best[i], float(done.stdout))
    return best
