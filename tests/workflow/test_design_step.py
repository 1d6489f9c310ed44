"""``design``: what to measure next, in the tables and in words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fmepy.workflow.command import main

TOML = """\
data = {{ file = "blood.csv", x = "hour" }}
fit = {{}}
design = {{ {design} }}
{noise}
[model]
equations = \"\"\"
    d(A)/dt = -k * A
    A(0) = dose
    blood = A / V
\"\"\"
times = {{ start = 0, stop = 12, step = 1 }}
[parameters]
k = {{ start = 0.3, lower = 0.01, upper = 2{scale} }}
V = {{ start = 5, lower = 1, upper = 50 }}
dose = 100
"""


def run(folder, design, *, noise="", scale="", status=0):
    t = np.arange(1, 6.0)
    rng = np.random.default_rng(1)
    data = pd.DataFrame({"hour": t, "blood": 20 * np.exp(-0.3 * t) + 0.3 * rng.standard_normal(5)})
    data.to_csv(folder / "blood.csv", index=False)
    pd.DataFrame({"hour": [0.5, 3, 7, 11], "variable": "blood"}).to_csv(folder / "possible.csv", index=False)
    (folder / "case.toml").write_text(TOML.format(design=design, noise=noise, scale=scale), encoding="utf-8")
    assert main(["calibrate", str(folder / "case.toml"), "--out", str(folder / "out")]) == status
    if status:
        return None
    out = folder / "out"
    return pd.read_csv(out / "design.csv"), pd.read_csv(out / "design_errors.csv"), (out / "report.html").read_text()


@pytest.mark.parametrize("scale", ["", ', scale = "log"'])
def test_readings_of_a_file_are_chosen_and_told(tmp_path, scale):
    chosen, errors, page = run(tmp_path, 'candidates = "possible.csv", n = 2', scale=scale)
    assert len(chosen) == 2
    assert set(chosen["hour"]) <= {0.5, 3, 7, 11}
    assert (errors["with_these"] < errors["now"]).all()
    assert "What to measure next" in page
    assert "Readings to take" in page


def test_a_reading_has_the_residual_deviation_of_the_fit_on_any_scale(tmp_path):
    found = []
    for name, scale in (("plain", ""), ("log", ', scale = "log"')):
        (tmp_path / name).mkdir()
        _, errors, page = run(tmp_path / name, 'candidates = "possible.csv", n = 2', scale=scale)
        assert "standard deviation of 0.3" in page
        estimates = pd.read_csv(tmp_path / name / "out" / "estimates.csv")
        np.testing.assert_allclose(errors["now"], estimates["se"], rtol=1e-4)
        found.append(errors[["now", "with_these"]])
    np.testing.assert_allclose(*found, rtol=1e-4)


def test_a_prior_that_takes_no_part_is_told(tmp_path):
    prior = ', prior = { dist = "norm", loc = 0.3, scale = 0.02 }'
    assert "prior takes no part" in run(tmp_path, 'candidates = "possible.csv", n = 2', scale=prior)[2]


def test_times_between_bounds_and_the_parameters_in_question(tmp_path):
    noise = "[cost]\nmeasurement_noise = { blood = 0.3 }"
    chosen, errors, _ = run(tmp_path, 'times = [1, 12], n = 3, for_ = "k"', noise=noise)
    assert chosen["hour"].between(1, 12).all()
    assert errors.set_index("parameter").loc["k", "with_these"] < errors.set_index("parameter").loc["k", "now"]


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ("n = 2", "either `candidates`"),
        ('n = 2, candidates = "nowhere.csv"', "nowhere.csv"),
        ('n = 2, times = [1, 12], for_ = "kk"', "Did you mean 'k'"),
        ('n = 2, times = [12, 1]', "must be the first and the last time"),
        ('n = 2, times = []', "must be the first and the last time"),
        ('n = 2, times = [1, "a"]', "must hold a number"),
        ('n = 2, times = [1, 12], criterion = "F"', "criterion"),
    ],
)  # fmt: skip
def test_mistakes_are_told(tmp_path, capsys, design, message):
    run(tmp_path, design, status=2)
    assert message in capsys.readouterr().err
