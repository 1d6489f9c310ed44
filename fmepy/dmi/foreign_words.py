"""Words of Vensim and Stella, and what says the same in a module: what a text that has one is answered with.

The table beside this file has what is written there, what is written here, and whose the row is: ``told`` where a text
that has the word is answered by it, ``mdl`` and ``xmile`` where files of Vensim and Stella are read by it. An argument
``a!`` is put in brackets where it needs them, ``c?`` is put in as a condition. Of ``refused`` ones it says why.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as _file:
    WORDS = [(row["theirs"], row["ours"], row["of"].split()) for row in csv.DictReader(_file)]
"""The rows of the table."""
FOREIGN = {theirs: re.sub("[!?]", "", ours) for theirs, ours, of in WORDS if "told" in of}
"""What is written there, and here."""
_OURS = {theirs.partition("(")[0]: (theirs, ours) for theirs, ours in FOREIGN.items()}


def _pattern(word: str) -> str:
    return word.replace(" ", r"[\s_]+") + (r"(?=\s*\()" if "(" in _OURS[word][0] else r"(?!\w)")


_WORDS = re.compile(rf"(?<![\w.])({'|'.join(map(_pattern, sorted(_OURS, key=len, reverse=True)))})", re.IGNORECASE)


def foreign_word(text: str, known: set[str]) -> tuple[int, str] | None:
    """Return where a word of Vensim or Stella stands in a text, and what to write for it; None where there is none.

    Parameters
    ----------
    known : set of str
        Our own words.
    """
    for match in _WORDS.finditer(text):
        if match[1] in known:
            continue
        theirs, ours = _OURS[" ".join(re.split(r"[\s_]+", match[1].upper()))]
        return match.start(1), f"{theirs} is written {ours} here"
    return None
