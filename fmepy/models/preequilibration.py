"""A run that starts from the steady state of another: the system first rests under other parameters.

The state at rest is found by simulating on, ten times as long each time, until nothing changes any more (as `runsteady`
does), so that it is the one that the initial values lead to, also where something is conserved and many states rest.
With y0(p) that state, ``Y(p) = run(p, y0(p))`` and::

    dY/dp = dY/dp at fixed y0 + dY/dy0 dy0/dp

States may begin anew: at their initial value under the parameters of the run, which takes the place of that at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import Any

import numpy as np

from fmepy.errors import ModelError, SimulationError
from fmepy.language.equations import names_in, symbol
from fmepy.models.base import OfRuns, keep_within, one_by_one, tightened
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.engines.fixed import ENGINE as FIXED_STEPS
from fmepy.parameters.maps import Computed, Selected
from fmepy.types import Cube, Matrix, Vector

SPANS = tuple(10.0**k for k in range(6))
"""How long it may take to come to rest, in units of the model's own time."""
_STILL, _STILL_OF_LARGEST = 1e-5, 1e-7
"""What a state may change, of itself and of the largest, between one span and ten: far less is left afterwards."""


def still_moving(before: Vector, y: Vector) -> Vector:
    """Return by how much more than nothing each state has changed: above zero where it still moves."""
    return np.asarray(np.abs(y - before) - _STILL * np.abs(y) - _STILL_OF_LARGEST * np.abs(y).max())


def first_at_rest(
    bounds: Iterable[Any], simulate: Callable[[Any], Matrix], states: Sequence[str], resolved: Any = 0.0
) -> tuple[Any, Any]:
    """Return the first of some bound models whose last two rows are the same, as nothing changes, and its run.

    Parameters
    ----------
    bounds : iterable of BoundModel
        Of ever longer runs; made one by one, as they are asked for.
    simulate : callable
        The run of one, the states first.
    states : sequence of str
    resolved : float or ndarray
        What a solver tells from zero: states that vanish come to rest there.

    Raises
    ------
    SimulationError
        None is; the state that still changes most is named.
    """
    for bound in bounds:
        Y = simulate(bound)
        moved = still_moving(Y[-2, : len(states)], Y[-1, : len(states)]) - resolved
        if (moved <= 0).all():
            return bound, Y
    state = states[int(np.argmax(moved))]
    raise SimulationError(f"The run does not come to rest: {state!r} still changes at time {bound.times[-1]:g}.")


def start_name(state: str) -> str:
    """Return what the initial value of a state is called where it is a parameter."""
    return f"{state}_at_start"


def check_opens(model: Any) -> None:
    """Refuse a kind of model that has no initial values to be set."""
    if getattr(model, "definition", None) is None:
        raise ModelError(
            f"A start from a steady state needs a model whose initial values can be set, such as an OdeModel; a "
            f"{type(model).__name__} has none."
        )


def start_parameters(definition: Definition) -> dict[str, tuple[str, ...]]:
    """Return by parameter the states that begin at it: it is their initial value, or stands in initial values only."""
    elsewhere = names_elsewhere(definition)
    out: dict[str, tuple[str, ...]] = {}
    for state, value in zip(definition.states, definition.initial, strict=True):
        for name in names_in([value]):
            if str(value) == name or name not in elsewhere:
                out[name] = (*out.get(name, ()), state)
    return out


def names_elsewhere(definition: Definition) -> set[str]:
    """Return the names in a model but for its initial values; of a function that is not traced, in its outputs."""
    rates = () if definition.equations is None else definition.equations.rates
    of_roots = (e for root in definition.roots for e in root.expressions)
    past = (e for e in definition.history if e is not None)
    outputs = (e for _, e in definition.outputs)
    return names_in([*rates, *outputs, *(e.value for e in definition.events), *of_roots, *past])


def opened(model: Any, names: Mapping[str, str] | None = None) -> Any:
    """Return a model whose initial values are parameters: those of some states, or of all, called as `start_name` says.

    names : mapping of state to str, optional
        What these parameters are called.

    Raises
    ------
    ModelError
        A parameter has such a name, and is not that initial value.
    """
    names = {s: start_name(s) for s in model.states} if names is None else dict(names)
    initial = dict(zip(model.states, map(str, model.definition.initial), strict=True))
    for state, name in names.items():
        if name in model.parms.index and initial.get(state) != name:
            raise ModelError(
                f"{name!r}, a parameter, is what the initial value of {state!r} is called here: give it another name."
            )
    starts = {state: symbol(name) for state, name in names.items()}  # of P[0] its name is no expression
    return model.replace(state=starts, parms=dict.fromkeys(names.values(), 1.0))


