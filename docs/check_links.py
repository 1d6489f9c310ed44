"""Check that every link and picture inside the built pages leads somewhere: ``python docs/check_links.py FOLDER``."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page offers (ids) and wants (links, pictures)."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids: set[str] = set()
        self.wanted: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take ids, and the targets of links and pictures."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value and not urlsplit(value).scheme:
                self.wanted.append(value)


def broken(folder: Path) -> list[str]:
    """Return a line for every link that leads nowhere."""
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html"))}
    lines = []
    for path, page in pages.items():
        for link in page.wanted:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                lines.append(f"{path}: {link} is not there")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                lines.append(f"{path}: {link} has no such place")
    return lines


if __name__ == "__main__":
    found = broken(Path(sys.argv[1]).resolve())
    print("\n".join(found) or "Every link leads somewhere.")
    sys.exit(bool(found))
