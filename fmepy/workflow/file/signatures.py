"""Keys of a file: what values they allow, the validation of these, and the schema for editors.

The names and kinds of arguments of a function come from its signature and docstring.

So a file can hold what the function takes, under its own names, without repetition: the kind of a value is that
of the annotation, or of the type in the docstring (``{"none", "std"}``: one of these; ``mapping``: a table;
``sequence``: a list); the sentence is the docstring's first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fmepy.errors import did_you_mean, listed, shortened
from fmepy.workflow.file.toml import Place, TomlTable

_BY_ANNOTATION = {"bool": (bool,), "int": (int,), "float": (float,), "str": (str,)}
_BY_WORD = {
    r"\bstr\b|\btext\b|\bnames?\b": str,
    r"\bint\b|\bpositions?\b": int,
    r"\bfloat\b|\bnumber\b": float,
    r"\bbool\b": bool,
    r"\bmapping\b|\bdict\b": dict,
    r"\bsequence\b|\blist\b|\bnames\b|\barray|\bmatrix\b|\btuples?\b": list,
}
KINDS = {
    str: ("a text in quotes", "string"), bool: ("true or false", "boolean"), int: ("a whole number", "integer"),
    float: ("a number", "number"), list: ("a list", "array"), dict: ("a table", "object"),
}  # fmt: skip
"""What a kind is called in a message, and in the schema."""


@dataclass(frozen=True)
class Key:
    """What a key of a file may hold.

    Attributes
    ----------
    kinds : tuple of type
        Of str, bool, int, float, list and dict, as TOML gives them; a whole number is a float too. Empty: any.
    says : str
        A sentence, for editors and the documentation.
    choices : tuple of str
        What a text may be; empty: anything.
    least, most : float
        Limits of a number, or of the numbers in a list.
    open : bool
        Whether the limits themselves are left out.
    required : bool
    of : mapping of str to Key, Key, or None
        Of a table: its keys, or what each of its values is.
    items : Key or None
        Of a list: what each of its items is.
    """

    kinds: tuple[type, ...] = ()
    says: str = ""
    choices: tuple[str, ...] = ()
    least: float = -float("inf")
    most: float = float("inf")
    open: bool = False
    required: bool = False
    of: Mapping[str, Key] | Key | None = None
    items: Key | None = None


TEXT, FLAG, WHOLE, TABLE = (str,), (bool,), (int,), (dict,)
NAMES: dict[str, Any] = {"kinds": (str, list), "items": Key(TEXT)}
COUNT: dict[str, Any] = {"kinds": WHOLE, "least": 1, "most": 1e9}
INSIDE: dict[str, Any] = {"least": 0, "most": 1, "open": True}
NO_FILE = ("args", "kwargs", "executor", "progress", "seed", "checkpoint", "jac", "f", "p", "lower", "upper", "prior")
"""Arguments of steps that are no matter of their section: they come from the parameters, the data, or ``run``."""


def arguments_of(function: Callable[..., Any], leave_out: Iterable[str], **other: Mapping[str, Any]) -> dict[str, Key]:
    """Return the keys of a function's arguments, in its order.

    Parameters
    ----------
    function : callable
        With a numpydoc docstring.
    leave_out : iterable of str
        Arguments that do not come from a file.
    **other
        By argument, fields of its `Key` that are otherwise than its docstring says.

    Examples
    --------
    >>> def f(model, *, weight: str = "none", num: int):
    ...     '''Do it.
    ...
    ...     Parameters
    ...     ----------
    ...     model : Model
    ...     weight : {"none", "std"}
    ...         What residuals are divided by. More of it.
    ...     num : int
    ...         How many.
    ...     '''
    >>> arguments_of(f, ["model"], num={"least": 1})["weight"]
    Key(kinds=(<class 'str'>,), says='What residuals are divided by.', choices=('none', 'std'), ...)
    """
    docs, omitted = _documented_parameters(inspect.getdoc(function) or ""), set(leave_out)
    keys = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in omitted or parameter.kind is parameter.VAR_KEYWORD:
            continue
        kind, says = docs.get(name, ("", ""))
        annotation = str(parameter.annotation).removesuffix(" | None")
        choices = re.match(r"\{([^}]*)\}", kind)
        rest = kind[choices.end() :] if choices else kind
        kinds = _BY_ANNOTATION.get(annotation) or tuple(t for w, t in _BY_WORD.items() if re.search(w, rest))
        if choices and str not in kinds:
            kinds = (str, *kinds)
        words = tuple(re.findall(r'"([^"]*)"', choices[1])) if choices else ()
        key = Key(kinds, says, words, required=parameter.default is parameter.empty)
        keys[name] = replace(key, **other.get(name, {}))
    return keys


def _documented_parameters(doc: str) -> dict[str, tuple[str, str]]:
    """Return type and first sentence of every parameter of a numpydoc docstring."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^[A-Z]\w*\n-{3,}|\Z)", doc, re.DOTALL | re.MULTILINE)
    docs = {}
    for entry in re.finditer(
        r"^(\w[\w, *]*?) ?: ?([^\n]+)\n((?:[ \t]+[^\n]*\n?|\n)*)", section[1] if section else "", re.M
    ):
        text = " ".join(entry[3].split())
        first = re.split(r"(?<=[^.][a-z)`\"\]0-9])[.;] (?=[A-Z`\"])", text, maxsplit=1)[0]
        says = re.sub(r"`{1,2}", "", first)
        for name in entry[1].split(","):
            docs[name.strip(" *")] = (entry[2], says if not says or says.endswith(".") else f"{says}.")
    return docs


