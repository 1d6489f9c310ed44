"""Outputs of a model as functions of its states: values and derivatives, with equations or without."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fmepy.fimlof.outputs import output_functions, outputs_of
from fmepy.models.difference import DifferenceModel
from tests.plain import plain


def branching(n, x, y, *, a=2.0):
    if plain(x) > 100.0:
        return (x, y), {"flux": a * x * y}
    return (x + 1, y), {"flux": a * x * y}


def smooth(n, x, y, *, a=2.0):
    return (x + 1, y), {"flux": a * x * y}


@pytest.mark.parametrize("function", [smooth, branching])
def test_values_and_derivatives_are_those_of_the_expressions(function):
    model = DifferenceModel(function, state={"x": 1.0, "y": 1.0}, times=[0, 3], outputs={"root": "sqrt(x) + n"})
    definition = model.definition
    assert (definition.equations is None) == (function is branching)
    space = SimpleNamespace(states=("x", "y"), forcings=(), time=definition.time)
    spec = SimpleNamespace(definition=definition, space=space, parameters=definition.parameters)
    functions = output_functions(spec)
    names = [name for name, _ in outputs_of(spec)]
    assert set(names) == {"flux", "root"}
    times, x = np.array([1.0, 2.0]), np.array([[4.0, 3.0], [9.0, np.nan]])
    y, slopes = functions.at(times, x, np.array([2.0]), np.empty((2, 0)))
    flux, root = names.index("flux"), names.index("root")
    assert y[0, [flux, root]] == pytest.approx([24.0, 3.0])
    np.testing.assert_allclose(slopes[0, flux], [6.0, 8.0], rtol=1e-8)
    np.testing.assert_allclose(slopes[0, root], [0.25, 0.0], rtol=1e-8)
    assert np.isnan(y[1, flux])
