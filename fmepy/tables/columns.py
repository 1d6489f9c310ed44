"""Tables as users give them: DataFrames, mappings of columns, structured arrays; their columns as numbers.

`as_table` makes a DataFrame of whatever was given. `Columns` gives single columns as arrays and asks pandas for as
little as it can: a cost is evaluated thousands of times, and pandas takes longer than all of its arithmetic.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, DataError, did_you_mean, listed
from fmepy.parameters.names import normal_name
from fmepy.types import Matrix, Vector

_AT_ONCE = 8  # columns: narrower tables are turned into numbers as a whole, which takes as long as two columns


TIMES = ("time", "t", "day", "days", "hour", "hours", "minute", "second", "week", "month", "year", "years")
DEPTHS = ("depth", "depths", "x", "z", "height", "distance", "place")
"""What columns of times and of depths are called, in small letters, where nobody says which is which."""
_UNNAMED = "Columns need names: pd.DataFrame(array, columns=[...])."


def _answer(data: Any, argument: str) -> str:
    """Return what was given in place of a table, and how to make one of it."""
    kind = type(data).__name__
    if isinstance(data, str | PathLike):
        return f"{data!r}. Read the file: pd.read_csv({str(data)!r})."
    if hasattr(data, "to_pandas"):  # of polars, of Arrow
        return f"{type(data).__module__.split('.')[0]}.{kind}. Pass {argument}.to_pandas()."
    if isinstance(data, list) and data and isinstance(data[0], Mapping):
        return f"a list of rows. Pass pd.DataFrame({argument})."
    return f"{kind}. " + (f"Run it first: {argument}=model()." if callable(data) else _UNNAMED)


def as_table(data: Any, argument: str = "obs", *, empty: bool = False) -> pd.DataFrame:
    """Return a table as a DataFrame with text labels; the data themselves may be shared, so do not write.

    Parameters
    ----------
    data : DataFrame, mapping of columns, mapping or Series of numbers, structured array
        A mapping of columns may hold numbers, which are repeated; of numbers alone it is one row, and so is a Series.
    argument : str
        What the argument is called in messages.
    empty : bool
        Whether it may have no rows.

    Raises
    ------
    DataError
        Something else, columns of different lengths, or no rows.
    """
    if isinstance(data, pd.DataFrame):
        table = data.copy(deep=False)
    elif isinstance(data, pd.Series):
        table = pd.DataFrame([list(data)], columns=list(data.index))
    elif isinstance(data, Mapping):
        table = _table_of_columns(data, argument)
    elif isinstance(data, np.ndarray) and data.dtype.names:
        table = pd.DataFrame({name: data[name] for name in data.dtype.names})
    else:
        raise DataError(
            f"`{argument}` must be a table: a DataFrame of pandas, or a mapping of names to columns; got "
            + _answer(data, argument.split("[")[0])
        )
    table.columns = pd.Index([normal_name(c) for c in table.columns])
    if len(table) == 0 and not empty:
        raise DataError(f"`{argument}` has no rows.")
    return table


def are_swapped(time: str, depth: str) -> bool:
    """Tell whether two columns, by their names, are those of depths and of times, in this order."""
    return depth.lower() in TIMES or (time.lower() in DEPTHS and depth.lower() not in DEPTHS)


def _table_of_columns(data: Mapping[Any, Any], argument: str) -> pd.DataFrame:
    columns = {normal_name(k): v if np.ndim(v) == 0 else list(v) for k, v in data.items()}
    lengths = {k: len(v) for k, v in columns.items() if isinstance(v, list)}
    if len(set(lengths.values())) > 1:
        sizes = ", ".join(f"{k!r} {n}" for k, n in lengths.items())
        raise DataError(f"`{argument}`: the columns have different lengths ({sizes}).")
    return pd.DataFrame(columns, index=range(next(iter(lengths.values()), 1)))


def column_position(table: pd.DataFrame, name: Any, argument: str, what: str = "obs") -> int:
    """Return the position of the column that an argument names.

    Raises
    ------
    DataError
        Not a text, not a column (the nearest is named), or a repeated column.
    """
    return _position(name, table.columns.tolist(), table.index.names, argument, what)


def _position(name: Any, columns: list[str], index_names: Sequence[Any], argument: str, what: str) -> int:
    if not isinstance(name, str):
        hint = (
            " In a SimulationCost, errors that are numbers are measurement_noise={'N': 0.1}."
            if argument == "err"
            else ""
        )
        if argument == "x" and isinstance(name, list | tuple):
            hint = " Times and depths are compared by SimulationCost(model, obs, x=['day', 'depth'])."
        raise DataError(f"`{argument}` must be the name of one column of `{what}`, a text; got {name!r}.{hint}")
    name = normal_name(name)
    if name not in columns:
        hint = did_you_mean(name, columns)
        if name in map(str, index_names):
            hint = f" It is the index of the table: pass {what}.reset_index()."
        elif argument == "x" and not hint:
            hint = " Pass the name of the column, or x=None for data without one."
        raise DataError(f"`{argument}={name!r}` is not a column of `{what}` (columns: {listed(columns)}).{hint}")
    if columns.count(name) > 1:
        raise DataError(f"`{argument}={name!r}`: `{what}` has {columns.count(name)} columns of that name.")
    return columns.index(name)


def refuse_dates(values: Any, what: str, error: type[ArgumentError] = DataError) -> None:
    """Raise an error if values are dates or durations, which numpy would turn into nanoseconds."""
    first = next(iter(values), None) if isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0 else None
    if isinstance(first, (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)):
        raise error(
            f"{what} holds dates. Models run in numbers: convert it, such as (dates - dates.iloc[0]) / "
            "pd.Timedelta('1D'); a cost reads the dates of its data by unit='days'."
        )


def column_numbers(column: pd.Series, name: str, what: str, hint: str = "") -> Vector:
    """Return a column as floats, missing values as NaN; raise a DataError for a value that is not a number."""
    refuse_dates(column, f"`{what}`: column {name!r}")
    try:
        if not np.iscomplexobj(column):
            return column.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    except (TypeError, ValueError):
        pass
    row, value = next((r, v) for r, v in column.items() if not (pd.isna(v) or _is_number(v)))
    hint = _hint_of_text(value, name) or hint
    raise DataError(f"`{what}`: column {name!r} holds {value!r} in row {row}, which is not a number.{hint}")


def _hint_of_text(value: Any, name: str) -> str:
    """Return what to do with a text where a number is needed, if the text tells; with a space before."""
    text = value.strip() if isinstance(value, str) else "?"
    if text in ("", "<", ">"):
        return f" If it marks readings beyond a limit, pass censored={name!r}; an empty text is no missing value (NaN)."
    if text[0] in "<>" and _is_number(text[1:]):
        return (
            f" Of a reading beyond a limit the column holds the limit, {text[1:].strip()}, and another column, "
            f"named by `censored`, the mark {text[0]!r}."
        )
    if _is_number(text.replace(",", ".", 1)):
        return " A comma is no decimal point: read the file by pd.read_csv(..., decimal=',')."
    return ""


def finite_numbers(table: pd.DataFrame, what: str) -> Matrix:
    """Return a table as numbers; raise a DataError that names column and row of a cell that is no finite number."""
    out = np.empty(table.shape)
    for j, name in enumerate(table.columns):
        out[:, j] = column_numbers(table.iloc[:, j], str(name), what)
        if not np.isfinite(out[:, j]).all():
            i = int(np.argmin(np.isfinite(out[:, j])))
            raise DataError(f"`{what}`: {name!r} is {out[i, j]:g} in row {table.index[i]}; finite numbers are needed.")
    return out


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


class Columns:
    """The columns of a table by position, as numbers.

    Parameters
    ----------
    data : as for `as_table`
    what : str
        What the argument is called in messages.

    Attributes
    ----------
    names : list of str
    frame : DataFrame
        The table as `as_table` gives it; made when it is asked for.
    """

    def __init__(self, data: Any, what: str = "obs") -> None:
        self._data, self._what = data, what
        self._together: Matrix | None = None
        if isinstance(data, pd.DataFrame):
            self.names = [normal_name(c) for c in data.columns.tolist()]
            if 0 < len(self.names) <= _AT_ONCE:
                together = data.to_numpy()
                if together.dtype.kind in "fiu":
                    self._together = together.astype(np.float64)
        elif _are_arrays(data):
            self.names = [normal_name(k) for k in data]
            self._together = np.column_stack([np.asarray(v, dtype=np.float64) for v in data.values()])
        else:
            self.names = self.frame.columns.tolist()
        if len(self) == 0:
            as_table(data, what)  # it says what is wrong

    def __len__(self) -> int:
        return len(self._data) if isinstance(self._data, pd.DataFrame) else len(self.rows)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The table as a DataFrame."""
        return as_table(self._data, self._what)

    @property
    def rows(self) -> list[Any]:
        """The table's labels of its rows."""
        if isinstance(self._data, pd.DataFrame):
            return list(self._data.index)
        return list(self.frame.index) if self._together is None else list(range(len(self._together)))

    def position(self, name: Any, argument: str) -> int:
        """Return the position of the column that an argument names; raise as `column_position` does."""
        index_names = self._data.index.names if isinstance(self._data, pd.DataFrame) else ()
        return _position(name, self.names, index_names, argument, self._what)

    def column(self, position: int) -> pd.Series:
        """Return a column as it is."""
        if self.frame.columns.is_unique:
            return self.frame[self.names[position]]
        return self.frame.iloc[:, position]

    def matrix(self) -> Matrix:
        """Return all columns as floats; an array of its own."""
        if self._together is not None:
            return self._together.copy()
        return np.column_stack([self.numbers(j) for j in range(len(self.names))])

    def numbers(self, position: int, hint: str = "") -> Vector:
        """Return a column as floats, missing values as NaN; an array of its own.

        Raises
        ------
        DataError
            A value that is not a number; column and row are named.
        """
        if self._together is not None:
            return self._together[:, position].copy()
        return column_numbers(self.column(position), self.names[position], self._what, hint)


def _are_arrays(data: Any) -> bool:
    """Tell whether these are columns by name, all of them arrays of numbers of one length."""
    if not isinstance(data, Mapping) or not data:
        return False
    values = list(data.values())
    return all(isinstance(v, np.ndarray) and v.ndim == 1 and v.dtype.kind in "fiu" for v in values) and (
        len({len(v) for v in values}) == 1
    )
