"""Rows of designs: twenty of a thousand readings, and the structure of a model of thirty states."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fmepy as fme
from benchmarks import hiv
from benchmarks.row import Row, within
from benchmarks.timing import side_by_side

CHAIN = """
d(A)/dt = -k1*A
d(B)/dt = k1*A - k2*B
"""
P = {"k1": 0.7, "k2": 0.2}
N = 30


def twenty_of_a_thousand() -> Row:
    """Choose 20 of 1,000 readings by D, beside the same choice by hand: sensitivities, greedy, all exchanges."""
    model = fme.OdeModel(CHAIN, state={"A": 1, "B": 0}, times=[0, 20], parms=P)
    times = np.linspace(0.02, 10, 500)
    table = pd.DataFrame({"time": np.repeat(times, 2), "variable": ["A", "B"] * 500})
    best = fme.design(model, P, candidates=table, n=20, seed=1)

    def by_hand() -> float:
        bound = model.bind(list(P), times=np.concatenate([[0.0], times]))
        rows = bound.sensitivities(bound.theta0)[1][1:].reshape(-1, 2)
        F = rows[:, :, None] * rows[:, None, :]
        taken: list[int] = []
        for _ in range(20):
            M = 1e-9 * np.eye(2) + F[taken].sum(axis=0)
            gains = [-np.inf if i in taken else np.linalg.slogdet(M + F[i])[1] for i in range(len(F))]
            taken.append(int(np.argmax(gains)))
        better = True
        while better:
            better = False
            for k in range(20):
                M = F[[t for i, t in enumerate(taken) if i != k]].sum(axis=0)
                gains = [-np.inf if i in taken else np.linalg.slogdet(M + F[i])[1] for i in range(len(F))]
                if max(gains) > np.linalg.slogdet(F[taken].sum(axis=0))[1] + 1e-10:
                    taken[k], better = int(np.argmax(gains)), True
        return float(np.linalg.slogdet(F[taken].sum(axis=0))[1])

    assert best.value >= by_hand() - 1e-6, (best.value, by_hand())
    plain = hiv.plain_residuals()
    ours, peer, hand = side_by_side(
        lambda: fme.design(model, P, candidates=table, n=20, seed=1), by_hand, lambda: plain(hiv.TRUTH), rounds=3
    )
    goals = [within(ours, 3.0, hand), (f"log det {best.value:.3f}, by hand the same or less", True)]
    return Row("a design of 20 of 1,000 readings, six starts", ours, "one start by hand", peer, goals)


def chain(n: int) -> fme.OdeModel:
    """Return a chain of n states, each with a rate of its own to the next and a saturable one out."""
    flows = ["0*x0", *(f"k{i - 1}*x{i - 1}" for i in range(1, n))]
    text = "\n".join(f"d(x{i})/dt = {flow} - k{i}*x{i} - m{i}*x{i}/(1 + x{i})" for i, flow in enumerate(flows))
    parms = {f"{kind}{i}": 0.5 for i in range(n) for kind in "km"}
    return fme.OdeModel(text, state={f"x{i}": float(i == 0) for i in range(n)}, times=[0, 1], parms=parms)


def structure() -> Row:
    """Judge thirty states and sixty parameters."""
    large, small = chain(N), chain(N // 3)

    def judged(model: fme.OdeModel) -> fme.StructuralIdentifiability:
        return fme.structural_identifiability(model, observed=list(model.states), seed=1)

    assert set(judged(large).verdicts) == {"locally"}
    plain = hiv.plain_residuals()
    ours, third, hand = side_by_side(lambda: judged(large), lambda: judged(small), lambda: plain(hiv.TRUTH), rounds=2)
    goals = [within(ours, 10.0, hand)]
    return Row("structural identifiability, 30 states, 60 parameters", ours, "10 states, 20 parameters", third, goals)


ROWS = [twenty_of_a_thousand, structure]
