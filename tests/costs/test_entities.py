"""Several experiments with one model: shared, local and conditioned parameters, exact, and compiled once."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from fmepy import dmi
from fmepy.costs import SimulationCost
from fmepy.costs.mapped import transformed
from fmepy.errors import ArgumentError, DataError, FmepyError, ParameterError, SimulationError
from fmepy.fimlof import FimlofCost
from fmepy.fitting import modFit, predict, profile
from fmepy.mcmc import modMCMC
from fmepy.models.engines import explicit
from fmepy.models.ode import OdeModel
from fmepy.sensitivity import collin, sensFun

DOSES = {"a": 100.0, "b": 50.0, "c": 80.0}


def one_compartment(t, gut, central, *, dose=100.0, ka=1.5, ke=0.1, V=20.0):
    return -ka * gut, ka * gut - ke * central


def model(**words):
    return OdeModel(
        one_compartment,
        state={"gut": "dose", "central": 0},
        times=np.linspace(0, 24, 13),
        outputs={"conc": "central / V"},
        rtol=1e-9,
        atol=1e-10,
        **words,
    )


def curve(t, dose, ka, ke, V):
    return dose * ka / (V * (ka - ke)) * (np.exp(-ke * t) - np.exp(-ka * t))


def data(seed=1, **own):
    """Three subjects, read at different times; `own` are their parameters."""
    rng = np.random.default_rng(seed)
    tables = []
    for k, (label, dose) in enumerate(DOSES.items()):
        t = np.array([0.3, 1.0, 2.5, 6.0, 12.0, 20.0]) + 0.1 * k
        p = {"ka": 1.2, "ke": 0.09, "V": 25.0, "dose": dose, **own.get(label, {})}
        conc = curve(t, **p) * np.exp(0.05 * rng.standard_normal(len(t)))
        tables.append(pd.DataFrame({"subject": label, "time": t, "conc": conc}))
    return pd.concat(tables, ignore_index=True)


def conditions():
    return pd.DataFrame({"dose": DOSES})


@pytest.fixture(scope="module")
def oral():
    return model()


def test_shared_parameters_without_conditions_are_the_pooled_cost_itself(oral):
    table = data()
    pooled = SimulationCost(oral, table.drop(columns="subject"))
    cost = SimulationCost(oral, table, entity="subject")
    a, b = pooled.bind(["ka", "ke"]), cost.bind(["ka", "ke"])
    theta = np.array([1.1, 0.08])
    np.testing.assert_array_equal(a.residuals(theta), b.residuals(theta))
    np.testing.assert_array_equal(a.jacobian(theta), b.jacobian(theta))
    assert modFit(cost, ["ka", "ke", "V"]).ssr == pytest.approx(modFit(pooled, ["ka", "ke", "V"]).ssr, rel=1e-10)


def test_shared_parameters_with_conditions_are_the_sum_of_one_cost_each(oral):
    table = data()
    cost = SimulationCost(oral, table, entity="subject", conditions=conditions())
    apart = sum(
        SimulationCost(oral.replace(parms={"dose": DOSES[label]}), part.drop(columns="subject"))
        for label, part in table.groupby("subject")
    )
    names = ["ka", "ke", "V"]
    a, b = modFit(cost, names), modFit(apart, names)
    np.testing.assert_allclose(a.par, b.par, rtol=1e-8)
    np.testing.assert_allclose(a.cov_scaled, b.cov_scaled, rtol=1e-6)
    assert a.ssr == pytest.approx(b.ssr, rel=1e-10)


def test_local_parameters_are_the_separate_fits(oral):
    table = data(b={"ka": 0.8}, c={"V": 30.0})
    cost = SimulationCost(oral, table, entity="subject", conditions=conditions(), entity_parms=["ka", "ke", "V"])
    assert list(cost.parms.index) == [f"{p}[{e}]" for p in ("ka", "ke", "V") for e in "abc"]
    fit, ssr = modFit(cost), 0.0
    for label, part in table.groupby("subject"):
        alone = modFit(
            SimulationCost(oral.replace(parms={"dose": DOSES[label]}), part.drop(columns="subject")), ["ka", "ke", "V"]
        )
        np.testing.assert_allclose(fit.par[[f"{n}[{label}]" for n in alone.par.index]], alone.par, rtol=1e-8)
        ssr += alone.ssr
    assert fit.ssr == pytest.approx(ssr, rel=1e-10)


def test_the_jacobian_is_that_of_the_residuals_and_its_foreign_columns_are_zero(oral):
    cost = SimulationCost(
        oral, data(), entity="subject", entity_parms=("ka",), transform="log",
        conditions={"subject": ["a", "b", "c"], "dose": [100, 50, 80], "ke": ["slow", "slow", "ke"]},
        parms={"slow": 0.05, "ka[b]": 1.1},
    )  # fmt: skip
    assert cost.parms.to_dict() == {
        "ka[a]": 1.5, "ka[b]": 1.1, "ka[c]": 1.5, "ke": 0.1, "V": 20.0, "slow": 0.05
    }  # fmt: skip
    bound = cost.bind()
    J, theta = bound.jacobian(bound.theta0), bound.theta0
    for j, h in enumerate(1e-3 * theta):  # a solver of tolerance 1e-9 leaves differences of 1e-5 few digits
        e = h * np.eye(len(theta))[j]
        np.testing.assert_allclose(
            J[:, j], (bound.residuals(theta + e) - bound.residuals(theta - e)) / (2 * h), atol=1e-5
        )
    of = np.array(bound.data.entities)
    assert (J[of != "a", 0] == 0).all()
    assert (J[of == "a", 0] != 0).all()
    assert (J[of == "c", 5] == 0).all()


def test_what_is_bound_follows_the_names_and_the_rest_stays(oral):
    cost = SimulationCost(oral, data(), entity="subject", conditions=conditions(), entity_parms=["ka"])
    some, whole = cost.bind(["V", "ka[b]"]), cost.bind()
    theta = whole.theta0.copy()
    theta[[1, 4]] = 1.3, 22.0
    np.testing.assert_allclose(some.residuals(np.array([22.0, 1.3])), whole.residuals(theta), rtol=1e-12)
    np.testing.assert_allclose(some.jacobian(np.array([22.0, 1.3])), whole.jacobian(theta)[:, [4, 1]], rtol=1e-5)
    assert some.theta0.tolist() == [20.0, 1.5]
    R, why = some.residuals_many(np.array([[22.0, 1.3], [22.0, np.inf]]))
    np.testing.assert_allclose(R[0], whole.residuals(theta), rtol=1e-12)
    assert why[0] == ""
    assert why[1].startswith("Entity 'b': ")


def test_all_entities_are_compiled_once():
    explicit._functions.cache_clear()
    cost = SimulationCost(model(), data(), entity="subject", conditions=conditions(), entity_parms=["ka"])
    bound = cost.bind(["ka[a]", "ka[b]", "ke"])
    bound.residuals(bound.theta0)
    bound.jacobian(bound.theta0)
    assert explicit._functions.cache_info().misses == 2, "the model, and the model with its sensitivities"


def test_entities_alike_share_a_run(oral):
    table = pd.concat([data(), data(seed=2).replace({"subject": {"a": "A", "b": "B", "c": "C"}})], ignore_index=True)
    both = pd.concat([conditions(), conditions().rename(str.upper)])
    cost = SimulationCost(oral, table, entity="subject", conditions=both)
    assert len(cost.models) == 3
    bound = cost.bind(["ka"])
    expected = [
        curve(t, DOSES[str(e).lower()], 1.5, 0.1, 20.0) for e, t in zip(table["subject"], table["time"], strict=True)
    ]
    np.testing.assert_allclose(cost().residuals["mod"], expected, rtol=1e-6)
    assert bound.data.entities == tuple(table["subject"])


def test_tables_tell_the_entity(oral):
    table = data()
    cost = SimulationCost(oral, table, entity="subject", conditions=conditions())
    out = cost({"ka": 1.2})
    assert out.residuals["entity"].tolist() == table["subject"].tolist()
    assert out.var["N"].tolist() == [18]
    both = cost + SimulationCost(oral, {"time": [1.0], "central": [3.0]})
    assert both().residuals["entity"].isna().tolist() == [False] * 18 + [True]


def test_labels_may_be_numbers_and_conditions_text(oral):
    table = data().replace({"subject": {"a": 1, "b": 2, "c": 3}}).infer_objects()
    rows = pd.DataFrame({"subject": ["1", "2", "3"], "dose": list(DOSES.values())})
    cost = SimulationCost(oral, table, entity="subject", conditions=rows, entity_parms=["ka"])
    assert list(cost.parms.index[:3]) == ["ka[1]", "ka[2]", "ka[3]"]
    named = SimulationCost(oral, data(), entity="subject", conditions=conditions())
    np.testing.assert_array_equal(cost().residuals["mod"], named().residuals["mod"])


def test_means_without_x_are_taken_by_entity(oral):
    table = pd.DataFrame({"subject": ["a", "b", "b"], "conc": [2.0, 1.0, 3.0]})
    cost = SimulationCost(oral, table, x=None, entity="subject", conditions=conditions().loc[["a", "b"]])
    rows = cost().residuals
    assert rows["obs"].tolist() == [2.0, 2.0]
    np.testing.assert_allclose(rows["mod"], [oral({"dose": d})["conc"].mean() for d in (100, 50)], rtol=1e-6)


def test_sensitivities_chains_sums_and_pickles_take_such_costs(oral):
    cost = SimulationCost(oral, data(), entity="subject", conditions=conditions(), entity_parms=["ka"])
    sens = sensFun(cost, ["ka[a]", "ke", "V"])
    assert np.isfinite(collin(sens).frame["collinearity"]).all()
    chain = modMCMC(cost, ["ke", "V"], niter=40, seed=1, jump=[0.01, 1.0], var0=0.1)
    assert len(chain.pars) == 40
    again = pickle.loads(pickle.dumps(cost))
    assert again().model == cost().model
    double = cost + cost.replace(entity_parms=(), weight="mean")
    assert double().model == pytest.approx(cost().model + cost.replace(entity_parms=(), weight="mean")().model)


def test_a_failed_run_names_its_entity(oral):
    cost = SimulationCost(oral, data(), entity="subject", conditions=conditions(), transform="log", entity_parms=["V"])
    bound = cost.bind(["V[b]"])
    with pytest.raises(SimulationError, match=r"Entity 'b': The model's value of 'conc' at time = 0\.4 is -"):
        bound.residuals(np.array([-20.0]))


def test_local_estimates_stand_in_a_table_with_their_errors(oral):
    cost = SimulationCost(oral, data(), entity="subject", conditions=conditions(), entity_parms=["ka", "V"])
    fit = modFit(cost, ["ke", "ka[a]", "ka[b]", "ka[c]", "V[b]"])
    table = fit.by_entity()
    assert table.columns.tolist() == ["ka", "ka.se", "V", "V.se"]
    assert table.index.tolist() == ["a", "b", "c"]
    assert table.index.name == "entity"
    assert table["ka"].tolist() == fit.par[["ka[a]", "ka[b]", "ka[c]"]].tolist()
    assert table["V.se"]["b"] == fit.std_error["V[b]"]
    assert table["V"].isna().tolist() == [True, False, True]
    with pytest.raises(ArgumentError, match="belongs to an entity"):
        modFit(cost, ["ke"]).by_entity()


def test_an_entity_is_a_model_of_the_costs_parameters(oral):
    cost = SimulationCost(oral, data(), entity="subject", conditions=conditions(), entity_parms=["ka"])
    p, t = {"ka[b]": 0.9, "ke": 0.08}, np.array([0.0, 1.0, 5.0])
    one = cost.model_of("b")
    np.testing.assert_allclose(one(p, t)["conc"], curve(t, 50.0, 0.9, 0.08, 20.0), rtol=1e-6, atol=1e-10)
    runs = cost.run(p, t)
    assert runs.columns[:2].tolist() == ["subject", "time"]
    np.testing.assert_array_equal(runs.query("subject == 'b'")["conc"], one(p, t)["conc"])
    np.testing.assert_array_equal(one.replace(parms=p)(None, t)["conc"], one(p, t)["conc"])
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again(p, t)["conc"], one(p, t)["conc"])
    _, S = one.bind(["ke", "ka[a]", "ka[b]"], times=t[1:]).sensitivities(np.array([0.08, 1.5, 0.9]))
    assert (S[:, :, 1] == 0).all()
    h = 1e-5
    ends = [curve(t[1:], 50.0, 0.9, 0.08 + e, 20.0) for e in (h, -h)]
    np.testing.assert_allclose(S[:, 2, 0], (ends[0] - ends[1]) / (2 * h), rtol=1e-5)
    with pytest.raises(ParameterError, match="There are 'a', 'b', 'c'"):
        cost.model_of("d")
    with pytest.raises(ArgumentError, match=r"cost\.model"):
        SimulationCost(oral, data().drop(columns="subject")).model_of("a")


def test_pictures_show_a_panel_or_a_colour_an_entity(oral):
    import matplotlib.pyplot as plt

    cost = SimulationCost(oral, data(), entity="subject", conditions=conditions(), transform="log")
    panels = cost.plot({"ka": 1.2}, times=np.linspace(0, 24, 50))
    assert [ax.get_title() for ax in panels] == ["subject a", "subject b", "subject c"]
    assert [len(ax.lines[0].get_xdata()) for ax in panels] == [50] * 3
    np.testing.assert_allclose(panels[1].lines[1].get_ydata(), data().query("subject == 'b'")["conc"])
    assert panels[0].get_yscale() == "log"
    ax = cost().plot()
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["a", "b", "c"]
    assert len({line.get_color() for line in ax.lines[1:4]}) == 3
    *curves, residuals, _ = modFit(cost, ["ka"]).plot()
    assert [ax.get_title() for ax in curves] == ["subject a", "subject b", "subject c"]
    assert {ax.get_yscale() for ax in curves} == {"log"}
    np.testing.assert_allclose(curves[1].lines[1].get_ydata(), data().query("subject == 'b'")["conc"])
    assert [t.get_text() for t in residuals.get_legend().get_texts()] == ["a", "b", "c"]
    (plain,) = SimulationCost(oral, {"time": [1.0, 2.0], "central": [3.0, 2.0]}).plot()
    assert plain.get_ylabel() == "central"
    plt.close("all")


BAD = [
    ({"entity": "subjct"}, DataError, "Did you mean 'subject'"),
    ({"entity": None}, ArgumentError, "`conditions` needs `entity`"),
    ({"conditions": None, "entity_parms": ["kA"]}, ParameterError, "Did you mean 'ka'"),
    ({"entity_parms": "ka"}, ParameterError, r"such as \['ka'\]"),
    ({"entity_parms": ["dose"]}, ParameterError, "column of `conditions`"),
    ({"entity_parms": ["ka", "ka"]}, ParameterError, "more than once"),
    ({"parms": {"ka": 2.0}}, ParameterError, "is a parameter of the model"),
    ({"parms": {"slow": 2.0}}, ParameterError, "used nowhere"),
    ({"parms": {"ka[a]": 2.0}}, ParameterError, r"there is no parameter 'ka\[a\]'"),
    ({"parms": {"slow": np.nan}}, ParameterError, "finite number"),
    ({"conditions": conditions().loc[["a", "b"]]}, DataError, "no row for 'c'"),
    ({"conditions": conditions().rename({"c": "cc"})}, DataError, "no row for 'c' .*Did you mean 'cc'"),
    ({"conditions": pd.concat([conditions(), conditions().rename(lambda e: e + "x")])}, DataError, "no data of 'ax'"),
    ({"conditions": pd.concat([conditions(), conditions()])}, DataError, "several rows of entity 'a'"),
    ({"conditions": conditions().reset_index(drop=True)}, DataError, r"set_index\('subject'\)"),
    ({"conditions": {"dose": [1, 2, 3]}}, DataError, "no column 'subject'"),
    ({"conditions": conditions().rename(columns={"dose": "dse"})}, DataError, "Did you mean 'dose'"),
    ({"conditions": conditions().assign(ka=["ka", "kaa", 1.0])}, ParameterError, r"Did you mean 'ka'\?"),
    ({"conditions": conditions().assign(ka=[1.0, None, 1.0])}, DataError, "'ka' of entity 'b' is missing"),
    ({"conditions": conditions().assign(ka=[1.0, np.inf, 1.0])}, DataError, "finite number"),
    ({"conditions": conditions().assign(ka=[1.0, True, 1.0])}, DataError, "a number or the name"),
    ({"conditions": conditions().assign(ka=["1.0", "a b", "ka"])}, DataError, "is 'a b'"),
    ({"conditions": conditions().assign(ka=[[1], [2], [3]])}, DataError, "a number or the name"),
    ({"conditions": pd.DataFrame([[1, 2]] * 3, index=list("abc"), columns=["ka", "ka"])}, DataError, "more than once"),
    ({"conditions": 3.0}, DataError, "`conditions` must be a table"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "kind", "match"), BAD)
def test_bad_input_is_answered_at_the_door(oral, words, kind, match):
    with pytest.raises(kind, match=match) as caught:
        SimulationCost(oral, data(), **{"entity": "subject", "conditions": conditions(), **words})
    assert isinstance(caught.value, FmepyError)


def test_an_entity_must_be_named_in_every_row_and_have_a_datum_left(oral):
    table = data()
    table.loc[3, "subject"] = None
    with pytest.raises(DataError, match=r"name is missing in row 3 \(1 of 18 rows\)"):
        SimulationCost(oral, table, entity="subject")
    table = data()
    table.loc[table["subject"] == "b", "conc"] = np.nan
    with pytest.raises(DataError, match="No observations of entity 'b' are left"):
        SimulationCost(oral, table, entity="subject")
    table = data().astype({"subject": object})
    table.loc[:2, "subject"] = [1, "1", "1"]
    with pytest.raises(DataError, match="read alike"):
        SimulationCost(oral, table, entity="subject")


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("local", [False, True])
def test_states_that_are_too_small_for_their_tolerance_are_told_once_a_fit(caplog, rest, local):
    small = OdeModel("d(A)/dt = u - k*A", state={"A": "A0"}, times=[0, 1, 2], parms={"A0": 2e-4, "k": 0.5, "u": 1e-5},
                     atol=1e-6)  # fmt: skip
    n = 4
    table = pd.DataFrame({"tank": np.repeat(range(n), 2), "time": [1.0, 2.0] * n, "A": 1e-4 + 1e-6 * np.arange(2 * n)})
    rows = pd.DataFrame({"tank": range(n), "A0": 1e-4 * np.arange(1, n + 1), "u": 1e-5 * np.arange(1, n + 1)})
    if rest:
        rows = rows.assign(start_from=[None, *[0] * (n - 1)]).astype({"start_from": object})
    cost = SimulationCost(small, table, entity="tank", conditions=rows, entity_parms=["k"] if local else ())
    fit = modFit(cost)
    cost(fit.par)
    assert caplog.text.count("may be the solver's error") == 1


def test_the_plain_name_of_a_local_parameter_stands_for_every_entity():
    cost = SimulationCost(
        model(), data(), entity="subject", conditions=conditions(), entity_parms=["ke"], measurement_noise={"conc": 0.2}
    )
    wide = {"ke[a]": 0.1, "ke[b]": 0.1, "ke[c]": 0.1}
    assert cost({"ke": 0.1}).model == cost(wide).model
    assert cost({"ke": 0.1, "ke[b]": 0.12}).model == cost(wide | {"ke[b]": 0.12}).model
    prior = norm(0.09, 0.02)
    short = modFit(cost, {"ka": 1.0, "ke": 0.1, "V": 20.0}, lower={"ke": 0.05}, upper={"ke": 0.3}, prior={"ke": prior})
    long = modFit(
        cost, {"ka": 1.0, **wide, "V": 20.0}, lower=dict.fromkeys(wide, 0.05), upper=dict.fromkeys(wide, 0.3),
        prior=dict.fromkeys(wide, prior),
    )  # fmt: skip
    assert list(short.par.index) == ["ka", *wide, "V"]
    pd.testing.assert_series_equal(short.par, long.par)
    pd.testing.assert_frame_equal(short.hessian, long.hessian)
    assert list(modFit(cost, ["V", "ke"]).par.index) == ["V", *wide]
    assert list(sensFun(cost, senspar=["ke", "V"]).pars.index) == [*wide, "V"]
    assert list(profile(cost, short, "ke", num=5, prior={"ke": prior}).intervals.index) == [*wide]
    assert cost.replace(parms={"ke[b]": 0.2}).parms["ke[b]"] == 0.2
    logged = transformed(cost, {"ke": "log"})
    np.testing.assert_allclose(logged.parms[[*wide]], np.log(cost.parms[[*wide]]))
    with pytest.raises(ParameterError, match=r"there is no parameter 'kee'"):
        modFit(cost, {"kee": 0.1})
    with pytest.raises(ParameterError, match="there is no parameter 'ke'"):
        modFit(cost, {"ka": 1.0}, lower={"ke": 0.0})


def test_the_column_of_the_entity_is_no_parameter():
    table = data().rename(columns={"subject": "dose"})
    assert "dose" in table
    with pytest.raises(ArgumentError, match=r"tells experiments apart.*conditions=\{'run': \[...\], 'dose'"):
        SimulationCost(model(), table, entity="dose")


# --- parameters that are elements of arrays

ISLANDS = """
subscripts side: north, south
dims herd[side], graze[2]
d(herd[side])/dt = graze[1] - graze[0] * herd[side]
output herd
"""


def islands():
    module = dmi.Module("islands", ISLANDS)
    return dmi.ModularModel([module], {"herd": [5.0, 8.0], "graze": [0.3, 0.2]}, times=np.arange(9.0), dt=0.5)


def two_islands():
    other = islands()({"graze[0]": 0.5, "herd[north]": 3.0})
    return pd.concat([islands()().iloc[1:].assign(isle="a"), other.iloc[1:].assign(isle="b")])


def test_elements_of_arrays_may_be_local():
    cost = SimulationCost(islands(), two_islands(), entity="isle", entity_parms=["graze[0]", "herd[north]"])
    fit = modFit(cost, ["graze[0]", "herd[north]", "herd[south]"], lower={"graze[0]": 0.0})
    table = fit.by_entity()  # herd[south] is of no entity
    assert table.columns.tolist() == ["graze[0]", "graze[0].se", "herd[north]", "herd[north].se"]
    assert table.index.tolist() == ["a", "b"]
    assert table["graze[0]"].tolist() == pytest.approx([0.3, 0.5])
    with pytest.raises(ParameterError, match=r"has 'graze\[0\]' of every entity"):
        predict(islands(), fit)
    with pytest.raises(ArgumentError, match="belongs to an entity"):
        modFit(cost.replace(entity_parms=()), ["graze[0]", "herd[south]"]).by_entity()


@pytest.mark.parametrize("kind", [SimulationCost, FimlofCost])
def test_noise_of_elements_of_arrays_is_estimated(kind):
    data = islands()().iloc[1:].assign(**{"herd[north]": lambda d: d["herd[north]"] + 0.1 * np.cos(3 * d["time"])})
    words = {"process_noise": {"herd[south]": "estimate"}} if kind is FimlofCost else {}
    words |= {"parms": {"sd_w_herd_south": 0.4}} if words else {}  # it is meant to stay
    cost = kind(islands(), data, measurement_noise={"herd[north]": "estimate", "herd[south]": 0.1}, **words)
    made = ["sd_w_herd_south", "sd_v_herd_north"] if words else ["sd_v_herd_north"]
    assert [k for k in cost.parms.index if k.startswith("sd_")] == made
    fit = modFit(cost, ["graze[0]", "sd_v_herd_north"])
    rms = np.sqrt(np.mean((0.1 * np.cos(3 * data["time"])) ** 2))
    assert fit.par["sd_v_herd_north"] == pytest.approx(rms, rel=0.1)
    if kind is SimulationCost:
        band, plain = (predict(islands(), fit, reading=r).frame.set_index(["var", "time"]) for r in (True, False))
        more = band["se"] ** 2 - plain["se"] ** 2
        assert more["herd[north]"].to_numpy() == pytest.approx(fit.par["sd_v_herd_north"] ** 2)


def test_a_test_of_size_counts_estimated_elements_of_arrays():
    noise = {"herd[north]": 0.1, "herd[south]": 0.1}
    found = FimlofCost(islands(), islands()().iloc[1:], process_noise=noise, measurement_noise=noise).filter()
    assert found.sumsq_test(["graze[0]", "graze[1]"]).expected == found.nobs - 2
