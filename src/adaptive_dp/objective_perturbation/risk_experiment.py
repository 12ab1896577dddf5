"""Experiments on excess risk: Monte Carlo beside the bounds, and the rates in the dimension.

Source: redberg2023, appendix C.8, with erratum 28.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import expit

from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.objective_perturbation.excess_risk import (
    best_lam,
    excess_risk_bound,
    measure_excess_risk,
    noisy_logistic,
    optimal_choice,
    spread_noise_bound,
)
from adaptive_dp.objective_perturbation.flaws_risk import printed_excess_risk, printed_spread_bound
from adaptive_dp.objective_perturbation.general_loss import GeneralLossCurve
from adaptive_dp.per_instance.calibration import SmoothPerturbationCurve
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)

CASES = ((2.0, 1.0, 0.05, 0.0), (1.0, 2.0, 0.2, 0.0), (10.0, 5.0, 0.15, 0.0), (2.0, 1.0, 0.05, 0.5))
CHOICES = ("right", "printed")
LEVEL = 0.999


def risk_table(
    cases: Sequence[tuple[float, float, float, float]] = CASES,
    *,
    data: Dataset | None = None,
    repetitions: int = 2_000,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Measured excess risk of logistic regression beside the bounds.

    Parameters
    ----------
    cases : sequence of (lam, sigma, sigma_out, tau)
    data : Dataset, optional
        With sign labels; by default 60 records of :func:`noisy_logistic` with 4 features.
    repetitions : int
        Runs a case.
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        ``lam``, ``sigma``, ``sigma_out``, ``tau``; ``measured`` with ``low``, ``high`` (99.9 %); ``bound``
        (:func:`excess_risk_bound`), ``printed`` (Theorem C.8.1). Of the noise term alone: ``middle`` (measured),
        ``middle_bound``, ``spread_bound`` (:func:`spread_noise_bound` at the least f'' that occurred, ``bend``), and
        ``spread_printed`` (section C.8.2 as printed).
    """
    check_generator(rng)
    records, loss = data or noisy_logistic(60, 4, rng), LogisticLoss()
    slope, bend = loss.lipschitz(records.domain, math.inf), loss.smoothness(records.domain)
    rows = []
    for lam, sigma, sigma_out, tau in cases:
        sample = measure_excess_risk(
            records,
            loss,
            sigma=sigma,
            lam=lam,
            tau=tau,
            sigma_out=sigma_out,
            repetitions=repetitions,
            rng=rng,
        )
        norm = float(np.linalg.norm(sample.minimiser))
        shared = {"sigma": sigma, "lam": lam, "norm": norm, "tau": tau, "sigma_out": sigma_out}
        n, d = records.rows, records.columns
        bound = excess_risk_bound(rows=n, dimension=d, curvature=bend, **shared)
        mean, low, high = sample.interval(LEVEL)
        rows.append(
            {
                "lam": lam,
                "sigma": sigma,
                "sigma_out": sigma_out,
                "tau": tau,
                "measured": mean,
                "low": low,
                "high": high,
                "bound": bound.total,
                "printed": printed_excess_risk(rows=n, dimension=d, slope=slope, **shared),
                "middle": float(sample.middle.mean()),
                "middle_bound": bound.noise,
                "spread_bound": spread_noise_bound(
                    records.features, sigma=sigma, lam=lam, bend=sample.least_bend, tau=tau
                ),
                "spread_printed": printed_spread_bound(
                    records.features, sigma=sigma, lam=lam, least=sample.least_bend, largest=1.0
                ),
                "bend": sample.least_bend,
            }
        )
    return pd.DataFrame(rows)


