"""The text of a module becomes checked statements; every mistake is told with its line and a caret; nothing runs."""

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi.statements import Reference, element_names
from fmepy.errors import ModelTextError
from fmepy.language.nodes import Symbol, number
from fmepy.language.text import parse_expression


def module(text, **arguments):
    return fme.dmi.Module("m", text, **arguments)


def value(text, before=""):
    return module(f"{before}\nx = {text}").statements[-1].value


# --- what is read


@pytest.mark.parametrize(
    "text",
    [
        "a - b * c / 2 ** d", " + ".join(f"a{i}" for i in range(500)) + " - b", "-t * exp(x)", "x % 3 + min(x, y, 2)",
        "1 if 0 < a <= b else 2",
    ],
)  # fmt: skip
def test_what_the_model_language_has_is_read_as_it_is_there(text):
    assert value(text) is parse_expression(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2 * 3 - 1", 5.0),
        ("-2", -2.0),
        ("1 / 4", 0.25),
        ("-7 % 3", 2.0),
        ("2 ** 0.5", 2**0.5),
        ("pow(2, 3)", 8.0),
        ("exp(0)", 1.0),
        ("+3", 3.0),
        ("2 * pi", 6.283185307179586),
    ],
)
def test_constants_are_computed(text, wanted):
    assert value(text) is number(wanted)


def test_functions_of_dynamics_are_written_in_those_of_the_model_language():
    assert value("clip(a, b, x, y)") is value("where(x >= y, a, b)")
    assert value("ramp(a, 2, 5)") is value("a * max(min(t, 5) - 2, 0)")
    late = "t + 1e-06*(dt)"
    assert str(value("step(a, b)")) == f"where(b > {late}, 0, a)"


def test_arrays_have_shapes_and_scalars_spread():
    read = module("""
        dims D[3], A[2,3], B[2], C[2,2]
        D = [1, 2, q] * 2
        B = dot(A, D) + 1
        A = [[1, 2, 3], [4, 5, 6]]
        q = dot(D, D) + sum(A) + A[1,2] * D[0]
        C = where(C > 0, dot(C, C), -C)
    """)
    shapes = {s.target.name: s.shape for s in read.statements}
    assert shapes == {"D": (3,), "B": (2,), "A": (2, 3), "q": (), "C": (2, 2)}
    assert str(read.statements[2].value) == "array(1, 2, 3, 4, 5, 6)"
    assert str(read.statements[3].value) == "dot(D, D, 1, 3, 1) + sum(A, 6) + A[1,2]*D[0]"


def test_an_element_knows_its_place_in_the_whole():
    (read,) = module("dims A[2,3]\nA[1,2] = 2 * A[0,1]").statements
    assert read.target == Reference("A", (2, 3), (1, 2))
    assert list(read.target.positions) == [5]
    assert read.reads == (Reference("A", (2, 3), (0, 1)),)
    assert element_names("A", (2, 2)) == ("A[0,0]", "A[0,1]", "A[1,0]", "A[1,1]")


def test_functions_with_a_memory_are_numbered():
    read = module("""
        x = smooth(lag(y, 2, 0), tau)
        z = delay3(x, 3) + rate(x) + delay1(x, 2)
    """)
    names = [[str(m.node) for m in s.memories] for s in read.statements]
    assert names == [["m.lag(1)", "m.smooth(2)"], ["m.delay3(3)", "m.rate(4)", "m.delay1(5)"]]
    assert read.statements[0].memories[1].arguments == (Symbol("m.lag(1)"), Symbol("tau"))
    assert [r.name for r in read.statements[1].reads] == ["x", "x", "x"]


def test_kinds_of_statements_comments_and_lines_that_go_on():
    read = module("""
        d(SM)/dt = (ISM
                    - SM) / SAT      # a level
        SM(0) = 10
        OB = SM * \\
             SE
    """)
    assert [(s.kind, s.target.name, s.line) for s in read.statements] == [
        ("level", "SM", 2), ("initial", "SM", 4), ("assign", "OB", 5),
    ]  # fmt: skip
    assert [r.name for r in read.statements[0].reads] == ["ISM", "SM", "SAT"]


def test_elements_are_levels_and_have_initial_values():
    read = module("dims D[2]\nd(D[0])/dt = 1\nd(D[1])/dt = -D[1]\nD[1](0) = 3\nD[0] (0) = 1")
    assert [(s.kind, s.target.index) for s in read.statements] == [
        ("level", (0,)), ("level", (1,)), ("initial", (1,)), ("initial", (0,)),
    ]  # fmt: skip


