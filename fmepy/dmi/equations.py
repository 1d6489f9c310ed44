"""A system of modules as equations, where it allows it: a continuous `OdeModel`, or a `DifferenceModel` of its steps.

Statements become expressions element by element, in the order of their needs. Assigned variables are not put into one
another without end: what has grown large is kept as one shared part (`language.nodes.Shared`), so that the work
grows as the number of statements does. Levels become states, what remembers too (`memory`), constants parameters,
series forcings; tables become choices between straight lines, ``step`` a choice by time.

The difference model counts steps (`SteppedModel`): its row n is the system's time ``start + n h``, h being the step of
all modules; its states move by the rectangle rule, with the series and the time of the row before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from fmepy.dmi.delays import least_tau
from fmepy.dmi.memory import Work, as_work, rate_of
from fmepy.dmi.order import Graph, Layout, Piece
from fmepy.dmi.statements import DT, TIME, ArrayNode, ModuleStatement, Reference, Whole, element_names, reference_of
from fmepy.dmi.variables import System
from fmepy.errors import ModelError, check_choice, listed
from fmepy.language import conditions
from fmepy.language.equations import Equations, symbol
from fmepy.language.nodes import ONE, Node, Shared, Symbol, add, call, choose_above, in_order, number, shared
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from fmepy.models.running.forcings import Forcing

Kind = Literal["ode", "difference"]
MOST_COPIED = 10
"""Terms and operators of a variable's value up to which it is put in wherever its name stands; see `nodes.Shared`."""


def as_model(
    system: System,
    kind: Kind,
    *,
    parms: Mapping[str, float],
    series: Mapping[str, Any],
    times: Any,
    dt: float,
    outputs: Sequence[str],
    method: str = "euler",
) -> OdeModel | DifferenceModel:
    """Return a system as a model of equations.

    Parameters
    ----------
    system : System
    kind : {"ode", "difference"}
        Continuous, or by steps.
    parms : mapping of str to float
        What comes from outside and does not change, element by element. The initial value of a level x, where it comes
        from outside, becomes the parameter ``x(0)``.
    series : mapping of str to (times, values, interpolation)
        What changes, element by element.
    times : array_like
        Rows; the first is the start.
    dt : float
        The elementary step.
    outputs : sequence of str
        Variables whose elements are outputs, beside the levels, which are the states.
    method : {"euler", "rk4"}
        How levels move; a difference model has the rectangle rule alone.

    Raises
    ------
    ModelError
        What forbids it: no level, a loop, lag, rate, modules of different steps or in Python; pulse in a continuous
        model; "rk4" in one of steps.
    """
    check_choice(kind, ("ode", "difference"), "kind")
    _check(system, kind, method)
    times = np.asarray(times, dtype=float)
    step = system.modules[0].step * float(dt)
    start = float(times[0])
    made = _Maker(system, {name: float(v) for name, v in parms.items()}, _forcings(series), start, float(dt), kind)
    if kind == "ode":
        found = made.equations(kind, symbol("t"), {}, outputs, lambda x, f: f)
        e = found.equations
        return OdeModel(
            e, state=found.state, times=times, parms=found.parms,
            forcings={f.name: f for f in made.series.values() if f.name in found.equations.forcings},
        )  # fmt: skip
    n, h = symbol("n"), number(step)
    before = {name: f"{name} before" for name in made.series}
    found = made.equations(
        kind, number(start) + h * n, before, outputs, lambda x, f: x + h * f, number(start) + h * (n - ONE)
    )
    rows = np.rint((times - start) / step)
    off = np.flatnonzero(np.abs((times - start) / step - rows) > 1e-6)
    if len(off):
        raise ModelError(
            f'compiled("difference"): the time {times[off[0]]:g} lies between two steps of {step:g} from {start:g}.'
        )
    forcings = {}
    for name, f in made.series.items():
        knots = (f.times - start) / step
        for called, at in ((name, knots), (before[name], knots + 1)):
            if called in found.equations.forcings:
                forcings[called] = Forcing(called, at, f.values, f.method)
    return SteppedModel(
        found.equations, state=found.state, times=rows, parms=found.parms, forcings=forcings, clock=(start, step)
    )


