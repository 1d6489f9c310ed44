"""The model of a filter in equations: noise, start, accumulators, propagation.

A `Specification` holds everything of a `FimlofCost` that does not depend on the data but for the names of what was
observed. It is immutable and pickles; `read_arguments` makes it, and what is compiled from it is made where it is
needed (`bound_filter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from fmepy.costs.noise import Noise
from fmepy.errors import ModelError
from fmepy.filtering.numeric_statespace import UntracedSpace
from fmepy.filtering.statespace import StateSpace
from fmepy.language.equations import Equations, symbol
from fmepy.language.nodes import ZERO, call
from fmepy.models.definition.definition import Definition
from fmepy.models.mapped import MappedModel, with_values
from fmepy.models.running.events import Event
from fmepy.parameters.mapped import Transforms
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
    initial : {"known", "data", "diffuse", "stationary"}
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
        Gives the size of its states and its longest step to an adaptive solver.
    correlations : Noise
        Of the noise of the process with errors of readings; its keys are pairs. `space` has a further state for each.
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
    correlations: Noise
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
        """Whether states are integrated by a solver with tolerances."""
        from fmepy.filtering.continuous_transition import is_exact

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
    if spec.initial != "known" or spec.accumulators or spec.correlations.keys or spec.propagation in FIXED:
        return False
    if spec.propagation != "difference" and getattr(spec.model, "method", None) in FIXED:
        return False  # the filter's solver is better than the model's own steps
    values = {symbol(k): v for k, v in fixed.items()}
    return all(e.subs(values) is ZERO for e in (*spec.noise.entries, *spec.start.entries))


def with_equations(model: Any) -> Any:
    """Return a model of the same parameters that has a definition; of one that can have none the model itself."""
    if not isinstance(model, MappedModel):
        return model
    inner = with_equations(model.inner)
    if not isinstance(model.how, Transforms):
        return with_values(inner, {str(k): float(v) for k, v in model.how.values.items()})
    definition = getattr(inner, "definition", None)
    if definition is None or definition.equations is None:
        return model
    definition.check_plain("FimlofCost")  # what the copy below would leave out
    back = {symbol(name): _back(kind, symbol(name)) for name, kind in model.how.kinds.items()}
    equations = definition.equations
    events = [e.row(definition.states, as_given(e.value, back)) for e in definition.events]
    return inner.of_equations(
        replace(
            equations,
            rates=tuple(e.subs(back) for e in equations.rates),
            outputs=tuple((name, e.subs(back)) for name, e in equations.outputs),
        ),
        state={s: as_given(v, back) for s, v in zip(definition.states, definition.initial, strict=True)},
        parms=model.parms.to_dict(),
        forcings={f.name: f for f in definition.forcings} or None,
        **({"events": events} if events else {}),  # a DifferenceModel takes none
    )


def with_inputs(spec: Specification, model: Any) -> Specification:
    """Return a specification with the events and forcings of a model that differs in them alone."""
    if spec.definition.is_closed:  # its runs alone are known
        return spec
    own, kinds = model, []
    while isinstance(own, MappedModel):
        kinds += [own.how.kinds] if isinstance(own.how, Transforms) else []
        own = own.inner
    events: tuple[Event, ...] = own.definition.events
    for one in reversed(kinds):
        back = {symbol(name): _back(kind, symbol(name)) for name, kind in one.items()}
        events = tuple(e if isinstance(e.value, float) else replace(e, value=e.value.subs(back)) for e in events)
    definition = replace(spec.definition, forcings=own.definition.forcings, events=events)
    return replace(spec, definition=definition, events=events, model=own)


def as_given(value: Any, back: dict[Any, Any] | None = None) -> Any:
    """Return a number, or an expression with other expressions for some names."""
    return value.subs(back or {}) if getattr(value, "free_symbols", None) else float(value)


def _back(kind: str, s: Any) -> Any:
    """Return the parameter itself, from its transform."""
    return {"log": call("exp", s), "log10": 10.0**s, "logit": 1 / (1 + call("exp", -s))}[kind]
