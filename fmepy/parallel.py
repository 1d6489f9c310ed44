"""Many independent runs of one function, on nothing, on processes, or on any executor.

The only place of fmepy where work is spread. What holds wherever it runs:

* results come back in the order of the inputs, and with a `seed` they are the same for any number of workers: run
  ``i`` draws from the ``i``-th child of the seed;
* the function travels to a worker once, not with every run; a worker that does not have it yet asks for it;
* cheap runs travel in batches, whose size follows the time that runs take;
* a run that raises is kept as a failure, the others go on; so is a run whose process dies;
* Ctrl-C returns what is done.

Run-time messages go to the logger ``fmepy.parallel``.
"""

from __future__ import annotations

import concurrent.futures as cf
import hashlib
import logging
import os
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .errors import ArgumentError, FmepyError, listed
from .parameters import generated_names
from .types import BoolVector, Seed

__all__ = ["Runs", "run_many"]

logger = logging.getLogger(__name__)

# Times in seconds, counts without unit.
_POOL_START = 1.0  # starting two processes that import numpy and pandas took 1.0 s on a 2-core machine
_TRIAL = 0.2  # at most so long the first runs are timed before it is decided where the rest goes
_TRIAL_RUNS = 5
_BATCH = 0.2  # a batch of runs should take about this long: far above the 1 ms that a round trip costs
_IDLE = 60  # idle worker processes end after this time
_DEATHS = 20  # so many worker processes may die before the rest is given up
_UNKNOWN_WORKERS = 64  # for executors that do not say how many workers they have

Outcome = tuple[bool, Any]  # (True, result) or (False, (name of the error, message))


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """What many runs gave.

    Attributes
    ----------
    results : list
        One result per run, in the order of the inputs; None where the run failed.
    ok : ndarray of bool, shape (n_run,)
        True where the run came to its end.
    failures : DataFrame
        One row per failed run: its number `run` (from 0), its `parameters`, the name of the `error`, its `message`.
    """

    results: list[Any]
    ok: BoolVector
    failures: pd.DataFrame

    def __len__(self) -> int:
        return len(self.results)

    def __repr__(self) -> str:
        n, failed = len(self.results), len(self.failures)
        head = f"{n} {'run' if n == 1 else 'runs'}, " + (f"{failed} failed" if failed else "none failed")
        if not failed:
            return head
        kinds = self.failures["error"].value_counts(sort=False)
        lines = [f"{head}: " + ", ".join(f"{k} {v}" for k, v in kinds.items())]
        lines += [f"  run {r.run}: {r.error}: {r.message}" for r in self.failures.head(5).itertuples()]
        if failed > 5:
            lines.append(f"  ... all {failed} are in .failures")
        return "\n".join(lines)


def run_many(
    function: Callable[..., Any],
    inputs: pd.DataFrame | Mapping[str, Sequence[Any]] | Iterable[Any],
    *,
    executor: Any = None,
    progress: bool | Callable[[int, int], object] = False,
    seed: Seed = None,
    force: bool = False,
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
    executor : None, int, or concurrent.futures.Executor
        None: one after the other, here. A number: so many processes of this machine. Anything with the Executor face:
        a pool of threads, ``client.get_executor()`` of a Dask cluster; it stays open.
    progress : bool or callable
        True: a bar. A callable gets ``(done, total)`` after each batch, in this process.
    seed : int, Generator or None
        Given, each run gets its own stream of random numbers, the same for any number of workers.
    force : bool
        With a number of processes, the first few runs are timed here, and if starting the processes would take longer
        than what they save, the rest stays here too (told at INFO level). ``force=True`` uses the processes in any
        case and runs nothing here.

    Returns
    -------
    Runs
        ``results`` (None where failed), ``ok``, ``failures``.

    Raises
    ------
    ArgumentError
        `executor`, `inputs`, `progress` or `seed` is not what it should be.
    FmepyError
        The function cannot be sent to, or loaded by, the workers.

    Notes
    -----
    Any ``Exception`` of the function is that run's failure. If a worker process dies (out of memory, a crash in
    compiled code), the runs it may have had are tried once more, one at a time; the one that dies again is a failure
    named "WorkerDied". After Ctrl-C the runs that were not done are failures named "Interrupted"; a warning is logged.

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
    if not callable(function):
        raise ArgumentError(f"`function` must be callable; got {type(function).__name__}.")
    tasks = _tasks(_items(inputs), seed)
    workers = _worker_count(executor)
    collected = _Collected(len(tasks))
    with _Progress(progress, len(tasks)) as report:
        try:
            _run(function, tasks, executor, workers, force, collected, report)
        except KeyboardInterrupt:
            logger.warning(
                "run_many: interrupted; %d of %d runs are done, the others are marked as failures.",
                collected.done,
                len(tasks),
            )
            collected.fill("Interrupted", "Stopped by Ctrl-C before it was done.")
    return collected.runs(tasks)


