"""A saved result that somebody has changed is refused in words, or it prints and sums up like any other."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import zipfile

import matplotlib.pyplot as plt
import numpy as np
import pytest

import fmepy as fme
from fmepy.errors import ArgumentError, FmepyError
from fmepy.journal.fields import holds
from tests.journal.samples import SAMPLES, chain, cost, fit
from tests.journal.test_saving import leaves


def array(dtype, shape, values):
    return {"type": "array", "dtype": dtype, "shape": shape, "values": values}


EMPTY = {"type": "range", "names": [None], "bounds": [0, 0, 1]}
WRONG = [
    None, "x", "", -1, 0, 10**30, 1e300, True, [], {}, [[1], [2, 3]], ["a", "b"],
    {"type": "float", "value": "nan"}, {"type": "tuple", "items": []}, {"type": "tuple", "items": ["a"]},
    {"type": "dict", "entries": {}}, array("<f8", [0], []), array("<f8", [1], [1.0]), array("<f8", [], "nan"),
    array("<f8", [2, 2], [[1.0, 2.0], ["nan", "inf"]]), array("<i8", [2], [1, 2]), array("|b1", [1], [True]),
    array("<U3", [1], ["abc"]), array("<f8", [10**12], [1.0]), array("<U999999999", [1], ["a"]),
    {"type": "range", "names": [None], "bounds": [0, 10**15, 1]},
    {"type": "frame", "index": EMPTY, "columns": EMPTY, "blocks": [], "attrs": {"type": "dict", "entries": {}}},
]  # fmt: skip


def tampered(whole, places, rng):
    """Return a structure in which one place is changed: it is gone, there twice, exchanged, or something else."""
    changed = copy.deepcopy(whole)
    inner = changed
    *way, last = places[rng.integers(len(places))]
    for key in way:
        inner = inner[key]
    how = rng.integers(6)
    if how == 0:
        del inner[last]
    elif how == 1 and isinstance(inner, list):
        inner.insert(last, copy.deepcopy(inner[last]))
    elif how == 2:
        other = list(inner)[rng.integers(len(inner))] if isinstance(inner, dict) else rng.integers(len(inner))
        inner[last], inner[other] = inner[other], inner[last]
    else:
        inner[last] = copy.deepcopy(WRONG[rng.integers(len(WRONG))])
    return changed


def refused_or_shown(path, drawn=False):
    """Load a file; what loads shows itself, its summary, and its picture."""
    try:
        result = fme.load(path)
    except ArgumentError:
        return
    repr(result)
    getattr(result, "_repr_html_", str)()
    if callable(summary := getattr(result, "summary", None)):
        with contextlib.suppress(FmepyError):
            repr(summary())
    if drawn and callable(plot := getattr(result, "plot", None)):
        with contextlib.suppress(FmepyError):
            plot()
        plt.close("all")


def try_out(name, folder, times, seed):
    path = SAMPLES[name]().save(folder / "result.json")
    whole = json.loads(path.read_text())
    every = [("result", *place) for place in leaves(whole["result"])]
    upper = [place for place in every if len(place) < 8]  # most of all places are single numbers
    rng = np.random.default_rng([seed, *name.encode()])
    for i in range(times):
        changed = tampered(whole, upper if i % 3 else every, rng)
        path.write_text(json.dumps(changed))
        refused_or_shown(path, drawn=times > 12 or i % 4 == 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_result_that_was_changed_is_refused_or_shows_itself(name, tmp_path):
    try_out(name, tmp_path, 12, 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", [2, 3])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_many_changes(name, seed, tmp_path):
    try_out(name, tmp_path, 100, seed)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(40))
def test_arrays_that_were_changed_are_refused_or_show_themselves(seed, tmp_path):
    """Bytes of the file, or whole arrays of another kind and shape."""
    rng = np.random.default_rng(seed)
    (path,) = chain().save(tmp_path / "chain").glob("*.npz")
    if seed % 2:
        held = bytearray(path.read_bytes())
        for place in rng.integers(len(held), size=3):
            held[place] = rng.integers(256)
        path.write_bytes(held[: rng.integers(len(held))] if seed % 3 else held)
    else:
        with np.load(path) as arrays:
            held = dict(arrays)
        name = list(held)[rng.integers(len(held))]
        some = [np.zeros(3), np.zeros((2, 0)), np.array("x"), np.array([True]), np.full(held[name].shape, np.nan)]
        held[name] = some[rng.integers(len(some))]
        np.savez(path, **held)
    refused_or_shown(tmp_path / "chain")


def test_a_member_that_is_there_twice_is_no_crash(tmp_path):
    (path,) = chain().save(tmp_path / "chain").glob("*.npz")
    with zipfile.ZipFile(path, "a") as zipped, pytest.warns(UserWarning, match="Duplicate name"):
        zipped.writestr("pars.npy", b"x")
    refused_or_shown(tmp_path / "chain")


# --- fields


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_field_is_what_its_annotation_says(name):
    """So that a file can be compared with it."""

    def look(value):
        if dataclasses.is_dataclass(value):
            for f in dataclasses.fields(value):
                if not f.metadata:
                    held = getattr(value, f.name)
                    assert holds(f.type, held), f"{type(value).__name__}.{f.name}: {f.type}; {type(held)}"
                    look(held)
        for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
            look(inner)

    look(SAMPLES[name]().as_stored())


@pytest.mark.parametrize(
    ("annotation", "yes", "no"),
    [
        ("float", [1, 1.5, np.float64(2)], [True, "1", None, np.zeros(1)]),
        ("int | None", [1, None, np.int64(3)], [1.5, False]),
        ("Vector", [np.zeros(3)], [np.zeros((2, 2)), np.zeros(3, int), [1.0]]),
        ("Matrix", [np.zeros((2, 2))], [np.zeros(2)]),
        ("tuple[str, ...]", [(), ("a", "b")], [["a"], ("a", 1)]),
        ("tuple[int, float]", [(1, 2.0)], [(1,), (1, 2.0, 3), (1.5, 2.0)]),
        ("dict[str, str | float]", [{}, {"a": "b", "c": 1.0}], [{1: "b"}, {"a": None}, []]),
        ("list[Any]", [[], [1, "a"]], [()]),
        ("pd.Series[float] | float", [fme.modFit(lambda p: [p["a"], 1.0], {"a": 1.0}).par, 1.0], ["x"]),
        ("'ModFit | None'", [None], [1]),
    ],
)
def test_an_annotation_is_read_as_it_is_written(annotation, yes, no):
    assert all(holds(annotation, value) for value in yes)
    assert not any(holds(annotation, value) for value in no)


def test_a_class_is_known_by_its_name_wherever_it_is_imported():
    assert holds("ModFit | None", fit())
    assert holds("Shown", fit())
    assert not holds("ModMCMC", fit())
    assert not holds("ModFit", cost())


def test_a_field_of_another_kind_is_named(tmp_path):
    path = fit().save(tmp_path / "fit.json")
    head = json.loads(path.read_text())
    head["result"]["fields"]["theta"] = "x"
    path.write_text(json.dumps(head))
    with pytest.raises(ArgumentError, match="is damaged: `theta` of ModFit is a str, not as it was saved"):
        fme.load(path)
    path = SAMPLES["SensFun"]().save(tmp_path / "sens.json")
    head = json.loads(path.read_text())
    del head["result"]["fields"]["labels"]["items"][0]
    path.write_text(json.dumps(head))
    with pytest.raises(ArgumentError, match="is damaged: its parts do not agree with each other"):
        fme.load(path)
