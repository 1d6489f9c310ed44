"""Profiles in time: `OdeModel(grid=)` beside analytic solutions, the same model on a plain vector, and its errors."""

from __future__ import annotations

import cloudpickle
import numpy as np
import pandas as pd
import pytest
from scipy.special import erfc

import fmepy as fme
from fmepy.errors import ArgumentError, FmepyError, ModelError, ParameterError, SimulationError

GRID = fme.Grid1D(np.linspace(0, 10, 51))
N = len(GRID)


def lake(t, O2, OM, *, D=1.0, k=0.05, sink=0.1, ks=2.0, surface=300.0):
    carried = fme.transport_1d(O2, GRID, D=D, up=surface)
    sinking = fme.transport_1d(OM, GRID, v=sink, flux_up=1.0)
    decay = k * OM * O2 / (O2 + ks)
    return carried.rate - decay, sinking.rate - decay, {"into": carried.flux[0], "decay": decay}


def flat(t, y, p):
    O2, OM = y[:N], y[N:]
    a, b, extra = lake(t, O2, OM, **{k: p[k] for k in ("D", "k", "sink", "ks", "surface")})
    return np.concatenate([a, b]), {"into": extra["into"]}


START = {"O2": 300.0, "OM": 0.0}
TIMES = np.arange(0, 101, 10)


def column(**words):
    return fme.OdeModel(lake, **{"state": START, "grid": GRID, "times": TIMES, **words})


def test_a_table_has_a_row_a_time_and_cell_and_a_wide_one_a_row_a_time():
    model = column()
    table, wide = model(), model(wide=True)
    assert list(table) == ["time", "x", "O2", "OM", "decay"]
    assert table["time"].tolist() == np.repeat(TIMES, N).tolist()
    assert table["x"].tolist() == np.tile(GRID.mid, len(TIMES)).tolist()
    assert wide["into"].shape == (len(TIMES),)
    for name in ("O2", "OM", "decay"):
        cells = wide[[f"{name}[{i}]" for i in range(1, N + 1)]]
        assert np.array_equal(table[name].to_numpy().reshape(len(TIMES), N), cells)
    assert np.allclose(table["decay"], 0.05 * table["OM"] * table["O2"] / (table["O2"] + 2))
    assert repr(model).startswith("OdeModel of 2 profiles (O2, OM) in 50 cells, 5 parameters; engine compiled")


def test_it_is_the_model_of_a_plain_vector():
    parms = dict(D=1.0, k=0.05, sink=0.1, ks=2.0, surface=300.0)
    y0 = [300.0] * N + [0.0] * N
    tight = dict(times=TIMES, rtol=1e-9, atol=1e-9)
    plain, ours = fme.OdeModel(flat, state=y0, parms=parms, **tight), column(rtol=1e-9, atol=1e-9)
    (Y, S), (Y2, S2) = (m.bind().sensitivities(m.parms.to_numpy()) for m in (plain, ours))
    assert np.allclose(Y2[:, : 2 * N + 1], Y, rtol=1e-7, atol=1e-8)
    order = [list(ours.parms.index).index(k) for k in plain.parms.index]
    assert np.allclose(S2[:, : 2 * N + 1][:, :, order], S, rtol=1e-6, atol=1e-6 * np.abs(S).max())


def test_sensitivities_are_exact_also_to_a_parameter_of_the_start():
    model = column(state={"O2": "top * exp(-x / L)", "OM": 1.0}, parms={"top": 200.0, "L": 5.0}, rtol=1e-9, atol=1e-9)
    first = model().iloc[:N]
    assert np.allclose(first["O2"], 200 * np.exp(-GRID.mid / 5))
    bound = model.bind(["top", "L", "D"])
    assert bound.exact
    S = bound.sensitivities(bound.theta0)[1]
    h = 1e-4 * bound.theta0
    for j in range(3):
        e = np.eye(3)[j] * h
        slope = (bound.simulate(bound.theta0 + e) - bound.simulate(bound.theta0 - e)) / (2 * h[j])
        assert np.allclose(S[:, :, j], slope, rtol=1e-4, atol=1e-4 * np.abs(slope).max())


