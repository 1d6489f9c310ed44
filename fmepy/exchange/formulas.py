"""Formulas of SBML and PEtab -> expressions of the model language, by a white list of operators and functions.

libsbml reads the XML of SBML. The grammar of PEtab is its own: ``^`` binds strongest and from the right (``-2^4`` is
-16), then signs and ``!``, ``* /``, ``+ -``, comparisons, and last ``&&`` and ``||``, which bind equally. In both,
truth values and numbers are converted into one another: true is 1, and all numbers but 0 are true.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import pairwise
from typing import Any

from fmepy.errors import DataError, ModelError, did_you_mean
from fmepy.exchange.expressions import Expr, Reader, ReadError, tokens_of
from fmepy.language.conditions import Condition, Joined, Not, Relation, choose, relation
from fmepy.language.equations import names_in, symbol
from fmepy.language.functions import holds_jumps
from fmepy.language.nodes import Node, Number, add, as_node, call, mul, nodes_in, power, substituted

Value = Any
"""A Node or a Condition."""
AVOGADRO = 6.02214179e23
MOST_NESTED = 200


def as_number(value: Value) -> Node:
    """Return a value as an expression: 1 or 0 for a condition."""
    return value if isinstance(value, Node) else as_node(choose(value, 1.0, 0.0))


def as_condition(value: Value) -> Condition:
    """Return a value as a condition: whether a number is not 0; a choice between numbers becomes its relation."""
    if not isinstance(value, Node):
        return value  # type: ignore[no-any-return]
    if value.word == "where":
        return _chosen(Relation(*value.args[:2]), *map(as_condition, value.args[2:]))
    return value.value != 0 if isinstance(value, Number) else relation("!=", value, 0.0)


def _chosen(test: Condition, yes: Condition, no: Condition) -> Condition:
    if isinstance(yes, bool) and isinstance(no, bool):
        return yes if yes == no else test if yes else Not(test)
    return Joined([Joined([test, yes], "and"), Joined([Not(test), no], "and")], "or")


def without_choices(condition: Condition) -> Condition:
    """Return a condition without choices inside relations: where(a > b, 1, 2) > c becomes its two cases."""
    if isinstance(condition, Not):
        return Not(without_choices(condition.condition))
    if isinstance(condition, Joined):
        return Joined([without_choices(p) for p in condition.parts], condition.by)
    if isinstance(condition, bool):
        return condition
    sides = as_node(condition.left), as_node(condition.right)
    if isinstance(sides[0], Number) and isinstance(sides[1], Number):
        return sides[0].value > sides[1].value
    if not (choices := nodes_in(sides, "where")):
        return condition
    cases = [without_choices(Relation(*substituted(sides, {choices[0]: e}))) for e in choices[0].args[2:]]
    return _chosen(Relation(*choices[0].args[:2]), *cases)


def _log(base: Node, x: Node) -> Node:
    if isinstance(base, Number) and base.value == 10:
        return call("log10", x)
    return call("log", x) / call("log", base)


def _factorial(x: Node) -> Node:
    if isinstance(x, Number) and x.value >= 0 and x.value == int(x.value) and x.value <= 170:
        return as_node(float(math.factorial(int(x.value))))
    raise ModelError("the factorial of something that is no whole number")


_PLAIN = {n: n for n in ("abs", "exp", "floor", "sin", "cos", "tan", "sinh", "cosh", "tanh")} | {
    "ln": "log", "ceiling": "ceil", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh",
}  # fmt: skip
_RECIPROCAL = {"sec": "cos", "csc": "sin", "cot": "tan", "sech": "cosh", "csch": "sinh", "coth": "tanh"}
FUNCTIONS: dict[str, Callable[..., Node]] = {  # by the names of libsbml's types of nodes
    "PLUS": lambda *x: add(*x) if x else as_node(0.0),
    "MINUS": lambda *x: -x[0] if len(x) == 1 else x[0] - x[1],
    "TIMES": lambda *x: mul(*x) if x else as_node(1.0),
    "DIVIDE": lambda a, b: a / b,
    "POWER": power, "FUNCTION_POWER": power,
    "FUNCTION_ROOT": lambda degree, x: power(x, 1 / degree),
    "FUNCTION_LOG": _log, "FUNCTION_FACTORIAL": _factorial,
    "FUNCTION_MAX": lambda *x: call("max", *x) if len(x) > 1 else x[0],
    "FUNCTION_MIN": lambda *x: call("min", *x) if len(x) > 1 else x[0],
    "FUNCTION_ARCCOSH": lambda x: call("log", x + power(x * x - 1, 0.5)),
    "FUNCTION_ARCTANH": lambda x: call("log", (1 + x) / (1 - x)) / 2,
    "FUNCTION_QUOTIENT": lambda a, b: call("trunc", a / b),
    "FUNCTION_REM": lambda a, b: a - b * call("trunc", a / b),
    **{f"FUNCTION_{n.upper()}": partial(call, ours) for n, ours in _PLAIN.items()},
}  # fmt: skip
for _name, _of in _RECIPROCAL.items():
    FUNCTIONS[f"FUNCTION_{_name.upper()}"] = lambda x, of=_of: 1 / call(of, x)
    _inverse = FUNCTIONS[f"FUNCTION_ARC{_of.upper()}"]
    FUNCTIONS[f"FUNCTION_ARC{_name.upper()}"] = lambda x, inverse=_inverse: inverse(1 / x)
RELATIONS = {
    "RELATIONAL_EQ": "==", "RELATIONAL_NEQ": "!=", "RELATIONAL_GT": ">", "RELATIONAL_LT": "<", "RELATIONAL_GEQ": ">=",
    "RELATIONAL_LEQ": "<=",
}  # fmt: skip
_CONSTANTS: dict[str, Value] = {
    "CONSTANT_E": math.e, "CONSTANT_PI": math.pi, "CONSTANT_TRUE": True, "CONSTANT_FALSE": False,
    "NAME_AVOGADRO": AVOGADRO,
}  # fmt: skip


_TRIGONOMETRIC = ("sin", "cos", "tan", "sec", "csc", "cot", "sinh", "cosh", "tanh", "sech", "csch", "coth")
_CALLED: dict[str, Callable[..., Node]] = {
    **{n: FUNCTIONS[f"FUNCTION_{n.upper()}"] for n in (
        *_TRIGONOMETRIC, *(f"arc{n}" for n in _TRIGONOMETRIC), "exp", "abs", "floor", "ln")},
    "ceil": FUNCTIONS["FUNCTION_CEILING"], "pow": power,
    "log": lambda x, *base: call("log", x) / call("log", *base) if base else call("log", x),
    "log2": lambda x: call("log2", x), "log10": lambda x: call("log10", x),
    "sqrt": lambda x: power(x, 0.5), "sign": lambda x: call("sign", x),
    "min": lambda a, b: call("min", a, b), "max": lambda a, b: call("max", a, b),
}  # fmt: skip
_SIGNS = {sign: kind for kind, sign in RELATIONS.items()} | {
    "+": "PLUS", "-": "MINUS", "*": "TIMES", "/": "DIVIDE", "&&": "LOGICAL_AND", "||": "LOGICAL_OR",
    "power": "POWER", "minus": "MINUS", "not": "LOGICAL_NOT",
}  # fmt: skip
"""Operators by the names of libsbml's types of nodes, see `applied`."""


