"""``fmepy check``: read a calibration file and all that it names, report, and run nothing."""

from __future__ import annotations

import argparse
import sys

NAME = "check"
HELP = "read a calibration file, say what it asks for, run nothing"
ABOUT = """Read a calibration file and all that it names (data, modules, Python), and print what it asks for: the rows
and columns of the data, model, cost, parameters, and the steps with how much there is to run.

Nothing is run and nothing is written. A Python file that the model names is imported; nothing in it is called."""
MORE = """what was found in the data (separator, encoding, decimal comma, replicates) is told on stderr.
exit code 2: a mistake, which is told with its file and line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE.toml", help="the calibration file")
    parser.add_argument(
        "--no-python", action="store_true", help="refuse a file that names Python, before it is imported"
    )


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from fmepy.workflow import dependencies
    from fmepy.workflow.file.parsed import read_case
    from fmepy.workflow.file.prepared import read_task
    from fmepy.workflow.output import show_diagnostics
    from fmepy.workflow.preview import described
    from fmepy.workflow.requirements import check_demands
    from fmepy.workflow.steps.registry import STEPS

    with show_diagnostics():
        case = read_case(given.file)
        check_demands(case)
        for name in case.steps:
            dependencies.providers(case, name, case.steps[name], lambda step: step in case.steps)
        task = read_task(case, python=not given.no_python)
        for name in case.steps:
            STEPS[name].check(task, case.steps[name])
    for line in task.told:
        print(line, file=sys.stderr)
    print("\n".join(described(task)))
    return 0
