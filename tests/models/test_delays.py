"""Delays: the past of a state is read as it was, to the solver's tolerance, and so are all sensitivities to it."""

from __future__ import annotations

import json
import logging
import math
import pickle
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad, solve_ivp

import fmepy as fme
from fmepy.compiled import delay_loop
from fmepy.errors import FmepyError, ModelError, ModelTextError, SimulationError
from fmepy.language.equations import Equations, symbol
from fmepy.language.nodes import call
from tests.plain import plain

DEDE = json.loads((Path(__file__).parent.parent / "reference" / "dede" / "dede.json").read_text(encoding="utf-8"))
HUTCHINSON = "d(N)/dt = r*N*(1 - lag(N, tau)/K)"
LINEAR = "d(x)/dt = -k*lag(x, tau)"
TIGHT = {"rtol": 1e-9, "atol": 1e-11}
ROWS = np.r_[0, np.sort(np.random.default_rng(1).uniform(0, 10, 12))]


def hutchinson(**words):
    given = {"state": {"N": 1}, "history": {"N": "N0"}, "parms": dict(r=1, tau=1.5, K=10, N0=1), "rhs": HUTCHINSON}
    return fme.OdeModel(**{**given, "times": np.linspace(0, 20, 41), **words})


def linear(rhs=LINEAR, **words):
    given = {"state": {"x": "x0"}, "history": {"x": "h"}, "parms": dict(k=1, tau=1, x0=1, h=1)}
    return fme.OdeModel(rhs, **{**given, **words})


