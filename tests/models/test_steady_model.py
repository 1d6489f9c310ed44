"""SteadyModel: a model like any other, whose rows are a steady state; its sensitivities; costs, fits, chains."""

import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, ModelError, NoSteadyStateError, ParameterError
from tests.plain import plain

FOLDER = Path(__file__).parent.parent / "reference" / "fme"
CASES = {c["id"]: c for c in json.loads((FOLDER / "vignettes.json").read_text(encoding="utf-8"))["cases"]}
DATA = pd.read_csv(FOLDER / "data" / "sediment_o2.csv").rename(columns={"x": "depth"})
GRID = fme.Grid1D(np.linspace(0, 5, 101))
CHEMOSTAT = "d(S)/dt = D*(Sin - S) - mu*S/(K + S)*B/Y\nd(B)/dt = (mu*S/(K + S) - D)*B"
PARMS = dict(D=0.5, Sin=10.0, mu=1.0, K=2.0, Y=0.5)


def chemostat(**words):
    return fme.SteadyModel(CHEMOSTAT, state={"S": 1, "B": 3}, parms=PARMS, positive=True, **words)


def reactor(t, S, B, *, D=0.5, Sin=10.0, mu=1.0, K=2.0, Y=0.5):
    growth = mu * S / (K + S)
    return (D * (Sin - S) - growth * B / Y, (growth - D) * B), {"growth": growth}


def reactor_of_arrays(t, y, p):
    growth = p["mu"] * y[0] / (p["K"] + y[0])
    out = [p["D"] * (p["Sin"] - y[0]) - growth * y[1] / p["Y"], (growth - p["D"]) * y[1]]
    return np.array([plain(v) for v in out])  # float: it cannot be traced


def at_rest(D, Sin, mu, K, Y):
    S = K * D / (mu - D)
    return np.array([S, Y * (Sin - S)])


def sediment(t, O2, *, upO2=360.0, cons=80.0, ks=1.0, D=1.0):
    flow = fme.transport_1d(O2, GRID, D=D, up=upO2)
    return flow.rate - cons * O2 / (O2 + ks), {"UpFlux": flow.flux[0]}


def profile(**words):
    return fme.SteadyModel(sediment, state={"O2": 100.0}, grid=GRID, positive=True, **words)


def sediment_cost():
    return fme.SimulationCost(profile(), DATA, x="depth") + fme.SimulationCost(profile(), {"UpFlux": 170.0}, x=None)


def differences(model, names, h=1e-4):
    """Return the derivatives by differences of searches, of fourth order."""
    bound = model.replace(start="given", rtol=1e-13, atol=1e-13).bind(names)
    out = []
    for j, size in enumerate(bound.theta0):
        e = np.eye(len(names))[j] * h * size
        Y = [bound.simulate(bound.theta0 + k * e) for k in (-2, -1, 1, 2)]
        out.append((Y[0] - 8 * Y[1] + 8 * Y[2] - Y[3]) / (12 * h * size))
    return np.stack(out, axis=-1)


# --- one row


def test_a_steady_state_is_a_row():
    model = chemostat(outputs={"total": "S + B/Y"})
    table = model({"D": 0.4})
    assert table.columns.tolist() == ["time", "S", "B", "total"]
    np.testing.assert_allclose(table[["S", "B"]].iloc[0], at_rest(**{**PARMS, "D": 0.4}), rtol=1e-9)
    assert table["total"].iloc[0] == pytest.approx(10.0)
    assert isinstance(model, fme.Model)
    assert model.engine == "newton"


@pytest.mark.parametrize("rhs", [CHEMOSTAT, reactor, reactor_of_arrays], ids=["text", "named", "arrays"])
def test_sensitivities_are_those_of_the_closed_form(rhs):
    model = fme.SteadyModel(rhs, state={"S": 1, "B": 3}, parms=PARMS, positive=True)
    bound = model.bind()
    _, S = bound.sensitivities(bound.theta0)
    h = 1e-5
    for j, name in enumerate(model.parms.index):
        up, down = ({**PARMS, name: PARMS[name] * (1 + k * h)} for k in (1, -1))
        expected = (at_rest(**up) - at_rest(**down)) / (2 * h * PARMS[name])
        np.testing.assert_allclose(S[0, :2, j], expected, rtol=1e-7, atol=1e-8)


