"""sensFun gives R's sensitivities, exactly where the model has them, and says how it came by them."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.linalg import solve_banded

import fmepy as fme
from fmepy.errors import ArgumentError, ParameterError, SimulationError
from fmepy.journal import evaluations, records
from fmepy.sensitivity import collin, sensFun
from tests.models.problems import hiv_model
from tests.plain import plain
from tests.sensitivity.references import (
    BACTERIA_TIMES,
    DATA,
    TIGHT,
    bacteria,
    bacteria_cost,
    hiv_cost,
    sensfun_case,
    table,
    vignette,
)

BOTH = ["Bact", "Sub"]


def run(p):
    """Return the bacteria model as a function of a user: a table, no sensitivities of its own."""
    return bacteria()(p)[["time", *BOTH]]


def decay(p):
    t = np.array([0.0, 1.0, 2.0, 4.0])
    return {"time": t, "A": p["A0"] * np.exp(-p["k"] * t), "B": p["A0"] * (1 - np.exp(-p["k"] * t)) + 1}


DECAY = {"A0": 10.0, "k": 0.5}


def assert_close(found, expected, rtol):
    """Columns agree relative to the size of each column and variable: differences lose the digits of the largest."""
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    assert found.shape == expected.shape
    size = np.abs(expected).max(axis=0)
    np.testing.assert_allclose(found / size, expected / size, atol=rtol)


# --- against R


@pytest.mark.parametrize("model", ["bact", "hiv"])
def test_sensitivities_are_the_exact_ones(model):
    case = sensfun_case(f"exact_{model}")
    out = case["outputs"]
    expected = table(out["dydp"]).to_numpy()
    what = bacteria() if model == "bact" else hiv_model(**TIGHT)
    variables = list(dict.fromkeys(out["var"]))
    sens = sensFun(what, case["inputs"]["parms"], sensvar=variables, varscale=1, parscale=1)
    assert sens.method == "exact"
    assert sens.frame["var"].tolist() == out["var"]
    for variable in variables:
        rows = sens.frame["var"] == variable
        assert_close(sens.matrix[rows], expected[rows.to_numpy()], 1e-6)
    np.testing.assert_allclose(sens["x"], out["x"])


SCALINGS = {
    "bact_tiny_1e-06": {},
    "bact_varscale1": {"varscale": 1},
    "bact_parscale1": {"parscale": 1},
    "bact_both1": {"varscale": 1, "parscale": 1},
    "bact_parscale_vec": {"varscale": 1, "parscale": [0.1, 0.2, 0.3, 0.004, 0.005]},
    "bact_varscale_vec": {"varscale": np.resize([1.0, 2.0, 5.0], 22)},
    "bact_sensvar": {"sensvar": "Bact"},
    "bact_sensvar_idx": {"sensvar": 1},
    "bact_sensvar_rev": {"sensvar": ["Sub", "Bact"], "varscale": 1},
    "bact_senspar": {"senspar": ["rB", "gmax"], "varscale": 1},
    "bact_senspar_idx": {"senspar": [1, 2], "varscale": 1},
}


@pytest.mark.parametrize("name", SCALINGS)
def test_tables_and_summaries_are_those_of_R(name):
    case = sensfun_case(name)
    arguments = {"sensvar": BOTH, **SCALINGS[name]}
    sens = sensFun(bacteria(), case["inputs"]["parms"], **arguments)
    expected = table(case["outputs"]["table"])
    assert list(sens.columns) == list(expected.columns)
    assert sens["var"].tolist() == expected["var"].tolist()
    assert_close(sens.matrix, expected.iloc[:, 2:], 2e-4)  # R: forward differences, tiny 1e-6
    attr = case["outputs"]["attr"]
    assert sens.var == tuple(attr["var"])
    assert sens.xname == attr["xname"]
    assert sens.parscale.tolist() == pytest.approx(attr["parscale"])
    for found, key in ((sens.summary(), "summary"), (sens.summary(vars=True), "summary_vars")):
        reference = table(case["outputs"][key])
        if "var" in reference.columns and sens.var[0] == "Sub":  # R sorts variables, fmepy keeps their order
            continue
        assert list(found.columns) == list(reference.columns)
        numbers = [c for c in reference.columns if c != "var"]
        size = reference[numbers].abs().max()
        np.testing.assert_allclose(found.frame[numbers] / size, reference[numbers] / size, atol=2e-4)
        assert list(found.frame.index) == list(reference.index)


@pytest.mark.parametrize(("tiny", "rtol"), [(1e-8, 1e-3), (1e-6, 2e-5), (1e-3, 1e-6)])
def test_a_number_for_tiny_takes_the_forward_difference_of_FME(tiny, rtol):
    # R's step for gmax, eff and ks = 0.5 is its floor, tiny itself: twice the relative step. Runs at 1e-12, as in R:
    # what is left is their noise over the step.
    sharp = bacteria().replace(rtol=1e-12, atol=1e-12)
    case = sensfun_case(f"bact_tiny_{tiny:g}")
    sens = sensFun(sharp, senspar=["gmax", "eff", "ks"], sensvar=BOTH, tiny=2 * tiny)
    assert sens.method == f"forward, tiny={2 * tiny:g}"
    expected = table(case["outputs"]["table"])
    before = expected["x"].to_numpy() < 35  # beyond the crash of the bacteria, Sub is 0.01 and its derivative noise
    assert_close(sens.matrix[before], expected.loc[before, ["gmax", "eff", "ks"]], 100 * rtol)


def test_another_variable_and_table_of_the_hiv_model():
    case = sensfun_case("hiv_out")
    expected = table(case["outputs"]["table"])
    sens = sensFun(hiv_model(**TIGHT), sensvar=["logV", "T"])
    kept = [c for c in expected.columns[2:] if c != "bet"]  # R's step for bet is half a thousandth of it
    assert_close(sens.frame[kept], expected[kept], 1e-3)
    assert_close(sens.frame[["bet"]], expected[["bet"]], 5e-3)


def test_a_list_of_parameters_is_a_dict():
    expected = table(sensfun_case("bact_list")["outputs"]["table"])
    assert_close(
        sensFun(bacteria(), dict(bacteria().parms), sensvar=BOTH, varscale=1).matrix, expected.iloc[:, 2:], 2e-4
    )


def test_one_row_has_x_one():
    expected = table(sensfun_case("bact_mapnull")["outputs"]["table"])
    model = bacteria().replace(times=[0, 20, 35])

    def at_35(p):
        return model(p)[BOTH].iloc[-1]

    sens = sensFun(at_35, dict(model.parms))
    assert_close(sens.matrix, expected.iloc[:, 2:], 1e-4)
    assert sens["x"].tolist() == expected["x"].tolist()
    assert sens.xname == "x"


def test_a_table_without_x_has_row_numbers():
    expected = table(sensfun_case("bact_mapnull_table")["outputs"]["table"])
    sens = sensFun(lambda p: run(p)[BOTH], dict(bacteria().parms), varscale=1, map=None)
    assert_close(sens.matrix, expected.iloc[:, 2:], 2e-4)
    assert sens["x"].tolist() == expected["x"].tolist()


@pytest.mark.parametrize(("name", "varscale"), [("bact_cost", 1), ("bact_cost_default", None)])
def test_a_cost_gives_the_modelled_values_at_the_data(name, varscale):
    expected = table(sensfun_case(name)["outputs"]["table"])
    sens = sensFun(bacteria_cost(), varscale=varscale)
    assert sens.method == "exact"
    assert sens["var"].tolist() == expected["var"].tolist()
    np.testing.assert_allclose(sens["x"], expected["x"])
    assert_close(sens.matrix, expected.iloc[:, 2:], 2e-4)


def test_the_rows_of_a_cost_are_regrouped_by_variable():
    case = sensfun_case("bact_cost_long")
    obs = pd.DataFrame(case["inputs"]["model"]["obs"]["data"])
    expected = table(case["outputs"]["table"])
    cost = fme.SimulationCost(bacteria("fine"), obs, y="val", err="err")
    for what in (cost, lambda p: fme.modCost(bacteria("fine")(p), obs, y="val", err="err")):
        sens = sensFun(what, dict(bacteria().parms), varscale=1)
        assert sens["var"].tolist() == expected["var"].tolist()
        np.testing.assert_allclose(sens["x"], expected["x"])
        assert_close(sens.matrix, expected.iloc[:, 2:], 2e-4)


def test_the_hiv_vignette():
    exact, r = vignette("hiv_exact"), vignette("hiv_sens")
    sens = sensFun(hiv_cost())
    assert sens.method == "exact"
    assert_close(sens.matrix, table(exact["S"]), 1e-6)
    summary = table(exact["summary"])
    np.testing.assert_allclose(sens.summary().frame[summary.columns], summary, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(sens.matrix.corr(), table(r["cor"]), atol=2e-3)  # R: differences, tiny 1e-8
    by_var = sens.summary(vars=True).frame.sort_values("var", kind="stable", key=lambda s: s.str.lower())
    expected = table(r["summary_vars"]).sort_values("var", kind="stable", key=lambda s: s.str.lower())
    assert by_var["var"].tolist() == expected["var"].tolist()
    np.testing.assert_allclose(by_var["L2"], expected["L2"], rtol=3e-3)


def test_the_dynamics_vignette():
    r = vignette("dyna_tight")
    sens = sensFun(bacteria("fine"), sensvar="Bact", varscale=1)
    expected = table(r["sens_summary"])
    size = expected.abs().max()
    np.testing.assert_allclose(sens.summary().frame / size, expected / size, atol=1e-4)
    np.testing.assert_allclose(sens.matrix.corr(), table(r["cor"]), atol=1e-4)
    three = sensFun(bacteria("fine"), sensvar=["Bact", "Sub", "TOC"], varscale=1).summary(vars=True).frame
    expected = table(r["sens3_summary_vars"])
    assert three["var"].tolist() == expected["var"].tolist()
    np.testing.assert_allclose(three["L2"], expected["L2"], rtol=1e-4)
    np.testing.assert_allclose(three["L1"], expected["L1"], rtol=1e-4)
    loose = vignette("dyna_default")["sens_summary"]
    np.testing.assert_allclose(sens.summary()["L2"], table(loose)["L2"], rtol=1e-3)


def oxygen(p):
    """Oxygen in a sediment, diffusion and Monod consumption in 100 layers: the steady state by Newton's method."""
    h, g = 0.05, p["D"] / np.r_[0.025, np.full(99, 0.05)]
    beneath = np.r_[g[1:], 0.0]  # nothing leaves through the floor
    O2 = np.linspace(p["upO2"], 0.01, 100)
    for _ in range(200):
        above = np.r_[p["upO2"], O2[:-1]] - O2
        rates = (g * above - beneath * np.r_[above[1:], 0.0]) / h - p["cons"] * O2 / (O2 + p["ks"])
        bands = np.zeros((3, 100))
        bands[0, 1:], bands[2, :-1] = beneath[:-1] / h, g[1:] / h
        bands[1] = -(g + beneath) / h - p["cons"] * p["ks"] / (O2 + p["ks"]) ** 2
        step = solve_banded((1, 1), bands, rates)
        O2 = np.maximum(O2 - step, 0.1 * O2)  # concentrations stay positive
        if np.abs(step).max() < 1e-12 * p["upO2"]:
            break
    return pd.DataFrame({"x": np.arange(100) * 0.05 + 0.025, "O2": O2}), float(g[0] * (p["upO2"] - O2[0]))


