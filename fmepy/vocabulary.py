"""Words of neighbours: what users of scipy, lmfit, statsmodels, emcee, PyMC or deSolve type, answered with ours.

An argument or attribute of the same meaning under another name is not taken as an alias, for one meaning has one name;
the error says what to type.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from fmepy.errors import UnknownArgumentError, did_you_mean, listed

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)


def _rows(*rows: tuple[str, tuple[str, ...], str]) -> dict[str, list[tuple[tuple[str, ...], str]]]:
    """Return meanings by foreign name; of several, the first whose own arguments the function has is meant."""
    table: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    for names, own, example in rows:
        for name in names.split():
            table.setdefault(name, []).append((own, example))
    return table


_START = "x0 p0 init inits init_values initial initial_guess guess start theta theta0 params pars par parameters values"
_ARGUMENTS = _rows(
    ("bounds limits", ("lower", "upper"), "lower={'k': 0}, upper={'k': 10}"),
    ("bounds limits ranges prior_range", ("parRange",), "parRange={'k': (0, 10)}"),
    ("min lb lbound", ("lower",), "lower={'k': 0}"),
    ("max ub ubound", ("upper",), "upper={'k': 10}"),
    ("x0 y0 u0 z0 yini ini y init inits init_values initial initial_state states", ("state",), "state={'N': 1.0}"),
    (_START, ("p",), "p={'k': 0.5}"),
    (f"{_START} args p", ("parms",), "parms={'k': 0.5}"),
    ("t t_span tspan t_eval teval tout time ts t0", ("times",), "times=np.arange(0, 21)"),
    ("func fun fn f rhs model dydt equations odes", ("rhs",), "the equations stand first, without a keyword"),
    ("func fun fn fcn objective cost residuals loss log_prob_fn log_posterior logp", ("f",), "it stands first"),
    ("f fun fn fcn model", ("func",), "the function stands first, without a keyword"),
    ("draws steps nsteps n_steps iterations iter n_iter nsamples num_samples n_samples maxiter", ("niter",),
     "niter=5000"),
    ("burnin burn burn_in nburn tune warmup num_warmup n_tune discard", ("burninlength",),
     "burninlength=1000, of the `niter` iterations"),
    ("nwalkers n_walkers walkers", ("method", "control"), "method='emcee', control={'walkers': 40}"),
    ("thin thinning thin_by", ("outputlength",), "outputlength=1000, the rows that remain"),
    ("nchains n_chains num_chains cores", ("chains",), "chains=4"),
    ("cov proposal proposal_cov step_size stepsize scale sigma0", ("jump",), "jump=fit.cov_scaled * 2.4**2 / n"),
    ("sigma yerr y_err dy error errors uncertainty sd std", ("err",), "err='sd', the column that holds them"),
    ("data ydata y_data observed observations df", ("obs",), "the table of observations"),
    ("xdata x_data t time times", ("x",), "x='time', the column that holds it"),
    ("maxiter max_iter max_nfev nfev maxfev maxfun ftol xtol gtol tol options fit_kws", ("control",),
     "control={'maxiter': 100}"),
    ("n_jobs jobs workers nworkers ncores n_cores cores pool parallel threads", ("executor",), "executor=2"),
    ("random_state rng random_seed rng_seed key generator", ("seed",), "seed=1"),
    ("verbose disp progressbar progress_bar show_progress callback iter_cb", ("progress",), "progress=True"),
    ("n size nsim n_sim samples nsamples n_samples draws", ("num",), "num=200"),
    ("n_starts nstarts multistart n_restarts restarts", ("starts",), "starts=20"),
    ("priors log_prior logprior", ("prior",), "prior={'k': scipy.stats.norm(1, 0.2)}"),
    ("jacobian Dfun grad gradient dfun", ("jac",), "jac=f, a function of the parameters"),
    ("solver integrator backend", ("engine",), "engine='auto'; `method` names one of its methods"),
    ("hmax maxstep max_dt", ("max_step",), "max_step=0.1"),
    ("h step dt stepsize step_size", ("dt",), "dt=0.1, for engine='fixed'"),
    ("weights w", ("weight",), "weight='std', or a column of errors: err='sd'"),
    ("sigma yerr y_err weights weight w", ("f",),
     "the cost knows the errors, as in SimulationCost(model, obs, err='sd')"),
    ("alpha conf ci confidence confidence_level prob probability coverage", ("level",), "level=0.95"),
)  # fmt: skip


_KEYS = _rows(
    ("mcmc chain chains posterior bayes emcee sampling sampler", ("sample",), "[sample]"),
    ("estimate estimation optimise optimize optimization calibrate calibration optimizer", ("fit",), "[fit]"),
    ("sensitivity sensitivities identifiability collin", ("screen",), "[screen]"),
    ("profiles profiling likelihood_profile", ("profile",), "[profile]"),
    ("uncertainty predict prediction predictions ensemble montecarlo", ("ranges",), "[ranges]"),
    ("estimate estimated vary free fixed fix", ("start", "lower"),
     "`start`: k = { start = 0.5 } is fitted, the number alone, k = 0.5, stays as it is"),
    ("init initial value guess x0 p0 nominal nominalValue", ("start", "lower"), "`start`"),
    ("bounds range limits", ("lower", "upper"), "`lower` and `upper`"),
    ("min lb lower_bound lowerBound", ("lower",), "`lower`"),
    ("max ub upper_bound upperBound", ("upper",), "`upper`"),
    ("transform log parameterScale", ("scale", "lower"), "`scale`"),
    ("init inits initial initial_state x0 y0 u0 states", ("state",), "`state`, or a line x(0) = ... of `equations`"),
    ("odes ode rhs text model", ("equations",), "`equations`"),
    ("nsteps steps draws iterations iter n_samples nsamples", ("niter",), "`niter`"),
    ("burnin burn burn_in tune warmup discard", ("burninlength",), "`burninlength`, of the `niter` iterations"),
    ("n_starts nstarts restarts", ("starts",), "`starts`"),
    ("n nsim samples size", ("num",), "`num`"),
    ("params parms parameter pars theta", ("parameters",), "[parameters]"),
    ("obs observations measurements observed", ("data",), "[data]"),
    ("likelihood objective loss noise", ("cost",), "[cost]"),
    ("csv path filename table", ("file",), "`file`"),
    ("t time times time_column", ("x",), "`x`, the column of times"),
    ("sigma sd sds error errors yerr", ("err",), "`err`, a column of standard errors"),
    ("group subject id experiment", ("entity",), "`entity`"),
    ("cores workers n_jobs jobs ncpu processes threads", ("executor",), "`executor`"),
    ("random_state random_seed rng", ("seed",), "`seed`"),
    ("out output_dir outdir folder results", ("output",), "`output`"),
)  # fmt: skip


def own_words(function: Callable[P, R]) -> Callable[P, R]:
    """Return a public function that answers an unknown keyword with ours.

    Examples
    --------
    >>> @own_words
    ... def fit(p, *, lower=0.0, upper=1.0):
    ...     return p
    >>> fit(1, bounds=(0, 1))
    Traceback (most recent call last):
        ...
    fmepy.errors.UnknownArgumentError: fit has no argument 'bounds'; here it is `lower` and `upper`: lower={'k': 0}, \
