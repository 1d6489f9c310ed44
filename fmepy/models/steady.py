"""Models whose steady state is what is observed: `SteadyModel`, 0 = f(y; p)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import copied, finite_number
from fmepy.errors import ModelError, SimulationError, check_choice, warn
from fmepy.language.equations import Equations
from fmepy.models.definition.arguments import ModelArguments, check_profile_names
from fmepy.models.definition.assemble import define
from fmepy.models.definition.definition import Definition, Draft, ModelExpressions
from fmepy.models.definition.delays import at_rest
from fmepy.models.definition.function import as_loops, drafted, read_signature, warn_of_order
from fmepy.models.definition.values import ValueTable
from fmepy.models.dynamic import BoundDynamic, Runnable
from fmepy.models.running.forcings import forced_at
from fmepy.models.steady_rates import OfEquations, OfFunction, SteadyRates, slopes_at_rest
from fmepy.models.steady_run import check_start, tolerances
from fmepy.models.steady_state import Place, come_to_rest, jump_between, refused, state_names, why_not
from fmepy.models.transport import Grid1D
from fmepy.numerics.at_rest import NewtonState, rest_from
from fmepy.parameters.names import as_theta, normal_name
from fmepy.types import Cube, Matrix, Vector
from fmepy.vocabulary import with_own_words

MOST_TRACED_STATES = 20
"""Vector functions with more states run as they are."""


@with_own_words
class SteadyModel(Runnable):
    """A model that is observed at its steady state, as a function of its parameters.

    ``model(parms)`` finds the state in which all rates are zero and returns it as a table: one row, or one row a cell
    of a grid. It is a Model like any other: costs, fits, sensitivities, ranges and chains take it.

    Parameters
    ----------
    rhs : callable, str or Equations
        The rates, as for `OdeModel`. With `grid`, a function with named arguments gets the profile of every species as
        an array, shape (n_cell,), and returns one array of rates a species; ``f(t, y, p)`` gets all of them, species
        after species. Beside the rates it may return ``{name: one number of the run, or one a cell}``.
    state : mapping, Series or sequence
        Where the search begins: numbers (on a grid also arrays of one a cell), or expressions of parameters.
    parms : mapping or Series, optional
        Values of the parameters; keyword defaults of `rhs` are values too.
    outputs : mapping of str to str or callable, optional
        Further variables: expressions, or functions with named arguments, of anything in the model.
    grid : Grid1D, optional
        The cells of profiles.
    positive : bool
        States are concentrations: none becomes negative on the way, nor at the end.
    start : {"last", "given"}
        "last": a search begins at the steady state of the model's own parameters, moved along its sensitivities; where
        it does not arrive from there, at `state`. "given": always at `state`.
    t : float
        The time at which the rates are taken.
    rtol, atol, ctol : float
        Tolerances, see `steady`.
    max_iter : int, optional
        Most steps of a search, see `steady`.

    Attributes
    ----------
    parms : Series
    states, var_names : tuple of str
    times : ndarray
        Where the rows are: the middles of the cells, or `t`.
    x_name : str
        What that is called in tables: "x" on a grid, else "time".
    engine, engine_note : str
    equations : Equations or None

    Raises
    ------
    ModelError, ParameterError
        What is wrong with the definition, and the nearest name where one is unknown.
    NoSteadyStateError
        When run: as `steady`.

    Warns
    -----
    UserWarning
        Once a model, in fits and other work with derivatives: the steady state jumps on the way from one point to the
        next, such as across a fold; the parameter, where, and from what to what. `continuation` follows the branches.

    See Also
    --------
    steady, steady_1d, runsteady : one steady state of a function of arrays.
    transport_1d : advection and diffusion on the grid.

    Notes
    -----
    **Sensitivities** follow from the implicit function theorem, with J = df/dy::

        J dy/dp = -df/dp

    exactly where there are equations or loops over arrays (see `OdeModel`); of other functions J and df/dp are
    differences of the rates (never of searches), and what they leave is corrected until it is below a millionth.

    **The start.** "last" means the last state that the model itself is known to have: that of its own parameters,
    found once for a bound model. Every run starts there, whatever was run before it, so that a result depends on its
    parameters alone, and neither on the order of the runs nor on how many workers share them. Of several steady states
    it is the branch of the model's own that is followed. ``model.replace(parms=fit.par)`` moves it.

    **A grid.** Between the middles of its cells a profile is linear, and there are no rows beyond the first and the
    last of them. One number of the run, such as a flux, stands in every row, so that a cost with ``x=None``, which
    compares means, compares that number.

    Examples
    --------
    >>> def reactor(t, S, B, *, D=0.5, Sin=10.0, mu=1.0, K=2.0, Y=0.5):
    ...     growth = mu * S / (K + S)
    ...     return D * (Sin - S) - growth * B / Y, (growth - D) * B
    >>> chemostat = SteadyModel(reactor, state={"S": 1, "B": 3}, positive=True)
    >>> chemostat()
       time    S    B
    0     0  2.0  4.0
    >>> bound = chemostat.bind(["D"])
    >>> Y, S = bound.sensitivities(bound.theta0)
    >>> S[0].round(6).tolist()                             # dS/dD = K mu / (mu - D)^2
    [[8.0], [-4.0]]

    A profile: oxygen that diffuses into a sediment and is consumed there.

    >>> from fmepy.models.transport import Grid1D, transport_1d
    >>> grid = Grid1D(np.linspace(0, 5, 101))
    >>> def sediment(t, O2, *, D=1.0, cons=40.0, ks=0.1, top=300.0):
    ...     flow = transport_1d(O2, grid, D=D, up=top)
    ...     return flow.rate - cons * O2 / (O2 + ks), {"UpFlux": flow.flux[0]}
    >>> profile = SteadyModel(sediment, state={"O2": 100.0}, grid=grid, positive=True)
    >>> profile().round(3).iloc[[0, 20, 60]]
            x       O2  UpFlux
    0   0.025  296.132  154.71
    20  1.025  162.413  154.71
    60  3.025   14.855  154.71
    """

    equations: Any = property(
        attrgetter("_definition.equations"), doc="The symbolic form, None of what runs as Python."
    )

    def __init__(
        self,
        rhs: Callable[..., Any] | str | Equations,
        *,
        state: Any,
        parms: Any = None,
        outputs: Any = None,
        grid: Grid1D | None = None,
        positive: bool = False,
        start: str = "last",
        t: float = 0.0,
        rtol: float = 1e-6,
        atol: Any = 1e-8,
        ctol: float = 1e-8,
        max_iter: int | None = None,
    ) -> None:
        self._arguments = {k: copied(v) for k, v in locals().items() if k not in ("self", "__class__")}
        self.tolerances = tolerances(rtol, atol, ctol, max_iter, positive)
        self.start, self.grid, self.t = check_choice(start, ("last", "given"), "start"), grid, finite_number(t, "t")
        if grid is not None and not isinstance(grid, Grid1D):
            raise ModelError(f"`grid` must be a Grid1D, such as Grid1D(np.linspace(0, 5, 101)); got {grid!r}.")
        source: Any = rhs
        numbers, self._profiles = state, dict[str, Vector]()
        if grid is not None:
            numbers, self._profiles = _apart(state, len(grid))
            source = _OnGrid(rhs, grid)
        like = None if self._like is None or grid is not None else self._like._definition
        words = {"state": numbers, "parms": parms, "outputs": outputs, "start": self.t, "like": like}
        self._definition: Definition = at_rest(define("ode", source, most_states=MOST_TRACED_STATES, **words))
        d = self._definition
        self.states, self.var_names, self._parms = d.states, d.var_names, d.parms
        self._set_times([self.t] if grid is None else grid.mid)
        self.x_name = "time" if grid is None else "x"
        self._cells = None if grid is None else len(grid)
        self.told_jump = False  # of its steady state: once is enough
        self.engine, self.engine_note = "newton", "" if d.equations is not None else d.note
        if d.equations is None and d.arrays is None:
            self.engine_note += "; derivatives are differences of the rates"
        check_start(self.first(d.parms.to_numpy(dtype=float)), self.tolerances, self.name_of, "state")

    @cached_property
    def profiles(self) -> tuple[str, ...]:
        """The variables that are profiles, on a grid; the others are scalars, repeated in all rows."""
        if self.grid is None:
            return ()
        d, source = self._definition, self.source()
        beside = source.outputs(self.first(source.p)) if isinstance(source, OfFunction) else {}
        return tuple(v for v in self.var_names if v not in d.extra_names or np.ndim(beside.get(v, 0.0)))

    @property
    def name_of(self) -> Callable[[int], str]:
        """The name of state i in messages."""
        return state_names(self.states, len(self.states) * (self._cells or 1), self._cells)

    def first(self, p: Vector) -> Vector:
        """Return the start of the search, from `state`, shape (n,)."""
        values = ValueTable(self._definition.initial, self._definition.parameters).value(p.tolist())
        if self.grid is None:
            return values.copy()
        profiles = [self._profiles.get(s, np.full(len(self.grid), v)) for s, v in zip(self.states, values, strict=True)]
        return np.concatenate(profiles)

    def source(self) -> SteadyRates:
        """Return the rates, with their derivatives."""
        d, positive = self._definition, self.tolerances.positive
        p = d.parms.to_numpy(dtype=float)
        if d.equations is not None:
            return OfEquations(d.equations, self.t, p, forced_at(d.forcings, self.t), positive)
        assert d.function is not None, "a definition has equations or a function"
        more: dict[str, Any] = {"positive": positive, "extra_names": d.extra_names, "arrays": d.arrays}
        return OfFunction(d.function, self.t, self.first(p), p, self._cells, **more)

    def bind(self, names: Sequence[str] | None = None, *, times: Any = None, hold_engine: bool = False) -> BoundSteady:
        """Return the model as a function of a plain vector of the parameters `names` (None: all of them, in order).

        Parameters
        ----------
        names : sequence of str, optional
        times : array_like, optional
            Rows: on a grid, x between the middles of the first and the last cell; default all middles.
        hold_engine, runs
            Nothing here: there is one engine.
        """
        chosen, rows = self._asked(names, times)
        if rows[-1] > self.times[-1] or (self.grid is None and len(rows) > 1):
            if self.grid is None:
                raise ModelError(
                    f"`times`: a steady state has no time; its one row stands at t={self.t:g}. In a cost, pass x=None."
                )
            raise ModelError(
                f"`times` (rows of a profile) ends at {rows[-1]:g}, below the middle of the last cell at "
                f"{self.times[-1]:g}."
            )
        return BoundSteady(self, self._definition, chosen, rows)

    def __repr__(self) -> str:
        return self._line("" if self.grid is None else f" in {len(self.grid)} cells", "")


# --- the model as a function of a vector


class BoundSteady(BoundDynamic):
    """A SteadyModel as a function of a plain vector; see `models.base.BoundModel`.

    `retries` counts the runs that Newton's method did not finish from where it began.
    """

    exact = True
    _made_anew = ("_source", "_own", "_own_slopes", "_last", "_seen")
    _last: tuple[bytes, SteadyRates, NewtonState] | None = None
    _seen: dict[bytes, Place] | None = None

    def __init__(self, model: SteadyModel, definition: Definition, names: tuple[str, ...], rows: Vector) -> None:
        grid = model.times
        super().__init__(definition, names, rows, np.empty((0, len(grid))))
        self._model, self._tol, self._grid = model, model.tolerances, grid
        self._has_all_rows = np.array_equal(rows, grid)

    # --- the search

    @cached_property
    def _source(self) -> SteadyRates:
        return self._model.source()

    def _given(self, p: Vector) -> tuple[SteadyRates, NewtonState]:
        """Return the steady state that the model's `state` leads to."""
        return come_to_rest(self._source.at(p), self._model.first(p), self._tol)

    @cached_property
    def _own(self) -> NewtonState | None:
        """The steady state of the model's own parameters, None if there is none: the start of all runs."""
        try:
            found = self._given(self._base)[1]
        except SimulationError:
            return None
        return found if found.converged else None

    @cached_property
    def _own_slopes(self) -> Matrix:
        """Its derivatives to theta; its Jacobian is kept factored."""
        own, system = self._own, self._source.at(self._base)
        assert own is not None, "asked where there is one"
        own.factored = system.structure.solver(system.jacobian(own.y, own.f))
        return slopes_at_rest(system, own.y, own.f, own.factored, self._places, self._box)[0]

    def _search(self, theta: Vector) -> tuple[SteadyRates, NewtonState]:
        """Return the steady state at theta; SimulationError if there is none."""
        key = theta.tobytes()
        if self._last is not None and self._last[0] == key:
            return self._last[1:]
        p = self._parameters(theta)
        with np.errstate(all="ignore"):
            system, found = self._from_own(p, theta) if self._model.start == "last" else (self._source.at(p), None)
            if found is None or not found.converged:
                self.retries += found is not None
                system, found = self._given(p)
            name, first = self._model.name_of, self._model.first
            why = why_not(system, found, self._tol, name, first(p))
        if why:
            parameters = dict(zip(self._definition.parameters, p.tolist(), strict=True))
            n_species = None if self._model.grid is None else len(self._model.states)
            raise refused(why, found, found.y, parameters, n_species)
        self._last = key, system, found
        return system, found

    def _from_own(self, p: Vector, theta: Vector) -> tuple[SteadyRates, NewtonState | None]:
        """Return where Newton's method leads from the steady state of the model's own parameters."""
        system, own = self._source.at(p), self._own
        if own is None:
            return system, None
        if np.array_equal(p, self._base):
            return system, own
        y = own.y + self._own_slopes @ (theta - self.theta0)
        if self._tol.positive:
            y = np.maximum(y, 0.1 * own.y)
        starts = [(z, system.rates(z)) for z in (y, own.y)]
        lengths = [self._tol.size(own.y, own.factored.solve(f)) if np.isfinite(f).all() else np.inf for _, f in starts]
        best = int(lengths[1] < lengths[0])
        if not np.isfinite(lengths[best]):
            return system, None
        y, f = starts[best]
        return system, rest_from(system, y, self._tol, own.factored, f)

    def _held(self, p: Vector) -> bytes:
        return np.delete(p, self._places).tobytes()

    def _tell_jump(self, p: Vector, y: Vector) -> None:
        """Warn, once for the model, if the steady state jumps between the point of the last slopes and this one."""
        if self._seen is None:  # by the parameters that experiments hold
            self._seen = {} if self._own is None else {self._held(self._base): (self._base.copy(), self._own.y)}
        seen, self._seen[self._held(p)] = self._seen.get(self._held(p)), (p, y)
        if seen is None or self._model.told_jump:
            return

        def rest(p: Vector, y: Vector) -> Vector | None:
            found = come_to_rest(self._source.at(p), y, self._tol)[1]
            return found.y if found.converged else None

        with np.errstate(all="ignore"):
            found = jump_between(rest, seen, (p, y))
        if found is None:
            return
        self._model.told_jump = True
        (before, here), (after, there) = found
        moved = np.abs(p - seen[0]) / np.maximum(np.abs(p), np.abs(seen[0])).clip(min=1e-300)
        k, i = int(np.argmax(moved)), int(np.argmax(np.abs(there - here)))
        name = self._definition.parameters[k]
        warn(
            f"The steady state jumps where {name!r} goes from {before[k]:.4g} to {after[k]:.4g}, on the way from "
            f"{seen[0][k]:.4g} to {p[k]:.4g}: {self._model.name_of(i)} goes from {here[i]:.4g} to {there[i]:.4g}. A "
            "fit that goes there sees residuals that jump, too: what it finds holds on one side. continuation(model, "
            f"{name!r}, (first, last)) follows the branches and shows the folds; bounds keep a fit on one of them."
        )

    def tightened(self) -> BoundSteady:
        """Return the same at tolerances a hundred times smaller; see `models.base.tightened`."""
        out, tol = copy(self), self._tol
        out._tol = replace(tol, rtol=max(tol.rtol / 100, 1e-14), atol=tol.atol / 100, ctol=tol.ctol / 100)
        return out

    # --- the contract

    def simulate(self, theta: Vector) -> Any:
        """Return Y, shape (n_row, n_var)."""
        theta = as_theta(theta, self.names)
        system, found = self._search(theta)
        return self._picked_rows(self._table(system, found.y))

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_row, n_var, n_par)."""
        theta = as_theta(theta, self.names)
        system, found = self._search(theta)
        self._tell_jump(system.p, found.y)
        d, n_par = self._definition, len(self.names)
        with np.errstate(all="ignore"):
            fresh = system.structure.solver(system.jacobian(found.y, found.f))
            of_states, of_extras = slopes_at_rest(system, found.y, found.f, fresh, self._places, self._box)
            n_rows = system.n_rows
            S = of_states.reshape(-1, n_rows, n_par).transpose(1, 0, 2)
            if d.extra_names:
                S = np.concatenate([S, of_extras.reshape(n_rows, -1, n_par)], axis=1)
            Y = self._table(system, found.y)
            if d.outputs:
                known, slopes = Y[:, : S.shape[1]], self._output_functions(self.names)
                S = slopes.sensitivities_beside(
                    np.full(n_rows, self._model.t), known, S, system.p, self._forced(n_rows)
                )
        return self._picked_rows(Y), self._picked_rows(S)

    def _forced(self, n_rows: int) -> Matrix:
        """Return the series that the function looks up, the same in every cell, shape (n_series, n_cell)."""
        return np.tile(forced_at(self._definition.forcings, self._model.t), (n_rows, 1)).T

    def _table(self, system: SteadyRates, y: Vector) -> Matrix:
        """Return states, extras and outputs in every cell, shape (n_cell, n_var)."""
        d, n_rows = self._definition, system.n_rows
        Y = np.ascontiguousarray(y.reshape(-1, n_rows).T)
        with np.errstate(all="ignore"):
            if d.extra_names:
                Y = np.concatenate([Y, system.with_extras(y)[1]], axis=1)
            if d.outputs:
                Y = self._output_functions().beside(np.full(n_rows, self._model.t), Y, system.p, self._forced(n_rows))
        return Y

    def _picked_rows(self, table: Any) -> Any:
        """Return a table of all cells at the rows that were asked for, linear between middles."""
        if self._has_all_rows:
            return table
        return np.apply_along_axis(lambda column: np.interp(self.times, self._grid, column), 0, table)


# --- the door


def _apart(state: Any, cells: int) -> tuple[Any, dict[str, Vector]]:
    """Return a number a species, and the profiles that were given instead of one."""
    if not isinstance(state, dict | pd.Series):
        raise ModelError("With a grid, `state` must name its species: a dict such as state={'O2': 100.0}.")
    numbers, profiles = {}, {}
    for key, value in state.items():
        name = normal_name(key)
        if isinstance(value, str) or np.ndim(value) == 0:
            numbers[name] = value
            continue
        try:
            profile = np.array(value, dtype=float)
        except (TypeError, ValueError):
            profile = np.empty(0)
        if profile.shape != (cells,) or not np.isfinite(profile).all():
            raise ModelError(
                f"`state[{name!r}]` must be one number, or {cells} finite ones, one a cell; got an array of shape "
                f"{np.shape(value)}."
            )
        numbers[name], profiles[name] = float(profile[0]), profile
    return numbers, profiles


@dataclass(frozen=True, eq=False)
class _OnGrid:
    """A function of profiles as the source of a model; see `models.definition.definition.Readable`."""

    function: Any
    grid: Grid1D

    def draft(self, given: ModelArguments) -> Draft:
        """Return what it holds."""
        if not callable(self.function):
            raise ModelError(
                "With a grid, a model is a function that gets profiles as arrays; text and equations have no word for "
                "transport."
            )
        check_profile_names(given.initial)
        rates, parms, time = read_signature(self.function, given)

        def find() -> ModelExpressions:
            p, cells = np.array(list(parms.values()), dtype=float), len(self.grid)
            values = ValueTable(list(given.initial.values()), list(parms)).value(p.tolist())
            source = OfFunction(rates, given.start, np.repeat(values, cells), p, cells)
            start = given.start, np.repeat(values, cells), p, np.empty(0)
            shape = (len(values), cells) if rates.form == "named" else (source.n,)
            names = source.tried()
            tried: tuple[Any, ...] = (given.start, np.repeat(values, cells).reshape(shape), p.tolist(), [])
            warn_of_order(rates, *tried)

            def read(t: float, y: Vector, p: Vector, u: Vector) -> Vector:
                found: Vector = source.at_time(t).at(p).rates(y)
                return found

            return as_loops(rates, names, shape, "a function of profiles", "runs as it is", read, *start)

        return drafted(rates, parms, time, given, find)