O2_PARMS = {"upO2": 360.0, "cons": 80.0, "ks": 1.0, "D": 1.0}


def assert_collinear_alike(found, expected, rtol, noisy_above):
    known = expected < noisy_above
    np.testing.assert_allclose(found[known], expected[known], rtol=rtol)
    assert (found[~known] > noisy_above).all()


def test_the_steady_state_vignette():
    r = vignette("steady_sens")
    sens = sensFun(lambda p: oxygen(p)[0], O2_PARMS)
    assert sens.method.startswith("differences")
    np.testing.assert_allclose(sens.summary()["L2"], table(r["summary"])["L2"], rtol=1e-3)
    np.testing.assert_allclose(sens.matrix.corr(), table(r["cor"]), atol=1e-4)
    assert_collinear_alike(collin(sens)["collinearity"], table(r["collin"])["collinearity"], 1e-2, 1e4)


def test_the_cost_of_the_steady_state_vignette():
    r = vignette("steady_objective")
    data = pd.read_csv(DATA / "sediment_o2.csv")

    def objective(p):
        profile, up_flux = oxygen(p)
        first = fme.modCost(profile, data, x="x")
        return fme.modCost({"UpFlux": up_flux}, {"UpFlux": 170.0}, x=None, cost=first)

    sens = sensFun(objective, O2_PARMS)
    assert sens.var == ("UpFlux", "O2")
    np.testing.assert_allclose(sens.summary()["L2"], table(r["sens_summary"])["L2"], rtol=2e-3)
    assert_collinear_alike(collin(sens)["collinearity"], table(r["collin"])["collinearity"], 1e-2, 1e4)


