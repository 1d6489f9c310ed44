"""Computations with arrays -> machine code, by loops: values, and derivatives along directions.

All numbers of a run stand in one block, one step of the computation (`fmepy.language.arrays`) after the other: what
is written into the places of t, y, p and u is read by the loops, which write all else. A second block of the same form
holds derivatives along one direction: what the directions of y and p are is written into their places, and the loops
write those of all else (forward differentiation). What depends on parameters alone is computed once a run. A step that
is read once, by a loop over the same entries, is computed within that loop and has no place.

No operation is rearranged, so the values are the function's own but for the last digits of ``exp`` and its kin, and of
sums.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.compiled.llvm_operations import Part, declarations, number
from fmepy.compiled.machine import compiled
from fmepy.language.arrays import STEPWISE, Arrays, Run, Step
from fmepy.numerics.structure import Structure
from fmepy.types import IntVector, Matrix, Vector

MOST_WITHIN = 20
"""Steps that are computed within a loop of another, one inside the other."""
MOST_RUNS = 32
"""Runs that are copied by a loop each; more go by a table of places."""
_ARGUMENTS = "ptr noalias %w, ptr noalias %d, ptr noalias %k"
_ONE, _ZERO, _TWO = number(1.0), number(0.0), number(2.0)
_COMPARED = {"less": "olt", "less_equal": "ole", "greater": "ogt", "greater_equal": "oge"}
_IN_C = {
    "exp": "exp", "expm1": "expm1", "exp2": "exp2", "log": "log", "log1p": "log1p", "log2": "log2", "log10": "log10",
    "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2",
    "sinh": "sinh", "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh",
    "hypot": "hypot", "cbrt": "cbrt", "sqrt": "sqrt", "absolute": "fabs", "floor": "floor", "ceil": "ceil",
    "trunc": "trunc", "rint": "rint", "power": "pow",
}  # fmt: skip
_DEAR = {*_IN_C, "expit", "remainder", "floor_divide"} - {"absolute", "sqrt"}  # kept, rather than computed twice
_STEEP = {"sqrt", "cbrt", "power", "log", "log1p", "log2", "log10", "arcsin", "arccos", "arccosh", "arctanh", "hypot"}
"""Functions whose derivative may be infinite where they have a value: along no direction it is zero all the same."""


def _truth(part: Part, condition: str) -> str:
    return part.select(condition, _ONE, _ZERO)


def _is_true(part: Part, value: str) -> str:
    return part.compare("une", value, _ZERO)


def _value(part: Part, step: Step, v: list[str]) -> str:
    """Return the name of a function's value."""
    word, binary = step.word, part.binary
    if word in ("add", "subtract", "multiply", "divide"):
        return binary({"add": "fadd", "subtract": "fsub", "multiply": "fmul", "divide": "fdiv"}[word], *v)
    if word in _COMPARED:
        return _truth(part, part.compare(_COMPARED[word], *v))
    if word in ("logical_and", "logical_or"):
        a, b = (_is_true(part, x) for x in v)
        return _truth(part, part.emit(f"{word[8:]} i1 {a}, {b}"))
    if word == "whole_power":
        power = part.times_itself(v[0], abs(step.number))
        return power if step.number > 0 else binary("fdiv", _ONE, power)
    if word in _IN_C:
        return part.call(_IN_C[word], *v)
    own: dict[str, Callable[..., str]] = {
        "negative": lambda x: part.emit(f"fneg double {x}"),
        "positive": lambda x: x,
        "square": lambda x: binary("fmul", x, x),
        "reciprocal": lambda x: binary("fdiv", _ONE, x),
        "sign": part.sign,
        "where": lambda c, a, b: part.select(_is_true(part, c), a, b),
        "maximum": lambda a, b: part.largest([a, b]),
        "minimum": lambda a, b: part.smallest([a, b]),
        "remainder": part.modulo,
        "floor_divide": lambda a, b: part.call("rint", binary("fdiv", binary("fsub", a, part.modulo(a, b)), b)),
        "isfinite": lambda x: _truth(part, part.compare("ord", binary("fsub", x, x), _ZERO)),
        "isnan": lambda x: _truth(part, part.compare("uno", x, x)),
        "logical_not": lambda x: part.select(_is_true(part, x), _ZERO, _ONE),
        "expit": lambda x: binary("fdiv", _ONE, binary("fadd", _ONE, part.call("exp", part.emit(f"fneg double {x}")))),
    }
    return own[word](*v)


