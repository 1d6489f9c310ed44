"""One step of the stiff method: its order, its polynomial, and sensitivities that are the derivative of the step."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from fmepy.compiled import rodas5p, rosenbrock, unrolled_lu
from fmepy.compiled.c_loops import address, c_loop, checked_loop
from fmepy.models.engines.stiff import stiff_plan
from fmepy.models.ode import OdeModel
from fmepy.models.running.system import build_system


def forced(t, x, y, z, *, a=3.0, b=0.7, c=0.2):
    """Rates with all that a step has terms for: curved in states and parameters, time in both."""
    pull = np.exp(-b * t) * a + np.sin(2 * t)
    return -a * x * y + pull, b * x**2 - c * y * z + t * y, np.cos(t) * x - a * b * z


START = np.array([1.0, 0.5, 0.2])


class Steps:
    """Steps of fixed length on a model from (0, START)."""

    def __init__(self, rates=forced, names=(), loop=None, **parms):
        model = OdeModel(
            rates, state=dict(zip("xyz", START, strict=True)), times=[0, 1], parms=parms, engine="explicit"
        )
        system = build_system(model.equations, names, True)
        self.plan, self._code = stiff_plan(system)
        self.run = loop or c_loop(rosenbrock.run, "steps")
        self.q, self.n = np.zeros(system.layout.size), len(START) * (1 + len(names))
        self.q[: len(model.parms)] = model.parms
        self.q[system.layout.scales] = [model.parms[k] for k in names]

    def along(self, h, n_steps):
        """Return the state, the last error, and the coefficients of the last step's polynomial."""
        y, y_new, k, c = np.zeros(self.n), np.zeros(self.n), np.zeros((7, self.n)), np.zeros((4, self.n))
        y[:3], room = START, np.zeros(self.plan[1])
        field = ctypes.CFUNCTYPE(None, ctypes.c_double, *[ctypes.c_void_p] * 3)(self._code.address("field"))
        field(0.0, address(y), address(self.q), address(k))
        places = [address(a) for a in (self.plan, room, self.q, y, y_new, k, c, np.full(self.n, 1e-9))]
        for i in range(n_steps):
            room[[rosenbrock.T, rosenbrock.H, rosenbrock.UNTIL]] = i * h, h, (i + 1) * h
            room[rosenbrock.IS_KNOWN] = 0
            self.run(rosenbrock.STEP, *places)
            error = c[0].copy()
            self.run(rosenbrock.POLYNOMIAL, *places)
            before = y.copy()
            y[:], k[0] = y_new, k[6]
        return y, error, (before, c)


def exact(times, rates=forced, **parms):
    found = solve_ivp(lambda t, y: rates(t, *y, **parms), (0, times[-1]), START, "Radau", times, rtol=1e-12, atol=1e-13)
    return found.y.T


def test_steps_are_of_order_five_with_time_in_the_rates_and_their_error_of_order_four():
    steps, (at,) = Steps(), exact([1.6])
    ends = [steps.along(1.6 / n, n) for n in (32, 64, 128)]
    sizes = np.array([(np.abs(y - at).max(), np.abs(error).max()) for y, error, _ in ends])
    assert (np.log2(sizes[:-1] / sizes[1:]) > 4.3).all()  # the error is that of one step, an order more
    assert np.log2(sizes[1, 0] / sizes[2, 0]) == pytest.approx(5, abs=0.25)


def test_the_polynomial_is_of_order_four():
    steps, worst = Steps(), []
    for n in (8, 16, 32):
        h, x = 0.8 / n, 0.4
        _, _, (y, c) = steps.along(h, n)
        r = 1 - x
        inside = y + x * (c[0] + r * (c[1] + x * (c[2] + r * c[3])))  # as `dormand_prince.dense` reads it
        worst.append(np.abs(inside - exact([0.8 - r * h])[0]).max())
    assert np.log2(worst[0] / worst[1]) > 4
    assert np.log2(worst[1] / worst[2]) > 4


