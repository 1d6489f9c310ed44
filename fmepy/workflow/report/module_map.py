"""The map of a system of modules as a page: who computes and who reads a variable, its equation, loops, and a search.

One HTML file, which asks nothing of a network, see `fmepy.workflow.report.page`; words stand in ``templates/map.html``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from fmepy import __version__
from fmepy.dmi.feedback import feedback_loops, values_along
from fmepy.dmi.modules import Module
from fmepy.dmi.statements import ModuleStatement
from fmepy.dmi.variables import ModuleSystem, Variable, dims_text
from fmepy.errors import FmepyError
from fmepy.language.source import Source
from fmepy.language.tree import logical_lines
from fmepy.workflow.report import words
from fmepy.workflow.report.page import script
from fmepy.workflow.report.pictures import drawn

if TYPE_CHECKING:
    from fmepy.dmi.model import ModularModel

MOST_LOOPS = 300
_MOST_DRAWN = 40  # modules of a map that can still be read as a picture
_MOST_VALUES = 6  # elements of an array that are shown


def map_page(model: ModularModel, title: str) -> str:
    """Return the page of a system as HTML: its modules, its variables, its feedback loops.

    Values are those of the last row of a run; where the model does not run, the page says why.
    """
    system, picture = model.system, None
    try:
        last, why = values_along(model, system.variables, [len(model.times) - 1]), ""
    except FmepyError as error:
        last, why = {}, str(error)
    if len(system.modules) <= _MOST_DRAWN:
        text = "modules as boxes, variables that link them as arrows"
        picture = drawn(lambda axes: model.plot_map(ax=axes[0]), [text], size=(8.6, 7.4))
    js, js_hash = script("report.js", "map.js")
    page = words.environment().get_template("map.html").render(
        title=title, version=__version__, js=Markup(js), js_hash=js_hash, picture=picture, why=why,
        end=words.number(float(model.times[-1])), modules=_modules(system), variables=_variables(model, last),
        loops=feedback_loops(model, MOST_LOOPS).to_dict("records"), diagnostics=model.diagnostics.to_dict("records"),
    )  # fmt: skip
    return words.readable(page)


def _modules(system: ModuleSystem) -> list[dict[str, Any]]:
    links = system.links
    return [
        {
            "name": m.name, "file": Path(m.file).name,
            "computes": [v.name for v in system.variables.values() if m.name in v.assigned_in],
            "reads_from": {a: names for (a, b), names in links.items() if b == m.name},
            "gives_to": {b: names for (a, b), names in links.items() if a == m.name},
            "from_data": [v.name for v in system.variables.values() if m.name in v.read_in and v.exogenous],
        }
        for m in system.modules
    ]  # fmt: skip


def _variables(model: ModularModel, last: dict[str, Any]) -> list[dict[str, Any]]:
    system, items = model.system, model.data.items
    equations, readers, reads = _equations(system)
    return [
        {
            "name": v.name, "dims": dims_text(v.shape), "kind": _kind(v, model), "value": _value(v, last),
            "unit": model.units.get(v.name, ""), "source": Path(items["source"].get(v.name, "")).name,
            "equations": equations.get(v.name, []), "reads": reads.get(v.name, {}), "readers": readers.get(v.name, {}),
        }
        for v in system.variables.values()
    ]  # fmt: skip


def _kind(v: Variable, model: ModularModel) -> str:
    if v.endogenous:
        return "level" if v.level else "computed"
    return "series" if v.name in model.inputs.series else "constant"


def _value(v: Variable, last: dict[str, Any]) -> str:
    shown = [words.number(float(last[e][0])) for e in v.elements[:_MOST_VALUES] if e in last]
    more = ", …" * (len(v.elements) > len(shown) > 0)
    return f"[{', '.join(shown)}{more}]" if v.shape and shown else "".join(shown)


def _equations(system: ModuleSystem) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return by variable its equations with their places, who reads it, and what it reads."""
    texts = {
        m.name: {row + 1: "\n".join(code).strip() for row, code in logical_lines(Source.of(m.text + "\n", m.name))}
        for m in system.modules
        if isinstance(m, Module)
    }
    equations: dict[str, list[dict[str, Any]]] = {}
    readers: dict[str, dict[str, None]] = {}
    reads: dict[str, dict[str, None]] = {}
    for s in system.statements:
        text = texts[s.module].get(s.line, "") if isinstance(s, ModuleStatement) else "a Python function"
        file = Path(system.module(s.module).file).name
        place = (f"{file}:{s.line}" if s.line else file) if file else f"line {s.line}" if s.line else ""
        for target in dict.fromkeys(t.name for t in s.targets):
            equations.setdefault(target, []).append({"text": text, "place": place, "module": s.module})
            for r in s.reads:
                readers.setdefault(r.name, {})[target] = None
                reads.setdefault(target, {})[r.name] = None
    return equations, readers, reads
