"""Vector functions that are compiled as loops over arrays, at some parameters: rates, Jacobians, sensitivities.

The sensitivities stand behind the states, z = [y, s_1, ..., s_k], as in `running.system`. Their rates are derivatives
along directions, ``s_j' = (df/dy) s_j + k_j df/dp_j``, and in the Jacobian for a solver's corrections only the blocks
df/dy on its diagonal are kept (the simultaneous corrector of Maly and Petzold 1996): that is a band as narrow as that
of the states alone, and what is left out only makes a correction less than perfect, not the result.

References
----------
Maly, T. and Petzold, L. R. (1996). Numerical methods and software for sensitivity analysis of differential-algebraic
systems. Applied Numerical Mathematics 20, 57-79.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.array_code import ArrayCode
from fmepy.language.arrays import ArrayProgram
from fmepy.types import Matrix, Vector


@lru_cache(maxsize=32)
def code_of(arrays: ArrayProgram) -> ArrayCode:
    """Return the machine code of a computation."""
    return ArrayCode(arrays)


class ArraysAt:
    """A computation at some parameters.

    Parameters
    ----------
    arrays : ArrayProgram
    p : sequence of float
        All parameters.
    places : sequence of int
        Those with sensitivities.
    scales : sequence of float
        By which these are multiplied.
    """

    def __init__(self, arrays: ArrayProgram, p: Any, places: Sequence[int] = (), scales: Any = ()) -> None:
        self._code = code = code_of(arrays)
        self.n, self.m = arrays.n_states, len(places)
        self._block = w = code.block()
        w[code.at("p")] = p
        self._t, self._y, self._u, self._out = (w[s] for s in (code.at("t"), code.at("y"), code.at("u"), code.rates))
        code.function("prepare", w)()
        self._is_refused, self._checks = not w[code.own_checks].all(), code.checks if len(code.checks) else None
        self._run = code.function("rates", w)
        self._slopes: Matrix | None = None
        if self.m:
            self._slopes = directions = np.zeros((self.m, code.size))
            directions[np.arange(self.m), code.at("p").start + np.asarray(places, dtype=int)] = scales
            code.function("prepare_along", w, directions)()
            self._run_along = code.function("rates_along", w, directions)
        self._colours: tuple[Matrix, Callable[[], None]] | None = None

    def rates(self, t: float, y: Vector, u: Any = ()) -> Vector | None:
        """Return the rates; None where the function itself is to be asked."""
        self._t[0] = t
        self._y[:] = y
        if len(u):
            self._u[:] = u
        self._run()
        if self._is_refused or (self._checks is not None and not self._block[self._checks].all()):
            return None
        return self._out.copy()

    def all_rates(self, t: float, z: Vector, u: Any = ()) -> Vector | None:
        """Return the rates of states and sensitivities, z = [y, s_1, ...]."""
        if self._slopes is None:
            return self.rates(t, z, u)
        if (own := self.rates(t, z[: self.n], u)) is None:
            return None
        self._slopes[:, self._code.at("y")] = z[self.n :].reshape(self.m, self.n)
        self._run_along()
        return np.concatenate([own, self._slopes[:, self._code.rates].ravel()])

    def extra_slopes(self, t: float, z: Vector, u: Any = ()) -> Matrix:
        """Return the derivatives of the further outputs, shape (n_extra, m)."""
        self.all_rates(t, z, u)
        assert self._slopes is not None, "it was made with sensitivities"
        return self._slopes[:, self._code.extras].T

    def jacobian(self, t: float, y: Vector, u: Any = ()) -> Vector:
        """Return the entries of the Jacobian of the rates, in the order of `ArrayCode.structure`."""
        code = self._code
        structure, at = code.structure, code.at("y")
        if self._colours is None:
            seeds = np.zeros((structure.n_colours, code.size))
            seeds[structure.colours, at.start + np.arange(self.n)] = 1.0
            self._colours = seeds, code.function("rates_along", self._block, seeds)
        seeds, run = self._colours
        self.rates(t, y, u)
        run()
        return seeds[structure.colours[structure.columns], code.rates.start + structure.rows]

    def to_parameters(self, t: float, y: Vector) -> Matrix:
        """Return the derivatives of the rates to the parameters chosen, shape (n_state, m)."""
        self.all_rates(t, np.concatenate([y, np.zeros(self.n * self.m)]))
        assert self._slopes is not None, "it was made with sensitivities"
        return self._slopes[:, self._code.rates].T.copy()
