"""BoundaryFit: what it says, what it shows, and what may be asked of it."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, InterruptedWarning
from tests.plain import plain

TIMES = np.linspace(0, 5, 21)
SEEN = {"time": [0.5, 1.0, 2.0, 4.0], "A": [6.3, 4.8, 3.0, 1.1]}


def decay(rhs="d(A)/dt = -k*A", **words):
    given = {"state": {"A": "A0"}, "parms": {"k": 0.3, "A0": 5.0}, "times": TIMES, "rtol": 1e-9}
    return fme.OdeModel(rhs, **{**given, **words})


@pytest.fixture(scope="module")
def fit():
    return fme.fit_boundary(decay(), SEEN)


def test_it_says_how_it_went(fit):
    text = repr(fit)
    for part in ("complementary functions", "converged", "c.A0", "damping", "below tol"):
        assert part in text
    assert "<table" in fit._repr_html_()
    assert "Std. Error" in str(fit.summary())
    assert "c.k" in fit.to_markdown()
    assert fme.fit_boundary(decay(), SEEN, max_iter=1).__repr__().splitlines()[0].endswith("NOT converged")


def test_it_goes_where_fits_go(fit):
    shot = fme.modFit(fme.SimulationCost(decay(), SEEN))
    assert fme.compare_fits({"boundary": fit.fit, "shot": shot}).frame["AIC"].diff().abs().max() < 1e-2
    band, other = fme.predict(decay(), fit.fit).frame, fme.predict(decay(), shot).frame
    assert band["upper"].to_numpy() == pytest.approx(other["upper"].to_numpy(), rel=1e-4)
    assert fit.fit.solver_error < 0.1
    assert fit.correlation.loc["k", "A0"] == pytest.approx(shot.correlation.loc["k", "A0"], abs=1e-4)


def test_without_degrees_of_freedom_there_are_no_standard_errors():
    fit = fme.fit_boundary(decay(), {"time": [1.0, 3.0], "A": [4.0, 1.5]})
    assert fit.std_error.isna().all()
    assert "2 observations for 2 unknowns" in fit.message
    assert np.isfinite(fit.cov_unscaled.to_numpy()).all()
    assert fit.df_residual == 0


def test_the_trajectory_is_that_of_the_model(fit):
    pd.testing.assert_frame_equal(fit.trajectory, decay()(fit.par))
    assert fit.defect == 0.0


def test_a_path_that_ends_before_the_models_times_is_told():
    model = fme.OdeModel("d(A)/dt = k*A**2", state={"A": 1.0}, parms={"k": 0.1}, times=np.linspace(0, 5, 11))
    fit = fme.fit_boundary(model, {"time": [1.0, 2.0], "A": [1 / (1 - 0.4), 1 / (1 - 0.8)]})
    assert fit.par["k"] == pytest.approx(0.4, rel=1e-4)
    assert fit.trajectory is None
    assert "cannot be run to the end" in fit.message
    assert fit.plot()[0].get_ylabel() == "A"
    plt.close("all")


def test_the_picture_has_a_panel_a_variable_and_one_of_the_steps(fit):
    panels = fit.plot(color="C3")
    assert [ax.get_xlabel() for ax in panels] == ["time", "step"]
    assert panels[0].lines[0].get_color() == "C3"
    assert len(panels[0].lines[1].get_xdata()) == 4
    assert panels[1].get_yscale() == "log"
    assert len(panels[1].lines[0].get_xdata()) == len(fit.iterations)
    other = fit.plot({"time": [1.0], "A": [2.0]}, axes=list(panels))
    assert other[0] is panels[0]
    plt.close("all")


def test_the_picture_of_several_experiments():
    table = pd.DataFrame(SEEN).assign(rat=["x", "x", "y", "y"])
    fit = fme.fit_boundary(decay(), table, entity="rat")
    panels = fit.plot()
    assert [ax.get_title() for ax in panels[:2]] == ["rat x", "rat y"]
    assert [len(ax.lines[1].get_xdata()) for ax in panels[:2]] == [2, 2]
    again = fit.plot(table)
    assert again[0].lines[1].get_ydata().tolist() == SEEN["A"][:2]
    with pytest.raises(ArgumentError, match="Did you mean"):
        fit.plot(linewdith=2)
    plt.close("all")


def test_only_the_last_step_of_a_long_search_is_kept(monkeypatch, fit):
    from fmepy.boundary import superposition

    monkeypatch.setattr(superposition, "_MOST_KEPT", 10)
    short = fme.fit_boundary(decay(), SEEN)
    assert short.solutions["step"].unique().tolist() == [len(short.iterations)]
    last = fit.solutions[fit.solutions["step"] == len(fit.iterations)].reset_index(drop=True)
    pd.testing.assert_frame_equal(short.solutions, last)


def test_ctrl_c_returns_the_last_iterate():
    runs = []

    def rates(t, A, *, k):
        if plain(A) < -1e9:
            return 0.0
        runs.append(t)
        if len(runs) == 1500:
            raise KeyboardInterrupt
        return -k * A

    model = decay(rates, engine="scipy")
    with pytest.warns(InterruptedWarning, match="fit_boundary was interrupted"):
        fit = fme.fit_boundary(model, SEEN, {"k": 0.01, "A0": 1.0}, tol=1e-15)
    assert fit.interrupted
    assert not fit.converged
    assert np.isfinite(fit.par).all()
    assert "NOT converged" in repr(fit)


def test_it_is_taken_for_its_fit_by_every_verb():
    model = fme.OdeModel("d(x)/dt = -k*x", state={"x": "x0"}, parms={"k": 0.3, "x0": 1.0}, times=range(11))
    seen = {"time": np.arange(11.0), "x": np.exp(-0.3 * np.arange(11)) + 0.02 * np.cos(3 * np.arange(11))}
    found, cost = fme.fit_boundary(model, seen, {"k": 0.3, "x0": 1.0}), fme.SimulationCost(model, seen)
    for ask in (
        lambda fit: fme.predict(model, fit).frame,
        lambda fit: fme.profile(cost, fit).intervals,
        lambda fit: fme.derived(fit, lambda p: 2 * p["k"]),
        lambda fit: fme.sensRange(model, parInput=fit, num=3, seed=1).frame,
        lambda fit: fme.modMCMC(cost, fit, niter=20, seed=1).pars,
        lambda fit: fme.compare_fits({"one": fit, "two": found.fit}).frame,
    ):
        pd.testing.assert_frame_equal(ask(found), ask(found.fit))
    with pytest.raises(AttributeError, match="here it is `std_error`"):
        _ = found.bse
