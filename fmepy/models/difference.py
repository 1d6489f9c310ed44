"""Models of difference equations: `DifferenceModel`, x[n] = f(x[n-1], u[n], n).

With x[n] = f(x[n-1], u[n], t[n]; p) and outputs h(x[n], u[n], t[n]; p), t[n] = t[0] + n dt::

    S[n] = F S[n-1] + df/dp,  F = df/dx at x[n-1]          dh/dp = (dh/dx) S[n] + dh/dp

The loop (`compiled.difference_loop`) serves all models; of a model two functions are compiled, the step and the
outputs. Of F and the other matrices they compute the entries that are not zero.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, NoReturn

import numpy as np

from fmepy.checks import positive_number
from fmepy.compiled import difference_loop
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.llvm_code import LlvmProgram, Place
from fmepy.compiled.machine import Code, compiled
from fmepy.compiled.python_code import scalar_function
from fmepy.compiled.statements import slow_parts
from fmepy.errors import ModelError, SimulationError, check_choice
from fmepy.language.derivatives import entries_of
from fmepy.language.equations import Equations, symbol, symbols
from fmepy.models.definition.definition import Definition
from fmepy.models.definition.values import ValueTable
from fmepy.models.dynamic import BoundDynamic, DynamicModel
from fmepy.models.engines.base import as_failures
from fmepy.models.running.forcings import forcing_values
from fmepy.models.running.tolerances import MOST_FIXED_STEPS, check_number_of_steps
from fmepy.types import Cube, IntVector, Matrix, Vector
from fmepy.vocabulary import with_own_words

MOST_TRACED_STATES = 200
"""Vector functions with more states run as they are."""
DIFFERENCE_STEP = float(np.finfo(float).eps ** (1 / 3))
"""Relative step of central differences: truncation h**2 against rounding eps/h."""
_OFF = 1e-9  # part of a time, or of a step, by which a time may miss its step: k dt is rounded


@with_own_words
class DifferenceModel(DynamicModel):
    """A model of difference equations, x[n] = f(x[n-1], u[n], n), as a function of its parameters.

    The states advance by one step every `dt`, from ``times[0]`` on, where they have their initial values.
    ``model(parms)`` runs it and returns a table. Functions whose arguments are named, and text, are turned into
    equations and compiled; what cannot be traced runs as it is (`engine_note` says why).

    Parameters
    ----------
    step : callable, str or Equations
        The next states: ``f(n, <states>, *, <parameters>, <forcings>)`` with states, parameters and forcings by name,
        returning one value a state in the order of `state` (or a dict); or ``f(n, x, p)`` with an ndarray and a dict;
        either may return ``(next states, {name: extra output})``. ``n`` is the time of the new row, and forcings are
        those of the new row; the states are the old ones. Or text, with lines such as ``next(N) = r * N``,
        ``N(0) = N0`` and ``total = N + M`` (time is ``t``).
    state : mapping, Series or sequence
        Initial values: numbers, names of parameters, or expressions of parameters. They hold at ``times[0]``.
    times : array_like, shape (n_time,)
        Increasing, a whole number of steps apart. ``[0, 5]`` gives the start and the row after five steps of 1.
    dt : float
        Length of a step.
    parms : mapping or Series, optional
        Values of the parameters; keyword defaults of `step` are values too.
    outputs : mapping of str to str or callable, optional
        Further variables: expressions, or functions with named arguments, of anything in the model. They are of the
        states, forcings and time of their own row.
    forcings : mapping of str to series, optional
        Inputs, as in `OdeModel`.
    engine : {"auto", "compiled", "python"}
        "compiled" refuses what cannot be; "auto" compiles what can be. ("numba" is an older name of "compiled".)

    Attributes
    ----------
    parms : Series
    states, var_names : tuple of str
    times : ndarray
    engine, engine_note : str
    equations : Equations or None
        Shows as text in a terminal and as LaTeX in a notebook.

    Raises
    ------
    ModelError, ParameterError
        What is wrong with the definition, and the nearest name where one is unknown.

    Notes
    -----
    Sensitivities S = dx/dp of compiled models are exact: S[n] = F S[n-1] + df/dp with F = df/dx, through initial values
    and outputs too. Those of other models are central differences with the relative step eps**(1/3).

    Extra outputs that `step` returns are computed, like `outputs`, from the states of their own row; they do not see
    the states before. So what flows during a step, such as a discharge, is a state of its own: ``next(Q) = K * S``.

    Examples
    --------
    >>> def growth(n, N, *, r=0.5, K=100.0):
    ...     return N + r * N * (1 - N / K)
    >>> model = DifferenceModel(growth, state={"N": 10}, times=[0, 1, 10])
    >>> model().round(3)
       time       N
    0     0  10.000
    1     1  14.500
    2    10  95.124
    """

    def __init__(
        self,
        step: Callable[..., Any] | str | Equations,
        *,
        state: Any = None,
        times: Any,
        parms: Any = None,
        outputs: Any = None,
        forcings: Any = None,
        dt: float = 1.0,
        engine: str = "auto",
    ) -> None:
        engine = "compiled" if engine == "numba" else engine  # an older name
        check_choice(engine, ("auto", "compiled", "python"), "engine")
        super().__init__("difference", step, locals(), 10**6 if engine == "compiled" else MOST_TRACED_STATES)
        self.dt = positive_number(dt, "dt", error=ModelError)
        whole_steps(self.times, float(self.times[0]), self.dt)
        self.engine, self.engine_note = _choose_engine(engine, self.definition)
        self._tell()


def whole_steps(times: Vector, start: float, dt: float = 1.0) -> IntVector:
    """Return how many steps of `dt` after `start` the times lie; ModelError if that is not a whole number for each."""
    distance = (times - start) / dt
    steps = np.rint(distance)
    off = np.flatnonzero(np.abs(distance - steps) > _OFF * np.maximum(1.0, np.abs(times) / dt))
    if len(off):
        bad = float(times[off[0]])
        raise ModelError(
            f"`times` holds {bad:g}, which is {bad - start:g} after the start at {start:g}. A difference "
            f"equation advances one step every {dt:g}, so times must be whole numbers of these apart; the nearest such "
            f"time is {start + dt * float(steps[off[0]]):g}. Another length of a step is said by `dt`."
        )
    check_number_of_steps(float(steps[-1]) * dt, dt, "times", MOST_FIXED_STEPS)
    if steps[0] < 0:
        raise ModelError(
            f"`times` begins at {times[0]:g}, before the model's start at {start:g}; the initial values hold there."
        )
    return steps.astype(np.intp)


def _choose_engine(engine: str, definition: Definition) -> tuple[str, str]:
    """Return the engine, and why not the compiled one (or an empty string)."""
    if engine == "python":
        return "python", ""
    if definition.equations is not None:
        return "compiled", ""
    if engine == "compiled":
        raise ModelError(f"`engine='compiled'` needs equations, and the function gives none: {definition.note}.")
    return "python", definition.note


# --- the model as a function of a vector ------------------------------------------------------------------------------


class BoundDifference(BoundDynamic):
    """A DifferenceModel as a function of a plain vector; see `models.base.BoundModel`."""

    _made_anew = ("_initial", "_next")

    def __init__(
        self, model: DifferenceModel, names: tuple[str, ...], times: Vector, hold_engine: bool, start: float | None
    ) -> None:
        d, self._start = model.definition, float(model.times[0] if start is None else start)
        self._dt = model.dt
        self._steps = whole_steps(times, self._start, self._dt)
        at = self._start + self._dt * np.arange(self._steps[-1] + 1)
        self._U = np.ascontiguousarray(forcing_values(d.forcings, at).T)
        super().__init__(d, names, times, self._U[self._steps].T)
        self.exact = model.engine == "compiled"

    def simulate(self, theta: Vector) -> Matrix:
        """Return Y, shape (n_time, n_var)."""
        p = self._parameters(theta)
        y = self._initial_values(p)
        return self._run(p, y, np.empty((len(y), 0)), ())[0] if self.exact else self._run_python(p, y)

    def sensitivities(self, theta: Vector) -> tuple[Matrix, Cube]:
        """Return Y and S, shape (n_time, n_var, n_par)."""
        if not self.exact:
            return self.differences(theta, DIFFERENCE_STEP)
        p = self._parameters(theta)
        y = self._initial_values(p)
        Y, slopes = self._run(p, y, self._initial.slope(p.tolist()), self.names)
        bad = np.flatnonzero(~np.isfinite(slopes[:, : len(y)]).all(axis=(1, 2)))
        if len(bad):
            self._fail("a sensitivity became NaN or infinite", float(self.times[bad[0]]), p)
        return Y, slopes

    def _run(self, p: Vector, y: Vector, S: Matrix, names: tuple[str, ...]) -> tuple[Matrix, Cube]:
        """Run the compiled loop from y and S, the derivatives of y to `names`; return both in all rows."""
        equations, keep = self._definition.equations, self._steps.astype(np.int64)
        assert equations is not None, "the model checked this at the door"
        step, write, counts, places, slow, _ = _compiled(equations, names)
        p_seen = np.append(p, slow(p.tolist()))
        n, m, n_par = len(y), len(equations.outputs), len(names)
        x, both = np.array(y, dtype=float), np.concatenate([S, S])
        v, w = np.empty(n + counts[0] + counts[1]), np.empty(m + counts[2] + counts[3])
        q, told = np.concatenate([p_seen, np.empty(self._U.shape[1])]), np.empty(1)
        out, slopes = np.empty((len(keep), n + m)), np.empty((len(keep), n + m, n_par))
        loop = c_loop(difference_loop.run, "the loop of difference models")
        arrays = (q, self._U, keep, places, x, both, v, w, out, slopes, told)
        sizes = n, m, len(p_seen), self._U.shape[1], n_par, *counts, len(keep)
        loop(step, write, *sizes, self._start, self._dt, *map(address, arrays))
        if told[0] >= 0:
            self._fail("a state became NaN or infinite", self._start + self._dt * int(told[0]), p)
        return out, slopes

    @cached_property
    def _initial(self) -> ValueTable:
        return ValueTable(self._definition.initial, self._definition.parameters, self.names)

    def _initial_values(self, p: Vector) -> Vector:
        try:
            return self._initial.value(p.tolist())
        except SimulationError as error:
            self._fail(str(error), self._start, p)

    def _fail(self, why: str, time: float, p: Vector) -> NoReturn:
        raise self._failure(f" at time {time:.6g} (step {round((time - self._start) / self._dt)})", why, p, time)

    # models without equations, and engine="python"

    def _run_python(self, p: Vector, y: Vector) -> Matrix:
        """Return Y by a loop over the model's own function."""
        advance, plain, t = self._next, p.tolist(), self._start
        states, row = np.empty((len(self.times), len(y))), 0
        try:
            with np.errstate(all="ignore"), as_failures():
                for k in range(int(self._steps[-1]) + 1):
                    t = self._start + self._dt * k
                    if k > 0:
                        y = advance(t, y, plain, self._U[k])
                        if not np.isfinite(y).all():
                            raise SimulationError("a state became NaN or infinite")
                    if self._steps[row] == k:
                        states[row] = y
                        row += 1
        except SimulationError as error:
            self._fail(str(error), t, p)
        return self._with_outputs(p, states)

    @cached_property
    def _next(self) -> Callable[..., Any]:
        """``(t, y, p, u) -> next y``, in Python."""
        d, e = self._definition, self._definition.equations
        if d.function is not None or e is None:
            return d.function  # type: ignore[return-value]  # a definition has one or the other
        function = scalar_function(symbols((e.time,), e.states, e.parameters, e.forcings), e.rates)
        return lambda t, y, p, u: np.array(function((t,), y.tolist(), p, u.tolist()), dtype=float)


