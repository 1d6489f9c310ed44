"""What a file asks for, in lines: data, model, parameters, and the steps with how much there is to run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fmepy.errors import listed
from fmepy.workflow.file.python_file import FunctionModel, TableCost
from fmepy.workflow.file.task import CalibrationTask
from fmepy.workflow.steps.registry import STEPS
from fmepy.workflow.steps.scale import natural

MOST_PARAMETERS, _MOST_FIXED = 40, 12


def described(task: CalibrationTask, steps: Sequence[str] | None = None) -> list[str]:
    """Return the lines that ``fmepy check`` prints.

    Parameters
    ----------
    task : CalibrationTask
    steps : sequence of str, optional
        Those of the file's that are meant; default all.
    """
    case, data = task.case, task.data
    fixed = [f"{p.name} = {p.start:g}" for p in case.parameters.values() if not p.fitted]
    values = ", ".join([*fixed[:_MOST_FIXED], *(["..."] if len(fixed) > _MOST_FIXED else [])])
    chosen = list(case.steps if steps is None else steps)
    required = ", ".join(f"{k} = {str(v).lower()}" for k, v in case.require.items())
    files = [case.content["data"]["file"]] if "data" in case.content else []
    columns = ", ".join(map(str, data.columns))
    return [
        str(case.file) + (f": {case.title}" if case.title else ""),
        *(f"data        {file}: {len(data)} rows; columns {columns}" for file in files),
        f"model       {_what(task, 'model')}",
        f"cost        {_what(task, 'cost')}",
        f"parameters  {len(task.start)} fitted, {len(fixed)} fixed" + (f" ({values})" if fixed else ""),
        *(f"  {line}" for line in _parameters(task)),
        f"steps       {', '.join(chosen) if chosen else 'none: this checks the file, and no more'}",
        *(f"  {name:<10} {STEPS[name].size(task, case.steps[name])}" for name in chosen),
        *([f"require     {required}"] if required else []),
    ]


def _what(task: CalibrationTask, part: str) -> str:
    """Return what the model or the cost is, and which object of which Python file."""
    of = getattr(task, part)
    if isinstance(of, FunctionModel):
        what = "a function that returns a table"
    elif isinstance(of, TableCost):
        what = "its table compared with the data, by modCost"
    else:
        what = str(of).splitlines()[0] if hasattr(of, "parms") else "a function of Python"
    return f"{task.written[part]}: {what}" if part in task.written else what


def _parameters(task: CalibrationTask) -> list[str]:
    """Return a line a fitted parameter: start, bounds, scale and prior, on the natural scale."""
    names = [str(n) for n in task.start.index]
    start, lower, upper = (natural(task, values) for values in (task.start, task.lower, task.upper))
    lines = []
    for name in names[:MOST_PARAMETERS]:
        p = task.case.parameters.get(name) or task.case.parameters.get(name.partition("[")[0])
        ends = (("from", lower[name], task.lower[name]), ("to", upper[name], task.upper[name]))
        said = [
            f"{start[name]:g}",
            " ".join(f"{word} {own:g}" for word, own, end in ends if np.isfinite([own, end]).all()),
        ]
        if p is not None:
            said += [f"scale {p.scale}" if p.scale else "", f"prior {p.prior['dist']}" if p.prior else "", p.unit]
        lines.append(f"{name:<10} {'; '.join(part for part in said if part)}")
    more = names[MOST_PARAMETERS:]
    return lines + ([f"... and {len(more)} more: {listed(more, 3)}"] if more else [])
