"""Models without equations (an `if` on a state, a loop, a foreign library): a filter's functions by differences.

The user's function is called as it is; with e_j the unit vectors and eps the rounding of a number::

    F e_j = (f(x + d_j e_j) - f(x - d_j e_j)) / (2 d_j)         d_j = eps^(1/3) |x_j|, of zeros eps^(1/3)

H and G likewise. The sds of the noise and the readings are expressions of states, parameters, forcings, time and of
what else the function returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError, SimulationError
from fmepy.filtering.functions import PythonFunction
from fmepy.filtering.statespace import INFLATION
from fmepy.language.equations import Equations, names_in, symbol
from fmepy.models.definition.definition import Definition
from fmepy.types import Matrix, Vector

_STEP = 6e-6
_NO_VALUE = (ArithmeticError, ValueError, SimulationError)


def nominal_equations(definition: Definition) -> Equations:
    """Return the names of a model without equations in the form of equations; its rates stand for nothing."""
    states = definition.states
    extra = [(name, symbol(name)) for name in definition.extra_names]
    return Equations(
        definition.kind,
        states,
        definition.parameters,
        tuple(f.name for f in definition.forcings),
        tuple(symbol(k) for k in (*states, *definition.parameters)),  # anything may occur in them
        (*extra, *definition.outputs),
        definition.time,
    )


@dataclass(frozen=True, eq=False)
class UntracedSpace:
    """A model without equations, with noise; the face of `StateSpace` as far as filters need it.

    Attributes
    ----------
    definition : Definition
    parameters : tuple of str
        The order of p: the model's, those of the noise, the factor's entries of a correlated noise, the inflation.
    noise_keys : tuple of str
    noise_sds : tuple of Node, or None
        None: correlated.
    readings, sds : tuple of Node
    """

    definition: Definition
    parameters: tuple[str, ...]
    noise_keys: tuple[str, ...]
    noise_sds: tuple[Any, ...] | None
    readings: tuple[Any, ...]
    sds: tuple[Any, ...]
    is_traced: Literal[False] = field(default=False, init=False)
    is_linear: Literal[False] = field(default=False, init=False)

    @classmethod
    def build(
        cls,
        definition: Definition,
        parameters: Sequence[str],
        noise_keys: Sequence[str],
        noise_sds: Sequence[Any] | None,
        readings: Sequence[Any],
        sds: Sequence[Any],
    ) -> UntracedSpace:
        """Return the space; see `build_state_space`."""
        q = len(noise_keys)
        factor = [f"factor {a} {b}" for a in range(q) for b in range(a + 1)] if noise_sds is None else []
        sds_of_noise = None if noise_sds is None else tuple(noise_sds)
        return cls(
            definition, (*parameters, *factor, INFLATION), tuple(noise_keys), sds_of_noise, tuple(readings), tuple(sds)
        )

    @property
    def kind(self) -> str:
        """Whether rates are derivatives ("ode") or next states ("difference")."""
        return self.definition.kind

    @property
    def time(self) -> str:
        """Name of the time."""
        return self.definition.time

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the states."""
        return self.definition.states

    @property
    def forcings(self) -> tuple[str, ...]:
        """Names of the forcings."""
        return tuple(f.name for f in self.definition.forcings)

    @property
    def n_noise(self) -> int:
        """Columns of A."""
        return len(self.noise_keys)

    @property
    def has_noise(self) -> bool:
        """Whether the process has noise."""
        return self.noise_sds is None or any(sd != 0 for sd in self.noise_sds)

    def curvatures(self) -> tuple[Any, Any]:
        """Refuse: second derivatives are taken of equations."""
        raise ModelError(
            "update='second_order' needs the model's equations, and the function gives none: "
            f"{self.definition.note}. Use update='unscented', which needs no derivatives."
        )

    def functions(self) -> tuple[PythonFunction, PythonFunction]:
        """Return (advance, observe)."""
        own, n, m = _ByDifferences(self), len(self.states), len(self.readings)
        inputs = [(n,), (len(self.parameters),), (len(self.forcings),)]
        return (
            PythonFunction(own.advance, 2, inputs, [(n,), (n, n), (n, self.n_noise)]),
            PythonFunction(own.observe, 1, inputs, [(m,), (m, n), (m,)]),
        )

    @cached_property
    def expressions(self) -> tuple[Callable[..., list[float]], bool]:
        """All expressions as one function of (time, states, parameters, forcings, extras); whether extras are used."""
        extra = self.definition.extra_names
        own = self.noise_sds or ()
        groups = [[self.time], self.states, self.parameters, self.forcings, extra]
        listed = [e for e in (*self.readings, *self.sds, *own)]
        function = scalar_function([[symbol(k) for k in g] for g in groups], listed)
        return function, bool(names_in(listed) & set(extra))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "expressions"}


