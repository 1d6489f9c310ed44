"""Values of kernels and their types; how LLVM's text of one kernel is written: operations, blocks, places in memory."""

from __future__ import annotations

import ast
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from fmepy.compiled.kernels import KernelError, doubles, integers
from fmepy.compiled.llvm_operations import number


@dataclass(frozen=True)
class ArrayType:
    """Contiguous numbers, by rows."""

    of: str
    dims: int


@dataclass(frozen=True)
class Group:
    """A tuple; `made_by` is its class, if it has names."""

    types: tuple[Any, ...]
    made_by: Any = None


@dataclass(frozen=True)
class Known:
    """What is known when a kernel is translated: None, a function, a module."""

    value: Any


Type: TypeAlias = "str | ArrayType | Group | Known"  # floats, whole numbers, truth values, lanes of floats
LLVM = {"d": "double", "i": "i64", "b": "i1", "v4": "<4 x double>", "v8": "<8 x double>"}
WIDER = {"i": ("d", "v4", "v8"), "d": ("v4", "v8")}
"""What the values of a type may become."""
_OF_WORD: dict[str, Type] = {
    "int": "i", "float": "d", "bool": "b", "IntVector": ArrayType("i", 1), "IntMatrix": ArrayType("i", 2),
    "Vector": ArrayType("d", 1), "Matrix": ArrayType("d", 2), "Cube": ArrayType("d", 3),
}  # fmt: skip


def annotated(thing: Any) -> list[Type]:
    """Return the types of a kernel's arguments or of a named tuple's fields: the words that stand there count."""
    known, out = vars(sys.modules[thing.__module__]), []
    for name, hint in thing.__annotations__.items():
        word = getattr(hint, "__forward_arg__", getattr(hint, "__name__", hint))
        if name == "return":
            continue
        if word not in _OF_WORD and not hasattr(known.get(word), "__annotations__"):
            raise KernelError(
                f"{thing.__name__}: `{name}` is annotated {word!r}, which says no type of an argument; write one of "
                f"{', '.join(_OF_WORD)}, or the name of a named tuple, in a module that begins with `from __future__ "
                "import annotations`."
            )
        out.append(_OF_WORD[word] if word in _OF_WORD else group_of(known[word]))
    return out


def group_of(kind: Any) -> Group:
    """Return the type of a named tuple or dataclass."""
    return Group(tuple(annotated(kind)), kind)


def passed_as(kind: Type) -> str:
    """Return LLVM's types of an argument."""
    return "ptr" if isinstance(kind, Group) else ", ".join(words_of(kind))


def words_of(kind: Type) -> list[str]:
    """Return LLVM's types of the parts of a value."""
    if isinstance(kind, Group):
        return [word for part in kind.types for word in words_of(part)]
    if isinstance(kind, ArrayType):
        return ["ptr"] + ["i64"] * kind.dims
    return [] if isinstance(kind, Known) else [LLVM[kind]]


def structure(address: int, kind: Any) -> Any:
    """Return the named tuple of a class whose words, those of `packed`, stand at an address."""
    group = group_of(kind)
    return _unpacked(group, iter(integers(address, len(words_of(group))).tolist()))


def _unpacked(kind: Any, words: Iterator[int]) -> Any:
    if hasattr(kind, "types"):
        return kind.made_by(*(_unpacked(part, words) for part in kind.types))
    first = next(words)
    if hasattr(kind, "dims"):
        return {"d": doubles, "i": integers}[kind.of](first, *(next(words) for _ in range(kind.dims)))
    return struct.unpack("d", struct.pack("q", first))[0] if kind == "d" else first


@dataclass(frozen=True)
class Value:
    """A value: the names of its parts; of a tuple that lies in memory the name of its place.

    Tuples never change, so parts of what a kernel was handed are loaded where it begins.
    """

    type: Any
    parts: tuple[str, ...] = ()
    at: str = ""
    is_early: bool = False


def constant(value: Any) -> Value:
    """Return the value of a number, or of another object of Python."""
    if isinstance(value, bool):
        return Value("b", (str(value).lower(),))
    if isinstance(value, int):
        return Value("i", (str(value),))
    return Value("d", (number(value),)) if isinstance(value, float) else Value(Known(value))


