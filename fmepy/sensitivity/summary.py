"""The summary of sensitivities: one row per parameter, or per parameter and variable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fmepy.errors import check_choice
from fmepy.results.printing import two_digits
from fmepy.results.tables import Framed, Part, table
from fmepy.types import AxesArray, Matrix

MEASURES = ("L1", "L2", "Mean", "Min", "Max")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SensFunSummary(Framed):
    """Summary of sensitivities; printed with two significant digits, as R does.

    Attributes
    ----------
    frame : DataFrame
        Columns value, scale, L1, L2, Mean, Min, Max, N (and var).
    by_variable : bool
        One row per parameter and variable.
    """

    frame: pd.DataFrame
    by_variable: bool = False

    def ranking(self, by: str = "L2") -> pd.Series:
        """Return the rows by the size of a measure, the largest first (L1, L2, Mean, Min or Max)."""
        measure = self.frame[check_choice(by, MEASURES, "by")]
        return measure.iloc[np.argsort(-np.abs(measure.to_numpy()), kind="stable")]

    def plot(self, *, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw five dot charts (L1, L2, Mean, Min, Max), a dotted line at 0; return the Axes."""
        from fmepy.plotting.sensitivity import plot_summary

        return plot_summary(self, axes=axes, **kwargs)

    def shown(self) -> list[str | Part]:
        """Return the table with two digits."""
        return [table(two_digits(self.frame))]


def summarise(
    S: Matrix, pars: pd.Series, parscale: pd.Series, labels: NDArray[Any] | None, var: Sequence[str]
) -> pd.DataFrame:
    """Return the table of measures of S, shape (n_row, n_par).

    With `labels` (the variable of each row) there is one row per parameter and variable of `var`, named by parameter
    and, if there are several, running number.
    """
    groups: list[tuple[str | None, Matrix]] = [(None, S)]
    if labels is not None:
        groups = [(v, S[labels == v]) for v in var]
    rows, index = [], []
    for j, name in enumerate(pars.index):
        for k, (variable, part) in enumerate(groups):
            column = part[:, j]
            row: dict[str, Any] = {
                "value": float(pars.iloc[j]),
                "scale": float(parscale.iloc[j]),
                "L1": float(np.abs(column).mean()),
                "L2": float(np.sqrt(np.mean(column**2))),
                "Mean": float(column.mean()),
                "Min": float(column.min()),
                "Max": float(column.max()),
                "N": column.size,
            }
            rows.append(row if variable is None else row | {"var": variable})
            index.append(str(name) if len(groups) == 1 else f"{name}{k + 1}")
    return pd.DataFrame(rows, index=index)
