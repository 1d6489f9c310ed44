"""A model of modules is a Model: costed, fitted, screened, sampled, pickled, changed, like any other."""

from __future__ import annotations

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.dmi import DiagnosticWarning, ModularModel, Module
from fmepy.errors import ArgumentError, DataError, ModelError, ParameterError, SimulationError
from tests.plain import plain

PREY = Module("prey", "d(N)/dt = r * N * (1 - N / K) - eaten\noutput N")
HUNT = Module("hunt", "eaten = a * N * P\nd(P)/dt = e * eaten - m * P\nP(0) = P0\noutput P, eaten")
DATA = {"N": 50.0, "r": 0.5, "K": 100.0, "a": 0.01, "e": 0.5, "m": 0.2, "P0": 10.0}
TIMES = np.arange(0, 20.5, 0.5)


@pytest.fixture(scope="module")
def model() -> ModularModel:
    return ModularModel([PREY, HUNT], DATA, times=TIMES, dt=0.25)


@pytest.fixture(scope="module")
def data(model) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    out = model()[["time", "N", "P"]].iloc[1::4]
    return out.assign(N=out["N"] + rng.normal(0, 1, len(out)), P=out["P"] + rng.normal(0, 0.3, len(out)))


def by_hand(steps=80, dt=0.25, **changes):
    """Return N, P, eaten at every step, by a plain loop."""
    p = {**DATA, **changes}
    N, P, rows = p["N"], p["P0"], []
    for _ in range(steps + 1):
        eaten = p["a"] * N * P
        rows.append((N, P, eaten))
        N, P = N + dt * (p["r"] * N * (1 - N / p["K"]) - eaten), P + dt * (p["e"] * eaten - p["m"] * P)
    return np.array(rows)


def test_a_run_is_that_of_a_plain_loop(model):
    out = model()
    assert list(out.columns) == ["time", "N", "P", "eaten"]
    np.testing.assert_allclose(out[["N", "P", "eaten"]], by_hand()[::2], rtol=1e-13)
    changed = model({"K": 200.0, "N": 20.0}, times=[0, 1.25, 20])
    np.testing.assert_allclose(changed[["N", "P", "eaten"]], by_hand(K=200.0, N=20.0)[[0, 5, 80]], rtol=1e-13)
    assert changed["time"].tolist() == [0, 1.25, 20]


def test_it_shows_what_a_model_shows(model):
    assert isinstance(model, fme.Model)
    assert model.parms.to_dict() == DATA
    assert model.states == ("N", "P")
    assert model.var_names == ("N", "P", "eaten")
    assert model.engine == "llvm"
    assert model.engine_note == ""
    assert repr(model) == "ModularModel of 2 modules (prey, hunt), 9 variables, 2 levels, 7 parameters; dt 0.25, euler"
    assert not len(model.diagnostics)
    assert model.variable_map.loc["N", ["prey", "hunt"]].tolist() == ["both", "exogenous"]
    assert model.processed == ("prey", "hunt")


def test_it_pickles_and_runs_as_before(model):
    again = pickle.loads(pickle.dumps(model))
    pd.testing.assert_frame_equal(again(), model())
    bound = pickle.loads(pickle.dumps(model.bind(["r"])))
    np.testing.assert_array_equal(bound.simulate(np.array([0.4])), model.bind(["r"]).simulate(np.array([0.4])))


def test_bound_it_has_the_names_asked_for_and_derivatives_by_differences(model):
    bound = model.bind(["K", "N"], times=[0, 10])
    assert bound.names == ("K", "N")
    assert bound.theta0.tolist() == [100, 50]
    Y, S = bound.sensitivities(bound.theta0)
    assert Y.shape == (2, 3)
    assert S.shape == (2, 3, 2)
    h = 1e-4
    slope = (by_hand(K=100 + h)[40] - by_hand(K=100 - h)[40]) / (2 * h)
    np.testing.assert_allclose(S[1, :, 0], slope, rtol=1e-6)
    np.testing.assert_allclose(S[0, :, 1], [1, 0, 0.1], rtol=1e-6)
    with pytest.raises(ParameterError, match="'K'"):
        model.bind(["KK"])