def delayed_exponential(t, k, tau, x0, h):
    """Return x of x' = -k x(t - tau) with x = h before 0 and x0 at 0, by the method of steps (a sum of polynomials)."""

    def power(n, ago):
        after = np.maximum(t - ago - n * tau, 0.0)
        return np.where(t - ago >= n * tau, after**n, 0.0), after ** (n + 1)

    pieces = range(int(t.max() // tau) + 1)
    x = sum((-k) ** n / math.factorial(n) * power(n, 0)[0] for n in pieces)
    area = sum((-k) ** n / math.factorial(n + 1) * (power(n, 0)[1] - power(n, tau)[1]) for n in pieces)
    return x0 * x - k * h * area


def differences(model, names, step=1e-4):
    """Return the derivatives of a model's runs at tight tolerances by differences of fourth order."""
    bound = model.replace(rtol=1e-12, atol=1e-14).bind(names)
    out = []
    for j, value in enumerate(bound.theta0):
        runs = []
        for k in (-2, -1, 1, 2):
            theta = bound.theta0.copy()
            theta[j] += k * step * max(1.0, abs(value))
            runs.append(bound.simulate(theta))
        out.append((runs[0] - 8 * runs[1] + 8 * runs[2] - runs[3]) / (12 * step * max(1.0, abs(value))))
    return np.array(out).transpose(1, 2, 0)


def check_sensitivities(model, names=None, rtol=2e-6):
    bound = model.bind(names)
    assert bound.exact
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y, bound.simulate(bound.theta0), rtol=1e-6, atol=1e-7)
    expected = differences(model, bound.names)
    np.testing.assert_allclose(S, expected, atol=rtol * np.abs(expected).max())
    return Y, S


# --- values


def test_a_delayed_decay_is_the_polynomial_of_its_piece():
    model = linear(times=[0, 0.5, 1, 1.5, 2, 2.5, 3], **TIGHT)
    t = model.times
    expected = [1, 0.5, 0, -0.375, -0.5, 1 - 2.5 + 1.5**2 / 2 - 0.5**3 / 6, 1 - 3 + 2 - 1 / 6]
    np.testing.assert_allclose(delayed_exponential(t, 1, 1, 1, 1), expected, atol=1e-14)
    np.testing.assert_allclose(model().x, expected, atol=1e-13)  # no rounding takes it across a break


@pytest.mark.parametrize(
    "theta", [(0.7, 0.83, 2.0, 0.5), (1.3, 0.37, 1.0, 1.0), (1.5, 6.1, 0.0, -1.0), (0.9, 0.01, 1, 3)]
)
def test_a_delayed_decay_and_its_slopes_are_those_of_the_closed_form(theta):
    bound = linear(times=ROWS, **TIGHT).bind(["k", "tau", "x0", "h"])
    Y, S = bound.sensitivities(np.array(theta))
    if theta[1] < 0.1:  # some hundred terms that cancel
        np.testing.assert_allclose(bound.simulate(np.array(theta)), Y, atol=1e-8)
        return
    np.testing.assert_allclose(Y[:, 0], delayed_exponential(ROWS, *theta), atol=1e-8)
    for j in range(4):
        up, down = list(theta), list(theta)
        up[j], down[j] = theta[j] + 1e-5, theta[j] - 1e-5
        slope = (delayed_exponential(ROWS, *up) - delayed_exponential(ROWS, *down)) / 2e-5
        np.testing.assert_allclose(S[:, 0, j], slope, atol=2e-7)


def test_runs_are_those_of_r():
    past = {"x": 1, "y": 0.5}
    two = "d(x)/dt = -0.8*lag(x, a) + 0.3*lag(y, b)*x\nd(y)/dt = -y + lag(x, a)"
    mackey_glass = "d(x)/dt = b*lag(x, tau)/(1 + lag(x, tau)**n) - g*x"
    sir = "d(S)/dt = -new\nd(I)/dt = new - lag(new, T)\nnew = 0.5*S*I"
    models = {
        "mackey_glass": (mackey_glass, {"x": 0.5}, None, dict(b=0.2, g=0.1, n=10, tau=17), 1e-6),
        "hutchinson": (HUTCHINSON, {"N": 1}, {"N": "2 + t"}, dict(r=1, tau=1.5, K=10), 1e-6),
        "sir": (sir, {"S": 0.99, "I": 0.01}, {"S": 1, "I": "0.01*exp(t)"}, dict(T=5), 1e-7),
        "two": (two, past, past, dict(a=0.7, b=1.13), 1e-7),
    }
    for name, (text, state, history, parms, rtol) in models.items():
        rows = np.array(DEDE[name])
        model = fme.OdeModel(text, state=state, history=history, parms=parms, times=rows[:, 0], rtol=1e-9, atol=1e-11)
        assert (model.engine, model.method) == ("compiled", "switching")
        ours = model()[list(state)].to_numpy()
        np.testing.assert_allclose(ours, rows[:, 1:], rtol=rtol, atol=rtol * rows[:, 1:].max(), err_msg=name)


def test_lags_of_expressions_in_equations_are_brought_to_those_of_states():
    rate = -symbol("k") / 2 * call("lag", 2 * symbol("x"), symbol("tau"))
    names = ("k", "tau", "x0", "h")
    equations = Equations("ode", ("x",), names, (), (rate,))
    rows = np.linspace(0, 5, 11)
    np.testing.assert_array_equal(linear(equations, times=rows)(), linear(times=rows)())


def test_a_delay_of_zero_is_the_present():
    rows = np.linspace(0, 5, 11)
    bound = linear(times=rows, **TIGHT).bind(["tau", "k"])
    Y, S = bound.sensitivities(np.array([0.0, 0.8]))
    np.testing.assert_allclose(Y[:, 0], np.exp(-0.8 * rows), atol=1e-9)
    np.testing.assert_allclose(S[:, 0, 1], -rows * np.exp(-0.8 * rows), atol=1e-8)
    # x' = -k x(t - tau) is x' = -k (x + tau k x) to first order
    np.testing.assert_allclose(S[:, 0, 0], -(0.8**2) * rows * np.exp(-0.8 * rows), atol=1e-8)


def test_a_delay_far_below_a_step_is_right_and_one_too_short_is_a_failed_run():
    bound = linear(times=[0, 0.5, 1], **TIGHT).bind(["tau"])
    lam = -1.0
    for _ in range(100):  # the root of lam = -exp(-lam tau) that a small delay leaves alone
        lam = -math.exp(-lam * 1e-3)
    inner = bound.simulate(np.array([1e-3]))[:, 0]
    assert inner[2] / inner[1] == pytest.approx(math.exp(0.5 * lam), rel=1e-8)
    with pytest.raises(SimulationError, match=r"delay tau is 1e-07, which is less than one part in 100000 of the run"):
        bound.simulate(np.array([1e-7]))


def test_the_stability_of_the_delayed_logistic_changes_at_half_pi():
    late = hutchinson(times=[0, *np.linspace(300, 340, 81)])
    assert np.ptp(late({"tau": 1.45}).N[1:]) < 0.05
    assert np.ptp(late({"tau": 1.68}).N[1:]) > 3


def test_the_past_of_an_expression_is_that_of_its_states():
    text = "d(x)/dt = -lag(lag(x, a) + 0, b)\nd(y)/dt = lag(x*y + t, a)\nz = lag(total, a)\ntotal = x + 2*y"
    model = fme.OdeModel(text, state={"x": 1, "y": 0.5}, parms=dict(a=0.4, b=0.6), times=ROWS)
    assert str(model.equations.rates[0]) == "-lag(x, a + b)"
    plain = fme.OdeModel(
        "d(x)/dt = -lag(x, a + b)\nd(y)/dt = lag(x, a)*lag(y, a) + t - a\nz = lag(x, a) + 2*lag(y, a)",
        state={"x": 1, "y": 0.5}, parms=dict(a=0.4, b=0.6), times=ROWS,
    )  # fmt: skip
    pd.testing.assert_frame_equal(model()[["x", "y", "z"]], plain()[["x", "y", "z"]])


# --- events, forcings, conditions


def with_everything():
    """Return a model whose past has jumps: at its start, at an event there, at two later ones."""
    events = [
        dict(var="x", time=0, value="0.25*k", method="add"),
        dict(var="x", time=2.5, value="dose*x", method="add"),
        dict(var="x", time=4, value=0.5),
    ]
    text = LINEAR + " + u\nago = k*lag(x, tau)"
    return linear(
        rhs=text, events=events, parms=dict(k=0.8, tau=0.77, x0=1.0, h=0.3, dose=2.0), times=ROWS,
        forcings={"u": ([0, 3, 3.1, 6], [0, 1, 3, 0])}, **TIGHT,
    )  # fmt: skip


def test_the_past_of_an_event_is_read_as_it_was():
    # x = 1 before 0; at 0.5 it is set to 3: x' = -x(t - 1) is -1 until 1.5, then -(past of the event)
    model = linear(times=[0, 0.5, 1, 1.5, 2, 2.5], events=[dict(var="x", time=0.5, value=3)], **TIGHT)
    x = [1, 0.5, 2.5, 2.5 - (0.5 - 0.125)]
    # on (1.5, 2) x(t - 1) = 3 - (t - 1.5); on (2, 2.5): x(t - 1) = 2.5 - integral of x over (0, t - 2)
    x.append(x[3] - (1.5 - 0.125))
    x.append(x[4] - (1.25 - (0.125 - 0.5**3 / 6)))
    np.testing.assert_allclose(model().x, x, atol=1e-12)


def test_sensitivities_jump_where_the_past_jumps_at_a_time_that_the_delay_moves():
    _, S = check_sensitivities(with_everything())
    assert np.abs(S[:, 0, 1]).max() > 1  # to tau


def test_sensitivities_of_several_delays_and_a_history_in_time():
    text = "d(x)/dt = -a*lag(x, t1) + b*lag(y, t2)*x\nd(y)/dt = -y + lag(x, 2*t1) + lag(x, t1)\nz = y*lag(x, t2)"
    model = fme.OdeModel(
        text, state={"x": 1, "y": 0.5}, history={"x": "1 + c*t", "y": "exp(c*t)"}, times=ROWS,
        parms=dict(a=0.8, b=0.3, c=0.2, t1=0.7, t2=1.13), **TIGHT,
    )  # fmt: skip
    check_sensitivities(model)


def test_conditions_of_time_are_stops_and_those_of_states_may_bend():
    stops = linear(
        LINEAR + " + where(t % 2 < 1, b, 0)", parms=dict(k=0.8, tau=0.9, x0=1, h=1, b=0.5), times=ROWS, **TIGHT
    )
    check_sensitivities(stops)
    bends = linear("d(x)/dt = -k*max(lag(x, tau), -0.1)", parms=dict(k=1.8, tau=0.9, x0=1, h=1), times=ROWS, **TIGHT)
    check_sensitivities(bends, ["k", "tau"], rtol=1e-5)


def test_what_breaks_the_rates_has_sensitivities_by_differences():
    broken = linear("d(x)/dt = -k*where(lag(x, tau) > 0, 1, -1)", times=[0, 1, 2.5])
    bound = broken.bind(["k"])
    assert not bound.exact
    # x' = -1 until the past of the zero at 1 comes, at 2: then +1
    np.testing.assert_allclose(bound.simulate(bound.theta0)[:, 0], [1, 0, -0.5], atol=1e-3)
    moved = linear(LINEAR + " + where(t > on, 1, 0)", parms=dict(k=1, tau=1, x0=1, h=1, on=0.5), times=[0, 0.5, 1])
    assert not moved.bind().exact
    np.testing.assert_allclose(moved().x, [1, 0.5, 0.5], atol=1e-9)
    stepped = linear(history={"x": "where(t < -0.5, 1, 0)"}, parms=dict(k=1, tau=1, x0=1), times=[0, 0.5, 1])
    assert not stepped.bind().exact
    np.testing.assert_allclose(stepped().x, [1, 0.5, 0.5], atol=1e-3)


# --- delays that vary


def by_steps(rate, delay, start, end, step=0.01):
    """Return x of x' = rate(t, x, x(t - delay(t, x))), by short pieces whose delay reaches behind them."""
    pieces, edges, x = [], [0.0], [start]

    def past(s):
        if s <= 0:
            return start
        return float(pieces[min(np.searchsorted(edges, s), len(pieces)) - 1](s)[0])

    while edges[-1] < end:
        t = edges[-1]
        piece = solve_ivp(lambda t, x: [rate(t, x[0], past(t - delay(t, x[0])))], (t, t + step), x, "RK45",
                          rtol=1e-9, atol=1e-11, dense_output=True)  # fmt: skip
        pieces.append(piece.sol)
        edges.append(t + step)
        x = piece.y[:, -1].tolist()
    return past


@pytest.mark.parametrize("delay", ["0.75*x**2", "3*(1 + t)/4"])
def test_a_delay_of_the_state_or_of_time_reads_where_it_says(delay):
    """x(t) = sqrt(1 + t) has x(t - 3 (1 + t)/4) = x(t)/2."""
    rows = np.linspace(0, 10, 21)
    model = fme.OdeModel(
        f"d(x)/dt = 1/(4*lag(x, {delay}))", state={"x": 1}, history={"x": "sqrt(1 + t)"}, times=rows, **TIGHT
    )
    np.testing.assert_allclose(model().x, np.sqrt(1 + rows), rtol=1e-7)


def test_a_delay_that_comes_near_zero_is_read_in_short_steps_and_its_sensitivities_are_exact():
    rows = np.linspace(0, 6, 13)
    text = "d(x)/dt = -k*lag(x, a + b*x**2)"
    model = fme.OdeModel(text, state={"x": "x0"}, parms=dict(k=1.2, a=0.02, b=0.6, x0=1), times=rows, **TIGHT)
    past = by_steps(lambda t, x, ago: -1.2 * ago, lambda t, x: 0.02 + 0.6 * x**2, 1.0, 6.0)
    np.testing.assert_allclose(model().x, [past(t) for t in rows], atol=2e-7)
    check_sensitivities(model, rtol=1e-5)
    assert not model.replace(history={"x": 1.5}).bind().exact  # the past has a jump, which a delay that moves passes


def test_fixed_delays_and_those_that_vary_stand_beside_each_other():
    rows = np.linspace(0, 6, 13)
    text = "d(x)/dt = -lag(x, 1) + 0.3*lag(x, 1.2 + sin(t))\nago = lag(x, 1.2 + sin(t))"
    model = fme.OdeModel(text, state={"x": 1}, times=rows, **TIGHT)
    two = fme.OdeModel(text.replace("lag(x, 1)", "lag(x, 1 + 0*t + x - x)"), state={"x": 1}, times=rows, **TIGHT)
    for found in (model(), two()):
        past = np.interp(rows - 1.2 - np.sin(rows), *fine(model))
        np.testing.assert_allclose(found.ago, past, atol=1e-5)
    np.testing.assert_allclose(model().x, two().x, atol=1e-7)


def fine(model):
    """Return times before and in a run, and x there."""
    rows = np.linspace(0, 6, 6001)
    return np.r_[-9, rows], np.r_[1, model.replace(times=rows)().x]


@pytest.mark.parametrize("delay", ["tau*(1 - t)", "tau - t", "sqrt(tau - t)"])
def test_a_delay_that_vanishes_ends_the_run_there_with_a_reason(delay):
    model = linear(f"d(x)/dt = -k*lag(x, {delay})", times=[0, 0.5, 3])
    began = time.process_time()
    with pytest.raises(SimulationError, match="becomes zero here, or has no value") as caught:
        model()
    assert caught.value.time == pytest.approx(1, abs=1e-6)
    assert time.process_time() - began < 2


# --- root events


def set_back(**words):
    """Return x' = -x(t - 1), x = 1 before 0, set to 1 wherever it has fallen to 0.5."""
    event = dict(root="x - low", direction=-1, var="x", value=1)
    given = {"state": {"x": 1}, "parms": dict(low=0.5), "times": np.linspace(0, 1.75, 8), "events": [event]}
    return fme.OdeModel("d(x)/dt = -lag(x, 1)\nago = lag(x, 1)", **{**given, **words}, **TIGHT)


def test_the_past_of_a_root_event_is_read_as_it_was():
    """It falls by 1 a time until 1; then x' is what x was: by hand."""
    model, u = set_back(), 1 - np.sqrt(0.75)
    np.testing.assert_allclose(model.hits().time, [0.5, 1, 1.5 + u], atol=1e-9)
    after = 1 - (0.25 - u) + (0.25**2 - u**2) / 2
    np.testing.assert_allclose(model().x, [1, 0.75, 0.5, 0.75, 0.5, 1 - 0.25 + 1 / 32, 0.625, after], atol=1e-9)
    # at 1.5 the past jumps, and the row shows what was before it, as rows of the present do
    np.testing.assert_allclose(model().ago, [1, 1, 1, 1, 1, 0.75, 0.5, 0.75], atol=1e-9)


def test_the_past_moves_with_the_hits_of_root_events():
    """By hand: hits at u = 1 - low and 2 u; from 1 to 1 + u the rate is t - 2, and then u + t - 2 - 2 u."""
    bound = set_back(times=[0, 0.75, 1.3, 1.6]).bind(["low"])
    assert bound.exact
    # x(1.6) = 2 u - (u - u^2/2) - (v - v^2/2), v = 0.6 - u
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][:, 0, 0], [0, -1, -2, -2.4], atol=1e-7)
    # and what is read of it a delay ago is another rate from 1 + u on
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][:, 1, 0], [0, 0, 0, -1], atol=1e-7)


