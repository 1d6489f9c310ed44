"""Failures are not passed over: a step whose runs failed, or whose fit did not converge, fails, and all is told."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.journal import saving
from fmepy.workflow.command import main

BROKEN = """
def cost(p):
    if p["a"] != 0.5:
        raise ValueError(f"no column {p['a']:.2f} in the gauge")
    return (p["a"] - 2) ** 2 + p["b"] ** 2


def halves(p):
    if p["b"] > 0.31:
        raise ValueError("b is too large")
    return [p["a"] - 1, p["b"] - 0.3, 0.1, p["a"] * p["b"]]
"""
PARAMETERS = "[parameters]\na = { start = 0.5, lower = -4, upper = 4 }\nb = { start = 0.25, lower = -4, upper = 4 }\n"


def made(folder, steps, name="cost", require=""):
    (folder / "gauge.py").write_text(BROKEN)
    file = folder / "gauge.toml"
    file.write_text(f'{steps}\nmodel = {{ python = "gauge.py:{name}" }}\n{require}\n{PARAMETERS}')
    return file


def ended(file):
    """Return the exit code, the states of the steps, and the text of the report: before "task", and all of it."""
    code = main(["calibrate", str(file)])
    folder = file.parent / f"{file.stem}_report"
    record = json.loads((folder / "run.json").read_text())
    page = (folder / "report.html").read_text()
    first = re.search(r'<section id="(?:warnings|glance)".*?(?=<section id="task")', page, re.DOTALL)[0]
    return code, {name: step["state"] for name, step in record["steps"].items()}, first, page


@pytest.mark.parametrize("search", ["fit = {}", "multistart = { starts = 3 }"])
def test_a_fit_that_failed_fails_and_what_needs_it_does_not_run(tmp_path, capsys, search):
    file = made(tmp_path, f"{search}\nsample = {{ niter = 50 }}\nprofile = {{ num = 5 }}")
    for _ in range(2):  # and again where the result is kept
        code, states, first, page = ended(file)
        told = capsys.readouterr().err
        assert code == 1
        assert states == {search.split(" ")[0]: "failed", "profile": "not run", "sample": "not run"}
        for text in (first, told):
            assert "counts as failed: " in text
            assert "it did not converge" in text
            assert re.search(r"\d+ of \d+ runs failed; the first: ", text)
            assert "gauge.py:4: ValueError: no column" in text
        assert "Hardly determined" not in page, "the data are not to blame"
    asked = fme.workflow.calibrate(file)
    assert not asked.ok
    assert not (asked.fit or asked.multistart).converged


def test_the_share_of_failed_runs_is_judged_and_may_be_said(tmp_path):
    steps = "sample = { niter = 400 }\nfit = {}"
    code, states, *_ = ended(made(tmp_path, steps, "halves", "require = { failures = 0.9 }"))
    assert (code, states) == (0, {"fit": "done", "sample": "done"})
    code, states, first, _ = ended(made(tmp_path, steps, "halves", "require = { failures = 0.05 }"))
    assert (code, states["sample"]) == (1, "failed")
    assert re.search(r"\d+ of 400 runs failed; the last: .*b is too large", first)


def test_require_lets_a_fit_pass_that_did_not_converge(tmp_path, capsys):
    relaxed = "require = { converged = false, failures = 1 }"
    code, states, first, _ = ended(made(tmp_path, "fit = {}\nprofile = { num = 5 }", "cost", relaxed))
    assert (code, states) == (0, {"fit": "done", "profile": "done"})
    assert "did NOT converge" in first
    assert "gauge.py:4: ValueError" in capsys.readouterr().err


def test_of_two_fits_one_that_converged_is_enough(tmp_path):
    (tmp_path / "line.py").write_text(
        "import numpy as np\nx = np.arange(9.0)\ny = 3 * np.exp(-0.4 * x) + 0.1 * np.sin(9 * x)\n"
        "def f(p):\n    return p['a'] * np.exp(-p['b'] * x) - y\n"
    )
    steps = 'fit = { method = "Marq", control = { maxiter = 1 } }\nmultistart = { starts = 3 }\nprofile = { num = 5 }'
    file = tmp_path / "line.toml"
    file.write_text(f'{steps}\nmodel = {{ python = "line.py:f" }}\n{PARAMETERS}')
    code, states, first, _ = ended(file)
    assert (code, set(states.values())) == (0, {"done"})
    assert "did NOT converge" not in first
    assert main(["calibrate", str(file), "--steps", "fit"]) == 1, "alone it is what counts"


RUNS = """
import numpy as np, pandas as pd

