"""steady, steady_1d, runsteady, ode_1d: numbers of rootSolve and deSolve, hard starts, bad input."""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError, NoSteadyStateError, SimulationError
from tests.plain import plain

FOLDER = Path(__file__).parent.parent / "reference" / "fme"
CASES = {c["id"]: c for c in json.loads((FOLDER / "ode.json").read_text(encoding="utf-8"))["cases"]}
BETWEEN = np.r_[0.025, np.full(99, 0.05), 0.025]
OXYGEN = CASES["o2_steady"]["inputs"]["parms"]


def oxygen(t, O2, p):
    flux = -p["D"] * np.diff(np.r_[p["upO2"], O2, O2[-1]]) / BETWEEN
    return -np.diff(flux) / 0.05 - p["cons"] * O2 / (O2 + p["ks"]), {"UpFlux": flux[0], "LowFlux": flux[-1]}


def river(t, y, p):
    BOD, O2 = y.reshape(2, -1)
    rate = p["r"] * BOD * O2 / (O2 + p["ks"])
    carried = [-p["v"] * np.diff(np.r_[top, C]) / 100 for top, C in ((p["BOD_0"], BOD), (p["O2_0"], O2))]
    return np.r_[carried[0] - rate, carried[1] - rate + p["p"] * (p["O2sat"] - O2)], {"BODrate": rate}


def prey(t, y, p):
    eaten = p["a"] * y[0] * y[1]
    return p["s"] - eaten, eaten - p["m"] * y[1] ** 2


# --- the numbers of R


@pytest.mark.parametrize("find", [fme.steady, fme.steady_1d])
def test_the_oxygen_of_a_sediment(find):
    expected = CASES["o2_steady"]["outputs"]
    found = find(np.full(100, 0.5), oxygen, OXYGEN, positive=True, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.state, expected["O2"], rtol=1e-9)
    assert found.outputs["UpFlux"] == pytest.approx(expected["UpFlux"], rel=1e-10)
    assert found.converged
    assert found.residual < 1e-7


def test_the_oxygen_of_a_sediment_by_running_on():
    found = fme.runsteady(np.full(100, 0.5), oxygen, OXYGEN)
    np.testing.assert_allclose(found.state, CASES["o2_steady"]["outputs"]["O2"], rtol=1e-7)


def test_two_species_along_a_river():
    expected = CASES["bodo2"]["outputs"]["table"]["data"]
    found = fme.steady_1d(np.ones(200), river, CASES["bodo2"]["inputs"]["parms"], nspec=2, positive=True)
    BOD, O2 = found.state.reshape(2, -1)
    np.testing.assert_allclose(BOD, expected["BOD"], rtol=1e-6, atol=1e-11)
    np.testing.assert_allclose(O2, expected["O2"], rtol=1e-9)
    np.testing.assert_allclose(found.outputs["BODrate"], expected["BODrate"], rtol=1e-6, atol=1e-9)
    assert found.frame.columns.tolist() == ["cell", "1", "2"]


def test_two_states():
    case = CASES["steady_2"]
    found = fme.steady(case["inputs"]["start"], prey, case["inputs"]["parms"])
    np.testing.assert_allclose(found.state, case["outputs"]["analytic"], rtol=1e-9)
    assert found.state.index.tolist() == ["x", "z"]


def test_the_roots_of_equations():
    case = CASES["multiroot"]
    expected = next(v for k, v in case["outputs"].items() if np.ndim(v) == 1)
    found = fme.steady([1, 1, 1], lambda t, y, p: [
        y[0] + y[1] + y[2] ** 2 - 12, y[0] ** 2 - y[1] + y[2] - 2, 2 * y[0] - y[1] ** 2 + y[2] - 1
    ])  # fmt: skip
    np.testing.assert_allclose(found.state, expected, rtol=1e-7)


def test_the_oxygen_as_it_comes_in():
    case = CASES["o2_dynamic"]
    run = fme.ode_1d(np.zeros(100), case["inputs"]["times"], oxygen, OXYGEN, rtol=1e-10, atol=1e-12)
    expected = pd.DataFrame(case["outputs"]["table"]["data"])
    np.testing.assert_allclose(run[expected.columns], expected, rtol=1e-6, atol=1e-8)
    assert {"UpFlux", "LowFlux"} <= set(run.columns)


# --- the structure of the Jacobian is found


