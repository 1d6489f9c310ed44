"""Python function -> equations: call the function once with symbols, and record its operations.

A `Traced` number wraps an expression. It answers Python's arithmetic, numpy's ufuncs (``np.exp``, ``np.maximum``,
...) and ``np.where``; whatever would need a *value* (an ``if`` on a state, ``math.exp``, ``float()``) raises a
`TracingError` that says in which line and what to write instead. Models that cannot be traced still run, as Python.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import reduce
from typing import Any, TypeVar

import numpy as np

from fmepy.errors import ModelError, TracingError
from fmepy.language.conditions import Condition as Decision
from fmepy.language.conditions import Joined, Not, choose, relation
from fmepy.language.equations import symbol
from fmepy.language.functions import of_numpy
from fmepy.language.interpolants import linear
from fmepy.language.nodes import ONE, ZERO, Node, as_node, call, number
from fmepy.language.symbolic_copy import accepting_symbols
from fmepy.language.whole_numbers import Whole

_T = TypeVar("_T")
MOST_WAYS = 64
"""Through the decisions of a function that is traced."""
_DECIDE: ContextVar[Callable[[Any, Any], bool] | None] = ContextVar("the decisions of a way", default=None)


def traced(name: str) -> Traced:
    """Return the traced number of the symbol `name`."""
    return Traced(symbol(name))


def as_expression(value: Any) -> Node:
    """Return a traced number, a plain number or an array of one element as an expression."""
    if isinstance(value, Traced):
        return value.expression
    if isinstance(value, np.ndarray) and value.size == 1:
        return as_expression(value.item())
    if isinstance(value, Condition):
        return as_node(choose(value.decision, ONE, ZERO))
    try:
        return number(float(value))
    except (TypeError, ValueError):
        raise TracingError(f"{type(value).__name__} {value!r} is not a number") from None


_RELATIONS = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}
_JOINED = {"logical_and": "and", "logical_or": "or", "bitwise_and": "and", "bitwise_or": "or"}


def _apply(name: str, arguments: Sequence[Any]) -> Any:
    """Apply the ufunc called `name` to scalars, traced or not."""
    if name in _RELATIONS:
        return Condition(relation(_RELATIONS[name], *map(as_expression, arguments)))
    if name in _JOINED:
        return Condition(Joined([_as_decision(a) for a in arguments], _JOINED[name]))
    if name in ("logical_not", "invert"):
        return Condition(Not(_as_decision(*arguments)))
    if name in ("isnan", "isfinite"):
        missing = relation(">", call("isnan", *map(as_expression, arguments)), number(0.5))
        return Condition(missing if name == "isnan" else Not(missing))
    function = of_numpy(name)
    if function is None:
        raise TracingError(f"np.{name} has no symbolic form")
    whole = [(i, a.number) for i, a in enumerate(arguments) if isinstance(a, Traced) and a.number is not None]
    after = whole[0][1].after(name, arguments, whole[0][0]) if whole else None
    return Traced(function(*map(as_expression, arguments)), after)


def _as_decision(value: Any) -> Decision:
    if isinstance(value, Condition):
        return value.decision
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TracingError("a condition was expected, such as x > 0")


def _each(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Apply a function of scalars to arrays by element; numpy's own way of doing so would ask the symbols again."""
    arrays = []
    for x in inputs:
        array = np.empty(np.shape(x) if isinstance(x, np.ndarray) else (), dtype=object)
        array[...] = x
        arrays.append(array)
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    out = np.empty(shape, dtype=object)
    if shape:
        out.ravel()[:] = [function(*xs) for xs in zip(*(np.broadcast_to(a, shape).flat for a in arrays), strict=True)]
    return out.view(SymbolArray) if shape else function(*(a.item() for a in arrays))


def _where(condition: Any, *branches: Any) -> Any:
    if len(branches) != 2:
        raise TracingError("np.where needs a condition and two values")

    def chosen(c: Any, a: Any, b: Any) -> Any:
        return Traced(choose(_as_decision(c), as_expression(a), as_expression(b)))

    return _each(chosen, [condition, *branches])


def clip(x: Any, a_min: Any = None, a_max: Any = None, **bounds: Any) -> Any:
    """Return ``np.clip`` of symbols; its arguments."""
    low, high = bounds.get("min", a_min), bounds.get("max", a_max)
    x = x if low is None else np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def select(conditions: Sequence[Any], values: Sequence[Any], default: Any = 0) -> Any:
    """Return ``np.select`` of symbols; its arguments."""
    for condition, value in reversed(list(zip(conditions, values, strict=True))):
        default = np.where(condition, value, default)
    return default


