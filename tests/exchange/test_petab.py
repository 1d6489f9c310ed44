"""PEtab problems, versions 1 and 2, against likelihoods in closed form."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fmepy as fme
from fmepy.errors import DataError, FmepyError, ModelError, ParameterError
from fmepy.exchange.formulas import parse_formula
from fmepy.language.equations import symbol
from tests.exchange.files import (
    CONVERSION,
    assignment,
    compartment,
    conversion,
    event,
    initial,
    parameter,
    problem,
    rate,
    sbml,
    signalling,
    species,
)
from tests.plotting.inspect_figures import overlapping_texts

PARAMETERS = """
parameterId parameterScale lowerBound upperBound nominalValue estimate
k1 log10 1e-3 10 0.8 1
k2 lin 0 10 0.6 1
"""
PARAMETERS_2 = """
parameterId lowerBound upperBound nominalValue estimate
k1 1e-3 10 0.8 true
k2 0 10 0.6 true
"""
PLAIN = {
    "parameters": PARAMETERS,
    "conditions": "conditionId\nc0",
    "observables": "observableId observableFormula noiseFormula\nobs_a A 0.5",
    "measurements": "observableId simulationConditionId time measurement\nobs_a c0 0 0.7\nobs_a c0 10 0.1",
}


def read(folder, version=1, model="", **tables):
    base = PLAIN if version == 1 else {"observables": PLAIN["observables"], "parameters": PARAMETERS_2}
    return fme.read_petab(problem(folder, {**base, **tables}, version, model))


def check_score(p, tolerance=1e-5):
    bound = p.cost.bind(list(p.start.index))
    theta = bound.theta0.copy()
    for j, h in enumerate(np.eye(len(theta)) * 1e-5):
        slope = (bound.minus2loglik(theta + h) - bound.minus2loglik(theta - h)) / 2e-5
        assert -2 * bound.score(theta)[j] == pytest.approx(slope, rel=tolerance, abs=tolerance)


def test_log_likelihood_chi_square_and_simulations(tmp_path):
    p = read(tmp_path)
    mod, obs = conversion([0, 10]), np.array([0.7, 0.1])
    assert p.loglik() == pytest.approx(stats.norm.logpdf(obs, mod, 0.5).sum(), abs=1e-8)
    assert p.chi2() == pytest.approx((((obs - mod) / 0.5) ** 2).sum(), abs=1e-8)
    np.testing.assert_allclose(p.simulations()["simulation"], mod, atol=1e-8)
    assert p.cost.model()["obs_a"].tolist() == p.simulations()["simulation"].tolist()
    assert p.loglik({"k1": 0.3}) == pytest.approx(stats.norm.logpdf(obs, conversion([0, 10], k1=0.3), 0.5).sum())
    with pytest.raises(ParameterError, match=r"Did you mean"):
        p.loglik({"k_1": 0.3})
    check_score(p)


def test_what_is_said_of_parameters(tmp_path):
    p = read(tmp_path)
    assert list(p.parameters.columns) == ["name", "estimated", "scale", "lower", "upper", "nominal", "prior"]
    assert p.start.to_dict() == {"k1": 0.8, "k2": 0.6}
    assert p.lower["k1"] == 1e-3
    assert p.upper["k2"] == 10
    assert p.fit_cost.parms.to_dict() == pytest.approx({"k1": np.log10(0.8), "k2": 0.6})
    assert p.fit_cost.lower.to_dict() == {"k1": -3, "k2": 0}


def test_a_fit_is_on_the_scales_within_the_bounds_and_is_written(tmp_path):
    rows = "\n".join(f"obs_a c0 {t} {v:.3f}" for t, v in zip(range(6), conversion(range(6), k1=0.3), strict=True))
    p = read(tmp_path / "a", measurements=f"observableId simulationConditionId time measurement\n{rows}")
    fit = fme.modFit(p.fit_cost)
    assert 10 ** fit.par["k1"] == pytest.approx(0.3, abs=0.01)
    assert fit.lower["k1"] == -3
    q = fme.read_petab(p.write(tmp_path / "b", fit))
    assert q.loglik() == pytest.approx(-fit.minus2loglik / 2, abs=1e-9)
    assert (tmp_path / "b" / "simulations.tsv").is_file()
    with pytest.raises(fme.errors.ArgumentError, match="already"):
        p.write(tmp_path / "b")


@pytest.mark.filterwarnings("ignore")  # of that library's own
@pytest.mark.parametrize("version", [1, 2])
def test_what_is_written_passes_the_checker_of_the_petab_library(tmp_path, version, monkeypatch):
    petab = pytest.importorskip("petab")
    from petab.v1.models.sbml_model import SbmlModel

    monkeypatch.setattr(SbmlModel, "is_valid", lambda self: True)  # the model's units are left out here
    if version == 1:
        from petab.v1 import Problem, lint_problem

        assert not lint_problem(Problem.from_yaml(str(read(tmp_path / "a").write(tmp_path / "b"))))
        return
    from petab.v2 import Problem

    measured = "modelId observableId experimentId time measurement\n- obs_a - 0 0.7\n- obs_a - 1 0.5"
    out = read(tmp_path / "a", 2, measurements=measured).write(tmp_path / "b")
    assert not Problem.from_yaml(str(out)).validate().has_errors(), petab.__version__


def test_conditions_with_numbers_names_and_start_values(tmp_path):
    p = read(
        tmp_path,
        parameters=PARAMETERS.replace("k2", "start_1").replace("0.6", "2"),
        conditions="conditionId k2 A B\nc0 0.2 start_1 -\nc1 0.4 3 0.5",
        measurements="observableId simulationConditionId time measurement\nobs_a c0 1 0.7\nobs_a c1 2 0.1",
    )
    mod = [conversion(1, 2, 0, k2=0.2), conversion(2, 3, 0.5, k2=0.4)]
    np.testing.assert_allclose(p.simulations()["simulation"], mod, atol=1e-8)
    check_score(p)


def test_the_size_of_a_compartment_in_a_condition(tmp_path):
    model = sbml(**{**CONVERSION, "InitialAssignments": [], "Species": [
        species("A", 3.0, kind="Amount", of="compartment"), species("B", 0.0, of="compartment")]})  # fmt: skip
    p = read(tmp_path, model=model, conditions="conditionId compartment\nc0 2")
    np.testing.assert_allclose(p.simulations()["simulation"], conversion([0, 10], 1.5), atol=1e-8)


def test_the_score_of_many_conditions_whose_input_comes_in_pieces(tmp_path):
    bound = fme.read_petab(signalling(tmp_path)).fit_cost.bind()
    theta = bound.theta0.copy()
    pairs = [(bound.minus2loglik(theta + h), bound.minus2loglik(theta - h)) for h in 1e-4 * np.eye(19)]
    slopes = -np.diff(np.array(pairs))[:, 0] / 2e-4
    np.testing.assert_allclose(-2 * bound.score(theta), slopes, rtol=1e-5, atol=1e-5 * np.abs(slopes).max())


def test_a_parameter_of_an_observable_alone_in_a_condition(tmp_path):
    observables = "observableId observableFormula noiseFormula\nobs_a scale*A 0.5"
    words = {"parameters": PARAMETERS + "s1 lin 0 10 2 1\n", "observables": observables}
    p = read(tmp_path, **words, conditions="conditionId scale\nc0 s1")
    np.testing.assert_allclose(p.simulations()["simulation"], 2 * conversion([0, 10]), atol=1e-8)
    check_score(p)
    with pytest.raises(DataError, match="'scale' is neither in the model nor a parameter"):
        read(tmp_path / "b", **words, conditions="conditionId scale\nc0 -")


@pytest.mark.parametrize("again", [False, True])
def test_preequilibration_with_and_without_new_starts(tmp_path, again):
    p = read(
        tmp_path,
        parameters=PARAMETERS.replace("k1 log10 1e-3 10 0.8 1\n", ""),
        conditions="conditionId k1 A\nbefore 0.3 -\nc0 0.8 " + ("2" if again else "-"),
        measurements="observableId preequilibrationConditionId simulationConditionId time measurement\n"
        "obs_a before c0 0 0.7\nobs_a before c0 1 0.1\nobs_a before c0 inf 0.1",
    )
    b = 0.3 / 0.9
    a = 2 if again else 0.6 / 0.9
    mod = [*conversion([0, 1], a, b), (a + b) * 0.6 / 1.4]
    np.testing.assert_allclose(p.simulations()["simulation"], mod, atol=1e-7)
    check_score(p)


@pytest.mark.parametrize(("cell", "value"), [("-", 3.0), ("nan", 3.0), ("5", 5.0)])
def test_a_species_that_nothing_moves_keeps_what_the_condition_before_set(tmp_path, cell, value):
    held = species("L", 1.0, of="compartment", boundary=True)
    model = sbml(**{**CONVERSION, "Species": [*CONVERSION["Species"], held]})
    p = read(
        tmp_path, model=model, observables="observableId observableFormula noiseFormula\nobs_a L 0.5",
        conditions=f"conditionId L\nbefore 3\nc0 {cell}",
        measurements="observableId preequilibrationConditionId simulationConditionId time measurement\n"
        "obs_a before c0 1 0.1",
    )  # fmt: skip
    assert p.simulations()["simulation"].tolist() == [value]


def test_formulas_may_name_other_observables(tmp_path):
    table = "observableId observableFormula noiseFormula\nobs_a 2*B 0.5\nobs_b 1+{} obs_a+0.1*obs_b"
    words = {"measurements": "observableId simulationConditionId time measurement\nobs_b c0 1 0.7"}
    p = read(tmp_path / "a", observables=table.format("obs_a"), **words)
    mod = 1 + 2 * (1 - conversion(1))
    assert p.loglik() == pytest.approx(stats.norm.logpdf(0.7, mod, mod - 1 + 0.1 * mod), abs=1e-8)
    check_score(p)
    with pytest.raises(DataError, match=r"line 3.*obs_b -> obs_b"):
        read(tmp_path / "b", observables=table.format("obs_b"), **words)
    with pytest.raises(DataError, match="'obs_a' has placeholders"):
        read(tmp_path / "c", observables=table.format("obs_a").replace("2*B", "observableParameter1_obs_a*B"), **words)


def test_overrides_by_row_of_observable_and_noise(tmp_path):
    p = read(
        tmp_path,
        parameters=PARAMETERS + "scale lin 0 10 2 1\nsd lin 0 10 0.4 1\n",
        observables="observableId observableFormula noiseFormula\n"
        "obs_a observableParameter1_obs_a*A+observableParameter2_obs_a noiseParameter1_obs_a*(1+obs_a)",
        measurements="observableId simulationConditionId time measurement observableParameters noiseParameters\n"
        "obs_a c0 0 0.7 scale;1 sd\nobs_a c0 1 0.1 3;0 0.2",
    )
    mod = np.array([2 * 1 + 1, 3 * conversion(1)])
    sd = np.array([0.4, 0.2]) * (1 + mod)
    assert p.loglik() == pytest.approx(stats.norm.logpdf([0.7, 0.1], mod, sd).sum(), abs=1e-8)
    check_score(p)


KINDS = {
    ("lin", "laplace"): lambda y, m, s: stats.laplace.logpdf(y, m, s),
    ("log", "normal"): lambda y, m, s: stats.norm.logpdf(np.log(y), np.log(m), s) - np.log(y),
    ("log10", "normal"): lambda y, m, s: stats.norm.logpdf(np.log10(y), np.log10(m), s) - np.log(y * np.log(10)),
    ("log", "laplace"): lambda y, m, s: stats.laplace.logpdf(np.log(y), np.log(m), s) - np.log(y),
    ("log10", "laplace"): lambda y, m, s: stats.laplace.logpdf(np.log10(y), np.log10(m), s) - np.log(y * np.log(10)),
}


@pytest.mark.parametrize(("scale", "distribution"), KINDS)
def test_scales_and_distributions_of_the_noise_in_the_likelihood_of_the_data(tmp_path, scale, distribution):
    p = read(
        tmp_path,
        parameters=PARAMETERS + "sd lin 0.01 10 0.3 1\n",
        observables="observableId observableFormula noiseFormula observableTransformation noiseDistribution\n"
        f"obs_a A sd {scale} {distribution}\nobs_b B 0.5 lin normal",
        measurements=PLAIN["measurements"] + "\nobs_b c0 10 0.3",
    )
    mod = conversion([0, 10])
    wanted = KINDS[scale, distribution](np.array([0.7, 0.1]), mod, 0.3).sum()
    assert p.loglik() == pytest.approx(wanted + stats.norm.logpdf(0.3, 1 - mod[1], 0.5), abs=1e-7)
    check_score(p)
    again = pickle.loads(pickle.dumps(p.cost))
    assert again.bind().minus2loglik(again.bind().theta0) == pytest.approx(-2 * p.loglik())


def test_the_picture_is_over_time_by_experiment_and_shows_what_rests(tmp_path):
    p = read(
        tmp_path,
        conditions="conditionId k2\nc0 0.6\nc1 0.3",
        observables="observableId observableFormula noiseFormula observableTransformation\n"
        "obs_a A 0.5 lin\nobs_b B 0.5 log10\nobs_c B 0.5 lin",
        measurements="observableId simulationConditionId time measurement\n"
        "obs_a c0 0 0.9\nobs_a c0 5 0.5\nobs_a c1 5 0.4\nobs_a c0 inf 0.45\nobs_a c1 0 1.1\n"
        "obs_b c0 1 0.3\nobs_b c0 2 0.4\nobs_c c0 inf 0.5\nobs_c c1 inf 0.7",
        parameters="parameterId parameterScale lowerBound upperBound nominalValue estimate\nk1 log10 1e-3 10 0.8 1",
    )  # fmt: skip
    a, b, c = p.plot({"k1": 0.7})
    points, line, later_points, later_line = a.lines[:4]
    assert points.get_xdata().tolist() == line.get_xdata().tolist() == pytest.approx([0, 5, 5.4])
    np.testing.assert_allclose(line.get_ydata(), conversion([0, 5, 100], k1=0.7), atol=1e-6)
    assert points.get_ydata().tolist() == [0.9, 0.5, 0.45]
    assert later_points.get_ydata().tolist() == [1.1, 0.4]
    np.testing.assert_allclose(later_line.get_ydata(), conversion([0, 5], k1=0.7, k2=0.3), atol=1e-6)
    assert [t.get_text() for t in a.get_legend().get_texts()] == ["c0", "c1"]
    assert (a.get_yscale(), b.get_yscale(), a.get_xlabel(), a.get_ylabel()) == ("linear", "log", "time", "obs_a")
    assert [t.get_text() for t in a.texts] == ["at rest"]
    a.figure.canvas.draw()
    highest = a.transData.transform((0, max(y for one in a.lines[:4] for y in one.get_ydata())))[1]
    assert a.texts[0].get_window_extent().y0 > highest + 3  # above every point
    assert [t.get_text() for t in c.get_xticklabels()] == ["c0", "c1"]
    assert c.get_xlabel() == "at rest"
    assert [x for one in c.lines[::2] for x in one.get_xdata()] == [0, 1]
    assert not overlapping_texts(a.figure)
    assert len(p.plot(which="obs_b")) == 1
    with pytest.raises(FmepyError, match="obs_z"):
        p.plot(which="obs_z")


# --- version 2


def test_periods_of_an_experiment_and_expressions_of_states(tmp_path):
    p = read(
        tmp_path, 2,
        conditions="conditionId targetId targetValue\nstart k2 0.1*time+2*k2\nmore A A+5*k1\nless B B/2",
        experiments="experimentId time conditionId\ne0 1 start\ne0 3 more\ne0 3 less",
        measurements="observableId experimentId time measurement\nobs_a e0 1 1\nobs_a e0 2 1\n"
        "obs_a e0 3 1\nobs_a e0 4 1",
    )  # fmt: skip
    a = conversion([0, 1, 2], k2=1.3)
    second = a[2] + 4, (1 - a[2]) / 2
    mod = [a[0], a[1], second[0], conversion(1, *second, k2=1.3)]
    np.testing.assert_allclose(p.simulations()["simulation"], mod, atol=1e-7)
    check_score(p)


def test_a_period_at_rest_comes_first(tmp_path):
    p = read(
        tmp_path, 2, parameters=PARAMETERS_2.replace("k1 1e-3 10 0.8 true\n", ""),
        conditions="conditionId targetId targetValue\nrest k1 0.3\nrun k1 0.8\nrun A 2",
        experiments="experimentId time conditionId\ne0 -inf rest\ne0 0 run",
        measurements="observableId experimentId time measurement\nobs_a e0 0 1\nobs_a e0 1 1",
    )  # fmt: skip
    np.testing.assert_allclose(p.simulations()["simulation"], conversion([0, 1], 2, 0.3 / 0.9), atol=1e-7)
    check_score(p)


@pytest.mark.parametrize("target", ["k1", "d"])
def test_what_the_model_computes_at_the_start_stays_when_a_later_condition_sets_it_or_what_it_is_made_of(
    tmp_path, target
):
    names = [parameter("A", 1.0, False), parameter("k1", 0.5), parameter("k2", 0.1), parameter("d")]
    p = read(
        tmp_path, 2, model=sbml(Parameters=names, InitialAssignments=[initial("d", "2*k1*k2")], Rules=[rate("A", "d")]),
        parameters="parameterId lowerBound upperBound nominalValue estimate\nk2 1e-3 10 0.1 true",
        conditions=f"conditionId targetId targetValue\nc {target} 0.7*k2",
        experiments="experimentId time conditionId\ne0 0 -\ne0 1 c",
        measurements="observableId experimentId time measurement\nobs_a e0 1 1\nobs_a e0 2 1\nobs_a - 2 1",
    )  # fmt: skip
    np.testing.assert_allclose(p.simulations()["simulation"], [1.1, 1.17 if target == "d" else 1.2, 1.2], atol=1e-7)
    check_score(p)


@pytest.mark.parametrize("varying", [False, True])
def test_concentrations_stay_where_a_condition_sets_the_size_of_their_compartment(tmp_path, varying):
    words = {"Compartments": [compartment("compartment", 2.0, constant=not varying)]}
    grows = [rate("compartment", "0 * k1")] if varying else []
    p = read(
        tmp_path, 2, model=sbml(**{**CONVERSION, **words, "Rules": grows}),
        conditions="conditionId targetId targetValue\nlarge compartment 4\nmore compartment compartment*2\nmore A A+3",
        experiments="experimentId time conditionId\ne0 0 -\ne0 1 large\ne1 0 -\ne1 1 more",
        measurements="observableId experimentId time measurement\n"
        "obs_a e0 1 1\nobs_a e0 2 1\nobs_a e1 1 1\nobs_a e1 2 1",
    )  # fmt: skip
    a = conversion([1, 2])
    mod = [*a, a[0] + 3, conversion(1, a[0] + 3, 1 - a[0])]
    np.testing.assert_allclose(p.simulations()["simulation"], mod, atol=1e-7)
    check_score(p)


@pytest.mark.parametrize(
    ("trigger", "does", "set_to", "wanted"),
    [
        ("time >= 5", {"n": "n + 1", "A": "A + 1"}, 10, [(1.4, 0), (11, 1), (11.1, 1)]),
        ("time > 5", {"n": "n + 1", "A": "A + 1"}, 10, [(1.4, 0), (10, 0), (11.1, 1)]),
        ("A > 3", {"n": "n + A", "A": "A - 5"}, 10, [(1.4, 0), (5, 10), (5.1, 10)]),
        ("A < 3", {"n": "n + 1"}, 1, [(1.4, 0), (1, 0), (1.1, 0)]),
        ("A >= 1.5", {"n": "n + 1"}, 1.2, [(1.4, 0), (1.2, 0), (1.3, 0)]),
        ("time >= 5 && A > 3", {"n": "n + 1"}, 10, [(1.4, 0), (10, 1), (10.1, 1)]),
    ],
)
def test_events_at_the_beginning_of_a_period_come_after_what_its_condition_sets(
    tmp_path, trigger, does, set_to, wanted
):
    p = growing(
        tmp_path, event(trigger, does), f"c A {set_to}", "experimentId time conditionId\ne0 0 -\ne0 5 c", (4, 5, 6)
    )
    close = np.array(wanted, dtype=float).ravel()
    np.testing.assert_allclose(p.simulations()["simulation"], close, atol=1e-7)
    if set_to != 1.2:  # there the trigger touches its border at the nominal rate
        check_score(p)


@pytest.mark.parametrize(
    ("trigger", "initial", "wanted"),
    [("A > 3", False, [(4, 5), (4.1, 5)]), ("A > 3", True, [(5, 0), (5.1, 0)]), ("A > 6", False, [(5, 0), (5.1, 0)])],
)
def test_events_at_the_start_of_an_experiment_see_what_its_condition_sets(tmp_path, trigger, initial, wanted):
    does = event(trigger, {"n": "n + A", "A": "A - 1"}, initial=initial)
    p = growing(tmp_path, does, "c A 10*k1+4", "experimentId time conditionId\ne0 0 c", (0, 1))
    np.testing.assert_allclose(p.simulations()["simulation"], np.array(wanted, dtype=float).ravel(), atol=1e-7)
    check_score(p)


def growing(folder, does, condition, experiments, times):
    """Return the problem of A' = k1 = 0.1 with an event, measured together with n at some times."""
    names = [parameter("A", 1.0, False), parameter("k1", 0.1), parameter("n", 0.0, False)]
    rows = "\n".join(f"{o} e0 {t} 1" for t in times for o in ("obs_a", "obs_n"))
    return read(
        folder, 2, model=sbml(Parameters=names, Rules=[rate("A", "k1")], Events=[does]), experiments=experiments,
        parameters="parameterId lowerBound upperBound nominalValue estimate\nk1 1e-3 10 0.1 true",
        observables="observableId observableFormula noiseFormula\nobs_a A 0.5\nobs_n n 0.5",
        conditions=f"conditionId targetId targetValue\n{condition}",
        measurements=f"observableId experimentId time measurement\n{rows}",
    )  # fmt: skip


