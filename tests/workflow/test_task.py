"""A calibration file becomes data, model and cost: of every kind, on the scales that it asks for."""

from __future__ import annotations

import importlib
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.integrate import trapezoid

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.workflow.calibration import preview
from fmepy.workflow.command import main
from fmepy.workflow.file.case import read_case
from fmepy.workflow.file.prepared import read_task

GROWTH = """\
data = {{ file = "n.csv" }}
[model]
times = {{ start = 0, stop = 4, step = 1 }}
equations = "{equations}"
{more}
[parameters]
r = {{ start = 0.5 }}
K = 100
N0 = 5
"""


@pytest.fixture
def write(tmp_path):
    (tmp_path / "n.csv").write_text("time,N\n0,5\n1,8\n2,12\n3,19\n4,28\n")

    def one(text, **files):
        for name, content in files.items():
            (tmp_path / name.replace("_", ".")).write_text(content)
        (tmp_path / "case.toml").write_text(text)
        return tmp_path / "case.toml"

    return one


def task_of(path, **how):
    return read_task(read_case(path), **how)


def test_a_differential_and_a_difference_equation(write):
    task = task_of(write(GROWTH.format(equations="d(N)/dt = r*N*(1 - N/K)\\nN(0) = N0", more="")))
    assert isinstance(task.model, fme.OdeModel)
    assert task.start.to_dict() == {"r": 0.5}
    assert task.model.parms.to_dict() == {"N0": 5.0, "r": 0.5, "K": 100.0} | task.model.parms.to_dict()
    assert task.scaled_cost is task.cost
    same = fme.SimulationCost(
        fme.OdeModel("d(N)/dt = r*N*(1 - N/K)", state={"N": 5}, times=np.arange(5), parms={"r": 0.5, "K": 100}),
        pd.read_csv(task.case.file.parent / "n.csv"),
    )
    assert task.cost().model == pytest.approx(same().model, rel=1e-6)
    task = task_of(write(GROWTH.format(equations="next(N) = N + r*N*(1 - N/K)", more='state = { N = "N0" }')))
    assert isinstance(task.model, fme.DifferenceModel)


@pytest.mark.parametrize("said", ['"laplace"', '{ N = "log-normal" }'])
def test_a_word_says_how_errors_are_distributed(write, said):
    model = GROWTH.format(equations="next(N) = N + r*N*(1 - N/K)\\nN(0) = N0", more="")
    task = task_of(write(f"cost = {{ measurement_noise = {{ N = 0.3 }}, likelihood = {said} }}\n{model}"))
    y, mod = np.array([5, 8, 12, 19, 28.0]), [5.0]
    for _ in range(4):
        mod.append(mod[-1] + 0.5 * mod[-1] * (1 - mod[-1] / 100))
    wanted = stats.laplace.logpdf(y, mod, 0.3) if said == '"laplace"' else stats.lognorm.logpdf(y, 0.3, 0, mod)
    assert task.cost().minus2loglik == pytest.approx(-2 * wanted.sum())


def test_a_steady_model_takes_every_row_as_a_reading(write):
    text = """
    data = { file = "s.csv" }
    model = { kind = "steady", equations = "d(S)/dt = a - k * S", state = { S = 1 } }
    parameters = { a = { start = 1 }, k = 2 }
    """
    task = task_of(write(text, s_csv="S\n0.4\n0.6\n"))
    assert len(task.data) == 2
    assert fme.modFit(task.cost, task.start).par["a"] == pytest.approx(1.0)
    assert task.cost().model == pytest.approx(0.02)


def test_modules_with_their_data(write):
    text = """
    data = { file = "n.csv" }
    fit = {}
    [model]
    modules = ["growth.fme"]
    data = ["constants.csv"]
    times = { start = 0, stop = 4, step = 1 }
    dt = 0.25
    [parameters]
    r = { start = 0.4 }
    """
    files = {"growth_fme": "d(N)/dt = r * N * (1 - N / K)\n", "constants_csv": "name,value\nN,5\nr,0.5\nK,100\n"}
    path = write(text, **files)
    task = task_of(path)
    assert task.model.parms["r"] == 0.4
    assert task.start.to_dict() == {"r": 0.4}
    before = task.inputs
    (path.parent / "constants.csv").write_text("name,value\nN,5\nr,0.5\nK,90\n")
    after = task_of(path).inputs
    assert {k for k in before if before[k] != after[k]} == {"model"}, "the data base is an input of the model"


