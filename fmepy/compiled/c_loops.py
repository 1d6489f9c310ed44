"""Loops that serve all models, as C functions: compiled once on a machine, kept as object files.

LLVM reads an object file back in milliseconds. A C function lets other threads run while it runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fmepy.compiled.dialect.translate import kernel_text, kinds_of
from fmepy.compiled.folder import cache_folder, prune, read_kept, write_kept
from fmepy.compiled.kernels import address as address
from fmepy.compiled.machine import Code, compiled, object_of, optimised, versions

logger = logging.getLogger(__name__)

_KINDS: dict[str, Any] = {"i": ctypes.c_int64, "d": ctypes.c_double, "p": ctypes.c_void_p}


@cache
def c_loop(kernel: Callable[..., None], what: str) -> Callable[..., None]:
    """Return a kernel in machine code; see `compiled.kernels` for what it gets.

    Parameters
    ----------
    kernel : callable
    what : str
        For the message at the first time, when it takes a moment.
    """
    name = f"{kernel.__module__.rpartition('.')[2]}_{kernel.__name__}"

    def make() -> bytes:
        logger.info("Compiling %s for the first time; this happens once and takes a second.", what)
        return object_of(optimised(kernel_text(kernel), 3, "run"))

    code = kept_code(f"{name}-{_digest(Path(inspect.getfile(kernel)).parent)}", make)
    function = ctypes.CFUNCTYPE(None, *(_KINDS[kind] for kind in kinds_of(kernel)))(code.address("run"))
    function.code = code  # type: ignore[attr-defined]  # it lives as long
    return function


def loop_address(kernel: Callable[..., None], what: str) -> int:
    """Return where the machine code of a kernel begins; it stays there while this process lives."""
    return int(c_loop(kernel, what).code.address("run"))  # type: ignore[attr-defined]  # `c_loop` has set it


def kept_code(name: str, make: Callable[[], bytes]) -> Code:
    """Return code whose object file is kept under a name; it is made where it is not there yet."""
    path = cache_folder() / f"{name}.o"
    made = read_kept(path)
    if made is None:
        made = make()
        write_kept(path, made)
        prune(path.parent)
    return Code(made)


def checked_loop(kernel: Callable[..., None], what: str = "") -> Callable[..., None]:
    """Return the same with every index looked at, slower and kept nowhere: for tests.

    Raises
    ------
    IndexError
        When it is called; an array was read or written beyond its end. What came of the call is worthless then.
    """
    sentences: list[str] = []
    code = compiled(kernel_text(kernel, sentences))
    kinds = [*(_KINDS[kind] for kind in kinds_of(kernel)), ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *kinds)(code.address("run"))

    def run(*arguments: Any, code: Code = code) -> None:  # which lives as long
        told = ctypes.c_int64()
        function(*arguments, ctypes.addressof(told))
        if told.value:
            raise IndexError(sentences[told.value - 1])

    return run


@cache
def _digest(folder: Path) -> str:
    """Return the hash of what may go into kernels of a room, and of what decides how code looks."""
    sources = [path.read_bytes() for at in (Path(__file__).parent, folder) for path in sorted(at.rglob("*.py"))]
    return hashlib.sha256(b"\n".join([versions().encode(), *sources])).hexdigest()[:32]
