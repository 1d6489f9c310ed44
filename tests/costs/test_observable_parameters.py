"""Readings that name parameters of their noise, and of how they are observed, by row."""

import pickle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from fmepy.costs import SimulationCost
from fmepy.errors import ArgumentError, DataError, ParameterError
from fmepy.fitting import modFit, profile
from fmepy.fitting.predict import predict
from fmepy.journal.saving import load
from fmepy.mcmc import modMCMC
from fmepy.models.ode import OdeModel

TIMES = np.linspace(0, 5, 11)


def decay(t, A, *, k=0.5, scale=1.0, offset=0.0):
    return -k * A


@pytest.fixture(scope="module")
def model():
    outputs = {"y": "scale*A + offset", "z": "2*A"}
    return OdeModel(decay, state={"A": "A0"}, parms={"A0": 10.0}, times=TIMES, outputs=outputs, rtol=1e-9, atol=1e-10)


def gels(seed=3):
    """Two gels, each with its own scale and noise; z is read beside y, and has a scale of its own: none."""
    rng = np.random.default_rng(seed)
    t = np.tile(TIMES[1:], 2)
    gel = np.repeat(["a", "b"], 10)
    A = 10 * np.exp(-0.5 * t)
    y = np.where(gel == "a", 2.0, 0.5) * A + np.where(gel == "a", 0.3, 0.1) * rng.standard_normal(20)
    return pd.DataFrame(
        {"name": "y", "time": t, "value": y, "scale": "scale_" + pd.Series(gel), "sd": "sd_" + pd.Series(gel)}
    )


START = {"scale_a": 1.5, "scale_b": 0.7, "sd_a": 0.2, "sd_b": 0.2}
WORDS = {"y": "value", "measurement_noise": {"y": "sd"}, "noise_parms": ["scale", "sd"], "parms": START}


def by_hand(p, table, A0=10.0):
    """-2 log L, written out."""
    mod = table["scale"].map(p).astype(float) * A0 * np.exp(-p["k"] * table["time"])
    sd = table["sd"].map(p).astype(float)
    return float((((table["value"] - mod) / sd) ** 2 + np.log(2 * np.pi * sd**2)).sum())


def test_scales_and_sds_by_row_are_the_likelihood_written_out(model):
    table = gels()
    cost = SimulationCost(model, table, **WORDS)
    assert cost.parms.index.tolist() == ["k", "offset", "A0", "scale_a", "scale_b", "sd_a", "sd_b"]
    assert cost.scales == ("sd_a", "sd_b")
    bound = cost.bind()
    for move in (1.0, 1.2):
        p = cost.parms * move
        assert bound.minus2loglik(p.to_numpy()) == pytest.approx(by_hand(p.to_dict(), table, p["A0"]), rel=1e-6)
    assert cost({"k": 0.6}).minus2loglik == pytest.approx(by_hand({**cost.parms, "k": 0.6}, table), rel=1e-6)


def test_the_score_is_that_of_differences(model):
    bound = SimulationCost(model, gels(), **WORDS).bind()
    theta = bound.theta0 * 1.1
    theta[1] = 0.05
    score = bound.score(theta)
    for j in range(theta.size):
        e = np.zeros(theta.size)
        e[j] = 1e-4
        slope = -0.5 * (bound.minus2loglik(theta + e) - bound.minus2loglik(theta - e)) / 2e-4
        assert score[j] == pytest.approx(slope, rel=1e-4, abs=1e-3)


def test_the_fit_is_that_of_one_cost_a_gel(model):
    table = gels()
    fit = modFit(SimulationCost(model, table, **WORDS), ["k", *START])
    parts = []
    for gel in "ab":
        own = model.replace(outputs={"y": f"scale_{gel}*A"}, parms={f"scale_{gel}": START[f"scale_{gel}"]})
        mine = table[table["scale"] == f"scale_{gel}"][["time", "value"]].rename(columns={"value": "y"})
        noise = {"y": f"sd_{gel}"}
        parts.append(SimulationCost(own, mine, measurement_noise=noise, parms={f"sd_{gel}": 0.2}))
    other = modFit(parts[0] + parts[1], ["k", *START])
    np.testing.assert_allclose(fit.par, other.par[fit.par.index], rtol=1e-5)
    assert fit.minus2loglik == pytest.approx(other.minus2loglik, rel=1e-8)
    np.testing.assert_allclose(fit.cov_scaled, other.cov_scaled.loc[fit.par.index, fit.par.index], rtol=1e-4)


