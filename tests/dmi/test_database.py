"""The data base: what is read, under which name; what holds between and outside data; what is refused, and where."""

from __future__ import annotations

import os
import pickle
import sqlite3
from contextlib import closing

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.dmi.data_items import item
from fmepy.dmi.database import Database, as_database
from fmepy.errors import ArgumentError, DataError
from fmepy.tables import databases


def written(folder, **files):
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return str(folder)


def sqlite(path, **tables):
    with sqlite3.connect(path) as connection:
        for name, frame in tables.items():
            frame.to_sql(name, connection, index=False)
    connection.close()
    return str(path)


def at(db, name, times, index=()):
    return db[name].sampled(np.asarray(times, dtype=float), [index])[:, 0].tolist()


# --- what is read


def test_a_folder_holds_series_constants_and_what_is_said_of_them(tmp_path):
    db = Database(
        written(
            tmp_path / "db",
            rates="time,demand,D[0],D[1]\n0,5,1,10\n10,,2,\n20,9,3,30\n",
            constants="name,value,unit\nSEM,400,orders\nA[0],1,\nA[1],2,\n",
            price="time,value\n0,1\n50,2\n",
            items="name,unit,interpolation,extrapolate\nprice,t/a,constant,true\ndemand,PJ,,\n",
        )
    )
    assert db.items["kind"].to_dict() == {
        "SEM": "constant", "A": "vector", "price": "series", "demand": "series", "D": "series",
    }  # fmt: skip
    assert db.numbers == {"SEM": 400.0, "A[0]": 1.0, "A[1]": 2.0}
    assert at(db, "demand", [0, 10, 20]) == [5, 7, 9]  # an empty cell is no datum
    assert at(db, "D", [10], (1,)) == [20]
    assert at(db, "price", [49.9, 50, 99]) == [1, 2, 2]
    table = db.items
    assert table.loc["D", "shape"] == (2,)
    assert table.loc[["SEM", "price", "demand"], "unit"].tolist() == ["orders", "t/a", "PJ"]
    assert table.loc["demand", ["start", "stop"]].tolist() == [0, 20]
    assert table.loc["price", "source"] == f"{tmp_path / 'db'}/price.csv"


def test_the_same_items_come_out_of_every_kind_of_source(tmp_path):
    series = pd.DataFrame({"time": [0.0, 2.0, 5.0], "u": [1.0, None, 4.0], "D[0]": 1.0, "D[1]": [1.0, 2.0, 3.0]})
    constants = pd.DataFrame({"name": ["a", "v[0]", "v[1]"], "value": [1.5, 2.0, 3.0]})
    folder = written(tmp_path / "db", s=series.to_csv(index=False), c=constants.to_csv(index=False))
    in_tables = sqlite(tmp_path / "data.sqlite", s=series.sample(frac=1, random_state=1), c=constants)
    D = np.c_[np.ones(3), [1, 2, 3]]
    by_name = {"u": ([0, 5], [1, 4]), "D": item(D, times=[0, 2, 5]), "a": 1.5, "v": [2, 3]}
    grid = np.linspace(0, 5, 11)
    first = None
    for db in (Database(folder), Database(in_tables), Database(series, constants), Database(by_name),
               Database(series.set_index("time"), {"a": 1.5, "v[0]": 2, "v[1]": 3})):  # fmt: skip
        values = (at(db, "u", grid), at(db, "D", grid, (1,)), db.numbers, dict(db.items["shape"]))
        first = first or values
        assert values == first
    assert first[2] == {"a": 1.5, "v[0]": 2.0, "v[1]": 3.0}


def test_what_python_gives():
    db = Database(
        {"A": [[1, 2], [3, 4]], "u": ([0, 1], [1, 2], "constant"), "s": pd.Series([1.0, 3.0], index=[0, 2]),
         "f": pd.DataFrame({"time": [0, 1], "value": [5, 6]}), "n": np.float64(2), "pair": (1.0, 2.0)}
    )  # fmt: skip
    assert db.numbers == {
        "A[0,0]": 1, "A[0,1]": 2, "A[1,0]": 3, "A[1,1]": 4, "n": 2, "pair[0]": 1, "pair[1]": 2,
    }  # fmt: skip
    assert at(db, "u", [0.5, 1]) == [1, 2]
    assert at(db, "s", [1]) == [2]
    assert at(db, "f", [0.5]) == [5.5]
    assert "µ" in Database({"μ": 1.0})
    again = pickle.loads(pickle.dumps(db))
    assert again.numbers == db.numbers
    assert repr(again) == repr(db)
    assert "constant" in db._repr_html_()


