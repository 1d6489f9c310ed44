"""The compiled kernels as the plain Python that they are written in."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


@cache
def plain(name: str) -> ModuleType:
    """Return a module of kernels as it would be without a compiler."""
    path = Path(find_spec(name).origin)
    source = path.read_text(encoding="utf-8")
    compiled = "from fmepy.compiled.kernels import part\n"
    assert compiled in source
    module = ModuleType(name)
    exec(compile(source.replace(compiled, "part = lambda f: f\n"), str(path), "exec"), module.__dict__)
    return module