def test_front_of_ogata_and_banks():
    """C/C0 = (erfc((x - vt) / 2 sqrt(Dt)) + exp(vx/D) erfc((x + vt) / 2 sqrt(Dt))) / 2, with C0 at x = 0."""
    grid = fme.Grid1D(np.linspace(0, 40, 401))

    def river(t, C, *, D=0.5, v=1.0):
        return fme.transport_1d(C, grid, D=D, v=v, up=1.0).rate

    table = fme.OdeModel(river, state={"C": 0.0}, grid=grid, times=[0, 5, 15])()
    for t in (5, 15):
        found, spread = table[table["time"] == t], 2 * np.sqrt(0.5 * t)
        x = found["x"].to_numpy()
        known = (erfc((x - t) / spread) + np.exp(x / 0.5) * erfc((x + t) / spread)) / 2
        near = x < 30
        assert np.abs(found["C"].to_numpy() - known)[near].max() < 2e-3


def test_a_front_of_fisher_travels_at_its_speed():
    """Of u_t = D u_xx + r u (1 - u) one that falls off as exp(-a x) has c = a D + r / a, where a <= sqrt(r / D)."""
    grid = fme.Grid1D(np.linspace(0, 120, 1201))

    def spread(t, u, *, D=1.0, r=1.0):
        return fme.transport_1d(u, grid, D=D, up=1.0).rate + r * u * (1 - u)

    model = fme.OdeModel(spread, state={"u": "1 / (1 + exp(0.5 * (x - 20)))"}, grid=grid, times=[0, 10, 20, 30])
    table = model()
    at = [np.interp(-0.5, -rows["u"].to_numpy(), rows["x"].to_numpy()) for _, rows in table.groupby("time")]
    assert np.diff(at)[1:] / 10 == pytest.approx([2.5, 2.5], rel=5e-3)


def test_steady_models_take_the_function_and_their_table_is_a_start():
    tight = dict(rtol=1e-9, atol=1e-9)
    rest = fme.SteadyModel(lake, state={"O2": 200.0, "OM": 5.0}, grid=GRID, positive=True, **tight)
    table = rest()
    model = column(state=table, **tight)
    assert model.on_grid.species == ("O2", "OM")
    moved = model()
    for name in ("O2", "OM"):
        profiles = moved[name].to_numpy().reshape(-1, N)
        assert np.allclose(profiles, table[name].to_numpy(), rtol=1e-5, atol=1e-6)


def before(t, O2, OM, *, D=1.0, k=0.05, sink=0.1, ks=2.0, top0=250.0, temp=1.0):
    return lake(t, O2, OM, D=D, k=k * temp, sink=sink, ks=ks, surface=top0)[:2]


def test_a_run_starts_from_the_steady_state_at_its_own_parameters_with_its_slopes():
    tight = dict(rtol=1e-10, atol=1e-10)
    rest = fme.SteadyModel(before, state={"O2": 200.0, "OM": 5.0}, grid=GRID, positive=True, **tight)

    def warmer(t, O2, OM, temp, *, D=1.0, k=0.05, sink=0.1, ks=2.0, surface=300.0):
        return lake(t, O2, OM, D=D, k=k * temp, sink=sink, ks=ks, surface=surface)

    forcing = {"temp": ([0, 100], [1.0, 3.0])}
    words = dict(grid=GRID, times=TIMES, forcings=forcing, **tight)
    model = fme.OdeModel(warmer, state=rest, **words)
    assert list(model.parms.index) == ["D", "k", "sink", "ks", "surface", "top0"]
    names = ["top0", "k", "sink"]
    bound = model.bind(names)
    assert bound.exact
    S = bound.sensitivities(bound.theta0)[1]
    numbers = fme.OdeModel(warmer, state=rest(), **words)
    assert np.allclose(model(wide=True), numbers(wide=True), rtol=1e-7, atol=1e-7)
    for j, name in enumerate(names):  # runs of starts that are numbers, the steady states beside
        h, sides = 1e-4 * bound.theta0[j], []
        for value in bound.theta0[j] + np.array([h, -h]):
            side = numbers.replace(state=rest({name: value}), parms={} if name == "top0" else {name: value})
            sides.append(side(wide=True).to_numpy()[:, 1:])
        slope = (sides[0] - sides[1]) / (2 * h)
        assert np.allclose(S[:, :, j], slope, rtol=1e-4, atol=1e-5 * np.abs(slope).max())
    assert np.abs(S[0, 0, 0]) > 0.5  # at the surface of the start
    copy = cloudpickle.loads(cloudpickle.dumps(model.replace(parms={"k": 0.06, "top0": 200.0})))
    first = copy().iloc[: len(GRID)]
    assert np.allclose(first["O2"], rest({"k": 0.06, "top0": 200.0})["O2"], rtol=1e-7)


