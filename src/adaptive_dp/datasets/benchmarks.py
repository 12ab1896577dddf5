"""The four data sets on which redberg2023 races objective perturbation with DP-SGD, and their common preparation.

They are those of Iyengar et al. (2019), "Towards practical differentially private convex optimization": Adult, two
synthetic sets that one call of scikit-learn makes, and Gisette, for which there is a stand-in built from the digits.

What is the same as there and what is not:

- *Synthetic-L* and *Synthetic-H*: the benchmark's generator calls. Draws of scikit-learn 1.9 were not compared with
  those of the version of 2018. Logistic regression reaches 94.9 % and 96.3 % on the test rows; the thesis prints
  95.4 % for its best private method on Synthetic-L.
- *Adult*: the same records and columns, numeric columns divided by public tops in place of maxima of the data, another
  seed of the shuffle. Logistic regression reaches 84.2 % with a ridge of 1 and 85.1 % with a ridge of 0.01; the thesis
  prints 84.2 % for its best private method.
- *Gisette-like*: **not** Gisette, but made in its way from MNIST at 14 x 14 pixels: 6,000 x 5,000, digits 4 and 9.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import make_classification  # type: ignore[import-untyped]

from adaptive_dp.datasets.adult import load_adult
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.digits import PIXELS
from adaptive_dp.datasets.files import read_arrays
from adaptive_dp.datasets.preparation import scale_rows
from adaptive_dp.privacy import Domain
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_generator, check_probability

# Arguments of make_classification as in the public benchmark of Iyengar et al. (2019).
GENERATORS: dict[str, dict[str, float | int]] = {
    "low": {"n_samples": 10_000, "n_features": 40, "n_informative": 30, "random_state": 1_000},
    "high": {
        "n_samples": 2_000,
        "n_features": 2_000,
        "n_informative": 10,
        "n_redundant": 0,
        "random_state": 1,
    },
}
TITLES = {"low": "Synthetic-L", "high": "Synthetic-H"}
# Gisette is made of the digits 4 (label -1 here) and 9 (label +1); half of its columns are probes.
NEGATIVE_DIGIT, POSITIVE_DIGIT = 4, 9
PRODUCTS, PROBES = 2_304, 2_500
LEVELS = 999
SIDE = 14
# Products are taken of pixels of the central 12 x 12 square: the margin of the images is hardly ever inked.
MARGIN = 1
UNIT_LABELS = Domain(norm="l2", feature_bound=1.0, labels="sign")


# --- the sets -----------------------------------------------------------------------------------------


def synthetic_records(dimension: str) -> tuple[FloatArray, FloatArray]:
    """What the generator call returns: features (n, d), without bounds, and labels (n,) in {-1, +1}.

    Features of the low-dimensional set are products of matrices: their last bits change with the number of threads of
    the linear algebra, so that a hash of their bytes says little. Six decimals are the same everywhere.
    """
    check_choice("dimension", dimension, tuple(GENERATORS))
    features, classes = make_classification(n_classes=2, class_sep=2.0, **GENERATORS[dimension])
    return np.asarray(features, dtype=np.float64), np.where(classes == 1, 1.0, -1.0)


def load_synthetic(dimension: str = "low") -> Dataset:
    """Synthetic-L or Synthetic-H of Iyengar et al. (2019): two classes of Gaussian clusters.

    Parameters
    ----------
    dimension : {"low", "high"}
        10,000 x 40 with 30 informative columns, or 2,000 x 2,000 with 10.

    Returns
    -------
    Dataset
        Features of :func:`synthetic_records` rounded to six decimals, then each row divided by its own l2 norm, which
        costs no privacy; labels in {-1, +1}. The generator's order is random already; the benchmark trains on the first
        80 %, see :func:`train_test`.
    """
    features, labels = synthetic_records(dimension)
    features = np.round(features, 6)
    title = f"{TITLES[dimension]} (simulated)"
    return Dataset(scale_rows(features, "l2", "unit", features.shape[1]), labels, UNIT_LABELS, title=title)


def load_gisette_like(rows: int = 6_000, *, seed: int = 20_264) -> Dataset:
    """Digits 4 against 9 with many redundant and useless columns, built as Gisette is; call it Gisette-like.

    Parameters
    ----------
    rows : int
        Even, from 2 to 6,800, half of each digit. Gisette has 6,000 labelled records for training.
    seed : int
        Which images, products and probes; not negative.

    Returns
    -------
    Dataset
        ``rows`` x 5,000 in random order: 196 pixels; 2,304 square roots of products of two pixels; 2,500 probes, each
        a random one of those columns filled from other images at random. Values are whole numbers from 0 to 999 before
        each row is divided by its own l2 norm. Label +1 for a nine.

    Raises
    ------
    ValueError
        If ``rows`` is odd or out of range.

    Notes
    -----
    Guyon et al. (2004) built the NIPS 2003 set from MNIST at 28 x 28: pixels, products of pairs of pixels, and as many
    probes with the same distribution, shuffled columns. Here the columns keep their order, so that a plot of the
    parameter can tell pixels from probes. Images that fill the probes are none of the records, so that one record
    of the set depends on no other.
    """
    count = check_count("rows", rows, minimum=2)
    if count % 2 or count > 6_800:
        raise ValueError(f"rows must be even and at most 6800, got {rows}")
    rng = np.random.default_rng(check_count("seed", seed, minimum=0))
    pixels, nines = _fours_and_nines()
    order = rng.permutation(len(pixels))
    halves = [order[nines[order] == kind][: count // 2] for kind in (False, True)]
    chosen = rng.permutation(np.concatenate(halves))
    others = np.setdiff1d(order, chosen)
    first, second = _pairs(rng)
    real = np.hstack([pixels[chosen], np.sqrt(pixels[chosen][:, first] * pixels[chosen][:, second])])
    features = np.round(LEVELS * np.hstack([real, _probes(pixels[others], first, second, count, rng)]))
    names = [f"pixel {k // SIDE},{k % SIDE}" for k in range(PIXELS)]
    names += [f"product {a},{b}" for a, b in zip(first, second, strict=True)]
    names += [f"probe {k}" for k in range(PROBES)]
    return Dataset(
        scale_rows(features, "l2", "unit", features.shape[1]),
        np.where(nines[chosen], 1.0, -1.0),
        UNIT_LABELS,
        names,
        title="Gisette-like (from MNIST at 14 x 14)",
    )


def _fours_and_nines() -> tuple[FloatArray, NDArray[np.bool_]]:
    """All images of the two digits in [0, 1], train before test, and which of them are nines."""
    arrays = read_arrays("mnist14")
    digits = np.concatenate([arrays["y_train"], arrays["y_test"]])
    images = np.concatenate([arrays["x_train"], arrays["x_test"]])
    wanted = np.isin(digits, (NEGATIVE_DIGIT, POSITIVE_DIGIT))
    return images[wanted] / 255.0, digits[wanted] == POSITIVE_DIGIT


def _pairs(rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Different pairs of different central pixels, the smaller first."""
    inside = range(MARGIN, SIDE - MARGIN)
    central = np.array([SIDE * row + column for row in inside for column in inside])
    low, high = np.triu_indices(central.size, k=1)
    picked = np.sort(rng.choice(low.size, size=PRODUCTS, replace=False))
    return central[low[picked]], central[high[picked]]


