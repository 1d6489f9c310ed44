"""The functions of the model language, in one table: their names, values and derivatives.

A row (`Function`) defines a function completely: texts, traced Python functions, computations with arrays,
and modules call it, derivatives and machine code come from its row. `add_function` adds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

import numpy as np
import scipy  # its rooms are loaded where they are asked for

from fmepy.errors import ArgumentError
from fmepy.language.nodes import (
    HALF,
    MINUS_ONE,
    ONE,
    TABLE,
    ZERO,
    Function,
    Node,
    add,
    as_node,
    call,
    choose_above,
    in_order,
    mul,
    power,
)

__all__ = ["TABLE", "Function", "add_function", "call", "of_numpy"]

_LLVM_NAN = "0x7FF8000000000000"


def add_function(function: Function) -> Function:
    """Add a function to the language, for everything that is read or traced from then on.

    Parameters
    ----------
    function : Function
        Its row.

    Returns
    -------
    Function
        The same.

    Raises
    ------
    ArgumentError
        The name, or that of an ufunc, is taken; or nothing says what its derivatives are.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from fmepy.language.functions import TABLE, Function, add_function
    >>> from fmepy.language.text import parse_expression
    >>> gd = add_function(Function(
    ...     "gd", lambda x: math.atan(math.sinh(x)), lambda x: np.arctan(np.sinh(x)),
    ...     slopes=lambda out, x: [1 / call("cosh", x)],
    ...     llvm=lambda part, x: part.call("atan", part.call("sinh", x)),
    ... ))  # the Gudermannian function
    >>> parse_expression("a * gd(x)")
    a*gd(x)
    >>> float(parse_expression("gd(1)"))
    0.8657694832396586
    >>> del TABLE["gd"]
    """
    taken = {ufunc: f.name for f in TABLE.values() for ufunc in f.numpy}
    if function.name in TABLE:
        raise ArgumentError(
            f"The language has a function {function.name!r} already. Use it as it is, give yours another name, or take "
            f"the present one out first: del TABLE[{function.name!r}]."
        )
    for ufunc in function.numpy:
        if ufunc in taken:
            raise ArgumentError(
                f"The ufunc {ufunc!r} is the function {taken[ufunc]!r} already. Leave it out of `numpy`."
            )
    if not (function.slopes or function.tangent or function.build or function.jumps):
        raise ArgumentError(
            f"The function {function.name!r} has no derivatives. Give `slopes`, a function slopes(out, x, ...) that "
            "returns them to each argument; or say jumps=True if it is constant between jumps."
        )
    TABLE[function.name] = function
    _BY_NUMPY.clear()
    return function


# --- functions that have one value and smooth derivatives


def _smooth(
    name: str, numpy: str, slopes: Callable[..., Sequence[Any]], *, least: int = 1, most: int = 0,
    in_text: bool = True, bounded: bool = False, more: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Add a function of C, math and numpy."""
    add_function(
        Function(
            name, getattr(math, name), getattr(np, numpy), slopes, name, (numpy, *more), least, most or least,
            in_text, bounded=bounded,
        )
    )  # fmt: skip


def _root(x: Any) -> Node:
    return power(x, HALF)


def _built(
    name: str, numpy: tuple[str, ...], build: Callable[..., Node], n: int = 1, value: Any = None, llvm: str = ""
) -> None:
    """Add a function that is an expression of others; a text may call it where its value is known."""

    def by_nodes(*x: float) -> float:
        return float(build(*map(as_node, x)))

    value = value or by_nodes
    add_function(Function(name, value, value, None, llvm, numpy, n, n, value is not by_nodes, build))


_BY_NUMPY: dict[str, str] = {}


def numpy_function(name: str) -> Function | None:
    """Return the function that numpy calls so, None if it is none of the language."""
    if not _BY_NUMPY:
        _BY_NUMPY.update({ufunc: f.name for f in TABLE.values() for ufunc in f.numpy})
    return TABLE.get(_BY_NUMPY.get(name, ""))


def of_numpy(name: str) -> Callable[..., Node] | None:
    """Return one of numpy's functions as a function of expressions, None if it is none of the language."""
    function = numpy_function(name)
    return None if function is None else lambda *arguments: call(function.name, *arguments)