def test_it_is_fitted_and_screened(model, data):
    cost = fme.SimulationCost(model, data)
    fit = fme.modFit(cost, {"r": 0.3, "a": 0.02}, lower=0)
    assert fit.converged
    assert ((fit.par - pd.Series(DATA)[["r", "a"]]).abs() < 4 * fit.std_error).all()
    sens = fme.sensFun(cost, ["r", "K", "a"])
    assert len(sens) == 2 * len(data)
    assert fme.collin(sens, [0, 1, 2]).value > 1
    own = ((model(fit.par, times=data["time"])[["N", "P"]].to_numpy() - data[["N", "P"]].to_numpy()) ** 2).sum()
    assert fit.ssr == pytest.approx(own, rel=1e-10)


def test_it_is_sampled_with_the_same_numbers_however_many_workers(model, data):
    sets = fme.Latinhyper({"r": (0.4, 0.6), "K": (80, 120)}, 12, seed=1)
    one, two = (fme.sensRange(model, parInput=sets, num=12, seed=1, executor=n) for n in (None, 2))
    np.testing.assert_array_equal(one.values, two.values)
    np.testing.assert_allclose(one.values[0, 0], by_hand(**sets.iloc[one.pset[0]])[::2, 0], rtol=1e-12)
    with ThreadPoolExecutor(2) as pool:
        three = fme.sensRange(model, parInput=sets, num=12, seed=1, executor=pool)
    np.testing.assert_array_equal(one.values, three.values)
    chain = fme.modMCMC(fme.SimulationCost(model, data), ["r"], jump=0.01, niter=50, var0=1.0, seed=1)
    assert len(chain.pars) == 50
    what_if = fme.scenarios(model, pd.DataFrame({"scenario": ["as it is", "rich"], "K": [100.0, 200.0]}))
    rich = what_if.frame.query("scenario == 'rich'")
    np.testing.assert_allclose(rich["N"], by_hand(K=200.0)[::2, 0], rtol=1e-12)


def test_changed_copies(model):
    by_value = model.replace(parms={"r": 0.7})
    assert by_value.parms["r"] == 0.7
    assert model.parms["r"] == 0.5
    assert by_value.processed == ()
    calm = Module("hunt", "eaten = a * N * P / (1 + N / 100)\nd(P)/dt = e * eaten - m * P\nP(0) = P0\noutput P, eaten")
    other = by_value.replace(modules={"hunt": calm}, times=[0, 5])
    assert other.processed == ("hunt",)
    assert other.parms["r"] == 0.7  # what a copy was given stays
    assert list(other.variable_map.index) == list(model.variable_map.index)
    assert len(other()) == 2
    more = model.replace(modules={"extra": Module("extra", "total = N + P\noutput total")})
    assert list(more().columns)[-1] == "total"
    assert [m.name for m in more.replace(modules={"extra": None}).modules] == ["prey", "hunt"]
    richer = by_value.replace(data={**DATA, "K": 150.0})
    assert richer.parms[["r", "K"]].tolist() == [0.5, 150.0]
    assert model.replace(outputs=["eaten"]).var_names == ("eaten",)
    assert model.replace(dt=0.5)().loc[1, "N"] == pytest.approx(by_hand(1, 0.5)[1, 0], rel=1e-13)
    with pytest.raises(ModelError, match=r"no module 'hant' to take out.*'hunt'"):
        model.replace(modules={"hant": None})
    with pytest.raises(ModelError, match="names must agree"):
        model.replace(modules={"prey": calm})
    with pytest.raises(ArgumentError, match="no argument 'step'"):
        model.replace(step=1)


