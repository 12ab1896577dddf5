"""The experiments of the chapter: two ways of reporting, compared on the same people.

Source: redberg2023, Figure 2.3.1, Sections 2.4.2, A.2.2 and A.2.3, with errata 1 and 3 to 8.

The functions here return exact losses beside the bounds that people are told. Exact losses depend on the whole data
set: what comes out is for teaching and must never be published. Sweeps over sizes, the utility of a larger ridge
and the coverage of the reports are in :mod:`adaptive_dp.per_instance.experiment_sizes`, many repetitions of a
comparison in :mod:`adaptive_dp.per_instance.experiment_repeats`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp import goe
from adaptive_dp.accounting import gaussian_sigma
from adaptive_dp.datasets import Dataset
from adaptive_dp.experiments import profile_settings
from adaptive_dp.losses import LogisticLoss, Loss
from adaptive_dp.per_instance.calibration import kifer_calibration
from adaptive_dp.per_instance.ex_post import losses_of_members
from adaptive_dp.per_instance.noisy_objective import Rule
from adaptive_dp.per_instance.objective import Objective, perturb_objective
from adaptive_dp.per_instance.pipeline import pipeline_epsilon
from adaptive_dp.per_instance.releases import gradient_sensitivity
from adaptive_dp.per_instance.report import (
    Combination,
    data_dependent_report,
    data_independent_report,
    published,
)
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

LamRule = Literal["printed", "same"]
LAM_RULES: tuple[LamRule, ...] = ("printed", "same")
LOSSES = ("exact_independent", "bound_independent", "exact_dependent", "bound_dependent", "bound_free")
RATIOS = ("ratio_independent", "ratio_dependent", "ratio_free")
QUANTITIES = (*LOSSES, "overhead", "total", *RATIOS)
LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Budget:
    """Nominal epsilons of a pipeline: of theta, of the noisy gradient and of the noisy Hessian.

    The last two are both positive (a data-dependent report) or both 0 (a data-independent one).
    """

    training: float
    gradient: float = 0.0
    hessian: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "training", check_ordinary("training", self.training))
        extra = (check_real("gradient", self.gradient), check_real("hessian", self.hessian))
        if not (extra == (0.0, 0.0) or min(extra) > 0):
            raise ValueError(f"gradient and hessian must be both positive or both 0, got {extra!r}")
        object.__setattr__(self, "gradient", extra[0])
        object.__setattr__(self, "hessian", extra[1])

    @property
    def total(self) -> float:
        """Sum of the three."""
        return self.training + self.gradient + self.hessian


def allocations() -> tuple[Budget, ...]:
    """The four ways of Figures A.3 and A.4 to share out a total of 1; the first is that of Figure 2.2."""
    return (Budget(0.2, 0.7, 0.1), Budget(0.4, 0.5, 0.1), Budget(0.5, 0.25, 0.25), Budget(0.8, 0.1, 0.1))


def chapter_settings(profile: str) -> dict[str, Any]:
    """Sizes of the chapter's live parts at a profile: ``"quick"``, ``"book"`` or ``"paper"``.

    ``rows`` and ``columns`` are the axes of Figures A.1 and A.2, ``epsilons`` and ``inflations`` those of
    Figure 2.1; ``trials``, ``utility_trials`` and ``coverage_trials`` are repetitions a point; ``repetitions`` are
    those of a comparison of reports.
    """
    return profile_settings(
        profile,
        quick={
            "people": 120,
            "trials": 2,
            "rows": [100, 300],
            "columns": [1, 10],
            "epsilons": [1.0],
            "inflations": [1.0, 10.0],
            "utility_trials": 2,
            "coverage_trials": 20,
            "repetitions": 2,
            "jobs": 1,
        },
        book={
            "people": 200,
            "trials": 8,
            "rows": [100, 300, 1_000, 3_000],
            "columns": [1, 10, 30, 60],
            "epsilons": [0.1, 1.0, 10.0],
            "inflations": [1.0, 3.0, 10.0, 30.0, 100.0],
            "utility_trials": 12,
            "coverage_trials": 150,
            "repetitions": 5,
            "jobs": 1,
        },
        paper={
            "people": 200,
            "trials": 50,
            "rows": [100, 200, 500, 1_000, 2_000, 5_000, 10_000],
            "columns": [1, 2, 5, 10, 20, 30, 40, 50, 60],
            "epsilons": [0.1, 0.5, 1.0, 3.0, 10.0],
            "inflations": [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0],
            "utility_trials": 200,
            "coverage_trials": 2_000,
            "repetitions": 100,
            "jobs": -1,
        },
    )


def rotated_losses(people: Dataset, angles: ArrayLike, *, lam: float = 1.0, sigma: float) -> pd.DataFrame:
    """Exact losses of everybody if the exact minimiser had come out rotated (redberg2023, Figure 2.3.1).

    Parameters
    ----------
    people : Dataset
        Two features, labels -1 and +1.
    angles : array_like, shape (k,)
        Counter-clockwise rotations of the logistic minimiser, in radians.
    lam : float
        Ridge beside the sum of the losses, positive.
    sigma : float
        Noise scale under which the losses are stated, positive.

    Returns
    -------
    DataFrame
        One row an angle and person: ``angle``, ``person``, ``x1``, ``x2``, ``label``, the three terms
        ``determinant``, ``gradient``, ``inner``, and ``loss``. Private.

    Raises
    ------
    ValueError
        Another number of features than two, impossible parameters.
    """
    turns = as_finite_array("angles", angles, ndim=1)
    scale = check_ordinary("sigma", sigma)
    if people.columns != 2:
        raise ValueError(f"people must have two features to rotate in, got {people.columns}")
    objective = Objective(people, LogisticLoss(), lam)
    theta = objective.minimise().theta
    frames = []
    for angle in turns:
        c, s = math.cos(angle), math.sin(angle)
        frame = losses_of_members(objective, np.array([[c, -s], [s, c]]) @ theta, sigma=scale).to_frame()
        where = {
            "angle": angle,
            "person": np.arange(people.rows),
            "x1": people.features[:, 0],
            "x2": people.features[:, 1],
            "label": people.labels,
        }
        frames.append(pd.concat([pd.DataFrame(where), frame], axis=1))
    return pd.concat(frames, ignore_index=True)


def compare_reports(
    people: Dataset,
    loss: Loss,
    *,
    budget_independent: Budget,
    budget_dependent: Budget,
    delta: float,
    rho: float,
    rng: np.random.Generator,
    lam_rule: LamRule = "printed",
    slope: float | None = None,
    combine: Combination = "sum",
    rule: Rule | None = None,
    member: bool | None = None,
) -> pd.DataFrame:
    """Exact losses and reported bounds of everybody, for a free report and for one that is paid for.

    Two pipelines run on the same people with noise of their own: objective perturbation with a data-independent
    report, and objective perturbation, usually with a smaller epsilon, with a data-dependent report (redberg2023,
    Section 2.4.2). Noise and ridge of the training follow Kifer's calibration, corrected (erratum 1); the noise of
    gradient and Hessian is the smallest that the exact Gaussian profile allows at ``delta``, with the sensitivities
    at the published theta. Bounds are for one person chosen before the release, as in the thesis.

    Parameters
    ----------
    people : Dataset
        The data.
    loss : Loss
        A generalised linear loss: the calibration holds for no other.
    budget_independent, budget_dependent : Budget
        Nominal epsilons; the first without, the second with additional releases.
    delta : float
        Of each release, of the overheads, and of the guarantees of the whole pipelines.
    rho : float
        Failure probability of each event that a bound rests on.
    rng : numpy.random.Generator
        The only source of chance.
    lam_rule : {"printed", "same"}
        Ridge of the dependent pipeline: ``"printed"`` raises 2 beta / epsilon_1 to the 2 sigma_3 tau that Algorithm 2
        requires; ``"same"`` leaves it, as the rule ``"family"`` needs no such condition (erratum 8).
    slope : float, optional
        As large as gradients are taken to be in the calibration; by default their supremum over the domain, or 1
        where there is none (squared loss): noise is then calibrated *as if* gradients were bounded, and no
        worst-case epsilon holds.
    combine, member
        As in :meth:`~adaptive_dp.per_instance.report.PrivacyReport.to_frame`.
    rule : {"family", "three-halves", "standard"}, optional
        How leverage is bounded; by default ``"three-halves"`` with ``"printed"`` and ``"family"`` with ``"same"``.

    Returns
    -------
    DataFrame
        One row a person. ``exact_independent``, ``bound_independent``, ``exact_dependent``, ``bound_dependent``;
        ``bound_free``: the free bound at the dependent pipeline's theta; ``overhead``: epsilon of the additional
        releases for her record; ``total``: ``bound_dependent`` plus ``overhead``; three ratios of a bound to its
        exact loss. ``attrs`` hold the parameters, the exact worst-case guarantees of both whole pipelines
        (``epsilon_independent``, ``epsilon_dependent``, at ``delta``; infinite where there is none) and the training
        errors (share of wrong signs, or root mean squared error of real labels). Private.

    Raises
    ------
    ValueError
        Impossible parameters, before any noise is drawn.
    """
    check_generator(rng)
    tail, failure = check_probability("delta", delta), check_probability("rho", rho)
    check_choice("lam_rule", lam_rule, LAM_RULES)
    if budget_independent.total != budget_independent.training:
        raise ValueError(f"budget_independent must be all for training, got {budget_independent!r}")
    if budget_dependent.total == budget_dependent.training:
        raise ValueError(f"budget_dependent must hold a gradient and a Hessian, got {budget_dependent!r}")
    chosen: Rule = rule if rule is not None else ("three-halves" if lam_rule == "printed" else "family")
    domain, d = people.domain, people.columns
    proved = loss.lipschitz(domain, math.inf, dimension=d)
    size = check_ordinary("slope", slope) if slope is not None else (proved if math.isfinite(proved) else 1.0)
    bend = loss.smoothness(domain, dimension=d)
    free = kifer_calibration(epsilon=budget_independent.training, delta=tail, slope=size, curvature=bend)
    paid = kifer_calibration(epsilon=budget_dependent.training, delta=tail, slope=size, curvature=bend)
    # Per unit of sensitivity: one over mu of the release.
    unit_gradient = gaussian_sigma(budget_dependent.gradient, tail, 1.0)
    unit_hessian = gaussian_sigma(budget_dependent.hessian, tail, 1.0)
    sigma_hessian = bend / math.sqrt(2) * unit_hessian
    required = 2 * sigma_hessian * goe.operator_norm_bound(failure, d)
    lam = max(paid.lam, required) if lam_rule == "printed" else paid.lam

    first = perturb_objective(people, loss, lam=free.lam, sigma=free.sigma, delta=tail, rng=rng)
    objective = Objective(people, loss, free.lam)
    exact = losses_of_members(objective, published(first), sigma=free.sigma).loss
    told = data_independent_report(first, loss, domain, lam=free.lam, sigma=free.sigma, rho=failure).to_frame(
        people.features, people.labels, member=member, combine=combine
    )

    second = perturb_objective(people, loss, lam=lam, sigma=paid.sigma, delta=tail, rng=rng)
    objective = Objective(people, loss, lam)
    theta = published(second)
    exact_paid = losses_of_members(objective, theta, sigma=paid.sigma).loss
    report = data_dependent_report(
        objective,
        second,
        sigma=paid.sigma,
        sigma_gradient=unit_gradient * gradient_sensitivity(loss, domain, theta, dimension=d),
        sigma_hessian=sigma_hessian,
        rho=failure,
        delta=tail,
        rng=rng,
        rule=chosen,
    )
    told_paid = report.to_frame(people.features, people.labels, member=member, combine=combine)
    gratis = data_independent_report(second, loss, domain, lam=lam, sigma=paid.sigma, rho=failure).to_frame(
        people.features, people.labels, member=member, combine=combine
    )
    frame = pd.DataFrame(
        {
            "exact_independent": exact,
            "bound_independent": told["bound"],
            "exact_dependent": exact_paid,
            "bound_dependent": told_paid["bound"],
            "bound_free": gratis["bound"],
            "overhead": told_paid["overhead"],
            "total": told_paid["bound"] + told_paid["overhead"],
        }
    )
    for kind, truth in (("independent", exact), ("dependent", exact_paid), ("free", exact_paid)):
        # A loss of exactly 0 has an infinite ratio.
        ratio = np.full(people.rows, math.inf)
        frame[f"ratio_{kind}"] = np.divide(frame[f"bound_{kind}"], truth, out=ratio, where=truth > 0)
    mu_report = math.hypot(1 / unit_gradient, 1 / unit_hessian)
    bounded = math.isfinite(proved)
    frame.attrs = {
        "lam_independent": free.lam,
        "lam_dependent": lam,
        "lam_required": required,
        "sigma_independent": free.sigma,
        "sigma_dependent": paid.sigma,
        "sigma_gradient": report.gradient.sigma if report.gradient is not None else math.nan,
        "sigma_hessian": sigma_hessian,
        "nominal_independent": budget_independent.total,
        "nominal_dependent": budget_dependent.total,
        "epsilon_training_independent": first.guarantee.epsilon,
        "epsilon_training_dependent": second.guarantee.epsilon,
        "epsilon_report": report.guarantee.epsilon,
        "epsilon_independent": first.guarantee.epsilon,
        "epsilon_dependent": pipeline_epsilon(proved / paid.sigma, bend / lam, mu_report, tail)
        if bounded
        else math.inf,
        "slope": size,
        "slope_proved": bounded and size >= proved,
        "lam_rule": lam_rule,
        "rule": chosen,
        "confidence_independent": 1 - failure,
        "confidence_dependent": report.confidence,
        "error_independent": training_error(people, published(first)),
        "error_dependent": training_error(people, theta),
        "norm_independent": float(np.linalg.norm(published(first))),
        "norm_dependent": float(np.linalg.norm(theta)),
    }
    return frame


def training_error(people: Dataset, theta: FloatArray) -> float:
    """Share of people whose sign x'theta gets wrong (0 is wrong); for real labels the root mean squared error."""
    scores = people.features @ theta
    if people.domain.labels == "sign":
        return float(np.mean(people.labels * scores <= 0))
    return float(np.sqrt(np.mean((people.labels - scores) ** 2)))


