"""Results as plain structures: JSON values, and arrays apart from them.

Everything that JSON does not know is an object with a ``type``::

    {"type": "float", "value": "nan"}                              NaN, inf, -inf (finite numbers are plain)
    {"type": "tuple", "items": [...]}                              a plain list is a list
    {"type": "dict", "entries": {...}}                             or "items": [[key, value], ...] if a key is not text
    {"type": "array", "dtype": "<f8", "shape": [2], "values": [1.5, "nan"]}     or "stored": its name among the arrays
    {"type": "frame", "index": ..., "columns": ..., "blocks": [{"at": [0, 1], "values": ...}], "attrs": ...}
    {"type": "object", "class": "ModFit", "module": "fmepy.fitting.result", "fields": {...}}

Numbers come back to the last bit. An object is a dataclass that said it may stand in a file, by inheriting `Stored`;
it comes back field by field, without a call of its constructor, each checked against its annotation. Whatever else is
met is refused, with its place.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, FmepyError, listed
from fmepy.journal.fields import check_length, holds, shape_of
from fmepy.journal.files import MOST_ARRAYS
from fmepy.parameters.scales import Mark

_LIVE = "fmepy_live"
_VALUE = 100  # bytes of a value of Python's, at least
_PLAIN = "biufcSUMm"  # kinds of arrays without objects
_CLASSES: dict[str, type[Stored]] = {}
_FORMER_NAMES: dict[str, str] = {}  # of classes, in files of an earlier version


class Stored:
    """Base of dataclasses in saved results: numbers, tables and texts. Classes and fields may have names `formerly`."""

    __slots__ = ()

    def __init_subclass__(cls, *, formerly: str = "", **words: Any) -> None:
        super().__init_subclass__(**words)
        _CLASSES[_name_of(cls)] = cls
        _FORMER_NAMES.update({formerly: cls.__name__} if formerly else {})

    def check_loaded(self) -> None:
        """Raise an error where fields, each of its own kind, do not agree: a result of a file prints and sums up."""
        repr(self)
        if callable(summary := getattr(self, "summary", None)):
            with suppress(FmepyError):  # such as a fit without a covariance
                repr(summary())

    def as_stored(self) -> Stored:
        """Return what is written: itself, unless it holds models, of which something else must be said."""
        return self


def _name_of(cls: type) -> str:
    """Return the name of a class in a file: short for fmepy's own, so that files outlive a move of its module."""
    return cls.__name__ if cls.__module__.startswith("fmepy.") else f"{cls.__module__}.{cls.__qualname__}"


def live(advice: str) -> dict[str, str]:
    """Return the metadata of a field that is not written, as it holds a model or a cost; `advice` says what to do."""
    return {_LIVE: advice}