def counted(function):
    calls = []

    def counting(t, y, p):
        calls.append(1)
        return function(t, y, p)

    return counting, calls


def test_a_model_of_many_boxes_needs_no_bandwidth(monkeypatch):
    from fmepy.models import ode_run

    monkeypatch.setattr(ode_run, "OdeModel", ode_run._PlainModel)  # as it is, for calls to be counted
    n = 60
    grid = fme.Grid1D(np.linspace(0, 10, n + 1))

    def rates(t, y, p):
        A, B = y.reshape(2, -1)
        flow = [fme.transport_1d(C, grid, D=50.0, v=0.2, up=1.0).rate for C in (A, B)]
        return np.r_[flow[0] - 3 * A * B, flow[1] - 3 * A * B]

    times, start = [0, 1, 5], np.zeros(2 * n)
    plain, many = counted(rates)
    banded, few = counted(rates)
    without = fme.ode(start, times, plain, bandwidth=2 * n - 1, rtol=1e-8, atol=1e-10)
    found = fme.ode_1d(start, times, banded, nspec=2, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found, without, rtol=1e-5, atol=1e-8)
    assert len(few) < len(many) / 2


@pytest.mark.parametrize("times", [[0, 1], np.linspace(0, 3, 7)])
@pytest.mark.parametrize("run", [fme.ode, fme.ode_1d])
def test_a_function_of_whole_arrays_is_compiled_with_the_same_numbers(run, times, monkeypatch):
    from fmepy.models import ode_run

    watched, calls = counted(oxygen)
    found = run(np.zeros(100), times, watched, OXYGEN, rtol=1e-9, atol=1e-11)
    assert len(calls) < 30  # for its form and its outputs, not for its rates
    monkeypatch.setattr(ode_run, "OdeModel", ode_run._PlainModel)
    plain, many = counted(oxygen)
    np.testing.assert_allclose(found, run(np.zeros(100), times, plain, OXYGEN, rtol=1e-9, atol=1e-11), rtol=1e-7)
    assert len(many) > 10 * len(calls)