def _slope(part: Part, step: Step, v: list[str], out: str, s: list[str | None]) -> str | None:
    """Return the name of a function's derivative along a direction, from those of its arguments (None: zero)."""
    word, binary = step.word, part.binary
    if word == "where":
        a, b = (_ZERO if x is None else x for x in s[1:])
        return part.select(_is_true(part, v[0]), a, b)
    if word in ("maximum", "minimum"):
        a, b = (_ZERO if x is None else x for x in s)
        return part.select(part.compare("oge" if word == "maximum" else "ole", *v), a, b)
    if word in ("add", "subtract"):
        if s[0] is None:
            return s[1] if word == "add" or s[1] is None else part.emit(f"fneg double {s[1]}")
        return s[0] if s[1] is None else binary("fadd" if word == "add" else "fsub", s[0], s[1])
    if word == "divide" and s[1] is not None:
        above = part.emit(f"fneg double {binary('fmul', out, s[1])}")
        return binary("fdiv", above if s[0] is None else binary("fadd", s[0], above), v[1])
    total = None
    for i, slope in enumerate(s):
        if slope is None:
            continue
        term = _term(part, step, v, out, i, slope)
        if word in _STEEP:
            term = part.select(part.compare("oeq", slope, _ZERO), _ZERO, term)
        total = term if total is None else binary("fadd", total, term)
    return total


def _term(part: Part, step: Step, v: list[str], out: str, i: int, s: str) -> str:
    """Return the name of what the i-th argument adds to a derivative; `s` is its own."""
    x, binary, call = v[0], part.binary, part.call

    def times(a: str) -> str:
        return binary("fmul", a, s)

    def over(a: str) -> str:
        return binary("fdiv", s, a)

    def negated(a: str) -> str:
        return part.emit(f"fneg double {a}")

    def square(a: str) -> str:
        return binary("fmul", a, a)

    def one(word: str, a: str) -> str:
        return binary(word, _ONE, a)

    def power() -> str:
        n = step.number
        if n < 0:
            return over(binary("fdiv", x, binary("fmul", out, number(float(n)))))
        return times(binary("fmul", number(float(n)), part.times_itself(x, n - 1))) if n > 1 else s

    def general_power() -> str:
        if i == 0:
            return times(binary("fmul", v[1], call("pow", x, binary("fsub", v[1], _ONE))))
        known = part.select(part.compare("ogt", x, _ZERO), call("log", x), _ZERO)
        return times(binary("fmul", out, known))

    def scaled_log(base: float) -> str:
        return over(binary("fmul", x, number(float(np.log(base)))))

    squares: Callable[[], str] = lambda: binary("fadd", square(v[0]), square(v[1]))  # noqa: E731  # beside the others
    rules: dict[str, Callable[[], str]] = {
        "multiply": lambda: times(v[1 - i]),
        "divide": lambda: over(v[1]),
        "negative": lambda: negated(s),
        "positive": lambda: s,
        "absolute": lambda: times(part.sign(x)),
        "whole_power": power,
        "power": general_power,
        "square": lambda: times(binary("fmul", _TWO, x)),
        "reciprocal": lambda: times(negated(square(out))),
        "sqrt": lambda: over(binary("fmul", _TWO, out)),
        "cbrt": lambda: over(binary("fmul", number(3.0), square(out))),
        "exp": lambda: times(out),
        "exp2": lambda: times(binary("fmul", out, number(float(np.log(2.0))))),
        "expm1": lambda: times(binary("fadd", out, _ONE)),
        "log": lambda: over(x),
        "log1p": lambda: over(one("fadd", x)),
        "log2": lambda: scaled_log(2.0),
        "log10": lambda: scaled_log(10.0),
        "sin": lambda: times(call("cos", x)),
        "cos": lambda: negated(times(call("sin", x))),
        "tan": lambda: times(one("fadd", square(out))),
        "arcsin": lambda: over(call("sqrt", one("fsub", square(x)))),
        "arccos": lambda: negated(over(call("sqrt", one("fsub", square(x))))),
        "arctan": lambda: over(one("fadd", square(x))),
        "sinh": lambda: times(call("cosh", x)),
        "cosh": lambda: times(call("sinh", x)),
        "tanh": lambda: times(one("fsub", square(out))),
        "arcsinh": lambda: over(call("sqrt", one("fadd", square(x)))),
        "arccosh": lambda: over(call("sqrt", binary("fsub", square(x), _ONE))),
        "arctanh": lambda: over(one("fsub", square(x))),
        "arctan2": lambda: binary("fdiv", times(v[1]) if i == 0 else negated(times(x)), squares()),
        "hypot": lambda: binary("fdiv", times(v[i]), out),
        "remainder": lambda: s if i == 0 else negated(times(call("floor", binary("fdiv", x, v[1])))),
        "expit": lambda: times(binary("fmul", out, one("fsub", out))),
    }
    return rules[step.word]()