@pytest.mark.parametrize(("event_words", "wanted"), [({}, 5.0), ({"delay": "1"}, 5.0)])
def test_a_model_with_delayed_events_comes_to_rest_before_it_is_measured(tmp_path, event_words, wanted):
    values = [parameter("x", 1.0, False), parameter("y", 0.0, False), parameter("k", 0.003)]
    model = sbml(
        Parameters=values, Rules=[rate("x", "k*(5-x)")], Events=[event("x > 1.01", {"y": "y+1"}, **event_words)]
    )
    p = read(
        tmp_path, 2, model, parameters="parameterId lowerBound upperBound nominalValue estimate\nk 1e-4 1 0.003 true",
        observables="observableId observableFormula noiseFormula\no x+0*y 1\nn y 1",
        measurements="observableId experimentId time measurement\no e 4 5\nn e 4 5",
        experiments="experimentId time conditionId\ne -inf -\ne 0 -",
    )  # fmt: skip
    assert p.simulations()["simulation"].tolist() == pytest.approx([wanted, 1.0])  # it is due once


def test_parameters_that_events_change_or_a_mapping_names_have_the_values_of_the_problem(tmp_path):
    values = [parameter("x", 1.0, False), parameter("k", 0.8, False), parameter("r", None, False), parameter("a", 1.0)]
    words = {"Parameters": values, "Rules": [rate("x", "-k*x"), assignment("r", "2*a")],
             "Events": [event("time >= 1", {"k": "a*k"})]}  # fmt: skip
    tables = {
        "parameters": "parameterId lowerBound upperBound nominalValue estimate\nk 0.1 5 0.5 true\nb 0.1 5 2 true",
        "observables": "observableId observableFormula noiseFormula\no x 1",
        "measurements": "observableId experimentId time measurement\no - 2 0.5",
        "mappings": "petabEntityId modelEntityId\nb a",
    }
    p = read(tmp_path, 2, sbml(**words), **tables)
    assert p.simulations()["simulation"].tolist() == pytest.approx([np.exp(-1.5)])
    check_score(p)
    tables["parameters"] = tables["parameters"].replace("k 0.1", "r 0.1")
    with pytest.raises(DataError, match="line 2, column 'parameterId': 'r' has a rule in the model"):
        read(tmp_path / "rule", 2, sbml(**words), **tables)


