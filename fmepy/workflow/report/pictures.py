"""Pictures of the report: matplotlib's SVG as images inside the page, on white.

Each panel is a picture of its own, so that they are next to each other on a wide screen and below each other, with
letters that can be read, on a narrow one. Nothing depends on the clock, on a user's settings of matplotlib, or on
chance: the same results give the same bytes. An image runs no script and asks nothing of a network, whatever names of a
file it shows; they are written as text, never as formulas.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import numpy as np

from fmepy.types import Axes
from fmepy.workflow.report.words import readable, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn = TypeVar("Drawn")
MOST_PANELS = 24
MOST_POINTS = 1500
PANEL, PAIR, SINGLE = (3.4, 2.5), (5.0, 3.1), (8.6, 3.3)
"""Inches of panels that stand three in a row, two, and alone."""

_MOST_LETTERS = 60
_MOST_TICK = 24
_LETTER = 0.075  # inches
_STYLE = Path(__file__).parent / "templates" / "pictures.mplstyle"
_NUMBER = re.compile(r"(?<=[ MLQCHV,(\"])-?\d+\.\d{3,}(?=[ \",)\n])")
_SAFE = " !$'()*+,-./:;=?@[]_|~"  # what an attribute between double quotes, and an address, may hold as it is


@dataclass(frozen=True)
class Picture:
    """A picture: the address of an image, what it shows in words, and a line below it."""

    source: str
    text: str
    caption: str = ""


@dataclass(frozen=True)
class Pictures:
    """Pictures next to each other; `is_wide` ones have a line of their own."""

    pictures: tuple[Picture, ...]
    caption: str = ""
    is_wide: bool = False


def drawn(
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
        axes = np.array([_panel(size) for _ in range(max(panels or 0, len(texts)))], dtype=object)
        draw(axes)
        out, thinned = [], ""
        for k, (ax, text) in enumerate(zip(axes, texts, strict=False)):
            thinned = _thinned(ax) or thinned
            if finish is not None:
                finish(ax, k)
            out.append(Picture(_image(_svg_of(ax)), readable(text), captions[k] if k < len(captions) else ""))
    return Pictures(tuple(out), f"{caption} {thinned}".strip(), is_wide=len(out) == 1)


def drawn_each(
    names: Sequence[str],
    draw: Callable[..., Any],
    text: str,
    *,
    notes: Mapping[str, str] | None = None,
    file: str = "",
    caption: str = "",
    **how: Any,
) -> Pictures:
    """Return a picture of each of the first of some names.

    Parameters
    ----------
    names : sequence of str
    draw : callable of (names, axes=)
    text : str
        What a panel shows, with ``{}`` for its name, and ``{note}`` for its note.
    notes : mapping of str to str, optional
    file : str
        That holds the numbers of all.
    caption : str
    **how
        See `drawn`.
    """
    shown, rest = first_few(names, MOST_PANELS, file)
    texts = [text.replace("{note}", (notes or {}).get(name, "")).replace("{}", name) for name in shown]
    return drawn(lambda axes: draw(shown, axes=axes), texts, caption=f"{caption} {rest}".strip(), **how)


def drawn_parts(
    parts: Mapping[str, Any], by: str | None, draw: Callable[[Any, str, Any, str], Any], text: str, file: str
) -> Pictures:
    """Return a picture for each variable of each entity.

    Parameters
    ----------
    parts : mapping of str to summary of runs
        By entity; one of the name "" where there are none.
    by : str or None
        The column of the entities.
    draw : callable of (Axes, entity, part, variable)
    text, file : str
        See `drawn_each`.
    """
    panels = [(label, part, name) for label, part in parts.items() for name in part.frame["var"].unique()]
    titles = [f"{by} {label}: {name}" if len(parts) > 1 else name for label, _, name in panels]

    def draw_all(_: Sequence[str], axes: Any) -> None:
        for ax, panel in zip(axes, panels, strict=False):
            draw(ax, *panel)

    return drawn_each(titles, draw_all, text, file=file, captions=titles if len(parts) > 1 else [])


def first_few(names: Sequence[Drawn], most: int, file: str = "") -> tuple[list[Drawn], str]:
    """Return the first names, and a sentence on the others: how many, and the file with all of them."""
    if len(names) <= most:
        return list(names), ""
    rest = f"; the numbers of all are in {file}" if file else ""
    return list(names[:most]), f"The first {most} of {len(names):,} are drawn{rest}."


@contextmanager
def _our_style() -> Iterator[None]:
    import matplotlib.style
    from cycler import cycler

    from fmepy.plotting.axes import COLORS

    ours = {"axes.prop_cycle": cycler(color=COLORS)}
    with matplotlib.style.context(["default", _STYLE, ours]), warnings.catch_warnings():
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

    from fmepy.plotting.ticks import tidy_ticks

    figure: Figure = ax.figure.figure
    tidy_ticks(ax)
    _fit_names(ax, figure.get_size_inches()[0])
    for text in figure.findobj(Text):
        text.set_text(readable(short(text.get_text(), _MOST_LETTERS)))
        text.set_parse_math(False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return readable(buffer.getvalue().decode("utf-8"))


def _fit_names(ax: Axes, width: float) -> None:
    """Cut long tick labels, and slant those of the horizontal axis that would overlap."""
    from matplotlib.ticker import FixedLocator

    for axis in (ax.xaxis, ax.yaxis):
        texts = [label.get_text() for label in axis.get_ticklabels()]
        if not isinstance(axis.get_major_locator(), FixedLocator):
            continue
        if max(map(len, texts), default=0) > _MOST_TICK:
            axis.set_ticklabels([short(text, _MOST_TICK) for text in texts])
        if axis is ax.xaxis and sum(map(len, texts)) * _LETTER > 0.7 * width:
            for label in axis.get_ticklabels():
                label.set(rotation=35, horizontalalignment="right")


def _image(svg: str) -> str:
    """Return an SVG as an address: lengths to a hundredth of a point, without what comes before the element."""
    lines = svg[svg.index("<svg") :].split("\n")  # texts stand on lines of their own
    short = (_NUMBER.sub(_rounded, line) if "<text" not in line else line for line in lines)
    return "data:image/svg+xml," + quote("\n".join(short), safe=_SAFE)


def _rounded(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _thinned(ax: Axes) -> str:
    """Draw every n-th of very many points, and return a note on that."""
    note = ""
    for line in ax.lines:
        x, y = (np.asarray(v) for v in line.get_data(orig=True))
        step = -(-x.size // MOST_POINTS)
        if step > 1 and line.get_marker() not in ("None", None, "", " "):
            line.set_data(x[::step], y[::step])
            note = f"One in {step} of very many points is drawn."
    return note
