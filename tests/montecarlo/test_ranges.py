"""sensRange: R's tables and quantiles, failures kept, bands that say what they are, any number of workers."""

from __future__ import annotations

import pickle
import time
import tracemalloc

import loky
import numpy as np
import pandas as pd
import pytest

from fmepy.errors import ArgumentError, InterruptedWarning, ParameterError
from fmepy.models.ode import OdeModel
from fmepy.montecarlo import SensRange, sensRange
from tests.models.problems import bacteria, bacteria_model, cases, table

CASES = cases("sensRange.json")
X = np.arange(4.0)


@pytest.fixture(scope="module")
def bact():
    return bacteria_model()


@pytest.fixture(scope="module")
def sharp():
    times = CASES["grid_two"]["inputs"]["model"]["times"]
    return OdeModel(bacteria, state={"Bact": 0.1, "Sub": 100}, times=times, rtol=1e-10, atol=1e-12)


def line(p):
    return pd.DataFrame({"x": X, "y": p["a"] + p["b"] * X})


def arguments(case):
    """Return the arguments of a case of R as ours."""
    args = dict(CASES[case]["inputs"]["args"])
    if "parRange" in args:
        given = args["parRange"]
        args["parRange"] = table(given).set_axis(given["index"])
    if "parInput" in args:
        args["parInput"] = table(args["parInput"])
    return args


@pytest.mark.parametrize("case", ["grid_rB", "grid_rB_5", "grid_two", "input_matrix", "input_dup"])
def test_runs_and_summary_are_those_of_r(case, sharp):
    out = CASES[case]["outputs"]
    runs = sensRange(sharp, **arguments(case))
    assert list(runs.frame.shape) == out["dim"]
    assert list(runs.columns[:8]) == out["columns_first"]
    assert (list(runs.var), len(runs.x)) == ([out["var"]] if isinstance(out["var"], str) else out["var"], out["nx"])
    if "table" in out:
        np.testing.assert_allclose(runs.frame, table(out["table"]), rtol=1e-5, atol=1e-6)
    expected = table(out["summary"])
    summary = runs.summary()
    # the substrate falls to near zero within one output step: there the two solvers differ most
    np.testing.assert_allclose(summary.frame[expected.columns], expected, rtol=2e-5, atol=2e-5)
    assert (summary["N"] == len(runs)).all()
    assert list(summary.frame.index) == list(runs.columns[len(runs.pars.columns) :])


def test_a_function_gets_the_sets_alone_if_no_parms_are_given():
    case = CASES["input_monod"]
    args = dict(case["inputs"]["args"])
    x = np.array(args.pop("x"), dtype=float)

    def monod(p, x):
        assert set(p) == {"mu", "ks"}
        return {"x": x, "y": p["mu"] * x / (x + p["ks"])}

    runs = sensRange(monod, parInput=table(args["parInput"]), kwargs={"x": x})
    np.testing.assert_allclose(runs.frame, table(case["outputs"]["table"]), rtol=1e-13)
    np.testing.assert_allclose(
        runs.summary().frame[table(case["outputs"]["summary"]).columns], table(case["outputs"]["summary"]), rtol=1e-12
    )
    assert runs.pset.tolist() == [0, 1, 2, 3]


def test_summary_of_known_numbers():
    runs = sensRange(line, {"a": 0, "b": 0}, dist="grid", parRange={"b": (0, 4)}, num=5)
    row = runs.summary().frame.loc["y2"]
    b = 2 * np.arange(5.0)
    assert row["Mean"] == 4
    assert row["Sd"] == pytest.approx(np.std(b, ddof=1))
    assert (row["Min"], row["Max"], row["q50"], row["N"]) == (0, 8, 4, 5)
    assert row["q05"] == pytest.approx(0.4)  # type 7: h = 4 * 0.05 = 0.2 of the way from 0 to 2


def test_a_fixed_parameter_has_a_band_without_width(bact):
    summary = sensRange(bact, parRange={"gmax": (0.5, 0.5)}, num=3, seed=1).summary().frame
    assert (summary["Min"] == summary["Max"]).all()
    np.testing.assert_array_equal(summary["Mean"], bact().iloc[:, 1:].to_numpy().T.ravel())


# --- the quirks of FME


def test_quirk_17_a_grid_of_no_power_runs_the_sets_there_are():
    runs = sensRange(line, {"a": 0, "b": 0}, dist="grid", parRange={"a": (0, 1), "b": (0, 1)}, num=10)
    assert len(runs) == 9
    assert runs.pset.tolist() == list(range(9))


