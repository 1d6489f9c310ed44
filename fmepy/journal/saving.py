"""Results in files: ``result.save(path)`` and ``fmepy.load(path)``.

A path that ends in ``.json`` is one file. Any other is a folder: ``result.json`` with the structure, and an ``.npz``
with the arrays, for chains and ensembles of many runs. Both are plain: JSON, and arrays as numpy writes them, never a
pickle, so that reading one runs no code, and other languages can read it. What stands in it is told in
`fmepy.journal.encoding`; at the top stand ``format`` ("fmepy result"), ``version`` (of the format, 1), ``fmepy`` (the
version that wrote it), ``class``, ``arrays`` (the name of the file of arrays, or null), and ``result``.

A file is there whole or not at all. An earlier result under the same name is replaced; anything else is left alone.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.checks import as_path
from fmepy.errors import ArgumentError, FmepyError, TooLargeError, did_you_mean, listed
from fmepy.journal.arrays import DAMAGE, array_digest, open_arrays
from fmepy.journal.encoding import Decoder, Encoder, Stored
from fmepy.journal.files import MOST_ARRAYS, MOST_TABLE, open_file, read_file, write_whole
from fmepy.vocabulary import AnswersInOwnWords, own_words

_FORMAT, _VERSION = "fmepy result", 1
_OURS = re.compile(rb'\s*\{\s*"format"\s*:\s*"fmepy result"')
_STRUCTURE = "result.json"
_ARRAYS = re.compile(r"arrays-[0-9a-f]{16}\.npz")
_KEYS = ("format", "version", "fmepy", "class", "arrays", "result")
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, MemoryError)
"""What Python and pandas make of a structure that was cut or changed."""


class Saved(AnswersInOwnWords, Stored):
    """Base of results: they can be saved."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the result to a file, from which `fmepy.load` gives it back, equal in every field.

        Parameters
        ----------
        path : str or path
            Ending in ``.json``: one file of JSON. Any other: a folder, with the arrays as numpy writes them; the choice
            for chains and ensembles of many runs. The folder in which it is to lie must be there.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        ArgumentError
            Something else lies there (an earlier result is replaced); it cannot be written; the result holds something
            that is neither number, text nor table (of `run_many`, whose results are yours).

        Notes
        -----
        Numbers come back to the last bit, tables with their types and labels, estimates and draws with the scale that
        they are on. Models, costs and functions are not written; a loaded result that needs one says so. The file is
        plain JSON and arrays, without any pickle: loading it runs no code.

        Examples
        --------
        >>> import tempfile
        >>> import fmepy as fme
        >>> fit = fme.modFit(lambda p: [p["a"] - 1.0, p["a"] - 3.0], {"a": 0.0})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = fme.load(fit.save(f"{folder}/fit.json"))
        >>> again.par.equals(fit.par), again.summary().frame.equals(fit.summary().frame)
        (True, True)
        """
        target = as_path(path, such_as="fit.json")
        one_file = target.suffix.lower() == ".json"
        try:
            _check_free(target, one_file)
            encoder = Encoder(apart=not one_file)
            try:
                structure = encoder.encode(self, ())
            except RecursionError:
                raise ArgumentError("This result cannot be saved: it holds itself, or is nested too deeply.") from None
            if one_file:
                _write_structure(target, structure, None)
            else:
                _write_folder(target, structure, encoder.arrays)
        except OSError as error:
            raise ArgumentError(
                f"`path`: {str(target)!r} cannot be written: {error.strerror or error}. Make room or give yourself the "
                "right to write there, or name another place."
            ) from error
        return target


def _check_free(target: Path, one_file: bool) -> None:
    """Refuse to write over what is no result of ours."""
    if not target.parent.is_dir():
        raise ArgumentError(
            f"`path`: there is no folder {str(target.parent)!r} to write {target.name!r} to. Make it first "
            "(Path.mkdir(parents=True)), or name another."
        )
    elsewhere = "Nothing was written; name another place, or remove it first."
    if one_file and target.is_dir():
        raise ArgumentError(f"`path`: {str(target)!r} is a folder; a name ending in .json is a file. {elsewhere}")
    if one_file and target.exists() and not (_is_empty(target) or _is_ours(target)):
        raise ArgumentError(f"`path`: {str(target)!r} is there, and is not a result of fmepy. {elsewhere}")
    if not one_file and target.exists():
        if not target.is_dir():
            raise ArgumentError(
                f"`path`: {str(target)!r} is a file; a name that does not end in .json is a folder. {elsewhere}"
            )
        structure = target / _STRUCTURE
        others = [f.name for f in target.iterdir() if not (_is_part(f.name) or f.name == _STRUCTURE)]
        if others or (structure.exists() and not _is_ours(structure)):
            raise ArgumentError(
                f"`path`: the folder {str(target)!r} holds other things ({listed(others or [_STRUCTURE], 4)}); a "
                f"result has a folder of its own. {elsewhere}"
            )


def _is_ours(file: Path) -> bool:
    try:
        with open_file(file, 1 << 63) as opened:
            return _OURS.match(opened.read(200)) is not None
    except OSError:
        return False


def _is_empty(file: Path) -> bool:
    return file.is_file() and not file.stat().st_size


def _is_part(name: str) -> bool:
    """Tell whether a file of a folder is one of arrays, or what an interrupted write left."""
    return _ARRAYS.fullmatch(name) is not None or (name.startswith(".") and name.endswith(".tmp"))


def _write_structure(file: Path, structure: Any, arrays: str | None) -> None:
    from fmepy import __version__

    head = (_FORMAT, _VERSION, __version__, structure["class"], arrays, structure)
    text = (_written(dict(zip(_KEYS, head, strict=True))) + "\n").encode()
    if len(text) > MOST_TABLE:
        how = "Give the name of a folder, one that does not end in .json." if arrays is None else "Save it in parts."
        raise TooLargeError(f"`path`: {file.name} would have {len(text) / 1e6:.0f} MB, and `load` reads at most "
                            f"{MOST_TABLE / 1e6:.0f}. {how}")  # fmt: skip
    write_whole(file, lambda opened: opened.write(text))


def _write_folder(folder: Path, structure: Any, arrays: dict[str, Any]) -> None:
    """Write the arrays under a name made of what they hold, then the structure, which names them; then tidy up.

    So the structure that is there always has its own arrays, whenever the writing ends.
    """
    if (size := sum(values.nbytes for values in arrays.values())) > 0.99 * MOST_ARRAYS:
        raise TooLargeError(f"`path`: its arrays have {size / 1e6:.0f} MB, and `load` reads at most "
                            f"{MOST_ARRAYS / 1e6:.0f}. Save it in parts.")  # fmt: skip
    is_new = not folder.exists()
    folder.mkdir(exist_ok=True)
    name = f"arrays-{array_digest(arrays)[:16]}.npz" if arrays else None
    try:
        if name is not None:
            write_whole(folder / name, lambda opened: np.savez(opened, **arrays))
        _write_structure(folder / _STRUCTURE, structure, name)
    except BaseException:
        if is_new:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        raise
    for file in folder.iterdir():
        if _is_part(file.name) and file.name != name:
            file.unlink(missing_ok=True)


def _written(value: Any, depth: int = 0) -> str:
    """Return JSON in which objects have a line a key, and lists of numbers and texts one line."""
    pad = " " * (depth + 1)
    if isinstance(value, dict) and value:
        lines = (f"{pad}{json.dumps(k)}: {_written(v, depth + 1)}" for k, v in value.items())
        return "{\n" + ",\n".join(lines) + "\n" + pad[1:] + "}"
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return "[\n" + ",\n".join(pad + _written(v, depth + 1) for v in value) + "\n" + pad[1:] + "]"
    return json.dumps(value, allow_nan=False)


# --- and back


@own_words
def load(path: str | os.PathLike[str]) -> Any:
    """Return a result that was saved with its method ``save``.

    Parameters
    ----------
    path : str or path
        The file ending in ``.json``, or the folder.

    Returns
    -------
    any result of fmepy
        Of the class that was saved, equal in every field. It works as the one that was saved: it prints, draws, and
        goes into `compare_fits`, `predict`, `sensRange` (``parInput=chain.pars``) and the like. Models and costs are in
        no file; what needs one says so.

    Raises
    ------
    ArgumentError
        There is nothing, or something else: no result of fmepy, one of a newer format, a file that was cut, a folder
        without its arrays, a pickle (which is never read, as it can run any code), the checkpoint of a chain
        (`resume_mcmc` goes on with it).

    Examples
    --------
    >>> import tempfile
    >>> import fmepy as fme
    >>> draws = fme.sensRange(lambda p: {"x": [0, 1], "y": [0, p["a"]]}, parRange={"a": (0, 1)}, num=5, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = load(draws.save(f"{folder}/draws"))
    >>> type(again).__name__, again.frame.equals(draws.frame)
    ('SensRange', True)
    """
    folder_or_file = as_path(path, such_as="fit.json")
    file = _structure_of(folder_or_file)
    try:
        text = read_file(file, MOST_TABLE)
    except OSError as error:
        raise ArgumentError(f"`path`: {str(file)!r} cannot be read: {error.strerror or error}.") from error
    head = _head(text, file)
    if head["arrays"] is None:
        return _decoded(head, file, {})
    path = _path_of_arrays(file, head["arrays"])
    try:
        with open_arrays(path) as arrays:
            return _decoded(head, file, arrays)
    except FmepyError:
        raise
    except DAMAGE as error:
        raise _damaged(path, str(error) or type(error).__name__) from error


def _decoded(head: dict[str, Any], file: Path, arrays: Mapping[str, Any]) -> Any:
    try:
        result = Decoder(arrays).decode(head["result"])
    except FmepyError as error:
        raise ArgumentError(
            f"`path`: {str(file)!r} cannot be loaded: {error} (it was written by fmepy {head['fmepy']})."
        ) from error
    except KeyError as error:
        if head["arrays"] is not None and str(error.args[0]) not in arrays:
            raise _damaged(file, f"{error} is missing, there or in {head['arrays']}") from error
        raise _damaged(file, f"{error} is missing") from error
    except _DAMAGE as error:
        raise _damaged(file, str(error) or type(error).__name__) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result.check_loaded()
    except Exception as error:  # whatever a method makes of tables that lack a column
        raise _damaged(file, f"its parts do not agree with each other ({type(error).__name__}: {error})") from error
    return result


def _damaged(file: Path, why: str) -> ArgumentError:
    return ArgumentError(
        f"`path`: {str(file)!r} is damaged: {why.rstrip('.')}. Save the result again, or put back a copy."
    )


def _structure_of(path: Path) -> Path:
    """Return the file of JSON behind a path; refuse folders of other kinds."""
    if not path.exists():
        near = [f.name for f in path.parent.iterdir()] if path.parent.is_dir() else []
        where = "" if path.parent.is_dir() else f" (there is no folder {str(path.parent)!r} either)"
        raise ArgumentError(f"`path`: there is no {str(path)!r}{where}.{did_you_mean(path.name, near)}")
    if not path.is_dir():
        return path
    if (path / _STRUCTURE).exists():
        return path / _STRUCTURE
    if (path / "header.json").exists():
        raise ArgumentError(
            f"`path`: {str(path)!r} is a checkpoint, of something that was still under way. Go on with it (a chain: "
            f"resume_mcmc(f, {str(path)!r}); a fit, a profile: the same call, with checkpoint={str(path)!r}), and save "
            "what that returns."
        )
    if any(_ARRAYS.fullmatch(f.name) for f in path.iterdir()):
        raise _damaged(path, f"{_STRUCTURE} is missing")
    raise ArgumentError(
        f"`path`: the folder {str(path)!r} is not a result of fmepy ({_STRUCTURE} is missing). Results are written by "
        "their method save(path)."
    )


def _head(text: bytes, file: Path) -> dict[str, Any]:
    """Return what a file says, if it is a result of ours in a format that this version reads."""
    no_result = f"`path`: {str(file)!r} is not a result of fmepy"
    advice = "Results are written by their method save(path)."
    if text.startswith((b"\x80", b"cos\n", b"(dp", b"(i")):
        raise ArgumentError(
            f"{no_result} that can be loaded: it looks like a pickle, which is never read here, as it can run any "
            f"code. {advice}"
        )
    if text.startswith((b"PK", b"\x93NUMPY")):
        raise ArgumentError(f"{no_result}: it holds arrays of numpy. Of a result, name the folder that they lie in.")
    try:
        head = json.loads(text)
    except (ValueError, RecursionError) as error:
        if _OURS.match(text):
            raise _damaged(file, f"it is cut or changed ({error})") from error
        raise ArgumentError(f"{no_result}: it is not JSON. {advice}") from error
    if not isinstance(head, dict) or head.get("format") != _FORMAT:
        holds = f"an object of {listed(head, 5)}" if isinstance(head, dict) else f"a {type(head).__name__}"
        raise ArgumentError(f"{no_result}: it holds {holds}. {advice}")
    version = head.get("version")
    if type(version) is int and version > _VERSION:
        raise ArgumentError(
            f"`path`: {str(file)!r} is of format {version}, written by fmepy {head.get('fmepy')}; this fmepy reads "
            f"up to format {_VERSION}. Bring fmepy up to date."
        )
    missing = [k for k in _KEYS if k not in head]
    if missing or version != _VERSION:
        raise _damaged(file, f"{listed(missing)} missing at its top" if missing else f"version is {version!r}")
    if not isinstance(head["result"], dict) or head["result"].get("type") != "object":
        raise _damaged(file, "`result` is not an object")
    return head


def _path_of_arrays(file: Path, name: Any) -> Path:
    """Return the file of the arrays that lie beside a structure."""
    if not (isinstance(name, str) and _ARRAYS.fullmatch(name)):
        raise _damaged(file, f"`arrays` is {name!r}")
    path = file.parent / name
    if not path.exists():
        raise _damaged(file, f"its arrays are missing ({name} does not lie beside it)")
    return path
