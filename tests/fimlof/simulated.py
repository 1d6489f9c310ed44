"""Panels simulated from a linear system of three states with noise, for checks by Monte Carlo."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fmepy.fimlof.cost import FimlofCost
from fmepy.models.difference import DifferenceModel

F = np.array([[0.9, 0.2, 0.0], [-0.1, 0.8, 0.1], [0.0, 0.1, 0.7]])
SD_W, SD_V = 0.5, 0.6


def three_states(n, a, b, c):
    return 0.9 * a + 0.2 * b, -0.1 * a + 0.8 * b + 0.1 * c, 0.1 * b + 0.7 * c


def panel(rng, entities, samples, *, typo=0.0, jump=0.0, when=10):
    """Return a cost over entities, all three states read with errors.

    typo, jump : sizes in sds of the error of measurement (of ``a``) and of the noise (of ``b``), planted at sample
    `when` of every entity.
    """
    rows = []
    for who in range(entities):
        x = rng.normal(size=3)
        for n in range(1, samples + 1):
            x = F @ x + SD_W * rng.normal(size=3)
            if n == when:
                x[1] += jump * SD_W
            z = x + SD_V * rng.normal(size=3)
            if n == when:
                z[0] += typo * SD_V
            rows.append((who, n, *z))
    data = pd.DataFrame(rows, columns=["who", "time", "a", "b", "c"])
    model = DifferenceModel(three_states, state={"a": 0.0, "b": 0.0, "c": 0.0}, times=[0, samples])
    names = ["a", "b", "c"]
    return FimlofCost(
        model,
        data,
        process_noise=dict.fromkeys(names, SD_W),
        measurement_noise=dict.fromkeys(names, SD_V),
        initial_sd=dict.fromkeys(names, 1.0),
        entity="who",
    )
