"""``fmepy new``: an example or a draft, with its data, in a folder of its own."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

from fmepy import datasets
from fmepy.errors import ArgumentError, did_you_mean, listed

TABLES = {"lynx": "lynx_hare", "hiv": "hiv", "nile": "Nile", "theoph": "Theoph", "ccl4": "ccl4"}
"""The observations of an example, where they are one of the tables of `fmepy.datasets`: there is no other copy."""
_FOLDER = Path(__file__).parent / "examples"


def new(given: argparse.Namespace) -> int:
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
    if given.example is not None and given.data is not None:
        raise ArgumentError(
            "`--from` copies an example, `--data` drafts a file for a table of your own: give one of them."
        )
    example = given.example or "lynx"
    if example not in EXAMPLES:
        raise ArgumentError(f"There is no example {example!r}.{did_you_mean(example, EXAMPLES)} There are "
                            f"{listed(EXAMPLES)}.")  # fmt: skip
    folder = Path(given.name)
    name = folder.resolve().name
    if not name:
        raise ArgumentError(f"{given.name!r} names no folder.")
    if given.data is None:
        _make(folder)
        _copy_example(example, folder, name)
        print(f"{folder / name}.toml: {EXAMPLES[example]}.")
        print(f"Look at it, then: fmepy check {folder / name}.toml; fmepy calibrate {folder / name}.toml")
        return 0
    from fmepy.workflow.draft import draft, read_columns, stacked

    sheet, columns = read_columns(Path(given.data).expanduser())
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
