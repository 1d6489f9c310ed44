"""Modules: named blocks of statements, as text, as files, or as Python functions."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from fmepy.checks import as_path, whole_number
from fmepy.dmi.expressions import name_problem
from fmepy.dmi.statements import FunctionStatement, Reference, Shape
from fmepy.dmi.text import Declared, ModuleText, checked_shape, read_module
from fmepy.errors import ArgumentError, ModelError, check_known, counted, did_you_mean, listed, repeated
from fmepy.journal.files import MOST_TEXT
from fmepy.parameters.names import normal_name
from fmepy.tables.text_files import read_text

SUFFIX = ".fme"
"""The suffix of files of modules."""


@dataclass(frozen=True, slots=True, init=False)
class Module(ModuleText):
    """A named block of statements in the language of `dmi.text`, in any order.

    Parameters
    ----------
    name : str
        The name of the module, in messages and in the variable map.
    text : str
        Its statements and declarations, one a line::

            OB = SM * SE                    assignment: OB is endogenous
            d(SM)/dt = (ISM - SM) / SAT     level
            SM(0) = 10                      its initial value, by default from the data base
            dims D[3], A[2,3]               vectors and matrices
            D[0] = 2 * D[1]                 elements, counted from 0
            subscripts region: north, south names of elements: dims B[region], B[north] = 1
            nonnegative SM                  a level that stays at 0 or above
            step 2                          the module is active at every second elementary step
            local a, b                      names that are not shared with other modules
            exogenous x                     its initial value comes from the data base
            endogenous y                    needs no data
            output OB, SM                   variables of interest

        ``#`` begins a comment, a line continues while a bracket is open. Time is ``t``.
    step : int, optional
        The module's step, in elementary steps. This and the following take precedence over declarations in the text.
    local, exogenous, endogenous : sequence of str, optional
        Names as in the declarations above.
    dims : mapping of str to int or tuple of int, optional
        Shapes of vectors and matrices, such as ``{"D": 3, "A": (2, 3)}``; names without are scalars.
    outputs : sequence of str, optional
        Variables of interest.
    file : str, optional
        The file of the text, for messages.

    Attributes
    ----------
    statements : tuple of ModuleStatement
        The statements of the text.
    assigns, reads : tuple of str
        The assigned names, and the names that are read, in the order of the text.
    names : mapping of str to int
        All of them, with the line where each occurs first.
    open : tuple of str
        The points of tables without dims, whose dims come from the data base.
    points : tuple of str
        The tables with points in the text, which are in `dims`, too.
    units : mapping of str to str
        Units in brackets after statements.

    Raises
    ------
    ModelTextError
        The text cannot be read; the message has the line and a caret under the place.
    ModelError
        A name, a step or dimensions are invalid.

    Notes
    -----
    Text executes no code: it is parsed, and only arithmetic, comparisons, names and the functions of `dmi.expressions`
    are allowed. Two modules are equal if their texts and arguments are.

    Examples
    --------
    >>> import fmepy as fme
    >>> sales = fme.dmi.Module("sales", '''
    ...     OB = SM * SE                     # orders booked by SM salesmen
    ...     d(SM)/dt = (ISM - SM) / SAT
    ...     SM(0) = 10
    ... ''')
    >>> sales
    Module('sales', 3 statements)
    >>> sales.assigns, sales.reads
    (('OB', 'SM'), ('SM', 'SE', 'ISM', 'SAT'))
    """

    name: str
    text: str = field(repr=False)
    file: str = field(compare=False)

    def __init__(
        self, name: str, text: str, *, step: int = 1, local: Sequence[str] = (), exogenous: Sequence[str] = (),
        endogenous: Sequence[str] = (), dims: Mapping[str, int | Sequence[int]] | None = None,
        outputs: Sequence[str] | None = None, file: str = "",
    ) -> None:  # fmt: skip
        name = _module_name(name)
        where = file or f"module {name!r}"
        if not isinstance(text, str):
            raise ModelError(f"{where}: the text of a module is a str; got {type(text).__name__}.")
        arguments = Declared(
            step=_step(step, where),
            dims=_dims(dims, where),
            local=_names(local, "local", where),
            exogenous=_names(exogenous, "exogenous", where),
            endogenous=_names(endogenous, "endogenous", where),
            outputs=None if outputs is None else _names(outputs, "outputs", where),
        )
        both = [n for n in arguments.exogenous if n in arguments.endogenous]
        if both:
            raise ModelError(f"{where}: {listed(both)} cannot be exogenous and endogenous.")
        read = read_module(text, name, where, arguments)
        values = {of.name: getattr(read, of.name) for of in fields(read)} | {"name": name, "text": text, "file": file}
        for word, value in values.items():
            object.__setattr__(self, word, value)

    def with_dims(self, dims: Mapping[str, Shape]) -> Module:
        """Return the module with further dimensions; itself where there are none."""
        if not dims:
            return self
        words: Any = {w: getattr(self, w) for w in ("step", "local", "exogenous", "endogenous", "outputs", "file")}
        return Module(self.name, self.text, dims={**self.dims, **dims}, **words)

    def __repr__(self) -> str:
        step = f", step={self.step}" if self.step != 1 else ""
        return f"Module({self.name!r}, {counted(len(self.statements), 'statement')}{step})"


@dataclass(frozen=True, slots=True)
class PythonModule(Declared):
    """A module that is a Python function; `dmi.module` makes it.

    Attributes
    ----------
    function : callable
        Takes the values of `reads`, one argument each, and returns those of `assigns`: one value, a tuple, or a dict.
    name : str
        The name of the function.
    reads, assigns : tuple of str
        The variables that it reads and assigns.
    step : int
        Its step, in elementary steps.
    dims : mapping of str to tuple of int
        Shapes of arrays among them, which are numpy arrays for the function.
    """

    function: Callable[..., Any]
    name: str
    reads: tuple[str, ...]
    assigns: tuple[str, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the function returns."""
        return self.function(*args, **kwargs)

    @property
    def file(self) -> str:
        """The file of the function."""
        code = getattr(self.function, "__code__", None)
        return code.co_filename if code else ""

    @property
    def names(self) -> Mapping[str, int]:
        """All its names, and the line of the function."""
        code = getattr(self.function, "__code__", None)
        return dict.fromkeys((*self.reads, *self.assigns), code.co_firstlineno if code else 0)

    @property
    def statements(self) -> tuple[FunctionStatement, ...]:
        """The call of this module, as one statement; the module can be pickled even if its function cannot."""
        reads, assigns = (tuple(Reference(n, self.dims.get(n, ())) for n in v) for v in (self.reads, self.assigns))
        return (FunctionStatement(self, reads, assigns, self.name, next(iter(self.names.values()))),)

    def __repr__(self) -> str:
        return f"PythonModule({self.name!r}, {', '.join(self.reads) or 'nothing'} -> {', '.join(self.assigns)})"

    def __reduce__(self) -> Any:
        """Pickle by name, as functions are, if the decorated name can be imported; else by content."""
        name = f"{self.function.__module__}:{self.function.__qualname__}"
        with suppress(AttributeError, ImportError, ValueError):
            if pkgutil.resolve_name(name) is self:
                return pkgutil.resolve_name, (name,)
        constructor = partial(PythonModule, step=self.step, dims=dict(self.dims))
        return constructor, (self.function, self.name, self.reads, self.assigns)


