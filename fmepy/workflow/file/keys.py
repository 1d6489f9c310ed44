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

from fmepy.workflow.file.signatures import Key, arguments_of

STEPS = ("screen", "fit", "multistart", "profile", "sample", "ranges", "scenarios", "filter")
"""The steps, in the order in which they run."""
STARTS = 8
"""Of a section ``multistart`` that says no number."""
_STARTS_SAY = f"The number of starts, that of the file among them; without it {STARTS}."
SCALES = ("log", "logit")
SOURCES = ("equations", "modules", "python")
"""What a model is made of: one of these."""
_TEXT, _FLAG, _WHOLE, _NUMBER, _TABLE, _LIST = (str,), (bool,), (int,), (float,), (dict,), (list,)
_NAMES: dict[str, Any] = {"kinds": (str, list), "items": Key(_TEXT)}
_COUNT: dict[str, Any] = {"kinds": _WHOLE, "least": 1, "most": 1e9}
_A_COUNT = Key(**_COUNT)
_NO_FILE = ("args", "kwargs", "executor", "progress", "seed", "checkpoint", "jac", "f", "p", "lower", "upper", "prior")
"""Arguments of steps that are no matter of their section: they come from the parameters, the data, or ``run``."""

DATA = {
    "file": Key(_TEXT, "The file of observations, which counts from where the TOML file is.", required=True),
    "x": Key(_TEXT, "The column of times; without it 'time'."),
    "y": Key(_TEXT, "The column of values of a long table, whose first column names the variables."),
    "err": Key(_TEXT, "The column of standard errors of a long table."),
    "entity": Key(_TEXT, "The column that names the experiment (subject, batch) of a row."),
    "censored": Key(
        (str, dict), "The column of marks < and > beside limits of detection; by variable in a wide table."
    ),
    "separator": Key(_TEXT, "What stands between columns; without it found, and told."),
    "decimal": Key(_TEXT, "The decimal mark; without it found, and told.", choices=(".", ",")),
    "encoding": Key(_TEXT, "The encoding; without it found (utf-8, utf-16, else cp1252), and told."),
}
PARAMETER = {
    "start": Key(_NUMBER, "Where the search begins, on the natural scale.", required=True),
    "lower": Key(_NUMBER, "The lower bound."),
    "upper": Key(_NUMBER, "The upper bound."),
    "scale": Key(_TEXT, "The scale on which it is fitted and sampled.", choices=SCALES),
    "prior": Key(
        _TABLE, "Its distribution beforehand, of the natural value: dist, of scipy.stats, and that one's arguments."
    ),
    "description": Key(_TEXT, "What it is, for the report."),
    "unit": Key(_TEXT, "Its unit, for the report."),
}
TIMES = {
    "start": Key(_NUMBER, "The first time.", required=True),
    "stop": Key(_NUMBER, "The last time.", required=True),
    "step": Key(_NUMBER, "The distance of two rows.", required=True),
}
TABLE_FILE = {"file": Key(_TEXT, "A table: a CSV file, beside the TOML file.", required=True)}
FORCING = {
    "file": Key(_TEXT, "A table of time and value; with entities a column of that name, too."),
    "time": Key(_LIST, "Times, increasing.", items=Key(_NUMBER)),
    "value": Key(_LIST, "As many values.", items=Key(_NUMBER)),
    "interpolation": Key(_TEXT, "Between its times; without it 'linear'.", choices=("linear", "constant")),
}
REQUIRE = {
    "converged": Key(_FLAG, "Whether a fit that did not converge fails its step; without it true."),
    "failures": Key(_NUMBER, "The largest share of a step's runs that may fail; without it 0.5.", least=0, most=1),
    "rhat": Key(_NUMBER, "The largest R-hat of the chains' parameters.", least=1, open=True),
    "ess": Key(_NUMBER, "The smallest effective number of draws of a parameter.", least=0, open=True),
    "max_collinearity": Key(_NUMBER, "The largest collinearity of all fitted parameters together.", least=1, open=True),
}
RUN = {
    "seed": Key(_WHOLE, "The seed of all that is drawn.", least=0),
    "executor": Key(_WHOLE, "The number of processes; results do not depend on it.", least=1, most=1024),
    "output": Key(_TEXT, "The folder of the results, which counts from where the TOML file is."),
    "checkpoint_every": Key(_WHOLE, "Iterations of a chain between parts that are kept.", least=1, most=1e9),
}


