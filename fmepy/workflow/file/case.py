"""The keys of a calibration file, defined once, and the content of a file, checked; nothing is run or imported.

The checks of a file, the JSON schema for editors (`fmepy schema`) and the table of the documentation are all made of
`file_keys`. Arguments of models, costs and steps are those of the functions that they go to (`signatures`); what only a
file has is in ``keys.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from fmepy.errors import ArgumentError, listed
from fmepy.parameters.names import split_local
from fmepy.workflow.file.signatures import KINDS, NAMES, TABLE, TEXT, Key, arguments_of, check_kind, schema_of, validate
from fmepy.workflow.file.toml import TomlTable
from fmepy.workflow.steps.registry import STEPS

SOURCES = ("equations", "modules", "python")
"""What a model is made of: one of these."""
SCALE_ENDS = {"": (-np.inf, np.inf), "log": (0.0, np.inf), "logit": (0.0, 1.0)}
"""Between which values a parameter lies that is fitted on a scale, whatever its bounds."""
_LAST = ("require", "run")
"""The sections behind those of the steps."""


def _key(fields: Mapping[str, Any]) -> Key:
    """Return a key from its fields in ``keys.toml``."""
    kinds = {word: kind for kind, (_, word) in KINDS.items()}
    values = {**fields, "kinds": tuple(kinds[word] for word in fields["kinds"].split(" or "))}
    values["choices"] = tuple(values.get("choices", ()))
    if "items" in fields:
        values["items"] = _key(fields["items"])
    if "of" in fields:
        values["of"] = {name: _key(inside) for name, inside in fields["of"].items()}
    elif "each" in fields:
        values["of"] = _key(values.pop("each"))
    return Key(**values)


_TEXT = files(__package__).joinpath("keys.toml").read_text(encoding="utf-8")
_OWN = {name: _key(fields) for name, fields in tomllib.loads(_TEXT).items()}


def own_keys(section: str) -> Mapping[str, Key]:
    """Return the keys of a section from ``keys.toml``, or those of the tables inside it."""
    of = _OWN[section].of
    inside = of.of if isinstance(of, Key) else of
    assert isinstance(inside, Mapping)
    return inside


@cache
def model_keys() -> dict[str, Mapping[str, Key]]:
    """Return the keys of the section ``model``, by the kind of model."""
    from fmepy.dmi.model import ModularModel
    from fmepy.models.difference import DifferenceModel
    from fmepy.models.ode import OdeModel
    from fmepy.models.steady import SteadyModel

    own = own_keys("model")
    times = own["times"]
    shared: dict[str, Any] = {"state": {"kinds": TABLE, "of": Key((float, str)), "required": False},
              "outputs": {"kinds": TABLE, "of": Key(TEXT)}}  # fmt: skip
    tolerances: dict[str, Any] = {"atol": {"kinds": (float, list, dict)}, "rtol": {"least": 0}}
    not_from_file = ("rhs", "step", "parms", "forcings", "events", "times")
    ode = arguments_of(OdeModel, (*not_from_file, "algebraic"), history={"kinds": TABLE, "of": Key((float, str))},
                       bandwidth={"kinds": (int, list)}, **shared, **tolerances)  # fmt: skip
    start = {"equations": own["equations"], "kind": own["kind"]}
    modules = arguments_of(
        ModularModel, (), modules=NAMES, data=NAMES, outputs=NAMES,
        times={k: getattr(times, k) for k in ("kinds", "of", "items", "says")},
    )  # fmt: skip
    return {
        "ode": {**start, "times": times, **ode},
        "difference": {**start, "times": times, **arguments_of(DifferenceModel, not_from_file, **shared)},
        "steady": {**start, **arguments_of(SteadyModel, (*not_from_file, "grid"), **shared, **tolerances)},
        "modules": modules,
        "python": {"python": own["python"], "inputs": own["inputs"]},
    }


@cache
def cost_keys() -> dict[str, Mapping[str, Key]]:
    """Return the keys of the section ``cost``, by the kind of cost."""
    from fmepy.costs.prediction import PredictionErrorCost
    from fmepy.costs.simulation import SimulationCost
    from fmepy.fimlof.cost import FimlofCost

    elsewhere = ("model", "obs", "parms", "conditions", *own_keys("data"))
    # a class is no word of a file
    words = {"kinds": (str, dict), "says": "The distribution of the errors of readings."}
    simulation = arguments_of(SimulationCost, elsewhere, entity_parms=NAMES, likelihood=words)
    errors = arguments_of(PredictionErrorCost, (*elsewhere, "likelihood"), gain={"kinds": (float, str, dict, list)})
    fimlof = arguments_of(FimlofCost, (*elsewhere, "likelihood"))
    own = own_keys("cost")
    return {
        "simulation": {**own, **simulation},
        "prediction_error": {**own, **errors, **{k: simulation[k] for k in errors if k in simulation}},
        "fimlof": {**own, **fimlof, "entity_parms": simulation["entity_parms"]},
    }


def united(kinds: Mapping[str, Mapping[str, Key]]) -> dict[str, Key]:
    """Merge the keys of all kinds of a section; none of them is required."""
    union: dict[str, Key] = {}
    for keys in kinds.values():
        for name, key in keys.items():
            first = union.get(name, key)
            choices = tuple(dict.fromkeys((*first.choices, *key.choices))) if first.choices and key.choices else ()
            wider = tuple(dict.fromkeys((*first.kinds, *key.kinds)))
            union[name] = replace(first, kinds=wider, choices=choices, required=False)
    return union


def require_keys() -> dict[str, Key]:
    """Return the keys of the section ``require``."""
    of_steps = {name: one.key for step in STEPS.values() for name, one in step.requirements.items()}
    return {**own_keys("require"), **of_steps}


def file_keys() -> dict[str, Key]:
    """Return the keys of a file, with those of its tables."""
    contents = {"model": united(model_keys()), "cost": united(cost_keys()), "require": require_keys()}
    own = {name: replace(key, of=contents.get(name, key.of)) for name, key in _OWN.items()}
    steps = {name: Key(TABLE, step.says, of=step.keys) for name, step in STEPS.items()}
    last = {name: own.pop(name) for name in _LAST}
    return {**own, **steps, **last}


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of a calibration file."""
    top = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A calibration of fmepy"}
    return {**top, **schema_of(file_keys())}


