"""Optimal designs: optima in closed form, published ones, errors shown by refits, what cannot be."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.errors import ArgumentError

DECAY = fme.OdeModel("d(A)/dt = -k * A", state={"A": "A0"}, times=[0, 10], parms={"k": 0.5, "A0": 1.0})
CHAIN = fme.OdeModel(
    "d(A)/dt = -k1*A\nd(B)/dt = k1*A - k2*B", state={"A": 1, "B": 0}, times=[0, 20], parms={"k1": 0.7, "k2": 0.2}
)
ENZYME = fme.OdeModel(
    "d(z)/dt = 0*z\nv = Vm*S/(Km + S)", state={"z": 0}, times=[0, 1], parms={"Vm": 2, "Km": 1.5, "S": 1}
)
CURVE = fme.OdeModel("d(z)/dt = 0*z\ny = a + b*t + c*t**2", state={"z": 0}, times=[-1, 1], parms=dict(a=1, b=1, c=1))


def test_a_decay_is_read_at_one_over_its_rate():
    best = fme.design(DECAY, {"k": 0.5}, times=(0, 10), n=1, sd=0.1, seed=1)
    assert best.chosen["time"].tolist() == pytest.approx([2.0], abs=1e-4)
    assert best.after["k"] == pytest.approx(0.1 * np.e / 2, rel=1e-6)
    assert np.isinf(best.before["k"])
    assert best.efficiency == pytest.approx(1, abs=1e-5)


def test_box_and_lucas():
    best = fme.design(CHAIN, {"k1": 0.7, "k2": 0.2}, times=(0, 20), n=2, variables=["B"], seed=1)
    assert best.chosen["time"].tolist() == pytest.approx([1.229, 6.858], abs=1e-3)
    four = fme.design(CHAIN, {"k1": 0.7, "k2": 0.2}, times=(0, 20), n=4, variables="B", seed=1)
    assert four.chosen["time"].tolist() == pytest.approx([1.229, 1.229, 6.858, 6.858], abs=2e-3)
    assert four.efficiency > 0.9999


def test_michaelis_and_menten_by_their_substrate():
    def at(control):
        return {"time": [0.5], "variable": ["v"]}

    best = fme.design(ENZYME, {"Vm": 2, "Km": 1.5}, candidates=at, controls={"S": (0.01, 10)}, n=2, seed=1)
    assert sorted(best.chosen["S"]) == pytest.approx([1.5 * 10 / (2 * 1.5 + 10), 10], rel=1e-3)


@pytest.mark.parametrize("criterion", ["D", "G"])
def test_a_parabola_is_read_at_its_ends_and_in_the_middle(criterion):
    table = pd.DataFrame({"time": np.repeat(np.linspace(-1, 1, 21), 3), "variable": "y"})
    best = fme.design(CURVE, {"a": 1, "b": 1, "c": 1}, candidates=table, n=6, criterion=criterion, seed=1)
    assert best.chosen["time"].tolist() == pytest.approx([-1, -1, 0, 0, 1, 1], abs=1e-9)


def by_hand(times, criterion, chosen=(0, 1, 2)):
    F = np.array([[1, t, t * t] for t in times])
    C = np.linalg.inv(F.T @ F)[np.ix_(chosen, chosen)]
    return {
        "A": -np.trace(C), "E": 1 / np.linalg.eigvalsh(C)[-1], "D": -np.log(np.linalg.det(C)),
        "ME": -np.log(np.linalg.eigvalsh(C)[-1] / np.linalg.eigvalsh(C)[0]),
    }[criterion]  # fmt: skip


@pytest.mark.parametrize(
    ("criterion", "for_"), [("A", None), ("E", None), ("ME", None), ("D", ["c"]), ("A", ["a", "c"])]
)
def test_exchanges_come_to_the_best_of_all_designs(criterion, for_):
    from itertools import combinations

    times = np.linspace(-1, 1, 9)
    best = fme.design(CURVE, {"a": 1, "b": 1, "c": 1}, candidates=pd.DataFrame({"time": times, "variable": "y"}), n=4,
                      criterion=criterion, for_=for_, sd=1, seed=1)  # fmt: skip
    chosen = (0, 1, 2) if for_ is None else [("a", "b", "c").index(n) for n in for_]
    most = max(by_hand(some, criterion, chosen) for some in combinations(times, 4))
    assert by_hand(best.chosen["time"], criterion, chosen) == pytest.approx(most, rel=1e-9)
    assert best.value == pytest.approx(most, rel=1e-6)


@pytest.mark.parametrize("criterion", ["D", "A", "E", "c"])
@pytest.mark.parametrize("for_", [None, ["a", "c"]])
def test_the_sensitivity_is_by_how_much_the_criterion_grows(criterion, for_):
    times = np.linspace(-1, 1, 9)
    at = {"time": 0.3} if criterion == "c" else for_
    best = fme.design(CURVE, {"a": 1, "b": 1, "c": 1}, candidates=pd.DataFrame({"time": times, "variable": "y"}), n=4,
                      criterion=criterion, for_=at, sd=1, seed=1)  # fmt: skip
    chosen = np.array([0, 1, 2] if for_ is None else [0, 2])

    def value(M):
        C = np.linalg.inv(M)
        if criterion == "c":
            return -(np.array([1, 0.3, 0.09]) @ C @ np.array([1, 0.3, 0.09]))
        C = C[np.ix_(chosen, chosen)]
        return {"D": -np.log(np.linalg.det(C)), "A": -np.trace(C), "E": 1 / np.linalg.eigvalsh(C)[-1]}[criterion]

    rows = np.array([[1, t, t * t] for t in times])
    M = sum(np.outer(f, f) for f in np.array([[1, t, t * t] for t in best.chosen["time"]]))
    grows = [(value(M + 1e-6 * np.outer(f, f)) - value(M - 1e-6 * np.outer(f, f))) / 2e-6 for f in rows]
    np.testing.assert_allclose(best.sensitivity["sensitivity"], grows, rtol=1e-5, atol=1e-8)


def test_a_prediction_is_read_where_it_is():
    best = fme.design(CURVE, {"a": 1, "b": 1, "c": 1}, times=(-1, 1), n=5, criterion="c", for_={"time": 0.0}, seed=1,
                      sd=1.0)  # fmt: skip
    F = np.array([[1, t, t * t] for t in best.chosen["time"]])
    assert -best.value == pytest.approx(np.linalg.inv(F.T @ F)[0, 0], rel=1e-6)
    assert best.efficiency > 0.7


def simulated(sd=0.02, times=(0.5, 1.0, 1.5)):
    rng = np.random.default_rng(2)
    return pd.DataFrame({"time": times, "A": np.exp(-0.5 * np.array(times)) + sd * rng.standard_normal(len(times))})


def test_present_readings_count_and_refits_have_the_errors_that_were_foretold():
    sd, data = 0.02, simulated()
    cost = fme.SimulationCost(DECAY, data, measurement_noise={"A": sd})
    p = {"k": 0.5, "A0": 1.0}
    later = pd.DataFrame({"time": [2, 4, 6, 8]})
    best = fme.design(cost, p, candidates=later, n=2, seed=1)
    assert (best.after < best.before).all()
    rng, found = np.random.default_rng(1), []
    times = np.concatenate([data["time"], best.chosen["time"]])
    for _ in range(200):
        obs = {"time": times, "A": np.exp(-0.5 * times) + sd * rng.standard_normal(len(times))}
        found.append(fme.modFit(cost.replace(obs=pd.DataFrame(obs)), p, hessian=False).par)
    np.testing.assert_allclose(pd.DataFrame(found).std(), best.after[["k", "A0"]], rtol=0.15)


def test_the_noise_is_the_costs_and_its_parameters_are_known_better_too():
    cost = fme.SimulationCost(DECAY, simulated(), measurement_noise={"A": "s * A"}, parms={"s": 0.1})
    best = fme.design(cost, {"k": 0.5, "A0": 1.0, "s": 0.1}, times=(0.1, 9), n=3, seed=1)
    n = 6
    assert best.after["s"] == pytest.approx(0.1 / np.sqrt(2 * n), rel=1e-2)
    assert best.before["s"] == pytest.approx(0.1 / np.sqrt(6), rel=1e-2)


def test_a_fit_says_the_noise_where_nobody_else_does():
    cost = fme.SimulationCost(DECAY, simulated(times=np.linspace(0.2, 3, 12)))
    fit = fme.modFit(cost)
    best = fme.design(cost, fit, candidates={"time": [4.0, 5.0]}, n=1, seed=1)
    np.testing.assert_allclose(best.before, fit.std_error, rtol=1e-3)
    assert any("fit's standard deviation" in note for note in best.notes)


def test_entities_are_columns_and_their_parameters_their_own():
    data = pd.concat([simulated().assign(rat=r) for r in "ab"])
    cost = fme.SimulationCost(DECAY, data, entity="rat", entity_parms=["k"], measurement_noise={"A": 0.02})
    p = {"k[a]": 0.5, "k[b]": 0.5, "A0": 1.0}
    table = pd.DataFrame({"time": [2.0, 2.0, 4.0, 4.0], "rat": list("abab")})
    best = fme.design(cost, p, candidates=table, n=2, for_=["k[b]"], seed=1)
    assert set(best.chosen["rat"]) == {"b"}
    with pytest.raises(ArgumentError, match="no column 'rat'"):
        fme.design(cost, p, candidates={"time": [2.0]}, n=1)


def test_the_cure_of_a_flat_profile_closes_it():
    growth = fme.OdeModel("d(x)/dt = Vm*x/(Km + x)*0 - Vm*x/(Km + x)", state={"x": 1.0}, times=[0, 100],
                          parms={"Vm": 0.5, "Km": 0.2})  # fmt: skip
    few = pd.DataFrame({"time": [0.1, 0.2, 0.3]})
    truth = growth(times=np.unique([0, *few["time"]]))["x"].to_numpy()[1:]
    cost = fme.SimulationCost(growth, few.assign(x=truth), measurement_noise={"x": 0.02})
    fit = fme.modFit(cost, lower=1e-3, upper=50)
    flat = fme.profile(cost, fit, which=["Km"])
    assert not flat.verdicts["Km"].startswith("identifiable")
    cure = fme.design(cost, {"Vm": 0.5, "Km": 0.2}, for_="Km", times=(0, 6), n=4, seed=1)
    assert cure.after["Km"] < 0.3 * cure.before["Km"]
    both = pd.DataFrame({"time": [*few["time"], *cure.chosen["time"]]}).sort_values("time")
    seen = both.assign(x=np.interp(both["time"], *growth(times=np.linspace(0, 6, 2001))[["time", "x"]].to_numpy().T))
    again = cost.replace(obs=seen)
    closed = fme.profile(again, fme.modFit(again, {"Vm": 0.5, "Km": 0.2}, lower=1e-3, upper=50), which=["Km"])
    assert closed.verdicts["Km"].startswith("identifiable")
    assert fme.design(cost, flat, for_="Km", times=(0, 6), n=2, seed=1).chosen.shape == (2, 2)


def test_groups_are_taken_as_wholes_and_a_budget_is_kept():
    table = pd.DataFrame({"time": [1, 2, 1, 8, 0.1, 0.2], "experiment": [1, 1, 2, 2, 3, 3], "cost": [1, 1, 2, 2, 1, 1]})
    p = {"k": 0.5, "A0": 1.0}
    best = fme.design(DECAY, p, candidates=table, n=1, by="experiment", seed=1)
    assert best.chosen["experiment"].nunique() == 1
    assert len(best.chosen) == 2
    cheap = fme.design(DECAY, p, candidates=table, budget=3.0, seed=1)
    assert cheap.chosen["cost"].sum() <= 3
    assert np.isfinite(cheap.after).all()
    with pytest.raises(ArgumentError, match="buys nothing"):
        fme.design(DECAY, p, candidates=table, budget=0.5)
    with pytest.raises(ArgumentError, match="column 'cost'"):
        fme.design(DECAY, p, candidates=table.drop(columns="cost"), budget=3)


def test_times_keep_their_distance_and_a_prior_is_averaged():
    apart = fme.design(DECAY, {"k": 0.5, "A0": 1.0}, times=(0, 10), n=4, min_gap=1.0, seed=1)
    assert np.diff(apart.chosen["time"]).min() >= 1 - 1e-6
    draws = pd.DataFrame({"k": np.geomspace(0.1, 2.5, 15)})
    robust = fme.design(DECAY, draws, times=(0, 10), n=1, sd=0.1, seed=1)
    expected = np.mean([np.log((t := robust.chosen["time"].iloc[0]) ** 2 * np.exp(-2 * k * t)) for k in draws["k"]])
    grid = np.linspace(0.05, 10, 4000)
    most = np.mean([np.log(grid**2 * np.exp(-2 * k * grid)) for k in draws["k"]], axis=0).max()
    assert expected == pytest.approx(most, abs=1e-6)


def test_a_thousand_candidates_and_twenty_readings_come_in_seconds():
    table = pd.DataFrame({"time": np.repeat(np.linspace(0.02, 10, 500), 2), "variable": ["A", "B"] * 500})
    p = {"k1": 0.7, "k2": 0.2}
    best = fme.design(CHAIN, p, candidates=table, n=20, seed=1)
    assert len(best.chosen) == 20
    assert not best.chosen.duplicated().any()
    again = fme.design(CHAIN, p, candidates=table, n=20, seed=1)
    assert again.chosen.equals(best.chosen)
    assert best.efficiency > 0.9


def test_a_variable_that_is_not_chosen_has_a_panel_like_the_others():
    text = "d(A)/dt = -k * A\nB = 1 - A"
    model = fme.OdeModel(text, state={"A": 1.0}, times=[0, 10], parms={"k": 0.5}, outputs={"weak": "0.1 * A"})
    best = fme.design(model, {"k": 0.5}, times=(0, 10), n=2, variables=["A", "weak"], sd=0.1, seed=1)
    assert set(best.chosen["variable"]) == {"A"}
    left, right = best.plot()
    left.figure.canvas.draw()
    assert right.get_position().width == pytest.approx(left.get_position().width)
    assert left.get_position().width > 0.3
    assert [text.get_text() for text in left.texts] == ["2 x"]
    assert len(left.lines[1].get_xdata()) == 1


def test_it_prints_shows_draws_and_is_saved(tmp_path):
    best = fme.design(CHAIN, {"k1": 0.7, "k2": 0.2}, times=(0, 20), n=3, seed=1)
    assert "Design of 3 readings" in repr(best)
    assert "<table" in best._repr_html_()
    assert best.to_markdown().startswith("**Design of 3 readings**")
    axes = best.plot()
    assert [ax.get_title() for ax in axes] == ["A", "B"]
    plt.close("all")
    again = fme.load(best.save(tmp_path / "design.json"))
    assert again.chosen.equals(best.chosen)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"n": 1}, "`candidates`, a table"),
        ({"n": 1, "candidates": pd.DataFrame({"time": []})}, "empty"),
        ({"n": 1, "candidates": {"day": [1.0]}}, "no column 'time'"),
        ({"n": 3, "candidates": {"time": [1.0, 2.0]}}, "taken at most once"),
        ({"n": 1, "times": (0, 10)}, "open, and the criterion is not defined"),
        ({"n": 2, "times": (5, 1)}, "crossed"),
        ({"n": 5, "times": (0, 3), "min_gap": 1.0}, "do not fit"),
        ({"n": 2, "times": (-5, 1)}, "before the model's start"),
        ({"n": 2, "times": (0, 99)}, r"after the model's end at 10\. Let it run on: model\.replace"),
        ({"n": 2, "times": (0, 10), "prior": lambda p: 0.0}, "a dict of distributions"),
        ({"n": 2, "times": (0, 10), "prior": {"kk": stats.norm(1, 1)}}, "Did you mean 'k'"),
        ({"n": 2, "candidates": {"time": [0.0, 0.0]}}, "All candidates together leave 'k' open"),
        ({"candidates": {"time": [1.0]}}, "`n`, the number"),
        ({"n": 2, "times": (0, 10), "criterion": "F"}, "criterion"),
        ({"n": 2, "times": (0, 10), "for_": "kk"}, "Did you mean 'k'"),
        ({"n": 2, "times": (0, 10), "criterion": "c"}, "is a prediction"),
        ({"n": 2, "times": (0, 10), "variables": ["B"]}, "no variable 'B'"),
        (
            {"n": 2, "candidates": lambda c: {"time": [1.0]}, "controls": {"q": (0, 1)}},
            "`controls`: there is no parameter 'q'",
        ),
        ({"n": 2, "candidates": lambda c: {"time": [1.0]}, "controls": {"A0": (1, 0)}}, "min 1 above max 0"),
        ({"n": 2, "candidates": lambda c: {"time": [1.0]}, "controls": {"A0": (1, 1)}}, "min < max is needed"),
        ({"n": 2, "candidates": lambda c: {"time": [1.0]}, "controls": {"A0": 5}}, r"two numbers \(min, max\)"),
        ({"n": 2, "candidates": lambda c: {"time": [1.0]}, "controls": {}}, "`controls` is empty"),
        ({"n": 2, "candidates": lambda c: 5, "controls": {"A0": (0, 1)}}, "`candidates`"),
        ({"n": 1, "candidates": {"time": ["soon", "late"]}}, r"`candidates\['time'\]=.*must hold numbers"),
        ({"n": 1, "candidates": {"time": [1.0, 2.0], "sd": ["a", "b"]}}, r"`candidates\['sd'\]=.*must hold numbers"),
        ({"n": 2, "times": (0, 10), "sd": "x"}, "`sd='x'` must be a positive number"),
        ({"n": 2, "times": (0, 10), "sd": {"A": 0}}, r"`sd\['A'\]=0` must be a positive number"),
        ({"n": 2, "times": (0, 10), "variables": 5}, "no variable 5"),
        ({"candidates": {"time": [1.0], "cost": [1.0]}, "budget": "x"}, "`budget='x'` must be a positive number"),
        ({"candidates": {"time": [1.0], "cost": ["dear"]}, "budget": 1}, r"`candidates\['cost'\]=.*must hold numbers"),
        ({"candidates": {"time": [1.0], "cost": [-1.0]}, "budget": 1}, "at least 0"),
        ({"n": 2, "times": (0, 10), "for_": 5}, "no parameter 5"),
        (
            {"n": 2, "times": (0, 10), "criterion": "c", "for_": {"variable": "A"}},
            r"`for_\['time'\]=None` must be a finite",
        ),
        ({"n": 2, "candidates": {"time": [1.0]}, "controls": {"A0": (0, 1)}}, "is a function"),
        ({"n": 1, "candidates": {"time": [1.0, 2.0]}, "by": "day"}, "no column 'day'"),
    ],
)
def test_what_cannot_be_is_said(words, message):
    with pytest.raises(ArgumentError, match=message):
        fme.design(DECAY, {"k": 0.5, "A0": 1.0}, **words)


@pytest.mark.parametrize("draws", [{"k": []}, {"k": ["fast"]}, {"k": [0.5, np.nan]}], ids=["none", "text", "NaN"])
def test_draws_that_are_no_numbers_are_refused_by_name(draws):
    with pytest.raises(ArgumentError, match="`p`"):
        fme.design(DECAY, pd.DataFrame(draws), times=(0, 10), n=1)


def test_a_series_of_sds_is_as_good_as_a_mapping():
    words = {"times": (0, 10), "n": 2, "seed": 1}
    by_mapping = fme.design(DECAY, {"k": 0.5}, sd={"A": 0.1}, **words)
    assert fme.design(DECAY, {"k": 0.5}, sd=pd.Series({"A": 0.1}), **words).after.equals(by_mapping.after)


def test_names_alone_stand_for_the_values_of_the_model():
    by_value = fme.design(DECAY, {"k": DECAY.parms["k"]}, times=(0, 10), n=2, sd=0.1, seed=1)
    assert fme.design(DECAY, ["k"], times=(0, 10), n=2, sd=0.1, seed=1).after.equals(by_value.after)


def test_a_prior_counts_as_information():
    seen = simulated(times=np.array([0.5, 1.0]))
    cost = fme.SimulationCost(DECAY, seen, measurement_noise={"A": 0.02})
    p, later = {"k": 0.5, "A0": 1.0}, {"time": [2.0, 4.0]}
    prior = {"k": stats.norm(0.6, 0.01), "A0": stats.gamma(4.0, scale=0.3)}
    t = np.array([0.5, 1.0, 2.0])
    J = np.stack([-t * np.exp(-0.5 * t), np.exp(-0.5 * t)], axis=1) / 0.02
    of_prior = np.diag([1 / 0.01**2, 3.0])  # of a gamma (shape - 1) / x^2
    before, after = J[:2].T @ J[:2] + of_prior, J.T @ J + of_prior
    best = fme.design(cost, p, candidates={"time": [2.0]}, n=1, prior=prior, seed=1)
    np.testing.assert_allclose(best.before, np.sqrt(np.diag(np.linalg.inv(before))), rtol=1e-5)
    np.testing.assert_allclose(best.after, np.sqrt(np.diag(np.linalg.inv(after))), rtol=1e-5)
    alone = fme.design(cost, p, candidates=later, n=1, for_="k", seed=1)
    assert best.after["k"] < 0.01 < alone.after["k"]
    of_chain = fme.design(cost, pd.DataFrame([p, p]), candidates={"time": [2.0]}, n=1, prior=prior, seed=1)
    np.testing.assert_allclose(of_chain.after, best.after)
    open_still = fme.design(DECAY, p, times=(0, 10), n=1, sd=0.1, prior=prior, seed=1)  # one reading, two parameters
    assert np.isfinite(open_still.after).all()


def test_other_askers_are_refused_with_what_to_do():
    with pytest.raises(ArgumentError, match=r"no parameter.*Did you mean 'k'"):
        fme.design(DECAY, {"kk": 0.5}, times=(0, 1), n=1)
    plain = fme.SimulationCost(DECAY, simulated(), measurement_noise={"A": 0.02})
    ahead = fme.PredictionErrorCost(DECAY, simulated(), gain={"A": {"A": 0.5}})
    both = plain + fme.SimulationCost(DECAY, simulated(times=(2.0, 3.0, 4.0)), measurement_noise={"A": 0.02})
    for other in (ahead, both, fme.transformed(plain, "log"), lambda p: p):
        with pytest.raises(ArgumentError, match="by a model, or by a SimulationCost or FimlofCost"):
            fme.design(other, {"k": 0.5}, times=(1, 3), n=1)


def test_candidates_have_the_weights_of_their_variable():
    data = simulated(times=np.linspace(0.2, 3, 12))
    p, table = {"k": 0.5, "A0": 1.0}, {"time": [2.0, 4.0]}
    weighted = fme.SimulationCost(DECAY, data, weight="std")
    said = fme.SimulationCost(DECAY, data.assign(sd=data["A"].std()).melt(["time", "sd"], var_name="name")[
        ["name", "time", "value", "sd"]], y="value", err="sd")  # fmt: skip
    best = fme.design(weighted, p, candidates=table, n=1, seed=1)
    same = fme.design(said, p, candidates=table, n=1, sd=float(data["A"].std()), seed=1)
    np.testing.assert_allclose(best.after, same.after, rtol=1e-9)
    fit = fme.modFit(weighted)
    after = fme.design(weighted, fit, candidates=table, n=1, seed=1).after
    plain = fme.SimulationCost(DECAY, data)
    unweighted = fme.design(plain, fme.modFit(plain), candidates=table, n=1, seed=1).after
    np.testing.assert_allclose(after, unweighted, rtol=1e-4)


def test_a_parameter_may_be_called_par():
    model = fme.OdeModel("d(A)/dt = -par * A", state={"A": 1.0}, times=[0, 10], parms={"par": 0.5})
    for p in (pd.Series({"par": 0.5}), pd.DataFrame({"par": [0.5]})):
        assert fme.design(model, p, times=(0, 10), n=1, seed=1).chosen["time"].iloc[0] == pytest.approx(2, abs=1e-4)


def test_a_dose_is_a_control_as_the_parameter_that_its_event_reads():
    dose = [{"var": "A", "time": 1.0, "value": "dose", "method": "add"}]
    model = fme.OdeModel("d(A)/dt = -k*A - loss", state={"A": 1.0}, times=[0, 10],
                         parms=dict(k=0.5, loss=0.1, dose=1.0), events=dose)  # fmt: skip
    best = fme.design(model, {"k": 0.5}, candidates=lambda c: {"time": [2.0, 4.0]}, controls={"dose": (0.5, 20)}, n=1,
                      sd=0.1, seed=1)  # fmt: skip
    assert best.chosen["dose"].tolist() == pytest.approx([20, 20], rel=1e-4)
    assert best.after["k"] < 0.05


def test_readings_of_profiles_are_chosen_by_day_and_depth():
    grid = fme.Grid1D(np.linspace(0, 4, 9))

    def sediment(t, O2, *, D=1.0, k=0.3):
        return fme.transport_1d(O2, grid, D=D, up=100.0).rate - k * O2

    model = fme.OdeModel(sediment, state={"O2": 50.0}, grid=grid, times=[0, 10])
    seen = {"day": [4.0, 4.0], "depth": [0.25, 2.25], "O2": [87.0, 35.0]}
    cost = fme.SimulationCost(model, seen, x=["day", "depth"], measurement_noise={"O2": 1.0})
    later = pd.DataFrame({"day": 8.0, "depth": grid.mid})
    best = fme.design(cost, {"D": 1.0, "k": 0.3}, candidates=later, n=2, seed=1)
    assert len(best.chosen) == 2
    table = pd.concat([pd.DataFrame(seen), best.chosen[["day", "depth"]].assign(O2=1.0)])
    J = cost.replace(obs=table).bind(["D", "k"]).sensitivity_rows(np.array([1.0, 0.3]))[2]
    np.testing.assert_allclose(best.after**2, np.diag(np.linalg.inv(J.T @ J)), rtol=1e-4)
    with pytest.raises(ArgumentError, match="no column 'depth', the depth of a reading"):
        fme.design(cost, {"D": 1.0}, candidates={"day": [8.0]}, n=1)


def test_readings_of_a_model_have_the_sd_of_the_fit_and_those_with_an_sd_keep_it():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": 1.0}, times=[0, 10], parms={"k": 0.5})
    t = np.arange(1.0, 7.0)
    data = pd.DataFrame({"time": t, "A": np.exp(-0.5 * t) + 0.02 * np.cos(3 * t)})
    cost = fme.SimulationCost(model, data)
    fit = fme.modFit(cost, {"k": 0.4})
    sd = fit.summary().sigma
    times = pd.DataFrame({"time": [1.0, 2.0, 3.0]})
    for thing in (model, cost):
        plain = fme.design(thing, fit, candidates=times, n=2, seed=1)
        own = fme.design(thing, fit, candidates=times.assign(sd=sd), n=2, seed=1)
        np.testing.assert_allclose(own.after, plain.after, rtol=1e-12)
        assert "the fit's standard deviation" in str(plain)
    by_hand = sd / np.sqrt(sum((s * np.exp(-fit.par["k"] * s)) ** 2 for s in (2.0, 3.0)))
    chosen = fme.design(model, fit, candidates=times, n=2, seed=1)
    assert sorted(chosen.chosen["time"]) == [2.0, 3.0]
    np.testing.assert_allclose(chosen.after, by_hand, rtol=1e-5)


def test_a_reading_without_any_sd_is_told_and_two_ways_to_say_what_may_be_read_are_refused():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": 1.0}, times=[0, 10], parms={"k": 0.5})
    told = "a reading has the standard deviation 1"
    assert told in str(fme.design(model, {"k": 0.5}, times=(0, 10), n=1, seed=1))
    assert told not in str(fme.design(model, {"k": 0.5}, times=(0, 10), n=1, sd=0.1, seed=1))
    candidates = pd.DataFrame({"time": [1.0], "sd": [0.1]})
    assert told not in str(fme.design(model, {"k": 0.5}, candidates=candidates, n=1, seed=1))
    with pytest.raises(ArgumentError, match="two ways to say what may be read"):
        fme.design(model, {"k": 0.5}, times=(0, 10), candidates=candidates, n=1, seed=1)


def two_variables(**words):
    def rates(t, x, y, *, a, b):
        return -a * x, a * x - b * y

    model = fme.OdeModel(rates, state={"x": 10.0, "y": 0.0}, parms={"a": 0.5, "b": 0.2}, times=np.linspace(0, 10, 101))
    t = np.arange(1.0, 9.0)
    data = model(times=np.r_[0, t]).iloc[1:].assign(x=lambda d: d.x * (1 + 0.02 * np.cos(9 * t)))
    return fme.SimulationCost(model, data, **words)


NOISE = [
    {"measurement_noise": {"x": "s * x", "y": "r"}, "parms": {"s": 0.1, "r": 0.3}},
    {"measurement_noise": {"x": "estimate", "y": 0.4}, "likelihood": {"y": "laplace"}},
    {"transform": {"x": "log", "y": None}, "measurement_noise": {"x": 0.1, "y": 0.2}},
]


@pytest.mark.parametrize("words", NOISE, ids=["by parameters", "estimated", "on a log scale"])
def test_a_reading_of_one_variable_has_the_noise_of_that_variable(words):
    cost = two_variables(**words)
    p = cost.parms.replace(0.0, 0.5)
    best = fme.design(cost, p, times=(0.5, 10.0), n=3, seed=1)
    both = pd.concat([pd.DataFrame(cost.obs), best.chosen.rename(columns={"variable": "which"}).assign(x=2.0, y=2.0)])
    both.loc[both["which"] == "x", "y"] = np.nan
    both.loc[both["which"] == "y", "x"] = np.nan
    names = list(p.index)
    J = cost.replace(obs=both.drop(columns="which")).bind(names).sensitivity_rows(p.to_numpy())[2]
    np.testing.assert_allclose(best.after**2, np.diag(np.linalg.inv(J.T @ J)), rtol=1e-4)


def test_an_sd_of_a_candidate_takes_the_place_of_the_noise():
    cost = two_variables(**NOISE[0])
    rows = pd.DataFrame({"time": [2.0], "variable": "x", "sd": 0.5})
    ours = fme.design(cost, cost.parms, candidates=rows, n=1, seed=1)
    names = list(cost.parms.index)
    J = cost.bind(names).sensitivity_rows(cost.parms.to_numpy())[2]
    slope = np.array([-2.0 * 10 * np.exp(-1.0), 0.0, 0.0, 0.0]) / 0.5
    M = J.T @ J + np.outer(slope, slope)
    np.testing.assert_allclose(ours.after**2, np.diag(np.linalg.inv(M)), rtol=1e-4)


@pytest.mark.parametrize("words", [{}, {"parms": {"k[1]": 0.4, "k[2]": 0.5, "k[3]": 0.6}, "entity_parms": ("k",)}])
def test_candidates_of_some_subjects_are_enough(words):
    model = fme.OdeModel("dA/dt = -k * A", state={"A": "dose"}, times=[0, 10], parms={"k": 0.5, "dose": 1.0})
    data = pd.DataFrame({"id": [1, 2, 3] * 2, "time": [1.0] * 3 + [3.0] * 3, "A": [1.2, 2.4, 3.6, 0.4, 0.9, 1.3]})
    doses = pd.DataFrame({"id": [1, 2, 3], "dose": [2.0, 4.0, 6.0]})
    cost = fme.SimulationCost(model, data, entity="id", conditions=doses, measurement_noise={"A": 0.1}, **words)
    p = cost.parms.filter(like="k")
    rows = pd.DataFrame({"id": [2], "time": [2.0]})
    best = fme.design(cost, p, candidates=rows, n=1, seed=1)
    J = cost.replace(obs=pd.concat([data, rows.assign(A=1.0)])).bind(list(p.index)).sensitivity_rows(p.to_numpy())[2]
    np.testing.assert_allclose(best.after**2, np.diag(np.linalg.inv(J.T @ J)), rtol=1e-4)


def test_times_between_bounds_are_of_one_experiment():
    model = fme.OdeModel("dA/dt = -k * A", state={"A": 1.0}, times=[0, 10], parms={"k": 0.5})
    cost = fme.SimulationCost(model, {"id": [1, 2], "time": [1.0, 2.0], "A": [0.6, 0.4]}, entity="id")
    with pytest.raises(
        ArgumentError, match="Give `candidates`, a table of possible readings with the columns 'time', 'id'"
    ):
        fme.design(cost, {"k": 0.5}, times=(0, 10), n=1, sd=0.1)


def test_times_of_modules_are_those_of_their_steps():
    model = fme.dmi.ModularModel(
        [fme.dmi.Module("m", "d(N)/dt = -k*N\nN(0) = 10")], {"k": 0.2}, times=np.arange(6.0), dt=0.5
    )
    data = pd.DataFrame({"time": [1.0, 2.0, 3.0], "N": [8.0, 6.5, 5.0]})
    for of in (model, fme.SimulationCost(model, data, measurement_noise={"N": 0.1})):
        found = fme.design(of, {"k": 0.2}, times=(0, 5), n=2, seed=1, **({"sd": 0.1} if of is model else {}))
        assert (found.chosen["time"] % 0.5 == 0).all()
        assert found.chosen["time"].max() == 5.0


def test_dates_of_a_dated_cost_are_its_times():
    days = pd.date_range("2020-03-01", periods=5, freq="2D")
    data = pd.DataFrame({"day": days, "A": DECAY(times=2.0 * np.arange(5))["A"] + [0.01, -0.02, 0.01, 0.0, -0.01]})
    cost = fme.SimulationCost(DECAY, data, x="day", unit="days")
    fit = fme.modFit(cost, ["k"])
    plain = fme.design(cost, fit, times=(1, 9), n=2, seed=1)
    dated = fme.design(cost, fit, times=("2020-03-02", "2020-03-10"), n=2, seed=1)
    pd.testing.assert_frame_equal(dated.chosen, plain.chosen)
    assert dated.plot()[0].get_xticklabels()[0].get_text().startswith("2020-03")
    plt.close("all")
    listed = pd.DataFrame({"day": ["2020-03-02", "2020-03-03", "2020-03-09"]})
    assert fme.design(cost, fit, candidates=listed, n=1).chosen["day"].tolist() == [2.0]
    with pytest.raises(ArgumentError, match="must be two bounds"):
        fme.design(cost, fit, times=(1, 5, 9), n=2)
    with pytest.raises(ArgumentError, match="`times` must hold numbers"):
        fme.design(DECAY, {"k": 0.5}, times=("2020-03-02", "2020-03-10"), n=2, sd=0.1)
    with pytest.raises(ArgumentError, match="origin='2020-03-01'` needs the unit"):
        fme.SimulationCost(DECAY, data, x="day", origin="2020-03-01")
