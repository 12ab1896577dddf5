"""Loaders and simulators: sizes, domains, reproducibility, refusals."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from adaptive_dp import datasets
from adaptive_dp.datasets import Dataset, preparation, simulated
from adaptive_dp.privacy import Domain, row_norms

RIDGE = 0.005


def gap_of_doing_nothing(data: Dataset) -> tuple[float, NDArray[np.float64]]:
    """Regularised logistic risk of theta = 0 less the optimum, and the optimum."""
    X, y = data.features, data.labels

    def risk(theta: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        margins = y * (X @ theta)
        slope = -(X.T @ (y * expit(-margins))) / len(y) + RIDGE * theta
        return float(np.logaddexp(0, -margins).mean() + RIDGE / 2 * theta @ theta), slope

    best = minimize(risk, np.zeros(data.columns), jac=True, method="L-BFGS-B", options={"gtol": 1e-7})
    return float(np.log(2) - best.fun), best.x


# ------------------------------------------------------------------------------------------ every loader

SIZES: list[tuple[str, dict[str, object], tuple[int, int]]] = [
    ("load_census_income", {"rows": 5_000}, (5_000, 38)),
    ("load_bike", {}, (17_379, 13)),
    ("load_concrete", {}, (1_030, 8)),
    ("load_wine_red", {}, (1_599, 11)),
]


@pytest.mark.parametrize(("name", "arguments", "size"), SIZES)
def test_size_names_and_reproducibility(
    name: str, arguments: dict[str, object], size: tuple[int, int]
) -> None:
    first, second = (getattr(datasets, name)(**arguments) for _ in range(2))
    assert first.features.shape == size
    assert len(set(first.names)) == size[1]
    np.testing.assert_array_equal(first.features, second.features)
    np.testing.assert_array_equal(first.labels, second.labels)
    assert first.features.dtype == np.float64
    assert np.ptp(first.features, axis=0).min() > 0, "a constant column carries nothing"


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("scaling", ["unit", "bound"])
@pytest.mark.parametrize(("name", "arguments", "size"), SIZES)
def test_domain_holds_in_every_norm(
    name: str, arguments: dict[str, object], size: tuple[int, int], norm: str, scaling: str
) -> None:
    data = getattr(datasets, name)(**arguments, norm=norm, scaling=scaling)
    assert data.domain.norm == norm
    assert data.domain.feature_bound == 1.0
    norms = row_norms(data.features, norm)
    assert norms.max() <= 1 + 1e-12
    if scaling == "unit":
        np.testing.assert_allclose(norms, 1.0)


@pytest.mark.parametrize(("name", "arguments", "size"), SIZES)
@pytest.mark.parametrize("bad", [{"norm": "l3"}, {"scaling": "largest"}])
def test_unknown_choices_are_refused(
    name: str, arguments: dict[str, object], size: tuple[int, int], bad: dict[str, str]
) -> None:
    (argument, value) = next(iter(bad.items()))
    with pytest.raises(ValueError, match=f"{argument} must be one of .* got '{value}'"):
        getattr(datasets, name)(**arguments, **bad)


# ----------------------------------------------------------------------------------- Census-Income (KDD)


def test_census_income_parts_and_labels() -> None:
    train = datasets.load_census_income(rows=199_523)
    assert int((train.labels == 1).sum()) == 12_382
    test = datasets.load_census_income(rows=99_762, part="test")
    assert int((test.labels == 1).sum()) == 6_186
    assert datasets.load_census_income(rows=10).domain == Domain("l1", 1.0, "sign", 1.0)
    with pytest.raises(ValueError, match="rows must be at most 99762 for part='test', got 99763"):
        datasets.load_census_income(rows=99_763, part="test")


def test_census_income_seed_chooses_the_subset() -> None:
    same, other = (datasets.load_census_income(rows=500, seed=seed).features for seed in (20_261, 7))
    assert not np.array_equal(same, other)


@pytest.mark.parametrize("rows", [0, -5])
def test_census_income_refuses_bad_counts(rows: int) -> None:
    with pytest.raises(ValueError, match=f"rows must be at least 1, got {rows}"):
        datasets.load_census_income(rows=rows)


def test_census_income_default_scaling_leaves_most_to_learn() -> None:
    gaps = {}
    ranks_well = {}
    for scaling in ("unit", "bound", "paper"):
        data = datasets.load_census_income(rows=20_000, scaling=scaling)
        gaps[scaling], theta = gap_of_doing_nothing(data)
        scores = data.features @ theta
        positive = data.labels == 1
        ranks_well[scaling] = float(np.median(scores[positive])) > float(np.quantile(scores[~positive], 0.7))
    assert gaps["unit"] > 0.3 > gaps["paper"]
    assert gaps["unit"] > 1.5 * max(gaps["bound"], gaps["paper"])
    assert ranks_well == {"unit": True, "bound": False, "paper": False}


# --------------------------------------------------------------------------------------------- regression


@pytest.mark.parametrize("name", ["load_bike", "load_concrete", "load_wine_red"])
def test_regression_labels_can_be_restored(name: str) -> None:
    centred, plain = (getattr(datasets, name)(centre_labels=flag) for flag in (True, False))
    assert np.abs(centred.labels).max() <= 1
    assert plain.labels.min() >= 0
    np.testing.assert_allclose(
        centred.restore_labels(centred.labels), plain.restore_labels(plain.labels), atol=1e-12
    )
    with pytest.raises(TypeError, match="centre_labels must be True or False, got 1"):
        getattr(datasets, name)(centre_labels=1)


def test_regression_labels_are_the_published_targets() -> None:
    bike = datasets.load_bike()
    assert round(np.expm1(bike.restore_labels(bike.labels)).sum()) == 3_292_679
    concrete = datasets.load_concrete()
    assert concrete.restore_labels(concrete.labels).mean() == pytest.approx(35.818, abs=5e-4)
    wine = datasets.load_wine_red()
    grades = np.round(wine.restore_labels(wine.labels)).astype(int)
    assert np.bincount(grades)[3:].tolist() == [10, 53, 681, 638, 199, 18]


@pytest.mark.parametrize(
    ("name", "least"), [("load_bike", 0.7), ("load_concrete", 0.75), ("load_wine_red", 0.33)]
)
def test_a_linear_model_explains_the_labels(name: str, least: float) -> None:
    data = getattr(datasets, name)()
    theta = np.linalg.lstsq(data.features, data.labels, rcond=None)[0]
    left = np.var(data.labels - data.features @ theta)
    assert 1 - left / np.var(data.labels) > least


# ---------------------------------------------------------------------------------------------- Buzz-like

PUBLISHED_QUARTILES = {
    "NCD_0": (3, 18, 104),
    "NCD_6": (6, 30, 164),
    "AI_0": (2, 11, 59),
    "NAC_0": (3, 20, 113),
    "NA_0": (3, 17, 96),
    "NAD_0": (3, 18, 104),
    "BL_0": (1, 1, 1),
    "CS_6": (1, 1, 1),
    "ADL_0": (1, 1, 1.0744),
    "AT_0": (1, 1, 1.0526),
}
PUBLISHED_MEANS = {
    "NCD_0": 140.3,
    "NCD_6": 219.4,
    "AI_0": 71.0,
    "NAC_0": 150.7,
    "NA_0": 123.1,
    "AS(NA)_0": 2.02e-4,
    "AS(NAC)_0": 1.14e-4,
    "BL_0": 0.925,
    "AT_0": 1.0455,
    "ADL_0": 1.0953,
}


@pytest.fixture(scope="module")
def buzz_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return simulated.simulate_buzz_table(100_000, rng=np.random.default_rng(20_261))


def test_buzz_quartiles_are_the_published_ones(
    buzz_table: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    features, target = buzz_table
    for name, quartiles in PUBLISHED_QUARTILES.items():
        got = np.quantile(features[:, simulated.BUZZ_NAMES.index(name)], [0.25, 0.5, 0.75])
        # counts are whole numbers at the source, so the first quartile may be off by half a count
        np.testing.assert_allclose(got, quartiles, rtol=0.05, atol=0.5 if quartiles[2] > 2 else 0.03)
    np.testing.assert_allclose(np.quantile(target, [0.25, 0.5, 0.75]), (4.5, 25.5, 139.0), rtol=0.04)


def test_buzz_means_and_tails_are_near_the_published_ones(
    buzz_table: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    features, target = buzz_table
    for name, mean in PUBLISHED_MEANS.items():
        got = features[:, simulated.BUZZ_NAMES.index(name)].mean()
        assert got == pytest.approx(mean, rel=0.06), name
    assert target.mean() == pytest.approx(191.3, rel=0.05)
    assert 400 < features[:, 0].std() < 560, "published 431.8"
    assert 550 < target.std() < 800, "published 612.4"


def test_buzz_never_passes_its_declared_tops(
    buzz_table: tuple[NDArray[np.float64], NDArray[np.float64]],
) -> None:
    features, target = buzz_table
    assert (features >= 0).all()
    assert (features <= simulated.buzz_tops() * (1 + 1e-12)).all()
    assert target.min() >= 0
    assert target.max() <= 75_724.5


def test_buzz_rows_are_heavy_tailed() -> None:
    data = datasets.simulate_buzz(100_000, rng=np.random.default_rng(1))
    norms = row_norms(data.features, "l1")
    assert 3e-4 < np.median(norms) < 2e-3
    assert norms.max() > 0.2
    assert data.labels.min() >= 0
    assert np.expm1(data.restore_labels(1.0)) == pytest.approx(75_724.5)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("scaling", ["paper", "unit", "bound"])
def test_buzz_domain_and_reproducibility(norm: str, scaling: str) -> None:
    first, second = (
        datasets.simulate_buzz(500, rng=np.random.default_rng(3), norm=norm, scaling=scaling)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.features, second.features)
    assert first.features.shape == (500, 77)
    assert first.domain == Domain(norm, 1.0, "real", 1.0)


def test_buzz_is_fast() -> None:
    simulated.simulate_buzz_table(10, rng=np.random.default_rng(0))  # fits the quantile functions once
    started = time.process_time()
    datasets.simulate_buzz(100_000, rng=np.random.default_rng(0))
    assert time.process_time() - started < 2.0, "half a second on a quiet machine"


def test_buzz_refuses_bad_arguments() -> None:
    with pytest.raises(TypeError, match=r"rng must be a numpy\.random\.Generator"):
        datasets.simulate_buzz(10, rng=1)
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        datasets.simulate_buzz(0, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="scaling must be one of"):
        datasets.simulate_buzz(10, rng=np.random.default_rng(1), scaling="log")


# -------------------------------------------------------------------------------------------- preparation


def test_to_range_clips_and_maps() -> None:
    got = preparation.to_range("x", [-5.0, 0.0, 5.0, 10.0, 50.0], 0.0, 10.0)
    np.testing.assert_allclose(got, [0, 0, 0.5, 1, 1])
    np.testing.assert_allclose(preparation.to_range("x", [0.0, 5.0, 10.0], 0, 10, -1.0), [-1, 0, 1])
    with pytest.raises(ValueError, match=r"low must be below high, got 3\.0 and 3\.0"):
        preparation.to_range("x", [1.0], 3.0, 3.0)
    with pytest.raises(ValueError, match="x must be finite"):
        preparation.to_range("x", [np.nan], 0.0, 1.0)


def test_log_ranges() -> None:
    np.testing.assert_allclose(preparation.log_range("x", [0.0, 9.0, 99.0, 1e6], 99.0), [0, 0.5, 1, 1])
    np.testing.assert_allclose(preparation.signed_log_range("x", [-99.0, 0.0, 9.0], 99.0), [-1, 0, 0.5])


def test_changing_one_record_changes_one_row() -> None:
    rng = np.random.default_rng(5)
    matrix = rng.uniform(-1, 1, size=(6, 4))
    other = matrix.copy()
    other[2] = [1.0, -1.0, 1.0, 1.0]
    for scaling in preparation.SCALINGS:
        for norm in ("l1", "l2", "linf"):
            differ = (
                preparation.scale_rows(matrix, norm, scaling, 4)
                != preparation.scale_rows(other, norm, scaling, 4)
            ).any(axis=1)
            assert differ.tolist() == [False, False, True, False, False, False]


def test_dividing_by_the_largest_norm_touches_everybody() -> None:
    matrix = np.array([[1.0, 1.0], [2.0, 2.0]])
    np.testing.assert_allclose(preparation.divide_by_largest(matrix, "l1"), [[0.25, 0.25], [0.5, 0.5]])
    moved = preparation.divide_by_largest(np.array([[1.0, 1.0], [4.0, 4.0]]), "l1")
    assert moved[0, 0] == pytest.approx(0.125)
    with pytest.raises(ValueError, match="largest row norm must be positive"):
        preparation.divide_by_largest(np.zeros((2, 2)), "l1")


def test_zero_rows_stay_zero() -> None:
    assert preparation.scale_rows(np.zeros((1, 3)), "l1", "unit", 3).tolist() == [[0.0, 0.0, 0.0]]


# ------------------------------------------------------------------------------------------------ Dataset


@pytest.fixture
def small() -> Dataset:
    return Dataset(
        np.eye(4) * 0.5, [0.0, 0.25, 0.5, 1.0], Domain(), list("abcd"), "small", label_scale=4, label_shift=1
    )


def test_take_and_split_keep_everything_else(small: Dataset) -> None:
    taken = small.take([3, 0])
    assert taken.labels.tolist() == [1.0, 0.0]
    assert (taken.names, taken.title, taken.domain) == (small.names, "small", small.domain)
    assert taken.restore_labels(taken.labels).tolist() == [5.0, 1.0]
    assert small.take(np.array([True, False, False, True])).rows == 2
    first, second = small.split(0.75, np.random.default_rng(2))
    assert (first.rows, second.rows) == (3, 1)
    assert sorted([*first.labels, *second.labels]) == small.labels.tolist()


def test_dataset_refusals(small: Dataset) -> None:
    with pytest.raises(TypeError, match="indices must be a list of integers"):
        small.take([0.5])
    with pytest.raises(ValueError, match=r"share must leave records on both sides of 4, got 0\.01"):
        small.split(0.01, np.random.default_rng(2))
    with pytest.raises(ValueError, match="label_scale must be positive"):
        Dataset([[0.5]], [0.5], Domain(), label_scale=0.0)
    with pytest.raises(ValueError, match="rows must be at most 4, got 5"):
        small.subsample(5, np.random.default_rng(2))
    with pytest.raises(ValueError, match="names must have one entry a feature"):
        Dataset([[0.5]], [0.5], Domain(), names=("a", "b"))
    with pytest.raises(TypeError, match="domain must be a Domain"):
        Dataset([[0.5]], [0.5], None)
    with pytest.raises(ValueError, match="read-only"):
        small.features[0, 0] = 9.0
    assert "small: 4 x 4" in repr(small)
