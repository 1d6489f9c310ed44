"""Text runs no code: what is allowed means what Python means by it, all else is an error that shows the place."""

import ast
import itertools
import math
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmepy.compiled.python_code import scalar_function
from fmepy.errors import ModelTextError
from fmepy.language.derivatives import are_equal, derivative
from fmepy.language.equations import symbol
from fmepy.language.nodes import call, choose_above, number
from fmepy.language.text import parse_expression, read_value

x, y, z = symbol("x"), symbol("y"), symbol("z")


def refusal(text, **kwargs):
    with pytest.raises(ModelTextError) as caught:
        parse_expression(text, **kwargs)
    return caught.value


# --- expressions mean what they say


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", x),
        ("3", number(3)),
        ("2.0*x", 2 * x),
        ("0.5*x", number(0.5) * x),
        ("x**2", x**2),
        ("x**-2", x**-2),
        ("-x**2", -(x**2)),
        ("x**0.5", x**0.5),
        ("2*pi*x", 2 * math.pi * x),
        ("x - y - z", x - y - z),
        ("x / y / z", x / y / z),
        ("x / (y / z)", x * z / y),
        ("x ** y ** z", x ** (y**z)),
        ("pow(x, 3)", x**3),
        ("+x", x),
        ("1e3*x", 1000 * x),
        ("(x\n + y)  # the sum", x + y),
        ("exp(x) + log(y)", call("exp", x) + call("log", y)),
        ("log10(x)", call("log", x) / math.log(10)),
        ("log2(x)", call("log", x) / math.log(2)),
        ("abs(x)", choose_above(x, 0, x, -x)),
        ("where(x > 0, 1, y)", choose_above(x, 0, 1, y)),
        ("1 if x > 0 else y", choose_above(x, 0, 1, y)),
        ("where(0 < x <= 1, 1, 2)", choose_above(x, 0, choose_above(x, 1, 2, 1), 2)),
        (
            "where(x > 0 and y > 0 or not z > 0, 1, 2)",
            choose_above(z, 0, choose_above(x, 0, choose_above(y, 0, 1, 2), 2), 1),
        ),
        ("where(2 > 1, x, y)", x),
    ],
)
def test_an_expression_has_the_value_of_what_is_written(text, expected):
    found = parse_expression(text)
    f = scalar_function([[x, y, z]], [found, expected])
    for values in itertools.product((0.5, 1.0, 3.0), repeat=3):
        for signs in itertools.product((1, -1), repeat=3):
            a, b = f([s * v for s, v in zip(signs, values, strict=True)])
            assert a == pytest.approx(b, rel=1e-12, nan_ok=True)


def test_numbers_may_be_given_as_such():
    assert parse_expression(2) is number(2)
    assert parse_expression(0.25) is number(0.25)
    assert "not a finite number" in str(refusal(math.nan))
    assert "got list" in str(refusal([1]))


def test_numbers_keep_all_their_bits_and_print_as_they_were_written():
    assert str(parse_expression("50000*x + 0.1*y - 2.0")) == "50000*x + 0.1*y - 2"
    assert parse_expression("x**2.0") is parse_expression("x**2")
    assert float(parse_expression("0.1 + 0.2")) == 0.1 + 0.2


def test_symbols_are_those_of_the_package():
    assert parse_expression("x + t").free_symbols == {x, symbol("t")}


def test_a_long_sum_is_not_deep():
    names = [f"n{i}" for i in range(500)]
    assert len(parse_expression(" + ".join(names)).args) == 500


def test_min_and_max_differentiate():
    assert parse_expression("max(x, 2*y, 3)").subs({x: 1, y: 4}) is number(8)
    assert derivative(parse_expression("min(x, 2)"), x).subs({x: 1}) is number(1)
    assert derivative(parse_expression("sign(x)"), x) is number(0)
    assert [float(parse_expression("sign(x)").subs({x: v})) for v in (-2, 0, 3)] == [-1, 0, 1]


