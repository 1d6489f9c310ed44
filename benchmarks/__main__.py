"""Run the benchmarks and print one table; ``--write FILE`` keeps it, with machine and versions."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
from pathlib import Path

from benchmarks import rows, rows_filter, rows_mcmc, rows_montecarlo, rows_sensitivity
from benchmarks.rows import Row

ABOUT = """Made by `make bench`. Every row asserts its answer before it is timed; times are the least of several
means, taken in turn with the peer's. A bare solve is pydiffsol's own, of the same grid, with nothing around it. "The
same through odeint" is the same fmepy call on the same model as a plain Python function that scipy's odeint solves;
"odeint by hand" is a function that a user would write without fmepy. R's figures (FME 1.3.6.4 on R 4.2.2, another
machine, models as R functions) are for orientation."""
VERSIONS = ["fmepy", "numpy", "scipy", "pandas", "pydiffsol", "sympy", "lmfit", "pints", "filterpy", "numba"]


def in_words(seconds: float | None) -> str:
    """Return a time with a fitting unit.

    Examples
    --------
    >>> in_words(0.00123), in_words(2.0), in_words(None)
    ('1.23 ms', '2 s', '-')
    """
    if seconds is None:
        return "-"
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def table(rows: list[Row]) -> str:
    """Return the rows as a Markdown table."""
    lines = [
        "| work | fmepy | peer | peer's time | peer / fmepy | R's FME | what it should be | met |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        told, met = "; and ".join(text for text, _ in r.goals), all(ok for _, ok in r.goals)
        cells = [r.work, in_words(r.seconds), r.peer, in_words(r.peer_seconds), f"{r.peer_seconds / r.seconds:.2g}",
                 in_words(r.r_seconds), told, "yes" if met else "**no**"]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def machine() -> str:
    """Return where the figures come from."""
    packages = ", ".join(f"{name} {_version(name)}" for name in VERSIONS)
    return (
        f"{datetime.date.today()}; {os.cpu_count()} cores, {_processor()}; {platform.system()}; "
        f"Python {platform.python_version()}; {packages}."
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)" if name != "fmepy" else __import__("fmepy").__version__


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--write", metavar="FILE", type=Path, help="also write the table to FILE")
    parser.add_argument("--only", metavar="TEXT", default="", help="only the rows whose function's name holds TEXT")
    arguments = parser.parse_args()
    every = [row for room in (rows, rows_sensitivity, rows_montecarlo, rows_mcmc, rows_filter) for row in room.ROWS]
    done = [row() for row in every if arguments.only in row.__name__]
    text = f"# Benchmarks\n\n{ABOUT}\n\n{machine()}\n\n{table(done)}\n"
    print(text)
    if arguments.write:
        arguments.write.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
