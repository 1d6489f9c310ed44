"""Models of differential equations: `OdeModel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_number
from fmepy.errors import ModelError, SimulationError, check_choice, counted, warn
from fmepy.language.equations import Equations
from fmepy.models.bound_ode import BoundOde
from fmepy.models.engines import registry
from fmepy.models.engines.base import Engine, SolverOptions
from fmepy.models.on_grid import ProfileModel, by_species
from fmepy.models.running import tolerances
from fmepy.models.running.algebraic import check_index
from fmepy.models.running.events import events_outside, sizes_set
from fmepy.models.transport import Grid1D
from fmepy.parameters.named import merge_parameters
from fmepy.types import Matrix, UserParameters, Vector
from fmepy.vocabulary import with_own_words

MOST_TRACED_STATES = 20
"""Vector functions with more states become loops over arrays: cell by cell they compile slower than they would gain."""
_STEPPED_OVER = (
    ". The function reads the time: what lasts less than a step, such as a pulse, may be stepped over; max_step=, no "
    "longer than the shortest of it, prevents that (inputs given as `forcings` or `events` are never stepped over)"
)


@with_own_words
class OdeModel(ProfileModel):
    """A model of ordinary differential equations, as a function of its parameters.

    ``model(parms)`` runs it and returns a table. Functions whose arguments are named, and text, are turned into
    equations and compiled; functions of arrays of more than 20 states, such as those of a grid, become loops over
    arrays (see Notes); what cannot be traced runs as it is (`engine_note` says why).

    Parameters
    ----------
    rhs : callable, str or Equations
        The rates: ``f(t, <states>, *, <parameters>, <forcings>)`` with states, parameters and forcings by name,
        returning one rate a state in the order of `state` (or a dict); or ``f(t, y, p)`` with an ndarray and a dict;
        either may return ``(rates, {name: extra output})``. Or text, with lines such as ``d(N)/dt = r * N``, ``N(0) =
        N0`` and ``total = N + M``, and ``0 = B - K*A**2`` where `B` has no rate (see Notes).
    state : mapping, Series or sequence
        Initial values: numbers, names of parameters, or expressions of parameters. They hold at ``times[0]``. Of an
        algebraic state it is a guess. With `grid` of each profile a number, an array of its cells, an expression of x
        and parameters, or a SteadyModel; or a SteadyModel, or its table, for all.
    times : array_like, shape (n_time,)
        Increasing. The first is the start of every run, the last the end of the range that costs may use.
    parms : mapping or Series, optional
        Values of the parameters; keyword defaults of `rhs` are values too.
    outputs : mapping of str to str or callable, optional
        Further variables: expressions, or functions with named arguments, of anything in the model.
    forcings : mapping of str to series, or table, optional
        Inputs: a Series indexed by time, ``(times, values)``, or ``(times, values, "constant")``. Linear between its
        points unless "constant" (the last value passed); held constant outside them. One table of all, times first,
        does as well. A series that is a table with the columns time, value and one more, or ``(table, "constant")``,
        belongs to the entities that the further column names.
    events : table, optional
        Columns ``var``, ``time``, ``value``, ``method`` ("replace", "add", "multiply"; deSolve's "rep" and "mult" too),
        ``order``. A value is a number or an expression of states, outputs, parameters, forcings and time, such as
        "-0.9 * speed". Or it is a function ``f(t, state, parameters)`` that computes one from ``state["x"]`` and
        ``parameters["a"]``, forcings among them; without ``var`` it returns a dict of several states. The row at the
        time of an event shows the state before it. Events of one time happen by ``order`` (default 0), the lower first;
        those of the same order see one state. Events outside `times` are named in a warning. One more column, such as
        "subject", makes them the events of entities: ``model(entity="3")`` runs with the rows of one, and so does a
        cost with ``entity="subject"``. An event with a ``root`` in place of a time
        happens where that crosses zero, see Notes.
    engine : {"auto", "compiled", "explicit", "stiff", "scipy"}
        "compiled" turns the equations into machine code. A run begins with an explicit method, Dormand and Prince's,
        changes to a stiff one, Rodas5P, where the explicit steps are held back by stability, and back. What it does not
        finish LSODA tries (counted as `retries`). "explicit" and "stiff" are held to one of the two methods. "auto"
        takes "compiled" for what has equations, and "scipy" for what has none. ("numba" is an older name of "explicit",
        "diffsol" of "compiled".)
    method : str, optional
        Of compiled: switching. Of explicit: dopri5. Of stiff: rodas5p. Of scipy: lsoda (default), RK45, RK23, DOP853,
        Radau, BDF, LSODA. Fixed steps: euler, rk4. A method chooses its engine.
    dt : float, optional
        Step of euler and rk4; default (and at most): the distance of `times`.
    history : mapping of str to (float or str), optional
        Of models that read the past, ``lag(x, tau)``: what states were before ``times[0]``: numbers, names of
        parameters, or expressions of parameters and the time. Default: their initial values, which is told once. It
        need not meet the initial value.
    bandwidth : int or (int, int), optional
        Of the Jacobian (lower, upper), of a vector function on scipy. Default: which rates depend on which states is
        known of loops over arrays, else found by trying (`fmepy.numerics.structure`), and so is the order of the states
        that makes a narrow band.
    rtol, atol : float
        Tolerances: the error of a step is kept below ``atol + rtol |y|``. `atol` may be one number a state (sequence,
        or dict by name, which leaves the others to the default). Default: a millionth of the largest value that each
        state takes in a first run at the model's own parameters, at most 1e-6, and at most a thousandth of a start
        that is not zero, or of less from which a state grows to matter; see the attribute `atol`. Zero, of states that
        are never zero themselves, leaves `rtol` alone (deSolve's ``atol = 0``). They bound
        the error of a step, which orbits may magnify (see Notes).
    max_step : float, optional
        Longest step of the solver, in units of time (deSolve's ``hmax``), for inputs that it could step over: pulses in
        a function that cannot be traced. By default steps have no limit, but on "scipy" where the rates read the time:
        0.618 of the largest gap between the rows of a run (deSolve's is the gap), at most a fiftieth of its length;
        many rows do not make it shorter than a 300th.
    grid : Grid1D, optional
        The cells of profiles: states are arrays of one value a cell, see Notes.
    algebraic : sequence of str, optional
        Of a function: the states in whose place it returns, instead of a rate, what is to be zero at every time, such
        as ``B - K*A**2`` in that of ``B``. Text says it by ``0 = ...``.

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
    compiled run that fails is tried once more with LSODA, with a bound on its effort.
    A run in which a state runs to infinity is not: where the solver gave up, the state has grown more than a
    thousandfold and grows by a factor of e within 1e-8 of the time since its start, or by more than 1e15 and at least
    half as fast as it has done on average, or by more than 1e100 (`SimulationError.exploded`).

    **Functions of arrays**, ``f(t, y, p)`` of more than 20 states, are called once with arrays of symbols. What they
    do with whole arrays (slices, ``np.diff``, ``np.concatenate``, ``np.r_``, ``reshape``, ``np.where``, sums, products
    with constant matrices, `transport_1d`, writing into ``np.zeros_like(y)``) is compiled as loops. They run on
    "compiled" where the Jacobian is a band, of at most 41 diagonals, in the order that makes it narrow; else scipy's
    solvers call them. Sensitivities are exact there, with "lsoda" and with fixed steps. They are differences of runs
    where rates jump with a state (a comparison of states), with root events, and of more than 100 states of which every
    rate depends on most. A function that decides by a value (``if``), or writes into ``np.zeros(n)``, runs as it is.

    **Profiles.** With `grid` a function with named arguments gets the profile of every species as an array, shape
    (n_cell,), and returns ``a, b``, ``a, b, {name: output}`` or ``(a, b), {name: output}``: one array of rates a
    species in the order of `state`, and outputs of one number of the run, or one a cell; ``f(t, y, p)`` gets all cells
    of the first species, then of the second. A `SteadyModel` takes the same function. A profile starts at a number, an
    array of the cells, or an expression of parameters and the place ``x``, such as ``"top * exp(-x/L)"``. `state` may
    be a SteadyModel: every run starts from the steady state at its own parameters, which sensitivities follow; names of
    both are one parameter, and one that is a forcing here keeps its number there. It may be the table of one, which is
    numbers. In tables and messages, and wherever one name is one number, ``O2[3]`` is O2 in the third cell from the
    first edge. Without `atol` a species has one tolerance, that of its largest value. `outputs`, `events`, `history`
    and `algebraic` are refused.

    **Algebraic states** are those without a rate. As many equations 0 = g(t, x, w, p) as there are of them determine
    them at every time, at the start too, where w is solved for from the guess in `state`, and again after events and
    jumps of forcings, where a row shows w before it (and outputs by the forcings behind it). The model must be of index
    one: dg/dw regular, so that g can be solved for w (Hairer and Wanner 1996, section VI.1). Models of higher index,
    such as a pendulum whose equation is that of its length, are refused.
    "compiled" solves both kinds of equation together, by its stiff method; with scipy's solvers and fixed steps the
    rates are those of the x alone, and w is solved for in each of their evaluations. Sensitivities are exact as of any
    equations.

    Jumps of time in equations (``t % 1 < 0.1``, ``floor(t)``, ``t > lag``) are stops of the adaptive solvers. With
    "euler" and "rk4" a step goes across such a jump, and a stage at its end sees what holds from there on, which is an
    error of first order in `dt`. Jumps of "constant" forcings and events are points of their grid.

    **Delays.** ``lag(x, tau)`` in text, and in functions of named arguments that can be traced (`fmepy.lag`), is what a
    state x, or an expression of states, was at t - tau. A delay is a number, a parameter or an expression of
    parameters; zero is the present, a negative one is a failed run. Such models run on "compiled" alone, an explicit
    method (Dormand and Prince's, with the past kept as its polynomials of order four; no step is longer than the
    shortest delay; what follows by delays from the start, events and kinks of forcings is stopped at, five sums of
    delays deep: Hairer, Norsett and Wanner 1993, section II.17). A delay may also be an expression of states and time,
    ``lag(x, a + b*x)``; a run in which it comes to zero is a failed run, and jumps of the past that it passes are left
    to the control of errors. Sensitivities are exact, to delays too::

        S' = f_x S + f_lag (S(t - tau) - x'(t - tau) dtau/dp) + f_p

    and jump where f does because x jumped a delay ago, at an event or at a hit of a root event, whose time moves too.
    They are by differences where conditions of states make the rates jump, which are gone across, and of delays that
    change in a run, where there are events or a history is given. A run that turns stiff is a failed run. A filter, a
    predictor or boundary values, which correct the present state, refuse delays.

    **Root events** are rows of `events` with ``root`` in place of ``time``: ``dict(root="height", direction=-1,
    var="speed", value="-e * speed")``. The root is a state, an output, or an expression of states, parameters, forcings
    and time; the event happens where it falls through zero (`direction` -1), rises through it (1), or either (0, the
    default). It fires once a crossing, and not again until its root has left zero: one that is zero at the start must
    leave it first, and one that another event carries across zero has not crossed it. Several rows of one root and
    direction are changes at one hit; roots that cross at one time fire one after the other, by ``order`` and as they
    stand. The row of the result at a hit shows the state before it. `hits` returns when they fired. Adaptive solvers
    stop at the hit, to their tolerance. "euler" and "rk4" cut the step in two there, which keeps the order of the
    scheme, and do not see a root that crosses twice within a step. The time t* of a hit moves with the parameters, and
    sensitivities follow, with y+ = h(t, y-, p) and the rates f- and f+ before and after (of fixed steps, and of
    functions that cannot be traced, they are differences of runs)::

        dt*/dp = -(g_y S- + g_p) / (g_y f- + g_t)
        S+     = h_y (S- + f- dt*/dp) + h_p + h_t dt*/dp - f+ dt*/dp

    A root without ``var`` changes nothing and is only reported by `hits`. With ``terminal=True`` it ends the run: the
    last row of the table is at the root. Where rows are asked for that come later, by data or an ensemble, that is an
    error that names the time (`EndedRunError`).

    A root event may say ``when`` its condition holds, an expression that is 1 then and else 0, such as
    ``"where(x > 2, 1, 0)"`` beside the root ``"x - 2"`` and the direction 1. It then also happens where another event
    of that time begins it, and rows at its time show the state after it. With ``persistent=False`` it does not happen
    if another one has ended the condition first; with ``early=True`` its values are of the state in which the condition
    began to hold. Events of SBML are such events.

    An event that fires without end, at ever shorter distances or more than 10,000 times, ends the run (SimulationError,
    with its last times); fits and chains take that for a run that failed.

    On smooth, unstable orbits errors of steps grow. Largest errors at rtol = atol = 1e-6, 1e-8, 1e-9, 1e-10 of the
    Arenstorf orbit: 0.04, 2e-3, 6e-5, 4e-6 with LSODA and 0.04, 7e-5, 2e-5, 2e-6 with dopri5. For such models take
    tolerances ten to a hundred times smaller.

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
    d(N)/dt = r*N*(1 - N/K)

    A fast equilibrium beside a decay, as an algebraic equation: B = K A^2.

    >>> text = '''
    ...     d(A)/dt = -k*A
    ...     0 = B - K*A**2
    ... '''
    >>> model = OdeModel(text, state={"A": 1, "B": 0.1}, times=[0, 1, 2], parms={"k": 0.5, "K": 2})
    >>> model().round(3)
       time      A      B
    0     0  1.000  2.000
    1     1  0.607  0.736
    2     2  0.368  0.271

    The same where a population feels its size of some time ago; before the start it was `N0`:

    >>> model = OdeModel("d(N)/dt = r*N*(1 - lag(N, tau)/K)", state={"N": 1}, history={"N": "N0"},
    ...                  parms=dict(r=1, tau=1.5, K=10, N0=1), times=[0, 5, 10])
    >>> model().round(2)
       time      N
    0     0   1.00
    1     5  14.33
    2    10  15.41

    Oxygen in a sediment, from its surface down, and the flux that enters; see `transport_1d`:

    >>> from fmepy.models.transport import transport_1d
    >>> grid = Grid1D(np.linspace(0, 4, 41))
    >>> def sediment(t, O2, *, D=1.0, k=0.5, top=300.0):
    ...     flow = transport_1d(O2, grid, D=D, up=top)
    ...     return flow.rate - k * O2, {"into": flow.flux[0]}
    >>> column = OdeModel(sediment, state={"O2": "top * exp(-2 * x)"}, grid=grid, times=[0, 1, 10])
    >>> column
    OdeModel of 1 profile (O2) in 40 cells, 3 parameters; engine compiled, method switching
    >>> column().iloc[[0, 40, 80, 119]].round(2)
         time     x      O2
    0       0  0.05  271.45
    40      1  0.05  288.12
    80     10  0.05  289.47
    119    10  3.95   35.25
    >>> column(wide=True)[["time", "O2[1]", "O2[40]", "into"]].round(2)
       time   O2[1]  O2[40]    into
    0     0  271.45    0.11  570.98
    1     1  288.12    4.74  237.63
    2    10  289.47   35.25  210.56

    A ball that bounces, and when; the times move with the parameters:

    >>> def falling(t, height, speed, *, g=10.0, e=0.8):
    ...     return speed, -g
    >>> bounce = dict(root="height", direction=-1, var="speed", value="-e * speed")
    >>> ball = OdeModel(falling, state={"height": 5, "speed": 0}, times=np.linspace(0, 5, 51), events=[bounce])
    >>> ball.hits(sensitivities=True).drop(columns="e").round(3)
        time  event    root      g
    0  1.000      0  height -0.050
    1  2.600      0  height -0.130
    2  3.880      0  height -0.194
    3  4.904      0  height -0.245
    """

    _made_bound = BoundOde

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
        history: Any = None,
        bandwidth: int | tuple[int, int] | None = None,
        rtol: float = 1e-6,
        atol: Any = None,
        max_step: float | None = None,
        algebraic: Sequence[str] | None = None,
        grid: Grid1D | None = None,
    ) -> None:
        engine = registry.ALIASES.get(engine, engine) if isinstance(engine, str) else engine
        check_choice(engine, ("auto", *registry.engine_names()), "engine")
        given = dict(locals())
        most = 10**6 if registry.asks_for_equations(engine) else MOST_TRACED_STATES
        if grid is not None:
            given["state"], most = self._flatten(given), 0
        super().__init__("ode", rhs if self.on_grid is None else self.on_grid, given, most)
        if grid is not None and self.on_grid is not None:
            atol = by_species(atol, self.on_grid.species, len(grid))
            self._from_grid()
        rtol, atol = tolerances.read_tolerances(rtol, atol, self.states)
        span = float(self.times[-1] - self.times[0])
        longest = tolerances.read_max_step(max_step, span)
        is_banded = bandwidth is not None and engine == "auto" and method is None and self.definition.equations is None
        self._engine, self.method, self.engine_note = registry.choose_engine(
            "scipy" if is_banded else engine, method, self.definition, bool(np.isfinite(longest))
        )
        self.engine: str = self._engine.name
        if self.definition.algebraic and self._like is None:
            check_index(self.definition, float(self.times[0]))
        if self.engine_note and self.definition.equations is None and np.isinf(longest) and tolerances.reads_time(rhs):
            self.engine_note += _STEPPED_OVER
        if dt is not None:
            _check_step(dt, self.method, bool(self._engine.steps), span)
        width = None if bandwidth is None else _bandwidth(bandwidth, self._engine.needs_equations, len(self.states))
        self.options: SolverOptions = SolverOptions(self.method, rtol, atol, dt, width, longest)
        self._scaled: SolverOptions | None = None
        self.told_small: set[str] = set()  # warnings of states too small for their tolerance: one is enough
        self.told_fallbacks: set[Any] = set() if self._like is None else self._like.told_fallbacks
        self.seen_starts: Vector | None = None  # the smallest from which a run has been looked at
        delayed = self.definition.has_delays
        self.chooses_engine = engine == "auto" and method is None and bandwidth is None and not delayed
        self.engines: tuple[Engine, ...] = (self._engine, *registry.heirs(self._engine, self.definition))
        self._order: tuple[Engine, ...] | None = None
        self.kept_runners: dict[Any, Any] = {}  # by what they were made of, see `bound_ode`
        outside, like = self._events_outside(), self._like
        if outside and (like is None or outside != like._events_outside()):
            warn(outside)
        self._tell()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "kept_runners": {}}  # addresses mean nothing to another process

    def tell_with(self, other: Any) -> None:
        """Let two models, such as those of two entities, share their one-time warnings."""
        if isinstance(other, OdeModel):
            self.told_small = other.told_small

    def hits(self, parms: UserParameters = None, *, sensitivities: bool = False) -> pd.DataFrame:
        """Return when root events fire in a run from the first to the last of `times`.

        Parameters
        ----------
        parms : dict, Series, table row or lmfit.Parameters, optional
            Values by name; a subset leaves the rest as it is.
        sensitivities : bool
            Also the derivatives of the times, one column a parameter.

        Returns
        -------
        DataFrame
            Columns ``time``, ``event`` (the row of `events`, counted from 0; of several rows of one root the first) and
            ``root`` (its text), one row a hit. Then, if asked for, the parameters: d time / d parameter.

        Raises
        ------
        ModelError
            The model has no root events.
        SimulationError
            The run failed.
        """
        roots = self.definition.roots
        if not roots:
            raise ModelError(
                "`hits`: the model has no root events. They are rows of `events` with a root in place of a time, such "
                "as dict(root='height', direction=-1, var='speed', value='-0.9*speed')."
            )
        theta, bound = merge_parameters(self._parms, parms).to_numpy(dtype=float), self.bind()
        found, slopes = bound.hits(theta, sensitivities)
        table = pd.DataFrame(
            {
                "time": np.array([t for t, _ in found], dtype=float),
                "event": np.array([roots[j].number for _, j in found], dtype=int),
                "root": np.array([roots[j].text for _, j in found], dtype=object),
            }
        )
        if slopes is None:
            return table
        return pd.concat([table, pd.DataFrame(slopes + 0.0, columns=list(bound.names))], axis=1)

    @property
    def atol(self) -> pd.Series:
        """Absolute tolerance by state."""
        return pd.Series(self.scaled_options().atol, index=list(self.states), name="atol")

    def scaled_options(self) -> SolverOptions:
        """Return the options with an atol for every state, found once for the model: every copy finds the same."""
        if self._scaled is None:
            self._scaled = self.options
            if np.isnan(self.options.atol).any() and not self._engine.steps:
                self._scaled = self.options.with_tolerances(self.options.rtol, self._atol_by_scale())
        return self._scaled

    def engines_of_runs(self) -> tuple[Engine, ...]:
        """Return the engines in the order in which they try a run, found once for the model.

        Where "auto" chose, those that could not finish a first run at the model's own parameters are left out: a model
        that is stiff there is not begun on the explicit method in every run.
        """
        if self._order is None and self.chooses_engine:
            atol = self.scaled_options().atol
            if self._order is None:  # all tolerances were given, so nothing has run
                with suppress(SimulationError):
                    self._first_run(atol)
        self._order = self._order or self.engines
        return self._order

    def _first_run(self, atol: Vector) -> Matrix:
        options = self.options.with_tolerances(self.options.rtol, atol)
        first = BoundOde(self, self.definition.parameters, tolerances.first_rows(self.times), True, options=options)
        Y = first.states_at(self.definition.parms.to_numpy(dtype=float))
        if self.chooses_engine:
            self._order = tuple(first.engines)
        return Y

    def _atol_by_scale(self) -> Vector:
        d = self.definition
        p = d.parms.to_numpy(dtype=float)
        events: list[Any] = [e for e in d.events if self.times[0] <= e.time < self.times[-1]]
        events += [c for r in d.roots for c in r.changes]
        plain, given = p.tolist(), self.options.atol
        starts = tolerances.known_starts(d)(plain)
        if self.on_grid is not None:  # of a profile the largest counts
            return self.on_grid.in_all_cells(given, starts, self._first_run)
        if np.isnan(given).all():  # what grows from here has been looked at
            self.seen_starts = np.where(starts > 0, starts, np.inf)
        rise = tolerances.rise_of(d, tolerances.first_rows(self.times), plain)
        return tolerances.scaled_tolerances(given, starts, self._first_run, sizes_set(events, d, plain), rise)

    def _events_outside(self) -> str:
        return events_outside(self.definition.events, self.states, float(self.times[0]), float(self.times[-1]))


# --- checks at the door


def _check_step(dt: float, method: str, has_fixed_steps: bool, span: float) -> None:
    if not has_fixed_steps or not dt > 0:
        raise ModelError(
            f"`dt={dt!r}` is the step of method='euler' or 'rk4' and must be positive; the method here is {method!r}."
        )
    tolerances.check_number_of_steps(span, dt, f"dt={dt!r}", tolerances.MOST_FIXED_STEPS)


def _bandwidth(bandwidth: Any, is_compiled: bool, n: int) -> tuple[int, int]:
    if is_compiled:
        raise ModelError("`bandwidth` is for models that run on scipy; this one is compiled. Pass engine='scipy'.")
    pair = (bandwidth, bandwidth) if np.ndim(bandwidth) == 0 else tuple(bandwidth)
    if len(pair) != 2 or any(as_number(b) not in range(n) for b in pair):
        raise ModelError(
            f"`bandwidth={bandwidth!r}` must be a whole number, or two (lower, upper), from 0 to {n - 1}, for there "
            f"{'is' if n == 1 else 'are'} {counted(n, 'state')}."
        )
    return int(pair[0]), int(pair[1])