def test_what_an_event_at_a_border_begins_happens_there_too(tmp_path):
    names = [parameter(n, 0.0, False) for n in ("x", "n", "y")] + [parameter("a", 1.0)]
    events = [event("n > 0.5", {"x": "x + a"}, priority="1"), event("x > 1.5", {"y": "x"}),
              event("x > 0.5", {"y": "10"}, delay="0.5", persistent=False),
              event("y > 1.5", {"x": "0"})]  # fmt: skip
    p = read(
        tmp_path, 2, sbml(Parameters=names, Rules=[rate("x", "0.25*a")], Events=events),
        parameters="parameterId lowerBound upperBound nominalValue estimate\na 0.1 5 1 true",
        observables="observableId observableFormula noiseFormula\no 100*x+y 1", conditions=
        "conditionId targetId targetValue\nc n 1\nc x x+0.5", experiments="experimentId time conditionId\ne 0 -\ne 1 c",
        measurements="observableId experimentId time measurement\no e 0.5 1\no e 1 1\no e 1.75 1",
    )  # fmt: skip
    assert p.simulations()["simulation"].tolist() == pytest.approx([12.5, 1.75, 20.5])


@pytest.mark.parametrize("border", [0.7, 1.329, 2.219, 3.583, 40.1])
def test_an_event_due_at_a_border_happens_once(tmp_path, border):
    values = [parameter("x", 0.0, False), parameter("n", 0.0, False), parameter("a", 1.0)]
    once = event(f"time >= {border}", {"n": "n+1"})
    p = read(
        tmp_path, 2, sbml(Parameters=values, Rules=[rate("x", "a-x")], Events=[once]),
        parameters="parameterId lowerBound upperBound nominalValue estimate\na 0.1 5 1 true",
        observables="observableId observableFormula noiseFormula\no n 1", conditions=
        "conditionId targetId targetValue\nc x 1", measurements="observableId experimentId time measurement\no e 50 1",
        experiments=f"experimentId time conditionId\ne 0 -\ne {border} c",
    )  # fmt: skip
    assert p.simulations()["simulation"].tolist() == [1.0]


