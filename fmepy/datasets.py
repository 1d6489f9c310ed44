"""The tables that come with fmepy, by name, with their source.

The files are those of the folder ``data/`` of the repository; an installed fmepy carries them inside the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from fmepy.errors import ArgumentError, check_choice


def names() -> list[str]:
    """Return the names of the tables.

    Examples
    --------
    >>> names()
    ['BOD', 'Nile', 'Puromycin', 'Theoph', 'ccl4', 'hiv', 'lynx_hare', 'sediment']
    """
    return sorted(_sources())


def load(name: str) -> pd.DataFrame:
    """Return a table; its ``attrs`` say what it holds and where it comes from.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    DataFrame
        A fresh copy. ``attrs`` holds the texts "name", "title", "source", and "units", a dict by column.

    Raises
    ------
    ArgumentError
        There is no table of that name; the message names the nearest.

    Examples
    --------
    >>> pelts = load("lynx_hare")
    >>> list(pelts.columns), len(pelts)
    (['year', 'Hare', 'Lynx'], 21)
    >>> pelts.attrs["units"]["Hare"]
    'thousands of pelts a year'
    """
    sources = _sources()
    check_choice(name, sorted(sources), "name")
    entry = sources[name]
    labels = {column: str for column, unit in entry["units"].items() if unit == "label"}
    frame = pd.read_csv(file_of(name), dtype=labels)
    frame.attrs.update(name=name, **entry)
    return frame


def file_of(name: str) -> Path:
    """Return the CSV file of a table."""
    return _folder() / f"{name}.csv"


def _folder() -> Path:
    """Return the folder of the tables: in the package (installed), else beside it (a checkout)."""
    here = Path(__file__).parent
    for folder in (here / "data", here.parent / "data"):
        if (folder / "sources.json").is_file():
            return folder
    raise ArgumentError(f"The tables of fmepy are missing: there is no `data/sources.json` in or beside {here}.")


def _sources() -> dict[str, dict[str, Any]]:
    sources: dict[str, dict[str, Any]] = json.loads((_folder() / "sources.json").read_text(encoding="utf-8"))
    return sources


def __dir__() -> list[str]:
    return ["load", "names"]  # what completion offers
