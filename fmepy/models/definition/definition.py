"""What a model is, whatever it came from: names, values, and either equations or a Python function.

A definition comes about in three steps, which `assemble.define` takes: a *reader* turns a source (text, a function, the
equations of another model) into a `Draft`, which says what states, parameters and initial values there are, and how to
find the expressions of the rates; the draft's names and values are checked, the same way for every source; and with the
expressions it becomes a `Definition`. A new kind of source is one more reader: a class with a method ``draft``.

The equations hold no numbers, so a changed copy of a model (other initial values, parameters, forcings) shares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pandas as pd

from fmepy.errors import ModelError, listed
from fmepy.language.arrays import ArrayProgram
from fmepy.language.equations import Equations
from fmepy.models.definition.arguments import Kind, ModelArguments
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.definition.values import ValueTable
from fmepy.models.running.events import Event, Root
from fmepy.models.running.forcings import Forcing


@dataclass(frozen=True, slots=True, eq=False)
class ModelExpressions:
    """The expressions of a model.

    Attributes
    ----------
    rates : tuple of Node or None
        One for each state; None if the source gives none (a function that cannot be traced).
    own : dict of str to Node
        Outputs that the source defines.
    extra_names : tuple of str
        Outputs that a function without expressions returns beside the rates.
    note : str
        Why there are no expressions.
    arrays : ArrayProgram or None
        What a vector function without expressions computes, where that is known.
    at_rest : AtRest or None
        The steady state that runs start from.
    series : tuple of Forcing
        Those that a function looks up by the time.
    """

    rates: tuple[Any, ...] | None
    own: dict[str, Any] = field(default_factory=dict)
    extra_names: tuple[str, ...] = ()
    note: str = ""
    arrays: ArrayProgram | None = None
    at_rest: Any = None
    series: tuple[Forcing, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """What a reader found in the source of a model.

    Attributes
    ----------
    states : tuple of str
    parms : dict of str to float
    initial : dict of str to (float or Node)
    find : callable
        ``find() -> ModelExpressions``; called once names and values are checked, unless the expressions are known from
        elsewhere.
    time : str
        Name of the independent variable in expressions.
    reads : frozenset of str or None
        Names that the source uses besides those in the expressions; None if that is not known.
    function : RatesFunction or None
        The function, if it is one.
    error : callable
        ``error(message, name)``: an error that shows where in the source a name (or ``"x(0)"``) stands, if it can.
    algebraic : tuple of str
        States whose entry in the rates is no rate but an expression that is zero at every time.
    """

    states: tuple[str, ...]
    parms: dict[str, float]
    initial: dict[str, Any]
    find: Callable[[], ModelExpressions]
    time: str = "t"
    reads: frozenset[str] | None = frozenset()
    function: RatesFunction | None = None
    error: Callable[[str, str], ModelError] = lambda message, name: ModelError(message)
    algebraic: tuple[str, ...] = ()


@runtime_checkable
class Readable(Protocol):
    """A source of a kind of its own, such as one of a room above this, that reads itself."""

    def draft(self, given: ModelArguments) -> Draft:
        """Return what it holds, beside what was given."""


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A model's names and values.

    Attributes
    ----------
    kind : {"ode", "difference"}
    source : callable, str, Equations or Readable
        What the user gave.
    states : tuple of str
    parms : Series
        All parameters and their values.
    parameters : tuple of str
        Their names.
    initial : tuple of (float or Node)
        One for each state; expressions are of parameters alone.
    forcings : tuple of Forcing
    events : tuple of Event
    extra_names : tuple of str
        Outputs that the user's function returns beside the rates (models without equations).
    outputs : tuple of (str, Node)
        Named expressions, of states, parameters, forcings, time and (models without equations) extra outputs.
    equations : Equations or None
        None if the function could not be traced; then `function` is what runs.
    note : str
        Why there are no equations.
    function : RatesFunction or None
        None for text.
    time : str
        Name of the independent variable in expressions.
    algebraic : tuple of str
        States whose entry in the rates is zero at every time; their initial values are guesses.
    history : tuple of (Node or None)
        Of models with delays, for each state: what it was before the start, of parameters and time; None: its initial
        value. Else empty.
    roots : tuple of Root
        Events that happen where an expression crosses zero; `events` are those of given times.
    arrays : ArrayProgram or None
        What a vector function without equations computes, in place of which it may be run.
    at_rest : AtRest or None
        The steady state that runs start from, or some of its states; `initial` is that of `parms`.
    """

    kind: Kind
    source: Any
    states: tuple[str, ...]
    parms: pd.Series
    initial: tuple[Any, ...]
    forcings: tuple[Forcing, ...]
    events: tuple[Event, ...]
    extra_names: tuple[str, ...]
    outputs: tuple[tuple[str, Any], ...]
    equations: Equations | None
    note: str
    function: RatesFunction | None
    time: str
    given_outputs: Any = field(repr=False)
    parameters: tuple[str, ...] = field(init=False, repr=False)
    algebraic: tuple[str, ...] = ()
    history: tuple[Any, ...] = ()
    roots: tuple[Root, ...] = ()
    arrays: ArrayProgram | None = None
    at_rest: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", tuple(self.parms.index))  # asked thousands of times while a model runs

    def check_plain(self, asker: str) -> None:
        """Refuse (ModelError) what `asker` cannot have, for it takes every entry of the rates for a rate.

        asker : str
            Who, at the beginning of a sentence, such as "FimlofCost".
        """
        if self.algebraic:
            raise ModelError(
                f"{asker} needs a rate for every state, and {listed(self.algebraic)} of this model "
                f"{'is' if len(self.algebraic) == 1 else 'are'} algebraic (0 = ...). Solve the equation for it and "
                "make it an output, or give it a rate; SimulationCost and modFit take the model as it is."
            )
        if self.has_delays:
            raise ModelError(
                f"{asker} takes the present states for all that the rest of a run depends on, and this model reads "
                "their past (lag). SimulationCost and modFit take the model as it is."
            )
        if self.at_rest is not None:
            raise ModelError(
                f"{asker} takes starts that are numbers or expressions, and this model starts from a steady state. "
                "Give its table, state=steady(); SimulationCost and modFit take the model as it is."
            )
        if self.roots:
            raise ModelError(
                f"{asker} takes events at given times, and this model has root events, whose times depend on the run: "
                f"{listed(r.text for r in self.roots)}. SimulationCost and modFit take the model as it is."
            )

    def starts(self, names: Sequence[str] = ()) -> Any:
        """Return the initial values as a function of all parameters, with derivatives to `names`: a `ValueTable`."""
        table = ValueTable(self.initial, self.parameters, names)
        return table if self.at_rest is None else self.at_rest.table(table, self.parameters, names)

    @property
    def forcing_names(self) -> tuple[str, ...]:
        """Names of the forcings."""
        return tuple(f.name for f in self.forcings)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Names that expressions are of, in groups: the time, states, parameters, forcings and extra outputs."""
        return (self.time,), self.states, self.parameters, self.forcing_names, self.extra_names

    @property
    def algebraic_places(self) -> list[int]:
        """Positions of the algebraic states among all."""
        return [self.states.index(s) for s in self.algebraic]

    @property
    def is_closed(self) -> bool:
        """Whether the rates are known to nobody: then a model can be run, and no more."""
        return self.equations is None and self.function is None

    @property
    def has_delays(self) -> bool:
        """Whether the rates or outputs read the past."""
        return bool(self.history)

    @property
    def past(self) -> tuple[Any, ...]:
        """What each state was before the start."""
        return tuple(v if h is None else h for h, v in zip(self.history, self.initial, strict=True))

    @property
    def var_names(self) -> tuple[str, ...]:
        """States, then outputs."""
        return self.states + self.extra_names + tuple(name for name, _ in self.outputs)
