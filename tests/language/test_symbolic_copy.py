"""Functions that make arrays of their own and take functions from `math` are compiled as they stand."""

import functools
import math
from math import exp

import numpy as np
import pytest
from numpy import zeros

import fmepy as fme
from fmepy.language.symbolic_copy import accepting_symbols
from fmepy.language.tracing import SymbolArray, traced

TIMES = np.linspace(0, 3, 7)
START = {"a": 1.0, "b": 0.5, "c": 0.0}


def by_entry(t, y, p):
    d = np.zeros(3)
    d[0] = -p["k"] * y[0]
    d[1] = p["k"] * y[0] - y[1]
    d[2] = y[1] * math.exp(-0.1 * y[2])
    return d


def by_names_of_numpy(t, y, p):
    d = zeros(3)
    d[:2] = -p["k"] * y[0], p["k"] * y[0] - y[1]
    d[2] = y[1] * exp(-0.1 * y[2])
    return d


def last_rate(y):
    out = np.empty(1)
    out[0] = y[1] * math.pow(math.e, -0.1 * y[2])
    return out[0]


def by_imports_within(t, y, p):
    import math as m
    from math import exp as e_to

    import numpy as of_numbers

    d = of_numbers.zeros(3)
    d[:2] = -p["k"] * y[0], p["k"] * y[0] - m.pow(y[1], 1.0)
    d[2] = y[1] * e_to(-0.1 * y[2])
    return d


def by_function_beside(t, y, p):
    return np.array([-p["k"] * y[0], p["k"] * y[0] - y[1], last_rate(y)], dtype=float)


def by_matrix(t, y, p):
    M = np.diag(np.array([-1.0, -1.0, 0.0]))
    M = M + 0 * np.eye(3)
    M = np.array(M)
    M[0, 0], M[1, 0], M[2, 1] = -p["k"], p["k"], np.asarray(math.exp(-0.1 * y[2]))
    return M @ y


def by_constants(t, y, p):
    d = np.array([0.0, 0.0, 0.0])
    d += np.full(3, 0.0)
    d[0] -= p["k"] * y[0]
    d[1] += p["k"] * y[0] - y[1]
    d[2] += y[1] * math.exp(-0.1 * y[2]) * math.log(p["k"] * 2.0, 2.0) / math.log2(p["k"] * 2.0)
    return d


def by_extremes(t, y, p):
    a, b, c = (max(0.0, x) for x in y)
    return [-p["k"] * a, p["k"] * a - b, b * np.exp(-0.1 * min([c, 1e3]))]


def by_closure():
    rate = last_rate

    def recursive(i, y, p):
        d = np.zeros_like(np.arange(3.0))
        if i:
            d = d + recursive(i - 1, y, p)
        d[i] = (-p["k"] * y[0], p["k"] * y[0] - y[1], rate(y))[i]
        return d

    return lambda t, y, p: recursive(2, y, p)


class Holder:
    power = -0.1

    def rates(self, t, y, p):
        d = np.ones(3)
        d[0] = -p["k"] * y[0]
        d[1] = p["k"] * y[0] - y[1]
        d[2] *= y[1] * math.exp(self.power * y[2])
        return d


FORMS = [
    by_entry,
    by_names_of_numpy,
    by_imports_within,
    by_function_beside,
    by_matrix,
    by_constants,
    by_extremes,
    by_closure(),
    Holder().rates,
]


