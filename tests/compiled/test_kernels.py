"""Kernels do in machine code what they do as Python, to the last bit."""

from __future__ import annotations

import ctypes
import importlib
import sys

import numpy as np
import pytest

from fmepy.compiled import c_loops
from fmepy.compiled.c_loops import address, c_loop
from fmepy.compiled.dialect.translate import kernel_text
from fmepy.compiled.kernels import KernelError, doubles, packed
from tests.compiled import kernels_of_tests as kernels


@ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p)
def threefold(a, x, out):
    np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_double)), (3,))[:] = [a, 2 * a, 3 * a]


def job(n=4, a=1.7, flag=True):
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(2, 2, 3))
    at, where = np.array([1, 0]), ctypes.cast(threefold, ctypes.c_void_p).value
    part = kernels.Part(flag, rows)
    return kernels.Job(n, a, rng.normal(size=3), rng.normal(size=(2, 3)), part, at, where, np.zeros(40))


@pytest.mark.parametrize("name", ["numbers", "choices", "arrays", "tuples", "calls", "sums", "with_lanes"])
@pytest.mark.parametrize("given", [{}, {"n": 3, "a": 0.3, "flag": False}, {"a": -2.0, "flag": False}])
def test_a_kernel_does_what_python_does(name, given):
    if name == "numbers" and given.get("a", 1) < 0:
        given = {"a": 25.25}
    kernel, ours, theirs = getattr(kernels, name), job(**given), job(**given)
    words = packed(ours)
    c_loop(kernel, "a kernel")(address(words))
    with np.errstate(divide="ignore"):
        kernel(theirs._replace(a=np.float64(theirs.a)))  # numpy's numbers raise nothing
    np.testing.assert_array_equal(ours.out, theirs.out)
    np.testing.assert_array_equal(ours.x, theirs.x)
    assert np.any(ours.out)


def test_a_structure_stands_at_an_address():
    words, ours, theirs = packed(given := job()), np.zeros(4), np.zeros(4)
    c_loop(kernels.at_an_address, "a kernel")(address(words), address(ours))
    kernels.at_an_address(address(words), address(theirs))
    np.testing.assert_array_equal(ours, theirs)
    assert ours[0] == given.a + given.n + given.part.rows[1, 0, 2]


def test_annotations_are_read_as_classes_too_and_what_is_none_is_told():
    def plain(x, n, out):
        doubles(out, 1)[0] = x * n

    plain.__annotations__ = {"x": float, "n": int, "out": int}  # as in a module without annotations as text
    out = np.zeros(1)
    c_loop(plain, "a kernel")(1.5, 3, address(out))
    assert out[0] == 4.5
    plain.__annotations__ = {"x": np.ndarray, "n": int, "out": int}
    with pytest.raises(KernelError, match=r"plain: `x` is annotated 'ndarray', .* write one of int, float, .*Vector"):
        kernel_text(plain)


def unknown_name(x: float):
    max(x, somewhere)  # noqa: F821


def no_such_statement(x: float):
    with x:
        pass


def two_types(x: float):
    y = x
    y = (x, x)  # noqa: F841


def runs_over_a_list(x: float):
    for y in [x]:
        print(y)


def keyword(x: float):
    max(x, key=2)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (unknown_name, r"unknown_name, line \d+: this name is not known: somewhere"),
        (no_such_statement, r"no_such_statement, line \d+: no kernel may hold this"),
        (two_types, r"two_types, line \d+: y has been d before, and is now"),
        (runs_over_a_list, r"a kernel runs over range\(\) or independent\(\) alone"),
        (keyword, r"this cannot be called: max\(x, key=2\)"),
    ],
)
def test_what_cannot_be_translated_is_told_with_its_line(kernel, words):
    with pytest.raises(KernelError, match=words) as told:
        kernel_text(kernel)
    line = int(str(told.value).split("line ")[1].split(":")[0])
    first = kernel.__code__.co_firstlineno
    assert first < line <= first + 3


PART = "def part(x):\n    return {factor} * x\n"
WHOLE = """
from __future__ import annotations
from fmepy.compiled.kernels import doubles
from {room}.part import part
def whole(x: float, out: int):
    doubles(out, 1)[0] = part(x)
"""


def test_a_loop_is_compiled_again_when_a_kernel_in_it_changes(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(c_loops, "cache_folder", lambda: tmp_path / "kept")
    monkeypatch.syspath_prepend(tmp_path)
    out = np.empty(1)
    for room, factor in (("room_a", 2.0), ("room_b", 3.0), ("room_c", 3.0)):  # as if a room had changed meanwhile
        folder = tmp_path / room
        folder.mkdir()
        (folder / "part.py").write_text(PART.format(factor=factor))
        (folder / "whole.py").write_text(WHOLE.format(room="room_b" if room == "room_c" else room))
        importlib.invalidate_caches()
        module = importlib.import_module(f"{room}.whole")
        with caplog.at_level("INFO", logger="fmepy"):
            c_loop(module.whole, "a loop")(1.5, address(out))
        assert out[0] == factor * 1.5
        for name in (f"{room}.whole", f"{room}.part", room):
            sys.modules.pop(name, None)
    assert caplog.text.count("Compiling a loop for the first time") == 2  # the last two are the same to the letter


def test_an_array_that_is_not_contiguous_never_reaches_a_kernel():
    with pytest.raises(KernelError, match=r"an array of shape \(3, 2\) that is not contiguous"):
        packed((1, np.zeros((2, 3)).T))