@pytest.mark.parametrize(
    "one",
    [pd.DataFrame({"b": [2.0]}), {"b": [2.0]}, {"b": 2.0}, pd.Series({"b": 2.0})],
    ids=["table", "columns", "dict", "Series"],
)
def test_quirk_17_parinput_may_have_one_row(one):
    runs = sensRange(line, {"a": 1, "b": 0}, parInput=one)
    assert runs.values.tolist() == [[[1, 3, 5, 7]]]
    assert runs.summary()["Sd"].isna().all()  # one run has no spread; nothing warns


def test_quirk_17_sd_of_a_single_output_is_defined():
    runs = sensRange(lambda p: p["a"], parRange={"a": (0, 1)}, dist="grid", num=3)
    assert list(runs.columns) == ["a", "X1"]
    assert runs.summary().frame.loc["X1", "Sd"] == 0.5


# --- parInput


def test_a_chain_gives_rows_without_replacement_and_tells_which():
    index = pd.MultiIndex.from_product([[0, 1], range(50)], names=["chain", "iteration"])
    chain = pd.DataFrame({"a": np.arange(100.0), "b": 0.0}, index=index)
    runs = sensRange(line, parInput=chain, num=30, seed=0)
    assert len(set(runs.pset)) == 30
    assert (np.diff(runs.pset) > 0).all()
    np.testing.assert_array_equal(runs.pars["a"], runs.pset)
    np.testing.assert_array_equal(runs.frame["y0"], runs.pset)
    assert runs.pars.index.names == ["chain", "iteration"]
    assert (sensRange(line, parInput=chain, num=30, seed=0).pset == runs.pset).all()
    assert (sensRange(line, parInput=chain, num=30, seed=1).pset != runs.pset).any()
    assert sensRange(line, parInput=chain, num=100).pset.tolist() == list(range(100))


def test_a_run_equal_to_the_one_before_is_not_run_again():
    seen = []

    def counted(p):
        seen.append(p["a"])
        return line({**p, "b": 1})

    runs = sensRange(counted, parInput={"a": [1.0, 1, 1, 2, 1, 1]})
    assert seen[1:] == [1, 2, 1]  # the first is the look at what it returns
    assert runs.frame["y0"].tolist() == [1, 1, 1, 2, 1, 1]
    streamed = sensRange(counted, parInput={"a": [1.0, 1, 1, 2, 1, 1]}, keep="summary")
    pd.testing.assert_frame_equal(streamed.summary().frame, runs.summary().frame)


def test_positional_names_reach_a_function_as_an_array():
    runs = sensRange(lambda p: {"x": X, "y": p[0] + p[1] * X}, parInput=pd.DataFrame({"p1": [1.0], "p2": [2.0]}))
    assert runs.values[0, 0].tolist() == [1, 3, 5, 7]


# --- distributions


@pytest.mark.parametrize("dist", ["unif", "latin", "sobol", "halton"])
def test_every_distribution_over_ranges_runs(dist):
    runs = sensRange(line, {"a": 0, "b": 7.0}, dist=dist, parRange={"a": (0, 1)}, num=16, seed=1)
    assert runs.pars["a"].between(0, 1).all()
    np.testing.assert_allclose(runs.frame["y1"], runs.pars["a"] + 7)


def test_normal_sets_start_at_their_mean_and_are_truncated():
    runs = sensRange(line, dist="norm", parMean={"a": 0.0, "b": 1.0}, parCovar=np.eye(2), parRange={"a": (0, np.inf)},
                     num=50, seed=1)  # fmt: skip
    assert (runs.pars["a"] >= 0).all()
    assert (runs.pars["b"] < 1).any()


def test_the_seed_decides_and_zero_counts():
    def draw(seed):
        return sensRange(line, {"a": 0, "b": 0}, parRange={"a": (0, 1)}, num=5, seed=seed).pars["a"].tolist()

    assert draw(0) == draw(0) != draw(1)
    assert draw(np.random.default_rng(0)) == draw(0)


def test_sensvar_selects_in_its_order(bact):
    runs = sensRange(bact, sensvar=["Sub", "Bact"], parRange={"gmax": (0.4, 0.6)}, num=2, seed=1)
    assert runs.var == ("Sub", "Bact")
    assert runs.frame.columns[1] == "Sub0"
    assert sensRange(bact, sensvar=2, parRange={"gmax": (0.4, 0.6)}, num=2, seed=1).var == ("Sub",)
    np.testing.assert_allclose(runs.values[:, 1, 0], 0.1)


