"""Models, costs and functions of transformed parameters follow the chain rule and keep their names."""

import pickle

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import Cost, SimulationCost
from fmepy.costs.mapped import MappedCost, transformed
from fmepy.errors import ArgumentError, ParameterError, SimulationError
from fmepy.models.base import Model
from fmepy.models.mapped import MappedModel
from fmepy.parameters.mapped import HeldValues

DATA = {"time": [0.5, 1.5, 2.5], "A": [8.0, 5.0, 3.0]}
HOWS = ["log", "log10", {"k": "logit"}, {"A0": "log10", "k": "log"}]


def differences(f, theta, h=1e-6):
    return np.stack([(f(theta + h * e) - f(theta - h * e)) / (2 * h) for e in np.eye(len(theta))], axis=-1)


def first_two(p):
    return p["a"], p["b"]


@pytest.mark.parametrize("how", HOWS)
def test_a_transformed_cost_has_the_value_and_the_chain_rule_of_the_cost(decay, how):
    cost = SimulationCost(decay, DATA)
    new = transformed(cost, how)
    assert isinstance(new, Cost)
    assert list(new.parms.index) == ["A0", "k"]
    assert new().model == pytest.approx(cost().model, rel=1e-12)
    assert new(new.parms).model == pytest.approx(cost().model, rel=1e-12)
    bound = new.bind()
    theta = bound.theta0 + 0.1
    assert bound.jacobian(theta) == pytest.approx(differences(bound.residuals, theta), rel=1e-6)
    assert bound.minus2loglik(theta) == pytest.approx(2 * new(pd.Series(theta, new.parms.index)).minlogp)
    assert bound.modcost(bound.theta0).model == pytest.approx(cost().model, rel=1e-12)


def test_the_values_are_those_of_the_definition(decay):
    assert transformed(decay, "log").parms.tolist() == pytest.approx([np.log(10), np.log(0.5)])
    assert transformed(decay, "log10").parms["A0"] == pytest.approx(1.0)
    assert transformed(decay, "logit", names=["k"]).parms.tolist() == pytest.approx([10.0, 0.0])
    assert transformed(SimulationCost(decay, DATA), "log")({"k": np.log(0.25)}).model == pytest.approx(
        SimulationCost(decay, DATA)({"k": 0.25}).model
    )


def test_parameters_that_are_not_bound_stay_at_their_values(decay):
    bound = transformed(SimulationCost(decay, DATA), "log").bind(["k"])
    plain = SimulationCost(decay, DATA).bind(["k"])
    assert bound.parameter_names == ("k",)
    assert bound.residuals(np.log([0.3])) == pytest.approx(plain.residuals(np.array([0.3])))
    assert bound.names == plain.names


@pytest.mark.parametrize("how", HOWS)
def test_a_transformed_model_is_a_model(decay, how):
    new = transformed(decay, how)
    assert isinstance(new, Model)
    pd.testing.assert_frame_equal(new(), decay(), rtol=1e-12)
    assert new(times=[1.0]).shape == (1, 5)
    bound = new.bind(["k", "A0"], times=[1.0, 2.0])
    Y, S = bound.sensitivities(bound.theta0)
    assert bound.simulate(bound.theta0) == pytest.approx(Y, nan_ok=True)
    expected = differences(bound.simulate, bound.theta0)[:, :3]
    assert S[:, :3] == pytest.approx(expected, rel=1e-6, abs=1e-8)
    cost = SimulationCost(new, DATA)
    assert cost().model == pytest.approx(SimulationCost(decay, DATA)().model, rel=1e-12)


def test_a_transformed_sum_shares_its_runs(decay):
    cost = transformed(SimulationCost(decay, DATA) + SimulationCost(decay, {"time": [1.0], "B": [4.0]}), "log")
    bound = cost.bind()
    decay.runs.clear()
    bound.residuals(bound.theta0)
    assert len(decay.runs) == 1


def test_bounds_are_transformed_and_vanish_beyond_the_ends(decay):
    class Bounded(SimulationCost):
        lower = property(lambda self: pd.Series({"A0": 0.0, "k": 0.1}))
        upper = property(lambda self: pd.Series({"A0": np.inf, "k": 1.0}))

    log = transformed(Bounded(decay, DATA), "log")
    assert log.lower.tolist() == pytest.approx([-np.inf, np.log(0.1)])
    assert log.upper.tolist() == pytest.approx([np.inf, 0.0])
    logit = transformed(Bounded(decay, DATA), {"k": "logit"})
    assert logit.upper["k"] == np.inf
    assert logit.lower["A0"] == 0.0


def test_what_has_no_logarithm_is_told_by_name(make_decay):
    with pytest.raises(ParameterError, match=r"'k' is -1, which has no log; it must be above zero"):
        transformed(make_decay({"k": -1.0}), "log")
    with pytest.raises(ParameterError, match=r"'A0' is 10, which has no logit; it must be between 0 and 1"):
        transformed(SimulationCost(make_decay(), DATA), "logit")
    assert transformed(make_decay({"k": -1.0}), "log", names=["A0"]).parms["k"] == -1.0


def test_unknown_names_and_words_are_told(growth):
    with pytest.raises(ParameterError, match="Did you mean 'N0'"):
        transformed(growth, {"N_0": "log"})
    with pytest.raises(ParameterError, match="Did you mean 'N0'"):
        transformed(growth, "log", names=["N_0"])
    with pytest.raises(ParameterError, match="no parameter '5'"):
        transformed(growth, "log", names=5)
    with pytest.raises(ArgumentError, match="Did you mean 'log'"):
        transformed(growth, "lag")
    with pytest.raises(ArgumentError, match="got int"):
        transformed(3, "log")
    with pytest.raises(ParameterError, match="no parameter 'x'"):
        transformed(growth, "log").bind(["x"])
    with pytest.raises(ParameterError, match="no parameter 'c'"):
        transformed(first_two, {"c": "log"})({"a": 1.0, "b": 2.0})


