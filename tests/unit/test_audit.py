"""The statistical audit: exact intervals, honest lower bounds, and faults that it has to find."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adaptive_dp import audit
from adaptive_dp.privacy import Guarantee, Neighbours

EPSILON = 0.5
SHIFTS = np.linspace(-2, 3, 11)


def laplace_mechanism(scale):
    return lambda value, runs, rng: value + rng.laplace(scale=scale, size=runs)


def identity(x):
    return x


def audit_laplace(scale, *, runs=60_000, seed=1, **options):
    return audit.lower_bound(
        laplace_mechanism(scale),
        (0.0, 1.0),
        events=audit.half_lines(identity, SHIFTS),
        runs=runs,
        rng=np.random.default_rng(seed),
        **options,
    )


def test_clopper_pearson_equals_scipy_binomtest():
    """The interval is the one of scipy.stats.binomtest, ends included."""
    for runs in (1, 7, 400):
        for count in sorted({0, 1, runs // 3, runs - 1, runs}):
            expected = stats.binomtest(count, runs).proportion_ci(confidence_level=0.98, method="exact")
            assert audit.clopper_pearson(count, runs, 0.01) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("probability", [1e-4, 0.03, 0.5, 0.9, 0.9999])
def test_clopper_pearson_covers_in_each_tail_exactly_summed(probability):
    """Each end is wrong with chance at most the stated tail: summed over the binomial law, no simulation."""
    runs, tail = 60, 0.02
    counts = np.arange(runs + 1)
    law = stats.binom.pmf(counts, runs, probability)
    ends = np.array([audit.clopper_pearson(int(c), runs, tail) for c in counts])
    assert law[ends[:, 0] > probability].sum() <= tail
    assert law[ends[:, 1] < probability].sum() <= tail


@pytest.mark.parametrize("delta", [0.0, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_lower_bound_exceeds_the_truth_with_at_most_the_stated_chance_exactly_summed(epsilon, delta):
    """Worst two-point mechanism, all pairs of counts weighted by their law: false alarms <= 1 - confidence."""
    runs, confidence = 25, 0.8
    q = (1 - delta) / (1 + math.exp(epsilon))
    p = math.exp(epsilon) * q + delta
    counts = np.arange(runs + 1)
    on_d, on_other = stats.binom.pmf(counts, runs, p), stats.binom.pmf(counts, runs, q)
    alarm = miss = 0.0
    for i in counts.tolist():
        for j in counts.tolist():
            result = audit.from_counts((i, j), runs=runs, confidence=confidence, delta=delta)
            assert 0 <= result.lower <= result.estimate <= result.upper
            weight = float(on_d[i] * on_other[j])
            alarm += weight * (result.lower > epsilon)
            miss += weight * (result.upper < epsilon)
    assert alarm + miss <= 1 - confidence


def test_right_noise_passes_and_half_the_noise_is_refuted():
    """Laplace(1/epsilon) passes its claim (false-fail rate 1%, seed fixed), Laplace(1/(2 epsilon)) does not."""
    right, wrong = audit_laplace(1 / EPSILON), audit_laplace(1 / (2 * EPSILON))
    assert right.passes(EPSILON)
    assert right.lower > 0.8 * EPSILON  # the audit is not idle: the best half-line is tight
    assert not wrong.passes(EPSILON)
    assert wrong.passes(2 * EPSILON)


def test_direction_of_the_pair_and_complement_do_not_matter():
    """Swapping D and D', or asking for the complement, gives the same bounds."""
    result = audit.from_counts((700, 120), runs=1000, confidence=0.95)
    for counts in ((120, 700), (300, 880), (880, 300)):
        other = audit.from_counts(counts, runs=1000, confidence=0.95)
        assert (other.lower, other.estimate, other.upper) == pytest.approx(
            (result.lower, result.estimate, result.upper), rel=1e-9
        )
    assert result.estimate == pytest.approx(math.log(700 / 120))


def test_complement_finds_what_the_event_hides():
    """P(E) = .9 against .999 shows log(.1/.001) through the complement."""
    result = audit.from_counts((900_000, 999_000), runs=1_000_000)
    assert result.estimate == pytest.approx(math.log(100))
    assert result.lower > 4.5


def test_delta_is_subtracted_before_the_ratio():
    """A mechanism that reveals everything with chance delta is (0, delta)-private and nothing better."""

    def leak(chance):
        return lambda bit, runs, rng: np.where(rng.random(runs) < chance, bit, -1)

    def bound(chance):
        return audit.lower_bound(
            leak(chance),
            (0, 1),
            events=lambda x: x == 1,
            runs=40_000,
            delta=0.05,
            rng=np.random.default_rng(3),
        )

    assert bound(0.05).lower == 0
    assert bound(0.08).lower > 3


