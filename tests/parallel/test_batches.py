"""A function that offers `many` is run in batches, here or on threads; outcomes are those of single runs."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fmepy import run_many
from fmepy.parallel.worker import AT_ONCE


class Squares:
    """Squares numbers, the odd multiples of 100 fail; remembers who ran what."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.threads: set[int] = set()

    def __call__(self, x):
        if x % 200 == 100:
            raise ValueError(f"not {x}")
        return x * x

    def many(self, items):
        self.sizes.append(len(items))
        self.threads.add(threading.get_ident())
        return [(False, ("ValueError", f"not {x}")) if x % 200 == 100 else (True, x * x) for x in items]


@pytest.mark.parametrize("executor", [None, 1, 2, 5])
def test_results_and_failures_are_those_of_single_runs(executor):
    squares = Squares()
    alone = run_many(lambda x: squares(x), range(1000))
    runs = run_many(squares, range(1000), executor=executor)
    assert runs.results == alone.results
    assert runs.failures.equals(alone.failures)
    assert len(runs.failures) == 5
    assert 0 < sum(squares.sizes) <= 1000
    assert max(squares.sizes) <= AT_ONCE


def test_a_number_of_workers_means_threads_of_this_process():
    squares = Squares()
    run_many(squares, range(2000), executor=2)
    assert threading.get_ident() not in squares.threads
    assert squares.threads


def test_random_numbers_and_time_limits_need_single_runs():
    class Drawing(Squares):
        def __call__(self, x, rng):
            return x + int(rng.integers(10))

    drawing = Drawing()
    assert len(run_many(drawing, range(5), seed=1)) == 5
    assert drawing.sizes == []


def test_a_batch_that_breaks_is_run_one_by_one():
    class Broken(Squares):
        def many(self, items):
            raise RuntimeError("the batch as a whole")

    runs = run_many(Broken(), range(300))
    assert runs.results[7] == 49
    assert runs.failures["error"].tolist() == ["ValueError"]


def test_progress_counts_runs():
    told: list[tuple[int, int]] = []
    run_many(Squares(), range(600), progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (600, 600)


def test_ctrl_c_keeps_the_batches_that_are_done():
    class Stopping(Squares):
        def many(self, items):
            if len(self.sizes) == 2:
                raise KeyboardInterrupt
            return super().many(items)

    with pytest.warns(match="interrupted"):
        runs = run_many(Stopping(), np.arange(5 * AT_ONCE))
    assert runs.interrupted
    assert (runs.failures["error"] == "Interrupted").sum() == 3 * AT_ONCE
    assert runs.results[2 * AT_ONCE - 1] == (2 * AT_ONCE - 1) ** 2
