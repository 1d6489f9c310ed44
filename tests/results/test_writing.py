"""What results print, in Markdown and LaTeX: the same numbers, and names that neither language takes for its own."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import fmepy as fme
from fmepy.results.tables import Shown, table
from fmepy.results.writing import as_latex, as_markdown, escape_latex, escape_markdown
from tests.journal.samples import SAMPLES, fit

AWKWARD = "k_1|2 & 50% #1 {x} $y$ ~z^2 <b>\\c*[d]`"


def markdown_rows(text):
    """Return the cells of the pipe tables of a Markdown text, unescaped, heads included."""
    lines = [line for line in text.splitlines() if line.startswith("|") and not re.match(r"\| -+:? \|", line)]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[re.sub(r"\\(.)", r"\1", c.strip()) for c in row] for row in cells]


def latex_rows(text):
    return [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r" \\")]


def test_a_summary_of_a_fit_has_the_numbers_that_it_prints():
    summary = fit().summary()
    printed = repr(summary).splitlines()
    rows = markdown_rows(summary.to_markdown())
    assert rows[0] == ["", "Estimate", "Std. Error", "t value", "Pr(>|t|)"]
    for row in rows[1:3]:
        assert any(line.split() == row for line in printed)
    assert rows[3:] == [["", "r", "K"], ["r", "1", "-0.7561"], ["K", "-0.7561", "1"]]
    assert "Residual standard error: 0.08399 on 9 degrees of freedom" in summary.to_markdown()
    tex = latex_rows(summary.to_latex())
    assert tex[1][:4] == rows[1][:4]
    assert re.fullmatch(r"\$[\d.]+ \\times 10\^\{-\d+\}\$", tex[1][4])
    assert tex[4] == ["r", "1", "$-0.7561$"]


def test_stars_are_there_when_asked_for():
    x = np.arange(12.0)
    y = 0.4 * x + np.cos(5 * x)
    summary = fme.modFit(lambda p: p["a"] + p["b"] * x - y, {"a": 0.0, "b": 1.0}).summary()
    assert "*" not in summary.to_markdown()
    stars = {row[0]: row[5] for row in markdown_rows(summary.to_markdown(stars=True))[1:3]}
    p = summary.par["Pr(>|t|)"]
    assert p["a"] > 0.1
    assert p["b"] < 0.001
    assert stars == {"a": "", "b": "***"}
    assert "Signif. codes: 0 '***' 0.001" in summary.to_latex(stars=True)


def test_what_went_wrong_is_written_too():
    x = np.arange(5.0)
    residuals = lambda p: np.exp(p["a"] * x) - 50 * x + 0 * p["b"]  # noqa: E731
    summary = fme.modFit(residuals, {"a": 1.0, "b": 1.0}, control={"maxiter": 1}).summary()
    assert not summary.info
    for text in (summary.to_markdown(), summary.to_latex()):
        assert "NOT converged" in text
        assert "NA" in text


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_result_that_prints_is_written(name):
    result = SAMPLES[name]()
    if not isinstance(result, Shown):  # it prints by itself
        return
    markdown, tex = result.to_markdown(), result.to_latex(caption="What it is", label="tab:it")
    for row in markdown_rows(markdown):
        assert row
    assert tex.startswith("\\begin{table}\n\\centering\n\\caption{What it is}\n\\label{tab:it}\n")
    for what in ("table", "tabular", "itemize", "verbatim"):
        assert tex.count(rf"\begin{{{what}}}") == tex.count(rf"\end{{{what}}}")
    for block in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end\{tabular\}", tex, flags=re.DOTALL):
        assert {len(row) for row in latex_rows(block[1])} == {len(block[0])}


def test_awkward_names_are_escaped():
    frame = pd.DataFrame({AWKWARD: [1.5], "plain": ["a\nb"]}, index=pd.Index([AWKWARD], name="_n"))
    (head, row) = markdown_rows(as_markdown([table(frame)]))
    assert head == ["_n", AWKWARD, "plain"]
    assert row == [AWKWARD, "1.5", "a b"]
    tex = as_latex([table(frame)])
    words = r"\\(textbackslash|textasciitilde|textasciicircum|textless|textgreater|textbar)\{\}"
    inside = re.sub(rf"{words}|\\[{{}}$&%#_]", "", tex.splitlines()[4])
    assert inside.count("&") == 2
    assert not re.search(r"[{}$%#_~^<>|]|\\(?!\\)", inside.removesuffix(r" \\"))
    assert escape_latex("μ_max ± β² Ω Å") == r"$\mu$\_max $\pm$ $\beta$$^2$ $\Omega$ Å"
    assert escape_markdown("plain text, 1.5 (a-b)") == "plain text, 1.5 (a-b)"


def test_a_row_that_begins_with_a_bracket_is_no_argument_of_the_line_break():
    tex = as_latex([table(pd.DataFrame({"a": [1, 2]}, index=["[x]", "*y"]))])
    assert "\n{}[x] & 1" in tex
    assert "\n{}*y & 2" in tex


def test_numbers_of_all_kinds():
    frame = pd.DataFrame(
        {"n": [1.0, np.nan, np.inf, -np.inf, 1e-20, -2.5e10], "t": ["< 2e-16", "NA", "", "1", "2", "x"]}
    )
    rows = markdown_rows(as_markdown([table(frame)]))
    assert [r[0] for r in rows] == ["n", "1", "NA", "inf", "-inf", "1e-20", "-2.5e+10"]
    tex = latex_rows(as_latex([table(frame)]))
    assert [r[0] for r in tex[1:]] == [
        "1",
        "NA",
        r"$\infty$",
        r"$-\infty$",
        r"$1 \times 10^{-20}$",
        r"$-2.5 \times 10^{10}$",
    ]
    assert tex[1][1] == r"$< 2 \times 10^{-16}$"
    assert r"\begin{tabular}{rl}" in as_latex([table(frame)])


def test_an_empty_table_is_nothing():
    assert as_markdown(["None.", table(pd.DataFrame({"a": []}))]) == "None.\n"
