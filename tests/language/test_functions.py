"""One table says what a function is: the same in a text, in numpy, in numbers, in machine code and in derivatives."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.special

import fmepy as fme
from fmepy.compiled.python_code import scalar_function
from fmepy.language.derivatives import are_equal, derivative, quotient
from fmepy.language.equations import symbol
from fmepy.language.functions import TABLE, Function, add_function, call, of_numpy
from fmepy.language.nodes import number, values_of
from fmepy.language.text import parse_expression, text_functions
from fmepy.language.tracing import as_expression, traced

ARGUMENTS = {1: ("x",), 2: ("x", "y"), 3: ("x > 0", "x", "y")}


def ufuncs(function):
    return [getattr(space, k) for k in function.numpy for space in (np, scipy.special) if hasattr(space, k)]


@pytest.mark.parametrize("name", sorted(text_functions()))
def test_a_text_and_a_traced_function_of_numpy_give_one_expression(name):
    function = TABLE[name]
    text = parse_expression(f"{name}({', '.join(ARGUMENTS[function.least])})")
    for ufunc in ufuncs(function):
        assert as_expression(ufunc(*map(traced, ARGUMENTS[function.least]))) is text


@pytest.mark.parametrize("name", sorted(set(text_functions()) - {"where"}))
def test_a_constant_piece_is_the_number_that_numpy_gives(name):
    function = TABLE[name]
    values = (0.37, 0.81)[: function.least]
    found = float(parse_expression(f"{name}({', '.join(map(str, values))})"))
    assert found == pytest.approx(ufuncs(function)[0](*values), rel=1e-14)


@pytest.mark.parametrize("name", sorted(name for name, f in TABLE.items() if name not in ("where", "lag", "nan_of")))
def test_values_of_a_function_are_those_of_numpy_however_they_are_computed(name):
    function = TABLE[name]
    x = [symbol("x"), symbol("y")][: function.least]
    expression = call(name, *x)
    reference = ufuncs(function)[0]
    for values in ((2.7, 0.8), (0.4, 0.8), (0.4, -0.8), (-0.3, 0.8)):
        with np.errstate(all="ignore"):
            expected = float(reference(*values[: function.least]))
        assert scalar_function([x], [expression])(values[: function.least])[0] == pytest.approx(expected, nan_ok=True)
        (by_nodes,) = values_of([expression], dict(zip(x, values, strict=False)))
        assert by_nodes == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("name", sorted(name for name, f in TABLE.items() if name not in ("where", "lag", "nan_of")))
def test_derivatives_are_those_of_differences(name):
    x = [symbol("x"), symbol("y")][: TABLE[name].least]
    e = call(name, *x)
    for values in ((2.7, 0.8), (0.4, 0.83)):
        at = dict(zip(x, values, strict=False))
        for s in x:
            (found,) = values_of([derivative(e, s)], at)
            above, below = (values_of([e], at | {s: at[s] + h})[0] for h in (1e-6, -1e-6))
            if math.isfinite(above - below):
                assert found == pytest.approx((above - below) / 2e-6, rel=1e-6, abs=1e-8)
    assert of_numpy("sinc") is None


def test_a_function_from_outside_is_one_of_the_language_everywhere():
    ndtr = add_function(
        Function(
            "ndtr", lambda x: 0.5 * math.erfc(-x / math.sqrt(2)), scipy.special.ndtr,
            lambda out, x: [call("exp", -(x**2) / 2) / math.sqrt(2 * math.pi)],
            lambda part, x: part.binary("fmul", "0.5", part.call("erfc", part.binary("fdiv", x, repr(-(2**0.5))))),
            ("ndtr",),
        )
    )  # fmt: skip
    try:
        given = {"state": {"x": 0.2}, "parms": {"k": 0.7}, "times": np.linspace(0, 3, 7)}
        by_text = fme.OdeModel("d(x)/dt = ndtr(k * x) - 0.5 * x", **given)
        by_function = fme.OdeModel(lambda t, x, *, k: scipy.special.ndtr(k * x) - 0.5 * x, **given)

        def of_arrays(t, y, p):
            return scipy.special.ndtr(p["k"] * y) - 0.5 * y

        many = {f"x{i}": 0.2 for i in range(30)}
        by_arrays = fme.OdeModel(of_arrays, state=many, parms={"k": 0.7}, times=given["times"])
        by_module = fme.dmi.Module("rise", "d(x)/dt = ndtr(k * x) - 0.5 * x")
        plain = fme.OdeModel(
            lambda t, x, *, k: scipy.special.ndtr(float(k * x)) - 0.5 * x,
            **given,
            engine="scipy",
            rtol=1e-9,
            atol=1e-12,
        )
        expected = plain()["x"]
        assert by_text.equations is not None
        assert by_function.equations is not None
        for found in (by_text()["x"], by_function()["x"], by_arrays()["x7"]):
            np.testing.assert_allclose(found, expected, rtol=1e-4)
        system = fme.dmi.ModularModel([by_module], {"k": 0.7, "x": 0.2}, times=given["times"], dt=0.001)
        np.testing.assert_allclose(system()["x"], expected, rtol=1e-3)
        S = by_text.bind(["k"]).sensitivities([0.7])[1][:, 0, 0]
        of_arrays_S = by_arrays.bind(["k"]).sensitivities([0.7])[1][:, 7, 0]
        differences = [plain({"k": k})["x"] for k in (0.7001, 0.6999)]
        np.testing.assert_allclose(S, (differences[0] - differences[1]) / 2e-4, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(of_arrays_S, S, rtol=1e-4, atol=1e-6)
        perfect = fme.structural_identifiability(by_text, observed="x")
        assert perfect.verdicts["k"] in ("locally", "globally")
    finally:
        del TABLE[ndtr.name]


def test_a_function_without_derivatives_must_say_that_it_is_constant_between_jumps():
    with pytest.raises(fme.errors.ArgumentError, match=r"'own' has no derivatives. Give `slopes`.*jumps=True"):
        add_function(Function("own", math.erf, scipy.special.erf, llvm="erf"))
    assert "own" not in TABLE


def test_a_taken_name_is_refused():
    with pytest.raises(fme.errors.ArgumentError, match="has a function 'exp' already"):
        add_function(TABLE["exp"])


def test_numbers_are_computed_and_nothing_else_is():
    x = symbol("x")
    assert call("max", 2, 3, 1) is number(3)
    assert call("log", -1).word == "log"  # which has no value; a run shows it
    assert math.isnan(values_of([call("log", -1) + x], {x: 1.0})[0])


def test_the_page_on_functions_runs_as_printed():
    text = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")
    block = text.split("## A function of the language")[1].split("```python\n")[1].split("```")[0]
    try:
        names: dict = {}
        exec(block, names)
        Y, S = names["model"].bind(["k"]).sensitivities([3.0])
        assert Y[-1, 0] > 0.1
        assert S[-1, 0, 0] > 0
    finally:
        TABLE.pop("ndtr", None)


def test_equal_expressions_are_equal_at_points_where_they_have_values():
    x, k = symbol("x"), symbol("k")
    assert are_equal((x + k) ** 2, x**2 + 2 * k * x + k**2)
    assert not are_equal(x**2, x**3)
    assert not are_equal(call("log", -x), call("log", -k))  # of no value anywhere, nothing is known
    assert quotient(k * x + 3 * x, x) is k + 3
    assert quotient(k * x + 3, x) is None
    assert quotient(x**2, x) is None


@pytest.mark.parametrize(("text", "expected"), [("sinh(x)", -math.inf), ("(1e200*x)**3", -math.inf), ("exp(x)", 0.0)])
def test_values_beyond_floating_point_are_those_of_numpy(text, expected):
    x = symbol("x")
    (found,) = values_of([parse_expression(text)], {x: -1000.0})
    assert found == pytest.approx(expected, nan_ok=True)
    assert values_of([call("expit", x)], {x: -1000.0}) == [0.0]
    assert math.isnan(values_of([(x - x) / (x - x)], {x: 1.0})[0])


def test_bounds_that_bind_nothing_go():
    x = symbol("x")
    assert call("min", x, math.inf) is x
    assert call("max", -math.inf, x, 2) is call("max", x, 2)
