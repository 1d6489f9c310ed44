"""LLVM's text, operation by operation: what all that writes functions of numbers in arrays shares."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fmepy.language.nodes import TABLE

LANES = 8
"""Numbers that are computed with at once, `of_lanes`."""
_WIDE = f"<{LANES} x double>"
_OF_MACHINE = ("sqrt", "fabs", "floor", "ceil", "copysign")
"""Functions that the machine has for several numbers at once."""
_INTRINSIC = {"exp", "log", "sin", "cos", "pow", "sqrt", "fabs", "floor", "ceil", "copysign"}
NAN = "0x7FF8000000000000"


class NotWritableError(ValueError):
    """A function that there are no words for in machine code."""


def number(value: float) -> str:
    """Return a constant, to the last bit."""
    return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"


class FunctionWriter:
    """One function being written, operation by operation.

    Parameters
    ----------
    declared : set of (str, int)
        Where the functions of C that are called go, with their numbers of arguments.
    """

    def __init__(self, declared: set[tuple[str, int]]) -> None:
        self.lines: list[str] = []
        self.declared = declared
        self._label = "entry"
        self._known: list[dict[Any, str]] = [{}]  # what has been computed, by branch: outermost first
        self.count = 0

    def emit(self, text: str) -> str:
        """Return the name of an operation's result; the same operation is written once."""
        for scope in self._known:
            if text in scope:
                return scope[text]
        name = self.name("%v")
        self.lines.append(f"  {name} = {text}")
        self._known[-1][text] = name
        return name

    def load(self, array: str, index: int | str) -> str:
        """Return the name of an array's entry."""
        at = self.emit(f"getelementptr double, ptr %{array}, i64 {index}")
        return self.emit(f"load double, ptr {at}")

    def store(self, value: str, array: str, index: int | str) -> None:
        """Set an array's entry."""
        at = self.emit(f"getelementptr double, ptr %{array}, i64 {index}")
        self.lines.append(f"  store double {value}, ptr {at}")

    def add(self, value: str, array: str, index: int) -> None:
        """Add to an array's entry."""
        at = self.emit(f"getelementptr double, ptr %{array}, i64 {index}")
        before, total = self.name("%v"), self.name("%v")
        self.lines += [f"  {before} = load double, ptr {at}", f"  {total} = fadd double {before}, {value}"]
        self.lines.append(f"  store double {total}, ptr {at}")

    def total(self, values: Sequence[str]) -> str:
        """Return the name of a sum."""
        out = values[0] if values else number(0.0)
        for v in values[1:]:
            out = self.binary("fadd", out, v)
        return out

    @contextmanager
    def loop(self, start: int | str, stop: int | str, step: int = 1) -> Iterator[str]:
        """Write what follows as a loop; gives the name of its counter. It is run at least once."""
        number = self.name("")
        counter, after, label, before = f"%i{number}", f"%j{number}", f"loop{number}", self._label
        self.lines += [f"  br label %{label}", f"{label}:"]
        at = len(self.lines)  # where the counter's line comes, when it is known from which block the loop comes back
        self._label = label
        self._known.append({})
        yield counter
        self._known.pop()
        back = self._label
        self.lines.insert(at, f"  {counter} = phi i64 [ {start}, %{before} ], [ {after}, %{back} ]")
        self.lines.append(f"  {after} = add i64 {counter}, {step}")
        self.lines.append(f"  %c{number} = icmp ult i64 {after}, {stop}")
        self.lines.append(f"  br i1 %c{number}, label %{label}, label %end{number}")
        self.begin(f"end{number}")

    def begin(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self._label = label

    def name(self, letter: str) -> str:
        """Return a name that there has not been."""
        self.count += 1
        return f"{letter}{self.count}"

    # --- operations of values that have names

    def call(self, name: str, *values: str) -> str:
        """Return the name of a function's value; functions are called as in C."""
        function = f"llvm.{name}.f64" if name in _INTRINSIC else name
        self.declared.add((function, len(values)))
        return self.emit(f"call double @{function}({', '.join(f'double {v}' for v in values)})")

    def function(self, name: str, *values: str) -> str:
        """Return the name of the value of a function of the language, see `fmepy.language.functions`."""
        write = TABLE[name].llvm
        if not write or name == "lag":
            raise NotWritableError(f"{name}()")
        return self.call(write, *values) if isinstance(write, str) else write(self, *values)

    def negative(self, x: str) -> str:
        """Return the name of -x."""
        return self.emit(f"fneg double {x}")

    def binary(self, word: str, a: str, b: str) -> str:
        """Return the name of fadd, fsub, fmul, fdiv or frem of two values."""
        return self.emit(f"{word} double {a}, {b}")

    def compare(self, word: str, a: str, b: str) -> str:
        """Return the name of a comparison's truth value."""
        return self.emit(f"fcmp {word} double {a}, {b}")

    def select(self, condition: str, yes: str, no: str) -> str:
        """Return the name of one of two values."""
        return self.emit(f"select i1 {condition}, double {yes}, double {no}")

    def truth(self, condition: str) -> str:
        """Return the name of 1 where a condition holds, else 0."""
        return self.select(condition, number(1.0), number(0.0))

    def times_itself(self, x: str, n: int) -> str:
        """Return the name of x to a whole power from 1 on, by multiplications."""
        out, left = "", n
        while left:
            if left & 1:
                out = self.binary("fmul", out, x) if out else x
            left >>= 1
            if left:
                x = self.binary("fmul", x, x)
        return out

    def largest(self, values: Sequence[str], above: str = "ogt", not_below: str = "oge") -> str:
        """Return the name of the largest; NaN is handed on."""
        out = values[0]
        for b in values[1:]:
            least = self.select(self.compare(not_below, b, out), b, NAN)
            out = self.select(self.compare(above, out, b), out, least)
        return out

    def smallest(self, values: Sequence[str]) -> str:
        """Return the name of the smallest; NaN is handed on."""
        return self.largest(values, above="olt", not_below="ole")

    def sign(self, v: str) -> str:
        """Return the name of 1, 0 or -1, or NaN."""
        zero = number(0.0)
        at_zero = self.select(self.compare("oeq", v, zero), zero, NAN)
        below = self.select(self.compare("olt", v, zero), number(-1.0), at_zero)
        return self.select(self.compare("ogt", v, zero), number(1.0), below)

    def modulo(self, a: str, b: str) -> str:
        """Return the name of a rest as Python's: with the sign of the divisor, zero too."""
        zero = number(0.0)
        rest = self.binary("frem", a, b)
        differ = self.emit(f"xor i1 {self.compare('olt', b, zero)}, {self.compare('olt', rest, zero)}")
        moved = self.select(differ, self.binary("fadd", rest, b), rest)
        return self.select(self.compare("oeq", rest, zero), self.call("copysign", zero, b), moved)


def declarations(called: Iterable[tuple[str, int]]) -> str:
    """Return the declarations of C functions, of which names and numbers of arguments are given."""
    return "\n".join(
        f"declare double @{name}({', '.join(['double'] * n)}) nounwind willreturn memory(none)"
        for name, n in sorted(set(called))
    )


def of_lanes(program: str) -> str:
    """Return a program (`LlvmProgram`, without branches) of `LANES` numbers in place of each.

    In memory they lie side by side. What comes out are the numbers of the program itself: what the machine does not
    have for several is called for each.
    """
    heads = re.findall(r"^declare double @(\S+)\((.*)\) nounwind", program, flags=re.MULTILINE)
    text = re.sub(r"\bdouble\b", _WIDE, re.sub(r"^declare .*", "", program, flags=re.MULTILINE))
    numbers = r"(?<=[ ,(\[])(0x[0-9A-Fa-f]{16}|[-+]?\d+\.\d*(?:[eE][-+]?\d+)?)"
    text = re.sub(r"(select|xor|and|or) i1", rf"\1 <{LANES} x i1>", re.sub(numbers, _everywhere, text))
    text = re.sub(r"(load|store) <.*", r"\g<0>, align 8", text)
    for name, arguments in heads:
        n, word = arguments.count("double"), name.removeprefix("llvm.").removesuffix(".f64")
        of_machine = word in _OF_MACHINE
        new = f"llvm.{word}.v{LANES}f64" if of_machine else f"{word}.of.lanes"
        text = text.replace(f"@{name}(", f"@{new}(")
        text += f"\ndeclare {_WIDE} @{new}({', '.join([_WIDE] * n)})" if of_machine else _for_each(name, new, n)
    return text


def _everywhere(number: re.Match[str]) -> str:
    return f"<{', '.join([f'double {number[0]}'] * LANES)}>"


def _for_each(name: str, new: str, n: int) -> str:
    """Return a function of n vectors that calls one of numbers."""
    taken = ", ".join(f"{_WIDE} %x{j}" for j in range(n))
    lines = ["", f"declare double @{name}({', '.join(['double'] * n)}) nounwind willreturn memory(none)"]
    lines.append(f"define internal {_WIDE} @{new}({taken}) noinline {{")
    lines += ["entry:", f"  %out = alloca {_WIDE}"]
    for j in range(n):
        lines += [f"  %a{j} = alloca {_WIDE}", f"  store {_WIDE} %x{j}, ptr %a{j}"]
    lines += ["  br label %again", "again:", "  %i = phi i64 [ 0, %entry ], [ %next, %again ]"]
    for j in range(n):
        lines += [f"  %p{j} = getelementptr double, ptr %a{j}, i64 %i", f"  %v{j} = load double, ptr %p{j}"]
    lines.append(f"  %y = call double @{name}({', '.join(f'double %v{j}' for j in range(n))})")
    lines += ["  %p = getelementptr double, ptr %out, i64 %i", "  store double %y, ptr %p", "  %next = add i64 %i, 1"]
    lines += [f"  %more = icmp ult i64 %next, {LANES}", "  br i1 %more, label %again, label %end", "end:"]
    return "\n".join([*lines, f"  %all = load {_WIDE}, ptr %out", f"  ret {_WIDE} %all", "}"])
