"""Text -> tree: a right-hand side of the model language parsed by ``ast``, within limits, with our words for mistakes.

The content of the tree is not checked here; `language.text` rebuilds it from a white list.
"""

from __future__ import annotations

import ast
import keyword
import re
import unicodedata
import warnings
from dataclasses import dataclass, field
from itertools import accumulate

from fmepy.errors import ModelTextError
from fmepy.language.functions import TABLE
from fmepy.language.source import Source

MAX_EXPRESSION = 10_000
"""Most characters of one expression or statement."""
MAX_NESTING = 100
"""Most levels of brackets and operators inside one another (a long sum is one level)."""
MAX_NUMBER = 60
"""Most characters of one number."""

_MISREAD = {  # by a part of the message of Python's parser, our own message
    "decimal literal": "a number and a name run into each other; a product is written with *, as in 2*x",
    "comma": "something is missing between two terms; a product is written with *, as in a*x",
    "=": "'=' stands once in a statement; conditions are written with <, <=, >, >=, == and !=",
    "assign": "'=' stands once in a statement; conditions are written with <, <=, >, >=, == and !=",
    "character": "this cannot be read; write plain signs and letters",
}
_SIGNS = {";": "write one statement a line", "'": "a rate is written dN/dt; text in quotes has no meaning in a model"}
_WORDS_ALLOWED = {"and", "or", "not", "if", "else"}
_NUMBER = re.compile(r"(?<![\w.])\.?\d[\w.]*")
_EQUALS = re.compile(r"(?<![<>=!:])=(?!=)")
_CHOICE = re.compile(r"\bif\b|\?")
_WORD = re.compile(r"[^\W\d]\w*")
_KIND = re.compile(r"""(["'])(hold|extrapolate|step)\1""")
"""The kind of a table, the one thing in quotes."""


def reserved_name(name: str) -> str:
    """Return why `name` (in NFKC form) cannot be the name of a variable, or an empty string."""
    if name.startswith("__"):
        return "names that begin with two underscores are reserved"
    if keyword.iskeyword(name):
        return f"{name!r} is a word of the language and cannot be a name; call it {name + '_'!r}"
    if name in TABLE and TABLE[name].in_text:
        return f"{name!r} is a function: it is called with arguments in brackets, and cannot be a name"
    return ""


@dataclass(frozen=True, slots=True)
class Tree:
    """A parsed right-hand side, and where it came from.

    Attributes
    ----------
    node : ast.expr
        The parsed expression; not checked yet.
    code : str
        The code to parse. Its lines are those of `source` from `row` on, moved right by `shift` characters. A power
        may be written ``x^2``; Python's parser gets ``x**2``, and columns are counted back.
    """

    node: ast.expr = field(repr=False)
    code: str
    source: Source = field(repr=False)
    row: int
    shift: int

    def error(self, message: str, node: ast.AST | None = None) -> ModelTextError:
        """Return the error that points at `node` (default: the start); braces in the message are its text."""
        node = self.node if node is None else node
        message = message.replace("{}", self.text(node)) if "{}" in message else message
        row, offset = node.lineno - 1, node.col_offset  # type: ignore[attr-defined]  # every expression has a place
        line = self.code.split("\n")[row]
        column = _column(line, len(_python(line).encode()[:offset].decode(errors="ignore")))
        if (row, column) == (0, 0):  # a tuple or a comprehension takes our own bracket for its own
            column = 1 + len(line[1:]) - len(line[1:].lstrip())
        return self.error_at(message, row, column)

    def error_at(self, message: str, row: int = 0, column: int = 0) -> ModelTextError:
        """Return the error that points at a place in the code."""
        return self.source.error(message, self.row + row, max(0, column - (self.shift if row == 0 else 0)))

    def text(self, node: ast.AST) -> str:
        """Return a piece as the user wrote it, for a message."""
        segment = ast.get_source_segment(_python(self.code) + "\n)", node) or "this"
        if (node.lineno, node.col_offset) == (1, 0):  # type: ignore[attr-defined]  # as in `error`
            segment = segment[1:-1]
        text = " ".join(segment.split())
        return repr(text if len(text) <= 60 else text[:57] + "...")

    def names(self) -> list[ast.Name]:
        """Return the names that occur, in the order in which they are read, functions and constants aside."""
        heads = {id(n.func) for n in ast.walk(self.node) if isinstance(n, ast.Call)}
        names = [n for n in ast.walk(self.node) if isinstance(n, ast.Name) and id(n) not in heads and n.id != "pi"]
        return sorted(names, key=lambda n: (n.lineno, n.col_offset))


def _python(code: str) -> str:
    """Return code with powers as Python writes them."""
    return code.replace("^", "**")


def _column(line: str, column: int) -> int:
    """Return the column in a line as it is written, of a column in the line as Python reads it."""
    widths = (2 if c == "^" else 1 for c in line)
    ends = accumulate(widths)
    return next((i for i, end in enumerate(ends) if end > column), len(line) + column - len(_python(line)))


