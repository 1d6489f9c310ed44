"""Read a calibration file, say what it asks for, run nothing.

Read a calibration file and all that it names (data, modules, Python), and print what it asks for: the rows and columns
of the data, model, cost, parameters, and the steps with how much there is to run.

Nothing is run and nothing is written. A Python file that the model names is imported; nothing in it is called. What was
found in the data (separator, encoding, decimal comma, replicates) is told on stderr.

exit codes: 0 it could be run; 2 a mistake, which is told with its file and line.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

NAME = "check"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE.toml", help="the calibration file, or a PEtab problem (.yaml)")
    parser.add_argument(
        "--no-python", action="store_true", help="refuse a file that names Python, before it is imported"
    )


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from fmepy.exchange.case import as_case
    from fmepy.workflow import dependencies
    from fmepy.workflow.calibration import prepared
    from fmepy.workflow.display import collected_warnings
    from fmepy.workflow.preview import described

    with as_case(Path(given.file)) as file, collected_warnings():
        task = prepared(file, python=not given.no_python).task
        for name, arguments in task.case.steps.items():
            dependencies.providers(task.case, name, arguments, task.case.steps.__contains__)
    for line in task.notes:
        print(line, file=sys.stderr)
    print("\n".join(described(task)))
    return 0
