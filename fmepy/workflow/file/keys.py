"""What a calibration file may hold, said once.

The checks of a file, the JSON schema for editors (`fmepy schema`) and the table of the documentation are all made of
`file_keys`. Arguments of models, costs and steps are those of the functions that they go to (`signatures`); what stands
here is what only a file has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from fmepy.workflow.file.signatures import FLAG, LIST, NAMES, NUMBER, TABLE, TEXT, WHOLE, Key, arguments_of, schema_of
from fmepy.workflow.steps.registry import STEPS

SCALES = ("log", "logit")
SOURCES = ("equations", "modules", "python")
"""What a model is made of: one of these."""
DATA = {
    "file": Key(TEXT, "The file of observations, which counts from where the TOML file is.", required=True),
    "x": Key(TEXT, "The column of times; without it 'time'."),
    "depth": Key(TEXT, "The column of depths, of data of a model on a grid."),
    "unit": Key(TEXT, "The unit of `x`: of dates one of seconds, minutes, hours, days, weeks, years."),
    "origin": Key(TEXT, "The date at which the time is 0, where `x` holds dates; without it the first of them."),
    "ignore": Key(**NAMES, says="Columns that are left alone."),
    "y": Key(TEXT, "The column of values of a long table, whose first column names the variables."),
    "err": Key(TEXT, "The column of standard errors of a long table."),
    "entity": Key(TEXT, "The column that names the experiment (subject, batch) of a row."),
    "censored": Key(
        (str, dict), "The column of marks < and > beside limits of detection; by variable in a wide table."
    ),
    "separator": Key(TEXT, "The separator of columns; without it detected and reported."),
    "decimal": Key(TEXT, "The decimal mark; without it detected and reported.", choices=(".", ",")),
    "encoding": Key(TEXT, "The encoding; without it detected (utf-8, utf-16, else cp1252) and reported."),
}
PARAMETER = {
    "start": Key(NUMBER, "Where the search begins, on the natural scale.", required=True),
    "lower": Key(NUMBER, "The lower bound."),
    "upper": Key(NUMBER, "The upper bound."),
    "scale": Key(TEXT, "The scale on which it is fitted and sampled.", choices=SCALES),
    "prior": Key(
        TABLE, "Its distribution beforehand, of the natural value: dist, of scipy.stats, and that one's arguments."
    ),
    "description": Key(TEXT, "What it is, for the report."),
    "unit": Key(TEXT, "Its unit, for the report."),
}
TIMES = {
    "start": Key(NUMBER, "The first time.", required=True),
    "stop": Key(NUMBER, "The last time.", required=True),
    "step": Key(NUMBER, "The distance of two rows.", required=True),
}
TABLE_FILE = {"file": Key(TEXT, "A table: a CSV file, beside the TOML file.", required=True)}
FORCING = {
    "file": Key(TEXT, "A table of time and value; with entities a column of that name, too."),
    "time": Key(LIST, "Times, increasing.", items=Key(NUMBER)),
    "value": Key(LIST, "As many values.", items=Key(NUMBER)),
    "interpolation": Key(TEXT, "Between its times; without it 'linear'.", choices=("linear", "constant")),
}
REQUIRE = {
    "converged": Key(FLAG, "Whether a fit that did not converge fails its step; without it true."),
    "failures": Key(NUMBER, "The largest share of a step's runs that may fail; without it 0.5.", least=0, most=1),
}
RUN = {
    "seed": Key(WHOLE, "The seed of all that is drawn.", least=0),
    "executor": Key(WHOLE, "The number of processes; results do not depend on it.", least=1, most=1024),
    "output": Key(TEXT, "The folder of the results, which counts from where the TOML file is."),
    "checkpoint_every": Key(WHOLE, "Iterations of a chain between parts that are kept.", least=1, most=1e9),
}


@cache
def model_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the section ``model`` may hold, by the kind of model."""
    from fmepy.dmi.model import ModularModel
    from fmepy.models.difference import DifferenceModel
    from fmepy.models.ode import OdeModel
    from fmepy.models.steady import SteadyModel

    text = Key(TEXT, "The model's equations: d(x)/dt = ..., next(x) = ..., x(0) = ..., name = ...", required=True)
    says = "The times of the rows: a list, or a table of start, stop and step."
    times = Key((list, dict), says, of=TIMES, items=Key(NUMBER), required=True)
    kind = Key(TEXT, "What the equations are; without it 'difference' where next( stands, else 'ode'.",
               choices=("ode", "difference", "steady"))  # fmt: skip
    shared: dict[str, Any] = {"state": {"kinds": TABLE, "of": Key((float, str)), "required": False},
              "outputs": {"kinds": TABLE, "of": Key(TEXT)}}  # fmt: skip
    tolerances: dict[str, Any] = {"atol": {"kinds": (float, list, dict)}, "rtol": {"least": 0}}
    given = ("rhs", "step", "parms", "forcings", "events", "times")
    ode = arguments_of(OdeModel, (*given, "algebraic"), history={"kinds": TABLE, "of": Key((float, str))},
                       bandwidth={"kinds": (int, list)}, **shared, **tolerances)  # fmt: skip
    start = {"equations": text, "kind": kind}
    modules = arguments_of(
        ModularModel, (), modules=NAMES, data=NAMES, outputs=NAMES,
        times={k: getattr(times, k) for k in ("kinds", "of", "items", "says")},
    )  # fmt: skip
    return {
        "ode": {**start, "times": times, **ode},
        "difference": {**start, "times": times, **arguments_of(DifferenceModel, given, **shared)},
        "steady": {**start, **arguments_of(SteadyModel, (*given, "grid"), **shared, **tolerances)},
        "modules": modules,
        "python": {
            "python": Key(
                TEXT, "A Model, a cost, or a function f(p) of a cost or of a table: file.py:object.", required=True
            ),
            "inputs": Key(**NAMES, says="Files and folders that it reads: where they change, steps run again."),
        },
    }


