"""Runs on a pool: batches whose size follows the time that runs take, deaths and hangs survived, Ctrl-C obeyed."""

from __future__ import annotations

import concurrent.futures as cf
import glob
import hashlib
import logging
import os
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.checks import positive_number
from fmepy.errors import ArgumentError, FmepyError
from fmepy.parallel.interruption import outermost
from fmepy.parallel.pools import POOL_START, GivenPool, LokyPool, as_executor, worker_count
from fmepy.parallel.progress import Progress
from fmepy.parallel.runs import INTERRUPTED, Collected, Runs, as_items, as_tasks
from fmepy.parallel.worker import (
    Outcome,
    Reply,
    Task,
    in_batches,
    loads,
    mark_of,
    run_batch,
    runs_in_batches,
    work,
    work_here,
)
from fmepy.types import Seed

logger = logging.getLogger("fmepy.parallel")

# Times in seconds, counts without unit.
_BATCH = 0.2  # a batch of runs should take about this long: far above the 1 ms that a round trip costs
_DEATHS = 20  # so many worker processes may die before the rest is given up
_QUIET = 1.0  # after Ctrl-C it is waited so long for what is under way, without a word
_TRIAL = 0.2  # at most so long the first runs are timed before it is decided where the rest goes
_TRIAL_RUNS = 5
_PAUSE = 0.1  # between reports of progress
_LOOK = 0.1  # with a time limit, between looks at the runs under way


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
        collected.fill(*INTERRUPTED)
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
    reported = time.perf_counter()
    for some in in_batches(function, tasks):
        _some_here(function, some, collected)
        now = time.perf_counter()
        if now - reported > _PAUSE or collected.done == report.total:
            reported = now
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


