"""What a module that is a Python function returned -> the values of its variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fmepy.dmi.statements import Reference
from fmepy.errors import ModelError, TracingError, listed


def values_of(returned: Any, targets: Sequence[Reference], module: str, dtype: Any) -> list[Any]:
    """Return the values of what a module assigns, one vector a variable, row by row.

    Parameters
    ----------
    returned : object
        One value, a tuple or list in the order of `targets`, or a dict by name.
    targets : sequence of Reference
    module : str
    dtype : type
        float; or object, of symbols.

    Raises
    ------
    ModelError
        It is not what the module assigns.
    """
    names = tuple(t.name for t in targets)
    return [
        _as_shape(value, t, module, dtype) for t, value in zip(targets, _in_order(returned, names, module), strict=True)
    ]


def _in_order(returned: Any, names: tuple[str, ...], module: str) -> list[Any]:
    """Return what a Python module returned in the order of what it assigns."""
    if isinstance(returned, dict):
        if set(returned) != set(names):
            raise ModelError(
                f"the Python module {module!r} returned a dict of {listed(list(returned))}; it assigns {listed(names)}."
            )
        return [returned[n] for n in names]
    if len(names) == 1 and not isinstance(returned, tuple):
        return [returned]
    if not isinstance(returned, (tuple, list)) or len(returned) != len(names):
        count = len(returned) if isinstance(returned, (tuple, list)) else 1
        raise ModelError(
            f"the Python module {module!r} assigns {listed(names)}, {len(names)} value{'s' * (len(names) != 1)}; it "
            f"returned {count}. Return a tuple in this order, or a dict."
        )
    return list(returned)


def _as_shape(value: Any, target: Reference, module: str, dtype: Any) -> Any:
    """Return the value of a variable, row by row."""
    name, shape = target.name, target.shape
    try:
        if dtype is float and np.iscomplexobj(value):
            raise TypeError
        found = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, TracingError):
        raise ModelError(
            f"the Python module {module!r} returned {value!r:.60} for {name!r}; it must be real numbers."
        ) from None
    if found.shape != shape and not (found.shape == () or (shape == () and found.size == 1)):
        raise ModelError(
            f"the Python module {module!r} returned an array of shape {found.shape} for {name!r}, which has "
            f"shape {shape}."
        )
    return np.broadcast_to(found.reshape(-1) if shape == () else found, shape or (1,)).ravel()
