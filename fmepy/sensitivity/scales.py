"""What sensitivities are multiplied by and divided by: the scales of parameters and of outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from fmepy.errors import ArgumentError, ParameterError, listed, warn
from fmepy.parameters.named import check_names
from fmepy.sensitivity.outputs import Outputs
from fmepy.types import Vector


def tell_even(sds: Sequence[str]) -> None:
    """Warn of sds of noise at zero: their columns are zero whatever the data say."""
    if not sds:
        return
    are = "is a standard deviation of noise" if len(sds) == 1 else "are standard deviations of noise"
    warn(
        f"sensFun: {listed(sds)} {are} at 0. The likelihood depends on the variance, so the sensitivities are "
        "zero there whatever the data say, and tell nothing of whether they determine it. Take a value above zero, or "
        "leave it out by `senspar`.",
    )


def parameter_scale(parscale: Any, outputs: Outputs, floor: float) -> Vector:
    """Return what the sensitivities to each parameter are multiplied by, shape (n_par,)."""
    names, theta = outputs.names, outputs.theta
    if parscale is None:
        zero = [n for n, v in zip(names, theta, strict=True) if v == 0 and n not in outputs.even]
        if zero:
            warn(
                f"sensFun: {listed(zero)} {'is' if len(zero) == 1 else 'are'} at 0, where relative sensitivities are "
                f"not defined; the scale is {floor:g}, as in FME, and the column practically zero. Give `parscale`.",
            )
        return np.where(theta == 0, floor, theta)
    scale = _numbers(_in_order(parscale, names, "parscale", "parameter"), "parscale")
    if scale.size not in (1, len(names)):
        raise ParameterError(
            f"`parscale` has {scale.size} values for {len(names)} parameters ({listed(names)}). Give one number, one "
            "per parameter, or a dict by name."
        )
    return np.broadcast_to(scale, (len(names),)).copy()


def variable_scale(varscale: Any, outputs: Outputs, floor: float) -> Vector:
    """Return what the rows are divided by, shape (n_row,)."""
    n, var = len(outputs.labels), outputs.var
    if varscale is None:
        _warn_of_zeros(outputs, floor)
        return np.where(outputs.values == 0, floor, outputs.values)
    scale = _numbers(_in_order(varscale, var, "varscale", "variable"), "varscale")
    if scale.size == 1:
        return np.full(n, scale[0])
    if scale.size == len(var):
        return scale[[var.index(label) for label in outputs.labels]]
    if scale.size == n:
        return scale
    raise ArgumentError(
        f"`varscale` has {scale.size} values for {len(var)} variables ({listed(var)}) in {n} rows. Give one number, "
        "one per variable (or a dict by name), or one per row."
    )


def _in_order(scale: Any, names: Sequence[str], argument: str, what: str) -> Any:
    """Return scales by name as a list in the order of the names, which must all be there; others as they are."""
    if not isinstance(scale, (Mapping, pd.Series)):
        return scale
    given = dict(scale)
    given = dict(zip(check_names(given, names, argument=argument, what=what), given.values(), strict=True))
    missing = [n for n in names if n not in given]
    if missing:
        raise ParameterError(f"`{argument}` has no entry for {listed(missing)}.")
    return [given[n] for n in names]


def _warn_of_zeros(outputs: Outputs, floor: float) -> None:
    """Tell of outputs at zero that do move: their relative sensitivity is not defined."""
    moved = (outputs.values == 0) & np.any(outputs.derivatives.matrix != 0, axis=1)
    if moved.any():
        i = int(np.argmax(moved))
        names = dict.fromkeys(label for label, m in zip(outputs.labels, moved, strict=True) if m)
        warn(
            f"sensFun: {listed(names)} {'is' if moved.sum() == 1 else 'are'} 0 at {int(moved.sum())} "
            f"{'row' if moved.sum() == 1 else 'rows'} (first at {outputs.x_name} = {outputs.row_x[i]:g}), where "
            f"relative sensitivities are not defined; the scale is {floor:g}, as in FME. Give `varscale`.",
        )


def _numbers(values: Any, argument: str) -> Vector:
    items = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    try:
        out = np.array([float(v) for v in items])
    except (TypeError, ValueError):
        raise ArgumentError(f"`{argument}` must hold numbers; got {values!r}.") from None
    if out.size == 0 or not np.isfinite(out).all() or np.any(out == 0):
        raise ArgumentError(f"`{argument}` must hold finite numbers other than 0; got {values!r}.")
    return out