class Spread:
    """Runs on a pool: a few batches a worker at a time, so that their size can follow the time that runs take."""

    def __init__(
        self,
        function: Callable[..., Any],
        pool: LokyPool | GivenPool,
        workers: int,
        collected: Collected,
        report: Progress,
        *,
        timeout: float | None = None,
        patience: float = 0.0,
    ) -> None:
        self.function, self.pool, self.workers = function, pool, workers
        self.collected, self.report = collected, report
        self.timeout, self.patience = timeout, patience
        self.payload: bytes | None = None
        self.token = ""
        if not pool.shares_memory:
            self.payload, self.token = _pickled(function)
        self.sent = 0  # batches that carried the function
        self.seconds, self.counted = 0.0, 0  # time of all runs so far, and their number
        self.deaths = 0
        self.waiting: deque[Task] = deque()
        self.pending: dict[cf.Future[Any], list[Task]] = {}
        self.stop = threading.Event()  # for threads; for processes a file of this name, which is made to stop them
        self.stop_file = os.path.join(tempfile.gettempdir(), f"fmepy-stop-{uuid.uuid4().hex}")
        self.begun: dict[int, float] = {}  # with a time limit: when a run was first seen to have begun

    def run(self, tasks: Iterable[Task]) -> None:
        """Run the tasks; after Ctrl-C what is done is collected, and `collected` says so.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C inside a verb that another one runs, or a second Ctrl-C.
        """
        self.waiting.extend(tasks)
        try:
            while self.waiting or self.pending:
                try:
                    self._submit_some()
                    wait = None if self.timeout is None else _LOOK
                    done, _ = cf.wait(list(self.pending), wait, return_when=cf.FIRST_COMPLETED)
                    for future in done:
                        self._take(future)
                    if self.timeout is not None:
                        self._end_hanging(self.timeout)
                except cf.BrokenExecutor:
                    self._recover()
                self.report(self.collected.done)
        except KeyboardInterrupt:
            if not outermost():
                self._end()
                raise
            self.collected.interrupted = True
            self._come_home()
        except BaseException:
            self._end()
            raise
        finally:
            for file in glob.glob(f"{glob.escape(self.stop_file)}*"):
                Path(file).unlink(missing_ok=True)

    def _submit_some(self) -> None:
        most = 2 * self.workers if self.timeout is None else self.workers  # a run that is timed begins at once
        while self.waiting and len(self.pending) < most:
            size = min(self._batch_size(), len(self.waiting))
            batch = [self.waiting.popleft() for _ in range(size)]
            try:
                self._submit(batch, carry=self.sent < self.workers)
            except BaseException:
                self.waiting.extendleft(reversed(batch))
                raise

    def _batch_size(self) -> int:
        """Return how many runs take about `_BATCH` seconds, and no more than leaves work for everybody."""
        if self.counted == 0 or self.timeout is not None:
            return 1
        fair = -(-len(self.waiting) // (2 * self.workers))
        return max(1, min(fair, int(_BATCH * self.counted / max(self.seconds, 1e-9))))

    def _submit(self, batch: list[Task], *, carry: bool) -> None:
        if self.pool.shares_memory:
            future = self.pool.submit(work_here, self.function, batch, self.stop.is_set)
        else:
            payload, tasks = self.payload if carry else None, _dumps(batch, "an input")
            future = self.pool.submit(work, self.token, payload, tasks, self.stop_file, self.timeout is not None)
            self.sent += carry
        self.pending[future] = batch

    def _take(self, future: cf.Future[Any]) -> None:
        """Collect one batch; raise BrokenExecutor if its worker died."""
        reply = future.result()  # raises before the batch leaves `pending`
        batch = self.pending.pop(future)
        if not self._collect(reply, batch):
            self._submit(batch, carry=True)
        elif reply.stopped:  # a KeyboardInterrupt of the function's own
            raise KeyboardInterrupt

    def _collect(self, reply: Reply, batch: list[Task]) -> bool:
        """Keep the outcomes of a batch; False if the worker lacked the function."""
        if reply.trouble is not None:
            raise FmepyError(
                f"run_many: a worker cannot load the function: {reply.trouble}. What the function uses must be "
                "importable there; a function defined in the script itself travels whole."
            )
        if reply.outcomes is None:
            return False
        for task, outcome in zip(batch, loads(reply.outcomes), strict=False):  # one that was stopped is shorter
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

    def _alone(self, task: Task) -> None:
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

    # --- stopping

    def _end_hanging(self, timeout: float) -> None:
        """End the runs that are over their time, and with them their pool; the others of it begin anew."""
        now = time.monotonic()
        running = {task.number: task for (task,) in self.pending.values()}
        for number, task in running.items():
            if number not in self.begun and os.path.exists(mark_of(self.stop_file, task)):
                self.begun[number] = now
        late = [n for n in running if now - self.begun.get(n, now) > timeout]
        if not late:
            return
        self._collect_arrived()
        self.pool.stop()
        for number, task in running.items():
            self.begun.pop(number, None)
            Path(mark_of(self.stop_file, task)).unlink(missing_ok=True)
            if self.collected.outcomes[number] is not None:
                continue
            if number in late:
                self.collected.add(number, (False, ("TimedOut", f"Ended after timeout={timeout:g} seconds.")))
            else:
                self.waiting.appendleft(task)
        self.sent = 0  # the new processes do not have the function

    def _come_home(self) -> None:
        """After Ctrl-C: keep what has arrived and what comes within a short time, end the rest."""
        self.waiting.clear()
        try:
            self.stop.set()
            if not self.pool.shares_memory:
                Path(self.stop_file).touch()
            running = [future for future in self.pending if not future.cancel()]
            _, late = cf.wait(running, timeout=_QUIET)
            if late and self.patience:
                logger.warning(
                    "run_many: waiting for %d runs to come to a point where they can stop (at most %g s); Ctrl-C again "
                    "ends without them.",
                    len(late),
                    self.patience,
                )
                cf.wait(late, timeout=self.patience)
        finally:
            self._end()

    def _end(self) -> None:
        """Stop at once: keep what has arrived, cancel the rest."""
        self.waiting.clear()
        self.stop.set()
        running = [future for future in self.pending if not future.cancel() and not future.done()]
        self._collect_arrived()
        if running:
            self.pool.stop()


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
