"""Files: what we write is there whole or not at all; what a user names is read through one door.

**The door.** A file may come from anybody, and its name may lead to a pipe, a device or something without an end. So it
must be a regular file of a stated size at most, which is checked before it is opened and again when it is open; and no
more is read than that, should it grow meanwhile or be larger than it says. What is refused is an OSError that gives the
reason, as the system's own do. The limits are such that what is made of a file needs less than 6 GB of memory.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MOST_TEXT = 10_000_000
"""Bytes of a description: TOML, modules, Python."""
MOST_TABLE = 100_000_000
"""Bytes of a table as text, and of JSON."""
MOST_ROWS, MOST_COLUMNS = 2_000_000, 10_000
"""Of one table."""
MOST_DATA = 1_000_000_000
"""Bytes of a data base."""
MOST_ARRAYS = 2_000_000_000
"""Bytes of the arrays of a result."""
_CHUNK = 1 << 20
_HOW = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def open_file(path: str | os.PathLike[str], most: int) -> IO[bytes]:
    """Return a file that a user names, opened to be read: a regular one of at most so many bytes.

    Raises
    ------
    OSError
        It is none, has more, or cannot be opened.
    """
    try:
        _check(os.stat(path), most)  # first: a pipe would be waited for, and a device may do something
        handle = os.open(path, _HOW)
    except ValueError as error:
        raise OSError(f"no file has such a name ({error})") from None
    try:
        _check(os.fstat(handle), most)  # another one may stand there by now
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: str | os.PathLike[str], most: int) -> bytes:
    """Return what a file holds that a user names, see `open_file`."""
    with open_file(path, most) as file:
        return b"".join(_parts(file, most))


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return what stands for what a file holds now: its sha256; beyond `MOST_DATA` that of its size and last change."""
    digest = hashlib.sha256()
    with open_file(path, 1 << 63) as file:
        status = os.fstat(file.fileno())
        if status.st_size > MOST_DATA:
            return hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
        for part in _parts(file, MOST_DATA):
            digest.update(part)
    return digest.hexdigest()


def _parts(file: IO[bytes], most: int) -> Iterator[bytes]:
    """Yield what a file holds; it may grow, or be larger than it says."""
    while part := file.read(min(_CHUNK, most + 1)):
        most -= len(part)
        if most < 0:
            raise OSError("it grows while it is read, or has no end; copy it to a file that stays, and name that")
        yield part


def _check(status: os.stat_result, most: int) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        what = "name a file in it" if kind == "a folder" else "save what it gives in a file, and name that"
        raise OSError(f"it is {kind}, not a file; {what}")
    if status.st_size > most:
        raise OSError(f"it has more than {most / 1e6:.0f} MB; take out what is not needed, or divide it")


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file under a temporary name, flush it to the disk, and rename it: a kill at any moment leaves none torn.

    Raises
    ------
    OSError
        It cannot be written; nothing of it is left.
    """
    temporary = path.parent / f".{path.name}.{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        with open(temporary, "xb") as file:  # never through a link that somebody has put there
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # the new name too must reach the disk
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
