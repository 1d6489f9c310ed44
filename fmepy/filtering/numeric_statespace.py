"""Models without equations (an `if` on a state, a loop, a foreign library): a filter's functions by differences.

The user's function is called as it is; with e_j the unit vectors and eps the rounding of a number::

    F e_j = (f(x + d_j e_j) - f(x - d_j e_j)) / (2 d_j)         d_j = eps^(1/3) |x_j|, of zeros eps^(1/3)

H and G likewise. The sds of the noise and the readings are expressions of states, parameters, forcings, time and of
what else the function returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError, SimulationError
from fmepy.filtering.statespace import INFLATION, PythonFunction
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
    """A model without equations, with noise; it has the attributes of `StateSpace` that filters use.

    Attributes
    ----------
    definition : Definition
    names : tuple of str
        Parameters: the model's, those of the noise.
    noise_keys : tuple of str
    noise_sds : tuple of Node, or None
        None: correlated.
    readings, sds : tuple of Node
    """

    definition: Definition
    names: tuple[str, ...]
    noise_keys: tuple[str, ...]
    noise_sds: tuple[Any, ...] | None
    readings: tuple[Any, ...]
    sds: tuple[Any, ...]
    is_traced: Literal[False] = field(default=False, init=False)
    is_linear: Literal[False] = field(default=False, init=False)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The order of p: the names, the factor's entries of a correlated noise, the inflation."""
        q = len(self.noise_keys) if self.noise_sds is None else 0
        return (*self.names, *(f"factor {a} {b}" for a in range(q) for b in range(a + 1)), INFLATION)

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

    def prepared(self, p: Vector) -> Vector:
        """Return the parameters: nothing of a function is known beforehand."""
        return p

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


class _ByDifferences:
    """The two functions."""

    def __init__(self, space: UntracedSpace) -> None:
        d, own = space.definition, space.noise_sds or ()
        assert d.function is not None, "a model without equations is a function"
        self._function, self._m, self._k = d.function, len(space.readings), len(d.parms)
        self._values = ValuesOfExpressions(d, space.parameters, (*space.readings, *space.sds, *own))
        self._correlated, self._factor_at = space.noise_sds is None, len(space.names)
        states = space.states
        self._keys = [("state", states.index(k)) if k in states else ("parameter", d.parameters.index(k))
                      for k in space.noise_keys]  # fmt: skip

    def advance(self, t: float, h: float, x: Vector, p: Vector, u: Vector, f: Vector, F: Matrix, A: Matrix) -> None:
        """Set f, F and A."""
        f[:] = self._rates(t, x, p, u)
        F[:] = differences(lambda y: self._rates(t, y, p, u), x)
        q = len(self._keys)
        if not q:
            return
        G = np.zeros((len(x), q))
        for column, (what, i) in enumerate(self._keys):
            if what == "state":
                G[i, column] = 1.0
            else:
                moved = partial(self._rates_at, i, t, x, p, u)
                G[:, column] = differences(moved, p[i : i + 1])[:, 0]
        if self._correlated:
            C = np.zeros((q, q))
            C[np.tril_indices(q)] = p[self._factor_at : -1]
            A[:, :q] = p[-1] * (G @ C)
        else:
            A[:, :q] = p[-1] * G * self._values(t, x, p, u)[2 * self._m :]

    def observe(self, t: float, x: Vector, p: Vector, u: Vector, z: Vector, H: Matrix, sd: Vector) -> None:
        """Set z, H and sd."""
        values = self._values(t, x, p, u)
        z[:], sd[:] = values[: self._m], values[self._m : 2 * self._m]
        H[:] = self._values.slopes(t, x, p, u)[: self._m]

    def _rates(self, t: float, x: Vector, p: Vector, u: Vector) -> Vector:
        try:
            return self._function(t, x, p[: self._k], u)
        except ModelError:  # a mistake in the function, though it is a ValueError too
            raise
        except _NO_VALUE:
            return np.full(len(x), np.nan)

    def _rates_at(self, i: int, t: float, x: Vector, p: Vector, u: Vector, value: Vector) -> Vector:
        """Return the rates with another value of parameter i."""
        moved = p.copy()
        moved[i] = value[0]
        return self._rates(t, x, moved, u)


class ValuesOfExpressions:
    """Expressions at a time, a state, parameters and forcings of a model without equations; NaN where there are none.

    Parameters
    ----------
    definition : Definition
    parameters : sequence of str
        The order of p, which begins with the model's own.
    expressions : sequence of Node
        Of the names of the model, its extra outputs among them.
    """

    def __init__(self, definition: Definition, parameters: Sequence[str], expressions: Sequence[Any]) -> None:
        d, extra = definition, definition.extra_names
        groups = [[d.time], d.states, parameters, [f.name for f in d.forcings], extra]
        self._at = scalar_function([[symbol(k) for k in g] for g in groups], list(expressions))
        self._user = d.function if names_in(expressions) & set(extra) else None
        self._n, self._k, self._no_extras = len(expressions), len(d.parms), [0.0] * len(extra)

    def __call__(self, t: float, x: Vector, p: Vector, u: Vector) -> Vector:
        """Return the values."""
        try:
            extras = self._no_extras
            if self._user is not None:
                extras = list(self._user.extras(t, x, p[: self._k], u).values())
            return np.array(self._at((t,), x.tolist(), p.tolist(), u.tolist(), extras), dtype=float)
        except ModelError:
            raise
        except _NO_VALUE:
            return np.full(self._n, np.nan)

    def slopes(self, t: float, x: Vector, p: Vector, u: Vector) -> Matrix:
        """Return their derivatives to the state."""
        return differences(lambda y: self(t, y, p, u), x)


def differences(function: Callable[[Vector], Vector], x: Vector) -> Matrix:
    """Return central differences of a function of a vector, a column for each of its entries."""
    columns = []
    for j, d in enumerate(_widths(x)):
        up, down = x.copy(), x.copy()
        up[j] += d
        down[j] -= d
        columns.append((function(up) - function(down)) / (up[j] - down[j]))
    return np.array(columns).T


def _widths(x: Vector) -> Vector:
    """Return the steps of differences."""
    return _STEP * np.where(x == 0.0, 1.0, np.maximum(np.abs(x), 1e-3))
