"""``ranges``: bands of the model's variables, over the draws of the chain or over ranges that the file gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from fmepy.costs.user_function import is_model
from fmepy.errors import ArgumentError
from fmepy.fitting.reading import SCALES, sds_of_draws, transforms
from fmepy.journal.saving import Saved
from fmepy.mcmc.result import ModMCMC
from fmepy.montecarlo.ranges import PREDICTION, RangeSummary, SensRange, sensRange
from fmepy.workflow.file.signatures import COUNT, FLAG, NAMES, NO_FILE, Key, arguments_of
from fmepy.workflow.report.findings import Findings
from fmepy.workflow.report.pictures import Pictures, drawn_parts
from fmepy.workflow.steps.base import CalibrationStep, CalibrationTask, Results, RunOptions, Tables, best_fit
from fmepy.workflow.steps.scale import check_model, check_named, natural_chain, values_for, with_parts

_HEADS = {
    "var": "variable", "Mean": "mean", "Sd": "sd", "Min": "smallest", "Max": "largest", "q05": "5 %", "q25": "25 %",
    "q50": "median", "q75": "75 %", "q95": "95 %", "N": "runs",
}  # fmt: skip
_DRAWN = ("parRange", "parMean")


@dataclass(frozen=True, slots=True, eq=False)
class Bands(Saved):
    """Bands of the model's variables.

    Attributes
    ----------
    parts : dict of str to RangeSummary
        By entity, as text; one of the name "" where there are none.
    by : str or None
        The column of the entities.
    num, failures : int
        Parameter sets of each part, and runs that failed, of all of them.
    source : str
        What the sets are: "the chain", or "ranges" that the file gives.
    interrupted : bool
    first_failure : str
        The message of the first run that failed.
    """

    parts: dict[str, RangeSummary]
    by: str | None
    num: int
    failures: int
    source: str
    interrupted: bool = False
    first_failure: str = ""


class RangesStep(CalibrationStep):
    """Bands over the draws of the chain, or over ranges."""

    name = "ranges"
    says = "Predictions of the model, with the uncertainty of the parameters."
    purpose = "Run the model at many plausible parameter values, and see how far its curves spread"
    title = "How far the model's curves spread"
    welcomes = ("fit",)
    num = 100
    advice = "Take narrower ranges of the parameters"

    keys: ClassVar[Mapping[str, Key]] = {
        **arguments_of(
            sensRange, (*NO_FILE, "func", "parms", "parInput", "keep", "map"), num=COUNT, sensvar=NAMES,
            parRange={"kinds": (dict,), "of": Key((list,), items=Key((float,)))},
            parMean={"kinds": (dict,), "of": Key((float,))}, parCovar={"kinds": (float, list)}),
        "with_error": Key(FLAG, "Whether the bands are of new readings, with their errors."),
    }  # fmt: skip

    def needs(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the chain, and the fit it began at, unless the file says itself how parameters are drawn."""
        return () if any(k in arguments for k in _DRAWN) else ("fit", "sample")

    def check(self, task: CalibrationTask, arguments: Mapping[str, Any]) -> None:
        """Refuse a function of the user's, which is a cost without a model, and errors without a chain."""
        check_model(task, self.name, arguments)
        if is_model(task.model):
            for key in _DRAWN:
                check_named(task, self.name, key, arguments.get(key), task.model.parms.index)
        if arguments.get("with_error") and not self.needs(arguments):
            raise task.error(
                (self.name, "with_error"), "`with_error` adds the noise that the chain found; with parRange or parMean "
                "there is none. Leave one of them out.",
            )  # fmt: skip
        likelihood = task.case.content.get("cost", {}).get("likelihood", {})
        kinds = [likelihood] if isinstance(likelihood, str) else likelihood.values()
        if arguments.get("with_error") and (other := [k for k in kinds if "normal" not in k]):
            raise task.error(
                (self.name, "with_error"), f"`with_error` draws normal errors, but those of [cost] are {other[0]!r} "
                "(`likelihood`). Leave it out: the bands are then of the model's value.",
            )  # fmt: skip

    def run(self, task: CalibrationTask, arguments: Mapping[str, Any], done: Results, options: RunOptions) -> Bands:
        keywords = {"num": self.num} | {k: v for k, v in arguments.items() if k != "with_error"}
        chain: ModMCMC | None = done["sample"] if self.needs(arguments) else None
        draws = None if chain is None else natural_chain(task, chain)
        by, of_entities = task.models
        parts: dict[str, RangeSummary] = {}
        failures, num, interrupted, first, rng = 0, 0, False, "", np.random.default_rng([options.seed, 1])
        for k, (label, model) in enumerate(of_entities.items()):
            parms = None if chain is not None or "fit" not in done else values_for(task, model, best_fit(done))
            if not is_model(model):
                parms = {**model.parms, **(parms or {})}
            runs = sensRange(
                model, parms, parInput=draws, seed=options.seed, executor=options.executor,
                progress=_part(options.progress, k, len(of_entities)), checkpoint=options.checkpoint / f"part-{k}",
                **keywords,
            )  # fmt: skip
            if chain is not None and arguments.get("with_error"):
                runs = _with_error(task, runs, chain, model, done, rng)
            parts[label] = runs.summary()
            failures, num, interrupted = failures + len(runs.failures), len(runs.pars), interrupted or runs.interrupted
            first = first or next(map(str, runs.failures["message"]), "")
            if interrupted:
                break
        options.remember(failures and f"{failures} of {num * len(parts)} runs of `ranges` failed, and are not in the "
                         f"bands; the first: {first}")  # fmt: skip
        return Bands(parts, by, num, failures, "ranges" if chain is None else "the chain", interrupted, first)

    def tables(self, task: CalibrationTask, result: Bands) -> Tables:
        return {"ranges.csv": with_parts({k: part.frame for k, part in result.parts.items()}, result.by)}

    def failed_runs(self, result: Bands) -> tuple[int, int, str]:
        return result.failures, result.num * len(result.parts), result.first_failure

    def facts(self, findings: Findings, result: Bands) -> Mapping[str, Any]:
        by = result.by if findings.numbered is None else findings.entity_name
        result = replace(result, parts=findings.by_curve(result.parts), by=by)
        frames, first = {k: part.frame for k, part in result.parts.items()}, next(iter(result.parts.values()))
        table = with_parts(frames, None if "" in frames else by)
        noisy = list(dict.fromkeys(name for part in result.parts.values() for name in part.predicted))
        inside, total = _coverage(findings, result)
        return {
            "noisy": noisy if any(part.kind == PREDICTION for part in result.parts.values()) else None,
            "others": any(name not in noisy for part in result.parts.values() for name in part.var),
            "table": findings.with_dates(table, first.x_name if first.by_depth else "x"),
            "heads": {"x": "depth" if first.by_depth else findings.x_name, **_HEADS},
            "inside": inside, "total": total, "bands": partial(_bands, findings, result),
        }  # fmt: skip


