"""Expressions -> LLVM's text: functions on entries of arrays, compiled in milliseconds and therefore not cached.

A function reads scalars and entries of arrays and writes entries of arrays: ``void f(double t, double* z, ...)``.
Common subexpressions are computed once; of a choice only the selected branch is computed, apart from what is needed
elsewhere too. Nothing is rearranged that would change a digit; an undefined value is NaN, and nothing is raised.

Large systems are split into functions of about a thousand operations, since LLVM's time grows faster than their length;
values that one of them computes for another are passed through an array on the stack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from fmepy.compiled.llvm_operations import NAN, FunctionWriter, NotWritableError, declarations, number
from fmepy.compiled.statements import statements
from fmepy.language.nodes import MINUS_ONE, Mode, Node, Number
from fmepy.language.nodes import number as number_node

__all__ = ["ExpressionWriter", "LlvmProgram", "NotWritableError", "Place"]

MOST_OPERATIONS = 1000
"""Most operations of one function."""
MOST_NESTED = 60
"""Most levels of an expression that are written recursively; deeper ones are cut."""

Place: TypeAlias = "tuple[str, int] | str"
"""An entry of an array, or a scalar."""


class ExpressionWriter(FunctionWriter):
    """Writer of one function from expressions: straight-line code with branches only at choices."""

    def __init__(self, whole: WholeFunction) -> None:
        super().__init__(whole.declared)
        self._whole = whole

    def value_with(self, e: Node, values: Mapping[Node, str]) -> str:
        """Return the name of an expression's value, given the names of some of its parts."""
        self._known.append(dict(values))
        out = self.value(e)
        self._known.pop()
        return out

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
        place = self._whole.where.get(e)
        if place is not None:
            return f"%{place}" if isinstance(place, str) else self.load(*place)
        if isinstance(e, Number):
            return number(e.value)
        if e.word == "+":
            return self._sum(e.args)
        if e.word == "*":
            return self._product(e)
        if e.word == "**":
            return self._power(*e.args)
        if e.word == "shared":
            return self.value(e.args[0])
        if e.word == "where":
            return self._choice(*e.args)
        return self.function(e.word, *map(self.value, e.args))

    def _sum(self, terms: Sequence[Node]) -> str:
        out = self.value(terms[0])
        for term in terms[1:]:
            if term.word == "*" and term.args[0] is MINUS_ONE and not self._whole.is_shared(term):
                out = self.binary("fsub", out, self.value(term.args[1]))
            else:
                out = self.binary("fadd", out, self.value(term))
        return out

    def _product(self, e: Node) -> str:
        numerator, denominator = [], []
        for factor in e.args:
            n = factor.args[1] if factor.word == "**" else None
            if isinstance(n, Number) and n.value < 0 and not self._whole.is_shared(factor):
                denominator.append(self._power(factor.args[0], number_node(-n.value)))
            elif factor is not MINUS_ONE:
                numerator.append(self.value(factor))
        out = numerator[0] if numerator else number(1.0)
        for v in numerator[1:]:
            out = self.binary("fmul", out, v)
        if e.args[0] is MINUS_ONE:
            out = self.negative(out)
        if not denominator:
            return out
        divisor = denominator[0]
        for v in denominator[1:]:
            divisor = self.binary("fmul", divisor, v)
        return self.binary("fdiv", out, divisor)

    def _power(self, base: Node, exponent: Node) -> str:
        n = exponent.value if isinstance(exponent, Number) else math.nan
        if -64 <= n < 0 and (n.is_integer() or n == -0.5):
            return self.binary("fdiv", number(1.0), self._power(base, number_node(-n)))
        x = self.value(base)
        if 1 <= n <= 64 and n.is_integer():  # a literal whole exponent becomes multiplications
            return self.times_itself(x, int(n))
        if n == 0.5:
            return self.call("sqrt", x)
        twos = math.log2(base.value) if isinstance(base, Number) and base.value > 0 else 0.0
        if twos and twos.is_integer():  # as LLVM does with a literal base, except in lanes
            return self.call("exp2", self.binary("fmul", number(twos), self.value(exponent)))
        return self.call("pow", x, self.value(exponent))

    def _choice(self, left: Node, right: Node, yes: Node, no: Node) -> str:
        """Return the name of a choice; only the selected branch is computed, unless both are available already."""
        is_above = self.compare("ogt", self.value(left), self.value(right))
        is_not_above = "" if isinstance(left, Mode) else self.compare("ole", self.value(left), self.value(right))

        def unless_unknown(value: str) -> str:
            return self.select(is_not_above, value, NAN) if is_not_above else value

        if self._is_available(yes) and self._is_available(no):
            return self.select(is_above, self.value(yes), unless_unknown(self.value(no)))
        at = self.name("")
        taken, other, after = f"yes{at}", f"no{at}", f"after{at}"
        self.lines.append(f"  br i1 {is_above}, label %{taken}, label %{other}")
        ends = []
        for label, branch in ((taken, yes), (other, no)):
            self.begin(label)
            self._known.append({})
            value = self.value(branch)
            ends.append((value if label == taken else unless_unknown(value), self._label))
            self._known.pop()
            self.lines.append(f"  br label %{after}")
        self.begin(after)
        return self.emit(f"phi double {', '.join(f'[ {value}, %{label} ]' for value, label in ends)}")

    def _is_available(self, e: Any) -> bool:
        is_available = not e.args or e in self._whole.where or any(e in scope for scope in self._known)
        return is_available or not self._whole.branches


