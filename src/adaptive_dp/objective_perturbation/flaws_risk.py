"""What redberg2023 prints wrong about risk, optimisation and general losses in chapter 4, and what that costs.

Nothing here may be used to calibrate or to stop anything: each ``printed_...`` function is *false as printed*, or
wastes what its docstring says. The right versions are in ``general_loss``, ``non_glm``, ``optimisers`` and
``excess_risk`` of this package.

Errata 27 (Theorem C.5.1), 28 (Theorem C.8.1, sections C.8.1 and C.8.2) and 29 (section C.7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.objective_perturbation.optimisation_cost import (
    StartingPoint,
    descent_bound,
    perturbed_problem,
)
from adaptive_dp.objective_perturbation.optimisers import gradient_descent
from adaptive_dp.per_instance.calibration import Calibration, SmoothPerturbationCurve, log_chi_mgf
from adaptive_dp.validation import (
    as_finite_array,
    check_count,
    check_ordinary,
    check_probability,
    check_real,
)

# --- erratum 27: Theorem C.5.1 ------------------------------------------------------------------------------


def printed_smooth_renyi(
    order: float, *, slope: float, curvature: float, sigma: float, lam: float, dimension: int
) -> float:
    """Theorem C.5.1, **false as printed** where slope > 1: L / (2 sigma^2) should be L^2 / (2 sigma^2).

    The determinant -d log(1 - beta / lam) is valid for lam > beta, and infinite (as returned) below; right and smaller
    is d log(1 + beta / lam), for every lam. Right: ``SmoothPerturbationCurve.renyi``, and far below it
    :class:`~adaptive_dp.objective_perturbation.general_loss.GeneralLossCurve`.

    Parameters
    ----------
    order : float
        Above 1.
    slope, curvature, sigma, lam : float
        L, beta, sigma, lambda; positive.
    dimension : int
        d.
    """
    power = check_real("order", order) - 1
    if power <= 0:
        raise ValueError(f"order must be above 1, got {order!r}")
    size, noise = check_ordinary("slope", slope), check_ordinary("sigma", sigma)
    kappa = check_ordinary("curvature", curvature) / check_ordinary("lam", lam)
    d = check_count("dimension", dimension)
    if kappa >= 1:
        return math.inf
    return -d * math.log1p(-kappa) + size / (2 * noise**2) + log_chi_mgf(power * size / noise, d) / power


def smooth_units(
    scales: Sequence[float] = (0.1, 1.0, 10.0, 100.0),
    *,
    mu: float = 1.0,
    orders: Sequence[float] = (2.0, 8.0),
) -> pd.DataFrame:
    """Theorem C.5.1 for linear losses g'theta in one dimension, where objective perturbation is the Gaussian mechanism.

    Loss and noise are multiplied by the same factor, which changes nothing but the units.

    Returns
    -------
    DataFrame
        ``scale`` (= L; sigma = L / mu), ``order``, ``printed`` (beta / lam tiny), ``corrected``, ``exact`` (order
        mu^2 / 2) and ``holds``: whether the printed bound is one.
    """
    size = check_ordinary("mu", mu)
    rows = []
    for scale in scales:
        for order in orders:
            printed = printed_smooth_renyi(
                order, slope=scale, curvature=1e-12, sigma=scale / size, lam=1.0, dimension=1
            )
            exact = GaussianCurve(size).renyi(order)
            rows.append(
                {
                    "scale": scale,
                    "order": order,
                    "printed": printed,
                    "corrected": SmoothPerturbationCurve(size, 1e-12, 1).renyi(order),
                    "exact": exact,
                    "holds": printed >= exact,
                }
            )
    return pd.DataFrame(rows)


# --- erratum 28: section C.8 --------------------------------------------------------------------------------


def printed_excess_risk(
    *,
    rows: int,
    dimension: int,
    slope: float,
    sigma: float,
    lam: float,
    norm: float,
    tau: float = 0.0,
    sigma_out: float = 0.0,
) -> float:
    """Theorem C.8.1: valid, but n L tau / lam and n L sigma_out sqrt(d) are far too large.

    Right: :func:`~adaptive_dp.objective_perturbation.excess_risk.excess_risk_bound`; ``slope`` is L.
    """
    n, d = check_count("rows", rows), check_count("dimension", dimension)
    ridge = check_ordinary("lam", lam)
    moved = n * check_ordinary("slope", slope) * (tau / ridge + sigma_out * math.sqrt(d))
    return moved + d * check_ordinary("sigma", sigma) ** 2 / (2 * ridge) + ridge / 2 * norm**2


def printed_spread_bound(
    features: ArrayLike, *, sigma: float, lam: float, least: float, largest: float
) -> float:
    """Section C.8.2's bound of E J_lam(theta^P) - min J_lam: C sigma^2 tr((X'X + lam I)^-1) / c^2, loose as printed.

    It asks for c <= f <= C, the *value* of the loss; its proof needs c <= f'' <= C and c <= 1 <= C. The 1/2 in front is
    lost, and C / c^2 should be 1 / c. Right: ``spread_noise_bound``.

    Parameters
    ----------
    features : array_like, shape (n, d)
    sigma, lam : float
    least, largest : float
        c and C.
    """
    X = as_finite_array("features", features, ndim=2)
    spectrum = np.linalg.eigvalsh(X.T @ X) + check_ordinary("lam", lam)
    factor = check_ordinary("largest", largest) / check_ordinary("least", least) ** 2
    return factor * check_ordinary("sigma", sigma) ** 2 * float((1 / spectrum).sum())


def printed_choice(*, epsilon: float, delta: float, slope: float, dimension: int, norm: float) -> Calibration:
    """Sigma and lam of section C.8.1, constants 1, **not optimal** as claimed: a GLM needs no sqrt(d) in sigma."""
    size, root = check_ordinary("slope", slope), math.sqrt(math.log(1 / check_probability("delta", delta)))
    unit = size * root / check_ordinary("epsilon", epsilon)
    d = check_count("dimension", dimension)
    return Calibration(math.sqrt(d) * unit, d * unit / check_ordinary("norm", norm))


def choices_table(
    ds: Sequence[int] = (10, 100, 1_000), *, epsilon: float = 1.0, delta: float = 1e-6, norm: float = 1.0
) -> pd.DataFrame:
    """D sigma^2 / (2 lam) + lam ||theta*||^2 / 2 at the printed choice and at the right one, constants 1.

    Returns
    -------
    DataFrame
        ``dimension``; ``right`` = sqrt(d) u with u = L ||theta*|| sqrt(log(1/delta)) / epsilon; ``printed`` = d u;
        ``display``: the first term of the printed display, which has lost the root of the logarithm.
    """
    rows = []
    for d in ds:
        printed = printed_choice(epsilon=epsilon, delta=delta, slope=1.0, dimension=d, norm=norm)
        sigma = printed.sigma / math.sqrt(d)
        lam = math.sqrt(d) * sigma / norm
        rows.append(
            {
                "dimension": d,
                "right": d * sigma**2 / (2 * lam) + lam / 2 * norm**2,
                "printed": d * printed.sigma**2 / (2 * printed.lam) + printed.lam / 2 * norm**2,
                "display": d * norm / epsilon,
            }
        )
    return pd.DataFrame(rows)


# --- erratum 29: section C.7 --------------------------------------------------------------------------------


def printed_descent_bound(start: StartingPoint, *, gamma: float) -> float:
    """Incremental gradients of descent by section C.7.

    2 (L - lam) / lam log(L^2 ||theta_0 - theta*||^2 / gamma^2) steps.
    Valid for lam <= L / 2 only, and at least four times the right number: the 2 is not needed, and the squares are not.
    """
    ratio = (start.smoothness * start.distance / check_ordinary("gamma", gamma)) ** 2
    return start.rows * 2 * (start.condition - 1) * math.log(max(ratio, 1.0))


def printed_sag_bound(start: StartingPoint, *, gamma: float, failure: float) -> float:
    """Steps of SAG by the display of section C.7, which has **lost a factor 2**.

    Lost is the 2 of ||grad f||^2 <= 2 L^2 / lam (f - f*). Its other factors,
    n and L / lam too many in the logarithm, hide the loss.
    """
    n = start.rows
    constant = 1.5 * n * start.gap + 4 * start.smoothness * start.distance**2
    tail = check_probability("failure", failure)
    ratio = start.condition * start.smoothness * constant / (check_ordinary("gamma", gamma) ** 2 * tail)
    rate = min(1 / (16 * start.condition), 1 / (8 * n))
    return math.log(max(ratio, 1.0)) / -math.log1p(-rate)


def printed_accelerated_gap(start: StartingPoint, *, steps: int) -> float:
    """Bound of f(theta_T) - f* by section C.7, **false as printed**: its units are those of ||theta||^2."""
    return float(
        (1 - 1 / math.sqrt(start.condition)) ** check_count("steps", steps, minimum=0) * start.distance**2
    )


def accelerated_units(
    scales: Sequence[float] = (1e-2, 1.0, 1e2), *, steps: Sequence[int] = (0, 10, 40)
) -> pd.DataFrame:
    """f(theta_T) - f* of Nesterov's method on scale (100 u^2 + v^2) / 2 from (1, 1), and both bounds of it.

    Returns
    -------
    DataFrame
        ``scale``, ``steps``, ``gap``; ``printed`` and ``holds``; ``right``: the same factor times f_0 - f* +
        lam / 2 ||theta_0 - theta*||^2.
    """
    rows = []
    for scale in scales:
        spectrum = check_ordinary("scales", scale) * np.array([100.0, 1.0])
        begin = StartingPoint(
            rows=1,
            smoothness=float(spectrum[0]),
            lam=float(spectrum[1]),
            gap=float(spectrum.sum() / 2),
            distance=math.sqrt(2),
            gradient_norm=float(np.linalg.norm(spectrum)),
        )
        momentum = (math.sqrt(begin.condition) - 1) / (math.sqrt(begin.condition) + 1)
        last = point = np.ones(2)
        for step in range(max(steps) + 1):
            if step in steps:
                gap, printed = float(spectrum @ last**2) / 2, printed_accelerated_gap(begin, steps=step)
                energy = begin.gap + begin.lam * begin.distance**2 / 2
                rows.append(
                    {
                        "scale": scale,
                        "steps": step,
                        "gap": gap,
                        "printed": printed,
                        "holds": gap <= printed,
                        "right": printed / begin.distance**2 * energy,
                    }
                )
            new = point - spectrum * point / begin.smoothness
            point, last = new + momentum * (new - last), new
    return pd.DataFrame(rows)


def lost_factor(conditions: Sequence[float] = (1.0, 1.5, 2.0, 10.0)) -> pd.DataFrame:
    """||grad f||^2 over (f - f*) at its worst, L = 1, beside what three inequalities allow.

    Returns
    -------
    DataFrame
        ``condition`` Q = L / lam; ``worst`` = 2 L, attained by every quadratic; ``right`` = 2 L^2 / lam (C.7.2);
        ``printed`` = L^2 / lam (the display for SAG); ``sharp`` = 2 L; ``holds``: whether the printed one does.
    """
    frame = pd.DataFrame({"condition": [check_ordinary("conditions", q) for q in conditions]})
    frame["worst"] = 2.0
    frame["right"] = 2 * frame["condition"]
    frame["printed"] = frame["condition"]
    frame["sharp"] = 2.0
    frame["holds"] = frame["printed"] >= frame["worst"]
    return frame


def descent_table(ns: Sequence[int] = (100, 400, 1_600), *, rng: np.random.Generator) -> pd.DataFrame:
    """Incremental gradients of gradient descent: needed, bounded and printed.

    Returns
    -------
    DataFrame
        ``n``, ``measured``, ``bound``, ``printed``.
    """
    rows = []
    for n in ns:
        problem = perturbed_problem(n, rng=rng)
        start, gamma = StartingPoint.of(problem), 1 / n
        rows.append(
            {
                "n": n,
                "measured": gradient_descent(problem, gamma=gamma).evaluations,
                "bound": descent_bound(start, gamma=gamma),
                "printed": printed_descent_bound(start, gamma=gamma),
            }
        )
    return pd.DataFrame(rows)
