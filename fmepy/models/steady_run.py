"""One steady state in the manner of rootSolve: `steady`, `steady_1d`, `runsteady`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import positive_number, whole_number
from fmepy.errors import ArgumentError, ModelError, SimulationError
from fmepy.models.definition.given import as_state
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.engines.base import SolverOptions
from fmepy.models.engines.scipy_steppers import LsodaStepper
from fmepy.models.from_rest import SPANS, still_moving
from fmepy.models.steady_rates import AtParameters, OfFunction
from fmepy.models.steady_state import SteadyState, come_to_rest, refused, state_names, why_not
from fmepy.numerics.at_rest import Found, Tolerances, null_direction, rest_from
from fmepy.types import Vector

_NEAR = 1e-3  # relative: the state at rest that Newton finds from one that nearly rests is the same
_NONE = np.empty(0)


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
    max_iter: int = 100,
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
    max_iter : int
        Most Newton steps.

    Returns
    -------
    SteadyState
        ``state`` (an array; a Series where `y` has names), ``outputs``, ``iterations``, ``residual``.

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
    return _found(_Asked(y, func, parms, t), tol)


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
    max_iter: int = 100,
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
    return _found(_Asked(y, func, parms, t, nspec), tol)


def tolerances(rtol: Any, atol: Any, ctol: Any, max_iter: Any, positive: Any) -> Tolerances:
    """Return the tolerances of a search, checked."""
    if not isinstance(positive, bool | np.bool_):
        raise ArgumentError(f"`positive={positive!r}` must be True or False; it is about all states.")
    if np.ndim(atol):
        atol = np.array([positive_number(a, "atol") for a in np.ravel(atol)])
    else:
        atol = positive_number(atol, "atol")
    most = whole_number(max_iter, "max_iter", 1)
    return Tolerances(positive_number(rtol, "rtol"), atol, positive_number(ctol, "ctol"), most, bool(positive))


class _Asked:
    """What is asked: a start, a function of it, and what its states are called."""

    def __init__(self, y: Any, func: Any, parms: Any, t: Any, nspec: int | None = None) -> None:
        if not callable(func):
            raise ModelError(f"`func` must be a function func(t, y, parms); got {type(func).__name__}.")
        self.index = as_state(y) if isinstance(y, Mapping | pd.Series) else None
        try:
            start = list(self.index.values()) if self.index is not None else np.ravel(y)
            self.y = np.array(start, dtype=float)
        except (TypeError, ValueError):
            raise ModelError(f"`y` must be numbers, or numbers by name; got {y!r}.") from None
        if not self.y.size or not np.isfinite(self.y).all():
            raise ModelError("`y` must hold at least one number, all of them finite.")
        n = self.y.size
        self.n_species = None if nspec is None else whole_number(nspec, "nspec", 1, n)
        if self.n_species is not None and n % self.n_species:
            raise ModelError(
                f"`y` has {n} states, which is no multiple of nspec={nspec}: each species needs one value a cell."
            )
        given = {} if parms is None else parms.to_dict() if isinstance(parms, pd.Series) else parms
        names = tuple(self.index) if self.index is not None else tuple(str(i + 1) for i in range(n))

        def rates(time: float, all_states: Vector, inputs: Any) -> Any:
            return func(time, all_states, given)

        self.t = float(t)
        function = RatesFunction(rates, "vector", names, (), ())
        self.source = OfFunction(function, self.t, self.y, _NONE, blocks=self.n_species or 0)
        self.source.tried(columns=False)
        self.name = state_names(tuple(self.index or ()), n, None if self.n_species is None else n // self.n_species)

    def system(self, positive: bool) -> AtParameters:
        """Return the system whose rest is wanted."""
        return AtParameters(self.source, _NONE, positive, self.source.structure)

    def labelled(self, y: Vector) -> Any:
        """Return states as they were given: by name, or as an array."""
        return pd.Series(y, index=list(self.index), name="state") if self.index is not None else y

    def result(self, found: Found) -> SteadyState:
        """Return what was found."""
        left = float(np.abs(found.f).max(initial=0.0))
        given = self.source.outputs(found.y, _NONE)
        outputs = {k: float(v) if np.ndim(v) == 0 else np.array(v) for k, v in given.items()}
        return SteadyState(self.labelled(found.y), outputs, True, found.iterations, left, self.n_species)

    def refused(self, why: str, found: Found) -> SimulationError:
        """Return the error of a search without a result."""
        return refused(why, found, self.labelled(found.y), {}, self.n_species)


def check_not_negative(y: Vector, name: Any, argument: str) -> None:
    """Refuse a start that is negative where no state may be (ModelError)."""
    low = np.flatnonzero(y < 0)
    if len(low):
        raise ModelError(
            f"`{argument}`: {name(int(low[0]))} begins at {y[low[0]]:g}, and positive=True says that no state is "
            "negative. Begin at zero or above, or leave positive out."
        )


def _found(asked: _Asked, tol: Tolerances) -> SteadyState:
    if np.ndim(tol.atol) and len(tol.atol) != asked.y.size:
        raise ArgumentError(f"`atol` has {len(tol.atol)} values for {asked.y.size} states.")
    if tol.positive:
        check_not_negative(asked.y, asked.name, "y")
    with np.errstate(all="ignore"):
        system, found = come_to_rest(asked.system(tol.positive), asked.y, tol)
        if why := why_not(system, found, tol, asked.name, asked.y):
            raise asked.refused(why, found)
        return asked.result(found)


# --- by running on


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
    """Return the state in which a system comes to rest when it runs on, in the manner of rootSolve's `runsteady`.

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
        The system still moves after `max_time` (which state, how fast), or the run fails; ``error.last`` is where it
        stood.

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
    system = asked.system(False)
    options = SolverOptions(
        "lsoda", positive_number(rtol, "rtol"), np.full(len(asked.y), positive_number(atol, "atol"))
    )
    tol = Tolerances(min(rtol, 1e-6), min(atol, 1e-8), 1e-8, 20, False)
    count = 0

    def rates(time: float, z: Vector, inputs: Any) -> Vector:
        nonlocal count
        count += 1
        return asked.source.at_time(time).rates(z, _NONE)

    at, before, found = asked.t, asked.y, Found(asked.y, np.full(len(asked.y), np.nan), None, False, 0)
    with np.errstate(all="ignore"):
        for span in longest * np.array(SPANS) / SPANS[-1]:
            stepper = LsodaStepper(rates, options.with_structure(system.structure))
            try:
                now = stepper.advance(at, before, _NONE, np.array([asked.t + span]))[1][-1]
            except SimulationError as error:
                found.iterations = count
                raise asked.refused(f"The run to the steady state failed: {error}.", found) from error
            at = asked.t + span
            system = replace(system, source=asked.source.at_time(at))
            found = Found(now, system.rates(now), None, False, count)
            if float(np.abs(found.f).mean()) < stol:
                return asked.result(_polished(system, found, tol) or found)
            if (still_moving(before, now) <= 0).all():
                if (end := _polished(system, found, tol)) is not None:
                    return asked.result(end)
                options = options.tightened()  # what moves is the solver's own error
            before = now
    i = int(np.argmax(np.abs(found.f)))
    raise asked.refused(
        f"The system does not come to rest within max_time={longest:g}: {asked.name(i)} is at {found.y[i]:.6g} and "
        f"changes by {found.f[i]:.3g} per unit of time; the mean of all rates is "
        f"{float(np.abs(found.f).mean()):.3g} (stol={stol:g}). Give a longer max_time or a larger stol; a system that "
        "oscillates has a steady state that `steady` may find.",
        found,
    )


def _polished(system: AtParameters, found: Found, tol: Tolerances) -> Found | None:
    """Return the state at rest that Newton finds right there, None if there is none or many."""
    end = rest_from(system, found.y, tol, f=found.f)
    near = _NEAR * (np.abs(found.y) + float(np.abs(found.y).max(initial=0.0)))
    if not end.converged or (np.abs(end.y - found.y) > near).any():
        return None
    if null_direction(system, end, system.rates) is not None:
        return None
    end.iterations = found.iterations
    return end