@cache
def model_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the section ``model`` may hold, by the kind of model."""
    from fmepy.dmi.model import ModularModel
    from fmepy.models.difference import DifferenceModel
    from fmepy.models.ode import OdeModel
    from fmepy.models.steady import SteadyModel

    text = Key(_TEXT, "The model's equations: d(x)/dt = ..., next(x) = ..., x(0) = ..., name = ...", required=True)
    times = Key(
        (list, dict),
        "The times of the rows: a list, or a table of start, stop and step.",
        of=TIMES,
        items=Key(_NUMBER),
        required=True,
    )
    kind = Key(_TEXT, "What the equations are; without it 'difference' where next( stands, else 'ode'.",
               choices=("ode", "difference", "steady"))  # fmt: skip
    shared: dict[str, Any] = {"state": {"kinds": _TABLE, "of": Key((float, str)), "required": False},
              "outputs": {"kinds": _TABLE, "of": Key(_TEXT)}}  # fmt: skip
    tolerances: dict[str, Any] = {"atol": {"kinds": (float, list, dict)}, "rtol": {"least": 0}}
    given = ("rhs", "step", "parms", "forcings", "events", "times")
    ode = arguments_of(OdeModel, (*given, "algebraic"), history={"kinds": _TABLE, "of": Key((float, str))},
                       bandwidth={"kinds": (int, list)}, **shared, **tolerances)  # fmt: skip
    start = {"equations": text, "kind": kind}
    modules = arguments_of(
        ModularModel, (), modules=_NAMES, data=_NAMES, outputs=_NAMES,
        times={"kinds": times.kinds, "of": times.of, "items": times.items, "says": times.says},
    )  # fmt: skip
    return {
        "ode": {**start, "times": times, **ode},
        "difference": {**start, "times": times, **arguments_of(DifferenceModel, given, **shared)},
        "steady": {**start, **arguments_of(SteadyModel, (*given, "grid"), **shared, **tolerances)},
        "modules": modules,
        "python": {
            "python": Key(
                _TEXT, "A Model, a cost, or a function f(p) of a cost or of a table: file.py:object.", required=True
            ),
            "inputs": Key(**_NAMES, says="Files and folders that it reads: where they change, steps run again."),
        },
    }


@cache
def cost_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the section ``cost`` may hold, by its kind."""
    from fmepy.costs.prediction import PredictionErrorCost
    from fmepy.costs.simulation import SimulationCost
    from fmepy.fimlof.cost import FimlofCost

    elsewhere = ("model", "obs", "parms", "conditions", *DATA)
    simulation = arguments_of(SimulationCost, elsewhere, entity_parms=_NAMES)
    errors = arguments_of(PredictionErrorCost, elsewhere, gain={"kinds": (float, str, dict, list)})
    fimlof = arguments_of(FimlofCost, elsewhere)
    kind = Key(_TEXT, "How model and data are compared.", choices=("simulation", "prediction_error", "fimlof"))
    return {
        "simulation": {"kind": kind, **simulation},
        "prediction_error": {"kind": kind, **errors, **{k: simulation[k] for k in errors if k in simulation}},
        "fimlof": {"kind": kind, **fimlof, "entity_parms": simulation["entity_parms"]},
    }