def test_a_copy_says_only_what_is_new():
    with pytest.warns(DiagnosticWarning, match="redundant.*'extra'"):
        model = ModularModel([PREY, HUNT], {**DATA, "extra": 1.0}, times=[0, 1], dt=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.replace(times=[0, 2], dt=2)().shape == (2, 4)
    assert model.diagnostics["kind"].tolist() == ["redundant"]
    assert "extra" not in model.parms


def test_missing_data_are_warned_of_and_refused_when_run():
    with pytest.warns(DiagnosticWarning, match="missing") as told:
        model = ModularModel([PREY, HUNT], {k: v for k, v in DATA.items() if k not in ("K", "N")}, times=[0, 1], dt=1)
    assert {w.message.variable for w in told} == {"N", "K"}
    with pytest.raises(ModelError, match=r"cannot run.*\n.*initial value.*\n.*'?K"):
        model()
    with pytest.raises(ModelError, match="cannot run"):
        fme.SimulationCost(model, {"time": [0.0, 1.0], "N": [1.0, 2.0]})
    with pytest.raises(ModelError, match="missing"):
        ModularModel([PREY, HUNT], {}, times=[0, 1], dt=1, strict=True)


def test_replaced_items_are_diagnosed():
    with pytest.warns(DiagnosticWarning, match="'K' stands in dict") as told:
        model = ModularModel([PREY, HUNT], [DATA, {"K": 120.0}], times=[0, 1], dt=1)
    assert told[0].message.kind == "replaced"
    assert model.parms["K"] == 120


def test_times_lie_on_the_grid():
    with pytest.raises(ModelError, match=r"`times`: 0.3 does not lie on the grid of dt=0.25 from 0; .* 0.25"):
        ModularModel([PREY, HUNT], DATA, times=[0, 0.3], dt=0.25)
    model = ModularModel([PREY, HUNT], DATA, times=[0.1 * k for k in range(0, 300, 7)], dt=0.1)  # rounded
    np.testing.assert_allclose(model()["N"], by_hand(300, 0.1)[0:300:7, 0], rtol=1e-12)
    with pytest.raises(ModelError, match=r"0.15 does not lie on the grid"):
        model(times=[0, 0.15])
    with pytest.raises(ModelError, match="before the model's start"):
        model(times=[-1, 0])
    late = ModularModel([PREY, HUNT], DATA, times=[1990, 1990 + 1 / 12, 1991], dt=1 / 12)
    np.testing.assert_allclose(late()["N"], by_hand(12, 1 / 12)[[0, 1, 12], 0], rtol=1e-12)
    for dt in (0, -1, np.nan, "x"):
        with pytest.raises(ModelError, match="`dt="):
            ModularModel([PREY, HUNT], DATA, times=[0, 1], dt=dt)


def test_series_feed_the_step_that_reads_them():
    slow = Module("slow", "y = 10 * u\nstep 2\noutput y")
    fast = Module("fast", "x = u\noutput x")
    u = ([0, 4], [0.0, 8.0])
    out = ModularModel([slow, fast], {"u": u}, times=range(5), dt=1)()
    assert out["x"].tolist() == [0, 2, 4, 6, 8]
    assert out["y"].tolist() == [0, 0, 40, 40, 80]
    stepped = {"u": fme.dmi.item([1, 5], times=[0, 2], interpolation="constant", extrapolate=True)}
    assert ModularModel([fast], stepped, times=range(5), dt=1)()["x"].tolist() == [1, 1, 5, 5, 5]
    with pytest.raises(DataError, match=r"'u' .*from 0 to 4.*time 5"):
        ModularModel([fast], {"u": u}, times=range(7), dt=1)()
    # only where it is read: a module of step 2 does not ask for time 5
    assert len(ModularModel([slow], {"u": u}, times=range(6), dt=1)()) == 6


def test_half_way_series_of_rk4():
    model = ModularModel([Module("m", "d(x)/dt = u\nx(0) = 0")], {"u": ([0, 1, 2], [0.0, 1.0, 0.0])}, times=[0, 2],
                         dt=1, method="rk4")  # fmt: skip
    assert model()["x"].tolist() == pytest.approx([0, 1], rel=1e-14)


def test_vectors_are_parameters_by_element_and_columns():
    text = "dims D[3], A[2,3], y[2]\ny = dot(A, D)\noutput y, D"
    model = ModularModel([Module("m", text.replace(", D\n", "\n").removesuffix(", D"))],
                         {"D": [1, 2, 3], "A": [[1, 0, 0], [0, 1, 1]]}, times=[0, 1], dt=1)  # fmt: skip
    assert list(model.parms.index) == ["D[0]", "D[1]", "D[2]", *(f"A[{i},{j}]" for i in range(2) for j in range(3))]
    assert model({"D[1]": 7.0, "A[0,2]": 2.0})[["y[0]", "y[1]"]].iloc[0].tolist() == [7, 10]
    one = model.replace(outputs=["y[1]"])
    assert one.var_names == ("y[1]",)
    assert one()["y[1]"].tolist() == [5, 5]
    with pytest.raises(ModelError, match=r"dimensions of 'D' differ: D\[2\] in the data base .*D\[3\] in module 'm'"):
        model.replace(data={"D": [1, 2], "A": [[1, 0, 0], [0, 1, 1]]})
    with pytest.raises(ModelError, match="dimensions of 'D' differ"):
        model.replace(data={"D": 1.0, "A": [[1, 0, 0], [0, 1, 1]]})


def test_what_a_module_keeps_to_itself_has_data_of_its_own():
    modules = [Module(name, f"local k\n{name}1 = k") for name in ("a", "b")]
    model = ModularModel(modules, {"a.k": 1.0, "b.k": 2.0}, times=[0, 1], dt=1)
    assert model()[["a1", "b1"]].iloc[0].tolist() == [1, 2]
    assert model({"b.k": 5.0})["b1"].tolist() == [5, 5]


def test_outputs_are_checked(model):
    with pytest.raises(ModelError, match=r"no module has a variable 'NN'.*'N'"):
        model.replace(outputs=["NN"])
    with pytest.raises(ModelError, match="'N' more than once"):
        model.replace(outputs=["N", "N"])
    with pytest.raises(ModelError, match="`outputs` is empty"):
        model.replace(outputs=[])
    assert model.replace(outputs=["P", "r"])()["r"].tolist() == [0.5] * len(TIMES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "heun"}, "`method='heun'`"),
        ({"order": "random"}, "`order='random'`"),
        ({"unsettled": "minimize"}, "Did you mean 'minimise'"),
        ({"tol": 0}, "`tol=0`"),
        ({"max_iterations": 0}, "`max_iterations=0`"),
        ({"strict": "yes"}, "`strict='yes'`"),
        ({"times": [1, 0]}, "must increase"),
        ({"modules": []}, "empty"),
        ({"modules": ["a = 1"]}, "not a dmi.Module"),
        ({"data": 3}, "Source 1 of the data base is int"),
    ],
)
def test_bad_arguments(model, change, said):
    with pytest.raises(ArgumentError, match=said):
        model.replace(**change)


