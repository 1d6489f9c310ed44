"""Modules -> system: its variables, and the modules that assign and read them, element by element.

A name that a module assigns is endogenous there, a name that it only reads is exogenous there, and a name that one
module assigns and another reads links the two. This follows from the texts alone; `diagnostics` compares them with the
data base. ``local`` names become ``module.name``, so that no two variables of a system share a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Any, Literal

import numpy as np
import pandas as pd

from fmepy.checks import as_list
from fmepy.dmi.expressions import differ
from fmepy.dmi.modules import AnyModule, Module, PythonModule, check_different
from fmepy.dmi.statements import (
    FunctionStatement,
    ModuleStatement,
    Shape,
    Size,
    element_name,
    element_names,
    flat_position,
)
from fmepy.errors import ModelError, check_known, listed, repeated

Cell = Literal["endogenous", "exogenous", "both", "-"]
AnyStatement = ModuleStatement | FunctionStatement


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one variable in one module, by element, row by row."""

    shape: Shape
    level: bool
    assigned: tuple[bool, ...]
    initial: tuple[bool, ...]
    """Whether the module has ``x(0) = ``."""
    outside: tuple[bool, ...]
    """Whether it is assigned, and its initial value comes from the data base."""
    read: tuple[bool, ...]
    line: int

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The roles of the elements in the module."""
        return tuple(
            "both" if out else "endogenous" if is_set else "exogenous" if read else "-"
            for is_set, out, read in zip(self.assigned, self.outside, self.read, strict=True)
        )

    @property
    def cell(self) -> Cell:
        """The role of the variable in the module: "both" if its elements have both."""
        cells = set(self.cells) - {"-"}
        return "both" if len(cells) > 1 else cells.pop() if cells else "-"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of a system.

    Attributes
    ----------
    name : str
        Its name; for a local one with its module, ``sales.x``.
    shape : tuple of int
        () for a scalar.
    elements : tuple of str
        The names of its elements.
    uses : mapping of str to Use
        Its use in each module that names it.
    assigned_in, read_in : tuple of str
        The modules that assign it, and those that read it.
    level : bool
        Whether it moves by a rate.
    assigned, initial, outside : tuple of bool
        By element, row by row: whether some module assigns it; whether some module has ``x(0) = ``; whether it is
        assigned, and its initial value comes from the data base ("both" in the map).
    """

    name: str
    shape: Shape
    elements: tuple[str, ...] = field(repr=False)
    uses: Mapping[str, Use] = field(repr=False)
    assigned_in: tuple[str, ...]
    read_in: tuple[str, ...]
    level: bool
    assigned: tuple[bool, ...] = field(repr=False)
    initial: tuple[bool, ...] = field(repr=False)
    outside: tuple[bool, ...] = field(repr=False)

    def element(self, index: Any) -> str:
        """Return the name of an element."""
        return self.elements[flat_position(index, self.shape)]

    @property
    def endogenous(self) -> bool:
        """Whether some module assigns it or an element."""
        return any(self.assigned)

    @property
    def exogenous(self) -> bool:
        """Whether no module assigns it, or some of its elements."""
        return not all(self.assigned)


