"""The exact output law of OPDisc on small spaces: against closed forms, mixtures, a second quadrature and draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.oracle_perturbation.discrete_privacy import (
    ProvedGaussianCurve,
    exact_shift,
    printed_sigma,
    released_code_sigma,
    shift,
    smallest_sigma,
)
from adaptive_dp.oracle_perturbation.discrete_tables import (
    SQUARE,
    TWO_POINTS,
    exchange_log_ratio,
    margin_delta,
    margin_table,
    norm_noise,
    ratio_table,
    square_delta_table,
    two_point_delta,
    two_point_table,
)
from adaptive_dp.oracle_perturbation.exact_release import (
    hockey_stick,
    largest_log_ratio,
    member_probability,
    output_law,
)
from adaptive_dp.oracle_perturbation.opdisc import LiftedNoise, plan
from adaptive_dp.oracle_perturbation.problems import TableProblem, ThresholdProblem
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet, lift

LINE = PointSet([[-1.0], [-0.25], [0.5], [1.0]])
TRIANGLE = PointSet([[0.9, 0.1], [-0.4, 0.6], [-0.3, -0.8]], bound=1.3)
SPACES = {"line": LINE, "triangle": TRIANGLE, "square": SQUARE}
each_space = pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
each_fold = pytest.mark.parametrize("fold", [False, True], ids=["plain", "folded"])
each_kind = pytest.mark.parametrize("kind", ["norm", "gaussian"])


def losses(space, seed=0):
    """Whole numbers with ties among the best, real numbers, nothing but ties, and a far outsider."""
    rng, n = np.random.default_rng(seed), space.size
    tied = rng.integers(0, 6, n).astype(float)
    tied[: n // 2] = 0.0
    outsider = rng.normal(0, 3, n)
    outsider[0] += 40
    return [tied, rng.normal(0, 4, n), np.zeros(n), outsider]


# --- the law ------------------------------------------------------------------------------------------


@each_space
@each_kind
@each_fold
def test_the_law_sums_to_one_and_agrees_with_draws(space, kind, fold):
    """Chi-square with 100,000 draws for each of four data sets; seeds fixed."""
    noise = LiftedNoise(kind, 3.0, space.dimension + 1, fold)
    eta = noise.draw(np.random.default_rng(11), draws=100_000)
    scores = eta @ lift(space.points(), space.radius).T
    for total in losses(space):
        law = output_law(space, noise, total=total)
        assert law.sum() == pytest.approx(1.0, abs=1e-12)
        assert law.min() > -1e-13
        counts = np.bincount(np.argmin(total - scores, axis=1), minlength=space.size)
        common = law > 1e-4
        assert counts[~common].sum() < 60
        expected = np.append(law[common], 1 - law[common].sum())
        observed = np.append(counts[common], counts[~common].sum())
        kept = expected > 1e-5
        expected *= observed[kept].sum() / expected[kept].sum()
        assert stats.chisquare(observed[kept], expected[kept]).pvalue > 1e-5


@each_space
@each_kind
@each_fold
def test_one_member_alone_has_the_same_probability(space, kind, fold):
    noise = LiftedNoise(kind, 2.0, space.dimension + 1, fold)
    total = losses(space)[0]
    law = output_law(space, noise, total=total)
    for place in range(space.size):
        assert member_probability(space, noise, total=total, place=place) == pytest.approx(
            law[place], abs=1e-13
        )


@each_kind
def test_two_members_are_a_half_space(kind):
    """P(<eta, pi(w) - pi(v)> >= b): the normal law, and the marginal of norm noise by an integral over lengths."""
    for space in (TWO_POINTS, PointSet([[0.3, 0.4], [-0.6, 0.1]], bound=0.9)):
        noise = LiftedNoise(kind, 1.7, space.dimension + 1, False)
        pi = lift(space.members, space.radius)
        for margin in (-3.0, 0.0, 0.4, 12.0, 40.0):
            height = margin / np.linalg.norm(pi[0] - pi[1]) / noise.scale
            tails = {
                "gaussian": stats.norm.sf,
                "norm": lambda h, k=space.dimension + 1: norm_marginal_tail(h, k),
            }
            exact = tails[kind](height)
            found = output_law(space, noise, total=[margin, 0.0])[0]
            assert found == pytest.approx(exact, rel=1e-9, abs=1e-13)


def norm_marginal_tail(height, dimension):
    """P(a coordinate of norm-exponential noise > height): a mixture of normal tails, s^2 ~ Gamma((k + 1) / 2, 2)."""
    law = stats.gamma(0.5 * (dimension + 1), scale=2.0)
    value, _ = integrate.quad(
        lambda v: stats.norm.sf(height / math.sqrt(v)) * law.pdf(v),
        0,
        np.inf,
        epsabs=1e-15,
        epsrel=1e-11,
        limit=400,
    )
    return value


def test_three_members_by_a_bivariate_normal_law():
    noise = LiftedNoise("gaussian", 0.8, 3, False)
    pi, total = lift(TRIANGLE.members, TRIANGLE.radius), np.array([0.3, -0.2, 0.5])
    law = output_law(TRIANGLE, noise, total=total)
    for w in range(3):
        v, x = (i for i in range(3) if i != w)
        a, b = pi[w] - pi[v], pi[w] - pi[x]
        h, k = (
            (total[w] - total[v]) / 0.8 / np.linalg.norm(a),
            (total[w] - total[x]) / 0.8 / np.linalg.norm(b),
        )
        rho = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        rest = math.sqrt(1 - rho**2)
        exact, _ = integrate.quad(
            lambda z, k=k, rho=rho, rest=rest: stats.norm.pdf(z) * special.ndtr((rho * z - k) / rest),
            h, 12, epsabs=1e-14,
        )  # fmt: skip
        assert law[w] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("space", [LINE, SQUARE], ids=["line", "square"])
@each_fold
def test_norm_noise_is_a_mixture_of_gaussian_noises(space, fold):
    """exp(-|x|) in R^k is N(0, s^2 I) with s ~ chi_(k + 1): two laws, computed apart, agree."""
    k, total = space.dimension + 1, losses(space)[1]
    law = stats.chi(k + 1)  # of s
    top = float(law.isf(1e-13))
    nodes, weights = np.polynomial.legendre.leggauss(36)
    mixed = sum(
        0.5 * top * w * law.pdf(s) * output_law(space, LiftedNoise("gaussian", 6.0 * s, k, fold), total=total)
        for s, w in zip(0.5 * top * (1 + nodes), weights, strict=True)
    )
    direct = output_law(space, LiftedNoise("norm", 6.0, k, fold), total=total)
    np.testing.assert_allclose(direct, mixed, atol=2e-6)  # the quadrature of the mixture


def test_a_quadrature_on_the_sphere_agrees():
    """Rays in 200 x 400 directions, each with the exact radial law on the interval of each member."""
    noise, total = LiftedNoise("norm", 5.0, 3, False), losses(SQUARE)[1]
    pi = lift(SQUARE.points(), SQUARE.radius)
    z, weights = np.polynomial.legendre.leggauss(200)
    phi = (np.arange(400) + 0.5) * 2 * math.pi / 400
    ring = np.sqrt(1 - z**2)
    u = np.stack([np.outer(ring, np.cos(phi)), np.outer(ring, np.sin(phi)), np.outer(z, np.ones(400))], -1)
    speed = u @ pi.T
    law = np.zeros(9)
    for w in range(9):
        slope, offset = speed[..., [w]] - speed, total[w] - total
        with np.errstate(divide="ignore", invalid="ignore"):
            at = offset / slope
        low = np.max(np.where(slope > 0, at, -np.inf), axis=-1).clip(0)
        high = np.min(np.where(slope < 0, at, np.inf), axis=-1)
        inner, outer = (special.gammaincc(3, r / 5) for r in (low, np.maximum(high, low)))
        law[w] = weights @ (inner - outer).mean(axis=1) / 2
    np.testing.assert_allclose(output_law(SQUARE, noise, total=total), law, atol=2e-5)


def test_ties_everywhere_by_symmetry():
    for kind in ("norm", "gaussian"):
        law = output_law(SQUARE, LiftedNoise(kind, 0.01, 3, False), total=np.zeros(9)).reshape(3, 3)
        np.testing.assert_allclose(law, law.T, atol=1e-14)
        np.testing.assert_allclose(law, law[::-1], atol=1e-14)
        folded = output_law(SQUARE, LiftedNoise(kind, 7.0, 3, True), total=np.zeros(9)).reshape(3, 3)
        # The members of the rim share the lower half sphere as they share the upper one beyond their neighbours.
        assert folded[1, 1] == pytest.approx(2 * law[1, 1], abs=1e-13)
        assert folded[0, 0] < law[0, 0]


@each_kind
def test_thirteen_members(kind):
    space, noise = IntegerBall(2, 2, 4), LiftedNoise(kind, 8.0, 3, True)
    for total in losses(space)[:2]:
        law = output_law(space, noise, total=total)
        assert law.sum() == pytest.approx(1.0, abs=1e-12)
        assert law.min() > 0


def test_tails_keep_their_digits_on_the_line():
    noise = LiftedNoise("gaussian", 1.0, 2, False)
    for margin in (20.0, 60.0):
        found = output_law(TWO_POINTS, noise, total=[margin, 0.0])[0]
        assert found == pytest.approx(stats.norm.sf(margin / 2), rel=1e-10)


def test_tiny_margins_beside_large_noise():
    """The layer around each break point is a millionth wide; the law must pass through the one with ties."""
    noise = LiftedNoise("norm", 1.0, 3, False)
    tie = output_law(SQUARE, noise, total=np.zeros(9))
    near = output_law(SQUARE, noise, total=1e-7 * losses(SQUARE)[1])
    np.testing.assert_allclose(near, tie, atol=1e-5)
    np.testing.assert_allclose(near.sum(), 1.0, atol=1e-12)
    assert not np.array_equal(near, tie)


def test_problems_and_spaces_give_the_same_law():
    rng = np.random.default_rng(4)
    table = TableProblem(rng.random((12, 4)), LINE)
    noise, _ = plan(table, epsilon=1.0)
    np.testing.assert_array_equal(output_law(table, noise), output_law(LINE, noise, total=table.total))
    halfspace = ThresholdProblem(rng.integers(-5, 6, (20, 2)), rng.choice([-1, 1], 20), SQUARE)
    noise, _ = plan(halfspace, epsilon=1.0)
    counts = halfspace.errors(SQUARE.points())
    np.testing.assert_array_equal(output_law(halfspace, noise), output_law(SQUARE, noise, total=counts))


# --- privacy ------------------------------------------------------------------------------------------


@each_space
@each_fold
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_norm_noise_is_pure_on_random_exchanges(space, fold, epsilon):
    """Any two losses in [0, 1], half of them opposite ones; any other records. No ratio exceeds e^epsilon."""
    rng = np.random.default_rng(7)
    noise = norm_noise(space, epsilon=epsilon, fold=fold)
    largest = 0.0
    for trial in range(4):
        base = rng.integers(0, 12, space.size) * rng.integers(0, 2)
        old = rng.integers(0, 2, space.size).astype(float)
        new = 1 - old if trial % 2 else rng.random(space.size)
        laws = [output_law(space, noise, total=base + record) for record in (old, new)]
        largest = max(largest, largest_log_ratio(*laws))
        for e in (epsilon, 0.5 * epsilon):
            assert hockey_stick(*laws, e) <= 1e-12 or e < epsilon
    assert 0.1 * epsilon < largest <= epsilon


@pytest.mark.parametrize("fold", [False, True])
def test_the_worst_exchange_is_worse_than_others_and_within_epsilon(fold):
    rng = np.random.default_rng(8)
    noise, base = norm_noise(SQUARE, epsilon=1.0, fold=fold), rng.integers(0, 12, 9).astype(float)
    worst = exchange_log_ratio(SQUARE, noise, base)
    for _ in range(12):
        old, new = rng.integers(0, 2, (2, 9))
        laws = [output_law(SQUARE, noise, total=base + record) for record in (old, new)]
        assert largest_log_ratio(*laws) <= worst + 1e-9
    assert 0.5 < worst <= 1.0


def test_the_promise_is_tight():
    """With two antipodal members the log ratio tends to epsilon; on the square to the exact shift over Lemma 3's."""
    table = margin_table([1, 16, 64, 400])
    assert (np.diff(table["two points"]) > 0).all()
    assert 0.997 < table["two points"].iloc[-1] < 1
    square = margin_table([1, 8, 32])
    assert (np.diff(square["square"]) > 0).all()
    limit = float(square["limit"].iloc[0])
    assert limit == pytest.approx(exact_shift(PointSet(SQUARE.points().astype(float))) / 8)
    assert limit - 0.003 < square["square"].iloc[-1] < limit


