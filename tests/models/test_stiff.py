"""Stiff models on the compiled engine: published answers, both methods in one run, and what ends a run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import pytest

from fmepy.compiled import dormand_prince, rosenbrock
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.kernels import call
from fmepy.compiled.status import DONE, WORK
from fmepy.errors import SimulationError
from fmepy.models.base import simulate_many
from fmepy.models.engines import explicit
from fmepy.models.engines import stiff as stiff_code
from fmepy.models.ode import OdeModel
from fmepy.models.running.system import build_system
from tests.models.problems import hiv_model

TEXTS = {
    "robertson": """
d(A)/dt = -0.04 * A + 1e4 * B * C
d(B)/dt = 0.04 * A - 1e4 * B * C - 3e7 * B**2
d(C)/dt = 3e7 * B**2""",
    "oregonator": """
d(x)/dt = 77.27 * (y + x * (1 - 8.375e-6 * x - y))
d(y)/dt = (z - (1 + x) * y) / 77.27
d(z)/dt = 0.161 * (x - z)""",
    "hires": """
d(y1)/dt = -1.71 * y1 + 0.43 * y2 + 8.32 * y3 + 0.0007
d(y2)/dt = 1.71 * y1 - 8.75 * y2
d(y3)/dt = -10.03 * y3 + 0.43 * y4 + 0.035 * y5
d(y4)/dt = 8.32 * y2 + 1.71 * y3 - 1.12 * y4
d(y5)/dt = -1.745 * y5 + 0.43 * (y6 + y7)
d(y6)/dt = -280 * y6 * y8 + 0.69 * y4 + 1.71 * y5 - 0.43 * y6 + 0.69 * y7
d(y7)/dt = 280 * y6 * y8 - 1.81 * y7
d(y8)/dt = -280 * y6 * y8 + 1.81 * y7""",
    "pollution": """