@dataclass(frozen=True, slots=True, eq=False)
class ModuleSystem:
    """Modules combined: their variables, and their valid statements.

    Attributes
    ----------
    modules : tuple of Module or PythonModule
        In the order of the user.
    variables : dict of str to Variable
        In the order of first appearance.
    statements : tuple of ModuleStatement or FunctionStatement
        Of all modules, in their order, local names as ``module.name``. If two modules assign the same elements, the
        statements of the later module are valid.
    conflicts : tuple of (str, tuple of str)
        Variables that several modules assign, and these modules; the statements of the last one are valid.
    outputs : tuple of str
        The declared outputs of modules; empty if there are none.
    """

    modules: tuple[AnyModule, ...]
    variables: dict[str, Variable] = field(repr=False)
    statements: tuple[AnyStatement, ...] = field(repr=False)
    conflicts: tuple[tuple[str, tuple[str, ...]], ...] = field(repr=False)
    outputs: tuple[str, ...] = ()

    def module(self, name: str) -> AnyModule:
        """Return the module of a name."""
        return next(m for m in self.modules if m.name == name)

    def call_of(self, *words: str) -> tuple[str, AnyStatement] | None:
        """Return the first call of one of some functions of modules: its name, and its statement."""
        return next(((word, s) for s in self.statements for word in s.words if word in words), None)

    def check_one_step(self, what: str, advice: str = "") -> None:
        """Refuse modules of different steps, which `what` cannot have."""
        steps = sorted({m.step for m in self.modules})
        if len(steps) > 1:
            raise ModelError(f"{what} needs modules of one step; these have steps of {listed(steps)}.{advice}")

    @property
    def links(self) -> dict[tuple[str, str], list[str]]:
        """The variables that one module assigns and another reads, by the two modules."""
        dropped, links = overruled_statements(self.conflicts), dict[tuple[str, str], list[str]]()
        for v in self.variables.values():
            for a in v.assigned_in:
                for b in v.read_in:
                    if a != b and (v.name, a) not in dropped:
                        links.setdefault((a, b), []).append(v.name)
        return links

    @property
    def variable_map(self) -> pd.DataFrame:
        """The global variable map: a row a variable, with its dimensions and its role in each module."""
        frame = self._map("variable", lambda v: (v.name,), lambda use: (use.cell,))
        frame.insert(0, "dims", [dims_text(v.shape) for v in self.variables.values()])
        return frame

    @property
    def element_map(self) -> pd.DataFrame:
        """The variable map by element: a row an element, with its variable and its role in each module."""
        frame = self._map("element", lambda v: v.elements, lambda use: use.cells)
        frame.insert(0, "variable", [v.name for v in self.variables.values() for _ in v.elements])
        return frame

    def _map(
        self, what: str, names: Callable[[Variable], Sequence[str]], cells: Callable[[Use], Sequence[Cell]]
    ) -> pd.DataFrame:
        """Return a map with a column for each module."""
        index = pd.Index([name for v in self.variables.values() for name in names(v)], name=what)
        column, at = {m.name: j for j, m in enumerate(self.modules)}, 0
        table = np.full((len(index), len(column)), "-", dtype=object)
        for variable in self.variables.values():
            rows = slice(at, at := at + len(names(variable)))
            for module, use in variable.uses.items():
                table[rows, column[module]] = cells(use)
        return pd.DataFrame(table, index=index, columns=list(column))


def dims_text(shape: Shape) -> str:
    """Return dimensions in the form of declarations: nothing, ``[3]`` or ``[2,3]``."""
    return element_name("", shape)


def system_of(modules: Iterable[AnyModule], before: ModuleSystem | None = None) -> ModuleSystem:
    """Return the system of modules.

    Parameters
    ----------
    modules : sequence of Module or PythonModule
        In the order of the map's columns.
    before : ModuleSystem, optional
        The system of which this one is a changed copy: its variables keep their order, new ones follow.

    Raises
    ------
    ModelError
        There are no modules, or other objects among them; two have the same name; dimensions differ between modules; a
        variable is a level in one module and assigned in another; no module computes an output.
    """
    checked = checked_modules(modules)
    uses: dict[str, dict[str, Use]] = {}
    for m in checked:
        for name, use in _uses(m).items():
            uses.setdefault(name, {})[m.name] = use
    if before is not None:
        uses = {n: uses[n] for n in (*(n for n in before.variables if n in uses), *uses)}
    conflicts = tuple((n, rivals) for n, by_module in uses.items() if (rivals := _rivals(n, by_module, checked)))
    dropped = overruled_statements(conflicts)
    statements = tuple(s for m in checked for s in _statements(m) if (s.targets[0].name, m.name) not in dropped)
    known = {} if before is None else before.variables
    variables = {n: _variable(n, by_module, dropped, known.get(n)) for n, by_module in uses.items()}
    return ModuleSystem(checked, variables, statements, conflicts, _outputs(checked, variables))


