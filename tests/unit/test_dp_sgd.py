"""DP-SGD: accounting, sampling, clipping, noise, Adam, and an audit of one step."""

from __future__ import annotations

import logging
import math

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from scipy import stats
from scipy.special import expit

from adaptive_dp import audit
from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.losses import LogisticLoss, SquaredLoss
from adaptive_dp.objective_perturbation import dp_sgd as module
from adaptive_dp.objective_perturbation.dp_sgd import Schedule, dp_sgd, poisson_batches, train
from adaptive_dp.objective_perturbation.sampled_gaussian import (
    NumericalSampledGaussianCurve,
    SampledGaussianCurve,
    noise_multiplier,
    sampled_gaussian_curve,
    sampled_gaussian_renyi,
)
from adaptive_dp.privacy import Domain, Neighbours

DOMAIN = Domain("l2", 1.0, "sign", 1.0)


def records(rows=60, columns=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X @ rng.normal(size=columns) > 0, 1.0, -1.0)


# --- Rényi divergences --------------------------------------------------------------------------------


def exact_renyi(order, q, s):
    """The integral itself, in 20 digits."""
    with mpmath.workdps(20):
        a, q, s = mpmath.mpf(order), mpmath.mpf(q), mpmath.mpf(s)

        def integrand(t):
            return mpmath.npdf(t) * ((1 - q) + q * mpmath.exp(t / s - 1 / (2 * s * s))) ** a

        return float(mpmath.log(mpmath.quad(integrand, mpmath.linspace(-12, 12 + a / s, 13))) / (a - 1))


@pytest.mark.parametrize(("q", "s"), [(0.01, 1.1), (0.007, 30.0), (0.3, 2.0), (0.9, 0.5)])
def test_renyi_equals_the_integral_at_fractional_orders(q, s):
    orders = [1.01, 2.5, 7.3]
    found = sampled_gaussian_renyi(orders, sampling=q, sigma=s)
    for order, value in zip(orders, found, strict=True):
        exact = exact_renyi(order, q, s)
        assert exact <= value <= exact * (1 + 3e-9)


@pytest.mark.parametrize("q", [1e-3, 0.01, 0.5, 0.9])
@pytest.mark.parametrize("s", [0.3, 1.1, 5.0, 40.0])
def test_renyi_agrees_with_dp_accounting_at_whole_orders_and_is_below_it_elsewhere(q, s):
    logging.getLogger("absl").setLevel(logging.ERROR)
    whole = [2, 3, 5, 16, 32, 64]
    theirs = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(q, s, whole)
    np.testing.assert_allclose(sampled_gaussian_renyi(whole, sampling=q, sigma=s), theirs, rtol=1e-6)
    broken = [1.5, 2.5, 10.3]
    theirs = rdp_privacy_accountant._compute_rdp_poisson_subsampled_gaussian(q, s, broken)
    assert (sampled_gaussian_renyi(broken, sampling=q, sigma=s) <= theirs * (1 + 2e-9)).all()


def test_renyi_reference_values():
    """Whole orders of the reference agree; at 1.5 and 2.5 it is the looser sum of absolute values."""
    reference = [
        9.858756968009191e-05,
        0.00012851008160516542,
        0.00016215219755506363,
        0.00034015796633296927,
        1.6998267277531747,
        8.469416433675926,
    ]
    found = sampled_gaussian_renyi([1.5, 2, 2.5, 5, 16, 32], sampling=0.01, sigma=1.1)
    np.testing.assert_allclose(found[[1, 3, 4, 5]], np.array(reference)[[1, 3, 4, 5]], rtol=1e-5)
    assert found[0] == pytest.approx(exact_renyi(1.5, 0.01, 1.1), rel=1e-8)
    assert 0.96 < found[0] / reference[0] < 0.98
    assert 0.999 < found[2] / reference[2] < 1


