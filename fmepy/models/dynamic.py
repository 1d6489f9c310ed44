"""What the models of fmepy share: parameters and equations to look at, a table when called, changed copies.

A kind of model (`OdeModel`, `DifferenceModel`) reads its arguments, makes a `Definition`, and provides ``bind``; the
rest of the contract of `models.base.Model` is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, Self

import numpy as np
import pandas as pd

from fmepy.checks import changed_arguments, copied
from fmepy.errors import ModelError, SimulationError, counted, listed, sentence
from fmepy.language.equations import Equations
from fmepy.models.base import BoundModel, TakesDifferences
from fmepy.models.definition.arguments import Kind, check_increasing, finite_numbers
from fmepy.models.definition.assemble import define
from fmepy.models.definition.definition import Definition, Readable
from fmepy.models.engines.base import SolverOptions
from fmepy.models.running.by_entity import EntityInputs, inputs_by_entity
from fmepy.models.running.forcings import series_by_name, tell_outside
from fmepy.models.running.system import OutputFunctions, build_outputs, delays_of
from fmepy.parameters.named import check_names, merge_parameters
from fmepy.parameters.names import as_theta
from fmepy.parameters.scales import check_scale
from fmepy.results.notebook import InNotebook
from fmepy.tables.columns import refuse_dates
from fmepy.types import Matrix, UserParameters, Vector
from fmepy.vocabulary import AnswersInOwnWords, by_name, own_words

logger = logging.getLogger(__name__)

_MERGED = ("state", "parms", "outputs", "forcings", "history")
_SETTINGS = ("times", "method", "dt", "rtol", "max_step")


class Runnable(AnswersInOwnWords, InNotebook):
    """Base of models that can be bound: parameters and times to look at, a table when called.

    A subclass sets ``_parms`` (all parameters), ``states``, ``var_names``, ``engine``, ``engine_note``, calls
    `_set_times`, and provides ``bind``.
    """

    elsewhere = by_name(
        {
            "params parameters pars p args theta": "`parms`",
            "y0 x0 u0 state initial_state initial": "`parms` for initial values with a name, `equations` for all",
            "t tspan t_eval time": "`times`",
            "run simulate solve integrate predict": "a call: model() or model({'k': 0.5}) returns the table",
            "species variables compartments": "`states`; with the outputs, `var_names`",
            "ode rhs odes": "`equations`",
        }
    )
    times: Vector
    x_name: str = "time"
    states: tuple[str, ...]
    var_names: tuple[str, ...]
    engine: str
    engine_note: str
    _parms: pd.Series
    _arguments: dict[str, Any]
    entity_inputs: EntityInputs | None = None
    """Events and forcings that belong to entities."""
    profiles: Any = ()
    """Variables over depth, where x is a depth: of a steady state on a grid."""
    absent: Any = None
    """Where the model has no value by its nature, shape (n_time, n_var): NaN there is no failure of a run."""
    _bound: Any = None
    _like: Self | None = None  # while a copy is made: of which model
    _carried: tuple[str, ...] = ()
    """Attributes that a copy takes over as they are."""

    def _set_times(self, times: Any) -> None:
        self.times = as_times(times)
        self.times.flags.writeable = False

    @property
    def parms(self) -> pd.Series:
        """The parameters and their values (a copy)."""
        return self._parms.copy()

    def of_entity(self, entity: Any) -> Self:
        """Return the model with the events and forcings of one entity.

        Parameters
        ----------
        entity : str or number
            As it stands in the column of the entities.

        Raises
        ------
        ModelError
            No input belongs to entities; an entity without a row, with the nearest.
        """
        if self.entity_inputs is None:
            raise ModelError(f"`entity={entity!r}`: no events or forcings of this model belong to entities.")
        out: Self = self.replace(**self.entity_inputs.of(entity))
        return out

    def replace(self, **arguments: Any) -> Self:
        """Return a copy with some arguments of the constructor changed; `state`, `parms`, `outputs`, `forcings` merge.

        Equations are shared (and so is what was compiled) where nothing but numbers differs.
        """
        return self._remade(arguments, _MERGED)

    def _remade(self, arguments: dict[str, Any], merged: Sequence[str]) -> Self:
        """Return a copy made by the constructor, some of its `_arguments` changed; dicts named in `merged` merge."""
        given = self._arguments
        if "forcings" in arguments:
            arguments = arguments | {"forcings": series_by_name(arguments["forcings"])}
        if "parms" in arguments:
            check_scale(arguments["parms"], self._parms, "parms")
            given = given | {"parms": self._parms}
        new = changed_arguments(given, arguments, merged, type(self).__name__)
        made = type(self).__new__(type(self))
        made._like = self  # while it is made: equations are shared where only numbers differ
        type(self).__init__(made, **new)
        del made._like
        made.__dict__ |= {name: getattr(self, name) for name in self._carried}
        return made

    def _asked(
        self, names: Sequence[str] | None, times: Any, start: float | None = None
    ) -> tuple[tuple[str, ...], Vector]:
        """Return the parameters and the rows that `bind` is asked for; `start`: where the run begins, if not first."""
        if self.entity_inputs is not None:
            raise self.entity_inputs.refusal()
        parameters = tuple(self._parms.index)
        chosen = parameters if names is None else check_names(names, parameters, argument="names")
        rows = self.times if times is None else as_times(times)
        first = self.times[0] if start is None else start
        if not self.times[0] <= first:
            raise ModelError(f"`start={start!r}` lies before the model's start at {self.times[0]:g}.")
        if rows[0] < first:
            raise ModelError(
                f"`times` begins at {rows[0]:g}, before the model's start at {first:g}; the initial values hold there."
            )
        return chosen, rows

    def bind(self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False) -> BoundModel:
        """Return the model as a function of a plain vector."""
        raise NotImplementedError

    @own_words
    def __call__(self, parms: UserParameters = None, times: Any = None, *, entity: Any = None) -> pd.DataFrame:
        """Run the model.

        Parameters
        ----------
        parms : dict, Series, table row or lmfit.Parameters, optional
            Values by name; a subset leaves the rest as it is.
        times : array_like, optional
            Times of the rows, increasing; default the model's own. The run starts at ``model.times[0]`` all the same.
        entity : str or number, optional
            For whom, where events or forcings belong to entities.

        Returns
        -------
        DataFrame
            Column ``time``, then states, then outputs.

        Raises
        ------
        SimulationError
            The run failed; carries the parameters and the time reached.
        ParameterError, ModelError
            Unknown names; times that do not increase or lie before the start.
        """
        if entity is not None:
            return self.of_entity(entity)(parms, times)
        if times is None:
            if self._bound is None:
                self._bound = self.bind()
            bound = self._bound
        else:
            bound = self.bind(times=times)
        theta = merge_parameters(self._parms, parms).to_numpy(dtype=float)
        rows, Y = bound.until_end(theta)
        table = pd.DataFrame(Y, columns=self._columns)
        table.insert(0, self.x_name, rows.astype(int) if np.equal(np.mod(rows, 1), 0).all() else rows)
        if self.profiles:
            table.attrs["profiles"] = self.profiles  # for pictures
        return table

    @cached_property
    def _columns(self) -> pd.Index:
        return pd.Index(list(self.var_names))  # half of the time of a table is that of its labels

    def _line(self, where: str, how: str) -> str:
        """Return how it prints: what it is of, then its equations."""
        names = ", ".join(self.states[:8]) + (", ..." if len(self.states) > 8 else "")
        states = f"{type(self).__name__} of {counted(len(self.states), 'state')} ({names}){where}"
        line = f"{states}, {counted(len(self._parms), 'parameter')}{how}"
        equations = getattr(self, "equations", None)
        return line if equations is None else f"{line}\n{equations}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bound": None}  # what was compiled is made again where it is needed


def as_times(times: Any) -> Vector:
    """Return times as an array; they must be finite and increase.

    Raises
    ------
    ModelError
        Empty, not numbers, not finite, or out of order.
    """
    refuse_dates(times, "`times`", ModelError)
    out = finite_numbers(times, "times")
    if out.ndim == 0:
        raise ModelError(
            f"`times={times!r}` is one number; the times of all rows are needed, such as np.linspace(0, "
            f"{float(out):g}, 101), or a list of one for one row."
        )
    if out.ndim != 1 or not len(out):
        raise ModelError("`times` must be a sequence of at least one number.")
    check_increasing(out, "times", advice=" Sort them and keep each once, as np.unique does.")
    return out


class DynamicModel(Runnable):
    """Base of fmepy's own models.

    A subclass sets in its constructor, after this one: ``engine`` and ``engine_note``, and calls `_tell`.

    Parameters
    ----------
    kind : {"ode", "difference"}
    source : callable, str or Equations
    arguments : dict
        All arguments of the subclass's constructor by name, as they were given: its ``locals()``.
    most_states : int
        Vector functions with more states are not turned into equations.
    """

    options: SolverOptions | None = None
    equations: Any = property(attrgetter("definition.equations"), doc="The symbolic form, None of what runs as Python.")
    _made_bound: Any  # the kind of its bound models
    _is_traced = True  # whether equations are made of functions
    _flat_words: dict[str, Any] | None = None  # what stands in the place of arguments

    def __init__(self, kind: Kind, source: Any, arguments: dict[str, Any], most_states: int) -> None:
        arguments = arguments | {"forcings": series_by_name(arguments["forcings"])}
        self._arguments = {k: copied(v) for k, v in arguments.items() if k != "self" and not k.startswith("_")}
        self._set_times(arguments["times"])
        events, forcings = arguments.get("events"), arguments["forcings"]
        self.entity_inputs = inputs = inputs_by_entity(events, forcings)
        if inputs is not None:  # what the model is must hold for every entity: all events, any series of a forcing
            events = events if inputs.events is None else [row for rows in inputs.events.values() for row in rows]
            of_first = {name: next(iter(series.values())) for name, series in inputs.forcings.items()}
            forcings = {**dict(forcings or {}), **of_first}
        words: dict[str, Any] = {k: arguments.get(k) for k in _MERGED if k != "forcings"} | (self._flat_words or {})
        self.definition: Definition = define(
            kind,
            source,
            **words,
            forcings=forcings,
            events=events,
            algebraic=arguments.get("algebraic"),
            start=float(self.times[0]),
            trace=self._is_traced,
            most_states=most_states,
            like=None if self._like is None else self._like.definition,
        )
        self.states, self.var_names = self.definition.states, self.definition.var_names
        self._parms = self.definition.parms

    def _tell(self) -> None:
        """Log what is worth knowing about a model that is no copy of another."""
        if self._like is not None:
            return
        if self.engine_note:
            logger.info("The model runs on %s: %s.", self.engine, self.engine_note)
        if unsaid := _without_history(self.definition):
            logger.info(
                "The model reads the past of %s, and `history` does not say what that was before the start, at %g: its "
                "initial value.", listed(unsaid), self.times[0],
            )  # fmt: skip
        tell_outside(self.definition.forcings, float(self.times[0]), float(self.times[-1]))

    def bind(
        self,
        names: Sequence[str] | None = None,
        *,
        times: Any = None,
        hold_engine: bool = False,
        start: float | None = None,
    ) -> Any:
        """Return the model as a function of a plain vector of the parameters `names` (None: all of them, in order).

        Parameters
        ----------
        names : sequence of str, optional
        times : array_like, optional
            Rows; default the model's own times.
        hold_engine : bool
            Stay with the second engine after the first run that needed it.
        start : float, optional
            Where runs begin, and the initial values hold; default ``times[0]`` of the model. Events before it are none.
        """
        return self._made_bound(self, *self._asked(names, times, start), hold_engine, start)

    def of_equations(self, equations: Equations | Readable, **arguments: Any) -> Self:
        """Return a model of other equations that runs as this one does: its times, method, steps and tolerances.

        Parameters
        ----------
        equations : Equations
            Its states may be some of this model's. Or another source that reads itself.
        **arguments
            Of the constructor: `state`, `parms`, `forcings`, `events`; others take the place of this model's own.
        """
        own = {k: self._arguments[k] for k in _SETTINGS if k in self._arguments}
        if self.options is not None:
            known = zip(self.states, self.options.atol.tolist(), strict=True)
            states = getattr(equations, "states", self.states)
            own["atol"] = {k: None if np.isnan(a) else a for k, a in known if k in states}
        make: Any = type(self)  # a subclass, which takes them
        model: Self = make(equations, **{**own, **arguments})
        return model

    def __repr__(self) -> str:
        method = getattr(self, "method", "")
        return self._line("", f"; engine {self.engine}" + (f", method {method}" if method else ""))

    def _repr_latex_(self) -> str | None:
        return None if self.equations is None else self.equations._repr_latex_()


def _without_history(definition: Definition) -> list[str]:
    """Return the states whose past is read, and not said."""
    if definition.equations is None or not definition.has_delays:
        return []
    read = {d.state for d in delays_of(definition.equations)}
    return [s for i, s in enumerate(definition.states) if i in read and definition.history[i] is None]


# --- bound models


class BoundDynamic(TakesDifferences):
    """Base of fmepy's own bound models; see `models.base.BoundModel`.

    Parameters
    ----------
    definition : Definition
    names : tuple of str
        The parameters that theta holds.
    times : ndarray, shape (n_time,)
        The rows.
    at_rows : ndarray, shape (n_forcing, n_time)
        The forcings there.
    """

    _made_anew: tuple[str, ...] = ()
    """What is found or compiled at its first use, and neither travels to other processes nor belongs to a copy."""

    def __init__(self, definition: Definition, names: tuple[str, ...], times: Vector, at_rows: Matrix) -> None:
        self._definition = definition
        self.names, self.times, self.var_names = names, times, definition.var_names
        self._base = definition.parms.to_numpy(dtype=float, copy=True)
        self._places = np.array([definition.parameters.index(k) for k in names], dtype=int)
        self.theta0 = self._base[self._places]
        self.retries = 0
        self._at_rows = at_rows

    def holder(self, names: Sequence[str]) -> Callable[[Vector], None]:
        """Return a function that sets values of parameters that theta does not hold.

        So one bound model serves experiments that differ in numbers alone.
        """
        places = np.array([self._definition.parameters.index(k) for k in names], dtype=int)

        def hold(values: Vector) -> None:
            self._base[places] = values

        return hold

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in self._made_anew}

    def _parameters(self, theta: Vector) -> Vector:
        p = self._base.copy()
        p[self._places] = as_theta(theta, self.names)
        return p

    def _output_functions(self, names: tuple[str, ...] | None = None) -> OutputFunctions:
        d = self._definition
        time, states, parameters, forcings, extra_names = d.groups
        return build_outputs((time, states + extra_names, parameters, forcings), d.outputs, names)

    def _with_outputs(self, p: Vector, Y: Matrix) -> Matrix:
        """Return the states with the outputs beside them, shape (n_time, n_var)."""
        d = self._definition
        if Y.shape[1] == len(self.var_names):
            return Y
        if d.extra_names:
            Y = np.concatenate((Y, self._extras(p, Y)), axis=1)
        if not d.outputs:
            return Y
        return self._output_functions().beside(self.times, Y, p, self._at_rows)

    def _extras(self, p: Vector, Y: Matrix) -> Matrix:
        """Return what the user's function gives beside the rates, row by row."""
        d = self._definition
        assert d.function is not None, "only functions have extra outputs without equations"
        plain, out = p.tolist(), np.empty((len(Y), len(d.extra_names)))
        with np.errstate(all="ignore"):
            for i, (t, y) in enumerate(zip(self.times, Y, strict=True)):
                extra = d.function.extras(t, y, plain, self._at_rows[:, i])
                out[i] = [extra[k] for k in d.extra_names]
        return out

    def _failure(self, where: str, why: str, p: Vector, time: float | None, exploded: bool = False) -> SimulationError:
        """Return the error of a failed run."""
        parameters = dict(zip(self._definition.parameters, p.tolist(), strict=True))
        values = ", ".join(f"{k}={v:.6g}" for k, v in list(parameters.items())[:12])
        message = f"The run failed{where}: {sentence(why)}{f' Parameters: {values}.' if values else ''}"
        return SimulationError(message, parameters=parameters, time=time, exploded=exploded)
