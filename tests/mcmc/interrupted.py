"""Two chains on two workers, one of which never ends, to be interrupted: `python interrupted.py FOLDER`."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from fmepy.mcmc import modMCMC

NITER = 300
PARENT = os.getpid()


def cost(folder: Path, parent: int) -> object:
    """Return -2 log L of a normal: quick in the worker that comes first, after the other has some rows; else slow."""
    quick, slow = folder / "quick", folder / "slow"
    calls = 0

    def f(p):
        nonlocal calls
        calls += 1
        me = str(os.getpid())
        if os.getpid() != parent:
            try:
                with open(quick, "x") as file:
                    file.write(me)
            except FileExistsError:
                pass
            if quick.read_text() == me:
                while not slow.exists():
                    time.sleep(0.01)
                return float(p[0] ** 2)
            if calls > 5:
                slow.touch()
        time.sleep(0.05)
        return float(p[0] ** 2)

    return f


def main() -> None:
    """Run the chains and print what there is after the interruption."""
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background of a shell ignores it

    def told(done: int, total: int) -> None:
        if done >= NITER:
            (folder / "one is done").touch()

    try:
        chain = modMCMC(cost(folder, PARENT), [0.5], niter=NITER, chains=2, executor=2, seed=3, progress=told)
    except BaseException as error:
        print(json.dumps({"error": type(error).__name__}))
        raise
    rows = {k: chain.pars.loc[k, "p1"].tolist() for k in chain.chains}
    print(json.dumps({"rows": rows, "message": chain.message}))


if __name__ == "__main__":
    main()
