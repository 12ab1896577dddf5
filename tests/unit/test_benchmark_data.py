"""Data sets of the race between objective perturbation and DP-SGD."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from adaptive_dp.datasets import (
    Benchmark,
    Dataset,
    load_adult,
    load_benchmark,
    load_gisette_like,
    load_synthetic,
    simulate_unit_rows,
    train_test,
    unit_rows_with_bias,
)
from adaptive_dp.datasets.benchmarks import BENCHMARKS, PRODUCTS, synthetic_records
from adaptive_dp.datasets.digits import PIXELS
from adaptive_dp.datasets.files import read_arrays
from adaptive_dp.privacy import Domain, row_norms


def accuracy(benchmark: Benchmark, inverse_ridge: float = 1.0) -> float:
    """Test accuracy of logistic regression, the bias among the columns."""
    model = LogisticRegression(C=inverse_ridge, fit_intercept=False, max_iter=2000)
    model.fit(benchmark.train.features, benchmark.train.labels)
    return float(model.score(benchmark.test.features, benchmark.test.labels))


# --- synthetic ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dimension", "shape", "positive", "digest"),
    [
        ("low", (10_000, 40), 4_997, "697af046514eeca2"),
        ("high", (2_000, 2_000), 1_000, None),
    ],
)
def test_synthetic_records_are_the_generators(
    dimension: str, shape: tuple[int, int], positive: int, digest: str | None
) -> None:
    features, labels = synthetic_records(dimension)
    assert features.shape == shape
    assert int((labels == 1).sum()) == positive
    assert set(labels) == {-1.0, 1.0}
    if digest:
        # Bytes of the raw floats depend on the threads of the linear algebra, six decimals do not.
        assert hashlib.sha256(np.round(features, 6).tobytes()).hexdigest()[:16] == digest
    else:
        assert hashlib.sha256(features.tobytes()).hexdigest()[:16] == "7c056640891fe209"
    data = load_synthetic(dimension)
    np.testing.assert_allclose(data.features * row_norms(features, "l2")[:, None], features, atol=1e-5)
    np.testing.assert_array_equal(data.labels, labels)


# --- Gisette-like -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gisette() -> Dataset:
    return load_gisette_like(rows=1_000)


def whole_numbers(data: Dataset) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Undo the scaling of the rows, with the help of the images that they were made from."""
    pixels = data.features[:, :PIXELS]
    arrays = read_arrays("mnist14")
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    levels = np.round(999 * (images / 255.0))
    units = levels / np.linalg.norm(levels, axis=1, keepdims=True)
    scales = np.empty(len(pixels))
    for k, row in enumerate(pixels):
        match = int(np.argmax(units @ row))
        scales[k] = np.linalg.norm(levels[match]) / np.linalg.norm(row)
    return np.asarray(data.features * scales[:, None])


def test_gisette_like_has_the_size_and_density_of_gisette(gisette: Dataset) -> None:
    assert gisette.features.shape == (1_000, 5_000)
    assert int((gisette.labels == 1).sum()) == 500
    np.testing.assert_allclose(row_norms(gisette.features, "l2"), 1.0)
    assert 0.11 < float(np.mean(gisette.features != 0)) < 0.15  # 13 % in the original
    assert len(set(gisette.names)) == 5_000


def test_gisette_like_is_made_of_pixels_products_and_probes(gisette: Dataset) -> None:
    sample = gisette.take(np.arange(20))
    levels = whole_numbers(sample)
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-6)
    assert levels.min() == 0
    assert levels.max() <= 999 + 1e-6
    pixels = levels[:, :PIXELS]
    for column in range(PIXELS, PIXELS + PRODUCTS, 97):
        a, b = (int(k) for k in sample.names[column].removeprefix("product ").split(","))
        assert a < b
        # Rounded at each step: pixels by half a level, the root of their product by half a level.
        low, high = (
            np.sqrt(np.maximum(pixels[:, a] + s, 0) * np.maximum(pixels[:, b] + s, 0)) for s in (-0.5, 0.5)
        )
        assert np.all((levels[:, column] >= low - 0.5) & (levels[:, column] <= high + 0.5))


def test_gisette_like_probes_carry_nothing(gisette: Dataset) -> None:
    names = np.array(gisette.names)
    probes = np.char.startswith(names, "probe")
    assert int(probes.sum()) == 2_500
    # Largest standardised difference of class means: that of a chance maximum over probes, far more elsewhere.
    signed = {}
    for kind, columns in (("probe", probes), ("real", ~probes)):
        values = (gisette.features[:, columns] > 0).astype(float)
        up, down = values[gisette.labels == 1], values[gisette.labels == -1]
        spread = np.sqrt((up.var(axis=0) + down.var(axis=0)) / 500 + 1e-12)
        signed[kind] = np.abs(up.mean(axis=0) - down.mean(axis=0)) / spread
    seen = signed["probe"][np.isfinite(signed["probe"])]
    assert np.quantile(seen, 0.99) < 3.2
    assert np.quantile(signed["real"], 0.99) > 10