# --- what a file holds, checked


def validate(section: TomlTable, keys: Mapping[str, Key]) -> dict[str, Any]:
    """Validate a table; return its values, with numbers converted to the kinds of their keys.

    Raises
    ------
    ArgumentError
        An unknown key (the nearest is named), one that is missing, a value of another kind, one that is no choice, or
        outside its limits; with the line.
    """
    section.check(keys)
    for name, key in keys.items():
        if key.required and name not in section.data:
            inside = f" in {section.name}" if section.name else ""
            raise section.error((), f"the key `{name}` is missing{inside}. {key.says}".rstrip())
    return {name: _value(section, (name,), value, keys[name]) for name, value in section.data.items()}


def _value(section: TomlTable, place: Place, value: Any, key: Key) -> Any:
    """Return a value if its key allows it, converted to the kind of the key."""
    word = next(part for part in reversed(place) if isinstance(part, str))
    name = f"`{word}`"
    if float in key.kinds and type(value) is int:
        value = float(value) if abs(value) < 2**1000 else float("inf")
    if int in key.kinds and float not in key.kinds and type(value) is float and value.is_integer():
        value = int(value)
    if key.kinds and type(value) not in key.kinds:
        kinds = " or ".join(KINDS[k][0] for k in key.kinds)
        verb = "hold" if isinstance(place[-1], int) else "be"
        raise section.error(place, f"{name} must {verb} {kinds}; got {shortened(value)}.")
    if isinstance(value, str) and key.choices and value not in key.choices:
        near = did_you_mean(value, key.choices)
        raise section.error(place, f"`{word}={value!r}` is not known. Choose one of {listed(key.choices, 20)}.{near}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _check_limits(section, place, name, value, key)
    if isinstance(value, list) and key.items is not None:
        return [_value(section, (*place, i), item, key.items) for i, item in enumerate(value)]
    if isinstance(value, dict):
        if isinstance(key.of, Key):
            return {k: _value(section, (*place, k), item, key.of) for k, item in value.items()}
        if key.of is not None:
            return validate(section.inside(place, value), key.of)
    return value


def _check_limits(section: TomlTable, place: Place, name: str, value: float, key: Key) -> None:
    inside = key.least < value < key.most if key.open else key.least <= value <= key.most
    if inside or (key.least == -float("inf") and key.most == float("inf")):
        return
    above, below = ("above", "below") if key.open else ("at least", "at most")
    limits = [f"{word} {limit:g}" for word, limit in ((above, key.least), (below, key.most)) if abs(limit) < 1e9]
    raise section.error(place, f"{name} must be {' and '.join(limits)}; got {value!r}.")


def check_kind(section: TomlTable, kinds: Mapping[str, Mapping[str, Key]], kind: str, called: str) -> None:
    """Refuse keys that a section of this kind cannot hold, and name the kinds that can."""
    for name in section.data:
        if name not in kinds[kind]:
            others = [k for k, keys in kinds.items() if name in keys]
            raise section.error(name, f"`{name}` cannot be used with {called}; it belongs to {listed(others)}.")
    validate(section, kinds[kind])


# --- the schema for editors


def schema_of(keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return the JSON schema of a table of keys."""
    required = [name for name, key in keys.items() if key.required]
    schema = {"type": "object", "properties": {name: _one(key) for name, key in keys.items()}}
    return schema | {"additionalProperties": False} | ({"required": required} if required else {})


def _one(key: Key) -> dict[str, Any]:
    """Return the schema of one key: of its kind, or of any of its kinds."""
    kinds = [_of_kind(kind, key) for kind in key.kinds]
    description = {"description": key.says} if key.says else {}
    return description | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _of_kind(kind: type, key: Key) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": KINDS[kind][1]}
    if kind is str and key.choices:
        schema["enum"] = list(key.choices)
    if kind in (int, float):
        words = ("exclusiveMinimum", "exclusiveMaximum") if key.open else ("minimum", "maximum")
        schema |= {w: v for w, v in zip(words, (key.least, key.most), strict=True) if abs(v) != float("inf")}
    if kind is list and key.items is not None:
        schema["items"] = _one(key.items)
    if kind is dict:
        if isinstance(key.of, Key):
            schema["additionalProperties"] = _one(key.of)
        elif key.of is not None:
            schema |= schema_of(key.of)
    return schema
