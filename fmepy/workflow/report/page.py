"""The report of a calibration: one HTML file that anybody can open, and that asks nothing of a network.

`render` writes it. Words stand in ``templates`` (Jinja2), what they need is made from the results themselves: for the
sections of steps by the steps (`CalibrationStep.facts`), for the others below. All text of a user is escaped by
the templates, pictures are images, and the page allows no script but its own, by its hash. The same results give the
same bytes.

A template has these besides its facts, ``findings`` (`Findings`; also as ``found``), `table_of`, `correlations`,
`alike`, ``inf`` and the filters ``number percent names many have duration`` (`fmepy.workflow.report.words`):

``show(table)``, ``picture("fit", draw, caption="...")``
    A `Table`; the pictures that ``draw(caption="...")`` returns, or why they could not be drawn. Nothing of None.
``each(names, draw)``
    For ``picture``: a panel for each name, which ``draw(names, axes=axes)`` draws (`drawn_each`).
``bullets(sentences)``, ``{% call ul() %}<li>...</li>{% endcall %}``
    Sentences one below another, where there are any.
``doubt("...")``, ``{% call doubt() %}...{% endcall %}``
    A sentence that speaks against relying on the results: the first section of the page repeats it.
``fold("summary", tables)``, ``{% call fold("summary") %}...{% endcall %}``
    Content that is shown on a click, and in print.
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
    findings = Findings(task, results, record, tables)
    sections = [
        make_section("task", "The task", "task.html", findings, task_facts(findings)),
        make_section("data", "Data and model, side by side", "data.html", findings, data_facts(findings)),
    ]
    for name, step in STEPS.items():
        if results.get(name) is not None:
            sections.append(_step_section(step, findings))
        elif name in findings.broken:
            one = make_section(name, name, "unfinished.html", findings, {"step": findings.step(name)})
            sections.append(replace(one, is_step=True))
    facts = warnings_facts(findings, warnings)  # after the others: they doubt
    n = len(facts["warnings"] or findings.broken) + len(findings.doubts)
    title = f"Before you rely on this: {many(max(n, 1), 'warning')}" if facts["is_bad"] else "Demands"
    tone = "bad" if facts["is_bad"] else "good"
    first = [
        make_section("glance", "At a glance", "glance.html", findings, glance_facts(findings, facts["warnings"]), tone)
    ]
    if facts["is_bad"] or findings.demands:
        first.append(make_section("warnings", title, "warnings.html", findings, facts, tone))
    last = make_section("reproduce", "How to reproduce this", "reproduce.html", findings, reproduce_facts(findings))
    js, js_hash = script("report.js")
    page = environment().get_template("page.html").render(
        title=" ".join(task.case.title.split()) or task.case.file.stem,
        sections=[*first, *sections, last], version=__version__, js=Markup(js), js_hash=js_hash,
        date=str(record.get("started") or "")[:10],
    )  # fmt: skip
    return readable(page)


def script(*names: str) -> tuple[str, str]:
    """Return scripts of the templates joined, and the hash by which a page allows them."""
    js = "".join(files(__package__).joinpath("templates", name).read_text(encoding="utf-8") for name in names)
    return js, "sha256-" + base64.b64encode(hashlib.sha256(js.encode()).digest()).decode("ascii")


def _step_section(step: CalibrationStep, findings: Findings) -> ReportSection:
    """Return the section of a step; say first if it failed, or why the section could not be written."""
    name, record, before = step.name, findings.step(step.name), list(findings.doubts)
    result = findings.results[name]
    try:
        facts = {"result": result, "step": record, "tables": findings.tables, **step.facts(findings, result)}
        section = make_section(name, step.title or name, step.template, findings, facts)
        if findings.has_failed(name):
            findings.doubts[:] = before  # what a result says of the data and the model that counts as none
            failed = Markup('<p class="bad">{}</p>\n').format(record.get("error"))
            section = replace(section, html=failed + section.html)
    except Exception as error:  # results that were hours in the making are not left untold for one of them
        findings.doubts[:] = before
        why = f"This section could not be written: {type(error).__name__}: {error}"
        section = make_section(name, name, "broken.html", findings, {"why": why, "verdict": record.get("verdict")})
    return replace(section, is_step=True)


@dataclass(frozen=True)
class ReportSection:
    """A section of the page; `name` is its id."""

    name: str
    title: str
    html: Markup
    tone: str = ""
    is_step: bool = False


def make_section(
    name: str, title: str, template: str, findings: Findings, facts: Mapping[str, Any], tone: str = ""
) -> ReportSection:
    """Return a section; `template` is a file of templates or the text of one, else that of its name or any step's."""
    jinja, is_text = environment(), template and not template.endswith(".html")
    text = jinja.from_string(template) if is_text else jinja.select_template([template or f"{name}.html", "step.html"])

    def doubt(sentence: str = "", when: bool = True, caller: Callable[[], str] | None = None) -> str:
        if when:
            findings.doubts.append((name, sentence if caller is None else caller()))
        return "" if caller is None else caller()

    html = text.render(**_MAKERS, doubt=doubt, findings=findings, found=findings, **facts)
    return ReportSection(name, title, Markup(html), tone)


