"""Calibrations: what is written, what is kept, how they go on, and how they end."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import fmepy as fme
from fmepy.errors import ArgumentError, FmepyError
from fmepy.journal import evaluations, records
from fmepy.workflow import folder as folder_module
from fmepy.workflow.command import main
from fmepy.workflow.folder import CalibrationFolder
from fmepy.workflow.steps.registry import STEPS
from fmepy.workflow.steps.scale import interval
from fmepy.workflow.steps.screen import Screened

T = np.arange(12.0)
N = 10 * 0.8**T * np.exp(0.05 * np.cos(5 * T))
DATA = pd.DataFrame({"day": T, "N": N})
TOML = """\
title = "Decay"
data = { file = "decay.csv", x = "day" }
cost = { transform = "log" }
screen = {}
fit = {}
multistart = { starts = 3 }
profile = { num = 5 }
sample = { niter = 400, burninlength = 100, chains = 2, wvar0 = 1, updatecov = 50 }
ranges = { num = 20, with_error = true }
scenarios = { table = "what_if.csv", num = 10 }
run = { seed = 3, checkpoint_every = 50 }
[model]
equations = \"\"\"
    next(N) = q * N - c
    N(0) = A
\"\"\"
times = { start = 0, stop = 11, step = 1 }
[parameters]
q = { start = 0.7, lower = 0.1, upper = 0.99 }
A = { start = 8, lower = 1, upper = 50, scale = "log", unit = "g" }
c = 0.0
"""
WHAT_IF = "scenario,q,c\nas it is,,\nless,0.7,0.1\n"
COLUMNS = {
    "estimates.csv": ["parameter", "estimate", "se", "lower", "upper", "start", "at_bound"],
    "intervals.csv": ["parameter", "estimate", "lower", "upper", "level"],
    "sample.csv": ["chain", "iteration", "q", "A"],
}
ALL_FILES = {
    "report.html", "run.json", "fit.json", "residuals.csv", "screen.csv", "collin.csv", "starts.csv", "optima.csv",
    "profile.csv", "sample_summary.csv", "ranges.csv", "scenarios.csv", *COLUMNS,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    """Reports are drawn elsewhere: here it matters that one is written, and when."""
    monkeypatch.setattr("fmepy.workflow.report.page.render", lambda task, *_: f"<title>{task.case.title}</title>")


def write(folder, text=TOML):
    folder.mkdir(parents=True, exist_ok=True)
    DATA.to_csv(folder / "decay.csv", index=False)
    (folder / "what_if.csv").write_text(WHAT_IF)
    (folder / "decay.toml").write_text(text)
    return folder / "decay.toml"


@pytest.fixture
def file(tmp_path):
    return write(tmp_path)


def edit(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def without(text, *steps):
    return "".join(line for line in text.splitlines(True) if line.split(" =")[0] not in steps)


SHORT = without(TOML, "screen", "multistart", "profile", "ranges", "scenarios")
QUICK = without(SHORT, "sample")


def tables(folder):
    """Return the bytes of what must not depend on when, where and by how many it was made."""
    kept = [f for f in folder.iterdir() if f.is_file() and f.name not in ("report.html", "run.json")]
    return {f.name: f.read_bytes() for f in kept}


def run(*arguments):
    try:
        return main(["calibrate", *map(str, arguments)])
    except SystemExit as end:
        return end.code


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a calibration with all steps, and its folder."""
    file = write(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmepy.workflow.report.page.render", lambda *_: "")
        return fme.workflow.calibrate(file)


def test_every_step_writes_its_files(whole):
    folder = whole.report.parent
    assert whole.ok
    assert {f.name for f in folder.iterdir()} == ALL_FILES | {".fmepy"}
    assert {f.name for f in whole.files} == ALL_FILES
    for name, columns in COLUMNS.items():
        assert list(pd.read_csv(folder / name).columns) == columns
    assert folder.name == "decay_report"


def test_tables_are_on_the_natural_scale_and_results_on_that_of_the_fit(whole):
    folder = whole.report.parent
    found = pd.read_csv(folder / "estimates.csv").set_index("parameter")
    assert np.exp(whole.fit.par["A"]) == pytest.approx(found.loc["A", "estimate"])
    assert found.loc["A", ["lower", "upper", "start"]].tolist() == [1.0, 50.0, 8.0]
    assert found.loc["A", "se"] == pytest.approx(found.loc["A", "estimate"] * whole.fit.std_error["A"])
    draws = pd.read_csv(folder / "sample.csv")
    assert np.allclose(draws["A"], np.exp(whole.sample.pars["A"]))
    ends = pd.read_csv(folder / "intervals.csv").set_index("parameter").loc["A"]
    assert ends["lower"] < found.loc["A", "estimate"] < ends["upper"]
    assert ends["lower"] == pytest.approx(np.exp(whole.profile.intervals.loc["A", "lower"]))
    assert pd.read_csv(folder / "starts.csv")["A"].between(1, 50).all()


def test_the_numbers_are_those_of_the_functions(whole):
    model = fme.DifferenceModel("next(N) = q*N - c\nN(0) = A", times=range(12), parms={"q": 0.7, "A": 8.0, "c": 0.0})
    cost = fme.SimulationCost(model, DATA, x="day", transform="log")
    fit = fme.modFit(cost, {"q": 0.7, "A": 8.0}, lower={"q": 0.1, "A": 1}, upper={"q": 0.99, "A": 50})
    found = pd.read_csv(whole.report.parent / "estimates.csv").set_index("parameter")["estimate"]
    assert np.allclose(found[["q", "A"]], fit.par[["q", "A"]], rtol=1e-6)
    chain = fme.modMCMC(
        fme.transformed(cost, {"A": "log"}), whole.fit.par, jump=whole.fit.cov_scaled * 2.4**2 / 2, niter=400,
        burninlength=100, chains=2, wvar0=1, updatecov=50, var0=whole.fit.var_ms_unweighted, seed=3,
        lower={"q": 0.1, "A": 0.0}, upper={"q": 0.99, "A": np.log(50)},
    )  # fmt: skip
    assert chain.pars.equals(whole.sample.pars)
    assert fme.load(whole.report.parent / "fit.json").par.equals(whole.fit.par)


def test_errors_are_added_on_the_scale_on_which_readings_are_compared(whole):
    bands = pd.read_csv(whole.report.parent / "ranges.csv")
    assert whole.ranges.parts[""].kind == "prediction"
    assert (bands["Min"] > 0).all()
    late = bands["x"] == 11
    assert (bands["Sd"][late] / bands["Mean"][late]).item() == pytest.approx(0.06, abs=0.04)


def test_run_json_says_what_was_done(whole):
    record = json.loads((whole.report.parent / "run.json").read_text())
    assert record["ok"]
    assert record["exit"] == 0
    assert record["seed"] == 3
    assert set(record["hashes"]) == {"file", "model", "data", "cost", "parameters"}
    assert record["versions"]["fmepy"] == fme.__version__
    assert list(record["steps"]) == list(record["asked"])
    assert all(step["state"] == "done" and step["verdict"] for step in record["steps"].values())


# --- again


def test_what_is_done_is_kept_and_its_files_are_not_touched(file):
    edit(file, TOML, SHORT)
    folder = fme.workflow.calibrate(file).report.parent
    before = {f: f.stat().st_mtime_ns for f in folder.iterdir() if f.suffix == ".csv" or f.name == "fit.json"}
    edit(file, '"Decay"', '"A title & more"')
    edit(file, 'unit = "g"', 'unit = "kg", description = "at the start"')
    again = fme.workflow.calibrate(file, executor=1)
    assert all(step["kept"] for step in again.record["steps"].values())
    assert {f: f.stat().st_mtime_ns for f in before} == before
    assert "A title & more" in again.report.read_text()
    assert again.sample.pars.shape == (600, 2)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("niter = 400", "niter = 450", {"fit"}),
        ("start = 0.7", "start = 0.75", set()),
        ("seed = 3", "seed = 4", set()),
        ("fit = {}", 'fit = { method = "BFGS" }', set()),
        ("next(N) = q * N", "next(N) = q*N", set()),
    ],
)
def test_what_depends_on_a_change_is_done_again(file, old, new, kept):
    edit(file, TOML, SHORT)
    fme.workflow.calibrate(file)
    edit(file, old, new)
    again = fme.workflow.calibrate(file)
    assert {name for name, step in again.record["steps"].items() if step["kept"]} == kept


