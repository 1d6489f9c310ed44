"""A TOML file with the line of each key, so that every message can name the line.

The standard library's ``tomllib`` reads the file and keeps no positions; a scanner over the same text, which is known
to be valid by then, finds the lines.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from fmepy.errors import ArgumentError, FmepyError, ModelTextError, did_you_mean, listed
from fmepy.journal.files import MOST_TEXT
from fmepy.parameters.entities import entity_text
from fmepy.tables.sheet import Sheet
from fmepy.tables.text_files import read_text
from fmepy.vocabulary import own_key

Place = tuple[str | int, ...]
"""Names of tables and keys from the outside to the inside, and positions in arrays."""

_PART = r"""(?:[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n]++)*+"|'[^'\n]*+')"""
_PATH = rf"{_PART}(?:[ \t]*+\.[ \t]*+{_PART})*+"
_HEADER = re.compile(rf"\[{{1,2}}[ \t]*+{_PATH}[ \t]*+\]{{1,2}}")
_TOKEN = re.compile(
    rf"""(?P<skip>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)|(?P<key>{_PATH}[ \t]*+=)"""
    r"""|(?P<value>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n]++)*+"|'[^'\n]*'|[^\s\[\]{},=\#"']+)"""
    r"""|(?P<mark>[\[\]{},])""",
    re.DOTALL,
)
_MOST_DEEP = 100
_DEEP = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_MOST_DEEP}}}")


