"""Ranges, scenarios, predictions and sensitivities of models on a grid: tables and pictures by time and place."""

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, ModelError, ParameterError

GRID = fme.Grid1D(np.linspace(0, 4, 9))


def sediment(t, O2, OM, *, D=1.0, k=0.3, top=100.0):
    flow = fme.transport_1d(O2, GRID, D=D, up=top)
    return flow.rate - k * O2, -k * OM, {"into": flow.flux[0]}


TIMES = np.arange(0, 11, 2.0)


@pytest.fixture(scope="module")
def column():
    return fme.OdeModel(sediment, state={"O2": 50.0, "OM": 10.0}, grid=GRID, times=TIMES)


@pytest.fixture(scope="module")
def cost(column):
    table, rng = column(), np.random.default_rng(1)
    obs = table[table["time"].isin([4, 10])].rename(columns={"time": "day", "x": "depth"})[["day", "depth", "O2"]]
    return fme.SimulationCost(column, obs.assign(O2=obs["O2"] + rng.normal(0, 1, len(obs))), x=["day", "depth"])


@pytest.fixture(scope="module")
def fit(cost):
    return fme.modFit(cost, ["D", "k"])


def test_bands_are_those_of_the_cells(column):
    runs = fme.sensRange(column, parRange={"k": (0.1, 0.5)}, num=6, seed=1)
    frame = runs.summary().frame
    assert list(frame.columns[:3]) == ["time", "x", "var"]
    assert runs.summary().var == ("O2", "OM", "into")
    tables = [column({"k": k}) for k in runs.pars["k"]]
    row = frame[(frame["var"] == "O2") & (frame["time"] == 10) & np.isclose(frame["x"], 1.25)].iloc[0]
    values = [t[(t["time"] == 10) & np.isclose(t["x"], 1.25)]["O2"].iloc[0] for t in tables]
    assert (row["Mean"], row["Max"]) == pytest.approx((np.mean(values), np.max(values)), rel=1e-6)
    own = frame[frame["var"] == "O2"]
    assert own[["time", "x"]].to_numpy().tolist() == column()[["time", "x"]].to_numpy().tolist()
    flux = frame[frame["var"] == "into"]
    assert flux["x"].isna().all()
    assert flux["time"].tolist() == TIMES.tolist()
    streamed = fme.sensRange(column, parRange={"k": (0.1, 0.5)}, num=6, seed=1, keep="summary").summary().frame
    pd.testing.assert_frame_equal(streamed, frame)


def test_errors_are_added_by_profile_and_results_are_kept(column, tmp_path):
    runs = fme.sensRange(column, parRange={"k": (0.3, 0.3001)}, num=2000, seed=1)
    noisy = runs.with_error({"O2": 4.0}, seed=2)
    frame = noisy.summary().frame
    assert noisy.summary().predicted == ("O2",)
    assert frame[frame["var"] == "O2"]["Sd"].mean() == pytest.approx(2, rel=0.02)
    assert frame[frame["var"] == "OM"]["Sd"].max() < 0.01
    few = fme.sensRange(column, parRange={"k": (0.1, 0.5)}, num=3, seed=1)
    few.save(tmp_path / "runs")
    pd.testing.assert_frame_equal(fme.load(tmp_path / "runs").summary().frame, few.summary().frame)
    with pytest.raises(ArgumentError, match=r"no variable 'O3'. There are 'O2', 'OM', 'into'"):
        runs.with_error({"O3": 4.0})


def test_scenarios_have_a_row_a_time_and_place(column):
    what_if = fme.scenarios(column, {"now": {}, "fast": {"k": 0.6}}, parInput=pd.DataFrame({"D": [0.5, 1.0]}))
    frame = what_if.frame
    assert list(frame.columns) == ["scenario", "set", "time", "x", "O2", "OM", "into"]
    own = frame[(frame["scenario"] == "fast") & (frame["set"] == 1)].reset_index(drop=True)
    pd.testing.assert_frame_equal(own[["time", "x", "O2", "OM"]], column({"k": 0.6, "D": 1.0}), check_dtype=False)
    wide = column({"k": 0.6, "D": 1.0}, wide=True)
    assert own["into"].iloc[::8].to_numpy() == pytest.approx(wide["into"].to_numpy())
    apart = what_if.difference("now").summary().frame
    row = apart[(apart["var"] == "OM") & (apart["time"] == 10)].iloc[0]
    assert row["Mean"] == pytest.approx(10 * (np.exp(-6) - np.exp(-3)), rel=1e-3)
    assert (apart[apart["var"] == "into"]["x"].isna()).all()
    assert len(apart[apart["var"] == "into"]) == len(TIMES)
    with pytest.raises(ArgumentError, match="some cells of 'O2'"):
        fme.scenarios(column, {"now": {}}, sensvar=["O2[1]", "O2[2]"])


