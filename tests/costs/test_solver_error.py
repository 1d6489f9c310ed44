"""Fits and chains tell what the solver's own error is worth, in units of -2 log L."""

import numpy as np
import pytest
from lmfit import create_params

import fmepy as fme
from fmepy.costs.solver_error import solver_error, told_error
from fmepy.errors import SimulationError

TEXT = "d(R)/dt = a*R - b*R*P\nd(P)/dt = b*R*P - c*P"
TIMES = np.linspace(0.0, 60.0, 61)
PARMS = {"a": 1.0, "b": 1.0, "c": 1.0}
NAMES = ["a", "b", "c"]


def prey(**arguments):
    return fme.OdeModel(TEXT, state={"R": 1.0, "P": 0.5}, times=TIMES, parms=PARMS, **arguments)


def readings(sd):
    truth = prey(engine="scipy", rtol=1e-11, atol=1e-12)()["R"].to_numpy()[1:]
    return {"time": TIMES[1:], "R": truth + sd * np.random.default_rng(3).standard_normal(60)}


def by_hand(model, obs, theta, sd):
    """The change of -2 log L at a point, from two runs."""
    tight = model.replace(rtol=1e-8, atol=1e-2 * model.atol)
    sharp, own = (m(theta)["R"].to_numpy()[1:] - obs["R"] for m in (tight, model))
    return abs(sharp @ sharp - own @ own) / sd**2


@pytest.fixture(scope="module")
def precise():
    return readings(1e-4)


@pytest.fixture(scope="module")
def coarse():
    return readings(0.3)


@pytest.mark.parametrize("engine", ["auto", "explicit", "scipy"])
def test_a_fit_tells_what_tolerances_change(precise, engine):
    model = prey(engine=engine)
    fit = fme.modFit(fme.SimulationCost(model, precise), NAMES)
    expected = by_hand(model, precise, fit.par, np.sqrt(fit.ms))
    assert fit.solver_error == pytest.approx(expected, rel=1e-6)
    assert fit.solver_error > 0.1
    assert fit.converged == (fit.solver_error <= 1)  # the search itself has ended well
    assert "Lower `rtol` and `atol`" in fit.message
    assert "solver_error" in " ".join(repr(fit.summary()).split())


def epidemic(**arguments):
    text = "d(S)/dt = -b*S*I\nd(I)/dt = b*S*I - 0.1*I"
    parms = {"b": 0.4, "I0": 1e-7}
    return fme.OdeModel(text, state={"S": 1, "I": "I0"}, times=np.arange(0, 101.0), parms=parms, **arguments)


def test_a_fit_that_the_solver_moves_has_not_converged_and_says_what_to_type(caplog):
    rng = np.random.default_rng(1)
    sharp = epidemic(engine="scipy", rtol=1e-10)({"b": 0.5}).iloc[10::5]
    obs = {"time": sharp["time"], "I": sharp["I"] + 1e-3 * rng.standard_normal(len(sharp)), "sd": 1e-3}
    coarse = fme.modFit(fme.SimulationCost(epidemic(atol=1e-6), obs, err="sd"), {"b": 0.45})
    assert coarse.solver_error > 1
    assert not coarse.converged
    assert "such as rtol=1e-9" in coarse.message
    assert "states grow from values" in caplog.text
    fit = fme.modFit(fme.SimulationCost(epidemic(rtol=1e-8), obs, err="sd"), {"b": 0.45})
    assert fit.converged
    assert fit.solver_error < 0.1
    assert fit.par["b"] == pytest.approx(0.5, abs=4 * fit.std_error["b"])


def test_data_without_noise_are_no_measure_for_the_solver():
    model = prey()
    exact = model({"a": 1.1})
    fit = fme.modFit(fme.SimulationCost(model, exact[["time", "R"]]), ["a"])
    assert fit.solver_error > 1
    assert fit.converged
    assert "solver" not in fit.message + str(fit.summary())


def test_smaller_tolerances_make_it_small_and_silent(precise, coarse):
    for fit in (
        fme.modFit(fme.SimulationCost(prey(engine="scipy", rtol=1e-10, atol=1e-12), precise), NAMES),
        fme.modFit(fme.SimulationCost(prey(), coarse), NAMES),
    ):
        assert fit.solver_error < 0.1
        assert "solver" not in fit.message
        assert "solver" not in repr(fit.summary())


def test_errors_of_the_data_and_priors_set_the_unit(precise):
    from scipy import stats

    model = prey()
    cost = fme.SimulationCost(model, {**precise, "sd": np.full(60, 1e-4)}, err="sd")
    fit = fme.modFit(cost, NAMES, prior={"a": stats.norm(1, 10)})
    assert fit.solver_error == pytest.approx(by_hand(model, precise, fit.par, 1e-4), rel=1e-6)


