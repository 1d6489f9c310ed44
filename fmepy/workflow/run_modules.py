"""Run a model of modules; write tables and a picture.

Run the model that a TOML file describes: modules, data base, times and steps.

What is missing, redundant or in conflict between the modules and the data base is told on stderr.

writes to the folder (default: the file's name without .toml, beside it):
  outputs.csv        a row a time, a column a variable
  diagnostics.csv    what was told of modules and data
  variable_map.csv   which module assigns and which reads each variable
  convergence.csv    how loops across modules settled, a row a loop and step
  outputs.png        the outputs against time (not with --no-plots)

the file:
  modules = ["sales.fme", "delivery.fme"]      # or a folder; paths count from this file
  data = ["market_db/", "extra.sqlite"]
  times = { start = 0, stop = 100, step = 1 }  # of the rows
  dt = 0.25                                    # the elementary step
  outputs = ["SM", "OB"]                       # also: method, tol, max_iterations, strict, order, unsettled
  [parameters]                                 # on top of the data base
  SEM = 410.0
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from fmepy.parallel.progress import Progress
from fmepy.workflow.display import collected_warnings
from fmepy.workflow.output import drawn, opened, written

NAME = "run"
MOST_PANELS = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="MODEL.toml", help="the description of the model")
    parser.add_argument("--output", metavar="DIR", help="the folder to write to, made if need be")
    parser.add_argument("--strict", action="store_true", help="diagnostics are errors (exit code 2)")
    parser.add_argument("--no-plots", action="store_true", help="draw no picture")


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    model, folder = opened(given, strict=given.strict)
    with collected_warnings(), Progress(sys.stderr.isatty(), model.n_steps, "step") as progress:
        out = model.run_told(progress)
    done = {
        "outputs": out,
        "diagnostics": model.diagnostics,
        "variable_map": model.variable_map.reset_index(),
        "convergence": out.attrs["convergence"],
    }
    files = [written(table, folder / f"{name}.csv") for name, table in done.items()]
    if not given.no_plots:
        files.append(_drawn(out, folder / "outputs.png"))
    print(
        f"{len(out)} rows of {len(out.columns) - 1} variables, t = {out['time'].iloc[0]:g} to {out['time'].iloc[-1]:g}"
    )
    print(f"{folder}/: {', '.join(p.name for p in files)}")
    return 0


def _drawn(out: pd.DataFrame, path: Path) -> Path:
    """Draw the outputs, a panel each."""
    names = [c for c in out.columns if c != "time"]
    if len(names) > MOST_PANELS:
        print(
            f"{path.name} shows the first {MOST_PANELS} of {len(names)} variables; name some by `outputs` in the file.",
            file=sys.stderr,
        )

    def panels() -> Any:
        from fmepy.plotting.models import plot_model

        return plot_model(out, which=names[:MOST_PANELS])

    return drawn(panels, path)
