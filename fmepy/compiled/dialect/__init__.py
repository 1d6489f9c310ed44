"""Kernels in Python -> LLVM: what they may hold is said in `compiled.kernels`."""
