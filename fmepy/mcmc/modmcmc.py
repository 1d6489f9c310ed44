"""modMCMC: uncertainty of parameters by sampling their posterior."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np

from fmepy.checks import positive_number, seed_sequence, whole_number
from fmepy.costs.objective import Objective
from fmepy.costs.user_function import as_objective, is_ours, tell_held_noise
from fmepy.errors import ArgumentError, check_choice, warn
from fmepy.mcmc.arguments import (
    as_chains,
    as_control,
    as_drscale,
    as_plan,
    as_starts,
    check_settings,
    check_starts,
    make_kernel,
    proposal_from_fit,
)
from fmepy.mcmc.assembly import assemble
from fmepy.mcmc.checkpoint import ChainJournal
from fmepy.mcmc.header import ChainHeader, header_of
from fmepy.mcmc.kernels.base import Settings
from fmepy.mcmc.kernels.registry import SAMPLERS
from fmepy.mcmc.proposals import JumpFunction, as_jump
from fmepy.mcmc.result import ModMCMC
from fmepy.mcmc.runner import ChainTask, Plan, recover_chains, run_chains
from fmepy.mcmc.target import Target, variances
from fmepy.parallel.interruption import interruptible
from fmepy.parameters.named import as_bounds, check_inside, is_fit
from fmepy.parameters.priors import as_prior
from fmepy.parameters.scales import check_prior_scale, check_scale, expected_scale
from fmepy.types import Matrix, Seed, UserBounds, UserParameters


@interruptible(lambda chain: chain.message)
def modMCMC(
    f: Any,
    p: UserParameters = None,
    *,
    jump: Any = None,
    lower: UserBounds = -np.inf,
    upper: UserBounds = np.inf,
    prior: Any = None,
    var0: Any = None,
    wvar0: Any = None,
    n0: Any = None,
    niter: int = 1000,
    outputlength: int | None = None,
    burninlength: int = 0,
    updatecov: int | None = None,
    covscale: float | None = None,
    ntrydr: int = 1,
    drscale: Any = None,
    method: str = "dram",
    control: Mapping[str, Any] | None = None,
    chains: int = 1,
    checkpoint: Any = None,
    checkpoint_every: int = 1000,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    seed: Seed = None,
    executor: Any = None,
    progress: Any = False,
    jac: Any = None,
) -> ModMCMC:
    r"""Return draws from the posterior of the parameters (and of the error variances).

    Parameters
    ----------
    f : fmepy cost, or callable ``f(p, *args, **kwargs)``
        Returns -2 log likelihood (a number), residuals (a one-dimensional array; needs `var0`), or a ModCost.
    p : dict, Series, sequence, number, lmfit.Parameters, fit; for a fmepy cost also names, or None for all; or table
        The start. A table of several rows gives every chain its own (for ensembles also: every member). A fit (the
        result of `modFit`) gives its estimates, and where they are not given also `jump`, 2.4**2 / n_par times its
        covariance, `var0`, the variances of its residuals (errors that differ within a variable stay), and its bounds.
    jump : None, number, sequence, dict by name, matrix, table, or function
        Standard deviations of the proposal (negative: 0.1 \|p\|, with a warning), or its covariance (a table is matched
        by its labels), such as ``fit.cov_scaled * 2.4**2 / n_par``. None: 0.1 \|p\|, a hundredth of the box (or 0.1)
        where p is 0; NaN, as for a parameter on a bound of the fit, is the same, with a warning. A function ``jump(p)``
        returns the next point, symmetrically; ``jump(p, rng)`` gets the random numbers to use.
        For ensembles it is the spread of the starts of the members.
    lower, upper : number, sequence, or dict by name
        Bounds; None and NaN mean none. Outside, `f` is not called. By default the cost's own bounds hold.
    prior : dict of frozen scipy.stats distributions by name, or callable
        A callable returns -2 log density of what `f` receives.
    var0 : number, sequence, or Series or dict by variable
        Variance of the residuals: one for all of them, one per variable of the cost (matched by name where it has
        names, repeated names by order), or one per datum. Residuals of a ModCost are then unweighted, except for one
        per datum. See `fmepy.mcmc.target`.
    wvar0, n0 : number or one per variance
        Weight of `var0` as a prior, relative to the data (``n0 = wvar0 * N``) or as a number of data: the variances are
        then sampled; 0 means that nothing is known beforehand. None: the variances stay at `var0`.
    niter : int
        Iterations of every chain, burn-in included.
    outputlength : int, optional
        Largest number of rows of each chain; evenly thinned, see Notes. None: all after burn-in.
    burninlength : int
        First iterations, which are not saved; adaptation ends with them.
    updatecov : int, optional
        Iterations between adaptations of the proposal to the covariance of the chain so far. None or 0: never.
    covscale : float, optional
        Factor of that covariance; ``2.4**2 / n_par``.
    ntrydr : int
        Largest number of tries of an iteration: above 1, delayed rejection.
    drscale : number or sequence of length ntrydr - 1, optional
        Factor of the width of each further try relative to the one before: 1/5, 1/4, 1/3, 1/3, ...
    method : str
        "dram": Metropolis, with `updatecov` and `ntrydr` what Haario et al. call DRAM. "demcz": differential evolution
        from an archive of the past, which needs no covariance. "emcee": the affine-invariant ensemble of emcee.
        "nuts": the no-U-turn sampler, which follows the gradient; for many or strongly correlated parameters. Bounds
        and supports of priors are transformed away; burn-in finds steps and metric, `jump` is the covariance to begin
        with.
    control : dict, optional
        Of "demcz": population (3), archive (10 n_par, at least), thin (10), snooker (0.1), gamma (None). Of "emcee":
        walkers (4 n_par, at least 20), stretch (2). Of "nuts": target_accept (0.8), max_depth (10).
    chains : int
        Independent chains (ensembles). The first starts at `p`, the others are dispersed: ``p + 2 L z``, z standard
        normal and L L' the covariance of the proposal, inside the bounds and of nonzero posterior (each failure draws
        5 % nearer).
    checkpoint : path, optional
        A folder without a chain; parts are written to it, from which `resume_mcmc` continues. While the chain runs,
        no other process can write there.
    checkpoint_every : int
        Iterations between parts.
    args, kwargs
        Passed on to `f`.
    seed : int, Generator or None
        Every chain draws from a child of it: the same chains for any number of workers.
    executor, progress
        See `fmepy.parallel.run_many`. A callable `progress` gets (iterations done, all) of all chains.
    jac : callable, optional
        Derivatives for "nuts", as in `modFit`: ``jac(p, *args, **kwargs)`` of the residuals, shape (n_obs, n_par), or
        of -2 log L, shape (n_par,). fmepy's costs have their own.

    Returns
    -------
    ModMCMC

    Raises
    ------
    ParameterError
        A start outside its bounds, crossed bounds, a wrong number of them, an unknown name.
    ArgumentError
        A covariance that is not positive definite; a start of zero probability; residuals without `var0`, or a number
        with it; an `f` that fails at the start or returns another number of residuals than before; no iterations left
        after burn-in; adaptation or delayed rejection with a function as `jump` or with an ensemble; a folder that
        holds a chain.

    Notes
    -----
    Iterations ``burninlength + k * interval`` are saved, ``interval = ceil((niter - burninlength) / outputlength)``.
    Iterations after the last of them are not run.

    With SS the sums of squares and sigma^2 their variances, E = (sum SS / sigma^2 + prior) / 2 is minus the log
    posterior: a move is accepted with probability min(1, exp(E_old - E_new)). A run that fails, or is not finite,
    counts as zero likelihood and in ``failures``. The members of an ensemble are chains in the result; variances that
    are sampled are integrated out for their moves, and drawn given each state.

    Adaptation (no burn-in) makes the chain depend on its past; theory of convergence holds for a frozen proposal, that
    is with burn-in. Memory is bounded by `outputlength`.

    Ctrl-C returns the rows so far, of all chains, with an `InterruptedWarning` and ``interrupted`` true. A checkpoint
    that cannot be written (a full disk) does not end the chain: a warning is logged, and every part tries again.

    ``sig`` is the current draw of the variances. One `var0` for several variables pools all data; a variance per datum
    is drawn with N = 1; named `var0` is matched by name. `updatecov` counts iterations, and the covariance is that of
    all so far. ``bestpar`` may come from a delayed try; with sampled variances it has the highest posterior of the
    parameters alone, and so ``bestfunp`` is minus that. A parameter at 0 moves also without `jump`.

    *Differs from FME* in these and in what else the page "From R to Python" (docs/from_r.md) lists with the reasons.

    References
    ----------
    Haario, H., Laine, M., Mira, A. and Saksman, E. (2006). DRAM: efficient adaptive MCMC. Stat. Comput. 16, 339-354.
    ter Braak, C. J. F. and Vrugt, J. A. (2008). Stat. Comput. 18, 435-446. Foreman-Mackey et al. (2013). PASP 125, 306.
    FME: modMCMC.

    Examples
    --------
    >>> def minus2log(p):                     # a normal of mean (1, 2) and sd 0.1
    ...     return float(np.sum(((p - np.array([1.0, 2.0])) / 0.1) ** 2))
    >>> chain = modMCMC(minus2log, [0, 1], jump=0.5, niter=3000, burninlength=1000, updatecov=100, seed=1)
    >>> chain.pars.shape, chain.count["num_covupdate"].tolist()
    ((2000, 2), [9])
    >>> bool(np.all(np.abs(chain.pars.mean() - [1, 2]) < 0.03))
    True
    """
    check_choice(method, SAMPLERS, "method")
    niter = whole_number(niter, "niter", 1)
    burninlength = whole_number(burninlength, "burninlength", 0)
    plan = as_plan(niter, burninlength, outputlength)
    chains = whole_number(chains, "chains", 1)
    every = whole_number(checkpoint_every, "checkpoint_every", 1)
    first, starts, chains = as_starts(p, chains)
    objective = as_objective(f, first, jac=jac, args=args, kwargs=kwargs)
    tell_held_noise(f, objective.parameters)
    if starts is None:
        starts = objective.theta0[None, :].copy()
    declared = (objective.lower, objective.upper)
    if is_fit(p):
        jump, var0 = proposal_from_fit(p, objective, jump, var0, wvar0 is not None or n0 is not None)
        declared = (np.maximum(declared[0], p.bounds[0]), np.minimum(declared[1], p.bounds[1]))
        if p.with_prior and prior is None:
            warn("The fit had a prior, and the chain has none: give `prior` here, too.")
    low, high = as_bounds(lower, upper, objective.parameter_names, declared=declared)
    for row in starts:
        check_inside(row, low, high, objective.parameter_names)
    scales = expected_scale(f, objective.parameter_names)
    check_prior_scale(prior, scales)
    prior_given = as_prior(prior, objective.parameters)
    target = Target(objective, low, high, prior_given, variances(objective, var0, wvar0, n0))
    check_scale(jump, scales, "jump")
    proposal = as_jump(jump, objective.parameters, low, high, objective.theta0)
    n_par = target.n_par
    settings = Settings(
        method=method,
        updatecov=0 if updatecov is None else whole_number(updatecov, "updatecov", 0),
        covscale=positive_number(2.4**2 / n_par if covscale is None else covscale, "covscale"),
        drscale=as_drscale(drscale, whole_number(ntrydr, "ntrydr", 1)),
        control=as_control(control, method, n_par),
        # without burn-in adaptation has no end
        adapt_until=burninlength or sys.maxsize,
    )
    check_settings(settings, proposal, covscale, drscale)
    kernel = make_kernel(settings, target, proposal)
    specs = as_chains(starts, chains, kernel.n_member, seed_sequence(seed).spawn(chains))
    check_starts(target, starts)
    folder = None if checkpoint is None else ChainJournal(checkpoint)
    with nullcontext() if folder is None else folder.held(new=True):
        task = ChainTask(kernel, target, plan, folder, every)
        if folder is not None:
            folder.create(header_of(asdict(settings), task, proposal, starts, specs))
        ran = run_chains(task, specs, executor, progress)
    return assemble(target, plan, settings, ran)


@interruptible(lambda chain: chain.message)
def resume_mcmc(
    f: Any,
    checkpoint: Any,
    *,
    niter: int | None = None,
    prior: Any = None,
    jump: Any = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    executor: Any = None,
    progress: Any = False,
    jac: Any = None,
) -> ModMCMC:
    """Continue a stopped chain; return what `modMCMC` would have returned without the stop, bit for bit.

    Parameters
    ----------
    f : fmepy cost, or callable
        The same as before: functions are never stored.
    checkpoint : path
        The folder given to `modMCMC`. New parts are written to it.
    niter : int, optional
        Iterations in all; more than before make the chain longer, with the same interval between saved rows.
    prior
        The same as before, if there was one.
    jump
        The same function, if it was one. A function with its own random numbers (not ``jump(p, rng)``) restarts them,
        so that the chain differs.
    args, kwargs, executor, progress, jac
        As for `modMCMC`.

    Returns
    -------
    ModMCMC

    Raises
    ------
    ArgumentError
        No chain in the folder; a cost or prior that differs from that of the checkpoint in its parameters, its kind,
        its data, or its value at the start; fewer iterations than are done.

    Examples
    --------
    >>> import tempfile
    >>> def minus2log(p):
    ...     return float(p["x"] ** 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     short = modMCMC(minus2log, {"x": 1}, jump=2, niter=200, checkpoint=folder + "/chain", seed=1)
    ...     longer = resume_mcmc(minus2log, folder + "/chain", niter=500)
    >>> longer.pars.equals(modMCMC(minus2log, {"x": 1}, jump=2, niter=500, seed=1).pars)
    True
    """
    folder = ChainJournal(checkpoint)
    folder.read_header()  # refuse a folder without one before locking it
    with folder.held():
        header = ChainHeader.of(folder)
        objective = _objective(header, f, jac, args, kwargs)
        header.check_problem(objective)
        has_prior = header.table["has_prior"]
        if (prior is not None) != has_prior:
            raise ArgumentError(
                "The chain of the checkpoint has a prior, which is not stored: give the same `prior` again."
                if has_prior
                else "The chain of the checkpoint has no prior: leave `prior` out."
            )
        target = Target(objective, header.lower, header.upper, as_prior(prior, objective.parameters), header.variances)
        header.check_values(target)
        proposal: Matrix | JumpFunction
        if header.jump is None:
            if not callable(jump):
                raise ArgumentError(
                    "The checkpoint is of a chain with a function as `jump`: give the same function again."
                )
            proposal = JumpFunction(jump, objective.parameters)
        else:
            if jump is not None:
                raise ArgumentError("`jump` is stored in the checkpoint; leave it out. Only functions are given again.")
            proposal = header.jump
        s = header.table["settings"]
        control = as_control(s["control"], s["method"], target.n_par)
        settings = Settings(**{**s, "drscale": tuple(s["drscale"]), "control": control})
        kernel, plan = make_kernel(settings, target, proposal), header.plan
        done, notes = recover_chains(header.specs, folder)
        if niter is not None:
            plan = _extended(plan, whole_number(niter, "niter", 1), max(done))
        if folder.writable:
            folder.sweep()
            if plan.niter != header.plan.niter:
                folder.write_header({**header.table, "niter": plan.niter})
        elif min(done) < plan.niter:
            raise ArgumentError(
                f"`checkpoint`: the folder {str(folder.path)!r} is read-only, and a chain is at iteration "
                f"{min(done)} of {plan.niter}. Copy the folder to where you may write, and resume the copy."
            )
        task = ChainTask(kernel, target, plan, folder, header.table["every"])
        ran = run_chains(task, header.specs, executor, progress)
    return assemble(target, plan, settings, ran._replace(notes=[*notes, *ran.notes]))


def _objective(
    header: ChainHeader, f: Any, jac: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> Objective:
    positional = header.table["positional"]
    if positional and is_ours(f):
        raise ArgumentError("The checkpoint is of a function of an array; `f` is a fmepy cost. Give the same `f`.")
    start = header.starts[0]
    first: Any = start.copy() if positional else dict(zip(header.names, map(float, start), strict=True))
    try:
        return as_objective(f, first, jac=jac, args=args, kwargs=kwargs)
    except ArgumentError as error:
        raise ArgumentError(f"The checkpoint belongs to another problem: {error}") from error


def _extended(plan: Plan, niter: int, done: int) -> Plan:
    longer = plan.longer(niter)
    if longer.niter < done or niter <= plan.burninlength:
        raise ArgumentError(f"`niter={niter}` is less than the {done} iterations in the checkpoint; give more.")
    return longer
