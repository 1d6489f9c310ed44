"""What a model promises, and what a new kind of model must provide.

A **model** is a function of its parameters: ``model(parms=None, times=None)`` runs it and returns a DataFrame. Any
callable of that kind will do for fmepy's verbs. fmepy's own models also offer a *fast path*: ``model.bind(names)``
gives a `BoundModel`, whose vector ``theta`` holds exactly those parameters in that order while the others stay at
``model.parms``.

A new kind of model provides

1. ``parms``: a Series of all its parameters; ``states`` and ``var_names`` (states first, then outputs); ``times``;
2. ``engine`` (the name of what runs it) and ``engine_note`` (why not the faster one, or an empty string);
3. ``__call__(parms=None, times=None)``: the table, first column ``time`` (or what the model's `x_name` says, where
   rows are no times), one column per variable. The run always
   starts at ``model.times[0]``; `times` only says at which times rows are wanted, and may not lie before the start;
4. ``bind(names=None, *, times=None, hold_engine=False)``, as below;
5. ``replace(**arguments)``: a changed copy; dicts are merged.

`models.dynamic.Runnable` has the table and the checks; `models.simulated.SimulatedModel` is complete but for the
run.

A bound model may also offer ``simulate_many(Theta)`` (without it many runs are a loop, `simulate_many` asks), with
``runs_on_threads`` where that leaves Python's lock to others, and ``engine``, the name of what runs it (`engine_of`).

That is all that costs, fits, sensitivities, ranges and chains ask for, and filters whose process has no noise and whose
start is known. To be filtered with process noise a model further says what it is made of:

6. ``definition`` (`models.definition.definition.Definition`): states and their initial values, forcings, events, and
   the rates, as equations or as a function;
7. of differential equations ``method`` and ``options`` (`models.engines.base.SolverOptions`), and ``scaled_options()``,
   the same with an atol for every state; and for sectors ``of_equations``, a model of other equations that runs as this
   one does.

Models are immutable: nothing changes their parameters, they pickle, and they may be shared between costs. What a run
needs to remember (retries, the engine in use) lives in the bound model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd

from fmepy.errors import SimulationError
from fmepy.numerics.differences import central_differences, steps_beside
from fmepy.parameters.names import as_theta
from fmepy.types import Cube, Matrix, UserParameters, Vector


class BoundModel(Protocol):
    """A model as a function of a plain vector.

    Attributes
    ----------
    names : tuple of str
        The parameters that ``theta`` holds, in order.
    theta0 : ndarray, shape (n_par,)
        The model's own values of them.
    var_names : tuple of str
        The columns of the result: states, then outputs.
    times : ndarray, shape (n_time,)
        The rows of the result.
    exact : bool
        True if `sensitivities` solves the sensitivity equations, False if it takes differences of runs.
    retries : int
        Runs so far that the first engine could not finish and another one did.

    Examples
    --------
    >>> from fmepy.models.ode import OdeModel
    >>> model = OdeModel("d(A)/dt = -k*A", state={"A": 2.0}, times=[0, 1, 2], parms={"k": 0.5})
    >>> bound = model.bind(["k"])
    >>> bound.simulate([1.0]).round(3).tolist()
    [[2.0], [0.736], [0.271]]
    >>> bound.sensitivities([1.0])[1].round(3).tolist()
    [[[0.0]], [[-0.736]], [[-0.541]]]
    """

    names: tuple[str, ...]
    theta0: Vector
    var_names: tuple[str, ...]
    times: Vector

    @property
    def exact(self) -> bool: ...

    @property
    def retries(self) -> int: ...

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var); raise SimulationError if the run fails.

        Non-finite values of outputs are returned as they are (an output that nobody compares may be the logarithm of
        zero); non-finite states are a failed run.
        """

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par): the derivatives of Y to theta."""


def engine_of(bound: Any) -> str:
    """Return the name of the engine that a bound model or cost runs on, "" where it does not say."""
    return str(getattr(bound, "engine", ""))


class OfRuns:
    """What makes its runs by another bound model, `bound`, and says of them what that one says.

    Attributes
    ----------
    exact : bool or None
        True if sensitivities solve their equations (asking may compile them); None where nobody says.
    retries : int
        Runs so far that the first engine could not finish and another one did.
    engine : str
        The engine that runs the model, as far as it says.
    """

    bound: Any
    exact: Any = property(lambda self: getattr(self.bound, "exact", None))
    retries: Any = property(lambda self: getattr(self.bound, "retries", 0))
    engine: Any = property(lambda self: engine_of(self.bound))

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        keep_within(self.bound, lower, upper)


class TakesDifferences:
    """A bound model whose sensitivities may be central differences of runs, inside bounds."""

    _box: tuple[Vector, Vector] | None = None
    names: tuple[str, ...]
    simulate: Any
    times: Vector

    def until_end(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return the times of a run and its Y, shape (n_time, n_var)."""
        return self.times, self.simulate(theta)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self._box = (lower, upper)

    def differences(self, theta: Vector, relative: float) -> tuple[Matrix, Cube]:
        """Return Y and its central differences by steps of this size, relative to the parameters."""
        theta = as_theta(theta, self.names)
        Y = self.simulate(theta)
        return Y, central_differences(self.simulate, theta, steps_beside(theta, relative), self._box, base=Y)


