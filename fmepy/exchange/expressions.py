"""Expressions of Vensim, XMILE and PEtab -> trees: one parser with limits for all; no text is executed.

``^`` is right-associative and binds tighter than a minus before a name. The minus of a number is part of it, so that
``-2^2`` is 4, except in PEtab, where it is -4; there ``&&`` and ``||`` have equal precedence, and comparisons are
left-associative.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from fmepy.language.tree import MAX_NESTING, MAX_NUMBER

Rule = Callable[["Expr"], "Expr | None"]

MOST_TOKENS = 50_000
"""Largest number of tokens of one equation."""
_NUMBER = r"(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
_QUOTED = r'(?P<quoted>"(?:\\.|[^"\\])*")|(?P<text>\'[^\']*\')'
_SIGNS = r"(?P<sign>:[A-Za-z][A-Za-z ]*:|<->|<>|<=|>=|->|:=|==|//|.)"
_SPACE = r"(?P<space>(?:\s|\\\s*\n|\{[^{}]*\})+)"
_OTHER = r"\x80-\U0010ffff"  # marks of other scripts, which are no letters
_LETTER = rf"(?:[^\W\d]|[{_OTHER}])"
_WORDS = {
    dialect: re.compile(f"{_SPACE}|{_QUOTED}|(?P<name>{word})|{_NUMBER}|{_SIGNS}", re.S)
    for dialect, word in (
        ("mdl", rf"{_LETTER}[\w$'{_OTHER}]*(?:(?:\s|\\\s*\n)+[\w$'{_OTHER}]+)*"),
        ("xmile", rf"{_LETTER}[\w$.{_OTHER}]*"),
    )
}
_WORDS["petab"] = re.compile(
    rf"(?P<space>\s+)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|{_NUMBER}"
    r"|(?P<sign>&&|\|\||<=|>=|==|!=|[-+*/^()<>!,])|(?P<other>.)", re.S
)  # fmt: skip
_INFIX = ("and", "or", "not", "mod", "if", "then", "else")
"""Names that are operators of XMILE."""
_LEVEL = {
    ":or:": 1, "or": 1, ":and:": 2, "and": 2, "=": 4, "<>": 4, "<": 4, ">": 4, "<=": 4, ">=": 4, "+": 5, "-": 5,
    "*": 6, "/": 6, "//": 6, "mod": 6, "^": 8,
}  # fmt: skip
_LEVEL_IN_PETAB = {"&&": 1, "||": 1, "==": 4, "!=": 4} | {s: _LEVEL[s] for s in ("<", ">", "<=", ">=", *"+-*/^")}
_NOT = {"mdl": {":not:": 3}, "xmile": {":not:": 3, "not": 3}, "petab": {"!": 8}}
"""By dialect the words for not, with their precedence."""
_MINUS = 8


class ReadError(Exception):
    """A text that cannot be read, or cannot be expressed here: a message, and the line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


class Token(NamedTuple):
    """A token: its kind (name, number, quoted, text or sign); its text; its line, in PEtab its character."""

    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Expr:
    """A part of an expression.

    Attributes
    ----------
    word : str
        number, name, call, chain (operators of one level), power, minus, not, points, text.
    args : tuple of Expr
    value : object
        The number; the key of a name or function; the operators of a chain; the points of a table; the text.
    subs : tuple of Expr
        The subscripts of a name: names, numbers, ``each`` (with !), ``all`` (*).
    line : int
        In the file; of a formula of PEtab the character.
    """

    word: str
    args: tuple[Expr, ...] = ()
    value: Any = None
    subs: tuple[Expr, ...] = ()
    line: int = field(default=0, compare=False)

    def parts(self, subscripts: bool = True) -> Iterator[Expr]:
        """Yield the expression and all its parts."""
        waiting = [self]
        while waiting:
            e = waiting.pop()
            yield e
            waiting += [*e.args, *(e.subs if subscripts else ())]

    def changed(self, rule: Rule) -> Expr:
        """Return the expression with parts replaced by a rule; where it returns None, their parts are replaced."""
        if (new := rule(self)) is not None:
            return new
        if not self.args and not self.subs:
            return self
        args, subs = ([a.changed(rule) for a in v] for v in (self.args, self.subs))
        return replace(self, args=tuple(args), subs=tuple(subs))


def number(value: float, line: int = 0) -> Expr:
    """Return a number as an expression."""
    return Expr("number", value=float(value), line=line)


