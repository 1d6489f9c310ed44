"""A fit from several starts that kills itself at an evaluation: `python starts_child.py FOLDER EVALUATION`."""

from __future__ import annotations

import os
import signal
import sys

import numpy as np

import fmepy as fme
from fmepy.journal import records

X = np.linspace(0, 6, 25)
NOISE = 0.05 * np.cos(40 * X)
BOX = {"lower": {"w": 0.5, "a": 0.1}, "upper": {"w": 9, "a": 30}}
SETTINGS = {"p": {"w": 1.2, "a": 1.0}, **BOX, "starts": 20, "seed": 2}


def cost(p):
    """Return the residuals of a wave; some frequencies fail."""
    if p["w"] > 8:
        raise ValueError("too fast")
    return p["a"] * np.sin(p["w"] * X) - np.sin(3.0 * X) - NOISE


class Ending:
    """The cost that ends at one of its evaluations."""

    def __init__(self, evaluation, how):
        self.left, self.how = evaluation, how

    def __call__(self, p):
        """Return the residuals, or end."""
        self.left -= 1
        if self.left == 0:
            if self.how is None:
                os.kill(os.getpid(), signal.SIGKILL)
            raise self.how
        return cost(p)


if __name__ == "__main__":
    records._PAUSE = 0.0
    fme.modFit(Ending(int(sys.argv[2]), None), **SETTINGS, checkpoint=sys.argv[1])