# --- failures


def failing(p):
    if p["a"] > 3:
        raise ValueError("too much")
    return {"x": X, "y": np.where(p["a"] == 2, np.nan, p["a"] + X), "z": X * p["a"]}


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_failed_runs_are_kept_as_failures_and_left_out_of_the_summary(keep, caplog):
    runs = sensRange(failing, parInput={"a": [0.0, 1, 2, 3, 4, 4]}, keep=keep)
    assert runs.failures["run"].tolist() == [2, 4, 5]
    assert runs.failures["parameters"].tolist() == [{"a": 2.0}, {"a": 4.0}, {"a": 4.0}]
    assert runs.failures["message"][0] == "4 of 8 values are not finite (of 'y'): 'y' is nan at x = 0."
    assert "too much" in runs.failures["message"][1]
    assert "3 of 6 runs failed" in caplog.text
    summary = runs.summary().frame
    assert (summary["N"] == 3).all()
    assert summary.loc["y0", "Max"] == 3
    assert summary.loc["z1", "Mean"] == pytest.approx(4 / 3)
    if keep == "all":
        assert runs.frame.iloc[[2, 4, 5], 1:].isna().all(axis=None)
        assert runs.frame.iloc[[0, 1, 3]].notna().all(axis=None)
        assert "3 of them failed" in repr(runs)


def test_values_that_nobody_asked_for_may_be_anything():
    runs = sensRange(failing, parInput={"a": [0.0, 1, 2, 3]}, sensvar="z")
    assert len(runs.failures) == 0


def test_a_summary_of_nothing_is_nan_without_a_warning(caplog):
    def never(p):
        return {"x": X, "y": X / 0 if p["a"] == -1 else np.full(4, np.nan)}

    runs = sensRange(never, parRange={"a": (0, 1)}, num=4, seed=1)
    assert len(runs.failures) == 4
    assert (runs.summary()["N"] == 0).all()
    assert runs.summary()["Mean"].isna().all()


def test_a_run_of_a_compiled_model_that_fails_is_told(bact):
    runs = sensRange(bact, parInput={"gmax": [0.5, 1e300]})
    assert runs.failures["run"].tolist() == [1]
    assert runs.failures["error"].tolist() == ["SimulationError"]


# --- observation errors


def test_errors_are_independent_from_point_to_point():
    runs = sensRange(line, {"a": 0, "b": 0}, parRange={"a": (5, 5)}, num=4000, seed=1)
    noisy = runs.with_error(4.0, seed=2)
    deviations = noisy.values[:, 0] - 5
    np.testing.assert_allclose(deviations.std(axis=0), 2, rtol=0.06)
    off = np.corrcoef(deviations.T)[~np.eye(4, dtype=bool)]
    assert np.abs(off).max() < 5 / np.sqrt(4000)  # one draw per run, as in FME's vignette, would give 1
    assert noisy.kind == noisy.summary().kind == "prediction"
    assert runs.kind == runs.summary().kind == "parameter uncertainty"
    np.testing.assert_array_equal(noisy.frame["y2"], noisy.values[:, 0, 2])
    np.testing.assert_array_equal(runs.with_error(4.0, seed=2).values, noisy.values)


def test_errors_by_variable(bact):
    runs = sensRange(bact, parRange={"gmax": (0.5, 0.5)}, num=300, seed=1)
    noisy = runs.with_error({"Bact": 1.0}, seed=0)
    assert noisy.predicted == ("Bact",)
    summary = noisy.summary()
    assert (summary.kind_of("Bact"), summary.kind_of("Sub")) == ("prediction", "parameter uncertainty")
    sd = summary.frame.groupby("var")["Sd"].max()
    assert sd["Sub"] == 0 < 0.7 < sd["Bact"] < 1.3