def test_some_profiles_start_at_rest_and_others_from_numbers_and_expressions():
    tight = dict(rtol=1e-10, atol=1e-10)
    rest = fme.SteadyModel(before, state={"O2": 200.0, "OM": 5.0}, grid=GRID, positive=True, **tight)
    model = column(state={"O2": "surface / 2 + x", "OM": rest}, parms={"top0": 250.0}, **tight)
    assert np.allclose(model().iloc[:N]["O2"], 150.0 + GRID.mid)
    names = ["top0", "k", "surface"]
    S = (b := model.bind(names)).sensitivities(b.theta0)[1]
    for j, name in enumerate(names):
        h, sides = 1e-4 * b.theta0[j], []
        for value in b.theta0[j] + np.array([h, -h]):
            sides.append(model({name: value}, wide=True).to_numpy()[:, 1 : 2 * N + 1])
        slope = (sides[0] - sides[1]) / (2 * h)
        assert np.allclose(S[:, : 2 * N, j], slope, rtol=1e-3, atol=2e-4 * np.abs(slope).max())
    whole = column(state=rest, **tight)
    again = whole.replace(state={"O2": "surface / 2 + x"})
    assert np.allclose(again(wide=True), model(wide=True))
    assert np.allclose(again.replace(state=rest)(wide=True), whole(wide=True))
    with pytest.raises(ModelError, match=r"'O2\[1\]' is one cell of 'O2'.*with 50 numbers"):
        whole.replace(state={"O2[1]": 1.0})
    other = fme.SteadyModel(before, state={"O2": 200.0, "OM": 5.0}, grid=GRID, positive=True)
    with pytest.raises(ModelError, match="two SteadyModels"):
        whole.replace(state={"O2": other})
    with pytest.raises(ParameterError, match="Did you mean 'OM'"):
        column(state={"O2": 1.0, "OM": 1.0, "Om": rest})
    with pytest.raises(ModelError, match="`state` names 'Fe', which the function does not take"):
        column(state=START | {"Fe": 1.0})


def test_a_start_at_rest_has_the_parameters_of_the_run():
    rest = fme.SteadyModel(before, state={"O2": 200.0, "OM": 5.0}, grid=GRID, positive=True, parms={"k": 0.1})
    with pytest.raises(ModelError, match=r"'k' is 0.1 in the SteadyModel and 0.05 in the run.*state=steady\(\)"):
        column(state=rest)
    other = fme.SteadyModel(before, state={"O2": 200.0, "OM": 5.0}, grid=fme.Grid1D(2 * GRID.edges))
    with pytest.raises(ModelError, match="not the cells of the grid"):
        column(state=other)
    plain = column(state=rest, parms={"k": 0.1})
    with pytest.raises(ModelError, match="starts from a steady state"):
        plain.definition.check_plain("FimlofCost")
    with pytest.raises(fme.errors.SimulationError, match="`D` must not be negative"):
        plain({"D": -1.0})


