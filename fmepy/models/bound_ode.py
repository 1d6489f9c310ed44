"""A model of differential equations as a function of a plain vector: `BoundOde`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fmepy.compiled.status import DONE
from fmepy.errors import ArgumentError, EndedRunError, ModelError, SimulationError
from fmepy.language.equations import names_in
from fmepy.models.base import one_by_one
from fmepy.models.dynamic import BoundDynamic
from fmepy.models.engines.adjoint import SweptRuns, is_worth_a_sweep
from fmepy.models.engines.base import Engine, SolverOptions
from fmepy.models.engines.explicit import EXPLICIT
from fmepy.models.engines.scipy_steppers import ENGINE as SCIPY
from fmepy.models.engines.scipy_steppers import RETRY, TAKEN_OVER
from fmepy.models.running.crossings import Hit, elapsed, hits_before
from fmepy.models.running.forcings import forcing_values
from fmepy.models.running.problem import ArraysAt
from fmepy.models.running.runners import ModelRunner, make_runner
from fmepy.models.running.system import scales_of
from fmepy.models.running.timeline import Timeline
from fmepy.models.running.tolerances import RESOLVED, grown, known_starts, known_starts_of_many, rise_of, unresolved
from fmepy.models.running.watch_table import NEAR
from fmepy.numerics.differences import central_differences, differences_of_rows, steps_beside
from fmepy.parameters.names import as_theta
from fmepy.types import BoolVector, Cube, Matrix, Vector

if TYPE_CHECKING:
    from fmepy.models.ode import OdeModel

logger = logging.getLogger(__name__)

_ONE_AT_A_TIME = threading.Lock()
_MOST_KEPT = 12  # runners of a model, for further bindings


class BoundOde(BoundDynamic):
    """An OdeModel as a function of a plain vector; see `models.base.BoundModel`."""

    _made_anew = ("_starts", "_sweeps")

    def __init__(
        self,
        model: OdeModel,
        names: tuple[str, ...],
        times: Vector,
        hold_engine: bool,
        start: float | None = None,
        options: SolverOptions | None = None,
    ) -> None:
        d = model.definition
        super().__init__(d, names, times, forcing_values(d.forcings, times))
        self._options = options  # None: the model's, looked up at the first run
        self._has_looked = False  # whether states grow from below their tolerance
        self._model, self._hold = model, hold_engine
        self._order: list[Engine] | None = None if options is None else list(model.engines)  # of a first run
        begins = float(model.times[0] if start is None else start)
        if d.has_delays and begins != model.times[0]:
            raise ModelError(
                f"`start={start!r}`: a model with delays runs from its first time, {model.times[0]:g}, for its past is "
                "known from there."
            )
        self._timeline = Timeline.of(begins, times, d.forcings, np.array([e.time for e in d.events]))
        self._grid = np.concatenate([[begins], model.times[model.times > begins]])  # of fixed steps
        self._runners: dict[tuple[str, str], ModelRunner | None] = {}

    @property
    def engines(self) -> list[Engine]:
        """The engines in the order in which they try a run; first the one that finished the model's first run."""
        if self._order is None:
            self._order = list(self._model.engines_of_runs())
        return self._order

    @property
    def engine(self) -> str:
        """The engine in use."""
        name = self.engines[0].name
        return SCIPY.name if name in (RETRY.name, TAKEN_OVER.name) else name

    @property
    def exact(self) -> bool:
        """Whether `sensitivities` solves the variational equations."""
        return self._runner(self.engines[0], "exact") is not None

    def _runner(self, engine: Engine, kind: str) -> ModelRunner | None:
        """Return the runner of an engine, made at its first use: "plain", "exact", "tight" (for differences)."""
        key = (engine.name, kind)
        if key not in self._runners:
            if self._options is None:
                self._options = self._model.scaled_options()
            options = self._options.tightened() if kind == "tight" else self._options
            names = self.names if kind == "exact" else ()
            self._runners[key] = self._made_runner(engine, names, options)
        return self._runners[key]

    def _made_runner(self, engine: Engine, names: tuple[str, ...], options: SolverOptions) -> ModelRunner | None:
        """Return a runner: that of another binding of the model at the same rows, where its runs are `whole`.

        Those hold nothing of a run, and threads share them; to make them takes as long as ten runs.
        """
        kept, line = self._model.kept_runners, self._timeline
        key = (engine, names, options.rtol, options.atol.tobytes(), line.start, line.rows.tobytes())
        known: ModelRunner | None = kept.get(key)
        if known is not None and vars(known).get("whole") is not None:
            return known
        made = make_runner(engine, self._definition, line, names, options, self._grid)
        if made is not None and not engine.steps:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = made
        return made

    def _run(self, p: Vector, kind: str, hits: list[Hit] | None = None) -> tuple[Matrix, Any]:
        """Run on the first engine, and once more on the next if that fails, unless a state has exploded.

        A list of `hits` gets those of the root events, also of a run that a terminal one ends.
        """
        failures: list[SimulationError] = []
        for i, engine in enumerate(tuple(self.engines)):
            runner = self._runner(engine, kind)
            if runner is None:
                break
            own: list[Hit] | None = None if hits is None else []
            try:
                out = runner.run(p, own)
            except EndedRunError as ended:
                if hits is not None and own:
                    hits += own
                raise self._ended(ended, p) from ended
            except SimulationError as error:
                failures.append(error)
                if error.exploded:
                    break
                continue
            if i > 0:
                self.retries += 1
                self._tell_fallback(kind, engine, str(failures[0]))
                if self._hold:
                    first = TAKEN_OVER if engine.name == RETRY.name else engine
                    self._order = [first, *self.engines[i + 1 :]]
            if hits is not None and own:
                hits += own
            return out
        reached = min((f.time for f in failures if f.time is not None), default=None)
        at = "" if reached is None else f" at time {reached:.6g}"
        by_itself = isinstance(failures[-1].__cause__, ArgumentError)  # the function says why, however it is run
        why = "; then ".join(dict.fromkeys(map(str, failures[-1:] if by_itself else failures)))
        raise self._failure(at, why, p, reached, failures[-1].exploded) from failures[-1]

    def _ended(self, ended: EndedRunError, p: Vector) -> EndedRunError:
        """Return the error of a run that a terminal root event ended, with what it has of it."""
        values = dict(zip(self._definition.parameters, p.tolist(), strict=True))
        why = f"The run ended at time {ended.time:.6g}: {ended}. Data later than the end cannot be compared with it."
        error = EndedRunError(why, parameters=values, time=ended.time, exploded=True)
        error.rows = ended.rows
        return error

    def _tell_fallback(self, kind: str, engine: Engine, why: str) -> None:
        """Tell, once for the model, that another engine took over; aloud where that is LSODA with rates in Python."""
        told, first = self._model.told_fallbacks, self.engines[0].name
        slow = self.engines[0].needs_equations and not engine.needs_equations
        if (kind, slow) in told or self._options is None:
            return
        told.add((kind, slow))
        what = "A run with sensitivities" if kind == "exact" else "A run"
        if not slow:
            logger.info("%s was not finished by %s (%s), but by %s.", what, first, why, engine.name)
            return
        hint = "engine='scipy' takes LSODA for all runs"
        if first == EXPLICIT.name:
            hint = "engine='compiled' runs what is stiff by a method for it"
        logger.warning(
            f"{what} of the model was not finished by the engine {first!r} ({why}), but by LSODA with rates in plain "
            "Python: up to some hundred times slower. If many are (`retries` counts them), look at what the states do "
            f"there, and give bounds that keep away from it, or a smaller `rtol`; {hint}."
        )

    def _tell_differences(self, why: str) -> None:
        """Tell, once for the model, that sensitivities are differences of runs, unless the engine was asked for."""
        told = self._model.told_fallbacks
        if not self._model.chooses_engine or not self.names or "differences" in told:
            return
        told.add("differences")
        logger.warning(
            f"Sensitivities of the model are differences: {2 * len(self.names) + 1} runs on {self.engine} for each "
            f"set. The reason: {why}. Where this is slow, write the model so that it can be compiled; engine='scipy' "
            "says that it is meant so."
        )

    def tightened(self) -> BoundOde | None:
        """Return the same at tolerances a hundred times smaller; see `models.base.tightened`."""
        if self._model._engine.steps:
            return None
        options = self._model.scaled_options() if self._options is None else self._options
        tight = options.tightened(0.01)
        return self._with_options(tight) if tight.rtol <= 0.1 * options.rtol else None

    def _with_options(self, options: SolverOptions) -> BoundOde:
        """Return the same with other options, which tells nothing of small states."""
        out = copy(self)
        out._options, out._runners, out._limits, out.retries = options, {}, [], 0
        vars(out).pop("_sweeps", None)  # of the same tolerances
        return out

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        Y = self._simulate(theta, "plain")
        if not self._model.told_small:
            self._tell_small(self._parameters(theta), Y)
        return Y

    def until_end(self, theta: Vector) -> tuple[Vector, Matrix]:
        """Return the times of a run and its Y: up to where a terminal root event ends it, if one does."""
        self._has_looked = False  # runs by hand are looked at one by one
        try:
            return self.times, self.simulate(theta)
        except EndedRunError as ended:
            end, rows = float(ended.time or 0.0), ended.rows
            n = int(np.searchsorted(self.times[: len(rows) - 1], end - NEAR * elapsed(end, self._timeline.start)))
            times = np.append(self.times[:n], end)
            other = BoundOde(self._model, self.names, times, self._hold, self._timeline.start)
            return times, other._with_outputs(self._parameters(theta), np.vstack((rows[:n], rows[-1])))

    @property
    def runs_on_threads(self) -> bool:
        """Whether `simulate_many` leaves Python's lock to other threads."""
        return not self._hold and self._whole("plain") is not None

    def simulate_many(self, Theta: Matrix) -> tuple[Cube, Any]:
        """Return Y, shape (n_run, n_time, n_var), and why runs failed; see `models.base.simulate_many`."""
        if not self.runs_on_threads:
            return one_by_one(self, Theta)
        Y, ok = self._many(Theta)
        why = np.full(len(Y), "", dtype=object)
        with _ONE_AT_A_TIME:  # these hold Python's lock anyhow, and count
            for i in np.flatnonzero(~ok):
                (Y[i],), (why[i],) = one_by_one(self, Theta[i : i + 1])
        return Y, why

    def together(self, Theta: Matrix, slopes: bool) -> tuple[Cube, Any, BoolVector] | None:
        """Return many runs from one call: Y, S if asked for (n_run, n_time, n_var, n_par), and which came to their end.

        None where a run is more than one call, or has no exact sensitivities.
        """
        whole = self._whole("exact" if slopes else "plain")
        if whole is None or self._definition.has_delays:
            return None
        if slopes:
            found: tuple[Cube, Any, BoolVector] = whole.many_with_slopes(self._all_parameters(Theta))
            return found
        Y, ok = self._many(Theta)
        return Y, None, ok

    def _many(self, Theta: Matrix) -> tuple[Cube, BoolVector]:
        """Return many whole runs, and which came to their end."""
        P = self._all_parameters(Theta)
        Y, ok = self._whole("plain").many(P)
        if not self._model.told_small:
            self._tell_small_of_many(*((P, Y) if ok.all() else (P[ok], Y[ok])))
        return Y, ok

    @cached_property
    def _sweeps(self) -> dict[str, SweptRuns | None]:
        """What `_swept` has found, by engine."""
        return {}

    @property
    def _swept(self) -> SweptRuns | None:
        """Runs with a sweep back along them, None where sensitivities take less time or there is none."""
        engine = self.engines[0].name
        if engine not in self._sweeps:
            is_worth_it = is_worth_a_sweep(len(self._definition.states), len(self.names))
            swept = getattr(self._whole("plain"), "swept", None) if is_worth_it else None
            self._sweeps[engine] = None if swept is None else swept(self.names)
        return self._sweeps[engine]

    @property
    def has_pull(self) -> bool:
        """Whether `with_pull` takes less time than `sensitivities`."""
        return self._swept is not None

    def with_pull(self, theta: Vector) -> tuple[Matrix, Callable[[Matrix], Vector]]:
        """Return Y, and ``pull(dL/dY)``, which returns dL/dtheta, shape (n_par,), of a number L."""
        swept = self._swept
        if swept is not None:
            Y, (ended, *_), pull = swept.run(self._parameters(np.asarray(theta, dtype=float)))
            if ended == DONE:
                return Y, pull
        Y, S = self.sensitivities(theta)
        return Y, lambda weights: np.tensordot(weights, S, 2)

    @property
    def whole_with_slopes(self) -> Any:
        """Whole runs with sensitivities from all parameters (`models.engines.base`, 5.), None where there are none."""
        whole = None if self._definition.has_delays else self._whole("exact")
        return None if whole is None or whole.has_switches else whole

    def _whole(self, kind: str) -> Any:
        """Return the whole runs of the first engine, None where there are none."""
        runner = self._runner(self.engines[0], kind)
        return None if runner is None else runner.whole

    def _all_parameters(self, Theta: Matrix) -> Matrix:
        """Return all parameters of many runs, row by row."""
        P = np.empty((len(Theta), len(self._base)))
        P[:] = self._base
        P[:, self._places] = Theta if np.shape(Theta)[1:] == self._places.shape else as_theta(Theta[0], self.names)
        return P

    def states_at(self, theta: Vector) -> Matrix:
        """Return the states alone, shape (n_time, n_state)."""
        return self._run(self._parameters(theta), "plain")[0][:, : len(self._definition.states)]

    def hits(self, theta: Vector, sensitivities: bool = False) -> tuple[list[tuple[float, int]], Matrix | None]:
        """Return the hits of the root events, and the derivatives of their times if asked for, shape (n_hit, n_par).

        Of a hit: its time, and which one of `definition.roots` it is.
        """
        theta = as_theta(theta, self.names)
        exact = sensitivities and self.exact

        def at(theta: Vector, kind: str) -> list[Hit]:
            hits: list[Hit] = []
            with suppress(EndedRunError):
                self._run(self._parameters(theta), kind, hits)
            return hits

        def times(moved: Vector) -> Vector:
            hits = at(moved, "tight")
            if [j for _, j, _ in hits] != [j for _, j in found]:
                raise SimulationError(
                    "The hits of the root events change beside these parameters; they have no slopes."
                )
            return np.array([t for t, *_ in hits])

        hits = at(theta, "exact" if exact else "plain")
        found = [(t, j) for t, j, _ in hits]
        if exact:
            return found, np.array([slope for *_, slope in hits]).reshape(-1, len(theta)) / scales_of(theta)
        return found, central_differences(times, theta, self._steps_beside(theta), self._box) if sensitivities else None

    def _steps_beside(self, theta: Vector) -> Vector:
        """Return the steps of differences, see `_differences`."""
        fixed = bool(self._model._engine.steps)
        relative = (np.finfo(float).eps if fixed else self._model.options.tightened().rtol) ** (1 / 3)
        return steps_beside(theta, relative)

    def _tell_small(self, p: Vector, Y: Matrix) -> None:
        """Tell, once for the model, which states are too small for their tolerance, at the end or where they grow."""
        if why := unresolved(Y, self._limits, self._model.states) or (self._grown(p, Y) if self._limits else ""):
            self._model.told_small.add(why)
            logger.warning(why)

    def _grown(self, p: Vector, Y: Matrix) -> str:
        """Return what is to be said of states that grow from below their tolerance, or an empty string.

        Looked at are runs that start from less than a tenth of what was seen, and a first one with a state below atol.
        """
        if self._has_looked and not self._starts_move:
            return ""
        start, seen, options = self._starts(p.tolist()), self._model.seen_starts, self._options
        assert options is not None, "limits are of the tolerances"
        n, is_first, self._has_looked = len(start), not self._has_looked, True
        is_new = seen is None or any(0 < 10 * a < b for a, b in zip(start.tolist(), seen.tolist(), strict=True))
        if not is_new and not (is_first and (np.abs(Y[:, :n]) < options.atol).any()):
            return ""
        self._model.seen_starts = np.minimum(np.inf if seen is None else seen, np.where(start > 0, start, np.inf))

        def again(atol: Vector) -> Matrix:
            other = self._with_options(options.with_tolerances(options.rtol, atol))
            return np.vstack((start, other._run(p, "plain")[0][:, :n]))

        rise = rise_of(self._definition, np.r_[self._timeline.start, self.times], p.tolist())
        return grown(np.vstack((start, Y[:, :n])), options.atol, again, self._model.states, rise)

    @cached_property
    def _starts_move(self) -> bool:
        """Whether theta moves the state at the start."""
        return bool(names_in(self._definition.initial) & set(self.names))

    @cached_property
    def _starts(self) -> Callable[[list[float]], Vector]:
        """The sizes of the states at the start, of the parameters."""
        return known_starts(self._definition)

    @cached_property
    def _starts_of_many(self) -> Callable[[Matrix], Matrix]:
        return known_starts_of_many(self._definition)

    @cached_property
    def _limits(self) -> list[float]:
        """Below which size each state is too small for its tolerance; nothing where none is used."""
        if self._options is None or self._model._engine.steps or self._model.on_grid is not None:
            return []
        limits: list[float] = (RESOLVED * self._options.atol).tolist()
        return limits

    def _tell_small_of_many(self, P: Matrix, Y: Cube) -> None:
        """Tell of the first run that has such states."""
        limits = self._limits
        ends_low = np.flatnonzero((np.abs(Y[:, -1, : len(limits)]) < limits).any(axis=1))
        low = ends_low[(np.abs(Y[ends_low, :, : len(limits)]).max(axis=1) < limits).any(axis=1)]
        is_waiting, i = np.zeros(len(P), dtype=bool), -1
        is_waiting[:1], is_waiting[low] = not self._has_looked, True
        starts = self._starts_of_runs(P, Y) if self._starts_move else None
        while not self._model.told_small:
            if starts is not None and self._model.seen_starts is not None:  # which the last run may have moved
                is_waiting |= ((starts > 0) & (10 * starts < self._model.seen_starts)).any(axis=1)
            left = np.flatnonzero(is_waiting[i + 1 :])
            if not len(left):
                return
            i += 1 + int(left[0])
            self._tell_small(P[i], Y[i])

    def _starts_of_runs(self, P: Matrix, Y: Cube) -> Matrix:
        """Return the sizes of the states at the start, from the runs where their first row is there."""
        if self.times[0] != self._timeline.start:
            return self._starts_of_many(P)
        sizes: Matrix = np.abs(Y[:, 0, : len(self._definition.states)])
        sizes[:, self._definition.algebraic_places] = 0.0
        return sizes

    def _simulate(self, theta: Vector, kind: str) -> Matrix:
        p = self._parameters(theta)
        return self._with_outputs(p, self._run(p, kind)[0])

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par)."""
        theta = as_theta(theta, self.names)
        if not self.exact:
            self._tell_differences(self._why_not_exact())
            return self._differences(theta)
        p = self._parameters(theta)
        try:
            Y, S = self._run(p, "exact")
        except SimulationError as error:
            if error.exploded or all(self._runner(e, "exact") is not None for e in self.engines):
                raise
            self._tell_differences(str(error))  # the last engine has no exact sensitivities for this model
            return self._differences(theta)
        if S is None:  # to no parameter
            Y = self._with_outputs(p, Y)
            return Y, np.empty((*Y.shape, 0))
        return self._with_output_sensitivities(p, Y, S)

    def _why_not_exact(self) -> str:
        d, unseen = self._definition, f"{self.engine} does not stop where conditions or jumps in the equations change"
        if d.arrays is None:
            return self._model.engine_note or d.note or unseen
        if d.arrays.jumps:
            return "a rate jumps with a state"
        return "it has root events" if d.roots else "most of its many rates depend on most of the states"

    def _differences(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and central differences of runs at tightened tolerances.

        The relative step is the cube root of the tightened `rtol`, which balances truncation (h^2) against the solver's
        error (rtol / h). Of a row that a hit passes on one side, they are of the other.
        """
        Y, steps = self.simulate(theta), self._steps_beside(theta)
        if self._definition.roots:
            return Y, differences_of_rows(self._beside_hits, theta, steps, self._box)
        return Y, central_differences(lambda th: self._simulate(th, "tight"), theta, steps, self._box)

    def _beside_hits(self, theta: Vector) -> tuple[Matrix, Matrix]:
        """Return Y by tight tolerances, and how many hits of each root every row shows the state after."""
        p, hits, roots = self._parameters(theta), list[Hit](), self._definition.roots
        Y = self._with_outputs(p, self._run(p, "tight", hits)[0])
        return Y, hits_before(self.times, hits, roots, self._timeline.start)

    def _with_output_sensitivities(self, p: Vector, Y: Matrix, S: Cube) -> tuple[Matrix, Cube]:
        d = self._definition
        if d.extra_names and Y.shape[1] == len(d.states):
            Y, S = self._with_extra_sensitivities(p, Y, S)
        if Y.shape[1] == len(self.var_names):
            return Y, S
        functions, given = self._output_functions(self.names), (p, self._at_rows)
        with np.errstate(all="ignore"):
            table = functions.beside(self.times, Y, *given)
            return table, functions.sensitivities_beside(self.times, Y, S, *given)

    def _with_extra_sensitivities(self, p: Vector, Y: Matrix, S: Cube) -> tuple[Matrix, Cube]:
        """Return states and beside them what the user's function gives beside the rates, with their sensitivities."""
        d = self._definition
        assert d.arrays is not None, "of other functions sensitivities are differences"
        at = ArraysAt(d.arrays, p.tolist(), self._places.tolist(), np.ones(len(self.names)))
        slopes = np.empty((len(Y), len(d.extra_names), len(self.names)))
        with np.errstate(all="ignore"):
            for i, (t, y, s) in enumerate(zip(self.times, Y, S, strict=True)):
                slopes[i] = at.extra_slopes(t, np.concatenate([y, s.T.ravel()]), self._at_rows[:, i])
        return np.concatenate((Y, self._extras(p, Y)), axis=1), np.concatenate((S, slopes), axis=1)