def test_other_data_are_another_question(file):
    edit(file, TOML, QUICK)
    first = fme.workflow.calibrate(file)
    DATA.assign(N=N * 1.1).to_csv(file.parent / "decay.csv", index=False)
    second = fme.workflow.calibrate(file)
    assert not second.record["steps"]["fit"]["kept"]
    assert np.exp(second.fit.par["A"] - first.fit.par["A"]) == pytest.approx(1.1, rel=1e-3)


def test_a_table_of_scenarios_is_an_input(file):
    edit(file, TOML, QUICK.replace("fit = {}", 'fit = {}\nscenarios = { table = "what_if.csv" }'))
    fme.workflow.calibrate(file)
    (file.parent / "what_if.csv").write_text(WHAT_IF.replace("0.7,0.1", "0.6,0.1"))
    again = fme.workflow.calibrate(file)
    assert again.record["steps"]["fit"]["kept"]
    assert not again.record["steps"]["scenarios"]["kept"]


def test_a_file_that_was_removed_is_written_again(file):
    edit(file, TOML, SHORT)
    folder = fme.workflow.calibrate(file).report.parent
    before = tables(folder)
    for name in ("sample.csv", "estimates.csv"):
        (folder / name).unlink()
    fme.workflow.calibrate(file)
    assert tables(folder) == before


def test_a_damaged_result_runs_again(file):
    edit(file, TOML, QUICK)
    folder = fme.workflow.calibrate(file).report.parent
    before = tables(folder)
    (folder / ".fmepy/fit/result/result.json").write_text("{}")
    again = fme.workflow.calibrate(file)
    assert again.ok
    assert not again.record["steps"]["fit"]["kept"]
    assert tables(folder) == before


