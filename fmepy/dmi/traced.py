"""A module that is a Python function -> statements, if possible: the function is called once with symbols.

The call records its operations (`language.tracing`), which are compiled and become equations as text does. Values that
are used more than once become hidden variables. A function is not traced if it needs a number (an ``if`` on a value,
``math.exp``), if it is not pure, or if the statements do not give its numbers.
"""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.compiled.statements import statements
from fmepy.dmi.statements import FunctionStatement, Reference, array_node, element_names
from fmepy.errors import ModelError, TracingError, counted, listed
from fmepy.language.equations import symbol
from fmepy.language.functions import TABLE
from fmepy.language.nodes import Node, in_order, mapped
from fmepy.language.tracing import SymbolArray, agree, as_expression, at_most, call_traced, traced
from fmepy.types import Vector

MOST_ELEMENTS = 500
"""Largest number of elements that a traced function reads and assigns."""
MOST_OPERATIONS = 4_000
"""Largest number of operations on symbols; they take a second."""
_DEEPEST = 40  # depth of a tree from which parts become hidden variables
_PURE = frozenset({
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "float", "int", "isinstance", "len", "list", "map",
    "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip", "ArithmeticError",
    "TypeError", "ValueError",
})  # fmt: skip
_MODULES = ("numpy", "math", "fmepy")
_IMPURE = frozenset({"random", "fill", "sort", "put", "resize", "load", "loadtxt", "genfromtxt", "fromfile"})
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, np.ufunc)
_POINTS = (1.0, -0.8, 130.0)


def traced_assignments(statement: FunctionStatement) -> list[tuple[Reference, Node]]:
    """Return the assignments that are equivalent to a Python module.

    Scalars that are used more than once come first, as hidden variables, each after its dependencies.

    Raises
    ------
    TracingError
        The function cannot be traced; with its line.
    """
    function = getattr(statement.function, "function", statement.function)
    elements = sum(math.prod(n.shape) for n in (*statement.reads, *statement.targets))
    if elements > MOST_ELEMENTS:
        raise TracingError(f"it reads and assigns {elements} numbers; up to {MOST_ELEMENTS} become equations")
    reason = _impurity(function, set())
    if reason:
        raise TracingError(reason)
    symbols = [e for n in statement.reads for e in element_names(n.name, n.shape)]
    arguments = [_array(list(map(traced, element_names(n.name, n.shape))), n) for n in statement.reads]
    with at_most(MOST_OPERATIONS):
        returned = call_traced(function, *arguments)
    try:
        parts = values_of(returned, statement.targets, statement.module, object)
    except ModelError as error:
        raise TracingError(str(error)) from error
    expressions = [_finite(v, n.name) for n, values in zip(statement.targets, parts, strict=True) for v in values]
    _check_numbers(statement, function, symbols, expressions)
    return _with_hidden(statement, expressions)


def _with_hidden(statement: FunctionStatement, expressions: list[Node]) -> list[tuple[Reference, Node]]:
    """Return the assignments of expressions; a part that occurs several times becomes a hidden variable."""
    for e in in_order(expressions):
        if e.args and e.word in TABLE and (e.word == "lag" or not TABLE[e.word].llvm):
            raise TracingError(f"{e.word}(...) has no form in the language of modules")
    several, out = statements(expressions, _DEEPEST)[1], list[tuple[Reference, Node]]()

    def change(e: Node, parts: list[Node]) -> Node:
        new = e.rebuilt(parts) if parts else e
        if e not in several:
            return new
        out.append((Reference(f"{statement.module}({len(out) + 1})"), new))
        return out[-1][0].node

    left = iter(mapped(expressions, change))
    for n in statement.targets:
        items = [next(left) for _ in range(math.prod(n.shape))]
        out.append((n, array_node("array", *items) if n.shape else items[0]))
    return out


def _array(values: list[Any], name: Reference) -> Any:
    """Return the values of a variable in the form that the function receives: a number or an array."""
    if not name.shape:
        return values[0]
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out.reshape(name.shape).view(SymbolArray)


def _finite(value: Any, name: str) -> Any:
    """Return a returned value as an expression; refuse a constant that is not finite."""
    expression = as_expression(value)
    if expression.is_constant and not math.isfinite(float(expression)):
        raise TracingError(f"{name} is {expression}, which is not a number")
    return expression


# --- returned values


def values_of(returned: Any, targets: Sequence[Reference], module: str, dtype: Any) -> list[Any]:
    """Return the values that a module assigns, one vector a variable, row by row.

    Parameters
    ----------
    returned : object
        One value, a tuple or list in the order of `targets`, or a dict by name.
    targets : sequence of Reference
    module : str
    dtype : type
        float; or object, of symbols.

    Raises
    ------
    ModelError
        The values do not fit the variables that the module assigns.
    """
    names = [t.name for t in targets]
    several = isinstance(returned, tuple) or (isinstance(returned, list) and len(names) > 1)
    values = list(returned) if several else [returned]
    if isinstance(returned, dict):
        if set(returned) != set(names):
            raise ModelError(
                f"the Python module {module!r} returned a dict of {listed(list(returned))}; it assigns {listed(names)}."
            )
        values = [returned[n] for n in names]
    if len(values) != len(names):
        raise ModelError(
            f"the Python module {module!r} assigns {listed(names)}, {counted(len(names), 'value')}; it returned "
            f"{len(values)}. Return a tuple in this order, or a dict."
        )
    return [_as_shape(value, t, module, dtype) for t, value in zip(targets, values, strict=True)]