def test_the_later_of_two_sources_stands_and_the_earlier_is_remembered():
    db = Database({"a": 1.0, "b": 2.0, "D": [1, 2, 3]}, {"a": 5.0}, {"D[1]": 9.0})
    assert db.numbers == {"a": 5, "b": 2, "D[0]": 1, "D[1]": 9, "D[2]": 3}
    assert [r.name for r in db.replaced] == ["a", "D"]
    assert db.replaced[0] == ("a", "dict (source 1)", "dict (source 2)")
    # another half of a vector is no replacement; another kind replaces the whole
    halves = Database({"D[0]": 1.0}, {"D[1]": 2.0})
    assert halves.numbers == {"D[0]": 1, "D[1]": 2}
    assert not halves.replaced
    assert Database({"D": [1, 2]}, {"D": 3.0}).numbers == {"D": 3}


def test_a_list_in_a_cell_is_a_whole_vector():
    lists = [pd.DataFrame({"name": ["D"], "value": [text]}) for text in ("[1, 2, 3]", "[5, 6]")]
    assert Database(*lists).numbers == {"D[0]": 5, "D[1]": 6}
    assert Database(*lists[::-1]).numbers == {"D[0]": 1, "D[1]": 2, "D[2]": 3}


def test_elements_in_a_dict_keep_what_their_items_say():
    grid, words = {"times": [0, 1]}, {"unit": "m", "extrapolate": True}
    db = Database({f"u[{i}]": item([1.0, 2.0], **grid, **words) for i in range(2)})
    assert db.items.loc["u", ["unit", "extrapolate"]].tolist() == ["m", True]
    with pytest.raises(DataError, match=r"dict.*: 'D\[1\]' has '' where other elements of 'D' have 'm'"):
        Database({"D[0]": item(1, unit="m"), "D[1]": 2})


def test_sources_come_as_a_list_a_single_one_or_a_data_base():
    db = Database({"a": 1.0})
    assert as_database(db) is db
    assert as_database([{"a": 1.0}, db]).numbers == as_database({"a": 1.0}).numbers == db.numbers
    assert not len(as_database(None))


def test_outputs_of_a_run_become_data():
    run = pd.DataFrame({"time": [0, 1, 2], "SM": [10.0, 12.0, 11.0], "D[0]": 1.0, "D[1]": 2.0, "DD": 3.0})
    db = Database({"SM": 3.0, "k": 1.0})
    more = db.with_outputs(run, ["SM", "D"])
    assert more.items["kind"].to_dict() == {"SM": "series", "k": "constant", "D": "series"}
    assert at(more, "SM", [0.5]) == [11]
    assert not more.replaced  # as it was asked for
    assert db.items.loc["SM", "kind"] == "constant"
    assert list(db.with_outputs(run).items.index) == ["SM", "k", "D", "DD"]
    with pytest.raises(DataError, match=r"no 'SMM'.*'SM'"):
        db.with_outputs(run, "SMM")
    with pytest.raises(DataError, match="column 'time'"):
        db.with_outputs(run.drop(columns="time"))
    with pytest.raises(DataError, match="NaN in 'SM'"):
        db.with_outputs(run.assign(SM=[1.0, np.nan, 2.0]))


def test_a_cell_may_hold_a_list(tmp_path):
    text = 'name,value,unit,comment\neffect,"[(0, 1), (5, -0.5e1)]",1/a,of all\nk,2,a,\nv,"[1, 2]",,\n'
    db = Database(written(tmp_path / "db", constants=text))
    assert db["effect"].numbers == {"effect[0,0]": 0, "effect[0,1]": 1, "effect[1,0]": 5, "effect[1,1]": -5}
    assert (db["effect"].unit, db["effect"].comment, db["v"].shape) == ("1/a", "of all", (2,))
    assert Database(pd.DataFrame({"name": ["v", "k"], "value": ["[1, 2]", 3]})).numbers == {
        "v[0]": 1,
        "v[1]": 2,
        "k": 3,
    }


# --- between and outside the data