# --- stopped, and gone on


class Killed(BaseException):
    """Ends a run at once, as a kill does."""


class Stop:
    """A progress that ends the run when so much of the step with this total is done."""

    def __init__(self, total, done, error):
        self.total, self.done, self.error = total, done, error

    def __call__(self, done, total):
        if total == self.total and done >= self.done:
            raise self.error


@pytest.mark.parametrize("resume", [True, False], ids=["resume", "anew"])
def test_a_run_that_was_killed_in_the_chain_gives_the_same_bytes(file, tmp_path, resume):
    edit(file, TOML, SHORT)
    want = tables(fme.workflow.calibrate(file, output=tmp_path / "want").report.parent)
    with pytest.raises(Killed):
        fme.workflow.calibrate(file, progress=Stop(800, 510, Killed))
    folder = tmp_path / "decay_report"
    parts = len(list((folder / ".fmepy/sample/checkpoint").glob("chain-001.part-*")))
    assert parts >= 2
    seen = []
    done = fme.workflow.calibrate(file, resume=resume, progress=lambda n, total: seen.append((n, total)))
    assert done.ok
    assert tables(folder) == want
    assert (min(n for n, total in seen if total == 800) >= 400) == resume
    assert not (folder / ".fmepy/sample/checkpoint").exists()


def test_starts_and_profiles_go_on_too(file, tmp_path):
    edit(file, TOML, without(TOML, "sample", "ranges", "scenarios", "screen"))
    want = tables(fme.workflow.calibrate(file, output=tmp_path / "want").report.parent)
    for stop in (Stop(3, 2, Killed), Stop(4, 3, Killed)):
        with pytest.raises(Killed):
            fme.workflow.calibrate(file, resume=True, progress=stop)
    fme.workflow.calibrate(file, resume=True)
    assert tables(tmp_path / "decay_report") == want


def test_ranges_and_scenarios_go_on_too(file, tmp_path):
    edit(file, TOML, without(TOML, "screen", "multistart", "profile"))
    want = tables(fme.workflow.calibrate(file, output=tmp_path / "want").report.parent)
    folder = tmp_path / "decay_report"
    for step in ("ranges", "scenarios"):

        def stop(done, total, step=step):
            if done >= 12 and (folder / f".fmepy/{step}/begun.json").exists():
                raise Killed

        with pytest.raises(Killed):
            fme.workflow.calibrate(file, resume=True, progress=stop)
        assert list(folder.glob(f".fmepy/{step}/checkpoint/part-0/tasks.part-*.npz"))
    fme.workflow.calibrate(file, resume=True, executor=2)
    assert tables(folder) == want
    assert not list(folder.glob(".fmepy/*/checkpoint"))


COUNTED = """
import os
import numpy as np

class Killed(BaseException):
    pass

def residuals(p):
    with open(os.environ["CALLS"], "a+") as file:
        file.write("x")
        file.seek(0)
        if len(file.read()) == int(os.environ["LAST"]):
            raise Killed("killed")
    t = np.arange(6.0)
    return p["a"] * np.exp(-p["k"] * t) - np.array([2.0, 1.3, 0.7, 0.5, 0.3, 0.1])
"""


@pytest.mark.parametrize("step", ["screen", "fit"])
def test_evaluations_of_screen_and_fit_that_take_long_are_not_run_again(tmp_path, monkeypatch, step):
    monkeypatch.setattr(evaluations, "_QUICK", -1.0)
    monkeypatch.setattr(evaluations, "_SPEED", np.inf)
    monkeypatch.setattr(records, "_PAUSE", 0.0)
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    (tmp_path / "counted.py").write_text(COUNTED)
    case = tmp_path / "case.toml"
    case.write_text(f"""
model = {{ python = "counted.py:residuals", inputs = [] }}
[parameters]
a = {{ start = 1.0, lower = 0, upper = 9 }}
k = {{ start = 0.2, lower = 0, upper = 9 }}
[run]
seed = 1
[{step}]
""")

    def calls(last, **words):
        monkeypatch.setenv("LAST", str(last))
        (tmp_path / "calls").unlink(missing_ok=True)
        if last:
            with pytest.raises(BaseException, match="killed"):
                fme.workflow.calibrate(case, **words)
        else:
            assert fme.workflow.calibrate(case, **words).ok
        return len((tmp_path / "calls").read_text())

    whole = calls(0, output=tmp_path / "want")
    calls(whole - 2)
    assert calls(0, resume=True) <= whole / 2
    assert tables(tmp_path / "case_report") == tables(tmp_path / "want")


def test_a_checkpoint_of_other_inputs_is_not_taken(file, tmp_path):
    edit(file, TOML, SHORT)
    with pytest.raises(Killed):
        fme.workflow.calibrate(file, progress=Stop(800, 510, Killed))
    edit(file, "seed = 3", "seed = 4")
    went_on = fme.workflow.calibrate(file, resume=True).sample
    assert went_on.pars.equals(fme.workflow.calibrate(file, output=tmp_path / "other").sample.pars)


