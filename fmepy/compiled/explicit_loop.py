# mypy: ignore-errors
"""Many runs of one model by the explicit method, in one call without Python's lock: what is compiled of it.

The functions of a model come as addresses of C functions ``void f(double t, double* y, double* inputs, double* out)``.
"""

from __future__ import annotations

from numba import carray

from fmepy.compiled.dormand_prince import drive
from fmepy.compiled.kernels import call, part
from fmepy.compiled.status import WORK

__all__ = ["run_smooth", "run_watched"]


@part
def _rates(t, y, model, out):
    call(model[0], t, y, model[2], out)


@part
def _watch(t, y, model, out):
    call(model[1], t, y, model[2], out)


def _many_runs(watched):
    """Return the function that runs a model many times: up to the first crossing of a condition, or without any."""
    watcher = _watch if watched else None

    def run(rates, watch, n_runs, n, n_states, n_inputs, n_times, n_watched, most_steps,
            t, rtol, max_step, starts, inputs, times, atol, work, seen, out, told):  # fmt: skip
        Y, U = carray(starts, (n_runs, n)), carray(inputs, (n_runs, n_inputs))
        rows, ends = carray(out, (n_runs * n_times, n)), carray(told, (n_runs, 3))
        wanted, tolerances = carray(times, (1, n_times))[0], carray(atol, (1, n))[0]
        W, marks = carray(work, (WORK, n)), carray(seen, (2, n_watched))
        for r in range(n_runs):
            status, row, reached, _ = drive(
                _rates, watcher, (rates, watch, U[r]), t, 0.0, Y[r], wanted, n_states, rtol, tolerances, max_step,
                most_steps, rows[r * n_times : (r + 1) * n_times], W, marks,
            )  # fmt: skip
            ends[r, 0], ends[r, 1], ends[r, 2] = status, row, reached

    return run


run_smooth, run_watched = _many_runs(False), _many_runs(True)
