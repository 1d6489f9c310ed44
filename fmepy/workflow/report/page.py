"""The report of a calibration: one HTML file that anybody can open, and that asks nothing of a network.

`render` writes it. Words stand in ``templates`` (Jinja2), what they need is made from the results themselves: for the
sections of steps by the steps (`CalibrationStep.facts`), for the others below. All text of a user is escaped by
the templates, pictures are images, and the page allows no script but its own, by its hash. The same results give the
same bytes.

A template has these besides its facts, ``found`` (`Findings`), `table_of`, `correlations`, `alike`, ``inf`` and the
filters ``number percent names many have duration`` (`fmepy.workflow.report.words`):

``show(table)``, ``picture("fit", draw, caption="...")``
    A `Table`; the pictures that ``draw(caption="...")`` returns, or why they could not be drawn. Nothing of None.
``each(names, draw)``
    For ``picture``: a panel for each name, which ``draw(names, axes=axes)`` draws (`drawn_each`).
``bullets(sentences)``, ``{% call ul() %}<li>...</li>{% endcall %}``
    Sentences one below another, where there are any.
``doubt("...")``, ``{% call doubt() %}...{% endcall %}``
    A sentence that speaks against relying on the results: the first section of the page tells it, too.
``fold("summary", tables)``, ``{% call fold("summary") %}...{% endcall %}``
    What is shown when asked for, and in print.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from textwrap import dedent
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from fmepy import __version__
from fmepy.fitting.curves import FittedPanel
from fmepy.fitting.result import ModFit
from fmepy.models.on_grid import cells_of_model, profiles_of
from fmepy.tables.cells import profiles_among
from fmepy.workflow.file.case import SCALE_ENDS
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn_each
from fmepy.workflow.report.tables import Table, alike, correlations, table_of
from fmepy.workflow.report.words import duration, environment, many, names, number, percent, plural, readable
from fmepy.workflow.steps.base import FITS, CalibrationStep, CalibrationTask
from fmepy.workflow.steps.fit import best_facts
from fmepy.workflow.steps.registry import STEPS
from fmepy.workflow.steps.scale import LEVEL, estimates, interval

MOST_SHOWN = 4
"""Panels of the first screen; the others are with the data."""
_MOST_ESTIMATES = 20
_WIDE, _LOW, _SMALL = (5.7, 4.0), (5.7, 2.25), (2.85, 2.25)
_MOST_LINES, _MOST_LETTERS = 400, 100_000
_MOST_DRAWN_ENTITIES = 200


def render(
    task: CalibrationTask,
    results: Mapping[str, Any],
    record: Mapping[str, Any],
    warnings: Sequence[str],
    tables: Mapping[str, pd.DataFrame],
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    task : CalibrationTask
    results : mapping of str to result
        Of the steps that ran, by name.
    record : mapping
        What ``run.json`` holds, see `fmepy.workflow.runner`. Dates and durations, and nothing else of the page, come
        from it.
    warnings : sequence of str
        What a reader must know, the gravest first.
    tables : mapping of str to DataFrame
        What the steps wrote, by the name of the file.

    Returns
    -------
    str
        A whole page; sections ``glance warnings task data``, one of each step that ran, ``reproduce``.
    """
    found = Findings(task, results, record, tables)
    sections = [
        written("task", "The task", "task.html", found, task_facts(found)),
        written("data", "Data and model, side by side", "data.html", found, data_facts(found)),
    ]
    for name, step in STEPS.items():
        if results.get(name) is not None:
            sections.append(_of_step(step, found))
        elif name in found.broken:
            one = written(name, name, "unfinished.html", found, {"step": found.step(name)})
            sections.append(replace(one, is_step=True))
    facts = warnings_facts(found, warnings)  # after the others: they doubt
    n = len(facts["warnings"] or found.broken) + len(found.doubts)
    title = f"Before you rely on this: {many(max(n, 1), 'warning')}" if facts["is_bad"] else "Demands"
    tone = "bad" if facts["is_bad"] else "good"
    first = [written("glance", "At a glance", "glance.html", found, glance_facts(found, facts["warnings"]), tone)]
    if facts["is_bad"] or found.demands:
        first.append(written("warnings", title, "warnings.html", found, facts, tone))
    last = written("reproduce", "How to reproduce this", "reproduce.html", found, reproduce_facts(found))
    js, js_hash = script("report.js")
    page = environment().get_template("page.html").render(
        title=" ".join(task.case.title.split()) or task.case.file.stem,
        sections=[*first, *sections, last], version=__version__, js=Markup(js), js_hash=js_hash,
        date=str(record.get("started") or "")[:10],
    )  # fmt: skip
    return readable(page)


