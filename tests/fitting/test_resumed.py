"""A fit from one start that was killed goes on to the very same fit, without the evaluations that are kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.journal import evaluations, records
from tests.fitting.resumed_child import BOX, Counted, fit

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(autouse=True)
def constants(monkeypatch):
    """Give the constants back that `fit` sets."""
    monkeypatch.setattr(evaluations, "_QUICK", evaluations._QUICK)
    monkeypatch.setattr(evaluations, "_SPEED", evaluations._SPEED)
    monkeypatch.setattr(records, "_PAUSE", records._PAUSE)


def assert_same(a, b):
    pd.testing.assert_series_equal(a.par, b.par, check_exact=True)
    np.testing.assert_array_equal(a.rsstrace, b.rsstrace)
    np.testing.assert_array_equal(a.curvature, b.curvature)
    assert (a.ssr, a.iterations, a.evaluations, a.converged, a.message, a.engine) == (
        b.ssr, b.iterations, b.evaluations, b.converged, b.message, b.engine,
    )  # fmt: skip


@pytest.mark.parametrize("method", ["Marq", "Port", "Nelder-Mead", "Pseudo", "SANN"])
def test_a_killed_fit_goes_on_where_it_was(tmp_path, method):
    plain = Counted()
    whole = fit(plain, method, None)
    last = plain.calls * 2 // 3
    command = [sys.executable, "-m", "tests.fitting.resumed_child", str(tmp_path / "c"), method, str(last)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
    rest = Counted()
    assert_same(fit(rest, method, tmp_path / "c"), whole)
    assert rest.calls <= plain.calls - last + 2  # the start is evaluated before a folder is looked at
    again = Counted()
    assert_same(fit(again, method, tmp_path / "c"), whole)
    assert again.calls <= 2


def test_what_is_quick_is_not_kept(tmp_path):
    cost = Counted()
    fme.modFit(cost, {"a": 1.0, "k": 0.2}, **BOX, checkpoint=tmp_path / "c")
    assert sorted(f.name for f in (tmp_path / "c").iterdir()) == ["evaluations.json", "header.json", "owner.json"]


def test_the_exact_derivatives_of_a_cost_are_kept_too(tmp_path, monkeypatch):
    model = fme.OdeModel("d(A)/dt = -k*A", state={"A": "a"}, times=[0, 1, 2, 3], parms={"a": 1.0, "k": 0.2})
    cost = fme.SimulationCost(model, {"time": [1, 2, 3], "A": [1.1, 0.4, 0.25]})
    whole = fit(cost, None, None)
    assert_same(fit(cost, None, tmp_path / "c"), whole)
    bound, taken = type(cost.bind(["a", "k"])), []
    jacobian = bound.jacobian
    monkeypatch.setattr(bound, "jacobian", lambda self, theta: taken.append(1) or jacobian(self, theta))
    assert_same(fit(cost, None, tmp_path / "c"), whole)
    assert taken == []
    assert_same(fit(cost, None, None), whole)
    assert len(taken) > 3


def test_another_question_is_refused(tmp_path):
    fit(Counted(), "Marq", tmp_path / "c")
    with pytest.raises(ArgumentError, match="its method is 'Marq', now it is 'Port'"):
        fit(Counted(), "Port", tmp_path / "c")
    with pytest.raises(ArgumentError, match="its cost at the start is"):
        fit(lambda p: 2 * Counted()(p), "Marq", tmp_path / "c")