@pytest.mark.parametrize("text", ["where(where(x > 1, y, 2) > 0, 1, 2)", "sign(where(x > 1, y, 2))"])
def test_conditions_on_piecewise_quantities_hold_plain_relations_only(text):
    expression = parse_expression(text)
    assert float(expression.subs({x: 0, y: -1})) == 1
    assert float(expression.subs({x: 2, y: -1})) == (2 if text.startswith("where") else -1)


def test_the_hiv_initial_value_reads():
    c, n, delt = map(symbol, ("c", "n", "delt"))
    assert are_equal(parse_expression("(-200750 + c * 50000) / (n * delt)"), (50000 * c - 200750) / (n * delt))


# --- ... the same as Python's floats (hypothesis)

NAMES = {"x": 1.7, "y": -0.6, "z": 3.2}
PYTHON = {
    "exp": math.exp, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "atan": math.atan, "sqrt": math.sqrt,
    "log": math.log, "abs": abs, "max": max, "min": min, "pow": math.pow, "where": lambda c, a, b: a if c else b,
}  # fmt: skip

leaves = st.one_of(
    st.sampled_from(sorted(NAMES)), st.integers(0, 20).map(str), st.floats(0.01, 30).map(lambda v: repr(round(v, 3)))
)


def grown(inner):
    conditions = st.builds("{} {} {}".format, inner, st.sampled_from(["<", "<=", ">", ">="]), inner)
    conditions = conditions | st.builds(
        "({}) {} not ({})".format, conditions, st.sampled_from(["and", "or"]), conditions
    )
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("{} {} {}".format, inner, st.sampled_from("+-*"), inner),  # without brackets: precedence
        st.builds("({})**{}".format, inner, st.sampled_from(["2", "3", "-1", "0.5"])),
        st.builds("-{}".format, inner),
        st.builds("{}({})".format, st.sampled_from(["exp", "sin", "cos", "tanh", "atan", "sqrt", "log", "abs"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), inner, inner),
        st.builds("where({}, {}, {})".format, conditions, inner, inner),
        st.builds("({1} if {0} else {2})".format, conditions, inner, inner),
    )


def size_of_values(node):
    """Return Python's value of a checked text, and the largest value met on the way (for the tolerance)."""
    largest = [1.0]

    def value(n):
        result = eval(compile(ast.Expression(n), "", "eval"), PYTHON, NAMES)  # our own text, in a test
        if isinstance(result, complex):
            raise ValueError
        largest[0] = max(largest[0], abs(result))
        return result

    for n in ast.walk(node):
        if isinstance(n, (ast.BinOp, ast.UnaryOp, ast.Call, ast.IfExp, ast.Constant)):
            value(n)
    return value(node), largest[0]


@settings(max_examples=150, deadline=None)
@given(st.recursive(leaves, grown, max_leaves=10))
def test_expressions_have_the_values_that_python_gives_them(text):
    try:
        expected, largest = size_of_values(ast.parse(text, mode="eval").body)
    except (ValueError, TypeError, ZeroDivisionError, OverflowError):
        return  # a piece has no real value: nothing to compare
    if not math.isfinite(largest) or largest > 1e6:
        return  # cancellation leaves no digits to compare
    try:
        expression = parse_expression(text)
    except ModelTextError as error:  # only what has no value anywhere may be refused, and Python gave one here
        raise AssertionError(text) from error
    found = float(expression.subs({symbol(k): v for k, v in NAMES.items()}))
    at_a_switch = "where" in text or " if " in text  # 1 ulp may decide there
    if not (at_a_switch and abs(found - expected) > 1e-6):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9 * largest)


