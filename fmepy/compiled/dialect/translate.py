# ruff: noqa: N802    # methods are named as the nodes of Python's syntax that they translate
"""Kernels (see `compiled.kernels`) -> LLVM's text."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import FunctionType
from typing import Any

from fmepy.compiled.dialect.expressions import Expressions, MustBeWiderError
from fmepy.compiled.dialect.types import Group, Known, Type, Value, annotated, passed_as, words_of
from fmepy.compiled.kernels import KernelError

MOST_INLINE = 60
"""Lines of a kernel that may become part of others: LLVM takes more than proportionally long for long functions."""
_HEAD = """
declare noalias ptr @calloc(i64, i64)
declare void @free(ptr)

define internal noalias ptr @new(i64 %count, ptr %pool) {
  %words = add i64 %count, 2
  %block = call noalias ptr @calloc(i64 %words, i64 8)
  %before = load ptr, ptr %pool
  store ptr %before, ptr %block
  store ptr %block, ptr %pool
  %begin = getelementptr i64, ptr %block, i64 2
  ret ptr %begin
}

define internal void @release(ptr %pool) noinline {
entry:
  %first = load ptr, ptr %pool
  br label %look
look:
  %block = phi ptr [ %first, %entry ], [ %next, %drop ]
  %done = icmp eq ptr %block, null
  br i1 %done, label %end, label %drop
drop:
  %next = load ptr, ptr %block
  call void @free(ptr %block)
  br label %look
end:
  ret void
}

!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}

@broken = internal global i64 0