def test_log_normal_noise_and_named_placeholders(tmp_path):
    p = read(
        tmp_path, 2,
        observables="observableId observableFormula noiseFormula noiseDistribution observablePlaceholders "
        "noisePlaceholders\nobs_a offset+A sd log-normal offset sd",
        measurements="observableId experimentId time measurement observableParameters noiseParameters\n"
        "obs_a - 0 0.7 0.5 0.3",
    )  # fmt: skip
    assert p.loglik() == pytest.approx(KINDS["log", "normal"](0.7, 1.5, 0.3), abs=1e-8)


# --- priors


def test_priors_are_truncated_at_the_bounds(tmp_path):
    p = read(
        tmp_path,
        parameters="parameterId parameterScale lowerBound upperBound nominalValue estimate objectivePriorType "
        "objectivePriorParameters\nk1 log10 0.1 10 0.8 1 parameterScaleNormal 0;1\nk2 lin 0 1 0.6 1 laplace 0.5;0.2",
    )
    mass = stats.norm.cdf(1) - stats.norm.cdf(-1)
    wanted = stats.norm.logpdf(np.log10(0.8)) - np.log(0.8 * np.log(10)) - np.log(mass)
    assert p.prior["k1"].logpdf(0.8) == pytest.approx(wanted)
    inside = stats.laplace.cdf(1, 0.5, 0.2) - stats.laplace.cdf(0, 0.5, 0.2)
    assert p.prior["k2"].logpdf(0.6) == pytest.approx(stats.laplace.logpdf(0.6, 0.5, 0.2) - np.log(inside))
    assert p.prior["k2"].logpdf(1.1) == -np.inf
    assert fme.modFit(p.cost, p.start, prior=p.prior, lower=p.lower, upper=p.upper).par["k2"] < 1
    for verb in (fme.modFit, fme.modMCMC):  # of log10(k1), where 10 ** 0.2 would have the density of 0.2
        with pytest.raises(ParameterError, match=r"those of 'k1' are densities of the parameter.*log10\(k1\)"):
            verb(p.fit_cost, {"k1": 0.2, "k2": 0.5}, prior=p.prior)
        assert verb(p.fit_cost, {"k2": 0.6}, prior={"k2": p.prior["k2"]}) is not None


