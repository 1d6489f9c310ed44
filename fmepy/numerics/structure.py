"""Which outputs of a vector function change with which inputs, found by trying; and Jacobians that use it.

A function of n numbers that gives n numbers, each of which depends on few inputs, has a Jacobian that few evaluations
give: inputs without a common output move together (Curtis, Powell and Reid 1974). Nobody has to say which they are.

**Finding it.** Blocks of inputs are tried and halved: blocks without a common output (as far as is known) are tried
together, and what changes then belongs to the one block that may reach it. A band of n columns takes some log2(n)
rounds of a few evaluations. It is done twice: at a random point beside the one given, where every input moves by a
random part, and there with NaN in the place of the inputs, which passes through every sum and product: a coefficient
that is zero today, such as the velocity of a river at rest, hides nothing. NaN can also spread too far (a function that
looks whether all is finite); where it finds much more than the steps do, it is not believed.

**Using it.** Columns of one colour move together. The order of the inputs that makes the Jacobian a narrow band
(as they come, blocks interleaved, or by reverse Cuthill-McKee) decides how systems with it are solved: dense, banded
(LAPACK's gbtrf) or sparse (SuperLU).

References
----------
Curtis, A. R., Powell, M. J. D. and Reid, J. K. (1974). On the estimation of sparse Jacobian matrices. J. Inst. Maths
Applics 13, 117-119.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy  # its rooms are loaded where they are asked for: `import fmepy` needs none of them

from fmepy.types import BoolVector, IntVector, Matrix, Vector

FEW = 12
"""Systems of fewer inputs are taken to be dense: there is nothing to be gained."""
_DENSE = 50  # inputs up to which systems are solved as dense ones
_NARROW = 0.35  # a band of this part of the inputs is solved as a band
_SPARSE = 0.5  # colours in inputs above which the function is taken to be dense
_FURTHER = 3  # times the colours of the steps: beyond, NaN has spread too far
_SEED = 20240229


@dataclass(frozen=True, eq=False)
class Structure:
    """Where a square Jacobian has entries; the diagonal always counts.

    Parameters
    ----------
    n : int
    rows, columns : ndarray of int, shape (n_entry,)
        Ordered by columns.
    blocks : int
        The inputs are so many sequences of equal length, one after the other: a hint for an order that makes a band.
    """

    n: int
    rows: IntVector
    columns: IntVector
    blocks: int = 1

    @classmethod
    def of(cls, entries: Any, blocks: int = 1) -> Structure:
        """Return the structure of a matrix, dense or sparse."""
        n = entries.shape[0]
        full = (scipy.sparse.csc_array(entries) != 0) + scipy.sparse.eye_array(n, dtype=bool, format="csc")
        full = scipy.sparse.csc_array(full)
        full.sort_indices()
        columns = np.repeat(np.arange(n), np.diff(full.indptr))
        return cls(n, full.indices.astype(np.intp), columns.astype(np.intp), blocks)

    @classmethod
    def dense(cls, n: int) -> Structure:
        """Return the structure in which everything depends on everything."""
        return cls(n, np.tile(np.arange(n), n), np.repeat(np.arange(n), n))

    def joined(self, other: Structure) -> Structure:
        """Return the entries of both."""
        return Structure.of(self.matrix + other.matrix, self.blocks)

    @property
    def matrix(self) -> Any:
        """The entries as a sparse matrix of truth values."""
        return scipy.sparse.csc_array(
            (np.ones(len(self.rows), bool), (self.rows, self.columns)), shape=(self.n, self.n)
        )

    @cached_property
    def is_dense(self) -> bool:
        """Whether the structure saves little."""
        most = int(
            np.bincount(self.rows, minlength=1).max()
        )  # a row of so many takes as many colours: no need to count
        return most > _SPARSE * self.n or self.n_colours > _SPARSE * self.n

    @cached_property
    def colours(self) -> IntVector:
        """The colour of every column; columns of one colour share no row."""
        reached = np.split(self.rows, np.searchsorted(self.columns, np.arange(1, self.n)))
        return greedy_colours(reached, self.n)

    @property
    def n_colours(self) -> int:
        """How many colours there are."""
        return int(self.colours.max(initial=-1)) + 1

    @cached_property
    def band(self) -> tuple[IntVector, int, int]:
        """The order of the inputs that makes the narrowest band, and how far it reaches below and above."""
        n, blocks = self.n, self.blocks
        if self.is_dense:
            return np.arange(n), n - 1, n - 1
        orders = [np.arange(n)]
        if blocks > 1:
            orders.append(np.arange(n).reshape(blocks, -1).T.ravel())
        together = scipy.sparse.csr_matrix(self.matrix + self.matrix.T)
        orders.append(scipy.sparse.csgraph.reverse_cuthill_mckee(together, symmetric_mode=True).astype(np.intp))
        found = []
        for order in orders:
            place = np.empty(n, dtype=np.intp)
            place[order] = np.arange(n)
            below = place[self.rows] - place[self.columns]
            found.append((order, int(below.max()), int(-below.min())))
        return min(found, key=lambda f: 2 * f[1] + f[2])

    @cached_property
    def solver(self) -> Callable[[Vector], Any]:
        """Return ``solver(values) -> Factored``, of the values of all entries."""
        _, lower, upper = self.band
        if self.n <= _DENSE or self.is_dense:
            return Dense(self)
        return Banded(self) if lower + upper < _NARROW * self.n else Sparse(self)


def greedy_colours(reached: list[Any], n: int) -> IntVector:
    """Return a colour for every set of rows, so that sets of one colour share none."""
    taken: list[BoolVector] = []
    out = np.zeros(len(reached), dtype=np.intp)
    for j, rows in enumerate(reached):
        colour = next((c for c, used in enumerate(taken) if not used[rows].any()), len(taken))
        if colour == len(taken):
            taken.append(np.zeros(n, bool))
        taken[colour][rows] = True
        out[j] = colour
    return out


def found_structure(function: Callable[[Vector], Vector], y: Vector, blocks: int = 1) -> Structure:
    """Return the structure of the Jacobian of a function, found by trying it near `y`.

    Parameters
    ----------
    function : callable
        Of an array, shape (n,), to one of that shape; NaN where it has no value.
    y : ndarray, shape (n,)
    blocks : int
        See `Structure`.

    Returns
    -------
    Structure
        The dense one of a small function, and where none is found.

    Examples
    --------
    >>> y = np.linspace(1, 2, 40)
    >>> found = found_structure(lambda y: np.diff(np.r_[0, y, 0], 2), y)
    >>> found.n_colours, found.band[1:]
    (3, (1, 1))
    """
    n = len(y)
    if n <= FEW:
        return Structure.dense(n)
    rng = np.random.default_rng(_SEED)
    by_steps: Structure | None = None
    for _ in range(3):  # where the function has no value, another point
        point, steps = _beside(y, rng)
        base = function(point)
        if not np.isfinite(base).all():
            continue

        def changed(columns: IntVector, point: Vector = point, steps: Vector = steps, base: Vector = base) -> Any:
            moved = point.copy()
            moved[columns] += steps[columns]
            out = function(moved)
            return (out != base) | ~np.isfinite(out)

        by_steps = _halved(changed, n, blocks)
        break
    if by_steps is None or by_steps.is_dense:
        return Structure.dense(n)

    def without(columns: IntVector) -> Any:
        moved = point.copy()
        moved[columns] = np.nan
        return np.isnan(function(moved))

    by_nan = _halved(without, n, blocks)
    together = by_steps.joined(by_nan)
    too_far = together.is_dense or together.n_colours > _FURTHER * by_steps.n_colours
    return by_steps if too_far else together


def _beside(y: Vector, rng: np.random.Generator) -> tuple[Vector, Vector]:
    """Return a point beside y where no input is zero, and steps from there."""
    size = np.abs(y)
    typical = float(np.median(size[size > 0])) if (size > 0).any() else 1.0
    size = np.where(size > 0, size, typical)
    point = np.where(y < 0, -1.0, 1.0) * size * rng.uniform(0.5, 1.0, len(y))
    return point, size * rng.uniform(0.01, 0.02, len(y))


def _halved(changed: Callable[[IntVector], Any], n: int, blocks: int) -> Structure:
    """Return what `changed` tells of ever smaller blocks of inputs; the dense structure where that will not pay."""
    order = np.arange(n).reshape(blocks, -1).T.ravel() if n % blocks == 0 else np.arange(n)
    parts = [(order, np.arange(n))]
    while any(len(columns) > 1 for columns, _ in parts):
        halves = []
        for columns, rows in parts:
            middle = (len(columns) + 1) // 2
            halves += [(half, rows) for half in (columns[:middle], columns[middle:]) if len(half)]
        colours = greedy_colours([rows for _, rows in halves], n)
        if len(halves) >= 16 and colours.max() + 1 > 0.9 * len(halves):  # nothing is local
            return Structure.dense(n)
        reached = [changed(np.concatenate([halves[i][0] for i in np.flatnonzero(colours == c)]))
                   for c in range(colours.max() + 1)]  # fmt: skip
        parts = [(columns, rows[reached[c][rows]]) for (columns, rows), c in zip(halves, colours, strict=True)]
    columns = np.concatenate([np.repeat(c, len(rows)) for c, rows in parts])
    rows = np.concatenate([rows for _, rows in parts])
    return Structure.of(scipy.sparse.csc_array((np.ones(len(rows), bool), (rows, columns)), shape=(n, n)), blocks)


# --- Jacobians by differences


_FORWARD, _CENTRAL = np.finfo(float).eps ** 0.5, np.finfo(float).eps ** (1 / 3)


def difference_jacobian(
    function: Callable[[Vector], Vector], y: Vector, base: Vector, structure: Structure, sizes: Vector, *,
    central: bool = False, positive: bool = False,
) -> Vector:  # fmt: skip
    """Return the entries of a Jacobian by differences, columns of one colour at once.

    Parameters
    ----------
    function : callable
    y, base : ndarray, shape (n,)
        Where, and the function there.
    sizes : ndarray, shape (n,)
        Of the inputs: steps are relative to them.
    central : bool
        Second order: central, or three points to one side where the other has no value.
    positive : bool
        No input is moved below zero.

    Examples
    --------
    >>> f = lambda y: np.array([y[0] * y[1], y[1] ** 2])
    >>> y = np.array([2.0, 3.0])
    >>> difference_jacobian(f, y, f(y), Structure.dense(2), y, central=True).round(6)
    array([3., 0., 2., 6.])
    """
    h = (_CENTRAL if central else _FORWARD) * sizes
    h = (y + h) - y  # what is really added
    ahead, behind = np.empty((structure.n_colours, structure.n)), np.empty((structure.n_colours, structure.n))
    one_sided = (y - h < 0) if positive else np.zeros(structure.n, bool)
    other = np.where(one_sided, 2 * h, -h)
    for colour in range(structure.n_colours):
        mine = structure.colours == colour
        ahead[colour] = function(np.where(mine, y + h, y))
        if central:
            behind[colour] = function(np.where(mine, y + other, y))
    i, j = structure.rows, structure.columns
    c = structure.colours[j]
    forward = (ahead[c, i] - base[i]) / h[j]
    if not central:
        return np.asarray(forward)
    width = np.where(one_sided, 4.0, 2.0)[j] * h[j]
    top = np.where(one_sided[j], 4 * ahead[c, i] - behind[c, i] - 3 * base[i], ahead[c, i] - behind[c, i])
    slopes = top / np.where(one_sided[j], 2 * h[j], width)
    return np.where(np.isfinite(slopes), slopes, forward)


# --- square systems of a known structure, factored once and solved often: dense, banded or sparse


def _ratio(pivots: Vector) -> float:
    size = np.abs(pivots)
    most = float(size.max(initial=0.0))
    return float(size.min()) / most if most > 0 and np.isfinite(most) else 0.0


class Factored:
    """A matrix, factored by LAPACK or SuperLU: rows scaled, inputs in another order.

    Attributes
    ----------
    pivots : float
        The smallest pivot beside the largest, after rows were scaled to the same size; 0 of a singular matrix.
    """

    def __init__(self, scale: Vector, order: Any, pivots: float, inner: Any) -> None:
        self._scale, self._order, self.pivots, self._inner = scale, order, pivots, inner

    def solve(self, b: Matrix) -> Matrix:
        """Return x of A x = b, for one b or several columns."""
        scaled = b / (self._scale if b.ndim == 1 else self._scale[:, None])
        if self._order is None:
            found: Matrix = self._inner(scaled)
            return found
        out = np.empty_like(scaled)
        out[self._order] = self._inner(scaled[self._order])
        return out


class LinearSolver:
    """A way to solve systems of one structure: called with the values of its entries, it returns them factored."""

    order: IntVector | None = None  # in which inputs stand while they are solved for

    def __init__(self, structure: Structure) -> None:
        self.structure = structure

    def __call__(self, values: Vector) -> Factored:
        """Return the matrix, its rows scaled by their largest entries (1 of empty ones), factored."""
        s = self.structure
        size = np.zeros(s.n)
        np.maximum.at(size, s.rows, np.abs(values))
        size[size == 0] = 1.0
        return Factored(size, self.order, *self.factored(values / size[s.rows]))

    def factored(self, values: Vector) -> tuple[float, Callable[[Matrix], Matrix]]:
        """Return the ratio of the pivots, and what solves."""
        raise NotImplementedError


class Dense(LinearSolver):
    """Factors by LAPACK's getrf."""

    def factored(self, values: Vector) -> tuple[float, Callable[[Matrix], Matrix]]:  # noqa: D102    # told by its class
        lapack, s = scipy.linalg.lapack, self.structure
        full = np.zeros((s.n, s.n), order="F")
        full[s.rows, s.columns] = values
        lu, piv, _ = lapack.dgetrf(full, overwrite_a=True)
        return _ratio(np.diagonal(lu)), lambda b: lapack.dgetrs(lu, piv, b)[0]