def test_sampled_variances_are_matched_by_label_or_pset():
    index = pd.MultiIndex.from_product([[0], range(1000)], names=["chain", "iteration"])
    chain = pd.DataFrame({"a": np.zeros(1000), "b": 0.0}, index=index)
    sig = pd.DataFrame({"var_model": np.where(np.arange(1000) < 500, 0.0, 9.0)}, index=index)
    runs = sensRange(line, parInput=chain, num=400, seed=1)
    for given in (sig, sig.reset_index(drop=True), sig["var_model"], sig.rename(columns={"var_model": "var_y"})):
        noisy = runs.with_error(given, seed=1).values[:, 0]
        assert (noisy[runs.pset < 500] == 0).all()
        assert 2.7 < noisy[runs.pset >= 500].std() < 3.3
    later = sensRange(line, parInput=chain.iloc[500:], num=100, seed=1)  # burn-in removed: labels still tell
    assert later.with_error(sig, seed=1).values.std() > 2.5
    with pytest.raises(ArgumentError, match=r"no row \(0, \d+\)"):
        runs.with_error(sig.iloc[:10])
    with pytest.raises(ArgumentError, match="has 10 rows"):
        runs.with_error(sig.iloc[:10].reset_index(drop=True))


@pytest.mark.parametrize(
    ("var", "message"),
    [
        (-1.0, "'y' is -1; it must be a finite number"),
        (np.nan, "must be a finite number"),
        ("x", "a number is needed"),
        ({"Y": 1.0}, "no variable 'Y'. Did you mean 'y'"),
        (pd.Series([1.0, 2.0], index=["y", "y"]), "'y' more than once"),
        (pd.DataFrame({"var_y": ["x"] * 5}), "must hold numbers"),
        (pd.DataFrame({"var_z": [1.0] * 5}), "none of which is the variance of a variable here: 'var_y'"),
    ],
)
def test_variances_that_cannot_be_are_told(var, message):
    runs = sensRange(line, {"a": 0, "b": 0}, parRange={"a": (0, 1)}, num=5, seed=1)
    with pytest.raises(ArgumentError, match=message):
        runs.with_error(var)


def test_errors_are_added_once():
    runs = sensRange(line, {"a": 0, "b": 0}, parRange={"a": (0, 1)}, num=5, seed=1).with_error(1)
    with pytest.raises(ArgumentError, match="carry observation errors already"):
        runs.with_error(1)


# --- runs that are not kept


def test_a_summary_without_the_runs_is_the_same(bact):
    args = {"sensvar": ["Bact", "Sub"], "parRange": {"gmax": (0.4, 0.6), "rB": (0, 0.02)}, "num": 40, "seed": 1}
    kept, streamed = sensRange(bact, **args), sensRange(bact, **args, keep="summary")
    pd.testing.assert_frame_equal(streamed.summary().frame, kept.summary().frame, check_exact=True)
    pd.testing.assert_frame_equal(streamed.pars, kept.pars)
    assert streamed.values.shape == (0, 2, 101)
    assert "only their summary was kept" in repr(streamed)
    with pytest.raises(ArgumentError, match="not kept"):
        streamed.with_error(1)
    with pytest.raises(ArgumentError, match="not kept"):
        streamed.plot()


def test_chunks_do_not_show(monkeypatch, caplog):
    import fmepy.montecarlo.ranges as module

    args = {"parInput": {"a": [0.0, 1, 1, 1, 4, 4, 3, 3, 0, 2, 1]}}
    whole = sensRange(failing, **args)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 8 * 8 * 2)  # two runs a chunk
    monkeypatch.setattr("fmepy.montecarlo.summaries.GROUP_BYTES", 8 * 11 * 3)  # three outputs at a time
    told = []
    parts = sensRange(failing, **args, keep="summary", progress=lambda done, total: told.append((done, total)))
    pd.testing.assert_frame_equal(parts.summary().frame, whole.summary().frame, check_exact=True)
    pd.testing.assert_frame_equal(parts.failures, whole.failures)
    assert told[-1] == (7, 7)  # as many as differ from the one before


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_ctrl_c_keeps_what_is_done_and_starts_nothing_more(keep, monkeypatch, caplog):
    monkeypatch.setattr("fmepy.montecarlo.ranges._CHUNK_BYTES", 8 * 4 * 2)
    seen = []

    def stopped(p):
        seen.append(p["a"])
        if p["a"] == 2:
            raise KeyboardInterrupt
        return {"x": X, "y": p["a"] + X}

    with pytest.warns(InterruptedWarning):
        runs = sensRange(stopped, parInput={"a": [0.0, 1, 2, 3, 4, 5, 6]}, keep=keep)
    assert runs.failures["run"].tolist() == [2, 3, 4, 5, 6]
    assert set(runs.failures["error"]) == {"Interrupted"}
    assert f"{len(runs.failures)} of them not run (Ctrl-C)" in str(runs)
    assert "failed" not in str(runs)
    assert (runs.summary()["N"] == 2).all()
    assert max(seen) == 2