def test_event_is_chosen_on_one_half_and_judged_on_fresh_runs():
    """A family costs no multiple testing: 200 useless events on a constant law show no more than one."""
    seen = []

    def mechanism(value, runs, rng):
        seen.append(rng.random((runs, 200)) < 0.5)
        return seen[-1]

    family = [lambda x, k=k: x[:, k] for k in range(200)]
    rejected = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        result = audit.lower_bound(mechanism, (0, 1), events=family, runs=400, confidence=0.9, rng=rng)
        assert [len(x) for x in seen] == [200] * 4
        assert result.runs == 200
        fresh = seen[2:]
        assert result.counts == tuple(int(x[:, result.event].sum()) for x in fresh)
        rejected += result.lower > 0
        seen.clear()
    # at most one in ten in the long run; 13 of 40 or more has chance 1e-4
    assert rejected <= 12


def test_one_event_uses_all_runs_in_bounded_batches():
    """Runs are cut into batches and none is lost."""
    sizes = []

    def mechanism(value, runs, rng):
        sizes.append(runs)
        return np.full(runs, value)

    runs = 2 * audit.BATCH + 5
    result = audit.lower_bound(
        mechanism, (0, 1), events=lambda x: x == 1, runs=runs, rng=np.random.default_rng(1)
    )
    assert result.counts == (0, runs)
    assert result.runs == runs
    assert max(sizes) == audit.BATCH


def test_power_is_bounded_by_the_number_of_runs():
    """Publishing the data in the clear shows `largest_provable`, about log(runs / log(4 / (1 - confidence)))."""
    for runs in (10, 1000, 50_000):
        result = audit.lower_bound(
            lambda value, size, rng: np.full(size, value),
            (0, 1),
            events=lambda x: x == 1,
            runs=runs,
            confidence=0.99,
            rng=np.random.default_rng(1),
        )
        assert result.lower == result.ceiling == audit.largest_provable(runs, 0.99)
        assert result.estimate == result.upper == math.inf
    assert audit.largest_provable(50_000, 0.99) == pytest.approx(math.log(50_000 / math.log(400)), abs=1e-3)
    bounds = [audit.largest_provable(n, 0.99, delta=0.1) for n in (10, 100, 1000)]
    assert bounds == sorted(bounds)


def test_single_runs_can_be_audited():
    """`one_by_one` and `for_each` turn a mechanism and an event of one outcome into batches."""
    mechanism = audit.one_by_one(lambda value, rng: {"noisy": value + rng.laplace(scale=1.0)})
    event = audit.for_each(lambda outcome: outcome["noisy"] <= 0)
    result = audit.lower_bound(mechanism, (0.0, 1.0), events=event, runs=4000, rng=np.random.default_rng(2))
    assert 0.8 < result.lower <= 1 <= result.upper


def test_same_seed_same_result():
    """All chance comes from the generator."""
    assert audit_laplace(1.0, runs=1000) == audit_laplace(1.0, runs=1000)
    assert audit_laplace(1.0, runs=1000) != audit_laplace(1.0, runs=1000, seed=2)


def test_claims_may_be_guarantees_of_the_same_delta():
    """A guarantee is compared by its epsilon, and refused when it speaks of another delta."""
    result = audit.from_counts((700, 120), runs=1000)
    assert result.passes(Guarantee("ex-ante", 2.0, Neighbours.REPLACE_ONE))
    assert not result.passes(Guarantee("ex-ante", 1.0, Neighbours.REPLACE_ONE))
    assert result.passes(math.inf)
    with pytest.raises(ValueError, match=r"claim must have the audit.s delta 0\.0, got 0\.1"):
        result.passes(Guarantee("ex-ante", 2.0, Neighbours.REPLACE_ONE, delta=0.1))
    with pytest.raises(ValueError, match="claim must be nonnegative"):
        result.passes(-1.0)
    with pytest.raises(ValueError, match="claim must be finite"):
        result.passes(math.nan)


def never(x):
    return np.zeros(len(x), dtype=bool)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"runs": 1}, ValueError, "runs must be at least 2"),
        ({"runs": 10.0}, TypeError, "runs must be an integer"),
        ({"confidence": 1.0}, ValueError, "confidence must lie strictly between 0 and 1"),
        ({"delta": 1.0}, ValueError, r"delta must lie in \[0, 1\)"),
        ({"delta": -0.1}, ValueError, r"delta must lie in \[0, 1\)"),
        ({"events": []}, ValueError, "events must hold at least one event"),
        ({"events": [never, 3]}, TypeError, "events must be callables"),
        ({"events": lambda x: x}, ValueError, "events must answer with 10 booleans"),
        ({"events": lambda x: x[:3] > 0}, ValueError, "events must answer with 10 booleans"),
        ({"pair": (0, 1, 2)}, ValueError, "pair must be a tuple of two data sets"),
        ({"rng": 7}, TypeError, "rng must be a numpy.random.Generator"),
    ],
)
def test_bad_input_is_refused_by_name(change, error, message):
    """Errors name the argument."""
    options = {"pair": (0.0, 1.0), "events": never, "runs": 10, "rng": np.random.default_rng(1)} | change
    with pytest.raises(error, match=message):
        audit.lower_bound(laplace_mechanism(1.0), options.pop("pair"), **options)


def test_counts_are_checked():
    """Counts beyond the runs are refused."""
    with pytest.raises(ValueError, match="counts must not exceed 10 runs"):
        audit.from_counts((11, 0), runs=10)
    with pytest.raises(ValueError, match="counts must be at least 0"):
        audit.from_counts((-1, 0), runs=10)
