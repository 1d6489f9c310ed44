"""The package as a whole: what it shows, what it carries, how light it is, and which room may use which."""

from __future__ import annotations

import ast
import io
import pkgutil
import re
import subprocess
import sys
import tokenize
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse.csgraph

import fmepy as fme

PACKAGE = Path(fme.__file__).parent

# --- arrows between rooms go down only

FLOORS = [  # from the top; a room may import what stands on lower floors, and the rooms it shares braces with
    [{"workflow"}],
    [{"exchange"}],
    [
        {"sensitivity"},
        {"boundary"},
        {"designs"},
    ],  # a loop of select and fit, and a solution with all that is said of a fit
    [{"fitting"}, {"montecarlo"}, {"mcmc"}],
    [{"fimlof"}],
    [{"costs"}, {"filtering"}, {"dmi"}],
    [{"models"}],
    [{"compiled"}],
    [{"language"}, {"parallel"}],
    [{"plotting"}],  # it takes results by what they offer; nobody needs it before a picture is asked for
    [{"results"}, {"tables"}],
    [{"journal"}],
    [{"parameters", "numerics", "checks", "errors", "types", "datasets", "command_line", "vocabulary"}],
]


def place(room: str) -> tuple[int, int]:
    """Return floor and number of the room on it."""
    for floor, rooms in enumerate(FLOORS):
        for number, together in enumerate(rooms):
            if room in together:
                return floor, number
    raise AssertionError(f"fmepy/{room} has no place in FLOORS: say where it stands")


def may_import(room: str, other: str) -> bool:
    return place(other)[0] > place(room)[0] or place(other) == place(room)