class _ByDifferences:
    """The two functions."""

    def __init__(self, space: UntracedSpace) -> None:
        assert space.definition.function is not None, "a model without equations is a function"
        self._function = space.definition.function
        self._expressions, self._needs_extras = space.expressions
        self._m, self._k = len(space.readings), len(space.definition.parms)
        self._correlated = space.noise_sds is None
        q = space.n_noise
        self._factor_at = len(space.parameters) - 1 - (q * (q + 1) // 2 if self._correlated else 0)
        states, own = space.states, space.definition.parameters
        self._keys = [
            ("state", states.index(k)) if k in states else ("parameter", own.index(k)) for k in space.noise_keys
        ]
        self._n_extras = len(space.definition.extra_names)

    def advance(self, t: float, h: float, x: Vector, p: Vector, u: Vector, f: Vector, F: Matrix, A: Matrix) -> None:
        """Set f, F and A."""
        f[:] = self._rates(t, x, p, u)
        for j, d in enumerate(_widths(x)):
            up, down = x.copy(), x.copy()
            up[j] += d
            down[j] -= d
            F[:, j] = (self._rates(t, up, p, u) - self._rates(t, down, p, u)) / (up[j] - down[j])
        if not self._keys:
            return
        G = np.zeros((len(x), len(self._keys)))
        for column, (what, i) in enumerate(self._keys):
            if what == "state":
                G[i, column] = 1.0
                continue
            d = float(_widths(p[i : i + 1])[0])
            up, down = p.copy(), p.copy()
            up[i] += d
            down[i] -= d
            G[:, column] = (self._rates(t, x, up, u) - self._rates(t, x, down, u)) / (up[i] - down[i])
        if self._correlated:
            C = np.zeros((len(self._keys),) * 2)
            C[np.tril_indices(len(C))] = p[self._factor_at : -1]
            A[:, : len(C)] = p[-1] * (G @ C)
        else:
            A[:, : len(self._keys)] = p[-1] * G * self._values(t, x, p, u)[2 * self._m :]

    def observe(self, t: float, x: Vector, p: Vector, u: Vector, z: Vector, H: Matrix, sd: Vector) -> None:
        """Set z, H and sd."""
        values = self._values(t, x, p, u)
        z[:], sd[:] = values[: self._m], values[self._m : 2 * self._m]
        for j, d in enumerate(_widths(x)):
            up, down = x.copy(), x.copy()
            up[j] += d
            down[j] -= d
            difference = self._values(t, up, p, u)[: self._m] - self._values(t, down, p, u)[: self._m]
            H[:, j] = difference / (up[j] - down[j])

    def _rates(self, t: float, x: Vector, p: Vector, u: Vector) -> Vector:
        try:
            return self._function(t, x, p[: self._k], u)
        except ModelError:  # a mistake in the function, though it is a ValueError too
            raise
        except _NO_VALUE:
            return np.full(len(x), np.nan)

    def _values(self, t: float, x: Vector, p: Vector, u: Vector) -> Vector:
        try:
            extras = [0.0] * self._n_extras
            if self._needs_extras:
                extras = list(self._function.extras(t, x, p[: self._k], u).values())
            return np.array(self._expressions((t,), x.tolist(), p.tolist(), u.tolist(), extras), dtype=float)
        except ModelError:
            raise
        except _NO_VALUE:
            return np.full(2 * self._m + (0 if self._correlated else len(self._keys)), np.nan)


def _widths(x: Vector) -> Vector:
    """Return the steps of differences."""
    return _STEP * np.where(x == 0.0, 1.0, np.maximum(np.abs(x), 1e-3))
