"""Noise as a user writes it: sds, expressions, names of parameters, "estimate", or a labelled covariance table.

A key of process noise is a state (the noise is added to its rate or its next value) or a parameter (the noise enters
where the parameter does; its value is the noise's mean). A key of measurement noise is an observed variable. Values::

    number                    a standard deviation
    text                      an expression: a parameter's name, "0.1 * z", "scale * err"
    "estimate"                a parameter is created for it: sd_w_<key>, sd_v_<variable> (`sd_name`)
    a table of all pairs      a covariance, entries numbers or expressions of parameters

`SaidNoise` describes the noise of readings for results, which hold numbers and texts but never a cost: expressions, and
the parameters or numbers that their names refer to. It gives the scatter of a reading about a prediction::

    sd of a reading of y = expression(predictions, parameters, known quantities at x)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from fmepy.checks import as_number
from fmepy.compiled.python_code import array_function, scalar_function
from fmepy.errors import ArgumentError, ParameterError, SimulationError, check_known, did_you_mean, listed
from fmepy.journal.encoding import Stored
from fmepy.language.derivatives import are_equal, quotient
from fmepy.language.equations import names_in, symbol
from fmepy.language.nodes import HALF, as_node, power
from fmepy.language.text import parse_expression
from fmepy.parameters.entities import EntityParameters
from fmepy.parameters.maps import Elementwise
from fmepy.parameters.names import normal_name
from fmepy.types import Matrix, Vector

ESTIMATE = "estimate"
PROCESS, MEASUREMENT = "sd_w_", "sd_v_"
"""Prefixes of the names of sds that are to be estimated."""
ERR = "err"
"""The name of a datum's own error in an expression."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """Noise of some keys.

    Attributes
    ----------
    keys : tuple of str, or of pairs of them
    sds : tuple of Node
        One for each key; for a covariance the square roots of its diagonal.
    covariance : tuple of Node, or None
        Lower triangle of a covariance, row by row; None: the noises are independent.
    made : tuple of (str, str)
        (parameter, key) of the sds that are to be estimated.
    """

    keys: tuple[Any, ...]
    sds: tuple[Any, ...]
    covariance: tuple[Any, ...] | None
    made: tuple[tuple[str, str], ...]

    @property
    def entries(self) -> tuple[Any, ...]:
        """The expressions of its size: the entries of the covariance, or the sds."""
        return self.sds if self.covariance is None else self.covariance

    def names(self) -> set[str]:
        """Return every name that occurs."""
        return names_in(self.entries)

    def matrix(self, parameters: Sequence[str]) -> Callable[[list[float]], Matrix]:
        """Return the covariance, in the order of the keys, as a function of the parameters' values."""
        function = scalar_function([[symbol(k) for k in parameters]], list(self.entries))
        rows, columns = np.tril_indices(len(self.keys))

        def matrix(p: list[float]) -> Matrix:
            try:
                values = np.array(function(p), dtype=float)
            except (ValueError, OverflowError, ZeroDivisionError, TypeError) as error:
                named = dict(zip(parameters, p, strict=True))
                raise SimulationError(f"the noise has no value: {error}", parameters=named) from None
            if self.covariance is None:
                return np.diag(values**2)
            out = np.zeros((len(self.keys),) * 2)
            out[rows, columns] = out[columns, rows] = values
            return out

        return matrix


