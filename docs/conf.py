"""How the site is made: MyST pages, the vignettes by sphinx-gallery, the functions from their docstrings."""

from __future__ import annotations

import os
import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx_gallery.directives import imgsgnode

import fmepy

os.environ["MPLBACKEND"] = "Agg"  # vignettes are run without a display

project = "fmepy"
author = "the authors of fmepy"
copyright = "the authors of fmepy, BSD 3-Clause"
release = version = fmepy.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_gallery.gen_gallery"]
root_doc = "index"
exclude_patterns = [
    "_build",
    "vignettes/*.ipynb",
    "vignettes/*.zip",
    "vignettes/*.py.md5",
    "vignettes/backreferences",
    "vignettes/sg_execution_times.rst",
]
default_role = "code"  # a single backtick in a docstring
suppress_warnings = ["config.cache", "ref.python"]  # several classes have an attribute of one name

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstring says the types
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"

sphinx_gallery_conf = {
    "examples_dirs": "../vignettes",
    "gallery_dirs": "vignettes",
    "filename_pattern": r"\.py$",
    "download_all_examples": False,
    "show_signature": False,
    "show_memory": False,
    "remove_config_comments": True,
    "backreferences_dir": "vignettes/backreferences",  # for the gallery on the front page
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "write_computation_times": False,
    "min_reported_time": float("inf"),
    "capture_repr": (),
}

html_theme = "furo"
html_title = "fmepy"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False


def split_names(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Give each of several attributes that a docstring names in one line, ``a, b : float``, a line of its own."""
    if "Attributes" not in lines:
        return
    first = lines.index("Attributes") + 2
    last = next((k for k in range(first, len(lines)) if not lines[k]), len(lines))
    entries: list[list[str]] = []
    for line in lines[first:last]:
        if line.startswith(" ") and entries:
            entries[-1].append(line)
        else:
            entries.append([line])
    lines_of_all = []
    for head, *text in entries:
        names, colon, kind = head.partition(" : ")
        lines_of_all += [line for one in names.split(", ") for line in (one + colon + kind, *text)]
    lines[first:last] = lines_of_all


def keep_sentences(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from taking "Bounds: none for ..." of a property for its type and its description."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


def drop_marks(app: Sphinx, doctree: nodes.document) -> None:
    """Drop from code what is meant for ruff alone."""
    for block in doctree.findall(nodes.literal_block):
        block.rawsource = re.sub(r"\s+# (fmt: skip|noqa: \w+)", "", block.rawsource)
        block.children = [nodes.Text(block.rawsource)] if "# " in block.astext() else block.children


def say_pictures(app: Sphinx, doctree: nodes.document) -> None:
    """Take the paragraph above a vignette's picture for its alternative text."""
    above = ""
    for node in doctree.findall(lambda n: isinstance(n, (nodes.paragraph, imgsgnode))):
        if isinstance(node, imgsgnode):
            node["alt"] = above
        else:
            above = node.astext().replace("\n", " ")


def say_thumbnails(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Give the pictures of the gallery the alternative texts that they have in their vignettes."""
    for image in doctree.findall(nodes.image):
        if found := re.search(r"sphx_glr_(\w+)_thumb", image["uri"]):
            pictures = app.env.get_doctree(f"vignettes/{found[1]}").findall(imgsgnode)
            image["alt"] = next((picture["alt"] for picture in pictures), "")


def setup(app: Sphinx) -> None:
    """Connect what is above to the build."""
    app.connect("autodoc-process-docstring", split_names, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", keep_sentences, priority=400)
    app.connect("doctree-read", drop_marks)
    app.connect("doctree-read", say_pictures)
    app.connect("doctree-resolved", say_thumbnails)