def test_renyi_limits():
    """No sampling is the Gaussian mechanism; order 1 is a limit; the divergences increase with the order."""
    orders = [1.0, 1.5, 8.0]
    np.testing.assert_allclose(
        sampled_gaussian_renyi(orders, sampling=1.0, sigma=2.0), [GaussianCurve(0.5).renyi(a) for a in orders]
    )
    near = sampled_gaussian_renyi(
        [1, 1 + 1e-10, 1 + 1e-8, 1.0001, 1.1, 2, 50, 1e4, 1e6], sampling=0.01, sigma=1.1
    )
    assert (np.diff(near) >= -3e-9 * near[1:]).all()
    assert near[0] > 0
    assert near[0] == pytest.approx(near[2], rel=1e-6)
    # Far out the convexity bound, which is within log(1 / q) of the divergence without sampling.
    assert 0 <= 1e6 / (2 * 1.21) - near[-1] <= 0.5 / 1.21 + math.log(100)


# --- profiles and calibration -------------------------------------------------------------------------


def test_profiles_and_reference_of_the_numerical_accountant():
    numerical = NumericalSampledGaussianCurve(0.01, 1.1, 1000)
    renyi = SampledGaussianCurve(0.01, 1.1, 1000)
    assert numerical.epsilon(1e-5) == pytest.approx(1.515370248408792, rel=0.002)
    assert renyi.epsilon(1e-5) == pytest.approx(1.71177, rel=0.001)  # dp-accounting, other orders
    assert (numerical.deltas([0.1, 1.0, 2.0]) <= renyi.deltas([0.1, 1.0, 2.0])).all()
    for curve in (renyi, numerical):
        assert curve.delta(curve.epsilon(1e-5)) <= 1e-5 * (1 + 1e-9)


def test_one_step_equals_the_closed_profile():
    """(1 - q) N(0, 1) + q N(mu, 1) against N(0, 1): both directions in closed form."""
    q, s, epsilon = 0.2, 0.8, 0.4
    remove = q * GaussianCurve(1 / s).delta(math.log((math.exp(epsilon) - 1 + q) / q))
    curve = NumericalSampledGaussianCurve(q, s, 1)
    assert remove <= curve.delta(epsilon) <= remove * (1 + 1e-4)
    assert SampledGaussianCurve(q, s, 1).delta(epsilon) >= remove


def test_small_privacy_loss_gives_zero_not_a_negative_epsilon():
    for accountant in ("renyi", "numerical"):
        curve = sampled_gaussian_curve(sampling=1e-5, sigma=50.0, steps=1, accountant=accountant)
        assert curve.epsilon(0.01) == 0


@pytest.mark.parametrize("accountant", ["renyi", "numerical"])
def test_tiny_delta_is_monotone_and_hopeless_parameters_are_finite_or_infinite(accountant):
    curve = sampled_gaussian_curve(sampling=0.01, sigma=2.0, steps=100, accountant=accountant)
    epsilons = [curve.epsilon(10.0**-k) for k in range(20, 2, -1)]
    assert (np.diff(epsilons) <= 0).all()
    assert all(0 < e < 50 for e in epsilons)
    assert curve.epsilon(0.0) == math.inf
    bad = sampled_gaussian_curve(sampling=0.01, sigma=1e-3, steps=10**5, accountant=accountant)
    assert 1e10 < bad.epsilon(1e-5) < math.inf
    assert bad.delta(1.0) == 1.0


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
def test_calibration_is_the_inverse_on_the_safe_side(epsilon):
    sigma = noise_multiplier(epsilon=epsilon, delta=1e-5, sampling=0.007, steps=8520)
    spent = SampledGaussianCurve(0.007, sigma, 8520).epsilon(1e-5)
    assert epsilon * (1 - 1e-9) <= spent <= epsilon


def test_numerical_calibration_needs_less_noise():
    options = {"epsilon": 1.0, "delta": 1e-5, "sampling": 0.05, "steps": 100}
    sigma = noise_multiplier(**options, accountant="numerical")
    assert sigma < noise_multiplier(**options)
    spent = NumericalSampledGaussianCurve(0.05, sigma, 100).delta(1.0)
    assert 1e-5 * (1 - 1e-3) <= spent <= 1e-5


@pytest.mark.parametrize(
    ("epsilon", "delta", "sampling", "steps"),
    [(8.0, 1e-15, 0.01, 100), (1.0, 1e-12, 0.1, 50)],
)
def test_both_answers_of_the_numerical_curve_keep_the_promise(epsilon, delta, sampling, steps):
    case = {"sampling": sampling, "steps": steps, "accountant": "numerical"}
    sigma = noise_multiplier(epsilon=epsilon, delta=delta, **case)
    curve = sampled_gaussian_curve(sigma=sigma, **case)
    assert curve.epsilon(delta) <= epsilon
    assert curve.delta(epsilon) <= delta
    assert curve.epsilon(delta) >= epsilon * (1 - 1e-4)


