"""What an engine is handed: z' = F(t, z, inputs), as a system of equations or as any callable.

Vector functions may be compiled as loops over arrays. The sensitivities stand behind the states, z = [y, s_1, ...,
s_k], as in `running.system`. Their rates are derivatives
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
from functools import cached_property, lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.compiled.array_code import ArrayCode
from fmepy.language.arrays import ArrayProgram
from fmepy.language.equations import Equations
from fmepy.language.functions import holds_choices, holds_jumps
from fmepy.language.nodes import TABLE, ZERO, Node, in_order
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.algebraic import Constraints
from fmepy.models.running.system import InputLayout, System, build_system, system_rates
from fmepy.models.running.time_switches import plans_depend_on_parameters
from fmepy.models.running.watch_table import WatchTable, watch_table
from fmepy.numerics.structure import FEW, Structure, found_structure
from fmepy.types import Matrix, Vector

if TYPE_CHECKING:
    from fmepy.models.engines.base import Engine

RatesOf = Callable[[float, Any, Any], Any]
"""F(t, z, inputs) -> rates of z; z is an ndarray, inputs a list of floats."""


class InitialValueProblem:
    """A first-order system of differential equations.

    Attributes
    ----------
    system : System or None
        Where there are equations; its conditions are taken out as modes.
    names : tuple of str
        Parameters with sensitivities (empty: none).
    layout : InputLayout
        Where things lie in the inputs; behind them stand the offsets of the watched switches.
    blocks : int
        z is that many times the states: themselves, and their derivatives with respect to each parameter asked for.
    """

    def __init__(self, definition: Definition, system: System | None, names: tuple[str, ...] = ()) -> None:
        self.definition, self.system, self.names, self.blocks = definition, system, names, 1 + len(names)
        own = InputLayout(len(definition.parms), len(definition.forcings), n_scales=len(names))
        self.layout = own if system is None else system.layout
        self._run: tuple[Any, tuple[ArraysAt | None, RatesOf]] | None = None

    @cached_property
    def constraints(self) -> Constraints | None:
        """The algebraic equations; None where every state has a rate."""
        return Constraints(self.definition, self.system, self.layout) if self.definition.algebraic else None

    @cached_property
    def rates(self) -> RatesOf:
        """F(t, z, inputs) in Python, that of an ordinary system: algebraic states are solved for."""
        layout = self.layout
        if self.constraints is not None:
            return self.constraints.rates
        if self.system is not None:
            compiled, size = system_rates(self.system), layout.size
            return lambda t, z, inputs: compiled(t, z.tolist(), inputs[:size])
        at = self._at_run
        if not layout.n_forcings:
            return lambda t, z, inputs: at(inputs)[1](t, z, ())
        return lambda t, z, inputs: at(inputs)[1](t, z, layout.forcing_values(t, inputs))

    def rates_of(self, inputs: Vector) -> Callable[[float, Vector], Any]:
        """Return F(t, z) by what the inputs of a run are when it is asked."""
        size = self.layout.size
        return lambda t, z: self.rates(t, z, inputs[:size].tolist())

    def _at_run(self, inputs: Any) -> tuple[ArraysAt | None, RatesOf]:
        """Return what belongs to the inputs of a run, made when the first of its rates are asked for."""
        if self._run is None or self._run[0] is not inputs:
            self._run = inputs, self._rates_at(inputs)
        return self._run[1]

    def _rates_at(self, inputs: Any) -> tuple[ArraysAt | None, RatesOf]:
        """Return a function's F(t, z, forcings) in a run: as loops over arrays, where there are such, or as it is."""
        d, layout, function = self.definition, self.layout, self.definition.function
        assert function is not None, "a definition has equations or a function"
        p = inputs[: layout.n_parameters]
        plain = function.of(p) if not d.forcings else None

        def as_it_is(t: float, z: Vector, u: Any) -> Any:
            return function(t, z, p, u) if plain is None else plain(t, z)

        if d.arrays is None or d.algebraic:
            return None, as_it_is
        arrays = ArraysAt(d.arrays, p, [d.parameters.index(k) for k in self.names], inputs[layout.scales])
        n, compiled = arrays.n, arrays.all_rates if self.names else arrays.rates

        def rates(t: float, z: Vector, u: Any) -> Any:
            out = compiled(t, z, u)
            if out is not None and isfinite(out.dot(out)):
                return out
            own = as_it_is(t, z[:n], u)  # it says what is wrong there
            return np.concatenate([own, np.full(len(z) - n, np.nan) if out is None else out[n:]])

        return arrays, rates

    @property
    def jacobian(self) -> RatesOf | None:
        """(t, states, inputs) -> entries of df/dy in the order of `structure`, where sensitivities ask for it."""
        if not self.names or self.system is not None:
            return None
        at, layout = self._at_run, self.layout
        return lambda t, y, inputs: at(inputs)[0].jacobian(t, y, layout.forcing_values(t, inputs))  # type: ignore[union-attr]

    @cached_property
    def structure(self) -> Structure | None:
        """Which rates of a function depend on which states; None of equations and algebraic states.

        It is known of what is compiled as loops over arrays, else found by trying.
        """
        d, function = self.definition, self.definition.function
        if self.system is not None or function is None or len(d.states) <= FEW or d.algebraic:
            return None
        if d.arrays is not None:
            return code_of(d.arrays).structure
        p = d.parms.to_numpy(dtype=float).tolist()
        without = [0.0] * self.layout.n_forcings
        try:
            with np.errstate(all="ignore"):
                return found_structure(
                    lambda y: function(0.0, y, p, without), ValueTable(d.initial, d.parameters).value(p)
                )
        except Exception:  # it is asked what it may not be made for, such as another time; it runs without
            return None

    @property
    def n_watched(self) -> int:
        """How many conditions and roots end a stretch where they change their sign."""
        return len(self.definition.roots) if self.system is None else self.system.n_watched

    @cached_property
    def watch_table(self) -> WatchTable | None:
        """The conditions and the roots of events; None if there are none."""
        d, system = self.definition, self.system
        if d.roots and system is None:  # whatever the rates are
            nothing = Equations("ode", d.states, d.parameters, d.forcing_names, (ZERO,) * len(d.states), (), d.time)
            system = build_system(nothing, (), True, roots=d.roots)
        if system is None or not (system.switches or system.roots):
            return None
        return watch_table(system, d.function, d.extra_names)

    @cached_property
    def watched(self) -> RatesOf:
        """What is watched, less its offsets, in Python: (t, list of z, inputs) -> values that cross zero."""
        table, size = self.watch_table, self.layout.size
        if table is None:
            return lambda t, z, inputs: []
        return lambda t, z, inputs: [v - o for v, o in zip(table.values(t, z, inputs), inputs[size:], strict=True)]


