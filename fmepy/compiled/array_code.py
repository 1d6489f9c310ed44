"""Computations with arrays -> machine code, by loops: values, and derivatives along directions.

All numbers of a run stand in one block, one step of the computation (`fmepy.language.arrays`) after the other: what
is written into the places of t, y, p and u is read by the loops, which write all else. A second block of the same form
holds derivatives along one direction: what the directions of y and p are is written into their places, and the loops
write those of all else (forward differentiation). What depends on parameters alone is computed once a run; what is
computed within the loops of others, see `compiled.array_layout`.

No operation is rearranged, so the values are the function's own but for the last digits of ``exp`` and its kin, and of
sums.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from fmepy.compiled.array_layout import ArrayLayout, LoopEntry, is_whole_power
from fmepy.compiled.llvm_code import ExpressionWriter, WholeFunction
from fmepy.compiled.llvm_operations import declarations, number
from fmepy.compiled.machine import LOOPS, Code, compiled
from fmepy.language.arrays import ArrayProgram, ArrayStep, StridedRun
from fmepy.language.nodes import TABLE, ZERO, Node, Symbol, choose_above, in_order
from fmepy.numerics.structure import Structure
from fmepy.types import Matrix, Vector

MOST_BAND = 41
"""Diagonals of a Jacobian that is taken as a band. With more, as of a plane of cells, derivatives along as many
directions and the factors of every step take longer than LSODA does, which needs few Jacobians."""
_ARGUMENTS = "ptr noalias %w, ptr noalias %d, ptr noalias %e, ptr noalias %b, ptr noalias %k"
_OF_VALUES = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 5)
_OF_SLOPES = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 5, ctypes.c_int64)
_ZERO = number(0.0)
MOST_LANES = 6
"""Directions along which derivatives are computed at once: what they share, such as divisions, is computed once."""


def groups_of(m: int) -> tuple[int, int, int]:
    """Return in which groups m directions are computed: the size of the first ones, how many these are, how many more.

    Those are of one direction less.

    Examples
    --------
    >>> [groups_of(m) for m in (0, 1, 5, 7, 13)]
    [(0, 0, 0), (1, 1, 0), (5, 1, 0), (4, 1, 1), (5, 1, 2)]
    """
    n = -(-m // MOST_LANES)
    size = -(-m // n) if n else 0
    return size, m - n * (size - 1), n * size - m


def _is_steep(e: Node) -> bool:
    """Tell whether a derivative may be infinite where there is a value: along no direction it is zero all the same."""
    return any(
        (e.word == "**" and not is_whole_power(e)) or e.word == "hypot" or (e.word in TABLE and TABLE[e.word].bounded)
        for e in in_order([e])
    )


def _value(part: ExpressionWriter, step: ArrayStep, v: list[str]) -> str:
    """Return the name of a function's value."""
    return part.value_with(step.formula.value, dict(zip(step.formula.slots, v, strict=True)))


_Slopes: TypeAlias = "Sequence[str | None]"
"""Names of derivatives of the arguments of a function; None: they are zero."""


def _slope(
    part: ExpressionWriter, step: ArrayStep, v: list[str], out: str, s: _Slopes, d: _Slopes = (), e: _Slopes = ()
) -> str:
    """Return the name of a function's derivative along a direction, from those of its arguments.

    With d and e, those along two directions, s and the derivative are those along both, of the second order.
    """
    formula = step.formula
    directions = {x: Symbol(f"direction {i}") for i, x in enumerate(formula.slots) if s[i] is not None}
    known = dict(zip(formula.slots, v, strict=True)) | {formula.value: out}
    known |= {d: name for d, name in zip(directions.values(), filter(None, s), strict=True)}
    if step.word in ("where", "maximum", "minimum"):  # of the branch that is taken
        return part.value_with(formula.value.subs({x: directions.get(x, ZERO) for x in formula.slots[1:]})
                               if step.word == "where" else _taken(step, directions), known)  # fmt: skip
    steep = _is_steep(formula.value)
    total = None
    for x, direction in directions.items():
        if x not in formula.slopes:
            continue
        term = part.binary("fmul", part.value_with(formula.slopes[x], known), known[direction])  # one slope for all
        if steep:
            term = part.select(part.compare("oeq", known[direction], _ZERO), _ZERO, term)
        total = term if total is None else part.binary("fadd", total, term)
    of = {x: i for i, x in enumerate(formula.slots)}
    for (x, y), curve in formula.curves.items() if d else ():
        first, second = d[of[x]], e[of[y]]
        if first is None or second is None:
            continue
        both = part.binary("fmul", first, second)
        term = part.binary("fmul", part.value_with(curve, known), both)
        if steep:
            term = part.select(part.compare("oeq", both, _ZERO), _ZERO, term)
        total = term if total is None else part.binary("fadd", total, term)
    return total or _ZERO


