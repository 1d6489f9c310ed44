"""Functions that are asked for again are the ones that there are; new ones are compiled beside them."""

from __future__ import annotations

import ctypes

from fmepy.compiled import function_store
from fmepy.compiled.function_store import PLACEHOLDER, stored_functions
from fmepy.compiled.machine import Code

TEXT = f"define internal double {PLACEHOLDER}(double %x) {{\n  %y = fmul double %x, FACTOR\n  ret double %y\n}}"
NONE: frozenset[tuple[str, int]] = frozenset()


def test_each_function_is_compiled_once_and_lives_as_long_as_it_is_held(monkeypatch):
    texts, programs = [TEXT.replace("FACTOR", f"{k}.0") for k in (2, 3, 4)], []
    write = function_store._program
    monkeypatch.setattr(function_store, "_program", lambda texts: programs.append(len(texts)) or write(texts))
    monkeypatch.setattr(function_store, "cached_code", lambda name, make: Code(make()))
    first = stored_functions(texts[:2], [NONE] * 2, "test")
    again = stored_functions(texts[::-1], [NONE] * 3, "test")
    assert programs == [2, 1]
    assert again[1] is first[1]
    kind = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
    assert [kind(f.address)(1.5) for f in again] == [6.0, 4.5, 3.0]
