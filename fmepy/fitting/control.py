"""The `control` of fits: names, defaults, and the words that FME's methods use for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fmepy.errors import ArgumentError, did_you_mean, listed


def filled(given: Any, defaults: Mapping[str, Any], aliases: Mapping[str, str], method: str) -> dict[str, Any]:
    """Return `defaults`, overridden by the user's values.

    Parameters
    ----------
    given : None or dict
    defaults : dict
        The names that the method knows.
    aliases : dict
        Other words for them, FME's; dots in names may be written as underscores.
    method : str
        For messages.

    Raises
    ------
    ArgumentError
        Not a dict; an unknown name; a value that is not a number, or negative.

    Examples
    --------
    >>> filled({"rel.tol": 1e-8}, {"maxiter": 100, "reltol": 1e-10}, {"rel_tol": "reltol"}, "Port")
    {'maxiter': 100, 'reltol': 1e-08}
    """
    out = dict(defaults)
    if given is None:
        return out
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"`control` must be a dict, such as control={{'{next(iter(defaults))}': ...}}; got {given!r}."
        )
    for name, value in given.items():
        plain = str(name).replace(".", "_")
        key = aliases.get(plain, plain)
        if key not in out:
            raise ArgumentError(
                f"`control`: {method} has no {str(name)!r}.{did_you_mean(name, [*out, *aliases])} It takes "
                f"{listed(out)}{' (or ' + listed(aliases) + ')' if aliases else ''}."
            )
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ArgumentError(f"`control`: {str(name)!r} must be a number >= 0; got {value!r}.")
        out[key] = value
    return out