class Gone:
    """Stands where a loaded result had a model or a cost."""

    def __init__(self, name: str, advice: str) -> None:
        self._message = f"`{name}` is not in the file that this result was loaded from: it holds numbers only. {advice}"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copies, prints and pickles looks for methods that nobody needs
            raise AttributeError(name)
        raise ArgumentError(self._message)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Say what to do."""
        raise ArgumentError(self._message)

    def __repr__(self) -> str:
        return f"<not saved: {self._message}>"


# --- there


class Encoder:
    """Values as JSON knows them.

    Parameters
    ----------
    apart : bool
        Arrays go into `arrays`, by name; False: into the structure.
    """

    def __init__(self, apart: bool) -> None:
        self.apart = apart
        self.arrays: dict[str, Any] = {}

    def encode(self, value: Any, place: tuple[str, ...]) -> Any:
        """Return a value as JSON knows it.

        Raises
        ------
        ArgumentError
            It cannot be kept; its place is named.
        """
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"type": "float", "value": str(value)}
        if kind is list:
            return [self.encode(v, (*place, str(i))) for i, v in enumerate(value)]
        if isinstance(value, np.generic) and value.dtype.kind in _PLAIN and value.dtype.names is None:
            return {"type": "scalar", "value": self._inline(np.asarray(value))}
        if issubclass(kind, Stored):
            return self._object(value.as_stored(), place)
        if (encode := _WRITERS.get(kind)) is not None:
            return encode(self, value, place)
        if isinstance(value, pd.Index):
            return self.index(value, place)
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray | np.matrix | np.recarray):
            return self.array(np.asarray(value), place)
        raise _refused(value, place)

    def _object(self, value: Any, place: tuple[str, ...]) -> Any:
        cls = type(value)
        fields = [f.name for f in dataclasses.fields(cls) if _LIVE not in f.metadata]
        held = {name: self.encode(getattr(value, name), (*place, name)) for name in fields}
        return {"type": "object", "class": _name_of(cls), "module": cls.__module__, "fields": held}

    def array(self, values: Any, place: tuple[str, ...]) -> Any:
        """Return an array: its values, or the name under which it is kept apart."""
        if values.dtype.kind == "O":
            items = [self.encode(v, (*place, str(i))) for i, v in enumerate(values.ravel().tolist())]
            return {"type": "objects", "shape": list(values.shape), "items": items}
        if values.dtype.kind not in _PLAIN or values.dtype.names is not None:
            raise _refused(values, place, f"an array of {values.dtype}")
        if not self.apart:
            if values.dtype.itemsize > 8 * (1 + (values.dtype.kind == "c")) and values.dtype.kind in "fc":
                raise _refused(values, place, f"an array of {values.dtype}, whose digits JSON does not hold,")
            return self._inline(values)
        wanted = re.sub(r"[^A-Za-z0-9_.]+", "_", ".".join(place))[:120] or "values"
        name, n = wanted, 1
        while name in self.arrays:
            n += 1
            name = f"{wanted}-{n}"
        self.arrays[name] = values
        return {"type": "array", "stored": name}

    def _inline(self, values: Any) -> Any:
        plain = values
        if values.dtype.kind in "Mm":
            plain = values.astype(values.dtype.newbyteorder("=")).view(np.int64)
        elif values.dtype.kind == "c":
            plain = np.stack([values.real, values.imag], axis=-1)
        elif values.dtype.kind == "S":
            plain = np.char.decode(values, "latin-1")
        shown = plain.tolist()
        if plain.dtype.kind == "f" and not np.isfinite(plain).all():
            flat = [v if math.isfinite(v) else str(v) for v in plain.ravel().tolist()]
            shown = _objects(flat).reshape(plain.shape).tolist()
        return {"type": "array", "dtype": values.dtype.str, "shape": list(values.shape), "values": shown}

    # --- tables

    def frame(self, table: pd.DataFrame, place: tuple[str, ...]) -> Any:
        """Return a table: labels, and its columns by type."""
        by_type: dict[Any, list[int]] = {}
        for j, dtype in enumerate(table.dtypes):
            key = dtype if isinstance(dtype, np.dtype) and dtype.kind != "O" else j  # others each by themselves
            by_type.setdefault(key, []).append(j)
        blocks = []
        for at in by_type.values():
            columns = table.iloc[:, at]
            one = len(at) == 1
            values = self.column(columns.iloc[:, 0], place) if one else self.array(columns.to_numpy(), place)
            blocks.append({"at": at, "values": values})
        return {
            "type": "frame",
            "index": self.index(table.index, (*place, "index")),
            "columns": self.index(table.columns, (*place, "columns")),
            "blocks": blocks,
            "attrs": self.encode(dict(table.attrs), (*place, "attrs")),
        }

    def series(self, column: pd.Series, place: tuple[str, ...]) -> Any:
        """Return a column with its labels."""
        return {
            "type": "series",
            "name": self.encode(column.name, place),
            "index": self.index(column.index, (*place, "index")),
            "values": self.column(column, place),
            "attrs": self.encode(dict(column.attrs), (*place, "attrs")),
        }

    def index(self, labels: pd.Index, place: tuple[str, ...]) -> Any:
        """Return labels of rows or columns."""
        names = self.encode(list(labels.names), place)
        if isinstance(labels, pd.MultiIndex):
            levels = [self.index(level, (*place, str(i))) for i, level in enumerate(labels.levels)]
            codes = [self.array(np.asarray(c), (*place, "codes", str(i))) for i, c in enumerate(labels.codes)]
            return {"type": "multiindex", "names": names, "levels": levels, "codes": codes}
        if type(labels) is pd.RangeIndex:
            return {"type": "range", "names": names, "bounds": [labels.start, labels.stop, labels.step]}
        out = {"type": "index", "names": names, "values": self.column(labels, place)}
        freq = getattr(labels, "freqstr", None)
        return out if freq is None else {**out, "freq": freq}

    def column(self, column: Any, place: tuple[str, ...]) -> Any:
        """Return the values of a column or of labels."""
        dtype = column.dtype
        if isinstance(dtype, np.dtype):
            return self.array(column.to_numpy(), place)
        if isinstance(dtype, pd.CategoricalDtype):
            held = column.array
            return {
                "type": "categorical",
                "ordered": bool(dtype.ordered),
                "categories": self.index(dtype.categories, (*place, "categories")),
                "codes": self.array(np.asarray(held.codes), (*place, "codes")),
            }
        missing = np.asarray(column.isna())
        if isinstance(dtype, pd.StringDtype):
            na = "NA" if getattr(dtype, "na_value", pd.NA) is pd.NA else "nan"
            texts = [None if gone else str(v) for v, gone in zip(column.tolist(), missing, strict=True)]
            return {"type": "strings", "storage": dtype.storage, "missing": na, "values": texts}
        if isinstance(dtype, pd.DatetimeTZDtype):
            utc = np.asarray(column.to_numpy(dtype=f"datetime64[{dtype.unit}]"))
            return {"type": "times", "zone": str(dtype.tz), "values": self.array(utc, place)}
        if hasattr(dtype, "numpy_dtype"):  # pandas' numbers with missing values: Int64, Float64, boolean
            plain = column.array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
            return {
                "type": "masked",
                "dtype": str(dtype),
                "values": self.array(plain, place),
                "missing": self.array(missing, (*place, "missing")),
            }
        raise _refused(column, place, f"a column of pandas' type {dtype}")


def _objects(values: Sequence[Any]) -> Any:
    held = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):  # one by one: numpy would open lists
        held[i] = value
    return held


def _dict(encoder: Encoder, value: dict[Any, Any], place: tuple[str, ...]) -> Any:
    if all(type(k) is str for k in value):
        return {"type": "dict", "entries": {k: encoder.encode(v, (*place, k)) for k, v in value.items()}}
    items = [[encoder.encode(k, place), encoder.encode(v, (*place, str(k)))] for k, v in value.items()]
    return {"type": "dict", "items": items}


def _refused(value: Any, place: tuple[str, ...], what: str = "") -> ArgumentError:
    where = ".".join(place) or "it"
    what = what or f"a {type(value).__module__}.{type(value).__name__}"
    return ArgumentError(
        f"This result cannot be saved: `{where}` holds {what}. A file holds numbers, texts, arrays, tables, lists, "
        "tuples, dicts and fmepy's own results; turn it into those, or pickle the result for yourself."
    )


_WRITERS: dict[type, Callable[[Encoder, Any, tuple[str, ...]], Any]] = {
    tuple: lambda e, v, p: {"type": "tuple", "items": e.encode(list(v), p)},
    dict: _dict,
    Mark: lambda e, v, p: {"type": "scale", "kinds": _dict(e, dict(v), p), "numbers": e.encode(v.numbers, p)},
    set: lambda e, v, p: {"type": "set", "items": e.encode(sorted(v, key=repr), p)},
    frozenset: lambda e, v, p: {"type": "frozenset", "items": e.encode(sorted(v, key=repr), p)},
    complex: lambda e, v, p: {"type": "complex", "items": e.encode([v.real, v.imag], p)},
    bytes: lambda e, v, p: {"type": "bytes", "value": v.hex()},
    pd.DataFrame: lambda e, v, p: e.frame(v, p),
    pd.Series: lambda e, v, p: e.series(v, p),
    pd.Timestamp: lambda e, v, p: {"type": "timestamp", "value": e.column(pd.Index([v]), p)},
    pd.Timedelta: lambda e, v, p: {"type": "timestamp", "value": e.column(pd.Index([v]), p)},
    type(pd.NA): lambda e, v, p: {"type": "NA"},
    type(pd.NaT): lambda e, v, p: {"type": "NaT"},
}


# --- and back


class Decoder:
    """Values as they were.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Those that are kept apart.
    """

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = arrays
        self._room = MOST_ARRAYS

    def _take(self, size: int) -> None:
        """Take bytes of the room that there is, before what needs them is made: sizes are the file's own words."""
        self._room -= size
        if self._room < 0:
            raise ValueError(f"it is of more than {MOST_ARRAYS // 10**6} MB")

    def decode(self, plain: Any) -> Any:
        """Return a value; what cannot be is a LookupError, TypeError, ValueError or AttributeError, or one of ours."""
        self._take(_VALUE)
        if isinstance(plain, list):
            return [self.decode(v) for v in plain]
        if not isinstance(plain, dict):
            return plain
        kind = plain["type"]
        if kind == "object":
            return self._object(plain)
        if kind not in _READERS:
            raise ValueError(f"a value of the unknown type {kind!r}")
        return _READERS[kind](self, plain)

    def _object(self, plain: dict[str, Any]) -> Any:
        cls = _class(plain["class"], plain["module"])
        result: Any = object.__new__(cls)
        values = {name: self.decode(v) for name, v in plain["fields"].items()}
        for f in dataclasses.fields(cls):  # type: ignore[arg-type]  # every one that is written is a dataclass
            if _LIVE in f.metadata:
                value: Any = Gone(f.name, f.metadata[_LIVE])
            elif (name := next((k for k in (f.name, f.metadata.get("formerly")) if k in values), None)) is not None:
                value = values.pop(name)
            elif f.default is not dataclasses.MISSING:  # a field that came later
                value = f.default
            elif f.default_factory is not dataclasses.MISSING:
                value = f.default_factory()
            else:
                raise ValueError(f"{plain['class']} has no field {f.name!r}")
            if cls.__module__.startswith("fmepy.") and _LIVE not in f.metadata and not holds(str(f.type), value):
                raise ValueError(f"`{f.name}` of {plain['class']} is a {type(value).__name__}, not as it was saved")
            object.__setattr__(result, f.name, value)
        if values:
            raise ValueError(f"{plain['class']} has the fields {listed(values)}, which this fmepy does not know")
        return result

    def array(self, plain: Any) -> Any:
        """Return an array."""
        if plain["type"] == "objects":
            return _objects([self.decode(v) for v in plain["items"]]).reshape(shape_of(plain))
        if "stored" in plain:
            stored = self.arrays[plain["stored"]]
            self._take(stored.nbytes)
            return stored
        dtype, shape = np.dtype(plain["dtype"]), shape_of(plain)
        self._take(math.prod(shape) * dtype.itemsize)
        if dtype.kind not in _PLAIN or dtype.names is not None:
            raise ValueError(f"an array of {dtype}")
        if dtype.kind == "c":
            parts = _numbers(plain["values"], (*shape, 2), np.dtype(f"f{dtype.itemsize // 2}"))
            return (parts[..., 0] + 1j * parts[..., 1]).astype(dtype)
        if dtype.kind in "Mm":
            return _numbers(plain["values"], shape, np.dtype(np.int64)).view(dtype.newbyteorder("=")).astype(dtype)
        if dtype.kind == "S":
            return np.char.encode(np.array(plain["values"], dtype="U").reshape(shape), "latin-1").astype(dtype)
        return _numbers(plain["values"], shape, dtype)

    def frame(self, plain: Any) -> pd.DataFrame:
        """Return a table."""
        index, columns = self.index(plain["index"]), self.index(plain["columns"])
        blocks = []
        for block in plain["blocks"]:
            values, at = self.column(block["values"]), block["at"]
            check_length(values, index)
            one = len(at) == 1  # its type is said, or pandas would guess at it
            part = pd.Series(values, index, values.dtype, at[0]).to_frame() if one else pd.DataFrame(values, index, at)
            blocks.append(part)
        out = pd.concat(blocks, axis=1) if blocks else pd.DataFrame(index=index)
        out = out[list(range(len(columns)))] if len(blocks) > 1 else out
        out.columns = columns
        out.attrs.update(self.decode(plain["attrs"]))
        return out

    def series(self, plain: Any) -> pd.Series:
        """Return a column with its labels."""
        values, index = self.column(plain["values"]), self.index(plain["index"])
        check_length(values, index)
        out: pd.Series = pd.Series(values, index=index, name=self.decode(plain["name"]), dtype=values.dtype)
        out.attrs.update(self.decode(plain["attrs"]))
        return out

    def index(self, plain: Any) -> pd.Index:
        """Return labels."""
        names = self.decode(plain["names"])
        if plain["type"] == "multiindex":
            levels: list[Any] = [self.index(level) for level in plain["levels"]]
            codes = [self.array(c) for c in plain["codes"]]
            return pd.MultiIndex(levels=levels, codes=codes, names=names)
        if plain["type"] == "range":
            start, stop, step = plain["bounds"]
            self._take(_VALUE * len(range(start, stop, step)))
            return pd.RangeIndex(start, stop, step, name=names[0])
        values = self.column(plain["values"])
        out: Any = pd.Index(values, dtype=values.dtype, name=names[0], tupleize_cols=False)
        if "freq" in plain:
            out.freq = plain["freq"]
        labels: pd.Index = out
        return labels

    def column(self, plain: Any) -> Any:
        """Return the values of a column: an array of numpy's or pandas'."""
        kind = plain["type"]
        if kind == "categorical":
            dtype = pd.CategoricalDtype(self.index(plain["categories"]), plain["ordered"])
            return pd.Categorical.from_codes(self.array(plain["codes"]), dtype=dtype)
        if kind == "strings":
            return _strings(plain)
        if kind == "times":
            return pd.DatetimeIndex(self.array(plain["values"])).tz_localize("UTC").tz_convert(plain["zone"]).array
        if kind == "masked":
            held = pd.array(self.array(plain["values"]), dtype=plain["dtype"])
            held[self.array(plain["missing"])] = pd.NA
            return held
        return self.array(plain)


