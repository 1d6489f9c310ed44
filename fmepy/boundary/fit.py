"""fit_boundary: estimate the unknowns of a model from observations as boundary conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from fmepy.boundary.problem import BoundaryProblem, Solution
from fmepy.boundary.result import BoundaryFit
from fmepy.boundary.unknowns import Requested, check_unknowns, entity_unknowns, gains_among, names_in_order, starts_of
from fmepy.checks import between_0_and_1, whole_number
from fmepy.costs.base import minus2loglik_of_squares, variances
from fmepy.costs.entities import read_entity_column
from fmepy.costs.modcost import ModCost, tabulate
from fmepy.costs.observer_gain import STATIONARY, names_of_gain, names_taken
from fmepy.costs.prediction import PredictionErrorCost
from fmepy.costs.simulation import SimulationCost
from fmepy.costs.solver_error import is_exact, is_too_large, solver_error, told_error
from fmepy.errors import ArgumentError, DataError, SimulationError, check_choice, did_you_mean, listed
from fmepy.fitting.judge import on_a_bound
from fmepy.fitting.result import ModFit
from fmepy.models.base import Model
from fmepy.numerics.covariance import Spectrum
from fmepy.parallel.interruption import interruptible
from fmepy.parameters.entities import local_name
from fmepy.parameters.named import Parameters, as_bounds, as_parameters, check_inside, check_names
from fmepy.parameters.names import split_local
from fmepy.tables.columns import as_table
from fmepy.types import UserBounds

STRATEGIES = ("complementary", "particular")


@interruptible(lambda fit: fit.message)
def fit_boundary(
    model: Any,
    obs: Any,
    p: Any = None,
    *,
    x: str = "time",
    y: str | None = None,
    err: str | None = None,
    weight: str = "none",
    strategy: str = "complementary",
    segments: int | Literal["auto"] = 1,
    gain: Any = None,
    entity: str | None = None,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    tol: float = 1e-8,
    max_iter: int = 50,
    path: Any = None,
    process_noise: Any = None,
    measurement_noise: Any = None,
    operating_point: Any = None,
) -> BoundaryFit:
    r"""Return the unknowns of a model, from observations as boundary conditions on the solution of its equations.

    Parameters
    ----------
    model : fmepy model
        Differential or difference equations, with whatever forcings, events and coefficients that depend on time.
    obs : DataFrame, or mapping of names to columns
        The observations, wide or long, of any states or outputs at any times of the model's record, as `SimulationCost`
        takes them; missing ones (NaN) are left out.
    p : list of names, dict or Series of first guesses, or None
        The unknowns: parameters, of which some are initial values (``state={"Y2": "Y20"}`` of the model). Names take
        the model's values as the first guess; None: all parameters of the model.
    x, y, err : str
        Columns of the times, of the values of a long table, of standard errors.
    weight : {"none", "std", "mean"}
        Without `err`, the error of a variable, as in `modCost`. It matters where there are more observations than
        unknowns.
    strategy : {"complementary", "particular"}
        How the linear equations of a step are put: one particular solution, from the first guess through all steps,
        plus complementary functions; or particular solutions alone, from the current start and from starts with one
        unknown each 1.2 times as large. The answers are the same to rounding. Of one segment.
    segments : int or "auto"
        More than one: multiple shooting, for long, oscillating, unstable or chaotic records. The record is cut into so
        many pieces of as many times of observations each, an experiment with fewer times into fewer. "auto": one for
        each time that the data go up and down, or for each tenfold growth of an error of the state along the record,
        whichever are more, as long as each has twice as many observations as there are states.
    gain : dict, table, array, number or "stationary", optional
        The model is corrected by its data inside a segment, at every sample, as `PredictionErrorCost` says
        (``form="innovation"``): residuals are errors of prediction, and starts of segments matter less. Names in it
        that the model does not have are unknowns too, whose first guesses stand in `p`: ``{"theta": {"y": "K"}}`` with
        ``p={"L": 0.7, "K": 0.0}``.
    entity : str, optional
        Column that names the experiment of a row: each runs by itself. Unknown initial values are then local, every
        experiment has its own (``A0`` stands for ``A0[1]``, ``A0[2]``, ...); the other unknowns, those of a gain among
        them, are shared, but for those that are named with an experiment, such as ``k[2]``.
    lower, upper : number, sequence, or dict by name
        Bounds of the unknowns. The linear equations are solved inside them: an unknown that a step would take across is
        held on the bound, and the others are found with it there.
    tol : float
        Converged when two successive starts agree so far, relative to the unknowns ("particular": when the multipliers
        of the perturbed starts vanish so far).
    max_iter : int
        Steps, at most; of multiple shooting so many with soft continuity, and so many with exact, of each search.
    path : DataFrame or mapping of names to columns, optional
        Of multiple shooting: a first guess of the path, times and states (and the column of experiments), linear in
        between, from which segments start. Default: observed states from the data, the others from the run from the
        first guess, or from one in which observed states are set to the data on the way, whichever fits better.
    process_noise, measurement_noise, operating_point : mapping, optional
        What ``gain="stationary"`` follows from, as `PredictionErrorCost` says: of the model at its own parameters,
        fixed from the beginning. Observations are then weighted by that filter's sds of the errors of prediction.

    Returns
    -------
    BoundaryFit

    Raises
    ------
    ArgumentError
        The equations cannot be run from the first guess; unknowns that no observation depends on there, or whose
        homogeneous solutions are collinear at the observations (they are named); `model` that is no fmepy model; a gain
        of a variable that is not observed, without a first guess, or that makes the predictor unstable.
    DataError
        Fewer observations than unknowns; observations outside the model's record; more segments than times with
        observations; what else a table cannot be.
    ParameterError
        An unknown name (with the nearest), the name of a state, a first guess outside its bounds.

    See Also
    --------
    modFit : any cost by any method, the same least squares among them.
    SimulationCost : observations and model as a cost.

    Notes
    -----
    Parameters are states that do not change (dp/dt = 0), so that to find them is to find initial conditions, those of
    unobserved states among them. With z the state so extended, z_N the solution of its equations dz/dt = f(z, t) from
    the current start u, and J = df/dz along it, the linearised equations::

        dz/dt = f(z_N, t) + J(z_N, t) (z - z_N)

    have solutions that superpose. Their homogeneous solutions h_k, from a unit vector in unknown k, are the
    sensitivities of the model. "complementary" finds c in ``z_p + sum_k c_k h_k = b`` at the observations b, z_p the
    solution from the first guess u_1, and goes on from ``u_1 + c``; "particular" finds ``sum_k a_k z_k = b`` with
    ``sum_k a_k = 1``, and goes on from ``sum_k a_k u_k``. Where there are more observations than unknowns both are
    solved by weighted least squares. Observed outputs that are not linear in the states are linearised as the equations
    are.

    Both are Gauss-Newton steps on single shooting, so that the answer is that of ``modFit(SimulationCost(...))``, with
    the same residuals and the same covariance. A step after which the equations cannot be run, or which brings the
    solution by less than a tenth of what was predicted nearer to the observations, is solved for again with damping, as
    Levenberg and Marquardt do, until neither is so (column ``damping``; 0 of a plain step). A fit that ends otherwise
    than by the tolerance has ``converged`` false, the last iterate in ``par``, and says what to do in ``message``;
    corrections that no longer shrink, as they are of the size of the solver's error, count as converged, and are told.

    **Multiple shooting** (``segments > 1``) makes the state at which every segment begins unknown as well, and asks for
    continuity between segments. With r the weighted residuals and d the defects of continuity, in sizes of the states,
    ``|r/s|^2 + |d/sigma|^2`` is brought down by Levenberg and Marquardt's steps for sigma = 3, 0.3, 0.03, 0.003, s the
    size of the residuals (segments so short that they do not determine their own starts begin with 0.03); then
    Gauss-Newton steps meet the linearised continuity exactly, with damping where they do not lead on without, until the
    corrections are below `tol` and the defects below 1e-8. Segments that fit far worse than the rest are started anew,
    from the end of the one before, from a run that is set to the data, or from values that unobserved states take
    elsewhere, on the way. A search that fails, or at whose end segments stand out (`misfit` of the result), is made
    again with twice and four times as many segments, whose better path is then taken. A segment that stands out still,
    and is followed from another start or follows nothing of its data, lies in a false minimum: ``converged`` is false;
    other large residuals (outliers, errors of another size) are told in ``message``. The starts of segments are
    eliminated block by block, in a time that grows as their number. Estimate and covariance are those of one segment,
    wherever that can be solved. Columns of ``iterations``: ``defect_scale`` (sigma, 0 of exact steps), ``damping``,
    ``defect``, the largest at the start. The length of segments matters most: where an error grows tenfold over one,
    more of them find the way from farther.

    **A gain that is unknown** has an answer by continuity alone: from a free start a predictor can follow any data,
    with errors that vanish as its gain grows and makes it unstable. So gains stay at their first guess while
    continuity is soft; then they are found from one continuous path to the next, and steps that would make the
    predictor unstable are not taken. The estimate is that of ``modFit(PredictionErrorCost(...))``.

    References
    ----------
    Leary, R. A. (1972), system identification by boundary-value methods, USDA Forest Service. Baird (1969), J. Optim.
    Theory Appl. 3, 227-242. Childs et al. (1971), Int. J. Systems Sci. 2, 49-57.

    Examples
    --------
    Two rates of growth from one observation of two states:

    >>> from fmepy import DifferenceModel
    >>> def growth_step(n, Y1, Y2, *, a11=0.5, a21=0.5):
    ...     return Y1 + a11 * Y1 + 0.75 * Y2, Y2 + a21 * Y1 + 0.25 * Y2
    >>> two = DifferenceModel(growth_step, state={"Y1": 1, "Y2": 4}, times=[0, 1])
    >>> fit = fit_boundary(two, {"time": [1], "Y1": [4.4], "Y2": [5.6]}, ["a11", "a21"])
    >>> fit.iterations.round(6)[["step", "a11", "a21", "c.a11", "c.a21"]]
       step  a11  a21  c.a11  c.a21
    0     1  0.5  0.5   -0.1    0.1
    1     2  0.4  0.6   -0.1    0.1
    >>> fit.par.round(6).to_dict(), fit.converged
    ({'a11': 0.4, 'a21': 0.6}, True)
    """
    check_choice(strategy, STRATEGIES, "strategy")
    _check_model(model)
    check_unknowns(p, model)
    is_auto = isinstance(segments, str) and segments == "auto"
    count = 1 if is_auto else whole_number(segments, "segments", 1, hint=', or "auto"')
    max_iter = whole_number(max_iter, "max_iter", 1)
    tol = between_0_and_1(tol, "tol", ", such as 1e-8")
    if path is not None and segments == 1:
        raise ArgumentError(
            "`path` is where segments start, and there is one, which starts at the initial values. Give segments=10, "
            "say, or first guesses of the initial values in `p`."
        )
    if x is None:
        raise ArgumentError("`x=None`: an observation is a boundary condition at its time; name the column of times.")
    noise = {
        "process_noise": process_noise, "measurement_noise": measurement_noise, "operating_point": operating_point
    }  # fmt: skip
    _check_noise_of_gain(gain, noise)
    words: dict[str, Any] = {"x": x, "y": y, "err": err, "weight": weight}
    if entity is None:
        cost = _cost(model, obs, gain, names_in_order(p, map(str, model.parms.index)), noise, **words)
        parameters = as_parameters(p, cost.parms)
    else:
        unknowns = entity_unknowns(p, model, _further_names(model, gain))
        texts = read_entity_column(as_table(obs), entity).texts
        each: dict[str, Any] = {local_name(n, t): None for n in unknowns.local if n in unknowns.further for t in texts}
        guesses = each | unknowns.spread(unknowns.guesses, texts)
        cost = _cost(model, obs, gain, guesses, noise, entity=entity, entity_parms=unknowns.local, **words)
        parameters, lower, upper = _of_entities(unknowns, cost, lower, upper)
    low, high = as_bounds(lower, upper, parameters.names)
    check_inside(parameters.values, low, high, parameters.names)
    _check_enough(parameters.names, len(cost.comparison))
    problem = BoundaryProblem(
        cost=cost,
        names=parameters.names,
        start=parameters.values,
        lower=low,
        upper=high,
        starts_of=starts_of(model, parameters.names),
        strategy=strategy,
        segments=count,
        gain=gain,
        tol=tol,
        max_iter=max_iter,
        path=path,
        gains=() if gain is None else gains_among(parameters.names, model, gain),
    )
    why = ""
    if is_auto:
        from fmepy.boundary.shooting_auto import number_of_segments

        count, why = number_of_segments(problem)
        problem = replace(problem, segments=count)
    if problem.method == strategy:
        from fmepy.boundary.superposition import solve
    else:
        from fmepy.boundary.shooting import solve
    return _result(problem, solve(problem), why)


def _check_noise_of_gain(gain: Any, noise: Mapping[str, Any]) -> None:
    """Raise an ArgumentError for noise without gain="stationary"."""
    names = [argument for argument, value in noise.items() if value is not None]
    if names and not (isinstance(gain, str) and gain == STATIONARY):
        own = f"gain={gain!r} is your own.{did_you_mean(gain, [STATIONARY])}" if isinstance(gain, str) else ""
        raise ArgumentError(
            f"`{names[0]}` is what gain='stationary' follows from; "
            f"{own or ('there is no gain here.' if gain is None else 'a gain of your own needs none.')} Errors of the "
            "observations are given by `err` or `weight`; modFit of a SimulationCost or FimlofCost estimates noise."
        )


def _further_names(model: Any, gain: Any) -> tuple[str, ...]:
    """Return the names in a gain that the model does not have as parameters: unknowns of their own."""
    own = set(map(str, model.parms.index))
    return tuple(name for name in names_of_gain(gain) if name not in own)


def _cost(
    model: Any, obs: Any, gain: Any, guesses: Mapping[str, Any], noise: Mapping[str, Any], **words: Any
) -> SimulationCost:
    """Return model and observations as a cost; with a gain, that of the model corrected by them.

    `guesses` holds the unknowns and their first guesses, of several experiments by the names of all of them.
    """
    if gain is None:
        return SimulationCost(model, obs, **words)
    further = _further_names(model, gain)
    of_model = list(map(str, model.parms.index))
    known = [*of_model, *further]
    check_names(dict.fromkeys(split_local(k, known)[0] for k in guesses), known, argument="p")
    own = {k: v for k, v in guesses.items() if split_local(k)[0] in further}
    as_parameters({k: v for k, v in own.items() if v is not None} or {"none": 0.0}, argument="p")
    for name in set(further) - set(names_taken(model)):
        values = {k: v for k, v in own.items() if split_local(k)[0] == name} or {name: None}
        if missing := [k for k, v in values.items() if v is None]:
            raise ArgumentError(
                f"`gain` uses {name!r}, which the model does not have, so that it is unknown and needs a first guess: "
                f"add {{{missing[0]!r}: 0.0}} to `p`, with the guesses of the other unknowns, or write a number."
            )
    return PredictionErrorCost(model, obs, gain=gain, parms=own, **noise, **words).as_squares()


def _check_model(model: Any) -> None:
    if isinstance(model, Model):
        return
    kind = type(model).__name__
    if hasattr(model, "comparison"):
        raise ArgumentError(
            f"`model` is a {kind}, a cost. fit_boundary takes model and observations: cost.model, cost.obs."
        )
    raise ArgumentError(
        f"`model` must be a fmepy model, such as an OdeModel or a DifferenceModel; got {kind}. A function of your own "
        "can be fitted by modFit."
    )


def _of_entities(
    unknowns: Requested, cost: SimulationCost, lower: UserBounds, upper: UserBounds
) -> tuple[Parameters, UserBounds, UserBounds]:
    """Return the unknowns of several experiments, with first guesses, and their bounds."""
    assert cost.experiments is not None, "a cost of several experiments"
    texts, own = cost.experiments.column.texts, cost.parms
    wanted = unknowns.spread(unknowns.guesses, texts)
    check_names(wanted, own.index, argument="p")
    guesses = {name: own[name] if value is None else value for name, value in wanted.items()}
    return as_parameters(guesses, own), unknowns.bound(lower, texts), unknowns.bound(upper, texts)


def _check_enough(names: Sequence[str], n_obs: int) -> None:
    if n_obs < len(names):
        raise DataError(
            f"{len(names)} unknowns, {n_obs} observation{'s' * (n_obs != 1)}: as many observations as unknowns are "
            f"needed, or more. Unknown are {listed(names)}; leave some out of `p`, or observe more."
        )


def _result(problem: BoundaryProblem, outcome: Solution, why: str) -> BoundaryFit:
    modcost = tabulate(problem.cost.comparison, outcome.modelled)
    trajectory = outcome.trajectory
    messages = [*filter(None, [outcome.message, why])]
    if trajectory is None:
        try:
            trajectory = problem.cost.run(dict(zip(problem.names, outcome.theta.tolist(), strict=True)))
        except SimulationError as error:
            messages.append(f"The path cannot be run to the end of the model's times: {error}")
    return BoundaryFit(
        fit=_as_modfit(problem, outcome, modcost, messages),
        trajectory=trajectory,
        segments=problem.segments,
        entity=problem.cost.entity,
        **outcome.of("iterations", "multipliers", "defect", "misfit", "linearised"),
    )


def _as_modfit(problem: BoundaryProblem, outcome: Solution, modcost: ModCost, messages: list[str]) -> ModFit:
    """Return the estimate as a fit like any other."""
    theta, c = outcome.theta, problem.cost.comparison
    n, ssr = len(c), modcost.model
    is_at_bound = (theta == problem.lower) | (theta == problem.upper)
    at_bound = tuple(name for name, is_at in zip(problem.names, is_at_bound, strict=True) if is_at)
    observed = modcost.data
    with_errors = np.isfinite(observed.errors).any()
    error = _solver_error(problem, outcome, ssr)
    no_freedom = (
        f"{n} observations for {n} unknowns leave no degrees of freedom: no residual variance, no standard errors."
        if n == theta.size
        else ""
    )
    kinds, per_datum = getattr(problem.cost.model, "transforms", {}), dict[str, Any](variances(c, modcost.res))
    return ModFit(
        names=problem.names,
        theta=theta.copy(),
        ssr=ssr,
        minus2loglik=modcost.minus2loglik if with_errors else minus2loglik_of_squares(modcost.res, c.weights),
        minimised=ssr,
        ms=ssr / n,
        **per_datum,
        **outcome.of("curvature", "evaluations", "engine", "retries", "failures", "interrupted"),
        weighted=modcost.res,
        groups=c.groups,
        group_names=c.group_names,
        rank=theta.size if outcome.curvature is None else Spectrum.of(outcome.curvature).rank,
        cost=modcost,
        method=problem.method,
        converged=outcome.converged and not is_too_large(error),
        message=" ".join(filter(None, [*messages, *on_a_bound(at_bound), no_freedom, told_error(error)])),
        iterations=len(outcome.iterations),
        rsstrace=outcome.iterations["residual"].to_numpy(dtype=float) ** 2,
        gradient=np.nan,
        at_bound=at_bound,
        nobs=float(n),
        with_prior=False,
        bounds=(problem.lower.copy(), problem.upper.copy()),
        transforms={n: kind for n in problem.names if (kind := kinds.get(split_local(n, kinds)[0]))},
        solver_error=error,
        error_estimated=not with_errors,
        data=observed,
    )


def _solver_error(problem: BoundaryProblem, outcome: Solution, ssr: float) -> float | None:
    """Return the effect of the solver's own error; None where residuals do not measure the errors of the data."""
    c = problem.cost.comparison
    if (
        outcome.linearised is None
        or outcome.interrupted
        or is_exact(ssr, c.obs, c.weights)
        or len(c) <= len(problem.names)
    ):
        return None
    return solver_error(problem.objective, lambda f: f.value(outcome.theta) * len(c) / ssr)