# --- quirks


def test_quirk_9_varscale_is_not_recycled_but_one_per_variable():
    by_name = sensFun(decay, DECAY, varscale={"B": 4.0, "A": 2.0})
    by_order = sensFun(decay, DECAY, varscale=[2.0, 4.0])
    by_row = sensFun(decay, DECAY, varscale=np.repeat([2.0, 4.0], 4))
    plain = sensFun(decay, DECAY, varscale=1)
    np.testing.assert_array_equal(by_name.matrix, plain.matrix.to_numpy() / np.repeat([2.0, 4.0], 4)[:, None])
    np.testing.assert_array_equal(by_name.matrix, by_order.matrix)
    np.testing.assert_array_equal(by_name.matrix, by_row.matrix)
    with pytest.raises(ArgumentError, match=r"3 values for 2 variables \('A', 'B'\) in 8 rows"):
        sensFun(decay, DECAY, varscale=[1, 2, 5])


@pytest.mark.parametrize("tiny", [1e-5, None])
def test_quirk_9_the_step_is_relative_to_a_small_parameter(tiny):
    def square(p):  # R's floor would be half of bet for tiny=1e-5: an error of 50 %
        return {"y": (p["bet"] / 2e-5) ** 2}

    sens = sensFun(square, {"bet": 2e-5}, tiny=tiny)
    assert sens.matrix.iloc[0, 0] == pytest.approx(2.0, rel=2e-5)