_smooth("exp", "exp", lambda out, x: [out])
_smooth("expm1", "expm1", lambda out, x: [out + 1], in_text=False)
_smooth("exp2", "exp2", lambda out, x: [out * math.log(2)], in_text=False)
_smooth("log", "log", lambda out, x: [1 / x], most=2, bounded=True)  # of a base, too: `language.text`
_smooth("log1p", "log1p", lambda out, x: [1 / (1 + x)], in_text=False, bounded=True)
_smooth("log2", "log2", lambda out, x: [1 / (x * math.log(2))], bounded=True)
_smooth("log10", "log10", lambda out, x: [1 / (x * math.log(10))], bounded=True)
_smooth("sin", "sin", lambda out, x: [call("cos", x)])
_smooth("cos", "cos", lambda out, x: [-call("sin", x)])
_smooth("tan", "tan", lambda out, x: [1 + out**2])
_smooth("asin", "arcsin", lambda out, x: [1 / _root(1 - x**2)], bounded=True, more=("asin",))
_smooth("acos", "arccos", lambda out, x: [-1 / _root(1 - x**2)], bounded=True, more=("acos",))
_smooth("atan", "arctan", lambda out, x: [1 / (1 + x**2)], more=("atan",))
_smooth("sinh", "sinh", lambda out, x: [call("cosh", x)])
_smooth("cosh", "cosh", lambda out, x: [call("sinh", x)])
_smooth("tanh", "tanh", lambda out, x: [1 - out**2])
_smooth("asinh", "arcsinh", lambda out, x: [1 / _root(1 + x**2)], more=("asinh",))
_smooth("acosh", "arccosh", lambda out, x: [1 / _root(x**2 - 1)], in_text=False, bounded=True, more=("acosh",))
_smooth("atanh", "arctanh", lambda out, x: [1 / (1 - x**2)], in_text=False, bounded=True, more=("atanh",))
_smooth("atan2", "arctan2", lambda out, y, x: [x / (x**2 + y**2), -y / (x**2 + y**2)], least=2, in_text=False)
_smooth("hypot", "hypot", lambda out, x, y: [x / out, y / out], least=2, in_text=False)
add_function(
    Function(
        "expit",
        lambda x: math.exp(min(x, 0.0)) / (1 + math.exp(-abs(x))),
        lambda x: np.exp(np.minimum(x, 0.0)) / (1 + np.exp(-np.abs(x))),
        lambda out, x: [out * (1 - out)],
        lambda part, x: part.binary("fdiv", "1.0", part.binary("fadd", "1.0", part.call("exp", part.negative(x)))),
        ("expit",),
        in_text=False,
    )
)

for _name, _slope in (("erf", 2 / math.sqrt(math.pi)), ("erfc", -2 / math.sqrt(math.pi))):
    add_function(
        Function(
            _name, getattr(math, _name), lambda x, _n=_name: getattr(scipy.special, _n)(x),
            lambda out, x, _s=_slope: [_s * call("exp", -(x**2))], _name, (_name,),
        )
    )  # fmt: skip

# --- names of arithmetic

_built("sqrt", ("sqrt",), _root, 1, math.sqrt, "sqrt")
_built("pow", ("power", "float_power", "pow"), power, 2, math.pow, "pow")
_built("add", ("add",), lambda a, b: a + b, 2)
_built("subtract", ("subtract",), lambda a, b: a - b, 2)
_built("multiply", ("multiply",), lambda a, b: a * b, 2)
_built("divide", ("divide", "true_divide"), lambda a, b: a / b, 2)
_built("negative", ("negative",), lambda a: -a)
_built("positive", ("positive", "conjugate"), lambda a: a)
_built("square", ("square",), lambda a: a**2)
_built("reciprocal", ("reciprocal",), lambda a: 1 / a)

# --- choices; each propagates NaN: without the condition there is no value


def _known(value: float, *of: float) -> float:
    return math.nan if any(map(math.isnan, of)) else value


def _choose_number(left: float, right: float, yes: float, no: float) -> float:
    return yes if left > right else no if left <= right else math.nan


def _choose_array(left: Any, right: Any, yes: Any, no: Any) -> Any:
    return np.where(left > right, yes, np.where(np.less_equal(left, right), no, np.nan))


def _chosen(part: Any, left: str, right: str, yes: str, no: str) -> str:
    below = part.compare("ole", left, right)
    return str(part.select(part.compare("ogt", left, right), yes, part.select(below, no, _LLVM_NAN)))


def _extreme(name: str) -> Callable[[Sequence[Node], Sequence[Node]], Node]:
    def tangent(arguments: Sequence[Node], directions: Sequence[Node]) -> Node:
        value, out = arguments[0], directions[0]
        for a, d in zip(arguments[1:], directions[1:], strict=True):
            out = choose_above(value, a, out, d) if name == "max" else choose_above(value, a, d, out)
            value = call(name, value, a)
        return out

    return tangent


def _reduced(ufunc: Any) -> Callable[..., Any]:
    def reduced(*x: Any) -> Any:
        out = x[0]
        for other in x[1:]:
            out = ufunc(out, other)  # hands on NaN, as fmax does not
        return out

    return reduced