def _check(system: System, kind: Kind, method: str) -> None:
    """Refuse what has no place in equations."""
    word = f'compiled("{kind}")'
    steps = sorted({m.step for m in system.modules})
    if len(steps) > 1:
        raise ModelError(f"{word} needs modules of one step; these have steps of {listed([f'{s}' for s in steps])}.")
    if kind == "difference" and method != "euler":
        raise ModelError(f"{word} moves levels by the rectangle rule; this system has method={method!r}.")
    refused = ("lag", "rate", "pulse") if kind == "ode" else ("lag", "rate")
    statements = [s for s in system.statements if isinstance(s, ModuleStatement)]
    for s in statements:
        for name in s.words:
            if name in refused:
                raise ModelError(
                    f"{word}: {name}(...) is no equation of its time alone (module {s.module!r}, line {s.line}). "
                    "Run the system itself."
                )
    if not any(v.level for v in system.variables.values()) and not any(s.memories for s in statements):
        raise ModelError(f"{word}: the system has no level, and so no state that moves.")


def _forcings(series: Mapping[str, Any]) -> dict[str, Forcing]:
    return {
        name: Forcing(name, np.asarray(t, dtype=float), np.asarray(v, dtype=float), how)
        for name, (t, v, how) in series.items()
    }


@dataclass(frozen=True, slots=True, eq=False)
class _Found:
    equations: Equations
    state: dict[str, Any]
    parms: dict[str, float]


