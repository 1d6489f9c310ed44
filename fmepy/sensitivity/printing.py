"""Tables as R prints them with two significant digits."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fmepy.fitting.printing import common

__all__ = ["two_digits"]


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