# --- what it says


@dataclass(frozen=True)
class Parameter:
    """A parameter of the file.

    Attributes
    ----------
    name : str
    start : float
        Its value where it is fixed, else where the search begins; of the natural scale, as are the bounds.
    fitted : bool
        A table in the file is fitted, a plain number is fixed.
    lower, upper : float
        Bounds; minus and plus infinity where there is none.
    scale : {"", "log", "logit"}
        The scale on which it is fitted and sampled; "" is its own.
    prior : mapping or None
        ``dist`` and the arguments of that distribution of scipy.stats, of the natural value.
    description, unit : str
        Of the report alone.
    """

    name: str
    start: float
    fitted: bool
    lower: float = -float("inf")
    upper: float = float("inf")
    scale: str = ""
    prior: Mapping[str, Any] | None = None
    description: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Case:
    """The content of a calibration file, checked against its keys (`file_keys`).

    Attributes
    ----------
    section : TomlTable
        The file with the lines of its keys; ``case.section.error(("fit", "method"), "...")`` makes the message
        ``file.toml:7: ...``.
    title, description : str
        Of the report alone.
    parameters : mapping of str to Parameter
        In the order of the file.
    steps : mapping of str to mapping
        The sections of steps that are in the file, in the order in which steps run; each holds the arguments that
        the file gives, by the names of the functions that they go to.
    require : mapping
        ``converged``, ``failures``, ``rhat``, ``max_collinearity``, ``ess``: those that the file demands.
    run : mapping
        ``seed``, ``executor``, ``output``, ``checkpoint_every``: those that the file gives.
    content : mapping
        The whole file as plain values, numbers as their keys want them.
    problem : Path or None
        A problem from elsewhere that the file was made of for one command.
    """

    section: TomlTable
    title: str
    description: str
    parameters: Mapping[str, Parameter]
    steps: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    require: Mapping[str, Any] = field(default_factory=dict)
    run: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    problem: Path | None = None

    @property
    def source(self) -> Path:
        """What the user named: the problem that the TOML file was made of, else this file."""
        return self.problem or self.file

    @property
    def file(self) -> Path:
        """The TOML file."""
        return self.section.file

    def parameter(self, name: str) -> Parameter | None:
        """Return the file's parameter for a name in the cost: that name, or the name of which it is one entity's."""
        return self.parameters.get(name) or self.parameters.get(split_local(name)[0])

    @property
    def fitted(self) -> list[str]:
        """Names of the parameters that are fitted, in the order of the file."""
        return [p.name for p in self.parameters.values() if p.fitted]