def read_noise(given: Any, argument: str, known: Sequence[str], what: str, prefix: str) -> Noise:
    """Return a user's specification of noise as `Noise`.

    Parameters
    ----------
    given : None, mapping of key to sd, or square DataFrame
    argument : str
        Name of the argument, for messages.
    known, what : sequence of str, str
        Names that may be keys, and a description of them for messages.
    prefix : str
        Prefix of the parameters that "estimate" creates.

    Raises
    ------
    ArgumentError
        An unknown key, a negative or infinite sd, a table that is not square, symmetric or non-negative.
    """
    if given is None:
        return Noise((), (), None, ())
    if isinstance(given, pd.DataFrame):
        return _of_table(given, argument, known, what)
    if isinstance(given, pd.Series):
        given = given.to_dict()
    if not isinstance(given, Mapping):
        value = ESTIMATE if did_you_mean(given, [ESTIMATE]) else given
        like = f", such as {argument}={{{known[0]!r}: {value!r}}}" if known and isinstance(given, str | Real) else ""
        raise ArgumentError(
            f"`{argument}` must be a dict of names and standard deviations{like}, or a labelled covariance table; "
            f"got {given!r}."
        )
    keys, sds, estimated = [], [], []
    for key, value in given.items():
        name = normal_name(key)
        check_known(name, known, f"`{argument}`: {name!r} is not {what}.")
        if value == ESTIMATE:
            estimated.append((sd_name(prefix, name), name))
            value = estimated[-1][0]
        keys.append(name)
        sds.append(_sd(value, f"{argument}[{name!r}]"))
    return Noise(tuple(keys), tuple(sds), None, tuple(estimated))


def sd_name(prefix: str, key: str) -> str:
    """Return the name of the parameter that is the sd of a key, a name that is valid in expressions.

    Examples
    --------
    >>> sd_name(MEASUREMENT, "conc"), sd_name(MEASUREMENT, "people[north,old]")
    ('sd_v_conc', 'sd_v_people_north_old')
    """
    return prefix + re.sub(r"\W+", "_", key).rstrip("_") if key.endswith("]") else prefix + key


def names_of_noise(process_noise: Any, measurement_noise: Any, *others: Any) -> set[str]:
    """Return the parameters that noise specifications use or create, as far as they can be read."""
    made, texts = set(), []
    for given, prefix in ((process_noise, PROCESS), (measurement_noise, MEASUREMENT), *((one, "") for one in others)):
        entries = {}
        if isinstance(given, pd.DataFrame):
            entries = dict(enumerate(given.to_numpy().ravel()))
        elif isinstance(given, Mapping | pd.Series):
            entries = dict(given)
        texts_by_key = {key: word for key, word in entries.items() if isinstance(word, str)}
        made |= {sd_name(prefix, normal_name(key)) for key, word in texts_by_key.items() if word == ESTIMATE}
        texts += [word for word in texts_by_key.values() if word != ESTIMATE]
    return made | names_in([parse_expression(t, where="noise") for t in texts])


def with_noise_parameters(
    own: Mapping[str, float], given: Mapping[str, float], made: Mapping[str, float], *noises: Noise
) -> dict[str, float]:
    """Return all parameters: the model's `own`, those of the noise in `given`, those that "estimate" created.

    Raises
    ------
    ParameterError
        A parameter in `given` belongs to the model or is used by no noise; one in `made` belongs to the model.
    """
    out = {str(k): float(v) for k, v in own.items()}
    used = set().union(*(n.names() for n in noises))
    for name, value in given.items():
        key = str(name)
        if "[" in key:
            continue
        if key in out:
            raise ParameterError(
                f"`parms`: {key!r} is a parameter of the model. Change it there: model.replace(parms={{{key!r}: ...}})."
            )
        check_known(key, sorted({*used, *made}), f"`parms`: {key!r} is used nowhere in the noise.", ParameterError)
        out[key] = float(value)
    for name, value in made.items():
        if name in own:
            raise ParameterError(f"'estimate' would make a parameter {name!r}, which the model has already.")
        out.setdefault(name, float(value))
    return out


def check_names_of_noise(names: set[str], argument: str, known: Sequence[str]) -> None:
    """Raise an ArgumentError for a name in a noise that has no value."""
    for name in sorted(names):
        if name not in known:
            raise ArgumentError(
                f"`{argument}` uses {name!r}, which has no value. Give it in `parms`."
                f"{did_you_mean(name, (*known, ESTIMATE))}"
            )


