"""Readings beyond a limit: how they are marked in a table, and their part in a likelihood.

With the residual r = (mod - limit) / s of a reading of which only the limit is known, Phi the normal distribution
function, phi its density, and t = r where the reading lies above its limit, t = - r where it lies below::

    log L    = log Phi(t)                          the probability of what was seen
    lam      = phi(t) / Phi(t)
    res      = d(-log L)/dr = - lam (above), lam (below)
    w        = d2(-log L)/dr2 = lam (lam + t)      between 0 and 1: the observed information of r

The *generalised residual* ``res`` (Gourieroux et al. 1987) is the mean of (mod - reading) / s given what was seen, and
zero on average where the model is right; of a plain reading it is r itself.

References
----------
Tobin, J. (1958). Econometrica 26, 24-36. Gourieroux, C. et al. (1987). J. Econometrics 34, 5-32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, DataError, did_you_mean, listed
from fmepy.parameters.names import normal_name
from fmepy.tables.columns import Columns
from fmepy.types import IntVector, Vector

MARKS = {"<": -1, ">": 1}
"""The reading lies below, above the number that stands in the column of values."""
PLAIN = ("", "=")
_FAR = -80.0
_ROOT_2, _ROOT_2_OVER_PI = float(np.sqrt(2.0)), float(np.sqrt(2.0 / np.pi))


Cells = Mapping[str, tuple[Vector, IntVector]]


def mark_columns(table: Columns, censored: Any, y: str | None) -> dict[str | None, int]:
    """Return the position of the column of marks by variable; None stands for all.

    Parameters
    ----------
    table : Columns
    censored : None, str, or mapping of variable to str
    y : str or None
        The column of values of a long table.

    Raises
    ------
    ArgumentError, DataError
        A mapping with a long table; a column that is not there.
    """
    if censored is None:
        return {}
    if not isinstance(censored, Mapping):
        return {None: table.position(censored, "censored")}
    if y is not None:
        raise ArgumentError(
            "`censored` by variable is for wide tables; a long one has a column of marks beside its values. Pass its "
            f"name, such as censored={next(iter(censored.values()), 'mark')!r}."
        )
    return {normal_name(name): table.position(column, f"censored[{name!r}]") for name, column in censored.items()}


def marks_by_variable(table: Columns, columns: Mapping[str | None, int], cells: Cells) -> dict[str, IntVector]:
    """Return the marks of all rows of the table, for every variable that has a column of them.

    Parameters
    ----------
    table : Columns
    columns : mapping of variable to position
        From `mark_columns`.
    cells : mapping of variable to (values, rows)

    Raises
    ------
    DataError
        A mark that is none; a mark without a limit; one mark for several readings in a row; an unknown variable.
    """
    out: dict[str, IntVector] = {}
    for variable, position in columns.items():
        if variable is not None and variable not in cells:
            raise DataError(
                f"`censored`: {variable!r} is not an observed variable.{did_you_mean(variable, list(cells))} Observed "
                f"are {listed(cells)}."
            )
        marks = _marks(table.column(position), table.names[position])
        own = cells if variable is None else {variable: cells[variable]}
        _check_limits(marks, own, table.rows, table.names[position])
        out.update(dict.fromkeys(own, marks))
    return out


def _marks(column: pd.Series, name: str) -> IntVector:
    out = np.zeros(len(column), dtype=np.intp)
    for i, (row, mark) in enumerate(column.items()):
        text = "" if pd.isna(mark) else str(mark).strip()
        if text in PLAIN:
            continue
        if text not in MARKS:
            raise DataError(
                f"`censored`: column {name!r} holds {mark!r} in row {row}. A reading below the limit that stands in "
                "the column of values is marked '<', one above it '>'; a plain reading has '', '=' or nothing there."
            )
        out[i] = MARKS[text]
    return out


def _check_limits(marks: IntVector, cells: Cells, rows: Sequence[Any], column: str) -> None:
    """Raise a DataError for a mark that has no limit beside it, or several."""
    there = np.zeros(len(marks), dtype=np.intp)
    for values, take in cells.values():
        np.add.at(there, take, (~np.isnan(values)).astype(np.intp))
    for i in np.flatnonzero((marks != 0) & (there != 1))[:1]:
        mark = signs(marks[[i]])[0]
        if not there[i]:
            raise DataError(
                f"`censored`: column {column!r} holds {mark!r} in row {rows[i]}, where there is no value. The limit "
                "belongs in the column of values."
            )
        raise DataError(
            f"`censored`: column {column!r} holds {mark!r} in row {rows[i]}, which has {there[i]} values: of which one "
            "is not said. Give a column of marks by variable, such as censored={'A': 'mark_A'}, or a long table."
        )


def signs(marks: IntVector) -> list[str]:
    """Return the marks as they stand in tables."""
    return [{-1: "<", 1: ">"}.get(m, "") for m in marks.tolist()]


def log_probability(t: Vector) -> Vector:
    """Return log Phi(t), also far out in the tail."""
    from scipy.special import log_ndtr

    return np.asarray(log_ndtr(t))


def _lam(t: Vector) -> Vector:
    """Return phi(t) / Phi(t), without a quotient of two vanishing numbers."""
    from scipy.special import erfcx

    with np.errstate(over="ignore"):  # far inside the limit: 1 / inf is the 0 that is meant
        return np.asarray(_ROOT_2_OVER_PI / erfcx(-t / _ROOT_2))


def minus2loglik_of_marked(r: Vector, s: Vector, marks: IntVector) -> float:
    """Return -2 log L of residuals r = (mod - obs) / s, of which some are of limits."""
    beyond = marks != 0
    r_plain, s_plain = r[~beyond], s[~beyond]
    with np.errstate(over="ignore"):  # residuals beyond 1e154: infinite, and told as such
        plain = float(r_plain @ r_plain + 2 * np.log(s_plain).sum() + len(r_plain) * np.log(2 * np.pi))
    return plain - 2 * float(log_probability(marks[beyond] * r[beyond]).sum())


def residuals_of_marked(r: Vector, marks: IntVector) -> Vector:
    """Return residuals, generalised ones of those that are of limits."""
    beyond = marks != 0
    out = r.copy()
    out[beyond] = generalised(r[beyond], marks[beyond])
    return out


def generalised(r: Vector, marks: IntVector) -> Vector:
    """Return the generalised residuals of readings marked -1 or 1."""
    return -marks * _lam(marks * r)


def steepness(r: Vector, marks: IntVector) -> Vector:
    """Return w, the observed information of r."""
    t = marks * r
    lam = _lam(t)
    far = t < _FAR  # lam + t is a difference of nearly equal numbers there
    u = np.where(far, t, _FAR) ** -2
    return np.where(far, 1 - u * (1 - u * (6 - 50 * u)), lam * (lam + np.where(far, 0.0, t)))
