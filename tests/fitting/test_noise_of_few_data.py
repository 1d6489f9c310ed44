"""Where noise is estimated from few data a summary says that its intervals are too narrow, and what has better ones."""

import numpy as np
import pytest
from scipy.stats import chi2

import fmepy as fme
from fmepy.fitting.summary import _FEW


def level(n, **words):
    """Return the fit of a constant to n readings whose sd is estimated."""
    rng = np.random.default_rng(n)
    model = fme.DifferenceModel("next(x) = x", state={"x": "m"}, parms={"m": 5.0}, times=np.arange(n + 1))
    table = {"time": np.arange(1, n + 1), "x": 5 + 0.3 * rng.standard_normal(n)}
    cost = fme.SimulationCost(model, table, measurement_noise={"x": "estimate"})
    return cost, fme.modFit(fme.transformed(cost, words) if words else cost)


@pytest.mark.parametrize(("n", "few"), [(8, True), (24, True), (26, False), (200, False)])
def test_the_data_behind_an_sd_are_counted_by_its_standard_error(n, few):
    text = str(level(n)[1].summary())
    assert ("The size of the noise is estimated from few data" in text) == few
    if few:
        assert f"sd_v_x as uncertain as from about {n} readings)" in text.replace("\n", " ")
        assert "profile(cost, fit)" in text.replace("\n", " ")


def test_the_interval_of_a_logarithm_is_not_so_wrong():
    assert "few data" not in str(level(8, sd_v_x="log")[1].summary())


def test_sums_of_squares_and_noise_that_is_known_have_no_such_sentence():
    x = np.arange(6.0)
    fit = fme.modFit(lambda p: p["a"] + 0.5 * x - [1.1, 1.9, 3.2, 3.9, 5.1, 6.0], {"a": 0.0})
    assert "few data" not in str(fit.summary())
    model = fme.DifferenceModel("next(x) = x", state={"x": "m"}, parms={"m": 5.0}, times=range(6))
    known = fme.SimulationCost(model, {"time": range(1, 6), "x": [5.1, 4.8, 5, 5.2, 4.9]}, measurement_noise={"x": 0.1})
    assert "few data" not in str(fme.modFit(known).summary())


def test_an_sd_at_zero_and_a_fit_without_covariance_have_no_number():
    flat = fme.DifferenceModel("next(x) = x", state={"x": 1.0}, times=range(41))
    rng = np.random.default_rng(2)
    cost = fme.FimlofCost(flat, {"time": range(1, 41), "x": 1 + 0.1 * rng.standard_normal(40)},
                          process_noise={"x": "q"}, measurement_noise={"x": "r"}, parms={"q": 0.01, "r": 0.1},
                          )  # fmt: skip
    fit = fme.modFit(cost)
    assert fit.noise_scales == ("q", "r")
    assert "nan" not in fit.summary().noise_note
    assert fit.summary(cov=False).noise_note == ""
    assert fme.modFit(cost, hessian=False).summary().noise_note == ""


def test_the_limit_is_where_normal_intervals_of_an_sd_hold_less_than_93_of_100():
    """sd_hat^2 = sd^2 chi2_n / n lies inside sd_hat (1 +- 1.96 / sqrt(2 n)) for chi2 between two ends."""

    def coverage(n):
        r = 1.96 / np.sqrt(2 * n)
        return chi2.cdf(n / (1 - r) ** 2, n) - chi2.cdf(n / (1 + r) ** 2, n)

    assert coverage(_FEW) == pytest.approx(0.93, abs=0.002)
    assert coverage(10) == pytest.approx(0.90, abs=0.005)
    assert coverage(5) == pytest.approx(0.86, abs=0.005)


def test_saved_fits_say_it_too(tmp_path):
    _, fit = level(8)
    fit.save(tmp_path / "fit.json")
    assert fme.load(tmp_path / "fit.json").summary().noise_note == fit.summary().noise_note