def test_a_damaged_checkpoint_is_told_and_the_step_begins_anew(file, tmp_path, capsys):
    edit(file, TOML, SHORT)
    want = tables(fme.workflow.calibrate(file, output=tmp_path / "want").report.parent)
    with pytest.raises(Killed):
        fme.workflow.calibrate(file, progress=Stop(800, 510, Killed))
    (tmp_path / "decay_report/.fmepy/sample/checkpoint/header.json").write_text("{")
    assert run(file, "--resume") == 0
    assert "the checkpoint of sample cannot be used, the step starts again" in capsys.readouterr().err
    assert tables(tmp_path / "decay_report") == want


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_is_130_and_sigterm_143_and_both_say_how_to_go_on(file, capsys, monkeypatch, number, code):
    edit(file, TOML, SHORT)
    sent = []
    from fmepy.workflow.display import Display

    def stop(self, done, total):
        if total == 800 and 0 < done < 800 and not sent:
            sent.append(number)
            signal.raise_signal(number)

    monkeypatch.setattr(Display, "__call__", stop)
    assert run(file, "--workers", "1") == code  # one chain after the other, each tells of its iterations
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    told = capsys.readouterr().err
    assert "--resume" in told
    assert str(file) in told
    assert "Traceback" not in told
    record = json.loads((file.parent / "decay_report/run.json").read_text())
    assert record["steps"]["sample"]["state"] == "interrupted"
    assert record["steps"]["fit"]["state"] == "done"
    monkeypatch.undo()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fmepy.workflow.report.page.render", lambda *_: "")
        assert run(file, "--resume") == 0
    assert "fit: kept" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="signals to a group are those of POSIX")
def test_sigterm_to_all_processes_keeps_what_is_done_and_no_library_says_a_word(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import time\ndef cost(p):\n    time.sleep(0.01)\n    return [p['a'] - 1.0, p['a'] - 1.1, p['a'] - 1.3]\n"
    )
    (tmp_path / "slow.toml").write_text(
        "[model]\npython = 'slow.py:cost'\ninputs = []\n[parameters]\na = { start = 0.5, lower = 0.0, upper = 2.0 }\n"
        "[fit]\n[sample]\nniter = 100000\nchains = 2\n[run]\ncheckpoint_every = 20\n"
    )
    command = [sys.executable, "-m", "fmepy", "calibrate", str(tmp_path / "slow.toml"), "--workers", "2"]
    child = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    inside = tmp_path / "slow_report" / ".fmepy" / "sample" / "checkpoint"
    begun = time.monotonic()
    while not [*inside.glob("chain-*.part-000002.npz")] and child.poll() is None and time.monotonic() - begun < 120:
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGTERM)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 143
    assert len([*inside.glob("chain-*.part-*.npz")]) > 2
    lines = [line for line in said.splitlines() if not line.startswith(("fit: ", "sample: ", "warning: "))]
    assert lines[0] == "Interrupted. What is done is kept; go on with"
    assert lines[1].endswith("--resume")
    assert not lines[2:]


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_nothing(file, tmp_path):
    edit(file, "niter = 400", "niter = 6000")
    want = tables(fme.workflow.calibrate(file, output=tmp_path / "want").report.parent)
    command = [sys.executable, "-m", "fmepy", "calibrate", str(file), "--resume"]
    out = tmp_path / "decay_report"
    for k in range(12):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun = time.monotonic()
        while not (out / ".fmepy").exists() and child.poll() is None and time.monotonic() - begun < 60:
            time.sleep(0.01)
        time.sleep(0.17 * k)
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert tables(out) == want
    assert not [f for f in out.iterdir() if f.name.endswith(".tmp")]


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_workers(file, tmp_path):
    one = fme.workflow.calibrate(file, output=tmp_path / "one")
    two = fme.workflow.calibrate(file, output=tmp_path / "two", executor=2)
    assert tables(one.report.parent) == tables(two.report.parent)


# --- steps


def test_steps_run_what_they_need(file):
    done = fme.workflow.calibrate(file, steps="sample")
    assert list(done.record["steps"]) == ["fit", "sample"]
    assert done.multistart is None
    again = fme.workflow.calibrate(file, steps=["ranges", "sample"])
    assert {name: step["kept"] for name, step in again.record["steps"].items()} == {
        "fit": True, "sample": True, "ranges": False,
    }  # fmt: skip


def test_a_later_step_alone_keeps_what_a_whole_run_made(file):
    folder = fme.workflow.calibrate(file).report.parent
    before = tables(folder)
    again = fme.workflow.calibrate(file, steps=["profile"])
    assert {name: step["kept"] for name, step in again.record["steps"].items()} == {"fit": True, "profile": True}
    assert tables(folder) == before


def test_a_step_that_is_done_need_not_be_in_the_file(file):
    edit(file, TOML, SHORT)
    fme.workflow.calibrate(file)
    edit(file, "fit = {}\n", "")
    again = fme.workflow.calibrate(file)
    assert {name: step["kept"] for name, step in again.record["steps"].items()} == {"sample": True}


