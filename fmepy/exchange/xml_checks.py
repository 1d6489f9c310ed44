"""What is looked at in a file before a library reads it: XML that is whole, of bounded depth, and holds no entities."""

from __future__ import annotations

from pathlib import Path
from xml.parsers import expat

from fmepy.errors import ModelError

MOST_BYTES = 100_000_000
MOST_DEPTH = 300


def read_xml(path: Path) -> str:
    """Return the text of an XML file.

    Raises
    ------
    ModelError
        No file, or too large; not whole (line and column are named); a document type or an entity, from which files
        grow or read others; nested too deeply.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ModelError(f"{path}: {path.stat().st_size:,} bytes are more than the {MOST_BYTES:,} that are read.")
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from None
    parser, depth = expat.ParserCreate(), [0]

    def refuse(*_: object) -> None:
        raise ModelError(
            f"{path}, line {parser.CurrentLineNumber}: a document type or entity is refused: entities read other files "
            "or grow. Take the <!DOCTYPE ...> out of the file."
        )

    def opened(*_: object) -> None:
        depth[0] += 1
        if depth[0] > MOST_DEPTH:
            raise ModelError(
                f"{path}, line {parser.CurrentLineNumber}: more than {MOST_DEPTH} elements in one another."
            )

    def closed(*_: object) -> None:
        depth[0] -= 1

    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = opened, closed
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ModelError(
            f"{path}, line {error.lineno}, column {error.offset + 1}: this is no whole XML "
            f"({expat.ErrorString(error.code)})."
        ) from None
    except (LookupError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(f"{path}: the encoding of the XML is not known ({error}).") from None
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    return data.decode(encoding, errors="replace")
