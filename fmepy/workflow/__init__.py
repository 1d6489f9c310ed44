"""Models and calibrations described in files: read, run, reported, from the command line and from Python.

A subcommand is a file here with a function ``add_arguments(parser)`` and one line in `command.COMMANDS`.

A calibration has three parts: `file` (reads and checks the file, builds data, model and cost), `runner` (runs the
`steps`, stores and writes their results) and `report`.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from fmepy.workflow.calibration import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]


def __getattr__(name: str) -> _typing.Any:
    """Return the public names, imported at their first use."""
    from importlib import import_module

    if name in __all__:
        return getattr(import_module("fmepy.workflow.calibration"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