def quantile_table(frame: pd.DataFrame, columns: Sequence[str], levels: Sequence[float]) -> pd.DataFrame:
    """Quantiles of ``columns`` at ``levels`` in [0, 1]: a column ``level``, then those asked for.

    Every quantile is one of the entries (the smallest that is large enough), so that infinite ratios do no harm.
    """
    points = as_finite_array("levels", levels, ndim=1)
    if ((points < 0) | (points > 1)).any():
        raise ValueError(f"levels must lie in [0, 1], got {levels!r}")
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise ValueError(f"frame has no column {missing[0]!r}, only {list(map(str, frame.columns))}")
    table = {name: np.quantile(frame[name].to_numpy(), points, method="inverted_cdf") for name in columns}
    return pd.DataFrame({"level": points, **table})


def summarise_comparison(frame: pd.DataFrame) -> pd.DataFrame:
    """What :func:`compare_reports` found, one row a quantity.

    Returns
    -------
    DataFrame
        ``quantity`` (losses, bounds, overhead, total and ratios), quantiles ``q01`` ... ``q99`` with ``median``,
        ``max``, and for bounds and ratios ``coverage``: the share of people whose bound is at least the exact loss.
    """
    names = list(QUANTITIES)
    table = quantile_table(frame, names, [*LEVELS, 1.0]).set_index("level").T
    table.columns = pd.Index([*(level_name(level) for level in LEVELS), "max"])
    table["coverage"] = [_coverage(frame, name) for name in names]
    table.index.name = "quantity"
    return table.reset_index()


def level_name(level: float) -> str:
    """Name of a quantile's column: ``median`` or ``q01`` ... ``q99``."""
    return "median" if level == 0.5 else f"q{round(100 * level):02d}"


def _coverage(frame: pd.DataFrame, name: str) -> float:
    """Share of the bounds that hold, for a column that is or has one."""
    start, _, kind = name.partition("_")
    if start not in ("bound", "ratio"):
        return math.nan
    truth = frame["exact_independent" if kind == "independent" else "exact_dependent"]
    return float((frame[f"bound_{kind}"] >= truth).mean())
