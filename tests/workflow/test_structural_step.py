"""``screen = { structural = true }``: what no data of this kind could tell, in the tables and in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fmepy as fme
from fmepy.workflow.command import main

TOML = """\
data = {{ file = "blood.csv", x = "hour" }}
screen = {{ structural = true }}
[model]
equations = \"\"\"
    d(A)/dt = -(leave + bind) * A
    A(0) = dose
    blood = A / V
\"\"\"
times = {{ start = 0, stop = 8, step = 1 }}
[parameters]
leave = {{ start = 0.2, lower = 0.01, upper = 2 }}
{bind}
V = {{ start = 5, lower = 1, upper = 50 }}
dose = 100
"""


def run(folder, bind):
    t = np.arange(9.0)
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"hour": t, "blood": 20 * np.exp(-0.5 * t) * (1 + 0.02 * rng.standard_normal(9))})
    data.to_csv(folder / "blood.csv", index=False)
    (folder / "case.toml").write_text(TOML.format(bind=bind), encoding="utf-8")
    assert main(["calibrate", str(folder / "case.toml"), "--out", str(folder / "out")]) == 0
    return pd.read_csv(folder / "out" / "structural.csv"), (folder / "out" / "report.html").read_text(encoding="utf-8")


def test_what_no_data_could_tell_is_said_and_what_is_known_is_not_asked(tmp_path):
    table, page = run(tmp_path, "bind = { start = 0.3, lower = 0.01, upper = 2 }")
    assert dict(table.to_numpy()) == {"leave": "not", "bind": "not", "V": "globally"}
    assert "What no data of these variables could determine" in page
    assert "leave + bind" in page
    (tmp_path / "known").mkdir()
    table, page = run(tmp_path / "known", "bind = 0.3")
    assert dict(table.to_numpy()) == {"leave": "globally", "V": "globally"}


def test_it_is_saved_and_comes_back(tmp_path):
    model = fme.OdeModel("d(A)/dt = -(a + b)*A", state={"A": 1}, times=[0, 1], parms={"a": 1, "b": 1})
    found = fme.structural_identifiability(model, seed=1)
    again = fme.load(found.save(tmp_path / "found.json"))
    assert again.verdicts.equals(found.verdicts)
    assert again.told() == found.told()