MOST_DENSE = 100
"""States of a model of which every rate depends on most: beyond, differences of runs take less than sensitivities."""


def has_slopes(definition: Definition) -> bool:
    """Tell whether the derivatives of a function are known, and enough for its sensitivities."""
    d = definition
    if d.arrays is None or d.roots or d.algebraic or d.arrays.jumps:
        return False
    return len(d.states) <= MOST_DENSE or not code_of(d.arrays).structure.is_dense


def problem_of(definition: Definition, names: tuple[str, ...], engine: Engine) -> InitialValueProblem | None:
    """Return the problem with sensitivities for `names`, or None if an engine cannot give these."""
    d, equations = definition, definition.equations
    if names and d.roots and engine.steps:
        return None  # with steps of a fixed length, that of a step that a root cuts moves with the parameters too
    if equations is None:
        return None if names and not has_slopes(d) else InitialValueProblem(d, None, names)
    if engine.steps:  # its rates hold their conditions
        return InitialValueProblem(d, build_system(equations, names, False, roots=d.roots), names)
    system = build_system(equations, names, True, roots=d.roots, watches_lines=engine.needs_equations)
    across = bool(system.watched) and (d.has_delays or not engine.watches_switches)
    if across:  # it goes through conditions as through anything else
        if names and not d.has_delays:
            return None
        system = build_system(equations, names, True, True, d.roots)
    if names and d.has_delays:
        varying = any(system.varying_delays) and (d.events or d.roots or any(h is not None for h in d.history))
        past = [h for h in d.past if isinstance(h, Node)]
        moves = varying or plans_depend_on_parameters(system) or holds_choices(past)
        if moves or (across and holds_jumps(equations.rates)):  # which conditions that it goes across may cause
            return None
    elif names and any(
        e.word in TABLE and TABLE[e.word].jumps and e.word != "where" for e in in_order(system.model_rates)
    ):
        return None  # a function that jumps and was not taken out: where it does, sensitivities would not
    return InitialValueProblem(d, system, names)


# --- functions that are loops over arrays


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
        self.n, self.m, self._series = arrays.n_states, len(places), arrays.series
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
        if len(self._u):
            self._u[:] = u if len(u) == len(self._u) else [*u, *(s.at(t) for s in self._series)]
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