@dataclass
class Formulas:
    """A converter of the formulas of one model of SBML.

    Attributes
    ----------
    names : dict of str to Node
        Expressions of ids.
    functions : dict of str to libsbml's tree
        Function definitions.
    rate_of : callable
        Returns the symbol of the rate of the quantity with an id.
    """

    names: dict[str, Node]
    functions: dict[str, Any] = field(default_factory=dict)
    rate_of: Callable[[str], Node] = symbol

    def number(self, tree: Any, where: str, local: Mapping[str, Value] | None = None) -> Node:
        """Return the expression of a formula; messages begin with `where`."""
        return as_number(self._whole(tree, where, local))

    def condition(self, tree: Any, where: str, assigned: Mapping[str, Node]) -> Condition:
        """Return the condition of a formula, with rules among `assigned` that jump substituted."""
        put_in: dict[str, Node] = {}
        used = names_in([self.number(tree, where)])
        for id, e in ((k, v) for k, v in self.names.items() if getattr(v, "name", "") in used & assigned.keys()):
            for _ in assigned:  # those that rules assign from themselves are refused later
                if not (rule := {symbol(n): assigned[n] for n in names_in([e]) & assigned.keys()}):
                    break
                e = e.subs(rule)
            if holds_jumps([e]):
                put_in[id] = e
        return without_choices(as_condition(self._whole(tree, where, put_in)))

    def _whole(self, tree: Any, where: str, local: Mapping[str, Value] | None) -> Value:
        try:
            if tree is None:
                raise ModelError("there is no formula")
            return self._value(tree, local or {}, 0)
        except ModelError as error:
            raise ModelError(f"{where}: {error}") from None
        except RecursionError:
            raise ModelError(f"{where}: the formula is nested too deeply") from None

    def _value(self, tree: Any, local: Mapping[str, Value], depth: int) -> Value:
        import libsbml

        if depth > MOST_NESTED:
            raise ModelError(f"a formula nested more than {MOST_NESTED} levels deep, or a function that calls itself")
        if tree.isNumber():
            value = float(tree.getInteger()) if tree.isInteger() else float(tree.getReal())
            if not math.isfinite(value):
                raise ModelError(f"the number {value} in a formula; finite numbers are needed")
            return as_node(value)
        kind = _kinds()[tree.getType()]
        children = [tree.getChild(i) for i in range(tree.getNumChildren())]
        if kind == "NAME":
            return self._name(tree.getName(), local)
        if kind == "NAME_TIME":
            return symbol("t")
        if kind in _CONSTANTS:
            value = _CONSTANTS[kind]
            return value if isinstance(value, bool) else as_node(value)
        if kind == "FUNCTION_DELAY":
            x, tau = (as_number(self._value(c, local, depth + 1)) for c in children)
            return call("lag", x, tau) if names_in([x]) and not (isinstance(tau, Number) and tau.value == 0) else x
        if kind == "FUNCTION_RATE_OF":
            return self.rate_of(children[0].getName())
        values = [self._value(c, local, depth + 1) for c in children]
        if kind == "FUNCTION":
            return self._called(tree.getName(), values, depth)
        try:
            return applied(kind, values)
        except (KeyError, ZeroDivisionError, TypeError) as error:
            why = f"({kind.removeprefix('FUNCTION_').lower()}) is not read"
            why = why if isinstance(error, KeyError) else f"has no value ({error})"
            raise ModelError(f"{libsbml.formulaToL3String(tree)[:60]!r} {why}") from None

    def _name(self, name: str, local: Mapping[str, Value]) -> Value:
        if name in local:
            return local[name]
        if name not in self.names:
            raise ModelError(f"{name!r} is the id of nothing that has a value.{did_you_mean(name, self.names)}")
        return self.names[name]

    def _called(self, name: str, values: list[Value], depth: int) -> Value:
        if name not in self.functions:
            raise ModelError(f"the function {name!r} is not defined.{did_you_mean(name, self.functions)}")
        body = self.functions[name]
        n = body.getNumChildren() - 1
        if n != len(values):
            raise ModelError(f"the function {name!r} takes {n} arguments, {len(values)} given")
        own = {body.getChild(i).getName(): value for i, value in enumerate(values)}
        return self._value(body.getChild(n), own, depth + 10)