PYTHON = """
import numpy as np
import fmepy as fme
from beside_the_case import K

def rates(t, N, *, r=0.5, K=K):
    return r * N * (1 - N / K)

model = fme.OdeModel(rates, state={"N": "N0"}, times=np.arange(5), parms={"N0": 5})
cost = fme.SimulationCost(model, {"time": [1, 2], "N": [8.0, 12.0]})

def f(p):
    return np.array([p["a"] - 1.0, p["a"] * p["b"] - 2.0])

number = 3
"""


@pytest.mark.parametrize("name", ["model", "cost", "f"])
def test_python_names_a_model_a_cost_or_a_function(write, name):
    parameters = "a = { start = 2, scale = 'log' }\nb = 2" if name == "f" else "r = { start = 0.4 }\nK = 90"
    data = 'data = { file = "n.csv" }\n' if name == "model" else ""
    text = f'{data}model = {{ python = "case.py:{name}" }}\n[parameters]\n{parameters}\n'
    path = write(text, case_py=PYTHON)
    (path.parent / "beside_the_case.py").write_text("K = 100.0\n")
    task = task_of(path)
    if name == "f":
        fit = fme.modFit(task.scaled_cost, task.start, executor=None)
        assert np.exp(fit.par["a"]) == pytest.approx(1.0)
        assert task.model is None
        assert callable(fme.transformed(task.cost, {"a": "log"}))
    else:
        assert task.model.parms["K"] == 90
        assert fme.modFit(task.cost, task.start).par["r"] == pytest.approx(0.52, abs=0.08)
    before = task.inputs["model"]
    (path.parent / "beside_the_case.py").write_text("K = 100.0  # as before\n")
    assert task_of(path).inputs["model"] != before, "what the file imports from beside it counts"
    with pytest.raises(ArgumentError, match="runs Python, which --no-python forbids"):
        task_of(path, python=False)


def test_what_counts_of_a_python_file_is_what_it_imports_now_from_its_folder_and_below(write, monkeypatch):
    code = "from helpers_of_a_case.rates import K\ndef f(p): return [p['a'] - K]\n"
    path = write('model = { python = "case.py:f" }\nparameters = { a = { start = 1 } }\n', case_py=code)
    folder = path.parent / "helpers_of_a_case"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "rates.py").write_text("K = 2.0\n")
    monkeypatch.syspath_prepend(str(path.parent))
    theirs = importlib.import_module("helpers_of_a_case.rates")  # as a program does that calls `calibrate`
    before = task_of(path)
    (folder / "rates.py").write_text("K = 30.0\n")
    after = task_of(path)
    assert (before.cost({"a": 0.0}), after.cost({"a": 0.0})) == ([-2.0], [-30.0])
    assert before.inputs["model"] != after.inputs["model"]
    assert sys.modules["helpers_of_a_case.rates"] is theirs


def test_no_python_refuses_before_anything_is_imported(write, capsys):
    text = 'model = { python = "case.py:f" }\nparameters = { a = { start = 1 } }\n'
    path = write(text, case_py="raise SystemExit('imported')\n")
    assert main(["check", str(path), "--no-python"]) == 2
    assert "case.toml:1: `python` = 'case.py:f' runs Python, which --no-python forbids" in capsys.readouterr().err
    assert main(["check", str(path)]) == 2
    assert "case.py:1: SystemExit: imported" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("case.py:ff", "case.py holds no 'ff'. Did you mean 'f'?"),
        ("case.py:number", "must be a model, a cost or a function f(p); it is int"),
        ("cas.py:f", "Did you mean 'case.py'?"),
        ("case.py", "must name a file and what is in it, such as 'model.py:model'"),
        ("broken.py:f", "broken.py:2: SyntaxError"),
        ("fails.py:f", "fails.py:2: ZeroDivisionError"),
    ],
)
def test_what_python_cannot_give_is_told(write, capsys, named, said):
    files = {"case_py": "def f(p): return 1.0\nnumber = 3\n", "broken_py": "x = 1\nx = = 2\n", "fails_py": "\n1 / 0\n"}
    path = write(f'model = {{ python = "{named}" }}\nparameters = {{ a = {{ start = 1 }} }}\n', **files)
    assert main(["check", str(path)]) == 2
    told = capsys.readouterr().err
    assert "case.toml:1: " in told
    assert said in told


