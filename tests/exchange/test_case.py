"""Folders to go on with: `fmepy import`, and what `fmepy calibrate` and `check` do with a PEtab problem."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fmepy.dmi import read_vensim
from fmepy.errors import ArgumentError
from fmepy.exchange.case import write_case
from fmepy.exchange.petab import read_petab
from fmepy.workflow.command import main
from tests.exchange.files import CONVERSION, conversion, event, parameter, problem, rate, sbml
from tests.exchange.test_petab import PARAMETERS, PLAIN

TIMES = (0, 1, 2, 4, 8)
ROWS = "\n".join(f"obs_a c0 {t} {conversion(t, k1=0.3) + 0.01 * (-1) ** t:.3f}" for t in TIMES)
TABLES = {
    **PLAIN,
    "parameters": PARAMETERS + "sd lin 0.001 1 0.05 0\n",
    "observables": "observableId observableFormula noiseFormula\nobs_a A sd",
    "measurements": f"observableId simulationConditionId time measurement\n{ROWS}",
}


def test_an_imported_problem_is_a_calibration_that_runs(tmp_path, capsys):
    path = problem(tmp_path / "a", TABLES)
    case = tmp_path / "case"
    assert main(["import", str(path), "--out", str(case)]) == 0
    assert sorted(p.name for p in case.iterdir()) == [
        "case.toml", "measurements.csv", "model.txt", "petab", "problem.py"
    ]  # fmt: skip
    assert "d(A)/dt" in (case / "model.txt").read_text()
    assert main(["check", str(case / "case.toml")]) == 0
    assert "2 fitted, 1 fixed" in capsys.readouterr().out
    assert main(["calibrate", str(case / "case.toml"), "--steps", "fit"]) == 0
    assert "k1" in (case / "case_report" / "estimates.csv").read_text()


def test_a_problem_is_checked_and_calibrated_at_once(tmp_path, capsys):
    path = problem(tmp_path / "a", TABLES)
    assert main(["check", str(path)]) == 0
    assert "fit, multistart, profile" in capsys.readouterr().out
    assert main(["calibrate", str(path), "--steps", "fit", "--out", str(tmp_path / "out")]) == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert f"fmepy calibrate {path}" in report
    assert "case.toml" not in report  # which is no longer there


def test_the_report_of_a_problem_is_over_time_by_experiment(tmp_path):
    path = problem(
        tmp_path / "a",
        {
            **TABLES,
            "conditions": "conditionId k2\nc0 0.6\nc1 0.3",
            "observables": "observableId observableFormula noiseFormula\nobs_a A 0.5",
            "measurements": "observableId simulationConditionId time measurement\n"
            "obs_a c0 0 0.9\nobs_a c0 5 0.5\nobs_a c1 5 0.4\nobs_a c0 inf 4.5\nobs_a c1 0 1.1",
            "parameters": "parameterId parameterScale lowerBound upperBound nominalValue estimate\n"
            "k1 log10 1e-3 10 0.8 1",
        },
    )
    assert main(["calibrate", str(path), "--steps", "fit", "--out", str(tmp_path / "out")]) == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert "could not be" not in report
    assert "obs_a: readings as points, the fitted curve, over time." in report
    assert "model from its" not in report
    assert "it predicts obs_a, in 2 experiments" in report
    row = report.partition("Suspicious readings")[2].partition("</tbody>")[0]
    assert "experiment</th>" in row
    assert ">c0</td>" in row
    assert ">∞</td>" in row
    assert "%3Ereading%3C/text" not in report


def test_ranges_and_scenarios_of_a_problem_are_over_time_by_experiment(tmp_path, capsys):
    """Each observable has its own readings: where the others have theirs it has no value, and no run has failed."""
    path = problem(
        tmp_path / "a",
        {
            **TABLES,
            "conditions": "conditionId k2\nc0 0.6\nc1 0.3",
            "observables": "observableId observableFormula noiseFormula\nobs_a A 0.5\nobs_b 2*A 0.5",
            "measurements": "observableId simulationConditionId time measurement\n"
            "obs_a c0 5 0.5\nobs_a c0 0 0.9\nobs_a c0 inf 0.45\nobs_a c1 5 0.4\nobs_a c1 0 1.1\n"
            "obs_b c0 0 1.9\nobs_b c0 5 1.1\nobs_b c1 4 1.3\nobs_b c1 7 1.2",
            "parameters": "parameterId parameterScale lowerBound upperBound nominalValue estimate\n"
            "k1 log10 1e-3 10 0.8 1",
        },
    )
    case = write_case(path, tmp_path / "case")
    more = "[ranges]\nparRange = { k1 = [0.3, 1.0] }\nnum = 4\n[scenarios]\ntable = 'what_if.csv'\n"
    case.write_text(case.read_text() + more)
    (tmp_path / "case" / "what_if.csv").write_text("scenario,k1\nlow,0.2\nhigh,0.9\n")
    assert main(["calibrate", str(case), "--steps", "fit,ranges,scenarios"]) == 0
    assert "failed" not in capsys.readouterr().err
    report = (tmp_path / "case" / "case_report" / "report.html").read_text()
    assert "could not be" not in report
    for what in ("Bands of experiment c0: obs_a over time", "experiment c1: obs_b in each scenario"):
        assert what in report
    assert "obs_a_noise" not in report
    assert "%3Ereading%3C" not in report
    ends = report.partition("At the end of the runs, experiment c0")[2].partition("</table>")[0]
    rows = {tuple(re.findall(r"<td[^>]*>([^<]*)</td>", row)[:4]) for row in ends.split("<tr>")}
    assert ("low", "obs_b", "5", f"{2 * conversion(5.0, k1=0.2):.4g}") in rows
    assert ("high", "obs_a", "∞", "0.4") in rows  # k2 / (k1 + k2)
    numbers = report.partition("Bands: mean, sd")[2].partition("</thead>")[0]
    assert re.findall(r"<th [^>]*>([^<]*)", numbers)[:4] == ["experiment", "time", "variable", "mean"]


@pytest.mark.parametrize(
    "prior",
    ["parameterScaleLaplace -0.3;0.2", "logLaplace -1;0.4", "parameterScaleUniform -1;0.5", "parameterScaleNormal 0;1"],
)
def test_every_prior_of_a_logarithm_reaches_the_calibration_file(tmp_path, prior):
    head, k1, k2 = PARAMETERS.strip().split("\n")
    told = f"{head} objectivePriorType objectivePriorParameters\n{k1} {prior}\n{k2} - -\nsd lin 0.001 1 0.05 0 - -"
    case = write_case(problem(tmp_path / "a", {**TABLES, "parameters": told}), tmp_path / "case")
    given = tomllib.loads(case.read_text())["parameters"]["k1"]["prior"]
    own, of_file = getattr(stats, given.pop("dist"))(**given), read_petab(tmp_path / "a" / "problem.yaml").prior["k1"]
    np.testing.assert_allclose(np.diff(own.logpdf([0.3, 0.8])), np.diff(of_file.logpdf([0.3, 0.8])))


def test_an_imported_model_can_be_run_by_a_file(tmp_path, capsys):
    path = tmp_path / "model.xml"
    path.write_text(sbml(**CONVERSION, Events=[event("time > 3", {"A": "2"})]))
    assert main(["import", str(path), "--out", str(tmp_path / "case")]) == 0
    text = (tmp_path / "case" / "case.toml").read_text()
    (tmp_path / "case" / "my.csv").write_text("time,A\n" + "\n".join(f"{t},{conversion(t)}" for t in TIMES))
    text = text.replace("\n[parameters]\n", '\n[data]\nfile = "my.csv"\n\n[fit]\n\n[parameters]\n').replace(
        "k1 = 0.8", "k1 = { start = 0.5 }"
    )
    (tmp_path / "case" / "case.toml").write_text(text)
    assert main(["check", str(tmp_path / "case" / "case.toml")]) == 0, capsys.readouterr()


def test_an_imported_model_is_checked_and_run_as_it_is(tmp_path, capsys):
    path, case = tmp_path / "model.xml", tmp_path / "case" / "case.toml"
    path.write_text(sbml(Parameters=[parameter("x", 1.0, False)], Rules=[rate("x", "1")]))
    assert main(["import", str(path), "--out", str(tmp_path / "case")]) == 0
    assert main(["check", str(case)]) == 0
    assert "`fmepy run` runs the model" in capsys.readouterr().out
    assert main(["run", str(case), "--no-plots"]) == 0
    time, x = (tmp_path / "case" / "case" / "outputs.csv").read_text().splitlines()[-1].split(",")
    assert (time, float(x)) == ("100", pytest.approx(101))
    assert main(["map", str(case)]) == 2
    assert "this model has none" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["problem.yaml", "model.xml", "model.txt"])
def test_what_cannot_be_read_leaves_no_folder(tmp_path, capsys, name):
    (tmp_path / name).write_text("a: [")
    assert main(["import", str(tmp_path / name), "--out", str(tmp_path / "case")]) == 2
    assert not (tmp_path / "case").exists()
    assert name in capsys.readouterr().err


def test_nothing_is_written_over(tmp_path):
    path = problem(tmp_path / "a", TABLES)
    with pytest.raises(ArgumentError, match="already"):
        write_case(path, tmp_path / "a")


MDL = """{UTF-8}
Tea Temperature = INTEG(-Heat Loss, 180) ~ Degrees ~ |
Heat Loss = (Tea Temperature - Room) / Time Constant * effect(Time) ~ Degrees/Year ~ |
Room = 70 ~ Degrees [0,100] ~ of the air |
Time Constant = 10 ~~|
effect((0,1),(4,1)) ~~|
Place: North, South ~~|
rate[Place] = 1, 2 ~~|
stock[Place] = INTEG(rate[Place], 0) ~~|
INITIAL TIME = 0 ~~|
FINAL TIME = 4 ~~|
TIME STEP = 0.5 ~~|
SAVEPER = 1 ~~|
"""


def test_an_imported_model_of_vensim_runs_and_calibrates(tmp_path, capsys):
    file, case = tmp_path / "tea.mdl", tmp_path / "case"
    file.write_text(MDL)
    assert main(["import", str(file), "--out", str(case)]) == 0
    assert sorted(p.name for p in case.iterdir()) == [
        "case.toml", "data", "documentation.csv", "model.fme", "model.toml"
    ]  # fmt: skip
    run = read_vensim(file)()
    for name in ("model.toml", "case.toml"):
        assert main(["run", str(case / name), "--output", str(tmp_path / name), "--no-plots"]) == 0
        again = pd.read_csv(tmp_path / name / "outputs.csv")
        pd.testing.assert_frame_equal(again[run.columns], run, rtol=1e-14, check_dtype=False)
    assert main(["check", str(case / "case.toml")]) == 0
    text = (case / "case.toml").read_text()
    run[["time", "Tea_Temperature"]].to_csv(case / "my.csv", index=False)
    text = text.replace("\n[model]\n", '\n[data]\nfile = "my.csv"\n\n[fit]\n\n[model]\n')
    text += "\n[parameters]\nTime_Constant = { start = 12, lower = 1, upper = 100 }\n"
    (case / "case.toml").write_text(text)
    assert main(["calibrate", str(case / "case.toml"), "--steps", "fit"]) == 0, capsys.readouterr()
    estimates = pd.read_csv(case / "case_report" / "estimates.csv")
    assert estimates["estimate"].tolist() == pytest.approx([10], rel=1e-4)


@pytest.mark.parametrize("text", ["x = GET XLS DATA('a.xls', 'b', 'c', 'd') ~~|", "x = ((1 ~~|", "", "x = 1 ~~|"])
def test_what_cannot_be_imported_ends_with_2_and_leaves_no_folder(tmp_path, capsys, text):
    file, case = tmp_path / "m.mdl", tmp_path / "case"
    file.write_text(text)
    assert main(["import", str(file), "--out", str(case)]) == 2
    said = capsys.readouterr().err
    assert "m.mdl" in said
    assert "Traceback" not in said
    assert not case.exists()
