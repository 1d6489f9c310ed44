"""`PredictionErrorCost`: a model that its data correct while it runs, compared with what it predicted before.

With h(x) the model's value of what is observed and e = y - h(x)::

    innovation   at every sample: predict h(x), score e, then correct x+ = x + K e         K per sample
    observer     dx/dt = f(x) + K (y(t) - h(x)), y(t) a straight line between readings     K per unit of time

A corrected model is again a Model (`fmepy.models.observer_model`), and the row at a sample is the state before its
correction. So everything that follows from predictions is that of a `SimulationCost`: residuals, noise, limits of
detection, experiments, sums. With K = 0 it is one.

References
----------
Ljung, L. (1999). System Identification, 2nd ed., sections 3.2, 4.3 and 7.2 (predictors, the innovations form, PEM).
Larsson, R., Sjanic, Z., Enqvist, M. and Ljung, L. (2009). Direct prediction-error identification of unstable nonlinear
systems applied to flight test data. 15th IFAC Symposium on System Identification, 144-149.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from fmepy.checks import whole_number
from fmepy.costs.entities import EntityColumn
from fmepy.costs.error_kinds import is_word
from fmepy.costs.interpolation import merge_times, nearest_rows, rows_by_group
from fmepy.costs.observations import Observations
from fmepy.costs.observer_gain import STATIONARY, Stationary, names_of_gain, parameters_of_gain, read_gain, stationary
from fmepy.costs.predictor_stability import Guard
from fmepy.costs.simulation import SimulationCost
from fmepy.errors import ArgumentError, DataError, check_choice
from fmepy.language.equations import names_in
from fmepy.models.observer_model import Entry, Samples, check_modelled, corrected_model
from fmepy.types import IntVector, Vector
from fmepy.vocabulary import by_name, with_own_words

FORMS = ("innovation", "observer")


@with_own_words
@dataclass(frozen=True, eq=False, repr=False)
class PredictionErrorCost(SimulationCost):
    """A dynamic model compared with data by its errors of prediction: the data correct it while it runs.

    Call it with parameters for a `ModCost`, as a `SimulationCost`, of which it has all but `interpolate`,
    `outside` and `noise_parms`: it runs to the samples, which must lie within the model's times.

    Parameters
    ----------
    model : Model
        An `OdeModel` or `DifferenceModel`; or a system of modules, whose steps are difference equations.
    obs : DataFrame, or mapping of names to columns
        The data, wide or long, as `modCost` takes them. A reading that is missing, or of which only a limit is known
        (`censored`), corrects nothing; of several readings of a variable at one time the mean does.
    gain : dict, table, array, number or "stationary"
        K, how much of an error corrects which state: ``{state: {variable: K}}``, where K is a number, a parameter's
        name or an expression of parameters. A labelled table, or an array with a row for each state and a column for
        each observed variable, in order; a number where there is one of each. An error is in the unit of the data,
        whatever `transform` they are compared on.
    form : {"innovation", "observer"}
        "innovation", strictly causal: predict to the sample, score, correct the state there (K is per sample).
        "observer": the rates are corrected all the time by K (y(t) - h(x)), y(t) between the readings of a variable a
        straight line, outside them no correction (K is per unit of time; numbers alone).
    steps : int
        Errors of predictions of so many samples ahead ("innovation"): from sample steps + 1 on, whose prediction knows
        the first one. With one step every sample is compared, the first with the start.
    process_noise, operating_point : mapping, optional
        With ``gain="stationary"``, K is that to which the filter of a `FimlofCost` converges, whose words
        `process_noise` and `measurement_noise` are taken in: of the model linearised at `operating_point` (states;
        default the start, where the model is linear or at rest there), at the parameters' own values, fixed when the
        cost is made. The errors of prediction then have that filter's sds, the roots of the diagonal of H P H' + R.
        "innovation" needs evenly spaced samples; "observer" takes R times the mean distance of readings as a density.
    x, y, err, weight, scaleVar, transform, measurement_noise, censored, parms, entity, entity_parms, conditions
        As in `SimulationCost`; `parms` holds the values of parameters of the gain too.

    Attributes
    ----------
    predictor : Model
        The corrected model. Its table shows at a sample the state before the correction; with several steps, further
        columns ``<state>_ahead1``, ... hold those of fewer steps.
    stationary : Stationary or None
        Of ``gain="stationary"`` the gain and the sds of the errors of prediction.
    parms, lower, upper, comparison, experiments, noise
        As in `SimulationCost`; the parameters of the gain stand behind those of the model.

    Raises
    ------
    ArgumentError
        A gain of a state that is not there, of a variable that is not observed, of the wrong shape, with a name
        without a value; an observer whose gain holds parameters; `steps` below one, or of an observer.
    DataError, ParameterError
        As `SimulationCost`; fewer samples than `steps` + 1.
    SimulationError
        When evaluated: the corrected model breaks down, such as by a gain that makes it unstable.

    See Also
    --------
    SimulationCost : the limit K = 0, right where the process has little noise.
    FimlofCost : gains that follow from process and measurement noise.

    Notes
    -----
    Why a fitted gain needs "innovation": an observer uses y(t) while it predicts y(t). With noise in the data its
    squared errors fall towards zero as K grows, and the parameters are lost.

    A disturbance with dynamics of its own (wind on an aircraft, a drift) is a state of the model without a known input,
    which the gain alone moves: ``d(wind)/dt = -wind / T``, ``gain={"wind": {"speed": 0.3}, ...}``.

    Examples
    --------
    >>> import numpy as np
    >>> from fmepy.models.difference import DifferenceModel
    >>> model = DifferenceModel("next(x) = a * x", state={"x": 4.0}, times=np.arange(4), parms={"a": 0.5})
    >>> cost = PredictionErrorCost(model, {"time": [0, 1, 2, 3], "x": [4.0, 3.0, 1.0, 1.0]}, gain=0.5)
    >>> cost().residuals[["obs", "mod"]].round(2)
       obs   mod
    0  4.0  4.00
    1  3.0  2.00
    2  1.0  1.25
    3  1.0  0.56
    """

    _: KW_ONLY
    gain: Any
    form: str = "innovation"
    steps: int = 1
    process_noise: Any = None
    operating_point: Any = None
    interpolate: str = field(default="exact", init=False)
    outside: str = field(default="error", init=False)
    noise_parms: Any = field(default=None, init=False)
    elsewhere: ClassVar = by_name(
        {"filter forecast predict smooth": "cost.run(fit.par); forecasts are of a FimlofCost"}
    )
    is_plain_simulation: ClassVar[bool] = False  # what corrects a run needs the times of all readings
    stationary: Stationary | None = field(init=False)
    _samples: tuple[Samples, ...] = field(init=False)
    _entries: tuple[Entry, ...] = field(init=False)

    def __post_init__(self) -> None:
        if callable(getattr(self.model, "followed", None)):
            object.__setattr__(self, "model", self.model.followed()[0])
        check_choice(self.form, FORMS, "form")
        object.__setattr__(self, "steps", whole_number(self.steps, "steps", 1, hint=" of samples"))
        if self.form == "observer" and self.steps > 1:
            raise ArgumentError(
                f"`steps={self.steps}` is for form='innovation': an observer has seen every reading that it is "
                "compared with. Pass form='innovation', whose gain is per sample."
            )
        if self.x is None:
            raise ArgumentError("`x=None` has no samples that could correct the model. Name the column of the times.")
        for argument in ("process_noise", "operating_point"):
            if getattr(self, argument) is not None and not self._is_stationary:
                raise ArgumentError(
                    f"`{argument}` is what gain='stationary' follows from; a gain of your own needs none."
                )
        super().__post_init__()
        if any(start is not None for start in self.cases.starts):
            raise ArgumentError(
                "`conditions`: a start from another row's steady state is for a SimulationCost; readings would have to "
                "correct a row without data."
            )

    # --- what is compared

    def _compared(self, observations: Observations, experiments: IntVector) -> Observations:
        """Return the observations from sample `steps` + 1 on; of one step all."""
        if self.steps == 1:
            return observations
        kept = []
        records = _records(observations, experiments, self.model.times)
        for r in records:
            if len(r.times) <= self.steps:
                raise DataError(
                    f"`steps={self.steps}`: predictions of so many samples ahead begin at sample {self.steps + 1}, and "
                    f"a record has {len(r.times)} samples. Take fewer steps."
                )
        for j, v in enumerate(observations.variables):
            keep = np.zeros(len(v.x), dtype=bool)
            for r in records:
                rows, sample = r.readings[j]
                keep[rows] = sample >= self.steps
            if not keep.any():
                raise DataError(
                    f"`steps={self.steps}`: no observations of {v.name!r} are left, all belong to the first "
                    f"{self.steps} samples. Take fewer steps, or leave the variable out."
                )
            kept.append(v.only(keep))
        return replace(observations, variables=tuple(kept))

    def _predictor(self, observations: Observations, column: EntityColumn, set_by: Collection[str]) -> Any:
        """Return the corrected model."""
        records = _records(observations, column.of_row, self.model.times)
        labels = [None] if self.entity is None else list(column.texts)
        samples = [_samples(observations, r, label) for r, label in zip(records, labels, strict=True)]
        stationary = self._stationary(samples, observations.names) if self._is_stationary else None
        gain = read_gain(self.gain, self.model.states, observations.names) if stationary is None else stationary.gain
        vars(self).update(_samples=tuple(samples), stationary=stationary, _entries=gain)
        if self.form == "observer":
            _refuse_names(gain)
        parms = parameters_of_gain(gain, self.model, self._given, set_by)
        return corrected_model(
            self.model, samples, gain, column=self.entity, parms=parms, form=self.form, steps=self.steps
        )

    @property
    def _is_stationary(self) -> bool:
        return isinstance(self.gain, str) and self.gain == STATIONARY

    def _stationary(self, samples: Sequence[Samples], variables: Sequence[str]) -> Stationary:
        """Return the gain that follows from the noise."""
        for argument in ("err", "transform"):
            if getattr(self, argument) is not None:
                raise ArgumentError(
                    f"gain='stationary' needs readings whose sds `measurement_noise` gives, in their unit: leave "
                    f"`{argument}` out."
                )
        if is_word(self.likelihood):
            raise ArgumentError("gain='stationary' is of normal errors: leave `likelihood` out.")
        check_modelled(self.model, self.form)
        return stationary(self, samples, variables, self._given)

    @property
    def _noise_said(self) -> Any:
        return self.measurement_noise if self.stationary is None else dict(self.stationary.sds)

    def as_squares(self) -> Self:
        """Return it as a sum of squares: with the numbers of a stationary gain, and its sds as errors of the data."""
        if self.stationary is None:
            return self
        gain: dict[str, dict[str, Any]] = {}
        for state, variable, value in self.stationary.gain:
            gain.setdefault(state, {})[variable] = value
        out = self.replace(gain=gain, process_noise=None, measurement_noise=None, operating_point=None)
        c, sds = out.comparison, self.stationary.sds
        errors = np.array([sds[name] for name in c.names])
        told = replace(c, weights=1 / errors, with_error=np.ones(len(c), dtype=bool))
        object.__setattr__(out, "comparison", told)
        return out

    @classmethod
    def _names_used(cls, arguments: Mapping[str, Any]) -> set[str]:
        """Return the names that some arguments hold, the gain among them."""
        return {*names_of_gain(arguments["gain"])} | super()._names_used(arguments)

    # --- gains that break the predictor

    @classmethod
    def bind_together(cls, parts: Sequence[Any], names: Sequence[str], *, hold_engine: bool = False) -> Any:
        """Return costs of one corrected model as one function: a cost by itself."""
        bound = super().bind_together(parts, names, hold_engine=hold_engine)
        return parts[0]._guarded(bound)

    def _guarded(self, bound: Any) -> Any:
        """Let runs that break down say where the gain is to blame."""
        found = bound.predictions
        largest = float(np.abs(self.comparison.scale.back(self.comparison.obs)).max())
        parts = getattr(found, "parts", (found,))
        models = [self.predictor] if self.plain_run else self.models
        for part, model in zip(parts, models, strict=True):
            samples = self._samples[0 if self.plain_run else self.cases.entity_of[model.k]]
            part.guard = Guard(self.model, model, samples, self._entries, self.form, largest or 1.0)
        return bound


# --- samples


@dataclass(frozen=True, slots=True, eq=False)
class _Record:
    """The samples of one run.

    Attributes
    ----------
    times : ndarray
        Increasing; those that differ by rounding are one.
    readings : list of (ndarray of int, ndarray of int)
        By variable: which of its readings are of this run, and of which sample.
    """

    times: Vector
    readings: list[tuple[IntVector, IntVector]]


def _records(observations: Observations, experiments: IntVector, grid: Vector) -> list[_Record]:
    """Return the samples of every run, those on the model's own times taken from there."""
    n, out = int(experiments.max()) + 1, []
    of = [experiments[v.places] for v in observations.variables]
    for rows in zip(*(rows_by_group(own, n) for own in of), strict=True):
        x = [v.x[own] for v, own in zip(observations.variables, rows, strict=True)]
        times = merge_times(grid, *x)
        at = [nearest_rows(times, own) for own in x]
        used, place = np.unique(np.concatenate(at), return_inverse=True)
        numbers = np.split(place, np.cumsum([len(own) for own in x])[:-1])
        out.append(_Record(times[used], list(zip(rows, numbers, strict=True))))
    return out


def _samples(observations: Observations, record: _Record, label: str | None) -> Samples:
    """Return what corrects a run: of every variable the mean of its plain readings at a time."""
    readings = {}
    for v, (rows, sample) in zip(observations.variables, record.readings, strict=True):
        plain = np.ones(len(rows), dtype=bool) if v.marks is None else v.marks[rows] == 0
        count = np.bincount(sample[plain], minlength=len(record.times))
        total = np.bincount(sample[plain], v.values[rows][plain], minlength=len(record.times))
        there = count > 0
        readings[v.name] = (record.times[there], total[there] / count[there])
    return Samples(label, record.times, readings)


def _refuse_names(gain: Sequence[Entry]) -> None:
    """Refuse an observer with parameters in its gain."""
    for state, variable, value in gain:
        if names_in([value]):
            raise ArgumentError(
                f"`gain[{state!r}][{variable!r}]` is {value}, a parameter, and form='observer' uses y(t) while it "
                "predicts y(t): the larger the gain, the smaller its errors, whatever the other parameters are. Fitted "
                "gains are for form='innovation', which predicts a reading before it sees it."
            )
