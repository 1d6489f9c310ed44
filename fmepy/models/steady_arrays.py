"""The rates of a function of arrays whose steady state is wanted, compiled as loops: with exact derivatives."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from fmepy.errors import TracingError
from fmepy.expressions.arrays import Arrays
from fmepy.models.definition.array_tracing import check_same, traced_arrays
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.running.array_rates import ArraysAt
from fmepy.models.steady_rates import OfFunction
from fmepy.numerics.structure import Structure
from fmepy.types import Matrix, Vector


class OfArrays(OfFunction):
    """Rates by loops over arrays; the function itself is asked for outputs, and where the loops give no numbers.

    Parameters
    ----------
    arrays : Arrays
    function, t, y, p, cells, blocks
        As for `OfFunction`.
    """

    def __init__(self, arrays: Arrays, *function: Any) -> None:
        super().__init__(*function)
        self._arrays = arrays
        self._at: tuple[bytes, ArraysAt] | None = None

    def _loops(self, p: Vector) -> ArraysAt:
        key = p.tobytes()
        if self._at is None or self._at[0] != key:
            self._at = key, ArraysAt(self._arrays, p)
        return self._at[1]

    @cached_property
    def structure(self) -> Structure:
        """As the steps of the computation say."""
        return Structure.of(self._arrays.reached, self._blocks or 1)

    def rates(self, y: Vector, p: Vector) -> Vector:
        """Return f(y; p); NaN where the function raises for want of a value."""
        found = self._loops(p).rates(self._t, y)
        if found is None or not np.isfinite(found.dot(found)):
            return super().rates(y, p)
        return found

    def jacobian(self, y: Vector, f: Vector, p: Vector, structure: Structure, positive: bool) -> Vector:
        """Return the entries of df/dy, exactly where they are finite."""
        if structure is self.structure:
            entries = self._loops(p).jacobian(self._t, y)
            if np.isfinite(entries).all():
                return entries
        return super().jacobian(y, f, p, structure, positive)

    def to_parameters(self, y: Vector, p: Vector, places: Any, box: Any) -> Matrix | None:
        """Return df/dp, exactly; None where it has no finite value."""
        slopes = ArraysAt(self._arrays, p, places, np.ones(len(places))).to_parameters(self._t, y)
        return slopes if np.isfinite(slopes).all() else None

    def extras_along(self, y: Vector, p: Vector, places: Any, S: Matrix) -> Matrix:
        """Return the derivatives of the extras where the states move by S, shape (n_rows * n_extra, n_par)."""
        at = ArraysAt(self._arrays, p, places, np.ones(len(places)))
        flat = at.extra_slopes(self._t, np.concatenate([y, S.T.ravel()]))
        out, at_entry = np.empty((self.n_rows, len(self._arrays.extras), len(places))), 0
        for k, run in enumerate(self._arrays.extras):
            out[:, k] = flat[at_entry : at_entry + run.length]  # one number of a run stands in every row
            at_entry += run.length
        return out.reshape(-1, len(places))


def loops_of_profiles(
    rates: RatesFunction, source: OfFunction, n_species: int, cells: int
) -> tuple[Arrays | None, str]:
    """Return a function of profiles on a grid as loops over arrays, or None and why not.

    source : OfFunction
        The same function, on the grid.
    """
    y, p = source.own
    try:
        arrays = traced_arrays(rates, (n_species, cells) if rates.form == "named" else (len(y),))
        check_same(arrays, lambda t, y, p, u: source.at_time(t).rates(y, p), source.time, y, p, np.empty(0))
    except TracingError as error:
        return None, f"a function of profiles runs as it is, for it cannot be turned into loops over arrays: {error}"
    return arrays, "a function of profiles is compiled as loops over arrays"
