"""The sections on what was asked: the task, and the data beside the model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fmepy.workflow.file.functions import FunctionModel
from fmepy.workflow.report.findings import Findings, attempt, first_few
from fmepy.workflow.report.page import Cell, Code, Draft, Facts, Pictures, Section, Table
from fmepy.workflow.report.pictures import MOST_PANELS, drawn
from fmepy.workflow.report.tables import table_of
from fmepy.workflow.report.words import count, names, number, short

RESIDUALS = "residuals.csv"
_MOST_LINES = 400
_MOST_DRAWN_ENTITIES = 200
ASKED = {
    "screen": "See which parameters the data respond to, and which of them can be told apart",
    "fit": "Find the parameter values at which the model agrees best with the data",
    "multistart": "Search again from many other starting points, lest a better fit was missed",
    "profile": "Move each parameter away from its best value, fit the others again, and see how soon the fit suffers",
    "sample": "Draw parameter values that are plausible given the data (Markov chain Monte Carlo)",
    "ranges": "Run the model at many plausible parameter values, and see how far its curves spread",
    "scenarios": "Run the model under other assumptions",
    "filter": "Follow the data with a Kalman filter, reading by reading, and test what it could not predict",
}
_STATES = {"done": "done", "failed": "failed", "interrupted": "interrupted", "not run": "not run"}
_KINDS = {"ode": "differential equations", "difference": "difference equations, step by step"}
_COSTS = {
    "SimulationCost": "The model is run from its start to its end and compared with the readings",
    "PredictionErrorCost": "The model predicts each reading from the readings before it, and these predictions are "
    "compared with the readings",
    "FimlofCost": "The model is taken to be disturbed by noise, and a Kalman filter gives the likelihood of the "
    "readings (FIMLOF)",
}
_TRANSFORMS = {"log": "their logarithms are compared, so that deviations count in per cent",
               "sqrt": "their square roots are compared"}  # fmt: skip


def task_section(found: Findings) -> Section:
    """Return what was asked and, in a table, what came of it."""
    draft, case = Draft(), found.task.case
    draft.add(_glance(found))
    draft.head("The model")
    draft.say(_model_sentence(found.task.model), _cost_sentence(found.task.cost))
    draft.add(_equations(case.section.data.get("model")))
    draft.head("Parameters")
    n, fixed = len(case.fitted), len(case.parameters) - len(case.fitted)
    rest = f", {fixed} {'keeps' if fixed == 1 else 'keep'} the value that the file gives" if fixed else ""
    draft.say(f"{count(n, 'parameter')} of the file {'is' if n == 1 else 'are'} to be estimated{rest}.")
    if found.task.scale:
        draft.say(
            f"On a logarithmic or logistic scale are searched: {names(found.task.scale)}. All numbers of this report "
            "are the parameters' own values."
        )
    draft.add(_parameters(case.parameters))
    return Section("task", "What was asked", tuple(draft.blocks))


def _glance(found: Findings) -> Table:
    rows = []
    asked: Mapping[str, Any] = found.record.get("asked") or {key: {} for key in found.results}
    for name in asked:
        step = found.step(name)
        state = _STATES.get(str(step.get("state", "done")), str(step.get("state")))
        told = str(step.get("verdict") or step.get("error") or "")
        tone = "bad" if state in ("failed", "interrupted") else ""
        link = name if name in found.results or state in ("failed", "interrupted") else ""
        rows.append((Cell(name, link=link), Cell(ASKED.get(name, "")), Cell(state, tone=tone), Cell(told)))
    heads = (("step", False), ("what it is for", False), ("state", False), ("what came of it", False))
    return Table("The steps, and what came of each", heads, tuple(rows))


def _model_sentence(model: Any) -> str:
    if model is None:
        return "The model and its comparison with data are a Python function that the file names."
    if isinstance(model, FunctionModel):
        return "The model is a Python function that the file names; its tables are compared with the readings."
    states, outputs = _texts(getattr(model, "states", ())), _texts(getattr(model, "var_names", ()))
    kind = getattr(getattr(model, "definition", None), "kind", "")
    other = "equations whose steady state is sought" if "Steady" in type(model).__name__ else "equations"
    what = _KINDS.get(str(kind), other)
    parts = [f"The model consists of {what}"]
    if states:
        parts.append(f" for {count(len(states), 'state')}: {names(states)}")
    also = [n for n in outputs if n not in states]
    if also:
        parts.append(f"; it gives {names(also)} besides")
    times = np.asarray(getattr(model, "times", []), dtype=float)
    if times.size > 1:
        parts.append(f". It runs from {number(times[0], 7)} to {number(times[-1], 7)}")
    return "".join(parts) + "."


def _texts(given: Any) -> list[str]:
    return [str(name) for name in given]


def _cost_sentence(cost: Any) -> str:
    kind = type(cost).__name__
    if kind not in _COSTS:
        return ""
    told = _COSTS[kind]
    transform = getattr(cost, "transform", None)
    if isinstance(transform, str):
        told += f"; {_TRANSFORMS.get(transform, '')}"
    elif isinstance(transform, Mapping):
        by = [
            f"of {name} {'the logarithm' if how == 'log' else 'the square root'}"
            for name, how in transform.items()
            if how
        ]
        told += f"; compared is {names(by)}" if by else ""
    weight = getattr(cost, "weight", "none")
    if getattr(cost, "err", None) is not None:
        told += ". Each reading has the standard error that the data give"
    elif getattr(cost, "measurement_noise", None):
        told += ". How large the errors of the readings are is part of the model"
    elif weight in ("std", "mean"):
        told += f". Deviations count relative to the {'spread' if weight == 'std' else 'mean size'} of their variable"
    return told + "."


def _equations(section: Any) -> Code | None:
    text = section.get("equations") if isinstance(section, Mapping) else None
    if not isinstance(text, str):
        python = section.get("python") if isinstance(section, Mapping) else None
        return Code(str(python), "The model is this Python object:") if python else None
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    cut = [line[indent:] for line in lines[:_MOST_LINES]]
    if len(lines) > _MOST_LINES:
        cut.append(f"… {len(lines) - _MOST_LINES} more lines stand in the file")
    return Code("\n".join(cut))


def _parameters(parameters: Mapping[str, Any]) -> Table:
    rows = []
    for p in parameters.values():
        row = {
            "parameter": p.name, "what it is": p.description, "unit": p.unit,
            "role": "estimated" if p.fitted else "fixed", "start": p.start,
            "lower": p.lower if p.fitted else math.nan, "upper": p.upper if p.fitted else math.nan,
            "scale": p.scale, "prior": _prior(p.prior),
        }  # fmt: skip
        rows.append(row)
    frame = pd.DataFrame(rows)
    empty = [c for c in ("what it is", "unit", "scale", "prior") if c in frame and not frame[c].astype(bool).any()]
    heads = {"start": "start or value", "lower": "lower bound", "upper": "upper bound"}
    return table_of(frame.drop(columns=empty), "Parameters of the file", heads=heads)


def _prior(prior: Mapping[str, Any] | None) -> str:
    if not prior:
        return ""
    rest = ", ".join(
        f"{k} = {number(v) if isinstance(v, (int, float)) else v}" for k, v in prior.items() if k != "dist"
    )
    return f"{prior.get('dist', '')}({rest})"


def data_section(found: Findings) -> Section:
    """Return what the data are, with the model beside them."""
    draft, data = Draft(), found.task.data
    file = _data_file(found.task.case.section.data)
    if data is not None and len(data.columns):
        draft.say(
            f"{count(len(data), 'row')} and {count(len(data.columns), 'column')} were "
            f"read{f' from {file}' if file else ''}."
        )
    draft.list(found.task.told)
    readings = found.readings
    if readings is not None and len(readings):
        draft.add(table_of(_by_variable(readings, found.x_name), "The readings that are compared with the model"))
        n = readings["entity"].nunique()
        if n > _MOST_DRAWN_ENTITIES:
            where = (
                f" {RESIDUALS} holds what was read and what the model says of each." if found.fit is not None else ""
            )
            draft.say(f"Of {n:,} entities no picture is drawn (of {_MOST_DRAWN_ENTITIES} at most).{where}")
        else:
            attempt(draft, "The picture of data and model", lambda: _beside(found, readings))
    if data is not None and len(data.columns):
        draft.fold("The data as they were read", [table_of(data, "Data", file=file or "the data file")])
    return Section("data", "Data and model, side by side", tuple(draft.blocks))


def _data_file(section: Mapping[str, Any]) -> str:
    data = section.get("data")
    given = data.get("file", "") if isinstance(data, Mapping) else ""
    return str(given) if isinstance(given, str) else ""


def _by_variable(readings: pd.DataFrame, x: str) -> pd.DataFrame:
    rows = []
    for name, own in readings.groupby("name", sort=False):
        row = {"variable": str(name), "readings": len(own), "beyond a limit": int((own["limit"] != 0).sum())}
        if own["entity"].notna().any():
            row["entities"] = own["entity"].nunique()
        row |= {f"{x} from": own["x"].min(), f"{x} to": own["x"].max()}
        row |= {"smallest": own["obs"].min(), "median": own["obs"].median(), "largest": own["obs"].max()}
        rows.append(row)
    frame = pd.DataFrame(rows)
    return frame if frame["beyond a limit"].any() else frame.drop(columns="beyond a limit")


def _beside(found: Findings, readings: pd.DataFrame) -> Pictures | None:
    """Return pictures of the model's curves through the data."""
    cost = found.task.cost
    if found.filtered is not None:
        return filtered_pictures(found, "data")
    if not hasattr(cost, "plot") or getattr(cost, "x", None) is None:
        return None
    curve = "the model's curve " + found.at
    if readings["entity"].notna().any():
        labels = list(dict.fromkeys(readings["entity"]))
        shown, said = first_few(labels, MOST_PANELS, RESIDUALS * (found.fit is not None))
        texts = [f"{cost.entity} {label}: readings as points and {curve} over {found.x_name}." for label in shown]
        return drawn(
            "data", lambda axes: cost.plot(found.par, axes=axes, xlabel=found.x_name), texts, panels=len(labels),
            caption=f"Points: readings. Lines: {curve}. A panel for each {short(str(cost.entity))}. {said}",
        )  # fmt: skip
    variables = list(cost.comparison.group_names)
    shown, said = first_few(variables, MOST_PANELS, RESIDUALS * (found.fit is not None))
    texts = [f"{name} over {found.x_name}: readings as points and {curve}." for name in shown]
    return drawn(
        "data", lambda axes: cost.plot(found.par, axes=axes, xlabel=found.x_name), texts, panels=len(variables),
        caption=f"Points: readings. Lines: {curve}. {said}",
    )  # fmt: skip


def filtered_pictures(found: Findings, name: str) -> Pictures:
    """Return pictures of the states and outputs of a filter, with bands and data."""
    flt = found.filtered
    kind = "smoothed" if flt.smooth else "filtered"
    known = [str(c) for c in getattr(flt, kind).columns if c not in ("time", flt.entity_column)]
    shown, said = first_few([n for n in known if n not in flt.measured_states], MOST_PANELS)
    texts = [f"{n} over {flt.xlabel}: readings, and the course that the filter finds." for n in shown]
    return drawn(
        name, lambda axes: flt.plot(shown, kind, axes=axes), texts,
        caption="Points: readings. Line and band: what model and data together say, and how surely"
        f"{'' if flt.smooth else ', from the data until then'}. Rings: readings "
        f"that are suspected. {said}",
    )  # fmt: skip


def facts_of(pairs: Mapping[str, Any]) -> Facts:
    """Return terms and what they are, those that are something."""
    return Facts(tuple((k, str(v)) for k, v in pairs.items() if v not in (None, "", [], {})))
