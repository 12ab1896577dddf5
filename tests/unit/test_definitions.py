"""Table A.1 of the thesis as numbers: densities, divergences, enclosures and the order of the definitions."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import integrate

from adaptive_dp.accounting import gaussian_delta, gaussian_epsilon
from adaptive_dp.datasets import Dataset
from adaptive_dp.experiments.statistics import proportion_interval
from adaptive_dp.per_instance.calibration import LinearPerturbationCurve
from adaptive_dp.per_instance.cells import larger
from adaptive_dp.per_instance.definitions import (
    definitions_table,
    log_density,
    log_ratio_growth,
    neighbouring_pair,
    renyi_bound,
)
from adaptive_dp.per_instance.one_dimensional import Data1D, Neighbours1D
from adaptive_dp.privacy import Domain

DOMAIN = Domain(norm="l2", labels="sign")


def simulate(rows, seed):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, rows)
    return Dataset(features[:, None], np.where(rng.random(rows) < 0.5 + 0.4 * features, 1.0, -1.0), DOMAIN)


def without(data, row):
    return data.take(np.delete(np.arange(data.rows), row))


def pair_of(products, product, lam, sigma):
    products = np.asarray(products, dtype=float)
    return Neighbours1D(Data1D(products, np.ones(products.size), lam, sigma), product)


def brute_log_density(theta, data, lam, sigma):
    """Written out again, with the derivatives of the objective by the elementary formulas."""
    u = data.features[:, 0] * theta
    y = data.labels
    gradient = np.sum(-y * data.features[:, 0] / (1 + np.exp(y * u))) + lam * theta
    hessian = np.sum(data.features[:, 0] ** 2 * np.exp(u) / (1 + np.exp(u)) ** 2) + lam
    return -0.5 * (gradient / sigma) ** 2 - math.log(sigma * math.sqrt(2 * math.pi)) + math.log(hessian)


def quad(function, cuts):
    return sum(integrate.quad(function, a, b, limit=200)[0] for a, b in itertools.pairwise(cuts))


@pytest.fixture(scope="module")
def data():
    return simulate(12, 3)


SETTINGS = [(0.3, 0.8), (2.0, 3.0)]


@pytest.mark.parametrize(("lam", "sigma"), SETTINGS)
def test_the_density_is_a_density_and_the_one_written_out(data, lam, sigma):
    for theta in (-3.0, 0.1, 5.0):
        ours = float(log_density(theta, data, lam=lam, sigma=sigma))
        assert ours == pytest.approx(brute_log_density(theta, data, lam, sigma), rel=1e-12)
    cuts = np.linspace(-60, 60, 31)
    total = quad(lambda t: math.exp(float(log_density(t, data, lam=lam, sigma=sigma))), cuts)
    assert total == pytest.approx(1, abs=1e-8)
    grid = np.array([[-1.0, 0.0], [1.0, 2.0]])
    assert log_density(grid, data, lam=lam, sigma=sigma).shape == (2, 2)


def test_the_density_is_the_law_of_the_mechanism(data):
    rng = np.random.default_rng(5)
    lam, sigma = 0.5, 1.0
    products = data.features[:, 0] * data.labels
    low, high = np.full(10_000, -200.0), np.full(10_000, 200.0)
    noise = rng.normal(0, sigma, low.size)
    for _ in range(40):  # the minimiser, by bisection of the derivative
        middle = (low + high) / 2
        slope = (
            -(products / (1 + np.exp(np.clip(np.outer(middle, products), -700, 700)))).sum(1)
            + lam * middle
            + noise
        )
        low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
    for cut in (-1.0, 0.5, 3.0):
        exact = quad(
            lambda t: math.exp(float(log_density(t, data, lam=lam, sigma=sigma))), np.linspace(-60, cut, 14)
        )
        interval = proportion_interval(int((low <= cut).sum()), low.size, 0.9999)
        assert interval[0] <= exact <= interval[1]


@pytest.mark.parametrize(("lam", "sigma", "row"), [(*SETTINGS[0], 0), (*SETTINGS[1], 5)])
def test_hockey_stick_and_renyi_against_quadrature(data, lam, sigma, row):
    feature, label = float(data.features[row, 0]), float(data.labels[row])
    pair = neighbouring_pair(data, feature=feature, label=label, lam=lam, sigma=sigma)
    smaller = without(data, row)
    cuts = np.linspace(-40, 40, 11)
    for side, (p, q) in enumerate([(smaller, data), (data, smaller)]):

        def densities(t, p=p, q=q):
            return (math.exp(brute_log_density(t, d, lam, sigma)) for d in (p, q))

        for epsilon in (-0.2, 0.05):

            def excess(t, epsilon=epsilon, densities=densities):
                a, b = densities(t)
                return max(0.0, a - math.exp(epsilon) * b)

            exact = quad(excess, cuts)
            found = pair.delta(epsilon)[side]
            assert found.lower - 1e-8 <= exact <= found.upper + 1e-8
            assert found.upper - found.lower <= 2e-4 * found.upper + 1e-12

        def power(t, densities=densities):
            a, b = densities(t)
            return a**2.5 * b**-1.5 if a > 1e-100 else 0.0

        exact = math.log(quad(power, cuts)) / 1.5
        found = pair.renyi(2.5)[side]
        assert found.lower - 1e-7 <= exact <= found.upper + 1e-7
        assert found.upper - found.lower <= 2e-4 * found.upper


def test_epsilon_inverts_delta(data):
    pair = neighbouring_pair(data, feature=1.0, label=1.0, lam=0.1, sigma=0.5)
    for delta in (0.1, 1e-9):
        for side in (0, 1):
            found = pair.epsilon(delta)[side]
            assert 0 <= found.lower <= found.upper <= found.lower * (1 + 2e-4)
            if found.upper == 0:  # the total variation is already below delta
                assert pair.delta(0.0)[side].upper <= delta
                continue
            assert pair.delta(found.lower * (1 - 1e-3))[side].upper >= delta
            assert pair.delta(found.upper * (1 + 1e-3))[side].lower <= delta


def test_a_loss_that_is_all_but_linear_has_the_gaussian_profile():
    # A strong ridge keeps theta at 0: the gradient is c/2 whatever happens, and nothing curves.
    for sigma in (0.2, 1.0, 5.0):
        pair = pair_of([0.3, -0.9, 0.5], 0.8, 1e9, sigma)
        mu = 0.4 / sigma
        for side in (0, 1):
            found = pair.epsilon(1e-5)[side]
            assert found.lower <= float(gaussian_epsilon(1e-5, mu)) * (1 + 1e-5)
            assert found.upper >= float(gaussian_epsilon(1e-5, mu)) * (1 - 1e-5)
            assert pair.renyi(3.0)[side].upper == pytest.approx(3 * mu**2 / 2, rel=1e-3)
    # A tiny feature is the same thing.
    tiny = pair_of([0.5, -0.2], 1e-3, 10.0, 1e-3)
    exact = float(gaussian_epsilon(1e-5, 0.5))
    for found in tiny.epsilon(1e-5):
        assert found.lower - 1e-3 <= exact <= found.upper + 1e-3


def test_without_other_people_the_bounds_are_nearly_attained():
    # A weak ridge turns the lonely record's slope from 0 to 1 at once: as large as the theorem allows, with z in P.
    sigma, lam = 4.0, 1e-6
    pair = pair_of([], 1.0, lam, sigma)
    curve = LinearPerturbationCurve(pair.mu, pair.kappa)
    found = max(side.lower for side in pair.epsilon(1e-6))
    assert 0.9 * curve.epsilon(1e-6) <= found <= curve.epsilon(1e-6)
    # Without z in P its slope is 1 on one half of the line: the one-sided Gaussian, half of what the bound allows.
    absent = pair.epsilon(1e-6)[0]
    assert absent.lower <= float(gaussian_epsilon(1e-6, pair.mu)) <= absent.upper
    assert float(gaussian_delta(absent.lower, pair.mu)) == pytest.approx(1e-6, rel=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_no_pair_exceeds_the_theorems(seed):
    rng = np.random.default_rng(seed)
    lam, sigma = 10 ** rng.uniform(-3, 2), 10 ** rng.uniform(-0.7, 1)
    for product in (1.0, float(rng.uniform(-1, 1))):
        pair = pair_of(rng.uniform(-1, 1, int(rng.integers(0, 20))), product, lam, sigma)
        curve = LinearPerturbationCurve(pair.mu, pair.kappa)
        for delta in (1e-2, 1e-8):
            found = larger(*pair.epsilon(delta, tolerance=1e-2)).lower
            assert found <= curve.epsilon(delta) * (1 + 1e-9)
        for order in (1.0001, 2.0, 20.0):
            found = larger(*pair.renyi(order, tolerance=1e-2)).lower
            assert found <= renyi_bound(order, pair.mu, pair.kappa) * (1 + 1e-6)


def test_renyi_near_order_one_is_the_kullback_leibler_divergence(data):
    pair = neighbouring_pair(data, feature=0.9, label=-1.0, lam=0.5, sigma=1.0)
    bigger = Dataset(np.vstack([data.features, [[0.9]]]), np.append(data.labels, -1.0), DOMAIN)

    def integrand(t):
        a, b = (float(log_density(t, d, lam=0.5, sigma=1.0)) for d in (data, bigger))
        return math.exp(a) * (a - b)

    exact = quad(integrand, np.linspace(-40, 40, 21))
    found = pair.renyi(1 + 1e-7)[0]
    assert found.lower == pytest.approx(exact, rel=1e-3)
    assert found.upper == pytest.approx(exact, rel=1e-3)


def test_the_theorem_for_renyi_by_hand():
    # Reference values of the errata: mu = .2, kappa = .05, order 2: .0949 without z, .0888 with it.
    assert renyi_bound(2.0, 0.2, 0.05) == pytest.approx(0.0949, abs=6e-5)
    assert renyi_bound(2.0, 0.2, 0.0) == pytest.approx(0.04, rel=1e-12)
    assert renyi_bound(2.0, 0.0, 1e6) == pytest.approx(math.log1p(1e6))


def test_the_log_ratio_of_the_densities_and_its_growth(data):
    pair = neighbouring_pair(data, feature=0.9, label=-1.0, lam=0.5, sigma=1.0)
    bigger = Dataset(np.vstack([data.features, [[0.9]]]), np.append(data.labels, -1.0), DOMAIN)
    theta = np.linspace(-8, 8, 9)
    brute = log_density(theta, data, lam=0.5, sigma=1.0) - log_density(theta, bigger, lam=0.5, sigma=1.0)
    np.testing.assert_allclose(pair.log_ratio(theta), brute, atol=1e-11)
    growth = log_ratio_growth(data, feature=0.9, label=-1.0, lam=0.5, sigma=1.0)
    assert (growth["log_ratio"] <= growth["bound"] + 1e-9).all()
    tail = growth.tail(3)
    slope = np.diff(tail["log_ratio"]) / np.diff(tail["noise"])
    np.testing.assert_allclose(slope, pair.mu, rtol=0.01)


def test_growth_under_a_ridge_so_strong_that_theta_is_tiny(data):
    lam = 1e30
    growth = log_ratio_growth(data, feature=0.9, label=-1.0, lam=lam, sigma=1.0)
    slope = -(data.features[:, 0] * data.labels).sum() / 2  # of the losses, at 0
    np.testing.assert_allclose(-(lam * growth["theta"] + slope), -growth["noise"], atol=1e-9)


def test_the_law_of_the_ex_post_loss_against_simulation(data):
    rng = np.random.default_rng(11)
    pair = neighbouring_pair(data, feature=1.0, label=1.0, lam=0.5, sigma=1.0)
    outcomes = np.interp(-rng.normal(size=30_000), -pair.base.scores(GRID), GRID)
    losses = np.abs(pair.log_ratio(outcomes))
    for level in (0.1, 0.4, 1.0):
        found = pair.exceedance(level, present=False)
        assert found.upper - found.lower < 1e-5
        low, high = proportion_interval(int((losses > level).sum()), losses.size, 0.9999)
        assert low <= found.upper
        assert found.lower <= high
    for share in (0.5, 0.95):
        found = pair.quantile(share, present=False)
        assert found.upper - found.lower <= 1e-3 * found.upper
        assert pair.exceedance(found.lower * 0.999, present=False).upper >= 1 - share
        assert pair.exceedance(found.upper * 1.001, present=False).lower <= 1 - share


GRID = np.linspace(-30, 30, 200_001)


def value(table, definition, quantity, column="value"):
    rows = table[(table["definition"] == definition) & table["quantity"].str.startswith(quantity)]
    return float(rows[column].iloc[0])


# Many people, few, and nobody else; a ridge that decides everything; noise that hides next to nothing.
CASES = [(0, 20, 1.0, 4.0, 1e-6, True), (1, 5, 0.1, 0.5, 1e-3, False), (3, 1, 0.1, 0.5, 1e-3, True),
         (4, 8, 1e6, 1e3, 1e-12, False), (5, 8, 1.0, 0.03, 1e-12, True)]  # fmt: skip


@pytest.mark.parametrize(("seed", "rows", "lam", "sigma", "delta", "member"), CASES)
def test_the_chain_of_inequalities(seed, rows, lam, sigma, delta, member):
    data = simulate(rows, seed)
    feature, label = (float(data.features[0, 0]), float(data.labels[0])) if member else (0.7, -1.0)
    table = definitions_table(data, feature=feature, label=label, lam=lam, sigma=sigma, delta=delta)
    assert (table["lower"] <= table["value"]).all()
    assert (table["lower"] >= 0).all()
    for quantity, worst in (("epsilon", "approximate DP"), ("Renyi", "Rényi DP")):
        for column in ("lower", "value"):
            chain = [
                value(table, name, quantity, column)
                for name in ("per-instance DP", "data-dependent DP", "personalized DP", worst)
            ]
            instance, by_data, by_person, everything = chain
            assert instance <= by_data <= everything
            assert instance <= by_person <= everything
    assert math.isinf(value(table, "pure DP", "epsilon"))
    assert value(table, "per-instance DP", "epsilon") > 0
    one = value(table, "data-dependent DP", "Renyi divergence of order 2, D first")
    assert one <= value(table, "data-dependent DP", "Renyi divergence of order 2") * 1.3


def test_what_the_table_certifies_is_not_exceeded_by_any_neighbour():
    data = simulate(6, 8)
    table = definitions_table(data, feature=0.2, label=1.0, lam=0.5, sigma=2.0, delta=1e-5)
    ceiling = value(table, "data-dependent DP", "epsilon")
    renyi = value(table, "data-dependent DP", "Renyi")
    assert ceiling < 0.95 * value(
        table, "approximate DP", "epsilon"
    )  # the search did better than the theorem
    assert renyi < 0.5 * value(table, "Rényi DP", "Renyi")
    records = [(float(x), 1.0) for x in np.random.default_rng(0).uniform(-1, 1, 4)]
    records += [(float(x), float(y)) for x, y in zip(data.features[:, 0], data.labels, strict=True)]
    for feature, label in [*records, (1.0, 1.0), (-1.0, 1.0)]:
        pair = neighbouring_pair(data, feature=feature, label=label, lam=0.5, sigma=2.0)
        assert larger(*pair.epsilon(1e-5, tolerance=1e-2)).lower <= ceiling
        assert larger(*pair.renyi(2.0, tolerance=1e-2)).lower <= renyi


def test_an_outcome_has_no_order(data):
    table = definitions_table(data, feature=1.0, label=1.0, lam=0.5, sigma=2.0, delta=1e-2, outcome=-60.0)
    pair = neighbouring_pair(data, feature=1.0, label=1.0, lam=0.5, sigma=2.0)
    usual, rare = np.abs(pair.log_ratio([0.0, -60.0]))
    assert usual < value(table, "per-instance DP", "epsilon") < rare
    assert value(table, "ex-post per-instance DP", "loss at theta = -60") == pytest.approx(rare)


def test_a_record_without_features_costs_nothing(data):
    table = definitions_table(data, feature=0.0, label=1.0, lam=0.5, sigma=2.0, delta=1e-2)
    for name in ("per-instance DP", "personalized DP", "ex-post per-instance DP"):
        assert (table.loc[table["definition"] == name, "value"].abs() < 1e-9).all()
    assert value(table, "data-dependent DP", "epsilon") > 0


def test_members_are_removed_and_outsiders_added(data):
    x, y = float(data.features[2, 0]), float(data.labels[2])
    assert neighbouring_pair(data, feature=x, label=y, lam=1.0, sigma=1.0).base.weights.sum() == data.rows - 1
    assert neighbouring_pair(data, feature=0.123, label=y, lam=1.0, sigma=1.0).base.weights.sum() == data.rows
    assert isinstance(log_ratio_growth(data, feature=x, label=y, lam=1.0, sigma=1.0), pd.DataFrame)


GOOD = {"feature": 0.5, "label": 1.0, "lam": 1.0, "sigma": 1.0, "delta": 1e-5}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"feature": 1.5}, ValueError, "features"),
        ({"label": 0.0}, ValueError, "labels"),
        ({"lam": 0.0}, ValueError, "lam"),
        ({"sigma": -1.0}, ValueError, "sigma"),
        ({"sigma": "big"}, TypeError, "sigma"),
        ({"delta": 0.0}, ValueError, "delta"),
        ({"delta": 1e-300}, ValueError, "delta"),
        ({"order": 1.0}, ValueError, "order"),
        ({"outcome": math.inf}, ValueError, "outcome"),
    ],
)
def test_bad_input(data, change, error, words):
    with pytest.raises(error, match=words):
        definitions_table(data, **{**GOOD, **change})


def test_bad_data(data):
    with pytest.raises(TypeError, match="dataset"):
        definitions_table([[1.0]], **GOOD)
    with pytest.raises(ValueError, match="one feature"):
        definitions_table(Dataset([[0.1, 0.2]], [1.0], DOMAIN), **GOOD)
    with pytest.raises(ValueError, match="labels"):
        definitions_table(Dataset([[0.1]], [0.5], Domain(norm="l2")), **GOOD)
    with pytest.raises(ValueError, match="mu"):
        renyi_bound(2.0, -1.0, 1.0)
