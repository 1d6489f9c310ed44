"""The sections on the fit: the estimates and how well they agree with the data, and the optima of many starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from fmepy.workflow.report.agreement import agreement_of, residual_pictures, say_agreement
from fmepy.workflow.report.asked import filtered_pictures
from fmepy.workflow.report.findings import Findings, attempt
from fmepy.workflow.report.page import Draft, Pictures, Section, Table
from fmepy.workflow.report.pictures import SINGLE, drawn
from fmepy.workflow.report.tables import table_of
from fmepy.workflow.report.words import count, have, names, number, percent
from fmepy.workflow.steps.multistart import natural_columns
from fmepy.workflow.steps.scale import at_natural_end, estimates, interval, natural

_LOOSE = 0.5
_ALIKE = 0.95
_MOST_BARS = 40
_WIDEST = 200.0
_MOST_CORRELATED = 20
_MISSED = 0.1  # chance of another optimum above which a reader is warned


def fit_section(found: Findings, result: Any) -> Section:
    """Return the estimates, how far they can be trusted, and how the model agrees with the data there."""
    draft = Draft()
    if found.fit is not result:
        draft.say("All that follows is of the better fit that the search from many starts found (see multistart).")
    say_fit(draft, found)
    return Section("fit", "The best fit", tuple(draft.blocks))


def say_fit(draft: Draft, found: Findings) -> None:
    """Add what is to be said of the best fit."""
    fit: Any = found.fit
    draft.say(_how_it_ended(fit), tone="" if fit.converged else "bad")
    section = "fit" if found.results.get("fit") is not None else "multistart"
    if not fit.converged:
        found.doubt(section, _how_it_ended(fit))
    if (not fit.converged or fit.failures) and not found.has_failed(section):
        draft.say(fit.message)
    draft.say(_on_size(fit))
    ends = interval(found.task, fit)
    table = estimates(found.task, fit).assign(**{"from": ends["lower"].to_numpy(), "to": ends["upper"].to_numpy()})
    draft.head("Estimates and their uncertainty")
    if fit.converged:
        loose, others = _on_estimates(found, table, fit)
        for sentence in loose:
            found.doubt(section, sentence)
        draft.list([*loose, *others])
    else:
        draft.say("They are where the search stopped. How surely the data determine the parameters is not known there.")
    draft.add(_estimate_table(found, table))
    attempt(draft, "The picture of the estimates", lambda: _bars(table))
    draft.add(_correlations(fit))
    draft.head("Agreement with the data")
    agreement = agreement_of(found)
    if agreement is not None and len(agreement.rows):
        for sentence in say_agreement(draft, found, agreement):
            found.doubt(section, sentence)
        attempt(draft, "The picture of the deviations", lambda: residual_pictures(found, agreement))
    elif found.filtered is not None:
        summary = found.filtered.summary([k for k in found.par if k in found.filtered.parms.index])
        for title in ("Do model and data agree?", "Suspected data", "Jumps of states"):
            if title in summary.sections:
                draft.list(
                    f"{title.rstrip('?')}: {s}" if title != "Do model and data agree?" else s
                    for s in summary.sections[title]
                )
        if "filter" not in found.results:
            if not summary.agrees:
                found.doubt(section, "Model and data disagree, as the filter's tests say.")
            attempt(draft, "The picture of the filter", lambda: filtered_pictures(found, "fit"))
    else:
        draft.say(
            "The cost is one number, without residuals of single readings: agreement cannot be told reading by reading."
        )


def _how_it_ended(fit: Any) -> str:
    worth = (
        f"-2 log likelihood {number(fit.minus2loglik, 6)}" if fit.is_scalar else f"sum of squares {number(fit.ssr, 6)}"
    )
    n = count(fit.iterations, "iteration")
    runs = count(fit.evaluations, "run")
    if fit.interrupted:
        return (
            f"The search was interrupted after {n} and {runs} of the model: these are the best values so far ({worth})."
        )
    if not fit.converged:
        return (
            f"The search did NOT converge, after {n} and {runs} of the model: do not take these values for "
            f"estimates ({worth})."
        )
    return f"The search converged after {n} and {runs} of the model ({worth}; method {fit.method})."


def _on_size(fit: Any) -> str:
    told = f"{count(len(fit.names), 'parameter')} {'was' if len(fit.names) == 1 else 'were'} estimated"
    if np.isfinite(fit.nobs):
        left = fit.nobs - fit.rank
        told += f" from {count(int(fit.nobs), 'reading')}"
        if left < len(fit.names):
            told += f": few, for only {int(left)} are left to say how well the model fits"
    told += "."
    if fit.rank < len(fit.names):
        told += f" The data determine no more than {fit.rank} of them."
    if fit.with_prior:
        told += " Prior knowledge of parameters took part, as the file says it."
    return told


def _on_estimates(found: Findings, table: pd.DataFrame, fit: Any) -> tuple[list[str], list[str]]:
    """Return what speaks against the estimates, and what else there is to say of them."""
    out, others = [], []
    bound = [str(p) for p, b in zip(table["parameter"], table["at_bound"], strict=True) if _says_bound(b)]
    ends = [p for p in bound if p in at_natural_end(found.task, fit)]
    if ends:
        others.append(
            f"{names(ends)} {have(ends, 'lies', 'lie')} where {have(ends, 'it ends', 'they end')} by nature: the data "
            f"ask for no more of {have(ends, 'it', 'them')}, and {have(ends, 'it has', 'they have')} no standard error."
        )
    moved = [p for p in bound if p not in ends]
    if moved:
        out.append(
            f"{names(moved)} {have(moved, 'lies', 'lie')} on a bound: there the bound decides, not the data, and "
            f"{have(moved, 'it has', 'they have')} no standard error. Widen the bound unless it is physical."
        )
    share = (table["se"] / table["estimate"].abs()).replace([np.inf], np.nan)
    known = pd.Series(share.to_numpy(dtype=float), index=table["parameter"].map(str)).dropna()
    loose = known[known > _LOOSE].sort_values(ascending=False)
    if len(loose):
        out.append(
            f"Hardly determined: {names([f'{n} (± {percent(v)})' for n, v in loose.items()])}. Their standard "
            f"error is more "
            "than half of the estimate."
        )
    good = known[known <= _LOOSE]
    if len(good):
        least = f"; of the others {good.idxmax()} is known least, to ± {percent(good.max())}" if len(good) > 1 else ""
        others.append(f"Best determined is {good.idxmin()}, to ± {percent(good.min())}{least}.")
    without = [
        str(p)
        for p, s in zip(table["parameter"], table["se"], strict=True)
        if not np.isfinite(s) and str(p) not in bound
    ]
    if without:
        out.append(
            f"No standard error could be given for {names(without)}: the data do not determine "
            f"{have(without, 'it', 'them')} alone."
        )
    pairs = _alike(fit)
    if pairs:
        others.append(
            f"Hard to tell apart: {names([f'{a} and {b} (correlation {r:.2f})' for a, b, r in pairs], 5)}. A "
            f"change of one can be "
            "made up for by the other."
        )
    return out, others


def _says_bound(value: Any) -> bool:
    return bool(value) and str(value) not in ("False", "nan", "no", "")


def _alike(fit: Any) -> list[tuple[str, str, float]]:
    R = np.asarray(fit.correlation, dtype=float)
    found = [(i, j) for i in range(len(R)) for j in range(i) if abs(R[i, j]) > _ALIKE]
    found.sort(key=lambda ij: -abs(R[ij]))
    return [(fit.names[j], fit.names[i], float(R[i, j])) for i, j in found]


def _estimate_table(found: Findings, table: pd.DataFrame) -> Table:
    told = [str(n) for n in table["parameter"]]
    shown = pd.DataFrame({"parameter": told, "estimate": table["estimate"], "standard error": table["se"]})
    shown["± %"] = 100 * shown["standard error"] / shown["estimate"].abs().replace(0.0, np.nan)
    shown["95 % from"], shown["to"] = table["from"], table["to"]
    bound = ["yes" if _says_bound(b) else "" for b in table["at_bound"]]
    if any(bound):
        shown["on a bound"] = bound
    for what, texts in (("unit", found.task.units), ("what it is", found.task.descriptions)):
        own = [texts.get(n) or texts.get(n.split("[")[0], "") for n in told]
        if any(own):
            shown[what] = own

    def tone(row: Any, column: str) -> str:
        return "bad" if (column == "± %" and row["± %"] > 100 * _LOOSE) or column == "on a bound" else ""

    return table_of(shown, "Estimates", file="estimates.csv", most=200, tone=tone)


def _bars(table: pd.DataFrame) -> Pictures | None:
    """Return each estimate with its interval, relative to the estimate, so that all have one axis."""
    ends = table[["from", "to"]].to_numpy(dtype=float)
    rows = table[np.isfinite(ends).all(axis=1) & (table["estimate"] != 0)]
    if not len(rows) or len(rows) > _MOST_BARS:
        return None
    size = rows["estimate"].abs()
    low, high = (100 * ((rows[end] - rows["estimate"]) / size).to_numpy(dtype=float) for end in ("from", "to"))
    labels = [str(n) for n in rows["parameter"]]

    def draw(axes: Any) -> None:
        ax, at = axes[0], np.arange(len(rows))
        limit = 1.08 * min(float(max(-low.min(), high.max())), _WIDEST)
        ax.axvline(0.0, color="0.6", linewidth=0.8)
        ax.hlines(at, np.maximum(low, -limit), np.minimum(high, limit), color="C0", linewidth=3, alpha=0.55)
        ax.plot(np.zeros(len(rows)), at, "o", color="C0", markersize=5)
        ax.set_yticks(at, labels)
        ax.set(xlabel="95 % interval, in per cent of the estimate", xlim=(-limit, limit), ylim=(len(rows) - 0.4, -0.6))

    clipped = " Bars that reach an edge go on." if max(-low.min(), high.max()) > _WIDEST else ""
    text = "95 % interval of each estimate, in per cent of it: " + names(
        [f"{n} {number(a, 2)} to +{number(b, 2)}" for n, a, b in zip(labels, low, high, strict=True)], 20
    )
    return drawn("fit-intervals", draw, [f"{text}."], size=(SINGLE[0], 1.1 + 0.27 * len(rows)),
                 caption=f"From the curvature of the fit at its best point; profiles and chain tell it without "
                     f"that.{clipped}")  # fmt: skip


def _correlations(fit: Any) -> Any:
    frame = fit.correlation
    if not 1 < len(frame) <= _MOST_CORRELATED or not np.isfinite(frame.to_numpy()).any():
        return None
    from fmepy.workflow.report.page import Folded

    shown = frame.round(3).reset_index(names="parameter")
    shown.columns = [str(c) for c in shown.columns]

    def tone(row: Any, column: str) -> str:
        return "bad" if column not in ("parameter", row["parameter"]) and abs(row[column]) > _ALIKE else ""

    caption = "Correlations of the estimates: near 1 or -1 a change of one is made up for by the other"
    return Folded("Correlations of the estimates", (table_of(shown, caption, tone=tone),))


def multistart_section(found: Findings, result: Any) -> Section:
    """Return the optima found, and whether a better one may have been missed."""
    draft, many = Draft(), result.multistart
    draft.say(
        "A search can end in a place that is best only among its neighbours. So it was begun anew from many "
        "points spread "
        "over the bounds: where most searches come to the same best value, that can be trusted."
    )
    if many is None:
        draft.say("There was one start only.")
        _fit_of_starts(draft, found)
        return Section("multistart", "Was the best fit found?", tuple(draft.blocks))
    n, reached = len(many.starts), int(many.reached)
    alone = _on_missed(many)
    draft.say(f"{reached} of {count(n, 'start')} came to the best value.", tone="bad" if alone else "")
    if alone:
        found.doubt("multistart", alone)
    draft.list(_said(many))
    texts = [
        f"Values of {n} searches in rising order; {reached} of them are at the lowest step.",
        "Parameters at which the searches ended, each on its own scale, coloured by optimum.",
    ]

    def draw(axes: Any) -> None:
        many.plot("waterfall", ax=axes[0])
        _natural(found, result).plot("parameters", ax=axes[1])

    attempt(draft, "The picture of the starts", lambda: drawn(
        "multistart", draw, texts, captions=["How good each search became, the best first: each step is an optimum.",
                                             "Where each search ended: lines that lie together came to the same "
                                                 "place."]))  # fmt: skip
    optima = found.tables.get("optima.csv")
    if optima is not None and len(optima):
        draft.add(table_of(optima, "The optima that were found, the best first", file="optima.csv", most=12))
    starts = found.tables.get("starts.csv")
    if starts is not None and len(starts):
        draft.fold("All starts", [table_of(starts, "Every start, and where its search ended", file="starts.csv")])
    _fit_of_starts(draft, found)
    return Section("multistart", "Was the best fit found?", tuple(draft.blocks))


def _on_missed(many: Any) -> str:
    """Return why a better optimum may have been missed; nothing where that is unlikely."""
    n, reached, w = len(many.starts), int(many.reached), len(many.optima)
    more = "a better one may have been missed. Ask for more starts"
    if reached < 2 and n > 1:
        return f"Only {reached} of {n} searches came to the best value: {more}."
    if w > 1 and many.missed > _MISSED:
        chance = f"the chance that the next start finds another one is about {percent(many.missed)}"
        return f"{n} searches ended in {w} different optima, and {chance}: {more}."
    nowhere = n - int((many.starts["optimum"] > 0).sum())
    if 2 * nowhere > n:
        return f"{nowhere} of {n} searches failed or did not converge (see there): {more}, or narrower bounds."
    return ""


def _natural(found: Findings, fit: Any) -> Any:
    """Return what came of many starts with the parameters on their own scale."""
    task, many = found.task, fit.multistart
    if not task.scale:
        return many
    lower, upper = (natural(task, end).where(np.isfinite(end), end) for end in (many.lower, many.upper))
    scales = {name: "log" if task.scale.get(name) == "log" else how for name, how in many.scales.items()}
    return replace(many, starts=natural_columns(task, fit, many.starts), lower=lower, upper=upper, scales=scales)


def _fit_of_starts(draft: Draft, found: Findings) -> None:
    """Add the fit here where no section of its own has it."""
    if found.results.get("fit") is None and found.fit is not None:
        draft.head("The best fit of all starts")
        say_fit(draft, found)


def _said(many: Any) -> tuple[str, ...]:
    """Return what a result of many starts says of itself."""
    return tuple(item for part in many.shown() for item in getattr(part, "items", ()))
