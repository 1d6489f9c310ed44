"""The explicit engine: exact where there is an answer, as accurate as asked for, and never caught in a run."""

from __future__ import annotations

import subprocess
import sys

import loky
import numpy as np
import pandas as pd
import pytest

from fmepy.compiled import dormand_prince, llvm_code, machine, status
from fmepy.errors import ModelError, SimulationError
from fmepy.models.engines import explicit
from fmepy.models.ode import OdeModel
from fmepy.models.running.system import build_system
from tests.models.problems import every_model, hiv_model, van_der_pol
from tests.plain import plain


def stiff(mu=1000.0, **options):
    """Van der Pol's equation of times of its own: stiff for large mu."""
    return OdeModel(van_der_pol, state={"x": 2, "v": 0}, times=[0, 500, 1200, 2000], parms={"mu": mu}, **options)


def oscillator(**options):
    return OdeModel(
        "d(x)/dt = v\nd(v)/dt = -w**2 * x\nx(0) = 1\nv(0) = 0", parms={"w": 2.0}, engine="explicit", **options
    )


# --- the method -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rtol", [1e-4, 1e-6, 1e-8, 1e-10])
def test_rows_anywhere_keep_to_the_tolerance_with_their_sensitivities(rtol):
    times = np.r_[0, np.sort(np.random.default_rng(1).uniform(0, 10, 300))]
    bound = oscillator(times=times, rtol=rtol, atol=rtol).bind()
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y[:, 0], np.cos(2 * times), atol=50 * rtol)
    np.testing.assert_allclose(S[:, 0, 0], -times * np.sin(2 * times), atol=100 * rtol)
    np.testing.assert_allclose(bound.simulate(bound.theta0)[:, 1], -2 * np.sin(2 * times), atol=100 * rtol)
    assert bound.retries == 0


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_a_polynomial_of_order_four_is_solved_exactly_and_between_its_steps_too(order):
    model = OdeModel(
        "d(y)/dt = n * t**(n - 1)", state={"y": 0}, times=np.linspace(0, 3, 50), parms={"n": order}, rtol=1e-3,
        atol=1e-3, engine="explicit",
    )  # fmt: skip
    np.testing.assert_allclose(model().y, model.times**order, rtol=1e-13, atol=1e-14)


def drive_plainly(model, names, times, most_steps=1000):
    """Run the loop's plain text on a model's plain rates."""
    from fmepy.models.running.system import system_rates

    bound = model.bind(names)
    runner = bound._runner(explicit.ENGINE, "exact")
    system, p = runner._system, bound._base
    inputs = np.zeros(system.layout.size)
    inputs[: len(p)] = p
    scales = np.abs(p[runner._between[3]])
    inputs[system.layout.scales] = scales
    initial = runner._between[0]
    start = np.concatenate((initial.value(p.tolist()), (initial.slope(p.tolist()) * scales).T.ravel()))
    rates = system_rates(system)

    def plainly(t, z, q, out):
        out[:] = rates(t, z.tolist(), q.tolist())

    loop, out, atol = (dormand_prince, np.empty((len(times), len(start))), np.full(len(start), 1e-6))
    *told, _ = loop.drive(
        plainly, None, inputs, 0.0, 0.0, start, times, system.n_states, 1e-6, atol, np.inf, most_steps, out,
        np.zeros((status.WORK, len(start))), np.empty((2, 0)), None, None,
    )  # fmt: skip
    return told, out, runner._stepper.advance(0.0, start, inputs, times)[1]


def test_the_compiled_loop_does_what_its_text_says():
    model = hiv_model(engine="explicit")
    (ended, n, reached), by_text, compiled = drive_plainly(model, ["bet", "c"], model.times)
    assert (ended, n, reached) == (status.DONE, len(model.times), 60)
    np.testing.assert_allclose(compiled, by_text, rtol=1e-9, atol=1e-9)  # rates of other rounding, the same steps
    (ended, n, reached), _, _ = drive_plainly(model, ["bet", "c"], model.times, most_steps=20)
    assert ended == status.TOO_MANY_STEPS
    assert n == np.sum(model.times <= reached)


def test_results_do_not_depend_on_earlier_runs():
    bound = hiv_model(engine="explicit").bind()
    first = bound.simulate(bound.theta0)
    bound.simulate(1.3 * bound.theta0)
    bound.sensitivities(0.9 * bound.theta0)
    np.testing.assert_array_equal(bound.simulate(bound.theta0), first)


