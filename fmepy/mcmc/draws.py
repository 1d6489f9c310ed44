"""Draws as an array, shape (n_chain, n_draw, n_par): what all diagnostics begin with."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.types import Cube


def draws_by_chain(pars: pd.DataFrame) -> Cube:
    """Return the draws as an array (n_chain, n_draw, n_par): the first, as many as the shortest chain has.

    Raises
    ------
    ArgumentError
        A table without rows.
    """
    if len(pars) == 0:
        raise ArgumentError("There are no draws: the table has no rows.")
    values = pars.to_numpy(dtype=float)
    if not isinstance(pars.index, pd.MultiIndex):
        return values[None]
    codes, _ = pd.factorize(pars.index.get_level_values(0))
    chains = [values[codes == c] for c in range(codes.max() + 1)]
    shortest = min(map(len, chains))
    return np.stack([c[:shortest] for c in chains])
