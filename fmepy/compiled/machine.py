"""LLVM's text -> machine code of this process, and object files that the next process reads back."""

from __future__ import annotations

from functools import cache, lru_cache
from inspect import getmro
from typing import Any


class Code:
    """Machine code in memory; its addresses hold as long as this object lives.

    Parameters
    ----------
    made : llvmlite's module, or bytes
        Optimised; or an object file.
    quick : bool
        Written in a twentieth of the time, to run up to twice as long.
    """

    def __init__(self, made: Any, quick: bool = False) -> None:
        from llvmlite import binding

        _start()
        is_object = isinstance(made, bytes)
        module = binding.parse_assembly("") if is_object else made
        self._engine = binding.create_mcjit_compiler(module, _machine(0 if quick else 2))
        if is_object:
            self._engine.add_object_file(binding.ObjectFileRef.from_data(made))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return where a function begins; 0 if there is none."""
        return int(self._engine.get_function_address(name))

    def place(self, name: str) -> int:
        """Return where a global variable stands; 0 if there is none."""
        return int(self._engine.get_global_value_address(name))


LEVEL = 1
"""Of optimisation of a model's functions: 2 and 3 take half as long again and give nothing (HIV, 28 states)."""
LOOPS = 2
"""Of those that are loops over arrays: from 2 on several entries are computed at once."""


@lru_cache(maxsize=64)
def compiled(text: str, level: int = LEVEL, quick: bool = False) -> Code:
    """Return a program of pure functions as code; copies of a model, such as one with other data, share it."""
    return Code(optimised(text, level), quick)


def optimised(text: str, level: int, only: str = "") -> Any:
    """Return a module, optimised; with `only`, nothing but that function and what it calls.

    Of the level `LOOPS` no loops are unrolled: a hundred short ones would take LLVM half a minute.
    """
    from llvmlite import binding
    from llvmlite.binding import ffi
    from llvmlite.binding.newpassmanagers import NewPassManager

    _start()
    module = binding.parse_assembly(text)
    if only:
        for function in module.functions:
            if not function.is_declaration and function.name != only:
                function.linkage = "internal"
    options = binding.create_pipeline_tuning_options(speed_level=level)
    options.loop_unrolling = level != LOOPS
    builder = binding.create_pass_builder(_for_passes(), options)
    passes = builder.getModulePassManager()
    passes.run(module, builder)
    order = getmro(type(passes))
    if order.index(ffi.ObjectRef) < order.index(NewPassManager):  # llvmlite 0.45 to 0.50 keeps 40 kB a program for ever
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
    return module


def object_of(module: Any, quick: bool = False) -> bytes:
    """Return an object file; written quickly, where there are thousands of small functions."""
    return bytes(_machine(0 if quick else 2).emit_object(module))


@cache
def versions() -> str:
    """Return what decides how code looks: LLVM's version and this machine."""
    import llvmlite
    from llvmlite import binding

    _start()
    host = (binding.get_process_triple(), binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten())
    return "\n".join((llvmlite.__version__, *host))


@cache
def _start() -> None:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


@cache
def _host() -> tuple[Any, str, str]:
    """Return LLVM's target, and the name and features of this processor."""
    from llvmlite import binding

    target = binding.Target.from_triple(binding.get_process_triple())
    return target, binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def _machine(level: int = 2) -> Any:
    """Return LLVM's picture of this machine; an engine takes one for itself."""
    target, name, features = _host()
    return target.create_target_machine(name, features, opt=level, jit=True)


_for_passes = cache(_machine)
"""The one of all passes, which only read it."""
