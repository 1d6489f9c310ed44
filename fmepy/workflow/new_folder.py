"""Write a commented calibration file that runs, with its data.

Make a folder with a calibration file that runs, its data beside it, and a comment in each section, to begin from.

for example:
  lynx     hare and lynx: two populations, fitted, screened, profiled and sampled
  hiv      HIV in the blood: a long table of two variables with errors, parameters on a log scale
  nile     the Nile: a level that wanders, by a filter (FIMLOF), with forecasts
  theoph   theophylline: twelve subjects, an absorption of each one's own, scenarios
  ccl4     carbon tetrachloride: twelve chambers, conditions, a prior, profiles

  fmepy new study                  folder study/ with study.toml
  fmepy new dose --from theoph
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from fmepy.errors import ArgumentError, did_you_mean, listed

NAME = "new"
EXAMPLES = {
    "lynx": "hare and lynx: two populations, fitted, screened, profiled and sampled",
    "hiv": "HIV in the blood: a long table of two variables with errors, parameters on a log scale",
    "nile": "the Nile: a level that wanders, by a filter (FIMLOF), with forecasts",
    "theoph": "theophylline: twelve subjects, an absorption of each one's own, scenarios",
    "ccl4": "carbon tetrachloride: twelve chambers, conditions, a prior, profiles",
}
_FOLDER = Path(__file__).parent / "examples"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", metavar="NAME", help="the folder to make, and the file in it")
    parser.add_argument("--from", dest="example", metavar="KEY", default="lynx", help=f"one of {', '.join(EXAMPLES)}")


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if given.example not in EXAMPLES:
        raise ArgumentError(f"There is no example {given.example!r}.{did_you_mean(given.example, EXAMPLES)} There are "
                            f"{listed(EXAMPLES)}.")  # fmt: skip
    folder = Path(given.name)
    name = folder.resolve().name
    if not name:
        raise ArgumentError(f"{given.name!r} names no folder.")
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise ArgumentError(
            f"{str(folder)!r} is there already; nothing is written over. Choose another name."
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ArgumentError(f"The folder {str(folder)!r} cannot be made: {why}.") from None
    for file in sorted((_FOLDER / given.example).iterdir()):
        if file.is_file():
            shutil.copyfile(file, folder / (f"{name}.toml" if file.suffix == ".toml" else file.name))
    print(f"{folder / name}.toml: {EXAMPLES[given.example]}.")
    print(f"Look at it, then: fmepy check {folder / name}.toml; fmepy calibrate {folder / name}.toml")
    return 0
