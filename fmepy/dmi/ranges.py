"""Ranges of subscripts: names of the elements of an axis, and the meaning of an index in an equation.

``subscripts region: north, south`` names a range and its elements; ``dims births[region, age]`` gives an array axes
with such elements. A range may be a part of another one, ``subscripts cold: north``, or be mapped to it, element by
element: ``subscripts town: oslo, rome, bari -> region: north, south, south``. Where the left-hand side has a range in
the place of an index, the equation holds for each of its elements, and the range stands for that element on the
right-hand side; a range that is mapped to another stands for the other's element, too. A range that the left-hand side
does not have, and ``:``, stand for all their elements, one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple, TypeAlias

from fmepy.dmi.statements import Shape, Size
from fmepy.errors import check_known, did_you_mean, listed, repeated

_LIST = r"\s*([^\W\d]\w*(?:\s*,\s*[^\W\d]\w*)*)\s*"
_FORM = re.compile(rf"\s*([^\W\d]\w*)\s*:{_LIST}(?:->\s*([^\W\d]\w*)\s*(?::{_LIST})?)?", re.DOTALL)
Bound: TypeAlias = Mapping[str, str]
"""The current element of each range on a left-hand side."""


class SubscriptRange(NamedTuple):
    """The elements of a range; if it is mapped to another, the name of that one and its element for each."""

    elements: tuple[str, ...]
    to: str = ""
    mapped: tuple[str, ...] = ()


Ranges: TypeAlias = dict[str, SubscriptRange]


def read_range(text: str) -> tuple[str, SubscriptRange]:
    """Return name and elements of a declaration; raise ValueError if it is wrong."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError("a range is declared as in `subscripts region: north, south`, or `... -> other: a, b` behind")
    name, elements, to, mapped = match.groups()
    new = SubscriptRange(_split(elements), to or "", _split(mapped) if mapped else ())
    if twice := repeated(new.elements):
        raise ValueError(f"the range {name!r} has {listed(twice)} more than once")
    if mapped and len(new.mapped) != len(new.elements):
        raise ValueError(f"{name!r} has {len(new.elements)} elements and is mapped to {len(new.mapped)}; one each")
    return name, new


def _split(text: str) -> tuple[str, ...]:
    return tuple(re.split(r"\s*,\s*", text.strip()))


def check_mappings(ranges: Ranges) -> None:
    """Complete the elements of mappings; raise ValueError if one goes to an unknown range or element."""
    for name, r in ranges.items():
        if not r.to:
            continue
        check_known(r.to, ranges, f"subscripts: {name!r} is mapped to {r.to!r}, which is no range.", ValueError)
        there = ranges[r.to].elements
        mapped = r.mapped or there
        if len(mapped) != len(r.elements):
            raise ValueError(
                f"subscripts: {name!r} has {len(r.elements)} elements, {r.to!r} {len(there)}: say which is which"
            )
        for e in mapped:
            check_known(e, there, f"subscripts: {name!r} is mapped to {e!r}, no element of {r.to!r}.", ValueError)
        ranges[name] = r._replace(mapped=mapped)


def axis_size(text: str, ranges: Ranges) -> object:
    """Return the size of an axis: of a range, or a whole number; None if it is neither."""
    word = text.strip()
    if word in ranges:
        return Size(word, ranges[word].elements)
    return int(word) if re.fullmatch(r"\d{1,9}", word, re.ASCII) else None


def read_index(text: str) -> object:
    """Return an index: a number, a word, None for ``:``; an empty tuple if it is none of these."""
    word = text.strip()
    if re.fullmatch(r"\d{1,60}", word, re.ASCII):
        return int(word)
    return None if word == ":" else word if word.isidentifier() else ()


def positions(index: object, axis: int, ranges: Ranges, bound: Bound, name: str) -> list[int] | int:
    """Return the position of an index on an axis, or a list of positions if it means several elements.

    Parameters
    ----------
    index : int, str or None
        A number counted from 0, a word, or None for ``:``.

    Raises
    ------
    ValueError
        The axis does not have it.
    """
    labels = axis.elements if isinstance(axis, Size) else ()
    if index is None:
        return list(range(axis))
    if isinstance(index, int) and not isinstance(index, bool):
        if not 0 <= index < axis:
            raise ValueError(f"the index {index} is out of range: {name} has the indices 0 to {axis - 1} there")
        return index
    if not isinstance(index, str) or not (labels or index in ranges):
        raise ValueError(
            "an index is a plain number such as 0, counted from 0 and constant, or an element of `subscripts`"
        )
    element = bound.get(index) or _mapped(index, ranges, bound) or ("" if index in ranges else index)
    wanted = [element] if element else list(ranges[index].elements)
    for e in wanted:
        if e not in labels:
            near = did_you_mean(e, [*labels, *ranges])
            of = f"the range {axis.name!r}" if isinstance(axis, Size) else f"{int(axis)} elements without names"
            raise ValueError(f"{name} has {of} there, and no element {e!r}.{near}")
    places = [labels.index(e) for e in wanted]
    return places[0] if element else places


def _mapped(index: str, ranges: Ranges, bound: Bound) -> str:
    """Return the current element of a range to which a bound range is mapped, "" if there is none."""
    for name, element in bound.items():
        r = ranges.get(name)
        if r is not None and r.to == index:
            return r.mapped[r.elements.index(element)]
    return ""


def places_of(name: str, shape: Shape, index: Sequence[object], ranges: Ranges, bound: Bound) -> list[list[int] | int]:
    """Return the positions of each index of an array; raise ValueError for an invalid one."""
    shown = f"{name}[{','.join(map(str, shape))}]"
    if not shape:
        raise ValueError(f"{name!r} has no elements, for it has no dimensions; declare them: dims {name}[3]")
    if len(index) != len(shape):
        takes = {1: "one index", 2: "two indices"}.get(len(shape), f"{len(shape)} indices")
        raise ValueError(f"{name!r} is declared as {shown}: an element takes {takes}")
    return [positions(i, n, ranges, bound, shown) for i, n in zip(index, shape, strict=True)]


def each_place(
    name: str, shape: Shape, index: Sequence[object], ranges: Ranges
) -> Iterator[tuple[tuple[int, ...], dict[str, str]]]:
    """Yield every element that a left-hand side assigns, with the current elements of its ranges."""
    places = [p if isinstance(p, list) else [p] for p in places_of(name, shape, index, ranges, {})]
    named = [n if isinstance(n, Size) else Size("", ()) for n in shape]
    words = [str(i) if i in ranges else n.name if i is None else "" for i, n in zip(index, named, strict=True)]
    for at in product(*places):
        yield at, {w: n.elements[p] for w, n, p in zip(words, named, at, strict=True) if w}
