"""One spelling for every name.

Python takes the identifiers ``µ`` (micro sign) and ``μ`` (Greek letter) for one, since it reads names in Unicode's
form NFKC; keyboards type either. Texts, such as the keys of a dict or the columns of a table, it leaves as they are. So
names are brought to that form where they enter: what a model calls μ is found under both.
"""

from __future__ import annotations

import unicodedata
from typing import Any


def normal_name(name: object) -> str:
    """Return a name as Python would read it as an identifier."""
    text = str(name)
    return text if text.isascii() else unicodedata.normalize("NFKC", text)


class ByName(dict[str, Any]):
    """Values by normal names, found under other spellings too."""

    def __missing__(self, key: str) -> Any:
        normal = normal_name(key)
        if normal == key:
            raise KeyError(key)
        return self[normal]
