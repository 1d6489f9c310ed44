"""What the Metropolis kernel hands to the acceptance function is what it did."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from fmepy.mcmc import modMCMC
from fmepy.mcmc.kernels import metropolis


def test_the_densities_of_delayed_proposals_are_those_they_were_drawn_from(monkeypatch):
    cov, scales = np.array([[2.0, 0.6], [0.6, 1.0]]), [1.0, 0.5, 0.25]
    tried, checked = [], []
    original = metropolis.acceptance

    def f(p):
        tried.append(p.copy())
        return float(3 * p @ p)

    def spy(log_pi, log_q, path, known):
        n = len(log_pi) - 1
        points = [None, *tried[-n:]]

        def log_density(a, b, k):
            return multivariate_normal.logpdf(points[b], points[a], cov * scales[k - 1] ** 2)

        if n == 3:  # first tries seen from y2 and y3, second tries from y3 and y1
            assert log_q((2, 1)) - log_q((3, 1)) == pytest.approx(log_density(2, 1, 1) - log_density(3, 1, 1))
            assert log_q((3, 2, 1)) - log_q((1, 0, 2)) == pytest.approx(log_density(3, 1, 2) - log_density(1, 2, 2))
            assert log_q((3, 2, 1)) - log_q((2, 0, 3)) == pytest.approx(log_density(3, 1, 2) - log_density(2, 3, 2))
            checked.append(n)
        assert log_pi[-1] == pytest.approx(-1.5 * float(points[-1] @ points[-1]))
        return original(log_pi, log_q, path, known)

    monkeypatch.setattr(metropolis, "acceptance", spy)
    modMCMC(f, [0.1, 0.1], jump=cov, ntrydr=3, drscale=0.5, niter=200, seed=1)
    assert len(checked) > 20