class WholeFunction:
    """One function of a program: its parts, and the values that they share.

    Parameters
    ----------
    declared : set of (str, int)
        Collects the C functions that are called.
    where, arguments, passed
        Places of the symbols; the arguments of the function, and those passed to its parts.
    branches : bool
        Whether only the selected branch of a choice is computed.
    """

    def __init__(
        self,
        declared: set[tuple[str, int]],
        where: Mapping[Any, Place] = MappingProxyType({}),
        arguments: str = "",
        passed: str = "",
        branches: bool = True,
    ) -> None:
        self.declared, self._arguments, self._passed, self.branches = declared, arguments, passed, branches
        self.where: dict[Any, Place] = dict(where)
        self._home: dict[Any, ExpressionWriter] = {}
        self._slots: dict[Any, int] = {}
        self._shared: set[Any] = set()

    def is_shared(self, e: Any) -> bool:
        """Tell whether an expression is computed separately, or available from the start."""
        return e in self._shared or e in self.where

    def from_elsewhere(self, e: Any, part: ExpressionWriter) -> str:
        """Return the name of an expression's value if another part computes it, else an empty string."""
        home = self._home.get(e)
        if home is None or home is part:
            return ""
        return part.load("w", self._slots.setdefault(e, len(self._slots)))

    def written(
        self,
        name: str,
        targets: Sequence[tuple[str, int, Any]],
        needed: Sequence[Any],
        then: Callable[[ExpressionWriter], None],
    ) -> str:
        """Return the text; see `LlvmProgram.function`."""
        roots = [*(e for _, _, e in targets), *needed]
        shared, self._shared = statements(roots, MOST_NESTED, self.where.__contains__)
        parts = [ExpressionWriter(self)]
        for e in dict.fromkeys([*shared, *(e for e in roots if e.args)]):
            if parts[-1].count > MOST_OPERATIONS:
                parts.append(ExpressionWriter(self))
            parts[-1].value(e)
            self._home[e] = parts[-1]
        at: dict[Any, list[tuple[str, int]]] = {}
        for array, index, e in targets:
            at.setdefault(e, []).append((array, index))
        for e, places in at.items():
            part = self._home.get(e, parts[-1])
            for place in places:
                part.store(part.value(e), *place)
        main = parts[0] if len(parts) == 1 else ExpressionWriter(self)
        then(main)
        return self._assembled(name, parts, main)

    def _assembled(self, name: str, parts: list[ExpressionWriter], main: ExpressionWriter) -> str:
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


def _defined(name: str, arguments: str, kind: str, lines: list[str]) -> str:
    return "\n".join([f"define void @{name}({arguments}) {kind} {{", "entry:", *lines, "  ret void", "}"])


class LlvmProgram:
    """Functions written in LLVM's text.

    Parameters
    ----------
    scalars, arrays : sequence of str
        Arguments of all functions: numbers, and arrays that do not overlap.
    branches : bool
        False: both branches of every choice are computed, as `llvm_operations.of_lanes` requires.
    """

    def __init__(self, scalars: Sequence[str], arrays: Sequence[str], branches: bool = True) -> None:
        self._branches = branches
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
        then: Callable[[ExpressionWriter], None] = lambda part: None,
    ) -> None:
        """Add a function.

        Parameters
        ----------
        targets : sequence of (str, int, Node)
            The values to store: array, index and expression.
        where : mapping of Node to Place
            Places of symbols, and of other expressions that are available.
        needed : sequence of Node
            Expressions computed for `then`, which may add code at the end.

        Raises
        ------
        NotWritableError
            An expression has a function that cannot be compiled.
        """
        function = WholeFunction(self._declared, where, self._arguments, self._passed, self._branches)
        self._functions.append(function.written(name, targets, needed, then))

    def add(self, name: str, write: Callable[[FunctionWriter], None]) -> None:
        """Add a function that `write` emits operation by operation."""
        part = FunctionWriter(self._declared)
        write(part)
        self._functions.append(_defined(name, self._arguments, "", part.lines))

    def text(self) -> str:
        """Return the text of the whole program."""
        return "\n".join([declarations(self._declared), *self._functions])
