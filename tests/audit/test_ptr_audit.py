"""What an attacker can prove against propose-test-release, and against the thresholds that are in circulation.

Audits run at confidence .999 with fixed seeds: a right mechanism fails one of them with probability below .001.
Where the guarantee is tight the audit comes close to it; every kind of audit has a planted fault that it refutes.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_dp import audit
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release
from adaptive_dp.ptr import classic, flaws_framework, framework, private_bounds, uniform_bound
from adaptive_dp.ptr.distances import Median, Mode, Pairs

pytestmark = pytest.mark.audit
CONFIDENCE = 0.999
MEDIAN = Median(0, 7)
# The median of the first is 3.5, of the second 7, and the distance of the first is 0: it must not pass.
BAD_PAIR = ((0.0, 7.0), (0.0, 7.0, 7.0))


def number_below(limit):
    return audit.for_each(lambda release: not release.refused and release.value < limit)


def audited(run, pair, events, *, runs, delta, seed=1):
    return audit.lower_bound(
        audit.one_by_one(run),
        pair,
        events=events,
        runs=runs,
        confidence=CONFIDENCE,
        delta=delta,
        rng=np.random.default_rng(seed),
    )


def classic_run(epsilon, delta, query=MEDIAN, bound=0.01, calibration="sharp"):
    def run(data, rng):
        return classic.propose_test_release(
            data, query, bound=bound, epsilon=epsilon, delta=delta, calibration=calibration, rng=rng
        )

    return run


def test_classic_passes_and_needs_its_delta():
    epsilon, delta = 0.5, 0.1
    run, event = classic_run(epsilon, delta), number_below(5.25)
    claim = run(BAD_PAIR[0], np.random.default_rng(0)).guarantee
    assert audited(run, BAD_PAIR, event, runs=1500, delta=delta).passes(claim)
    # the sharp threshold spends all of delta, the printed one half of it
    assert not audited(run, BAD_PAIR, event, runs=1500, delta=0.6 * delta).passes(2 * epsilon)
    printed = classic_run(epsilon, delta, calibration="printed")
    assert audited(printed, BAD_PAIR, event, runs=800, delta=delta / 2).passes(2 * epsilon)


def test_classic_comes_close_to_two_epsilon():
    """Test and release both leak: a neighbour passes more often, and its number is on the other side."""
    epsilon, delta, bound = 0.5, 0.1, 10.0
    pair = ([0] * 10, [0] * 9)  # distances 1 and 2; 45 and 36 pairs
    found = audited(
        classic_run(epsilon, delta, Pairs(2), bound), pair, number_below(36.0), runs=4000, delta=0.0, seed=2
    )
    assert found.passes(2 * epsilon)
    assert found.lower > 0.5 * 2 * epsilon
    assert found.estimate > 0.8 * 2 * epsilon


@pytest.mark.parametrize("rule", ["log(2 / delta) / (2 epsilon)", "log(delta) / epsilon, sign lost"])
def test_wrong_thresholds_are_refuted(monkeypatch, rule):
    epsilon, delta = 0.5, 0.01
    wrong = flaws_framework.threshold_table(epsilon, delta).set_index("rule").loc[rule, "threshold"]
    monkeypatch.setattr(classic, "ptr_threshold", lambda *args, **options: wrong)
    found = audited(classic_run(epsilon, delta), BAD_PAIR, number_below(5.25), runs=3000, delta=delta)
    assert not found.passes(2 * epsilon)


def test_reversed_display_is_refuted():
    epsilon, delta = 0.5, 0.01
    threshold = classic.ptr_threshold(epsilon, delta, calibration="printed")
    guarantee = Guarantee("ex-ante", epsilon, Neighbours.ADD_REMOVE)

    def decide(data, scale, budget, rng):
        noisy = MEDIAN.distance(data, scale * budget) + rng.laplace(scale=1 / epsilon)
        return Release(not noisy > threshold, guarantee)

    def run(data, rng):
        return framework.generalized_ptr(
            data,
            proposal=0.01 / epsilon,
            mechanism=framework.laplace_mechanism(MEDIAN),
            check=framework.PrivateTest(decide, epsilon, 0.0, delta),
            epsilon=epsilon,
            rng=rng,
        )

    found = audited(run, BAD_PAIR, number_below(5.25), runs=500, delta=delta)
    assert not found.passes(2 * epsilon)
    assert found.lower > 2.0


def test_stable_mode():
    epsilon, delta = 0.5, 0.1
    pair = ([0, 1], [0, 1, 1])  # the mode is 0 and can change, then it is 1
    event = audit.for_each(lambda release: release.value == 0)

    def run(data, rng):
        return classic.release_if_stable(data, Mode(2), epsilon=epsilon, delta=delta, rng=rng)

    assert audited(run, pair, event, runs=1500, delta=delta).passes(
        run(pair[0], np.random.default_rng(0)).guarantee
    )
    assert not audited(run, pair, event, runs=1500, delta=0.6 * delta).passes(epsilon)


def pairs_run(bound, epsilon=0.5):
    """Number of pairs with Laplace noise of scale 10, if a private bound of its loss allows it."""
    return lambda data, rng: framework.generalized_ptr(
        data,
        proposal=10.0,
        mechanism=framework.laplace_mechanism(Pairs(2)),
        check=bound,
        epsilon=epsilon,
        rng=rng,
    )


@pytest.mark.parametrize("delta_hat", [0.0, 0.01])
def test_generalized_with_a_private_upper_bound(delta_hat):
    mechanism = framework.laplace_mechanism(Pairs(2))
    bound = framework.loss_bound(
        mechanism.loss, lambda scale: 1 / scale, epsilon_hat=0.5, delta_prime=0.1, delta_hat=delta_hat
    )
    run, pair = pairs_run(bound), ([0] * 200, [0] * 201)  # losses 20, far over the budget of 0.5
    claim = run(pair[0], np.random.default_rng(0)).guarantee
    assert (claim.epsilon, claim.delta) == (1.0, delta_hat + 0.1)
    near = ([0] * 5, [0] * 6)  # a loss of 0.5 is within budget, 0.6 is not
    event = number_below(12.5)
    for data in (pair, near):
        assert audited(run, data, event, runs=700, delta=claim.delta).passes(claim)


def test_an_upper_bound_that_forgets_its_quantile_is_refuted():
    """Losses of the same size as the noise: without the shift, half of the bad data sets pass."""

    def release(data, scale, rng):
        noise = private_bounds.BoundNoise(1 / scale, 0.5, 0.01)
        return Release(Pairs(2).local_sensitivity(data) / scale + noise.draw(rng), noise.guarantee())

    class Far(Pairs):
        def value(self, data):
            return 1000.0 * len(data)

    run = lambda data, rng: framework.generalized_ptr(  # noqa: E731
        data,
        proposal=10.0,
        mechanism=framework.DataDependentMechanism(
            framework.laplace_mechanism(Far(2)).run, lambda data, scale: len(data) / scale
        ),
        check=framework.PrivateUpperBound(release, 0.5, 0.0, 0.01),
        epsilon=0.5,
        rng=rng,
    )
    found = audited(run, ([0] * 6, [0] * 7), number_below(6500.0), runs=800, delta=0.01)
    assert not found.passes(1.0)


def test_uniform_bound():
    epsilon, hat, delta = 0.5, 0.5, 0.1
    pair = ([0] * 30, [0] * 31)

    def run(data, rng):
        return uniform_bound.release_with_private_bound(
            data, Pairs(2), epsilon=epsilon, epsilon_hat=hat, delta=delta, smallest=1.0, rng=rng
        )

    scale = audit.for_each(lambda release: release.value.proposal * epsilon > 34.0)
    low = audit.for_each(lambda release: release.value.value < 450.0)
    claim = run(pair[0], np.random.default_rng(0)).guarantee
    found = audited(run, pair, [scale, low], runs=1500, delta=0.0)
    assert found.lower <= claim.epsilon
    assert found.lower > 0.1
    assert audited(run, pair, [scale, low], runs=1000, delta=delta).passes(claim)


def test_refusal_is_a_value_under_the_same_guarantee():
    """The refusal alone tells distances 1 and 2 apart, by no more than the test's share."""
    epsilon, delta = 1.0, 0.1
    run = classic_run(epsilon, delta, Pairs(2), 10.0)
    event = audit.for_each(lambda release: isinstance(release.value, Refused))
    found = audited(run, ([0] * 10, [0] * 9), event, runs=2000, delta=0.0)
    assert 0.2 < found.lower <= epsilon
    assert math.isfinite(found.estimate)
