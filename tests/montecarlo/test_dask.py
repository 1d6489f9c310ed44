"""A Dask cluster is an executor like any other: the same numbers as here, failures kept, on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fmepy.montecarlo import modCRL, sensRange
from fmepy.parallel import run_many
from tests.models.problems import bacteria_model

pytestmark = [
    # Tornado and the cluster's own processes leave sockets to the garbage collector when they end
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def executor() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, silence_logs=40
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client.get_executor()


@pytest.mark.parametrize("keep", ["all", "summary"])
def test_the_same_numbers_on_dask_as_here(executor, keep):
    args = {"parRange": {"gmax": (0.4, 0.6), "rB": (0, 0.02)}, "num": 40, "seed": 1, "keep": keep}
    model = bacteria_model()
    there, here = sensRange(model, **args, executor=executor), sensRange(model, **args)
    pd.testing.assert_frame_equal(there.summary().frame, here.summary().frame, check_exact=True)
    np.testing.assert_array_equal(there.values, here.values)


def test_a_local_function_travels_and_its_failures_come_back(executor):
    offset = 10.0

    def inverse(p):
        return {"y": offset + 1 / p["a"]}

    result = modCRL(inverse, {"a": 1.0}, parInput={"a": [1.0, 0.0, 4.0]}, executor=executor)
    assert result.failures["run"].tolist() == [1]
    np.testing.assert_array_equal(result.frame["y"], [11, np.nan, 10.25])


def test_random_numbers_are_the_same_on_dask(executor):
    def draw(x, rng):
        return x + rng.random()

    there = run_many(draw, range(20), executor=executor, seed=3)
    assert there.results == run_many(draw, range(20), seed=3).results
