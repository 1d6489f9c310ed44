"""Machine code straight from expressions: the same numbers as the Python path, whatever the values."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from fmepy.compiled import llvm_code
from fmepy.compiled.llvm_code import LlvmProgram, NotWritableError
from fmepy.compiled.machine import compiled
from fmepy.compiled.python_code import scalar_function
from fmepy.language.equations import symbol
from fmepy.language.functions import TABLE
from fmepy.language.nodes import HALF, ZERO, Mode, call, number

SYMBOLS = [symbol(name) for name in "tabcd"]
t, a, b, c, d = SYMBOLS


def function_of(expressions):
    """Return f(values of t, a, b, c, d) -> array in machine code."""
    program = LlvmProgram(["t"], ["z", "out"])
    where = {t: "t"} | {s: ("z", i) for i, s in enumerate(SYMBOLS[1:])}
    program.function("f", [("out", i, e) for i, e in enumerate(expressions)], where)
    code = compiled(program.text())
    function = ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_void_p, ctypes.c_void_p)(code.address("f"))

    def f(values):
        z, out = np.array(values[1:], dtype=float), np.full(len(expressions), 7.0)
        function(values[0], z.ctypes.data, out.ctypes.data)
        return out

    f.code = code
    return f


def assert_same(expressions, points, rtol=1e-13):
    f, python = function_of(expressions), scalar_function([SYMBOLS], expressions)
    for values in points:
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(f(values), python(values), rtol=rtol, atol=1e-300, err_msg=f"{values}")


WILD = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 7e5, math.nan, math.inf, -math.inf]


def wild_points(n, seed):
    rng = np.random.default_rng(seed)
    return [[WILD[k] for k in rng.integers(len(WILD), size=5)] for _ in range(n)]


# --- every word of the language

WORDS = {
    "power of whole numbers": [a**2, a**3, a**7, a**64, a**65, a**-1, a**-2, a**-5, 3 / a**2, b * c / a],
    "roots": [call("sqrt", a), 1 / call("sqrt", a), a ** (3 / 2), a ** (-3 / 2), a ** (1 / 3)],
    "power": [a**b, 2**a, a**2.5, (a + b) ** c],
    "sums and signs": [-a, a - b, -a - b, a - 2 * b / 3, -a * b, -2 * a / b, (1 / 3) * a, -1 / a],
    "constants": [
        math.pi * a,
        math.e * b,
        number(3),
        number(1 / 7),
        number(0.1),
        number(math.inf),
        number(math.nan),
        t,
    ],
    "where": [
        call("where", a, b, c, d),
        call("where", a, b, call("log", c), call("exp", -d) / a),
        call("where", a, ZERO, call("sqrt", a), ZERO),
    ],
    "nested": [
        call(
            "where", a, b, call("where", b, c, a**c, call("log", d)), call("where", d, number(1), call("exp", c), a / b)
        )
    ],
    "extremes": [call("max", a, b), call("min", a, b), call("max", a, b, c, d), call("min", a, b, c)],
    "steps": [call("abs", a), call("sign", a), call("floor", a), call("ceil", a), call("nan_of", call("log", a))],
    "mod": [call("mod", a, b), call("mod", -a, b), call("mod", a, 2)],
}


@pytest.mark.parametrize("words", WORDS)
def test_every_word_gives_the_numbers_of_the_python_path(words):
    assert_same(WORDS[words], [*wild_points(150, 1), [0.3, 1.7, 0.2, 2.9, 0.4]])


@pytest.mark.parametrize("word", [name for name, f in TABLE.items() if isinstance(f.llvm, str) and f.llvm])
def test_every_function_is_that_of_c(word):
    one = call(word, *[a, b][: TABLE[word].least])
    expressions = [one, one * b + one]
    assert_same(expressions, [[0, x, y, 0, 0] for x in (0.3, 0.9, 1.7, 4.0) for y in (-0.5, 2.0)], rtol=1e-12)


def test_a_mode_chooses_without_looking_at_anything_else():
    mode = Mode("mode0")
    program = LlvmProgram([], ["z", "out"])
    program.function("f", [("out", 0, call("where", mode, HALF, call("log", a), -a))], {mode: ("z", 0), a: ("z", 1)})
    code = compiled(program.text())
    f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(code.address("f"))
    for values, expected in (([1.0, 2.0], math.log(2.0)), ([0.0, -3.0], 3.0)):
        z, out = np.array(values), np.zeros(1)
        f(z.ctypes.data, out.ctypes.data)
        assert out[0] == expected


def test_the_branch_not_taken_is_not_evaluated():
    program = LlvmProgram([], ["z", "out"])
    program.function(
        "f",
        [("out", 0, call("where", a, b, call("log", c), call("exp", d)))],
        {s: ("z", i) for i, s in enumerate(SYMBOLS)},
    )
    text = program.text()
    blocks = text.split("\nyes")[1].split("\nno")
    assert "llvm.log" in blocks[0]
    assert "llvm.exp" in blocks[1]


def test_what_there_is_no_word_for_is_refused_by_name():
    with pytest.raises(NotWritableError, match=r"lag\(\)"):
        function_of([call("lag", a, b)])


# --- whole trees


def tree(rng, depth):
    """Return a random expression."""
    if depth == 0 or rng.random() < 0.1:
        leaves = [*SYMBOLS, number(int(rng.integers(-3, 4))), HALF, number(0.25)]
        return leaves[rng.integers(len(leaves))]

    def sub():
        return tree(rng, depth - 1)

    kinds = [
        lambda: sub() + sub(), lambda: sub() + sub() - sub(), lambda: sub() * sub(), lambda: sub() * sub() * sub(),
        lambda: sub() / sub(), lambda: sub() ** int(rng.integers(-3, 5)), lambda: call("sqrt", sub()),
        lambda: call("where", sub(), sub(), sub(), sub()), lambda: call("max", sub(), sub()),
        lambda: call("min", sub(), sub(), sub()), lambda: call("abs", sub()), lambda: call("sign", sub()),
        lambda: call("exp", -call("abs", sub())), lambda: call("log", sub()), lambda: call("tanh", sub()),
        lambda: call("nan_of", sub()),
    ]  # fmt: skip
    return kinds[rng.integers(len(kinds))]()


def trees(seed, n, depth):
    """Return expressions that share some of their parts."""
    rng = np.random.default_rng(seed)
    shared = [tree(rng, 2) for _ in range(3)]
    return [tree(rng, depth) + shared[rng.integers(3)] * shared[rng.integers(3)] for _ in range(n)]


@pytest.mark.parametrize("seed", range(12))
def test_random_trees_give_the_numbers_of_the_python_path(seed):
    expressions = trees(seed, 12, 4)
    f, python = function_of(expressions), scalar_function([SYMBOLS], expressions)
    for values in wild_points(60, seed):
        with np.errstate(all="ignore"):
            here, there = f(values), np.array(python(values))
            assert (np.isnan(here) == np.isnan(there)).all()
            np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)


def test_parts_of_a_large_function_give_the_same_bits(monkeypatch):
    expressions = trees(3, 20, 4)
    whole = function_of(expressions)
    monkeypatch.setattr(llvm_code, "MOST_OPERATIONS", 5)
    parts = function_of(expressions)
    for values in wild_points(60, 3):
        np.testing.assert_array_equal(parts(values), whole(values))


def test_an_expression_of_a_thousand_levels_is_no_trouble():
    e = a
    for i in range(1000):
        e = (e + i) * b if i % 2 else e / c + d  # no level can be merged with the next
    values = [0.0, 1.1, 0.9, 1.3, 0.2]
    x = values[1]
    for i in range(1000):
        x = (x + i) * values[2] if i % 2 else x / values[3] + values[4]
    assert function_of([e])(values)[0] == pytest.approx(x, rel=1e-10)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_programs_that_nobody_uses_leave_no_memory_behind():
    def memory_after(n, first):
        for k in range(first, first + n):
            function_of([a * k + b])
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = memory_after(100, 0)  # with those that are kept for who asks again
    assert (memory_after(200, 100) - before) / 200 < 15_000


def test_a_function_lives_as_long_as_its_code():
    f = function_of([a * b])
    assert f([0, 2, 3, 0, 0])[0] == 6
    others = [function_of([a + k]) for k in range(20)]
    assert [g([0, 1, 0, 0, 0])[0] for g in others] == [1 + k for k in range(20)]
    del others
    assert f([0, 2, 4, 0, 0])[0] == 8
