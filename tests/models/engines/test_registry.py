"""A new engine is one file and one line: one added from outside runs models, costs and fits, and is gone again."""

import pickle

import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError, SimulationError
from fmepy.models.engines import registry, scipy_steppers
from fmepy.models.engines.base import Engine
from tests.models.problems import hiv_model
from tests.plain import plain

TIMES = np.linspace(0, 4, 9)


class HeunStepper:
    """Heun's method with many steps, on anything."""

    name = "heun"
    watches_switches = False

    def __init__(self, problem, options):
        self.rates = problem.rates

    def advance(self, start, z, inputs, times):
        out, p = [], inputs.tolist()
        for end in times:
            n = max(1, int(np.ceil((end - start) / 2e-3)))
            h = (end - start) / n
            for t in start + h * np.arange(n):
                k = np.asarray(self.rates(t, z, p))
                z = z + h / 2 * (k + np.asarray(self.rates(t + h, z + h * k, p)))
            out.append(z)
            start = end
        return times, np.array(out)


def short_of_text(equations):
    return "it has no word for powers" if "**" in str(equations.rates) else ""


HEUN = Engine("heun", ("heun2",), HeunStepper, limits_steps=False, refuses=short_of_text, rank=0)


@pytest.fixture
def heun(monkeypatch):
    monkeypatch.setattr(registry, "ENGINES", [*registry.ENGINES, HEUN])
    return HEUN


def decay(t, x, *, k=0.7):
    return -k * x


def untraced(t, x, *, k=0.7):
    return -k * plain(x)


def model(function=decay, **how):
    return fme.OdeModel(function, state={"x": 2.0}, times=TIMES, **how)


@pytest.mark.parametrize("how", [{"engine": "heun"}, {"method": "heun2"}, {}])
@pytest.mark.parametrize("function", [decay, untraced])
def test_an_engine_from_outside_runs_a_model_whether_it_has_equations_or_not(heun, how, function):
    m = model(function, **how)
    assert (m.engine, m.method, m.engine_note) == ("heun", "heun2", "")
    np.testing.assert_allclose(m()["x"], 2 * np.exp(-0.7 * TIMES), atol=1e-6)
    _, S = m.bind().sensitivities(np.array([0.7]))
    np.testing.assert_allclose(S[:, 0, 0], -2 * TIMES * np.exp(-0.7 * TIMES), atol=1e-5)


def test_an_engine_from_outside_runs_a_cost_and_a_fit(heun):
    data = fme.OdeModel(decay, state={"x": 2.0}, times=TIMES, parms={"k": 0.4}, rtol=1e-9)()
    cost = fme.SimulationCost(model(engine="heun"), data)
    assert cost({"k": 0.4}).model < 1e-10
    fit = fme.modFit(cost, p={"k": 0.7})
    assert fit.par["k"] == pytest.approx(0.4, abs=1e-5)


def test_what_it_gives_up_goes_to_lsoda(heun, monkeypatch):
    def gives_up(*_):
        raise SimulationError("no")

    monkeypatch.setattr(HeunStepper, "advance", gives_up)
    bound = model(engine="heun").bind()
    np.testing.assert_allclose(bound.simulate(bound.theta0)[:, 0], 2 * np.exp(-0.7 * TIMES), rtol=1e-4)
    assert bound.retries == 1


def test_conditions_of_states_go_to_it_as_they_are(heun):
    text = "d(x)/dt = where(x > 1, -1, -0.5)\nx(0) = 2"
    m = fme.OdeModel(text, times=[0, 1, 2], engine="heun")
    np.testing.assert_allclose(m()["x"], [2, 1, 0.5], atol=2e-3)  # it steps across the change


def test_fixed_steps_from_outside_are_one_function(monkeypatch):
    def midpoint(rates, t, z, h, u):
        return z + h * np.asarray(rates(t + h / 2, z + h / 2 * np.asarray(rates(t, z, u[0])), u[1]))

    entry = Engine("mine", ("midpoint",), steps={"midpoint": midpoint})
    monkeypatch.setattr(registry, "ENGINES", [*registry.ENGINES, entry])
    m = model(method="midpoint", dt=0.01)
    np.testing.assert_allclose(m()["x"], 2 * np.exp(-0.7 * TIMES), atol=1e-4)
    assert m.bind().exact


def test_it_says_what_it_cannot(heun):
    with pytest.raises(ModelError, match=r"cannot run on heun: it has no word for powers. Leave engine='auto'"):
        fme.OdeModel("d(x)/dt = -x**2\nx(0) = 1", times=[0, 1], engine="heun")
    other = fme.OdeModel("d(x)/dt = -x**2\nx(0) = 1", times=[0, 1])
    assert other.engine != "heun"
    assert "no word for powers" in other.engine_note
    with pytest.raises(ModelError, match="cannot run on heun: `max_step` is given, and heun has no largest step"):
        model(engine="heun", max_step=0.1)
    assert model(max_step=0.1).engine != "heun"
    with pytest.raises(ModelError, match="belongs to the engine 'heun', not to 'scipy'"):
        model(engine="scipy", method="heun2")


def test_messages_list_what_the_registry_holds_and_no_more(heun, monkeypatch):
    with pytest.raises(ArgumentError, match="'heun'"):
        model(engine="huen")
    with pytest.raises(ArgumentError, match="'heun2'"):
        model(method="heun3")
    monkeypatch.undo()
    assert model().engine != "heun"
    with pytest.raises(ArgumentError, match="engine='heun'"):
        model(engine="heun")


def test_names_and_methods_are_known_once():
    methods = registry.methods()
    assert len(methods) == len(set(methods))
    assert registry.engine_names() == ["compiled", "explicit", "stiff", "scipy"]
    for entry in registry.ENGINES:
        assert bool(entry.steps) != (entry.stepper is not None)


def test_all_that_is_known_of_engines_travels_to_workers():
    for engine in (*registry.ENGINES, scipy_steppers.RETRY, scipy_steppers.TAKEN_OVER):
        assert pickle.loads(pickle.dumps(engine)).name == engine.name
    bound = pickle.loads(pickle.dumps(hiv_model().bind()))
    assert bound.simulate(bound.theta0).shape[1] == len(bound.var_names)


def test_the_compiled_loop_is_held_to_the_method_that_is_asked_for():
    ends = {e: model(engine=e, rtol=1e-8, atol=1e-12)()["x"].to_numpy() for e in ("compiled", "explicit", "stiff")}
    for found in ends.values():
        np.testing.assert_allclose(found, 2 * np.exp(-0.7 * TIMES), rtol=1e-6)
    np.testing.assert_array_equal(ends["compiled"], ends["explicit"])  # which is not stiff
    assert not np.array_equal(ends["stiff"], ends["explicit"])


def test_an_engine_that_cannot_finish_the_first_run_is_left_out_of_the_next_ones(monkeypatch, caplog):
    def gives_up(*_):
        raise SimulationError("no")

    from fmepy.models.engines.explicit import CompiledStepper, WholeRuns

    monkeypatch.setattr(WholeRuns, "one", gives_up)
    monkeypatch.setattr(CompiledStepper, "advance", gives_up)
    chosen, named = model().bind(), model(engine="compiled").bind()
    for bound, engine, retries in ((chosen, "scipy", 0), (named, "compiled", 1)):
        np.testing.assert_allclose(bound.simulate(bound.theta0)[:, 0], 2 * np.exp(-0.7 * TIMES), rtol=1e-4)
        assert (bound.engine, bound.retries) == (engine, retries)
