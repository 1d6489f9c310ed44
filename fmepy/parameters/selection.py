"""Names or positions, turned into names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.checks import as_list
from fmepy.errors import ArgumentError, ParameterError, did_you_mean, listed, repeated
from fmepy.parameters.names import normal_name


def cells_of(name: Any, known: Sequence[str]) -> list[str]:
    """Return the names of all cells of a profile, ``O2[1]`` and so on; none where there is no such profile."""
    return [k for k in known if k.startswith(f"{name}[")] if isinstance(name, str) and name not in known else []


def names_in_short(known: Sequence[str]) -> list[str]:
    """Return the names that `chosen` takes, of all cells of a profile that of the profile alone."""
    return list(dict.fromkeys(map(profile_of, known)))


def profile_of(name: str) -> str:
    """Return the profile that a cell belongs to, O2 of ``O2[1]``; another name as it is."""
    return name[: name.rindex("[")] if name.endswith("]") else name


def chosen(
    wanted: Any, known: Sequence[str], argument: str = "which", what: str = "variable", *, is_set: bool = False
) -> list[str]:
    """Return the names of `known` that `wanted` selects, in its order: names, positions from 0, or None for all.

    The name of a profile, ``O2``, is that of all its cells, ``O2[1]`` and so on; so is that of a local parameter.

    With `is_set` an empty selection or a repeated name is an error.

    Raises
    ------
    ParameterError, ArgumentError
        (for parameters, for everything else) A name that is not there, a position outside, a repetition, nothing, or
        something else than a flat list.

    Examples
    --------
    >>> chosen(["b", 0], ["a", "b"])
    ['b', 'a']
    """
    if wanted is None:
        return list(known)
    kind = ParameterError if what == "parameter" else ArgumentError
    items = as_list(wanted, argument, kind, "names or positions")
    spelled = {normal_name(k): k for k in known}
    out = []
    for item in items:
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not 0 <= item < len(known):
                raise kind(f"`{argument}`: there is no {what} {item}; positions go from 0 to {len(known) - 1}.")
            out.append(known[int(item)])
        elif isinstance(item, str):
            if cells := cells_of(item, known):
                out += cells  # a profile, or the local parameter of every entity
                continue
            if normal_name(item) not in spelled:
                short = names_in_short(known)
                hint, names = did_you_mean(item, [*short, *known]), listed(short)
                raise kind(f"`{argument}`: there is no {what} {item!r}.{hint} There are {names}.")
            out.append(spelled[normal_name(item)])
        else:
            raise kind(f"`{argument}` must be names or positions of one set, in a flat list; got {item!r} in it.")
    if not is_set:
        return out
    if not out:
        raise kind(f"`{argument}` is empty. There are {listed(names_in_short(known))}.")
    if twice := repeated(out):
        raise kind(f"`{argument}` names {listed(twice)} more than once.")
    return out