def rate_table(
    ds: Sequence[int] = (4, 16, 64, 256, 1_024),
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    norm: float = 1.0,
    repetitions: int = 100,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Excess risk of logistic regression against the dimension, with both choices of (sigma, lam), at fixed epsilon.

    On the hardest number of records: those of one coordinate curve J along it by as much as lam does. (With more, the
    data win over the noise; with fewer, there is little to lose.) Each record is a unit vector; along each coordinate
    the labels have the shares of a logistic model with ||theta*|| about ``norm``. Were J quadratic, the excess would be
    1/4 of the bound.

    Parameters
    ----------
    ds : sequence of int
    epsilon, delta : float
        Held by both choices; by the printed one with room to spare.
    norm : float
    repetitions : int
        Draws of the noise for each row.
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        ``choice`` ("right": lam = sqrt(d) sigma / ||theta*||; "printed": sqrt(d) times the noise, and sqrt(d) times the
        lam), ``dimension``, ``records``, ``sigma``, ``lam``, ``measured``, ``low``, ``high`` (99.9 %), ``bound``.
    """
    check_generator(rng)
    size, count = check_ordinary("norm", norm), check_count("repetitions", repetitions, minimum=2)
    rows = []
    for choice in CHOICES:
        for d in ds:
            right = optimal_choice(
                epsilon=epsilon, delta=delta, slope=1.0, curvature=0.25, dimension=d, norm=size
            )
            factor = 1.0 if choice == "right" else math.sqrt(d)
            sigma = right.sigma * factor
            wanted = size / math.sqrt(d)
            records = max(
                2, round(best_lam(dimension=d, sigma=sigma, norm=size) / (expit(wanted) * expit(-wanted)))
            )
            positive = min(max(round(records * expit(wanted)), records // 2 + 1), records - 1)
            best = math.log(positive / (records - positive))
            lam = best_lam(dimension=d, sigma=sigma, norm=math.sqrt(d) * best)
            excess = _coordinate_excess(records, positive, lam, sigma * rng.standard_normal((count, d)))
            mean, error = float(excess.mean()), float(stats.sem(excess))
            half = float(stats.norm.isf((1 - LEVEL) / 2)) * error
            rows.append(
                {
                    "choice": choice,
                    "dimension": d,
                    "records": records * d,
                    "sigma": sigma,
                    "lam": lam,
                    "measured": mean,
                    "low": mean - half,
                    "high": mean + half,
                    "bound": d * sigma**2 / (2 * lam) + lam / 2 * d * best**2,
                }
            )
    return pd.DataFrame(rows)


def _coordinate_excess(records: int, positive: int, lam: float, b: FloatArray) -> FloatArray:
    """J(theta^P) - J(theta*), summed over the coordinates: shape (repetitions,)."""
    negative = records - positive
    low = -(np.abs(b) + records) / lam
    high, theta = -low, np.zeros_like(b)
    for _ in range(200):
        gradient = negative * expit(theta) - positive * expit(-theta) + lam * theta + b
        if np.abs(gradient).max() <= 1e-10 * (records + np.abs(b).max()):
            break
        high, low = np.where(gradient > 0, theta, high), np.where(gradient <= 0, theta, low)
        new = theta - gradient / (records * expit(theta) * expit(-theta) + lam)
        # Newton's step where it stays in the bracket, else its middle.
        theta = np.where((new > low) & (new < high), new, 0.5 * (low + high))
    value = positive * np.logaddexp(0, -theta) + negative * np.logaddexp(0, theta)
    best = math.log(positive / negative)
    least = positive * np.logaddexp(0, -best) + negative * np.logaddexp(0, best)
    return np.asarray((value - least).sum(axis=1))


def rate_exponents(table: pd.DataFrame, *, level: float = 0.95) -> pd.DataFrame:
    """Slopes against d on log axes, in what :func:`rate_table` returned, with Student's interval.

    Returns
    -------
    DataFrame
        ``choice``, ``claimed`` (1/2 and 1), ``measured``, ``low``, ``high``, ``bound`` (slope of the bound).
    """
    coverage = check_probability("level", level)
    rows = []
    for choice, part in table.groupby("choice", sort=False):
        if len(part) < 3:
            raise ValueError(
                f"table must hold at least 3 dimensions a choice, got {len(part)} for {choice!r}"
            )
        log_d = np.log(part["dimension"].to_numpy(dtype=float))
        fit = stats.linregress(log_d, np.log(part["measured"]))
        half = float(stats.t.ppf((1 + coverage) / 2, len(part) - 2) * fit.stderr)
        rows.append(
            {
                "choice": choice,
                "claimed": 0.5 if choice == "right" else 1.0,
                "measured": float(fit.slope),
                "low": float(fit.slope) - half,
                "high": float(fit.slope) + half,
                "bound": float(stats.linregress(log_d, np.log(part["bound"])).slope),
            }
        )
    return pd.DataFrame(rows)


def general_rate_table(
    ds: Sequence[int] = (1, 10, 100, 1_000, 10_000),
    *,
    order: float = 8.0,
    sigma: float = 10.0,
    norm: float = 1.0,
    slope: float = 1.0,
    curvature: float = 1.0,
) -> pd.DataFrame:
    """What the best lam costs a loss that is no generalised linear one: the rate sqrt(d) survives.

    With lam = sqrt(d) sigma / ||theta*|| the term kappa mu sqrt(d) of the theorem for general losses is
    mu^2 curvature ||theta*|| / slope, whatever d is. So the noise need not grow with d, and the excess risk
    sqrt(d) sigma ||theta*|| of Kifer et al. is right for smooth losses of any form, although its proof was not.

    Returns
    -------
    DataFrame
        ``dimension``, ``lam``, ``gaussian`` (order mu^2 / 2), ``theorem`` (:class:`GeneralLossCurve`), ``ratio`` of the
        two, ``corrected`` (Theorem C.5.1, corrected), ``risk`` (sqrt(d) sigma ||theta*||).
    """
    mu = check_ordinary("slope", slope) / check_ordinary("sigma", sigma)
    rows = []
    for d in ds:
        lam = best_lam(dimension=d, sigma=sigma, norm=norm)
        kappa = check_ordinary("curvature", curvature) / lam
        gaussian, theorem = order * mu**2 / 2, GeneralLossCurve(mu, kappa, d).renyi(order)
        rows.append(
            {
                "dimension": d,
                "lam": lam,
                "gaussian": gaussian,
                "theorem": theorem,
                "ratio": theorem / gaussian,
                "corrected": SmoothPerturbationCurve(mu, kappa, d).renyi(order),
                "risk": math.sqrt(d) * sigma * norm,
            }
        )
    return pd.DataFrame(rows)
