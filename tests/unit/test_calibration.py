"""Constants of chapter 1 against data sets found by search (claims AF-7, AF-14, AF-15; errata AF-2, AF-3a, AF-7)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from adaptive_dp.accuracy_first.calibration import (
    LOGISTIC_RADIUS_CONSTANT,
    MOMENT_SENSITIVITY_L1,
    MOMENT_SENSITIVITY_L2,
    above_threshold_epsilon,
    default_levels,
    doubling_levels,
    doubling_test_epsilon,
    minimiser_radius,
    minimiser_sensitivity,
    risk_query_sensitivity,
)

Array = NDArray[np.float64]
CALIBRATIONS = ("printed", "sharp")
# A bound that is attained may be passed by rounding of the search, never by more than this.
ROUNDING = 1e-9


# ------------------------------------------------- naive minimisers and risks of a batch of data sets


def fit(task: str, X: Array, y: Array, lam: float) -> Array:
    """Minimisers of B data sets, X (B, n, p), y (B, n); shape (B, p). Own code, no library."""
    n, p = X.shape[1], X.shape[2]
    if task == "ridge":
        gram = np.einsum("bni,bnj->bij", X, X) / n + lam * np.eye(p)
        return np.linalg.solve(gram, (np.einsum("bni,bn->bi", X, y) / n)[..., None])[..., 0]
    signed = X * y[..., None]
    theta = np.zeros((X.shape[0], p))
    for _ in range(60):
        pull = 1 / (1 + np.exp(np.einsum("bni,bi->bn", signed, theta)))
        gradient = lam * theta - np.einsum("bn,bni->bi", pull, signed) / n
        curvature = np.einsum("bn,bni,bnj->bij", pull * (1 - pull), X, X) / n + lam * np.eye(p)
        theta = theta - np.linalg.solve(curvature, gradient[..., None])[..., 0]
        if np.abs(gradient).max() < 1e-13:
            break
    assert np.abs(gradient).max() < 1e-10
    return theta


def risk(task: str, X: Array, y: Array, lam: float, theta: Array) -> Array:
    prediction = np.einsum("bni,bi->bn", X, theta)
    loss = (y - prediction) ** 2 / 2 if task == "ridge" else np.logaddexp(0, -y * prediction)
    return loss.mean(axis=1) + lam / 2 * (theta**2).sum(axis=1)


def records(task: str, batch: int, n: int, p: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Random data sets with many rows on the boundary, axis-parallel rows and repeated rows."""
    X = rng.standard_normal((batch, n, p)) * (rng.random((batch, n, p)) < 0.6)
    X /= np.maximum(np.abs(X).sum(axis=2, keepdims=True), 1e-12)
    X *= np.where(rng.random((batch, n, 1)) < 0.5, 1.0, rng.random((batch, n, 1)))
    structured = rng.random(batch) < 0.5  # all rows but the first on one axis, at one length
    X[structured] = 0.0
    X[structured, :, 0] = rng.random((structured.sum(), 1))
    y = np.where(rng.random((batch, n)) < 0.7, np.sign(rng.standard_normal((batch, n))), 0.0)
    if task == "ridge":
        y += (y == 0) * rng.uniform(-1, 1, (batch, n))
    else:
        y += (y == 0) * 1.0
    y[structured] = y[structured, :1]
    return X, y