def test_calibration_agrees_with_no_sampling():
    """q = 1 is the Gaussian mechanism: the Rényi bound lies a little above the exact noise."""
    exact = 1 / (GaussianCurve(1.0).mu * 0.2680512)  # mu of (1, 1e-5)
    sigma = noise_multiplier(epsilon=1.0, delta=1e-5, sampling=1.0, steps=1)
    assert GaussianCurve(1 / sigma).epsilon(1e-5) <= 1
    assert 1 <= sigma / exact < 1.1


# --- batches ------------------------------------------------------------------------------------------


def test_batches_have_the_law_of_independent_coins():
    """Chi-square: sizes, single records, and neighbours in the row of coins; false alarm 1e-4 each, seed fixed."""
    rows, q, steps = 12, 0.3, 40_000
    picks, edges = poisson_batches(rows, q, steps, np.random.default_rng(7))
    assert edges[0] == 0
    assert edges[-1] == picks.size
    coins = np.zeros((steps, rows), dtype=bool)
    coins[np.repeat(np.arange(steps), np.diff(edges)), picks] = True
    assert coins.sum() == picks.size  # each record at most once a step
    sizes = np.bincount(coins.sum(axis=1), minlength=rows + 1)
    expected = steps * stats.binom.pmf(np.arange(rows + 1), rows, q)
    sizes = np.append(sizes[:8], sizes[8:].sum())
    assert stats.chisquare(sizes, np.append(expected[:8], expected[8:].sum())).pvalue > 1e-4
    single = coins.sum(axis=0)
    z = (single - steps * q) / math.sqrt(steps * q * (1 - q))
    assert stats.chi2.sf(float(z @ z), rows) > 1e-4
    row = coins.ravel()  # also across the border of two steps
    both = np.array([(row[:-1] & row[1:]).sum(), (row[:-1] & ~row[1:]).sum(), (~row[:-1] & row[1:]).sum()])
    n = row.size - 1
    both = np.append(both, n - both.sum())
    law = np.array([q * q, q * (1 - q), q * (1 - q), (1 - q) ** 2])
    # The pairs overlap: their statistic is a mixture with largest weight below 2.
    assert stats.chi2.sf(float(((both - n * law) ** 2 / (n * law)).sum()) / 2, 3) > 1e-4


def test_sampling_one_takes_everybody_and_tiny_sampling_nobody():
    picks, edges = poisson_batches(5, 1.0, 3, np.random.default_rng(0))
    assert picks.tolist() == [0, 1, 2, 3, 4] * 3
    assert edges.tolist() == [0, 5, 10, 15]
    picks, edges = poisson_batches(5, 1e-9, 3, np.random.default_rng(0))
    assert picks.size == 0
    assert edges.tolist() == [0, 0, 0, 0]


def test_schedule_of_the_thesis():
    schedule = Schedule.of(36_176)
    assert (schedule.sampling, schedule.steps, schedule.batch) == (256 / 36_176, 60 * 142, 256.0)
    assert Schedule.of(512).steps == 120  # exactly 2 batches: no third from rounding
    assert Schedule.of(100) == Schedule(1.0, 60, 100.0)
    assert Schedule.of(36_176, batch=100, epochs=2).steps == 724


# --- the computation ----------------------------------------------------------------------------------


