"""TOML with places: every key has its line, wherever it is written; what cannot be read is told with file and line."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmepy.errors import ArgumentError
from fmepy.workflow.file.signatures import Key, validate
from fmepy.workflow.file.toml import TomlTable, _Scanner

TEXT = """\
# a model
modules = [
    "a.fme",   # ] no end
    "b.fme",
]
times = { start = 0, stop = 1.5e3, step.a = 1 }
note = '''
dt = 3   # no key
"it"'''
other = \"\"\"a "quoted"\"\"\"\"
"quoted key" = 1
a.b.c = 2
date = 1979-05-27T07:32:00Z

[parameters]
SEM = 410.0
"D[0]" = -1

[[runs]]
x = 1
[[runs]]
x = [ { y = 1 },
      { y = 2 } ]
[runs.inner]
z = true
"""
LINES = {
    ("modules",): 2, ("modules", 0): 3, ("modules", 1): 4, ("times",): 6, ("times", "stop"): 6,
    ("times", "step", "a"): 6, ("note",): 7, ("other",): 10, ("quoted key",): 11, ("a",): 12, ("a", "b", "c"): 12,
    ("date",): 13, ("parameters",): 15, ("parameters", "SEM"): 16, ("parameters", "D[0]"): 17, ("runs", 0): 19,
    ("runs", 0, "x"): 20, ("runs", 1): 21, ("runs", 1, "x", 0, "y"): 22, ("runs", 1, "x", 1, "y"): 23,
    ("runs", 1, "inner"): 24, ("runs", 1, "inner", "z"): 25,
}  # fmt: skip


def paths(data, before=()):
    """Return the path of everything in what tomllib returns."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*before, key)
        yield from paths(value, (*before, key))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_key_has_its_line(tmp_path, end):
    file = tmp_path / "m.toml"
    file.write_bytes(TEXT.replace("\n", end).encode())
    section = TomlTable.read(file)
    assert section.data == tomllib.loads(TEXT)
    lines = _Scanner(TEXT).lines
    assert {k: lines[k] for k in LINES} == LINES
    assert set(paths(section.data)) - {("runs",)} <= set(lines)
    assert str(section.table("parameters").error("D[0]", "no")) == f"{file}:17: no"
    assert str(section.error(("times", "stop"), "no")) == f"{file}:6: no"


keys = st.text("abc_-019é .\"'#=[]", min_size=1, max_size=5)
values = st.recursive(
    st.integers(-9, 9) | st.booleans() | st.text("ab\"'#=[]{},\n\\", max_size=6) | st.floats(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def toml(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return "[" + ",\n".join(map(toml, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return repr(value)


@given(st.dictionaries(keys, values, max_size=4))
def test_the_scanner_finds_what_tomllib_finds(data):
    text = "".join(f"{quoted(k)} = {toml(v)}\n" for k, v in data.items())
    lines = _Scanner(text).lines
    assert set(paths(data)) <= set(lines)
    for key in data:
        assert text.split("\n")[lines[(key,)] - 1].startswith(quoted(key))


def test_a_text_of_megabytes_takes_no_memory_of_its_letters(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text('a = "' + "x" * 2_000_000 + '"\nb = 1\n')
    section = TomlTable.read(file)
    assert (len(section.data["a"]), section.line(("b",))) == (2_000_000, 2)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a = 1\nb = = 2\n", r"m\.toml:2: this is no TOML: Invalid value"),
        (b"a = [1,\n", r"m\.toml:\d: this is no TOML"),
        (b"a = 1\na = 2\n", r"m\.toml:2: this is no TOML: the key 'a' stands here for the second time, the first"),
        (b"[t]\na.b = 1\n\na.b = 2\n[[", r"m\.toml:4: .*the key 'a\.b' in t stands .* the first is in line 2"),
        (b'[p]\nk = { s = 1 }\nr = """\nk = 1"""\nk = 3\n', r"m\.toml:5: .*'k' in p stands .* line 2\. Take one"),
        (b"x = [{a = 1}, {a = 1, 'a' = 2}]\n", r"m\.toml:1: .*the key 'a' in x stands"),
        (b"[[r]]\na = 1\n[[r]]\na = 1\na = 2\n", r"m\.toml:5: .*the key 'a' in r stands .* line 4"),
        (b"[a.b]\n[a]\nc = 1\n[a.b]\n", r"m\.toml:4: .*the table \[a\.b\] stands .* line 1"),
        (b"[a]\nb.c = 1\n[a.b]\n", r"m\.toml:3: .*the table \[a\.b\] stands .* line 2"),
        (b"a.b = 1\na = 2\n", r"m\.toml:2: .*the key 'a' stands"),
        (b"a = 1\nb = '\xff'\n", r"m\.toml:2: this is no UTF-8 text"),
        (b"a = " + b"[" * 100_000, r"m\.toml: this cannot be read: brackets"),
        (b"a = " + b"9" * 10_000, r"m\.toml: this cannot be read"),
        (b"#" * 10_000_001, "more than 10 MB"),
        ("a = 'Größe'\n".encode("latin-1"), r"m\.toml:1: this is no UTF-8 text; save the file as UTF-8"),
        (b"b = 1\na" + b".a" * 1_000_000 + b" = 1\n", r"m\.toml:2: this is not a key: it has more than 100 parts"),
    ],
)
def test_what_is_no_toml_is_told(tmp_path, raw, said):
    file = tmp_path / "m.toml"
    file.write_bytes(raw)
    with pytest.raises(ArgumentError, match=said):
        TomlTable.read(file)


def test_a_missing_file_is_told_with_the_nearest(tmp_path):
    (tmp_path / "market.toml").write_text("")
    with pytest.raises(ArgumentError, match=r"no file '.*markt.toml'. Did you mean 'market.toml'\?"):
        TomlTable.read(tmp_path / "markt.toml")
    with pytest.raises(ArgumentError, match="is a folder"):
        TomlTable.read(tmp_path)
    with pytest.raises(ArgumentError, match="no file"):
        TomlTable.read(tmp_path / "none" / "m.toml")


def test_unknown_keys_and_wrong_kinds_are_told_with_their_line(tmp_path):
    file = tmp_path / "m.toml"
    file.write_text('dt = "x"\n[parameters]\nstrat = 1\nx = 2\nl = ["a", 3]\n')
    section = TomlTable.read(file)
    table = section.table("parameters")
    with pytest.raises(ArgumentError) as caught:
        table.check(["start", "x", "l"])
    assert str(caught.value) == f"{file}:3: unknown key 'strat' in parameters; did you mean 'start'?"
    with pytest.raises(ArgumentError, match=r"m.toml:1: unknown key 'dt'; there are 'modules'"):
        section.check(["modules"])
    keys = {"dt": Key((float,)), "parameters": Key((dict,))}
    for known, said in (
        (keys, "m.toml:1: `dt` must be a number; got 'x'"),
        ({**keys, "modules": Key(required=True)}, "the key `modules` is missing"),
    ):
        with pytest.raises(ArgumentError, match=said):
            validate(section, known)
    numbers = {"strat": Key((float,)), "x": Key((float,)), "l": Key((str, list), items=Key((str,)))}
    with pytest.raises(ArgumentError, match=r"m.toml:5: `l` must hold a text in quotes; got 3"):
        validate(table, numbers)
    assert validate(table, {**numbers, "l": Key()})["x"] == 2.0
    assert (table.texts("l"), table.texts("none"), section.texts("dt")) == (["a", 3], [], ["x"])