@pytest.mark.parametrize(
    ("text", "steps", "said"),
    [
        (SHORT, "fitt", "Did you mean 'fit'?"),
        (SHORT, "profile", "has no step 'profile'"),
        (SHORT, "", "no step is named"),
        (without(SHORT, "fit"), None, "decay.toml:4: the step 'sample' needs the step 'fit'"),
        (SHORT.replace("run =", "require = { max_collinearity = 10 }\nrun ="), None, "demanded of the step screen"),
        (SHORT.replace("fit = {}", 'fit = {}\nscreen = { sensvar = ["A"] }'), None, "decay.toml:5: `sensvar` chooses"),
        (SHORT.replace("fit = {}", "fit = {}\nfilter = {}"), None, "decay.toml:5: `filter`"),
        (QUICK.replace("fit = {}", 'fit = {}\nscenarios = { table = "what_iff.csv" }'), None, "'what_if.csv'"),
        (QUICK.replace("fit = {}", "fit = {}\nranges = { parRange = { q = [0.1, 0.2] }, with_error = true }"), None,
         "with_error"),
        (SHORT.replace('transform = "log"', 'likelihood = "laplace", measurement_noise = { N = 0.1 }')
         + "\n[ranges]\nwith_error = true\n", None, "`with_error` draws normal errors"),
    ],
)  # fmt: skip
def test_impossible_steps_are_refused_before_anything_runs(file, capsys, text, steps, said):
    file.write_text(text)
    assert run(file, *([] if steps is None else ["--steps", steps])) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert not (file.parent / "decay_report").joinpath("estimates.csv").exists()


def test_one_number_has_no_sensitivities_to_look_at(tmp_path, capsys):
    (tmp_path / "one.py").write_text("def f(p):\n    return (p['a'] - 1) ** 2 + (p['b'] - 2) ** 2\n")
    (tmp_path / "one.toml").write_text(
        'screen = {}\n[model]\npython = "one.py:f"\n[parameters]\na = { start = 0.5 }\nb = { start = 0.5 }\n'
    )
    assert run(tmp_path / "one.toml") == 1
    assert "one.toml:1: `screen` looks at what the model gives" in capsys.readouterr().err


def test_after_multistart_the_fit_is_the_best_of_both(tmp_path):
    (tmp_path / "two.py").write_text("def f(p):\n    x = p['x']\n    return (x**2 - 1)**2 + 0.3 * x\n")
    file = tmp_path / "two.toml"
    file.write_text(
        'fit = { method = "BFGS" }\nmultistart = { starts = 6, method = "BFGS" }\nrun = { seed = 1 }\n'
        '[model]\npython = "two.py:f"\n[parameters]\nx = { start = 1.0, lower = -3, upper = 3 }\n'
    )
    only = fme.workflow.calibrate(file, steps="fit")
    assert pd.read_csv(only.report.parent / "estimates.csv")["estimate"].item() == pytest.approx(0.96, abs=0.02)
    both = fme.workflow.calibrate(file)
    assert both.record["steps"]["fit"]["kept"]
    assert pd.read_csv(only.report.parent / "estimates.csv")["estimate"].item() == pytest.approx(-1.04, abs=0.02)
    assert both.fit.par["x"] == both.multistart.par["x"]
    before = tables(only.report.parent)
    fme.workflow.calibrate(file, steps="fit")  # that of the multistart is still there, and still the better one
    assert tables(only.report.parent) == before


# --- how it ends


def test_stdout_ends_with_the_report_and_stderr_is_plain(file, capsys):
    edit(file, TOML, SHORT)
    assert run(file, "--out", file.parent / "there") == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1] == str(file.parent / "there/report.html")
    assert "\r" not in told.err
    assert "\x1b" not in told.err
    lines = told.err.splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith(("fit", "sample"))] == ["fit"] * 2 + ["sample"] * 2


def test_a_demand_that_is_missed_fails_loudly(file, capsys):
    edit(file, TOML, SHORT.replace("run =", "require = { converged = true, ess = 1e6, rhat = 5 }\nrun ="))
    for _ in range(2):  # and the next night, when all is kept
        assert run(file) == 1
        told = capsys.readouterr()
        assert "decay.toml:6: the least effective sample is" in told.err
        assert told.out.strip().endswith("report.html")
        record = json.loads((file.parent / "decay_report/run.json").read_text())
        assert [d["met"] for d in record["demands"]] == [True, False, True]
        assert "Demanded and missed: the least effective sample" in record["warnings"][0]


def test_a_demand_is_not_judged_where_its_step_was_not_asked_for(file):
    edit(file, TOML, SHORT.replace("run =", "require = { ess = 1e6 }\nrun ="))
    done = fme.workflow.calibrate(file, steps="fit")
    assert done.ok
    assert done.record["demands"][0]["met"] is None


PYTHON = """\
calls = 0


def cost(p):
    global calls
    calls += 1
    if calls > 1:
        raise RuntimeError("the sensor is gone")
    return [p["a"] - 1.0, p["a"] - 3.0, 0.5]
"""