class _Task(NamedTuple):
    """One run: its number, its input, and the seed of its random numbers (None: it gets none)."""

    number: int
    item: Any
    seed: np.random.SeedSequence | None


def _tasks(items: list[Any], seed: Seed) -> list[_Task]:
    if seed is None:
        return [_Task(i, item, None) for i, item in enumerate(items)]
    if isinstance(seed, np.random.Generator):
        root: Any = seed.bit_generator.seed_seq  # spawning counts on, so that a second call draws anew
    elif isinstance(seed, (int, np.integer)) and not isinstance(seed, bool) and seed >= 0:
        root = np.random.SeedSequence(int(seed))
    else:
        raise ArgumentError(f"`seed={seed!r}` must be a whole number >= 0, a numpy Generator, or None.")
    return [_Task(i, item, child) for i, (item, child) in enumerate(zip(items, root.spawn(len(items)), strict=True))]


def _items(inputs: Any) -> list[Any]:
    """Return one input per run."""
    if isinstance(inputs, Mapping):
        try:
            inputs = pd.DataFrame(dict(inputs))
        except ValueError as error:
            raise ArgumentError(f"`inputs`: a mapping must hold columns of equal length ({error}).") from None
    if isinstance(inputs, pd.DataFrame):
        columns = [str(c) for c in inputs.columns]
        repeated = sorted({c for c in columns if columns.count(c) > 1})
        if repeated:
            raise ArgumentError(f"`inputs` has more than one column {listed(repeated)}.")
        if columns and tuple(columns) == generated_names(len(columns)):
            return list(inputs.to_numpy(dtype=float, copy=True))
        return [dict(zip(columns, row, strict=True)) for row in inputs.itertuples(index=False, name=None)]
    if isinstance(inputs, (str, bytes)) or not isinstance(inputs, Iterable):
        raise ArgumentError(
            f"`inputs` must be a table (one run per row) or a sequence of inputs; got {type(inputs).__name__}."
        )
    return list(inputs)


def _worker_count(executor: Any) -> int:
    """Return how many runs go on at a time, 0 for none but here."""
    if executor is None:
        return 0
    if isinstance(executor, (bool, np.bool_)):
        raise ArgumentError(
            f"`executor={executor}` is not a number of processes. Pass one, such as executor=2, or None."
        )
    if isinstance(executor, (int, np.integer)):
        if executor < 1:
            raise ArgumentError(f"`executor={executor}`: the number of processes must be at least 1.")
        return int(executor)
    if callable(getattr(executor, "submit", None)):
        known = getattr(executor, "_max_workers", None)
        return known if isinstance(known, int) and known > 0 else _UNKNOWN_WORKERS
    raise ArgumentError(
        f"`executor` must be None, a number of processes, or an object with the face of concurrent.futures.Executor; "
        f"got {type(executor).__name__}."
    )


class _Collected:
    """The outcomes so far, by the number of the run."""

    def __init__(self, n: int) -> None:
        self.outcomes: list[Outcome | None] = [None] * n
        self.done = 0

    def add(self, number: int, outcome: Outcome) -> None:
        if self.outcomes[number] is None:
            self.outcomes[number] = outcome
            self.done += 1

    def fill(self, error: str, message: str) -> None:
        """Mark whatever is not done as failed."""
        for i, outcome in enumerate(self.outcomes):
            if outcome is None:
                self.outcomes[i] = (False, (error, message))

    def runs(self, tasks: list[_Task]) -> Runs:
        outcomes = [o for o in self.outcomes if o is not None]
        failed = [(t.number, t.item, *o[1]) for t, o in zip(tasks, outcomes, strict=True) if not o[0]]
        return Runs(
            results=[value if ok else None for ok, value in outcomes],
            ok=np.array([ok for ok, _ in outcomes], dtype=bool),
            failures=pd.DataFrame(
                {
                    "run": pd.Series([f[0] for f in failed], dtype=np.intp),
                    "parameters": pd.Series([f[1] for f in failed], dtype=object),
                    "error": pd.Series([f[2] for f in failed], dtype=object),
                    "message": pd.Series([f[3] for f in failed], dtype=object),
                }
            ),
        )


