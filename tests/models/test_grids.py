"""Grids in the compiled loop: a band of loops as Jacobian, whatever the order of the states, beside scipy's solvers."""

from __future__ import annotations

import tracemalloc
from functools import cache

import cloudpickle
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import fmepy as fme
from fmepy.errors import SimulationError
from fmepy.models.engines import grids

N = 60
X = (np.arange(N) + 0.5) / N


def laplacian(y):
    return N**2 * np.diff(np.diff(np.concatenate([y[:1], y, y[-1:]])))


def fisher(t, y, p):
    return p["D"] * laplacian(y) + p["r"] * y * (1 - y)


def heat(t, y, p):
    """Conductivity by place, one end that swings, one that leaks: both cells written apart."""
    flux = -p["D"] * (1 + X[1:] ** 2) * np.diff(y) * N
    out = np.zeros_like(y)
    out[1:-1] = -np.diff(flux) * N
    out[0] = -flux[0] * N + 2 * N**2 * p["D"] * (np.sin(3 * t) - y[0])
    out[-1] = flux[-1] * N - p["r"] * np.sqrt(1 + y[-1] ** 2)
    return out


def river(t, y, p):
    up = np.concatenate([[1 + 0.5 * np.cos(t)], y[:-1]])
    return p["D"] * laplacian(y) + p["r"] * N * (up - y) - y**2 / (0.1 + y)


