"""Run a calibration file step by step: `calibrate`, and what ``fmepy calibrate`` calls."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fmepy.checks import as_path, whole_number
from fmepy.workflow import plan
from fmepy.workflow.display import Display
from fmepy.workflow.file.case import read_case
from fmepy.workflow.file.prepared import read_task
from fmepy.workflow.folder import CalibrationFolder
from fmepy.workflow.report.words import environment
from fmepy.workflow.runner import CalibrationRun
from fmepy.workflow.steps.base import FITS, CalibrationTask
from fmepy.workflow.steps.registry import STEPS
from fmepy.workflow.steps.scale import natural

SEED = 1
"""Where neither the file nor the command gives one, so that the same file gives the same bytes."""


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Results of a calibration file.

    Attributes
    ----------
    ok : bool
        Whether all steps came to their end and all demands are met.
    files : tuple of Path
        What there is to read: tables, ``report.html``, ``run.json``.
    results : dict of str to result
        By step that was run. Each is an attribute, too, None where the step was not run: ``screen`` a `Screened`,
        ``fit`` and ``multistart`` a `ModFit` (the better one as ``fit``), ``profile`` a `Profile`, ``sample`` a
        `ModMCMC`, ``ranges`` a `Bands`, ``scenarios`` a `WhatIf`, ``filter`` a `Filtering`. Fits, profiles and chains
        are on the scale that the file gives; the tables are not.
    record : dict
        What ``run.json`` holds.
    warnings : tuple of str
        What a reader should know first: demands that were missed, steps that failed, warnings.
    """

    ok: bool
    files: tuple[Path, ...]
    record: dict[str, Any]
    warnings: tuple[str, ...]
    results: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name in STEPS:
            return self.results.get(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *STEPS})

    @property
    def report(self) -> Path:
        """The report."""
        return Path(self.record["output"]) / "report.html"

    def __repr__(self) -> str:
        lines = [f"Calibration of {self.record['file']}: {'done' if self.ok else 'failed'}"]
        lines += [f"  {name}: {step['verdict'] or step['state']}" for name, step in self.record["steps"].items()]
        lines += [f"  {sentence}" for sentence in self.warnings]
        return "\n".join([*lines, f"  {self.report}"])


def calibrate(
    file: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str] | None = None,
    steps: Iterable[str] | str | None = None,
    seed: int | None = None,
    executor: Any = None,
    resume: bool = False,
    python: bool = True,
    progress: Any = False,
) -> Calibration:
    r"""Run a calibration file: do its steps, write tables and a report.

    Parameters
    ----------
    file : path
        A TOML file, see the page "A calibration in one file" (docs/calibrate.md).
    output : path, optional
        The folder to write to, made if need be; the default is that of the file, or ``<stem>_report`` beside it.
    steps : names, optional
        These of the file's steps, and what they need; a list, or a text with commas. The default is all.
    seed : int, optional
        In place of the file's; without either 1.
    executor : int, optional
        Worker processes, in place of the file's. The numbers do not depend on it.
    resume : bool
        True: a step that was killed goes on from its last checkpoint, to the same result. A step that is done, and
        whose inputs are the same, is reused in any case.
    python : bool
        False refuses files that name Python code.
    progress : bool or callable
        True: a bar, or lines where stderr is no terminal. A callable gets ``(done, total)`` of each step.

    Returns
    -------
    Calibration
        ``ok`` false where a step failed or a demand was missed.

    Raises
    ------
    FmepyError
        Nothing was run: a mistake in the file, the data or the arguments; a folder that is in use or cannot be written.
    KeyboardInterrupt
        Ctrl-C; what is done is kept, and goes on with ``resume=True``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "line.csv").write_text("time,y\n0,1.1\n1,2.9\n2,5.2\n3,6.8\n")
    >>> _ = (folder / "line.toml").write_text('''
    ... data = { file = "line.csv" }
    ... fit = {}
    ... [model]
    ... equations = "d(y)/dt = b"
    ... state = { y = "a" }
    ... times = [0, 1, 2, 3]
    ... [parameters]
    ... a = { start = 0.0 }
    ... b = { start = 1.0 }
    ... ''')
    >>> done = calibrate(folder / "line.toml")
    >>> done.ok, done.fit.par.round(2).to_dict()
    (True, {'a': 1.09, 'b': 1.94})
    """
    runner = prepared(
        as_path(file, "file"), output=output, steps=steps, seed=seed, executor=executor, resume=resume, python=python
    )
    runner.do(Display(progress, aloud=progress is True))
    return calibration(runner)


def calibration(runner: CalibrationRun) -> Calibration:
    """Return the results of a run that has ended."""
    results = {name: runner.results[name] for name in runner.names if name in runner.results}
    if "fit" in results:
        results["fit"] = runner.best([name for name in FITS if name in runner.results])
    return Calibration(runner.exit == 0, runner.files(), runner.record, tuple(runner.warnings), results)


def prepared(
    file: Path, *, output: Any = None, steps: Any = None, seed: Any = None, executor: Any = None, resume: bool = False,
    python: bool = True, problem: Path | None = None,
) -> CalibrationRun:  # fmt: skip
    """Read and check a calibration file; nothing is run, and nothing is written.

    `problem` is what the file was made of, if it was: messages and the report name it.

    Raises
    ------
    FmepyError
        A mistake in the file, the data or the arguments.
    """
    case = replace(read_case(file), problem=problem)
    if isinstance(steps, str):
        steps = steps.split(",")
    names = plan.selected_steps(case, steps)
    plan.check_demands(case)
    task = read_task(case, python=python)
    for name in names:
        STEPS[name].check(task, case.steps[name])
    if output is None:
        folder = case.run.get("output")
        output = file.parent / (f"{file.stem}_report" if folder is None else Path(folder).expanduser())
    executor = case.run.get("executor") if executor is None else executor
    return CalibrationRun(
        task=task,
        names=names,
        folder=CalibrationFolder(Path(output)),
        seed=whole_number(case.run.get("seed", SEED) if seed is None else seed, "seed", 0),
        executor=whole_number(executor, "executor", 1) if isinstance(executor, int) else executor,
        resume=bool(resume),
        command=_command(case.source, output, steps, seed, executor, python),
    )


def _command(file: Path, output: Any, steps: Any, seed: Any, executor: Any, python: bool) -> str:
    """Return the command that repeats the run from any folder."""
    words = ["fmepy", "calibrate", str(file.resolve()), "--out", str(Path(output).resolve())]
    words += [] if steps is None else ["--steps", ",".join(str(s).strip() for s in steps)]
    words += [] if seed is None else ["--seed", str(seed)]
    words += ["--workers", str(executor)] if isinstance(executor, int) else []
    return shlex.join(words + ([] if python else ["--no-python"]))


# --- the lines of `fmepy check`


def preview(task: CalibrationTask, steps: Sequence[str] | None = None) -> list[str]:
    """Return the lines that ``fmepy check`` prints.

    Parameters
    ----------
    task : CalibrationTask
    steps : sequence of str, optional
        Those of the file's that are meant; default all.
    """
    case = task.case
    start, lower, upper = (natural(task, values) for values in (task.start, task.lower, task.upper))
    text = environment().get_template("preview.txt").render(
        task=task, case=case, start=start, lower=lower, upper=upper,
        steps={name: STEPS[name].size(task, case.steps[name]) for name in (case.steps if steps is None else steps)},
    )  # fmt: skip
    return text.splitlines()
