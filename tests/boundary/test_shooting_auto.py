"""segments="auto": one for each swing of the data or each tenfold growth of an error, and sensible fits with it."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.boundary.shooting_auto import swings_of
from fmepy.errors import ArgumentError
from tests.boundary.test_shooting import GUESS, TIMES, TRUE, assert_same, chaotic, pendulum, prey, readings
from tests.boundary.test_shooting_misfit import henon, record_of


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize(("n", "periods"), [(400, 20), (60, 3), (40, 0)])
def test_swings_are_counted_through_noise(noise, n, periods):
    t = np.linspace(0, 1, n)
    clean = np.sin(2 * np.pi * periods * t) if periods else np.exp(-3 * t)
    y = clean + noise * np.random.default_rng(1).standard_normal(n)
    assert swings_of(y) == pytest.approx(periods, abs=0.5)


def test_what_does_not_swing_and_is_stable_is_one_segment():
    model = fme.OdeModel("d(A)/dt = -k*A", state={"A": "A0"}, parms={"k": 0.3, "A0": 8.0}, times=TIMES, rtol=1e-9)
    data = {"time": TIMES, "A": model().A + 0.1 * np.random.default_rng(1).standard_normal(41)}
    fit = fme.fit_boundary(model, data, {"k": 0.6, "A0": 5.0}, segments="auto")
    assert (fit.segments, fit.strategy) == (1, "complementary")
    assert "segments='auto': 1" in fit.message
    assert_same(fit, fme.modFit(fme.SimulationCost(model, data), {"k": 0.6, "A0": 5.0}))


def test_predators_and_their_prey():
    model = prey()
    data = readings(model)
    fit = fme.fit_boundary(model, data, GUESS, segments="auto")
    assert fit.segments in (2, 3, 4)  # periods of nine in twenty
    assert_same(fit, fme.modFit(fme.SimulationCost(model, data), GUESS))


def test_the_pendulum_from_a_third_of_its_length():
    times = np.linspace(0.1, 20, 200)
    swing = fme.OdeModel(
        pendulum, state={"theta": 0, "omega": 3}, times=times, outputs={"y": "theta"}, engine="compiled"
    )
    data = {"time": times, "y": swing({"L": 1.0}).y + 0.1 * np.random.default_rng(0).standard_normal(200)}
    fit = fme.fit_boundary(swing, data, {"L": 0.3}, segments="auto")
    assert 8 <= fit.segments <= 20
    assert fit.converged
    assert abs(fit.par["L"] - 1) < 3 * fit.std_error["L"] < 0.003


def test_chaos():
    model = chaotic()
    data, clean = record_of(model(), "xz")
    fit = fme.fit_boundary(model, data, {k: 1.2 * v for k, v in TRUE.items()}, segments="auto", err="err")
    assert 15 <= fit.segments <= 40
    assert fit.converged
    assert fit.ssr < 1.05 * clean


def test_a_map_whose_errors_grow_at_every_step_is_cut_by_growth():
    starts = {"x0": 0.3, "y0": 0.2}
    model = fme.DifferenceModel(henon, state={"x": "x0", "y": "y0"}, parms=starts, times=np.arange(121))
    data, clean = record_of(model(), "x", sd=0.01)
    data["time"] = data.pop(model().columns[0])
    fit = fme.fit_boundary(model, data, {"a": 1.35, "b": 0.3, "x0": 0.3, "y0": 0.0}, segments="auto", err="err")
    assert 12 <= fit.segments <= 30  # growth of e^0.42 a step: 22 times tenfold
    assert fit.converged
    assert fit.ssr < 1.05 * clean


def test_no_more_segments_than_data_determine():
    model = prey()
    data = {k: v[::8] for k, v in readings(model).items()}  # five times
    fit = fme.fit_boundary(model, data, {"N0": 28.0}, segments="auto")
    assert fit.segments <= 2
    with pytest.raises(ArgumentError, match='must be a whole number, at least 1, or "auto"'):
        fme.fit_boundary(model, data, {"N0": 28.0}, segments=0)