def by_hand(X, y, *, rate, sigma, clip, sampling, steps, batch, rng, optimiser="adam"):
    """One record at a time, Adam as in the paper, with the same draws as ``train``."""
    n, d = X.shape
    theta, m, v = np.zeros(d), np.zeros(d), np.zeros(d)
    chunk = int(min(256, max(1, module.DRAWS // max(d, sampling * n))))
    t = 0
    while t < steps:
        size = min(chunk, steps - t)
        picks, edges = poisson_batches(n, sampling, size, rng)
        noise = rng.standard_normal((size, d))
        for k in range(size):
            total = np.zeros(d)
            for i in picks[edges[k] : edges[k + 1]]:
                gradient = -y[i] * expit(-y[i] * (X[i] @ theta)) * X[i]
                total += gradient * min(1.0, clip / np.linalg.norm(gradient))
            g = (total + sigma * clip * noise[k]) / batch
            t += 1
            if optimiser == "sgd":
                theta = theta - rate * g
                continue
            m = 0.9 * m + 0.1 * g
            v = 0.999 * v + 0.001 * g**2
            theta = theta - rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return theta


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
@pytest.mark.parametrize("clip", [2.0, 0.3])
def test_train_equals_the_hand_written_loop(optimiser, clip):
    X, y = records()
    options = {
        "sigma": 0.7,
        "clip": clip,
        "sampling": 0.2,
        "steps": 300,
        "batch": 12.0,
        "optimiser": optimiser,
    }
    found = train(X, y, rates=[0.05], shared=True, rng=np.random.default_rng(3), **options)
    expected = by_hand(X, y, rate=0.05, rng=np.random.default_rng(3), **options)
    np.testing.assert_allclose(found[0], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("precision", ["double", "single"])
def test_many_rates_equal_one_by_one(precision):
    X, y = records(200, 6)
    rates = [1e-3, 0.02, 0.3]
    options = {"sigma": 0.5, "clip": 0.4, "sampling": 0.1, "steps": 150, "precision": precision}
    close = {"rtol": 1e-8, "atol": 1e-10} if precision == "double" else {"rtol": 1e-3, "atol": 1e-4}
    together = train(X, y, rates=rates, shared=True, rng=np.random.default_rng(1), **options)
    for rate, theta in zip(rates, together, strict=True):
        alone = train(X, y, rates=[rate], shared=True, rng=np.random.default_rng(1), **options)
        np.testing.assert_allclose(theta, alone[0], **close)
    apart = train(X, y, rates=rates, shared=False, rng=np.random.default_rng(1), **options)
    seeds = np.random.default_rng(1).integers(1 << 63, size=(3, 4))
    for rate, theta, seed in zip(rates, apart, seeds, strict=True):
        alone = train(X, y, rates=[rate], shared=True, rng=np.random.default_rng(seed), **options)
        np.testing.assert_allclose(theta, alone[0], **close)
    same = train(X, y, rates=[0.02, 0.02], shared=False, rng=np.random.default_rng(1), **options)
    assert np.abs(same[0] - same[1]).min() > 0  # independent runs


def test_a_generator_that_went_on_gives_another_run():
    """Also where only its state tells: what a generator spawns would not depend on it."""
    X, y = records(50, 3)
    options = {"rates": [0.1], "sigma": 0.5, "clip": 0.4, "sampling": 0.2, "steps": 5}
    fresh, moved = np.random.default_rng(7), np.random.default_rng(7)
    moved.random(1000)
    first, second = train(X, y, rng=fresh, **options), train(X, y, rng=moved, **options)
    assert np.abs(first - second).min() > 0
    third = train(X, y, rng=fresh, **options)
    assert np.abs(first - third).min() > 0
    philox = np.random.Generator(np.random.Philox(key=5))
    assert np.isfinite(train(X, y, rng=philox, **options)).all()


def test_sampling_probabilities_that_integers_cannot_hold_are_refused():
    for q in (1e-18, 1e-300):
        with pytest.raises(ValueError, match="sampling"):
            train(
                np.eye(2),
                np.ones(2),
                rates=[0.1],
                sigma=1.0,
                clip=1.0,
                sampling=q,
                steps=9,
                rng=np.random.default_rng(1),
            )


def test_single_precision_changes_nothing_that_matters():
    """The two answers differ by far less than two runs with other noise."""
    X, y = records(2000, 30)
    options = {"rates": [0.01], "sigma": 1.0, "clip": 1.0, "sampling": 0.05, "steps": 400, "shared": True}
    double = train(X, y, rng=np.random.default_rng(1), **options)
    single = train(X, y, rng=np.random.default_rng(1), precision="single", **options)
    other = train(X, y, rng=np.random.default_rng(2), **options)
    assert np.linalg.norm(double - single) < 1e-3 * np.linalg.norm(double - other)


def captured_sums(X, y, *, sigma, clip, runs, precision="double", loss=None):
    """Sums of the first step (times C), at theta = 0, from the parameter after one step of SGD."""
    thetas = train(
        X,
        y,
        rates=np.full(runs, 1.0),
        sigma=sigma,
        clip=clip,
        sampling=1.0,
        steps=1,
        batch=1.0,
        optimiser="sgd",
        precision=precision,
        loss=loss,
        rng=np.random.default_rng(5),
    )
    return -thetas


def test_noise_on_the_sum_is_sigma_times_clip():
    """Variance of 16,000 draws (chi-square, false alarm 1e-4 on both sides); not sqrt 2 times, not per record."""
    X, y = records(50, 4)
    sums = captured_sums(X, y, sigma=3.0, clip=0.2, runs=4_000)
    exact = (-0.5 * y * np.minimum(1, 0.2 / 0.5)) @ X
    statistic = float(np.square((sums - exact) / 0.6).sum())
    assert stats.chi2.ppf(1e-4, sums.size) < statistic < stats.chi2.isf(1e-4, sums.size)


@pytest.mark.parametrize("precision", ["double", "single"])
@pytest.mark.parametrize("loss", [LogisticLoss(), SquaredLoss()])
def test_one_record_moves_the_sum_by_at_most_clip(precision, loss):
    X, y = records(30, 3)
    X = X * np.geomspace(1e-3, 1e3, 30)[:, np.newaxis]
    # Noise of 1e-12 C leaves the sum of one record alone.
    for i in range(30):
        (alone,) = captured_sums(
            X[[i]], y[[i]], sigma=1e-12, clip=0.1, runs=1, precision=precision, loss=loss
        )
        slope = abs(float(loss.derivative(0.0, y[i])))
        assert np.linalg.norm(alone) <= 0.1 * (1 + 1e-11)
        expected = min(slope * np.linalg.norm(X[i]), 0.1)
        assert np.linalg.norm(alone) == pytest.approx(expected, rel=1e-5 if precision == "single" else 1e-9)


def test_divisor_does_not_depend_on_the_batch_at_hand():
    """Two records of which each batch has 0, 1 or 2: steps are multiples of one record's gradient over the constant."""
    X, y = np.array([[1.0], [1.0]]), np.array([1.0, 1.0])
    thetas = train(
        X,
        y,
        rates=np.ones(200),
        sigma=1e-12,
        clip=1.0,
        sampling=0.5,
        steps=1,
        batch=4.0,
        optimiser="sgd",
        rng=np.random.default_rng(0),
    )
    assert set(np.round(thetas[:, 0] * 8, 6).tolist()) == {0.0, 1.0, 2.0}


# --- the mechanism ------------------------------------------------------------------------------------


def test_release_and_its_guarantee():
    X, y = records(400, 5)
    data = Dataset(X, y, DOMAIN)
    schedule = Schedule.of(400, batch=40, epochs=20)
    release = dp_sgd(
        data, epsilon=8.0, delta=1e-5, rate=0.05, schedule=schedule, rng=np.random.default_rng(1)
    )
    promise = release.guarantee
    assert (promise.kind, promise.epsilon, promise.delta) == ("ex-ante", 8.0, 1e-5)
    assert promise.neighbours is Neighbours.ADD_REMOVE
    assert promise.curve.delta(8.0) == pytest.approx(1e-5, rel=1e-6)
    assert release.trace["clip"] == 1.0
    assert np.mean((X @ release.value) * y > 0) > 0.85
    tight = dp_sgd(
        data,
        epsilon=8.0,
        delta=1e-5,
        rate=0.05,
        schedule=schedule,
        accountant="numerical",
        rng=np.random.default_rng(1),
    )
    assert tight.trace["sigma"] < release.trace["sigma"]


def test_more_privacy_costs_accuracy():
    X, y = records(500, 8)
    data = Dataset(X, y, DOMAIN)
    schedule = Schedule.of(500, batch=50, epochs=10)
    right = []
    for epsilon in (0.05, 0.5, 10.0):
        runs = [
            dp_sgd(data, epsilon=epsilon, delta=1e-5, rate=0.05, schedule=schedule, rng=rng).value
            for rng in np.random.default_rng(2).spawn(6)
        ]
        right.append(np.mean([np.mean((X @ theta) * y > 0) for theta in runs]))
    assert right[0] < right[1] < right[2]


def one_step(scale):
    """Sum of the first step projected on the record that may be there, over C; ``scale`` times the right noise."""

    def mechanism(data, runs, rng):
        X, y = data
        thetas = train(
            X,
            y,
            rates=np.ones(runs),
            sigma=0.6 * scale,
            clip=0.25,
            sampling=0.4,
            steps=1,
            batch=1.0,
            optimiser="sgd",
            rng=rng,
        )
        return -thetas[:, 1] / 0.25

    return mechanism


@pytest.mark.audit
def test_audit_of_one_step():
    """The exact profile is attained: the right noise passes (false-fail rate 1 %, seed fixed), half of it does not."""
    without = (np.array([[1.0, 0.0]]), np.array([-1.0]))
    present = (np.eye(2), np.array([-1.0, -1.0]))
    delta = 0.05
    claim = NumericalSampledGaussianCurve(0.4, 0.6, 1).epsilon(delta)
    options = {
        "events": audit.half_lines(lambda x: x, np.linspace(0.2, 1.4, 7)),
        "runs": 5_000,
        "delta": delta,
        "confidence": 0.99,
    }
    right = audit.lower_bound(one_step(1.0), (present, without), rng=np.random.default_rng(3), **options)
    wrong = audit.lower_bound(one_step(0.5), (present, without), rng=np.random.default_rng(3), **options)
    assert right.passes(claim)
    assert right.lower > 0.5 * claim  # the audit is not idle
    assert not wrong.passes(claim)


# --- bad input ----------------------------------------------------------------------------------------

GOOD = {"rates": [0.1], "sigma": 1.0, "clip": 1.0, "sampling": 0.5, "steps": 3}


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"rates": []}, ValueError, "rates"),
        ({"rates": [0.1, 0.0]}, ValueError, "rates"),
        ({"rates": [math.nan]}, ValueError, "rates"),
        ({"rates": [1e11]}, ValueError, "rates"),
        ({"sigma": 0.0}, ValueError, "sigma"),
        ({"sigma": math.inf}, ValueError, "sigma"),
        ({"clip": -1.0}, ValueError, "clip"),
        ({"sampling": 0.0}, ValueError, "sampling"),
        ({"sampling": 256}, ValueError, "sampling"),
        ({"steps": 0}, ValueError, "steps"),
        ({"steps": 2.5}, TypeError, "steps"),
        ({"batch": 0.0}, ValueError, "batch"),
        ({"optimiser": "lion"}, ValueError, "optimiser"),
        ({"precision": "half"}, ValueError, "precision"),
        ({"loss": LogisticLoss}, TypeError, "loss"),
        ({"rng": 7}, TypeError, "rng"),
        ({"features": [[math.nan, 0.0], [0.0, 1.0]]}, ValueError, "features"),
        ({"labels": [1.0]}, ValueError, "labels"),
        ({"labels": [0.0, 1.0]}, ValueError, "labels must be -1"),
        ({"clip": 1e-39, "precision": "single"}, ValueError, "clip must lie between 1e-20"),
        ({"clip": 1e39, "precision": "single"}, ValueError, "clip must lie between 1e-20"),
        ({"clip": 1e100, "batch": 1e-100}, ValueError, "batch must not be so small"),
        ({"sigma": 1e60, "clip": 1e50}, ValueError, "batch must not be so small"),
        (
            {"labels": [1e12, 0.0], "loss": SquaredLoss(), "precision": "single"},
            ValueError,
            "precision must be 'double' for labels",
        ),
    ],
)
def test_train_refuses(change, error, name):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    arguments = {"features": np.eye(2), "labels": [1.0, -1.0], "rng": rng, **GOOD, **change}
    with pytest.raises(error, match=name):
        train(arguments.pop("features"), arguments.pop("labels"), **arguments)
    assert rng.bit_generator.state == state


