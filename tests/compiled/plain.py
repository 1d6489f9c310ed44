"""The compiled kernels as the plain Python that they are written in."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def plain(name: str) -> ModuleType:
    """Return a module of kernels as it would be without a compiler."""
    return import_module(name)
