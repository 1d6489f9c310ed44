"""Many entities share the runs of one bound model: the same numbers, derivatives that are written out nowhere."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

import fmepy as fme
from fmepy.costs import SimulationCost, by_entity, predictions
from fmepy.costs.by_entity import PredictionsTogether
from fmepy.costs.predictions import PredictionsOfRun
from fmepy.errors import SimulationError
from fmepy.fitting import modFit
from fmepy.models.ode import OdeModel

T = np.array([0.5, 1.0, 2.5, 4.0])


def decay(t, A, *, k=0.5, scale=1.0, offset=0.1):
    return -k * A


def model(**words):
    return OdeModel(decay, state={"A": 10.0}, times=[0, 1, 2, 3, 4], outputs={"y": "scale*A + offset"}, **words)


def data(n, seed=1, jitter=0.0):
    rng = np.random.default_rng(seed)
    k, t = 0.5 * np.exp(0.2 * rng.standard_normal(n)), np.tile(T, n) - jitter * rng.random(n * len(T))
    y = 10 * np.exp(-np.repeat(k, len(T)) * t) + 0.1 + 0.05 * rng.standard_normal(len(t))
    return pd.DataFrame({"tank": np.repeat(np.arange(n), len(T)), "time": t, "y": y})


def apart(monkeypatch, cost, **words):
    """Return the cost bound with a run by itself for every entity."""
    with monkeypatch.context() as m:
        m.setattr(by_entity, "groups_of", lambda models, places: [])
        bound = cost.bind(**words)
    assert all(isinstance(part, PredictionsOfRun) for part in bound.predictions.parts)
    return bound


@pytest.mark.parametrize("local", [("k",), ("k", "offset"), ("scale",)])
@pytest.mark.parametrize(
    "words",
    [{}, {"transform": "log"}, {"interpolate": "grid"}, {"measurement_noise": {"y": "sd*y"}, "parms": {"sd": 0.1}}],
)
def test_values_and_slopes_are_those_of_entities_by_themselves(monkeypatch, local, words):
    cost = SimulationCost(model(), data(6), entity="tank", entity_parms=local, **words)
    together, alone = cost.bind(), apart(monkeypatch, cost)
    (part,) = together.predictions.parts
    assert isinstance(part, PredictionsTogether)
    theta = together.theta0 * np.linspace(0.9, 1.2, together.theta0.size)
    again = pickle.loads(pickle.dumps(together))
    for a, b in ((together, alone), (together.tightened(), alone.tightened()), (again, alone)):
        np.testing.assert_array_equal(a.predictions.values(theta), b.predictions.values(theta))
        for one, other in zip(a.predictions.with_slopes(theta), b.predictions.with_slopes(theta), strict=True):
            np.testing.assert_array_equal(one, other)
    assert together.minus2loglik(theta) == alone.minus2loglik(theta)
    np.testing.assert_array_equal(
        together.predictions.values_many(theta[None])[0], alone.predictions.values_many(theta[None])[0]
    )


def test_some_parameters_alone_may_be_bound_and_one_may_stand_for_two(monkeypatch):
    rows = pd.DataFrame({"tank": range(4), "scale": ["u", "u", 1.5, "k[3]"], "offset": ["u", 0.1, 0.2, 0.3]})
    cost = SimulationCost(model(), data(4), entity="tank", entity_parms=["k"], conditions=rows, parms={"u": 1.1})
    for names in (["u"], ["k[3]", "u"], None):
        together, alone = cost.bind(names), apart(monkeypatch, cost, names=names)
        theta = together.theta0 * 1.1
        np.testing.assert_allclose(together.jacobian(theta), alone.jacobian(theta), rtol=1e-5, atol=1e-5)
        J = together.predictions.compared_with_slopes(theta, sparse=True)[1].toarray()
        np.testing.assert_allclose(J, together.jacobian(theta), rtol=1e-12, atol=1e-12)


def test_times_of_their_own_are_runs_of_all_their_times_where_there_are_many(monkeypatch):
    few = SimulationCost(model(), data(6, jitter=0.3), entity="tank", entity_parms=["k"])
    assert all(isinstance(part, PredictionsOfRun) for part in few.bind().predictions.parts)
    cost = SimulationCost(model(rtol=1e-10, atol=1e-12), data(120, jitter=0.3), entity="tank", entity_parms=["k"])
    together, alone = cost.bind(), apart(monkeypatch, cost)
    assert 1 < len(together.predictions.parts) < 10
    theta = together.theta0 * 1.1
    np.testing.assert_allclose(together.residuals(theta), alone.residuals(theta), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(together.jacobian(theta), alone.jacobian(theta), rtol=1e-6, atol=1e-7)


def test_runs_of_many_rows_are_not_all_in_memory_at_once(monkeypatch):
    cost = SimulationCost(model(), data(9), entity="tank", entity_parms=["k"])
    whole = cost.bind()
    monkeypatch.setattr("fmepy.costs.by_entity.MOST_AT_ONCE", 4 * len(T))
    pieces = cost.bind()
    assert [len(part._models) for part in pieces.predictions.parts[:2]] == [4, 4]
    assert isinstance(pieces.predictions.parts[2], PredictionsOfRun)
    theta = whole.theta0 * 1.1
    np.testing.assert_array_equal(pieces.residuals(theta), whole.residuals(theta))
    np.testing.assert_array_equal(pieces.jacobian(theta), whole.jacobian(theta))


def test_a_run_that_fails_is_made_by_itself_and_named():
    grows = OdeModel("d(A)/dt = k*A**2", state={"A": 1.0}, times=[0, 1, 2], parms={"k": 0.1})
    n = 60  # entity 7 is read early: its run ends before it explodes
    table = pd.DataFrame({"tank": np.repeat(np.arange(n), 2), "time": np.tile([0.5, 2.0], n), "A": 1.0})
    table.loc[table["tank"] == 7, "time"] = [0.1, 0.2]
    bound = SimulationCost(grows, table, entity="tank", entity_parms=["k"]).bind()
    assert len(bound.predictions.parts) == 1
    theta = np.full(n, 0.1)
    theta[7] = 2.0
    mod, slopes = bound.predictions.with_slopes(theta)
    np.testing.assert_allclose(mod[14:16], 1 / (1 - 2.0 * np.array([0.1, 0.2])), rtol=1e-5)
    np.testing.assert_allclose(bound.predictions.values(theta), mod, rtol=1e-5)
    np.testing.assert_allclose(
        slopes[14:16, 7], np.array([0.1, 0.2]) / (1 - 2.0 * np.array([0.1, 0.2])) ** 2, rtol=1e-4
    )
    theta[9] = 5.0
    with pytest.raises(SimulationError, match=r"Entity '9': The run failed") as told:
        bound.residuals(theta)
    assert told.value.parameters["k"] == 5.0


def test_a_fit_with_a_sparse_jacobian_is_that_with_a_dense_one(monkeypatch):
    cost = SimulationCost(model(rtol=1e-9, atol=1e-11), data(80), entity="tank", entity_parms=["k"])
    names = [n for n in cost.parms.index if n != "scale"]
    fit = modFit(cost, names)
    assert fit.engine == "scipy least_squares (trf)"
    assert fit.converged
    assert fit.rank == len(names)
    with monkeypatch.context() as m:
        m.setattr("fmepy.costs.predictions.MANY", 1000)
        m.setattr("fmepy.numerics.covariance.MANY", 1000)
        dense = modFit(cost, names)
        errors = dense.std_error
    assert dense.engine == "MINPACK lmder"
    assert fit.ssr == pytest.approx(dense.ssr, rel=1e-9)
    np.testing.assert_allclose(fit.par, dense.par, atol=1e-4 * errors.min())
    np.testing.assert_allclose(fit.std_error, errors, rtol=1e-4)
    assert "of 81 parameters, see `correlation`" in str(fit.summary())
    bounded = modFit(cost, {**cost.parms[names], "offset": 0.3}, lower={"offset": 0.2})
    assert bounded.par["offset"] == 0.2
    assert bounded.at_bound == ("offset",)
    assert bounded.converged
    with pytest.warns(UserWarning, match="errors of some data"):
        prior = modFit(cost, names, prior={"offset": norm(0.3, 0.01)})
    assert fit.par["offset"] < prior.par["offset"] < 0.3


def test_what_the_data_leave_undetermined_is_told_of_many_too():
    cost = SimulationCost(model().replace(state={"A": "a"}, parms={"a": 10.0}), data(80), entity="tank",
                          entity_parms=["k"])  # fmt: skip
    fit = modFit(cost, [n for n in cost.parms.index if n != "offset"])
    assert fit.rank == len(fit.names) - 1
    assert "undetermined (relative changes): " in fit.message
    assert fit.std_error.isna().all()


def test_transformed_costs_of_many_entities_are_sparse_too():
    from fmepy.costs.mapped import transformed

    cost = transformed(SimulationCost(model(), data(70), entity="tank", entity_parms=["k"]), "log")
    bound = cost.bind()
    assert bound.is_sparse
    theta = bound.theta0 + 0.05
    np.testing.assert_allclose(bound.sparse_jacobian(theta).toarray(), bound.jacobian(theta), rtol=1e-12, atol=1e-14)


# --- noise of many entities


def many_noisy(n, **words):
    rng = np.random.default_rng(4)
    t, ka = np.tile(np.arange(1.0, 6.0), n), np.repeat(np.exp(rng.normal(-0.7, 0.3, n)), 5)
    table = pd.DataFrame({"subject": np.repeat(np.arange(n), 5), "time": t})
    table["A"] = 10 * np.exp(-ka * t) * (1 + 0.05 * rng.standard_normal(t.size))
    model = fme.OdeModel("d(A)/dt = -ka*A", state={"A": 10.0}, times=np.arange(6.0), parms={"ka": 0.5})
    return fme.SimulationCost(model, table, entity="subject", entity_parms=["ka", *words.pop("local", ())], **words)


@pytest.mark.parametrize("transform", [None, "log"])
def test_noise_of_many_entities_has_the_same_score_and_information_by_sparse_arrays(transform, monkeypatch):
    words = {"measurement_noise": {"A": "a + b*A"}, "parms": {"a": 0.1, "b": 0.02}, "transform": transform}
    bound = many_noisy(70, local=["a"], **words).bind()
    assert bound.is_sparse
    theta = bound.theta0 * np.linspace(0.9, 1.1, bound.theta0.size)
    score, information = bound.score(theta), bound.information(theta)
    rows = bound.sensitivity_rows(theta)[2]
    monkeypatch.setattr(predictions, "MANY", 10**6)
    plain = many_noisy(70, local=["a"], **words).bind()
    assert not plain.is_sparse
    np.testing.assert_allclose(score, plain.score(theta), rtol=1e-10)
    np.testing.assert_allclose(information, plain.information(theta), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rows, plain.sensitivity_rows(theta)[2], rtol=1e-10, atol=1e-12)


def test_a_fit_of_many_noisy_entities_takes_few_runs_and_finds_what_each_alone_says():
    cost = many_noisy(80, measurement_noise={"A": "estimate"})
    fit = fme.modFit(cost)
    assert fit.converged
    assert fit.evaluations < 100
    few = many_noisy(80, measurement_noise={"A": float(fit.par["sd_v_A"])})
    alone = fme.modFit(few, {"ka[17]": 0.5})
    assert fit.par["ka[17]"] == pytest.approx(alone.par["ka[17]"], rel=1e-5)
    assert fit.std_error["ka[17]"] == pytest.approx(alone.std_error["ka[17]"], rel=1e-3)


def test_numbers_of_conditions_are_inputs_of_one_bound_model(monkeypatch):
    n, rng = 60, np.random.default_rng(6)
    doses, t = rng.uniform(5, 15, n), np.arange(1.0, 5.0)
    table = pd.DataFrame({"subject": np.repeat(np.arange(n), 4), "time": np.tile(t, n)})
    table["A"] = np.repeat(doses, 4) * np.exp(-0.5 * table["time"]) + 0.1 * rng.standard_normal(4 * n)
    dosed = OdeModel(
        "d(A)/dt = -ka*A",
        state={"A": "dose"},
        times=np.arange(5.0),
        parms={"ka": 0.4, "dose": 1.0},
        rtol=1e-9,
        atol=1e-9,
    )
    words = {"conditions": pd.DataFrame({"subject": range(n), "dose": doses}), "entity_parms": ["ka"]}
    cost = SimulationCost(dosed, table, entity="subject", parms={"ka[7]": 0.6}, **words)
    bound = cost.bind()
    assert [type(part) for part in bound.predictions.parts] == [PredictionsTogether]
    theta = bound.theta0 * rng.uniform(0.9, 1.1, n)
    expected = np.repeat(doses, 4) * np.exp(-np.repeat(theta, 4) * np.tile(t, n))
    np.testing.assert_allclose(bound.residuals(theta), expected - table["A"], atol=1e-6)
    J = bound.jacobian(theta)
    np.testing.assert_allclose(J[28:32, 7], -t * expected[28:32], atol=1e-5)
    assert np.count_nonzero(J) == 4 * n, "of the doses there are no derivatives"
    monkeypatch.setattr(by_entity, "MANY", 10**6)
    alone = cost.replace().bind()
    assert len(alone.predictions.parts) == n
    np.testing.assert_allclose(alone.residuals(theta), bound.residuals(theta), atol=1e-7)
