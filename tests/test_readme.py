"""The README opens with commands that exist and holds an example that runs as it stands."""

from __future__ import annotations

import re
import subprocess

import pytest


@pytest.fixture(scope="module")
def readme(root):
    return (root / "README.md").read_text(encoding="utf-8")


def test_the_example_runs_is_short_and_gives_what_it_says(readme):
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert blocks
    lines = [line for line in blocks[0].splitlines() if line.strip()]
    assert 10 <= len(lines) <= 15
    namespace: dict[str, object] = {}
    exec(compile(blocks[0], "README.md", "exec"), namespace)
    said = {
        name: float(value) for name, value in re.findall(r"(\w+) ([\d.]+)", re.search(r"# -> (.*)", blocks[0]).group(1))
    }
    assert said
    for name, value in said.items():
        assert namespace["fit"].par[name] == pytest.approx(value, rel=1e-2)


def test_it_opens_with_the_two_commands(readme):
    first = re.search(r"```sh\n(.*?)```", readme, flags=re.DOTALL).group(1)
    assert [line.split("#")[0].strip() for line in first.strip().splitlines()] == ["make calibrate", "make test"]


def test_the_commands_and_files_it_names_exist(readme, root):
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)`?", readme)):
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", readme):
        assert (root / link).exists(), link


def test_calibrate_installs_the_package_alone_and_test_what_tests_need(root):
    def told(target):
        made = subprocess.run(
            ["make", "--dry-run", "--always-make", target], cwd=root, capture_output=True, text=True, check=True
        )
        return re.findall(r"pip install .*", made.stdout)

    assert [line.split()[-1].strip("'") for line in told("calibrate")] == ["."]
    assert [line.split()[-1].strip("'") for line in told("test")] == [".[dev]"]


def test_ci_runs_the_tests_by_the_same_command(readme, root):
    script = (root / ".ci" / "run").read_text(encoding="utf-8")
    assert "make test" in script
    assert "make lint" in script