def test_a_loop_is_told_of_in_the_table_and_derivatives_do_not_see_its_tolerance():
    modules = [Module("demand", "q = 10 - b * p"), Module("supply", "p = 0.5 * q + c\np(0) = guess\noutput p")]
    data = {"b": 0.4, "c": 1.0, "guess": 3.0}
    model = ModularModel(modules, data, times=[0, 1, 2], dt=1, max_iterations=40, outputs=["q", "p"])
    out = model()
    p = (5 + data["c"]) / (1 + 0.5 * data["b"])
    np.testing.assert_allclose(out["p"], p, rtol=1e-8)
    told = out.attrs["convergence"]
    assert list(told.columns) == ["time", "group", "executions", "method", "residual"]
    assert told["time"].tolist() == [0, 1, 2]
    assert told["method"].tolist() == ["repeated"] * 3
    assert set(told["group"][0].split(", ")) == {"q", "p"}
    assert told["executions"][0] > told["executions"][1] == 1
    assert (told["residual"] < 1e-8).all()
    assert len(pd.concat([out, model()])) == 6  # pandas compares what tables carry
    _, S = model.bind(["b", "c"]).sensitivities(np.array([0.4, 1.0]))
    np.testing.assert_allclose(S[1, 1], [-0.5 * p / (1 + 0.5 * 0.4), 1 / 1.2], rtol=1e-5)


def test_a_guess_of_a_loop_comes_from_the_data_base():
    modules = [Module("m", "x = 0.5 * (x + a / x)")]  # two solutions, +-sqrt(a)
    for guess, root in ((1.0, 3.0), (-1.0, -3.0)):
        model = ModularModel(modules, {"a": 9.0, "x": guess}, times=[0, 1], dt=1)
        assert model()["x"].tolist() == pytest.approx([root, root])
        assert "x" in model.parms