def applied(kind: str, values: Sequence[Value]) -> Value:
    """Return an operator or a function of values, by the name of libsbml's type of node; KeyError if it is unknown."""
    if kind == "FUNCTION_PIECEWISE":
        return piecewise(values)
    if kind.startswith("LOGICAL_"):
        return _logical(kind.removeprefix("LOGICAL_"), list(map(as_condition, values)))
    numbers = list(map(as_number, values))
    if kind.startswith("RELATIONAL_"):
        return Joined([relation(RELATIONS[kind], a, b) for a, b in pairwise(numbers)], "and")
    return FUNCTIONS[kind](*numbers)


def piecewise(values: Sequence[Value]) -> Value:
    """Return the choice between pieces (pairs of a value and a condition) and the value otherwise.

    Without a value otherwise, the last piece holds where no other does.
    """
    if not values:
        raise ModelError("a piecewise without pieces")
    *pieces, out = values if len(values) % 2 else values[:-1]
    for value, test in zip(pieces[-2::-2], pieces[::-2], strict=True):
        out = choose(as_condition(test), as_number(value), as_number(out))
    return out


def _logical(word: str, parts: list[Condition]) -> Condition:
    if word == "NOT":
        return Not(parts[0])
    if word == "IMPLIES":
        return Joined([Not(parts[0]), parts[1]], "or")
    if word == "XOR":
        out: Condition = False
        for part in parts:
            out = Joined([Joined([out, Not(part)], "and"), Joined([Not(out), part], "and")], "or")
        return out
    return Joined(parts, word.lower()) if parts else word == "AND"


@cache
def _kinds() -> dict[int, str]:
    """Return the names of libsbml's types of nodes."""
    import libsbml

    return {getattr(libsbml, n): n.removeprefix("AST_") for n in dir(libsbml) if n.startswith("AST_")}


# --- PEtab


