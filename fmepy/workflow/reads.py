"""Files that a user's Python opens to read, so that they count as inputs without being named.

Python tells every file that is opened to who asks (audit events, PEP 578), whatever opens it: ``open``, pandas, numpy,
sqlite3, an import. Libraries that open files by themselves (HDF5, parquet) do not pass there; such files, and those
that only other processes read, are named by ``inputs``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

_ASKING: list[Reads] = []
_INSTALLED = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[1])


class Reads:
    """Notes which files are read in some folders or below while it is asked to.

    Parameters
    ----------
    *folders : Path
    """

    def __init__(self, *folders: Path) -> None:
        self.folders = [folder.resolve() for folder in folders]
        self._read: set[str] = set()
        self._written: set[str] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is read inside."""
        _listen()
        _ASKING.append(self)
        try:
            yield
        finally:
            _ASKING.remove(self)

    def take(self, path: str, *, written: bool) -> None:
        """Take in a file that is opened."""
        (self._written if written else self._read).add(path)

    def files(self, but: Path | None = None) -> list[Path]:
        """Return what was read, and not written as well: nothing of libraries, hidden folders, or the folder `but`."""
        found = {_source(path) for path in self._read - self._written}
        return sorted(
            path
            for path in found
            if any(is_own(path, f) and not _is_hidden(path, f) for f in self.folders)
            and (but is None or but.resolve() not in path.parents)
        )


def is_own(file: str | Path, folder: Path) -> bool:
    """Tell whether a file is the user's: in a folder or below, and not of a library that lies there."""
    path = Path(file)
    if "site-packages" in path.parts or not path.is_file():
        return False
    above, of_folder = path.resolve().parents, (folder, *folder.parents)
    return folder in above and not any(p in above and p not in of_folder for p in _INSTALLED)


def _is_hidden(path: Path, folder: Path) -> bool:
    """Tell whether a file lies in a hidden place of a folder, such as a cache."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _source(path: str) -> Path:
    """Return a file, of a compiled module its text."""
    try:
        return Path(importlib.util.source_from_cache(path)).resolve()
    except (NotImplementedError, ValueError):
        return Path(path).resolve()


@cache
def _listen() -> None:
    """Hear of every file that is opened from now on; there is no way to end that, so nothing is done of it in vain."""
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    if not _ASKING or event not in ("open", "sqlite3.connect"):
        return
    path, *how = arguments
    if not isinstance(path, str | bytes | os.PathLike):  # a file that is open, by its number
        return
    try:
        place = os.path.abspath(os.fsdecode(path))  # now: the working directory may change
    except (OSError, ValueError):  # it is gone; a name that no file has
        return
    written = bool(how and how[-1] & (os.O_WRONLY | os.O_RDWR))
    for reads in _ASKING:
        reads.take(place, written=written)
