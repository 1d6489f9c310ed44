r"""What results show, as LaTeX and as Markdown: sentences, tables, lists.

LaTeX needs no package: lines are ``\hline``. Markdown is GitHub's: pipe tables. What has a meaning in either language
(``_``, ``%``, ``|``, ``*``) is escaped, so that a parameter may have any name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from fmepy.results.tables import Part

_NUMBER = re.compile(r"(<\s*)?(-?\d+(?:\.\d+)?|-?Inf|-?inf)(?:e([+-]?\d+))?")
_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
}  # fmt: skip


_SIGNS = {"±": r"$\pm$", "×": r"$\times$", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$\infty$", "²": "$^2$", "³": "$^3$"}


def escape_latex(text: str) -> str:
    r"""Return a text that LaTeX prints as it is.

    Examples
    --------
    >>> escape_latex("a_1 & 5 %")
    'a\\_1 \\& 5 \\%'
    """
    return "".join(_LATEX.get(c) or (_special(c) if ord(c) > 127 else c) for c in text)


def _special(letter: str) -> str:
    """Return a Greek letter or a sign as math, which every LaTeX knows."""
    name = unicodedata.name(letter, "").split()
    if name[:1] in (["GREEK"], ["MICRO"]) and len(name) in (2, 4):
        greek = "mu" if len(name) == 2 else {"LAMDA": "lambda"}.get(name[3], name[3].lower())
        return rf"$\{greek.capitalize() if name[1] == 'CAPITAL' else greek}$"
    return _SIGNS.get(letter, letter)


def escape_markdown(text: str) -> str:
    r"""Return a text that Markdown prints as it is.

    Examples
    --------
    >>> escape_markdown("a|b and *c*")
    'a\\|b and \\*c\\*'
    """
    return re.sub(r"([\\`*_{}\[\]<>|~$#])", r"\\\1", text)


# --- tables


class _Cells(NamedTuple):
    """A table as texts: the columns' heads, the rows, which columns hold numbers, and how many are labels."""

    heads: list[str]
    rows: list[list[str]]
    numeric: list[bool]


def _cells(frame: pd.DataFrame, float_format: str, na_rep: str, index: bool) -> _Cells:
    columns: list[tuple[str, list[str]]] = []
    labels = frame.index
    if index and not (isinstance(labels, pd.RangeIndex) and labels.name is None):
        for level, name in enumerate(labels.names):
            texts = _texts(labels.get_level_values(level), float_format, na_rep)
            columns.append(("" if name is None else str(name), texts))
    n_labels = len(columns)
    heads: list[Any] = list(frame.columns)
    for j, name in enumerate(heads):
        head = ", ".join(map(str, name)) if isinstance(name, tuple) else str(name)
        columns.append((head, _texts(frame.iloc[:, j], float_format, na_rep)))
    numeric = [
        j >= n_labels and all(_NUMBER.fullmatch(t) or t in ("", "NA", na_rep) for t in texts)
        for j, (_, texts) in enumerate(columns)
    ]
    rows = [[texts[i] for _, texts in columns] for i in range(len(frame))]
    return _Cells([name for name, _ in columns], rows, numeric)


def _texts(column: Any, float_format: str, na_rep: str) -> list[str]:
    out = []
    for value, missing in zip(column.tolist(), np.asarray(column.isna()), strict=True):
        if missing:
            out.append(na_rep)
        elif isinstance(value, float):
            out.append(float_format.format(value))
        else:
            out.append(" ".join(str(value).split()))
    return out


def _latex_cell(text: str) -> str:
    match = _NUMBER.fullmatch(text)
    if match is None:
        return escape_latex(text)
    below, mantissa, power = match.groups()
    number = mantissa.replace("Inf", r"\infty").replace("inf", r"\infty")
    number += "" if power is None else rf" \times 10^{{{int(power)}}}"
    is_plain = power is None and below is None and mantissa.replace(".", "").isdigit()
    return number if is_plain else f"${'< ' if below else ''}{number}$"


def _latex_table(cells: _Cells) -> str:
    how = "".join("r" if numeric else "l" for numeric in cells.numeric)
    lines = [" & ".join(escape_latex(h) for h in cells.heads)]
    lines += [" & ".join(_latex_cell(t) for t in row) for row in cells.rows]
    lines = [f"{{}}{line}" if line[:1] in ("[", "*") else line for line in lines]  # or the line break before takes it
    head, *body = (line + r" \\" for line in lines)
    return "\n".join([rf"\begin{{tabular}}{{{how}}}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}"])


def _markdown_table(cells: _Cells) -> str:
    columns = [[escape_markdown(c) for c in (head, *texts)]
               for head, *texts in zip(cells.heads, *cells.rows, strict=True)]  # fmt: skip
    widths = [max(3, *map(len, column)) for column in columns]
    for column, width, numeric in zip(columns, widths, cells.numeric, strict=True):
        column.insert(1, "-" * (width - 1) + ":" if numeric else "-" * width)
        column[:] = [c.rjust(width) if numeric else c.ljust(width) for c in column]
    return "\n".join(f"| {' | '.join(row)} |" for row in zip(*columns, strict=True))


# --- everything


def as_markdown(parts: Iterable[str | Part]) -> str:
    """Return what a result shows in Markdown."""
    out = []
    for part in parts:
        if isinstance(part, str):
            out.append(escape_markdown(_one_line(part)))
        elif part.frame is not None:
            out.append(_markdown_table(_cells(part.frame, *part.look)) if part.frame.size else "")
        elif part.items:
            out.append("\n".join(f"- {escape_markdown(_one_line(item))}" for item in part.items))
        elif part.is_heading:
            out.append(f"**{escape_markdown(part.text)}**")
        else:
            out.append(f"```\n{part.text}\n```")
    return "\n\n".join(filter(None, out)) + "\n"


def as_latex(parts: Iterable[str | Part], caption: str | None = None, label: str | None = None) -> str:
    """Return what a result shows in LaTeX; with a caption or label in a ``table`` that floats."""
    out = []
    for part in parts:
        if isinstance(part, str):
            out.append(escape_latex(_one_line(part)))
        elif part.frame is not None:
            out.append(_latex_table(_cells(part.frame, *part.look)) if part.frame.size else "")
        elif part.items:
            items = [rf"\item {escape_latex(_one_line(item))}" for item in part.items]
            out.append("\n".join([r"\begin{itemize}", *items, r"\end{itemize}"]))
        elif part.is_heading:
            out.append(rf"\textbf{{{escape_latex(part.text)}}}")
        else:
            out.append("\\begin{verbatim}\n" + part.text + "\n\\end{verbatim}")
    body = "\n\n".join(filter(None, out))
    if caption is None and label is None:
        return body + "\n"
    head = [] if caption is None else [rf"\caption{{{escape_latex(caption)}}}"]
    head += [] if label is None else [rf"\label{{{label}}}"]
    return "\n".join([r"\begin{table}", r"\centering", *head, "", body, r"\end{table}"]) + "\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())


LEGEND = "Signif. codes: 0 '***' 0.001 '**' 0.01 '*' 0.05 '.' 0.1 ' ' 1"


def marks(p_values: Sequence[float]) -> list[str]:
    """Return R's marks of significance.

    Examples
    --------
    >>> marks([0.0001, 0.005, 0.04, 0.07, 0.5])
    ['***', '**', '*', '.', '']
    """
    limits = ((0.001, "***"), (0.01, "**"), (0.05, "*"), (0.1, "."))
    return [next((mark for limit, mark in limits if p < limit), "") for p in p_values]
