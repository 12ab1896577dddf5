"""Parity losses against OPDisc and RSPM: enumeration, simulation, second computations, and the numbers of erratum 0."""

from __future__ import annotations

import math
from itertools import product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation import counterexample_figures as figures
from adaptive_dp.oracle_perturbation import flaws_discrete as flaws
from adaptive_dp.oracle_perturbation.discrete_privacy import ProvedGaussianCurve, printed_sigma, shift
from adaptive_dp.oracle_perturbation.flaws_discrete_tail import dimension_table
from adaptive_dp.oracle_perturbation.problems import TableProblem, enumerate_members
from adaptive_dp.oracle_perturbation.separator_gaussian import printed_separator_sigma
from adaptive_dp.oracle_perturbation.spaces import IntegerBall, PointSet

PAPER_DELTA = 15682.0**-2


def within(share: float, exact: float, runs: int) -> bool:
    """Five standard errors: a right formula fails once in a million seeds."""
    return abs(share - exact) < 5 * math.sqrt(exact * (1 - exact) / runs)


# --- the hypotheses of Theorem 2 ----------------------------------------------------------------------


def test_the_ratio_is_that_of_algorithm_1_whatever_the_space():
    cube = flaws.parity_problems(5)[0].space
    for space in (cube, IntegerBall.halfspaces(23), PointSet([[0.0, 0.0], [3.0, 1.0]])):
        ratio = printed_sigma(space, epsilon=0.7, delta=1e-6) / shift(space, gap=0.0)
        assert ratio == pytest.approx(flaws.printed_ratio(epsilon=0.7, delta=1e-6), rel=1e-12)


def test_the_cube_obeys_every_hypothesis():
    first, second = flaws.parity_problems(8, margin=3)
    assert np.count_nonzero((first.losses != second.losses).any(axis=1)) == 1
    assert first.space.separation == 2
    assert first.space.radius == pytest.approx(math.sqrt(8))
    assert shift(first, gap=0.0) == pytest.approx(8)
    TableProblem(first.losses, first.space, lipschitz=0.5)  # checks |l(w) - l(v)| <= |w - v| / 2
    with pytest.raises(ValueError, match="breaks lipschitz"):
        TableProblem(first.losses, first.space, lipschitz=0.49)


def polygons(rings: int, sides: int) -> tuple[PointSet, np.ndarray]:
    corners = np.array(list(product(range(sides), repeat=rings)))
    angle = 2 * math.pi * corners / sides
    members = np.stack([np.cos(angle), np.sin(angle)], axis=-1).reshape(len(corners), -1) / math.sqrt(rings)
    return PointSet(members), corners.sum(axis=1) % 2 == 1


def test_polygons_have_the_stated_separation():
    space, _ = polygons(2, 8)
    assert space.radius / space.separation == pytest.approx(math.sqrt(2) / (2 * math.sin(math.pi / 8)))
    assert shift(space, gap=0.0) == pytest.approx(2 / math.sin(math.pi / 8) ** 2)


# --- exact minimisers ---------------------------------------------------------------------------------


def test_the_rule_for_the_cube_is_the_enumeration():
    rng = np.random.default_rng(1)
    noise = np.column_stack([rng.normal(0, 4.0, (300, 8)), np.zeros(300)])  # the last coordinate of pi is 0
    pair = flaws.parity_problems(8)
    for problem, first in zip(pair, (True, False), strict=True):
        rule = flaws.cube_answers(noise[:, :8], first=first)
        for eta, odd in zip(noise, rule, strict=True):
            answer = enumerate_members(problem, problem.lifted_costs(eta)).point
            assert (answer.prod() < 0) == odd
    assert 0 < flaws.cube_answers(noise[:, :8], first=True).mean() < 0.4  # small enough noise for both cases


def test_the_rule_for_polygons_is_the_enumeration():
    space, odd = polygons(2, 8)
    rng = np.random.default_rng(2)
    noise = rng.normal(0, 3.0, (2000, 4))
    for first in (True, False):
        loss = odd if first else ~odd
        best = np.argmin(loss - noise @ space.members.T, axis=1)
        assert np.array_equal(flaws.rings_answers(noise, first=first, sides=8), odd[best])


@pytest.mark.parametrize("first", [True, False])
def test_probabilities_are_those_of_the_minimisers(first):
    rng, runs = np.random.default_rng(3), 40_000
    on_cube = flaws.cube_odd(8, 1.5)
    share = flaws.cube_answers(rng.normal(0, 1.5 * 8, (runs, 8)), first=first).mean()
    assert within(float(share), on_cube if first else 1 - on_cube, runs)
    on_rings = flaws.rings_odd(6, 0.4, sides=16)
    sigma = 0.4 * 3 / math.sin(math.pi / 16) ** 2
    share = flaws.rings_answers(rng.normal(0, sigma, (runs, 6)), first=first, sides=16).mean()
    assert within(float(share), on_rings if first else 1 - on_rings, runs)
    assert on_rings < 0.4


