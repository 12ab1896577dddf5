"""The counterexample that uses rare noise: its lattice by brute force, its integral twice, real spaces."""

from __future__ import annotations

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from adaptive_dp.oracle_perturbation import flaws_discrete_spaces as spaces
from adaptive_dp.oracle_perturbation import flaws_discrete_tail as tail
from adaptive_dp.oracle_perturbation.discrete_privacy import chi_delta, shift, smallest_ratio
from adaptive_dp.oracle_perturbation.flaws_discrete import printed_ratio
from adaptive_dp.oracle_perturbation.problems import enumerate_members

PAPER_DELTA = 15682.0**-2


# --- the lattice --------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("coordinates", [2, 3, 4])
def test_decoding_is_the_enumeration_of_the_lattice(first, coordinates):
    rng, floor = np.random.default_rng(coordinates), 3.0
    x = rng.uniform(-2, 2, (400, coordinates))
    kappa = rng.uniform(2.5, 12.0, 400)
    z = np.array(list(product(range(-4, 5), repeat=coordinates)))
    pole = z[:, 0] % 2 == 1
    winner = ~pole & (z[:, 1:].sum(axis=1) % 2 == 0)
    # The losses as they are written down: other records, then the one that is replaced.
    base = np.where(pole, 0.0, np.where(winner, floor + 1, floor))
    loss = base + np.where(winner, 0.0, 1.0) if first else base + np.where(winner, 1.0, 0.0)
    squares = ((x[:, np.newaxis, :] - z) ** 2).sum(axis=2)
    best = np.argmin(loss + kappa[:, np.newaxis] * squares, axis=1)
    chosen = tail.lattice_choices(x, kappa, floor=floor, first=first)
    assert np.array_equal(chosen, winner[best])
    assert chosen.any()


@pytest.mark.parametrize("dimension", [3, 5, 9])
def test_shares_by_sampling(dimension):
    rng, runs = np.random.default_rng(dimension), 200_000
    x = rng.uniform(0, 2, (runs, dimension - 1))
    kappa = np.full(runs, 9.0)
    exact = tail.winner_shares(kappa[:1], dimension=dimension, floor=3.0)
    for first, share in zip((True, False), exact, strict=True):
        found = tail.lattice_choices(x, kappa, floor=3.0, first=first).mean()
        assert abs(found - share[0]) < 5 * math.sqrt(share[0] / runs)


@given(st.integers(3, 40), st.floats(0, 50), st.floats(2.5, 200))
def test_the_second_cell_is_the_first_one_moved(dimension, floor, kappa):
    first, _ = tail.winner_shares(np.array([kappa - 2]), dimension=dimension, floor=floor)
    _, second = tail.winner_shares(np.array([kappa]), dimension=dimension, floor=floor)
    moved = first * (1 - 2 / kappa) ** (dimension - 1)
    assert second == pytest.approx(moved, rel=1e-9, abs=1e-15)


# --- the integral -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dimension", "ratio", "epsilon", "start"), [(3, 1.0, 2.0, 1.5), (6, 2.0, 1.0, 2.5)])
def test_the_bound_is_the_difference_of_the_two_probabilities(dimension, ratio, epsilon, start):
    def probability(which: int) -> float:
        def integrand(r: float) -> float:
            shares = tail.winner_shares(
                np.array([2 * ratio * r]), dimension=dimension, floor=2 * ratio * start
            )
            return float(stats.chi.pdf(r, dimension) * shares[which][0])

        least = start + which / ratio
        return integrate.quad(integrand, least, least + 15, limit=200, epsabs=1e-14)[0]

    exact = probability(0) - math.exp(epsilon) * probability(1)
    assert exact > 0
    assert tail.tail_delta(dimension, ratio=ratio, epsilon=epsilon, start=start) == pytest.approx(
        exact, rel=1e-7
    )


def test_the_paper_s_size_in_forty_digits():
    mpmath.mp.dps = 40
    d, level = 23, mpmath.mpf(1)
    s = mpmath.mpf(7) / 4 * mpmath.sqrt(2 * mpmath.log(15682))
    r0 = mpmath.mpf("7.434")

    def density(r: mpmath.mpf) -> mpmath.mpf:
        half = mpmath.mpf(d) / 2
        return r ** (d - 1) * mpmath.exp(-r * r / 2) / (2 ** (half - 1) * mpmath.gamma(half))

    def integrand(r: mpmath.mpf) -> mpmath.mpf:
        return density(r) * (1 - r0 / r) * (1 - mpmath.exp(level - r / s - 1 / (2 * s * s))) / 4

    def difference(r: mpmath.mpf) -> mpmath.mpf:
        # From the two shares themselves, before any substitution.
        kappa, b = 2 * s * r, 2 * s * r0
        second = max(1 - (b + 2) / kappa, 0) * max(1 - 2 / kappa, 0) ** (d - 2)
        return density(r) * ((1 - b / kappa) - mpmath.e * second) / 4

    exact = float(mpmath.quad(integrand, [r0, 7.7, 8.5, 10, 13, 18, 30]))
    direct = mpmath.quad(difference, [r0, r0 + 1 / s, 7.7, 8.5, 10, 13, 18, 30])
    assert float(direct) == pytest.approx(exact, rel=1e-10)
    found = tail.tail_delta(23, ratio=float(s), epsilon=1.0, start=float(r0))
    assert found == pytest.approx(exact, rel=2e-9)
    assert found <= exact
    assert exact > 6 * PAPER_DELTA