r1 = 0.35 * y1; r2 = 26.6 * y2 * y4; r3 = 1.23e4 * y5 * y2; r4 = 8.6e-4 * y7; r5 = 8.2e-4 * y7
r6 = 1.5e4 * y7 * y6; r7 = 1.3e-4 * y9; r8 = 2.4e4 * y9 * y6; r9 = 1.65e4 * y11 * y2; r10 = 9e3 * y11 * y1
r11 = 0.022 * y13; r12 = 1.2e4 * y10 * y2; r13 = 1.88 * y14; r14 = 1.63e4 * y1 * y6; r15 = 4.8e6 * y3
r16 = 3.5e-4 * y4; r17 = 0.0175 * y4; r18 = 1e8 * y16; r19 = 4.44e11 * y16; r20 = 1240 * y17 * y6; r21 = 2.1 * y19
r22 = 5.78 * y19; r23 = 0.0474 * y1 * y4; r24 = 1780 * y19 * y1; r25 = 3.12 * y20
d(y1)/dt = -r1 - r10 - r14 - r23 - r24 + r2 + r3 + r9 + r11 + r12 + r22 + r25
d(y2)/dt = -r2 - r3 - r9 - r12 + r1 + r21
d(y3)/dt = -r15 + r1 + r17 + r19 + r22
d(y4)/dt = -r2 - r16 - r17 - r23 + r15
d(y5)/dt = -r3 + 2 * r4 + r6 + r7 + r13 + r20
d(y6)/dt = -r6 - r8 - r14 - r20 + r3 + 2 * r18
d(y7)/dt = -r4 - r5 - r6 + r13
d(y8)/dt = r4 + r5 + r6 + r7
d(y9)/dt = -r7 - r8
d(y10)/dt = -r12 + r7 + r9
d(y11)/dt = -r9 - r10 + r8 + r11
d(y12)/dt = r9
d(y13)/dt = -r11 + r10
d(y14)/dt = -r13 + r12
d(y15)/dt = r14
d(y16)/dt = -r18 - r19 + r16
d(y17)/dt = -r20
d(y18)/dt = r20
d(y19)/dt = -r21 - r22 - r24 + r23 + r25
d(y20)/dt = -r25 + r24""".replace("; ", "\n"),
    "van der pol": "d(x)/dt = v\nd(v)/dt = 1000 * (1 - x**2) * v - x",
}
STARTS = {
    "robertson": {"A": 1, "B": 0, "C": 0},
    "oregonator": {"x": 1, "y": 2, "z": 3},
    "hires": {"y1": 1, **dict.fromkeys([f"y{i}" for i in range(2, 8)], 0), "y8": 0.0057},
    "pollution": {**dict.fromkeys([f"y{i}" for i in range(1, 21)], 0), "y2": 0.2, "y4": 0.04, "y7": 0.1, "y8": 0.3,
                  "y9": 0.01, "y17": 0.007},
    "van der pol": {"x": 2, "v": 0},
}  # fmt: skip
ENDS = {  # Mazzia & Magherini, Test Set for IVP Solvers 2.4; of van der Pol's and the Oregonator Hairer & Wanner's page
    "robertson": (1e11, {"A": 2.083340149701255e-08, "B": 8.333360770334713e-14, "C": 0.9999999791665050}),
    "oregonator": (360, {"x": 1.000814870318523, "y": 1228.178521549917, "z": 132.0554942846706}),
    "hires": (321.8122, {"y1": 7.371312573325668e-4, "y5": 2.386356198831331e-3, "y8": 2.850001604814231e-3}),
    "pollution": (60, {"y1": 0.05646255480022769, "y2": 0.1342484130422339, "y4": 5.523140207484359e-3}),
    "van der pol": (2000, {"x": 1.706167732170469}),
}
DIGITS = {"robertson": 6, "oregonator": 5.5, "hires": 6, "pollution": 6.5, "van der pol": 5}


def problem(name, times=None, rtol=1e-6, **options):
    options = {"atol": (1e-9 if name == "robertson" else 1e-6) * rtol, "engine": "compiled", **options}
    times = [0, ENDS[name][0]] if times is None else times
    return OdeModel(TEXTS[name], state=STARTS[name], times=times, rtol=rtol, **options)


@pytest.mark.parametrize("name", sorted(ENDS))
@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-8, 1e-10])
def test_the_ends_are_the_published_ones(name, rtol):
    bound = problem(name, rtol=rtol).bind()
    end = dict(zip(bound.var_names, bound.simulate(bound.theta0)[-1], strict=True))
    error = max(abs(end[k] / v - 1) for k, v in ENDS[name][1].items())
    wanted = DIGITS[name] + np.log10(1e-6 / rtol) * (0.8 if rtol < 1e-6 else 1.0)
    most = 7.5 if name == "robertson" else 10  # A is 2e-8 beside C = 1, and rounding of C moves it
    assert -np.log10(error + 1e-16) > min(wanted, most) - 0.5
    assert bound.retries == 0


def test_rows_are_no_further_off_where_the_explicit_steps_become_slow():
    """The rows at t = 0.01 to 0.04 are those of steps that stability limits, until the stiff method goes on."""
    times = np.r_[0, np.geomspace(1e-5, 1e6, 1000)]
    rows = [problem("robertson", times, rtol=rtol)().to_numpy()[:, 1:] for rtol in (1e-6, 1e-11)]
    error = np.abs(rows[0] - rows[1]).max(axis=0) / rows[1].max(axis=0)
    assert error.max() < 1.3e-6  # LSODA's is 1.31e-6


@pytest.mark.parametrize("name", ["robertson", "hires"])
def test_rows_anywhere_and_their_sensitivities_are_those_of_the_augmented_system(name):
    times = np.r_[0, np.geomspace(1e-4, 300, 40)]
    text = TEXTS[name].replace("0.04", "k").replace("1.71", "k")
    parms = {"k": 0.04 if name == "robertson" else 1.71}
    options = {"state": STARTS[name], "times": times, "parms": parms}
    atol = 1e-13 if name == "robertson" else 1e-11
    ours = OdeModel(text, **options, engine="compiled", rtol=1e-7, atol=atol).bind()
    other = OdeModel(text, **options, method="Radau", rtol=1e-10, atol=atol * 1e-3).bind()
    (Y, S), (Z, R) = ours.sensitivities(ours.theta0), other.sensitivities(other.theta0)
    assert (ours.retries, other.retries) == (0, 0)
    np.testing.assert_array_less(np.abs(Y - Z).max(axis=0), 3e-7 * np.abs(Z).max(axis=0))
    np.testing.assert_array_less(np.abs(S - R).max(axis=0), 3e-6 * np.abs(R).max(axis=0))
    np.testing.assert_array_less(np.abs(ours.simulate(ours.theta0) - Z).max(axis=0), 3e-7 * np.abs(Z).max(axis=0))


# --- both methods in one run


def changes(monkeypatch, model):
    """Run the loop's text on a model; return the times at which the run changed its method, and the rows."""
    seen, change = [], dormand_prince._change_method

    def heard(stiff, rates, model, t, *rest):
        seen.append(float(t))
        change(stiff, rates, model, t, *rest)

    monkeypatch.setattr(dormand_prince, "_change_method", heard)
    bound = model.bind()
    runner = bound._runner(explicit.ENGINE, "plain")
    system, p = runner._system, bound._base
    functions, (plan, _code) = explicit._functions(system), stiff_code.stiff_plan(system)
    q, n = np.zeros(system.layout.size), system.n_states
    q[: len(p)] = p
    stiff = rosenbrock.Stiff(c_loop(rosenbrock.run, "steps"), address(plan), np.zeros(plan[1]))
    run = stiff.run
    stiff = stiff._replace(run=lambda what, plan, *arrays: run(what, plan, *map(address, arrays)))
    stiff.room[rosenbrock.END], stiff.room[rosenbrock.WAIT] = model.times[-1], dormand_prince.LOOK
    out, atol = np.empty((len(model.times), n)), np.broadcast_to(np.float64(bound._options.atol), (n,))
    status, *_ = dormand_prince.drive(
        lambda t, y, model, out: call(functions.rates, t, y, model[2], out), None, (0, 0, q), model.times[0], 0.0,
        np.array(runner._between[0].value(p.tolist()), dtype=float), model.times, n, bound._options.rtol, atol, np.inf,
        100_000, out, np.zeros((WORK, n)), np.empty((2, 0)), None, stiff,
    )  # fmt: skip
    assert status == DONE
    np.testing.assert_allclose(bound.simulate(bound.theta0)[:, :n], out, rtol=1e-6, atol=1e-9)
    assert bound.retries == 0
    return seen


