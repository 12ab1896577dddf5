"""What redberg2023 prints wrong about self-concordant models and private components, and what that costs.

Nothing here may be used to release anything: each ``printed_...`` function is *false as printed* or printed for
another reason than it holds. The right versions are in :mod:`adaptive_dp.ptr.glm`, :mod:`adaptive_dp.ptr.eigenvalue`
and :mod:`adaptive_dp.ptr.pca`.

Errata 18 (Definition B.3.3, Theorems B.3.6, B.3.9 and B.3.11, Example B.3.8) and 19 (Theorem B.3.13).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from adaptive_dp.accounting import gaussian_delta, gaussian_sigma
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.ptr.eigenvalue import GlmConstants
from adaptive_dp.ptr.glm import GlmCurve, movement
from adaptive_dp.ptr.glm_experiment import (
    CONSTANTS,
    Optimum,
    gaussian_pair_delta,
    optimum,
    pair_delta,
)
from adaptive_dp.ptr.pca import projector_sensitivity
from adaptive_dp.validation import check_ordinary, check_positive, check_probability, check_real

# --- erratum 18: the definition -----------------------------------------------------------------------


def concordance_convention(step: float = 1.5) -> pd.DataFrame:
    """Lemma B.3.4 for the logistic loss with Bach's R = 1, and with the 1/2 that the printed "2 R" would allow.

    Returns
    -------
    DataFrame
        ``convention``, ``concordance`` R, ``promised`` e^(-R step), ``smallest``: the least l''(u + step) / l''(u) on
        a fine grid, and ``holds``.
    """
    v = check_positive("step", step)
    u, loss = np.linspace(-40.0, 40.0, 80_001), LogisticLoss()
    smallest = float((loss.second_derivative(u + v, 1.0) / loss.second_derivative(u, 1.0)).min())
    rows = [("Bach", 1.0, math.exp(-v), smallest), ("printed", 0.5, math.exp(-v / 2), smallest)]
    frame = pd.DataFrame(rows, columns=["convention", "concordance", "promised", "smallest"])
    frame["holds"] = frame["smallest"] >= frame["promised"] * (1 - 1e-9)
    return frame


# --- erratum 18: Theorem B.3.6 ------------------------------------------------------------------------


def printed_glm_epsilon(
    *, alpha: float, gamma: float, delta: float, concordance: float, slope: float, curvature: float
) -> float:
    """Epsilon of Theorem B.3.6, **false as printed**: R (L + beta) for R L + beta, and no sqrt 2 in the last root.

    Any nonnegative concordance and positive other parameters.
    """
    a, g = check_ordinary("alpha", alpha), check_ordinary("gamma", gamma)
    tail = math.log(2 / check_probability("delta", delta))
    size, square = check_real("concordance", concordance) * (slope + curvature), g * slope**2 / a
    return size / a * (1 + tail) + square + math.sqrt(square * tail)


def crowd_violations(
    settings: Sequence[tuple[float, float]] = (
        (0.99, 0.25),
        (0.95, 0.25),
        (0.99, 0.04),
        (0.9, 0.25),
        (0.99, 1.0),
    ),
    *,
    people: int = 2_000_000,
    delta: float = 1e-6,
) -> pd.DataFrame:
    """Theorem B.3.6 for a crowd on a line and one person more who disagrees with most (lam = 1).

    Of ``people`` records x = 1 a share has the label +1; the new record is (1, -1).

    Parameters
    ----------
    settings : sequence of (share, gamma over alpha)

    Returns
    -------
    DataFrame
        ``share``, ``noise`` (gamma / alpha), ``alpha``, ``slope``: L as the theorem takes it, "global" 1 or "local",
        the largest on the segment; ``printed`` epsilon, its exact ``delta``, the larger of both directions;
        ``claimed``; ``library`` epsilon at the claimed delta and its ``library_delta``; ``violated``.
    """
    rows = []
    x, y = np.ones((2, 1)), np.array([1.0, -1.0])
    for share, noise in settings:
        counts = np.round(np.array([share, 1 - share]) * people)
        before, after = optimum(x, y, counts, 1.0), optimum(x, y, counts + np.eye(2)[1], 1.0)
        alpha = before.smallest
        gamma = noise * alpha
        local = float(expit(max(before.theta[0], after.theta[0])))
        library = GlmCurve(alpha, 1.0, gamma, CONSTANTS).epsilon(delta)
        for name, slope in (("global", 1.0), ("local", local)):
            printed = printed_glm_epsilon(
                alpha=alpha, gamma=gamma, delta=delta, concordance=1.0, slope=slope, curvature=0.25
            )
            exact = _both(before, after, gamma, printed)
            right = _both(before, after, gamma, library)
            rows.append((share, noise, alpha, name, printed, exact, delta, library, right, exact > delta))
    names = ["share", "noise", "alpha", "slope", "printed", "delta", "claimed", "library", "library_delta",
             "violated"]  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def _both(first: Optimum, second: Optimum, gamma: float, epsilon: float) -> float:
    return max(
        pair_delta(first, second, gamma=gamma, epsilon=epsilon),
        pair_delta(second, first, gamma=gamma, epsilon=epsilon),
    )


def quadratic_instance(
    gammas: Sequence[float] = (1e-2, 1e-4, 1e-8), *, alpha: float = 5.0, delta: float = 1e-6
) -> pd.DataFrame:
    """R (L + beta) against R L + beta where R = 0: squared loss, one record x = 1 with residual 0, lam = alpha.

    As gamma falls the noise grows and the printed epsilon vanishes; but the two covariances, alpha and alpha + 1,
    stay apart however small gamma is. L = 1 bounds the slope of this record.

    Returns
    -------
    DataFrame
        ``gamma``, ``printed`` epsilon, its exact ``delta``, ``claimed``, ``library`` epsilon and ``library_delta``.
    """
    constants = GlmConstants(0.0, 1.0, 1.0, 1.0)
    rows = []
    for gamma in gammas:
        printed = printed_glm_epsilon(
            alpha=alpha, gamma=gamma, delta=delta, concordance=0.0, slope=1.0, curvature=1.0
        )
        library = GlmCurve(alpha, alpha, gamma, constants).epsilon(delta)
        exact, right = (_squared_delta(alpha, epsilon) for epsilon in (printed, library))
        rows.append((gamma, printed, exact, delta, library, right))
    return pd.DataFrame(rows, columns=["gamma", "printed", "delta", "claimed", "library", "library_delta"])


def _squared_delta(alpha: float, epsilon: float) -> float:
    ratio = (alpha + 1) / alpha
    return max(gaussian_pair_delta(epsilon, [0.0], [s]) for s in (ratio, 1 / ratio))


def segment_instance(lam: float = 0.01) -> pd.DataFrame:
    """Example B.3.8 takes alpha at the minimiser where the theorem wants it on the segment.

    D' = {(1, +1), (1, -1)} has its minimiser at 0. Without (1, -1) it moves further than L / alpha with the alpha of
    D' (R = L = 1).

    Returns
    -------
    DataFrame
        ``lam``, ``alpha``, ``moved``, ``point`` L / alpha, and ``library``, the bound of
        :func:`~adaptive_dp.ptr.glm.movement`. One row.
    """
    x, y = np.ones((2, 1)), np.array([1.0, -1.0])
    hand, other = optimum(x, y, np.ones(2), lam), optimum(x, y, np.array([1.0, 0.0]), lam)
    moved = abs(float(other.theta[0] - hand.theta[0]))
    row = {"lam": lam, "alpha": hand.smallest, "moved": moved, "point": 1 / hand.smallest}
    return pd.DataFrame([row | {"library": movement(hand.smallest, lam, CONSTANTS)}])


# --- erratum 18: the smallest eigenvalue --------------------------------------------------------------


def printed_eigenvalue_sigma(*, epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Noise of Example B.3.8, **too small**: sqrt(log(4/delta)) / (epsilon/2) times the sensitivity, without sqrt 2."""
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return math.sqrt(math.log(4 / tail)) / (level / 2) * check_ordinary("sensitivity", sensitivity)


