"""The picture of a system: modules as boxes, variables as arrows from who computes them to who reads them."""

import matplotlib.pyplot as plt
import pytest

import fmepy as fme
from fmepy.dmi.variables import system_of
from fmepy.errors import ArgumentError
from fmepy.plotting.dmi import plot_map

Module = fme.dmi.Module

MARKET = system_of([
    Module("sales", "OB = SM * SE\nSE = SEM / DDRM\nd(SM)/dt = RS - SM\nSM(0) = 1"),
    Module("delivery", "d(BL)/dt = OB - DR\nDR = PC\nDDRM = BL / PC\nBL(0) = 1"),
    Module("capacity", "d(PC)/dt = DDRM - PC\nPC(0) = OB"),
])  # fmt: skip


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def texts(ax):
    return [t.get_text() for t in ax.texts if t.get_text()]


def arrows(ax):
    return [t for t in ax.texts if getattr(t, "arrow_patch", None) is not None]


def test_variables_lead_from_who_computes_them_to_who_reads_them():
    assert MARKET.links == {
        ("sales", "delivery"): ["OB"],
        ("sales", "capacity"): ["OB"],
        ("delivery", "sales"): ["DDRM"],
        ("delivery", "capacity"): ["DDRM"],
        ("capacity", "delivery"): ["PC"],
    }


def test_who_is_overruled_computes_nothing():
    system = system_of([Module("a", "x = 1"), Module("b", "x = 2"), Module("c", "y = x")])
    assert system.links == {("b", "c"): ["x"]}


def test_boxes_name_modules_and_arrows_variables():
    ax = plot_map(MARKET)
    assert texts(ax)[:3] == ["sales\n2 from data", "delivery", "capacity"]
    assert sorted(texts(ax)[3:-1]) == ["DDRM", "DDRM", "OB", "OB", "PC"]
    assert len(arrows(ax)) == 5
    ax.figure.canvas.draw()


def test_an_axes_may_be_given_and_arrows_changed():
    ax = plt.figure().subplots()
    assert plot_map(MARKET, ax=ax, lw=3, title="market") is ax
    assert {a.arrow_patch.get_linewidth() for a in arrows(ax)} == {3.0}
    with pytest.raises(ArgumentError, match="axes"):
        plot_map(MARKET, axes=ax)


def test_many_variables_are_cut_and_a_large_system_has_numbers():
    computed = "\n".join(f"x{i} = 1" for i in range(5))
    ax = plot_map(system_of([Module("a", computed), Module("b", "y = " + " + ".join(f"x{i}" for i in range(5)))]))
    assert "x0\nx1\nx2\n+ 2 more" in texts(ax)
    ring = [Module(f"m{i}", f"x{i} = x{(i + 1) % 30}\ny{i} = x{(i + 1) % 30} + u") for i in range(30)]
    ax = plot_map(system_of(ring))
    assert texts(ax).count("1") == 30
    assert "m3 (1 from data)" in texts(ax)
    assert texts(ax)[-1].endswith("numbers: how many")


def test_one_module_alone_is_one_box():
    ax = plot_map(system_of([Module("a", "x = 1")]))
    assert texts(ax)[0] == "a"
    assert not arrows(ax)
