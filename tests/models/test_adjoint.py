"""Gradients by one sweep back along a run, beside sensitivities of the same run."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.compiled import adjoint
from fmepy.compiled.c_loops import address, checked_loop
from fmepy.compiled.kernels import packed
from fmepy.costs.user_function import as_objective
from fmepy.errors import SimulationError
from fmepy.models.engines import adjoint as of_models

TIMES = np.array([0, 0.1, 0.5, 1, 1.5, 2, 2.5, 3, 5, 7, 10.0])
TWO = """
d A/dt = -k1*A + k2*B + u
d B/dt = k1*A/(1+A*A) - k2*B*(1 + 0.3*sin(t))
"""
EVENTS = [
    {"var": "A", "time": 1, "value": "dose*B", "method": "add"},
    {"var": "A", "time": 1, "value": "0.5*A+B", "method": "multiply"},
    {"var": "B", "time": 1, "value": 3.0, "method": "replace"},
    {"var": "B", "time": 2, "value": "k1*t", "method": "multiply"},
    {"var": "A", "time": 0, "value": 0.2, "method": "add"},
    {"var": "A", "time": 2.5, "value": "dose", "method": "replace"},
    {"var": "A", "time": 2.5, "value": "u+A", "method": "multiply"},
]
PARMS = {"k1": 0.4, "k2": 1.0, "a0": 1.0, "dose": 0.7}
WORDS = {
    "state": {"A": "a0", "B": "1+a0**2"}, "parms": PARMS, "times": TIMES, "rtol": 1e-9, "atol": 1e-11,
    "outputs": {"T": "A*k2+t*u+dose*B"}, "forcings": {"u": ([0, 1, 5, 40], [0.0, 0.1, 0, 0.2])},
}  # fmt: skip


def plain(**words):
    return fme.OdeModel(TWO, **{**WORDS, **words})


def robertson():
    text = """
    d A/dt = -k1*A + k2*B*C
    d B/dt = k1*A - k2*B*C - k3*B^2
    d C/dt = k3*B^2
    """
    parms = {"k1": 0.04, "k2": 1e4, "k3": 3e7, "c0": 0.1}
    return fme.OdeModel(
        text, state={"A": 1.0, "B": 0.0, "C": "c0"}, parms=parms, times=[0, 0.1, 5, 40, 400], rtol=1e-9, atol=1e-12
    )


def bounds_of(model, monkeypatch):
    monkeypatch.setattr(of_models, "_WORTH_IT", 1)
    bound = model.bind()
    assert bound.has_pull
    return bound


def weights_of(Y):
    return np.random.default_rng(1).normal(size=Y.shape) / (1e-6 + np.abs(Y).max(axis=0))


def agree(bound, theta, rtol=1e-5):
    Y, pull = bound.with_pull(theta)
    W = weights_of(Y)
    known = np.tensordot(W, bound.sensitivities(theta)[1], 2)
    np.testing.assert_allclose(pull(W), known, rtol=rtol, atol=rtol * np.abs(known).max())
    assert np.array_equal(pull(W), pull(W))
    np.testing.assert_allclose(Y, bound.simulate(theta), rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("engine", ["compiled", "stiff"])
@pytest.mark.parametrize("words", [{}, {"events": pd.DataFrame(EVENTS)}, {"times": TIMES[3:]}, {"times": TIMES[:2]}])
def test_a_sweep_back_is_the_derivative_of_the_run(engine, words, monkeypatch):
    bound = bounds_of(plain(engine=engine, **words), monkeypatch)
    agree(bound, bound.theta0)
    agree(bound, bound.theta0 * 1.2)


def test_it_goes_through_steps_of_both_methods(monkeypatch):
    bound = bounds_of(robertson(), monkeypatch)
    agree(bound, bound.theta0, rtol=2e-5)
    swept = bound._swept
    rows, ended, _ = swept.run(bound.theta0)
    assert ended[0] == 0
    assert rows.shape == (5, 3)


def test_it_is_exact_for_the_steps_as_they_were_taken(monkeypatch):
    # with large tolerances the derivative of the numbers that came out is not that of the solution
    model = plain(rtol=1e-2, atol=1e-3)
    bound = bounds_of(model, monkeypatch)
    Y, pull = bound.with_pull(bound.theta0)
    W, step = weights_of(Y), 1e-7
    j = bound.names.index("a0")
    by = np.eye(len(bound.names))[j] * step
    differences = (W * (bound.simulate(bound.theta0 + by) - bound.simulate(bound.theta0 - by))).sum() / (2 * step)
    assert pull(W)[j] == pytest.approx(differences, rel=0.02)


def test_more_steps_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(of_models, "_ROOM", 2)
    bound = bounds_of(plain(), monkeypatch)
    agree(bound, bound.theta0)


def test_no_index_is_too_large(monkeypatch):
    bound = bounds_of(plain(events=pd.DataFrame(EVENTS), engine="stiff"), monkeypatch)
    for model in (plain(events=pd.DataFrame(EVENTS), engine="stiff"), plain(events=pd.DataFrame(EVENTS))):
        bound = bounds_of(model, monkeypatch)
        swept = bound._swept
        room = swept._runs.arrays(np.zeros((1, swept._runs.n_inputs)))
        room[0].inputs[0, :4] = bound.theta0
        steps = np.empty((300, adjoint.OF_STEP + 2))
        found = adjoint.Sweep(steps, np.ones((len(TIMES), 3)), np.zeros(4))
        words = packed(found)
        checked_loop(adjoint.run_recorded)(swept._runs.at_course, room[1], address(words))
        checked_loop(adjoint.sweep_back)(swept._runs.at_course, room[1], address(swept._words), address(words))
        Y, pull = bound.with_pull(bound.theta0)
        np.testing.assert_allclose(found.gradient, pull(np.ones(Y.shape)), rtol=1e-12)


@pytest.mark.parametrize(
    "words",
    [
        {"events": [{"var": "A", "root": "A - 0.5", "value": 1.0, "method": "add"}]},
        {"rhs": TWO.replace("+ u", "+ where(A > 0.5, u, 0)")},
        {"rhs": TWO.replace("+ u", "+ u*lag(A, 1)"), "history": None},
        {"engine": "scipy"},
    ],
)
def test_there_is_none_where_something_happens_on_the_way(words, monkeypatch):
    monkeypatch.setattr(of_models, "_WORTH_IT", 1)
    words = dict(words)
    rhs = words.pop("rhs", TWO)
    model = fme.OdeModel(rhs, **{**WORDS, **words})
    bound = model.bind()
    assert not bound.has_pull
    Y, pull = bound.with_pull(bound.theta0)  # all the same
    W = weights_of(Y)
    np.testing.assert_allclose(pull(W), np.tensordot(W, bound.sensitivities(bound.theta0)[1], 2), rtol=1e-9)


def test_few_parameters_keep_their_sensitivities():
    assert not plain().bind().has_pull


def test_a_failed_run_is_told_as_ever(monkeypatch):
    monkeypatch.setattr(of_models, "_WORTH_IT", 1)
    model = fme.OdeModel("d x/dt = k*x*x", state={"x": "x0"}, parms={"k": 1.0, "x0": 1.0}, times=[0, 0.5, 2.0])
    with pytest.raises(SimulationError, match="infinity"):
        model.bind().with_pull(np.array([1.0, 1.0]))


# --- costs


def network(n=20, n_params=30):
    rng, parms, rates = np.random.default_rng(0), {}, {i: [] for i in range(n)}
    for k in range(n_params):
        i, j = rng.choice(n, 2, replace=False)
        parms[f"k{k}"] = float(10 ** rng.uniform(-1, 0.3))
        flux = f"k{k}*x{i}" if k % 3 else f"k{k}*x{i}*x{(i + 1) % n}/(1+x{(i + 1) % n})"
        rates[i].append(f"- {flux}")
        rates[j].append(f"+ {flux}")
    text = "\n".join(f"d x{i}/dt = {' '.join(r) or 0}" for i, r in rates.items())
    state = {f"x{i}": 1.0 + i % 3 for i in range(n)}
    return fme.OdeModel(text, state=state, parms=parms, times=np.linspace(0, 10, 21), rtol=1e-8, atol=1e-8)


MODEL = network()
OBS = MODEL()[["time", "x0", "x3", "x7"]].iloc[1::3]
SITES = pd.concat([OBS.assign(site=s) for s in "abc"])
CONDITIONS = pd.DataFrame({"site": list("abc"), "k0": [0.5, 1.0, 2.0], "x1": [1.0, 2, 3]})
NOISE = {name: f"0.01 + sd*{name}" for name in ("x0", "x3", "x7")}


def simulated(data=OBS, **words):
    return fme.SimulationCost(MODEL, data, **words)


COSTS = {
    "known errors": lambda: simulated(weight="mean"),
    "logarithms": lambda: simulated(weight="mean", transform="log"),
    "between times": lambda: simulated(weight="mean", interpolate="grid"),
    "transformed": lambda: fme.transformed(simulated(weight="mean"), {f"k{i}": "log" for i in range(30)}),
    "entities": lambda: simulated(SITES, entity="site", conditions=CONDITIONS, entity_parms=["k3"], weight="mean"),
    "a sum": lambda: simulated(weight="mean") + simulated(OBS.assign(time=OBS["time"] + 0.07).iloc[:-1]),
    "noise": lambda: simulated(measurement_noise=NOISE, parms={"sd": 0.1}),
    "noise of entities": lambda: simulated(
        SITES, entity="site", entity_parms=["k3", "sd"], measurement_noise=NOISE, parms={"sd": 0.1}
    ),
    "noise, logarithms": lambda: simulated(
        measurement_noise=dict.fromkeys(NOISE, "sd"), parms={"sd": 0.1}, transform="log"
    ),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_have_the_gradient_of_their_jacobian(name):
    bound, again = COSTS[name]().bind(), COSTS[name]().bind()
    theta = bound.theta0 * 1.05
    if bound.is_scalar:
        assert bound.predictions.is_pulled
        value, gradient = bound.with_slopes(theta)
        again.information(theta)  # which needs the sensitivities, and keeps them
        known = -2 * again.score(theta)
        assert value == pytest.approx(again.minus2loglik(theta), rel=1e-9)
        assert np.array_equal(bound.score(theta), -0.5 * gradient)
    else:
        assert bound.has_pull
        r, pull = bound.with_pull(theta)
        np.testing.assert_allclose(r, bound.residuals(theta), rtol=1e-9)
        gradient, known = 2 * pull(r), 2 * r @ bound.jacobian(theta)
    np.testing.assert_allclose(gradient, known, rtol=1e-6, atol=1e-6 * np.abs(known).max())


def test_the_gradient_of_scaled_residuals():
    cost = simulated(weight="mean", scaleVar=True)
    names = list(MODEL.parms.index)
    swept, other = (as_objective(cost, names) for _ in range(2))
    theta = swept.theta0 * 1.05
    known = 2 * other.scaled_jacobian(theta).T @ other.scaled_residuals(theta)
    assert swept.bound.has_pull
    np.testing.assert_allclose(swept.gradient_of_squares(theta), known, atol=1e-6 * np.abs(known).max())


def test_a_way_back_without_end_is_a_place_without_gradient(monkeypatch):
    run, wrong = of_models.SweptRuns.run, []

    def broken(self, p):
        Y, ended, pull = run(self, p)
        wrong.append(1)
        return Y, ended, pull if len(wrong) % 7 else _fails

    monkeypatch.setattr(of_models.SweptRuns, "run", broken)
    words = {"niter": 6, "burninlength": 3, "lower": 1e-3, "upper": 50.0, "seed": 1, "var0": 0.01}
    chain = fme.modMCMC(simulated(weight="mean"), dict(MODEL.parms), method="nuts", **words)
    assert len(wrong) > 14
    assert np.isfinite(chain.pars.to_numpy()).all()


def _fails(weights):
    raise SimulationError("the derivatives of the run came to NaN")


def test_a_square_root_is_looked_at_reading_by_reading():
    assert not simulated(weight="mean", transform="sqrt").bind().has_pull


def test_fits_and_chains_that_follow_the_gradient_use_it(monkeypatch):
    calls = []
    run = of_models.SweptRuns.run
    monkeypatch.setattr(of_models.SweptRuns, "run", lambda self, p: calls.append(1) or run(self, p))
    cost = simulated(weight="mean")
    fit = fme.modFit(cost, dict.fromkeys(MODEL.parms.index, 0.7), method="L-BFGS-B", lower=1e-3, upper=50.0)
    n_fit = len(calls)
    assert n_fit > 10
    assert fit.ssr < 1e-3 * (cost.bind().residuals(np.full(30, 0.7)) ** 2).sum()
    words = {"niter": 6, "burninlength": 3, "lower": 1e-3, "upper": 50.0, "seed": 1, "var0": 0.01}
    chain = fme.modMCMC(cost, dict(MODEL.parms), method="nuts", **words)
    assert len(calls) > n_fit
    assert np.isfinite(chain.pars.to_numpy()).all()


def test_it_travels_and_a_tighter_one_has_runs_of_its_own():
    bound = simulated(weight="mean").bind()
    theta = bound.theta0 * 1.1
    r, pull = bound.with_pull(theta)
    again, travelled = cloudpickle.loads(cloudpickle.dumps(bound)).with_pull(theta)
    assert np.array_equal(again, r)
    assert np.array_equal(travelled(r), pull(r))
    tight, _ = bound.tightened().with_pull(theta)
    assert 0 < np.abs(tight - r).max() < 1e-5
