"""Units of variables, and equations that do not fit them.

A variable without a unit takes that of its equation; if that is unknown, too, it fits everything, as a number does in a
sum; in a product a number has no unit. The unit of time is the most frequent ratio between levels and their rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

from fmepy.dmi.data_items import Item
from fmepy.dmi.diagnostics import Diagnostic, diagnostic
from fmepy.dmi.stateful_functions import Evaluation, FlatSystem
from fmepy.dmi.statements import DT, TIME
from fmepy.dmi.unit_text import NO_UNIT, Unit, power_of, read_unit, times, unit_text
from fmepy.dmi.variables import ModuleSystem
from fmepy.language.nodes import Node, Number, Symbol, in_order

_SAME_AS_FIRST = {"abs", "floor", "ceil", "round", "rint", "trunc", "nan_of", "lag", "sum"}
_SAME_IN_ALL = {"+", "min", "max", "mod", "fmod", "hypot", "array"}
_OF_ANYTHING = {"sign", "heaviside", "isfinite", "atan2"}
_SWEEPS = 50


def units_of(system: ModuleSystem, data: Mapping[str, Item]) -> tuple[dict[str, str], list[Diagnostic]]:
    """Return the units of all variables, declared or derived from equations, and the equations that do not fit.

    Parameters
    ----------
    system : ModuleSystem
    data : mapping of str to Item
        Items, whose units count like those that modules declare.
    """
    declared = {name: item.unit for name, item in data.items() if item.unit}
    misfits, known = list[Diagnostic](), dict[str, Unit]()
    for module in system.modules:
        for name, unit in getattr(module, "units", {}).items():
            name = f"{module.name}.{name}" if name in module.local else name
            if name in declared and read_unit(declared[name]) != read_unit(unit):
                message = f"the unit of {name!r} is {unit!r} here and {declared[name]!r} elsewhere"
                misfits.append(diagnostic(system, "units", name, (module.name,), message))
            declared.setdefault(name, unit)
    for name, text in declared.items():
        unit = read_unit(text)
        if unit is not None:
            known[name.partition("[")[0]] = unit
        elif name in data:
            message = f"the unit {text!r} of {name!r} is no product of powers of names, such as people/month"
            misfits.append(Diagnostic("units", name, (), data[name].source, 0, message))
    if not known:
        return declared, misfits
    units, of_equations = _Check(system, known).run()
    return {name: unit_text(unit) for name, unit in units.items()} | declared, misfits + of_equations


class _Check:
    """A check of all equations: the units so far, and the misfits."""

    def __init__(self, system: ModuleSystem, known: Mapping[str, Unit]) -> None:
        self.system, self.flat, self.units = system, FlatSystem(system), dict(known)
        self.time: Unit | None = None
        self.misfits: list[Diagnostic] = []
        self._at = {(s.module, s.line): getattr(s, "target", None) for s in system.statements}
        self._reported: Evaluation | None = None  # the evaluation whose misfits are reported, if any

    def run(self) -> tuple[dict[str, Unit], list[Diagnostic]]:
        levels = {level.rate.name: level.target.name for level in self.flat.levels}
        for _ in range(_SWEEPS):
            before = len(self.units), self.time
            for e in self.flat.evaluations:
                if e.value is not None and e.target.name not in self.units:
                    unit = self._unit(e.value)
                    self.units |= {} if unit is None else {e.target.name: unit}
            self._set_levels(levels)
            if before == (len(self.units), self.time):
                break
        for e in self.flat.evaluations:
            if e.value is not None:
                self._reported, n_misfits = e, len(self.misfits)
                unit, wanted = self._unit(e.value), self.units.get(e.target.name)
                if unit is None or len(self.misfits) > n_misfits:  # one at a time
                    continue
                if wanted is not None and e.kind != "rate" and wanted != unit:
                    self._report(f"is in {unit_text(wanted)}, and its equation gives {unit_text(unit)}")
                elif e.kind == "rate":
                    self._rate(self.units.get(levels[e.target.name]), unit)
        units = {n: u for n, u in self.units.items() if n in self.system.variables}
        return units, list(dict.fromkeys(self.misfits))

    def _set_levels(self, levels: Mapping[str, str]) -> None:
        known = [(self.units[x], self.units[dx]) for dx, x in levels.items() if {x, dx} <= self.units.keys()]
        ratios = Counter(times(x, power_of(dx, Fraction(-1))) for x, dx in known)
        single = [(n, -i, r) for i, (r, n) in enumerate(ratios.items()) if [p for _, p in r] == [Fraction(1)]]
        self.time = max(single)[2] if single else self.time
        if self.time is not None:
            for dx, x in levels.items():
                if x not in self.units and dx in self.units:
                    self.units[x] = times(self.units[dx], self.time)
            self.units |= {TIME.name: self.time, DT: self.time}

    # --- misfits

    def _report(self, message: str) -> None:
        if (e := self._reported) is not None:
            name, file = (self._at.get((e.module, e.line)) or e.target).name, self.system.module(e.module).file
            message = f"the equation of {name!r} {message}"
            self.misfits.append(Diagnostic("units", name, (e.module,), file, e.line, message))

    def _rate(self, level: Unit | None, rate: Unit) -> None:
        if level is None:
            return
        if level == rate and level != NO_UNIT:
            self._report(f"moves by a rate without time: both are in {unit_text(level)}")
        elif self.time is not None and times(rate, self.time) != level:
            wanted = times(level, power_of(self.time, Fraction(-1)))
            self._report(f"is in {unit_text(level)}, so that its rate is in {unit_text(wanted)}; here it is in "
                       f"{unit_text(rate)}")  # fmt: skip

    # --- the unit of an expression

    def _unit(self, value: Node) -> Unit | None:
        memo: dict[Node, Unit | None] = {}
        for e in in_order([value], memo.__contains__):
            memo[e] = self._of(e, memo)
        return memo[value]

    def _of(self, e: Node, memo: Mapping[Node, Unit | None]) -> Unit | None:
        parts = [memo[a] for a in e.args]
        if isinstance(e, Symbol):
            return self.units.get(e.name.partition("[")[0] if e.name.endswith("]") else e.name)
        if e.word in ("*", "dot"):
            factors = [u for a, u in zip(e.args, parts, strict=True) if not isinstance(a, Number)]
            return None if None in factors else times(*(u for u in factors if u is not None))
        if e.word == "**":
            return self._power(e, parts)
        if e.word in _SAME_IN_ALL:
            return self._common_unit(parts, {"+": "adds", "array": "lists"}.get(e.word, f"takes the {e.word} of"))
        if e.word == "where":
            self._common_unit(parts[:2], "compares")
            return self._common_unit(parts[2:], "chooses between")
        if e.word == "table":
            if e.args[1] is not e.args[2]:  # of pairs, the unit is that of y
                self._common_unit(parts[:2], "looks up in a table of the other")
            return parts[2]
        if e.word in _SAME_AS_FIRST:
            return parts[0]
        if not e.args:
            return None
        for u in filter(None, parts if e.word not in _OF_ANYTHING else ()):
            self._report(f"takes {e.word} of what is in {unit_text(u)}, not of a plain number")
        return NO_UNIT

    def _power(self, e: Node, parts: list[Unit | None]) -> Unit | None:
        exponent = e.args[1]
        if parts[0] is None:
            return None
        if isinstance(exponent, Number):
            return power_of(parts[0], Fraction(exponent.value).limit_denominator(12))
        if parts[0] != NO_UNIT:
            self._report(f"raises what is in {unit_text(parts[0])} to a power that is no plain number")
            return None
        return NO_UNIT

    def _common_unit(self, parts: list[Unit | None], doing: str) -> Unit | None:
        """Return the first known unit of the parts; report if known units differ."""
        known = list(dict.fromkeys(u for u in parts if u is not None))
        if len(known) > 1:
            self._report(f"{doing} {' and '.join(unit_text(u) for u in known)}")
        return known[0] if known else None
