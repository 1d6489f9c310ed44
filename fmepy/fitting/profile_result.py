"""What `profile` returns: the profiles, their intervals, and a sentence on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import listed
from fmepy.fitting.profile_walk import Side, Sides
from fmepy.fitting.refits import Held
from fmepy.parallel.runs import INTERRUPTED
from fmepy.parameters.scales import mark
from fmepy.results.tables import Framed, Part, bullets, long_table, wrapped
from fmepy.types import AxesArray
from fmepy.vocabulary import by_name

_ALL_BUT_FLAT = 0.1  # of the threshold of the likelihood ratio
_FOLLOWS = 0.5  # relative change of another parameter along a flat profile that is worth telling


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Profile(Framed):
    """Profile likelihoods of parameters or predictions.

    Attributes
    ----------
    frame : DataFrame
        A row for each value at which the others were fitted again, value by value, the optimum among them: parameter,
        value, cost (what was minimised), ratio (the likelihood ratio statistic T), root (its signed root), then all
        parameters there.
    intervals : DataFrame
        By parameter: estimate, lower, upper, level. An end is where the profile crosses its threshold, the bound on
        which it ends below it, or infinite where it is open.
    verdicts : Series of str
        By parameter, a sentence that begins with one of: identifiable, one-sided, flat, at a bound, better optimum
        (unfinished after Ctrl-C).
    par : Series
        The optimum that the profiles belong to: that of the fit, or a better one.
    cost : float
        What was minimised, there.
    standard_error : Series
        By parameter, from the curvature at the optimum; infinite where there is none. It makes the quadratic
        approximation: root = (value - estimate) / standard_error.
    failures : DataFrame
        Re-fits that came to nothing: parameter, value, message.
    level, threshold : float
        Of the intervals; the quantile that `root` is compared with.
    df : float
        Of the F distribution, 1 and df; NaN for chi-square.
    message : str
        What is to be said of all of them.
    evaluations : int
    interrupted : bool
        True if Ctrl-C ended it: the sides are as long as they came.
    predicted : DataFrame or None
        Of predictions of a model, by label: variable, time, entity; sd of a reading there and the scale on which it is.
    calendar : tuple or None
        What the dates of the cost's data were, see `fmepy.tables.sheet.with_times`, for pictures of predictions.
    """

    elsewhere = by_name({"confint conf_int confidence ci conf_interval ci_report": "`intervals`"})
    frame: pd.DataFrame
    intervals: pd.DataFrame
    verdicts: pd.Series
    par: pd.Series
    cost: float
    standard_error: pd.Series
    failures: pd.DataFrame
    level: float
    threshold: float
    df: float
    message: str = ""
    evaluations: int = 0
    interrupted: bool = False
    predicted: pd.DataFrame | None = None
    calendar: Any = None

    @property
    def test(self) -> str:
        """Distribution of the likelihood ratio, in words."""
        return "chi-square, 1 degree of freedom" if np.isnan(self.df) else f"F, 1 and {self.df:g} degrees of freedom"

    def shown(self) -> list[str | Part]:
        """Return the intervals, the verdicts, and the message."""
        head = f"Profile likelihood, {100 * self.level:g} % intervals by {self.test}"
        said = bullets(f"{name}: {text}" for name, text in self.verdicts.items())
        return [head, long_table(self.intervals), *said, *([wrapped(self.message)] if self.message else [])]

    def plot(self, which: Any = None, *, paths: Any = False, axes: Any = None, **kwargs: Any) -> AxesArray:
        """Draw one panel a parameter: profile, threshold, quadratic approximation; return the Axes.

        `paths`: True draws how the other parameters follow instead.
        """
        from fmepy.plotting.profiles import plot_profile

        return plot_profile(self, which, paths=paths, axes=axes, **kwargs)


def profile_of(
    found: Sides, things: Mapping[str, Held], level: float, predicted: pd.DataFrame | None, calendar: Any
) -> Profile:
    """Return what was found as tables and sentences."""
    best = found.best
    transforms = best.search.objective.transforms
    frames, ends, verdicts, failed = [], {}, {}, []
    for name, held in things.items():
        low, high = found.sides[name, -1.0], found.sides[name, 1.0]
        estimate = held.place(best.theta)
        frames.append(_frame(name, estimate, low, high, found))
        limits = held.limits(best.search)
        ends[name] = (estimate, *(_end(side, k, limits) for k, side in enumerate((low, high))), level)
        said = _said(name, estimate, (low, high), limits, found, level)
        verdicts[name] = _of_better(name, found) + said
        failed += [(name, refit.place, refit.message) for side in (low, high) for refit in side.failed]
    index = list(things)
    return Profile(
        frame=pd.concat(frames, ignore_index=True),
        intervals=pd.DataFrame.from_dict(ends, orient="index", columns=["estimate", "lower", "upper", "level"]),
        verdicts=pd.Series(verdicts, index=index, dtype=object),
        par=mark(pd.Series(best.theta, index=list(best.names)), transforms),
        cost=best.cost,
        standard_error=pd.Series([found.sides[n, 1.0].standard_error for n in index], index=index),
        failures=pd.DataFrame(failed, columns=["parameter", "value", "message"]),
        level=level,
        threshold=best.threshold(level),
        df=best.df,
        message=" ".join([*best.notes, *_of_failures(failed), *found.notes]),
        evaluations=found.evaluations,
        interrupted=found.interrupted,
        predicted=predicted,
        calendar=calendar,
    )


def _frame(name: str, estimate: float, low: Side, high: Side, found: Sides) -> pd.DataFrame:
    best = found.best
    values = np.concatenate([low.values[::-1], [estimate], high.values])
    costs = np.concatenate([low.costs[::-1], [best.cost], high.costs])
    ratio = np.maximum(costs - best.cost, 0.0) / best.search.unit
    head = {
        "parameter": name,
        "value": values,
        "cost": costs,
        "ratio": ratio,
        "root": np.sign(values - estimate) * np.sqrt(ratio),
    }
    thetas = np.vstack([low.thetas[::-1], best.theta[None], high.thetas])
    own = {n if n not in head else f"{n}_": thetas[:, j] for j, n in enumerate(best.names)}
    return pd.DataFrame({**head, **own})


def _end(side: Side, k: int, limits: tuple[float, float]) -> float:
    """Return one end of the interval."""
    if len(side.ends):
        return float(side.ends[0])
    if side.ended == "bound":
        return limits[k] if np.isfinite(limits[k]) else float(side.values[-1])
    return (-np.inf, np.inf)[k]


def _closed_by(side: Side, found: Sides, threshold: float) -> list[str]:
    """Return the parameters whose bounds end a side, not the data: up to there the profile was all but flat."""
    search, best = found.best.search, found.best
    if not len(side.ends):
        return []
    on = (side.thetas == search.lower) | (side.thetas == search.upper)
    new = on & ~((best.theta == search.lower) | (best.theta == search.upper))
    first = int(np.argmax(new.any(axis=1))) if new.any() else len(new)
    before = side.costs[first - 1] - best.cost if first else 0.0
    if first == len(new) or before > _ALL_BUT_FLAT * threshold**2 * search.unit:
        return []
    return [n for n, b in zip(best.names, new[first], strict=True) if b]


def _of_failures(failed: Sequence[tuple[str, float, str]]) -> list[str]:
    failed = [one for one in failed if one[2] != INTERRUPTED[1]]
    if not failed:
        return []
    n = len(failed)
    return [f"{n} {'re-fit' if n == 1 else 're-fits'} failed (.failures); the last one: {failed[-1][2]}"]


# ---------------------------------------------------------------------------------------------------------- sentences


def _of_better(name: str, found: Sides) -> str:
    """Return how a sentence begins where a better optimum was found along this profile."""
    better = [b for b in found.better if b[0] == name]
    if not better:
        return ""
    _, value, before, after = better[-1]
    return (
        f"better optimum: at {name} = {value:.5g} the cost fell below that of the fit, {before:.7g}, and from there to "
        f"{after:.7g}; all profiles were started again from it. There, "
    )


def _said(
    name: str, estimate: float, sides: tuple[Side, Side], limits: tuple[float, float], found: Sides, level: float
) -> str:
    percent = f"{100 * level:g} %"
    ends = [_end(side, k, limits) for k, side in enumerate(sides)]
    by_others = [_closed_by(side, found, found.best.threshold(level)) for side in sides]
    crossed = [bool(len(side.ends)) and not others for side, others in zip(sides, by_others, strict=True)]
    for side, is_crossed in zip(sides, crossed, strict=True):
        if side.ended == "interrupted" and not is_crossed:
            return "unfinished: interrupted before both ends were found."
        if side.ended == "better" and not is_crossed:
            return f"unfinished: better optima were found again and again, the last one at {found.best.cost:.7g}."
    if all(crossed):
        return f"identifiable: {estimate:.5g}, {percent} between {ends[0]:.5g} and {ends[1]:.5g}."
    reached_by = [_reached(side, k, limits, by_others[k], ends[k]) for k, side in enumerate(sides)]
    if not any(crossed):
        return f"flat: {reached_by[0]}, {reached_by[1]}.{_followers(name, sides, found)}"
    k = 0 if crossed[1] else 1
    closed = f"{('above', 'below')[k]} it ends at {ends[1 - k]:.5g} ({percent})"
    opening = "at a bound" if sides[k].ended == "bound" or by_others[k] else "one-sided"
    return f"{opening}: {closed}; {reached_by[k]}.{_followers(name, (sides[k],), found)}"


def _reached(side: Side, k: int, limits: tuple[float, float], by_others: Sequence[str], end: float) -> str:
    """Return how far the profile was followed without the data ending it."""
    stays = f"{('below', 'above')[k]} it stays under the threshold to"
    if by_others:
        bounds = ("bound", "ends") if len(by_others) == 1 else ("bounds", "end")
        return f"{stays} {end:.5g}, where the {bounds[0]} of {listed(by_others)} {bounds[1]} it"
    last = f"{side.values[-1]:.5g}" if len(side.values) else "the estimate"
    message = side.failed[-1].message.rstrip(".") if side.failed else "no message"
    why = {
        "bound": ", its bound" if np.isfinite(limits[k]) else ", beyond which the model gives no value",
        "decades": ", eight decades off",
        "failed": f", beyond which re-fits fail ({message})",
        "most": ", where the limit of re-fits ended it",
    }
    return f"{stays} {last}{why.get(side.ended, '')}"


def _followers(name: str, sides: Sequence[Side], found: Sides) -> str:
    """Return which parameters change along with one that is not determined."""
    theta = found.best.theta
    thetas = np.vstack([s.thetas for s in sides])
    if not len(thetas):
        return ""
    with np.errstate(divide="ignore", invalid="ignore"):
        change = np.abs(thetas - theta).max(axis=0) / np.abs(theta)
    names = [n for n, c in zip(found.best.names, change, strict=True) if c > _FOLLOWS and n != name]
    return f" Along it {listed(names)} {'changes' if len(names) == 1 else 'change'} too." if names else ""