AnyModule: TypeAlias = Module | PythonModule


def module(
    reads: Iterable[str], assigns: Iterable[str], step: int = 1, dims: Mapping[str, int | Sequence[int]] | None = None
) -> Callable[[Callable[..., Any]], PythonModule]:
    """Return a decorator that makes a module of a Python function: an algorithm, an optimisation inside.

    Parameters
    ----------
    reads, assigns : sequence of str
        The variables whose values the function takes, in this order, and those that it returns: one value, a tuple in
        this order, or a dict by name.
    step : int, optional
        The module's step, in elementary steps.
    dims : mapping of str to int or tuple of int, optional
        Shapes of vectors and matrices among them: the function takes and returns numpy arrays for these.

    Returns
    -------
    callable
        The decorator; what it returns bears the function's name and can still be called.

    Raises
    ------
    ModelError
        Names are invalid, or the function does not take as many values.

    Notes
    -----
    The function is called once with symbols, and its operations are compiled and converted to equations, as text is. If
    that is not possible, it runs as Python, and `ModularModel.engine_note` says why: it decides by ``if``, ``min`` or
    ``max`` on a value (`np.where`, `np.minimum`, `np.maximum` can be traced), calls ``math.exp`` (`np.exp` can be
    traced), another package or ``print``, or uses values that may change between two calls.

    Examples
    --------
    >>> import fmepy as fme
    >>> @fme.dmi.module(reads=("price", "demand"), assigns=("supply", "cost"))
    ... def dispatch(price, demand):
    ...     supply = min(demand, 10 * price)
    ...     return supply, 0.5 * supply
    >>> dispatch
    PythonModule('dispatch', price, demand -> supply, cost)
    >>> dispatch(2.0, 30.0)
    (20.0, 10.0)
    """
    read_names, assigned_names = _names(reads, "reads", "module"), _names(assigns, "assigns", "module")
    if not assigned_names:
        raise ModelError("`assigns` is empty; a module gives a value to one variable at least.")
    shapes = _dims(dims, "module")
    unknown = [n for n in shapes if n not in (*read_names, *assigned_names)]
    if unknown:
        near = did_you_mean(unknown[0], (*read_names, *assigned_names))
        raise ModelError(f"`dims` names {listed(unknown)}, which the module neither reads nor assigns.{near}")
    steps = _step(step, "module")

    def decorate(function: Callable[..., Any]) -> PythonModule:
        name = getattr(function, "__name__", "")
        if not callable(function) or not name.isidentifier():
            raise ModelError(f"a module is a function with a name, written with def; got {function!r}.")
        _check_signature(function, read_names, name)
        return PythonModule(function, _module_name(name), read_names, assigned_names, step=steps, dims=shapes)

    return decorate


