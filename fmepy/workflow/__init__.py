"""Models and calibrations described in files: read, run, reported, from the command line and from Python.

A subcommand is a file here with a function ``add_arguments(parser)`` and one line in `command.COMMANDS`.

A calibration goes through three hands: `file` (what is said, checked, and made into data, model and cost), `runner`
(which runs the `steps`, keeps what they give and writes it) and `report`.
"""

import typing as _typing

if _typing.TYPE_CHECKING:
    from fmepy.workflow.calibration import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]


def __getattr__(name: str) -> _typing.Any:
    """Return what Python users take, imported when it is asked for."""
    from importlib import import_module

    if name in __all__:
        return getattr(import_module("fmepy.workflow.calibration"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