define internal void @check(i1 %holds, i64 %sentence) {
  %before = load i64, ptr @broken
  %is_first = icmp eq i64 %before, 0
  %found = select i1 %is_first, i64 %sentence, i64 %before
  %after = select i1 %holds, i64 %before, i64 %found
  store i64 %after, ptr @broken
  ret void
}
"""


def kinds_of(function: Callable[..., None]) -> str:
    """Return a letter an argument of an outermost kernel: i(nteger), d(ouble), p(ointer to words)."""
    return "".join("p" if isinstance(kind, Group) else str(kind) for kind in annotated(function))


def kernel_text(function: Callable[..., None], checks: list[str] | None = None) -> str:
    """Return LLVM's text of a kernel, as the C function `run`.

    With `checks`, which is filled with sentences, indices are looked at; then the C function takes a further argument,
    the address of a whole number, which becomes the number of the first sentence (from 1) that holds, or 0.

    Raises
    ------
    KernelError
        For what cannot be translated, with the line where it stands.
    """
    program, kinds = _Program(checks), annotated(function)
    name, _ = program.kernel(function, tuple(kinds))
    taken = ", ".join(f"{passed_as(k)} %a{i}" for i, k in enumerate(kinds))
    told = [] if checks is None else ["  %found = load i64, ptr @broken", "  store i64 %found, ptr %told"]
    run = [f"define void @run({taken}{', ptr %told' if told else ''}) {{"]
    run += ["  %pool = alloca ptr", "  store ptr null, ptr %pool", *(["  store i64 0, ptr @broken"] if told else [])]
    run += [f"  call void @{name}({taken}, ptr %pool)", "  call void @release(ptr %pool)", *told, "  ret void", "}"]
    heads = [f"declare {function}({kinds})" for function, kinds in sorted(program.declared)]
    return "\n".join([_HEAD, *heads, *program.texts, *run])


@dataclass
class _Program:
    """All kernels of a program."""

    checks: list[str] | None
    texts: list[str] = field(default_factory=list)
    declared: set[tuple[str, str]] = field(default_factory=set)
    _made: dict[Any, tuple[str, Type]] = field(default_factory=dict)

    def kernel(self, function: Callable[..., Any], kinds: tuple[Type, ...]) -> tuple[str, Type]:
        """Return name and result of a kernel for such arguments."""
        key = function, kinds
        if key not in self._made:
            wider: dict[str, str] = {}
            while True:
                body = _Body(self, function, f"{function.__name__}.{len(self._made)}", kinds, wider)
                try:
                    text = body.text()
                    break
                except MustBeWiderError as error:
                    wider[error.args[0]] = error.args[1]
            self._made[key] = (body.name, body.result)
            self.texts.append(text)
        return self._made[key]


@cache
def _tree(function: FunctionType) -> ast.FunctionDef:
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return tree


@cache
def _assigned(function: FunctionType) -> set[str]:
    """Return the names that a kernel assigns to."""
    return {n.id for n in ast.walk(_tree(function)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


class _Body(Expressions):
    """One kernel for one combination of types."""

    def __init__(
        self, program: _Program, function: Any, name: str, kinds: tuple[Type, ...], wider: dict[str, str]
    ) -> None:
        super().__init__(function, program, wider)
        self.name = name
        self.result: Type = Known(None)
        self._kinds = kinds
        self._loops: list[tuple[str, str]] = []
        self._returned: Type | None = None

    def text(self) -> str:
        """Return the function."""
        tree, taken = _tree(self._function), []
        for argument, kind in zip(tree.args.args, self._kinds, strict=True):
            words = ["ptr"] if isinstance(kind, Group) else words_of(kind)
            parts = tuple(f"%{argument.arg}.{i}" for i in range(len(words)))
            taken += [f"{w} {p}" for w, p in zip(words, parts, strict=True)]
            value = Value(kind, (), parts[0], True) if isinstance(kind, Group) else Value(kind, parts)
            if argument.arg in _assigned(self._function):
                self._assign(argument.arg, value)
            else:
                self._fixed[argument.arg] = value
        self._statements(tree.body)
        if self._returned is not None:
            self.result = self._returned
        words = words_of(self.result)
        if self._is_open:
            self._emit("unreachable" if words else "ret void")
        back = words[0] if len(words) == 1 else f"{{ {', '.join(words)} }}" if words else "void"
        kind = "noinline " if len(self._lines) > MOST_INLINE else ""
        head = f"define internal {back} @{self.name}({', '.join([*taken, 'ptr %pool'])}) {kind}{{"
        return "\n".join([head, "entry:", *self._heads, *self._lines, "}"])

    # --- statements

    def _statements(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if not self._is_open:  # what follows is never reached
                return
            how = getattr(self, f"_do_{type(statement).__name__}", None)
            if how is None:
                raise self._fail(statement, "no kernel may hold this")
            try:
                how(statement)
            except (KernelError, MustBeWiderError):
                raise
            except Exception as error:
                raise self._fail(statement, f"this cannot be translated ({error})") from error

    def _do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._value(node.value)

    def _do_Pass(self, node: ast.Pass) -> None:
        pass

    def _do_Assign(self, node: ast.Assign) -> None:
        value = self._value(node.value)
        for target in node.targets:
            self._assign_to(target, value)

    def _assign_to(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Tuple):
            for one, part in zip(target.elts, self._split(value), strict=True):
                self._assign_to(one, part)
        elif isinstance(target, ast.Name):
            self._assign(target.id, value, target)
        else:
            kind, at = self._entry(target)
            self._write(kind, self._as(kind, value, target), at)

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self._assign(node.target.id, self._arithmetic(node, node.target, node.value), node)
            return
        kind, at = self._entry(node.target)
        value = self._value(node.value)
        before = Value(kind, (self._read(kind, at),))
        self._write(kind, self._as(kind, self._operated(node, before, value), node), at)

    def _do_Return(self, node: ast.Return) -> None:
        value = Value(Known(None)) if node.value is None else self._value(node.value)
        if self._returned is None:
            self._returned = value.type
        if value.type != self._returned:
            raise self._fail(node, f"returned {self._returned} before, and now {value.type}")
        words = words_of(value.type)
        if not words:
            self._emit("ret void")
        elif len(words) == 1:
            self._emit(f"ret {words[0]} {self._parts(value)[0]}")
        else:
            kind, out = f"{{ {', '.join(words)} }}", "undef"
            for i, (word, part) in enumerate(zip(words, self._parts(value), strict=True)):
                out = self._named(f"insertvalue {kind} {out}, {word} {part}, {i}")
            self._emit(f"ret {kind} {out}")

    def _do_If(self, node: ast.If) -> None:
        test = self._truth(node.test)
        if isinstance(test, bool):
            self._statements(node.body if test else node.orelse)
            return
        yes, no, end = self._fresh("yes"), self._fresh("no"), self._fresh("end")
        self._emit(f"br i1 {test}, label %{yes}, label %{no}")
        ends = False
        for label, body in ((yes, node.body), (no, node.orelse)):
            self._begin(label)
            self._statements(body)
            if self._is_open:
                self._emit(f"br label %{end}")
                ends = True
        if ends:
            self._begin(end)

    def _do_While(self, node: ast.While) -> None:
        if node.orelse:
            raise self._fail(node.test, "a kernel cannot have an else after a loop")
        look, body, end = self._fresh("look"), self._fresh("body"), self._fresh("end")
        self._begin(look)
        test = self._truth(node.test)
        if isinstance(test, bool):
            test = str(test).lower()
        self._emit(f"br i1 {test}, label %{body}, label %{end}")
        self._loop(node.body, body, look, end)

    def _loop(self, statements: Sequence[ast.stmt], body: str, again: str, end: str) -> None:
        self._loops.append((again, end))
        self._begin(body)
        self._statements(statements)
        if self._is_open:
            self._emit(f"br label %{again}")
        self._loops.pop()
        self._begin(end)

    def _do_For(self, node: ast.For) -> None:
        word = getattr(node.iter.func, "id", "") if isinstance(node.iter, ast.Call) else ""
        if node.orelse or not isinstance(node.iter, ast.Call) or word not in ("range", "independent"):
            raise self._fail(node.iter, "a kernel runs over range() or independent() alone, without else")
        is_free, first = word == "independent", len(self._lines)
        bounds = [self._as("i", self._value(a), a) for a in node.iter.args]
        start, stop, step = (["0", *bounds, "1"] if len(bounds) == 1 else [*bounds, "1"])[:3]
        look, body, again, end = (self._fresh(letter) for letter in ("look", "body", "again", "end"))
        (counter,) = self._slots("i")
        self._emit(f"store i64 {start}, ptr {counter}")
        self._begin(look)
        at = self._named(f"load i64, ptr {counter}")
        goes_on = self._named(f"icmp {'sgt' if step.startswith('-') else 'slt'} i64 {at}, {stop}")
        self._emit(f"br i1 {goes_on}, label %{body}, label %{end}")
        self._loops.append((again, end))
        self._begin(body)
        self._assign_to(node.target, Value("i", (at,)))
        self._statements(node.body)
        self._loops.pop()
        self._begin(again)
        before = self._named(f"load i64, ptr {counter}")
        self._emit(f"store i64 {self._named(f'add nsw i64 {before}, {step}')}, ptr {counter}")
        self._emit(f"br label %{look}{', !llvm.loop !1' if is_free else ''}")
        if is_free:
            reads = re.compile(r"^  (%\S+ = load|store) .*")
            self._lines[first:] = [reads.sub(r"\g<0>, !llvm.access.group !0", line) for line in self._lines[first:]]
        self._begin(end)

    def _do_Break(self, node: ast.Break) -> None:
        self._emit(f"br label %{self._loops[-1][1]}")

    def _do_Continue(self, node: ast.Continue) -> None:
        self._emit(f"br label %{self._loops[-1][0]}")