def name(key: str, subs: tuple[Expr, ...] = (), line: int = 0) -> Expr:
    """Return a name as an expression."""
    return Expr("name", value=key, subs=subs, line=line)


def called(function: str, *args: Expr, line: int = 0) -> Expr:
    """Return the call of a function as an expression."""
    return Expr("call", args, function, line=line)


def key_of(text: str) -> str:
    """Return the key by which names are compared: without quotes, case, and kinds or numbers of blanks.

    Examples
    --------
    >>> key_of("Room  Temperature"), key_of('"room_temperature"')
    ('room_temperature', 'room_temperature')
    """
    return re.sub(r"(?:[\s_\u00a0]|\\[nr])+", "_", shown(text)).strip("_").casefold()


def shown(text: str) -> str:
    """Return a name as a program shows it: without quotes, and with single blanks."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].replace('\\"', '"')
    return " ".join(text.replace("\\\n", " ").split())


def tokens_of(text: str, dialect: str, line: int) -> list[Token]:
    """Return the tokens of a text whose first line is `line`."""
    tokens: list[Token] = []
    for match in _WORDS[dialect].finditer(text):
        kind, word = match.lastgroup or "", match.group()
        if kind != "space":
            tokens.append(Token(kind, word, line if dialect != "petab" else match.start() + 1))
            if kind == "other":
                raise ReadError(f"{word!r} cannot be read", tokens[-1].line)
            if kind == "number" and (len(word) > MAX_NUMBER or float(word) == float("inf")):
                raise ReadError("a number beyond the range of floating point, or of too many digits", line)
            if len(tokens) > MOST_TOKENS:
                raise ReadError(f"an equation of more than {MOST_TOKENS} words", line)
        line += word.count("\n")
    return tokens


class Reader:
    """A parser of expressions from tokens, by precedence climbing."""

    def __init__(self, tokens: list[Token], dialect: str) -> None:
        self._tokens, self._dialect = tokens, dialect
        self._level = _LEVEL if dialect != "petab" else _LEVEL_IN_PETAB
        self._at = self._depth = 0
        self._end = Token("end", "", tokens[-1].line if tokens else 0)

    # tokens

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    def peek(self, n: int) -> str:
        """Return the text of the n-th token from here."""
        return self._tokens[self._at + n].text if self._at + n < len(self._tokens) else ""

    def next(self) -> Token:
        """Return the next token and advance."""
        token = self.token
        self._at += 1
        return token

    def accept(self, sign: str) -> bool:
        """Advance if the next token is the given sign; return whether it is."""
        is_next = self.token.kind != "quoted" and self.token.text.casefold() == sign
        self._at += is_next
        return is_next

    def expect(self, sign: str) -> None:
        """Advance past a sign, which must be the next token."""
        if not self.accept(sign):
            raise self.error(f"{sign!r} is missing {self._place()}")

    def _place(self) -> str:
        return f"before {self.token.text!r:.40}" if self.token.text else "at the end"

    def error(self, message: str) -> ReadError:
        """Return the error at the next token."""
        return ReadError(message, self.token.line)

    def expect_end(self) -> None:
        """Refuse further tokens."""
        if self.token.kind != "end":
            raise self.error(f"{self.token.text!r:.40} is not understood there")

    def name(self) -> str:
        """Return the name that must come next, as written."""
        if self.token.kind not in ("name", "quoted"):
            raise self.error(f"a name is missing {self._place()}")
        text = self.next().text
        while self._dialect == "xmile" and self.token.kind == "name" and self.token.text.casefold() not in _INFIX:
            text += f" {self.next().text}"
        return text

    # expressions

    def values(self) -> Expr:
        """Return the remaining tokens as an expression, or as a list of several, one an element."""
        line, parts = self.token.line, [self.expression()]
        while self.accept(",") or self.accept(";"):
            if self.token.kind != "end":
                parts.append(self.expression())
        self.expect_end()
        return parts[0] if len(parts) == 1 else Expr("list", tuple(parts), line=line)

    def _operator(self) -> str:
        word = self.token.text.casefold()
        is_operator = self.token.kind == "sign" or (self._dialect == "xmile" and self.token.kind == "name")
        return word if is_operator and word in self._level else ""

    def expression(self, least: int = 0) -> Expr:
        """Return an expression of operators with a precedence of at least `least`."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(f"more than {MAX_NESTING} brackets or functions inside one another")
        left = self._first()
        while (sign := self._operator()) and (level := self._level[sign]) >= least:
            line = self.token.line
            if sign == "^":
                self.next()
                left = Expr("power", (left, self.expression(level)), line=line)
                continue
            terms, signs = [left], []
            while (sign := self._operator()) and self._level[sign] == level:
                signs.append(sign.strip(":"))
                self.next()
                terms.append(self.expression(level + 1))
            left = Expr("chain", tuple(terms), tuple(signs), line=line)
        self._depth -= 1
        return left

    def _first(self) -> Expr:
        token = self.token
        word = token.text.casefold()
        if token.kind == "number":
            return number(float(self.next().text), token.line)
        if token.kind == "text":
            return Expr("text", value=self.next().text[1:-1], line=token.line)
        if word == ":na:":
            self.next()
            return number(-(2.0**109), token.line)
        if word in ("-", "+"):
            self.next()
            if self.token.kind == "number" and self._dialect != "petab":
                return number(float(word + self.next().text), token.line)
            operand = self.expression(_MINUS)
            return operand if word == "+" else Expr("minus", (operand,), line=token.line)
        if word in _NOT[self._dialect]:
            self.next()
            return Expr("not", (self.expression(_NOT[self._dialect][word]),), line=token.line)
        if self._dialect == "xmile" and word == "if" and self.peek(1) and token.kind == "name":
            return self._choice()
        if word == "(" and token.kind == "sign":
            is_table = self.peek(1) == "[" or (self.peek(1) == "(" and self._is_point(2))
            if is_table and self._dialect != "petab":
                return self.points()
            self.next()
            inside = self.expression()
            self.expect(")")
            return inside
        return self._named(token.line)

    def _choice(self) -> Expr:
        line = self.next().line
        parts = [self.expression()]
        for word in ("then", "else"):
            self.expect(word)
            parts.append(self.expression())
        return called("if_then_else", *parts, line=line)

    def _named(self, line: int) -> Expr:
        key = self.name() if self._dialect == "petab" else key_of(self.name())
        subs = self.subscripts()
        if not self.accept("("):
            return name(key, subs, line)
        args = []
        while not self.accept(")"):
            args.append(self.expression())
            if self.token.text != ")" and not self.accept(":"):  # outputs of a macro follow a colon
                self.expect(",")
        return Expr("call", tuple(args), key, subs, line)

    def subscripts(self) -> tuple[Expr, ...]:
        """Return the subscripts in brackets that come next, if any do."""
        if not self.accept("["):
            return ()
        subs = []
        while True:
            subs.append(self._subscript())
            if self.accept("]"):
                return tuple(subs)
            self.expect(",")

    def _subscript(self) -> Expr:
        token = self.token
        if self.accept("*"):
            if self.accept(":"):  # *:range
                return Expr("each", value=key_of(self.name()), line=token.line)
            return Expr("all", line=token.line)
        key = self.next().text if token.kind == "number" else key_of(self.name())
        if self.token.text not in ("!", ",", "]"):
            raise self.error(
                f"the subscript {token.text!r:.40} is computed or a slice; elements and ranges by name are read"
            )
        return Expr("each" if self.accept("!") else "name", value=key, line=token.line)

    # tables

    def _is_point(self, n: int) -> bool:
        n += self.peek(n) in ("-", "+")
        return self.peek(n)[:1] in "0123456789." and self.peek(n + 1) == ","

    def points(self) -> Expr:
        """Return the points of a table: ([range], (x, y), ...) or (x, x, y, y)."""
        line = self.token.line
        self.expect("(")
        if self.accept("["):
            while not self.accept("]"):
                if self.next().kind == "end":
                    raise self.error("the range of a table has no end")
            self.accept(",")
        flat: list[float] = []
        pairs: list[tuple[float, float]] = []
        while not self.accept(")"):
            if self.accept("("):
                x = self.signed()
                self.expect(",")
                pairs.append((x, self.signed()))
                self.expect(")")
            else:
                flat.append(self.signed())
            if self.token.text != ")":
                self.expect(",")
        half = len(flat) // 2
        if flat and (pairs or len(flat) % 2):
            raise ReadError("the points of a table are pairs (x, y), or all x and then all y", line)
        return Expr("points", value=tuple(pairs or zip(flat[:half], flat[half:], strict=True)), line=line)

    def signed(self) -> float:
        """Return the number that must come next."""
        sign = self.next().text if self.token.text in ("-", "+") else ""
        if self.token.kind != "number":
            raise self.error(f"a number is missing {self._place()}")
        return float(sign + self.next().text)
