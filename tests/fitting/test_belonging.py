"""What does not belong together is refused: other data, another scale, a bound; and noise does not fool the errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError, ParameterError

TIMES = np.arange(1, 20, 2.0)


@pytest.fixture(scope="module")
def model():
    return fme.OdeModel(
        "d(N)/dt = r * N * (1 - N / K)",
        state={"N": "N0"},
        times=np.arange(0, 21.0),
        parms={"r": 0.5, "K": 100.0, "N0": 1.0},
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    return pd.DataFrame({"time": TIMES, "N": 100 / (1 + 99 * np.exp(-0.5 * TIMES)) + rng.normal(0, 2, len(TIMES))})


@pytest.fixture(scope="module")
def cost(model, data):
    return fme.SimulationCost(model, data)


@pytest.fixture(scope="module")
def fit(cost):
    return fme.modFit(cost)


def test_a_fit_on_the_log_scale_is_not_predicted_by_a_model_that_takes_its_parameters_as_they_are(model, cost):
    on_logs = fme.modFit(fme.transformed(cost, "log"))
    with pytest.raises(
        ArgumentError, match=r"The fit is of log\(r\), and the model takes r.*transformed\(model, 'log'\)"
    ):
        fme.predict(model, on_logs)
    assert fme.predict(fme.transformed(model, "log"), on_logs)["se"].notna().all()


def test_a_model_on_the_log_scale_is_not_taken_for_a_fit_of_the_parameters_themselves(model, fit):
    with pytest.raises(ArgumentError, match=r"the model takes log\(r\)"):
        fme.predict(fme.transformed(model, "log"), fit)


def test_confidence_refuses_a_cost_that_is_not_the_one_fitted(model, data, cost, fit):
    with pytest.raises(ArgumentError, match="not what was fitted"):
        fme.confidence(fme.SimulationCost(model, data.assign(N=2 * data.N)), fit, ["K"])
    with pytest.raises(ArgumentError, match=r"log\(r\)"):
        fme.confidence(cost, fme.modFit(fme.transformed(cost, "log")))


def test_confidence_names_the_bound_that_a_fit_lies_on(cost):
    bounded = fme.modFit(cost, {"r": 0.5, "K": 85.0, "N0": 1.0}, upper={"K": 90})
    assert bounded.at_bound == ("K",)
    with pytest.raises(ArgumentError, match="on a bound of 'K'"):
        fme.confidence(cost, bounded)


def test_the_band_of_a_reading_is_lognormal_where_the_residuals_are_of_logarithms(model, data):
    on_logs = fme.modFit(fme.SimulationCost(model, data.assign(N=data.N.clip(lower=0.5)), transform="log"))
    band = fme.predict(model, on_logs, reading=True)
    assert (band["lower"] > 0).all()
    np.testing.assert_allclose(band["upper"] / band["fit"], band["fit"] / band["lower"])
    assert fme.predict(model, on_logs)["se"].notna().all()


@pytest.mark.parametrize("method", ["Nelder-Mead", "bobyqa", "BFGS", "Port"])
def test_the_errors_of_a_likelihood_that_runs_a_solver_are_of_the_right_size(cost, fit, method):
    # the start lies where an adaptive solver is smooth; its noise shows at the optimum
    by_number = fme.modFit(lambda p: 2 * cost(p).minlogp, {"r": 0.5, "K": 100.0, "N0": 1.0}, method=method)
    expected = np.sqrt(np.diag(fit.cov_unscaled))
    found = np.sqrt(np.diag(by_number.cov_unscaled))
    # Gauss-Newton's and the full Hessian differ by the second-order term, 15 per cent here
    np.testing.assert_allclose(found, expected, rtol=0.3)


def test_the_errors_of_residuals_that_run_a_solver_are_right_from_a_start_in_a_smooth_patch(model, data, fit):
    by_function = fme.modFit(lambda p: fme.modCost(model(p), data), {"r": 0.559, "K": 115.265, "N0": 1.08})
    assert by_function.converged
    np.testing.assert_allclose(by_function.std_error, fit.std_error, rtol=0.01)


def test_a_summary_without_covariance_says_that_none_was_asked_for(fit):
    assert "No covariance was asked for." in repr(fit.summary(cov=False))


def test_ctrl_c_before_any_start_is_done_stays_an_interrupt():
    calls = []

    def interrupted(p):
        calls.append(p)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return [p["a"] - 1.0]

    with pytest.raises(KeyboardInterrupt):
        fme.modFit(interrupted, {"a": 0.0}, starts=3, seed=1)


def test_a_variable_called_time_is_refused(model):
    with pytest.raises(ModelError, match="choose another name"):
        model.replace(outputs={"time": "N"})


def test_names_given_twice_or_not_at_all_are_refused(model, cost):
    with pytest.raises(ParameterError, match="more than once"):
        model.bind(["r", "r"])
    with pytest.raises(ParameterError, match="empty"):
        fme.modFit(cost, [])


def test_a_function_that_returns_nothing_is_told_so():
    with pytest.raises(ArgumentError, match="returned NoneType"):
        fme.modFit(lambda p: None, {"a": 1})
