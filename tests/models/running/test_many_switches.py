"""Systems of so many switches that machine code looks at them."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.models.running import crossings

N = 60


def many(**words):
    lines = [f"d(x{i})/dt = where(x{i} < limit + {i + 0.5}/{N}, r, 0.1*r) - 0.01*max(x{i} - 1.2, 0)" for i in range(N)]
    return fme.OdeModel("\n".join(lines), state={f"x{i}": 0.1 for i in range(N)}, times=[0, 1, 2.5],
                        parms={"r": 1.0, "limit": 0.5}, rtol=1e-8, atol=1e-10, **words)  # fmt: skip


def test_they_give_what_python_gives(monkeypatch):
    bound = many().bind(["r", "limit"])
    Y, S = bound.sensitivities(bound.theta0)
    monkeypatch.setattr(crossings, "MOST_IN_PYTHON", 10_000)
    crossings.watch_table.cache_clear()
    plain = many().bind(["r", "limit"])
    Y_plain, S_plain = plain.sensitivities(plain.theta0)
    np.testing.assert_allclose(Y, Y_plain, rtol=1e-9)
    np.testing.assert_allclose(S, S_plain, rtol=1e-7, atol=1e-9)
    crossings.watch_table.cache_clear()


def test_they_are_a_run_that_is_known():
    bound = many().bind(["r", "limit"])
    Y, S = bound.sensitivities(bound.theta0)
    border = 0.5 + (np.arange(N) + 0.5) / N  # reached at (border - 0.1) / r, then a tenth as fast
    at = border - 0.1
    x = np.where(at < 1, border + 0.1 * (1 - at), 1.1)
    np.testing.assert_allclose(Y[1], x, rtol=1e-7)
    below = x < 1.2 - 1e-6
    d_r = np.where(at < 1, 0.1, 1.0)  # d/dr of border + 0.1 r (1 - at/r) = 0.1
    d_limit = np.where(at < 1, 0.9, 0.0)
    assert below.sum() > 40
    np.testing.assert_allclose(S[1][below, 0], d_r[below], rtol=1e-6)
    np.testing.assert_allclose(S[1][below, 1], d_limit[below], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("engine", ["compiled", "explicit", "scipy"])
def test_every_engine_runs_them(engine):
    np.testing.assert_allclose(many(engine=engine)().iloc[-1], many()().iloc[-1], rtol=1e-5)