def test_a_run_that_explodes_is_a_failed_run():
    model = ModularModel([Module("m", "d(x)/dt = x ** 3\nx(0) = x0\ny = x")], {"x0": 2.0}, times=range(30), dt=1,
                         outputs=["y"])  # fmt: skip
    with pytest.raises(SimulationError, match="x became NaN or infinite") as caught:
        model()
    assert caught.value.parameters == {"x0": 2.0}
    assert 0 < caught.value.time < 30
    runs = fme.sensRange(model, parInput=pd.DataFrame({"x0": [0.0, 2.0]}), num=2)
    assert len(runs.failures) == 1


def test_a_series_where_an_initial_value_would_do_gives_that_at_the_start():
    with pytest.warns(DiagnosticWarning, match="only needs an initial value"):
        model = ModularModel([Module("m", "d(x)/dt = k")], {"x": ([0, 10], [0.0, 100.0]), "k": 1.0}, times=[5, 6], dt=1)
    assert model()["x"].tolist() == [50, 51]
    assert list(model.parms.index) == ["k"]


def test_serial_coupling(model):
    db = fme.dmi.Database(DATA).with_outputs(model(), ["N"])
    with pytest.warns(DiagnosticWarning):  # the rest of the data base is not used
        other = ModularModel([Module("reader", "half = N / 2")], db, times=TIMES, dt=0.25)
    np.testing.assert_allclose(other()["half"], by_hand()[::2, 0] / 2, rtol=1e-13)


def test_a_python_module_runs_among_the_others():
    @fme.dmi.module(reads=("N", "P"), assigns=("eaten",))
    def eating(N, P):
        return 0.01 * N * P if plain(N) > 0 else 0.0

    hunt = Module("hunt", "d(P)/dt = e * eaten - m * P\nP(0) = P0\noutput P, eaten")
    used = {k: v for k, v in DATA.items() if k != "a"}
    model = ModularModel([PREY, hunt, eating], used, times=TIMES, dt=0.25)
    np.testing.assert_allclose(model()[["N", "P", "eaten"]], by_hand()[::2], rtol=1e-13)
    assert "'eating'" in model.engine_note
    assert not model.bind().runs_on_threads


def test_costs_hold_its_equations_against_data_at_the_times_of_the_system(model, data):
    later = {"times": model.times + 1990.0, "dt": 0.5}
    system, seen = model.replace(**later), data.assign(time=data["time"] + 1990.0)
    steps, sd = system.compiled("difference"), {"N": 1.0, "P": 0.3}
    assert steps().columns[0] == "time"
    np.testing.assert_allclose(steps(), system()[steps().columns], rtol=1e-12)
    for copy in (pickle.loads(pickle.dumps(steps)), fme.transformed(steps, {"r": "log"})):
        same, own = (fme.SimulationCost(m, seen, measurement_noise=sd)() for m in (copy, steps))
        assert same.minus2loglik == pytest.approx(own.minus2loglik, rel=1e-12)
    early = model.replace(dt=0.5)
    for make in (
        lambda m, d: fme.FimlofCost(m, d, process_noise={"N": 1.0}, measurement_noise=sd),
        lambda m, d: fme.FimlofCost(m, d, process_noise={}, measurement_noise=sd, initial="diffuse"),
        lambda m, d: fme.PredictionErrorCost(m, d, gain={"N": {"N": 0.5}}, measurement_noise=sd),
        lambda m, d: fme.SimulationCost(m, d, measurement_noise=sd),
    ):
        there, here = make(system, seen), make(early, data)
        bound, same = there.bind(["r", "a"]), here.bind(["r", "a"])
        assert bound.minus2loglik(bound.theta0) == pytest.approx(same.minus2loglik(same.theta0), rel=1e-9)
    between = seen.assign(time=seen["time"] + 0.1)
    with pytest.raises(DataError, match=r"one step every 0.5.* nearest such time is"):
        fme.FimlofCost(system, between, process_noise={"N": 1.0}, measurement_noise=sd)


