"""Units of variables, and where equations do not fit them.

What has no unit takes that of its equation, and what then is still open fits everything, as a plain number does in a
sum; in a product a number has no unit. The unit of time is that by which most levels are more than their rates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from fmepy.dmi.stateful_functions import Evaluation, Work
from fmepy.dmi.statements import DT, TIME
from fmepy.dmi.unit_text import NO_UNIT, Unit, power_of, times, unit_text
from fmepy.dmi.variables import ModuleSystem
from fmepy.language.nodes import Node, Number, Symbol, in_order

_SAME_AS_FIRST = {"abs", "floor", "ceil", "round", "rint", "trunc", "nan_of", "lag", "sum"}
_SAME_IN_ALL = {"+", "min", "max", "mod", "fmod", "hypot", "array"}
_OF_ANYTHING = {"sign", "heaviside", "isfinite", "atan2"}
_SWEEPS = 50


class Misfit(NamedTuple):
    """An equation that does not fit the units: the variable, the place, and what is wrong."""

    variable: str
    module: str
    line: int
    message: str


def check_units(system: ModuleSystem, known: Mapping[str, Unit]) -> tuple[dict[str, Unit], list[Misfit]]:
    """Return the units of all variables that have one or get one by their equations, and the equations that do not fit.

    Parameters
    ----------
    system : ModuleSystem
    known : mapping of str to Unit
        By variable, as users said.
    """
    if not known:
        return {}, []
    return _Check(system, known).done()


class _Check:
    """A check: the units so far, and what does not fit."""

    def __init__(self, system: ModuleSystem, known: Mapping[str, Unit]) -> None:
        self.work, self.known = Work(system), known
        self.units: dict[str, Unit] = dict(known)
        self.names = system.variables
        self.time: Unit | None = None
        self.misfits: list[Misfit] = []
        self._at = {(s.module, s.line): getattr(s, "target", None) for s in system.statements}
        self._now: Evaluation | None = None  # whose misfits are told; None: nobody's

    def done(self) -> tuple[dict[str, Unit], list[Misfit]]:
        levels = [(level.target.name, level.rate.name) for level in self.work.levels]
        for _ in range(_SWEEPS):
            before = len(self.units), self.time
            for e in self.work.evaluations:
                if e.value is not None and e.target.name not in self.units:
                    self._set(e.target.name, self._unit(e.value))
            self._set_levels(levels)
            if before == (len(self.units), self.time):
                break
        for e in self.work.evaluations:
            if e.value is not None:
                self._now, n_misfits = e, len(self.misfits)
                found, wanted = self._unit(e.value), self.units.get(e.target.name)
                if found is None or len(self.misfits) > n_misfits:  # one at a time
                    continue
                if wanted is not None and e.kind != "rate" and wanted != found:
                    self._tell(f"is in {unit_text(wanted)}, and its equation gives {unit_text(found)}")
                elif e.kind == "rate":
                    level = next(x for x, rate in levels if rate == e.target.name)
                    self._rate(self.units.get(level), found)
        return {n: u for n, u in self.units.items() if n in self.names}, list(dict.fromkeys(self.misfits))

    def _set(self, name: str, unit: Unit | None) -> None:
        if unit is not None:
            self.units.setdefault(name, unit)

    def _set_levels(self, levels: list[tuple[str, str]]) -> None:
        ratios = Counter(
            times(self.units[x], power_of(self.units[dx], Fraction(-1)))
            for x, dx in levels
            if x in self.units and dx in self.units
        )
        single = [(n, -i, r) for i, (r, n) in enumerate(ratios.items()) if [p for _, p in r] == [Fraction(1)]]
        self.time = max(single)[2] if single else self.time
        if self.time is not None:
            for x, dx in levels:
                if x not in self.units and dx in self.units:
                    self.units[x] = times(self.units[dx], self.time)
            self.units |= {TIME.name: self.time, DT: self.time}

    # --- what is wrong

    def _tell(self, message: str) -> None:
        if self._now is not None:
            e = self._now
            target = self._at.get((e.module, e.line))
            self.misfits.append(Misfit(target.name if target is not None else e.target.name, e.module, e.line, message))

    def _rate(self, level: Unit | None, rate: Unit) -> None:
        if level is None:
            return
        if level == rate and level != NO_UNIT:
            self._tell(f"moves by a rate without time: both are in {unit_text(level)}")
        elif self.time is not None and times(rate, self.time) != level:
            wanted = times(level, power_of(self.time, Fraction(-1)))
            self._tell(f"is in {unit_text(level)}, so that its rate is in {unit_text(wanted)}; here it is in "
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
        if e.word == "*" or e.word == "dot":
            factors = [u for a, u in zip(e.args[:2] if e.word == "dot" else e.args, parts, strict=False)
                       if not isinstance(a, Number)]  # fmt: skip
            return None if None in factors else times(*(u for u in factors if u is not None))
        if e.word == "**":
            return self._power(e, parts)
        if e.word in _SAME_IN_ALL:
            return self._alike(parts, {"+": "adds", "array": "lists"}.get(e.word, f"takes the {e.word} of"))
        if e.word == "where":
            self._alike(parts[:2], "compares")
            return self._alike(parts[2:], "chooses between")
        if e.word == "table":
            if e.args[1] is not e.args[2]:  # of pairs, the unit is that of y
                self._alike(parts[:2], "looks up in a table of the other")
            return parts[2]
        if e.word in _SAME_AS_FIRST:
            return parts[0]
        if not e.args:
            return None
        if e.word not in _OF_ANYTHING:
            for u in parts:
                if u:
                    self._tell(f"takes {e.word} of what is in {unit_text(u)}, not of a plain number")
        return NO_UNIT

    def _power(self, e: Node, parts: list[Unit | None]) -> Unit | None:
        exponent = e.args[1]
        if parts[0] is None:
            return None
        if isinstance(exponent, Number):
            return power_of(parts[0], Fraction(exponent.value).limit_denominator(12))
        if parts[0] != NO_UNIT:
            self._tell(f"raises what is in {unit_text(parts[0])} to a power that is no plain number")
            return None
        return NO_UNIT

    def _alike(self, parts: list[Unit | None], doing: str) -> Unit | None:
        """Return the unit that all of them have, of what they are known."""
        known = list(dict.fromkeys(u for u in parts if u is not None))
        if len(known) > 1:
            self._tell(f"{doing} {' and '.join(unit_text(u) for u in known)}")
        return known[0] if known else None
