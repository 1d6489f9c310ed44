"""Run the steps of a calibration file; write tables and a report.

Run the steps that a calibration file describes: screen, fit, multistart, profile, sample, ranges, scenarios, filter.
What is done is kept, and not done again unless what it depends on has changed.

Progress, warnings and demands that were missed are told on stderr; stdout ends with the path of the report.

writes to the folder (default: that of the file, or NAME_report beside it):
  report.html                      everything, in one file that opens anywhere
  estimates.csv residuals.csv fit.json                 of the best fit
  screen.csv collin.csv starts.csv optima.csv profile.csv intervals.csv
  sample.csv sample_summary.csv ranges.csv scenarios.csv filter.csv
  run.json                         what was asked, with what, and what came of it

exit codes: 0 done, all demands met; 1 a step failed (so does a fit that did not converge, and a step most of whose
runs failed, unless [require] allows it), a demand of [require] was missed, or the disk is full;
2 nothing was run: a mistake in the file, the data or the arguments, a folder that is in use or cannot be written;
130 Ctrl-C, 143 SIGTERM (what is done is kept; --resume goes on).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

NAME = "calibrate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE.toml", help="the calibration file, or a PEtab problem (.yaml)")
    parser.add_argument("--out", metavar="DIR", help="the folder to write to, made if need be")
    parser.add_argument("--steps", metavar="A,B", help="these of the file's steps, and what they need")
    parser.add_argument("--workers", metavar="N", type=int, help="worker processes; the numbers do not depend on it")
    parser.add_argument("--seed", metavar="S", type=int, help="of the random numbers, in place of the file's")
    parser.add_argument("--resume", action="store_true", help="go on with a step that was killed from its checkpoint")
    parser.add_argument("--no-python", action="store_true", help="refuse a file that names Python code")


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from fmepy.exchange.case import as_case

    with as_case(Path(given.file)) as file:
        return _calibrated(given, file)


def _calibrated(given: argparse.Namespace, file: Path) -> int:
    """Do what a calibration file asks for."""
    from fmepy.checks import whole_number
    from fmepy.workflow.calibration import prepared
    from fmepy.workflow.display import Display, collected_warnings
    from fmepy.workflow.preview import described

    for word, least, most in (("workers", 1, 1024), ("seed", 0, None)):
        if (number := getattr(given, word)) is not None:
            whole_number(number, f"--{word}", least, most)
    output = given.out or _beside(given.file, file)
    with collected_warnings():
        runner = prepared(
            file, output=output, steps=given.steps, seed=given.seed, executor=given.workers,
            resume=given.resume, python=not given.no_python,
        )  # fmt: skip
    print("\n".join(described(runner.task, runner.names)), flush=True)
    try:
        runner.do(Display(True, aloud=True))
    except KeyboardInterrupt:
        print(f"Interrupted. What is done is kept; go on with\n  {runner.command} --resume", file=sys.stderr)
        return 130
    if runner.reported:
        print(runner.folder.path / "report.html", flush=True)
    return runner.exit


def _beside(given: str, file: Path) -> Path | None:
    """Return the folder for what comes of a problem that is no calibration file: beside it."""
    return None if Path(given) == file else Path(given).parent / f"{Path(given).stem}_report"