def test_the_margin_by_enumeration():
    pair = flaws.parity_problems(5, margin=3)
    rng, runs, sigma = np.random.default_rng(4), 4000, 6.0
    noise = np.column_stack([rng.normal(0, sigma, (runs, 5)), np.zeros(runs)])
    move = math.sqrt(5) / sigma
    for problem, margin in zip(pair, (1.0 * move, 2.0 * move), strict=True):
        # beta - 1 = 2 and beta + 1 = 4 losses, in units of 2 sigma / sqrt(5).
        best = np.argmin(
            problem.total[:, None] - problem.space.members @ noise[:, :5].T / math.sqrt(5), axis=0
        )
        even = float((problem.space.members[best].prod(axis=1) > 0).mean())
        assert within(even, 0.5 * math.exp(flaws.log_all_large(5, margin)), runs)
    difference, at = flaws.orthant_delta(5, move, 0.5, margin=move)
    exact = [0.5 * (2 * stats.norm.sf(c)) ** 5 for c in (move, 2 * move)]
    assert difference == pytest.approx(exact[0] - math.exp(0.5) * exact[1], rel=1e-12)
    assert at == move


def test_the_best_margin_is_best():
    step = 1 / (flaws.printed_ratio(epsilon=1, delta=1e-8) * math.sqrt(62))
    best, at = flaws.orthant_delta(62, step, 1.0)
    others = [flaws.orthant_delta(62, step, 1.0, margin=c)[0] for c in np.linspace(0, 2, 401)]
    assert best >= max(others) > 0.9 * best
    assert 0.2 < at < 0.3


# --- the numbers of the erratum -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delta", "rings", "cube"), [(1e-3, 30, 37), (1e-5, 46, 56), (1e-8, 74, 90), (PAPER_DELTA, 76, 94)]
)
def test_smallest_refuted_dimensions(delta, rings, cube):
    assert flaws.smallest_refuted_dimension("rings", delta=delta) == rings
    assert flaws.smallest_refuted_dimension("cube", delta=delta) == cube


def test_differences_of_the_erratum():
    table = flaws.parity_table("cube", [100, 400, 1000], epsilons=[0.1, 1.0], delta=1e-8).set_index(
        ["epsilon", "d"]
    )
    assert table.loc[(1.0, 1000), "P_D"] == pytest.approx(0.0931, abs=5e-5)
    assert table.loc[(1.0, 1000), "difference"] == pytest.approx(0.6539, abs=5e-5)
    assert table.loc[(0.1, 400), "difference"] == pytest.approx(0.0535, abs=5e-5)
    assert table["refuted"].tolist() == [True, True, True, False, True, True]
    rings = flaws.parity_table("rings", [100, 200], epsilons=[0.1, 1.0], delta=1e-8).set_index(
        ["epsilon", "d"]
    )
    assert rings.loc[(0.1, 100), "difference"] == pytest.approx(0.0077, abs=5e-5)
    assert rings.loc[(1.0, 200), "difference"] == pytest.approx(0.1936, abs=5e-5)
    separators = flaws.separator_table([46, 1000], epsilons=[1.0], delta=1e-8).set_index("m")
    assert separators.loc[1000, "difference"] == pytest.approx(0.198, abs=5e-4)
    assert separators["refuted"].tolist() == [False, True]


def test_owens_function_against_a_second_integral():
    mpmath.mp.dps = 25
    h, rings, ratio = mpmath.pi / 64, 37, flaws.printed_ratio(epsilon=0.01, delta=1e-8)
    least = mpmath.sin(h) / (2 * ratio * mpmath.sqrt(rings))
    points = [0] + [h / 10**k for k in range(4, -1, -1)]
    kept = mpmath.quad(lambda phi: mpmath.exp(-((least / mpmath.sin(phi)) ** 2) / 2), points) / h
    assert flaws.rings_odd(74, ratio) == pytest.approx(float(kept**rings / 2), rel=1e-10)


def test_a_margin_needs_fewer_dimensions():
    for level, cube, separators in ((0.1, 68, 338), (1.0, 62, 332), (4.0, 56, 326)):
        assert flaws.smallest_margin_dimension(epsilon=level, delta=1e-8) == cube
        assert flaws.smallest_margin_count(epsilon=level, delta=1e-8) == separators
    step = 2 / printed_separator_sigma(331, epsilon=1.0, delta=1e-8)
    assert flaws.orthant_delta(331, step, 1.0)[0] <= 1e-8


def test_small_cubes_are_proved():
    proved = flaws.largest_proved_cube(epsilon=1.0, delta=1e-8)
    assert 23 <= proved < 62
    norms = ProvedGaussianCurve(1 / flaws.printed_ratio(epsilon=1.0, delta=1e-8), proved + 1)
    assert norms.delta(1.0) > 1e-8  # the general bound does not reach as far