def grazed(**words):
    """Return prey that are cut when they grow above a mark, predators that react late, a dose and a forcing."""
    text = "d(x)/dt = r*x*(1 - lag(x, tau)/K) - 0.1*lag(y, late)\nd(y)/dt = x - k*y\nago = u*lag(x, late)"
    events = [
        dict(root="x - cut", direction=1, var="x", value="amount*y"),
        dict(root="y - 1", var="y", value="amount", method="add"),
        dict(time=7.0, var="x", value=0.5, method="add"),
    ]
    parms = dict(r=1.0, tau=1.3, K=3.0, late=0.4, k=1.0, cut=2.5, amount=0.7)
    given = dict(times=np.linspace(0, 20.03, 42), forcings={"u": ([0, 10, 25], [0, 1, 3])}, events=events)
    return fme.OdeModel(text, state={"x": 1, "y": 0.3}, parms=parms, **{**given, **words}, **TIGHT)


def test_sensitivities_through_root_events_and_delays_are_exact():
    assert len(grazed().hits()) == 8
    check_sensitivities(grazed(), rtol=2e-5)


def test_hits_of_a_fit_of_a_model_with_delays_find_its_threshold():
    data = grazed()().iloc[1::3][["time", "x"]]
    cost = fme.SimulationCost(grazed().replace(parms={"cut": 2.48, "tau": 1.31}), data)
    fit = fme.modFit(cost, p={"cut": 2.48, "tau": 1.31})
    np.testing.assert_allclose([fit.par["cut"], fit.par["tau"]], [2.5, 1.3], rtol=1e-6)


