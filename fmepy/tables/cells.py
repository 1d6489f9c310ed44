"""Tables of variables of one cell each, such as ``O2[3]``, as tables of profiles by time and place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

Cells = dict[str, tuple[str, float]]
"""Of every cell the profile that it belongs to, and its place: ``{"O2[3]": ("O2", 0.25)}``."""


def profiles_among(variables: Sequence[str], cells: Cells | None) -> tuple[str, ...]:
    """Return variables, profiles in the place of their cells."""
    return tuple(dict.fromkeys((cells or {}).get(v, (v, 0.0))[0] for v in variables))


def by_place(frame: pd.DataFrame, x: str, time: str, cells: Cells | None) -> pd.DataFrame:
    """Return a table with columns `x` and var as one with `time`, ``x`` (the place; NaN of what has none) and var.

    Rows are variable by variable, times before places. Without cells it is the table as it is.

    Examples
    --------
    >>> frame = pd.DataFrame({"x": [0, 1, 0, 1], "var": ["A[1]", "A[1]", "A[2]", "A[2]"], "Mean": [1, 2, 3, 4]})
    >>> by_place(frame, "x", "time", {"A[1]": ("A", 0.5), "A[2]": ("A", 1.5)})
       time    x var  Mean
    0     0  0.5   A     1
    1     0  1.5   A     3
    2     1  0.5   A     2
    3     1  1.5   A     4
    """
    if not cells:
        return frame
    at = [cells.get(v, (v, np.nan)) for v in frame["var"]]
    places = np.array([place for _, place in at])
    out = frame.rename(columns={x: time}).assign(var=[name for name, _ in at])
    out.insert(list(out.columns).index(time) + 1, "x", places)
    order = np.lexsort((places, out[time].to_numpy(), pd.factorize(out["var"])[0]))
    return out.iloc[order].reset_index(drop=True)


def some_of(times: Any, most: int) -> list[float]:
    """Return at most so many times, evenly spaced, the last among them; of a start at rest not the first."""
    times = np.asarray(times, dtype=float)
    places = np.linspace(0, len(times) - 1, most + 1)[1:] if len(times) > most else np.arange(len(times))
    return [float(times[k]) for k in np.unique(places.round().astype(int))]
