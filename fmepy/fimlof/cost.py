"""`FimlofCost`: full-information maximum likelihood via optimal filtering; predict, score, correct, go on.

For samples in order of time, x the state, th the parameters (Schweppe 1965, Peterson 1976)::

    x(n) = f(x(n-1), u(n), w(n), n; th)     w ~ N(0, Q)          or  dx = f dt + G dB
    z(n) = h(x(n), n; th) + v(n)            v ~ N(0, R)
    -2 log L = sum_n ln det S(n) + delta(n)' S(n)^-1 delta(n) + m_n ln 2 pi

with delta(n) the datum minus its prediction from all data before it, and S(n) the covariance of that prediction, both
from an extended Kalman filter (`fmepy.filtering`). Its limits are the two simple costs: no process noise and a known
start give the weighted simulation cost plus a constant; no measurement error and all states measured give one-step
least squares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.checks import as_rng, positive_number
from fmepy.costs.conditions import read_conditions
from fmepy.costs.entities import Experiments, check_needed, given_values, read_experiments
from fmepy.costs.experiment_runs import ModelsOfCost
from fmepy.costs.noise import SaidNoise, names_of_noise
from fmepy.costs.sum import AddableCost
from fmepy.errors import ArgumentError, DataError, ParameterError, SimulationError, check_choice, counted
from fmepy.fimlof.bound_likelihood import BoundFimlof
from fmepy.fimlof.data import EntityData, check_limits, read_entities
from fmepy.fimlof.filter_model import Specification, with_equations
from fmepy.fimlof.read_arguments import read_specification
from fmepy.language.nodes import ZERO, Symbol
from fmepy.models.base import Model
from fmepy.parameters.named import check_names, merge_parameters
from fmepy.parameters.names import split_local
from fmepy.parameters.scales import mark
from fmepy.tables.sheet import with_times
from fmepy.types import BoolVector, Seed, UserParameters
from fmepy.vocabulary import by_name, with_own_words


@with_own_words
@dataclass(frozen=True, eq=False, repr=False)
class FimlofCost(ModelsOfCost, AddableCost):
    """A noisy dynamic model compared with noisy data: -2 log L by an optimal filter. Call it with parameters.

    Parameters
    ----------
    model : OdeModel, DifferenceModel or dmi.ModularModel
        Its outputs are what may be observed; its start holds at ``model.times[0]``. Data may go on after its last time.
        A system of modules is followed by the difference equations of its steps (`ModularModel.compiled`), at its own
        times; noise of an assigned variable is added to it.
        Without process noise, from a known start, any model will do (`fmepy.models.base` says what one is).
    obs : DataFrame, or mapping of names to columns
        The data, wide or long, as `modCost` takes them. Several rows of one time are several readings. A row without
        any reading (NaN) asks for the states at its time: it appears in the tables of `filter`, and does nothing else
        (before a start from data there are none).
    process_noise : mapping of state or parameter to sd, or labelled covariance table
        Noise of a state is added to its next value, or to its rate; noise of a parameter enters where the parameter
        does in the rates, and the parameter's value is its mean. An sd is a number, an expression of anything in the
        model (``"sd_w"``, ``"0.1 * x"``), or ``"estimate"``: then it is a parameter ``sd_w_<key>``. Of difference
        equations it is per step.
    measurement_noise : mapping of observed variable to sd, or labelled covariance table, optional
        As above; ``"estimate"`` makes ``sd_v_<variable>``. Expressions may hold the variables of the model, evaluated
        at the prediction (``"0.1 * z"``; of a variable in `accumulate` its own name is the sum or mean), and ``err``,
        the datum's own error (``"scale * err"``). Variables left out have their errors in the column `err`.
    noise_correlation : mapping of (key of process_noise, observed variable) to number or parameter, optional
        Of difference equations: the correlation of the error of a reading with the noise of the step that follows it,
        from -1 to 1. Tables of states then have a column "noise of <key>", in its sds. A noise is in one pair at most.
    x, y, err : str, optional
        Columns of time, of the values and of the standard errors of a long table.
    unit, origin : str, date, optional
        Of dates as times, as `modCost` takes them; `obs` then holds numbers.
    censored : str, or mapping of observed variable to str, optional
        Column of marks, as in `SimulationCost`: ``<`` or ``>`` where the column of values holds a limit below or above
        which the reading lies. See the notes.
    transform : {"log", "log10", "sqrt"} or dict by variable, optional
        Filter transformed readings; errors are on that scale. The value of the cost, and ``FilterResult.loglik``, are
        of transformed readings; ``ModFit.loglik`` is of the data in their own units, ``log_jacobian`` the difference.
    parms : mapping, optional
        Values of the parameters that only the noise knows, or `conditions`; starts of local ones.
    initial : {"known", "data", "diffuse", "stationary"}
        The start: the model's initial values, with sds `initial_sd` (default 0: exactly known); for directly measured
        states the data of the first time, which are then used up; nothing known but for the states in `initial_sd` (a
        nonlinear model's filter runs until the start that it estimates stays; where none does it breaks down); or of a
        linear model its stationary mean and covariance. Unknown values may also be parameters (``state={"x": "x0"}``).
    initial_sd : mapping of state to sd, or labelled covariance table, optional
    noise_kind : {"per_step", "brownian"}, optional
        What the sd of a differential equation's noise means. "brownian": per root of time, variance dt sd^2 in a step;
        "per_step": a constant rate of that sd during every fixed step, variance dt^2 sd^2. Default "brownian".
        Changing `dt` changes the meaning of the second.
    entity, entity_parms, conditions
        As in `SimulationCost`, with events and forcings by entity and starts from the steady state of another row;
        entities are filtered apart. Parameters of the noise are parameters here. A start at rest is as well known as
        `initial_sd` says: by default exactly.
    accumulate : mapping of variable to length or (length, "mean"), optional
        The variable was read as a sum (integral) over so many units of time before its reading, or as a mean. These
        times must not overlap.
    propagation : {"euler", "rk4", "rk4_moment", "ode", "moment"}, optional
        For differential equations. Fixed steps of at most `dt` (default for models that run so): "euler", of first
        order, in the noise too; "rk4", of fourth order in state, tangent and Brownian noise (P stays a covariance);
        "rk4_moment", Runge and Kutta's step for the state and for dP/dt = F P + P F' + A A' together, as ctsmTMB's
        filters take it. Or an adaptive solver for state, tangent and noise integral ("ode", default for the others;
        exact for linear equations with constant coefficients), or for state and covariance ("moment"). These two stop
        where conditions of the model (``max``, ``where``) cross.
    dt : float, optional
        Longest fixed step; default the model's.
    update : {"ekf", "iterated", "second_order", "unscented"}
        Extended Kalman filter; with up to three Gauss-Newton passes over the readings of a sample (sharp, curved
        readings); with the bias and spread of second derivatives; with sigma points instead of derivatives (adaptive
        solvers: noise as in the extended filter between two samples). For linear models all are the same.
    algorithm : {"sequential", "joint", "sqrt"}
        One reading after the other, which is the joint update ("joint" means the same); or square roots of covariances,
        to which the first turns where it would lose digits. Updates other than "ekf" always keep square roots.
    threshold : float
        Of the flags of suspected data, in standard deviations.

    Attributes
    ----------
    parms, lower, upper : Series
        The model's parameters, then those of the noise; sds are not below zero.
    nobs : int
        Scalar data that count.
    dropped : Series
        Missing observations by variable.

    Raises
    ------
    ArgumentError, DataError, ParameterError, ModelError
        Whatever cannot be, with the nearest name where one is unknown.

    See Also
    --------
    SimulationCost : for little process noise.
    modFit : its method "scoring" is made for this cost.

    Notes
    -----
    Without process noise (none given, or zero and not among the parameters that are bound) and from a known start the
    filter of a difference model, or by an adaptive solver, is a run of the model, and its score comes from the model's
    sensitivities: the same numbers within the model's own tolerances.

    A reading of which only a limit c is known adds log Phi(t) to log L, t = (c - h) / sqrt(S) of one below it, with h
    and S the mean and variance of its prediction, its error included. The filter goes on from the mean and the variance
    that the state has given that: with lam = phi(t) / Phi(t) the reading is h - sqrt(S) lam on average, with the
    variance S (1 - lam (lam + t)); above it, the same mirrored. A single limit is exact; behind one the state is taken
    for normal, which it no longer is (assumed-density filtering, Minka 2001; Allik et al. 2016). Without process noise,
    from a known start, nothing is approximate. Limits have no standardised residuals and are no part of SUMSQ; the
    information is that of what was seen.

    A filter that breaks down (a state or covariance not finite, an innovation without variance) gives infinite cost;
    `filter` says where. `cost.bind(names)` offers ``score`` and ``information`` (Fisher's, expected).

    References
    ----------
    Schweppe (1965), IEEE Trans. Inf. Theory 11. Peterson (1976), MIT (GPSIE). Jazwinski (1970). de Jong (1991).
    Minka (2001), thesis, MIT. Allik et al. (2016), IEEE Trans. Control Syst. Technol. 24.

    Examples
    --------
    >>> from fmepy.models.difference import DifferenceModel
    >>> def walk(n, level):
    ...     return level
    >>> model = DifferenceModel(walk, state={"level": 0.0}, times=[0, 1, 2])
    >>> cost = FimlofCost(model, {"time": [1, 2], "level": [1.0, 3.0]}, process_noise={"level": "sd_w"},
    ...                   measurement_noise={"level": 1.0}, parms={"sd_w": 1.0}, initial_sd={"level": 1.0})
    >>> round(cost(), 6), round(cost({"sd_w": 2.0}), 6)
    (8.130196, 8.202531)

    Of the second reading only that it lies above 3 is known:

    >>> seen = {"time": [1, 2], "level": [1.0, 3.0], "mark": ["", ">"]}
    >>> limited = cost.replace(obs=seen, censored="mark")
    >>> round(limited(), 6), limited.filter().residuals["mod"].round(3).to_list()
    (8.410204, [0.0, 0.667])

    The error of a reading is correlated with the noise of the step that follows it:

    >>> round(cost.replace(noise_correlation={("level", "level"): 0.5})(), 6)
    8.207563
    """

    model: Any
    obs: Any
    _: KW_ONLY
    process_noise: Any
    measurement_noise: Any = None
    x: str = "time"
    y: str | None = None
    err: str | None = None
    censored: Any = None
    noise_correlation: Any = None
    unit: str | None = None
    origin: Any = None
    transform: Any = None
    parms: Any = None  # given as a mapping, kept as the Series of all parameters
    initial: str = "known"
    initial_sd: Any = None
    noise_kind: str | None = None
    entity: str | None = None
    entity_parms: Sequence[str] = ()
    conditions: Any = None
    accumulate: Any = None
    propagation: str | None = None
    dt: float | None = None
    update: str = "ekf"
    algorithm: str = "sequential"
    threshold: float = 4.0
    specification: Specification = field(init=False)
    entities: tuple[EntityData, ...] = field(init=False)
    _given: dict[str, float] = field(init=False)
    predictor: Any = field(init=False)
    cases: Experiments = field(init=False)
    elsewhere: ClassVar = by_name(
        {
            "plot run residuals smooth": "what cost.filter(fit.par) gives",
            "forecast predict": "cost.filter(fit.par).forecast(10)",
            "fit": "modFit(cost, {'k': 0.5})",
            "loglike loglik llf": "cost(parms), which is -2 log L",
        }
    )
    merged: ClassVar = ("process_noise", "measurement_noise", "parms", "initial_sd", "transform", "accumulate")

    def __post_init__(self) -> None:
        self._copy_arguments()
        without = isinstance(self.process_noise, Mapping) and not self.process_noise and self.initial == "known"
        if callable(getattr(self.model, "followed", None)) and not without:
            model, noise = self.model.followed(self.process_noise)
            vars(self).update(model=model, process_noise=noise)
        _check_model(self.model)
        check_choice(self.initial, ("known", "data", "diffuse", "stationary"), "initial")
        positive_number(self.threshold, "threshold", " of standard deviations")
        check_needed(self)
        object.__setattr__(self, "obs", with_times(self.obs, self.x, self.unit, self.origin))
        followed = with_equations(self.model)
        column, entities = read_entities(self, self.obs, followed)
        given = given_values(self.parms)
        conditions = read_conditions(self.conditions, self.entity or "", column.texts)
        elsewhere = conditions.names() - _names_of_noise(vars(self))
        of_noise = {k: v for k, v in given.items() if split_local(k)[1] is None and k not in elsewhere}
        specification = read_specification(self, followed, entities, of_noise)
        for e in entities:
            _check_sums(specification, e)
            _check_first(specification, e)
            _check_repeated(specification, e)
            check_limits(specification, e)
        predictor = followed if getattr(self.model, "entity_inputs", None) is None else self.model  # by entity
        vars(self).update(_given=given, specification=specification, entities=entities, predictor=predictor)
        cases = column.cases(np.empty(0, dtype=np.intp))
        experiments = read_experiments(self, given, column, conditions, specification.parms, cases)
        object.__setattr__(self, "cases", experiments)
        object.__setattr__(self, "parms", mark(experiments.parameters.parms.copy(), self.transforms or None))
        self._check_scales()

    @property
    def said_noise(self) -> SaidNoise:
        """Description of the noise of readings, see `fmepy.costs.noise`."""
        spec = self.specification
        sds = dict(zip(spec.errors.keys, spec.errors.sds, strict=True))
        scales = dict(zip(spec.variables, spec.transforms, strict=True))
        return self._said(sds, scales, {}, [set(spec.variables)] * len(self.entities))

    @property
    def lower(self) -> pd.Series:
        """Lower bounds: zero for the sds of the noise, -1 for correlations."""
        return super().lower.mask(self._are_correlations, -1.0)

    @property
    def upper(self) -> pd.Series:
        """Upper bounds: 1 for correlations."""
        return super().upper.mask(self._are_correlations, 1.0)

    @property
    def _are_correlations(self) -> BoolVector:
        own = [e.name for e in self.specification.correlations.sds if isinstance(e, Symbol)]
        names = self.cases.parameters.taken_by(own)
        return np.asarray(self.parms.index.isin(names))

    @property
    def noise_scales(self) -> tuple[str, ...]:
        """Parameters of a run that scale noise, and do nothing else."""
        return self.specification.scales

    @property
    def nobs(self) -> int:
        """Scalar data that count in the likelihood."""
        return int(self._bound.nobs)

    @property
    def dropped(self) -> pd.Series:
        """Missing observations by variable."""
        total = np.sum([e.n_missing for e in self.entities], axis=0)
        return pd.Series(total, index=list(self.entities[0].variables))

    def __call__(self, parms: UserParameters = None) -> float:
        """Return -2 log L; infinite where the filter breaks down.

        Parameters
        ----------
        parms : dict, Series, a fit, ...
            Some or all of the parameters; the others stay at the cost's own values.
        """
        theta = self._merged(parms).to_numpy(dtype=float)
        try:
            return self._bound.minus2loglik(theta)
        except SimulationError:
            return np.inf

    def _merged(self, parms: UserParameters) -> pd.Series:
        """Return all parameters; an sd of noise below zero, which enters the likelihood by its square, is refused."""
        theta = merge_parameters(self.parms, parms)
        for name in self.cases.parameters.taken_by(self.noise_scales):
            if theta[name] < 0:
                raise ParameterError(
                    f"`parms`: {name} = {theta[name]:g} is a standard deviation of noise; it must be 0 or more."
                )
        return theta

    def bind(self, names: Sequence[str] | None = None, *, hold_engine: bool = False) -> BoundFimlof:
        """Return the cost as a function of the parameters `names` (None: all)."""
        known = self.parms.index
        wanted = tuple(known) if names is None else check_names(names, known, argument="names")
        return BoundFimlof(self, wanted, hold_engine=hold_engine)

    @classmethod
    def _names_used(cls, arguments: Mapping[str, Any]) -> set[str]:
        """Return the names that some arguments hold, in words of noise and in conditions."""
        return _names_of_noise(arguments) | super()._names_used(arguments)

    def filter(self, parms: UserParameters = None, *, smooth: bool = True) -> Any:
        """Return states, residuals and diagnostics at some parameters.

        Parameters
        ----------
        parms : dict, Series, ...
            As in a call.
        smooth : bool
            False leaves out what needs the data that come later.

        Returns
        -------
        FilterResult
        """
        from fmepy.fimlof.result import filter_result

        return filter_result(self, self._bound, self._merged(parms), smooth)

    def repeats(self, other: object) -> bool:
        """Tell whether another cost compares the same model with the same data."""
        if not (isinstance(other, FimlofCost) and self.model is other.model):
            return False
        return len(self.entities) == len(other.entities) and all(
            np.array_equal(a.raw, b.raw)
            and all(np.array_equal(getattr(a.readings, k), getattr(b.readings, k)) for k in ("times", "all_marks"))
            for a, b in zip(self.entities, other.entities, strict=True)
        )

    def simulate(self, parms: UserParameters = None, seed: Seed = None) -> pd.DataFrame:
        """Return a noisy history of the system as it would have been read: the table of data with drawn readings.

        Start, process noise and errors of measurement are drawn; times, entities, errors and what is missing are the
        data's own.

        Parameters
        ----------
        parms : dict, Series, ...
            As in a call: the truth of the history.
        seed : int, Generator or None

        Returns
        -------
        DataFrame
            To be put in the place of the data: ``cost.replace(obs=...)``.

        Raises
        ------
        SimulationError
            The path breaks down; a diffuse start is not determined.

        Notes
        -----
        The start is drawn with its `initial_sd`. With ``initial="data"`` measured states start at their first data,
        taken as the truth, and these are drawn anew around it; with ``initial="diffuse"`` unknown states start where
        the data put them at these parameters. Noise is drawn step by step; of an adaptive solver from datum to datum.

        Examples
        --------
        How well do 40 readings determine the parameters? Fit histories that were drawn from them:

        >>> from fmepy import DifferenceModel, modFit
        >>> model = DifferenceModel("next(x) = a * x", state={"x": 4.0}, times=range(41), parms={"a": 0.8})
        >>> cost = FimlofCost(model, {"time": range(1, 41), "x": [0.0] * 40}, process_noise={"x": "sd_w"},
        ...                   measurement_noise={"x": 0.5}, parms={"sd_w": 1.0})
        >>> fits = [modFit(cost.replace(obs=cost.simulate(seed=k))) for k in range(8)]
        >>> bool(abs(sum(f.par["a"] for f in fits) / 8 - 0.8) < 0.1)
        True
        """
        from fmepy.fimlof.histories import simulated

        return simulated(self, self._merged(parms), as_rng(seed))

    def __repr__(self) -> str:
        first = self.entities[0]
        counts = np.sum([np.bincount(e.readings.variables, minlength=len(first.variables)) for e in self.entities], 0)
        told = ", ".join(f"{name} ({n})" for name, n in zip(first.variables, counts, strict=True))
        of = f"; {len(self.entities)} entities" if self.entity is not None else ""
        lost = f"; {n} dropped" if (n := int(self.dropped.sum())) else ""
        return f"FimlofCost: {told}{of}; {counted(len(self.parms), 'parameter')}{lost}"

    @cached_property
    def _bound(self) -> BoundFimlof:
        return self.bind()


def _check_model(model: Any) -> None:
    if isinstance(model, Model):
        return
    advice = " A filter needs the model's equations, not its output." if callable(model) else ""
    raise ArgumentError(f"`model` must be an OdeModel or a DifferenceModel; got {type(model).__name__}.{advice}")


def _check_sums(specification: Specification, entity: EntityData) -> None:
    """Refuse sums whose time begins before the filter does, or before the reading of the sum before them."""
    r = entity.readings
    start = float(r.times[0]) if specification.initial == "data" else float(specification.grid[0])
    of = "" if entity.label is None else f" of entity {entity.label!r}"
    for a in specification.accumulators:
        name, near = specification.variables[a.variable], 1e-9 * a.length
        times = np.unique(
            r.times[(r.variables == a.variable) & ((r.times > start) | (specification.initial != "data"))]
        )
        if len(times) and times[0] - a.length < start - near:
            raise DataError(
                f"`accumulate`: the reading of {name!r}{of} at {times[0]:g} is of a time that begins at "
                f"{times[0] - a.length:g}, before the filter's start at {start:g}. Drop it, or let the model start "
                "earlier."
            )
        short = np.flatnonzero(np.diff(times) < a.length - near)
        if len(short):
            raise DataError(
                f"`accumulate`: the readings of {name!r}{of} at {times[short[0]]:g} and {times[short[0] + 1]:g} are "
                f"less than the length {a.length:g} apart; sums over times that overlap are not offered. Keep every "
                "so many, or let the model sum up itself, with a further state and events for each of them."
            )


def _check_first(specification: Specification, entity: EntityData) -> None:
    """Refuse a start from data where a state that is read has no datum at the first time, and no sd either."""
    if specification.initial != "data":
        return
    r = entity.readings
    there = set(r.variables[r.times == r.times[0]].tolist())
    states = specification.definition.states
    started = {state for variable, state in specification.direct if variable in there}
    for variable, state in specification.direct:
        read = np.any(r.variables == variable)
        if read and state not in started and states[state] not in specification.start.keys:
            of = "" if entity.label is None else f" of entity {entity.label!r}"
            raise DataError(
                f"`initial='data'`: the first data{of}, at {r.times[0]:g}, have none of "
                f"{specification.variables[variable]!r}, so {states[state]!r} would count as exactly known there. Give "
                f"its sd around the model's initial value, initial_sd={{{states[state]!r}: ...}}, or begin the data "
                "where all are read."
            )


def _check_repeated(specification: Specification, entity: EntityData) -> None:
    """Refuse several readings at one time where errors are correlated with another variable's: pairs are unknown."""
    errors, r = specification.errors, entity.readings
    for _, name in specification.correlations.keys:
        times = r.times[r.variables == specification.variables.index(name)]
        if (again := times[1:][np.diff(times) == 0]).size:
            raise DataError(
                f"There are several readings of {name!r} at {again[0]:g}, and which of their errors is correlated with "
                "noise of the process (`noise_correlation`) is not known. Give their means."
            )
    if errors.covariance is None:
        return
    read, several = {}, {}
    for name in errors.keys:
        times, counts = np.unique(r.times[r.variables == specification.variables.index(name)], return_counts=True)
        read[name], several[name] = times, times[counts > 1]
    for i, j, entry in zip(*np.tril_indices(len(errors.keys)), errors.covariance, strict=True):
        a, b = errors.keys[i], errors.keys[j]
        both = np.union1d(np.intersect1d(several[a], read[b]), np.intersect1d(read[a], several[b]))
        if i != j and len(both) and entry is not ZERO:
            raise DataError(
                f"There are several readings of {b!r} or of {a!r} at {both[0]:g}, and their errors are correlated: "
                "which belong together is not known. Give their means, or the errors as independent."
            )


def _names_of_noise(arguments: Mapping[str, Any]) -> set[str]:
    """Return the names that the words of noise among some arguments use or make."""
    words = ("process_noise", "measurement_noise", "initial_sd", "noise_correlation")
    return names_of_noise(*(arguments[k] for k in words))
