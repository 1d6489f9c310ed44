"""Models whose vector function is compiled as loops over arrays are what they are in Python, with exact slopes."""

from __future__ import annotations

import pickle
from dataclasses import replace

import cloudpickle
import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ModelError, SimulationError
from tests.plain import plain

N = 50
GRID = fme.Grid1D(np.linspace(0, 10, N + 1))
TIMES = np.linspace(0, 8, 9)
PARMS = {"D": 0.5, "v": 0.3, "k": 0.2, "top": 1.0}


def plume(t, C, p):
    flow = fme.transport_1d(C, GRID, D=p["D"], v=p["v"], up=p["top"])
    return flow.rate - p["k"] * C / (1 + C), {"leaves": flow.flux[-1], "mass": C @ GRID.volume}


def model(rhs=plume, **arguments):
    given = {"state": np.linspace(0.5, 0, N), "times": TIMES, "parms": PARMS, "rtol": 1e-8, "atol": 1e-10}
    return fme.OdeModel(rhs, **{**given, **arguments})


def untraced(of):
    out = of.replace(**({"engine": "scipy"} if of.engine == "compiled" else {}))
    out.definition = replace(out.definition, arrays=None)
    return out


@pytest.fixture(scope="module")
def plumes():
    return model(outputs={"twice": "2 * mass * k"})


