"""The elimination of segments: no index out of range, and the same as the Python that it is written in."""

from __future__ import annotations

import numpy as np
import pytest

from fmepy.boundary.condensed import Chain, condense, spread
from fmepy.compiled.c_loops import address, c_loop, checked_loop
from fmepy.compiled.kernels import packed


@pytest.mark.parametrize("is_exact", [True, False])
def test_the_kernels_keep_to_their_arrays_and_do_as_python_does(is_exact):
    rng = np.random.default_rng(1)
    n, q, sizes = 2, 3, [4, 0, 1, 3]  # stretches of the records
    w, total = 2 * n + q + 1, sum(sizes)
    C = rng.normal(size=(total, w, n if is_exact else 0))
    V = np.tril(rng.normal(size=(total, w, w)))
    begins = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    dx, dp = rng.normal(size=(total + len(sizes), n)), rng.normal(size=(len(sizes), q))

    def chain():
        return Chain(C.copy(), V.copy(), begins, np.zeros((total, n, w)), dx.copy(), dp)

    ends = []
    for way in (c_loop, checked_loop, None):
        job = chain()
        for kernel in (condense, spread):
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