def test_forcings_and_one_species_and_a_function_of_an_array():
    def one(t, C, temp, *, k=0.1):
        return fme.transport_1d(C, GRID, D=1.0).rate - k * temp * C

    forcing = {"temp": ([0, 100], [1.0, 3.0])}
    model = fme.OdeModel(one, state={"C": 1.0}, grid=GRID, times=TIMES, forcings=forcing)
    known = np.exp(-0.1 * (TIMES + TIMES**2 / 100))
    assert np.allclose(model()["C"].to_numpy().reshape(-1, N), known[:, None], rtol=1e-4, atol=1e-6)

    def array(t, y, p):
        return fme.transport_1d(y, GRID, D=1.0).rate - p["k"] * p["temp"] * y

    again = fme.OdeModel(array, state={"C": 1.0}, parms={"k": 0.1}, grid=GRID, times=TIMES, forcings=forcing)
    assert np.allclose(again()["C"], model()["C"], rtol=1e-6, atol=1e-9)


def test_copies_share_what_was_compiled_and_models_pickle():
    model = column()
    other = model.replace(parms={"k": 0.1}, state={"O2": np.linspace(300, 0, N)})
    assert other.definition.arrays is model.definition.arrays
    assert other()["O2"].iloc[N - 1] == 0
    assert model.replace(grid=fme.Grid1D(GRID.edges, area=2.0)).definition.arrays is not model.definition.arrays
    back = cloudpickle.loads(cloudpickle.dumps(other))
    pd.testing.assert_frame_equal(back(), other())


def test_tolerances_by_species():
    atol = column(atol={"O2": 1e-3}).atol
    assert set(atol.iloc[:N]) == {1e-3}
    assert atol.iloc[N:].nunique() == 1
    small = column(state={"O2": 1e-4, "OM": 0.0}, parms={"surface": 1e-4}).atol
    assert small.iloc[0] == pytest.approx(1e-10, rel=1e-3)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"state": {"O2": np.ones(7), "OM": 0.0}}, "state\\['O2'\\].*50 finite ones.*\\(7,\\)"),
        ({"state": {"O2": np.r_[1.0, 2.0, np.nan, np.ones(N - 3)], "OM": 0.0}}, "50 finite ones.*got nan in cell 3"),
        ({"grid": None, "state": {"O2": np.ones(N), "OM": 0.0}}, "holds 50 values.*give grid=Grid1D"),
        ({"grid": None}, "shape \\(\\).*With OdeModel\\(..., grid=grid\\) a state is such a profile"),
        ({"state": [1.0] * 2 * N}, "must name its species"),
        ({"state": pd.DataFrame({"x": [1.0, 2.0], "O2": [1.0, 1.0]})}, "not the cells of the grid"),
        ({"state": {"O2": "topp", "OM": 0.0}, "parms": {"top": 1.0}}, "topp"),
        ({"grid": [0, 1, 2]}, "must be a Grid1D"),
        ({"outputs": {"both": "O2 + OM"}}, "`outputs` is not for models on a grid"),
        ({"events": [dict(var="O2", time=1, value=0, method="add")]}, "`events` is not for"),
        ({"parms": {"DD": 2.0}}, "'DD'.*There are 'D', 'k', 'sink', 'ks', 'surface'\\.$"),
        ({"atol": {"O3": 1.0}}, "O3"),
    ],
)
def test_what_is_wrong_is_told_at_the_door(words, told):
    with pytest.raises((ModelError, ParameterError), match=told):
        column(**words)


def test_what_the_function_returns_is_checked():
    def of(result):
        return lambda t, O2, OM: result(O2, OM)

    for result, told in (
        (lambda a, b: a, "rates of 'O2', 'OM' in 50 cells"),
        (lambda a, b: (a, b[:-1]), "rates of"),
        (lambda a, b: None, "It returned"),
        (lambda a, b: (fme.transport_1d(a, GRID), b), "rates are `.rate` of it"),
        (lambda a, b: (fme.transport_1d(a, GRID).dC, b), "no 'dC'. Write .rate for it. It has .* grid.$"),
        (lambda a, b: (a, b, {"out": fme.transport_1d(a, GRID).flux_down}), "Write .flux\\[-1\\] for it"),
        (lambda a, b: (a, b, {"flux": np.zeros(N + 1)}), "'flux' must be one number, or 50"),
        (lambda a, b: (a, b * np.nan), "rate of 'OM\\[1\\]' is nan at the start"),
    ):
        with pytest.raises(FmepyError, match=told):
            column().replace(rhs=of(result))


