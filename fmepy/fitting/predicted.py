"""One prediction of the model behind a cost: one variable, at one time, of one entity, as a function of theta."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.costs.objective import Objective
from fmepy.errors import ArgumentError, did_you_mean, listed
from fmepy.fitting.reading import sds_of_fit, transforms
from fmepy.fitting.refits import HeldPrediction
from fmepy.models.base import keep_within
from fmepy.models.entity import EntityModel
from fmepy.models.mapped import MappedModel
from fmepy.numerics.differences import central_differences
from fmepy.parameters.entities import entity_text
from fmepy.parameters.selection import cells_of, names_in_short
from fmepy.tables.sheet import calendar_of, holds_dates, numbers_of_times, time_text
from fmepy.types import Vector

if TYPE_CHECKING:
    from fmepy.fitting.result import ModFit

logger = logging.getLogger(__name__)

_STEP = 6e-6  # cube root of the machine epsilon: central differences of a user's function


@dataclass(slots=True, eq=False)
class Predicted:
    """A variable of a model at a time; it travels without what it is bound to.

    Attributes
    ----------
    model : Model
        As a function of the cost's parameters.
    names : tuple of str
        The parameters that theta holds.
    variable : str
    time : float
    at : str
        The time in words, a date where dates were asked for.
    entity : str or None
    """

    model: Any
    names: tuple[str, ...]
    variable: str
    time: float
    at: str
    entity: str | None
    lower: Vector
    upper: Vector
    _bound: Any = field(default=None, init=False)
    _known: tuple[bytes, float, Vector] = field(default=(b"", np.nan, np.empty(0)), init=False)

    def value(self, theta: Vector) -> float:
        """Return the prediction; raise SimulationError where the model fails."""
        key = theta.tobytes()
        if key == self._known[0]:
            return self._known[1]
        bound, take = self._prepared
        return float(bound.simulate(theta[take])[-1, bound.var_names.index(self.variable)])

    def everything(self, theta: Vector) -> Vector:
        """Return all variables of the model at the time, shape (n_var,)."""
        bound, take = self._prepared
        return np.asarray(bound.simulate(theta[take])[-1])

    def gradient(self, theta: Vector) -> Vector:
        """Return its derivatives, shape (n_par,)."""
        key = theta.tobytes()
        if key != self._known[0]:
            bound, take = self._prepared
            Y, S = bound.sensitivities(theta[take])
            j = bound.var_names.index(self.variable)
            slopes = np.zeros(theta.size)
            slopes[take] = S[-1, j]
            self._known = key, float(Y[-1, j]), slopes
        return self._known[2]

    @property
    def _prepared(self) -> tuple[Any, Any]:
        if self._bound is None:
            known = set(map(str, self.model.parms.index))
            take = np.array([i for i, n in enumerate(self.names) if n in known], dtype=np.intp)
            bound = self.model.bind([self.names[i] for i in take], times=np.array([self.time]))
            keep_within(bound, self.lower[take], self.upper[take])
            self._bound = bound, take
        return self._bound  # type: ignore[no-any-return]    # filled just above

    def __getstate__(self) -> tuple[Any, ...]:
        return self.model, self.names, self.variable, self.time, self.entity, self.lower, self.upper

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)  # type: ignore[misc]    # as it was made


@dataclass(slots=True, eq=False)
class _OfFunction:
    """A user's function of the parameters, as a prediction."""

    function: Callable[[Any], Any]
    objective: Objective
    label: str

    def value(self, theta: Vector) -> float:
        """Return the value of the function; ArgumentError if it is not a number."""
        found = self.function(self.objective.parameters.for_user(theta))
        try:
            return float(found)
        except (TypeError, ValueError):
            raise ArgumentError(
                f"`prediction`: {self.label} gave {type(found).__name__}; one number is needed."
            ) from None

    def gradient(self, theta: Vector) -> Vector:
        """Return its derivatives by central differences."""
        steps = _STEP * np.maximum(np.abs(theta), 1e-8)
        box = self.objective.lower, self.objective.upper
        return np.asarray(central_differences(lambda q: np.array([self.value(q)]), theta, steps, box)[0])


def predictions_asked(
    prediction: Any, f: Any, objective: Objective
) -> tuple[dict[str, HeldPrediction], dict[str, Predicted]]:
    """Return what `prediction` asks for, by a label; and what that is of a model: nothing of functions.

    Parameters
    ----------
    prediction : tuple (variable, time), (variable, time, entity), a list of them, a function of p, or dict of functions
        The time may be a sequence.
    """
    if callable(prediction):
        prediction = {"prediction": prediction}
    if isinstance(prediction, Mapping):
        made = {str(k): _OfFunction(g, objective, str(k)) for k, g in prediction.items()}
        wrong = [k for k, g in made.items() if not callable(g.function)]
        if wrong or not made:
            raise ArgumentError(f"`prediction`: a dict holds functions of p by name; {listed(wrong) or 'it'} does not.")
        return {k: HeldPrediction(g.value, g.gradient) for k, g in made.items()}, {}
    found, of = dict[str, HeldPrediction](), dict[str, Predicted]()
    for one in [prediction] if isinstance(prediction, tuple) else list(_several(prediction)):
        for p in _of_model(one, f, objective):
            label = f"{p.variable} at {p.at}" + ("" if p.entity is None else f", {p.entity}")
            found[label], of[label] = HeldPrediction(p.value, p.gradient), p
    return found, of