def eigenvalue_noise(
    epsilons: Sequence[float] = (0.5, 1.0, 4.0, 8.0), *, delta: float = 1e-6
) -> pd.DataFrame:
    """Exact delta of the printed noise at epsilon / 2, of which delta / 2 is promised.

    Returns
    -------
    DataFrame
        ``epsilon``, ``printed`` sigma, its ``delta``, ``promised``, ``root_two``: the delta with sqrt 2 put back, and
        ``right``, the smallest valid sigma.
    """
    rows = []
    for epsilon in epsilons:
        sigma = printed_eigenvalue_sigma(epsilon=epsilon, delta=delta)
        rows.append(
            {
                "epsilon": epsilon,
                "printed": sigma,
                "delta": gaussian_delta(epsilon / 2, 1 / sigma),
                "promised": delta / 2,
                "root_two": gaussian_delta(epsilon / 2, 1 / (sigma * math.sqrt(2))),
                "right": gaussian_sigma(epsilon / 2, delta / 2, 1.0),
            }
        )
    return pd.DataFrame(rows)


def eigenvalue_extremes(
    crowds: Sequence[float] = (1, 10, 100, 1_000, 1_000_000), *, lam: float = 1e-4
) -> pd.DataFrame:
    """Records that move the smallest eigenvalue of logistic regression nearly as far as the theorem allows: K = 1.

    On the line, a crowd of n equal records (1, +1), and one (1, -1) more. Alone, the crowd is almost separated and
    its curvature n exp(-theta) = lam theta next to nothing; the newcomer pulls with slope 1, and n exp(-theta) has to
    become lam theta + 1 to hold her.

    Returns
    -------
    DataFrame
        ``people`` n, ``before``, ``after``, ``change``; the bounds ``library`` K = 1, ``errata`` R L + beta = 1.25,
        ``printed`` 2 R L + beta = 2.25.
    """
    x, y = np.ones((2, 1)), np.array([1.0, -1.0])
    rows = []
    for crowd in crowds:
        before = optimum(x, y, np.array([crowd, 0.0]), lam).smallest
        after = optimum(x, y, np.array([crowd, 1.0]), lam).smallest
        rows.append((crowd, before, after, after - before, CONSTANTS.eigenvalue_sensitivity, 1.25, 2.25))
    return pd.DataFrame(rows, columns=["people", "before", "after", "change", "library", "errata", "printed"])


