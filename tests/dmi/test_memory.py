"""Functions with a memory: against plain loops, and against closed forms as the step goes to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.errors import SimulationError
from tests.dmi.runs import program_of, ran, run


def _input(t):
    return 2 + np.sin(t)


def test_smooth_and_delays_are_levels_that_begin_in_equilibrium():
    n, dt, tau = 40, 0.25, 3.0
    found = ran("u = 2 + sin(t)\ns = smooth(u, tau)\na = delay1(u, tau)\nb = delay3(u * 1, tau)", n=n, dt=dt, tau=tau)
    s, a, b = 2.0, 2.0 * tau, np.full(3, 2.0 * tau / 3)
    for k in range(n + 1):
        np.testing.assert_allclose([found[name][k] for name in "sab"], [s, a / tau, 3 * b[2] / tau], rtol=1e-13)
        u, out = _input(k * dt), 3 * b / tau
        s += dt * (u - s) / tau
        a += dt * (u - a / tau)
        b += dt * (np.array([u, out[0], out[1]]) - out)


def test_delay3_of_a_step_goes_to_its_closed_form_at_first_order():
    tau, end = 4.0, 6.0
    x = 3 * (end - 1) / tau
    closed = 10 * (1 - np.exp(-x) * (1 + x + x**2 / 2))  # three exponential stages of tau / 3 each
    errors = [
        abs(ran("y = delay3(step(10, 1), tau)", n=round(end / dt), dt=dt, tau=tau)["y"][-1] - closed)
        for dt in (1 / 8, 1 / 16, 1 / 32, 1 / 64)
    ]
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 1, atol=0.1)
    assert 2 * errors[-1] > errors[-2] * 0.9 > 0
    finer = program_of("y = delay3(x, tau)\nx = 10\ntau = 4 + 0 * x", method="rk4", dt=0.25)
    np.testing.assert_allclose(run(finer, 8).rows[:, 0], 10, rtol=1e-13)


def test_memories_of_vectors_and_inside_one_another():
    text = "dims D[2], S[2], R[2], T[2]\nS = smooth(D * t, T)\nR = lag(S, 1, [7, 8])\nq = smooth(smooth(t, 2), 3)"
    n, dt = 12, 0.5
    found = ran(text, n=n, dt=dt, D=[1.0, 2.0], T=[2.0, 4.0])
    S, inner, outer = np.zeros((n + 1, 2)), 0.0, 0.0
    for k in range(n + 1):
        np.testing.assert_allclose([found["S[0]"][k], found["S[1]"][k]], S[k], atol=1e-13)
        np.testing.assert_allclose([found["R[0]"][k], found["R[1]"][k]], S[k - 2] if k >= 2 else [7, 8], atol=1e-13)
        np.testing.assert_allclose(found["q"][k], outer, atol=1e-13)
        if k < n:
            S[k + 1] = S[k] + dt * (np.array([1.0, 2.0]) * k * dt - S[k]) / [2.0, 4.0]
        inner, outer = inner + dt * (k * dt - inner) / 2, outer + dt * (inner - outer) / 3


def test_lag_is_what_was_tau_ago_between_the_steps_of_its_module():
    found = ran("u = t ** 2\ny = lag(u, tau, -1)", "step 2\nz = lag(v, 1.5, -2)\nv = t ** 2", n=8, dt=0.5, tau=0.75)
    t = np.arange(9) * 0.5
    grid = t**2
    np.testing.assert_allclose(found["y"], np.where(t < 0.75, -1, np.interp(t - 0.75, t, grid)))
    even = np.interp(t - 1.5, t[::2], grid[::2])
    np.testing.assert_allclose(found["z"][::2], np.where(t < 1.5, -2, even)[::2])
    np.testing.assert_array_equal(found["z"][1::2], found["z"][:-1:2])


@pytest.mark.parametrize("tau", [0.0, 0.25, 1.0])
def test_a_lag_shorter_than_a_step_is_a_loop_and_one_of_a_step_is_none(tau):
    program = program_of("x = 1 + 0.1 * lag(x, tau, 0)", tol=1e-14, max_iterations=50)
    done = run(program, 5, tau=tau)
    assert (len(done.convergence) == 0) == (tau == 1.0)
    x = [1.0 if tau else 1 / 0.9]
    for _ in range(5):  # tau < 1: between the last value and this one
        x.append((1 + 0.1 * tau * x[-1]) / (1 - 0.1 * (1 - tau)))
    np.testing.assert_allclose(done.rows[:, 0], x, rtol=1e-12)


def test_a_lag_into_the_future_ends_the_run():
    with pytest.raises(SimulationError, match=r"line 1: lag\(...\) looks -1 back"):
        run(program_of("x = lag(t * 1, tau, 0)"), 5, tau=-1.0)


def test_rate_is_the_difference_quotient_and_zero_at_the_start():
    found = ran("x = t ** 2\nr = rate(x)", "step 2\nq = rate(x)", n=6, dt=0.5)
    t = np.arange(7) * 0.5
    np.testing.assert_allclose(found["r"], [0, *np.diff(t**2) / 0.5])
    np.testing.assert_allclose(found["q"][::2], [0, *np.diff(t[::2] ** 2) / 1.0])
    np.testing.assert_array_equal(found["q"][1::2], found["q"][:-1:2])


def test_functions_of_time_hit_the_grid_though_steps_are_rounded():
    n, dt, start = 100, 0.1, 1900.0
    found = ran(
        "s = step(2, 1900.3)\np = pulse(5, 1900.7, 0.6)\nr = ramp(3, 1901, 1902)\nq = ramp(1, 1900.5)",
        n=n,
        dt=dt,
        start=start,
    )
    k = np.arange(n + 1)
    np.testing.assert_array_equal(found["s"], np.where(k >= 3, 2, 0))
    np.testing.assert_array_equal(found["p"], np.where((k >= 7) & ((k - 7) % 6 == 0), 5, 0))
    np.testing.assert_allclose(found["r"], 3 * np.clip((k - 10) * dt, 0, 1), atol=1e-9)
    np.testing.assert_allclose(found["q"], np.maximum((k - 5) * dt, 0), atol=1e-9)