def _probes(
    donors: FloatArray,
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    rows: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Columns (rows, PROBES) with the distribution of real ones, each cell from an image of its own."""
    columns = rng.integers(PIXELS + PRODUCTS, size=PROBES)
    # A pixel is the root of its product with itself.
    a = np.concatenate([np.arange(PIXELS), first])[columns]
    b = np.concatenate([np.arange(PIXELS), second])[columns]
    image = rng.integers(len(donors), size=(rows, PROBES))
    return np.asarray(np.sqrt(donors[image, a] * donors[image, b]), dtype=np.float64)


# --- preparation --------------------------------------------------------------------------------------


def unit_rows_with_bias(data: Dataset) -> Dataset:
    """Divide each row by its own l2 norm and append a column of ones: the preparation of redberg2023, Section 4.5.

    Each record is prepared without looking at any other, so this costs no privacy. A row of zeros stays as it is and
    keeps the bias only. Rows have l2 norm sqrt(2) then (1 for a row of zeros), and the gradient of the logistic loss is
    at most sqrt(2) long, its curvature at most 1/2.

    Parameters
    ----------
    data : Dataset
        Labels in {-1, +1}; features with any bound.

    Returns
    -------
    Dataset
        One column more, the last one, named ``"bias"`` where columns have names; domain of l2 bound sqrt(2).

    Raises
    ------
    TypeError
        If ``data`` is no Dataset.
    ValueError
        If labels are not signs, or a column is named ``"bias"`` already.
    """
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    if data.domain.labels != "sign":
        raise ValueError(f"data must have labels in {{-1, +1}}, got {data.domain.describe_labels()}")
    if "bias" in data.names:
        raise ValueError(
            f"data must have no column named 'bias', which is the name of the new one, got names {data.names!r}"
        )
    unit = scale_rows(_within_squares(data.features), "l2", "unit", data.columns)
    return Dataset(
        np.hstack([unit, np.ones((data.rows, 1))]),
        data.labels,
        Domain(norm="l2", feature_bound=math.sqrt(2.0), labels="sign"),
        [*data.names, "bias"] if data.names else (),
        data.title,
    )


def _within_squares(features: FloatArray) -> FloatArray:
    """Rows, those whose squares would vanish divided by their largest entry; all others bit for bit.

    (That squares overflow, no domain allows.)
    """
    largest = np.maximum(features.max(axis=1, initial=0.0), -features.min(axis=1, initial=0.0))
    odd = np.flatnonzero((largest > 0) & (largest < 1e-140))
    if not odd.size:
        return features
    scaled = features.copy()
    scaled[odd] /= largest[odd, np.newaxis]
    return scaled


def train_test(
    data: Dataset, share: float = 0.8, rng: np.random.Generator | None = None
) -> tuple[Dataset, Dataset]:
    """Two parts, the first with ``round(share * rows)`` records; both have at least one.

    Parameters
    ----------
    data : Dataset
    share : float
        Of the records for training, in (0, 1).
    rng : numpy.random.Generator, optional
        Shuffles the records first. Without it they are taken in the order that they have, as the benchmark does with
        the synthetic sets, which are in random order already.

    Raises
    ------
    TypeError, ValueError
        ``data`` is no Dataset, ``share`` leaves nothing on a side, ``rng`` is no generator.
    """
    if not isinstance(data, Dataset):
        raise TypeError(f"data must be a Dataset, got {type(data).__name__}")
    if rng is not None:
        return data.split(share, rng)
    first = round(check_probability("share", share) * data.rows)
    if not 0 < first < data.rows:
        raise ValueError(f"share must leave records on both sides of {data.rows}, got {share!r}")
    order = np.arange(data.rows)
    return data.take(order[:first]), data.take(order[first:])


# --- the benchmark ------------------------------------------------------------------------------------

BENCHMARKS = ("Adult", "Synthetic-L", "Synthetic-H", "Gisette-like")


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set prepared for the race: unit rows with a bias, cut into two parts.

    Parameters
    ----------
    name : str
    train : Dataset
        Private.
    test : Dataset
        Public, for judging.
    """

    name: str
    train: Dataset
    test: Dataset

    def subset(self, rows: int, rng: np.random.Generator) -> Benchmark:
        """The same test records and a random subset of ``rows`` training records."""
        return Benchmark(self.name, self.train.subsample(rows, check_generator(rng)), self.test)


def load_benchmark(name: str, seed: int = 20_264) -> Benchmark:
    """One of the four data sets of redberg2023, Figure 4.2, split 80 to 20; kept for the next call.

    Parameters
    ----------
    name : {"Adult", "Synthetic-L", "Synthetic-H", "Gisette-like"}
        Training and test records: 36,176 and 9,044; 8,000 and 2,000; 1,600 and 400; 4,800 and 1,200.
    seed : int
        Of the shuffle of Adult (others are split in the order they come) and of the images of Gisette-like.

    Returns
    -------
    Benchmark
        Gisette-like takes 250 MB and five seconds.

    Raises
    ------
    TypeError, ValueError
        Another name; a seed that is no whole number of at least 0.
    """
    if not isinstance(name, str):
        raise TypeError(f"name must be a text, got {type(name).__name__}: {name!r}")
    return _load(check_choice("name", name, BENCHMARKS), check_count("seed", seed, minimum=0))


@functools.lru_cache(maxsize=2)
def _load(name: str, seed: int) -> Benchmark:
    if name == "Adult":
        people = unit_rows_with_bias(load_adult("iyengar"))
        return Benchmark(name, *train_test(people, rng=np.random.default_rng(seed)))
    if name == "Gisette-like":
        return Benchmark(name, *train_test(unit_rows_with_bias(load_gisette_like(seed=seed))))
    dimension = next(key for key, title in TITLES.items() if title == name)
    return Benchmark(name, *train_test(unit_rows_with_bias(load_synthetic(dimension))))