def test_an_error_of_a_users_function_names_its_line(tmp_path, capsys):
    (tmp_path / "own.py").write_text(PYTHON)
    (tmp_path / "own.toml").write_text(
        'fit = {}\nsample = { niter = 500 }\n[model]\npython = "own.py:cost"\n[parameters]\na = { start = 0.5 }\n'
    )
    assert run(tmp_path / "own.toml") == 1
    told = capsys.readouterr().err
    assert f"100 of 101 runs failed; the first: {tmp_path / 'own.py'}:8: RuntimeError: the sensor is gone" in told
    assert "Traceback" not in told
    record = json.loads((tmp_path / "own_report/run.json").read_text())
    assert [step["state"] for step in record["steps"].values()] == ["failed", "not run"]
    assert (tmp_path / "own_report/report.html").exists()


def test_what_needs_a_step_that_failed_is_not_run(tmp_path, capsys):
    (tmp_path / "own.py").write_text(PYTHON.replace("calls > 1", "calls > 0"))
    (tmp_path / "own.toml").write_text(
        'fit = {}\nsample = { niter = 500 }\n[model]\npython = "own.py:cost"\n[parameters]\na = { start = 0.5 }\n'
    )
    assert run(tmp_path / "own.toml") == 1
    assert "fit failed. " in capsys.readouterr().err
    record = json.loads((tmp_path / "own_report/run.json").read_text())
    assert [step["state"] for step in record["steps"].values()] == ["failed", "not run"]
    assert record["steps"]["sample"]["error"] == "sample needs fit, which failed."


@pytest.mark.parametrize(
    "full_at", ["sample.csv", "step.json", "result.json", "estimates.csv", "run.json", "report.html"]
)
def test_a_full_disk_is_told_and_what_was_done_stays(file, tmp_path, capsys, monkeypatch, full_at):
    edit(file, TOML, SHORT)
    real = folder_module.write_whole

    def full(path, write):
        if path.name == full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, write)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder_module, "write_whole", full)
        patch.setattr("fmepy.journal.saving.write_whole", full)
        assert run(file) == 1
    told = capsys.readouterr().err
    assert "No space left on device" in told
    assert "Traceback" not in told
    assert run(file, "--resume") == 0
    want = fme.workflow.calibrate(file, output=tmp_path / "want").report.parent
    assert tables(file.parent / "decay_report") == tables(want)


# --- folders


def test_a_folder_in_use_is_refused(file, capsys):
    edit(file, TOML, QUICK)
    with CalibrationFolder(file.parent / "decay_report").locked():
        assert run(file) == 2
    told = capsys.readouterr().err
    assert f"in use by another run (process {os.getpid()}" in told
    assert run(file) == 0


def test_a_file_in_the_place_of_the_folder_is_refused(file, capsys):
    (file.parent / "decay_report").write_text("mine")
    assert run(file) == 2
    assert "is a file" in capsys.readouterr().err
    assert (file.parent / "decay_report").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_refused(file, capsys):
    assert run(file, "--out", "/proc/nowhere") == 2
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_refused(file, capsys):
    out = file.parent / "decay_report"
    out.mkdir()
    out.chmod(0o500)
    assert run(file) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_output_counts_from_the_file_and_out_from_here(file, tmp_path, monkeypatch):
    edit(file, TOML, QUICK.replace("run = {", 'run = { output = "beside",'))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert fme.workflow.calibrate(file).report == file.parent / "beside/report.html"
    assert run(file, "--out", "there") == 0
    assert (tmp_path / "here/there/report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "0"], "--workers"),
        (["--workers", "two"], "invalid int value"),
        (["--seed", "-1"], "seed"),
        (["--stepz", "fit"], "--steps"),
    ],
)
def test_arguments_that_cannot_be_are_refused(file, capsys, arguments, said):
    assert run(file, *arguments) == 2
    assert said in capsys.readouterr().err


def test_from_python_mistakes_are_errors_of_fmepy(file):
    with pytest.raises(FmepyError, match="no file"):
        fme.workflow.calibrate(file.parent / "nothing.toml")
    with pytest.raises(ArgumentError, match="progress"):
        fme.workflow.calibrate(file, progress="yes")
    with pytest.raises(ArgumentError, match="Did you mean 'sample'"):
        fme.workflow.calibrate(file, steps=["sampel"])


def test_a_calibration_prints_what_it_came_to(whole):
    text = repr(whole)
    assert "fit: The fit by Marq converged" in text
    assert text.endswith("report.html")


# --- entities, filters


