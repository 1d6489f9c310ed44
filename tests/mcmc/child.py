"""A chain in a process of its own, killed by itself where it is told: `python child.py FOLDER PLAN`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

from fmepy.journal import folder as journal_folder
from fmepy.mcmc import modMCMC, resume_mcmc

X = np.array([28, 55, 83, 110, 138, 225, 375.0])
Y = np.array([0.053, 0.06, 0.112, 0.105, 0.099, 0.122, 0.125])
SETTINGS = {
    "jump": [[7e-4, 0.72], [0.72, 924.0]],
    "lower": 0,
    "upper": [0.5, 500],
    "var0": 1.2e-4,
    "wvar0": 1,
    "niter": 1500,
    "burninlength": 600,
    "updatecov": 100,
    "ntrydr": 2,
    "outputlength": 450,
    "chains": 2,
    "seed": 11,
}
EVERY = 50


def residuals(p):
    """Return the residuals of the Monod model."""
    return Y - p[0] * X / (X + p[1])


def die() -> None:
    """End at once, as by power failure."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(plan: dict) -> object:
    """Return the cost that dies at an evaluation, or make a write die at some point."""
    calls = {"f": 0, "write": 0}
    if plan["where"] == "evaluation":

        def dying(p):
            calls["f"] += 1
            if calls["f"] == plan["count"]:
                die()
            return residuals(p)

        return dying

    replace, fsync, savez = os.replace, os.fsync, np.savez

    def counted() -> bool:
        return calls["write"] == plan["count"]

    def savez_half(file, **arrays):
        calls["write"] += 1
        savez(file, **arrays)
        if plan["where"] == "half written" and counted():
            file.flush()
            os.truncate(file.name, os.path.getsize(file.name) // 2)
            die()

    def replace_or_die(a, b):
        if plan["where"] == "before the rename" and counted():
            die()
        replace(a, b)
        if plan["where"] == "after the rename" and counted():
            die()

    journal_folder.np.savez, journal_folder.os.replace, journal_folder.os.fsync = savez_half, replace_or_die, fsync
    return residuals


def main() -> None:
    """Begin the chain, or go on with it."""
    folder, plan = sys.argv[1], json.loads(sys.argv[2])
    f = arm(plan)
    method = plan.get("settings", {})
    if (Path(folder) / "header.json").exists():
        resume_mcmc(f, folder)
    else:
        modMCMC(f, [0.145, 49.0], checkpoint=folder, checkpoint_every=EVERY, **{**SETTINGS, **method})


if __name__ == "__main__":
    main()
