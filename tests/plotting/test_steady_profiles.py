"""Pictures of steady states on a grid: x is a depth, downwards, and what is one number of the run is no profile."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme

GRID = fme.Grid1D(np.linspace(0, 5, 21))


def sediment(t, O2, *, D=1.0, k=0.4, top=300.0):
    flow = fme.transport_1d(O2, GRID, D=D, up=top)
    return flow.rate - k * O2, {"UpFlux": flow.flux[0], "use": k * O2}


@pytest.fixture(scope="module")
def model():
    return fme.SteadyModel(sediment, state={"O2": 100.0}, grid=GRID)


def data(model, **columns):
    table = model({"k": 0.5}).iloc[2::4][["x", "O2"]]
    return table.assign(O2=table["O2"] * (1 + 0.02 * np.cos(np.arange(len(table)))), **columns)


def quantities(axes, depth="x"):
    """Return what panels show to the right; depth goes down in each."""
    axes = np.ravel(axes)
    assert {(ax.get_ylabel(), ax.yaxis_inverted()) for ax in axes} == {(depth, True)}
    return [ax.get_xlabel() for ax in axes]


def test_pictures_of_a_steady_state_are_profiles(model):
    cost = fme.SimulationCost(model, data(model), x="x")
    fit = fme.modFit(cost, ["k"], lower=0)
    runs = fme.sensRange(model, dist="grid", parRange={"k": (0.3, 0.5)}, num=3)
    assert quantities(fme.plot_model(model(), model({"k": 0.6}))) == ["O2", "use"]
    assert quantities(fme.predict(model, fit).plot()) == ["O2", "use"]
    assert quantities(fme.predict(model, fit).plot(obs=data(model))) == ["O2"]
    assert quantities(cost.plot(fit.par)) == quantities(fit.plot()[:1]) == ["O2"]
    assert quantities(runs.plot()) == quantities(runs.summary().plot()) == ["O2", "use"]
    band = fme.predict(model, fit).frame.query("var == 'O2'")
    (panel,) = fme.predict(model, fit).plot(which="O2")
    np.testing.assert_array_equal(panel.lines[0].get_xydata(), band[["fit", "x"]])


def test_profiles_of_entities_go_down(model):
    obs = pd.concat([data(model, core="a"), data(model, core="b")])
    cost = fme.SimulationCost(model, obs, x="x", entity="core", entity_parms=["k"])
    left, right = cost.plot()
    assert left.yaxis_inverted()
    assert right.yaxis_inverted()
    assert (left.get_xlabel(), left.get_ylabel()) == ("O2", "x")
    seen = left.lines[-1].get_xydata()
    np.testing.assert_allclose(seen, data(model)[["O2", "x"]])


def test_what_is_one_number_is_drawn_where_it_is_asked_for(model):
    (panel,) = fme.plot_model(model(), which="UpFlux", xyswap=False)
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("x", "UpFlux")


def test_sensitivities_of_profiles_go_down_and_those_of_a_scalar_are_points(model):
    sens = fme.sensFun(model)
    profile, flux, use = sens.plot()
    assert quantities([profile, use]) == ["sensitivity"] * 2
    own = sens.frame.query("var == 'O2'")
    np.testing.assert_array_equal(profile.lines[1].get_xydata(), own[["D", "x"]])
    assert (flux.get_xlabel(), flux.get_ylabel(), list(flux.get_xticks())) == ("", "sensitivity", [])
    assert [len(line.get_xdata()) for line in flux.lines[1:]] == [1, 1, 1]

    cost = fme.SimulationCost(model, data(model), x="x") + fme.SimulationCost(model, {"UpFlux": 100.0}, x=None)
    for thing in (cost, fme.transformed(cost, {"k": "log"}), fme.transformed(model, {"k": "log"})):
        assert quantities(fme.sensFun(thing).plot(which="O2"))[0] == "sensitivity"


def test_residuals_of_profiles_go_down(model):
    cost = fme.SimulationCost(model, data(model), x="x") + fme.SimulationCost(model, {"UpFlux": 100.0}, x=None)
    fit = fme.modFit(cost, ["k", "D"], lower=0)
    curve, residuals, flux, _ = fit.plot()
    assert quantities([curve, residuals]) == ["O2", "weighted residual"]
    points = residuals.lines[-1].get_xydata()
    np.testing.assert_allclose(points, fit.cost.residuals.query("name == 'O2'")[["res", "x"]])
    assert (flux.get_xlabel(), flux.get_ylabel(), list(flux.get_xticks())) == ("", "weighted residual", [])

    by_depth = fme.SimulationCost(model, data(model).rename(columns={"x": "depth"}), x="depth")()
    ax = by_depth.plot()  # of a name that says it, or where it is asked for
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.yaxis_inverted()) == ("weighted residuals", "depth", True)
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), by_depth.residuals[["res", "x"]])
    assert by_depth.plot(xyswap=False).get_xlabel() == "depth"
    assert fit.cost.plot(xyswap=True).get_ylabel() == "x"


def test_scenarios_and_bands_of_profiles_go_down_and_a_scalar_is_a_dot(model):
    table = pd.DataFrame({"scenario": ["now", "half"], "top": [300.0, 150.0]})
    what_if = fme.scenarios(model, table, parInput=pd.DataFrame({"k": [0.3, 0.4, 0.5]}))
    profile, flux, use = what_if.summary().plot()
    assert quantities([profile, use]) == ["O2", "use"]
    assert (flux.get_xlabel(), flux.get_ylabel()) == ("UpFlux", "")
    assert [text.get_text() for text in flux.get_yticklabels()] == ["now", "half"]
    own = what_if.summary().frame.query("var == 'O2' and scenario == 'half'")
    np.testing.assert_array_equal(profile.lines[1].get_xydata(), own[["q50", "x"]])
    (difference,) = what_if.difference("now").summary().plot(which="O2")
    assert quantities([difference]) == ["O2, difference to 'now'"]

    runs = fme.sensRange(model, dist="grid", parRange={"k": (0.3, 0.5)}, num=3)
    (flux,) = runs.summary().plot(which="UpFlux")
    assert (flux.get_xlabel(), flux.get_ylabel(), list(flux.get_yticks())) == ("UpFlux", "", [])
    assert len(flux.lines[0].get_xdata()) == 1
