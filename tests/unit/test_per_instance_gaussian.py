"""The Gaussian mechanism's ex-post loss: the formula, its law, and the attack on a published loss."""

import math

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.experiments.statistics import proportion_interval
from adaptive_dp.per_instance.gaussian import (
    attack_counts,
    gaussian_ex_post_loss,
    gaussian_instance_epsilon,
    gaussian_loss,
    gaussian_shift,
    high_probability_loss,
    loss_exceedance,
    loss_quantile,
    noisy_count,
    recover_count,
)
from adaptive_dp.privacy import Neighbours

MUS = np.array([1e-3, 0.1, 0.5, 1.0, 3.0, 30.0, 1e3])


@pytest.fixture
def rng():
    return np.random.default_rng(20262)


@pytest.mark.parametrize("sigma", [1e-3, 0.7, 1e3])
def test_the_loss_is_the_log_ratio_of_the_densities(sigma, rng):
    own, other = rng.normal(size=(2, 4))
    outcomes = own + sigma * rng.normal(size=(5, 6, 4))
    brute = stats.norm.logpdf(outcomes, own, sigma).sum(-1) - stats.norm.logpdf(outcomes, other, sigma).sum(
        -1
    )
    loss = gaussian_loss(outcomes, own, other, sigma=sigma)
    assert loss.shape == (5, 6)
    np.testing.assert_allclose(loss, brute, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(gaussian_ex_post_loss(outcomes, own, other, sigma=sigma), np.abs(loss))
    np.testing.assert_allclose(gaussian_loss(outcomes, other, own, sigma=sigma), -loss, rtol=1e-12)
    # The form that the thesis prints, without its absolute value.
    delta = other - own
    printed = (delta @ delta / 2 - (outcomes - own) @ delta) / sigma**2
    np.testing.assert_allclose(loss, printed, rtol=1e-8, atol=1e-9)


def test_scalar_queries_and_a_large_common_part():
    assert gaussian_loss(0.5, 0.0, 1.0, sigma=2.0) == 0.0
    assert gaussian_loss([[1.0, 2.0]], 1.0, 2.0, sigma=1.0).tolist() == [[0.5, -0.5]]
    assert gaussian_loss([1.0], [1.0], [2.0], sigma=1.0).shape == ()
    # Squares of 1e9 would lose everything; the differences do not.
    assert gaussian_loss(1e9 + 0.25, 1e9, 1e9 + 1, sigma=1.0) == 0.25
    assert gaussian_shift([0.0, 0.0], [3.0, 4.0], sigma=10.0) == pytest.approx(0.5)


@pytest.mark.parametrize("world", [0, 1])
@pytest.mark.parametrize("sigma", [0.4, 5.0])
def test_the_law_of_the_loss_in_both_worlds(world, sigma, rng):
    answers = np.array([[0.3, -1.0, 0.0], [1.0, 0.2, 0.1]])
    mu = gaussian_shift(*answers, sigma=sigma)
    draws = answers[world] + rng.normal(0, sigma, (40_000, 3))
    loss = gaussian_loss(draws, *answers, sigma=sigma)
    centre = mu**2 / 2 * (1 - 2 * world)
    assert stats.kstest(loss, stats.norm(centre, mu).cdf).pvalue > 1e-3
    for rho in (0.5, 0.05, 0.01):
        epsilon = float(loss_quantile(rho, mu))
        low, high = proportion_interval(int((np.abs(loss) > epsilon).sum()), loss.size, 0.9999)
        assert low <= float(loss_exceedance(epsilon, mu)) <= high
        assert low <= rho <= high


@pytest.mark.parametrize("rho", [1e-300, 1e-12, 0.05, 0.5, 0.999])
def test_the_exact_quantile_is_a_root_on_the_safe_side_and_the_sharpest_bound(rho):
    exact = loss_quantile(rho, MUS)
    assert (loss_exceedance(exact, MUS) <= rho).all()
    np.testing.assert_allclose(loss_exceedance(exact, MUS), rho, rtol=1e-6)
    tail = high_probability_loss(rho, MUS)
    explicit = high_probability_loss(rho, MUS, bound="explicit")
    assert (exact <= tail).all()
    assert (tail <= explicit).all()
    np.testing.assert_array_equal(high_probability_loss(rho, MUS, bound="exact"), exact)
    # At mu = 1 and small rho the far tail is nothing, and half of rho is given away by the union bound.
    if rho == 0.05:
        assert float(exact[3]) == pytest.approx(0.5 + stats.norm.isf(0.05 - stats.norm.sf(exact[3] + 0.5)))
        assert tail[3] == pytest.approx(0.5 + stats.norm.isf(0.025))


def test_nobody_moves_the_query():
    assert loss_quantile(0.1, 0.0) == 0
    assert loss_exceedance([0.0, 1.0], 0.0).tolist() == [0.0, 0.0]
    assert gaussian_instance_epsilon(1e-6, 0.0) == 0
    assert gaussian_loss([3.0, 4.0], 1.0, 1.0, sigma=1.0).tolist() == [0.0, 0.0]


def test_per_instance_epsilon_and_its_two_tail_bounds():
    # Erratum 9: mu = 1, delta = 1e-6: 4.887 exact, 5.253 by the tail, 5.757 by the explicit tail.
    kinds = [
        float(gaussian_instance_epsilon(1e-6, 1.0, bound=kind)) for kind in ("exact", "tail", "explicit")
    ]
    assert kinds == pytest.approx([4.887, 5.253, 5.757], abs=6e-4)
    for delta in (1e-12, 1e-6, 0.01, 0.4, 0.9):
        exact = gaussian_instance_epsilon(delta, MUS)
        tail = gaussian_instance_epsilon(delta, MUS, bound="tail")
        explicit = gaussian_instance_epsilon(delta, MUS, bound="explicit")
        assert (exact <= tail * (1 + 1e-12)).all()
        assert (tail <= explicit).all()
        assert (gaussian_delta(tail, MUS) <= delta * (1 + 1e-9)).all()


def test_a_noisy_count_and_its_guarantee(rng):
    release = noisy_count([1, 0, 1, 1, 0], sigma=2.0, rng=rng, delta=1e-5)
    guarantee = release.guarantee
    assert guarantee.neighbours is Neighbours.ADD_REMOVE
    assert guarantee.curve is not None
    assert guarantee.curve.delta(1.0) == pytest.approx(float(gaussian_delta(1.0, 0.5)))
    assert float(gaussian_delta(guarantee.epsilon, 0.5)) == pytest.approx(1e-5, rel=1e-6)
    draws = [noisy_count(3, sigma=2.0, rng=rng).value for _ in range(600)]
    assert stats.kstest(draws, stats.norm(3, 2).cdf).pvalue > 1e-3


@pytest.mark.parametrize("member", [False, True])
def test_one_published_loss_gives_the_count_away(member, rng):
    for count in (1, 7, 12345):
        output = float(noisy_count(count, sigma=3.0, rng=rng).value)
        loss = float(gaussian_ex_post_loss(output, count, count + (-1 if member else 1), sigma=3.0))
        attack = recover_count(output, loss, sigma=3.0, member=member)
        assert attack.count == count == attack.guess
        assert attack.consistent == 1
        other = 2 * output + (1 if member else -1) - count
        assert sorted(attack.candidates) == pytest.approx(sorted([count, other]), abs=1e-9)


def test_the_case_of_probability_zero_is_reported():
    # The thesis's own o = 1 at Q = 0: both 0 and 1 are whole numbers.
    attack = recover_count(1.0, 0.5, sigma=1.0)
    assert attack.candidates == (0.0, 1.0)
    assert (attack.consistent, attack.count) == (2, None)
    # Its footnote's o = 0.1 is fine.
    assert recover_count(0.1, abs(2 * 0.1 - 1) / 2, sigma=1.0).count == 0
    # A double beyond 2^52 is a whole number, and so is twice it: never certain.
    assert recover_count(2.0**53, 4.0, sigma=1.0).count is None
    # A loss that belongs to no count.
    assert recover_count(10.3, 0.11, sigma=1.0).consistent == 0
    assert recover_count(10.3, 0.11, sigma=1.0).guess is None
    # Only one of the two whole numbers can be a count.
    assert recover_count(1.0, 2.5, sigma=1.0).count == 3


@pytest.mark.parametrize("member", [False, True])
def test_the_attack_succeeds_always(member, rng):
    table = attack_counts(50, sigma=[0.3, 1.0, 30.0, 1e3], draws=4000, rng=rng, member=member)
    assert (table["certain"] == 1).all()
    assert (table["certain_low"] > 0.998).all()
    assert (table["wrong"] == 0).all()
    assert table["without"].iloc[-1] < 1e-3


def test_how_success_decays_with_the_digits(rng):
    # 10^-digits sigma^2 divides 1 for none of the first three; it does for the last, where the lower rule is sharp.
    table = attack_counts(
        10_000,
        sigma=[2.9, 9.3, 29.3, 10.0],
        draws=20_000,
        rng=rng,
        digits=(None, 6, 4, 3, 2, 1, 0),
        level=0.9999,
    )
    assert (table["certain_low"] <= table["guessed"]).all()
    assert (table["wrong"] == 0).all()
    assert (table["at_least"] <= table["certain_high"]).all()
    generic = table[(table["predicted"] > 0.85) & (table["sigma"] != 10)]
    assert (np.abs(generic["certain"] - generic["predicted"]) < 0.03).all()
    assert (generic["predicted"] < 0.95).any()  # not only the trivial cases
    resonant = table[(table["sigma"] == 10) & (table["digits"] == 3)].iloc[0]
    assert resonant["certain_low"] <= resonant["at_least"] <= resonant["certain_high"]
    # The loss never hurts: the likeliest count is at least as often right as rounding the output.
    assert (table["guessed_high"] >= table["without"]).all()
    for _, part in table.groupby("sigma"):
        assert (np.diff(part["guessed"]) <= 0.02).all()


def test_without_matches_rounding_the_output(rng):
    table = attack_counts(400, sigma=0.6, draws=10, rng=rng)
    hits = int((np.round(400 + rng.normal(0, 0.6, 50_000)) == 400).sum())
    low, high = proportion_interval(hits, 50_000, 0.9999)
    assert low <= table["without"][0] <= high


def test_windows_that_meet_are_counted_once():
    # loss 0 rounded to one digit, sigma = 4: |o - Q - 1/2| <= 16 * 0.05 = 0.8 about 9.5 + 0.2: 9 and 10.
    attack = recover_count(10.2, 0.0, sigma=4.0, precision=0.05)
    assert (attack.consistent, attack.guess, attack.count) == (2, 10, None)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda r: gaussian_loss([1.0, 2.0], [0.0], [1.0], sigma=1.0), ValueError, "outcomes"),
        (lambda r: gaussian_loss(1.0, [0.0, 1.0], [1.0], sigma=1.0), ValueError, "neighbour_answer"),
        (lambda r: gaussian_loss(1.0, 0.0, 1.0, sigma=0.0), ValueError, "sigma"),
        (lambda r: gaussian_loss(math.nan, 0.0, 1.0, sigma=1.0), ValueError, "outcomes"),
        (lambda r: gaussian_loss(1e200, 0.0, 1e200, sigma=1.0), ValueError, "overflows"),
        (lambda r: loss_exceedance(-1.0, 1.0), ValueError, "epsilon"),
        (lambda r: loss_exceedance(1.0, -1.0), ValueError, "mu"),
        (lambda r: loss_quantile(0.0, 1.0), ValueError, "rho"),
        (lambda r: high_probability_loss(0.1, 1.0, bound="best"), ValueError, "bound"),
        (lambda r: gaussian_instance_epsilon(1.0, 1.0), ValueError, "delta"),
        (lambda r: noisy_count(-1, sigma=1.0, rng=r), ValueError, "people"),
        (lambda r: noisy_count([0, 2], sigma=1.0, rng=r), ValueError, "people"),
        (lambda r: noisy_count(2**60, sigma=1.0, rng=r), ValueError, "people"),
        (lambda r: noisy_count("three", sigma=1.0, rng=r), TypeError, "people"),
        (lambda r: noisy_count(3, sigma=-1.0, rng=r), ValueError, "sigma"),
        (lambda r: noisy_count(3, sigma=1.0, rng=r, delta=0.0), ValueError, "delta"),
        (lambda r: noisy_count(3, sigma=1.0, rng=7), TypeError, "rng"),
        (lambda r: recover_count(1.0, -0.1, sigma=1.0), ValueError, "loss"),
        (lambda r: recover_count(1.0, 0.1, sigma=1.0, precision=-1.0), ValueError, "precision"),
        (lambda r: recover_count(1.0, 0.1, sigma=1.0, member=1), TypeError, "member"),
        (lambda r: attack_counts(0, sigma=1.0, draws=5, rng=r, member=True), ValueError, "count"),
        (lambda r: attack_counts(3, sigma=[1.0, 0.0], draws=5, rng=r), ValueError, "sigma"),
        (lambda r: attack_counts(3, sigma=1.0, draws=0, rng=r), ValueError, "draws"),
        (lambda r: attack_counts(3, sigma=1.0, draws=5, rng=r, digits=(-1,)), ValueError, "digits"),
    ],
)
def test_bad_input_is_refused_before_noise_is_drawn(call, error, words):
    source = np.random.default_rng(1)
    before = source.bit_generator.state
    with pytest.raises(error, match=words):
        call(source)
    assert source.bit_generator.state == before