@pytest.mark.parametrize(("scale", "kind"), [("log10", "-"), ("log", "parameterScaleUniform"), ("lin", "-")])
def test_a_prior_between_the_bounds_has_a_density_at_them(tmp_path, scale, kind):
    p = read(
        tmp_path,
        parameters="parameterId parameterScale lowerBound upperBound nominalValue estimate objectivePriorType\n"
        f"k1 {scale} 0.001 0.7 0.1 1 {kind}\nk2 lin 0 1 0.6 0 -",
    )
    own = stats.uniform(0.001, 0.699) if scale == "lin" else stats.loguniform(0.001, 0.7)
    ends = np.array([0.001, 0.7])
    np.testing.assert_allclose(p.prior["k1"].logpdf(ends), own.logpdf(0.1) - np.log(ends / 0.1) * (scale != "lin"))


WORDS = ("initializationPriorType", "-", "normal")


@pytest.mark.parametrize("words", ["Laplace 0;0", "Laplace 0;-1", "Normal 900;1", "Uniform 1;0", "Uniform 2;3"])
def test_priors_of_logarithms_without_density_are_refused(tmp_path, words):
    table = f"{PARAMETERS.split()[0]} parameterScale lowerBound upperBound nominalValue estimate objectivePriorType "
    with pytest.raises(DataError, match="has no density between the bounds"):
        read(tmp_path, parameters=f"{table}objectivePriorParameters\nk1 log10 1e-3 10 0.8 1 parameterScale{words}")


