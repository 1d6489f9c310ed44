"""The general engines: scipy's solvers on any callable.

``lsoda`` is `scipy.integrate.odeint` (it switches between Adams and BDF by itself and takes a banded Jacobian); the
others are methods of `scipy.integrate.solve_ivp`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from fmepy.errors import FmepyError, SimulationError
from fmepy.models.engines.base import Engine, SolverOptions, Step, Stepper, as_failures, carried, steps_of
from fmepy.models.running.problem import InitialValueProblem, RatesOf
from fmepy.models.running.timeline import finite_rows
from fmepy.numerics.structure import Structure
from fmepy.types import Matrix, Vector

IVP_METHODS = ("RK45", "RK23", "DOP853", "Radau", "BDF", "LSODA")
MOST_RETRIED = 50_000.0
"""Evaluations of the rates of one stretch that LSODA may spend on a run that another engine could not finish; a
tenth of them where each solves for algebraic states, which takes thirty times as long."""
MOST_STEPS = 100_000
"""Internal steps of LSODA between two rows before a run counts as failed."""
MOST_EVALUATIONS, FOR_A_ROW = 1_000_000, 200
"""Evaluations of the rates in one stretch before it does: seconds of any model; so many more for each row."""
MOST_IVP_STEPS = 20_000
"""Steps of the methods of solve_ivp, which are made in Python, in one stretch before a run counts as failed."""
LOOK = 1000
"""Evaluations between two looks at how far a run has come; systems of many equations have more."""
STANDSTILL = 1e-10
"""Part of the time since the start by which it must have gone on from one look to the next."""
MOST_DENSE, AT_ONE_TIME = 3000, 50
"""Equations of which LSODA may take a Jacobian without a band: to factor it takes seconds from here on, and soon
minutes. That it begins one is known by so many evaluations at one time."""
ROUNDINGS = 4.0
"""Roundings of the present time by which it must have gone on, too."""


@contextmanager
def _telling(raised: list[tuple[float, Exception]]) -> Iterator[None]:
    """Add to a failure what the rates raised last: solvers saw a NaN, and a user wants to know whose."""
    try:
        yield
    except SimulationError as failure:
        if not raised:
            raise
        t, error = raised[-1]
        raise SimulationError(
            f"{failure}; the model's function raised {type(error).__name__} at time {t:.6g}: {error}",
            time=failure.time,
            exploded=failure.exploded,
        ) from error


def _guarded(
    name: str,
    rates: RatesOf,
    plain: list[float],
    start: float,
    raised: list[tuple[float, Exception]],
    most: float = np.inf,
    nowhere: list[float] | None = None,
    is_large: bool = False,
) -> Callable[[float, Vector], Any]:
    """Return F(t, z) on plain floats; `raised` gets what it raised last for want of a value, and NaN is returned.

    Where some rates have no finite value all are NaN, which no solver accepts for long: LSODA accepts a step of which
    only some components have no value, and steps over a pole of infinite rates.

    `nowhere` gets the times at which they had none. It ends a run (SimulationError) in which time stands still, as it
    does where a state runs to infinity and these solvers go on with steps of no length, and one of more than `most`
    evaluations; where it `is_large`, also one that needs a Jacobian.
    """
    count, next_look, mark = 0, 0, start
    last, here = start, 0

    def function(t: float, z: Vector) -> Any:
        nonlocal count, next_look, mark, last, here
        count += 1
        last, here = t, here + 1 if t == last else 0
        if is_large and here > AT_ONE_TIME:
            raise SimulationError(
                f"the model is stiff here, and {name} would need a Jacobian of {len(z)} x {len(z)} entries, of which "
                "none are known to be zero: let rates depend on few states, or give a `bandwidth`",
                time=t,
            )
        if count >= next_look:
            if count > 1 and t - mark <= max(STANDSTILL * (t - start), ROUNDINGS * math.ulp(t)):
                raise SimulationError(f"{name} gave up: the step became too small, time stands still", time=t)
            if count > most:
                raise SimulationError(f"{name} gave up: more than {most:.0f} evaluations of the rates", time=t)
            mark, next_look = t, count + LOOK + LOOK // 50 * len(z)  # a Jacobian by differences takes one for each z
        try:
            out = rates(t, z, plain)
        except FmepyError:  # ours are ValueErrors too
            raise
        except (ValueError, ArithmeticError) as error:
            raised[:] = [(t, error)]
            return np.full(len(z), np.nan)
        total = out.dot(out) if isinstance(out, np.ndarray) else sum(out)
        if not math.isfinite(total) and not np.isfinite(out).all():  # a finite sum (of squares) has finite terms
            if nowhere is not None and np.isfinite(z).all():  # what is endless has endless rates
                nowhere.append(t)
            return np.full(len(z), np.nan)
        return out

    return function


class LsodaStepper:
    """LSODA on one system.

    Parameters
    ----------
    rates : callable
        F(t, z, inputs).
    options : SolverOptions
        Its atol is that of all z; its bandwidth that of the Jacobian (lower, upper), of z in its order.
    most_evaluations : float, optional
        Of the rates, in one stretch; default `MOST_EVALUATIONS`, and `FOR_A_ROW` for each row.
    diagonal : (Structure, callable), optional
        Of z that are several blocks of states with one Jacobian: that Jacobian, of which its entries are given by
        ``f(t, states, inputs)``.
    """

    name = "scipy"
    watches_switches = False

    def __init__(
        self,
        rates: RatesOf,
        options: SolverOptions,
        most_evaluations: float | None = None,
        diagonal: tuple[Structure, RatesOf] | None = None,
    ) -> None:
        self.rates, self.options, self.most_evaluations = rates, options, most_evaluations
        self._order = order = options.order
        self._diagonal = diagonal
        if order is not None:
            own = np.argsort(order)
            self._own = own
            self.rates = lambda t, z, inputs: rates(t, z[own], inputs)[order]
            self.options = replace(options, atol=np.broadcast_to(options.atol, order.shape)[order], order=None)

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        if self._order is None:
            return self._advance(start, z, inputs, times)
        reached, Z = self._advance(start, z[self._order], inputs, times)
        return reached, Z[:, self._own]

    def _jacobian(self, inputs: list[float]) -> Callable[[float, Vector], Matrix] | None:
        """Return what gives the band of the Jacobian, transposed; None for LSODA's own differences."""
        if self._diagonal is None or self.options.bandwidth is None:
            return None
        (structure, entries), (lower, upper), n_all = self._diagonal, self.options.bandwidth, len(self.options.atol)
        n = structure.n
        place = np.arange(n) if self._order is None else self._own[:n]
        row, column = place[structure.rows], place[structure.columns]
        own = slice(0, n) if self._order is None else self._own[:n]
        band = np.zeros((n_all, lower + upper + 1))

        def jacobian(t: float, z: Vector) -> Matrix:
            band[:n][column, row - column + upper] = entries(t, z[own], inputs)
            band[n:].reshape(-1, *band[:n].shape)[:] = band[:n]
            return band

        return jacobian

    def _advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        from scipy.integrate import ODEintWarning, odeint

        at_start = bool(times[0] == start)
        grid = times if at_start else np.concatenate(([start], times))
        options = self.options
        ml, mu = options.bandwidth or (None, None)
        longest = steps_of(float(times[-1]) - start, options.max_step)
        most, evaluations = MOST_STEPS + longest, self.most_evaluations or MOST_EVALUATIONS + FOR_A_ROW * len(times)
        evaluations += 10 * longest
        raised: list[tuple[float, Exception]] = []
        plain = inputs.tolist()
        nowhere: list[float] = []
        is_large = options.bandwidth is None and len(z) > MOST_DENSE
        rates = _guarded("LSODA", self.rates, plain, start, raised, evaluations, nowhere, is_large)
        with _telling(raised), warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore", ODEintWarning)
            with as_failures():
                out, info = odeint(
                    rates, z, grid, tfirst=True, rtol=options.rtol, atol=options.atol, tcrit=[times[-1]], mxstep=most,
                    hmax=options.max_step if np.isfinite(options.max_step) else 0.0, ml=ml, mu=mu,
                    Dfun=self._jacobian(plain), col_deriv=True, full_output=True,
                )  # fmt: skip
            if info["message"] != "Integration successful.":
                behind = np.flatnonzero(~(info["tcur"] >= grid[1:]))
                why, k = info["message"].rstrip("."), int(behind[0]) if len(behind) else len(grid) - 2
                reached = float(info["tcur"][k])  # behind it the array is what memory was
                if why.startswith("Illegal") or not grid[k] <= reached <= grid[k + 1]:
                    reached = float(grid[k])
                if why.startswith("Excess work"):
                    why = f"more than {most} steps between two rows"
                raise SimulationError(f"LSODA gave up: {why}", time=reached)
            if times[-1] - info["tcur"][-1] > 1e-9 * (times[-1] - start):  # not even a first step succeeds
                raise SimulationError("LSODA gave up: no step is small enough", time=float(info["tcur"][-1]))
            if raised:
                finite_rows(out, grid)
            if nowhere and not np.isfinite(out[-1]).all():  # in the row behind; where, the rates have seen
                known = grid[np.isfinite(out).all(axis=1)]
                at = min((t for t in nowhere if t >= known[-1:].max(initial=start)), default=float(grid[-1]))
                raise SimulationError("a rate is not finite from here on", time=float(at))
        return times, out if at_start else out[1:]


