"""The commands: what they print, what they write, how they end; a mistake is 2 and a message, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.workflow.command import main

MODEL = """\
modules = ["prey.fme", "hunt.fme"]
data = ["db/"]
times = { start = 0, stop = 10, step = 0.5 }
dt = 0.25
outputs = ["N", "P"]

[parameters]
K = 150.0
"""
FILES = {
    "model.toml": MODEL,
    "prey.fme": "d(N)/dt = r * N * (1 - N / K) - eaten\n",
    "hunt.fme": "eaten = a * N * P\nd(P)/dt = e * eaten - m * P\nP(0) = 10\n",
    "db/constants.csv": "name,value\nN,50\nr,0.5\nK,100\na,0.01\ne,0.5\nm,0.2\n",
}


@pytest.fixture
def case(tmp_path) -> Path:
    (tmp_path / "db").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def edited(case, name, old, new):
    text = (case / name).read_text()
    assert old in text
    (case / name).write_text(text.replace(old, new))


def run(*arguments):
    """Return the exit code of a command, whichever way it ends."""
    try:
        return main([str(a) for a in arguments])
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize(("tau", "code"), [("0.1", 1), ("tau", 1), ("0.25", 0)])
def test_a_delay_shorter_than_the_step_is_no_success(case, capsys, tau, code):
    edited(case, "prey.fme", "- eaten", f"- smooth(eaten, {tau})")
    edited(case, "db/constants.csv", "m,0.2\n", "m,0.2\ntau,0.1\n" if tau == "tau" else "m,0.2\n")
    assert run("run", case / "model.toml") == code
    if code:
        assert "give dt=0.1 at most" in capsys.readouterr().err


def test_run_writes_what_the_model_gives(case, capsys):
    assert run("run", case / "model.toml") == 0
    out = pd.read_csv(case / "model" / "outputs.csv")
    direct = fme.dmi.ModularModel(
        [fme.dmi.read_module_file(case / f"{n}.fme") for n in ("prey", "hunt")],
        fme.dmi.Database(str(case / "db")).with_constants({"K": 150.0}), times=np.arange(0, 10.5, 0.5), dt=0.25,
        outputs=["N", "P"],
    )()  # fmt: skip
    pd.testing.assert_frame_equal(out, direct, rtol=1e-15)
    files = {p.name: p for p in (case / "model").iterdir()}
    assert set(files) == {"outputs.csv", "diagnostics.csv", "variable_map.csv", "convergence.csv", "outputs.png"}
    assert files["outputs.png"].stat().st_size > 10_000
    assert pd.read_csv(files["variable_map.csv"], index_col="variable").loc["N", "prey"] == "both"
    assert pd.read_csv(files["convergence.csv"]).columns.tolist() == [
        "time", "group", "executions", "method", "residual",
    ]  # fmt: skip
    assert not len(pd.read_csv(files["diagnostics.csv"]))
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        "21 rows of 2 variables, t = 0 to 10",
        f"{case / 'model'}/: outputs.csv, diagnostics.csv, variable_map.csv, convergence.csv, outputs.png",
    ]
    assert told.err == ""


def test_the_same_inputs_write_the_same_bytes(case):
    for name in ("one", "two"):
        assert run("run", case / "model.toml", "--output", case / name, "--no-plots") == 0
    names = sorted(p.name for p in (case / "one").iterdir())
    assert names == ["convergence.csv", "diagnostics.csv", "outputs.csv", "variable_map.csv"]
    for name in names:
        assert (case / "one" / name).read_bytes() == (case / "two" / name).read_bytes()


def test_diagnostics_go_to_stderr_and_do_not_end_a_run_unless_strict(case, capsys):
    edited(case, "db/constants.csv", "m,0.2", "m,0.2\nextra,1")
    assert run("run", case / "model.toml", "--no-plots") == 0
    told = capsys.readouterr()
    assert told.err.startswith("warning: redundant: ")
    assert "'extra'" in told.err
    assert told.err.count("\n") == 1
    assert pd.read_csv(case / "model" / "diagnostics.csv")["kind"].tolist() == ["redundant"]
    assert run("run", case / "model.toml", "--strict", "--output", case / "none") == 2
    assert "'extra'" in capsys.readouterr().err
    assert not (case / "none").exists()
    edited(case, "model.toml", "dt = 0.25", "dt = 0.25\nstrict = true")
    assert run("run", case / "model.toml") == 2


def test_map_prints_and_draws(case, capsys):
    edited(case, "db/constants.csv", "r,0.5\n", "")  # data may be missing
    assert run("map", case / "model.toml", "--output", case / "out") == 0
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert lines[0].split() == ["dims", "prey", "hunt"]
    assert ["N", "both", "exogenous"] in [line.split() for line in lines]
    assert "missing" in told.err
    table = pd.read_csv(case / "out" / "variable_map.csv", index_col="variable")
    assert table.loc["eaten"].tolist()[1:] == ["exogenous", "endogenous"]
    assert (case / "out" / "variable_map.png").stat().st_size > 5_000


def test_all_that_the_constructor_takes_can_be_said(case):
    edited(case, "model.toml", "dt = 0.25", 'dt = 0.5\nmethod = "rk4"\ntol = 1e-8\nmax_iterations = 5')
    edited(case, "model.toml", "dt = 0.5", 'dt = 0.5\norder = "sorted"\nunsettled = "error"')
    edited(case, "model.toml", "{ start = 0, stop = 10, step = 0.5 }", "[0, 1, 5]")
    assert run("run", case / "model.toml", "--no-plots") == 0
    assert pd.read_csv(case / "model" / "outputs.csv")["time"].tolist() == [0, 1, 5]
    (case / "folder").mkdir()
    for name in ("prey", "hunt"):
        (case / f"{name}.fme").rename(case / "folder" / f"{name}.fme")
    edited(case, "model.toml", '["prey.fme", "hunt.fme"]', '"folder"')
    assert run("run", case / "model.toml", "--no-plots") == 0


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("model.toml", "outputs =", "output =", "model.toml:5: unknown key 'output'; did you mean 'outputs'?"),
        ("model.toml", "dt = 0.25", "", "the key `dt` is missing"),
        ("model.toml", "dt = 0.25", 'dt = "x"', "model.toml:4: `dt` must be a number; got 'x'"),
        ("model.toml", "dt = 0.25", "dt = 0.3", "model.toml:3: `times`: 0.5 does not lie on the grid"),
        ("model.toml", "dt = 0.25", "dt = -1", "model.toml:4: `dt=-1.0` must be a positive"),
        ("model.toml", "dt = 0.25", "dt = 0.25\nmethod = 'heun'", "model.toml:5: `method='heun'` is not known"),
        ("model.toml", "dt = 0.25", "dt = 0.25\nmax_iterations = 1.5", "toml:5: `max_iterations` must be a whole"),
        ("model.toml", '["N", "P"]', '["N", "Q"]', "model.toml:5: `outputs`: no module has a variable 'Q'"),
        ("model.toml", "stop = 10", "stop = 10.2", "model.toml:3: `stop` must lie a whole number of steps"),
        ("model.toml", ", step = 0.5", "", "model.toml:3: the key `step` is missing in times"),
        ("model.toml", "step = 0.5", "step = 1e-9", "model.toml:3: `times` asks for 10000000000 rows"),
        ("model.toml", "step = 0.5", "stepp = 0.5", "unknown key 'stepp' in times; did you mean 'step'?"),
        ("model.toml", '"prey.fme"', '"pray.fme"', "model.toml:1: "),
        ("model.toml", '["db/"]', '["d/"]', "model.toml:2: There is no file or folder"),
        ("model.toml", '"db/"', "3", "model.toml:2: `data` must hold a text in quotes; got 3"),
        ("model.toml", "K = 150.0", "K = 'x'", "model.toml:8: `K` must be a number or a list"),
        ("model.toml", "K = 150.0", "K = nan", "model.toml:8: 'K' holds NaN"),
        ("model.toml", "K = 150.0", '"K K" = 1', "model.toml:8: "),
        ("model.toml", "dt = 0.25", "dt = = 1", "model.toml:4: this is no TOML"),
        ("prey.fme", "eaten\n", "eaten +\n", "prey.fme"),
        ("db/constants.csv", "r,0.5", "r,half", "constants.csv:3: 'half' in column 'value' is not a number"),
        ("db/constants.csv", "r,0.5\n", "", "r is read"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_place_and_ends_with_2(case, capsys, name, old, new, said):
    edited(case, name, old, new)
    assert run("run", case / "model.toml") == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert not (case / "model" / "outputs.csv").exists()


def test_wrong_arguments(case, capsys):
    for arguments, said in (
        (["run", case / "modell.toml"], "Did you mean 'model.toml'?"),
        (["run"], "MODEL.toml"),
        (["rn", case / "model.toml"], "Did you mean 'run'?"),
        (["run", case / "model.toml", "--outptu", "x"], "Did you mean '--output'?"),
        (["run", case / "model.toml", "--output", case / "prey.fme"], "cannot be made"),
    ):
        assert run(*arguments) == 2
        assert said in capsys.readouterr().err


def test_fmepy_alone_lists_its_commands_with_a_line_each(capsys):
    assert run() == 2
    told = " ".join(capsys.readouterr().err.split())
    for name, what in (("new", "write a commented"), ("check", "read a"), ("calibrate", "run the"), ("map", "print")):
        assert f" {name} {what}" in told


@pytest.mark.parametrize("command", ["run", "map"])
def test_nothing_is_written_among_the_data(case, capsys, command):
    (case / "model.toml").rename(case / "db.toml")
    assert run(command, case / "db.toml") == 2
    assert "among the data" in capsys.readouterr().err
    assert [p.name for p in (case / "db").iterdir()] == ["constants.csv"]
    assert run(command, case / "db.toml", "--output", case / "out") == 0


def test_a_run_that_fails_ends_with_1(case, capsys):
    edited(case, "prey.fme", "eaten\n", "eaten + N ** 9\n")
    assert run("run", case / "model.toml") == 1
    assert "NaN or infinite" in capsys.readouterr().err


def test_help_says_what_is_written_and_how_it_ends(capsys):
    assert run("--help") == 0
    assert "exit codes" in capsys.readouterr().out
    for command, part in (("run", "convergence.csv"), ("map", "variable_map.png")):
        assert run(command, "--help") == 0
        assert part in capsys.readouterr().out
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("fmepy ")


def test_it_runs_as_a_module_and_its_bar_is_for_terminals(case):
    command = [sys.executable, "-W", "error", "-m", "fmepy", "run", "model.toml", "--no-plots"]
    done = subprocess.run(command, cwd=case, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "21 rows of 2 variables" in done.stdout


@pytest.mark.parametrize(
    ("said", "begun_as", "is_ours"),
    [
        ("-m", ["-m", "fmepy", "check"], True),
        ("/usr/bin/fmepy", ["/usr/bin/fmepy"], True),
        ("-m", ["-m", "mine.fits"], False),  # a script or a package of one's own is Python's matter
        ("other.py", ["other.py"], False),
    ],
)
def test_ctrl_c_during_the_first_import_ends_with_one_line(said, begun_as, is_ours):
    code = f"""
import sys
class Stop:
    def find_spec(self, name, *_):
        if name == "numpy":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Stop())
sys.argv, sys.orig_argv = [{said!r}], ["python", *{begun_as!r}]
import fmepy
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if is_ours:
        assert (run.returncode, run.stderr) == (130, "Interrupted.\n")
    else:
        assert "Traceback" in run.stderr