def test_bounds_that_are_missing_or_leave_the_nominal_value_out_are_told(tmp_path):
    with pytest.warns(UserWarning, match="outside their bounds.*begin: 'k1'.*") as told:
        read(tmp_path / "a", parameters=PARAMETERS.replace("0.8", "11"))
    assert len(told) == 1
    with pytest.warns(UserWarning, match="Estimated without bounds.*: 'k2'"):
        p = read(tmp_path / "b", parameters=PARAMETERS.replace("k2 lin 0 10 0.6", "k2 lin 2 - -"))
    assert p.start["k2"] == 2  # and not 1, where no fit could begin
    table = "\n".join(f"{line} {cell}" for line, cell in zip(PARAMETERS.strip().split("\n"), WORDS, strict=True))
    with pytest.warns(UserWarning, match="initialization priors of 'k2' are not read: starts are drawn evenly"):
        read(tmp_path / "c", parameters=table)


def test_an_estimated_parameter_that_every_condition_sets_or_nothing_feels_is_told(tmp_path):
    table = "conditionId k1 k2\nc0 0.3 -\nc1 {} 0.5"
    read(tmp_path / "a", conditions=table.format("-"), measurements=PLAIN["measurements"] + "\nobs_a c1 1 0.5")
    for name, cell, rows in (("b", "-", ""), ("c", "0.4", "\nobs_a c1 1 0.5")):
        with pytest.warns(UserWarning, match="no reading depends on 'k1', which"):
            read(tmp_path / name, conditions=table.format(cell), measurements=PLAIN["measurements"] + rows)
    with pytest.warns(UserWarning, match="no reading depends on 's', which"):
        read(
            tmp_path / "d", parameters=PARAMETERS + "s lin 0 1 0.5 1",
            observables="observableId observableFormula noiseFormula\nobs_a A+0*s 0.5",
        )  # fmt: skip