def test_numbers_in_cells_hold(model):
    table = gels().assign(scale=np.repeat([2.0, 0.5], 10), sd=np.repeat(["0.3", "0.1"], 10))
    cost = SimulationCost(model, table, y="value", measurement_noise={"y": "sd"}, noise_parms=["scale", "sd"])
    assert cost.parms.index.tolist() == ["k", "offset", "A0"]
    p = {"k": 0.5, "2.0": 2.0, "0.5": 0.5, "0.3": 0.3, "0.1": 0.1}
    expected = by_hand(p, table.assign(scale=table["scale"].astype(str)))
    assert cost({"k": 0.5}).minus2loglik == pytest.approx(expected, rel=1e-6)


def test_a_column_of_sds_alone_is_the_noise(model):
    table = gels().drop(columns="scale")
    one = SimulationCost(model, table, y="value", noise_parms="sd", parms={"sd_a": 0.2, "sd_b": 0.1})
    other = SimulationCost(
        model, table, y="value", measurement_noise={"y": "s"}, noise_parms={"s": "sd"}, parms={"sd_a": 0.2, "sd_b": 0.1}
    )
    assert one().minus2loglik == other().minus2loglik
    assert one.scales == ("sd_a", "sd_b")
    assert one.shared_run() is model, "the noise makes no runs"


def test_readings_that_do_not_depend_on_a_placeholder_share_a_run_and_need_no_cell(model):
    table = gels()
    z = pd.DataFrame({"name": "z", "time": TIMES[1:], "value": 20 * np.exp(-0.5 * TIMES[1:]), "sd": 0.1})
    both = pd.concat([table, z], ignore_index=True)
    cost = SimulationCost(model, both, **WORDS | {"measurement_noise": {"y": "sd", "z": "sd"}})
    assert len(cost.models) == 2
    assert cost().minus2loglik == pytest.approx(
        SimulationCost(model, table, **WORDS)().minus2loglik + 10 * np.log(2 * np.pi * 0.01), rel=1e-6
    )


def test_without_words_of_noise_scales_by_row_are_least_squares(model):
    table = gels().drop(columns="sd")
    cost = SimulationCost(model, table, y="value", noise_parms="scale", parms={"scale_a": 1.5, "scale_b": 0.7})
    bound = cost.bind(["k", "scale_a", "scale_b"])
    assert not bound.is_scalar
    theta = np.array([0.6, 1.5, 0.7])
    A = 10 * np.exp(-0.6 * table["time"].to_numpy())
    scale = np.repeat([1.5, 0.7], 10)
    np.testing.assert_allclose(bound.residuals(theta), scale * A - table["value"], atol=1e-6)
    J = bound.jacobian(theta)
    np.testing.assert_allclose(J[:, 1], np.where(scale == 1.5, A, 0), atol=1e-6)
    np.testing.assert_allclose(J[:, 0], -table["time"] * scale * A, atol=1e-5)
    assert modFit(cost, ["k", "scale_a", "scale_b"]).converged


def entities():
    table = pd.concat([gels(1).assign(subject="s"), gels(2).assign(subject="u")], ignore_index=True)
    table.loc[table["subject"] == "u", "value"] *= 3
    return table[["subject", "name", "time", "value", "scale", "sd"]]