def _check_signature(function: Callable[..., Any], reads: tuple[str, ...], name: str) -> None:
    """Refuse a function whose parameters are not the variables that the module reads, in their order."""
    try:
        signature = inspect.signature(function)
        signature.bind(*reads)
    except TypeError:
        raise ModelError(
            f"module {name!r}: the function takes {signature}, the module reads {len(reads)} variable"
            f"{'s' * (len(reads) != 1)}: {listed(reads)}. It is called with their values in this order."
        ) from None
    except ValueError:  # C functions without a signature
        return
    named = tuple(signature.parameters)
    if named != reads and set(named) == set(reads):
        raise ModelError(f"module {name!r}: the function takes {listed(named)}, in another order than `reads={reads}`.")


# --- files


def read_modules(folder: str | Path) -> list[Module]:
    """Return the modules of a folder: its files ``*.fme`` in the order of their names.

    Parameters
    ----------
    folder : str or Path
        The folder; each file in it is one module, with the stem of the file as its name.

    Returns
    -------
    list of Module
        In the order of the files' names.

    Raises
    ------
    ModelError
        There is no such folder, no such file in it, or a file is not text in UTF-8; two names that are the same.
    ModelTextError
        A text cannot be read; the message begins with the file and the line.

    Examples
    --------
    >>> import fmepy as fme, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (pathlib.Path(folder) / "stock.fme").write_text("d(S)/dt = inflow - S / 5")
    ...     _ = (pathlib.Path(folder) / "flow.fme").write_text("inflow = 2 + 0.1 * S")
    ...     fme.dmi.read_modules(folder)
    [Module('flow', 1 statement), Module('stock', 1 statement)]
    """
    path = as_path(folder, "folder")
    if not path.is_dir():
        what = "is a file; its folder is wanted, or dmi.read_module(file)" if path.exists() else "does not exist"
        raise ModelError(f"the folder of modules {str(folder)!r} {what}.")
    files = sorted(f for f in path.iterdir() if f.suffix == SUFFIX and f.is_file())
    if not files:
        others = listed(sorted(f.name for f in path.iterdir()))
        raise ModelError(f"there is no module in {str(folder)!r}: no file *{SUFFIX} (it holds {others}).")
    modules = [read_module_file(f) for f in files]
    check_different(modules)
    return modules


