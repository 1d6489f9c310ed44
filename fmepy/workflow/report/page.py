"""What a page of the report is made of: sections of blocks. The template knows how each of them looks.

Texts here are plain: the template escapes them. The one thing that is markup already is the SVG of a picture, which
`pictures` has written element by element.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup


@dataclass(frozen=True)
class Text:
    """A paragraph; `tone` is "", "good", "bad" or "small"."""

    text: str
    tone: str = ""
    kind: str = "text"


@dataclass(frozen=True)
class Bullets:
    """Sentences one below another."""

    items: tuple[str, ...]
    tone: str = ""
    kind: str = "bullets"


@dataclass(frozen=True)
class Links:
    """Sentences one below another, each behind a link to the section that says more."""

    items: tuple[tuple[str, str], ...]
    kind: str = "links"


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    text: str
    kind: str = "heading"


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what it shows, and what it is sorted by where that is a number."""

    text: str
    key: str = ""
    tone: str = ""
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A table that sorts.

    Attributes
    ----------
    caption : str
    columns : tuple of (str, bool)
        Heads, and whether the column holds numbers.
    rows : tuple of tuple of Cell
    note : str
        What is to be said below it: rows left out.
    """

    caption: str
    columns: tuple[tuple[str, bool], ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    kind: str = "table"


@dataclass(frozen=True)
class Picture:
    """A picture as SVG, with a line below it."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Pictures:
    """Pictures beside each other; `wide` ones have a line of their own."""

    pictures: tuple[Picture, ...]
    caption: str = ""
    wide: bool = False
    kind: str = "pictures"


@dataclass(frozen=True)
class Code:
    """A text as it was written."""

    text: str
    label: str = ""
    kind: str = "code"


@dataclass(frozen=True)
class Facts:
    """Terms and what they are."""

    pairs: tuple[tuple[str, str], ...]
    kind: str = "facts"


@dataclass(frozen=True)
class Folded:
    """Blocks that are shown when asked for (and in print)."""

    summary: str
    blocks: tuple[Block, ...]
    kind: str = "folded"


Block = Text | Bullets | Links | Heading | Table | Pictures | Code | Facts | Folded


@dataclass(frozen=True)
class Section:
    """A section of the page; `name` is its id."""

    name: str
    title: str
    blocks: tuple[Block, ...]
    tone: str = ""


@dataclass
class Draft:
    """Blocks as they come, for a section or a folded part of one."""

    blocks: list[Block] = field(default_factory=list)

    def say(self, *sentences: str, tone: str = "") -> None:
        """Add a paragraph of the sentences that are not empty."""
        text = " ".join(s for s in sentences if s)
        if text:
            self.blocks.append(Text(text, tone))

    def list(self, sentences: Iterable[str], tone: str = "", most: int = 100) -> None:
        """Add sentences as a list, of very many the first and how many there are."""
        told = [s for s in sentences if s]
        if len(told) > most:
            told = [*told[:most], f"and {len(told) - most} more, all of them in run.json"]
        if told:
            self.blocks.append(Bullets(tuple(told), tone))

    def links(self, items: Iterable[tuple[str, str]]) -> None:
        """Add sentences, each behind the name of the section that says more."""
        self.blocks.append(Links(tuple(items)))

    def add(self, *blocks: Block | None) -> None:
        """Add blocks, those that there are."""
        self.blocks += [b for b in blocks if b is not None]

    def head(self, text: str) -> None:
        """Add a heading."""
        self.blocks.append(Heading(text))

    def fold(self, summary: str, blocks: Sequence[Block | None]) -> None:
        """Add blocks that are shown when asked for."""
        kept = tuple(b for b in blocks if b is not None)
        if kept:
            self.blocks.append(Folded(summary, kept))
