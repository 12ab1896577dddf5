"""Bounds of the excess, what the noise does in the worst data, and the mechanisms that list W."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation.comparison import (
    MECHANISMS,
    accuracy_table,
    bound_table,
    comparison_settings,
    draw_gains,
    epsilon_for,
    grid_in_ball,
    measured_table,
    perturbed_losses,
    reference_members,
    section_table,
    signs_problem,
    spaces_table,
    tilt_shift,
    worst_excess,
)
from adaptive_dp.oracle_perturbation.discrete_privacy import shift
from adaptive_dp.oracle_perturbation.discrete_utility import tail_alpha
from adaptive_dp.oracle_perturbation.excess_bounds import (
    gaussian_separator_excess,
    laplace_crude_excess,
    laplace_separator_closed,
    laplace_separator_excess,
    printed_rspm_excess,
    value_excess,
)
from adaptive_dp.oracle_perturbation.exponential import (
    LossLevels,
    expected_losses,
    exponential_excess_bound,
    exponential_log_law,
    exponential_mechanism,
    member_losses,
)
from adaptive_dp.oracle_perturbation.problems import TableProblem, ThresholdProblem
from adaptive_dp.oracle_perturbation.rspm import separator_noise
from adaptive_dp.oracle_perturbation.separator_gaussian import printed_separator_sigma
from adaptive_dp.oracle_perturbation.separators import grid_separators
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet, lift
from adaptive_dp.oracle_perturbation.value_noise import value_noise

RUNS = 40_000


# --- bounds ----------------------------------------------------------------------------------------------


def quantile_bracket(sample, level):
    """Interval that holds the true quantile but for one chance in about two million."""
    n, ordered = len(sample), np.sort(sample)
    width = 5 * np.sqrt(n * level * (1 - level)) + 1
    places = np.clip(np.rint(n * level + np.array([-width, width])).astype(int), 0, n - 1)
    return ordered[places[0]], ordered[places[1]]


@pytest.mark.parametrize("m", [1, 2, 7, 46])
@pytest.mark.parametrize("beta", [0.4, 0.05, 0.005])
def test_quantile_of_the_positive_parts_is_exact(m, beta):
    rng = np.random.default_rng([m, int(1000 * beta)])
    sample = np.maximum(rng.laplace(0, 3.0, (RUNS, m)), 0).sum(axis=1)
    low, high = quantile_bracket(sample, 1 - beta)
    exact = laplace_separator_excess(m, 3.0, beta)
    assert low - 1e-9 <= exact <= high
    assert exact <= laplace_separator_closed(m, 3.0, beta) <= 3.0 * (m / 2 + 20 * (m**0.5 + 1))
    normal = np.maximum(rng.normal(0, 3.0, (RUNS, m)), 0).sum(axis=1)
    bound = gaussian_separator_excess(m, 3.0, beta)
    assert (normal > bound).mean() <= beta
    assert bound <= 3.0 * (m / np.sqrt(2 * np.pi) + np.sqrt(2 * m * np.log(1 / beta))) * (1 + 1e-12)


@pytest.mark.parametrize(("d", "values"), [(1, 2), (3, 3), (23, 3), (6, 21)])
def test_bound_of_noise_on_values(d, values):
    noise = np.random.default_rng(d).exponential(1.0, (10_000, d, values))
    sample = (noise.max(axis=2) - noise[:, :, 0]).sum(axis=1)
    mean = d * (sum(1 / i for i in range(1, values + 1)) - 1)
    assert abs(sample.mean() - mean) < 5 * sample.std() / 100
    for beta in (0.2, 0.01):
        assert (sample > value_excess(d, values, 1.0, beta)).mean() <= beta
        assert value_excess(d, values, 1.0, beta) < mean + 6 * d**0.5 + 8


def test_theorem_six_holds_for_the_printed_noise_with_its_constant():
    rng, beta = np.random.default_rng(1), 0.05
    for m in (2, 20):
        sigma = printed_separator_sigma(m, epsilon=1.0, delta=1e-6)
        eta = rng.normal(0, sigma, (RUNS, m))
        assert (
            np.abs(eta).sum(axis=1) > printed_rspm_excess(m, epsilon=1.0, delta=1e-6, beta=beta)
        ).mean() < beta


def test_section_three_in_bounds():
    """Errata 13: with sound noise the ratio of the bounds is 1.0 to 1.8 times d, whatever tau."""
    cases = [(2, 2), (10, 2), (10, 10), (10, 100), (100, 10), (100, 100)]
    table = bound_table(cases)
    np.testing.assert_allclose(table["crude"], [2.09, 15.02, 13.19, 12.23, 175.66, 171.35], atol=0.005)
    share = table["crude"] / table["d"]
    assert share.between(1.0, 1.8).all()
    np.testing.assert_allclose(table["rate"], table["d"] / np.sqrt(table["steps"]))
    # Both bounds halve twice and once: the sharp ratio is about half of the crude one.
    assert (table["sharp"] / table["crude"]).between(0.4, 0.6).all()
    # Theorem 6 with 2 m in place of m is what the errata print: half of their ratios.
    np.testing.assert_allclose(
        table["printed"], np.array([3.75, 24.74, 12.21, 4.33, 142.85, 49.57]) / 2, rtol=2e-3
    )
    # By hand: Theorem 1 at d = 10, tau = 1/2, and the crude bounds.
    theorem_one = 14 * 4 * np.sqrt(2 * 11 * np.log(80) * np.log(1e8))
    theorem_six = printed_rspm_excess(40, epsilon=1.0, delta=1e-8, beta=0.05)
    assert table["printed"][1] == pytest.approx(theorem_six / theorem_one)
    opdisc = 2 * 16.0 * stats.gamma.isf(0.05, 11)
    assert table["crude"][1] == pytest.approx(laplace_crude_excess(40, 80.0, 0.05) / opdisc)


# --- noise alone: the worst data ---------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(MECHANISMS),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 4),
    st.integers(0, 10**6),
)
def test_gains_are_those_of_the_definition(mechanism, d, box, extra, seed):
    space = IntegerBall(d, box, box * box + extra)
    points = space.points()
    gains = draw_gains(mechanism, space, epsilon=0.7, draws=3, rng=np.random.default_rng(seed))
    every = gains.at(points)
    assert every.shape == (3, len(points))
    np.testing.assert_allclose(gains.largest(), every.max(axis=1), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(gains.at(points[-1]), every[:, -1])
    rng = np.random.default_rng(seed)
    if mechanism == "opdisc":
        eta = norm_exponential(tilt_shift(space) / 0.7, d + 1, rng, draws=3)
        eta[:, -1] = np.abs(eta[:, -1])
        expected = eta @ lift(points, space.radius).T
    elif mechanism == "values":
        xi = value_noise(space, epsilon=0.7, gap=0.0).draw(rng, draws=3)
        expected = np.array([x[np.arange(d), points + box].sum(axis=1) for x in xi])
    else:
        kind = "laplace" if mechanism == "rspm" else "box"
        eta = separator_noise(kind, 2 * d * box, epsilon=0.7, gap=0.0).draw(rng, draws=3)
        expected = -eta @ grid_separators(points, box)
    # The square root in ``lift`` turns a rounding of 1e-16 into 1e-8 where |w| = D.
    np.testing.assert_allclose(every, expected, atol=1e-5 if mechanism == "opdisc" else 1e-9)


def test_shift_is_that_of_the_mechanism():
    for space in (grid_in_ball(3, 4), IntegerBall.signs(5), IntegerBall.halfspaces(9)):
        assert tilt_shift(space) == pytest.approx(shift(space, gap=0.0))


@pytest.mark.parametrize(
    "space", [grid_in_ball(2, 5), IntegerBall.signs(4), IntegerBall.halfspaces(5), IntegerBall(4, 1, 2)]
)
def test_reference_members_belong_to_the_space(space):
    assert all(space.contains(w) for w in reference_members(space))


def test_the_worst_data_attain_the_quantile():
    """A needle: t errors everywhere but at w*. The answer errs exactly where the noise's lead over w* exceeds t."""
    space = IntegerBall.signs(3)
    points = space.points()
    for mechanism in MECHANISMS:
        gains = draw_gains(mechanism, space, epsilon=1.0, draws=2000, rng=np.random.default_rng(2))
        for w in reference_members(space):
            home = int(np.flatnonzero((points == w).all(axis=1))[0])
            lead = gains.largest() - gains.at(w)
            for t in (0.5, 10.0, 40.0):
                losses = np.full(len(points), t)
                losses[home] = 0.0
                excess = perturbed_losses(losses, points, gains)
                np.testing.assert_array_equal(excess > 0, lead > t)
            # Any other losses with that minimiser: the excess is at most the lead.
            losses = np.random.default_rng(3).integers(0, 60, len(points)).astype(float)
            losses[home] = 0.0
            assert (perturbed_losses(losses, points, gains) <= lead + 1e-9).all()


