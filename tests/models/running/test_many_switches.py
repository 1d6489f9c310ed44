"""Systems of so many switches that machine code looks at them."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import SimulationError
from fmepy.models.running import crossings, runners, watch_table

N = 60


def many(**words):
    lines = [f"d(x{i})/dt = where(x{i} < limit + {i + 0.5}/{N}, r, 0.1*r) - 0.01*max(x{i} - 1.2, 0)" for i in range(N)]
    return fme.OdeModel("\n".join(lines), state={f"x{i}": 0.1 for i in range(N)}, times=[0, 1, 2.5],
                        parms={"r": 1.0, "limit": 0.5}, rtol=1e-8, atol=1e-10, **words)  # fmt: skip


def test_they_give_what_python_gives(monkeypatch):
    bound = many().bind(["r", "limit"])
    Y, S = bound.sensitivities(bound.theta0)
    monkeypatch.setattr(watch_table, "MOST_IN_PYTHON", 10_000)
    monkeypatch.setattr(runners.ModelRunner, "whole", None)
    watch_table.watch_table.cache_clear()
    plain = many().bind(["r", "limit"])
    Y_plain, S_plain = plain.sensitivities(plain.theta0)
    np.testing.assert_allclose(Y, Y_plain, rtol=1e-9)
    np.testing.assert_allclose(S, S_plain, rtol=1e-7, atol=1e-9)
    watch_table.watch_table.cache_clear()


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


def hanging():
    """Conditions that hang on others, floors, and one that has no value below 0.3."""
    lines = ["fast = where(a > 0.6, 2, 1)", "level = floor(3*a*fast)", "late = where(log(a - 0.3) > -1.5, 0.5, 1)"]
    lines += [f"d(x{i})/dt = where(fast*x{i} + 0.1*level > 0.7 + {i}/{N}, late*r, r) + 0.02*level" for i in range(N)]
    state = {"a": 0.1, **{f"x{i}": 0.1 for i in range(N)}}
    return fme.OdeModel("\n".join(["d(a)/dt = r - 0.4*a", *lines]), state=state,
                        times=[0, 0.5, 1, 2], parms={"r": 0.9}, rtol=1e-9, atol=1e-11)  # fmt: skip


def counted(monkeypatch):
    """Return a list that gets what runs came through."""
    flips = []
    original = crossings.Crossings.flip
    monkeypatch.setattr(
        crossings.Crossings, "flip", lambda self, i, *a, **k: flips.append(i) or original(self, i, *a, **k)
    )
    return flips


def test_those_that_hang_on_others_flip_without_python_and_give_the_same(monkeypatch):
    flips = counted(monkeypatch)
    bound = hanging().bind(["r"])
    Y, S = bound.sensitivities(bound.theta0)
    assert not flips
    monkeypatch.setattr(watch_table, "MOST_IN_PYTHON", 10_000)
    monkeypatch.setattr(runners.ModelRunner, "whole", None)
    watch_table.watch_table.cache_clear()
    plain = hanging().bind(["r"])
    Y_plain, S_plain = plain.sensitivities(plain.theta0)
    watch_table.watch_table.cache_clear()
    np.testing.assert_allclose(Y, Y_plain, rtol=1e-8)
    np.testing.assert_allclose(S, S_plain, rtol=1e-6, atol=1e-8)
    assert len(flips) > 20


def test_a_run_that_slides_along_one_of_many_is_told():
    lines = [f"d(x{i})/dt = where(x{i} < 0.5, 1, -1)" for i in range(N)]
    state = {f"x{i}": 0.4 + 0.001 * i for i in range(N)}
    with pytest.raises(SimulationError, match="slides along it"):
        fme.OdeModel("\n".join(lines), state=state, times=[0, 1], engine="compiled")()
