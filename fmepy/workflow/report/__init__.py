"""The report of a calibration: one HTML file that anybody can open, and that asks nothing of a network.

`render` writes it. What stands in it is made of blocks (`page`), section by section, in plain sentences and tables from
the results themselves; `report.html` lays it out, with the style and the script beside it. Pictures are inline SVG
(`pictures`). Everything from a user's file is escaped by the template or by the writer of the SVG, and the page allows
no script but its own, by its hash. The same results give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fmepy import __version__
from fmepy.workflow.report.asked import data_section, task_section
from fmepy.workflow.report.filtered import filter_section
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.fitted import fit_section, multistart_section
from fmepy.workflow.report.identified import profile_section, screen_section
from fmepy.workflow.report.page import Draft, Section, Text
from fmepy.workflow.report.reproduce import reproduce_section, unfinished_section, warnings_section
from fmepy.workflow.report.sampled import ranges_section, sample_section, scenarios_section
from fmepy.workflow.report.words import paragraphs, readable

if TYPE_CHECKING:
    import pandas as pd

    from fmepy.workflow.file.prepared import Task

_SECTIONS: dict[str, Callable[[Findings, Any], Section]] = {
    "screen": screen_section, "fit": fit_section, "multistart": multistart_section, "profile": profile_section,
    "sample": sample_section, "ranges": ranges_section, "scenarios": scenarios_section, "filter": filter_section,
}  # fmt: skip


def render(
    task: Task,
    results: Mapping[str, Any],
    record: Mapping[str, Any],
    warnings: Sequence[str],
    tables: Mapping[str, pd.DataFrame],
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    task : Task
    results : mapping of str to result
        Of the steps that ran, by name.
    record : mapping
        What ``run.json`` holds, see `fmepy.workflow.record`. Dates and durations, and nothing else of the page, come
        from it.
    warnings : sequence of str
        What a reader must know, the gravest first.
    tables : mapping of str to DataFrame
        What the steps wrote, by the name of the file.

    Returns
    -------
    str
        A whole page; sections ``warnings task data``, one of each step that ran, ``reproduce``.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    found = Findings(task, results, record, tables)
    sections = [task_section(found), data_section(found)]
    for name, make in _SECTIONS.items():
        if results.get(name) is not None:
            sections.append(_made(name, make, found))
        elif found.step(name).get("state") in ("failed", "interrupted"):
            sections.append(unfinished_section(name, name, found.step(name)))
    sections = [
        warnings_section(found, warnings),
        *sections,
        reproduce_section(found),
    ]  # it tells what the others found
    css, js = _own("report.css"), _own("report.js")
    page = Environment(autoescape=True, undefined=StrictUndefined).from_string(_own("report.html"))
    case = task.case
    title = " ".join(case.title.split()) or case.file.stem
    written = page.render(
        title=title, description=paragraphs(case.description), sections=sections,
        version=__version__, steps=tuple(_SECTIONS), css=Markup(css), js=Markup(js), js_hash=_hash(js),
        date=str(record.get("started") or "")[:10],
    )  # fmt: skip
    return readable(written)


def _made(name: str, make: Callable[[Findings, Any], Section], found: Findings) -> Section:
    """Return the section of a step; of one that cannot be told, why; of one that failed, first of all that."""
    try:
        before = list(found.doubts)
        section = make(found, found.results[name])
        if not found.has_failed(name):
            return section
        found.doubts[:] = before  # what a result says of the data and the model that counts as none
        failed = Text(str(found.step(name).get("error")), "bad")
        return replace(section, blocks=(failed, *section.blocks))
    except Exception as error:  # results that were hours in the making are not left untold for one of them
        draft = Draft()
        told = f"This section could not be written: {type(error).__name__}: {error}"
        draft.say(told, tone="bad")
        draft.say(str(found.step(name).get("verdict") or ""))
        found.doubt(name, told)
        return Section(name, name, tuple(draft.blocks))


def _own(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """Return the hash by which a page allows its script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
