"""Equations with noise -> the two small functions that a filter calls.

A `StateSpace` is a model as the loop needs it, in symbols. Besides the model's states it may hold
accumulators; its parameters are the model's, those of the noise, and the factor of a correlated noise::

    advance(t, h, x, p, u, f, F, A)     f: rates or next states;  F = df/dx;  A = G C with C C' = Q
    observe(t, x, p, u, z, H, sd)       z: readings on the scale of comparison;  H = dz/dx;  sd: their errors' sds

with G = df/dw at the noise's mean, and p as `StateSpace.prepared` returns it. Only entries that are not zero everywhere
are written: the loop keeps the matrices and clears them once. The functions are C functions of numbers and of arrays by
rows, see `CompiledFunction`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from fmepy.compiled.c_loops import address
from fmepy.compiled.kernels import doubles
from fmepy.compiled.llvm_code import LlvmProgram, NotWritableError, Place
from fmepy.compiled.machine import Code, compiled
from fmepy.compiled.python_code import scalar_function
from fmepy.compiled.statements import slow_parts
from fmepy.errors import ModelError
from fmepy.filtering.partials import OF_SLOPE, OF_SPREAD, OF_VALUE, Partials
from fmepy.language.derivatives import derivative, entries_of
from fmepy.language.equations import Equations, symbol
from fmepy.language.functions import holds_choices
from fmepy.language.nodes import ZERO, Node, fresh
from fmepy.types import BoolVector, IntMatrix, Vector

T = TypeVar("T")
_Targets = list[tuple[str, int, Any]]

INFLATION = "inflation of noise"
"""The last input: factor of all process noise (1, but for the first part of a search)."""


_MOST_KNOWN = 500
_MOST_PARTIALS = 4000
"""Of more, as of large models whose equations all hang together, differences of passes cost less."""


@cache
def _c_type(scalars: int, arrays: int) -> Any:
    return ctypes.CFUNCTYPE(None, *[ctypes.c_double] * scalars, *[ctypes.c_void_p] * arrays)


class CompiledFunction:
    """A function in machine code.

    Parameters
    ----------
    code : Code
    name : str
    scalars, arrays : int
        How many numbers it takes, and then how many arrays.

    Attributes
    ----------
    address : int
    """

    is_compiled = True

    def __init__(self, code: Code, name: str, scalars: int, arrays: int) -> None:
        self.address, self._code, self._scalars = code.address(name), code, scalars
        self._call = _c_type(scalars, arrays)(self.address)

    def __call__(self, *arguments: Any) -> None:
        """Call it, with numbers and contiguous arrays."""
        self._call(*arguments[: self._scalars], *map(address, arguments[self._scalars :]))

    def raise_error(self) -> None:
        """Do nothing: machine code raises no errors."""


class PythonFunction:
    """A function of Python that compiled loops call.

    An error cannot pass through a loop: NaN is written, which ends the loop, and `raise_error` raises the error then.

    Parameters
    ----------
    function : callable
        It gets copies of its inputs, and writes into its outputs.
    scalars : int
        How many numbers it takes first.
    inputs, outputs : sequence of tuple
        Shapes of the arrays that it takes then.
    """

    is_compiled = False

    def __init__(
        self,
        function: Callable[..., None],
        scalars: int,
        inputs: Sequence[tuple[int, ...]],
        outputs: Sequence[tuple[int, ...]],
    ) -> None:
        self._function, self._scalars, self._inputs = function, scalars, len(inputs)
        self._shapes = [*inputs, *outputs]
        self._arrays: dict[tuple[int, int], Any] = {}
        self._raised = threading.local()
        self._c = _c_type(scalars, len(self._shapes))(self._from_c)
        self.address = ctypes.cast(self._c, ctypes.c_void_p).value

    def __call__(self, *arguments: Any) -> None:
        """Call it from Python."""
        self._function(*arguments)

    def raise_error(self) -> None:
        """Raise the error that it raised when a loop called it in this thread."""
        error, self._raised.error = getattr(self._raised, "error", None), None
        if error is not None:
            raise error

    def _from_c(self, *arguments: Any) -> None:
        arrays = [self._array(at or 0, i) for i, at in enumerate(arguments[self._scalars :])]
        inputs, outputs = arrays[: self._inputs], arrays[self._inputs :]
        if getattr(self._raised, "error", None) is None:
            try:
                self._function(*arguments[: self._scalars], *(a.copy() for a in inputs), *outputs)
                return
            except BaseException as error:  # also Ctrl-C: raised when the loop has ended
                self._raised.error = error
        for a in outputs:
            a[...] = np.nan

    def _array(self, at: int, i: int) -> Any:
        """Return the array at an address; the loop works in the same places again and again."""
        if (cached := self._arrays.get((at, i))) is None:
            if len(self._arrays) > _MOST_KNOWN:
                self._arrays.clear()
            shape = self._shapes[i]
            cached = self._arrays[at, i] = doubles(at, *shape) if np.prod(shape) else np.empty(shape)
        return cached


@dataclass(frozen=True, slots=True, eq=False)
class PartialsFunction:
    """The function that computes partial derivatives, and their places: see `filtering.partials.Partials`."""

    function: CompiledFunction
    places: IntMatrix

    def along(self, moved: BoolVector) -> Partials:
        """Return those to the variables that move, with an array for their values."""
        return Partials(self.function.address, self.places[moved[self.places[:, 4]]], np.empty(len(self.places)))


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class StateSpace:
    """A model with noise, in symbols.

    Attributes
    ----------
    kind : {"ode", "difference"}
    time : str
    states, parameters, forcings : tuple of str
        The order of x, p and u; `parameters` end with the factor's entries of a correlated noise, and the inflation.
    rates : tuple of Node
        Rates, or next states.
    gains : tuple of (int, int, Node)
        The entries of A that are not zero.
    n_noise : int
        Columns of A.
    readings, sds : tuple of Node
        One for each observed variable.
    """

    kind: Literal["ode", "difference"]
    time: str
    states: tuple[str, ...]
    parameters: tuple[str, ...]
    forcings: tuple[str, ...]
    rates: tuple[Any, ...]
    gains: tuple[tuple[int, int, Any], ...]
    n_noise: int
    readings: tuple[Any, ...]
    sds: tuple[Any, ...]
    is_traced = True

    @property
    def has_noise(self) -> bool:
        """Whether the process has noise."""
        return bool(self.gains)

    def slopes(self) -> list[tuple[int, int, Any]]:
        """Return the entries of F that are not zero."""
        return _slopes(self.rates, self.states)

    def reading_slopes(self) -> list[tuple[int, int, Any]]:
        """Return the entries of H that are not zero."""
        return _slopes(self.readings, self.states)

    @property
    def is_linear(self) -> bool:
        """Whether rates and readings are linear in the states, without choices, and noise does not depend on them."""
        states = {symbol(s) for s in self.states}
        parts = [e for _, _, e in (*self.slopes(), *self.reading_slopes(), *self.gains)]
        bends = holds_choices(e for e in (*self.rates, *self.readings) if e.free_symbols & states)
        return not bends and not any(e.free_symbols & states for e in (*parts, *self.sds))

    def functions(self) -> tuple[CompiledFunction, CompiledFunction]:
        """Return (advance, observe)."""
        return _functions(self)

    def partials(self) -> tuple[PartialsFunction, PartialsFunction] | None:
        """Return the partial derivatives (`filtering.partials`) of `advance` and of `observe`, or None."""
        return _partials(self)

    def curvatures(self) -> tuple[CompiledFunction, CompiledFunction]:
        """Return (bend, bend_readings), the second derivatives FF and HH of rates and readings to the states."""
        return _curvatures(self)

    def prepared(self, p: Vector) -> Vector:
        """Return the parameters, and behind them what the functions take from them alone (`slow_parts`)."""
        slow, values = _slow(self)
        return np.append(p, values(p.tolist())) if slow else p


def _once(make: Callable[[StateSpace], T]) -> Callable[[StateSpace], T]:
    """Return a function that makes something of a state space once, for as long as that lives."""
    made: WeakKeyDictionary[StateSpace, T] = WeakKeyDictionary()

    def cached(space: StateSpace) -> T:
        if space not in made:
            made[space] = make(space)
        return made[space]

    return cached


@lru_cache(maxsize=64)
def _slopes(expressions: tuple[Any, ...], names: tuple[str, ...]) -> list[tuple[int, int, Any]]:
    return entries_of(expressions, [symbol(name) for name in names])


@_once
def _functions(space: StateSpace) -> tuple[CompiledFunction, CompiledFunction]:
    n, q = len(space.states), space.n_noise
    advance = [("f", i, e) for i, e in enumerate(space.rates)]
    advance += [("F", i * n + j, e) for i, j, e in space.slopes()]
    advance += [("A", i * q + j, e) for i, j, e in space.gains]
    observe = [("z", i, e) for i, e in enumerate(space.readings)]
    observe += [("H", i * n + j, e) for i, j, e in space.reading_slopes()]
    observe += [("sd", i, e) for i, e in enumerate(space.sds)]
    return (
        _compiled(space, "advance", ["t", "h"], ["x", "p", "u", "f", "F", "A"], advance),
        _compiled(space, "observe", ["t"], ["x", "p", "u", "z", "H", "sd"], observe),
    )


@_once
def _curvatures(space: StateSpace) -> tuple[CompiledFunction, CompiledFunction]:
    n = len(space.states)
    bend, readings = (
        [(array, (i * n + j) * n + k, e) for i, j, k, e in _second(slopes, space.states)]
        for array, slopes in (("FF", space.slopes()), ("HH", space.reading_slopes()))
    )
    return (
        _compiled(space, "bend", ["t", "h"], ["x", "p", "u", "FF"], bend),
        _compiled(space, "bend_readings", ["t"], ["x", "p", "u", "HH"], readings),
    )


def _second(slopes: list[tuple[int, int, Any]], names: Sequence[str]) -> list[tuple[int, int, int, Any]]:
    """Return (i, j, k, d slope_ij / d x_k) where it is not zero."""
    cached = [(i, j, k, derivative(e, symbol(s))) for i, j, e in slopes for k, s in enumerate(names)]
    return [(i, j, k, e) for i, j, k, e in cached if e is not ZERO]


@_once
def _partials(space: StateSpace) -> tuple[PartialsFunction, PartialsFunction] | None:
    steps = [(OF_VALUE, i, 0, e) for i, e in enumerate(space.rates)]
    steps += [(OF_SLOPE, *entry) for entry in space.slopes()] + [(OF_SPREAD, *entry) for entry in space.gains]
    readings = [(OF_VALUE, i, 0, e) for i, e in enumerate(space.readings)]
    readings += [(OF_SLOPE, *entry) for entry in space.reading_slopes()]
    readings += [(OF_SPREAD, i, 0, e) for i, e in enumerate(space.sds)]
    if sum(len(e.free_symbols) for *_, e in (*steps, *readings)) > _MOST_PARTIALS:
        return None
    try:
        return (
            _partials_of(space, "partials", ["t", "h"], steps),
            _partials_of(space, "partials_of_readings", ["t"], readings),
        )
    except ModelError:  # a derivative that there is no word for
        return None


def _partials_of(
    space: StateSpace, name: str, scalars: list[str], entries: list[tuple[int, int, int, Any]]
) -> PartialsFunction:
    variables = [symbol(k) for k in (*space.states, *space.parameters)]
    cached = entries_of([e for *_, e in entries], variables)
    cached = [(k, v, e) for k, v, e in cached if entries[k][0] != OF_VALUE or v >= len(space.states)]
    values = [("V", i, e) for i, (*_, e) in enumerate(cached)]
    function = _compiled(space, name, scalars, ["x", "p", "u", "V"], values, quick=True)
    places = [(i, *entries[k][:3], v) for i, (k, v, _) in enumerate(cached)]
    return PartialsFunction(function, np.array(places, dtype=np.intp).reshape(-1, 5))


@_once
def _slow(space: StateSpace) -> tuple[list[Node], Callable[..., list[float]]]:
    """Return the slow parts of all functions that depend on the parameters alone, and their values from those."""
    entries = (*space.slopes(), *space.gains, *space.reading_slopes())
    expressions = [*space.rates, *(e for _, _, e in entries), *space.readings, *space.sds]
    p = [symbol(k) for k in space.parameters]
    slow = slow_parts(expressions, p)
    return slow, scalar_function([p], slow)


def _compiled(
    space: StateSpace, name: str, scalars: list[str], arrays: list[str], targets: _Targets, quick: bool = False
) -> CompiledFunction:
    where: dict[Any, Place] = {symbol(space.time): "t"}
    for array, group in (("x", space.states), ("p", space.parameters), ("u", space.forcings)):
        where |= {symbol(k): (array, i) for i, k in enumerate(group)}
    where |= {e: ("p", i) for i, e in enumerate(_slow(space)[0], len(space.parameters))}
    program = LlvmProgram(scalars, arrays)
    try:
        program.function(name, targets, where)
    except NotWritableError as error:
        raise ModelError(f"A filter needs the model in machine code, which cannot express {error}.") from None
    return CompiledFunction(compiled(program.text(), quick=quick), name, len(scalars), len(arrays))


def build_state_space(
    equations: Equations,
    parameters: Sequence[str],
    noise_keys: Sequence[str],
    noise_sds: Sequence[Any] | None,
    readings: Sequence[Any],
    sds: Sequence[Any],
    accumulated: Sequence[tuple[str, Any]] = (),
) -> StateSpace:
    """Return the state space of a model with noise.

    Parameters
    ----------
    equations : Equations
    parameters : sequence of str
        All of them, in order.
    noise_keys : sequence of str
        States and parameters that the noise enters at.
    noise_sds : sequence of Node, or None
        One for each key; None: correlated, then the factor's entries (row by row) are further inputs.
    readings, sds : sequence of Node
        Of every observed variable; readings may name accumulators.
    accumulated : sequence of (str, Node)
        Name and summand of the accumulators: a[n] = a[n-1] + g(x[n]), or da/dt = g(x).
    """
    states = (*equations.states, *(name for name, _ in accumulated))
    w = [fresh(f"w{j}") for j in range(len(noise_keys))]
    shifted = {symbol(k): symbol(k) + w[j] for j, k in enumerate(noise_keys) if k not in equations.states}
    rates = []
    for s, e in zip(equations.states, equations.rates, strict=True):
        e = e.subs(shifted)
        rates.append(e + w[noise_keys.index(s)] if s in noise_keys else e)
    if accumulated and equations.kind == "difference":
        new = {symbol(s): e for s, e in zip(equations.states, rates, strict=True)}
        rates += [symbol(name) + g.subs(new) for name, g in accumulated]
    else:
        rates += [g for _, g in accumulated]
    at_mean = dict.fromkeys(w, ZERO)
    G = [[derivative(e, wj).subs(at_mean) if wj in e.free_symbols else ZERO for wj in w] for e in rates]
    factor: tuple[str, ...] = ()
    q = len(w)
    if noise_sds is None:
        C = {(a, b): f"factor {a} {b}" for a in range(q) for b in range(a + 1)}
        factor = tuple(C.values())
        A = [[sum((G[i][a] * symbol(C[a, b]) for a in range(b, q)), ZERO) for b in range(q)]
             for i in range(len(rates))]  # fmt: skip
    else:
        A = [[G[i][j] * noise_sds[j] for j in range(q)] for i in range(len(rates))]
    inflation = symbol(INFLATION)
    return StateSpace(
        kind=equations.kind,
        time=equations.time,
        states=states,
        parameters=(*parameters, *factor, INFLATION),
        forcings=equations.forcings,
        rates=tuple(e.subs(at_mean) for e in rates),
        gains=tuple((i, j, inflation * e) for i, row in enumerate(A) for j, e in enumerate(row) if e is not ZERO),
        n_noise=q,
        readings=tuple(readings),
        sds=tuple(sds),
    )