def parse_tree(lines: list[str], source: Source, row: int, shift: int) -> Tree:
    """Return the tree of an expression whose first line is line `row` of the source.

    Parameters
    ----------
    lines : list of str
        The lines without comments, brackets balanced (see `clean_line`); what precedes the expression is blank.
        The first begins with "(", of which `shift` characters are not in the source.
    """
    code = "\n".join(lines)
    place = Tree(ast.Constant(0.0, lineno=1, col_offset=0), code, source, row, shift)
    if len(code) > MAX_EXPRESSION:
        raise place.error_at(f"this is longer than {MAX_EXPRESSION} characters; split it into assignments")
    _check_words(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SyntaxWarnings and DeprecationWarnings about the user's text
            node = ast.parse(_python(code) + "\n)", mode="eval").body
    except (MemoryError, RecursionError):
        raise too_deep(place) from None
    except (SyntaxError, ValueError) as error:  # ValueError: characters that no Python source may hold
        raise _unreadable(place, error) from None
    return Tree(node, code, source, row, shift)


def too_deep(tree: Tree) -> ModelTextError:
    """Return the error for what cannot be walked through."""
    return tree.error_at("this is too long or too deeply nested; split it into assignments")


def _check_words(place: Tree) -> None:
    """Raise errors for Python's keywords and endless numbers, before the parser's own errors."""
    for i, line in enumerate(place.code.split("\n")):
        for match in _NUMBER.finditer(line):
            if len(match.group()) > MAX_NUMBER:
                raise place.error_at(f"a number of more than {MAX_NUMBER} characters", i, match.start())
        for match in _WORD.finditer(line):
            if keyword.iskeyword(match.group()) and match.group() not in _WORDS_ALLOWED:
                raise place.error_at(reserved_name(match.group()), i, match.start())


def _unreadable(place: Tree, error: SyntaxError | ValueError) -> ModelTextError:
    """Return our error for one of Python's parser."""
    lines = place.code.split("\n")
    row, column = (getattr(error, "lineno", None) or 1) - 1, (getattr(error, "offset", None) or 1) - 1
    if row >= len(lines):  # the closing bracket that we added: the text stops where something more was expected
        return place.error_at("the expression stops too early", len(lines) - 1, len(lines[-1].rstrip()))
    column = _column(lines[row], column)
    theirs = str(getattr(error, "msg", error)).split(" (<")[0]
    message = next((ours for part, ours in _MISREAD.items() if part in theirs), f"this cannot be read: {theirs}")
    if theirs == "invalid syntax" and _CHOICE.search(place.code):
        message = "a choice is written where(x > 0, a, b), or a if x > 0 else b"
    return place.error_at(message, row, column)


def clean_line(line: str, source: Source, row: int, opened: list[tuple[str, int, int]]) -> str:
    """Return a line without its comment, after checking its brackets and characters.

    `opened` holds the brackets that are open, as (bracket, row, column), and is brought up to date.
    """
    for column, c in enumerate(_KIND.sub(lambda m: " " * len(m[0]), line)):
        if c == "#":
            return line[:column]
        if c in "\"'`;":
            why = _SIGNS.get(c, "text in quotes has no meaning in a model")
            raise source.error(f"{c} is not allowed here: {why}", row, column)
        if c in "([{":
            opened.append((c, row, column))
            if len(opened) > MAX_NESTING:
                raise source.error(f"more than {MAX_NESTING} brackets inside one another", row, column)
        elif c in ")]}" and (not opened or opened.pop()[0] + c not in ("()", "[]", "{}")):
            raise source.error(f"{c!r} closes a bracket that was not opened", row, column)
    return line


def check_closed(source: Source, opened: list[tuple[str, int, int]]) -> None:
    """Raise if a bracket is still open at the end of the text."""
    if opened:
        bracket, row, column = opened[-1]
        raise source.error(f"{bracket!r} is never closed", row, column)


def logical_lines(source: Source) -> list[tuple[int, list[str]]]:
    """Return the statements of a text: index of the first line, and the lines without comments."""
    found: list[tuple[int, list[str]]] = []
    opened: list[tuple[str, int, int]] = []
    goes_on = False
    for row, raw in enumerate(source.lines):
        line = clean_line(raw, source, row, opened)
        if not goes_on and not line.strip():
            continue
        if not goes_on:
            found.append((row, []))
        goes_on = line.rstrip().endswith("\\")
        found[-1][1].append(line.rstrip()[:-1] if goes_on else line)
        goes_on = goes_on or bool(opened)
    check_closed(source, opened)
    return found


def split_equation(line: str, row: int, source: Source, forms: str) -> tuple[str, int, int]:
    """Return the left-hand side of a statement's first line, where it begins, and where the right-hand side does."""
    start = len(line) - len(line.lstrip())
    equals = _EQUALS.search(line)
    if equals is None:
        if "==" in line:
            raise source.error("'==' compares two numbers; an equation is written with one '='", row, line.find("=="))
        raise source.error(f"a statement needs '=': {forms}", row, start)
    return unicodedata.normalize("NFKC", line[: equals.start()].strip()), start, equals.end()


def right_side(lines: list[str], row: int, source: Source, end: int) -> Tree:
    """Return the tree of the right side of a statement, whose '=' ends at character `end` of the first line."""
    if not "".join([lines[0][end:], *lines[1:]]).strip():
        left = unicodedata.normalize("NFKC", lines[0][: end - 1].strip())
        raise source.error(f"nothing stands on the right of '=' for {left}", row, end)
    # What precedes the expression becomes one bracket and blanks, so that places in both texts agree.
    return parse_tree(["(" + " " * (end - 1) + lines[0][end:], *lines[1:]], source, row, 0)
