"""A table of a file, checked against what it may hold: every mistake has its line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fmepy.errors import did_you_mean, listed
from fmepy.workflow.file.signatures import Key
from fmepy.workflow.file.toml import KINDS, TomlTable
from fmepy.workflow.file.toml import Key as Place


def checked(section: TomlTable, keys: Mapping[str, Key]) -> dict[str, Any]:
    """Return what a table holds, whole numbers and floats as its keys want them.

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
    """Return a value that a key allows."""
    word = next(part for part in reversed(place) if isinstance(part, str))
    name = f"`{word}`"
    if float in key.kinds and type(value) is int:
        value = float(value) if abs(value) < 2**1000 else float("inf")
    if int in key.kinds and float not in key.kinds and type(value) is float and value.is_integer():
        value = int(value)
    if key.kinds and type(value) not in key.kinds:
        wanted = " or ".join(KINDS[k] for k in key.kinds)
        held = "hold" if isinstance(place[-1], int) else "be"
        raise section.error(place, f"{name} must {held} {wanted}; got {_shown(value)}.")
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
            return checked(section.inside(place, value), key.of)
    return value


def _check_limits(section: TomlTable, place: Place, name: str, value: float, key: Key) -> None:
    inside = key.least < value < key.most if key.open else key.least <= value <= key.most
    if inside or (key.least == -float("inf") and key.most == float("inf")):
        return
    above, below = ("above", "below") if key.open else ("at least", "at most")
    limits = [f"{word} {limit:g}" for word, limit in ((above, key.least), (below, key.most)) if abs(limit) < 1e9]
    raise section.error(place, f"{name} must be {' and '.join(limits)}; got {value!r}.")


def _shown(value: Any) -> str:
    """Return a value for a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def refuse_of_other_kinds(section: TomlTable, kinds: Mapping[str, Mapping[str, Key]], kind: str, called: str) -> None:
    """Refuse keys that belong to other kinds of a section, saying to which."""
    for name in section.data:
        if name not in kinds[kind]:
            others = [k for k, keys in kinds.items() if name in keys]
            raise section.error(name, f"`{name}` cannot be used with {called}; it belongs to {listed(others)}.")
