"""Words of neighbours: what users of scipy, lmfit, statsmodels, emcee, PyMC or deSolve type, answered with ours.

An argument or attribute of the same meaning under another name is not taken as an alias, for one meaning has one name;
the error says what to type.
"""

from __future__ import annotations

import csv
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

import numpy as np

from fmepy.errors import ArgumentError, UnknownArgumentError, counted, did_you_mean, listed, shortened

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


@functools.cache
def _answers(kind: str) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Return our words, and what a message says, by foreign name, as the table beside this file has them.

    Of several answers the first whose own words the function (or the section of a file) has is meant.
    """
    out: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for name in row["foreign"].split() if row["kind"] == kind else ():
                out.setdefault(name, []).append((tuple(row["own"].split()), row["says"]))
    return out


_NONE = inspect.Parameter.empty
_MANY = inspect.Parameter.VAR_POSITIONAL
_RUN = "A run of a model"
_OF_MODELS = (
    "state",
    "forcings",
    "events",
    "outputs",
    "rtol",
    "atol",
    "method",
    "engine",
    "max_step",
    "history",
    "grid",
)
"""What is an argument of models, and of none of their runs."""


def own_words(function: Callable[P, R], verb: str = "") -> Callable[P, R]:
    """Return a public function that answers an unknown keyword with ours; `verb` is the name of a method.

    Examples
    --------
    >>> @own_words
    ... def fit(p, *, lower=0.0, upper=1.0):
    ...     return p
    >>> fit(1, bounds=(0, 1))
    Traceback (most recent call last):
        ...
    fmepy.errors.UnknownArgumentError: fit has no argument 'bounds'; here it is `lower` and `upper`: lower={'k': 0}, \
