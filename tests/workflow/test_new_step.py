"""A step that somebody else adds: one class and one line, from the TOML file to the page."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError
from fmepy.journal.saving import Saved
from fmepy.workflow.command import main
from fmepy.workflow.file.case import file_schema as schema
from fmepy.workflow.file.signatures import Key
from fmepy.workflow.steps.base import CalibrationStep, Requirement, best_fit
from fmepy.workflow.steps.registry import STEPS
from fmepy.workflow.steps.scale import check_named, natural

TOML = """\
data = { file = "n.csv" }
half_life = { of = "k", times = 2 }
fit = {}
require = { longest = 5 }
[model]
equations = "d(N)/dt = -k * N"
state = { N = 10 }
times = [0, 1, 2, 3, 4]
[parameters]
k = { start = 0.3, lower = 0.01, upper = 2, scale = "log" }
"""


@dataclass(frozen=True, slots=True, eq=False)
class HalfLife(Saved):
    """How long it takes until so many halves are gone."""

    time: float


class HalfLifeStep(CalibrationStep):
    """The time after which a rate has halved the state a number of times."""

    name = "half_life"
    says = "How long it takes until a half is gone."
    purpose = "See how fast it goes"
    title = "How fast <it> goes"
    takes = ("fit",)
    template = (
        "<p>After {{ result.time|number(3) }} days.</p>"
        "{% if result.time > 2 %}{{ doubt('It takes <long>.') }}{% endif %}"
        "{{ picture('course', draw) }}{{ show(table_of(tables['half_life.csv'], 'In numbers')) }}"
    )
    keys: ClassVar[dict[str, Key]] = {
        "of": Key((str,), "The rate.", required=True),
        "times": Key((int,), "How many halves.", least=1),
    }
    requirements: ClassVar[dict[str, Requirement]] = {
        "longest": Requirement(Key((float,), "The longest.", least=0), lambda result: result.time, "it takes {:.3g}")
    }

    def size(self, task, arguments):
        return f"{arguments.get('times', 1)} halves"

    def check(self, task, arguments):
        check_named(task, self.name, "of", arguments["of"], task.start.index)

    def run(self, task, arguments, done, options):
        rate = natural(task, best_fit(done).par)[arguments["of"]]
        options.remember("Nothing else was looked at.")
        return HalfLife(float(arguments.get("times", 1) * np.log(2) / rate))

    def tables(self, task, result):
        return {"half_life.csv": pd.DataFrame({"time": [result.time]})}

    def verdict(self, task, result):
        return f"It takes {result.time:.3g}."

    def facts(self, found, result):
        return {"draw": lambda: 1 / 0}


class PlainStep(CalibrationStep):
    """Says no more than it must."""

    name = "plain"
    says = "Nothing much."

    def run(self, task, arguments, done, options):
        return HalfLife(1.0)

    def tables(self, task, result):
        return {"plain.csv": pd.DataFrame({"time": [result.time]})}


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setitem(STEPS, "half_life", HalfLifeStep())
    monkeypatch.setitem(STEPS, "plain", PlainStep())
    amounts = 10 * np.exp(-0.5 * np.arange(1, 5))
    pd.DataFrame({"time": range(1, 5), "N": amounts}).to_csv(tmp_path / "n.csv", index=False)
    (tmp_path / "n.toml").write_text(TOML)
    return tmp_path / "n.toml"


def test_it_is_run_kept_written_and_told(file):
    done = fme.workflow.calibrate(file)
    assert done.ok
    assert done.half_life.time == pytest.approx(2 * np.log(2) / 0.5, rel=1e-4)
    assert "half_life" in dir(done)
    assert list(done.record["steps"]) == ["fit", "half_life"]
    assert pd.read_csv(file.parent / "n_report/half_life.csv")["time"].item() == pytest.approx(done.half_life.time)
    page = done.report.read_text()
    section = page.split('<section id="half_life"')[1].split("</section>")[0]
    for said in (
        "How fast &lt;it&gt; goes",
        "After 2.77 days.",
        "picture of the course could not be drawn",
        "In numbers",
    ):
        assert said in section
    assert "It takes &lt;long&gt;." in page.split("</section>")[1], "its doubts stand first"
    assert "See how fast it goes" in page
    assert "half_life: Nothing else was looked at." in done.warnings
    again = fme.workflow.calibrate(file)
    assert again.record["steps"]["half_life"]["kept"]
    assert again.half_life.time == done.half_life.time


def test_an_edited_step_runs_again(file, monkeypatch):
    code = file.parent / "two_halves.py"
    text = (
        "from dataclasses import dataclass\nfrom fmepy.journal.saving import Saved\n"
        "from fmepy.workflow.steps.base import CalibrationStep\n"
        "@dataclass(frozen=True, slots=True, eq=False)\nclass Number(Saved):\n    value: float\n"
        "class NumberStep(CalibrationStep):\n    name = says = 'plain'\n"
        "    def run(self, task, arguments, done, options):\n        return Number(2.0)\n"
    )
    file.write_text(TOML.replace("half_life =", "plain = {}\nhalf_life ="))

    def run(source):
        code.write_text(source)
        module = ModuleType("two_halves")
        monkeypatch.setitem(sys.modules, "two_halves", module)
        exec(compile(source, str(code), "exec"), module.__dict__)
        monkeypatch.setitem(STEPS, "plain", module.NumberStep())
        done = fme.workflow.calibrate(file)
        return done.plain.value, done.record["steps"]["plain"]["kept"], done.record["steps"]["fit"]["kept"]

    assert run(text) == (2.0, False, False)
    assert run(text) == (2.0, True, True)
    assert run(text.replace("2.0", "4.0")) == (4.0, False, True)


def test_what_a_file_may_hold_is_known_to_check_and_schema(file, capsys):
    assert main(["check", str(file)]) == 0
    assert "half_life  2 halves" in capsys.readouterr().out
    assert schema()["properties"]["half_life"]["required"] == ["of"]
    assert "longest" in schema()["properties"]["require"]["properties"]
    for old, new, said in (
        ("times = 2", "tims = 2", "n.toml:2: unknown key 'tims' in half_life; did you mean 'times'?"),
        ("times = 2", "times = 0", "n.toml:2: `times` must be at least 1; got 0."),
        ('of = "k", ', "", "n.toml:2: the key `of` is missing in half_life. The rate."),
        ('of = "k"', 'of = "K"', "n.toml:2: `of` names 'K'. Did you mean 'k'?"),
        ("fit = {}\n", "", "n.toml:2: the step 'half_life' needs the step 'fit', which is neither"),
        ("half_life = ", "half_live = ", "n.toml:2: unknown key 'half_live'; did you mean 'half_life'?"),
    ):
        file.write_text(TOML.replace(old, new))
        assert main(["check", str(file)]) == 2
        assert said in capsys.readouterr().err


def test_a_demand_of_it_that_is_missed_ends_with_1(file):
    file.write_text(TOML.replace("longest = 5", "longest = 1"))
    done = fme.workflow.calibrate(file)
    assert not done.ok
    assert done.record["demands"][0]["said"] == "it takes 2.77, at most 1 is demanded: the demand is missed."


def test_a_step_without_words_shows_its_tables(file):
    file.write_text(TOML.replace("half_life =", "plain = {}\nhalf_life ="))
    done = fme.workflow.calibrate(file)
    assert "plain.csv" in done.report.read_text().split('<section id="plain"')[1]
    assert done.plain.time == 1.0


def test_a_step_that_fails_is_told_and_leaves_the_others(file, monkeypatch):
    monkeypatch.setattr(PlainStep, "run", lambda *_: 1 / 0)
    file.write_text(TOML.replace("half_life =", "plain = {}\nhalf_life ="))
    done = fme.workflow.calibrate(file)
    assert not done.ok
    assert done.half_life is not None
    assert json.loads((file.parent / "n_report/run.json").read_text())["steps"]["plain"]["state"] == "failed"
    assert "ZeroDivisionError" in done.report.read_text().split('<section id="plain"')[1]
    assert done.plain is None


def test_a_step_that_is_not_registered_is_unknown(file):
    del STEPS["half_life"]
    with pytest.raises(ArgumentError, match="unknown key 'half_life'"):
        fme.workflow.calibrate(file)
