"""Print the JSON schema of calibration files, for editors.

Editors that know it complete keys, explain them, and underline what is wrong while one types.

to begin, for editors that use Taplo (VS Code's Even Better TOML):
  fmepy schema > calibration.schema.json
and, as the first line of a file:
  #:schema calibration.schema.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from fmepy.workflow.file.signatures import Key

NAME = "schema"
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: none."""


def execute(given: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    print(json.dumps(schema(), indent=2, ensure_ascii=False))
    return 0


def schema() -> dict[str, Any]:
    """Return the JSON schema of what a file may hold (`fmepy.workflow.file.keys.file_keys`)."""
    from fmepy.workflow.file.keys import file_keys

    top = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A calibration of fmepy"}
    return {**top, **_table(file_keys())}


def _table(keys: Mapping[str, Key]) -> dict[str, Any]:
    required = [name for name, key in keys.items() if key.required]
    found = {
        "type": "object",
        "properties": {name: _one(key) for name, key in keys.items()},
        "additionalProperties": False,
    }
    return found | ({"required": required} if required else {})


def _one(key: Key) -> dict[str, Any]:
    """Return the schema of one key: of its kind, or of any of its kinds."""
    kinds = [_of_kind(kind, key) for kind in key.kinds]
    said = {"description": key.says} if key.says else {}
    return said | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds} if kinds else {})


def _of_kind(kind: type, key: Key) -> dict[str, Any]:
    found: dict[str, Any] = {"type": _TYPES[kind]}
    if kind is str and key.choices:
        found["enum"] = list(key.choices)
    if kind in (int, float):
        words = ("exclusiveMinimum", "exclusiveMaximum") if key.open else ("minimum", "maximum")
        found |= {w: v for w, v in zip(words, (key.least, key.most), strict=True) if abs(v) != float("inf")}
    if kind is list and key.items is not None:
        found["items"] = _one(key.items)
    if kind is dict:
        if isinstance(key.of, Key):
            found["additionalProperties"] = _one(key.of)
        elif key.of is not None:
            found |= _table(key.of)
    return found
