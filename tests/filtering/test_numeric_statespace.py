"""A model that cannot be traced has the likelihood of its traced twin."""

import pickle

import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ModelError
from fmepy.fimlof.cost import FimlofCost
from fmepy.fimlof.sector import sector
from fmepy.models.difference import DifferenceModel
from fmepy.models.ode import OdeModel
from tests.filtering.problems import outcome, run_of
from tests.plain import plain


def growth(n, N, P, food, *, r=0.4, K=50.0, eaten=0.02):
    return N + (r + food) * N * (1 - N / K) - eaten * N * P, 0.8 * P + 0.3 * eaten * N * P


def growth_untraced(n, N, P, food, *, r=0.4, K=50.0, eaten=0.02):
    if N < -1e9:
        return N, P
    return growth(n, N, P, food, r=r, K=K, eaten=eaten), {"both": N + P}


def rates(t, N, P, food, *, r=0.4, K=50.0, eaten=0.02):
    return (r + food) * N * (1 - N / K) - eaten * N * P, -0.2 * P + 0.3 * eaten * N * P


def rates_untraced(t, N, P, food, *, r=0.4, K=50.0, eaten=0.02):
    if N < -1e9:
        return N, P
    return rates(t, N, P, food, r=r, K=K, eaten=eaten), {"both": N + P}


def cost_of(function, make, method=None, **options):
    untraced = function.__name__.endswith("untraced")
    outputs = {"log_N": "log(N)"} if untraced else {"log_N": "log(N)", "both": "N + P"}
    model = make(
        function,
        state={"N": 20.0, "P": 10.0},
        times=np.arange(9.0),
        forcings={"food": ([0.0, 4.0, 8.0], [0.0, 0.2, 0.0])},
        outputs=outputs,
        **({"method": method} if method else {}),
    )
    data = pd.DataFrame(
        {
            "time": np.arange(1.0, 9),
            "log_N": [3.1, 3.3, np.nan, 3.5, 3.4, 3.5, 3.6, 3.5],
            "both": [33.0, 36, 38, 40, np.nan, 44, 47, 48],
        }
    )
    settings = {
        "process_noise": {"N": "0.05 * N", "eaten": 0.002},
        "measurement_noise": {"log_N": 0.1, "both": "0.03 * both"},
        "initial_sd": {"N": 2.0, "P": 1.0},
    }
    return FimlofCost(model, data, **{**settings, **options})


WAYS = [
    {},
    {"algorithm": "sqrt"},
    {"update": "iterated"},
    {"update": "unscented"},
    {"process_noise": pd.DataFrame([[4.0, 0.1], [0.1, 1.0]], ["N", "P"], ["N", "P"])},
    {"initial": "diffuse", "initial_sd": {"P": 1.0}},
]


@pytest.mark.parametrize("options", WAYS)
def test_difference_equations(options):
    twin, own = (outcome(cost_of(f, DifferenceModel, **options)) for f in (growth, growth_untraced))
    assert own.loglik == pytest.approx(twin.loglik, rel=1e-6)
    np.testing.assert_allclose(own.nu, twin.nu, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["euler", "rk4", None])
@pytest.mark.parametrize("options", [{}, {"update": "unscented"}])
def test_differential_equations(method, options):
    twin, own = (outcome(cost_of(f, OdeModel, method, **options)) for f in (rates, rates_untraced))
    assert own.loglik == pytest.approx(twin.loglik, rel=1e-6)


def test_integrated_moments():
    twin, own = (outcome(cost_of(f, OdeModel, propagation="moment")) for f in (rates, rates_untraced))
    assert own.loglik == pytest.approx(twin.loglik, rel=1e-6)


def test_a_start_from_data_reads_their_errors():
    def cost(function):
        model = DifferenceModel(
            function,
            state={"N": 1.0, "P": 10.0},
            times=np.arange(4.0),
            forcings={"food": ([0.0, 4.0], [0.0, 0.0])},
            outputs={"both": "N + P"} if function is growth else {},
        )
        return FimlofCost(
            model,
            {"time": [0, 1, 2, 3], "N": [20.0, 22, 25, 27]},
            process_noise={"N": 1.0},
            measurement_noise={"N": "0.05 * both"},
            initial="data",
            initial_sd={"P": 1.0},
        )

    twin, own = cost(growth), cost(growth_untraced)
    assert run_of(own).record.P_filtered[0, 0, 0] == pytest.approx(1.5**2)
    assert outcome(own).loglik == pytest.approx(outcome(twin).loglik, rel=1e-6)


def test_its_score_is_that_of_the_twin():
    bounds = [cost_of(f, DifferenceModel).bind(["r", "K"]) for f in (growth, growth_untraced)]
    a, b = (bound.score(bound.theta0) for bound in bounds)
    np.testing.assert_allclose(a, b, rtol=1e-3)


def test_it_travels():
    cost = cost_of(growth_untraced, DifferenceModel)
    value = cost()
    assert pickle.loads(pickle.dumps(cost))() == value


def test_what_only_equations_can_give_is_refused_with_the_reason():
    with pytest.raises(ModelError, match=r"needs the model's equations.*update='unscented'"):
        cost_of(growth_untraced, DifferenceModel, update="second_order")
    with pytest.raises(ModelError, match=r"accumulate.*sum up itself"):
        cost_of(growth_untraced, DifferenceModel, accumulate={"both": 2})


def test_a_sector_cannot_be_cut_out_of_it():
    with pytest.raises(ModelError, match="needs the model's equations"):
        sector(cost_of(growth_untraced, DifferenceModel), ["N"])


def test_a_function_that_fails_on_its_way_is_infinite_cost():
    def breaks(n, x):
        if plain(x) > 2:
            raise ValueError("too large")
        return 2 * x

    model = DifferenceModel(breaks, state={"x": 1.0}, times=[0, 1, 2, 3])
    cost = FimlofCost(
        model, {"time": [1, 2, 3], "x": [2.0, 4, 8]}, process_noise={"x": 0.1}, measurement_noise={"x": 1}
    )
    assert cost() == np.inf


@pytest.mark.parametrize("options", [WAYS[0], WAYS[5]])
def test_its_noise_is_inflated_as_that_of_the_twin(options):
    bounds = [cost_of(f, DifferenceModel, **options).bind().inflated(3.0) for f in (growth, growth_untraced)]
    twin, own = (bound.minus2loglik(bound.theta0) for bound in bounds)
    assert own == pytest.approx(twin, rel=1e-6)
