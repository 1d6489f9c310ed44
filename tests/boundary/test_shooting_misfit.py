"""Multiple shooting does not end in a false minimum unnoticed, and no noise is taken for one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.boundary import shooting_misfit
from tests.boundary.test_shooting import TRUE, chaotic, prey, readings


def record_of(path, seen, seed=0, sd=0.1):
    """Data of a path with noise of one size, and the squares of the truth."""
    noise = sd * np.random.default_rng(seed).standard_normal((len(path), len(path.columns) - 1))
    noise = dict(zip(path.columns[1:], noise.T, strict=True))
    time = path.columns[0]
    data = {time: path[time], "err": np.full(len(path), sd)} | {v: path[v] + noise[v] for v in seen}
    return data, sum(float(((noise[v] / sd) ** 2).sum()) for v in seen)


@pytest.mark.parametrize("y0", [-8.0, 0.0, -20.0])
def test_a_start_in_another_fold_is_left(y0):
    model = chaotic()
    data, clean = record_of(model(), "xz")
    fit = fme.fit_boundary(model, data, TRUE | {"y0": y0}, segments=20, err="err")
    assert fit.converged, fit.message
    assert fit.ssr < 1.05 * clean
    assert fit.par["y0"] == pytest.approx(7, abs=0.3)
    assert not fit.misfit.stands_out.any()


def test_segments_too_long_to_find_the_way_take_the_path_of_shorter_ones():
    model = chaotic()
    data, clean = record_of(model(), "xz")
    fit = fme.fit_boundary(model, data, TRUE | {"y0": 20.0}, segments=10, err="err")
    assert fit.converged, fit.message
    assert fit.ssr < 1.05 * clean
    assert (fit.segments, len(fit.misfit)) == (10, 10)
    assert fit.misfit.ssr.sum() == pytest.approx(fit.ssr)


def roessler(t, x, y, z, *, a=0.2, b=0.2, c=5.7):
    return -y - z, x + a * y, b + z * (x - c)


def test_two_states_that_nobody_sees():
    starts = {"x0": 1.0, "y0": -5.0, "z0": 0.1}
    model = fme.OdeModel(
        roessler, state={"x": "x0", "y": "y0", "z": "z0"}, parms=starts, times=np.linspace(0, 60, 301),
        engine="compiled", rtol=1e-9, atol=1e-9,
    )  # fmt: skip
    data, clean = record_of(model(), "x")
    truth = {"a": 0.2, "b": 0.2, "c": 5.7, **starts}
    fit = fme.fit_boundary(model, data, truth | {"y0": 5.0, "z0": 5.0}, segments=20, err="err")
    assert fit.converged, fit.message
    assert fit.ssr < 1.05 * clean


def henon(n, x, y, *, a=1.4, b=0.3):
    return 1 - a * x * x + y, b * x


@pytest.mark.parametrize(("segments", "off"), [(20, {"y0": -0.3}), (10, {"y0": 0.0, "b": 0.2})])
def test_a_chaotic_map_and_segments_whose_errors_grow_beyond_all_numbers(segments, off):
    starts = {"x0": 0.3, "y0": 0.2}
    model = fme.DifferenceModel(henon, state={"x": "x0", "y": "y0"}, parms=starts, times=np.arange(121))
    data, clean = record_of(model(), "x", seed=[2, 5], sd=0.01)
    data["time"] = data.pop(model().columns[0])
    fit = fme.fit_boundary(model, data, {"a": 1.4, "b": 0.3, **starts, **off}, segments=segments, err="err")
    assert fit.converged, fit.message
    assert fit.ssr < 1.05 * clean


def test_a_false_minimum_that_nothing_leaves_has_not_converged_and_is_named(monkeypatch):
    monkeypatch.setattr(shooting_misfit, "_FINER", ())
    monkeypatch.setattr(shooting_misfit, "_LARGE_RESIDUALS", 0.01)
    model = chaotic()
    data, clean = record_of(model(), "xz")
    fit = fme.fit_boundary(model, data, TRUE | {"y0": 20.0}, segments=10, err="err")
    assert fit.ssr > 100 * clean
    assert not fit.converged
    assert "A false minimum, as it seems: segment 1 (0 to 2)" in fit.message
    assert fit.misfit.stands_out.tolist()[:1] == [True]
    assert fit.misfit.ssr[0] > 100 * fit.misfit.expected[0]


def noisy(kind, clean, rng):
    noise = rng.standard_normal(len(clean))
    if kind == "outliers":
        noise[rng.integers(0, len(clean), 2)] += 30
    elif kind == "heavy tails":
        noise = rng.standard_t(2, len(clean))
    elif kind == "proportional":
        noise *= 0.1 * clean
    return clean + noise


@pytest.mark.parametrize("kind", ["plain", "outliers", "heavy tails", "proportional"])
def test_no_noise_is_taken_for_a_false_minimum(kind):
    model = prey()
    path = model()[1:]
    for seed in range(5):
        rng = np.random.default_rng([seed, 4])
        data = {"time": path.time, "N": noisy(kind, path.N.to_numpy(), rng), "P": path.P + rng.standard_normal(40)}
        fit = fme.fit_boundary(model, data, {"a": 1.0, "b": 0.1, "d": 0.02, "N0": 30.0}, segments=8)
        assert fit.converged, fit.message
        reference = fme.modFit(fme.SimulationCost(model, data), {"a": 1.0, "b": 0.1, "d": 0.02, "N0": 30.0})
        assert fit.ssr == pytest.approx(reference.ssr, rel=1e-5)
        if kind == "plain":
            assert "segment" not in fit.message


def test_what_stands_out_and_no_start_mends_is_told_but_has_converged():
    model = prey()
    data = readings(model)
    data["N"] = data["N"].to_numpy(copy=True)
    data["N"][17] += 60
    fit = fme.fit_boundary(model, data, {"a": 1.0, "b": 0.1, "d": 0.02, "N0": 30.0}, segments=8)
    assert fit.converged
    assert "But segment 4 (8 to 10.5) misses the data" in fit.message
    assert "outliers" in fit.message
    assert fit.misfit.segment[fit.misfit.stands_out].tolist() == [4]


def test_the_table_has_a_row_a_segment_of_every_experiment():
    model = prey()
    tables = [
        pd.DataFrame({"who": w, **readings(model, k, parms={"N0": n})})
        for k, (w, n) in enumerate([("a", 30.0), ("b", 10.0)])
    ]
    fit = fme.fit_boundary(
        model, pd.concat(tables), {"a": 1.0, "b": 0.1, "d": 0.02, "N0": 20.0}, segments=4, entity="who"
    )
    table = fit.misfit
    assert list(table.columns) == ["who", "segment", "begin", "end", "n_obs", "ssr", "expected", "stands_out"]
    assert table.who.tolist() == ["a"] * 4 + ["b"] * 4
    assert table.segment.tolist() == [1, 2, 3, 4] * 2
    assert table.n_obs.sum() == 160
    assert table.ssr.sum() == pytest.approx(fit.ssr)
    assert (table.end[:3].to_numpy() == table.begin[1:4].to_numpy()).all()
    assert fme.fit_boundary(model, tables[0].drop(columns="who"), ["N0"]).misfit is None


def test_exact_data_stand_out_nowhere():
    model = prey()
    fit = fme.fit_boundary(model, model()[1:], {"a": 1.05, "b": 0.1, "N0": 29.0}, segments=8)
    assert fit.converged
    assert not fit.misfit.stands_out.any()
