"""Numbers as R prints them: coefficient tables, p-values, matrices, tables of two significant digits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from fmepy.types import Matrix, Vector

_EPSILON = 2.220446e-16

MOST_CORRELATED = 60
"""Parameters whose correlations are printed."""


def significant(value: float, digits: int) -> str:
    """Return a number with so many significant digits, as R's signif and print do.

    Examples
    --------
    >>> significant(0.0127810148, 4), significant(12345.678, 4)
    ('0.01278', '12346')
    """
    if not np.isfinite(value):
        return _special(value)
    return common([value], digits)[0]


def _special(value: float) -> str:
    return "NA" if np.isnan(value) else ("Inf" if value > 0 else "-Inf")


def decimals_for(values: Sequence[float], digits: int) -> int:
    """Return the decimals at which every value shows at least `digits` significant digits, trailing zeros dropped."""
    need = 0
    for v in values:
        if not np.isfinite(v) or v == 0:
            continue
        exponent = int(f"{abs(v):.{digits - 1}e}".split("e")[1])
        need = max(need, _used_digits(v, digits) - 1 - exponent)
    return max(need, 0)


def _used_digits(value: float, digits: int) -> int:
    """Return the significant digits that a value needs, at most `digits`: trailing zeros are not needed."""
    mantissa = f"{abs(value):.{digits - 1}e}".split("e")[0]
    return max(len(mantissa.replace(".", "").rstrip("0")), 1)


def common(values: Sequence[float], digits: int) -> list[str]:
    """Return values in one format, fixed unless scientific is shorter (R's format).

    Examples
    --------
    >>> common([0.01564, 17.91196], 4)
    ['0.01564', '17.91196']
    >>> common([3.2e-12], 3)
    ['3.2e-12']
    """
    finite = [v for v in values if np.isfinite(v)]
    decimals = decimals_for(finite, digits)
    fixed = [f"{v:.{decimals}f}" for v in finite]
    mantissa = max((_used_digits(v, digits) for v in finite), default=1)
    scientific = [f"{v:.{mantissa - 1}e}" for v in finite]
    chosen = scientific if max(map(len, fixed), default=0) > max(map(len, scientific), default=0) else fixed
    texts = iter(chosen)
    return [next(texts) if np.isfinite(v) else _special(v) for v in values]


def p_values(values: Vector) -> list[str]:
    """Return p-values with three digits: fixed ones in one format, small ones each on its own, "< 2e-16" below that."""
    large = [i for i, v in enumerate(values) if v >= 1e-4]
    texts = dict(zip(large, common([values[i] for i in large], 3), strict=True))
    out = []
    for i, v in enumerate(values):
        if i in texts:
            out.append(texts[i])
        elif np.isfinite(v):
            out.append("< 2e-16" if v < _EPSILON else common([v], 3)[0])
        else:
            out.append("NA")
    return out


def coefficient_table(names: Sequence[str], table: Matrix, columns: Sequence[str]) -> str:
    """Return Estimate, Std. Error, t value and Pr(>|t|) as R's printCoefmat lays them out, without stars."""
    return laid_out(names, columns, coefficient_cells(table))


def coefficient_cells(table: Matrix) -> list[list[str]]:
    """Return the texts of a table of coefficients, row by row."""
    pair = table[:, :2]
    sizes = np.abs(pair[np.isfinite(pair) & (pair != 0)])
    digits = 4
    lowest = 1 + int(np.floor(np.log10(sizes.min()))) if sizes.size else 1
    rounded = np.round(pair, max(1, digits - lowest))
    shown = common(list(rounded.ravel()), digits)
    t_values = common([float(v) for v in np.round(table[:, 2], 3)], digits)
    cells = [[*shown[2 * i : 2 * i + 2], t_values[i]] for i in range(len(table))]
    for row, p in zip(cells, p_values(table[:, 3]), strict=True):
        row.append(p)
    return cells


def fixed_matrix(names: Sequence[str], values: Matrix) -> str:
    """Return a matrix with column formats of its own, as R prints it."""
    columns = [common(column, 4) for column in values.T.tolist()]
    return laid_out(names, names, list(zip(*columns, strict=True)))


def laid_out(rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Return right-aligned columns under their names, row names on the left."""
    left = max((len(r) for r in rows), default=0)
    widths = [max(len(c), *(len(row[j]) for row in cells)) for j, c in enumerate(columns)]
    lines = [" " * left + " " + " ".join(c.rjust(w) for c, w in zip(columns, widths, strict=True))]
    for name, row in zip(rows, cells, strict=True):
        lines.append(name.ljust(left) + " " + " ".join(t.rjust(w) for t, w in zip(row, widths, strict=True)))
    return "\n".join(lines)


def two_digits(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts: numbers of a column in one format with at least two significant digits.

    Examples
    --------
    >>> two_digits(pd.DataFrame({"a": [0.012345, 1.5], "b": [1, 2]}))
           a  b
    0  0.012  1
    1  1.500  2
    """
    out = {}
    for i in range(frame.shape[1]):
        column = frame.iloc[:, i]
        is_float = pd.api.types.is_float_dtype(column)
        out[i] = common(column.to_list(), 2) if is_float else column.astype(str).to_list()
    table = pd.DataFrame(out, index=frame.index)
    table.columns = pd.Index(np.asarray(frame.columns, dtype=object))
    return table
