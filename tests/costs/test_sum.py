"""A sum of costs keeps the written order and solves a shared model once."""

import pickle

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import Cost, SimulationCost, SumCost, modCost
from fmepy.costs.mapped import transformed
from fmepy.costs.modcost import tabulate
from fmepy.costs.observation_scale import observation_scale
from fmepy.costs.observations import Comparison
from fmepy.costs.sum import AddableCost
from fmepy.errors import ArgumentError, ParameterError, SimulationError
from fmepy.fitting import modFit, predict
from fmepy.mcmc import modMCMC
from fmepy.montecarlo import sensRange
from fmepy.sensitivity import sensFun

A_DATA = {"time": [0.5, 1.5, 2.5], "A": [8.0, 5.0, 3.0]}
B_DATA = {"time": [1.0, 2.0, 4.0], "B": [4.0, 6.0, 9.0]}
N_DATA = {"time": [10.0, 20.0], "N": [15.0, 90.0]}


def differences(f, theta, h=1e-6):
    return np.stack([(f(theta + h * e) - f(theta - h * e)) / (2 * h) for e in np.eye(len(theta))], axis=1)


class LineCost(AddableCost):
    """A residual cost of another kind: one residual, slope - 2, error 0.5."""

    def __init__(self):
        self.parms = pd.Series({"slope": 3.0})
        self.lower, self.upper = pd.Series({"slope": 0.0}), pd.Series({"slope": np.inf})

    def __call__(self, parms=None):
        values = {**self.parms, **(parms or {})}
        one, none, scale = np.ones(1), np.zeros(1, dtype=int), observation_scale([None])
        line = ("line",)
        compared = Comparison(line, 0 * one, 2 * one, none, one, line, 2 * one, scale, none, none, "x")
        return tabulate(compared, np.array([values["slope"]]))

    def bind(self, names=None, *, hold_engine=False):
        return BoundLine()

    def replace(self, **arguments):
        return self


class BoundLine:
    parameter_names, theta0 = ("slope",), np.array([3.0])
    lower, upper = np.array([0.0]), np.array([np.inf])
    is_scalar, has_jacobian, retries = False, True, 2
    names, x, weights, groups = ("line",), np.zeros(1), np.array([2.0]), np.array([0])
    scales, group_names = np.ones(1), ("line",)

    def residuals(self, theta):
        return 2.0 * (theta - 2.0)

    def jacobian(self, theta):
        return np.array([[2.0]])

    def minus2loglik(self, theta):
        return float(np.sum(self.residuals(theta) ** 2) + np.log(2 * np.pi) - 2 * np.log(2))


class ScalarCost(AddableCost):
    """A cost that gives -2 log L alone: (k - 1)^2."""

    def __init__(self):
        self.parms = pd.Series({"k": 0.5})
        self.lower, self.upper = pd.Series({"k": 0.1}), pd.Series({"k": 2.0})

    def __call__(self, parms=None):
        return self.bind().minus2loglik(np.array([{**self.parms, **(parms or {})}["k"]]))

    def bind(self, names=None, *, hold_engine=False):
        bound = BoundLine()
        bound.is_scalar, bound.has_jacobian, bound.parameter_names = True, False, ("k",)
        bound.theta0 = np.array([0.5])
        bound.minus2loglik = lambda theta: float((theta[0] - 1.0) ** 2)
        return bound

    def replace(self, **arguments):
        return self


