"""What an attacker can prove against calibrated objective perturbation, and how near that is to the claim.

Worst-case pairs on the line, whose exact epsilon is enclosed: audits must stay below it and come near. Confidence .999
in each audit, fixed seeds; of the planted faults every one is refuted.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_dp import audit
from adaptive_dp.datasets import Dataset
from adaptive_dp.losses import HuberLoss, LogisticLoss
from adaptive_dp.objective_perturbation.calibration import calibrate
from adaptive_dp.objective_perturbation.exact import line_pair
from adaptive_dp.objective_perturbation.profiles import ReducedCurve
from adaptive_dp.per_instance import perturb_objective
from adaptive_dp.per_instance.calibration import half_normal_epsilon, kifer_calibration
from adaptive_dp.privacy import Domain

pytestmark = pytest.mark.audit
CONFIDENCE, RUNS = 0.999, 200_000
REAL, SIGN = Domain("l2", 1.0, "real"), Domain("l2", 1.0, "sign")
# A row of zeros adds a constant to the objective: data sets are not empty, and this is as good.
HUBER = tuple(Dataset(rows, np.zeros(len(rows)), REAL) for rows in ([[0.0]], [[0.0], [1.0]]))
LOGISTIC = (
    Dataset([[0.5], [0.8]], [1.0, 1.0], SIGN),
    Dataset([[0.5], [0.8], [1.0]], [1.0, 1.0, -1.0], SIGN),
)


def minimisers(people, loss, lam, noise):
    """argmin of the perturbed objective for each b, by bisection of its increasing derivative."""
    x, y = people.features[:, 0], people.labels

    def derivative(theta):
        return loss.derivative(np.outer(theta, x), y) @ x + lam * theta + noise

    size = (np.abs(noise) + np.abs(x).sum()) / lam
    low, high = -size, size.copy()
    for _ in range(45):
        middle = 0.5 * (low + high)
        positive = derivative(middle) > 0
        low, high = np.where(positive, low, middle), np.where(positive, middle, high)
    return 0.5 * (low + high)


def batch(loss, lam, sigma):
    """theta^P, ``runs`` times: what `perturb_objective` publishes (checked below), without one solver call a run."""

    def mechanism(people, runs, rng):
        return minimisers(people, loss, lam, rng.normal(0.0, sigma, runs))

    return mechanism


def audited(loss, pair, lam, sigma, score, thresholds, delta, seed=1, runs=RUNS):
    return audit.lower_bound(
        batch(loss, lam, sigma), pair, events=audit.half_lines(score, thresholds), runs=runs,
        confidence=CONFIDENCE, delta=delta, rng=np.random.default_rng(seed),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("people", "loss"), [*((p, HuberLoss(1.0)) for p in HUBER), *((p, LogisticLoss()) for p in LOGISTIC)]
)
def test_the_library_publishes_what_is_audited(people, loss):
    for seed in range(10):
        release = perturb_objective(
            people, loss, lam=0.7, sigma=1.5, delta=0.01, rng=np.random.default_rng(seed)
        )
        expected = minimisers(people, loss, 0.7, release.trace["noise"])
        np.testing.assert_allclose(release.value, expected, atol=1e-9)


@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_calibrated_noise_keeps_its_claim_for_the_huber_loss(epsilon):
    """The pair that attains bound A where the noise is large: |theta| tells which data it was."""
    delta = 0.05
    chosen = calibrate(epsilon=epsilon, delta=delta, slope=1.0, curvature=1.0)
    exact = line_pair(HuberLoss(1.0), (1.0, 0.0), lam=chosen.lam, sigma=chosen.sigma).epsilon(delta)
    assert max(side.upper for side in exact) <= epsilon
    thresholds = np.linspace(0.2, 3.0, 15) * chosen.sigma / chosen.lam
    result = audited(HuberLoss(1.0), HUBER, chosen.lam, chosen.sigma, np.abs, thresholds, delta)
    assert result.passes(epsilon)
    assert result.lower <= max(side.upper for side in exact)
    assert result.lower >= 0.7 * max(side.lower for side in exact)
    assert result.lower >= 0.5 * epsilon
    assert result.ceiling > 2 * epsilon


def test_calibrated_noise_keeps_its_claim_for_the_logistic_loss():
    epsilon, delta = 1.0, 0.05
    chosen = calibrate(epsilon=epsilon, delta=delta, slope=1.0, curvature=0.25)
    x, y = LOGISTIC[0].features[:, 0], LOGISTIC[0].labels
    pair = line_pair(LogisticLoss(), (1.0, -1.0), features=x, labels=y, lam=chosen.lam, sigma=chosen.sigma)
    exact = max(side.upper for side in pair.epsilon(delta))
    thresholds = np.linspace(-3.0, 3.0, 13) * chosen.sigma / chosen.lam
    result = audited(LogisticLoss(), LOGISTIC, chosen.lam, chosen.sigma, lambda t: t, thresholds, delta)
    assert result.passes(epsilon)
    assert 0.3 * exact <= result.lower <= exact


def test_half_the_noise_is_refuted():
    """A record far from the minimiser: its slope is at its bound wherever theta goes, as in the Gaussian mechanism."""
    epsilon, delta, slope = 1.0, 0.05, 0.1
    pair = HUBER[0], Dataset([[0.0], [1.0]], [0.0, 1.0], REAL)
    chosen = calibrate(epsilon=epsilon, delta=delta, slope=slope, curvature=1.0)
    for share, fine in ((1.0, True), (0.5, False)):
        thresholds = np.linspace(-3.0, 3.0, 13) * share * chosen.sigma / chosen.lam
        result = audited(
            HuberLoss(slope), pair, chosen.lam, share * chosen.sigma, lambda t: t, thresholds, delta
        )
        assert result.passes(epsilon) == fine


def test_the_determinant_is_needed_where_the_record_is_present():
    """kappa = 3: bound A alone, which knows no curvature, is refuted by how often theta is near 0."""
    lam, sigma = 1 / 3, 1.0
    small = audited(HuberLoss(1.0), HUBER, lam, sigma, np.abs, [0.2], 0.0)
    assert 0.9 * math.log1p(3) < small.lower <= math.log1p(3)  # the whole determinant shows
    mu = 0.3
    result = audited(HuberLoss(mu), HUBER, lam, sigma, np.abs, np.linspace(0.1, 1.5, 15) * mu, 0.05)
    assert not result.passes(half_normal_epsilon(0.05, mu))
    assert result.passes(ReducedCurve(mu, 3.0).epsilon(0.05))


def test_the_printed_scale_of_kifer_is_refuted():
    """Erratum 1: read as a standard deviation, the printed variance is far too little noise for small gradients."""
    epsilon, delta, slope = 1.0, 0.05, 0.02
    right = kifer_calibration(epsilon=epsilon, delta=delta, slope=slope, curvature=1.0)
    loss = HuberLoss(slope)
    thresholds = np.linspace(0.5, 3.0, 6)
    for sigma, fine in ((right.sigma, True), (right.sigma**2, False)):
        result = audited(loss, HUBER, right.lam, sigma, np.abs, thresholds * sigma / right.lam, delta)
        assert result.passes(epsilon) == fine


def test_the_mechanism_itself_keeps_its_claim():
    """Through `perturb_objective` and its guarantee, with as many runs as one can afford."""
    chosen = calibrate(epsilon=1.0, delta=0.05, slope=1.0, curvature=1.0)
    release = perturb_objective(
        HUBER[1], HuberLoss(1.0), lam=chosen.lam, sigma=chosen.sigma, delta=0.05,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    assert release.guarantee.epsilon <= 1.0 + 1e-9

    def run(people, rng):
        return perturb_objective(
            people, HuberLoss(1.0), lam=chosen.lam, sigma=chosen.sigma, delta=0.05, rng=rng
        ).value[0]

    result = audit.lower_bound(
        audit.one_by_one(run), HUBER,
        events=[audit.for_each(lambda theta: abs(theta) <= 1.2 * chosen.sigma / chosen.lam)],
        runs=600, confidence=CONFIDENCE, delta=0.05, rng=np.random.default_rng(3),
    )  # fmt: skip
    assert result.passes(release.guarantee)
    assert result.estimate > 0.05
