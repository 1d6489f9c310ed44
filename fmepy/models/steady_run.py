"""One steady state in the manner of rootSolve: `steady`, `steady_1d`, `runsteady`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_numbers, finite_number, positive_number, whole_number
from fmepy.compiled.status import ENDLESS
from fmepy.errors import ArgumentError, ModelError, SimulationError
from fmepy.models.definition.arguments import as_state
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.engines.base import SolverOptions
from fmepy.models.engines.scipy_steppers import LsodaStepper
from fmepy.models.preequilibration import SPANS, still_moving
from fmepy.models.steady_rates import OfFunction, SteadyRates, check_species
from fmepy.models.steady_state import Linearised, SteadyState, come_to_rest, refused, state_names, why_not
from fmepy.numerics.at_rest import NewtonState, SteadyTolerances, null_direction, rest_from, sizes_of
from fmepy.types import Vector
from fmepy.vocabulary import own_words

_MOST_STEPS = 100  # of Newton's, where nobody says
_NEAR = 1e-3  # relative: the state at rest that Newton finds from one that nearly rests is the same
_LOOKS = 400  # rows in the second half of every span
_SHORT = 10_000  # evaluations of the rates that the next span may take without a look at what moves
_MOST_EVALUATIONS = 200_000  # in one span
_TURNS = 4  # of a state that goes up and down
_DECAYS = 0.95  # of what it was: a swing above has not become smaller
_CLOSE = 1e-2  # relative: swings that die away, so near a stable state, end there
_NONE = np.empty(0)


@own_words
def steady(
    y: Any,
    func: Callable[..., Any],
    parms: Any = None,
    *,
    t: float = 0.0,
    positive: bool = False,
    rtol: float = 1e-6,
    atol: Any = 1e-8,
    ctol: float = 1e-8,
    max_iter: int | None = None,
) -> SteadyState:
    """Return the state in which ``func(t, y, parms)`` is zero, in the manner of rootSolve's `steady`.

    Parameters
    ----------
    y : mapping, Series or sequence
        Where to begin, near the state that is wanted.
    func : callable
        ``func(t, y, parms)`` with an ndarray; returns the rates, or ``(rates, {name: extra output})``.
    parms : any, optional
        Handed to `func` as it is.
    t : float
        The time at which the rates are taken.
    positive : bool
        States are concentrations: none becomes negative on the way, nor at the end.
    rtol, atol, ctol : float
        It has arrived when Newton's next step is below ``rtol |y| + atol`` in every state, or below `ctol` in all of
        them, and was taken; what is left is below a ten-thousandth of that. `atol` may be one number a state.
    max_iter : int, optional
        Most steps, of Newton's method and in time. Default: 100 of each try of Newton's, and 2000 in time.

    Returns
    -------
    SteadyState
        ``state`` (an array; a Series where `y` has names), ``outputs``, ``iterations``, ``residual``; ``stable`` and
        ``rightmost``, the rightmost eigenvalue of the Jacobian, which are found when they are asked for or printed.

    Raises
    ------
    NoSteadyStateError
        None was found (where it stands, the largest rate and whose it is); a singular Jacobian (which states); a state
        that would have to be negative. ``error.last`` is the last iterate. It is a `SimulationError`: a run of a cost's
        function that fails so counts as failed.
    ModelError, ArgumentError
        A start that is negative with ``positive=True``, rates that are not one number a state.

    Notes
    -----
    Newton's method with damping; where it does not arrive, implicit steps in time that grow. Which rates depend on
    which states is found by trying, and the Jacobian, by differences, is solved dense, banded or sparse accordingly
    (`fmepy.numerics.at_rest`, `fmepy.numerics.structure`). A start between two steady states may lead to either, an
    unstable one too; `runsteady` finds the one that the system itself goes to.

    Examples
    --------
    >>> def prey(t, y, p):
    ...     return p["s"] - p["a"] * y[0] * y[1], p["a"] * y[0] * y[1] - p["m"] * y[1] ** 2
    >>> steady({"x": 1, "z": 1}, prey, {"s": 2, "a": 0.5, "m": 0.1}).state.round(6).to_dict()
    {'x': 0.894427, 'z': 4.472136}
    """
    tol = tolerances(rtol, atol, ctol, max_iter, positive)
    return _found(_Asked(y, func, parms, t, None, tol.positive), tol)


@own_words
def steady_1d(
    y: Any,
    func: Callable[..., Any],
    parms: Any = None,
    *,
    nspec: int = 1,
    t: float = 0.0,
    positive: bool = False,
    rtol: float = 1e-6,
    atol: Any = 1e-8,
    ctol: float = 1e-8,
    max_iter: int | None = None,
) -> SteadyState:
    """Return the steady profiles of a model in one dimension, in the manner of rootSolve's `steady.1D`.

    Parameters
    ----------
    y : sequence
        Where to begin: all cells of the first species, then of the second.
    func : callable
        As for `steady`; its states and rates are in that order too.
    nspec : int
        How many species there are.
    parms, t, positive, rtol, atol, ctol, max_iter
        As for `steady`.

    Returns
    -------
    SteadyState
        ``state`` as `y`; ``plot()`` draws the profiles.

    Raises
    ------
    NoSteadyStateError, ModelError, ArgumentError
        As for `steady`; a number of states that is no multiple of `nspec`.

    Notes
    -----
    How far cells reach, and in which order of the states the Jacobian is a narrow band, is found by trying.

    Examples
    --------
    Diffusion from 1 above and decay below, in cells of 0.1:

    >>> def decay(t, C, p):
    ...     flux = -np.diff(np.r_[p["top"], C, C[-1]]) / np.r_[0.05, np.full(99, 0.1), 0.05]
    ...     return -np.diff(flux) / 0.1 - p["k"] * C, {"flux": flux[0]}
    >>> found = steady_1d(np.ones(100), decay, {"top": 1.0, "k": 0.25})
    >>> print(round(float(found.outputs["flux"]), 4))  # sqrt(k) = 0.5 but for the size of the cells
    0.4998
    """
    tol = tolerances(rtol, atol, ctol, max_iter, positive)
    return _found(_Asked(y, func, parms, t, nspec, tol.positive), tol)


def tolerances(rtol: Any, atol: Any, ctol: Any, max_iter: Any, positive: Any) -> SteadyTolerances:
    """Return the tolerances of a search, checked."""
    if not isinstance(positive, bool | np.bool_):
        raise ArgumentError(f"`positive={positive!r}` must be True or False; it is about all states.")
    if np.ndim(atol):
        atol = np.array([positive_number(a, "atol") for a in np.ravel(atol)])
    else:
        atol = positive_number(atol, "atol")
    in_all = None if max_iter is None else whole_number(max_iter, "max_iter", 1)
    most = _MOST_STEPS if in_all is None else in_all
    small = positive_number(rtol, "rtol"), atol, positive_number(ctol, "ctol")
    return SteadyTolerances(*small, most, bool(positive), in_all)


class _Asked:
    """What is asked: a start, a function of it, and what its states are called."""

    def __init__(self, y: Any, func: Any, parms: Any, t: Any, nspec: int | None = None, positive: bool = False) -> None:
        if not callable(func):
            raise ModelError(f"`func` must be a function func(t, y, parms); got {type(func).__name__}.")
        self.index = as_state(y) if isinstance(y, Mapping | pd.Series) else None
        start = as_numbers(list(self.index.values()) if self.index is not None else y, "y", ModelError)
        self.y = np.array(start).ravel()
        if not self.y.size or not np.isfinite(self.y).all():
            raise ModelError("`y` must hold at least one number, all of them finite.")
        n = self.y.size
        self.n_species = None if nspec is None else check_species(n, nspec)
        given = {} if parms is None else parms.to_dict() if isinstance(parms, pd.Series) else parms
        names = tuple(self.index) if self.index is not None else tuple(str(i + 1) for i in range(n))

        def rates(time: float, all_states: Vector, inputs: Any) -> Any:
            return func(time, all_states, given)

        self.t = finite_number(t, "t")
        function = RatesFunction(rates, "vector", names, (), ())
        self.system = OfFunction(function, self.t, self.y, _NONE, positive=positive, blocks=self.n_species or 0)
        self.system.tried(columns=False)
        self.name = state_names(tuple(self.index or ()), n, None if self.n_species is None else n // self.n_species)

    def labelled(self, y: Vector) -> Any:
        """Return states as they were given: by name, or as an array."""
        return pd.Series(y, index=list(self.index), name="state") if self.index is not None else y

    def result(self, system: SteadyRates, found: NewtonState) -> SteadyState:
        """Return what was found, and how the system behaves near it."""
        given, left = self.system.outputs(found.y), float(np.abs(found.f).max(initial=0.0))
        outputs = {k: float(v) if np.ndim(v) == 0 else np.array(v) for k, v in given.items()}
        near, state = Linearised(system, found.y, found.f), self.labelled(found.y)
        return SteadyState(state, outputs, True, found.iterations, left, self.n_species, linearised=near)

    def refused(self, why: str, found: NewtonState) -> SimulationError:
        """Return the error of a search without a result."""
        return refused(why, found, self.labelled(found.y), {}, self.n_species)


def check_start(y: Vector, tol: SteadyTolerances, name: Any, argument: str) -> None:
    """Refuse another number of tolerances than of states, and a start that is negative where no state may be."""
    if np.ndim(tol.atol) and len(tol.atol) != y.size:
        raise ArgumentError(f"`atol` has {len(tol.atol)} values for {y.size} states.")
    low = np.flatnonzero(y < 0)
    if len(low) and tol.positive:
        raise ModelError(
            f"`{argument}`: {name(int(low[0]))} begins at {y[low[0]]:g}, and positive=True says that no state is "
            "negative. Begin at zero or above, or leave positive out."
        )


def _found(asked: _Asked, tol: SteadyTolerances) -> SteadyState:
    check_start(asked.y, tol, asked.name, "y")
    with np.errstate(all="ignore"):
        system, found = come_to_rest(asked.system, asked.y, tol)
        if why := why_not(system, found, tol, asked.name, asked.y):
            raise asked.refused(why, found)
        return asked.result(system, found)


# --- by running on


@own_words
def runsteady(
    y: Any,
    func: Callable[..., Any],
    parms: Any = None,
    *,
    t: float = 0.0,
    max_time: float = 1e6,
    stol: float = 1e-8,
    rtol: float = 1e-6,
    atol: float = 1e-6,
) -> SteadyState:
    """Return the steady state that a system reaches when it runs on, in the manner of rootSolve's `runsteady`.

    Parameters
    ----------
    y : mapping, Series or sequence
        Initial values.
    func : callable
        As for `steady`.
    parms : any, optional
        Handed to `func` as it is.
    t : float
        Where the run begins.
    max_time : float
        The longest run, in the model's unit of time. Rest is looked for after a millionth of it, then ten times as
        long each time.
    stol : float
        It rests when the mean of the rates, without their signs, is below `stol`; or when nothing moves from one look
        to the next and Newton's method finds a state at rest right there.
    rtol, atol : float
        Tolerances of the run (LSODA).

    Returns
    -------
    SteadyState
        Its last digits are Newton's where the Jacobian is regular; ``iterations`` counts the evaluations of the rates.

    Raises
    ------
    NoSteadyStateError
        The system still moves after `max_time`, a state grows without end, states go up and down as much as they did
        ten times earlier (in which case it is not run on to `max_time`), or the run fails. It names the state, where it
        stands at which time and how fast it moves; ``error.last`` is the state there.

    Notes
    -----
    It finds stable states only, and where something is conserved the one that the initial values lead to.

    Examples
    --------
    >>> exchange = lambda t, y, p: [-2 * y[0] + y[1], 2 * y[0] - y[1]]
    >>> runsteady([3, 0], exchange).state.round(6)
    array([1., 2.])
    """
    longest, stol = positive_number(max_time, "max_time"), positive_number(stol, "stol")
    asked = _Asked(y, func, parms, t)
    options = SolverOptions(
        "lsoda", positive_number(rtol, "rtol"), np.full(len(asked.y), positive_number(atol, "atol"))
    )
    tol = SteadyTolerances(min(rtol, 1e-6), min(atol, 1e-8), 1e-8, 20, False)
    run = _Run(asked, options)
    with np.errstate(all="ignore"):
        for span in longest * np.array(SPANS) / SPANS[-1]:
            before, start = run.y, run.evaluations
            if why := run.on(span):
                break
            found = run.found
            if float(np.abs(found.f).mean()) < stol:
                return asked.result(run.system, _polished(run.system, found, tol) or found)
            if (still_moving(before, found.y) <= 0).all():
                if (end := _polished(run.system, found, tol)) is not None:
                    return asked.result(run.system, end)
                run.options = run.options.tightened()  # what moves is the solver's own error
            if span < longest and 10 * (run.evaluations - start) > _SHORT:
                if why := run.swings():
                    break
                if (end := _polished(run.system, found, tol, _CLOSE)) is not None:
                    result = asked.result(run.system, end)
                    if result.stable:  # and swings that die away end there
                        return result
        else:
            why = run.moves(longest, stol)
    raise asked.refused(why, run.found)


class _Run:
    """A run to the steady state, from one look to the next.

    Attributes
    ----------
    at, y, evaluations
        Where it stands, and how often the rates were evaluated.
    system : AtParameters
        Whose rest is wanted, at that time.
    """

    def __init__(self, asked: _Asked, options: SolverOptions) -> None:
        self._asked, self.options, self.system = asked, options, asked.system
        self.at, self.y, self.evaluations = asked.t, asked.y, 0
        self._swing: Vector | None = None  # of the look before
        self._rows = np.empty((0, len(asked.y)))
        self._last = asked.t, asked.y  # of the evaluation before

    def _rates(self, time: float, z: Vector, inputs: Any) -> Any:
        self.evaluations += 1
        self._last = time, z
        return self._asked.system.at_time(time).rates(z)

    @property
    def found(self) -> NewtonState:
        """Where it stands, and the rates there."""
        return NewtonState(self.y, self.system.rates(self.y), None, False, self.evaluations)

    def on(self, span: float) -> str:
        """Run on to `span` after the beginning; return why that failed, or an empty string."""
        begin, end = self._asked.t, self._asked.t + span
        stepper = LsodaStepper(self._rates, self.options.with_structure(self.system.structure), _MOST_EVALUATIONS)
        times = np.linspace(max(self.at, begin + span / 2), end, _LOOKS + 1)[1:]
        self._swing = np.ptp(self._rows, axis=0) if len(self._rows) else None
        try:
            self._rows = stepper.advance(self.at, self.y, _NONE, times)[1]
        except SimulationError as error:
            time, y = self._last
            self._stand(time if error.time is None else error.time, y[:] if np.isfinite(y).all() else self.y)
            return f"The run to the steady state failed: {error}. {self._where()}."
        good = np.asarray((np.abs(self._rows) < ENDLESS).all(axis=1))
        last = int(np.argmin(good)) - 1 if not good.all() else len(good) - 1
        if last >= 0:
            self._stand(float(times[last]), self._rows[last])
        return "" if good.all() else f"The system does not come to rest: a state grows without end. {self._where()}."

    def _stand(self, at: float, y: Vector) -> None:
        self.at, self.y = at, np.array(y)
        self.system = self.system.at_time(at)

    def _where(self, i: int | None = None) -> str:
        """Return where a state stands and how fast it moves, in words; None: the fastest for its size."""
        f = self.found.f
        i = int(np.argmax(np.nan_to_num(np.abs(f)) / sizes_of(self.y))) if i is None else i
        return (
            f"At t={self.at:.6g} {self._asked.name(i)} is at {self.y[i]:.6g} and changes by {f[i]:.3g} per unit of time"
        )

    def swings(self) -> str:
        """Return that states go up and down as much as before, if so."""
        rows = self._rows
        half = len(rows) // 2
        before = np.ptp(rows[:half], axis=0) if self._swing is None else self._swing
        now = np.ptp(rows[half:], axis=0) if self._swing is None else np.ptp(rows, axis=0)
        i = int(np.argmax(now / sizes_of(np.abs(rows).max(axis=0))))
        steps = np.diff(rows[:, i])
        turns = int(np.sum(np.diff(np.sign(steps[steps != 0])) != 0))
        if turns < _TURNS or now[i] < _DECAYS * before[i]:
            return ""
        return (
            f"The system does not come to rest: {self._asked.name(i)} goes up and down between {rows[:, i].min():.6g} "
            f"and {rows[:, i].max():.6g}, no less than before. {self._where(i)}. If there is a steady state amid this, "
            "`steady` may find it, and says whether it is stable."
        )

    def moves(self, longest: float, stol: float) -> str:
        """Return what still moves at the end."""
        mean = float(np.abs(self.found.f).mean())
        return (
            f"The system does not come to rest within max_time={longest:g}. {self._where()}; the mean of all rates is "
            f"{mean:.3g} (stol={stol:g}). Give a longer max_time or a larger stol; a system that oscillates has a "
            "steady state that `steady` may find."
        )


def _polished(
    system: OfFunction, found: NewtonState, tol: SteadyTolerances, reach: float = _NEAR
) -> NewtonState | None:
    """Return the state at rest that Newton finds right there, None if there is none or many."""
    end = rest_from(system, found.y, tol, f=found.f)
    near = reach * (np.abs(found.y) + float(np.abs(found.y).max(initial=0.0)))
    if not end.converged or (np.abs(end.y - found.y) > near).any():
        return None
    if null_direction(system, end, system.rates) is not None:
        return None
    end.iterations = found.iterations
    return end
