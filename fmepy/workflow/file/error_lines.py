"""Errors of the package, told as mistakes of a file: with its line, in its words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fmepy.errors import ArgumentError, FmepyError, ModelTextError
from fmepy.parameters.entities import entity_text
from fmepy.tables.sheet import Sheet
from fmepy.workflow.file.toml import Place, TomlTable

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
def placed(section: TomlTable, *tables: str, **files: Sheet | None) -> Iterator[None]:
    """Raise errors of what is done inside as errors of the file: at the line of the argument that they speak of.

    Parameters
    ----------
    section : TomlTable
        The whole file.
    *tables : str
        The sections in which arguments stand, those that come first are looked at first; the first is where an error
        that speaks of none belongs.
    **files : Sheet, optional
        See `placed_error`.
    """
    try:
        yield
    except ArgumentError as error:
        raise placed_error(section, tables, error, **files) from error
    except FmepyError as error:  # a model that cannot be run at its start, where that is tried
        raise section.error(tables[0], str(error)) from error


def placed_error(
    section: TomlTable,
    tables: Sequence[str],
    error: ArgumentError,
    data: Sheet | None = None,
    rows: Sheet | None = None,
    conditions: Sheet | None = None,
) -> ArgumentError:
    """Return an error of the package as one of the file.

    `data` is the file whose rows errors speak of by their labels, `rows` by their positions (events), `conditions` by
    the entity.
    """
    text = str(error)
    if text.startswith((f"{section.file}:", *([f"{data.path}:"] if data else []))):
        return error
    at_row = re.search(r"\brow (\d+)", text)
    place = _place(section, tables, error)
    said = re.match(r"line (\d+): ", text)
    for word, ours in _WORDS:
        text = re.sub(word, ours, text)
    if isinstance(error, ModelTextError) and said and place == ("model", "equations"):
        line = section.line(place, int(said[1]))
        return ArgumentError(f"{section.file}:{line}: {text[said.end() :]}")
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
    """Return the line of the entity that an error speaks of, the last where there are several; None of none."""
    named = re.search(r"\b(?:entity|no data of) '([^']*)'", text)
    lines = zip(conditions.lines, conditions.frame.iloc[:, 0], strict=True)
    return next((line for line, label in [*lines][::-1] if named and entity_text(label) == named[1]), None)


def _place(section: TomlTable, tables: Sequence[str], error: ArgumentError) -> Place:
    """Return the key that an error speaks of, the deepest that there is."""
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
            held = section.data.get(table)
            if isinstance(held, dict) and name in held:
                return _deepest((table, name), held[name], inside)
    return (tables[0],)


def _deepest(place: Place, value: object, names: Sequence[str]) -> Place:
    """Return the place of the first of some names inside a table, else that of the table."""
    return (
        (*place, next(n for n in names if n in value)) if isinstance(value, dict) and set(names) & set(value) else place
    )
