"""Make the pictures of the first two pages from the code that stands there: ``python docs/pictures.py [FOLDER]``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

PAGES = Path(__file__).parent
PICTURES = {  # by page: a name of its code that holds Axes, and the file
    "index.md": {"panels": "front.svg"},
    "start.md": {"panels": "start_fit.svg", "curve": "start_band.svg"},
}


def names_of(page: str) -> dict[str, Any]:
    """Return what the blocks of a page leave behind, those that show their output included."""
    text = (PAGES / page).read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for kind, block in re.findall(r"^```(python|pycon)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        if kind == "pycon":
            block = "\n".join(line[4:] for line in block.splitlines() if line.startswith((">>> ", "... ")))
        exec(compile(block, page, "exec"), names)
    return names


def main(folder: Path) -> None:
    """Write all pictures into a folder."""
    mpl.use("Agg")
    with mpl.rc_context({"svg.hashsalt": "fmepy"}):  # the same picture from the same code
        for page, wanted in PICTURES.items():
            names = names_of(page)
            for name, file in wanted.items():
                names[name][0].figure.savefig(folder / file, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else PAGES)