def check_error_sd(name: str, sd: Any, known: Sequence[str], has_errors: bool) -> bool:
    """Tell whether the sd of an observed variable uses the data's own errors; refuse names that have no value."""
    where, used = f"measurement_noise[{name!r}]", names_in([sd])
    check_names_of_noise(used - {ERR}, where, known)
    if ERR in used and not has_errors:
        raise ArgumentError(f"`{where}` uses 'err', but there is no column of errors: name it, err=.")
    return ERR in used


def guessed_sd(series: Iterable[Vector]) -> float:
    """Return a first guess of a variable's noise: half the rms change between successive readings; 1 without data."""
    changes = np.concatenate([np.empty(0), *(np.diff(values) for values in series)])
    size = 0.5 * float(np.sqrt(np.mean(changes**2))) if len(changes) else 0.0
    return size if size > 0 else 1.0


def no_error_said(name: str) -> ArgumentError:
    """Return the error for an observed variable whose noise is not stated."""
    return ArgumentError(
        f"`measurement_noise` has no entry for {name!r}, and there is no column of errors. Give its sd, such as "
        f"measurement_noise={{{name!r}: 0.1}} or 'estimate', or name the column: err=."
    )


def _sd(value: Any, where: str) -> Any:
    """Return a standard deviation as an expression."""
    if isinstance(value, str):
        return parse_expression(value, where=where)
    number = as_number(value)
    if np.isnan(number):
        raise ArgumentError(
            f"`{where}` is {value!r}; a number, an expression such as 'sd_w' or '0.1 * z', or 'estimate' is needed."
        )
    if not (np.isfinite(number) and number >= 0):
        raise ArgumentError(f"`{where}` is {number:g}; a standard deviation is finite and not below zero.")
    return as_node(number)


def _of_table(table: pd.DataFrame, argument: str, known: Sequence[str], what: str) -> Noise:
    names = tuple(map(normal_name, table.columns))
    if not names or tuple(map(normal_name, table.index)) != names or len(set(names)) != len(names):
        raise ArgumentError(
            f"`{argument}`: a covariance table has the same names as rows and columns, in the same order; rows are "
            f"{listed(table.index)}, columns {listed(names)}."
        )
    for name in names:
        check_known(name, known, f"`{argument}`: {name!r} is not {what}.")
    cells = [[_entry(table.iat[i, j], f"{argument}[{a!r}, {b!r}]") for j, b in enumerate(names)]
             for i, a in enumerate(names)]  # fmt: skip
    for i, a in enumerate(names):
        for j, b in enumerate(names[:i]):
            if not are_equal(cells[i][j], cells[j][i]):
                raise ArgumentError(f"`{argument}` is not symmetric at {a!r}, {b!r}: {cells[i][j]} and {cells[j][i]}.")
    if not any(c.free_symbols for row in cells for c in row):
        check_covariance(np.array(cells, dtype=float), argument, names)
    entries = tuple(cells[i][j] for i in range(len(names)) for j in range(i + 1))
    return Noise(names, tuple(power(cells[i][i], HALF) for i in range(len(names))), entries, ())


