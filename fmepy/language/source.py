"""A text as a user wrote it, and messages that show the place in it: line, column, and a caret under the place."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fmepy.errors import ModelTextError


@dataclass(frozen=True, slots=True)
class Source:
    """A text as the user wrote it; makes errors that point into it.

    Attributes
    ----------
    lines : tuple of str
        Its lines.
    where : str
        The name of the text, such as "`state['I']`" or a file name; opens every message.
    line_offset : int
        Number of lines before the first one in the user's file.
    """

    lines: tuple[str, ...]
    where: str = ""
    line_offset: int = 0

    @classmethod
    def of(cls, text: str, where: str = "", line_offset: int = 0) -> Source:
        """Split a text into lines, whatever its line ends."""
        return cls(tuple(text.replace("\r\n", "\n").replace("\r", "\n").split("\n")), where, line_offset)

    def line_number(self, row: int) -> int:
        """Return the number, counted from 1, of the line with index `row`."""
        return row + 1 + self.line_offset

    def error(self, message: str, row: int, column: int) -> ModelTextError:
        """Return the error for a place: index of the line, index of the character in it."""
        number = self.line_number(row)
        place = [self.where] if self.where else []
        if not self.where or len(self.lines) > 1 or self.line_offset:
            place.append(f"line {number}")
        line = self.lines[row] if row < len(self.lines) else ""
        column = min(column, len(line))
        text = f"{', '.join(place)}: {message}\n{_pointed(line, column)}"
        return ModelTextError(text, line=number, column=column + 1)

    @contextmanager
    def at(self, row: int, column: int) -> Iterator[None]:
        """Turn a ValueError meanwhile into the error for a place."""
        try:
            yield
        except ValueError as error:
            raise self.error(str(error), row, column) from None


def _pointed(line: str, column: int, width: int = 100) -> str:
    """Return a line, cut to `width` around the place, and a caret under the place."""
    line = "".join(" " if unicodedata.category(c) in ("Cc", "Zs", "Cs", "Cf") else c for c in line)
    start = max(0, column - width // 2)
    before, after = line[start:column], line[column : start + width]
    if start:
        before = "..." + before
    if start + width < len(line):
        after += "..."
    return f"    {before}{after}".rstrip() + "\n    " + " " * sum(map(_cells, before)) + "^"


def _cells(character: str) -> int:
    """Return how many columns of a terminal a character takes."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
