# ruff: noqa: N802, N815    # methods are named as the nodes of expressions that they write
"""Expressions -> LLVM's text: functions of numbers in arrays, compiled in milliseconds and so kept nowhere.

A function reads scalars and entries of arrays, and writes entries of arrays: ``void f(double t, double* z, ...)``. What
stands in several places of the expressions is computed once; of a choice only the branch that is taken is, but for what
is needed elsewhere too. Nothing is rewritten that would change a digit; where there is no value comes NaN, and nothing
is raised.

Large systems become functions of some hundred operations each, since LLVM takes more than proportionally long for long
ones; what one of them computes for another goes through an array on the stack.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from fmepy.compiled.llvm_operations import NAN, Part, declarations, number
from fmepy.expressions.functions import ELEMENTARY

MOST_OPERATIONS = 1000
"""Of one function."""
MOST_NESTED = 60
"""Levels of an expression that are written as one: deeper ones are cut, or Python would nest as deep."""

Place: TypeAlias = "tuple[str, int] | str"
"""An entry of an array, or a scalar."""

_IN_C = {name: name for name in ELEMENTARY} | {
    "acosh": "acosh", "atanh": "atanh", "erf": "erf", "erfc": "erfc", "gamma": "tgamma", "loggamma": "lgamma"
}  # fmt: skip


class NotWritableError(ValueError):
    """An expression that there are no words for in machine code."""


class Written(Part):
    """One function being written from expressions: straight code but for branches at choices."""

    def __init__(self, whole: _Function) -> None:
        super().__init__(whole.declared)
        self._whole = whole

    def value(self, e: Any) -> str:
        """Return the name of an expression's value."""
        for scope in self._known:
            if e in scope:
                return scope[e]
        name = self._whole.from_elsewhere(e, self) or self._written(e)
        self._known[-1][e] = name
        return name

    # --- one expression

    def _written(self, e: Any) -> str:
        if e.is_Symbol:
            place = self._whole.where[e]
            return f"%{place}" if isinstance(place, str) else self.load(*place)
        if e.is_Number or e.is_NumberSymbol:
            return self._constant(e)
        if e.is_Add:
            return self._sum(e.args)
        if e.is_Mul:
            return self._product(e)
        if e.is_Pow:
            return self._power(e.base, e.exp)
        word = type(e).__name__
        if (own := getattr(self, f"_write_{word}", None)) is not None:
            return str(own(*e.args))
        if word in _IN_C:
            return self.call(_IN_C[word], *map(self.value, e.args))
        raise NotWritableError(f"{word}()")

    def _constant(self, e: Any) -> str:
        try:
            return number(float(e))
        except OverflowError:
            return number(math.inf if e.is_positive else -math.inf)
        except TypeError:  # a complex infinity
            return NAN

    def _sum(self, terms: Sequence[Any]) -> str:
        return self.total([self.value(term) for term in terms])

    def _product(self, e: Any) -> str:
        above, below = [], []
        for factor in e.args:
            if (
                factor.is_Pow
                and factor.exp.is_Rational
                and factor.exp.is_negative
                and not self._whole.is_shared(factor)
            ):
                below.append(self._power(factor.base, -factor.exp))
            else:
                above.append(self.value(factor))
        if len(above) > 1 and e.args[0] == -1:
            above[:2] = [self.emit(f"fneg double {above[1]}")]
        out = above[0] if above else number(1.0)
        for v in above[1:]:
            out = self.binary("fmul", out, v)
        if not below:
            return out
        divisor = below[0]
        for v in below[1:]:
            divisor = self.binary("fmul", divisor, v)
        return self.binary("fdiv", out, divisor)

    def _power(self, base: Any, n: Any) -> str:
        if n.is_Integer and n.is_negative and abs(n) <= 64:
            return self.binary("fdiv", number(1.0), self._power(base, -n))
        x = self.value(base)
        if n.is_Integer and 1 <= n <= 64:  # a literal whole exponent becomes multiplications
            return self.times_itself(x, int(n))
        if n.is_Rational and abs(n.p) == 1 and n.q == 2:
            root = self.call("sqrt", x)
            return root if n.is_positive else self.binary("fdiv", number(1.0), root)
        return self.call("pow", x, self.value(n))

    # --- the nodes of the model language; each hands on NaN

    def _write_Where(self, left: Any, right: Any, yes: Any, no: Any) -> str:
        from fmepy.expressions.nodes import Mode

        above = self.compare("ogt", self.value(left), self.value(right))
        below = "" if isinstance(left, Mode) else self.compare("ole", self.value(left), self.value(right))

        def unless_unknown(value: str) -> str:
            return self.select(below, value, NAN) if below else value

        if self._is_at_hand(yes) and self._is_at_hand(no):
            return self.select(above, self.value(yes), unless_unknown(self.value(no)))
        number = self.name("")
        taken, other, after = f"yes{number}", f"no{number}", f"after{number}"
        self.lines.append(f"  br i1 {above}, label %{taken}, label %{other}")
        ends = []
        for label, branch in ((taken, yes), (other, no)):
            self.begin(label)
            self._known.append({})
            value = self.value(branch)
            ends.append((value if branch is yes and label == taken else unless_unknown(value), self._label))
            self._known.pop()
            self.lines.append(f"  br label %{after}")
        self.begin(after)
        return self.emit(f"phi double {', '.join(f'[ {value}, %{label} ]' for value, label in ends)}")

    def _is_at_hand(self, e: Any) -> bool:
        return not e.args or any(e in scope for scope in self._known)

    def _write_Largest(self, *args: Any) -> str:
        return self.largest([self.value(a) for a in args])

    def _write_Smallest(self, *args: Any) -> str:
        return self.smallest([self.value(a) for a in args])

    def _write_Absolute(self, x: Any) -> str:
        return self.call("fabs", self.value(x))

    def _write_Sign(self, x: Any) -> str:
        return self.sign(self.value(x))

    def _write_Floor(self, x: Any) -> str:
        return self.call("floor", self.value(x))

    def _write_Ceiling(self, x: Any) -> str:
        return self.call("ceil", self.value(x))

    def _write_Modulo(self, x: Any, by: Any) -> str:
        return self.modulo(self.value(x), self.value(by))

    def _write_Shared(self, x: Any) -> str:
        return self.value(x)

    def _write_NoNumber(self, x: Any) -> str:
        v = self.value(x)
        return self.select(self.compare("ord", v, v), number(0.0), NAN)

    # sympy's own, which derivatives bring in
    _write_Abs, _write_sign, _write_floor, _write_ceiling = _write_Absolute, _write_Sign, _write_Floor, _write_Ceiling
    _write_Max, _write_Min = _write_Largest, _write_Smallest