def test_memory_without_the_runs_does_not_grow_with_their_number():
    x = np.linspace(0, 1, 100)

    def cheap(p):
        return np.stack((x, p["a"] * x, p["a"] + x, x), axis=1)

    def peak(num):
        tracemalloc.start()
        sensRange(cheap, parRange={"a": (0, 1)}, num=num, seed=1, keep="summary")
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1_700)  # what is kept from a first use does not count
    few, many = peak(1_700), peak(6_000)  # the first is a chunk already
    assert many - few < 0.2 * (6_000 - 1_700) * 300 * 8  # what grows is the table of parameters


# --- executors


@pytest.mark.parametrize(("keep", "numbers"), [("all", (1, 2, 4)), ("summary", (2,))])
def test_numbers_do_not_depend_on_the_number_of_workers(bact, keep, numbers):
    args = {"parRange": {"gmax": (0.4, 0.6)}, "num": 24, "seed": 1, "keep": keep}
    here = sensRange(bact, **args).summary().frame
    assert sensRange(bact, **args, executor=2).summary().frame.equals(here)  # too cheap for processes: stays here
    for workers in numbers:
        with loky.ProcessPoolExecutor(max_workers=workers) as pool:
            there = sensRange(bact, **args, executor=pool).summary().frame
        pd.testing.assert_frame_equal(there, here, check_exact=True)


def slow_line(p):
    time.sleep(0.15)
    return line(p)


def test_runs_that_take_long_go_to_processes_and_come_back_the_same(caplog):
    args = {"parms": {"a": 1.0, "b": 0.0}, "parRange": {"a": (0, 1)}, "num": 50, "seed": 1}
    caplog.set_level("INFO")
    spread = sensRange(slow_line, **args, executor=2)
    assert "stay in this process" not in caplog.text
    np.testing.assert_array_equal(spread.values, sensRange(line, **args).values)
    streamed = sensRange(slow_line, **args, executor=2, keep="summary")
    pd.testing.assert_frame_equal(streamed.summary().frame, spread.summary().frame, check_exact=True)


def test_progress_is_told():
    told = []
    sensRange(line, {"a": 0, "b": 0}, parRange={"a": (0, 1)}, num=7, progress=lambda *n: told.append(n))
    assert told[-1] == (7, 7)


# --- the result


def test_the_result_reaches_through_to_its_table_and_pickles(bact):
    runs = sensRange(bact, parRange={"gmax": (0.4, 0.6)}, num=3, seed=1)
    again = pickle.loads(pickle.dumps(runs))
    assert isinstance(again, SensRange)
    pd.testing.assert_frame_equal(again.frame, runs.frame)
    assert len(runs) == 3
    assert runs["gmax"].equals(runs.frame["gmax"])
    assert "<table" in runs._repr_html_()
    assert repr(runs).startswith("3 runs: parameter uncertainty of Bact, Sub")
    summary = pickle.loads(pickle.dumps(runs.summary()))
    assert summary.kind == "parameter uncertainty"
    assert "<table" in summary._repr_html_()


# --- bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"parRange": {"gmx": (0, 1)}}, "no parameter 'gmx'. Did you mean 'gmax'"),
        ({"parRange": {"gmax": (1, 0)}}, "min 1 above max 0"),
        ({}, "`parRange` is missing, which dist='unif' needs"),
        ({"dist": "norm", "parCovar": 1}, "`parMean` is missing"),
        ({"dist": "norm", "parMean": {"gmax": 1}}, "`parCovar` is missing"),
        ({"dist": "norm", "parMean": {"gmax": 1}, "parCovar": -1}, "not positive definite"),
        ({"parInput": {"gmax": [0.5, np.nan]}}, "'gmax' is nan in row 1"),
        ({"parInput": pd.DataFrame({"gmax": []})}, "empty table"),
        ({"parInput": {"gmax": ["a"]}}, "which is not a number"),
        (
            {"parInput": {"gmax": [0.5]}, "parRange": {"gmax": (0, 1)}},
            "the sets themselves: parRange would",
        ),
        ({"parInput": {"gmax": [0.5]}, "parMean": {"gmax": 1}, "parCovar": 1}, "parMean, parCovar would not count"),
        ({"parRange": {"gmax": (0, 1)}, "parCovar": 1}, "dist='unif' draws from `parRange`: parCovar would not count"),
    ],
)
def test_parameters_that_cannot_be_are_told(bact, given, message):
    with pytest.raises(ParameterError, match=message):
        sensRange(bact, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sensvar": "Bac"}, "no variable 'Bac'. Did you mean 'Bact'"),
        ({"sensvar": 0}, "is 'time', which is x"),
        ({"sensvar": 9}, "no column 9"),
        ({"sensvar": []}, "`sensvar` is empty"),
        ({"num": 0}, "`num=0`"),
        ({"dist": "uniform"}, "Did you mean 'unif'"),
        ({"keep": "none"}, "`keep='none'`"),
        ({"seed": -2}, "`seed=-2`"),
        ({"executor": 0}, "at least 1"),
    ],
)
def test_arguments_that_cannot_be_are_told(bact, given, message):
    with pytest.raises(ArgumentError, match=message):
        sensRange(bact, **{"parRange": {"gmax": (0.4, 0.6)}, **given})