def test_an_image_has_time_to_the_right_and_depth_downwards():
    ax = column().image("O2", unit="mmol/m3", title="lake", vmin=0, vmax=400)
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_ylim(), ax.get_title()) == ("time", "depth", (10.0, 0.0), "lake")
    mesh = ax.collections[0]
    assert mesh.get_array().shape == (N, len(TIMES))
    assert np.allclose(mesh.get_array()[:, -1], column()()["O2"].iloc[-N:])
    assert ax.figure.axes[1].get_ylabel() == "O2 (mmol/m3)"
    panels = fme.plot_model(column()())
    assert [ax.get_ylim() for ax in panels] == [pytest.approx((10.0, 0.0))] * 3
    with pytest.raises(ArgumentError, match="one table is drawn"):
        fme.plot_model(column()(), column()())
    with pytest.raises(ParameterError, match=r"'O3'.*'O2'"):
        column().image("O3")
    with pytest.raises(ModelError, match="is for an OdeModel with grid"):
        fme.OdeModel("d(A)/dt = -A", state={"A": 1}, times=[0, 1]).image("A")


def test_a_profile_is_all_its_cells_where_variables_are_chosen():
    model = column(times=[0, 10])
    found = fme.sensRange(model, parRange={"D": (0.5, 1.0)}, num=3, seed=1, sensvar=["O2", "into"]).summary()
    assert set(found["var"]) == {"O2", "into"}
    assert found[found["var"] == "O2"]["x"].tolist() == 2 * model.on_grid.grid.mid.tolist()


def test_coefficients_that_are_none_are_told_at_the_door_and_at_rest():
    D = np.where(np.arange(N + 1) == 3, np.nan, 1.0)

    def hollow(t, C, *, k=0.1):
        return fme.transport_1d(C, GRID, D=D, up=1.0).rate - k * C

    def none(t, C, *, k=0.1):
        return fme.transport_1d(C, GRID, D=np.nan, up=1.0).rate - k * C

    words = dict(state={"C": 1.0}, grid=GRID)
    with pytest.raises(ModelError, match=r"rate of 'C\[3\]' is nan at the start.*a coefficient"):
        fme.OdeModel(hollow, times=TIMES, **words)
    with pytest.raises(fme.errors.NoSteadyStateError, match=r"'C' in cell . is nan.*a coefficient"):
        fme.SteadyModel(hollow, **words)()
    for kind, more in ((fme.OdeModel, {"times": TIMES}), (fme.SteadyModel, {})):
        with pytest.raises(ModelError, match="at the start: `D=nan`: transport needs finite numbers"):
            kind(none, **more, **words)


def test_depths_without_their_column_are_told_with_the_word():
    data = {"day": [10, 10], "depth": [1.0, 2.0], "O2": [290.0, 280.0]}
    with pytest.raises(
        fme.errors.DataError, match=r"'depth' is not a variable.*'O2' is a profile: x=\['day', 'depth'\]"
    ):
        fme.SimulationCost(column(), data, x="day")