def test_scenarios_start_from_profiles(column):
    rest = fme.SteadyModel(sediment, state={"O2": 50.0, "OM": 1.0}, grid=GRID)
    falling, starts = np.linspace(90, 10, 8), {"O2": 80.0}
    table = {"now": {}, "full": starts, "falling": {"O2": falling}, "by x": {"O2": "top * exp(-x)", "OM": 5.0}}
    what_if = fme.scenarios(column, pd.DataFrame(table).T, parInput=pd.DataFrame({"top": [50.0, 100.0]}))
    for name, start in table.items():
        rows = what_if.frame[what_if.frame["scenario"] == name]
        for k, top in enumerate([50.0, 100.0]):
            one = column.replace(state=start)({"top": top})
            assert np.allclose(rows.loc[rows["set"] == k, ["O2", "OM"]], one[["O2", "OM"]], rtol=1e-8), name
    held = fme.scenarios(column, {"now": {}, "rest": {"O2": rest}}).frame.query("scenario == 'rest' and time == 0")
    assert np.allclose(held["O2"], rest()["O2"])
    with pytest.raises(ModelError, match=r"scenario 'b': `state\['O2'\]` must be one number, or 8 finite ones"):
        fme.scenarios(column, {"b": {"O2": [1.0, 2.0]}})
    with pytest.raises(ParameterError, match=r"'O2\[1\]' is neither a parameter nor a state.*states 'O2', 'OM'"):
        fme.scenarios(column, {"b": {"O2[1]": 1.0}})


def test_predictions_are_of_profiles_and_readings_have_the_noise_of_theirs(column, cost, fit):
    band = fme.predict(column, fit, times=[4, 10])
    assert list(band.frame.columns) == ["time", "x", "var", "fit", "se", "lower", "upper"]
    own = band.frame[band.frame["var"] == "O2"]
    np.testing.assert_allclose(own["fit"], column(fit.par, times=[4, 10])["O2"], rtol=1e-5)
    S = column.bind(["D", "k"], times=[4, 10]).sensitivities(fit.par.to_numpy())[1][:, :8].reshape(-1, 2)
    np.testing.assert_allclose(own["se"] ** 2, np.einsum("ri,ij,rj->r", S, fit.cov_scaled, S), rtol=1e-5)
    reading = fme.predict(column, fit, times=[4, 10], reading=True).frame
    noisy = reading[reading["var"] == "O2"]
    sd = np.sqrt(fit.ssr / fit.df_residual)
    np.testing.assert_allclose(noisy["se"] ** 2, own["se"].to_numpy() ** 2 + sd**2, rtol=1e-4)
    assert reading[reading["var"] == "OM"]["se"].isna().all()
    draws = fme.predict(column, pd.DataFrame({"k": np.linspace(0.2, 0.4, 101)}), times=[10]).frame
    assert draws[draws["var"] == "OM"]["fit"].to_numpy() == pytest.approx(np.full(8, 10 * np.exp(-3)), rel=1e-3)


def test_sensitivities_have_depths(column, cost):
    sens = fme.sensFun(cost, ["D", "k"])
    assert list(sens.frame.columns) == ["x", "var", "depth", "D", "k"]
    assert sens.frame["depth"].tolist() == cost.obs["depth"].tolist()
    assert list(sens.matrix.columns) == ["D", "k"]
    of_model = fme.sensFun(column, ["D", "k"])
    assert of_model.var == ("O2", "OM", "into")
    a = sens.frame.query("x == 10").sort_values("depth")[["D", "k"]]
    b = of_model.frame.query("x == 10 and var == 'O2'").sort_values("depth")[["D", "k"]]
    np.testing.assert_allclose(a, b, rtol=1e-6)
    assert of_model.frame[of_model.frame["var"] == "into"]["depth"].isna().all()
    assert fme.collin(sens).frame.shape == (1, 4)
    assert set(fme.sensFun(column, ["k"], sensvar="OM").frame["depth"]) == set(GRID.mid)
    assert fme.sensFun(column, ["k"], varscale={"O2": 1, "OM": 1, "into": 1}).varscale.tolist() == [1] * (17 * 6)


