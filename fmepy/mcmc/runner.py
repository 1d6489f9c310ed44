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
    checkpoint_error : str
        Why the checkpoint is incomplete; "" if it is complete.
    """

    rows: dict[str, Any]
    counts: Counts
    iterations: int
    failures: int
    retries: int
    last_failure: str
    interrupted: bool
    checkpoint_error: str = ""


class Chains(NamedTuple):
    """Chains with draws, by number; messages; whether Ctrl-C ended them."""

    runs: list[tuple[int, ChainRun]]
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

    def unwritten(self) -> dict[str, Any]:
        """Return the rows that are not yet in a part."""
        return {name: array[self.written : self.n] for name, array in self.arrays.items()}

    def table(self) -> dict[str, Any]:
        """Return all rows, and the iterations they belong to."""
        out: dict[str, Any] = {name: array[: self.n] for name, array in self.arrays.items()}
        out["saved"] = self.plan.burninlength + self.plan.interval * np.arange(1, self.n + 1)
        return out


@dataclass(frozen=True, slots=True, eq=False)
class ChainTask:
    """The task for workers: a call runs one chain, from its start or from the end of its checkpoint.

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

    def __call__(self, spec: ChainSpec, report: Callable[[int], object] | None = None) -> ChainRun:
        """Return one chain; `report` is called with the iterations done, about 200 times.

        Raises
        ------
        Stopped
            Ctrl-C; it carries the chain so far, with `interrupted` true.
        """
        kernel, target, plan, folder, every = self.kernel, self.target, self.plan, self.folder, self.every
        rng = np.random.Generator(np.random.PCG64(spec.seed))
        rows = _Rows(kernel, target, plan)
        failures0, retries0 = target.failures, target.retries
        parts = folder.chain(spec.number)[0] if folder is not None else []
        for part in parts:
            rows.load(part)
        number, last = len(parts), parts[-1] if parts else None
        del parts
        if last is None:
            state, done, before = kernel.start(spec.starts, spec.dispersed, rng), 0, (0, 0, "")
        else:
            state, done = _restored(kernel, last, rows), last.iteration
            before = last.failures, last.retries, last.last_failure
            rng.bit_generator.state = last.rng
        saved, why = done, ""  # last iteration in a part; why later ones could not be written

        def tally() -> dict[str, Any]:
            """Return the runs that failed, and that a second engine finished, those before a resumption included."""
            failures, retries = target.failures - failures0, target.retries - retries0
            reason = target.objective.last_failure if failures else before[2]
            return {"failures": before[0] + failures, "retries": before[1] + retries, "last_failure": reason}

        def write() -> None:
            """Write a part; if that fails the chain continues, and the next part includes these rows."""
            nonlocal number, saved, why
            if folder is None:
                return
            generator = _plain_values(rng.bit_generator.state)
            part = ChainPart(saved, done, rows.unwritten(), kernel.arrays(state), generator, **tally())
            try:
                folder.append(spec.number, number, part)
            except OSError as error:
                if not why:
                    logger.warning(_UNSAVED, spec.number, saved, folder.path, error.strerror or error)
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
        error = f"The checkpoint of chain {spec.number} ends at iteration {saved}: {why}." if why else ""
        counts = kernel.counts(state)
        run = ChainRun(rows.table(), counts, done, interrupted=interrupted, checkpoint_error=error, **tally())
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


def recover_chains(specs: list[ChainSpec], folder: ChainJournal) -> tuple[list[int], list[str]]:
    """Set unusable parts aside; return the iterations in the checkpoint of every chain, and messages."""
    done, notes = [], []
    for spec in specs:
        parts, why = folder.chain(spec.number)
        done.append(parts[-1].iteration if parts else 0)
        if why:
            notes.append(folder.set_aside(spec.number, len(parts), why))
            logger.warning(notes[-1])
    return done, notes


def _plain_values(state: Any) -> Any:
    """Return the state of a bit generator as plain values for JSON."""
    if isinstance(state, dict):
        return {k: _plain_values(v) for k, v in state.items()}
    if isinstance(state, np.ndarray):
        return state.tolist()
    return int(state) if isinstance(state, np.integer) else state


def run_chains(task: ChainTask, specs: list[ChainSpec], executor: Any, progress: Any) -> Chains:
    """Return the chains.

    Raises
    ------
    ArgumentError
        An argument is invalid for a chain.
    KeyboardInterrupt
        Ctrl-C before any row was saved.
    """
    if executor is None or (isinstance(executor, int) and 1 in (executor, len(specs)) and executor is not True):
        ran = _in_turn(task, specs, progress)
    else:
        ran = _spread(task, specs, executor, progress)
    runs = [(number, run) for number, run in ran.runs if len(run.rows["saved"])]
    if not runs:
        raise KeyboardInterrupt("before any row was saved")
    errors = [run.checkpoint_error for _, run in runs if run.checkpoint_error]
    return ran._replace(runs=runs, notes=[*ran.notes, *errors])


def _in_turn(task: ChainTask, specs: list[ChainSpec], progress: Any) -> Chains:
    runs: list[tuple[int, ChainRun]] = []
    total = task.plan.niter * len(specs)
    with Progress(progress, total, "iteration") as report:
        for k, spec in enumerate(specs):
            try:
                runs.append((spec.number, task(spec, report.after(k * task.plan.niter))))
            except Stopped as stop:
                runs.append((spec.number, stop.partial))
                return Chains(runs, [_interruption(task, spec.number, stop.partial)], interrupted=True)
            except KeyboardInterrupt:  # before the chain began
                if not outermost():
                    raise
                return Chains(runs, [f"Interrupted before chain {spec.number}."], interrupted=True)
    return Chains(runs, [])


def _spread(task: ChainTask, specs: list[ChainSpec], executor: Any, progress: Any) -> Chains:
    niter = task.plan.niter
    report = (lambda done, total: progress(done * niter, total * niter)) if callable(progress) else progress
    outcome = spread(
        task, specs, executor=executor, progress=report, force=_is_worth_processes(task, specs), patience=_PATIENCE
    )
    notes = []
    failed: Any = outcome.failures.itertuples()
    for failure in failed:
        if failure.error in ("ArgumentError", "ParameterError", "DataError", "ModelError"):
            raise ArgumentError(str(failure.message))
        notes.append(f"Chain {specs[failure.run].number} is missing: {failure.error}: {failure.message}")
    runs = [(spec.number, run) for spec, run in zip(specs, outcome.results, strict=True) if run is not None]
    if not runs and not outcome.interrupted:
        raise FmepyError(" ".join(notes))
    notes += [_interruption(task, number, run) for number, run in runs if run.interrupted]
    return Chains(runs, notes, outcome.interrupted)


def _interruption(task: ChainTask, number: int, run: ChainRun) -> str:
    return f"Interrupted in chain {number} at iteration {run.iterations} of {task.plan.niter}."


def _is_worth_processes(task: ChainTask, specs: list[ChainSpec]) -> bool:
    """Tell whether a chain takes long enough for processes, judged by one evaluation near the start."""
    theta = specs[0].starts[0] * (1 + 1e-9)
    began = time.perf_counter()
    task.target.evaluate(theta)
    spent = time.perf_counter() - began
    return spent * task.plan.niter * task.kernel.n_member > _WORTH_PROCESSES