def test_single_precision_refuses_rows_that_overflow():
    with pytest.raises(ValueError, match="precision"):
        train(1e30 * np.eye(2), [1.0, -1.0], precision="single", rng=np.random.default_rng(0), **GOOD)


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"epsilon": math.inf}, ValueError, "epsilon"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"rate": -0.1}, ValueError, "rate"),
        ({"rate": [0.1, 0.2]}, TypeError, "rate"),
        ({"schedule": 256}, TypeError, "schedule"),
        ({"accountant": "moments"}, ValueError, "accountant"),
        ({"loss": SquaredLoss()}, ValueError, "clip"),
        ({"epsilon": 1e9}, ValueError, "noise multiplier"),
        ({"clip": 1e-30, "precision": "single"}, ValueError, "clip must lie between 1e-20"),
        ({"clip": 1e90, "schedule": Schedule(0.5, 3, 1e-90)}, ValueError, "batch must not be so small"),
        ({"rng": None}, TypeError, "rng"),
    ],
)
def test_mechanism_refuses(change, error, name):
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    arguments = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "rate": 0.1,
        "schedule": Schedule(0.5, 3, 1.0),
        "rng": rng,
        **change,
    }
    with pytest.raises(error, match=name):
        dp_sgd(Dataset(np.eye(2), [1.0, -1.0], DOMAIN), **arguments)
    assert rng.bit_generator.state == state


