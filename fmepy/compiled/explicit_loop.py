# mypy: ignore-errors
"""Many runs of one model by the explicit method, in one call without Python's lock: what is compiled of it.

The functions of a model come as addresses of C functions ``void f(double t, double* y, double* inputs, double* out)``.
"""

from __future__ import annotations

import re

from llvmlite import ir
from numba import carray, cfunc, types
from numba.core import config
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from fmepy.compiled.dormand_prince import WORK, drive
from fmepy.compiled.kernels import part
from fmepy.compiled.machine import object_of, optimised

__all__ = ["call", "compiled_loop"]


@intrinsic
def call(typing, function, t, y, inputs, out):
    """Call the C function at an address: void (double, double*, double*, double*)."""

    def generate(context, builder, signature, arguments):
        address, t, *arrays = arguments
        pointers = [
            context.make_array(kind)(context, builder, value=array).data
            for kind, array in zip(signature.args[2:], arrays, strict=True)
        ]
        kind = ir.FunctionType(ir.VoidType(), [t.type, *(p.type for p in pointers)])
        builder.call(builder.inttoptr(address, kind.as_pointer()), [t, *pointers])
        return context.get_dummy_value()

    return types.void(function, types.float64, y, inputs, out), generate


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


def compiled_loop(watched: bool) -> bytes:
    """Return the object file of the C function `run`.

    numba writes it and LLVM optimises it on its own, without numba's wrappers, which need Python: so it can be read
    back without numba.
    """
    signature = types.void(*[types.int64] * 9, *[types.float64] * 3, *[types.CPointer(types.float64)] * 8)
    cpu_target.target_context  # noqa: B018    # made before the level is changed, which it would keep
    with global_compiler_lock:
        level, config.OPT = config.OPT, type(config.OPT)(0)  # below it is optimised again
        try:
            made = cfunc(signature, error_model="numpy")(_many_runs(watched))
        finally:
            config.OPT = level
    name = made.native_name.removeprefix("cfunc.")
    text = _COUNT.sub(r"define internal void @\1(ptr %array) alwaysinline {\n  ret void\n}\n", made.inspect_llvm())
    return object_of(optimised(f"{text}\n{_CALLER.format(name=name)}", 3, "run"))


_COUNT = re.compile(r"define [^\n]*@(NRT_(?:in|de)cref)\(.*?\n}\n", re.DOTALL)
"""numba's counting of who uses an array: nothing here allocates or frees one."""
_ARGUMENTS = ", ".join(f"{k} %a{i}" for i, k in enumerate(["i64"] * 9 + ["double"] * 3 + ["ptr"] * 8))
_CALLER = f"""
define void @run({_ARGUMENTS}) {{{{
  %value = alloca ptr
  %error = alloca ptr
  call i32 @{{name}}(ptr %value, ptr %error, {_ARGUMENTS})
  ret void
}}}}
"""