def _numbers(values: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return an array of values as JSON has them: "nan" and the like are texts among the numbers."""
    return np.array(values, dtype=object).reshape(shape).astype(dtype)


def _strings(plain: Any) -> Any:
    missing = pd.NA if plain["missing"] == "NA" else np.nan
    words = {} if missing is pd.NA else {"na_value": missing}  # which pandas < 2.3 does not know
    for storage in (plain["storage"], "python"):  # pyarrow is not everywhere
        try:
            dtype: Any = pd.StringDtype(storage, **words)
            return pd.array([missing if v is None else v for v in plain["values"]], dtype=dtype)
        except (ImportError, TypeError):
            continue
    return _objects([missing if v is None else v for v in plain["values"]])


def _class(name: str, module: str) -> type[Stored]:
    """Return a class that may stand in a file, after importing the module where it was; where it moved, all of them."""
    if name not in _CLASSES and re.fullmatch(r"fmepy(\.[a-z]\w*)+", module):
        try:
            importlib.import_module(module)
        except ImportError:
            package = importlib.import_module("fmepy")
            for found in pkgutil.walk_packages(package.__path__, "fmepy."):
                if not found.name.rpartition(".")[2].startswith("_") and found.name not in sys.modules:
                    importlib.import_module(found.name)
    name = _FORMER_NAMES.get(name, name)
    if name not in _CLASSES:
        whose = "" if module.startswith("fmepy.") else f"; import {module} first, which defines it"
        raise FmepyError(f"it holds a {name}, which this fmepy does not know{whose}")
    return _CLASSES[name]


def _labelled_time(decoder: Decoder, plain: Any) -> Any:
    return pd.Index(decoder.column(plain["value"]))[0]


_READERS: dict[str, Callable[[Decoder, Any], Any]] = {
    "float": lambda d, p: float(p["value"]),
    "scalar": lambda d, p: d.array(p["value"])[()],
    "array": Decoder.array,
    "objects": Decoder.array,
    "tuple": lambda d, p: tuple(d.decode(p["items"])),
    "set": lambda d, p: set(d.decode(p["items"])),
    "frozenset": lambda d, p: frozenset(d.decode(p["items"])),
    "dict": lambda d, p: (
        {k: d.decode(v) for k, v in p["entries"].items()}
        if "entries" in p
        else {d.decode(k): d.decode(v) for k, v in p["items"]}
    ),
    "scale": lambda d, p: Mark(d.decode(p["kinds"]), d.decode(p["numbers"])),
    "complex": lambda d, p: complex(*d.decode(p["items"])),
    "bytes": lambda d, p: bytes.fromhex(p["value"]),
    "timestamp": _labelled_time,
    "NA": lambda d, p: pd.NA,
    "NaT": lambda d, p: pd.NaT,
    "frame": Decoder.frame,
    "series": Decoder.series,
    "index": Decoder.index,
    "multiindex": Decoder.index,
    "range": Decoder.index,
}
