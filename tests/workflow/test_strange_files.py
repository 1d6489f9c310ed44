"""Wherever a file can be named, one that is no file, has no end or is far too large ends with 2, in words, at once."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from fmepy.workflow.command import main

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices are those of POSIX")

TEXT = """\
[data]
file = "DATA"
entity = "who"
[model]
equations = "d(y)/dt = -k*y + u + dose\\nd(dose)/dt = -dose"
state = { y = 1.0, dose = "first" }
times = [0, 1, 2, 3]
[forcings.u]
file = "FORCING"
[events]
file = "EVENTS"
[conditions]
file = "CONDITIONS"
[parameters]
k = { start = 0.5, lower = 0.1, upper = 2 }
[fit]
[scenarios]
table = "SCENARIOS"
"""
FILES = {
    "DATA": "time,y,who\n1,0.6,a\n2,0.4,a\n3,0.2,b\n",
    "FORCING": "time,value\n0,0\n3,0\n",
    "EVENTS": "var,time,value,method\ndose,1,1,add\n",
    "CONDITIONS": "who,first\na,1\nb,1\n",
    "SCENARIOS": "scenario,k\nbase,0.5\n",
}
OF_PYTHON = """\
[model]
python = "model.py:cost"
inputs = ["INPUT"]
[parameters]
k = 0.5
[fit]
"""
OF_MODULES = """\
modules = ["sales.fme"]
data = ["BASE"]
times = { start = 0, stop = 3, step = 1 }
dt = 1
"""


def pipe(path):
    os.mkfifo(path)


def device(path):
    path.symlink_to("/dev/zero")


def endless(path):
    path.touch()
    os.truncate(path, 10**12)  # of which nothing is on the disk


STRANGE = {pipe: "it is a pipe, not a file", device: "it is a device, not a file", endless: "it has more than "}


@pytest.fixture(autouse=True)
def in_seconds():
    """A test that waits for a pipe ends."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.alarm(30)
    yield
    signal.alarm(0)


def ends_with_2(capsys, why, *arguments):
    assert main(list(map(str, arguments))) == 2
    said = capsys.readouterr().err
    assert why in said
    assert "cannot be read" in said or "MB together" in said
    return said


@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize("name", ["case.toml", *FILES])
def test_files_of_a_calibration(tmp_path, capsys, name, make):
    (tmp_path / "case.toml").write_text(TEXT)
    for file, content in FILES.items():
        (tmp_path / file).write_text(content)
    (tmp_path / name).unlink()
    make(tmp_path / name)
    for command in ("check", "calibrate"):
        said = ends_with_2(capsys, STRANGE[make], command, tmp_path / "case.toml")
        assert name in said
        assert name == "case.toml" or "case.toml:" in said
    assert not (tmp_path / "case_report").exists()


@pytest.mark.parametrize("make", [pipe, device, endless])
@pytest.mark.parametrize("name", ["model.py", "INPUT"])
def test_files_of_a_model_of_python(tmp_path, capsys, name, make):
    if (name, make) == ("INPUT", endless):
        return  # it may be of any size: what a user's own code reads is not read here
    (tmp_path / "case.toml").write_text(OF_PYTHON)
    (tmp_path / "model.py").write_text("def cost(p):\n    return (p['k'] - 1) ** 2\n")
    (tmp_path / "INPUT").write_text("1\n")
    (tmp_path / name).unlink()
    make(tmp_path / name)
    ends_with_2(capsys, STRANGE[make], "check", tmp_path / "case.toml")


@pytest.mark.parametrize("make", STRANGE)
@pytest.mark.parametrize(
    "name", ["model.toml", "sales.fme", "BASE.csv", "BASE.sqlite", "BASE.sqlite-journal", "BASE/a.csv"]
)
def test_files_of_modules(tmp_path, capsys, name, make):
    base = name.split("/")[0].removesuffix("-journal") if name.startswith("BASE") else "BASE.csv"
    (tmp_path / "model.toml").write_text(OF_MODULES.replace("BASE", base))
    (tmp_path / "sales.fme").write_text("orders = market * 2")
    (tmp_path / "BASE.csv").write_text("name,value\nmarket,1\n")
    (tmp_path / "BASE").mkdir()
    (tmp_path / "BASE.sqlite").touch()
    (tmp_path / name).unlink(missing_ok=True)
    make(tmp_path / name)
    for command in ("run", "map"):
        said = ends_with_2(capsys, STRANGE[make] if "/" not in name else "", command, tmp_path / "model.toml")
        assert name.removesuffix("-journal").split("/")[0] in said


def test_many_columns_lines_and_long_cells_are_refused_at_once(tmp_path, capsys):
    for content, why in (
        (b"t," * 20_000 + b"y\n", "more than 10000 columns"),
        (b"t,y\n" * 2_000_002, "more than 2000000 lines"),
        (b"t,y\n0,1\n1," + b"1" * 130_000 + b"x\n", "is not a number"),
        (b"\x1f\x8b\x08\x00" + bytes(100), "is a workbook or an archive"),
    ):
        (tmp_path / "data.csv").write_bytes(content)
        text = (
            TEXT.split("[forcings")[0].replace("DATA", "data.csv")
            + "[parameters]\nfirst = 0.0\nk = { start = 1.0 }\n[fit]\n"
        )
        (tmp_path / "case.toml").write_text(
            text.replace("[model]", 'x = "t"\n[model]').replace(" + u", "").replace('entity = "who"\n', "")
        )
        assert main(["check", str(tmp_path / "case.toml")]) == 2
        assert why in capsys.readouterr().err
