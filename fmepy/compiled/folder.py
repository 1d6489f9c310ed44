"""The cache folder of compiled code: private, checked on every read, of limited size.

Its files are executed, so folder and files must be private: owned by the user, writable by nobody else, no symbolic
links; and nobody else may be able to replace the folder. Where that is impossible, a temporary folder is used for this
process. Its place follows from the system's folder of caches alone (XDG_CACHE_HOME).

Every file begins with a digest of its name and content. A file that is truncated, changed or renamed, or that somebody
else could have written, is deleted and its code compiled again. A file that cannot be written (full disk) causes one
warning.

**Pruning.** When something new is compiled, at most once a day, files not used for 90 days are removed, then the least
recently used ones until the folder is below 500 MB; never files younger than an hour, which another process may still
be writing. A process whose files are removed is not affected; the next one compiles again.
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

_UNUSED = 90 * 86_400.0  # seconds after which an unused file is removed
_MOST = 500_000_000  # largest size of the folder in bytes
_YOUNG = 3_600.0  # seconds within which a file is never removed
_OFTEN = 86_400.0  # seconds between prunings
_DIGEST = 32  # bytes
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_warned: set[Path] = set()


def read_cached(path: Path) -> bytes | None:
    """Return the data of a file, or None if it is missing; a file that cannot be trusted is removed, and None too."""
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY | _NO_LINK)) as file:
            info = os.fstat(file.fileno())  # of the open file, even if the name now leads elsewhere
            why = _why_not_ours(info, "it", stat.S_ISREG, "no regular file")
            why = why or ("it is too large" if info.st_size > _MOST else "")
            content = b"" if why else file.read(info.st_size)
    except FileNotFoundError:
        return None
    except OSError as error:  # a link, a folder, or no permission
        _discard(path, error.strerror or str(error))
        return None
    data = content[_DIGEST:]
    if why or content[:_DIGEST] != _digest(path, data):
        _discard(path, why or "it is damaged")
        return None
    with suppress(OSError):
        if time.time() - info.st_mtime > _OFTEN:  # mark as used, for pruning
            os.utime(path)
    return data


def _discard(path: Path, why: str) -> None:
    logger.info("%s is not used (%s); its code is compiled again.", path, why)
    with suppress(OSError):
        path.unlink()


def _digest(path: Path, data: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()


def write_cached(path: Path, data: bytes) -> None:
    """Write data to a file of the cache; if that fails, warn once for each folder."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, _digest(path, data) + data)
    except OSError as error:
        if path.parent not in _warned:
            _warned.add(path.parent)
            logger.warning(
                "Compiled code cannot be cached in %s (%s), so every process compiles it again. Free some space there, "
                "or set XDG_CACHE_HOME to another folder.",
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
    """Return the cache folder of compiled code: in the user's caches if that is private, else a temporary one."""
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
    logger.warning("%s is not used for compiled code: %s. Compiled code is cached for this process only.", folder, why)
    temporary = Path(tempfile.mkdtemp(prefix="fmepy_"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return temporary


def prune(folder: Path) -> None:
    """Remove old files, and the least recently used ones of too many (see the module); others may do so meanwhile."""
    now, stamp = time.time(), folder / "pruned"
    try:
        if stamp.exists() and now - stamp.stat().st_mtime < _OFTEN:
            return
        stamp.touch()
    except OSError:
        return
    groups: dict[str, list[tuple[Path, float, int]]] = {}  # files with the same stem belong together
    for file in folder.rglob("*.*"):
        with suppress(OSError):
            info = file.lstat()
            if stat.S_ISREG(info.st_mode):
                groups.setdefault(file.name.split(".")[0], []).append((file, info.st_mtime, info.st_size))
    used = {name: max(time for _, time, _ in files) for name, files in groups.items()}
    size = sum(bytes_ for files in groups.values() for _, _, bytes_ in files)
    for name in sorted(groups, key=lambda name: used[name]):
        age = now - used[name]
        if age < _YOUNG or (age < _UNUSED and size <= _MOST):
            break
        for file, _, bytes_ in groups[name]:
            with suppress(OSError):
                file.unlink()
            size -= bytes_


def _user_cache() -> Path:
    """Return this system's folder for a user's caches."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(configured):
        return Path(configured)
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _why_not_private(folder: Path) -> str:
    """Return why code in a folder (or its parent) cannot be trusted, or an empty string."""
    for checked in (folder, folder.parent):
        if why := _why_not_ours(checked.lstat(), str(checked), stat.S_ISDIR, "a symbolic link or no folder"):
            return why
    if sys.platform == "win32":
        return ""
    root, *above = folder.parents[1:]
    if root.stat().st_uid not in (0, os.geteuid()):
        return f"{root} belongs to somebody else"
    for place in (root, *above):  # whoever may write there could replace our folder
        info = place.stat()
        others = stat.S_IWOTH | (0 if info.st_gid == os.getegid() else stat.S_IWGRP)
        if info.st_mode & others and not info.st_mode & stat.S_ISVTX:
            return f"others may write to {place}"
    return ""


def _why_not_ours(info: os.stat_result, what: str, is_kind: Callable[[int], bool], not_kind: str) -> str:
    """Return why somebody else could have written a file or folder, or an empty string."""
    if not is_kind(info.st_mode):
        return f"{what} is {not_kind}"
    if sys.platform == "win32":
        return ""
    if info.st_uid != os.geteuid():
        return f"{what} belongs to somebody else"
    return f"others may write to {what}" if info.st_mode & 0o022 else ""
