"""Data by time and depth: `SimulationCost(x=["day", "depth"])` beside values interpolated by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, ParameterError

GRID = fme.Grid1D(np.linspace(0, 5, 26))


def sediment(t, O2, NH, *, D=1.0, k=0.4, top=300.0):
    flow = fme.transport_1d(O2, GRID, D=D, up=top)
    return flow.rate - k * O2, fme.transport_1d(NH, GRID, D=D, up=0.0).rate + 0.1 * k * O2, {"into": flow.flux[0]}


MODEL = fme.OdeModel(
    sediment,
    state={"O2": "a * exp(-x)", "NH": 0.0},
    parms={"a": 200.0},
    grid=GRID,
    times=[0, 1, 4, 10],
    rtol=1e-8,
    atol=1e-8,
)
WIDE = pd.DataFrame(
    {
        "day": [0.5, 0.5, 2, 2, 7, 7],
        "depth": [0.0, 0.5, 0.55, 3.33, 1.0, 5.0],
        "O2": [290.0, 200, 190, 30, 120, 20],
        "NH": [0.1, 4, np.nan, 3, 30, 50],
    }
)
LONG = WIDE.melt(["day", "depth"], var_name="name", value_name="value")[["name", "day", "depth", "value"]]


def by_hand(parms, data=WIDE, name="O2"):
    out = []
    for day, depth in zip(data["day"], data["depth"], strict=True):
        rows = MODEL(parms, times=sorted({0.0, day, 10.0}))
        profile = rows[rows["time"] == day]
        out.append(np.interp(depth, GRID.mid, profile[name]))
    return np.array(out)


@pytest.mark.parametrize(("data", "words"), [(WIDE, {}), (LONG, {"y": "value"})])
def test_exact_in_time_and_linear_in_depth(data, words):
    cost = fme.SimulationCost(MODEL, data, x=["day", "depth"], **words)
    table = cost({"k": 0.5}).residuals
    assert list(table)[:3] == ["name", "x", "depth"]
    for name in ("O2", "NH"):
        rows = table[table["name"] == name]
        known = by_hand({"k": 0.5}, rows.rename(columns={"x": "day"}), name)
        assert np.allclose(rows["mod"], known, rtol=1e-6, atol=1e-6)
    assert len(table) == 11


def test_slopes_are_the_models():
    cost = fme.SimulationCost(MODEL, WIDE[["day", "depth", "O2"]], x=["day", "depth"])
    bound = cost.bind(["D", "k", "a"])
    J = bound.jacobian(bound.theta0)
    for j, name in enumerate(["D", "k", "a"]):
        h = 1e-4 * MODEL.parms[name]
        up, down = (by_hand({name: MODEL.parms[name] + s * h}) for s in (1, -1))
        assert np.allclose(J[:, j], (up - down) / (2 * h), rtol=1e-4, atol=1e-4 * np.abs(J[:, j]).max())


def test_a_fit_finds_the_truth_with_noise_in_words_entities_and_limits():
    truth = {"D": 0.8, "k": 0.6}
    data = pd.concat([WIDE.assign(core=c)[["core", "day", "depth", "O2"]] for c in "ab"])
    words = dict(x=["day", "depth"], entity="core", conditions={"core": ["a", "b"], "top": [300.0, 250.0]})
    cost = fme.SimulationCost(MODEL, data, measurement_noise={"O2": 2.0}, **words)
    drawn = cost.simulate(truth, seed=3)
    assert list(drawn) == ["core", "day", "depth", "O2"]
    drawn["mark"], drawn["O2"] = np.where(drawn["O2"] < 20, "<", ""), drawn["O2"].clip(lower=20)
    cost = cost.replace(obs=drawn, censored="mark")
    assert cost.replace(outside="drop").given_x == ["day", "depth"]
    fit = fme.modFit(cost, ["D", "k"])
    assert fit.par["D"] == pytest.approx(0.8, rel=0.2)
    assert fit.par["k"] == pytest.approx(0.6, rel=0.2)
    panels = cost.plot(fit.par)
    assert [ax.get_title() or ax.get_xlabel() for ax in panels] == ["O2, core a", "O2, core b"]
    assert all(ax.yaxis_inverted() for ax in panels)
    assert len(panels[0].lines) == 6  # three days, and their data


def test_one_number_of_the_run_has_no_depth_of_its_own_and_grid_times_serve():
    data = {"day": [1, 4], "depth": [0.0, 0.0], "into": [300.0, 250.0], "O2": [295.0, 290.0]}
    exact = fme.SimulationCost(MODEL, data, x=["day", "depth"])
    table = exact().residuals
    wide = MODEL(wide=True)
    assert np.allclose(table.loc[table["name"] == "into", "mod"], wide["into"].iloc[1:3], rtol=1e-6)
    assert np.allclose(table.loc[table["name"] == "O2", "mod"], wide["O2[1]"].iloc[1:3], rtol=1e-6)
    assert np.allclose(exact.replace(interpolate="grid")().residuals["mod"], table["mod"], rtol=1e-6)


def test_depths_beyond_the_edges():
    data = {"day": [1, 1, 1], "depth": [0.0, 5.2, 1.0], "O2": [300.0, 1.0, 100.0]}
    with pytest.raises(DataError, match=r"'depth' of an observation of 'O2' in row 1 is 5.2, beyond the edge.* at 5;"):
        fme.SimulationCost(MODEL, data, x=["day", "depth"])
    cost = fme.SimulationCost(MODEL, data, x=["day", "depth"], outside="drop")
    assert cost.comparison.n_outside.tolist() == [1]
    assert "1 dropped" in repr(cost)
    with pytest.raises(DataError, match=r"is -1.* at 0; so are all"):
        fme.SimulationCost(MODEL, {**data, "depth": [-1.0] * 3}, x=["day", "depth"], outside="drop")
    with pytest.raises(DataError, match=r"in row 0 is missing"):
        fme.SimulationCost(MODEL, {**data, "depth": [np.nan, 1, 1]}, x=["day", "depth"])


def test_what_is_no_pair_of_columns():
    plain = fme.OdeModel("d(A)/dt = -k*A", state={"A": 1}, parms={"k": 1}, times=[0, 1])
    with pytest.raises(ArgumentError, match="has no profiles"):
        fme.SimulationCost(plain, {"t": [1], "z": [1], "A": [1]}, x=["t", "z"])
    with pytest.raises(ArgumentError, match="those of times and depths"):
        fme.SimulationCost(MODEL, WIDE, x=["day", "depth", "O2"])
    with pytest.raises(DataError, match="dept"):
        fme.SimulationCost(MODEL, WIDE, x=["day", "dept"])
    with pytest.raises(DataError, match=r"'O3' is not a variable.*'O2'"):
        fme.SimulationCost(MODEL, WIDE.rename(columns={"O2": "O3"}), x=["day", "depth"])
    with pytest.raises(DataError, match=r"'O2' is a profile: x="):
        fme.SimulationCost(MODEL, WIDE[["day", "O2"]], x="day")


def test_noise_may_be_a_part_of_the_profile_itself():
    grid = fme.Grid1D(np.linspace(0, 5, 26))

    def sediment(t, O2, *, k=0.4):
        return fme.transport_1d(O2, grid, D=1.0, up=300.0).rate - k * O2

    model = fme.OdeModel(sediment, state={"O2": 0.0}, grid=grid, times=[0, 1, 5])
    data = {"day": [1, 1, 5, 5], "depth": [0.5, 1, 0.5, 2], "O2": [190.0, 100, 230, 70]}
    cost = fme.SimulationCost(model, data, x=["day", "depth"], measurement_noise={"O2": "s * O2"}, parms={"s": 0.05})
    found = cost()
    mod, obs = found.residuals["mod"].to_numpy(), found.residuals["obs"].to_numpy()
    sd = 0.05 * mod
    assert found.minus2loglik == pytest.approx(np.sum(np.log(2 * np.pi * sd**2) + ((obs - mod) / sd) ** 2))
    bound, step = cost.bind(["k", "s"]), 1e-6
    theta = bound.theta0
    moved = [bound.minus2loglik(theta + step * e) - bound.minus2loglik(theta - step * e) for e in np.eye(2)]
    np.testing.assert_allclose(-2 * bound.score(theta), np.array(moved) / (2 * step), rtol=1e-4)


def test_a_condition_is_the_start_of_a_profile():
    both = pd.concat([WIDE.assign(site=site) for site in "ab"])
    conditions = pd.DataFrame({"site": ["a", "b"], "NH": [0.0, 50.0]})
    words = {"x": ["day", "depth"]}
    cost = fme.SimulationCost(MODEL, both, entity="site", conditions=conditions, **words).bind(["k"])
    alone = [fme.SimulationCost(MODEL.replace(state={"NH": c}), WIDE, **words).bind(["k"]) for c in (0.0, 50.0)]
    theta = np.array([0.5])
    known = sum((one.residuals(theta) ** 2).sum() for one in alone)
    assert (cost.residuals(theta) ** 2).sum() == pytest.approx(known, rel=1e-9)
    gaps = conditions.assign(O2=[1.0, np.nan])
    with pytest.raises(DataError, match="'O2' of entity 'b' is empty, and its start in the model is another in each"):
        fme.SimulationCost(MODEL, both, entity="site", conditions=gaps, **words)
    named = conditions.assign(NH=[0.0, "NH0"])
    with pytest.raises(ParameterError, match="`conditions`: 'NH' of entity 'b' is 'NH0'"):
        fme.SimulationCost(MODEL, both, entity="site", conditions=named, **words)
    assert (
        len(fme.SimulationCost(MODEL, both, entity="site", conditions=named, parms={"NH0": 50.0}, **words).parms) == 5
    )


def test_more_days_than_colours_are_drawn_from_dark_to_light():
    days = np.arange(1, 11)
    seen = MODEL(times=[0, *days]).query("time > 0").iloc[::7].rename(columns={"time": "day", "x": "depth"})
    panel = fme.SimulationCost(MODEL, seen[["day", "depth", "O2"]], x=["day", "depth"]).plot()[0]
    assert len({line.get_color() for line in panel.lines}) == len(days)


def test_a_time_has_one_colour_in_all_panels_of_a_prediction():
    cost = fme.SimulationCost(MODEL, WIDE, x=["day", "depth"])
    band = fme.predict(MODEL, fme.modFit(cost, ["a", "k"]), times=[0, 0.5, 2, 7])
    late = WIDE.assign(NH=WIDE["NH"].where(WIDE["day"] > 2))
    O2, NH = band.plot(obs=late[["day", "depth", "O2", "NH"]])[:2]
    known = {line.get_label(): line.get_color() for line in O2.lines}
    (line,) = (line for line in NH.lines if line.get_label() == "time 7")
    assert line.get_color() == known["time 7"]
