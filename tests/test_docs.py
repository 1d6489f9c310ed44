"""The pages of the site: their examples run, and every public name has its place on one page."""

from __future__ import annotations

import doctest
import importlib.util
import re
import tomllib

import matplotlib as mpl
import pytest

import fmepy as fme
from fmepy.workflow.command import COMMANDS, main
from tests.conftest import ROOT

PAGES = sorted(p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md"))
TEXTS = [*(f"docs/{p}" for p in PAGES), "README.md", "CONTRIBUTING.md", "data/README.md"]


def blocks(path: str) -> list[tuple[str, str]]:
    """Return the kind and the text of every block of a page."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(r"^```([^\n`]*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", [path for path in TEXTS if any(kind.startswith("py") for kind, _ in blocks(path))])
def test_the_examples_of_a_page_run_and_give_what_it_shows(path):
    """Blocks of one page share their names; what ``>>>`` shows is compared, with ... for what is left out."""
    names: dict[str, object] = {}
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for kind, block in blocks(path):
        if kind == "python":
            exec(compile(block, path, "exec"), names)
        elif kind == "pycon":
            block = re.sub(r"\n(?=\n(?!>>>|\Z))", "\n<BLANKLINE>", block)  # a page shows it as it prints
            example = doctest.DocTestParser().get_doctest(block, names, path, path, 0)
            output: list[str] = []
            runner = doctest.DocTestRunner(optionflags=flags, verbose=False)
            assert not runner.run(example, out=output.append, clear_globs=False).failed, "".join(output)
            names = example.globs


@pytest.mark.parametrize("path", TEXTS)
def test_a_block_that_is_no_python_is_of_a_kind_that_is_checked(path):
    """Commands exist, and the keys of TOML are those of a file; ``text`` shows what no command reads."""
    for kind, block in blocks(path):
        if kind in ("sh", "console"):
            for line in block.splitlines():
                check_command(line.removeprefix("$ ").split("#")[0].split())
        elif kind == "toml":
            check_toml(tomllib.loads(block))
        else:
            assert kind in ("python", "pycon", "text") or kind.startswith("{"), f"{path}: a block of {kind!r}"


def check_command(words: list[str]) -> None:
    match words:
        case ["make", target]:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE), words
        case ["fmepy", command, *_]:
            assert command in COMMANDS
        case ["pip", "install", "."]:
            pass
        case [script]:
            assert (ROOT / script).exists()
        case _:
            raise AssertionError(f"{' '.join(words)} is checked by nothing")


def check_toml(table: dict[str, object]) -> None:
    from fmepy.workflow.file import case as keys

    of_modules = {*keys.model_keys()["modules"], "parameters"}
    assert set(table) <= (of_modules if "modules" in table else set(keys.file_keys()))
    assert set(table.get("require", {})) <= set(keys.require_keys())


def test_the_mistake_that_the_page_of_calibrations_shows_is_reported_in_these_words(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "lynx"]) == 0
    file = tmp_path / "lynx" / "lynx.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("alpha = { start", "alpha = { strat"), encoding="utf-8")
    assert main(["check", "lynx/lynx.toml"]) == 2
    shown = next(block for kind, block in blocks("docs/calibrate.md") if kind == "text" and "strat" in block)
    assert f"lynx/{shown.strip()}" in capsys.readouterr().err


def test_the_pictures_of_the_first_pages_come_from_their_code(tmp_path):
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "docs" / "pictures.py")
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    pictures.main(tmp_path)
    for page, files in pictures.PICTURES.items():
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        for file in files.values():
            assert f"]({file})" in text
            shown, made = ((folder / file).read_text(encoding="utf-8") for folder in (ROOT / "docs", tmp_path))
            assert len(curves(made)) > 100
            if f"Matplotlib v{mpl.__version__}," in shown:  # others lay pictures out in other ways
                assert curves(shown) == pytest.approx(curves(made), abs=0.5), f"{file}: run docs/pictures.py"


def curves(svg: str) -> list[float]:
    """Return the coordinates of all lines of a picture that have many points: its curves."""
    return [float(x) for d in re.findall(r'd="(M[^"]*)" clip-path', svg) for x in re.findall(r"-?[\d.]+", d)]


def test_every_public_name_is_on_one_page():
    text = "".join((ROOT / "docs" / p).read_text(encoding="utf-8") for p in PAGES if p.startswith("api/"))
    listed = re.findall(r"auto(?:class|function):: fmepy\.([\w.]+)", text)
    assert len(listed) == len(set(listed))
    modules = {"__version__", "datasets", "dmi", "errors", "types", "workflow"}
    public = {*fme.__all__, *fme.types.RESULTS_AND_CONTRACTS}
    assert sorted(n for n in listed if "." not in n) == sorted(public - modules)


def test_every_public_name_is_found_by_its_question():
    text = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    linked = re.findall(r"\{py:obj\}`~fmepy\.([\w.]+)`", text)
    assert len(linked) == len(set(linked))
    modules = {"__version__", "types", "workflow", "dmi", "datasets"}
    assert {*fme.__all__, *fme.types.RESULTS_AND_CONTRACTS} - modules <= set(linked)


def test_every_page_is_in_the_contents():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    listed = {
        line.strip() for block in re.findall(r"```\{toctree\}(.*?)```", index, re.DOTALL) for line in block.split("\n")
    }
    assert {p.removesuffix(".md") for p in PAGES} - {"index"} <= listed


def test_the_page_of_calibrations_names_every_key_of_a_file_and_every_step():
    from fmepy.workflow.file import case as keys
    from fmepy.workflow.steps.registry import STEPS

    page = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", page))))
    sections = [name for part in ("data", "run", "parameters") for name in keys.own_keys(part)]
    wanted = {*keys.file_keys(), *sections, *keys.require_keys(), *STEPS, *keys.SOURCES}
    assert not wanted - told
