"""Files from elsewhere, read as data: bytes within a limit, text, tables, XML without what grows or leads away."""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from xml.parsers import expat

import pandas as pd

from fmepy.errors import DataError, FmepyError, ModelError
from fmepy.journal.files import read_file


def read_bytes(path: Path, most: int, error: type[FmepyError] = ModelError) -> bytes:
    """Return what a file holds, which may have so many bytes; raise an error of a kind where it cannot be read."""
    try:
        return read_file(path, most)
    except OSError as why:
        raise error(f"{path} cannot be read: {why.strerror or why}.") from None


def read_text(path: Path, most: int, error: type[FmepyError] = ModelError, other: str = "") -> str:
    """Return a text in UTF-8, in UTF-16 with its mark, else in another encoding where one is given."""
    data = read_bytes(path, most, error)
    try:
        text = data.decode("utf-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode(other, errors="replace") if other else "\0"
    if "\0" in text:
        raise error(f"{path} is no text in UTF-8; save it as that.")
    return text


def read_tsv(path: Path, most: int) -> tuple[pd.DataFrame, list[int]]:
    """Return the cells of a table with tabs between them, as texts, and the line of each row; # opens a comment."""
    text = StringIO(read_text(path, most, DataError), newline=None)
    reader = csv.reader((re.sub(r'("[^"]*")|#.*', r"\1", line) for line in text), delimiter="\t", strict=True)
    rows, lines = [], []
    try:
        for cells in reader:
            if any(map(str.strip, cells)):
                rows.append(cells)
                lines.append(reader.line_num)
    except csv.Error as why:
        raise DataError(f"{path}, line {reader.line_num}: {why}. (A quotation mark that is not closed?)") from None
    if not rows:
        raise DataError(f"{path}: the file is empty.")
    head = [name.strip() for name in rows[0]]
    for name in head:
        if name and head.count(name) > 1:
            raise DataError(f"{path}, line {lines[0]}: the column {name!r} is there twice; keep one of them.")
    for line, cells in zip(lines, rows, strict=True):
        cells += [""] * (len(head) - len(cells))
        if any(c.strip() for j, c in enumerate(cells) if j >= len(head) or not head[j]):
            raise DataError(
                f"{path}, line {line}: there are {len(cells)} cells, and {len(head) - head.count('')} columns."
            )
    frame = pd.DataFrame([cells[: len(head)] for cells in rows[1:]], columns=head, dtype=str)
    return frame[[name for name in head if name]], lines[1:]


@dataclass
class Element:
    """An element of an XML file, with its line."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name."""
        return self.attributes.get("name", "")

    def all(self, *tags: str) -> list[Element]:
        """Return the children of some tags."""
        return [c for c in self.children if c.tag in tags]

    def first(self, tag: str) -> Element:
        """Return the first child of a tag, an empty one where there is none."""
        return next(iter(self.all(tag)), Element(tag, {}, self.line))


def parse_xml(data: bytes, path: str, most_depth: int, check: Callable[[Element], None] | None = None) -> Element:
    """Return the root of an XML file.

    Parameters
    ----------
    data : bytes
    path : str
        What messages open with.
    most_depth : int
        Elements that may be inside one another.
    check : callable, optional
        Called with the root, whose tag then begins with its namespace, as soon as it is there; nothing else is kept.

    Raises
    ------
    ModelError
        It is not whole (line and column are named), or nested too deeply; a document type or an entity, from which
        files grow or read others.
    """
    parser = expat.ParserCreate(namespace_separator=None if check is None else " ")
    open_ones = [Element("", {}, 1)]
    roots = open_ones[0].children

    def error(why: str) -> ModelError:
        return ModelError(f"{path}, line {parser.CurrentLineNumber}: {why}")

    def refuse(*_: object) -> None:
        raise error(
            "document types and entities are refused: entities read other files or grow. Take the <!DOCTYPE ...> out "
            "of the file."
        )

    def opened(tag: str, attributes: dict[str, str]) -> None:
        if len(open_ones) > most_depth:
            raise error(f"more than {most_depth} elements inside one another.")
        new = Element(tag, attributes, parser.CurrentLineNumber)
        if check is None or not roots:
            open_ones[-1].children.append(new)
        if check is not None and len(open_ones) == 1:
            check(new)
        open_ones.append(new)

    def text(data: str) -> None:
        open_ones[-1].text += data

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler = opened
    parser.CharacterDataHandler = text if check is None else None
    parser.EndElementHandler = lambda _: open_ones.pop()
    parser.buffer_text = True
    try:
        parser.Parse(data, True)
    except expat.ExpatError as why:
        place = f"{path}, line {why.lineno}, column {why.offset + 1}"
        raise ModelError(f"{place}: this is no whole XML ({expat.ErrorString(why.code)}).") from None
    except (LookupError, ValueError) as why:
        if isinstance(why, ModelError):
            raise
        raise ModelError(f"{path}: the encoding of the XML is not known ({why}).") from None
    return roots[0]
