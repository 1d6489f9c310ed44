"""The runner of one chain: iterations, thinning, burn-in, progress, checkpoints; and of several, through `parallel`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from fmepy.errors import ArgumentError, FmepyError
from fmepy.mcmc.checkpoint import ChainJournal, ChainPart
from fmepy.mcmc.kernels.base import Counts, Kernel, Record
from fmepy.mcmc.target import Target
from fmepy.parallel import spread
from fmepy.parallel.interruption import Stopped, check_stop, outermost
from fmepy.parallel.progress import Progress
from fmepy.types import Matrix

logger = logging.getLogger(__name__)

_FIRST_ROWS = 4096
_UNSAVED = "Chain %d: nothing can be written after iteration %d to %s (%s). It continues and tries again at every part."
_PATIENCE = 60.0  # seconds after Ctrl-C for chains in workers to finish an iteration
_WORTH_PROCESSES = 2.0  # seconds of work per chain below which several chains run in turn


@dataclass(frozen=True, slots=True)
class Plan:
    """The iterations that are run and saved.

    Attributes
    ----------
    niter, burninlength : int
        All iterations, and those of burn-in, which are not saved.
    interval : int
        Iterations burninlength + interval, burninlength + 2 interval, ... are saved.
    """

    niter: int
    burninlength: int
    interval: int

    @classmethod
    def of(cls, niter: int, burninlength: int, outputlength: int) -> Self:
        """Return the plan of a run of at most `outputlength` rows; iterations after the last row are dropped.

        Examples
        --------
        >>> plan = Plan.of(1003, 100, 300)
        >>> plan.niter, plan.interval, plan.rows
        (1000, 4, 225)
        """
        length = min(outputlength, niter - burninlength)
        interval = -(-(niter - burninlength) // length)
        return cls(niter - (niter - burninlength) % interval, burninlength, interval)

    def longer(self, niter: int) -> Plan:
        """Return the same plan with other `niter`; the interval stays."""
        return Plan(niter - (niter - self.burninlength) % self.interval, self.burninlength, self.interval)

    @property
    def rows(self) -> int:
        """Rows saved of every member."""
        return self.saved(0, self.niter)

    def saved(self, begin: int, end: int) -> int:
        """Return how many rows are saved by iterations begin + 1 to end."""
        return max(0, end - self.burninlength) // self.interval - max(0, begin - self.burninlength) // self.interval


@dataclass(frozen=True, slots=True, eq=False)
class ChainSpec:
    """One chain to be run: its number, its seed, its starts (one row, or one per member)."""

    number: int
    seed: np.random.SeedSequence
    starts: Matrix
    dispersed: bool


@dataclass(frozen=True, slots=True, eq=False)
class ChainRun:
    """The result of one chain; rows by member.

    Attributes
    ----------
    pars : ndarray, shape (n_row, n_member, n_par)
    SS, prior, log_posterior : ndarray, shape (n_row, n_member)
    sig : ndarray, shape (n_row, n_member, n_variance)
    saved : ndarray of int, shape (n_row,)
        The iterations that were saved.
    counts : Counts
    iterations, failures, retries : int
    last_failure : str
    interrupted : bool
    trouble : str
        Why the checkpoint is incomplete, if it is.
    """

    rows: dict[str, Any]
    counts: Counts
    iterations: int
    failures: int
    retries: int
    last_failure: str
    interrupted: bool
    trouble: str = ""


class Chains(NamedTuple):
    """The chains that have draws, by number; the messages; whether Ctrl-C ended them."""

    found: list[tuple[int, ChainRun]]
    notes: list[str]
    interrupted: bool = False


class _Rows:
    """The rows saved so far, in arrays that grow up to what the plan needs."""

    def __init__(self, kernel: Kernel, target: Target, plan: Plan) -> None:
        n_member, n_par = kernel.n_member, target.n_par
        n_variance = 0 if target.variances is None else len(target.precision0)
        self.plan, self.n, self.size = plan, 0, min(plan.rows, _FIRST_ROWS)
        shapes = {"pars": (n_par,), "SS": (), "prior": (), "log_posterior": (), "sig": (n_variance,)}
        self.arrays = {name: np.empty((self.size, n_member, *shape)) for name, shape in shapes.items()}
        self.written = 0

    def add(self, record: Record) -> None:
        if self.n == self.size:
            self._grow(self.n + 1)
        for name, array in self.arrays.items():
            if (value := getattr(record, name)) is not None:
                array[self.n] = value
        self.n += 1

    def _grow(self, least: int) -> None:
        self.size = max(least, min(2 * self.size, self.plan.rows))
        for name, array in self.arrays.items():
            larger = np.empty((self.size, *array.shape[1:]))
            larger[: self.n] = array[: self.n]
            self.arrays[name] = larger

    def load(self, part: ChainPart) -> None:
        """Append the rows of a part."""
        n = len(part.rows["SS"])
        if self.n + n > self.size:
            self._grow(self.n + n)
        for name, array in self.arrays.items():
            array[self.n : self.n + n] = part.rows[name]
        self.n += n
        self.written = self.n

    def new(self) -> dict[str, Any]:
        """Return the rows that are in no part yet."""
        return {name: array[self.written : self.n] for name, array in self.arrays.items()}

    def all(self) -> dict[str, Any]:
        """Return all rows, and the iterations they belong to."""
        out: dict[str, Any] = {name: array[: self.n] for name, array in self.arrays.items()}
        out["saved"] = self.plan.burninlength + self.plan.interval * np.arange(1, self.n + 1)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class ChainTask:
    """The task that is sent to workers: a call runs one chain, from its start or from the end of its checkpoint.

    Attributes
    ----------
    kernel, target, plan
    folder : ChainJournal, optional
        The folder of the parts.
    every : int
        Iterations between parts.
    """

    kernel: Kernel
    target: Target
    plan: Plan
    folder: ChainJournal | None
    every: int

    def __call__(self, job: ChainSpec, report: Callable[[int], object] | None = None) -> ChainRun:
        """Return one chain; `report` is called with the iterations done, about 200 times.

        Raises
        ------
        Stopped
            Ctrl-C; it carries the chain so far, with `interrupted` true.
        """
        kernel, target, plan, folder, every = self.kernel, self.target, self.plan, self.folder, self.every
        rng = np.random.Generator(np.random.PCG64(job.seed))
        rows = _Rows(kernel, target, plan)
        failed_before, failed_at_start = 0, target.failures
        retried_before, retried_at_start = 0, target.retries
        last_failure = ""
        parts = folder.chain(job.number)[0] if folder is not None else []
        if parts:
            for part in parts:
                rows.load(part)
            last = parts[-1]
            state = _restored(kernel, last, rows)
            rng.bit_generator.state = last.rng
            done, failed_before, last_failure = last.iteration, last.failures, last.last_failure
            retried_before = last.retries
        else:
            state, done = kernel.start(job.starts, job.dispersed, rng), 0
        number = len(parts)
        del parts
        saved, why = done, ""  # last iteration in a part; why later ones could not be written

        def failures() -> int:
            return failed_before + target.failures - failed_at_start

        def retries() -> int:
            return retried_before + target.retries - retried_at_start

        def reason() -> str:
            return target.objective.last_failure if target.failures > failed_at_start else last_failure

        def write() -> None:
            """Write a part; if that fails the chain continues, and the next part includes these rows."""
            nonlocal number, saved, why
            if folder is None:
                return
            generator = _plain(rng.bit_generator.state)
            part = ChainPart(saved, done, rows.new(), kernel.arrays(state), generator, failures(), reason(), retries())
            try:
                folder.append(job.number, number, part)
            except OSError as error:
                if not why:
                    logger.warning(_UNSAVED, job.number, saved, folder.path, error.strerror or error)
                why = str(error.strerror or error)
                return
            number, saved, why, rows.written = number + 1, done, "", rows.n

        step, record, burnin, interval = kernel.step, kernel.record, plan.burninlength, plan.interval
        pause = max(1, plan.niter // 200)
        next_report = done + pause
        next_part = done + every if folder is not None and every else -1
        interrupted = False
        try:
            if number == 0:
                write()
            while done < plan.niter:
                check_stop()
                state, _ = step(state, rng)
                done += 1
                if done > burnin and (done - burnin) % interval == 0:
                    rows.add(record(state))
                if done == next_part:
                    write()
                    next_part = done + every
                if done == next_report:
                    next_report = done + pause
                    if report is not None:
                        report(done)
            if done != saved:
                write()
        except KeyboardInterrupt:
            if not outermost():
                raise
            interrupted = True
        if report is not None:
            report(done)
        trouble = f"The checkpoint of chain {job.number} ends at iteration {saved}: {why}." if why else ""
        run = ChainRun(rows.all(), kernel.counts(state), done, failures(), retries(), reason(), interrupted, trouble)
        if interrupted:
            raise Stopped(run)
        return run


def _restored(kernel: Kernel, part: ChainPart, rows: _Rows) -> Any:
    """Return the state stored in a part."""
    try:
        state = kernel.restore(part.state)
        if np.size(kernel.record(state).pars) != np.prod(rows.arrays["pars"].shape[1:]):
            raise ValueError("it has another number of parameters")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"`checkpoint`: the state of the chain at iteration {part.iteration} cannot be used: {error}. Remove the "
            "file of this part, or start a new chain in another folder."
        ) from error
    return state


def settle(jobs: list[ChainSpec], folder: ChainJournal) -> tuple[list[int], list[str]]:
    """Return how many iterations the checkpoint holds of every chain, and a message about discarded parts."""
    done, notes = [], []
    for job in jobs:
        parts, why = folder.chain(job.number)
        done.append(parts[-1].iteration if parts else 0)
        if why:
            notes.append(folder.set_aside(job.number, len(parts), why))
            logger.warning(notes[-1])
    return done, notes


def _plain(state: Any) -> Any:
    """Return the state of a bit generator as plain values for JSON."""
    if isinstance(state, dict):
        return {k: _plain(v) for k, v in state.items()}
    if isinstance(state, np.ndarray):
        return state.tolist()
    return int(state) if isinstance(state, np.integer) else state


def run_chains(work: ChainTask, jobs: list[ChainSpec], executor: Any, progress: Any) -> Chains:
    """Return the chains.

    Raises
    ------
    ArgumentError
        A chain refused an argument of the user.
    KeyboardInterrupt
        Ctrl-C before any row was saved.
    """
    if executor is None or (isinstance(executor, int) and 1 in (executor, len(jobs)) and executor is not True):
        ran = _in_turn(work, jobs, progress)
    else:
        ran = _spread(work, jobs, executor, progress)
    found = [(number, run) for number, run in ran.found if len(run.rows["saved"])]
    if not found:
        raise KeyboardInterrupt("before any row was saved")
    return ran._replace(found=found, notes=[*ran.notes, *(run.trouble for _, run in found if run.trouble)])


def _in_turn(work: ChainTask, jobs: list[ChainSpec], progress: Any) -> Chains:
    found: list[tuple[int, ChainRun]] = []
    total = work.plan.niter * len(jobs)
    with Progress(progress, total, "iteration") as report:
        for k, job in enumerate(jobs):
            try:
                found.append((job.number, work(job, report.after(k * work.plan.niter))))
            except Stopped as stop:
                found.append((job.number, stop.partial))
                return Chains(found, [_interruption(work, job.number, stop.partial)], interrupted=True)
            except KeyboardInterrupt:  # before the chain began
                if not outermost():
                    raise
                return Chains(found, [f"Interrupted before chain {job.number}."], interrupted=True)
    return Chains(found, [])


def _spread(work: ChainTask, jobs: list[ChainSpec], executor: Any, progress: Any) -> Chains:
    niter = work.plan.niter
    report = (lambda done, total: progress(done * niter, total * niter)) if callable(progress) else progress
    runs = spread(work, jobs, executor=executor, progress=report, force=_takes_long(work, jobs), patience=_PATIENCE)
    notes = []
    failed: Any = runs.failures.itertuples()
    for failure in failed:
        if failure.error in ("ArgumentError", "ParameterError", "DataError", "ModelError"):
            raise ArgumentError(str(failure.message))
        notes.append(f"Chain {jobs[failure.run].number} is missing: {failure.error}: {failure.message}")
    found = [(job.number, run) for job, run in zip(jobs, runs.results, strict=True) if run is not None]
    if not found and not runs.interrupted:
        raise FmepyError(" ".join(notes))
    notes += [_interruption(work, number, run) for number, run in found if run.interrupted]
    return Chains(found, notes, runs.interrupted)


def _interruption(work: ChainTask, number: int, run: ChainRun) -> str:
    return f"Interrupted in chain {number} at iteration {run.iterations} of {work.plan.niter}."


def _takes_long(work: ChainTask, jobs: list[ChainSpec]) -> bool:
    """Tell whether a chain takes long enough for processes, judged by one evaluation near the start."""
    theta = jobs[0].starts[0] * (1 + 1e-9)
    began = time.perf_counter()
    work.target.evaluate(theta)
    spent = time.perf_counter() - began
    return spent * work.plan.niter * work.kernel.n_member > _WORTH_PROCESSES
