"""Figure 3.1: mean squared error of private linear regression against epsilon.

redberg2023, Section 3.6.1. Splits of 60% for training, 10% for validation, 30% for testing, new in every repetition;
rows scaled to norm 1, one by one, after public ranges (the thesis's z-scores look at all records and are not private).
OPS-PTR chooses among 30 ridges by private selection with scores on the validation records, which are therefore
**public**: their privacy is not covered by any guarantee here. The other methods do not use them.

Three versions of OPS-PTR, all private, differ in how a run is calibrated:

``OPS-PTR, thesis``  Theorem 3.5.6 (Liu and Talwar) for the selection, basic composition, corrected closed forms.
``OPS-PTR, pair``    the sharper pair of erratum 13, basic composition, exact profile.
``OPS-PTR, curve``   the whole profile of a run, in composition and in selection.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.datasets import load_bike, load_concrete, load_iwpc, load_wine_red
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.experiments import product, profile_settings, summarise, sweep
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.ops_curve import plan_by_curve
from adaptive_dp.ptr.ops_ptr import OpsPlan, PosteriorSample, draw_ops_ptr, plan_ops_ptr
from adaptive_dp.ptr.regression import ada_ops, ada_ssp, nonprivate_ridge, ops_balanced, output_perturbation
from adaptive_dp.ptr.selection import selection_guarantee
from adaptive_dp.ptr.selection_bounds import GeometricRounds
from adaptive_dp.ptr.spectrum import Spectrum
from adaptive_dp.validation import (
    FloatArray,
    check_choice,
    check_count,
    check_generator,
    check_positive,
    check_probability,
)

PROPOSALS = 30
TAU = 0.05 / PROPOSALS
SELECTIONS = ("thesis", "pair", "curve")
OPS_PTR = tuple(f"OPS-PTR, {selection}" for selection in SELECTIONS)
# In the order of the legend; the first needs no epsilon.
METHODS = ("ridge, not private", "OutPert", "OPS-Balanced", "AdaOPS", "AdaOPS, curve", "AdaSSP", *OPS_PTR)
# What the thesis compares.
IN_THESIS = ("OutPert", "OPS-Balanced", "AdaOPS", *OPS_PTR)
DATA: dict[str, Callable[[], Dataset]] = {
    "bike": functools.partial(load_bike, norm="l2"),
    "wine": functools.partial(load_wine_red, norm="l2"),
    "concrete": functools.partial(load_concrete, norm="l2"),
    "warfarin": functools.partial(load_iwpc, norm="l2"),
}


def regression_settings(profile: str) -> dict[str, Any]:
    """Data sets, epsilons and repetitions: ``"quick"`` (2 s), ``"book"`` (10 s), ``"paper"`` (minutes)."""
    return profile_settings(
        profile,
        quick={"data": ("wine",), "epsilons": (1.0,), "repetitions": 2},
        book={"data": ("bike", "wine", "concrete"), "epsilons": (0.3, 1.0, 3.0), "repetitions": 3},
        paper={"data": tuple(DATA), "epsilons": (0.1, 0.3, 1.0, 3.0, 10.0), "repetitions": 100},
    )


def proposed_lams(number: int = PROPOSALS) -> FloatArray:
    """Ridges from 2.5 to 2.5^10, evenly on a logarithmic scale (redberg2023, Section 3.6.1)."""
    return np.asarray(2.5 ** np.linspace(1.0, 10.0, check_count("number", number)))


# --- selection among proposals ------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def selection_plan(
    domain: Domain, *, epsilon: float, delta: float, tau: float = TAU, selection: str = "curve"
) -> tuple[OpsPlan, Guarantee]:
    """Plan of one run of OPS-PTR under private selection, and the guarantee of the whole.

    Parameters
    ----------
    domain : Domain
    epsilon, delta : float
        Total.
    tau : float
        Chance that a run is the last.
    selection : {"thesis", "pair", "curve"}
        See the head of this module. ``"thesis"`` cuts off after log(2 / delta) / tau runs.
    """
    e, level = check_positive("epsilon", epsilon), check_probability("delta", delta)
    chance = check_probability("tau", tau)
    check_choice("selection", selection, SELECTIONS)
    if selection == "curve":
        plan = plan_by_curve(domain, epsilon=e, delta=level, tau=chance)
        return plan, selection_guarantee(plan.guarantee, tau=chance, delta=level)
    if selection == "pair":
        one_delta = level * chance * (1 - 1e-9)
        one = (e - 2 * math.log1p((1 - chance) * one_delta / chance)) / 3
        plan = plan_ops_ptr(domain, epsilon=one * (1 - 1e-9), delta=one_delta)
        return plan, selection_guarantee(plan.guarantee, tau=chance, delta=level)
    # sqrt(2 delta*) T + delta_2 = delta with delta_2 = delta / 2
    one_delta = 0.5 * (level / 2 * chance / math.log(2 / level)) ** 2
    one = (e - 3 * math.sqrt(2 * one_delta)) / 3
    plan = plan_ops_ptr(domain, epsilon=one, delta=one_delta, calibration="closed-form")
    return plan, Guarantee(
        "ex-ante", e, Neighbours.ADD_REMOVE, level, domain, source="redberg2023, Theorem 3.5.6"
    )


def select_ops_ptr(
    train: Dataset | Spectrum,
    validation: Dataset | Spectrum,
    *,
    epsilon: float,
    delta: float,
    lams: FloatArray | None = None,
    tau: float = TAU,
    selection: str = "curve",
    rng: np.random.Generator,
) -> Release[PosteriorSample]:
    """OPS-PTR with a ridge chosen by private selection, scored by the error on *public* validation records.

    The law of :func:`adaptive_dp.ptr.selection.private_selection` with :func:`adaptive_dp.ptr.ops_ptr.run_ops_ptr` as
    the run; all runs at once, because there are about 1 / tau = 600.

    Parameters
    ----------
    train : Dataset or Spectrum
        Private.
    validation : Dataset or Spectrum
        Public; must not hold records of ``train``.
    epsilon, delta : float
        Total.
    lams : ndarray, shape (k,), optional
        Proposals; by default :func:`proposed_lams`.
    tau : float
    selection : {"thesis", "pair", "curve"}
    rng : numpy.random.Generator

    Returns
    -------
    Release
        The sample, and its ridge as ``index``; ``Refused`` if every run refused. About 30 ms.
    """
    spectrum, public = Spectrum.of(train), Spectrum.of(validation)
    check_generator(rng)
    proposals = proposed_lams() if lams is None else np.asarray(lams, dtype=np.float64)
    if proposals.ndim != 1 or not proposals.size or np.any(np.diff(proposals) <= 0) or proposals[0] <= 0:
        raise ValueError(f"lams must be a list of increasing positive numbers, got {lams!r}")
    if public.columns != spectrum.columns:
        raise ValueError(f"validation must have {spectrum.columns} columns, got {public.columns}")
    if train is validation:
        raise ValueError("validation must be public records other than those of train, got the same data set")
    plan, promise = selection_plan(
        spectrum.domain, epsilon=epsilon, delta=delta, tau=tau, selection=selection
    )
    cutoff = math.floor(math.log(2 / delta) / tau) if selection == "thesis" else None
    rounds = GeometricRounds(tau, cutoff).draw(rng)
    drawn = rng.integers(proposals.size, size=rounds)
    draws = draw_ops_ptr(spectrum, proposals[drawn], plan=plan, rng=rng)
    errors = np.full(rounds, np.inf)
    errors[draws.answered] = public.mean_squared_error(draws.theta[draws.answered])
    best = int(np.argmin(errors))
    trace = Trace(rounds=rounds, errors=errors, refusals=int(np.sum(~draws.answered)), plan=plan)
    if not math.isfinite(errors[best]):
        return Release(Refused("every run refused its proposal"), promise, trace=trace)
    sample = PosteriorSample(
        draws.theta[best],
        float(draws.lam[best]),
        float(draws.gamma[best]),
        float(draws.smallest_eigenvalue[best]),
        float(draws.residual_bound[best]),
    )
    return Release(sample, promise, int(drawn[best]), trace)


# --- the experiment -----------------------------------------------------------------------------------


def fit(
    method: str,
    train: Spectrum,
    validation: Spectrum,
    *,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> Release[Any]:
    """One release by the ``method`` of that name; OutPert and OPS-Balanced take rows + 1 as a public bound on n."""
    check_choice("method", method, METHODS)
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rng": rng}
    if method == "ridge, not private":
        return nonprivate_ridge(train, lam=1.0)
    if method == "OutPert":
        return output_perturbation(train, largest_rows=train.rows + 1, **budget)
    if method == "OPS-Balanced":
        return ops_balanced(train, largest_rows=train.rows + 1, **budget)
    if method == "AdaOPS":
        return ada_ops(train, **budget)
    if method == "AdaOPS, curve":
        plan = plan_by_curve(train.domain, epsilon=epsilon, delta=delta)
        one = plan.guarantee
        return ada_ops(train, epsilon=one.epsilon, delta=one.delta, plan=plan, rng=rng)
    if method == "AdaSSP":
        return ada_ssp(train, **budget)
    return select_ops_ptr(train, validation, selection=method.removeprefix("OPS-PTR, "), **budget)


def run_regression(
    rng: np.random.Generator, *, people: Dataset, method: str, epsilon: float, delta: float
) -> dict[str, float | bool]:
    """One repetition: new split, one release, error on the test records. A refusal predicts 0.

    Returns
    -------
    dict
        ``error`` (mean squared, in units of the label bound), ``refused``, ``lam`` (nan where there is none).
    """
    split, noise = rng.spawn(2)
    train, validation, test = (Spectrum.of(part) for part in three_parts(people, split))
    release = fit(method, train, validation, epsilon=epsilon, delta=delta, rng=noise)
    value = release.value
    if isinstance(value, Refused):
        theta, lam = np.zeros(train.columns), math.nan
    elif isinstance(value, PosteriorSample):
        theta, lam = value.theta, value.lam
    else:
        theta, lam = value, float(release.trace.get("lam", math.nan))
    return {"error": float(test.mean_squared_error(theta)), "refused": release.refused, "lam": lam}


def three_parts(people: Dataset, rng: np.random.Generator) -> tuple[Dataset, Dataset, Dataset]:
    """60% for training, 10% for validation, 30% for testing, disjoint and in random order."""
    first, test = people.split(0.7, rng)
    train, validation = first.split(6 / 7, rng)
    return train, validation, test


def compare_regressions(
    people: Mapping[str, Dataset],
    *,
    epsilons: Sequence[float],
    repetitions: int,
    methods: Sequence[str] = METHODS,
    delta: float = 1e-6,
    seed: int = 2026,
    jobs: int | None = None,
    results: Callable[[str], Path] | None = None,
    progress: bool | None = None,
) -> pd.DataFrame:
    """Figure 3.1: every method on every data set at every epsilon; methods meet the same splits.

    Parameters
    ----------
    people : mapping of str to Dataset
        With rows bounded in l2 and real labels.
    epsilons : sequence of float
    repetitions : int
    methods : sequence of str
        Of :data:`METHODS`.
    delta : float
    seed : int
    jobs : int, optional
    results : callable, optional
        Path of the file of finished trials for the name of a data set.
    progress : bool, optional

    Returns
    -------
    DataFrame
        ``data``, ``method``, ``epsilon``, ``count``, ``mean``, ``standard_error``, ``low``, ``high`` (95% interval of
        the mean test error), ``median``, ``refused`` (share), ``lam`` (median), ``zero``: error of the prediction 0.
        ``attrs``: ``task_seconds``.
    """
    for method in methods:
        check_choice("methods", method, METHODS)
    tables, seconds = [], 0.0
    for name, data in people.items():
        trials = sweep(
            run_regression,
            product(epsilon=list(epsilons), method=list(methods)),
            seed=seed,
            repetitions=repetitions,
            shared={"people": data, "delta": delta},
            paired=["method", "epsilon"],
            n_jobs=jobs,
            results=results(name) if results else None,
            recipe="private linear regression, version 1",
            progress=progress,
            description=name,
        )
        seconds += trials.attrs["task_seconds"]
        table = summarise(trials, ["method", "epsilon"], "error")
        groups = trials.groupby(["method", "epsilon"], sort=False)
        more = groups.agg(median=("error", "median"), refused=("refused", "mean"), lam=("lam", "median"))
        table = table.merge(more.reset_index(), on=["method", "epsilon"])
        table.insert(0, "data", name)
        tables.append(table.assign(zero=float(np.mean(data.labels**2))))
    joined = pd.concat(tables, ignore_index=True)
    joined.attrs["task_seconds"] = seconds
    return joined


def claims_of_figure(
    table: pd.DataFrame, version: str = OPS_PTR[0], *, statistic: str = "mean"
) -> pd.DataFrame:
    """Which sentences of Section 3.6.1 hold in a table of :func:`compare_regressions`, point by point.

    Parameters
    ----------
    table : DataFrame
    version : str
        The version of OPS-PTR that the claims are about.
    statistic : {"mean", "median"}
        Of the test errors over the repetitions. A mean over few repetitions may hang on one: a selection that ends
        after a handful of runs may have drawn tiny ridges only, whose samples are wild.

    Returns
    -------
    DataFrame
        ``data``, ``epsilon``; ``best_of_thesis``: the method with the smallest error among those that the thesis
        compares (one version of OPS-PTR); ``best``: among all that are private; ``ptr_best_of_thesis``;
        ``ptr_ratio``: its error over the smallest of the thesis's other methods; ``ssp_ratio``: over that of AdaSSP;
        ``outpert_worst``: whether OutPert has the largest error of the thesis's methods.
    """
    check_choice("version", version, OPS_PTR)
    check_choice("statistic", statistic, ("mean", "median"))
    compared = [name for name in IN_THESIS if name not in OPS_PTR or name == version]
    rows = []
    for (data, epsilon), part in table.groupby(["data", "epsilon"], sort=False):
        means = part.set_index("method")[statistic]
        thesis = means[[name for name in compared if name in means.index]]
        private = means.drop(METHODS[0], errors="ignore")
        rows.append(
            {
                "data": data,
                "epsilon": epsilon,
                "best_of_thesis": thesis.idxmin(),
                "best": private.idxmin(),
                "ptr_best_of_thesis": thesis.idxmin() == version,
                "ptr_ratio": means[version] / thesis.drop(version).min(),
                "ssp_ratio": means[version] / means["AdaSSP"],
                "outpert_worst": thesis.idxmax() == "OutPert",
            }
        )
    return pd.DataFrame(rows)
