"""A model text is a set of equations in any order; what is wrong with one is told with its line and a caret."""

import contextlib
import pickle
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmepy as fme
from fmepy.errors import ArgumentError, ModelError, ModelTextError
from fmepy.language.derivatives import are_equal
from fmepy.language.equations import symbol
from fmepy.language.text import parse_expression
from fmepy.models.definition.text import parse_model

x = symbol("x")


def model_refusal(text, **kwargs):
    with pytest.raises(ModelTextError) as caught:
        parse_model(text, **kwargs)
    return caught.value


def test_the_message_shows_line_and_caret():
    text = "k = 1\nd(y)/dt = x.__class__"
    assert str(model_refusal(text)) == (
        "line 2: 'x.__class__' is not allowed here: an expression is made of numbers, names, + - * / % ** ^, brackets "
        "and the functions of the model language; a name has no dot: write r_max for r.max\n"
        "    d(y)/dt = x.__class__\n"
        "              ^"
    )


def test_the_message_opens_with_what_the_text_is():
    assert str(model_refusal("a = 1\nb = x.y", where="a.fme")).startswith("a.fme, line 2: 'x.y'")


def test_continued_lines_count():
    error = model_refusal("a = 1\nd(x)/dt = (a *\n   x.foo)")
    assert (error.line, error.column) == (3, 4)


def test_assignments_that_double_each_time_are_shared_and_read_quickly():
    lines = ["a0 = sin(x) + 1"] + [f"a{i + 1} = a{i} * sin(a{i}) / 2 + a{i} / 2" for i in range(60)]
    start = time.process_time()
    model = parse_model("\n".join([*lines, "d(x)/dt = a60 - x"]))
    assert time.process_time() - start < 3
    rate = model.complete("rate")["x"]
    assert sorted(map(str, rate.args)) == ["-x", "a60"]
    assert rate.free_symbols == {x}


def test_a_power_tower_made_of_assignments_takes_no_time():
    start = time.process_time()
    assert str(parse_model("n = 1000000000\nd(x)/dt = (2*x)**n").complete("rate")["x"]) == "(2*x)**1000000000"
    assert "beyond the range" in str(model_refusal("n = 10**9\nm = n**n**n\nd(x)/dt = m*x"))
    assert time.process_time() - start < 3


def test_endless_texts_are_refused():
    assert "500000 characters" in str(model_refusal("# x\n" * 200_000))
    assert "10000 characters" in str(model_refusal("y = 1\nx = (" + "1 +\n" * 5_000 + "1)"))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40) | st.text(alphabet="xy01.+-*/()[]{}<>=^&|~ ,:\\#\n\tdt", max_size=60))
def test_any_text_is_read_or_refused_but_never_crashes(text):
    for read in (parse_expression, parse_model):
        with contextlib.suppress(ModelTextError):
            read(text)


LOTKA = """
    # predator and prey
    d(Hare)/dt = r * Hare - eaten

    d(Lynx)/dt = (e * eaten      # what is eaten
                  - m * Lynx)    # ... and dies
    Hare(0) = H0
    total = Hare + \\
            Lynx
    eaten = a * Hare * Lynx
"""


def test_a_model_text_gives_states_rates_initial_values_and_assignments():
    m = parse_model(LOTKA)
    hare, lynx, a, e, r = map(symbol, ("Hare", "Lynx", "a", "e", "r"))
    assert m.states == ("Hare", "Lynx")
    assert are_equal(m.complete("rate")["Hare"], r * hare - a * hare * lynx)
    assert m.complete("initial") == {"Hare": symbol("H0")}
    assert list(m.complete("assignment")) == ["total", "eaten"]
    assert m.complete("assignment")["total"] == hare + lynx
    assert m.free_names == ("r", "e", "m", "H0", "a")
    lines = {s.left: s.line for s in m.statements}
    assert lines == {"Hare": 3, "Lynx": 5, "Hare(0)": 7, "total": 8, "eaten": 10}
    assert are_equal(m.complete("rate")["Lynx"], e * a * hare * lynx - symbol("m") * lynx)
    assert are_equal(m.complete("assignment")["eaten"], a * hare * lynx)


def test_assignments_come_in_any_order_and_reach_initial_values():
    m = parse_model("c = 2*b\nd(x)/dt = c*x\nx(0) = c + 1\nb = 3*a\na = k")
    k = symbol("k")
    assert m.complete("rate") == {"x": 6 * k * x}
    assert m.complete("initial") == {"x": 6 * k + 1}
    assert m.complete("assignment") == {"c": 6 * k, "b": 3 * k, "a": k}


def test_constant_assignments_are_computed_with_as_constants():
    assert parse_model("n = 1 + 1\nd(x)/dt = x**n").complete("rate")["x"] == x**2
    assert "division by zero" in str(model_refusal("a = 1\ny = 1/(a - 1)"))


def test_a_chain_of_many_assignments_is_no_recursion():
    lines = [f"a{i + 1} = a{i} + k{i}" for i in range(300)]
    assert len(parse_model("\n".join(lines[::-1])).complete("assignment")["a300"].free_symbols) == 301


def test_difference_equations_are_written_with_next():
    m = parse_model("next(level) = level + u\nlevel(0) = 3", kind="difference")
    assert (m.kind, m.states, m.free_names) == ("difference", ("level",), ("u",))