def resting(model: Any) -> Any:
    """Return a model as it comes to rest: without events, and with steps as long as its rates allow."""
    changed = {"events": None} if model.definition.events or model.definition.roots else {}
    if getattr(model, "method", None) in FIXED_STEPS.methods:  # they rest in the same states, many more steps later
        changed |= {"method": None, "dt": None}
    return model.replace(**changed) if changed else model


class StartAtRest:
    """The state in which a run starts: where another model comes to rest, as a function of a plain vector.

    Parameters
    ----------
    model : Model
        The one that comes to rest, without events.
    label : str
        What its run is called in messages.
    map : Map
        From theta to those of its parameters that move.
    definition : Definition
        Of the run that starts there.
    anew : sequence of str
        States that do not stay at rest: their initial values are those of the run.
    own : Map
        From theta to all parameters of the definition.
    **words
        Of the model's ``bind``.
    """

    def __init__(
        self,
        model: Any,
        label: str,
        map: Selected | Computed,
        definition: Definition,
        anew: Sequence[str],
        own: Selected | Computed,
        **words: Any,
    ) -> None:
        start = float(model.times[0])
        span = float(model.times[-1]) - start or 1.0
        self._label, self._states, self._map, self._own = label, tuple(model.states), map, own
        dt = float(getattr(model, "dt", 1.0))  # rows at whole numbers of steps, for difference equations
        times = [start + dt * float(np.ceil(span * s / dt)) for s in SPANS]
        self._bounds = [model.bind(map.full_names, times=[t], **words) for t in times]
        self._places = [definition.states.index(s) for s in anew]
        self._anew = ValueTable([definition.initial[i] for i in self._places], own.full_names, own.full_names)
        self._last: tuple[bytes, Vector] | None = None
        self._slopes: tuple[bytes, Vector, Matrix] | None = None

    @property
    def retries(self) -> int:
        """Runs so far that a second engine finished."""
        return sum(int(b.retries) for b in self._bounds)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        for b in self._bounds:
            keep_within(b, *self._map.box(lower, upper))

    def tightened(self) -> StartAtRest | None:
        """Return the same at smaller tolerances, None where no solver has any."""
        tight = [tightened(b) for b in self._bounds]
        if any(t is None for t in tight):
            return None
        out = copy(self)
        out._bounds, out._last, out._slopes = tight, None, None
        return out

    def _at_rest(self, full: Vector) -> tuple[Vector, Any]:
        """Return the state at rest, shape (n_state,), and the bound model whose last row it is."""
        before, n = None, len(self._states)
        for bound in self._bounds:
            y = bound.simulate(full)[0, :n]
            if before is not None:
                moved = still_moving(before, y)
                if (moved <= 0).all():
                    return y, bound
            before = y
        state = self._states[int(np.argmax(moved))]
        raise SimulationError(
            f"The run of {self._label!r} does not come to rest: {state!r} still changes after {SPANS[-1]:g} times the "
            "model's own time."
        )

    def _begun(self, theta: Vector, y: Vector) -> Vector:
        """Return the state y at rest, with the initial values of the states that begin anew."""
        out = y.copy()
        out[self._places] = self._anew.value(self._own.full(theta).tolist())
        return out

    def at(self, theta: Vector) -> Vector:
        """Return the state, shape (n_state,)."""
        key, last = theta.tobytes(), self._last  # another thread may write it meanwhile
        if last is None or last[0] != key:
            last = self._last = (key, self._begun(theta, self._at_rest(self._map.full(theta))[0]))
        return last[1]

    def with_slopes(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return the state and its derivatives to theta, shape (n_state, n_par)."""
        key, last = theta.tobytes(), self._slopes
        if last is None or last[0] != key:
            full = self._map.full(theta)
            y, bound = self._at_rest(full)
            S = np.array(self._map.pull(theta, bound.sensitivities(full)[1][0, : len(y)]))
            S[self._places] = self._own.pull(theta, self._anew.slope(self._own.full(theta).tolist()))
            last = self._slopes = (key, self._begun(theta, y), S)
        return last[1:]

    def near(self, theta: Vector, moved: Vector) -> Vector:
        """Return the state at parameters close to theta, along the tangent: differences see no noise of a solver."""
        return np.asarray(self.at(theta) + self.with_slopes(theta)[1] @ (moved - theta))


class BoundFromRest(OfRuns):
    """A bound model that starts from the steady state of another; see `fmepy.models.base.BoundModel`.

    Parameters
    ----------
    run : BoundModel
        Of an `opened` model: of some parameters, then of all initial values.
    map : Map
        From theta to those parameters.
    start : StartAtRest
        Of the same theta.
    """

    def __init__(self, run: Any, map: Selected | Computed, start: StartAtRest) -> None:
        self.bound, self._map, self._start = run, map, start
        self.names, self.times, self.var_names = map.names, run.times, run.var_names
        self.theta0: Vector = map.start(map.values)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return int(self.bound.retries) + self._start.retries

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds; the state at rest has none."""
        n = len(self.bound.names) - len(self._map.full_names)
        free = np.full(n, np.inf)
        low, high = self._map.box(lower, upper)
        keep_within(self.bound, np.concatenate([low, -free]), np.concatenate([high, free]))
        self._start.keep_within(lower, upper)

    def tightened(self) -> BoundFromRest | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        run, start = tightened(self.bound), self._start.tightened()
        return None if run is None or start is None else BoundFromRest(run, self._map, start)

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        out: Matrix = self.bound.simulate(np.concatenate([self._map.full(theta), self._start.at(theta)]))
        return out

    def simulate_many(self, Theta: Matrix) -> tuple[Cube, Any]:
        """Return Y of many runs, and why runs failed, see `fmepy.models.base.simulate_many`."""
        return one_by_one(self, Theta)

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par)."""
        y, slopes = self._start.with_slopes(theta)
        Y, S = self.bound.sensitivities(np.concatenate([self._map.full(theta), y]))
        n = len(self._map.full_names)
        through_start = S[:, :, n:] @ slopes
        return Y, self._map.pull(theta, S[:, :, :n]) + through_start


class BoundToRest(OfRuns):
    """A bound model with a last row at time infinity: the state that its runs come to, events and all.

    Parameters
    ----------
    model : Model
    names : sequence of str
    times : ndarray
        Increasing, the last inf.
    **words
        Of the model's ``bind``.
    """

    def __init__(self, model: Any, names: Sequence[str], times: Vector, **words: Any) -> None:
        self._model, self._words, self.times, self._before = model, words, times, times[:-1]
        self._states, self._is_tight = tuple(model.states), False
        self._box: tuple[Vector, Vector] | None = None
        inner = model
        while hasattr(inner, "inner"):
            inner = inner.inner
        self._resolved = np.asarray(getattr(inner, "atol", 0.0), dtype=float)
        self._made: dict[int, Any] = {}
        self.bound = next(self._bounds(names))
        self.names, self.var_names = tuple(self.bound.names), tuple(self.bound.var_names)
        self.theta0: Vector = self.bound.theta0

    def _bounds(self, names: Sequence[str]) -> Iterator[Any]:
        """Yield the model bound to ever longer runs; rows before the last two are those wanted."""
        start, ends = float(self._model.times[0]), [*self._model.times[-1:], *self._before[-1:]]
        last = float(max(ends))
        span, dt = last - start or 1.0, float(getattr(self._model, "dt", 1.0))
        for k, pair in enumerate(pairwise(SPANS)):
            if k not in self._made:
                # rows at whole numbers of steps, for difference equations
                later = [last + dt * float(np.ceil(span * s / dt)) for s in pair]
                bound = self._model.bind(names, times=np.array([*self._before, *later]), **self._words)
                bound = (tightened(bound) or bound) if self._is_tight else bound
                if self._box is not None:
                    keep_within(bound, *self._box)
                self._made[k] = bound
            yield self._made[k]

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self._box = lower, upper
        for bound in self._made.values():
            keep_within(bound, lower, upper)

    def tightened(self) -> BoundToRest | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        tight = tightened(self.bound)
        if tight is None:
            return None
        out = copy(self)
        out.bound, out._made, out._is_tight = tight, {0: tight}, True
        return out

    def _at_rest(self, theta: Vector) -> tuple[Any, Matrix]:
        """Return the bound model whose run comes to rest, and that run."""
        return first_at_rest(
            self._bounds(self.names), lambda bound: bound.simulate(theta), self._states, self._resolved
        )

    @staticmethod
    def _rows(Y: Any) -> Any:
        """Return the rows wanted, of a run with two in place of the last."""
        return np.concatenate([Y[:-2], Y[-1:]])

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        Y: Matrix = self._rows(self._at_rest(theta)[1])
        return Y

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par)."""
        Y, S = self._at_rest(theta)[0].sensitivities(theta)
        return self._rows(Y), self._rows(S)


def bind_to_rest(model: Any, names: Sequence[str], times: Any, **words: Any) -> Any:
    """Return the model as a function of a plain vector, with rows at `times`, of which the last may be inf."""
    if times is None or not len(times) or np.isfinite(times[-1]):
        return model.bind(names, times=times, **words)
    return BoundToRest(model, names, np.asarray(times, dtype=float), **words)
