"""Parts that many expressions share are kept as one, however deep: put in, derived, written, pickled."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.expressions.derivatives import derivative
from fmepy.expressions.equations import symbol
from fmepy.expressions.functions import FUNCTIONS
from fmepy.expressions.nodes import Shared, Where, shared_in, unshared
from fmepy.models.running.switches import as_choices, has_choices, take_out_switches

x, k = symbol("x"), symbol("k")
DEPTH = 400


def _chain():
    """Return e with 2**DEPTH ways through it, its value, and its derivatives to x and k, at (0.7, 0.3)."""
    e, v, dx, dk = Shared("a0", x * k), 0.7 * 0.3, 0.3, 0.7
    for i in range(DEPTH):
        e = Shared(f"a{i + 1}", e / 2 + e**2 * k / 4)
        v, dx, dk = v / 2 + v**2 * 0.3 / 4, dx * (0.5 + 0.3 * v / 2), dk * (0.5 + 0.3 * v / 2) + v**2 / 4
    return e, v, dx, dk


@pytest.fixture(scope="module")
def chain():
    return _chain()


def test_a_deep_chain_is_computed_and_derived_once_a_part(chain):
    e, v, dx, dk = chain
    assert len(shared_in([e, e + 1])) == DEPTH + 1
    parts = [e, derivative(e, x), derivative(e, k)]
    np.testing.assert_allclose(scalar_function([[x], [k]], parts)((0.7,), (0.3,)), [v, dx, dk], rtol=1e-12)
    values = array_function([[x, k]], [e])(np.array([[0.7, 0.7], [0.3, 0.3]]))
    np.testing.assert_allclose(values[0], [v, v], rtol=1e-12)


def test_names_are_put_in_and_equal_parts_are_one_object(chain):
    e = chain[0]
    y = symbol("y")
    there = e.xreplace({x: y})
    assert there.free_symbols == {y, k}
    assert there.xreplace({y: x}) is e
    assert e.xreplace({y: x}) is e
    rule = {x: y}
    assert (x + e).xreplace(rule) == y + there
    rule[k] = x  # a rule that has grown is another one
    assert e.xreplace(rule).free_symbols == {x, y}
    assert Shared("a", x * 2).xreplace({x: symbol("x") * 0 + 3}) == 6
    assert str(e + 1) == f"a{DEPTH} + 1"


def test_a_deep_chain_travels_in_a_pickle_and_is_the_same_object_there(chain):
    assert pickle.loads(pickle.dumps((chain[0] + 1,)))[0] == chain[0] + 1


def test_choices_inside_are_seen_and_taken_out():
    inner = Shared("step", Where(x, k, x * 2, k))
    outer = Shared("twice", inner * inner)
    assert has_choices([outer])
    assert as_choices(outer) is outer
    (smooth,), switches = take_out_switches([outer + inner])
    assert [w.g for w in switches] == [x - k]
    assert switches[0].mode in smooth.free_symbols
    assert not has_choices([Shared("plain", x * k)])
    inside, (e,) = unshared([outer])
    assert [s.name for s, _ in inside] == ["step", "twice"]
    assert e == inside[1][0]


def test_exp_does_not_look_into_what_is_shared(chain):
    e = chain[0]
    small = FUNCTIONS["exp"].of(-k * e)
    assert FUNCTIONS["exp"].of(-k * x).func.__module__.startswith("sympy")
    found = [small, small**2, small * FUNCTIONS["exp"].of(e), derivative(small, k), FUNCTIONS["exp"].of(e + k)]
    v, dk = chain[1], chain[3]
    first = np.exp(-0.3 * v)
    wanted = [first, first**2, first * np.exp(v), -first * (v + 0.3 * dk), np.exp(v + 0.3)]
    np.testing.assert_allclose(scalar_function([[x], [k]], found)((0.7,), (0.3,)), wanted, rtol=1e-12)
    assert unshared([small])[1][0].func(-x) == small.func(-x)