add_function(
    Function(
        "where", _choose_number, _choose_array, None, _chosen, (), 3, 3, jumps=True,
        tangent=lambda x, d: choose_above(x[0], x[1], d[2], d[3]),
    )
)  # fmt: skip
add_function(
    Function(
        "max", lambda *x: _known(max(x), *x), _reduced(np.maximum), None, lambda part, *x: part.largest(x),
        ("maximum",), 2, 20, tangent=_extreme("max"),
    )
)  # fmt: skip
add_function(
    Function(
        "min", lambda *x: _known(min(x), *x), _reduced(np.minimum), None, lambda part, *x: part.smallest(x),
        ("minimum",), 2, 20, tangent=_extreme("min"),
    )
)  # fmt: skip
add_function(
    Function(
        "abs", abs, np.abs, None, "fabs", ("absolute", "fabs"),
        tangent=lambda x, d: choose_above(x[0], ZERO, ONE, MINUS_ONE) * d[0],
    )
)  # fmt: skip


def _stepwise(
    name: str, value: Callable[..., float], llvm: Any, numpy: str = "", in_text: bool = True, jumps: bool = True
) -> None:
    """Add a function that is constant between its jumps."""
    add_function(
        Function(name, value, getattr(np, numpy or name), None, llvm, (numpy or name,), in_text=in_text, jumps=jumps)
    )


_stepwise("sign", lambda x: _known(float((x > 0) - (x < 0)), x), lambda part, x: part.sign(x))
_stepwise("floor", lambda x: float(math.floor(x)), "floor")
_stepwise("ceil", lambda x: float(math.ceil(x)), "ceil")
_stepwise("rint", lambda x: float(round(x)), "rint", in_text=False)
_stepwise("isnan", lambda x: float(x != x), lambda part, x: part.truth(part.compare("uno", x, x)), in_text=False)
_stepwise(
    "isfinite",
    lambda x: float(math.isfinite(x)),
    lambda part, x: part.truth(part.compare("ord", part.binary("fsub", x, x), "0.0")),
    in_text=False,
)
add_function(
    Function(
        "mod", lambda a, b: a % b, np.mod, lambda out, a, b: [ONE, -call("floor", a / b)],
        lambda part, a, b: part.modulo(a, b), ("remainder", "mod"), 2, 2, in_text=False, jumps=True,
    )
)  # fmt: skip
add_function(
    Function(
        "nan_of", lambda x: _known(0.0, x), lambda x: np.where(np.isnan(x), np.nan, 0.0), lambda out, x: [ZERO],
        lambda part, x: part.select(part.compare("ord", x, x), "0.0", _LLVM_NAN), in_text=False,
    )
)  # fmt: skip
"""0, or NaN where the argument is NaN: propagates a condition without a value."""


def _past(*x: Any) -> Any:
    raise ValueError("lag(x, tau) has a value only in a run")


add_function(Function("lag", _past, _past, lambda out, x, tau: [ZERO, ZERO], _past, least=2, most=2, in_text=False))
"""x at t - tau; systems have a symbol in its place, see `models.running.system`."""


def _trunc(x: Node) -> Node:
    return choose_above(x, ZERO, call("floor", x), call("ceil", x))


_built("trunc", ("trunc",), _trunc, 1, lambda x: float(math.trunc(x)))
_built("fmod", ("fmod",), lambda a, b: a - b * _trunc(a / b), 2, math.fmod)
_built("floor_divide", ("floor_divide",), lambda a, b: call("floor", a / b), 2)
_built("cbrt", ("cbrt",), lambda a: call("sign", a) * power(call("abs", a), 1 / 3))
_built(
    "heaviside", ("heaviside",),
    lambda x, middle: choose_above(x, ZERO, ONE, choose_above(ZERO, x, ZERO, middle)), 2,
)  # fmt: skip


def tangent(e: Node, directions: Sequence[Node], partials: dict[Node, list[Any]]) -> Node:
    """Return the derivative of a function's node along the directions of its arguments."""
    function = TABLE[e.word]
    if function.tangent is not None:
        return function.tangent(e.args, directions)
    if function.slopes is None:
        return ZERO
    if e not in partials:
        partials[e] = list(function.slopes(e, *e.args))
    return add(*(mul(p, d) for p, d in zip(partials[e], directions, strict=True) if d is not ZERO), ZERO)


def holds_choices(expressions: Iterable[Node]) -> bool:
    """Return whether any of some expressions holds a choice: a condition, an extreme, or a function with jumps."""
    return any(map(is_choice, in_order(expressions)))


def is_choice(e: Node) -> bool:
    """Tell whether a node is a choice by itself."""
    return e.word in TABLE and TABLE[e.word].is_choice


def holds_jumps(expressions: Iterable[Node], still: Container[str] | None = None) -> bool:
    """Tell whether any of some expressions may jump where its symbols do not; names that are `still` cause none."""
    jumping = [e for e in in_order(expressions) if e.word in TABLE and TABLE[e.word].jumps]
    if still is None:
        return bool(jumping)
    deciding = (a for e in jumping for a in (e.args[:2] if e.word == "where" else e.args))
    return any(s.name not in still for a in deciding for s in a.free_symbols)