def test_a_delay_that_a_hit_shortens_reads_what_came_after_it():
    """x falls from 1 by 1 a time until 0.5; the delay is 0.06 there, and 0.01 once x is set back to 1."""
    events = [dict(root="x - 0.5", direction=-1, var="x", value=1)]
    text = "d(x)/dt = -1\nd(y)/dt = lag(x, 0.11 - 0.1*x)"
    model = fme.OdeModel(text, state={"x": 1, "y": 0}, times=[0, 0.4, 0.9], history={"x": 1.0}, events=events, **TIGHT)

    def x(t):
        return 1.0 - t % 0.5 if t >= 0 else 1.0

    edges = [0.01 / 0.9, 0.4, 0.5, 0.5 + 0.01 / 0.9]
    y = [quad(lambda t: x(t - 0.11 + 0.1 * x(t)), a, b, epsabs=1e-12)[0] for a, b in pairwise([0, *edges, 0.9])]
    np.testing.assert_allclose(model().y, [0, sum(y[:2]), sum(y)], atol=1e-7)


def test_delays_that_vary_have_differences_beside_root_events():
    events = [dict(root="x - low", direction=-1, var="x", value=1)]
    given = dict(state={"x": 1}, parms={"low": 0.5}, times=[0, 0.7], events=events)
    assert not fme.OdeModel("d(x)/dt = -lag(x, 0.2 + 0.1*t)", **given).bind(["low"]).exact
    assert fme.OdeModel("d(x)/dt = -lag(x, 0.2)", **given).bind(["low"]).exact


