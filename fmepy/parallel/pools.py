"""Where runs go: processes of this machine, or an executor of the user's."""

from __future__ import annotations

import concurrent.futures as cf
import os
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError
from fmepy.parallel.worker import begin

POOL_START = 2.5
"""Seconds until two new processes have done their first run: numpy, pandas and this package imported, a model loaded.

Processes are begun where they save more than that, so that they do not take longer than what they are to shorten.
"""
_IDLE = 60  # seconds after which idle worker processes end
_UNKNOWN_WORKERS = 64  # for executors that do not say how many workers they have


def as_executor(executor: Any) -> Any:
    """Return what was given: None, a number of processes, or an object with the methods of Executor.

    Raises
    ------
    ArgumentError
        It is something else.
    """
    if executor is None:
        return None
    if isinstance(executor, (bool, np.bool_)):
        raise ArgumentError(
            f"`executor={executor}` is not a number of processes. Pass one, such as executor=2, or None."
        )
    if isinstance(executor, (int, np.integer)):
        if executor < 1:
            raise ArgumentError(f"`executor={executor}`: the number of processes must be at least 1.")
        return int(executor)
    if not isinstance(executor, type):
        if callable(getattr(executor, "get_executor", None)):  # a Dask client, whose own futures are of another kind
            return executor.get_executor()
        if callable(getattr(executor, "submit", None)):
            return executor
    raise ArgumentError(
        "`executor` must be None, a number of processes, a Dask client, or an object with the methods of "
        f"concurrent.futures.Executor; got {type(executor).__name__}."
    )


def worker_count(executor: Any) -> int:
    """Return how many runs go on at a time, 0 for none but here."""
    if executor is None or isinstance(executor, int):
        return executor or 0
    known = getattr(executor, "_max_workers", None)
    return known if isinstance(known, int) and known > 0 else _UNKNOWN_WORKERS


class LokyPool:
    """Processes of this machine, kept by loky between calls."""

    restarts = True
    shares_memory = False

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def submit(self, *args: Any) -> cf.Future[Any]:
        """Send one call."""
        import loky

        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        pool = loky.get_reusable_executor(
            max_workers=self.workers,
            timeout=_IDLE,
            env={k: os.environ.get(k, "1") for k in threads},
            initializer=begin,
            initargs=(os.getpid(),),
        )
        future: cf.Future[Any] = pool.submit(*args)
        return future

    def stop(self) -> None:
        """End the processes, whatever they are doing."""
        import loky

        loky.get_reusable_executor(max_workers=self.workers, reuse=True).shutdown(wait=True, kill_workers=True)


class GivenPool:
    """The user's executor; it stays open, and cannot be started anew."""

    restarts = False

    def __init__(self, executor: Any) -> None:
        self.submit = executor.submit
        self.shares_memory = isinstance(executor, cf.ThreadPoolExecutor)

    def stop(self) -> None:
        """Leave it to its owner."""