class Banded(LinearSolver):
    """Factors by LAPACK's gbtrf."""

    def __init__(self, structure: Structure) -> None:
        super().__init__(structure)
        order, lower, upper = structure.band
        place = np.empty(structure.n, dtype=np.intp)
        place[order] = np.arange(structure.n)
        i, j = place[structure.rows], place[structure.columns]
        self._lower, self._upper = lower, upper
        self.order = None if (order == np.arange(structure.n)).all() else order
        self._at = (lower + upper + i - j, j)

    def factored(self, values: Vector) -> tuple[float, Callable[[Matrix], Matrix]]:  # noqa: D102    # told by its class
        lapack, lower, upper = scipy.linalg.lapack, self._lower, self._upper
        band = np.zeros((2 * lower + upper + 1, self.structure.n), order="F")
        band[self._at] = values
        lu, piv, _ = lapack.dgbtrf(band, lower, upper, overwrite_ab=True)
        return _ratio(lu[lower + upper]), lambda b: lapack.dgbtrs(lu, lower, upper, b, piv)[0]


class Sparse(LinearSolver):
    """Factors by SuperLU."""

    def factored(self, values: Vector) -> tuple[float, Callable[[Matrix], Matrix]]:  # noqa: D102    # told by its class
        s = self.structure
        matrix = scipy.sparse.csc_matrix((values, (s.rows, s.columns)), shape=(s.n, s.n))
        try:
            lu = scipy.sparse.linalg.splu(matrix)
        except (RuntimeError, ValueError):  # exactly singular, or not finite
            return 0.0, lambda b: np.full_like(b, np.nan)
        return _ratio(lu.U.diagonal()), lu.solve
