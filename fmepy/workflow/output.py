"""What commands tell and where they write: diagnostics on stderr, tables in a folder."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError


@contextmanager
def show_diagnostics() -> Iterator[None]:
    """Print warnings of fmepy on stderr, a line each, in the order in which they come, without Python's frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: print(f"warning: {message}", file=sys.stderr)
        yield


def folder_for(file: Path, output: str | None, data: Iterable[Path] = ()) -> Path:
    """Return the folder to write to, made: what was named, or that of the file's stem beside it.

    Raises
    ------
    ArgumentError
        It cannot be made; it is one of the folders of `data`, and what is written would be read the next time.
    """
    folder = file.with_suffix("") if output is None else Path(output)
    if folder == file:  # a file without a suffix
        folder = file.with_name(f"{file.name}_outputs")
    if any(folder.resolve() == d.resolve() for d in data):
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
    return folder


def written(table: pd.DataFrame, path: Path) -> Path:
    """Write a table as CSV, and return the path."""
    table.to_csv(path, index=False, lineterminator="\n")
    return path


def drawn(draw: Callable[[], Any], path: Path) -> Path:
    """Draw a picture without a display, write it, and return the path."""
    import matplotlib

    matplotlib.use("Agg")  # before the first figure, whatever the user's settings say
    import matplotlib.pyplot as plt

    figure = np.ravel(np.asarray(draw(), dtype=object))[0].figure
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return path
