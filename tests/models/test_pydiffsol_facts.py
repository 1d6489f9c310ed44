"""Canary: what the compiled engine rests on, so that an upgrade of pydiffsol that changes a fact is seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

ds = pytest.importorskip("pydiffsol")  # no wheel exists for some platforms; there the scipy engine serves

DECAY = "in_i { a = 1.0, o = 0.3 }\nu_i { x = a }\nw0 { 2.0 * x }\nF_i { -0.5 * w0 }\n"


def solve(code, inputs, times, **settings):
    ode = ds.Ode(code)
    ode.rtol = ode.atol = 1e-8
    for key, value in settings.items():
        setattr(ode, key, value)
    return ode.solve_dense(np.array(inputs, dtype=float), np.array(times, dtype=float))


def test_rows_come_as_columns_and_the_start_may_be_asked_for():
    solution = solve(DECAY, [1, 0], [0, 1, 2])
    assert solution.ys.shape == (1, 3)
    np.testing.assert_allclose(solution.ys[0], np.exp(-np.arange(3)), rtol=1e-6)


def test_a_stop_without_reset_ends_the_solve_at_the_crossing():
    solution = solve(DECAY + "stop_i { x - o }\n", [1, 0.3], [0, 1, 2])
    assert solution.ts[-1] == pytest.approx(-np.log(0.3), rel=1e-6)
    assert solution.ys[0, -1] == pytest.approx(0.3, rel=1e-9)
    assert len(solution.ts) == 3  # 0, 1, crossing


def test_a_stop_that_is_not_reached_changes_nothing():
    times = np.linspace(0, 5, 7)
    plain = solve(DECAY, [1, 0], times).ys
    for far in (2.0, np.inf):
        np.testing.assert_array_equal(solve(DECAY + "stop_i { o - abs(x) }\n", [1, far], times).ys, plain)


def test_the_earliest_of_several_stops_ends_the_solve():
    code = DECAY.replace("-0.5 * w0", "-0.01 * x") + "stop_i { 50.2 - t, t - 49.9 }\n"
    assert solve(code, [1, 0], [0, 100]).ts[-1] == pytest.approx(49.9, rel=1e-9)


def test_the_start_and_the_tolerances_may_be_changed_between_solves():
    ode = ds.Ode(DECAY)
    out = []
    for t0, tolerance in ((0.0, 1e-3), (5.0, 1e-9), (0.0, 1e-3)):
        ode.t0, ode.rtol, ode.atol = t0, tolerance, tolerance
        out.append(ode.solve_dense(np.array([1.0, 0]), np.array([t0 + 1])).ys[0, 0])
    assert out[0] == out[2]  # nothing is kept from one solve to the next
    assert abs(out[1] - np.exp(-1)) < abs(out[0] - np.exp(-1))


def test_failures_are_runtime_errors_that_carry_the_time():
    code = DECAY.replace("-0.5 * w0", "x * x")
    with pytest.raises(RuntimeError, match=r"time = 0\.99"):
        solve(code, [1, 0], [0, 2])


def test_a_solve_of_no_length_is_refused():
    with pytest.raises(RuntimeError):
        solve(DECAY, [1, 0], [0])


def test_unused_inputs_are_allowed_and_integer_powers_of_negative_numbers_have_derivatives():
    code = "in_i { a = 1.0, unused = 0.0 }\nu_i { x = a }\nF_i { pow(-x, 3.0) + (x * x) * 0.0 }\n"
    ode = ds.Ode(code)
    slope = ode.rhs_jac_mul(np.array([0.5, 0]), 0.0, np.array([0.4]), np.array([1.0]))
    assert slope[0] == pytest.approx(-3 * 0.16)


ARENSTORF = """in_i { m = 0.012277471 }
u_i { x = 0.994, y = 0.0, v = 0.0, w = -2.00158510637908252240537862224 }
a { (x + m) * (x + m) + y * y }
b { (x - 1.0 + m) * (x - 1.0 + m) + y * y }
c { a * sqrt(a) }
d { b * sqrt(b) }
F_i { v, w, x + 2.0 * w - (1.0 - m) * (x + m) / c - m * (x - 1.0 + m) / d, y - 2.0 * v - (1.0 - m) * y / c - m * y / d }
"""


def arenstorf(t, u):
    m, (x, y, v, w) = 0.012277471, u
    c, d = ((x + m) ** 2 + y * y) ** 1.5, ((x - 1 + m) ** 2 + y * y) ** 1.5
    return [v, w, x + 2 * w - (1 - m) * (x + m) / c - m * (x - 1 + m) / d, y - 2 * v - (1 - m) * y / c - m * y / d]


def test_bdf_errs_as_other_codes_of_bdf_do_and_no_more_between_its_steps_than_at_them():
    end, start = 17.0652165601579625588917206249, [0.994, 0, 0, -2.00158510637908252240537862224]
    exact = solve_ivp(arenstorf, (0, end), start, method="DOP853", rtol=1e-13, atol=1e-14, dense_output=True).sol
    ode = ds.Ode(ARENSTORF, ode_solver=ds.bdf)
    ode.rtol = ode.atol = 1e-9
    own = ode.solve(np.array([0.012277471]), end)
    rows = np.linspace(0, end, 1001)
    between = ode.solve_dense(np.array([0.012277471]), rows).ys
    other = solve_ivp(arenstorf, (0, end), start, method="BDF", rtol=1e-9, atol=1e-9, t_eval=rows).y
    at_steps, at_rows = np.abs(own.ys - exact(own.ts)).max(), np.abs(between - exact(rows)).max()
    assert at_rows < 1.5 * at_steps
    assert at_rows < 6 * np.abs(other - exact(rows)).max()  # it is twice; LSODA has a twentieth
    assert at_rows < 5e-3
