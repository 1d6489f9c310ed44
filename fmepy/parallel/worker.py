"""What happens where a run runs: one attempt, a batch of them, and the life of a worker process."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fmepy.parallel.interruption import Stopped, check_stop, working

Outcome = tuple[bool, Any]  # (True, result) or (False, (name of the error, message))

AT_ONCE = 500  # runs that go together: some milliseconds, after which Ctrl-C is looked for
_KEPT = 4  # functions that a worker remembers
_LOOK = 1.0  # seconds between looks whether the parent is alive


class Task(NamedTuple):
    """One run: its number, its input, and the seed of its random numbers (None: it gets none)."""

    number: int
    item: Any
    seed: np.random.SeedSequence | None


def attempt(function: Callable[..., Any], task: Task) -> Outcome:
    """Return what one run gave; any Exception is its failure, and so is sys.exit."""
    try:
        if task.seed is None:
            return True, function(task.item)
        return True, function(task.item, rng=np.random.default_rng(task.seed))
    except SystemExit as error:
        return False, ("SystemExit", f"The run called sys.exit({'' if error.code is None else repr(error.code)}).")
    except Exception as error:
        return False, (type(error).__name__, _message_of(error))


def _message_of(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # an exception of the user's whose message fails
        return "(The error has no text: its own __str__ fails.)"


def run_batch(
    function: Callable[..., Any], tasks: Sequence[Task], began: Callable[[Task], object] = lambda task: None
) -> tuple[list[Outcome], bool]:
    """Return the outcomes of the first tasks, and whether Ctrl-C ended it before the others."""
    outcomes: list[Outcome] = []
    try:
        for some in in_batches(function, tasks):
            check_stop()
            began(some[0])
            outcomes += _attempts(function, some)
    except Stopped as stop:
        return [*outcomes, (True, stop.partial)], True
    except KeyboardInterrupt:
        return outcomes, True
    return outcomes, False


def in_batches(function: Callable[..., Any], tasks: Sequence[Task]) -> list[Sequence[Task]]:
    """Return the tasks one by one, or some together where the function offers ``many(items) -> outcomes``."""
    size = AT_ONCE if runs_in_batches(function, tasks) else 1
    return [tasks[i : i + size] for i in range(0, len(tasks), size)]


def runs_in_batches(function: Callable[..., Any], tasks: Sequence[Task]) -> bool:
    """Tell whether tasks can be run together, which is on threads then: the function holds no lock between them."""
    return getattr(function, "many", None) is not None and bool(tasks) and tasks[0].seed is None


def _attempts(function: Any, tasks: Sequence[Task]) -> list[Outcome]:
    if len(tasks) > 1:
        try:
            outcomes: list[Outcome] = function.many([task.item for task in tasks])
            return outcomes
        except Exception:  # one by one it is found out which
            pass
    return [attempt(function, task) for task in tasks]


# --- the worker


class Reply(NamedTuple):
    """What a worker sends back.

    Attributes
    ----------
    outcomes : bytes, list or None
        Of the first tasks of the batch (pickled, unless memory is shared); None: the worker lacks the function.
    seconds : float
        The time they took.
    trouble : str or None
        Why the function cannot be loaded.
    stopped : bool
        True if the rest of the batch was not begun.
    """

    outcomes: Any
    seconds: float
    trouble: str | None = None
    stopped: bool = False


_functions: OrderedDict[str, Callable[..., Any]] = OrderedDict()  # the last few functions, by token


def begin(parent: int) -> None:
    """Begin a worker process of this machine: signals are the parent's affair, and nobody outlives the parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a handler, not SIG_IGN, which programs that a run starts inherit
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone, however that died."""
    if os.name == "nt":  # where getppid never changes
        import multiprocessing

        while (known := multiprocessing.parent_process()) is None or known.is_alive():
            time.sleep(_LOOK)
    else:
        while os.getppid() == parent:
            time.sleep(_LOOK)
    os._exit(1)


def work(token: str, payload: bytes | None, batch: bytes, stop: str, marks: bool) -> Reply:
    """Run a batch in a worker.

    Parameters
    ----------
    token : str
        Names the function.
    payload : bytes or None
        The pickled function, if it travels with this batch.
    batch : bytes
        The pickled tasks.
    stop : str
        A file: where it exists, nothing more is begun, and what can stop halfway does.
    marks : bool
        Begin every run by making a file of its own, so that it can be told how long it takes.
    """
    import cloudpickle

    if token not in _functions:
        if payload is None:
            return Reply(None, 0.0)
        try:
            _functions[token] = cloudpickle.loads(payload)
        except Exception as error:
            return Reply(None, 0.0, f"{type(error).__name__}: {error}")
        while len(_functions) > _KEPT:
            _functions.popitem(last=False)
    _functions.move_to_end(token)
    tasks: list[Task] = cloudpickle.loads(batch)
    began = time.perf_counter()
    with working(lambda: os.path.exists(stop)):
        mark = (lambda task: Path(mark_of(stop, task)).touch()) if marks else (lambda task: None)
        outcomes, stopped = run_batch(_functions[token], tasks, mark)
    return Reply(_packed(outcomes), time.perf_counter() - began, stopped=stopped)


def work_here(function: Callable[..., Any], batch: list[Task], stop: Callable[[], bool]) -> Reply:
    """Run a batch in a thread of this process: nothing needs to travel, outcomes stay what they are."""
    began = time.perf_counter()
    with working(stop):
        outcomes, stopped = run_batch(function, batch)
    return Reply(outcomes, time.perf_counter() - began, stopped=stopped)


def mark_of(stop: str, task: Task) -> str:
    """Return the file that says that a run has begun."""
    return f"{stop}-{task.number}"


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


def loads(outcomes: Any) -> list[Outcome]:
    """Return the outcomes of a reply."""
    if isinstance(outcomes, list):
        return outcomes
    import cloudpickle

    loaded: list[Outcome] = cloudpickle.loads(outcomes)
    return loaded
