"""Make a calibration of a PEtab problem or an SBML model: a folder to go on with.

Read a PEtab problem (.yaml, version 1 or 2) or an SBML model (.xml), and write a folder with a calibration file, the
model as text, and the data.

writes to the folder, which must not be there:
  case.toml          the calibration file: fmepy calibrate DIR/case.toml
  model.txt          equations, initial values, constants
  measurements.csv problem.py petab/      of a problem: its readings, its cost, its files

exit codes: 0 done; 2 what cannot be read, with its place; nothing is written then.
"""

from __future__ import annotations

import argparse

NAME = "import"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="a PEtab problem (.yaml) or an SBML model (.xml)")
    parser.add_argument("--out", metavar="DIR", required=True, help="the folder to make")


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from fmepy.exchange.case import write_case

    case = write_case(given.file, given.out)
    print(f"{case}\nLook at it, then: fmepy check {case}; fmepy calibrate {case}")
    return 0
