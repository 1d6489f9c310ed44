"""Checked text -> equations: a model written as lines such as ``d(Hare)/dt = r * Hare - a * Hare * Lynx``.

A model text is a set of statements, in any order, one a line::

    d(x)/dt = ...      rate of a state (differential equations); dx/dt is read, too
    next(x) = ...      the state after the next step (difference equations)
    x(0) = ...         initial value of a state, at the start of the run; also x(1900) where that is its time
    name = ...         assignment: an intermediate quantity, and an output
    0 = ...            an algebraic equation: it holds at every time, and determines a state that has no rate

``#`` begins a comment, a line goes on while a bracket is open or after a trailing backslash. Time is ``t``. States are
what has a rate or a next value, and what algebraic equations are solved for: names with an initial value (here or in
``state=``), which is then a guess, and without a rate. Names that are neither state, assigned nor ``t`` are parameters
or forcings: whoever defines the model decides. Left-hand sides are read here, right-hand sides by `language.text`,
which says what may stand in them.

An assignment is an equation, not an instruction: the order in which assignments are written does not matter, each name
is assigned once, and assignments that need one another are an error.
"""

from __future__ import annotations

import graphlib
import logging
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from fmepy.errors import ModelError, ModelTextError, check_choice, did_you_mean, listed
from fmepy.language.nodes import Node, as_node, shared
from fmepy.language.source import Source
from fmepy.language.text import Value, convert
from fmepy.language.tree import Tree, logical_lines, reserved_name, right_side, split_equation
from fmepy.models.definition.arguments import ModelArguments
from fmepy.models.definition.definition import Draft, ModelExpressions

logger = logging.getLogger(__name__)

MAX_TEXT = 500_000
"""Most characters of a model text."""
MOST_PUT_IN = 200_000
"""Terms and operators of the equations read so far, assigned names put in, up to which they are put in. From there on
values are parts that all share which need them (`language.nodes.Shared`), and are printed by their names."""
MOST_COPIED = 10
"""Terms and operators of a value up to which it is put in even then."""

Kind = Literal["rate", "initial", "assignment", "algebraic"]

_NAME = r"([^\W\d]\w*)"
_RATE = re.compile(rf"d\s*(?:\(\s*{_NAME}\s*\)|{_NAME})\s*/\s*d\s*{_NAME}")
_NEXT = re.compile(rf"next\s*\(\s*{_NAME}\s*\)")
_INITIAL = re.compile(rf"{_NAME}\s*\(([^()]*)\)")
_TIME = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.ASCII)
_ZERO = re.compile(r"0+(\.0*)?|\.0+")
_RATES = {"ode": "d({})/dt", "difference": "next({})"}