@pytest.mark.parametrize("function", FORMS, ids=lambda f: getattr(f, "__name__", "f"))
def test_compiled_with_exact_sensitivities(function):
    model = fme.OdeModel(function, state=START, parms={"k": 0.7}, times=TIMES, rtol=1e-9, atol=1e-11)
    assert model.engine_note == ""
    text = "d(a)/dt = -k*a\nd(b)/dt = k*a - b\nd(c)/dt = b*exp(-0.1*c)"
    expected = fme.OdeModel(text, state=START, parms={"k": 0.7}, times=TIMES, rtol=1e-9, atol=1e-11).bind()
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    assert bound.engine == "compiled"
    Z, R = expected.sensitivities(expected.theta0)
    np.testing.assert_allclose(Y, Z, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(S, R, rtol=1e-6, atol=1e-8)


def cell_by_cell(t, u, p):
    d = np.zeros(len(u))
    for i in range(len(u)):
        left, right = u[max(i - 1, 0)], u[min(i + 1, len(u) - 1)]
        d[i] = p["D"] * (left - 2 * u[i] + right)
    return d


def plane(t, u, p):
    U = u.reshape(5, 6)
    d = np.zeros((5, 6))
    d[1:-1, 1:-1] = U[2:, 1:-1] + U[:-2, 1:-1] + U[1:-1, 2:] + U[1:-1, :-2] - 4 * U[1:-1, 1:-1]
    return p["D"] * d.ravel()


@pytest.mark.parametrize("function", [cell_by_cell, plane])
def test_grids_that_write_into_arrays_of_zeros(function):
    start = {f"u{i}": math.sin(i) for i in range(30)}
    model = fme.OdeModel(function, state=start, parms={"D": 0.3}, times=TIMES, rtol=1e-8, atol=1e-10)
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    assert bound.engine == "compiled"
    plain = model.replace(engine="scipy").bind()
    np.testing.assert_allclose(Y, plain.simulate(plain.theta0), rtol=1e-6, atol=1e-7)
    h = 1e-4
    slope = (plain.simulate([0.3 + h]) - plain.simulate([0.3 - h])) / (2 * h)
    np.testing.assert_allclose(S[..., 0], slope, rtol=1e-4, atol=1e-4)


def test_the_function_and_its_modules_stay_as_they_are():
    copy = accepting_symbols(by_function_beside, SymbolArray)
    d = copy(0.0, np.array([traced("a"), traced("b"), traced("c")], dtype=object), {"k": 2.0})
    assert isinstance(d, SymbolArray)
    assert type(np.zeros(1)) is np.ndarray
    assert by_function_beside.__globals__["np"] is np
    assert last_rate.__globals__["math"] is math
    assert type(by_entry(0.0, np.ones(3), {"k": 1.0})) is np.ndarray


def test_plain_numbers_give_plain_numbers():
    copy = accepting_symbols(
        lambda x: (math.floor(x), math.log(8.0, 2.0), math.pi, np.zeros(2, dtype=int)), SymbolArray
    )
    floor, log, pi, whole = copy(2.5)
    assert (floor, log, pi) == (2, 3.0, math.pi)
    assert whole.dtype == int


def test_what_is_no_python_function_comes_back():
    assert accepting_symbols(np.exp, SymbolArray) is np.exp


def test_of_a_partial_function_the_other_one_is_copied():
    copy = accepting_symbols(functools.partial(by_entry, 0.0), SymbolArray)
    assert copy.args == (0.0,)
    assert copy.func.__code__ is by_entry.__code__
    assert copy.func is not by_entry


outside = np.zeros(3)


def into_outside(t, y, p):
    outside[0] = -p["k"] * y[0]
    outside[1:] = 0.0
    return outside


def test_an_array_from_outside_is_named():
    model = fme.OdeModel(into_outside, state=START, parms={"k": 0.7}, times=TIMES)
    assert "outside[0] = " in model.engine_note
    assert "make arrays in the function" in model.engine_note


# --- decisions


def by_if(t, y, p):
    a, b, c = y
    if t > 1 and (a < 10.0 or b > 0.0):
        flow = p["k"] * a
    elif t > 0.5:
        flow = 2 * p["k"] * a
    else:
        return 0.0, a, 0.0
    return [-flow, flow - b, b * (1.0 if c < 1e9 else 2.0)]


def by_mask(t, y, p):
    d = -p["k"] * y
    d[y < -1.0] = 0.0
    d[1:] = 0.3 if t < 1.5 else -0.1
    return d


def by_while(t, y, p):
    total, i = 0.0, 1
    while i < 4 and t > 0.2:
        total, i = total + y[0] / i, i + 1
    return -p["k"] * total * y


def by_clip(t, y, p):
    return -p["k"] * np.clip(y, 0.0, p["k"]) - 0.01 * y.max()


def by_select(t, y, p):
    return np.select([y > 0.8, y > -1.0], [-y, -2 * p["k"] * y], 0.0) + np.r_[0.0, 0.1 * y[0], y[1]]


def by_named(t, a, b, c, *, k):
    return {"a": -k * a, "b": k * a - b, "c": b} if t > 1 else {"c": -a, "b": 0.0, "a": k}


@pytest.mark.parametrize("function", [by_if, by_mask, by_while, by_clip, by_select, by_named])
def test_decisions_become_choices(function):
    model = fme.OdeModel(function, state=START, parms={"k": 0.7}, times=TIMES, rtol=1e-9, atol=1e-11)
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    assert bound.engine == "compiled"
    assert model.engine_note == ""
    plain = model.replace(engine="scipy", max_step=0.01).bind()
    np.testing.assert_allclose(Y, plain.simulate(plain.theta0), rtol=2e-5, atol=2e-5)
    h = 1e-4
    slope = (bound.simulate(bound.theta0 + h) - bound.simulate(bound.theta0 - h)) / (2 * h)
    np.testing.assert_allclose(S[..., 0], slope, rtol=1e-5, atol=1e-5)


def grid_by_if(t, u, p):
    inflow = 1.0 if t > 1.3 else 0.0
    d = np.zeros(len(u))
    d[1:] = p["D"] * (u[:-1] - u[1:])
    d[0] = p["D"] * (inflow - u[0])
    d[u < -1.0] = 5.0
    return np.select([d > 1e9, t > 0.2], [0.0, d], 0.5 * d)


def test_decisions_of_grids_become_choices():
    start = {f"u{i}": 0.0 for i in range(30)}
    model = fme.OdeModel(grid_by_if, state=start, parms={"D": 5.0}, times=TIMES, rtol=1e-8, atol=1e-10)
    bound = model.bind()
    Y = bound.simulate(bound.theta0)
    assert bound.engine == "compiled"
    plain = model.replace(engine="scipy", max_step=0.01).bind()
    np.testing.assert_allclose(Y, plain.simulate(plain.theta0), atol=1e-5)


def many_ways(t, y, p):
    return [v if v > i else -v for i in range(5) for v in y][:3]


def guarded(t, y, p):
    if p["k"] < 0:
        raise SystemExit("k is negative")
    return -p["k"] * y


@pytest.mark.parametrize(("function", "why"), [(many_ways, "more than 64 ways"), (guarded, "SystemExit")])
def test_what_decisions_cannot_become(function, why):
    model = fme.OdeModel(function, state=START, parms={"k": 0.7}, times=TIMES)
    assert why in model.engine_note
    assert np.isfinite(model().to_numpy()).all()


@pytest.mark.parametrize("n", [8, 30])
def test_extremes_of_symbols_are_no_decisions_so_that_there_may_be_many(n):
    def buckets(t, y, p):
        d = np.zeros(n)
        for i in range(n):
            d[i] = p["k"] * min(y[i - 1], 0.5, max(v for v in (y[i], 0.1))) - max([y[i] - 0.2, 0])
        return d

    start = {f"y{i}": 0.05 * i for i in range(n)}
    model = fme.OdeModel(buckets, state=start, times=TIMES, parms={"k": 0.7}, rtol=1e-8, atol=1e-10)
    assert model.engine == "compiled"
    np.testing.assert_allclose(model(), model.replace(engine="scipy")(), rtol=1e-5, atol=1e-6)
    y = np.array(list(start.values()))
    rates = 0.7 * np.minimum(np.minimum(np.roll(y, 1), 0.5), np.maximum(y, 0.1)) - np.maximum(y - 0.2, 0)
    soon = model.replace(times=[0, 1e-6], rtol=1e-12, atol=1e-14)().iloc[1, 1:]
    np.testing.assert_allclose((soon - y) / 1e-6, rates, atol=1e-4)