def read_case(path: str | Path) -> Case:
    """Read and check a calibration file.

    Raises
    ------
    ArgumentError
        It cannot be read; a mistake in it, with its line.
    """
    section = TomlTable.read(path)
    _check_filled(section)
    content = validate(section, file_keys())
    _check_model(section.table("model"))
    kind = content.get("cost", {}).get("kind", "simulation")
    check_kind(section.table("cost"), cost_keys(), kind, f"a cost of the kind {kind!r}")
    steps = {name: step.read(section.table(name), content[name]) for name, step in STEPS.items() if name in content}
    table = section.table("parameters")
    parameters = {name: _parameter(table, name, value) for name, value in content.get("parameters", {}).items()}
    if steps and not parameters and "python" not in content["model"]:
        raise section.error(("parameters",), "the table [parameters] is missing or empty: name = 1.0 is fixed, "
                            "name = { start = 1.0 } is fitted.")  # fmt: skip
    return Case(
        section=section, content=content, title=content.get("title", ""), description=content.get("description", ""),
        parameters=parameters, steps=steps, require=content.get("require", {}), run=content.get("run", {}),
    )  # fmt: skip


def _check_filled(section: TomlTable) -> None:
    """Refuse the places of a draft (`fmepy new NAME --data FILE`) that are not filled yet, one after the other."""
    model, parameters = section.data.get("model"), section.data.get("parameters")
    text = model.get("equations") if isinstance(model, dict) else None
    for i, line in enumerate(str(text or "").split("\n"), 1):
        if re.search(r"\bFILL\b", line.partition("#")[0]):
            at = section.line(("model", "equations"), i)
            raise ArgumentError(f"{section.file}:{at}: FILL marks a place to fill in: {line.strip()}")
    for name, value in parameters.items() if isinstance(parameters, dict) else ():
        values = value.values() if isinstance(value, dict) else [value]
        if name == "FILL" or "FILL" in [v for v in values if isinstance(v, str)]:
            raise section.error(("parameters", name), "FILL marks a place to fill in: a line for "
                                "each parameter that the equations name, such as k = { start = 0.1, lower = 0, "
                                "upper = 10 }; a plain number is fixed.")  # fmt: skip


def _check_model(section: TomlTable) -> None:
    """Refuse a model without a source or with two, and keys that belong to other kinds."""
    sources = [s for s in SOURCES if s in section.data]
    if not sources:
        raise section.error((), f"the section [model] needs one of {listed(SOURCES)}.")
    if len(sources) > 1:
        raise section.error(sources[1], f"the section [model] holds {listed(sources)}; it is made of one of them.")
    kind = model_kind(section)
    of_kind = f" (kind {kind!r})" if sources[0] == "equations" else ""
    check_kind(section, model_keys(), kind, f"a model of {sources[0]}{of_kind}")


def model_kind(section: TomlTable) -> str:
    """Return the kind of the model that a section holds: ode, difference, steady, modules, python."""
    source = next(s for s in SOURCES if s in section.data)
    if source != "equations":
        return source
    default = "difference" if re.search(r"^\s*next\s*\(", str(section.data[source]), re.MULTILINE) else "ode"
    return str(section.data.get("kind", default))


def _parameter(section: TomlTable, name: str, value: Any) -> Parameter:
    """Return one parameter, its values checked."""
    if not name.strip():
        raise section.error(name, "a parameter needs a name.")
    if isinstance(value, float):
        if not np.isfinite(value):
            raise section.error(name, f"{name!r} is {value}; a finite number is needed.")
        return Parameter(name, value, fitted=False)
    table, p = section.table(name), Parameter(name, fitted=True, **value)
    least, most = SCALE_ENDS[p.scale]
    on_scale = f"; on the scale {p.scale!r} {{}} {'above 0' if p.scale == 'log' else 'between 0 and 1'}."
    finite = "leave it out where there is no bound."
    mistakes = (
        ("start", not np.isfinite(p.start), f" is {p.start}; a finite number is needed."),
        ("lower", np.isnan(p.lower), f" is nan; {finite}"),
        ("upper", np.isnan(p.upper), f" is nan; {finite}"),
        ("lower", not p.lower < p.upper, f" is {p.lower:g}, `upper` {p.upper:g}: it must be below. (A parameter that "
         f"is fixed is a number: {name} = {p.start:g}.)"),
        ("start", not p.lower <= p.start <= p.upper, f" is {p.start:g}, outside its bounds {p.lower:g} to "
         f"{p.upper:g}."),
        ("start", p.scale and not least < p.start < most, f" is {p.start:g}{on_scale.format('it must be')}"),
        ("lower", "lower" in value and not least <= p.lower <= most, f" is {p.lower:g}{on_scale.format('values are')}"),
        ("upper", "upper" in value and not least <= p.upper <= most, f" is {p.upper:g}{on_scale.format('values are')}"),
    )  # fmt: skip
    for key, is_wrong, text in mistakes:
        if is_wrong:
            raise table.error(key, f"`{key}` of {name!r}{text}")
    return p
