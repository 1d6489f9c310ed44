"""Data variables of a model of Vensim: their series, from tables as Vensim and PySD write them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.dmi.data_items import Item, item
from fmepy.exchange.expressions import UnsaidError, key_of
from fmepy.exchange.vensim_system import ForeignVariable
from fmepy.tables.sheet import NUMBER
from fmepy.tables.text_files import read_text_file
from fmepy.types import Vector

_BETWEEN = {"": "linear", "interpolate": "linear", "hold backward": "constant"}
Series = dict[str, tuple[Vector, Vector]]


def read_series(files: Any) -> Series:
    """Return times and values by key of a variable or element, from CSV or tab files.

    The first column is the time and the others are variables; or the first row is the time, and the others are.
    """
    found: Series = {}
    for file in [files] if isinstance(files, str | Path) else files or ():
        sheet = read_text_file(Path(file), str(file))
        if all(NUMBER.fullmatch(str(c).strip()) for c in sheet.frame.columns[1:]):
            turned = sheet.frame.set_index(sheet.frame.columns[0]).T.reset_index()
            sheet = replace(sheet, frame=turned.set_axis([str(c) for c in turned.columns], axis=1))
        times, *names = sheet.frame.columns
        for name in names:
            found[_key(name)] = np.array(sheet.numbers(times)), np.array(sheet.numbers(name))
    return found


def _key(name: str) -> str:
    head, _, inside = name.strip().removesuffix("]").partition("[")
    return "[".join([key_of(head), *([",".join(map(key_of, inside.split(",")))] if inside else [])])


def series_item(v: ForeignVariable, series: Series) -> Item:
    """Return the item of a data variable.

    Raises
    ------
    UnsaidError
        There is no such series, or no word for what is between its data.
    """
    eq = v.equations[0]
    if eq.keyword not in _BETWEEN:
        raise UnsaidError(f":{eq.keyword.upper()}: has no word here; :INTERPOLATE: and :HOLD BACKWARD: do", eq.line)
    columns = [series.get("[".join([eq.key, *([",".join(p)] if p else [])])) for p in product(*v.axes)]
    if any(c is None for c in columns):
        raise UnsaidError("it is data, of which the file has none: read_vensim(..., data='file.csv')", eq.line)
    times = columns[0][0]  # type: ignore[index]  # none is None
    values = np.column_stack([c[1] for c in columns if c is not None])
    kept = np.isfinite(times) & np.isfinite(values).all(axis=1)
    shape = [len(times[kept]), *map(len, v.axes)]
    words: dict[str, Any] = {"interpolation": _BETWEEN[eq.keyword], "extrapolate": True, "unit": v.unit}
    return item(values[kept].reshape(shape), times=times[kept], **words)
