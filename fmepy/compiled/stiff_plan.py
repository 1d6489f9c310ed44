"""The plan of the stiff method (`compiled.rosenbrock`) for a model: its entries, and the layout of its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from fmepy.compiled.dialect.types import group_of, words_of
from fmepy.compiled.kernels import packed
from fmepy.compiled.rosenbrock import MEMORY, MOST_FULL, StiffPlan
from fmepy.compiled.sparse_lu import Pattern
from fmepy.types import IntVector


class Entries(NamedTuple):
    """The sparse entries of a model's derivatives, from which its plan is built.

    Attributes
    ----------
    n : int
    rows, cols : sequence of int
        Rows and columns of the entries of J, in the order in which `jacobian` writes them.
    of_f, of_bend_y, of_bend_q : sequence of (int, int)
        Rows and columns of the entries of df/dq and of second derivatives, see `compiled.rosenbrock`.
    n_params, scales_at : int
        Parameters with sensitivities, and the index among the inputs where their scales begin.
    algebraic : sequence of int
        Algebraic states, whose equation is f_i = 0.
    band : (int, int)
        Diagonals of J below and above the main one if J is banded; `rows` and `cols` are then empty.
    order : sequence of int
        Order of the states in which J is banded.
    """

    n: int
    rows: Sequence[int]
    cols: Sequence[int]
    of_f: Sequence[tuple[int, int]] = ()
    of_bend_y: Sequence[tuple[int, int]] = ()
    of_bend_q: Sequence[tuple[int, int]] = ()
    n_params: int = 0
    scales_at: int = 0
    algebraic: Sequence[int] = ()
    band: tuple[int, int] = (-1, -1)
    order: Sequence[int] = ()

    @property
    def width(self) -> int:
        """Length of a row of sensitivities (one state, all parameters), padded to an even number."""
        return 2 * ((self.n_params + 1) // 2)

    @property
    def strides(self) -> tuple[int, int]:
        """Strides of the rows and columns of sensitivities."""
        return (1, self.n) if self.band[0] >= 0 else (self.width, 1)

    def places(self, n_LU: int) -> list[int]:
        """Return the offsets of J, LU, b, rest, v, point, U, V, S, X, G, D, `full` in the room, and its size."""
        n, m, n_J = self.n, self.n * self.width, len(self.rows)
        n_G, n_D = n_J + len(self.of_f), 1 + len(self.of_bend_y) + len(self.of_bend_q)
        if self.band[0] >= 0:
            n_J = n_LU = n * (sum(self.band) + 1)
            n_G, m = 4 * n, n * self.n_params
        sizes = [n_J + n, n_LU, n, n, n, 2 * n + 2, 8 * n, 8 * m, m, m, n_G, n_D]
        sizes.append(n * (n + 1) if n <= MOST_FULL and self.band[0] < 0 else 0)
        return list(accumulate(sizes, initial=0))


def plan_of(entries: Entries, pattern: Pattern, functions: Sequence[int], loop: int) -> IntVector:
    """Return the packed words of a model's plan, `rosenbrock.StiffPlan`, followed by the tables that they refer to.

    Parameters
    ----------
    functions : sequence of int
        The addresses of field, jacobian, slopes, bend, advance, factor, solve, multiply, see `StiffPlan`.
    loop : int
        The address of `run`.
    """
    m, places = entries, entries.places(pattern.n_entries)
    mass = np.ones(m.n, dtype=np.int64)
    mass[list(m.algebraic)] = 0
    further = [np.array(e, dtype=np.int64).reshape(-1, 2).T for e in (m.of_f, m.of_bend_y, m.of_bend_q)]
    tables = [
        np.asarray(table, dtype=np.int64) for table in (places, m.order, *pattern, m.rows, m.cols, *further, mass)
    ]
    ends = np.cumsum([len(words_of(group_of(StiffPlan))), *(table.size for table in tables)])
    out = np.empty(ends[-1], dtype=np.int64)
    parts: list[Any] = [out[a:b].reshape(t.shape) for a, b, t in zip(ends, ends[1:], tables, strict=False)]
    for copy, table in zip(parts, tables, strict=True):
        copy[:] = table
    head: list[Any] = [loop, MEMORY + places[-1], len(m.algebraic), *functions]
    head += [m.n, m.n_params, *m.strides, m.scales_at, *m.band]
    fields: list[Any] = [*head, *parts[:2], Pattern(*parts[2:7]), *parts[7:]]
    out[: ends[0]] = packed(StiffPlan(*fields))
    return out
