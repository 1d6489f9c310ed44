"""What the sections on no step need: on the task, on the data with the model beside them, on how to do it again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.workflow.file.functions import FunctionModel
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.glance import MOST_SHOWN
from fmepy.workflow.report.pictures import MOST_PANELS, Pictures, drawn, first_few
from fmepy.workflow.report.tables import Table, TableCell, table_of
from fmepy.workflow.report.words import duration, number, paragraphs, short
from fmepy.workflow.steps.registry import STEPS

_MOST_LINES, _MOST_LETTERS = 400, 100_000
_MOST_DRAWN_ENTITIES = 200
_NAMED = {
    "file", "output", "command", "title", "description", "asked", "require", "versions", "hashes", "steps", "demands",
    "warnings", "ok", "exit", "started", "ended", "seconds", "seed", "workers", "system",
}  # fmt: skip
"""What run.json holds and has its place on the page."""


def task_facts(found: Findings) -> dict[str, Any]:
    """Return what was asked, and what came of it."""
    task, case = found.task, found.task.case
    model, cost = task.model, task.cost
    states = [str(n) for n in getattr(model, "states", ())]
    said = case.section.data.get("model")
    return {
        "glance": _glance(found), "model": model, "states": states, "is_function": isinstance(model, FunctionModel),
        "kind": "steady" if "Steady" in type(model).__name__ else str(
            getattr(getattr(model, "definition", None), "kind", "")),
        "outputs": [str(n) for n in getattr(model, "var_names", ()) if str(n) not in states],
        "times": np.asarray(getattr(model, "times", []), dtype=float),
        "cost": cost, "cost_kind": type(cost).__name__, "transform": getattr(cost, "transform", None),
        "weight": getattr(cost, "weight", "none"), "has_errors": getattr(cost, "err", None) is not None,
        "has_noise": bool(getattr(cost, "measurement_noise", None)),
        "equations": _equations(said), "python": said.get("python") if isinstance(said, Mapping) else None,
        "n": len(case.fitted), "fixed": len(case.parameters) - len(case.fitted), "scale": list(task.scale),
        "parameters": _parameters(case.parameters), "description": paragraphs(case.description),
        "natural_ends": [n for n, p in case.parameters.items() if p.fitted and not p.lower > -math.inf
                         and getattr(cost, "lower", {}).get(n) == 0],
    }  # fmt: skip


def _glance(found: Findings) -> Table:
    rows = []
    asked: Mapping[str, Any] = found.record.get("asked") or {key: {} for key in found.results}
    for name in asked:
        step = found.step(name)
        state = str(step.get("state", "done"))
        has_failed = state in ("failed", "interrupted")
        link = name if name in found.results or has_failed else ""
        said = str(step.get("verdict") or step.get("error") or "")
        purpose = STEPS[name].purpose if name in STEPS else ""
        rows.append(
            (TableCell(name, link=link), TableCell(purpose), TableCell(state, tone="bad" * has_failed), TableCell(said))
        )
    heads = (("step", False), ("what it is for", False), ("state", False), ("what came of it", False))
    return Table("The steps, and what came of each", heads, tuple(rows))


def _equations(section: Any) -> str:
    text = section.get("equations") if isinstance(section, Mapping) else None
    if not isinstance(text, str):
        return ""
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    rest = [f"… {len(lines) - _MOST_LINES} more lines stand in the file"] if len(lines) > _MOST_LINES else []
    return "\n".join([line[indent:] for line in lines[:_MOST_LINES]] + rest)


def _parameters(parameters: Mapping[str, Any]) -> Table:
    rows = [
        {"parameter": p.name, "what it is": p.description, "unit": p.unit, "role": "estimated" if p.fitted else "fixed",
         "start": p.start, "lower": p.lower if abs(p.lower) < math.inf else math.nan,
         "upper": p.upper if abs(p.upper) < math.inf else math.nan,
         "scale": p.scale, "prior": _prior(p.prior)}
        for p in parameters.values()
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    empty = [c for c in ("what it is", "unit", "scale", "prior") if c in frame and not frame[c].astype(bool).any()]
    heads = {"start": "start or value", "lower": "lower bound", "upper": "upper bound"}
    return table_of(frame.drop(columns=empty), "Parameters of the file", heads=heads)


def _prior(prior: Mapping[str, Any] | None) -> str:
    if not prior:
        return ""
    rest = [f"{k} = {number(v) if isinstance(v, (int, float)) else v}" for k, v in prior.items() if k != "dist"]
    return f"{prior.get('dist', '')}({', '.join(rest)})"


def data_facts(found: Findings) -> dict[str, Any]:
    """Return what the data are, with the model beside them."""
    data, readings, said = found.task.data, found.readings, found.task.case.content.get("data", {})
    file, facts = str(said.get("file", "")), {"notes": found.task.notes, "has_fit": found.fit is not None}
    if data is not None and len(data.columns):
        facts |= {"rows": len(data), "columns": len(data.columns), "file": file,
                  "data": table_of(data, "Data", file=file or "the data file")}  # fmt: skip
    if readings is not None and len(readings):
        table = table_of(_by_variable(readings, found.x_name), "The readings that are compared with the model")
        facts |= {"readings": table, "entities": readings["entity"].nunique(), "MOST": _MOST_DRAWN_ENTITIES,
                  "curves": not 0 < len(found.panels) <= MOST_SHOWN and (lambda: _curves(found, readings))}  # fmt: skip
    return facts


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


def _curves(found: Findings, readings: pd.DataFrame) -> Pictures | None:
    """Return pictures of the model's curves through the data."""
    cost = found.task.cost
    if found.filtered is not None:
        return found.filtered_pictures()
    if not hasattr(cost, "plot") or getattr(cost, "x", None) is None:
        return None
    curve = f"the model's curve at the {'start values' if found.fit is None else 'best fit'}"
    of_entities = readings["entity"].notna().any()
    panels = list(dict.fromkeys(readings["entity"])) if of_entities else list(cost.comparison.group_names)
    shown, rest = first_few(panels, MOST_PANELS, "residuals.csv" * (found.fit is not None))
    texts = [f"{f'{cost.entity} {n}' if of_entities else n}: readings as points and {curve} over {found.x_name}."
             for n in shown]  # fmt: skip
    each = f" A panel for each {short(str(cost.entity))}." if of_entities else ""
    return drawn(
        lambda axes: cost.plot(found.par, axes=axes, xlabel=found.x_label), texts, panels=len(panels),
        caption=f"Points: readings. Lines: {curve}.{each} {rest}",
    )  # fmt: skip