# --- erratum 19: Theorem B.3.13 -----------------------------------------------------------------------


def printed_pca_epsilon(*, gap: float, sigma: float, delta: float) -> float:
    """Epsilon of Theorem B.3.13, 2 sqrt(log(1.25/delta)) / (sigma (d_k - 2)): for a gap above 2.

    It lacks the sqrt 2 of the classical Gaussian mechanism at its own sensitivity 2 / (d_k - 2). As that sensitivity
    is too large by more than sqrt 2, the two slips cancel for epsilon below 1 and the printed epsilon holds.
    """
    d, scale = check_ordinary("gap", gap), check_ordinary("sigma", sigma)
    if d <= 2:
        raise ValueError(f"gap must be above 2, got {d!r}")
    return 2 * math.sqrt(math.log(1.25 / check_probability("delta", delta))) / (scale * (d - 2))


def pca_sensitivities(gaps: Sequence[float] = (1.1, 2.5, 3.0, 5.0, 10.0, 100.0, 1000.0)) -> pd.DataFrame:
    """Sensitivities of the projector at a gap.

    Returns
    -------
    DataFrame
        ``gap``; ``exact``; ``errata_add`` sqrt 2 / d, ``errata_remove`` sqrt 2 / (d - 1), ``printed`` 2 / (d - 2)
        (infinite up to 2); ``waste``, printed over exact.
    """
    frame = pd.DataFrame({"gap": np.asarray(gaps, dtype=float)})
    frame["exact"] = [projector_sensitivity(gap) for gap in gaps]
    frame["errata_add"] = math.sqrt(2) / frame["gap"]
    frame["errata_remove"] = math.sqrt(2) / (frame["gap"] - 1)
    frame["printed"] = [2 / (gap - 2) if gap > 2 else math.inf for gap in gaps]
    frame["waste"] = frame["printed"] / frame["exact"]
    return frame


def pca_noise(
    gap: float = 100.0, *, epsilons: Sequence[float] = (0.25, 0.5, 1.0, 2.0, 5.0), delta: float = 1e-6
) -> pd.DataFrame:
    """Noise of Theorem B.3.13 at a gap, and what it is worth.

    Returns
    -------
    DataFrame
        ``epsilon``, ``printed`` sigma; ``delta``: exact if the printed sensitivity 2 / (d - 2) were attained (the
        sqrt 2 that is missing); ``true_delta``: exact at the true sensitivity; ``claimed``; ``right``: the smallest
        standard deviation of the same kind of noise, and ``goe``, off the diagonal, of GOE noise.
    """
    rows = []
    for epsilon in epsilons:
        printed = printed_pca_epsilon(gap=gap, sigma=1.0, delta=delta) / epsilon
        right = gaussian_sigma(epsilon, delta, projector_sensitivity(gap))
        rows.append(
            {
                "epsilon": epsilon,
                "printed": printed,
                "delta": gaussian_delta(epsilon, 2 / (gap - 2) / printed),
                "true_delta": gaussian_delta(epsilon, projector_sensitivity(gap) / printed),
                "claimed": delta,
                "right": right,
                "goe": right / math.sqrt(2),
            }
        )
    return pd.DataFrame(rows)


def pca_break_even(*, delta: float = 1e-6, gap: float = 1e6) -> float:
    """The epsilon up to which the printed noise of Theorem B.3.13 is private after all, at a large gap.

    Beyond, the classical formula fails even with both slips.
    """

    def excess(epsilon: float) -> float:
        sigma = printed_pca_epsilon(gap=gap, sigma=1.0, delta=delta) / epsilon
        return math.log(gaussian_delta(epsilon, projector_sensitivity(gap) / sigma)) - math.log(delta)

    return float(brentq(excess, 1.0, 1e4))