def test_sums_of_up_to_five_delays_are_breaking_points():
    end, taus, levels = 10.0, (1.0, 2.5), range(1, 6)
    m = SimpleNamespace(delays=np.array([[0.0] * delay_loop.VALUE + [tau] for tau in (*taus, 0.0)]))
    arrays = [np.zeros(delay_loop.MOST_BREAKS) for _ in delay_loop.DelayWorkspace._fields]
    workspace = delay_loop.DelayWorkspace(*arrays)
    for base in (0.0, 1.0):  # the second finds most of its own there
        delay_loop._add_breaks(base, end, m, workspace)
    sums = {b + i + 2.5 * (k - i) for b in (0, 1) for k in levels for i in range(k + 1)}
    count = int(workspace.progress[delay_loop.N_BREAKS])
    np.testing.assert_allclose(workspace.breaks[:count], sorted(t for t in sums if t < end))


def test_root_events_at_one_time_that_move_apart_have_no_slopes_beside_delays():
    text = "d(x)/dt = 1 + 1e-15*lag(y, 1)\nd(y)/dt = x"
    events = [dict(root="x - a", var="y", value=1, method="add"), dict(root="x - 2*b", var="y", value=2, method="add")]
    given = dict(state={"x": 0, "y": 0}, parms=dict(a=2.0, b=1.0), times=[0, 1, 3], history={"y": 0.0})
    model = fme.OdeModel(text, events=events, **given)
    np.testing.assert_allclose(model().y, [0, 0.5, 7.5], atol=1e-8)
    with pytest.raises(SimulationError, match="two root events of a model with delays fire at one time"):
        model.bind(["a", "b"]).sensitivities(np.array([2.0, 1.0]))
    bound = model.replace(events=events[:1] * 2).bind(["a"])  # two that move as one
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][-1, :, 0], 0, atol=1e-8)


@pytest.mark.parametrize("strict", [True, False])
def test_rows_at_a_hit_show_the_state_that_a_condition_says(strict):
    event = dict(root="x - 1", when="where(x > 1, 1, 0)", strict=strict, var="y", value=5)
    given = dict(state={"x": 0, "y": 0}, times=[0, 1, 1.5], events=[event])
    plain = fme.OdeModel("d(x)/dt = 1\nd(y)/dt = 0", **given)
    late = fme.OdeModel("d(x)/dt = 1 + 1e-15*lag(y, 1)\nd(y)/dt = 0\nz = 2*y", history={"y": 0.0}, **given)
    np.testing.assert_allclose(late().iloc[:, :3], plain(), atol=1e-9)
    np.testing.assert_allclose(late().z, 2 * plain().y, atol=1e-9)


