"""Random numbers within a run: one stream a variable and call, the same whatever else is run, and wherever.

A call of random_uniform or random_normal is a number of a standard distribution, drawn anew at every elementary step,
scaled. The numbers are drawn before the run, so that to it they are a series like those of the data base.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

from fmepy.dmi.statements import Reference, element_names
from fmepy.types import Matrix


class Draw(NamedTuple):
    """A hidden variable that holds random numbers: its kind, and what its stream is called."""

    target: Reference
    kind: str
    stream: str

    @property
    def elements(self) -> tuple[str, ...]:
        """What its elements are called."""
        return element_names(self.target.name, self.target.shape)


def drawn(draws: Sequence[Draw], seed: int, n_steps: int) -> Matrix:
    """Return the numbers, a row a step, a column an element; those of a longer run begin as those of a shorter one."""
    columns = [np.zeros((n_steps + 1, 0))]
    for draw in draws:
        rng = np.random.default_rng([seed, crc32(draw.stream.encode())])
        size = (n_steps + 1, len(draw.elements))
        columns.append(rng.random(size) if draw.kind == "random_uniform" else rng.standard_normal(size))
    return np.hstack(columns)
