"""What a Python file of the user holds: a model, a cost, or a function, of a cost or of a table."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from fmepy.costs.modcost import ModCost, modCost
from fmepy.errors import ArgumentError, FmepyError, SimulationError, did_you_mean
from fmepy.journal.files import MOST_TEXT, open_file
from fmepy.tables.text_files import unreadable
from fmepy.workflow.file.case import Case
from fmepy.workflow.file.toml import TomlTable

_INSTALLED = (Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[2])
_LOCAL: set[str] = set()
"""Modules that the last file imported from its own folder."""


def split_name(section: TomlTable) -> tuple[Path, str]:
    """Return file and object of the key ``python`` of a section [model]; nothing is imported."""
    text = str(section.data["python"])
    file, _, name = text.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise section.error(
            "python", f"`python` = {text!r} must name a file and what is in it, such as 'model.py:model'."
        )
    path = section.path_of(file)
    try:
        open_file(path, MOST_TEXT).close()
    except OSError as error:
        raise section.error("python", unreadable(error, path)) from None
    return path, name


def read_python(section: TomlTable) -> tuple[Any, list[Path]]:
    """Return the object, its file, and the files that this one imports from its folder.

    The folder is put on Python's path, as it is when a file is run. What a program that asks has imported of it is set
    aside meanwhile: what is run, and what counts as an input, is the current content of the files.

    Raises
    ------
    ArgumentError
        The file cannot be imported (with its line), or holds no such object.
    """
    import cloudpickle

    path, name = split_name(section)
    folder = path.parent.resolve()
    of_caller = {n: m for n, m in list(sys.modules.items()) if n not in _LOCAL and _is_local(n, m, folder)}
    for other in (*_LOCAL, *of_caller):
        sys.modules.pop(other, None)
    _LOCAL.clear()
    sys.path[:] = [str(folder), *(p for p in sys.path if p != str(folder))]
    importlib.invalidate_caches()
    try:
        module = _imported(section, path)
        imported = {n: m for n, m in list(sys.modules.items()) if m is not module and _is_local(n, m, folder)}
        for one in (module, *imported.values()):  # workers know no modules of these names
            cloudpickle.register_pickle_by_value(one)
        _LOCAL.update(imported.keys() - of_caller.keys())
    finally:
        sys.modules.update(of_caller)
    if not hasattr(module, name):
        public = [n for n in vars(module) if not n.startswith("_")]
        raise section.error("python", f"{path.name} holds no {name!r}.{did_you_mean(name, public)}")
    thing = getattr(module, name)
    if not callable(thing):
        raise section.error(
            "python",
            f"{name!r} of {path.name} must be a model, a cost or a function f(p); it is {type(thing).__name__}.",
        )
    return thing, sorted({path.resolve(), *map(_file_of, imported.values())})


def _is_local(name: str, module: Any, folder: Path) -> bool:
    return name != "__main__" and isinstance(module, ModuleType) and is_own(_file_of(module), folder)


def is_own(file: str | Path, folder: Path) -> bool:
    """Tell whether a file is the user's: in a folder or below, and not of a library that lies there."""
    path = Path(file)
    if "site-packages" in path.parts or not path.is_file():
        return False
    above, of_folder = path.resolve().parents, (folder, *folder.parents)
    return folder in above and not any(p in above and p not in of_folder for p in _INSTALLED)


def _file_of(module: ModuleType) -> Path:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else Path()


def _imported(section: TomlTable, path: Path) -> ModuleType:
    """Import a file as a new module."""
    spec = importlib.util.spec_from_file_location(f"_fmepy_case_{path.stem}", path)
    assert spec is not None, "its suffix is .py"
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a file of the user does, sys.exit among it
        line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
        for frame in traceback.extract_tb(error.__traceback__):
            if Path(frame.filename) == path:
                line = frame.lineno
        where = f"{path}:{line}" if line else str(path)
        text = f"{type(error).__name__}: {getattr(error, 'msg', None) or error}"
        raise section.error("python", f"it cannot be imported: {where}: {text}") from None
    return module


OF_TABLES = ("weight", "scaleVar", "outside")
"""What a section ``cost`` may say of a function: the arguments of `modCost`."""


@dataclass(frozen=True, eq=False)
class WithFixed:
    """A user's function with some parameters fixed; its errors name file and line.

    Attributes
    ----------
    function : callable
        ``f(p)``, of a dict.
    fixed : mapping of str to float
    folder : Path
        That of its file.
    """

    function: Callable[[dict[str, float]], Any]
    fixed: Mapping[str, float]
    folder: Path

    def __call__(self, p: Mapping[str, float]) -> Any:
        """Return ``f`` of the fixed parameters and of those given."""
        try:
            return self.function({**self.fixed, **p})
        except FmepyError:
            raise
        except Exception as error:
            where = line_of(error, self.folder)
            raise SimulationError(f"{where}{': ' if where else ''}{type(error).__name__}: {error}") from error


def line_of(error: BaseException, folder: Path) -> str:
    """Return file and line of a user's code in which an error, or what caused it, was raised; "" if there is none."""
    for cause in causes(error):
        own = [f for f in traceback.extract_tb(cause.__traceback__) if is_own(f.filename, folder.resolve())]
        if own:
            return f"{own[-1].filename}:{own[-1].lineno}"
    return ""


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and what caused it, from the last to the first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@dataclass(frozen=True, eq=False)
class FunctionModel(WithFixed):
    """A user's function of parameters that returns a table; `fixed` holds all of the file's, where none is given."""

    @property
    def parms(self) -> pd.Series[float]:
        """The parameters of the file."""
        return pd.Series(self.fixed, dtype=float)


@dataclass(frozen=True, eq=False)
class TableCost:
    """A function's table compared with data.

    Attributes
    ----------
    model : FunctionModel
    obs : DataFrame
    words : mapping
        The other arguments of `modCost`.
    """

    model: FunctionModel
    obs: pd.DataFrame
    words: Mapping[str, Any]

    def __call__(self, p: Mapping[str, float]) -> ModCost:
        """Return the cost of a run."""
        table = self.model(p)
        if not isinstance(table, pd.DataFrame | Mapping):
            raise ArgumentError(
                f"the function must return a table, a column {self.words['x']!r} and one for each variable, as the "
                f"section [cost] holds it against the data; it returned {type(table).__name__}. A function that "
                "returns a cost needs no [cost]."
            )
        return modCost(table, self.obs, **self.words)


def table_cost(case: Case, model: FunctionModel, obs: pd.DataFrame, arguments: Mapping[str, Any]) -> TableCost:
    """Return the cost of a function that is a model.

    Raises
    ------
    ArgumentError
        With the line: the sections ``cost`` and ``data`` say what only models of fmepy can do.
    """
    settings = case.content["cost"]
    wrong = [("cost", k) for k in settings if k not in ("kind", *OF_TABLES)]
    wrong += [("cost", "kind")] if settings.get("kind", "simulation") != "simulation" else []
    wrong += [("data", k) for k in ("entity", "censored") if k in arguments]
    for place in wrong:
        raise case.section.error(
            place,
            f"`{place[1]}` is for a Model; {case.content['model']['python']!r} is a function, whose table is compared "
            f"as `modCost` does: [cost] may hold {', '.join(OF_TABLES)}.",
        )
    keywords = {k: v for k, v in settings.items() if k in OF_TABLES}
    return TableCost(model, obs, {**keywords, **arguments})
