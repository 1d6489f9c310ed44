"""Files of Stella and other XMILE (.xmile, .stmx) -> `ForeignSystem`."""

from __future__ import annotations

import re
from typing import Any

from fmepy.errors import ModelError
from fmepy.exchange.expressions import Expr, Reader, ReadError, called, key_of, name, number, shown, tokens_of
from fmepy.exchange.files import Element, parse_xml
from fmepy.exchange.vensim_mdl import MOST_EQUATIONS
from fmepy.exchange.vensim_system import Equation, ForeignSystem, Macro

MOST_DEPTH = 100
_METHODS = {"": "euler", "euler": "euler", "rk4": "rk4"}
_QUANTITIES = ("stock", "flow", "aux", "gf")
_READ = {
    "eqn", "init_eqn", "inflow", "outflow", "non_negative", "gf", "dimensions", "element", "units", "doc", "range",
    "scale", "format", "display", "xscale", "yscale", "xpts", "ypts",
}  # fmt: skip
_KINDS = {"continuous": "hold", "": "hold", "extrapolate": "extrapolate", "discrete": "step"}
_OPENED = rb"<(stock|flow|aux) name=[^>]*[^/]>"
_UNCLOSED = re.compile(_OPENED + rb"(?:(?!</\1>|<(?:stock|flow|aux) ).)*(?=<(?:stock|flow|aux) )", re.S)


def _parsed(data: bytes, path: str) -> Element:
    """Return the root of a file.

    A stock, flow or auxiliary without an end tag ends where the next one begins, as in other programs.
    """
    try:
        return parse_xml(data, path, MOST_DEPTH)
    except ModelError:
        closed = _UNCLOSED.sub(rb"\g<0></\1>", data)
        if closed == data:
            raise
        return _parsed(closed, path)


def read_xmile(data: bytes, where: str) -> ForeignSystem:
    """Return the contents of a file of XMILE."""
    root = _parsed(data, where)
    system = ForeignSystem(where, "xmile")
    if root.tag != "xmile":
        raise ModelError(f"{where}, line {root.line}: this is <{root.tag}>, and no <xmile>.")
    for dim in root.first("dimensions").all("dim"):
        count = dim.attributes.get("size", "")
        elements = [e.name for e in dim.all("elem")]
        if not elements and count.isdigit() and int(count) <= 10_000:
            elements = [str(i + 1) for i in range(int(count))]
        system.add_range(dim.name, elements)
    behavior = root.first("behavior")
    nonnegative = {e.tag for e in behavior.all("stock", "flow") if e.all("non_negative")}
    reader = _XmileReader(system, {"stock", "flow"} if behavior.all("non_negative") else nonnegative)
    for macro in root.all("macro"):
        reader.macro(macro)
    models = root.all("model")
    for extra in models[1:]:
        system.refuse(extra.line, extra.name, "sub-models are not read; put their variables into the first")
    for model in models[:1]:
        reader.model(model)
    reader.specs(root.first("sim_specs"))
    return system


