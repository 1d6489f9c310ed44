"""Named array types, so that signatures read like the mathematics.

Shapes are told in docstrings with fixed symbols: ``n_obs``, ``n_time``, ``n_var``, ``n_par``, ``n_draw``,
``n_chain``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Cube: TypeAlias = NDArray[np.float64]
IntVector: TypeAlias = NDArray[np.intp]
BoolVector: TypeAlias = NDArray[np.bool_]
AxesArray: TypeAlias = NDArray[np.object_]
"""Panels of a picture: matplotlib Axes."""
Seed: TypeAlias = int | np.random.Generator | None
UserParameters: TypeAlias = Any
"""Whatever a user may give as ``p``: dict, Series, table row, sequence, number, lmfit.Parameters, names, None."""
UserBounds: TypeAlias = Any
"""A number, a sequence, a dict by name; None and NaN mean no bound."""

Which: TypeAlias = str | int | Sequence[str | int] | None
"""Names or positions from 0; None is all."""

__all__ = [
    "ArrayLike", "AxesArray", "BoolVector", "Cube", "IntVector", "Matrix", "Seed", "UserBounds", "UserParameters",
    "Vector", "Which",
]  # fmt: skip