def test_a_terminal_root_ends_a_run_with_delays_and_its_outputs():
    events = [dict(root="x - 0.25", direction=-1, terminal=True)]
    ended = set_back(events=events, parms={}, times=[0, 0.5, 1, 2, 3])()
    np.testing.assert_allclose(ended.time, [0, 0.5, 0.75], atol=1e-9)
    np.testing.assert_allclose(ended.x, [1, 0.5, 0.25], atol=1e-9)
    np.testing.assert_allclose(ended.ago, [1, 1, 1], atol=1e-9)


def test_roots_beside_forcings_events_outputs_and_directions():
    text = "d(x)/dt = v + 1e-12*lag(x, 0.3)\nd(v)/dt = u - x"
    words = {"state": {"x": 1, "v": 0}, "times": np.linspace(0, 12, 25), "forcings": {"u": ([0, 5, 12], [0, 1, 0])}}
    events = [
        dict(root="x", direction=1, var="v", value=0.9, method="multiply"),
        dict(root="v - 0.2", var="x", value=0.05, method="add"),
        dict(time=4.0, var="v", value=0.3, method="add"),
    ]
    late = fme.OdeModel(text, events=events, **words, **TIGHT)
    plain = fme.OdeModel(text.replace(" + 1e-12*lag(x, 0.3)", ""), events=events, **words, **TIGHT)
    np.testing.assert_allclose(late(), plain(), atol=2e-7)
    pd.testing.assert_frame_equal(late.hits(), plain.hits(), rtol=1e-7)
    assert len(late.hits()) > 4


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_roots_that_events_and_jumps_of_forcings_carry_across_zero_fire_as_without_a_delay(direction):
    """What stood on the other side before an event, or before a forcing jumped, crosses from where it stands then."""
    events = [
        dict(var="x", time=1, value=-0.2), dict(var="x", time=2, value=1),
        dict(root="x - u", direction=direction, var="y", value=1, method="add"),
        dict(root="x - 0.45", var="y", value=100, method="add"),
    ]  # fmt: skip
    given = dict(
        state={"x": 0, "y": 0}, times=[0, 3], events=events,
        forcings={"u": ([0, 0.2, 0.7, 1.9], [0.1, 0.5, -0.1, 0.8], "constant")},
    )  # fmt: skip
    rates = "d(x)/dt = 1 - 2*where(t > 1.6, 1, 0)\nd(y)/dt = "
    plain = fme.OdeModel(rates + "0", **given)
    delayed = fme.OdeModel(rates + "1e-12*lag(x, 0.3)", history={"x": 0}, **given)
    assert delayed.hits()["event"].tolist() == plain.hits()["event"].tolist()
    np.testing.assert_allclose(delayed.hits()["time"], plain.hits()["time"], atol=1e-8)
    np.testing.assert_allclose(delayed(), plain(), atol=1e-8)


def test_roots_that_never_end_are_a_failed_run():
    with pytest.raises(SimulationError, match=r"never stops firing|more than 1000 crossings"):
        fme.OdeModel(
            "d(h)/dt = v\nd(v)/dt = -9.81 + 1e-12*lag(h, 0.1)", state={"h": 1, "v": 0}, times=[0, 10],
            events=[dict(root="h", direction=-1, var="v", value=-0.5, method="multiply")],
        )()  # fmt: skip


# --- a model like any other


def test_text_and_function_are_one_model():
    def rates(t, N, *, r=1.0, tau=1.5, K=10.0):
        return r * N * (1 - fme.lag(N, tau) / K), {"ago": fme.lag(N, tau)}

    traced = fme.OdeModel(rates, state={"N": 1}, times=np.linspace(0, 20, 41))
    plain = hutchinson()()
    pd.testing.assert_series_equal(traced().N, plain.N)
    np.testing.assert_allclose(traced().ago[3:], plain.N[:-3], rtol=1e-5)  # three rows are the delay
    vector = fme.OdeModel(
        lambda t, y, p: [p["r"] * y[0] * (1 - fme.lag(y, p["tau"])[0] / 10)], state={"N": 1},
        parms=dict(r=1, tau=1.5), times=np.linspace(0, 20, 41),
    )  # fmt: skip
    pd.testing.assert_series_equal(vector().N, plain.N)


def test_many_runs_are_the_runs_one_by_one_and_failed_ones_are_told():
    bound = hutchinson().bind(["tau", "r"])
    Theta = np.array([[1.5, 1.0], [-1.0, 1.0], [0.0, 0.9], [0.02, 1.1], [3.0, 1.2]])
    assert bound.runs_on_threads
    Y, why = bound.simulate_many(Theta)
    assert [bool(w) for w in why] == [False, True, False, False, False]
    assert "the delay tau is -1; a delay must be finite and not negative" in why[1]
    for i in (0, 2, 3, 4):
        np.testing.assert_array_equal(Y[i], bound.simulate(Theta[i]))
    for tau in (np.nan, np.inf):
        with pytest.raises(SimulationError, match="the delay tau is"):
            bound.simulate(np.array([tau, 1.0]))


