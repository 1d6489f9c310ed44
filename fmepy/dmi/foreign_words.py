"""Words of Vensim and Stella and their equivalents in modules: for messages, and for reading their files.

The CSV file of the same name has the foreign word (``theirs``), the equivalent (``ours``), and the uses of the row:
``hint`` for the message about a text with the word, ``mdl`` and ``xmile`` for reading files of Vensim and Stella. An
argument ``a!`` is put in brackets where it needs them, ``c?`` is inserted as a condition. For ``refused`` words `ours`
is the reason.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as _file:
    _ROWS = [(row["theirs"], row["ours"], row["of"].split()) for row in csv.DictReader(_file)]
FOREIGN = {theirs: re.sub("[!?]", "", ours) for theirs, ours, of in _ROWS if "hint" in of}
"""By foreign word the equivalent, for messages."""
_OURS = {theirs.partition("(")[0]: (theirs, ours) for theirs, ours in FOREIGN.items()}


def _pattern(word: str) -> str:
    return word.replace(" ", r"[\s_]+") + (r"(?=\s*\()" if "(" in _OURS[word][0] else r"(?!\w)")


_WORDS = re.compile(rf"(?<![\w.])({'|'.join(map(_pattern, sorted(_OURS, key=len, reverse=True)))})", re.IGNORECASE)


def foreign_word(text: str, known: set[str]) -> tuple[int, str] | None:
    """Return the position of the first word of Vensim or Stella in a text, and a message about it; None without one.

    Parameters
    ----------
    known : set of str
        Words of modules, which are no foreign words.
    """
    for match in _WORDS.finditer(text):
        if match[1] in known:
            continue
        theirs, ours = _OURS[" ".join(re.split(r"[\s_]+", match[1].upper()))]
        return match.start(1), f"{theirs} is written {ours} here"
    return None


# --- functions of foreign files, by name and number of arguments


def _key(name: str) -> str:
    return name.lower().replace(" ", "_")


def _template(theirs: str, ours: str) -> tuple[str, str]:
    """Return ``name/number of arguments`` of a function, and its template, with ``{0}`` for the first argument.

    Examples
    --------
    >>> _template("QUANTUM(a, b)", "b! * trunc(a! / b!)")
    ('quantum/2', '{1!} * trunc({0!} / {1!})')
    """
    name, _, inside = theirs.removesuffix(")").partition("(")
    places = {argument: k for k, argument in enumerate(inside.split(", ") if inside else [])}

    def place(match: re.Match[str]) -> str:
        return f"{{{places[match[1]]}{match[2]}}}" if match[1] in places else match[0]

    return f"{_key(name)}/{len(places)}", re.sub(r"\b(\w+)\b([!?]?)", place, ours)


WORDS = {
    dialect: dict(_template(theirs, ours) for theirs, ours, of in _ROWS if dialect in of)
    for dialect in ("mdl", "xmile")
}
"""By dialect the templates of functions: ``{0!}`` is the first argument in brackets where it needs them, ``{0?}`` the
first argument as a condition."""
REFUSED = {_key(theirs): why for theirs, why, of in _ROWS if "refused" in of}
"""Functions that are refused by name, with the reason."""
START = {
    "initial": 0, "init": 0, "reinitial": 0, "active_initial": 1, "previous": 1, "smoothn": 3, "smthn": 3, "delayn": 3,
    **dict.fromkeys(("smooth", "smoothi", "smooth3", "smooth3i", "smooth_n", "smth1", "smth3", "delay1", "delay1i"), 2),
    **dict.fromkeys(("delay3", "delay3i", "delay_n", "delay_fixed", "delay", "sample_if_true"), 2),
}  # fmt: skip
"""The argument that is the value at the start of a function with a memory; the first if it has fewer arguments."""
FROM_START = ("smooth", "smooth3", "delay1", "delay3", "smth1", "smth3")
"""Functions that start from their first argument, unless they have a third one."""
LEVELS = {
    "delay3": (3, 0, 2), "delay3i": (3, 0, 2), "delay_n": (0, 3, 2), "delayn": (0, 2, 3), "smooth_n": (0, 3, 2),
    "smthn": (0, 2, 3),
}  # fmt: skip
"""Functions of several levels: their order or 0, the argument with the order, the argument with the initial value."""