def test_a_model_of_python_needs_no_parameters(write):
    path = write('data = { file = "n.csv" }\nmodel = { python = "case.py:model" }\n', case_py=PYTHON)
    (path.parent / "beside_the_case.py").write_text("K = 100.0\n")
    task = task_of(path)
    assert set(task.start.index) == {"r", "K", "N0"}
    assert any("all 3 are fitted" in line for line in task.notes)


@pytest.mark.filterwarnings("ignore:Nothing is known of the errors")  # the file states none
def test_scales_carry_start_bounds_and_priors(write):
    text = GROWTH.format(equations="d(N)/dt = r*N*(1 - N/K)\\nN(0) = N0", more="").replace(
        "r = { start = 0.5 }\nK = 100",
        "r = { start = 0.5, lower = 0, upper = 1, scale = 'logit', prior = { dist = 'beta', a = 2, b = 3 } }\n"
        "K = { start = 100, lower = 0, upper = 1e4, scale = 'log', prior = { dist = 'gamma', a = 3, scale = 40 } }",
    )
    task = task_of(write(text))
    assert task.start["r"] == pytest.approx(0.0)
    assert task.start["K"] == pytest.approx(np.log(100))
    assert (task.lower["r"], task.upper["r"], task.lower["K"]) == (-np.inf, np.inf, -np.inf)
    assert task.upper["K"] == pytest.approx(np.log(1e4))
    grid = np.linspace(-20, 20, 401)
    for name, natural, back in (
        ("r", stats.beta(2, 3), lambda t: 1 / (1 + np.exp(-t))), ("K", stats.gamma(3, scale=40), np.exp),
    ):  # fmt: skip
        assert task.fit_prior[name].logpdf(0.3) == pytest.approx(natural.logpdf(back(0.3)))
        density = np.exp([task.chain_prior[name].logpdf(t) for t in grid])
        assert trapezoid(density, grid) == pytest.approx(1.0, rel=1e-6), "a density of what is sampled"
        pickle.loads(pickle.dumps(task.chain_prior[name]))
    mode = fme.modFit(task.scaled_cost, task.start, prior=task.fit_prior, lower=task.lower.to_dict())
    plain = fme.modFit(task.cost, {"r": 0.5, "K": 100.0}, prior={"r": stats.beta(2, 3), "K": stats.gamma(3, scale=40)})
    assert np.exp(mode.par["K"]) == pytest.approx(plain.par["K"], rel=1e-3), "the mode does not depend on the scale"


def test_entities_with_conditions_events_and_local_parameters(write):
    text = """
    data = { file = "d.csv", x = "t", entity = "who" }
    cost = { measurement_noise = { c = "estimate" }, entity_parms = "k" }
    conditions = [ { who = "a", dose = 10 }, { who = "b", dose = 20 } ]
    fit = {}
    [[events]]
    who = "a"
    var = "c"
    time = 1
    value = "boost"
    method = "add"
    [[events]]
    who = "b"
    var = "c"
    time = 2
    value = 0
    method = "add"
    [model]
    times = [0, 1, 2, 3]
    equations = "d(c)/dt = -k * c\\nc(0) = dose"
    [parameters]
    k = { start = 0.5, lower = 0.01, scale = "log" }
    "k[b]" = { start = 0.7 }
    boost = 1.5
    """
    rows = "who,t,c\na,1,6\na,2,4.5\nb,1,12\nb,3,4\nb,3,4.2\n"
    task = task_of(write(text, d_csv=rows))
    assert list(task.start.index) == ["k[a]", "k[b]", "sd_v_c"]
    assert task.start["k[a]"] == pytest.approx(np.log(0.5))
    assert task.start["k[b]"] == 0.7
    assert task.scale == {"k[a]": "log"}
    assert task.lower["sd_v_c"] == 0
    assert "d.csv: 1 of 5 rows are replicates, of a time that an earlier row has." in task.notes
    assert any("sd_v_c" in line for line in task.notes)
    assert task.model.parms["dose"] == 10, "what conditions set needs no value"
    assert fme.modFit(task.scaled_cost, task.start, lower=task.lower.to_dict()).converged


