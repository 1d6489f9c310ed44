"""World3 of the vignette: the numbers of pyworld3, the units, and its equations by their numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fmepy as fme

HERE = Path(__file__).parent
FOLDER = HERE.parent.parent / "vignettes" / "world3"
PEER = pd.read_csv(HERE.parent / "reference" / "world3" / "standard_run.csv").set_index("starts")
OTHERWISE = {"le": 1940, "tf": 1940, "lufd": 1900}  # pyworld3, as published, has other numbers there


@pytest.fixture(scope="module")
def world():
    return fme.dmi.ModularModel(
        fme.dmi.read_modules(FOLDER), fme.dmi.Database(FOLDER / "data"), times=np.arange(1900, 2100.5, 0.5), dt=0.5
    )


@pytest.fixture(scope="module")
def numbered():
    """The book's short names -> number, our name."""
    found, name = {}, ""
    for path in FOLDER.glob("*.fme"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if match := re.match(r"(?:d\()?(\w+)\)?(?:/dt)? = ", line):
                name = match[1]
            if match := re.search(r"# (\d+) +([A-Z]\w*)$", line):
                found[match[2].lower()] = int(match[1]), name
    return found


def test_every_equation_of_the_book_is_there_once(world, numbered):
    assert sorted(n for n, _ in numbered.values()) == list(range(1, 150))
    assert sorted(name for _, name in numbered.values()) == sorted(world.var_names)


@pytest.mark.parametrize(("starts", "apart"), [("book", 1e-10), ("as published", 0.02)])
def test_the_standard_run_is_that_of_pyworld3(world, numbered, starts, apart):
    out, peer = world().set_index("time"), PEER.loc[starts].set_index("time")
    for short, column in peer.items():
        kept = column.drop(OTHERWISE.get(short, []) if starts != "book" else [])
        ours = out.loc[kept.index, numbered[short][1]]
        np.testing.assert_allclose(ours, kept, rtol=0, atol=apart * column.max(), err_msg=short)


def test_units_fit_and_a_wrong_one_is_told(world):
    assert world.diagnostics.empty
    text = (FOLDER / "resources.fme").read_text(encoding="utf-8").replace("[resource units/year]", "[resource units]")
    told = world.replace(modules={"resources": fme.dmi.Module("resources", text)}).diagnostics
    assert told["kind"].unique().tolist() == ["units"]
    assert told["variable"].tolist() == ["nonrenewable_resources", "nonrenewable_resource_usage_rate"]


def test_levels_that_move_continuously_come_near_the_steps(world):
    smooth, steps = world.compiled("ode")(), world()
    near = steps["population"] * 0.02
    assert (np.abs(smooth["population"] - steps["population"]) < near).all()
