"""Cells of conditions that are expressions of parameters, and columns that are states."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, ParameterError, SimulationError
from fmepy.numerics.differences import central_differences

PARMS = {"k": 0.5, "kin": 2.0, "A0": 10.0}
DATA = pd.DataFrame({"tank": list("aabbcc"), "time": [1, 2] * 3, "A": [7.0, 4, 9, 5, 6, 3], "B": [1.0, 2, 3, 2, 1, 1]})


@pytest.fixture
def tanks():
    return fme.OdeModel(
        "d(A)/dt = kin - k*A\nd(B)/dt = k*A - B", state={"A": "A0", "B": "A0/5"}, times=[0, 1, 2, 3], parms=PARMS,
        rtol=1e-10, atol=1e-12,
    )  # fmt: skip


def cost_of(model, columns, **words):
    return fme.SimulationCost(model, DATA, entity="tank", conditions={"tank": ["a", "b", "c"], **columns}, **words)


def check_score(cost, theta):
    bound = cost.bind()
    slopes = central_differences(lambda x: np.array([-0.5 * bound.minus2loglik(x)]), theta, 1e-5 * np.abs(theta))[0]
    np.testing.assert_allclose(bound.score(theta), slopes, rtol=1e-4, atol=1e-6)


def test_expressions_are_evaluated_at_the_parameters_of_the_cost(tanks):
    cost = cost_of(tanks, {"k": ["k", "2*k + q", "exp(-q)"]}, parms={"q": 0.3}, measurement_noise={"A": 0.3, "B": 0.2})
    assert list(cost.parms.index) == ["k", "kin", "A0", "q"]
    par = {"k": 0.4, "kin": 1.5, "q": 0.1}
    table = cost(par).residuals
    for entity, k in (("a", 0.4), ("b", 0.9), ("c", np.exp(-0.1))):
        wanted = tanks({"k": k, "kin": 1.5}, times=[0, 1, 2])[["A", "B"]].to_numpy()[1:].T.ravel()
        np.testing.assert_allclose(table.loc[table["entity"] == entity, "mod"], wanted, rtol=1e-7)
    check_score(cost, np.array([0.4, 1.5, 9.0, 0.1]))
    assert pickle.loads(pickle.dumps(cost))(par).minus2loglik == cost(par).minus2loglik
    one = cost.bind(["q"])
    assert one.score(np.array([0.3]))[0] == pytest.approx(cost.bind().score(cost.bind().theta0)[3], rel=1e-6)


def test_residuals_models_and_predictions_follow(tanks):
    cost = cost_of(tanks, {"kin": ["kin", "kin/2", "kin*k"]})
    bound, theta = cost.bind(), np.array([0.4, 1.5, 9.0])
    np.testing.assert_allclose(
        bound.jacobian(theta), central_differences(bound.residuals, theta, 1e-5 * theta), rtol=1e-4, atol=1e-6
    )
    fit = fme.modFit(cost, ["k", "kin"])
    curve = fme.predict(cost.model_of("c"), fit, times=[1.0, 2.0]).frame
    wanted = tanks({"k": fit.par["k"], "kin": fit.par["kin"] * fit.par["k"]}, times=[0, 1, 2])
    np.testing.assert_allclose(curve.loc[curve["var"] == "A", "fit"], wanted["A"][1:], rtol=1e-6)


def test_local_parameters_in_an_expression_are_those_of_the_entity(tanks):
    cost = cost_of(tanks, {"kin": ["2*k", "2*k", "3*k"]}, entity_parms=["k"], measurement_noise={"A": 1.0, "B": 1.0})
    par = {"k[a]": 0.3, "k[b]": 0.6, "k[c]": 0.7}
    table = cost(par).residuals
    for entity, k, kin in (("a", 0.3, 0.6), ("b", 0.6, 1.2), ("c", 0.7, 2.1)):
        wanted = tanks({"k": k, "kin": kin}, times=[0, 1, 2])["A"][1:]
        np.testing.assert_allclose(
            table.loc[(table["entity"] == entity) & (table["name"] == "A"), "mod"], wanted, rtol=1e-7
        )
    check_score(cost, np.array([0.3, 0.6, 0.7, 9.0]))


def test_a_state_is_a_column_and_an_empty_cell_is_the_models_start(tanks):
    cost = cost_of(tanks, {"B": [np.nan, 3, "A0*q"], "A": [None, "q", ""]}, parms={"q": 0.1})
    starts = cost.run().groupby("tank").first()
    assert starts["A"].tolist() == pytest.approx([10.0, 0.1, 10.0])
    assert starts["B"].tolist() == pytest.approx([2.0, 3.0, 1.0])
    check_score(cost.replace(measurement_noise={"A": 1.0, "B": 0.5}), np.array([0.4, 1.5, 9.0, 0.2]))


def test_a_parameter_that_is_a_start_may_be_empty(tanks):
    cost = cost_of(tanks, {"A0": [None, 5, "A0/2"]})
    assert cost.run()["A"][::4].tolist() == [10.0, 5.0, 5.0]


def test_starts_after_rest_are_numbers_names_expressions_or_left(tanks):
    rows = {
        "k": [1.0, "k", "k", "k"], "A": [None, 7.0, "q*kin", None], "B": [None, None, "q", 0.5],
        "start_from": [None, "rest", "rest", "rest"],
    }  # fmt: skip
    cost = fme.SimulationCost(
        tanks, DATA, entity="tank", conditions=pd.DataFrame(rows, index=["rest", "a", "b", "c"]), parms={"q": 0.7}
    )
    starts = cost.run().groupby("tank").first()
    assert starts["A"].tolist() == pytest.approx([7.0, 1.4, 2.0], rel=1e-6)  # at rest A = B = kin / k, kin
    assert starts["B"].tolist() == pytest.approx([2.0, 0.7, 0.5], rel=1e-6)
    bound, theta = cost.bind(["k", "kin", "q"]), np.array([0.4, 1.5, 0.2])
    np.testing.assert_allclose(
        bound.jacobian(theta), central_differences(bound.residuals, theta, 1e-5 * theta), rtol=1e-4, atol=1e-5
    )


def test_expressions_of_transformed_parameters_are_of_the_parameters_themselves(tanks):
    cost = cost_of(tanks, {"k": ["k", "2*k", "k"]})
    some = fme.transformed(cost, {"k": "log10"})
    assert some.parms.to_dict() == pytest.approx({"k": np.log10(0.5), "kin": 2.0, "A0": 10.0})
    assert some({"k": np.log10(0.3)}).model == pytest.approx(cost({"k": 0.3}).model)
    with pytest.raises(ArgumentError, match="Transform the cost instead"):
        cost_of(fme.transformed(tanks, "log"), {"k": ["k", "2*k", "k"]})


@pytest.mark.parametrize(
    ("cell", "words", "error", "told"),
    [
        ("2*kk", {}, ParameterError, "'kk'.*neither a number nor a parameter.*Did you mean 'k'"),
        ("2*(k", {}, Exception, "'k' of entity 'b'"),
        (None, {}, DataError, "is missing; a number"),
        ("2*k", {"measurement_noise": {"A": "k", "B": 1.0}}, ArgumentError, "'k' stands in the noise"),
    ],
)
def test_what_cannot_be_is_told(tanks, cell, words, error, told):
    with pytest.raises(error, match=told):
        cost_of(tanks, {"k": ["k", cell, "k"]}, **words)


def test_an_expression_without_a_value_is_a_failed_run(tanks):
    cost = cost_of(tanks, {"k": ["k", "log(q)", "k"]}, parms={"q": 2.0})
    with pytest.raises(SimulationError, match="log\\(q\\) has no finite value where q = -1"):
        cost({"q": -1.0})


def test_a_filter_refuses_expressions(tanks):
    with pytest.raises(DataError, match="a number or the name of a parameter is needed"):
        fme.FimlofCost(
            tanks, DATA, entity="tank", conditions={"tank": ["a", "b", "c"], "k": ["k", "2*k", "k"]},
            process_noise={"A": 0.1}, measurement_noise={"A": 0.1, "B": 0.1},
        )  # fmt: skip


def test_a_predictor_that_is_corrected_has_parameters_as_columns(tanks):
    with pytest.raises(DataError, match="It is a state: make its initial value a parameter"):
        fme.PredictionErrorCost(
            tanks,
            DATA,
            entity="tank",
            conditions={"tank": ["a", "b", "c"], "B": [1.0, 2.0, 3.0]},
            gain={"A": {"A": 0.1}},
        )