class TomlTable:
    """A table of a TOML file, with the lines of its keys.

    Attributes
    ----------
    file : Path
    data : dict
        What it holds.
    text : str
        The text of the whole file.
    """

    def __init__(self, file: Path, data: dict[str, Any], scanner: _Scanner, path: Place = ()) -> None:
        self.file, self.data, self._scanner, self._path = file, data, scanner, path
        self.text = scanner.text

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return a file.

        Raises
        ------
        ArgumentError
            There is none, it is too large, no UTF-8, or no TOML; with the line.
        """
        path = Path(path)
        text = read_text(path, MOST_TEXT, ArgumentError).replace("\r\n", "\n")
        if deep := _DEEP.search(text):  # tomllib's time grows with the square of the depth
            place = f"{path}:{text.count(chr(10), 0, deep.start()) + 1}"
            raise ArgumentError(f"{place}: this is not a key: it has more than {_MOST_DEEP} parts.")
        try:
            data, scanner = tomllib.loads(text), _Scanner(text)
        except tomllib.TOMLDecodeError as error:
            match = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL)
            line = (match and match[2]) or str(text.count("\n") + 1)
            if re.match("Cannot|Duplicate", str(error)) and (twice := _Scanner(text).twice):
                raise ArgumentError(f"{path}:{twice}") from None
            raise ArgumentError(f"{path}:{line}: this is no TOML: {match[1] if match else error}.") from None
        except (RecursionError, MemoryError, ValueError) as error:  # ValueError: a number of thousands of digits
            why = error if isinstance(error, ValueError) else "brackets are nested too deeply, or a text is too long"
            raise ArgumentError(f"{path}: this cannot be read: {why}.") from None
        return cls(path, data, scanner)

    @property
    def name(self) -> str:
        """What the table is called, from the outside to the inside."""
        return ".".join(map(str, self._path))

    def error(self, key: str | int | Place, message: str) -> ArgumentError:
        """Return the error about a key, with file and line."""
        inner = key if isinstance(key, tuple) else (key,)
        line = self.line(inner)
        return ArgumentError(f"{self.file}{f':{line}' if line else ''}: {message}")

    def line(self, key: Place, line: int = 0) -> int:
        """Return the line of a key (0: of none), or of the line `line`, from 1, of the text that is its value."""
        where = (*self._path, *key)
        if line and where in self._scanner.texts:
            return self._scanner.texts[where] + line - 1
        while where:
            if where in self._scanner.lines:
                return self._scanner.lines[where]
            inside = [at for k, at in self._scanner.lines.items() if k[: len(where)] == where]
            if inside:  # a whole that is written in parts, such as [[x]]: the first of them
                return min(inside)
            where = where[:-1]
        return 0

    def check(self, known: Iterable[str]) -> None:
        """Refuse keys that are not known, naming the nearest."""
        names = list(known)
        for key in self.data:
            if key not in names:
                inside = f" in {self.name}" if self._path else ""
                near = did_you_mean(key, names).strip().removeprefix("Did").removesuffix("?")
                hint = f"; did{near}?" if near else f"; there are {listed(names)}"
                hint = f"; here it is {own}" if (own := own_key(key, names)) else hint
                raise self.error(key, f"unknown key {key!r}{inside}{hint}")

    def texts(self, key: str) -> list[str]:
        """Return a text or a list of texts as a list, an empty one where there is no such key."""
        value = self.data.get(key, [])
        return [value] if isinstance(value, str) else list(value)

    def table(self, key: str) -> TomlTable:
        """Return a table inside this one, an empty one where there is none."""
        return self.inside(key, self.data.get(key, {}))

    def inside(self, key: str | int | Place, data: dict[str, Any]) -> TomlTable:
        """Return the table at a key, or at a deeper place."""
        return TomlTable(self.file, data, self._scanner, (*self._path, *(key if isinstance(key, tuple) else (key,))))

    def path_of(self, text: str) -> Path:
        """Return a path relative to the folder of the file."""
        return self.file.parent / Path(text).expanduser()


class _Scanner:
    """Finds the line of every key of a valid TOML text, and that in which a text of several lines begins.

    Where a key occurs twice it ends there, and `twice` names the key.
    """

    def __init__(self, text: str) -> None:
        self.text, self.twice = text, ""
        self.lines: dict[Place, int] = {}
        self.texts: dict[Place, int] = {}
        self._defined = set[Place]()  # keys with a value, and tables with a header
        self._counts: dict[Place, int] = {}  # of the tables in arrays of tables
        ends = [i for i, c in enumerate(text) if c == "\n"]
        table: Place = ()
        value: Place = ()  # the place of what comes next; none: a statement begins
        inside: list[tuple[Place, bool]] = []  # brackets that are open: their places, and whether they are arrays
        begin = 0
        for token in _TOKEN.finditer(text):
            kind, word, line = token.lastgroup, token.group(), bisect_right(ends, token.start() - 1) + 1
            if self.twice:
                return
            if token.start() < begin:  # of a header
                continue
            if kind == "newline" and not inside:
                value = ()
            elif kind == "key":
                value = self._pair(inside[-1][0] if inside else table, _parts(f"{word} 0"), line)
            elif word == "[" and not value and (header := _HEADER.match(text, token.start())):
                table, begin = self._header(header.group(), line), header.end()
            elif kind == "value" or word in ("[", "{"):
                self.lines.setdefault(value, line)
                if word[:3] in ('"""', "'''"):  # a line break right after the opening is none of the text's
                    self.texts.setdefault(value, line + (word[3:4] == "\n"))
                elif kind == "mark":
                    inside.append((value, word == "["))
                    value = (*value, 0)
            elif word == "," and inside and inside[-1][1]:
                value = (*value[:-1], int(value[-1]) + 1)
            elif word in ("]", "}") and inside:
                value = inside.pop()[0]

    def _header(self, text: str, line: int) -> Place:
        """Read ``[a.b]`` or ``[[a.b]]`` and return the table that it opens."""
        path: Place = ()
        parts, is_array = _parts(text), text.startswith("[[")
        for n, part in enumerate(parts, 1):
            path = (*path, part)
            if path in self._counts and not (is_array and n == len(parts)):
                path = (*path, self._counts[path])  # the last one of an array of tables is meant
        if is_array:
            self._counts[path] = self._counts.get(path, -1) + 1
            path = (*path, self._counts[path])
        self._define(path, line, f"the table [{'.'.join(parts)}]")
        return path

    def _pair(self, table: Place, parts: Sequence[str], line: int) -> Place:
        """Record a key, and the tables on its path, and return the place of its value."""
        path, inside = (*table, *parts), ".".join(part for part in table if isinstance(part, str))
        for n in range(len(table) + 1, len(path)):
            self.lines.setdefault(path[:n], line)
        self._define(path, line, f"the key {'.'.join(parts)!r}{f' in {inside}' if inside else ''}")
        return path

    def _define(self, path: Place, line: int, what: str) -> None:
        """Record the line of a path, or that the path occurs for the second time."""
        first = self.lines.setdefault(path, line)
        if first != line or path in self._defined:
            self.twice = self.twice or (
                f"{line}: this is no TOML: {what} stands here for the second time, the first is in line {first}. Take "
                "one of them out."
            )
        self._defined.add(path)