def test_declarations():
    read = module(
        """
        step 2
        dims D[3], A[2, 3]
        local a,
    """.replace("local a,", "local a, b\n        exogenous D\n        endogenous c\n        output c, D")
        + """
        D = 3
        a = sum(D) + sum(A)
        b = a
        d(c)/dt = b
    """
    )
    assert (read.step, read.local, read.exogenous) == (2, ("a", "b"), ("D",))
    assert (read.endogenous, read.outputs, read.dims) == (("c",), ("c", "D"), {"D": (3,), "A": (2, 3)})


def test_arguments_of_the_module_go_before_its_text():
    text = "step 2\ndims D[3]\nlocal a\nexogenous D\noutput a\nD = 1\na = 2\nb = 3"
    read = module(text, step=4, dims={"D": 2}, endogenous=["D"], local="b", outputs=("b",))
    assert (read.step, read.dims, read.exogenous, read.endogenous) == (4, {"D": (2,)}, (), ("D",))
    assert (read.local, read.outputs) == (("b", "a"), ("b",))


def test_words_of_declarations_can_be_names():
    read = module("output = capital / cor\nlocal = output\nd(dims)/dt = local")
    assert read.assigns == ("output", "local", "dims")


def test_names_are_found_under_other_spellings():
    read = module("\u00b5 = 2\nx = \u03bc")  # the micro sign, the Greek letter
    assert read.reads == ("\u03bc",)
    assert read.assigns == ("\u03bc", "x")


def test_renaming_leaves_alone_what_does_not_hold_the_name():
    (statement,) = module("x = a + b * exp(a) + smooth(a, 3)").statements
    new = statement.renamed({"a": "m.a"})
    assert str(new.value) == "m.a + b*exp(m.a) + m.smooth(1)"
    assert [r.name for r in new.reads] == ["m.a", "b", "m.a", "m.a"]
    assert new.memories[0].arguments == (Symbol("m.a"), number(3))
    assert statement.renamed({"c": "m.c"}) == statement


def test_what_cancels_is_read_all_the_same():
    read = module("x = a - a + 0 * b")
    assert read.statements[0].value is number(0)
    assert read.reads == ("a", "b")


def test_deep_and_long_texts_are_read_or_refused_in_words():
    deep = "x = " + "exp(" * 95 + "y" + ")" * 95
    assert module(deep).reads == ("y",)
    conditions = "y"
    for i in range(19):
        joined = " and ".join(f"y>{j}" for j in range(40))
        conditions = f"where({joined}, {conditions}, {i})"
    system = fme.dmi.ModularModel([module(f"x = {conditions}\nd(y)/dt = x\ny(0) = 1")], times=[0, 1], dt=1)
    assert system()["x"].tolist() == [18, 18]
    assert system.compiled("difference")()["x"].tolist() == [18, 18]


def test_sums_within_sums_take_no_longer_than_their_text():
    nested = "D"
    for _ in range(20):
        nested = f"D * sum(dot(A, {nested})) / 9"
    text = (
        f"dims D[3], A[3,3]\nx = sum({nested})\nd(D)/dt = x\nD(0) = [1, 2, 3]\nA = [[1, 0, 2], [0, 1, D[0]], [1, 1, 1]]"
    )
    system = fme.dmi.ModularModel([module(text)], times=[0, 1], dt=1)
    value, A = np.array([1.0, 2, 3]), np.array([[1, 0, 2], [0, 1, 1], [1, 1, 1]])
    for _ in range(20):
        value = np.array([1.0, 2, 3]) * (A @ value).sum() / 9
    np.testing.assert_allclose(system()["x"][0], value.sum(), rtol=1e-12)
    np.testing.assert_allclose(system.compiled("difference")()["x"][0], value.sum(), rtol=1e-12)


# --- what is refused, with the place