def test_labels_that_the_loss_does_not_know_are_refused():
    data = Dataset(np.eye(2), [0.3, -1.0], Domain("l2", 1.0, "real", 1.0))
    with pytest.raises(ValueError, match="labels"):
        dp_sgd(
            data,
            epsilon=1.0,
            delta=1e-5,
            rate=0.1,
            schedule=Schedule(0.5, 3, 1.0),
            rng=np.random.default_rng(0),
        )


def test_curves_refuse():
    for change, name in (
        ({"sampling": 1.5}, "sampling"),
        ({"sigma": 0.0}, "sigma"),
        ({"steps": 0}, "steps"),
        ({"extra_mu": -1.0}, "extra_mu"),
        ({"accountant": "x"}, "accountant"),
    ):
        with pytest.raises(ValueError, match=name):
            sampled_gaussian_curve(**{"sampling": 0.1, "sigma": 1.0, "steps": 1, **change})
    with pytest.raises(ValueError, match="orders"):
        sampled_gaussian_renyi([0.5], sampling=0.1, sigma=1.0)
    with pytest.raises(ValueError, match="epsilon"):
        SampledGaussianCurve(0.1, 1.0, 1).delta(-0.1)


@pytest.mark.parametrize("orders", [(), (1.0,), (2.0, 2.0, 3.0), (3.0, 2.0)])
def test_orders_must_increase(orders):
    with pytest.raises(ValueError, match="orders"):
        SampledGaussianCurve(0.1, 1.0, 10, orders=orders)


