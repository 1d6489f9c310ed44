"""SBML, levels 1 to 3, core: `read_sbml`.

A species is an amount n or a concentration c = n / V, as formulas mean it. With the reactions' rates v_j (amounts a
time), stoichiometries s_j and a conversion factor f::

    dn/dt = f sum_j s_j v_j            an amount is a state n
    dc/dt = (dn/dt) / V                where V is constant, c is the state
    c = n / V                          where V changes, n is a state `<species>_amount`, and c follows
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_path
from fmepy.errors import ArgumentError, ModelError, did_you_mean, listed
from fmepy.exchange.draft import ForeignModel, free_name
from fmepy.exchange.files import Element, parse_xml
from fmepy.exchange.formulas import Formulas
from fmepy.exchange.sbml_events import read_events
from fmepy.language.equations import symbol
from fmepy.language.nodes import Node, Number, add, as_node, mul
from fmepy.models.ode import OdeModel
from fmepy.tables.text_files import read_bytes
from fmepy.vocabulary import own_words

logger = logging.getLogger(__name__)

_PACKAGE = re.compile(r"http://www\.sbml\.org/sbml/level3/version\d+/(\w+)/version\d+")
_HARMLESS = ("layout", "render", "groups", "annot", "l3v2extendedmath", "req")
_SPACES = {
    ("1", "1"): "level1", ("1", "2"): "level1", ("2", "1"): "level2", ("3", "1"): "level3/version1/core",
    ("3", "2"): "level3/version2/core", **{("2", v): f"level2/version{v}" for v in "2345"},
}  # fmt: skip
"""By level and version the end of the namespace."""
TIMES = np.linspace(0, 100, 101)
MOST_BYTES = 100_000_000
MOST_DEPTH = 300


class SbmlModel(OdeModel):
    """An `OdeModel` that was read from SBML; made by `read_sbml`.

    Attributes
    ----------
    renamed : Series
        By id in the file, the name here, where they differ; local parameters are called ``reaction.parameter`` there.
    units : Series
        Of quantities, as the file has them.
    ignored : tuple of str
        Parts of the file that a run does not use.
    """

    renamed: pd.Series
    units: pd.Series
    ignored: tuple[str, ...]
    _carried = ("renamed", "units", "ignored")

    @property
    def state(self) -> dict[str, Any]:
        """The initial values: numbers, or texts of parameters."""
        return {k: str(v) if isinstance(v, Node) else v for k, v in self._arguments["state"].items()}

    @property
    def events(self) -> Any:
        """The events, as `OdeModel` takes them, or None."""
        rows = self._arguments["events"] or ()
        return [{k: str(v) if isinstance(v, Node) else v for k, v in row.items()} for row in rows] or None


@own_words
def read_sbml(path: Any, times: Any = None) -> SbmlModel:
    """Return the model in an SBML file (levels 1 to 3, core) as an `OdeModel`.

    States are species (as amounts or as concentrations, whichever formulas mean), and quantities with rate rules or
    that events change; outputs are assignment rules and the rates of reactions, by their ids; constants are `parms`.

    Parameters
    ----------
    path : str or Path
        The file. It is data: nothing in it is run, and no other file or address is read from it.
    times : array_like, optional
        Rows of the model's table; the first is the start. Default: 0, 1, ..., 100; a file says nothing about it.

    Returns
    -------
    SbmlModel
        ``str(model.equations)`` with ``model.state``, ``model.parms`` and ``model.events`` make the same `OdeModel`
        again; `renamed` says what is called otherwise than in the file.

    Raises
    ------
    ModelError
        The file is no well-formed XML (with its line) or has entities; it uses fast reactions, triggers that jump, or
        packages other than the core (id and line are named); a name has no meaning or no value.

    Examples
    --------
    >>> import fmepy as fme
    >>> text = '''<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1"><model>
    ... <listOfCompartments><compartment id="cell" size="1" constant="true" spatialDimensions="3"/></listOfCompartments>
    ... <listOfSpecies><species id="A" compartment="cell" initialConcentration="2" hasOnlySubstanceUnits="false"
    ...   boundaryCondition="false" constant="false"/></listOfSpecies>
    ... <listOfReactions><reaction id="decay" reversible="false" fast="false"><listOfReactants><speciesReference
    ...   species="A" stoichiometry="1" constant="true"/></listOfReactants><kineticLaw><math
    ...   xmlns="http://www.w3.org/1998/Math/MathML"><apply><times/><ci>k</ci><ci>A</ci></apply></math>
    ...   <listOfLocalParameters><localParameter id="k" value="0.5"/></listOfLocalParameters></kineticLaw></reaction>
    ... </listOfReactions></model></sbml>'''
    >>> folder = getfixture("tmp_path")
    >>> _ = (folder / "decay.xml").write_text(text)
    >>> model = fme.read_sbml(folder / "decay.xml", times=[0, 1, 2])
    >>> model.state, model.parms.to_dict()
    ({'A': 2.0}, {'cell': 1.0, 'decay_k': 0.5})
    >>> model().round(3)
       time      A  decay
    0     0  2.000  1.000
    1     1  1.213  0.607
    2     2  0.736  0.368
    """
    return model_of(read_draft(path), TIMES if times is None else times)


def model_of(draft: ForeignModel, times: Any, **words: Any) -> SbmlModel:
    """Return the model of a draft."""
    arguments = draft.arguments()
    model = SbmlModel(arguments.pop("rhs"), **arguments, times=times, **words)
    known = {k: v for k, v in draft.renamed.items() if k != v}
    model.renamed = pd.Series(known, dtype=object, name="name")
    model.units = pd.Series(draft.units, dtype=object, name="unit")
    model.ignored = draft.ignored
    return model


def read_draft(path: Any) -> ForeignModel:
    """Return the draft of the model in an SBML file."""
    libsbml = _libsbml()
    path = as_path(path)
    data = read_bytes(path, MOST_BYTES, ModelError)
    parse_xml(data, str(path), MOST_DEPTH, partial(_check_root, path))
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"
    text = data.decode(encoding, errors="replace").lstrip("\ufeff")
    if not text.startswith("<?xml"):  # libsbml adds one, in a line of its own
        text = '<?xml version="1.0" encoding="UTF-8"?>' + text
    document = libsbml.readSBMLFromString(text)
    for i in range(document.getNumErrors()):
        error = document.getError(i)
        if error.getSeverity() >= libsbml.LIBSBML_SEV_ERROR and error.getErrorId() < 100000:
            raise ModelError(f"{path}, line {error.getLine()}: {' '.join(error.getMessage().split())}")
    if document.getModel() is None:
        raise ModelError(f"{path}: there is no model in this file (an <sbml> with a <model> is needed).")
    if document.getLevel() < 2 and not document.setLevelAndVersion(2, 4, False):
        raise ModelError(f"{path}: this model of SBML level 1 cannot be brought to level 2.")
    return _SbmlReader(document, str(path)).draft


def _check_root(path: Path, root: Element) -> None:
    """Refuse a root that is not SBML: libsbml ends the process if level, version and namespace do not agree."""
    level, version = (root.attributes.get(word, "") for word in ("level", "version"))
    if root.tag != f"http://www.sbml.org/sbml/{_SPACES.get((level, version))} sbml":
        raise ModelError(
            f"{path}, line {root.line}: {root.tag!r} of level {level!r}, version {version!r} is no SBML; <sbml> with a "
            "level and a version from 1 to 3, and their namespace, is needed."
        )


def _libsbml() -> Any:
    try:
        import libsbml
    except ImportError:
        raise ArgumentError("SBML is read by libsbml: pip install 'fmepy[petab]', or python-libsbml.") from None
    return libsbml


class _SbmlReader:
    """Reads one model into its draft."""

    def __init__(self, document: Any, path: str) -> None:
        self.m = m = document.getModel()
        self.path, self.draft = path, ForeignModel(where=path)
        self.formulas = Formulas({}, rate_of=self.rate_of)
        self.rules = {r.getVariable(): r for r in m.getListOfRules() if not r.isAlgebraic()}
        self.starts = {a.getSymbol(): a for a in m.getListOfInitialAssignments() if a.isSetMath()}
        self.set_by_events = {a.getVariable() for a in self._assignments()}
        self._rate_symbols: dict[str, str] = {}
        self._check_packages(document)
        self._name_everything()
        self.references = {r.getId(): r for _, r, _ in self._references() if r.getId()}
        self.solved = self._solved_by_algebra()
        for c in m.getListOfCompartments():
            self._quantity(c, c.getSize() if c.isSetSize() else 1.0)
        for p in m.getListOfParameters():
            self._quantity(p, p.getValue() if p.isSetValue() else np.nan)
        for r in self.references.values():
            self._quantity(r, self._plain_stoichiometry(r))
        changes = self._reactions()
        for s in m.getListOfSpecies():
            self._species(s, changes.get(s.getId()))
        for rule in m.getListOfRules():
            if rule.isAlgebraic() and rule.isSetMath():
                self.draft.algebraic.append(self._math(rule))
        read_events(self)
        if not self.draft.rates:  # a run needs a state
            name = free_name("no_state", self.draft.renamed.values())
            self.draft.rates[name], self.draft.initial = as_node(0.0), {name: as_node(0.0), **self.draft.initial}

    # --- places and names of elements

    def place(self, element: Any) -> str:
        """Return the place of an element: file, line, kind, id."""
        id = element.getIdAttribute() or (element.getVariable() if hasattr(element, "getVariable") else "")
        return f"{self.path}, line {element.getLine()}, {element.getElementName()}{f' {id!r}' if id else ''}"

    def error(self, element: Any, why: str) -> ModelError:
        """Return an error with the place of an element."""
        return ModelError(f"{self.place(element)}: {why}")

    def _math(self, element: Any) -> Node:
        return self.formulas.number(element.getMath(), self.place(element))

    def _check_packages(self, document: Any) -> None:
        spaces = document.getNamespaces()
        ignored = [k for k in ("notes", "annotation") if getattr(self.m, f"isSet{k.capitalize()}")()]
        for i in range(spaces.getLength()):
            if (match := _PACKAGE.fullmatch(spaces.getURI(i))) and match[1] != "core":
                if match[1] not in _HARMLESS:
                    raise self.error(
                        document, f"the package {match[1]!r} is not read, only the core of SBML is. Convert the model "
                        "to the core first, or take the package out."
                    )  # fmt: skip
                ignored.append(f"package {match[1]}")
        for c in self.m.getListOfCompartments():
            if not (c.isSetSize() or _is_point(c) or c.getId() in self.rules or c.getId() in self.starts):
                ignored.append(f"that {c.getId()!r} has no size: 1 is taken")
        for r in self.m.getListOfReactions():
            if r.getKineticLaw() is None or not r.getKineticLaw().isSetMath():
                ignored.append(f"that {r.getIdAttribute()!r} has no kinetic law: its rate is 0")
        for c in self.m.getListOfConstraints():
            ignored.append(f"constraint in line {c.getLine()}")
        self.draft.ignored = tuple(ignored)
        if ignored:
            logger.info("%s: ignored are %s.", self.path, listed(ignored))

    def _name_everything(self) -> None:
        m, draft = self.m, self.draft
        lists = (m.getListOfSpecies(), m.getListOfCompartments(), m.getListOfParameters(), m.getListOfReactions())
        for element in (e for found in lists for e in found):
            id = element.getIdAttribute()
            if id in draft.renamed:
                raise self.error(element, f"the id {id!r} is there twice.")
            self.formulas.names[id] = symbol(draft.name_for(id))
            unit = element.getUnits() if hasattr(element, "getUnits") else ""
            if unit := unit or (element.getSubstanceUnits() if hasattr(element, "getSubstanceUnits") else ""):
                draft.units[draft.renamed[id]] = unit
        for _, r, _ in self._references():
            if id := r.getIdAttribute():
                self.formulas.names[id] = symbol(draft.name_for(id))
        self._check_targets({e.getIdAttribute() for e in m.getListOfReactions()})
        for f in m.getListOfFunctionDefinitions():
            if f.getMath() is not None:
                self.formulas.functions[f.getId()] = f.getMath()

    def _check_targets(self, reactions: set[str]) -> None:
        """Refuse rules and reactions with unknown targets, and two that determine one quantity."""
        names = self.formulas.names.keys() - reactions
        targets = [(e, e.getVariable()) for e in self.m.getListOfRules() if not e.isAlgebraic()]
        for e, id in [*targets, *((e, e.getSymbol()) for e in self.m.getListOfInitialAssignments())]:
            if id not in names:
                raise self.error(e, f"there is no quantity {id!r}.{did_you_mean(id, names)}")
        ids = [id for _, id in targets]
        if twice := [e for i, (e, id) in enumerate(targets) if id in ids[:i]]:
            raise self.error(twice[0], "another rule gives it its values, too: take one of the two out.")
        if set_twice := [self.starts[k] for k in ids if k in self.starts and self.rules[k].isAssignment()]:
            raise self.error(set_twice[0], "an assignment rule gives it its values from the start on: take one out.")
        self._check_constants([*targets, *((a, a.getVariable()) for a in self._assignments())])
        for reaction, r, _ in self._references():
            if (s := self.m.getSpecies(id := r.getSpecies())) is None:
                near = did_you_mean(id, [s.getIdAttribute() for s in self.m.getListOfSpecies()])
                raise self.error(reaction, f"there is no species {id!r}.{near}")
            if s.getConstant() and not s.getBoundaryCondition():
                self._check_constants([(reaction, id)])
            if id in self.rules and not s.getBoundaryCondition() and self.rules[id].isSetMath():
                raise self.error(
                    self.rules[id], "a reaction changes it, too: let its boundaryCondition be true, or take it out of "
                    f"reaction {reaction.getIdAttribute()!r}."
                )  # fmt: skip

    def _check_constants(self, changes: Sequence[tuple[Any, str]]) -> None:
        """Refuse what would change a constant; each with its id."""
        for e, id in changes:
            element = self.m.getElementBySId(id)
            if element is not None and element.getConstant():
                raise self.error(
                    e, f"it would change {id!r}, which is constant. Let its constant be false, or take this out."
                )

    def _assignments(self) -> Iterator[Any]:
        """Yield what events set."""
        return (a for e in self.m.getListOfEvents() for a in e.getListOfEventAssignments())

    def _references(self) -> Iterator[tuple[Any, Any, float]]:
        """Yield (reaction, species reference, sign)."""
        for reaction in self.m.getListOfReactions():
            for r in reaction.getListOfReactants():
                yield reaction, r, -1.0
            for r in reaction.getListOfProducts():
                yield reaction, r, 1.0

    def _plain_stoichiometry(self, r: Any) -> float:
        if r.isSetStoichiometry() or self.m.getLevel() < 3:
            return float(r.getStoichiometry()) / (r.getDenominator() or 1)
        return np.nan

    def rate_of(self, id: str) -> Node:
        """Return the symbol of the rate of a quantity."""
        if id not in self.formulas.names:
            raise ModelError(f"rateOf({id}): {id!r} is the id of nothing that has a value")
        if id not in self._rate_symbols:
            self._rate_symbols[id] = self.draft.name_for(id, "rate_of")
        return symbol(self._rate_symbols[id])

    def assign_rates(self) -> None:
        """Add the rates that formulas read by `rateOf` to the draft."""
        for id, name in self._rate_symbols.items():
            self.draft.assigned[name] = self.draft.rate(self.formulas.names[id].name)  # type: ignore[attr-defined]

    # --- quantities

    def _quantity(self, element: Any, value: float, start: Node | None = None) -> None:
        """Read a quantity that a rule, events, an algebraic equation or nothing changes."""
        id, draft = element.getIdAttribute(), self.draft
        name = self.formulas.names[id].name  # type: ignore[attr-defined]
        if id in self.starts:
            start = self._math(self.starts[id])
        if id in self.rules and self.rules[id].isSetMath():
            rule = self.rules[id]
            if rule.isAssignment():
                draft.assigned[name] = self._math(rule)
                return
            draft.rates[name] = self._math(rule)
        elif id in self.set_by_events:
            draft.rates[name] = as_node(0.0)
        elif id not in self.solved:
            if start is None or isinstance(start, Number):
                draft.parms[name] = value if start is None else start.value
            else:
                draft.derived[name] = start
            return
        elif start is None and not np.isfinite(value):
            value = 1.0  # a guess
        draft.initial[name] = self._checked_start(element, value if start is None else start)

    def _checked_start(self, element: Any, start: Any) -> Node:
        """Return an initial value; refuse a missing one."""
        if start is None or (isinstance(start, float) and not np.isfinite(start)):
            raise self.error(element, "it has no initial value: give it one, or an initial assignment.")
        return as_node(start)

    def _solved_by_algebra(self) -> set[str]:
        """Return the ids that algebraic rules determine: variable quantities that nothing else changes.

        A rule with several of them determines one without a value, if there is one.
        """
        from scipy.optimize import linear_sum_assignment

        rules = [r for r in self.m.getListOfRules() if r.isAlgebraic() and r.isSetMath()]
        if not rules:
            return set()
        in_reactions = {r.getSpecies() for _, r, _ in self._references()}
        lists = (self.m.getListOfSpecies(), self.m.getListOfCompartments(), self.m.getListOfParameters())
        elements = {e.getIdAttribute(): e for chosen in lists for e in chosen} | self.references
        boundary = {s.getIdAttribute() for s in self.m.getListOfSpecies() if s.getBoundaryCondition()}
        free = [
            k for k, e in elements.items()
            if not (e.getConstant() or k in self.rules or k in self.set_by_events or k in in_reactions - boundary)
        ]  # fmt: skip
        has_value = [k in self.starts or _has_value(elements[k]) for k in free]
        price = np.full((len(rules), len(free) + len(rules)), 1e6)
        for i, rule in enumerate(rules):
            used = self._math(rule).free_symbols
            for j, k in enumerate(free):
                if self.formulas.names[k] in used:
                    price[i, j] = has_value[j]
        chosen = linear_sum_assignment(price)[1]
        for rule, cost in zip(rules, price[range(len(rules)), chosen], strict=True):
            if cost > 1:
                raise self.error(
                    rule, "nothing is left that this algebraic rule could determine: a quantity in it that is not "
                    "constant, and that no other rule, reaction or event changes."
                )  # fmt: skip
        for rule, row, j in zip(rules, price, chosen, strict=True):
            if others := [k for i, k in enumerate(free) if row[i] <= row[j] and i not in chosen]:
                more = f"that the algebraic rule in line {rule.getLine()} might determine {listed(others)}"
                self.draft.ignored += (f"{more}: {free[j]!r} is taken",)
        return {free[j] for j in chosen}

    # --- reactions and species

    def _reactions(self) -> dict[str, Node]:
        """Read the rates of reactions; return the rates of change of the amounts of species."""
        for reaction in self.m.getListOfReactions():
            if reaction.isSetFast() and reaction.getFast():
                raise self.error(
                    reaction, "fast reactions are not read. Write an algebraic rule for its equilibrium, or let its "
                    "rate be large."
                )  # fmt: skip
            law, name = reaction.getKineticLaw(), self.formulas.names[reaction.getIdAttribute()]
            rate = as_node(0.0)
            if law is not None and law.isSetMath():
                own = [*law.getListOfParameters(), *law.getListOfLocalParameters()]
                local = {}
                for p in {p.getIdAttribute(): p for p in own}.values():
                    renamed = self.draft.name_for(p.getIdAttribute(), reaction.getIdAttribute())
                    self.draft.parms[renamed] = p.getValue() if p.isSetValue() else np.nan
                    local[p.getIdAttribute()] = symbol(renamed)
                rate = self.formulas.number(law.getMath(), self.place(reaction), local)
            self.draft.assigned[name.name] = rate  # type: ignore[attr-defined]
        changes: dict[str, list[Node]] = {}
        for reaction, r, sign in self._references():
            change = mul(sign, self._stoichiometry(r), self.formulas.names[reaction.getIdAttribute()])
            changes.setdefault(r.getSpecies(), []).append(change)
        return {k: add(*v) for k, v in changes.items()}

    def _stoichiometry(self, r: Any) -> Node:
        if r.isSetStoichiometryMath():
            return self.formulas.number(r.getStoichiometryMath().getMath(), self.place(r))
        if id := r.getIdAttribute():
            return self.formulas.names[id]
        value = self._plain_stoichiometry(r)
        if np.isnan(value):
            raise self.error(r, f"the stoichiometry of {r.getSpecies()!r} has no value.")
        return as_node(value)

    def is_amount(self, s: Any) -> bool:
        """Tell whether a species means its amount in formulas."""
        c = self.m.getCompartment(s.getCompartment())
        if c is None:
            raise self.error(s, f"there is no compartment {s.getCompartment()!r}.")
        return bool(s.getHasOnlySubstanceUnits()) or _is_point(c)

    def _species(self, s: Any, change: Node | None) -> None:
        id, draft, names = s.getIdAttribute(), self.draft, self.formulas.names
        name, is_amount = names[id].name, self.is_amount(s)  # type: ignore[attr-defined]
        size = names[s.getCompartment()]
        draft.species.add(name)
        start = self._start_of_species(s, is_amount, size)
        is_moved = change is not None and not s.getBoundaryCondition() and not s.getConstant()
        rule, of = self.rules.get(id), s.getCompartment()
        varying = not is_amount and of in {*self.rules, *self.set_by_events, *self.solved}
        by_rate = varying and of not in self.solved and rule is not None and rule.isRate() and rule.isSetMath()
        by_itself = rule is None and id not in self.solved and (is_moved or varying or id in self.set_by_events)
        if not (by_rate or by_itself):
            self._quantity(s, np.nan, start)
            return
        if by_rate:  # of the concentration: between events n' = c' V + c V', and at them n stays
            turnover = mul(names[id], self.rate_of(of)) if of in self.rules else as_node(0.0)
            change = add(mul(self._math(rule), size), turnover)
        elif not is_moved or change is None:
            change = as_node(0.0)
        elif factor := s.getConversionFactor() or self.m.getConversionFactor():
            change = mul(names[factor], change)
        start = self._checked_start(s, self._math(self.starts[id]) if id in self.starts else start)
        if varying:
            amount = draft.name_for("amount", id)
            draft.rates[amount], draft.initial[amount] = change, mul(start, size)
            draft.assigned[name] = symbol(amount) / size
            draft.amounts[id] = amount, size
        else:
            draft.rates[name], draft.initial[name] = change if is_amount else change / size, start

    def _start_of_species(self, s: Any, is_amount: bool, size: Node) -> Node | None:
        """Return the initial value as an amount or concentration, whichever formulas mean; None if there is none."""
        if s.isSetInitialAmount():
            amount = as_node(float(s.getInitialAmount()))
            start = amount if is_amount else amount / size
        elif s.isSetInitialConcentration():
            start = mul(float(s.getInitialConcentration()), size if is_amount else 1.0)
        else:
            return None
        only = {size: as_node(1.0)} if self.draft.parms.get(getattr(size, "name", "")) == 1.0 else {}
        is_constant = s.getIdAttribute() not in self.rules and (s.getConstant() or s.getBoundaryCondition())
        return start.subs(only) if is_constant else start  # constants are numbers where they can be


def _has_value(element: Any) -> bool:
    """Tell whether an element has a value."""
    words = ("Value", "Size", "InitialAmount", "InitialConcentration", "Stoichiometry")
    return any(getattr(element, f"isSet{word}", bool)() for word in words)


def _is_point(compartment: Any) -> bool:
    """Tell whether a compartment has no extent."""
    return bool(compartment.isSetSpatialDimensions()) and compartment.getSpatialDimensions() == 0
