"""Rows of what is done once: imports, first runs, what is compiled on a machine that knows nothing yet.

Each is timed in processes of its own; where a cache is to be empty, in a folder of its own.
"""

from __future__ import annotations

import tempfile

from benchmarks import hiv
from benchmarks.row import Row, at_most, within
from benchmarks.timing import fresh_process, side_by_side

PEER = "numba compiles a loop of five lines"
COMPILED = """
import time
t = time.perf_counter()
import numba

@numba.njit("float64(float64[:], float64)")
def peer(x, a):
    total = 0.0
    for i in range(x.size):
        total += a * x[i] ** 2
    return total

print(time.perf_counter() - t)
"""
HEAD = """
import logging, time
import numpy as np, numba
import fmepy as fme
from benchmarks import boehm, hiv, market, rows_filter
told = []

class Kept(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())

logging.getLogger("fmepy").addHandler(Kept())
logging.getLogger("fmepy").setLevel(logging.INFO)
"""
TAIL = "\nprint(time.perf_counter() - t)\n"
MODEL = """
t = time.perf_counter()
model = hiv.model()
bound = model.bind()
out = bound.simulate(bound.theta0)
assert abs(out[0, 3] - 10.8198) < 1e-3
"""
FILTER = """
t = time.perf_counter()
value = market.cost()()
assert abs(value) > 0
"""
ADAPTIVE = """
t = time.perf_counter()
value = rows_filter.lotka_volterra()()
assert abs(value) > 0
"""
OTHER = """
from tests.fimlof.market import market_cost
market_cost("panel20")[0]()
t = time.perf_counter()
"""
SAYS = """
assert any("ompil" in line for line in told), told
"""


def import_time() -> Row:
    """Import of the package, in a new process."""
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"
    ours, peer = fresh_process([code.format("fmepy"), code.format("pandas, scipy.optimize")])
    return Row("import fmepy", ours, "import pandas, scipy.optimize", peer, [at_most(ours / peer, 1, "{:.2f} of it")])


def first_run() -> Row:
    """From the definition of a model to its first trajectory, in a new process after the import."""
    code = HEAD + MODEL + TAIL
    by_hand = hiv.plain_residuals()
    with tempfile.TemporaryDirectory() as folder:
        fresh_process([code], rounds=1, **_in(folder))
        (hand,) = side_by_side(lambda: by_hand(hiv.TRUTH), rounds=5)
        ours, peer = fresh_process([code, COMPILED], rounds=3, **_in(folder))
    return Row("first run of a compiled model, HIV, in a new process", ours, PEER, peer, [within(ours, 0.15, hand)])


def first_compiled_engine() -> Row:
    """Run a compiled model for the first time on a machine."""
    return _first("first run of a compiled model ever on a machine", MODEL, 4.0)


def first_adaptive_filter() -> Row:
    """Use a filter of an ODE model, default propagation, for the first time on a machine."""
    return _first("first adaptive filter ever on a machine", ADAPTIVE, 4.0)


def first_filter() -> Row:
    """Use a filter for the first time on a machine: it says so before it compiles."""
    return _first("first filter ever on a machine, with a line that says so", FILTER + SAYS, 6.0)


def filter_of_a_new_model() -> Row:
    """Evaluate a new model's likelihood where filters have run before, and again in a second process."""
    plain = hiv.plain_residuals()
    with tempfile.TemporaryDirectory() as folder:
        fresh_process([HEAD + OTHER + TAIL], rounds=1, **_in(folder))
        (first,) = fresh_process([HEAD + FILTER + TAIL], rounds=1, **_in(folder))
        again, peer = fresh_process([HEAD + FILTER + TAIL, COMPILED], rounds=3, **_in(folder))
    (hand,) = side_by_side(lambda: plain(hiv.TRUTH), rounds=5)
    goals = [within(first, 1.0, hand), within(again, 0.3, hand)]
    goals[1] = (f"in a second process {goals[1][0]}", goals[1][1])
    return Row("first use of a filter on a new model", first, PEER, peer, goals)


def _first(work: str, code: str, goal: float) -> Row:
    """Time what is done in a folder that holds nothing, the shorter of two."""
    plain, took = hiv.plain_residuals(), []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            took.append(fresh_process([HEAD + code + TAIL, COMPILED], rounds=1, **_in(folder)))
    ours, peer = (min(times) for times in zip(*took, strict=True))
    (hand,) = side_by_side(lambda: plain(hiv.TRUTH), rounds=5)
    return Row(work, ours, PEER, peer, [within(ours, goal, hand)])


def _in(folder: str) -> dict[str, str]:
    """Return the variables that make a folder the only cache."""
    return {"XDG_CACHE_HOME": folder}


ROWS = [import_time, first_run, first_compiled_engine, first_filter, first_adaptive_filter, filter_of_a_new_model]
