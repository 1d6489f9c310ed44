"""Small SBML models and PEtab problems, written for a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import libsbml

import fmepy as fme

SPACE = "http://www.sbml.org/sbml/level3/version{version}/core"
HEAD = f'<sbml xmlns="{SPACE}"{{more}} level="3" version="{{version}}"><model{{words}}>'
TRUE = {True: "true", False: "false"}


def math(formula: str) -> str:
    """Return MathML of an infix formula."""
    tree = libsbml.parseL3Formula(formula)
    assert tree is not None, libsbml.getLastParseL3Error()
    return libsbml.writeMathMLToString(tree).split("?>", 1)[1].strip()


def listed(name: str, *items: str) -> str:
    return f"<listOf{name}>{''.join(items)}</listOf{name}>" if items else ""


def compartment(id: str = "cell", size: float = 1.0, constant: bool = True, dimensions: int = 3) -> str:
    return f'<compartment id="{id}" size="{size}" constant="{TRUE[constant]}" spatialDimensions="{dimensions}"/>'


def species(
    id: str, start: float | None = 0.0, *, kind: str = "Concentration", of: str = "cell", amount: bool = False,
    boundary: bool = False, constant: bool = False, more: str = "",
) -> str:  # fmt: skip
    initial = "" if start is None else f'initial{kind}="{start}"'
    return (
        f'<species id="{id}" compartment="{of}" {initial} hasOnlySubstanceUnits="{TRUE[amount]}" '
        f'boundaryCondition="{TRUE[boundary]}" constant="{TRUE[constant]}" {more}/>'
    )


def parameter(id: str, value: float | None = None, constant: bool = True) -> str:
    given = "" if value is None else f'value="{value}"'
    return f'<parameter id="{id}" {given} constant="{TRUE[constant]}"/>'


def assignment(id: str, formula: str) -> str:
    return f'<assignmentRule variable="{id}">{math(formula)}</assignmentRule>'


def rate(id: str, formula: str) -> str:
    return f'<rateRule variable="{id}">{math(formula)}</rateRule>'


def algebraic(formula: str) -> str:
    return f"<algebraicRule>{math(formula)}</algebraicRule>"


def initial(id: str, formula: str) -> str:
    return f'<initialAssignment symbol="{id}">{math(formula)}</initialAssignment>'


def function(id: str, formula: str) -> str:
    return f'<functionDefinition id="{id}">{math(formula)}</functionDefinition>'


def reaction(
    id: str, law: str, reactants: tuple[str, ...] = (), products: tuple[str, ...] = (), *, fast: bool = False,
    **local: float,
) -> str:  # fmt: skip
    def references(kind: str, names: tuple[str, ...]) -> str:
        pairs = [name.split("*") if "*" in name else ("1", name) for name in names]
        return listed(kind, *(
            f'<speciesReference species="{s}" constant="true" stoichiometry="{n}"/>' if n[0].isdigit() else
            f'<speciesReference species="{s}" constant="false" id="{n}"/>' for n, s in pairs))  # fmt: skip

    own = listed("LocalParameters", *(f'<localParameter id="{k}" value="{v}"/>' for k, v in local.items()))
    return (
        f'<reaction id="{id}" reversible="false" fast="{TRUE[fast]}">{references("Reactants", reactants)}'
        f"{references('Products', products)}<kineticLaw>{math(law)}{own}</kineticLaw></reaction>"
    )


def event(
    trigger: str, changes: dict[str, str], *, initial: bool = True, persistent: bool = True, early: bool = True,
    delay: str = "", priority: str = "", id: str = "",
) -> str:  # fmt: skip
    return (
        f'<event useValuesFromTriggerTime="{TRUE[early]}"{f" id={chr(34)}{id}{chr(34)}" if id else ""}>'
        f'<trigger initialValue="{TRUE[initial]}" persistent="{TRUE[persistent]}">{math(trigger)}</trigger>'
        + (f"<priority>{math(priority)}</priority>" if priority else "")
        + (f"<delay>{math(delay)}</delay>" if delay else "")
        + listed("EventAssignments", *(
            f'<eventAssignment variable="{k}">{math(v)}</eventAssignment>' for k, v in changes.items()))
        + "</event>"
    )  # fmt: skip


ORDER = (
    "FunctionDefinitions", "Compartments", "Species", "Parameters", "InitialAssignments", "Rules", "Reactions",
    "Events",
)  # fmt: skip


def sbml(*, more: str = "", words: str = "", version: int = 1, **lists: Any) -> str:
    """Return a model; lists by name, such as Species=[species("A")]."""
    body = "".join(listed(name, *lists.get(name, ())) for name in ORDER)
    return HEAD.format(more=more, words=words, version=version) + body + "</model></sbml>"


def model(folder: Path, times: Any = (0, 1, 2), **lists: Any) -> Any:
    """Return the model that is read from such a text."""
    path = folder / "model.xml"
    path.write_text(sbml(**lists), encoding="utf-8")
    return fme.read_sbml(path, times=times)


# --- PEtab problems of A <-> B in one compartment; A(0) = a0, B(0) = b0

CONVERSION = {
    "Compartments": [compartment("compartment", 1.0)],
    "Species": [species("A", 0.0, of="compartment"), species("B", 0.0, of="compartment")],
    "Parameters": [parameter("a0", 1.0), parameter("b0", 0.0), parameter("k1", 0.8), parameter("k2", 0.6)],
    "InitialAssignments": [initial("A", "a0"), initial("B", "b0")],
    "Reactions": [reaction("there", "compartment * k1 * A", ("A",), ("B",)),
                  reaction("back", "compartment * k2 * B", ("B",), ("A",))],
}  # fmt: skip


def conversion(t: Any, a0: float = 1.0, b0: float = 0.0, k1: float = 0.8, k2: float = 0.6) -> Any:
    """Return A at times t."""
    import numpy as np

    rest = (a0 + b0) * k2 / (k1 + k2)
    return rest + (a0 - rest) * np.exp(-(k1 + k2) * np.asarray(t, dtype=float))


def problem(folder: Path, tables: dict[str, str], version: int = 1, model: str = "", name: str = "problem") -> Path:
    """Write a PEtab problem; tables are texts whose cells are parted by blanks, - an empty cell."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.xml").write_text(model or sbml(**CONVERSION), encoding="utf-8")
    for kind, text in tables.items():
        rows = [["" if cell == "-" else cell for cell in line.split()] for line in text.strip().split("\n")]
        lines = ["\t".join(row) for row in rows]
        (folder / f"{kind}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    files = "".join(f"{kind[:-1]}_files: [{kind}.tsv]\n" for kind in tables if kind != "parameters")
    if version == 1:
        inner = "".join(f"    {line}\n" for line in (files + "sbml_files: [model.xml]").split("\n") if line)
        text = f"format_version: 1\nparameter_file: parameters.tsv\nproblems:\n  -\n{inner}"
    else:
        text = f"format_version: 2.0.0\n{files}parameter_files: [parameters.tsv]\n"
        text += "model_files:\n  model: {language: sbml, location: model.xml}\n"
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def signalling(folder: Path) -> Path:
    """Write a problem built as Fujita's (Sci. Signal. 2010): EGF as step, pulse and ramp, receptor to Akt to S6.

    Nine states, six conditions, three observables with scales and sds that are estimated: 19 parameters.
    """
    rates = [0.1, 0.05, 0.02, 0.3, 0.03, 0.2, 0.1, 0.08, 0.05, 0.06, 0.02, 0.01, 0.04]
    k = {f"k{i}": v for i, v in enumerate(rates, 1)}
    start = dict.fromkeys(["R", "ER", "pR", "A", "pRA", "pA", "S", "pAS", "pS"], 0.0) | {"R": 1.0, "A": 1.5, "S": 2.0}
    steps = [
        ("k1*u*R - k2*ER", "R", "ER"), ("k3*ER", "ER", "pR"), ("k4*pR*A - k5*pRA", "pR A", "pRA"),
        ("k6*pRA", "pRA", "pR pA"), ("k7*pA", "pA", "A"), ("k8*pA*S - k9*pAS", "pA S", "pAS"),
        ("k10*pAS", "pAS", "pA pS"), ("k11*pS", "pS", "S"), ("k12*pR", "pR", ""), ("k13*(1 - R)", "", "R"),
    ]  # fmt: skip
    given = k | {"dose": 1.0, "t_ramp": 0.0, "t_pulse": 1e9}
    model = sbml(
        Compartments=[compartment("cell")], Species=[species(name, value) for name, value in start.items()],
        Parameters=[*(parameter(*one) for one in given.items()), parameter("u", None, False)],
        Rules=[assignment("u", "piecewise(0, time > t_pulse, dose*time/t_ramp, time < t_ramp, dose)")],
        Reactions=[reaction(f"r{i}", law, tuple(a.split()), tuple(b.split())) for i, (law, a, b) in enumerate(steps)],
    )  # fmt: skip
    inputs = [
        "s1 0.1 1e-3 1e9",
        "s2 1 1e-3 1e9",
        "s3 10 1e-3 1e9",
        "pulse 5 1e-3 60",
        "ramp1 5 3600 1e9",
        "ramp2 5 600 1e9",
    ]
    scaled = k | dict.fromkeys(["scale1", "scale2", "scale3"], 1.5) | dict.fromkeys(["sd1", "sd2", "sd3"], 0.2)
    rows = [f"{o} {c.split()[0]} {t} 0.5" for c in inputs for o in ("pEGFR", "pAkt", "pS6")
            for t in (0, 60, 120, 300, 600, 900, 1800, 3600)]  # fmt: skip
    tables = {
        "parameters": ["parameterId parameterScale lowerBound upperBound nominalValue estimate",
                       *(f"{name} log10 1e-8 1e4 {value} 1" for name, value in scaled.items())],
        "conditions": ["conditionId dose t_ramp t_pulse", *inputs],
        "observables": ["observableId observableFormula noiseFormula", "pEGFR scale1*(pR+pRA) sd1",
                        "pAkt scale2*(pA+pAS) sd2", "pS6 scale3*pS sd3"],
        "measurements": ["observableId simulationConditionId time measurement", *rows],
    }  # fmt: skip
    return problem(folder, {kind: "\n".join(lines) for kind, lines in tables.items()}, 1, model)
