"""Compile LLVM's text to machine code of this process, or to object files that later processes read back."""

from __future__ import annotations

from functools import cache, lru_cache
from inspect import getmro
from typing import Any


class Code:
    """Machine code in memory; its addresses are valid as long as this object lives.

    Parameters
    ----------
    source : llvmlite's module, or bytes
        An optimised module, or an object file.
    quick : bool
        Generate code in a twentieth of the time, which may run half as fast.
    """

    def __init__(self, source: Any, quick: bool = False) -> None:
        from llvmlite import binding

        _start()
        is_object = isinstance(source, bytes)
        module = binding.parse_assembly("") if is_object else source
        self._engine = binding.create_mcjit_compiler(module, _machine(0 if quick else 2))
        if is_object:
            self._engine.add_object_file(binding.ObjectFileRef.from_data(source))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """Return the address of a function; 0 if there is none."""
        return int(self._engine.get_function_address(name))

    def place(self, name: str) -> int:
        """Return the address of a global variable; 0 if there is none."""
        return int(self._engine.get_global_value_address(name))


LEVEL = 1
"""Optimisation level of a model's functions: 2 and 3 take half as long again without effect (HIV, 28 states)."""
LOOPS = 2
"""Optimisation level of functions that loop over arrays: from 2 on LLVM vectorises."""


@lru_cache(maxsize=64)
def compiled(text: str, level: int = LEVEL, quick: bool = False) -> Code:
    """Return a program of pure functions as code; cached, so that copies of a model share it."""
    return Code(optimised(text, level), quick)


def optimised(text: str, level: int, only: str = "") -> Any:
    """Return an optimised module; with `only`, it exports that function alone.

    At the level `LOOPS` no loops are unrolled: a hundred short ones would take LLVM half a minute.
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
    if order.index(ffi.ObjectRef) < order.index(NewPassManager):  # llvmlite 0.45 to 0.50 leaks 40 kB a program
        ffi.lib.LLVMPY_DisposeNewModulePassManger(passes)
    return module


def object_of(module: Any, quick: bool = False) -> bytes:
    """Return an object file; `quick` is for thousands of small functions, see `Code`."""
    return bytes(_machine(0 if quick else 2).emit_object(module))


@cache
def versions() -> str:
    """Return everything that generated code depends on: LLVM's version and this machine."""
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
    """Return LLVM's description of this machine; every engine needs one of its own."""
    target, name, features = _host()
    return target.create_target_machine(name, features, opt=level, jit=True)


_for_passes = cache(_machine)
"""The description that all passes share, which only read it."""