class IvpStepper:
    """A method of scipy's solve_ivp on one system; it can watch switches.

    Parameters
    ----------
    problem : InitialValueProblem
        Its conditions end a run where they cross zero.
    options : SolverOptions
        As for LsodaStepper.
    method : str
        One of `IVP_METHODS`.
    """

    name = "scipy"

    def __init__(self, problem: InitialValueProblem, options: SolverOptions, method: str) -> None:
        self.problem, self.options, self.method = problem, options, method
        self.watches_switches = problem.n_watched > 0

    def advance(self, start: float, z: Vector, inputs: Vector, times: Vector) -> tuple[Vector, Matrix]:
        """Return (times reached, z at them); see `engines.base`."""
        raised: list[tuple[float, Exception]] = []
        plain, watched = inputs.tolist(), self.problem.watched
        rates = _guarded(self.method, self.problem.rates, plain, start, raised)

        def watch(t: float, z: Vector) -> Any:
            return watched(t, z.tolist(), plain)

        with _telling(raised), np.errstate(all="ignore"), warnings.catch_warnings(), as_failures():
            warnings.simplefilter("ignore")  # LSODA tells its troubles as warnings; they come back as failures
            steps = self._steps(rates, start, z, float(times[-1]))
            return carried(steps, watch, self.problem.n_watched, start, z, times)

    def _solver(self, rates: Any, start: float, z: Vector, end: float) -> Any:
        from scipy import integrate

        options, structure, more = self.options, self.problem.structure, {}
        if options.bandwidth is not None and options.order is None and self.method == "LSODA":
            more["lband"], more["uband"] = options.bandwidth
        if structure is not None and not structure.is_dense and self.method in ("BDF", "Radau"):
            more["jac_sparsity"] = structure.matrix
        rtol = max(options.rtol, 100 * np.finfo(float).eps)
        return getattr(integrate, self.method)(
            rates, start, z, end, rtol=rtol, atol=options.atol, max_step=options.max_step, **more
        )

    def _steps(self, rates: Any, start: float, z: Vector, end: float) -> Iterator[Step]:
        solver = self._solver(rates, start, z, end)
        most = MOST_IVP_STEPS + steps_of(end - start, self.options.max_step)
        for _ in range(most):
            message = solver.step()
            if solver.status == "failed":
                raise SimulationError(f"{self.method} gave up: {message}", time=float(solver.t))
            dense = cache(solver.dense_output)  # made where a row asks for it, once
            yield solver.t_old, solver.t, solver.y, partial(_within, dense)
            if solver.status == "finished":
                return
        raise SimulationError(f"{self.method} gave up: more than {most} steps", time=float(solver.t))


