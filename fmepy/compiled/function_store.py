"""Many small functions in LLVM's text, each compiled only once, for this process and later ones.

All requested functions that are not loaded yet become one program, and one object file in the cache folder, from which
later processes read them.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fmepy.compiled.c_loops import cached_code
from fmepy.compiled.llvm_operations import declarations
from fmepy.compiled.machine import object_of, optimised, versions

PLACEHOLDER = "@OWN"
"""Name of a function in its own text, replaced when it becomes part of a program."""
_LEVEL = 0
"""Optimisation level: 1 takes ten times as long to compile, and these short functions run no faster."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StoredFunction:
    """A function in machine code, callable as long as this object lives."""

    address: int
    code: Any


_loaded: WeakValueDictionary[str, StoredFunction] = WeakValueDictionary()
_lock = threading.Lock()


def stored_functions(
    texts: Sequence[str], called: Sequence[frozenset[tuple[str, int]]], what: str
) -> list[StoredFunction]:
    """Return functions in machine code.

    Parameters
    ----------
    texts : sequence of str
        Definition of each function, under the name `PLACEHOLDER`.
    called : sequence of frozenset of (str, int)
        The C functions that each calls, with their numbers of arguments.
    what : str
        Beginning of the name of their object file.
    """
    with _lock:
        found = {text: function for text in texts if (function := _loaded.get(text)) is not None}
        new = {text: names for text, names in zip(texts, called, strict=True) if text not in found}
        if new:
            key = hashlib.sha256("\n".join([versions(), f"{_LEVEL}", *new]).encode()).hexdigest()[:32]
            code = cached_code(f"{what}-{key}", lambda: object_of(optimised(_program(new), _LEVEL), quick=True))
            places = ctypes.cast(code.place("functions"), ctypes.POINTER(ctypes.c_int64))[: len(new)]
            compiled = {text: StoredFunction(at, code) for text, at in zip(new, places, strict=True)}
            found |= compiled
            _loaded.update(compiled)
        return [found[text] for text in texts]


def _program(texts: dict[str, frozenset[tuple[str, int]]]) -> str:
    functions = [text.replace(PLACEHOLDER, f"@f{i}") for i, text in enumerate(texts)]
    table = ", ".join(f"ptr @f{i}" for i in range(len(functions)))
    heads = declarations(called for names in texts.values() for called in names)
    return "\n".join([heads, *functions, f"@functions = constant [{len(functions)} x ptr] [{table}]"])