def test_machine_code_does_what_the_text_says_and_no_index_leaves_its_array():
    names = ("a", "b")
    by_machine = Steps(names=names).along(0.1, 3)
    for loop in (rosenbrock.run, checked_loop(rosenbrock.run)):
        other = Steps(names=names, loop=loop).along(0.1, 3)
        np.testing.assert_allclose(other[0], by_machine[0], rtol=1e-13)
        np.testing.assert_allclose(other[1], by_machine[1], rtol=1e-9, atol=1e-16)
        np.testing.assert_allclose(other[2][1], by_machine[2][1], rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("names", [("a",), ("c", "a"), ("a", "b", "c")])
def test_sensitivities_are_the_derivative_of_the_very_step(names):
    y, error, (_, c) = Steps(names=names).along(0.2, 4)
    parms = {"a": 3.0, "b": 0.7, "c": 0.2}
    for block, name in enumerate(names, start=1):
        d = 1e-4 * parms[name]
        sides = [Steps(**{**parms, name: parms[name] + s * d}).along(0.2, 4) for s in (-2, -1, 1, 2)]

        def slope(a, b, c, d, unit=12e-4):
            return (a - 8 * b + 8 * c - d) / unit  # of the parameter relative to its size, as the scale is

        at = slice(3 * block, 3 * block + 3)
        np.testing.assert_allclose(y[at], slope(*(s[0] for s in sides)), rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(
            error[at] / rosenbrock.LENIENCE, slope(*(s[1] for s in sides)), rtol=1e-6, atol=1e-10
        )
        np.testing.assert_allclose(c[:, at], slope(*(s[2][1] for s in sides)), rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(y[:3], Steps().along(0.2, 4)[0])


def test_straight_code_does_what_tables_do(monkeypatch):
    names = ("a", "b", "c")
    straight = Steps(names=names)
    monkeypatch.setattr(unrolled_lu, "MOST_OPERATIONS", 0)
    stiff_plan.cache_clear()
    by_tables = Steps(names=names)
    stiff_plan.cache_clear()
    assert (straight.plan[7:10] != 0).all()
    assert (by_tables.plan[7:10] == 0).all()
    for one, other in zip(straight.along(0.1, 5)[:2], by_tables.along(0.1, 5)[:2], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("names", [(), ("c", "a")])
@pytest.mark.parametrize("by_tables", [False, True])
def test_where_a_pivot_vanishes_the_whole_is_factored_with_exchange_of_rows(names, by_tables, monkeypatch):
    h = 0.1

    def turning(t, x, y, z, *, a, c=700.0):
        return a * x + 500 * y - x * z, -c * x - y, -z

    if by_tables:
        monkeypatch.setattr(unrolled_lu, "MOST_OPERATIONS", 0)
    stiff_plan.cache_clear()
    a = 1 / (h * rodas5p.GAMMA) + START[2]  # the first pivot is zero, but for rounding
    y, error, (_, c) = Steps(turning, names, a=a).along(h, 1)
    assert np.isfinite(error).all()
    sides = [Steps(turning, names, a=a * (1 + d)).along(h, 1) for d in (-1e-3, 1e-3)]
    np.testing.assert_allclose(y, (sides[0][0] + sides[1][0]) / 2, rtol=1e-4)
    np.testing.assert_allclose(c, (sides[0][2][1] + sides[1][2][1]) / 2, rtol=1e-3, atol=1e-4)
    checked = Steps(turning, names, checked_loop(rosenbrock.run), a=a).along(h, 1)
    np.testing.assert_allclose(checked[0], y, rtol=1e-12)
    stiff_plan.cache_clear()


@pytest.mark.parametrize("what", ["rate", "pivot"])
def test_a_step_that_cannot_be_taken_has_no_error_to_speak_of(what):
    def broken(t, x, y, z, *, a=3.0):
        return (np.sqrt(0.55 - t) * a - x, y * 0, z * 0) if what == "rate" else (a * x, -a * y, z * 0)

    steps = Steps(broken, a=3.0 if what == "rate" else 1 / (0.1 * rodas5p.GAMMA))
    assert np.isnan(steps.along(0.1 if what == "pivot" else 0.2, 3 if what == "rate" else 1)[1][0])
    assert np.isfinite(steps.along(0.05, 1)[1]).all()