def test_a_flux_is_a_profile_in_tables_and_pictures():
    def settling(t, OM, *, sink=0.1, k=0.05):
        flow = fme.transport_1d(OM, GRID, v=sink, flux_up=1.0)
        return flow.rate - k * OM, {"J": flow.flux_mid}

    model = fme.OdeModel(settling, state={"OM": 0.0}, grid=GRID, times=[0, 400], rtol=1e-9)
    last = model().iloc[-N:]
    assert np.allclose(last["J"], np.exp(-0.5 * GRID.mid), atol=0.03)  # of a long time; upstream, of first order
    edges = np.concatenate([[1.0], 0.1 * last["OM"]])  # v times what is upstream
    assert np.allclose(last["J"], (edges[1:] + edges[:-1]) / 2)
    ax = model.image("J", unit="mmol/m2/d")
    assert ax.figure.axes[1].get_ylabel() == "J (mmol/m2/d)"

    def whole(t, OM, *, sink=0.1):
        flow = fme.transport_1d(OM, GRID, v=sink)
        return flow.rate, {"J": flow.flux}

    with pytest.raises(ModelError, match=r"flow\.flux_mid, its profile"):
        fme.OdeModel(whole, state={"OM": 0.0}, grid=GRID, times=[0, 1])


def test_every_engine_and_entity_starts_from_its_own_steady_state():
    grid = fme.Grid1D(np.linspace(0, 5, 11))

    def earlier(t, C, *, D=1.0, k=0.3, top0=2.0):
        return fme.transport_1d(C, grid, D=D, up=top0).rate - k * C

    def later(t, C, *, D=1.0, k=0.3, top=1.0):
        return fme.transport_1d(C, grid, D=D, up=top).rate - k * C

    rest = fme.SteadyModel(earlier, state={"C": 1.0}, grid=grid)
    words = dict(state=rest, grid=grid, times=[0, 1, 4])
    model = fme.OdeModel(later, **words)
    Y, S = (b := model.bind(["top0", "k"])).sensitivities(b.theta0)
    for other in ({"engine": "scipy"}, {"method": "rk4", "dt": 0.01}):
        Y2, S2 = fme.OdeModel(later, **words, **other).bind(["top0", "k"]).sensitivities(b.theta0)
        assert np.allclose(Y2, Y, atol=1e-5)
        assert np.allclose(S2, S, atol=1e-5)
    parts = []
    for core, top0 in (("a", 2.0), ("b", 0.5)):
        table = model({"top0": top0, "k": 0.4}).rename(columns={"time": "day", "x": "depth"}).iloc[::3]
        parts.append(table.assign(core=core))
    cost = fme.SimulationCost(model, pd.concat(parts), x=["day", "depth"], entity="core", entity_parms=["top0"])
    fit = fme.modFit(cost, {"D": 1.2, "k": 0.3, "top0[a]": 1.0, "top0[b]": 1.0})
    assert np.allclose(fit.par, [1.0, 0.4, 2.0, 0.5], rtol=1e-4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"forcings": {"surfaces": ([0, 100], [1.0, 2.0])}}, "'surfaces' is used nowhere.*Did you mean 'surface'"),
        ({"parms": {"O2": 3.0}}, "'O2' is both a state and a parameter"),
    ],
)
def test_what_nothing_reads_is_told(words, told):
    with pytest.raises(ModelError, match=told):
        column(**words)


@pytest.mark.parametrize("model", [fme.OdeModel, fme.SteadyModel])
def test_names_of_the_first_columns_and_two_orders_of_states_are_told(model):
    times = {"times": [0, 1]} if model is fme.OdeModel else {}

    def named(t, x, *, k=1.0):
        return fme.transport_1d(x, GRID, D=1.0, up=1.0).rate - k * x

    with pytest.raises(ModelError, match="is called 'x', like a column"):
        model(named, state={"x": 1.0}, grid=GRID, **times)

    def two(t, N, P, *, k=1.0):
        rate = fme.transport_1d(N, GRID, D=1.0, up=1.0).rate
        return rate - k * N, rate - 2 * k * P

    with pytest.warns(UserWarning, match="name the states as 'N', 'P', and `state` as 'P', 'N'"):
        model(two, state={"P": 1.0, "N": 2.0}, grid=GRID, **times)


def test_an_output_of_a_grid_is_not_called_as_a_column():
    def named(t, O2):
        carried = fme.transport_1d(O2, GRID, D=1.0, up=1.0)
        return carried.rate, {"time": carried.flux[0]}

    with pytest.raises(ModelError, match="is called 'time'"):
        fme.OdeModel(named, state={"O2": 1.0}, grid=GRID, times=[0, 1])