class Writer:
    """LLVM's text of one kernel. Names are places on the stack, which LLVM turns into registers.

    Parameters
    ----------
    function : function
    checks : list of str, optional
        Sentences for indices that are out of range; they are looked for if it is given.
    """

    def __init__(self, function: Any, checks: list[str] | None = None) -> None:
        self._function, self._checks = function, checks
        self._heads: list[str] = []
        self._lines: list[str] = []
        self._early: dict[str, str] = {}
        self._count, self._is_open = 0, True

    def _emit(self, line: str) -> None:
        if self._is_open:
            self._lines.append(f"  {line}")
        if line.startswith(("br ", "ret ", "unreachable")):
            self._is_open = False

    def _named(self, text: str) -> str:
        name = self._fresh("%v")
        self._emit(f"{name} = {text}")
        return name

    def _fresh(self, letter: str) -> str:
        self._count += 1
        return f"{letter}{self._count}"

    def _begin(self, label: str) -> None:
        if self._is_open:
            self._emit(f"br label %{label}")
        self._lines.append(f"{label}:")
        self._is_open = True

    def _check(self, condition: str, node: Any) -> None:
        """Write that a condition is looked at, where a program has checks."""
        if self._checks is not None:
            self._checks.append(str(self._fail(node, "out of range")))
            self._emit(f"call void @check(i1 {self._named(condition)}, i64 {len(self._checks)})")

    def _slots(self, kind: Type) -> list[str]:
        """Return places on the stack: one a word, or one for a tuple."""
        words = [f"[{len(words_of(kind))} x i64]"] if isinstance(kind, Group) else words_of(kind)
        names = [self._fresh("%s") for _ in words]
        self._heads += [f"  {n} = alloca {w}" for n, w in zip(names, words, strict=True)]
        return names

    def _store(self, value: Value, slots: Sequence[str]) -> None:
        parts, words = self._parts(value), words_of(value.type)
        if isinstance(value.type, Group):
            slots = [self._named(f"getelementptr i64, ptr {slots[0]}, i64 {i}") for i in range(len(words))]
        for word, part, slot in zip(words, parts, slots, strict=True):
            self._emit(f"store {word} {part}, ptr {slot}")

    def _load(self, kind: Type, slots: Sequence[str]) -> Value:
        if isinstance(kind, Group):
            return Value(kind, (), slots[0])
        return Value(kind, tuple(self._named(f"load {w}, ptr {s}") for w, s in zip(words_of(kind), slots, strict=True)))

    def _parts(self, value: Value) -> tuple[str, ...]:
        """Return the names of all parts."""
        if not value.at:
            return value.parts
        return tuple(part for one in self._split(value) for part in self._parts(one))

    def _split(self, value: Value) -> list[Value]:
        """Return the entries of a tuple."""
        return [self._one_of(value, i) for i in range(len(value.type.types))]

    def _one_of(self, value: Value, i: int) -> Value:
        """Return an entry of a tuple."""
        begin = sum(len(words_of(kind)) for kind in value.type.types[:i])
        kind = value.type.types[i]
        if not value.at:
            return Value(kind, value.parts[begin : begin + len(words_of(kind))])
        if isinstance(kind, Group):
            return Value(
                kind, (), self._placed(f"getelementptr i64, ptr {value.at}, i64 {begin}", value), value.is_early
            )
        parts = []
        for j, word in enumerate(words_of(kind)):
            at = self._placed(f"getelementptr i64, ptr {value.at}, i64 {begin + j}", value)
            parts.append(self._placed(f"load {word}, ptr {at}", value))
        return Value(kind, tuple(parts))

    def _placed(self, text: str, value: Value) -> str:
        """Return the name of an operation's result: where the kernel begins, if the value was known then."""
        if not value.is_early:
            return self._named(text)
        if text not in self._early:
            self._early[text] = self._fresh("%v")
            self._heads.append(f"  {self._early[text]} = {text}")
        return self._early[text]

    def _joined(self, values: Sequence[Value], made_by: Any = None) -> Value:
        kind = Group(tuple(v.type for v in values), made_by)
        return Value(kind, tuple(part for v in values for part in self._parts(v)))

    def _argument(self, value: Value) -> list[str]:
        """Return what is passed to another kernel."""
        if not isinstance(value.type, Group):
            return [f"{w} {p}" for w, p in zip(words_of(value.type), value.parts, strict=True)]
        if value.at:
            return [f"ptr {value.at}"]
        slots = self._slots(value.type)
        self._store(value, slots)
        return [f"ptr {slots[0]}"]

    def _fail(self, node: Any, why: str) -> KernelError:
        line = self._function.__code__.co_firstlineno + getattr(node, "lineno", 1) - 1
        return KernelError(f"{self._function.__name__}, line {line}: {why}: {ast.unparse(node)}")

    def _as(self, kind: str, value: Value, node: Any) -> str:
        """Return the name of a number as a float or a whole number."""
        if value.type == kind:
            return value.parts[0]
        if kind == "d" and value.type == "i":
            return self._named(f"sitofp i64 {value.parts[0]} to double")
        if kind in WIDER["d"]:
            of, number = LLVM[kind], self._as("d", value, node)
            first = self._named(f"insertelement {of} poison, double {number}, i64 0")
            return self._named(f"shufflevector {of} {first}, {of} poison, <{kind[1]} x i32> zeroinitializer")
        raise self._fail(node, f"this should be of type {kind}, and is {value.type}")

    def _read(self, kind: str, at: str) -> str:
        """Return the name of an entry of an array; lanes lie anywhere in it."""
        return self._named(f"load {LLVM[kind]}, ptr {at}, align 8")

    def _write(self, kind: str, value: str, at: str) -> None:
        """Set it."""
        self._emit(f"store {LLVM[kind]} {value}, ptr {at}, align 8")
