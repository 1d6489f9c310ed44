"""Many small functions in LLVM's text, each compiled once: in this process, and in the next ones.

All of some functions that are not known yet become one program, and one object file in the folder of compiled code,
from which the next process reads them.
"""

from __future__ import annotations

import ctypes
import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from fmepy.compiled.c_loops import kept_code
from fmepy.compiled.llvm_operations import declarations
from fmepy.compiled.machine import object_of, optimised, versions

OWN_NAME = "@OWN"
"""What a function is called in its text, until it stands in a program."""
_LEVEL = 0
"""Of optimisation: 1 takes ten times as long, and the functions, which are short and written without what could be left
out, run no faster."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StoredFunction:
    """A function in machine code; it can be called as long as this object lives."""

    address: int
    code: Any


_known: WeakValueDictionary[str, StoredFunction] = WeakValueDictionary()
_lock = threading.Lock()


def stored_functions(
    texts: Sequence[str], called: Sequence[frozenset[tuple[str, int]]], what: str
) -> list[StoredFunction]:
    """Return functions in machine code.

    Parameters
    ----------
    texts : sequence of str
        Of each its definition, under the name `OWN_NAME`.
    called : sequence of frozenset of (str, int)
        The C functions that each calls, with their numbers of arguments.
    what : str
        What their object file is called.
    """
    with _lock:
        found = {text: known for text in texts if (known := _known.get(text)) is not None}
        new = {text: names for text, names in zip(texts, called, strict=True) if text not in found}
        if new:
            key = hashlib.sha256("\n".join([versions(), f"{_LEVEL}", *new]).encode()).hexdigest()[:32]
            code = kept_code(f"{what}-{key}", lambda: object_of(optimised(_program(new), _LEVEL), quick=True))
            places = ctypes.cast(code.place("functions"), ctypes.POINTER(ctypes.c_int64))[: len(new)]
            made = {text: StoredFunction(at, code) for text, at in zip(new, places, strict=True)}
            found |= made
            _known.update(made)
        return [found[text] for text in texts]


def _program(texts: dict[str, frozenset[tuple[str, int]]]) -> str:
    functions = [text.replace(OWN_NAME, f"@f{i}") for i, text in enumerate(texts)]
    table = ", ".join(f"ptr @f{i}" for i in range(len(functions)))
    heads = declarations(called for names in texts.values() for called in names)
    return "\n".join([heads, *functions, f"@functions = constant [{len(functions)} x ptr] [{table}]"])
