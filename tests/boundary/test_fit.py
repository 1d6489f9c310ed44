"""fit_boundary: which models and data, which unknowns, several experiments, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, DataError, ModelError, ParameterError

TIMES = np.linspace(0, 5, 21)


def decay(**words):
    given = {"state": {"A": "A0"}, "parms": {"k": 0.3, "A0": 5.0}, "times": TIMES, "rtol": 1e-9}
    return fme.OdeModel("d(A)/dt = -k*A", **{**given, **words})


TWO = {"time": [1, 2], "A": [4.0, 3.0]}


# --- what may be observed, and of what


def test_a_state_that_is_never_observed_is_found_from_the_other():
    chain = fme.OdeModel("d(A)/dt = -k*A\nd(B)/dt = k*A - m*B", state={"A": "A0", "B": "B0"}, times=TIMES, rtol=1e-10,
                         parms={"k": 0.3, "m": 1.0, "A0": 5.0, "B0": 1.0})  # fmt: skip
    truth = {"k": 0.5, "m": 1.4, "A0": 8.0, "B0": 2.0}
    seen = chain(truth, [0, 0.5, 1.0, 2.0, 4.0])[["time", "B"]].iloc[1:]
    fit = fme.fit_boundary(chain, seen)
    assert fit.converged
    assert fit.par.to_dict() == pytest.approx(truth, rel=1e-4)
    assert fit.trajectory["A"].iloc[0] == pytest.approx(8.0, rel=1e-4)


def test_outputs_that_are_not_linear_in_the_states_are_boundary_conditions_too():
    model = decay(outputs={"y": "log(1 + A**2)"})
    y = np.log(1 + (7 * np.exp(-0.6 * np.array([1.0, 3.0]))) ** 2)
    fit = fme.fit_boundary(model, {"time": [1.0, 3.0], "y": y})
    assert fit.par.to_dict() == pytest.approx({"k": 0.6, "A0": 7.0}, rel=1e-5)


def test_wide_and_long_tables_missing_ones_among_them_are_the_same():
    wide = pd.DataFrame({"time": [1.0, 2.0, 3.0], "A": [4.0, np.nan, 2.1]})
    long = pd.DataFrame({"name": ["A", "A"], "time": [3.0, 1.0], "value": [2.1, 4.0]})
    one, other = fme.fit_boundary(decay(), wide), fme.fit_boundary(decay(), long, y="value")
    assert one.par.to_numpy() == pytest.approx(other.par.to_numpy(), rel=1e-8)
    assert one.fit.cost.dropped["missing"].tolist() == [1]


def test_forcings_and_events_are_part_of_the_equations():
    model = fme.OdeModel(
        "d(A)/dt = u - k*A",
        state={"A": "A0"},
        parms={"k": 0.3, "A0": 5.0},
        times=TIMES,
        rtol=1e-10,
        forcings={"u": pd.DataFrame({"time": [0, 5], "u": [1.0, 2.0]})},
        events=[{"var": "A", "time": 2, "value": 3.0, "method": "add"}],
    )
    truth = {"k": 0.7, "A0": 2.0}
    seen = model(truth, [0, 1.0, 2.5, 4.0]).iloc[1:]
    for strategy in ("complementary", "particular"):
        assert fme.fit_boundary(model, seen, strategy=strategy).par.to_dict() == pytest.approx(truth, rel=1e-6)


def test_difference_equations_whose_coefficients_depend_on_time():
    step = fme.DifferenceModel("next(N) = N*(1 + r/(1 + c*t))", state={"N": "N0"}, times=range(8),
                               parms={"r": 0.5, "c": 0.3, "N0": 2.0})  # fmt: skip
    truth = {"r": 0.8, "c": 0.5, "N0": 3.0}
    seen = step(truth).iloc[[2, 4, 7]]
    assert fme.fit_boundary(step, seen).par.to_dict() == pytest.approx(truth, rel=1e-9)


def test_a_model_of_transformed_parameters():
    seen = {"time": [1.0, 2.0, 4.0], "A": [4.3, 2.7, 1.0]}
    plain = fme.fit_boundary(decay(), seen)
    logs = fme.fit_boundary(fme.transformed(decay(), "log"), seen)
    assert np.exp(logs.par.to_numpy()) == pytest.approx(plain.par.to_numpy(), rel=1e-6)
    with pytest.raises(ParameterError, match="log"):
        decay()(logs.par)


# --- which unknowns


def test_names_take_the_models_values_and_a_dict_its_own():
    assert fme.fit_boundary(decay(), TWO, "k").iterations["k"].iloc[0] == 0.3
    assert fme.fit_boundary(decay(), TWO, ["k", "A0"]).par.index.tolist() == ["k", "A0"]
    assert fme.fit_boundary(decay(), TWO, {"A0": 4.5}).iterations["A0"].iloc[0] == 4.5
    assert fme.fit_boundary(decay(), TWO, pd.Series({"k": 0.2})).par.index.tolist() == ["k"]


@pytest.mark.parametrize(
    ("p", "told"),
    [
        (["kk"], "no parameter 'kk'. Did you mean 'k'"),
        (["A"], r"'A' is a state. Make its initial value a parameter.*'A0'"),
        ({"A": 2.0}, "'A' is a state"),
        ([0.3, 5.0], "values without names"),
        (0.3, "got float"),
        (["k", "k"], "more than once"),
        ({"k": np.nan}, "finite number"),
        ([], "empty"),
    ],
)
def test_unknowns_that_cannot_be(p, told):
    model = decay(state={"A": 5.0}, parms={"k": 0.3}) if "A" in (p if isinstance(p, list | dict) else ()) else decay()
    with pytest.raises(ParameterError, match=told):
        fme.fit_boundary(model, TWO, p)


def test_fewer_observations_than_unknowns():
    with pytest.raises(DataError, match="3 unknowns, 2 observations"):
        fme.fit_boundary(decay(outputs={"y": "b*A"}, parms={"k": 0.3, "A0": 5.0, "b": 1.0}), TWO)
    with pytest.raises(DataError, match="2 unknowns, 1 observation:"):
        fme.fit_boundary(decay(), {"time": [1.0, 2.0], "A": [4.0, None]})


@pytest.mark.parametrize(
    ("change", "kind", "told"),
    [
        ({"strategy": "particulars"}, ArgumentError, "Did you mean 'particular'"),
        ({"segments": 0}, ArgumentError, "segments"),
        ({"segments": 2.5}, ArgumentError, "segments"),
        ({"tol": 0}, ArgumentError, "tol"),
        ({"max_iter": -1}, ArgumentError, "max_iter"),
        ({"x": None}, ArgumentError, "x=None"),
        ({"x": "tme"}, DataError, "Did you mean 'time'"),
        ({"weight": "sd"}, ArgumentError, "weight"),
        ({"lower": 1.0}, ParameterError, "outside its bounds"),
        ({"lower": {"q": 1.0}}, ParameterError, "'q'"),
        ({"obs": {"time": [1, 9], "A": [4.0, 1.0]}}, DataError, "outside the model's range"),
        ({"obs": {"time": [1, 2], "B": [4.0, 1.0]}}, DataError, "'B' is not a variable"),
        ({"model": lambda p: p}, ArgumentError, "must be a fmepy model"),
        ({"path": {"time": [0], "A": [1.0]}}, ArgumentError, "segments=10"),
        ({"entity": "rat"}, DataError, "'rat'` is not a column"),
    ],
)
def test_arguments_that_cannot_be(change, kind, told):
    given = {"model": decay(), "obs": TWO, "p": ["k"], **change}
    with pytest.raises(kind, match=told):
        fme.fit_boundary(given.pop("model"), given.pop("obs"), given.pop("p"), **given)


def test_a_cost_in_the_place_of_the_model_is_told_what_to_give():
    with pytest.raises(ArgumentError, match=r"cost\.model, cost\.obs"):
        fme.fit_boundary(fme.SimulationCost(decay(), TWO), TWO)


# --- several experiments


def vessels():
    rows = [("a", t, 8 * np.exp(-0.5 * t)) for t in (0.5, 1, 2, 4)] + [("b", t, 3 * np.exp(-0.5 * t)) for t in (1, 3)]
    table = pd.DataFrame(rows, columns=["vessel", "time", "A"])
    return table.assign(A=table["A"] + 0.02 * np.cos(7 * np.arange(6)))


@pytest.mark.parametrize("strategy", ["complementary", "particular"])
def test_of_several_experiments_initial_values_are_local_and_the_rest_is_shared(strategy):
    fit = fme.fit_boundary(decay(), vessels(), entity="vessel", strategy=strategy)
    shot = fme.modFit(fme.SimulationCost(decay(), vessels(), entity="vessel", entity_parms=["A0"]))
    assert fit.par.index.tolist() == ["k", "A0[a]", "A0[b]"]
    assert fit.par.to_numpy() == pytest.approx(shot.par.to_numpy(), rel=1e-5)
    assert fit.cov_scaled.to_numpy() == pytest.approx(shot.cov_scaled.to_numpy(), rel=1e-3)
    assert fit.by_entity().loc["b", "A0"] == fit.par["A0[b]"]
    assert fit.trajectory.columns.tolist() == ["vessel", "time", "A"]
    assert len(fit.trajectory) == 2 * len(TIMES)


def test_one_experiments_own_guess_and_bounds_beside_those_of_all():
    fit = fme.fit_boundary(
        decay(), vessels(), {"k": 0.2, "A0": 4.0, "A0[b]": 2.0}, entity="vessel", lower={"A0": 0, "A0[b]": 1.5}
    )
    assert fit.iterations.loc[0, ["A0[a]", "A0[b]"]].tolist() == [4.0, 2.0]
    assert fit.fit.lower.to_dict() == {"k": -np.inf, "A0[a]": 0.0, "A0[b]": 1.5}
    in_order = fme.fit_boundary(decay(), vessels(), ["k", "A0"], entity="vessel", lower=[0.1, 1.0])
    assert in_order.fit.lower.to_dict() == {"k": 0.1, "A0[a]": 1.0, "A0[b]": 1.0}


def test_a_rate_that_is_named_with_its_experiment_is_local():
    fit = fme.fit_boundary(decay(), vessels(), ["k[a]", "k[b]", "A0"], entity="vessel")
    shot = fme.modFit(fme.SimulationCost(decay(), vessels(), entity="vessel", entity_parms=["k", "A0"]))
    assert fit.par[shot.par.index].to_numpy() == pytest.approx(shot.par.to_numpy(), rel=1e-5)


def test_names_of_experiments_that_are_not_there():
    with pytest.raises(ParameterError, match=r"k\[c\]"):
        fme.fit_boundary(decay(), vessels(), ["k[c]", "A0"], entity="vessel")
    with pytest.raises(ParameterError, match="no parameter 'kk'"):
        fme.fit_boundary(decay(), vessels(), ["kk", "A0"], entity="vessel")


def vessel_rates(t, A, *, k, b):
    if A < -1e9:
        return 0.0
    return -k * A + 0 * b


@pytest.mark.parametrize("rates", ["d(A)/dt = -k*A + 0*b", vessel_rates])
def test_a_parameter_that_rates_use_is_no_initial_value_though_one_is_made_of_it(rates):
    model = fme.OdeModel(rates, state={"A": "A0 + b"}, parms={"k": 0.3, "A0": 5.0, "b": 0.0}, times=TIMES,
                         engine="scipy")  # fmt: skip
    fit = fme.fit_boundary(model, vessels(), ["k", "A0"], entity="vessel")
    assert fit.par.index.tolist() == ["k", "A0[a]", "A0[b]"]
    with pytest.raises(ArgumentError, match="collinear"):  # b is shared, and does what both starts do together
        fme.fit_boundary(model, vessels(), ["k", "A0", "b"], entity="vessel")


# --- systems of modules

HERDS = """
subscripts side: north, south
dims herd[side], graze[2]
d(herd[side])/dt = graze[1] - graze[0] * herd[side]
d(grass)/dt = -graze[0] * grass
grass(0) = grass0
output herd, grass
"""


def herds(**words):
    data = {"herd": [5.0, 8.0], "graze": [0.3, 0.2], "grass0": 3.0}
    return fme.dmi.ModularModel([fme.dmi.Module("herds", HERDS)], data, times=np.arange(9.0), dt=0.5, **words)


def isles():
    other = herds()({"herd[north]": 3.0, "grass0": 5.0}).iloc[1:]
    return pd.concat([herds()().iloc[1:].assign(isle="a"), other.assign(isle="b")])


def test_initial_values_of_modules_and_elements_of_arrays_are_local():
    unknown = {"graze[0]": 0.25, "herd[north]": 4.0, "grass0": 4.0}
    fit = fme.fit_boundary(herds(), isles(), unknown, entity="isle", lower={"herd[north]": 0})
    assert fit.par.to_dict() == pytest.approx(
        {"graze[0]": 0.3, "herd[north][a]": 5.0, "herd[north][b]": 3.0, "grass0[a]": 3.0, "grass0[b]": 5.0}
    )
    assert fit.by_entity().columns.tolist() == ["herd[north]", "herd[north].se", "grass0", "grass0.se"]
    own = {"graze[0][a]": 0.2, "graze[0][b]": 0.2, "herd[north]": 4.0, "grass0": 4.0}
    own = fme.fit_boundary(herds(), isles(), own, entity="isle")
    assert own.par[["graze[0][a]", "graze[0][b]"]].tolist() == pytest.approx([0.3, 0.3])


def test_segments_of_modules_with_arrays():
    unknown = {"graze[0]": 0.25, "herd[north](0)": 4.0, "grass0": 4.0}
    fit = fme.fit_boundary(herds().compiled("difference"), isles(), unknown, entity="isle", segments=2)
    assert fit.converged
    assert fit.par["graze[0]"] == pytest.approx(0.3)
    assert fit.par["herd[north](0)[b]"] == pytest.approx(3.0)


def test_transformed_models_are_checked_as_the_models_in_them():
    bounce = decay(events=[dict(root="A - 1", direction=-1, var="A", value=2.0)])
    for model in (bounce, fme.transformed(bounce, "log")):
        with pytest.raises(ModelError, match="root events"):
            fme.fit_boundary(model, TWO)