def test_a_model_that_is_not_stiff_stays_with_the_explicit_method(monkeypatch):
    assert changes(monkeypatch, hiv_model(engine="compiled")) == []
    swinging = OdeModel("d(x)/dt = v\nd(v)/dt = -x", state={"x": 1, "v": 0}, times=[0, 300], engine="compiled")
    assert changes(monkeypatch, swinging) == []


def test_a_stiff_model_changes_once_and_soon(monkeypatch):
    (at,) = changes(monkeypatch, problem("robertson"))
    assert at < 0.1
    (at,) = changes(monkeypatch, problem("pollution"))
    assert at < 1e-6


def test_what_was_stiff_at_first_goes_back_to_the_explicit_method_and_what_swings_changes_often(monkeypatch):
    smooth = OdeModel(
        "k = where(t < 1, 1e5, 0)\nd(x)/dt = -(k * exp(-20 * t) + 0.1) * (x - cos(t)) \nd(y)/dt = x - 0.1 * y".replace(
            "where(t < 1, 1e5, 0)", "1e5"
        ),
        state={"x": 0, "y": 1}, times=np.linspace(0, 200, 11), engine="compiled", rtol=1e-7, atol=1e-9,
    )  # fmt: skip
    there, back = changes(monkeypatch, smooth)
    assert 0 < there < back < 5
    many = changes(monkeypatch, problem("van der pol", times=np.linspace(0, 4000, 5)))
    assert len(many) % 2 == 1
    assert many[0] < 1