def test_an_absolute_tolerance_for_each_state_is_kept():
    source = "d(big)/dt = -big\nd(small)/dt = -small\nbig(0) = 1e6\nsmall(0) = 1e-6"
    exact = np.exp(-5.0)
    kept = OdeModel(source, times=[0, 5], rtol=1e-9, atol={"big": 1e-2, "small": 1e-14}, engine="explicit")().iloc[-1]
    lost = OdeModel(source, times=[0, 5], rtol=1e-9, atol={"big": 1e3, "small": 1e-3}, engine="explicit")().iloc[-1]
    assert kept.small == pytest.approx(1e-6 * exact, rel=1e-6)
    assert kept.big == pytest.approx(1e6 * exact, rel=1e-6)
    assert abs(lost.big / (1e6 * exact) - 1) > 1e-6  # so that the test can tell


def test_a_crossing_is_found_to_the_last_digits_and_the_rows_before_it_stand():
    model = OdeModel(
        "d(x)/dt = where(x > half, -1, -2)", state={"x": 1}, times=np.linspace(0, 0.7, 15), parms={"half": 0.5},
        engine="explicit",
    )  # fmt: skip
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    t = model.times
    np.testing.assert_allclose(Y[:, 0], np.where(t < 0.5, 1 - t, 0.5 - 2 * (t - 0.5)), atol=1e-9)
    np.testing.assert_allclose(S[:, 0, 0], np.where(t <= 0.5, 0, -1), atol=1e-9)


# --- what it does not finish ------------------------------------------------------------------------------------------


def test_a_stiff_run_held_to_the_explicit_method_is_left_to_lsoda(monkeypatch):
    bound = stiff(engine="explicit").bind()
    assert [e.name for e in bound.engines] == ["explicit", "retry"]
    told = []
    whole = explicit.WholeRuns.one

    def heard(self, *arguments):
        try:
            return whole(self, *arguments)
        except SimulationError as error:
            told.append(error)
            raise

    monkeypatch.setattr(explicit.WholeRuns, "one", heard)
    np.testing.assert_allclose(bound.simulate(bound.theta0), stiff(engine="scipy")().iloc[:, 1:], rtol=5e-3, atol=1e-4)
    assert bound.retries == 1
    assert "stiff" in str(told[0])
    assert 0 < told[0].time < 2000
    _, S = bound.sensitivities(bound.theta0)
    assert bound.retries == 2
    assert np.isfinite(S).all()
    assert bound.simulate(np.array([0.5])).shape == (4, 2)  # that one is not stiff
    assert bound.retries == 2
    held = stiff(engine="explicit").bind(hold_engine=True)  # as in a fit, which stays with what took over
    held.simulate(held.theta0)
    assert held.retries == 1
    assert "explicit" not in [e.name for e in held.engines]
    held.simulate(np.array([0.5]))
    assert held.retries == 1


def test_a_run_has_a_step_limit(monkeypatch):
    monkeypatch.setattr(explicit, "MOST_STEPS", 50)
    system = build_system(oscillator(times=[0, 1e4]).equations, (), True)
    stepper = explicit.CompiledStepper(system, 1e-6, 1e-6)
    with pytest.raises(SimulationError, match="more than 50 steps") as caught:
        stepper.advance(0.0, np.array([1.0, 0.0]), np.array([2.0, 0.0]), np.array([1e4]))
    assert 0 < caught.value.time < 100


@pytest.mark.parametrize(
    ("rate", "start", "why", "at"),
    [
        ("N**2", 1.0, "runs to infinity", 1.0),
        ("1 / (N - 1)", 1.0, "not finite", 0.0),
        ("-1 / N", 1.0, "too small|step", 0.5),
        ("log(N)", -1.0, "not finite", 0.0),
        ("exp(exp(exp(N)))", 3.0, "too small|not finite", 0.0),
    ],
)
def test_what_has_no_value_ends_the_run_with_a_reason(rate, start, why, at):
    model = OdeModel(f"d(N)/dt = {rate}", state={"N": start}, times=[0, 5], engine="explicit")
    system = build_system(model.equations, (), True)
    with pytest.raises(SimulationError, match=why) as caught:
        explicit.CompiledStepper(system, 1e-6, 1e-6).advance(0.0, np.array([start]), np.zeros(1), np.array([5.0]))
    assert caught.value.time == pytest.approx(at, abs=1e-3)
    with pytest.raises(SimulationError, match="The run failed"):
        model()


