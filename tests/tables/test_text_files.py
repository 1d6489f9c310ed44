"""Tables of text files, however they were written: found, told, and what is wrong has its line."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.errors import ArgumentError
from fmepy.tables.text_files import read_text_file


@pytest.fixture
def read(tmp_path):
    def one(content, **how):
        path = tmp_path / "t.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_text_file(path, **how)

    return one


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("time,a\n0,1.5\n1,2.5\n", []),
        ("time;a\n0;1,5\n1;2,5\n", ["columns are separated by semicolons", "the decimal mark is a comma"]),
        ("time;a\r\n0;1,5\r\n1;2,5\r\n", ["columns are separated by semicolons", "the decimal mark is a comma"]),
        ("time\ta\n0\t1.5\n1\t2.5\n", ["columns are separated by tabs"]),
        ("time a\n0    1.5\n1 2.5\n", ["columns are separated by spaces"]),
        ("time|a\n0|1.5\n1|2.5", ["columns are separated by bars"]),
        ('"time","a"\n"0","1,5"\n"1","2,5"\n', ["the decimal mark is a comma"]),
        ("# made by hand\ntime,a\n\n0, 1.5\n1, 2.5\n", []),
        ("time,a,\n0,1.5,\n1,2.5,\n", []),
        ("\ufefftime,a\n0,1.5\n1,2.5\n", []),
        ("time,a\n0,1.5\n1,2.5\n".encode("utf-16"), ["read as utf-16"]),
    ],
)
def test_the_same_table_written_in_many_ways(read, content, told):
    found = read(content)
    assert found.frame.to_dict("list") == {"time": [0, 1], "a": [1.5, 2.5]}
    assert [line.removeprefix("t.csv: ").removesuffix(".") for line in found.notes] == told


def test_an_encoding_that_is_no_utf8_is_read_as_cp1252_and_told(read):
    found = read("Zeit,Höhe\n0,1\n".encode("cp1252"))
    assert list(found.frame.columns) == ["Zeit", "Höhe"]
    assert found.notes == ("t.csv: read as cp1252.",)
    assert list(read("Zeit,Höhe\n0,1\n".encode("cp437"), encoding="cp437").frame.columns) == ["Zeit", "Höhe"]


def test_what_is_said_is_not_looked_for(read):
    assert read("a;b\n1;2\n", separator=";").notes == ()
    assert read("a;b\n1,5;2\n", separator=";", decimal=",").frame["a"].tolist() == [1.5]
    assert read("a;b\n1,5;2\n", separator=";", decimal=".").frame["a"].tolist() == ["1,5"]


def test_rows_know_their_line_and_missing_cells_are_missing(read):
    found = read("time,s,v\n0,007,1e3\n\n# later\n1,008,NA\n")
    assert found.lines == [2, 5]
    assert found.frame["s"].tolist() == ["007", "008"], "labels are not numbers"
    np.testing.assert_array_equal(found.frame["v"], [1000.0, np.nan])
    assert found.frame["time"].dtype == np.int64


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "t.csv is empty"),
        ("time,a\n", "t.csv:1: the table holds no rows"),
        ("1,2\n3,4\n", "t.csv:1: the first line must hold the names"),
        ("a,a\n1,2\n", "t.csv:1: there are two columns 'a'"),
        (",a\n1,2\n", "t.csv:1: a column has no name"),
        ("a,b\n1,2,3\n1,2,4\n", "t.csv:1: a column has no name"),
        ("a,b\n1,2\n\n1,2,3\n", "t.csv:4: there are 3 cells, and 2 columns"),
        ('a,b\n1,2\n1,"2\n1,2\n', "t.csv:3: this cannot be read"),
        (b"PK\x03\x04rest", "is a workbook or an archive"),
        (b"a,b\n1,\x812\n", "t.csv:2: this is not text"),
        ("a,b\n1,2\n".encode("utf-16-le"), "t.csv:1: this is not text"),
        (b"\x00\x01\x02", "this is not text"),
    ],
)
def test_what_is_no_table_is_refused(read, content, said):
    with pytest.raises(ArgumentError, match="t") as error:
        read(content)
    assert said in str(error.value)


def test_a_column_of_text_is_no_column_of_numbers(read):
    found = read("time,a,b\n0,1,x\n1;00,2,y\n2000-01-01,3,\n")
    for name, said in (("time", "t.csv:3: '1;00' in column 'time' is not a num"), ("b", "t.csv:2: 'x' in column 'b'")):
        with pytest.raises(ArgumentError) as error:
            found.numbers(name)
        assert said in str(error.value)
    mixed = read("time;a\n0;1.5\n1;2,5\n")
    with pytest.raises(ArgumentError, match=r"t.csv:3: '2,5' in column 'a' is not a number. A decimal point is writ"):
        mixed.numbers("a")
    with pytest.raises(ArgumentError, match=r"t.csv:3: the value in column 'time' is missing"):
        read("time,a\n0,1\n,2\n").numbers("time", missing=False)