class _XmileReader:
    """Reads the quantities of models into a system; tags in `non_negative` are nonnegative by default."""

    def __init__(self, system: ForeignSystem, non_negative: set[str]) -> None:
        self.system, self.non_negative = system, non_negative

    def specs(self, specs: Element) -> None:
        """Read the times and the method."""
        values = {w: specs.first(w).text.strip() for w in ("start", "stop", "dt")}
        method = specs.attributes.get("method", "").strip().casefold().split(",")[0]
        self.system.method = _METHODS.get(method, method)
        dt: Any = self._number(values["dt"] or "1", specs)
        if specs.first("dt").attributes.get("reciprocal", "").casefold() == "true" and dt:
            dt = 1 / dt
        save = specs.attributes.get("save_interval") or specs.attributes.get("isee:save_interval") or dt
        controls = {
            "INITIAL TIME": self._number(values["start"] or "0", specs), "TIME STEP": dt,
            "FINAL TIME": self._number(values["stop"] or "100", specs), "SAVEPER": self._number(str(save), specs),
        }  # fmt: skip
        old = {e.key: e for e in self.system.equations}
        for label, value in controls.items():
            eq = old.get(key_of(label))
            if eq is None:
                self.system.equations.append(Equation(label, (), number(value), specs.line))
            elif eq.key != "saveper":
                eq.expr = number(value, eq.line)

    def _number(self, text: str, place: Element) -> float:
        try:
            return float(text)
        except ValueError:
            self.system.refuse(place.line, "", f"{text!r:.40} is no number")
            return 1.0

    def macro(self, element: Element) -> None:
        """Read a macro."""
        label = element.name
        inputs = [key_of(p.text) for p in element.all("parm")]
        own = _XmileReader(ForeignSystem(self.system.where, "xmile"), self.non_negative)
        own.system.problems = self.system.problems
        for v in element.first("variables").all(*_QUANTITIES):
            own.quantity(v)
        output = Equation(shown(label), (), own.expression(element.first("eqn"), label), element.line)
        self.system.macros[key_of(label)] = Macro(shown(label), inputs, [output.key], [*own.system.equations, output])

    def model(self, model: Element) -> None:
        """Read the quantities of a model, and its sectors."""
        for home in (model, model.first("variables")):
            if len(home.children) > MOST_EQUATIONS:
                raise ModelError(f"{self.system.where}: more than {MOST_EQUATIONS} variables; divide the model.")
            for v in home.children:
                if v.tag in _QUANTITIES:
                    self.quantity(v)
                elif v.tag == "module":
                    self.system.refuse(v.line, v.name, "sub-models are not read; put their variables into this one")
                elif v.tag == "group":
                    self._sector(v)
        for view in model.first("views").all("view"):
            for group in view.all("group"):
                self._sector(group)

    def _sector(self, group: Element) -> None:
        members = group.all("entity", "var", "item", *_QUANTITIES)
        keys = [key_of(m.attributes.get("name", m.text)) for m in members]
        if keys:
            self.system.views.setdefault(shown(group.name), []).extend(keys)

    def quantity(self, v: Element) -> None:
        """Read a stock, flow, auxiliary or table."""
        label = shown(v.name.replace("\\n", " "))
        dims = tuple(name(key_of(d.name)) for d in v.first("dimensions").all("dim"))
        parts = v.all("element")
        inside = next((e for e in v.children if e.tag in ("conveyor", "queue", "oven", "leak", "overflow")), None)
        if inside is not None:
            self.system.refuse(inside.line, label, f"a {inside.tag} is not supported; write it as levels and rates")
            return
        others = {e.tag for e in v.children} - _READ
        self.system.ignored += [f"line {v.line}, {label!r}: <{tag}>" for tag in sorted(others) if ":" not in tag]
        for part in parts or [v]:
            subs = tuple(name(key_of(s)) for s in part.attributes.get("subscript", "").split(",")) if parts else dims
            expr = self._value(v, part, label, subs)
            if expr is None:
                continue
            eq = Equation(label, subs, expr, part.line, unit=shown(v.first("units").text))
            eq.comment = shown(v.first("doc").text)
            limits = v.first("range").attributes
            eq.lower, eq.upper = (self._number(limits.get(w, d), v) for w, d in (("min", "-inf"), ("max", "inf")))
            self.system.equations.append(eq)

    def _value(self, v: Element, part: Element, label: str, subs: tuple[Expr, ...]) -> Expr | None:
        """Return the right-hand side of a quantity, or of one element of it."""
        table = part.first("gf") if part.all("gf") else v.first("gf")
        if v.tag == "gf" or (table.children and not part.first("eqn").text.strip()):
            return self._table(v if v.tag == "gf" else table, label)
        expressions = [self.expression(e, label) for e in part.all("eqn") or v.all("eqn") or [part.first("eqn")]]
        begin = [self.expression(e, label) for e in v.all("init_eqn")]
        points = [self._table(table, label)] if table.children else []
        if None in (*expressions, *begin, *points):
            return None
        read = [e for e in (*expressions, *begin, *points) if e is not None]
        expr = read[0] if len(expressions) == 1 else Expr("list", tuple(read[: len(expressions)]), line=part.line)
        expr = called("with_lookup", expr, read[-1], line=expr.line) if points else expr
        expr = called("active_initial", expr, read[len(expressions)], line=expr.line) if begin else expr
        flags = {e.text.strip().casefold() != "false" for e in v.all("non_negative")}
        nonnegative = flags == {True} or (not flags and v.tag in self.non_negative)
        if v.tag == "flow":
            return called("max", expr, number(0)) if nonnegative else expr
        return self._stock(v, expr, nonnegative) if v.tag == "stock" else expr

    def _stock(self, v: Element, start: Expr, nonnegative: bool) -> Expr:
        terms = [number(0), *(name(key_of(e.text), line=e.line) for e in v.all("inflow", "outflow"))]
        signs = ["+" if e.tag == "inflow" else "-" for e in v.all("inflow", "outflow")]
        if signs[:1] == ["+"]:
            terms, signs = terms[1:], signs[1:]
        rate = Expr("chain", tuple(terms), tuple(signs), line=v.line) if signs else terms[0]
        return called("integ_nonnegative" if nonnegative else "integ", rate, start, line=v.line)

    def expression(self, eqn: Element, label: str) -> Expr | None:
        """Return the expression of an equation."""
        try:
            return Reader(tokens_of(eqn.text, "xmile", eqn.line), "xmile").values()
        except ReadError as error:
            self.system.refuse(error.line or eqn.line, label, str(error))
            return None

    def _table(self, gf: Element, label: str) -> Expr | None:
        """Return a graphical function."""
        numbers = {}
        for word in ("xpts", "ypts"):
            e = gf.first(word)
            cells = e.text.split(e.attributes.get("sep") or ",")
            numbers[word] = [self._number(c.strip(), e) for c in cells if c.strip()]
        ys, xs = numbers["ypts"], numbers["xpts"]
        scale = gf.first("xscale").attributes
        if not xs and len(ys) > 1 and scale:
            low, high = (self._number(scale.get(w, ""), gf) for w in ("min", "max"))
            xs = [low + (high - low) * i / (len(ys) - 1) for i in range(len(ys))]
        kind = gf.attributes.get("type", "").strip().casefold()
        if len(xs) != len(ys) or not xs or kind not in _KINDS:
            self.system.refuse(gf.line, label, f"a graphical function of {len(xs)} x and {len(ys)} y, of type {kind!r}")
            return None
        return Expr(
            "points", value=tuple(zip(xs, ys, strict=True)), subs=(Expr("text", value=_KINDS[kind]),), line=gf.line
        )