def test_a_sum_is_the_sum_of_its_parts_in_the_order_written(decay, growth):
    a, n, b = SimulationCost(decay, A_DATA), SimulationCost(growth, N_DATA), SimulationCost(decay, B_DATA, weight="std")
    cost = a + n + b
    parms = {"k": 0.4, "r": 0.45}
    parts = a({"k": 0.4}) + n({"r": 0.45}) + b({"k": 0.4})
    assert cost(parms).model == pytest.approx(parts.model, rel=1e-14)
    assert cost(parms).minlogp == pytest.approx(parts.minlogp, rel=1e-14)
    pd.testing.assert_frame_equal(cost(parms).residuals.drop(columns="part"), parts.residuals)
    assert cost(parms).residuals["part"].tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    pd.testing.assert_frame_equal(cost(parms).var, parts.var)
    assert list(cost.parms.index) == ["A0", "k", "r", "K", "N0"]
    bound = cost.bind()
    assert bound.names == ("A",) * 3 + ("N",) * 2 + ("B",) * 3
    assert bound.groups.tolist() == [0, 0, 0, 1, 1, 2, 2, 2]
    assert bound.group_names == ("A", "N", "B")
    assert bound.x.tolist() == parts.residuals["x"].tolist()
    assert bound.weights.tolist() == parts.residuals["weight"].tolist()
    assert bound.residuals(bound.theta0).tolist() == pytest.approx(cost().residuals["res"].tolist())
    assert bound.minus2loglik(bound.theta0) == pytest.approx(2 * cost().minlogp)


def test_a_shared_model_is_solved_once_for_all_parts_with_the_union_of_their_times(decay):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(decay, B_DATA) + SimulationCost(decay, {"time": 4, "B": 8})
    bound = cost.bind(["k"])
    decay.runs.clear()
    bound.residuals(np.array([0.4]))
    assert [kind for kind, _ in decay.runs] == ["run"]
    assert decay.runs[0][1].tolist() == [0.5, 1.0, 1.5, 2.0, 2.5, 4.0]
    bound.jacobian(np.array([0.4]))
    assert [kind for kind, _ in decay.runs] == ["run", "sensitivities"]
    bound.minus2loglik(np.array([0.4]))
    cost({"k": 0.4})
    bound.modcost(np.array([0.4]))
    assert len(decay.runs) == 5


def test_exact_grid_and_mean_parts_share_one_run_too(decay):
    parts = [
        SimulationCost(decay, A_DATA),
        SimulationCost(decay, {"time": [0.7], "A": [7.0]}, interpolate="grid"),
        SimulationCost(decay, {"B": 5.0}, x=None),
    ]
    cost = sum(parts)
    bound = cost.bind()
    decay.runs.clear()
    r = bound.residuals(bound.theta0)
    assert len(decay.runs) == 1
    expected = np.concatenate([p().residuals["res"].to_numpy() for p in parts])
    assert r.tolist() == pytest.approx(expected.tolist(), rel=1e-13)
    assert bound.jacobian(bound.theta0) == pytest.approx(differences(bound.residuals, bound.theta0), rel=1e-7)


def test_parts_that_share_a_run_keep_their_own_transforms_and_groups(decay):
    parts = [SimulationCost(decay, B_DATA), SimulationCost(decay, A_DATA, transform="log")]
    cost = parts[0] + parts[1] + SimulationCost(decay, B_DATA, transform="sqrt")
    expected = (parts[0]() + parts[1]() + cost.parts[2]()).residuals
    pd.testing.assert_frame_equal(cost().residuals.drop(columns="part"), expected)
    bound = cost.bind()
    assert bound.residuals(bound.theta0).tolist() == pytest.approx(expected["res"].tolist())
    assert bound.jacobian(bound.theta0) == pytest.approx(differences(bound.residuals, bound.theta0), rel=1e-6)
    together = SimulationCost.bind_together(cost.parts, ["k"])
    assert together.groups.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    separate = together.modcost(np.array([0.5])).var
    assert separate["name"].tolist() == ["B", "A", "B"]
    pd.testing.assert_frame_equal(separate.assign(name=["B[0]", "A", "B[2]"]), cost().var)


def test_each_model_of_a_series_of_experiments_is_solved(make_decay):
    base = make_decay()
    models = [base.replace(parms={"A0": a}) for a in (5.0, 10.0, 20.0)]
    cost = sum(SimulationCost(m, A_DATA) for m in models)
    assert isinstance(cost, SumCost)
    assert len(cost.parts) == 3
    cost({"k": 0.4})
    assert [len(m.runs) for m in models] == [1, 1, 1]