def _parts(text: str) -> list[str]:
    """Return the names that a key or a header, itself a TOML text, is made of."""
    table, parts = tomllib.loads(text), list[str]()
    while isinstance(table, dict) and table:
        (part, table), *_ = table.items()
        parts.append(part)
    return parts


# --- errors of the package as errors of a file: with its line, under its names

_WORDS = (
    (r"`parms`", "[parameters]"),
    (r"`obs`", "the data"),
    (r",? such as parms=\{[^}]*\}", ""),
    (r"\bparms=\{[^}]*\}", "[parameters]"),
    (r"\bin obs\b", "in the data"),
    (r"\bobs\[", "data["),
    (r", such as conditions\.\S+$", "."),
)
"""What functions call the things of a file."""


@contextmanager
def located(section: TomlTable, *tables: str, **files: Sheet | None) -> Iterator[None]:
    """Re-raise errors as errors of the file, with the line of the argument that they are about.

    Parameters
    ----------
    section : TomlTable
        The whole file.
    *tables : str
        The sections in which arguments stand, those that come first are looked at first; the first is where an error
        that speaks of none belongs.
    **files : Sheet, optional
        See `located_error`.
    """
    try:
        yield
    except ArgumentError as error:
        raise located_error(section, tables, error, **files) from error
    except FmepyError as error:  # a model that cannot be run at its start, where that is tried
        raise section.error(tables[0], str(error)) from error


def located_error(
    section: TomlTable,
    tables: Sequence[str],
    error: ArgumentError,
    data: Sheet | None = None,
    rows: Sheet | None = None,
    conditions: Sheet | None = None,
) -> ArgumentError:
    """Return an error of the package as an error of the file, with its line.

    `data` is the file whose rows errors speak of by their labels, `rows` by their positions (events), `conditions` by
    the entity.
    """
    text = str(error)
    if text.startswith((f"{section.file}:", *([f"{data.path}:"] if data else []))):
        return error
    at_row = re.search(r"\brow (\d+)", text)
    place = _place(section, tables, error)
    at_line = re.match(r"line (\d+): ", text)
    for word, ours in _WORDS:
        text = re.sub(word, ours, text)
    if isinstance(error, ModelTextError) and at_line and place == ("model", "equations"):
        line = section.line(place, int(at_line[1]))
        return ArgumentError(f"{section.file}:{line}: {text[at_line.end() :]}")
    if at_row and data is not None and int(at_row[1]) in data.frame.index:
        return data.error(text.replace(at_row[0], f"line {at_row[1]}"), int(at_row[1]))
    at_event = re.match(r"`events`, row (\d+): |`events\[(\d+)\]", text)
    if at_event and rows is not None:
        return rows.error(
            text.removeprefix(at_event[0] if at_event[1] else ""), rows.lines[int(at_event[1] or at_event[2])]
        )
    if place == ("conditions",) and conditions is not None:
        return conditions.error(text.removeprefix("`conditions`: "), _line_of_entity(text, conditions))
    return section.error(place, text)


def _line_of_entity(text: str, conditions: Sheet) -> int | None:
    """Return the line of the entity that an error names, the last of several; None without one."""
    named = re.search(r"\b(?:entity|no data of) '([^']*)'", text)
    lines = zip(conditions.lines, conditions.frame.iloc[:, 0], strict=True)
    return next((line for line, label in [*lines][::-1] if named and entity_text(label) == named[1]), None)


def _place(section: TomlTable, tables: Sequence[str], error: ArgumentError) -> Place:
    """Return the deepest key that an error is about."""
    text = str(error)
    if isinstance(error, ModelTextError) and re.match(r"line \d+: ", text):
        return ("model", "equations")
    words = re.findall(r"`?(\w+)\[['\"]([^'\"]+)['\"]\]|`(\w+)(?:=[^`]*)?`", text)
    for word, inner, alone in words:
        name = word or alone
        quoted = re.findall(r"'([^']+)'", text)
        inside = [inner] if inner else quoted
        if name == "parms":
            name = "parameters"
        if isinstance(section.data.get(name), (dict, list)):
            return _deepest((name,), section.data[name], inside)
        for table in tables:
            content = section.data.get(table)
            if isinstance(content, dict) and name in content:
                return _deepest((table, name), content[name], inside)
    return (tables[0],)


def _deepest(place: Place, value: object, names: Sequence[str]) -> Place:
    """Return the place of the first of some names inside a table, else that of the table."""
    return (*place, *[n for n in names if isinstance(value, dict) and n in value][:1])
