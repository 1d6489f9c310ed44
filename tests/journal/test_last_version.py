"""Results that the last version saved are loaded, and say what is computed today.

``version_0_1/results`` holds the samples as they were saved before the engines became one: by compiled code of another
library and by scipy. What they say may differ by the tolerances of the runs, and by nothing else.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fmepy as fme
from tests.journal.samples import SAMPLES

FOLDER = Path(__file__).parent / "version_0_1" / "results"
LATER = {"SteadyState": "stable: .*\n"}
"""What results say since."""
REWORDED = {"FilterSummary": ("SUMSQ", "sum of squares")}
"""What they say in other words since."""
NEW = {"Branch", "CalibrationCheck", "OptimalDesign", "StructuralIdentifiability"}
"""Kinds that the last version did not have."""
NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?")


@pytest.mark.filterwarnings("ignore:1 of 6 runs failed")
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_a_saved_result_of_the_last_version_says_what_is_computed_today(name):
    before, today = (repr(result) for result in (fme.load(FOLDER / f"{name}.json"), SAMPLES[name]()))
    today = re.sub(LATER.get(name, "$^"), "", today)
    before = before.replace(*REWORDED.get(name, ("", "")))
    words = [NUMBER.sub("#", text).split() for text in (before, today)]
    assert words[0] == words[1]
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (before, today)]
    assert numbers[0] == pytest.approx(numbers[1], rel=2e-3, abs=1e-6)


def test_every_kind_of_result_of_the_last_version_is_among_them():
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SAMPLES) - NEW


def test_a_field_that_was_called_otherwise_is_read(tmp_path):
    model = fme.OdeModel("d(N)/dt = -k*N", state={"N": 10.0}, times=range(5), parms={"k": 0.4})
    words = {"measurement_noise": {"N": 0.3}, "likelihood": "laplace"}
    cost = fme.SimulationCost(model, {"time": [1, 2, 3], "N": [6.9, 4.4, 3.1]}, **words)
    fit = fme.modFit(cost, method="Nelder-Mead")
    path = tmp_path / "fit.json"
    fit.save(path)
    path.write_text(path.read_text().replace('"not_normal"', '"laplace"'))
    assert fme.load(path).noise.not_normal == ("N",)