def test_one_that_cannot_be_traced_runs_as_it_is():
    def capped(t, C, p):
        return oxygen(t, C, p)[0] if plain(C[0]) < 1e9 else -C

    watched, calls = counted(capped)
    found = fme.ode_1d(np.zeros(100), [0, 1], watched, OXYGEN)
    assert len(calls) > 100
    np.testing.assert_allclose(
        found, fme.ode_1d(np.zeros(100), [0, 1], lambda *a: oxygen(*a)[0], OXYGEN), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("method", ["BDF", "Radau"])
def test_other_stiff_solvers_are_told_the_structure(method):
    def diffusion(t, C, p):
        return 100 * np.diff(np.r_[1.0, C, C[-1]], 2)

    counting, calls = counted(diffusion)
    run = fme.ode(np.zeros(60), [0, 1], counting, method=method)
    assert len(calls) < 1000
    np.testing.assert_allclose(run, fme.ode_1d(np.zeros(60), [0, 1], diffusion, rtol=1e-9), atol=2e-4)


# --- hard starts


def test_stiff_kinetics_from_a_far_start():
    # Robertson's, with what flows in and out: rates over nine decades
    def robertson(t, y, p):
        a, b, c = 0.04 * y[0], 1e4 * y[1] * y[2], 3e7 * y[1] ** 2
        return np.array([-a + b, a - b - c, c]) + 1e-3 * (np.array([1.0, 0, 0]) - y)

    found = fme.steady([1.0, 0, 0], robertson, positive=True)
    np.testing.assert_allclose(robertson(0, found.state, None), 0, atol=1e-12)
    assert found.state.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(fme.runsteady([1.0, 0, 0], robertson).state, found.state, rtol=1e-6)


@pytest.mark.parametrize("start", [1e-6, 1.0, 1e4])
@pytest.mark.parametrize("ks", [1e-6, 1e-2, 1.0, 1e3])
def test_oxygen_from_any_start(start, ks):
    found = fme.steady_1d(np.full(100, start), oxygen, {**OXYGEN, "ks": ks}, positive=True)
    again = fme.steady_1d(found.state, oxygen, {**OXYGEN, "ks": ks}, positive=True, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.state, again.state, rtol=1e-6, atol=1e-8)
    assert found.state.min() >= 0


def test_steps_in_time_arrive_where_newton_alone_does_not():
    # arctan: Newton's method overshoots; the S of a bistable switch: it must not leave the basin
    found = fme.steady([40.0, -30.0], lambda t, y, p: -np.arctan(y) + np.array([0.1, -0.2]))
    np.testing.assert_allclose(np.arctan(found.state), [0.1, -0.2], rtol=1e-8)


def test_small_states_are_resolved_whatever_their_unit():
    for scale in (1e-9, 1.0, 1e9):
        found = fme.steady([scale], lambda t, y, p, s=scale: s - y**2 / s - 0.5 * y)
        assert found.state[0] / scale == pytest.approx((-0.5 + np.sqrt(4.25)) / 2, rel=1e-9)


def test_what_is_conserved_comes_to_rest_where_the_start_leads():
    found = fme.runsteady({"A": 3.0, "B": 0.0}, lambda t, y, p: [-2 * y[0] + y[1], 2 * y[0] - y[1]])
    np.testing.assert_allclose(found.state, [1, 2], rtol=1e-6)


# --- systems that do not rest


def rates_of(*rates):
    return lambda t, y, p: np.array([f(t, *y) for f in rates])


BRUSSELATOR = rates_of(lambda t, x, y: 1 - 4 * x + x**2 * y, lambda t, x, y: 3 * x - x**2 * y)


@pytest.mark.parametrize(
    ("rates", "start", "low", "high"),
    [
        (rates_of(lambda t, x, y: x * (1 - y), lambda t, x, y: y * (x - 1)), {"prey": 2, "hunter": 1}, 0.3, 2.3),
        (rates_of(lambda t, x, v: v, lambda t, x, v: 2 * (1 - x**2) * v - x), {"prey": 2, "hunter": 0}, -2.1, 2.1),
        (rates_of(lambda t, x: 0.5 * np.sin(t) - 0.1 * x), {"prey": 1}, -0.6, 0.6),
        (BRUSSELATOR, {"prey": 1, "hunter": 1}, 0.3, 4),
    ],
)
def test_what_swings_is_told_soon_with_where_it_is_and_how_fast_it_moves(rates, start, low, high):
    watched, calls = counted(rates)
    with pytest.raises(NoSteadyStateError, match="goes up and down between") as caught:
        fme.runsteady(start, watched)
    assert len(calls) < 20_000  # a second; on to max_time they would be millions
    told = str(caught.value)
    name = "prey" if "'prey' goes" in told else "hunter"
    at = float(told.split("At t=")[1].split()[0])
    y, f = caught.value.last.state, rates(at, caught.value.last.state.to_numpy(), None)
    assert f"{name!r} is at {y[name]:.6g} and changes by {f[list(start).index(name)]:.3g} per unit of time" in told
    assert low < y["prey"] < high


def test_a_swing_that_dies_away_comes_to_rest():
    found = fme.runsteady([1.0, 0.0], rates_of(lambda t, x, v: v, lambda t, x, v: 0.5 - x - 0.01 * v))
    np.testing.assert_allclose(found.state, [0.5, 0], atol=1e-8)
    assert found.rightmost == pytest.approx(-0.005 + 1j * np.sqrt(1 - 0.005**2), rel=1e-6)


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (lambda t, x: 0.1 * x, "'N' grows|grows without end. At t="),
        (lambda t, x: x**2, "At t=0.999.* 'N' is at .*e.* and changes by"),
        (lambda t, x: 1.0, "At t=1e[+]06 'N' is at 1e[+]06 and changes by 1 per unit of time"),
    ],
)
def test_what_runs_away_is_told_with_where_and_how_fast(rate, told):
    with pytest.raises(NoSteadyStateError, match=told):
        fme.runsteady({"N": 1.0}, rates_of(rate))


# --- whether a state is stable


def test_a_steady_state_tells_whether_it_is_stable():
    stable = fme.steady([1.0, 1.0], prey, CASES["steady_2"]["inputs"]["parms"])
    assert stable.stable is True
    swings = fme.steady({"x": 1.2, "y": 2.5}, BRUSSELATOR)
    assert swings.stable is False
    assert swings.rightmost == pytest.approx(0.5 + 1j * np.sqrt(0.75), rel=1e-7)  # trace b - 1 - a^2, determinant a^2
    assert "unstable: the rightmost eigenvalue is 0.5 +- 0.866i" in repr(swings)
    assert "grow by a factor of e in a time of 2" in repr(swings)
    kept = fme.runsteady([3.0, 0.0], lambda t, y, p: [-2 * y[0] + y[1], 2 * y[0] - y[1]])
    assert kept.stable is None
    assert "neither stable nor unstable" in repr(kept)