def test_ratio_table_stays_below_its_bound():
    table = ratio_table([0.5, 2.0], data_sets=1, rng=np.random.default_rng(0))
    cases = table[["square", "folded", "tie", "far"]]
    assert (cases.to_numpy() <= table[["bound"]].to_numpy()).all()
    assert (cases.to_numpy() > 1).all()
    # The tie by hand: P(eta_1 > -1/2) / P(eta_1 > 1/2) in units of the shift.
    for epsilon, tie in zip(table["epsilon"], table["tie"], strict=True):
        above = norm_marginal_tail(0.5 * epsilon, 2)
        assert tie == pytest.approx((1 - above) / above, rel=1e-8)


def test_half_the_shift_is_refuted_exactly():
    noise = LiftedNoise("norm", 0.5 * shift(TWO_POINTS, gap=0.0), 2, False)
    assert exchange_log_ratio(TWO_POINTS, noise, [20.0, 0.0]) > 1.7


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_two_points_are_the_analytic_gaussian_mechanism(epsilon):
    for sigma in (1.0, 3.0):
        assert two_point_delta(sigma, epsilon=epsilon) == pytest.approx(
            gaussian_delta(epsilon, 1 / sigma), rel=1e-9
        )


def test_the_released_program_fails_with_two_points():
    """Erratum 1: half of Algorithm 1's scale has delta = 8.95e-6 where 1e-8 is claimed."""
    table = two_point_table().set_index("scale")
    assert table.loc["released program", "exact"] == pytest.approx(8.95e-6, rel=1e-3)
    assert table.loc["Algorithm 1", "exact"] == pytest.approx(8.28e-16, rel=1e-2)
    assert table.loc["released program", "sigma"] == released_code_sigma(TWO_POINTS, epsilon=1.0, delta=1e-8)
    assert table.loc["Algorithm 1", "sigma"] == printed_sigma(TWO_POINTS, epsilon=1.0, delta=1e-8)