def test_tiny_divergences_keep_their_digits():
    """Whole orders have a finite sum; where a u is tiny the integrand must not cancel."""
    for q, sigma, order in ((1e-5, 1e3, 3), (1e-9, 10.0, 2), (1e-6, 1e5, 2), (1e-9, 1e3, 3)):
        terms = [
            math.comb(order, k) * q**k * (1 - q) ** (order - k) * math.expm1(k * (k - 1) / (2 * sigma**2))
            for k in range(2, order + 1)
        ]
        exact = math.log1p(math.fsum(terms)) / (order - 1)
        found = float(sampled_gaussian_renyi([order], sampling=q, sigma=sigma)[0])
        assert exact * (1 - 1e-9) <= found <= exact * (1 + 1e-7)


@pytest.mark.parametrize(("size", "label"), [(1.0, 1e5), (1e-170, 1e175), (1e160, 1.0)])
def test_rows_whose_squares_leave_the_range_are_shortened_all_the_same(size, label):
    """Gradients far longer than C = 1: each becomes the direction of its row."""
    X, y = size * np.array([[0.6, 0.8], [1.0, 0.0]]), label * np.array([3.0, -2.0])
    (total,) = captured_sums(X, y, sigma=1e-12, clip=1.0, runs=1, loss=SquaredLoss())
    np.testing.assert_allclose(np.abs(total), [0.4, 0.8], rtol=1e-9)


def test_single_precision_is_finite_at_the_ends_of_its_range():
    X, y = np.array([[0.6, 0.8], [0.0, 0.0], [1e-12, 0.0]]), np.array([1.0, -1.0, 1.0])
    for clip in (1e-20, 1e20):
        theta = train(X, y, precision="single", rng=np.random.default_rng(0), **{**GOOD, "clip": clip})
        assert np.isfinite(theta).all()
        assert theta.any()
