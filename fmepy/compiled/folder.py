"""The folder of compiled code: private, mended by itself, never too large.

It holds code that is run, so it must be private: owned by the user, writable by nobody else, no symbolic link. If it
cannot be had, a fresh temporary folder serves for this process. The environment may name another by NUMBA_CACHE_DIR.

Every file begins with a digest of the rest. A file that was cut off or changed is discarded, and what it held is
compiled anew; a file that cannot be written (a full disk) is told once.

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
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

logger = logging.getLogger(__name__)

_UNUSED = 90 * 86_400.0  # seconds after which what was not used is removed
_MOST = 500_000_000  # bytes that the folder may grow to
_YOUNG = 3_600.0  # seconds within which nothing is removed
_OFTEN = 86_400.0  # seconds between looks
_DIGEST = 32  # bytes
_told: set[Path] = set()


def folder_in_use() -> Path:
    """Return where compiled code is kept: what the environment names, or our own folder."""
    return Path(os.environ.get("NUMBA_CACHE_DIR") or cache_folder())


def read_kept(path: Path) -> bytes | None:
    """Return what a file holds; None if there is none, or it is not what was written, and then it is removed."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, data = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(data).digest() != digest:
        logger.info("%s is damaged; what it held is compiled anew.", path)
        path.unlink(missing_ok=True)
        return None
    with suppress(OSError):
        if time.time() - path.stat().st_mtime > _OFTEN:  # it is used, and so not to be pruned
            os.utime(path)
    return data


def write_kept(path: Path, data: bytes) -> None:
    """Keep data in a file; that it cannot be written is told once a folder."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, hashlib.sha256(data).digest() + data)
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
    folder = _user_cache() / "fmepy" / "compiled"
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        why = _why_not_private(folder) or _why_not_private(folder.parent)
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
    """Return why code in a folder cannot be trusted, or an empty string."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is a symbolic link or no folder"
    if not _is_ours(found):
        return f"{folder} belongs to somebody else"
    if sys.platform != "win32" and found.st_mode & 0o022:
        return f"others may write to {folder}"
    return ""


def _is_ours(found: os.stat_result) -> bool:
    return sys.platform == "win32" or found.st_uid == os.geteuid()
