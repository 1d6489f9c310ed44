"""The vignettes run from top to bottom, and a key number of theirs that is altered by one per cent turns them red."""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

from fmepy import datasets

VIGNETTES = sorted((Path(__file__).parent.parent / "vignettes").glob("*.py"))
LONG = {"boundary", "market_growth", "three_ways", "which_cost"}  # `make docs` runs them, too
FEWEST = 4  # asserts of a vignette that say a key number
DIGITS = 4  # of a key number that is no count
CLOSE = {"isclose", "allclose"}  # of numpy, the expected value second


# --- what a key number is


def numbers(node: ast.AST) -> list[ast.Constant]:
    """Return the numeric literals under a node; zero has no per cent, and is none of them."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) in (int, float)]
    return [n for n in found if n.value]


def key_numbers(test: ast.expr, source: str) -> list[ast.Constant]:
    """Return what an assert says to four digits, in `isclose` or `allclose`, or exactly: a count, `==`."""
    found = []
    for node in ast.walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOSE:
            found += [n for n in numbers(node.args[1]) if digits(n, source) >= DIGITS]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            found += [n for n in numbers(node.comparators[0]) if isinstance(n.value, int)]
    return found


def digits(number: ast.Constant, source: str) -> int:
    """Return the significant digits of a literal as it is written."""
    text = ast.get_source_segment(source, number) or ""
    return len(text.lower().split("e")[0].replace("_", "").replace(".", "").lstrip("0"))


def asserts(tree: ast.Module, source: str) -> Iterator[tuple[ast.Assert, list[ast.Constant]]]:
    """Yield the asserts of a script that say a key number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and (found := key_numbers(node.test, source)):
            yield node, found


class Altered(ast.NodeTransformer):
    """Ask after every assert that it fails with each of its key numbers altered: by 1 %, a count by one."""

    def __init__(self, source: str) -> None:
        self.source = source

    def visit_Assert(self, node: ast.Assert) -> list[ast.Assert]:
        return [node, *(self.refused(node, k) for k in range(len(key_numbers(node.test, self.source))))]

    def refused(self, node: ast.Assert, k: int) -> ast.Assert:
        other = copy.deepcopy(node)
        number = key_numbers(other.test, self.source)[k]
        said = f"line {node.lineno}: {number.value} may be altered by 1 % unseen"
        number.value += 1 if isinstance(number.value, int) else 0.01 * number.value
        other.test = ast.UnaryOp(ast.Not(), other.test)
        other.msg = ast.Constant(said)
        return ast.fix_missing_locations(ast.copy_location(other, node))


@pytest.mark.parametrize(
    "line",
    [
        "assert np.isclose(x, 44.63, rtol=2e-2)",
        "assert np.allclose([x, 0.01], [44.627, 0.01000], atol=1e-3)",
        "assert len([x]) == 1 or x",
    ],
)
def test_a_number_that_may_be_altered_unseen_is_found(line):
    source = f"x = 44.627\n{line}\n"
    exec(source, {"np": np})
    with pytest.raises(AssertionError, match=r"line 2: .* may be altered by 1 % unseen"):
        exec(compile(Altered(source).visit(ast.parse(source)), "vignette", "exec"), {"np": np})


# --- the vignettes


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda path: path.stem)
def test_a_vignette_has_a_title_and_says_key_numbers(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, line, empty, *text = (ast.get_docstring(tree) or "").splitlines()
    assert line == "=" * len(title)
    assert not empty
    assert text
    assert len(list(asserts(tree, source))) >= FEWEST
    assert "\n# %%\n" in source


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, marks=[pytest.mark.slow] * (p.stem in LONG)) for p in VIGNETTES],
    ids=lambda path: path.stem,
)
def test_a_vignette_runs_and_says_what_it_finds(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))  # with no display, some platforms warn
    source = path.read_text(encoding="utf-8")
    tree = Altered(source).visit(ast.parse(source))
    found = {"__name__": "__main__", "__file__": str(path)}
    exec(compile(tree, str(path), "exec"), found)
    assert capsys.readouterr().out
    FURTHER.get(path.stem, nothing_written)(found, tmp_path)


def nothing_written(found: dict[str, Any], folder: Path) -> None:
    assert not list(folder.iterdir())


INSTALLED = {"fmepy", "matplotlib", "numpy", "pandas", "scipy"}  # by `pip install fmepy`
OPTIONAL = {"global_indices", "to_arviz", "get_executor", "Client"}  # what says which package to install


@pytest.mark.parametrize("path", VIGNETTES, ids=lambda path: path.stem)
def test_a_vignette_needs_no_optional_package(path):
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    imported = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    imported |= {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)}
    assert {name.split(".")[0] for name in imported} <= INSTALLED | sys.stdlib_module_names
    assert not {n.attr for n in nodes if isinstance(n, ast.Attribute)} & OPTIONAL


# --- what does not belong before a reader's eyes


def hare_and_lynx(found: dict[str, Any], folder: Path) -> None:
    """The sum of squares by scipy alone, and the files that are promised."""
    fit = found["fit"]
    q, pelts = np.exp(fit.par), datasets.load("lynx_hare")

    def rates(t, y):
        return [y[0] * (q["alpha"] - q["beta"] * y[1]), y[1] * (q["delta"] * y[0] - q["gamma"])]

    years = pelts["year"].to_numpy(float)
    path = solve_ivp(rates, (1900, 1920), [q["Hare0"], q["Lynx0"]], t_eval=years, rtol=1e-9, atol=1e-9).y.T
    ssr = np.sum((np.log(path) - np.log(pelts[["Hare", "Lynx"]].to_numpy())) ** 2)
    assert fit.ssr == pytest.approx(ssr, rel=1e-4)

    output = folder / "results" / "hare_and_lynx"
    pictures = {p.name for p in output.iterdir() if p.suffix in (".png", ".svg")}
    assert pictures == {f"{stem}{end}" for stem in ("first_guess", "fit", "phases") for end in (".png", ".svg")}
    rows = {p.stem: len(pd.read_csv(p)) for p in output.glob("*.csv")}
    assert rows == {"estimates": 6, "summary_log_scale": 6, "residuals": 42, "fitted": 402}


def theophylline(found: dict[str, Any], folder: Path) -> None:
    """The fits by the closed form: of all together, and of every subject by itself."""
    nothing_written(found, folder)
    theo, names = datasets.load("Theoph"), ["ka", "ke", "V"]
    theo["mg"] = theo["Dose"] * theo["Wt"]

    def residuals(p, part):
        ka, ke, V = p
        t = part["Time"]
        return part["mg"] * ka / (V * (ka - ke)) * (np.exp(-ke * t) - np.exp(-ka * t)) - part["conc"]

    pooled, own = found["fits"]["pooled"].par[names], found["fits"]["by subject"].by_entity()
    np.testing.assert_allclose(
        pooled, least_squares(residuals, [1.5, 0.08, 30.0], args=(theo,), x_scale=[1.5, 0.08, 30.0]).x, rtol=1e-3
    )
    for label, part in theo.groupby("Subject"):
        start = own.loc[label, names]
        np.testing.assert_allclose(start, least_squares(residuals, start, args=(part,), x_scale=start).x, rtol=1e-3)


FURTHER = {"lynx_hare": hare_and_lynx, "theophylline": theophylline}


# --- scripts that are called
