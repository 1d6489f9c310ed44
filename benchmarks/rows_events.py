"""The row of root events: a neuron that fires whenever its voltage reaches a threshold, and tires of it."""

from __future__ import annotations

import numpy as np
from scipy.integrate import solve_ivp

import fmepy as fme
from benchmarks.row import Row, at_least, at_most
from benchmarks.timing import side_by_side

PARMS = dict(current=1.8, tau=10.0, tau_w=80.0, threshold=1.0, step=0.06)
TIMES = np.linspace(0, 300, 151)


def rates(t, V, w, *, current, tau, tau_w, threshold, step):
    """Return the rates of the voltage and of the current that adapts."""
    return (current - V - w) / tau, -w / tau_w


def by_hand(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hits and the states as a user would find them with scipy alone: stop, change, go on."""
    current, tau, tau_w, threshold, step = theta.tolist()

    def f(t, y):
        return (current - y[0] - y[1]) / tau, -y[1] / tau_w

    def crossing(t, y):
        return y[0] - threshold

    crossing.terminal, crossing.direction = True, 1
    t, y, hits, rows = 0.0, np.zeros(2), [], []
    while True:
        at = TIMES[np.greater(TIMES, t)] if hits else TIMES
        out = solve_ivp(f, (t, TIMES[-1]), y, "LSODA", t_eval=at, events=crossing, rtol=1e-6, atol=1e-6)
        rows += np.transpose(out.y).tolist()
        if out.status == 0:
            return np.array(hits), np.array(rows)
        t, y = float(out.t_events[0][0]), np.array([0.0, out.y_events[0][0][1] + step])
        hits.append(t)


def spikes() -> Row:
    """Return what a run with root events takes, and one with its exact sensitivities."""
    root = dict(root="V - threshold", direction=1)
    events = [{**root, "var": "V", "value": 0}, {**root, "var": "w", "value": "step", "method": "add"}]
    model = fme.OdeModel(rates, state={"V": 0, "w": 0}, times=TIMES, parms=PARMS, events=events, atol=1e-6)
    when = {"when": "where(V > threshold, 1, 0)", "strict": True}  # as an event of SBML
    bound, conditional = model.bind(), model.replace(events=[{**e, **when} for e in events]).bind()
    theta = bound.theta0
    hits, rows = by_hand(theta)
    np.testing.assert_allclose(model.hits()["time"], hits, atol=0.05)
    np.testing.assert_allclose(bound.simulate(theta)[:, 1], rows[:, 1], atol=0.07)  # a row may lie beside a spike
    np.testing.assert_allclose(conditional.simulate(theta), bound.simulate(theta), atol=1e-9)
    one, slopes, of_condition, peer = side_by_side(
        lambda: bound.simulate(theta), lambda: bound.sensitivities(theta), lambda: conditional.simulate(theta),
        lambda: by_hand(theta),
    )  # fmt: skip
    goals = [
        at_least(peer / one, 50, "{:.1f} times as fast"),
        at_most(of_condition / one, 2, "with a condition {:.1f} times as long"),
        at_most(slopes / one, 6, "with sensitivities to 5 parameters {:.1f} runs"),
    ]
    return Row(
        f"a run with {len(hits)} hits of a root event", one, "solve_ivp by hand, stopped and begun again", peer, goals
    )


ROWS = [spikes]
