"""A problem or model of another program -> a folder with a calibration file to read and continue from."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmepy.errors import ArgumentError, listed
from fmepy.exchange.petab import PetabProblem, read_petab
from fmepy.exchange.sbml import SbmlModel, read_sbml
from fmepy.exchange.vensim import SUFFIXES, VensimModel, read_vensim

PROBLEMS, MODELS = (".yaml", ".yml"), (".xml", ".sbml")


def write_case(path: Any, folder: Any) -> Path:
    """Write a calibration of a problem or model of another program into a new folder; return the calibration file.

    Parameters
    ----------
    path : str or Path
        A PEtab problem (.yaml), an SBML model (.xml), or a model of Vensim or Stella (.mdl, .xmile, .stmx).
    folder : str or Path
        It must be empty or not exist.

    Returns
    -------
    Path
        ``case.toml`` in the folder, for `fmepy calibrate`.
    """
    path, folder = Path(path), Path(folder)
    suffix = path.suffix.lower()
    if suffix not in (*PROBLEMS, *MODELS, *SUFFIXES):
        raise ArgumentError(f"{path}: {listed((*PROBLEMS, *MODELS, *SUFFIXES))} are read, by the ending of the name.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ArgumentError(f"{str(folder)!r} is there already; nothing is written over. Choose another name.")
    read: Any = read_petab if suffix in PROBLEMS else read_vensim if suffix in SUFFIXES else read_sbml
    source, is_new = read(path), not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in _files_of(source, path, folder).items():
            (folder / name).write_text(text, encoding="utf-8")
    except BaseException:  # no half-written case is left
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Path(folder, "case.toml")


@contextmanager
def as_case(path: Path) -> Iterator[Path]:
    """Yield a temporary calibration file for a PEtab problem; yield any other file itself."""
    if path.suffix.lower() not in PROBLEMS:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fmepy_") as folder:
        yield write_case(path, Path(folder) / "case")


# --- templates of the files


def _filled(template: str, **facts: Any) -> str:
    """Return the text of a file."""
    from jinja2 import Environment, PackageLoader

    environment = Environment(loader=PackageLoader(__package__), trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"toml": _toml, "key": _key}
    return environment.get_template(template).render(**facts)


def _toml(value: Any) -> str:
    """Return a value in TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{k} = {_toml(v)}' for k, v in value.items())} }}"
    return json.dumps(value if isinstance(value, int | float) else str(value), ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else _toml(name)


def _files_of(source: PetabProblem | VensimModel | SbmlModel, path: Path, folder: Path) -> dict[str, str]:
    """Return the texts of the files of a case by name, after the problem or model has written its own files."""
    if isinstance(source, SbmlModel):
        text = _filled("model.toml", path=path, model=source)
        return {"case.toml": text, "model.txt": _filled("model.txt", model=source)}
    if isinstance(source, VensimModel):
        written = source.write(folder).read_text(encoding="utf-8").removesuffix("\n")
        text = _filled("system.toml", path=path, system=source, model=written)
        return {"case.toml": text, "documentation.csv": source.documentation.to_csv()}
    source.write(folder / "petab")
    parameters = {name: _parameter_entry(source, name) for name in source.parameters.index}
    inputs = [f"petab/{f}" for f in source.files]
    return {
        "case.toml": _filled("problem.toml", path=path, inputs=inputs, parameters=parameters),
        "problem.py": _filled("problem.txt", path=path),
        "model.txt": _filled("model.txt", model=source.model),
        "measurements.csv": source.measurements.to_csv(index=False),
    }


def _parameter_entry(problem: PetabProblem, name: str) -> Any:
    """Return the entry of a parameter in a calibration file: its value, or a table."""
    p = problem.parameters.loc[name]
    if not p["estimated"]:
        return float(problem.cost.parms[name])
    words: dict[str, Any] = {"start": problem.start[name], "lower": p["lower"], "upper": p["upper"]}
    words = {k: float(v) for k, v in words.items() if abs(v) < math.inf}
    words |= {"scale": "log"} if p["scale"] != "lin" else {}
    prior = problem.prior.get(name) if p["prior"] else None
    return words | ({"prior": {"dist": prior.family, **prior.arguments}} if prior else {})
