"""What the stiff method does with one sparse pattern (`compiled.sparse_lu`) as straight code, for small systems.

What a table and its loop find out again at every step is known when the code is written: which entries meet, and which
of them are zero. Written are C functions ``void f(double t, double* z, double* inputs, double* out)``:

    factor   (g, J) -> L and U of g M - J
    solve    (L and U), x -> the solution in the place of x
    advance  the numbers of a step (`stiff_plan.Entries.places`), B -> the stage of the sensitivities, in the place of B
"""

from __future__ import annotations

from fmepy.compiled.llvm_code import LlvmProgram
from fmepy.compiled.llvm_operations import FunctionWriter, number
from fmepy.compiled.sparse_lu import Pattern
from fmepy.compiled.stiff_plan import Entries

MOST_OPERATIONS = 1500
"""Of a function that is written out, about: LLVM takes 0.1 ms for each."""


def write(program: LlvmProgram, pattern: Pattern, entries: Entries) -> bool:
    """Add those of the functions to a program that are short enough, `advance` if there are sensitivities.

    Returns whether there are any; the pattern is one without a block.
    """
    upper = pattern.low[1:] - pattern.diag
    col = pattern.order[pattern.col]
    rows = [
        (i, col[a:b].tolist(), col[b + 1 : c].tolist(), a)
        for i, a, b, c in zip(pattern.order.tolist(), pattern.low, pattern.diag, pattern.low[1:], strict=False)
    ]
    multiplications = sum(int(upper[pattern.col[a:b]].sum()) for a, b in zip(pattern.low, pattern.diag, strict=False))
    if 2 * multiplications + 3 * len(pattern.col) > MOST_OPERATIONS:
        return False
    program.add("factor", lambda part: _factor(part, rows, entries))
    program.add("solve", lambda part: _solve(part, rows))
    each = 2 * (len(entries.rows) + len(entries.of_bend_y) + len(pattern.col))
    if entries.n_params and each * ((entries.width + 3) // 4) <= 2 * MOST_OPERATIONS:
        places = entries.places(pattern.n_entries)
        program.add("advance", lambda part: _advance(part, rows, entries, places))
    return True


_Rows = list[tuple[int, list[int], list[int], int]]  # row of W, columns of L and U, where it begins


def _factor(part: FunctionWriter, rows: _Rows, m: Entries) -> None:
    places = zip(m.rows, m.cols, strict=True)
    W = {at: part.emit(f"fneg double {part.load('z', e)}") for e, at in enumerate(places)}
    above: dict[int, list[int]] = {}
    inverse: dict[int, str] = {}
    for i, below, right, begin in rows:
        if i not in m.algebraic:
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


def _solve(part: FunctionWriter, entries: _Rows) -> None:
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


def _advance(part: FunctionWriter, rows: _Rows, m: Entries, places: list[int]) -> None:
    _, LU, _, _, _, _, _, _, S, X, G, D, *_ = places
    products = [(G + e, i, X + j * m.width) for e, (i, j) in enumerate(zip(m.rows, m.cols, strict=True))]
    products += [(D + e, i, S + j * m.width) for e, (i, j) in enumerate(m.of_bend_y)]
    sources = [(at, i, p) for at, (i, p) in enumerate(m.of_f, G + len(m.rows))]
    sources += [(at, i, p) for at, (i, p) in enumerate(m.of_bend_q, D + len(m.of_bend_y))]
    for begin in range(0, m.width, 4):
        row = _Row(part, min(4, m.width - begin))
        b = {i: row.load("out", i * m.width + begin) for i, *_ in rows}
        for at, i, j in products:
            b[i] = row.binary("fadd", b[i], row.binary("fmul", row.filled(at), row.load("z", j + begin)))
        for i in b:
            here = [(at, p) for at, k, p in sources if k == i and begin <= p < begin + row.n]
            for at, p in here:
                scaled = part.binary("fmul", part.load("z", at), part.load("q", m.scales_at + p))
                alone = part.emit(f"insertelement {row.kind} zeroinitializer, double {scaled}, i64 {p - begin}")
                b[i] = row.binary("fadd", b[i], alone)
        for i, below, _, first in rows:
            for at, j in enumerate(below, LU + first):
                b[i] = row.binary("fsub", b[i], row.binary("fmul", row.filled(at), b[j]))
        for i, below, right, first in reversed(rows):
            pivot = LU + first + len(below)
            for at, j in enumerate(right, pivot + 1):
                b[i] = row.binary("fsub", b[i], row.binary("fmul", row.filled(at), b[j]))
            b[i] = row.binary("fmul", b[i], row.filled(pivot))
            row.store(b[i], "out", i * m.width + begin)


class _Row:
    """Some numbers at once, in one register."""

    def __init__(self, part: FunctionWriter, n: int) -> None:
        self._part, self.n, self.kind = part, n, f"<{n} x double>"

    def load(self, array: str, at: int) -> str:
        place = self._part.emit(f"getelementptr double, ptr %{array}, i64 {at}")
        return self._part.emit(f"load {self.kind}, ptr {place}, align 8")

    def store(self, value: str, array: str, at: int) -> None:
        place = self._part.emit(f"getelementptr double, ptr %{array}, i64 {at}")
        self._part.lines.append(f"  store {self.kind} {value}, ptr {place}, align 8")

    def filled(self, at: int) -> str:
        one = self._part.emit(f"insertelement {self.kind} poison, double {self._part.load('z', at)}, i64 0")
        return self._part.emit(f"shufflevector {self.kind} {one}, {self.kind} poison, <{self.n} x i32> zeroinitializer")

    def binary(self, word: str, a: str, b: str) -> str:
        return self._part.emit(f"{word} {self.kind} {a}, {b}")
