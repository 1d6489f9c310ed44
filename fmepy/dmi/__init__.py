"""DMI: large models built from modules of statements and a data base kept apart from them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fmepy.dmi.data_items import Item, item
from fmepy.dmi.database import Database
from fmepy.dmi.diagnostics import DiagnosticWarning
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module, PythonModule, module, read_module_file, read_modules

if TYPE_CHECKING:
    from fmepy.exchange.vensim import VensimModel, read_vensim

__all__ = [
    "Database",
    "DiagnosticWarning",
    "Item",
    "ModularModel",
    "Module",
    "PythonModule",
    "VensimModel",
    "item",
    "module",
    "read_module_file",
    "read_modules",
    "read_vensim",
]


def __getattr__(name: str) -> Any:
    """Return `read_vensim` and what it makes, of a room above this one, at their first use."""
    if name in ("VensimModel", "read_vensim"):
        return getattr(import_module("fmepy.exchange.vensim"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)  # what completion offers
