"""Diagnostics of modules and data base: a table, and a warning for each, or with `strict` one error for all.

====================  ===============================================================================================
kind                  what it means
====================  ===============================================================================================
missing               read or needed at the start, but neither in the data base nor assigned by a module: no run
redundant             in the data base, but nothing uses it
conflict              assigned in more than one module: the last one's statements hold
series_for_initial    a time series for what only needs an initial value: the one at the start is used
mixed_array           some elements assigned, others from outside, and a series for all (a note: level ``note``)
local_read            a module reads a local name of another module
short_delay           a smooth or delay whose tau is too short for the step: of lower order, or runs with it fail
loop                  variables that need one another in a circle (a note in the table alone)
replaced              two sources of the data base have an item of that name: the later one holds
units                 an equation that does not fit the units, or a unit that cannot be read (a note, without a warning)
====================  ===============================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from fmepy.dmi.data_items import Item
from fmepy.dmi.expressions import CHAINS
from fmepy.dmi.statements import Memory, ModuleStatement, element_names
from fmepy.dmi.variables import ModuleSystem, Variable
from fmepy.errors import ModelError, counted, did_you_mean, listed, warn
from fmepy.language.nodes import Number

COLUMNS = ("kind", "level", "variable", "modules", "file", "line", "message")


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem of modules or data.

    Attributes
    ----------
    kind : str
        See the table of this module.
    variable : str
        The variable, item of the data base, or element.
    modules : tuple of str
        The modules concerned.
    file : str
        The file of the module, or of the data.
    line : int
        The line in it; 0 if there is none.
    message : str
        The problem, and what to do.
    """

    kind: str
    variable: str
    modules: tuple[str, ...] = ()
    file: str = ""
    line: int = 0
    message: str = ""

    @property
    def level(self) -> Literal["warning", "note"]:
        """A note is not an error with `strict`."""
        return "note" if self.kind in ("loop", "mixed_array", "units") else "warning"

    def __str__(self) -> str:
        place = [self.file or f"module {_first(self.kind, self.modules)!r}"] if self.file or self.modules else []
        return ": ".join([", ".join(place + [f"line {self.line}"] * bool(self.line))] * bool(place) + [self.message])


