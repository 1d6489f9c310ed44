"""What results that hold a table have in common."""

from __future__ import annotations

from typing import Any

import pandas as pd

__all__ = ["Framed"]


class Framed:
    """A result with a DataFrame `frame`: `len`, ``[]`` and `columns` reach through to it, and it shows as the table."""

    __slots__ = ()
    frame: pd.DataFrame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, key: Any) -> Any:
        return self.frame[key]

    @property
    def columns(self) -> pd.Index:
        """Columns of the frame."""
        return self.frame.columns

    def __repr__(self) -> str:
        return repr(self.frame)

    def _repr_html_(self) -> str:
        return str(self.frame.to_html(max_rows=20, max_cols=20))
