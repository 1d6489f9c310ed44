"""Vector function -> a computation with arrays: call the function once with arrays of symbols and keep what it did.

What is handed to the function is an array whose entries are `TracedEntry` objects: each knows which step of the
computation it comes from (`fmepy.language.arrays`) and its place there. numpy moves them about as it moves any objects,
so slices, views, ``np.concatenate``, ``np.roll``, ``reshape``, and writing into an array that the function made are
what they are in numpy. Only where something is computed (a ufunc) a step is noted, of all entries at once. Functions of
numpy that are neither known to move entries nor handled here are refused, and so is whatever needs a value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from fmepy.errors import TracingError
from fmepy.language.arrays import TRUTHS, ArrayProgram, ArrayStep, Read, StridedRun, runs_of
from fmepy.language.arrays import formula as formula_of
from fmepy.language.interpolants import Clock, linear, series_of_time
from fmepy.language.tracing import Valueless, clip, decided, piecewise, select, with_symbols
from fmepy.models.definition.user_rates import RatesFunction

MOST_SCALARS = 3000
"""Steps of one number each: beyond, a function is computed cell by cell."""
MOST_ENTRIES = 20_000_000
"""Of all steps together."""

_OTHER_NAMES = {
    "float_power": "power", "bitwise_and": "logical_and", "bitwise_or": "logical_or", "invert": "logical_not",
    "bitwise_invert": "logical_not", "fabs": "absolute", "conjugate": "positive",
}  # fmt: skip
_OF_TRUTHS = ("logical_and", "logical_or", "logical_not")
_MOVING = {
    np.concatenate, np.stack, np.hstack, np.vstack, np.dstack, np.column_stack, np.append, np.insert, np.delete,
    np.reshape, np.ravel, np.transpose, np.moveaxis, np.swapaxes, np.squeeze, np.expand_dims, np.roll, np.flip,
    np.fliplr, np.flipud, np.rot90, np.tile, np.repeat, np.split, np.array_split, np.hsplit, np.vsplit, np.take,
    np.broadcast_to, np.broadcast_arrays, np.atleast_1d, np.atleast_2d, np.copy, np.shape, np.ndim, np.size, np.block,
    np.diff, np.ediff1d, np.sum, np.mean, np.average, np.cumsum, np.max, np.min, np.clip, np.gradient,
    np.diagonal, np.pad, getattr(np, "trapezoid", None),  # which numpy has from 2.0 on
}  # fmt: skip
"""Functions of numpy that move entries, or are made of such and of ufuncs."""


class Tape:
    """The steps noted while a function is called."""

    def __init__(self) -> None:
        self.steps: list[ArrayStep] = []
        self.checks: list[StridedRun] = []
        self._numbers: dict[bytes, int] = {}
        self._joins: dict[Read, Read] = {}
        self._entries = self._scalars = 0

    def noted(self, step: ArrayStep) -> int:
        """Note a step; returns which it is."""
        self._entries += step.size
        self._scalars += step.size == 1 and step.kind == "each"
        if self._scalars > MOST_SCALARS:
            raise TracingError(
                "it computes cell by cell; write it with whole arrays (and leave out np.array and np.asarray around "
                "arrays of states, which take them apart)"
            )
        if self._entries > MOST_ENTRIES:
            raise TracingError(f"it holds more than {MOST_ENTRIES} numbers")
        self.steps.append(step)
        return len(self.steps) - 1

    def constant(self, values: Any) -> int:
        """Return the step of constant numbers."""
        key = values.tobytes()
        if key not in self._numbers:
            self._numbers[key] = self.noted(ArrayStep("constant", "", len(values), values=values))
        return self._numbers[key]

    def cells(self, step: int, shape: tuple[int, ...]) -> Any:
        """Return the entries of a step as an array, or a single one."""
        if not shape:
            return TracedEntry(self, step, 0)
        out = np.empty(self.steps[step].size, dtype=object)
        for k in range(len(out)):  # one by one: of a list numpy asks every cell whether it is an array
            out[k] = TracedEntry(self, step, k)
        return out.reshape(shape).view(TracedArray)

    def read(self, array: Any) -> Read:
        """Return what an array holds, in the order of its entries."""
        if not isinstance(array, np.ndarray) or array.dtype != object:
            values = np.asarray(array, dtype=float).ravel()
            return (StridedRun(self.constant(values), 0, 1 if len(values) > 1 else 0, len(values)),)
        entries = array.ravel().tolist()
        mine = [type(e) is TracedEntry for e in entries]
        if any(e.tape is not self for e, is_cell in zip(entries, mine, strict=True) if is_cell):
            raise TracingError(_KEPT)
        if all(mine):
            return runs_of([e.step for e in entries], [e.place for e in entries])
        try:
            values = np.array([e for e, is_cell in zip(entries, mine, strict=True) if not is_cell], dtype=float)
        except (TypeError, ValueError):
            raise TracingError("an array holds something that is not a number") from None
        constant, at, steps, places = self.constant(values), 0, [], []
        for e, is_cell in zip(entries, mine, strict=True):
            steps.append(e.step if is_cell else constant)
            places.append(e.place if is_cell else at)
            at += not is_cell
        return runs_of(steps, places)

    def is_true(self, x: Any) -> bool:
        """Tell whether something holds truth values."""
        if not _is_traced(x):
            return bool(np.asarray(x).dtype == bool)
        first = x if isinstance(x, TracedEntry) else x.flat[0] if x.size else None
        return self.steps[first.step].word in TRUTHS if isinstance(first, TracedEntry) else isinstance(first, bool)

    def clock(self, x: Any) -> Clock | None:
        """Return how an entry goes with the time, None where it does not, or not in a straight line."""
        found = self._clock(x.step, x.place) if isinstance(x, TracedEntry) else None
        return found if found is not None and found.b > 0 and found.d > 0 else None

    def _clock(self, k: int, place: int) -> Clock | None:
        """Return it, also of a constant, b = 0."""
        step = self.steps[k]
        if step.word == "t" and step.kind == "input":
            return Clock(0.0, 1.0)
        if step.kind == "constant" and step.values is not None:
            return Clock(float(step.values[place]), 0.0)
        if step.word not in ("add", "subtract", "multiply", "divide", "remainder") or step.size > 1:
            return None
        one, other = (self._clock(run.step, run.start) for (run,) in step.reads)
        if one is None or other is None or (one.period and other.period):
            return None
        cycle = one if one.period else other
        if step.word == "remainder":
            return Clock(0.0, 1.0, other.a, *one[:2]) if not (cycle.period or other.b) and other.a > 0 else None
        (a, b), (c, d) = one[:2], other[:2]
        if step.word in ("add", "subtract"):
            sign = 1.0 if step.word == "add" else -1.0
            line = a + sign * c, b + sign * d
            is_one = not cycle.period or not (one if cycle is other else other).b
        elif d == 0 and (step.word == "multiply" or c != 0):
            line, is_one = (a * c, b * c) if step.word == "multiply" else (a / c, b / c), True
        else:
            line, is_one = (a * c, a * d), step.word == "multiply" and b == 0
        return Clock(*line, *cycle[2:]) if is_one else None

    def each(self, word: str, arguments: Sequence[Any], number: int = 0) -> Any:
        """Note a function of numbers applied to every entry; returns the array of its values."""
        shapes = [np.shape(a) for a in arguments]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise TracingError(f"arrays of the shapes {' and '.join(map(str, shapes))} do not match") from None
        size = int(np.prod(shape))
        if size == 0:
            return np.zeros(shape)
        reads = tuple(self._spread(a, shape, size) for a in arguments)
        return self.cells(self.noted(ArrayStep("each", word, size, reads, number)), shape)

    def _spread(self, argument: Any, shape: tuple[int, ...], size: int) -> Read:
        """Return what an argument holds, brought to a shape."""
        argument = np.asarray(argument) if not _is_traced(argument) else np.asarray(argument, dtype=object)
        if argument.size == 1:
            ((step, start, _, _),) = self.read(argument.reshape(1))
            return (StridedRun(step, start, 0, size),)
        return self.joined(np.broadcast_to(argument, shape))

    def joined(self, array: Any) -> Read:
        """Return what an array holds as one run, of a step that joins several if need be."""
        read = self.read(array)
        if len(read) == 1:
            return read
        if read not in self._joins:
            size = sum(run.length for run in read)
            self._joins[read] = (StridedRun(self.noted(ArrayStep("join", "", size, (read,))), 0, 1, size),)
        return self._joins[read]

    def folded(self, kind: str, word: str, array: Any, axis: Any, keepdims: bool = False) -> Any:
        """Note a sum (or an extreme) along an axis."""
        array = np.asarray(array, dtype=object)
        shape = array.shape
        if axis is None:
            array, axis, kept = array.reshape(-1), 0, (1,) * len(shape)
        else:
            axis = axis % array.ndim
            kept = (*shape[:axis], 1, *shape[axis + 1 :])
        moved = np.moveaxis(array, axis, -1)
        length = moved.shape[-1]
        if array.size == 0:
            raise TracingError("a sum of nothing")
        size = array.size if kind == "running" else array.size // length
        step = self.noted(ArrayStep(kind, word, size, (self.joined(moved),), length))
        if kind == "running":
            return np.moveaxis(self.cells(step, moved.shape), -1, axis)
        return self.cells(step, kept if keepdims else moved.shape[:-1])


class _Face(Valueless, NDArrayOperatorsMixin):
    """What an entry and an array answer alike."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        tape = _tape()
        kept = {k: v for k, v in kwargs.items() if v is not None and type(v).__name__ != "_NoValueType"}
        for k in ("casting", "subok", "order"):
            kept.pop(k, None)
        if kept.get("where", True) is True:
            kept.pop("where", None)
        if np.dtype(kept.pop("dtype", float)).kind not in "fO":
            raise TracingError(f"np.{ufunc.__name__} into numbers of another kind than float has no symbolic form")
        result = _applied(tape, ufunc, method, inputs, kept)
        if out is None or isinstance(out[0], TracedEntry):  # x += 1 of a number gives another number
            return result
        (target,) = out
        if not isinstance(target, np.ndarray) or target.dtype != object:
            raise TracingError(_INTO_NUMBERS)
        target[...] = result
        return target

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _called(func, args, kwargs)

    def __float__(self) -> float:
        raise TracingError(
            f"a value is needed where there is only a symbol, such as by float(); leave float() out; or {_INTO_NUMBERS}"
        )


