"""What a reader sees of a figure: its texts where they are drawn, panels in inches, legends and what they cover."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.text import Text


def drawn_texts(figure: Any) -> list[Text]:
    """Return the texts that are drawn: of a tick those inside the limits of its axis."""
    out = [figure._suptitle] if figure._suptitle is not None else []
    for ax in figure.axes:
        out += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts, ax.xaxis.get_offset_text()]
        out += [ax.yaxis.get_offset_text()]
        if (legend := ax.get_legend()) is not None:
            out += [legend.get_title(), *legend.get_texts()]
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            low, high = sorted(axis.get_view_interval())
            slack = 1e-9 * (high - low)
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if low - slack <= tick.get_loc() <= high + slack:
                    out += [label for label in (tick.label1, tick.label2) if label.get_visible()]
    return [t for t in out if t.get_visible() and t.get_text().strip()]


def overlapping_texts(figure: Any) -> list[tuple[str, str]]:
    """Return the pairs of texts that are drawn over each other."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    boxes = [(t.get_text(), t.get_window_extent(renderer)) for t in drawn_texts(figure)]
    return [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if _common(one, other)]


def covered_panels(figure: Any) -> list[str]:
    """Return the labels of legends, and the titles, that stand on a panel."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    out = []
    for ax in figure.axes:
        above = [ax.title, *([] if ax.get_legend() is None else [ax.get_legend()])]
        boxes = [a.get_window_extent(renderer) for a in above]
        out += [
            str(a) for a, box in zip(above, boxes, strict=True) for other in figure.axes if _common(box, other.bbox)
        ]
    return out


def panel_sizes(figure: Any) -> np.ndarray:
    """Return width and height of every panel, inches, shape (n_panel, 2)."""
    figure.canvas.draw()
    return np.array([[ax.bbox.width, ax.bbox.height] for ax in figure.axes]) / figure.dpi


def tick_labels(axis: Any) -> list[str]:
    """Return the labels of an axis that are drawn."""
    axis.figure.canvas.draw()
    low, high = sorted(axis.get_view_interval())
    return [t.label1.get_text() for t in axis.get_major_ticks() if low <= t.get_loc() <= high]


def _common(a: Any, b: Any) -> bool:
    width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
    return bool(width > 1 and height > 1 and min(a.width, a.height, b.width, b.height) > 0)
