"""landscape: the cost on a grid, and minima that are minima."""

import pickle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, InterruptedWarning, ParameterError, SimulationError
from fmepy.fitting import landscape, modFit, optimum, profile
from fmepy.fitting.methods.registry import METHODS
from tests.fitting.test_profiles import DATA, decay, line


def wells(p):
    return (p["a"] ** 2 - 1) ** 2 + 0.1 * p["a"] + 2 * (p["b"] - 0.5) ** 2


def test_the_frame_holds_the_cost_on_the_grid_and_minima_are_minima():
    found = landscape(wells, {"a": (-2, 2), "b": (-1, 1)}, num=(41, 21))
    assert list(found.columns) == ["a", "b", "cost"]
    assert len(found) == 41 * 21
    row = found.frame.iloc[100]
    assert row["cost"] == pytest.approx(wells(row))
    assert len(found.minima) == 2
    roots = np.sort(np.roots([4, 0, -4, 0.1]).real)[[0, 2]]
    np.testing.assert_allclose(np.sort(found.minima["a"]), roots, rtol=1e-4)
    np.testing.assert_allclose(found.minima["b"], 0.5, rtol=1e-4)
    assert found.minima["cost"].is_monotonic_increasing


def test_all_minima_of_a_wave_are_found():
    found = landscape(lambda p: float(np.cos(p[0])), {"p1": (0.0, 12 * np.pi + 1)}, num=301)
    np.testing.assert_allclose(np.sort(found.minima["p1"]), np.pi * (1 + 2 * np.arange(6)), rtol=1e-5)


def banana(p):
    return (p["u"] - 1) ** 2 + 100 * (p["v"] - p["u"] ** 2) ** 2


@pytest.mark.parametrize("num", [15, (24, 17)])
def test_places_along_a_bent_valley_are_no_minima(num):
    found = landscape(banana, {"u": (-2, 2), "v": (-1, 3)}, num=num)
    np.testing.assert_allclose(found.minima, [[1, 1, 0]], atol=1e-4)
    ranges = {"u": (-2, 2), "v": (-1, 3)}
    vector = landscape(lambda p: np.array([p["u"] - 1, 10 * (p["v"] - p["u"] ** 2)]), ranges, num=num)
    np.testing.assert_allclose(vector.minima, [[1, 1, 0]], atol=1e-6)
    assert len(landscape(banana, {"u": (-2, 0.9), "v": (-1, 3)}, num=num).minima) == 0  # the valley leads out


def test_a_minimum_between_two_places_of_one_value_is_told_once():
    found = landscape(lambda p: (p["a"] - 1.5) ** 2, {"a": (0, 3)}, num=4)
    np.testing.assert_allclose(found.minima, [[1.5, 0]], atol=1e-6)


def test_a_range_without_a_minimum_has_none():
    assert len(landscape(lambda p: p["a"], {"a": (0, 1)}, num=11).minima) == 0
    assert len(landscape(lambda p: 1.0, {"a": (0, 1)}, num=11).minima) == 0


def test_the_others_fitted_again_make_the_profile():
    cost = fme.SimulationCost(decay(), DATA)
    fit = modFit(cost)
    prof = profile(cost, fit, "k").frame
    found = landscape(cost, {"k": (0.4, 0.6)}, fit=fit, num=21, optimise=True)
    inside = found.frame[found["k"].between(prof["value"].min(), prof["value"].max())]
    np.testing.assert_allclose(inside["cost"], np.interp(inside["k"], prof["value"], prof["cost"]), rtol=0.01)
    assert len(inside) > 15
    np.testing.assert_allclose(found.minima.iloc[0], [fit.par["k"], fit.ssr], rtol=1e-4)
    fixed = landscape(cost, {"k": (0.4, 0.6)}, fit=fit, num=21)
    assert (fixed["cost"] >= found["cost"] * (1 - 1e-9)).all()
    own = landscape(cost, {"k": (0.4, 0.6)}, num=21)  # N0 at the model's own value
    np.testing.assert_allclose(own["cost"], [cost({"k": k}).model for k in own["k"]], rtol=1e-6)
    ((k, lowest),) = own.minima.to_numpy()  # and there too
    assert lowest == pytest.approx(cost({"k": k}).model, rel=1e-6)