# --- formulas


@pytest.mark.parametrize(
    ("formula", "value"),
    [("-2^4", -16), ("2^2^3", 256), ("9 * 3 ^ -2", 1), ("1 + true", 2), ("true || false && false", 0),
     ("piecewise(1, 2 > 3, 5)", 5), ("log(8, 2)", 3), ("arccoth(2)", np.arctanh(0.5)), ("!(1 < 2)", 0)],
)  # fmt: skip
def test_formulas_have_the_meaning_of_petab(formula, value):
    assert float(parse_formula(formula, symbol)) == pytest.approx(value)


@pytest.mark.parametrize(
    "formula", ["2 +", "f(x)", "__import__('os')", "a.b", "(1", "1 2", "(" * 300, "piecewise(1, 2)"]
)
def test_formulas_that_are_none_are_refused_with_their_place(formula):
    with pytest.raises(DataError, match="character"):
        parse_formula(formula, symbol, "here")


# --- bad input


@pytest.mark.parametrize(
    ("table", "text", "told"),
    [
        ("observables", "observableId observableFormula noiseFormula\nobs_a A2 0.5", "observables.tsv, line 2"),
        ("observables", "observableId observableFormula\nobs_a A", "'noiseFormula' is missing"),
        ("measurements", PLAIN["measurements"] + "\nobs_a c9 1 1", "line 4.*no condition 'c9'"),
        ("measurements", PLAIN["measurements"] + "\nobs c0 1 1", "Did you mean 'obs_a'"),
        ("measurements", PLAIN["measurements"] + "\nobs_a c0 - 1", "line 4, column 'time': this cell is empty"),
        ("measurements", PLAIN["measurements"] + "\nobs_a c0 one 1", "'one' is not a number"),
        ("conditions", "conditionId K1\nc0 1", "'K1' is not in the model.*Did you mean 'k1'"),
        ("conditions", "conditionId there\nc0 1", "'there' has a rule"),
        ("parameters", PARAMETERS + "k1 lin 0 1 1 1", "'k1' is there twice"),
        ("parameters", PARAMETERS + "k3 lin 2 1 1 1", "bound 2 of 'k3' is not below the upper one, 1"),
        ("parameters", PARAMETERS + "k3 lin 1 1 1 1", "line 4, column 'lowerBound'.* not below the upper one"),
        ("parameters", PARAMETERS + "k3 ln 0 1 1 1", "'ln' is not one of"),
        ("parameters", PARAMETERS + "k3 lin 0 1 - 0", "needs a value"),
        ("parameters", PARAMETERS.replace("k1", "k11"), "line 2.*'k11' is in no model.* Did you mean 'k1'"),
        ("parameters", PARAMETERS.replace("parameterScale", "parameterScal"), "Did you mean 'parameterScale'"),
        ("measurements", "observableId simulationConditionId time measurement", "there is no row"),
        (
            "parameters",
            "parameterId parameterScale lowerBound upperBound nominalValue estimate objectivePriorType "
            "objectivePriorParameters\nk1 lin 0 9 1 1 normal 1;-1\nk2 lin 0 10 0.6 0 - -",
            "line 2, column 'objectivePriorParameters': the prior 'normal' with '1;-1' has no density",
        ),
        (
            "parameters",
            PARAMETERS.replace("1e-3 10 0.8", "1e-3 10 0"),
            "line 2, column 'nominalValue': 0 has no log10: the nominal value of 'k1'.*must be above zero",
        ),
    ],
)
def test_a_mistake_is_told_with_its_file_line_and_column(tmp_path, table, text, told):
    with pytest.raises(DataError, match=f"(?s){told}"):
        read(tmp_path, **{table: text})


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("parameter_file: /etc/passwd", "absolute path"),
        ("parameter_file: https://example.org/a.tsv", "absolute path or an address"),
        ("parameter_file: ../parameters.tsv", "leads out"),
        ("parameter_file: !!python/object/apply:os.system ['true']", "tags or references"),
        ("parameter_file: [&a x, *a]", "tags or references"),
        ("format_version: 9", "PEtab 1 and 2 are read"),
        ("parameter_file: {", "line"),
    ],
)
def test_problem_files_that_reach_out_are_refused(tmp_path, line, told):
    path = problem(tmp_path, PLAIN)
    key = line.split(":")[0]
    text = "\n".join(line if row.startswith(key) else row for row in path.read_text().split("\n"))
    path.write_text(text)
    with pytest.raises(DataError, match=told):
        fme.read_petab(path)


