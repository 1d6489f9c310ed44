"""What an engine is handed: z' = F(t, z, inputs), as a system of equations or as any callable."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from fmepy.expressions.equations import Equations
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.algebraic import Constraints
from fmepy.models.running.root_run import RootTable
from fmepy.models.running.system import InputLayout, System, build_system, system_rates, watched_functions
from fmepy.numerics.structure import FEW, Structure, found_structure
from fmepy.types import Vector

RatesOf = Callable[[float, Any, Any], Any]
"""F(t, z, inputs) -> rates of z; z is an ndarray, inputs a list of floats."""


class Problem:
    """A first-order system of differential equations.

    Attributes
    ----------
    system : System or None
        Where there are equations; its conditions are taken out as modes.
    layout : InputLayout
        Where things lie in the inputs; behind them stand the offsets of the watched switches.
    blocks : int
        z is that many times the states: themselves, and their derivatives with respect to each parameter asked for.
    """

    def __init__(self, definition: Definition, system: System | None) -> None:
        self._definition, self._function = definition, definition.function
        self.system = system
        self.blocks = 1 if system is None else 1 + len(system.names)
        self.layout = InputLayout(len(definition.parms), len(definition.forcings)) if system is None else system.layout

    @cached_property
    def constraints(self) -> Constraints | None:
        """The algebraic equations; None where every state has a rate."""
        return Constraints(self._definition, self.system, self.layout) if self._definition.algebraic else None

    @cached_property
    def rates(self) -> RatesOf:
        """F(t, z, inputs) in Python, that of an ordinary system: algebraic states are solved for."""
        layout = self.layout
        if self.constraints is not None:
            return self.constraints.rates
        if self.system is not None:
            compiled, size = system_rates(self.system), layout.size
            return lambda t, z, inputs: compiled(t, z.tolist(), inputs[:size])
        function, n = self._function, layout.n_parameters
        assert function is not None, "a definition has equations or a function"
        if not layout.n_forcings:
            return _of_run(function, n)
        return lambda t, z, inputs: function(t, z, inputs[:n], layout.forcing_values(t, inputs))

    @cached_property
    def structure(self) -> Structure | None:
        """Which rates of a function depend on which states, found by trying; None of equations and algebraic states."""
        d, function = self._definition, self._function
        if self.system is not None or function is None or len(d.states) <= FEW or d.algebraic:
            return None
        p = d.parms.to_numpy(dtype=float).tolist()
        without = [0.0] * self.layout.n_forcings

        def rates(y: Any) -> Any:
            return function(0.0, y, p, without)

        try:
            with np.errstate(all="ignore"):
                return found_structure(rates, ValueTable(d.initial, d.parameters).value(p))
        except Exception:  # it is asked what it may not be made for, such as another time; it runs without
            return None

    @property
    def n_watched(self) -> int:
        """How many conditions and roots end a stretch where they change their sign."""
        return len(self._definition.roots) if self.system is None else self.system.n_watched

    @cached_property
    def roots(self) -> RootTable | None:
        """The root events; None if there are none."""
        if self.system is not None and self.system.roots:
            return RootTable(self.system)
        return roots_around(self._definition)

    @cached_property
    def watched(self) -> RatesOf:
        """The conditions, less their offsets, in Python: (t, list of z, inputs) -> values that cross zero."""
        system, roots, size = self.system, self.roots, self.layout.size
        watched = () if system is None else system.watched
        g = watched_functions(system) if system is not None and watched else None

        def values(t: float, z: Any, inputs: Any) -> Any:
            all_of_them = g(t, z, inputs[:size]) if g is not None else ()
            found = [all_of_them[i] for i in watched]
            if roots is not None:
                found += roots.values(t, z, inputs)
            return [v - offset for v, offset in zip(found, inputs[size:], strict=True)]

        return values


def _of_run(function: RatesFunction, n: int) -> RatesOf:
    """Return F(t, z, inputs) of a function without forcings; what belongs to the inputs is made once a run."""
    last: tuple[Any, Any] = None, None

    def rates(t: float, z: Any, inputs: Any) -> Any:
        nonlocal last
        if inputs is not last[0]:
            last = inputs, function.of(inputs[:n])
        return last[1](t, z)

    return rates


def roots_around(definition: Definition) -> RootTable | None:
    """Return the root events of a model, whatever its rates are; None if there are none."""
    from sympy import S

    d = definition
    if not d.roots:
        return None
    names = (d.states, d.parameters, tuple(f.name for f in d.forcings))
    system = build_system(Equations("ode", *names, (S.Zero,) * len(d.states), (), d.time), (), True, roots=d.roots)
    layout = system.layout

    def extras(t: float, y: Vector, inputs: Any) -> list[float]:
        assert d.function is not None, "only functions have extra outputs without equations"
        found = d.function.extras(
            t, y, *map(np.array, (inputs[: layout.n_parameters], layout.forcing_values(t, inputs)))
        )
        return [found[k] for k in d.extra_names]

    return RootTable(system, d.extra_names, extras)


def problem_of(definition: Definition, names: tuple[str, ...], watches_switches: bool) -> Problem | None:
    """Return the problem with sensitivities for `names`, or None if an engine of that ability cannot give these."""
    if definition.equations is None:
        return None if names else Problem(definition, None)
    system = build_system(definition.equations, names, True, roots=definition.roots)
    if system.watched and not watches_switches:  # it goes through them as through anything else
        if names:
            return None
        system = build_system(definition.equations, (), True, True, definition.roots)
    return Problem(definition, system)
