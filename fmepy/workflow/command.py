"""Calibrate and run models that are described in files.

A calibration file (TOML) says what the data are, the model, its parameters, and the steps: screen, fit, multistart,
profile, sample, ranges, scenarios, filter. `fmepy calibrate` does them, and writes tables and a report.

A model of modules is described by a TOML file that names its modules, its data base, its times and its steps.

for example:
  fmepy new lynx                   a folder lynx/ with a calibration file that runs, to begin from
  fmepy check lynx/lynx.toml       what it asks for; mistakes, with their lines; runs nothing
  fmepy calibrate lynx/lynx.toml   do it; the report is lynx/lynx_report/report.html
  fmepy map market.toml            which module gives what to which; what is missing
  fmepy run market.toml            run it; tables and a picture go to the folder market/

exit codes: 0 done; 1 the run failed; 2 a mistake in the file, the data or the arguments; 130 Ctrl-C;
143 SIGTERM, which ends it as Ctrl-C does.
`fmepy COMMAND --help` says more of a command; `python -m fmepy` is the same as `fmepy`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import cleandoc
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from fmepy import __version__
from fmepy.checks import whole_number
from fmepy.dmi.model import ModularModel
from fmepy.errors import ArgumentError, FmepyError, did_you_mean
from fmepy.parallel.progress import Progress
from fmepy.workflow.display import Display, collected_warnings
from fmepy.workflow.new_folder import ARGUMENTS, new

_INTERRUPTED = 130
_MOST_PANELS = 24


class _Parser(argparse.ArgumentParser):
    """A parser that names the nearest option or command of a misspelt one."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"(?:unrecognized arguments: |invalid choice: ')([^\s']+)", message)
        known = [*self._option_string_actions, *COMMANDS]
        super().error(message + (did_you_mean(wrong[1], known) if wrong else ""))


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(prog="fmepy", **_help(__doc__))
    top.add_argument("--version", action="version", version=f"fmepy {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (execute, arguments) in COMMANDS.items():
        text = cleandoc(execute.__doc__ or "")
        line = text.partition("\n")[0].rstrip(".")
        one = commands.add_parser(name, help=line[:1].lower() + line[1:], **_help(text))
        for word, how in arguments.items():
            one.add_argument(*word.split(), **how)
        one.set_defaults(execute=execute, own=one)
    return top


def _help(text: str | None) -> dict[str, Any]:
    """Split a docstring into the text before the list of arguments and the text after it."""
    about, *more = re.split(r"\n\n(?=[^\n]*:\n)", (text or "").strip(), maxsplit=1)
    formatter = argparse.RawDescriptionHelpFormatter
    return {"description": about, "epilog": "".join(more), "formatter_class": formatter, "allow_abbrev": False}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        Default those of the process.

    Raises
    ------
    SystemExit
        By argparse: 0 after ``--help``, 2 where the arguments are wrong.
    """
    if not (sys.argv[1:] if arguments is None else arguments):  # `fmepy` alone: which commands there are
        parser().print_help(sys.stderr)
        return 2
    parsed, rest = parser().parse_known_args(arguments)
    if rest:
        parsed.own.error(f"unrecognized arguments: {' '.join(rest)}")
    with _as_interrupt(signal.SIGTERM) as arrived:
        code = _execute(parsed)
    return 128 + arrived[0] if arrived and code == _INTERRUPTED else code


@contextmanager
def _as_interrupt(number: int) -> Iterator[list[int]]:
    """Treat a signal as Ctrl-C, unless the caller handles it; yield the list of signals that arrived."""
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(number) is not signal.SIG_DFL:
        yield arrived
        return

    def interrupt(*_: object) -> NoReturn:
        arrived.append(number)
        raise KeyboardInterrupt

    signal.signal(number, interrupt)
    try:
        yield arrived
    finally:
        signal.signal(number, signal.SIG_DFL)


def _execute(arguments: argparse.Namespace) -> int:
    """Run a command; turn every error into a message and an exit code."""
    try:
        code: int = arguments.execute(arguments)
        sys.stdout.flush()
        return code
    except FmepyError as error:
        print(error, file=sys.stderr)
        return 2 if isinstance(error, ArgumentError) else 1
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read the output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"{place}{error.strerror or error}.", file=sys.stderr)
        return 1


# --- the commands: functions of the arguments, which return the exit code


def check(arguments: argparse.Namespace) -> int:
    """Read a calibration file, say what it asks for, run nothing.

    Read a calibration file and all that it names (data, modules, Python), and print what it asks for: the rows and
    columns of the data, model, cost, parameters, and the steps with how much there is to run.

    Nothing is run and nothing is written. A Python file that the model names is imported; nothing in it is called. What
    was found in the data (separator, encoding, decimal comma, replicates) is printed on stderr.

    exit codes: 0 it could be run; 2 a mistake, with its file and line.
    """
    from fmepy.exchange.case import as_case
    from fmepy.workflow.calibration import prepared, preview
    from fmepy.workflow.plan import providers

    path = Path(arguments.file)
    with as_case(path) as file, collected_warnings():
        task = prepared(file, python=not arguments.no_python, problem=path).task
        for name, keywords in task.case.steps.items():
            providers(task.case, name, keywords, task.case.steps.__contains__)
    for line in task.notes:
        print(line, file=sys.stderr)
    print("\n".join(preview(task)))
    return 0


def calibrate(arguments: argparse.Namespace) -> int:
    """Run the steps of a calibration file; write tables and a report.

    Run the steps that a calibration file describes: screen, fit, multistart, profile, sample, ranges, scenarios,
    filter. What is done is kept, and not done again unless what it depends on has changed.

    Progress, warnings and demands that were missed are printed on stderr; stdout ends with the path of the report.

    writes to the folder (default: that of the file, or NAME_report beside it):
      report.html                      everything, in one file that opens anywhere
      estimates.csv residuals.csv fit.json                 of the best fit
      screen.csv collin.csv starts.csv optima.csv profile.csv intervals.csv
      sample.csv sample_summary.csv ranges.csv scenarios.csv filter.csv
      run.json                         the request, its inputs and versions, and the outcome

    exit codes: 0 done, all demands met; 1 a step failed (so does a fit that did not converge, and a step most of whose
    runs failed, unless [require] allows it), a demand of [require] was missed, or the disk is full;
    2 nothing was run: a mistake in the file, the data or the arguments, a folder that is in use or cannot be written;
    130 Ctrl-C, 143 SIGTERM (what is done is kept; --resume goes on).
    """
    from fmepy.exchange.case import as_case
    from fmepy.workflow.calibration import prepared, preview

    for word, least, most in (("workers", 1, 1024), ("seed", 0, None)):
        if (number := getattr(arguments, word)) is not None:
            whole_number(number, f"--{word}", least, most)
    path = Path(arguments.file)  # the default folder of a PEtab problem is next to it
    with as_case(path) as file, collected_warnings():
        output = arguments.out or (None if path == file else path.with_name(f"{path.stem}_report"))
        runner = prepared(
            file, output=output, steps=arguments.steps, seed=arguments.seed, executor=arguments.workers,
            resume=arguments.resume, python=not arguments.no_python, problem=path,
        )  # fmt: skip
    print("\n".join(preview(runner.task, runner.names)), flush=True)
    try:
        runner.do(Display(True, aloud=True))
    except KeyboardInterrupt:
        print(f"Interrupted. What is done is kept; go on with\n  {runner.command} --resume", file=sys.stderr)
        return _INTERRUPTED
    if runner.reported:
        print(runner.folder.path / "report.html", flush=True)
    return runner.exit


def import_problem(arguments: argparse.Namespace) -> int:
    """Make a calibration of a problem or model from elsewhere: a folder to go on with.

    Read a PEtab problem (.yaml, version 1 or 2), an SBML model (.xml), or a model of Vensim or Stella (.mdl, .xmile,
    .stmx), and write a folder with a calibration file, the model as text, and the data.

    writes to the folder, which must not be there:
      case.toml          the calibration file: fmepy calibrate DIR/case.toml
      model.txt          equations, initial values, constants
      *.fme data/ model.toml documentation.csv    of Vensim: modules, data base, a file for fmepy run, units and notes
      measurements.csv problem.py petab/      of a problem: its readings, its cost, its files

    exit codes: 0 done; 2 what cannot be read, with its place; nothing is written then.
    """
    from fmepy.exchange.case import write_case

    case = write_case(arguments.file, arguments.out)
    print(f"{case}\nLook at it, then: fmepy check {case}; fmepy calibrate {case}")
    return 0


def schema(arguments: argparse.Namespace) -> int:
    """Print the JSON schema of calibration files, for editors.

    Editors that know it complete keys, explain them, and underline what is wrong while one types.

    to begin, for editors that use Taplo (VS Code's Even Better TOML):
      fmepy schema > calibration.schema.json
    and, as the first line of a file:
      #:schema calibration.schema.json
    """
    from fmepy.workflow.file.case import file_schema

    print(json.dumps(file_schema(), indent=2, ensure_ascii=False))
    return 0


def run(arguments: argparse.Namespace) -> int:
    """Run a model of modules; write tables and a picture.

    Run the model that a TOML file describes: modules, data base, times and steps; or that of a calibration file, which
    gives its outputs alone.

    What is missing, redundant or in conflict between the modules and the data base is printed on stderr.

    writes to the folder (default: the file's name without .toml, beside it):
      outputs.csv        a row a time, a column a variable
      diagnostics.csv    messages on modules and data
      variable_map.csv   which module assigns and which reads each variable
      convergence.csv    how loops across modules settled, a row a loop and step
      outputs.png        the outputs against time (not with --no-plots)

    the file:
      modules = ["sales.fme", "delivery.fme"]      # or a folder; paths count from this file
      data = ["market_db/", "extra.sqlite"]
      times = { start = 0, stop = 100, step = 1 }  # of the rows
      dt = 0.25                                    # the elementary step
      outputs = ["SM", "OB"]                       # also: method, tol, max_iterations, strict, order, unsettled, seed
      [parameters]                                 # on top of the data base
      SEM = 410.0
    """
    model, folder = _open_model(arguments, strict=arguments.strict)
    if isinstance(model, ModularModel):
        with collected_warnings(), Progress(sys.stderr.isatty(), model.n_steps, "step") as progress:
            out = model.run_with_progress(progress)
        tables = {"outputs": out, "diagnostics": model.diagnostics, "variable_map": model.variable_map.reset_index()}
        tables["convergence"] = out.attrs["convergence"]
    else:
        with collected_warnings():
            out = model()
        tables = {"outputs": out}
    pictures = {} if arguments.no_plots else {"outputs": lambda: _plot_outputs(out)}
    first, last = out["time"].iloc[[0, -1]]
    written = _write(folder, tables, pictures)
    print(f"{len(out)} rows of {len(out.columns) - 1} variables, t = {first:g} to {last:g}")
    print(written)
    return 0


def map_variables(arguments: argparse.Namespace) -> int:
    """Print and draw which module gives what to which.

    Print the variable map of the model that a TOML file describes, without running it.

    A row a variable, a column a module: endogenous where the module assigns it, exogenous where it only reads it, both
    where an assigned one also needs an initial value from outside. What is missing, redundant or in conflict is printed
    on stderr.

    writes to the folder (default: the file's name without .toml, beside it):
      variable_map.csv   the map
      variable_map.png   modules as boxes, variables as arrows
      variable_map.html  with --html: who computes and who reads a variable, equations, values, feedback loops, a search
    """
    model, folder = _open_model(arguments)
    if not isinstance(model, ModularModel):
        raise ArgumentError(f"{arguments.file}: a map is of modules, and this model has none.")
    print(model.variable_map.to_string())
    written = _write(folder, {"variable_map": model.variable_map.reset_index()}, {"variable_map": model.plot_map})
    if arguments.html:
        from fmepy.workflow.report.module_map import map_page

        page = map_page(model, Path(arguments.file).stem)
        (folder / "variable_map.html").write_text(page, encoding="utf-8", newline="\n")
        written += ", variable_map.html"
    print(written)
    return 0


def _open_model(arguments: argparse.Namespace, *, strict: bool = False) -> tuple[Any, Path]:
    """Return the model of a file and the folder to write to, which is made; warnings go to stderr.

    The folder is the one named, or the file's name without its suffix, next to the file.

    Raises
    ------
    ArgumentError
        A mistake in the file; the folder cannot be made; it is one of the folders of the data, and what is written
        would be read the next time.
    """
    from fmepy.workflow.file.case import read_case
    from fmepy.workflow.file.sources import read_modular, read_source
    from fmepy.workflow.file.toml import TomlTable

    file = Path(arguments.file)
    section = TomlTable.read(file)
    with collected_warnings():
        if isinstance(section.data.get("model"), dict):
            model = read_source(read_case(file), python=False).model
        else:
            model = read_modular(section, strict=strict)
    folder = file.with_suffix("") if arguments.output is None else Path(arguments.output)
    if folder == file:  # a file without a suffix
        folder = file.with_name(f"{file.name}_outputs")
    if any(folder.resolve() == section.path_of(name).resolve() for name in section.texts("data")):
        raise ArgumentError(
            f"The tables would be written to {str(folder)!r}, among the data, and be read as such the next time. Name "
            "another folder: --output DIR."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"The folder {str(folder)!r} cannot be made: {error.strerror}. Name another by --output."
        ) from None
    return model, folder


def _write(folder: Path, tables: Mapping[str, pd.DataFrame], pictures: Mapping[str, Callable[[], Any]]) -> str:
    """Write tables as CSV and pictures as PNG, without a display, and return what was written."""
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")
    if pictures:
        import matplotlib

        matplotlib.use("Agg")  # before the first figure, whatever the user's settings say
        import matplotlib.pyplot as plt
    for name, draw in pictures.items():
        figure = np.ravel(np.asarray(draw(), dtype=object))[0].figure
        figure.savefig(folder / f"{name}.png", dpi=120, bbox_inches="tight")
        plt.close(figure)
    return f"{folder}/: {', '.join([*(f'{n}.csv' for n in tables), *(f'{n}.png' for n in pictures)])}"


def _plot_outputs(out: pd.DataFrame) -> Any:
    """Draw the outputs, a panel each."""
    from fmepy.plotting.models import plot_model

    names = [c for c in out.columns if c != "time"]
    if len(names) > _MOST_PANELS:
        print(
            f"outputs.png shows the first {_MOST_PANELS} of {len(names)} variables; name some by `outputs` in the "
            "file.", file=sys.stderr,
        )  # fmt: skip
    return plot_model(out, which=names[:_MOST_PANELS])


_FILE = {"metavar": "FILE.toml", "help": "the calibration file, or a PEtab problem (.yaml)"}
_MODEL = {"metavar": "MODEL.toml", "help": "the description of the model"}
_FOLDER = {"metavar": "DIR", "help": "the folder to write to, made if need be"}


def _flag(text: str) -> dict[str, Any]:
    return {"action": "store_true", "help": text}


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], dict[str, dict[str, Any]]]] = {
    "new": (new, ARGUMENTS),
    "import": (import_problem, {
        "file": {"metavar": "FILE", "help": "a problem (.yaml) or model (.xml, .mdl, .xmile, .stmx)"},
        "--out": {"metavar": "DIR", "required": True, "help": "the folder to make"},
    }),
    "check": (check, {"file": _FILE, "--no-python": _flag("refuse a file that names Python, before it is imported")}),
    "calibrate": (calibrate, {
        "file": _FILE,
        "--out": _FOLDER,
        "--steps": {"metavar": "A,B", "help": "these of the file's steps, and what they need"},
        "--workers": {"metavar": "N", "type": int, "help": "worker processes; the numbers do not depend on it"},
        "--seed": {"metavar": "S", "type": int, "help": "of the random numbers, in place of the file's"},
        "--resume": _flag("go on with a step that was killed from its checkpoint"),
        "--no-python": _flag("refuse a file that names Python code"),
    }),
    "schema": (schema, {}),
    "run": (run, {
        "file": _MODEL,
        "--output --out": _FOLDER,
        "--strict": _flag("diagnostics are errors (exit code 2)"),
        "--no-plots": _flag("draw no picture"),
    }),
    "map": (map_variables, {
        "file": _MODEL,
        "--output --out": _FOLDER,
        "--html": _flag("write a page with a search, too; it runs the model"),
    }),
}  # fmt: skip
"""By name what runs, and its arguments as argparse takes them.

The docstring of a command is its help: a line, what it does, and, from the first line that ends with a colon on, what
is shown below the options. A mistake in a file or in the arguments ends with exit code 2 and a message that says where;
nothing shows a traceback.
"""