def test_eigenvalues_are_found_when_they_are_asked_for():
    watched, calls = counted(BRUSSELATOR)
    found = fme.steady({"x": 1.2, "y": 2.5}, watched)
    before = len(calls)
    assert found.rightmost == found.rightmost
    assert 0 < len(calls) - before <= 4


def test_stability_travels_and_is_saved_as_numbers(tmp_path):
    found = fme.steady({"x": 1.2, "y": 2.5}, BRUSSELATOR)
    for other in (pickle.loads(pickle.dumps(found)), fme.load(found.save(tmp_path / "found.json"))):
        assert (other.stable, other.rightmost) == (False, found.rightmost)
        assert repr(other) == repr(found)


def test_the_limit_of_steps_holds_for_all_of_them():
    hard = rates_of(lambda t, x, y: -np.arctan(x) + 0.1, lambda t, x, y: -np.arctan(y) - 0.2)
    needed = fme.steady([40.0, -30.0], hard).iterations
    assert fme.steady([40.0, -30.0], hard, max_iter=needed).iterations == needed
    watched, calls = counted(lambda t, y, p: np.array([y[0] ** 2 + 1, -y[1]]))
    for most in (1, 2, 5, 12):
        with pytest.raises(NoSteadyStateError) as caught:
            fme.steady([40.0, -30.0], hard, max_iter=min(most, needed - 1))
        assert caught.value.last.iterations <= most
        calls.clear()
        with pytest.raises(NoSteadyStateError):
            fme.steady([1.0, 2.0], watched, max_iter=most)
        assert len(calls) < 30 * (most + 1)  # up to 14 shorter steps, a Jacobian
    with pytest.raises(NoSteadyStateError):
        fme.SteadyModel("d(N)/dt = 0.1 - N**3*k", state={"N": 40}, parms={"k": 1e-5}, max_iter=1)()


# --- results


def test_a_steady_state_prints_travels_and_is_kept(tmp_path):
    found = fme.steady_1d(np.full(100, 0.5), oxygen, OXYGEN, positive=True)
    assert "100 states" in repr(found)
    assert "UpFlux = 238.023" in repr(found)
    assert "<table" in found._repr_html_()
    for other in (pickle.loads(pickle.dumps(found)), fme.load(found.save(tmp_path / "found.json"))):
        np.testing.assert_array_equal(other.state, found.state)
        assert other.outputs == found.outputs


# --- bad input


def refused(find, *told, kind=NoSteadyStateError, **words):
    with pytest.raises(kind) as caught:
        find(**words)
    for text in told:
        assert text in str(caught.value)
    return caught.value


def test_no_steady_state_is_told_with_the_last_iterate():
    start = {"N": 1.0, "M": 2.0}
    error = refused(lambda: fme.steady(start, lambda t, y, p: [y[0] ** 2 + 1, -y[1]]),
                    "No steady state was found", "'N' = ", "the largest rate is", "of 'N'", "runsteady")  # fmt: skip
    assert isinstance(error, SimulationError)
    assert not error.last.converged
    assert error.last.state.index.tolist() == ["N", "M"]
    assert error.last.residual >= 1
    assert "No steady state" in repr(error.last)
    assert pickle.loads(pickle.dumps(error)).last.residual == error.last.residual


def test_a_singular_jacobian_names_the_states():
    error = refused(lambda: fme.steady({"A": 1.0, "B": 0.0, "C": 1.0},
                                       lambda t, y, p: [-y[0] + y[1], y[0] - y[1], 1 - y[2]]),
                    "Jacobian is singular", "'A'", "'B'", "conserved", "runsteady")  # fmt: skip
    assert "'C'" not in str(error).split("conserved")[0]


