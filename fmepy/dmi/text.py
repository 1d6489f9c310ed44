"""Text of a module -> declarations and statements; errors have the line and a caret.

Statements are those of the model language (`models.definition.text`), in any order, one a line; a line continues while
a bracket is open::

    OB = SM * SE                 assignment
    d(SM)/dt = (ISM - SM) / SAT  level: it moves by its rate
    SM(0) = 10                   its initial value; of an assigned variable, the first guess
    D[0] = 2 * D[1]              elements are counted from 0; d(D[0])/dt and D[0](0) likewise
    OB = SM * SE   [units/month] the unit of OB, after a blank; for a level its own unit, not that of the rate

Declarations, one a line too, add to the statements::

    step 2                       the module is active at every second elementary step
    dims D[3], A[2,3]            vectors and matrices; names without dims are scalars
    subscripts region: north, south     names of elements, for dims x[region] (`dmi.ranges`)
    nonnegative x, y[0]          levels that stay at 0 where their rates would take them below
    local a, b                   names that are not shared with other modules
    exogenous x                  x, or its initial value, comes from the data base
    endogenous y                 y, a level or part of a loop, needs no data: it starts from 0
    output OB, SM                variables of interest
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any

from fmepy.dmi.expressions import RightSide, differ, module_functions, name_problem, shape_text
from fmepy.dmi.foreign_words import foreign_word
from fmepy.dmi.ranges import Ranges, axis_size, check_mappings, each_place, read_index, read_range
from fmepy.dmi.statements import MAX_ELEMENTS, Kind, ModuleStatement, Reference, Shape, element_name, flat_position
from fmepy.dmi.unit_text import read_unit
from fmepy.errors import ModelTextError, check_known, did_you_mean
from fmepy.language.source import Source
from fmepy.language.text import OTHER_WORDS
from fmepy.language.tree import logical_lines, right_side, split_equation
from fmepy.parameters.names import normal_name

MAX_TEXT = 500_000
"""Largest number of characters of the text of a module."""

_LISTS = ("dims", "local", "exogenous", "endogenous", "output")
DECLARATIONS = ("step", "subscripts", "nonnegative", *_LISTS)
_FORMS = "x = ..., d(x)/dt = ..., x(0) = ..., or a declaration such as `local x`"
_NAME = r"([^\W\d]\w*)"
_TARGET = rf"{_NAME}\s*(?:\[([^\[\]]*)\])?"
_RATE = re.compile(rf"d\s*\(\s*{_TARGET}\s*\)\s*/\s*d\s*{_NAME}")
_INITIAL = re.compile(rf"{_TARGET}\s*\(([^()]*)\)")
_ASSIGNED = re.compile(_TARGET)
_LEIBNIZ = re.compile(rf"d{_NAME}\s*/\s*dt")
_NEXT = re.compile(rf"next\s*\(\s*{_TARGET}\s*\)")
_DECLARATION = re.compile(rf"\s*({'|'.join(DECLARATIONS)})(?:\s+(?![\[(=])|\s*$)")
_ITEM = re.compile(rf"\s*{_NAME}\s*(?:\[([^\[\]]*)\])?\s*(,|$)")
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """The declarations of a module, in its text or by the arguments of `Module`, which take precedence."""

    step: int = 1
    dims: Mapping[str, Shape] = field(default_factory=dict, hash=False)
    local: tuple[str, ...] = ()
    exogenous: tuple[str, ...] = ()
    endogenous: tuple[str, ...] = ()
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleText(Declared):
    """The contents of a module's text; see `Module`."""

    statements: tuple[ModuleStatement, ...] = field(compare=False)
    assigns: tuple[str, ...] = field(compare=False)
    reads: tuple[str, ...] = field(compare=False)
    names: Mapping[str, int] = field(compare=False)
    open: tuple[str, ...] = field(compare=False)
    points: tuple[str, ...] = field(compare=False)
    units: Mapping[str, str] = field(compare=False)