_INTO_NUMBERS = (
    "numbers that depend on states or parameters are written into an array of plain numbers from outside the function; "
    "make one inside, such as np.zeros(n), or put the parts together with np.concatenate"
)


class TracedEntry(_Face):
    """One entry of a step."""

    __slots__ = ("place", "step", "tape")

    def __init__(self, tape: Tape, step: int, place: int) -> None:
        self.tape, self.step, self.place = tape, step, place

    def __repr__(self) -> str:
        return f"TracedEntry({self.step}, {self.place})"

    def __bool__(self) -> bool:
        if not self.tape.is_true(self):
            raise TracingError("the truth of a number is asked for; write np.where(x != 0, a, b) instead of if x")
        return decided(self, (self.step, self.place))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or formula_of(name, 1) is None:  # np.exp(array of objects) calls `exp` of each
            raise AttributeError(name)
        return lambda *others: getattr(np, name)(self, *others)


class TracedArray(_Face, np.ndarray):  # type: ignore[misc]  # the mixin's
    """An array of entries, and of numbers between them."""

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, TracedArray):  # a mask of conditions
            key, value = ..., _where(key, value, self)
        super().__setitem__(key, value)

    def dot(self, other: Any, out: Any = None) -> Any:
        """Return the product with a vector or a matrix."""
        return np.matmul(self, other)

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a copy; of floats alone, which it holds."""
        if np.dtype(dtype).kind not in "fO":
            raise TracingError(f"astype({dtype!r}) needs values")
        return self.copy()


def _is_traced(x: Any) -> bool:
    return isinstance(x, TracedEntry) or (isinstance(x, np.ndarray) and x.dtype == object)


_KEPT = "a symbol is used that an earlier call was given; the function keeps something between calls"


def _tape() -> Tape:
    tape = _CURRENT.get()
    if tape is None:
        raise TracingError(_KEPT)
    return tape


_CURRENT: ContextVar[Tape | None] = ContextVar("the tape of the function that is being traced", default=None)


def _applied(tape: Tape, ufunc: np.ufunc, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what a ufunc gives."""
    word = _OTHER_NAMES.get(ufunc.__name__, ufunc.__name__)
    if method == "__call__" and not kwargs:
        if word == "matmul":
            return _product(tape, *inputs)
        if word == "clip":
            return clip(*inputs)
        if not any(_holds_cells(x) for x in inputs):
            return ufunc(*(np.asarray(x, dtype=float) for x in inputs))
        if word == "power" and (whole := _whole(inputs[1])) is not None:
            return tape.each("whole_power", inputs[:1], whole) if whole else np.ones(np.shape(inputs[0]))
        if word != "where" and formula_of(word, len(inputs)) is not None:
            truths = [tape.is_true(x) for x in inputs]
            if word in _OF_TRUTHS and not all(truths):
                raise TracingError(f"np.{ufunc.__name__} needs conditions, such as x > 0")
            if word in ("add", "subtract", "negative", "positive", "absolute") and all(truths):
                raise TracingError("conditions are added or subtracted; multiply them by numbers")
            return tape.each(word, inputs)
    if method == "reduce" and word in ("add", "maximum", "minimum") and set(kwargs) <= {"axis", "keepdims"}:
        axis = kwargs.get("axis", None if "axis" in kwargs else 0)
        if not tape.is_true(inputs[0]) and (axis is None or isinstance(axis, int | np.integer)):
            return tape.folded("fold", word, inputs[0], axis, bool(kwargs.get("keepdims", False)))
    if method == "accumulate" and word == "add" and set(kwargs) <= {"axis"}:
        return tape.folded("running", word, inputs[0], kwargs.get("axis", 0))
    if method == "outer" and not kwargs:
        a, b = (np.asarray(x, dtype=object) for x in inputs)
        return ufunc(a.reshape(a.shape + (1,) * b.ndim).view(TracedArray), b.view(TracedArray))
    how = "" if method == "__call__" else f".{method}"
    raise TracingError(f"np.{ufunc.__name__}{how} of arrays of states has no symbolic form here")


