"""Pictures of residuals say what stands on their axes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme


@pytest.fixture
def fit():
    model = fme.OdeModel("d(N)/dt = -k * N", state={"N": 2.0}, times=np.arange(5.0), parms={"k": 0.4})
    data = pd.DataFrame({"day": [1.0, 2.0, 3.0], "N": [1.2, 0.8, 0.5]})
    return fme.modFit(fme.SimulationCost(model, data, x="day"))


def test_the_x_axis_of_residuals_bears_the_name_of_x(fit):
    assert fit.cost.plot().get_xlabel() == "day"
    assert fit.plot()[0].get_xlabel() == "day"
    both = fit.cost + fme.modCost({"hour": [0, 1], "M": [1.0, 2.0]}, {"hour": [0, 1], "M": [1.5, 2.5]}, x="hour")
    assert both.plot().get_xlabel() == "day, hour"
    assert fme.modCost({"M": 1.0}, {"M": 2.0}, x=None).plot().get_xlabel() == "x"