def simulate_many(bound: Any, Theta: Matrix) -> tuple[Cube, Any]:
    """Return Y of many runs, shape (n_run, n_time, n_var), and why runs failed, shape (n_run,).

    Why is a sentence, and "" of a run that came to its end; the rows of one that did not are NaN. A bound model may
    offer ``simulate_many(Theta)`` itself; of others it is a loop. One that does it without Python's lock says so by
    ``runs_on_threads``: work is then spread over threads.
    """
    many = getattr(bound, "simulate_many", None)
    found: tuple[Cube, Any] = many(Theta) if callable(many) else one_by_one(bound, Theta)
    return found


def one_by_one(bound: Any, Theta: Matrix) -> tuple[Cube, Any]:
    """Return what `simulate_many` does, by one run after the other."""
    Y = np.full((len(Theta), len(bound.times), len(bound.var_names)), np.nan)
    why = np.full(len(Theta), "", dtype=object)
    for i, theta in enumerate(Theta):
        try:
            Y[i] = bound.simulate(theta)
        except SimulationError as error:
            why[i] = str(error)
    return Y, why


def tightened(bound: Any) -> Any:
    """Return a bound model or cost at tolerances a hundred times smaller.

    None where no solver chooses its steps by tolerances, or they cannot be smaller, or the kind does not offer it: its
    method ``tightened()`` is no part of the contract.
    """
    method = getattr(bound, "tightened", None)
    return method() if callable(method) else None


def keep_within(bound: Any, lower: Vector, upper: Vector) -> None:
    """Keep the differences of a bound model or cost inside these bounds.

    Those that take differences have a method ``keep_within(lower, upper)``, shape (n_par,) each; others need none.
    """
    if callable(getattr(bound, "keep_within", None)):
        bound.keep_within(lower, upper)


def equations_hint(model: Any) -> str:
    """Return how to come by a model's equations where it has none itself, a sentence after a blank; or nothing."""
    hint = getattr(model, "equations_hint", "")
    return f" {hint}" if hint else ""


@runtime_checkable
class Model(Protocol):
    """A dynamic model: a function of its parameters.

    Every model of fmepy fulfils this, and so may one of your own: `parms`, `times`, `var_names`, a call that returns a
    table, and `bind`, the fast path (`BoundModel`) that fits, chains and ensembles take.

    Examples
    --------
    >>> from fmepy.models.ode import OdeModel
    >>> model = OdeModel("d(A)/dt = -k*A", state={"A": 2.0}, times=[0, 1, 2], parms={"k": 0.5})
    >>> isinstance(model, Model)
    True
    >>> model({"k": 1.0}).round(3)
       time      A
    0     0  2.000
    1     1  0.736
    2     2  0.271
    """

    states: tuple[str, ...]
    var_names: tuple[str, ...]
    times: Vector
    engine: str
    engine_note: str

    @property
    def parms(self) -> pd.Series: ...

    def __call__(self, parms: UserParameters = None, times: Any = None) -> pd.DataFrame:
        """Run the model and return its table."""

    def bind(self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False) -> BoundModel:
        """Return the model as a function of the parameters `names` (None: all), with rows at `times`.

        hold_engine : after the first run that another engine had to finish, stay with that engine, so that a cost
        built on it has no jumps (fits ask for this).
        """

    def replace(self, **arguments: Any) -> Model:
        """Return a copy with some arguments of the constructor changed; dicts are merged."""