def test_a_parameter_that_differs_between_experiments_keeps_its_own_value_in_each(make_decay):
    five, ten = make_decay({"A0": 5.0}), make_decay({"A0": 10.0})
    cost = SimulationCost(five, A_DATA) + SimulationCost(ten, A_DATA)
    assert list(cost.parms.index) == ["k"]
    mod = cost().residuals["mod"].to_numpy()
    assert mod[3:] == pytest.approx(2 * mod[:3])
    told = r"different values of 'A0' \(5, 10\).*give their models the same one.*`conditions=`"
    for ask in (
        lambda: cost.bind(),
        lambda: cost.bind(["A0"]),
        lambda: cost({"A0": 3.0}),
        lambda: modFit(cost),
        lambda: modFit(cost, {"A0": 3.0, "k": 0.5}),
        lambda: modMCMC(cost, five.parms, var0=1.0),
        lambda: sensFun(cost),
        lambda: modFit(transformed(cost, "log")),
    ):
        with pytest.raises(ParameterError, match=told):
            ask()
    k = modFit(cost, ["k"]).par["k"]
    assert cost({"k": k}).residuals["mod"].to_numpy()[3:] == pytest.approx(2 * cost({"k": k}).residuals["mod"][:3])


def test_the_same_name_in_two_models_is_the_same_parameter(make_decay):
    cost = SimulationCost(make_decay(), A_DATA) + SimulationCost(make_decay(), B_DATA)
    bound = cost.bind(["k"])
    J = bound.jacobian(np.array([0.4]))
    assert J.shape == (6, 1)
    assert (J != 0).all()


@pytest.mark.parametrize("names", [None, ["k"], ["r", "k"], ["K"]])
def test_the_jacobian_is_that_of_the_residuals(decay, growth, names):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(growth, N_DATA) + SimulationCost(decay, B_DATA)
    bound = cost.bind(names)
    theta = 1.05 * bound.theta0
    assert bound.jacobian(theta) == pytest.approx(differences(bound.residuals, theta), rel=1e-5, abs=1e-6)
    assert bound.has_jacobian


def test_sums_are_taken_apart_and_zero_is_the_start_of_sum(decay):
    a, b = SimulationCost(decay, A_DATA), SimulationCost(decay, B_DATA)
    c = SimulationCost(decay, {"time": [3.0], "A": [2.0]})
    assert (a + (b + c)).parts == ((a + b) + c).parts == (a, b, c)
    assert sum([a, b]).parts == (a, b)
    assert sum([a]) is a
    for wrong in (lambda: a + 3, lambda: 3 + a, lambda: a + a(), lambda: "a" + a):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ArgumentError, match="got str"):
        SumCost((a, "b"))
    with pytest.raises(ArgumentError, match="at least one"):
        SumCost(())


def test_a_cost_of_another_kind_can_be_added_on_either_side(decay):
    line, a = LineCost(), SimulationCost(decay, A_DATA)
    for cost, first in ((line + a, "line"), (a + line, "A")):
        bound = cost.bind(["k", "slope"])
        assert bound.names[0] == first
        assert cost().var["name"].tolist()[0] == first
        assert cost({"slope": 2.5}).model == pytest.approx(1.0 + a().model)
        assert bound.minus2loglik(bound.theta0) == pytest.approx(2 * cost().minlogp)
        assert bound.residuals(bound.theta0).tolist() == pytest.approx(cost().residuals["res"].tolist())
        assert bound.jacobian(bound.theta0) == pytest.approx(differences(bound.residuals, bound.theta0), rel=1e-7)
        assert bound.retries == 2
    assert bound.lower.tolist() == [-np.inf, 0.0]


def test_a_scalar_part_makes_the_sum_scalar(decay):
    a = SimulationCost(decay, A_DATA)
    cost = a + ScalarCost()
    assert cost({"k": 0.4}) == pytest.approx(2 * a({"k": 0.4}).minlogp + 0.36)
    bound = cost.bind(["k"])
    assert bound.is_scalar
    assert not bound.has_jacobian
    assert bound.names == ()
    assert bound.weights.size == bound.scales.size == bound.groups.size == 0
    assert (bound.lower.tolist(), bound.upper.tolist()) == ([0.1], [2.0])
    assert bound.minus2loglik(np.array([0.4])) == pytest.approx(cost({"k": 0.4}))
    for ask in (bound.residuals, bound.jacobian, bound.modcost):
        with pytest.raises(ArgumentError, match="gives -2 log L alone"):
            ask(np.array([0.4]))


