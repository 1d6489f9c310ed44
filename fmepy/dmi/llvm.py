# ruff: noqa: N802    # methods are named as the nodes of statements that they write
"""Statements of modules -> LLVM's text, a function each: ``void f(double t, double** p, i64 first, i64 last)``.

``p`` are the places of what the statement deals with: ``p[0]`` of its target, then of every variable that it reads, in
order of first appearance. So the text holds no names, and statements that look alike share one function. Elements first
to last of an array are computed, in a loop; a function with a scalar target takes no notice of the two.

What is a scalar inside an array's statement, and what a product of matrices is made of, is computed once before the
loop. Nothing is rewritten that would change a digit; where there is no value comes NaN, and nothing is raised.

What is written alike is compiled once, in this process and in the next ones: all statements of a system that are not
known yet become one program, and one object file in the folder of compiled code, from which the next process reads
them. A changed module adds what it has of its own.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any
from weakref import WeakValueDictionary

from fmepy.compiled.folder import cache_folder, prune, read_kept, write_kept
from fmepy.compiled.llvm_operations import NAN, FunctionWriter, declarations, number
from fmepy.compiled.machine import Code, object_of, optimised, versions
from fmepy.dmi.tree import (
    Array,
    Binary,
    Both,
    Call,
    Chain,
    Compare,
    Either,
    Element,
    Expr,
    Minus,
    Name,
    Not,
    Number,
    Time,
    parts,
    reads,
    walk,
)

OWN_NAME = "@STATEMENT"
"""What a function is called until it stands in a program."""
DT = "(dt)"
"""The variable that holds the elementary step; no name of a user looks like this."""

_CHAIN = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_COMPARE = {"<": ("olt", "oge"), "<=": ("ole", "ogt"), ">": ("ogt", "ole"), ">=": ("oge", "olt")}
_SLACK = 1e-6
"""Part of a step by which a time may miss the grid: k dt is rounded."""

TABLE = f"""
define internal double @table(double %x, ptr %xs, ptr %ys, i64 %n) {{
entry:
  %end = sub i64 %n, 1
  %first = load double, ptr %xs
  %to_last = getelementptr double, ptr %xs, i64 %end
  %last = load double, ptr %to_last
  %known = fcmp ord double %x, %x
  br i1 %known, label %below, label %unknown
below:
  %is_below = fcmp ole double %x, %first
  br i1 %is_below, label %lowest, label %above
above:
  %is_above = fcmp oge double %x, %last
  br i1 %is_above, label %highest, label %search
search:
  %a = phi i64 [ 0, %above ], [ %a.next, %narrow ]
  %b = phi i64 [ %end, %above ], [ %b.next, %narrow ]
  %gap = sub i64 %b, %a
  %wide = icmp ugt i64 %gap, 1
  br i1 %wide, label %narrow, label %found
narrow:
  %sum = add i64 %a, %b
  %middle = lshr i64 %sum, 1
  %to_middle = getelementptr double, ptr %xs, i64 %middle
  %at_middle = load double, ptr %to_middle
  %left = fcmp olt double %x, %at_middle
  %a.next = select i1 %left, i64 %a, i64 %middle
  %b.next = select i1 %left, i64 %middle, i64 %b
  br label %search
found:
  %to_x0 = getelementptr double, ptr %xs, i64 %a
  %x0 = load double, ptr %to_x0
  %to_x1 = getelementptr double, ptr %xs, i64 %b
  %x1 = load double, ptr %to_x1
  %to_y0 = getelementptr double, ptr %ys, i64 %a
  %y0 = load double, ptr %to_y0
  %to_y1 = getelementptr double, ptr %ys, i64 %b
  %y1 = load double, ptr %to_y1
  %dy = fsub double %y1, %y0
  %dx = fsub double %x1, %x0
  %slope = fdiv double %dy, %dx
  %on = fsub double %x, %x0
  %rise = fmul double %slope, %on
  %y = fadd double %y0, %rise
  ret double %y
lowest:
  %y.lowest = load double, ptr %ys
  ret double %y.lowest
highest:
  %to_y.highest = getelementptr double, ptr %ys, i64 %end
  %y.highest = load double, ptr %to_y.highest
  ret double %y.highest
unknown:
  ret double {NAN}
}}
"""


def names_of(target: Name | Element, value: Expr) -> tuple[str, ...]:
    """Return the variables whose places a statement's function gets, in order."""
    own = (DT for n in walk(value) if isinstance(n, Call) and n.function in ("step", "pulse"))
    return tuple(dict.fromkeys([target.name, *(r.name for r in reads(value)), *own]))