def test_gisette_like_is_reproducible_and_differs_by_seed() -> None:
    first, again, other = (load_gisette_like(rows=40, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.features, again.features)
    assert not np.array_equal(first.features, other.features)
    assert first.names != other.names


@pytest.mark.parametrize("rows", [7, 6_802])
def test_gisette_like_refuses_other_sizes(rows: int) -> None:
    with pytest.raises(ValueError, match=f"rows must be even and at most 6800, got {rows}"):
        load_gisette_like(rows=rows)


# --- preparation --------------------------------------------------------------------------------------


def test_unit_rows_with_bias() -> None:
    raw = Dataset(
        [[3.0, 4.0], [0.0, 0.0], [-1e-3, 0.0]], [1, -1, 1], Domain("l2", 5.0, "sign"), ["a", "b"], "three"
    )
    data = unit_rows_with_bias(raw)
    np.testing.assert_allclose(data.features, [[0.6, 0.8, 1.0], [0.0, 0.0, 1.0], [-1.0, 0.0, 1.0]])
    np.testing.assert_array_equal(data.labels, raw.labels)
    assert data.domain == Domain("l2", math.sqrt(2), "sign")
    assert data.names == ("a", "b", "bias")
    assert data.title == "three"


@pytest.mark.parametrize("size", [1e-162, 1e-300])
def test_unit_rows_whose_squares_leave_the_range(size: float) -> None:
    raw = Dataset([[3 * size, -4 * size], [3.0, 4.0]], [1, -1], Domain("l2", 5.0, "sign"))
    data = unit_rows_with_bias(raw)
    np.testing.assert_allclose(data.features, [[0.6, -0.8, 1.0], [0.6, 0.8, 1.0]], rtol=1e-12)


def test_a_second_bias_is_refused() -> None:
    raw = Dataset([[3.0, 4.0]], [1], Domain("l2", 5.0, "sign"), ["a", "bias"])
    with pytest.raises(ValueError, match="data must have no column named 'bias'"):
        unit_rows_with_bias(raw)


def test_one_record_changes_one_row() -> None:
    rng = np.random.default_rng(5)
    people = simulate_unit_rows(30, 4, rng)
    changed = people.features.copy()
    changed[7] = [0.1, -0.2, 0.0, 0.3]
    before, after = (
        unit_rows_with_bias(Dataset(rows, people.labels, people.domain)).features
        for rows in (people.features, changed)
    )
    assert np.flatnonzero(np.any(before != after, axis=1)).tolist() == [7]


def test_unit_rows_with_bias_refuses_other_labels() -> None:
    people = simulate_unit_rows(5, 2, np.random.default_rng(0), labels="real")
    with pytest.raises(ValueError, match=r"data must have labels in {-1, \+1}"):
        unit_rows_with_bias(people)
    with pytest.raises(TypeError, match="data must be a Dataset, got ndarray"):
        unit_rows_with_bias(people.features)  # type: ignore[arg-type]


def test_train_test_in_order_and_shuffled() -> None:
    people = simulate_unit_rows(50, 3, np.random.default_rng(0))
    train, test = train_test(people)
    np.testing.assert_array_equal(train.features, people.features[:40])
    np.testing.assert_array_equal(test.features, people.features[40:])
    train, test = train_test(people, 0.5, np.random.default_rng(1))
    both = np.vstack([train.features, test.features])
    assert train.rows == 25
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(people.features, axis=0))
    assert not np.array_equal(both, people.features)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda people: train_test(people, 0.001),
            ValueError,
            "share must leave records on both sides of 50",
        ),
        (lambda people: train_test(people, 1.0), ValueError, "share must lie strictly between 0 and 1"),
        (lambda people: train_test(people, 0.5, 7), TypeError, "rng must be a numpy.random.Generator"),
        (lambda people: train_test(people.features), TypeError, "data must be a Dataset, got ndarray"),
        (lambda people: load_benchmark(["Adult"]), TypeError, "name must be a text, got list"),
        (lambda people: load_benchmark("Adult", 0.5), TypeError, "seed must be an integer"),
        (lambda people: load_benchmark("Gisette"), ValueError, "name must be one of .* got 'Gisette'"),
        (lambda people: load_synthetic("middle"), ValueError, "dimension must be one of .* got 'middle'"),
    ],
)
def test_bad_input(call: Callable[[Dataset], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(simulate_unit_rows(50, 3, np.random.default_rng(0)))


# --- the benchmark ------------------------------------------------------------------------------------


def test_benchmarks_have_the_sizes_of_the_paper() -> None:
    # Gisette-like, the slow one, is checked above.
    sizes = {
        name: (load_benchmark(name).train.rows, load_benchmark(name).test.rows) for name in BENCHMARKS[:3]
    }
    assert sizes == {"Adult": (36_176, 9_044), "Synthetic-L": (8_000, 2_000), "Synthetic-H": (1_600, 400)}
    assert load_benchmark("Adult").train.columns == 105
    assert load_benchmark("Synthetic-L").train.domain == Domain("l2", math.sqrt(2), "sign")


@pytest.mark.parametrize(
    ("name", "expected", "tolerance"), [("Synthetic-L", 0.9485, 0.0011), ("Synthetic-H", 0.9625, 0.0026)]
)
def test_accuracy_without_privacy(name: str, expected: float, tolerance: float) -> None:
    assert accuracy(load_benchmark(name)) == pytest.approx(expected, abs=tolerance)


def test_adult_has_nobody_twice() -> None:
    benchmark, people = load_benchmark("Adult"), load_adult("iyengar")
    together = np.vstack([benchmark.train.features, benchmark.test.features])
    np.testing.assert_allclose(
        np.sort(together[:, :-1].sum(axis=1)), np.sort(people.features.sum(axis=1)), rtol=1e-9
    )
    assert accuracy(benchmark) == pytest.approx(0.842, abs=0.003)


def test_subset_keeps_the_test_records() -> None:
    benchmark = load_benchmark("Synthetic-H")
    small = benchmark.subset(100, np.random.default_rng(3))
    assert small.train.rows == 100
    assert small.test is benchmark.test