def parse_formula(text: Any, names: Callable[[str], Node], where: str = "") -> Node:
    """Return the expression of a formula of PEtab.

    Parameters
    ----------
    text : str or number
    names : callable
        Returns the expression of a name; raises DataError for an unknown one.
    where : str
        The beginning of messages: file, row and column.

    Raises
    ------
    DataError
        The formula cannot be read; with the place.

    Examples
    --------
    >>> from fmepy.language.equations import symbol
    >>> parse_formula("2 * k^2 / (1 + x)", symbol)
    2*k**2/(1 + x)
    >>> float(parse_formula("-2^4 + piecewise(1, 2 > 3, 5)", symbol))
    -11.0
    """
    text = str(text)
    try:
        reader = Reader(tokens_of(text, "petab", 1), "petab")
        expr = reader.expression()
        reader.expect_end()
        return as_number(_value(expr, names))
    except ReadError as error:
        why, at = str(error), max(error.line, 1)
    except RecursionError:
        why, at = "nested too deeply", 1
    place = f"{where}: " if where else ""
    raise DataError(f"{place}{why}, in the formula {text[:200]!r}, character {at}.")


def _value(e: Expr, names: Callable[[str], Node]) -> Value:
    if e.word == "number":
        return as_node(e.value)
    if e.word == "name":
        return _named(e, names)
    values = [_value(a, names) for a in e.args]
    if e.word == "call":
        return _called(e, values)
    if e.word != "chain":
        return applied(_SIGNS[e.word], values)
    value = values[0]
    for sign, other in zip(e.value, values[1:], strict=True):
        if sign == "/" and isinstance(b := as_number(other), Number) and b.value == 0:
            raise ReadError("a division by zero", e.line)
        value = applied(_SIGNS[sign], [value, other])
    return value


def _named(e: Expr, names: Callable[[str], Node]) -> Value:
    if e.value in ("true", "false"):
        return bool(e.value == "true")
    if e.value == "inf":
        return as_node(math.inf)
    try:
        return names(e.value)
    except DataError as error:
        raise ReadError(str(error).rstrip("."), e.line) from None


def _called(e: Expr, values: list[Value]) -> Value:
    if e.value == "piecewise":
        if len(values) % 2 == 0:
            raise ReadError("piecewise takes pairs of a value and a condition, then the value otherwise", e.line)
        return as_number(piecewise(values))
    if e.value not in _CALLED:
        near = did_you_mean(e.value, [*_CALLED, "piecewise"])
        raise ReadError(f"there is no function {e.value!r}.{near}".rstrip("."), e.line)
    try:
        return _CALLED[e.value](as_number(values[0]), *map(as_number, values[1:]))
    except (IndexError, TypeError):
        raise ReadError(f"{e.value}(...) does not take {len(values)} arguments", e.line) from None


# --- conditions of events


def margin(condition: Condition, moves: Callable[..., bool]) -> Node:
    """Return an expression that rises through zero where a condition begins to hold.

    moves : callable
        Tells whether any of some expressions may change between events; a relation of constant ones is 1 or -1.
    """
    if isinstance(condition, bool):
        return as_node(1.0 if condition else -1.0)
    if isinstance(condition, Relation):
        left, right = as_node(condition.left), as_node(condition.right)
        return left - right if moves(left, right) else as_node(choose(condition, 1.0, -1.0))
    if isinstance(condition, Not):
        return -margin(condition.condition, moves)
    is_and = condition.by == "and"
    parts = [margin(p, moves) for p in condition.parts if p is not is_and]  # True has no effect in an `and`
    if not parts or (not is_and) in condition.parts:
        return margin(is_and if not parts else not is_and, moves)
    return parts[0] if len(parts) == 1 else call("min" if condition.by == "and" else "max", *parts)


def relations(condition: Condition, positive: bool = True) -> Iterator[tuple[Relation, bool]]:
    """Yield the relations of a condition, and whether they are positive or negated."""
    if isinstance(condition, Relation):
        yield condition, positive
    elif isinstance(condition, Not):
        yield from relations(condition.condition, not positive)
    elif isinstance(condition, Joined):
        for part in condition.parts:
            yield from relations(part, positive)


def equalities(condition: Condition) -> Iterator[Relation]:
    """Yield the relations by == or != in a condition, see `language.conditions.relation`."""
    if isinstance(condition, Not):
        yield from equalities(condition.condition)
    elif isinstance(condition, Joined):
        both = [p.condition for p in condition.parts if isinstance(p, Not) and isinstance(p.condition, Relation)]
        if len(both) == 2 == len(condition.parts) and (both[0].left, both[0].right) == (both[1].right, both[1].left):
            yield both[0]
        for part in condition.parts:
            yield from equalities(part)