def table(p):
    if p["k"] > 1.5:
        raise ArithmeticError("the pump stalls")
    t = np.arange(6.0)
    return pd.DataFrame({"time": t, "c": p["a"] * np.exp(-p["k"] * t), "d": p["k"] * t})
"""
TABLES = """
data = { file = "c.csv" }
cost = { weight = "none" }
fit = {}
model = { python = "runs.py:table" }
parameters = { a = { start = 1, lower = 0.1, upper = 9 }, k = { start = 0.3, lower = 0.01, upper = 9 } }
"""


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "runs.py").write_text(RUNS)
    t = np.arange(6.0)
    frame = pd.DataFrame({"time": t, "c": 2 * np.exp(-0.5 * t) + 0.02 * np.cos(7 * t)})
    frame.to_csv(tmp_path / "c.csv", index=False)
    (tmp_path / "what.csv").write_text("scenario,k\nslow,0.1\nfast,2\nfaster,4\n")
    return tmp_path / "c.toml"


def test_runs_of_ranges_and_scenarios_that_fail_fail_the_step(tables):
    steps = 'ranges = { num = 40, parRange = { k = [0.1, 9.0] } }\nscenarios = { table = "what.csv", num = 10 }\n'
    tables.write_text(TABLES + steps)
    code, states, first, _ = ended(tables)
    assert (code, states) == (1, {"fit": "done", "ranges": "failed", "scenarios": "failed"})
    for said in (r"\d+ of 40 runs failed; the first: ", "20 of 30 runs failed; the first: ", "the pump stalls"):
        assert re.search(said, first)


def test_a_function_that_returns_a_table_is_a_model(tables, capsys):
    steps = "screen = {}\nsample = { niter = 300, wvar0 = 1 }\nranges = { num = 9, with_error = true }\n"
    tables.write_text(TABLES + steps)
    assert main(["check", str(tables)]) == 0
    assert "model       runs.py:table: a function that returns a table" in capsys.readouterr().out
    done = fme.workflow.calibrate(tables)
    assert done.ok
    frame = pd.read_csv(tables.parent / "c.csv")
    rates = fme.OdeModel("d(c)/dt = -k * c\nc(0) = a", times=frame["time"], parms={"a": 1, "k": 0.3})
    direct = fme.modFit(fme.SimulationCost(rates, frame), ["a", "k"])
    pd.testing.assert_series_equal(done.fit.par, direct.par, rtol=1e-4)
    assert set(pd.read_csv(tables.parent / "c_report/ranges.csv")["var"]) == {"c", "d"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('weight = "none"', 'transform = "log"', "c.toml:3: `transform` is for a Model; 'runs.py:table' is a function"),
        ('weight = "none"', 'kind = "prediction_error", gain = 1', "c.toml:3: `gain` is for a Model"),
        ('file = "c.csv"', 'file = "c.csv", x = "tme"', "c.toml:2: there is no column 'tme' in c.csv"),
        ('data = { file = "c.csv" }', "", "the table [data] is missing"),
    ],
)
def test_what_only_a_model_can_do_is_told_of_a_function(tables, capsys, old, new, said):
    tables.write_text(TABLES.replace(old, new))
    assert main(["check", str(tables)]) == 2
    assert said in capsys.readouterr().err


def test_a_function_without_a_table_is_told(tables, capsys):
    tables.write_text(TABLES)
    (tables.parent / "runs.py").write_text("def table(p):\n    return p['a'] + p['k']\n")
    assert main(["calibrate", str(tables)]) == 1
    assert "the function must return a table, a column 'time' and one for each variable" in capsys.readouterr().err


MODEL = """
import fmepy as fme
from fmepy.journal import saving
model = fme.OdeModel("d(c)/dt = -k * c", state={"c": "a"}, times=[0, 5], parms={"a": 1, "k": 1})
cost = fme.SimulationCost(model, {"time": [1], "c": [1.0]})
"""


@pytest.mark.parametrize("name", ["model", "cost"])
def test_check_names_the_object_of_the_python_file(tables, capsys, name):
    (tables.parent / "runs.py").write_text(MODEL)
    data = 'data = { file = "c.csv" }\ncost = { weight = "none" }\n'
    text = TABLES.replace("table", name)
    tables.write_text(text if name == "model" else text.replace(data, ""))
    assert main(["check", str(tables)]) == 0
    said = next(text for text in capsys.readouterr().out.splitlines() if text.startswith(f"{name} "))
    assert f"runs.py:{name}: " in said


ZERO = """
data = { file = "level.csv" }
fit = {}
profile = { num = 5 }
filter = { steps = 4 }
scenarios = { table = "more.csv", num = 30 }
[cost]
kind = "fimlof"
process_noise = { level = "sd_w" }
measurement_noise = { gauge = "sd_v" }
[model]
equations = '''
next(level) = level * keep + feed
level(0) = start
'''
outputs = { gauge = "level" }
times = { start = 0, stop = 29, step = 1 }
[parameters]
keep = { start = 0.7, lower = 0, upper = 2 }
feed = { start = 1.5, lower = 0, upper = 9 }
start = { start = 4, lower = 0, upper = 30 }
sd_w = { start = 0.2 }
sd_v = { start = 0.2 }
"""


def test_bands_leave_out_the_noise_that_is_zero_alone_and_nobody_is_told_to_widen_its_bound(tmp_path):
    level, rng, rows = 5.0, np.random.default_rng(3), []
    for t in range(30):
        rows.append(f"{t},{level + 0.4 * rng.standard_normal()}")
        level = 0.8 * level + 2
    (tmp_path / "level.csv").write_text("\n".join(["time,gauge", *rows]))
    (tmp_path / "more.csv").write_text("scenario,feed\nmore,3\n")
    (tmp_path / "zero.toml").write_text(ZERO)
    done = fme.workflow.calibrate(tmp_path / "zero.toml")
    assert done.ok
    assert done.fit.at_bound == ("sd_w",)
    found = done.filter.forecast.frame
    C = done.fit.cov_scaled.drop(index="sd_w", columns="sd_w")
    pd.testing.assert_frame_equal(found, done.filter.result.forecast(4, parm_cov=C).frame)
    assert (found.loc[found["name"] == "level", "sd"] > 0.01).all(), "without the parameters it is zero"
    assert "In the bands of the forecast sd_w (on its bound) is taken as known." in "".join(done.warnings)
    assert pd.read_csv(tmp_path / "zero_report/scenarios.csv")["Sd"].max() > 0.01
    page = done.report.read_text()
    assert "widen" not in page.lower()
    assert "sd_w lies on its natural bound" in page


def test_the_advice_on_failed_runs_is_that_of_the_step(tmp_path, capsys):
    (tmp_path / "decay.py").write_text(
        'def f(p):\n    if p["k"] > 0.5:\n        raise ValueError("too fast")\n'
        '    return {"t": [0, 1], "x": [1, p["k"]]}\n'
    )
    (tmp_path / "obs.csv").write_text("t,x\n0,1\n1,0.2\n")
    file = tmp_path / "decay.toml"
    file.write_text(
        'data = { file = "obs.csv", x = "t" }\ncost = {}\nmodel = { python = "decay.py:f" }\n'
        "ranges = { num = 20, parRange = { k = [0.45, 0.9] } }\n"
        "parameters = { k = { start = 0.2 } }\nrun = { seed = 1 }\n"
    )
    assert main(["calibrate", str(file)]) == 1
    told = capsys.readouterr().err
    assert "ValueError: too fast. Take narrower ranges of the parameters (to let that pass" in told
    assert "bounds" not in told


def test_a_fit_too_large_for_its_file_is_told_and_no_failure(tmp_path, capsys, monkeypatch):
    t = np.linspace(0.01, 5, 400)
    pd.DataFrame({"time": t, "x": np.exp(-0.3 * t)}).to_csv(tmp_path / "obs.csv", index=False)
    file = tmp_path / "decay.toml"
    file.write_text(
        'data = { file = "obs.csv" }\nfit = {}\nmodel = { equations = "d(x)/dt = -k * x\\nx(0) = 1", times = [0, 5] }\n'
        "parameters = { k = { start = 0.2 } }\n"
    )
    folder = tmp_path / "decay_report"
    assert main(["calibrate", str(file)]) == 0
    size = (folder / "fit.json").stat().st_size
    file.write_text(file.read_text().replace("0.2", "0.25"))
    monkeypatch.setattr(saving, "MOST_TABLE", size - 5000)
    assert main(["calibrate", str(file)]) == 0
    assert "fit.json is left out: with so many readings" in capsys.readouterr().err
    assert not (folder / "fit.json").exists(), "that of the fit before"
    assert "fit.json" not in json.loads((folder / "run.json").read_text())["steps"]["fit"]["files"]
    assert main(["calibrate", str(file)]) == 0
    assert "fit: kept" in capsys.readouterr().err