def test_quirk_10_rows_of_a_variable_are_selected_by_name_whatever_the_order():
    forward, reverse = sensFun(bacteria_cost(), varscale=1), sensFun(bacteria_cost(reverse=True), varscale=1)
    assert forward.var == ("Bact", "Sub")
    assert reverse.var == ("Sub", "Bact")
    for which in BOTH:
        a = collin(forward, ["gmax", "eff", "rB"], which=which).value
        assert collin(reverse, ["gmax", "eff", "rB"], which=which).value == pytest.approx(a, rel=1e-9)


def test_quirk_10_the_hiv_vignette_has_collinearities_60_not_5829_and_12():
    sens = sensFun(hiv_cost())
    r = vignette("hiv_exact")
    for which, expected in (("logV", r["five_logV"]), ("T", r["five_T"])):
        found = collin(sens, ["bet", "rho", "delt", "c", "lam"], which=which).value
        assert found == pytest.approx(expected, rel=1e-5)
    assert collin(sens, ["bet", "rho", "delt", "c", "lam"], which="logV").value == pytest.approx(60.4, abs=0.05)
    assert collin(sens, ["bet", "rho", "delt", "c", "lam"], which="T").value == pytest.approx(60.0, abs=0.05)


def test_quirk_11_weights_enter_if_they_are_asked_for():
    cost = hiv_cost()
    bound = cost.bind()
    J = bound.jacobian(bound.theta0)
    weighted, plain = sensFun(cost, weighted=True), sensFun(cost, varscale=1)
    np.testing.assert_allclose(weighted.matrix, J * bound.theta0)
    np.testing.assert_allclose(weighted.matrix, plain.matrix.to_numpy() * bound.weights[:, None])
    np.testing.assert_allclose(sensFun(cost, weighted=True, parscale=1).matrix, J)
    assert weighted.weighted
    assert not plain.weighted


