# mypy: allow-untyped-calls
"""Where compiled code is kept: numba's cache, in our own folder, whatever numba's settings say, and mended by itself.

numba reads its settings from ``.numba_config.yaml`` in the current directory too, and what it finds in a cache are
pickles, which run: whoever can put that file where a user works could lead numba to a folder of his own. So where our
code is kept is not numba's decision, see `compiled.folder`. numba may have been imported by
somebody else before; his functions keep his settings.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import pickle
import sys
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from fmepy.compiled.folder import folder_in_use, read_kept, write_kept
from fmepy.compiled.numba_code import GENERATED

__all__ = ["cfunc", "njit"]

logger = logging.getLogger(__name__)


def njit(*signatures: Any, cache: bool = False, **options: Any) -> Any:
    """Return numba's njit, as decorator, with or without signatures; with ``cache=True`` the code is kept here."""
    if len(signatures) == 1 and isinstance(signatures[0], types.FunctionType):
        return njit(cache=cache, **options)(signatures[0])

    def decorated(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if dispatcher is function:  # compilation is switched off
            return function
        if cache:
            dispatcher._cache = _Kept(function)
        for signature in signatures:
            dispatcher.compile(signature)
        if signatures:
            dispatcher.disable_compile()
        return dispatcher

    return decorated


def cfunc(signature: Any, *, cache: bool = False, **options: Any) -> Any:
    """Return numba's cfunc, as decorator; with ``cache=True`` the code is kept here."""

    def decorated(function: Callable[..., Any]) -> Any:
        compiled: Any = CFunc(function, normalize_signature(signature), locals={}, options=options)
        if cache:
            compiled._cache = _Kept(function)
        compiled.compile()
        return compiled

    return decorated


class _Place:
    """What numba calls a locator: the folder of a function's files, and the stamp of its source."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = inspect.getfile(function)
        self.generated = Path(self._py_file).name.startswith(GENERATED)

    def get_cache_path(self) -> str:
        folder = str(folder_in_use())
        if self.generated:
            return folder
        where = hashlib.sha256(os.path.dirname(self._py_file).encode()).hexdigest()[:16]
        return os.path.join(folder, where)  # by where its source lies: there may be several installations

    def ensure_cache_path(self) -> None:
        os.makedirs(self.get_cache_path(), mode=0o700, exist_ok=True)

    def get_source_stamp(self) -> Any:
        if self.generated:  # its name is a hash of what it holds
            return ""
        try:
            found = os.stat(self._py_file)
        except OSError:  # in an archive
            from fmepy import __version__

            return __version__
        return found.st_mtime, found.st_size


class _Impl(CompileResultCacheImpl):
    """numba's own, at our place."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Place(function)
        name = f"{Path(inspect.getfile(function)).stem}.{function.__qualname__}"
        version = f"py{sys.version_info[0]}{sys.version_info[1]}{getattr(sys, 'abiflags', '')}"
        base = f"{name}-{self._lineno}.{version}"
        self._filename_base = base.replace("<", "").replace(">", "")


class _Files(IndexDataCacheFile):
    """The index of a function's signatures, and one file for the code of each."""

    def _load_index(self) -> dict[Any, str]:
        found = _load(Path(self._index_path))
        if found is None or found[0] != (self._version, self._source_stamp):
            return {}
        overloads: dict[Any, str] = found[1]
        return overloads

    def _save_index(self, overloads: dict[Any, str]) -> None:
        _save(Path(self._index_path), ((self._version, self._source_stamp), overloads))

    def _data_name(self, number: int) -> str:  # of its own, so that no other process writes another signature there
        return f"{self._index_name.removesuffix('.nbi')}.{uuid.uuid4().hex[:12]}.nbc"

    def _load_data(self, name: str) -> Any:
        found = _load(Path(self._data_path(name)))
        if found is None:
            raise FileNotFoundError(name)  # as the caller expects it
        return found

    def _save_data(self, name: str, data: Any) -> None:
        _save(Path(self._data_path(name)), data)


class _Kept(FunctionCache):
    """The cache of one function."""

    _impl_class = _Impl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        place = self._impl.locator
        self._cache_file = _Files(place.get_cache_path(), self._impl.filename_base, place.get_source_stamp())

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return super().load_overload(signature, context)
        except Exception as error:  # whatever a file holds, the function can be compiled
            logger.info("Compiled code of %s cannot be used and is made anew: %s", self._name, error)
            return None


def _load(path: Path) -> Any:
    """Return what a file holds; None if there is none, or it cannot be read, and then it is removed."""
    data = read_kept(path)
    try:
        return None if data is None else pickle.loads(data)
    except Exception as error:
        logger.info("%s cannot be used (%s); what it held is compiled anew.", path, error)
        path.unlink(missing_ok=True)
        return None


def _save(path: Path, value: Any) -> None:
    write_kept(path, dumps(value))