# --- the sound mechanisms -----------------------------------------------------------------------------


def test_norm_noise_on_one_coordinate_by_a_plane_integral():
    # d = 1: the shift is 1, the density epsilon^2 exp(-epsilon |eta|) / (2 pi) on the plane.
    level = 0.8

    def beyond(angle: float) -> float:
        least = level * 0.5 / math.cos(angle)
        return (1 + least) * math.exp(-least) / math.pi  # Gamma(2) tail of the radius

    exact = integrate.quad(beyond, -math.pi / 2, math.pi / 2)[0]
    assert flaws.cube_odd_norm(1, level) == pytest.approx(0.5 * exact, rel=1e-10)


def test_norm_noise_by_simulation_and_at_the_sizes_of_the_page():
    rng, runs = np.random.default_rng(5), 60_000
    noise = norm_exponential(8 / 1.0, 9, rng, draws=runs)[:, :8]
    exact = flaws.cube_odd_norm(8, 1.0)
    assert within(float(flaws.cube_answers(noise, first=True).mean()), exact, runs)
    ratios = flaws.sound_table([8, 50, 1000], epsilon=1.0)
    assert ratios["norm"].to_list() == pytest.approx([1.9587, 1.9769, 1.9803], abs=5e-5)
    assert (ratios["norm"] <= math.e).all()


@given(st.integers(1, 3000), st.floats(0.01, 20.0))
@settings(max_examples=25, deadline=None)
def test_pure_noise_keeps_its_promise(d, level):
    row = flaws.sound_table([d], epsilon=level).iloc[0]
    assert 1 <= row["norm"] <= row["promise"] * (1 + 1e-9)
    assert 1 <= row["laplace"] <= row["promise"]


def test_laplace_by_its_law():
    m, level = 7, 1.3
    scale = 2 * m / level
    assert flaws.separators_odd_laplace(m, level) == pytest.approx(
        0.5 * (2 * stats.laplace.sf(1, scale=scale)) ** m, rel=1e-12
    )


# --- the door and the figures -------------------------------------------------------------------------


def test_bad_input():
    with pytest.raises(ValueError, match="dimension and sides must be even"):
        flaws.rings_odd(5, 1.0)
    with pytest.raises(ValueError, match="shape must be one of"):
        flaws.parity_delta("ball", 4, ratio=1.0, epsilon=1.0)
    with pytest.raises(ValueError, match="margin must be nonnegative"):
        flaws.orthant_delta(4, 0.1, 1.0, margin=-1.0)
    with pytest.raises(ValueError, match="dimension must be at most 12"):
        flaws.parity_problems(13)
    with pytest.raises(ValueError, match="ratio must be positive"):
        flaws.cube_odd(4, 0.0)
    with pytest.raises(TypeError, match="dimension must be an integer"):
        flaws.cube_odd(4.0, 1.0)


def test_figures():
    tables = {
        shape: flaws.parity_table(shape, [10, 100, 1000], epsilons=[1.0], delta=1e-8)
        for shape in ("cube", "rings")
    }
    points = {
        shape: flaws.simulated_table(
            shape, [10, 50], epsilon=1.0, delta=1e-8, runs=200, rng=np.random.default_rng(6)
        )
        for shape in tables
    }
    parity = figures.draw_parity(tables, points, name="parity")
    assert "above the allowed line from d = 1000 on" in parity.alt
    table = dimension_table([0.1, 1.0, 2.0], delta=1e-8)
    assert "at epsilon 1 proved up to 12, refuted from 20" in figures.draw_map(table, name="map").alt


def test_large_levels_do_not_overflow():
    assert flaws.parity_delta("cube", 4, ratio=1.0, epsilon=1000.0) == -math.inf
    assert flaws.parity_delta("cube", 4, ratio=1.0, epsilon=0.5) == pytest.approx(
        1 - (1 + math.exp(0.5)) * flaws.cube_odd(4, 1.0), rel=1e-12
    )
    assert flaws.orthant_delta(4, 1.0, 1000.0)[0] < 0
    for shape in ("cube", "rings"):
        table = flaws.parity_table(shape, (4, 8), epsilons=(1.0, 1000.0), delta=1e-6)
        assert table["allowed"].max() <= 1
        odd = mpmath.mpf(table["P_D"].iloc[-1])
        assert table["difference"].iloc[-1] == pytest.approx(
            float(1 - odd - odd * mpmath.exp(1000)), rel=1e-9
        )
    separators = flaws.separator_table((4, 400), epsilons=(1000.0,), delta=1e-6)
    for on_d, difference in zip(separators["P_D"], separators["difference"], strict=True):
        exact = 1 - on_d - mpmath.mpf(on_d) * mpmath.exp(1000)
        assert difference == pytest.approx(max(float(exact), -math.inf), rel=1e-9)
    assert flaws.sound_table((4,), epsilon=1000.0)["promise"].iloc[0] == math.inf