@cache
def step_keys() -> dict[str, Mapping[str, Key]]:
    """Return what the sections of steps may hold, by step."""
    from fmepy.fitting.methods.registry import METHODS
    from fmepy.fitting.modfit import modFit
    from fmepy.fitting.profiles import profile
    from fmepy.mcmc.kernels.registry import SAMPLERS
    from fmepy.mcmc.modmcmc import modMCMC
    from fmepy.montecarlo.ranges import sensRange
    from fmepy.montecarlo.scenarios import scenarios
    from fmepy.sensitivity.collin import collin
    from fmepy.sensitivity.sensfun import sensFun

    method = {"kinds": _TEXT, "choices": tuple(METHODS)}
    names = {k: _NAMES for k in ("sensvar", "senspar", "parset", "which")}
    inside: dict[str, Any] = {"least": 0, "most": 1, "open": True}
    fit = arguments_of(modFit, (*_NO_FILE, "starts"), method=method)
    counts = ("niter", "outputlength", "updatecov", "ntrydr", "chains")
    numbers = {"kinds": (float, list), "items": Key(_NUMBER)}
    sample = arguments_of(
        modMCMC, (*_NO_FILE, "checkpoint_every"), method={"choices": tuple(SAMPLERS)},
        jump={"kinds": (float, list, dict)},
        wvar0=numbers, n0=numbers, burninlength={**_COUNT, "least": 0}, covscale={"least": 0, "open": True},
        **dict.fromkeys(counts, _COUNT),
    )  # fmt: skip
    boxes = {"kinds": _TABLE, "of": Key(_LIST, items=Key(_NUMBER))}
    ranges = arguments_of(
        sensRange, (*_NO_FILE, "func", "parms", "parInput", "keep", "map"), num=_COUNT, sensvar=_NAMES, parRange=boxes,
        parMean={"kinds": _TABLE, "of": Key(_NUMBER)}, parCovar={"kinds": (float, list)},
    )  # fmt: skip
    what_if = arguments_of(
        scenarios, (*_NO_FILE, "model", "parms", "parInput"), num=_COUNT, sensvar=_NAMES,
        table={"kinds": _TEXT, "says": "The file of scenarios, a row each: a column scenario, then what it sets."},
    )  # fmt: skip
    return {
        "screen": {
            "collin": Key(_FLAG, "Whether the collinearity of sets of parameters is looked at; without it true."),
            **arguments_of(sensFun, (*_NO_FILE, "func", "parms", "map"), sensvar=names["sensvar"],
                           senspar=names["senspar"], tiny={"least": 0, "open": True}),
            **arguments_of(collin, (*_NO_FILE, "sensfun"), parset=names["parset"], which=names["which"],
                           N={"kinds": (int, list), "items": _A_COUNT}),
        },
        "fit": fit,
        "multistart": {"starts": replace(_A_COUNT, least=2, says=_STARTS_SAY), **fit},
        "profile": arguments_of(profile, (*_NO_FILE, "fit"), method=method, which=names["which"], level=inside,
                                num={**_COUNT, "least": 5}, prediction={"kinds": _LIST}),
        "sample": sample,
        "ranges": {**ranges, "with_error": Key(_FLAG, "Whether ranges are also of readings, with their errors.")},
        "scenarios": what_if,
        "filter": {
            "smooth": Key(_FLAG, "Whether states are also smoothed; without it true."),
            "steps": replace(_A_COUNT, says="The number of steps of a forecast after the data; without it none."),
            "level": Key(_NUMBER, "Of the forecast's bands; without it 0.95.", **inside),
            "max_lag": replace(_A_COUNT, says="The number of lags of the innovations' correlations; without it 10."),
        },
    }  # fmt: skip


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


@cache
def file_keys() -> dict[str, Key]:
    """Return what a file may hold, its tables with what they may hold."""
    steps = {name: Key(_TABLE, _STEPS_SAY[name], of=keys) for name, keys in step_keys().items()}
    rows = Key((list, dict), of=TABLE_FILE, items=Key(_TABLE))
    return {
        "title": Key(_TEXT, "The title of the report."),
        "description": Key(_TEXT, "What it is about, for the report."),
        "data": Key(_TABLE, "The observations.", of=DATA),
        "model": Key(_TABLE, "The model: equations, modules, or Python.", of=united(model_keys()), required=True),
        "cost": Key(_TABLE, "How model and data are compared.", of=united(cost_keys())),
        "parameters": Key(
            _TABLE, "Parameters: a number is fixed, a table is fitted.",
            of=Key((float, dict), of=PARAMETER),
        ),
        "conditions": replace(rows, says="A row an entity: the entity, then parameters that are set for it."),
        "events": replace(rows, says="Changes of states: var, time or root, value, method; and the entity."),
        "forcings": Key(_TABLE, "Time series as inputs, by name.", of=Key(_TABLE, of=FORCING)),
        **steps,
        "require": Key(_TABLE, "What must be met; else the exit code is 1.", of=REQUIRE),
        "run": Key(_TABLE, "Seed, processes and folder.", of=RUN),
    }  # fmt: skip


_STEPS_SAY = {
    "screen": "Sensitivities, and which parameters the data can tell apart.",
    "fit": "The search for the best parameters.",
    "multistart": "The same search from many starts.",
    "profile": "Profile likelihoods, and intervals by them.",
    "sample": "Chains: the distribution of the parameters after the data.",
    "ranges": "What the model says, with the uncertainty of the parameters.",
    "scenarios": "What the model says if.",
    "filter": "What a filter says of every reading (costs by FIMLOF).",
}