class _Function:
    """One function of a program: its parts, and what they share."""

    def __init__(self, where: Mapping[Any, Place], arguments: str, passed: str) -> None:
        self.where, self._arguments, self._passed = where, arguments, passed
        self.declared: set[tuple[str, int]] = set()
        self._home: dict[Any, Written] = {}
        self._slots: dict[Any, int] = {}
        self._shared: set[Any] = set()

    def is_shared(self, e: Any) -> bool:
        """Tell whether an expression is computed on its own, for several places."""
        return e in self._shared

    def from_elsewhere(self, e: Any, part: Written) -> str:
        """Return the name of what another part has computed, or an empty string."""
        home = self._home.get(e)
        if home is None or home is part:
            return ""
        return part.load("w", self._slots.setdefault(e, len(self._slots)))

    def written(
        self, name: str, targets: Sequence[tuple[str, int, Any]], needed: Sequence[Any], then: Callable[[Written], None]
    ) -> str:
        """Return the text; see `Program.function`."""
        roots = [*(e for _, _, e in targets), *needed]
        statements = self._statements(roots)
        parts = [Written(self)]
        for e in statements:
            if parts[-1].count > MOST_OPERATIONS:
                parts.append(Written(self))
            parts[-1].value(e)
            self._home[e] = parts[-1]
        at: dict[Any, list[tuple[str, int]]] = {}
        for array, index, e in targets:
            at.setdefault(e, []).append((array, index))
        for e, places in at.items():
            part = self._home.get(e, parts[-1])
            for place in places:
                part.store(part.value(e), *place)
        main = parts[0] if len(parts) == 1 else Written(self)
        then(main)
        return self._assembled(name, parts, main)

    def _assembled(self, name: str, parts: list[Written], main: Written) -> str:
        if main is parts[0]:
            return self._define(name, "", main.lines)
        for e, slot in self._slots.items():
            home = self._home[e]
            home.store(home.value(e), "w", slot)
        functions = [self._define(f"{name}.{i}", ", ptr noalias %w", p.lines) for i, p in enumerate(parts)]
        calls = [f"  %w = alloca [{max(1, len(self._slots))} x double]"]
        calls += [f"  call void @{name}.{i}({self._passed}, ptr %w)" for i in range(len(parts))]
        return "\n".join([*functions, self._define(name, "", calls + main.lines)])

    def _define(self, name: str, more: str, lines: list[str]) -> str:
        return _defined(name, f"{self._arguments}{more}", "noinline" if more else "", lines)

    def _statements(self, roots: Sequence[Any]) -> list[Any]:
        """Return what is computed on its own, in order: results, what they share, and cuts of what nests deeply."""
        uses: Counter[Any] = Counter(roots)
        heights: dict[Any, int] = {}
        order: list[Any] = []
        for root in roots:
            waiting = [root]
            while waiting:
                e = waiting[-1]
                new = [a for a in e.args if a not in heights]
                if e in heights or not new:
                    waiting.pop()
                    if e not in heights:
                        heights[e] = 1 + max((heights[a] for a in e.args), default=-1)
                        uses.update(e.args)
                        order.append(e)
                        if heights[e] >= MOST_NESTED:
                            heights[e] = 0
                            uses[e] += 2
                else:
                    waiting.extend(new)
        self._shared = {e for e in order if e.args and uses[e] > 1}
        wanted = self._shared | {e for e in roots if e.args}
        return [e for e in order if e in wanted]


