"""Many independent runs of one function, on nothing, on threads or processes, or on any executor.

The only place of fmepy where work is spread. What holds wherever it runs:

* results come back in the order of the inputs, and with a `seed` they are the same for any number of workers: run
  ``i`` draws from the ``i``-th child of the seed;
* the function travels to a worker once, not with every run; a worker that does not have it yet asks for it;
* cheap runs travel in batches, whose size follows the time that runs take;
* a function that offers ``many(inputs)``, which runs some inputs together without Python's lock and returns their
  outcomes ((True, result) or (False, (name of the error, message))), is run so, and on threads: nothing has to travel
  then, and what it returns does not depend on how inputs are put together;
* a run that raises or exits is kept as a failure, the others go on; so is a run whose process dies, or hangs;
* Ctrl-C returns what is done.

Run-time messages go to the logger ``fmepy.parallel``.
"""

from __future__ import annotations

import concurrent.futures as cf
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number
from fmepy.errors import ArgumentError
from fmepy.parallel.interruption import interruptible, outermost
from fmepy.parallel.pools import POOL_START, GivenPool, LokyPool, as_executor, worker_count
from fmepy.parallel.progress import Progress
from fmepy.parallel.runs import Collected, Runs, as_items, as_tasks
from fmepy.parallel.spreading import Spread
from fmepy.parallel.worker import Outcome, Task, in_batches, run_batch, runs_in_batches
from fmepy.types import Seed

__all__ = ["Runs", "run_many", "spread"]

logger = logging.getLogger(__name__)

# Times in seconds, counts without unit.
_TRIAL = 0.2  # at most so long the first runs are timed before it is decided where the rest goes
_TRIAL_RUNS = 5
_TOLD = 0.1  # between reports of progress


@interruptible(lambda runs: f"{int(runs.ok.sum())} of {len(runs)} runs are done, the others are failures.")
def run_many(
    function: Callable[..., Any],
    inputs: pd.DataFrame | Mapping[str, Sequence[Any]] | Iterable[Any],
    *,
    executor: Any = None,
    progress: bool | Callable[[int, int], object] = False,
    seed: Seed = None,
    force: bool = False,
    timeout: float | None = None,
) -> Runs:
    """Return the results of ``function(input)`` for every input, in order, failures kept.

    Parameters
    ----------
    function : callable
        Called with one input, and with ``rng=`` (a numpy Generator of its own) if `seed` is given. Lambdas and local
        functions are fine on processes too.
    inputs : DataFrame, mapping of columns, or sequence
        A table is one run per row: the function receives a dict by column, or an ndarray if the columns are exactly
        p1, p2, ... The items of a sequence are passed as they are.
    executor : None, int, Dask client, or concurrent.futures.Executor
        None: one after the other, here. A number: so many workers of this machine: threads for many runs of a compiled
        model, which leave Python's lock to each other (the functions of this package see to that), else processes. A
        client of a Dask cluster, or anything with the Executor face, such as a pool of threads; it stays open.
    progress : bool or callable
        True: a bar. A callable gets ``(done, total)`` after each batch, in this process.
    seed : int, Generator or None
        Given, each run gets its own stream of random numbers, the same for any number of workers.
    force : bool
        With a number of processes, the first few runs are timed here, and if starting the processes would take longer
        than what they save, the rest stays here too (told at INFO level). ``force=True`` uses the processes in any
        case and runs nothing here. Threads are used in any case.
    timeout : float, optional
        Seconds after which a run is ended and kept as a failure named "TimedOut". It needs a number of processes, and
        uses them in any case. What runs beside it begins anew, so it is for hangs, not for choosing quick runs.

    Returns
    -------
    Runs
        ``results`` (None where failed), ``ok``, ``failures``.

    Raises
    ------
    ArgumentError
        `executor`, `inputs`, `progress`, `seed` or `timeout` is not what it should be.
    FmepyError
        The function cannot be sent to, or loaded by, the workers.

    Notes
    -----
    Any ``Exception`` of the function is that run's failure, and so is ``sys.exit``. If a worker process dies (out of
    memory, a crash in compiled code), the runs it may have had are tried once more, one at a time; the one that dies
    again is a failure named "WorkerDied".

    After Ctrl-C what is done comes back, with an `InterruptedWarning` and ``interrupted`` true; the runs that were not
    done are failures named "Interrupted". Inside another verb Ctrl-C is passed on; a second one raises
    KeyboardInterrupt.

    Worker processes end with this one, however it ends, within seconds.

    Worker processes use one thread each for linear algebra, unless the environment says otherwise.

    Examples
    --------
    >>> runs = run_many(lambda p: 1 / p["a"], {"a": [1.0, 0.0, 4.0]})
    >>> runs
    3 runs, 1 failed: ZeroDivisionError 1
      run 1: ZeroDivisionError: float division by zero
    >>> runs.results
    [1.0, None, 0.25]

    Random numbers that do not depend on where the runs run:

    >>> run_many(lambda x, rng: x + int(rng.integers(10)), [0, 100], seed=1).results
    [0, 109]
    """
    return spread(function, inputs, executor=executor, progress=progress, seed=seed, force=force, timeout=timeout)