def test_exact_hockey_sticks_stay_below_the_proved_curve():
    table = square_delta_table([0.3, 1.0], delta=1e-3)
    assert (table["attained"] <= table["proved"]).all()
    assert (table["attained"] > 1e-6 * table["proved"]).all()
    assert (table.loc[table["scale"] == "proved", "proved"] <= 1e-3 * (1 + 1e-9)).all()


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_folded_hockey_sticks_stay_below_their_curve(epsilon):
    sigma = smallest_sigma(SQUARE, epsilon=epsilon, delta=0.05, gap=0.0)
    exact = margin_delta(
        SQUARE, sigma, 0.03 * sigma**2 * epsilon * np.arange(1, 4), place=4, epsilon=epsilon, fold=True
    )
    assert 0 < exact <= ProvedGaussianCurve(8 / sigma, 3, 9, True).delta(epsilon) <= 0.05 * (1 + 1e-9)


def test_folding_gaussian_noise_is_not_free():
    """The cell of the middle member lies in the upper half space: folding doubles its probability and hockey stick."""
    middle = np.where((SQUARE.points() == 0).all(axis=1), 1.0, 0.0)
    sticks = []
    for fold in (False, True):
        noise = LiftedNoise("gaussian", 6.0, 3, fold)
        laws = [output_law(SQUARE, noise, total=5 * middle + r) for r in (1 - middle, middle)]
        sticks.append(hockey_stick(*laws, 1.0))
    assert sticks[1] == pytest.approx(2 * sticks[0], rel=1e-9)
    # With norm noise the ratio does not change at all.
    ratios = [
        exchange_log_ratio(SQUARE, norm_noise(SQUARE, epsilon=1.0, fold=f), 5 * middle) for f in (False, True)
    ]
    assert ratios[1] == pytest.approx(ratios[0], rel=1e-9)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.floats(0.2, 3.0), st.booleans())