@lru_cache(maxsize=2048)
def read_module(text: str, name: str, where: str, arguments: Declared) -> ModuleText:
    """Return the contents of a module's text; cached for changed copies of a system.

    Parameters
    ----------
    text : str
        The text.
    name : str
        The module's name.
    where : str
        The file or name, for the beginning of messages.
    given : Declared
        Declarations by arguments, in the form of the text.

    Raises
    ------
    ModelTextError
        With line, column and a caret under the place.
    """
    source, read, equations = _declarations(text, where)
    if not equations:
        raise source.error("there is no statement; a module needs one at least, such as x = a * b", 0, 0)
    tables = dict[str, Shape]()
    declared = read.with_arguments(arguments)
    numbers, shapes = count(), dict(declared.dims)
    units = [_take_unit(code, row, source, shapes) for row, code in equations]
    known = set(module_functions()) | set(OTHER_WORDS)
    for row, code in equations:
        for i, line in enumerate(code):
            if hint := foreign_word(line, known):
                raise source.error(hint[1], row + i, hint[0])
        _find_points(code, row, source, shapes)
    statements, units_of = list[ModuleStatement](), dict[str, str]()
    for (row, code), unit in zip(equations, units, strict=True):
        some = _statements(code, row, source, shapes, numbers, name, tables, read.ranges)
        units_of |= {some[0].target.name: unit} if unit else {}
        statements += some
    _check_definitions(statements, source)
    _check_tables(statements, tables, source)
    statements = _nonnegative(statements, read, shapes)
    points = tuple(n for n in shapes if n not in declared.dims)
    declares = {f.name: getattr(declared, f.name) for f in fields(declared)} | {"dims": {**tables, **shapes}}
    lines_of: dict[str, int] = {}
    for s in statements:
        for n in (s.target.name, *(r.name for r in s.reads)):
            lines_of.setdefault(n, s.line)
    assigns = tuple(dict.fromkeys(s.target.name for s in statements))
    reads = tuple(dict.fromkeys(r.name for s in statements for r in s.reads))
    read.check_names(declares, lines_of, assigns)
    return ModuleText(
        **declares, statements=tuple(statements), assigns=assigns, reads=reads, names=lines_of, open=tuple(tables),
        points=points, units=units_of,
    )  # fmt: skip


# --- declarations


def declared_in(text: str, where: str) -> Declared:
    """Return the declarations of a text, without reading its statements."""
    return _declarations(text, where)[1].with_arguments(Declared())


def _declarations(text: str, where: str) -> tuple[Source, _Declarations, list[tuple[int, list[str]]]]:
    """Return the source of a text, its declarations, and the lines of statements."""
    source = Source.of(text[: MAX_TEXT + 1] + "\n", where)  # two lines at least, so that every message names its line
    if len(text) > MAX_TEXT:
        raise source.error(f"a module of more than {MAX_TEXT} characters; split it", 0, 0)
    lines, read = logical_lines(source), _Declarations(source)
    declarations = [(row, code) for row, code in lines if _DECLARATION.match(code[0])]
    for row, code in sorted(declarations, key=lambda line: not line[1][0].lstrip().startswith("subscripts")):
        read.add(row, code)
    with source.at(declarations[0][0] if declarations else 0, 0):
        check_mappings(read.ranges)
    return source, read, [(row, code) for row, code in lines if not _DECLARATION.match(code[0])]