def table_of(of: Mapping[str, Predicted], fit: ModFit, theta: Vector) -> pd.DataFrame | None:
    """Return variable, time and entity by label, and the sd of a reading there, NaN where nothing is known of it."""
    if not of:
        return None
    at, rows = replace(fit, theta=theta), {}
    for label, p in of.items():
        sd, kind = np.nan, None
        variables = list(map(str, p.model.var_names))
        try:
            Y = p.everything(theta)[None, :]
            sd = float(
                sds_of_fit(at, p.model, "time", np.array([p.time]), variables, Y)[0, variables.index(p.variable)]
            )
            kind = transforms(fit).get(p.variable)
        except ArgumentError as error:  # the band of the model's value does not need it
            logger.info("Readings of %s: %s", label, error)
        rows[label] = (p.variable, p.time, p.entity, sd, kind)
    return pd.DataFrame.from_dict(rows, orient="index", columns=["variable", "time", "entity", "sd", "scale"])


_WANTED = "a tuple (variable, time) or (variable, time, entity), a list of them, or a function of p that gives a number"


def _several(prediction: Any) -> Sequence[Any]:
    if isinstance(prediction, Sequence) and not isinstance(prediction, str) and len(prediction):
        return prediction
    raise ArgumentError(f"`prediction` must be {_WANTED}; got {prediction!r}.")


def _of_model(one: Any, f: Any, objective: Objective) -> list[Predicted]:
    if not (isinstance(one, tuple) and len(one) in (2, 3) and isinstance(one[0], str)):
        raise ArgumentError(f"`prediction` must be {_WANTED}; got {one!r}.")
    variable, times, entity = one if len(one) == 3 else (*one, None)
    model, label = _model_behind(f, variable, entity)
    if objective.parameters.lmfit is not None and len(objective.parameters.lmfit) != len(objective.parameters):
        raise ArgumentError(
            "`prediction` by variable and time does not follow what lmfit fixes and ties; give a function of p, such "
            "as lambda p: model(p)['y'].iloc[-1]."
        )
    first, last = float(model.times[0]), float(model.times[-1])
    calendar = calendar_of(f) if holds_dates(times) else None
    at = numbers_of_times(times, calendar, f"`prediction`: the times of {variable!r}")
    outside = at[~((at >= first) & (at <= last))]
    if at.ndim != 1 or not at.size or outside.size:
        time = f"{outside[0]:g}" if outside.size and np.isfinite(outside[0]) else repr(times)
        raise ArgumentError(f"`prediction`: the time {time} lies outside those of the model, {first:g} to {last:g}.")
    words = objective.parameter_names, variable
    bounds = objective.lower, objective.upper
    return [Predicted(model, *words, float(t), time_text(t, calendar), label, *bounds) for t in at]


def _model_behind(f: Any, variable: str, entity: Any) -> tuple[Any, str | None]:
    """Return the model of a cost that has a variable, as a function of the cost's parameters, and its entity."""
    if hasattr(f, "parts"):
        return _of_parts(f, variable, entity)
    if hasattr(f, "how") and hasattr(f, "inner"):
        model, label = _model_behind(f.inner, variable, entity)
        return MappedModel(model, f.how), label
    if not hasattr(f, "model"):
        raise ArgumentError(
            "`prediction` by variable and time needs a fmepy cost, which knows its model. Of a function of your own "
            "give a function of p: prediction=lambda p: model(p)['y'].iloc[-1]."
        )
    model = getattr(f, "predictor", f.model)
    names = list(model.var_names)
    if variable not in names:
        cells, short = cells_of(variable, names), names_in_short(names)
        profile = (
            f"{variable!r} is a profile: take one of its {len(cells)} cells, such as {cells[0]!r}." if cells else ""
        )
        hint = profile or f"{did_you_mean(variable, short)} It has {listed(short)}.".lstrip()
        raise ArgumentError(f"`prediction`: the model has no variable {variable!r}. {hint}")
    experiments, asked = getattr(f, "experiments", None), None if entity is None else entity_text(entity)
    if experiments is None:
        if entity is None:
            return model if getattr(f, "plain_run", True) else _of_rows(f, variable, None), None
        raise ArgumentError(f"`prediction`: got the entity {asked!r}; this cost has no entities, leave it out.")
    labels = list(map(entity_text, experiments.column.labels))
    if len(labels) == 1 and entity is None:
        return _of_rows(f, variable, experiments.column.labels[0]), None
    if asked not in labels:
        given = "none was given" if asked is None else f"got {asked!r}"
        raise ArgumentError(
            f"`prediction`: the third is the entity, {given}; its entities are {listed(labels)}."
            f"{did_you_mean(asked, labels) if asked else ''}"
        )
    return _of_rows(f, variable, asked), asked


def _of_rows(f: Any, variable: str, entity: Any) -> EntityModel:
    """Return the model of an entity; ArgumentError where readings of the variable name different parameters by row."""
    if not hasattr(f, "runs_of"):  # a filter's cost: its entities have a run each
        own: EntityModel = f.model_of(entity)
        return own
    found: dict[str, EntityModel] = f.runs_of(entity, variable)
    if len(found) == 1:
        return next(iter(found.values()))
    name, _, cell = next(iter(found)).split(", ")[0].partition(" = ")
    of = "" if entity is None else f"{entity!r}, "
    raise ArgumentError(
        f"`prediction`: readings of {variable!r} differ in what they name by row ({'; '.join(found)}). Give a function "
        f"of p, such as lambda p: cost.model_of({of}noise_parms={{{name!r}: {cell!r}}})(p)[{variable!r}].iloc[-1]."
    )


def _of_parts(f: Any, variable: str, entity: Any) -> tuple[Any, str | None]:
    """Return the model of the first part of a sum that has the variable (and the entity)."""
    refused: ArgumentError | None = None
    for part in f.parts:
        try:
            return _model_behind(part, variable, entity)
        except ArgumentError as error:
            refused = refused or error
    assert refused is not None, "a sum has parts"
    raise refused
