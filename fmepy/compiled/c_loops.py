"""Loops shared by all models, as C functions: compiled once on a machine and cached as object files.

LLVM reads an object file back in milliseconds. Python's lock is released while a C function runs.
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
from fmepy.compiled.folder import cache_folder, prune, read_cached, write_cached
from fmepy.compiled.kernels import address as address
from fmepy.compiled.machine import Code, compiled, object_of, optimised, versions

logger = logging.getLogger(__name__)

_KINDS: dict[str, Any] = {"i": ctypes.c_int64, "d": ctypes.c_double, "p": ctypes.c_void_p}


@cache
def c_loop(kernel: Callable[..., None], what: str) -> Callable[..., None]:
    """Return a kernel as a C function; see `compiled.kernels` for its arguments.

    Parameters
    ----------
    kernel : callable
    what : str
        Its name in the message of the first compilation, which takes a moment.
    """
    name = f"{kernel.__module__.rpartition('.')[2]}_{kernel.__name__}"

    def make() -> bytes:
        logger.info("Compiling %s for the first time; this happens once and takes a second.", what)
        return object_of(optimised(kernel_text(kernel), 3, "run"))

    code = cached_code(f"{name}-{_digest(Path(inspect.getfile(kernel)).parent)}", make)
    function = ctypes.CFUNCTYPE(None, *(_KINDS[kind] for kind in kinds_of(kernel)))(code.address("run"))
    function.code = code  # type: ignore[attr-defined]  # keeps the code alive
    return function


def loop_address(kernel: Callable[..., None], what: str) -> int:
    """Return the address of a kernel's machine code, valid while this process lives."""
    return int(c_loop(kernel, what).code.address("run"))  # type: ignore[attr-defined]  # `c_loop` has set it


def cached_code(name: str, make: Callable[[], bytes]) -> Code:
    """Return code from the object file cached under a name; `make` compiles it if there is none yet."""
    path = cache_folder() / f"{name}.o"
    object_file = read_cached(path)
    if object_file is None:
        object_file = make()
        write_cached(path, object_file)
        prune(path.parent)
    return Code(object_file)


def checked_loop(kernel: Callable[..., None], what: str = "") -> Callable[..., None]:
    """Return the same as `c_loop` with every index checked, slower and not cached: for tests.

    Raises
    ------
    IndexError
        When called, if an array was read or written beyond its end; the results are then meaningless.
    """
    sentences: list[str] = []
    code = compiled(kernel_text(kernel, sentences))
    kinds = [*(_KINDS[kind] for kind in kinds_of(kernel)), ctypes.c_void_p]
    function = ctypes.CFUNCTYPE(None, *kinds)(code.address("run"))

    def run(*arguments: Any, code: Code = code) -> None:  # keeps the code alive
        failed = ctypes.c_int64()
        function(*arguments, ctypes.addressof(failed))
        if failed.value:
            raise IndexError(sentences[failed.value - 1])

    return run


@cache
def _digest(folder: Path) -> str:
    """Return a hash of all sources that kernels of a folder may use, and of LLVM's version and the machine."""
    sources = [path.read_bytes() for at in (Path(__file__).parent, folder) for path in sorted(at.rglob("*.py"))]
    return hashlib.sha256(b"\n".join([versions().encode(), *sources])).hexdigest()[:32]