def script(*names: str) -> tuple[str, str]:
    """Return scripts of the templates as one, and its hash, by which a page allows it."""
    js = "".join(files(__package__).joinpath("templates", name).read_text(encoding="utf-8") for name in names)
    return js, "sha256-" + base64.b64encode(hashlib.sha256(js.encode()).digest()).decode("ascii")


def _of_step(step: CalibrationStep, found: Findings) -> ReportSection:
    """Return the section of a step; of one that cannot be told, why; of one that failed, first of all that."""
    name, record, before = step.name, found.step(step.name), list(found.doubts)
    result = found.results[name]
    try:
        facts = {"result": result, "step": record, "tables": found.tables, **step.facts(found, result)}
        section = written(name, step.title or name, step.template, found, facts)
        if found.has_failed(name):
            found.doubts[:] = before  # what a result says of the data and the model that counts as none
            failed = Markup('<p class="bad">{}</p>\n').format(record.get("error"))
            section = replace(section, html=failed + section.html)
    except Exception as error:  # results that were hours in the making are not left untold for one of them
        found.doubts[:] = before
        why = f"This section could not be written: {type(error).__name__}: {error}"
        section = written(name, name, "broken.html", found, {"why": why, "verdict": record.get("verdict")})
    return replace(section, is_step=True)


@dataclass(frozen=True)
class ReportSection:
    """A section of the page; `name` is its id."""

    name: str
    title: str
    html: Markup
    tone: str = ""
    is_step: bool = False


def written(
    name: str, title: str, template: str, found: Findings, facts: Mapping[str, Any], tone: str = ""
) -> ReportSection:
    """Return a section; `template` is a file of templates or the text of one, else that of its name or any step's."""
    one = environment()
    is_text = template and not template.endswith(".html")
    words_of = one.from_string(template) if is_text else one.select_template([template or f"{name}.html", "step.html"])

    def doubt(sentence: str = "", when: bool = True, caller: Callable[[], str] | None = None) -> str:
        if when:
            found.doubts.append((name, sentence if caller is None else caller()))
        return "" if caller is None else caller()

    return ReportSection(name, title, Markup(words_of.render(**_MAKERS, doubt=doubt, found=found, **facts)), tone)


def _picture(what: str, draw: Callable[..., Any] | Any, **words: Any) -> str:
    """Return what `draw` draws with these words, or why it could not be drawn: no picture is worth a report."""
    try:
        blocks: Any = environment().get_template("blocks.html").module
        return Markup(blocks.show(draw and draw(**words)))
    except Exception as error:
        return Markup('<p class="small">The picture of the {} could not be drawn: {}</p>').format(what, error)


_MAKERS = {
    "picture": _picture, "each": partial(partial, drawn_each),
    "table_of": table_of, "correlations": correlations, "alike": alike,
}  # fmt: skip


# --- what the sections on no step need: the first screen, task, data with the model beside them, how to do it again


