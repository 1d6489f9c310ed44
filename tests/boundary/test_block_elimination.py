"""What is compiled of multiple shooting: no index out of range, and the same as the Python that it is written in."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.boundary.block_elimination import ObservationRows, SegmentChain, condense, expand, reduce
from fmepy.compiled.c_loops import address, c_loop, checked_loop
from fmepy.compiled.kernels import packed
from fmepy.compiled.triangular import lower_factor


@pytest.mark.parametrize("n_row", [2, 5, 12])
@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_the_kernels_keep_to_their_arrays_and_do_as_python_does(sigma, n_row):
    rng = np.random.default_rng(1)
    n, q, sizes = 2, 3, [5, 1, 2, 4]  # segments of the records
    w, total = 2 * n + q + 1, sum(sizes)
    rows, B, gap = (rng.normal(size=(total, *s)) for s in ((n_row, n + q + 1), (n, q), (n,)))
    A = rng.normal(size=(total, n, n))
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    dx, dp = rng.normal(size=(total, n)), rng.normal(size=(len(sizes), q))

    def chain():
        return SegmentChain(
            rows, A, B, gap, begins, sigma, 0.1, np.zeros((len(sizes), w, 0 if sigma else n)),
            np.zeros((len(sizes), w, max(w, n_row + 2 * n))), np.zeros((total, n, w)), dx.copy(), dp,
        )  # fmt: skip

    ends = []
    for way in (c_loop, checked_loop, None):
        job = chain()
        for kernel in (condense, expand):
            if way is None:
                kernel(job)
            else:
                words = packed(job)
                way(kernel, "a test")(address(words))
        ends.append(job)
    for other in ends[:2]:
        for mine, theirs in zip(other, ends[2], strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    assert np.abs(ends[0].relation[1]).max() > 0


@pytest.mark.parametrize("n_row", [3, 9])
def test_rows_are_made_triangular_also_if_they_are_few(n_row):
    rows = np.random.default_rng(2).normal(size=(5, n_row))
    made = rows.copy()
    lower_factor(made, 5, n_row)
    assert not np.triu(made, 1).any()
    np.testing.assert_allclose(made @ made.T, rows @ rows.T)


def test_observations_are_reduced_to_what_they_say_of_their_segment():
    rng = np.random.default_rng(3)
    counts, n_var, k, n_rows = [7, 1, 0, 4], 2, 3, 9
    n_obs, row = sum(counts), rng.integers(n_rows, size=sum(counts))
    order, places = rng.permutation(n_obs), rng.permutation(n_var * (1 + k))
    variable, scales = rng.integers(n_var, size=n_obs), rng.uniform(1, 2, (len(counts), k))
    rows, obs, weights = rng.normal(size=(n_rows, n_var * (1 + k))), rng.normal(size=n_obs), rng.uniform(1, 2, n_obs)
    begins = np.concatenate([[0], np.cumsum(counts)])
    of = rows[row[:, None], places.reshape(n_var, 1 + k)[variable]]
    segment = np.empty(n_obs, dtype=int)
    segment[order] = np.repeat(np.arange(len(counts)), counts)
    r = (of[:, 0] - obs) * weights
    S = of[:, 1:] / scales[segment] * weights[:, None]
    for way in (c_loop, checked_loop):
        found = ObservationRows(
            rows, scales, places, begins, order, row, variable, obs, weights, np.empty(n_obs), np.empty(n_obs),
            np.zeros((len(counts), k + 1, k + 1)), max(counts),
        )  # fmt: skip
        words = packed(found)
        for ends in ((0, 3), (3, 4)):
            way(reduce, "a test")(address(words), *ends)
        np.testing.assert_array_equal(found.mod, of[:, 0])
        np.testing.assert_allclose(found.r, r)
        for s, L in enumerate(found.squares):
            mine = np.column_stack([S, r])[segment == s]
            np.testing.assert_allclose(L @ L.T, mine.T @ mine, atol=1e-12)