def test_outputs_have_sensitivities_too():
    for rhs in (reactor, reactor_of_arrays):
        model = fme.SteadyModel(rhs, state={"S": 1, "B": 3}, parms=PARMS, outputs={"product": "S*B*mu"})
        names = ["D", "mu"]
        Y, S = model.bind(names).sensitivities(np.array([0.5, 1.0]))
        np.testing.assert_allclose(S, differences(model, names), rtol=1e-6, atol=1e-9)
        assert Y.shape == (1, len(model.var_names))


def test_parameters_are_held_replaced_and_checked():
    model = chemostat()
    assert model.replace(parms={"D": 0.2}).parms["D"] == 0.2
    assert model.replace(parms={"D": 0.2}).equations is model.equations
    np.testing.assert_allclose(model.bind(["Sin"]).simulate(np.array([20.0]))[0], at_rest(**{**PARMS, "Sin": 20.0}))
    with pytest.raises(ParameterError, match="Sin"):
        model({"Sinn": 2.0})
    with pytest.raises(ArgumentError, match="no argument 'times'"):
        model.replace(times=[1])
    with pytest.raises(ModelError, match="x=None"):
        model({"D": 0.2}, times=[0, 1])


def test_a_steady_chemostat_is_fitted_to_several_runs():
    dilution = np.array([0.2, 0.4, 0.6])
    readings = np.array([at_rest(**{**PARMS, "D": d}) for d in dilution])
    data = pd.DataFrame({"run": ["a", "b", "c"], "S": readings[:, 0], "B": readings[:, 1]})
    conditions = pd.DataFrame({"D": dilution}, index=["a", "b", "c"])
    cost = fme.SimulationCost(chemostat(), data, x=None, entity="run", conditions=conditions)
    fit = fme.modFit(cost, {"mu": 1.4, "K": 1.0, "Y": 0.3}, lower=0)
    np.testing.assert_allclose(fit.par, [1.0, 2.0, 0.5], rtol=1e-5)


def test_washout_is_found_from_the_other_branch():
    out = chemostat()({"D": 1.2})
    np.testing.assert_allclose(out[["S", "B"]].iloc[0], [10, 0], atol=1e-8)


# --- profiles


def test_a_profile_is_a_table_by_depth():
    table = profile()()
    assert table.columns.tolist() == ["x", "O2", "UpFlux"]
    np.testing.assert_array_equal(table["x"], GRID.mid)
    assert table["UpFlux"].nunique() == 1
    between = profile()(times=[0.05, 0.1, 1.3])
    assert between["O2"].iloc[0] == pytest.approx(table["O2"].iloc[:2].mean())


def test_sensitivities_of_a_profile_are_those_of_searches():
    model = profile(outputs={"share": "O2/upO2"})
    names = ["upO2", "cons", "ks", "D"]
    S = model.bind(names).sensitivities(model.parms.to_numpy())[1]
    expected = differences(model, names)
    scale = np.abs(expected).max(axis=0)
    np.testing.assert_allclose(S / scale, expected / scale, atol=2e-7)


def test_the_sensitivities_of_the_vignette():
    expected = CASES["steady_sens"]["outputs"]
    found = fme.sensFun(profile(), sensvar="O2")
    summary, of_r = found.summary().frame.loc[["upO2", "cons", "ks", "D"]], expected["summary"]["data"]
    for column in ("L1", "L2", "Mean", "Min", "Max"):
        np.testing.assert_allclose(summary[column], of_r[column], rtol=1e-3)
    pairs = fme.collin(found).frame["collinearity"].to_numpy()[:4]
    np.testing.assert_allclose(pairs, expected["collin"]["data"]["collinearity"][:4], rtol=1e-3)