def test_entities_have_a_column_in_ranges_and_scenarios(tmp_path):
    times = np.arange(6.0)
    rows = [(tank, t, 5.0 * q**t + 0.01 * t) for tank, q in (("A 1", 0.8), ("B", 0.6)) for t in times]
    pd.DataFrame(rows, columns=["tank", "time", "N"]).to_csv(tmp_path / "tanks.csv", index=False)
    (tmp_path / "what_if.csv").write_text("tank,scenario,q\nB,as it is,\nB,slow,0.9\n")
    (tmp_path / "tanks.toml").write_text(
        'data = { file = "tanks.csv", entity = "tank" }\ncost = { entity_parms = ["q"] }\nfit = {}\n'
        "sample = { niter = 100, wvar0 = 1 }\nranges = { num = 6, with_error = true }\n"
        'scenarios = { table = "what_if.csv", num = 4 }\n'
        '[model]\nequations = "next(N) = q * N"\nstate = { N = "N0" }\ntimes = [0, 1, 2, 3, 4, 5]\n'
        "[parameters]\nq = { start = 0.7, lower = 0, upper = 1 }\nN0 = { start = 4, lower = 0 }\n"
    )
    done = fme.workflow.calibrate(tmp_path / "tanks.toml")
    folder = done.report.parent
    assert done.ok, done
    assert set(pd.read_csv(folder / "estimates.csv")["parameter"]) == {"q[A 1]", "q[B]", "N0"}
    bands = pd.read_csv(folder / "ranges.csv")
    assert list(bands.columns[:3]) == ["tank", "x", "var"]
    assert bands.groupby("tank").size().to_dict() == {"A 1": 6, "B": 6}
    late = bands[bands["x"] == 5].set_index("tank")["Mean"]
    assert late["B"] == pytest.approx(5 * 0.6**5, abs=0.1)
    assert late["A 1"] == pytest.approx(5 * 0.8**5, abs=0.1)
    what_if = pd.read_csv(folder / "scenarios.csv")
    assert list(what_if.columns[:4]) == ["tank", "scenario", "x", "var"]
    assert what_if.groupby(["tank", "scenario"]).size().to_dict() == {("B", "as it is"): 6, ("B", "slow"): 6}
    assert what_if.query("scenario == 'slow' and x == 5")["Mean"].item() == pytest.approx(5 * 0.9**5, abs=0.1)


DOSES = """\
data = { file = "drug.csv", entity = "who" }
conditions = [{ who = "a", V = 1.0 }, { who = "b", V = 2.0 }]
events = [{ who = "a", var = "A", time = 1, value = 5, method = "add" },
          { who = "b", var = "A", time = 1, value = 9, method = "add" }]
fit = {}
scenarios = { table = "what.csv", num = 5 }
[model]
equations = "d(A)/dt = -k * A / V"
state = { A = "A0" }
times = [0, 1, 2, 3]
[parameters]
k = { start = 0.4, lower = 0.01, upper = 3 }
A0 = 10.0
"""


def test_scenarios_of_doses_by_entity_name_theirs_and_others_say_whose_conditions_they_have(tmp_path, capsys):
    (tmp_path / "drug.csv").write_text("who,time,A\na,1,6.1\na,2,6.6\na,3,4.1\nb,1,7.7\nb,2,13.2\nb,3,10.1\n")
    (tmp_path / "what.csv").write_text("scenario,k\nslow,0.2\n")
    file = tmp_path / "drug.toml"
    file.write_text(DOSES)
    assert main(["check", str(file)]) == 2
    assert "drug.toml:6: events or forcings of the model belong to entities, and what.csv has no column 'who'" in (
        capsys.readouterr().err
    )
    file.write_text(DOSES.replace("events", "#").replace("          {", "#"))
    assert run(file) == 0
    assert "run with the first entity's V" in capsys.readouterr().err
    (tmp_path / "what.csv").write_text("scenario,k,V\nslow,0.2,1\n")
    assert run(file) == 0
    assert "first entity" not in capsys.readouterr().err, "the table says V"
    (tmp_path / "what.csv").write_text("scenario,who,k\nslow,b,0.2\n")
    file.write_text(DOSES)
    assert run(file) == 0
    assert set(pd.read_csv(tmp_path / "drug_report/scenarios.csv")["who"]) == {"b"}


def test_scenarios_take_fitted_elements_of_arrays_for_no_entity_s(tmp_path):
    (tmp_path / "herd.fme").write_text("dims r[2]\nd(N)/dt = r[0] * N + r[1]\n")
    (tmp_path / "base.csv").write_text('name,value\nN,5\nr,"[0.5, 0]"\n')
    (tmp_path / "n.csv").write_text("time,N\n0,5\n1,8\n2,12\n3,19\n")
    (tmp_path / "what.csv").write_text("scenario,N\nfew,2\n")
    (tmp_path / "herd.toml").write_text(
        'data = { file = "n.csv" }\nfit = {}\nscenarios = { table = "what.csv", num = 5 }\n[model]\n'
        'modules = ["herd.fme"]\ndata = ["base.csv"]\ntimes = { start = 0, stop = 3, step = 1 }\ndt = 0.25\n'
        '[parameters]\n"r[0]" = { start = 0.4 }\n'
    )
    done = fme.workflow.calibrate(tmp_path / "herd.toml")
    assert done.ok
    assert "entity" not in str(done.warnings)


