"""Whether numbers are finite, in as little time as it takes."""

from __future__ import annotations

from math import isfinite

import numpy as np

from fmepy.types import Vector

__all__ = ["all_finite"]


def all_finite(values: Vector) -> bool:
    """Tell whether all values are finite; a finite sum of squares, which takes a third of the time, has finite terms.

    Examples
    --------
    >>> all_finite(np.array([1.0, 1e200])), all_finite(np.array([1.0, np.nan])), all_finite(np.array([np.inf, -np.inf]))
    (True, False, False)
    """
    return isfinite(values.dot(values)) or bool(np.isfinite(values).all())