def piecewise(x: Any, conditions: Sequence[Any], parts: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Return ``np.piecewise`` of symbols; its arguments."""
    values = [part(x, *args, **kwargs) if callable(part) else part for part in parts]
    out = values[len(conditions)] if len(values) > len(conditions) else 0.0
    for condition, value in zip(conditions, values, strict=False):
        out = np.where(condition, value, out)
    return out


_HANDLED: dict[Any, Callable[..., Any]] = {
    np.where: _where, np.clip: clip, np.select: select, np.interp: linear, np.piecewise: piecewise,
    np.ndim: lambda x: 0, np.polyval: lambda p, x: reduce(lambda value, c: value * x + c, np.asarray(p).tolist(), 0.0),
}  # fmt: skip
_TRIED: ContextVar[list[Any] | None] = ContextVar("the delays of a function on trial", default=None)


@contextmanager
def lags_tried() -> Iterator[list[Any]]:
    """Let `lag` return the present value of numbers meanwhile, for a trial of a function; yields the delays."""
    delays: list[Any] = []
    token = _TRIED.set(delays)
    try:
        yield delays
    finally:
        _TRIED.reset(token)


def lag(x: Any, tau: Any) -> Any:
    """Return the value of a state `tau` ago, in the function of an `OdeModel`.

    It has a value only where a model runs: the function is turned into equations, in which ``lag(x, tau)`` is what x
    was at t - tau. In a text it is written the same way.

    Parameters
    ----------
    x : state
        Of the function's arguments, or an expression of states.
    tau : float or parameter
        The delay, not negative: a number, or an expression of parameters, states and time. Zero is the present.

    Raises
    ------
    ModelError
        It is called outside the function of a model, or in one that cannot be turned into equations.

    Examples
    --------
    >>> from fmepy import OdeModel, lag
    >>> def hutchinson(t, N, *, r=1.0, tau=1.5, K=10.0):
    ...     return r * N * (1 - lag(N, tau) / K)
    >>> OdeModel(hutchinson, state={"N": 1}, times=[0, 5, 10])().round(2)
       time      N
    0     0   1.00
    1     5  14.33
    2    10  15.41
    """
    if isinstance(x, np.ndarray) and x.ndim:
        return np.array([lag(v, tau) for v in x], dtype=object if x.dtype == object else None)
    if isinstance(x, Traced) or isinstance(tau, Traced):
        return Traced(call("lag", as_expression(x), as_expression(tau)))
    delays = _TRIED.get()
    if delays is None:
        raise ModelError(
            "lag(x, tau) has a value only in the function of an OdeModel that can be turned into equations; numbers "
            "have no past."
        )
    delays.append(tau)
    return x


_LEFT: ContextVar[list[int] | None] = ContextVar("operations left to the traced function", default=None)


@contextmanager
def at_most(operations: int) -> Iterator[None]:
    """Let a function that is traced fail with a `TracingError` where it does more operations than some."""
    token = _LEFT.set([operations])
    try:
        yield
    finally:
        _LEFT.reset(token)


class Valueless:
    """Base of symbols, which have no value: no integer, equal to nothing."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # == is refused, so a hash would mislead

    def __int__(self) -> int:
        raise TracingError("an integer value is needed where there is only a symbol")

    __index__ = __int__

    def __eq__(self, other: object) -> Any:
        raise TracingError("'==' of a changing value is true for an instant at most; compare with < or >")

    __ne__ = __eq__


class _NumpyFace(Valueless):
    """Base of traced numbers and conditions: they support numpy, and raise errors where a value is needed."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method != "__call__" or kwargs:
            raise TracingError(f"np.{ufunc.__name__}.{method} on a symbol has no symbolic form")
        return _each(lambda *xs: _apply(ufunc.__name__, xs), inputs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func not in _HANDLED:
            raise TracingError(f"np.{func.__name__} of a single symbol has no symbolic form")
        return _HANDLED[func](*args, **kwargs)

    def __float__(self) -> float:
        raise TracingError(
            "a value is needed where there is only a symbol, such as by float(), int(), or an array from outside "
            "the function; leave float() out, and make arrays in the function"
        )


class Condition(_NumpyFace):
    """A condition on traced numbers, such as ``x > 0``; it has no truth value of its own."""

    __slots__ = ("decision",)

    def __init__(self, decision: Decision) -> None:
        self.decision = decision

    def __bool__(self) -> bool:
        return decided(self, choose(self.decision, ONE, ZERO))

    def __and__(self, other: Any) -> Condition:
        return Condition(Joined((_as_decision(self), _as_decision(other)), "and"))

    def __or__(self, other: Any) -> Condition:
        return Condition(Joined((_as_decision(self), _as_decision(other)), "or"))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> Condition:
        return Condition(Not(self.decision))

    def __mul__(self, other: Any) -> Traced:  # (x > 0) * rate, a common way to write a switch
        return Traced(as_expression(self) * as_expression(other))

    __rmul__ = __mul__


class Traced(_NumpyFace):
    """A number that remembers how it was computed."""

    __slots__ = ("expression", "number")
    expression: Node

    def __init__(self, expression: Any, number: Whole | None = None) -> None:
        self.expression, self.number = expression, number
        if (left := _LEFT.get()) is not None:
            left[0] -= 1
            if left[0] < 0:
                raise TracingError("it does too many operations to be written down as equations")

    def __repr__(self) -> str:
        return f"Traced({self.expression})"

    def __bool__(self) -> bool:
        raise TracingError("the truth of a symbol is asked for; write np.where(condition, a, b) instead of if")

    def __round__(self) -> Any:
        return _apply("floor", (_apply("add", (self, 0.5)),)).whole()

    def whole(self) -> Traced:
        """Return it without its decimals, as `int` does."""
        if self.number is not None:
            return self
        if self.expression.word == "floor":
            return Traced(self.expression, Whole(Traced(self.expression.args[0]), truncates=False))
        return Traced(_apply("trunc", (self,)).expression, Whole(self, truncates=True))

    def entry_of(self, table: Any) -> Any:
        """Return what an array holds at this place."""
        return int(self) if self.number is None else self.number.entry_of(table, SymbolArray)

    def __eq__(self, other: object) -> Any:
        if self.number is None:
            return super().__eq__(other)
        return _apply("less", (abs(_apply("subtract", (self, other))), 0.5))

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def __getattr__(self, name: str) -> Any:
        # np.exp(object array) calls the method `exp` of each element
        if name.startswith("_") or of_numpy(name) is None:
            raise AttributeError(name)
        return lambda *others: _apply(name, (self, *others))


def _operator(name: str, swapped: bool) -> Callable[[Any, Any], Any]:
    def operate(self: Any, other: Any) -> Any:
        pair = (other, self) if swapped else (self, other)
        return _each(lambda a, b: _apply(name, (a, b)), pair) if isinstance(other, np.ndarray) else _apply(name, pair)

    return operate


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "pow": "power", "mod": "remainder",
    "floordiv": "floor_divide",
}  # fmt: skip
for _method, _name in _OPERATORS.items():
    setattr(Traced, f"__{_method}__", _operator(_name, swapped=False))
    setattr(Traced, f"__r{_method}__", _operator(_name, swapped=True))
for _method, _name in {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}.items():
    setattr(Traced, f"__{_method}__", _operator(_name, swapped=False))
for _method, _name in {"neg": "negative", "pos": "positive", "abs": "absolute"}.items():
    setattr(Traced, f"__{_method}__", lambda self, _n=_name: _apply(_n, (self,)))


class SymbolArray(np.ndarray):
    """An array of traced numbers or conditions; to compare, plain arrays of objects would ask for truth values."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is not None:  # y += x
            out[0][...] = getattr(ufunc, method)(*inputs, **kwargs)
            return out[0]
        if method == "__call__" and ufunc.signature is None and not kwargs:
            return _each(lambda *xs: _apply(ufunc.__name__, xs), inputs)
        if method == "reduce" and ufunc in (np.maximum, np.minimum) and kwargs.get("axis") in (None, 0):
            values = list(np.asarray(inputs[0]).flat)
            if inputs[0].ndim == 1 and values:
                return Traced(of_numpy(ufunc.__name__)(*map(as_expression, values)))  # type: ignore[misc]
        plain = [x.view(np.ndarray) if isinstance(x, SymbolArray) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        return result.view(SymbolArray) if isinstance(result, np.ndarray) and result.dtype == object else result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _HANDLED and func is not np.ndim:
            return _HANDLED[func](*args, **kwargs)
        return super().__array_function__(func, types, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(key, SymbolArray):  # a mask of conditions
            key, value = ..., np.where(key, value, self)
        super().__setitem__(key, value)


def call_traced(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a user's function with traced numbers; raises what `with_symbols` raises."""
    return with_symbols(function, lambda f, follow: follow(lambda: f(*args, **kwargs)), SymbolArray)


def with_symbols(
    function: Callable[..., Any],
    call: Callable[[Callable[..., Any], Callable[[Callable[[], Any]], Any]], _T],
    kind: type[np.ndarray],
) -> _T:
    """Return what a function gives with symbols, by ``call(function, follow)``.

    Where it fails, as values are missing, it is tried with a copy of the function that takes symbols, on every way
    that its decisions leave.

    Parameters
    ----------
    function : callable
    call : callable
        It hands what calls the function to `follow`, and uses what comes back.
    kind : type
        Of arrays of symbols.

    Raises
    ------
    TracingError
        Whatever went wrong, with the line of the user's function where it did. Errors of other kinds are kept as the
        cause: a function that fails on symbols may still run on numbers.
    """
    with suppress(Exception):
        return call(function, lambda way: way())
    try:
        return call(accepting_symbols(function, kind), _on_every_way)
    except (Exception, SystemExit) as error:  # which may stand on one of the ways
        why = str(error) if isinstance(error, TracingError) else f"{type(error).__name__}: {error}"
        raise TracingError(f"{place_of(function, error)}{why}") from error


def _on_every_way(call: Callable[[], Any]) -> Any:
    """Return what a call gives, its decisions as choices: the call is repeated for every way that they leave."""
    n_ways = 0

    def follow(turns: tuple[bool, ...]) -> Any:
        """Return what the ways give that begin with some turns: first the one that always decides for yes."""
        nonlocal n_ways
        n_ways += 1
        met: list[Any] = []
        answers: dict[Any, bool] = {}

        def decide(condition: Any, key: Any) -> bool:
            if key not in answers:
                met.append(condition)
                if n_ways + len(met) > MOST_WAYS:
                    raise TracingError(
                        f"its decisions (if, while, and, or) leave more than {MOST_WAYS} ways; write "
                        "np.where(condition, a, b) instead"
                    )
                answers[key] = turns[len(met) - 1] if len(met) <= len(turns) else True
            return answers[key]

        token = _DECIDE.set(decide)
        try:
            result = call()
        finally:
            _DECIDE.reset(token)
        for k in reversed(range(len(turns), len(met))):
            other = follow((*turns, *[True] * (k - len(turns)), False))
            result = _chosen(met[k], result, other)
        return result

    return follow(())


def decided(condition: Any, key: Any) -> bool:
    """Return the truth of a condition on the way that is followed; conditions of one key are the same."""
    decide = _DECIDE.get()
    if decide is None:
        raise TracingError(
            "an if (or min, max, and, or) decides on a symbol; "
            "write np.where(condition, a, b), np.maximum or np.minimum instead"
        )
    return decide(condition, key)


def _chosen(condition: Any, yes: Any, no: Any) -> Any:
    """Return what holds numbers, or such things again, as the choice between two of a form."""
    if isinstance(yes, Mapping) and isinstance(no, Mapping) and yes.keys() == no.keys():
        return {k: _chosen(condition, v, no[k]) for k, v in yes.items()}
    if isinstance(yes, tuple | list) and isinstance(no, tuple | list | np.ndarray) and len(yes) == len(no):
        return type(yes)([_chosen(condition, a, b) for a, b in zip(yes, no, strict=True)])
    return np.where(condition, yes, no)


def place_of(function: Callable[..., Any], error: BaseException) -> str:
    """Return where in the user's file an error arose, as "line 12, `if x > 0:`: "."""
    code = getattr(function, "__code__", None)
    frames = [f for f in traceback.extract_tb(error.__traceback__) if code and f.filename == code.co_filename]
    if not frames:
        return ""
    last = frames[-1]
    line = (last.line or linecache.getline(last.filename, last.lineno or 0)).strip()
    return f"line {last.lineno}" + (f", `{line}`: " if line else ": ")


def agree(
    ours: Callable[..., Any], direct: Callable[..., Any], points: Sequence[tuple[Any, ...]], least: float = 0.0
) -> bool:
    """Tell whether what was traced gives the function's own numbers at some points, those that are none aside.

    Parameters
    ----------
    ours, direct : callable
        What was traced, or None where it has no numbers; the function.
    points : sequence of tuple
        Their arguments.
    least : float
        By which numbers may differ, however small they are.
    """
    for point in points:
        with np.errstate(all="ignore"):
            try:
                known = direct(*point)
            except Exception:  # the function itself fails there: nothing to compare
                continue
            found = ours(*point)
        size = max(least, 1e-12 * float(np.abs(known).max(initial=0.0)))
        if found is not None and np.isfinite(known).all() and not np.allclose(found, known, rtol=1e-8, atol=size):
            return False
    return True