def test_a_peclet_number_of_two_is_no_swing_and_a_negative_coefficient_beside_nan_is_refused():
    grid = fme.Grid1D(np.linspace(0, 10, 101))
    fme.transport_1d(np.ones(100), grid, v=1.0, D=0.05, scheme="central")  # a warning is an error here
    with pytest.raises(ArgumentError, match="must not be negative; its smallest is -1"):
        fme.transport_1d(np.ones(100), grid, D=np.r_[np.nan, -np.ones(100)])


def test_a_balance_is_an_output():
    def carried(t, C, *, D=1.0, v=0.3):
        flow = fme.transport_1d(C, GRID, D=D, v=v, up=1.0)
        return flow.rate, {"balance": flow.balance}

    model = fme.OdeModel(carried, state={"C": 0.0}, grid=GRID, times=[0, 1, 5])
    assert model.engine == "compiled"
    assert np.abs(model(wide=True)["balance"]).max() < 1e-13


@pytest.mark.parametrize("scheme", ["exponential", "upwind"])
def test_a_velocity_that_changes_its_sign_has_exact_sensitivities(scheme):
    def tide(t, C, *, D=0.3, v=1.0):
        return fme.transport_1d(C, GRID, D=D, v=v * np.sin(t), up=1.0, down=0.2, scheme=scheme).rate

    model = fme.OdeModel(tide, state={"C": 0.5}, grid=GRID, times=[0, 1, 3, 5, 9], rtol=1e-10, atol=1e-12)
    bound = model.bind(["D", "v"])
    assert bound.exact
    slopes, step = bound.sensitivities(bound.theta0)[1], 1e-4
    for j in range(2):
        by = np.eye(2)[j] * step
        differences = (bound.simulate(bound.theta0 + by) - bound.simulate(bound.theta0 - by)) / (2 * step)
        np.testing.assert_allclose(slopes[..., j], differences, atol=2e-5)


def test_what_the_function_refuses_in_a_run_is_the_reason():
    with pytest.raises(SimulationError, match=r"time 0: the model's function fails: `D` must not .* is -1. Param"):
        column()({"D": -1.0})


def test_variables_are_listed_by_profile():
    with pytest.raises(ArgumentError, match=r"no variable 'O3'. There are 'O2', 'OM', 'into', 'decay'"):
        fme.sensFun(column(), sensvar=["O3"])


def test_bands_of_profiles_say_what_their_shades_are():
    runs = fme.sensRange(column(times=[0, 10, 40]), parRange={"k": (0.02, 0.2)}, num=4, seed=1)
    title = runs.summary().plot("O2")[0].get_legend().get_title().get_text()
    assert title.split() == [
        "parameter",
        "uncertainty",
        "line",
        "Mean,",
        "shade",
        "Mean",
        "±",
        "Sd,",
        "outline",
        "Min",
        "to",
        "Max",
    ]
    with pytest.raises(fme.errors.DataError, match=r"no rows of that time.* model.replace\(times=...\)"):
        runs.summary().plot("O2", obs=pd.DataFrame({"day": [7.0], "depth": [1.0], "O2": [200.0]}))


