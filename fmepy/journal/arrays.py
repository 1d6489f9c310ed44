"""Arrays in a file of numpy's (``.npz``), read with suspicion: nothing is allocated that the file does not hold.

Only what `numpy.savez` writes is taken: members that are not compressed, of plain numbers and texts. A member is read
when it is asked for.
"""

from __future__ import annotations

import hashlib
import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from fmepy.journal.files import MOST_ARRAYS, open_file

DAMAGE = (OSError, ValueError, LookupError, TypeError, EOFError, RecursionError, NotImplementedError, RuntimeError,
          zipfile.BadZipFile, zlib.error)  # fmt: skip
"""What reading arrays raises of a file that was cut or changed."""
_KINDS = "biufcSUMm"
_CHUNK = 1 << 20
_ENDS = 98  # bytes: where the list of members lies, of a file of any size
_MOST_LIST = 50_000_000  # bytes of that list, of a quarter of a million members


class Arrays(Mapping[str, Any]):
    """The arrays of an open file, by name."""

    def __init__(self, zipped: zipfile.ZipFile) -> None:
        self._zipped = zipped
        self._members = {info.filename.removesuffix(".npy"): info for info in zipped.infolist()}
        self._read: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __getitem__(self, name: str) -> Any:
        if name not in self._read:
            self._read[name] = self._array(self._members[name])
        return self._read[name]

    def _array(self, info: zipfile.ZipInfo) -> Any:
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise ValueError(f"{info.filename} is compressed")
        with self._zipped.open(info) as entry:
            if np.lib.format.read_magic(entry) != (1, 0):
                raise ValueError("an array of another format")
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(entry)
            if dtype.hasobject:
                raise ValueError("it holds a pickle, which is never read, as it can run any code")
            size, left = math.prod(shape) * dtype.itemsize, info.file_size - entry.tell()
            if dtype.kind not in _KINDS or dtype.names is not None or size != left:
                raise ValueError(f"{info.filename} is an array of {dtype} and shape {shape} in {left} bytes")
            data = np.empty(size, np.uint8)
            at = 0
            while part := entry.read(_CHUNK):
                data[at : at + len(part)] = np.frombuffer(part, np.uint8)
                at += len(part)
        if at != size:
            raise ValueError(f"{info.filename} is cut off")
        return data.view(dtype).reshape(shape, order="F" if fortran else "C")


def array_digest(arrays: Mapping[str, Any]) -> str:
    """Return a digest of some arrays and of their names."""
    held = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name])
        held.update(f"{name} {values.dtype.str} {values.shape};".encode())
        held.update(np.ascontiguousarray(values).tobytes())
    return held.hexdigest()


@contextmanager
def open_arrays(path: str | os.PathLike[str]) -> Iterator[Arrays]:
    """Yield the arrays of a file; what is wrong with it is one of `DAMAGE`, here or when an array is asked for."""
    with open_file(path, MOST_ARRAYS) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _ENDS))
        end = file.read()
        far = end[56:60] == b"PK\x06\x07"  # a list of more than 65,535 members, or one that lies beyond 4 GB
        listed = int.from_bytes(end[40:48] if far else end[-10:-6], "little")
        if end[-22:-18] != b"PK\x05\x06" or end[-2:] != b"\0\0" or listed > _MOST_LIST:
            raise zipfile.BadZipFile("it is cut off, or no file of arrays")
        with zipfile.ZipFile(file) as zipped:
            yield Arrays(zipped)