# --- what is refused, and how it is told


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("x.__class__", 1, "an expression is made of numbers, names"),
        ("1 + x.real", 5, "an expression is made of"),
        ("np.exp(x)", 1, "write exp(...)"),
        ("x[0]", 1, "an expression is made of"),
        ("'a'", 1, "quotes"),
        ('x + "a"', 5, "quotes"),
        ("f'{x}'", 2, "quotes"),
        ("lambda: 1", 1, "'lambda' is a word of the language"),
        ("[i + 1]", 1, "an expression is made of"),
        ("{i}", 1, "an expression is made of"),
        ("[i for i in x]", 4, "'for'"),
        ("(y := 3)", 2, "an expression is made of"),
        ("import os", 1, "'import'"),
        ("x & y", 1, "`and`"),
        ("x | y", 1, "`or`"),
        ("~x", 1, "`not`"),
        ("x @ y", 1, "an expression is made of"),
        ("x // y", 1, "quotient is written /"),
        ("x << 2", 1, "an expression is made of"),
        ("r.max * x", 1, "a name has no dot: write r_max"),
        ("max(*x, y)", 5, "an expression is made of"),
        ("exp(a=1)", 1, "no arguments by name"),
        ("exp(**x)", 1, "no arguments by name"),
        ("Exp(x)", 1, "Did you mean 'exp'?"),
        ("ln(x)", 1, "Did you mean 'log'?"),
        ("lagvalue(x)", 1, "Did you mean 'lag(x, tau)'?"),
        ("print(x)", 1, "not a function of the model language"),
        ("eval(x)", 1, "not a function of the model language"),
        ("r(1 - N)", 1, "A product is written with *"),
        ("2(x)", 1, "a product is written with *"),
        ("exp", 1, "is a function"),
        ("x, y", 1, "a comma"),
        ("1j * x", 1, "an expression is made of"),
        ("True", 1, "'True' is a word of the language"),
        ("None", 1, "'None' is a word of the language"),
        ("...", 1, "an expression is made of"),
        ("2x", 1, "as in 2*x"),
        ("a b", 1, "as in a*x"),
        ("a +", 4, "stops too early"),
        ("x > 0", 1, "where(x > 0, 1, 0)"),
        ("not x", 1, "stands only inside where"),
        ("where(x, 1, 2)", 7, "'x' is not a condition"),
        ("where(x > 0, 1)", 1, "takes 3 arguments, 2 given"),
        ("log(x, 2, 3)", 1, "takes 1 to 2"),
        ("log(x, 1)", 1, "no finite"),
        ("min(x)", 1, "takes 2 to 20"),
        ("(x", 1, "never closed"),
        ("x )( y", 3, "was not opened"),
        ("(x]", 3, "was not opened"),
        ("x; y", 2, "one statement a line"),
        ("if x > 0 then y else z", 1, "a choice is written where(x > 0, a, b)"),
        ("x > 0 ? y : z", 7, "a choice is written where(x > 0, a, b)"),
        ("x = 3", 1, "'='"),
        ("__x", 1, "two underscores"),
        ("x − 1", 3, "write plain signs"),
        ("1/0", 3, "division by zero"),
        ("x/(y - y)", 4, "division by zero"),
        ("log(-1)", 1, "no finite real value"),
        ("(-8)**(1/3)", 1, "no finite real value"),
        ("1e400", 1, "beyond the range"),
        ("x*1e300*1e300", 1, "beyond the range"),
        ("", 1, "no expression"),
        ("x\0", 1, "cannot be read"),
        ("x\ud800", 1, "cannot be read"),
        ("d(x)", 1, "stands only on the left"),
    ],
)
def test_what_is_not_on_the_list_is_refused_with_its_place(text, column, words):
    error = refusal(text)
    assert words in str(error)
    assert (error.line, error.column) == (1, column)


def test_the_message_opens_with_what_the_text_is():
    assert str(refusal("x.y", where="`state['I']`")).startswith("`state['I']`: 'x.y' is not allowed")
    assert str(refusal("x.y", where="a.fme", line_offset=4)).startswith("a.fme, line 5: 'x.y'")


