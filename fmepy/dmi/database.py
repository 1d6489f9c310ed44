"""The data base of a modular model: constants, vectors and time series, by the names of the variables they feed.

It is read from folders of CSV files, SQLite files, DataFrames and dicts, in any mix. Every source becomes items; an
item replaces an earlier one of the same name, and replaced items are listed for the diagnostics.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fmepy.dmi.data_items import INTERPOLATIONS, Index, Item, as_item
from fmepy.dmi.expressions import name_problem
from fmepy.dmi.statements import MAX_ELEMENTS
from fmepy.errors import ArgumentError, DataError, check_known, did_you_mean, listed
from fmepy.models.running.forcings import Forcing
from fmepy.parameters.names import normal_name
from fmepy.results.tables import readable
from fmepy.tables.databases import file_sheets
from fmepy.tables.sheet import Sheet, frame_sheet

_ELEMENT = re.compile(r"([^\[\]]+?)\s*(?:\[\s*(\w+(?:\s*,\s*\w+)*)\s*\])?")
NOTES = ("unit", "interpolation", "extrapolate", "lower", "upper", "comment")
"""Columns of notes on an item, in addition to its value."""
_BOUND = re.compile(r"|[-+]?(inf|(\d+\.?\d*|\.\d+)(e[-+]?\d+)?)", re.IGNORECASE | re.ASCII)
_YES, _NO = ("true", "yes", "1", "1.0"), ("false", "no", "0", "0.0", "")


class Replaced(NamedTuple):
    """An item that a later source replaced."""

    name: str
    earlier: str
    later: str

    @property
    def message(self) -> str:
        """The message about it."""
        return f"{self.name!r} stands in {self.earlier} and again in {self.later}; the later one holds"


class Database:
    """Constants, vectors and time series of a modular model, by name.

    Parameters
    ----------
    *sources : str, Path, DataFrame, Series, mapping or Database
        In any mix; an item replaces an earlier one of the same name.

        * a folder: every ``*.csv`` in it; or one CSV file;
        * a SQLite file (``.sqlite``, ``.sqlite3``, ``.db``): every table in it;
        * a DataFrame;
        * a mapping of name to a number (a constant), a list or array (a vector), ``(times, values)`` or
          ``(times, values, "constant")``, a Series whose index is the time, a table of columns time and value, or an
          `item`.

    Raises
    ------
    DataError
        A source cannot be read, cells are no finite numbers, times do not increase, or names are invalid; with file and
        line, or row.

    Notes
    -----
    **Tables.** One with a column ``time`` holds series, a column each, on the rows where the cell is not empty;
    columns ``D[0]``, ``D[1]`` make a vector. If its only columns are time and value, the series is called like the
    file. One without has the columns ``name`` and ``value`` (a number, or a list: ``[1, 2]``, ``[(0, 1), (5, 0.5)]``),
    and may have ``unit``, ``interpolation`` (linear or constant), ``extrapolate`` (true or false), ``lower``, ``upper``
    and ``comment``. A table called ``items``, of ``name`` and these columns, says more of items wherever they stand.

    Between its data a series is linear, or constant: the value of the last datum passed. Outside its range it is an
    error, unless the item says ``extrapolate``: then it is held at its ends. Units are checked against equations
    (`ModularModel.units`), and change nothing.

    Elements that are given one by one replace those of an earlier source one by one.

    Examples
    --------
    >>> rates = pd.DataFrame({"time": [0, 10, 20], "demand": [5.0, None, 9.0], "price": [1.0, 1.5, 2.0]})
    >>> db = Database(rates, {"SEM": 400.0, "D": [1, 2, 3], "u": ([0, 5, 9], [1, 2, 0])})
    >>> db.items[["kind", "shape", "start", "stop"]]
                kind shape  start  stop
    name
    demand    series    ()    0.0  20.0
    price     series    ()    0.0  20.0
    SEM     constant    ()    NaN   NaN
    D         vector  (3,)    NaN   NaN
    u         series    ()    0.0   9.0
    """

    def __init__(self, *sources: Any) -> None:
        self._items: dict[str, Item] = {}
        self._notes: dict[str, tuple[str, dict[str, str]]] = {}  # by item the place of its notes, and the notes
        self._replaced: list[Replaced] = []
        for number, source in enumerate(sources, 1):
            for item in self._read(source, number):
                self._replaced += self._add(item)
        for name, (place, notes) in self._notes.items():
            check_known(name, self._items, f"{place}: there is no item {name!r} in the data base.", DataError)
            self._items[name] = _with_notes(self._items[name], notes)

    def _read(self, source: Any, number: int) -> Iterable[Item]:
        """Return the items of one source."""
        if isinstance(source, Database):
            self._notes |= source._notes
            self._replaced += source.replaced
            return list(source)
        if isinstance(source, (str, os.PathLike)):
            label = os.fspath(source)
            if not isinstance(label, str) or not label.strip() or "\0" in label:
                raise DataError(f"The data base has no file or folder called {label!r}.")
            return self._of_sheets(file_sheets(Path(label).expanduser(), label))
        if isinstance(source, pd.DataFrame):
            return self._of_sheets([frame_sheet(source, f"DataFrame (source {number})")])
        if isinstance(source, (Mapping, pd.Series)):
            return _of_mapping(dict(source.items()), f"dict (source {number})")
        raise ArgumentError(
            f"Source {number} of the data base is {type(source).__name__}; a path, a DataFrame, a dict, or a Database "
            "is needed."
        )

    def _of_sheets(self, sheets: Sequence[Sheet]) -> list[Item]:
        """Return the items of tables; refuse a name that occurs twice in a source."""
        items: dict[str, Item] = {}
        for sheet in sheets:
            if sheet.stem == "items" and not {"value", "time"} & set(sheet.frame.columns):
                self._notes |= _notes(sheet)
                continue
            entries = _series_of(sheet) if "time" in sheet.frame.columns else _constants_of(sheet)
            for new in _gathered(entries, sheet.label):
                if new.name in items:
                    raise DataError(f"{new.name!r} is defined in {items[new.name].source} and again in {new.source}.")
                items[new.name] = new
        return list(items.values())

    def _add(self, new: Item) -> list[Replaced]:
        """Add an item, and return the replaced one, if any."""
        old = self._items.get(new.name)
        self._items[new.name] = new
        if old is None:
            return []
        alike = old.is_series == new.is_series and len(old.shape) == len(new.shape)
        if new.whole or not alike:
            return [Replaced(new.name, old.source, new.source)]
        both = set(old.elements) & set(new.elements)
        source = old.source if old.source == new.source else f"{old.source}, {new.source}"
        self._items[new.name] = replace(new, elements={**old.elements, **new.elements}, source=source, whole=old.whole)
        return [Replaced(new.name, old.source, new.source)] if both else []

    @property
    def replaced(self) -> tuple[Replaced, ...]:
        """Values replaced by a later source: (name, earlier source, later source)."""
        return tuple(self._replaced)

    @property
    def items(self) -> pd.DataFrame:
        """A row an item: name (the index) kind shape unit interpolation extrapolate start stop source.

        Behind them lower, upper and comment, where an item has one.

        `start` and `stop` are the first and the last time of series.
        """
        rows = [
            (x.kind, x.shape, x.unit, x.interpolation if x.is_series else "", x.extrapolate, *x.range, x.source)
            for x in self
        ]
        columns = ["kind", "shape", "unit", "interpolation", "extrapolate", "start", "stop", "source"]
        table = pd.DataFrame(rows, columns=columns, index=pd.Index(list(self._items), name="name", dtype=object))
        more = {w: [getattr(x, w) for x in self] for w in ("lower", "upper", "comment")}
        usual = {"lower": -np.inf, "upper": np.inf, "comment": ""}
        return table.assign(**{w: v for w, v in more.items() if any(x != usual[w] for x in v)})

    @property
    def numbers(self) -> dict[str, float]:
        """All constants and elements of vectors by name (``D[0]``): the parameters of a model."""
        return {name: value for x in self for name, value in x.numbers.items()}

    def with_outputs(self, run: pd.DataFrame, names: str | Sequence[str] | None = None) -> Database:
        """Return the data base with columns of a run as further series: data for the next model.

        Parameters
        ----------
        run : DataFrame
            With a column ``time``, such as a model returns.
        names : str or sequence of str, optional
            Columns, or arrays (``D`` for ``D[0]``, ``D[1]``, ...); default all. What has the same name is replaced;
            units and interpolation stay what ``items`` says of that name.

        Raises
        ------
        DataError
            There is no such column, or no column time, or a value is not finite.

        Examples
        --------
        >>> run = pd.DataFrame({"time": [0, 1], "SM": [10.0, 12.0], "BL": 1.0})
        >>> db = Database({"SEM": 400.0}).with_outputs(run, "SM")
        >>> db.items["kind"].to_dict()
        {'SEM': 'constant', 'SM': 'series'}
        """
        if not isinstance(run, pd.DataFrame) or ("time" not in run.columns and run.index.name != "time"):
            raise DataError("`run` must be a DataFrame with a column 'time', such as a model returns.")
        sheet = replace(frame_sheet(run, "the outputs of a run"), stem="")
        run = sheet.frame
        if names is not None:
            columns = [c for c in run.columns if c != "time"]
            chosen: list[str] = []
            for name in [names] if isinstance(names, str) else list(names):
                some = [c for c in columns if c == name or c.startswith(f"{name}[")]
                if not some:
                    check_known(name, columns, f"`names`: the run has no {name!r}.", DataError, "It has")
                chosen += [c for c in some if c not in chosen]
            run = run[["time", *chosen]]
        empty = [c for c in run.columns if run[c].isna().any()]
        if empty:
            raise DataError(f"The run holds NaN in {listed(empty)}; such a series cannot be handed on.")
        new = Database(self)
        for item in _gathered(_series_of(replace(sheet, frame=run)), sheet.label):
            has_notes = item.name in new._notes
            new._add(_with_notes(item, new._notes[item.name][1]) if has_notes else replace(item, whole=True))
        return new

    def with_constants(self, values: Mapping[str, Any], source: str = "parameters") -> Database:
        """Return the data base with other or further values: numbers and lists by name, ``D[0]`` too."""
        new = Database(self)
        for item in _of_mapping(values, source):
            new._add(item)
        return new

    def __getitem__(self, name: str) -> Item:
        key = normal_name(name)
        check_known(key, self._items, f"There is no item {name!r} in the data base.", DataError)
        return self._items[key]

    def __contains__(self, name: object) -> bool:
        return normal_name(name) in self._items

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return readable(self.items)

    def _repr_html_(self) -> str:
        return str(self.items.to_html(max_rows=40))


def as_database(data: Any) -> Database:
    """Return the data base of one source, a list of sources, or None; a `Database` itself."""
    if isinstance(data, Database):
        return data
    if data is None:
        return Database()
    return Database(*data) if isinstance(data, (list, tuple)) else Database(data)


def split_name(text: str, where: str) -> tuple[str, Index]:
    """Return name and index of ``SEM``, ``D[0]``, ``A[0,1]``, or ``sales.x``, a local name of the module sales.

    Raises
    ------
    DataError
        The text is not a valid name.
    """
    match = _ELEMENT.fullmatch(normal_name(text.strip()))
    name = match.group(1) if match else ""
    module, _, local = name.rpartition(".")  # local names of a module bear its name
    if match is None or not local.isidentifier() or not (module.isidentifier() or local == name):
        raise DataError(f"{where}: {text!r} is not the name of a variable; names are such as price, D[0] or A[0,1].")
    if why := name_problem(local):
        raise DataError(f"{where}: {why}.")
    words = re.split(r"\s*,\s*", match.group(2)) if match.group(2) else []
    index = tuple(int(i[:9]) if i.isascii() and i.isdigit() else i for i in words)
    if np.prod([i + 1 for i in index if isinstance(i, int)], dtype=float) > MAX_ELEMENTS:
        raise DataError(f"{where}: {text!r} lies in an array of more than {MAX_ELEMENTS} elements.")
    return name, index


def _gathered(entries: Iterable[tuple[str, Item, str]], label: str) -> list[Item]:
    """Return the items of a source; values with an index in their titles are the elements of one item.

    Parameters
    ----------
    entries : iterable of (str, Item, str)
        Title, value, and its place for messages.
    label : str
        The source.
    """
    parts: dict[str, dict[Index, Item]] = {}
    for title, item, place in entries:
        name, index = split_name(title, place)
        own = parts.setdefault(name, {})
        if index in own or () in own or (own and not index):
            raise DataError(f"{place}: {title!r} is given more than once.")
        if index and item.shape:
            raise DataError(f"{place}: {title!r} is one element and needs one number or series.")
        first = next(iter(own.values()), item)
        if differ := [(x, y) for w in NOTES if (x := getattr(item, w)) != (y := getattr(first, w))]:
            here, there = differ[0]
            raise DataError(f"{place}: {title!r} has {here!r} where other elements of {name!r} have {there!r}.")
        own[index] = item
    return [_joined(name, own, label) for name, own in parts.items()]


def _joined(name: str, parts: Mapping[Index, Item], source: str) -> Item:
    """Return an item that is given as a whole, or an array from its single elements."""
    first = next(iter(parts.values()))
    if () in parts:
        return replace(first, name=name, source=first.source or source)
    if len({len(index) for index in parts}) > 1:
        raise DataError(f"{source}: the elements of {name!r} differ in their number of indices.")
    if len({x.is_series for x in parts.values()}) > 1:
        raise DataError(f"{source}: of {name!r} some elements are series and others constants.")
    elements = {index: x.elements[()] for index, x in sorted(parts.items())}
    return replace(first, name=name, elements=elements, source=source, whole=False)


def _of_mapping(values: Mapping[Any, Any], label: str) -> list[Item]:
    """Return the items of a dict, those that are given element by element behind the others."""
    pairs = sorted(((str(key), value) for key, value in values.items()), key=lambda pair: "[" in pair[0])
    return _gathered(((key, _item_of_value(key, value), label) for key, value in pairs), label)


def _item_of_value(name: str, value: Any) -> Item:
    """Return the item of a value in a dict."""
    if isinstance(value, Item):
        return value
    if isinstance(value, pd.Series):
        return as_item(name, value.to_numpy(), value.index.to_numpy())
    if isinstance(value, pd.DataFrame):
        if not {"time", "value"} == set(map(str, value.columns)):
            raise DataError(f"{name!r} is a table of columns {listed(value.columns)}; it needs time and value.")
        return as_item(name, value["value"].to_numpy(), value["time"].to_numpy())
    if isinstance(value, tuple) and len(value) in (2, 3) and np.ndim(np.asarray(value[0], dtype=object)) > 0:
        if len(value) == 3 and value[2] not in INTERPOLATIONS:
            raise DataError(f"{name!r}: the third part of a series must be 'linear' or 'constant'; got {value[2]!r}.")
        method = value[2] if len(value) == 3 else "linear"
        return as_item(name, value[1], value[0], interpolation=method)
    return as_item(name, value)


def _series_of(sheet: Sheet) -> Iterator[tuple[str, Item, str]]:
    """Yield the series of a table with a column time, see `_gathered`."""
    times = sheet.times()
    if not len(times):
        raise DataError(f"{sheet.label}: the table holds no rows.")
    names = [c for c in sheet.frame.columns if c != "time"]
    if not names:
        raise DataError(f"{sheet.label}: there is no column beside 'time'.")
    for column in names:
        title = sheet.stem if names == ["value"] and sheet.stem else column
        values = np.asarray(sheet.numbers(column), dtype=np.float64)
        is_datum = np.isfinite(values)
        if not is_datum.any():
            raise DataError(f"{sheet.label}: column {column!r} holds no datum.")
        yield title, Item(title, {(): Forcing(title, times[is_datum], values[is_datum])}), sheet.label


def _constants_of(sheet: Sheet) -> Iterator[tuple[str, Item, str]]:
    """Yield the constants of a table of columns name and value, see `_gathered`."""
    columns = list(sheet.frame.columns)
    if not {"name", "value"} <= set(columns):
        near = next(filter(None, (did_you_mean(c, ("time", "name", "value")) for c in columns)), "")
        raise DataError(
            f"{sheet.label}: the columns are {listed(columns)}; a table of the data base has a column 'time' "
            f"(then the others are series), or the columns 'name' and 'value'.{near}"
        )
    sheet.check_columns(["name", "value", *NOTES])
    if not len(sheet.frame):
        raise DataError(f"{sheet.label}: the table holds no rows.")
    for (title, line, notes), elements in zip(_rows(sheet), _values(sheet), strict=True):
        if elements.get((), 0.0) != elements.get((), 0.0):
            raise sheet.error(f"the value of {title!r} is missing.", line)
        item = Item(title, elements)
        yield title, _with_notes(item, notes) if notes else item, sheet.place(line)


def _values(sheet: Sheet) -> list[dict[Index, Any]]:
    """Return the elements of each row: a number, or a list in brackets."""
    lists = {i: text for i, text in enumerate(sheet.texts("value")) if text.startswith("[")}
    cells: list[Any] = [0 if i in lists else cell for i, cell in enumerate(sheet.frame["value"])]
    plain = pd.DataFrame({"value": cells}, index=sheet.frame.index)
    values: list[Any] = [{(): number} for number in replace(sheet, frame=plain).numbers("value").tolist()]
    for i, text in lists.items():
        try:
            items = json.loads(text.replace("(", "[").replace(")", "]"))
            values[i] = dict(as_item(sheet.texts("name")[i], items).elements)
        except DataError as error:
            raise sheet.error(str(error), sheet.lines[i]) from None
        except (ValueError, RecursionError):
            shown = text[:60] + "..." * (len(text) > 60)
            raise sheet.error(f"{shown!r} is no list such as [1, 2] or [(0, 1), (5, 0.5)].", sheet.lines[i]) from None
    return values


def _rows(sheet: Sheet) -> Iterator[tuple[str, int, dict[str, str]]]:
    """Yield the name of each row, its line, and its notes on the item."""
    for line, name, *cells in zip(sheet.lines, *map(sheet.texts, ("name", *NOTES)), strict=True):
        notes = dict(zip(NOTES, cells, strict=True))
        if not name:
            raise sheet.error("the name is missing.", line)
        if (interpolation := notes["interpolation"]) not in (*INTERPOLATIONS, ""):
            near = did_you_mean(interpolation, INTERPOLATIONS)
            raise sheet.error(f"interpolation {interpolation!r} is not known; write linear or constant.{near}", line)
        if notes["extrapolate"].lower() not in (*_YES, *_NO):
            raise sheet.error(f"extrapolate {notes['extrapolate']!r} is not known; write true or false.", line)
        notes["extrapolate"] = notes["extrapolate"].lower()
        for word in ("lower", "upper"):
            if not _BOUND.fullmatch(notes[word]):
                raise sheet.error(f"{word} {notes[word]!r} is not a number.", line)
        yield name, line, {word: cell for word, cell in notes.items() if cell}


def _with_notes(item: Item, notes: Mapping[str, str]) -> Item:
    """Return an item with the notes of a row."""
    changes: dict[str, Any] = {w: float(v) if w in ("lower", "upper") else v for w, v in notes.items()}
    if "extrapolate" in notes:
        changes["extrapolate"] = notes["extrapolate"] in _YES
    if method := notes.get("interpolation"):
        elements = item.elements.items()
        changes["elements"] = {k: replace(f, method=method) if isinstance(f, Forcing) else f for k, f in elements}
    return replace(item, **changes)


def _notes(sheet: Sheet) -> dict[str, tuple[str, dict[str, str]]]:
    """Return the notes of a table called items, with their places."""
    sheet.check_columns(["name", *NOTES], needed=["name"])
    found: dict[str, tuple[str, dict[str, str]]] = {}
    for title, line, notes in _rows(sheet):
        name, index = split_name(title, sheet.place(line))
        if index:
            raise sheet.error(f"{title!r} is one element; what is said here holds for all of {name!r}.", line)
        if name in found:
            raise sheet.error(f"{name!r} stands there twice.", line)
        found[name] = sheet.place(line), notes
    return found
