"""Many runs at once are the runs one by one, whatever happens along them, and however they are grouped."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy import OdeModel
from fmepy.errors import ModelError, ParameterError, SimulationError
from fmepy.models.base import simulate_many
from fmepy.models.difference import DifferenceModel
from fmepy.models.engines.explicit import CompiledStepper
from tests.models.problems import every_model, hiv_model
from tests.plain import plain

MODELS = sorted(every_model("explicit"))


def around(theta0: np.ndarray, n: int, seed: int = 1) -> np.ndarray:
    return theta0 * np.exp(0.1 * np.random.default_rng(seed).standard_normal((n, theta0.size)))


@pytest.mark.parametrize("name", MODELS)
def test_many_runs_are_the_runs_one_by_one(name):
    bound = every_model("explicit")[name].bind()
    Theta = around(bound.theta0, 7)
    Y, why = simulate_many(bound, Theta)
    assert Y.shape == (7, len(bound.times), len(bound.var_names))
    assert why.tolist() == [""] * 7
    for y, theta in zip(Y, Theta, strict=True):
        np.testing.assert_allclose(y, bound.simulate(theta), rtol=1e-9, atol=1e-300)


@pytest.mark.parametrize("name", MODELS)
def test_how_runs_are_grouped_changes_no_bit(name):
    bound = every_model("explicit")[name].bind()
    Theta = around(bound.theta0, 7)
    together = bound.simulate_many(Theta)[0]
    apart = np.concatenate([bound.simulate_many(Theta[i : i + 1])[0] for i in range(7)])
    np.testing.assert_array_equal(together, apart)


def test_threads_share_the_runs_of_compiled_models():
    shared = {name for name, model in every_model("explicit").items() if model.bind().runs_on_threads}
    assert {"hiv", "bacteria", "events", "forced", "stepped", "Lotka-Volterra", "switch", "kinks"} <= shared


def test_engines_that_hold_the_lock_say_so():
    assert not hiv_model(engine="scipy").bind().runs_on_threads
    assert not hiv_model(engine="explicit").bind(hold_engine=True).runs_on_threads


def test_events_with_values_that_are_parameters_happen_in_every_run():
    events = [
        {"var": "A", "time": 0.0, "value": 1.0, "method": "add"},  # at the very start, after its row
        {"var": "A", "time": 1.0, "value": "dose", "method": "add"},
        {"var": "A", "time": 2.0, "value": "dose / 2", "method": "replace"},
        {"var": "A", "time": 3.0, "value": 3, "method": "multiply"},
    ]

    def decay(t, A, *, k=1.0, dose=5.0):
        return -k * A

    times = np.arange(0.0, 5.0)
    model = OdeModel(
        decay, state={"A": "2 * dose"}, times=times, events=events, engine="explicit", rtol=1e-10, atol=1e-12
    )
    Theta = np.array([[1.0, 5.0], [0.5, 2.0], [0.1, 10.0]])
    Y, _ = model.bind(["k", "dose"]).simulate_many(Theta)
    for y, (k, dose) in zip(Y[:, :, 0], Theta, strict=True):
        e = np.exp(-k)
        at_1 = (2 * dose + 1) * e
        exact = [2 * dose, at_1, (at_1 + dose) * e, dose / 2 * e, 3 * dose / 2 * e * e]
        np.testing.assert_allclose(y, exact, rtol=1e-8)


def test_a_run_that_fails_leaves_the_others_alone_and_says_why_as_ever():
    def blowing_up(t, N, *, a=1.0):
        return a * N**2

    bound = OdeModel(blowing_up, state={"N": 1.0}, times=[0, 0.5, 1.0], engine="explicit").bind()
    Theta = np.array([[0.5], [3.0], [0.9]])
    Y, why = bound.simulate_many(Theta)
    assert [bool(w) for w in why] == [False, True, False]
    assert np.isnan(Y[1]).all()
    with pytest.raises(SimulationError) as caught:
        bound.simulate(Theta[1])
    assert why[1] == str(caught.value)
    np.testing.assert_allclose(Y[[0, 2], -1, 0], 1 / (1 - Theta[[0, 2], 0]), rtol=1e-4)


def test_a_run_of_many_that_turns_out_stiff_is_finished_where_it_is():
    def relaxing(t, x, *, k=1.0):
        return -k * (x - np.cos(t))

    bound = OdeModel(relaxing, state={"x": 0.0}, times=np.linspace(0, 20, 11), engine="compiled").bind()
    Theta = np.array([[1.0], [1e5], [2.0]])
    Y, why = bound.simulate_many(Theta)
    assert why.tolist() == ["", "", ""]
    assert bound.retries == 0
    np.testing.assert_allclose(Y[1, 1:, 0], np.cos(bound.times[1:]), atol=1e-4)


# --- what takes longer than it should is told


def failing(monkeypatch, *steppers):
    def give_up(self, *arguments):
        raise SimulationError("the step became too small, as a test wants it")

    for stepper in steppers:
        monkeypatch.setattr(stepper, "advance", give_up)


@pytest.mark.parametrize("engine", ["explicit", "compiled"])
def test_runs_and_sensitivities_that_fall_back_to_python_are_told_once_each_with_the_reason(
    engine, monkeypatch, caplog
):
    from fmepy.models.running.runners import ModelRunner

    failing(monkeypatch, CompiledStepper)
    monkeypatch.setattr(ModelRunner, "whole", None)
    model = hiv_model(engine=engine)
    bound = model.bind(["bet", "rho"])
    bound.simulate(bound.theta0)  # the first run, that finds the scale, falls back too
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert f"A run of the model was not finished by the engine '{engine}'" in caplog.text
    assert "the step became too small, as a test wants it" in caplog.text
    assert ("engine='scipy'" if engine == "compiled" else "engine='compiled'") in caplog.text
    caplog.clear()
    for copy in (model, model.replace(parms={"bet": 3e-5}), model):
        again = copy.bind(["bet"])
        again.sensitivities(again.theta0)
        assert again.retries == 1
    assert len(caplog.records) == 1
    assert "A run with sensitivities of the model was not finished" in caplog.text


def by_value(t, x, *, k=1.0):
    if plain(x) > 0.5:
        return -k * x
    return -k


def test_sensitivities_by_differences_for_want_of_equations_are_told_with_the_line(caplog):
    model = OdeModel(by_value, state={"x": 1.0}, times=[0, 1, 2])
    model()
    assert not caplog.records
    for _ in range(2):
        bound = model.bind()
        bound.sensitivities(bound.theta0)
    assert len(caplog.records) == 1
    assert "differences: 3 runs on scipy" in caplog.text
    assert "if plain(x) > 0.5" in caplog.text


@pytest.mark.parametrize("how", [{"engine": "scipy"}, {"method": "lsoda"}, {"method": "RK45"}])
def test_an_engine_that_was_asked_for_needs_no_word(how, caplog):
    for rates in (by_value, "d(x)/dt = -k*x\nx(0) = 1"):
        state = {"x": 1.0} if rates is by_value else None
        bound = OdeModel(rates, state=state, times=[0, 1, 2], parms={"k": 1.0}, **how).bind()
        bound.sensitivities(bound.theta0)
    assert not caplog.records


@pytest.mark.parametrize("engine", ["scipy", "auto"])
def test_every_bound_model_runs_many(engine):
    bound = hiv_model(engine=engine).bind(["bet", "rho"])
    Y, why = simulate_many(bound, around(bound.theta0, 3))
    assert Y.shape == (3, len(bound.times), 4)
    assert not why.any()


def test_so_does_a_difference_model_and_a_failure_is_a_sentence():
    def step(t, N, *, r=1.0):
        return N * np.exp(r)

    bound = DifferenceModel(step, state={"N": 1.0}, times=np.arange(5)).bind()
    Y, why = simulate_many(bound, np.array([[0.1], [1e6]]))
    assert why[0] == ""
    assert "time" in why[1]
    np.testing.assert_allclose(Y[0, :, 0], np.exp(0.1 * np.arange(5)))


def test_jumps_at_known_times_are_run_together_curves_that_parameters_move_one_by_one():
    times = np.linspace(0, 4, 9)
    of_time = OdeModel("d(x)/dt = where(t > 1.5, -k, k) * where(t % 2 < 0.5, 2, 1)", state={"x": 1.0}, times=times,
                       parms={"k": 1.0}, outputs={"double": "2 * x"}, engine="explicit", atol=1e-9)  # fmt: skip
    bound = of_time.bind()
    assert bound.runs_on_threads
    Theta = np.array([[1.0], [2.0], [-0.5]])
    Y, why = bound.simulate_many(Theta)
    assert not why.any()
    unit = np.array([0, 1, 1.5, 2, 1.5, 0.5, 0, -0.5, -1.0])  # the integral of the rate, by hand
    np.testing.assert_allclose(Y[:, :, 0], 1 + Theta * unit, atol=1e-8)
    np.testing.assert_array_equal(Y[:, :, 1], 2 * Y[:, :, 0])
    np.testing.assert_allclose(bound.sensitivities(Theta[0])[1][:, 0, 0], unit, atol=1e-8)
    lagged = of_time.replace(rhs="d(x)/dt = where(t > k, -1, 1)", outputs=None)
    curve = of_time.replace(rhs="d(x)/dt = where(t**2 > k**2, -1, 1)", outputs=None)
    assert lagged.bind().runs_on_threads
    assert not curve.bind().runs_on_threads
    for model, last in ((lagged, -3.0), (curve, -2.0)):
        Y, _ = simulate_many(model.bind(), Theta)
        np.testing.assert_allclose(Y[:, -1, 0], [-1.0, 1.0, last], atol=1e-8)


def test_sensitivities_of_whole_runs_are_those_of_another_engine_outputs_forcings_and_starts_included():
    def moving(t, A, B, *, k=0.3, dose=2.0, zero=0.0, u=None):
        return -k * A + u, k * A - 0.1 * B + zero

    forcing = {"u": ([0.0, 3.0, 10.0], [0.0, 1.0, 0.5])}
    arguments = dict(state={"A": "dose**2", "B": "k"}, times=np.linspace(0, 10, 6), forcings=forcing, rtol=1e-10,
                     outputs={"sum": "A + dose * B + u", "logA": "log(A)"}, atol=1e-12)  # fmt: skip
    ours, other = (OdeModel(moving, engine=engine, **arguments).bind() for engine in ("explicit", "scipy"))
    assert ours.var_names == ("A", "B", "sum", "logA")
    for mine, theirs in zip(ours.sensitivities(ours.theta0), other.sensitivities(other.theta0), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


def test_the_failure_of_a_model_without_parameters_names_none():
    model = OdeModel("d(x)/dt = x**2", state={"x": 1}, times=[0, 2])
    with pytest.raises(SimulationError, match=r"runs to infinity \(x = [^)]*\)\.$"):
        model()


def test_bindings_of_a_model_share_what_was_compiled_for_the_same_rows():
    model = OdeModel("dA/dt = -k*A + m", state={"A": 10.0}, times=[0, 1, 2], parms={"k": 0.5, "m": 0.1})
    first, again, other = model.bind(["k"]), model.bind(["k"]), model.bind(["k"], times=[0, 0.5])
    Y, S = first.sensitivities(np.array([0.4]))
    runners = [b._runner(b.engines[0], "exact") for b in (first, again, other)]
    assert runners[0] is runners[1]
    assert runners[0] is not runners[2]
    np.testing.assert_array_equal(again.sensitivities(np.array([0.4]))[1], S)
    assert other.simulate(np.array([0.4])).shape == (2, 1)
    of_other = model.bind(["m"])
    np.testing.assert_array_equal(of_other.simulate(np.array([0.1])), model.bind().simulate(np.array([0.5, 0.1])))
    assert of_other._runner(of_other.engines[0], "exact") is not runners[0]
    tight = first.tightened()
    assert abs(tight.simulate(np.array([0.4])) - Y).max() > 0
    assert not pickle.loads(pickle.dumps(model)).kept_runners


def test_steppers_in_python_are_of_one_binding():
    model = OdeModel(
        lambda t, y, p: [-p["k"] * y[0]], state={"A": 10.0}, times=[0, 1], parms={"k": 0.5}, engine="scipy"
    )
    first, again = model.bind(), model.bind()
    first.simulate(np.array([0.5]))
    assert first._runner(first.engines[0], "plain") is not again._runner(again.engines[0], "plain")


def test_no_more_than_a_few_runners_are_kept():
    model = OdeModel("dA/dt = -k*A", state={"A": 10.0}, times=[0, 1], parms={"k": 0.5})
    for end in range(1, 40):
        model.bind(times=[0, end]).simulate(np.array([0.5]))
    assert len(model.kept_runners) <= 12


@pytest.mark.parametrize("place", [0, 1, 40])
def test_of_many_runs_the_one_that_grows_from_next_to_nothing_is_told(place):
    model = OdeModel("d(x)/dt = r*x*(1 - x/K)", state={"x": "x0"}, parms={"r": 3.0, "K": 10.0, "x0": 1.0},
                     times=np.linspace(0, 8, 9))  # fmt: skip
    starts = np.ones((41, 1))
    model.bind(["x0"]).simulate_many(starts)
    assert not model.told_small
    starts[place] = 1e-9
    model.bind(["x0"]).simulate_many(starts)
    assert "x (from 1e-09" in next(iter(model.told_small))


def bound_things():
    logistic = "r*N*(1 - N/K)"
    given = {"state": {"N": 1.0}, "parms": {"r": 0.5, "K": 10.0}}
    ode = fme.OdeModel(f"dN/dt = {logistic}", times=np.arange(0, 5.0), **given)
    steps = fme.DifferenceModel(f"next(N) = N + {logistic}", times=np.arange(0, 5), **given)
    rest = fme.SteadyModel(f"dN/dt = {logistic} - 0.1*N", **given)
    module = fme.dmi.Module("growth", f"d(N)/dt = {logistic}\nN(0) = 1")
    modular = fme.dmi.ModularModel([module], data=given["parms"], times=np.arange(0, 5.0), dt=0.5)
    scipy = fme.OdeModel(lambda t, y, p: p["r"] * y, times=[0, 1], **given)
    models = {"ode": ode, "steps": steps, "rest": rest, "modular": modular, "scipy": scipy}
    models["log"] = fme.transformed(ode, "log")
    data = ode().iloc[1:]
    both = pd.concat([data.assign(flask="a"), data.assign(flask="b")])
    costs = {
        "simulation": fme.SimulationCost(ode, data),
        "entities": fme.SimulationCost(ode, both, entity="flask", entity_parms=("r",)),
        "sum": fme.SimulationCost(ode, data) + fme.SimulationCost(steps, data),
        "likelihood": fme.SimulationCost(ode, data, measurement_noise={"N": "estimate"}),
        "prediction": fme.PredictionErrorCost(ode, data, gain={"N": {"N": 0.5}}),
        "filter": fme.FimlofCost(steps, data, process_noise={"N": 0.1}, measurement_noise={"N": 0.1}),
    }
    verbs = ("residuals", "jacobian", "minus2loglik", "score", "information", "modcost")
    out = {f"{k}.{verb}": (m, verb) for k, m in models.items() for verb in ("simulate", "sensitivities")}
    out |= {f"{k}.{verb}": (c, verb) for k, c in costs.items() for verb in verbs if hasattr(c.bind(), verb)}
    return out


def test_what_is_bound_takes_a_value_for_each_of_its_parameters():
    things = bound_things()
    assert len(things) > 25
    for label, (thing, verb) in things.items():
        bound = thing.bind()
        call, n = getattr(bound, verb), len(bound.theta0)
        call(bound.theta0.tolist())
        for wrong in ([1.0], [1.0] * (n + 1), 1.0, [[1.0] * n], {"r": 0.5, "K": 10.0}, ["a"] * n):
            with pytest.raises(ParameterError, match=rf"takes a sequence of {n} numbers") as error:
                call(wrong)
            assert "'r" in str(error.value), label


def test_many_runs_take_a_value_for_each_parameter():
    bound = bound_things()["ode.simulate"][0].bind()
    assert bound.simulate_many(np.array([[0.5, 10.0]]))[0].shape == (1, 5, 1)
    with pytest.raises(ParameterError, match="takes a sequence of 2 numbers"):
        bound.simulate_many(np.array([[0.5]]))


@pytest.mark.parametrize("bandwidth", [7, (0, 1), -1, "a", (0, 0, 0)])
def test_a_band_is_narrower_than_the_states_are_many(bandwidth):
    with pytest.raises(ModelError, match="from 0 to 0, for there is 1 state"):
        fme.ode([1.0], [0, 1], lambda t, y, p: -p["k"] * y, {"k": 1.0}, bandwidth=bandwidth)
    assert fme.ode([1.0], [0, 1], lambda t, y, p: -p["k"] * y, {"k": 1.0}, bandwidth=0).shape == (2, 2)


def test_a_transformed_model_has_the_hits_of_its_own_parameters():
    model = fme.OdeModel("d(h)/dt = -k", state={"h": 1.0}, times=[0, 1, 2, 3], parms={"k": 0.5},
                         events=[{"root": "h", "var": "h", "value": "1"}])  # fmt: skip
    pd.testing.assert_frame_equal(fme.transformed(model, "log").hits({"k": np.log(0.8)}), model.hits({"k": 0.8}))
