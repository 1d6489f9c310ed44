"""An sd at zero leaves it where its variance raises the likelihood, by every method; one that belongs there stays."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme

lmfit = pytest.importorskip("lmfit")


def nile_in(unit):
    table = fme.datasets.load("Nile")
    model = fme.DifferenceModel(
        "next(level) = level", state={"level": 1000 * unit}, times=table.year, outputs={"flow": "level"}
    )
    return fme.FimlofCost(
        model, table.assign(flow=table["flow"] * unit), x="year", process_noise={"level": "sd_w"},
        measurement_noise={"flow": "sd_v"}, parms={"sd_w": 50 * unit, "sd_v": 100 * unit}, initial="diffuse",
    )  # fmt: skip


@pytest.fixture(scope="module")
def nile():
    return nile_in(1.0)


@pytest.fixture(scope="module")
def still():
    """A level that does not move, in a noise of sd 1: no noise of the process is wanted."""
    rng = np.random.default_rng(3)
    model = fme.DifferenceModel("next(x) = x", state={"x": "x0"}, times=range(41), parms={"x0": 5.0})
    data = {"time": np.arange(1, 41), "x": 5 + np.tile([1.0, -1.0], 20) + 0.1 * rng.standard_normal(40)}
    return fme.FimlofCost(
        model, data, process_noise={"x": "sd_w"}, measurement_noise={"x": "sd_v"}, parms={"sd_w": 0.5, "sd_v": 1.0}
    )


METHODS = ["scoring", "Port", "BFGS", "CG", "L-BFGS-B", "Newton", "Nelder-Mead"]


@pytest.mark.parametrize("start", [{"sd_w": 0.0, "sd_v": 100.0}, {"sd_w": 1e-7, "sd_v": 100.0}])
@pytest.mark.parametrize("method", METHODS)
def test_the_nile_from_an_sd_at_zero_reaches_its_maximum(nile, method, start):
    fit = fme.modFit(nile, start, method=method)
    assert fit.loglik == pytest.approx(-632.5456251, abs=1e-4)
    assert fit.converged, fit.message
    assert "without the noise" not in fit.message


@pytest.mark.parametrize("start", [{"sd_w": 50.0, "sd_v": 0.0}, {"sd_w": 0.0, "sd_v": 0.0}])
def test_sds_at_zero_where_the_filter_has_no_value_leave_it_too(nile, start):
    fit = fme.modFit(nile, start)
    assert fit.loglik == pytest.approx(-632.5456251, abs=1e-4)
    assert fit.converged, fit.message


@pytest.mark.parametrize("unit", [1e-9, 1e7])
def test_the_unit_of_an_sd_at_zero_does_not_matter(unit):
    fit = fme.modFit(nile_in(unit), {"sd_w": 0.0, "sd_v": 100.0 * unit})
    assert fit.loglik + 99 * np.log(unit) == pytest.approx(-632.5456251, abs=1e-4)


@pytest.mark.parametrize("start", [0.0, 1e-9, 0.5])
@pytest.mark.parametrize("method", METHODS)
def test_an_sd_that_belongs_at_zero_ends_there_and_is_told(still, method, start):
    fit = fme.modFit(still, {"sd_w": start, "sd_v": 1.0, "x0": 5.0}, method=method)
    assert fit.converged, fit.message
    assert fit.par["sd_w"] == 0.0
    assert "highest without the noise of sd_w" in fit.message
    mean = still.entities[0].raw
    assert fit.par["x0"] == pytest.approx(mean.mean(), abs=1e-3)
    assert fit.par["sd_v"] == pytest.approx(mean.std(), rel=1e-3)


def test_an_sd_leaves_zero_when_the_other_parameters_have_come_closer():
    """At the start the errors look so large that the process needs no noise; at the estimate it does."""
    rng = np.random.default_rng(1)
    x = np.cumsum(rng.standard_normal(80))
    model = fme.DifferenceModel("next(x) = x", state={"x": 0.0}, times=range(81))
    cost = fme.FimlofCost(
        model, {"time": np.arange(1, 81), "x": x + 0.3 * rng.standard_normal(80)}, process_noise={"x": "sd_w"},
        measurement_noise={"x": "sd_v"}, parms={"sd_w": 1.0, "sd_v": 0.3},
    )  # fmt: skip
    best = fme.modFit(cost)
    for method in ("scoring", "Port", "BFGS"):
        fit = fme.modFit(cost, {"sd_w": 0.0, "sd_v": 100.0}, method=method)
        assert fit.loglik == pytest.approx(best.loglik, abs=1e-4)


def test_panels_and_several_sds_at_zero():
    rng = np.random.default_rng(5)
    rows = []
    for k in range(4):
        a = b = 0.0
        for n in range(1, 31):
            a, b = 0.8 * a + rng.standard_normal(), 0.5 * b + 0.3 * a + 2 * rng.standard_normal()
            rows.append((f"e{k}", n, a + 0.5 * rng.standard_normal(), b + 0.5 * rng.standard_normal()))
    model = fme.DifferenceModel(
        "next(a) = p*a\nnext(b) = q*b + r*a", state={"a": 0.0, "b": 0.0}, times=range(31),
        parms={"p": 0.5, "q": 0.5, "r": 0.1},
    )  # fmt: skip
    cost = fme.FimlofCost(
        model, pd.DataFrame(rows, columns=["who", "time", "a", "b"]), entity="who",
        process_noise={"a": "wa", "b": "wb"},
        measurement_noise={"a": "va", "b": "vb"}, parms={"wa": 1, "wb": 1, "va": 1, "vb": 1}, entity_parms=["vb"],
    )  # fmt: skip
    best = fme.modFit(cost)
    zeros = {"wa": 0.0, "wb": 0.0, "va": 0.0, "vb[e0]": 0.0, "vb[e2]": 0.0}
    fit = fme.modFit(cost, {**cost.parms, **zeros})
    assert fit.loglik == pytest.approx(best.loglik, abs=1e-4)


@pytest.mark.parametrize("method", [None, "BFGS"])
def test_lmfit_parameters_at_zero_leave_it(nile, method):
    given = lmfit.Parameters()
    given.add("sd_v", value=100.0, min=0)
    given.add("sd_w", value=0.0, min=0)
    fit = fme.modFit(nile, given, method=method)
    assert fit.loglik == pytest.approx(-632.5456251, abs=1e-4)
    tied = lmfit.Parameters()
    tied.add("sd_w", value=0.0, min=0)
    tied.add("sd_v", expr="3.2057 * sd_w")
    fit = fme.modFit(nile, tied, method=method)
    assert fit.loglik == pytest.approx(-632.5456251, abs=1e-4)
    fixed = lmfit.Parameters()
    fixed.add("sd_v", value=100.0, min=0)
    fixed.add("sd_w", value=0.0, vary=False)
    fit = fme.modFit(nile, fixed, method=method)
    assert fit.loglik == pytest.approx(-650.7706526, abs=1e-4)  # it is held, not found there
    assert "highest without" not in fit.message


def test_sensitivities_to_an_sd_at_zero_are_told_to_say_nothing(nile):
    with pytest.warns(UserWarning, match="sd_w.*is a standard deviation of noise at 0.*whatever the data say"):
        fme.sensFun(nile, {"sd_w": 0.0, "sd_v": 169.0}, parscale=1.0)
