"""The compiled loops of a difference model: states, outputs, and their exact sensitivities.

With x[n] = f(x[n-1], u[n], n; p) and outputs h(x[n], u[n], n; p)::

    S[n] = F S[n-1] + df/dp,  F = df/dx at x[n-1]          dh/dp = (dh/dx) S[n] + dh/dp

States are local variables of the loop; of F and the other matrices only the entries that are not zero are written out.
With very many entries that compiles slower and slower, so large systems are written in blocks: small functions that
fill one vector with all entries, and loops over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

from fmepy.compiled.numba_code import HEADER, load, straight_line
from fmepy.expressions.derivatives import derivative
from fmepy.expressions.equations import Equations, symbol
from fmepy.models.running.switches import as_choices

__all__ = ["Kernels"]

MOST_STRAIGHT = 500
"""Most entries of all matrices together that become local variables. 1,800 compiled in 227 s so, in 27 s as blocks."""
BLOCK = 40
"""Entries that one function computes in large systems."""

_SENS = "run_sens(y, S, p, U, t0, keep, out, slopes)"
_DECORATOR = '@njit(cache=True, error_model="numpy")'


class Kernels:
    """Compiled loops, loaded at first use; they return -1, or the step at which a state became NaN or infinite."""

    def __init__(self, equations: Equations, names: tuple[str, ...]) -> None:
        self._equations, self._names = equations, names
        self._what = f"a difference model of {len(equations.states)} states"

    @cached_property
    def run(self) -> Callable[..., int]:
        """The plain loop.

        ``run(y, p, U, t0, keep, out)``: initial states; all parameters; forcings, shape (n_step + 1, n_forcing); start;
        the steps that are rows, increasing; result, shape (n_row, n_var).
        """
        loop: Callable[..., int] = load(_run_source(self._equations), self._what).run
        return loop

    @cached_property
    def run_sens(self) -> Callable[..., int]:
        """The loop with sensitivities.

        ``run_sens(y, S, p, U, t0, keep, out, slopes)``: S the derivatives of y, shape (n_state, n_par); `slopes` the
        result, shape (n_row, n_var, n_par); the rest as in `run`.
        """
        source = _sens_source(self._equations, self._names)
        loop: Callable[..., int] = load(source, f"{self._what}, with sensitivities").run_sens
        return loop


@lru_cache(maxsize=64)
def _run_source(equations: Equations) -> str:
    """Return the source of the plain loop."""
    e = _Written(equations)
    step = [*e.computed([("n", e.rates)]), *e.advanced()]
    row = [*e.computed([("o", e.outputs)]), *e.stored()]
    return e.module("run(y, p, U, t0, keep, out)", [], step, row)


@lru_cache(maxsize=64)
def _sens_source(equations: Equations, names: tuple[str, ...]) -> str:
    """Return the source of the loop with sensitivities."""
    e = _Written(equations)
    p = [symbol(k) for k in names]
    n = len(e.states)
    F, fp = _Sparse("f", e.rates, e.states), _Sparse("d", e.rates, p)
    G, gp = _Sparse("g", e.outputs, e.states), _Sparse("h", e.outputs, p)
    if sum(len(m.entries) for m in (F, fp, G, gp)) > MOST_STRAIGHT:
        return _blocked_source(e, F, fp, G, gp)
    columns = [f"a{i} = A[j, {i}]" for i in range(n)]
    step = [
        *e.computed([("n", e.rates)], F, fp),
        "for j in range(A.shape[0]):",
        *_indented([*columns, *(f"A[j, {i}] = {F.times_column(i)}" for i in range(n))]),
        *(f"A[{j}, {i}] += {name}" for i, j, name in fp.named()),
        *e.advanced(),
    ]
    place = "slopes[row, {}, {}]".format
    row = [
        *e.computed([("o", e.outputs)], G, gp),
        *e.stored(),
        "for j in range(A.shape[0]):",
        *_indented([*columns, *(f"{place(i, 'j')} = a{i}" for i in range(n))]),
        *_indented([f"{place(n + i, 'j')} = {G.times_column(i)}" for i in range(len(e.outputs))]),
        *(f"{place(n + i, j)} += {name}" for i, j, name in gp.named()),
    ]
    # A holds the transpose of S, so that one sweep over the parameters updates it in place
    return e.module(_SENS, ["A = S.T.copy()"], step, row)


def _blocked_source(e: _Written, F: _Sparse, fp: _Sparse, G: _Sparse, gp: _Sparse) -> str:
    """Return the source of the loop with sensitivities for a large system; the signature is the same."""
    n, m = len(e.states), len(e.outputs)
    fill_step, step_blocks = e.blocks("step", "v", [*e.rates, *F.values(), *fp.values()])
    fill_row, row_blocks = e.blocks("row", "w", [*e.outputs, *G.values(), *gp.values()])
    advance = [
        *fill_step,
        "B[:] = 0.0",
        *_indexed_sum("B[{i}]", f"v[{n} + e]", F, "F", times="A"),
        *_indexed_sum("B[{i}, {j}]", f"v[{n + len(F.entries)} + e]", fp, "D"),
        "A, B = B, A",
        f"for i in range({n}):",
        "    x[i] = v[i]",
        "    if not math.isfinite(x[i]):",
        "        return k",
    ]
    write = [
        *fill_row,
        f"out[row, :{n}] = x",
        f"out[row, {n}:] = w[:{m}]",
        f"slopes[row, :{n}] = A",
        f"slopes[row, {n}:] = 0.0",
        *_indexed_sum(f"slopes[row, {n} + {{i}}]", f"w[{m} + e]", G, "G", times="A"),
        *_indexed_sum(f"slopes[row, {n} + {{i}}, {{j}}]", f"w[{m + len(G.entries)} + e]", gp, "H"),
        "row += 1",
    ]
    loop = ["t = t0 + k", "u = U[k]", "if k > 0:", *_indented(advance), "if keep[row] == k:", *_indented(write)]
    body = [
        "x, A, B = y.copy(), S.copy(), np.empty_like(S)",
        f"v, w = np.empty({n + len(F.entries) + len(fp.entries)}), np.empty({m + len(G.entries) + len(gp.entries)})",
        "row = 0",
        "for k in range(keep[-1] + 1):",
        *_indented(loop),
        "return -1",
    ]
    tables = [line for letter, m in (("F", F), ("D", fp), ("G", G), ("H", gp)) for line in m.tables(letter)]
    return HEADER + "\n".join([*tables, *step_blocks, *row_blocks, *_function(_SENS, body)])


def _indexed_sum(target: str, entry: str, matrix: _Sparse, letter: str, times: str = "") -> list[str]:
    """Return the loop that adds the entries of a matrix (times rows of another) to their places."""
    if not matrix.entries:
        return []
    place = target.format(i=f"{letter}I[e]", j=f"{letter}J[e]")
    factor = f" * {times}[{letter}J[e]]" if times else ""
    return [f"for e in range({len(matrix.entries)}):", f"    {place} += {entry}{factor}"]


class _Sparse:
    """The derivatives of some expressions to some symbols, under names such as f3_0; zeros are left out."""

    def __init__(self, letter: str, expressions: Sequence[Any], symbols: Sequence[Any]) -> None:

        self.entries: dict[tuple[int, int], tuple[str, Any]] = {}
        for i, e in enumerate(expressions):
            for j, s in enumerate(symbols):
                if s in e.free_symbols and (d := derivative(e, s)) != 0:
                    self.entries[i, j] = (f"{letter}{i}_{j}", d)

    def values(self) -> list[Any]:
        """Return the entries."""
        return [d for _, d in self.entries.values()]

    def tables(self, letter: str) -> list[str]:
        """Return the lines of two tables, rows and columns of the entries."""
        rows, columns = [i for i, _ in self.entries], [j for _, j in self.entries]
        return [f"{letter}{a} = np.array({v}, dtype=np.int64)" for a, v in (("I", rows), ("J", columns))]

    def named(self) -> list[tuple[int, int, str]]:
        """Return (row, column, name) of all entries."""
        return [(i, j, name) for (i, j), (name, _) in self.entries.items()]

    def times_column(self, i: int) -> str:
        """Return row i times the vector a0, a1, ..."""
        return " + ".join(f"{name} * a{j}" for k, j, name in self.named() if k == i) or "0.0"


class _Written:
    """A model's expressions, and the generated names of everything in them."""

    def __init__(self, equations: Equations) -> None:
        self.equations = equations
        self.states = [symbol(s) for s in equations.states]
        self.rates = [as_choices(e) for e in equations.rates]
        self.outputs = [as_choices(e) for _, e in equations.outputs]
        self.used = {s for e in (*self.rates, *self.outputs) for s in e.free_symbols}
        self.names = {symbol(equations.time): "t"}
        for letter, group in (("y", equations.states), ("p", equations.parameters), ("u", equations.forcings)):
            self.names.update({symbol(k): f"{letter}{i}" for i, k in enumerate(group)})

    def computed(self, vectors: Sequence[tuple[str, Sequence[Any]]], *matrices: _Sparse) -> list[str]:
        """Return the lines that compute vectors (letter and number) and matrices."""
        targets = [(f"{letter}{i}", e) for letter, expressions in vectors for i, e in enumerate(expressions)]
        return straight_line(targets + [t for m in matrices for t in m.entries.values()], self.names)

    def advanced(self) -> list[str]:
        """Return the lines that make the next states the present ones, and stop if one is not finite."""
        n = range(len(self.states))
        zeros = " + ".join(f"0.0 * y{i}" for i in n)  # NaN as soon as one state is infinite or NaN
        return [*[f"y{i} = n{i}" for i in n], f"if not {zeros} == 0.0:", "    return k"]

    def stored(self) -> list[str]:
        """Return the lines that write a row."""
        n = len(self.states)
        states = [f"out[row, {i}] = y{i}" for i in range(n)]
        return states + [f"out[row, {n + i}] = o{i}" for i in range(len(self.outputs))]

    def blocks(self, what: str, target: str, expressions: Sequence[Any]) -> tuple[list[str], list[str]]:
        """Return the calls that fill the vector `target` with expressions, and the functions that they call."""
        calls, functions = [], []
        for start in range(0, len(expressions), BLOCK):
            some = expressions[start : start + BLOCK]
            used = {s for e in some for s in e.free_symbols}
            read = [f"{name} = {name[0]}[{name[1:]}]" for s, name in self.names.items() if s in used and name != "t"]
            lines = straight_line([(f"{target}[{start + i}]", e) for i, e in enumerate(some)], self.names)
            functions += _function(f"{what}{start}(t, y, p, u, {target})", [*read, *lines])
            calls.append(f"{what}{start}(t, x, p, u, {target})")
        return calls, functions

    def module(self, signature: str, before: list[str], step: list[str], row: list[str]) -> str:
        """Return the module with one loop."""
        e = self.equations
        read = [f"y{i} = y[{i}]" for i in range(len(e.states))]
        read += [f"p{i} = p[{i}]" for i, k in enumerate(e.parameters) if symbol(k) in self.used]
        forced = [f"u{i} = U[k, {i}]" for i, k in enumerate(e.forcings) if symbol(k) in self.used]
        loop = [
            "t = t0 + k",
            *forced,
            "if k > 0:",
            *_indented(step),
            "if keep[row] == k:",
            *_indented([*row, "row += 1"]),
        ]
        body = [*before, *read, "row = 0", "for k in range(keep[-1] + 1):", *_indented(loop), "return -1"]
        return HEADER + "\n".join(_function(signature, body))


def _function(signature: str, body: list[str]) -> list[str]:
    return ["", "", _DECORATOR, f"def {signature}:", *_indented(body), ""]


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
