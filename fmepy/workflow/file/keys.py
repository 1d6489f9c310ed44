"""What a calibration file may hold, said once.

The checks of a file, the JSON schema for editors (`fmepy schema`) and the table of the documentation are all made of
`file_keys`. Arguments of models, costs and steps are those of the functions that they go to (`signatures`); what only a
file has stands in ``keys.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from fmepy.workflow.file.signatures import KINDS, NAMES, TABLE, TEXT, Key, arguments_of, schema_of
from fmepy.workflow.steps.registry import STEPS

SOURCES = ("equations", "modules", "python")
"""What a model is made of: one of these."""
_LAST = ("require", "run")
"""The sections behind those of the steps."""


def _key(said: Mapping[str, Any]) -> Key:
    """Return a key as ``keys.toml`` has it."""
    kinds = {word: kind for kind, (_, word) in KINDS.items()}
    words = {**said, "kinds": tuple(kinds[word] for word in said["kinds"].split(" or "))}
    words["choices"] = tuple(words.get("choices", ()))
    if "items" in said:
        words["items"] = _key(said["items"])
    if "of" in said:
        words["of"] = {name: _key(inside) for name, inside in said["of"].items()}
    elif "each" in said:
        words["of"] = _key(words.pop("each"))
    return Key(**words)


_TEXT = files(__package__).joinpath("keys.toml").read_text(encoding="utf-8")
_OWN = {name: _key(said) for name, said in tomllib.loads(_TEXT).items()}


def own_keys(section: str) -> Mapping[str, Key]:
    """Return what ``keys.toml`` says of a section: its keys, or those of a table inside it."""
    of = _OWN[section].of
    inside = of.of if isinstance(of, Key) else of
    assert isinstance(inside, Mapping)
    return inside


@cache
def model_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the section ``model`` may hold, by the kind of model."""
    from fmepy.dmi.model import ModularModel
    from fmepy.models.difference import DifferenceModel
    from fmepy.models.ode import OdeModel
    from fmepy.models.steady import SteadyModel

    own = own_keys("model")
    times = own["times"]
    shared: dict[str, Any] = {"state": {"kinds": TABLE, "of": Key((float, str)), "required": False},
              "outputs": {"kinds": TABLE, "of": Key(TEXT)}}  # fmt: skip
    tolerances: dict[str, Any] = {"atol": {"kinds": (float, list, dict)}, "rtol": {"least": 0}}
    given = ("rhs", "step", "parms", "forcings", "events", "times")
    ode = arguments_of(OdeModel, (*given, "algebraic"), history={"kinds": TABLE, "of": Key((float, str))},
                       bandwidth={"kinds": (int, list)}, **shared, **tolerances)  # fmt: skip
    start = {"equations": own["equations"], "kind": own["kind"]}
    modules = arguments_of(
        ModularModel, (), modules=NAMES, data=NAMES, outputs=NAMES,
        times={k: getattr(times, k) for k in ("kinds", "of", "items", "says")},
    )  # fmt: skip
    return {
        "ode": {**start, "times": times, **ode},
        "difference": {**start, "times": times, **arguments_of(DifferenceModel, given, **shared)},
        "steady": {**start, **arguments_of(SteadyModel, (*given, "grid"), **shared, **tolerances)},
        "modules": modules,
        "python": {"python": own["python"], "inputs": own["inputs"]},
    }


@cache
def cost_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the section ``cost`` may hold, by its kind."""
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
    """Return the keys of all kinds of a section together; none of them is required then."""
    together: dict[str, Key] = {}
    for keys in kinds.values():
        for name, key in keys.items():
            had = together.get(name, key)
            choices = tuple(dict.fromkeys((*had.choices, *key.choices))) if had.choices and key.choices else ()
            wider = tuple(dict.fromkeys((*had.kinds, *key.kinds)))
            together[name] = replace(had, kinds=wider, choices=choices, required=False)
    return together


def require_keys() -> dict[str, Key]:
    """Return what may be demanded: of all steps, and of each."""
    of_steps = {name: one.key for step in STEPS.values() for name, one in step.requirements.items()}
    return {**own_keys("require"), **of_steps}


def file_keys() -> dict[str, Key]:
    """Return what a file may hold, its tables with what they may hold."""
    made = {"model": united(model_keys()), "cost": united(cost_keys()), "require": require_keys()}
    own = {name: replace(key, of=made.get(name, key.of)) for name, key in _OWN.items()}
    steps = {name: Key(TABLE, step.says, of=step.keys) for name, step in STEPS.items()}
    last = {name: own.pop(name) for name in _LAST}
    return {**own, **steps, **last}


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of what a file may hold."""
    top = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A calibration of fmepy"}
    return {**top, **schema_of(file_keys())}
