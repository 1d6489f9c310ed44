"""Run the benchmarks, or those named, and print one table; ``--write FILE`` keeps it, with machine and versions."""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import os
import platform
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    growth,
    rows_boundary,
    rows_costs,
    rows_delays,
    rows_designs,
    rows_dmi,
    rows_events,
    rows_exchange,
    rows_filter,
    rows_first_use,
    rows_mcmc,
    rows_montecarlo,
    rows_prediction,
    rows_sensitivity,
    rows_shooting,
    rows_solvers,
    rows_starts,
    rows_steady,
    rows_stiff,
    work_precision,
)
from benchmarks.row import Row

ROOMS = (
    rows_costs,
    rows_starts,
    rows_boundary,
    rows_prediction,
    rows_shooting,
    rows_sensitivity,
    rows_montecarlo,
    rows_mcmc,
    rows_filter,
    rows_steady,
    rows_dmi,
    rows_delays,
    rows_designs,
    rows_events,
    rows_exchange,
    rows_stiff,
    rows_solvers,
    rows_first_use,
)
ABOUT = """Made by `make bench`. Every row asserts its answer before it is timed; times are the least of several
means, taken in turn with the peer's, of the processor's time where no workers help. What fmepy is asked is what a user
types: no engine and no propagation is named. "The same through odeint" is the same fmepy call on the same model as a
plain Python function that scipy's odeint solves; "odeint by hand" is a function that a user would write without fmepy.
"Met" is judged by ratios alone: a goal in seconds counts for a machine on which the HIV cost by odeint by hand takes
0.9 ms, and is stretched by what it takes in the same run. R's figures (FME 1.3.6.4 on R 4.2.2, another machine, models
as R functions) are for orientation."""
PICTURES = {
    "growth": (growth.draw, "growth.svg", "How cost grows", "milliseconds by states, samples and parameters"),
    "work_precision": (work_precision.draw, "work_precision.png", "Work and precision", "milliseconds by error"),
}
"""What draws them, into which file, under which heading, and what is seen."""
VERSIONS = [
    "fmepy",
    "numpy",
    "scipy",
    "pandas",
    "lmfit",
    "pints",
    "filterpy",
    "numba",
    "scijit",
    "scikit-sundae",
    "casadi",
    "diffrax",
    "pysd",
    "emcee",
]


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
    every: dict[str, Callable[[], Row]] = {row.__name__: row for room in ROOMS for row in room.ROWS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = [*every, *PICTURES]
    parser.add_argument("row", nargs="*", help=f"only these: {', '.join(known)}")
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="also write the table to FILE, the pictures beside it"
    )
    arguments = parser.parse_args()
    names = arguments.row or known
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no row {unknown[0]!r}; there are {', '.join(known)}")
    path = arguments.write or Path("benchmarks/results.md")
    path.parent.mkdir(parents=True, exist_ok=True)
    done, failed = [], []
    for name in names:
        if name in every:
            print(f"{name} ...", file=sys.stderr, flush=True)
            try:
                done.append(every[name]())
            except Exception:  # one row that fails does not take the others with it
                traceback.print_exc()
                failed.append(name)
    text = f"# Benchmarks\n\n{ABOUT}\n\n{machine()}\n\n{table(done)}\n"
    for name in names:
        if name in PICTURES:
            draw, file, title, seen = PICTURES[name]
            print(f"{name} ...", file=sys.stderr, flush=True)
            draw(path.with_name(file))
            text += f"\n## {title}\n\n![{seen}]({file})\n"
    if failed:
        text += f"\nFailed, and not in the table: {', '.join(failed)}.\n"
    print(text)
    if arguments.write:
        path.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
