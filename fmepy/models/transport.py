"""Transport in one dimension: `Grid1D`, cells one below the other, and `transport_1d`, what advection and diffusion do.

In cell i of volume V_i between the edges i and i + 1 of area A::

    dC_i/dt = (A_i J_i - A_{i+1} J_{i+1}) / V_i,     J = -D dC/dx + v C  at the edges, positive in the direction of x

Between two places where concentrations are known, h apart (the middles of cells; the boundary and the first middle),
the flux is the one that a steady flow with this D and v has (Fiadeiro and Veronis 1977; Boudreau 1997, p. 322)::

    J = D/h (B(-Pe) C_a - B(Pe) C_b),     Pe = v h / D,     B(z) = z / (e^z - 1)

It is central where diffusion rules and upstream where advection does, of second order in h, and it lets no
concentration become negative. Without advection J = -D (C_b - C_a) / h; without diffusion it is v times the
concentration upstream. Two other schemes take v times the concentration upstream, or v times the one that is linear
between both at the edge, in the place of what v adds here.

At an end with a boundary layer the concentration C_0 at the edge follows from the flux, the same on both sides of it::

    k (B(-v/k) C_beyond - B(v/k) C_0) = D/h (B(-Pe) C_0 - B(Pe) C_1)

References
----------
Fiadeiro, M. E. and Veronis, G. (1977). On weighted-mean schemes for the finite-difference approximation to the
advection-diffusion equation. Tellus 29, 512-522.
Boudreau, B. P. (1997). Diagenetic Models and Their Implementation. Springer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from fmepy.checks import finite_number, whole_number
from fmepy.errors import ArgumentError, check_choice, warn
from fmepy.models.definition.arguments import check_increasing, finite_numbers
from fmepy.models.definition.array_tracing import as_traced, between_forms, is_traced, require
from fmepy.types import Vector
from fmepy.vocabulary import own_words, with_own_words

_MOST_KNOWN = 64  # coefficients whose weights a grid keeps
_SWINGS = 2.0  # cell Peclet number above which central differences do
SCHEMES = ("exponential", "upwind", "central")


@with_own_words
class Grid1D:
    """Cells in one dimension, from the first edge to the last.

    Parameters
    ----------
    edges : array_like, shape (n_cell + 1,)
        Where cells meet, increasing; they need not be evenly spaced.
    area : float, array_like of shape (n_cell + 1,), or callable
        Cross-section at the edges, or as a function of x; it may be zero at an end.

    Attributes
    ----------
    edges, area : ndarray, shape (n_cell + 1,)
    mid, width, volume : ndarray, shape (n_cell,)
        Middles of the cells. The volume is the integral of the area where that is a function (by a rule that is exact
        of polynomials of degree 15), else the width times the mean area of both edges.
    distance : ndarray, shape (n_cell + 1,)
        From middle to middle, and at both ends from the boundary to the middle.

    Raises
    ------
    ArgumentError
        Fewer than two cells, edges that do not increase, areas that are negative, or zero between the ends.

    See Also
    --------
    Grid1D.sphere, Grid1D.cylinder, Grid1D.growing, Grid1D.phase

    Examples
    --------
    >>> grid = Grid1D([0, 1, 2, 4], area=[1, 1, 2, 2])
    >>> grid
    Grid1D of 3 cells from 0 to 4, widths 1 to 2, areas 1 to 2
    >>> grid.mid, grid.volume, grid.distance
    (array([0.5, 1.5, 3. ]), array([1. , 1.5, 4. ]), array([0.5, 1. , 1.5, 1. ]))
    """

    def __init__(self, edges: Any, *, area: Any = 1.0) -> None:
        self.edges = finite_numbers(edges, "edges", ArgumentError)
        if self.edges.ndim != 1 or len(self.edges) < 3:
            raise ArgumentError(
                f"`edges` makes a grid of {max(self.edges.size - 1, 0)} cells; at least two are needed, so three edges "
                "or more, such as np.linspace(0, 5, 101)."
            )
        check_increasing(self.edges, "edges", ArgumentError)
        self.area = _given_at(self.edges, area, "area")
        if not (self.area >= 0).all() or not (self.area[1:-1] > 0).all():
            raise ArgumentError(
                f"`area` must be above zero (zero is possible at an end alone); its smallest is {self.area.min():g}."
            )
        self.width: Vector = np.diff(self.edges)
        self.mid: Vector = (self.edges[:-1] + self.edges[1:]) / 2
        self.volume: Vector = self.width * self._means(area if callable(area) else self.area, "area")
        self.distance: Vector = np.diff(np.concatenate([self.edges[:1], self.mid, self.edges[-1:]]))
        self._known: dict[tuple[float, float, str], tuple[Any, Any]] = {}
        self._told = False  # of a Peclet number: once is enough
        for array in (self.edges, self.area, self.width, self.mid, self.volume, self.distance):
            array.flags.writeable = False

    def _means(self, given: Any, argument: str) -> Vector:
        """Return the mean in every cell of a function of x, or of what is given at the edges."""
        if not callable(given):
            at_edges = np.broadcast_to(given, self.edges.shape)
            return np.asarray((at_edges[:-1] + at_edges[1:]) / 2)
        nodes, weights = np.polynomial.legendre.leggauss(8)
        x = self.mid[:, None] + self.width[:, None] / 2 * nodes
        values = finite_numbers([[given(a) for a in row] for row in x.tolist()], argument, ArgumentError)
        if not (values > 0).all():
            raise ArgumentError(f"`{argument}` must be above zero within the cells; its smallest is {values.min():g}.")
        return np.asarray(values @ weights / 2)

    @classmethod
    def sphere(cls, edges: Any) -> Grid1D:
        """Return shells around the centre of a sphere (edges are radii): the area is 4 pi r^2.

        Examples
        --------
        >>> Grid1D.sphere([0, 1, 3]).volume.round(2)  # 4/3 pi (r_2^3 - r_1^3)
        array([  4.19, 108.91])
        """
        return cls(_radii(edges), area=lambda r: 4 * np.pi * r**2)

    @classmethod
    def cylinder(cls, edges: Any, *, length: float = 1.0) -> Grid1D:
        """Return shells around the axis of a cylinder (edges are radii): the area is 2 pi r times the length."""
        return cls(_radii(edges), area=lambda r: 2 * np.pi * r * length)

    @classmethod
    def growing(cls, start: float, end: float, n: int, *, first: float, area: Any = 1.0) -> Grid1D:
        """Return n cells whose widths grow by one factor from the `first` on: finer at the surface.

        Parameters
        ----------
        start, end : float
            The first and the last edge.
        n : int
        first : float
            Width of the first cell, not above that of even cells.
        area
            As of `Grid1D`.

        Examples
        --------
        >>> Grid1D.growing(0, 7, 3, first=1)
        Grid1D of 3 cells from 0 to 7, widths 1 to 4, area 1
        """
        start, end, first = (finite_number(v, k) for v, k in ((start, "start"), (end, "end"), (first, "first")))
        span, n = end - start, whole_number(n, "n", 2)
        if not 0 < first <= span / n:
            raise ArgumentError(
                f"`first={first!r}` must be above 0, and not above the width of {n} even cells, {span / n:g}."
            )
        from scipy.optimize import brentq

        powers = np.arange(n)
        factor = brentq(lambda q: first * (q**powers).sum() - span, 1.0, (span / first) ** (1 / (n - 1)), xtol=1e-15)
        return cls(np.concatenate([[start], start + first * np.cumsum(factor**powers)[:-1], [end]]), area=area)

    def phase(self, fraction: Any) -> Grid1D:
        """Return what a phase takes of the grid, such as porewater by the porosity, and solids by one minus that.

        Concentrations on it are per volume of the phase, and fluxes per area of the phase: ``flow.flux * phase.area``
        is what goes through the grid.

        Parameters
        ----------
        fraction : float, array_like of shape (n_cell + 1,), or callable
            Of the volume, above 0 and at most 1: at the edges, or as a function of x.

        Examples
        --------
        >>> grid = Grid1D([0, 1, 2, 3])
        >>> grid.phase([0.9, 0.7, 0.6, 0.6]).volume
        array([0.8 , 0.65, 0.6 ])
        """
        at_edges = _given_at(self.edges, fraction, "fraction")
        if not ((at_edges > 0) & (at_edges <= 1)).all():
            raise ArgumentError(
                f"`fraction` must be above 0 and at most 1; it goes from {at_edges.min():g} to {at_edges.max():g}."
            )
        out, means = Grid1D(self.edges), self._means(fraction if callable(fraction) else at_edges, "fraction")
        out.area, out.volume = self.area * at_edges, self.volume * means
        for array in (out.area, out.volume):
            array.flags.writeable = False
        return out

    def exchange(self, D: Any, v: Any, scheme: str = "exponential") -> tuple[Any, Any]:
        """Return (G, v) of the fluxes ``G (C_a - C_b) + v C_a`` between neighbours a and b; v is None where it is zero.

        Those of single numbers are kept, since the cells of one run ask for the same again and again.
        """
        is_plain = isinstance(D, float | int) and isinstance(v, float | int)
        if is_plain and (D, v, scheme) in self._known:
            return self._known[D, v, scheme]
        n = len(self.mid)
        D, v = _at_edges(D, n, "D"), _at_edges(v, n, "v")
        if is_traced(D):
            require(D >= 0)
        elif np.any(np.asarray(D) < 0):  # NaN is how dependencies are found
            raise ArgumentError(f"`D` must not be negative; its smallest is {np.nanmin(D):g}.")
        carries = not (isinstance(v, float | int) and v == 0)
        out = self._weights(D, v, scheme) if carries else D / self.distance, v if carries else None
        if is_plain:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[D, v, scheme] = out
        return out

    def _weights(self, D: Any, v: Any, scheme: str) -> Any:
        h = self.distance
        if scheme == "exponential":
            return _weighted(h, D, v)
        if scheme == "upwind":
            return D / h + np.maximum(-v, 0.0)
        if not (self._told or is_traced(D, v)):
            self._tell_swings(D, v)
        return D / h - v * (self.edges - np.concatenate([self.edges[:1], self.mid])) / h

    def _tell_swings(self, D: Any, v: Any) -> None:
        """Warn of the largest cell Peclet number if central differences swing there."""
        with np.errstate(divide="ignore", invalid="ignore"):
            Pe = np.nan_to_num((np.abs(v) * self.distance / D)[1:-1], nan=0.0, posinf=np.inf)
        if Pe.max() > _SWINGS * (1 + 1e-9):  # rounding is no swing
            self._told = True
            warn(
                f"transport_1d: the cell Peclet number |v| h / D is {Pe.max():.3g} at x = "
                f"{self.edges[1:-1][np.argmax(Pe)]:g}; above {_SWINGS:g} central differences swing from cell to cell, "
                "also below zero. Take scheme='exponential' (the default) or 'upwind', or narrower cells."
            )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_known": {}}

    def __len__(self) -> int:
        return len(self.mid)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid1D):
            return NotImplemented
        return all(np.array_equal(getattr(self, k), getattr(other, k)) for k in ("edges", "area", "volume"))

    def __hash__(self) -> int:
        return hash((self.edges.tobytes(), self.area.tobytes()))

    def __repr__(self) -> str:
        ends, parts = f"from {self.edges[0]:g} to {self.edges[-1]:g}", []
        for name, values in (("width", self.width), ("area", self.area)):
            low, high = f"{values.min():g}", f"{values.max():g}"
            parts.append(f"{name} {low}" if low == high else f"{name}s {low} to {high}")
        return f"Grid1D of {len(self)} cells {ends}, {parts[0]}, {parts[1]}"


def _given_at(edges: Vector, given: Any, argument: str) -> Vector:
    """Return the numbers at the edges of what is one number, one an edge, or a function of x."""
    found = finite_numbers([given(x) for x in edges] if callable(given) else given, argument, ArgumentError)
    if found.ndim and found.shape != edges.shape:
        raise ArgumentError(
            f"`{argument}` has the shape {found.shape}; give one number, one at {len(edges)} edges, or a function of x."
        )
    return np.broadcast_to(found, edges.shape).copy()


def _radii(edges: Any) -> Vector:
    radii = finite_numbers(edges, "edges", ArgumentError)
    if (radii < 0).any():
        raise ArgumentError(f"`edges` are radii, at least 0; the smallest is {radii.min():g}.")
    return radii


@dataclass(slots=True, eq=False)
class Transport:
    """Result of `transport_1d`: rates of change, fluxes, balance.

    Attributes
    ----------
    rate : ndarray, shape (n_cell,)
        dC/dt by transport: amount per volume and time.
    flux : ndarray, shape (n_cell + 1,)
        Through every edge, per area and time, positive in the direction of x.
    grid : Grid1D

    Examples
    --------
    >>> flow = transport_1d([1.0, 2.0, 4.0], Grid1D([0, 1, 2, 3]), D=0.5)
    >>> flow.flux.tolist(), flow.rate.tolist()
    ([0.0, -0.5, -1.0, 0.0], [0.5, 0.5, -1.0])
    """

    rate: Vector
    flux: Vector
    grid: Grid1D

    def __getattr__(self, name: str) -> Any:
        word = {"dC": "rate", "flux_up": "flux[0]", "flux_down": "flux[-1]"}.get(name)
        hint = f" Write .{word} for it." if word else ""
        raise AttributeError(f"Transport has no {name!r}.{hint} It has rate, flux, flux_mid, balance and grid.")

    def _arithmetic(self, *_: Any) -> Any:
        raise ArgumentError("Reckon with the rates of transport_1d, such as transport_1d(C, grid, D=D).rate - k * C.")

    __neg__ = __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _arithmetic

    @property
    def flux_mid(self) -> Vector:
        """The flux in the middles of cells, the mean of both edges: a profile, for tables and pictures."""
        return (self.flux[:-1] + self.flux[1:]) / 2

    @property
    def balance(self) -> Any:
        """The inflow at both ends minus the gain of the cells, amount per time: zero but for rounding."""
        through = self.grid.area * self.flux
        balance = through[0] - through[-1] - self.rate @ self.grid.volume
        return balance if is_traced(balance) else float(balance)


@own_words
def transport_1d(
    C: Any,
    grid: Grid1D,
    *,
    D: Any = 0.0,
    v: Any = 0.0,
    up: Any = None,
    down: Any = None,
    flux_up: Any = None,
    flux_down: Any = None,
    transfer_up: Any = None,
    transfer_down: Any = None,
    scheme: str = "exponential",
) -> Transport:
    """Return how advection and diffusion change the concentrations in the cells of a grid.

    Parameters
    ----------
    C : ndarray, shape (n_cell,)
        Concentrations in the cells.
    grid : Grid1D
    D : float or array_like, shape (n_cell + 1,)
        Diffusion (dispersion, mixing) coefficient, at the edges.
    v : float or array_like, shape (n_cell + 1,)
        Velocity, at the edges; positive in the direction of x.
    up, down : float, optional
        Concentration at the first and at the last edge.
    flux_up, flux_down : float, optional
        Flux through the first and the last edge, positive in the direction of x: what enters above, what leaves below.
        Without `up` and `flux_up` (`down` and `flux_down`) there is no gradient at that end: the flow carries out, or
        in, the concentration of the cell beside it.
    transfer_up, transfer_down : float, optional
        Transfer coefficient of a boundary layer at that end, length per time, such as D over its thickness; `up`
        (`down`) is then the concentration beyond it. Zero lets through what flows alone: v times the concentration
        where it comes from.
    scheme : {"exponential", "upwind", "central"}
        How v carries from cell to cell: as a steady flow does (see Notes), the concentration upstream, or the one
        between both cells.

    Returns
    -------
    Transport
        ``rate`` (one a cell), ``flux`` (one an edge), ``balance``.

    Raises
    ------
    ArgumentError
        Both a concentration and a flux at one end; a boundary layer without the concentration beyond it; another number
        of concentrations than cells; a negative D; an unknown scheme; what is no number, or one that is not finite.

    Warns
    -----
    UserWarning
        Once a grid: with ``scheme="central"`` a cell Peclet number ``|v| h / D`` above 2, where it swings.

    See Also
    --------
    Grid1D, SteadyModel, ode_1d

    Notes
    -----
    The fluxes are those of a steady flow between two middles (see `fmepy.models.transport`): of second order on even
    and on smoothly uneven grids, and never the cause of negative concentrations. Where nothing diffuses they are
    upstream fluxes, of first order. ``scheme="upwind"`` spreads fronts by as much as a diffusion of ``|v| h / 2`` more;
    "central" is of second order, and swings where ``|v| h / D`` is above 2. Any number may be a forcing of the model.

    Examples
    --------
    >>> grid = Grid1D([0, 1, 2, 3])
    >>> flow = transport_1d(np.array([2.0, 1.0, 0.0]), grid, D=0.5, up=2.5)
    >>> flow.flux, flow.rate, flow.balance
    (array([0.5, 0.5, 0.5, 0. ]), array([0. , 0. , 0.5]), 0.0)
    """
    for end, known, flux, layer in (("up", up, flux_up, transfer_up), ("down", down, flux_down, transfer_down)):
        if known is not None and flux is not None:
            raise ArgumentError(
                f"The concentration {known!r} and the flux {flux!r} are two conditions at one end, `{end}` and "
                f"`flux_{end}`: give one of the two, or neither (no gradient)."
            )
        if layer is not None and known is None:
            raise ArgumentError(
                f"`transfer_{end}={layer!r}` is of a boundary layer: give the concentration beyond it, {end}=."
            )
    if not isinstance(grid, Grid1D):
        raise ArgumentError(f"`grid` must be a Grid1D, such as Grid1D(np.linspace(0, 5, 101)); got {grid!r}.")
    check_choice(scheme, SCHEMES, "scheme")
    up, down = _at_end(up, "up"), _at_end(down, "down")
    flux_up, flux_down = _at_end(flux_up, "flux_up"), _at_end(flux_down, "flux_down")
    layers = _at_end(transfer_up, "transfer_up"), _at_end(transfer_down, "transfer_down")
    n, traced = len(grid.mid), is_traced(C, D, v, up, down, flux_up, flux_down, *layers)
    C = _as_numbers(C, "C")
    if np.shape(C) != (n,):
        raise ArgumentError(
            f"`C` has the shape {np.shape(C)}; the grid has {n} cells, so {n} concentrations are needed."
            + (" With OdeModel(..., grid=grid) a state is such a profile." if np.shape(C) == () else "")
        )
    along, carried = grid.exchange(D, v, scheme)
    if layers[0] is not None:
        up = _behind_layer(layers[0], _at(carried, 0), up, along[0], C[0])
    if layers[1] is not None:
        down = _behind_layer(layers[1], -_at(carried, -1), down, along[-1] + _at(carried, -1), C[-1])
    known = as_traced(np.empty(n + 2)) if traced else np.empty(n + 2)
    known[1:-1] = C  # without a gradient the boundary has the concentration of the cell
    known[0], known[-1] = C[0] if up is None else up, C[-1] if down is None else down
    above = known[:-1]
    flux = along * (above - known[1:])
    if carried is not None:
        flux += carried * above
    if traced:
        flux = as_traced(flux)
    if flux_up is not None:
        flux[0] = flux_up
    if flux_down is not None:
        flux[-1] = flux_down
    through = grid.area * flux
    return Transport((through[:-1] - through[1:]) / grid.volume, flux, grid)


def _at(carried: Any, i: int) -> Any:
    """Return v at an end."""
    return 0.0 if carried is None else carried[i] if np.ndim(carried) else carried


def _behind_layer(k: Any, v: Any, beyond: Any, along: Any, C: Any) -> Any:
    """Return C_0 of ``k B(-v/k) beyond - k B(v/k) C_0 = (along + v) C_0 - along C``; v flows into the grid."""
    if is_traced(k):
        require(k >= 0)
    elif k < 0:
        raise ArgumentError(f"a transfer coefficient must not be negative; it is {k:g}.")
    back = _weighted(np.float64(1.0), k, v)
    return ((back + v) * beyond + along * C) / (back + v + along)


def _as_numbers(value: Any, argument: str) -> Any:
    """Return symbols and plain numbers as they are, all else as an array; text, and a plain NaN, are refused.

    NaN that was computed with arrays passes: it is how dependencies are found, see `fmepy.numerics.structure`.
    """
    try:
        if value is None or isinstance(value, str | bytes) or (type(value) in (float, int) and not isfinite(value)):
            raise ValueError
        return value if is_traced(value) or isinstance(value, float | int) else np.asarray(value, dtype=float)
    except (ValueError, TypeError, OverflowError):
        hint = f" Write its values, such as {argument}=f(grid.edges)." if callable(value) else ""
        raise ArgumentError(f"`{argument}={value!r}`: transport needs finite numbers.{hint}") from None


def _at_end(value: Any, argument: str) -> Any:
    """Return what holds at an end: one number, or None."""
    found: Any = None if value is None else _as_numbers(value, argument)
    if is_traced(value) or np.ndim(found) == 0:
        return found
    if np.size(found) != 1:
        raise ArgumentError(f"`{argument}` holds {np.size(found)} values; at an end of the grid one is needed.")
    return np.ravel(found)[0]


def _at_edges(value: Any, n: int, argument: str) -> Any:
    """Return a coefficient as one number, or one an edge."""
    found = _as_numbers(value, argument)
    if np.ndim(found) == 0:
        return found if is_traced(found) or isinstance(found, float | int) else float(found)
    if found.shape != (n + 1,):
        raise ArgumentError(f"`{argument}` has the shape {found.shape}; one number is needed, or one at {n + 1} edges.")
    return found


def _weighted(h: Any, D: Any, v: Any) -> Any:
    """Return D/h B(Pe), one an edge; without diffusion what makes the flux the one upstream."""
    if isinstance(v, float | int) and v == 0:
        return D / h
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        Pe = v * h / D
        small, finite = between_forms(np.abs(Pe) < 1e-5), between_forms(np.isfinite(Pe))
        weight = np.where(small, 1 - Pe / 2, Pe / np.expm1(Pe))  # B(Pe); B(-Pe) = B(Pe) + Pe
        return np.where(finite, D / h * weight, np.maximum(-v, 0.0))
