"""Constants of chapter 1: what the paper prints, and the sharpest values that are proved.

``"printed"`` follows ligett2017 and is corrected only where the print breaks privacy or makes the
algorithm fail outright; ``"sharp"`` follows the errata (table "What to implement"). All of them are for
replace-one neighbours, rows with l1 norm at most 1, real labels in [-1, 1] (ridge) or labels in {-1, +1}
(logistic), and a ridge term (lam / 2) |theta|^2 beside a *mean* loss.
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import lambertw

from adaptive_dp.accuracy_first.above_threshold import CALIBRATIONS
from adaptive_dp.accuracy_first.levels import GeometricLevels
from adaptive_dp.validation import check_choice, check_count, check_positive, check_probability, check_real

TASKS = ("ridge", "logistic")
MECHANISMS = ("covariance", "output")

#: Largest value of m / (1 + e^m) over margins m, attained at m = 1 + W(1/e).
LOGISTIC_RADIUS_CONSTANT = float(lambertw(math.exp(-1)).real)


def check_task(task: str) -> str:
    """Return ``task`` if it is ``"ridge"`` or ``"logistic"``."""
    return check_choice("task", task, TASKS)


def check_calibration(calibration: str) -> str:
    """Return ``calibration`` if it is ``"printed"`` or ``"sharp"``."""
    return check_choice("calibration", calibration, CALIBRATIONS)


def minimiser_radius(task: str, *, lam: float, calibration: str = "sharp") -> float:
    """Radius of a ball that contains the exact minimiser of every data set in the domain.

    ``"printed"``: 1/sqrt(lam) (Lemma A.4) or sqrt(2 log 2 / lam) (Claim A.11). ``"sharp"``: the first-order
    condition gives lam |theta*|^2 = mean of m (y - m) <= 1/4 for ridge and = mean of m / (1 + e^m) <=
    W(1/e) for logistic regression; both are attained up to a limit of lam, above which the exact radii are
    1/(1 + lam) and the root r of lam r = 1/(1 + e^r).
    """
    kind, strength = check_task(task), check_positive("lam", lam)
    if check_calibration(calibration) == "printed":
        return math.sqrt((1.0 if kind == "ridge" else 2 * math.log(2)) / strength)
    if kind == "ridge":
        return 1 / (2 * math.sqrt(strength)) if strength <= 1 else 1 / (1 + strength)
    attained = LOGISTIC_RADIUS_CONSTANT / (1 + LOGISTIC_RADIUS_CONSTANT) ** 2
    if strength <= attained:
        return math.sqrt(LOGISTIC_RADIUS_CONSTANT / strength)
    # u = lam r solves u (1 + e^(u/lam)) = 1 and lies near 1/2; rounding up keeps every minimiser inside.
    root = brentq(lambda u: u - 1 / (1 + math.exp(u / strength)), 0.0, 0.5, xtol=1e-16)
    return float(root) * (1 + 1e-12) / strength


def risk_query_sensitivity(
    task: str, *, rows: int, lam: float, calibration: str = "sharp", radius: float | None = None
) -> float:
    """Sensitivity of the query L(theta*) - L(theta) for a fixed theta in the ball of ``minimiser_radius``.

    Ridge: (M + 1)^2 / n (Claim A.5); logistic: 2 M / n (Claim A.12 as used, erratum AF-7c); M is the radius
    to which *every tested hypothesis is projected*. Not even the fixed theta suffices without the motion of
    theta*: half of these values is refuted by an explicit pair of data sets (errata AF-7b, AF-7c).

    ``radius`` replaces M where the excess risk is measured against the best hypothesis *in a ball of that
    radius* (Claim A.5 holds for any ball that theta* is constrained to); no search of this module does so.
    """
    n = check_count("rows", rows)
    ball = minimiser_radius(task, lam=lam, calibration=calibration)
    if radius is not None:
        ball = check_positive("radius", radius)
    return ((ball + 1) ** 2 if task == "ridge" else 2 * ball) / n


def minimiser_sensitivity(
    task: str, *, rows: int, columns: int, lam: float, calibration: str = "sharp", norm: str = "l1"
) -> float:
    """Sensitivity of the exact minimiser theta*, in l1 or l2 norm.

    Logistic: 2 sqrt(p) / (n lam) in l1 (Lemma A.10). Ridge, ``"printed"``: (M + 1) sqrt(p / (n lam)) with
    M = 1/sqrt(lam) (Lemma A.8); ``"sharp"``: sqrt(p) (M0 + 2) / (n lam) or the printed value, whichever is
    smaller (erratum AF-3a). The l2 value is the l1 value without sqrt(p).
    """
    kind, n, p = check_task(task), check_count("rows", rows), check_count("columns", columns)
    strength = check_positive("lam", lam)
    check_calibration(calibration)
    check_choice("norm", norm, ("l1", "l2"))
    if kind == "logistic":
        euclidean = 2 / (n * strength)
    else:
        euclidean = (minimiser_radius(kind, lam=strength, calibration="printed") + 1) / math.sqrt(
            n * strength
        )
        if calibration == "sharp":
            euclidean = min(euclidean, (minimiser_radius(kind, lam=strength) + 2) / (n * strength))
    return euclidean * (math.sqrt(p) if norm == "l1" else 1.0)


#: l1 sensitivity of (X'X, X'y) together, tight (Lemma A.6 with ||x||_1 <= 1; erratum AF-5a).
MOMENT_SENSITIVITY_L1 = 4.0

#: l2 sensitivity of (X'X, X'y) together in Frobenius norm: |xx'-zz'|^2 + |yx-y'z|^2 <= 2 - 2 c^2 + 2 + 2 |c|
#: with c = <x, z>, largest at c = 1/2.
MOMENT_SENSITIVITY_L2 = math.sqrt(4.5)


def above_threshold_epsilon(
    *, sensitivity: float, alpha: float, failure: float, levels: int, calibration: str = "sharp"
) -> float:
    """Privacy loss of InteractiveAboveThreshold that accepts nothing worse than ``alpha``, threshold -alpha/2.

    ``"printed"``: 16 Delta log(2T/gamma) / alpha (Theorem 3.2); ``"sharp"``: 8 Delta log(2T/(3 gamma)) /
    alpha (erratum AF-7e, one-sided tail; needs gamma < 2T/3).
    """
    delta, target = check_positive("sensitivity", sensitivity), check_positive("alpha", alpha)
    gamma, count = check_probability("failure", failure), check_count("levels", levels)
    if check_calibration(calibration) == "printed":
        return 16 * delta * math.log(2 * count / gamma) / target
    if gamma >= 2 * count / 3:
        raise ValueError(f"failure must be below 2 T / 3 = {2 * count / 3:.6g}, got {gamma!r}")
    return 8 * delta * math.log(2 * count / (3 * gamma)) / target


def doubling_test_epsilon(
    *, sensitivity: float, alpha: float, failure: float, levels: int, calibration: str = "sharp"
) -> float:
    """Privacy loss of *one* test of DoublingMethod: sensitivity over the scale of its Laplace noise.

    The noise scale is alpha / (2 log(T/gamma)) as printed (Algorithm 4) and alpha / (2 log(T/(2 gamma)))
    sharp (erratum AF-7f: one tail of the Laplace law is half of it).
    """
    delta, target = check_positive("sensitivity", sensitivity), check_positive("alpha", alpha)
    gamma, count = check_probability("failure", failure), check_count("levels", levels, minimum=2)
    odds = count / gamma if check_calibration(calibration) == "printed" else count / (2 * gamma)
    return 2 * delta * math.log(odds) / target


def default_levels(*, rows: int, largest: float, count: int = 1000) -> GeometricLevels:
    """The paper's grid for NoiseReduction: from 1/n up to 4 E (appendix B.1, erratum AF-2).

    ``largest`` is E, the epsilon at which a utility theorem promises the target in expectation. A function
    of public parameters only.
    """
    n, inverted = check_count("rows", rows), check_positive("largest", largest)
    return GeometricLevels(1 / n, max(4 * inverted, 4 / n), check_count("count", count, minimum=2))


def doubling_levels(*, rows: int, largest: float, factor: float = 2.0) -> GeometricLevels:
    """The paper's grid for DoublingMethod: 1/n, 2/n, 4/n, ... until 4 E is reached (erratum AF-2)."""
    n, inverted, step = (
        check_count("rows", rows),
        check_positive("largest", largest),
        check_real("factor", factor),
    )
    if not step > 1:
        raise ValueError(f"factor must exceed 1, got {factor!r}")
    doublings = max(1, math.ceil(math.log(4 * inverted * n) / math.log(step)))
    return GeometricLevels(1 / n, step**doublings / n, doublings + 1)
