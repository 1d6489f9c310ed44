"""pseudoOptim: Price's search finds minima in a box, whatever their value."""

import pickle

import numpy as np
import pytest

from fmepy.errors import ArgumentError
from fmepy.fitting import pseudoOptim
from fmepy.fitting.methods.pseudo_optim import price_search
from tests.fitting.problems import cases


def rosenbrock(p):
    return 1 + 100 * (p["b"] - p["a"] ** 2) ** 2 + (1 - p["a"]) ** 2


BOX = {"lower": -3, "upper": 3}


def test_rosenbrocks_valley_is_followed_to_its_end():
    case = cases("tools")["rosenbrock"]
    best = pseudoOptim(rosenbrock, case["inputs"]["p"], lower=-3, upper=3, control={"numiter": 20000}, seed=1)
    assert best.cost == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(best.par, [1, 1], atol=1e-3)
    assert best.converged
    low, high = case["outputs"]["iterations_min"], case["outputs"]["iterations_max"]
    assert 0.5 * low < best.iterations < 2 * high, "about as many iterations as the reference needs"


def test_the_sine_is_fitted_as_by_the_reference():
    case = cases("tools")["sine_tight"]
    problem = case["inputs"]["problem"]
    x, y = np.array(problem["x"]), np.array(problem["y"])

    def sse(p):
        return np.sum((p["amplitude"] * np.sin(2 * np.pi * x / p["period"] + p["phase"]) - y) ** 2)

    costs = [
        pseudoOptim(
            sse, case["inputs"]["p"], lower=case["inputs"]["lower"], upper=case["inputs"]["upper"], seed=s,
            control=case["inputs"]["control"],
        ).cost
        for s in range(5)
    ]  # fmt: skip
    assert min(costs) == pytest.approx(case["outputs"]["cost_min"], rel=1e-4)
    assert max(costs) < case["outputs"]["cost_max"] * 2


@pytest.mark.parametrize("lowest", [0.0, -7.0])
def test_quirk_26_a_search_also_stops_at_a_cost_of_zero_or_below(lowest):
    best = pseudoOptim(
        lambda p: (p["a"] - 1) ** 2 + p["b"] ** 2 + lowest, {"a": 0, "b": 2}, **BOX, seed=1, control={"numiter": 50000}
    )
    assert best.converged
    assert best.iterations < 5000
    assert best.cost == pytest.approx(lowest, abs=1e-6)


def test_one_parameter_is_allowed():
    best = pseudoOptim(lambda p: (p[0] - 1) ** 2 + 3, [0.0], **BOX, seed=1)
    assert best.par["p1"] == pytest.approx(1, abs=1e-3)


def test_the_optimum_on_a_corner_is_reached_by_clamping():
    best = pseudoOptim(lambda p: (p[0] + 4) ** 2 + (p[1] + 5) ** 2, [0.0, 0.0], **BOX, seed=0)
    np.testing.assert_array_equal(best.par, [-3, -3])


def test_residuals_are_summed_and_failures_skipped():
    def f(p):
        if p["a"] > 2:
            raise ValueError("beyond")
        return np.array([p["a"] - 1.5, 1.0])

    best = pseudoOptim(f, {"a": 0.0}, **BOX, seed=2)
    assert best.cost == pytest.approx(1.0, rel=1e-6)
    assert (best.poppar["a"][np.isfinite(best.popcost)] <= 2).all()


def test_the_result_tells_of_population_and_trace():
    best = pseudoOptim(rosenbrock, {"a": -1, "b": 2}, **BOX, seed=1, control={"numiter": 300, "npop": 30})
    assert best.poppar.shape == (30, 2)
    assert best.popcost.shape == (30,)
    assert not best.converged
    assert best.iterations == 300
    assert best.rsstrace["cost"].is_monotonic_decreasing
    assert best.rsstrace["cost"].iloc[-1] == best.cost == best.popcost.min()
    assert "stopped by numiter" in repr(best)
    assert pickle.loads(pickle.dumps(best)).cost == best.cost


def test_the_seed_decides():
    runs = [pseudoOptim(rosenbrock, {"a": -1, "b": 2}, **BOX, seed=s, control={"numiter": 200}).cost for s in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


def test_a_step_mirrors_through_the_centroid_of_three_members():
    population = np.array([[0.0], [1.0], [2.0], [10.0]])
    seen = []

    def cost(theta):
        seen.append(float(theta[0]))
        return 1e9

    price_search(cost, population, population[:, 0] ** 2, np.array([-50.0]), np.array([50.0]), numiter=40, centroid=3,
                 varleft=1e-8, rng=np.random.default_rng(0))  # fmt: skip
    members = population[:, 0]
    possible = {round(2 * (members.sum() - out) / 3 - mirror, 9) for out in members for mirror in members}
    assert {round(v, 9) for v in seen} <= possible


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"p": {"a": 5, "b": 0}}, "outside its bounds"),
        ({"upper": np.inf}, "must be finite"),
        ({"control": {"verbos": 1}}, "has no 'verbos'"),
        ({"control": {"npop": 3}}, "larger than `centroid`"),
    ],
)
def test_misuse_is_told(arguments, words):
    with pytest.raises(ArgumentError, match=words):
        pseudoOptim(rosenbrock, **{"p": {"a": 0, "b": 0}, **BOX, **arguments})
