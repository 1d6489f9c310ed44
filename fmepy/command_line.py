"""Ctrl-C while the command ``fmepy`` is still being imported: one line and exit code 130, as ever after.

The first import of the package, for it must be there before the others take their time.
"""

import os
import sys
from pathlib import Path
from types import TracebackType


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    sys.stderr.write("Interrupted.\n")
    sys.stderr.flush()
    os._exit(130)  # nothing is begun that would have to be ended


_said = getattr(sys, "argv", [""])[0]
if Path(_said).stem == "fmepy" or (_said == "-m" and "fmepy" in sys.orig_argv[:4]):
    sys.excepthook = _end
