"""Print and draw which module gives what to which.

Print the variable map of the model that a TOML file describes, without running it.

A row a variable, a column a module: endogenous where the module assigns it, exogenous where it only reads it, both
where an assigned one also needs an initial value from outside. What is missing, redundant or in conflict is told on
stderr.

writes to the folder (default: the file's name without .toml, beside it):
  variable_map.csv   the map
  variable_map.png   modules as boxes, variables as arrows
"""

from __future__ import annotations

import argparse

from fmepy.workflow.output import drawn, opened, written

NAME = "map"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="MODEL.toml", help="the description of the model")
    parser.add_argument("--output", metavar="DIR", help="the folder to write to, made if need be")


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    model, folder = opened(given)
    print(model.variable_map.to_string())
    files = [
        written(model.variable_map.reset_index(), folder / "variable_map.csv"),
        drawn(model.plot_map, folder / "variable_map.png"),
    ]
    print(f"{folder}/: {', '.join(p.name for p in files)}")
    return 0