@pytest.mark.parametrize("name", ["van der pol", "oregonator"])
def test_runs_together_are_those_of_one_by_one_to_the_last_bit_in_any_order(name):
    text = TEXTS[name].replace("1000", "k").replace("77.27", "k")
    k0, end = (1000.0, 3000) if name == "van der pol" else (77.27, 300)
    model = OdeModel(
        text, state=STARTS[name], times=np.linspace(0, end, 7), parms={"k": k0}, engine="compiled", rtol=1e-5
    )
    Theta = k0 * np.random.default_rng(1).uniform(0.02, 2, size=(40, 1))
    first = model.bind()
    one = np.array(
        [model.bind().simulate(theta) for theta in Theta[:5]] + [first.simulate(theta) for theta in Theta[5:]]
    )
    for order in (np.arange(40), np.random.default_rng(2).permutation(40)):
        Y, why = simulate_many(model.bind(), Theta[order])
        assert not any(why)
        np.testing.assert_array_equal(Y, one[order])
    with ThreadPoolExecutor(4) as pool:
        fresh = model.bind()
        np.testing.assert_array_equal(list(pool.map(fresh.simulate, Theta)), one)


def test_species_that_vanish_do_not_end_a_run():
    """What is left of them is nothing beside the terms that cancel to it, and no equation of it can be solved well."""
    text = """
d(a)/dt = -1e4 * a * b
d(b)/dt = -1e4 * a * b - c * b
d(c)/dt = 1e4 * a * b - 1e-3 * c + 20 * d
d(d)/dt = -20 * d"""
    start = {"a": 1, "b": 0.7, "c": 0.1, "d": 0.3}
    bound = OdeModel(text, state=start, times=[0, 1, 1000, 1e5], engine="compiled", rtol=1e-7, atol=1e-10).bind()
    Y = bound.simulate(bound.theta0)
    assert bound.retries == 0
    assert np.abs(Y[1:, [1, 3]]).max() < 1e-6
    assert Y[-1, 2] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("k", [1e3, 1e5, 1e8])
@pytest.mark.parametrize("rtol", [1e-4, 1e-8])
def test_rows_inside_long_steps_are_right_where_the_ends_of_steps_are_right_of_themselves(k, rtol):
    """Prothero & Robinson's problem: its error shows nowhere but between the ends."""
    model = OdeModel(
        "d(x)/dt = -k * (x - cos(w * t)) - w * sin(w * t)", state={"x": 1}, times=np.linspace(0, 20, 57),
        parms={"k": k, "w": 1.0}, engine="compiled", rtol=rtol, atol=rtol,
    )  # fmt: skip
    bound = model.bind(["w"])
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(bound.simulate(bound.theta0)[:, 0], np.cos(model.times), atol=5 * rtol)
    np.testing.assert_allclose(Y[:, 0], np.cos(model.times), atol=5 * rtol)
    np.testing.assert_allclose(S[:, 0, 0], -model.times * np.sin(model.times), atol=500 * rtol)
    assert bound.retries == 0


# --- what happens along a run


def test_a_dose_and_a_forcing_with_knots_change_nothing_in_how_exact_a_stiff_run_is():
    text = "d(x)/dt = -k * (x - y) + u\nd(y)/dt = k * (x - y) - 0.5 * y"
    times, knots = np.linspace(0, 10, 21), np.arange(0, 11.0)
    u = knots, np.sin(knots) ** 2 * 100
    events = [
        {"var": "x", "time": 3.3, "value": "d", "method": "add"},
        {"var": "y", "time": 7, "value": 0.1, "method": "multiply"},
    ]
    options = {
        "state": {"x": 1, "y": 0},
        "times": times,
        "parms": {"k": 1e4, "d": 5.0},
        "forcings": {"u": u},
        "events": events,
    }
    ours = OdeModel(text, **options, engine="compiled", rtol=1e-7, atol=1e-9).bind()
    other = OdeModel(text, **options, method="Radau", rtol=1e-8, atol=1e-10).bind()
    (Y, S), (Z, R) = ours.sensitivities(ours.theta0), other.sensitivities(other.theta0)
    assert ours.retries == 0
    np.testing.assert_allclose(Y, Z, rtol=3e-7, atol=1e-7)
    np.testing.assert_allclose(S * ours.theta0, R * ours.theta0, rtol=1e-5, atol=1e-7)


