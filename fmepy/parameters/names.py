"""One spelling for every name.

Python takes the identifiers ``µ`` (micro sign) and ``μ`` (Greek letter) for one, since it reads names in Unicode's
form NFKC; keyboards type either. Texts, such as the keys of a dict or the columns of a table, it leaves as they are. So
names are brought to that form where they enter: what a model calls μ is found under both.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np

from fmepy.errors import ParameterError, counted, listed, shortened
from fmepy.types import Vector

_LOCAL = re.compile(r"([^\[\]]+(?:\[[^\[\]]*\][^\[\]]*)?)\[(.*)\]")  # D[0] of entity a is D[0][a]


def normal_name(name: object) -> str:
    """Return a name as Python would read it as an identifier."""
    text = str(name)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


def as_theta(theta: Any, names: Sequence[str]) -> Vector:
    """Return the plain vector of values that a bound model or cost takes, one for each of its parameters.

    Raises
    ------
    ParameterError
        Another number of values, which NumPy would spread over all of them if it is one.

    Examples
    --------
    >>> as_theta([0.5], ["r", "K"])
    Traceback (most recent call last):
        ...
    fmepy.errors.ParameterError: A bound model or cost takes a sequence of 2 numbers, in the order of its parameters \
('r', 'K'); got [0.5].
    """
    try:
        out = np.asarray(theta, dtype=float)
    except (TypeError, ValueError):
        out = np.empty(0)
    if out.shape != (len(names),):
        raise ParameterError(
            f"A bound model or cost takes a sequence of {counted(len(names), 'number')}, in the order of its "
            f"parameters ({listed(names)}); got {shortened(theta)}."
        )
    return out


def split_local(name: str, known: Container[str] = ()) -> tuple[str, str | None]:
    """Return the parameter and the entity of a local name, such as ka[3]; None of one that is not local.

    Elements of arrays have such names, too: those that are `known` are not local.
    """
    match = None if name in known else _LOCAL.fullmatch(name)
    return (name, None) if match is None else (match.group(1), match.group(2))


def of_every_entity(names: Iterable[object], known: Iterable[object]) -> list[tuple[str, str]]:
    """Return the parameters that names mean, each with the name in the argument.

    The plain name of a local parameter means that of every entity that is not named itself.

    Examples
    --------
    >>> of_every_entity(["V", "ka", "ka[2]"], ["V", "ka[1]", "ka[2]", "ka[3]"])
    [('V', 'V'), ('ka[1]', 'ka'), ('ka[3]', 'ka'), ('ka[2]', 'ka[2]')]
    """
    normal, have = [normal_name(n) for n in names], dict.fromkeys(normal_name(k) for k in known)
    out = []
    for name in normal:
        local = [] if name in have else [k for k in have if split_local(k)[0] == name and k not in normal]
        out += [(k, name) for k in local or [name]]
    return out


class ByName(dict[str, Any]):
    """Values by normal names; other spellings reach them too."""

    def __missing__(self, key: str) -> Any:
        normal = normal_name(key)
        if normal == key:
            raise KeyError(key)
        return self[normal]
