"""The page docs/dmi.md leaves out nothing of the language (that its examples run, tests/test_docs.py sees to)."""

import pytest

from fmepy.dmi.expressions import OWN
from fmepy.dmi.text import DECLARATIONS


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "dmi.md").read_text(encoding="utf-8")


def test_all_of_the_language_is_there(page):
    assert [n for n in (*OWN, "where") if f"`{n}(" not in page] == []
    assert [w for w in DECLARATIONS if f"| `{w} " not in page] == []
