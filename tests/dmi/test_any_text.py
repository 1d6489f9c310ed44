"""Whatever the text of a module is: it is read, or refused by an error of ours; nothing of it ever runs."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmepy as fme
from fmepy.dmi.diagnostics import diagnose, diagnostics_table
from fmepy.dmi.expressions import CLOCK
from fmepy.dmi.statements import TIME, ModuleStatement, element_names
from fmepy.dmi.variables import system_of
from fmepy.errors import FmepyError
from tests.dmi.texts import GOOD, PIECES, modules, spoilt

RAN: list[str] = []
WATCHED = {"exec", "open", "os.system", "subprocess.Popen", "import"}
watching = False


def watch(event, args):
    if watching and event in WATCHED:
        RAN.append(f"{event} {args}")


@pytest.fixture(scope="module", autouse=True)
def audit():
    """Watch for what Python does at the lowest level: it tells when code runs or files are opened."""
    read("x = a")
    read("x = (a")  # what is imported only to complain is imported now
    read("x = foo(3)")
    sys.addaudithook(watch)


def read(text):
    """Return the module that a text is, None if it is refused."""
    global watching
    watching = True
    try:
        return fme.dmi.Module("m", text)
    except FmepyError:
        return None
    finally:
        watching = False
        assert not RAN


@settings(max_examples=12)
@given(st.lists(modules(), min_size=1, max_size=3))
def test_generated_modules_are_read_and_put_together(texts):
    try:
        system = system_of([fme.dmi.Module(f"m{i}", text) for i, text in enumerate(texts)])
    except FmepyError as error:  # constants such as 1 / 0; a level here, assigned there
        told = str(error)
    else:
        told = ""
    assert not told or any(word in told for word in ("finite", "range", "zero", "or none is")), told
    if told:
        return
    table = system.element_map
    assert list(table.index) == [e for v in system.variables.values() for e in element_names(v.name, v.shape)]
    for s in system.statements:
        assert isinstance(s, ModuleStatement)
        assert {s.target.name, *(r.name for r in s.reads)} <= set(system.variables)
        hidden = {m.node.name for m in s.memories}
        symbols = {x for x in s.value.free_symbols - {TIME} if x.name.partition("[")[0] not in hidden}
        assert symbols <= {*(r.node for r in s.reads), *CLOCK.values()}
        assert s.shape in ((), s.target.value_shape)
        assert s.renamed({"nobody": "n"}) == s
    for v in system.variables.values():
        endogenous = table.loc[list(v.elements), v.assigned_in].isin(["endogenous", "both"]) if v.assigned_in else None
        assert v.endogenous == (endogenous is not None and bool(endogenous.any(axis=None)))
    found = diagnose(system, {})
    lacking = [v for v in system.variables.values() if v.exogenous]
    assert {v.name for v in lacking} <= {d.variable for d in found if d.kind == "missing"} | {"A", "B", "D", "E"}
    assert len(diagnostics_table(found)) == len(found)


@pytest.mark.parametrize("text", GOOD)
def test_what_is_spoilt_was_good(text):
    assert read(text) is not None


@settings(max_examples=100)
@given(spoilt())
def test_spoilt_modules_are_read_or_refused(text):
    read(text)


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(st.sampled_from(PIECES), st.sampled_from(["x", " = ", "1", " + ", "\n"]), st.text(max_size=4)),
        max_size=12,
    )
)
def test_any_signs_are_read_or_refused(pieces):
    read("".join(pieces))


@pytest.mark.parametrize("piece", PIECES)
def test_no_piece_runs_wherever_it_stands(piece, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in (
        "x = {}",
        "{} = x",
        "x = 1 + {}",
        "x = exp({})",
        "{}",
        "x = [{}, 1]",
        "d({})/dt = 1",
        "dims D[{}]\nD = 1",
    ):
        read(text.replace("{}", piece))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@settings(max_examples=1_000)
@given(spoilt(modules()))
def test_very_many_spoilt_modules_are_read_or_refused(text):
    read(text)
