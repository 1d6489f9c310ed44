"""Algebraic states: solved for where a run begins, after events, and, for engines without a mass matrix, all along.

Of the states y = (x, w) of a model the x have rates and the w have equations::

    x' = f(t, x, w, p),    0 = g(t, x, w, p)

of index one: dg/dw is regular, so that w is a function of t, x and p, and::

    w' = -(dg/dw)^-1 (dg/dx f + dg/dt)                    dw/dp = -(dg/dw)^-1 (dg/dx dx/dp + dg/dp)

(the implicit function theorem; Hairer and Wanner 1996, section VI.1). The first predicts w along an
engine's steps, so that Newton's method stays on the branch where the run began. The second is the algebraic equation of
the sensitivities, which is linear.

References
----------
Hairer, E. and Wanner, G. (1996). Solving Ordinary Differential Equations II. Springer, 2nd edition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy  # its subpackages are loaded on first use: `import fmepy` needs none of them

from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.errors import ModelError, SimulationError, listed
from fmepy.language.derivatives import derivative
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.engines.base import SolverOptions
from fmepy.models.running.forcings import forced_at
from fmepy.models.running.system import InputLayout, System, along, build_system, system_rates
from fmepy.numerics.at_rest import SINGULAR_HERE, NewtonState, SteadyTolerances, null_direction, rest_from
from fmepy.numerics.finite import all_finite
from fmepy.numerics.structure import Structure, difference_jacobian, found_structure
from fmepy.types import IntVector, Matrix, Vector

_QUICK_STEPS = 6
"""Full Newton steps from the guess of an engine before a damped search is made."""
_MANY_STEPS = 50
"""Full Newton steps after a damped search has failed."""
_NEAR = 1e-8
"""Relative correction after which, by quadratic convergence, the next one is below rounding."""
_LARGEST_RESIDUAL = 100.0
"""Largest correction of the rows of an engine that is accepted, in units of its tolerances."""
_CONVERGED = 1e-6
"""Largest relative correction at the end of a search that has converged."""
_TINY = 1e-30
"""Added to the size of a state to which its correction is relative."""
_CAREFUL = SteadyTolerances(rtol=1e-9, atol=1e-14, ctol=1e-9, max_iter=50, positive=False)
_STEP_AHEAD = 1e-6
"""Step of a difference along the run, relative to the time in which states change by their own size."""
_MOST_SEARCHES, _STANDS = 10, 1e-3  # damped searches while time moves by less than this part of itself: no solution
_SMALL = 1e-3  # least size of an algebraic state, relative to the largest


class Constraints:
    """The algebraic equations of a first-order system z' = F(t, z, inputs), z = [y, s_1, ..., s_k].

    Parameters
    ----------
    definition : Definition
    system : System or None
        None for a model given as a function.
    layout : InputLayout
        Positions in the inputs.
    """

    def __init__(self, definition: Definition, system: System | None, layout: InputLayout) -> None:
        self._d, self._system, self._layout = definition, system, layout
        self.n = len(definition.states)
        self.places: IntVector = np.array(definition.algebraic_places, dtype=np.intp)
        self._code = None if system is None else _code(system)
        self._searches, self._since = 0, 0.0  # successive searches, and the time at which they began

    # --- the system, evaluated

    def whole(self, t: float, z: Vector, inputs: Any) -> Vector:
        """Return F: rates, and in the places of the algebraic states the residuals of their equations."""
        if self._system is not None:
            return np.array(system_rates(self._system)(t, z.tolist(), inputs[: self._layout.size]), dtype=float)
        function, n = self._d.function, self._layout.n_parameters
        assert function is not None, "a definition has equations or a function"
        return function(t, z, inputs[:n], self._layout.forcing_values(t, inputs))

    def _residuals(self, t: float, y: Vector, inputs: Any) -> Vector:
        if self._code is not None:
            return np.array(self._code.residuals(t, y, inputs), dtype=float)
        return self.whole(t, y, inputs)[self.places]

    @cached_property
    def _structure(self) -> Structure:
        """Structure of dg/dw."""
        d, places = self._d, self.places
        if self._code is not None:
            return self._code.structure
        p = d.parms.to_numpy(dtype=float)
        at = _AlgebraicPoint(
            self, 0.0, ValueTable(d.initial, d.parameters).value(p.tolist()), [*p, *[0.0] * self._layout.size]
        )
        try:
            with np.errstate(all="ignore"):
                return found_structure(at.rates, at.y[places])
        except Exception:  # the function may not be defined for these arguments
            return Structure.dense(len(places))

    def _count_search(self, t: float, anew: bool) -> None:
        """Count a damped search; raise a SimulationError if time stands still over successive searches.

        A solver that approaches a fold asks for values at ever closer times, each a long search.
        """
        if anew or self._searches == 0 or not abs(t - self._since) <= _STANDS * abs(t):
            self._searches, self._since = 0, t
        self._searches += not anew
        if self._searches > _MOST_SEARCHES:
            self._searches = 0
            raise SimulationError(
                f"the values of the algebraic states {listed(self._d.algebraic)} end here: each needs a long search, "
                f"and {_MOST_SEARCHES} of them made no progress in time. Beyond, the equations may have no solution (a "
                "fold), or another one: look at them there, or give `times` that end before",
                time=t,
            )

    # --- solutions

    def completed(self, t: float, z: Vector, inputs: Any) -> Vector:
        """Return z with algebraic states, and their sensitivities, that fulfil their equations.

        Raises
        ------
        SimulationError
            None were found from those in z.
        """
        return self._solved(t, z, inputs)[0]

    def _solved(self, t: float, z: Vector, inputs: Any, is_near: bool = False) -> tuple[Vector, _AlgebraicPoint]:
        """Return z, completed, and the equations there; is_near: the values in z are known to be near."""
        here = _AlgebraicPoint(self, t, z[: self.n].copy(), inputs)
        quick = here.is_corrected(is_near)
        self._count_search(t, quick or not is_near)  # one without a near guess may start another run
        if not quick:
            here.find()
        z = z.copy()
        z[: self.n] = here.y
        if len(z) > self.n:  # linear in those of the algebraic states: one step of Newton's is exact
            left = self.whole(t, z, inputs)[self.n :].reshape(-1, self.n)[:, self.places]
            S = z[self.n :].reshape(-1, self.n)  # a view
            S[:, self.places] -= here.solve(left.T).T
        return z, here

    def rates(self, t: float, z: Vector, inputs: Any) -> Vector:
        """Return z' as an ordinary system: algebraic states are solved for, and have the rates that follow.

        Their sensitivities need no guess and have the rate zero. If the algebraic states have no values, the run fails
        (SimulationError): solvers do not recover from such a step.
        """
        z, here = self._solved(t, z, inputs, is_near=True)
        out = self.whole(t, z, inputs)
        out.reshape(-1, self.n)[:, self.places] = 0.0
        slopes = -here.solve(self._along(t, z[: self.n], out[: self.n], inputs))
        out[self.places] = slopes if all_finite(slopes) else 0.0
        return out

    def checked(self, t: Vector, rows: Matrix, inputs: Any, rtol: float, atol: Vector) -> Matrix:
        """Return rows of an engine that solves the equations itself, improved by one Newton step.

        Raises
        ------
        SimulationError
            The rows violate the equations by more than the tolerances allow. Newton's method with an old dg/dw may
            stop at a correction that is small only for that reason, and so lose a fast equilibrium silently.
        """
        assert self._code is not None, "such engines run equations"
        m, s, Y = len(self.places), self._code.structure, rows[:, : self.n].T
        J = np.zeros((len(rows), m, m))
        for i, j, entry in zip(s.rows, s.columns, self._code.entries_of_rows(t, Y, inputs), strict=True):
            J[:, i, j] = entry
        g = np.stack([np.broadcast_to(e, len(rows)) for e in self._code.residuals_of_rows(t, Y, inputs)], -1)
        try:
            d = np.linalg.solve(J, g[:, :, None])[:, :, 0]
        except np.linalg.LinAlgError:
            d = np.full_like(g, np.nan)
        w = rows[:, self.places]
        inaccurate = ~(np.abs(d) <= _LARGEST_RESIDUAL * (rtol * np.abs(w) + atol[self.places]))
        if inaccurate.any():
            row, i = np.argwhere(inaccurate)[0]
            raise SimulationError(
                f"the solver has lost the algebraic equation of {self._d.algebraic[i]!r}", time=float(t[row])
            )
        rows[:, self.places] = w - d
        return rows

    def _along(self, t: float, y: Vector, f: Vector, inputs: Any) -> Vector:
        """Return dg/dt + dg/dx f."""
        if self._code is not None:
            return np.array(self._code.along(t, y, inputs), dtype=float)
        speed = float((np.abs(f) / (np.abs(y) + _SMALL * float(np.abs(y).max(initial=0.0)) + 1e-300)).max())
        h = _STEP_AHEAD / max(speed, 1.0 / max(abs(t), 1.0))
        ends = [self._residuals(t + s * h, y + s * h * f, inputs) for s in (1.0, -1.0)]
        return np.asarray((ends[0] - ends[1]) / (2 * h))


@dataclass(slots=True)
class _AlgebraicPoint:
    """The algebraic equations at one time and state, `fmepy.numerics.at_rest.Resting` in the algebraic states alone.

    Attributes
    ----------
    values : ndarray
        The entries of dg/dw where a search has ended.
    """

    of: Constraints
    t: float
    y: Vector
    inputs: Any
    values: Any = None

    @property
    def structure(self) -> Structure:
        return self.of._structure

    def rates(self, w: Vector) -> Vector:
        """Return g, NaN where it has no value."""
        y = self.y.copy()
        y[self.of.places] = w
        try:
            return self.of._residuals(self.t, y, self.inputs)
        except (ValueError, ArithmeticError) as error:
            if isinstance(error, ModelError):
                raise
            return np.full(len(w), np.nan)

    def jacobian(self, w: Vector, f: Vector) -> Vector:
        """Return the entries of dg/dw."""
        if self.of._code is None:
            size = np.abs(w) + _SMALL * (float(np.abs(w).max(initial=0.0)) or 1.0)
            return difference_jacobian(self.rates, w, f, self.structure, size)
        y = self.y.copy()
        y[self.of.places] = w
        return np.array(self.of._code.entries(self.t, y, self.inputs), dtype=float)

    def solve(self, b: Any) -> Any:
        """Return x of dg/dw x = b; NaN where dg/dw is singular."""
        found = self.structure.solver(self.values)
        return found.solve(b) if found.pivots > 0 else np.full_like(b, np.nan)

    def is_corrected(self, is_near: bool, most: int = _QUICK_STEPS) -> bool:
        """Move y towards g = 0 by a few full Newton steps; tell whether they converged.

        Unless y is near, each step must be half as long as the one before, and leave positive values a tenth at least.
        """
        places, before = self.of.places, np.inf
        w = self.y[places]
        for _ in range(most):
            g = self.rates(w)
            self.values = self.jacobian(w, g)
            d = -self.solve(g)
            moved, length = w + d, float((np.abs(d) / (np.abs(w) + np.abs(w + d) + _TINY)).max())
            if not length < np.inf or not (is_near or (length < 0.5 * before and (moved >= 0.1 * w)[w > 0].all())):
                return False
            w, before = moved, length
            if length <= _NEAR:
                self.y[places] = w
                return True
        return False

    def find(self) -> None:
        """Move y to where g is zero by a damped search, or by full Newton steps, as the knee of a diode may need."""
        found = self.search()
        if not found.converged:
            if self.is_corrected(is_near=True, most=_MANY_STEPS):
                return
            raise SimulationError(self.failure_text(found), time=self.t)
        self.y[self.of.places] = found.y

    def search(self) -> NewtonState:
        """Return a damped search for a zero of g from y; if y is positive, for a positive zero first."""
        w = self.y[self.of.places]
        with np.errstate(all="ignore"):
            if (w > 0).all():
                found = self._confirmed(rest_from(self, w, replace(_CAREFUL, positive=True)))
                if found.converged:
                    return found
            return self._confirmed(rest_from(self, w, _CAREFUL))

    def _confirmed(self, found: NewtonState) -> NewtonState:
        """Return a search, marked as not converged if a Newton step with dg/dw at its end leads away."""
        if found.converged:
            w, self.values = np.abs(found.y), self.jacobian(found.y, found.f)
            d = np.abs(self.solve(found.f))
            if (d > _CONVERGED * (w + _CONVERGED * w.max())).any():
                found.converged, found.why = False, "Newton's steps do not settle"
        return found

    def failure_text(self, found: NewtonState) -> str:
        """Return the message about a search without a result."""
        states = self.of._d.algebraic
        stands = ", ".join(f"{s} = {v:.6g}" for s, v in zip(states, found.y[:6], strict=False))
        if not all_finite(found.f):
            i = int(np.argmin(np.isfinite(found.f)))
            return (
                f"the algebraic equation {equation_of(self.of._d, i)} has no value where the search stands ({stands})"
            )
        i = int(np.argmax(np.abs(found.f)))
        return (
            f"no values of the algebraic states {listed(states)} were found that fulfil their equations: {found.why}, "
            f"at {stands}, where {equation_of(self.of._d, i)} leaves {found.f[i]:.3g}; give nearer guesses in `state`"
        )


class _Code:
    """Functions of (t, y, inputs) of a system's equations."""

    def __init__(self, system: System) -> None:
        n, rates = system.n_states, system.model_rates
        y = system.z[:n]
        w, g = [y[i] for i in system.algebraic], [rates[i] for i in system.algebraic]
        x = [(s, f) for i, (s, f) in enumerate(zip(y, rates, strict=True)) if i not in system.algebraic]
        self.structure = s = Structure.of(np.array([[v in e.free_symbols for v in w] for e in g], dtype=bool))
        entries = [derivative(g[i], w[j]) for i, j in zip(s.rows, s.columns, strict=True)]
        moved = [derivative(e, system.time) + along(e, [v for v, _ in x], [f for _, f in x]) for e in g]
        self._groups, self._size = [[system.time], y, system.inputs], system.layout.size
        self.residuals, self.entries, self.along = map(self._at_one_time, (g, entries, moved))
        self.residuals_of_rows, self.entries_of_rows = map(self._of_rows, (g, entries))

    def _at_one_time(self, expressions: Any) -> Callable[..., Any]:
        function, size = scalar_function(self._groups, expressions), self._size
        return lambda t, values, inputs: function((t,), values.tolist(), inputs[:size])

    def _of_rows(self, expressions: Any) -> Callable[..., Any]:
        function, size = array_function(self._groups, expressions), self._size
        return lambda t, Y, inputs: function((t,), Y, inputs[:size])