def _holds_cells(x: Any) -> bool:
    if isinstance(x, TracedEntry):
        return True
    return _is_traced(x) and any(type(e) is TracedEntry for e in x.ravel().tolist())


def _whole(exponent: Any) -> int | None:
    """Return a small whole exponent as such."""
    if _is_traced(exponent) or np.ndim(exponent):
        return None
    value = float(exponent)
    return int(value) if value.is_integer() and abs(value) <= 64 else None


def _product(tape: Tape, a: Any, b: Any) -> Any:
    """Return a @ b as sums of products."""
    a, b = (x if isinstance(x, np.ndarray) else np.asarray(x) for x in (a, b))
    if not 1 <= a.ndim <= 2 or not 1 <= b.ndim <= 2 or a.shape[-1] != b.shape[0]:
        raise TracingError(f"a product of matrices of the shapes {a.shape} and {b.shape} has no form here")
    if b.ndim == 1:
        terms = tape.each("multiply", (a, b))
        return tape.folded("fold", "add", terms, -1)
    terms = tape.each("multiply", (a[..., :, None], b))
    return tape.folded("fold", "add", terms, -2)


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise TracingError("np.where needs a condition and two values: which entries fulfil it is not known before")
    if not _is_traced(condition):
        chosen = np.where(condition, *(np.asarray(b, dtype=object) for b in branches))
        return chosen.view(TracedArray) if chosen.ndim else chosen.item()
    tape = _tape()
    if not tape.is_true(condition):
        raise TracingError("np.where needs a condition, such as x > 0")
    return tape.each("where", (condition, *branches))


