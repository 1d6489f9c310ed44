"""Files that a user's Python reads are inputs where the file names them; what it imports from its folder always is."""

from __future__ import annotations

import numpy as np
import pytest

import fmepy as fme
from fmepy.workflow.command import main

CASE = """\
from pathlib import Path
import numpy as np
import pandas as pd
HERE = Path(__file__).parent
obs = pd.read_csv(HERE / "obs.csv")

def cost(p):
    weight = np.loadtxt(HERE / "weights/weight.txt")
    return (p["a"] + p["b"] * obs["time"] - obs["y"]) * weight
"""
TOML = """\
multistart = { starts = 2 }
sample = { niter = 20, chains = 2 }
[model]
python = "case.py:cost"
inputs = ["obs.csv", "weights"]
[parameters]
a = { start = 0.0, lower = -10, upper = 10 }
b = { start = 1.0, lower = -10, upper = 10 }
"""


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr("fmepy.workflow.report.page.render", lambda *_: "")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "case.py").write_text(CASE)
    (tmp_path / "obs.csv").write_text("time,y\n0,1.1\n1,2.9\n2,5.2\n3,6.8\n")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/weight.txt").write_text("1\n1\n1\n1\n")
    (tmp_path / "case.toml").write_text(TOML)
    return tmp_path / "case.toml"


def kept(file, **words):
    done = fme.workflow.calibrate(file, **words)
    return [step["kept"] for step in done.record["steps"].values()], done


def test_a_file_or_folder_that_is_named_is_an_input(file):
    before = kept(file)[1]
    assert kept(file)[0] == [True, True]
    for name, text in {"obs.csv": "time,y\n0,2\n1,4\n2,6\n3,8.1\n", "weights/weight.txt": "1\n2\n1\n1\n"}.items():
        (file.parent / name).write_text(text)
        again, done = kept(file)
        assert again == [False, False], name
        assert not np.allclose(done.multistart.par, before.multistart.par)
        before = done
    assert kept(file, executor=2)[0] == [True, True]


def test_that_inputs_are_to_be_named_is_told_where_none_are(file, capsys):
    told = "What case.py reads is an input where `inputs` in [model] names it."
    assert main(["check", str(file)]) == 0
    assert told not in capsys.readouterr().err
    file.write_text(TOML.replace('inputs = ["obs.csv", "weights"]\n', ""))
    assert main(["check", str(file)]) == 0
    assert told in capsys.readouterr().err


def test_an_input_that_is_not_there_is_a_mistake(file, capsys):
    file.write_text(TOML.replace('"weights"', '"wieghts"'))
    assert main(["check", str(file)]) == 2
    assert "case.toml:5: there is no file" in capsys.readouterr().err
