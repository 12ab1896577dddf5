"""Excess risk of objective perturbation: bounds, rates and what is printed, against Monte Carlo and exact cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from adaptive_dp.datasets import Dataset, simulate_unit_rows
from adaptive_dp.losses import LogisticLoss, SquaredLoss
from adaptive_dp.objective_perturbation.excess_risk import (
    RiskBound,
    best_lam,
    excess_risk_bound,
    measure_excess_risk,
    noisy_logistic,
    optimal_choice,
    spread_noise_bound,
)
from adaptive_dp.objective_perturbation.flaws_risk import (
    accelerated_units,
    choices_table,
    descent_table,
    lost_factor,
    printed_accelerated_gap,
    printed_choice,
    printed_descent_bound,
    printed_excess_risk,
    printed_sag_bound,
    printed_smooth_renyi,
    printed_spread_bound,
    smooth_units,
)
from adaptive_dp.objective_perturbation.optimisation_cost import StartingPoint, sag_bound
from adaptive_dp.objective_perturbation.risk_experiment import (
    general_rate_table,
    rate_exponents,
    rate_table,
    risk_table,
)
from adaptive_dp.per_instance import LinearPerturbationCurve, SmoothPerturbationCurve
from adaptive_dp.privacy import Domain

LOGISTIC = LogisticLoss()


# ---------------------------------------------------------------- bounds


def test_the_bound_by_hand():
    found = excess_risk_bound(
        rows=60, dimension=4, curvature=0.25, sigma=1.0, lam=2.0, norm=1.5, tau=0.5, sigma_out=0.1
    )
    assert found == RiskBound(2.5**2 / 4, 1.5**2, pytest.approx(60 * 0.25 * 0.01 / 2))
    assert found.total == pytest.approx(1.5625 + 2.25 + 0.075)
    printed = printed_excess_risk(
        rows=60, dimension=4, slope=1.0, sigma=1.0, lam=2.0, norm=1.5, tau=0.5, sigma_out=0.1
    )
    assert printed == pytest.approx(60 * (0.25 + 0.2) + 1 + 2.25)


def test_the_best_lam_is_the_best():
    lam = best_lam(dimension=9, sigma=2.0, norm=1.5)

    def total(ridge):
        return excess_risk_bound(rows=1, dimension=9, curvature=1.0, sigma=2.0, lam=ridge, norm=1.5).total

    assert total(lam) == pytest.approx(3 * 2.0 * 1.5)
    assert total(lam) < min(total(lam * 1.01), total(lam / 1.01))


@pytest.mark.parametrize(("dimension", "norm"), [(1, 1.0), (100, 1.0), (100, 30.0)])
def test_the_optimal_choice_is_private_and_no_noisier_than_needed(dimension, norm):
    sigma, lam = optimal_choice(
        epsilon=1.0, delta=1e-6, slope=1.0, curvature=0.25, dimension=dimension, norm=norm
    )
    assert lam == pytest.approx(best_lam(dimension=dimension, sigma=sigma, norm=norm), rel=1e-12)
    assert LinearPerturbationCurve(1 / sigma, 0.25 / lam).delta(1.0) <= 1e-6
    less = sigma * (1 - 1e-9)
    assert LinearPerturbationCurve(1 / less, 0.25 / (lam * (1 - 1e-9))).delta(1.0) > 1e-6


def test_the_spread_bound_lies_between_its_limits():
    data = noisy_logistic(80, 3, np.random.default_rng(1))
    arguments = {"sigma": 2.0, "lam": 0.5}
    flat = spread_noise_bound(data.features, bend=0.0, tau=0.3, **arguments)
    assert flat == pytest.approx((2 * math.sqrt(3) + 0.3) ** 2 / (2 * 0.5))
    trace = float(np.trace(np.linalg.inv(data.features.T @ data.features + 0.5 * np.eye(3))))
    found = spread_noise_bound(data.features, bend=0.1, **arguments)
    assert found < 4 * trace / (2 * 0.1)  # the erratum's form
    assert found < printed_spread_bound(data.features, least=0.1, largest=1.0, **arguments)
    assert printed_spread_bound(data.features, least=0.1, largest=1.0, **arguments) == pytest.approx(
        4 * trace / 0.01
    )


# ---------------------------------------------------------------- measurement


def test_a_quadratic_risk_is_measured_exactly():
    rng = np.random.default_rng(3)
    features = rng.standard_normal((30, 3))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    data = Dataset(features, rng.uniform(-1, 1, 30), Domain("l2", 1.0, "real", 1.0))
    gram, lam, sigma, out = features.T @ features, 0.7, 1.3, 0.2
    best = np.linalg.solve(gram, features.T @ data.labels)
    inverse = np.linalg.inv(gram + lam * np.eye(3))
    bias = lam * inverse @ best
    truth = 0.5 * (
        bias @ gram @ bias + sigma**2 * np.trace(inverse @ gram @ inverse) + out**2 * np.trace(gram)
    )
    sample = measure_excess_risk(
        data, SquaredLoss(), sigma=sigma, lam=lam, sigma_out=out, repetitions=20_000, rng=rng
    )
    mean, low, high = sample.interval(0.99999)
    assert low < truth < high
    assert (high - low) / mean < 0.1
    assert sample.minimiser == pytest.approx(best, abs=1e-8)
    assert sample.middle.mean() == pytest.approx(sigma**2 * np.trace(inverse) / 2, rel=0.03)
    assert sample.least_bend == 1.0


def test_the_numbers_of_the_erratum():
    # Its data: rows and labels drawn from this seed in this order.
    table = risk_table(rng=np.random.default_rng(0), repetitions=1_000)
    assert table["bound"][:3].tolist() == pytest.approx([4.049, 9.815, 20.319], abs=1e-3)
    assert table["printed"][:3].tolist() == pytest.approx([10.030, 33.515, 38.150], abs=1e-3)
    for measured, low, high in zip((0.956, 2.002, 3.481), table["low"], table["high"], strict=False):
        assert low < measured < high
    assert table["middle"][0] == pytest.approx(0.378, rel=0.1)
    assert (table["high"] < table["bound"]).all()
    assert (table["bound"] < table["printed"]).all()
    assert (table["middle"] < table["spread_bound"]).all()
    assert (table["spread_bound"] < table["middle_bound"]).all()
    assert (table["middle_bound"] < table["spread_printed"]).all()


def test_data_without_a_minimiser_are_refused():
    data = simulate_unit_rows(20, 2, np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="Newton"):
        measure_excess_risk(data, LOGISTIC, sigma=1.0, lam=1.0, rng=np.random.default_rng(0))


# ---------------------------------------------------------------- rates


def test_the_rates_in_the_dimension():
    table = rate_table((4, 16, 64, 256), repetitions=150, rng=np.random.default_rng(2))
    assert (table["high"] < table["bound"]).all()
    share = table["measured"] / table["bound"]
    assert share.between(0.2, 0.3).all()  # 1/4 for a quadratic
    slopes = rate_exponents(table).set_index("choice")
    assert slopes.loc["right", "measured"] == pytest.approx(0.5, abs=0.06)
    assert slopes.loc["printed", "measured"] == pytest.approx(1.0, abs=0.06)
    assert (slopes["low"] < slopes["claimed"]).all()
    assert (slopes["claimed"] < slopes["high"]).all()
    for _, row in table.iterrows():
        assert LinearPerturbationCurve(1 / row["sigma"], 0.25 / row["lam"]).delta(1.0) < 1.1e-6
    with pytest.raises(ValueError, match="at least 3 dimensions"):
        rate_exponents(table[:2])


def test_the_rate_survives_beyond_linear_losses():
    table = general_rate_table()
    assert (table["theorem"] >= table["gaussian"]).all()
    assert table["ratio"].between(1.9, 2.1).all()  # 1 + curvature ||theta*|| / slope
    assert table["corrected"].iloc[-1] > 100 * table["theorem"].iloc[-1]
    assert table["risk"].iloc[-1] == pytest.approx(100 * table["risk"].iloc[0])


# ---------------------------------------------------------------- what is printed


def test_the_slope_of_the_general_theorem_wants_its_square():
    table = smooth_units()
    assert not table["holds"].all()
    assert table.loc[table["scale"] <= 1, "holds"].all()
    assert (table["corrected"] >= table["exact"]).all()
    small = {"slope": 1.0, "curvature": 0.1, "sigma": 2.0, "lam": 1.0, "dimension": 3}
    difference = printed_smooth_renyi(2.0, **small) - SmoothPerturbationCurve(0.5, 0.1, 3).renyi(2.0)
    assert difference == pytest.approx(-3 * (math.log1p(-0.1) + math.log1p(0.1)))
    assert printed_smooth_renyi(2.0, **{**small, "curvature": 1.0}) == math.inf


def test_the_printed_choice_loses_a_root_of_d():
    table = choices_table((10, 1_000))
    assert table["right"].tolist() == pytest.approx([11.754, 117.539], abs=1e-3)
    assert table["printed"].tolist() == pytest.approx([37.169, 3716.922], abs=1e-3)
    sigma, lam = printed_choice(epsilon=0.5, delta=0.01, slope=2.0, dimension=4, norm=3.0)
    root = math.sqrt(math.log(100))
    assert (sigma, lam) == (pytest.approx(2 * 2 * root / 0.5), pytest.approx(4 * 2 * root / 1.5))


def test_the_printed_bounds_of_the_optimisers():
    units = accelerated_units()
    assert (units["gap"] <= units["right"]).all()
    assert not units["holds"].all()
    assert units.loc[units["scale"] < 1, "holds"].all()  # the same run in other units
    lost = lost_factor()
    assert lost["holds"].tolist() == [False, False, True, True]
    assert (lost["worst"] <= lost["sharp"]).all()
    assert (lost["sharp"] <= lost["right"]).all()
    descent = descent_table((50, 100), rng=np.random.default_rng(0))
    assert (descent["measured"] <= descent["bound"]).all()
    assert (descent["printed"] > 3.9 * descent["bound"]).all()
    start = StartingPoint(rows=100, smoothness=26.0, lam=1.0, gap=3.0, distance=2.0, gradient_norm=5.0)
    assert printed_descent_bound(start, gamma=0.1) == pytest.approx(100 * 50 * math.log(520.0**2))
    steps = printed_sag_bound(start, gamma=0.1, failure=0.05)
    constant = 26.0**2 * (150 * 3.0 + 4 * 26 * 4.0)
    assert steps == pytest.approx(math.log(constant / (0.01 * 0.05)) / -math.log1p(-1 / 800))
    assert 2 * steps > sag_bound(start, gamma=0.1, failure=0.05)
    assert printed_accelerated_gap(start, steps=0) == 4.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sigma": 0.0}, "sigma must be positive"),
        ({"lam": -1.0}, "lam must be positive"),
        ({"tau": -0.1}, "tau must be nonnegative, got -0.1"),
        ({"sigma_out": math.nan}, "sigma_out must be finite"),
        ({"rows": 0}, "rows must be at least 1"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"rows": 5, "dimension": 2, "curvature": 0.25, "sigma": 1.0, "lam": 1.0, "norm": 1.0}
    with pytest.raises(ValueError, match=message):
        excess_risk_bound(**{**good, **change})


def test_bad_generators_are_refused():
    data = noisy_logistic(10, 2, np.random.default_rng(0))
    with pytest.raises(TypeError, match="rng"):
        measure_excess_risk(data, LOGISTIC, sigma=1.0, lam=1.0, rng=0)
    with pytest.raises(TypeError, match="rng"):
        rate_table((4,), rng=0)


def test_the_spread_bound_where_lam_is_below_the_rounding_of_the_gram_matrix():
    X = np.random.default_rng(0).standard_normal((5, 20))
    inverse = (1 / np.linalg.svd(X, compute_uv=False) ** 2).sum()
    for lam in (1e-15, 1e-40):
        found = spread_noise_bound(X, sigma=1.0, lam=lam, bend=1.0)
        assert found == pytest.approx((15 / lam + inverse) / 2, rel=1e-12)
        # The same row five times over has one singular value.
        assert spread_noise_bound(np.tile(X[:1], (5, 1)), sigma=1.0, lam=lam, bend=1.0) == pytest.approx(
            19 / lam / 2, rel=1e-12
        )
    assert spread_noise_bound(np.zeros((3, 2)), sigma=1.0, lam=0.5, bend=1.0) == pytest.approx(2.0)


@pytest.mark.parametrize("delta", [1e-280, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0, 50.0])
def test_the_optimal_choice_is_the_smallest_at_extreme_deltas_too(epsilon, delta):
    sigma, lam = optimal_choice(
        epsilon=epsilon, delta=delta, slope=1.0, curvature=0.25, dimension=5, norm=1.0
    )
    assert LinearPerturbationCurve(1 / sigma, 0.25 / lam).delta(epsilon) <= delta
    less = 1 - 1e-6
    assert LinearPerturbationCurve(1 / (less * sigma), 0.25 / (less * lam)).delta(epsilon) > delta


def test_deltas_that_underflow_are_refused():
    with pytest.raises(ValueError, match="delta must be at least 1e-290, got 1e-300"):
        optimal_choice(epsilon=1.0, delta=1e-300, slope=1.0, curvature=0.25, dimension=5, norm=1.0)


def test_measurements_refuse_before_drawing():
    data = noisy_logistic(10, 2, np.random.default_rng(0))
    real = Dataset(data.features, 0.5 * data.labels, Domain("l2", 1.0, "real", 1.0))
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    for people, loss, error, message in (
        (data.features, LOGISTIC, TypeError, "data must be a Dataset, got ndarray"),
        (data, "a", TypeError, "loss must be a Loss"),
        (real, LOGISTIC, ValueError, "domain must have labels"),
    ):
        with pytest.raises(error, match=message):
            measure_excess_risk(people, loss, sigma=1.0, lam=1.0, rng=rng)
    assert rng.bit_generator.state == state
