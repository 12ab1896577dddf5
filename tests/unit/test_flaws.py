"""The paper's faults as exact numbers, and the small tables of the chapter."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from adaptive_dp.accuracy_first import experiment, flaws, theory
from adaptive_dp.accuracy_first.above_threshold import worst_halting_loss
from adaptive_dp.accuracy_first.calibration import minimiser_radius, risk_query_sensitivity
from adaptive_dp.accuracy_first.ex_post import best_growth_factor, worst_case_growth, worst_case_search_loss
from adaptive_dp.accuracy_first.theory import invert_theory


@pytest.mark.parametrize(("dimension", "loss"), [(1, 0.1), (2, 0.452), (3, 0.8936), (5, 0.999), (10, 1.0)])
def test_one_coin_for_all_coordinates_loses_the_guarantee(dimension, loss):
    """Erratum AF-4, exact density: the loss climbs from the coarse to the fine epsilon with the dimension."""
    exact = flaws.shared_coin_loss(dimension, coarse_epsilon=0.1, fine_epsilon=1.0)
    assert exact == pytest.approx(loss, abs=5e-4)


def test_shared_coin_needs_two_increasing_levels():
    """A finer level that is coarser has no coin."""
    with pytest.raises(ValueError, match="fine_epsilon must exceed"):
        flaws.shared_coin_loss(2, coarse_epsilon=1.0, fine_epsilon=0.5)


def test_shared_coin_density_is_that_of_a_simulation():
    """Monte Carlo of one shared coin in three dimensions: log ratio of a small box at the centre and one step off."""
    rng = np.random.default_rng(4)
    runs, keep = 2_000_000, 0.1**2
    moved = rng.random(runs) >= keep
    draws = rng.laplace(size=(runs, 3)) + moved[:, None] * rng.laplace(size=(runs, 3)) / 0.1
    near = (np.abs(draws) < 0.3).all(axis=1).sum()
    away = (np.abs(draws - np.array([1.0, 0, 0])) < 0.3).all(axis=1).sum()
    ratio = math.log(near / away)
    assert ratio - 3 * math.sqrt(1 / near + 1 / away) > 0.1  # the promised loss is exceeded beyond doubt
    assert ratio < flaws.shared_coin_loss(3, coarse_epsilon=0.1, fine_epsilon=1.0)


@pytest.mark.parametrize(("sign", "chance"), [(1, 1.7e-9), (-1, 1 - 1.7e-9)])
def test_a_perfect_hypothesis_fails_the_printed_threshold(sign, chance):
    """Erratum AF-1b at T = 1000, gamma = 0.1."""
    exact = flaws.perfect_hypothesis_accepted(levels=1_000, failure=0.1, sign=sign)
    assert min(exact, 1 - exact) == pytest.approx(min(chance, 1 - chance), rel=0.03)


@pytest.mark.parametrize(
    ("task", "kind", "reached"),
    [
        ("ridge", "printed", 146.20),
        ("ridge", "sharp", 64.13),
        ("logistic", "printed", 24.11),
        ("logistic", "sharp", 14.92),
    ],
)
def test_the_pair_of_neighbours_reaches_what_the_table_says(task, kind, reached):
    """Errata AF-7b and AF-7c at lam = 0.005, times n; never above the bound, always above half of it."""
    row = flaws.query_motion_row(task, calibration=kind, lam=0.005)
    assert row["reached"] == pytest.approx(reached, abs=0.02)
    assert float(row["bound"]) / 2 < float(row["reached"]) <= float(row["bound"])
    assert row["M"] == minimiser_radius(task, lam=0.005, calibration=kind)


@pytest.mark.parametrize(
    ("factors", "one_way", "both_ways"), [((2, 4), 0.75, 1.0), ((2, 2), 1.0, 1.5), ((1, 2), 1.5, 2.0)]
)
def test_noise_scales_of_the_test(factors, one_way, both_ways):
    """Erratum AF-7a: 2 and 4 meet the budget when queries move both ways; 2 and 2 would do if they moved one way."""
    scales = {"threshold_factor": factors[0], "query_factor": factors[1]}
    assert worst_halting_loss(two_sided=False, **scales) == pytest.approx(one_way, abs=1e-6)
    assert worst_halting_loss(two_sided=True, **scales) == pytest.approx(both_ways, abs=1e-6)


def test_inversion_table_has_the_numbers_of_the_errata():
    """17.7 and 2.25 (covariance), 0.838 (ridge output), 4.30 and 0.0731 (logistic), at alpha = 0.05."""
    table = theory.inversion_table(alpha=0.05, lam=0.005)
    values = [[row["printed"], row["sharp"]] for row in table]
    assert values[0] == pytest.approx([17.70, 2.248], rel=1e-3)
    assert values[1][1] == pytest.approx(0.8379, rel=1e-3)
    assert values[2] == pytest.approx([4.2997, 0.07315], rel=1e-3)
    assert table[2]["printed"] == invert_theory(
        "logistic", "output", alpha=0.05, rows=100_000, columns=38, lam=0.005, calibration="printed"
    )


def test_slope_of_the_squared_loss_is_not_exceeded_on_the_ball():
    """Gradients of one regularised squared loss on the sharp ball, random and extreme records."""
    rng = np.random.default_rng(6)
    lam, radius = 0.05, minimiser_radius("ridge", lam=0.05)
    bound = theory.squared_loss_slope(lam)
    worst = 0.0
    for _ in range(2_000):
        theta = rng.normal(size=3)
        theta *= radius * rng.random() ** 0.2 / np.linalg.norm(theta)
        x = -theta / np.linalg.norm(theta) if rng.random() < 0.5 else rng.dirichlet(np.ones(3))
        y = rng.choice([-1.0, 1.0])
        worst = max(worst, float(np.linalg.norm((x @ theta - y) * x + lam * theta)))
    assert 0.9 * bound < worst <= bound + 1e-12


def test_factors_of_the_ridge_test_alone():
    """Printed: e^7.266 and e^4.844; the released program with half of Claim A.5: 3.04 and 2.10 (erratum AF-9)."""
    printed, released = experiment.factors_of_the_test(alphas=(0.05, 0.075))
    assert printed == pytest.approx([1431, 127], rel=2e-3)
    assert released == pytest.approx([3.04, 2.10], abs=0.01)


def test_risk_factors_join_the_released_budget_to_the_measured_generation():
    """A planted summary: every column is the exponential of what was put in."""
    rows = [
        {"calibration": kind, "method": method, "alpha": 0.05, "epsilon": loss, "generate": 0.1}
        for kind, method, loss in (
            ("printed", "noise reduction", 1.0),
            ("printed", "doubling", 2.0),
            ("sharp", "noise reduction", 0.5),
            ("sharp", "doubling", 0.75),
        )
    ]
    table = experiment.risk_factors(pd.DataFrame(rows), alphas=(0.05,), rows=100_000, lam=0.005, failure=0.1)
    assert table.iloc[0, 1:5].tolist() == pytest.approx(np.exp([1.0, 2.0, 0.5, 0.75]))
    delta = risk_query_sensitivity("ridge", rows=100_000, lam=0.005, calibration="printed")
    budget = flaws.released_code_epsilon(sensitivity=delta, alpha=0.05, failure=0.1, levels=1_000)
    assert table.iloc[0, 5] == pytest.approx(math.exp(budget + 0.1))


def test_best_growth_factor_minimises_the_worst_case():
    """No factor of a finer grid does better by more than the grid's step allows; free tests give two."""
    cost = {"needed": 0.05, "first": 1e-5, "last": 50.0, "failure": 0.1, "sensitivity_over_alpha": 0.046}
    best = best_growth_factor(**cost)
    least = min(worst_case_search_loss(float(f), **cost) for f in np.geomspace(1.2, 400, 6_000))
    assert worst_case_search_loss(best, **cost) == pytest.approx(least, rel=1e-3)
    assert best_growth_factor(**(cost | {"sensitivity_over_alpha": 1e-9})) == pytest.approx(2.0, rel=0.01)
    with pytest.raises(ValueError, match="factor must exceed 1"):
        worst_case_growth(1.0)


@pytest.mark.parametrize("profile", ["quick", "book", "paper"])
def test_every_profile_sets_the_same_names(profile):
    """The chapter reads the same settings at all sizes."""
    assert set(experiment.chapter_settings(profile)) == {"alphas", "trials", "draws", "frames", "jobs"}
    assert 0.05 in experiment.chapter_settings(profile)["alphas"]


def test_unknown_profile_is_refused():
    """A misspelt profile must not silently be another."""
    with pytest.raises(ValueError, match="profile must be one of"):
        experiment.chapter_settings("books")