class DiagnosticWarning(UserWarning):
    """Warning about a system of modules when it is built; it carries its row of the table of diagnostics."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(f"{diagnostic.kind}: {diagnostic}")
        self.diagnostic = diagnostic
        for name in COLUMNS[:-1]:  # the message is the warning itself
            setattr(self, name, getattr(diagnostic, name))

    def __reduce__(self) -> Any:
        return type(self), (self.diagnostic,)


def _first(kind: str, modules: tuple[str, ...]) -> str:
    """Return the module of the problem: of two the one that overrules or reads."""
    return modules[-1 if kind in ("conflict", "local_read") else 0]


def diagnostic(system: ModuleSystem, kind: str, name: str, modules: tuple[str, ...], message: str) -> Diagnostic:
    """Return the diagnostic of a variable or an element, with the place where the module names the variable."""
    uses = system.variables[name if name in system.variables else name.partition("[")[0]].uses
    modules = modules or tuple(uses)  # declared only
    first = _first(kind, modules)
    return Diagnostic(kind, name, modules, system.module(first).file, uses[first].line, message)


def diagnostics_table(diagnostics: Iterable[Diagnostic]) -> pd.DataFrame:
    """Return diagnostics as a table, one row each; the modules as a text."""
    rows = [[", ".join(d.modules) if name == "modules" else getattr(d, name) for name in COLUMNS] for d in diagnostics]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"line": int})


def warn_of(diagnostics: Iterable[Diagnostic], strict: bool = False, known_before: Collection[Diagnostic] = ()) -> None:
    """Warn of each diagnostic except loops, units and those `known_before`, at the line outside fmepy of the call.

    Raises
    ------
    ModelError
        With `strict`, if one of them is not a note; it lists all of these.
    """
    all_of_them = list(diagnostics)
    wrong = [d for d in all_of_them if d.level == "warning"]
    if strict and wrong:
        lines = "\n".join(f"  {d.kind}: {d}" for d in wrong)
        raise ModelError(f"strict=True, and {counted(len(wrong), 'diagnostic')}:\n{lines}")
    for d in all_of_them:
        if d not in known_before and d.kind not in ("loop", "units"):  # these do not affect numbers
            warn(DiagnosticWarning(d))


def refuse_missing(diagnostics: Iterable[Diagnostic]) -> None:
    """Raise a ModelError that lists the missing data, if there are any."""
    if missing := [f"\n  {d}" for d in diagnostics if d.kind == "missing"]:
        raise ModelError(f"The model cannot run, for data are missing:{''.join(missing)}")


def diagnose(system: ModuleSystem, data: Mapping[str, Item], guesses: Collection[str] = ()) -> tuple[Diagnostic, ...]:
    """Return the diagnostics of a system and its data: of modules alone first, then variable by variable.

    Parameters
    ----------
    system : ModuleSystem
    data : mapping of str to item
        The items by the names of the variables they feed, or of elements, ``D[0]``.
    guesses : collection of str, optional
        Variables of loops, of which a constant is the first guess.
    """
    diagnostics = [*_conflicts(system), *_local_reads(system)]
    for variable in system.variables.values():
        diagnostics.extend(_of_variable(system, variable, data, variable.name in guesses))
    known = {e: v for v in system.variables.values() for e in (v.name, *v.elements)}
    for name, item in data.items():
        if name not in known:
            message = f"{name!r} is in the data base, but no module reads it.{did_you_mean(name, system.variables)}"
            diagnostics.append(Diagnostic("redundant", name, file=item.source, message=message))
    return tuple(diagnostics)


def _conflicts(system: ModuleSystem) -> Iterator[Diagnostic]:
    for name, modules in system.conflicts:
        message = (
            f"{name!r} is assigned in the modules {listed(modules)}; a variable has one. The statements of "
            f"{modules[-1]!r}, the last one, hold"
        )
        yield diagnostic(system, "conflict", name, modules, message)


def _local_reads(system: ModuleSystem) -> Iterator[Diagnostic]:
    """Yield the local names of a module that another one reads and no module assigns for it."""
    for owner, local in ((m.name, local) for m in system.modules for local in m.local):
        other = system.variables.get(local)
        for reader in other.read_in if other is not None and not other.endogenous else ():
            message = (
                f"the module {reader!r} reads {local!r}, which {owner!r} declares local; take it out of `local` there, "
                f"or write `local {local}` in {reader!r}, too"
            )
            yield diagnostic(system, "local_read", local, (owner, reader), message)


def _of_variable(
    system: ModuleSystem, variable: Variable, data: Mapping[str, Item], guess: bool
) -> Iterator[Diagnostic]:
    """Yield the diagnostics of the data of one variable."""
    elements, whole = variable.elements, variable.name
    fed = [whole in data or e in data for e in elements]
    if all(variable.assigned) and not any(fed) and not any(variable.outside):
        return
    wants_start = [out and not there for out, there in zip(variable.outside, variable.initial, strict=True)]
    wants_value = [not positions for positions in variable.assigned]
    for wanted, modules, message in (
        (wants_value, variable.read_in, "{0} is read, but it is neither in the data base nor assigned by a module."),
        (wants_start, variable.assigned_in, "{0} has no initial value: write {0}(0) = ..., or give a constant {0} in "
                                            "the data base"),
    ):  # fmt: skip
        lacking = [e for e, wants, there in zip(elements, wanted, fed, strict=True) if wants and not there]
        if lacking:
            names = whole if len(lacking) == len(elements) else ", ".join(lacking[:12])
            message = f"{message.format(names)}{_near(variable, data, system)}"
            yield diagnostic(system, "missing", whole, modules, message)
    for name in (n for n in dict.fromkeys((whole, *elements)) if n in data):
        positions = range(len(elements)) if name == whole else [elements.index(name)]
        if any(wants_value[i] for i in positions):
            if data[name].kind == "series" and any(variable.assigned[i] for i in positions):
                message = (
                    f"of {name!r} some elements are assigned and others come from outside, and the data base has a "
                    "series for all: it is used for the latter"
                )
                yield diagnostic(system, "mixed_array", name, variable.assigned_in, message)
        elif not guess and not any(variable.outside[i] for i in positions):
            message = f"{name!r} is in the data base, but the modules compute it: the item is not used"
            yield Diagnostic("redundant", name, variable.assigned_in, data[name].source, 0, message)
        elif data[name].kind == "series":
            message = (
                f"a time series is given for {name!r}, which only needs an initial value: that at the start is used"
            )
            yield diagnostic(system, "series_for_initial", name, variable.assigned_in, message)


def _near(variable: Variable, data: Mapping[str, Item], system: ModuleSystem) -> str:
    """Return a hint at the unused item or computed variable with the nearest name."""
    computed = (n for n, v in system.variables.items() if v.endogenous)
    return did_you_mean(variable.name, [*(n for n in data if n not in system.variables), *computed])


# --- smooths and delays that are too short for the step, which would be numerically unstable
#
# Euler's step h takes a level with time constant T that follows u to (1 - z) s + z u, z = h/T: a mean of the two up to
# z = 1; beyond, it overshoots, and from z = 2 on it grows without end. With Runge-Kutta's order four growth begins at
# z = 2.785. So T = h/2 is the least of both. T is tau/n for each of n levels. A chain of levels that are too short is
# shortened to as many levels as the tau of the data base has whole steps, at least one.

_SLACK = 1e-5
"""Relative tolerance of the least tau: numbers are shown, and typed, with six digits."""


def least_tau(order: int, step: float) -> float:
    """Return the least tau of a chain of levels in a module with this step."""
    return order * step / 2 * (1 - _SLACK)


def too_short(kind: str, order: int, tau: float, steps: int, dt: float, when: str = "") -> str:
    """Return the message about a tau that is too short, without a full stop."""
    if not tau > 0:
        return f"{kind}(..., tau) has tau={tau:g}{when}; it must be positive"
    of_module = f", and the module takes {steps} at a time" if steps > 1 else ""
    each = f", and each of its {order} levels has tau/{order}={tau / order:g}" if order > 1 else ""
    return (
        f"{kind}(..., tau) has tau={tau:g}{when}{each}: too short for steps of dt={dt:g}{of_module}. It would "
        f"overshoot, or grow without end: give dt={tau / (order * steps):g} at most, or a longer tau"
    )


def with_lower_orders(
    system: ModuleSystem, parms: Mapping[str, float], dt: float
) -> tuple[ModuleSystem, list[Diagnostic]]:
    """Return a system with fewer levels in smooths and delays that are too short for the step, and their diagnostics.

    Only a tau in the text or in the data base is known here. One that is too short for a single level stays, and the
    run fails.
    """
    steps, short, known = {m.name: m.step for m in system.modules}, list[Diagnostic](), dict(parms)
    for s in system.statements:
        if isinstance(s, ModuleStatement) and s.kind == "assign" and isinstance(s.value, Number):
            known |= {s.target.name: s.value.value} if s.target.index is None else {}

    def changed(s: ModuleStatement, memory: Memory) -> Memory:
        if memory.kind not in CHAINS:
            return memory
        tau, n = memory.arguments[1], steps[s.module]
        read = next((r for r in s.reads if r.node is tau), None)
        elements = [element_names(read.name, read.shape)[i] for i in read.positions] if read else []
        taus = [tau.value] if isinstance(tau, Number) else [known[e] for e in elements if e in known]
        least = min(taus, default=float("inf"))
        if not least < least_tau(memory.order, n * dt):
            return memory
        order = max(1, int(least / (n * dt) * (1 + _SLACK)))
        message = too_short(memory.kind, memory.order, least, n, dt)
        if order < memory.order:
            message += f". It is computed as of order {order}"
        file, name = system.module(s.module).file, read.name if read else ""
        short.append(Diagnostic("short_delay", name, (s.module,), file, s.line, message))
        return replace(memory, order=0 if least < least_tau(order, n * dt) else order)

    statements = tuple(
        replace(s, memories=tuple(changed(s, m) for m in s.memories)) if isinstance(s, ModuleStatement) and s.memories
        else s for s in system.statements
    )  # fmt: skip
    return (replace(system, statements=statements) if short else system), short
