"""DMI: large models built from modules of statements and a data base kept apart from them."""

from fmepy.dmi.data_items import Item, item
from fmepy.dmi.database import Database
from fmepy.dmi.diagnostics import DiagnosticWarning
from fmepy.dmi.model import ModularModel
from fmepy.dmi.modules import Module, PythonModule, module, read_module_file, read_modules

__all__ = [
    "Database",
    "DiagnosticWarning",
    "Item",
    "ModularModel",
    "Module",
    "PythonModule",
    "item",
    "module",
    "read_module_file",
    "read_modules",
]


def __dir__() -> list[str]:
    return list(__all__)  # what completion offers
