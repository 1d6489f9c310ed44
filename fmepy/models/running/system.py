"""Equations -> a first-order system with run-time inputs, ready for an engine.

A `System` is what engines compile. Its state vector z holds the model's states y and, if sensitivities are wanted,
their scaled derivatives, one block of n_state for each parameter::

    z = [y, s_1, ..., s_k]        s_j = k_j dy/dp_j        s_j' = (df/dy) s_j + k_j df/dp_j

(the variational equations; the scale k_j = |p_j| makes one absolute tolerance fit states and sensitivities alike).
Whatever may change from run to run is an *input* of the compiled system and never a constant in it: all parameters,
the present line of every forcing, the modes of the switches, the scales, and the initial z. So a change of numbers
never recompiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.language.derivatives import derivative, derivatives_of, entries_of, gradients
from fmepy.language.equations import Equations, symbol, symbols
from fmepy.language.nodes import ZERO, Mode, add, nodes_in, substituted
from fmepy.models.running.events import Root
from fmepy.models.running.switches import Switch, take_out_switches
from fmepy.types import Cube, Matrix, Vector


class InputLayout:
    """Where things lie in the inputs: parameters, forcing lines (a, b each), their origin, modes, scales, lags.

    Attributes
    ----------
    n_parameters, n_forcings : int
    lines : slice
        The lines of the forcings: a1, b1, a2, b2, ...
    origin : int
        The time at which the lines start.
    modes, scales : slice
        The modes of the switches; the scales of the sensitivities.
    lags : slice
        The lagged values, and behind them what each adds to the sensitivities to every parameter.
    size : int
        Length of the input vector.
    """

    def __init__(
        self, n_parameters: int, n_forcings: int, n_modes: int = 0, n_scales: int = 0, n_delays: int = 0
    ) -> None:
        self.n_parameters, self.n_forcings = n_parameters, n_forcings
        self.origin = n_parameters + 2 * n_forcings
        self.lines = slice(n_parameters, self.origin)
        self.modes = slice(self.origin + 1, self.origin + 1 + n_modes)
        self.scales = slice(self.modes.stop, self.modes.stop + n_scales)
        self.size: int = self.scales.stop + n_delays * (1 + n_scales)
        self.lags = slice(self.scales.stop, self.size)

    def forcing_values(self, t: float, inputs: Any) -> list[float]:
        """Return the forcings at `t` from their present lines."""
        s, after = self.lines.start, t - inputs[self.origin]
        return [inputs[s + 2 * i] + inputs[s + 2 * i + 1] * after for i in range(self.n_forcings)]

    def inputs_at(self, p: Vector, scales: Vector | None, u: Sequence[float]) -> list[float]:
        """Return the inputs by the values of the forcings at one time."""
        inputs = np.zeros(self.size)
        inputs[: len(p)] = p
        inputs[self.lines] = [c for v in u for c in (v, 0.0)]
        if scales is not None:
            inputs[self.scales] = scales
        plain: list[float] = inputs.tolist()
        return plain


@dataclass(frozen=True, slots=True)
class StateLag:
    """A lag of one state.

    Attributes
    ----------
    state : int
    tau : Node
        Of parameters, and of time and states where it varies.
    node : Lag
        What stands in the equations.
    """

    state: int
    tau: Any
    node: Any


@lru_cache(maxsize=64)
def delays_of(equations: Equations) -> tuple[StateLag, ...]:
    """Return the lags that rates and outputs read, each once."""
    found = nodes_in([*equations.rates, *(e for _, e in equations.outputs)], "lag")
    places = {symbol(s): i for i, s in enumerate(equations.states)}
    return tuple(StateLag(places[node.args[0]], node.args[1], node) for node in found)  # type: ignore[index]


@dataclass(frozen=True, eq=False)
class System:
    """A first-order system z' = F(t, z; inputs).

    Attributes
    ----------
    n_states : int
        States of the model; z has ``n_states * (1 + n_sens)`` entries.
    names : tuple of str
        Parameters with sensitivities.
    time, z, inputs : symbols
    model_rates : tuple of Node
        The first n_states entries of F, which are those of the model.
    switches : tuple of Switch
        What was taken out of the rates as modes; inner conditions before outer ones.
    planned : tuple of int
        Those whose crossings are known beforehand, by position; see `models.running.time_switches`.
    layout : InputLayout
    algebraic : tuple of int
        States whose entry in the rates is zero at every time; of these F holds what is to be zero.
    delays : tuple of StateLag
        Lags of states; in the rates `inputs` stand in their place.
    roots : tuple of Root
        The root events, in whose expressions forcings are lines.
    """

    n_states: int
    names: tuple[str, ...]
    time: Any
    z: tuple[Any, ...]
    inputs: tuple[Any, ...]
    model_rates: tuple[Any, ...]
    switches: tuple[Switch, ...]
    planned: tuple[int, ...]
    layout: InputLayout
    algebraic: tuple[int, ...] = ()
    delays: tuple[StateLag, ...] = ()
    roots: tuple[Root, ...] = ()

    @property
    def lags(self) -> dict[Any, Any]:
        """What stands in the place of each lag."""
        return dict(zip((d.node for d in self.delays), self.inputs[self.layout.lags], strict=False))

    @property
    def varying_delays(self) -> tuple[bool, ...]:
        """Of each delay, whether it changes in a run, with the time or states."""
        known = set(self.inputs[: self.layout.n_parameters])
        return tuple(not d.tau.free_symbols <= known for d in self.delays)

    @cached_property
    def watched(self) -> tuple[int, ...]:
        """Positions of the switches that must be watched along the run."""
        return tuple(i for i in range(len(self.switches)) if i not in self.planned)

    @cached_property
    def are_levels(self) -> Vector:
        """Of each of them, whether it is a floor."""
        return np.array([self.switches[i].is_level for i in self.watched], dtype=bool)

    @cached_property
    def are_of_time(self) -> tuple[bool, ...]:
        """Of each switch, whether it is a condition of time, parameters and modes alone."""
        known = {self.time, *self.inputs[: self.layout.n_parameters]}
        return tuple(_is_known(w.g, known) for w in self.switches)

    @cached_property
    def read_again(self) -> tuple[int, ...]:
        """Positions of the watched switches whose modes are read again where a stretch begins.

        What is of time alone goes on, and if it crosses there, it does so right behind it, as anywhere. But what hangs
        on a planned mode may jump.
        """
        planned = {j for i in self.planned for j in self.dependents[i]}
        return tuple(i for i in self.watched if i in planned or not self.are_of_time[i])

    @property
    def watched_expressions(self) -> tuple[Any, ...]:
        """All that ends a stretch where it crosses zero: the watched switches, then the roots."""
        return (*(self.switches[i].watched for i in self.watched), *(r.g for r in self.roots))

    @property
    def n_watched(self) -> int:
        """How many of them there are."""
        return len(self.watched) + len(self.roots)

    @cached_property
    def dependents(self) -> tuple[tuple[int, ...], ...]:
        """For every switch the later ones in whose condition its mode stands, directly or through others."""
        read = [{s for s in w.g.free_symbols if isinstance(s, Mode)} for w in self.switches]
        out: list[tuple[int, ...]] = []
        for i in range(len(self.switches)):
            changed, found = {self.switches[i].mode}, []
            for j in range(i + 1, len(self.switches)):
                if changed & read[j]:
                    changed.add(self.switches[j].mode)
                    found.append(j)
            out.append(tuple(found))
        return tuple(out)


@lru_cache(maxsize=64)
def build_system(
    equations: Equations,
    names: tuple[str, ...],
    smooth: bool,
    planned_only: bool = False,
    roots: tuple[Root, ...] = (),
    watches_lines: bool = False,
) -> System:
    """Return the system of a model, with sensitivities for `names`.

    Parameters
    ----------
    smooth : bool
        Take conditions out as modes, or leave them in the rates.
    planned_only : bool
        Take out those alone whose crossings are known beforehand.
    roots : tuple of Root
        The root events of the model.
    watches_lines : bool
        Watch also what crosses at times that depend on parameters, where it is a straight line in time, so that whole
        runs need to know no plan; of a system without delays and algebraic states.
    """
    time = symbol(equations.time)
    y = [symbol(s) for s in equations.states]
    p = [symbol(s) for s in equations.parameters]
    a = [symbol(f"line{i}a") for i in range(len(equations.forcings))]
    b = [symbol(f"line{i}b") for i in range(len(equations.forcings))]
    origin = symbol("origin of lines")
    lines = {symbol(f): a[i] + b[i] * (time - origin) for i, f in enumerate(equations.forcings)}
    delays = delays_of(equations)
    lagged = {d.node: symbol(f"lag {i}") for i, d in enumerate(delays)}
    rates = substituted(equations.rates, {**lagged, **lines})
    switches: tuple[Switch, ...] = ()
    known = {time, *p}
    if smooth:
        smoothed, switches = take_out_switches(rates, (lambda g: _is_known(g, known)) if planned_only else _any)
        rates = list(smoothed)
    scales = [symbol(f"scale of {n}") for n in names]
    z = [*y, *(symbol(f"{state} to {name}") for name in names for state in equations.states)]
    inputs = [*p, *(c for pair in zip(a, b, strict=True) for c in pair), origin, *(w.mode for w in switches), *scales]
    inputs += [*lagged.values(), *(symbol(f"{k} to {n}") for n in names for k in lagged.values())]
    layout = InputLayout(len(p), len(a), len(switches), len(scales), len(delays))
    planned, watches_lines = [], watches_lines and not (delays or equations.algebraic)
    for i, w in enumerate(switches):
        moves = planned_only or not w.g.free_symbols <= {*p}  # what never crosses is read where a run begins
        is_watched = watches_lines and not w.g.free_symbols.isdisjoint(p) and is_line(w.g, time)
        if w.g.free_symbols <= known and moves and not is_watched:
            planned.append(i)
            known.add(w.mode)
    algebraic = tuple(equations.states.index(s) for s in equations.algebraic)
    held = tuple(r.mapped(lambda e: e.subs(lines)) for r in roots)
    parts = len(y), names, time, tuple(z), tuple(inputs), tuple(rates), switches, tuple(planned)
    return System(*parts, layout, algebraic, delays, held)


def is_line(g: Any, time: Any) -> bool:
    """Tell whether g is a straight line in time."""
    return time not in derivative(g, time).free_symbols


def _any(g: Any) -> bool:
    return True


def _is_known(g: Any, known: set[Any]) -> bool:
    """Tell whether g depends on time, parameters and modes alone (of which there are planned ones only)."""
    return all(s in known or isinstance(s, Mode) for s in g.free_symbols)


def along(f: Any, y: Sequence[Any], s: Sequence[Any]) -> Any:
    """Return (df/dy) s."""
    (gradient,) = gradients([f], y)
    return add(ZERO, *(gradient[yi] * si for yi, si in zip(y, s, strict=True) if yi in gradient))


def scales_of(p: Vector) -> Vector:
    """Return the scales of sensitivities to parameters of these values: their sizes, 1 for a zero."""
    scales = np.abs(p)
    scales[scales == 0] = 1.0
    return scales


@lru_cache(maxsize=64)
def system_rates(system: System) -> Callable[[float, Any, Any], list[float]]:
    """Return F(t, z, inputs) on plain numbers: the rates of the model, and below them those of its sensitivities."""
    n, out = system.n_states, list(system.model_rates)
    found = gradients(out, [*system.z[:n], *map(symbol, system.names)]) if system.names else []
    for j, (name, scale) in enumerate(zip(system.names, system.inputs[system.layout.scales], strict=True), start=1):
        s = system.z[j * n : (j + 1) * n]
        for g in found:
            terms = [g[yi] * si for yi, si in zip(system.z[:n], s, strict=True) if yi in g]
            out.append(add(ZERO, *terms, scale * g.get(symbol(name), ZERO)))
    function = scalar_function([[system.time], system.z, system.inputs], out)
    return lambda t, z, inputs: function((t,), z, inputs)


def with_slopes(system: System, expressions: Sequence[Any]) -> list[Any]:
    """Return of every expression itself and its derivatives to the time, the states and (scaled) the parameters."""
    scaled = zip(system.names, system.inputs[system.layout.scales], strict=True)
    columns = [
        list(expressions),
        *(derivatives_of(expressions, s) for s in (system.time, *system.z[: system.n_states])),
    ]
    columns += [[scale * d for d in derivatives_of(expressions, symbol(name))] for name, scale in scaled]
    return [d for row in zip(*columns, strict=True) for d in row]


@dataclass(frozen=True, slots=True, eq=False)
class OutputFunctions:
    """Named functions of the states, on arrays: values and derivatives.

    Attributes
    ----------
    values : callable
        ``values(t, Y, p, U) -> list``, one entry an output (numbers or arrays of n_time).
    derivatives : callable or None
        The same for the derivatives that are not zero everywhere, told by `of_states` and `of_parameters`.
    of_states, of_parameters : tuple of (int, int)
        Output and state, output and parameter, in the order of `derivatives` (states first).
    n : int
    """

    values: Callable[..., list[Any]]
    derivatives: Callable[..., list[Any]] | None
    of_states: tuple[tuple[int, int], ...]
    of_parameters: tuple[tuple[int, int], ...]
    n: int

    def beside(self, t: Vector, Y: Matrix, p: Any, U: Matrix) -> Matrix:
        """Return the states and beside them the outputs, shape (n_time, n_state + n_out)."""
        n = Y.shape[1]
        out = np.empty((len(t), n + self.n))
        out[:, :n] = Y
        for i, column in enumerate(self.values((t,), Y.T, p, U), n):
            out[:, i] = column
        return out

    def sensitivities_beside(self, t: Vector, Y: Matrix, S: Cube, p: Any, U: Matrix) -> Cube:
        """Return S of states and outputs by the chain rule, shape (n_time, n_state + n_out, n_par)."""
        assert self.derivatives is not None, "outputs were built without derivatives"
        n = Y.shape[1]
        out = np.zeros((len(t), n + self.n, S.shape[2]))
        out[:, :n] = S
        columns = self.derivatives((t,), Y.T, p, U)
        for (i, k), column in zip(self.of_states, columns, strict=False):
            out[:, n + i] += np.reshape(column, (-1, 1)) * S[:, k]
        for (i, j), column in zip(self.of_parameters, columns[len(self.of_states) :], strict=True):
            out[:, n + i, j] += column
        return out


@lru_cache(maxsize=64)
def build_outputs(
    names_of: tuple[tuple[str, ...], ...], outputs: tuple[tuple[str, Any], ...], names: tuple[str, ...] | None
) -> OutputFunctions:
    """Return outputs as array functions; `names` are the parameters to take derivatives for (None: no derivatives).

    names_of : the names of the time, of the columns, of parameters and of forcings
    """
    groups, expressions = symbols(*names_of), [e for _, e in outputs]
    values = array_function(groups, expressions)
    if names is None:
        return OutputFunctions(values, None, (), (), len(expressions))
    of_states, of_parameters = entries_of(expressions, groups[1]), entries_of(expressions, [symbol(k) for k in names])
    slopes = array_function(groups, [e for _, _, e in (*of_states, *of_parameters)])
    places = [tuple((i, k) for i, k, _ in entries) for entries in (of_states, of_parameters)]
    return OutputFunctions(values, slopes, places[0], places[1], len(expressions))