def glance_facts(found: Findings, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what the first screen shows."""
    fit = found.fit
    best = None if fit is None else best_facts(found, "fit")
    variables = best["agreement"]["variables"] if best and best["agreement"] else []
    told = [f"{percent(max(v['explained'], 0.0))} of {v['name']}" for v in variables if v["is_told"]]
    panels = found.panels[:MOST_SHOWN]
    draw = partial(_fitted, found, panels) if panels else None
    if fit is not None and found.numbered is not None:
        draw = partial(_over_time, found, MOST_SHOWN, size=_SMALL)
    return {
        "counts": len(warnings) + len(found.doubts), "best": best, "explained": names(told, 4) if told else "",
        "estimates": None if fit is None else _estimates(found, fit),
        "panels": panels, "MOST_SHOWN": MOST_SHOWN, "has_band": any(p.curves["upper"].notna().any() for p in panels),
        "curves": draw, "variables": variables,
    }  # fmt: skip


def _estimates(found: Findings, fit: ModFit) -> Table | None:
    """Return a line for each estimate: by profile likelihood where there is one of the level, else by curvature."""
    shown = estimates(found.task, fit)[["parameter", "estimate"]]
    ends = interval(found.task, fit).set_axis(shown["parameter"], axis=0)
    profiles, by_profile = found.tables.get("intervals.csv"), False
    if profiles is not None and "profile" in found.results and not found.has_failed("profile"):
        rows = profiles[profiles["level"] == LEVEL].set_index("parameter")[["lower", "upper"]]
        rows = rows.loc[np.isfinite(rows).all(axis=1) & rows.index.isin(ends.index)]
        ends.loc[rows.index, ["lower", "upper"]] = rows
        by_profile = bool(len(rows))
    both = zip(ends["lower"], ends["upper"], strict=True)
    shown[f"{100 * LEVEL:g} % interval"] = [f"{number(a, 3)} to {number(b, 3)}" if a == a else "–" for a, b in both]
    found.add_units(shown)
    caption = "Estimates" + ", with intervals by profile likelihood where there are profiles" * by_profile
    return table_of(shown, caption, file="estimates.csv", most=_MOST_ESTIMATES)


def _fitted(found: Findings, panels: Sequence[FittedPanel], **words: Any) -> Pictures:
    """Return the data with the fitted curves and their bands, a panel a variable or an entity."""
    from fmepy.plotting.fits import draw_fitted

    size = {1: _WIDE, 2: _LOW}.get(len(panels), _SMALL)

    def draw(_: Sequence[str], axes: Any) -> None:
        for ax, panel in zip(axes, panels, strict=True):
            draw_fitted(ax, panel)
            if panel.quantity:
                if panel is panels[0]:
                    ax.legend(fontsize="small", frameon=False)
                continue
            found.label_x(ax)

    titles = [p.title or p.quantity or str(p.curves["var"].iloc[0]) for p in panels]
    return replace(drawn_each(titles, draw, size=size, **words), is_wide=len(panels) <= 2)


def _over_time(found: Findings, most: int | None = None, **words: Any) -> Pictures:
    """Return readings and predictions over time of a model that numbers its readings, a panel an observable."""
    names = list(dict.fromkeys(found.numbered["observable"]))[:most] if found.numbered is not None else []
    return drawn_each(names, partial(found.task.model.plot_readings, found.par), **words)


def task_facts(found: Findings) -> dict[str, Any]:
    """Return the facts of the section on the task."""
    case, model, cost = found.task.case, found.task.model, found.task.cost
    definition, profiles = getattr(model, "definition", None), profiles_of(model)
    return {
        "glance": _glance(found), "profiles": [] if profiles is None else list(profiles.species),
        "variables": list(profiles_among(getattr(model, "var_names", ()), cells_of_model(model))),
        "cells": 0 if profiles is None else len(profiles.grid), "parameters": _parameters(case.parameters),
        "kind": "steady" if "Steady" in type(model).__name__ else str(getattr(definition, "kind", "")),
        "equations": _equations(case.content["model"].get("equations", "")),
        "natural_ends": [n for n, p in case.parameters.items() if p.fitted and not p.lower > -math.inf
                         and getattr(cost, "lower", {}).get(n) == 0],
    }  # fmt: skip


def _glance(found: Findings) -> Table | None:
    asked: Mapping[str, Any] = found.record.get("asked") or {key: {} for key in found.results}
    rows = []
    for name in asked:
        step = found.step(name)
        rows.append({
            "step": name, "what it is for": STEPS[name].purpose if name in STEPS else "",
            "state": step.get("state", "done"), "result": step.get("verdict") or step.get("error") or "",
        })  # fmt: skip
    return table_of(
        pd.DataFrame(rows), "The steps and their results", links={*found.results, *found.broken},
        tone=lambda row, column: "bad" * (column == "state" and row["step"] in found.broken),
    )  # fmt: skip


def _equations(text: str) -> str:
    lines = dedent(text.strip("\n")).splitlines()
    rest = [f"… {len(lines) - _MOST_LINES} more lines are in the file"] if len(lines) > _MOST_LINES else []
    return "\n".join([line.rstrip() for line in lines[:_MOST_LINES]] + rest)


def _parameters(parameters: Mapping[str, Any]) -> Table | None:
    rows = [
        {"parameter": p.name, "what it is": p.description, "unit": p.unit, "role": "estimated" if p.fitted else "fixed",
         "start": p.start, "lower": max(p.lower, SCALE_ENDS[p.scale][0]), "upper": min(p.upper, SCALE_ENDS[p.scale][1]),
         "scale": p.scale, "prior": _prior(p.prior)}
        for p in parameters.values()
    ]  # fmt: skip
    frame = pd.DataFrame(rows).replace([math.inf, -math.inf], math.nan)
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
    readings, file = found.readings, str(found.task.case.content.get("data", {}).get("file", ""))
    if readings is None or not len(readings):
        return {"file": file}
    readings = found.over_time(readings)
    return {
        "file": file, "readings": _by_variable(found, readings), "MOST": _MOST_DRAWN_ENTITIES,
        "entities": readings["entity"].nunique(), "by_depth": "depth" in readings,
        "is_drawn": not 0 < found.n_panels <= MOST_SHOWN, "curves": _curves(found, readings),
    }  # fmt: skip


def _by_variable(found: Findings, readings: pd.DataFrame) -> pd.DataFrame:
    rows, ends = [], [f"{found.x_name} from", f"{found.x_name} to"]
    for name, own in readings.groupby("name", sort=False):
        row = {"variable": str(name), "readings": len(own), "beyond a limit": int((own["limit"] != 0).sum())}
        if own["entity"].notna().any():
            row[plural(found.entity_name)] = own["entity"].nunique()
        row |= dict(zip(ends, (own["x"].min(), own["x"].max()), strict=True))
        row |= {"depth from": own["depth"].min(), "depth to": own["depth"].max()} if "depth" in own else {}
        row |= {"smallest": own["obs"].min(), "median": own["obs"].median(), "largest": own["obs"].max()}
        rows.append(row)
    frame = found.with_dates(pd.DataFrame(rows), *ends)
    return frame if frame["beyond a limit"].any() else frame.drop(columns="beyond a limit")


def _curves(found: Findings, readings: pd.DataFrame) -> Callable[..., Pictures] | None:
    """Return what draws the model's curves through the data, a panel an entity or a variable."""
    cost = found.task.cost
    if found.numbered is not None:
        return partial(_over_time, found)
    if not hasattr(cost, "plot") or getattr(cost, "x", None) is None:
        return None
    of_entities = readings["entity"].notna().any()
    panels = list(dict.fromkeys(readings["entity"])) if of_entities else list(cost.comparison.group_names)
    labels = {} if "depth" in readings else {"xlabel": found.x_label}
    return partial(drawn_each, panels, lambda _, axes: cost.plot(found.par, axes=axes, **labels), panels=len(panels))


def warnings_facts(found: Findings, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what a reader must know before anything else."""
    met = {None: "not judged", True: "yes", False: "no"}
    rows = [
        {"demand": d["demand"], "wanted": _plain(d["wanted"]), "found": _plain(d["found"]), "met": met[d["met"]]}
        for d in found.demands
    ]
    ends = [f"{name}: {found.results[name].message}" for name in FITS if name in found.results]
    fit = found.fit  # the section says what the message of a fit that counts does
    told = ends if fit is not None and fit.converged and not fit.failures else []
    warnings = [w for w in dict.fromkeys(map(str, warnings)) if w not in told]
    return {
        "warnings": warnings,
        "is_bad": any((warnings, found.doubts, found.broken, found.left)),
        "demands": table_of(pd.DataFrame(rows), "Demands of the file",
                            tone=lambda row, c: "bad" * (c == "met" and row["met"] == "no")),
    }  # fmt: skip


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, (int, float)) else "–" if value is None else str(value)


def reproduce_facts(found: Findings) -> dict[str, Any]:
    """Return how to make the same again, and what it was made with."""
    record, text = found.record, found.task.case.section.text
    rows = [
        {"step": name, "state": step["state"] + ", kept" * step["kept"], "started": _time(step["started"]) or "–",
         "took": duration(step["seconds"]), "files": ", ".join(step["files"])}
        for name, step in found.steps.items()
    ]  # fmt: skip
    return {
        "record": record, "begun": _time(record["started"]), "ended": _time(record["ended"]),
        "steps": table_of(pd.DataFrame(rows), "Steps: when they ran, how long, and what they wrote"),
        "text": text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + "\n… (the rest is in the file)",
    }  # fmt: skip


def _time(value: str | None) -> str:
    """Return a time as people write it."""
    return (value or "").replace("T", " ", 1).replace("+00:00", " UTC")
