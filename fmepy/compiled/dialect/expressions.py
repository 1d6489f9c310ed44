# ruff: noqa: N802    # methods are named as the nodes of Python's syntax that they translate
"""Expressions of kernels -> LLVM's text."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from fmepy.compiled.dialect.types import (
    LLVM,
    WIDER,
    ArrayType,
    Group,
    Known,
    Type,
    Value,
    Writer,
    constant,
    group_of,
    structure,
    words_of,
)
from fmepy.compiled.kernels import (
    call,
    choose_above,
    doubles,
    in_lanes,
    integers,
    lanes,
    lanes_at,
    multiply_add,
    new,
    set_lanes,
    weighted,
)

_IN_LLVM = {
    math.sqrt: "sqrt", np.sqrt: "sqrt", math.exp: "exp", np.exp: "exp", math.log: "log", np.log: "log",
    math.log2: "log2", np.log2: "log2", math.pow: "pow", np.ceil: "ceil", np.floor: "floor", abs: "fabs",
    multiply_add: "fmuladd",
}  # fmt: skip
_OPERATIONS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_COMPARISONS = {
    ast.Lt: ("olt", "slt"), ast.LtE: ("ole", "sle"), ast.Gt: ("ogt", "sgt"), ast.GtE: ("oge", "sge"),
    ast.Eq: ("oeq", "eq"), ast.NotEq: ("une", "ne"),
}  # fmt: skip


class MustBeWiderError(Exception):
    """A name was given whole numbers first, then a float, or floats, then lanes: to be translated again."""


class Expressions(Writer):
    """What a kernel's expressions become.

    Parameters
    ----------
    function : function
        The kernel.
    program : object
        Has the kernels that it calls.
    wider : dict of str to str
        Names that hold a wider type than that of what they are given first.
    """

    def __init__(self, function: Any, program: Any, wider: dict[str, str]) -> None:
        super().__init__(function, program.checks)
        self._program, self._wider = program, wider
        self._places: dict[str, tuple[Type, list[str]]] = {}
        self._fixed: dict[str, Value] = {}
        self._outer = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def _value(self, node: ast.expr) -> Value:
        how = getattr(self, f"_of_{type(node).__name__}", None)
        if how is None:
            raise self._fail(node, "no kernel may hold this")
        found: Value = how(node)
        return found

    def _of_Constant(self, node: ast.Constant) -> Value:
        return constant(node.value)

    def _of_Name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self._places:
            return self._load(*self._places[name])
        if name in self._fixed:
            return self._fixed[name]
        if name in self._outer:
            return constant(self._outer[name].cell_contents)
        known = {**vars(builtins), **self._function.__globals__}
        if name not in known or name in self._function.__code__.co_varnames:
            raise self._fail(node, "this name is not known")
        return constant(known[name])

    def _of_Tuple(self, node: ast.Tuple) -> Value:
        return self._joined([self._value(e) for e in node.elts])

    def _of_Attribute(self, node: ast.Attribute) -> Value:
        value = self._value(node.value)
        kind = value.type
        if isinstance(kind, Known):
            return constant(getattr(kind.value, node.attr))
        if isinstance(kind, ArrayType) and node.attr == "shape":
            return self._joined([Value("i", (p,)) for p in value.parts[1:]])
        if isinstance(kind, Group) and kind.made_by is not None:
            return self._one_of(value, list(kind.made_by.__annotations__).index(node.attr))
        raise self._fail(node, "there is no such thing")

    def _of_Subscript(self, node: ast.Subscript) -> Value:
        value = self._value(node.value)
        if isinstance(value.type, Group):
            return self._one_of(value, ast.literal_eval(node.slice))
        if isinstance(value.type, Known):
            return constant(value.type.value[ast.literal_eval(node.slice)])
        if isinstance(node.slice, ast.Slice):
            return self._part(value, node.slice)
        if isinstance(node.slice, ast.Tuple) and isinstance(node.slice.elts[-1], ast.Slice):
            *first, last = node.slice.elts
            return self._part(self._of_Subscript(ast.Subscript(node.value, ast.Tuple(first))), last)
        kind, at, rest = self._pointed(value, node)
        if rest:
            return Value(ArrayType(kind, len(rest)), (at, *rest))
        return Value(kind, (self._read(kind, at),))

    def _entry(self, node: ast.expr) -> tuple[str, str]:
        """Return kind and address of an array's entry."""
        if isinstance(node, ast.Subscript):
            kind, at, rest = self._pointed(self._value(node.value), node)
            if not rest:
                return kind, at
        raise self._fail(node, "nothing can be assigned to this")

    def _pointed(self, value: Value, node: ast.Subscript) -> tuple[str, str, tuple[str, ...]]:
        """Return kind and address of what an index points at, and its shape."""
        if not isinstance(value.type, ArrayType):
            raise self._fail(node, "this has no entries")
        nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(nodes) > value.type.dims:
            raise self._fail(node, f"there are {value.type.dims} dimensions")
        indices = [self._as("i", self._value(n), node) for n in nodes]
        return value.type.of, self._address(value, indices, node), value.parts[1 + len(nodes) :]

    def _address(self, array: Value, indices: Sequence[str], node: Any) -> str:
        """Return the address of an array's part."""
        pointer, *sizes = array.parts
        offset = ""
        for k, size in enumerate(sizes):
            if offset:
                offset = self._named(f"mul nsw i64 {offset}, {size}")
            if k < len(indices):
                at = indices[k]
                if at.startswith("-"):  # literally
                    at = self._named(f"add nsw i64 {size}, {at}")
                self._check(f"icmp ult i64 {at}, {size}", node)
                offset = self._named(f"add nsw i64 {offset}, {at}") if offset else at
        return self._named(f"getelementptr inbounds {LLVM[array.type.of]}, ptr {pointer}, i64 {offset}")

    def _part(self, value: Value, cut: Any) -> Value:
        pointer, first, *rest = value.parts
        begin = "0" if cut.lower is None else self._as("i", self._value(cut.lower), cut)
        end = first if cut.upper is None else self._as("i", self._value(cut.upper), cut)
        self._check(f"icmp ule i64 {begin}, {end}", cut)
        self._check(f"icmp ule i64 {end}, {first}", cut)
        offset = begin
        for size in rest:
            offset = self._named(f"mul nsw i64 {offset}, {size}")
        at = self._named(f"getelementptr inbounds {LLVM[value.type.of]}, ptr {pointer}, i64 {offset}")
        return Value(value.type, (at, self._named(f"sub nsw i64 {end}, {begin}"), *rest))

    def _of_BinOp(self, node: ast.BinOp) -> Value:
        return self._arithmetic(node, node.left, node.right)

    def _arithmetic(self, node: Any, left: ast.expr, right: ast.expr) -> Value:
        a = self._value(left)
        times = right.value if isinstance(right, ast.Constant) else None
        if isinstance(node.op, ast.Pow) and isinstance(times, int) and 1 <= times <= 8:
            out = a
            for _ in range(times - 1):
                out = self._operated(ast.BinOp(left, ast.Mult(), left), out, a)
            return out
        return self._operated(node, a, self._value(right))

    def _operated(self, node: Any, a: Value, b: Value) -> Value:
        if (word := _OPERATIONS.get(type(node.op))) is not None:
            if a.type == b.type == "i":
                return Value("i", (self._named(f"{word} nsw i64 {a.parts[0]}, {b.parts[0]}"),))
        elif isinstance(node.op, ast.Div):
            word = "div"
        elif isinstance(node.op, ast.Pow):
            return self._from_llvm("pow", [a, b], node)
        elif isinstance(node.op, (ast.FloorDiv, ast.Mod)) and a.type == b.type == "i":  # of what is not negative
            word = "sdiv" if isinstance(node.op, ast.FloorDiv) else "srem"
            self._check(f"icmp sge i64 {a.parts[0]}, 0", node)
            self._check(f"icmp sgt i64 {b.parts[0]}, 0", node)
            return Value("i", (self._named(f"{word} i64 {a.parts[0]}, {b.parts[0]}"),))
        else:
            raise self._fail(node, "no kernel may compute this")
        kind = _widest(a, b)
        return Value(kind, (self._named(f"f{word} {LLVM[kind]} {self._as(kind, a, node)}, {self._as(kind, b, node)}"),))

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        if isinstance(node.op, ast.Not):
            test = self._truth(node.operand)
            return constant(not test) if isinstance(test, bool) else Value("b", (self._named(f"xor i1 {test}, true"),))
        if isinstance(node.operand, ast.Constant):
            return constant(ast.literal_eval(node))
        value = self._value(node.operand)
        if value.type == "i":
            return Value("i", (self._named(f"sub nsw i64 0, {value.parts[0]}"),))
        kind = _widest(value)
        return Value(kind, (self._named(f"fneg {LLVM[kind]} {self._as(kind, value, node)}"),))

    def _of_Compare(self, node: ast.Compare) -> Value:
        left, out = self._value(node.left), ""
        for operator, right_node in zip(node.ops, node.comparators, strict=True):
            right = self._value(right_node)
            if isinstance(operator, (ast.Is, ast.IsNot)):
                return constant((left.type == right.type) == isinstance(operator, ast.Is))
            if isinstance(operator, (ast.In, ast.NotIn)):
                known = [constant(v) for v in right.type.value] if isinstance(right.type, Known) else self._split(right)
                found = [self._compared(ast.Eq(), left, one, node) for one in known]
                one = found[0]
                for other in found[1:]:
                    one = self._named(f"or i1 {one}, {other}")
                one = one if isinstance(operator, ast.In) else self._named(f"xor i1 {one}, true")
            else:
                one = self._compared(operator, left, right, node)
            out = self._named(f"and i1 {out}, {one}") if out else one
            left = right
        return Value("b", (out,))

    def _compared(self, operator: ast.cmpop, a: Value, b: Value, node: Any) -> str:
        of_floats, of_integers = _COMPARISONS[type(operator)]
        if a.type == b.type and a.type in ("i", "b"):
            return self._named(f"icmp {of_integers} {LLVM[a.type]} {a.parts[0]}, {b.parts[0]}")
        return self._named(f"fcmp {of_floats} double {self._as('d', a, node)}, {self._as('d', b, node)}")

    def _of_BoolOp(self, node: ast.BoolOp) -> Value:
        first, *others = node.values
        rest = others[0] if len(others) == 1 else ast.copy_location(ast.BoolOp(node.op, others), others[0])
        known = ast.Constant(isinstance(node.op, ast.Or))
        yes, no = (known, rest) if known.value else (rest, known)
        return self._of_IfExp(ast.copy_location(ast.IfExp(first, yes, no), node))

    def _of_IfExp(self, node: ast.IfExp) -> Value:
        test = self._truth(node.test)
        if isinstance(test, bool):
            return self._value(node.body if test else node.orelse)
        name = f"choice of line {node.lineno}, column {node.col_offset}"
        yes, no, end = self._fresh("yes"), self._fresh("no"), self._fresh("end")
        self._emit(f"br i1 {test}, label %{yes}, label %{no}")
        for label, branch in ((yes, node.body), (no, node.orelse)):
            self._begin(label)
            self._assign(name, self._value(branch), branch)
            self._emit(f"br label %{end}")
        self._begin(end)
        return self._load(*self._places[name])

    def _assign(self, name: str, value: Value, node: Any = None) -> None:
        if name not in self._places:
            kind = self._wider.get(name, value.type)
            self._places[name] = kind, self._slots(kind)
        kind, slots = self._places[name]
        if kind != value.type:
            if isinstance(kind, str) and isinstance(value.type, str) and value.type in WIDER.get(kind, ""):
                raise MustBeWiderError(name, value.type)
            if not isinstance(kind, str) or not isinstance(value.type, str) or kind not in WIDER.get(value.type, ""):
                raise self._fail(node, f"{name} has been {kind} before, and is now {value.type}")
            value = Value(kind, (self._as(kind, value, node),))
        self._store(value, slots)

    def _of_Call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "reshape":
            value, shape = self._value(node.func.value), self._split(self._value(node.args[0]))
            sizes = tuple(self._as("i", s, node) for s in shape)
            return Value(ArrayType(value.type.of, len(sizes)), (value.parts[0], *sizes))
        function = self._value(node.func)
        if not isinstance(function.type, Known) or node.keywords:
            raise self._fail(node, "this cannot be called")
        known, values = function.type.value, [self._value(a) for a in node.args]
        if known in _IN_LLVM:
            return self._from_llvm(_IN_LLVM[known], values, node)
        if (own := _OWN.get(known)) is not None:
            return own(self, values, node)
        if isinstance(known, type) and issubclass(known, tuple):
            return self._joined(values, known)
        if not isinstance(known, FunctionType):
            raise self._fail(node, "this cannot be called")
        if len(values) != known.__code__.co_argcount or known.__defaults__ or known.__code__.co_kwonlyargcount:
            raise self._fail(node, f"a kernel takes all its {known.__code__.co_argcount} arguments by position")
        name, kind = self._program.kernel(known, tuple(v.type for v in values))
        passed = [argument for v in values for argument in self._argument(v)]
        words = words_of(kind)
        text = f"@{name}({', '.join([*passed, 'ptr %pool'])})"
        if not words:
            self._emit(f"call void {text}")
            return Value(kind)
        if len(words) == 1:
            return Value(kind, (self._named(f"call {words[0]} {text}"),))
        whole = f"{{ {', '.join(words)} }}"
        out = self._named(f"call {whole} {text}")
        return Value(kind, tuple(self._named(f"extractvalue {whole} {out}, {i}") for i in range(len(words))))

    def _from_llvm(self, name: str, values: Sequence[Value], node: Any) -> Value:
        kind = _widest(*values)
        passed = ", ".join(f"{LLVM[kind]} {self._as(kind, v, node)}" for v in values)
        of = f"{LLVM[kind]} @llvm.{name}.{'' if kind == 'd' else kind}f64"
        self._program.declared.add((of, ", ".join([LLVM[kind]] * len(values))))
        return Value(kind, (self._named(f"call {of}({passed})"),))

    def _truth(self, node: ast.expr) -> str | bool:
        value = self._value(node)
        if isinstance(value.type, Known):
            return bool(value.type.value)
        if value.type == "i":
            return self._named(f"icmp ne i64 {value.parts[0]}, 0")
        if value.parts[0] in ("true", "false"):
            return value.parts[0] == "true"
        return value.parts[0]

    # --- functions of their own

    def new_array(self, sizes: list[Value], node: Any) -> Value:
        """Write `new`."""
        parts = [self._as("i", s, node) for s in sizes]
        count = parts[0]
        for part in parts[1:]:
            count = self._named(f"mul nsw i64 {count}, {part}")
        at = self._named(f"call noalias ptr @new(i64 {count}, ptr %pool)")
        return Value(ArrayType("d", len(parts)), (at, *parts))

    def array_at(self, of: str, values: list[Value], node: Any) -> Value:
        """Write `doubles` and `integers`."""
        sizes = tuple(self._as("i", v, node) for v in values[1:])
        return Value(ArrayType(of, len(sizes)), (self._pointer(values[0], node), *sizes))

    def structure_at(self, values: list[Value], node: Any) -> Value:
        """Write `structure`."""
        return Value(group_of(values[1].type.value), (), self._pointer(values[0], node))

    def _pointer(self, address: Value, node: Any) -> str:
        return self._named(f"inttoptr i64 {self._as('i', address, node)} to ptr")

    def weighted(self, values: list[Value], node: Any) -> Value:
        """Write `weighted`."""
        weights, rows, i = values[0].type.value, values[1], self._as("i", values[2], node)
        kind = rows.type.of
        total = "" if len(values) < 4 else self._as(kind, values[3], node)
        for k, weight in enumerate(weights):
            if weight != 0:
                at = self._read(kind, self._address(rows, [str(k), i], node))
                term = self._named(f"fmul {LLVM[kind]} {self._as(kind, constant(float(weight)), node)}, {at}")
                total = self._named(f"fadd {LLVM[kind]} {total}, {term}") if total else term
        return Value(kind, (total,))

    def choose_above(self, values: list[Value], node: Any) -> Value:
        """Write `choose_above`."""
        kind = _widest(*values)
        a, b, yes, no = (self._as(kind, v, node) for v in values)
        of = LLVM[kind]
        is_above = f"{of.replace('double', 'i1')} {self._named(f'fcmp ogt {of} {a}, {b}')}"
        return Value(kind, (self._named(f"select {is_above}, {of} {yes}, {of} {no}"),))

    def in_lanes(self, values: list[Value], node: Any) -> Value:
        """Write `in_lanes`."""
        return Value(ArrayType(f"v{values[1].parts[0]}", values[0].type.dims - 1), values[0].parts[:-1])

    def lanes(self, values: list[Value], node: Any) -> Value:
        """Write `lanes`."""
        out, kind = "poison", f"v{len(values)}"
        for i, value in enumerate(values):
            out = self._named(f"insertelement {LLVM[kind]} {out}, double {self._as('d', value, node)}, i64 {i}")
        return Value(kind, (out,))

    def lanes_at(self, values: list[Value], node: Any) -> Value:
        """Write `lanes_at`."""
        kind = f"v{values[2].parts[0]}"
        return Value(kind, (self._read(kind, self._first(kind, values, node)),))

    def set_lanes(self, values: list[Value], node: Any) -> Value:
        """Write `set_lanes`."""
        kind = values[2].type
        self._write(kind, values[2].parts[0], self._first(kind, values, node))
        return Value(Known(None))

    def _first(self, kind: str, values: list[Value], node: Any) -> str:
        """Return the address of the first of several entries."""
        i = self._as("i", values[1], node)
        last = self._named(f"add nsw i64 {i}, {int(kind[1]) - 1}")
        self._check(f"icmp ult i64 {last}, {values[0].parts[1]}", node)
        return self._address(values[0], [i], node)

    def called(self, values: list[Value], node: Any) -> Value:
        """Write `call`."""
        at = self._pointer(values[0], node)
        passed = ", ".join(f"{words_of(v.type)[0]} {v.parts[0]}" for v in values[1:])
        self._emit(f"call void {at}({passed})")
        return Value(Known(None))

    def extreme(self, comparison: ast.cmpop, values: list[Value], node: Any) -> Value:
        """Write `min` and `max`: the first of those that no later one beats, as Python's."""
        kind = "i" if all(v.type == "i" for v in values) else "d"
        out = self._as(kind, values[0], node)
        for other in values[1:]:
            b = Value(kind, (self._as(kind, other, node),))
            better = self._compared(comparison, b, Value(kind, (out,)), node)
            out = self._named(f"select i1 {better}, {LLVM[kind]} {b.parts[0]}, {LLVM[kind]} {out}")
        return Value(kind, (out,))

    def whole(self, values: list[Value], node: Any) -> Value:
        """Write `int`."""
        if values[0].type == "i":
            return values[0]
        return Value("i", (self._named(f"fptosi double {self._as('d', values[0], node)} to i64"),))


def _widest(*values: Value) -> str:
    """Return the type that numbers of several have together, floats at least."""
    return max((v.type for v in values if v.type in WIDER["d"]), default="d")


_OWN: dict[Any, Callable[[Expressions, list[Value], Any], Value]] = {
    new: Expressions.new_array,
    doubles: lambda body, values, node: body.array_at("d", values, node),
    integers: lambda body, values, node: body.array_at("i", values, node),
    structure: Expressions.structure_at,
    weighted: Expressions.weighted,
    choose_above: Expressions.choose_above,
    in_lanes: Expressions.in_lanes,
    lanes: Expressions.lanes,
    lanes_at: Expressions.lanes_at,
    set_lanes: Expressions.set_lanes,
    call: Expressions.called,
    min: lambda body, values, node: body.extreme(ast.Lt(), values, node),
    max: lambda body, values, node: body.extreme(ast.Gt(), values, node),
    int: Expressions.whole,
    float: lambda body, values, node: Value("d", (body._as("d", values[0], node),)),
    len: lambda body, values, node: Value("i", (values[0].parts[1],)),
}