def test_quirk_a_parameter_at_zero_is_told_and_gives_the_numbers_of_R():
    case = sensfun_case("bact_point2")
    expected = table(case["outputs"]["table"])
    with pytest.warns(UserWarning, match="'dB' is at 0"):
        sens = sensFun(bacteria(), case["inputs"]["parms"], sensvar=BOTH, varscale=1, tiny=1e-6)
    assert sens.parscale.tolist() == pytest.approx(case["outputs"]["attr"]["parscale"])
    before = expected["x"].to_numpy() < 15  # the crash comes at t = 12
    assert_close(sens.matrix[before], expected.iloc[:, 2:][before], 2e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sensFun(bacteria(), case["inputs"]["parms"], sensvar=BOTH, varscale=1, parscale=1)


def test_quirk_an_output_at_zero_is_told():
    def line(p):
        return {"x": [0.0, 1.0], "y": [p["a"] - 1.0, p["a"]]}

    with pytest.warns(UserWarning, match="'y' is 0 at 1 row .first at x = 0."):
        sens = sensFun(line, {"a": 1.0}, tiny=1e-8)
    assert sens.matrix.iloc[0, 0] == pytest.approx(1e20, rel=1e-6)
    assert sens.matrix.iloc[1, 0] == pytest.approx(1)


# --- how the derivatives are taken


def test_the_summary_holds_its_formulas():
    S = sensFun(decay, DECAY, varscale=1)
    m, f = S.matrix.to_numpy(), S.summary().frame
    np.testing.assert_allclose(f["L1"], np.abs(m).mean(axis=0))
    np.testing.assert_allclose(f["L2"], np.sqrt((m**2).mean(axis=0)))
    np.testing.assert_allclose(f["Mean"], m.mean(axis=0))
    assert f["N"].tolist() == [8, 8]
    assert S.ranking().index.tolist() == f["L2"].sort_values(ascending=False).index.tolist()


def test_differences_that_fit_the_solver_come_close_to_the_exact_ones():
    def user(p):  # default tolerances, no sensitivities: what a user of scipy would give
        return fme.ode({"Bact": 0.1, "Sub": 100.0}, np.arange(0, 26, 5.0), rates, p)

    def rates(t, y, p):
        uptake = p["gmax"] * y[1] / (y[1] + p["ks"]) * y[0]
        return np.array([p["eff"] * uptake - (p["dB"] + p["rB"]) * y[0], -uptake + p["dB"] * y[0]])

    sens = sensFun(user, dict(bacteria().parms), varscale=1)
    exact = sensFun(bacteria().replace(times=np.arange(0, 26, 5.0)), sensvar=BOTH, varscale=1)
    assert sens.method.startswith("differences (")
    assert_close(sens.matrix, exact.matrix, 2e-3)


def test_a_model_without_equations_says_that_it_takes_differences():
    def rates(t, y, p):
        return [-p["k"] * plain(y[0])]

    model = fme.OdeModel(rates, state={"A": 1.0}, times=[0, 1, 2], parms={"k": 0.5}, engine="scipy")
    sens = sensFun(model, varscale=1)
    assert sens.method.startswith("differences")
    np.testing.assert_allclose(sens.matrix["k"], -0.5 * np.arange(3) * np.exp(-0.5 * np.arange(3)), atol=1e-6)


def test_a_forward_difference_takes_one_run_per_parameter():
    calls = []

    def counted(p):
        calls.append(p)
        return decay(p)

    sensFun(counted, DECAY, tiny=1e-6)
    steps = [{k: v for k, v in p.items() if v != DECAY[k]} for p in calls]
    assert [s for s in steps if s] == [{"A0": 10.0 * (1 + 1e-6)}, {"k": 0.5 * (1 + 1e-6)}]


@pytest.mark.parametrize("returns", ["table", "row", "cost"])
def test_the_run_at_the_start_is_made_once(returns):
    calls = []

    def counted(p):
        calls.append(dict(p))
        table = decay(p)
        if returns == "cost":
            return fme.modCost(table, {"time": [0.0, 1.0], "A": [9.0, 6.5]})
        return table if returns == "table" else {"A": table["A"][-1]}

    sensFun(counted, DECAY, tiny=1e-6)
    assert len(calls) == 1 + len(DECAY)
    assert calls.count(DECAY) == 1


def test_positional_parameters_have_generated_names():
    sens = sensFun(lambda p: {"y": p[0] * p[1] ** 2}, [3.0, 2.0])
    assert list(sens.columns) == ["x", "var", "p1", "p2"]
    np.testing.assert_allclose(sens.matrix, [[1.0, 2.0]], rtol=1e-7)


def test_further_arguments_reach_the_function():
    sens = sensFun(
        lambda p, a, b: {"y": a * p["k"] + b}, {"k": 2.0}, args=(3.0,), kwargs={"b": 1.0}, varscale=1, parscale=1
    )
    assert sens.matrix.iloc[0, 0] == pytest.approx(3.0)


def test_runs_on_threads_give_the_same():
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        spread = sensFun(decay, DECAY, executor=pool)
    np.testing.assert_array_equal(spread.matrix, sensFun(decay, DECAY).matrix)


def test_what_travels_to_processes_is_the_cost_itself():
    import cloudpickle

    class Pool:
        """An executor that sends everything through pickle, as a process pool does."""

        def submit(self, function, *args):
            import concurrent.futures as cf

            work, given = cloudpickle.loads(cloudpickle.dumps((function, args)))
            done = cf.Future()
            done.set_result(work(*given))
            return done

    here, there = sensFun(hiv_cost(), tiny=1e-4), sensFun(hiv_cost(), tiny=1e-4, executor=Pool())
    np.testing.assert_allclose(there.matrix, here.matrix, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(sensFun(decay, DECAY, executor=Pool()).matrix, sensFun(decay, DECAY).matrix)


def test_a_run_that_fails_on_one_side_is_replaced_by_the_other():
    def fragile(p):
        if p["k"] > 1:
            raise RuntimeError("beyond")
        return {"y": p["k"] ** 2}

    assert sensFun(fragile, {"k": 1.0}).matrix.iloc[0, 0] == pytest.approx(2.0, rel=1e-3)
    assert sensFun(fragile, {"k": 1.0}, tiny=1e-6).matrix.iloc[0, 0] == pytest.approx(2.0, rel=1e-3)

    def point(p):
        if p["k"] != 1:
            raise RuntimeError("beside")
        return {"y": p["k"] ** 2}

    with pytest.raises(SimulationError, match="No derivative with respect to 'k'"):
        sensFun(point, {"k": 1.0}, tiny=1e-6)


@pytest.mark.parametrize("tiny", [None, 1e-6])
@pytest.mark.parametrize("at", [0.0, 1.0])
def test_nothing_is_run_outside_the_bounds(tiny, at):
    import lmfit

    seen = []

    def curve(p):
        seen.append(p["k"])
        return {"time": np.arange(3.0), "y": (p["k"] + 1) ** np.arange(1.0, 4.0)}

    exact = np.arange(1.0, 4.0) * (at + 1) ** np.arange(0.0, 3.0)
    given = lmfit.create_params(k={"value": at, "min": 0.0, "max": 1.0})
    for arguments in ({"parms": {"k": at}, "lower": 0, "upper": {"k": 1.0}}, {"parms": given}):
        sens = sensFun(curve, tiny=tiny, parscale=1.0, varscale=1.0, **arguments)
        np.testing.assert_allclose(sens.matrix["k"], exact, rtol=1e-4)
    assert min(seen) >= 0
    assert max(seen) <= 1


def test_a_transformed_cost_gives_derivatives_to_the_transformed_parameters():
    plain, logs = hiv_cost(), fme.transformed(hiv_cost(), "log")
    a, b = sensFun(plain, varscale=1), sensFun(logs, varscale=1, parscale=1)
    np.testing.assert_allclose(a.matrix, b.matrix, rtol=1e-6, atol=1e-8)  # p dy/dp = dy/d(log p)
    assert b.method == "exact"


def test_a_cost_with_a_transform_is_that_of_transformed_values():
    model = fme.OdeModel("d(A)/dt = -k * A\nA(0) = 10", times=[0, 1, 2], parms={"k": 0.5}, **TIGHT)
    cost = fme.SimulationCost(model, {"time": [1, 2], "A": [6.0, 4.0]}, transform="log")
    np.testing.assert_allclose(sensFun(cost, varscale=1, parscale=1).matrix["k"], [-1.0, -2.0], rtol=1e-7)


@pytest.mark.parametrize("transform", ["log", "log10"])
def test_sensitivities_of_logarithms_are_relative_to_the_values_themselves(transform):
    model = fme.OdeModel("d(A)/dt = -k * A\nA(0) = 10", times=[0, 2, 4.6], parms={"k": 0.5}, **TIGHT)
    data = {"time": [2, 4.6], "A": [4.0, 1.0]}  # the logarithm of the last one is nearly 0
    plain, logs = (fme.SimulationCost(model, data, transform=t) for t in (None, transform))
    np.testing.assert_allclose(sensFun(logs).matrix, sensFun(plain).matrix, rtol=1e-6)


class Likelihood:
    """A cost of one number with an expected information, as a filter gives it."""

    def __init__(self, information):
        self._information = np.asarray(information, dtype=float)
        self.parms = pd.Series({"a": 2.0, "b": 3.0})
        self.lower, self.upper = self.parms * 0 - np.inf, self.parms * 0 + np.inf
        self.theta0, self.parameter_names = self.parms.to_numpy(), ("a", "b")
        self.is_scalar, self.has_jacobian, self.retries, self.weights = True, False, 0, np.empty(0)

    def __call__(self, parms=None):
        return 0.0

    def bind(self, names=None, *, hold_engine=False):
        return self

    def minus2loglik(self, theta):
        return 0.0

    def score(self, theta, rough=False):
        return np.zeros(2)

    def information(self, theta, rough=False):
        return self._information


def test_a_likelihood_gives_rows_whose_products_are_its_expected_information():
    information = np.array([[4.0, 1.0], [1.0, 9.0]])
    sens = sensFun(Likelihood(information), parscale=1)
    np.testing.assert_allclose(sens.matrix.T.to_numpy() @ sens.matrix.to_numpy(), information)
    assert sens.method == "the cost's expected information"


def test_rows_that_a_likelihood_offers_are_taken():
    cost = Likelihood(np.eye(2))
    cost.sensitivity_rows = lambda theta: (("z", "y", "z"), [1.0, 1.0, 2.0], np.arange(6.0).reshape(3, 2))
    sens = sensFun(cost, parscale=1)
    assert sens["var"].tolist() == ["z", "z", "y"]
    assert sens.matrix.to_numpy().tolist() == [[0, 1], [4, 5], [2, 3]]


# --- the object


def test_it_prints_delegates_and_pickles():
    sens = sensFun(decay, DECAY, varscale=1)
    assert len(sens) == 8
    assert list(sens.columns) == ["x", "var", "A0", "k"]
    assert sens["var"].unique().tolist() == ["A", "B"]
    again = pickle.loads(pickle.dumps(sens))
    pd.testing.assert_frame_equal(again.frame, sens.frame)
    assert "differences" in repr(sens)
    assert "differences" in sens._repr_html_()
    assert repr(sens.summary()).splitlines()[0].split() == ["value", "scale", "L1", "L2", "Mean", "Min", "Max", "N"]
    assert "<table" in sens.summary()._repr_html_()


# --- bad input


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"senspar": "kk"}, ParameterError, "no parameter 'kk'. Did you mean 'k'"),
        ({"senspar": 2}, ParameterError, "positions go from 0 to 1"),
        ({"senspar": -1}, ParameterError, "positions go from 0 to 1"),
        ({"sensvar": "C"}, ArgumentError, "no variable 'C'"),
        ({"sensvar": 2}, ArgumentError, "positions go from 0 to 1"),
        ({"sensvar": ["A", "A"]}, ArgumentError, "more than once"),
        ({"sensvar": []}, ArgumentError, "empty"),
        ({"tiny": 0}, ArgumentError, "between 0 and 1"),
        ({"tiny": True}, ArgumentError, "between 0 and 1"),
        ({"parscale": [1, 2, 3]}, ParameterError, "3 values for 2 parameters"),
        ({"parscale": {"k": 1}}, ParameterError, "no entry for 'A0'"),
        ({"parscale": {"k": 1, "A": 1}}, ParameterError, "no parameter 'A'"),
        ({"varscale": {"A": 1}}, ArgumentError, "no entry for 'B'"),
        ({"varscale": {"A": 1, "b": 1}}, ArgumentError, "no variable 'b'. Did you mean 'B'"),
        ({"varscale": 0}, ArgumentError, "other than 0"),
        ({"varscale": "one"}, ArgumentError, "numbers"),
        ({"weighted": True}, ArgumentError, "needs a cost"),
        ({"map": "t"}, ArgumentError, "no such column"),
    ],
)
def test_what_cannot_be_is_told(arguments, error, words):
    with pytest.raises(error, match=words):
        sensFun(decay, DECAY, **arguments)