def test_negative_concentrations_are_told():
    refused(
        lambda: fme.steady({"C": -1.0}, lambda t, y, p: -y, positive=True),
        "'C' begins at -1",
        "positive=True",
        kind=ModelError,
    )
    refused(lambda: fme.steady([5.0], lambda t, y, p: -1.0 + 0 * y - y, positive=True),
            "without negative values", "state 1", "its rate is -1")  # fmt: skip
    n = 20

    def consumed(t, C, p):  # as if it did not matter whether there is any
        return fme.transport_1d(C, fme.Grid1D(np.linspace(0, 10, n + 1)), D=1.0, up=1.0).rate - 1.0

    refused(lambda: fme.steady_1d(np.ones(n), consumed, positive=True), "without negative values", "in cell")


@pytest.mark.parametrize(
    ("find", "told", "kind"),
    [
        (lambda: fme.steady_1d(np.ones(7), oxygen, nspec=2), "7 states, which is not a multiple of nspec", ModelError),
        (lambda: fme.ode_1d(np.ones(7), [0, 1], oxygen, nspec=2), "not a multiple of nspec=2", ModelError),
        (lambda: fme.steady([1.0], "prey"), "must be a function", ModelError),
        (lambda: fme.steady(["a"], prey), "must hold numbers", ModelError),
        (lambda: fme.steady([np.nan], prey), "finite", ModelError),
        (lambda: fme.steady([1.0, 1.0], lambda t, y, p: y[0]), "1 value", ModelError),
        (lambda: fme.steady([1.0, 1.0], lambda t, y, p: p["k"] * y, {}), "KeyError: 'k'", ModelError),
        (lambda: fme.steady([1.0], lambda t, y, p: -y, positive="x"), "True or False", ArgumentError),
        (lambda: fme.steady([1.0], lambda t, y, p: -y, rtol=0), "`rtol=0`", ArgumentError),
        (lambda: fme.steady([1.0], lambda t, y, p: -y, max_iter=0), "`max_iter=0`", ArgumentError),
        (lambda: fme.steady([1.0], lambda t, y, p: -y, atol=[1e-6, 1e-6]), "2 values for 1 states", ArgumentError),
        (lambda: fme.steady([1.0], lambda t, y, p: np.log(-y)), "no value at the start", NoSteadyStateError),
        (lambda: fme.runsteady([1.0, 0.0], lambda t, y, p: [y[1], -y[0]], max_time=50), "does not come to rest",
         NoSteadyStateError),
        (lambda: fme.runsteady([1.0], lambda t, y, p: y**2), "The run to the steady state failed", NoSteadyStateError),
    ],
)  # fmt: skip
def test_bad_input_is_told(find, told, kind):
    with np.errstate(all="ignore"):
        refused(find, told, kind=kind)


def test_ode_1d_gives_outputs_of_one_value_a_cell():
    def diffusion(t, C, p):
        flux = -p["D"] * np.diff(np.r_[1.0, C, C[-1]]) / 0.1
        return -np.diff(flux) / 0.1, {"flux": flux, "total": C.sum()}

    out = fme.ode_1d(np.zeros(5), [0, 1], diffusion, {"D": 0.5})
    assert list(out.columns[6:]) == ["flux1", "flux2", "flux3", "flux4", "flux5", "flux6", "total"]
    assert out["flux1"][0] == pytest.approx(5.0)
    np.testing.assert_allclose(out["total"], out[["1", "2", "3", "4", "5"]].sum(axis=1))
    with pytest.raises(ModelError, match="make the column 'a1'"):
        fme.ode(np.ones(2), [0, 1], lambda t, y, p: (-y, {"a": y, "a1": 2.0}))


@pytest.mark.parametrize(
    ("rates", "start"),
    [
        (lambda t, y, p: 1 - y / (1 + y), [1.0]),  # zero by rounding from 1e16 on
        (lambda t, y, p: 1 / y - 1, [-3.0]),
        (lambda t, y, p: np.array([1 - y[0] / (0.5 + y[0]), y[0] / (1 + y[0]) - y[1]]), [1.0, 1.0]),
    ],
)
def test_a_rate_that_fades_as_its_state_runs_to_infinity_is_no_rest(rates, start):
    with pytest.raises(NoSteadyStateError, match="No steady state was found"):
        fme.steady(start, rates)


@pytest.mark.parametrize(("rates", "rest"), [(lambda t, y, p: 1e9 - y, 1e9), (lambda t, y, p: 1 - y / 1e12, 1e12)])
def test_a_rest_that_is_far_away_is_found(rates, rest):
    np.testing.assert_allclose(fme.steady([1.0], rates).state, rest)
    np.testing.assert_allclose(fme.steady([0.0], rates).state, rest)