def test_measured_excess_is_within_the_bounds():
    rng, beta = np.random.default_rng(4), 0.05
    for space in (grid_in_ball(2, 4), grid_in_ball(6, 3), IntegerBall.signs(8)):
        d, m = space.dimension, 2 * space.dimension * space.box
        found = {
            name: worst_excess(name, space, epsilon=1.0, beta=beta, draws=4000, rng=rng)
            for name in MECHANISMS
        }
        tail = tail_alpha(noise="norm", scale=tilt_shift(space), dimension=d, records=1, beta=beta)
        assert found["opdisc"] <= 1.05 * tail
        assert found["rspm"] <= 1.05 * laplace_separator_excess(m, 2.0 * m, beta)
        assert found["rspm box"] < found["rspm"]


def test_what_section_three_concludes_is_not_what_happens():
    """On {-1, 0, 1}^d RSPM with Laplace noise is level with OPDisc, and noise on values is far better than both."""
    spaces = [IntegerBall.signs(8), IntegerBall.signs(23), grid_in_ball(2, 10), grid_in_ball(10, 2)]
    named = spaces_table(draws=200, rng=np.random.default_rng(6))
    assert named.shape == (4, 5)
    assert (named.drop(columns="space") > 0).all().all()
    table = measured_table(spaces, draws=2000, rng=np.random.default_rng(5))
    ratio = table["rspm"] / table["opdisc"]
    assert ratio[:2].between(0.75, 1.15).all()
    assert ratio[2] < 0.5
    assert ratio[3] > 3
    assert (table["values"] < 0.45 * table["opdisc"])[:3].all()


