"""Values of events that are functions of time, states and inputs: called once with symbols, they are expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError, TracingError, listed
from fmepy.language.equations import symbols
from fmepy.language.nodes import Node
from fmepy.language.tracing import as_expression, call_traced, traced


def is_missing(value: Any) -> bool:
    """Tell whether a cell of a table of events is empty."""
    return value is None or (isinstance(value, float | np.floating) and bool(np.isnan(value)))


class _ByName(dict[str, Any]):
    """States or inputs as a function of an event gets them: by name, or by position as in a vector."""

    def __missing__(self, key: Any) -> Any:
        if isinstance(key, int) and -len(self) <= key < len(self):
            return [*self.values()][key]
        raise TracingError(f"{key!r} is none of {listed(self)}")


def in_expressions(row: Mapping[str, Any], where: str, *names: Mapping[str, float]) -> list[Mapping[str, Any]]:
    """Return a row of events as rows of expressions: one a state where its value is a function that gives several.

    names : of mapping
        Of the time, the states and the inputs, each with a value at which the function is compared with its expression.
    """
    function = row.get("value")
    if not callable(function) or isinstance(function, Node):
        return [row]

    has_var = not is_missing(row.get("var"))
    try:
        found = call_traced(function, *_given_to([{k: traced(k) for k in group} for group in names]))
        values = found if isinstance(found, Mapping) else {row.get("var"): found}
        made = {k: as_expression(v) for k, v in values.items()}
    except (ModelError, TracingError) as error:
        raise ModelError(
            f"{where}: the function of the value cannot be read: {error}. It is called once with symbols, as f(t, "
            "state, parameters); state['x'] and parameters['a'] are numbers by name, to be computed with."
        ) from error
    if isinstance(found, Mapping) == has_var:
        returned = "a dict and `var` is given: return a number, or leave `var` out"
        needs = returned if has_var else "no dict: return one of states and their values, or name a state by `var`"
        raise ModelError(f"{where}: the function of the value returns {needs}.")
    _check_traced(function, made, where, names)
    return [{**row, "var": k, "value": e if e.free_symbols else float(e)} for k, e in made.items()]


def _given_to(groups: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the arguments of a function of an event: the time, and the states and inputs by name."""
    return [*groups[0].values(), *map(_ByName, groups[1:])]


def _check_traced(
    function: Callable[..., Any], made: Mapping[Any, Node], where: str, names: Sequence[Mapping[str, float]]
) -> None:
    """Refuse a function that does not give the numbers of its expressions, such as one of random numbers."""
    expected = scalar_function(symbols(*names), [*made.values()])
    numbers = [dict(g) for g in names]
    same = True
    with np.errstate(all="ignore"), suppress(ArithmeticError, ValueError):  # it may have no value there
        for _ in range(2):
            found = function(*_given_to(numbers))
            plain = np.array([*found.values()] if isinstance(found, Mapping) else [found], dtype=float).ravel()
            same = same and np.allclose(plain, expected(*([*g.values()] for g in numbers)), rtol=1e-9, equal_nan=True)
    if not same:
        raise ModelError(
            f"{where}: the function of the value does not give the numbers that it gives with symbols; it may use "
            "random numbers or keep something between calls. What happens at random goes in by parameters."
        )
