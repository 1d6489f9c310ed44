"""One table says what a function is: the same in a text, in numpy and, for numbers, in the node that stands for it."""

import numpy as np
import pytest
import sympy

from fmepy.compiled.python_code import scalar_function
from fmepy.expressions.equations import symbol
from fmepy.expressions.functions import ELEMENTARY, FUNCTIONS, of_numpy
from fmepy.expressions.text import parse_expression
from fmepy.models.definition.tracing import as_expression, traced

ARGUMENTS = {1: ("x",), 2: ("x", "y"), 3: ("x > 0", "x", "y")}


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_text_and_a_traced_function_of_numpy_give_one_expression(name):
    function = FUNCTIONS[name]
    text = parse_expression(f"{name}({', '.join(ARGUMENTS[function.least])})")
    for ufunc in function.numpy:
        found = getattr(np, ufunc)(*map(traced, ARGUMENTS[function.least]))
        assert as_expression(found) == text


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"where"}))
def test_a_constant_piece_is_the_number_that_numpy_gives(name):
    function = FUNCTIONS[name]
    values = (0.37, 0.81)[: function.least]
    found = float(parse_expression(f"{name}({', '.join(map(str, values))})"))
    assert found == pytest.approx(getattr(np, function.numpy[0])(*values), rel=1e-14)


@pytest.mark.parametrize("name", sorted(ELEMENTARY))
def test_an_elementary_function_is_computed_under_its_name(name):
    x, y = symbol("x"), symbol("y")
    arguments = (x, y) if name == "atan2" else (x,)
    node = getattr(sympy, name)(*arguments)
    assert type(node).__name__ == name
    (found,) = scalar_function([[x, y]], [node])([0.37, 0.81])
    assert found == pytest.approx(getattr(np, ELEMENTARY[name])(*(0.37, 0.81)[: len(arguments)]), rel=1e-14)


def test_what_numpy_alone_has_is_computed_as_numpy_does():
    x, y = symbol("x"), symbol("y")
    for name in ("floor_divide", "remainder", "fmod", "cbrt", "hypot", "exp2", "expm1", "log1p", "arctan2", "trunc"):
        ufunc = getattr(np, name)
        for values in ((2.7, 0.8), (2.7, -0.8), (-0.3, 0.8)):
            expression = of_numpy(name)(*(x, y)[: ufunc.nin])
            assert scalar_function([[x, y]], [expression])(values)[0] == pytest.approx(ufunc(*values[: ufunc.nin]))
    assert of_numpy("sinc") is None
