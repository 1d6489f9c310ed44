"""Pictures of steady states and of profiles with data."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError


def spread(t, y, p):
    return np.concatenate([np.diff(np.r_[1.0, C, C[-1]], 2) - 0.1 * C for C in y.reshape(2, -1)])


def test_profiles_go_downwards():
    found = fme.steady_1d(np.ones(40), spread, nspec=2)
    depth = np.arange(20) / 10
    panels = found.plot({"depth": depth}, lw=2)
    assert len(panels) == 2
    assert panels[0].get_ylabel() == "depth"
    assert panels[1].get_xlabel() == "species 2"
    assert panels[0].yaxis_inverted()
    np.testing.assert_array_equal(panels[0].lines[0].get_ydata(), depth)
    assert found.plot(xyswap=False)[0].get_xlabel() == "cell"
    with pytest.raises(ArgumentError, match="20 cells"):
        found.plot([1, 2, 3])


def test_states_are_points():
    found = fme.steady({"x": 1.0, "z": 2.0}, lambda t, y, p: np.array([3.0, 4.0]) - y)
    (panel,) = found.plot()
    assert [t.get_text() for t in panel.get_xticklabels()] == ["x", "z"]
    with pytest.raises(ArgumentError, match="profiles"):
        found.plot([1, 2])


def test_a_cost_of_a_profile_is_drawn_by_depth():
    grid = fme.Grid1D(np.linspace(0, 5, 21))

    def decay(t, C, *, k=0.5):
        return fme.transport_1d(C, grid, D=1.0, up=1.0).rate - k * C

    model = fme.SteadyModel(decay, state={"C": 1.0}, grid=grid)
    cost = fme.SimulationCost(model, {"depth": [0.5, 1.0], "C": [0.7, 0.5]}, x="depth")
    assert cost.plot()[0].get_ylabel() == "depth"