def test_the_room_for_the_past_does_not_change_a_number(monkeypatch):
    from fmepy.compiled import explicit_runs

    plenty, through_hits = with_everything()().to_numpy(), grazed().hits()
    monkeypatch.setattr(explicit_runs, "FIRST_STEPS", 3)
    pd.testing.assert_frame_equal(grazed().hits(), through_hits, check_exact=True)
    bound = with_everything().bind()
    np.testing.assert_array_equal(bound.simulate(bound.theta0), plenty[:, 1:])
    Y, why = bound.simulate_many(np.array([bound.theta0, bound.theta0 * 0.9]))
    assert (why == "").all()
    np.testing.assert_array_equal(Y[0], plenty[:, 1:])


@pytest.mark.slow
def test_the_loop_with_delays_reads_nothing_beyond_its_arrays(monkeypatch):
    from fmepy.compiled import c_loops, explicit_runs

    monkeypatch.setattr(explicit_runs, "c_loop", lambda kernel, what: c_loops.checked_loop(kernel, what))
    bound = with_everything().bind(["k", "tau"])
    Y, _ = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y, with_everything()().to_numpy()[:, 1:], rtol=1e-6, atol=1e-7)
    bound = grazed().bind(["cut", "tau"])
    Y, _ = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y, bound.simulate(bound.theta0), rtol=1e-6, atol=1e-7)
    for last in (0.5, 0.5 + 1e-11, 0.5 - 1e-11):  # a hit where the run ends
        assert set_back(times=[0, last])().x.iloc[-1] == pytest.approx(0.5, abs=1e-9)


def test_copies_pickle_and_keep_their_history():
    model = hutchinson()
    assert np.array_equal(pickle.loads(pickle.dumps(model))(), model())
    other = model.replace(history={"N": 3.0}, parms={"tau": 0.5})
    assert other.equations is model.equations
    assert other().N[1] != model().N[1]
    assert model.replace(times=[0, 1, 2])().shape == (3, 2)


def test_a_history_that_is_not_said_is_the_start_and_told_once(caplog):
    with caplog.at_level(logging.INFO):
        model = fme.OdeModel(LINEAR, state={"x": "x0"}, parms=dict(k=1, tau=1, x0=2), times=[0, 0.5, 1])
        model.replace(parms={"tau": 0.5})()
    assert sum("`history` does not say" in r.getMessage() for r in caplog.records) == 1
    np.testing.assert_allclose(model().x, [2, 1, 0], atol=1e-9)
    bound = model.bind(["x0"])
    np.testing.assert_allclose(bound.sensitivities(bound.theta0)[1][:, 0, 0], [1, 0.5, 0], atol=1e-9)


@pytest.fixture(scope="module")
def fitted():
    """Return a model, data of it and its fit from elsewhere."""
    model = hutchinson(times=np.linspace(0, 15, 31))
    data = model({"tau": 1.2, "r": 1.1})
    cost = fme.SimulationCost(model, data)
    return model, cost, fme.modFit(cost, p=dict(tau=1.5, r=1.0), lower=0)


def test_a_fit_finds_the_delay(fitted):
    _, _, fit = fitted
    np.testing.assert_allclose(fit.par[["tau", "r"]], [1.2, 1.1], rtol=1e-5)
    assert fit.converged


def test_a_delay_is_screened_sampled_and_ranged(fitted):
    model, cost, fit = fitted
    sens = fme.sensFun(cost, dict(tau=1.2, r=1.1))
    assert 1 <= fme.collin(sens).value < 20
    chain = fme.modMCMC(cost, p=fit.par, niter=60, var0=0.1, jump=0.01, seed=1)
    assert chain.naccepted.sum() > 0
    ranges = pd.DataFrame({"min": [0.5, 0.8], "max": [1.5, 1.2]}, index=["tau", "r"])
    serial = fme.sensRange(model, parRange=ranges, num=20, seed=1)
    shared = fme.sensRange(model, parRange=ranges, num=20, seed=1, executor=2)
    np.testing.assert_array_equal(serial.values, shared.values)


def test_at_rest_the_past_is_the_present():
    rest = fme.SteadyModel(HUTCHINSON, state={"N": 5}, parms=dict(r=1, tau=1.5, K=10))
    assert rest().N[0] == pytest.approx(10)


# --- what is refused


def test_costs_that_correct_states_refuse_delays_by_name():
    data = pd.DataFrame({"time": [1.0, 2, 3], "N": [1.0, 2, 3]})
    for name, make in {
        "FimlofCost": lambda: fme.FimlofCost(hutchinson(), data, process_noise={"N": 0.1}, measurement_noise={"N": 1}),
        "PredictionErrorCost": lambda: fme.PredictionErrorCost(hutchinson(), data, gain={"N": {"N": 0.1}}),
        "fit_boundary": lambda: fme.fit_boundary(hutchinson(), data),
    }.items():
        with pytest.raises(ModelError, match=rf"^{name} .* reads their past \(lag\)"):
            make()


