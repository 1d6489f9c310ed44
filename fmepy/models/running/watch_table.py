"""Functions of what is watched along the runs of a system, in Python, and as machine code for the compiled loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import Any

import numpy as np

from fmepy.compiled.explicit_runs import CHANGES
from fmepy.compiled.llvm_code import NotWritableError
from fmepy.compiled.machine import Code
from fmepy.compiled.machine_function import machine_code, machine_function
from fmepy.compiled.python_code import scalar_function
from fmepy.compiled.root_events import CONDITIONAL, PLAIN, TERMINAL, Roots
from fmepy.compiled.switching import Switches
from fmepy.language.derivatives import speeds_of
from fmepy.language.equations import names_in, symbol, symbols
from fmepy.language.nodes import as_node, fresh
from fmepy.models.running.system import System, with_slopes
from fmepy.types import IntVector, Matrix, Vector

NEAR = 1e-10
"""Times of hits and rows are equal if they differ by less than this part of the run so far (`elapsed`)."""
MOST_IN_PYTHON = 50
"""Switches up to which Python code is used, which is compiled sooner; a run stops seldom."""


class WatchTable:
    """Compiled conditions of a system and roots of its events.

    Parameters
    ----------
    system : System
    function : RatesFunction or None
        The function of a model without equations, whose roots may read its extra outputs.
    extra_names : tuple of str
    """

    def __init__(self, system: System, function: Any = None, extra_names: tuple[str, ...] = ()) -> None:
        self.system, self.roots, self._extra_names = system, system.roots, extra_names
        used = names_in(e for r in self.roots for e in r.expressions) & set(extra_names)
        self._extras = function if used else None

    def _function(self, expressions: Sequence[Any], more: Sequence[Any] = ()) -> Callable[..., Any]:
        """Return ``function(t, z, inputs, *more)`` of expressions; `more` are the values of further symbols."""
        s, n, layout = self.system, self.system.n_states, self.system.layout
        further = [list(more)] if more else []
        groups = [[s.time], s.z[:n], s.inputs, *symbols(self._extra_names), *further]
        if self.is_large:
            with suppress(NotWritableError):
                return machine_function([*groups[:3], *further], expressions)
        function, no_extras = scalar_function(groups, expressions), [0.0] * len(self._extra_names)

        def values(t: float, z: Vector, inputs: Any, *f: Vector) -> list[float]:
            plain = inputs[: layout.size].tolist() if isinstance(inputs, np.ndarray) else inputs[: layout.size]
            extras = no_extras
            if self._extras is not None:
                p, u = plain[: layout.n_parameters], layout.forcing_values(t, plain)
                found = self._extras.extras(t, np.asarray(z[:n]), np.array(p), np.array(u))
                extras = [found[k] for k in self._extra_names]
            return function((t,), list(map(float, z[:n])), plain, extras, *(v.tolist() for v in f))

        return values

    @property
    def is_large(self) -> bool:
        """Whether the switches are so many that machine code evaluates them, and the rates."""
        return len(self.system.switches) > MOST_IN_PYTHON and self._extras is None

    @cached_property
    def rates(self) -> Callable[[float, Any, Any], Any]:
        """``rates(t, z, inputs)`` of the states of a large system."""
        return self._function(self.system.model_rates)

    @cached_property
    def conditions(self) -> Callable[[float, Any, Any], Any]:
        """``conditions(t, z, inputs)``: g of all switches."""
        return self._function([w.g for w in self.system.switches])

    @cached_property
    def values(self) -> Callable[[float, Any, Any], Any]:
        """``values(t, z, inputs)`` whose crossing of zero ends a stretch: watched switches, then roots."""
        return self._function(self.system.watched_expressions)

    def _with_slopes(self, expressions: Sequence[Any]) -> Callable[[float, Any, Any], Matrix]:
        """Return a function: rows of each expression and its derivatives to time, states and (scaled) parameters."""
        function, width = self._function(with_slopes(self.system, expressions)), 2 + self.system.n_states
        return lambda t, z, inputs: np.array(function(t, z, inputs)).reshape(-1, width + len(self.system.names))

    @cached_property
    def along(self) -> Callable[[float, Any, Any, Vector], Any]:
        """``along(t, z, inputs, direction)``: g of switches, then of roots, and their derivatives along it.

        A direction has entries for the time, the states, and the parameters of the sensitivities.
        """
        g, direction = [*(w.g for w in self.system.switches), *(r.g for r in self.roots)], self._directions()
        return self._function([*g, *speeds_of(g, direction)], list(direction.values()))

    def _directions(self) -> dict[Any, Any]:
        s = self.system
        moving = [s.time, *s.z[: s.n_states], *map(symbol, s.names)]
        return {x: fresh(f"way {i}") for i, x in enumerate(moving)}

    @cached_property
    def _machine_code(self) -> Code | None:
        """Functions of switches and roots for the compiled loop; None if it cannot express them."""
        s, g, direction = self.system, [w.g for w in self.system.switches], self._directions()
        if s.delays or s.algebraic or self._extras is not None:
            return None
        changes = {f"change{j}": [as_node(c.value) for c in r.changes] for j, r in enumerate(self.roots)}
        of_roots = {"slopes": [r.g for r in self.roots], **changes} if self.roots else {}
        functions = {name: with_slopes(s, expressions) for name, expressions in of_roots.items()}
        if self.conditional:
            holding = [as_node(0.0 if r.when is None else r.when) for r in self.roots]
            functions["holding"] = [*holding, *(as_node(r.strict) for r in self.roots)]
        with suppress(NotWritableError):
            return machine_code(
                [[s.time], s.z[: s.n_states], s.inputs, [*direction.values()]],
                {"along": [*g, *speeds_of(g, direction)]} | functions,
            )
        return None

    @cached_property
    def switches(self) -> Switches | None:
        """Tables by which the compiled loop flips modes and fires roots; None if it cannot.

        Its code lives as long as this table.
        """
        s, code, n = self.system, self._machine_code, len(self.roots)
        if code is None:
            return None
        dependents = [sorted(set(d) - set(s.planned)) for d in s.dependents]
        changes = [(c.state, CHANGES[c.method], c.order) for r in self.roots for c in r.changes]
        roots = Roots(
            slopes=code.address("slopes") if n else 0,
            changes=_integers(code.address(f"change{j}") for j in range(n)),
            ends=_integers(accumulate(len(r.changes) for r in self.roots)),
            actions=_integers(changes).reshape(-1, 3),
            directions=_integers(r.direction for r in self.roots),
            order=_integers(sorted(range(n), key=lambda j: (self.roots[j].order, j))),
            holding=code.address("holding") if self.conditional else 0,
            kinds=_integers(TERMINAL if r.terminal else PLAIN if r.when is None else CONDITIONAL for r in self.roots),
        )
        return Switches(
            along=code.address("along"), n_switches=len(s.switches), n_moving=1 + s.n_states + len(s.names),
            modes=s.layout.modes.start, scales=s.layout.scales.start, offsets=s.layout.size, began=0.0, near=NEAR,
            watched=_integers(s.watched), read_again=_integers(s.read_again),
            are_levels=_integers(w.is_level for w in s.switches), are_of_time=_integers(s.are_of_time),
            ends=_integers(accumulate(map(len, dependents))), dependents=_integers(chain(*dependents)),
            unknown=np.zeros(0), flips=np.zeros((0, 2)), n_flips=np.zeros(0), roots=roots,
        )  # fmt: skip

    @cached_property
    def slopes(self) -> Callable[[float, Any, Any], Matrix]:
        """``slopes(t, z, inputs)``: g, g_t, g_y and scaled g_p of the roots."""
        return self._with_slopes([r.g for r in self.roots])

    @cached_property
    def conditional(self) -> list[int]:
        """Positions of the roots that have a condition, `when`."""
        return [j for j, r in enumerate(self.roots) if r.when is not None]

    @cached_property
    def holding(self) -> Callable[[float, Any, Any], list[float]]:
        """``holding(t, z, inputs)``: 1 or 0, whether each of the `conditional` holds."""
        return self._function([as_node(self.roots[j].when) for j in self.conditional])

    @cached_property
    def priorities(self) -> Callable[[float, Any, Any], list[float]]:
        """``priorities(t, z, inputs)`` of the roots."""
        return self._function([as_node(r.priority or 0.0) for r in self.roots])

    @cached_property
    def strict(self) -> Callable[[float, Any, Any], list[float]]:
        """``strict(t, z, inputs)``: 1 for roots that fire just after their time, else 0."""
        return self._function([as_node(r.strict) for r in self.roots])

    @cached_property
    def changes(self) -> list[Callable[[float, Any, Any], Matrix]]:
        """The values of the changes of each root, with slopes like those of `slopes`."""
        return [self._with_slopes([as_node(c.value) for c in r.changes]) for r in self.roots]


watch_table = lru_cache(maxsize=64)(WatchTable)


def _integers(values: Iterable[Any]) -> IntVector:
    return np.array(list(values), dtype=np.int64)
