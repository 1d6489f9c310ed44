"""A draft from a user's table: what its columns are is guessed, FILL marks what is missing, and filled it runs."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.workflow.command import main
from fmepy.workflow.file.case import read_case
from fmepy.workflow.file.prepared import read_task
from fmepy.workflow.file.toml import TomlTable
from fmepy.workflow.new_folder import read_columns

T = np.arange(1.0, 9.0)
WAVE = 0.02 * np.cos(5 * T)
ONE = pd.DataFrame({
    "date": pd.date_range("2001-01-02", periods=8).strftime("%Y-%m-%d"), "conc [mg/L]": 10 * np.exp(-0.3 * T + WAVE),
    "remark": ["clear", *[""] * 6, "cloudy"],
})  # fmt: skip
SEVERAL = pd.DataFrame({
    "Time (h)": T, "A": 10 * np.exp(-0.3 * T + WAVE), "A_sd": 0.2, "B": 10 - 10 * np.exp(-0.3 * T - WAVE), "sd_B": 0.1,
})  # fmt: skip
SUBJECTS = pd.concat(
    [pd.DataFrame({"Subject": who, "Time": T, "conc": dose * np.exp(-0.3 * T + WAVE), "weight": dose * 7})
     for who, dose in (("ann", 10.0), ("ben", 8.0))]
)  # fmt: skip
K = "k = { start = 0.1, lower = 0.01, upper = 2 }"
CASES = {
    "one series of dates": (
        ONE, ["d(conc)/dt = -k * conc", "conc(0) = conc0"], [K, "conc0 = { start = 5, lower = 1, upper = 50 }"],
        {"x": "date", "unit": "days", "ignore": ["remark"]}, {"k": 0.3},
    ),
    "several series with errors": (
        SEVERAL, ["d(A)/dt = -k * A", "A(1) = A1", "d(B)/dt = k * A", "B(1) = 10 - A1"],
        [K, "A1 = { start = 5, lower = 1, upper = 50 }"],
        {"x": "Time (h)", "unit": "h", "y": "value", "err": "sd"}, {"k": 0.3, "A1": 7.41},
    ),
    "several subjects": (
        SUBJECTS, ["d(conc)/dt = -k * conc", "conc(1) = c1"], [K, "c1 = { start = 5, lower = 1, upper = 50 }"],
        {"x": "Time", "entity": "Subject", "ignore": ["weight"]}, {"k": 0.3},
    ),
}  # fmt: skip


def filled(text, equations, parameters):
    """Return a draft with its places filled, one after the other."""
    for line in equations:
        text = re.sub(rf"{re.escape(line.split('=')[0].strip())} = FILL", lambda _, line=line: line, text)
    return text.replace("FILL = { start = 1.0, lower = 0.0 }", "\n".join(parameters))


@pytest.mark.parametrize("name", CASES)
def test_a_draft_is_checked_filled_and_run(tmp_path, capsys, name):
    table, equations, parameters, said, known = CASES[name]
    data, folder = tmp_path / "my data.csv", tmp_path / "study"
    table.to_csv(data, index=False)
    assert main(["new", str(folder), "--data", str(data)]) == 0
    assert "a draft for" in capsys.readouterr().out
    assert (folder / "my data.csv").read_bytes() == data.read_bytes()
    file = folder / "study.toml"
    text = file.read_text()
    got = tomllib.loads(text)["data"]
    assert {k: v for k, v in got.items() if k != "file"} == said
    assert all(re.search(rf"^{key} = .*#", text, re.M) for key in said), "every guess has its reason"
    assert all("FILL" not in line for line in text.split("[model]")[0].splitlines()[1:])
    for k in range(len(equations) + 1):  # check leads from place to place
        file.write_text(
            filled(text, equations[:k], []) if k < len(equations) else filled(text, equations, ["FILL = 1"])
        )
        line = next(i for i, t in enumerate(file.read_text().splitlines(), 1) if i > 1 and re.search(r"\bFILL\b", t))
        assert main(["check", str(file)]) == 2
        assert f"study.toml:{line}: FILL marks a place" in capsys.readouterr().err
    file.write_text(filled(text, equations, parameters).replace("[fit]", "[fit]\n[run]\nseed = 2"))
    assert main(["check", str(file)]) == 0, capsys.readouterr().err
    assert main(["calibrate", str(file)]) == 0, capsys.readouterr().err
    estimates = pd.read_csv(folder / "study_report" / "estimates.csv", index_col="parameter")["estimate"]
    for parameter, value in known.items():
        assert estimates[parameter] == pytest.approx(value, rel=0.05)


def test_what_drafts_nothing_is_refused_with_what_to_do(tmp_path, capsys):
    (tmp_path / "data.csv").write_text("t,y\n0,1\n1,2\n2,3\n")
    cases = {
        "missing": (None, "there is no file"),
        "empty": ("", "is empty; a table with a line of names is needed"),
        "head": ("t,y\n", "the table holds no rows"),
        "words": ("name,remark\nann,good\nben,bad\n", "no column of numbers or dates among 'name', 'remark'"),
        "single": ("t\n0\n1\n", "there is one column of numbers or dates"),
        "word": ("t,y\n0,1\n1,low\n2,3\n3,4\n", "word.csv:3: 'low' in column 'y' is not a number. Leave the cell"),
        "constant": ("t,y\n0,1\n1,1\n", "no column of readings changes, apart from the times 't'"),
        "german": ("Datum;A\n01.03.2021;1\n02.03.2021;2\n", "the dates of column 'Datum', such as '01.03.2021'"),
        "american": ("Date,A,B\n3/1/2021,1,2\n3/2/2021,2,3\n", "Write them as 2001-12-31, in all cells"),
        "units": ("Tag;A\n[d];[mg/L]\n1;2,5\n2;3,5\n", "A line of units has no place below the names: take it out"),
        "limit": (
            "t,y\n0,1\n1,<0.5\n2,3\n3,4\n",
            "limit.csv:3: '<0.5' in column 'y' is not a number. A reading beyond",
        ),
        "names": ("time,A,sd,name\n0,1,1,a\n1,2,1,a\n0,3,1,b\n1,4,1,b\n", "rename the column 'name'"),
        "archive": ("PK\x03\x04", "is a workbook or an archive"),
        "huge": ("t,y\n" + "1,1\n" * 5_000_001, "has more than"),
    }
    for name, (text, said) in cases.items():
        if text is not None:
            (tmp_path / f"{name}.csv").write_text(text)
        assert main(["new", str(tmp_path / "out"), "--data", str(tmp_path / f"{name}.csv")]) == 2, name
        assert said in capsys.readouterr().err, name
    both = ["new", str(tmp_path / "out"), "--from", "lynx", "--data", str(tmp_path / "data.csv")]
    assert main(both) == 2
    assert "give one of them" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("column", "variable", "unit"),
    [
        ("conc (mg/L)", "conc", "mg/L"), ("conc_mgL", "conc", "mgL"), ("conc_mg_L", "conc", "mg_L"),
        ("O2_umol_per_L", "O2", "umol_per_L"), ("biomass.g.m2", "biomass", "g.m2"), ("NO3_uM", "NO3", "uM"),
        ("y_1", "y_1", None), ("A_m", "A_m", None), ("C_org", "C_org", None),
    ],
)  # fmt: skip
def test_units_are_guessed_from_the_names_of_columns(tmp_path, column, variable, unit):
    table = pd.DataFrame({"time_h": T, column: 10 + T, f"{column}_sd": 0.1, "temp_degC": 20.0})
    table.to_csv(tmp_path / "d.csv", index=False)
    found = read_columns(tmp_path / "d.csv")[1]
    assert (found.x, found.units["time_h"], found.why["x"]) == ("time_h", "h", "recognised by the name")
    assert (found.observed, found.units.get(column)) == ({column: variable}, unit)
    assert found.errors == {column: f"{column}_sd"}
    assert found.ignore == ["temp_degC"]  # the same in all rows


@pytest.mark.parametrize("word", ["value", "val", "obs"])
def test_a_long_table_keeps_its_names(tmp_path, word):
    rows = [("conc A", t, 10 - t, 0.1) for t in range(1, 5)] + [("B", t, 1.0 * t, 0.1) for t in range(1, 5)]
    pd.DataFrame(rows, columns=["what", "day", word, "sd"]).to_csv(tmp_path / "long.csv", index=False)
    assert main(["new", str(tmp_path / "s"), "--data", str(tmp_path / "long.csv")]) == 0
    told = tomllib.loads((tmp_path / "s" / "s.toml").read_text())
    assert told["data"] == {"file": "long.csv", "x": "day", "y": word, "err": "sd"}
    assert told["model"]["outputs"] == {"conc A": "conc_A"}
    assert "d(conc_A)/dt = FILL" in told["model"]["equations"]


TEXT = """\
fit = {}
[data]
file = "d.csv"
x = "date"
unit = "hours"
[model]
equations = "d(y)/dt = -k * y + u"
state = { y = 10 }
times = { start = 0, stop = 72, step = 1 }
[forcings.u]
time = [0, 72]
value = [0, 0]
[parameters]
k = { start = 0.02, lower = 0.001, upper = 1 }
"""
DATES = "date,y,note,T\n2001-01-01T12:00,7.9,,1\n2001-01-02,6.2,warm,2\n2001-01-03 06:00,3.9,,3\n"


def task_of(folder, text=TEXT, data=DATES, **files):
    for name, inside in {"d.csv": data, "d.toml": text, **{f"{k}.csv": v for k, v in files.items()}}.items():
        (folder / name).write_text(inside)
    return read_task(read_case(folder / "d.toml"))


def test_dates_are_times_since_the_first_or_an_origin_and_the_report_says_so(tmp_path):
    task = task_of(tmp_path)
    assert task.data["date"].tolist() == [0.0, 12.0, 42.0]
    assert task.x_unit == "hours since 2001-01-01 12:00:00"
    task = task_of(tmp_path, TEXT.replace("unit =", 'origin = "2001-01-01"\nunit ='))
    assert task.data["date"].tolist() == [12.0, 24.0, 54.0]
    note = next(note for note in task.notes if "left alone" in note)
    assert note.startswith("d.csv: left alone, as no variables of the model: 'note', 'T'.")
    done = fme.workflow.calibrate(tmp_path / "d.toml")
    report = done.report.read_text()
    assert "the dates are hours since 2001-01-01." in report
    assert report.count("%3E01-02 00:00%3C/text") == 2  # axes bear dates: of the fit, of the deviations
    assert ">2001-01-01 12:00</td>" in report  # tables, too: from when the readings are, and the readings
    assert "runs from 2001-01-01 to 2001-01-04." in report
    assert "date, hours" not in report
    silent = task_of(tmp_path, TEXT.replace("unit =", 'ignore = ["note", "T"]\nunit ='))
    assert not [note for note in silent.notes if "left alone" in note]
    rain = TEXT.replace("time = [0, 72]\nvalue = [0, 0]", 'file = "rain.csv"')
    rain = rain.replace("unit =", 'origin = "2001-01-01"\nunit =')
    table = "time,value\n2001-01-01,0\n2001-01-04,6\n"
    dated = task_of(tmp_path, rain, rain=table).model(times=[0, 24, 72])
    plain = task_of(tmp_path, TEXT.replace("value = [0, 0]", "value = [0, 6]")).model(times=[0, 24, 72])
    pd.testing.assert_frame_equal(dated, plain)
    with pytest.raises(fme.errors.ArgumentError, match=r"rain.csv holds dates: say in .data. from when"):
        task_of(tmp_path, rain.replace('origin = "2001-01-01"\n', ""), rain=table)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('unit = "hours"\n', "", "d.toml:4: the column 'date' of d.csv holds dates: say in [data] in which unit"),
        ('unit = "hours"', 'unit = "fortnights"', "d.toml:5: the column 'date' of d.csv holds dates: say in [data]"),
        ('unit = "hours"', 'unit = "hours"\norigin = "then"', "d.toml:6: `origin` = 'then' is not a date"),
        ('unit = "hours"', 'unit = "hours"\nignore = ["nte"]', "d.toml:6: there is no column 'nte' in d.csv. Did you"),
        ('unit = "hours"', 'unit = "hours"\nignore = ["date"]', "d.toml:6: the column 'date' cannot be left alone"),
        ("2001-01-02,6.2", "2001-02-30,6.2", "d.csv:3: '2001-02-30' is not a date such as 2001-12-31 in column 'date'"),
        ("2001-01-02,6.2", ",6.2", "d.csv:3: the date is missing in column 'date'."),
        ("2001-01-01T12:00,7.9", "1,7.9", "is not a number. Write dates as 2001-12-31, in all cells of the column"),
    ],
)
def test_mistakes_of_dates_are_told_with_their_line(tmp_path, old, new, said):
    with pytest.raises(fme.errors.ArgumentError) as error:
        task_of(tmp_path, TEXT.replace(old, new), DATES.replace(old, new))
    assert said in str(error.value)


def test_dates_in_another_order_are_told_beside_an_origin_and_names_of_a_forcing(tmp_path):
    text = TEXT.replace("unit =", 'origin = "2001-01-01"\nunit =')
    with pytest.raises(fme.errors.ArgumentError, match=r"d.csv:2: '01.01.2001' in .* Write dates as 2001-12-31"):
        task_of(tmp_path, text, "date,y\n01.01.2001,7.9\n02.01.2001,6.2\n")
    with pytest.raises(fme.errors.ArgumentError, match=r"d.toml:5: `origin` is for dates"):
        task_of(tmp_path, text, "date,y\n1,7.9\n2,6.2\n")
    with pytest.raises(fme.errors.ArgumentError, match=r"no column 'time'; name the .* There are 'date', 'rain'"):
        task_of(tmp_path, TEXT.replace("time = [0, 72]\nvalue = [0, 0]", 'file = "r.csv"'), r="date,rain\n0,1\n9,1\n")


def test_fill_is_a_mark_in_equations_and_parameters_alone(tmp_path):
    text = TEXT.replace("fit = {}", 'title = "FILL"\nfit = {}').replace("-k * y + u", "-k * y + u # no FILL")
    task_of(tmp_path, text)
    assert TomlTable.read(tmp_path / "d.toml").data["title"] == "FILL"
    with pytest.raises(fme.errors.ArgumentError, match=r"d.toml:15: FILL marks a place .* a plain number is fixed"):
        task_of(tmp_path, text.replace("start = 0.02", 'start = "FILL"'))


@pytest.mark.parametrize(
    ("days", "entity"),
    [("123456", ""), ("123123", "operator")],  # one series whoever read it; two series at the same times
)
def test_a_text_tells_experiments_apart_where_times_are_repeated(tmp_path, days, entity):
    rows = [f"{day},{i + 1.5},{name}" for i, (day, name) in enumerate(zip(days, "aaabbb", strict=True))]
    (tmp_path / "growth.csv").write_text("day,biomass,operator\n" + "\n".join(rows) + "\n")
    assert read_columns(tmp_path / "growth.csv")[1].entity == entity


def test_the_mark_stands_only_where_something_is_to_be_filled(tmp_path):
    (tmp_path / "growth.csv").write_text("day,biomass\n1,2.0\n2,3.0\n3,5.0\n")
    assert main(["new", str(tmp_path / "batch"), "--data", str(tmp_path / "growth.csv")]) == 0
    text = (tmp_path / "batch" / "batch.toml").read_text()
    inside = (
        text[text.index('equations = """') :].split('"""')[1] + text[text.index("\n[parameters]") + 1 :].split("\n[")[0]
    )
    assert text.count("FILL") == inside.count("FILL") > 0