class ArrayCode:
    """A computation with arrays in machine code.

    Its functions take blocks of shape (size,), of directions (n_direction, size), contiguous.

    Attributes
    ----------
    size : int
        Of a block.
    rates : slice
        Where the rates stand in one.
    extras : ndarray of int
        Where the further outputs stand.
    checks, own_checks : ndarray of int
        What must not be zero; what of that depends on parameters alone.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays, self.declared = arrays, set[tuple[str, int]]()
        self._steps, self._inputs = arrays.steps, arrays.inputs
        self._place()
        self.rates = slice(self._places[arrays.rates], self._places[arrays.rates] + arrays.n_states)
        own = [run for run in arrays.checks if self._is_prepared(run.step)]
        self.extras, self.checks, self.own_checks = (
            np.array([i for r in runs for i in (self._places[r.step] + r.places)], dtype=np.intp)
            for runs in (arrays.extras, [run for run in arrays.checks if run not in own], own)
        )

    def at(self, word: str) -> slice:
        """Return where an input stands."""
        i = next(i for i, step in enumerate(self._steps) if step.kind == "input" and step.word == word)
        return slice(self._places[i], self._places[i] + self._steps[i].size)

    def block(self) -> Vector:
        """Return a block that holds the constants."""
        out = np.zeros(self.size)
        for i, at in self._places.items():
            if self._steps[i].kind == "constant":
                out[at : at + self._steps[i].size] = self._steps[i].values
        return out

    @cached_property
    def structure(self) -> Structure:
        """That of the Jacobian of the rates."""
        return Structure.of(self.arrays.reached)

    # --- what is computed where

    def _place(self) -> None:
        steps, arrays = self._steps, self.arrays
        wanted = {arrays.rates, *(r.step for r in (*arrays.checks, *arrays.extras))}
        wanted |= {i for i, step in enumerate(steps) if step.kind == "input"}
        needed, waiting = set[int](), list(wanted)
        while waiting:
            if (i := waiting.pop()) not in needed:
                needed.add(i)
                waiting += [run.step for read in steps[i].reads for run in read]
        self._needed = sorted(needed)
        readers: dict[int, list[tuple[int, Run]]] = {i: [] for i in needed}
        for i in self._needed:
            for read in steps[i].reads:
                for run in read:
                    readers[run.step].append((i, run))
        depth: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self._tables: dict[int, int] = {}
        self.size = 0
        for i in self._needed:
            deepest = max((depth[run.step] for read in steps[i].reads for run in read), default=0)
            within = i not in wanted and deepest < MOST_WITHIN and self._is_within(i, readers[i])
            depth[i] = deepest + 1 if within else 0
            if not within:
                self._places[i] = self.size
                self.size += steps[i].size
        table: list[IntVector] = [np.zeros(1, dtype=np.int64)]
        for i in self._needed:
            if steps[i].kind == "join" and len(steps[i].reads[0]) > MOST_RUNS:
                self._tables[i] = sum(map(len, table))
                table += [(self._places[run.step] + run.places).astype(np.int64) for run in steps[i].reads[0]]
        self._table = np.concatenate(table)

    def _is_within(self, i: int, readers: list[tuple[int, Run]]) -> bool:
        """Tell whether a step is computed within the loop of the only one that reads it, all of it and once."""
        step = self._steps[i]
        if step.kind != "each" or step.word in _DEAR or len(readers) != 1:
            return False
        ((reader, run),) = readers
        by = self._steps[reader]
        is_table = by.kind == "join" and len(by.reads[0]) > MOST_RUNS
        is_whole = (run.start, run.length) == (0, step.size) and (run.stride == 1 or step.size == 1)
        return is_whole and not is_table and self._is_prepared(i) == self._is_prepared(reader)

    def _is_prepared(self, i: int) -> bool:
        return self._inputs[i] <= {"p"}

    def _is_active(self, i: int) -> bool:
        """Whether a step has derivatives that are not zero everywhere."""
        return bool(self._inputs[i] & {"y", "p"}) and self._steps[i].word not in STEPWISE

    # --- calls

    @cached_property
    def _functions(self) -> tuple[Any, dict[str, Any]]:
        code = compiled(self.text())
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        plain = ctypes.PYFUNCTYPE(None, pointer, pointer, pointer)
        along = ctypes.PYFUNCTYPE(None, pointer, pointer, pointer, whole)
        kinds = {"prepare": plain, "rates": plain, "prepare_along": along, "rates_along": along}
        return code, {name: kind(code.address(name)) for name, kind in kinds.items()}

    def function(self, name: str, block: Vector, directions: Matrix | None = None) -> Callable[[], None]:
        """Return one of the functions, ready to work on blocks, which must stay where they are.

        name : {"prepare", "rates", "prepare_along", "rates_along"}
            What depends on parameters alone, and all else: their values, and their derivatives along directions, which
            ask for the values first.
        """
        call, w, k = self._functions[1][name], block.ctypes.data, self._table.ctypes.data
        if directions is None:
            return lambda: call(w, None, k)
        d, m = directions.ctypes.data, len(directions)
        return lambda: call(w, d, k, m)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_functions"}

    # --- the text

    def text(self) -> str:
        """Return the program."""
        functions = [
            self._function("prepare", True, False),
            self._function("rates", False, False),
            self._function("prepare_one", True, True),
            self._function("rates_one", False, True),
            self._each_direction("prepare"),
            self._each_direction("rates"),
        ]
        return "\n".join([declarations(self.declared), *functions])

    def _each_direction(self, name: str) -> str:
        part = Part(self.declared)
        with part.loop(0, "%m") as i:
            at = part.emit(f"getelementptr double, ptr %d, i64 {part.emit(f'mul i64 {i}, {self.size}')}")
            part.lines.append(f"  call void @{name}_one(ptr %w, ptr {at}, ptr %k)")
        return _defined(f"{name}_along", f"{_ARGUMENTS}, i64 %m", part)

    def _function(self, name: str, prepared: bool, slopes: bool) -> str:
        part = Part(self.declared)
        for i in self._needed:
            is_given = self._steps[i].kind in ("input", "constant")
            if i not in self._places or is_given or self._is_prepared(i) != prepared:
                continue
            if not slopes or self._is_active(i):
                getattr(self, f"_write_{self._steps[i].kind}")(part, i, "d" if slopes else "w")
        return _defined(name, _ARGUMENTS, part)

    def _write_each(self, part: Part, i: int, array: str) -> None:
        step = self._steps[i]
        self._hoist(part, step, array)
        with _loop(part, step.size) as k:
            part.store(self._computed(part, i, k, array), array, _index(part, self._places[i], k))

    def _write_join(self, part: Part, i: int, array: str) -> None:
        at, (read,) = self._places[i], self._steps[i].reads
        if i in self._tables:
            with _loop(part, self._steps[i].size) as k:
                entry = part.emit(f"getelementptr i64, ptr %k, i64 {_index(part, self._tables[i], k)}")
                place = part.emit(f"load i64, ptr {entry}")
                part.store(part.load(array, place), array, _index(part, at, k))
            return
        for run in read:
            self._hoist_run(part, run, array)
            with _loop(part, run.length) as k:
                part.store(self._entry(part, run, k, array), array, _index(part, at, k))
            at += run.length

    def _write_fold(self, part: Part, i: int, array: str) -> None:
        step, at = self._steps[i], self._places[i]
        ((run,),) = step.reads
        self._hoist_run(part, run, array)
        with _loop(part, step.size) as o:
            target, first = _index(part, at, o), _index(part, 0, o, step.number)
            part.store(self._entry(part, run, first, array), array, target)
            if step.number == 1:
                return
            with part.loop(1, step.number) as j:
                k = part.emit(f"add i64 {first}, {j}")
                before, new = part.load(array, target), self._entry(part, run, k, array)
                if step.word == "add":
                    new = part.binary("fadd", before, new)
                elif array == "w":
                    new = part.largest([before, new]) if step.word == "maximum" else part.smallest([before, new])
                else:  # that of the entry which is the extreme
                    is_it = part.compare("oeq", self._entry(part, run, k, "w"), part.load("w", target))
                    new = part.select(is_it, new, before)
                part.store(new, array, target)

    def _write_running(self, part: Part, i: int, array: str) -> None:
        step, at = self._steps[i], self._places[i]
        ((run,),) = step.reads
        self._hoist_run(part, run, array)
        with _loop(part, step.size // step.number) as o:
            first = _index(part, 0, o, step.number)
            part.store(self._entry(part, run, first, array), array, _index(part, at, first))
            if step.number == 1:
                return
            with part.loop(1, step.number) as j:
                k = part.emit(f"add i64 {first}, {j}")
                before = part.load(array, part.emit(f"add i64 {k}, {at - 1}"))
                new = part.binary("fadd", before, self._entry(part, run, k, array))
                part.store(new, array, _index(part, at, k))

    def _computed(self, part: Part, i: int, k: int | str, array: str) -> str:
        """Return the name of entry k of a step that is a function of entries: its value, or its derivative."""
        step = self._steps[i]
        v = [self._entry(part, run, k, "w") for (run,) in step.reads]
        if array == "w":
            return _value(part, step, v)
        out = part.load("w", _index(part, self._places[i], k)) if i in self._places else _value(part, step, v)
        s = [self._entry(part, run, k, "d") if self._is_active(run.step) else None for (run,) in step.reads]
        return _slope(part, step, v, out, s) or _ZERO

    def _entry(self, part: Part, run: Run, k: int | str, array: str) -> str:
        """Return the name of entry k of a run."""
        i = run.step
        if array == "d" and not self._is_active(i):
            return _ZERO
        if i not in self._places:
            return self._computed(part, i, k, array)
        return part.load(array, _index(part, self._places[i] + run.start, k, run.stride))

    def _hoist(self, part: Part, step: Step, array: str) -> None:
        """Load what is the same in all turns of a loop before it."""
        for (run,) in step.reads:
            self._hoist_run(part, run, array)

    def _hoist_run(self, part: Part, run: Run, array: str) -> None:
        if run.step not in self._places:
            self._hoist(part, self._steps[run.step], array)
        elif run.stride == 0:
            self._entry(part, run, 0, "w")
            if array == "d":
                self._entry(part, run, 0, "d")


def _index(part: Part, base: int, k: int | str, stride: int = 1) -> int | str:
    """Return the name of ``base + stride * k``, or the number."""
    if isinstance(k, int):
        return base + stride * k
    if stride == 0:
        return base
    scaled = k if stride == 1 else part.emit(f"mul i64 {k}, {stride}")
    return part.emit(f"add i64 {scaled}, {base}") if base else scaled


@contextmanager
def _loop(part: Part, count: int) -> Iterator[int | str]:
    """Write what follows as a loop, or, for one turn, as it is."""
    if count == 1:
        yield 0
    else:
        with part.loop(0, count) as k:
            yield k


def _defined(name: str, arguments: str, part: Part) -> str:
    return "\n".join([f"define void @{name}({arguments}) {{", "entry:", *part.lines, "  ret void", "}"])
