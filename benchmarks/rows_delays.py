"""The row of delays: infected cells that shed virus, which infects a day later, beside the same without the delay."""

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


ROWS = [one_delay]
