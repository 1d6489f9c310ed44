"""identifiable_fit: select, fit, select, until the set is stable."""

from __future__ import annotations

import dataclasses
import pickle
import sys

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.costs.mapped import MappedCost
from fmepy.errors import ArgumentError, ParameterError
from fmepy.parameters.mapped import HeldValues
from fmepy.sensitivity import collin, identifiable_fit, sensFun
from tests.sensitivity.references import hiv_cost

T = np.arange(0.0, 10.0)
TRUTH = {"a": 4.0, "k": 0.4, "c": 1.0}
DATA = {"time": T, "y": TRUTH["a"] * np.exp(-TRUTH["k"] * T) + TRUTH["c"]}


def cost(p):
    """a and b by their product alone."""
    return fme.modCost({"time": T, "y": p["a"] * p["b"] * np.exp(-p["k"] * T) + p["c"]}, DATA)


SLOW = {"a": 2.0, "b": 1.0, "k": 0.001, "c": 0.5}
START = {"a": 2.0, "b": 1.0, "k": 0.2, "c": 0.5}


def test_what_is_known_by_a_product_is_fitted_by_one_factor():
    found = identifiable_fit(cost, START)
    assert found.stable
    assert len(found.selected) == 3
    assert len({"a", "b"} & set(found.selected)) == 1
    assert found.parms["a"] * found.parms["b"] == pytest.approx(4.0, rel=1e-5)
    assert found.parms[["k", "c"]].tolist() == pytest.approx([0.4, 1.0], rel=1e-5)
    assert found.fit.ssr < 1e-10
    assert found.identifiability.told() == ["+0.71 a -0.71 b"]


def test_the_history_has_a_row_per_fit_and_ends_with_the_set_that_was_chosen_again():
    found = identifiable_fit(cost, START)
    assert found.history["parameters"].iloc[-1] == found.selected
    assert found.history["converged"].all()
    assert list(found.history.columns) == ["parameters", "N", "collinearity", "collinearity_all", "ssr", "converged"]
    assert (found.history["collinearity"] < 20).all()
    assert found.message == f"Stable after {len(found.history)} fit{'s' if len(found.history) > 1 else ''}."
    again = sensFun(cost, found.parms, weighted=True)
    assert collin(again, list(found.selected)).value < 20


def test_a_set_that_changes_on_the_way_is_selected_anew():
    # with hardly any decay a and c are the same constant; once k has been fitted they are not
    found = identifiable_fit(cost, SLOW)
    assert found.stable
    assert found.history["N"].tolist() == [2, 3]
    # a and b matter alike: the one that was fitted before is kept
    assert found.history["parameters"].tolist() == [("a", "k"), ("a", "k", "c")]
    assert found.selected == ("a", "k", "c")
    assert found.parms["k"] == pytest.approx(0.4, rel=1e-5)
    ssr = found.history["ssr"].to_numpy()
    assert (np.diff(ssr) <= 1e-9).all()


def test_a_prepared_cost_holds_what_is_not_fitted_where_it_was_left():
    start = hiv_cost().parms * 1.1
    found = identifiable_fit(hiv_cost(), start)
    held = [n for n in start.index if n not in found.selected]
    assert held
    assert found.parms[held].tolist() == start[held].tolist()
    assert found.parms[list(found.selected)].tolist() == found.fit.par.tolist()
    assert hiv_cost()(found.parms).model == pytest.approx(found.fit.ssr, rel=1e-9)


def test_a_held_cost_is_the_cost_at_other_values():
    inner = hiv_cost()
    held = MappedCost(inner, HeldValues(inner.parms * 1.1))
    assert held().model == pytest.approx(inner(inner.parms * 1.1).model)
    bound = held.bind(["c", "bet"])
    full = inner.bind(["c", "bet", "rho", "delt", "lam", "n"])
    theta = held.parms[["c", "bet", "rho", "delt", "lam", "n"]].to_numpy()
    np.testing.assert_allclose(bound.residuals(theta[:2]), full.residuals(theta), rtol=1e-9)
    np.testing.assert_allclose(bound.jacobian(theta[:2]), full.jacobian(theta)[:, :2], rtol=1e-6)
    assert bound.modcost(theta[:2]).model == pytest.approx(held().model)
    assert bound.minus2loglik(theta[:2]) == pytest.approx(full.minus2loglik(theta))


def test_positional_parameters_reach_the_function_as_an_array():
    def by_position(p):
        return fme.modCost({"time": T, "y": p[0] * p[1] * np.exp(-p[2] * T) + p[3]}, DATA)

    found = identifiable_fit(by_position, list(START.values()))
    assert list(found.parms.index) == ["p1", "p2", "p3", "p4"]
    assert found.fit.ssr < 1e-10


def test_bounds_hold():
    with pytest.raises(ParameterError, match="outside its bounds"):
        identifiable_fit(cost, START, lower={"k": 0.5})
    found = identifiable_fit(cost, START, upper={"k": 0.3})
    assert found.parms["k"] <= 0.3


def test_a_candidate_at_zero_is_a_candidate():
    found = identifiable_fit(cost, START | {"c": 0.0})
    assert found.parms["c"] == pytest.approx(1.0, rel=1e-4)


def test_few_steps_are_told():
    found = identifiable_fit(cost, SLOW, max_steps=1)
    assert not found.stable
    assert found.message == "Stopped after max_steps=1 fits: the selection still changes."
    assert len(found.history) == 1


def test_a_selection_that_goes_in_a_circle_ends_with_its_best_fit(monkeypatch):
    module = sys.modules[identifiable_fit.__module__]
    sets = iter([("k", "a"), ("a", "c"), ("k", "c"), ("a", "c"), ("k", "c")])
    real = module._Loop.select

    def alternating(self, before):
        found = real(self, before)[1]
        wanted = next(sets)
        row = found.sets.iloc[[0]].assign(**{n: int(n in wanted) for n in "abkc"})
        return found_names(wanted), dataclasses.replace(found, sets=row)

    def found_names(wanted):
        return tuple(n for n in "abkc" if n in wanted)

    monkeypatch.setattr(module._Loop, "select", alternating)
    found = module.identifiable_fit(cost, START)
    assert not found.stable
    assert found.message == "The selection cycles through 2 sets; the fit with the lowest cost is returned."
    assert len(found.history) == 3
    assert found.fit.ssr == found.history["ssr"].iloc[1:].min()
    assert found.parms[list(found.selected)].tolist() == found.fit.par.tolist()


def test_it_prints_and_pickles():
    found = identifiable_fit(cost, START)
    assert "Stable after" in repr(found)
    assert "ModFit by Marq" in repr(found)
    again = pickle.loads(pickle.dumps(found))
    pd.testing.assert_series_equal(again.parms, found.parms)
    assert "<table" in found._repr_html_()


def test_what_cannot_be_is_told():
    with pytest.raises(ArgumentError, match="max_steps"):
        identifiable_fit(cost, START, max_steps=0)
    with pytest.raises(ArgumentError, match="one number"):
        identifiable_fit(lambda p: p["a"] ** 2, {"a": 1.0})
    with (
        pytest.raises(ArgumentError, match="None of the candidates has any influence"),
        pytest.warns(UserWarning, match="all zero"),
    ):
        identifiable_fit(lambda p: fme.modCost({"time": T, "y": T}, DATA), {"a": 1.0})