class _Maker:
    """Statements -> expressions.

    Parameters
    ----------
    system : System
    parms : dict of str to float
    series : dict of str to Forcing
    start, dt : float
    kind : {"ode", "difference"}
    """

    def __init__(
        self, system: System, parms: dict[str, float], series: dict[str, Forcing], start: float, dt: float, kind: Kind
    ) -> None:
        self.dt, self.is_stepped = dt, kind == "difference"
        shapes = {v.name: v.shape for v in system.variables.values()}
        steps = {m.name: m.step for m in system.modules}
        self.work: Work = as_work(system.statements, shapes, steps)
        for name, why in self.work.python.items():
            raise ModelError(
                f'compiled("{kind}"): the module {name!r} is a Python function that cannot be written as equations: '
                f"{why}."
            )
        self.layout, self.parms, self.series, self.start = Layout(self.work.shapes), parms, series, start
        self.names = [e for name, shape in self.work.shapes.items() for e in element_names(name, shape)]
        self.levels = [p for level in self.work.levels for p in self._places(level.target)]
        self.step = float(next(iter(steps.values())))
        self._outside = {
            p
            for v in system.variables.values()
            for p, outside in zip(self._places_of(v.name), v.outside, strict=True)
            if outside
        }

    def _places(self, target: Reference) -> list[int]:
        return [int(p) for p in self.layout.places(target.name, target.positions)]

    def _places_of(self, name: str) -> range:
        return range(self.layout.of(name).start, self.layout.of(name).stop)

    def equations(
        self, kind: Kind, time: Any, before: dict[str, str], outputs: Sequence[str], moved: Any, past: Any = None
    ) -> _Found:
        """Return the equations, the initial values, and the parameters that are used.

        Parameters
        ----------
        time : Node
            The time of a row.
        before : dict of str to str
            What the series are called that rates read.
        outputs : sequence of str
        moved : callable
            ``moved(x, f)``: what the equations give of a state x with the rate f.
        past : Node, optional
            The time of rates, if it is not that of the row.
        """
        symbols = {p: symbol(self.names[p]) for p in self.levels}
        of_row = self._values("always", time, {}, symbols)
        of_rates = of_row if past is None else self._values("always", past, before, symbols)
        at_start = self._values("start", number(self.start), None, {})
        shortest = self._shortest(of_rates) if self.is_stepped else {}
        rates = []
        for level in self.work.levels:
            for place, rate in zip(
                self._places(level.target),
                self.layout.places(rate_of(level.target.name), level.target.positions).tolist(),
                strict=True,
            ):
                value = moved(symbols[place], of_rates.plain(rate))
                if place in shortest:  # less than nothing has no root: the run fails
                    more = shortest[place]
                    value = conditions.choose(conditions.relation(">=", more, number(0.0)), value, call("sqrt", more))
                rates.append(value)
        out = [(self.names[p], of_row.plain(p)) for name in outputs for p in self._places_of(name) if p not in symbols]
        states = tuple(self.names[p] for p in self.levels)
        state = {self.names[p]: at_start.plain(p) for p in self.levels}
        every = [*rates, *(e for _, e in out)]
        used = {s.name for e in [*every, *state.values()] for s in e.free_symbols}
        starts = {f"{self.names[p]}(0)": self.names[p] for p in self._outside}
        given = {name: self.parms[name] for name in self.parms if name in used and name not in states}
        given |= {called: self.parms[name] for called, name in starts.items() if called in used}
        forcings = tuple(n for name in self.series for n in (name, before.get(name, name)) if n in used)
        equations = Equations(
            kind, states, tuple(given), tuple(dict.fromkeys(forcings)), tuple(rates), tuple(out),
            "t" if kind == "ode" else "n",
        )  # fmt: skip
        return _Found(equations, state, given)

    def _shortest(self, values: _Values) -> dict[int, Any]:
        """Return by levels of smooths and delays how much longer their tau is than the shortest."""
        out = {}
        for d in self.work.delays:
            taus, least = self._places(d.tau), number(least_tau(d.kind, self.step * self.dt))
            for i, place in enumerate(self._places_of(d.level)):
                out[place] = values.plain(taus[i if len(taus) > 1 else 0]) - least
        return out

    def _values(self, phase: str, time: Any, before: dict[str, str] | None, known: dict[int, Any]) -> _Values:
        """Return all values as expressions; of the start (`before` None), from parameters alone."""
        graph = Graph(self.work.jobs, self.layout, frozenset())
        pieces: list[Piece] = []
        levels = set(self.levels)
        for i, job in enumerate(self.work.jobs):
            whole = graph.whole(i)
            if job.kind != "initial":
                pieces.append(whole)
            elif phase == "start":  # of assigned variables they are first guesses of loops, which are refused
                places = graph.written(whole).tolist()
                pieces += [Piece(i, whole.first + k, whole.first + k + 1) for k, p in enumerate(places) if p in levels]
        values = _Values(self, time, before, dict(known))
        for section in graph.sections(pieces):
            if section.is_loop:
                raise ModelError(
                    "compiled(): "
                    + listed(list(dict.fromkeys(self.work.jobs[p.job].target.name for p in section.pieces)))
                    + f" need one another{' at the start' if phase == 'start' else ''}: a loop is no equation. "
                    "Break it with a level, or run the system itself."
                )
            for piece in section.pieces:
                values.add(self.work.jobs[piece.job], piece)
        return values

    def outside(self, place: int, before: dict[str, str] | None) -> Any:
        """Return what stands for a value that no statement gives."""
        name = self.names[place]
        if place in self._outside and before is None:
            if name not in self.parms:
                raise ModelError(
                    f"{name!r} has no value at the start: neither {name}(0) = ... nor one in the data base."
                )
            return symbol(f"{name}(0)")
        if name in self.series:
            if before is None:
                return number(float(self.series[name].at(self.start)))
            return symbol(before.get(name, name))
        if name in self.parms:
            return symbol(name)
        if place in self.levels:  # declared endogenous
            return number(0.0)
        raise ModelError(f"{name!r} has no value: no statement gives it one, nor does the data base.")


class _Opaque:
    """What is not looked into to see how large an expression is."""

    def __contains__(self, e: Any) -> bool:
        return isinstance(e, Shared)


_Made: TypeAlias = dict[tuple[Node, int], Any]
"""Expressions at elements."""


class _MadeAt:
    """What is known at an element; what looks at several ones becomes known when it is asked for."""

    def __init__(self, values: _Values, i: int, made: _Made) -> None:
        self._values, self._i, self._made = values, i, made

    def __contains__(self, e: Any) -> bool:
        if isinstance(e, ArrayNode) and (e, self._i) not in self._made:
            self._made[e, self._i] = self._values.of_array(e, self._i, self._made)
        return (e, self._i) in self._made