class _Progress:
    """Tell how far it is: nobody, a bar, or a callable."""

    def __init__(self, progress: Any, total: int) -> None:
        if not callable(progress) and not isinstance(progress, (bool, np.bool_)) and progress is not None:
            raise ArgumentError(f"`progress={progress!r}` must be True, False, or a callable of (done, total).")
        self.total, self.bar, self.callback = total, None, None
        if callable(progress):
            self.callback = progress
        elif progress:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="run")

    def __call__(self, done: int) -> None:
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        if self.callback is not None:
            self.callback(done, self.total)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()


def _run(
    function: Callable[..., Any],
    tasks: list[_Task],
    executor: Any,
    workers: int,
    force: bool,
    collected: _Collected,
    report: _Progress,
) -> None:
    """Decide where the runs go, and run them."""
    if executor is None:
        _run_here(function, tasks, collected, report)
    elif isinstance(executor, (int, np.integer)):
        if not force:
            tried, spent = _trial(function, tasks, collected, report)
            tasks = tasks[tried:]
            if not tasks:
                return
            saved = spent * (len(tasks) - -(-len(tasks) // workers))
            if saved <= _POOL_START:
                logger.info(
                    "run_many: %d runs of about %.2g s stay in this process; starting %d processes would take longer "
                    "than they save (force=True insists).",
                    len(tasks),
                    spent,
                    workers,
                )
                _run_here(function, tasks, collected, report)
                return
        _Spread(function, _LokyPool(workers), workers, collected, report).run(tasks)
    else:
        _Spread(function, _GivenPool(executor), workers, collected, report).run(tasks)


def _run_here(function: Callable[..., Any], tasks: Iterable[_Task], collected: _Collected, report: _Progress) -> None:
    told = time.perf_counter()
    for task in tasks:
        collected.add(task.number, _attempt(function, task))
        now = time.perf_counter()
        if now - told > _BATCH / 2 or collected.done == report.total:
            told = now
            report(collected.done)


def _trial(
    function: Callable[..., Any], tasks: list[_Task], collected: _Collected, report: _Progress
) -> tuple[int, float]:
    """Run the first few tasks here; return how many, and the time of one (the least: the first may compile)."""
    began = time.perf_counter()
    least = np.inf
    for n, task in enumerate(tasks[:_TRIAL_RUNS], start=1):
        before = time.perf_counter()
        collected.add(task.number, _attempt(function, task))
        now = time.perf_counter()
        least = min(least, now - before)
        if now - began > (_TRIAL if n > 1 else 10 * _TRIAL):
            break
    report(collected.done)
    return collected.done, float(least)


def _attempt(function: Callable[..., Any], task: _Task) -> Outcome:
    """Return what one run gave; any Exception is its failure."""
    try:
        if task.seed is None:
            return True, function(task.item)
        return True, function(task.item, rng=np.random.default_rng(task.seed))
    except Exception as error:
        return False, (type(error).__name__, str(error))


# --- in the worker


class _Reply(NamedTuple):
    """What a worker sends back: outcomes (pickled) and the time they took, or the word that it lacks the function."""

    outcomes: bytes | None
    seconds: float
    trouble: str | None = None


_functions: OrderedDict[str, Callable[..., Any]] = OrderedDict()  # in a worker: the last few functions, by token
_KEPT = 4


def _work(token: str, payload: bytes | None, batch: bytes) -> _Reply:
    """Run a batch in a worker; `payload` is the pickled function, if it travels with this batch."""
    import cloudpickle

    if token not in _functions:
        if payload is None:
            return _Reply(None, 0.0)
        try:
            _functions[token] = cloudpickle.loads(payload)
        except Exception as error:
            return _Reply(None, 0.0, f"{type(error).__name__}: {error}")
        while len(_functions) > _KEPT:
            _functions.popitem(last=False)
    _functions.move_to_end(token)
    function = _functions[token]
    tasks: list[_Task] = cloudpickle.loads(batch)
    began = time.perf_counter()
    outcomes = [_attempt(function, task) for task in tasks]
    return _Reply(_packed(outcomes), time.perf_counter() - began)


def _packed(outcomes: list[Outcome]) -> bytes:
    """Pickle outcomes; one that cannot be pickled becomes that run's failure."""
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(outcomes))
    except Exception:
        return bytes(cloudpickle.dumps([_sendable(o) for o in outcomes]))


def _sendable(outcome: Outcome) -> Outcome:
    import cloudpickle

    try:
        cloudpickle.dumps(outcome)
    except Exception as error:
        what = type(outcome[1]).__name__
        return False, (type(error).__name__, f"The result, a {what}, cannot be sent back from the worker: {error}")
    return outcome


# --- pools


class _LokyPool:
    """Processes of this machine, kept by loky between calls."""

    restarts = True
    shares_memory = False

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def submit(self, *args: Any) -> cf.Future[Any]:
        import loky

        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
        pool = loky.get_reusable_executor(
            max_workers=self.workers, timeout=_IDLE, env={k: os.environ.get(k, "1") for k in threads}
        )
        future: cf.Future[Any] = pool.submit(*args)
        return future

    def stop(self) -> None:
        """End the processes, whatever they are doing."""
        import loky

        loky.get_reusable_executor(max_workers=self.workers, reuse=True).shutdown(wait=True, kill_workers=True)


class _GivenPool:
    """The user's executor; it stays open, and cannot be started anew."""

    restarts = False

    def __init__(self, executor: Any) -> None:
        self.submit = executor.submit
        self.shares_memory = isinstance(executor, cf.ThreadPoolExecutor)

    def stop(self) -> None:
        """Leave it to its owner."""


class _Spread:
    """Runs on a pool: a few batches a worker at a time, so that their size can follow the time that runs take."""

    def __init__(
        self,
        function: Callable[..., Any],
        pool: _LokyPool | _GivenPool,
        workers: int,
        collected: _Collected,
        report: _Progress,
    ) -> None:
        self.function, self.pool, self.workers = function, pool, workers
        self.collected, self.report = collected, report
        self.payload: bytes | None = None
        self.token = ""
        if not pool.shares_memory:
            self.payload, self.token = _pickled(function)
        self.sent = 0  # batches that carried the function
        self.seconds, self.counted = 0.0, 0  # time of all runs so far, and their number
        self.deaths = 0
        self.waiting: deque[_Task] = deque()
        self.pending: dict[cf.Future[Any], list[_Task]] = {}

    def run(self, tasks: Iterable[_Task]) -> None:
        self.waiting.extend(tasks)
        finished = False
        try:
            while self.waiting or self.pending:
                try:
                    self._submit_some()
                    done, _ = cf.wait(list(self.pending), return_when=cf.FIRST_COMPLETED)
                    for future in done:
                        self._take(future)
                except cf.BrokenExecutor:
                    self._recover()
                self.report(self.collected.done)
            finished = True
        finally:
            if not finished:
                self._harvest()

    def _submit_some(self) -> None:
        while self.waiting and len(self.pending) < 2 * self.workers:
            size = min(self._batch_size(), len(self.waiting))
            batch = [self.waiting.popleft() for _ in range(size)]
            try:
                self._submit(batch, carry=self.sent < self.workers)
            except BaseException:
                self.waiting.extendleft(reversed(batch))
                raise

    def _batch_size(self) -> int:
        """Return how many runs take about `_BATCH` seconds, and no more than leaves work for everybody."""
        if self.counted == 0:
            return 1
        fair = -(-len(self.waiting) // (2 * self.workers))
        return max(1, min(fair, int(_BATCH * self.counted / max(self.seconds, 1e-9))))

    def _submit(self, batch: list[_Task], *, carry: bool) -> None:
        if self.pool.shares_memory:
            future = self.pool.submit(_work_here, self.function, batch)
        else:
            future = self.pool.submit(_work, self.token, self.payload if carry else None, _dumps(batch, "an input"))
            self.sent += carry
        self.pending[future] = batch

    def _take(self, future: cf.Future[Any]) -> None:
        """Collect one batch; raise BrokenExecutor if its worker died."""
        reply = future.result()  # raises before the batch leaves `pending`
        batch = self.pending.pop(future)
        if not self._collect(reply, batch):
            self._submit(batch, carry=True)

    def _collect(self, reply: _Reply, batch: list[_Task]) -> bool:
        """Keep the outcomes of a batch; False if the worker lacked the function."""
        if reply.trouble is not None:
            raise FmepyError(
                f"run_many: a worker cannot load the function: {reply.trouble}. What the function uses must be "
                "importable there; a function defined in the script itself travels whole."
            )
        if reply.outcomes is None:
            return False
        for task, outcome in zip(batch, _loads(reply.outcomes), strict=True):
            self.collected.add(task.number, outcome)
        self.seconds += reply.seconds
        self.counted += len(batch)
        return True

    def _collect_arrived(self) -> None:
        """Keep what has arrived, forget the rest."""
        pending, self.pending = self.pending, {}
        for future, batch in pending.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                self._collect(future.result(), batch)

    def _recover(self) -> None:
        """After a worker died: try what it may have run again, one run at a time."""
        sent = [task for batch in self.pending.values() for task in batch]
        self._collect_arrived()
        suspects = [task for task in sent if self.collected.outcomes[task.number] is None]
        if not self.pool.restarts:
            logger.warning("run_many: the executor broke; the runs that were not done are marked as failures.")
            self.waiting.clear()
            self.collected.fill(
                "WorkerDied", "The executor broke: a worker ended abruptly. Not every such run is at fault."
            )
            return
        self.deaths += 1
        logger.warning(
            "run_many: a worker process died; %d runs are tried again one at a time, the others go on.", len(suspects)
        )
        for n, task in enumerate(suspects):
            if self.deaths > _DEATHS:
                self.waiting.extend(suspects[n:])
                self._give_up()
                return
            self._alone(task)
        self.sent = 0  # the new processes do not have the function

    def _alone(self, task: _Task) -> None:
        """Run one task with nothing beside it, so that a death is its own."""
        try:
            self._submit([task], carry=True)
            (future,) = self.pending
            cf.wait([future])
            self._take(future)
        except cf.BrokenExecutor:
            self.pending.clear()
            self.deaths += 1
            message = "The worker process that ran it ended abruptly: out of memory, or a crash in compiled code."
            self.collected.add(task.number, (False, ("WorkerDied", message)))
            logger.warning("run_many: run %d ends its worker process; it is marked as a failure.", task.number)

    def _give_up(self) -> None:
        logger.warning("run_many: %d worker processes died; the remaining runs are not tried.", self.deaths)
        self.waiting.clear()
        self.collected.fill("WorkerDied", f"Not tried: {self.deaths} worker processes had died before.")

    def _harvest(self) -> None:
        """Stop: keep what has arrived, cancel the rest."""
        self.waiting.clear()
        running = [future for future in self.pending if not future.cancel() and not future.done()]
        self._collect_arrived()
        if running:
            self.pool.stop()


def _work_here(function: Callable[..., Any], batch: list[_Task]) -> _Reply:
    """Run a batch in a thread of this process: nothing needs to travel, outcomes stay what they are."""
    began = time.perf_counter()
    outcomes: Any = [_attempt(function, task) for task in batch]
    return _Reply(outcomes, time.perf_counter() - began)


def _loads(outcomes: Any) -> list[Outcome]:
    if isinstance(outcomes, list):
        return outcomes
    import cloudpickle

    loaded: list[Outcome] = cloudpickle.loads(outcomes)
    return loaded


def _dumps(value: Any, what: str) -> bytes:
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise FmepyError(
            f"run_many: {what} cannot be sent to other processes ({type(error).__name__}: {error}). Make what cannot "
            "travel (open files, locks, connections) inside the function, or use executor=None."
        ) from error


def _pickled(function: Callable[..., Any]) -> tuple[bytes, str]:
    """Return the function as bytes, and a token that names them."""
    payload = _dumps(function, "the function")
    return payload, hashlib.sha256(payload).hexdigest()
