"""Sections of the page: the words of a template, with the facts of a step.

A template has these besides its facts, ``found`` (`Findings`), `table_of`, ``inf`` and the filters ``number percent
names many have duration`` (`fmepy.workflow.report.words`):

``show(table)``, ``picture("the fit", draw)``
    A `Table`; pictures, or why they could not be drawn. Nothing of None.
``bullets(sentences)``, ``{% call ul() %}<li>...</li>{% endcall %}``
    Sentences one below another, where there are any.
``doubt("...")``, ``{% call doubt() %}...{% endcall %}``
    A sentence that speaks against relying on the results: the first section of the page tells it, too.
``fold("summary", tables)``, ``{% call fold("summary") %}...{% endcall %}``
    What is shown when asked for, and in print.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fmepy.workflow.report import words
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.tables import Table, table_of

_MOST_SENTENCES = 100


@dataclass(frozen=True)
class ReportSection:
    """A section of the page; `name` is its id."""

    name: str
    title: str
    html: Markup
    tone: str = ""
    is_step: bool = False


@cache
def environment() -> Environment:
    """Return what renders templates: everything is escaped but what they say themselves."""
    made = Environment(
        loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    for name in ("number", "percent", "names", "many", "have", "duration"):
        made.filters[name] = getattr(words, name)
    made.globals.update(
        show=_show, picture=_picture, bullets=_bullets, ul=_ul, fold=_fold, table_of=table_of, inf=math.inf
    )
    return made


def written(
    name: str, title: str, template: str, found: Findings, facts: Mapping[str, Any], tone: str = ""
) -> ReportSection:
    """Return a section; `template` is a file of templates, or the text of one."""
    one = environment()
    words = one.get_template(template) if template.endswith(".html") else one.from_string(template)

    def doubt(sentence: str = "", when: bool = True, caller: Callable[[], str] | None = None) -> str:
        if when:
            found.doubts.append((name, sentence if caller is None else caller()))
        return "" if caller is None else caller()

    return ReportSection(name, title, Markup(words.render(doubt=doubt, found=found, **facts)), tone)


def _show(block: Any) -> str:
    blocks: Any = environment().get_template("blocks.html").module
    if block is None or block is False:
        return ""
    return Markup(blocks.table(block) if isinstance(block, Table) else blocks.pictures(block))


def _picture(what: str, draw: Callable[[], Any] | Any) -> str:
    """Return what `draw` draws, or why it could not be drawn: no picture is worth a report."""
    try:
        return _show(draw and draw())
    except Exception as error:
        return Markup('<p class="small">The picture of the {} could not be drawn: {}</p>').format(what, error)


def _bullets(sentences: Iterable[str], tone: str = "") -> str:
    """Return sentences one below another, of very many the first and how many there are."""
    told = [s for s in sentences if s]
    if len(told) > _MOST_SENTENCES:
        told = [*told[:_MOST_SENTENCES], f"and {len(told) - _MOST_SENTENCES} more, all of them in run.json"]
    return _ul(tone, lambda: Markup("\n").join(Markup("<li>{}</li>").format(s) for s in told))


def _ul(tone: str = "", caller: Callable[[], str] = str) -> str:
    inside = Markup(caller())
    return Markup('<ul class="sentences{}">\n{}\n</ul>').format(tone and f" {tone}", inside) if inside.strip() else ""


def _fold(summary: str, tables: Sequence[Table | None] = (), caller: Callable[[], str] = str) -> str:
    inside = Markup(caller()) + Markup("").join(map(_show, tables))
    return Markup("<details><summary>{}</summary>\n{}</details>").format(summary, inside) if inside.strip() else ""
