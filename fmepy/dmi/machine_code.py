"""Statements of modules as machine code: what is written alike is compiled once, in this process and in the next ones.

All statements of a system that are not known yet become one program of LLVM's, and one object file in the folder of
compiled code, from which the next process reads them. A changed module adds what it has of its own.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fmepy.compiled.folder import cache_folder, prune, read_kept, write_kept
from fmepy.compiled.llvm_operations import declarations
from fmepy.compiled.machine import Code, object_of, optimised, versions
from fmepy.dmi.llvm import OWN_NAME, TABLE

logger = logging.getLogger(__name__)

_LEVEL = 0
"""Of optimisation: 1 takes ten times as long, and the functions, which are short and written without what could be left
out, run no faster."""

Text = tuple[str, frozenset[tuple[str, int]]]
"""Of a function: LLVM's text, and the C functions that it calls."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Compiled:
    """A function in machine code; it can be called as long as this object lives."""

    address: int
    code: Any


_known: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
_lock = threading.Lock()


def compiled_statements(texts: Sequence[Text]) -> list[Compiled]:
    """Return the functions of texts, in their order."""
    with _lock:
        found = {text: known for text, _ in texts if (known := _known.get(text)) is not None}
        new = {text: called for text, called in texts if text not in found}
        if new:
            made = _made(new)
            found |= made
            _known.update(made)
        return [found[text] for text, _ in texts]


def _made(texts: dict[str, frozenset[tuple[str, int]]]) -> dict[str, Compiled]:
    key = hashlib.sha256("\n".join([versions(), f"{_LEVEL}", TABLE, *texts]).encode()).hexdigest()[:32]
    path = cache_folder() / f"modules-{key}.o"
    made = read_kept(path)
    if made is None:
        logger.debug("Compiling %d statements of modules.", len(texts))
        made = object_of(optimised(_program(texts), _LEVEL), quick=True)
        write_kept(path, made)
        prune(path.parent)
    code = Code(made)
    addresses = ctypes.cast(code.place("functions"), ctypes.POINTER(ctypes.c_int64))[: len(texts)]
    return {text: Compiled(a, code) for text, a in zip(texts, addresses, strict=True)}


def _program(texts: dict[str, frozenset[tuple[str, int]]]) -> str:
    functions = [text.replace(OWN_NAME, f"@f{i}") for i, text in enumerate(texts)]
    table = ", ".join(f"ptr @f{i}" for i in range(len(functions)))
    heads = declarations(called for names in texts.values() for called in names)
    return "\n".join([heads, TABLE, *functions, f"@functions = constant [{len(functions)} x ptr] [{table}]"])
