"""The folder of compiled code: private, mended by itself, never too large.

It holds code that is run, so folder and files must be private: owned by the user, writable by nobody else, no symbolic
links; and nobody else may exchange the folder for another one. If it cannot be had, a fresh temporary folder serves for
this process. No variable names it but that of the system's caches (XDG_CACHE_HOME).

Every file begins with a digest of its name and of the rest. A file that was cut off, changed or renamed is discarded,
as is one that somebody else could have written, and what it held is compiled anew; a file that cannot be written (a
full disk) is told once.

**What is removed.** When something new is compiled, at most once a day: whatever was not used for 90 days, then the
least recently used until the folder is below 500 MB; never what is younger than an hour, which another process may just
be writing. A process whose files are removed goes on; the next one compiles anew.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

logger = logging.getLogger(__name__)

_UNUSED = 90 * 86_400.0  # seconds after which what was not used is removed
_MOST = 500_000_000  # bytes that the folder may grow to
_YOUNG = 3_600.0  # seconds within which nothing is removed
_OFTEN = 86_400.0  # seconds between looks
_DIGEST = 32  # bytes
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_told: set[Path] = set()


def read_kept(path: Path) -> bytes | None:
    """Return what a file holds; None if there is none, or it is not what was written here, and then it is removed."""
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY | _NO_LINK)) as file:
            found = os.fstat(file.fileno())  # of what is read, whatever stands under the name by now
            why = _why_not_ours(found, "it", stat.S_ISREG, "no regular file")
            why = why or ("it is too large" if found.st_size > _MOST else "")
            content = b"" if why else file.read(found.st_size)
    except FileNotFoundError:
        return None
    except OSError as error:  # a link, a folder, or what we may not read
        _discard(path, error.strerror or str(error))
        return None
    data = content[_DIGEST:]
    if why or content[:_DIGEST] != _digest(path, data):
        _discard(path, why or "it is damaged")
        return None
    with suppress(OSError):
        if time.time() - found.st_mtime > _OFTEN:  # it is used, and so not to be pruned
            os.utime(path)
    return data


def _discard(path: Path, why: str) -> None:
    logger.info("%s is not used (%s); what it held is compiled anew.", path, why)
    with suppress(OSError):
        path.unlink()


def _digest(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()


def write_kept(path: Path, data: bytes) -> None:
    """Keep data in a file; that it cannot be written is told once a folder."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, _digest(path, data) + data)
    except OSError as error:
        if path.parent not in _told:
            _told.add(path.parent)
            logger.warning(
                "Compiled code cannot be kept in %s (%s): it is compiled anew in every process. Make room there, "
                "or name another folder by XDG_CACHE_HOME.",
                path.parent,
                error.strerror or error,
            )


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that no other process ever sees a part of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@lru_cache(maxsize=1)
def cache_folder() -> Path:
    """Return the folder of generated code: the user's own if it is private, else a temporary one."""
    folder = Path(os.path.realpath(_user_cache()), "fmepy", "compiled")
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        why = _why_not_private(folder)
        if not why and not os.access(folder, os.W_OK):
            why = "it cannot be written"
    except OSError as error:
        why = str(error)
    if not why:
        return folder
    logger.warning("%s is not used for compiled code: %s. Compiled code is kept for this process only.", folder, why)
    temporary = Path(tempfile.mkdtemp(prefix="fmepy_"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


def prune(folder: Path) -> None:
    """Remove what is old or too much, see the module's text; what somebody else removes meanwhile is none of ours."""
    now, stamp = time.time(), folder / "pruned"
    try:
        if stamp.exists() and now - stamp.stat().st_mtime < _OFTEN:
            return
        stamp.touch()
    except OSError:
        return
    found: dict[str, list[tuple[Path, float, int]]] = {}  # files belong together by the first word of their names
    for file in folder.rglob("*.*"):
        with suppress(OSError):
            known = file.lstat()
            if stat.S_ISREG(known.st_mode):
                found.setdefault(file.name.split(".")[0], []).append((file, known.st_mtime, known.st_size))
    used = {name: max(time for _, time, _ in files) for name, files in found.items()}
    size = sum(bytes_ for files in found.values() for _, _, bytes_ in files)
    for name in sorted(found, key=lambda name: used[name]):
        age = now - used[name]
        if age < _YOUNG or (age < _UNUSED and size <= _MOST):
            break
        for file, _, bytes_ in found[name]:
            with suppress(OSError):
                file.unlink()
            size -= bytes_


def _user_cache() -> Path:
    """Return where this system keeps a user's caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    given = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(given):
        return Path(given)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _why_not_private(folder: Path) -> str:
    """Return why code in a folder, of a private one as well, cannot be trusted; or an empty string."""
    for own in (folder, folder.parent):
        if why := _why_not_ours(own.lstat(), str(own), stat.S_ISDIR, "a symbolic link or no folder"):
            return why
    if sys.platform == "win32":
        return ""
    root, *above = folder.parents[1:]
    if root.stat().st_uid not in (0, os.geteuid()):
        return f"{root} belongs to somebody else"
    for place in (root, *above):  # whoever may write there may put another folder in the place of ours
        found = place.stat()
        others = stat.S_IWOTH | (0 if found.st_gid == os.getegid() else stat.S_IWGRP)
        if found.st_mode & others and not found.st_mode & stat.S_ISVTX:
            return f"others may write to {place}"
    return ""


def _why_not_ours(found: os.stat_result, what: str, is_kind: Callable[[int], bool], not_kind: str) -> str:
    """Return why somebody else may have made a file or folder, or an empty string."""
    if not is_kind(found.st_mode):
        return f"{what} is {not_kind}"
    if sys.platform == "win32":
        return ""
    if found.st_uid != os.geteuid():
        return f"{what} belongs to somebody else"
    return f"others may write to {what}" if found.st_mode & 0o022 else ""
