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
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from fmepy import __version__
from fmepy.errors import ArgumentError, FmepyError, did_you_mean
from fmepy.workflow import (
    calibrate_command,
    check_file,
    import_file,
    map_modules,
    new_folder,
    print_schema,
    run_modules,
)

COMMANDS = (new_folder, import_file, check_file, calibrate_command, print_schema, run_modules, map_modules)
# A subcommand is a file here with a function `add_arguments(parser)`, and a line in COMMANDS. Its docstring is its
# help: a line, what it does, and, from the first line that ends with a colon on, what stands below the options. A
# mistake in a file or in the arguments ends with exit code 2 and a message that says where; nothing shows a traceback.
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """A parser that names the nearest option or command of a misspelt one."""

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"(?:unrecognized arguments: |invalid choice: ')([^\s']+)", message)
        known = list(self._option_string_actions) + [c.NAME for c in COMMANDS]
        super().error(message + (did_you_mean(wrong[1], known) if wrong else ""))


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(prog="fmepy", **_help(__doc__))
    top.add_argument("--version", action="version", version=f"fmepy {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        line = (command.__doc__ or "").partition("\n")[0].rstrip(".")
        one = commands.add_parser(command.NAME, help=line[:1].lower() + line[1:], **_help(command.__doc__))
        command.add_arguments(one)
        one.set_defaults(execute=command.execute, own=one)
    return top


def _help(text: str | None) -> dict[str, Any]:
    """Return how a docstring is shown: what stands before the arguments, and what after them."""
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
    given, rest = parser().parse_known_args(arguments)
    if rest:
        given.own.error(f"unrecognized arguments: {' '.join(rest)}")
    with _as_interrupt(signal.SIGTERM) as arrived:
        code = _executed(given)
    return 128 + arrived[0] if arrived and code == _INTERRUPTED else code


@contextmanager
def _as_interrupt(number: int) -> Iterator[list[int]]:
    """Take a signal for Ctrl-C, unless who runs us has a use for it; yield what has arrived."""
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


def _executed(given: argparse.Namespace) -> int:
    """Run a command; whatever happens ends with an exit code, and a message."""
    try:
        code: int = given.execute(given)
        sys.stdout.flush()
        return code
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return 2
    except FmepyError as error:
        print(error, file=sys.stderr)
        return 1
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
