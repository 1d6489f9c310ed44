"""A problem or a model from elsewhere -> a folder with a calibration file that a person can read and go on with."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fmepy.errors import ArgumentError, listed
from fmepy.exchange.petab import PetabProblem, read_petab
from fmepy.exchange.sbml import SbmlModel, read_sbml
from fmepy.exchange.vensim import SUFFIXES, VensimModel, read_vensim

PROBLEMS, MODELS = (".yaml", ".yml"), (".xml", ".sbml")
STARTS = 10
_PROGRAM = '''"""The cost of the problem in the folder petab: -2 log L, see model.txt and measurements.csv."""

from pathlib import Path

import fmepy as fme

problem = fme.read_petab(Path(__file__).parent / "petab" / {name!r})
cost = problem.cost
'''
_PRIORS = {
    "norm": ("loc", "scale"), "laplace": ("loc", "scale"), "uniform": ("loc", "scale"), "cauchy": ("loc", "scale"),
    "chi2": ("df",), "expon": ("loc", "scale"), "gamma": ("a", "loc", "scale"), "rayleigh": ("loc", "scale"),
}  # fmt: skip


def write_case(path: Any, folder: Any) -> Path:
    """Write a calibration of a problem or a model from elsewhere into a new folder; return the calibration file.

    Parameters
    ----------
    path : str or Path
        A PEtab problem (.yaml), an SBML model (.xml), or a model of Vensim or Stella (.mdl, .xmile, .stmx).
    folder : str or Path
        It must not be there, or be empty.

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
    problem = read_petab(path) if suffix in PROBLEMS else None
    system = read_vensim(path) if suffix in SUFFIXES else None
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if problem is not None:
            files = _files_of_problem(problem, path)
            problem.write(folder / "petab")
        elif system is not None:
            files = _files_of_system(system, system.write(folder).read_text(encoding="utf-8"), path)
        else:
            files = _files_of_model(read_sbml(path), path)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except BaseException:  # a half-written case is none
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    return Path(folder, "case.toml")


@contextmanager
def as_case(path: Path) -> Iterator[Path]:
    """Yield the calibration file of a PEtab problem, which is there for that long; any other file is yielded itself."""
    if path.suffix.lower() not in PROBLEMS:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="fmepy_") as folder:
        yield write_case(path, Path(folder) / "case")


def _text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() and name.isascii() else _text(name)


def _files_of_problem(problem: PetabProblem, path: Path) -> dict[str, str]:
    rows = []
    each: Any = problem.parameters.itertuples()
    for p in each:
        if not p.estimated:
            rows.append(f"{_key(p.name)} = {float(problem.cost.parms[p.name])!r}")
            continue
        words = [f"start = {float(problem.start[p.name])!r}"]
        words += [f"{k} = {float(getattr(p, k))!r}" for k in ("lower", "upper") if abs(getattr(p, k)) < float("inf")]
        words += ['scale = "log"'] if p.scale != "lin" else []
        prior = _prior(problem, p.name) if p.prior else ""
        rows.append(f"{_key(p.name)} = {{ {', '.join([*words, *([prior] if prior else [])])} }}")
    inputs = [f"petab/{f}" for f in problem.files]
    toml = [
        f"# From the PEtab problem {path.name}; what is calibrated is the cost in problem.py.",
        f"title = {_text(path.stem)}", "", "[model]", 'python = "problem.py:cost"',
        f"inputs = [{', '.join(map(_text, inputs))}]", "", "[parameters]", *rows, "",
        "# The best fit, the same from many starts, and intervals.", "[fit]", "", "[multistart]", f"starts = {STARTS}",
        "", "[profile]",
    ]  # fmt: skip
    return {
        "case.toml": "\n".join(toml) + "\n",
        "problem.py": _PROGRAM.format(name=path.name),
        "model.txt": _model_text(problem.model),
        "measurements.csv": problem.measurements.to_csv(index=False),
    }


def _prior(problem: PetabProblem, name: str) -> str:
    """Return the prior of a parameter as a calibration file has it, "" where it has no word for it."""
    prior = problem.prior.get(name)
    if prior is None:
        return ""
    values = dict(zip(_PRIORS[prior.family], prior.arguments, strict=True))
    if prior.scale == "lin":
        inside = {"dist": prior.family, **values}
    elif prior.family == "norm":
        import math

        unit = math.log(10) if prior.scale == "log10" else 1.0
        inside = {"dist": "lognorm", "s": values["scale"] * unit, "scale": math.exp(values["loc"] * unit)}
    else:
        return ""
    return (
        f"prior = {{ {', '.join(f'{k} = {_text(v) if isinstance(v, str) else repr(v)}' for k, v in inside.items())} }}"
    )


def _model_text(model: SbmlModel) -> str:
    """Return a model as text: equations, initial values, constants, events, renamed ids."""
    lines = [str(model.equations), "", "# initial values"]
    lines += [f"# {k}(0) = {v}" for k, v in model.state.items()]
    lines += ["", "# constants", *(f"# {k} = {v:.15g}" for k, v in model.parms.items())]
    lines += [f"# event: {row}" for row in model.events or ()]
    lines += [f"# {id} of the file is called {name}" for id, name in model.renamed.items()]
    return "\n".join(lines) + "\n"


def _files_of_system(system: VensimModel, said: str, path: Path) -> dict[str, str]:
    toml = [
        f"# From {_text(path.name)}. To calibrate it, name data and say which parameters are estimated:",
        '#   [data]', '#   file = "my.csv"', "#   [fit]", "#   [parameters]",
        f"#   {_key(next(iter(system.parms.index), 'k'))} = {{ start = 1, lower = 0, upper = 10 }}",
        f"title = {_text(path.stem)}", "", "[model]", said,
    ]  # fmt: skip
    return {"case.toml": "\n".join(toml), "documentation.csv": system.documentation.to_csv()}


def _files_of_model(model: SbmlModel, path: Path) -> dict[str, str]:
    starts = [f"    {k}(0) = {v}" for k, v in model.state.items()]
    toml = [
        f"# From the SBML model {path.name}. To calibrate it, name data and say which parameters are estimated:",
        '#   [data]', '#   file = "my.csv"', "#   [fit]", "#   [parameters]",
        "#   k = { start = 0.1, lower = 0, upper = 10 }",
        f"title = {_text(path.stem)}", "", "[model]", "times = { start = 0, stop = 100, step = 1 }", 'equations = """',
        *(f"    {line}" for line in str(model.equations).split("\n")), *starts, '"""', "",
        "[parameters]", *(f"{_key(str(k))} = {float(v)!r}" for k, v in model.parms.items()),
    ]  # fmt: skip
    for row in model.events or ():
        cells = {k: json.dumps(v) if isinstance(v, int | float) else _text(v) for k, v in row.items()}
        toml += ["", "[[events]]", *(f"{k} = {v}" for k, v in cells.items())]
    return {"case.toml": "\n".join(toml) + "\n", "model.txt": _model_text(model)}