upper={'k': 10}.
    """
    parameters = inspect.signature(function).parameters
    words = [name for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD]
    takes_any = len(words) < len(parameters)  # as pictures do: what they do not know goes on to matplotlib
    known = [name for i, name in enumerate(words) if name not in ("self", "cls") and (i or not verb)]
    switches = {name for name, p in parameters.items() if p.annotation in (bool, "bool")}
    plain = _RUN if function.__name__ == "__call__" else function.__qualname__.removesuffix(".__init__")
    have, verb = frozenset(known), verb or plain
    verb = verb.replace(".__call__", ", called,")
    kinds = [p.kind for p in parameters.values()]
    is_open = inspect.Parameter.VAR_POSITIONAL in kinds
    most = len(kinds) if is_open else kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [n for n in known if parameters[n].default is _NONE and parameters[n].kind is not _MANY]
    own_self = len(words) - len(known)
    n = most - own_self
    named = f"; {listed(known[n:], 40)} by name" if known[n:] else ""
    by_name_only = "arguments by name alone" if takes_any else "no argument"
    in_order = [name for name in known[:n] if name in needed]

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Mapping[str, Any] = kwargs
        for name, value in given.items():
            if name not in have and not takes_any:
                raise unknown_argument(verb, name, known)
            if name in switches and (np.ndim(value) or value not in (True, False)):
                raise ArgumentError(f"`{name}={value!r}` must be True or False.")
        if len(args) > most and n == len(known):
            takes = f"{counted(n, 'argument')} ({listed(known)})" if n else by_name_only
            raise UnknownArgumentError(f"{verb} takes {takes}; got {len(args) - own_self}.")
        if len(args) > most:
            raise UnknownArgumentError(
                f"{verb} takes {counted(n, 'argument')} without a name ({listed(known[:n])}); name what follows: "
                f"{verb}({', '.join(known[:n])}, {known[n]}=...). There are {listed(known[n:], 40)}."
            )
        for name, value in zip(known[:n], args[own_self:], strict=False) if given and not is_open else ():
            if name in given:
                raise UnknownArgumentError(
                    f"{verb} has `{name}` twice: {name}={shortened(given[name])}, and without a name "
                    f"{shortened(value)}. Its order is {listed(known[:n])}{named}."
                )
        for name in needed:
            if name not in given and known.index(name) >= len(args) - own_self:
                if name in in_order[1:] and len(args) > own_self:  # perhaps what was given is the second
                    raise UnknownArgumentError(
                        f"{verb} needs `{name}`, too: {verb}({', '.join(in_order)}), in this order; here "
                        f"`{known[0]}` is of the type {type(args[own_self]).__name__}."
                    )
                example = answer_of("needed", f"{verb}.{name}") or f"{name}=..."
                raise UnknownArgumentError(f"{verb} needs `{name}`, too: write {example} in its brackets.")
        return function(*args, **kwargs)

    return wrapper


def with_own_words(kind: C) -> C:
    """Return a public class whose constructor and methods answer an unknown keyword with ours."""
    answer_in_own_words(kind)
    kind.__init__ = own_words(kind.__init__)  # type: ignore[misc]  # the same signature
    return kind


def answer_in_own_words(kind: type) -> None:
    """Let the public methods of a class answer an unknown keyword with ours."""
    for name, member in list(vars(kind).items()):
        function = getattr(member, "__func__", member)
        is_plain = inspect.isfunction(function) and not isinstance(member, staticmethod)
        is_open = name == "__call__" or not name.startswith("_")
        if not (is_open and is_plain) or hasattr(function, "__wrapped__"):
            continue
        answering: Any = own_words(function, f"{kind.__name__}.{name}")
        setattr(kind, name, answering if member is function else type(member)(answering))


def unknown_argument(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    """Return the error for a keyword that a function does not have: ours of the same meaning, or the nearest."""
    known = list(known)
    beginning = f"{function} has no argument {name!r}"
    for own, example in _answers("argument").get(name, ()):
        if set(own) <= set(known):
            return UnknownArgumentError(f"{beginning}; here it is {' and '.join(f'`{k}`' for k in own)}: {example}.")
    hint = f" `model.replace({name}=...)` makes another model." if function == _RUN and name in _OF_MODELS else ""
    if known[:1] == ["parms"] and not hint:  # a run of a model, a cost
        hint = f" If it is a parameter, it stands in a dict: {{{name!r}: 0.5}}."
    return UnknownArgumentError(f"{beginning}.{did_you_mean(name, known)} There are {listed(known, 40)}.{hint}")


def own_key(name: str, known: Iterable[str]) -> str:
    """Return our key of a calibration file for that of another tool, as a message says it; "" where there is none.

    Examples
    --------
    >>> own_key("mcmc", ["fit", "sample"]), own_key("mcmc", ["start", "lower"])
    ('[sample]', '')
    """
    have = set(known)
    return next((says for own, says in _answers("key").get(name, ()) if have.issuperset(own)), "")


def answer_of(kind: str, name: str) -> str:
    """Return what the table says of a name that has one answer; "" where it has none.

    Examples
    --------
    >>> answer_of("function", "tran_1D"), answer_of("function", "modFit")
    ('transport_1d(C, grid, D=...)', '')
    """
    return next((says for _, says in _answers(kind).get(name, ())), "")


class AnswersInOwnWords:
    """Base of results and models whose missing attributes are answered with ours: `elsewhere` says which."""

    __slots__ = ()
    elsewhere: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        answer_in_own_words(cls)

    if not TYPE_CHECKING:  # a type checker shall go on to refuse what is not there

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(member := getattr(kind, name, None), "__get__"):  # it is there, and fails: its own error
                return member.__get__(self, kind)
            if own := kind.elsewhere.get(name):
                raise AttributeError(f"{kind.__name__} has no attribute {name!r}; here it is {own}.")
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)

        def __getitem__(self, key: Any) -> Any:
            name, kind = str(key), type(self).__name__
            known = [k for k in dir(self) if not k.startswith("_")]
            where = next((k for k in ("par", "pars", "parms") if name in getattr(self, k, ())), None)
            hint = f" It stands in `.{where}[{name!r}]`." if where else did_you_mean(name, known)
            if name in known or (isinstance(key, str) and hasattr(self, name)):
                hint = f" It is an attribute: `.{name}`."
            raise TypeError(f"{kind!r} object is not subscriptable: there is no [{key!r}].{hint}")


def by_name(rows: Mapping[str, str]) -> dict[str, str]:
    """Return the answers by foreign name, of rows whose keys hold several names.

    Examples
    --------
    >>> by_name({"x params": "`par`"})
    {'x': '`par`', 'params': '`par`'}
    """
    return {name: own for names, own in rows.items() for name in names.split()}
