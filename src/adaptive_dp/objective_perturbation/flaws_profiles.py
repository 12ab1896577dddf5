"""What redberg2023 prints wrong in chapter 4 about profiles and Rényi bounds, and what the public code makes of it.

Nothing here may be used to report anything: each ``printed_...`` function is *false as printed*. The right versions are
in :mod:`~adaptive_dp.objective_perturbation.profiles` and :mod:`~adaptive_dp.objective_perturbation.linearised`.

Errata 21 (Theorem 4.3.1), 22 (Theorem 4.3.2, Remark 4.3.3) and 23 (section C.3.1); a defect of the calibration that was
published with the thesis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr
from scipy.stats import norm

from adaptive_dp.accounting import gaussian_delta, gaussian_sigma
from adaptive_dp.objective_perturbation.calibration import OutputNoise, smallest_lam, smallest_sigma
from adaptive_dp.objective_perturbation.linearised import CASES, LinearisedCurve
from adaptive_dp.objective_perturbation.profiles import (
    HalfNormalCurve,
    HockeyStickCurve,
    ReducedCurve,
    determinant_cost,
    half_normal_renyi,
)
from adaptive_dp.per_instance.calibration import Calibration
from adaptive_dp.validation import check_ordinary, check_positive, check_real

# --- erratum 21: Theorem 4.3.1 ------------------------------------------------------------------------------


def gaussian_hockey_stick(gamma: float, mu: float) -> float:
    """H_gamma(N(mu, 1) || N(0, 1)) for an order gamma > 0."""
    return gaussian_delta(math.log(check_positive("gamma", gamma)), mu)


def printed_hockey_stick(epsilon: float, mu: float, kappa: float, *, sign: int = -1) -> float:
    """(4.3.1) with epsilon~ = epsilon - log(1 - kappa) as printed (erratum 21); ``sign=1`` gives the right shift.

    The second branch is taken with the right order e^(mu^2 / 2): the two slips are shown one at a time.
    """
    moved = check_real("epsilon", epsilon) - sign * determinant_cost(kappa)
    hat = moved - 0.5 * mu * mu
    if hat >= 0:
        return 2 * gaussian_delta(moved, mu)
    return -math.expm1(hat) + math.exp(hat) * 2 * gaussian_hockey_stick(math.exp(0.5 * mu * mu), mu)


def sign_table(
    cases: Sequence[tuple[float, float, float]] = (
        (1.0, 1.0, 0.5),
        (0.3, 0.2, 0.05),
        (0.02, 0.2, 0.05),
        (0.2, 1.0, 1 / 3),
        (2.0, 1.0, 0.2),
    ),
) -> pd.DataFrame:
    """Theorem 4.3.1 with the printed and the right sign against the Gaussian mechanism, which no bound can beat.

    Parameters
    ----------
    cases : sequence of (epsilon, mu, kappa)

    Returns
    -------
    DataFrame
        ``epsilon``, ``mu``, ``kappa``, ``gaussian`` (Lemma 4.3.4), ``printed``, ``right``, ``quadrature`` (the
        half-normal expectation that the proof is about) and ``refuted``: printed below Gaussian.
    """
    rows = []
    for epsilon, mu, kappa in cases:
        printed, floor = printed_hockey_stick(epsilon, mu, kappa), gaussian_delta(epsilon, mu)
        rows.append(
            {
                "epsilon": epsilon,
                "mu": mu,
                "kappa": kappa,
                "gaussian": floor,
                "printed": printed,
                "right": HockeyStickCurve(mu, kappa).delta(epsilon),
                "quadrature": half_normal_expectation(epsilon - determinant_cost(kappa), mu),
                "refuted": printed < floor,
            }
        )
    return pd.DataFrame(rows)


def half_normal_expectation(epsilon: float, mu: float) -> float:
    """E (1 - exp(epsilon - mu^2 / 2 - mu |N|))_+ by quadrature: a second computation of Theorem 4.3.1."""
    rest = check_real("epsilon", epsilon) - 0.5 * mu * mu
    start = max(0.0, rest / check_positive("mu", mu))
    value, _ = quad(lambda r: 2 * norm.pdf(r) * -math.expm1(rest - mu * r), start, start + 40, limit=400)
    return float(value)


def printed_second_branch(epsilon: float, mu: float, kappa: float) -> float:
    """The second branch of (4.3.1) with its printed order L^2 / (e sigma^2) = mu^2 / e (erratum 21); right shift."""
    hat = check_real("epsilon", epsilon) - determinant_cost(kappa) - 0.5 * mu * mu
    if hat >= 0:
        raise ValueError(f"epsilon must belong to the second branch, got {epsilon!r}")
    return -math.expm1(hat) + math.exp(hat) * 2 * gaussian_hockey_stick(mu * mu / math.e, mu)


def order_table(mus: Sequence[float] = (0.2, 0.5, 1.0, 2.0), *, kappa: float = 0.5) -> pd.DataFrame:
    """The order in the second branch of Theorem 4.3.1 at epsilon = 0, printed and right.

    Returns
    -------
    DataFrame
        ``mu``; ``printed_order`` and ``right_order``, with ``printed_divergence`` and ``right_divergence``, the
        hockey-stick divergences between N(mu, 1) and N(0, 1) at them; ``printed`` and ``right``, delta at epsilon 0;
        ``vacuous``: printed above 1, which is no probability.
    """
    rows = []
    for mu in mus:
        printed = printed_second_branch(0.0, mu, kappa)
        rows.append(
            {
                "mu": mu,
                "printed_order": mu * mu / math.e,
                "right_order": math.exp(0.5 * mu * mu),
                "printed_divergence": gaussian_hockey_stick(mu * mu / math.e, mu),
                "right_divergence": gaussian_hockey_stick(math.exp(0.5 * mu * mu), mu),
                "printed": printed,
                "right": HockeyStickCurve(mu, kappa).delta(0.0),
                "vacuous": printed > 1,
            }
        )
    return pd.DataFrame(rows)


# --- erratum 22: Theorem 4.3.2 and Remark 4.3.3 -------------------------------------------------------------


def printed_renyi_at_one(mu: float, kappa: float) -> float:
    """Theorem 4.3.2 at order 1 as printed: log E e^|X| for E |X|. Valid, but the value of order 2 (erratum 22)."""
    return determinant_cost(kappa) + mu * mu + math.log(2) + float(log_ndtr(mu))


def order_one_table(
    mu: float = 0.2, kappa: float = 0.05, orders: Sequence[float] = (1.0, 1.0001, 1.5, 2.0, 4.0, 16.0, 64.0)
) -> pd.DataFrame:
    """The Rényi bound around order 1.

    Returns
    -------
    DataFrame
        ``order``, ``right``, ``printed`` (the same from above 1 on, its own value at 1: not increasing).
    """
    curve = HalfNormalCurve(mu, kappa)
    return pd.DataFrame(
        {
            "order": order,
            "right": curve.renyi(order),
            "printed": printed_renyi_at_one(mu, kappa) if order == 1 else curve.renyi(order),
        }
        for order in orders
    )


def printed_square_lost(order: float, slope: float, sigma: float, kappa: float) -> float:
    """The last displays of C.3 and C.5.1 with L / (2 sigma^2) for L^2 / (2 sigma^2) (erratum 22)."""
    mu = slope / sigma
    return (
        determinant_cost(kappa) + half_normal_renyi(order, mu) - 0.5 * mu * mu + 0.5 * slope / (sigma * sigma)
    )


def square_table(
    cases: Sequence[tuple[float, float, float]] = ((1.0, 1.0, 2.0), (2.0, 2.0, 30.0), (5.0, 5.0, 20.0)),
    *,
    kappa: float = 1e-3,
) -> pd.DataFrame:
    """L for L^2 against the Gaussian mechanism: right only for gradients of norm 1.

    Parameters
    ----------
    cases : sequence of (slope, sigma, order)

    Returns
    -------
    DataFrame
        ``slope``, ``sigma``, ``order``, ``gaussian``, ``printed``, ``right``, ``refuted``: printed below Gaussian.
    """
    rows = []
    for slope, sigma, order in cases:
        mu = check_ordinary("slope", slope) / check_ordinary("sigma", sigma)
        printed, floor = printed_square_lost(order, slope, sigma, kappa), 0.5 * order * mu * mu
        rows.append(
            {
                "slope": slope,
                "sigma": sigma,
                "order": order,
                "gaussian": floor,
                "printed": printed,
                "right": HalfNormalCurve(mu, kappa).renyi(order),
                "refuted": printed < floor,
            }
        )
    return pd.DataFrame(rows)


def remark_table(mu: float = 1.0, orders: Sequence[float] = (1.5, 2.0, 4.0)) -> pd.DataFrame:
    """Remark 4.3.3 on the Gaussian mechanism: E_P e^(order loss) is printed, E_P e^((order - 1) loss) is right.

    The loss is N(mu^2 / 2, mu^2) under P, and the Rényi divergence order mu^2 / 2.

    Returns
    -------
    DataFrame
        ``order``, ``divergence``, ``printed``, ``right``.
    """
    check_positive("mu", mu)

    def log_mgf(power: float) -> float:
        return 0.5 * power * mu * mu * (1 + power)

    return pd.DataFrame(
        {
            "order": order,
            "divergence": 0.5 * order * mu * mu,
            "printed": log_mgf(order) / (order - 1),
            "right": log_mgf(order - 1) / (order - 1),
        }
        for order in orders
    )


# --- erratum 23: section C.3.1 ------------------------------------------------------------------------------


def printed_linearised(
    order: float, mu: float, kappa: float, sigma: float, *, cost: float | None = None
) -> float:
    """C.3.1 as printed, best Hölder exponent: kappa sigma^2 where kappa belongs (erratum 23).

    A 1 / sigma^2 was dropped: the bound is infinite or loose for sigma > 1, and too small for sigma < 1. ``cost`` is
    that of the determinant, -log(1 - kappa) unless given.
    """
    scale = check_ordinary("sigma", sigma)
    wrong = LinearisedCurve(mu, kappa * scale * scale)
    return wrong.renyi(order) - wrong.cost + (determinant_cost(kappa) if cost is None else cost)


def linearised_table(
    cases: Sequence[tuple[float, float, float]] = CASES, sigmas: Sequence[float] = (5, 5, 5, 5, 5, 20, 2, 0.5)
) -> pd.DataFrame:
    """The comparison of erratum 23: printed and corrected linearised bounds beside the others, log(1 + kappa) in all.

    Returns
    -------
    DataFrame
        ``mu``, ``kappa``, ``order``, ``sigma``, ``gaussian``, ``reduced``, ``corrected``, ``half_normal``, ``printed``;
        ``too_small``: printed below what its own proof gives.
    """
    rows = []
    for (mu, kappa, order), sigma in zip(cases, sigmas, strict=True):
        curve = LinearisedCurve(mu, kappa)
        corrected, printed = curve.renyi(order), printed_linearised(order, mu, kappa, sigma, cost=curve.cost)
        rows.append(
            {
                "mu": mu,
                "kappa": kappa,
                "order": order,
                "sigma": float(sigma),
                "gaussian": 0.5 * order * mu * mu,
                "reduced": ReducedCurve(mu, kappa).renyi(order),
                "corrected": corrected,
                "half_normal": math.log1p(kappa) + half_normal_renyi(order, mu),
                "printed": printed,
                "too_small": printed < corrected,
            }
        )
    return pd.DataFrame(rows)


def square_exponential_table(t: float = 0.2, sigmas: Sequence[float] = (0.25, 0.5, 1.0, 1.5)) -> pd.DataFrame:
    """E exp(t b^2 / sigma^2) for b ~ N(0, sigma^2), and what C.3.1 takes for it.

    Returns
    -------
    DataFrame
        ``sigma``, ``exact`` ((1 - 2 t)^(-1/2), by quadrature too), ``quadrature``, ``printed``
        ((1 - 2 t sigma^2)^(-1/2); infinite where undefined).
    """
    rows = []
    for sigma in sigmas:
        scale = check_ordinary("sigma", sigma)
        value, _ = quad(
            lambda b, s=scale: norm.pdf(b, scale=s) * math.exp(t * (b / s) ** 2), -40 * scale, 40 * scale
        )
        wrong = 1 - 2 * t * scale * scale
        rows.append(
            {
                "sigma": scale,
                "exact": (1 - 2 * t) ** -0.5,
                "quadrature": float(value),
                "printed": wrong**-0.5 if wrong > 0 else math.inf,
            }
        )
    return pd.DataFrame(rows)


def centring_table(
    noises: Sequence[float] = (-0.5, -1.0, -2.0, -4.0), *, copies: int = 5, lam: float = 0.1
) -> pd.DataFrame:
    """(C.3.9) on logistic regression in one dimension: the minimiser moves further than |x' H(theta*)^-1 b|.

    ``copies`` records balance each other, so that theta* = 0 where the Hessian is largest: away from it the objective
    is flatter, and the noise b moves the minimiser further.

    Returns
    -------
    DataFrame
        ``b``, ``moved`` (|theta^P - theta*|), ``printed`` (|b| / H(theta*)), ``lipschitz`` (|b| / lam, the only
        pointwise bound), ``refuted``: moved above printed.
    """
    ridge = check_ordinary("lam", lam)
    rows = []
    for b in noises:

        def slope(theta: float, noise: float = b) -> float:
            return copies * (float(expit(theta)) - 0.5) + ridge * theta + noise

        reach = (abs(b) + copies) / ridge
        moved = abs(float(brentq(slope, -reach, reach, xtol=1e-14)))
        printed = abs(b) / (0.25 * copies + ridge)
        rows.append(
            {
                "b": b,
                "moved": moved,
                "printed": printed,
                "lipschitz": abs(b) / ridge,
                "refuted": moved > printed,
            }
        )
    return pd.DataFrame(rows)


# --- the calibration that was published ---------------------------------------------------------------------


def published_search(
    *,
    epsilon: float,
    delta: float,
    slope: float,
    curvature: float,
    output: OutputNoise,
    factor: float = 1.3,
) -> Calibration:
    """The search of the published code for Algorithm 7: sigma of one ridge, with the ridge of the next step.

    From lam = 2 curvature / epsilon on, lam grows by 5% until the smallest sigma of Theorem 4.4.1 is at most ``factor``
    sigma_Gaussian; it grows once more before it is returned. Safe, but needlessly large.

    Raises
    ------
    ValueError
        From epsilon = 2 on the first ridge is not above the smoothness, and the code stops with an error. Where no
        ridge is enough for ``factor`` (a small epsilon) it never ends.
    """
    lam = 2 * curvature / epsilon
    if lam <= curvature:
        raise ValueError(f"epsilon must be below 2 for the published search, got {epsilon!r}")
    limit = factor * gaussian_sigma(epsilon, delta, slope)

    def least_sigma(ridge: float) -> float:
        try:
            return smallest_sigma(
                epsilon=epsilon,
                delta=delta,
                slope=slope,
                curvature=curvature,
                lam=ridge,
                analysis="half-normal",
                output=output,
            )
        except ValueError:  # no noise is enough: the code goes on
            return math.inf

    # Refuses what would never end.
    smallest_lam(
        epsilon=epsilon,
        delta=delta,
        slope=slope,
        curvature=curvature,
        sigma=limit,
        analysis="half-normal",
        output=output,
    )
    sigma = math.inf
    while sigma > limit:
        sigma = least_sigma(lam)
        lam *= 1.05
    return Calibration(sigma, lam)


def published_search_table(
    epsilons: Sequence[float] = (0.5, 1.0, 1.9, 2.0, 8.0),
    *,
    delta: float = 1e-5,
    slope: float = math.sqrt(2),
    curvature: float = 0.5,
    sigma_out: float = 0.15,
    tau: float = 0.01,
) -> pd.DataFrame:
    """The published search beside the smallest ridges for its own sigma.

    Returns
    -------
    DataFrame
        ``epsilon``, ``sigma``, ``lam`` as the search returns them (nan where it fails), ``half_normal`` and
        ``reduced``: smallest ridge for that sigma under Theorem 4.4.1 and under the reduction's Rényi bound.
    """
    output = OutputNoise(sigma_out, tau)
    rows = []
    for epsilon in epsilons:
        row = {
            "epsilon": epsilon,
            "sigma": math.nan,
            "lam": math.nan,
            "half_normal": math.nan,
            "reduced": math.nan,
        }
        if epsilon < 2:
            found = published_search(
                epsilon=epsilon, delta=delta, slope=slope, curvature=curvature, output=output
            )
            row |= {"sigma": found.sigma, "lam": found.lam}
            for column, analysis in (("half_normal", "half-normal"), ("reduced", "reduced-renyi")):
                row[column] = smallest_lam(
                    epsilon=epsilon,
                    delta=delta,
                    slope=slope,
                    curvature=curvature,
                    output=output,
                    sigma=found.sigma,
                    analysis=analysis,
                )
        rows.append(row)
    return pd.DataFrame(rows)