def test_rows_conditions_and_local_parameters_together(model):
    cost = SimulationCost(
        model, entities().iloc[:, [1, 0, 2, 3, 4, 5]], **WORDS, entity="subject", entity_parms=["k"],
        conditions={"subject": ["s", "u"], "A0": [10, 30]},
    )  # fmt: skip
    assert cost.parms.index.tolist() == ["k[s]", "k[u]", "offset", "scale_a", "scale_b", "sd_a", "sd_b"]
    total = 0.0
    for (label, A0), own in zip({"s": 10.0, "u": 30.0}.items(), [entities()[:20], entities()[20:]], strict=True):
        total += by_hand({**START, "k": cost.parms[f"k[{label}]"]}, own, A0)
    assert cost().minus2loglik == pytest.approx(total, rel=1e-6)
    assert cost.model_of("u", {"scale": "scale_b"})()["y"].iloc[0] == pytest.approx(21.0)
    bound = cost.bind()
    score, e = bound.score(bound.theta0), np.eye(7)[1] * 1e-4
    slope = -0.5 * (bound.minus2loglik(bound.theta0 + e) - bound.minus2loglik(bound.theta0 - e)) / 2e-4
    assert score[1] == pytest.approx(slope, rel=1e-4)


def test_a_cell_may_name_a_local_parameter(model):
    table = entities().drop(columns=["sd"]).assign(scale="offset")
    cost = SimulationCost(
        model, table[["name", "subject", "time", "value", "scale"]], y="value", noise_parms="scale", entity="subject",
        entity_parms=["offset"],
    )  # fmt: skip
    assert "offset[s]" in cost.parms
    mod = cost({"offset[s]": 2.0, "offset[u]": 3.0}).residuals
    A = 10 * np.exp(-0.5 * mod["x"])
    np.testing.assert_allclose(mod["mod"] - mod["entity"].map({"s": 2.0, "u": 3.0}) * (A + 1), 0, atol=1e-6)


def test_a_start_from_rest_keeps_what_the_rows_name():
    growth = OdeModel(
        lambda t, A, *, r=1.0, k=0.5, scale=1.0: r - k * A, state={"A": 0.1}, times=TIMES, outputs={"y": "scale*A"}
    )
    table = pd.DataFrame(
        {"name": "y", "tube": "on", "time": [0.0, 0, 5, 5], "y": [4.0, 1, 8, 2], "scale": ["s1", "s2"] * 2}
    )
    cost = SimulationCost(
        growth, table, y="y", noise_parms="scale", entity="tube", parms={"s1": 2.0, "s2": 0.5},
        conditions=pd.DataFrame({"tube": ["off", "on"], "r": [1.0, 3.0], "start_from": [None, "off"]}),
    )  # fmt: skip
    mod = cost().residuals["mod"].to_numpy()
    np.testing.assert_allclose(mod[:2], [4.0, 1.0], rtol=1e-4)
    late = 6 - 4 * np.exp(-2.5)
    np.testing.assert_allclose(mod[2:], [2 * late, 0.5 * late], rtol=1e-4)


def test_sums_copies_pickles_and_saved_fits(model, tmp_path):
    table = gels()
    cost = SimulationCost(model, table, **WORDS)
    again = pickle.loads(pickle.dumps(cost))
    assert again().minus2loglik == cost().minus2loglik
    z = {"time": TIMES[1:], "z": 20 * np.exp(-0.5 * TIMES[1:])}
    other = SimulationCost(model, z, measurement_noise={"z": 0.1})
    assert (cost + other)().minus2loglik == pytest.approx(cost().minus2loglik + other().minus2loglik)
    plain = cost.replace(noise_parms={"sd": "sd"}, obs=table.drop(columns="scale"))
    assert plain.parms.index.tolist() == ["k", "scale", "offset", "A0", "sd_a", "sd_b"]
    fit = modFit(cost, ["k", *START])
    fit.save(tmp_path / "fit.json")
    pd.testing.assert_series_equal(load(tmp_path / "fit.json").par, fit.par)


