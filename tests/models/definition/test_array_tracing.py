"""A vector function that is traced computes what it computes in numpy, and its derivatives are those of that."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.random import default_rng

import fmepy as fme
from fmepy.errors import TracingError
from fmepy.models.definition.array_tracing import traced_arrays
from fmepy.models.definition.user_rates import RatesFunction
from fmepy.models.running.problem import ArraysAt, code_of

N = 24
GRID = fme.Grid1D(np.linspace(0, 3, N + 1) ** 1.2, area=lambda x: 1 + x)
M = default_rng(1).normal(size=(N, N))
X = np.linspace(0.1, 2, N)
P = {"a": 0.7, "b": 1.9, "c": 0.0}


def written_into(t, y, p):
    dy = np.zeros_like(y)
    flux = np.empty_like(y, shape=N + 1)
    flux[0], flux[-1] = p["b"], 0
    flux[1:-1] = -p["a"] * (y[1:] - y[:-1])
    dy[:] = -np.diff(flux)
    dy += y**2
    part = dy[3:9]
    part *= 2  # a view, through which dy changes
    dy[::4] -= y[0]
    return dy


def of_two_species(t, y, p):
    A, B = y.reshape(2, -1)
    r = p["a"] * A * B / (B + p["b"])
    return np.concatenate([-r, r - B * np.cumsum(X[: N // 2] * A)])


def in_two_dimensions(t, y, p):
    C = y.reshape(4, 6)
    wide = np.pad(C, 1)
    spread = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * C
    return (p["a"] * spread - C * C.mean(axis=1, keepdims=True) + C.T.reshape(4, 6) * C.max(axis=0)).ravel()


def by_transport(t, y, p):
    flow = fme.transport_1d(y, GRID, D=p["a"] * np.linspace(0.1, 1, N + 1), v=p["c"], up=p["b"])
    out = fme.transport_1d(y, GRID, v=-p["a"], D=0.0, flux_up=t * p["b"], flux_down=y[-1] * p["a"])
    return flow.rate + out.rate


FORMS = {
    "written into": written_into,
    "two species": of_two_species,
    "two dimensions": in_two_dimensions,
    "transport": by_transport,
    "r_": lambda t, y, p: np.diff(np.r_[p["b"], y, y[-1], 2.0], 3) * p["a"],
    "append, roll, flip": lambda t, y, p: np.append(y[1:], t) * np.roll(y, 2) - np.flip(y) + y[::-1] * p["a"],
    "products": lambda t, y, p: M @ y - y @ M * p["a"] + np.dot(M, y**2) + np.outer(y, X)[:, 3] + y @ y,
    "chosen": lambda t, y, p: np.where(y > p["a"], y**1.5, np.minimum(y, 0.3) * X) + np.clip(y, 0.2, p["b"]),
    "by a mask of numbers": lambda t, y, p: np.where(X > 1, y * p["a"], p["b"]),
    "conditions": lambda t, y, p: ((y > 0.4) & ~(y > 1) | (X < 0.3)) * y + (t > 3) * p["a"],
    "functions": lambda t, y, p: (
        np.exp(-y) + np.log(y + p["b"]) + np.sqrt(y) + np.tanh(y) * np.sin(t + y) + np.arctan2(y, p["a"])
        + np.expm1(y) + np.log1p(y) + np.log10(y + 1) + np.log2(y + 1) + np.cbrt(y) + np.hypot(y, X) + 1 / y
    ),
    "more functions": lambda t, y, p: (
        np.cos(y) * np.tan(y / 4) + np.arcsin(y / 9) + np.arccos(y / 9) + np.arctan(y) + np.sinh(y) + np.cosh(y)
        + np.arcsinh(y) + np.arccosh(y + 2) + np.arctanh(y / 9) + np.abs(y - 1) + np.exp2(y) + np.reciprocal(y)
    ),
    "powers": lambda t, y, p: y**2 + y**-3 + y ** p["a"] + p["b"] ** y + y**0.5 + y**y + y**1 + y**0 + p["a"] ** 3,
    "rests": lambda t, y, p: y % p["a"] + np.mod(X, y + 2) + np.floor(y * 3) + (y // 0.3) + np.ceil(y) * y + np.sign(y),
    "sums": lambda t, y, p: y * y.sum() + np.mean(y) - np.max(y) * p["a"] + y.min() + np.cumsum(y**2) + sum(y[:3]),
    "list of numbers": lambda t, y, p: [p["a"] * y[i - 1] - y[i] for i in range(N)],
    "array of numbers": lambda t, y, p: np.array([p["a"] * y[i - 1] - y[i] for i in range(N)]),
    "scattered": lambda t, y, p: y[np.array([3, 1, 4, 1, 5, 9, 2, 6] * 3)] * X + np.repeat(y[:12], 2),
    "interleaved": lambda t, y, p: np.column_stack([y[:12] ** 2, p["a"] * y[12:]]).ravel(),
    "interpolated": lambda t, y, p: np.interp(t, [0, 1, 4], [1, 0, p["a"]]) * y + np.interp(y, X[::6], [3, 1, 4, 2]),
    "entry by entry": lambda t, y, p: np.exp(-np.array(y)) * np.asarray(y) + t,
    "constant": lambda t, y, p: np.full(N, 2.0),
    "of parameters alone": lambda t, y, p: np.exp(-p["a"] * X) * p["b"],
    "float, ends": lambda t, y, p: y * float(y[0]) + np.interp(y, X[::6], [3, 1, 4, 2], left=0.5, right=6.0),
    "parts by place": lambda t, y, p: np.piecewise(y, [y < 1, y > 2], [p["a"], lambda x: x**2, 0.5]),
    "states alone": lambda t, y, p: y,
    "gradient": lambda t, y, p: np.gradient(y, X) + np.gradient(p["a"] * y, 0.1) * np.trapezoid(y, X),
    "insert, delete": lambda t, y, p: np.insert(np.delete(y, 3), 0, p["a"]) + np.tile(y[:6], 4),
    "hstack": lambda t, y, p: np.hstack([y[6:], y[:6]]),
    "rows": lambda t, y, p: np.vstack([y[:12], y[12:] * p["a"]]).T.reshape(-1)[::-1],
    "parts": lambda t, y, p: np.diff(np.concatenate([y[:3], y, y[-2:] * p["a"], y[::-1], y])[::-2][4:-1], 2)[:N] * y,
    "parts in parts": lambda t, y, p: np.r_[y[:5], np.diff(np.r_[p["b"], y**2, t])[::-1][:9] * y[:9], y[14:]] - y,
    "parts, added up": lambda t, y, p: np.cumsum(np.diff(np.r_[y[0], y])) + np.diff(np.r_[y, y[0] * t, 1.0]).max() * y,
    "forward in place": lambda t, y, p: np.add(y.copy(), X) * np.ones_like(y) + np.full_like(y, 3.0),
}  # fmt: skip
if not hasattr(np, "trapezoid"):  # numpy has it from 2.0 on
    del FORMS["gradient"]


def traced(function, parms=P, n=N):
    rates = RatesFunction(function, "vector", tuple(map(str, range(n))), tuple(parms), ())
    return rates, traced_arrays(rates, (n,))


def points(parms=P, n=N):
    rng = default_rng(5)
    values = np.array(list(parms.values()))
    return [(t, rng.uniform(0.05, 2.2, n), values * rng.uniform(0.9, 1.1, len(values))) for t in (0.0, 1.7, 4.2)]


@pytest.mark.parametrize("name", FORMS)
def test_rates_and_their_derivatives_are_those_of_the_function(name):
    rates, arrays = traced(FORMS[name])
    structure, h = code_of(arrays).structure, 1e-6
    for t, y, p in points():
        at = ArraysAt(arrays, p, range(len(p)), np.ones(len(p)))
        np.testing.assert_allclose(at.rates(t, y), rates(t, y, p, ()), rtol=1e-13, atol=1e-13)

        def moved(dy, dp, t=t, y=y, p=p):
            return (rates(t, y + h * dy, p + h * dp, ()) - rates(t, y - h * dy, p - h * dp, ())) / (2 * h)

        entries = np.zeros((N, N))
        entries[structure.rows, structure.columns] = at.jacobian(t, y)
        by_differences = np.stack([moved(e, 0 * p) for e in np.eye(N)], axis=-1)
        size = 1 + np.abs(by_differences).max()
        np.testing.assert_allclose(entries, by_differences, atol=1e-7 * size)
        to_p = np.stack([moved(0 * y, e) for e in np.eye(len(p))], axis=-1)
        np.testing.assert_allclose(at.to_parameters(t, y), to_p, atol=1e-7 * (1 + np.abs(to_p).max()))


def generated(rng):
    """Return a function made at random of what grids are written with."""
    moves = [
        lambda y, rng: np.roll(y, int(rng.integers(1, 4))),
        lambda y, rng: np.r_[y[1:], y[:1]],
        lambda y, rng: y[::-1],
        lambda y, rng: y.reshape(4, -1).T.ravel(),
        lambda y, rng: np.append(np.diff(y), y[0]),
        lambda y, rng: np.concatenate([y[N // 2 :], y[: N // 2]]),
        lambda y, rng: y - y.mean(),
        lambda y, rng: np.cumsum(y) / N,
        lambda y, rng: M[:, :5] @ y[:5],
        lambda y, rng: y.reshape(-1, 3).sum(axis=1).repeat(3),
    ]
    one = [np.tanh, np.abs, np.sin, lambda x: np.exp(-(x**2)), lambda x: x**3 / 20, lambda x: np.maximum(x, 0.1)]
    two = [
        np.add,
        np.subtract,
        np.multiply,
        np.minimum,
        lambda a, b: a / (1 + b**2),
        lambda a, b: np.where(a > b, a, b / 2),
    ]
    plan = [(int(rng.integers(3)), rng.integers(100, size=3), int(rng.integers(2**31))) for _ in range(9)]

    def function(t, y, p):
        known = [y, y * p["a"], X + p["b"] * t, np.full(N, 0.3) * y[0]]
        for kind, (which, i, j), seed in plan:
            a, b = known[i % len(known)], known[-1 - j % len(known)]
            if kind == 0:
                known.append(moves[which % len(moves)](a, default_rng(seed)))
            elif kind == 1:
                known.append(one[which % len(one)](a))
            else:
                known.append(two[which % len(two)](a, b))
        return known[-1] + p["c"] * known[-2] + y

    return function


@pytest.mark.parametrize("seed", range(12))
def test_functions_made_at_random_are_traced_too(seed):
    rates, arrays = traced(generated(default_rng(seed)))
    for t, y, p in points():
        at = ArraysAt(arrays, p, range(3), np.ones(3))
        expected = rates(t, y, p, ())
        np.testing.assert_allclose(at.rates(t, y), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())
        rng, h = default_rng(seed), 1e-7
        v, q = rng.normal(size=N), rng.normal(size=3)
        structure = code_of(arrays).structure
        along = np.zeros(N)
        np.add.at(along, structure.rows, at.jacobian(t, y) * v[structure.columns])
        along += at.to_parameters(t, y) @ q
        found = (rates(t, y + h * v, p + h * q, ()) - rates(t, y - h * v, p - h * q, ())) / (2 * h)
        np.testing.assert_allclose(along, found, atol=1e-6 * (1 + np.abs(found).max()))


def test_the_steps_of_a_function_do_not_grow_with_its_cells():
    def counted(n):
        _, arrays = traced(lambda t, y, p: np.diff(np.r_[p["a"], y, y[-1]], 2) - p["b"] * y**2, n=n)
        return len(arrays.steps), len(code_of(arrays).text())

    (few, short), (many, long) = counted(30), counted(300)
    assert few == many
    assert long - short < 0.02 * long  # numbers of more digits


def test_an_infinite_slope_counts_where_something_moves_alone():
    _, arrays = traced(lambda t, y, p: np.sqrt(y) + np.sqrt(np.maximum(y, 0) * p["c"]))
    y, p = np.r_[0.0, np.ones(N - 1)], np.array(list(P.values()))
    slopes = ArraysAt(arrays, p, [0], [1.0]).to_parameters(0.0, y)
    assert (slopes == 0).all()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda t, y, p: y if y[0] else -y, "np.where"),
        (lambda t, y, p: np.zeros(N - 1) if p["a"] < 0 else y, "do not match"),
        (lambda t, y, p: y[:3] + y[:4], "do not match"),
        (lambda t, y, p: y[:5], "shape (5,)"),
        (lambda t, y, p: y.reshape(5, -1), "cannot reshape"),
        (lambda t, y, p: np.linalg.solve(M, y), "np.solve"),
        (lambda t, y, p: np.interp(X, y, X), "constant points"),
        (lambda t, y, p: np.sort(y), "np.sort"),
        (lambda t, y, p: y[y > 1], "index"),
        (lambda t, y, p: np.interp(t, [0, 1], [p["a"], 1], left=0.0), "left="),
        (lambda t, y, p: y * int(t), "integer"),
        (lambda t, y, p: y == 0, "'=='"),
        (lambda t, y, p: (y > 0) + (y > 1), "conditions are added"),
        (lambda t, y, p: y + "a", ""),
        (lambda t, y, p: y / p["nothing"], "nothing"),
        (lambda t, y, p: None, "shape ()"),
    ],
)
def test_what_has_no_form_is_told_with_its_line(function, why):
    with pytest.raises(TracingError) as told:
        traced(function)
    assert why in str(told.value)


def test_writing_into_an_array_from_outside_is_refused_with_what_to_write():
    outside = [np.zeros(N)]

    def rates(t, y, p):
        outside[0][1:] = p["a"] * y[:-1]
        return outside[0]

    with pytest.raises(TracingError, match=r"line \d+, `outside\[0\]\[1:\] = .*make one inside, such as np.zeros"):
        traced(rates)


def test_cell_by_cell_is_refused_where_it_is_much():
    def rates(t, y, p):
        for _ in range(200):
            y = [v * p["a"] for v in y]
        return y

    with pytest.raises(TracingError, match="cell by cell"):
        traced(rates)


def test_what_a_function_keeps_between_calls_is_no_part_of_it():
    kept = []

    def rates(t, y, p):
        kept.append(y)
        return y + kept[0]

    traced(rates)
    with pytest.raises(TracingError, match="keeps something between calls"):
        traced(rates)
