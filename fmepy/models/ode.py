"""Models of differential equations: `OdeModel`, and `ode` for one run in the manner of deSolve."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ModelError, SimulationError, check_choice
from fmepy.expressions.equations import Equations, names_in
from fmepy.models.definition.definition import MOST_TRACED_STATES, Definition, as_times, check_time_name, define
from fmepy.models.dynamic import DynamicModel, central_differences
from fmepy.models.engines.diffsol import METHODS as DIFFSOL_METHODS
from fmepy.models.engines.diffsol import NotCompilableError, diffsl_code, is_available
from fmepy.models.engines.explicit import METHODS as EXPLICIT_METHODS
from fmepy.models.engines.explicit import NotWritableError, rates_source
from fmepy.models.engines.fixed import METHODS as FIXED_METHODS
from fmepy.models.engines.scipy_steppers import IVP_METHODS
from fmepy.models.running.accuracy import (
    MOST_FIXED_STEPS,
    RESOLVED,
    check_number_of_steps,
    first_rows,
    known_sizes,
    read_max_step,
    read_tolerances,
    reads_time,
    scaled_tolerances,
    unresolved,
)
from fmepy.models.running.events import Event, as_events, events_outside
from fmepy.models.running.forcings import forcing_values, tell_outside
from fmepy.models.running.runners import Runner, SolverOptions, adaptive_runner, fixed_runner
from fmepy.models.running.system import Outputs, build_outputs, build_system
from fmepy.models.running.timeline import Timeline
from fmepy.parameters.named import check_names
from fmepy.types import Cube, Matrix, Vector

__all__ = ["BoundOde", "OdeModel", "ode"]

logger = logging.getLogger(__name__)

SCIPY_METHODS = ("lsoda", *IVP_METHODS)
_STEPPED_OVER = (
    ". The function reads the time: what lasts less than a step, such as a pulse, may be stepped over; max_step=, no "
    "longer than the shortest of it, prevents that (inputs given as `forcings` or `events` are never stepped over)"
)


class OdeModel(DynamicModel):
    """A model of ordinary differential equations, as a function of its parameters.

    ``model(parms)`` runs it and returns a table. Functions whose arguments are named, and text, are turned into
    equations and compiled; what cannot be traced runs as it is (`engine_note` says why).

    Parameters
    ----------
    rhs : callable, str or Equations
        The rates: ``f(t, <states>, *, <parameters>, <forcings>)`` with states, parameters and forcings by name,
        returning one rate a state in the order of `state` (or a dict); or ``f(t, y, p)`` with an ndarray and a dict;
        either may return ``(rates, {name: extra output})``. Or text, with lines such as ``d(N)/dt = r * N``, ``N(0) =
        N0`` and ``total = N + M``.
    state : mapping, Series or sequence
        Initial values: numbers, names of parameters, or expressions of parameters. They hold at ``times[0]``.
    times : array_like, shape (n_time,)
        Increasing. The first is the start of every run, the last the end of the range that costs may use.
    parms : mapping or Series, optional
        Values of the parameters; keyword defaults of `rhs` are values too.
    outputs : mapping of str to str or callable, optional
        Further variables: expressions, or functions with named arguments, of anything in the model.
    forcings : mapping of str to series, optional
        Inputs: a Series indexed by time, ``(times, values)``, or ``(times, values, "constant")``. Linear between its
        points unless "constant" (the last value passed); held constant outside them.
    events : table, optional
        Columns ``var``, ``time``, ``value``, ``method`` ("replace", "add", "multiply"). The row at the time of an event
        shows the state before it. Events outside `times` are named in a warning.
    engine : {"auto", "diffsol", "numba", "scipy"}
        "diffsol" compiles, and refuses what cannot be; "auto" uses it for what can be. "numba" compiles too, for models
        that are not stiff and run thousands of times (chains, ensembles), or have many parameters: the runs of a small
        one are some five times faster, sensitivities four to ten times, but the first run waits until numba is loaded
        and, once on a machine, for some seconds of compilation. It finds out when a run is stiff or blows up, and
        leaves such runs to diffsol or LSODA (counted as `retries`).
    method : str, optional
        Of diffsol: bdf (default), tr_bdf2, esdirk34, tsit45. Of numba: dopri5. Of scipy: lsoda (default), RK45, RK23,
        DOP853, Radau, BDF, LSODA. Fixed steps: euler, rk4. A method chooses its engine. tsit45 has no step limit: on a
        model that blows up it does not return.
    dt : float, optional
        Step of euler and rk4; default (and at most): the distance of `times`.
    bandwidth : int or (int, int), optional
        Of the Jacobian (lower, upper), for vectorised transport models on scipy.
    rtol, atol : float
        Tolerances: the error of a step is kept below ``atol + rtol |y|``. `atol` may be one number a state (sequence,
        or dict by name, which leaves the others to the default). Default: a millionth of the largest value that each
        state takes in a first run at the model's own parameters, and at most 1e-6; see the attribute `atol`. They bound
        the error of a step; along orbits that magnify errors, bdf at 1e-9 is as accurate as LSODA at 1e-8 (see Notes).
    max_step : float, optional
        Longest step of the solver, in units of time (deSolve's ``hmax``), for inputs that it could step over: pulses in
        a function that cannot be traced. "diffsol" has none; "auto" then takes LSODA.

    Attributes
    ----------
    parms : Series
    states, var_names : tuple of str
    times : ndarray
    engine, method, engine_note : str
    atol : Series
        Absolute tolerance by state, NaN with fixed steps. By default asking runs the model once, as its first run does.
    equations : Equations or None
        Shows as text in a terminal and as LaTeX in a notebook.

    Raises
    ------
    ModelError, ParameterError
        What is wrong with the definition, and the nearest name where one is unknown.

    Notes
    -----
    Sensitivities of models with equations are exact: the variational equations are solved beside the states (through
    initial values, events and switches too). Else they are central differences of runs at a thousandth of the
    tolerances, with the relative step ``(rtol / 1000)**(1/3)`` that balances truncation against the solver's error. A
    compiled run that fails is tried once more with LSODA, with a bound on its effort; one of numba with diffsol first.
    A run in which a state runs to infinity is not: where the solver gave up, the state has grown more than a
    thousandfold and grows by a factor of e within 1e-8 of the run, or has grown by more than 1e100
    (`SimulationError.exploded`).

    Jumps of time in equations (``t % 1 < 0.1``, ``floor(t)``, ``t > lag``) are stops of the adaptive solvers. With
    "euler" and "rk4" a step goes across such a jump, and a stage at its end sees what holds from there on, which is an
    error of first order in `dt`. Jumps of "constant" forcings and events are points of their grid.

    On smooth, unstable orbits the default method loses about one digit against LSODA at the same `rtol`, since BDF goes
    to order 5 and LSODA's Adams method to order 12. Largest errors at rtol = atol = 1e-6, 1e-8, 1e-9, 1e-10: of the
    Arenstorf orbit 0.24, 7e-3, 1e-3, 2e-4 with bdf, 0.04, 2e-3, 6e-5, 4e-6 with LSODA and 0.04, 7e-5, 2e-5, 2e-6 with
    dopri5; of the Pleiades 0.05, 1e-3, 1e-4, 2e-5 with bdf and 8e-3, 7e-5, 1e-5, 1e-6 with LSODA. For such models take
    ``engine="numba"``, or tolerances ten to a hundred times smaller.

    Examples
    --------
    >>> import numpy as np
    >>> def logistic(t, N, *, r=0.5, K=100):
    ...     return r * N * (1 - N / K)
    >>> model = OdeModel(logistic, state={"N": 0.1}, times=np.arange(0, 21, 10))
    >>> model().round(1)
       time     N
    0     0   0.1
    1    10  12.9
    2    20  95.7
    >>> print(model.equations)
    d(N)/dt = N*r*(1 - N/K)
    """

    def __init__(
        self,
        rhs: Callable[..., Any] | str | Equations,
        *,
        state: Any = None,
        times: Any,
        parms: Any = None,
        outputs: Any = None,
        forcings: Any = None,
        events: Any = None,
        engine: str = "auto",
        method: str | None = None,
        dt: float | None = None,
        bandwidth: int | tuple[int, int] | None = None,
        rtol: float = 1e-6,
        atol: Any = None,
        max_step: float | None = None,
        _like: OdeModel | None = None,
        _trace: bool = True,
    ) -> None:
        self._arguments: dict[str, Any] = {
            "rhs": rhs,
            "state": state,
            "times": times,
            "parms": parms,
            "outputs": outputs,
            "forcings": forcings,
            "events": events,
            "engine": engine,
            "method": method,
            "dt": dt,
            "bandwidth": bandwidth,
            "rtol": rtol,
            "atol": atol,
            "max_step": max_step,
        }
        check_choice(engine, ("auto", "diffsol", "numba", "scipy"), "engine")
        self.times: Vector = as_times(times)
        self.times.flags.writeable = False
        self._definition: Definition = define(
            "ode",
            rhs,
            state=state,
            parms=parms,
            outputs=outputs,
            forcings=forcings,
            trace=_trace,
            most_states=10**6 if engine in ("diffsol", "numba") else MOST_TRACED_STATES,
            t0=float(self.times[0]),
            event_names=sorted(_names_in_events(events)),
            like=None if _like is None else _like._definition,
        )
        self.states: tuple[str, ...] = self._definition.states
        self.var_names: tuple[str, ...] = self._definition.var_names
        check_time_name(self.var_names)
        self._events: tuple[Event, ...] = as_events(events, self.states)
        _check_event_names(self._events, self._definition.parameters)
        rtol, atol = read_tolerances(rtol, atol, self.states)
        span = float(self.times[-1] - self.times[0])
        max_step = read_max_step(max_step, span)
        self.engine, self.method, self.engine_note = _choose_engine(
            engine, method, self._definition, np.isfinite(max_step)
        )
        if self.engine_note and self._definition.equations is None and np.isinf(max_step) and reads_time(rhs):
            self.engine_note += _STEPPED_OVER
        if dt is not None and (self.method not in FIXED_METHODS or not dt > 0):
            raise ModelError(
                f"`dt={dt!r}` is the step of method='euler' or 'rk4' and must be positive; the method here "
                f"is {self.method!r}."
            )
        if dt is not None:
            check_number_of_steps(span, dt, f"dt={dt!r}", MOST_FIXED_STEPS)
        if bandwidth is not None and self.engine != "scipy":
            raise ModelError("`bandwidth` is for models that run on scipy; this one is compiled. Pass engine='scipy'.")
        self._options = SolverOptions(self.method, rtol, atol, dt, _bandwidth(bandwidth), max_step)
        self._scaled: SolverOptions | None = None
        self._has_told = False
        self._bound: BoundOde | None = None
        outside = self._events_outside()
        if outside and (_like is None or outside != _like._events_outside()):
            warnings.warn(outside, UserWarning, stacklevel=2 if _like is None else 3)
        if _like is None:
            if self.engine_note:
                logger.info("The model runs on %s: %s.", self.engine, self.engine_note)
            tell_outside(self._definition.forcings, float(self.times[0]), float(self.times[-1]))

    @property
    def atol(self) -> pd.Series:
        """Absolute tolerance by state."""
        return pd.Series(self._scaled_options().atol, index=list(self.states), name="atol")

    def _scaled_options(self) -> SolverOptions:
        """Return the options with an atol for every state, found once for the model: every copy finds the same."""
        if self._scaled is None:
            self._scaled = self._options
            if np.isnan(self._options.atol).any() and self.method not in FIXED_METHODS:
                self._scaled = self._options.with_tolerances(self._options.rtol, self._atol_by_scale())
        return self._scaled

    def _atol_by_scale(self) -> Vector:
        d = self._definition
        p = d.parms.to_numpy(dtype=float)
        rows = first_rows(self.times)

        def trial(atol: Vector) -> Matrix:
            options = self._options.with_tolerances(self._options.rtol, atol)
            return BoundOde(self, d.parameters, rows, False, options).states_at(p)

        events = [e for e in self._events if self.times[0] <= e.time < self.times[-1]]
        return scaled_tolerances(self._options.atol, known_sizes(d, events, p.tolist()), trial)

    def _events_outside(self) -> str:
        return events_outside(self._events, self.states, float(self.times[0]), float(self.times[-1]))

    def bind(self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False) -> BoundOde:
        """Return the model as a function of a plain vector of the parameters `names` (None: all of them, in order).

        Parameters
        ----------
        names : sequence of str, optional
        times : array_like, optional
            Rows; default the model's own times.
        hold_engine : bool
            Stay with the second engine after the first run that needed it.
        """
        parameters = self._definition.parameters
        chosen = parameters if names is None else check_names(names, parameters, argument="names")
        rows = self.times if times is None else as_times(times)
        if rows[0] < self.times[0]:
            raise ModelError(
                f"`times` begins at {rows[0]:g}, before the model's start at {self.times[0]:g}; the "
                "initial values hold there."
            )
        return BoundOde(self, chosen, rows, hold_engine)


# --- the model as a function of a vector ------------------------------------------------------------------------------


class BoundOde:
    """An OdeModel as a function of a plain vector; see `models.base.BoundModel`."""

    def __init__(
        self,
        model: OdeModel,
        names: tuple[str, ...],
        times: Vector,
        hold_engine: bool,
        options: SolverOptions | None = None,
    ) -> None:
        d = model._definition
        self._options = options  # None: the model's, looked up at the first run
        self._limits: list[float] | None = None
        self._model, self._definition, self._hold = model, d, hold_engine
        self.names, self.times = names, times
        self.var_names = model.var_names
        self._base = d.parms.to_numpy(dtype=float, copy=True)
        self._places = np.array([d.parameters.index(k) for k in names], dtype=int)
        self.theta0 = self._base[self._places]
        self.retries = 0
        self._box: tuple[Vector, Vector] | None = None
        self._engines = [model.engine, "retry"] if model.method not in FIXED_METHODS else [model.engine]
        if model.engine == "numba" and np.isinf(model._options.max_step) and not _why_not_compiled(d):
            self._engines.insert(1, "diffsol")
        if d.equations is None or (model.engine == "scipy" and not build_system(d.equations, (), False).has_conditions):
            self._engines = [model.engine]  # the retry would do the same again
        event_times = np.array([e.time for e in model._events])
        self._timeline = Timeline.of(float(model.times[0]), times, d.forcings, event_times)
        self._runners: dict[tuple[str, str], Runner | None] = {}
        self._U = forcing_values(d.forcings, times)
        self._outputs: Outputs | None = None
        self._slopes: Outputs | None = None

    @property
    def exact(self) -> bool:
        """Whether `sensitivities` solves the variational equations."""
        return self._runner(self._engines[0], "exact") is not None

    def _runner(self, engine: str, kind: str) -> Runner | None:
        """Return the runner of an engine, made at its first use: "plain", "exact", "tight" (for differences)."""
        key = (engine, kind)
        if key not in self._runners:
            model = self._model
            names = self.names if kind == "exact" else ()
            if self._options is None:
                self._options = model._scaled_options()
            options = self._options.tightened() if kind == "tight" else self._options
            common = (self._definition, model._events, self._timeline, names, options)
            if model.method in FIXED_METHODS:
                self._runners[key] = fixed_runner(*common, model.times)
            else:
                self._runners[key] = adaptive_runner(engine, *common)
        return self._runners[key]

    def _parameters(self, theta: Vector) -> Vector:
        p = self._base.copy()
        p[self._places] = theta
        return p

    def _run(self, p: Vector, kind: str) -> tuple[Matrix, Any]:
        """Run on the first engine, and once more on the next if that fails, unless a state has exploded."""
        failures = []
        for i, engine in enumerate(tuple(self._engines)):
            runner = self._runner(engine, kind)
            if runner is None:
                break
            try:
                out = runner.run(p)
            except SimulationError as error:
                failures.append(error)
                if error.exploded:
                    break
                continue
            if i > 0:
                self.retries += 1
                if self._hold:
                    first = "taken over" if engine == "retry" else engine
                    self._engines = [first, *self._engines[i + 1 :]]
            return out
        parameters = dict(zip(self._definition.parameters, p.tolist(), strict=True))
        reached = min((f.time for f in failures if f.time is not None), default=None)
        at = "" if reached is None else f" at time {reached:.6g}"
        why = "; then ".join(str(f) for f in failures)
        values = ", ".join(f"{k}={v:.6g}" for k, v in list(parameters.items())[:12])
        raise SimulationError(
            f"The run failed{at}: {why}. Parameters: {values}.",
            parameters=parameters,
            time=reached,
            exploded=failures[-1].exploded,
        ) from failures[-1]

    def tightened(self) -> BoundOde | None:
        """Return the same at tolerances a hundred times smaller; see `models.base.tightened`."""
        if self._model.method in FIXED_METHODS:
            return None
        options = self._model._scaled_options() if self._options is None else self._options
        out = copy(self)
        out._options, out._runners, out._limits, out.retries = options.tightened(0.01), {}, [], 0
        return out if out._options.rtol <= 0.1 * options.rtol else None

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        Y = self._simulate(theta, "plain")
        if not self._model._has_told:
            self._tell_unresolved(Y)
        return Y

    def states_at(self, theta: Vector) -> Matrix:
        """Return the states alone, shape (n_time, n_state)."""
        return self._run(self._parameters(theta), "plain")[0]

    def _tell_unresolved(self, Y: Matrix) -> None:
        """Tell, once for the model, which states are too small for their tolerance."""
        if self._limits is None:
            fixed = self._options is None or self._model.method in FIXED_METHODS
            self._limits = [] if fixed or self._options is None else (RESOLVED * self._options.atol).tolist()
        if why := unresolved(Y, self._limits, self._model.states):
            self._model._has_told = True
            logger.warning(why)

    def _simulate(self, theta: Vector, kind: str) -> Matrix:
        p = self._parameters(theta)
        Y, _ = self._run(p, kind)
        return self._with_outputs(p, Y)

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par)."""
        theta = np.asarray(theta, dtype=float)
        if not self.exact:
            return self._differences(theta)
        p = self._parameters(theta)
        try:
            Y, S = self._run(p, "exact")
        except SimulationError as error:
            if error.exploded or all(self._runner(e, "exact") is not None for e in self._engines):
                raise
            return self._differences(theta)  # the last engine has no exact sensitivities for this model
        return self._with_output_sensitivities(p, Y, S)

    def keep_within(self, lower: Vector, upper: Vector) -> None:
        """Keep the runs of differences inside these bounds."""
        self._box = (lower, upper)

    def _differences(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and central differences of runs at tightened tolerances.

        The relative step is the cube root of the tightened `rtol`, which balances truncation (h^2) against the solver's
        error (rtol / h).
        """
        fixed = self._model.method in FIXED_METHODS
        relative = (np.finfo(float).eps if fixed else self._model._options.tightened().rtol) ** (1 / 3)
        Y = self.simulate(theta)
        return Y, central_differences(lambda th: self._simulate(th, "tight"), theta, relative, Y.shape, self._box)

    # outputs

    def _output_functions(self, names: tuple[str, ...] | None) -> Outputs:
        d = self._definition
        columns = d.states + d.extra_names
        forcings = tuple(f.name for f in d.forcings)
        return build_outputs(columns, d.parameters, forcings, d.time, d.outputs, names)

    def _with_outputs(self, p: Vector, Y: Matrix) -> Matrix:
        d = self._definition
        if d.extra_names:
            Y = np.concatenate((Y, self._extras(p, Y)), axis=1)
        if not d.outputs:
            return Y
        if self._outputs is None:
            self._outputs = self._output_functions(None)
        with np.errstate(all="ignore"):
            return self._outputs.beside(self.times, Y, p, self._U)

    def _extras(self, p: Vector, Y: Matrix) -> Matrix:
        """Return what the user's function gives beside the rates, row by row."""
        function = self._definition.function
        assert function is not None
        out = np.empty((len(Y), len(self._definition.extra_names)))
        with np.errstate(all="ignore"):
            for i, (t, y) in enumerate(zip(self.times, Y, strict=True)):
                extra = function.extras(t, y, p.tolist(), self._U[:, i])
                out[i] = [extra[k] for k in self._definition.extra_names]
        return out

    def _with_output_sensitivities(self, p: Vector, Y: Matrix, S: Cube) -> tuple[Matrix, Cube]:
        if not self._definition.outputs:
            return Y, S
        if self._slopes is None:
            self._slopes = self._output_functions(self.names)
        with np.errstate(all="ignore"):
            table = self._slopes.beside(self.times, Y, p, self._U)
            return table, self._slopes.sensitivities_beside(self.times, Y, S, p, self._U)


# --- checks at the door
# ------------------------------------------------------------------------------------------------


def _names_in_events(events: Any) -> set[str]:
    """Return the parameters that event values use, as far as they can be read (they are checked in full later)."""
    from fmepy.models.definition.text import parse_expression

    if isinstance(events, pd.DataFrame | Mapping):
        values = list(events["value"]) if "value" in events else []
    else:
        values = [e.get("value") for e in events or () if isinstance(e, Mapping)]
    return names_in([parse_expression(v, where="events") for v in values if isinstance(v, str)])


def _check_event_names(events: tuple[Event, ...], parameters: tuple[str, ...]) -> None:
    for e in events:
        check_names(sorted(names_in([e.value])), parameters, argument="events")


def _bandwidth(bandwidth: Any) -> tuple[int, int] | None:
    if bandwidth is None:
        return None
    pair = (bandwidth, bandwidth) if np.ndim(bandwidth) == 0 else tuple(bandwidth)
    if len(pair) != 2 or any(int(b) != b or b < 0 for b in pair):
        raise ModelError(f"`bandwidth={bandwidth!r}` must be a whole number, or two (lower, upper).")
    return int(pair[0]), int(pair[1])


def _choose_engine(engine: str, method: str | None, definition: Definition, limited: bool) -> tuple[str, str, str]:
    """Return engine, method, and why not the compiled engine (or an empty string); `limited`: its steps are."""
    every = (*DIFFSOL_METHODS, *EXPLICIT_METHODS, *SCIPY_METHODS, *FIXED_METHODS)
    if method is not None:
        check_choice(method, every, "method")
        own = "diffsol" if method in DIFFSOL_METHODS else "numba" if method in EXPLICIT_METHODS else "scipy"
        if engine == "auto":
            engine = own
        elif engine != own:
            raise ModelError(f"`method={method!r}` belongs to the engine {own!r}, not to {engine!r}.")
        if limited and method in FIXED_METHODS:
            raise ModelError(f"`max_step` is for solvers that choose their steps; method={method!r} takes `dt`.")
        if own == "scipy":
            return "scipy", method, ""
    elif engine == "scipy":
        return "scipy", "lsoda", ""
    if engine == "numba":
        if why := _why_not_explicit(definition):
            raise ModelError(f"The model cannot run on numba: {why}. Leave engine='auto' to run it on what it can.")
        return "numba", "dopri5", ""
    if limited and (method is not None or engine == "diffsol"):
        raise ModelError(
            f"`max_step` cannot limit the steps of the compiled solver diffsol (method={method or 'bdf'!r}): it has no "
            "largest step. Leave engine='auto' (which takes LSODA), or pass engine='numba' or method='BDF'."
        )
    why = _why_not_compiled(definition)
    if limited and not why:
        why = "`max_step` is given, and the compiled solver has no largest step"
    if not why:
        return "diffsol", method or "bdf", ""
    if engine == "diffsol":
        raise ModelError(f"The model cannot be compiled: {why}. Leave engine='auto' to run it on scipy.")
    return "scipy", "lsoda", why


def _why_not_compiled(definition: Definition) -> str:
    if definition.equations is None:
        return definition.note
    if not is_available():
        return "pydiffsol is not installed (it has no wheel for this platform)"
    try:
        diffsl_code(build_system(definition.equations, (), True))
    except NotCompilableError as error:
        return f"the compiled engine does not have {error}"
    return ""


def _why_not_explicit(definition: Definition) -> str:
    if definition.equations is None:
        return definition.note
    try:
        rates_source(build_system(definition.equations, (), True))
    except NotWritableError as error:
        return f"it does not have {error}"
    return ""


# --- one run, as in deSolve -------------------------------------------------------------------------------------------


def ode(
    y: Any,
    times: Any,
    func: Callable[..., Any],
    parms: Any = None,
    *,
    method: str = "lsoda",
    dt: float | None = None,
    forcings: Any = None,
    events: Any = None,
    bandwidth: int | tuple[int, int] | None = None,
    rtol: float = 1e-6,
    atol: Any = 1e-6,
    max_step: float | None = None,
) -> pd.DataFrame:
    """Run ``func(t, y, parms)`` once and return its table, in the manner of deSolve's `ode`.

    Parameters
    ----------
    y : mapping, Series or sequence
        Initial values, at ``times[0]``; a bare sequence gets the names 1, 2, ...
    times : array_like
    func : callable
        ``func(t, y, parms)`` with an ndarray; returns the rates, or ``(rates, {name: extra output})``.
    parms : any, optional
        Handed to `func` as it is.
    method : str
        lsoda, euler, rk4 (with `dt`), or RK45, RK23, DOP853, Radau, BDF, LSODA of scipy.
    dt, forcings, events, bandwidth, rtol, atol, max_step
        As for `OdeModel`, but `atol` is deSolve's (a state that stays below 1000 times it is told; None: by the scale
        of the states, for one more run); forcings need `parms` to be a dict and arrive in it.

    Returns
    -------
    DataFrame
        Column ``time``, states, extra outputs.

    Examples
    --------
    >>> ode({"N": 0.1}, [0, 10, 20], lambda t, y, p: p["r"] * y * (1 - y / 100), {"r": 0.5}).round(1)
       time     N
    0     0   0.1
    1    10  12.9
    2    20  95.7
    """
    if forcings is not None and not (parms is None or isinstance(parms, Mapping | pd.Series)):
        raise ModelError("`forcings` arrive in `parms`, which must then be a dict.")
    if parms is not None and isinstance(parms, pd.Series):
        parms = parms.to_dict()
    check_choice(method, (*SCIPY_METHODS, *FIXED_METHODS), "method")

    given = {} if parms is None else parms

    def rates(t: float, y: Vector, p: dict[str, float]) -> Any:
        return func(t, y, {**given, **p} if p else given)

    model = OdeModel(
        rates,
        state=y,
        times=times,
        forcings=forcings,
        events=events,
        method=method,
        dt=dt,
        bandwidth=bandwidth,
        rtol=rtol,
        atol=atol,
        max_step=max_step,
        _trace=False,
    )
    return model()