def test_places_where_the_cost_fails_are_nan_and_told():
    def brittle(p):
        if p["a"] > 1.5:
            raise ValueError("no")
        return wells({**p, "b": 0.5})

    found = landscape(brittle, {"a": (-2, 2)}, num=41)
    assert found["cost"].isna().sum() == 5
    assert "fails at 5 of 41 places" in found.message
    with pytest.raises(SimulationError, match="everywhere"):
        landscape(lambda p: 1 / 0 if p["a"] != 0.5 else 1.0, {"a": (0, 1)}, num=4)


@pytest.mark.parametrize(
    ("ranges", "words", "error", "told"),
    [
        ({}, {}, ArgumentError, "one parameter or two"),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, {}, ArgumentError, "one parameter or two"),
        ({"a": 1}, {}, ArgumentError, "a pair"),
        ({"a": (1, 0)}, {}, ArgumentError, "low < high"),
        ({"a": (0, np.inf)}, {}, ArgumentError, "finite"),
        ({"a": (0, 1), "b": (0, 1)}, {"num": 2}, ArgumentError, "num"),
        ({"a": (0, 1), "b": (0, 1)}, {"num": (5,)}, ArgumentError, "one for each"),
        ({"a": (0, 1), "b": (0, 1)}, {"optimise": True}, ArgumentError, "needs|give fit"),
    ],
)
def test_misuse_is_told(ranges, words, error, told):
    with pytest.raises(error, match=told):
        landscape(wells, ranges, **words)


def test_unknown_parameters_other_costs_and_bounds_are_told():
    fit = modFit(line, {"a": 0.0, "b": 1.0})
    with pytest.raises(ParameterError, match="no parameter 'c'"):
        landscape(line, {"c": (0, 1)}, fit=fit)
    with pytest.raises(ArgumentError, match="not what was fitted"):
        landscape(lambda p: 2 * line(p), {"a": (0, 1)}, fit=fit)
    with pytest.raises(ParameterError, match="no parameter 'K'"):
        landscape(fme.SimulationCost(decay(), DATA), {"K": (0, 1)})
    model = fme.DifferenceModel("next(x) = x", state={"x": 0.0}, times=np.arange(5.0), parms={})
    data = pd.DataFrame({"time": np.arange(5.0), "x": [0.1, 0.3, -0.2, 0.4, 0.1]})
    cost = fme.FimlofCost(model, data, process_noise={"x": "estimate"}, measurement_noise={"x": 0.1})
    with pytest.raises(ArgumentError, match="beyond its bounds"):
        landscape(cost, {"sd_w_x": (-1, 1)}, num=5)


def test_pictures_and_workers():
    from concurrent.futures import ThreadPoolExecutor

    fit = modFit(wells, {"a": 1.0, "b": 0.0})
    one = landscape(wells, {"a": (-2, 2)}, fit=fit, num=41)
    with ThreadPoolExecutor(2) as threads:
        again = landscape(wells, {"a": (-2, 2)}, fit=fit, num=41, executor=threads)
    pd.testing.assert_frame_equal(one.frame, again.frame, check_exact=True)
    ax = one.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "-2 log L")
    two = landscape(wells, {"a": (-2, 2), "b": (-1, 1)}, fit=fit, num=(21, 15))
    ax = two.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    pd.testing.assert_frame_equal(pickle.loads(pickle.dumps(two)).frame, two.frame)
    plt.close("all")


def curved(p):
    return 50 * (p["b"] - p["a"] ** 2) ** 2 + (1 - p["a"]) ** 2 + (p["c"] - p["b"]) ** 2


def test_where_a_neighbours_end_is_too_far_the_others_get_the_time_of_a_fit(monkeypatch):
    monkeypatch.setitem(optimum._WARM, "BFGS", {"maxiter": 2})
    fit = fme.modFit(curved, {"a": 0.8, "b": 0.8, "c": 0.8})
    found = fme.landscape(curved, {"a": (-1.5, 1.5)}, fit=fit, optimise=True, num=9)
    assert found.message == ""
    for a, cost in found.frame.to_numpy():
        there = fme.modFit(lambda p, a=a: curved({"a": a, **p}), {"b": 0.8, "c": 0.8})
        assert cost == pytest.approx(there.deviance, abs=1e-6)


