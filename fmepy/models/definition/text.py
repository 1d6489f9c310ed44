"""Checked text -> equations: a model written as lines such as ``d(Hare)/dt = r * Hare - a * Hare * Lynx``.

A model text is a set of statements, in any order, one a line::

    d(x)/dt = ...      rate of a state (differential equations)
    next(x) = ...      the state after the next step (difference equations)
    x(0) = ...         initial value of a state, at the start of the run; also x(1900) where that is its time
    name = ...         assignment: an intermediate quantity, and an output

``#`` begins a comment, a line goes on while a bracket is open or after a trailing backslash. Time is ``t``. States are
what has a rate or a next value; names that are neither state, assigned nor ``t`` are parameters or forcings: whoever
defines the model decides. Left-hand sides are read here, right-hand sides by `expression_text`, which says what may
stand in them.

An assignment is an equation, not an instruction: the order in which assignments are written does not matter, each name
is assigned once, and assignments that need one another are an error.
"""

from __future__ import annotations

import graphlib
import logging
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from fmepy.errors import ModelError, ModelTextError, check_choice, did_you_mean, listed
from fmepy.expressions.source import Source
from fmepy.expressions.text import (
    MAX_EXPRESSION,
    Tree,
    Value,
    as_expr,
    check_closed,
    clean_line,
    convert,
    parse_tree,
    reserved_name,
)
from fmepy.models.definition.definition import Draft, Found
from fmepy.models.definition.given import Given

if TYPE_CHECKING:
    import sympy

__all__ = ["ModelText", "parse_model", "read_text"]

logger = logging.getLogger(__name__)

MAX_TEXT = 500_000
"""Most characters of a model text."""
MAX_TOTAL_SIZE = 2_000_000
"""Most terms and operators of all equations together, assignments put in."""

Kind = Literal["rate", "initial", "assignment"]