def test_outside_its_range_a_series_is_an_error_that_names_it_the_range_and_the_time():
    db = Database({"u": ([2, 4], [1, 2]), "held": item([1, 2], times=[2, 4], extrapolate=True)})
    assert at(db, "held", [0, 9]) == [1, 2]
    for times, said in (([3, 5], "time 5"), ([1, 3], "time 1")):
        with pytest.raises(DataError, match=rf"'u' .*from 2 to 4.*{said}"):
            at(db, "u", times)
    assert at(db, "u", [4 + 1e-12]) == [2]  # rounding of the grid


def test_a_constant_piece_begins_at_its_datum():
    db = Database({"u": item([1, 2, 3], times=0.1 * np.arange(3), interpolation="constant")})
    assert at(db, "u", [0, 0.1, 0.1 * 2, 0.15]) == [1, 2, 3, 2]


# --- what is refused, and where


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "bad.csv is empty"),
        ("time,u\n", "holds no rows"),
        ("time,u\n0,1\n1,x\n", r"bad.csv:3: 'x' in column 'u' is not a number"),
        ("time,u\n0,1\n\n1,1e999\n", r"bad.csv:4: inf in column 'u'; where there is no datum"),
        ("time,u\n0,1\n1,inf\n", r"bad.csv:3: 'inf'"),
        ("time,u\n0,1\n1,1_000\n", r"bad.csv:3: '1_000' in column 'u' is not a number"),
        ('time,u\n0,1.5\n1,"1,5"\n', r"bad.csv:3: '1,5' .*decimal point"),
        ("time,u\n0,1\n0,2\n", r"bad.csv:3: time 0 is there twice"),
        ("time,u\n1,1\n0,2\n", r"bad.csv:3: time 0 comes after 1"),
        ("time,u\n,1\n", r"bad.csv:2: the value in column 'time' is missing"),
        ("time,u\n0,1,2\n", r"bad.csv:1: a column has no name"),
        ("time,u,u\n0,1,2\n", r"two columns 'u'"),
        ("time,\n0,1\n", r"bad.csv:1: a column has no name"),
        ("time,u,v\n0,1,\n", r"column 'v' holds no datum"),
        ("time\n0\n", r"no column beside 'time'"),
        ("time,2u\n0,1\n", r"'2u' is no"),
        ("time,D[-1]\n0,1\n", r"not the name"),
        ("time,D[0],\"D[0,1]\"\n0,1,2\n", r"differ in their number of indices"),
        ("time,D[99999999999]\n0,1\n", r"more than 10000 elements"),
        ("time,lambda\n0,1\n", r"'lambda' is a word"),
        ("time,exp\n0,1\n", r"'exp' is a function"),
        ("Time,u\n0,1\n", r"the columns are 'Time', 'u'.*Did you mean 'time'"),
        ("name,value\na,\n", r"bad.csv:2: the value of 'a' is missing"),
        ("name,value\n,1\n", r"bad.csv:2: the name is missing"),
        ("name,value\na,1\na,2\n", r"bad.csv:3: 'a' is given more than once"),
        ('name,value\na,1\na,"[1, 2]"\n', r"bad.csv:3: 'a' is given more than once"),
        ('name,value\na[0],"[1, 2]"\n', r"bad.csv:2: 'a\[0\]' is one element"),
        ('name,value\na,"[1, x]"\n', r"bad.csv:2: '\[1, x\]' is no list such as \[1, 2\]"),
        ('name,value\na,"[(1, 2), (3)]"\n', r"bad.csv:2: 'a' must hold numbers, in rows of equal length"),
        ('name,value\na,"[1, NaN]"\n', r"bad.csv:2: 'a' holds NaN"),
        ("name,value\na," + 50_000 * "[" + "\n", r"bad.csv:2: '\[\[.*\.\.\.' is no list"),
        ("name,value,units\na,1,m\n", r"column 'units'.*Did you mean 'unit'"),
        ("name,value,interpolation\na,1,linaer\n", r"bad.csv:2: interpolation 'linaer'.*'linear'"),
        ("name,value,extrapolate\na,1,maybe\n", r"bad.csv:2: extrapolate 'maybe'"),
        ('time,u\n0,"1\n', r"bad.csv:\d: this cannot be read"),
        ("time,u\n0,\x00\n", r"bad.csv:2: this is not text"),
    ],
)  # fmt: skip
def test_a_bad_file_is_told_with_its_line(tmp_path, text, said):
    with pytest.raises(DataError, match=said):
        Database(written(tmp_path / "db", good="name,value\nok,1\n", bad=text))


