"""Bars of long work are those that tqdm picks for where they are shown: in a notebook they live in its page."""

import numpy as np
import pytest
import tqdm.auto

import fmepy as fme

X = np.arange(1.0, 7.0)


def line(p):
    return p["a"] + p["b"] * X - np.array([1.1, 1.9, 3.2, 3.9, 5.1, 6.0])


def outputs(p):
    return {"y": p["a"] + p["b"]}


START = {"a": 0.1, "b": 0.9}
RANGES = {"a": (0.0, 1.0), "b": (0.5, 1.5)}
WORK = {
    "chain": lambda: fme.modMCMC(line, START, var0=0.1, niter=50, seed=1, progress=True),
    "starts": lambda: fme.modFit(line, START, lower=-5, upper=5, starts=4, seed=1, progress=True),
    "profile": lambda: fme.profile(line, fme.modFit(line, START), progress=True),
    "ranges": lambda: fme.modCRL(outputs, parRange=RANGES, num=8, seed=1, progress=True),
    "runs": lambda: fme.run_many(abs, range(5), progress=True),
}


@pytest.mark.parametrize("name", WORK)
def test_work_with_progress_draws_the_bar_of_a_notebook(name, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, total, unit):
            self.total, self.unit, self.n, self.is_closed = total, unit, 0, False
            bars.append(self)

        def update(self, n):
            self.n += n

        def close(self):
            self.is_closed = True

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)  # where IPython runs in a kernel this is tqdm.notebook's
    WORK[name]()
    assert bars
    assert all(bar.is_closed and 0 < bar.n <= bar.total for bar in bars)
    assert bars[-1].n == bars[-1].total or name == "profile"  # how long its walks are is not known before