def test_the_measured_ratio_follows_the_printed_rate():
    """Not the factor d of the bounds: the weights of one coordinate add up along a walk."""
    table = section_table([(10, 2), (10, 10)], draws=2000, rng=np.random.default_rng(12))
    assert (table["measured"] / table["rate"]).between(0.4, 0.75).all()
    assert (table["measured"] < 0.6 * table["sharp"]).all()
    np.testing.assert_allclose(
        table[["rate", "crude", "sharp"]], bound_table([(10, 2), (10, 10)])[["rate", "crude", "sharp"]]
    )


def test_settings_know_all_profiles():
    sizes = [comparison_settings(profile)["draws"] for profile in ("quick", "book", "paper")]
    assert sizes == sorted(sizes)
    with pytest.raises(ValueError, match="profile must be one of"):
        comparison_settings("none")


# --- mechanisms that list W ---------------------------------------------------------------------------------


LOSSES = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 3.0, 4.0, 7.0])


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0])
def test_permute_and_flip_is_exponential_noise(epsilon):
    levels = LossLevels.of(LOSSES)
    law = levels.permute_and_flip(epsilon)
    assert law.sum() == pytest.approx(1, abs=1e-12)
    assert levels.permute_and_flip(60.0)[0] == pytest.approx(1, abs=1e-9)
    noise = np.random.default_rng(6).exponential(2 / epsilon, (RUNS, len(LOSSES)))
    found = np.searchsorted(levels.values, LOSSES[np.argmax(noise - LOSSES, axis=1)])
    counts, expected = np.bincount(found, minlength=len(law)), RUNS * law / law.sum()
    seen = expected > 5
    assert (
        stats.chisquare(counts[seen], expected[seen] * counts[seen].sum() / expected[seen].sum()).pvalue
        > 1e-3
    )


def permute_and_flip_by_definition(losses, epsilon):
    """P(w) = q_w sum over subsets S of the others of (-1)^|S| prod q_S / (|S| + 1)."""
    q = np.exp(-0.5 * epsilon * (losses - losses.min()))
    law = []
    for i in range(len(q)):
        rest = np.delete(q, i)
        terms = [
            (-1) ** sum(chosen) * np.prod(rest[np.array(chosen, dtype=bool)]) / (sum(chosen) + 1)
            for chosen in product((0, 1), repeat=len(rest))
        ]
        law.append(q[i] * sum(terms))
    return np.array(law)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 8), min_size=2, max_size=7), st.floats(0.05, 6))
def test_permute_and_flip_by_inclusion_and_exclusion(losses, epsilon):
    table = np.array(losses, dtype=float)
    levels = LossLevels.of(table)
    shares = (levels.permute_and_flip(epsilon) / levels.counts)[np.searchsorted(levels.values, table)]
    np.testing.assert_allclose(shares, permute_and_flip_by_definition(table, epsilon), atol=1e-12)
    assert levels.mean(levels.permute_and_flip(epsilon)) <= levels.mean(levels.exponential(epsilon)) + 1e-12


