"""DMI: large models built from modules of statements and a data base kept apart from them."""

from fmepy.dmi.diagnostics import DiagnosticWarning
from fmepy.dmi.modules import Module, PythonModule, module, read_module_file, read_modules

__all__ = ["DiagnosticWarning", "Module", "PythonModule", "module", "read_module_file", "read_modules"]
