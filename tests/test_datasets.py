"""Every table loads, is what its source says, and says where it comes from."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from fmepy import datasets
from fmepy.errors import ArgumentError

SHAPES = {  # rows, columns
    "BOD": (6, 2),
    "Nile": (100, 2),
    "Puromycin": (23, 3),
    "Theoph": (132, 5),
    "ccl4": (429, 4),
    "hiv": (51, 4),
    "lynx_hare": (21, 3),
    "sediment": (68, 4),
}


def test_the_names_are_those_of_the_files(root):
    assert datasets.names() == sorted(p.stem for p in (root / "data").glob("*.csv")) == sorted(SHAPES)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_table_has_its_source_and_a_unit_for_every_column(name):
    table = datasets.load(name)
    assert table.shape == SHAPES[name]
    assert table.attrs["name"] == name
    assert list(table.attrs["units"]) == list(table.columns)
    assert any(year in table.attrs["source"] for year in ("1921", "1988", "1994", "1996", "2001", "2010"))
    assert not table.isna().any().any()
    for column, unit in table.attrs["units"].items():
        assert pd.api.types.is_numeric_dtype(table[column]) == (unit not in ("label", "treated or untreated"))


def test_known_values():
    pelts = datasets.load("lynx_hare").set_index("year")
    assert pelts.loc[1900].tolist() == [30, 4]
    assert pelts.index.tolist() == list(range(1900, 1921))
    assert datasets.load("Nile")["flow"].mean() == pytest.approx(919.35)
    assert datasets.load("ccl4").groupby("initconc").size().index.tolist() == [25, 100, 250, 1000]


def test_a_table_is_a_fresh_copy():
    table = datasets.load("BOD")
    table.iloc[:] = 0
    assert datasets.load("BOD")["demand"].sum() > 0


def test_an_unknown_name_is_told_with_the_nearest():
    with pytest.raises(ArgumentError, match="Did you mean 'lynx_hare'"):
        datasets.load("lynxhare")
    with pytest.raises(ArgumentError, match="Did you mean 'BOD'"):
        datasets.load("bod")


def test_a_name_is_never_a_path(tmp_path):
    (tmp_path / "other.csv").write_text("a\n1\n")
    with pytest.raises(ArgumentError, match="not known"):
        datasets.load(str(tmp_path / "other"))


def test_the_page_of_the_data_names_every_table(root):
    page = (root / "data" / "README.md").read_text(encoding="utf-8")
    for name in json.loads((root / "data" / "sources.json").read_text(encoding="utf-8")):
        assert f"| {name} |" in page


def test_every_series_of_readings_stands_once(root):
    """A datum that is altered reaches all who read it; what other systems gave (tests/reference) stays as it was."""
    seen: dict[tuple[float, ...], str] = {}
    files = (f for folder in ("data", "fmepy", "vignettes") for f in (root / folder).rglob("*.csv"))
    for file in sorted(f for f in files if "results" not in f.parts):  # what `make calibrate` has written
        for name, column in pd.read_csv(file).select_dtypes("number").items():
            is_grid = column.diff().round(9).nunique() == 1
            if column.nunique() >= 6 and not is_grid:
                here = f"{file.relative_to(root)}: {name}"
                assert seen.setdefault(tuple(column), here) == here
