"""Data by time and depth: the column of depths of a table, and what lies outside the grid of the model.

A variable at depth z is the profile of the model, linear between the middles of cells; between the first (last) edge
and the middle beside it it has the value of that cell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.costs.observations import Observations
from fmepy.errors import ArgumentError, DataError
from fmepy.models.on_grid import ProfileFunction, profiles_of
from fmepy.tables.columns import Columns, are_swapped
from fmepy.types import IntVector, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Depths:
    """Where every row of a table was observed.

    Attributes
    ----------
    column : str
    of_row : ndarray, shape (n_row,)
    on_grid : ProfileFunction
        What the model is on its grid.
    """

    column: str
    of_row: Vector
    on_grid: ProfileFunction

    def apart(self, of_row: IntVector) -> IntVector:
        """Return codes of experiments and depths by row: rows of several may be alike."""
        keys = pd.DataFrame({"depth": self.of_row, "experiment": of_row})
        return np.asarray(keys.groupby(["depth", "experiment"], dropna=False).ngroup(), dtype=np.intp)

    def inside(self, observations: Observations, outside: str) -> tuple[Observations, IntVector]:
        """Return the observations inside the grid, and how many of each variable are not.

        Raises
        ------
        DataError
            A missing depth; a depth beyond the edges, unless ``outside="drop"``, or if no observations are left.
        """
        edges, kept, lost = self.on_grid.grid.edges, [], []
        slack = 1e-9 * (edges[-1] - edges[0])
        for v in observations.variables:
            z = self.of_row[v.places]
            keep = (z >= edges[0] - slack) & (z <= edges[-1] + slack)
            if not keep.all():
                i = int(np.argmin(keep))
                if np.isnan(z[i]):
                    raise DataError(f"{self.column!r} of an observation of {v.name!r} in row {v.rows[i]} is missing.")
                if outside == "error" or not keep.any():
                    limit = edges[0] if z[i] < edges[0] else edges[-1]
                    many = f"so are {int((~keep).sum())} of {len(keep)} observations" if keep.any() else "so are all"
                    raise DataError(
                        f"{self.column!r} of an observation of {v.name!r} in row {v.rows[i]} is {z[i]:g}, beyond the "
                        f"edge of the model's grid at {limit:g}; {many}. Make the grid reach as far, or leave them "
                        "out: outside='drop' counts them."
                    )
            kept.append(v.only(keep))
            lost.append(int((~keep).sum()))
        return replace(observations, variables=tuple(kept)), np.array(lost, dtype=np.intp)


def read_depths(table: pd.DataFrame, x: Any, model: Any) -> tuple[str | None, Depths | None]:
    """Return the column of times, and the depths where `x` names them too.

    Raises
    ------
    ArgumentError, DataError
        Something else than one or two columns; a model without profiles; what is not a column of numbers.
    """
    if x is None or isinstance(x, str) or np.ndim(x) != 1:
        return x, None
    if len(x) != 2 or x[0] == x[1]:
        raise ArgumentError(f"`x={x!r}` must be the column of times, or those of times and depths: ['day', 'depth'].")
    if are_swapped(str(x[0]), str(x[1])):
        raise ArgumentError(f"`x={x!r}` must name the times first, then the depths: x={[x[1], x[0]]!r}.")
    on_grid = profiles_of(model)
    if on_grid is None:
        raise ArgumentError(f"`x={x!r}`: the model has no profiles; depths are for an OdeModel with grid=.")
    columns = Columns(table)
    return x[0], Depths(x[1], columns.numbers(columns.position(x[1], "x")), on_grid)
