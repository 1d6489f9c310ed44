"""Functions of parameters that data fix though they do not fix the parameters: products of powers, sums, polynomials.

A function is fixed if its gradient is orthogonal to every direction of the null space, at every point. Where parameters
are scaled against each other, the null space of their logarithms is the same at all points, and products of powers are
fixed; where they are shifted, sums are; else functions of degree two are looked for, whose coefficients follow from
enough random points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from fmepy.designs.power_series import PRIME, inverse
from fmepy.designs.prime_field import echelon, independent, null_space, small_fraction
from fmepy.types import IntMatrix

_MOST_TERMS = 150  # of a function of degree two
_MOST_PARAMETERS = 8
Term = tuple[tuple[int, int], ...]
"""Parameters and their powers, 1 or -1."""


def invariants(case: Any, rng: np.random.Generator, V: IntMatrix) -> list[str]:
    """Return independent functions of the parameters that are not identifiable, which data fix."""
    points = [case.point(rng) for _ in range(2)]
    found: list[str] = []
    for block in _blocks(V):
        names = [case.names[j] for j in block]
        spaces = [echelon(null_space(point.of(case.observed))[:, block])[0] for point in points]
        needed = len(block) - len(spaces[0])
        if needed:
            thetas = [point.theta[block].tolist() for point in points]
            logs = [N * np.array([inverse(x) for x in theta]) % PRIME for theta, N in zip(thetas, spaces, strict=True)]
            sums = _texts(names, logs, _power_text) or _texts(names, spaces, _sum_text)
            found += sums or _quadratic(case, rng, block, V, needed)
    return found


def _blocks(V: IntMatrix) -> list[list[int]]:
    """Return the sets of parameters that move together."""
    groups: list[set[int]] = []
    for row in V:
        mine = set(np.flatnonzero(row).tolist())
        meeting = [g for g in groups if g & mine]
        groups = [g for g in groups if not g & mine] + [mine.union(*meeting)]
    return sorted(sorted(g) for g in groups)


def _same_space(spaces: Sequence[IntMatrix]) -> list[list[Fraction]] | None:
    """Return a space that is the same at all points, in small fractions."""
    first, *others = (echelon(s)[0] for s in spaces)
    if any(s.shape != first.shape or (s != first).any() for s in others):
        return None
    rows = [[v for v in map(small_fraction, row) if v is not None] for row in first.tolist()]
    return rows if all(len(row) == first.shape[1] for row in rows) else None


def _orthogonal(rows: list[list[Fraction]]) -> list[list[int]]:
    """Return whole vectors orthogonal to a space in echelon form: sparse ones, the first number above zero."""
    n, pivots = len(rows[0]), [next(j for j, v in enumerate(row) if v) for row in rows]
    out = []
    for j in (j for j in range(n) if j not in pivots):
        v = [Fraction(int(k == j)) for k in range(n)]
        for p, row in zip(pivots, rows, strict=True):
            v[p] = -row[j]
        out.append(_whole(v))
    return out


def _whole(factors: Sequence[Fraction]) -> list[int]:
    """Return fractions, one of which is 1, as whole numbers without a common factor, the first above zero."""
    scale = lcm(*(f.denominator for f in factors))
    whole = [int(f * scale) for f in factors]
    return whole if next(x for x in whole if x) > 0 else [-x for x in whole]


def _texts(
    names: Sequence[str], spaces: Sequence[IntMatrix], text: Callable[[Sequence[str], Sequence[int]], str]
) -> list[str]:
    """Return the functions that are fixed, by what they are orthogonal to; none where that differs between points."""
    rows = _same_space(spaces)
    return [] if rows is None else [text(names, v) for v in _orthogonal(rows)]


def _power_text(names: Sequence[str], powers: Sequence[int]) -> str:
    def side(sign: int) -> list[str]:
        return [n if sign * k == 1 else f"{n}**{sign * k}" for n, k in zip(names, powers, strict=True) if sign * k > 0]

    above, below = side(1), side(-1)
    if not below:
        return "*".join(above)
    return f"{'*'.join(above) or '1'}/{below[0] if len(below) == 1 else '(' + '*'.join(below) + ')'}"


def _sum_text(terms: Sequence[str], factors: Sequence[int]) -> str:
    out = ""
    for term, k in zip(terms, factors, strict=True):
        if k:
            sign = " - " if k < 0 else " + "
            out += (sign if out else "-" * (k < 0)) + (term if abs(k) == 1 else f"{abs(k)}*{term}")
    return out


def _quadratic(case: Any, rng: np.random.Generator, block: Sequence[int], V: IntMatrix, needed: int) -> list[str]:
    """Return functions of degree two of a block, with what is identifiable as factors."""
    fixed = [j for j in range(len(case.names)) if not V[:, j].any()]
    names = case.names
    unnamed = f"{needed} further function{'s' * (needed > 1)} of {', '.join(names[j] for j in block)}"
    if len(block) > _MOST_PARAMETERS:
        return [unnamed] if needed == 1 else [f"{unnamed} ({i + 1})" for i in range(needed)]
    terms: list[Term] = [((j, 1),) for j in block]
    terms += [((i, 1), (j, 1)) for a, i in enumerate(block) for j in block[a:]]
    terms += [((i, 1), (j, s)) for i in block for j in fixed for s in (1, -1)]
    terms += [((i, 1), (j, -1)) for i in block for j in block if i != j]
    terms = terms[:_MOST_TERMS]
    rows: list[list[int]] = []
    last: Any = None
    while len(rows) < len(terms) + 4:
        last = point = case.point(rng)
        gradient = np.array([_gradient(t, point.theta.tolist(), len(names)) for t in terms], dtype=object)
        for v in null_space(point.of(case.observed)):
            if v[block].any():
                rows.append([int(row @ v.astype(object)) % PRIME for row in gradient])
    solutions = null_space(np.array(rows, dtype=np.int64))
    texts = [_term_text(names, t) for t in terms]
    candidates = sorted((len(np.flatnonzero(s)), i) for i, s in enumerate(solutions))
    chosen: list[str] = []
    taken = np.zeros((0, len(names)), dtype=np.int64)
    for _, i in candidates:
        factors = [f for x in solutions[i].tolist() if (f := small_fraction(x)) is not None]
        if len(factors) < len(terms) or last is None:
            continue
        slope = [0] * len(names)
        for t, s in zip(terms, solutions[i].tolist(), strict=True):
            if s:
                own = _gradient(t, last.theta.tolist(), len(names))
                slope = [(a + s * b) % PRIME for a, b in zip(slope, own, strict=True)]
        both = np.concatenate([taken, [[x if j in block else 0 for j, x in enumerate(slope)]]])
        if len(independent(both)) == len(both):
            taken = both
            chosen.append(_sum_text(texts, _whole(factors)))
        if len(chosen) == needed:
            return chosen
    left = needed - len(chosen)
    return [*chosen, *(f"a further function of {', '.join(names[j] for j in block)}" for _ in range(left))]


def _gradient(term: Term, theta: Sequence[int], n: int) -> list[int]:
    out = [0] * n
    for k, (j, power) in enumerate(term):
        value = power if power == 1 else -(inverse(theta[j]) ** 2)
        for i, (other, p) in enumerate(term):
            if i != k:
                value = value * (theta[other] if p == 1 else inverse(theta[other]))
        out[j] = (out[j] + value) % PRIME
    return out


def _term_text(names: Sequence[str], term: Term) -> str:
    if len(term) == 2 and term[0] == term[1]:
        return f"{names[term[0][0]]}**2"
    return names[term[0][0]] + "".join(f"{'*' if p == 1 else '/'}{names[j]}" for j, p in term[1:])