def _as_shape(value: Any, target: Reference, module: str, dtype: Any) -> Any:
    """Return the value of a variable, row by row."""
    name, shape = target.name, target.shape
    try:
        if dtype is float and np.iscomplexobj(value):
            raise TypeError
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, TracingError):
        raise ModelError(
            f"the Python module {module!r} returned {value!r:.60} for {name!r}; it must be real numbers."
        ) from None
    if array.shape != shape and not (array.shape == () or (shape == () and array.size == 1)):
        raise ModelError(
            f"the Python module {module!r} returned an array of shape {array.shape} for {name!r}, which has "
            f"shape {shape}."
        )
    return np.broadcast_to(array.reshape(-1) if shape == () else array, shape or (1,)).ravel()


# --- functions that are not pure


def _impurity(function: Any, seen: set[int]) -> str:
    """Return why a function may give other values in another call, or an empty string."""
    if not isinstance(function, FunctionType):
        return f"{type(function).__name__} is not a function written with def"
    if id(function) in seen:
        return ""
    seen.add(id(function))
    codes = list(_codes(function.__code__))
    steps = [i for code in codes for i in dis.get_instructions(code)]
    stores = any(i.opname == "STORE_SUBSCR" for i in steps)
    free = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    for i in steps:
        if i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "IMPORT_NAME", "YIELD_VALUE") or (
            i.opname == "STORE_DEREF" and i.argval in free
        ):
            what = "imports" if i.opname == "IMPORT_NAME" else "changes"
            return f"it {what} {i.argval!r}, and may give other values when it is called again"
        if i.opname in ("LOAD_ATTR", "LOAD_METHOD") and i.argval in _IMPURE:
            return f"it uses .{i.argval}, and may give other values when it is called again"
    used = {i.argval for i in steps if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    used_values = {name: function.__globals__[name] for name in sorted(used) if name in function.__globals__}
    unknown = [n for n in sorted(used) if n not in used_values and not (n in _PURE and hasattr(builtins, n))]
    if unknown:
        return f"it calls {unknown[0]}, of which nothing is known beforehand"
    for name, cell in free.items():
        used_values[name] = None
        with suppress(ValueError):  # the cell of the function's own name may still be empty
            used_values[name] = cell.cell_contents
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for name, value in [*used_values.items(), *(("a default", v) for v in defaults)]:
        reason = _impure_value(name, value, stores, seen)
        if reason:
            return reason
    return ""


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _impure_value(name: str, value: Any, stores: bool, seen: set[int]) -> str:
    """Return why a value outside a function, which it uses, may change, or an empty string."""
    if isinstance(value, ModuleType):
        known = value.__name__.partition(".")[0] in _MODULES
        return "" if known else f"it uses the module {value.__name__}, which has no symbolic form"
    if isinstance(value, FunctionType):
        own = value.__module__.partition(".")[0] in _MODULES
        return "" if own else _impurity(value, seen)
    if isinstance(value, (tuple, frozenset)):
        return next((r for v in value if (r := _impure_value(name, v, stores, seen))), "")
    if isinstance(value, BuiltinFunctionType):
        known = (value.__module__ or "").partition(".")[0] in (*_MODULES, "_operator")
        return "" if known else f"it calls {value.__name__}, of which nothing is known beforehand"
    if isinstance(value, np.ndarray) and not stores:
        return ""
    if isinstance(value, _CONSTANTS) or (type(value).__module__.partition(".")[0] == "numpy" and callable(value)):
        return ""
    return f"it uses {name!r} ({type(value).__name__}), which may change between two calls; make it an argument"


# --- numbers of expressions and function compared


def _check_numbers(
    statement: FunctionStatement, function: Callable[..., Any], names: Sequence[str], expressions: list[Any]
) -> None:
    """Refuse expressions whose numbers differ from those of the function."""
    traced_values = scalar_function([[symbol(n) for n in names]], expressions)
    ends = np.cumsum([math.prod(n.shape) for n in statement.reads])[:-1]

    def direct(values: Vector) -> Vector:
        parts = zip(np.split(values.copy(), ends), statement.reads, strict=True) if names else ()
        returned = function(*(v.reshape(n.shape) if n.shape else float(v[0]) for v, n in parts))
        return np.concatenate(values_of(returned, statement.targets, statement.module, float) or [np.zeros(0)])

    points = [(scale * (0.7 + 0.37 * np.arange(len(names)) % 1.9),) for scale in _POINTS]
    if not agree(lambda values: traced_values(values.tolist()), direct, points, least=1e-12):
        raise TracingError(
            "called with symbols it does not give the numbers that it gives; it may use random numbers or keep "
            "something between calls"
        )