@dataclass(frozen=True, slots=True)
class ModelStatement:
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
        if self.kind == "algebraic":
            return f"0, line {self.row}"
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
        What rates are: derivatives, or the states after the next step.
    statements : tuple of ModelStatement
        What the text consists of.
    substituted : dict of str to Node
        All right-hand sides with assigned names put in, by left-hand side (of initial values ``"x(0)"``).
    """

    kind: Literal["ode", "difference"]
    statements: tuple[ModelStatement, ...]
    substituted: dict[str, Node] = field(repr=False)

    def of_kind(self, kind: Kind) -> list[ModelStatement]:
        """Return the statements of one kind, in the order of the text."""
        return [s for s in self.statements if s.kind == kind]

    def complete(self, kind: Kind) -> dict[str, Node]:
        """Return right-hand sides by name as functions of time, states and free names: assigned names are put in."""
        return {s.name: self.substituted[s.left] for s in self.of_kind(kind)}

    @property
    def states(self) -> tuple[str, ...]:
        """The states that have a rate, in the order of their equations."""
        return tuple(s.name for s in self.of_kind("rate"))

    @property
    def residuals(self) -> tuple[Node, ...]:
        """Right-hand sides of the algebraic equations, assigned names put in."""
        return tuple(self.substituted[s.left] for s in self.of_kind("algebraic"))

    @property
    def free_names(self) -> tuple[str, ...]:
        """Names that are neither state, assigned nor time, in the order in which they are read."""
        defined = {"t", *(s.name for s in self.statements if s.kind in ("rate", "assignment"))}
        names = (node.id for s in self.statements for node in s.tree.names())
        return tuple(dict.fromkeys(n for n in names if n not in defined))

    def error(self, message: str, name: str) -> ModelError:
        """Return the error that points at the statement of a name (or of ``"x(0)"``), else at its first use."""
        for s in self.statements:
            if s.left == name:
                return s.error(message)
        used = ((s.tree, node) for s in self.statements for node in s.tree.names() if node.id == name)
        return next((tree.error(message, node) for tree, node in used), ModelError(message))


def parse_model(text: str, *, kind: Literal["ode", "difference"] = "ode", where: str = "") -> ModelText:
    """Return the statements of a model text as expressions.

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
        States, rates, initial values and assignments, with the assigned names put in.

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
    >>> model.complete("rate")["Hare"]
    r*Hare - a*Hare*Lynx
    """
    check_choice(kind, ("ode", "difference"), "kind")
    source = Source.of(text[: MAX_TEXT + 1] if isinstance(text, str) else "", where)
    if not isinstance(text, str):
        raise source.error(f"a model text is a str; got {type(text).__name__}", 0, 0)
    if len(text) > MAX_TEXT:
        raise source.error(f"a model text of more than {MAX_TEXT} characters", 0, 0)
    statements = tuple(_read_statement(lines, row, source, kind) for row, lines in logical_lines(source))
    _check_definitions(statements, kind)
    return ModelText(kind, statements, _substituted(statements, kind))


# --- text -> the draft of a model


def read_text(text: str, given: ModelArguments) -> Draft:
    """Return the draft of a model that is a text; initial values in `state` go before those in the text of a copy."""
    model = _parsed(text, given.kind)
    algebraic = _algebraic_states(model, given)
    if not model.states and not algebraic:
        wanted = _RATES[given.kind]
        hint = next((f" {s.name} = ... is an assignment; a rate of {x} is written {wanted.format(x)} = ..."
                     for s in model.of_kind("assignment") for x in given.initial
                     if s.name in (f"d{x}", f"d{x}dt", f"{x}dot", f"d_{x}")), "")  # fmt: skip
        raise ModelError(f"The text has no state: it needs a line such as `{wanted.format('N')} = r * N`.{hint}")
    _check_start(model, given)
    return Draft(
        states=(*model.states, *algebraic),
        parms=given.parms,
        initial={**model.complete("initial"), **given.initial},
        find=lambda: ModelExpressions(
            (*model.complete("rate").values(), *model.residuals), model.complete("assignment")
        ),
        error=model.error,
        algebraic=algebraic,
    )


def _algebraic_states(model: ModelText, given: ModelArguments) -> tuple[str, ...]:
    """Return what the algebraic equations are solved for: what has an initial value and no rate."""
    equations = model.of_kind("algebraic")
    known = {s.name for s in model.statements if s.kind in ("rate", "assignment")}
    guessed = dict.fromkeys([*(s.name for s in model.of_kind("initial")), *given.initial])
    states = tuple(s for s in guessed if s not in known)
    if not equations or len(states) == len(equations):
        return states if equations else ()  # without equations, what has none is told where all starts are checked
    if len(states) > len(equations):
        raise ModelError(
            f"{listed(states)} have an initial value and no rate, so they are algebraic states, and there "
            f"{'is' if len(equations) == 1 else 'are'} only {len(equations)} algebraic equation"
            f"{'s' if len(equations) > 1 else ''} (0 = ...) for these {len(states)}. Write one more, or a rate "
            f"{_RATES[given.kind].format(states[-1])} = ...{did_you_mean(states[-1], sorted(known))}"
        )
    free = [n for n in model.free_names if n not in given.parms and n not in states and n not in given.forcing_names]
    solved = f"only {listed(states)} {'has' if len(states) == 1 else 'have'}" if states else "no name has"
    hint = f", such as state={{{free[0]!r}: 1.0}}" if free else ""
    raise equations[len(states)].error(
        f"there {'is' if len(equations) == 1 else 'are'} {len(equations)} algebraic equation"
        f"{'s' if len(equations) > 1 else ''} (0 = ...), and {solved} an initial value but no rate: give the states "
        f"that they determine a first guess{hint}"
    )


@lru_cache(maxsize=32)
def _parsed(text: str, kind: Literal["ode", "difference"]) -> ModelText:
    """Return what a text holds; changed copies of a model ask for it again."""
    return parse_model(text, kind=kind)


def _check_start(model: ModelText, given: ModelArguments) -> None:
    """Refuse what is given both in the text and as `state`, and a start in the text that is not that of the run."""
    at_zero = []
    for s in model.of_kind("initial"):
        there = f"{s.name}({given.start:.15g})"
        if s.name in given.initial:
            if not given.is_copy:
                raise s.error(
                    f"{s.left} is given in the text and in `state`. Keep one of them; model.replace(state=...) changes "
                    "the start of a model that there is."
                )
        elif s.at not in (0, given.start):
            raise s.error(
                f"{s.name}({s.at:.15g}) is not an initial value, for `times` begin at {given.start:.15g}. Write "
                f"{there} = ..., or let `times` begin at {s.at:.15g}."
            )
        elif s.at != given.start:
            at_zero.append(there)
    if at_zero and not given.is_copy:
        logger.warning(
            "In the text x(0) stands for the start of the run, which is time %.15g here. To say so, write %s = ...",
            given.start, " = ..., ".join(at_zero),
        )  # fmt: skip


# --- text -> statements


def _read_statement(lines: list[str], row: int, source: Source, kind: str) -> ModelStatement:
    """Return one statement, its left-hand side understood and its right-hand side parsed."""
    left, start, end = split_equation(
        lines[0], row, source, f"{_RATES[kind].format('x')} = ..., x(0) = ..., or name = ..."
    )
    with source.at(row, start):
        what, name, at = _read_left(left, kind)
        if what != "algebraic":
            _check_name(name)
    return ModelStatement(what, name, row, right_side(lines, row, source, end), at)


def _read_left(left: str, kind: str) -> tuple[Kind, str, float]:
    """Return what a left-hand side defines, the name, and the time of an initial value."""
    if (match := _RATE.fullmatch(left)) or (match := _NEXT.fullmatch(left)):
        name = next(filter(None, match.groups()))
        if match.re is not (_RATE if kind == "ode" else _NEXT):
            other, own = ("difference", "DifferenceModel") if kind == "ode" else ("differential", "OdeModel")
            raise ValueError(
                f"{left!r} belongs to {other} equations ({own}); here, write {_RATES[kind].format(name)} = ..."
            )
        if kind == "ode" and match[3] != "t":
            raise ValueError(f"rates are derivatives with respect to time, which is called t: write d({name})/dt")
        return "rate", name, 0.0
    if match := _INITIAL.fullmatch(left):
        name, at = match[1], match[2].strip()
        if not _TIME.fullmatch(at):
            if name == "d" and kind == "ode" and re.fullmatch(_NAME, at):
                raise ValueError(f"{left} is not understood; a rate is written d({at})/dt")
            if kind == "difference" and re.fullmatch(r"t\s*\+\s*1", at):
                raise ValueError(f"{left} is not understood; the next state is written next({name})")
            raise ValueError(
                f"{name}({at}) is not understood; an initial value is written {name}(0), a variable {name}"
            )
        return "initial", name, float(at)
    if re.fullmatch(_NAME, left):
        return "assignment", left, 0.0
    if _ZERO.fullmatch(left):
        if kind != "ode":
            raise ValueError("'0 = ...' is an algebraic equation beside differential equations (OdeModel)")
        return "algebraic", "", 0.0
    rate = _RATES[kind].format("x")
    raise ValueError(f"{left!r} cannot stand on the left of '='; there, write {rate}, x(0) or a name")


def _check_name(name: str) -> None:
    """Raise if a name cannot be that of a variable."""
    if name in ("t", "pi"):
        raise ValueError(f"{name!r} is {'time' if name == 't' else 'a constant'} and cannot be given a value")
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not a name: letters, digits and underscores, no digit first")
    if reason := reserved_name(name):
        raise ValueError(reason)


# --- statements -> model


def _check_definitions(statements: tuple[ModelStatement, ...], kind: str) -> None:
    """Raise unless every name is defined once and every initial value has its state."""
    first: dict[str, ModelStatement] = {}
    for s in statements:
        earlier = first.setdefault(s.left, s)
        lines = {earlier.kind: earlier.line, s.kind: s.line}
        if earlier.kind != s.kind:
            raise s.error(
                f"{s.name!r} is a state (line {lines['rate']}) and assigned (line {lines['assignment']}); it can be "
                "one of the two"
            )
        if earlier is not s:
            raise s.error(f"{s.left!r} is given twice, first in line {earlier.line}")
    states = [s.name for s in statements if s.kind == "rate"]
    some_are_algebraic = any(s.kind == "algebraic" for s in statements)
    for s in statements:
        if s.kind == "initial" and s.name not in states and not (some_are_algebraic and s.name not in first):
            raise s.error(
                f"{s.left} is an initial value, but there is no equation {_RATES[kind].format(s.name)} = ...; "
                f"the states are {listed(states)}.{did_you_mean(s.name, states)}"
            )


def _substituted(statements: tuple[ModelStatement, ...], kind: str) -> dict[str, Node]:
    """Return all right-hand sides with assigned names put in, by left-hand side.

    Constants among the assigned names are computed with as such, so this is more than a substitution afterwards: what
    `convert` makes sure of holds for the result.
    """
    known: dict[str, tuple[Value, int]] = {}
    found: dict[str, Node] = {}
    total = 0
    for s in _in_order_of_need(statements, kind):
        value, size = convert(s.tree, known, delays=kind == "ode" and s.kind != "initial")
        total += size
        if s.kind == "assignment":
            value, size = known[s.name] = shared(s.name, value, size, total if total <= MOST_PUT_IN else MOST_COPIED)
        found[s.left] = as_node(value)
    return found


def _in_order_of_need(statements: tuple[ModelStatement, ...], kind: str) -> list[ModelStatement]:
    """Return assignments in the order of their needs, then everything else."""
    assigned = {s.name: s for s in statements if s.kind == "assignment"}
    graph = {n: [m.id for m in s.tree.names() if m.id in assigned] for n, s in assigned.items()}
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        raise _loop(error.args[1][::-1], assigned, kind) from None
    return [assigned[n] for n in order] + [s for s in statements if s.kind != "assignment"]


def _loop(cycle: list[str], assigned: dict[str, ModelStatement], kind: str) -> ModelTextError:
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
    return s.error(f"{message}: {'next({})' if kind == 'difference' else 'd({})/dt'} = ...".format(s.name))