def _picture(what: str, draw: Callable[..., Any] | Any, **words: Any) -> str:
    """Return the picture, or a sentence on why it could not be drawn, so that the report is written."""
    try:
        blocks: Any = environment().get_template("blocks.html").module
        return Markup(blocks.show(draw and draw(**words)))
    except Exception as error:
        return Markup('<p class="small">The picture of the {} could not be drawn: {}</p>').format(what, error)


_MAKERS = {
    "picture": _picture, "each": partial(partial, drawn_each),
    "table_of": table_of, "correlations": correlations, "alike": alike,
}  # fmt: skip


# --- facts of the sections that belong to no step: first screen, task, data and model, warnings, how to reproduce it


def glance_facts(findings: Findings, warnings: Sequence[str]) -> dict[str, Any]:
    """Return what the first screen shows."""
    fit = findings.fit
    best = None if fit is None else best_facts(findings, "fit")
    variables = best["agreement"]["variables"] if best and best["agreement"] else []
    explained = [f"{percent(max(v['explained'], 0.0))} of {v['name']}" for v in variables if v["is_told"]]
    panels = findings.panels[:MOST_SHOWN]
    draw = partial(_fitted, findings, panels) if panels else None
    if fit is not None and findings.numbered is not None:
        draw = partial(_over_time, findings, MOST_SHOWN, size=_SMALL)
    return {
        "counts": len(warnings) + len(findings.doubts), "best": best, "variables": variables,
        "explained": names(explained, 4) if explained else "",
        "estimates": None if fit is None else _estimates(findings, fit),
        "panels": panels, "MOST_SHOWN": MOST_SHOWN, "has_band": any(p.curves["upper"].notna().any() for p in panels),
        "curves": draw,
    }  # fmt: skip


def _estimates(findings: Findings, fit: ModFit) -> Table | None:
    """Return estimates with intervals: by profile likelihood where there is one of this level, else by curvature."""
    shown = estimates(findings.task, fit)[["parameter", "estimate"]]
    ends = interval(findings.task, fit).set_axis(shown["parameter"], axis=0)
    profiles, by_profile = findings.tables.get("intervals.csv"), False
    if profiles is not None and "profile" in findings.results and not findings.has_failed("profile"):
        rows = profiles[profiles["level"] == LEVEL].set_index("parameter")[["lower", "upper"]]
        rows = rows.loc[np.isfinite(rows).all(axis=1) & rows.index.isin(ends.index)]
        ends.loc[rows.index, ["lower", "upper"]] = rows
        by_profile = bool(len(rows))
    both = zip(ends["lower"], ends["upper"], strict=True)
    shown[f"{100 * LEVEL:g} % interval"] = [f"{number(a, 3)} to {number(b, 3)}" if a == a else "–" for a, b in both]
    findings.add_units(shown)
    caption = "Estimates" + ", with intervals by profile likelihood where there are profiles" * by_profile
    return table_of(shown, caption, file="estimates.csv", most=_MOST_ESTIMATES)


def _fitted(findings: Findings, panels: Sequence[FittedPanel], **words: Any) -> Pictures:
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
            findings.label_x(ax)

    titles = [p.title or p.quantity or str(p.curves["var"].iloc[0]) for p in panels]
    return replace(drawn_each(titles, draw, size=size, **words), is_wide=len(panels) <= 2)


def _over_time(findings: Findings, most: int | None = None, **words: Any) -> Pictures:
    """Return readings and predictions over time of a model that numbers its readings, a panel an observable."""
    names = list(dict.fromkeys(findings.numbered["observable"]))[:most] if findings.numbered is not None else []
    return drawn_each(names, partial(findings.task.model.plot_readings, findings.par), **words)


def task_facts(findings: Findings) -> dict[str, Any]:
    """Return the facts of the section on the task."""
    case, model, cost = findings.task.case, findings.task.model, findings.task.cost
    definition, profiles = getattr(model, "definition", None), profiles_of(model)
    return {
        "glance": _glance(findings), "profiles": [] if profiles is None else list(profiles.species),
        "variables": list(profiles_among(getattr(model, "var_names", ()), cells_of_model(model))),
        "cells": 0 if profiles is None else len(profiles.grid), "parameters": _parameters(case.parameters),
        "kind": "steady" if "Steady" in type(model).__name__ else str(getattr(definition, "kind", "")),
        "equations": _equations(case.content["model"].get("equations", "")),
        "natural_ends": [n for n, p in case.parameters.items() if p.fitted and not p.lower > -math.inf
                         and getattr(cost, "lower", {}).get(n) == 0],
    }  # fmt: skip