def panels(drawn):
    return [(ax.get_xlabel(), ax.get_ylabel(), bool(ax.yaxis_inverted())) for ax in np.ravel(drawn)]


def test_pictures_that_leave_times_out_say_how_many_they_show(column):
    many = column.replace(times=np.linspace(0, 10, 6))
    sens, runs = fme.sensFun(many, ["k"]), fme.sensRange(many, parRange={"k": (0.1, 0.5)}, num=3, seed=1)
    assert title(sens.plot()[0]) == "3 of 6 times"
    assert title(sens.plot("into")[0]) == title(fme.sensFun(column.replace(times=[0, 5, 10]), ["k"]).plot()[0]) == ""
    first, second, _ = runs.summary().plot()
    assert title(first).split("\n")[-1] == "4 of 6 times"
    assert second.get_legend() is None  # the looks are those of the first


def title(ax):
    return ax.get_legend().get_title().get_text()


def test_pictures_have_depth_downwards_and_data_at_their_times(column, cost, fit):
    runs = fme.sensRange(column, parRange={"k": (0.1, 0.5)}, num=6, seed=1)
    expected = [("O2", "depth", True), ("OM", "depth", True), ("time", "into", False)]
    assert panels(runs.summary().plot()) == expected
    assert panels(fme.predict(column, fit).plot()) == expected
    at_the_end = [("O2, time 10", "depth", True), ("OM, time 10", "depth", True), ("time", "into", False)]
    assert panels(runs.plot()) == at_the_end
    what_if = fme.scenarios(column, {"now": {}, "fast": {"k": 0.6}})
    assert panels(what_if.plot()) == at_the_end
    assert panels(what_if.difference("now").plot(which="OM")) == [("OM, difference to 'now'", "depth", True)]
    obs = cost.obs
    (ax,) = runs.summary().plot(which="O2", obs=obs)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [8, 8]
    assert dots[0].get_ydata().tolist() == GRID.mid.tolist()
    long = obs.assign(name="O2")[["name", "day", "depth", "O2"]]
    (ax,) = fme.predict(column, fit).plot(long, which="O2")
    assert sum(line.get_marker() == "o" for line in ax.lines) == 2
    with pytest.raises(DataError, match="'O2' at 5, and there are no rows of that time"):
        runs.summary().plot(which="O2", obs=obs.assign(day=obs["day"] + 1))
    titles = [ax.get_title() for ax in fme.sensFun(cost, ["D", "k"]).plot()]
    assert titles == ["O2, day 4", "O2, day 10"]


def test_a_search_that_leaves_the_possible_is_a_failed_run(column, cost):
    with pytest.raises(fme.errors.SimulationError, match=r"D. must not be negative"):
        column({"D": -1.0})
    chain = fme.modMCMC(cost, {"D": 0.02, "k": 0.3}, jump=[0.05, 0.01], niter=60, var0=1.0, seed=1)
    assert np.isfinite(chain.pars.to_numpy()).all()


def test_noise_that_is_estimated_parts_the_lines_and_is_not_of_the_model(column, cost):
    noisy = cost.replace(measurement_noise={"O2": "estimate"}, parms={"sd_v_O2": 1.0})
    names = ["D", "k", "sd_v_O2"]
    for line in fme.sensFun(noisy, senspar=names).plot()[0].lines[1:]:  # the rows of means, then those of the sd
        depth = line.get_ydata()
        assert np.isnan(depth).sum() == 1
        assert (np.diff(depth[~np.isnan(depth)]) < 0).sum() == 1
    runs = fme.sensRange(column, parInput=fme.modFit(noisy, names, lower=0), num=5, seed=1)
    assert list(runs.pars) == ["D", "k"]


def test_scenarios_of_single_numbers_have_a_row_a_time(column):
    runs = fme.scenarios(column, {"a": {}, "b": {"k": 0.5}}, sensvar=["into"])
    assert list(runs.frame) == ["scenario", "set", "x", "into"]
    assert len(runs.frame) == 2 * len(TIMES)