@cache
def cost_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the section ``cost`` may hold, by its kind."""
    from fmepy.costs.prediction import PredictionErrorCost
    from fmepy.costs.simulation import SimulationCost
    from fmepy.fimlof.cost import FimlofCost

    elsewhere = ("model", "obs", "parms", "conditions", *DATA)
    # a class is no word of a file
    words = {"kinds": (str, dict), "says": "The distribution of the errors of readings."}
    simulation = arguments_of(SimulationCost, elsewhere, entity_parms=NAMES, likelihood=words)
    errors = arguments_of(PredictionErrorCost, (*elsewhere, "likelihood"), gain={"kinds": (float, str, dict, list)})
    fimlof = arguments_of(FimlofCost, (*elsewhere, "likelihood"))
    kind = Key(TEXT, "How model and data are compared.", choices=("simulation", "prediction_error", "fimlof"))
    return {
        "simulation": {"kind": kind, **simulation},
        "prediction_error": {"kind": kind, **errors, **{k: simulation[k] for k in errors if k in simulation}},
        "fimlof": {"kind": kind, **fimlof, "entity_parms": simulation["entity_parms"]},
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
    return {**REQUIRE, **{name: one.key for step in STEPS.values() for name, one in step.requirements.items()}}


def file_keys() -> dict[str, Key]:
    """Return what a file may hold, its tables with what they may hold."""
    steps = {name: Key(TABLE, step.says, of=step.keys) for name, step in STEPS.items()}
    rows = Key((list, dict), of=TABLE_FILE, items=Key(TABLE))
    return {
        "title": Key(TEXT, "The title of the report."),
        "description": Key(TEXT, "What it is about, for the report."),
        "data": Key(TABLE, "The observations.", of=DATA),
        "model": Key(TABLE, "The model: equations, modules, or Python.", of=united(model_keys()), required=True),
        "cost": Key(TABLE, "How model and data are compared.", of=united(cost_keys())),
        "parameters": Key(
            TABLE, "Parameters: a number is fixed, a table is fitted.",
            of=Key((float, dict), of=PARAMETER),
        ),
        "conditions": replace(rows, says="A row an entity: the entity, then parameters that are set for it."),
        "events": replace(rows, says="Changes of states: var, time or root, value, method; and the entity."),
        "forcings": Key(TABLE, "Time series as inputs, by name.", of=Key(TABLE, of=FORCING)),
        **steps,
        "require": Key(TABLE, "What must be met; else the exit code is 1.", of=require_keys()),
        "run": Key(TABLE, "Seed, processes and folder.", of=RUN),
    }  # fmt: skip


def file_schema() -> dict[str, Any]:
    """Return the JSON schema of what a file may hold."""
    top = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A calibration of fmepy"}
    return {**top, **schema_of(file_keys())}
