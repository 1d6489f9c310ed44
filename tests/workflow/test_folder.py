"""The folder of results holds what belongs to the file as it stands, and nobody's files are taken away."""

from __future__ import annotations

import pandas as pd
import pytest

import fmepy as fme

DATA = "time,N\n0,9.8\n1,8.3\n2,6.2\n3,5.3\n4,4.0\n"
SCREEN, FIT, SAMPLE = "screen = {}\n", "fit = {}\n", "sample = { niter = 20 }\n"
REST = """\
data = { file = "n.csv" }
[model]
equations = "next(N) = q * N"
state = { N = "A" }
times = [0, 1, 2, 3, 4]
[parameters]
q = { start = 0.7, lower = 0.1, upper = 0.99 }
A = { start = 8.0, lower = 1.0, upper = 50.0 }
"""
ALWAYS, OF_FIT = {"report.html", "run.json"}, {"estimates.csv", "residuals.csv", "fit.json"}
OF_SCREEN, OF_SAMPLE = {"screen.csv", "collin.csv"}, {"sample.csv", "sample_summary.csv"}


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr("fmepy.workflow.report.page.render", lambda *_: "")


@pytest.fixture
def run(tmp_path):
    (tmp_path / "n.csv").write_text(DATA)

    def run(text, **words):
        (tmp_path / "n.toml").write_text(text)
        folder = fme.workflow.calibrate(tmp_path / "n.toml", **words).report.parent
        return folder, {f.name for f in folder.iterdir() if f.is_file()} - ALWAYS

    return run


def test_tables_of_steps_that_left_the_file_go_and_come_back_with_them(run):
    folder, names = run(SCREEN + FIT + SAMPLE + REST)
    assert names == OF_SCREEN | OF_FIT | OF_SAMPLE
    before = {name: (folder / name).read_bytes() for name in names}
    assert run(FIT + REST)[1] == OF_FIT
    assert run("screen = { collin = false }\n" + FIT + REST)[1] == OF_FIT | {"screen.csv"}
    assert run(SAMPLE + REST)[1] == OF_SAMPLE | OF_FIT, "the chain rests on the fit"
    assert run(SCREEN + REST)[1] == OF_SCREEN
    run(SCREEN + FIT + SAMPLE + REST)
    assert {name: (folder / name).read_bytes() for name in before} == before


def test_tables_of_another_model_go_and_those_that_still_hold_stay(run):
    text = SCREEN + FIT + SAMPLE + REST
    run(text)
    assert run(text, steps="screen")[1] == OF_SCREEN | OF_FIT | OF_SAMPLE
    assert run(text.replace("0.7", "0.6"), steps="fit")[1] == OF_FIT
    assert run(text, steps="screen")[1] == OF_SCREEN


def test_files_of_the_user_stay(run, capsys):
    folder, _ = run(SCREEN + FIT + REST)
    (folder / "notes.txt").write_text("mine")
    (folder / "ranges.csv").write_text("mine, too")
    (folder / "collin.csv").write_text("mine now")
    assert run(FIT + REST, progress=True)[1] == OF_FIT | {"notes.txt", "ranges.csv", "collin.csv"}
    assert "Removed, as they are not results of the current file: screen.csv." in capsys.readouterr().err


def test_a_fit_of_many_starts_that_left_the_file_counts_no_more(tmp_path, monkeypatch):
    (tmp_path / "two.py").write_text("def f(p):\n    x = p['x']\n    return (x**2 - 1)**2 + 0.3 * x\n")
    file, fit, many = tmp_path / "two.toml", 'fit = { method = "BFGS" }\n', "multistart = { starts = 6 }\n"
    rest = '[model]\npython = "two.py:f"\n[parameters]\nx = { start = 1.0, lower = -3, upper = 3 }\n'
    file.write_text(fit + many.replace("6", '6, method = "BFGS"') + rest)
    both = fme.workflow.calibrate(file)
    estimates = both.report.parent / "estimates.csv"
    assert pd.read_csv(estimates)["estimate"].item() == pytest.approx(-1.04, abs=0.02)
    shown = []
    monkeypatch.setattr(
        "fmepy.workflow.report.page.render", lambda task, results, *_: shown.append(sorted(results)) or ""
    )
    fme.workflow.calibrate(file, steps="fit")
    assert shown == [["fit", "multistart"]], "the report tells the estimates that are written"
    file.write_text(fit + rest)
    assert fme.workflow.calibrate(file).fit.par["x"] == pytest.approx(0.96, abs=0.02)
    assert pd.read_csv(estimates)["estimate"].item() == pytest.approx(0.96, abs=0.02)
    assert not (estimates.parent / "starts.csv").exists()
