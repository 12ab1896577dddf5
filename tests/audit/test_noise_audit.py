"""What an attacker can prove against noise reduction, the interactive test, Brownian and norm-exponential noise.

Each audit runs at confidence .999 with a fixed seed: a right mechanism fails it with chance at most .001. Each has
a planted fault that the same audit refutes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from adaptive_dp import audit
from adaptive_dp.accuracy_first import (
    BrownianBoundary,
    ValueQuery,
    brownian_walk,
    halting_probability,
    interactive_above_threshold,
    noise_reduction,
)
from adaptive_dp.accuracy_first.ex_post import ask_until_yes, ask_until_yes_loss, ask_until_yes_probability
from adaptive_dp.noise import norm_exponential, norm_exponential_tail
from adaptive_dp.privacy import Guarantee, Neighbours

pytestmark = pytest.mark.audit
CONFIDENCE = 0.999


def bound(mechanism, pair, events, *, runs, seed, delta=0.0):
    rng = np.random.default_rng(seed)
    return audit.lower_bound(
        mechanism, pair, events=events, runs=runs, confidence=CONFIDENCE, delta=delta, rng=rng
    )


# ---------------------------------------------------------------- noise reduction

EPSILONS = np.array([0.2, 0.5, 2.0])
PUBLISHED = 1  # levels 0 and 1 are published, level 2 is not
DIMENSION = 3
ORIGIN, SHIFTED = np.zeros(DIMENSION), np.eye(DIMENSION)[0]


def prefix_by_library(value, runs, rng):
    """Levels 0 ... PUBLISHED of `runs` independent paths, shape (runs, levels, d)."""
    path = noise_reduction(np.tile(value, (runs, 1)), sensitivity=1.0, epsilons=EPSILONS, rng=rng)
    return np.stack([path.at(level) for level in range(PUBLISHED + 1)], axis=1)


def prefix_with_one_coin(value, runs, rng):
    """Planted fault: one coin for the whole vector (erratum AF-4)."""
    current = value + rng.laplace(scale=1 / EPSILONS[-1], size=(runs, value.size))
    levels = []
    for coarse, fine in zip(EPSILONS[-2::-1], EPSILONS[:0:-1], strict=True):
        keep = rng.random((runs, 1)) < (coarse / fine) ** 2
        current = np.where(keep, current, current + rng.laplace(scale=1 / coarse, size=current.shape))
        levels.append(current)
    return np.stack(levels[::-1], axis=1)[:, : PUBLISHED + 1]


def prefix_of_independent_releases(value, runs, rng):
    """Planted fault: right marginals, fresh noise at each level, so that the epsilons add up."""
    scales = 1 / EPSILONS[: PUBLISHED + 1, None]
    return value + rng.laplace(size=(runs, PUBLISHED + 1, value.size)) * scales


def prefix_with_half_the_noise(value, runs, rng):
    """Planted fault: half the sensitivity."""
    path = noise_reduction(np.tile(value, (runs, 1)), sensitivity=0.5, epsilons=EPSILONS, rng=rng)
    return np.stack([path.at(level) for level in range(PUBLISHED + 1)], axis=1)


def likelihood_score(seen):
    """Log density ratio of the two levels, were they independent: the best score against that fault."""
    first = seen[:, :, 0]
    return (EPSILONS[: PUBLISHED + 1] * (np.abs(first) - np.abs(first - 1))).sum(axis=1)


def prefix_events():
    """Boxes around the origin (they see a shared coin) and half-lines of likelihood scores."""
    boxes = [
        lambda seen, h=h, level=level: np.abs(seen[:, level]).max(axis=1) <= h
        for h in (0.15, 0.25, 0.4)
        for level in range(PUBLISHED + 1)
    ]
    last = audit.half_lines(lambda seen: seen[:, PUBLISHED, 0], np.linspace(-1, 2, 7))
    return [*boxes, *last, *audit.half_lines(likelihood_score, np.linspace(-0.65, 0.65, 9))]


def audit_prefix(mechanism):
    return bound(mechanism, (ORIGIN, SHIFTED), prefix_events(), runs=300_000, seed=41)


def test_prefix_of_noise_reduction_costs_its_last_epsilon_only():
    """AF-01: levels 0 and 1 of 3 in d = 3 stay within epsilon_1 = 0.5, and the audit gets near it."""
    result = audit_prefix(prefix_by_library)
    assert result.passes(EPSILONS[PUBLISHED])
    assert result.lower > 0.85 * EPSILONS[PUBLISHED]


@pytest.mark.parametrize(
    "fault", [prefix_with_one_coin, prefix_of_independent_releases, prefix_with_half_the_noise]
)
def test_prefix_audit_refutes_planted_faults(fault):
    """A shared coin (AF-4), independent releases, half the sensitivity: the lower bound exceeds the claim."""
    result = audit_prefix(fault)
    assert result.lower > 1.05 * EPSILONS[PUBLISHED]


# ---------------------------------------------------------------- the interactive test

FAILING, MOVED = [0.0] * 4, [1.0] * 3 + [-1.0]


def stops_by_library(values, rng):
    release = interactive_above_threshold(
        [ValueQuery(v) for v in values],
        threshold=0.0,
        sensitivity=1.0,
        epsilon=1.0,
        prefix_epsilons=np.zeros(len(values)),
        rng=rng,
    )
    return -1 if release.index is None else release.index


def stops_with_scales(threshold_factor, query_factor):
    """Planted fault: other noise scales than 2 and 4."""

    def mechanism(values, runs, rng):
        level = rng.laplace(scale=threshold_factor, size=(runs, 1))
        good = values + rng.laplace(scale=query_factor, size=(runs, len(values))) >= level
        return np.where(good.any(axis=1), good.argmax(axis=1), -1)

    return mechanism


def stop_events():
    return [lambda stops, t=t: np.asarray(stops) == t for t in range(-1, 4)]


def test_interactive_test_stays_within_epsilon():
    """AF-03: queries that move both ways, stopping index audited at eps = 1; the audit is not idle."""
    result = bound(audit.one_by_one(stops_by_library), (FAILING, MOVED), stop_events(), runs=24_000, seed=42)
    assert result.passes(1.0)
    exact = [
        halting_probability(values, threshold=0.0, sensitivity=1.0, epsilon=1.0)
        for values in (FAILING, MOVED)
    ]
    assert result.event == 4
    assert result.lower <= math.log(exact[0] / exact[1]) <= result.upper
    assert result.lower > 0.3


@pytest.mark.parametrize("factors", [(2.0, 2.0), (1.0, 2.0)])
def test_interactive_audit_refutes_planted_scales(factors):
    """Lap(2D/e) on the queries (1.5 epsilon in the limit) and half of both scales (2 epsilon)."""
    result = bound(stops_with_scales(*factors), (FAILING, MOVED), stop_events(), runs=300_000, seed=43)
    assert not result.passes(1.0)


# ---------------------------------------------------------------- test over noise reduction: ex-post loss

LEVELS = np.array([0.25, 1.0])
TEST_EPSILON = 0.5


@dataclass(frozen=True)
class Near:
    """How near a published number is to the private one; moves by at most 1 when the data move by 1."""

    published: float
    private: float

    def reaches(self, level):
        return -abs(self.published - self.private) >= level


def search(value, rng):
    """The most private noisy value that is near enough, with its ex-post guarantee."""
    path = noise_reduction([value], sensitivity=1.0, epsilons=LEVELS, rng=rng)
    return interactive_above_threshold(
        (Near(float(noisy[0]), value) for noisy in path.walk()),
        threshold=-2.0,
        sensitivity=1.0,
        epsilon=TEST_EPSILON,
        prefix_epsilons=LEVELS,
        rng=rng,
    )


def search_outcome(value, rng):
    release = search(value, rng)
    return (-1, 0.0) if release.refused else (release.index, release.value.published)


def search_without_test_noise(value, rng):
    """Planted fault: hypotheses compared with the exact threshold."""
    path = noise_reduction([value], sensitivity=1.0, epsilons=LEVELS, rng=rng)
    for index, noisy in enumerate(path.walk()):
        if abs(noisy[0] - value) <= 2.0:
            return index, float(noisy[0])
    return -1, 0.0


RUNS = 4000
CUTS = (-1.5, -0.5, 0.0, 0.5, 1.0, 1.5, np.inf)


def worst_of_index(outcomes, index):
    """Largest lower bound over {stop at index, value <= cut}: outcomes that all carry the same ex-post claim."""
    results = []
    for cut in CUTS:
        counts = tuple(sum(i == index and v <= cut for i, v in side) for side in outcomes)
        # seven events for each index, so that all together fail by chance at most once in a thousand times
        results.append(audit.from_counts(counts, runs=RUNS, confidence=1 - (1 - CONFIDENCE) / 21))
    return max(results, key=lambda result: (result.lower, min(result.counts)))


@pytest.fixture(scope="module")
def searched():
    rng = np.random.default_rng(44)
    return [[search_outcome(value, rng) for _ in range(RUNS)] for value in (0.0, 1.0)]


@pytest.mark.parametrize("index", [0, 1, -1])
def test_search_stays_within_its_ex_post_guarantee(searched, index):
    """Lemma 2.8: outcomes that stop at t lose at most epsilon_A + epsilon_t, a refusal epsilon_A + epsilon_T."""
    result = worst_of_index(searched, index)
    claim = TEST_EPSILON + LEVELS[index]
    assert result.passes(claim)
    assert min(result.counts) > 100
    rng = np.random.default_rng(45)
    stated = {
        (-1 if r.index is None else r.index): r.guarantee for r in (search(0.0, rng) for _ in range(100))
    }
    assert stated[index].epsilon == pytest.approx(claim)


def test_search_audit_refutes_a_missing_test_noise():
    """Comparing with the exact threshold publishes where the private value is."""
    rng = np.random.default_rng(46)
    outcomes = [[search_without_test_noise(value, rng) for _ in range(RUNS)] for value in (0.0, 1.0)]
    assert worst_of_index(outcomes, 0).lower > 2 * (TEST_EPSILON + LEVELS[0])


# ---------------------------------------------------------------- ex-post privacy without an ex-ante epsilon


def test_ex_post_loss_is_finite_for_each_outcome_and_unbounded_over_them():
    """AF-05, Definitions 2.2-2.3: exact log ratios equal the stated loss; no epsilon covers all outcomes."""
    epsilon = 0.8
    k = np.arange(1, 60)
    one, zero = (ask_until_yes_probability(k, bit, epsilon=epsilon) for bit in (1, 0))
    np.testing.assert_allclose(np.abs(np.log(one / zero)), ask_until_yes_loss(k, epsilon=epsilon), atol=1e-9)
    for claim in (1.0, 5.0, 40.0):
        beyond = ask_until_yes_loss(k, epsilon=epsilon) > claim
        assert beyond.any()
        assert (np.minimum(one, zero)[beyond] > 0).all()
    assert zero.sum() == pytest.approx(1.0, abs=1e-5)
    assert one.sum() == pytest.approx(1.0, abs=1e-5)


def test_ex_post_mechanism_passes_its_own_guarantee_and_no_ex_ante_one():
    """AF-05: each outcome is audited against its own guarantee; the epsilon of one answer is refuted as a claim."""
    rng, runs = np.random.default_rng(47), 20_000
    releases = [[ask_until_yes(bit, epsilon=1.0, rng=rng) for _ in range(runs)] for bit in (0, 1)]
    stated = {release.value: release.guarantee for release in releases[0]}
    for k in (1, 2, 3, 4, 5):
        counts = tuple(sum(release.value == k for release in side) for side in releases)
        result = audit.from_counts(counts, runs=runs, confidence=CONFIDENCE)
        assert stated[k].kind == "ex-post"
        assert result.passes(stated[k])
        if k != 2:
            assert result.lower > 0.4 * stated[k].epsilon
        if k in (4, 5):
            assert not result.passes(1.0)


def test_questions_follow_the_exact_law():
    """The sampler has the law that the exact loss is computed from (chi-square, false-fail rate 1e-6)."""
    rng = np.random.default_rng(49)
    for bit in (0, 1):
        drawn = np.array([ask_until_yes(bit, epsilon=1.0, rng=rng).value for _ in range(3000)])
        observed = np.bincount(np.minimum(drawn, 6), minlength=7)[1:]
        law = ask_until_yes_probability(np.arange(1, 6), bit, epsilon=1.0)
        assert stats.chisquare(observed, 3000 * np.append(law, 1 - law.sum())).pvalue > 1e-6


# ---------------------------------------------------------------- Brownian noise

DELTA = 0.01
BROWNIAN_EPSILON = 1.0


def path_down_to(variance):
    """Publish three values of one Brownian path in five directions, the last at ``variance``."""

    def mechanism(value, runs, rng):
        start = np.tile(value, (runs, 1))
        return np.stack(list(brownian_walk(start, variance * np.array([16.0, 4.0, 1.0]), rng)), axis=1)

    return mechanism


def audit_path(boundary):
    variance = boundary.variance(BROWNIAN_EPSILON)
    direction = np.full(5, 1 / math.sqrt(5))
    spread = math.sqrt(variance)
    events = [
        *audit.half_lines(lambda seen: seen[:, -1] @ direction / spread, np.linspace(-3, 3, 13)),
        *audit.half_lines(lambda seen: seen.sum(axis=1) @ direction / spread, np.linspace(-9, 9, 13)),
    ]
    return bound(path_down_to(variance), (np.zeros(5), direction), events, runs=60_000, seed=50, delta=DELTA)


def test_brownian_path_down_to_a_fixed_variance_is_private():
    """AF-24: the path down to variance(epsilon) is (epsilon, delta)-private: l2 distance 1 in five directions."""
    result = audit_path(BrownianBoundary(1.0, DELTA, BROWNIAN_EPSILON))
    assert result.passes(Guarantee("ex-ante", BROWNIAN_EPSILON, Neighbours.REPLACE_ONE, delta=DELTA))
    assert result.lower > 0.1 * BROWNIAN_EPSILON


def test_brownian_audit_refutes_a_third_of_the_sensitivity():
    """The same audit refutes a path whose noise belongs to a third of the sensitivity."""
    assert not audit_path(BrownianBoundary(1 / 3, DELTA, BROWNIAN_EPSILON)).passes(BROWNIAN_EPSILON)


# ---------------------------------------------------------------- norm-exponential noise


@pytest.mark.parametrize("dimension", [1, 2, 9, 60])
def test_length_and_direction_of_norm_exponential_noise(dimension):
    """Three Kolmogorov-Smirnov tests with 100,000 draws, each with false-fail rate 1e-4; a slight fault is seen."""
    scale, draws = 2.5, 100_000
    x = norm_exponential(scale, dimension, np.random.default_rng(dimension), draws=draws)
    lengths = np.linalg.norm(x, axis=1)
    for values, law in [
        (norm_exponential_tail(lengths, scale, dimension), stats.uniform()),
        (lengths, stats.gamma(dimension, scale=scale)),
    ]:
        assert stats.kstest(values, law.cdf).pvalue > 1e-4
    assert stats.kstest(lengths, stats.gamma(dimension, scale=1.02 * scale).cdf).pvalue < 1e-4
    assert (
        stats.kstest(lengths, stats.gamma(dimension + 0.1, scale=scale).cdf).pvalue < 1e-4 or dimension > 10
    )
    if dimension > 1:
        cosines = x @ np.full(dimension, dimension**-0.5) / lengths
        uniform = stats.beta(0.5 * (dimension - 1), 0.5 * (dimension - 1))
        assert stats.kstest(0.5 * (1 + cosines), uniform.cdf).pvalue > 1e-4
        skewed = np.random.default_rng(0).laplace(size=(draws, dimension))  # not isotropic
        skewed = skewed @ np.full(dimension, dimension**-0.5) / np.linalg.norm(skewed, axis=1)
        assert stats.kstest(0.5 * (1 + skewed), uniform.cdf).pvalue < 1e-4 or dimension > 10


def vector_audit(noise, direction, *, epsilon, seed):
    """A vector of l2 sensitivity 1 plus noise, audited by half-lines of the log density ratio of norm noise."""

    def mechanism(value, runs, rng):
        return value + noise(runs, rng)

    def score(seen):
        return epsilon * (np.linalg.norm(seen - direction, axis=1) - np.linalg.norm(seen, axis=1))

    events = audit.half_lines(score, np.linspace(-0.99, 0.99, 9) * epsilon)
    pair = (np.zeros(direction.size), direction)
    return bound(mechanism, pair, events, runs=200_000, seed=seed)


@pytest.mark.parametrize("dimension", [2, 5])
def test_norm_exponential_noise_pays_for_a_vector(dimension):
    """Scale 1 / epsilon for l2 sensitivity 1, in every direction; independent Laplace noise would need sqrt(d) more."""
    epsilon = 1.0
    diagonal = np.full(dimension, dimension**-0.5)
    result = vector_audit(
        lambda runs, rng: norm_exponential(1 / epsilon, dimension, rng, draws=runs),
        diagonal,
        epsilon=epsilon,
        seed=61,
    )
    assert result.passes(epsilon)
    assert result.lower > 0.5 * epsilon
    laplace = vector_audit(
        lambda runs, rng: rng.laplace(scale=1 / epsilon, size=(runs, dimension)),
        diagonal,
        epsilon=epsilon,
        seed=62,
    )
    half = vector_audit(
        lambda runs, rng: norm_exponential(0.5 / epsilon, dimension, rng, draws=runs),
        diagonal,
        epsilon=epsilon,
        seed=63,
    )
    assert not half.passes(epsilon)
    assert epsilon < laplace.lower <= math.sqrt(dimension) * epsilon
