"""What a filter knows of a model: noise, start, accumulators, propagation, in equations.

A `Specification` holds everything of a `FimlofCost` that does not depend on the data but for the names of what was
observed. It is immutable and pickles; `specify` makes it, and what is compiled from it is made where it is needed
(`bound_filter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from fmepy.costs.noise import Noise
from fmepy.errors import ModelError
from fmepy.filtering.numeric_statespace import UntracedSpace
from fmepy.filtering.statespace import StateSpace
from fmepy.language.equations import Equations, symbol
from fmepy.language.nodes import ZERO
from fmepy.models.definition.definition import Definition
from fmepy.models.running.events import Event
from fmepy.types import Vector

FIXED = ("euler", "rk4", "rk4_moment")
"""Propagations by fixed steps."""


@dataclass(frozen=True, slots=True, eq=False)
class Accumulator:
    """A variable that was read as a sum or mean over the time before its reading.

    Attributes
    ----------
    variable : int
        Position among the observed variables.
    state : int
        Position of its state.
    length : float
    """

    variable: int
    state: int
    length: float


@dataclass(frozen=True, slots=True, eq=False)
class Specification:
    """A model with noise, ready to be filtered.

    Attributes
    ----------
    definition : Definition
        The model.
    grid : ndarray
        The model's times; the start holds at the first.
    events : tuple of Event
    parms : Series
        All parameters: the model's, then those that only the noise knows.
    space : StateSpace or UntracedSpace
    noise, errors : Noise
        Of the process, of the measurements.
    transforms : tuple of (str or None)
        By observed variable.
    initial : {"known", "data", "diffuse"}
    start : Noise
        Sds or covariance of the start, by state.
    direct : tuple of (int, int)
        (observed variable, state) of the states that are measured directly.
    accumulators : tuple of Accumulator
    propagation : {"difference", "euler", "rk4", "rk4_moment", "ode", "moment"}
    dt : float or None
    per_step : bool
    update, algorithm : str
    scales : tuple of str
        Parameters that scale sds and do nothing else.
    model : Model
        Asked for the size of its states and its longest step where an adaptive solver needs them.
    tightness : float
        Factor of the tolerances of an adaptive solver.
    """

    definition: Definition
    grid: Vector
    events: tuple[Event, ...]
    parms: pd.Series
    space: StateSpace | UntracedSpace
    noise: Noise
    errors: Noise
    transforms: tuple[str | None, ...]
    variables: tuple[str, ...]
    initial: str
    start: Noise
    direct: tuple[tuple[int, int], ...]
    accumulators: tuple[Accumulator, ...]
    propagation: str
    dt: float | None
    per_step: bool
    update: str
    algorithm: str
    scales: tuple[str, ...]
    model: Any
    tightness: float = 1.0

    @property
    def equations(self) -> Equations:
        """The model's equations; ModelError if it has none."""
        if self.definition.equations is None:
            raise ModelError(f"This needs the model's equations, and the function gives none: {self.definition.note}.")
        return self.definition.equations

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of all parameters."""
        return tuple(self.parms.index)

    @property
    def takes_moments(self) -> bool:
        """Whether an adaptive solver carries the covariance along, and no tangent and noise integral."""
        return self.propagation == "moment" or self.update == "second_order"

    @property
    def uses_solver(self) -> bool:
        """Whether states go on by a solver with tolerances."""
        from fmepy.filtering.adaptive import is_exact

        return self.propagation in ("ode", "moment") and (self.takes_moments or not is_exact(self.space))

    @property
    def free_states(self) -> tuple[int, ...]:
        """Positions of the states of whose start nothing is known."""
        if self.initial != "diffuse":
            return ()
        return tuple(i for i, s in enumerate(self.definition.states) if s not in self.start.keys)


def definition_of(model: Any) -> Definition:
    """Return a model's definition; of one that offers none its names, all columns of its table as states."""
    own: Definition | None = getattr(model, "definition", None)
    if own is not None:
        return own
    note = f"a {type(model).__name__} has no attribute `definition`"
    return Definition(
        kind="ode",
        source=model,
        states=tuple(map(str, model.var_names)),
        parms=model.parms,
        initial=(),
        forcings=(),
        events=(),
        extra_names=(),
        outputs=(),
        equations=None,
        note=note,
        function=None,
        time="time",
        given_outputs=None,
    )


def uses_errors(specification: Specification) -> list[bool]:
    """Tell of every observed variable whether the errors of its data multiply its sd."""
    keys, sds = specification.errors.keys, specification.errors.sds
    return [name not in keys or symbol("err") in sds[keys.index(name)].free_symbols for name in specification.variables]


def is_one_run(spec: Specification, fixed: Mapping[str, float]) -> bool:
    """Tell whether the filter of a specification is a run of its model.

    Parameters
    ----------
    fixed : mapping
        Parameters that do not move, and their values.

    Notes
    -----
    Fixed steps are left to the filter: it ends one at every datum, and its loop is compiled. So are sums over time.
    """
    if spec.initial != "known" or spec.accumulators or spec.propagation in FIXED:
        return False
    if spec.propagation != "difference" and getattr(spec.model, "method", None) in FIXED:
        return False  # the filter's solver is better than the model's own steps
    values = {symbol(k): v for k, v in fixed.items()}
    entries = [e for noise in (spec.noise, spec.start)
               for e in (noise.covariance.entries if noise.covariance is not None else noise.sds)]  # fmt: skip
    return all(e.subs(values) is ZERO for e in entries)