def test_a_value_too_large_to_be_taken_back_is_a_failed_run(decay):
    bound = transformed(SimulationCost(decay, DATA), "log").bind(["k"])
    with pytest.raises(SimulationError, match="'k' = 1000 is too large"):
        bound.residuals(np.array([1000.0]))


def test_replace_goes_to_the_inner_model_or_cost(decay):
    assert transformed(decay, "log").replace(parms={"k": 1.0}).parms["k"] == 0.0
    assert transformed(SimulationCost(decay, DATA), "log").replace(weight="std").inner.weight == "std"


def test_a_plain_function_is_given_what_it_would_get_otherwise():
    f = transformed(first_two, "log")
    assert f({"a": 0.0, "b": np.log(2.0)}) == pytest.approx((1.0, 2.0))
    assert f(pd.Series({"a": 0.0, "b": np.log(2.0)})) == pytest.approx((1.0, 2.0))
    kept = transformed(lambda p, *a, **k: (p, a, k), {"p2": "log10"})
    p, args, kwargs = kept(np.array([3.0, 2.0]), 1, two=2)
    assert isinstance(p, np.ndarray)
    assert p.tolist() == pytest.approx([3.0, 100.0])
    assert (args, kwargs) == ((1,), {"two": 2})
    assert isinstance(kept(pd.Series({"p1": 1.0, "p2": 1.0}))[0], pd.Series)
    assert isinstance(transformed(lambda p: p, "log", names=["a"])({"a": 0.0, "b": 5.0}), dict)
    assert transformed(lambda p: p, "log", names="a")({"a": 0.0, "b": 5.0}) == {"a": 1.0, "b": 5.0}


def test_all_of_them_pickle(decay):
    for f in (transformed(decay, "log"), transformed(SimulationCost(decay, DATA), "log")):
        again = pickle.loads(pickle.dumps(f))
        assert again.parms.tolist() == f.parms.tolist()
        assert pickle.loads(pickle.dumps(f.bind())).theta0.tolist() == f.parms.tolist()
    assert pickle.loads(pickle.dumps(transformed(first_two, {"a": "log"})))({"a": 0.0, "b": 2.0}) == (1.0, 2.0)


def test_score_and_information_follow_the_chain_rule(decay):
    cost = SimulationCost(decay, DATA)

    class Scored:
        def __init__(self, inner):
            self.__dict__.update(vars(inner), _inner=inner, retries=0)

        def minus2loglik(self, theta):
            return self._inner.minus2loglik(theta)

        def score(self, theta, rough=False):
            return 2 * self._inner.jacobian(theta).T @ self._inner.residuals(theta)

        def information(self, theta, rough=False):
            J = self._inner.jacobian(theta)
            return J.T @ J

    class ScoredCost:
        parms, lower, upper = cost.parms, cost.lower, cost.upper

        def __call__(self, parms=None):
            return 2 * cost(parms).minlogp

        def bind(self, names=None, *, hold_engine=False):
            return Scored(cost.bind(names))

        def replace(self, **arguments):
            return self

    bound = transformed(ScoredCost(), "log").bind()
    theta = bound.theta0
    expected = differences(lambda t: np.array(bound.minus2loglik(t)), theta)
    assert bound.score(theta) == pytest.approx(expected, rel=1e-6)
    J = transformed(cost, "log").bind().jacobian(theta)
    assert bound.information(theta) == pytest.approx(J.T @ J)
    assert not hasattr(transformed(cost, "log").bind(), "score")


def test_maps_of_a_cost_can_be_put_on_each_other(decay):
    cost = SimulationCost(decay, DATA)
    both = MappedCost(transformed(cost, {"k": "log"}), HeldValues(pd.Series({"k": np.log(0.3), "A0": 9.0})))
    assert both.transforms == {"k": "log"}
    assert both.parms.tolist() == pytest.approx([9.0, np.log(0.3)])
    bound = both.bind(["A0"])
    assert bound.residuals(np.array([9.0])) == pytest.approx(cost.bind().residuals(np.array([9.0, 0.3])))
    assert bound.jacobian(np.array([9.0])) == pytest.approx(
        cost.bind(["A0", "k"]).jacobian(np.array([9.0, 0.3]))[:, :1]
    )
    assert "as a function of log(k), with k = -1.2" in repr(both)


def test_the_data_of_a_cost_pass_through_every_map(decay):
    cost = SimulationCost(decay, DATA, weight="std")
    bound, inner = transformed(cost, "log").bind(), cost.bind()
    assert bound.data is inner.data
    assert (bound.names, bound.group_names) == (inner.names, inner.group_names)
    assert bound.weights.tolist() == inner.weights.tolist()
    assert bound.data.observed.values.tolist() == DATA["A"]


def test_a_held_model_is_the_model_at_other_values(decay):
    held = MappedModel(decay, HeldValues(pd.Series({"k": 0.25})))
    pd.testing.assert_frame_equal(held(), decay({"k": 0.25}))
    bound = held.bind(["A0"])
    assert bound.names == ("A0",)
    assert bound.sensitivities(np.array([10.0]))[1].shape[2] == 1
    assert bound.simulate(np.array([10.0])) == pytest.approx(
        decay.bind(["A0", "k"]).simulate(np.array([10.0, 0.25])), nan_ok=True
    )