def _entry(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return parse_expression(value, where=where)
    if not np.isfinite(number := as_number(value)):
        raise ArgumentError(f"`{where}` is {value!r}; a finite number or an expression is needed.")
    return as_node(number)


def check_covariance(matrix: Matrix, argument: str, names: Sequence[str]) -> None:
    """Raise an ArgumentError unless a matrix is a covariance (zero variances are)."""
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-10 * max(abs(values[-1]), 1e-300):
        raise ArgumentError(
            f"`{argument}` is not a covariance of {listed(names)}: it has the negative eigenvalue {values[0]:.4g}."
        )


def scale_parameters(sds: Sequence[Any], elsewhere: set[str]) -> list[str]:
    """Return the parameters that are scales of noise: only their absolute value matters, and only to the sds.

    Every sd that has one is proportional to it, or contains only its square, as ``sqrt(a**2 + (b*y)**2)`` does. Such a
    parameter cannot be negative, and a search should move its logarithm.
    """
    out = []
    for s in sorted({s for e in sds for s in e.free_symbols}, key=lambda s: s.name):
        if s.name in elsewhere or s.name == ERR:
            continue
        with_it = [e for e in sds if s in e.free_symbols]
        if all(are_equal(e.subs({s: -s}), e) or quotient(e, s) is not None for e in with_it):
            out.append(s.name)
    return out


def places_of_variances(variable: str, columns: Sequence[str]) -> list[int]:
    """Return the columns that hold sampled variances of a variable: its own, or those of the parts of a sum.

    Examples
    --------
    >>> places_of_variances("A", ["var_A[0]", "var_B", "var_A[1]"])
    [0, 2]
    """
    exact_match = [j for j, c in enumerate(columns) if c == f"var_{variable}"]
    part = re.compile(re.escape(f"var_{variable}") + r"\[\d+\]")
    return exact_match or [j for j, c in enumerate(columns) if part.fullmatch(c)]


Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class SaidSd(Stored):
    """The sd of some readings of a variable.

    Attributes
    ----------
    expression : str
    takes : dict of str to (str or float)
        For names in the expression the parameter of the cost, or the number, that they refer to.
    entity : str or None
        The entity whose readings they are; None: all entities.
    """

    expression: str
    takes: dict[str, str | float]
    entity: str | None = None

    @property
    def words(self) -> tuple[Any, ...]:
        """Its content, for comparison with others."""
        return self.expression, tuple(sorted(self.takes.items(), key=str))


@dataclass(frozen=True, slots=True, eq=False)
class SaidNoise(Stored):
    """The noise of the readings of a cost.

    Attributes
    ----------
    sds : dict of str to tuple of SaidSd
        By observed variable.
    scales : dict of str to (str or None)
        By observed variable the transform by which it is compared, in whose unit its sd is.
    values : dict of str to float
        The cost's own values of the parameters that are named.
    kinds : dict of str to str
        The transforms of transformed parameters (`transformed`).
    not_normal : tuple of str
        Variables whose errors are Laplace's, or whose likelihood has no additive errors, as that of counts.
    """

    sds: dict[str, tuple[SaidSd, ...]]
    scales: dict[str, str | None]
    values: dict[str, float]
    kinds: dict[str, str]
    not_normal: tuple[str, ...] = field(default=(), metadata={"formerly": "laplace"})

    def sd(self, variable: str, entity: str | None, known: Values, parameters: Callable[[str], Any]) -> Any:
        """Return the sd of a reading of a variable, in the unit of comparison; None if it is not stated.

        Parameters
        ----------
        variable : str
        entity : str or None
            The entity whose reading it would be.
        known : mapping of str to array
            Predictions, time, forcings.
        parameters : callable
            Value of a parameter of the cost, on the cost's scale; raises KeyError for an unknown one.

        Raises
        ------
        ArgumentError
            The readings of the variable differ in their noise, or it depends on unknown quantities, or is not normal.
        """
        if variable in self.not_normal:
            raise ArgumentError(
                f"reading=True: the errors of {variable!r} are not normal (`likelihood`), and bands of readings are of "
                "normal ones. Take the band of the model's value, or draw readings: cost.simulate(p), p a draw of a "
                "chain."
            )
        ways = [w for w in self.sds.get(variable, ()) if entity is None or w.entity in (None, entity)]
        if not ways:
            return None
        if len({w.words for w in ways}) > 1:
            raise ArgumentError(
                f"reading=True: the readings of {variable!r} differ in their stated noise (entities, parts of a "
                "sum, or names by row). Predict one entity, predict(cost.model_of(entity), fit), or take the band of "
                "the model's value."
            )
        sd = parse_expression(ways[0].expression, where=f"the noise of {variable!r}")
        names = sorted(names_in([sd]))
        values = [self._value(n, ways[0], variable, known, parameters) for n in names]
        with np.errstate(all="ignore"):
            return array_function([[symbol(n) for n in names]], [sd])(values)[0]

    def _value(self, name: str, way: SaidSd, variable: str, known: Values, parameters: Callable[[str], Any]) -> Any:
        source = way.takes.get(name, name)
        if not isinstance(source, str):
            return source
        if name in known and name not in way.takes:
            return known[name]
        try:
            value = parameters(source)
        except KeyError:
            value = self.values.get(source)
        if value is None:
            err = " (the datum's own error, which differs between readings)" if name == ERR else ""
            raise ArgumentError(
                f"reading=True: the noise of {variable!r} depends on {name!r}{err}, which is not known at the "
                "prediction. Take the band of the model's value."
            )
        kind = self.kinds.get(source)
        if kind is None:
            return value
        flat = np.ravel(np.asarray(value, dtype=float))
        names = tuple(map(str, range(flat.size)))
        return Elementwise(names, dict.fromkeys(names, kind)).full(flat).reshape(np.shape(value))

    def mapped(self, kinds: Mapping[str, str], values: Mapping[str, float]) -> SaidNoise:
        """Return the description for a cost whose parameters are transformed, with that cost's values."""
        own = {name: float(values.get(name, value)) for name, value in self.values.items()}
        return replace(self, values=own, kinds={**self.kinds, **{n: k for n, k in kinds.items() if n in own}})


def said_noise_of(
    sds: Mapping[str, Any],
    scales: Mapping[str, str | None],
    errors: Mapping[str, float | None],
    parameters: EntityParameters,
    cases: Iterable[tuple[int, str | None, set[str]]],
) -> SaidNoise:
    """Return the description of a cost's noise.

    Parameters
    ----------
    sds : mapping of variable to expression
    scales : mapping of variable to transform
    errors : mapping of variable to the error that all of its readings have, None where they differ
    parameters : EntityParameters
        The parameters of every case.
    cases : iterable of (case, its entity, observed variables)
    """
    names, found = list(parameters.parms.index), dict[str, dict[Any, SaidSd]]()
    for k, entity, read in cases:
        for variable in read & set(sds):
            takes: dict[str, str | float] = {}
            for name in names_in([sds[variable]]) & set(parameters.full_names):
                at = int(parameters.take[k, parameters.full_names.index(name)])
                takes[name] = str(names[at]) if at < len(names) else float(parameters.values[at])
            if (err := errors.get(variable)) is not None:
                takes[ERR] = err
            way = SaidSd(str(sds[variable]), takes, entity)
            found.setdefault(variable, {}).setdefault((entity, way.words), way)
    used = {v for ways in found.values() for w in ways.values() for v in w.takes.values() if isinstance(v, str)}
    values = {n: float(parameters.parms[n]) for n in names if n in used}
    return SaidNoise({v: tuple(ways.values()) for v, ways in found.items()}, dict(scales), values, {})


def joined_noise(parts: Iterable[SaidNoise | None]) -> SaidNoise | None:
    """Return the noise of all parts of a sum; None if no part states any."""
    known = [p for p in parts if p is not None]
    if not known:
        return None
    sds: dict[str, tuple[SaidSd, ...]] = {}
    for p in known:
        for variable, ways in p.sds.items():
            sds[variable] = (*sds.get(variable, ()), *ways)
    merged = [{k: v for p in known for k, v in getattr(p, field).items()} for field in ("scales", "values", "kinds")]
    scales, values, kinds = merged
    return SaidNoise(sds, scales, values, kinds, tuple(dict.fromkeys(v for p in known for v in p.not_normal)))


def said_noise(f: Any) -> SaidNoise | None:
    """Return the description of a cost's noise; None if it has none."""
    said = getattr(f, "said_noise", None)
    return said if isinstance(said, SaidNoise) else None