def overruled_statements(conflicts: Iterable[tuple[str, tuple[str, ...]]]) -> set[tuple[str, str]]:
    """Return the variables and modules of conflicts whose statements are not valid."""
    return {(name, m) for name, modules in conflicts for m in modules[:-1]}


def checked_modules(modules: Iterable[AnyModule]) -> tuple[AnyModule, ...]:
    """Return modules after validating them: at least one, with different names."""
    checked: tuple[Any, ...] = (
        (modules,)
        if isinstance(modules, (Module, PythonModule))
        else tuple(as_list(modules, "modules", ModelError, "modules"))
    )
    for m in checked:
        if not isinstance(m, (Module, PythonModule)):
            hint = " (dmi.read_modules(folder) reads files, @dmi.module makes one of a function)"
            raise ModelError(f"`modules` holds {m!r:.60}, which is not a dmi.Module{hint}.")
    if not checked:
        raise ModelError("`modules` is empty; a system has one module at least.")
    check_different(checked)
    return checked


def with_tables(modules: Sequence[AnyModule], data: Any) -> list[AnyModule]:
    """Return modules with dims for all tables: those of the data base, or of the module that computes the table."""
    known = {n: shape for m in modules for n, shape in m.dims.items() if n not in (*m.local, *getattr(m, "open", ()))}

    def dims(m: Module) -> dict[str, Shape]:
        names = {n: f"{m.name}.{n}" if n in m.local else n for n in m.open}
        shapes = {n: data[called].shape for n, called in names.items() if called in data}
        return {n: known.get(n) or shapes.get(n) or (1,) for n in names if n in known or n in shapes}

    return [m.with_dims(dims(m)) if isinstance(m, Module) else m for m in modules]


