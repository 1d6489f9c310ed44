"""Files of Vensim (.mdl) -> `ForeignSystem`: equations between ``~`` and ``|``, macros, the sketch, settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from fmepy.errors import ModelError
from fmepy.exchange.expressions import Expr, Reader, ReadError, key_of, number, shown, tokens_of
from fmepy.exchange.vensim_system import Equation, ForeignSystem, Macro

MOST_EQUATIONS = 20_000
_SKETCH = re.compile(r"^\\\\\\---///", re.M)
_SIGN = re.compile(r'"(?:\\.|[^"\\])*"|\{[^{}]*\}|[~|]', re.S)
_END = re.compile(r"[~|]")
_MACRO = re.compile(r"\s*:MACRO:\s*([^(]*)\(([^)]*)\)", re.I)
_END_OF_MACRO = re.compile(r"\s*:END OF MACRO:", re.I)
_LIMITS = re.compile(r"(.*?)\[\s*([^,\]]*)\s*(?:,\s*([^,\]]*))?(?:,[^\]]*)?\]\s*", re.S)
_SHOWN = re.compile(r'10,\d+,("(?:\\.|[^"\\])*"|[^,]*),(.*)')
_METHODS = {"0": "euler", "2": "euler", "1": "rk4", "5": "rk4"}
_NUMERIC_RANGE = re.compile(r"(.*?)(\d+)\s*-\s*(.*?)(\d+)", re.S)


def read_mdl(text: str, where: str) -> ForeignSystem:
    """Return the contents of a file of Vensim."""
    system = ForeignSystem(where, "mdl")
    sketch = _SKETCH.search(text)
    equations, rest = (text[: sketch.start()], text[sketch.start() :]) if sketch else (text, "")
    equations = re.sub(r"^\s*\{UTF-8\}", "       ", equations)
    group = ""
    macro: Macro | None = None
    for n, (fields, line) in enumerate(_entries(equations)):
        if n > MOST_EQUATIONS:
            raise ModelError(f"{where}, line {line}: more than {MOST_EQUATIONS} equations; divide the model.")
        head = fields[0]
        while (begins := _MACRO.match(head)) or (ends := _END_OF_MACRO.match(head)):
            if begins:
                inputs, _, outputs = begins[2].partition(":")
                keys = [[key_of(n) for n in v.split(",") if n.strip()] for v in (inputs, outputs)]
                macro = Macro(shown(begins[1]), keys[0], [key_of(begins[1]), *keys[1]])
                system.macros[key_of(begins[1])] = macro
            else:
                macro = None
            done = (begins or ends).end()  # type: ignore[union-attr]  # one of them is
            line += head.count("\n", 0, done)
            head = head[done:]
        if head.lstrip().startswith("****"):
            group = re.sub(r"\*{3,}", "", head).strip().lstrip(".")
            continue
        if not head.strip() or (len(fields) == 1 and not head.strip().strip("\\-/")):
            continue
        try:
            eq = _entry(system, head, line)
        except ReadError as error:
            system.refuse(error.line or line, shown(re.split(r"[=\[(:~]", head)[0])[:80], str(error))
            continue
        if eq is not None:
            _describe(eq, fields[1:])
            eq.group = group
            (macro.equations if macro else system.equations).append(eq)
    _read_sketch(system, rest)
    return system


def _entries(text: str) -> Iterator[tuple[list[str], int]]:
    """Yield the fields of equations, and the line where each begins."""
    start, line, length = 0, 1, len(text)
    while start < length:
        fields: list[str] = []
        at = start
        while True:
            signs = (_END if fields else _SIGN).finditer(text, at)  # quotes have a meaning only in the equation
            end = next((m.start() for m in signs if m.group() in "~|"), length)
            fields.append(text[at:end])
            at = end + 1
            if end >= length or text[end] == "|":
                break
        blank = len(fields[0]) - len(fields[0].lstrip())
        yield [fields[0].lstrip(), *fields[1:]], line + fields[0].count("\n", 0, blank)
        line += text.count("\n", start, at)
        start = at


def _entry(system: ForeignSystem, head: str, line: int) -> Equation | None:
    """Return the equation in the first field of an entry; None if the field is not an equation."""
    reader = Reader(tokens_of(head, "mdl", line), "mdl")
    line = reader.token.line
    if reader.token.text.startswith(":") and reader.token.kind == "sign":
        system.ignored.append(f"line {line}: {shown(head):.60}")  # constraints and tests do not affect a run
        return None
    label = reader.name()
    if reader.accept(":"):
        _range(system, label, reader)
        return None
    if reader.accept("<->"):
        other = system.label(reader.name())
        key = system.add_range(label, [other])
        system.maps[key, other] = system.maps[other, key] = []
        return None
    subs, excepts = reader.subscripts(), []
    if reader.accept(":except:"):
        while True:
            excepts.append(reader.subscripts())
            if not reader.accept(","):
                break
    keyword = ""
    while reader.token.kind == "sign" and reader.token.text.startswith(":") and reader.token.text != ":=":
        keyword = reader.next().text.strip(":").casefold()
        if keyword not in ("interpolate", "look forward", "hold backward", "raw"):
            system.ignored.append(f"line {line}: {shown(head):.60}")
            return None
    eq = Equation(shown(label), subs, None, line, tuple(excepts), keyword=keyword)
    if reader.token.text == "(":
        eq.expr = reader.points()
    elif any(reader.accept(sign) for sign in ("=", "==", ":=")):
        eq.expr = _right(reader)
    reader.expect_end()
    return eq


def _right(reader: Reader) -> Expr:
    """Return the right-hand side: an expression, or numbers by element."""
    line = reader.token.line
    if key_of(reader.token.text) == "tabbed_array":
        reader.next()
        reader.expect("(")
        cells = []
        while not reader.accept(")"):
            cells.append(reader.signed())
            reader.accept(",")
        return Expr("list", tuple(map(number, cells)), line=line)
    return reader.values()


def _range(system: ForeignSystem, label: str, reader: Reader) -> None:
    """Read the elements of a range, and its mappings."""
    elements: list[str] = []
    while not reader.accept("->") and reader.token.kind != "end":
        if reader.accept("("):
            elements += _numbered(reader)
        else:
            elements.append(reader.name())
            if reader.accept("("):
                raise reader.error(
                    f"the elements of {shown(label)!r} are read by {shown(elements[-1])}: write them into the file"
                )
        reader.accept(",")
    key = system.add_range(label, elements)
    while reader.token.kind != "end":
        if reader.accept("("):
            target = system.label(reader.name())
            reader.expect(":")
            others = []
            while not reader.accept(")"):
                others.append(system.label(reader.name()))
                reader.accept(",")
            system.maps[key, target] = others
        else:
            system.maps[key, system.label(reader.name())] = []
        reader.accept(",")


def _numbered(reader: Reader) -> list[str]:
    """Return the elements of (A1-A5)."""
    parts: list[list[str]] = [[]]
    while not reader.accept(")"):
        if reader.token.kind == "end":
            raise reader.error("')' is missing at the end")
        parts.append([]) if reader.accept("-") else parts[-1].append(reader.next().text)
    text = "-".join("".join(p) for p in parts)
    match = _NUMERIC_RANGE.fullmatch(text)
    if match is None or key_of(match[1]) != key_of(match[3]) or not 0 <= int(match[4]) - int(match[2]) < 10_000:
        raise reader.error(f"{text!r:.40} is no range such as (A1-A5)")
    return [f"{match[1]}{i}" for i in range(int(match[2]), int(match[4]) + 1)]


def _describe(eq: Equation, fields: list[str]) -> None:
    """Set unit, limits and comment of an equation."""
    unit = shown(fields[0]) if fields else ""
    if match := _LIMITS.fullmatch(unit):
        unit = match[1].strip()
        for word, text in (("lower", match[2]), ("upper", match[3])):
            with suppress(TypeError, ValueError):  # a question mark: no limit
                setattr(eq, word, float(text))
    eq.unit, eq.comment = unit, shown(fields[1]) if len(fields) > 1 else ""


def _read_sketch(system: ForeignSystem, text: str) -> None:
    """Read views, and the method from the settings behind them."""
    view: list[str] = []
    in_settings = False
    for line in text.splitlines():
        in_settings = in_settings or line.startswith(":L<")
        if in_settings:
            parts = line[3:].split(",")
            if line.startswith("15:") and len(parts) > 3:
                system.method = _METHODS.get(parts[3].strip(), "rk2")
        elif line.startswith("*"):
            view = system.views.setdefault(line[1:].strip(), [])
        elif match := _SHOWN.match(line):
            bits = match[2].split(",")[5:6]
            if bits and bits[0].isdigit() and int(bits[0]) % 2:
                view.append(key_of(match[1]))