def test_levels_and_members_have_the_same_exponential_law():
    problem = signs_problem(60, 3, np.random.default_rng(7))
    losses = member_losses(problem)
    np.testing.assert_array_equal(losses, problem.errors(problem.space.points()))
    levels = LossLevels.of(losses)
    law = np.exp(exponential_log_law(losses, 0.3))
    assert law.sum() == pytest.approx(1)
    assert levels.mean(levels.exponential(0.3)) == pytest.approx(law @ losses)
    found = expected_losses(problem, [0.1, 0.3, 50.0])
    assert found["exponential"][1] == pytest.approx(law @ losses)
    assert found["exponential"][2] == pytest.approx(losses.min(), abs=1e-6)
    assert (found["permute_and_flip"] <= found["exponential"]).all()
    assert (np.diff(found["exponential"]) < 0).all()
    # The bound on the excess, from the exact law.
    for beta in (0.3, 0.01):
        bad = losses > losses.min() + exponential_excess_bound(len(losses), epsilon=0.3, beta=beta)
        assert law[bad].sum() <= beta


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.integers(0, 10**6), st.floats(0.05, 5))
def test_exponential_mechanism_is_private_exactly(size, seed, epsilon):
    """Any losses in [0, 1], one record replaced: no log probability moves by more than epsilon, in either mechanism."""
    rng = np.random.default_rng(seed)
    base = rng.random((4, size)).sum(axis=0)
    old, new = rng.random((2, size)).round(int(rng.integers(0, 2)))
    one, other = base + old, base + new
    assert (
        np.abs(exponential_log_law(one, epsilon) - exponential_log_law(other, epsilon)).max()
        <= epsilon + 1e-9
    )
    laws = [permute_and_flip_by_definition(losses, epsilon) for losses in (one, other)]
    assert np.abs(np.log(laws[0] / laws[1])).max() <= epsilon + 1e-6


def test_exponential_release():
    problem = signs_problem(20, 2, np.random.default_rng(8))
    losses, points = member_losses(problem), problem.space.points()
    rng = np.random.default_rng(9)
    releases = [exponential_mechanism(problem, epsilon=0.4, rng=rng) for _ in range(3000)]
    places = [int(np.flatnonzero((points == release.value).all(axis=1))[0]) for release in releases]
    counts = np.bincount(places, minlength=9)
    expected = 3000 * np.exp(exponential_log_law(losses, 0.4))
    assert stats.chisquare(counts, expected).pvalue > 1e-3
    assert releases[0].guarantee.epsilon == 0.4
    assert releases[0].guarantee.delta == 0


def test_exponential_mechanism_refuses():
    rng = np.random.default_rng(0)
    wide = TableProblem(np.array([[0.0, 3.0]]), PointSet(np.array([[0.0], [1.0]])), lipschitz=3.0)
    with pytest.raises(ValueError, match=r"problem must have losses in \[0, 1\]"):
        exponential_mechanism(wide, epsilon=1.0, rng=rng)
    with pytest.raises(TypeError, match="problem must be"):
        exponential_mechanism("data", epsilon=1.0, rng=rng)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="epsilon must be positive"):
        exponential_mechanism(signs_problem(5, 2, rng), epsilon=0.0, rng=rng)
    big = ThresholdProblem(np.zeros((1, 20)), [1], IntegerBall.signs(20))
    with pytest.raises(ValueError, match="too many to list"):
        exponential_mechanism(big, epsilon=1.0, rng=rng)


def test_accuracies_are_ordered_as_they_must_be():
    problem = signs_problem(400, 4, np.random.default_rng(10))
    table = accuracy_table(problem, [0.05, 0.5, 5.0], draws=300, rng=np.random.default_rng(11))
    wide = table.pivot(index="epsilon", columns="mechanism", values="mean")
    assert set(wide.columns) == {*MECHANISMS, "exponential", "permute-and-flip", "no noise"}
    assert (wide["permute-and-flip"] >= wide["exponential"]).all()
    assert (wide.le(wide["no noise"] + 1e-12, axis=0)).all().all()
    assert (wide["exponential"] >= wide["opdisc"] - 1e-9).all()
    assert (table["low"] <= table["high"]).all()
    assert np.isnan(epsilon_for(table, "opdisc", 0.999))
    assert np.isnan(epsilon_for(table, "exponential", 0.5))
    middle = float(wide["opdisc"].iloc[:2].mean())
    assert epsilon_for(table, "opdisc", middle) == pytest.approx((0.05 * 0.5) ** 0.5)
    listed = problem.accuracy(problem.space.points()).max()
    assert wide["no noise"].iloc[0] == pytest.approx(listed)


@pytest.mark.parametrize(
    ("size", "epsilon", "beta", "words"),
    [
        (0, 1.0, 0.1, "size must be at least 1"),
        (5, 1.0, 0.0, "beta must lie strictly"),
        (5, 1.0, 2.0, "beta must lie strictly"),
        (5, 1.0, -1.0, "beta must lie strictly"),
        (5, 0.0, 0.1, "epsilon must be positive"),
    ],
)
def test_bad_excess_bounds_are_refused(size, epsilon, beta, words):
    with pytest.raises(ValueError, match=words):
        exponential_excess_bound(size, epsilon=epsilon, beta=beta)
