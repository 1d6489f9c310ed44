"""The rows of delays: infected cells that shed virus, which infects a day later; root events beside a delay."""

from __future__ import annotations

import numpy as np

import fmepy as fme
from benchmarks import hiv
from benchmarks.row import Row, at_most
from benchmarks.timing import side_by_side

TEXT = """
d(T)/dt = lam - rho*T - bet*T*V
d(I)/dt = bet*T*{V} - delt*I
d(V)/dt = n*delt*I - c*V - bet*T*V
logV = log(V)
"""


def one_delay() -> Row:
    """Return what a run with a delay takes, and its sensitivities, beside those of the model without."""
    start = {"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000}
    words = {"state": start, "times": hiv.model().times}
    delayed = fme.OdeModel(TEXT.format(V="lag(V, tau)"), parms={**hiv.TRUTH, "tau": 1.0}, **words)
    present = fme.OdeModel(TEXT.format(V="V"), parms=hiv.TRUTH, engine="explicit", **words)
    same = delayed({"tau": 0.0}), present()
    np.testing.assert_allclose(same[0], same[1], rtol=1e-12)
    with_delay, without = delayed.bind(), present.bind()
    theta, six, free = with_delay.theta0, delayed.bind([*hiv.TRUTH]), present.bind([*hiv.TRUTH])
    run, plain, slopes, plain_slopes = side_by_side(
        lambda: with_delay.simulate(theta),
        lambda: without.simulate(without.theta0),
        lambda: six.sensitivities(six.theta0),
        lambda: free.sensitivities(free.theta0),
    )
    goals = [
        at_most(run / plain, 3, "{:.2f} times the run without"),
        at_most(slopes / plain_slopes, 3, "exact sensitivities to 6 parameters {:.2f} times those without"),
    ]
    return Row("HIV, virus of a day ago infects: one run", run, "the same run without the delay", plain, goals)


def hits_beside_a_delay() -> Row:
    """Return what a run takes that is set back again and again and reads its past, by the number of hits."""
    event = {"root": "x - low", "direction": -1, "var": "x", "value": 1}
    words = {"state": {"x": 1}, "history": {"x": 1.0}, "parms": {"k": 1.0, "tau": 0.7, "low": 0.5}, "events": [event]}
    model = fme.OdeModel("d(x)/dt = -k*lag(x, tau)", times=np.linspace(0, 60, 61), **words)
    short, n = model.replace(times=np.linspace(0, 6, 7)), len(model.hits())
    assert 9 <= n / len(short.hits()) <= 11
    bound, few = model.bind(["k", "tau", "low"]), short.bind()
    theta, (_, S) = bound.theta0, bound.sensitivities(bound.theta0)
    step = np.array([0, 0, 1e-6])
    beside = (bound.simulate(theta + step) - bound.simulate(theta - step))[-1, 0] / 2e-6
    np.testing.assert_allclose(S[-1, 0, 2], beside, rtol=1e-3)
    run, tenth, slopes = side_by_side(
        lambda: bound.simulate(theta), lambda: few.simulate(few.theta0), lambda: bound.sensitivities(theta)
    )
    goals = [
        at_most(run / tenth, 12, "ten times the hits {:.1f} times as long"),
        at_most(slopes / run, 3, "exact sensitivities to 3 parameters {:.2f} runs"),
    ]
    return Row(f"a run with {n} hits of a root event beside a delay", run, "a tenth of the hits", tenth, goals)


ROWS = [one_delay, hits_beside_a_delay]