def _part(progress: Any, k: int, n: int) -> Any:
    """Return the progress callable of one part of several."""
    return (lambda done, total: progress(k * total + done, n * total)) if callable(progress) else progress


def _with_error(
    task: CalibrationTask, runs: SensRange, chain: ModMCMC, model: Any, done: Results, rng: np.random.Generator
) -> SensRange:
    """Return the runs with one draw of the noise of a reading at each point, on the scale of the comparison."""
    rows = runs.pset
    sig = None if chain.sig is None else chain.sig.iloc[rows]
    variables, Y = list(runs.var), runs.values.transpose(0, 2, 1)
    try:
        sds = sds_of_draws(chain.pars.iloc[rows], sig, chain.noise, model, runs.x_name, runs.x, variables, Y)
    except ArgumentError as error:
        raise task.error(
            ("ranges", "with_error"), "`with_error` needs the noise of readings: give `wvar0` in sample, so that "
            f"variances are sampled, or measurement_noise in cost. ({error})",
        ) from error  # fmt: skip
    scales = transforms(best_fit(done)) if chain.noise is None else chain.noise.scales
    values = runs.values.copy()
    noisy = []
    for j, name in enumerate(variables):
        if np.isfinite(sds[:, :, j]).any():
            forward, back, _ = SCALES[scales.get(name)]
            with np.errstate(all="ignore"):
                values[:, j] = back(forward(values[:, j]) + sds[:, :, j] * rng.standard_normal(values[:, j].shape))
            noisy.append(name)
    frame = pd.DataFrame(index=runs.pars.index)  # the summary takes the values
    return replace(runs, values=values, frame=frame, kind=PREDICTION, predicted=tuple(noisy))


# --- in the report


def _bands(findings: Findings, result: Bands, **words: str) -> Pictures:
    first = next(iter(result.parts.values()))

    def draw(ax: Any, label: str, part: RangeSummary, name: str) -> None:
        readings = _readings(findings, label or None, name, part)
        is_first = part is first and name == part.var[0]
        findings.draw_summary(ax, part, name, quant=True, obs=readings, legpos="above" if is_first else None)
        if len(part.frame[part.frame["var"] == name]) > 1 and not part.by_depth:
            findings.label_x(ax)

    return drawn_parts(result.parts, result.by, draw, **words)


def _readings(findings: Findings, label: str | None, name: str, part: RangeSummary) -> pd.DataFrame | None:
    readings = None if findings.readings is None else findings.over_time(findings.readings, "curve")
    if readings is None or len(part.frame[part.frame["var"] == name]) < 2:
        return None
    is_of_part = True if label is None else readings["entity"].map(str) == label
    rows = readings[(readings["name"].map(str) == name) & is_of_part]
    columns = ["name", "x", *(["depth"] if part.by_depth else []), "obs"]
    if part.by_depth:
        rows = rows[rows["x"].isin(part.frame.iloc[:, 0])] if "depth" in rows else rows[:0]
    return rows[columns].assign(name=name).reset_index(drop=True) if len(rows) else None


def _coverage(findings: Findings, result: Bands) -> tuple[int, int]:
    """Return how many of the readings lie within the band that nine of ten should lie in, and of how many."""
    inside = total = 0
    for label, part in result.parts.items():
        for name in () if part.by_depth else part.predicted:
            readings = _readings(findings, label or None, name, part)
            rows = part.frame[part.frame["var"] == name].sort_values("x")
            x = rows["x"].to_numpy(dtype=float)
            if readings is None or len(x) < 2:
                continue
            at = readings["x"].to_numpy(dtype=float)
            slack = 1e-9 * max(abs(x[0]), abs(x[-1]))
            own, obs = (at >= x[0] - slack) & (at <= x[-1] + slack), readings["obs"].to_numpy(dtype=float)
            low, high = (np.interp(at, x, rows[q].to_numpy(dtype=float)) for q in ("q05", "q95"))
            inside += int(((obs >= low) & (obs <= high))[own].sum())
            total += int(own.sum())
    return inside, total
