"""``fmepy new``: an example or a draft, with its data, in a folder of its own.

A draft is of a table of data: columns guessed, each with the reason, and marked places to fill.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from inspect import cleandoc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy import datasets
from fmepy.errors import ArgumentError, check_known, listed
from fmepy.tables.sheet import DATE, LIKE_A_DATE, NUMBER, UNITS_BELOW, Sheet
from fmepy.tables.text_files import read_text_file, unreadable

TABLES = {"lynx": "lynx_hare", "hiv": "hiv", "nile": "Nile", "theoph": "Theoph", "ccl4": "ccl4"}
"""The observations of an example, where they are one of the tables of `fmepy.datasets`: there is no other copy."""
_FOLDER = Path(__file__).parent / "examples"

_TIMES = r"t|time|times|date|datetime|day|days|hour|hours|h|min|minute|minutes|week|weeks|month|year|years|age|x"
_ENTITIES = (
    r"id|subject|patient|animal|rat|batch|run|experiment|plot|site|group|replicate|tank|flask|well|entity|sample"
)
_ERRORS = r"sd|se|sem|std|err|error|sigma"
_VALUES = r"y|val|value|values|obs|observation|observed|measurement|reading"
_UNITS = (
    r"(.*?)\s*[\[(]([^\])]*)[\])]\s*",
    r"((?i:t|time))[ ._](s|sec|seconds?|min|minutes?|h|hrs?|hours?|d|days?|weeks?|months?|yrs?|years?)",
    r"(.+)[ ._]([pnuµmk]?(?:g|mol)(?:_per_|[ ._/])?(?:[uµm]?[lL]|c?m[23]|k?g)|[pnuµm](?:M|mol)|[unmk]g|pp[mbt]|degC)",
)
"""A column and its unit: in brackets, or at the end of a name such as time_h and conc_mgL."""
_ROWS = 200  # of the model's table, about


def new(arguments: argparse.Namespace) -> int:
    """Write a commented calibration file that runs, or a draft for a table of your own, with its data.

    Make a folder with a calibration file that runs, its data beside it, and a comment in each section, to begin from.

    for example:
      lynx     hare and lynx: two populations, fitted, screened, profiled and sampled
      hiv      HIV in the blood: a long table of two variables with errors, parameters on a log scale
      nile     the Nile: a level that wanders, by a filter (FIMLOF), with forecasts
      theoph   theophylline: twelve subjects, an absorption of each one's own, scenarios
      ccl4     carbon tetrachloride: twelve chambers, conditions, a prior, profiles

      fmepy new study                  folder study/ with study.toml
      fmepy new dose --from theoph
      fmepy new mine --data my.csv     a draft from the columns of a table, with places to fill, and a copy of it
    """
    if arguments.example is not None and arguments.data is not None:
        raise ArgumentError(
            "`--from` copies an example, `--data` drafts a file for a table of your own: give one of them."
        )
    example = arguments.example or "lynx"
    check_known(example, EXAMPLES, f"There is no example {example!r}.")
    folder = Path(arguments.name)
    name = folder.resolve().name
    if not name:
        raise ArgumentError(f"{arguments.name!r} names no folder.")
    if arguments.data is None:
        _make(folder)
        _copy_example(example, folder, name)
        print(f"{folder / name}.toml: {EXAMPLES[example]}.")
        print(f"Look at it, then: fmepy check {folder / name}.toml; fmepy calibrate {folder / name}.toml")
        return 0
    sheet, columns = read_columns(Path(arguments.data).expanduser())
    table = stacked(sheet, columns) if columns.errors else None
    file = f"{sheet.path.stem}_long.csv" if table is not None else sheet.path.name
    text = draft(name, sheet, columns, file, table is not None)
    _make(folder)
    shutil.copyfile(sheet.path, folder / sheet.path.name)
    if table is not None:
        table.to_csv(folder / file, index=False)
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    for note in sheet.notes:
        print(note, file=sys.stderr)
    print(f"{folder / name}.toml: a draft for {', '.join(columns.observed.values())} over {columns.x}.")
    print(f"Fill the places that say FILL; fmepy check {folder / name}.toml names them, one after the other.")
    return 0


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ArgumentError(
            f"{str(folder)!r} is there already; nothing is written over. Choose another name."
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ArgumentError(f"The folder {str(folder)!r} cannot be made: {why}.") from None


def _copy_example(example: str, folder: Path, name: str) -> None:
    for file in sorted((_FOLDER / example).iterdir()):
        if file.is_file():
            shutil.copyfile(file, folder / (f"{name}.toml" if file.suffix == ".toml" else file.name))
    if example in TABLES:
        shutil.copyfile(datasets.file_of(TABLES[example]), folder / f"{TABLES[example]}.csv")


EXAMPLES: dict[str, str] = dict(re.findall(r"^  (\w+)  +(.+)$", cleandoc(new.__doc__ or ""), re.MULTILINE))
"""By key, with what it shows: the list above."""
ARGUMENTS: dict[str, dict[str, Any]] = {
    "name": {"metavar": "NAME", "help": "the folder to make, and the file in it"},
    "--from": {"dest": "example", "metavar": "KEY", "help": f"one of {', '.join(EXAMPLES)}; without it lynx"},
    "--data": {"metavar": "FILE", "help": "a table of your own: drafts a file from its columns"},
}


# --- a draft of a table


@dataclass
class DraftColumns:
    """What the columns of a table seem to be.

    Attributes
    ----------
    x, y, err, entity : str
        Columns; "" where there is none. `y` is the column of values of a long table.
    observed : dict of str to str
        By column (in a long table by name in the first column) the variable of the model.
    errors : dict of str to str
        By column of readings of a wide table that of its standard errors.
    ignore : list of str
    units : dict of str to str
        By column.
    why : dict of str to str
        By "x", "entity", "err": the reason of the guess.
    """

    x: str = ""
    y: str = ""
    err: str = ""
    entity: str = ""
    observed: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    ignore: list[str] = field(default_factory=list)
    units: dict[str, str] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)


def read_columns(path: Path) -> tuple[Sheet, DraftColumns]:
    """Return a table and what its columns seem to be.

    Raises
    ------
    ArgumentError
        It cannot be read, holds no numbers, or words where numbers should be; with the line.
    """
    try:
        sheet = read_text_file(path)
    except OSError as error:
        raise ArgumentError(f"--data: {unreadable(error, path)}") from None
    frame, columns = sheet.frame, DraftColumns()
    ways = {c: [at for unit in _UNITS if (at := re.fullmatch(unit, c))] for c in map(str, frame.columns)}
    split = {c: at[0].groups() if at else (c, "") for c, at in ways.items()}
    bare = {c: name.strip() or c for c, (name, _) in split.items()}
    columns.units = {c: unit.strip() for c, (_, unit) in split.items() if unit.strip()}
    numeric = [c for c in frame.columns if _share(frame[c], NUMBER) >= 0.5]
    dates = [c for c in frame.columns if c not in numeric and _share(frame[c], DATE) >= 0.5]
    texts = [c for c in frame.columns if c not in (*numeric, *dates)]

    def named(words: str, among: Iterable[str]) -> str:
        return next((c for c in among if re.fullmatch(words, bare[c], re.IGNORECASE)), "")

    by_name = named(_TIMES, [*dates, *numeric])
    ambiguous = "" if by_name or dates else next((c for c in texts if _share(frame[c], LIKE_A_DATE) >= 0.5), "")
    if ambiguous:
        cell = str(frame[ambiguous].dropna().iloc[0])
        raise ArgumentError(f"{path}: the dates of column {ambiguous!r}, such as {cell!r}, can be read in "
                            "several ways. Write them as 2001-12-31, in all cells.")  # fmt: skip
    columns.x = by_name or next(iter([*dates, *numeric]), "")
    columns.why["x"] = "recognised by the name" if by_name else f"the first column of {'dates' if dates else 'numbers'}"
    rest = [c for c in numeric if c != columns.x]
    if not rest:
        raise ArgumentError(f"{path}: there is {'one' if numeric or dates else 'no'} column of numbers or dates among "
                            f"{listed(frame.columns)}; a draft needs times and readings."
                            f"{'' if frame.empty or _share(frame.iloc[0], NUMBER) else UNITS_BELOW}")  # fmt: skip
    first = frame.columns[0]
    if first in texts and named(_VALUES, rest):
        columns.y = named(_VALUES, rest)
        columns.err = named(_ERRORS, [c for c in rest if c != columns.y])
        texts.remove(first)
        rest = [c for c in rest if c not in (columns.y, columns.err)]
    _guess_entity(frame, columns, bare, [*texts, *rest])
    rest = [c for c in rest if c != columns.entity]
    if columns.y:
        columns.observed = {str(n): str(n) for n in dict.fromkeys(frame[first].dropna())}
    else:
        _guess_errors(columns, bare, rest)
        readings = [c for c in rest if c not in columns.errors.values()]
        experiments = frame.groupby(columns.entity or np.zeros(len(frame)))
        fixed = [c for c in readings if (experiments[c].nunique() <= 1).all()]
        columns.ignore = [c for c in frame.columns if c in fixed or (c in (*texts, *dates) and c not in
                                                                  (columns.x, columns.entity))]  # fmt: skip
        columns.observed = {c: bare[c] for c in readings if c not in fixed}
    if not columns.observed:
        raise ArgumentError(f"{path}: no column of readings changes, apart from the times {columns.x!r}.")
    own = [k for k in (columns.x, columns.y, columns.err) if k in numeric]
    for c in (*own, *(() if columns.y else columns.observed), *columns.errors.values()):
        sheet.numbers(c, missing=c != columns.x, hint=" Leave the cell empty where nothing was read.")
    columns.observed = dict(zip(columns.observed, _variables(columns.observed.values()), strict=True))
    return sheet, columns


def _share(column: pd.Series, pattern: re.Pattern[str]) -> float:
    """Return the share of cells, of those that are not missing, that look like a pattern."""
    cells = [str(cell).strip() for cell in column.dropna()]
    return sum(bool(pattern.fullmatch(cell)) for cell in cells) / len(cells) if cells else 0.0


def _guess_entity(frame: pd.DataFrame, columns: DraftColumns, bare: dict[str, str], among: list[str]) -> None:
    """Find the column that tells experiments apart: by its name, or a text without which times would be repeated."""
    rows = frame[[columns.x] if not columns.y else [frame.columns[0], columns.x]]
    repeated = rows.duplicated().sum()
    named = [c for c in among if re.fullmatch(_ENTITIES, bare[c], re.IGNORECASE)]
    texts = [c for c in among if frame[c].dtype == object and c not in named]
    for c in [*named, *texts]:
        groups = frame[c].value_counts()
        splits = c in named or rows.assign(**{c: frame[c]}).duplicated().sum() < repeated
        if splits and 1 < len(groups) <= len(frame) / 2 and groups.min() > 1 and frame[c].notna().all():
            columns.entity = c
            columns.why["entity"] = f"{len(groups)} names, {groups.min()} rows or more of each"
            return


def _guess_errors(columns: DraftColumns, bare: dict[str, str], rest: list[str]) -> None:
    """Find the columns of standard errors: sd_A or A_sd of the column A, or sd of the only one."""
    for c in rest:
        at = re.fullmatch(rf"(?:({_ERRORS})[ _.]+)?(.*?)(?:[ _.]+({_ERRORS}))?", bare[c], re.IGNORECASE)
        if at and (at[1] or at[3]):
            column = next((k for k in rest if at[2] in (k, bare[k]) and k != c), "")
            columns.errors |= {column: c} if column else {}
        elif re.fullmatch(_ERRORS, bare[c], re.IGNORECASE) and len(rest) == 2:
            columns.errors = {next(k for k in rest if k != c): c}


def _variables(names: Iterable[str]) -> list[str]:
    """Return valid and unique names for variables of a model."""
    out: list[str] = []
    for name in names:
        plain = re.sub(r"\W+", "_", name).strip("_") or "y"
        plain = f"y_{plain}" if plain[0].isdigit() else plain
        out.append(plain if plain not in out else f"{plain}_{len(out)}")
    return out


def stacked(sheet: Sheet, columns: DraftColumns) -> pd.DataFrame:
    """Return a wide table with columns of errors as a long one: a row a reading."""
    keys = [c for c in (columns.entity, columns.x) if c]
    if clash := {"name", "value", "sd"} & set(keys):
        raise ArgumentError(f"{sheet.path}: rename the column {min(clash)!r}: columns of errors make a table with the "
                            "columns 'name', 'value' and 'sd', a row a reading.")  # fmt: skip
    parts = []
    for column, variable in columns.observed.items():
        part = sheet.frame[keys].assign(value=sheet.numbers(column))
        error = columns.errors.get(column)
        part["sd"] = np.nan if error is None else sheet.numbers(error)
        part.insert(0, "name", variable)
        parts.append(part.dropna(subset="value"))
    table = pd.concat(parts, ignore_index=True)
    if table["sd"].isna().any():
        bad = table.loc[table["sd"].isna(), "name"].iloc[0]
        raise ArgumentError(f"{sheet.path}: the readings of {bad!r} lack some standard errors, while others have them. "
                            "Give all of them, or take the columns of errors out.")  # fmt: skip
    return table


def draft(name: str, sheet: Sheet, columns: DraftColumns, file: str, is_stacked: bool) -> str:
    """Return the text of a calibration file with marked places to fill."""
    from jinja2 import Environment, PackageLoader

    times, is_date = sheet.frame[columns.x], sheet.holds_dates(columns.x)
    unit = _unit_of_dates(sheet, columns.x) if is_date else columns.units.get(columns.x, "")
    x = sheet.since(columns.x, unit)[0] if is_date else sheet.numbers(columns.x, missing=False)
    start, stop, step = _grid(float(x.min()), float(x.max()))
    jinja = Environment(loader=PackageLoader("fmepy.workflow", ""), trim_blocks=True, keep_trailing_newline=True)
    jinja.filters.update(text=partial(json.dumps, ensure_ascii=False), short="{:.12g}".format)  # as TOML holds them
    return jinja.get_template("draft.toml").render(
        name=name, source=sheet.path.name, file=file, columns=columns, is_stacked=is_stacked, unit=unit,
        origin=str(times.min())[:10] if is_date else "", start=start, stop=stop, step=step,
        renamed={} if is_stacked else {c: v for c, v in columns.observed.items() if c != v},
        variables={v: columns.units.get(c, "") for c, v in columns.observed.items()},
    )  # fmt: skip


def _unit_of_dates(sheet: Sheet, name: str) -> str:
    """Return the unit in which the dates span tens or hundreds."""
    days = float(sheet.since(name, "days")[0].max())
    return "hours" if days < 4 else "days" if days < 4000 else "years"


def _grid(low: float, high: float) -> tuple[float, float, float]:
    """Return start, stop and step of a model's table that holds all times; near zero it starts there."""
    start = 0.0 if 0 < low < 0.1 * high else low
    rough = max(high - start, 1e-9) / _ROWS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(k * size for k in (1, 2, 5, 10) if k * size >= rough * (1 - 1e-9))
    return start, start + step * math.ceil((high - start) / step - 1e-9), step