def imports(code: str, module: str) -> Iterator[tuple[str, str, bool]]:
    """Return (room, name imported from fmepy itself, inside a function) of each import of fmepy's own."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, str, bool]]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _target(alias.name.split("."), "", inside)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")[: -node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _target(base, alias.name, inside)
        for child in children:
            yield from walk(child, inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    yield from walk(ast.parse(code), False)


def _target(path: list[str], name: str, inside: bool) -> Iterator[tuple[str, str, bool]]:
    if path[0] == "fmepy":
        yield (path[1], name, inside) if len(path) > 1 else ("", name, inside)


def modules() -> list[tuple[str, str, Path]]:
    """Return room, dotted name (a package ends in __init__) and file of every module but the catalogue."""
    out = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts not in (("__init__",), ("__main__",)):
            out.append((parts[0], ".".join(("fmepy", *parts)), path))
    return out


def violations(room: str, module: str, code: str) -> list[str]:
    out = []
    for other, name, inside in imports(code, module):
        if other == "":  # from fmepy import x: a room, or something of the catalogue
            rooms = {r for floor in FLOORS for together in floor for r in together}
            if name == "__version__":
                continue
            if name not in rooms:
                out.append(f"{module} imports {name or 'fmepy'} through the package's catalogue")
                continue
            other = name
        if other == "plotting" and room != "plotting":
            if not inside:
                out.append(f"{module} imports plotting outside a function")
        elif not may_import(room, other):
            out.append(f"{module} imports {other}, which is not below it")
    return out


@pytest.mark.parametrize(("room", "module", "path"), modules(), ids=lambda v: v if isinstance(v, str) else "")
def test_arrows_between_rooms_go_down_only(room, module, path):
    assert not violations(room, module, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("fmepy.models.ode", "from fmepy.costs.base import Cost"),
        ("fmepy.models.ode", "from ..costs import base"),
        ("fmepy.models.ode", "from .. import costs"),
        ("fmepy.models.ode", "def f():\n    import fmepy.fitting"),
        ("fmepy.fitting.modfit", "from fmepy.mcmc import modMCMC"),
        ("fmepy.costs.modcost", "from fmepy.plotting.fits import plot_residuals"),
        ("fmepy.costs.modcost", "import fmepy as fme"),
        ("fmepy.costs.modcost", "from fmepy import modFit"),
        ("fmepy.errors", "from .models import base"),
        ("fmepy.plotting.fits", "def f():\n    from fmepy.fitting.modfit import ModFit"),
    ],
)
def test_an_arrow_upwards_is_seen(module, code):
    assert len(violations(module.split(".")[1], module, code)) == 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        (
            "fmepy.costs.modcost",
            "from fmepy.models.base import Model\nfrom .base import Cost\nfrom ..errors import DataError",
        ),
        ("fmepy.costs.modcost", "def plot():\n    from fmepy.plotting.fits import plot_residuals"),
        ("fmepy.models.base", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fmepy.costs import base"),
        ("fmepy.workflow.run", "from fmepy import __version__, datasets\nfrom fmepy.fitting import modFit"),
        ("fmepy.plotting.fits", "from fmepy.parameters.selection import chosen\nimport numpy"),
    ],
)
def test_an_arrow_downwards_is_fine(module, code):
    assert not violations(module.split(".")[1], module, code)


def all_imports(code: str) -> set[str]:
    """Return every module that a text names in an import, inside functions and for types as well."""
    nodes = list(ast.walk(ast.parse(code)))
    named = {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    return named | {"." * n.level + (n.module or "") for n in nodes if isinstance(n, ast.ImportFrom)}


def imports_of_results(code: str) -> list[str]:
    below = {"plotting", "tables", "parameters", "numerics", "checks", "errors", "types"}
    ours = {name for name in all_imports(code) if name.split(".")[0] in ("fmepy", "")}
    return sorted(name for name in ours if ".".join(name.split(".")[1:2]) not in below)


@pytest.mark.parametrize("path", sorted((PACKAGE / "plotting").glob("*.py")), ids=lambda p: p.stem)
def test_pictures_know_no_class_of_results(path):
    assert imports_of_results(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "room", ["fitting", "mcmc", "sensitivity", "montecarlo", "costs", "fimlof", "boundary", "workflow", "models", "dmi"]
)
def test_a_picture_that_imports_a_result_is_seen(room):
    inside = f"def draw(x):\n    if TYPE_CHECKING:\n        from fmepy.{room}.result import Result"
    assert imports_of_results(inside) == [f"fmepy.{room}.result"]
    assert imports_of_results(f"import fmepy.{room} as r") == [f"fmepy.{room}"]
    assert imports_of_results(f"from ..{room} import r") == [f"..{room}"]


# --- inside a room: no circles at run time, and no file for a page with one reader


def arrows_inside(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return what each module imports of its own room, inside functions too, but not for types alone."""
    out = {}
    for module, code in sources.items():
        room, names = module.split(".")[1], set()
        for node in _run_nodes(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module:
                each = (f"{node.module}.{a.name}" for a in node.names)
                names |= {name if name in sources else node.module for name in each}
            elif isinstance(node, ast.Import):
                names |= {a.name for a in node.names}
        out[module] = {n for n in names if n in sources and n != module and n.split(".")[1] == room}
    return out


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree but those below ``if TYPE_CHECKING``."""
    yield node
    for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    for child in node.orelse if for_types else ast.iter_child_nodes(node):
        yield from _run_nodes(child)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    numbers = {m: i for i, m in enumerate(arrows)}
    edges = np.array([(numbers[m], numbers[o]) for m, others in arrows.items() for o in others]).reshape(-1, 2)
    graph = scipy.sparse.coo_array((np.ones(len(edges)), edges.T), (len(numbers),) * 2)
    of = scipy.sparse.csgraph.connected_components(graph, connection="strong")[1]
    groups = [[m for m in arrows if of[numbers[m]] == k] for k in set(of.tolist())]
    return sorted(g for g in groups if len(g) > 1)


def all_modules() -> dict[str, str]:
    return {m.removesuffix(".__init__"): p.read_text(encoding="utf-8") for _, m, p in modules()}


def test_modules_of_a_room_import_each_other_in_one_direction():
    assert circles(arrows_inside(all_modules())) == []


def test_a_circle_is_seen_but_not_one_for_types():
    inside = "def f():\n    from fmepy.costs.a import x"
    assert circles(arrows_inside({"fmepy.costs.a": "import fmepy.costs.b", "fmepy.costs.b": inside}))
    typed = "if TYPE_CHECKING:\n    from fmepy.costs.a import x\nelse:\n    x = None"
    assert not circles(arrows_inside({"fmepy.costs.a": "from fmepy.costs import b", "fmepy.costs.b": typed}))


SMALL = 60  # lines of code of a file that belongs in its only reader
FAMILIES = (
    "fmepy.fitting.methods",
    "fmepy.mcmc.kernels",
    "fmepy.plotting",
    "fmepy.workflow.steps",
)  # one algorithm, one kind of picture, one step of a calibration a file
APART = {
    "fmepy.boundary.simultaneous_runs": "its reader is as long as a file may be",
    "fmepy.command_line": "the first to be imported, before anything that takes time",
    "fmepy.compiled.machine_function": "machine code of expressions, of which whoever needs it makes use",
    "fmepy.designs.criteria": "the formulas, of which `design` makes use",
    "fmepy.costs.depths": "its reader would be longer than a file may be",
    "fmepy.language.display": "the one reader of sympy",
}


def test_a_small_file_with_one_reader_stands_in_its_reader():
    sources = {m: code for m, code in all_modules().items() if m.count(".") > 1 or m != "fmepy.__main__"}
    sources["fmepy"] = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    imported = {m: {n for n in _all_names(code) if n in sources and n != m} for m, code in sources.items()}
    packages = {m.rpartition(".")[0] for m in sources}
    small = {m for m, code in sources.items() if len(code_lines(code)) < SMALL and m not in packages}
    alone = {m for m in small if sum(m in names for names in imported.values()) == 1 and not m.startswith(FAMILIES)}
    assert alone <= set(APART), "put it into its reader, or say in APART why not"
    assert alone >= set(APART), "no longer small, or alone: take it out of APART"


def _all_names(code: str) -> set[str]:
    nodes = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.ImportFrom) and n.module]
    plain = {a.name for n in ast.walk(ast.parse(code)) if isinstance(n, ast.Import) for a in n.names}
    return plain | {f"{n.module}.{a.name}" for n in nodes for a in n.names} | {n.module for n in nodes}


# --- what begins with an underscore stays in its room

OF_OTHERS = {"_repr_latex_", "_replace", "_asdict", "_print", "_exit", "_max_workers"}
"""Documented by others: of named tuples, of sympy's printers, of notebooks, of os, of executors."""


def private_reads(code: str) -> Iterator[tuple[int, str]]:
    """Return line and name of each attribute with one leading underscore that is read of another object than self."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute):
            of_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            name = "" if of_own else node.attr
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr"):
            given = node.args[1] if len(node.args) > 1 else None
            name = str(given.value) if isinstance(given, ast.Constant) else ""
        else:
            continue
        if re.match("_[a-z]", name, re.IGNORECASE) and name not in OF_OTHERS:
            yield node.lineno, name


def private_names(code: str) -> set[str]:
    """Return the names with a leading underscore that a module defines: functions, classes, fields, attributes."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in found if name.startswith("_")}


def test_no_room_reads_what_another_keeps_to_itself():
    own: dict[str, set[str]] = {}
    for room, _, path in modules():
        own.setdefault(room, set()).update(private_names(path.read_text(encoding="utf-8")))
    assert not [
        f"{module}:{line} reads {name}, which fmepy/{room} does not define"
        for room, module, path in modules()
        for line, name in private_reads(path.read_text(encoding="utf-8"))
        if name not in own[room]
    ]


def test_no_room_imports_what_another_keeps_to_itself():
    assert not [
        f"{module} imports {name} of {other}"
        for room, module, path in modules()
        for other, name, _ in imports(path.read_text(encoding="utf-8"), module)
        if other != room and re.match("_[a-z]", name, re.IGNORECASE)
    ]


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("model._definition", ["_definition"]),
        ("self.model._definition", ["_definition"]),
        ("getattr(model, '_events', ())", ["_events"]),
        ("self._definition, cls._made, model.__dict__, row._replace(x=1)", []),
    ],
)
def test_a_private_read_is_seen(code, names):
    assert [name for _, name in private_reads(code)] == names


