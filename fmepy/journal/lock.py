"""One writer at a time in a folder: a lock of the operating system, which ends with its owner however that ends."""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fmepy.journal.files import MOST_TEXT, read_file

logger = logging.getLogger(__name__)

_FILE = "owner.json"
_HELD = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)  # what the systems say of a lock that somebody holds
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FAR = 1 << 30  # the locked byte on Windows, where what is locked cannot be read: far behind what the file holds


class InUseError(Exception):
    """Somebody else writes to a folder; the message says who."""


@contextmanager
def owned(folder: Path) -> Iterator[bool]:
    """Hold a folder; true if it can be written.

    Raises
    ------
    InUseError
        Another process, or another piece of work of this one, holds it.
    OSError
        The file of the lock cannot be made, other than by a lack of permission.

    Notes
    -----
    The file stays when the lock is given back: removing it could take it from under somebody who has just opened it.
    """
    file = folder / _FILE
    try:
        # not "w", which would empty that of the owner; and no link, which might lead to any file of the user's
        handle = open(file, "a+b", opener=lambda path, how: os.open(path, how | _NO_LINK, 0o666))  # noqa: SIM115
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        yield False
        return
    with handle:
        try:
            _lock(handle)
        except OSError as error:
            if error.errno in _HELD:
                raise InUseError(_owner(file)) from None
            logger.warning("%s cannot be locked (%s); see that nobody else writes to the folder.", file, error)
        handle.truncate(0)
        handle.write(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode())
        handle.flush()
        yield True


def _lock(handle: IO[bytes]) -> None:
    """Lock an open file, or raise OSError at once."""
    if os.name == "nt":
        import msvcrt

        handle.seek(_FAR)
        msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
    else:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _owner(file: Path) -> str:
    try:
        owner = json.loads(read_file(file, MOST_TEXT))
        return f"process {int(owner['pid'])} on {owner['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
