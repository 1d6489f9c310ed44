"""PEtab's tables, versions 1 and 2, read into one form: readings, experiments, observables and parameters.

Cells stay texts until their meaning is known, so that messages can name file, line and column.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pandas as pd

from fmepy.checks import as_path
from fmepy.errors import ArgumentError, DataError, check_known, did_you_mean, listed, warn
from fmepy.exchange.files import read_tsv
from fmepy.tables.text_files import read_text

MOST_BYTES = 200_000_000
SCALES = ("lin", "log", "log10")
_TRUE, _FALSE = ("1", "true", "1.0"), ("0", "false", "0.0", "")
_KINDS_V2 = {
    "": ("lin", "normal"), "normal": ("lin", "normal"), "log-normal": ("log", "normal"), "laplace": ("lin", "laplace"),
    "log-laplace": ("log", "laplace"),
}  # fmt: skip
_OPTIONAL = {
    "parameters": ("parameterScale", "lowerBound", "upperBound", "nominalValue", "objectivePriorType",
                   "objectivePriorParameters", "initializationPriorType", "priorDistribution", "priorParameters"),
    "observables": ("observableTransformation", "noiseDistribution", "observablePlaceholders", "noisePlaceholders"),
    "measurements": ("simulationConditionId", "preequilibrationConditionId", "experimentId", "observableParameters",
                     "noiseParameters"),
}  # fmt: skip
_ID = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class PetabTable:
    """A table as texts, and the file and line of each row."""

    frame: pd.DataFrame
    places: list[str]

    def place(self, row: int, column: str) -> str:
        """Return the place of a cell, for messages."""
        return f"{self.places[row]}, column {column!r}"

    def error(self, row: int, column: str, why: str) -> DataError:
        """Return the error of a cell."""
        return DataError(f"{self.place(row, column)}: {why}")

    def text(self, row: int, column: str, default: str | None = None) -> str:
        """Return a cell; an empty one is the default, and an error where there is none."""
        value = str(self.frame[column].iat[row]).strip() if column in self.frame else ""
        value = "" if value.lower() == "nan" else value
        if not value and default is None:
            raise self.error(row, column, "this cell is empty, and a value is needed.")
        return value or (default or "")

    def check_known(self, row: int, column: str, name: str, known: Mapping[str, Any], what: str) -> None:
        """Refuse a name in a cell that is unknown."""
        check_known(name, known, f"{self.place(row, column)}: there is no {what} {name!r}.", DataError)

    def number(self, row: int, column: str, default: float | None = None) -> float:
        """Return a cell that holds a number."""
        text = self.text(row, column, None if default is None else "")
        if not text and default is not None:
            return default
        value = as_float(text)
        if value is None or math.isnan(value):
            raise self.error(row, column, f"{text!r} is not a number.")
        return value

    def choice(self, row: int, column: str, choices: Sequence[str], default: str) -> str:
        """Return a cell that holds one of some words."""
        text = self.text(row, column, default)
        if text not in choices:
            raise self.error(row, column, f"{text!r} is not one of {listed(c for c in choices if c)}.")
        return text


def as_float(text: str) -> float | None:
    """Return a text as a number, None if it is not one."""
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class Observable:
    """An observable: texts of its formulas; `scale` of comparison; distribution; names of placeholders."""

    id: str
    formula: str
    noise: str
    scale: str
    distribution: str
    placeholders: tuple[str, ...]
    noise_placeholders: tuple[str, ...]
    where: str


@dataclass(frozen=True)
class Period:
    """A period of an experiment: the `time` of its beginning (-inf: until a steady state), and changes there.

    changes : dict of str to (str, str)
        By target the value as text and its place. States without a change continue.
    resets : bool
        Whether parameters without a change get the values of the model again (PEtab 1).
    """

    time: float
    changes: dict[str, tuple[str, str]]
    resets: bool


@dataclass(frozen=True)
class Reading:
    """A row of the measurement table."""

    observable: str
    experiment: str
    time: float
    value: float
    overrides: tuple[str, ...]
    noise_overrides: tuple[str, ...]
    where: str


@dataclass
class Tables:
    """The contents of a problem's files.

    Attributes
    ----------
    parameters : DataFrame
        Index: names; columns estimated, scale, lower, upper, nominal, prior, prior_parameters, where.
    """

    version: int
    path: Path
    config: dict[str, Any]
    files: dict[str, list[str]]
    model: Path
    parameters: pd.DataFrame = field(default_factory=pd.DataFrame)
    observables: dict[str, Observable] = field(default_factory=dict)
    experiments: dict[str, list[Period]] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    measurements: pd.DataFrame = field(default_factory=pd.DataFrame)
    renamed: dict[str, str] = field(default_factory=dict)


def read_tables(path: Any) -> Tables:
    """Return the contents of a PEtab problem's files.

    Raises
    ------
    DataError
        A file is wrong; with line and column, and what would be right.
    """
    path = as_path(path)
    config = _read_yaml(path)
    version = str(config.get("format_version", "")).split(".")[0]
    if version not in ("1", "2"):
        raise DataError(f"{path}: format_version is {config.get('format_version')!r}; PEtab 1 and 2 are read.")
    _warn_of_unknown_keys(config, version, path)
    files, model = _files(config, version, path)
    for one in config.get("problems") or []:
        one.pop("visualization_files", None)  # how to draw it
    out = Tables(int(version), path, config, files, _inside(path, model))
    tables = {kind: _joined([_read_tsv(path, f, kind) for f in names]) for kind, names in files.items()}
    for kind in ("parameters", "observables", "measurements", *["conditions"] * (version == "1")):
        if not files[kind]:
            raise DataError(f"{path}: there is no file of {kind}.")
    out.parameters = _parameters(tables["parameters"], out.version)
    out.observables = _observables(tables["observables"], out.version)
    if version == "1":
        _experiments_v1(out, tables["conditions"], tables["measurements"])
    else:
        mapping = tables["mappings"]
        for row in range(len(mapping.frame)):
            out.renamed[mapping.text(row, "petabEntityId")] = mapping.text(row, "modelEntityId", "")
        _experiments_v2(out, tables["conditions"], tables["experiments"])
    _readings(out, tables["measurements"])
    return out


# --- files

_LISTS = {f"{kind}_files" for kind in ("condition", "measurement", "observable", "visualization")}
_KEYS_V1 = {"format_version", "parameter_file", "problems"}
_KEYS_V2 = {"format_version", "id", "extensions", "parameter_files", "experiment_files", "model_files", "mapping_files"}
_KEYS = {"1": _KEYS_V1, "2": _KEYS_V2 | _LISTS}
"""Keys of a problem's file, by PEtab's version."""
_KEYS_OF_PROBLEMS = {"sbml_files", "model_files", "mapping_files"} | _LISTS


def _warn_of_unknown_keys(config: dict[str, Any], version: str, path: Path) -> None:
    """Warn of keys that PEtab does not have, which are likely typing errors."""
    problems = [one for one in config.get("problems") or [] if isinstance(one, dict)] if version == "1" else []
    for keys, known in ((config, _KEYS[version]), *((one, _KEYS_OF_PROBLEMS) for one in problems)):
        for key in (str(k) for k in keys if str(k) not in known):
            near = did_you_mean(key, known | _KEYS_OF_PROBLEMS)
            warn(f"{path}: {key!r} is no key of PEtab {version}, and is ignored.{near}")


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ArgumentError("PEtab's problem files are YAML: pip install 'fmepy[petab]', or pyyaml.") from None
    text = read_text(path, 1_000_000)
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            tag = getattr(event, "tag", None)
            if isinstance(event, yaml.AliasEvent) or (tag or "").startswith("tag:yaml.org,2002:python"):
                raise DataError(f"{path}, line {event.start_mark.line + 1}: YAML with tags or references is refused.")
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise DataError(f"{path}{line}: {getattr(error, 'problem', None) or 'this is no YAML that is read'}.") from None
    except RecursionError:
        raise DataError(f"{path}: nested too deeply.") from None
    if not isinstance(config, dict):
        raise DataError(f"{path}: a PEtab problem is a mapping with format_version and the names of its files.")
    return config


def _inside(path: Path, name: Any) -> Path:
    """Return the path of a file that a problem names, in its folder or below."""
    text = str(name)
    if "://" in text or Path(text).is_absolute() or re.match(r"[A-Za-z]:", text) or text.startswith("\\"):
        raise DataError(f"{path}: {text!r} is an absolute path or an address; files are named relative to the problem.")
    if ".." in Path(text).parts:
        raise DataError(f"{path}: {text!r} leads out of the problem's folder; its files lie there or below.")
    return path.parent / text


def _names(config: Mapping[str, Any], key: str, path: Path) -> list[str]:
    names = config.get(key)
    names = [] if names is None else [names] if isinstance(names, str) else names
    if not isinstance(names, list) or not all(isinstance(f, str) for f in names):
        raise DataError(f"{path}: {key} must be the name of a file or a list of names; got {names!r}.")
    return names


def _files(config: Mapping[str, Any], version: str, path: Path) -> tuple[dict[str, list[str]], str]:
    """Return the names of the files of tables, by kind, and that of the model."""
    one: Any = config
    if version == "1":
        problems = config.get("problems")
        if not isinstance(problems, list) or len(problems) != 1 or not isinstance(problems[0], dict):
            raise DataError(f"{path}: `problems` must be a list of one problem, with the names of its files.")
        one = problems[0] | {"parameter_files": config.get("parameter_file")}
    kinds = ("condition", "experiment", "measurement", "observable", "parameter", "mapping")
    files = {f"{k}s": _names(one, f"{k}_files", path) for k in kinds}
    if config.get("extensions"):
        raise DataError(f"{path}: extensions of PEtab are not read: {listed(config['extensions'])}.")
    if version == "2" or "model_files" in one:
        return files, _only_model(one.get("model_files"), path)
    models = _names(one, "sbml_files", path)
    if len(models) != 1:
        raise DataError(f"{path}: {len(models)} models (sbml_files); problems of one SBML model are read.")
    return files, models[0]


def _only_model(models: Any, path: Path) -> str:
    if not isinstance(models, dict) or len(models) != 1:
        raise DataError(f"{path}: `model_files` must name one model; problems of one SBML model are read.")
    (model,) = models.values()
    if not isinstance(model, dict) or str(model.get("language", "")).lower() != "sbml":
        raise DataError(f"{path}: the model must be of language sbml; got {model!r}.")
    return str(model.get("location", ""))


def _read_tsv(path: Path, name: str, kind: str) -> PetabTable:
    file = _inside(path, name)
    frame, lines = read_tsv(file, MOST_BYTES)
    needed = {
        "parameters": ("parameterId", "estimate"), "observables": ("observableId", "observableFormula", "noiseFormula"),
        "measurements": ("observableId", "time", "measurement"), "conditions": ("conditionId",),
        "experiments": ("experimentId", "time", "conditionId"), "mappings": ("petabEntityId", "modelEntityId"),
    }[kind]  # fmt: skip
    for column in needed:
        check_known(column, frame.columns, f"{file}: the column {column!r} is missing.", DataError, "It has")
    known = {*needed, *_OPTIONAL.get(kind, ())}
    for column in set(map(str, frame)) - known:  # other columns are allowed, unless they are typing errors
        for near in get_close_matches(column, known - set(frame), 1, 0.9):
            raise DataError(f"{file}: the column {column!r} is not known. Did you mean {near!r}?")
    return PetabTable(frame, [f"{file.name}, line {line}" for line in lines])


def _joined(tables: list[PetabTable]) -> PetabTable:
    """Return tables of one kind as one."""
    frame = pd.concat([pd.DataFrame(), *(t.frame for t in tables)], ignore_index=True).fillna("")
    return PetabTable(frame, [place for t in tables for place in t.places])


def _id(table: PetabTable, row: int, column: str, seen: Any = ()) -> str:
    id = table.text(row, column)
    if not _ID.fullmatch(id):
        raise table.error(row, column, f"{id!r} is no id: letters, digits and underscores, no digit first.")
    if id in seen:
        raise table.error(row, column, f"{id!r} is there twice.")
    return id


# --- parameters, observables


def _parameters(t: PetabTable, version: int) -> pd.DataFrame:
    rows: dict[str, dict[str, Any]] = {}
    outside: list[str] = []
    unbounded: list[str] = []
    inits: list[str] = []
    for i in range(len(t.frame)):
        id = _id(t, i, "parameterId", rows)
        text = t.text(i, "estimate").lower()
        if text not in (*_TRUE, *_FALSE):
            raise t.error(i, "estimate", f"{text!r} is neither {'1 nor 0' if version == 1 else 'true nor false'}.")
        estimated = text in _TRUE
        scale = t.choice(i, "parameterScale", SCALES, "lin") if version == 1 else "lin"
        lower, upper = (t.number(i, f"{k}Bound", d) for k, d in (("lower", -math.inf), ("upper", math.inf)))
        if estimated and not lower < upper:
            why = f"the lower bound {lower:g} of {id!r} is not below the upper one, {upper:g}."
            raise t.error(i, "lowerBound", why + " Part them, or write that it is not estimated.")
        if estimated and scale != "lin" and not lower > 0:
            raise t.error(i, "lowerBound", f"{lower:g} has no {scale}: the lower bound of {id!r} must be above zero.")
        nominal = t.number(i, "nominalValue", math.nan)
        if math.isinf(nominal):
            raise t.error(i, "nominalValue", f"{nominal} is no finite number, and the value of {id!r} must be one.")
        if not estimated and math.isnan(nominal):
            raise t.error(i, "nominalValue", f"{id!r} is not estimated, so it needs a value.")
        if estimated and scale != "lin" and nominal <= 0:
            why = (
                f"{nominal:g} has no {scale}: the nominal value of {id!r}, from which a fit begins, must be above zero."
            )
            raise t.error(i, "nominalValue", f"{why} An empty cell is the middle between the bounds.")
        outside += [id] * (estimated and (nominal < lower or nominal > upper))
        unbounded += [id] * (estimated and not (t.text(i, "lowerBound", "") and t.text(i, "upperBound", "")))
        inits += [id] * (estimated and bool(t.text(i, "initializationPriorType", "")))
        names = ("objectivePriorType", "objectivePriorParameters")
        names = names if version == 1 else ("priorDistribution", "priorParameters")
        prior, of_prior = (t.text(i, n, "") for n in names)
        rows[id] = {
            "estimated": estimated, "scale": scale, "lower": lower, "upper": upper, "nominal": nominal,
            "prior": prior, "prior_parameters": of_prior, "where": t.place(i, names[1] if prior else "parameterId"),
        }  # fmt: skip
    if outside:
        warn(
            f"Nominal values outside their bounds, where no fit can begin: {listed(outside)}. Move them inside, or "
            "leave their cells empty: a fit then begins in the middle between the bounds."
        )
    if unbounded:
        warn(f"Estimated without bounds, which PEtab asks for: {listed(unbounded)}. None are taken.")
    if inits:
        warn(f"The initialization priors of {listed(inits)} are not read: starts are drawn evenly between the bounds.")
    return pd.DataFrame.from_dict(rows, orient="index")


def _observables(t: PetabTable, version: int) -> dict[str, Observable]:
    out: dict[str, Observable] = {}
    for i in range(len(t.frame)):
        id, formula, noise = _id(t, i, "observableId", out), t.text(i, "observableFormula"), t.text(i, "noiseFormula")
        if version == 1:
            scale = t.choice(i, "observableTransformation", SCALES, "lin")
            distribution = t.choice(i, "noiseDistribution", ("normal", "laplace"), "normal")
            own = [
                _numbered(text, f"{kind}Parameter", id) for text, kind in ((formula, "observable"), (noise, "noise"))
            ]
        else:
            scale, distribution = _KINDS_V2[t.choice(i, "noiseDistribution", tuple(_KINDS_V2), "normal")]
            own = [_split(t.text(i, f"{kind}Placeholders", "")) for kind in ("observable", "noise")]
        out[id] = Observable(id, formula, noise, scale, distribution, own[0], own[1], t.place(i, "observableFormula"))
    return out


def _numbered(text: str, word: str, id: str) -> tuple[str, ...]:
    """Return the placeholders of PEtab 1 in a formula, from the first to the last."""
    numbers = [int(n) for n in re.findall(rf"\b{word}(\d+)_{id}\b", text)]
    return tuple(f"{word}{n}_{id}" for n in range(1, max(numbers, default=0) + 1))


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";")) if text.strip() else ()


# --- experiments


def _experiments_v1(out: Tables, conditions: PetabTable, measurements: PetabTable) -> None:
    rows: dict[str, int] = {}
    for i in range(len(conditions.frame)):
        rows[_id(conditions, i, "conditionId", rows)] = i
    targets = [c for c in conditions.frame.columns if c not in ("conditionId", "conditionName")]

    def period(condition: str, time: float, row: int, column: str) -> Period:
        measurements.check_known(row, column, condition, rows, "condition")
        i = rows[condition]
        cells = {c: (conditions.text(i, c, ""), conditions.place(i, c)) for c in targets}
        return Period(time, {c: v for c, v in cells.items() if v[0]}, True)

    before, own = "preequilibrationConditionId", "simulationConditionId"
    for i in range(len(measurements.frame)):
        first, second = measurements.text(i, before, ""), measurements.text(i, own)
        key = f"{first};{second}"
        if key not in out.experiments:
            periods = [period(first, -math.inf, i, before)] if first else []
            out.experiments[key] = [*periods, period(second, 0.0, i, own)]


def _experiments_v2(out: Tables, conditions: PetabTable, experiments: PetabTable) -> None:
    changes: dict[str, dict[str, tuple[str, str]]] = {}
    for i in range(len(conditions.frame)):
        for column in ("targetId", "targetValue"):
            if column not in conditions.frame:
                raise DataError(f"{out.path}: the table of conditions has no column {column!r}.")
        own, target = changes.setdefault(conditions.text(i, "conditionId"), {}), conditions.text(i, "targetId")
        target = out.renamed.get(target) or target
        if target in own:
            raise conditions.error(i, "targetId", f"{target!r} is set twice in this condition.")
        own[target] = conditions.text(i, "targetValue"), conditions.place(i, "targetValue")
    by_experiment: dict[str, dict[float, dict[str, tuple[str, str]]]] = {}
    for i in range(len(experiments.frame)):
        id, condition = _id(experiments, i, "experimentId"), experiments.text(i, "conditionId", "")
        time = experiments.number(i, "time")
        if time == math.inf:
            raise experiments.error(i, "time", "a period cannot begin at inf.")
        if condition:
            experiments.check_known(i, "conditionId", condition, changes, "condition")
        own = by_experiment.setdefault(id, {}).setdefault(time, {})
        for target, value in changes.get(condition, {}).items():
            if target in own:
                raise experiments.error(
                    i, "conditionId", f"{target!r} is set by two conditions at one time, {time:g}."
                )  # fmt: skip
            own[target] = value
    for id, periods in by_experiment.items():
        out.experiments[id] = [Period(time, periods[time], False) for time in sorted(periods)]
    out.experiments[""] = [Period(0.0, {}, False)]


def _readings(out: Tables, t: PetabTable) -> None:
    out.measurements = t.frame
    if not len(t.frame):
        raise DataError(f"{out.path}: there is no row of measurements, and a problem needs some.")
    for i in range(len(t.frame)):
        id = t.text(i, "observableId")
        t.check_known(i, "observableId", id, out.observables, "observable")
        if out.version == 1:
            key = f"{t.text(i, 'preequilibrationConditionId', '')};{t.text(i, 'simulationConditionId')}"
        else:
            key = t.text(i, "experimentId", "")
        t.check_known(i, "experimentId", key, out.experiments, "experiment")
        o, time, value = out.observables[id], t.number(i, "time"), t.number(i, "measurement")
        begins = min((p.time for p in out.experiments[key] if p.time > -math.inf), default=0.0)
        if time < begins:
            raise t.error(i, "time", f"{time:g} lies before the experiment begins, at {begins:g}.")
        if not math.isfinite(value) or (o.scale != "lin" and not value > 0):
            raise t.error(i, "measurement", f"{value:g} has no place on the scale {o.scale!r} of {id!r}.")
        overrides = []
        for column, wanted in (("observableParameters", o.placeholders), ("noiseParameters", o.noise_placeholders)):
            values = _split(t.text(i, column, ""))
            if len(values) != len(wanted) or not all(values):
                raise t.error(
                    i, column, f"{len(values)} values for {len(wanted)} placeholders of {id!r} ({listed(wanted)}); "
                    "as many are needed, with ; between them."
                )  # fmt: skip
            if not all(math.isfinite(as_float(text) or 0.0) for text in values):
                raise t.error(i, column, f"{';'.join(values)!r} has a number that is not finite.")
            overrides.append(values)
        where = t.place(i, "observableParameters")
        out.readings.append(Reading(id, key, time, value, overrides[0], overrides[1], where))
