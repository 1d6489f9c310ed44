"""Build the pages of the public functions and of every room into docs/_build, from the docstrings."""

from __future__ import annotations

from pathlib import Path

import pdoc

if __name__ == "__main__":
    output = Path(__file__).parent / "_build"
    pdoc.render.configure(docformat="numpy", math=True, footer_text="fmepy")
    pdoc.pdoc("fmepy", output_directory=output)
    print(f"Open {output / 'index.html'}")