def statement_text(target: Name | Element, value: Expr) -> tuple[str, frozenset[tuple[str, int]]]:
    """Return the text of a statement's function, which is called `OWN_NAME`, and what C functions it calls."""
    return _Writer(target, value).text()


class _Writer:
    """One statement being written."""

    def __init__(self, target: Name | Element, value: Expr) -> None:
        self._part = FunctionWriter(set())
        self._target, self._value = target, value
        self._slots = {name: i for i, name in enumerate(names_of(target, value))}
        self._heads: list[str] = []
        self._globals: list[str] = []
        self._tables: dict[tuple[float, ...], str] = {}
        self._ready: dict[int, str] = {}  # scalars by node, computed before a loop
        self._stored: dict[int, str] = {}  # arrays by node

    def text(self) -> tuple[str, frozenset[tuple[str, int]]]:
        """Return the text, and what it calls."""
        for i in self._slots.values():
            self._heads += [f"  %to{i} = getelementptr ptr, ptr %p, i64 {i}", f"  %p{i} = load ptr, ptr %to{i}"]
        part, target, n = self._part, self._target, prod(self._target.shape)
        part.begin("begin")
        if isinstance(target, Element) or not target.shape:
            part.store(self._of(self._value, "0"), "p0", target.position if isinstance(target, Element) else 0)
        else:
            itself = any(r.name == target.name for r in reads(self._value))
            place = self._room(n) if itself else "p0"  # what it reads of itself is what was before
            self._prepare(self._value)
            with part.loop("%first", "%last") as k:
                part.store(self._of(self._value, k), place, k)
            if itself:
                with part.loop("%first", "%last") as k:
                    part.store(part.load(place, k), "p0", k)
        head = f"define internal void {OWN_NAME}(double %t, ptr %p, i64 %first, i64 %last) nounwind {{"
        lines = [*self._globals, head, "entry:", *self._heads, "  br label %begin", *part.lines, "  ret void", "}"]
        return "\n".join(lines), frozenset(part.declared)

    # --- what is computed before a loop

    def _prepare(self, node: Any) -> None:
        """Compute what a loop over the elements of a node need not compute again."""
        if not node.shape and not _is_condition(node):
            if not isinstance(node, (Number, Name, Element, Time)):
                self._ready[id(node)] = self._of(node, "0")
        elif isinstance(node, Array):
            self._store(node)
        elif isinstance(node, Call) and node.function == "dot":
            for argument in node.arguments:
                self._store(argument)
        else:
            for part in parts(node):
                self._prepare(part)

    def _store(self, node: Any) -> str:
        """Return the name of the place of an array's elements."""
        if isinstance(node, Name):
            return f"p{self._slots[node.name]}"
        if id(node) in self._stored:
            return self._stored[id(node)]
        if isinstance(node, Array) and all(isinstance(x, Number) for x in node.items):
            place = self._constants(tuple(x.value for x in node.items if isinstance(x, Number)))
        else:
            place, part = self._room(prod(node.shape)), self._part
            if isinstance(node, Array):
                for i, item in enumerate(node.items):
                    part.store(self._of(item, "0"), place, i)
            else:
                self._prepare(node)
                with part.loop(0, prod(node.shape)) as k:
                    part.store(self._of(node, k), place, k)
        self._stored[id(node)] = place
        return place

    def _room(self, n: int) -> str:
        name = f"room{len(self._heads)}"
        self._heads.append(f"  %{name} = alloca [{n} x double]")
        return name

    def _constants(self, values: tuple[float, ...]) -> str:
        if values not in self._tables:
            name = f"{OWN_NAME}.{len(self._tables)}"
            entries = ", ".join(f"double {number(v)}" for v in values)
            self._globals.append(f"{name} = private constant [{len(values)} x double] [{entries}]")
            place = f"constants{len(self._tables)}"
            self._heads.append(f"  %{place} = getelementptr double, ptr {name}, i64 0")
            self._tables[values] = place
        return self._tables[values]

    # --- values

    def _of(self, node: Any, i: str) -> str:
        """Return the name of a node's value, at element i if it is an array."""
        if id(node) in self._ready:
            return self._ready[id(node)]
        written: str = getattr(self, f"_of_{type(node).__name__}")(node, i)
        return written

    def _of_Number(self, node: Number, i: str) -> str:
        return number(node.value)

    def _of_Name(self, node: Name, i: str) -> str:
        return self._part.load(f"p{self._slots[node.name]}", i if node.shape else 0)

    def _of_Element(self, node: Element, i: str) -> str:
        return self._part.load(f"p{self._slots[node.name]}", node.position)

    def _of_Time(self, node: Time, i: str) -> str:
        return "%t"

    def _of_Array(self, node: Array, i: str) -> str:
        return self._part.load(self._store(node), i)

    def _of_Minus(self, node: Minus, i: str) -> str:
        return self._part.emit(f"fneg double {self._of(node.x, i)}")

    def _of_Chain(self, node: Chain, i: str) -> str:
        out = self._of(node.items[0], i)
        for op, item in zip(node.ops, node.items[1:], strict=True):
            out = self._part.binary(_CHAIN[op], out, self._of(item, i))
        return out

    def _of_Binary(self, node: Binary, i: str) -> str:
        part, a = self._part, self._of(node.left, i)
        if node.op == "%":
            return part.modulo(a, self._of(node.right, i))
        n = node.right.value if isinstance(node.right, Number) else None
        if n is not None and n.is_integer() and 1 <= abs(n) <= 64:
            power = part.times_itself(a, abs(int(n)))
            return power if n > 0 else part.binary("fdiv", number(1.0), power)
        if n == 0.5:
            return part.call("sqrt", a)
        return part.call("pow", a, self._of(node.right, i))

    def _of_Call(self, node: Call, i: str) -> str:
        own = getattr(self, f"_call_{node.function}", None)
        return str(own(node, i)) if own is not None else self._part.function(node.function, *self._values(node, i))

    def _values(self, node: Call, i: str) -> list[str]:
        return [self._of(a, i) for a in node.arguments]

    def _call_where(self, node: Call, i: str) -> str:
        return self._chosen(*self._truth(node.arguments[0], i), *(self._of(a, i) for a in node.arguments[1:]))

    def _call_clip(self, node: Call, i: str) -> str:
        a, b, x, y = self._values(node, i)
        return self._chosen(self._part.compare("oge", x, y), self._part.compare("olt", x, y), a, b)

    def _chosen(self, yes: str, no: str, a: str, b: str) -> str:
        return self._part.select(yes, a, self._part.select(no, b, NAN))

    def _call_table(self, node: Call, i: str) -> str:
        x, xs, ys = node.arguments
        places = f"ptr %{self._store(xs)}, ptr %{self._store(ys)}, i64 {prod(xs.shape)}"
        return self._part.emit(f"call double @table(double {self._of(x, i)}, {places})")

    # reductions

    def _call_sum(self, node: Call, i: str) -> str:
        (x,) = node.arguments
        if not x.shape:
            return self._of(x, i)
        return self._total(x, lambda k: self._of(x, k), prod(x.shape))

    def _call_dot(self, node: Call, i: str) -> str:
        a, b = node.arguments
        at_a, at_b, n = self._store(a), self._store(b), a.shape[-1]
        columns = b.shape[1] if len(b.shape) == 2 else 1
        part = self._part
        row = column = "0"
        if len(a.shape) == 2:
            row = part.emit(f"udiv i64 {i}, {columns}") if columns > 1 else i
        if columns > 1:
            column = part.emit(f"urem i64 {i}, {columns}")
        begin = part.emit(f"mul i64 {row}, {n}")

        def term(k: str) -> str:
            x = part.load(at_a, part.emit(f"add i64 {begin}, {k}"))
            at = part.emit(f"add i64 {part.emit(f'mul i64 {k}, {columns}')}, {column}")
            return part.binary("fmul", x, part.load(at_b, at))

        return self._total(None, term, n)

    def _total(self, inside: Any, term: Any, n: int) -> str:
        """Return the name of a sum of n terms."""
        part = self._part
        if inside is not None:
            self._prepare(inside)
        total = self._room(1)
        part.lines.append(f"  store double {number(0.0)}, ptr %{total}")
        with part.loop(0, n) as k:
            part.add(term(k), total, 0)
        name = part.name("%v")
        part.lines.append(f"  {name} = load double, ptr %{total}")
        return name

    # functions of time; times are k dt, rounded

    def _late(self) -> str:
        """Return the name of the time, with the slack that rounding needs."""
        dt = self._part.load(f"p{self._slots[DT]}", 0)
        return self._part.binary("fadd", "%t", self._part.binary("fmul", number(_SLACK), dt))

    def _call_step(self, node: Call, i: str) -> str:
        height, time = self._values(node, i)
        part, late = self._part, self._late()
        return self._chosen(part.compare("oge", late, time), part.compare("olt", late, time), height, number(0.0))

    def _call_ramp(self, node: Call, i: str) -> str:
        slope, start, *end = self._values(node, i)
        part, zero = self._part, number(0.0)
        now = part.smallest(["%t", *end]) if end else "%t"
        return part.binary("fmul", slope, part.largest([part.binary("fsub", now, start), zero]))

    def _call_pulse(self, node: Call, i: str) -> str:
        height, first, *interval = self._values(node, i)
        part, zero = self._part, number(0.0)
        dt = part.load(f"p{self._slots[DT]}", 0)
        since = part.binary("fsub", self._late(), first)
        into = since
        if interval:  # of zero or less: once
            again = part.modulo(since, interval[0])
            into = part.select(part.compare("ogt", interval[0], zero), again, since)
        begun, early = part.compare("oge", since, zero), part.compare("olt", since, zero)
        during = self._chosen(part.compare("olt", into, dt), part.compare("oge", into, dt), height, zero)
        return self._chosen(begun, early, during, zero)

    # --- conditions: whether they hold, and whether they do not; neither where that cannot be known

    def _truth(self, node: Any, i: str) -> tuple[str, str]:
        emit = self._part.emit
        match node:
            case Compare():
                a, b = self._of(node.left, i), self._of(node.right, i)
                yes, no = _COMPARE[node.op]
                return self._part.compare(yes, a, b), self._part.compare(no, a, b)
            case Not():
                yes, no = self._truth(node.x, i)
                return no, yes
            case Both() | Either():
                is_both = isinstance(node, Both)
                on, off = self._truth(node.items[0], i)
                for item in node.items[1:]:  # as in Python, the next is not looked at where one decides
                    yes, no = self._truth(item, i)
                    if is_both:
                        on, off = emit(f"and i1 {on}, {yes}"), emit(f"or i1 {off}, {emit(f'and i1 {on}, {no}')}")
                    else:
                        on, off = emit(f"or i1 {on}, {emit(f'and i1 {off}, {yes}')}"), emit(f"and i1 {off}, {no}")
                return on, off
        raise TypeError(type(node).__name__)