def test_forcings_in_place_and_from_a_file(write):
    more = "[forcings]\nu = { file = 'u.csv', interpolation = 'constant' }\nw = { time = [0, 4], value = [0, 1] }"
    text = GROWTH.format(equations="d(N)/dt = r*N*(1 - N/K) + u + w\\nN(0) = N0", more="") + more
    task = task_of(write(text, u_csv="time;value\n0;0,5\n2;1,5\n"))
    u, w = task.model.definition.forcings
    assert (u.method, u.values.tolist()) == ("constant", [0.5, 1.5])
    assert (w.method, w.times.tolist()) == ("linear", [0.0, 4.0])
    assert any("decimal mark is a comma" in line for line in task.notes)


def test_one_file_serves_several_forcings(write):
    more = (
        "[forcings]\nu = { file = 'all.csv', x = 'day', y = 'rain' }\nw = { file = 'all.csv', x = 'day', y = 'sun' }\n"
    )
    text = GROWTH.format(equations="d(N)/dt = r*N*(1 - N/K) + u + w\\nN(0) = N0", more="") + more
    table = "day;rain;sun;place\n0;0,5;3;here\n2;1,5;4;here\n"
    task = task_of(write(text, all_csv=table))
    u, w = task.model.definition.forcings
    assert (u.times.tolist(), u.values.tolist(), w.values.tolist()) == ([0.0, 2.0], [0.5, 1.5], [3.0, 4.0])
    assert len([line for line in task.notes if "decimal mark is a comma" in line]) == 1
    assert task.inputs["model"] != task_of(write(text, all_csv=table.replace("3", "7"))).inputs["model"]
    for old, new, said in (
        ("y = 'sun'", "y = 'sn'", "there is no column 'sn' in all.csv. Did you mean 'sun'?"),
        (", y = 'sun'", "", "there is no column 'value'; name the columns of times and values of the forcing 'w'"),
        (
            "file = 'all.csv', x = 'day', y = 'sun'",
            "time = [0, 1], value = [1, 1], y = 'sun'",
            "'w' has no file, of wh",
        ),
        ("y = 'sun'", "time = [0, 1]", "the forcing 'w' has a file; `time` is for one that is given in place."),
        ("y = 'sun'", "y = 'place'", "all.csv:2: 'here' in column 'place' is not a number."),
    ):
        with pytest.raises(fme.errors.ArgumentError) as error:
            task_of(write(text.replace(old, new), all_csv=table))
        assert said in str(error.value)


def test_both_ends_of_a_scaled_parameter_are_said(write):
    text = GROWTH.format(equations="d(N)/dt = r*N*(1 - N/K)\\nN(0) = N0", more="")
    old = next(line for line in text.split("\n") if line.startswith("r = "))
    task = task_of(write(text.replace(old, 'r = { start = 0.5, lower = 0.01, scale = "logit" }')))
    assert "  r          0.5; from 0.01 to 1; scale logit" in preview(task)


def test_titles_descriptions_and_units_are_no_inputs(write):
    text = GROWTH.format(equations="d(N)/dt = r*N*(1 - N/K)\\nN(0) = N0", more="")
    one = task_of(write(text)).inputs
    other = "title = 'x'\n" + text.replace("start = 0.5", "start = 0.5, unit = '1/d', description = 'rate'")
    task = task_of(write(other))
    assert task.inputs == one
    assert task.case.parameters["r"].unit == "1/d"
    changed = task_of(write(text.replace("start = 0.5", "start = 0.6"))).inputs
    assert {k for k in one if one[k] != changed[k]} == {"parameters"}


def test_a_file_too_large_or_too_deep_is_refused(tmp_path, capsys):
    large = tmp_path / "large.toml"
    with large.open("wb") as file:
        file.truncate(100_000_000)
    for path, text, said in (
        (large, None, "has more than 10 MB"), (tmp_path / "deep.toml", "x = " + "[" * 10**5, "nested too deeply"),
        (tmp_path / "empty.toml", "", "the key `model` is missing"),
    ):  # fmt: skip
        if text is not None:
            path.write_text(text)
        assert main(["check", str(path)]) == 2
        assert said in capsys.readouterr().err


def test_check_tells_a_function_without_data(write, capsys):
    path = write('model = { python = "case.py:f" }\nfit = {}\n[parameters]\na = { start = 1 }\nb = 2\n', case_py=PYTHON)
    (path.parent / "beside_the_case.py").write_text("K = 100.0\n")
    assert main(["check", str(path)]) == 0
    told = capsys.readouterr().out
    assert "cost        case.py:f: a function of Python" in told
    assert "data  " not in told