@given(st.integers(3, 60), st.floats(0.5, 80), st.floats(0.02, 6))
@settings(max_examples=80, deadline=None)
def test_the_lower_bound_is_below_the_proved_one_and_the_start_is_best(dimension, ratio, epsilon):
    best = tail.tail_delta(dimension, ratio=ratio, epsilon=epsilon)
    assert best <= chi_delta(epsilon, 1 / ratio, dimension + 1)
    start = tail.best_start(dimension, ratio=ratio, epsilon=epsilon)
    for factor in (0.0, 0.8, 0.99, 1.01, 1.2):
        other = tail.tail_delta(dimension, ratio=ratio, epsilon=epsilon, start=factor * start)
        assert other <= best * (1 + 1e-6) + 1e-15


def test_by_importance_sampling_of_the_lattice():
    rng = np.random.default_rng(8)
    mean, error = tail.sampled_tail_delta(6, ratio=2.0, epsilon=1.5, start=2.4, runs=60_000, rng=rng)
    exact = tail.tail_delta(6, ratio=2.0, epsilon=1.5, start=2.4)
    assert error < 0.2 * exact
    assert abs(mean - exact) < 4.5 * error


# --- the verdicts -------------------------------------------------------------------------------------


def test_the_paper_s_dimension_at_its_own_delta():
    table = tail.verdict_table([12, 13, 19, 20, 23], epsilons=[0.1, 0.5, 1.0, 2.0, 4.0], delta=PAPER_DELTA)
    verdict = table.set_index(["epsilon", "d"])["verdict"]
    assert verdict[1.0].to_dict() == {12: "proved", 13: "open", 19: "open", 20: "refuted", 23: "refuted"}
    assert [verdict[(level, 23)] for level in (0.1, 0.5, 1.0, 2.0, 4.0)] == ["open"] + ["refuted"] * 4
    attained = table.set_index(["epsilon", "d"])["attained"]
    assert attained[(1.0, 23)] == pytest.approx(2.6176e-8, rel=1e-4)
    assert attained[(0.5, 23)] == pytest.approx(1.1098e-8, rel=1e-4)
    assert attained[(0.1, 23)] == pytest.approx(1.943e-9, rel=1e-3)
    level = tail.smallest_refuted_epsilon(23, delta=PAPER_DELTA)
    assert 0.1 < level < 0.5
    scale = printed_ratio(epsilon=level, delta=PAPER_DELTA)
    assert tail.tail_delta(23, ratio=scale, epsilon=level) == pytest.approx(PAPER_DELTA, rel=1e-4)
    above = tail.verdict_table([23], epsilons=np.geomspace(level * 1.001, 10, 60).tolist(), delta=PAPER_DELTA)
    assert (above["verdict"] == "refuted").all()


def test_dimensions():
    table = tail.dimension_table([0.1, 1.0, 4.0], delta=1e-8).set_index("epsilon")
    assert table["proved up to"].tolist() == [16, 12, 9]
    assert table["refuted from"].tolist() == [25, 20, 16]
    assert (table["rings from"] > 3 * table["refuted from"]).all()
    assert tail.other_records(23, epsilon=1.0, delta=PAPER_DELTA) == 116


def test_the_gaussian_must_be_about_as_large_as_the_proved_one():
    table = tail.ratio_table([23, 100, 1000], epsilon=1.0, delta=PAPER_DELTA).set_index("d")
    assert table.loc[23, "printed"] < table.loc[23, "refuted"] < table.loc[23, "proved"]
    assert table["proved / refuted"].is_monotonic_decreasing
    assert table["proved / refuted"].iloc[-1] < 1.03
    refuted = table.loc[100, "refuted"]
    assert tail.tail_delta(100, ratio=refuted, epsilon=1.0) == pytest.approx(PAPER_DELTA, rel=1e-6)
    assert table.loc[100, "proved"] == smallest_ratio(epsilon=1.0, delta=PAPER_DELTA, coordinates=101)


# --- real spaces --------------------------------------------------------------------------------------