def test_a_place_where_the_others_do_not_converge_has_the_lowest_cost_and_is_counted(monkeypatch):
    fit = fme.modFit(curved, {"a": 0.8, "b": 0.8, "c": 0.8})
    whole = fme.landscape(curved, {"a": (-1.5, 1.5)}, fit=fit, optimise=True, num=9).frame["cost"]
    monkeypatch.setitem(METHODS["BFGS"].control, "maxiter", 1)
    found = fme.landscape(curved, {"a": (-1.5, 1.5)}, fit=fit, optimise=True, num=9)
    assert "places the fit of the others did not converge; the cost there is the lowest" in found.message
    assert found.frame["cost"].notna().all()
    assert (found.frame["cost"] >= whole - 1e-6).all()


def test_a_fit_of_exact_data_is_known_again_within_what_its_solver_errs():
    t = np.arange(0.0, 11)
    model = fme.OdeModel("d(y)/dt = -k*y", state={"y": "y0"}, parms={"k": 0.3, "y0": 2.0}, times=t)
    cost = fme.SimulationCost(model, {"time": t[1:], "y": 2 * np.exp(-0.3 * t[1:])})
    fit = fme.modFit(cost, {"k": 0.2, "y0": 1.0})
    found = fme.landscape(cost, {"k": (0.2, 0.4)}, fit=fit, optimise=True, num=5)
    assert found.frame["cost"].notna().all()
    other = fme.SimulationCost(model, {"time": t[1:], "y": 2.001 * np.exp(-0.3 * t[1:])})
    with pytest.raises(ArgumentError, match="is not what was fitted"):
        fme.landscape(other, {"k": (0.2, 0.4)}, fit=fit, num=5)


def test_a_line_that_begins_where_a_parameter_does_not_matter_comes_back_from_there():
    """At slow growth the capacity wants to be endless, and from there no slope leads back to that of faster growth."""
    t = np.linspace(0, 10, 21)
    logistic = fme.OdeModel("d(x)/dt = r*x*(1 - x/K)", state={"x": "x0"}, parms={"r": 0.8, "K": 12, "x0": 0.5}, times=t)
    seen = logistic()["x"] + 0.3 * np.random.default_rng(1).standard_normal(21)
    cost = fme.SimulationCost(logistic, {"time": t, "x": seen})
    found = fme.landscape(cost, {"r": (0.1, 1.5)}, fit=modFit(cost), num=6, optimise=True).frame
    for r, lowest in found.to_numpy():
        alone = fme.SimulationCost(logistic.replace(parms={"r": r}), {"time": t, "x": seen})
        assert lowest <= 1.01 * modFit(alone, ["K", "x0"]).ssr


def test_the_colour_bar_has_labels_that_differ():
    def shallow(p):
        return 1.0 + 1e-4 * (p[0] ** 2 + p[1] ** 2)

    ax = landscape(shallow, {"p1": (-1, 1), "p2": (-1, 1)}, num=64).plot()
    bar = ax.figure.axes[-1]
    ax.figure.canvas.draw()
    told = [t.get_text() for t in bar.get_yticklabels() if t.get_text()]
    assert len(told) > 3
    assert len(set(told)) == len(told)
    plt.close(ax.figure)


@pytest.mark.parametrize("words", [{}, {"fit": True, "optimise": True, "num": 5}])
def test_what_is_done_of_the_piece_in_work_survives_ctrl_c(words):
    calls, stop_at = [0], [np.inf]

    def bowl(p):
        calls[0] += 1
        if calls[0] == stop_at[0]:
            raise KeyboardInterrupt
        return np.array([p["a"] - 1, p["b"] - 2, p["a"] + p["b"] - 2.5])

    if words:
        words = {**words, "fit": modFit(bowl, {"a": 0.5, "b": 0.5})}
    whole = landscape(bowl, {"a": (0, 3)} if words else {"a": (0, 3), "b": (0, 3)}, **words)
    calls, stop_at = [0], [30]
    with pytest.warns(InterruptedWarning, match="of .* places are done"):
        some = landscape(bowl, dict.fromkeys(whole.parameters, (0, 3)), **words)
    done = some.frame["cost"].notna()
    assert some.interrupted
    assert 0 < done.sum() < 30
    pd.testing.assert_frame_equal(some.frame[done], whole.frame[done])