def test_an_output_that_is_not_finite_is_named():
    with pytest.raises(ArgumentError, match="'y' at x = 0 is not finite"):
        sensFun(lambda p: {"x": [0.0, 1.0], "y": [np.nan, p["a"]]}, {"a": 1.0})


def test_a_cost_of_one_number_without_information_is_refused():
    cost = Likelihood(np.eye(2))
    cost.score = cost.information = None
    with pytest.raises(ArgumentError, match="one number"):
        sensFun(cost)


def test_weighted_and_varscale_exclude_each_other():
    with pytest.raises(ArgumentError, match="leave `varscale` out"):
        sensFun(bacteria_cost(), weighted=True, varscale=1)


def test_unknown_parameters_of_a_model_are_told():
    with pytest.raises(ParameterError, match="Did you mean 'gmax'"):
        sensFun(bacteria(), {"gmx": 1.0})


def test_times_of_R_are_those_of_the_model():
    np.testing.assert_array_equal(bacteria().times, BACTERIA_TIMES)


class _Bare:
    """A cost from outside that gives bare residuals, and nothing of what they were made of."""

    parms = pd.Series({"a": 1.0, "b": 2.0})
    lower = pd.Series({"a": -np.inf, "b": -np.inf})
    upper = pd.Series({"a": np.inf, "b": np.inf})

    is_scalar = has_jacobian = False
    retries = 0
    names, x, group_names = ("u", "u", "v"), np.arange(3.0), ("u", "v")
    weights, groups, scales = np.array([1.0, 1.0, 2.0]), np.array([0, 0, 1]), np.ones(2)

    def __call__(self, parms=None):
        return self.bind(list(self.parms.index)).residuals(
            np.array([(parms or self.parms)[k] for k in self.parms.index])
        )

    def replace(self, **arguments):
        raise NotImplementedError

    def bind(self, names=None, **_):
        bound = _Bare()
        bound.parameter_names = tuple(names or self.parms.index)
        bound.theta0 = self.parms[list(bound.parameter_names)].to_numpy()
        bound.lower, bound.upper = np.full(len(bound.theta0), -np.inf), np.full(len(bound.theta0), np.inf)
        return bound

    def residuals(self, theta):
        a, b = theta
        return np.array([a, a * b, 2.0 * b])

    def minus2loglik(self, theta):
        return float(np.sum(self.residuals(theta) ** 2))