_code = lru_cache(maxsize=64)(_Code)


def equation_of(definition: Definition, i: int) -> str:
    """Return the name of algebraic equation i in messages."""
    e, place = definition.equations, definition.algebraic_places[i]
    if e is None or definition.function is not None:
        return f"the one in the place of {definition.algebraic[i]!r}"
    return f"`0 = {e.rates[place]}`"


# --- between the stretches of a run


class Settled:
    """Makes a state consistent at one time, outside any segment: conditions are evaluated, not held as modes.

    Parameters
    ----------
    definition : Definition
        With algebraic states.
    names : sequence of str
        The parameters with sensitivities.
    """

    def __init__(self, definition: Definition, names: tuple[str, ...]) -> None:
        equations = definition.equations
        system = None if equations is None else build_system(equations, names, False)
        layout = InputLayout(len(definition.parms), len(definition.forcings)) if system is None else system.layout
        self.constraints = Constraints(definition, system, layout)
        self._forcings, self.layout = definition.forcings, layout

    def of(self, p: Vector, scales: Vector | None) -> Callable[[float, Vector], Vector]:
        """Return ``settle(t, z)``, which returns z with algebraic states that fulfil their equations at time t."""

        def settle(t: float, z: Vector) -> Vector:
            with np.errstate(all="ignore"):
                return self.constraints.completed(t, z, self.layout.inputs_at(p, scales, forced_at(self._forcings, t)))

        return settle


