"""What an engine for differential equations must provide.

A new engine is one file that ends in an `Engine`, and one line in `models.engines.registry`. The `Engine` says what the
engine is called, what it needs and can, and how it is made for a problem; what it makes is a *stepper*, a class with
one method, `advance`. (Fixed steps need less: one function a method, see `models.engines.fixed`.)

A stepper carries z over one *segment*, a stretch of time without events, kinks or jumps; the driver
(`models.running.timeline`) cuts a run into segments and does everything that happens between them, the same way for
every engine:

1. ``advance`` starts at ``(start, z)`` and returns z at ``times`` (increasing, ``times[0] >= start``, at least one
   later than `start`; the last is the end of the segment), shape (n_times, n_z);
2. it never evaluates the rates beyond ``times[-1]``;
3. if it watches switches (``watches_switches``) it may come back early: it then returns fewer rows, the last of them at
   the crossing, and the times that belong to them;
4. it raises SimulationError if it cannot go on (step limit, step size, no convergence), with the time reached where
   that is known; it need not look for NaN, the driver does;
5. it may offer ``along(course, definition)`` (`compiled.explicit_runs.Course`): whole runs along one course, from all
   parameters of the model to its states and outputs, without Python in between and without its lock, so that threads
   share the work: ``one(p) -> Y`` raises SimulationError, ``many(P) -> (Y, which runs came to their end)``; of a system
   with sensitivities ``with_slopes(p) -> (Y, S)``. It is not asked where the course depends on
   the run;
6. it may offer ``advance_into(rows, start, z, inputs, times)``, which writes z at all times into an array, and raises
   SimulationError where one is not finite;
7. it keeps nothing from one call to the next that could change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from fmepy.compiled import status
from fmepy.compiled.crossings import NEVER, PLACES, first_crossing, has_crossed, located
from fmepy.errors import FmepyError, SimulationError
from fmepy.types import IntVector, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.language.equations import Equations
    from fmepy.models.definition.definition import Definition
    from fmepy.models.running.problem import InitialValueProblem
    from fmepy.numerics.structure import Structure


@dataclass(frozen=True, slots=True, eq=False)
class SolverOptions:
    """Method, tolerances (atol by state) and what else a solver is told.

    `bandwidth` is that of the Jacobian (lower, upper), of the states in their own order or, where it is given, in
    `order`: then state ``order[k]`` is the k-th.
    """

    method: str
    rtol: float
    atol: Vector
    dt: float | None = None
    bandwidth: tuple[int, int] | None = None
    max_step: float = np.inf
    order: IntVector | None = None

    def with_structure(self, structure: Structure) -> SolverOptions:
        """Return options with the band of a Jacobian, where it has one that is worth it and none was given."""
        order, lower, upper = structure.band
        if self.bandwidth is not None or 2 * (lower + upper + 1) > structure.n:
            return self
        is_own = bool((order == np.arange(structure.n)).all())
        return replace(self, bandwidth=(lower, upper), order=None if is_own else order)

    def with_tolerances(self, rtol: float, atol: Vector) -> SolverOptions:
        """Return options with other tolerances."""
        return replace(self, rtol=rtol, atol=atol)

    def tightened(self, factor: float = 1e-3) -> SolverOptions:
        """Return options with smaller tolerances, rtol not below 1e-12; atol follows it, whatever its size."""
        rtol = min(self.rtol, max(self.rtol * factor, 1e-12))
        return self.with_tolerances(rtol, self.atol * (rtol / self.rtol))


class Stepper(Protocol):
    """An engine, ready to run one system; see the module's text."""

    name: str
    watches_switches: bool

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them)."""


def _no_equations(definition: Definition) -> str:
    return definition.note


def _nothing(equations: Equations, *roots: Any) -> str:
    return ""


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """What is known of an engine before it runs.

    Attributes
    ----------
    name : str
        What users type as ``engine=``. Entries may share it (scipy's solvers, and the fixed steps).
    methods : tuple of str
        What users type as ``method=``; the first is the default. No two entries share one.
    stepper : callable, optional
        ``stepper(problem, options)`` returns a `Stepper`; the method is one of `methods`.
    steps : mapping of str to callable
        Of fixed steps: by method ``step(rates, t, z, h, u)``, see `models.engines.fixed`. Empty if the engine chooses
        its steps.
    needs_equations : bool
        Whether it runs equations alone (compiled engines), or any callable.
    refuses : callable
        ``refuses(equations)`` returns why it cannot run them, or an empty string; of a model with root events it is
        called ``refuses(equations, roots)``.
    refuses_arrays : callable
        Of an engine that needs equations: ``refuses_arrays(definition)`` returns why it cannot run a function without.
    limits_steps : bool
        Whether it keeps `max_step`.
    keeps_past : bool
        Whether it runs models with delays.
    watches_switches : bool
        Whether its steppers stop where a condition of the states changes its truth. One that does not goes across, and
        has no exact sensitivities of models with such conditions.
    rank : float or None
        Place in the order in which "auto" tries the engines; None: only where it is asked for.
    has_mass : tuple of str
        Methods that solve algebraic equations beside the rates, so that every row fulfils them to the tolerances; for
        the rows of the others `running.algebraic` does.
    """

    name: str
    methods: tuple[str, ...]
    stepper: Callable[[InitialValueProblem, SolverOptions], Stepper] | None = None
    steps: Mapping[str, Callable[..., Vector]] = field(default_factory=dict)
    needs_equations: bool = False
    refuses: Callable[..., str] = _nothing
    refuses_arrays: Callable[[Definition], str] = _no_equations
    limits_steps: bool = True
    keeps_past: bool = False
    watches_switches: bool = False
    rank: float | None = None
    has_mass: tuple[str, ...] = ()

    def why_not(self, definition: Definition, limited: bool = False) -> str:
        """Return why the engine cannot run a model, or an empty string; `limited`: its steps are."""
        if limited and not self.limits_steps:
            return f"`max_step` is given, and {self.name} has no largest step"
        if self.needs_equations and definition.equations is None:
            return self.refuses_arrays(definition)
        if definition.has_delays and not self.keeps_past:
            return (
                "the model reads the past (lag), which it does not keep; models with delays run on engine='compiled' "
                "alone, by an explicit method: one that is stiff has no engine here"
            )
        if definition.roots and not self.watches_switches:
            return f"{self.name} does not stop where a root event fires"
        roots = (definition.roots,) if definition.roots else ()
        return "" if definition.equations is None else self.refuses(definition.equations, *roots)


def steps_of(span: float, max_step: float) -> int:
    """Return the steps that `max_step` alone takes over a span, at most ten million; limits of steps allow for them."""
    return int(min(span / max_step, 1e7))


# --- why a compiled run did not come to its end

MOST_STEPS = 100_000
"""Steps of one segment, rejected ones included, before a run is given back."""

_WHY = {
    status.STEP_TOO_SMALL: "the step became too small",
    status.STIFF: "the model is stiff here (the run is held to the explicit method, or has no Jacobian that compiles)",
    status.NO_RATES: "the rates are not finite",
    status.EXPLODED: "a state runs to infinity",
}


class NotWholeError(Exception):
    """A whole run did not come to its end, and is to be one of stretches: there somebody sees why."""


def failure_of(
    ended: float, reached: float, states: Sequence[Any], most_steps: int, worst: Sequence[float] = ()
) -> SimulationError:
    """Return the error of a run that ended so, `worst` being the state it ended for, its value, and its rate."""
    if ended == status.NOT_FINITE:
        return SimulationError("a state became NaN or infinite", time=reached)
    if ended == status.NO_VALUE:
        return SimulationError("an initial or event value is not finite", time=reached)
    why = _WHY.get(int(ended), f"more than {most_steps} steps")
    if worst:
        state, value, rate = states[int(worst[0])], *worst[1:]
        changes = f"changes by {rate:.3g} a unit of time" if np.isfinite(rate) else "has a rate that is not finite"
        why += f" ({state} = {value:.6g} {changes})"
    exploded = ended == status.EXPLODED
    if exploded and worst and worst[1] < 0:
        remedy = f"pass atol={{{str(state)!r}: 0}} to the model"
        why += f". If {state} is never negative, the solver's error has grown: {remedy}"
    return SimulationError(f"the compiled solver gave up: {why}", time=reached, exploded=exploded)


# --- stretches of engines that step in Python: rows inside steps, and the first crossing of what is watched

Step = tuple[float, float, Vector, Callable[[Vector], Matrix]]
"""Its beginning and its end, z there, and a function: z at times within it, one a row."""


@contextmanager
def as_failures(reached: Sequence[float] = ()) -> Iterator[None]:
    """Make a failed run of whatever a user's function raises; `reached` holds the time, where it is known."""
    try:
        yield
    except FmepyError:  # ours are ValueErrors too
        raise
    except Exception as error:
        why = f"the model's function failed: {type(error).__name__}: {error}"
        raise SimulationError(why, time=reached[0] if reached else None) from error


def carried(
    steps: Iterable[Step], watch: Callable[[float, Vector], Any], n_watched: int, start: float, z: Vector, times: Vector
) -> tuple[Vector, Matrix]:
    """Return (times reached, z at them) along steps, up to the first crossing; see `engines.base`.

    Parameters
    ----------
    steps : iterable of Step
        From `start` to the last of `times`.
    watch : callable
        ``watch(t, z)`` returns what must not cross zero, `n_watched` numbers.
    """
    out, row, room = np.empty((len(times), len(z))), 0, np.empty(len(z))
    if times[0] == start:
        out[0], row = z, 1
    seen = np.empty((status.WATCH_ROWS, n_watched))
    if n_watched:
        seen[0] = watch(start, z)

    def dense(s: float, z: Vector, step: Any, place: Vector) -> None:
        t, h, within, ahead = step
        place[:] = ahead[s] if s in ahead else within(np.array([t + s * h]))[0]

    def look(t: float, z: Vector, model: Any, place: Vector) -> None:
        place[:] = watch(t, z)

    for t, end, z_end, within in steps:
        h, upto = end - t, int(np.searchsorted(times, end, side="right"))
        if row < upto:
            out[row:upto] = within(times[row:upto])
        if n_watched:
            ahead = dict(zip(PLACES, within(t + h * np.array(PLACES)), strict=True))  # one call takes less than three
            seen[1], step = watch(end, z_end), (t, h, within, ahead)
            s = first_crossing(dense, look, None, t, h, z, step, seen, room)
            for k in range(row, upto):
                if times[k] >= t + s * h:
                    break
                seen[2] = watch(times[k], out[k])
                if has_crossed(seen[0], seen[2]):
                    s = located(dense, look, None, t, h, z, step, 0.0, (times[k] - t) / h, seen, room)
            if s != NEVER:
                at = min(t + s * h, end)
                before = times < at
                return np.append(times[before], at), np.vstack([out[: before.sum()], within(np.array([at]))])
            np.copyto(seen[0], seen[1], where=~np.isnan(seen[1]))  # one without a value stays on its side
        row = upto
    return times, out
