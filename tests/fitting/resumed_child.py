"""A fit that kills itself at an evaluation: `python resumed_child.py FOLDER METHOD EVALUATION`."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import fmepy as fme
from fmepy.journal import evaluations, records

X = np.linspace(0.0, 5.0, 12)
Y = 2.0 * np.exp(-0.7 * X) + 0.05 * np.cos(30 * X)
BOX = {"lower": {"a": 0.1, "k": 0.01}, "upper": {"a": 9.0, "k": 5.0}}
CONTROL = {"Pseudo": {"numiter": 60, "npop": 10}}


class Counted:
    """The residuals of a decay, counted; at one evaluation the process ends."""

    def __init__(self, last: int = 0) -> None:
        self.calls, self.last = 0, last

    def __call__(self, p):
        self.calls += 1
        if self.calls == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return p["a"] * np.exp(-p["k"] * X) - Y


def fit(cost, method, folder):
    """Fit; every evaluation counts as one that takes long."""
    evaluations._QUICK, evaluations._SPEED, records._PAUSE = -1.0, np.inf, 0.0
    start = {"a": 1.0, "k": 0.2}
    return fme.modFit(cost, start, **BOX, method=method, control=CONTROL.get(method), seed=3, checkpoint=folder)


if __name__ == "__main__":
    fit(Counted(int(sys.argv[3])), sys.argv[2], sys.argv[1])