_NAME = r"([^\W\d]\w*)"
_RATE = re.compile(rf"d\s*\(\s*{_NAME}\s*\)\s*/\s*d\s*{_NAME}")
_NEXT = re.compile(rf"next\s*\(\s*{_NAME}\s*\)")
_INITIAL = re.compile(rf"{_NAME}\s*\(\s*([^()]*?)\s*\)")
_TIME = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_ASSIGNED = re.compile(_NAME)
_LEIBNIZ = re.compile(rf"d{_NAME}\s*/\s*dt")
_EQUALS = re.compile(r"(?<![<>=!:])=(?!=)")


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: what it gives a value to, and its parsed right-hand side."""

    kind: Kind
    name: str
    row: int
    tree: Tree = field(repr=False)
    at: float = 0.0
    """Of an initial value: the time that stands in its brackets; 0 is the start of the run, whatever time that is."""

    @property
    def left(self) -> str:
        """The left-hand side as it identifies the statement."""
        return f"{self.name}(0)" if self.kind == "initial" else self.name

    @property
    def line(self) -> int:
        """The number of its first line."""
        return self.tree.source.line_number(self.row)

    def error(self, message: str) -> ModelTextError:
        """Return an error that points at its first character."""
        line = self.tree.source.lines[self.row]
        return self.tree.source.error(message, self.row, len(line) - len(line.lstrip()))


@dataclass(frozen=True, slots=True, eq=False)
class ModelText:
    """A model read from text.

    Attributes
    ----------
    kind : {"ode", "difference"}
        What `rates` are: derivatives, or the states after the next step.
    states : tuple of str
        In the order of their equations.
    rates : dict of str to sympy.Expr
        By state.
    initial : dict of str to sympy.Expr
        Initial values, of those states that have one in the text.
    assignments : dict of str to sympy.Expr
        In the order in which they are written.
    lines : dict of str to int
        The line of every state and assigned name, and, under ``"x(0)"``, of every initial value.
    substituted : dict of str to sympy.Expr
        All right-hand sides with assigned names put in, under the keys of `lines`.
    statements : tuple of Statement
        What the text consists of.
    """

    kind: Literal["ode", "difference"]
    states: tuple[str, ...]
    rates: dict[str, sympy.Expr]
    initial: dict[str, sympy.Expr]
    assignments: dict[str, sympy.Expr]
    lines: dict[str, int]
    substituted: dict[str, sympy.Expr] = field(repr=False)
    statements: tuple[Statement, ...] = field(repr=False)

    @property
    def free_names(self) -> tuple[str, ...]:
        """Names that are neither state, assigned nor time, in the order in which they are read."""
        defined = {*self.states, *self.assignments, "t"}
        names = (name for s in self.statements for name in s.tree.names())
        return tuple(dict.fromkeys(n for n in names if n not in defined))

    def line_of(self, name: str) -> int:
        """Return the line in which a name is defined, or else first used; 0 if it does not occur."""
        if name in self.lines:
            return self.lines[name]
        used = (s.line for s in self.statements if name in s.tree.names())
        return next(used, 0)

    def error(self, message: str, name: str) -> ModelTextError:
        """Return an error that points at the statement of a name (or of ``"x(0)"``), for whoever builds the model."""
        s = next(s for s in self.statements if s.left == name)
        return s.error(message)

    def substituted_rates(self) -> dict[str, sympy.Expr]:
        """Return the rates as functions of time, states and free names: assigned names are put in."""
        return {n: self.substituted[n] for n in self.rates}

    def substituted_initial(self) -> dict[str, sympy.Expr]:
        """Return the initial values with assigned names put in."""
        return {n: self.substituted[f"{n}(0)"] for n in self.initial}

    def substituted_assignments(self) -> dict[str, sympy.Expr]:
        """Return the assignments with the others put in: the outputs of the model."""
        return {n: self.substituted[n] for n in self.assignments}


def _substituted(statements: tuple[Statement, ...]) -> dict[str, sympy.Expr]:
    """Return all right-hand sides with assigned names put in, by left-hand side.

    Constants among the assigned names are computed with as such, so this is more than a substitution afterwards: what
    `convert` makes sure of holds for the result.
    """
    known: dict[str, tuple[Value, int]] = {}
    found: dict[str, sympy.Expr] = {}
    total = 0
    for s in _in_order_of_need(statements):
        value, size = convert(s.tree, known)
        total += size
        if total > MAX_TOTAL_SIZE:
            raise s.tree.error(f"with all assigned names put in, the model has more than {MAX_TOTAL_SIZE} terms")
        if s.kind == "assignment":
            known[s.name] = value, size
        found[s.left] = as_expr(value)
    return found


def _in_order_of_need(statements: tuple[Statement, ...]) -> list[Statement]:
    """Return assignments in the order of their needs, then everything else."""
    assigned = {s.name: s for s in statements if s.kind == "assignment"}
    graph = {n: [m for m in dict.fromkeys(s.tree.names()) if m in assigned] for n, s in assigned.items()}
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        raise _loop(error.args[1][::-1], assigned) from None
    return [assigned[n] for n in order] + [s for s in statements if s.kind != "assignment"]


def _loop(cycle: list[str], assigned: dict[str, Statement]) -> ModelTextError:
    """Return the error that names a loop among assignments."""
    names = cycle[:-1]
    first = min(range(len(names)), key=lambda i: assigned[names[i]].row)
    names = names[first:] + names[:first]
    s = assigned[names[0]]
    if len(names) == 1:
        message = (
            f"{names[0]!r} is assigned from itself; an assignment is an equation, not an instruction. "
            "A quantity that remembers its value is a state"
        )
    else:
        message = f"these assignments need one another: {' -> '.join([*names, names[0]])}. Break the loop with a state"
    return s.error(message)


def parse_model(text: str, *, kind: Literal["ode", "difference"] = "ode", where: str = "") -> ModelText:
    """Return the statements of a model text as sympy expressions.

    Parameters
    ----------
    text : str
        The model, see the module's text for the language.
    kind : {"ode", "difference"}
        Whether states are given by ``d(x)/dt = `` or by ``next(x) = ``.
    where : str, optional
        What the text is, such as a file name, to open messages with.

    Returns
    -------
    ModelText
        States, rates, initial values and assignments: as written, and with the assigned names put in.

    Raises
    ------
    ModelTextError
        With line, column and a caret under the place. A state without initial value, or names without a value, are
        not an error here: they may be given elsewhere.

    Examples
    --------
    >>> model = parse_model('''
    ...     d(Hare)/dt = r * Hare - eaten       # grows and is eaten
    ...     d(Lynx)/dt = e * eaten - m * Lynx
    ...     eaten = a * Hare * Lynx
    ...     Hare(0) = Hare0
    ... ''')
    >>> model.states, model.free_names
    (('Hare', 'Lynx'), ('r', 'e', 'm', 'a', 'Hare0'))
    >>> model.substituted_rates()["Hare"]
    -Hare*Lynx*a + Hare*r
    """
    check_choice(kind, ("ode", "difference"), "kind")
    if not isinstance(text, str):
        raise ModelTextError(f"{where + ': ' if where else ''}a model text is a str; got {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise ModelTextError(f"{where + ': ' if where else ''}a model text of more than {MAX_TEXT} characters")
    source = Source.of(text, where)
    statements = tuple(_read_statement(lines, row, source, kind) for row, lines in _logical_lines(source))
    states = _check_definitions(statements, kind)
    plain = {(s.kind, s.name): as_expr(convert(s.tree)[0]) for s in statements}
    return ModelText(
        kind=kind,
        states=states,
        rates={n: e for (k, n), e in plain.items() if k == "rate"},
        initial={n: e for (k, n), e in plain.items() if k == "initial"},
        assignments={n: e for (k, n), e in plain.items() if k == "assignment"},
        lines={s.left: s.line for s in statements},
        substituted=_substituted(statements),
        statements=statements,
    )


# --- text -> the draft of a model


def read_text(text: str, given: Given) -> Draft:
    """Return the draft of a model that is a text; initial values in `state` go before those in the text of a copy."""
    model = _parsed(text, given.kind)
    if not model.states:
        rate = "d(N)/dt = r * N" if given.kind == "ode" else "next(N) = r * N"
        raise ModelError(f"The text has no state: it needs a line such as `{rate}`.")
    _check_start(model, given)
    return Draft(
        states=model.states,
        parms=given.parms,
        initial={**model.substituted_initial(), **given.initial},
        find=lambda: Found(tuple(model.substituted_rates().values()), model.substituted_assignments()),
        place=lambda name: f"line {line}: " if (line := model.line_of(name)) else "",
    )


@lru_cache(maxsize=32)
def _parsed(text: str, kind: Literal["ode", "difference"]) -> ModelText:
    """Return what a text holds; changed copies of a model, and its like in other processes, ask for it again."""
    return parse_model(text, kind=kind)


def _check_start(model: ModelText, given: Given) -> None:
    """Refuse what is given both in the text and as `state`, and a start in the text that is not that of the run."""
    for name in model.initial if not given.is_copy else ():
        if name in given.initial:
            raise ModelError(
                f"line {model.line_of(f'{name}(0)')}: {name}(0) is given in the text and in `state`. Keep one of them; "
                "model.replace(state=...) changes the start of a model that there is."
            )
    at_zero = []
    for s in model.statements:
        if s.kind != "initial" or s.name in given.initial or s.at == given.start:
            continue
        there = f"{s.name}({given.start:.15g})"
        if s.at != 0:
            raise ModelError(
                f"line {s.line}: {s.name}({s.at:.15g}) is no initial value, for `times` begin at {given.start:.15g}. "
                f"Write {there} = ..., or let `times` begin at {s.at:.15g}."
            )
        at_zero.append(there)
    if at_zero and not given.is_copy:
        logger.warning(
            "In the text x(0) stands for the start of the run, which is time %.15g here. To say so, write %s = ...",
            given.start, " = ..., ".join(at_zero),
        )  # fmt: skip


# --- text -> statements


def _logical_lines(source: Source) -> list[tuple[int, list[str]]]:
    """Return the statements: index of the first line, and the lines without comments."""
    found: list[tuple[int, list[str]]] = []
    opened: list[tuple[str, int, int]] = []
    goes_on = False
    length = 0
    for row, raw in enumerate(source.lines):
        line = clean_line(raw, source, row, opened)
        if not goes_on and not line.strip():
            continue
        backslash = line.rstrip().endswith("\\")
        if backslash:
            line = line.rstrip()[:-1]
        if goes_on:
            found[-1][1].append(line)
        else:
            found.append((row, [line]))
            length = 0
        length += len(line)
        if length > MAX_EXPRESSION:
            message = f"a statement of more than {MAX_EXPRESSION} characters; split it into assignments"
            raise source.error(message, found[-1][0], 0)
        goes_on = bool(opened) or backslash
    check_closed(source, opened)
    return found


def _read_statement(lines: list[str], row: int, source: Source, kind: str) -> Statement:
    """Return one statement, its left-hand side understood and its right-hand side parsed."""
    first = lines[0]
    start = len(first) - len(first.lstrip())
    equals = _EQUALS.search(first)
    if equals is None:
        raise source.error(_no_equals(first, kind), row, max(first.find("=="), start))
    left = unicodedata.normalize("NFKC", first[: equals.start()].strip())
    try:
        what, name = _read_left(left, kind)
    except _LeftSideError as error:
        raise source.error(str(error), row, start) from None
    if not "".join([first[equals.end() :], *lines[1:]]).strip():
        raise source.error(f"nothing stands on the right of '=' for {left}", row, equals.end())
    # What precedes the expression becomes one bracket and blanks, so that places in both texts agree.
    code = ["(" + " " * (equals.end() - 1) + first[equals.end() :], *lines[1:]]
    at = float(_INITIAL.fullmatch(left)[2]) if what == "initial" else 0.0  # type: ignore[index]  # it did match
    return Statement(what, name, row, parse_tree(code, source, row, 0), at)


def _no_equals(line: str, kind: str) -> str:
    """Return the message for a statement without a single '='."""
    if "==" in line:
        return "'==' compares two numbers; an equation is written with one '='"
    rate = "d(x)/dt = ..." if kind == "ode" else "next(x) = ..."
    return f"a statement needs '=': {rate}, x(0) = ..., or name = ..."


class _LeftSideError(Exception):
    """What is wrong with a left-hand side; its place is known to the caller."""


def _read_left(left: str, kind: str) -> tuple[Kind, str]:
    """Return what a left-hand side defines, and the name."""
    readers: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], tuple[Kind, str]]], ...] = (
        (_RATE, _read_rate),
        (_NEXT, _read_next),
        (_INITIAL, _read_initial),
        (_ASSIGNED, lambda match, kind: ("assignment", match[1])),
    )
    for pattern, read in readers:
        if match := pattern.fullmatch(left):
            what, name = read(match, kind)
            _check_name(name)
            return what, name
    if match := _LEIBNIZ.fullmatch(left):
        raise _LeftSideError(f"{left!r} is not understood: write d({match[1]})/dt")
    rate = "d(x)/dt" if kind == "ode" else "next(x)"
    raise _LeftSideError(f"{left!r} cannot stand on the left of '='; there, write {rate}, x(0) or a name")


def _read_rate(match: re.Match[str], kind: str) -> tuple[Kind, str]:
    name, time = match.groups()
    if kind == "difference":
        raise _LeftSideError(f"a difference equation has no rate d({name})/dt; write next({name}) = ...")
    if time != "t":
        raise _LeftSideError(f"rates are derivatives with respect to time, which is called t: write d({name})/dt")
    return "rate", name


def _read_next(match: re.Match[str], kind: str) -> tuple[Kind, str]:
    if kind == "ode":
        raise _LeftSideError(
            f"next({match[1]}) belongs to difference equations (DifferenceModel); "
            f"a differential equation is written d({match[1]})/dt = ..."
        )
    return "rate", match[1]


def _read_initial(match: re.Match[str], kind: str) -> tuple[Kind, str]:
    name, at = match.groups()
    if not _TIME.fullmatch(at):
        raise _LeftSideError(
            f"{name}({at}) is not understood; an initial value is written {name}(0), a variable {name}"
        )
    return "initial", name


def _check_name(name: str) -> None:
    """Raise if a name cannot be that of a variable."""
    if name in ("t", "pi"):
        raise _LeftSideError(f"{name!r} is {'time' if name == 't' else 'a constant'} and cannot be given a value")
    reason = reserved_name(name)
    if not reason and not name.isidentifier():
        reason = f"{name!r} is not a name: letters, digits and underscores, no digit first"
    if reason:
        raise _LeftSideError(reason)


# --- statements -> model


def _check_definitions(statements: tuple[Statement, ...], kind: str) -> tuple[str, ...]:
    """Return the states, after checking that every name is defined once and every initial value has its state."""
    first: dict[str, Statement] = {}
    for s in statements:
        if s.left in first:
            raise _defined_twice(s, first[s.left])
        first[s.left] = s
    states = tuple(s.name for s in statements if s.kind == "rate")
    for s in statements:
        if s.kind == "initial" and s.name not in states:
            left = f"d({s.name})/dt" if kind == "ode" else f"next({s.name})"
            message = (
                f"{s.name}(0) is an initial value, but there is no equation {left} = ...; "
                f"the states are {listed(states)}.{did_you_mean(s.name, states)}"
            )
            raise s.error(message)
    return states


def _defined_twice(s: Statement, earlier: Statement) -> ModelTextError:
    line = earlier.line
    if s.kind == "initial":
        message = f"{s.left} is given twice, first in line {line}"
    elif s.kind == earlier.kind:
        message = f"{s.name!r} has two {'equations' if s.kind == 'rate' else 'assignments'}, the first in line {line}"
    else:
        state, assigned = (s, earlier) if s.kind == "rate" else (earlier, s)
        message = (
            f"{s.name!r} is a state (line {state.line}) and assigned (line {assigned.line}); it can be one of the two"
        )
    return s.error(message)
