"""Fixed steps behind the model's own times."""

import numpy as np
import pytest

from fmepy.models.ode import OdeModel


@pytest.mark.parametrize(("dt", "step"), [(None, 0.5), (0.1, 0.1)])
def test_later_rows_are_reached_by_steps_as_long_as_the_last(dt, step):
    decay = OdeModel(lambda t, x, *, k=0.4: -k * x, state={"x": 2.0}, times=[0, 0.5, 1.0], method="euler", dt=dt)
    out = decay(times=[1.0, 3.0, 20.0])["x"]
    np.testing.assert_allclose(out, 2 * (1 - 0.4 * step) ** (np.array([1.0, 3.0, 20.0]) / step), rtol=1e-10)