# --- what is compiled of a model


@lru_cache(maxsize=64)
def _compiled(equations: Equations, names: tuple[str, ...]) -> tuple[int, int, list[int], Any, Any, Code]:
    """Return the addresses of ``step`` and ``write``, how many entries F, df/dp, dh/dx and dh/dp have, and where.

    q holds parameters, what is taken from them alone (`slow_parts`), of which a function is returned too, and forcings;
    behind the next states, or the outputs, stand the entries of the matrices.
    """
    states, p = [symbol(s) for s in equations.states], [symbol(k) for k in names]
    rates, outputs = equations.rates, list(e for _, e in equations.outputs)
    where: dict[Any, Place] = {symbol(equations.time): "t"}
    where |= {s: ("x", i) for i, s in enumerate(states)}
    matrices = tuple(
        entries_of(expressions, symbols)
        for expressions in (rates, outputs)
        for symbols in (states if names else [], p)
    )  # fmt: skip
    known = symbols(equations.parameters)[0]
    slow = slow_parts([*rates, *outputs, *(e for m in matrices for _, _, e in m)], known)
    where |= {e: ("q", i) for i, e in enumerate([*known, *slow, *map(symbol, equations.forcings)])}
    program = LlvmProgram(["t"], ["x", "q", "out"])
    for name, expressions, (own, others) in (("step", rates, matrices[:2]), ("write", outputs, matrices[2:])):
        listed = [*expressions, *(e for _, _, e in own), *(e for _, _, e in others)]
        program.function(name, [("out", i, e) for i, e in enumerate(listed)], where)
    code = compiled(program.text())
    places = np.array([(i, j) for m in matrices for i, j, _ in m], dtype=np.int64)
    values = scalar_function([known], slow)
    return code.address("step"), code.address("write"), [len(m) for m in matrices], places, values, code


DifferenceModel._made_bound = BoundDifference