def test_the_caret_stands_under_the_place_in_any_script():
    lines = str(refusal("日本 * ö * y.z")).split("\n")
    assert lines[2].index("^") == 4 + len("日本 * ö * ") + 2  # two wide characters
    lines = str(refusal("a\t* y.z")).split("\n")
    assert lines[1][lines[2].index("^")] == "y"


def test_a_long_line_is_cut_around_the_place():
    error = refusal("+".join(["x"] * 300) + " + y.z + " + "+".join(["x"] * 300))
    line, caret = str(error).split("\n")[1:]
    assert len(line) < 130
    assert line[caret.index("^") :].startswith("y.z")
    assert error.column == 603


@pytest.mark.parametrize(
    "text",
    [
        "-" * 20_000 + "x",
        "-" * 9_000 + "x",
        "-" * 150 + "x",
        "9**9**9",
        "9**9**9**9",
        "(" * 1000 + "x" + ")" * 1000,
        "(" * 101 + "x" + ")" * 101,
        "1" + "+1" * 30_000,
        "x" + "**x" * 3_000,
        "9" * 5_000,
        "1." + "9" * 5_000,
        "sin(" * 99 + "sin(sin(x))" + ")" * 99,
        "where(" + "not " * 200 + "x > 0, 1, 2)",
        "1e15*x" + "*1e15" * 1500,
        "x**9**9**9",
        "where(" + " and ".join(f"x > {i}" for i in range(51)) + ", 1, 2)",
    ],
)
def test_bombs_are_refused_quickly(text):
    start = time.process_time()
    refusal(text)
    assert time.process_time() - start < 3


def test_a_sum_as_long_as_python_reads_is_read_or_refused():
    """Python 3.14 reads it, older ones are too deep in it."""
    text = "1" + "+1" * 4_900
    if sys.version_info >= (3, 14):
        assert read_value(text, "x") == 4_901
    else:
        assert "too long or too deeply nested" in str(refusal(text))


@pytest.mark.parametrize(
    "text",
    [
        "x" + "**x" * 90,
        "-" * 90 + "x",
        "1" + "+1" * 500,
        "2**(x + 1e15) * 2**(-x)",
        "(2*x)**1e15",
        "exp(1e15*log(2*x))",
        "((((((2*x)**100)**100)**100)**100)**100)**100",
        "1e15*(1+" * 45 + "x" + ")" * 45,
        "(1e6*x)**(y + 1e6) * (1e6*x)**(-y)",
        "(((2*x)**(y + 100))**10000)**10000 * (((2*x)**(-y))**10000)**10000",
        "".join(f"{'max' if i % 2 else 'min'}(x*{i} - y/{i}," for i in range(1, 45)) + "y" + ")" * 44,
        "".join(f"where(x > {i}, y{i}, " for i in range(45)) + "y" + ")" * 45,
        "x*" + "*".join(f"(x + {i})" for i in range(300)),
        "where(" + "+".join(f"where(x > {i}, y{i}, 2)" for i in range(20)) + " > 0, 1, 2)",
    ],
)
def test_large_but_honest_expressions_are_read_quickly(text):
    start = time.process_time()
    parse_expression(text)
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("text", "same"),
    [("x^2", "x**2"), ("-x^2", "-(x**2)"), ("2^x^2", "2**(x**2)"), ("a*x^-1 + (x + 1)^n", "a*x**-1 + (x + 1)**n")],
)
def test_a_power_may_be_written_with_a_caret(text, same):
    assert parse_expression(text) == parse_expression(same)


def test_columns_count_carets_as_they_are_written():
    with pytest.raises(ModelTextError) as caught:
        parse_expression("x^2 + y^3 * z.a")
    text, caret = str(caught.value).splitlines()[1:]
    assert text[caret.index("^") :] == "z.a"
    with pytest.raises(ModelTextError) as caught:
        parse_expression("x^2 + 2y")
    text, caret = str(caught.value).splitlines()[1:]
    assert caret.index("^") >= text.index("2y")