def test_bad_files_that_are_no_text_or_no_tables(tmp_path):
    folder = tmp_path / "db"
    folder.mkdir()
    with pytest.raises(DataError, match="holds no CSV file"):
        Database(folder)
    (folder / "a.csv").write_bytes(b"name,value\nok,1\nf\x81nf,5\n")
    with pytest.raises(DataError, match=r"a.csv:3: this is not text"):
        Database(folder)
    (folder / "a.csv").write_bytes("name;value\nfünf;5,5\n".encode("cp1252"))  # as spreadsheets write it
    assert Database(folder).numbers == {"fünf": 5.5}
    (folder / "a.csv").write_bytes("name,value\nfünf,5\n".encode("utf-16"))
    assert Database(folder).numbers == {"fünf": 5}
    (folder / "a.csv").write_bytes("name,value\nfünf,5\n".encode("utf-8-sig"))
    assert Database(folder).numbers == {"fünf": 5}
    for name in ("missing", "missing.csv", "missing.sqlite"):
        with pytest.raises(DataError, match=f"There is no file.*{name}"):
            Database(str(tmp_path / name))
    (tmp_path / "text.sqlite").write_text("this is none" * 100)
    with pytest.raises(DataError, match="cannot be read as a SQLite file"):
        Database(str(tmp_path / "text.sqlite"))
    (tmp_path / "empty.sqlite").write_bytes(b"")
    with pytest.raises(DataError, match="holds no table"):
        Database(str(tmp_path / "empty.sqlite"))
    (tmp_path / "a.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match="nothing that a data base is read from"):
        Database(str(tmp_path / "a.xlsx"))
    with pytest.raises(DataError, match="no file or folder called ''"):
        Database("")


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("=SUM(A1:A3)", "'=SUM\\(A1:A3\\)' in column 'value' is not a number"),
        ("\"=cmd|' /C calc'!A0\"", "is not a number"),
        ("__import__('os').getcwd()", "is not a number"),
        ("9" * 5000, "in column 'value'; where there is no datum, leave the cell empty"),
        ('"' + "x" * 200_000 + '"', "field larger than field limit"),
        ("1\x00", "this is not text"),
        ('"1\nj,2', "this cannot be read"),
    ],
)
def test_a_cell_is_a_number_and_nothing_that_is_computed(tmp_path, cell, said):
    with pytest.raises(DataError, match=rf"bad.csv:\d: .*{said}"):
        Database(written(tmp_path / "db", bad=f"name,value\nk,{cell}\n"))


def test_what_is_no_file_and_links_that_lead_nowhere_or_round_and_round(tmp_path):
    folder = tmp_path / "db"
    folder.mkdir()
    (folder / "good.csv").write_text("name,value\nk,1\n")
    (folder / "round").symlink_to(folder)
    assert Database(str(folder)).numbers == {"k": 1}
    bad = folder / "bad.csv"
    for make, said in (
        (bad.mkdir, "bad.csv' cannot be read: it is a folder"),
        (lambda: os.mkfifo(bad), "bad.csv' cannot be read: it is a pipe"),
        (lambda: bad.symlink_to(folder / "nowhere"), "There is no file .*bad.csv"),
        (lambda: bad.symlink_to(bad), "cannot be read: Too many levels"),
    ):
        make()
        with pytest.raises(DataError, match=said):
            Database(str(folder))
        bad.rmdir() if bad.is_dir() else bad.unlink()


def test_sqlite_files_that_are_damaged_or_have_no_end(tmp_path, monkeypatch):
    (tmp_path / "cut.sqlite").write_bytes(b"SQLite format 3\x00" + bytes(range(256)) * 20)
    with pytest.raises(DataError, match="cannot be read as a SQLite file"):
        Database(str(tmp_path / "cut.sqlite"))
    monkeypatch.setattr(databases, "MOST_ROWS", 1000)
    monkeypatch.setattr(databases, "MOST_WORK", 2)
    for seen, said in (("r", "more than 1000 rows"), ("r WHERE value < 0", "interrupted")):
        path = tmp_path / f"{said[:4]}.sqlite"
        with closing(sqlite3.connect(path)) as c:
            endless = "SELECT 'a', 1 UNION ALL SELECT name, value + 1 FROM r"
            c.execute(f"CREATE VIEW q AS WITH RECURSIVE r(name, value) AS ({endless}) SELECT * FROM {seen}")
            c.commit()
        with pytest.raises(DataError, match=said):
            Database(str(path))


