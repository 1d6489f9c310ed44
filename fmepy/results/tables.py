"""What results that hold a table have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

__all__ = ["Framed", "readable"]

_MOST_ROWS, _MOST_COLUMNS = 60, 14
_WIDTH = 120


def readable(frame: pd.DataFrame) -> str:
    """Return a table as text with all its columns, five digits each; long ones show their ends, wide ones as pandas.

    Examples
    --------
    >>> print(readable(pd.DataFrame({"x": [1.0, 2.0], "mean": [919.123456, 0.00012345678]})))
       x       mean
    0  1     919.12
    1  2 0.00012346
    """
    if not len(frame) or len(frame.columns) > _MOST_COLUMNS:
        return repr(frame)
    is_long = len(frame) > _MOST_ROWS
    rows = 20 if is_long else None
    text = frame.to_string(float_format="{:.5g}".format, max_rows=rows, line_width=_WIDTH)
    return f"{text}\n[{len(frame)} rows; `frame` holds them all]" if is_long else text


class Framed:
    """A result with a DataFrame `frame`: `len`, ``[]`` and `columns` reach through to it, and it shows as the table."""

    __slots__ = ()
    if TYPE_CHECKING:  # a field of some, made when it is first asked for in others

        @property
        def frame(self) -> pd.DataFrame:
            """The table."""

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, key: Any) -> Any:
        return self.frame[key]

    @property
    def columns(self) -> pd.Index:
        """Columns of the frame."""
        return self.frame.columns

    def __repr__(self) -> str:
        return readable(self.frame)

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(max_rows=20, max_cols=20))