def output_columns(system: ModuleSystem, outputs: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the output variables of a model, and its columns: those requested, declared, or all that are computed.

    Raises
    ------
    ModelError
        A variable is unknown; no output is requested; one is requested twice.
    """
    variables = system.variables
    if outputs is None:
        names = system.outputs or tuple(n for n, v in variables.items() if v.endogenous)
        wanted = [e for n in names for e in variables[n].elements]
    else:
        requested = as_list(outputs, "outputs", ModelError)
        owner = {e: n for n, v in variables.items() for e in v.elements} | {n: n for n in variables}
        for name in requested:
            check_known(name, list(owner), f"`outputs`: no module has a variable {name!r}.", ModelError)
        names = tuple(dict.fromkeys(owner[name] for name in requested))
        wanted = [e for name in requested for e in (variables[name].elements if name in variables else [name])]
    if not wanted:
        raise ModelError("`outputs` is empty, and so would be the table; no module gives a value to a variable.")
    if twice := repeated(wanted):
        raise ModelError(f"`outputs` names {listed(twice)} more than once.")
    return names, tuple(wanted)


# --- one module


def _local_names(module: AnyModule) -> dict[str, str]:
    return {n: f"{module.name}.{n}" for n in module.local}


@lru_cache(maxsize=2048)
def _statements(module: AnyModule) -> tuple[AnyStatement, ...]:
    """Return the statements of a module with its local names as in a system."""
    names = _local_names(module)
    if isinstance(module, PythonModule) or not names:
        return module.statements
    return tuple(s.renamed(names) for s in module.statements)


@lru_cache(maxsize=2048)
def _uses(module: AnyModule) -> dict[str, Use]:
    """Return the use of each variable in a module; local ones have their names in a system."""
    shapes = module.dims
    assigned, initial, read = ({n: [False] * prod(shapes.get(n, ())) for n in module.names} for _ in range(3))
    levels = set[str]()
    for s in module.statements:
        levels |= {s.targets[0].name} if s.kind == "level" else set()
        for of, references in ((initial if s.kind == "initial" else assigned, s.targets), (read, s.reads)):
            for r in references:
                for position in r.positions:
                    of[r.name][position] = True
    local, uses = _local_names(module), {}
    for name, line in module.names.items():
        outside = [
            is_set and name not in module.endogenous and (name in module.exogenous or (name in levels and not start))
            for is_set, start in zip(assigned[name], initial[name], strict=True)
        ]
        marks_of = tuple(assigned[name]), tuple(initial[name]), tuple(outside), tuple(read[name])
        uses[local.get(name, name)] = Use(shapes.get(name, ()), name in levels, *marks_of, line)
    return uses


# --- one variable


def _check_shapes(name: str, uses: Mapping[str, Use], modules: Sequence[AnyModule]) -> None:
    """Refuse a variable with different dimensions in different modules."""
    first, *others = uses
    for other in others:
        a, b = uses[first].shape, uses[other].shape
        if differ(a, b):
            places = " and ".join(
                f"{element_name(name, shape) if shape else f'{name} without dims'} in {_place(m, uses[m], modules)}"
                for m, shape in ((first, a), (other, b))
            )
            declared = element_name(name, a or b)
            raise ModelError(
                f"the dimensions of {name!r} differ between modules: {places}. Declare `dims {declared}` in all of "
                f"them, or `local {name}` where it is another variable."
            )


def _rivals(name: str, uses: Mapping[str, Use], modules: Sequence[AnyModule]) -> tuple[str, ...]:
    """Return the modules that assign the same elements, in their order; the last one is valid."""
    _check_shapes(name, uses, modules)
    owners = [m for m, use in uses.items() if any(use.assigned)]
    if len(owners) < 2:
        return ()
    pairs = [p for p in combinations(owners, 2) if any(map(all, zip(*(uses[m].assigned for m in p), strict=True)))]
    rivals = tuple(m for m in owners if any(m in pair for pair in pairs))
    for m in modules:
        if isinstance(m, PythonModule) and m.name in rivals[:-1]:
            raise ModelError(
                f"{name!r} is assigned by the Python module {m.name!r} and by {rivals[-1]!r}; a variable has one "
                f"module. Take it out of `assigns` of {m.name!r}, or out of {rivals[-1]!r}."
            )
    rest = [m for m in owners if m not in rivals[:-1]]
    levels = {uses[m].level for m in rest}
    if len(levels) > 1:
        places = " and ".join(
            f"{'a level' if uses[m].level else 'assigned'} in {_place(m, uses[m], modules)}" for m in rest
        )
        raise ModelError(f"{name!r} is {places}; all its elements are levels, or none is.")
    return rivals


def _place(module: str, use: Use, modules: Sequence[AnyModule]) -> str:
    """Return the place where a module names a variable, for a message."""
    file = next(m.file for m in modules if m.name == module)
    return f"module {module!r} ({file + ', ' if file else ''}line {use.line})"


def _variable(name: str, uses: Mapping[str, Use], dropped: set[tuple[str, str]], before: Variable | None) -> Variable:
    """Return a variable from its uses in modules; overruled assignments do not count."""
    if before is not None and list(before.uses.items()) == list(uses.items()):
        return before
    valid = [use for m, use in uses.items() if any(use.assigned) and (name, m) not in dropped]
    shape = max((use.shape for use in uses.values()), key=lambda s: sum(isinstance(n, Size) for n in s))
    of_elements = (
        tuple(map(any, zip((False,) * prod(shape), *marks, strict=True)))
        for marks in ([u.assigned for u in valid], [u.initial for u in valid], [u.outside for u in valid])
    )
    assigned_in = tuple(m for m, use in uses.items() if any(use.assigned))
    read_in = tuple(m for m, use in uses.items() if any(use.read))
    level = any(use.level for use in valid)
    return Variable(name, shape, element_names(name, shape), uses, assigned_in, read_in, level, *of_elements)


def _outputs(modules: Sequence[AnyModule], variables: Mapping[str, Variable]) -> tuple[str, ...]:
    """Return the declared outputs of modules; refuse one that no module computes."""
    names = dict.fromkeys(_local_names(m).get(n, n) for m in modules for n in m.outputs or ())
    for name in names:
        if not variables[name].endogenous:
            raise ModelError(f"{name!r} is declared output, but no module gives it a value: outputs are computed.")
    return tuple(names)