def test_polygons_exactly():
    rng, runs = np.random.default_rng(9), 60_000
    lead, ratio = 3.0, 1.0
    exact = spaces.polygon_winner(24, ratio=ratio, lead=lead)
    space = spaces.polygon(24)
    assert space.separation == pytest.approx(2 * math.sin(math.pi / 24))
    noise = rng.normal(0, ratio * space.shift, (runs, 2))
    share = float(space.winners(noise, lead, first=True).mean())
    assert abs(share - exact) < 5 * math.sqrt(exact / runs)
    lattice = 0.5 * float(
        integrate.quad(lambda r: (1 - 1.5 / r) * r * math.exp(-r * r / 2), 1.5, 20)[0]
    )  # r0 = lead / (2 s)
    assert spaces.polygon_limit(ratio=ratio, lead=lead) == pytest.approx(lattice, rel=1e-9)
    errors = [spaces.polygon_winner(n, ratio=ratio, lead=lead) / lattice - 1 for n in (16, 32, 64, 128)]
    assert errors[0] > errors[1] > errors[2] > errors[3] > 0
    assert errors[2] / errors[3] == pytest.approx(4, rel=0.05)


@pytest.fixture(scope="module")
def small_sphere() -> spaces.PatternedSpace:
    return spaces.tiled_sphere(3, tiles=2, spacing=0.08)


def test_a_tiled_sphere_is_what_it_says(small_sphere):
    norms = np.linalg.norm(small_sphere.members, axis=1)
    assert np.allclose(norms, 1, atol=1e-12)
    assert 0.75 * 0.08 < small_sphere.separation <= 0.08
    first, second = small_sphere.problems(4)
    assert first.space.separation == pytest.approx(small_sphere.separation)
    assert shift(first, gap=0.0) == pytest.approx(small_sphere.shift, rel=1e-9)
    assert np.count_nonzero((first.losses != second.losses).any(axis=1)) == 1
    for problem, on in ((first, True), (second, False)):
        cost = small_sphere.costs(4.0, first=on)
        expected = np.array([cost[kind] for kind in small_sphere.kinds])
        assert np.ptp(problem.total - expected) < 1e-9


def test_the_trees_find_the_enumerated_minimum(small_sphere):
    rng = np.random.default_rng(10)
    noise = rng.normal(0, 1.2 * small_sphere.shift, (150, 3))
    noise *= np.linspace(0.5, 3, 150)[:, np.newaxis]
    counts = []
    for problem, first in zip(small_sphere.problems(4), (True, False), strict=True):
        fast = small_sphere.winners(noise, 4.0, first=first)
        for eta, chosen in zip(noise, fast, strict=True):
            answer = enumerate_members(problem, problem.lifted_costs([*eta, 0.0])).point
            at = int(np.argmin(((small_sphere.members - answer) ** 2).sum(axis=1)))
            assert (small_sphere.kinds[at] == spaces.WINNER) == chosen
        counts.append(int(fast.sum()))
    assert 150 > counts[0] > counts[1] > 0


def test_the_shift_of_lemma_3_holds_and_is_needed(small_sphere):
    rng = np.random.default_rng(11)
    noise = rng.normal(0, 4 * small_sphere.shift, (4000, 3))
    won = noise[small_sphere.winners(noise, 4.0, first=True)]
    members = small_sphere.members[small_sphere.kinds == spaces.WINNER]
    chosen = members[np.argmax(won @ members.T, axis=1)]
    moved = small_sphere.winners(won + small_sphere.shift * chosen, 4.0, first=False)
    assert len(won) > 200
    assert moved.all()
    short = small_sphere.winners(won + 0.5 * small_sphere.shift * chosen, 4.0, first=False)
    assert not short.all()


def test_the_limit_is_approached_on_the_sphere():
    ratio, floor = 1.0, 3.0
    exact = [
        integrate.quad(
            lambda r, which=which: float(
                stats.chi.pdf(r, 3)
                * tail.winner_shares(np.array([2 * r]), dimension=3, floor=floor)[which][0]
            ),
            1.5 + which,
            15,
            limit=200,
        )[0]
        for which in (0, 1)
    ]
    assert tail.limit_probabilities(3, ratio=ratio, floor=floor) == pytest.approx(exact, rel=1e-7)
    table = spaces.sphere_table(
        [0.04, 0.016], runs=30_000, rng=np.random.default_rng(12), ratio=ratio, floor=floor, tiles=4
    )
    assert table["P_D"][0] < table["P_D"][1] == pytest.approx(exact[0], rel=0.2)
    assert (table["P_D"] > math.exp(1.0) * table["P_D'"]).all()  # no pure guarantee at epsilon = 1


def test_bad_input():
    with pytest.raises(ValueError, match="dimension must be at least 3"):
        tail.tail_delta(2, ratio=1.0, epsilon=1.0)
    with pytest.raises(ValueError, match="start must be nonnegative"):
        tail.tail_delta(4, ratio=1.0, epsilon=1.0, start=-1.0)
    with pytest.raises(ValueError, match="ratio must be positive"):
        tail.best_start(4, ratio=-1.0, epsilon=1.0)
    with pytest.raises(ValueError, match="does not change"):
        tail.smallest_refuted_epsilon(100, delta=PAPER_DELTA)
    with pytest.raises(ValueError, match="sides must be even"):
        spaces.polygon(7)
