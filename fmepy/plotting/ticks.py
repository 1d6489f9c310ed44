"""Ticks of every picture: no offsets, whole numbers for years and counts, labels that do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import rcParams
from matplotlib.font_manager import FontProperties
from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from fmepy.types import Axes

_LARGE = 1000.0  # such as years: fractions of them are of no use as long as there are whole numbers
_LETTER = 0.65  # of the size of a font


class PlainNumbers(ScalarFormatter):
    """Numbers in full, "1.5e6" where they are very large or small, without an offset next to the axis."""

    def __init__(self) -> None:
        super().__init__(useOffset=False, useMathText=False)

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick."""
        power = super().get_offset().removeprefix("1")  # such as "1e6"
        return super().__call__(x, pos) + (power if x else "")

    def get_offset(self) -> str:
        """Return nothing: the tick labels say it all."""
        return ""


class RoomyLocator(MaxNLocator):
    """As many ticks of a horizontal axis as there is room for their labels; whole numbers where the data are."""

    def __init__(self) -> None:
        self.most = 9
        super().__init__(nbins=self.most, steps=[1, 2, 2.5, 5, 10])

    def set_params(self, **kwargs: Any) -> None:
        """Take matplotlib's settings, of which `nbins` is the most there may be."""
        self.most = kwargs.get("nbins", self.most) if kwargs.get("nbins") != "auto" else 9
        super().set_params(**kwargs)

    def __call__(self) -> Any:
        """Return the places of the ticks."""
        axis: Any = self.axis
        low, high = sorted(map(float, axis.get_view_interval()))
        whole = min(abs(low), abs(high)) >= _LARGE or _holds_whole_numbers(axis.axes)
        size, width = _size_and_width(axis)
        for n in range(self.most, 0, -1):
            super().set_params(nbins=n, integer=whole)
            ticks = np.asarray(super().__call__())
            shown = ticks[(ticks >= low) & (ticks <= high)]
            if len(shown) < 2:
                return ticks
            letters = max(map(len, axis.get_major_formatter().format_ticks(shown)))
            if (letters * _LETTER + 0.8) * size < width * (shown[1] - shown[0]) / (high - low):
                return ticks
        return shown[len(shown) // 2 :][:1]


class PlainLogLocator(LogLocator):
    """Powers of ten; over few of them 1, 2, 5, and within one what a linear axis has: each has its label."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the places of the ticks."""
        low, high = sorted((float(vmin), float(vmax)))
        decades = np.log10(high / low) if low > 0 else np.inf
        if decades < 0.7:
            return MaxNLocator(5).tick_values(low, high)
        self.set_params(subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,))
        return super().tick_values(vmin, vmax)


def _size_and_width(axis: Any) -> tuple[float, float]:
    """Return the size of the labels of a horizontal axis, and its width, in points."""
    wanted = axis.get_tick_params().get("labelsize", rcParams["xtick.labelsize"])
    size = FontProperties(size=wanted).get_size_in_points()
    return float(size), axis.axes.bbox.width * 72 / axis.axes.figure.figure.dpi


def _plain(value: float, _: Any = None) -> str:
    return f"{value:.10g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def _holds_whole_numbers(ax: Axes) -> bool:
    lines = [line for line in ax.lines if line.get_transform().contains_branch_seperately(ax.transData)[0]]
    values = [np.asarray(line.get_xdata(orig=False), dtype=float) for line in lines]
    return bool(values) and all((v[np.isfinite(v)] % 1 == 0).all() for v in values)


def _open_up(axis: Any) -> None:
    """Widen the limits around a quantity that varies by rounding alone, whose ticks would all be the same number."""
    low, high = sorted(map(float, axis.get_view_interval()))
    size = max(abs(low), abs(high))
    if high - low < 1e-11 * size:
        axis.axes.set(**{f"{axis.axis_name}lim": (low - 0.05 * size, high + 0.05 * size)})


def date_ticks(axis: Any, origin: Any, seconds: float) -> None:
    """Give a horizontal axis of times since an origin, in a unit of so many seconds, the dates that they are."""
    import matplotlib.dates

    dates: Any = matplotlib.dates  # which has no types
    start, days, locator = dates.date2num(origin), seconds / 86_400, dates.AutoDateLocator(origin.tzinfo)
    ends = start + days * np.array(axis.get_view_interval())
    places = np.array(locator.tick_values(*(dates.num2date(end, origin.tzinfo) for end in ends)))
    places = places[(ends[0] <= places) & (places <= ends[1])]
    written = dates.AutoDateFormatter(locator, origin.tzinfo)
    written.scaled[1 / 24] = "%m-%d %H:%M"
    (size, width), labels = _size_and_width(axis), np.array(list(map(written, places)), dtype=object)
    letters = max(map(len, labels), default=0)
    some = slice(None, None, int(np.ceil(len(places) * (letters * _LETTER + 0.8) * size / width)) or 1)
    axis.set_ticks((places[some] - start) / days, labels[some].tolist())


def tidy_ticks(ax: Axes) -> None:
    """Set these ticks on the axes of a panel, unless others are set."""
    for axis in (ax.xaxis, ax.yaxis):
        _open_up(axis)
        if type(axis.get_major_formatter()) is ScalarFormatter:
            axis.set_major_formatter(PlainNumbers())
        if type(axis.get_major_locator()) is LogLocator:
            axis.set_major_locator(PlainLogLocator())
            axis.set_major_formatter(FuncFormatter(_plain))
            axis.set_minor_formatter(NullFormatter())
    if type(ax.xaxis.get_major_locator()) is AutoLocator:
        ax.xaxis.set_major_locator(RoomyLocator())
