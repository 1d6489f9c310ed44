"""Loops that serve all models, as C functions: compiled by numba once on a machine, kept as object files.

LLVM reads an object file back in milliseconds: a process that finds it does without numba. A C function lets other
threads run while it runs.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from fmepy.compiled.folder import folder_in_use, prune, read_kept, write_kept
from fmepy.compiled.machine import Code, versions

__all__ = ["address", "c_loop"]

logger = logging.getLogger(__name__)

_KINDS: dict[str, Any] = {"i": ctypes.c_int64, "d": ctypes.c_double, "p": ctypes.c_void_p, "q": ctypes.c_void_p}


@cache
def c_loop(module: str, name: str, kinds: str, what: str) -> Callable[..., None]:
    """Return a function of a module of this room in machine code.

    Parameters
    ----------
    module, name : str
    kinds : str
        One letter an argument: i(nteger), d(ouble), p(ointer to doubles), q (pointer to integers).
    what : str
        For the message at the first time, when it takes some seconds.
    """
    sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    digest = hashlib.sha256(b"\n".join([versions().encode(), *sources])).hexdigest()[:32]
    path = folder_in_use() / f"{module}_{name}-{digest}.o"
    made = read_kept(path)
    if made is None:
        logger.info("Compiling %s for the first time; this happens once and takes a few seconds.", what)
        from fmepy.compiled.kernels import object_file

        made = object_file(getattr(import_module(f"fmepy.compiled.{module}"), name), kinds)
        write_kept(path, made)
        prune(path.parent)
    code = Code(made)
    function = ctypes.CFUNCTYPE(None, *(_KINDS[kind] for kind in kinds))(code.address("run"))
    function.code = code  # type: ignore[attr-defined]  # it lives as long
    return function


def address(array: Any) -> int:
    """Return where the numbers of an array lie; it must be contiguous, and live while the address is used."""
    at: int = array.__array_interface__["data"][0]
    return at
