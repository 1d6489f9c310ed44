"""The report of a calibration: one HTML file that anybody can open, and that asks nothing of a network.

`render` writes it. Words stand in ``templates`` (Jinja2), what they need is made from the results themselves: for the
sections of steps by the steps (`CalibrationStep.facts`), for the others in `overview`. All text of a user is escaped by
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from typing import Any

import pandas as pd
from markupsafe import Markup

from fmepy import __version__
from fmepy.workflow.report import overview, words
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import drawn_each
from fmepy.workflow.report.tables import alike, correlations, table_of
from fmepy.workflow.report.words import environment
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask
from fmepy.workflow.steps.registry import STEPS


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
        written("task", "The task", "task.html", found, overview.task_facts(found)),
        written("data", "Data and model, side by side", "data.html", found, overview.data_facts(found)),
    ]
    for name, step in STEPS.items():
        if results.get(name) is not None:
            sections.append(_of_step(step, found))
        elif name in found.broken:
            one = written(name, name, "unfinished.html", found, {"step": found.step(name)})
            sections.append(replace(one, is_step=True))
    facts = overview.warnings_facts(found, warnings)  # after the others: they doubt
    n = len(facts["warnings"] or found.broken) + len(found.doubts)
    title = f"Before you rely on this: {words.many(max(n, 1), 'warning')}" if facts["is_bad"] else "Demands"
    tone = "bad" if facts["is_bad"] else "good"
    first = [
        written("glance", "At a glance", "glance.html", found, overview.glance_facts(found, facts["warnings"]), tone)
    ]
    if facts["is_bad"] or found.demands:
        first.append(written("warnings", title, "warnings.html", found, facts, tone))
    last = written("reproduce", "How to reproduce this", "reproduce.html", found, overview.reproduce_facts(found))
    js, js_hash = script("report.js")
    page = environment().get_template("page.html").render(
        title=" ".join(task.case.title.split()) or task.case.file.stem,
        sections=[*first, *sections, last], version=__version__, js=Markup(js), js_hash=js_hash,
        date=str(record.get("started") or "")[:10],
    )  # fmt: skip
    return words.readable(page)


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
        shown: str = blocks.show(draw and draw(**words))
        return shown
    except Exception as error:
        return Markup('<p class="small">The picture of the {} could not be drawn: {}</p>').format(what, error)


_MAKERS = {
    "picture": _picture, "each": partial(partial, drawn_each),
    "table_of": table_of, "correlations": correlations, "alike": alike,
}  # fmt: skip
