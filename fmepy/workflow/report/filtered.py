"""The section on the filter: what it could not predict, what it suspects, and what it expects next."""

from __future__ import annotations

from typing import Any

from fmepy.workflow.report.asked import filtered_pictures
from fmepy.workflow.report.findings import Findings, attempt, first_few
from fmepy.workflow.report.page import Draft, Section
from fmepy.workflow.report.pictures import MOST_PANELS, drawn
from fmepy.workflow.report.tables import table_of
from fmepy.workflow.report.words import count
from fmepy.workflow.steps.scale import known_covariance

_DIAGNOSED = 4  # variables whose four pictures are drawn


def filter_section(found: Findings, result: Any) -> Section:
    """Return whether model and data agree, reading by reading, and what follows the data."""
    draft, flt = Draft(), found.filtered
    draft.say(
        "A Kalman filter predicts each reading from those before it, then learns from it. If model and noise "
        "are right, "
        "what it could not predict is white noise of the size that the model says."
    )
    summary = flt.summary([k for k in found.par if k in flt.parms.index])
    for title, sentences in summary.sections.items():
        draft.head(title)
        draft.list(sentences, tone="" if title != "The filter broke down" else "bad")
    if not summary.agrees:
        found.doubt(
            "filter", "Model and data disagree, as the filter's tests say." if flt.failure is None else flt.failure
        )
    flags = int(flt.residuals["flag"].astype(bool).sum())
    if flags:
        found.doubt("filter", f"{count(flags, 'reading')} {'is' if flags == 1 else 'are'} suspected.")
    if flt.failure is not None:
        return Section("filter", "The filter", tuple(draft.blocks))
    if flt.smooth:
        attempt(draft, "The picture of the states", lambda: filtered_pictures(found, "filter"))
    names, said = first_few(list(flt.variables), MOST_PANELS, "filter.csv")
    texts = [
        f"What the filter could not predict of {name}, in standard deviations, over {flt.xlabel}." for name in names
    ]
    attempt(draft, "The picture of the innovations", lambda: drawn(
        "filter-innovations", lambda axes: flt.plot_innovations(names, axes=axes), texts,
        caption=f"What each reading had that the filter did not predict, in standard deviations. {said}"))  # fmt: skip
    if len(summary.frame):
        frame = summary.frame.reset_index(names="variable")
        heads = {"n": "readings", "mean_square": "mean square (1 is right)", "rho": "correlation of neighbours",
                 "limit": "its limit", "time_constant": "time constant", "p_normal": "p, normal"}  # fmt: skip
        draft.add(table_of(frame, "Innovations by variable", heads=heads))
    flagged = flt.residuals[flt.residuals["flag"].astype(bool)]
    if len(flagged):
        columns = [
            c for c in (flt.entity_column, "name", "x", "obs", "mod", "sd", "standardized", "AUXM") if c in flagged
        ]
        heads = {"name": "variable", "x": flt.xlabel, "obs": "read", "mod": "predicted"}
        heads |= {"standardized": "innovation, sd", "AUXM": "from all other data, sd"}
        draft.add(table_of(flagged[columns], "Suspected readings", heads=heads, file="filter.csv"))
    attempt(draft, "The diagnostics", lambda: _diagnostics(draft, flt))
    if result.forecast is not None:
        _forecast(draft, found, flt, result.forecast)
    return Section("filter", "The filter: reading by reading", tuple(draft.blocks))


def _diagnostics(draft: Draft, flt: Any) -> None:
    names, said = first_few(list(flt.variables), _DIAGNOSED)
    kinds = (
        "innovations over time",
        "their correlations by lag",
        "their quantiles beside the normal ones",
        "cumulative periodogram",
    )
    texts = [f"{name}: {kind}." for name in names for kind in kinds]
    pictures = drawn(
        "filter-diagnostics", lambda axes: flt.plot_diagnostics(names, axes=axes), texts, size=(3.6, 2.7),
        captions=[t.rstrip(".") for t in texts],
        caption=f"White noise keeps within the dashed lines in all of them. {said}",
    )  # fmt: skip
    draft.fold("Are the innovations white and normal? Four pictures", [pictures])


def _forecast(draft: Draft, found: Findings, flt: Any, forecast: Any) -> None:
    draft.head("Forecast")
    told = known_covariance(found.task, found.fit)[1] if found.fit is not None else ""
    draft.say(
        f"What follows the last reading, with bands of {100 * forecast.level:g} %"
        + (
            f", the uncertainty of the parameters included{f'; {told}' if told else ''}."
            if forecast.with_parameters
            else ", for parameters taken as known."
        )
    )
    known = [n for n in dict.fromkeys(str(n) for n in forecast.frame["name"]) if n not in flt.measured_states]
    names, said = first_few(known, MOST_PANELS)
    texts = [f"Forecast of {name} with its bands, after the last readings." for name in names]
    attempt(draft, "The picture of the forecast", lambda: drawn(
        "filter-forecast", lambda axes: forecast.plot(names, axes=axes), texts,
        caption=said))  # fmt: skip
    draft.add(table_of(forecast.frame[forecast.frame["name"].isin(known)], "Forecast", file="forecast.csv", most=30))