def stacked(t, z, p):
    u, v = z[: N // 2], z[N // 2 :]
    around = np.concatenate([[1.0], u, [1.0]]), np.concatenate([[3.0], v, [3.0]])
    spread = [p["D"] * (N / 2) ** 2 * np.diff(np.diff(a)) for a in around]
    return np.concatenate([1 + u**2 * v - (p["r"] + 1) * u + spread[0], p["r"] * u - u**2 * v + spread[1]])


def interleaved(t, z, p):
    out = np.empty_like(z)
    rates = stacked(t, np.concatenate([z[::2], z[1::2]]), p)
    out[::2], out[1::2] = rates[: N // 2], rates[N // 2 :]
    return out


BUMP = np.exp(-(((X - 0.5) / 0.05) ** 2))
WAVES = [1 + np.sin(2 * np.pi * (np.arange(N // 2) + 1) / (N // 2 + 1)), np.full(N // 2, 3.0)]
CASES = {
    "fisher": (fisher, BUMP, dict(D=1e-2, r=1.0), (1, 1)),
    "heat": (heat, BUMP, dict(D=0.1, r=0.5), (1, 1)),
    "river": (river, BUMP, dict(D=0.05, r=0.1), (1, 1)),
    "stacked": (stacked, np.concatenate(WAVES), dict(D=0.02, r=3.0), (2, 2)),
    "interleaved": (interleaved, np.column_stack(WAVES).ravel(), dict(D=0.02, r=3.0), (2, 2)),
}
TIMES = np.linspace(0, 4, 9)


def model_of(case, **arguments):
    rates, start, parms, _ = CASES[case]
    given = {"state": start, "parms": parms, "times": TIMES, "rtol": 1e-7, "atol": 1e-9}
    return fme.OdeModel(rates, **{**given, **arguments})


@cache
def exact(case, name="", value=0.0):
    """Return what Radau gives, and LSODA where a parameter has another value."""
    rates, start, p, _ = CASES[case]
    p = {**p, name: value}
    method, rtol = ("LSODA", 1e-11) if name else ("Radau", 1e-8)
    return solve_ivp(lambda t, y: rates(t, y, p), (0, TIMES[-1]), start, method, TIMES, rtol=rtol, atol=1e-2 * rtol).y.T


@pytest.mark.parametrize("case", CASES)
def test_grids_run_as_scipy_has_them_with_the_band_that_they_have(case):
    model = model_of(case)
    assert (model.engine, model.engine_note) == ("compiled", "")
    _, lower, upper = grids.code_of(model.definition.arrays).structure.band
    assert (lower, upper) == CASES[case][3]
    bound, Y = model.bind(), exact(case)
    for own in (bound, model.replace(engine="stiff").bind()):
        np.testing.assert_allclose(own.simulate(own.theta0), Y, atol=5e-7 * np.abs(Y).max())
        assert own.retries == 0


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["compiled", "stiff"])
def test_sensitivities_are_exact_by_either_method(case, engine):
    model = model_of(case).replace(engine=engine)  # which keeps the loops: engine= at once asks for equations
    bound = model.bind(("r", "D"))
    assert (model.equations, bound.engine, bound.exact) == (None, engine, True)
    _, S = bound.sensitivities(bound.theta0)
    for j, (name, value) in enumerate(zip(bound.names, bound.theta0, strict=True)):
        h = 1e-4 * value
        differences = (exact(case, name, value + h) - exact(case, name, value - h)) / (2 * h)
        np.testing.assert_allclose(S[:, :, j], differences, atol=1e-5 * np.abs(differences).max())
    assert bound.retries == 0


@pytest.mark.parametrize("case", ["heat", "fisher"])
def test_steps_of_half_the_length_are_off_by_a_tenth_and_less(case):
    """Without df/dt, or without second derivatives, they would not be: the order falls to 2, or to 1."""
    given = {"times": [0, 1.0], "engine": "stiff"}
    exact = model_of(case).replace(rtol=1e-10, atol=1e-12, **given).bind(("D",))
    wanted, errors = exact.sensitivities(exact.theta0), []
    for h in (0.05, 0.025):
        bound = model_of(case).replace(rtol=0.5, atol=1e6, max_step=h, **given).bind(("D",))
        found = bound.sensitivities(bound.theta0)
        errors.append([np.abs(a - b).max() for a, b in zip(found, wanted, strict=True)])
    assert (np.divide(*errors) > 10).all()


def test_a_model_that_was_stiff_once_gives_the_same_numbers_again_and_elsewhere():
    bound = model_of("fisher").bind()
    first = bound.simulate(bound.theta0)
    np.testing.assert_array_equal(bound.simulate(bound.theta0), first)
    np.testing.assert_array_equal(cloudpickle.loads(cloudpickle.dumps(bound)).simulate(bound.theta0), first)


def test_forcings_events_and_starts_of_parameters_work_as_on_scipy():
    def rates(t, y, p):
        return p["D"] * laplacian(y) - p["r"] * y + p["feed"] * np.exp(-X)

    events = [
        dict(var="4", time=1.3, value="dose", method="add"),
        dict(var="9", time=2.0, value=0.5, method="multiply"),
    ]
    given = {
        "state": ["high", *np.zeros(N - 1)], "parms": {"D": 0.02, "r": 0.3, "dose": 2.0, "high": 1.0}, "times": TIMES,
        "forcings": {"feed": ([0, 1, 1.2, 4], [1.0, 0.2, 1.5, 0.0])}, "events": events, "rtol": 1e-8, "atol": 1e-10,
    }  # fmt: skip
    ours, theirs = (fme.OdeModel(rates, engine=engine, **given) for engine in ("auto", "scipy"))
    assert ours.engine == "compiled"
    names = ("dose", "D", "high")
    (Y, S), (Y2, S2) = (m.bind(names).sensitivities(m.bind(names).theta0) for m in (ours, theirs))
    np.testing.assert_allclose(Y, Y2, atol=1e-6)
    np.testing.assert_allclose(S, S2, atol=2e-6 * np.abs(S2).max())


def test_wide_bands_and_full_couplings_stay_on_scipy_and_say_why():
    k = 24

    def plane(t, y, p):
        Y = y.reshape(k, k)
        flow = np.diff(np.concatenate([Y[:1], Y, Y[-1:]]), axis=0)
        side = np.diff(np.concatenate([Y[:, :1], Y, Y[:, -1:]], axis=1), axis=1)
        return p["D"] * (np.diff(flow, axis=0) + np.diff(side, axis=1)).ravel()

    model = fme.OdeModel(plane, state=np.linspace(0, 1, k * k), parms={"D": 0.1}, times=[0, 1])
    assert model.engine == "scipy"
    assert "diagonals, and the compiled engine takes at most" in model.engine_note
    full = fme.OdeModel(lambda t, y, p: p["D"] * (y.mean() - y), state=BUMP, parms={"D": 0.1}, times=[0, 1])
    assert full.engine == "scipy"


def test_an_explosion_says_which_cell_when_and_by_how_much():
    def burning(t, y, p):
        return p["D"] * laplacian(y) + p["r"] * y**3

    model = fme.OdeModel(burning, state=5 * BUMP, parms={"D": 1e-3, "r": 1.0}, times=TIMES)
    with pytest.raises(SimulationError, match=r"runs to infinity \((30|31) = .* changes by") as caught:
        model()
    assert 0 < caught.value.time < 1


def test_rates_without_a_value_say_so_at_their_time():
    def rooted(t, y, p):
        return p["D"] * laplacian(y) + np.sqrt(1.5 - t) * y

    model = fme.OdeModel(rooted, state=BUMP, parms={"D": 1e-2}, times=TIMES)
    with pytest.raises(SimulationError) as caught:
        model()
    assert 1.4 <= caught.value.time <= 2.0


def test_ten_thousand_cells_take_little_memory_and_no_code_that_grows_with_them():
    n = 10_000

    def large(t, y, p):
        return p["D"] * n**2 * np.diff(np.diff(np.concatenate([y[:1], y, y[-1:]]))) + y * (1 - y)

    x = (np.arange(n) + 0.5) / n
    model = fme.OdeModel(large, state=np.exp(-(((x - 0.5) / 0.05) ** 2)), parms={"D": 1e-3}, times=[0, 1, 2])
    text = grids.code_of(model.definition.arrays).text()
    assert len(text) < 100_000
    bound = model.bind()
    tracemalloc.start()
    Y = bound.simulate(bound.theta0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 0.1 * n * n * 8
    assert (bound.engine, bound.retries) == ("compiled", 0)
    np.testing.assert_allclose(Y[-1], Y[-1, ::-1], atol=1e-6)
    assert fme.OdeModel(large, state=Y[-1], parms={"D": 1e-3}, times=[0, 1], engine="compiled").equations is None