def _within(dense: Callable[[], Any], times: Vector) -> Matrix:
    rows: Matrix = dense()(times).T
    return rows


# --- what is known of the engine


def _stepper(problem: InitialValueProblem, options: SolverOptions, most: float | None = None) -> Stepper:
    """Return the method asked for, or LSODA, with a bound on its evaluations; it stops where a condition changes."""
    options, jacobian, structure = _of_all(problem, options), problem.jacobian, problem.structure
    if problem.n_watched or options.method in IVP_METHODS:  # odeint cannot stop there
        return IvpStepper(problem, options, options.method if options.method in IVP_METHODS else "LSODA")
    if jacobian is None or structure is None:
        return LsodaStepper(problem.rates, options, most)
    return LsodaStepper(problem.rates, _in_blocks(options, structure), most, (structure, jacobian))


def _in_blocks(options: SolverOptions, structure: Structure) -> SolverOptions:
    """Return the options for z of several blocks of states, on the diagonal of whose Jacobian stands that of one."""
    order, lower, upper = structure.band
    blocks = len(options.atol) // structure.n
    orders = (np.arange(blocks)[:, None] * structure.n + order).ravel()
    is_own = bool((orders == np.arange(len(orders))).all())
    return replace(options, bandwidth=(lower, upper), order=None if is_own else orders)


def _retry(problem: InitialValueProblem, options: SolverOptions) -> Stepper:  # by name, so that bound models travel
    return _stepper(problem, options, MOST_RETRIED / (10 if problem.definition.algebraic else 1))


def _of_all(problem: InitialValueProblem, options: SolverOptions) -> SolverOptions:
    """Return the options for all z: atol of every block of states, a bandwidth only of the states alone."""
    if problem.structure is not None:
        options = options.with_structure(problem.structure)
    bandwidth = options.bandwidth if problem.blocks == 1 and not problem.n_watched else None
    return replace(options, atol=np.tile(options.atol, problem.blocks), bandwidth=bandwidth)


ENGINE = Engine("scipy", ("lsoda", *IVP_METHODS), _stepper, watches_switches=True, rank=9)
RETRY = Engine("retry", ("lsoda",), _retry)
"""LSODA for runs that the others could not finish; it goes through switches as through anything else, so that it also
gets along a switch that the run slides on. Not in the registry: nobody asks for it by name."""
TAKEN_OVER = Engine("taken over", ("lsoda",), _stepper)
"""The same for a fit that has left the others: with more of an effort, for there is no other opinion."""
