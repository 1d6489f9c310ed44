"""Factors and solutions of one sparse pattern (`compiled.sparse_lu`) as straight code, for small systems.

What a table and its loop find out again at every step is known when the code is written: which entries meet, and which
of them are zero. Written are C functions ``void f(double t, double* z, double* inputs, double* out)``:

    factor     (g, J) -> L and U of g I - J
    solve      (L and U), x -> the solution in the place of x
    solve_all  the same for rows of `width` numbers, four at once
"""

from __future__ import annotations

from collections.abc import Sequence

from fmepy.compiled.llvm_code import Program
from fmepy.compiled.llvm_operations import Part, number
from fmepy.compiled.sparse_lu import Pattern

MOST_MULTIPLICATIONS = 1000
"""Of a factorisation that is written out: LLVM takes about 0.1 ms for each."""


def multiplications(pattern: Pattern) -> int:
    """Return how many a factorisation takes."""
    upper = pattern.low[1:] - pattern.diag
    below = [pattern.col[a:b] for a, b in zip(pattern.low, pattern.diag, strict=False)]
    return int(sum(upper[pattern.rank[columns]].sum() for columns in below))


def write(program: Program, pattern: Pattern, rows: Sequence[int], cols: Sequence[int], width: int) -> None:
    """Add the functions to a program, that for several right hand sides if there are any."""
    entries = [
        (i, pattern.col[a:b].tolist(), pattern.col[b + 1 : c].tolist(), a)
        for i, a, b, c in zip(pattern.order.tolist(), pattern.low, pattern.diag, pattern.low[1:], strict=False)
    ]
    program.add("factor", lambda part: _factor(part, entries, list(zip(rows, cols, strict=True))))
    program.add("solve", lambda part: _solve(part, entries))
    if width:
        program.add("solve_all", lambda part: _solve_all(part, entries, width))


_Rows = list[tuple[int, list[int], list[int], int]]  # row of W, columns of L and U, where it begins


def _factor(part: Part, entries: _Rows, places: list[tuple[int, int]]) -> None:
    W = {at: part.emit(f"fneg double {part.load('z', e)}") for e, at in enumerate(places)}
    above: dict[int, list[int]] = {}
    inverse: dict[int, str] = {}
    for i, below, right, begin in entries:
        W[i, i] = part.binary("fadd", "%t", W[i, i]) if (i, i) in W else "%t"
        for j in below:
            W[i, j] = part.binary("fmul", W[i, j], inverse[j])
            for k in above[j]:
                term = part.binary("fmul", W[i, j], W[j, k])
                known = W.get((i, k))
                W[i, k] = part.binary("fsub", known, term) if known else part.emit(f"fneg double {term}")
        above[i], inverse[i] = right, part.binary("fdiv", number(1.0), W[i, i])
        values = [*(W[i, j] for j in below), inverse[i], *(W[i, j] for j in right)]
        for at, value in enumerate(values, begin):
            part.store(value, "out", at)


def _solve(part: Part, entries: _Rows) -> None:
    x: dict[int, str] = {}
    for i, below, _, begin in entries:
        x[i] = part.load("out", i)
        for at, j in enumerate(below, begin):
            x[i] = part.binary("fsub", x[i], part.binary("fmul", part.load("z", at), x[j]))
    for i, below, right, begin in reversed(entries):
        pivot = begin + len(below)
        for at, j in enumerate(right, pivot + 1):
            x[i] = part.binary("fsub", x[i], part.binary("fmul", part.load("z", at), x[j]))
        x[i] = part.binary("fmul", x[i], part.load("z", pivot))
        part.store(x[i], "out", i)


def _solve_all(part: Part, entries: _Rows, width: int) -> None:
    def four(at: int) -> str:
        one = part.emit(f"insertelement <4 x double> poison, double {part.load('z', at)}, i64 0")
        return part.emit(f"shufflevector <4 x double> {one}, <4 x double> poison, <4 x i32> zeroinitializer")

    def less(value: str, at: int, other: str) -> str:
        return part.emit(f"fsub <4 x double> {value}, {part.emit(f'fmul <4 x double> {four(at)}, {other}')}")

    for begin_of_four in range(0, width, 4):
        x: dict[int, str] = {}
        places = {i: part.emit(f"getelementptr double, ptr %out, i64 {i * width + begin_of_four}") for i, *_ in entries}
        for i, below, _, begin in entries:
            x[i] = part.emit(f"load <4 x double>, ptr {places[i]}, align 8")
            for at, j in enumerate(below, begin):
                x[i] = less(x[i], at, x[j])
        for i, below, right, begin in reversed(entries):
            pivot = begin + len(below)
            for at, j in enumerate(right, pivot + 1):
                x[i] = less(x[i], at, x[j])
            x[i] = part.emit(f"fmul <4 x double> {x[i]}, {four(pivot)}")
            part.lines.append(f"  store <4 x double> {x[i]}, ptr {places[i]}, align 8")