def test_runs_are_those_of_the_python_function(plumes):
    assert plumes.engine == "compiled"
    assert plumes.engine_note == ""
    assert plumes.equations is None
    np.testing.assert_allclose(plumes().to_numpy(), untraced(plumes)().to_numpy(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["BDF", "RK45", "rk4", "euler"])
def test_other_methods_run_the_same_loops(plumes, method):
    given = plumes.replace(method=method, **({"dt": 0.02} if method in ("rk4", "euler") else {}))
    np.testing.assert_allclose(given().to_numpy(), untraced(given)().to_numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("changes", [{}, {"method": "rk4", "dt": 0.02}], ids=["lsoda", "rk4"])
def test_sensitivities_are_exact(plumes, changes):
    given = plumes.replace(**changes)
    bound = given.bind(("k", "D", "top"))
    assert bound.exact
    Y, S = bound.sensitivities(bound.theta0)
    np.testing.assert_allclose(Y, bound.simulate(bound.theta0), rtol=1e-6, atol=1e-8)
    other = untraced(given.replace(rtol=1e-10, atol=1e-12)).bind(("k", "D", "top"))
    assert not other.exact
    np.testing.assert_allclose(S, other.sensitivities(bound.theta0)[1], atol=2e-6 * np.abs(S).max())


def test_sensitivities_pass_through_starts_events_and_forcings():
    def fed(t, C, p):
        return fme.transport_1d(C, GRID, D=p["D"], flux_up=p["feed"]).rate - p["k"] * C

    events = [
        dict(var="3", time=2.0, value="dose", method="add"),
        dict(var="9", time=4.5, value=0.5, method="multiply"),
    ]
    given = model(
        fed,
        state=["start", *np.zeros(N - 1)],
        parms={"D": 0.3, "k": 0.1, "dose": 2.0, "start": 1.0},
        forcings={"feed": ([0, 3, 3.5, 8], [1.0, 0.2, 1.5, 0.0])},
        events=events,
    )
    bound, h = given.bind(), 1e-4
    assert bound.exact
    S = bound.sensitivities(bound.theta0)[1]
    by_differences = [
        (bound.simulate(bound.theta0 + h * e) - bound.simulate(bound.theta0 - h * e)) / (2 * h) for e in np.eye(4)
    ]
    np.testing.assert_allclose(S, np.stack(by_differences, axis=-1), atol=1e-5 * np.abs(S).max())


def test_species_one_after_the_other_and_a_rate_of_all_cells():
    def reacting(t, y, p):
        A, B = y.reshape(2, -1)
        r = p["k"] * A * B
        spread = [fme.transport_1d(C, GRID, D=p["D"], up=up).rate for C, up in ((A, p["top"]), (B, 0.5))]
        return np.concatenate([spread[0] - r, spread[1] - r + 1e-3 * A.sum()])

    given = model(reacting, state=np.full(2 * N, 0.3))
    bound = given.bind(("k", "D"))
    S, other = bound.sensitivities(bound.theta0)[1], untraced(given).bind(("k", "D"))
    assert bound.exact
    np.testing.assert_allclose(S, other.sensitivities(bound.theta0)[1], atol=1e-4 * np.abs(S).max())


def test_a_jump_where_a_state_passes_a_level_is_left_to_differences():
    def jumping(t, C, p):
        return fme.transport_1d(C, GRID, D=p["D"], up=p["top"]).rate - np.where(p["k"] > C, p["v"], 0.0) * C

    given = model(jumping)
    assert given.engine == "compiled"
    assert not given.bind().exact
    np.testing.assert_allclose(given().to_numpy(), untraced(given)().to_numpy(), rtol=1e-5, atol=1e-6)


def test_a_jump_at_a_known_time_is_no_obstacle():
    given = model(lambda t, C, p: fme.transport_1d(C, GRID, D=p["D"], up=1 + (t > 3)).rate, parms={"D": 0.3})
    assert given.bind().exact


def test_what_cannot_be_traced_runs_as_it_is_and_says_why():
    def deciding(t, C, p):
        rate = fme.transport_1d(C, GRID, D=p["D"], up=1.0).rate
        if plain(C[0]) > 0.5:
            rate = rate - p["k"] * C
        return rate

    given = model(deciding, parms={"D": 0.3, "k": 0.1})
    assert given.definition.arrays is None
    assert "`if plain(C[0]) > 0.5:`: " in given.engine_note
    assert "leave float() out" in given.engine_note
    assert np.isfinite(given().to_numpy()).all()


def test_a_function_of_random_numbers_is_not_taken_for_what_it_gave_once():
    rng = np.random.default_rng(1)
    given = model(lambda t, C, p: -p["k"] * C * rng.uniform(0.9, 1.1), parms={"k": 0.1})
    assert given.definition.arrays is None
    assert "random" in given.engine_note


def test_bad_functions_are_told_at_the_door():
    with pytest.raises(ModelError, match="returned 49 values"):
        model(lambda t, C, p: C[1:])
    with pytest.raises(ModelError, match="could not be broadcast"):
        model(lambda t, C, p: C + C[1:])

    def in_place(t, C, p):
        C[0] = 1.0
        return -C

    with pytest.raises(ModelError, match=r"y = y\.copy\(\)"):
        model(in_place)


def test_a_negative_diffusion_is_refused_as_the_function_refuses_it(plumes):
    with pytest.raises(SimulationError, match=r"`D` must not be negative; its smallest is -0\.5"):
        plumes({"D": -0.5})


def test_a_failed_run_says_what_the_function_says():
    given = model(lambda t, C, p: -C * (1 / p["k"]), parms={"k": 1.0})
    with pytest.raises(SimulationError, match="ZeroDivisionError"):
        given({"k": 0.0})


def test_runs_that_explode_are_failures_that_are_kept():
    given = model(lambda t, C, p: p["k"] * C**2 - 0.1 * C, parms={"k": 0.0}, state=np.full(N, 1.0))
    with pytest.raises(SimulationError):
        given({"k": 2.0})
    kept = fme.sensRange(given, parInput={"k": [0.0, 2.0, 0.05]}, num=3, sensvar="1")
    assert len(kept.failures) == 1
    assert np.isnan(kept.values).any(axis=(1, 2)).sum() == 1


def test_copies_share_what_was_compiled(plumes):
    copy = plumes.replace(parms={"k": 0.3}, state=np.full(N, 0.9))
    assert copy.definition.arrays is plumes.definition.arrays
    other = plumes.replace(rhs=lambda t, C, p: (-C * p["k"], {"leaves": p["D"], "mass": C[0]}))
    assert other.definition.arrays is not plumes.definition.arrays


def test_models_travel(plumes):
    there = pickle.loads(cloudpickle.dumps(plumes))
    assert there.bind().exact
    np.testing.assert_array_equal(there().to_numpy(), plumes().to_numpy())


def test_ensembles_are_the_same_on_two_workers(plumes):
    ranges = {"k": (0.1, 0.3), "D": (0.2, 0.8)}
    one, two = (
        fme.sensRange(plumes, parRange=ranges, num=4, seed=1, sensvar=["mass", "10"], executor=executor)
        for executor in (None, 2)
    )
    np.testing.assert_array_equal(one.values, two.values)


def test_a_fit_finds_the_truth_by_exact_slopes(plumes):
    truth = {"k": 0.31, "D": 0.42}
    data = plumes(truth)[["time", "5", "20", "leaves"]].iloc[1:]
    cost = fme.SimulationCost(plumes, data)
    fit = fme.modFit(cost, p={"k": 0.2, "D": 0.6}, lower=0)
    np.testing.assert_allclose(fit.par[["k", "D"]], list(truth.values()), rtol=1e-5)
    screened = fme.sensFun(cost, senspar=["k", "D"])
    by_hand = fme.sensFun(fme.SimulationCost(untraced(plumes), data), senspar=["k", "D"])
    np.testing.assert_allclose(screened.matrix, by_hand.matrix, atol=2e-5 * np.abs(by_hand.matrix.to_numpy()).max())