class _Values:
    """The values of elements as expressions, as they are made."""

    def __init__(self, maker: _Maker, time: Any, before: dict[str, str] | None, known: dict[int, Any]) -> None:
        self._maker, self._before, self._known = maker, before, known
        # a continuous model has no grid of times that could be missed
        self._fixed = {TIME: time, Symbol(DT): number(maker.dt if maker.is_stepped else 0.0)}

    def add(self, job: Any, piece: Piece) -> None:
        """Compute a piece of a job."""
        begin = self._maker.layout.begin[job.target.name]
        made: _Made = {}
        for i in range(piece.first, piece.last):
            value = self._of(job.value, i, made)
            size = len(in_order([value], _Opaque()))
            name = self._maker.names[begin + i]
            self._known[begin + i], _ = shared(name, value, size, MOST_COPIED)

    def plain(self, place: int) -> Any:
        """Return a value; what is shared, by what it is."""
        if place not in self._known:
            self._known[place] = self._maker.outside(place, self._before)
        return self._known[place]

    def _of(self, e: Node, i: int, made: _Made) -> Any:
        """Return an expression at element i of arrays."""
        for part in in_order([e], _MadeAt(self, i, made)):
            if part in self._fixed:
                made[part, i] = self._fixed[part]
            elif isinstance(part, Symbol):
                read = reference_of(part, self._maker.layout.shapes)
                at = i if isinstance(part, Whole) else read.positions[0]
                made[part, i] = self.plain(self._maker.layout.begin[read.name] + at)
            else:
                made[part, i] = part.rebuilt([made[a, i] for a in part.args]) if part.args else part
        return made[e, i]

    def of_array(self, e: ArrayNode, i: int, made: _Made) -> Any:
        """Return what looks at several elements, at element i."""
        return getattr(self, f"_{e.word}")(e, i, made)

    def _array(self, e: Node, i: int, made: _Made) -> Any:
        return self._of(e.args[i], i, made)

    def _sum(self, e: Node, i: int, made: _Made) -> Any:
        x, n = e.args
        return add(*(self._of(x, k, made) for k in range(int(float(n)))))

    def _dot(self, e: Node, i: int, made: _Made) -> Any:
        a, b, *sizes = e.args
        rows, n, columns = (int(float(v)) for v in sizes)
        row, column = divmod(i if rows * columns > 1 else 0, columns)
        terms = (self._of(a, row * n + k, made) * self._of(b, k * columns + column, made) for k in range(n))
        return add(*terms)

    def _table(self, e: Node, i: int, made: _Made) -> Any:
        x, n = self._of(e.args[0], i, made), int(float(e.args[3]))
        xs, ys = ([self._of(points, k, made) for k in range(n)] for points in e.args[1:3])
        out = ys[-1]
        for k in reversed(range(n - 1)):
            line = ys[k] + (ys[k + 1] - ys[k]) / (xs[k + 1] - xs[k]) * (x - xs[k])
            out = choose_above(x, xs[k + 1], out, line)
        return choose_above(x, xs[0], out, ys[0])


class SteppedModel(DifferenceModel):
    """Difference equations whose step n is the time ``start + n step`` of the system that they come from.

    The first column of its table is ``step``, and costs want that column: data by the system's times would be held
    against other steps. Where both are the same it is ``time``.

    Parameters
    ----------
    *args, **kwargs
        Of `DifferenceModel`.
    clock : tuple of float
        Start and step in the system's time.
    """

    def __init__(self, *args: Any, clock: tuple[float, float] = (0.0, 1.0), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._arguments["clock"] = clock
        start, step = clock
        if clock != (0.0, 1.0):
            self.x_name = "step"
            less = f"(obs['time'] - {start:g})" if start else "obs['time']"
            self.x_note = (
                f"the rows of these difference equations are steps of {step:g}, counted from 0 at the time {start:g}. "
                f"Give the observations a column of steps in place of their times, obs.assign(step={less} / {step:g})"
                ".drop(columns='time'), and pass x='step'."
            )
