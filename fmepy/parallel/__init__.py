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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fmepy.parallel.interruption import interruptible
from fmepy.parallel.resumable import question_of, resumable_tasks
from fmepy.parallel.runs import Runs, as_items
from fmepy.parallel.spreading import spread
from fmepy.types import Seed

__all__ = ["Runs", "run_many", "spread"]


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
    checkpoint: Any = None,
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
    checkpoint : path, optional
        A folder in which results are kept as they come, numbers, texts, tables and results of this package, as `save`
        writes them. The same call with the same folder runs what is missing; other inputs, another seed, or a function
        of another name are refused. Of a function only its name is known: give the same one.

    Returns
    -------
    Runs
        ``results`` (None where failed), ``ok``, ``failures``.

    Raises
    ------
    ArgumentError
        `executor`, `inputs`, `progress`, `seed` or `timeout` is not what it should be; the checkpoint is of other runs,
        or a result cannot be kept in it.
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
    >>> runs  # doctest: +ELLIPSIS
    3 runs, 1 failed: ZeroDivisionError 1
      run 1: ZeroDivisionError: ...division by zero
    >>> runs.results
    [1.0, None, 0.25]

    Random numbers that do not depend on where the runs run:

    >>> run_many(lambda x, rng: x + int(rng.integers(10)), [0, 100], seed=1).results
    [0, 109]
    """
    words: dict[str, Any] = {"executor": executor, "progress": progress, "force": force, "timeout": timeout}
    if checkpoint is None:
        return spread(function, inputs, seed=seed, **words)
    items = as_items(inputs)
    with resumable_tasks(checkpoint, "many runs", seed=seed) as tasks:
        question = {**question_of(function, items), "with a seed": seed is not None}
        return tasks.spread(function, items, question=question, seeded=seed is not None, **words)