def test_random_line_spaces_are_pure(seed, epsilon, fold):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    space = PointSet(rng.permutation(np.linspace(-1, 1, 9))[:n, np.newaxis], bound=float(rng.uniform(1, 1.5)))
    noise = norm_noise(space, epsilon=epsilon, fold=fold)
    assert exchange_log_ratio(space, noise, rng.uniform(0, 8, n)) <= epsilon


# --- bad input ----------------------------------------------------------------------------------------


NOISE = LiftedNoise("norm", 1.0, 2, False)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: output_law(IntegerBall.signs(3), LiftedNoise("norm", 1.0, 4, False), total=np.zeros(27)),
         ValueError, "at most 2 dimensions"),
        (lambda: output_law(IntegerBall(2, 5, 25), LiftedNoise("norm", 1.0, 3, False), total=np.zeros(81)),
         ValueError, "40 members"),
        (lambda: output_law(SQUARE, NOISE, total=np.zeros(9)), ValueError, "noise must have 3 coordinates"),
        (lambda: output_law(SQUARE, 1.0, total=np.zeros(9)), TypeError, "noise must be a LiftedNoise"),
        (lambda: output_law(LINE, NOISE), ValueError, "total must be given"),
        (lambda: output_law(LINE, NOISE, total=[1.0]), ValueError, "total must have one entry a member"),
        (lambda: output_law(LINE, NOISE, total=[math.nan] * 4), ValueError, "total must be finite"),
        (lambda: output_law(np.eye(2), NOISE), TypeError, "problem must be"),
        (lambda: output_law(TableProblem([[0.0] * 4], LINE), NOISE, total=[0.0] * 4), ValueError, "total comes"),
        (lambda: member_probability(LINE, NOISE, total=[0.0] * 4, place=4), ValueError, "place must be below 4"),
        (lambda: hockey_stick([1.0], [0.5, 0.5], 1.0), ValueError, "one shape"),
        (lambda: largest_log_ratio([1.0], [0.5, 0.5]), ValueError, "one shape"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_ratios_of_nothing():
    assert largest_log_ratio([1.0, 0.0], [0.0, 1.0]) == 0.0
