"""Costs of compiled models: the HIV vignette, and exact Jacobians."""

import pickle

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import SimulationCost, modCost
from fmepy.costs.mapped import transformed
from fmepy.models.ode import OdeModel


def hiv_rates(t, T, I, V, *, bet, rho, delt, c, lam, n):  # noqa: E741    the field's own letter
    return lam - rho * T - bet * T * V, bet * T * V - delt * I, n * delt * I - c * V - bet * T * V


@pytest.fixture(scope="module")
def hiv():
    return OdeModel(
        hiv_rates,
        state={"T": 100, "I": "(-200750 + c * 50000) / (n * delt)", "V": 50000},
        times=np.r_[0, 0.1, 0.2, 0.4, 0.6, 0.8, np.arange(2, 61, 2)],
        outputs={"logV": "log(V)"},
        parms={"bet": 2e-5, "rho": 0.15, "delt": 0.55, "c": 5.5, "lam": 80, "n": 900},
        rtol=1e-10,
        atol=1e-10,
    )


@pytest.fixture(scope="module")
def hiv_data(data_folder):
    return pd.read_csv(data_folder / "hiv_t.csv"), pd.read_csv(data_folder / "hiv_logv.csv")


@pytest.fixture(scope="module")
def hiv_cost(hiv, hiv_data):
    return SimulationCost(hiv, hiv_data[0], err="sd") + SimulationCost(hiv, hiv_data[1], err="sd")


def test_the_hiv_cost_of_the_vignette(hiv_cost, reference, read_table):
    expected = reference("vignettes", "hiv_cost")["outputs"]
    cost = hiv_cost()
    assert cost.model == pytest.approx(expected["model"], rel=1e-6)  # both solvers run to 1e-10 or better
    assert cost.minlogp == pytest.approx(expected["minlogp"], rel=1e-6)
    pd.testing.assert_frame_equal(cost.var, read_table(expected["var"]), rtol=1e-6, check_dtype=False)
    residuals = cost.residuals.drop(columns="part")  # FME knows no parts
    pd.testing.assert_frame_equal(residuals, read_table(expected["residuals"]), rtol=1e-6, atol=1e-6, check_dtype=False)


def test_the_prepared_cost_is_modcost_of_the_run(hiv, hiv_data, hiv_cost):
    run = hiv()
    chained = modCost(run, hiv_data[0], err="sd", cost=modCost(run, hiv_data[1], err="sd"))
    cost = hiv_cost()
    assert cost.model == pytest.approx(chained.model, rel=1e-7)
    assert cost.var["name"].tolist() == chained.var["name"].tolist() == ["T", "logV"]


@pytest.mark.parametrize("names", [["bet", "rho", "delt", "c", "lam"], ["c", "n"]])
def test_the_jacobian_of_the_hiv_cost_is_exact(hiv_cost, names):
    bound = transformed(hiv_cost, "log").bind(names)
    theta, h = bound.theta0, 1e-4
    J = bound.jacobian(theta)
    by_differences = np.stack(
        [(bound.residuals(theta + h * e) - bound.residuals(theta - h * e)) / (2 * h) for e in np.eye(len(theta))],
        axis=1,
    )
    np.testing.assert_allclose(J, by_differences, rtol=1e-4, atol=1e-4 * np.abs(J).max())


def test_two_tables_of_one_model_cost_one_run(hiv, hiv_data, hiv_cost):
    bound = hiv_cost.bind(["bet", "c"])
    assert len(bound._blocks) == 1
    assert len(bound.names) == 51
    again = pickle.loads(pickle.dumps(hiv_cost))
    assert again().model == pytest.approx(hiv_cost().model, rel=1e-12)
