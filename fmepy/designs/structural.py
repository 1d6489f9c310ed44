"""Structural identifiability: which parameters perfect data would fix, before there are any."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations as subsets
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_list, as_rng
from fmepy.designs.invariants import invariants
from fmepy.designs.power_series import PRIME, SingularStartError, Truncated
from fmepy.designs.prime_field import independent, null_space
from fmepy.designs.uniqueness import unique_parameters
from fmepy.errors import ArgumentError, ModelError, did_you_mean, listed
from fmepy.language.nodes import Node, Symbol, as_node
from fmepy.results.tables import Part, Shown, bullets, heading, table
from fmepy.types import IntMatrix
from fmepy.vocabulary import own_words

_TRIALS = 3  # random points at which the rank is taken
_ATTEMPTS = 100  # to find one where nothing is divided by zero
_MORE = 5  # coefficients beyond as many as there are states and parameters
_MOST_SETS = 2_000  # sets of parameters that are tried as remedies
_SHOWN = 20


@dataclass(frozen=True, eq=False, repr=False)
class StructuralIdentifiability(Shown):
    """Which parameters of a model perfect data would fix; made by `structural_identifiability`.

    Attributes
    ----------
    verdicts : Series of str
        By parameter "globally" (one value alone gives these outputs: proven), "locally" (finitely many do, or it is not
        proven that it is one) or "not".
    combinations : list of str
        Independent functions of the parameters that are "not", which data fix: as many as there are.
    missing : DataFrame
        The smallest remedies, a row each: columns ``known`` (parameters to be known) and ``observed`` (variables to be
        observed as well), as texts; each row alone makes all parameters identifiable, and one at least names parameters
        alone. Empty if nothing is missing.
    observed, known : tuple of str
        The variables and parameters that counted as observed and as known.
    error : float
        Bound of the probability that a "not" should be "locally".
    notes : tuple of str
        What was approximated or left out.
    """

    verdicts: pd.Series
    combinations: list[str]
    missing: pd.DataFrame
    observed: tuple[str, ...]
    known: tuple[str, ...]
    error: float
    notes: tuple[str, ...] = field(default=())

    def told(self) -> list[str]:
        """Return the results in sentences."""
        sentences = []
        for verdict, words in (
            ("globally", "is fixed by perfect data"),
            ("locally", "is fixed up to finitely many values, as far as was proven"),
            ("not", "is not fixed by any data of this kind"),
        ):
            names = self.verdicts.index[self.verdicts == verdict].tolist()
            if names:
                sentences.append(f"{listed(names)} {words if len(names) == 1 else words.replace('is', 'are', 1)}.")
        if self.combinations:
            sentences.append(f"Of what is not fixed, these functions are: {listed(self.combinations)}.")
        for _, row in self.missing.iloc[:3].iterrows():
            parts = [f"{listed(row[c].split(', '))} were {c}" for c in ("known", "observed") if row[c]]
            sentences.append(f"All would be fixed if {' and '.join(parts)}.")
        return [*sentences, *self.notes]

    def shown(self) -> list[Part]:
        """Return the verdicts, and the results in sentences."""
        head = f"Structural identifiability, observed {listed(self.observed)}"
        head += f", known {listed(self.known)}" if self.known else ""
        return [heading(head), table(self.verdicts.to_frame()), *bullets(self.told(), "")]


@own_words
def structural_identifiability(
    model: Any, *, observed: Any = None, known: Iterable[str] = (), seed: Any = None
) -> StructuralIdentifiability:
    """Return which parameters of a model could be found from perfect data of some variables, before there are any.

    Parameters
    ----------
    model : OdeModel, or a cost of one
        Its equations are judged, its values are not read: numbers and expressions that stand in ``state=`` are exact
        (``x(0) = 0`` hides a rate), parameters there are unknown.
    observed : sequence of str, optional
        The variables that are observed; of a cost those it has data of, of a model by default its outputs, or all
        states where it has none.
    known : sequence of str, optional
        Parameters that are known, at any value.
    seed : int, Generator or None
        Of the random points.

    Returns
    -------
    StructuralIdentifiability

    Raises
    ------
    ArgumentError
        An unknown name; no parameter is left; not a model.
    ModelError
        A model without equations; delays, root events, algebraic states; functions that change branch (min, where).

    Notes
    -----
    The outputs are power series of the time whose coefficients are functions of the parameters. A parameter is
    identifiable locally if no direction in which all coefficients stay moves it: the rank of their derivatives, at
    random points over the prime field of 2^31 - 1, decides exactly, up to a probability `error` (Sedoglavic 2002). No
    sign is assumed: what is seen only squared is "locally". "globally" is proven by a Gröbner basis of the equations
    that the coefficients are (Hong et al. 2020), for rational models of up to five parameters, within five seconds.
    Combinations that are products of powers, sums, or polynomials of degree two are found, others are named as such.
    Forcings are known and rich. Events at later times do not count: they can only add to what is said here. Analytic
    functions (exp, Hill's) are judged as states of their own. The combinations of `identifiability` are directions that
    given data leave open; those here are functions that data fix, of what no data could tell.

    References
    ----------
    Sedoglavic, A. (2002), J. Symb. Comput. 33, 735-755. Hong, H., Ovchinnikov, A., Pogudin, G. and Yap, C. (2020),
    Commun. Pure Appl. Math. 73, 1831-1879.

    Examples
    --------
    >>> import fmepy as fme
    >>> values = {"A0": 1, "k1": 1, "k2": 1}
    >>> model = fme.OdeModel("d(A)/dt = -(k1 + k2) * A", state={"A": "A0"}, times=[0, 1], parms=values)
    >>> found = fme.structural_identifiability(model, observed=["A"], seed=1)
    >>> found.verdicts.to_dict()
    {'A0': 'globally', 'k1': 'not', 'k2': 'not'}
    >>> found.combinations, found.missing["known"].tolist()
    (['k1 + k2'], ['k1', 'k2'])
    """
    rng, case = as_rng(seed), _Case(model, observed, known)
    points = [case.point(rng) for _ in range(_TRIALS)]
    best = max(points, key=lambda p: len(independent(p.of(case.observed))))
    V = null_space(best.of(case.observed))
    is_open = (V != 0).any(axis=0)
    both = list(zip(case.names, is_open.tolist(), strict=True))
    unique = unique_parameters(case, [n for n, o in both if not o])
    verdicts = ["not" if o else "globally" if n in unique else "locally" for n, o in both]
    found = [] if not is_open.any() else invariants(case, rng, V)
    missing = _missing(case, best, V)
    degree = 4 * (len(case.names) + len(case.states)) ** 2
    return StructuralIdentifiability(
        pd.Series(verdicts, index=list(case.names), name="identifiable", dtype=object), found, missing,
        tuple(case.observed), case.known, min(1.0, (degree / PRIME) ** _TRIALS), tuple(case.notes),
    )  # fmt: skip


class _Case:
    """A model with its observed variables and unknown parameters."""

    def __init__(self, model: Any, observed: Any, known: Iterable[str]) -> None:
        observables = None
        while inner := next((getattr(model, a) for a in ("cost", "inner", "model") if hasattr(model, a)), None):
            observables, model = getattr(getattr(model, "comparison", None), "group_names", observables), inner
        d = getattr(model, "definition", None)
        if d is None:
            raise ArgumentError(
                f"`model` must be an OdeModel, or a cost of one; got {type(model).__name__}. Of modules: "
                'model.compiled("ode").'
            )
        if d.equations is None:
            raise ModelError(f"Structural identifiability needs equations, and the function gives none: {d.note}.")
        if d.kind != "ode":
            raise ModelError("Structural identifiability is of differential equations; this model goes in steps.")
        d.check_plain("structural_identifiability")
        equations = d.equations
        self.states, self.rates = equations.states, equations.rates
        self.outputs: dict[str, Node] = {**{s: Symbol(s) for s in equations.states}, **dict(equations.outputs)}
        self.observed = self._observed(observed, observables, [n for n, _ in equations.outputs])
        self.initial = [as_node(v) for v in d.initial]
        self.time, self.start = Symbol(equations.time), float(model.times[0])
        self.forcings = equations.forcings
        self.notes: list[str] = []
        self._start_events(d)
        self.known = tuple(as_list(() if known is None else known, "known"))
        for name in self.known:
            if name not in list(d.parameters):
                raise ArgumentError(f"`known`: {name!r} is no parameter.{did_you_mean(name, d.parameters)}")
        self.names = tuple(n for n in d.parameters if n not in self.known)
        if not self.names:
            raise ArgumentError("Every parameter is `known`; nothing is left to be judged.")
        self._any_start = False

    def _observed(self, given: Any, observables: Any, outputs: Sequence[str]) -> list[str]:
        names = list(observables or outputs or self.states) if given is None else as_list(given, "observed")
        for name in names:
            if name not in list(self.outputs):
                raise ArgumentError(
                    f"`observed`: the model has no variable {name!r}.{did_you_mean(name, self.outputs)}"
                )
        if not names:
            raise ArgumentError("`observed` is empty: without data nothing is identifiable.")
        return names

    def _start_events(self, d: Any) -> None:
        """Apply the events at the start to the initial values; later ones do not count."""
        for e in sorted((e for e in d.events if e.time == self.start), key=lambda e: e.order):
            before = {Symbol(s): v for s, v in zip(self.states, self.initial, strict=True)}
            value, now = as_node(e.value).subs(before), self.initial[e.state]
            self.initial[e.state] = {"add": now + value, "replace": value, "multiply": now * value}[e.method]
        if any(e.time > self.start for e in d.events):
            self.notes.append("What events after the start add to the data was left out: it can only help.")

    @property
    def order(self) -> int:
        """The last coefficient that is used."""
        return len(self.states) + len(self.names) + _MORE

    def point(self, rng: np.random.Generator) -> RandomPoint:
        """Return the outputs' series at a random point."""
        for attempt in range(_ATTEMPTS):
            try:
                return RandomPoint(self, rng, any_start=self._any_start)
            except SingularStartError:
                if attempt == _ATTEMPTS // 2 and not self._any_start:
                    self._any_start = True
                    self.notes.append(
                        "At its start the model is singular (a power or a quotient of a state that is zero there): "
                        "states that start from a number were taken to start from any known one."
                    )
        raise ModelError(
            "The equations have no power series at the start: something is divided by zero there. Give the states that "
            "are zero a parameter as initial value, and name it in `known`."
        )


class RandomPoint:
    """The power series of all variables at a random point.

    Attributes
    ----------
    theta : ndarray of int, shape (n_par,)
    series : dict of str to ndarray of int, shape (n_order, 1 + n_par)
        By variable: coefficients, and their derivatives to the parameters.
    """

    def __init__(self, case: _Case, rng: np.random.Generator, any_start: bool) -> None:
        names = [case.time, *map(Symbol, (*case.states, *case.forcings))]
        order = case.order
        t = Truncated(order, len(case.names), rng, frozenset(names))
        self.theta = rng.integers(2, PRIME - 2, size=len(case.names))
        for i, (name, value) in enumerate(zip(case.names, self.theta.tolist(), strict=True)):
            t.known[Symbol(name)] = t.constant(value, i)
        for name in case.known:
            t.known[Symbol(name)] = t.constant(int(rng.integers(2, PRIME - 2)))
        clock = t.new(t.of(as_node(case.start))[0, 0])
        clock[1, 0] = 1
        t.known[case.time] = clock
        for name in case.forcings:
            t.known[Symbol(name)] = series = t.new()
            series[:, 0] = rng.integers(2, PRIME - 2, size=order + 1)
        starts = [t.of(e) for e in case.initial]
        t.coefficient(0)
        begins = [s[0].copy() for s in starts]
        inside = Truncated(order, len(case.names), rng, t.moving)
        inside.known = {k: v for k, v in t.known.items() if isinstance(k, Symbol)}
        inside._fixed = t._fixed
        inside._any = t._any
        states = {}
        for name, begin, e in zip(case.states, begins, case.initial, strict=True):
            states[name] = inside.known[Symbol(name)] = x = inside.new()
            x[0] = begin
            if any_start and not e.free_symbols:
                x[0, 0] = int(rng.integers(2, PRIME - 2))
        rates = [inside.of(e) for e in case.rates]
        self.series = {name: inside.of(e) for name, e in case.outputs.items()}
        for k in range(order + 1):
            inside.coefficient(k)
            if k < order:
                for x, rate in zip(states.values(), rates, strict=True):
                    x[k + 1] = rate[k] * pow(k + 1, PRIME - 2, PRIME) % PRIME

    def of(self, observed: Collection[str]) -> IntMatrix:
        """Return the derivatives of the coefficients of some variables, shape (n_order n_var, n_par)."""
        return np.concatenate([self.series[name][:, 1:] for name in observed])


def _missing(case: _Case, point: RandomPoint, V: IntMatrix) -> pd.DataFrame:
    """Return the smallest sets of parameters to be known and variables to be observed that leave nothing open."""
    open_names = [n for n, o in zip(case.names, (V != 0).any(axis=0), strict=True) if o]
    rows: list[tuple[str, str]] = []
    if open_names:
        place = {n: i for i, n in enumerate(case.names)}

        def cures(N: IntMatrix, size: int) -> list[tuple[str, ...]]:
            """Return the sets of parameters without which the null space N holds nothing."""
            out: list[tuple[str, ...]] = []
            for count, names in enumerate(subsets(open_names, size)):
                if count >= _MOST_SETS or len(out) >= _SHOWN:
                    break
                if len(independent(N[:, [place[n] for n in names]])) == len(N):
                    out.append(names)
            return out

        known_only = cures(V, len(V))
        others = [v for v in case.outputs if v not in case.observed]
        for size in range(1, len(V) + 1):
            for n_seen in range(1, size + 1):
                for seen in list(subsets(others, n_seen))[: _MOST_SETS // 10]:
                    N = null_space(point.of([*case.observed, *seen]))
                    if len(N) == size - n_seen:
                        rows += [(", ".join(k), ", ".join(seen)) for k in (cures(N, len(N)) if len(N) else [()])]
            if rows:
                break
        rows = [(", ".join(k), "") for k in known_only] + rows[:_SHOWN]
    return pd.DataFrame(rows, columns=["known", "observed"], dtype=object)
