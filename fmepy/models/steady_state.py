"""What a search for a steady state finds: `SteadyState`, or a sentence why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import NoSteadyStateError, SimulationError, counted
from fmepy.models.steady_rates import OfFunction, SteadyRates
from fmepy.numerics.at_rest import NewtonState, SteadyTolerances, null_direction, rest_from, rest_in_time, sizes_of
from fmepy.numerics.rightmost import rightmost
from fmepy.numerics.structure import difference_jacobian
from fmepy.results.tables import Part, Shown, long_table
from fmepy.types import Vector

_SHOWN = 6  # states in a message
_RUNAWAY = 1e6  # times the size of a start: states that grow without end
_FADED = 1e-6  # of its start: a rate that changes by less, where the states change by their size, has faded away
_NEUTRAL = 1e-9  # of the largest entry of a Jacobian by differences: eigenvalues below are zero
_NOTHING = 1e-6  # of the largest state: one that was pushed to zero
_HALVINGS = 12  # of a way on which a steady state may jump


class Linearised:
    """A system at rest, whose rightmost eigenvalue is found when it is first asked for; it travels as that."""

    def __init__(self, system: SteadyRates, y: Vector, f: Vector) -> None:
        self._given = system, y, f

    @cached_property
    def numbers(self) -> Vector:
        """The rightmost eigenvalue of the Jacobian: its real part, its imaginary part, and what differences leave."""
        system, y, f = self._given
        with np.errstate(all="ignore"):
            structure = system.structure
            J = difference_jacobian(system.rates, y, f, structure, sizes_of(y), central=True, positive=system.positive)
            found = rightmost(structure, J)
        return np.array([found.real, found.imag, _NEUTRAL * float(np.abs(J).max(initial=0.0))])

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (self.numbers.tolist(),)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SteadyState(Shown):
    """A steady state.

    Attributes
    ----------
    state : ndarray, or Series where the states have names
        Species after species.
    outputs : dict of str to (float or ndarray)
        What the function gives beside the rates, there.
    converged : bool
        False of the last iterate that an error carries (`NoSteadyStateError.last`).
    iterations : int
        Newton steps; of `runsteady` evaluations of the rates.
    residual : float
        The largest rate that is left, without its sign.
    n_species : int or None
        Profiles of so many species, one after the other; None where the states are no profiles.
    message : str
    linearised : Linearised, ndarray or None
        What `rightmost` and `stable` are made of.
    """

    state: Any
    outputs: dict[str, Any] = field(default_factory=dict)
    converged: bool = True
    iterations: int = 0
    residual: float = 0.0
    n_species: int | None = None
    message: str = ""
    linearised: Any = None

    @property
    def rightmost(self) -> complex | None:
        """The eigenvalue of the Jacobian with the largest real part, per unit of time; None where there is no state.

        It is computed when it is first asked for. Of a pair that swings it is the one with the positive imaginary part.
        """
        found = self._numbers()
        return None if found is None else complex(found[0], found[1])

    @property
    def eigenvalue(self) -> complex | None:
        """The same as `rightmost`."""
        return self.rightmost

    @property
    def stable(self) -> bool | None:
        """Whether small disturbances die away; None where `rightmost` has no sign but for rounding."""
        found = self._numbers()
        if found is None or not abs(found[0]) > found[2]:
            return None
        return bool(found[0] < 0)

    def _numbers(self) -> Vector | None:
        held = self.linearised
        found: Vector | None = held.numbers if isinstance(held, Linearised) else held
        return found

    def as_stored(self) -> SteadyState:
        """Return what is written: numbers."""
        return replace(self, linearised=self._numbers())

    @property
    def frame(self) -> pd.DataFrame:
        """The states: a row a state, or a row a cell and a column a species."""
        if self.n_species is None:
            index = self.state.index if isinstance(self.state, pd.Series) else range(1, len(self.state) + 1)
            return pd.DataFrame({"state": np.asarray(self.state)}, index=pd.Index(index))
        profiles = np.asarray(self.state).reshape(self.n_species, -1)
        names = ["state"] if len(profiles) == 1 else [str(k + 1) for k in range(len(profiles))]
        table = pd.DataFrame(profiles.T, columns=names)
        table.insert(0, "cell", np.arange(1, len(table) + 1))
        return table

    def shown(self) -> list[str | Part]:
        """Return how it was found, the states, and the outputs that are single numbers."""
        how = "Steady state" if self.converged else "No steady state"
        after = counted(self.iterations, "iteration")
        head = f"{how} of {len(self.state)} states: {after}, largest rate left {self.residual:.3g}"
        single = [f"{k} = {float(v):.6g}" for k, v in self.outputs.items() if np.ndim(v) == 0]
        rest = [f"{k} ({np.size(v)} values)" for k, v in self.outputs.items() if np.ndim(v)]
        beside = [f"outputs: {', '.join(single + rest)}"] if self.outputs else []
        stability = [] if self.linearised is None else [self._stability()]
        return [head, *([self.message] if self.message else []), *stability, long_table(self.frame), *beside]

    def _stability(self) -> str:
        """Return what is said of small disturbances."""
        value = self.rightmost
        if value is None or np.isnan(value.real):
            return "whether it is stable is not known: the Jacobian has no value, or its eigenvalues were not found"
        shown = f"{value.real:.4g}" + (f" +- {value.imag:.4g}i" if value.imag else "")
        if self.stable is None:
            return (
                f"neither stable nor unstable: the real part of the rightmost eigenvalue, {shown}, is zero but for "
                "rounding, as where something is conserved"
            )
        grows = "die away" if self.stable else "grow"
        return (
            f"{'stable' if self.stable else 'unstable'}: the rightmost eigenvalue is {shown}, so that small "
            f"disturbances {grows} by a factor of e in a time of {1 / abs(value.real):.4g}"
        )

    def plot(self, x: Any = None, *, xyswap: bool = True, axes: Any = None, **kwargs: Any) -> Any:
        """Draw the profiles, or the states as points.

        Parameters
        ----------
        x : array_like, or mapping of one name to an array, optional
            Where the cells lie, such as ``{"depth": grid.mid}``; default their numbers.
        xyswap : bool
            Draw x downwards.
        axes : array of Axes, optional
        **kwargs
            As of `plot_model`.

        Returns
        -------
        ndarray of Axes
        """
        from fmepy.plotting.models import plot_steady

        return plot_steady(self, x, xyswap=xyswap, axes=axes, **kwargs)


def state_names(names: tuple[str, ...], n: int, cells: int | None) -> Callable[[int], str]:
    """Return ``name(i)``: what state i is called in messages."""
    if cells is None:
        return lambda i: repr(names[i]) if names else f"state {i + 1}"
    several = n > cells
    return lambda i: (
        (f"{names[i // cells]!r} " if names else f"species {i // cells + 1} " if several else "")
        + (f"in cell {i % cells + 1}")
    )


def come_to_rest(system: SteadyRates, y: Vector, tol: SteadyTolerances) -> tuple[SteadyRates, NewtonState]:
    """Return the steady state that a start leads to: by Newton's method, else by steps in time.

    The system comes back too: its Jacobian may turn out to depend on more than was known.
    """
    found = _unless_run_off(system, y, rest_from(system, y, tol))
    if found.converged or not np.isfinite(found.f).all() or tol.used_up(found.iterations):
        return system, found
    spent = found.iterations
    if isinstance(system, OfFunction) and system.misses(found.y, found.f):
        system = system.completed(found.y)
        again = _unless_run_off(system, y, rest_from(system, y, tol.left(spent)))
        spent += again.iterations
        if again.converged or tol.used_up(spent):
            again.iterations = spent
            return system, again
    in_time = _unless_run_off(system, y, rest_in_time(system, y, tol.left(spent), system.algebraic))
    found.iterations = in_time.iterations = spent + in_time.iterations
    if not in_time.converged and _largest(in_time.y) > _RUNAWAY * (_largest(y) + _largest(found.y)):
        found.why += "; where it runs on, states grow without end"
        return system, found
    return system, in_time


Place = tuple[Vector, Vector]
"""Parameters and the steady state there."""


def jump_between(
    rest: Callable[[Vector, Vector], Vector | None], one: Place, two: Place, least: float = 0.3
) -> tuple[Place, Place] | None:
    """Return where a branch of steady states ends on the straight way from one to another, by halving, or None.

    Parameters
    ----------
    rest : callable
        ``rest(p, y)``, the steady state at p that y leads to; None if there is none.
    one, two : (p, y)
    least : float
        Of the largest state: less change is no jump. What halving makes a tenth of it is none either, nor that two lies
        on another branch, while the one that is followed goes on.
    """

    def apart(a: Vector, b: Vector) -> float:
        return float(np.abs(a - b).max())

    whole, end = apart(one[1], two[1]), two
    if not whole > least * max(np.abs(one[1]).max(), np.abs(two[1]).max()):
        return None
    for _ in range(_HALVINGS):
        p = (one[0] + two[0]) / 2
        if (y := rest(p, one[1])) is None:
            return None
        one, two = ((p, y), two) if apart(y, one[1]) <= apart(y, two[1]) else (one, (p, y))
        if apart(one[1], two[1]) < 0.1 * whole:
            return None
    return None if two is end else (one, two)


def _unless_run_off(system: SteadyRates, start: Vector, found: NewtonState) -> NewtonState:
    """Return what was found, not as converged where a rate fades to nothing as its state runs to infinity.

    At rest, what a rate is made of balances: it changes by about as much as it is at the start where the states change
    by their own size. A rate such as 1 - x/(1 + x) does not, and is zero at 1e16 by rounding.
    """
    if not found.converged:
        return found
    far = np.abs(found.y) > _RUNAWAY * _largest(start)
    if not far.any():
        return found
    with np.errstate(all="ignore"):
        s, turns = system.structure, np.zeros(len(found.y))
        np.add.at(turns, s.rows, np.abs(system.jacobian(found.y, found.f) * found.y[s.columns]))
        faded = turns < _FADED * np.abs(system.rates(start))
    if (far & faded).any():
        found.converged, found.why = False, "it has not arrived"
    return found


def _largest(y: Vector) -> float:
    return float(np.abs(y).max(initial=0.0))


def why_not(system: SteadyRates, found: NewtonState, tol: SteadyTolerances, name: Any, start: Vector) -> str:
    """Return why what was found from a start is no steady state, or an empty string."""
    is_far = not found.converged and 0 < _RUNAWAY * _largest(start) < _largest(found.y)
    v = None if is_far else null_direction(system, found, system.rates)
    if v is not None:
        moved = [name(i) for i in np.argsort(-np.abs(v)) if abs(v[i]) > 0.05 * np.abs(v).max()][:_SHOWN]
        return (
            f"The Jacobian is singular: no rate changes where {_and(moved)} change{'s' if len(moved) == 1 else ''} "
            "together, so that no single state is at rest. If something is conserved, runsteady finds the state that a "
            "start leads to; in a model, put a balance in the place of one of the rates."
        )
    if found.converged:
        return ""
    told = system.raised
    if not np.isfinite(found.f).all():
        i = int(np.argmin(np.isfinite(found.f)))
        cause = f"; the function raised {told}" if told else ""
        return (
            f"The rates have no value at the start: that of {name(i)} is {found.f[i]:g} at the state {found.y[i]:.6g}"
            f"{cause}. Give another start, or look for a coefficient that is no finite number."
        )
    worst = _worst(found)
    stand = (
        f"Where it stands ({_values(found.y, name)}) the largest rate is {abs(found.f[worst]):.3g}, that of "
        f"{name(worst)}"
    )
    small = _NOTHING * max(_largest(found.y), _largest(start))
    low = np.flatnonzero((found.y <= small) & (found.f < 0))
    if tol.positive and len(low):
        i = int(low[np.argmin(found.f[low])])
        return (
            f"There is no steady state without negative values, and positive=True was asked: the rates push {name(i)} "
            f"below zero (at {found.y[i]:.3g} its rate is {found.f[i]:.3g}). What takes away must vanish with the "
            f"concentration, as k*C/(C + ks) does. {stand}."
        )
    return (
        f"No steady state was found: {found.why or 'it has not arrived'} ({found.iterations} steps). {stand}. Give a "
        "start nearer to it, more steps (max_iter), or positive=True for concentrations; runsteady says whether the "
        "system comes to rest at all."
    )


def _worst(found: NewtonState) -> int:
    return int(np.argmax(np.abs(np.nan_to_num(found.f))))


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _values(y: Vector, name: Any) -> str:
    told = ", ".join(f"{name(i)} = {y[i]:.4g}" for i in range(min(len(y), _SHOWN)))
    return told + (f", ... {len(y)} states" if len(y) > _SHOWN else "")


def refused(
    why: str, found: NewtonState, state: Any, parameters: dict[str, float], n_species: int | None
) -> SimulationError:
    """Return the error of a search that ended without a steady state; it carries the last iterate."""
    left = float(np.abs(found.f).max(initial=0.0))
    last = SteadyState(state, {}, False, found.iterations, left, n_species, why)
    if parameters:
        why = f"{why} Parameters: {', '.join(f'{k}={v:.6g}' for k, v in list(parameters.items())[:12])}."
    return NoSteadyStateError(why, last=last, parameters=parameters)
