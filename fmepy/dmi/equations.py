"""A system of modules as equations, where possible: a continuous `OdeModel`, or a `DifferenceModel` of its steps.

Statements are processed element by element, in the order of their dependencies. Small values of assigned variables are
substituted; a large one is a shared part (`language.nodes.Shared`), so that the work grows with the number of
statements. Levels and functions with a memory (`stateful_functions`) become states, constants become parameters, series
become forcings; tables become choices between straight lines.

The steps of the difference model are those of the modules; its states move by the rectangle rule, with the series and
the time of the row before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from fmepy.dmi.diagnostics import least_tau
from fmepy.dmi.evaluation_order import Graph, Layout, Piece
from fmepy.dmi.expressions import OWN
from fmepy.dmi.stateful_functions import Evaluation, FlatSystem
from fmepy.dmi.statements import DT, END, START, TIME, Elements, Reference, noise_of, reference_of
from fmepy.dmi.variables import ModuleSystem
from fmepy.errors import ModelError, listed
from fmepy.language.conditions import choose, relation
from fmepy.language.equations import Equations, symbol
from fmepy.language.nodes import ZERO, Node, Shared, Symbol, call, choose_above, in_order, number, shared, substituted
from fmepy.models.difference import DifferenceModel, whole_steps
from fmepy.models.ode import OdeModel
from fmepy.models.running.forcings import Forcing
from fmepy.types import Vector

Kind = Literal["ode", "difference"]
MOST_COPIED = 10
"""Largest number of terms and operators of a value that is substituted for its variable; see `nodes.Shared`."""


def as_model(
    system: ModuleSystem, kind: Kind, *, parms: Mapping[str, float], series: Mapping[str, Forcing], times: Any,
    dt: float, outputs: Sequence[str], method: str = "euler", noisy: Collection[str] = (),
) -> OdeModel | DifferenceModel:  # fmt: skip
    """Return a system as a model of equations.

    Parameters
    ----------
    system : ModuleSystem
    kind : {"ode", "difference"}
        Continuous, or by steps.
    parms : mapping of str to float
        Constants of the data base, element by element. The initial value of a level x in the data base becomes the
        parameter ``x(0)``.
    series : mapping of str to Forcing
        Time series, element by element.
    times : array_like
        Rows; the first is the start.
    dt : float
        The elementary step.
    outputs : sequence of str
        Variables whose elements are outputs, in addition to the levels, which are the states.
    method : {"euler", "rk4"}
        How levels move; a difference model has the rectangle rule only.
    noisy : collection of str
        Elements of assigned variables to which a constant of 0 is added, see `noise_of`.

    Raises
    ------
    ModelError
        The system has no level; or a loop, a lag, modules of different steps or in Python; rate, sample, pulse or dt in
        a continuous model; method "rk4" in a difference model.
    """
    _check(system, kind, method)
    times = np.asarray(times, dtype=float)
    source = _SystemData(system, kind, parms, series, times, float(dt), noisy)
    if kind == "difference":
        whole_steps(times, source.start, source.step)
    if not source.levels and not source.previous:
        raise ModelError(f'compiled("{kind}"): the system has no level, and so no state that moves.')
    now, first, names = _Values(source, at_start=False), _Values(source, at_start=True), source.layout.names
    state = {names[p]: first.of(p) for p in (*source.levels, *source.previous)}
    shapes = source.flat.shapes
    outside = [p for n in outputs for p in source.layout.span(Reference(n, shapes[n])) if names[p] not in state]
    extras, rates = [now.of(p) for p in outside], [now.of(p) for p in source.levels.values()]
    if kind == "ode":
        rates = [
            choose_above(symbol(names[p]), ZERO, e, call("max", e, ZERO)) if p in source.nonnegative else e
            for p, e in zip(source.levels, rates, strict=True)
        ]
    else:
        h = number(source.step)
        before = {name: f"{name} before" for name in series}
        past: dict[Node, Node] = {symbol(a): symbol(b) for a, b in before.items()}
        rates = [*source.next_levels(rates, now, h), *map(now.of, source.previous.values())]
        rates = substituted(rates, {**past, TIME: TIME - h})
        series = {
            name: Forcing(name, f.times + later, f.values, f.method)
            for k, f in series.items()
            for name, later in ((k, 0.0), (before[k], source.step))
        }
    used = {s.name for e in [*rates, *extras, *state.values()] for s in e.free_symbols}
    values = {k: v for k, v in source.parms.items() if k in used and k not in state}
    starts = {f"{names[p]}(0)": names[p] for p in source.outside}
    values |= {called: source.parms[name] for called, name in starts.items() if called in used}
    forcings = {k: f for k, f in series.items() if k in used}
    equations = Equations(
        kind, tuple(state), tuple(values), tuple(forcings), tuple(rates),
        tuple((names[p], e) for p, e in zip(outside, extras, strict=True)), "t",
    )  # fmt: skip
    if kind == "ode":
        return OdeModel(equations, state=state, times=times, parms=values, forcings=forcings)
    return DifferenceModel(equations, state=state, times=times, parms=values, forcings=forcings, dt=source.step)


def _check(system: ModuleSystem, kind: Kind, method: str) -> None:
    """Refuse methods and functions that equations cannot have."""
    word = f'compiled("{kind}")'
    system.check_one_step(word)
    if kind == "difference" and method != "euler":
        raise ModelError(f"{word} moves levels by the rectangle rule; this system has method={method!r}.")
    if called := system.call_of("lag", "delay_fixed", *(["rate", "sample", "pulse", "dt"] if kind == "ode" else [])):
        name, s = called
        raise ModelError(
            f"{word}: {name}{'(...)' * (name in OWN)} is not an equation of its time alone (module {s.module!r}, line "
            f"{s.line}). Run the system itself."
        )


class _SystemData:
    """The parts of a system from which equations are built.

    Attributes
    ----------
    levels : dict of int to int
        Places of levels, with those of their rates.
    previous : dict of int to int
        Places of values of the step before, with those that they are copied from.
    nonnegative : set of int
        Places of levels that stay at 0 or above.
    outside : set of int
        Places of variables with an initial value in the data base.
    noisy : set of int
        Places of assigned variables with a noise.
    """

    def __init__(
        self, system: ModuleSystem, kind: Kind, parms: Mapping[str, float], series: Mapping[str, Forcing],
        times: Vector, dt: float, noisy: Collection[str],
    ) -> None:  # fmt: skip
        self.flat = FlatSystem(system)
        for name, why in self.flat.python.items():
            raise ModelError(
                f'compiled("{kind}"): the module {name!r} is a Python function that cannot be written as equations: '
                f"{why}."
            )
        self.parms = {k: float(v) for k, v in parms.items()} | {noise_of(e): 0.0 for e in noisy}
        self.series, self.start, self.step = series, float(times[0]), system.modules[0].step * dt
        # a continuous model has no grid of times that could be missed
        ends = {START: number(self.start), END: number(float(times[-1]))}
        self.fixed = {DT: number(dt if kind == "difference" else 0.0)} | ends
        self.layout = Layout(self.flat.shapes)
        span = self.layout.span
        self.levels = {x: dx for v in self.flat.levels for x, dx in zip(span(v.target), span(v.rate), strict=True)}
        self.nonnegative = {self.layout.begin[v.target.name] + i for v in self.flat.levels for i in v.nonnegative}
        self.previous = {to: x for k in self.flat.previous for to, x in zip(span(k.to), span(k.value), strict=True)}
        self.noisy = {self.layout.place[e] for e in noisy}
        variables = system.variables.values()
        self.outside = {self.layout.begin[v.name] + i for v in variables for i, out in enumerate(v.outside) if out}

    def next_levels(self, rates: list[Node], now: _Values, h: Node) -> list[Node]:
        """Return the levels one step later; those of smooths and delays are NaN where tau is too short."""
        shortest: dict[int, Node] = {}
        for d in self.flat.delays:
            taus, levels = self.layout.span(d.tau), self.layout.span(Reference(d.level, self.flat.shapes[d.level]))
            for i, place in enumerate(levels):
                shortest[place] = now.of(taus[i if len(taus) > 1 else 0]) - least_tau(d.order, self.step)
        out = []
        for place, rate in zip(self.levels, rates, strict=True):
            value = symbol(self.layout.names[place]) + h * rate
            if place in self.nonnegative:
                value = call("max", value, ZERO)
            if (more := shortest.get(place)) is not None:  # the root of a negative number is NaN: the run fails
                value = choose(relation(">=", more, ZERO), value, call("sqrt", more))
            out.append(value)
        return out

    def external_value(self, place: int, at_start: bool) -> Node:
        """Return the expression of a value that no statement assigns."""
        name = self.layout.names[place]
        if place in self.outside and at_start:
            if name not in self.parms:
                raise ModelError(
                    f"{name!r} has no value at the start: neither {name}(0) = ... nor one in the data base."
                )
            return symbol(f"{name}(0)")
        if name in self.series:
            return number(float(self.series[name].at(self.start))) if at_start else symbol(name)
        if name in self.parms or (place in self.levels and not at_start):
            return symbol(name)
        if place in self.levels:  # declared endogenous
            return ZERO
        raise ModelError(f"{name!r} has no value: no statement gives it one, nor does the data base.")


class _Values(Elements):
    """The values of all elements as expressions of states, time, series and parameters; at the start of parameters."""

    def __init__(self, source: _SystemData, at_start: bool) -> None:
        super().__init__(source.flat.shapes)
        self._source, self._at_start = source, at_start
        self._states: dict[int, Node] = {p: symbol(source.layout.names[p]) for p in (*source.levels, *source.previous)}
        self._known = {} if at_start else dict(self._states)
        evaluations, graph = source.flat.evaluations, Graph(source.flat.evaluations, source.layout, frozenset())
        pieces: list[Piece] = []
        for evaluation, whole in zip(evaluations, graph.whole, strict=True):
            if evaluation.kind != "initial":
                pieces.append(whole)
            elif at_start:  # those of assigned variables are first guesses of loops, which are refused
                at = zip(graph.written(whole), evaluation.target.positions, strict=True)
                pieces += [Piece(whole.evaluation, i, i + 1) for place, i in at if place in self._states]
        for block in graph.blocks(pieces):
            if block.is_loop:
                names = dict.fromkeys(evaluations[p.evaluation].target.name for p in block.pieces)
                raise ModelError(
                    f"compiled(): {listed(list(names))} need one another{' at the start' if at_start else ''}: a loop "
                    "is not an equation. Break it with a level, or run the system itself."
                )
            for piece in block.pieces:
                self._add(evaluations[piece.evaluation], piece, graph.written(piece))

    def _add(self, evaluation: Evaluation, piece: Piece, places: Sequence[int]) -> None:
        """Compute a piece of an evaluation."""
        assert evaluation.value is not None
        for i, place in zip(range(piece.first, piece.last), places, strict=True):
            value = self.at(evaluation.value, i)
            if place in self._source.noisy and not self._at_start:
                value = value + symbol(noise_of(self._source.layout.names[place]))
            size = len(in_order([value], lambda e: isinstance(e, Shared)))
            self._known[place], _ = shared(self._source.layout.names[place], value, size, MOST_COPIED)

    def element(self, e: Symbol, i: int) -> Node:
        """Return the value of a variable at an element."""
        if e is TIME:
            return number(self._source.start) if self._at_start else TIME
        if e.name in self._source.fixed:
            return self._source.fixed[e.name]
        places = self._source.layout.span(reference_of(e, self._source.flat.shapes))
        return self.of(places[i if len(places) > 1 else 0])

    def of(self, place: int) -> Node:
        """Return the value in a place."""
        if place not in self._known:
            self._known[place] = self._source.external_value(place, self._at_start)
        return self._known[place]
