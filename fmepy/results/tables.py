"""What results have in common: how they print and show in a notebook, and the table that many of them hold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from fmepy.errors import listed
from fmepy.journal.saving import Saved
from fmepy.results.writing import as_latex, as_markdown

_MOST_ROWS, _MOST_COLUMNS = 60, 14
_WIDTH = 120
_SENTENCE = 100


def readable(frame: pd.DataFrame) -> str:
    """Return a table as text with all its columns, five digits each; long ones show their ends, wide ones as pandas.

    Examples
    --------
    >>> print(readable(pd.DataFrame({"x": [1.0, 2.0], "mean": [919.123456, 0.00012345678]})))
       x       mean
    0  1     919.12
    1  2 0.00012346
    """
    if not len(frame) or len(frame.columns) > _MOST_COLUMNS:
        return repr(frame)
    is_long = len(frame) > _MOST_ROWS
    text = frame.to_string(float_format="{:.5g}".format, max_rows=20 if is_long else None, line_width=_WIDTH)
    return f"{text}\n[{len(frame)} rows; `frame` holds them all]" if is_long else text


def wrapped(sentence: str, first: str = "", others: str = "") -> str:
    """Return a sentence in lines of at most 100 letters; words and names stay whole."""
    return textwrap.fill(
        sentence, _SENTENCE, initial_indent=first, subsequent_indent=others, break_on_hyphens=False,
        break_long_words=False,
    )  # fmt: skip


class Part(NamedTuple):
    """Something that a result shows: as text, and in a notebook.

    A table has its `frame` too and its `look` (format of floats, what stands for NaN, whether labels of rows are
    shown), a list its `items`: what other languages are written from.
    """

    text: str
    html: str
    frame: pd.DataFrame | None = None
    look: tuple[str, str, bool] = ("{:.5g}", "NA", True)
    items: tuple[str, ...] = ()
    is_heading: bool = False


def table(frame: pd.DataFrame, float_format: str | None = None, **kwargs: Any) -> Part:
    """Return a table that is shown whole; further arguments as of ``DataFrame.to_string``."""
    if float_format is not None:
        kwargs["float_format"] = float_format.format
    look = (float_format or "{:.5g}", kwargs.get("na_rep", "NA"), kwargs.get("index", True))
    return Part(frame.to_string(**kwargs), frame.to_html(**kwargs), frame, look)


def long_table(frame: pd.DataFrame) -> Part:
    """Return a table of which the ends are shown where it is long."""
    return Part(readable(frame), frame.to_html(max_rows=20, max_cols=20, show_dimensions=True), frame)


def bullets(sentences: Iterable[str], mark: str = "  - ") -> list[Part]:
    """Return sentences that are shown one below another, each behind a mark: one part, or none without sentences."""
    sentences = list(sentences)
    text = "\n".join(wrapped(s, mark, " " * len(mark)) for s in sentences)
    items = "".join(f"<li>{escape(s)}</li>" for s in sentences)
    return [Part(text, f"<ul>{items}</ul>", items=tuple(sentences))] if sentences else []


def heading(text: str) -> Part:
    """Return a heading."""
    return Part(text, f"<p><b>{escape(text)}</b></p>", is_heading=True)


class Shown(Saved):
    """A result that says once what it shows; how it prints and how it shows in a notebook follow from it."""

    __slots__ = ()

    def shown(self) -> Iterable[str | Part]:
        """Return what stands one below another: sentences, tables, lists; an empty sentence is an empty line."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(part if isinstance(part, str) else part.text for part in self.shown())

    def _repr_html_(self) -> str:
        return as_html(self.shown())

    def to_markdown(self) -> str:
        """Return what it prints in Markdown, tables with all their rows."""
        return as_markdown(self.shown())

    def to_latex(self, *, caption: str | None = None, label: str | None = None) -> str:
        """Return what it prints in LaTeX, tables with all their rows; no package is needed.

        Parameters
        ----------
        caption, label : str, optional
            Given, all stands in a ``table`` that floats.
        """
        return as_latex(self.shown(), caption, label)


def as_html(parts: Iterable[str | Part]) -> str:
    """Return what a result shows, for a notebook."""
    return "".join(p.html if isinstance(p, Part) else f"<p>{escape(p.strip())}</p>" for p in parts if p)


class Framed(Shown):
    """A result with a DataFrame `frame`: `len`, ``[]`` and `columns` reach through to it, and it shows as the table."""

    __slots__ = ()
    if TYPE_CHECKING:  # a field of some, made when it is first asked for in others

        @property
        def frame(self) -> pd.DataFrame:
            """The table."""

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.frame[key]
        except KeyError as error:
            columns = listed(self.frame.columns)
            raise KeyError(f"The table of this {type(self).__name__} has no {error}; it has {columns}.") from error

    @property
    def columns(self) -> pd.Index:
        """Columns of the frame."""
        return self.frame.columns

    def shown(self) -> Iterable[str | Part]:
        """Return the table."""
        return [long_table(self.frame)]
