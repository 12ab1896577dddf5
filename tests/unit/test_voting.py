"""Binary voting: exact losses and laws, guarantees by enumeration of all gaps, audits, Figure B.1, bad input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad

from adaptive_dp import audit
from adaptive_dp.privacy import Neighbours, Refused
from adaptive_dp.ptr import flaws_selection as flaws
from adaptive_dp.ptr.voting import (
    approximate_loss,
    check_votes,
    class_zero_probability,
    classic_ptr_law,
    classic_ptr_vote,
    error_rate,
    generalized_ptr_law,
    generalized_ptr_vote,
    largest_delta,
    largest_losses,
    loss_above,
    minority_probability,
    pure_loss,
    report_noisy_max,
    report_noisy_max_law,
    smallest_gap,
)
from adaptive_dp.ptr.voting_experiment import budget_against_error, loss_against_gap, privacy_against_error

GAPS = np.arange(-300, 301)


def rng(seed=0):
    return np.random.default_rng(seed)


# --- probabilities and losses -------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "epsilon"), [(0, 1.0), (3, 0.5), (-2, 0.7), (1, 4.0), (-7, 0.3)])
def test_probability_of_class_zero_by_integration(gap, epsilon):
    """Class 0 wins where X - Y > epsilon t: integrate the tail of X over the density of Y."""

    def tail(x):
        return math.exp(-x) / 2 if x > 0 else 1 - math.exp(x) / 2

    points = sorted({0.0, -epsilon * gap})
    pieces = [-40.0, *points, 40.0]
    total = sum(
        quad(lambda y: math.exp(-abs(y)) / 2 * tail(y + epsilon * gap), a, b, epsabs=1e-13)[0]
        for a, b in itertools.pairwise(pieces)
    )
    assert class_zero_probability(gap, epsilon=epsilon) == pytest.approx(total, abs=1e-10)


def test_pure_loss_is_the_largest_of_all_ratios():
    for epsilon in (0.05, 0.7, 1.0, 3.0):
        gaps = np.arange(-8, 9) if epsilon > 1 else np.arange(-25, 26)
        p = {t: float(class_zero_probability(t, epsilon=epsilon)) for t in range(-27, 28)}
        q = {t: p[-t] for t in p}
        for t in gaps:
            brute = max(abs(math.log(law[t] / law[t + step])) for law in (p, q) for step in (-1, 1))
            assert pure_loss(t, epsilon=epsilon) == pytest.approx(brute, rel=1e-9)
            right = epsilon + math.log(1 - epsilon / (2 + epsilon * (abs(t) + 1)))
            assert pure_loss(t, epsilon=epsilon) == pytest.approx(right, rel=1e-9)


def test_pure_loss_increases_to_epsilon():
    loss = pure_loss(np.arange(0, 5000), epsilon=1.0)
    assert (np.diff(loss) > 0).all()
    assert loss[0] == pytest.approx(0.5945, abs=5e-5)
    assert loss[50] == pytest.approx(0.9810, abs=5e-5)
    assert 0.999 < loss[-1] < 1


def test_approximate_loss_of_erratum_17():
    found = approximate_loss([0, 5, 10, 14, 15, 16, 17, 100], epsilon=1.0, delta=1e-6)
    np.testing.assert_allclose(found[:5], [0.5945, 0.8664, 0.9126, 0.8099, 0.5818], atol=5e-5)
    assert (found[5:] == 0).all()
    one = approximate_loss([0, 5, 10, 14, 15], epsilon=1.0, delta=1e-6, one_sided=True)
    np.testing.assert_allclose(one, [0.5945, 0.8664, 0.9126, 0.5818, 0.0], atol=5e-5)


def test_approximate_loss_is_the_smallest_epsilon():
    """Against the hockey-stick divergence: enough at the loss, not enough just below."""
    generator = rng(1)
    for _ in range(300):
        epsilon, delta = 10 ** generator.uniform(-1.5, 0.8), 10 ** generator.uniform(-8, -0.5)
        t = int(generator.integers(-20, 21))
        laws = report_noisy_max_law([t - 1, t, t + 1], epsilon=epsilon)
        for one_sided in (False, True):
            loss = float(approximate_loss(t, epsilon=epsilon, delta=delta, one_sided=one_sided))

            def needed(level, one_sided=one_sided, laws=laws):
                factor = math.exp(level)
                pairs = [(laws[1], laws[i]) for i in (0, 2)]
                pairs += [] if one_sided else [(b, a) for a, b in pairs]
                return max(float(np.maximum(a - factor * b, 0).sum()) for a, b in pairs)

            assert needed(loss) <= delta * (1 + 1e-7) + 1e-15
            if loss > 1e-6:
                assert needed(loss * 0.999) > delta
            assert loss <= float(pure_loss(t, epsilon=epsilon)) + 1e-12
            assert approximate_loss(-t, epsilon=epsilon, delta=delta, one_sided=one_sided) == loss


def test_table_of_suprema():
    for epsilon, delta, one_sided in (
        (1.0, 1e-6, False),
        (0.1, 1e-6, True),
        (5.0, 1e-3, False),
        (0.3, 0.4, True),
    ):
        table = largest_losses(epsilon, delta, one_sided)
        losses = approximate_loss(
            np.arange(4 * table.size), epsilon=epsilon, delta=delta, one_sided=one_sided
        )
        brute = np.maximum.accumulate(losses[::-1])[::-1]
        np.testing.assert_array_equal(table, brute[: table.size])
        assert (brute[table.size - 1 :] == 0).all()
        for budget in (0.0, 0.3 * epsilon, epsilon):
            assert smallest_gap(budget, epsilon=epsilon, delta=delta, one_sided=one_sided) == np.argmax(
                brute <= budget
            )
    above = loss_above([-5.0, 5.0, 5.2, 14.5, 80.0], epsilon=1.0, delta=1e-6, one_sided=False)
    np.testing.assert_allclose(above, [0.9126, 0.9126, 0.9126, 0.5818, 0.0], atol=5e-5)


# --- guarantees by enumeration ------------------------------------------------------------------------


def tail_is_covered(law, delta):
    """At the last gap all but the majority is within delta; it falls from there on, and bounds the total variation."""
    return law[-1, 0] + law[-1, 2] <= delta


def test_generalized_ptr_keeps_its_guarantee_at_every_gap():
    """400 settings of all parameters, 600 neighbouring pairs each, both directions, both thresholds."""
    generator = rng(2)
    tails = 0
    for trial in range(400):
        noise, test = 10 ** generator.uniform(-1, 0.8, 2)
        delta, test_delta = 10 ** generator.uniform(-9, -0.5, 2)
        budget = noise * generator.choice([0.0, generator.uniform(0, 1)])
        law = generalized_ptr_law(
            GAPS,
            epsilon=budget,
            delta=delta,
            noise_epsilon=noise,
            test_epsilon=test,
            test_delta=test_delta,
            calibration=("sharp", "printed")[trial % 2],
            one_sided=bool(trial % 3),
        )
        np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)
        promised = max(delta, test_delta)
        assert largest_delta(law, budget + test).max() <= promised * (1 + 1e-9)
        tails += tail_is_covered(law, promised)
    assert tails > 300


def test_the_sum_of_deltas_is_not_needed_and_the_maximum_nearly_is():
    """A gap that just may not pass, no budget for the vote: the promised delta is attained up to a factor of 4."""
    best = 0.0
    for delta in (1e-3, 1e-2, 1e-1):
        for enough_noise in (1.0, 5.0, 20.0):
            law = generalized_ptr_law(
                GAPS,
                epsilon=0.0,
                delta=delta,
                noise_epsilon=enough_noise,
                test_epsilon=0.01,
                test_delta=delta,
            )
            best = max(best, float((largest_delta(law, 0.01) / delta).max()))
    assert 0.25 < best <= 1 + 1e-9


def test_classic_ptr_keeps_its_guarantee_and_attains_it():
    for epsilon, delta in ((0.1, 1e-6), (0.5, 1e-3), (2.0, 0.2)):
        law = classic_ptr_law(GAPS, epsilon=epsilon, delta=delta)
        needed = largest_delta(law, epsilon)
        assert needed.max() == pytest.approx(delta, rel=1e-9)  # a tie against a gap of one
        assert GAPS[int(np.argmax(needed))] == 0
        printed = classic_ptr_law(GAPS, epsilon=epsilon, delta=delta, calibration="printed")
        assert largest_delta(printed, epsilon).max() == pytest.approx(delta / 2, rel=1e-9)


def test_report_noisy_max_is_private_and_not_more():
    for epsilon in (0.1, 1.0, 5.0):
        gaps = np.arange(-60, 61) if epsilon < 2 else np.arange(-25, 26)
        law = report_noisy_max_law(gaps, epsilon=epsilon)
        assert largest_delta(law, epsilon).max() == 0
        assert largest_delta(law, epsilon * 0.7).max() > 0


@pytest.mark.parametrize(("budget", "test"), [(0.6, 0.1), (0.87, 0.01)])
def test_lower_bound_in_the_loss_breaks_the_promise(budget, test):
    frame = flaws.lower_bound_in_the_loss(budget=budget, test_epsilon=test).set_index("loss")
    assert frame.violated.tolist() == [True, True, True, False]
    assert (frame.delta_exact.iloc[:3] > 20 * frame.delta_promised.iloc[:3]).all()


def test_printed_formulas_of_theorem_b32():
    frame = flaws.sign_of_the_gap().set_index("gap")
    assert frame.loc[-2, "printed"] == pytest.approx(0.6083, abs=5e-5)
    assert frame.loc[-2, "right"] == pytest.approx(0.7904, abs=5e-5)
    assert frame.loc[-10, "printed"] < 0  # no probability at all
    assert frame.loc[3, "printed"] == pytest.approx(frame.loc[3, "right"])
    losses = flaws.printed_losses()
    assert (losses.printed < 0).all()
    np.testing.assert_allclose(losses.pure, losses.laplace + losses.printed, rtol=1e-12)  # epsilon = 1
    assert losses.printed_absolute.is_monotonic_decreasing
    assert losses.pure.is_monotonic_increasing


# --- the mechanisms against their laws ----------------------------------------------------------------

SETTING = {"epsilon": 0.4, "delta": 0.05, "noise_epsilon": 0.6, "test_epsilon": 0.5, "test_delta": 0.1}


def outcome(release):
    return 2 if release.refused else release.value


@pytest.mark.parametrize("votes", [(10, 10), (3, 9), (20, 8)])
def test_frequencies_agree_with_the_laws(votes):
    """2,000 runs of each mechanism; chi-square, each with a false-fail rate of 1e-6."""
    gap, generator, runs = votes[1] - votes[0], rng(3), 2000
    cases = [
        (lambda: report_noisy_max(votes, epsilon=0.3, rng=generator), report_noisy_max_law(gap, epsilon=0.3)),
        (
            lambda: classic_ptr_vote(votes, epsilon=0.5, delta=0.05, rng=generator),
            classic_ptr_law(gap, epsilon=0.5, delta=0.05),
        ),
        (lambda: generalized_ptr_vote(votes, **SETTING, rng=generator), generalized_ptr_law(gap, **SETTING)),
    ]
    for run, law in cases:
        counts = np.bincount([outcome(run()) for _ in range(runs)], minlength=3)
        possible = law[0] > 0
        assert counts[~possible].sum() == 0
        expected = runs * law[0][possible]
        assert ((counts[possible] - expected) ** 2 / expected).sum() < 27.7  # 2 degrees of freedom at most


@pytest.mark.audit
def test_audit_of_generalized_ptr():
    """All outcomes as events at the promised pair; false-fail rate below 1e-6."""

    def once(votes, generator):
        return outcome(generalized_ptr_vote(votes, **SETTING, rng=generator))

    for votes in ((10, 10), (4, 12)):
        result = audit.lower_bound(
            audit.one_by_one(once),
            (votes, (votes[0], votes[1] + 1)),
            events=[audit.for_each(lambda found, k=k: found == k) for k in range(3)],
            runs=2000,
            confidence=1 - 5e-7,
            delta=0.1,
            rng=rng(4),
        )
        promised = generalized_ptr_vote(votes, **SETTING, rng=rng()).guarantee
        assert promised.delta == 0.1
        assert result.passes(promised)
        assert result.ceiling > promised.epsilon  # so many runs could have refuted it


def test_guarantees_and_traces():
    release = report_noisy_max([3, 5], epsilon=2, rng=rng())
    assert (release.guarantee.epsilon, release.guarantee.delta) == (2.0, 0.0)
    assert release.guarantee.neighbours == Neighbours.ADD_REMOVE
    release = classic_ptr_vote([0, 500], epsilon=1.0, delta=1e-6, rng=rng())
    assert release.value == 1
    assert (release.guarantee.epsilon, release.guarantee.delta) == (1.0, 1e-6)
    assert isinstance(classic_ptr_vote([5, 5], epsilon=1.0, delta=1e-6, rng=rng()).value, Refused)
    setting = {"epsilon": 0.1, "delta": 1e-6, "noise_epsilon": 1.0, "test_epsilon": 0.5, "test_delta": 1e-7}
    release = generalized_ptr_vote(np.array([500, 0]), **setting, voters=500, rng=rng())
    assert release.value == 0
    assert release.guarantee.epsilon == pytest.approx(0.6)
    assert release.guarantee.delta == 1e-6  # the larger of the two, not the sum
    assert dict(release.guarantee.parts) == {"test": 0.5, "release": 0.1}
    refused = generalized_ptr_vote([5, 0], **setting, rng=rng())
    assert refused.refused
    assert refused.guarantee == release.guarantee
    assert refused.trace["lower_bound"] < 5
    # Noise that is within budget at every gap needs no test.
    law = generalized_ptr_law(
        [1, 5], epsilon=1.0, delta=0.1, noise_epsilon=0.9, test_epsilon=0.1, test_delta=0.1
    )
    assert (law[:, 2] == 0).all()


# --- Figure B.1 ---------------------------------------------------------------------------------------


def test_loss_against_gap():
    frame = loss_against_gap()
    assert list(frame.gap) == list(range(31))
    assert (frame.one_sided <= frame.approximate + 1e-15).all()
    assert (frame.approximate <= frame.pure).all()
    assert (frame.pure < frame.laplace).all()
    assert frame.largest_above.is_monotonic_decreasing
    assert (frame.largest_above >= frame.approximate).all()
    assert frame.approximate.idxmax() == 10
    assert (frame.approximate[16:] == 0).all()
    # At the thesis's epsilon of 10 the loss never falls at delta = 0.
    ten = loss_against_gap(range(5), epsilon=10.0)
    assert ten.pure.is_monotonic_increasing
    assert (ten.approximate[3:] == 0).all()


def test_privacy_against_error_exact_against_sampled():
    frame = privacy_against_error([0.1, 0.3, 0.4, 0.5, 0.8], trials=20_000, rng=rng(5))
    rows = frame[(frame.generalized > frame.generalized_low) & (frame.sampled_high > frame.sampled_low)]
    assert len(rows) >= 2
    # 99 % intervals widened to a false-fail rate below 1e-5
    half = (rows.sampled_high - rows.sampled) * 2
    assert ((rows.generalized - rows.sampled).abs() <= half).all()
    expected = [float(minority_probability(100, epsilon=e)) for e in frame.epsilon]
    np.testing.assert_allclose(frame.error, expected, rtol=1e-10)
    for _, row in frame.iterrows():
        refused = error_rate(classic_ptr_law(100, epsilon=row.classic, delta=1e-6), 100)
        assert float(refused[0]) == pytest.approx(row.error, rel=1e-6)


def test_what_figure_b1_claims_and_what_comes_out():
    frame = privacy_against_error(np.linspace(0.02, 0.8, 79))
    # Printed range of b: errors beyond the reach of any experiment.
    assert privacy_against_error([2.0]).log10_error[0] < -84
    # The gain over the Laplace mechanism does not begin at an error of 1e-5 ...
    gaining = frame[frame.generalized < frame.laplace]
    assert -17 < gaining.log10_error.max() < -14
    # ... and generalized propose-test-release is not always below the classic one.
    assert (frame.generalized > frame.classic).any()
    assert (frame.generalized < frame.classic).any()


def test_smallest_budgets():
    frame = budget_against_error([1e-2, 1e-5, 1e-12], noises=30)
    for _, row in frame.iterrows():
        assert float(minority_probability(100, epsilon=row.laplace)) == pytest.approx(row.error, rel=1e-9)
        assert row.generalized <= row.laplace_delta <= row.laplace < row.classic
        law = classic_ptr_law(100, epsilon=row.classic, delta=1e-6)
        assert float(error_rate(law, 100)[0]) == pytest.approx(row.error, rel=1e-9)


def test_best_test_has_the_error_it_is_asked_for():
    from adaptive_dp.ptr.voting_experiment import _best_test

    total, noise, test, budget = _best_test(1e-4, gap=60, delta=1e-3, noise_epsilon=0.8)
    law = generalized_ptr_law(
        60, epsilon=budget, delta=1e-3, noise_epsilon=noise, test_epsilon=test, test_delta=1e-3
    )
    assert total == pytest.approx(test + budget)
    assert float(error_rate(law, 60)[0]) == pytest.approx(1e-4, rel=1e-6)


# --- bad input ----------------------------------------------------------------------------------------

GOOD = {"epsilon": 0.1, "delta": 1e-6, "noise_epsilon": 1.0, "test_epsilon": 0.5, "test_delta": 1e-6}


@pytest.mark.parametrize(
    ("votes", "error", "words"),
    [
        ([1, -1], ValueError, "nonnegative"),
        ([1.5, 1], ValueError, "whole"),
        ([1, 2, 3], ValueError, "two counts"),
        ([[1, 2]], ValueError, "dimension"),
        ([1, math.nan], ValueError, "finite"),
        (["a", "b"], TypeError, "votes"),
    ],
)
def test_bad_votes(votes, error, words):
    for run in (
        lambda: report_noisy_max(votes, epsilon=1.0, rng=rng()),
        lambda: classic_ptr_vote(votes, epsilon=1.0, delta=1e-6, rng=rng()),
        lambda: generalized_ptr_vote(votes, **GOOD, rng=rng()),
    ):
        with pytest.raises(error, match=words):
            run()


def test_votes_must_sum_to_the_voters():
    assert check_votes([2, 3], voters=5) == (2, 3)
    with pytest.raises(ValueError, match="sum"):
        check_votes([2, 3], voters=6)
    with pytest.raises(ValueError, match="sum"):
        generalized_ptr_vote([2, 3], **GOOD, voters=4, rng=rng())


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"epsilon": -0.1}, ValueError, "budget|epsilon"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1.0}, ValueError, "delta"),
        ({"noise_epsilon": 0.0}, ValueError, "noise_epsilon"),
        ({"noise_epsilon": 1e-9}, ValueError, "too small"),
        ({"test_epsilon": -1.0}, ValueError, "test_epsilon"),
        ({"test_delta": 0.0}, ValueError, "test_delta"),
        ({"calibration": "loose"}, ValueError, "calibration"),
        ({"rng": 1}, TypeError, "rng"),
    ],
)
def test_bad_parameters_before_any_noise(changes, error, words):
    generator = rng()
    before = generator.bit_generator.state
    with pytest.raises(error, match=words):
        generalized_ptr_vote([5, 2], **{**GOOD, "rng": generator, **changes})
    assert generator.bit_generator.state == before


@pytest.mark.parametrize(
    "call",
    [
        lambda: loss_against_gap([-1]),
        lambda: loss_against_gap([0.5]),
        lambda: privacy_against_error([0.1], gap=1),
        lambda: privacy_against_error([0.0]),
        lambda: budget_against_error([0.3]),
        lambda: error_rate(report_noisy_max_law([0], epsilon=1.0), [0]),
        lambda: largest_losses(1e-9, 1e-6),
        lambda: smallest_gap(-1.0, epsilon=1.0, delta=1e-6),
    ],
)
def test_bad_input_of_the_tables(call):
    with pytest.raises(ValueError):
        call()
    with pytest.raises(TypeError, match="rng"):
        privacy_against_error([0.1], trials=10)