def test_a_bad_cell_of_a_sqlite_table_is_told_with_its_row(tmp_path):
    path = sqlite(tmp_path / "data.sqlite", rates=pd.DataFrame({"time": [1, 0], "u": [1.0, "x"]}))
    with pytest.raises(DataError, match=r"table rates, row 2: 'x' in column 'u' is not a number"):
        Database(path)
    path = sqlite(tmp_path / "twice.sqlite", rates=pd.DataFrame({"time": [1, 1], "u": [1.0, 2.0]}))
    with pytest.raises(DataError, match=r"table rates, row 2: time 1 is there twice"):
        Database(path)
    path = sqlite(tmp_path / "other.sqlite", people=pd.DataFrame({"id": [1]}))
    with pytest.raises(DataError, match=r"table people: the columns are 'id'"):
        Database(path)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"a": "1"}, "must hold numbers"),
        ({"a": True}, "must hold numbers"),
        ({"a": None}, "must hold numbers|NaN"),
        ({"a": np.nan}, "NaN or infinite"),
        ({"a": [1, np.inf]}, r"NaN or infinite numbers \(position 1\)"),
        ({"a": [[1, 2], [3]]}, "rows of equal length"),
        ({"a": []}, "empty array"),
        ({"a": np.zeros(10_001)}, "more than 10000"),
        ({"a": ([0, 1], [1, 2, 3])}, "3 values and 2 times"),
        ({"a": ([0, 0], [1, 2])}, "must increase"),
        ({"a": ([0, 1], [1, 2], "cubic")}, "'linear' or 'constant'"),
        ({"a[0]": [1, 2]}, "is one element"),
        ({"a": [1, 2], "a[0]": 1}, "more than once"),
        ({"a[0]": 1, "a[1]": ([0, 1], [1, 2])}, "some elements are series"),
        ({"a b": 1}, "not the name"),
        ({"t": 1}, "is the time; choose"),
        ({"pi": 1}, "'pi' is a constant"),
        ({3: 1}, "not the name"),
        ({"a": pd.DataFrame({"x": [1]})}, "needs time and value"),
        (pd.DataFrame({"time": [0, 1], "u": [1.0, "x"]}), r"DataFrame \(source 1\), row 1: 'x'"),
        (pd.DataFrame({"time": [0, 1], "u": [1.0, np.inf]}), r"row 1: inf in column 'u'"),
        (pd.DataFrame({"x": [0, 1]}), "columns are 'x'"),
        (pd.DataFrame(), "columns are none"),
    ],
)
def test_bad_values_are_refused(source, said):
    with pytest.raises(DataError, match=said):
        Database(source)


def test_other_things_are_no_source():
    with pytest.raises(ArgumentError, match="Source 2 of the data base is int"):
        Database({"a": 1.0}, 3)
    with pytest.raises(ArgumentError, match="'linear'"):
        item([1, 2], times=[0, 1], interpolation="liner")
    with pytest.raises(DataError, match="extrapolate"):
        item([1, 2], times=[0, 1], extrapolate="yes")


def test_what_is_said_of_an_item_that_is_not_there_is_refused(tmp_path):
    folder = written(tmp_path / "db", c="name,value\nprice,1\n", items="name,unit\nprise,t\n")
    with pytest.raises(DataError, match=r"items.csv:2: there is no item 'prise'.*'price'"):
        Database(folder)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"values": [], "times": []}, "has no times"), ({"values": 1j}, "must hold numbers"),
     ({"values": [1.0, 2.0], "times": ["2020-01-01", "2020-01-02"]}, "must hold numbers")],
)  # fmt: skip
def test_items_without_times_or_of_other_numbers_are_refused(given, told):
    with pytest.raises(DataError, match=told):
        item(**given)


def test_times_that_are_dates_are_told_to_become_numbers(tmp_path):
    (tmp_path / "u.csv").write_text("time,u\n2020-01-01,1\n2020-01-02,2\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"u.csv:2: '2020-01-01' in column 'time'.* Dates become numbers by pd.to_dat"):
        fme.dmi.ModularModel([fme.dmi.Module("m", "a = 2 * u")], tmp_path / "u.csv", times=[0, 1], dt=1)
