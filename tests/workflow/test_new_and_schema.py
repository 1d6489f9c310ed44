"""Files to begin from, what `check` says of them, and the schema of what a file may hold."""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fmepy.workflow import new_folder
from fmepy.workflow.command import main
from fmepy.workflow.file import case as keys
from fmepy.workflow.file.case import file_schema as schema
from fmepy.workflow.file.case import read_case
from fmepy.workflow.file.prepared import read_task
from fmepy.workflow.steps.registry import STEPS
from tests.workflow import browser


@pytest.mark.parametrize("name", new_folder.EXAMPLES)
def test_an_example_is_made_commented_and_checked(tmp_path, capsys, name):
    assert main(["new", str(tmp_path / "study"), "--from", name]) == 0
    assert "study.toml" in capsys.readouterr().out
    file = tmp_path / "study" / "study.toml"
    text = file.read_text()
    for section in re.findall(r"^\[(\w+)\]", text, re.MULTILINE):
        before = text[: text.index(f"\n[{section}]")].splitlines()[-1]
        steps = (*STEPS, "require", "run")
        assert before.startswith("#") or section in steps, f"[{section}] has a comment"
    assert text.count("\n# ") >= len(re.findall(r"^\[", text, re.MULTILINE)) - 3
    assert main(["check", str(file)]) == 0
    told = capsys.readouterr()
    assert f"{len(read_task(read_case(file)).start)} fitted" in told.out
    assert sorted(p.suffix for p in file.parent.iterdir()).count(".toml") == 1
    assert not [p for p in file.parent.iterdir() if p.suffix not in (".toml", ".csv")], "check writes nothing"


def test_new_without_a_name_of_an_example_is_lynx_and_writes_over_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "study"]) == 0
    assert "Hare" in Path("study/study.toml").read_text()
    before = Path("study/study.toml").read_bytes()
    Path("file").write_text("")
    capsys.readouterr()
    for arguments, said in (
        (["new", "study"], "'study' is there already; nothing is written over"),
        (["new", "file"], "'file' is there already"),
        (["new", "other", "--from", "linx"], "There is no example 'linx'. Did you mean 'lynx'?"),
        (["new", "file/inside"], "cannot be made"),
    ):
        assert main(arguments) == 2
        assert said in capsys.readouterr().err
    assert Path("study/study.toml").read_bytes() == before
    assert not Path("other").exists()


def test_the_schema_knows_what_the_checks_know(capsys):
    assert main(["schema"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == json.loads(json.dumps(schema()))
    assert list(told["properties"]) == list(keys.file_keys())
    assert set(STEPS) < set(told["properties"])
    assert told["additionalProperties"] is False
    fit = told["properties"]["fit"]["properties"]
    assert "Marq" in fit["method"]["enum"]
    parameter = told["properties"]["parameters"]["additionalProperties"]["anyOf"]
    assert [one["type"] for one in parameter] == ["number", "object"]
    assert parameter[1]["required"] == ["start"]
    for name, key in keys.file_keys().items():
        assert key.says.endswith("."), name


def valid(value, rule):
    """Tell whether a value keeps a schema, of those words that ours has."""
    if "anyOf" in rule:
        return any(valid(value, one) for one in rule["anyOf"])
    kinds = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}
    if "type" in rule and (
        not isinstance(value, kinds[rule["type"]]) or (isinstance(value, bool) != (rule["type"] == "boolean"))
    ):
        return False
    if "enum" in rule and value not in rule["enum"]:
        return False
    if isinstance(value, dict):
        inside, other = rule.get("properties", {}), rule.get("additionalProperties", True)
        rules = {k: inside.get(k, other) for k in value}
        return set(rule.get("required", ())) <= set(value) and all(
            r is not False and (r is True or valid(value[k], r)) for k, r in rules.items()
        )
    if isinstance(value, list):
        return all(valid(one, rule.get("items", {})) for one in value)
    return True


@pytest.mark.parametrize("name", new_folder.EXAMPLES)
def test_examples_keep_the_schema_and_a_mistake_does_not(name):
    text = (Path(new_folder.__file__).parent / "examples" / name / f"{name}.toml").read_text()
    data = tomllib.loads(text)
    assert valid(data, schema())
    assert not valid({**data, "fit": {"metod": "Marq"}}, schema())
    assert not valid({**data, "fit": {"method": "Mark"}}, schema())


def test_the_tables_of_the_examples_are_those_of_the_data_sets(tmp_path, root):
    for example, table in new_folder.TABLES.items():
        assert main(["new", str(tmp_path / example), "--from", example]) == 0
        assert (tmp_path / example / f"{table}.csv").read_bytes() == (root / "data" / f"{table}.csv").read_bytes()
        assert not list((Path(new_folder.__file__).parent / "examples" / example).glob(f"{table}.csv"))


def test_the_example_of_hares_is_the_vignettes_fit(tmp_path):
    import fmepy as fme

    assert main(["new", str(tmp_path / "lynx")]) == 0
    task = read_task(read_case(tmp_path / "lynx" / "lynx.toml"))
    fit = fme.modFit(task.cost, task.start, lower=task.lower.to_dict(), upper=task.upper.to_dict())
    rates = fit.par[["alpha", "beta", "gamma", "delta"]]
    np.testing.assert_allclose(rates, [0.5402, 0.02717, 0.7964, 0.02369], rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("lynx", {"alpha": 0.5402, "beta": 0.02717, "gamma": 0.7964, "delta": 0.02369}),
        ("hiv", {"bet": 2.1333e-5, "rho": 0.14339, "delt": 0.58778, "c": 5.8712, "lam": 80.942}),
        ("nile", {"sd_w": np.sqrt(1469.1), "sd_v": np.sqrt(15099.0)}),
        ("theoph", {"ke": 0.08486, "V": 31.671, "sd_v_conc": 1.0703}),
        ("ccl4", {"KL": 0.03065, "sd_v_ChamberConc": 0.06297}),
    ],
)
def test_an_example_runs_to_its_report(tmp_path, capsys, name, known):
    assert main(["new", str(tmp_path / name), "--from", name]) == 0
    assert main(["calibrate", str(tmp_path / name / f"{name}.toml")]) == 0, capsys.readouterr().err
    folder = tmp_path / name / f"{name}_report"
    assert capsys.readouterr().out.splitlines()[-1] == str(folder / "report.html")
    estimates = pd.read_csv(folder / "estimates.csv", index_col="parameter")["estimate"]
    np.testing.assert_allclose(estimates[list(known)], list(known.values()), rtol=2e-3)
    if (path := browser.found()) is not None:
        with closing(browser.Browser(path)) as chromium:
            browser.check_first_screens(chromium, folder / "report.html")