class CompletedStepper:
    """An engine whose segments start with consistent states, and whose rows are consistent.

    Parameters
    ----------
    stepper : Stepper
    constraints : Constraints
    options : SolverOptions
    solves : bool
        Whether the engine solves the algebraic equations itself, beside the rates, so that its rows are only checked.
    """

    def __init__(self, stepper: Any, constraints: Constraints, options: SolverOptions, solves: bool) -> None:
        self._stepper, self.constraints, self._options, self._solves = stepper, constraints, options, solves
        self.name, self.watches_switches = stepper.name, stepper.watches_switches

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        plain, constraints, options = inputs.tolist(), self.constraints, self._options
        with np.errstate(all="ignore"):
            at, rows = self._stepper.advance(start, constraints.completed(start, z, plain), inputs, times)
            if self._solves:
                return at, constraints.checked(np.asarray(at), rows, plain, options.rtol, options.atol)
            for i in range(len(rows)):
                if all_finite(rows[i]):
                    rows[i] = constraints.completed(float(at[i]), rows[i], plain)
        return at, rows


# --- check of a new model


def check_index(definition: Definition, start: float) -> None:
    """Refuse (ModelError) algebraic equations that do not determine the algebraic states at the model's own start."""
    d = definition
    if len(d.algebraic) == len(d.states):
        raise ModelError(
            f"No state of the model has a rate: {listed(d.states)} {'is' if len(d.states) == 1 else 'are'} algebraic. "
            "SteadyModel solves such equations."
        )
    settled, p = Settled(d, ()), d.parms.to_numpy(dtype=float)
    try:
        y = ValueTable(d.initial, d.parameters).value(p.tolist())
    except SimulationError:  # the first run will raise it
        return
    inputs = settled.layout.inputs_at(p, None, forced_at(d.forcings, start))
    here = _AlgebraicPoint(settled.constraints, start, y, inputs)
    with np.errstate(all="ignore"):
        found = here.search()
        if not all_finite(found.f) or not (found.converged or found.why == SINGULAR_HERE):
            return  # no start from this guess: left to the run, as other parameters may have one
        v = null_direction(here, found, here.rates)
    if v is None:
        return
    moved = np.abs(v) * (np.abs(found.y) + _SMALL * (float(np.abs(found.y).max()) or 1.0))  # v is in units of sizes
    free = [s for s, part in zip(d.algebraic, moved, strict=True) if part > 0.05 * moved.max()]
    from scipy.sparse.csgraph import maximum_bipartite_matching

    matched = maximum_bipartite_matching(_entries_of(here, found), perm_type="row")
    unmatched = [i for i in range(len(d.algebraic)) if i not in matched]
    of = f"dg/d({', '.join(d.algebraic)}) of 0 = g"
    if unmatched:  # whatever the values
        raise ModelError(
            f"The model is of an index above one, which no engine solves: {of} is singular, so that the algebraic "
            f"equations do not determine {listed(free)}; {' and '.join(equation_of(d, i) for i in unmatched[:4])} "
            f"{'does' if len(unmatched) == 1 else 'do'} not contain a state to be solved for. Differentiate it with "
            "respect to time and insert the rates, repeatedly, until it contains an algebraic state; put the result in "
            "its place, with initial values that fulfil the original one."
        )
    stands = ", ".join(f"{s} = {w:.6g}" for s, w in zip(d.algebraic, found.y[:6], strict=False))
    raise ModelError(
        f"The algebraic equations do not determine {listed(free)} at the start ({stands}): {of} is singular there. If "
        "it is so in this state only, give another guess in `state`; if everywhere, the model is of an index above "
        "one, which no engine solves: one of the equations follows from the others, or must be differentiated with "
        "respect to time until it determines an algebraic state."
    )


def _entries_of(here: _AlgebraicPoint, found: NewtonState) -> Any:
    """Return which algebraic equations depend on which algebraic states, at the end of a search or beside it."""
    s, beside = here.structure, found.y + 0.1 * (1 + np.abs(found.y))
    moves = [np.nan_to_num(here.jacobian(w, here.rates(w)), nan=1.0) != 0 for w in (found.y, beside)]
    entries = np.logical_or(*moves)
    return scipy.sparse.csr_matrix((entries[entries], (s.rows[entries], s.columns[entries])), shape=(s.n, s.n))