def spread(
    function: Callable[..., Any],
    inputs: Any,
    *,
    executor: Any = None,
    progress: Any = False,
    seed: Seed = None,
    force: bool = False,
    timeout: float | None = None,
    patience: float = 0.0,
    known: Mapping[int, Outcome] | None = None,
    keep: Callable[[int, Outcome], object] | None = None,
) -> Runs:
    """Return what `run_many` does, for other verbs: what was interrupted is theirs to tell.

    Parameters
    ----------
    patience : float
        Seconds that it is waited after Ctrl-C for runs under way; for those that can stop halfway (`Stopped`).
    known : dict of int to outcome, optional
        What is known of runs, by number: these are not run.
    keep : callable, optional
        Gets the number and the outcome of every other run, here and one after the other.
    """
    if not callable(function):
        raise ArgumentError(f"`function` must be callable; got {type(function).__name__}.")
    tasks = as_tasks(as_items(inputs), seed)
    executor = as_executor(executor)
    if timeout is not None:
        _check_timeout(timeout, executor)
    collected = Collected(tasks, known or {}, keep)
    tasks = [task for task in tasks if collected.outcomes[task.number] is None]
    with Progress(progress, len(collected.tasks)) as report:
        if known:
            report(collected.done)
        try:
            if executor is None or not tasks:
                _run_here(function, tasks, collected, report)
            elif isinstance(executor, int) and timeout is None and runs_in_batches(function, tasks):
                with cf.ThreadPoolExecutor(executor) as threads:
                    Spread(function, GivenPool(threads), executor, collected, report, patience=patience).run(tasks)
            elif isinstance(executor, int):
                if not force and timeout is None:
                    tasks = _begin_here(function, tasks, executor, collected, report)
                pool = LokyPool(executor)
                Spread(function, pool, executor, collected, report, timeout=timeout, patience=patience).run(tasks)
            else:
                workers, given = worker_count(executor), GivenPool(executor)
                Spread(function, given, workers, collected, report, patience=patience).run(tasks)
        except KeyboardInterrupt:
            if collected.interrupted or not outermost():  # a second one, or somebody else's
                raise
            collected.interrupted = True
    if collected.interrupted:
        collected.fill("Interrupted", "Stopped by Ctrl-C before it was done.")
    return collected.runs()


def _check_timeout(timeout: Any, executor: Any) -> None:
    positive_number(timeout, "timeout", " of seconds, or None")
    if not isinstance(executor, int):
        raise ArgumentError(
            "`timeout` ends the process that a hanging run is in, so it needs processes of this machine. Pass a "
            "number, such as executor=2."
        )


def _begin_here(
    function: Callable[..., Any], tasks: list[Task], workers: int, collected: Collected, report: Progress
) -> list[Task]:
    """Run the first few tasks here, and the others too if processes would not pay; return what is left to be run."""
    tried, spent = _trial(function, tasks, collected, report)
    tasks = tasks[tried:]
    saved = spent * (len(tasks) - -(-len(tasks) // workers))
    if not tasks or saved > POOL_START:
        return tasks
    logger.info(
        "run_many: %d runs of about %.2g s stay in this process; starting %d processes would take longer than they "
        "save (force=True insists).",
        len(tasks),
        spent,
        workers,
    )
    _run_here(function, tasks, collected, report)
    return []


def _run_here(function: Callable[..., Any], tasks: Sequence[Task], collected: Collected, report: Progress) -> None:
    told = time.perf_counter()
    for some in in_batches(function, tasks):
        _some_here(function, some, collected)
        now = time.perf_counter()
        if now - told > _TOLD or collected.done == report.total:
            told = now
            report(collected.done)


def _some_here(function: Callable[..., Any], tasks: Sequence[Task], collected: Collected) -> None:
    outcomes, stopped = run_batch(function, tasks)
    for task, outcome in zip(tasks, outcomes, strict=False):
        collected.add(task.number, outcome)
    if stopped:
        raise KeyboardInterrupt


def _trial(
    function: Callable[..., Any], tasks: list[Task], collected: Collected, report: Progress
) -> tuple[int, float]:
    """Run the first few tasks here; return how many, and the time of one (the least: the first may compile)."""
    began = time.perf_counter()
    least = np.inf
    for n, task in enumerate(tasks[:_TRIAL_RUNS], start=1):
        before = time.perf_counter()
        _some_here(function, [task], collected)
        now = time.perf_counter()
        least = min(least, now - before)
        if now - began > (_TRIAL if n > 1 else 10 * _TRIAL):
            break
    report(collected.done)
    return n, float(least)