def warnings_facts(found: Findings, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what a reader must know before anything else."""
    steps = found.record.get("steps") or {}
    states = {name: step.get("state") for name, step in steps.items()}
    demands = list(found.record.get("demands") or [])
    words = {None: "not judged", True: "yes", False: "no"}
    rows = [{"demand": str(d.get("demand")), "wanted": _plain(d.get("wanted")), "found": _plain(d.get("found")),
             "met": words[d.get("met")]} for d in demands]  # fmt: skip
    facts = {
        "warnings": list(dict.fromkeys(map(str, warnings))), "doubts": found.doubts, "n_demands": len(demands),
        "failed": [n for n, state in states.items() if state in ("failed", "interrupted")],
        "left": [n for n, state in states.items() if state == "not run"],
        "met": sum(bool(d.get("met")) for d in demands), "missed": any(d.get("met") is False for d in demands),
        "demands": table_of(pd.DataFrame(rows), "Demands of the file",
                            tone=lambda row, c: "bad" * (c == "met" and row["met"] == "no")),
    }  # fmt: skip
    facts["is_bad"] = any(facts[k] for k in ("warnings", "doubts", "failed", "left"))
    return facts


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, (int, float)) else "–" if value is None else str(value)


def reproduce_facts(found: Findings) -> dict[str, Any]:
    """Return how to make the same again, and what it was made with."""
    record, text = found.record, found.task.case.section.text
    hashes = pd.DataFrame([{"what": str(k), "sha256": str(v)} for k, v in (record.get("hashes") or {}).items()])
    rows = [
        {"step": str(name), "state": f"{step.get('state', 'done')}{', kept' if step.get('kept') else ''}",
         "begun": _time(step.get("started")) or "–",
         "took": duration(step["seconds"]) if isinstance(step.get("seconds"), (int, float)) else "–",
         "files": ", ".join(map(str, step.get("files") or []))}
        for name, step in (record.get("steps") or {}).items()
    ]  # fmt: skip
    return {
        "record": {**dict.fromkeys(_NAMED), **record},
        "begun": _time(record.get("started")), "ended": _time(record.get("ended")),
        "steps": None if not rows else table_of(
            pd.DataFrame(rows), "Steps: when they ran, how long, and what they wrote"),
        "hashes": None if not len(hashes) else table_of(
            hashes, "SHA-256: equal if, and only if, the input is the same"),
        "other": {str(k): str(v) for k, v in record.items() if k not in _NAMED and v not in (None, "", [], {})},
        "text": text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + "\n… (the rest stands in the file)",
    }  # fmt: skip


def _time(value: Any) -> str:
    """Return a time as people write it."""
    return str(value or "").replace("T", " ", 1).replace("+00:00", " UTC")
