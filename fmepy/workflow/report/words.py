"""Sentences: the templates that render them, and the numbers and names in them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from fmepy.errors import listed

if TYPE_CHECKING:
    from jinja2 import Environment

MOST_NAMES = 8
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")


def number(value: float, digits: int = 4, limit: float = 1.0) -> str:
    """Return the text of a number: significant digits, no trailing zeros, no padded exponent.

    What is below `limit` is not rounded to it: a correlation of 0.997 is none of 1.

    Examples
    --------
    >>> number(0.024361), number(34.9142), number(12345.678), number(1.5e-7), number(float("inf")), number(0.997, 2)
    ('0.02436', '34.91', '12346', '1.5e-7', '∞', '0.997')
    """
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size == 0 or (value == int(value) and size < 1e7):
        return str(int(value))
    if 1e-4 <= size < 1e7:
        decimals = max(0, digits - 1 - math.floor(math.log10(size)))
        text = f"{value:.{decimals}f}"
        while size < limit <= abs(float(text)):
            decimals += 1
            text = f"{value:.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}"


def percent(share: float) -> str:
    """Return a share in per cent with two significant digits, "more than 1000 %" above that.

    Examples
    --------
    >>> percent(0.0123), percent(0.5), percent(0.997), percent(25.0)
    ('1.2 %', '50 %', '99.7 %', 'more than 1000 %')
    """
    share = 100 * float(share)
    if not math.isfinite(share):
        return "–"
    return "more than 1000 %" if share > 1000 else f"{number(share, 2, 100.0)} %"


def many(n: int, one: str = "", more: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> many(1, "reading"), many(2500, "reading"), many(0, "datum", "data"), many(1e4)
    ('1 reading', '2,500 readings', '0 data', '10,000')
    """
    return f"{int(n):,} {one if n == 1 else more or plural(one)}" if one else f"{int(n):,}"


def plural(name: str) -> str:
    """Return a name in the plural.

    Examples
    --------
    >>> plural("Subject"), plural("batch"), plural("assembly")
    ('Subjects', 'batches', 'assemblies')
    """
    return re.sub(r"(?<=[^aeiou])y$", "ie", re.sub(r"(s|x|ch|sh)$", r"\1e", name)) + "s"


def names(items: Iterable[object], most: int = MOST_NAMES) -> str:
    """Return names as the list of a sentence, the first ones of many.

    Examples
    --------
    >>> names(["a"]), names(["a", "b", "c"]), names("abcd", most=2)
    ('a', 'a, b and c', 'a, b and 2 more')
    """
    all_of_them = [str(name) for name in items]
    *first, last = all_of_them or ["none"]
    if len(all_of_them) > most:
        first, last = all_of_them[:most], f"{len(all_of_them) - most} more"
    return f"{', '.join(first)} and {last}" if first else last


def have(things: Sequence[object], one: str, many: str) -> str:
    """Return the word that fits the number of things."""
    return one if len(things) == 1 else many


def duration(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> duration(0.41), duration(95), duration(7300)
    ('0.4 s', '1 min 35 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{number(seconds, 2 if seconds >= 10 else 1)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def readable(text: str) -> str:
    """Replace control characters, which pages and pictures cannot hold, by a mark."""
    return _UNREADABLE.sub("\ufffd", text)


def paragraphs(text: str) -> list[str]:
    r"""Return the paragraphs of a text, which empty lines separate, without line breaks inside.

    Examples
    --------
    >>> paragraphs("One and\ntwo.\n\nThree.")
    ['One and two.', 'Three.']
    """
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def short(text: str, most: int = 40) -> str:
    """Return a text cut where it is too long for a label."""
    return text if len(text) <= most else text[: most - 1] + "…"


@cache
def environment() -> Environment:
    """Return the environment of the templates; HTML escapes everything but its own markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    jinja = Environment(
        loader=PackageLoader(__package__), autoescape=lambda name: name is None or name.endswith(".html"),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    jinja.filters |= {f.__name__: f for f in (number, percent, names, many, have, duration, short, listed, paragraphs)}
    blocks = jinja.get_template("blocks.html").module
    jinja.globals |= {name: getattr(blocks, name) for name in ("show", "bullets", "ul", "fold")} | {"inf": math.inf}
    return jinja