MISTAKES = [
    ("", 1, 1, "no statement"),
    ("local x", 1, 1, "no statement"),
    ("x", 1, 1, "needs '='"),
    ("outputs x", 1, 1, "Did you mean 'output'"),
    ("x =", 1, 4, "nothing stands on the right"),
    ("y = 1\nx == 3", 2, 3, "one '='"),
    ("y = 1\nx = y.z", 2, 5, "not allowed"),
    ("x = y.exp(1)", 1, 5, r"write exp\(...\)"),
    ("x = foo(3)", 1, 5, "'floor'"),
    ("x = ln(3)", 1, 5, "'log'"),
    ("x = __import__(os)", 1, 5, "not a function"),
    ("x = lambda: 3", 1, 5, "lambda"),
    ("x = (lambda: 3)()", 1, 6, "lambda"),
    ("x = [i for i in y]", 1, 8, "for"),
    ("import os", 1, 1, "needs '='"),
    ("x = 'a'", 1, 5, "quotes"),
    ("x = 2j", 1, 5, "not allowed"),
    ("x = True", 1, 5, "True"),
    ("x = y // 2", 1, 5, "floor"),
    ("x = y > 2", 1, 5, "condition"),
    ("x = where(y, 1, 2)", 1, 11, "not a condition"),
    ("x = where(y is 1, 1, 2)", 1, 13, "word of the language"),
    ("x = min(1)", 1, 5, "2 to 20 arguments, 1 given"),
    ("x = exp(x=3)", 1, 5, "by name"),
    ("x = exp(*y)", 1, 9, "not allowed"),
    ("x = y(3)", 1, 5, "not a function"),
    ("x = y(t) + y", 1, 1, "written with"),
    ("dt = 3", 1, 1, "elementary step"),
    ("sample = 3", 1, 1, "is a function"),
    ("x = (y + 1)(3)", 1, 6, "called like a function"),
    ("x = d(y)", 1, 5, "only on the left"),
    ("x = exp", 1, 5, "is a function"),
    ("x = time", 1, 5, "called t"),
    ("x = 1/0", 1, 7, "division by zero"),
    ("x = 9**9**9", 1, 5, "beyond the range"),
    ("x = log(-1)", 1, 5, "no finite real value"),
    ("x = " + "-" * 200 + "y", 1, 106, "nested more than 100"),
    ("x = " + "(" * 200 + "y" + ")" * 200, 1, 105, "100 brackets"),
    ("x = " + "+y" * 6000, 1, 1, "longer than 10000"),
    ("x = 1\nx = 2", 2, 1, "given twice, first in line 1"),
    ("d(x)/dt = 1\nx = 2", 2, 1, "level .line 1. and assigned .line 2."),
    ("y(0) = 1\nyy = 2", 1, 1, "neither a rate nor a value. Did you mean 'yy'"),
    ("x(1) = 1\nx = 2", 1, 1, "start of the run"),
    ("dx/dt = 3", 1, 1, r"write d\(x\)/dt"),
    ("d(x)/ds = 3", 1, 1, "called t"),
    ("next(x) = 3", 1, 1, "difference equations"),
    ("3 = x", 1, 1, "cannot stand on the left"),
    ("x + y = 3", 1, 1, "cannot stand on the left"),
    ("t = 3", 1, 1, "is the time"),
    ("time = 3", 1, 1, "column of the times"),
    ("exp = 3", 1, 1, "is a function"),
    ("step = 3", 1, 1, "step 2"),
    ("class = 3", 1, 1, "class_"),
    ("__x = 3", 1, 1, "two underscores"),
    ("step 0\nx = 1", 1, 5, "whole number"),
    ("step 1.5\nx = 1", 1, 5, "whole number"),
    ("step 2\nstep 3\nx = 1", 2, 5, "twice"),
    ("local\nx = 1", 1, 6, "nothing is declared"),
    ("local x, x\nx = 1", 1, 10, "twice"),
    ("local x,\nx = 1", 1, 6, "cannot be read"),
    ("local y\nx = 1", 1, 7, "no statement names it"),
    ("output xx\nx = 1", 1, 8, "Did you mean 'x'"),
    ("endogenous y\nx = y", 1, 12, "no statement of this module gives it a value"),
    ("exogenous y\nendogenous y\ny = 1", 2, 12, "it can be one"),
    ("output D[0]\ndims D[1]\nD = 1", 1, 8, "without elements"),
    ("dims D\nD = 1", 1, 6, r"dims D\[3\]"),
    ("dims D[0]\nD = 1", 1, 6, "from 1 on"),
    ("dims D[2,2,0]\nD = 1", 1, 6, "whole numbers"),
    ("dims D[n]\nD = 1", 1, 6, "whole numbers"),
    ("dims D[10001]\nD = 1", 1, 6, "10000 at most"),
    ("dims D[200,200]\nD = 1", 1, 6, "40000 elements"),
    ("dims D[99999999999]\nD = 1", 1, 6, "whole numbers"),
    ("x = D[0]", 1, 5, r"declare them: dims D\[3\]"),
    ("dims D[3]\nx = D[3]", 2, 5, "out of range: .* 0 to 2"),
    ("dims D[3]\nx = D[-1]", 2, 5, "counted from 0"),
    ("dims D[3]\nx = D[i]", 2, 5, "plain number"),
    ("dims D[3]\nx = D[0:2]", 2, 5, "plain number"),
    ("dims D[3]\nx = D[0.0]", 2, 5, "plain number"),
    ("dims A[2,2]\nx = A[0]", 2, 5, "two indices"),
    ("dims A[2,2]\nx = A[0][1]", 2, 5, "only a variable"),
    ("dims D[3]\nD[3] = 1", 2, 1, "out of range"),
    ("dims D[3]\nD[i] = 1", 2, 1, "plain number"),
    ("dims D[3]\nD = 1\nD[1] = 2", 3, 1, r"'D\[1\]' is given twice, first in line 2"),
    ("dims D[3]\nD[1](0) = 1\nD = 2\nD(0) = 4", 4, 1, r"'D\(0\)' is given twice"),
    ("dims D[2]\nd(D[0])/dt = 1\nD[1] = 3", 3, 1, "one of the two"),
    ("x = [1, 2]", 1, 5, r"declare dims x\[2\]"),
    ("dims D[2]\nx(0) = D\nx = 1", 2, 8, r"declare dims x\[2\]"),
    ("dims D[3]\nD = [1, 2]", 2, 5, "a vector of 3, the right-hand side a vector of 2"),
    ("dims D[3], E[2]\nx = sum(D + E)", 2, 9, "do not fit"),
    ("dims D[2]\nD = where(D > 0, 1, [1, 2, 3])", 2, 5, "do not fit"),
    ("dims A[2,3], D[2]\nx = sum(dot(A, D))", 2, 9, "3 and 2 should be equal"),
    ("x = sum(3)", 1, 9, "takes arrays"),
    ("x = [[1, 2], [3]]", 1, 5, "same length"),
    ("x = []", 1, 5, "an array is written"),
    ("x = [[]]", 1, 5, "no elements"),
    ("dims D[2]\nD = [1, D]", 2, 9, "are scalars"),
    ("x = table(y, [1, 2], [1])", 1, 22, "one y for each x"),
    ("x = table(y, [2, 1], [1, 2])", 1, 18, "increase"),
    ("x = table(y, [1], [1])", 1, 14, "two points"),
    ("x = table(y, [1, 2], [1, a])", 1, 22, "numbers in"),
    ("x = table(y, 3, a)", 1, 14, "numbers in"),
    ("x = table(y, [(1, 2), (1, 3)])", 1, 24, "increase"),
    ("x = table(y, [[1, 2, 3], [1, 3, 4]])", 1, 14, "pairs"),
    ('x = table(y, "hold")', 1, 14, "not allowed"),
    ("x = lag(y)", 1, 5, "3 arguments, 1 given"),
    ("x = lag(y, -1, 0)", 1, 12, "must not be below 0"),
    ("x = delay3(y, 0)", 1, 15, "above 0"),
    ("x = pulse(1, 2, 0)", 1, 17, "above 0"),
    ("dims D[2]\ny = lag(x, D, 0)", 2, 5, "first argument"),
    ("x(0) = lag(y, 1, 0)\nx = 2", 1, 8, "no place in an initial value"),
    ("x = (1\ny = 2", 1, 5, "never closed"),
    ("x = 1)", 1, 6, "not opened"),
    ("x = 1; y = 2", 1, 6, "one statement a line"),
    ("x = 2y", 1, 5, r"written with \*"),
    ("x = \x00", 1, 1, "cannot be read"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "says"), MISTAKES, ids=[repr(m[0])[:40] for m in MISTAKES])
def test_a_mistake_is_told_with_its_line_and_a_caret(text, line, column, says):
    with pytest.raises(ModelTextError, match=says) as told:
        module(text)
    assert (told.value.line, told.value.column) == (line, column)
    message = str(told.value)
    assert message.startswith(f"module 'm', line {line}: ")
    assert message.splitlines()[-1].strip() == "^"


def test_a_message_begins_with_the_file():
    with pytest.raises(ModelTextError, match=r"^market/sales.fme, line 1: "):
        module("x", file="market/sales.fme")


def test_what_arguments_declare_is_told_without_a_caret():
    with pytest.raises(ModelTextError, match=r"'yy' is declared local, but no statement names it. Did you mean 'y'"):
        module("y = 1", local=["yy"])


def test_a_text_beyond_the_limit_is_refused():
    with pytest.raises(ModelTextError, match="500000 characters"):
        module("x = 1\n" + "#" * 500_000)
