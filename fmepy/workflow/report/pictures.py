"""Pictures of the report: matplotlib's SVG, written into the page so that it follows the page's colours.

Each panel is a picture of its own, so that they stand beside each other on a wide screen and below each other, with
letters that can be read, on a narrow one. Texts stay texts, in the page's font. Colours are those of the page's style
sheet (``--c0`` ... for those of all pictures, ``--g0`` ... for greys), so that dark pages have dark pictures. Nothing
depends on the clock, on a user's settings of matplotlib, or on chance: the same results give the same bytes.

What matplotlib wrote is parsed and written again, element by element: names of a file reach the page as escaped text,
and neither as mark-up nor as formulas.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
from markupsafe import Markup

from fmepy.workflow.report.page import Picture, Pictures
from fmepy.workflow.report.words import readable, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

MOST_PANELS = 24
MOST_POINTS = 1500
PANEL, PAIR, SINGLE = (3.5, 2.6), (4.6, 3.0), (5.8, 3.2)
"""Inches of panels that stand three in a row, two, and alone."""

_MOST_LETTERS = 60
_TICKS = 5
_MOST_TICK = 24
_LETTER = 0.075  # inches
_STYLE = {
    "svg.hashsalt": "fmepy", "svg.fonttype": "none", "text.parse_math": False, "font.family": "DejaVu Sans",
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "font.size": 9.5,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "0.5", "axes.linewidth": 0.8,
    "xtick.color": "0.4", "ytick.color": "0.4", "xtick.labelcolor": "0.2", "ytick.labelcolor": "0.2",
    "axes.labelcolor": "0.1", "text.color": "0.1", "path.simplify": True, "legend.frameon": False,
}  # fmt: skip
_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_REFERRED = re.compile(r"url\(#([^)]+)\)")
_HREF = "{http://www.w3.org/1999/xlink}href"
_ROUNDED = {"d", "x", "y", "width", "height", "transform", "points", "x1", "x2", "y1", "y2", "cx", "cy", "r"}


def drawn(
    name: str,
    draw: Callable[[Any], Any],
    texts: Sequence[str],
    *,
    captions: Sequence[str] = (),
    size: tuple[float, float] | None = None,
    caption: str = "",
    panels: int | None = None,
    finish: Callable[[Axes, int], object] | None = None,
) -> Pictures:
    """Return panels as pictures.

    Parameters
    ----------
    name : str
        Names the pictures; once in a page.
    draw : callable
        Gets an array of Axes, one a panel, and draws on them.
    texts : sequence of str
        What each panel shows, in words, for those who cannot see it: as many as there are panels.
    captions : sequence of str
        A line below each panel.
    size : (float, float)
        Of a panel, inches; by default what suits their number.
    caption : str
        A line below all of them.
    panels : int, optional
        How many `draw` needs, where that is more than are shown.
    finish : callable of (Axes, int), optional
        What is to be done to each panel after drawing.
    """
    if size is None:
        size = SINGLE if len(texts) == 1 else PAIR if len(texts) == 2 else PANEL
    with _our_style():
        made = [_panel(size) for _ in range(max(panels or 0, len(texts)))]
        axes: NDArray[np.object_] = np.empty(len(made), dtype=object)
        axes[:] = made
        draw(axes)
        out, thinned = [], ""
        for k, (ax, text) in enumerate(zip(made, texts, strict=False)):
            thinned = _thinned(ax) or thinned
            if finish is not None:
                finish(ax, k)
            below = captions[k] if k < len(captions) else ""
            out.append(Picture(_inlined(_svg_of(ax), f"{name}-{k + 1}", text), below))
    return Pictures(tuple(out), f"{caption} {thinned}".strip(), wide=len(out) == 1)


@contextmanager
def _our_style() -> Iterator[None]:
    import matplotlib.style
    from cycler import cycler

    from fmepy.plotting.axes import COLORS

    ours = {**_STYLE, "axes.prop_cycle": cycler(color=COLORS)}
    with matplotlib.style.context(["default", ours]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the reader's font has it
        yield


def _panel(size: tuple[float, float]) -> Axes:
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasSVG(figure)
    return figure.add_subplot()


def _svg_of(ax: Axes) -> str:
    from matplotlib.text import Text

    figure: Figure = ax.figure.figure
    for axis in (ax.xaxis, ax.yaxis):
        _plain_labels(axis)
    _fewer_ticks(ax, figure.get_size_inches()[0])
    for text in figure.findobj(Text):
        text.set_text(readable(short(text.get_text(), _MOST_LETTERS)))
        text.set_parse_math(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return readable(buffer.getvalue().decode("utf-8"))


def _fewer_ticks(ax: Axes, width: float) -> None:
    """Keep the labels of the horizontal axis apart."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    locator = ax.xaxis.get_major_locator()
    if isinstance(locator, MaxNLocator):
        locator.set_params(nbins=_TICKS if width < SINGLE[0] else 2 * _TICKS)
    letters = sum(len(label.get_text()) for label in ax.get_xticklabels())
    if isinstance(locator, FixedLocator) and letters * _LETTER > 0.7 * width:
        ax.tick_params(axis="x", rotation=35)
        for label in ax.get_xticklabels():
            label.set_horizontalalignment("right")