def test_the_cost_and_the_fit_of_the_vignette():
    expected = CASES["steady_objective"]["outputs"]
    cost = sediment_cost()
    at_start = cost()
    assert at_start.model == pytest.approx(expected["cost_at_start"]["model"], rel=1e-6)
    np.testing.assert_allclose(sorted(at_start.var["SSR"]), sorted(expected["cost_at_start"]["var"]["data"]["SSR"]),
                               rtol=1e-6)  # fmt: skip
    fit = fme.modFit(cost, dict(upO2=360, cons=80, ks=1), lower=0)
    assert fit.ssr == pytest.approx(expected["fit"]["ssr"], rel=1e-7)
    for name, value in expected["fit"]["par"].items():
        assert fit.par[name] == pytest.approx(value, rel=2e-4)
        error = np.sqrt(fit.cov_scaled.loc[name, name])
        assert error == pytest.approx(expected["fit"]["std_error"][name], rel=2e-3)


def test_the_river_of_the_manual_is_fitted():
    case = {c["id"]: c for c in json.loads((FOLDER / "ode.json").read_text(encoding="utf-8"))["cases"]}["bodo2_fit"]
    fixed = {k: v for k, v in case["inputs"]["parms"].items() if k not in ("r", "p", "ks")}

    def river(t, BOD, O2, *, r=0.5, p=0.5, ks=1.0):
        rate = r * BOD * O2 / (O2 + ks)
        carried = [
            -fixed["v"] * np.diff(np.r_[top, C]) / 100 for C, top in ((BOD, fixed["BOD_0"]), (O2, fixed["O2_0"]))
        ]
        return carried[0] - rate, carried[1] - rate + p * (fixed["O2sat"] - O2)

    model = fme.SteadyModel(river, state={"BOD": 1.0, "O2": 1.0}, grid=fme.Grid1D(np.arange(0, 10001, 100)),
                            positive=True)  # fmt: skip
    cost = fme.SimulationCost(model, case["inputs"]["obs"]["data"], x="dist")
    expected = case["outputs"]
    pairs = fme.collin(fme.sensFun(cost, case["inputs"]["p"], varscale=1)).frame["collinearity"]
    np.testing.assert_allclose(pairs, expected["collin"]["data"]["collinearity"], rtol=1e-4)
    fit = fme.modFit(cost, case["inputs"]["p"], lower=0)
    assert fit.ssr == pytest.approx(expected["port"]["ssr"], rel=1e-8)
    for name, value in expected["port"]["par"].items():
        assert fit.par[name] == pytest.approx(value, rel=1e-5)
        assert np.sqrt(fit.cov_scaled.loc[name, name]) == pytest.approx(expected["port"]["std_error"][name], rel=1e-4)


# --- the start: results depend on parameters alone


def test_results_do_not_depend_on_the_order_of_runs():
    Theta = np.random.default_rng(1).uniform(0.5, 2, (6, 4)) * profile().parms.to_numpy()
    forth, back, alone = profile().bind(), profile().bind(), profile()
    first = [forth.simulate(theta) for theta in Theta]
    second = [back.simulate(theta) for theta in Theta[::-1]][::-1]
    third = [alone.bind().simulate(theta) for theta in Theta]
    for a, b, c in zip(first, second, third, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    given = profile(start="given").bind()
    np.testing.assert_allclose([given.simulate(theta) for theta in Theta], first, rtol=1e-7, atol=1e-9)


def test_workers_change_no_digit():
    def run(executor):
        box = pd.DataFrame({"min": [60.0, 0.5], "max": [100.0, 2.0]}, index=["cons", "ks"])
        found = fme.sensRange(profile(), parRange=box, num=8, seed=3, executor=executor)
        assert found.frame.shape[0] == 8
        return found.frame

    pd.testing.assert_frame_equal(run(None), run(2), check_exact=True)


def test_a_chain_of_profiles_repeats():
    cost = sediment_cost()
    words = dict(jump=[5.0, 2.0, 0.2], lower=0, niter=40, var0=18.0, seed=2)
    start = dict(upO2=293.0, cons=50.0, ks=1.3)
    chain = fme.modMCMC(cost, start, **words)
    pd.testing.assert_frame_equal(chain.pars, fme.modMCMC(cost, start, **words).pars, check_exact=True)
    assert chain.naccepted.sum() > 2
    crl = fme.modCRL(chemostat(), parRange={"D": (0.2, 0.6)}, num=5, seed=1)
    np.testing.assert_allclose(crl.frame["B"], [at_rest(**{**PARMS, "D": d})[1] for d in crl.frame["D"]], rtol=1e-7)


def test_a_bound_model_travels():
    bound = profile().bind(["cons"])
    theta = np.array([60.0])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(bound)).simulate(theta), bound.simulate(theta))