class _Declarations:
    """The declarations of a text with their places, validated as they are added."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.step: int | None = None
        self.dims: dict[str, Shape] = {}
        self.ranges: Ranges = {}
        self.nonnegative: list[tuple[str, str | None, tuple[int, int]]] = []
        self.names: dict[str, dict[str, tuple[int, int]]] = {word: {} for word in _LISTS}

    def add(self, row: int, code: list[str]) -> None:
        """Read one declaration."""
        text = "\n".join(code)
        match = _DECLARATION.match(code[0])
        word = match[1] if match else ""
        start = text.index(word) + len(word)
        if word == "step":
            if self.step is not None:
                raise self._error("the step is declared twice", row, text, start)
            if not _WHOLE.fullmatch(text[start:].strip()) or int(text[start:]) < 1:
                message = "the step of a module is a whole number of elementary steps, as in `step 2`"
                raise self._error(message, row, text, start)
            self.step = int(text[start:])
            return
        if word == "subscripts":
            with self.source.at(*_place(row, text, start + 1)):
                name, new = read_range(text[start:])
                if name in self.ranges:
                    raise ValueError(f"the range {name!r} is declared twice")
            self.ranges[name] = new
            return
        if not text[start:].strip():
            raise self._error(f"nothing is declared; write names, as in `{word} x, y`", row, text, start)
        while start < len(text):
            start = self._item(word, row, text, start)

    def _item(self, word: str, row: int, text: str, start: int) -> int:
        """Read one name, and its dimensions; return the position of the next one."""
        match = _ITEM.match(text, start)
        if match is None or (match[3] == "," and not text[match.end() :].strip()):
            form = "names with their numbers of elements, as in `dims D[3], A[2,3]`"
            form = form if word == "dims" else f"names between commas, as in `{word} x, y`"
            raise self._error(f"this cannot be read as a declaration of {form}", row, text, start)
        name, inside, place = normal_name(match[1]), match[2], match.start(1)
        if word == "nonnegative":
            self.nonnegative.append((name, inside, _place(row, text, place)))
            return match.end()
        if problem := name_problem(name):
            raise self._error(problem, row, text, place)
        if (inside is None) == (word == "dims"):
            how = (
                f"`dims {name}[3]`" if word == "dims" else f"`{word} {name}`, without elements: it holds for the whole"
            )
            raise self._error(f"write {how}", row, text, place)
        if name in self.names[word]:
            raise self._error(f"{name!r} is declared {word} twice", row, text, place)
        for other in {"exogenous", "endogenous"} - {word} if word.endswith("genous") else ():
            if name in self.names[other]:
                raise self._error(f"{name!r} is declared exogenous and endogenous; it can be one", row, text, place)
        self.names[word][name] = _place(row, text, place)
        if word == "dims":
            with self.source.at(*_place(row, text, place)):
                self.dims[name] = checked_shape(name, [axis_size(i, self.ranges) for i in inside.split(",")])
        return match.end()

    def with_arguments(self, arguments: Declared) -> Declared:
        """Return the declarations; those of `given` take precedence."""

        def names(word: str, first: tuple[str, ...], against: tuple[str, ...] = ()) -> tuple[str, ...]:
            return (*first, *(n for n in self.names[word] if n not in first and n not in against))

        return Declared(
            step=arguments.step if arguments.step != 1 else self.step or 1,
            dims={**self.dims, **arguments.dims},
            local=names("local", arguments.local),
            exogenous=names("exogenous", arguments.exogenous, arguments.endogenous),
            endogenous=names("endogenous", arguments.endogenous, arguments.exogenous),
            outputs=arguments.outputs if arguments.outputs is not None else tuple(self.names["output"]) or None,
        )

    def check_names(self, declared: Mapping[str, Any], found: Mapping[str, int], assigned: Collection[str]) -> None:
        """Refuse declarations of names that the statements do not have, or do not use as declared."""
        for word in _LISTS:
            for name in declared["outputs" if word == "output" else word] or ():
                if name not in found:
                    message = f"{name!r} is declared {word}, but no statement names it.{did_you_mean(name, found)}"
                    raise self.error_of(word, name, message)
                if word == "endogenous" and name not in assigned:
                    message = f"{name!r} is declared endogenous, but no statement of this module gives it a value"
                    raise self.error_of(word, name, message)

    def error_of(self, word: str, name: str, message: str) -> ModelTextError:
        """Return the error of a declaration, with its place unless it is an argument of `Module`."""
        if name in self.names[word]:
            return self.source.error(message, *self.names[word][name])
        return ModelTextError(f"{self.source.where}: {message}")

    def _error(self, message: str, row: int, text: str, position: int) -> ModelTextError:
        return self.source.error(message, *_place(row, text, position))


def _place(row: int, text: str, position: int) -> tuple[int, int]:
    """Return row and column of a position in the text of a statement that begins in line `row`."""
    before = text[:position]
    return row + before.count("\n"), position - (before.rfind("\n") + 1)


def checked_shape(name: str, numbers: Sequence[object]) -> Shape:
    """Return the shape of an array; raise ValueError if it is invalid."""
    shape = tuple(n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n >= 1)
    if not shape or len(shape) < len(numbers):
        raise ValueError(
            f"dimensions are whole numbers from 1 on, or ranges of `subscripts`, as in `dims {name}[3]`, `{name}[2,3]`"
        )
    if prod(shape) > MAX_ELEMENTS:
        raise ValueError(f"{element_name(name, shape)} has {prod(shape)} elements; an array has {MAX_ELEMENTS} at most")
    return shape


# --- statements


def _statements(
    code: list[str], row: int, source: Source, shapes: Mapping[str, Shape], numbers: count[int], module: str,
    tables: dict[str, Shape], ranges: Ranges,
) -> list[ModuleStatement]:  # fmt: skip
    """Return a statement with the shapes of both sides compared; with ranges on the left, one for each element."""
    left, start, end = split_equation(code[0], row, source, _FORMS + ("" if "=" in code[0] else _hint(code[0])))
    with source.at(row, start):
        kind, targets = _read_left(left, shapes, ranges)
    tree, statements = right_side(code, row, source, end), []
    for target, bound in targets:
        right = RightSide(tree, shapes, numbers, module, kind == "initial", tables, ranges, bound)
        if right.shape and differ(right.shape, target.value_shape):
            hint = "" if target.shape else f"; declare dims {element_name(target.name, right.shape)}"
            sides = f"{shape_text(target.value_shape)}, the right-hand side {shape_text(right.shape)}"
            raise tree.error(f"{left} is {sides}{hint}")
        statements.append(ModuleStatement(
            kind, target, right.value, right.shape, tuple(right.reads), tuple(right.memories), tuple(right.words),
            module, source.line_number(row), start + 1,
        ))  # fmt: skip
    return statements


def _nonnegative(
    statements: list[ModuleStatement], read: _Declarations, shapes: Mapping[str, Shape]
) -> list[ModuleStatement]:
    """Return statements with nonnegative levels marked."""
    for name, inside, place in read.nonnegative:
        levels = [s.target.name for s in statements if s.kind == "level"]
        with read.source.at(*place):
            check_known(name, levels, f"{name!r} is declared nonnegative, but it is no level here.", ValueError)
            places = each_place(name, shapes.get(name, ()), _indices(inside), read.ranges) if inside else ()
            wanted = {flat_position(at, shapes[name]) for at, _ in places}
        for k, s in enumerate(statements):
            if s.kind == "level" and s.target.name == name:
                more = (i for i in s.target.positions if not inside or i in wanted)
                statements[k] = replace(s, nonnegative=(*s.nonnegative, *more))
    return statements


def _indices(inside: str) -> list[object]:
    return [read_index(word) for word in inside.split(",")]


_UNIT = re.compile(r"(?<=[\w)\]])\s+\[([^\[\]:,]*[^\W\d][^\[\]:,]*|[1$€%\-])\]\s*$")


def _take_unit(code: list[str], row: int, source: Source, shapes: Mapping[str, Shape]) -> str:
    """Remove the unit in brackets after a statement from the code, and return it."""
    match = _UNIT.search(code[-1])
    if match is None or (len(code) == 1 and "=" not in code[0][: match.start()]):
        return ""
    word = re.search(r"\w+$", code[-1][: match.start()])
    if word and word[0] in shapes:  # an index
        return ""
    if read_unit(match[1]) is None:
        raise source.error(
            f"{match[1]!r} is no unit; products of powers of names are, such as people/month, $/(unit*month), m^2, 1",
            row + len(code) - 1, match.start(1)
        )  # fmt: skip
    code[-1] = code[-1][: match.start()]
    return match[1].strip()


_POINTS = re.compile(rf"\s*{_NAME}\s*=\s*\[\s*\(")


def _find_points(code: list[str], row: int, source: Source, shapes: dict[str, Shape]) -> None:
    """Add the dimensions of a table in the text to `shapes`: ``effect = [(0, 1), (2, 0.5)]``."""
    if match := _POINTS.match(code[0]):
        tree = right_side(code, row, source, code[0].index("=") + 1)
        if isinstance(tree.node, ast.List) and all(isinstance(p, ast.Tuple) for p in tree.node.elts):
            shapes.setdefault(normal_name(match[1]), (len(tree.node.elts), 2))


def _check_tables(statements: list[ModuleStatement], tables: Mapping[str, Shape], source: Source) -> None:
    """Refuse names that are tables, or points of tables, in one place of the module and scalars in another."""
    for s in statements:
        for name in (r.name for r in (s.target, *s.reads) if r.shape != tables.get(r.name, r.shape)):
            raise source.error(
                f"{name!r} is a number here, and the points of a table (or called like one) elsewhere in this module; "
                f"a product is written with *, as in {name} * (...)", s.line - 1, s.column - 1
            )  # fmt: skip


def _hint(line: str) -> str:
    """Return a hint at the declaration that a line without '=' may be."""
    words = line.split()
    near = did_you_mean(words[0], DECLARATIONS) if words and words[0].isidentifier() else ""
    return "." * bool(near) + near


def _read_left(
    left: str, shapes: Mapping[str, Shape], ranges: Ranges
) -> tuple[Kind, list[tuple[Reference, dict[str, str]]]]:
    """Return kind and targets of a left-hand side, with the elements of its ranges; raise ValueError if it is wrong."""
    kind: Kind = "assign"
    if match := _RATE.fullmatch(left):
        if match[3] != "t":
            raise ValueError(f"rates are derivatives with respect to time, which is called t: write d({match[1]})/dt")
        kind = "level"
    elif match := _NEXT.fullmatch(left):
        raise ValueError(f"{left!r} belongs to difference equations; in a module write d({match[1]})/dt = ...")
    elif match := _INITIAL.fullmatch(left):
        if match[3].strip() not in ("0", "0.0"):
            raise ValueError(
                f"{left} is not understood; an initial value is written {match[1]}(0), a variable {match[1]}; 0 "
                "stands for the start of the run, whatever time that is"
            )
        kind = "initial"
    elif not (match := _ASSIGNED.fullmatch(left)):
        if match := _LEIBNIZ.fullmatch(left):
            raise ValueError(f"{left!r} is not understood: write d({match[1]})/dt")
        raise ValueError(f"{left!r} cannot stand on the left of '='; there, write x, D[0], d(x)/dt or x(0)")
    name = match[1]
    if problem := name_problem(name):
        raise ValueError(problem)
    shape = shapes.get(name, ())
    if match[2] is None:
        return kind, [(Reference(name, shape), {})]
    places = each_place(name, shape, _indices(match[2]), ranges)
    return kind, [(Reference(name, shape, at), bound) for at, bound in places]


def _check_definitions(statements: list[ModuleStatement], source: Source) -> None:
    """Raise unless every element is defined once, as a level or assigned, and initial values have their variables."""

    def error(message: str, s: ModuleStatement) -> ModelTextError:
        return source.error(message, s.line - 1, s.column - 1)

    kinds: dict[str, ModuleStatement] = {}
    defined: dict[tuple[str, bool], dict[int, ModuleStatement]] = {}
    for s in statements:
        name, initial = s.target.name, s.kind == "initial"
        first = s if initial else kinds.setdefault(name, s)
        if first.kind != s.kind:
            level, assigned = (first, s) if first.kind == "level" else (s, first)
            lines = f"a level (line {level.line}) and assigned (line {assigned.line})"
            raise error(f"{name!r} is {lines}; it can be one of the two", s)
        elements = defined.setdefault((name, initial), {})
        for position in s.target.positions:
            if position in elements:
                what = f"{s.target.element}(0)" if initial else s.target.element
                raise error(
                    f"{what!r} is given twice, first in line {elements[position].line}; a variable is assigned once, "
                    "the order of statements does not matter", s
                )  # fmt: skip
            elements[position] = s
    for s in statements:
        if s.kind == "initial" and s.target.name not in kinds:
            raise error(
                f"{s.target.name}(0) is an initial value, but this module gives {s.target.name!r} neither a rate nor "
                f"a value.{did_you_mean(s.target.name, kinds)} What comes from outside starts in the data base", s
            )  # fmt: skip
