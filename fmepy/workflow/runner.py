"""One run of a calibration file: its steps in order, reused or run, and what is written.

``run.json`` holds the request, its inputs and versions, and the outcome.

Dates, durations, paths and the number of workers stand nowhere else but in the report::

    {
      "file": "/home/me/lynx.toml",  "output": "/home/me/lynx_report",
      "command": "fmepy calibrate /home/me/lynx.toml --out ...",        # makes the same again
      "title": "...", "description": "...",
      "asked": {"fit": {"method": "Marq"}, ...},                        # steps in order, with their arguments
      "require": {"converged": true},
      "seed": 1, "workers": 4,
      "versions": {"fmepy": "0.1.0", "python": "3.12.3", "numpy": ...},
      "system": "Linux-6.1-x86_64",
      "hashes": {"file": sha256, "model": ..., "data": ..., "cost": ..., "parameters": ...},
      "started": "2026-01-31T02:00:00+00:00", "ended": ..., "seconds": 12.3,
      "steps": {
        "fit": {
          "state": "done",              # done, failed, interrupted, not run
          "kept": false,                # true: from an earlier run, as its inputs are the same
          "inputs": sha256,             # of all that the result depends on
          "started": ..., "seconds": 1.2,                               # of when it ran
          "verdict": "The fit converged; ...", "warnings": ["..."],
          "files": ["estimates.csv", ...],
          "error": "..."                # where it failed; with a verdict: why its result counts as none
        }, ...
      },
      "demands": [{"demand": "converged", "wanted": true, "found": true, "met": true, "said": "..."}],
      "warnings": ["..."],              # all of them, demands that were missed first
      "ok": true, "exit": 0
    }
"""

from __future__ import annotations

import errno
import json
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fmepy.errors import ArgumentError, FmepyError, TooLargeError, warn
from fmepy.fitting.result import ModFit
from fmepy.journal.files import file_digest
from fmepy.workflow import plan
from fmepy.workflow.display import Display, collected_warnings
from fmepy.workflow.file.python_file import causes, line_of
from fmepy.workflow.file.toml import located_error
from fmepy.workflow.folder import CalibrationFolder
from fmepy.workflow.steps.base import FITS, CalibrationTask, RunOptions, Tables, best_fit
from fmepy.workflow.steps.fit import BEST_TABLES, best_tables
from fmepy.workflow.steps.registry import STEPS

