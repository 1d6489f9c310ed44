"""What is written reads back to the same numbers, and nothing is written elsewhere or over anything."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.dmi.diagnostics import DiagnosticWarning
from fmepy.errors import DataError, ModelError
from fmepy.workflow.command import main

Module = fme.dmi.Module


def model_of(**words):
    modules = [
        Module("people", """
            subscripts region: north, south
            dims P[region], birth[region]
            d(P[region])/dt = birth[region] * P[region] * effect(t) - out[region] + noise
            out[region] = P[region] / delay3(life, 5)  # they leave
            dims out[region]
            noise = random_normal(0, sd)
        """),
        Module("life", "life = a * D[1] + u + V[0]\nd(L)/dt = table(t, xs, ys) - D[0] * L\ndims V[2]",
               dims={"D": 2}, local=["a"], outputs=["life", "L"]),
    ]  # fmt: skip
    data = [
        {
            "P": [0.1 + 0.2, 2e-300],
            "birth": fme.dmi.item([0.1, 1 / 3], unit="1/a", lower=0, upper=2, comment='of "1978", n'),
            "life.a": 2.5, "D": [0.01, 30.0], "xs": [0, 1, 5], "ys": [1, 0, 2], "effect": [[0, 1], [7, 0.5]], "L": 7.0,
            "sd": 0.001,
        },
        {
            "u": fme.dmi.item([1.0, 1 / 7, 3], times=[0, 2.2, 9], interpolation="constant", extrapolate=True, unit="a"),
            "V": ([0, 10], [[1, 2], [1 / 3, 4]]),
        },
    ]  # fmt: skip
    return fme.dmi.ModularModel(modules, data, **{"times": np.arange(0, 8, 0.7), "dt": 0.1, "seed": 3} | words)


def read(file):
    """Return the table that `fmepy run` writes."""
    assert main(["run", str(file), "--no-plots"]) == 0
    return pd.read_csv(file.parent / "model" / "outputs.csv")


def test_what_is_written_reads_back_to_the_same_numbers(tmp_path, capsys):
    model = model_of().replace(parms={"D[1]": 31.1, "birth[south]": 1 / 9})
    file = model.write(tmp_path / "new" / "case")
    assert sorted(str(f.relative_to(file.parent)) for f in file.parent.rglob("*.*")) == [
        "data/V.csv", "data/constants.csv", "data/items.csv", "data/u.csv", "life.fme", "model.toml", "people.fme",
    ]  # fmt: skip
    pd.testing.assert_frame_equal(read(file), model(), rtol=1e-15, check_dtype=False)
    again = fme.dmi.ModularModel(
        [fme.dmi.read_module_file(file.parent / f) for f in ("people.fme", "life.fme")], file.parent / "data",
        times=model.times, dt=0.1, seed=3,
    )  # fmt: skip
    assert again.parms.to_dict() == model.parms.to_dict()
    assert again().equals(model())
    columns = ["kind", "unit", "interpolation", "extrapolate", "start", "stop", "lower", "upper", "comment"]
    pd.testing.assert_frame_equal(again.data.items[columns].sort_index(), model.data.items[columns].sort_index())
    assert again.data.items.loc["birth", ["lower", "upper", "comment"]].tolist() == [0, 2, 'of "1978", n']


def test_arguments_of_the_model_are_keys(tmp_path):
    model = model_of(times=[0, 1, 3], outputs=["P[south]", "life"], tol=1e-6, unsettled="keep", dt=0.25)
    text = model.write(tmp_path).read_text()
    lines = ["times = [0.0, 1.0, 3.0]", 'outputs = ["P[south]", "life"]', "tol = 1e-06", 'unsettled = "keep"']
    assert [line for line in lines if line not in text.splitlines()] == []
    pd.testing.assert_frame_equal(read(tmp_path / "model.toml"), model(), rtol=1e-15, check_dtype=False)


def test_nothing_is_written_over_or_elsewhere(tmp_path):
    model = fme.dmi.ModularModel([Module("../../evil", "x = t"), Module("..", "y = k")], {"k": 1}, times=[0, 1], dt=1)
    model.write(tmp_path / "a" / "b")
    assert sorted(f.name for f in tmp_path.rglob("*.*")) == ["_.._evil.fme", "_.fme", "constants.csv", "model.toml"]
    with pytest.raises(ModelError, match=r"holds .*model.toml.* already; nothing is written over"):
        model.write(tmp_path / "a" / "b")
    (tmp_path / "out").mkdir()
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "data").symlink_to(tmp_path / "out")
    with pytest.raises(ModelError, match="'data' already"):
        model.write(tmp_path / "c")
    assert not list((tmp_path / "out").iterdir())
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError, match="is a file"):
        model.write(tmp_path / "file")


def test_what_is_no_text_is_refused(tmp_path):
    @fme.dmi.module(reads=["x"], assigns=["y"])
    def double(x):
        return 2 * x

    model = fme.dmi.ModularModel([Module("m", "x = t"), double], times=[0, 1], dt=1)
    with pytest.raises(ModelError, match="'double' is a Python function"):
        model.write(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_declarations_of_text_and_arguments_are_both_written(tmp_path):
    text = "step 2\nlocal a\nendogenous b\nb = a * c + b / 2\na = D[1]\ndims E[2]\nE = D * 3\noutput a"
    m = Module("m", text, dims={"D": 2}, exogenous=["a"], step=3, outputs=["b"])
    with pytest.raises(ModelError, match="declared by arguments in another way"):
        fme.dmi.ModularModel([m], {"D": [1, 2], "c": 3.0, "m.a": 1.0}, times=[0, 3], dt=1).write(tmp_path)
    m = Module("m", text.replace("step 2\n", "").replace("\noutput a", ""), dims={"D": 2}, step=3, outputs=["b"])
    model = fme.dmi.ModularModel([m], {"D": [1, 2], "c": 3.0}, times=[0, 3], dt=1)
    pd.testing.assert_frame_equal(read(model.write(tmp_path)), model(), check_dtype=False)
    lines = (tmp_path / "m.fme").read_text().splitlines()
    assert lines[:3] == ["dims D[2]", "step 3", "output b"]


def test_bounds_in_the_data_base_are_numbers(tmp_path):
    (tmp_path / "k.csv").write_text("name,value,lower\nk,1,low\n")
    with pytest.raises(DataError, match=r"k.csv:2: lower 'low' is not a number"):
        fme.dmi.Database(tmp_path)


def test_series_with_names_of_our_own_files(tmp_path):
    model = fme.dmi.ModularModel(
        [Module("m", "y = constants + items + k")],
        {"constants": ([0, 1], [1, 2]), "items": ([0, 1], [3, 4]), "k": 1.0}, times=[0, 1], dt=1,
    )  # fmt: skip
    pd.testing.assert_frame_equal(read(model.write(tmp_path)), model(), check_dtype=False)


def test_near_names_are_told_among_computed_ones():
    with pytest.warns(DiagnosticWarning, match="capcity is read, but .* Did you mean 'capacity'"):
        fme.dmi.ModularModel([Module("m", "x = capcity\ncapacity = t")], times=[0, 1], dt=1)


def test_a_circle_that_converges_is_told_as_a_loop():
    model = fme.dmi.ModularModel([Module("m", "x = 1 + y / 4\ny = x / 2\nz = y")], times=[0, 1], dt=1)
    row = model.diagnostics.iloc[0]
    assert (row.kind, row.level, row.variable, row.line) == ("loop", "note", "y", 1)
    assert "'y', 'x' need one another" in row.message
    assert fme.dmi.ModularModel([Module("m", "d(x)/dt = y\ny = x\nx(0) = 1")], times=[0, 1], dt=1).diagnostics.empty
