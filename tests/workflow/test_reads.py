"""Files that a user's Python reads count as inputs, whoever opens them and whenever."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

import fmepy as fme
from fmepy.workflow.command import main
from fmepy.workflow.reads import Reads

CASE = """\
from pathlib import Path
import numpy as np
import pandas as pd
HERE = Path(__file__).parent
obs = pd.read_csv(HERE / "obs.csv")
(HERE / "log.txt").write_text("imported")

def cost(p):
    weight = np.loadtxt(HERE / "weight.txt")
    return (p["a"] + p["b"] * obs["time"] - obs["y"]) * weight
"""
TOML = """\
multistart = { starts = 2 }
sample = { niter = 20, chains = 2 }
[model]
python = "case.py:cost"
[parameters]
a = { start = 0.0, lower = -10, upper = 10 }
b = { start = 1.0, lower = -10, upper = 10 }
"""


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr("fmepy.workflow.report.render", lambda *_: "")


@pytest.fixture
def file(tmp_path):
    (tmp_path / "case.py").write_text(CASE)
    (tmp_path / "obs.csv").write_text("time,y\n0,1.1\n1,2.9\n2,5.2\n3,6.8\n")
    (tmp_path / "weight.txt").write_text("1\n1\n1\n1\n")
    (tmp_path / "case.toml").write_text(TOML)
    return tmp_path / "case.toml"


def kept(file, **words):
    done = fme.workflow.calibrate(file, **words)
    return [step["kept"] for step in done.record["steps"].values()], done


@pytest.mark.parametrize("executor", [None, 2])
def test_what_a_file_reads_while_it_is_imported_and_run_is_an_input(file, executor):
    before = kept(file, executor=executor)[1]
    assert kept(file, executor=executor)[0] == [True, True]
    for name, text in {"obs.csv": "time,y\n0,2\n1,4\n2,6\n3,8.1\n", "weight.txt": "1\n2\n1\n1\n"}.items():
        (file.parent / name).write_text(text)
        (file.parent / "log.txt").write_text("what is written is no input")
        again, done = kept(file, executor=executor)
        assert again == [False, False], name
        assert not np.allclose(done.multistart.par, before.multistart.par)
        before = done
    assert set(done.record["steps"]["multistart"]["read"]) == {"case.py", "obs.csv", "weight.txt"}
    assert kept(file, executor=executor)[0] == [True, True]


def test_inputs_are_named_where_they_are_read_unseen(file, capsys):
    (file.parent / "grid").mkdir()
    (file.parent / "grid/depth.h5").write_bytes(b"1")
    file.write_text(TOML.replace("[model]", '[model]\ninputs = ["grid"]'))
    kept(file, steps="multistart")
    assert kept(file, steps="multistart")[0] == [True]
    (file.parent / "grid/depth.h5").write_bytes(b"2")
    assert kept(file, steps="multistart")[0] == [False]
    file.write_text(TOML.replace("[model]", '[model]\ninputs = "gird"'))
    assert main(["check", str(file)]) == 2
    assert "case.toml:4: there is no file or folder" in capsys.readouterr().err


def test_reads_are_those_of_the_folder_and_of_no_library_or_cache(tmp_path):
    for name in ("own/a.csv", "own/.cache/b.csv", "own/lib/site-packages/c.csv", "own/out/d.csv", "other/e.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x\n")
    sqlite3.connect(tmp_path / "own/f.sqlite").close()
    (tmp_path / "own/f.sqlite").touch()
    reads = Reads(tmp_path / "own")
    with reads.noted():
        for path in tmp_path.rglob("*.csv"):
            path.read_text()
        sqlite3.connect(tmp_path / "own/f.sqlite").close()
        (tmp_path / "own/missing.csv").exists()
    (tmp_path / "own/late.csv").write_text("")
    (tmp_path / "own/late.csv").read_text()
    names = [path.name for path in reads.files(but=tmp_path / "own/out")]
    assert names == ["a.csv", "f.sqlite"]
