"""Starts of segments: of several paths the parts that fit best together, whatever their number."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from fmepy.boundary.shooting_starts import composed


def paths_of(rng, n_path, first):
    """Paths of chance through segments of two states, as a search keeps them."""
    m, n_record = len(first), int(first.sum())
    return [
        SimpleNamespace(
            theta=np.zeros(1), X=rng.standard_normal((m, 2)), ends=rng.standard_normal((m, 2)),
            squares=rng.standard_normal((m, 3, 3)), begin=rng.standard_normal((n_record, 2)),
        )
        for _ in range(n_path)
    ]  # fmt: skip


def value(paths, taken, first, sigma, size):
    """The squares of starts taken from the paths, one segment after the other."""
    total, record = 0.0, -1
    for s, k in enumerate(taken):
        record += int(first[s])
        before = paths[k].begin[record] if first[s] else paths[taken[s - 1]].ends[s - 1]
        total += (paths[k].squares[s, :, -1] ** 2).sum() / size**2 + (((before - paths[k].X[s]) / sigma) ** 2).sum()
    return total


@pytest.mark.parametrize("sigma", [0.1, 3.0])
@pytest.mark.parametrize("first", [[1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 0, 1]])
def test_no_other_choice_of_starts_fits_better(first, sigma):
    first, scale = np.array(first, dtype=bool), sigma * np.array([1.0, 2.0])
    paths = paths_of(np.random.default_rng(7), 3, first)
    segments = SimpleNamespace(layout=SimpleNamespace(is_first=first), at=lambda theta, X: X)
    best = min(product(range(3), repeat=6), key=lambda taken: value(paths, taken, first, scale, 0.5))
    assert composed(segments, paths, scale, 0.5) == pytest.approx(np.array([paths[k].X[s] for s, k in enumerate(best)]))


def test_a_path_that_fits_best_as_a_whole_is_not_run_again():
    first = np.array([True, False, False])
    paths = paths_of(np.random.default_rng(8), 2, first)
    paths[1].squares *= 100
    segments = SimpleNamespace(layout=SimpleNamespace(is_first=first), at=None)
    assert composed(segments, paths, np.full(2, 10.0), 1.0) is paths[0]