@pytest.mark.parametrize(
    "obs",
    [
        {"day": [10.0], "depth": [1.0], "O2": [200.0]},
        {"depth": [1.0], "day": [10.0], "O2": [200.0]},
        {"z": [1.0], "when": [10.0], "O2": [200.0]},
        {"when": [10.0], "below": [1.0], "O2": [200.0]},
        {"station": [7], "depth": [1.0], "time": [10.0], "O2": [200.0]},
        {"core": ["A"], "time": [10.0], "depth": [1.0], "O2": [200.0]},
        {"name": ["O2"], "time": [10.0], "depth": [1.0], "value": [200.0]},
    ],
)
def test_times_and_depths_of_drawn_data_are_known_by_their_names(obs):
    runs = fme.sensRange(column(times=[0, 10, 40]), parRange={"k": (0.02, 0.2)}, num=3, seed=1)
    ax = runs.summary().plot("O2", obs=pd.DataFrame(obs))[0]
    (points,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert (points.get_xdata().tolist(), points.get_ydata().tolist()) == ([200.0], [1.0])


@pytest.mark.parametrize(
    "obs",
    [
        {"core": ["A"], "name": ["B"], "time": [10.0], "depth": [1.0]},
        {"a": [1.0], "b": [10.0], "c": [1.0], "O2": [200.0]},
        {"day": [10.0], "depth": [1.0], "o2": [200.0]},
    ],
)
def test_drawn_data_whose_columns_are_not_clear_are_refused(obs):
    runs = fme.sensRange(column(times=[0, 10, 40]), parRange={"k": (0.02, 0.2)}, num=3, seed=1)
    with pytest.raises(fme.errors.DataError, match=r"a column of times .*; it has "):
        runs.summary().plot("O2", obs=pd.DataFrame(obs))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m, obs: m.image(which="O2"), r"image\('O2'\). There are 'O2', 'OM'"),
        (lambda m, obs: m.image(), r"one profile, named first"),
        (lambda m, obs: fme.SimulationCost(m, obs, x=["depth", "day"]), r"times first, .*x=\['day', 'depth'\]"),
        (lambda m, obs: fme.SimulationCost(m, obs.set_index(["day", "depth"]), x=["day", "depth"]), r"reset_index\(\)"),
        (lambda m, obs: fme.SimulationCost(m, obs.rename(columns={"O2": "o2"}), x=["day", "depth"]),
         "Did you mean 'O2'. There are 'O2', 'OM', "),
        (lambda m, obs: fme.modCost(m(), obs, x=["day", "depth"]), r"SimulationCost\(model, obs, x=\['day', 'dep"),
        (lambda m, obs: fme.sensRange(m, parRange={"k": (0, 1)}, sensvar="o2", num=2), "Did you mean 'O2'"),
        (lambda m, obs: fme.sensRange(m, parRange=[(0, 1)], num=2), "Without names they are p1, p2, ...: write a dict"),
        (lambda m, obs: fme.plot_model(m), r"Run it first: outputs=model\(\)"),
        (lambda m, obs: fme.plot_model(m(), main="a"), "Here it is `title`"),
        (lambda m, obs: fme.obsplot(obs, x="day"), "takes no keyword `x`"),
        (lambda m, obs: fme.FimlofCost(m, obs, x=["day", "depth"], process_noise={}), "a filter knows no depths"),
        (lambda m, obs: -fme.transport_1d(np.ones(3), fme.Grid1D([0, 1, 2, 3])), r"\(C, grid, D=D\).rate"),
        (lambda m, obs: np.ones(3) - fme.transport_1d(np.ones(3), fme.Grid1D([0, 1, 2, 3])), r"\(C, grid, D=D\).rate"),
        (lambda m, obs: fme.transport_1d(np.ones(3), fme.Grid1D([0, 1, 2, 3]), D=abs), r"D=f\(grid.edges\)"),
    ],
)  # fmt: skip
def test_slips_with_profiles_are_answered(ask, message):
    obs = pd.DataFrame({"day": [10.0], "depth": [1.0], "O2": [200.0]})
    with pytest.raises(fme.errors.FmepyError, match=message):
        ask(column(times=[0, 10, 40]), obs)


def test_a_prediction_of_a_profile_is_one_of_a_cell():
    model = column(times=[0, 10, 40])
    cost = fme.SimulationCost(
        model, {"day": [10.0, 40.0], "depth": [1.0, 2.0], "O2": [200.0, 100.0]}, x=["day", "depth"]
    )
    fit = fme.modFit(cost, {"k": 0.1}, control={"maxiter": 1})
    with pytest.raises(ArgumentError, match=r"'O2' is a profile: take one of its \d+ cells, such as 'O2\[1\]'"):
        fme.profile(cost, fit, prediction=("O2", 10.0))