def _glance(findings: Findings) -> Table | None:
    steps: Mapping[str, Any] = findings.record.get("asked") or {key: {} for key in findings.results}
    rows = []
    for name in steps:
        step = findings.step(name)
        rows.append({
            "step": name, "what it is for": STEPS[name].purpose if name in STEPS else "",
            "state": step.get("state", "done"), "result": step.get("verdict") or step.get("error") or "",
        })  # fmt: skip
    return table_of(
        pd.DataFrame(rows), "The steps and their results", links={*findings.results, *findings.broken},
        tone=lambda row, column: "bad" * (column == "state" and row["step"] in findings.broken),
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


def data_facts(findings: Findings) -> dict[str, Any]:
    """Return the facts of the section on data and model."""
    readings, file = findings.readings, str(findings.task.case.content.get("data", {}).get("file", ""))
    if readings is None or not len(readings):
        return {"file": file}
    readings = findings.over_time(readings)
    return {
        "file": file, "readings": _by_variable(findings, readings), "MOST": _MOST_DRAWN_ENTITIES,
        "entities": readings["entity"].nunique(), "by_depth": "depth" in readings,
        "is_drawn": not 0 < findings.n_panels <= MOST_SHOWN, "curves": _curves(findings, readings),
    }  # fmt: skip


def _by_variable(findings: Findings, readings: pd.DataFrame) -> pd.DataFrame:
    rows, ends = [], [f"{findings.x_name} from", f"{findings.x_name} to"]
    for name, own in readings.groupby("name", sort=False):
        row = {"variable": str(name), "readings": len(own), "beyond a limit": int((own["limit"] != 0).sum())}
        if own["entity"].notna().any():
            row[plural(findings.entity_name)] = own["entity"].nunique()
        row |= dict(zip(ends, (own["x"].min(), own["x"].max()), strict=True))
        row |= {"depth from": own["depth"].min(), "depth to": own["depth"].max()} if "depth" in own else {}
        row |= {"smallest": own["obs"].min(), "median": own["obs"].median(), "largest": own["obs"].max()}
        rows.append(row)
    frame = findings.with_dates(pd.DataFrame(rows), *ends)
    return frame if frame["beyond a limit"].any() else frame.drop(columns="beyond a limit")


def _curves(findings: Findings, readings: pd.DataFrame) -> Callable[..., Pictures] | None:
    """Return the function that draws the model's curves with the data, a panel an entity or a variable."""
    cost = findings.task.cost
    if findings.numbered is not None:
        return partial(_over_time, findings)
    if not hasattr(cost, "plot") or getattr(cost, "x", None) is None:
        return None
    of_entities = readings["entity"].notna().any()
    panels = list(dict.fromkeys(readings["entity"])) if of_entities else list(cost.comparison.group_names)
    labels = {} if "depth" in readings else {"xlabel": findings.x_label}
    return partial(drawn_each, panels, lambda _, axes: cost.plot(findings.par, axes=axes, **labels), panels=len(panels))


def warnings_facts(findings: Findings, warnings: Sequence[str]) -> dict[str, Any]:
    """Return the facts of the section on warnings and demands."""
    met = {None: "not judged", True: "yes", False: "no"}
    rows = [
        {"demand": d["demand"], "wanted": d["wanted"], "found": d["found"], "met": met[d["met"]]}
        for d in findings.demands
    ]
    ends = [f"{name}: {findings.results[name].message}" for name in FITS if name in findings.results]
    fit = findings.fit  # the section says what the message of a fit that counts does
    known_messages = ends if fit is not None and fit.converged and not fit.failures else []
    warnings = [w for w in dict.fromkeys(map(str, warnings)) if w not in known_messages]
    return {
        "warnings": warnings,
        "is_bad": any((warnings, findings.doubts, findings.broken, findings.left)),
        "demands": table_of(pd.DataFrame(rows), "Demands of the file",
                            tone=lambda row, c: "bad" * (c == "met" and row["met"] == "no")),
    }  # fmt: skip


def reproduce_facts(findings: Findings) -> dict[str, Any]:
    """Return the facts of the section on reproducing the run."""
    record, text = findings.record, findings.task.case.section.text
    rows = [
        {"step": name, "state": step["state"] + ", kept" * step["kept"], "started": _time(step["started"]) or "–",
         "took": duration(step["seconds"]), "files": ", ".join(step["files"])}
        for name, step in findings.steps.items()
    ]  # fmt: skip
    return {
        "record": record, "begun": _time(record["started"]), "ended": _time(record["ended"]),
        "steps": table_of(pd.DataFrame(rows), "Steps: when they ran, how long, and what they wrote"),
        "text": text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS] + "\n… (the rest is in the file)",
    }  # fmt: skip


def _time(value: str | None) -> str:
    """Return a time as people write it."""
    return (value or "").replace("T", " ", 1).replace("+00:00", " UTC")
