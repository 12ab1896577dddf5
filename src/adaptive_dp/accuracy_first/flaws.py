"""What the paper gets wrong, as functions: each shows the fault on an exact example.

Nothing here is a mechanism to be used. The right versions are in the other modules; the errata name the
places (AF-1 to AF-9).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.accuracy_first.above_threshold import halting_probability
from adaptive_dp.accuracy_first.calibration import (
    LOGISTIC_RADIUS_CONSTANT,
    check_task,
    minimiser_radius,
    risk_query_sensitivity,
)
from adaptive_dp.accuracy_first.problems import LogisticProblem, RidgeProblem
from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_positive, check_probability


def shared_coin_loss(dimension: int, *, coarse_epsilon: float, fine_epsilon: float) -> float:
    """Exact loss of publishing level 1 of 2 when *one* coin is flipped for all coordinates (erratum AF-4).

    The density of the noise is k prod_i f(z_i) + (1 - k) prod_i g(z_i), with f the finer Laplace density and g
    that of the sum of both Laplace terms; the loss is taken between z = 0 and z = one sensitivity along an axis.
    With a coin per coordinate it would be ``coarse_epsilon``, whatever the dimension.
    """
    d = check_count("dimension", dimension)
    coarse, fine = (
        check_positive("coarse_epsilon", coarse_epsilon),
        check_positive("fine_epsilon", fine_epsilon),
    )
    if fine <= coarse:
        raise ValueError(f"fine_epsilon must exceed coarse_epsilon, got {fine!r} and {coarse!r}")
    keep = (coarse / fine) ** 2
    a, b = 1 / coarse, 1 / fine  # Laplace scales of what is added and of the finer level

    def log_fine(z: float) -> float:
        return -z / b - math.log(2 * b)

    def log_sum(z: float) -> float:
        # density of Laplace(a) + Laplace(b), a != b
        return math.log((a * math.exp(-z / a) - b * math.exp(-z / b)) / (2 * (a * a - b * b)))

    def log_density(first: float) -> float:
        kept = math.log(keep) + log_fine(first) + (d - 1) * log_fine(0.0)
        moved = math.log1p(-keep) + log_sum(first) + (d - 1) * log_sum(0.0)
        return float(np.logaddexp(kept, moved))

    return log_density(0.0) - log_density(1.0)


def printed_rescaling(theta: FloatArray, radius: float) -> FloatArray:
    """Rescale as Algorithm 5 prints it, ``if |theta| <= M``: the test is reversed (erratum AF-1a)."""
    norm = float(np.linalg.norm(theta))
    return theta * (radius / norm) if 0 < norm <= radius else theta


def perfect_hypothesis_accepted(*, levels: int, failure: float, sign: int) -> float:
    """Exact chance that one test accepts a hypothesis with *zero* excess risk, threshold sign * alpha/2.

    Algorithm 5 prints +alpha/2, which even a perfect hypothesis almost never reaches (erratum AF-1b); the test
    noise is the printed one, 16 Delta log(2T/gamma)/alpha.
    """
    check_choice("sign", str(sign), ("1", "-1"))
    gamma, count = check_probability("failure", failure), check_count("levels", levels)
    # In units of alpha, with Delta = 1, the outcome depends on T and gamma alone.
    epsilon = 16 * math.log(2 * count / gamma)
    return halting_probability([0.0], threshold=sign * 0.5, sensitivity=1.0, epsilon=epsilon)


def printed_levels(*, rows: int, largest: float, count: int) -> FloatArray:
    """The grid of appendix B.1 as printed: decreasing, and never equal to its stated ends (erratum AF-2)."""
    first, last = 4 * largest, 1 / rows
    ratio = (last / first) ** (1 / count)
    return np.asarray(first * ratio ** np.arange(1, count + 1), dtype=np.float64)


def released_code_epsilon(*, sensitivity: float, alpha: float, failure: float, levels: int) -> float:
    """Test budget of the authors' released code, 8 Delta log(1.5^0.75 sqrt(T)/gamma)/alpha (erratum AF-9).

    It belongs to another threshold (about 0.12 alpha at T = 1000) than the printed algorithm.
    """
    return 8 * sensitivity * math.log(1.5**0.75 * math.sqrt(levels) / failure) / alpha


def released_code_sgd(
    *, alpha: float, rows: int, columns: int, lam: float, lipschitz: float, delta: float
) -> float:
    """Inversion of private SGD as the released code computes it: the sum's strong convexity is lam, not n lam.

    So it finds that no epsilon exists at the paper's size, and that n would have to be an order of magnitude
    larger, which is what Section 4 reports; the chain itself has n^2 (:func:`invert_sgd`).
    """
    noiseless = 17 * lipschitz**2 * (1 + 2 * math.log(rows)) / (rows * lam)
    if noiseless >= alpha:
        return math.inf
    return math.sqrt(32 * columns * math.log(rows / delta) * math.log(1 / delta) / (alpha / noiseless - 1))


def risk_query_pair(
    task: str, *, rows: int, lam: float, radius: float
) -> tuple[FloatArray, RidgeProblem | LogisticProblem, RidgeProblem | LogisticProblem]:
    """A hypothesis of norm ``radius`` and two neighbouring data sets between which its risk query moves most.

    n - 1 equal records push theta* to the sharp radius; the last record is exchanged (errata AF-7b, AF-7c).
    """
    kind, n, strength = check_task(task), check_count("rows", rows, minimum=2), check_positive("lam", lam)
    sharp = minimiser_radius(kind, lam=strength)
    if kind == "ridge":
        base = np.tile([0.0, math.sqrt(strength)], (n - 1, 1))
        theta = np.array([-radius, 0.0])
        pair = [_ridge_with(base, -np.ones(n - 1), row, 1.0, strength) for row in ([1.0, 0.0], [0.0, 1.0])]
        return theta, pair[0], pair[1]
    margin = 1 + LOGISTIC_RADIUS_CONSTANT  # where m/(1 + e^m) is largest
    base = np.full((n - 1, 1), margin / sharp)
    pair_logistic = [_logistic_with(base, row, strength) for row in ([1.0], [-1.0])]
    return np.array([-radius]), pair_logistic[0], pair_logistic[1]


def _ridge_with(
    base: FloatArray, labels: FloatArray, row: ArrayLike, label: float, lam: float
) -> RidgeProblem:
    x, y = np.vstack([base, row]), np.append(labels, label)
    return RidgeProblem(x.T @ x, x.T @ y, float(y @ y), y.size, lam, Domain())


def _logistic_with(base: FloatArray, row: ArrayLike, lam: float) -> LogisticProblem:
    signed = np.vstack([base[:1], row])
    counts = np.array([base.shape[0], 1.0])
    return LogisticProblem(signed, counts, base.shape[0] + 1, lam, Domain("l1", 1.0, "sign", 1.0))


def query_motion(task: str, *, rows: int, lam: float, radius: float) -> float:
    """How far the risk query of :func:`risk_query_pair` really moves, times n."""
    theta, one, other = risk_query_pair(task, rows=rows, lam=lam, radius=radius)
    return rows * abs(one.excess_risk(theta) - other.excess_risk(theta))


def query_motion_row(task: str, *, calibration: str, lam: float) -> dict[str, str | float]:
    """One row of the chapter's table: radius M, n times the sensitivity, and n times what a pair reaches.

    n is large enough for the last record not to move theta* visibly: 200,000 for ridge, 40,000 for logistic.
    """
    rows = 200_000 if check_task(task) == "ridge" else 40_000
    radius = minimiser_radius(task, lam=lam, calibration=calibration)
    bound = rows * risk_query_sensitivity(task, rows=rows, lam=lam, calibration=calibration)
    reached = query_motion(task, rows=rows, lam=lam, radius=radius)
    return {"task": task, "constants": calibration, "M": radius, "bound": bound, "reached": reached}
