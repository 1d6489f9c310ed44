"""Python functions become equations where they can, run as they are where they cannot, and say why."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelError, TracingError
from fmepy.language.equations import symbol, symbols
from fmepy.language.nodes import in_order
from fmepy.language.tracing import SymbolArray, Traced, as_expression, at_most, call_traced, traced
from fmepy.models.ode import OdeModel

UFUNCS = ["exp", "expm1", "exp2", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "sin", "cos", "tan", "arcsin",
          "arccos", "arctan", "sinh", "cosh", "tanh", "abs", "sign", "square", "reciprocal", "negative"]  # fmt: skip


@pytest.mark.parametrize("name", UFUNCS)
def test_numpys_functions_have_their_symbolic_form(name):
    expression = as_expression(getattr(np, name)(traced("x")))
    for value in (0.3, 0.9):
        assert float(expression.subs({symbol("x"): value})) == pytest.approx(float(getattr(np, name)(value)), rel=1e-12)


@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh"])
def test_numpys_functions_reach_into_arrays_of_symbols(name):
    array = np.array([traced("a"), traced("b")], dtype=object)
    out = getattr(np, name)(array)
    assert float(as_expression(out[1]).subs({symbol("b"): 0.5})) == pytest.approx(float(getattr(np, name)(0.5)))


@pytest.mark.parametrize("x", [-1.5, 0.25, 3.0])
def test_conditions_become_piecewise_expressions(x):
    def by_value(v):
        return (
            np.where(v > 0, v * v, -v) + np.maximum(v, 1) + np.clip(v, 0, 2) + np.where((v > 0) & (v <= 1), 5, 0)
            + np.where(np.logical_or(v < -1, v >= 3), 7, 0) + (v > 2) * 10 + np.where(~(v > 0), 100, 0)
        )  # fmt: skip

    expression = as_expression(call_traced(by_value, traced("x")))
    assert float(expression.subs({symbol("x"): x})) == pytest.approx(float(by_value(np.float64(x))))


def test_numbers_of_numpy_and_python_mix_with_symbols_on_either_side():
    x = traced("x")
    mixed = np.float64(2.5) * x + x * np.int64(3) - 1 / x + 2**x + np.array(0.5) * x
    assert isinstance(mixed, Traced)
    value = as_expression(mixed).subs({symbol("x"): 2})
    assert float(value) == pytest.approx(5 + 6 - 0.5 + 4 + 1)


def with_loop(t, x, *, k=1.0):
    return sum(k / i for i in range(1, int(x) + 2))


def with_interp(t, x, *, k=1.0):
    return -k * np.interp(t, [0, x], [0, 1])


def with_equality(t, x, *, k=1.0):
    return -k * (x == 0)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (with_loop, "integer value"),
        (with_interp, "np.interp has a form between constant points"),
        (with_equality, "=="),
    ],
)
def test_what_cannot_be_traced_runs_on_scipy_and_says_why_and_where(function, words, caplog):
    with caplog.at_level(logging.INFO, logger="fmepy"):
        model = OdeModel(function, state={"x": 2}, times=[0, 0.5])
    assert model.engine == "scipy"
    assert words in model.engine_note
    assert f"line {function.__code__.co_firstlineno + 1}" in model.engine_note
    assert [words in r.getMessage() for r in caplog.records] == [True]  # told once, at INFO
    assert np.isfinite(model().x).all()
    assert not model.bind().exact
    with pytest.raises(ModelError, match="cannot run on compiled"):
        OdeModel(function, state={"x": 2}, times=[0, 1], engine="compiled")


def test_a_copy_does_not_tell_the_reason_again(caplog):
    model = OdeModel(with_loop, state={"x": 2}, times=[0, 0.5])
    with caplog.at_level(logging.INFO, logger="fmepy"):
        model.replace(parms={"k": 2})()
    assert not caplog.records


def test_a_function_that_keeps_something_between_calls_is_not_taken_for_its_trace():
    calls = iter(range(10**6))

    def counting(t, x, *, k=1.0):
        return -k * x + 0.1 * next(calls)

    model = OdeModel(counting, state={"x": 2}, times=[0, 0.5])
    assert model.equations is None
    assert "do not give the numbers" in model.engine_note


def test_conditions_of_time_and_arcs_are_compiled():
    source = "d(x)/dt = -x * where(t > 1, 1, 2)"
    assert OdeModel(source, state={"x": 1}, times=[0, 2]).engine == "compiled"
    model = OdeModel(lambda t, x: -np.arctan(x), state={"x": 1}, times=[0, 2])
    assert model.engine == "compiled"
    assert model.bind().exact


def test_a_rate_may_be_given_by_name():
    model = OdeModel(lambda t, a, b: {"b": -b, "a": b}, state={"a": 0, "b": 1}, times=[0, 1])
    assert model.engine == "compiled"
    assert model().b.iloc[-1] == pytest.approx(np.exp(-1), rel=1e-5)


def test_small_vector_functions_are_compiled_too():
    def chain(t, y, p):
        return np.array([-p["k"] * y[0], p["k"] * y[0] - np.sqrt(y[1] + 1) + 1]), {"total": y.sum()}

    model = OdeModel(chain, state={"a": 1, "b": 0}, times=[0, 1, 2], parms={"k": 0.5})
    plain = model.replace(engine="scipy", rtol=1e-9, atol=1e-9)()
    assert model.engine == "compiled"
    np.testing.assert_allclose(model(), plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(plain.total, plain.a + plain.b)


def test_arrays_times_symbols_are_traced():
    def both(t, y, p):
        return (
            p["k"] * y * (1 - y / p["K"]) - np.maximum(y, p["k"]) * np.array([0.1, 0.2]) + np.where(t > 0.5, p["k"], 0)
        )

    model = OdeModel(both, state={"a": 1, "b": 2}, times=[0, 1, 2], parms={"k": 0.5, "K": 3})
    assert model.equations is not None
    plain = model.replace(engine="scipy", rtol=1e-9, atol=1e-9)()
    np.testing.assert_allclose(model(), plain, rtol=1e-4)


def test_an_array_of_symbols_is_compared_and_chosen_from_by_element():
    v = np.array([traced("a"), traced("b")], dtype=object).view(SymbolArray)
    chosen = np.where((v > 1) & (v < traced("k")), v, np.clip(-v, 0, 1))
    assert [str(c.expression) for c in chosen][
        1
    ] == "where(b > 1, where(k > b, b, min(max(-b, 0), 1)), min(max(-b, 0), 1))"
    assert str(np.max(v).expression) == "max(a, b)"
    assert str((v @ v).expression) == "a**2 + b**2"
    with pytest.raises(TracingError, match="decides on a symbol"):
        np.sort(v)


def test_what_grows_large_is_as_large_as_its_operations():
    def grown(x):
        for _ in range(200):
            x = x + 0.5 * np.sin(x * x + 1)
        return x

    with at_most(2000):
        expression = grown(traced("x")).expression
    assert len(in_order([expression])) < 1500
    with at_most(30), pytest.raises(TracingError, match="too many operations"):
        grown(traced("x"))


def test_a_tracing_error_names_the_line_of_the_users_function():
    with pytest.raises(TracingError, match=rf"line {with_loop.__code__.co_firstlineno + 1}, `return sum\(k / i for"):
        call_traced(with_loop, traced("t"), traced("x"), k=traced("k"))


@pytest.mark.parametrize(
    "rates",
    [
        lambda t, y, p: y * p["k"],
        lambda t, y, p: p["k"] - p["k"] * y,
        lambda t, y, p: np.maximum(y, p["k"]) - y.sum() / t,
        lambda t, y, p: np.where(y > p["k"], y, p["k"]) ** 2,
    ],
)
def test_arrays_and_single_symbols_mix_in_vector_functions(rates):
    model = OdeModel(rates, state=[1.0, 0.3], times=[1.0, 2.0], parms={"k": 0.5})
    assert model.equations is not None
    function = scalar_function(symbols(("t",), ("1", "2"), ("k",)), model.equations.rates)
    y = np.array([1.0, 0.3])
    np.testing.assert_allclose(function([1.5], y, [0.5]), rates(1.5, y, {"k": 0.5}), rtol=1e-14)