def test_a_function_that_fails_at_the_start_is_an_error():
    with pytest.raises(ArgumentError, match=r"fails at the start .*KeyError"):
        sensRange(lambda p: p["k"], parRange={"a": (0, 1)})


# --- on disk


class Ending:
    """A model of which one call ends with an error, once."""

    def __init__(self, at=None, error=None):
        self.at, self.error, self.calls = at, error, 0

    def __call__(self, p):
        self.calls += 1
        if self.calls == self.at:
            raise self.error
        if p["a"] < 0.1:
            raise ValueError("too small")
        return {"t": [0.0, 1.0], "y": [p["a"], p["a"] ** 2]}


BOX = {"parRange": {"a": (0.0, 1.0)}, "num": 40}


@pytest.mark.parametrize("seed", [1, None])
def test_a_checkpoint_goes_on_to_what_an_uninterrupted_call_gives(tmp_path, seed):
    whole = None if seed is None else sensRange(Ending(), **BOX, seed=seed)
    broken = Ending(30, KeyboardInterrupt)
    with pytest.warns(InterruptedWarning):
        part = sensRange(broken, **BOX, seed=seed, checkpoint=tmp_path / "c")
    assert part.interrupted
    rest = Ending()
    done = sensRange(rest, **BOX, seed=seed, checkpoint=tmp_path / "c")
    assert rest.calls < 20, "what was done is not done again"
    assert not done.interrupted
    ran = np.isfinite(part.values[:, 0, 0])
    np.testing.assert_array_equal(done.values[ran], part.values[ran])
    if whole is not None:
        pd.testing.assert_frame_equal(done.frame, whole.frame)
        pd.testing.assert_frame_equal(done.failures, whole.failures)
    again = Ending()
    pd.testing.assert_frame_equal(sensRange(again, **BOX, seed=seed, checkpoint=tmp_path / "c").frame, done.frame)
    assert again.calls <= 2, "the function is looked at, and no run is"


def test_a_checkpoint_of_other_runs_is_refused(tmp_path):
    sensRange(Ending(), **BOX, seed=1, checkpoint=tmp_path / "c")
    with pytest.raises(ArgumentError, match="another question: its digest of the parameter sets"):
        sensRange(Ending(), parRange={"a": (0.0, 2.0)}, num=40, seed=1, checkpoint=tmp_path / "c")
    with pytest.raises(ArgumentError, match="its first run is"):
        sensRange(lambda p: {"t": [0.0, 1.0], "y": [p["a"], 2.0]}, **BOX, seed=1, checkpoint=tmp_path / "c")
    with pytest.raises(ArgumentError, match="seed=1"):
        sensRange(Ending(), **BOX, seed=2, checkpoint=tmp_path / "c")
    with pytest.raises(ArgumentError, match="keep='summary'"):
        sensRange(Ending(), **BOX, keep="summary", checkpoint=tmp_path / "c")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"parRange": {"gmx": (0.1, 1)}}, "`parRange`: there is no parameter 'gmx'. Did you mean 'gmax'"),
        ({"parInput": {"gmx": [0.1, 1]}}, "`parInput`: there is no parameter 'gmx'"),
        ({"dist": "norm", "parMean": {"gmx": 1.0}, "parCovar": [[1.0]]}, "`parMean`: there is no parameter 'gmx'"),
        ({"parRange": (0.1, 1)}, r"must be a dict of \(min, max\) by name, such as \{'k': \(0.1, 0.5\)\}"),
    ],
)
def test_an_unknown_parameter_is_answered_by_the_argument_that_names_it(arguments, says):
    with pytest.raises(ParameterError, match=says):
        sensRange(bacteria_model(), num=2, seed=1, **arguments)