def test_root_events_of_a_stiff_run_are_found_with_their_derivatives():
    """x follows y, which rises by a, until x has risen to b and both begin anew: every b / a + 1 / k, by hand."""
    k, a, b = 1e5, 0.7, 2.0
    model = OdeModel(
        f"d(x)/dt = -{k} * (x - y)\nd(y)/dt = a", state={"x": 0, "y": 0}, times=np.linspace(0, 10, 24),
        parms={"a": a, "b": b}, events=[{"root": "x - b", "direction": 1, "var": v, "value": 0} for v in "xy"],
        rtol=1e-8, atol=1e-10, engine="compiled",
    )  # fmt: skip
    bound = model.bind()
    Y, S = bound.sensitivities(bound.theta0)
    n = np.floor(model.times / (b / a + 1 / k))
    np.testing.assert_allclose(Y[:, 1], a * (model.times - n * (b / a + 1 / k)), atol=1e-6)
    np.testing.assert_allclose(S[:, 1], np.c_[model.times - n / k, -n], atol=1e-5)
    assert bound.retries == 0


@pytest.mark.parametrize(
    ("rate", "why", "at"),
    [
        ("y**2", "runs to infinity", 1.0),
        ("sqrt(0.7 - t)", "too small", 0.7),
        ("-1 / (y + 1e-9)", "too small|stiff", 0.5),
        ("where(t > 0.6, log(-y), 1)", "too small|not finite", 0.6),
    ],
)
def test_a_stiff_run_that_cannot_go_on_ends_soon_with_a_reason_and_the_time(rate, why, at):
    text = f"d(x)/dt = -1e5 * (x - y)\nd(y)/dt = {rate}"
    model = OdeModel(text, state={"x": 1, "y": 1}, times=[0, 5], engine="compiled")
    system = build_system(model.equations, (), False)
    inputs = np.zeros(system.layout.size + system.n_watched)
    began = time.process_time()
    with pytest.raises(SimulationError, match=why) as caught:
        explicit.CompiledStepper(system, 1e-6, 1e-8).advance(0.0, np.ones(2), inputs, np.array([5.0]))
    assert caught.value.time == pytest.approx(at, abs=1e-2)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("rtol", [1e-17, 1e-19])
def test_a_tolerance_below_rounding_ends_in_bounded_time(rtol):
    system = build_system(problem("hires").equations, (), True)
    began = time.process_time()
    start, inputs = np.array([*STARTS["hires"].values()]), np.zeros(system.layout.size)
    with suppress(SimulationError):
        (end,) = explicit.CompiledStepper(system, rtol, rtol).advance(0.0, start, inputs, np.array([321.8122]))[1]
        assert end[0] == pytest.approx(ENDS["hires"][1]["y1"], rel=1e-9)
    assert time.process_time() - began < 4


@pytest.mark.slow
def test_two_thousand_stiff_states_written_as_text_run_on_the_compiled_engine():
    n, end = 2000, 2.0
    rates = [f"D * (y{max(i - 1, 0)} - 2 * y{i} + y{min(i + 1, n - 1)}) + r * y{i} * (1 - y{i})" for i in range(n)]
    text = "\n".join(f"dy{i}/dt = {rate}" for i, rate in enumerate(rates))
    x = (np.arange(n) + 0.5) / n
    start, parms = np.exp(-(((x - 0.5) / 0.05) ** 2)), {"D": 1e-3 * n**2, "r": 1.0}
    bound = OdeModel(text, state=dict(zip((f"y{i}" for i in range(n)), start, strict=True)), parms=parms,
                     times=[0, 1, end], rtol=1e-6, atol=1e-8).bind()  # fmt: skip
    Y = bound.simulate(bound.theta0)
    assert (bound.engine, bound.retries) == ("compiled", 0)

    def by_arrays(t, y, p):
        return p["D"] * np.diff(np.diff(np.concatenate([y[:1], y, y[-1:]]))) + p["r"] * y * (1 - y)

    grid = OdeModel(by_arrays, state=start, parms=parms, times=[0, 1, end], rtol=1e-9, atol=1e-11).bind()
    np.testing.assert_allclose(Y, grid.simulate(grid.theta0), atol=2e-5)