def _taken(step: ArrayStep, directions: dict[Symbol, Symbol]) -> Node:
    """Return the direction of the extreme of two entries; of equal ones that of the first."""
    a, b = step.formula.slots
    first, second = directions.get(a, ZERO), directions.get(b, ZERO)
    return choose_above(b, a, second, first) if step.word == "maximum" else choose_above(a, b, second, first)


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

    def __init__(self, arrays: ArrayProgram) -> None:
        self.arrays, self.declared = arrays, set[tuple[str, int]]()
        self._moving: dict[str, set[str]] = {}
        self._lanes, self._lane, self._blocks_of_lanes = 1, 0, ""
        self._active: dict[tuple[int, str], bool] = {}
        self._of_lanes: dict[tuple[int, int], Code] = {}
        self._steps, self._inputs = arrays.steps, arrays.inputs
        layout = ArrayLayout(arrays)
        self.size, self._needed, self._places, self._cuts = layout.size, layout.needed, layout.places, layout.cuts
        self._table, self._tables, self._is_prepared = layout.table, layout.tables, layout.is_prepared
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

    @property
    def band_width(self) -> int:
        """Diagonals of that."""
        _, lower, upper = self.structure.band
        return lower + 1 + upper

    # --- what is computed

    def _is_active(self, i: int, block: str) -> bool:
        """Whether a step has derivatives, in a block of the function being written, that are not zero everywhere."""
        if (i, block) not in self._active:
            step = self._steps[i]
            if block == "b":
                reads = {run.step for read in step.reads for run in read}
                found = self._is_curved(step) or any(self._is_active(j, "b") for j in reads)
            else:
                found = bool(self._inputs[i] & self._moving[block])
            self._active[i, block] = found and step.moves
        return self._active[i, block]

    def _is_curved(self, step: ArrayStep) -> bool:
        """Whether a step has second derivatives along two directions that are not zero everywhere."""
        if step.kind != "each" or step.word in ("where", "maximum", "minimum"):
            return False
        of = dict(zip(step.formula.slots, step.reads, strict=True))
        return any(
            self._is_active(of[x][0].step, "d") and self._is_active(of[y][0].step, "e") for x, y in step.formula.curves
        )

    # --- calls

    @cached_property
    def _values(self) -> Code:
        return compiled(self.text(), LOOPS)

    @cached_property
    def _slopes(self) -> Code:
        return compiled(self.text_of_slopes(), LOOPS)

    def addresses(self, m: int) -> list[int]:
        """Return where `rates`, `columns`, `moving` begin, `along` and `bend` of m directions, and a table for all.

        Of the latter two those for the groups of each size (0: there are none).
        """
        size, _, n_less = groups_of(m)
        sizes = (size, size - 1 if n_less else 0)
        if m and sizes not in self._of_lanes:
            self._of_lanes[sizes] = compiled(self.text_of_lanes(sizes), LOOPS)
        found = [self._values.address(k) for k in ("rates", "columns", "moving")]
        found += [self._of_lanes[sizes].address(f"{k}_{n}") if n else 0 for k in ("along", "bend") for n in sizes]
        return [*found, self._table.ctypes.data]

    def function(self, name: str, block: Vector, directions: Matrix | None = None) -> Callable[[], None]:
        """Return one of the functions, ready to work on blocks, which must stay where they are.

        name : {"prepare", "rates", "prepare_along", "rates_along"}
            What depends on parameters alone, and all else: their values, and their derivatives along directions, which
            ask for the values first.
        """
        w, k = block.ctypes.data, self._table.ctypes.data
        if directions is None:
            call = _OF_VALUES(self._values.address(name))
            return lambda: call(w, None, None, None, k)
        along = _OF_SLOPES(self._slopes.address(name))
        d, m = directions.ctypes.data, len(directions)
        return lambda: along(w, d, None, None, k, m)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_values", "_slopes")} | {"_of_lanes": {}}

    # --- the text

    def text(self) -> str:
        """Return the program of values, and of what a step without sensitivities needs.

        Of its functions `columns` gives derivatives of the rates along states, `moving` along time, forcings and
        states.
        """
        functions = [
            self._function("prepare", True, "w"),
            self._function("rates", False, "w"),
            self._function("columns", False, "d", "y"),
            self._function("moving", False, "d", "tuy"),
        ]
        return "\n".join([declarations(self.declared), *functions])

    def text_of_slopes(self) -> str:
        """Return the program of derivatives along states and parameters, for one direction after the other."""
        functions = [
            self._function("prepare_one", True, "d", "p"),
            self._function("along", False, "d", "yp"),
            self._each_direction("prepare_along", "prepare_one"),
            self._each_direction("rates_along", "along"),
        ]
        return "\n".join([declarations(self.declared), *functions])

    def text_of_lanes(self, sizes: Sequence[int]) -> str:
        """Return the program of derivatives along states and parameters for groups of so many directions at once.

        Its functions `along` give them, and `bend` those of the second order along the direction of `moving`, in d, and
        that of `along`, in e, which both must have been computed; they go to b. Those of a group stand in as many
        blocks, one after the other.
        """
        functions = []
        for n in filter(None, sizes):
            functions.append(self._function(f"along_{n}", False, "d", "yp", lanes=n))
            functions.append(self._function(f"bend_{n}", False, "b", "tuy", "yp", lanes=n))
        return "\n".join([declarations(self.declared), *functions])

    def _each_direction(self, name: str, one: str) -> str:
        part = ExpressionWriter(WholeFunction(self.declared))
        with part.loop(0, "%m") as i:
            at = part.emit(f"getelementptr double, ptr %d, i64 {part.emit(f'mul i64 {i}, {self.size}')}")
            part.lines.append(f"  call void @{one}(ptr %w, ptr {at}, ptr %e, ptr %b, ptr %k)")
        return _defined(name, f"{_ARGUMENTS}, i64 %m", part)

    def _function(self, name: str, prepared: bool, block: str, d: str = "", e: str = "", lanes: int = 1) -> str:
        """Return a function that writes a block: values, or derivatives along d, or d and e, where such inputs move."""
        part, self._moving = ExpressionWriter(WholeFunction(self.declared)), {"d": set(d), "e": set(e)}
        self._lanes, self._blocks_of_lanes = lanes, "eb" if e else "d"
        self._active.clear()
        for i in self._needed:
            is_given = self._steps[i].kind in ("input", "constant")
            if i not in self._places or is_given or self._is_prepared(i) != prepared:
                continue
            if block == "w" or self._is_active(i, block):
                getattr(self, f"_write_{self._steps[i].kind}")(part, i, block)
        return _defined(name, _ARGUMENTS, part)

    def _each_lane(self, array: str) -> Iterator[int]:
        """Go through the lanes of a block; gives where each begins in it."""
        for lane in range(self._lanes if array in self._blocks_of_lanes else 1):
            self._lane = lane
            yield self._begin(array)
        self._lane = 0

    def _begin(self, array: str) -> int:
        return self._lane * self.size if array in self._blocks_of_lanes else 0

    def _write_each(self, part: ExpressionWriter, i: int, array: str) -> None:
        self._hoist(part, self._steps[i], array)
        for at in _loops(part, self._steps[i].size, self._cuts[i]):
            for begin in self._each_lane(array):
                part.store(self._computed(part, i, at, array), array, _index(part, begin + self._places[i], at.k))

    def _write_join(self, part: ExpressionWriter, i: int, array: str) -> None:
        if i in self._tables:
            for at in _loops(part, self._steps[i].size):
                entry = part.emit(f"getelementptr i64, ptr %k, i64 {_index(part, self._tables[i], at.k)}")
                place = part.emit(f"load i64, ptr {entry}")
                for begin in self._each_lane(array):
                    value = part.load(array, part.emit(f"add i64 {place}, {begin}"))
                    part.store(value, array, _index(part, begin + self._places[i], at.k))
            return
        self._hoist(part, self._steps[i], array)
        for at in _loops(part, self._steps[i].size, self._cuts[i]):
            for begin in self._each_lane(array):
                part.store(self._of_part(part, i, at, array), array, _index(part, begin + self._places[i], at.k))

    def _write_fold(self, part: ExpressionWriter, i: int, array: str) -> None:
        step = self._steps[i]
        ((run,),) = step.reads
        self._hoist_run(part, run, array)
        for o in _loops(part, step.size):
            first, place = _index(part, 0, o.k, step.number), _index(part, self._places[i], o.k)
            for begin in self._each_lane(array):
                target = _index(part, begin + self._places[i], o.k)
                part.store(self._entry(part, run, LoopEntry(first), array), array, target)
                if step.number == 1:
                    continue
                with part.loop(1, step.number) as j:
                    k = part.emit(f"add i64 {first}, {j}")
                    before, new = part.load(array, target), self._entry(part, run, LoopEntry(k), array)
                    if step.word == "add":
                        new = part.binary("fadd", before, new)
                    elif array == "w":
                        new = part.largest([before, new]) if step.word == "maximum" else part.smallest([before, new])
                    else:  # that of the entry which is the extreme
                        is_it = part.compare("oeq", self._entry(part, run, LoopEntry(k), "w"), part.load("w", place))
                        new = part.select(is_it, new, before)
                    part.store(new, array, target)

    def _write_running(self, part: ExpressionWriter, i: int, array: str) -> None:
        step = self._steps[i]
        ((run,),) = step.reads
        self._hoist_run(part, run, array)
        for o in _loops(part, step.size // step.number):
            first = _index(part, 0, o.k, step.number)
            for begin in self._each_lane(array):
                at = begin + self._places[i]
                part.store(self._entry(part, run, LoopEntry(first), array), array, _index(part, at, first))
                if step.number == 1:
                    continue
                with part.loop(1, step.number) as j:
                    k = part.emit(f"add i64 {first}, {j}")
                    before = part.load(array, part.emit(f"add i64 {k}, {at - 1}"))
                    new = part.binary("fadd", before, self._entry(part, run, LoopEntry(k), array))
                    part.store(new, array, _index(part, at, k))

    def _computed(self, part: ExpressionWriter, i: int, at: LoopEntry, array: str) -> str:
        """Return the name of an entry of a step that is a function of entries: its value, or its derivative."""
        step = self._steps[i]
        v = [self._entry(part, run, at, "w") for (run,) in step.reads]
        if array == "w":
            return _value(part, step, v)
        out = self._loaded(part, i, at, "w") if i in self._places else _value(part, step, v)

        def slopes(block: str) -> _Slopes:
            moves = [self._is_active(run.step, block) for (run,) in step.reads]
            return [
                self._entry(part, run, at, block) if m else None for m, (run,) in zip(moves, step.reads, strict=True)
            ]

        more = (slopes("d"), slopes("e")) if array == "b" else ()
        return _slope(part, step, v, out, slopes(array), *more)

    def _entry(self, part: ExpressionWriter, run: StridedRun, at: LoopEntry, array: str) -> str:
        """Return the name of the entry that a run gives at a place."""
        i, inner = run.step, at.of(run)
        if array != "w" and not self._is_active(i, array):
            return _ZERO
        if i in self._places:
            return self._loaded(part, i, inner, array)
        how = self._of_part if self._steps[i].kind == "join" else self._computed
        return how(part, i, inner, array)

    def _of_part(self, part: ExpressionWriter, i: int, at: LoopEntry, array: str) -> str:
        """Return the name of an entry of the part of a join where a loop is."""
        (read,), before = self._steps[i].reads, 0
        for run in read:
            if at.lowest < before + run.length:
                break
            before += run.length
        return self._entry(part, run, at._replace(start=at.start - before), array)

    def _loaded(self, part: ExpressionWriter, i: int, at: LoopEntry, array: str) -> str:
        return part.load(array, _index(part, self._begin(array) + self._places[i] + at.start, at.k, at.stride))

    def _hoist(self, part: ExpressionWriter, step: ArrayStep, array: str) -> None:
        """Load what is the same in all turns of a loop before it."""
        for read in step.reads:
            for run in read:
                self._hoist_run(part, run, array)

    def _hoist_run(self, part: ExpressionWriter, run: StridedRun, array: str) -> None:
        if run.step not in self._places:
            self._hoist(part, self._steps[run.step], array)
        elif run.stride == 0:
            for block in {"w": "w", "d": "wd", "b": "wdeb"}[array]:
                for _ in self._each_lane(block):
                    self._entry(part, run, LoopEntry(0), block)


def _index(part: ExpressionWriter, base: int, k: int | str, stride: int = 1) -> int | str:
    """Return the name of ``base + stride * k``, or the number."""
    if isinstance(k, int):
        return base + stride * k
    if stride == 0:
        return base
    scaled = k if stride == 1 else part.emit(f"mul i64 {k}, {stride}")
    return part.emit(f"add i64 {scaled}, {base}") if base else scaled


def _loops(part: ExpressionWriter, count: int, cuts: Sequence[int] = ()) -> Iterator[LoopEntry]:
    """Write what follows as loops from cut to cut, or, for one turn, as it is."""
    for first, end in pairwise([0, *cuts, count]):
        if end == first + 1:
            yield LoopEntry(first, first)
        else:
            with part.loop(first, end) as k:
                yield LoopEntry(k, first)


def _defined(name: str, arguments: str, part: ExpressionWriter) -> str:
    return "\n".join([f"define void @{name}({arguments}) {{", "entry:", *part.lines, "  ret void", "}"])