def test_a_part_that_the_bound_parameters_do_not_touch_stays_as_it_is(decay, growth):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(growth, N_DATA)
    bound = cost.bind(["r"])
    assert bound.residuals(np.array([0.4]))[:3].tolist() == pytest.approx(cost().residuals["res"][:3].tolist())
    assert (bound.jacobian(np.array([0.4]))[:3] == 0).all()


def test_unknown_parameters_and_failed_runs_are_told(decay, growth):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(growth, N_DATA)
    with pytest.raises(ParameterError, match="Did you mean 'N0'"):
        cost.bind(["N_0"])
    with pytest.raises(ParameterError, match="Did you mean 'N0'"):
        cost({"N_0": 1.0})
    with pytest.raises(SimulationError, match="The run failed"):
        cost({"k": 1000.0})


def test_a_name_cannot_be_a_parameter_in_one_part_and_its_logarithm_in_another(decay):
    a, b = SimulationCost(decay, A_DATA), SimulationCost(decay, B_DATA)
    with pytest.raises(ArgumentError, match=r"transformed\(a \+ b"):
        transformed(a, "log") + b
    assert (transformed(a, "log") + transformed(b, "log"))().model == pytest.approx((a + b)().model)


def test_a_sum_is_a_cost_pickles_and_is_replaced_part_by_part(decay):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(decay, B_DATA)
    assert isinstance(cost, Cost)
    value = cost().model
    again = pickle.loads(pickle.dumps(cost))
    assert again().model == value
    bound = again.bind(["k"])
    model = again.parts[0].model
    model.runs.clear()
    bound.residuals(np.array([0.5]))
    assert len(model.runs) == 1, "the model is still shared after pickling"
    assert [p.weight for p in cost.replace(weight="mean").parts] == ["mean", "mean"]
    assert len(cost.replace(parts=cost.parts[:1]).parts) == 1
    with pytest.raises(ArgumentError, match="several tables"):
        cost.replace(obs=A_DATA)
    assert "A (3)" in repr(cost)


def test_hold_engine_reaches_every_model(decay, growth):
    (SimulationCost(decay, A_DATA) + SimulationCost(growth, N_DATA)).bind(["k", "r"], hold_engine=True)
    assert decay.bindings[-1] == (("k",), True)
    assert growth.bindings[-1] == (("r",), True)


def test_a_sum_of_costs_without_filters_says_so(decay, growth):
    with pytest.raises(ArgumentError, match="Only a FimlofCost has a filter; a part of this sum is SimulationCost"):
        (SimulationCost(decay, A_DATA) + SimulationCost(growth, N_DATA)).filter()


# --- parts stay apart

A_AGAIN = {"time": [0.2, 0.7, 1.2, 3.0], "A": [9.5, 6.5, 6.0, 2.0]}


def test_a_variable_that_several_parts_observe_bears_their_numbers(decay, growth):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(growth, N_DATA) + SimulationCost(decay, A_AGAIN)
    names = ["A[0]", "N", "A[2]"]
    assert cost().var["name"].tolist() == cost().dropped["name"].tolist() == names
    assert cost().residuals["part"].tolist() == [0] * 3 + [1] * 2 + [2] * 4
    assert cost().residuals["name"].tolist() == ["A"] * 3 + ["N"] * 2 + ["A"] * 4
    fit = modFit(cost, ["k", "r"])
    assert list(fit.var_ms_unweighted.index) == list(fit.var_ms.index) == names
    assert fit.residuals.index.tolist() == ["A[0]"] * 3 + ["N"] * 2 + ["A[2]"] * 4
    by_part = fit.cost.residuals.groupby("part")["res.unweighted"].apply(lambda r: np.mean(r**2))
    assert fit.var_ms_unweighted.to_numpy() == pytest.approx(by_part.to_numpy())
    assert len(fit.plot()) >= 3