def test_a_chain_from_a_fit_on_a_bound_begins_with_the_covariance_of_the_others(tmp_path):
    file = write(tmp_path, SHORT.replace("c = 0.0", "c = { start = 0.01, lower = 0.005, upper = 0.05 }"))
    edit(file, "niter = 400, burninlength = 100", "niter = 1500, burninlength = 500")
    done = fme.workflow.calibrate(file)
    assert done.fit.at_bound == ("c",)
    assert "c lies on a bound): the chain begins with steps of a hundredth of the bounds for it" in str(done.warnings)
    assert done.sample.diagnostics()["ess_bulk"].min() > 10
    assert done.sample.pars["q"].std() == pytest.approx(done.fit.std_error["q"], rel=1)


def test_a_filter_writes_its_residuals_and_a_forecast(tmp_path):
    level = np.cumsum(np.sin(np.arange(25.0) ** 2))
    pd.DataFrame({"time": np.arange(25), "level": level + 0.3 * np.cos(7 * np.arange(25))}).to_csv(
        tmp_path / "level.csv", index=False
    )
    (tmp_path / "level.toml").write_text(
        'data = { file = "level.csv" }\nfit = {}\nfilter = { steps = 3 }\n[cost]\nkind = "fimlof"\n'
        'process_noise = { level = "w" }\nmeasurement_noise = { level = "v" }\ninitial = "diffuse"\n'
        '[model]\nequations = "next(level) = level\\nlevel(0) = 0"\ntimes = { start = 0, stop = 24, step = 1 }\n'
        '[parameters]\nw = { start = 1, scale = "log" }\nv = { start = 0.5, scale = "log" }\n'
    )
    done = fme.workflow.calibrate(tmp_path / "level.toml")
    assert done.ok, done
    assert len(pd.read_csv(done.report.parent / "filter.csv")) == 25
    assert done.filter.forecast["time"].tolist() == [25.0, 26.0, 27.0]
    again = fme.workflow.calibrate(tmp_path / "level.toml")
    assert again.filter.result.loglik == done.filter.result.loglik


def test_a_forecast_beyond_the_inputs_of_a_file_says_so(tmp_path):
    t = np.arange(25)
    pd.DataFrame({"time": t, "level": np.sin(t) + t / 10}).to_csv(tmp_path / "level.csv", index=False)
    (tmp_path / "level.toml").write_text(
        'data = { file = "level.csv" }\nfit = {}\nfilter = { steps = 3 }\n[cost]\nkind = "fimlof"\n'
        'process_noise = { level = "w" }\nmeasurement_noise = { level = "v" }\ninitial = "diffuse"\n'
        '[model]\nequations = "next(level) = level + u\\nlevel(0) = 0"\ntimes = { start = 0, stop = 24, step = 1 }\n'
        "[forcings]\nu = { time = [0, 24], value = [0, 0.2] }\n"
        '[parameters]\nw = { start = 1, scale = "log" }\nv = { start = 0.5, scale = "log" }\n'
    )
    done = fme.workflow.calibrate(tmp_path / "level.toml")
    assert "the forcing 'u' ends at 24: its last value, 0.2, is kept" in str(done.warnings)


def test_a_filter_takes_limits_of_a_file(tmp_path):
    data = pd.DataFrame({"time": [1, 2, 3], "level": [1.0, 0.5, 2.0], "mark": ["", "<", ""]})
    data.to_csv(tmp_path / "level.csv", index=False)
    (tmp_path / "level.toml").write_text(
        'data = { file = "level.csv", censored = "mark" }\nfit = {}\nfilter = {}\n[cost]\nkind = "fimlof"\n'
        'process_noise = { level = "w" }\nmeasurement_noise = { level = 0.2 }\n'
        '[model]\nequations = "next(level) = level\\nlevel(0) = 0"\ntimes = { start = 0, stop = 3, step = 1 }\n'
        "[parameters]\nw = { start = 1 }\n"
    )
    done = fme.workflow.calibrate(tmp_path / "level.toml")
    assert done.ok, done
    assert pd.read_csv(done.report.parent / "filter.csv").shape[0] == 3
    assert done.filter.result.residuals["censored"].tolist() == ["", "<", ""]


def test_intervals_of_estimates_are_those_of_student_on_the_scale_of_the_fit():
    x = np.arange(6.0)
    fit = fme.modFit(lambda p: p["a"] + p["b"] * x - np.log(2 + x), {"a": 1.0, "b": 0.1})
    half = stats.t.ppf(0.975, 4) * fit.std_error
    ends = interval(SimpleNamespace(scale={"a": "log"}), fit)
    np.testing.assert_allclose(ends.loc["b"], fit.par["b"] + np.array([-1, 1]) * half["b"])
    np.testing.assert_allclose(ends.loc["a"], np.exp(fit.par["a"] + np.array([-1, 1]) * half["a"]))


@pytest.mark.parametrize(("collinearity", "said"), [(19.0, "can tell them apart"), (21.0, "cannot tell them apart")])
def test_the_verdict_of_screen_is_that_of_the_collinearity(collinearity, said):
    sens = fme.sensFun(lambda p: {"x": [0, 1], "y": [p["a"], p["a"] * p["b"]]}, {"a": 1.0, "b": 2.0})
    assert STEPS["screen"].verdict(None, Screened(sens, None, collinearity)).endswith(f"these data {said}.")
