"""Pictures of fits show the numbers of the fit."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from tests.fitting.problems import PROBLEMS

MONOD = PROBLEMS[0]


@pytest.fixture(scope="module")
def fit():
    return fme.modFit(MONOD.residuals, MONOD.start)


def test_a_fit_shows_its_residuals_and_its_trace(fit):
    axes = fit.plot()
    assert len(axes) == 2
    np.testing.assert_array_equal(axes[0].lines[-1].get_ydata(), fit.residuals)
    np.testing.assert_array_equal(axes[1].lines[0].get_ydata(), fit.rsstrace)
    assert axes[1].get_yscale() == "log"


def test_a_fit_draws_on_the_axes_it_is_given(fit):
    _, given = plt.subplots(1, 2)
    axes = fit.plot(axes=given, color="red")
    assert axes[0] is given[0]
    assert axes[0].lines[-1].get_color() == "red"


def test_residuals_of_a_modcost_have_a_panel_per_variable():
    model = fme.OdeModel("d(A)/dt = -k * A\nd(B)/dt = k * A", state={"A": 1.0, "B": 0.0}, times=np.arange(0, 5.0),
                         parms={"k": 0.5})  # fmt: skip
    data = pd.DataFrame({"time": [1.0, 2, 3], "A": [0.6, 0.35, 0.25], "B": [0.4, 0.6, 0.8]})
    fit = fme.modFit(fme.SimulationCost(model, data))
    band = fme.predict(model, fit)
    axes = fit.plot()
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in axes[:2]] == [("time", "A"), ("time", "B")]
    assert [ax.get_title() for ax in axes[2:4]] == ["A", "B"]
    assert axes[4].get_xlabel() == "iteration"
    np.testing.assert_array_equal(axes[3].lines[-1].get_xdata(), [1, 2, 3])
    of_b = band.frame[band.frame["var"] == "B"]
    np.testing.assert_array_equal(axes[1].lines[0].get_ydata(), of_b["fit"])
    np.testing.assert_array_equal(axes[1].lines[1].get_ydata(), data["B"])
    assert axes[1].collections[0].get_paths()[0].vertices[:, 1].max() == of_b["upper"].max()
    panels = band.plot(obs=data)
    assert [ax.get_ylabel() for ax in panels] == ["A", "B"]
    np.testing.assert_array_equal(panels[0].lines[1].get_ydata(), data.A)
    long = pd.DataFrame({"name": ["B", "B"], "time": [1.0, 2.0], "val": [0.4, 0.6]})
    assert [ax.get_ylabel() for ax in band.plot(obs=long)] == ["B"]
    assert len(band.plot(which="A")) == 1
    with pytest.raises(ArgumentError, match=r"none of the variables shown.*neither a column"):
        band.plot(obs=pd.DataFrame({"t": [1.0], "Q": [2.0]}))
