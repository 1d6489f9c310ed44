"""How the site is made: MyST pages, the vignettes by sphinx-gallery, the functions from their docstrings."""

from __future__ import annotations

import os
from pathlib import Path

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
    "backreferences_dir": None,
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "only_warn_on_example_error": False,
    "write_computation_times": False,
    "capture_repr": (),
}

html_theme = "furo"
html_title = "fmepy"
html_static_path = ["_static"] if (Path(__file__).parent / "_static").exists() else []
html_show_sourcelink = False
html_copy_source = False
