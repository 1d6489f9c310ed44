"""Every map of parameters has the derivative of what it does, and keeps starts, bounds and scales of noise."""

import pickle

import lmfit
import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ParameterError, SimulationError
from fmepy.parameters.maps import Elementwise, Selected, Tied, many_of, pull_both, ties_of
from fmepy.parameters.named import as_parameters


def tied():
    p = lmfit.Parameters()
    p.add("a", value=0.7, min=0.1, max=5.0)
    p.add("b", expr="2 * a")
    p.add("c", value=3.0, vary=False)
    p.add("d", value=1.5, min=-1.0)
    p.add("e", expr="a * d + 1")
    return Tied(as_parameters(p))


VALUES = pd.Series({"ka": 1.0, "dose": 10.0, "cl": 0.5, "v": 2.0})
MAPS = {
    "all logarithms": Elementwise(("a", "b"), {"a": "log", "b": "log"}),
    "some of each": Elementwise(("a", "b", "c", "d"), {"a": "log", "c": "logit", "d": "log10"}),
    "an entity": Selected.by_name(("cl", "ka[1]", "ka[2]"), {"cl": "cl", "ka": "ka[2]"}, VALUES),
    "one for two": Selected.by_name(("cl",), {"cl": "cl", "v": "cl"}, VALUES),
    "a permutation": Selected.by_name(("v", "cl", "ka", "dose"), {n: n for n in VALUES.index}, VALUES),
    "expressions": tied(),
}
every = pytest.mark.parametrize("map", MAPS.values(), ids=MAPS)


def theta_of(map):
    return np.linspace(0.4, 0.9, len(map.names))


def derivative(map, theta, h=1e-6):
    steps = h * np.eye(len(theta))
    return np.stack([(map.full(theta + e) - map.full(theta - e)) / (2 * h) for e in steps], axis=1)


@every
def test_the_derivative_is_that_of_the_map(map):
    theta = theta_of(map)
    D = derivative(map, theta)
    assert D.shape == (len(map.full_names), len(map.names))
    rows = np.arange(3.0 * len(D)).reshape(3, -1)
    assert map.pull(theta, rows) == pytest.approx(rows @ D, rel=1e-6, abs=1e-7)
    assert map.pull(theta, rows[0]) == pytest.approx(rows[0] @ D, rel=1e-6, abs=1e-7)
    assert map.pull(theta, rows[None]).shape == (1, 3, len(map.names))
    information = rows.T @ rows
    assert pull_both(map, theta, information) == pytest.approx(D.T @ information @ D, rel=1e-6, abs=1e-5)


@every
def test_what_is_taken_back_and_mapped_again_is_the_same(map):
    assert map.full(map.start(map.full(theta_of(map)))).shape == (len(map.full_names),)
    if isinstance(map, Elementwise):
        assert map.start(map.full(theta_of(map))) == pytest.approx(theta_of(map))


@every
def test_a_box_of_theta_holds_its_inside(map):
    theta = theta_of(map)
    lower, upper = map.box(theta - 0.1, theta + 0.1)
    inside = map.full(theta)
    assert np.all((lower <= inside + 1e-12) & (inside <= upper + 1e-12))


@every
def test_maps_travel(map):
    again = pickle.loads(pickle.dumps(map))
    assert again.full(theta_of(map)).tolist() == map.full(theta_of(map)).tolist()


def test_what_is_held_stays_and_what_does_not_move_has_no_column():
    entity = MAPS["an entity"]
    assert entity.full(np.array([0.4, 7.0, 1.2])).tolist() == [1.2, 10.0, 0.4, 2.0]
    assert entity.moves.tolist() == [True, False, True]
    # the derivative to a held parameter may be anything
    assert entity.pull(np.ones(3), np.array([2.0, np.nan, 3.0, np.nan])).tolist() == [3.0, 0.0, 2.0]


def test_a_parameter_that_serves_two_has_the_sum_of_their_derivatives_and_the_narrower_bounds():
    both = MAPS["one for two"]
    assert both.pull(np.ones(1), np.array([[1.0, 2.0, 3.0, 4.0]])).tolist() == [[7.0]]
    lower, upper = both.bounds(np.array([0, 0, 0.1, 0.2]), np.array([9, 9, 5.0, 7.0]))
    assert (lower.tolist(), upper.tolist()) == ([0.2], [5.0])


def test_the_identity_is_known():
    assert Selected.by_name(tuple(VALUES.index), {n: n for n in VALUES.index}, VALUES).is_identity
    assert not MAPS["a permutation"].is_identity


def test_only_what_is_in_proportion_to_noise_scales_it():
    assert MAPS["some of each"].scale_parameters(np.ones(4, bool), np.ones(4)).tolist() == [False, True, False, False]
    assert MAPS["one for two"].scale_parameters(np.array([0, 0, 1, 1], bool), np.ones(1)).tolist() == [True]
    assert MAPS["one for two"].scale_parameters(np.array([0, 0, 1, 0], bool), np.ones(1)).tolist() == [False]
    sds = np.array([True, True, False, False, False])  # a and b = 2 a, but e depends on a as well
    assert tied().scale_parameters(sds, np.array([0.7, 1.5])).tolist() == [False, False]


def test_expressions_keep_the_bounds_of_lmfit_and_of_the_cost():
    lower, upper = tied().bounds(np.array([0.3, 0, 0, -5.0, 0]), np.array([9.0, 9, 9, 4.0, 9]))
    assert (lower.tolist(), upper.tolist()) == ([0.3, -1.0], [5.0, 4.0])
    assert ties_of(as_parameters({"a": 1.0})) is None


def test_many_are_mapped_row_by_row_and_a_failed_row_fails_alone():
    map = MAPS["all logarithms"]
    Theta = np.array([[0.0, 0.0], [1000.0, 0.0], [0.0, 1.0]])
    found, why = many_of(map, Theta, lambda full: (full.sum(axis=1, keepdims=True), np.full(len(full), "", object)))
    assert found[[0, 2], 0] == pytest.approx([2.0, 1 + np.e])
    assert np.isnan(found[1, 0])
    assert [bool(w) for w in why] == [False, True, False]
    assert "too large" in why[1]


def test_what_cannot_be_mapped_is_told():
    map = MAPS["some of each"]
    with pytest.raises(SimulationError, match="'a' = 800 is too large"):
        map.full(np.array([800.0, 1, 1, 1]))
    with pytest.raises(ParameterError, match="'c' is 2, which has no logit"):
        map.start(np.array([1.0, 1, 2, 1]))
    with pytest.raises(ParameterError, match="'d' has an upper bound of -1, below which nothing has a log10"):
        map.bounds(np.zeros(4), np.array([1.0, 1, 1, -1]))