def read_module_file(file: str | Path) -> Module:
    """Return the module of a file; the stem of the file is its name.

    Raises
    ------
    ModelError
        The file cannot be read, or is not text in UTF-8.
    ModelTextError
        Its text cannot be read.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "sales.fme")
    ...     _ = file.write_text("orders = market * share")
    ...     read_module_file(file).name
    'sales'
    """
    path = as_path(file, "file")
    return Module(path.stem, read_text(path, MOST_TEXT, ModelError), file=str(file))


def check_different(modules: Iterable[AnyModule]) -> None:
    """Refuse two modules with the same name."""
    seen: dict[str, AnyModule] = {}
    for m in modules:
        if m.name in seen:
            files = [str(f) for f in (seen[m.name].file, m.file) if f]
            where = f" ({', '.join(files)})" if files else ""
            raise ModelError(f"two modules are called {m.name!r}{where}; each has a name of its own.")
        seen[m.name] = m


def changed_modules(modules: Iterable[AnyModule], changes: Mapping[str, AnyModule | None]) -> list[AnyModule]:
    """Return modules with some changed or appended by name, or removed, where the change is None."""
    by_name = {m.name: m for m in modules}
    for name, module in changes.items():
        if module is None:
            check_known(name, by_name, f"`modules`: there is no module {name!r} to take out.", ModelError)
            del by_name[name]
        elif getattr(module, "name", name) != name:
            raise ModelError(f"`modules`: under {name!r} stands the module {module.name!r}; their names must agree.")
        else:
            by_name[name] = module
    return list(by_name.values())


# --- checks


def _module_name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise ModelError(f"the name of a module is a text such as 'sales'; got {name!r:.60}.")
    name = normal_name(name.strip())
    if name in ("dims", "variable"):
        raise ModelError(f"a module cannot be called {name!r}, like a column of the variable map.")
    return name


def _step(step: Any, where: str) -> int:
    try:
        return whole_number(step, "step", 1)
    except ArgumentError as error:
        raise ModelError(f"{where}: {error}") from None


def _names(names: Any, argument: str, where: str) -> tuple[str, ...]:
    """Return validated names of variables; a single str is one name, or several with commas."""
    if not isinstance(names, Iterable):
        raise ModelError(f"{where}: `{argument}` holds names of variables; got {names!r:.60}.")
    names = tuple(re.split(r"\s*,\s*", names.strip()) if isinstance(names, str) else names)
    for name in names:
        problem = name_problem(normal_name(name)) if isinstance(name, str) else f"{name!r} is not a name"
        if problem:
            raise ModelError(f"{where}: `{argument}`: {problem}.")
    out = tuple(normal_name(n) for n in names)
    if twice := repeated(out):
        raise ModelError(f"{where}: `{argument}` names {listed(twice)} twice.")
    return out


def _dims(dims: Any, where: str) -> dict[str, Shape]:
    """Return the validated shapes of `dims`."""
    if dims is None:
        return {}
    if not isinstance(dims, Mapping):
        raise ModelError(f'{where}: `dims` is a dict such as {{"D": 3, "A": (2, 3)}}; got {dims!r:.60}.')
    shapes = {}
    for name, sizes in zip(_names(list(dims), "dims", where), dims.values(), strict=True):
        numbers = list(sizes) if isinstance(sizes, Iterable) and not isinstance(sizes, str) else [sizes]
        try:
            whole = [int(n) if hasattr(n, "__index__") and not isinstance(n, int) else n for n in numbers]
            shapes[name] = checked_shape(name, whole)
        except ValueError as error:
            raise ModelError(f"{where}: `dims={{{name!r}: {sizes!r:.60}}}`: {error}.") from None
    return shapes
