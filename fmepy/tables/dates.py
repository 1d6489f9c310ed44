"""Dates as times: ISO 8601 texts and datetimes as numbers since an origin, in a unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

SECONDS = {
    "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0, "weeks": 604800.0, "years": 365.25 * 86400.0,
}  # fmt: skip
"""Units of time, in seconds; a year is one of 365.25 days."""


def as_dates(values: Sequence[Any]) -> pd.DatetimeIndex:
    """Return ISO dates, with or without a time of the day, as moments; those without a zone are of one and the same.

    Raises
    ------
    ValueError
        One is no date, such as 2001-02-30.
    """
    return pd.DatetimeIndex(pd.to_datetime(list(values), format="ISO8601", utc=True))