def _is_condition(node: Any) -> bool:
    return isinstance(node, (Compare, Both, Either, Not))


# --- the text as machine code

logger = logging.getLogger(__name__)

_LEVEL = 0
"""Of optimisation: 1 takes ten times as long, and the functions, which are short and written without what could be left
out, run no faster."""

Text = tuple[str, frozenset[tuple[str, int]]]
"""Of a function: LLVM's text, and the C functions that it calls."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Compiled:
    """A function in machine code; it can be called as long as this object lives."""

    address: int
    code: Any


_known: WeakValueDictionary[str, Compiled] = WeakValueDictionary()
_lock = threading.Lock()


def compiled_statements(texts: Sequence[Text]) -> list[Compiled]:
    """Return the functions of texts, in their order."""
    with _lock:
        found = {text: known for text, _ in texts if (known := _known.get(text)) is not None}
        new = {text: called for text, called in texts if text not in found}
        if new:
            made = _made(new)
            found |= made
            _known.update(made)
        return [found[text] for text, _ in texts]


def _made(texts: dict[str, frozenset[tuple[str, int]]]) -> dict[str, Compiled]:
    key = hashlib.sha256("\n".join([versions(), f"{_LEVEL}", TABLE, *texts]).encode()).hexdigest()[:32]
    path = cache_folder() / f"modules-{key}.o"
    made = read_kept(path)
    if made is None:
        logger.debug("Compiling %d statements of modules.", len(texts))
        made = object_of(optimised(_program(texts), _LEVEL), quick=True)
        write_kept(path, made)
        prune(path.parent)
    code = Code(made)
    addresses = ctypes.cast(code.place("functions"), ctypes.POINTER(ctypes.c_int64))[: len(texts)]
    return {text: Compiled(a, code) for text, a in zip(texts, addresses, strict=True)}


def _program(texts: dict[str, frozenset[tuple[str, int]]]) -> str:
    functions = [text.replace(OWN_NAME, f"@f{i}") for i, text in enumerate(texts)]
    table = ", ".join(f"ptr @f{i}" for i in range(len(functions)))
    heads = declarations(called for names in texts.values() for called in names)
    return "\n".join([heads, TABLE, *functions, f"@functions = constant [{len(functions)} x ptr] [{table}]"])