def _filled(like: Any, value: Any, shape: Any = None) -> Any:
    out = np.empty(np.shape(like) if shape is None else shape, dtype=object)
    out[...] = value
    return out.view(TracedArray)


_HANDLED: dict[Any, Callable[..., Any]] = {
    np.where: _where,
    np.select: select,
    np.interp: linear,
    np.piecewise: piecewise,
    np.dot: lambda a, b: np.multiply(a, b) if np.ndim(a) == 0 or np.ndim(b) == 0 else np.matmul(a, b),
    np.inner: lambda a, b: np.matmul(a, np.transpose(b)),
    np.outer: lambda a, b: np.multiply(np.reshape(a, (-1, 1)), np.reshape(b, (1, -1))),
    np.zeros_like: lambda like, *args, shape=None, **kwargs: _filled(like, 0.0, shape),
    np.ones_like: lambda like, *args, shape=None, **kwargs: _filled(like, 1.0, shape),
    np.empty_like: lambda like, *args, shape=None, **kwargs: _filled(like, 0.0, shape),
    np.full_like: lambda like, fill_value, *args, shape=None, **kwargs: _filled(like, fill_value, shape),
}


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what a function of numpy gives."""
    if func in _HANDLED:
        return _HANDLED[func](*args, **kwargs)
    if func not in _MOVING:
        raise TracingError(f"np.{func.__name__} of arrays of states has no symbolic form here")
    return _seen(np.empty(0).__array_function__(func, (np.ndarray,), args, kwargs))  # numpy's own


def _seen(result: Any) -> Any:
    """Return arrays of entries as what they are: some functions of numpy give plain arrays of objects."""
    if isinstance(result, list | tuple):
        return type(result)(map(_seen, result))
    return result.view(TracedArray) if isinstance(result, np.ndarray) and result.dtype == object else result


# --- for functions of ours that look at what they are given


def is_traced(*values: Any) -> bool:
    """Tell whether any of some values is, or holds, symbols of a vector function that is being traced."""
    return any(isinstance(v, _Face) for v in values)


def as_traced(array: Any) -> Any:
    """Return a copy of an array into which symbols may be written."""
    return np.array(array, dtype=object).view(TracedArray)


def require(condition: Any) -> None:
    """Note a condition under which alone the traced form holds: else the function itself is asked."""
    tape = _tape()
    held = tape.folded("fold", "minimum", tape.each("where", (condition, 1.0, 0.0)), None)
    tape.checks.append(StridedRun(held.step, held.place, 0, 1))


def between_forms(condition: Any) -> Any:
    """Return a condition that chooses between two forms of one smooth function: nothing jumps where it changes."""
    if is_traced(condition):
        steps = _tape().steps
        i = condition.step if isinstance(condition, TracedEntry) else condition.flat[0].step
        steps[i] = replace(steps[i], is_smooth=True)
    return condition


# --- tracing a function


def traced_arrays(rates: RatesFunction, shape: tuple[int, ...]) -> ArrayProgram:
    """Return the computation of a vector function.

    Parameters
    ----------
    rates : RatesFunction
    shape : tuple of int
        Of the states that the function gets.

    Raises
    ------
    TracingError
        It cannot be traced; says why, with the line of the function.
    """
    return with_symbols(
        rates.function, lambda f, follow: _called_by(follow, replace(rates, function=f), shape), TracedArray
    )


def _called_by(
    follow: Callable[[Callable[[], Any]], Any], rates: RatesFunction, shape: tuple[int, ...]
) -> ArrayProgram:
    tape, n = Tape(), int(np.prod(shape))
    t, y = (tape.noted(ArrayStep("input", word, size)) for word, size in (("t", 1), ("y", n)))
    values = []
    for word, names in (("p", rates.parameters), ("u", rates.forcings)):
        step = tape.noted(ArrayStep("input", word, len(names)))
        values.append([TracedEntry(tape, step, k) for k in range(len(names))])
    own, u = len(rates.forcings), len(tape.steps) - 1
    token = _CURRENT.set(tape)
    try:
        with series_of_time(tape.clock, lambda k: TracedEntry(tape, u, own + k), np.inf) as series:
            result, extra = follow(lambda: rates.raw(TracedEntry(tape, t, 0), tape.cells(y, shape), *values))
        found = np.array(result, dtype=object)
        if found.size != n or (len(shape) == 1 and found.shape != shape):
            raise TracingError(f"it returns an array of shape {found.shape} for {n} states")
        out = tape.noted(ArrayStep("join", "", n, (tape.read(found),)))
        extras = [tape.joined(np.asarray(e, dtype=object).reshape(-1))[0] for e in extra.values()]
    finally:
        _CURRENT.reset(token)
    tape.steps[u] = replace(tape.steps[u], size=own + len(series))
    return ArrayProgram(
        tuple(tape.steps), out, tuple(extras), tuple(tape.checks), n, len(rates.parameters), own + len(series),
        tuple(series),
    )  # fmt: skip