def test_sums_and_transforms_pass_it_on(precise):
    cost = fme.SimulationCost(prey(), precise)
    one = cost.bind(NAMES)
    theta = np.ones(3)
    change = one.tightened().residuals(theta) - one.residuals(theta)
    assert np.abs(change).max() > 0
    both = (cost + fme.SimulationCost(prey(method="rk4"), precise)).bind(NAMES)
    np.testing.assert_allclose(
        both.tightened().residuals(theta) - both.residuals(theta), np.concatenate([change, np.zeros(60)])
    )
    logs = fme.transformed(cost, "log").bind(NAMES)
    np.testing.assert_array_equal(logs.tightened().residuals(np.zeros(3)), one.tightened().residuals(theta))
    model = fme.SimulationCost(fme.transformed(prey(), "log"), precise).bind(NAMES)
    np.testing.assert_array_equal(model.tightened().residuals(np.zeros(3)), one.tightened().residuals(theta))
    held = fme.modFit(cost, create_params(a=1.0, b={"value": 1.0, "vary": False}, c=1.0))
    assert held.solver_error > 0.1


def test_chains_tell_it_at_their_best_point(precise):
    cost = fme.SimulationCost(prey(), {**precise, "sd": np.full(60, 1e-4)}, err="sd")
    chain = fme.modMCMC(cost, dict(PARMS), jump=1e-6, niter=20, seed=1)
    assert chain.solver_error == pytest.approx(by_hand(prey(), precise, chain.bestpar, 1e-4), rel=1e-6)
    assert "solver_error" in chain.message
    sampled = fme.modMCMC(
        fme.SimulationCost(prey(), precise), dict(PARMS), jump=1e-6, niter=20, seed=1, var0=1e-8, wvar0=0.1
    )
    assert sampled.solver_error > 0.1


def test_likelihoods_by_filtering_tell_it_where_a_solver_runs(coarse):
    def cost(propagation, text=TEXT, start=None, dt=None):
        model = fme.OdeModel(text, state=start or {"R": 1.0, "P": 0.5}, times=TIMES, parms=PARMS)
        obs = {"time": coarse["time"][:5], "R": coarse["R"][:5]}
        noise = {"process_noise": {"R": 0.1}, "measurement_noise": {"R": 0.3}}
        return fme.FimlofCost(model, obs, propagation=propagation, dt=dt, **noise)

    assert 0 < fme.modFit(cost("ode"), ["a"], control={"maxiter": 1}).solver_error < 1e-4
    bound = cost("moment").bind(["a"])
    assert 0 < abs(bound.tightened().minus2loglik([1.0]) - bound.minus2loglik([1.0])) < 1e-4
    assert cost("rk4", dt=0.5).bind(["a"]).tightened() is None
    assert cost("ode", "d(R)/dt = b - c - a*R", {"R": 1.0}).bind(["a"]).tightened() is None  # linear: exact


def test_there_is_none_without_an_adaptive_solver_of_ours(coarse):
    model = prey(method="rk4")
    assert fme.modFit(fme.SimulationCost(model, coarse), NAMES).solver_error is None
    assert fme.modFit(lambda p: np.array([p[0] - 1.0, p[0] - 2.0]), [0.0]).solver_error is None
    assert fme.modMCMC(lambda p: float(p["x"] ** 2), {"x": 1.0}, niter=20, seed=1).solver_error is None
    perfect = prey(rtol=1e-12, atol=1e-12)  # nothing smaller can be asked for
    assert perfect.bind().tightened() is None


def test_a_tighter_run_that_fails_does_not_fail_the_fit(monkeypatch, coarse):
    from fmepy.models.bound_ode import BoundOde

    tightened = BoundOde.tightened

    def broken(self):
        out = tightened(self)
        monkeypatch.setattr(out, "_run", fails, raising=False)
        return out

    def fails(*_):
        raise SimulationError("too small a step")

    monkeypatch.setattr(BoundOde, "tightened", broken)
    fit = fme.modFit(fme.SimulationCost(prey(), coarse), NAMES)
    assert fit.converged
    assert np.isnan(fit.solver_error)
    assert "is not known" in fit.message


def test_it_costs_one_evaluation_and_does_not_count(coarse):
    model = prey()
    cost = fme.SimulationCost(model, coarse)
    fit = fme.modFit(cost, NAMES)
    without = fme.modFit(lambda p: cost(p), {k: 1.0 for k in NAMES}, jac=lambda p: cost.bind(NAMES).jacobian(
        np.array([p[k] for k in NAMES])))  # fmt: skip
    assert without.solver_error is None
    assert fit.evaluations <= without.evaluations + 1


def test_what_is_not_worth_a_sentence_is_not_told():
    assert told_error(None) == told_error(0.09) == ""
    assert "0.26" in told_error(0.26)
    objective = type("Objective", (), {"tightened": lambda self: None})()
    assert solver_error(objective, lambda f: 1.0) is None
