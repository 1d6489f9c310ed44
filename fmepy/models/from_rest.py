"""A run that starts from the steady state of another: the system first rests under other parameters.

The state at rest is found by simulating on, ten times as long each time, until nothing changes any more (as `runsteady`
does), so that it is the one that the initial values lead to, also where something is conserved and many states rest.
With y0(p) that state, ``Y(p) = run(p, y0(p))`` and::

    dY/dp = dY/dp at fixed y0 + dY/dy0 dy0/dp
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmepy.errors import ModelError, SimulationError
from fmepy.models.base import engine_of, keep_within, one_by_one, tightened
from fmepy.parameters.maps import Selected
from fmepy.types import Cube, Matrix, Vector

SPANS = tuple(10.0**k for k in range(6))
"""How long it may take to come to rest, in units of the model's own time."""
_STILL, _STILL_OF_LARGEST = 1e-5, 1e-7
"""What a state may change, of itself and of the largest, between one span and ten: far less is left afterwards."""


def start_name(state: str) -> str:
    """Return what the initial value of a state is called where it is a parameter."""
    return f"{state}_at_start"


def opened(model: Any) -> Any:
    """Return a model whose initial values are parameters, called as `start_name` says.

    Raises
    ------
    ModelError
        A kind of model that has no initial values to be set.
    """
    if getattr(model, "definition", None) is None:
        raise ModelError(
            f"A start from a steady state needs a model whose initial values can be set, such as an OdeModel; a "
            f"{type(model).__name__} has none."
        )
    names = {s: start_name(s) for s in model.states}
    return model.replace(state=names, parms=dict.fromkeys(names.values(), 1.0))


def without_events(model: Any) -> Any:
    """Return a model without its events: nothing happens while it comes to rest."""
    return model.replace(events=None) if model.definition.events else model


class Rest:
    """The state in which a model comes to rest, as a function of a plain vector.

    Parameters
    ----------
    model : Model
        Without events.
    names : sequence of str
        Its parameters that theta holds.
    label : str
        What it is called in messages.
    **words
        Of the model's ``bind``.
    """

    def __init__(self, model: Any, names: Any, label: str, **words: Any) -> None:
        start = float(model.times[0])
        span = float(model.times[-1]) - start or 1.0
        self._label, self._n = label, len(model.states)
        self._states = tuple(model.states)
        # rows at whole numbers of steps, for difference equations
        self._bounds = [model.bind(names, times=[start + float(np.ceil(span * s))], **words) for s in SPANS]

    @property
    def retries(self) -> int:
        """Runs so far that a second engine finished."""
        return sum(int(b.retries) for b in self._bounds)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        for b in self._bounds:
            keep_within(b, lower, upper)

    def tightened(self) -> Rest | None:
        """Return the same at smaller tolerances, None where no solver has any."""
        tight = [tightened(b) for b in self._bounds]
        if any(t is None for t in tight):
            return None
        out = object.__new__(Rest)
        out.__dict__ |= {**self.__dict__, "_bounds": tight}
        return out

    def at(self, theta: Vector) -> tuple[Vector, Any]:
        """Return the state at rest, shape (n_state,), and the bound model whose last row it is."""
        before = None
        for bound in self._bounds:
            y = bound.simulate(theta)[0, : self._n]
            if before is not None:
                moved = np.abs(y - before) - _STILL * np.abs(y) - _STILL_OF_LARGEST * np.abs(y).max()
                if (moved <= 0).all():
                    return y, bound
            before = y
        state = self._states[int(np.argmax(moved))]
        raise SimulationError(
            f"The run of {self._label!r} does not come to rest: {state!r} still changes after {SPANS[-1]:g} times the "
            "model's own time."
        )

    def with_slopes(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return the state at rest, and its derivatives, shape (n_state, n_par)."""
        y, bound = self.at(theta)
        return y, bound.sensitivities(theta)[1][0, : self._n]


class BoundFromRest:
    """A bound model that starts from the steady state of another; see `fmepy.models.base.BoundModel`.

    Parameters
    ----------
    run : BoundModel
        Of an `opened` model: of some parameters, then of all initial values.
    map : Selected
        From theta to those parameters.
    rest : Rest
    rest_map : Selected
        From theta to the parameters of `rest`.
    """

    def __init__(self, run: Any, map: Selected, rest: Rest, rest_map: Selected) -> None:
        self._run, self._map, self._rest, self._rest_map = run, map, rest, rest_map
        self.names, self.times, self.var_names = map.names, run.times, run.var_names
        self.theta0: Vector = map.start(map.values)

    @property
    def exact(self) -> bool:
        """Whether `sensitivities` solves the sensitivity equations."""
        return bool(self._run.exact)

    @property
    def retries(self) -> int:
        """Runs so far that the first engine could not finish and another one did."""
        return int(self._run.retries) + self._rest.retries

    @property
    def engine(self) -> str:
        """The engine that runs the model."""
        return engine_of(self._run)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds; the state at rest has none."""
        n = len(self._run.names) - len(self._map.full_names)
        free = np.full(n, np.inf)
        low, high = self._map.box(lower, upper)
        keep_within(self._run, np.concatenate([low, -free]), np.concatenate([high, free]))
        self._rest.keep_within(*self._rest_map.box(lower, upper))

    def tightened(self) -> BoundFromRest | None:
        """Return the same at smaller tolerances, see `fmepy.models.base.tightened`."""
        run, rest = tightened(self._run), self._rest.tightened()
        return None if run is None or rest is None else BoundFromRest(run, self._map, rest, self._rest_map)

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        y, _ = self._rest.at(self._rest_map.full(theta))
        out: Matrix = self._run.simulate(np.concatenate([self._map.full(theta), y]))
        return out

    def simulate_many(self, Theta: Matrix) -> tuple[Cube, Any]:
        """Return Y of many runs, and why runs failed, see `fmepy.models.base.simulate_many`."""
        return one_by_one(self, Theta)

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par)."""
        y, slopes = self._rest.with_slopes(self._rest_map.full(theta))
        Y, S = self._run.sensitivities(np.concatenate([self._map.full(theta), y]))
        n = len(self._map.full_names)
        through_start = S[:, :, n:] @ np.asarray(self._rest_map.pull(theta, slopes))
        return Y, self._map.pull(theta, S[:, :, :n]) + through_start
