"""What an attacker can prove against OPSamp, beside the exact privacy of the pair, and the printed algorithm refuted.

On a line with W = {-1, 1} the law of what is released is known exactly (`sampled_exact`). Confidence .999 in each
audit: a correct mechanism fails one with probability at most .001, all of them with at most .005; seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_dp import audit
from adaptive_dp.oracle_perturbation.opsamp import opsamp, plan, printed_plan
from adaptive_dp.oracle_perturbation.sampled_exact import LinePair
from adaptive_dp.oracle_perturbation.sampled_oracles import list_grid
from adaptive_dp.oracle_perturbation.sampled_problems import BoxGrid, GridLosses

pytestmark = pytest.mark.audit
CONFIDENCE, RUNS = 0.999, 200_000
EPSILON, DELTA, RECORDS = 1.0, 0.01, 400
RISING, FALLING, FLAT = [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]


def worst_line():
    """A plan, and the pair that attains the stability bound: the threshold of sigma lies at 0 and at 2 G = 1.

    The other losses sum to -w k / 2 with k = 2 / eta, which the centred noise undoes.
    """
    facts = {"epsilon": EPSILON, "delta": DELTA, "records": RECORDS, "dimension": 1}
    facts |= {"diameter": 2.0, "lipschitz": 0.5}
    falling = round(2 / plan(**facts).eta) - 1
    chosen = plan(**facts, eta=2 / (falling + 1), gap=1e-9)
    rest = [FALLING] * falling + [FLAT] * (RECORDS - 1 - falling)
    pair = tuple(GridLosses(np.array([one, *rest]), BoxGrid(1, 2), 0.5) for one in (RISING, FALLING))
    law = LinePair([-1.0, 1.0], pair[0].total, pair[1].total, chosen.eta)
    return chosen, pair, law


def line_batch(chosen, law):
    """The released number, ``runs`` times, from the law of the answers: what `opsamp` publishes (checked below)."""

    def mechanism(side, runs, rng):
        ups = rng.binomial(chosen.calls, law.marginal(side)[1], runs)
        return np.clip(2 * ups / chosen.calls - 1 + rng.laplace(0, chosen.scale, runs), -1, 1)

    return mechanism


def audited(mechanism, thresholds, *, delta, seed, runs=RUNS):
    return audit.lower_bound(
        mechanism, (0, 1), events=audit.half_lines(lambda x: x, thresholds), runs=runs,
        confidence=CONFIDENCE, delta=delta, rng=np.random.default_rng(seed),
    )  # fmt: skip


def test_the_library_publishes_what_is_audited():
    chosen, pair, law = worst_line()
    assert law.mean_distance == pytest.approx(chosen.stability, rel=1e-3)  # nothing is lost in the lemma
    for side in (0, 1):
        for seed in range(5):
            release = opsamp(
                pair[side], epsilon=EPSILON, delta=DELTA, chosen=chosen, rng=np.random.default_rng(seed)
            )
            noise = np.random.default_rng(seed)
            tilts = noise.exponential(1 / chosen.eta, (chosen.calls, 1)) - 1 / chosen.eta
            edge = pair[side].total[1] - pair[side].total[0]  # w = 1 where 2 tilt exceeds L(1) - L(-1)
            expected = np.where(2 * tilts[:, 0] > edge, 1.0, -1.0).mean()
            assert release.trace["average"][0] == pytest.approx(expected, abs=1e-12)
            assert release.value[0] == np.clip(
                release.trace["average"][0] + noise.laplace(0, chosen.scale, 1)[0], -1, 1
            )
        tilts = np.random.default_rng(99).exponential(1 / chosen.eta, (200_000, 1)) - 1 / chosen.eta
        share = float(np.mean(list_grid(pair[side], tilts).points == 1.0))
        assert share == pytest.approx(law.marginal(side)[1], abs=5 * 0.5 / math.sqrt(200_000))


def test_claim_exact_value_and_audit_are_in_order():
    chosen, _, law = worst_line()
    profile = law.profile(chosen.calls, chosen.scale)
    exact = profile.epsilon(DELTA)
    assert law.distance_failure(chosen.calls, chosen.sensitivity) <= DELTA
    assert profile.delta(EPSILON) <= DELTA
    assert 0.3 * EPSILON < exact < 0.6 * EPSILON  # the price of 13 / 6 and of a union bound
    result = audited(line_batch(chosen, law), np.linspace(-1, 1, 21), delta=DELTA, seed=1)
    assert result.passes(EPSILON)
    assert result.lower <= exact
    assert result.lower >= 0.7 * exact
    assert result.ceiling > 4 * EPSILON


def test_a_third_of_the_noise_is_refuted():
    chosen, _, law = worst_line()

    def mechanism(side, runs, rng):
        ups = rng.binomial(chosen.calls, law.marginal(side)[1], runs)
        return 2 * ups / chosen.calls - 1 + rng.laplace(0, chosen.scale / 3, runs)

    result = audited(mechanism, np.linspace(-1, 1, 21), delta=DELTA, seed=2)
    assert not result.passes(EPSILON)


def test_printed_units_are_refuted():
    """D = .001: the claim is epsilon = 1, the audit proves more than 4."""
    n, size, delta = 10_000, 0.001, 1e-4
    found = printed_plan(
        epsilon=EPSILON, delta=delta, records=n, dimension=1, diameter=size, euclidean_diameter=size, lipschitz=1.0
    )  # fmt: skip
    law = LinePair([0.0, size], [0.0, 2 * size], [0.0, 0.0], found.eta, centred=False)

    def mechanism(side, runs, rng):
        ups = rng.binomial(found.calls, law.marginal(side)[1], runs)
        return size * ups / found.calls + rng.laplace(0, found.sensitivity / EPSILON, runs)

    result = audited(mechanism, [size], delta=delta, seed=3)
    assert not result.passes(EPSILON)
    assert result.lower > 4


def test_eta_read_as_a_scale_is_refuted():
    """Two coordinates; one loss (2 + w_1 + w_2) / 4 replaced by (2 - w_1 - w_2) / 4 moves every answer across W."""
    n, delta = 10_000, 1e-4
    found = printed_plan(
        epsilon=EPSILON, delta=delta, records=n, dimension=2, diameter=2.0, euclidean_diameter=2 * math.sqrt(2),
        lipschitz=0.25,
    )  # fmt: skip
    for as_scale, fine in ((True, False), (False, True)):
        mean = found.eta if as_scale else 1 / found.eta

        def mechanism(side, runs, rng, mean=mean):
            edge = 0.25 if side == 0 else -0.25  # a coordinate is 1 where its noise exceeds this
            chance = math.exp(-max(edge, 0.0) / mean)
            ups = rng.binomial(found.calls, chance, (runs, 2))
            noise = rng.laplace(0, found.sensitivity / EPSILON, (runs, 2))
            return (2 * ups / found.calls - 1 + noise).min(axis=1)

        result = audited(mechanism, [-1.0, 0.0, 1.0], delta=delta, seed=4)
        assert result.passes(EPSILON) == fine


def test_two_coordinates_keep_their_claim():
    """The pair that moves both coordinates at once; the lemma is far from tight here, and so is the audit."""
    facts = {"epsilon": 4.0, "delta": DELTA, "records": RECORDS, "dimension": 2}
    chosen = plan(**facts, diameter=2.0, lipschitz=0.25)
    grid = BoxGrid(2, 2)
    up = (2 + grid.points().sum(axis=1)) / 4
    falling = round(4 / chosen.eta) - 1
    assert falling < RECORDS
    rest = [1 - up] * falling + [np.full(4, 0.5)] * (RECORDS - 1 - falling)
    pair = tuple(GridLosses(np.array([one, *rest]), grid, 0.25) for one in (up, 1 - up))

    def mechanism(side, runs, rng):
        # Coordinate by coordinate: the sum of the losses is linear, with this slope.
        slope = (pair[side].total[2] - pair[side].total[0]) / 2
        chance = math.exp(-chosen.eta * max(slope + 1 / chosen.eta, 0.0))
        ups = rng.binomial(chosen.calls, chance, (runs, 2))
        return np.clip(2 * ups / chosen.calls - 1 + rng.laplace(0, chosen.scale, (runs, 2)), -1, 1).sum(
            axis=1
        )

    release = opsamp(
        pair[0], epsilon=4.0, delta=DELTA, chosen=chosen, rng=np.random.default_rng(5), centred=True
    )
    assert release.value.shape == (2,)
    result = audited(mechanism, np.linspace(-2, 2, 9), delta=DELTA, seed=6)
    assert result.passes(release.guarantee)


def random_losses(count, points, slope, rng):
    """Lipschitz losses in [0, 1] on the points: lower envelopes of cones, clipped."""
    heights = rng.uniform(-0.5, 1.0, (count, points.size))
    cones = heights[:, np.newaxis, :] + slope * np.abs(points[:, np.newaxis] - points)
    return np.clip(cones.min(axis=2), 0.0, 1.0)


def test_no_random_pair_on_a_grid_breaks_the_claim_exactly():
    """No sampling: the exact profile, and the exact probability that the averages are far apart, for 40 pairs."""
    rng, grid = np.random.default_rng(7), BoxGrid(1, 9)
    points = grid.axis
    facts = {"epsilon": EPSILON, "delta": DELTA, "records": RECORDS, "dimension": 1}
    chosen = plan(**facts, diameter=2.0, lipschitz=0.5)
    worst = 0.0
    for trial in range(40):
        table = random_losses(RECORDS, points, 0.5, rng)
        if trial % 2:  # nearly flat sums, where one record decides
            table[1::2] = 1 - table[::2]
        other = table.copy()
        other[0] = 1 - other[0] if trial % 3 else random_losses(1, points, 0.5, rng)[0]
        pair = [GridLosses(losses, grid, 0.5) for losses in (table, other)]
        law = LinePair(points, pair[0].total, pair[1].total, chosen.eta)
        assert law.mean_distance <= chosen.stability
        assert law.distance_failure(chosen.calls, chosen.sensitivity) <= DELTA
        worst = max(worst, law.profile(chosen.calls, chosen.scale).epsilon(DELTA))
    assert 0.01 < worst <= EPSILON