def _defined(name: str, arguments: str, kind: str, lines: list[str]) -> str:
    return "\n".join([f"define void @{name}({arguments}) {kind} {{", "entry:", *lines, "  ret void", "}"])


class Program:
    """Functions written in LLVM's text.

    Parameters
    ----------
    scalars, arrays : sequence of str
        Arguments of all functions: numbers, and arrays that do not overlap.
    """

    def __init__(self, scalars: Sequence[str], arrays: Sequence[str]) -> None:
        self._arguments = ", ".join([f"double %{s}" for s in scalars] + [f"ptr noalias %{a}" for a in arrays])
        self._passed = ", ".join([f"double %{s}" for s in scalars] + [f"ptr %{a}" for a in arrays])
        self._functions: list[str] = []
        self._declared: set[tuple[str, int]] = set()

    def function(
        self,
        name: str,
        targets: Sequence[tuple[str, int, Any]],
        where: Mapping[Any, Place],
        needed: Sequence[Any] = (),
        then: Callable[[Written], None] = lambda part: None,
    ) -> None:
        """Add a function.

        Parameters
        ----------
        targets : sequence of (str, int, sympy.Expr)
            What is written: array, index, and the expression (in our own nodes, see `switches.as_choices`).
        where : mapping of sympy.Symbol to Place
            Where the symbols are found.
        needed : sequence of sympy.Expr
            What is computed for `then`, which may add code of its own at the end.

        Raises
        ------
        NotWritableError
            A function that there is no word for.
        """
        function = _Function(where, self._arguments, self._passed)
        self._functions.append(function.written(name, targets, needed, then))
        self._declared |= function.declared

    def add(self, name: str, write: Callable[[Part], None]) -> None:
        """Add a function that is written operation by operation."""
        part = Part(self._declared)
        write(part)
        self._functions.append(_defined(name, self._arguments, "", part.lines))

    def text(self) -> str:
        """Return the program."""
        return "\n".join([declarations(self._declared), *self._functions])