def test_fits_profiles_chains_and_predictions_know_them(model):
    cost = SimulationCost(model, gels(), **WORDS)
    fit = modFit(cost, ["k", *START])
    assert fit.converged
    assert (fit.par[["sd_a", "sd_b"]] > 0).all()
    assert profile(cost, fit, "scale_a").verdicts["scale_a"].startswith("identifiable")
    chain = modMCMC(cost, fit.par, niter=50, seed=1)
    assert list(chain.pars.columns) == list(fit.par.index)
    curve = predict(cost.model_of(noise_parms={"scale": "scale_a"}), fit)
    y = curve.frame[curve.frame["var"] == "y"]
    np.testing.assert_allclose(y["fit"], fit.par["scale_a"] * 10 * np.exp(-fit.par["k"] * TIMES), rtol=1e-5)
    of_state = profile(cost, fit, prediction=("A", 5.0))
    assert of_state.intervals["estimate"].iloc[0] == pytest.approx(10 * np.exp(-5 * fit.par["k"]), rel=1e-5)
    with pytest.raises(ArgumentError, match=r"differ in what they name by row .*scale = scale_a; scale = scale_b"):
        profile(cost, fit, prediction=("y", 5.0))


def test_runs_and_pictures_are_by_what_rows_name(model):
    cost = SimulationCost(model, gels(), **WORDS)
    runs = cost.run()
    assert runs["by_row"].unique().tolist() == ["scale = scale_a", "scale = scale_b"]
    (panel,) = cost.plot()
    curves = [line.get_ydata()[0] for line in panel.lines if len(line.get_xdata()) == len(TIMES)]
    assert curves == pytest.approx([15.0, 7.0])
    by_entity = SimulationCost(model, entities().iloc[:, [1, 0, 2, 3, 4, 5]], **WORDS, entity="subject")
    panels = by_entity.plot()
    assert [int(np.isnan(np.asarray(panel.lines[0].get_xdata())).sum()) for panel in panels] == [2, 2]
    plt.close("all")


@pytest.mark.parametrize(
    ("words", "error", "told"),
    [
        ({"noise_parms": {"sd": "noise"}}, DataError, r"noise_parms\['sd'\].*'noise'.* not a column"),
        ({"noise_parms": {"sd": "value"}}, ArgumentError, "so is `y`"),
        ({"noise_parms": {"sdd": "sd"}, "measurement_noise": {"y": 0.1}}, ParameterError, "'sdd' is neither"),
        ({"noise_parms": ["scale", "sd"], "parms": {}}, ParameterError, "row 0 is 'scale_a'.*parms={'scale_a'"),
        ({"noise_parms": 3}, ArgumentError, "got int"),
        ({"noise_parms": {}}, ArgumentError, "is empty"),
        ({"noise_parms": {"scale": "scale"}, "parms": {"scale_a": 1, "scale_b": 1}}, ArgumentError, "uses 'sd'.*parms"),
        ({"parms": {**START, "other": 1.0}}, ParameterError, "'other' is used nowhere"),
        ({"noise_parms": ["sd"], "parms": {"sd_a": -0.1, "sd_b": 0.2}}, ParameterError, "sd_a.*not below zero"),
        ({"x": None}, ArgumentError, "single readings"),
    ],
)
def test_what_cannot_be_is_told(model, words, error, told):
    table = gels().drop(columns=["time"]) if "x" in words else gels()
    with pytest.raises(error, match=told):
        SimulationCost(model, table, **WORDS | words)


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        (None, "column 'sd' in row 7 is empty.*depends on 'sd'"),
        ("", "row 7 is empty"),
        (np.inf, "row 7 is inf; a finite"),
        (True, "row 7 is True"),
        ("sd a", "row 7 is 'sd a'; a number or"),
        ("sd_aa", "row 7 is 'sd_aa'.*Did you mean 'sd_a'"),
    ],
)
def test_a_bad_cell_is_told_with_its_row(model, cell, told):
    table = gels()
    table["sd"] = table["sd"].astype(object)
    table.loc[7, "sd"] = cell
    with pytest.raises((DataError, ParameterError), match=told):
        SimulationCost(model, table, **WORDS)


def test_a_parameter_set_twice_is_told(model):
    table = entities().iloc[:, [1, 0, 2, 3, 4, 5]]
    with pytest.raises(ParameterError, match=r"in `noise_parms`.*in `conditions`"):
        SimulationCost(model, table, **WORDS, entity="subject", conditions={"subject": ["s", "u"], "scale": [1.0, 2.0]})
    with pytest.raises(ParameterError, match="entity_parms"):
        SimulationCost(model, table, **WORDS, entity="subject", entity_parms=["scale"])


