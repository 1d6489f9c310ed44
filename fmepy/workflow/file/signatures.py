"""What a file may say of the arguments of a function: their names and kinds come from its signature and docstring.

So a file can hold what the function takes, in its words, and nothing has to be said twice: the kind of a value is that
of the annotation, or of the type in the docstring (``{"none", "std"}``: one of these; ``mapping``: a table;
``sequence``: a list); the sentence is the docstring's first.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

_BY_ANNOTATION = {"bool": (bool,), "int": (int,), "float": (float,), "str": (str,)}
_BY_WORD = {
    r"\bstr\b|\btext\b|\bnames?\b": str,
    r"\bint\b|\bpositions?\b": int,
    r"\bfloat\b|\bnumber\b": float,
    r"\bbool\b": bool,
    r"\bmapping\b|\bdict\b": dict,
    r"\bsequence\b|\blist\b|\bnames\b|\barray|\bmatrix\b|\btuples?\b": list,
}


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


TEXT, FLAG, WHOLE, NUMBER, TABLE, LIST = (str,), (bool,), (int,), (float,), (dict,), (list,)
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
    told, left = _told(inspect.getdoc(function) or ""), set(leave_out)
    keys = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name in left or parameter.kind is parameter.VAR_KEYWORD:
            continue
        kind, says = told.get(name, ("", ""))
        annotation = str(parameter.annotation).removesuffix(" | None")
        choices = re.match(r"\{([^}]*)\}", kind)
        rest = kind[choices.end() :] if choices else kind
        kinds = _BY_ANNOTATION.get(annotation) or tuple(t for w, t in _BY_WORD.items() if re.search(w, rest))
        if choices and str not in kinds:
            kinds = (str, *kinds)
        key = Key(
            kinds=kinds,
            says=says,
            choices=tuple(re.findall(r'"([^"]*)"', choices[1])) if choices else (),
            required=parameter.default is parameter.empty,
        )
        keys[name] = replace(key, **other.get(name, {}))
    return keys


def _told(doc: str) -> dict[str, tuple[str, str]]:
    """Return type and first sentence of every parameter of a numpydoc docstring."""
    found = re.search(r"^Parameters\n-+\n(.*?)(?=^[A-Z]\w*\n-{3,}|\Z)", doc, re.DOTALL | re.MULTILINE)
    told = {}
    for entry in re.finditer(
        r"^(\w[\w, *]*?) ?: ?([^\n]+)\n((?:[ \t]+[^\n]*\n?|\n)*)", found[1] if found else "", re.M
    ):
        text = " ".join(entry[3].split())
        first = re.split(r"(?<=[^.][a-z)`\"\]0-9])[.;] (?=[A-Z`\"])", text, maxsplit=1)[0]
        says = re.sub(r"`{1,2}", "", first)
        for name in entry[1].split(","):
            told[name.strip(" *")] = (entry[2], says if not says or says.endswith(".") else f"{says}.")
    return told
