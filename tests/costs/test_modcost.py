"""modCost gives what FME's gives, with its quirks mirrored or mended as its docstring says."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from fmepy.costs import ModCost, modCost
from fmepy.errors import ArgumentError, DataError, SimulationError

PLAIN = [
    "long_none", "long_err", "long_std", "long_scale", "long_err_scale", "wide_none", "wide3_scale_none",
    "wide3_scale_std", "wide_mean", "wide_matrix", "wide_outside", "wide_outside_std", "long_replicates",
    "long_replicates_err", "wide_replicates", "long_order", "x_null_vector", "x_null_two", "x_null_mean", "x_null_long",
    "model_gap", "quirk_minlogp_inf",
]  # fmt: skip


def model_table(**columns):
    return pd.DataFrame({"time": [0.0, 1, 2, 3], **columns})


def call(case, read_table, **more):
    inputs = case["inputs"]
    model = read_table(inputs["model"])
    args = {**inputs["args"], **more}
    if args.get("x", "time") == "depth":
        model = model.rename(columns={"time": "depth"})
    return modCost(model, read_table(inputs["obs"]), **args)


def assert_is(cost, outputs, read_table):
    assert cost.model == pytest.approx(outputs["model"], rel=1e-10)
    if outputs["minlogp"] != "Inf":
        assert cost.minlogp == pytest.approx(outputs["minlogp"], rel=1e-10)
    for field in ("var", "residuals"):
        if field in outputs:
            expected = read_table(outputs[field])
            found = getattr(cost, field)
            assert list(found.columns) == list(expected.columns)
            pd.testing.assert_frame_equal(found, expected, rtol=1e-10, atol=1e-13, check_dtype=False)


@pytest.mark.parametrize("name", PLAIN)
def test_modcost_equals_fme(name, reference, read_table):
    case = reference("modCost", name)
    more = {"outside": "drop"} if "outside" in name else {}
    assert_is(call(case, read_table, **more), case["outputs"], read_table)


def test_the_list_of_reference_cases_is_complete(reference):
    told_apart = {"model_ties", "chain2", "quirk_na_err", "quirk_x_not_first", "quirk_rule", "misuse"}
    assert set(reference.names("modCost")) == set(PLAIN) | told_apart


def test_rows_of_the_model_at_the_same_x_are_averaged_with_a_warning(reference, read_table):
    case = reference("modCost", "model_ties")
    with pytest.warns(UserWarning, match="several rows at the same 'time'") as caught:
        cost = call(case, read_table)
    assert caught[0].filename == __file__, "the warning points at the caller"
    assert_is(cost, case["outputs"], read_table)


def test_the_logistic_costs_of_the_manual(reference, read_table, growth):
    case = reference("ode", "logistic_costs")
    cost = modCost(growth(), read_table(case["inputs"]["obs"]))
    assert cost.model == pytest.approx(case["outputs"]["analytic_on_grid"], rel=1e-10)


def test_two_data_sets_of_one_variable_have_two_rows(reference, data_folder):
    case = reference("vignettes", "mcmc_monod2_fit")["outputs"]
    mu, ks = case["fit"]["par"]["mu"], case["fit"]["par"]["ks"]
    costs = []
    for name in ("monod", "monod2"):
        data = pd.read_csv(data_folder / f"{name}.csv")
        costs.append(modCost(pd.DataFrame({"x": data.x, "y": mu * data.x / (data.x + ks)}), data, x="x"))
    cost = costs[1] + costs[0]
    assert cost.model == pytest.approx(case["cost"]["model"], rel=1e-9)
    assert cost.minlogp == pytest.approx(case["cost"]["minlogp"], rel=1e-9)
    assert cost.var["name"].tolist() == ["y", "y"]
    assert cost.var["SSR"].tolist() == pytest.approx(case["cost"]["var"]["data"]["SSR"], rel=1e-6)


# ------------------------------------------------------------------------------------------------------------- quirks


def test_quirk_1_a_missing_observation_takes_its_error_with_it(reference, read_table):
    cost = call(reference("modCost", "quirk_na_err"), read_table)
    assert cost.residuals["x"].tolist() == [1, 3, 4]
    assert cost.residuals["weight"].tolist() == pytest.approx([1 / 0.1, 1 / 0.3, 1 / 0.4])
    assert cost.dropped.to_dict("records") == [{"name": "A", "missing": 1, "outside": 0}]


def test_quirk_2_wide_data_take_x_from_the_named_column(reference, read_table):
    cost = call(reference("modCost", "quirk_x_not_first"), read_table)
    assert cost.residuals["x"].tolist() == [1, 2, 3]
    assert cost.residuals["mod"].tolist() == pytest.approx([3.704091, 2.744058, 2.032848])


def test_quirk_3_scalevar_divides_a_variable_by_the_cube_of_its_number_of_observations():
    cost = modCost(model_table(A=0.0), {"time": [1, 2], "A": [3.0, 5.0]}, scaleVar=True)
    assert cost.model == pytest.approx((9 + 25) / 2**3)
    assert cost.var["SSR"].tolist() == [(9 + 25) / 2**2]


def test_quirk_4_minlogp_is_finite_for_any_residual(reference, read_table):
    cost = call(reference("modCost", "quirk_minlogp_inf"), read_table)
    assert cost.minlogp == pytest.approx(2 * 0.5 * np.log(2 * np.pi) + 0.5 * cost.model)
    assert np.isfinite(modCost(model_table(A=0.0), {"time": [1.0], "A": [1e8]}).minlogp)


def test_quirk_5_arguments_for_the_interpolation_are_refused(reference, read_table):
    with pytest.raises(TypeError, match="rule"):
        call(reference("modCost", "quirk_rule"), read_table)


def test_quirk_6_observations_outside_the_range_of_the_model_are_an_error_or_counted(reference, read_table):
    case = reference("modCost", "wide_outside")
    with pytest.raises(
        DataError, match=r"2 of 4 observations of 'A' .* from -1 to 12, .* from 0 to 10.*outside='drop'"
    ):
        call(case, read_table)
    cost = call(case, read_table, outside="drop")
    assert cost.dropped["outside"].tolist() == [2, 2]
    assert "outside" in str(cost)


def test_quirk_7_the_newest_chained_call_comes_first_and_a_plus_b_keeps_the_written_order(reference, read_table):
    case = reference("modCost", "chain2")
    model = read_table(case["inputs"]["model"])
    first, second = case["inputs"]["steps"]
    a = modCost(model, read_table(first["obs"]), **first["args"])
    chained = modCost(model, read_table(second["obs"]), cost=a, **second["args"])
    assert_is(chained, case["outputs"], read_table)
    b = modCost(model, read_table(second["obs"]), **second["args"])
    assert (a + b).var["name"].tolist() == ["A", "B", "C"]
    assert sum([a, b]).residuals["name"].tolist() == ["A"] * 6 + ["B", "B", "C"]
    assert (a + b).model == pytest.approx(chained.model)


def test_quirk_8_the_plot_shows_every_residual():
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    cost = modCost(model_table(A=[0.0, 1, 2, 3], B=1.0), {"time": [1, 2], "A": [1.5, 1.8], "B": [0.0, 3.0]})
    ax = cost.plot(legpos="topright", xlabel="time, hour", markersize=9)
    points = {line.get_label(): line for line in ax.get_lines() if line.get_marker() not in (None, "None")}
    assert points["A"].get_ydata().tolist() == pytest.approx([-0.5, 0.2])
    assert points["B"].get_xdata().tolist() == [1, 2]
    assert points["A"].get_color() != points["B"].get_color()
    assert points["A"].get_marker() != points["B"].get_marker()
    assert points["A"].get_markersize() == 9
    assert ax.get_xlabel() == "time, hour"
    assert ax.get_legend() is not None
    plt.close(ax.figure)
    _, mine = plt.subplots()
    assert cost.plot(None, ax=mine) is mine
    assert mine.get_legend() is None
    with pytest.raises(ArgumentError, match="topleft"):
        cost.plot("topleftt", ax=mine)
    plt.close("all")


# ------------------------------------------------------------------------------------------------------------- misuse


def test_whatever_stops_r_is_an_error_here_too(reference, read_table):
    case = reference("modCost", "misuse")
    model = read_table(case["inputs"]["model"])
    wide = {"time": [1.0, 2.0], "A": [3.0, 2.0]}
    long = {"name": ["A", "A"], "time": [1.0, 2.0], "val": [3.0, 2.0], "err": [1.0, 1.0]}
    first_row = model.iloc[:1]

    def long_with(**columns):
        return {**long, **columns}

    kinds = {
        "x has two names": (model, wide, {"x": ["time", "A"]}, "one column"),
        "x is not a string": (model, wide, {"x": 1}, "a text"),
        "x not a column of obs": (model, wide, {"x": "tme"}, "Did you mean 'time'"),
        "x not a column of model": (model.rename(columns={"time": "t"}), wide, {}, "not a column of `model`"),
        "err is not a string": (model, long, {"y": "val", "err": 3}, "a text"),
        "err not a column of obs": (model, long, {"y": "val", "err": "er"}, "Did you mean 'err'"),
        "y is not a string": (model, long, {"y": 2}, "a text"),
        "y not a column of obs": (model, long, {"y": "vall"}, "Did you mean 'val'"),
        "observed variable not in model (wide)": (model, {"time": [1.0], "a": [1.0]}, {}, "Did you mean 'A'"),
        "observed variable not in model (long)": (model, long_with(name=["A", "D"]), {"y": "val"}, "'D' is not a var"),
        "unknown weight": (model, wide, {"weight": "sd"}, "'std'"),
        "weight std with one data point": (model, {"time": [1.0], "A": [1.0]}, {"weight": "std"}, "two observations"),
        "weight std with constant data (sd 0)": (model, {**wide, "A": [2.0, 2.0]}, {"weight": "std"}, "do not differ"),
        "weight mean with zero data": (model, {**wide, "A": [0.0, 0.0]}, {"weight": "mean"}, "all zero"),
        "an error of zero": (model, long_with(err=[1.0, 0.0]), {"y": "val", "err": "err"}, "of 'A' in row 1 is 0"),
        "a negative error": (model, long_with(err=[-1.0, 1.0]), {"y": "val", "err": "err"}, "in row 0 is -1"),
        "a missing error": (model, long_with(err=[1.0, None]), {"y": "val", "err": "err"}, "in row 1 is missing"),
        "all observations of a variable outside the model's range":
            (model, {**wide, "time": [11.0, 12.0]}, {"outside": "drop"}, "of 'A' are left.*11 to 12.*0 to 10"),
        "all observations of a variable missing": (model, {**wide, "A": [None, None]}, {}, "of 'A' are left.*missing"),
        "model with a single row while x is given": (first_row, {"time": [0.0], "A": [1.0]}, {}, "two are needed"),
        "long format but y not given": (model, long, {}, "column 'name' holds 'A'.*`y`"),
    }  # fmt: skip
    assert list(kinds) == case["outputs"]["kind"]
    for m, obs, args, message in kinds.values():
        with pytest.raises(ArgumentError, match=message):
            modCost(m, obs, **args)


def test_a_model_that_was_not_run_is_refused():
    with pytest.raises(DataError, match="Run it first"):
        modCost(lambda p: p, {"time": [1], "A": [1]})


def test_cost_must_be_a_modcost():
    with pytest.raises(ArgumentError, match="ModCost of an earlier call; got float"):
        modCost(model_table(A=0.0), {"time": [1], "A": [1]}, cost=3.0)


def test_errors_of_several_observations_without_x_are_refused():
    with pytest.raises(DataError, match="gives 2 errors"):
        modCost({"A": 1.0}, {"A": [1.0, 2.0], "sd": [1.0, 1.0]}, x=None, err="sd")


def test_a_model_that_ends_early_in_nan_is_a_failed_run():
    run = model_table(A=[1.0, 2.0, np.nan, np.nan])
    data = {"time": [0.5, 2.5], "A": [1.0, 1.0]}
    with pytest.raises(SimulationError, match=r"value of 'A' at time = 2.5 is nan.*1 of 2") as failure:
        modCost(run, data)
    assert failure.value.time == 2.5
    assert modCost(run, data, outside="drop").dropped["outside"].tolist() == [1]
    with pytest.raises(SimulationError, match="1 values of 'A'"):
        modCost(model_table(A=[1.0, np.nan, np.nan, np.nan]), data)


def test_an_infinite_value_at_a_compared_point_is_a_failed_run_and_elsewhere_no_matter():
    run = model_table(A=[1.0, 2.0, 3.0, np.inf])
    assert modCost(run, {"time": [1.0, 2.0], "A": [2.0, 3.0]}).model == 0
    with pytest.raises(SimulationError, match="is inf"):
        modCost(run, {"time": [2.5], "A": [2.0]})


def test_a_repeated_column_of_the_model_is_refused():
    run = pd.DataFrame([[0, 1.0, 2.0], [1, 1.0, 2.0]], columns=["time", "A", "A"])
    with pytest.raises(DataError, match="2 columns called 'A'"):
        modCost(run, {"time": [0.5], "A": [1.0]})


def test_the_last_time_may_differ_by_rounding():
    cost = modCost({"time": [0.0, 0.3], "A": [0.0, 3.0]}, {"time": [0.1 * 3], "A": [3.0]})
    assert cost.model == 0


# -------------------------------------------------------------------------------------------------------- the object


def test_modcost_prints_its_cost_its_variables_and_what_was_dropped():
    cost = modCost(model_table(A=0.0, B=0.0), {"time": [1, 2], "A": [1.0, 2.0], "B": [None, 1.0]})
    text = str(cost)
    assert "model:   6" in text
    assert "SSR.unweighted" in text
    assert text.splitlines()[-1].split() == ["B", "1", "0"]
    html = cost._repr_html_()
    assert "SSR.unscaled" in html
    assert "dropped" in html


def test_modcost_pickles_and_cannot_be_changed():
    cost = modCost(model_table(A=0.0), {"time": [1, 2], "A": [1.0, 2.0]})
    again = pickle.loads(pickle.dumps(cost))
    assert isinstance(again, ModCost)
    assert again.model == cost.model
    pd.testing.assert_frame_equal(again.residuals, cost.residuals)
    with pytest.raises(AttributeError):
        cost.model = 3.0


def test_the_tables_of_the_user_are_left_alone():
    run, data = model_table(A=0.0), pd.DataFrame({"time": [1.0, 2.0], "A": [1.0, np.nan]})
    before = run.copy(), data.copy()
    modCost(run, data)
    pd.testing.assert_frame_equal(run, before[0])
    pd.testing.assert_frame_equal(data, before[1])


def test_the_order_of_the_rows_does_not_matter():
    run = model_table(A=[1.0, 5, 2, 8])
    data = pd.DataFrame({"time": [0.3, 1.2, 2.7], "A": [1.0, 2.0, 3.0]})
    shuffled = modCost(run.iloc[[2, 0, 3, 1]], data.iloc[[1, 2, 0]])
    assert shuffled.model == pytest.approx(modCost(run, data).model, rel=1e-14)


def test_costs_load_without_matplotlib():
    code = "import sys, fmepy.costs, fmepy.costs.mapped; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "given",
    [
        lambda t: t,
        lambda t: t.to_dict("list"),
        lambda t: {k: v.to_numpy() for k, v in t.items()},
        lambda t: t.astype({"B": "Int64"}),  # a column that pandas keeps apart
        lambda t: t.astype({"time": "float32"}),
        lambda t: t.assign(note="text", empty=None)[["note", "time", "A", "B", "empty"]],
        lambda t: pd.concat([t, *[t[["A"]].set_axis([f"c{k}"], axis=1) for k in range(9)]], axis=1),
        lambda t: t.to_records(index=False),
    ],
)
def test_a_model_may_come_in_any_table(given):
    run = pd.DataFrame({"time": [0.0, 1, 2, 3], "A": [1.0, 0.5, 0.25, 0.125], "B": [4, 3, 2, 1]})
    data = {"time": np.array([0.5, 2.0, 2.5]), "A": np.array([0.7, 0.3, 0.2]), "B": np.array([3, 2, 2])}
    plain = modCost(run, pd.DataFrame(data))
    cost = modCost(given(run), data)
    pd.testing.assert_frame_equal(cost.residuals, plain.residuals)
    assert cost.residuals["mod"].tolist() == [0.75, 0.25, 0.1875, 3.5, 2.0, 1.5]
