"""Files of other programs, read as data: tables with tabs, and XML without entities."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

import pandas as pd

from fmepy.errors import DataError, ModelError, repeated
from fmepy.tables.text_files import read_text, rows_of


def read_tsv(path: Path, most: int) -> tuple[pd.DataFrame, list[int]]:
    """Return the cells of a table with tabs as texts, and the line of each row; # begins a comment."""
    numbered = enumerate(re.split(r"\r\n|\r|\n", read_text(path, most)), 1)
    lines = [(i, re.sub(r'("[^"]*")|#.*', r"\1", line)) for i, line in numbered]
    if not any(line.strip() for _, line in lines):
        raise DataError(f"{path}: the file is empty.")
    (first, head), *rows = rows_of(str(path), [(i, line) for i, line in lines if line.strip()], "\t")
    if twice := repeated(filter(None, head)):
        raise DataError(f"{path}, line {first}: the column {twice[0]!r} is there twice; keep one of them.")
    for line, cells in rows:
        cells += [""] * (len(head) - len(cells))
        if any(c for j, c in enumerate(cells) if j >= len(head) or not head[j]):
            raise DataError(
                f"{path}, line {line}: there are {len(cells)} cells, and {len(head) - head.count('')} columns."
            )
    frame = pd.DataFrame([cells[: len(head)] for _, cells in rows], columns=head, dtype=str)
    return frame[[name for name in head if name]], [line for line, _ in rows]


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
        The beginning of messages.
    most_depth : int
        Largest depth of nested elements.
    check : callable, optional
        Called with the root, whose tag then begins with its namespace, once it is read; other elements are dropped.

    Raises
    ------
    ModelError
        The XML is not well-formed (line and column are named) or nested too deeply; or it has a document type or an
        entity, which can expand without limit or read other files.
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
