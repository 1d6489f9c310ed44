"""Kernels are kept where that can be, and work where it cannot."""

from numba import types
from numba.core import caching

from fmepy.compiled.kernels import kernel, kernel_by_pointer


def twice(x):
    return 2 * x


def test_without_a_place_to_keep_them_kernels_are_compiled_all_the_same(monkeypatch):
    assert kernel(twice).stats.cache_path is not None
    monkeypatch.setattr(caching.CodeLibraryCacheImpl, "_locator_classes", [])
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])
    assert kernel(twice)(3) == 6
    assert kernel_by_pointer(types.float64(types.float64), twice).ctypes(3.0) == 6.0