def test_tighter_tolerances_agree():
    bound = profile().bind(["cons"])
    theta = np.array([60.0])
    np.testing.assert_allclose(bound.tightened().simulate(theta), bound.simulate(theta), rtol=1e-7, atol=1e-10)


# --- the Jacobian is checked where nothing else shows that it misses something


def test_sensitivities_see_what_the_structure_does_not():
    n = 40
    grid = fme.Grid1D(np.linspace(0, 1, n + 1))

    def rates(t, C, *, k=0.0, deep=0.0):  # at the model's own parameters no cell knows any other but its neighbours
        far = np.where(deep > 0.5, np.sum(np.nan_to_num(C)) / n, 0.0) if deep > 0.5 else 0.0
        return fme.transport_1d(C, grid, D=0.1, up=1.0).rate - (1 + k) * C + 0.3 * far

    model = fme.SteadyModel(rates, state={"C": 0.5}, grid=grid)
    bound = model.bind(["k", "deep"])
    S = bound.sensitivities(np.array([0.1, 1.0]))[1]
    h = 1e-3
    at = [model.replace(parms={"deep": 1.0}, rtol=1e-12).bind(["k"]).simulate(np.array([0.1 + s])) for s in (h, -h)]
    np.testing.assert_allclose(S[:, 0, 0], (at[0] - at[1])[:, 0] / (2 * h), rtol=1e-4)


# --- bad input


@pytest.mark.parametrize(
    ("make", "told", "kind"),
    [
        (lambda: fme.SteadyModel(sediment, state={"O2": 1.0}, grid=5), "`grid` must be a Grid1D", ModelError),
        (lambda: fme.SteadyModel("d(O2)/dt = -O2", state={"O2": 1.0}, grid=GRID), "With a grid, a model is a function",
         ModelError),
        (lambda: fme.SteadyModel(sediment, state=[1.0], grid=GRID), "must name its species", ModelError),
        (lambda: fme.SteadyModel(sediment, state={"O2": np.ones(7)}, grid=GRID), "one number, or 100", ModelError),
        (lambda: fme.SteadyModel(sediment, state={"O2": -1.0}, grid=GRID, positive=True), "begins at -1", ModelError),
        (lambda: fme.SteadyModel(lambda t, O2: O2[:-1], state={"O2": 1.0}, grid=GRID), "100 numbers a species",
         ModelError),
        (lambda: fme.SteadyModel(lambda t, O2: (-O2, {"flux": np.ones(101)}), state={"O2": 1.0}, grid=GRID),
         "one number, or 100, one a cell", ModelError),
        (lambda: fme.SteadyModel(sediment, state={"O2": 1.0}, grid=GRID, start="warm"), "`start='warm'`",
         ArgumentError),
        (lambda: fme.SteadyModel(sediment, state={"oxygen": 1.0}, grid=GRID), "'O2'", ModelError),
        (lambda: fme.SteadyModel("d(A)/dt = -A + B\nd(B)/dt = A - B", state={"A": 1, "B": 0})(), "singular",
         NoSteadyStateError),
        (lambda: fme.SteadyModel("d(A)/dt = k - A", state={"A": 1}, parms={"k": 1.0}, positive=True)({"k": -1.0}),
         "without negative values.*'A'", NoSteadyStateError),
    ],
)  # fmt: skip
def test_bad_input_is_told(make, told, kind):
    with pytest.raises(kind, match=told):
        make()


def test_a_failed_run_carries_its_parameters():
    with pytest.raises(NoSteadyStateError, match="k=-1") as caught:
        fme.SteadyModel("d(A)/dt = k - A", state={"A": 1}, parms={"k": 1.0}, positive=True)({"k": -1.0})
    assert caught.value.parameters == {"k": -1.0}
    assert not caught.value.last.converged


def test_data_with_times_of_a_steady_state_are_told_of_x():
    model = fme.SteadyModel("d(S)/dt = a - S", state={"S": 1.0}, parms={"a": 2.0})
    with pytest.raises(DataError, match="one row and no time: x=None compares it"):
        fme.SimulationCost(model, {"time": [1, 2], "S": [2, 2.1]})
