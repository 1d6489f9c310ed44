"""The pages of the site: their examples run, and every public name has its place on one page."""

from __future__ import annotations

import doctest
import re

import pytest

import fmepy as fme
from tests.conftest import ROOT

PAGES = sorted(p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", [p for p in PAGES if "```py" in (ROOT / "docs" / p).read_text(encoding="utf-8")])
def test_the_examples_of_a_page_run_and_give_what_it_shows(page):
    """Blocks of one page share their names; what ``>>>`` shows is compared, with ... for what is left out."""
    names: dict[str, object] = {}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for kind, block in re.findall(
        r"^```(python|pycon)\n(.*?)^```",
        (ROOT / "docs" / page).read_text(encoding="utf-8"),
        flags=re.DOTALL | re.MULTILINE,
    ):
        if kind == "python":
            exec(compile(block, page, "exec"), names)
            continue
        block = re.sub(r"\n(?=\n(?!>>>|\Z))", "\n<BLANKLINE>", block)  # a page shows it as it prints
        shown = doctest.DocTestParser().get_doctest(block, names, page, page, 0)
        said: list[str] = []
        found = doctest.DocTestRunner(optionflags=flags, verbose=False).run(shown, out=said.append, clear_globs=False)
        assert not found.failed, "".join(said)
        names = shown.globs


def test_every_public_name_is_on_one_page():
    text = "".join((ROOT / "docs" / p).read_text(encoding="utf-8") for p in PAGES if p.startswith("api/"))
    told = re.findall(r"auto(?:class|function):: fmepy\.([\w.]+)", text)
    assert len(told) == len(set(told))
    modules = {"__version__", "datasets", "dmi", "errors", "types", "workflow"}
    public = {*fme.__all__, *fme.types.RESULTS_AND_CONTRACTS}
    assert sorted(n for n in told if "." not in n) == sorted(public - modules)


def test_every_page_is_in_the_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {
        line.strip() for block in re.findall(r"```\{toctree\}(.*?)```", index, re.DOTALL) for line in block.split("\n")
    }
    assert {p.removesuffix(".md") for p in PAGES} - {"index"} <= listed


def test_the_page_of_calibrations_names_every_key_of_a_file_and_every_step():
    from fmepy.workflow.file import keys
    from fmepy.workflow.steps.registry import STEPS

    page = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    wanted = {*keys.file_keys(), *keys.DATA, *keys.RUN, *keys.require_keys(), *keys.PARAMETER, *STEPS, *keys.SOURCES}
    assert not wanted - told
