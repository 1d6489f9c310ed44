"""Print the lowest versions that a pyproject.toml declares, of what is required and of the extras for the tests.

python tests/oldest.py pyproject.toml > constraints.txt
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("arviz", "dask", "tests")


def lowest(project: dict) -> list[str]:
    """Return a line ``name==version`` for every requirement that has a lowest version."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    found = (re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)", line) for line in wanted)
    return [f"{at[1]}=={at[2]}" for at in found if at]


if __name__ == "__main__":
    print("\n".join(lowest(tomllib.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["project"])))