def test_lines_are_known_for_defined_and_for_used_names():
    m = parse_model("a = 1\nd(x)/dt = a*x\ny = q*x\nx(0) = 2")
    assert [m.error("", n).line for n in ("a", "x", "q", "x(0)")] == [1, 2, 3, 4]
    assert str(m.error("it has no value", "q")) == "line 3: it has no value\n    y = q*x\n        ^"
    assert str(m.error("it has no value", "nothing")) == "it has no value"
    assert str(m.error("the sign is wrong", "x")) == "line 2: the sign is wrong\n    d(x)/dt = a*x\n    ^"


def test_names_are_compared_as_python_compares_them():
    m = parse_model("d(\u00b5)/dt = \u03bc*k")  # micro sign and Greek letter: one name
    assert m.states == ("\u03bc",)
    assert m.free_names == ("k",)


def test_an_empty_text_is_an_empty_model():
    assert parse_model("\n  # nothing\n").states == ()


def test_a_model_text_pickles():
    m = pickle.loads(pickle.dumps(parse_model(LOTKA)))
    assert m.complete("rate") == parse_model(LOTKA).complete("rate")
    assert m.free_names == ("r", "e", "m", "H0", "a")


@pytest.mark.parametrize("ends", ["\r\n", "\r", "\n"])
def test_line_ends_of_any_system_are_line_ends(ends):
    assert [s.line for s in parse_model(f"d(x)/dt = 1{ends}{ends}y = 2{ends}").statements] == [1, 3]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("d(x)/dt = ", 1, "nothing stands on the right"),
        ("d(x)/dt = 1\nd(x)/dt = 2", 2, "'x' is given twice, first in line 1"),
        ("x = 1\n\nx = 2", 3, "'x' is given twice, first in line 1"),
        ("x = 1\nd(x)/dt = 1", 2, "'x' is a state (line 2) and assigned (line 1)"),
        ("d(x)/dt = 1\nx = 1", 2, "'x' is a state (line 1) and assigned (line 2)"),
        ("x(0) = 1\nx(0) = 2\nd(x)/dt = 1", 2, "'x(0)' is given twice, first in line 1"),
        ("d(Hare)/dt = 1\nHaer(0) = 1", 2, "Did you mean 'Hare'?"),
        ("d(x)/dx = 1", 1, "write d(x)/dt"),
        ("dHare/dtime = 1", 1, "write d(Hare)/dt"),
        ("Hare' = 1", 1, "a rate is written dN/dt"),
        ("next(x) = 1", 1, "DifferenceModel"),
        ("x == 3", 1, "one '='"),
        ("x + 1", 1, "a statement needs '='"),
        ("x += 1", 1, "'x +' cannot stand on the left"),
        ("2 = x", 1, "'2' cannot stand on the left"),
        ("x.y = 2", 1, "'x.y' cannot stand on the left"),
        ("x(y) = 2", 1, "an initial value is written x(0)"),
        ("d(x)/dt = 1 = 2", 1, "'=' stands once"),
        ("a = b\nb = c\nc = a", 1, "a -> b -> c -> a"),
        ("y = 1\na = a + 1", 2, "assigned from itself"),
        ("t = 3", 1, "time"),
        ("pi = 3", 1, "a constant"),
        ("exp = 3", 1, "is a function"),
        ("lambda = 3", 1, "'lambda' is a word of the language"),
        ("__x = 3", 1, "two underscores"),
        ("d(x)/dt = (3\ny = 2", 1, "never closed"),
    ],
)
def test_mistakes_in_a_model_text_are_told_with_their_line(text, line, words):
    error = model_refusal(text)
    assert words in str(error)
    assert error.line == line


def test_a_rate_does_not_belong_in_difference_equations():
    assert "write next(x) = ..." in str(model_refusal("d(x)/dt = 1", kind="difference"))


def test_reading_text_needs_no_sympy_until_it_is_called():
    code = "import sys; import fmepy.models.definition.text; sys.exit('sympy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_rate_may_be_written_without_brackets():
    plain = parse_model("d(Hare)/dt = r * Hare\nHare(0) = 1")
    other = parse_model("dHare/dt = r * Hare\nHare(0) = 1")
    assert other.states == plain.states == ("Hare",)
    assert other.complete("rate") == plain.complete("rate")
    with pytest.raises(ModelError, match=r"dN = \.\.\. is an assignment; a rate of N is written d\(N\)/dt"):
        fme.OdeModel("dN = r * N", state={"N": 1.0}, parms={"r": 1.0}, times=[0, 1])


@pytest.mark.parametrize(
    ("model", "equations", "told"),
    [
        (fme.OdeModel, {"S": "-b*S"}, r"got dict. Write .* one line a state:\n    d\(S\)/dt = -b\*S$"),
        (fme.DifferenceModel, {"S": "-b*S"}, r"one line a state:\n    next\(S\) = -b\*S$"),
        (fme.OdeModel, {"S": 1.0}, "got dict.$"),
        (fme.OdeModel, "d(S) = -b*S", r"d\(S\) is not understood; a rate is written d\(S\)/dt"),
        (fme.DifferenceModel, "S(t + 1) = -b*S", r"the next state is written next\(S\)"),
        (fme.OdeModel, "S(t + 1) = -b*S", r"an initial value is written S\(0\)"),
    ],
)
def test_equations_in_the_words_of_others_are_answered_with_ours(model, equations, told):
    with pytest.raises(ModelError, match=told):
        model(equations, state={"S": 1.0}, times=[0, 1], parms={"b": 1.0})


def test_the_iteration_of_desolve_is_a_difference_model():
    with pytest.raises(ArgumentError, match="is a DifferenceModel's"):
        fme.OdeModel("d(S)/dt = -S", state={"S": 1.0}, times=[0, 1], method="iteration")
