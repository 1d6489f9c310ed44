"""The folder of a calibration: tables for the reader, and finished results in ``.fmepy``, which are reused.

::

    .fmepy/owner.json            who works here (fmepy.journal.lock)
    .fmepy/written.json          the tables that were written, with their sha256: nothing else is ever taken away
    .fmepy/fit/step.json         the outcome of the step, and the digest of all that it depends on; written last
    .fmepy/fit/result/           the result itself (result.save)
    .fmepy/sample/begun.json     of which inputs the checkpoint is
    .fmepy/sample/checkpoint/    what is done of it

Every file is there whole or not at all, and a step counts as done only once its record is written.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from fmepy.errors import ArgumentError
from fmepy.journal.files import MOST_TABLE, file_digest, read_file, write_whole
from fmepy.journal.lock import InUseError, owned
from fmepy.journal.saving import load

_INSIDE = ".fmepy"


class CalibrationFolder:
    """The folder that a calibration writes to.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path, self.inside = path, path / _INSIDE

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Make the folder and lock it against other runs.

        Raises
        ------
        ArgumentError
            It cannot be made or written, or another run works in it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ArgumentError(f"{str(self.path)!r} is a file; a folder is needed. Name another by --out.")
        with ExitStack() as stack:
            try:
                self.inside.mkdir(parents=True, exist_ok=True)
                if not stack.enter_context(owned(self.inside)):
                    raise OSError(errno.EACCES, "permission denied")
                self._try()
            except OSError as error:
                raise ArgumentError(
                    f"The folder {str(self.path)!r} cannot be written: {error.strerror or error}. Name another by "
                    "--out, or make room or give yourself the right to write there."
                ) from None
            except InUseError as error:
                raise ArgumentError(
                    f"The folder {str(self.path)!r} is in use by another run ({error}). Wait until that one ends, or "
                    "name another folder by --out."
                ) from None
            yield

    def _try(self) -> None:
        """Raise OSError if no file can be written here; remove temporary files of a killed run."""
        for place in (self.path, self.inside):
            for file in place.glob(".*.tmp"):
                file.unlink(missing_ok=True)
        write_whole(self.path / ".try", lambda file: file.write(b""))
        (self.path / ".try").unlink()

    # --- what is done

    def record(self, step: str) -> dict[str, Any] | None:
        """Return the record of a finished step; None if it is not finished, or the record is damaged."""
        return _read(self.inside / step / "step.json")

    def result(self, step: str) -> Any:
        """Return the result of a finished step.

        Raises
        ------
        FmepyError
            It is damaged.
        """
        return load(self.inside / step / "result")

    def store(self, step: str, result: Any, record: Mapping[str, Any]) -> None:
        """Store the result of a step and remove its checkpoint."""
        place = self.inside / step
        (place / "step.json").unlink(missing_ok=True)  # of the result before
        shutil.rmtree(place / "result", ignore_errors=True)
        result.save(place / "result")
        self.write_json(place / "step.json", record)
        (place / "begun.json").unlink(missing_ok=True)
        shutil.rmtree(place / "checkpoint", ignore_errors=True)

    def begin(self, step: str, inputs: str, *, resume: bool) -> tuple[Path, bool, str]:
        """Return the checkpoint of a step, whether the step resumes from it, and a note on that."""
        place = self.inside / step
        place.mkdir(exist_ok=True)
        checkpoint = place / "checkpoint"
        begun = _read(place / "begun.json")
        can_go_on = checkpoint.exists() and begun is not None and begun.get("inputs") == inputs
        if can_go_on and resume:
            return checkpoint, True, ", from the last checkpoint"
        (place / "begun.json").unlink(missing_ok=True)  # first: a checkpoint without it is nobody's
        if checkpoint.exists():
            shutil.rmtree(checkpoint)
        self.write_json(place / "begun.json", {"inputs": inputs})
        return checkpoint, False, " (starts again; --resume continues from a checkpoint)" if can_go_on else ""

    def estimates_of(self) -> str:
        """Return the digest of the fits whose estimates were written last."""
        return str((_read(self.inside / "estimates.json") or {}).get("of", ""))

    def set_estimates_of(self, of: str) -> None:
        """Record the digest of the fits whose estimates are written."""
        self.write_json(self.inside / "estimates.json", {"of": of})

    # --- what is written

    def write_tables(self, tables: Mapping[str, pd.DataFrame]) -> None:
        """Write tables as CSV."""
        for name, table in tables.items():
            self.write_text(name, table.to_csv(index=False, lineterminator="\n"))
            self.note(name)

    def note(self, name: str) -> None:
        """Record that a file was written here."""
        self.write_json(self.inside / "written.json", {**self._written(), name: file_digest(self.path / name)})

    def remove_stale(self, current: Collection[str]) -> list[str]:
        """Remove files written here that are no longer current, and return their names.

        A file that somebody has changed since is not touched.
        """
        old = {name: sha for name, sha in self._written().items() if name not in current}
        ours = [name for name, sha in old.items() if self.has(name) and file_digest(self.path / name) == sha]
        for name in ours:
            (self.path / name).unlink()
        if old:
            remaining = {name: sha for name, sha in self._written().items() if name in current}
            self.write_json(self.inside / "written.json", remaining)
        return ours

    def _written(self) -> dict[str, Any]:
        return _read(self.inside / "written.json") or {}

    def write_text(self, name: str, text: str) -> None:
        """Write a text as UTF-8."""
        write_whole(self.path / name, lambda file: file.write(text.encode()))

    def write_json(self, file: Path, value: Any) -> None:
        """Write plain values as JSON."""
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        write_whole(file, lambda handle: handle.write(text.encode() + b"\n"))

    def has(self, *names: str) -> bool:
        """Tell whether all these files are there."""
        return all((self.path / name).is_file() for name in names)


def _read(file: Path) -> dict[str, Any] | None:
    try:
        table = json.loads(read_file(file, MOST_TABLE))
    except (OSError, ValueError, RecursionError):
        return None
    return table if isinstance(table, dict) else None
