"""Tables that a TOML file names: read where the key stands, columns found by name."""

from __future__ import annotations

from collections.abc import Callable

from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.tables.sheet import Sheet
from fmepy.tables.text_files import read_text_file, unreadable
from fmepy.workflow.file.toml import Key, TomlTable


def column_of(file: Sheet, name: str, error: Callable[[str], ArgumentError]) -> str:
    """Return the name of a column; the error of the place that names it, with the nearest, where there is none."""
    if name in file.frame.columns:
        return name
    raise error(
        f"there is no column {name!r} in {file.path.name}.{did_you_mean(name, file.frame.columns)} "
        f"It has {listed(file.frame.columns)}."
    )


def read_beside(section: TomlTable, key: str | Key, file: str, **how: str | None) -> Sheet:
    """Return the table of a file that a key of a TOML file names; where it cannot be read the message has that line."""
    path = section.beside(file)
    try:
        return read_text_file(path, **how)
    except OSError as error:
        raise section.error(key, unreadable(error, path)) from None
    except ArgumentError as error:
        if str(error).startswith(f"{path}:"):  # a line of the table itself
            raise
        raise section.error(key, str(error)) from None