def test_a_filter_of_modules_has_noise_on_levels_and_on_variables(model, data):
    system, sd = model.replace(dt=0.5), {"N": 1.0, "P": 0.3}
    noisy = fme.FimlofCost(system, data, process_noise={"eaten": "q"}, measurement_noise=sd, parms={"q": 0.4})
    assert noisy.parms["eaten_noise"] == 0.0
    by_hand = Module("hunt", "eaten = a * N * P + shock\nd(P)/dt = e * eaten - m * P\nP(0) = P0")
    same = system.replace(modules={"hunt": by_hand}, data=[system.data, {"shock": 0.0}])
    other = fme.FimlofCost(same, data, process_noise={"shock": 0.4}, measurement_noise=sd)
    assert noisy() == pytest.approx(other(), rel=1e-12)
    table = pd.DataFrame([[0.16, 0.05], [0.05, 1.0]], index=["eaten", "N"], columns=["eaten", "N"])
    both = fme.FimlofCost(system, data, process_noise=table, measurement_noise=sd)
    assert both.process_noise.columns.tolist() == ["eaten_noise", "N"]
    assert both() != noisy()
    with pytest.raises((ArgumentError, ModelError), match="capacity"):
        fme.FimlofCost(system, data, process_noise={"capacity": 0.4}, measurement_noise=sd)
    text = "eaten = a * lag(N, 1, 50) * P\nd(P)/dt = e * eaten - m * P\nP(0) = P0"
    lagged = system.replace(modules={"hunt": Module("hunt", text)})
    for make in (
        lambda: fme.FimlofCost(lagged, data, process_noise={"N": 1.0}, measurement_noise=sd),
        lambda: fme.PredictionErrorCost(lagged, data, gain={"N": {"N": 0.5}}),
    ):
        with pytest.raises(ModelError, match="lag"):
            make()


def test_its_equations_give_the_same_numbers_and_can_be_filtered(model, data):
    fast = model.replace(dt=0.5)
    steps, course = fast.compiled("difference"), fast.compiled("ode")
    np.testing.assert_allclose(steps()[["N", "P", "eaten"]], fast()[["N", "P", "eaten"]], rtol=1e-12)
    assert set(steps.parms.index) >= {"r", "K", "a", "e", "m"}
    exact = fme.SimulationCost(steps, data).bind(["r", "a"])
    by_runs = fme.SimulationCost(fast, data).bind(["r", "a"])
    np.testing.assert_allclose(by_runs.jacobian(by_runs.theta0), exact.jacobian(exact.theta0), rtol=1e-5, atol=1e-6)
    fine = fast.replace(dt=0.5 / 64, method="rk4")
    np.testing.assert_allclose(course()[["N", "P"]], fine()[["N", "P"]], rtol=1e-4)
    with pytest.raises(ArgumentError, match="`kind='odes'`"):
        model.compiled("odes")


@pytest.mark.slow
def test_its_equations_can_be_filtered(model, data):
    """Which modules themselves cannot; without process noise, from a known start, it is simulation."""
    sd = {"N": 1.0, "P": 0.3}
    flt = fme.FimlofCost(model.replace(dt=0.5), data, process_noise={"N": 1e-9}, measurement_noise=sd)
    own = fme.SimulationCost(model.replace(dt=0.5), data, measurement_noise=sd)
    assert flt() == pytest.approx(own().minus2loglik, rel=1e-8)


def test_series_of_its_equations_are_those_of_the_data_base():
    module = Module("m", "d(x)/dt = u + D[1]\nx(0) = 0\ndims D[2]\nD[0] = 1\noutput x")
    data = {"u": ([0, 4], [0.0, 8.0]), "D[1]": ([0, 4], [1.0, 1.0])}
    model = ModularModel([module], data, times=range(5), dt=1)
    assert model.compiled("difference")()["x"].tolist() == model()["x"].tolist()
    with pytest.raises(DataError, match=r"'u'.*from 0 to 4.*time 5"):
        model.replace(times=range(6)).compiled("difference")


def test_costs_that_need_equations_refuse_it_by_name(model, data):
    hint = r'The equations of its modules are one: model.compiled\("difference"\)'
    with pytest.raises((ArgumentError, ModelError), match=hint):
        fme.fit_boundary(model, data, ["r"], segments=3)