def test_a_chain_on_a_sum_samples_a_variance_a_part_and_its_errors_can_be_added(decay):
    t = np.arange(5.0)
    quiet = {"time": t, "A": 10 * np.exp(-0.5 * t) + 0.01 * np.array([1, -1, 1, -1, 1]), "sd": 0.01}
    cost = SimulationCost(decay, quiet, err="sd") + SimulationCost(decay, A_AGAIN) + SimulationCost(decay, B_DATA)
    fit = modFit(cost, ["k"])
    chain = modMCMC(cost, fit.par, jump=0.01, var0=fit.var_ms_unweighted, wvar0=1, niter=300, lower=0, seed=1)
    assert list(chain.sig.columns) == ["var_A[0]", "var_A[1]", "var_B"]
    runs = sensRange(decay, sensvar="A", parInput=chain.pars, num=200, seed=2)
    noisy = runs.with_error(chain.sig, seed=3)
    spread = (noisy.values - runs.values)[:, 0].std(axis=1)  # of a run's readings of A
    small = spread < 0.1
    assert 60 < small.sum() < 140, "half of the runs are read as in each part"
    assert np.median(spread[~small]) > 10 * np.median(spread[small])
    one = runs.with_error(chain.sig[["var_A[0]"]], seed=3)
    assert (one.values - runs.values)[:, 0].std() < 0.1


def test_a_reading_is_predicted_with_the_variances_of_all_parts(decay):
    cost = SimulationCost(decay, A_DATA) + SimulationCost(decay, A_AGAIN)
    fit = modFit(cost, ["k"])
    curve, reading = (predict(decay, fit, reading=r).frame.query("var == 'A'")["se"] for r in (False, True))
    added = fit.var_ms_unweighted.mean() * fit.nobs / fit.df_residual
    assert (reading**2 - curve**2).to_numpy() == pytest.approx(added)


def test_the_same_model_and_data_twice_are_told(decay, make_decay):
    a, b = SimulationCost(decay, A_DATA), SimulationCost(decay, B_DATA)
    for add in (
        lambda: a + b + a,
        lambda: a + SimulationCost(decay, A_DATA),
        lambda: transformed(a, "log") + transformed(SimulationCost(decay, A_DATA), "log"),
        lambda: modCost(decay(), A_DATA) + modCost(decay(), A_DATA),
        lambda: modCost(decay(), A_DATA, cost=modCost(decay(), A_DATA)),
    ):
        with pytest.warns(UserWarning, match="same model with the same data .*counts twice"):
            add()
    a + SimulationCost(make_decay(), A_DATA)  # another model: another experiment with equal readings
    modCost(decay(), A_DATA) + modCost(decay({"k": 0.4}), A_DATA)


def test_dates_that_count_from_different_days_are_told(decay):
    def table(first):
        return {"day": pd.date_range(first, periods=3), "A": [8.0, 5.0, float(first[-1])]}

    def dated(first, **words):
        return SimulationCost(decay, table(first), x="day", unit="days", **words)

    early, late = dated("2020-01-01"), dated("2020-01-02")
    run = decay().rename(columns={"time": "day"})
    compared = [modCost(run, table(first), x="day", unit="days") for first in ("2020-01-01", "2020-01-02")]
    for add in (
        lambda: early + late,
        lambda: transformed(late, "log") + transformed(early, "log"),
        lambda: compared[0] + compared[1],
    ):
        with pytest.warns(UserWarning, match=r"different days \('2020-01-01', '2020-01-02'\).* origin='2020-01-01'"):
            add()
    same = dated("2020-01-02", origin="2020-01-01")
    assert (early + same)().residuals["x"].tolist() == [0, 1, 2, 1, 2, 3]
    dated("2020-01-01", origin="2020-01-01") + dated("2020-01-02", origin="2020-01-02")  # they were said


def test_a_sum_of_transformed_parts_says_so(decay):
    cost = transformed(SimulationCost(decay, A_DATA), "log") + transformed(SimulationCost(decay, B_DATA), "log")
    fit = modFit(cost, ["k"])
    assert fit.transforms["k"] == "log"
    with pytest.raises(ArgumentError, match=r"fit is of log\(k\)"):
        predict(decay, fit)