# --- the catalogue


def test_the_catalogue_is_sorted_and_complete():
    assert list(fme.__all__) == sorted(set(fme.__all__))
    shown = {
        name
        for name in dir(fme)
        if not name.startswith("_") and (name in fme.__all__ or not isinstance(getattr(fme, name), types.ModuleType))
    }
    assert shown == set(fme.__all__) - {"__version__"}


def test_completion_offers_what_one_calls_and_types_hold_the_results():
    assert dir(fme) == list(fme.__all__)
    assert not set(fme.__all__) & set(fme.types.RESULTS_AND_CONTRACTS)
    assert dir(fme.dmi) == sorted(fme.dmi.__all__)
    assert dir(fme.datasets) == ["load", "names"]
    assert dir(fme.workflow) == sorted(fme.workflow.__all__)
    assert all(issubclass(getattr(fme.errors, name), (fme.errors.FmepyError, UserWarning)) for name in dir(fme.errors))
    for name in fme.types.RESULTS_AND_CONTRACTS:
        assert getattr(fme.types, name) is getattr(fme, name)
        assert isinstance(getattr(fme, name), type)
    with pytest.raises(AttributeError, match="no attribute 'Modfit'"):
        _ = fme.types.Modfit


@pytest.mark.parametrize("name", [n for n in (*fme.__all__, *fme.types.RESULTS_AND_CONTRACTS) if n != "__version__"])
def test_a_public_name_is_there_and_documented(name):
    thing = getattr(fme, name)
    assert (thing.__doc__ or "").strip()
    assert (getattr(thing, "__module__", None) or thing.__name__).startswith("fmepy")


