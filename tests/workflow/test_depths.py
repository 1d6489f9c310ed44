"""A calibration of a model on a grid, from a file of data by time and depth to the report."""

import re

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.workflow.steps.scenarios import _ends as ends

MODEL = """
import numpy as np
import fmepy as fme
GRID = fme.Grid1D(np.linspace(0, 4, 9))
def sediment(t, O2, *, D=1.0, k=0.3):
    flow = fme.transport_1d(O2, GRID, D=D, up=100.0)
    return flow.rate - k * O2, {"into": flow.flux[0]}
model = fme.OdeModel(sediment, state={"O2": 50.0}, grid=GRID, times=np.arange(0, 11, 1.0))
"""
FILE = """
data = { file = "data.csv", x = "day", depth = "depth" }
model = { python = "model.py:model" }
cost = { measurement_noise = { O2 = 1.0 } }
[parameters]
D = { start = 0.8, lower = 0.01, upper = 10 }
k = { start = 0.2, lower = 0, upper = 2 }
[screen]
[fit]
[sample]
niter = 200
[ranges]
num = 20
"""


@pytest.fixture
def folder(tmp_path):
    names = {}
    exec(MODEL, names)
    table = names["model"]()
    seen = table[table["time"].isin([2, 10])].rename(columns={"time": "day", "x": "depth"}).iloc[::2]
    noise = np.random.default_rng(1).standard_normal(len(seen))
    seen.assign(O2=seen["O2"] + noise).to_csv(tmp_path / "data.csv", index=False)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "case.toml").write_text(FILE)
    return tmp_path


def test_scenarios_and_sensitivities_of_profiles_are_labelled_by_what_they_are(folder):
    (folder / "what.csv").write_text("scenario,k\nas is,0.3\nslow,0.1\n")
    with (folder / "case.toml").open("a") as file:
        file.write('[scenarios]\ntable = "what.csv"\nnum = 5\n')
    result = fme.workflow.calibrate(folder / "case.toml")
    page = (folder / "case_report" / "report.html").read_text(encoding="utf-8")
    table = ends(next(iter(result.scenarios.parts.values())).summary())
    assert table.columns[:4].tolist() == ["scenario", "variable", "time", "x"]
    assert table["time"].tolist() == [10.0] * 4
    assert table["x"].fillna(-1).tolist() == [3.75, -1.0, 3.75, -1.0]
    assert "%3Esensitivity%3C/text" in page
    assert "%3Edepth%3C/text" in page


def test_from_the_file_to_the_report(folder):
    result = fme.workflow.calibrate(folder / "case.toml")
    assert result.fit.par["k"] == pytest.approx(0.3, abs=3 * result.fit.std_error["k"])
    assert result.fit.nobs == 8
    bands = pd.read_csv(folder / "case_report" / "ranges.csv")
    assert list(bands.columns[:3]) == ["time", "x", "var"]
    assert set(bands["var"]) == {"O2", "into"}
    page = (folder / "case_report" / "report.html").read_text(encoding="utf-8")
    assert "could not be drawn" not in page
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page))
    assert "differential equations for 1 profile in 8 cells: O2; it also gives into" in text
    assert "fitted curve and its band, over depth" in page
    rows = result.fit.fitted_panels()
    assert [panel.upright for panel in rows] == [True]
    assert rows[0].curves["var"].unique().tolist() == ["day 2", "day 10"]
    assert rows[0].seen["x"].tolist() == rows[0].curves["x"].iloc[::2].tolist()
    drawn = result.fit.plot()
    assert (drawn[0].get_xlabel(), drawn[0].get_ylabel(), drawn[0].yaxis_inverted()) == ("O2", "depth", True)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('depth = "depth"', 'depth = "dept"', r"case.toml:2.*no column 'dept'.*Did you mean 'depth'"),
        (', depth = "depth"', "", "data.csv.*'depth' is not a variable of the model"),
    ],
)
def test_mistakes_are_told_with_their_line(folder, old, new, words):
    path = folder / "case.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(fme.errors.FmepyError, match=f"(?s){words}"):
        fme.workflow.calibrate(path)