def test_a_model_that_is_not_read_is_told(tmp_path):
    with pytest.raises(ModelError, match=r"model\.xml"):
        read(tmp_path, model="<sbml/>")
    assert compartment()


def test_a_key_that_petab_does_not_know_is_told(tmp_path):
    there = Path(__file__).parents[2] / "data" / "boehm"
    for file in there.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    problem = tmp_path / "Boehm_JProteomeRes2014.yaml"
    problem.write_text(problem.read_text(encoding="utf-8") + "\nmesurement_files: [x.tsv]\n", encoding="utf-8")
    with pytest.warns(
        UserWarning, match=r"'mesurement_files' is no key of PEtab 1, .* Did you mean 'measurement_files'"
    ):
        fme.read_petab(problem)


def rewritten(path, name, change):
    file = path.parent / name
    file.write_bytes(change(file.read_bytes()))
    return path


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("measurements.tsv", lambda b: b.replace(b"time\t", b"time\tmeasurement\t").replace(b"c0\t", b"c0\t9\t"),
         "measurements.tsv, line 1: the column 'measurement' is there twice"),
        ("parameters.tsv", lambda b: b.replace(b"0.8", b"inf"), "line 2, column 'nominalValue': inf is no finite"),
        ("parameters.tsv", lambda b: b.replace(b"0.6\t1", b"-inf\t0"), "line 3, column 'nominalValue': -inf is no f"),
        ("measurements.tsv", lambda b: b.replace(b"0.7", b"0.7\t1"), "line 2: there are 5 cells, and 4 columns"),
        ("measurements.tsv", lambda b: b.replace(b"0.7", b'"0.7'), r"tsv:2: .*quotation mark"),
        ("measurements.tsv", lambda b: b.decode().encode("utf-16-le"), "tsv:1: this is no UTF-8 text; save the file"),
        ("measurements.tsv", lambda b: b.replace(b"\nobs_a", b"\n\n# a note\nnobody", 1), "line 4, .*'nobody'"),
    ],
)  # fmt: skip
def test_a_table_that_is_not_whole(tmp_path, name, change, told):
    with pytest.raises(DataError, match=f"(?s){told}"):
        fme.read_petab(rewritten(problem(tmp_path, PLAIN), name, change)).loglik()


def test_an_override_that_is_not_finite(tmp_path):
    observables = "observableId observableFormula noiseFormula\nobs_a A noiseParameter1_obs_a"
    measurements = "observableId simulationConditionId time measurement noiseParameters\nobs_a c0 0 0.7 inf"
    with pytest.raises(DataError, match="line 2, column 'noiseParameters': 'inf' has a number that is not finite"):
        read(tmp_path, observables=observables, measurements=measurements)


def test_marks_comments_and_ends_of_lines_change_nothing(tmp_path):
    wanted = read(tmp_path / "plain").loglik()
    path = problem(tmp_path / "other", PLAIN)
    rewritten(path, "parameters.tsv", lambda b: b"# of the paper\n" + b.replace(b"0.6\t1", b"0.6\t1\t # free"))
    rewritten(path, "measurements.tsv", lambda b: b.decode().replace("\n", "\r\n").encode("utf-16"))
    rewritten(path, "model.xml", lambda b: b"\xef\xbb\xbf" + b)
    p = fme.read_petab(path)
    assert p.loglik() == wanted
    assert fme.read_petab(p.write(tmp_path / "again")).loglik() == wanted