def test_a_cost_of_bare_residuals_has_them_as_outputs():
    frame = sensFun(_Bare(), {"a": 1.0, "b": 2.0}, parscale=1.0, varscale=1.0).frame
    assert frame["var"].tolist() == ["u", "u", "v"]
    np.testing.assert_allclose(frame[["a", "b"]], [[1, 0], [2, 1], [0, 1]], atol=1e-5)


# --- kept on disk


@pytest.mark.parametrize("tiny", [None, 1e-6])
def test_runs_for_differences_that_take_long_are_not_run_again(tmp_path, monkeypatch, tiny):
    monkeypatch.setattr(evaluations, "_QUICK", -1.0)
    monkeypatch.setattr(evaluations, "_SPEED", np.inf)
    monkeypatch.setattr(records, "_PAUSE", 0.0)
    calls, last = [], 0

    def slow(p):
        calls.append(1)
        if len(calls) == last:
            raise KeyboardInterrupt
        return {"x": [0.0, 1.0, 2.0], "y": [p["a"], p["a"] * np.exp(-p["k"]), p["a"] * np.exp(-2 * p["k"]) + p["c"]]}

    def sensitivities(folder):
        del calls[:]
        return sensFun(slow, {"a": 2.0, "k": 0.5, "c": 0.1}, tiny=tiny, checkpoint=folder)

    whole = sensitivities(None)
    n = len(calls)
    last = n - 1
    with pytest.raises(KeyboardInterrupt):
        sensitivities(tmp_path / "c")
    last = 0
    again = sensitivities(tmp_path / "c")
    pd.testing.assert_frame_equal(again.frame, whole.frame, check_exact=True)
    assert len(calls) == 3  # the first run, the one that was stopped, and the last
    with pytest.raises(ArgumentError, match="its values of the parameters is"):
        sensFun(slow, {"a": 2.5, "k": 0.5, "c": 0.1}, tiny=tiny, checkpoint=tmp_path / "c")
