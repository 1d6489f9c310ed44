"""What the commands of models of modules share: a model and a folder, tables and pictures in it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.dmi.model import ModularModel
from fmepy.errors import ArgumentError
from fmepy.workflow.display import collected_warnings
from fmepy.workflow.file.model_file import read_model
from fmepy.workflow.file.toml import TomlTable


def opened(given: argparse.Namespace, *, strict: bool = False) -> tuple[ModularModel, Path]:
    """Return the model of modules of a file, what is told of it on stderr, and the folder to write to, made.

    That is the one that was named, or that of the file's stem beside it.

    Raises
    ------
    ArgumentError
        A mistake in the file; the folder cannot be made; it is one of the folders of the data, and what is written
        would be read the next time.
    """
    file = Path(given.file)
    section = TomlTable.read(file)
    with collected_warnings():
        model = read_model(section, strict=strict)
    folder = file.with_suffix("") if given.output is None else Path(given.output)
    if folder == file:  # a file without a suffix
        folder = file.with_name(f"{file.name}_outputs")
    if any(folder.resolve() == section.beside(name).resolve() for name in section.texts("data")):
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
