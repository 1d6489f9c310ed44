"""``ranges``: bands of the model's variables, over the draws of the chain or over ranges that the file gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fmepy.costs.user_function import is_model
from fmepy.errors import ArgumentError
from fmepy.fitting.reading import SCALES, sds_of_draws, transforms
from fmepy.mcmc.result import ModMCMC
from fmepy.montecarlo.ranges import PREDICTION, RangeSummary, SensRange, sensRange
from fmepy.workflow.steps.base import Doing, Results, Tables, best_fit
from fmepy.workflow.steps.results import Bands
from fmepy.workflow.steps.scale import check_named, models, natural, natural_chain, with_parts

if TYPE_CHECKING:
    from fmepy.workflow.file.prepared import Task

NAME = "ranges"
NUM = 100
_DRAWN = ("parRange", "parMean")


def needs(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the chain, and the fit it began at, unless the file says itself how parameters are drawn."""
    return () if any(k in arguments for k in _DRAWN) else ("fit", "sample")


def size(task: Task, arguments: Mapping[str, Any]) -> str:
    """Return how much there is to run."""
    return f"{arguments.get('num', NUM)} runs" + (" of each entity" if models(task)[0] is not None else "")


def check(task: Task, arguments: Mapping[str, Any]) -> None:
    """Refuse a function of the user's, which is a cost without a model, and errors without a chain."""
    if task.model is None:
        raise task.case.section.error(
            (NAME,),
            "`ranges` runs a model; the file's function f(p) is a cost. Name a Model in `python` instead, or "
            "add [data] and [cost] to a function that returns a table.",
        )
    if is_model(task.model):
        check_named(task, NAME, "sensvar", arguments.get("sensvar"), task.model.var_names)
        for key in _DRAWN:
            check_named(task, NAME, key, arguments.get(key), task.model.parms.index)
    if arguments.get("with_error") and not needs(arguments):
        raise task.case.section.error(
            (NAME, "with_error"), "`with_error` adds the noise that the chain found; with parRange or parMean there is "
            "none. Leave one of them out.",
        )  # fmt: skip


def run(task: Task, arguments: Mapping[str, Any], done: Results, doing: Doing) -> Bands:
    """Return the bands, of each entity where there are any."""
    words = {k: v for k, v in arguments.items() if k != "with_error"}
    words.setdefault("num", NUM)
    chain: ModMCMC | None = done["sample"] if needs(arguments) else None
    draws = None if chain is None else natural_chain(task, chain)
    by, of_entities = models(task)
    parts: dict[str, RangeSummary] = {}
    failures, num, interrupted, first, rng = 0, 0, False, "", np.random.default_rng([doing.seed, 1])
    for k, (label, model) in enumerate(of_entities.items()):
        parms = None if chain is not None or "fit" not in done else _values(task, model, done)
        if not is_model(model):
            parms = {**model.parms, **(parms or {})}
        runs = sensRange(
            model, parms, parInput=draws, seed=doing.seed, executor=doing.executor,
            progress=_part(doing.progress, k, len(of_entities)), checkpoint=doing.checkpoint / f"part-{k}", **words,
        )  # fmt: skip
        if chain is not None and arguments.get("with_error"):
            runs = _with_error(task, runs, chain, model, done, rng)
        parts[label] = runs.summary()
        failures, num, interrupted = failures + len(runs.failures), len(runs.pars), interrupted or runs.interrupted
        first = first or next(map(str, runs.failures["message"]), "")
        if interrupted:
            break
    if failures:
        doing.remember(
            f"{failures} of {num * len(parts)} runs of `ranges` failed, and are not in the bands; the first: {first}"
        )
    return Bands(parts, by, num, failures, "ranges" if chain is None else "the chain", interrupted, first)


def _values(task: Task, model: Any, done: Results) -> dict[str, float]:
    own = natural(task, best_fit(done).par)
    return {str(n): float(v) for n, v in own.items() if n in model.parms.index}


def _part(progress: Any, k: int, n: int) -> Any:
    """Return what tells the progress of one part of several."""
    return (lambda done, total: progress(k * total + done, n * total)) if callable(progress) else progress


def _with_error(
    task: Task, runs: SensRange, chain: ModMCMC, model: Any, done: Results, rng: np.random.Generator
) -> SensRange:
    """Return the runs with one draw of the noise of a reading at each point, on the scale of the comparison."""
    rows = runs.pset
    sig = None if chain.sig is None else chain.sig.iloc[rows]
    variables, Y = list(runs.var), runs.values.transpose(0, 2, 1)
    try:
        sds = sds_of_draws(chain.pars.iloc[rows], sig, chain.noise, model, runs.x_name, runs.x, variables, Y)
    except ArgumentError as error:
        raise task.case.section.error(
            (NAME, "with_error"), "`with_error` needs the noise of readings: give `wvar0` in sample, so that variances "
            f"are sampled, or measurement_noise in cost. ({error})",
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


def tables(task: Task, result: Bands) -> Tables:
    """Return ranges.csv: [entity,] x, var, mean, sd, extremes, quantiles, and how many runs."""
    return {"ranges.csv": with_parts({k: part.frame for k, part in result.parts.items()}, result.by)}


def verdict(task: Task, result: Bands) -> str:
    """Return what the bands say."""
    kinds = {part.kind for part in result.parts.values()}
    what = "where the next reading will be" if PREDICTION in kinds else "where the curve is"
    of = f" of each of {len(result.parts)} entities" if result.by is not None else ""
    failed = f"; {result.failures} runs failed" if result.failures else ""
    source = "draws of the chain" if result.source == "the chain" else "parameter sets from the ranges of the file"
    return f"Bands over {result.num} {source}{of}: {what}{failed}."


def failed_runs(result: Bands) -> tuple[int, int, str]:
    """Return how many runs failed, of how many, and the first one's message."""
    return result.failures, result.num * len(result.parts), result.first_failure