# --- code -------------------------------------------------------------------------------------------------------------


def test_a_large_system_is_compiled_in_blocks_and_runs_the_same(monkeypatch):
    n = 12
    source = "\n".join(f"d(x{i})/dt = k * (x{(i - 1) % n} - 2 * x{i} + x{(i + 1) % n}) + r * x{i}**2" for i in range(n))
    state = {f"x{i}": 1.0 + 0.1 * i for i in range(n)}

    def run():
        model = OdeModel(source, state=state, times=[0, 0.5, 1], parms={"k": 0.7, "r": 0.1}, engine="explicit")
        bound = model.bind()
        return bound.sensitivities(bound.theta0)

    straight = run()
    monkeypatch.setattr(llvm_code, "MOST_OPERATIONS", 10)
    written = []
    monkeypatch.setattr(explicit, "compiled", lambda text: written.append(text) or machine.compiled(text))
    blocks = run()
    assert written[0].count("call void @rates.") > 10
    for a, b in zip(straight, blocks, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_change_of_numbers_compiles_nothing():
    forced = every_model("explicit")["forced"]
    forced()
    before = explicit._functions.cache_info().misses
    u = pd.Series([0, 2, 1.0], index=[0, 3, 20])
    forced.replace(state={"y": 3}, parms={"k": 0.7}, forcings={"u": u}, rtol=1e-8)()
    assert explicit._functions.cache_info().misses == before


def test_a_second_process_finds_everything_compiled(tmp_path):
    code = """
import sys
from fmepy.models.ode import OdeModel
assert "explicit" not in sys.modules
model = OdeModel("d(y)/dt = -k * y", state={"y": 1}, times=[0, 1], parms={"k": 2}, engine="explicit")
assert "explicit" not in sys.modules
print(model().y.iloc[-1], model.bind(["k"]).simulate([1])[-1])
print("explicit" in sys.modules, file=sys.stderr)
"""
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PATH": ""}
    outputs, files, compilers = [], [], []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
        compilers.append(done.stderr.split()[-1])
        files.append({f: f.stat().st_mtime_ns for f in (*tmp_path.rglob("*.nb*"), *tmp_path.rglob("*.o"))})
    assert outputs[0] == outputs[1]
    assert [f.suffix for f in files[0]] == [".o"]
    assert files[0] == files[1]
    assert compilers == ["False", "False"]


def test_a_bound_model_gives_the_same_after_a_journey_to_another_process():
    bound = every_model("explicit")["events"].bind()
    here = bound.simulate(bound.theta0)
    with loky.ProcessPoolExecutor(1) as pool:
        there = pool.submit(bound.simulate, bound.theta0).result()
    np.testing.assert_array_equal(there, here)


# --- at the door ------------------------------------------------------------------------------------------------------


def test_the_method_chooses_the_engine_and_must_belong_to_it():
    model = hiv_model(method="dopri5")
    assert (model.engine, model.method, model.engine_note) == ("explicit", "dopri5", "")
    assert "engine explicit, method dopri5" in repr(model)
    with pytest.raises(ModelError, match=r"'lsoda'.*belongs to the engine 'scipy', not to 'explicit'"):
        hiv_model(engine="explicit", method="lsoda")
    with pytest.raises(ModelError, match="bandwidth"):
        hiv_model(engine="explicit", bandwidth=1)


def test_what_cannot_be_compiled_is_refused_with_the_reason():
    def branching(t, N, *, r=1.0):
        return r * N if plain(N) > 1 else -r * N

    with pytest.raises(ModelError, match=r"cannot run on explicit: .*Leave engine='auto'"):
        OdeModel(branching, state={"N": 1}, times=[0, 1], engine="explicit")


def test_it_has_arcs():
    model = OdeModel("d(N)/dt = atan(N)", state={"N": 1}, times=[0, 1], engine="explicit", rtol=1e-9, atol=1e-9)
    bound = model.bind()
    assert [e.name for e in bound.engines] == ["explicit", "retry"]
    np.testing.assert_allclose(model().N, model.replace(engine="scipy")().N, rtol=1e-7)
    assert bound.retries == 0
