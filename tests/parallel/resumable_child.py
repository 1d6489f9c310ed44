"""Tasks in a process of its own, killed by itself where it is told: `python resumable_child.py FOLDER PLAN`."""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np

from fmepy.journal import folder, records
from fmepy.parallel.resumable import resumable_tasks

N = 12


def record(x, rng):
    """Return what comes of a task: arrays, numbers, text, and random numbers of its own; one in five fails."""
    if x % 5 == 3:
        raise ValueError(f"no {x} please")
    return {"squares": np.arange(3.0) * x, "draw": rng.random(), "word": f"task {x}", "none": None, "flags": [True, x]}


def ask(path, function=record, **words):
    """Ask the question."""
    with resumable_tasks(path, "a test", seed=7) as there:
        shift = int(there.rng.integers(1))
        runs = there.spread(function, [k + shift for k in range(N)], question={"what": "squares"}, seeded=True, **words)
        return runs, there.notes


def die() -> None:
    """End at once, as by power failure."""
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Die where the plan says."""
    path, plan = sys.argv[1], json.loads(sys.argv[2])
    records._PAUSE = 0.0  # a part a task
    calls = {"task": 0, "write": 0}
    replace, savez = os.replace, np.savez

    def dying(x, rng):
        calls["task"] += 1
        if plan["where"] == "task" and calls["task"] == plan["count"]:
            die()
        return record(x, rng)

    def now(where: str) -> bool:
        return plan["where"] == where and calls["write"] == plan["count"]

    def savez_half(file, **arrays):
        calls["write"] += 1
        savez(file, **arrays)
        if now("half written"):
            file.flush()
            os.truncate(file.name, os.path.getsize(file.name) // 2)
            die()

    def replace_or_die(a, b):
        if now("before the rename"):
            die()
        replace(a, b)
        if now("after the rename"):
            die()

    folder.np.savez, folder.os.replace = savez_half, replace_or_die
    ask(path, dying)


if __name__ == "__main__":
    main()