def _plain_labels(axis: Any) -> None:
    """Let ticks be labelled with plain numbers, not formulas, and with names of a length that fits."""
    from matplotlib.ticker import FixedLocator, Formatter, LogFormatter

    class Plain(Formatter):
        """The numbers of a logarithmic axis, written out, where it would write them."""

        def __init__(self, inner: LogFormatter) -> None:
            self.inner = inner

        def set_axis(self, axis: Any) -> None:
            super().set_axis(axis)
            self.inner.set_axis(axis)

        def set_locs(self, locs: Any) -> None:
            super().set_locs(locs)
            self.inner.set_locs(locs)

        def __call__(self, x: float, pos: Any = None) -> str:
            return f"{x:g}" if self.inner(x, pos) else ""

    for kind in ("major", "minor"):
        formatter = getattr(axis, f"get_{kind}_formatter")()
        if isinstance(formatter, LogFormatter):
            getattr(axis, f"set_{kind}_formatter")(Plain(formatter))
    if isinstance(axis.get_major_locator(), FixedLocator):
        texts = [label.get_text() for label in axis.get_ticklabels()]
        if max(map(len, texts), default=0) > _MOST_TICK:
            axis.set_ticklabels([short(text, _MOST_TICK) for text in texts])


def _inlined(svg: str, name: str, text: str) -> Markup:
    """Return an SVG as it stands in a page."""
    root = ElementTree.fromstring(svg.encode("utf-8"))
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):  # a style sheet in it would be that of the whole page
                parent.remove(child)
    referred = {r for e in root.iter() for v in e.attrib.values() for r in _REFERRED.findall(v)}
    referred |= {e.attrib[_HREF].removeprefix("#") for e in root.iter() if _HREF in e.attrib}
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
        element.attrib = _attributes(element.attrib, name, referred)
    width = float(root.attrib.get("viewBox", "0 0 300 200").split()[2]) * 4 / 3
    root.attrib = {
        "viewBox": root.attrib["viewBox"], "class": "picture", "role": "img", "aria-labelledby": f"{name}-title",
        "style": f"max-width:{width:.0f}px",
    }  # fmt: skip
    title = ElementTree.Element("title", {"id": f"{name}-title"})
    title.text = readable(text)
    root.insert(0, title)
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # written element by element


def _attributes(given: dict[str, str], name: str, referred: set[str]) -> dict[str, str]:
    out = {}
    for key, value in given.items():
        key = key.split("}")[-1]  # xlink:href is href
        if key == "id":
            if value in referred:
                out[key] = f"{name}-{value}"
            continue
        if key == "href" and value.startswith("#"):
            value = f"#{name}-{value[1:]}"
        elif key in _ROUNDED:
            value = _NUMBER.sub(_rounded, value)
        elif key in ("style", "clip-path", "fill", "stroke"):
            value = _REFERRED.sub(lambda m: f"url(#{name}-{m[1]})", _COLOUR.sub(_page_colour, value))
            value = re.sub(r"font: [\d.]+px [^;]*", lambda m: _font(m[0]), value)
        out[key] = value
    return out


def _font(declared: str) -> str:
    """Return a font's size alone; its family is the page's."""
    size = re.search(r"[\d.]+px", declared)
    return f"font-size: {size[0] if size else '10px'}"


def _rounded(found: re.Match[str]) -> str:
    text = f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _page_colour(found: re.Match[str]) -> str:
    from fmepy.plotting.axes import COLORS

    colour = found[0]
    if colour in COLORS:
        return f"var(--c{COLORS.index(colour)})"
    if colour[1:3] == colour[3:5] == colour[5:7]:
        return f"var(--g{round(int(colour[1:3], 16) / 25.5)})"
    return colour


def _thinned(ax: Axes) -> str:
    """Leave evenly spaced points of very many, and return what is to be said of it."""
    said = ""
    for line in ax.lines:
        x, y = (np.asarray(v) for v in line.get_data(orig=True))
        step = -(-x.size // MOST_POINTS)
        if step > 1 and line.get_marker() not in ("None", None, "", " "):
            line.set_data(x[::step], y[::step])
            said = f"Of very many points one in {step} is drawn."
    return said