_EVERY = 1000  # iterations of a chain between checkpoints
FIT_FILE = "fit.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(eq=False, repr=False)
class CalibrationRun:
    """One run of a calibration file.

    Attributes
    ----------
    names : list of str
        The steps that are run or kept, in order.
    command : str
        What does the same from a terminal.
    results : dict
        By step, what it gave, and what was taken of earlier runs.
    tables : dict of str to DataFrame
        By file.
    record : dict
        What ``run.json`` holds, see the module's text.
    warnings : list of str
        What a reader should know first.
    exit : int
        The exit code.
    reported : bool
        Whether the report is written.
    """

    task: CalibrationTask
    names: list[str]
    folder: CalibrationFolder
    seed: int
    executor: Any
    resume: bool
    command: str
    results: dict[str, Any] = field(default_factory=dict)
    tables: Tables = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    exit: int = 0
    reported: bool = False

    def __post_init__(self) -> None:
        self.case = self.task.case
        self._inputs: dict[str, str] = {}  # by step whose result is there
        self._used: set[str] = set()  # steps whose results others took
        self._kept: set[str] = set()  # steps of which an earlier run has a result of the same inputs
        self._steps: dict[str, dict[str, Any]] = {}
        self._stopped = ""  # why no further step is begun

    def do(self, display: Display) -> None:
        """Run the steps that have no current result, and write tables and report.

        Raises
        ------
        ArgumentError
            The folder is in use or cannot be written, or a step needs one that is neither in the file nor done.
        KeyboardInterrupt
            Ctrl-C; ``run.json`` says how far it came.
        """
        self._display, self._started = display, datetime.now(UTC)
        with self.folder.locked():
            self._find_reusable()
            for sentence in self.task.notes:
                display.tell(sentence)
            try:
                for name in self.names:
                    self._step(name)
                self._end()
            except KeyboardInterrupt:
                display.close()
                self.exit = 130
                self._write_record()
                raise

    def files(self) -> tuple[Path, ...]:
        """Return what there is to read."""
        names = [file for step in self._steps.values() for file in step["files"]]
        return tuple(self.folder.path / n for n in [*names, "report.html", "run.json"] if self.folder.has(n))

    # --- what is there

    def _find_reusable(self) -> None:
        """Find the steps whose results can be reused; refuse those that lack what they need."""
        known: dict[str, str] = {}
        for name in STEPS:
            record, arguments = self.folder.record(name), self.case.steps.get(name)
            if arguments is None and record is None:
                continue
            try:
                arguments = (record or {})["arguments"] if arguments is None else arguments
                sources = plan.providers(self.case, name, arguments, known.__contains__)
                inputs = self._digest(name, arguments, {k: known[k] for k in sources})
            except (ArgumentError, LookupError, TypeError):
                if name in self.names:
                    raise
                continue
            if record is not None and record.get("inputs") == inputs:
                self._kept.add(name)
            if name in self.names or name in self._kept:
                known[name] = inputs
        self._inputs = {name: known[name] for name in self._kept if name not in self.names}

    def _digest(self, name: str, arguments: Mapping[str, Any], sources: Mapping[str, str]) -> str:
        """Return the digest of all that the result of a step depends on; `sources` are the digests of other steps."""
        path_of = self.case.section.path_of
        files = "".join(_sha(path_of(file)) or "missing" for file in STEPS[name].files(arguments))
        parts = [self.task.inputs, arguments, self.seed, dict(sources), files]
        return plan.digest([plan.versions(), *parts, *plan.code_of(STEPS[name])])

    def _is_usable(self, name: str) -> bool:
        """Tell whether other steps may use the result of a step."""
        return name in self._inputs and not self._unmet(name)

    def _unmet(self, name: str) -> dict[str, str]:
        """Return why the result of a step counts as failed, by demand."""
        return plan.unmet(self.case, name, self._result(name))

    def best(self, names: list[str]) -> ModFit:
        """Return the best fit of some steps, of those whose result is usable if there is one."""
        return best_fit({name: self._result(name) for name in [n for n in names if self._is_usable(n)] or names})

    def _result(self, name: str) -> Any:
        if name not in self.results:
            self.results[name] = self.folder.result(name)
        return self.results[name]

    # --- a step

    def _step(self, name: str) -> None:
        """Reuse the result of a step or run it; report a failure, which stops the steps that need it."""
        self._steps[name] = record = {
            "state": "not run", "kept": False, "arguments": dict(self.case.steps[name]), "inputs": "",
            "started": None, "seconds": 0.0, "verdict": "", "warnings": [], "files": [],
            "error": self._stopped,
        }  # fmt: skip
        if self._stopped:
            return
        with collected_warnings(self._display.tell) as warnings:
            try:
                try:
                    sources = plan.providers(self.case, name, self.case.steps[name], self._is_usable)
                except ArgumentError:
                    needs = " and ".join(STEPS[name].needs(self.case.steps[name]))
                    record["error"] = f"{name} needs {needs}, which failed."
                    return
                self._used.update(sources)
                record["inputs"] = self._digest(name, self.case.steps[name], {k: self._inputs[k] for k in sources})
                if not self._reuse(name, record):
                    self._run(name, record, {other: self._result(other) for other in sources}, warnings)
                if name in FITS:
                    self._write_best_fit()
            except KeyboardInterrupt:
                record["state"] = "interrupted"
                raise
            except Exception as error:  # whatever a user's function does: a message, and no traceback
                self._record_failure(name, record, error)
            finally:
                if not record["kept"]:
                    record["warnings"] = list(warnings)
        self._judge(name)

    def _judge(self, name: str) -> None:
        """Mark a step as failed if it misses a demand; of two fits one that converged is enough."""
        fits = [f for f in FITS if f in self.names]
        if name in fits[:-1]:
            return
        names = [n for n in (fits if name in fits else [name]) if n in self.results and n in self._steps]
        has_converged = any("converged" not in self._unmet(n) for n in names if n in FITS)
        for n in names:
            reasons = [text for demand, text in self._unmet(n).items() if demand != "converged" or not has_converged]
            if reasons:
                self._record_failure(n, self._steps[n], ArgumentError(f"{n} counts as failed: {' And '.join(reasons)}"))

    def _reuse(self, name: str, record: dict[str, Any]) -> bool:
        """Reuse the result of an earlier run with the same inputs, if there is one."""
        stored = self.folder.record(name)
        if stored is None or stored.get("inputs") != record["inputs"]:
            return False
        try:
            result = self._result(name)
            tables = STEPS[name].tables(self.task, result)
        except FmepyError as error:
            self._display.tell(f"warning: the stored result of {name} cannot be used, the step runs again: {error}")
            self.results.pop(name, None)
            return False
        record.update({**stored, "state": "done", "kept": True})
        self.folder.write_tables({file: table for file, table in tables.items() if not self.folder.has(file)})
        self._register(name, record, tables)
        self._display.say(name, f"kept, its inputs are the same. {record['verdict']}")
        return True

    def _run(self, name: str, record: dict[str, Any], inputs: Mapping[str, Any], warnings: list[str]) -> None:
        """Run a step, write its tables, and store its result."""
        step, arguments, display = STEPS[name], self.case.steps[name], self._display
        checkpoint, is_resumed, note = self.folder.begin(name, record["inputs"], resume=self.resume)
        fits = {f: self.results[f] for f in FITS if f in inputs}
        best = best_fit(fits).minimised if fits else None
        display.begins(name, step.size(self.task, arguments) + note, best, step.unit)
        record["started"], began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
        every = self.case.run.get("checkpoint_every", _EVERY)
        options = RunOptions(self.seed, self.executor, checkpoint, every, display.progress, _warn_of)
        try:
            result = step.run(self.task, arguments, inputs, options)
        except ArgumentError as error:
            if not (is_resumed and str(error).startswith(("`checkpoint`", "The checkpoint"))):
                raise
            display.tell(f"warning: the checkpoint of {name} cannot be used, the step starts again: {error}")
            self.folder.begin(name, record["inputs"], resume=False)
            result = step.run(self.task, arguments, inputs, options)
        if getattr(result, "interrupted", False):
            raise KeyboardInterrupt
        tables = step.tables(self.task, result)
        self.folder.write_tables(tables)
        record["state"], record["seconds"] = "done", round(time.monotonic() - began, 3)
        record["verdict"], record["warnings"] = step.verdict(self.task, result), list(warnings)
        self.results[name] = result
        self._register(name, record, tables)
        self.folder.store(name, result, record)
        display.say(name, f"done in {record['seconds']:.1f} s. {record['verdict']}")

    def _register(self, name: str, record: dict[str, Any], tables: Tables) -> None:
        self._inputs[name] = record["inputs"]
        self.tables = {**self.tables, **tables}
        record["files"] = list(tables)

    def _write_best_fit(self) -> None:
        """Write the estimates of the best fit so far, unless they are written or a fit to be reused follows."""
        if any(name in self._kept and name in self.names and name not in self._steps for name in FITS):
            return
        fits = [name for name in FITS if name in self._inputs and name in self.case.steps]
        best = self.best(fits)
        tables = best_tables(self.task, best)
        files = [*tables, FIT_FILE]
        self.tables.update(tables)
        mark = plan.digest({name: self._inputs[name] for name in fits})
        if self.folder.estimates_of() != mark or not self.folder.has(*files):
            self.folder.write_tables(tables)
            try:
                best.save(self.folder.path / FIT_FILE)
                self.folder.note(FIT_FILE)
            except TooLargeError:
                files.remove(FIT_FILE)
                (self.folder.path / FIT_FILE).unlink(missing_ok=True)  # of a fit before
                self._display.tell(f"{FIT_FILE} is left out: with so many readings it is more than `fme.load` reads.")
            self.folder.set_estimates_of(mark)
        first = self._steps[next(name for name in FITS if name in self._steps)]
        first["files"] = list(dict.fromkeys([*files, *first["files"]]))

    def _clear(self) -> None:
        """Remove tables of earlier runs that are not results of the current file."""
        steps = [name for name in self._inputs if name in self.case.steps or name in self._used]
        records = [self._steps.get(name) or self.folder.record(name) or {} for name in steps]
        current = {file for record in records for file in record.get("files", ())}
        fits = {name: self._inputs[name] for name in FITS if name in steps}
        if fits and self.folder.estimates_of() == plan.digest(fits):
            current |= {*BEST_TABLES, FIT_FILE}
        if removed := self.folder.remove_stale(current):
            self._display.tell(f"Removed, as they are not results of the current file: {', '.join(removed)}.")

    def _record_failure(self, name: str, record: dict[str, Any], error: Exception) -> None:
        """Record and report why a step failed."""
        self._display.close()
        record["state"] = "failed"
        if full := next((e for e in causes(error) if isinstance(e, OSError) and e.errno in _FULL), None):
            record["error"] = (
                f"{name}: the disk is full ({full.strerror}, {self.folder.path}). What was done before is kept: make "
                f"room, then go on with\n  {self.command} --resume"
            )
            self._stopped = "not started, as the disk is full."
            self._display.tell(record["error"])
            return
        text = _error_text(error, self.case.file.parent)
        if not text.startswith(f"{self.case.file}:"):
            text = str(located_error(self.case.section, (name,), ArgumentError(text)))
        record["error"] = text
        self._display.tell(f"{name} failed. {text}")

    # --- the end

    def _end(self) -> None:
        """Judge the demands; write report and record."""
        self._display.close()
        demands = plan.judge_demands(self.case, self.results)
        missed = [d for d in demands if d["met"] is False]
        for d in missed:
            self._display.tell(str(self.case.section.error(("require", d["demand"]), d["said"])))
        failed = {name: step["error"] for name, step in self._steps.items() if step["state"] != "done"}
        self.warnings = [f"Demanded and missed: {d['said']}" for d in missed]
        for name, why in failed.items():
            self.warnings.append(why if name in self.results else f"The step {name} has no result: {why}")
        for name, step in self._steps.items():
            self.warnings += [f"{name}: {w}" for w in step["warnings"] if w not in (step["error"] or "")]
        self.exit = 1 if missed or failed else 0
        if not self._stopped:
            with suppress(OSError):  # of a file that another program holds
                self._clear()
        self._write_record(demands)
        try:
            from fmepy.workflow.report.page import render

            shown = {*self.names, *FITS} & {*self.case.steps}  # of fits the best counts, requested now or not
            results = {name: self.results[name] for name in STEPS if name in shown and name in self.results}
            html = render(self.task, results, self.record, self.warnings, self.tables)
            self.folder.write_text("report.html", html)
            self.reported = True
        except OSError as error:
            self.exit = 1
            self._display.tell(f"The report cannot be written: {error.strerror or error}.")

    def _write_record(self, demands: list[dict[str, Any]] | None = None) -> None:
        """Write run.json; report a full disk, also by the exit code."""
        case, ended = self.case, datetime.now(UTC)
        record = {
            "file": case.source.resolve(), "output": self.folder.path.resolve(), "command": self.command,
            "title": case.title, "description": case.description,
            "asked": {name: dict(case.steps[name]) for name in self.names}, "require": case.require,
            "seed": self.seed, "workers": self.executor if isinstance(self.executor, int) else 1,
            "versions": plan.versions(), "system": platform.platform(),
            "hashes": {"file": _sha(case.source), **self.task.inputs},
            "started": self._started.isoformat(timespec="seconds"), "ended": ended.isoformat(timespec="seconds"),
            "seconds": round((ended - self._started).total_seconds(), 3),
            "steps": self._steps, "demands": demands or [], "warnings": self.warnings,
            "ok": self.exit == 0, "exit": self.exit,
        }  # fmt: skip
        # plain values: texts for paths, and for numbers that are not finite
        self.record = json.loads(json.dumps(record, default=str), parse_constant=lambda c: str(float(c)))
        try:
            self.folder.write_json(self.folder.path / "run.json", self.record)
        except OSError as error:
            self.exit = self.exit or 1
            self._display.tell(f"{self.folder.path / 'run.json'} cannot be written: {error.strerror or error}.")


def _warn_of(sentence: Any) -> None:
    """Warn of what a step reports, if anything; the report shows the warning, too."""
    if sentence:
        warn(sentence)


def _error_text(error: BaseException, folder: Path) -> str:
    """Return the message of an error, with the name of a foreign one, and with the line of the user's file."""
    text, where = str(error), line_of(error, folder)
    if not isinstance(error, FmepyError):
        text = ": ".join(part for part in (type(error).__name__, " ".join(text.split())) if part)
    return f"{where}: {text}" if where and where not in text else text


def _sha(file: Path) -> str:
    try:
        return file_digest(file)
    except OSError:
        return ""
