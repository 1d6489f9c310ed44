"""A modular model -> a folder from which it can be read again: modules, data base, a file for ``fmepy run``."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.checks import as_path
from fmepy.dmi.data_items import Item
from fmepy.dmi.database import NOTES
from fmepy.dmi.modules import SUFFIX, Module
from fmepy.dmi.statements import element_name
from fmepy.dmi.text import declared_in
from fmepy.errors import ModelError, ModelTextError, listed
from fmepy.models.running.forcings import Forcing

if TYPE_CHECKING:
    from fmepy.dmi.model import ModularModel

FILE, DATA = "model.toml", "data"
_SETTINGS = ("method", "tol", "max_iterations", "order", "unsettled")


def write_model(model: ModularModel, folder: Any) -> Path:
    """Write a model into a folder; see `ModularModel.write`."""
    root = as_path(folder, "folder")
    names = _file_names(model.given, SUFFIX)
    files = {name: _module_text(m) for name, m in zip(names, model.given, strict=True)}
    files |= {f"{DATA}/{name}": text for name, text in _data_files(model)}
    files[FILE] = _settings(model, names, any(name.startswith(DATA) for name in files))
    if root.exists() and not root.is_dir():
        raise ModelError(f"{str(folder)!r} is a file; a model is written into a folder.")
    there = [name for name in files if (root / name).exists() or (root / name).is_symlink()]
    data = root / DATA
    if there or data.is_symlink() or (data.exists() and (not data.is_dir() or any(data.iterdir()))):
        raise ModelError(f"{str(folder)!r} holds {listed(there or [DATA])} already; nothing is written over.")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8", newline="\n")
    return root / FILE


def _file_names(things: Iterable[Any], suffix: str) -> list[str]:
    """Return different names of files in the folder, one for each thing."""
    names: list[str] = []
    for thing in things:
        stem = re.sub(r"[^\w. -]", "_", thing.name).strip(". ") or "_"
        lower_names = {f.lower() for f in names}
        while f"{stem}{suffix}".lower() in lower_names:
            stem += "_"
        names.append(f"{stem}{suffix}")
    return names


# --- modules


def _module_text(m: Any) -> str:
    """Return the text of a module, with declarations in place of its arguments."""
    if not isinstance(m, Module):
        raise ModelError(f"The module {m.name!r} is a Python function, which cannot be written as text.")
    declared, text = declared_in(m.text, m.name), inspect.cleandoc(m.text).strip("\n")
    dims = {n: s for n, s in m.dims.items() if n not in (*m.open, *declared.dims) and n not in m.points}
    lines = [f"dims {element_name(n, s)}" for n, s in dims.items()]
    lines += [f"step {m.step}"] * (m.step != declared.step)
    for word in ("local", "exogenous", "endogenous", "outputs"):
        names = [n for n in getattr(m, word) or () if n not in (getattr(declared, word) or ())]
        lines += [f"{word.removesuffix('s')} {', '.join(names)}"] * bool(names)
    text = "\n".join([*lines, text, ""])
    try:
        again = Module(m.name, text)
    except ModelTextError:
        again = None
    fields = ("step", "dims", "outputs", "assigns", "reads")
    if again is None or any(getattr(again, w) != getattr(m, w) for w in fields):
        raise ModelError(
            f"The module {m.name!r} is declared by arguments in another way than in its text, which cannot be written; "
            "change the text."
        )
    return text


# --- the data base


def _data_files(model: ModularModel) -> Iterator[tuple[str, str]]:
    """Yield the files of the data base: constants, notes on series, and the series."""
    series = [x for x in model.data if x.is_series]
    rows = [
        {"name": name, "value": model.parms.get(name, value), **_notes(x)}
        for x in model.data
        if not x.is_series
        for name, value in _elements(model, x)
    ]
    if rows:
        yield "constants.csv", _csv(pd.DataFrame(rows))
    if any(_csv(pd.DataFrame([_notes(x)])) != _csv(pd.DataFrame([_notes(Item("", {}))])) for x in series):
        yield "items.csv", _csv(pd.DataFrame([{"name": x.name, **_notes(x)} for x in series]))
    for name, x in zip(_file_names(series, ".csv"), series, strict=True):
        columns = {k: pd.Series(f.values, index=f.times) for k, f in _elements(model, x) if isinstance(f, Forcing)}
        name = f"series_{name}" if name in ("constants.csv", "items.csv") else name
        yield name, _csv(pd.DataFrame(columns).rename_axis("time").reset_index())


def _elements(model: ModularModel, item: Item) -> list[tuple[str, Any]]:
    """Return the elements of an item by their names in the system."""
    in_system = model.inputs.data.get(item.name, item)
    variable = model.system.variables.get(item.name)
    called = variable.element if variable is not None else lambda i: element_name(item.name, i)
    return [(called(i), value) for i, value in in_system.elements.items()]


def _notes(item: Item) -> dict[str, Any]:
    """Return the notes on an item, "" where they are the default."""
    usual = Item("", {})
    return {w: v if (v := getattr(item, w)) != getattr(usual, w) else "" for w in NOTES}


def _csv(frame: pd.DataFrame) -> str:
    settings = frame.drop(columns=[c for c in frame if c in NOTES and (frame[c] == "").all()])
    return settings.to_csv(index=False, lineterminator="\n")


# --- the file for `fmepy run`


def _settings(model: ModularModel, modules: list[str], has_data: bool) -> str:
    """Return the description of the run."""
    times, arguments, usual = model.times, model.arguments, inspect.signature(type(model)).parameters
    step = float(times[1] - times[0]) if len(times) > 1 else 0.0
    even = len(times) > 1 and np.array_equal(times[0] + step * np.arange(len(times)), times)
    lines = [
        f"modules = {json.dumps(modules, ensure_ascii=False)}",
        *[f'data = ["{DATA}/"]'] * has_data,
        f"times = {{ start = {float(times[0])!r}, stop = {float(times[-1])!r}, step = {step!r} }}" if even
        else f"times = {times.tolist()!r}",
        f"dt = {float(model.dt)!r}",
    ]  # fmt: skip
    if arguments["outputs"] is not None:
        lines.append(f"outputs = {json.dumps(list(model.var_names), ensure_ascii=False)}")
    settings = {**{w: getattr(model.rules, w) for w in _SETTINGS}, "seed": model.seed}
    lines += [f"{w} = {json.dumps(v)}" for w, v in settings.items() if v != usual[w].default]
    lines += ["strict = true"] * bool(arguments["strict"])
    return "\n".join([*lines, ""])
