"""What redberg2023 and published code have wrong about clipping and approximate minima, and what that costs.

Nothing here may be used to release anything: each ``printed_...`` function is *false as printed*. The right versions
are in :mod:`~adaptive_dp.objective_perturbation.clipping` and
:mod:`~adaptive_dp.objective_perturbation.approximate_minima`.

Erratum 26 (Theorem C.6.2, section 4.5, section C.7), and two habits of published code: a threshold that belongs to
another loss, and fresh noise whenever the solver did not converge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.losses import HuberLoss, LogisticLoss, Loss
from adaptive_dp.objective_perturbation.calibration import OutputNoise, analysis_curve, calibrate
from adaptive_dp.objective_perturbation.clipping import ClippedLoss
from adaptive_dp.per_instance.one_dimensional import Data1D, Neighbours1D
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_ordinary,
    check_probability,
    check_real,
)

# --- erratum 26: Theorem C.6.2 ------------------------------------------------------------------------


def printed_clipped_value(
    loss: Loss, prediction: ArrayLike, label: float, *, norm: float, clip: float
) -> FloatArray:
    """f_C of Theorem C.6.2, **false as printed**: the straight parts start at 0 instead of f(u_L) and f(u_H)."""
    clipped = ClippedLoss(loss, clip)
    low, high = clipped.limits(label, norm)
    slope = float(clipped.slope(norm))
    u = np.asarray(prediction, dtype=np.float64)
    inner = loss.value(np.clip(u, low, high), label)
    return np.asarray(np.where(u < low, -slope * (u - low), np.where(u > high, slope * (u - high), inner)))


def continuity_table(
    loss: Loss | None = None, *, label: float = 1.0, norm: float = 1.4, clip: float = 0.5
) -> pd.DataFrame:
    """The clipped loss around u_L (or u_H, where there is no u_L), as printed and as corrected.

    Returns
    -------
    DataFrame
        ``form``, ``limit``: u_L, ``jump``: |f_C just inside less f_C just outside|, ``least_bend``: the smallest second
        difference on a grid of 4001 points around it (negative: not convex), ``steepest_bend``: the largest, divided
        by the square of the step.
    """
    base = LogisticLoss() if loss is None else loss
    low, high = (float(limit) for limit in ClippedLoss(base, clip).limits(label, norm))
    limit = low if math.isfinite(low) else high
    if not math.isfinite(limit):
        raise ValueError(f"clip must cut some gradient of a row of norm {norm!r}, got {clip!r}")
    u, step = np.linspace(limit - 6, limit + 6, 4001), 1e-9
    rows = []
    for form in ("printed", "corrected"):

        def value(points: ArrayLike, form: str = form) -> FloatArray:
            if form == "printed":
                return printed_clipped_value(base, points, label, norm=norm, clip=clip)
            return ClippedLoss(base, clip).value(points, label, norm)

        beside = value(np.array([limit - step, limit + step]))
        bends = np.diff(value(u), 2)
        rows.append(
            (
                form,
                limit,
                float(abs(beside[1] - beside[0])),
                float(bends.min()),
                float(bends.max() / (u[1] - u[0]) ** 2),
            )
        )
    return pd.DataFrame(rows, columns=["form", "limit", "jump", "least_bend", "steepest_bend"])


def factor_table(
    predictions: Sequence[float] = (-2.3256, -0.5, 1.0),
    *,
    loss: Loss | None = None,
    label: float = 1.0,
    norm: float = 1.4,
    clip: float = 0.5,
) -> pd.DataFrame:
    """By what the gradient is multiplied: min{1, C / |u|} as printed, min{1, C / ||grad||}, and the truth.

    Returns
    -------
    DataFrame
        ``prediction`` u, ``gradient`` (its norm, unclipped), ``printed``, ``right``, and ``measured``: the slope of the
        corrected f_C by a central difference over f'.
    """
    base = LogisticLoss() if loss is None else loss
    clipped, rows, h = ClippedLoss(base, clip), [], 1e-5
    for prediction in predictions:
        u = check_real("prediction", prediction)
        slope = float(base.derivative(u, label))
        size = abs(slope) * norm
        ends = clipped.value(np.array([u - h, u + h]), label, norm)
        printed = min(1.0, clip / abs(u)) if u else 1.0
        right = min(1.0, clip / size) if size else 1.0
        rows.append((u, size, printed, right, float(ends[1] - ends[0]) / (2 * h) / slope if size else 1.0))
    return pd.DataFrame(rows, columns=["prediction", "gradient", "printed", "right", "measured"])


def mismatched_threshold_table(*, norm: float = 1.0, clip: float = 1.0) -> pd.DataFrame:
    """A squared error r^2, of slope 2 r, that published code continues with slope s = C / ||x|| from |r| = s on.

    The threshold belongs to r^2 / 2: at it the slope falls from 2 s to s, so that the loss is not convex, and
    gradients just inside are up to twice as long as claimed.

    Returns
    -------
    DataFrame
        ``side`` of the threshold, ``residual``, ``gradient`` (norm), ``claimed`` (C), ``exceeded``.
    """
    slope = check_ordinary("clip", clip) / check_ordinary("norm", norm)
    rows = [
        ("inside", slope, 2 * slope * norm, clip, 2 * slope * norm > clip * (1 + 1e-12)),
        ("outside", slope, slope * norm, clip, slope * norm > clip * (1 + 1e-12)),
    ]
    return pd.DataFrame(rows, columns=["side", "residual", "gradient", "claimed", "exceeded"])


# --- erratum 26: the bias column of section 4.5 ---------------------------------------------------------


def smoothness_table(
    factors: Sequence[float] = (1.3, 2.0, 3.0, 5.0),
    *,
    epsilons: Sequence[float] = (0.1, 0.5, 1.0),
    delta: float = 1e-5,
    analyses: Sequence[str] = ("hockey-stick", "reduced"),
    tilts: Sequence[float] = (0.0, 2.0),
) -> pd.DataFrame:
    """Logistic regression with a bias column, ||x|| <= sqrt 2, calibrated with beta = 1/4 and with 1/2.

    1/4 is sup f''; the theorems need sup f'' ||x||^2. The pair: data without and with one record x = sqrt 2 in one
    dimension, whose profile is enclosed exactly. The other records are none, or a crowd of short rows (1e-3) that
    all pull the same way: they tilt the objective, with next to no curvature of their own, until the new record bends
    it where the noise is so many standard deviations out.

    Parameters
    ----------
    factors : sequence of float
        sigma over that of the Gaussian mechanism; the ridge is then as small as the analysis allows.
    epsilons, delta, analyses
        What is claimed, and by which theorem: see :func:`~.calibration.calibrate`.
    tilts : sequence of float
        In standard deviations of the noise; 0 is no data.

    Returns
    -------
    DataFrame
        ``analysis``, ``curvature`` taken, ``factor``, ``epsilon``, ``claimed`` delta, ``sigma``, ``lam``, ``delta``: a
        lower bound of the exact one, the largest over directions and tilts, ``violated``.

    Notes
    -----
    At the thesis's own factor of 1.3 none of these pairs exceeds the claim: where the logistic loss bends most its
    slope is only half of the largest, which leaves room. The theorem that was invoked does not apply all the same.
    """
    rows, root = [], math.sqrt(2.0)
    for analysis in analyses:
        for curvature in (0.25, 0.5):
            for factor in factors:
                for epsilon in epsilons:
                    sigma, lam = calibrate(
                        epsilon=epsilon,
                        delta=delta,
                        slope=root,
                        curvature=curvature,
                        analysis=analysis,
                        factor=factor,
                    )
                    exact = max(_tilted_delta(epsilon, sigma, lam, root, tilt) for tilt in tilts)
                    rows.append(
                        (analysis, curvature, factor, epsilon, delta, sigma, lam, exact, exact > delta)
                    )
    names = ["analysis", "curvature", "factor", "epsilon", "claimed", "sigma", "lam", "delta", "violated"]
    return pd.DataFrame(rows, columns=names)


def _tilted_delta(epsilon: float, sigma: float, lam: float, product: float, tilt: float) -> float:
    short = 1e-3
    crowd = np.array([-short]) if tilt > 0 else np.zeros(0)
    # At theta = 0 each pulls with half its length.
    data = Data1D(crowd, np.full(crowd.size, round(2 * tilt * sigma / short)), lam, sigma)
    return max(side.lower for side in Neighbours1D(data, product).delta(epsilon))


# --- erratum 26: the output noise of section C.7 --------------------------------------------------------


def printed_output_variance(*, gamma: float, lam: float, rho: float) -> float:
    """Variance gamma^2 / (2 lam^2 rho) of section C.7, **false as printed**: a quarter of what rho-zCDP needs."""
    return check_ordinary("gamma", gamma) ** 2 / (
        2 * check_ordinary("lam", lam) ** 2 * check_ordinary("rho", rho)
    )


def output_noise_table(
    *, gamma: float = 0.01, lam: float = 4.0, rho: float = 0.01, epsilon: float = 0.6
) -> pd.DataFrame:
    """The output noise of section C.7 as printed, and for the sensitivity 2 gamma / lam: 2 gamma^2 / (lam^2 rho).

    Returns
    -------
    DataFrame
        ``form``, ``variance``, ``sensitivity`` 2 gamma / lam, ``rho``: what the noise gives, ``claimed``, and the exact
        ``delta`` of the Gaussian mechanism at ``epsilon`` beside ``allowed``: the largest that any Gaussian mechanism
        of the claimed rho has.
    """
    printed = printed_output_variance(gamma=gamma, lam=lam, rho=rho)
    sensitivity = 2 * gamma / lam
    rows = []
    for form, variance in (("printed", printed), ("corrected", sensitivity**2 / (2 * rho))):
        mu = sensitivity / math.sqrt(variance)
        exact, allowed = (
            float(gaussian_delta(epsilon, mu)),
            float(gaussian_delta(epsilon, math.sqrt(2 * rho))),
        )
        rows.append((form, variance, sensitivity, mu**2 / 2, rho, exact, allowed))
    names = ["form", "variance", "sensitivity", "rho", "claimed", "delta", "allowed"]
    return pd.DataFrame(rows, columns=names)


# --- fresh noise for a solver that failed ----------------------------------------------------------------


def retry_example(
    *,
    sigma: float = 5.0,
    lam: float = 0.5,
    tau: float = 1e-3,
    sigma_out: float = 0.05,
    delta: float = 1e-6,
    steps: int = 60,
    cells: int = 8001,
) -> pd.DataFrame:
    """What a refusal costs, and what a retry with fresh noise costs, in an example where all is known.

    One dimension, no data against one record x = 1 with the Huber loss of width 1 around 0. The solver is gradient
    descent from 0 with the step 1 / lam: without the record it is exact after one step. With it the curvature
    near 0 is lam + 1, more than twice lam here, so that wherever the minimiser lies in (-1, 1) the descent
    oscillates for ever: the solver fails exactly where the record bends the objective.

    - ``"fallback"``: a better solver takes over; the guarantee holds.
    - ``"refusal"``: the failure is published. It never happens without the record, often with it.
    - ``"retry"``: fresh noise until the solver succeeds, as published code does. With the record no answer ever comes
      from (-1, 1), without it many do.

    Returns
    -------
    DataFrame
        ``mechanism``, ``fails_without``, ``fails_with`` (probabilities for one noise), ``epsilon`` and ``claimed``
        delta of approximate minima perturbation (errata S1), ``delta``: that of the pair at this epsilon, the larger
        direction, by quadrature; ``delta_at_20``: the same at epsilon = 20; ``violated``.
    """
    ridge, level = check_ordinary("lam", lam), check_probability("delta", delta)
    if ridge >= 1:
        raise ValueError(f"lam must be below 1 for the solver to fail, got {ridge!r}")
    curve = analysis_curve(
        "reduced-renyi", mu=1 / sigma, kappa=1 / ridge, mu_out=OutputNoise(sigma_out, tau).mu(ridge)
    )
    epsilon = curve.epsilon(level)
    edges = np.linspace(-9 * sigma, 9 * sigma, check_count("cells", cells, minimum=1001) + 1)
    # Differences of the distribution function, from the tail that keeps the digits.
    tails = ndtr(-np.abs(edges) / sigma)
    mass = np.abs(np.diff(np.where(edges < 0, tails, 1 - tails)))
    b = 0.5 * (edges[1:] + edges[:-1])
    runs = [_descent(b, ridge, tau, check_count("steps", steps), member=member) for member in (False, True)]
    fails = [float(mass[~run.succeeded].sum()) for run in runs]
    grid = np.linspace(-(9 * sigma + 1) / ridge, (9 * sigma + 1) / ridge, 2 * cells)
    rows = []
    for mechanism in ("fallback", "refusal", "retry"):
        laws = [_released(mechanism, run, mass, grid, sigma_out) for run in runs]
        exact, far = (_largest_delta(laws, e) for e in (epsilon, 20.0))
        rows.append((mechanism, *fails, epsilon, level, exact, far, exact > level * (1 + 1e-3)))
    names = [
        "mechanism",
        "fails_without",
        "fails_with",
        "epsilon",
        "claimed",
        "delta",
        "delta_at_20",
        "violated",
    ]
    return pd.DataFrame(rows, columns=names)


class _Descent:
    """Answers of gradient descent for each noise, which of them met tau, and the exact minimisers."""

    def __init__(self, answer: FloatArray, exact: FloatArray, gradient: FloatArray, tau: float) -> None:
        self.answer, self.exact = answer, exact
        self.succeeded = np.abs(gradient) <= tau


def _descent(b: FloatArray, lam: float, tau: float, steps: int, *, member: bool) -> _Descent:
    loss = HuberLoss(1.0)

    def gradient(theta: FloatArray) -> FloatArray:
        slope = loss.derivative(theta, 0.0) if member else np.zeros(theta.shape)
        return np.asarray(slope + lam * theta + b)

    theta = np.zeros(b.shape)
    for _ in range(steps):
        theta = theta - gradient(theta) / lam
    exact = -b / lam
    if member:  # slope theta / 1 inside (-1, 1), +-1 outside
        exact = np.where(np.abs(b) <= lam + 1, -b / (lam + 1), -(b - np.sign(b)) / lam)
    return _Descent(theta, exact, gradient(theta), tau)


def _released(
    mechanism: str, run: _Descent, mass: FloatArray, grid: FloatArray, sigma_out: float
) -> tuple[FloatArray, float]:
    """Probabilities of the released value on the cells of a grid of theta, and of a published refusal."""
    good = run.succeeded
    theta = np.where(good, run.answer, run.exact)
    weights = mass if mechanism == "fallback" else np.where(good, mass, 0.0)
    refusal = float(mass[~good].sum()) if mechanism == "refusal" else 0.0
    if mechanism == "retry":
        weights = weights / weights.sum()
    density, half = np.zeros(grid.size), 40 * sigma_out
    step = grid[1] - grid[0]
    order = np.argsort(theta)
    theta, weights = theta[order], weights[order]
    for start in range(0, grid.size, 512):
        part = grid[start : start + 512]
        near = slice(*np.searchsorted(theta, [part[0] - half, part[-1] + half]))
        bells = np.exp(-0.5 * ((part[:, np.newaxis] - theta[near]) / sigma_out) ** 2)
        density[start : start + 512] = bells @ weights[near]
    return density * step / (math.sqrt(2 * math.pi) * sigma_out), refusal


def _largest_delta(laws: list[tuple[FloatArray, float]], epsilon: float) -> float:
    (first, refused), (second, refused_too) = laws
    factor = math.exp(epsilon)
    one = np.maximum(first - factor * second, 0).sum() + max(refused - factor * refused_too, 0.0)
    other = np.maximum(second - factor * first, 0).sum() + max(refused_too - factor * refused, 0.0)
    return float(max(one, other))
