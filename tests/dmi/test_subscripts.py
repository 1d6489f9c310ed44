"""Ranges of subscripts: what an index says on the left and on the right of an equation, against loops in numpy."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fmepy as fme
from fmepy.dmi.statements import Size, element_names
from fmepy.errors import ModelError, ModelTextError
from tests.dmi.runs import ran

RANGES = "subscripts region: north, south\nsubscripts age: child, young, old\nsubscripts grown: young, old\n"
P = np.arange(6.0).reshape(2, 3) + 1


def value(text, dims="", **values):
    """Return y, its elements in order, where P[region, age] comes from outside."""
    got = ran(f"{RANGES}dims P[region, age]{dims}\n{text}", n=1, P=P, **values)
    return np.array([v[0] for k, v in got.items() if k.partition("[")[0] == "y"])


def test_an_equation_of_a_range_holds_for_each_element():
    text = "y[region, age] = P[region, age] * w[age] + 10 * v[region]"
    got = value(text, ", y[region, age], w[age], v[region]", w=[1.0, 2.0, 3.0], v=[1.0, 2.0])
    np.testing.assert_allclose(got.reshape(2, 3), P * [1, 2, 3] + [[10], [20]])
    np.testing.assert_allclose(value("y[age, region] = P[region, age]", ", y[age, region]").reshape(3, 2), P.T)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("P[north, young]", 2), ("P[1, old]", 6), ("sum(P[:, young])", 7), ("sum(P[region, young])", 7), ("sum(P)", 21),
        ("sum(P[:, :])", 21), ("min(P[south, age])", 4), ("max(P[:, child] * 2)", 8), ("prod(P[north, :])", 6),
        ("mean(P[:, grown])", 4), ("max(P)", 6), ("min([3, P[0,0], 2])", 1),
        ("sum(P[north, grown] * P[south, grown])", 28),
        ("prod([2, 3, P[0,0]])", 6), ("mean(P * P)", 91 / 6), ("sum(P[:, 0])", 5),
    ],
)  # fmt: skip
def test_elements_slices_and_what_is_made_of_them(expression, wanted):
    assert value(f"y = {expression}") == pytest.approx(wanted)


def test_slices_are_vectors():
    np.testing.assert_allclose(value("y = P[:, young] - P[region, 0]", ", y[region]"), [1, 1])
    np.testing.assert_allclose(value("y[grown] = sum(P[:, grown])\ny[child] = 0", ", y[age]"), [0, 7, 9])
    parts = value("y[:, child] = P[region, old]\ny[region, grown] = 0", ", y[region, age]")
    np.testing.assert_allclose(parts, [3, 0, 0, 6, 0, 0])


def test_local_arrays_and_what_is_made_of_them():
    text = "local D\ndims D[2]\nD = [t, 3]\ny = max(D) + 10 * prod(D) + 100 * D[0] + 1000 * min(D * 2) + sum(D[:])"
    got = ran(text, "D = 5", n=4)["y"]
    np.testing.assert_allclose(got, [max(t, 3) + 130 * t + 1000 * min(2 * t, 6) + t + 3 for t in range(5)])


def test_ranges_that_are_mapped():
    text = "subscripts town: oslo, rome, bari -> region: north, south, south\ny[town] = s[town] * sum(P[region, :])"
    np.testing.assert_allclose(value(text, ", y[town], s[town]", s=[1.0, 0.5, 2.0]), [6, 7.5, 30])
    text = "subscripts side: left, right -> region\ny[side] = P[region, young]"
    assert value(text, ", y[side]").tolist() == [2, 5]


def test_levels_with_starts_and_memories_by_element():
    text = f"""{RANGES}
        dims S[region, age], y[region]
        d(S[region, grown])/dt = k[region] - S[region, grown] / 4
        d(S[region, child])/dt = 1
        dims k[region]
        S[region, age](0) = k[region]
        y[region] = smooth3(S[region, old], 2 + k[region])
    """
    got = ran(text, n=8, dt=0.5, k=[1.0, 3.0])
    for region, k in (("north", 1.0), ("south", 3.0)):
        s, chain, n = k, np.full(3, k), (2 + k) / 3
        for step in range(9):
            assert got[f"S[{region},old]"][step] == pytest.approx(s)
            assert got[f"y[{region}]"][step] == pytest.approx(chain[-1])
            chain = chain + 0.5 * (np.r_[s, chain[:-1]] - chain) / n
            s += 0.5 * (k - s / 4)
        np.testing.assert_allclose(got[f"S[{region},child]"], k + 0.5 * np.arange(9))


def test_arrays_of_three_axes():
    dims = "dims A[2,3,2], v[3]\n"
    text = f"{dims}A[1,2,1] = 7\nA[0,:,:] = 1\nA[1,0,0] = v[1]\nx = sum(A[0,:,1]) + A[1,2,1]\ny = sum(A[:,2,1])"
    got = ran(text, n=1, v=[1.0, 2.0, 3.0], A=0.5)
    assert (got["x"][0], got["y"][0], got["A[1,0,0]"][0], got["A[1,0,1]"][0]) == (10, 8, 2, 0.5)


def model(**words):
    text = f"{RANGES}dims P[region, age], k[age]\nd(P[region, age])/dt = -k[age] * P[region, age]\ny = sum(P[:, young])"
    data = {"P": P, "k": [0.1, 0.2, 0.3]} | words.pop("data", {})
    return fme.dmi.ModularModel([fme.dmi.Module("m", text)], data, times=[0, 1, 2], dt=0.5, **words)


def test_columns_parameters_and_equations_have_the_names():
    m = model()
    assert list(m.parms.index[-4:]) == ["P[south,old]", "k[child]", "k[young]", "k[old]"]
    assert list(m().columns[1:4]) == ["P[north,child]", "P[north,young]", "P[north,old]"]
    assert m.variable_map["dims"].to_dict() == {"P": "[region,age]", "k": "[age]", "y": ""}
    assert m({"k[young]": 0.0})["y"].tolist() == [7, 7, 7]
    np.testing.assert_allclose(m.compiled()()[list(m.var_names)], m()[list(m.var_names)])
    assert m.bind(["k[young]", "P[north,old]"]).exact
    assert pickle.loads(pickle.dumps(m))().equals(m())


def test_the_data_base_takes_names_of_elements(tmp_path):
    file = tmp_path / "k.csv"
    file.write_text("name,value\n" + "\n".join(f'"k[{a}]",{v}' for a, v in (("old", 3), ("child", 1), ("young", 2))))
    text = f"{RANGES}dims k[age]\ny = sum(k) + k[old]"
    m = fme.dmi.ModularModel([fme.dmi.Module("m", text)], str(file), times=[0, 1], dt=1)
    assert m()["y"].tolist() == [9, 9]
    assert m.parms.to_dict() == {"k[child]": 1, "k[young]": 2, "k[old]": 3}
    with pytest.raises(ModelError, match=r"no element 'yung'. Did you mean 'young'"):
        m.replace(data={"k[yung]": 1.0})


def test_sizes_are_numbers_that_know_their_names():
    size = pickle.loads(pickle.dumps(Size("age", ("young", "old"))))
    assert (size, size.elements, str(size), repr(int(size))) == (2, ("young", "old"), "age", "2")
    assert element_names("x", (size, 2)) == ("x[young,0]", "x[young,1]", "x[old,0]", "x[old,1]")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("subscripts region north\nx = 1", "declared as in `subscripts region: north, south`"),
        ("subscripts r: a, a\nx = 1", "'a' more than once"),
        ("subscripts r: a\nsubscripts r: b\nx = 1", "declared twice"),
        ("subscripts r: a, b -> s\nx = 1", "'s', which is no range"),
        ("subscripts r: a, b -> s\nsubscripts s: c\nx = 1", "2 elements, 's' 1"),
        ("subscripts r: a -> s: d\nsubscripts s: c\nx = 1", "no element of 's'"),
        ("subscripts r: a, b\ndims x[r]\nx[c] = 1", "no element 'c'"),
        ("subscripts r: a, b\nsubscripts s: c, d\ndims x[r]\nx[s] = 1", "the range 'r' there, and no element 'c'"),
        ("subscripts r: a, b\nsubscripts s: c, d\ndims x[r], y[s], z[r]\nx = y + z", "do not fit"),
        ("subscripts r: a, b\nsubscripts s: c, d\ndims x[r], y[s]\nx = y", "the right-hand side"),
        ("subscripts r: a, b\ndims x[r], y[2]\nx[r] = y[r]", "2 elements without names"),
        ("dims x[3]\nx[0:2] = 1", "plain number"),
        ("subscripts r: a, b\ndims x[r,r]\nx[r] = 1", "two indices"),
        ("sum = 3", "is a function"), ("mean = 3", "is a function"),
    ],
)  # fmt: skip
def test_mistakes_are_told(text, says):
    with pytest.raises(ModelTextError, match=says):
        fme.dmi.Module("m", text)


def test_modules_that_have_other_names_for_the_same_axis_do_not_fit():
    first = fme.dmi.Module("a", "subscripts r: a, b\ndims x[r]\nx[r] = 1")
    second = fme.dmi.Module("b", "subscripts r: a, c\ndims x[r]\ny = sum(x)")
    with pytest.raises(ModelError, match="dimensions of 'x' differ"):
        fme.dmi.ModularModel([first, second], times=[0, 1], dt=1)