def test_import_is_light():
    heavy = ["matplotlib", "lmfit", "emcee", "sympy", "numba", "nlopt", "loky", "tqdm", "SALib", "dask"]
    heavy += ["scipy.stats", "scipy.optimize", "scipy.linalg", "scipy.sparse", "scipy.special"]
    heavy += ["fmepy.dmi", "fmepy.workflow"]
    code = f"import fmepy, sys; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[]"


# --- what is shipped


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """Build the wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(root)]
    subprocess.run([sys.executable, "-m", "pip", *command], check=True, capture_output=True)
    (built,) = folder.glob("fmepy-*.whl")
    return built


def test_the_wheel_carries_types_tables_and_nothing_of_the_workshop(wheel, root):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "fmepy/py.typed" in names
    assert {f"fmepy/data/{p.relative_to(root / 'data')}" for p in (root / "data").rglob("*.*")} <= names
    assert {n.split("/")[0] for n in names} == {"fmepy", f"fmepy-{fme.__version__}.dist-info"}
    sources = {p.relative_to(root).as_posix() for p in (root / "fmepy").rglob("*.py")}
    assert sources <= names


def test_the_installed_wheel_loads_its_tables_in_an_empty_directory(wheel, tmp_path):
    target, empty = tmp_path / "target", tmp_path / "empty"
    empty.mkdir()
    install = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(target), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True)
    code = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "import fmepy, fmepy.datasets as d\n"
        "pelts = d.load('lynx_hare')\n"
        "print(fmepy.__file__, len(pelts), len(d.names()), pelts.attrs['source'], sep='|')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=empty)
    where, rows, tables, source = done.stdout.strip().split("|")
    assert Path(where).is_relative_to(target)
    assert (rows, tables) == ("21", "8")
    assert source.startswith("Hewitt 1921")


def test_nothing_reads_outside_the_repository(root):
    for folder in ("fmepy", "vignettes", "benchmarks", "docs"):
        for path in (root / folder).rglob("*.py"):
            assert "../shared" not in path.read_text(encoding="utf-8"), path


def test_what_texts_name_exists(root):
    """Docstrings, comments and pages name modules and objects of the package; after a move they still do."""
    rooms = {p.stem for p in (root / "fmepy").iterdir()} - {"__init__", "__pycache__"}
    named = re.compile(rf"(?:\bfmepy\.|(?<!`)`)((?:{'|'.join(sorted(rooms))})(?:\.\w+)*)")
    texts = [*(root / "fmepy").rglob("*.py"), *(root / "vignettes").glob("*.py"), *root.glob("*.md")]
    missing = []
    for path in texts:
        for name in set(named.findall(path.read_text(encoding="utf-8"))):
            try:
                pkgutil.resolve_name(f"fmepy.{name}".removesuffix(".py"))
            except (ImportError, AttributeError):
                missing.append(f"{path.relative_to(root)}: {name}")
    assert not missing


# --- small pieces

MOST_LINES_OF_CODE = 90  # of a function, without blank lines, comments and its docstring
KERNELS = {  # loops that are compiled as one piece: a call of a further function costs there, or cannot be inlined
}
MOST_LINES = 500  # of a file; a longer one holds one idea
LONG = {
    "costs/observations.py": "one idea: a table of observations, checked and matched with a model's variables",
    "fimlof/bound_likelihood.py": "one idea: a likelihood by filtering as a function of a vector, with its derivatives",
    "exchange/vensim_formulas.py": "one idea: an expression of a foreign file as a text, word by word",
    "models/running/crossings.py": "one idea: what is watched along a run, and what happens where it crosses zero",
}


def lines_of_code(node: ast.AST, code: str) -> int:
    """Return how many lines of a function hold code: neither blank nor comment nor docstring."""
    inner = [n for n in ast.walk(node) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    docs = [n.body[0] for n in inner if ast.get_docstring(n) is not None]
    silent = {line for d in docs for line in range(d.lineno, d.end_lineno + 1)}
    lines = code.splitlines()
    own = range(node.lineno, node.end_lineno + 1)
    return sum(1 for i in own if i not in silent and lines[i - 1].strip() and not lines[i - 1].lstrip().startswith("#"))


def long_functions(name: str, code: str) -> list[str]:
    functions = [n for n in ast.walk(ast.parse(code)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    sizes = {f"{name}:{n.name}": lines_of_code(n, code) for n in functions}
    return [f"{k} has {n} lines of code" for k, n in sizes.items() if n > MOST_LINES_OF_CODE and k not in KERNELS]


def sources() -> dict[str, str]:
    return {p.relative_to(PACKAGE).as_posix(): p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py")}


def test_no_function_is_longer_than_one_can_read():
    assert not [line for name, code in sources().items() for line in long_functions(name, code)]


def test_a_long_function_is_seen_and_its_docstring_does_not_count():
    code = 'def f():\n    """What."""\n\n' + "    # why\n" * 50 + "    x = 1\n" * MOST_LINES_OF_CODE
    assert long_functions("a.py", code) == [f"a.py:f has {MOST_LINES_OF_CODE + 1} lines of code"]
    assert not long_functions("a.py", code.replace("    x = 1\n", "", 1))


def test_a_file_past_500_lines_has_a_reason():
    long = {name for name, code in sources().items() if len(code.splitlines()) > MOST_LINES}
    assert long >= set(LONG), "shorter now: take it out of LONG"
    assert not long - set(LONG), "split it along its ideas, or say in LONG which one idea it holds"


# --- names


def test_no_class_name_stands_in_two_rooms():
    homes: dict[str, set[str]] = {}
    for name, code in sources().items():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(name.split("/")[0])
    assert not {name: sorted(rooms) for name, rooms in homes.items() if len(rooms) > 1}, "one name, one meaning"


# --- the size of rooms

MOST_OF_A_ROOM = {  # lines of code, without blank lines, comments and docstrings; a commit that raises one says why
    "language": 2_320, "compiled": 5_695, "models": 9_490, "costs": 5_440, "filtering": 3_110, "fimlof": 3_795,
    "fitting": 4_810, "mcmc": 2_915, "boundary": 2_265, "dmi": 4_340, "exchange": 3_820, "designs": 1_570,
    "montecarlo sensitivity": 2_530, "workflow": 4_780, "plotting": 2_215,
    "tables journal parallel results": 3_120, "parameters numerics root": 2_970,
}  # fmt: skip
SLACK = 100  # lines below which a figure follows its room down


def code_lines(code: str) -> set[int]:
    """Return the numbers of the lines that hold code: neither blank nor comment nor docstring."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type not in (tokenize.COMMENT, tokenize.ENDMARKER) and token.string.strip():
            lines.update(range(token.start[0], token.end[0] + 1))
    for n in ast.walk(ast.parse(code)):
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(n, kinds) and ast.get_docstring(n):
            lines.difference_update(range(n.body[0].lineno, n.body[0].end_lineno + 1))
    return lines


def lines_of_rooms() -> dict[str, int]:
    """Return the lines of code of each group of rooms."""
    sizes: dict[str, int] = {}
    for name, code in sources().items():
        room = name.split("/")[0] if "/" in name else "root"
        group = next((g for g in MOST_OF_A_ROOM if room in g.split()), room)
        sizes[group] = sizes.get(group, 0) + len(code_lines(code))
    return sizes


def test_rooms_keep_their_budgets():
    sizes = lines_of_rooms()
    assert set(sizes) == set(MOST_OF_A_ROOM), "a new room needs a figure"
    over = {room: size for room, size in sizes.items() if size > MOST_OF_A_ROOM[room]}
    assert not over, "a feature joins by taking lines out"
    assert not {room: size for room, size in sizes.items() if size < MOST_OF_A_ROOM[room] - SLACK}, "lower the figures"