# --- whose names are those of the cells: every place of the placeholders, and every kind of cell

OWN = {"a": 2.0, "b": 0.5, "c": 0.1}
NEW = {"u": 1.7, "v": 0.8, "w": 0.4}
READ = np.array([2.1, 1.3, 0.9, 0.7])
AT = np.arange(1.0, 5.0)
CELLS = {
    "the same new name": lambda name, k: [list(NEW)[k]] * 4,
    "different names": lambda name, k: ["u", "v", "u", "v"],
    "its own name": lambda name, k: [name] * 4,
    "a name of the model": lambda name, k: [{"a": "b", "b": "c", "c": "a"}[name]] * 4,
    "a number": lambda name, k: [0.9 + k] * 4,
    "different numbers": lambda name, k: [0.9, 1.1, 0.9, 1.1],
    "some of each": lambda name, k: [name, "u", 1.2, name],
}
NOISES = {  # measurement_noise, the column of the sd, its values
    "none": ({}, None, np.ones(4)),
    "a number": ({"measurement_noise": {"y": 0.3}}, None, np.full(4, 0.3)),
    "a name": ({"measurement_noise": {"y": "sd1"}}, None, np.full(4, 0.3)),
    "a name by row": ({"measurement_noise": {"y": "sd"}}, ["sd1"] * 4, np.full(4, 0.3)),
    "names by row": ({"measurement_noise": {"y": "sd"}}, ["sd1", "sd2"] * 2, np.array([0.3, 0.2, 0.3, 0.2])),
}


@pytest.fixture(scope="module")
def curve():
    return OdeModel("d(A)/dt = -b*A", state={"A": 1.0}, outputs={"y": "a*A + c"}, times=np.linspace(0, 5, 6),
                    parms=OWN, rtol=1e-10, atol=1e-12)  # fmt: skip


@pytest.mark.parametrize("placeholders", ["a", "b", "c", "ac", "bc", "abc"])
@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("noise", NOISES)
def test_the_likelihood_is_the_one_written_out_wherever_a_placeholder_stands(curve, placeholders, kind, noise):
    cells = {name: CELLS[kind](name, k) for k, name in enumerate(placeholders)}
    words, sd_cells, sd = NOISES[noise]
    table = pd.DataFrame({"time": AT, "y": READ, **{f"of_{name}": column for name, column in cells.items()}})
    columns = {name: f"of_{name}" for name in cells}
    if sd_cells is not None:
        table, columns = table.assign(of_sd=sd_cells), columns | {"sd": "of_sd"}
    named = {c for column in cells.values() for c in column if isinstance(c, str)}
    sds = {"sd1": 0.3, "sd2": 0.2} if noise == "names by row" else {"sd1": 0.3} if "name" in noise else {}
    parms = {k: v for k, v in NEW.items() if k in named} | sds
    if kind == "a name of the model" and len(placeholders) > 1:  # a name that is set by row itself
        with pytest.raises(ParameterError, match=r"`noise_parms`: column 'of_.' in row 0 is '.', which is neither"):
            SimulationCost(curve, table, noise_parms=columns, parms=parms, **words)
        return
    cost = SimulationCost(curve, table, noise_parms=columns, parms=parms, **words)
    used = {k: v for k, v in OWN.items() if k not in cells or k in named} | parms
    assert cost.parms.to_dict() == used
    for factor in (1.0, 1.1):
        p = {k: factor * v for k, v in used.items()}
        a, b, c = (np.array([p.get(q, q) for q in cells.get(name, [name] * 4)], dtype=float) for name in "abc")
        r, s = a * np.exp(-b * AT) + c - READ, sd * (factor if sds else 1.0)
        written_out = float((r**2 / s**2 + np.log(2 * np.pi * s**2)).sum())
        assert cost(p or None).minus2loglik == pytest.approx(written_out, rel=1e-6)
        if p:
            theta = np.array([p[name] for name in cost.parms.index])
            assert cost.bind().minus2loglik(theta) == pytest.approx(written_out, rel=1e-6)