@pytest.mark.parametrize("words", [{"engine": "scipy"}, {"method": "rk4", "dt": 0.1}])
def test_engines_that_keep_no_past_refuse_delays(words):
    with pytest.raises(ModelError, match="run on engine='compiled' alone"):
        hutchinson(**words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lag(Nn, tau)", "'Nn' is not a state, and only of states is the past known. Did you mean 'N'?"),
        ("lag(N)", "takes 2 arguments, a state and its delay"),
        ("lag(N, tau, 1)", "what was before the start is said by `history`"),
        ("lag(N, -1)", "the delay '-1' is negative"),
        ("lag(N, tau*u)", "is of 'u', a forcing"),
        ("lag(lag(N, t), tau)", "within another lag only a delay that does not change"),
        ("lag(N, lag(N, tau))", "within another lag only a delay that does not change"),
        ("lag(K, tau)", "K does not change in a run, so it has no past"),
        ("lag(2, tau)", "'2' does not change, so it has no past"),
        ("lag(N, tua)", "'tua' has no value"),
        ("lag(N, nan)", "'nan' has no value"),
    ],
)
def test_what_is_no_delay_is_refused_where_it_stands(text, message):
    with pytest.raises(ModelError) as error:
        hutchinson(rhs=f"d(N)/dt = r*N*(1 - {text}/K)", forcings={"u": ([0, 20], [0, 1])})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ({"M": 1}, "'M' is not a state of the model"),
        ({"N": math.nan}, "is nan; a finite number"),
        ({"N": "2*N"}, "uses the state 'N'"),
        ({"N": "N1"}, "uses 'N1', which has no value"),
        ({"N": "lag(N, 1)"}, "the past is read in the rates and outputs"),
        ([1], "must be a dict"),
    ],
)
def test_a_history_that_is_none_is_refused(history, message):
    with pytest.raises(ModelError) as error:
        hutchinson(history=history, parms=dict(r=1, tau=1.5, K=10))
    assert message in str(error.value)


def test_the_past_is_read_nowhere_else():
    with pytest.raises(ModelTextError, match="the past is read in the rates and outputs"):
        hutchinson(events=[dict(var="N", time=1, value="lag(N, 1)")])
    with pytest.raises(ModelError, match="an event knows the present alone"):
        hutchinson(rhs=HUTCHINSON + "\nz = lag(N, 1)", events=[dict(var="N", time=1, value="z")])
    with pytest.raises(ModelError, match="an event knows the present alone"):
        hutchinson(rhs=HUTCHINSON + "\nz = lag(N, 1)", events=[dict(root="z - 1", direction=1, var="N", value=1)])
    with pytest.raises(ModelTextError, match="the past is read in the rates and outputs"):
        fme.DifferenceModel("next(N) = lag(N, 2)", state={"N": 1}, times=range(3))
    with pytest.raises(ModelError, match="the model reads no past"):
        fme.OdeModel("d(N)/dt = -N", state={"N": 1}, history={"N": 1}, times=[0, 1])
    with pytest.raises(ModelError, match="runs from its first time"):
        hutchinson().bind(times=[3.0, 4.0], start=2.0)


def test_a_function_that_reads_the_past_must_become_equations():
    def decides(t, N, *, tau=1.0):
        return -fme.lag(N, tau) if plain(N) > 0 else 0.0

    with pytest.raises(ModelError, match=r"calls lag\(\), so it must be turned into equations, and it cannot be"):
        fme.OdeModel(decides, state={"N": 1}, times=[0, 1])
    with pytest.raises(ModelError, match="numbers have no past"):
        fme.lag(1.0, 2.0)


def test_lag_is_a_name_like_others_where_it_is_not_called():
    model = fme.OdeModel("d(x)/dt = -where(t > lag, x, 0)", state={"x": 1}, parms={"lag": 1}, times=[0, 1, 2])
    np.testing.assert_allclose(model().x, [1, 1, math.exp(-1)], rtol=1e-4)


def test_a_run_that_turns_stiff_is_a_failed_run():
    text = "d(N)/dt = -r*(N - sin(t)*lag(N, tau))"
    model = fme.OdeModel(text, state={"N": 1}, parms=dict(r=1e6, tau=1), times=[0, 10], atol=1e-6)
    with pytest.raises(FmepyError, match="models with delays run on the explicit solver alone"):
        model()


def test_many_events_and_delays_have_a_bounded_number_of_stops():
    times = np.linspace(0, 50, 11)
    doses = [dict(var="x", time=t, value=0.1, method="add") for t in np.arange(0.05, 50, 0.1)]
    text = "d(x)/dt = -x + 0.1*lag(x, 1.03) + 0.1*lag(x, 0.71) + 0.1*lag(x, 2.93)"
    assert len(doses) * (1 + 3 + 6) > delay_loop.MOST_BREAKS  # of two levels
    model = fme.OdeModel(text, state={"x": 1}, times=times, events=doses)
    np.testing.assert_allclose(model(), model.replace(rtol=1e-9, atol=1e-11)(), rtol=1e-4)


def test_algebraic_states_are_refused_beside_delays():
    with pytest.raises(ModelError, match=r"reads the past \(lag\) and has algebraic states \('B'\)"):
        linear(LINEAR + "\n0 = B - x", state={"x": 1, "B": 1}, times=[0, 1])