def neighbours(
    task: str, batch: int, n: int, p: int, rng: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """Pairs of data sets that differ in the first record, often in the worst possible way."""
    X, y = records(task, batch, n, p, rng)
    other_X, other_y = X.copy(), y.copy()
    for A, b in ((X, y), (other_X, other_y)):
        A[:, 0], b[:, 0] = (part[:, 0] for part in records(task, batch, 1, p, rng))
        axis = rng.random(batch) < 0.5
        A[axis, 0] = np.eye(p)[rng.integers(0, p, axis.sum())] * rng.choice([-1.0, 1.0], (axis.sum(), 1))
    return X, y, other_X, other_y


# ------------------------------------------------------------------------------------------- radii


def largest_norm_of_one_record(task: str, lam: float) -> float:
    """Largest |theta*| over data sets of copies of (u, 1), u in [0, 1]."""

    def norm(u: float) -> float:
        if task == "ridge":
            return u / (u * u + lam)
        return float(brentq(lambda t: lam * t - u * float(expit(-u * t)), 0, 1 / lam, xtol=1e-15, rtol=1e-14))

    best = minimize_scalar(lambda u: -norm(u), bounds=(1e-6, 1), method="bounded", options={"xatol": 1e-10})
    return max(-float(best.fun), norm(1.0))


@pytest.mark.parametrize("lam", [1e-4, 0.005, 0.05, 0.17, 0.18, 0.5, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_sharp_radius_is_attained_at_every_lam(task: str, lam: float) -> None:
    """AF-14: the sharp radius is the norm of a minimiser, for small and for large lam."""
    radius = minimiser_radius(task, lam=lam, calibration="sharp")
    found = largest_norm_of_one_record(task, lam)
    assert found <= radius * (1 + ROUNDING)
    assert found == pytest.approx(radius, rel=1e-7)


@pytest.mark.parametrize(
    ("task", "lam", "value"),
    [("ridge", 0.005, 7.07107), ("logistic", 0.005, 7.46277), ("ridge", 3.0, 0.25), ("ridge", 1.0, 0.5)],
)
def test_sharp_radius_values(task: str, lam: float, value: float) -> None:
    """AF-14: the values that the errata print."""
    assert minimiser_radius(task, lam=lam) == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("lam", [0.1705, 0.2, 1.0, 7.0, 1e3])
def test_logistic_radius_for_large_lam_solves_its_equation(lam: float) -> None:
    """AF-14: above lam = 0.1704 the radius is the root r of lam r = 1/(1+e^r), on the safe side."""
    r = minimiser_radius("logistic", lam=lam)
    error = lam * r * (1 + math.exp(r)) - 1
    assert 0 <= error < 1e-10


def test_logistic_radius_has_no_jump_where_its_formula_changes() -> None:
    """AF-14: the two formulas meet at lam = W/(1+W)^2 = 0.1704."""
    edge = LOGISTIC_RADIUS_CONSTANT / (1 + LOGISTIC_RADIUS_CONSTANT) ** 2
    assert edge == pytest.approx(0.1704, abs=5e-5)
    below, above = (minimiser_radius("logistic", lam=edge * (1 + s)) for s in (-1e-9, 1e-9))
    assert below == pytest.approx(above, rel=1e-8)


@pytest.mark.parametrize(
    ("task", "lam", "value"), [("ridge", 0.005, 14.142136), ("logistic", 0.005, 16.651092)]
)
def test_printed_radius_values(task: str, lam: float, value: float) -> None:
    """AF-14: 1/sqrt(lam) (Lemma A.4) and sqrt(2 log 2/lam) (Claim A.11)."""
    assert minimiser_radius(task, lam=lam, calibration="printed") == pytest.approx(value, rel=1e-7)


@pytest.mark.parametrize("lam", [0.005, 0.05, 0.3, 3.0])
@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_both_radii_contain_every_minimiser_of_a_search(task: str, lam: float) -> None:
    """AF-14: 8,000 random and structured data sets; the search comes within 3% of the sharp radius."""
    rng = np.random.default_rng(141)
    sharp = minimiser_radius(task, lam=lam)
    assert sharp <= minimiser_radius(task, lam=lam, calibration="printed")
    worst = 0.0
    for n, p in ((1, 1), (2, 2), (5, 3)):
        X, y = records(task, 2666, n, p, rng)
        worst = max(worst, float(np.linalg.norm(fit(task, X, y, lam), axis=1).max()))
    assert 0.97 * sharp <= worst <= sharp * (1 + ROUNDING)


# ------------------------------------------------------------------- sensitivity of the risk query


def query_difference(task: str, lam: float, theta: Array, pair: tuple[Array, Array, Array, Array]) -> Array:
    """n |q(D) - q(D')| for q(D) = L(theta*(D); D) - L(theta; D), over a batch."""
    X, y, other_X, other_y = pair
    values = [
        risk(task, A, b, lam, fit(task, A, b, lam)) - risk(task, A, b, lam, theta)
        for A, b in ((X, y), (other_X, other_y))
    ]
    return np.abs(values[0] - values[1]) * X.shape[1]


def assert_not_exceeded(claimed: float, reached: float) -> None:
    """The check of this file: no data set found goes beyond a claimed sensitivity."""
    assert reached <= claimed * (1 + ROUNDING), f"reached {reached:.6g} of a claimed {claimed:.6g}"


def explicit_query_pair(task: str, lam: float, calibration: str) -> tuple[float, int]:
    """n |q(D) - q(D')| of the errata's pairs, and n. Copies of a record enter through their weight."""
    radius = minimiser_radius(task, lam=lam, calibration=calibration)
    centre = minimiser_radius(task, lam=lam)
    n = 400_000
    if task == "logistic":  # n - 1 copies pull theta* to +M0; the last record is (e1, +1) or (e1, -1)
        u = (1 + LOGISTIC_RADIUS_CONSTANT) / centre

        def logistic_value(sign: float) -> float:
            def gradient(t: float) -> float:
                pull = (n - 1) * u / (1 + math.exp(u * t)) + sign / (1 + math.exp(sign * t))
                return lam * t - pull / n

            star = brentq(gradient, 0, 2 * centre, xtol=1e-14, rtol=1e-14)

            def total(t: float) -> float:
                return (
                    (n - 1) * float(np.logaddexp(0, -u * t))
                    + float(np.logaddexp(0, -sign * t))
                    + n * lam * t * t / 2
                )

            return total(float(star)) - total(-radius)

        return abs(logistic_value(1.0) - logistic_value(-1.0)), n
    # base data push theta* to M0 e1; theta lies on another axis or on the other side
    u = math.sqrt(lam)

    def ridge_value(theta: Array, base: float, x: Array, y: float) -> float:
        gram = (n - 1) * lam * np.diag([1.0, 0.0]) + np.outer(x, x)
        moment = (n - 1) * u * base * np.array([1.0, 0.0]) + y * x
        star = np.linalg.solve(gram / n + lam * np.eye(2), moment / n)

        def total(t: Array) -> float:
            return float(t @ gram @ t / 2 - moment @ t + n * lam * (t @ t) / 2)

        # the label squares cancel: both records have label 1 in absolute value
        return total(star) - total(theta)

    e1, e2 = np.eye(2)
    theta = radius * e2
    first, second = (
        ridge_value(theta, 1.0, e1, -1.0),
        ridge_value(theta, 1.0, e2, -1.0),
    )
    return abs(first - second), n


REACHED = {
    ("ridge", "printed"): 146.20,
    ("ridge", "sharp"): 64.13,
    ("logistic", "printed"): 24.113,
    ("logistic", "sharp"): 14.925,
}
CLAIMED = {
    ("ridge", "printed"): 229.28,
    ("ridge", "sharp"): 65.14,
    ("logistic", "printed"): 33.302,
    ("logistic", "sharp"): 14.926,
}


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_query_sensitivity_value_and_the_pair_that_comes_nearest(task: str, calibration: str) -> None:
    """AF-15, errata AF-7b and AF-7c at lam = 0.005: claimed and reached sensitivity times n."""
    reached, n = explicit_query_pair(task, 0.005, calibration)
    claimed = n * risk_query_sensitivity(task, rows=n, lam=0.005, calibration=calibration)
    assert claimed == pytest.approx(CLAIMED[task, calibration], rel=1e-4)
    assert reached == pytest.approx(REACHED[task, calibration], rel=1e-3)
    assert_not_exceeded(claimed, reached)
    if calibration == "sharp":
        assert reached >= 0.98 * claimed


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_planted_fault_half_the_query_sensitivity_is_refuted(task: str, calibration: str) -> None:
    """AF-15: the fixed-theta value (half) ignores that theta* moves; an explicit pair exceeds it."""
    reached, n = explicit_query_pair(task, 0.005, calibration)
    half = n * risk_query_sensitivity(task, rows=n, lam=0.005, calibration=calibration) / 2
    with pytest.raises(AssertionError, match="reached"):
        assert_not_exceeded(half, reached)


@pytest.mark.parametrize("lam", [0.02, 0.3, 3.0])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_query_sensitivity_is_not_exceeded_by_a_search(task: str, calibration: str, lam: float) -> None:
    """AF-15: random and structured neighbours and hypotheses in the ball, then a climb from the best."""
    rng = np.random.default_rng(151)
    radius = minimiser_radius(task, lam=lam, calibration=calibration)
    for n in (1, 3, 20):
        claimed = n * risk_query_sensitivity(task, rows=n, lam=lam, calibration=calibration)
        pair = neighbours(task, 3000, n, 2, rng)
        angle = rng.uniform(0, 2 * np.pi, 3000)
        angle[::2] = rng.integers(0, 4, 1500) * np.pi / 2
        theta = radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        reached = float(query_difference(task, lam, theta, pair).max())
        assert_not_exceeded(claimed, reached)
        assert reached > 0.2 * claimed  # the search looks where it matters


def test_unprojected_hypotheses_break_the_query_sensitivity() -> None:
    """Erratum AF-1a: a hypothesis of norm 10 M left alone exceeds 2 M / n (83.8 against 16.65 at lam = 0.02)."""
    lam, n = 0.02, 50
    X = np.full((1, n, 1), 0.2)
    X[0, 0] = 1.0
    y = np.ones((1, n))
    other = y.copy()
    other[0, 0] = -1
    radius = minimiser_radius("logistic", lam=lam, calibration="printed")
    claimed = n * risk_query_sensitivity("logistic", rows=n, lam=lam, calibration="printed")
    for factor, breaks in ((1.0, False), (10.0, True)):
        theta = np.array([[-factor * radius]])
        reached = float(query_difference("logistic", lam, theta, (X, y, X, other))[0])
        assert (reached > claimed) == breaks


@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_query_sensitivity_falls_as_one_over_n(task: str) -> None:
    """Field report 17: integer rows give the same as the formula in floats, nothing rounds down."""
    for rows in (1, 3, 7, 10**6):
        one = risk_query_sensitivity(task, rows=1, lam=0.3)
        assert risk_query_sensitivity(task, rows=rows, lam=0.3) == pytest.approx(one / rows, rel=1e-15)
        assert risk_query_sensitivity(task, rows=np.int64(rows), lam=1) > 0


# ----------------------------------------------------------------------- sensitivity of the moments


def moment_difference(x: Array, y: float, z: Array, w: float) -> Array:
    return np.concatenate([(np.outer(x, x) - np.outer(z, z)).ravel(), y * x - w * z])


def test_l1_moment_sensitivity_is_attained() -> None:
    """Lemma A.6, erratum AF-5a: replacing (e1, 1) by (e2, 1) moves (X'X, X'y) by exactly 4 in l1."""
    e1, e2 = np.eye(2)
    assert np.abs(moment_difference(e1, 1, e2, 1)).sum() == MOMENT_SENSITIVITY_L1 == 4.0


def test_l2_moment_sensitivity_is_attained() -> None:
    """Unit rows with inner product 1/2 and opposite labels: Frobenius norm sqrt(4.5)."""
    x, z = np.array([1.0, 0.0]), np.array([0.5, math.sqrt(0.75)])
    reached = float(np.linalg.norm(moment_difference(x, 1, z, -1)))
    assert reached == pytest.approx(MOMENT_SENSITIVITY_L2, rel=1e-14)
    assert pytest.approx(math.sqrt(4.5), rel=1e-15) == MOMENT_SENSITIVITY_L2


@pytest.mark.parametrize("p", [1, 2, 3, 6])
@pytest.mark.parametrize(("order", "claimed"), [(1, MOMENT_SENSITIVITY_L1), (2, MOMENT_SENSITIVITY_L2)])
def test_moment_sensitivity_is_not_exceeded_by_a_search(order: int, claimed: float, p: int) -> None:
    """AF-07, erratum AF-5a: 20,000 random pairs with rows in the l1 (l2) ball, half of them on its surface."""
    rng = np.random.default_rng(52)
    rows = rng.standard_normal((20_000, 2, p)) * (rng.random((20_000, 2, p)) < 0.7)
    rows /= np.maximum(np.linalg.norm(rows, ord=order, axis=2, keepdims=True), 1e-12)
    rows[::2] *= rng.random((10_000, 2, 1))
    labels = np.where(
        rng.random((20_000, 2)) < 0.5, rng.choice([-1.0, 1.0], (20_000, 2)), rng.uniform(-1, 1, (20_000, 2))
    )
    outer = np.einsum("bki,bkj->bkij", rows, rows)
    gram = (outer[:, 0] - outer[:, 1]).reshape(len(rows), -1)
    moment = rows[:, 0] * labels[:, :1] - rows[:, 1] * labels[:, 1:]
    reached = np.linalg.norm(np.concatenate([gram, moment], axis=1), ord=order, axis=1).max()
    assert_not_exceeded(claimed, float(reached))
    with pytest.raises(AssertionError, match="reached"):  # planted fault: half the sensitivity
        assert_not_exceeded(claimed / 2, float(reached) if p > 1 else claimed)


def test_planted_fault_l1_constant_under_l2_rows_is_refuted() -> None:
    """Erratum AF-5a: read with l2 rows, the l1 sensitivity of X'X alone is about p, not 2."""
    p = 77
    x = np.ones(p) / math.sqrt(p)
    z = x * np.where(np.arange(p) % 2, 1, -1)
    with pytest.raises(AssertionError, match="reached"):
        assert_not_exceeded(MOMENT_SENSITIVITY_L1, float(np.abs(moment_difference(x, 1, z, 1)).sum()))


# -------------------------------------------------------------------- sensitivity of the minimiser


@pytest.mark.parametrize(
    ("n", "p", "lam"), [(1, 1, 0.05), (3, 2, 0.02), (5, 3, 0.3), (40, 2, 0.05), (4, 6, 3.0)]
)
@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_minimiser_sensitivity_is_not_exceeded_by_a_search(
    task: str, calibration: str, n: int, p: int, lam: float
) -> None:
    """Lemmas A.8 and A.10, erratum AF-3a: l1 and l2 motion of theta* over 4,000 pairs of neighbours."""
    X, y, other_X, other_y = neighbours(task, 4000, n, p, np.random.default_rng(31))
    step = fit(task, X, y, lam) - fit(task, other_X, other_y, lam)
    for norm, order in (("l1", 1), ("l2", 2)):
        claimed = minimiser_sensitivity(task, rows=n, columns=p, lam=lam, calibration=calibration, norm=norm)
        assert_not_exceeded(claimed, float(np.linalg.norm(step, ord=order, axis=1).max()))


def nearest_minimiser_pair(task: str) -> tuple[float, float]:
    """(reached, claimed sharp) n lam |theta* - theta*'|, one feature, large n: a pair near the bound."""
    lam, n = 1e-3, 10**6
    if task == "logistic":
        X, y = np.zeros((1, 400, 2)), np.ones((1, 400))
        # margins of the changed record are very negative: base data push theta* far along e1
        X[0, 1:, 0] = 1.0
        other = X.copy()
        X[0, 0], other[0, 0] = np.array([-0.6, 0.8]), np.array([-0.6, -0.8])
        step = fit(task, X, y, lam) - fit(task, other, y, lam)
        return 400 * lam * float(np.linalg.norm(step)), 2.0
    M0 = 1 / (2 * math.sqrt(lam))
    # copies of (sqrt(lam) e1, 1) put theta* at M0 e1; e1 against e2 with labels that pull the same way
    step_ = []
    for x, label in ((np.array([1.0, 0.0]), -1.0), (np.array([0.0, 1.0]), 1.0)):
        gram = (n - 1) * lam * np.diag([1.0, 0.0]) + np.outer(x, x)
        moment = (n - 1) * math.sqrt(lam) * np.array([1.0, 0.0]) + label * x
        step_.append(np.linalg.solve(gram / n + lam * np.eye(2), moment / n))
    return n * lam * float(np.linalg.norm(step_[0] - step_[1])), M0 + 2


@pytest.mark.parametrize("task", ["ridge", "logistic"])
def test_minimiser_sensitivity_is_right_up_to_a_small_factor(task: str) -> None:
    """Erratum AF-3a: a pair comes within a factor 2.2 of the sharp l2 bound, so half of it is refuted or near."""
    reached, claimed = nearest_minimiser_pair(task)
    assert claimed / 2.2 < reached <= claimed


def test_ridge_minimiser_sensitivity_values() -> None:
    """Erratum AF-3a at n = 1e5, lam = 0.005, p = 77: 5.942 printed and 0.159 sharp, in l1."""
    values = [
        minimiser_sensitivity("ridge", rows=100_000, columns=77, lam=0.005, calibration=calibration)
        for calibration in CALIBRATIONS
    ]
    assert values == pytest.approx([5.942, 0.1592], rel=5e-4)


def test_sharp_minimiser_sensitivity_is_never_above_the_printed_one() -> None:
    """Erratum AF-3a: the minimum of the two proved bounds; for n lam small the printed one wins."""
    for n in (1, 2, 10, 1000):
        for lam in (1e-3, 0.05, 1.0, 30.0):
            sharp, printed = (
                minimiser_sensitivity("ridge", rows=n, columns=4, lam=lam, calibration=c)
                for c in ("sharp", "printed")
            )
            assert sharp <= printed
    n, lam = 1, 1e-3
    euclidean = minimiser_sensitivity("ridge", rows=n, columns=1, lam=lam, norm="l2")
    assert euclidean == pytest.approx((1 / math.sqrt(lam) + 1) / math.sqrt(n * lam), rel=1e-12)


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_logistic_minimiser_sensitivity_is_lemma_a10(calibration: str) -> None:
    """Lemma A.10: 2 sqrt(p)/(n lam) in l1, 2/(n lam) in l2."""
    for norm, value in (("l1", 2 * math.sqrt(38) / 500), ("l2", 2 / 500)):
        found = minimiser_sensitivity(
            "logistic", rows=100_000, columns=38, lam=0.005, calibration=calibration, norm=norm
        )
        assert found == pytest.approx(value, rel=1e-14)


# ------------------------------------------------------------------------------ budgets of the tests


@pytest.mark.parametrize(
    ("task", "calibration", "value"),
    [
        ("ridge", "printed", 7.266),
        ("ridge", "sharp", 0.918),
        ("logistic", "printed", 1.055),
        ("logistic", "sharp", 0.210),
    ],
)
def test_above_threshold_epsilon_values(task: str, calibration: str, value: float) -> None:
    """Theorems 3.2 and 3.4, erratum AF-7e: n = 1e5, lam = 0.005, T = 1000, gamma = 0.1, alpha = 0.05."""
    sensitivity = risk_query_sensitivity(task, rows=100_000, lam=0.005, calibration=calibration)
    found = above_threshold_epsilon(
        sensitivity=sensitivity, alpha=0.05, failure=0.1, levels=1000, calibration=calibration
    )
    assert found == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize(
    ("alpha", "calibration", "value"),
    [
        (0.05, "sharp", 0.43907862213880916),
        (0.1, "sharp", 0.21953931106940458),
        (0.05, "printed", 0.50265),
        (0.1, "printed", 0.251325),
    ],
)
def test_doubling_test_epsilon_agrees_with_the_reference_values(
    alpha: float, calibration: str, value: float
) -> None:
    """af.doubling_test.*: the authors' code has the sharp form (erratum AF-7f); Algorithm 4 the printed one."""
    found = doubling_test_epsilon(
        sensitivity=0.0022928427124746195, alpha=alpha, failure=0.1, levels=24, calibration=calibration
    )
    assert found == pytest.approx(value, rel=1e-6 if calibration == "sharp" else 5e-6)


def doubling_failure(epsilon: float, sensitivity: float, alpha: float, levels: int) -> float:
    """Exact chance that one of T hypotheses at excess exactly alpha passes a Laplace test at -alpha/2."""
    tail = 0.5 * math.exp(-(alpha / 2) * epsilon / sensitivity)
    return 1 - (1 - tail) ** levels


@pytest.mark.parametrize("levels", [2, 24, 1000])
@pytest.mark.parametrize("failure", [0.001, 0.1, 0.9])
def test_doubling_test_keeps_its_failure_probability(levels: int, failure: float) -> None:
    """Erratum AF-7f: at most gamma in the worst case; the sharp form comes near, printed spends half of it."""
    exact = {}
    for calibration in CALIBRATIONS:
        epsilon = doubling_test_epsilon(
            sensitivity=0.002, alpha=0.05, failure=failure, levels=levels, calibration=calibration
        )
        exact[calibration] = doubling_failure(epsilon, 0.002, 0.05, levels)
        assert exact[calibration] <= failure
    assert exact["sharp"] > failure * 0.6
    assert exact["printed"] <= failure / 2
    # planted fault: one more factor 2 in the odds of the sharp form is too much
    faulty = 2 * 0.002 * math.log(levels / (4 * failure)) / 0.05
    if failure < 0.5 and levels > 2:
        assert doubling_failure(faulty, 0.002, 0.05, levels) > failure


# --------------------------------------------------------------------------------------------- grids


@pytest.mark.parametrize(("rows", "largest"), [(100_000, 17.7), (100_000, 0.073), (50, 3.0), (10, 1e4)])
def test_default_grid_runs_from_one_over_n_to_four_e(rows: int, largest: float) -> None:
    """Erratum AF-2: increasing, geometric, both ends included, 1000 levels."""
    levels = default_levels(rows=rows, largest=largest)
    assert len(levels) == 1000
    assert levels[0] == 1 / rows
    assert levels[-1] == pytest.approx(4 * largest, rel=1e-15)
    logs = np.log(levels.at(np.arange(1000)))
    assert (np.diff(logs) > 0).all()
    assert np.diff(logs) == pytest.approx(np.diff(logs)[0], rel=1e-9)


@pytest.mark.parametrize("largest", [1e-9, 1e-5, 0.25, 0.5, 17.7, 1e5])
@pytest.mark.parametrize("factor", [1.5, 2.0, 3.0, 10.0])
def test_doubling_grid_reaches_four_e_and_not_much_more(largest: float, factor: float) -> None:
    """Erratum AF-2: 1/n, factor/n, ... up to the first level of at least 4 E."""
    rows = 1000
    levels = list(doubling_levels(rows=rows, largest=largest, factor=factor))
    assert levels[0] == pytest.approx(1 / rows, rel=1e-15)
    assert np.array(levels[1:]) / levels[:-1] == pytest.approx(factor, rel=1e-12)
    assert levels[-1] >= 4 * largest * (1 - 1e-12)
    assert len(levels) == 2 or levels[-2] < 4 * largest * (1 + 1e-12)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: minimiser_radius("lasso", lam=1.0), "task"),
        (lambda: minimiser_radius("ridge", lam=0.0), "lam"),
        (lambda: minimiser_radius("ridge", lam=-1.0), "lam"),
        (lambda: minimiser_radius("ridge", lam=math.nan), "lam"),
        (lambda: minimiser_radius("ridge", lam=1.0, calibration="tight"), "calibration"),
        (lambda: risk_query_sensitivity("ridge", rows=0, lam=1.0), "rows"),
        (lambda: risk_query_sensitivity("ridge", rows=1, lam=1.0, calibration="tight"), "calibration"),
        (lambda: minimiser_sensitivity("ridge", rows=1, columns=0, lam=1.0), "columns"),
        (lambda: minimiser_sensitivity("ridge", rows=1, columns=1, lam=1.0, norm="linf"), "norm"),
        (lambda: minimiser_sensitivity("ridge", rows=1, columns=1, lam=1.0, calibration="x"), "calibration"),
        (lambda: above_threshold_epsilon(sensitivity=0, alpha=1, failure=0.1, levels=2), "sensitivity"),
        (lambda: above_threshold_epsilon(sensitivity=1, alpha=0, failure=0.1, levels=2), "alpha"),
        (lambda: above_threshold_epsilon(sensitivity=1, alpha=1, failure=1.0, levels=2), "failure"),
        (lambda: above_threshold_epsilon(sensitivity=1, alpha=1, failure=0.9, levels=1), "failure"),
        (lambda: above_threshold_epsilon(sensitivity=1, alpha=1, failure=0.1, levels=0), "levels"),
        (lambda: doubling_test_epsilon(sensitivity=1, alpha=1, failure=0.1, levels=1), "levels"),
        (lambda: default_levels(rows=10, largest=0.0), "largest"),
        (lambda: default_levels(rows=10, largest=1.0, count=1), "count"),
        (lambda: doubling_levels(rows=10, largest=1.0, factor=1.0), "factor"),
        (lambda: doubling_levels(rows=10, largest=1.0, factor=math.nan), "factor"),
    ],
)
def test_constants_refuse_impossible_parameters_by_name(call: Callable[[], object], name: str) -> None:
    """Every parameter out of range is named in the error."""
    with pytest.raises(ValueError, match=name):
        call()


def test_integer_parameters_count_like_floats() -> None:
    """Field report 17: lam = 1 and lam = 1.0 are the same everywhere."""
    for task in ("ridge", "logistic"):
        assert minimiser_radius(task, lam=1) == minimiser_radius(task, lam=1.0)
        for norm in ("l1", "l2"):
            one, other = (
                minimiser_sensitivity(task, rows=3, columns=2, lam=lam, norm=norm) for lam in (2, 2.0)
            )
            assert one == other > 0


@pytest.mark.parametrize("lam", np.geomspace(0.2, 1e14, 60).tolist())
def test_logistic_radius_never_falls_below_the_exact_root(lam: float) -> None:
    """lam r (1 + e^r) >= 1 at the radius: every minimiser is inside, also where the radius is tiny."""
    radius = minimiser_radius("logistic", lam=lam)
    assert lam * radius * (1 + math.exp(radius)) >= 1
    assert lam * radius * (1 + math.exp(radius)) <= 1 + 1e-9


def test_unknown_calibration_is_refused_for_every_task() -> None:
    """Also where both calibrations agree."""
    with pytest.raises(ValueError, match="calibration"):
        minimiser_sensitivity("logistic", rows=10, columns=2, lam=0.1, calibration="foo")
