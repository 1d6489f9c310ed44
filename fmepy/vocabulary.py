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

from fmepy.errors import ArgumentError, UnknownArgumentError, counted, did_you_mean, listed

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


def own_words(function: Callable[P, R]) -> Callable[P, R]:
    """Return a public function that answers an unknown keyword with ours.

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
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(f"{function.__qualname__} takes any keyword.")
    known = [name for name in parameters if name != "self"]
    switches = {name for name, p in parameters.items() if p.annotation in (bool, "bool")}
    have, verb = frozenset(known), function.__qualname__.removesuffix(".__init__")
    verb = _RUN if function.__name__ == "__call__" else verb
    kinds = [p.kind for p in parameters.values()]
    most = (
        len(kinds)
        if inspect.Parameter.VAR_POSITIONAL in kinds
        else kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
    )

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        given: Mapping[str, Any] = kwargs
        for name, value in given.items():
            if name not in have:
                raise unknown_argument(verb, name, known)
            if name in switches and (np.ndim(value) or value not in (True, False)):
                raise ArgumentError(f"`{name}={value!r}` must be True or False.")
        n = most - len(parameters) + len(known)  # without self
        if len(args) > most and n < len(known):
            raise UnknownArgumentError(
                f"{verb} takes {counted(n, 'argument')} without a name ({listed(known[:n])}); name what follows: "
                f"{verb}({', '.join(known[:n])}, {known[n]}=...). There are {listed(known[n:], 40)}."
            )
        return function(*args, **kwargs)

    return wrapper


def with_own_words(kind: C) -> C:
    """Return a public class whose constructor answers an unknown keyword with ours."""
    kind.__init__ = own_words(kind.__init__)  # type: ignore[misc]  # the same signature
    return kind


def unknown_argument(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    """Return the error for a keyword that a function does not have: ours of the same meaning, or the nearest."""
    known = list(known)
    beginning = f"{function} has no argument {name!r}"
    for own, example in _answers("argument").get(name, ()):
        if set(own) <= set(known):
            return UnknownArgumentError(f"{beginning}; here it is {' and '.join(f'`{k}`' for k in own)}: {example}.")
    hint = f" `model.replace({name}=...)` makes another model." if function == _RUN and name in _OF_MODELS else ""
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


class AnswersInOwnWords:
    """Base of results and models whose missing attributes are answered with ours: `elsewhere` says which."""

    __slots__ = ()
    elsewhere: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker shall go on to refuse what is not there

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if own := kind.elsewhere.get(name):
                raise AttributeError(f"{kind.__name__} has no attribute {name!r}; here it is {own}.")
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)


def by_name(rows: Mapping[str, str]) -> dict[str, str]:
    """Return the answers by foreign name, of rows whose keys hold several names.

    Examples
    --------
    >>> by_name({"x params": "`par`"})
    {'x': '`par`', 'params': '`par`'}
    """
    return {name: own for names, own in rows.items() for name in names.split()}