upper={'k': 10}.
    """
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(f"{function.__qualname__} takes any keyword.")
    known = [name for name in parameters if name != "self"]
    have = frozenset(known)

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in have:
                raise unknown_argument(function.__qualname__.removesuffix(".__init__"), name, known)
        return function(*args, **kwargs)

    return wrapper


def with_own_words(kind: C) -> C:
    """Return a public class whose constructor answers an unknown keyword with ours."""
    kind.__init__ = own_words(kind.__init__)  # type: ignore[misc]  # the same signature
    return kind


def unknown_argument(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    """Return the error for a keyword that a function does not have: ours of the same meaning, or the nearest."""
    known = list(known)
    beginning = f"{function} has no argument {name!r}"
    for own, example in _ARGUMENTS.get(name, ()):
        if set(own) <= set(known):
            return UnknownArgumentError(f"{beginning}; here it is {' and '.join(f'`{k}`' for k in own)}: {example}.")
    return UnknownArgumentError(f"{beginning}.{did_you_mean(name, known)} There are {listed(known, 40)}.")


def own_key(name: str, known: Iterable[str]) -> str:
    """Return our key of a calibration file for that of another tool, as a message says it; "" where there is none.

    Examples
    --------
    >>> own_key("mcmc", ["fit", "sample"]), own_key("mcmc", ["start", "lower"])
    ('[sample]', '')
    """
    have = set(known)
    return next((says for own, says in _KEYS.get(name, ()) if have.issuperset(own)), "")


class AnswersInOwnWords:
    """Base of results and models whose missing attributes are answered with ours: `elsewhere` says which."""

    __slots__ = ()
    elsewhere: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker shall go on to refuse what is not there

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if own := kind.elsewhere.get(name):
                raise AttributeError(f"{kind.__name__} has no attribute {name!r}; here it is {own}.")
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)


def by_name(rows: Mapping[str, str]) -> dict[str, str]:
    """Return the answers by foreign name, of rows whose keys hold several names.

    Examples
    --------
    >>> by_name({"x params": "`par`"})
    {'x': '`par`', 'params': '`par`'}
    """
    return {name: own for names, own in rows.items() for name in names.split()}
