"""Data sets with declared domains.

Loaders read the small files in ``data/`` (see ``data/index.json``); simulators need no file; two optional
loaders read files that the reader brings. All return a :class:`Dataset`.
"""

from adaptive_dp.datasets.adult import load_adult
from adaptive_dp.datasets.benchmarks import (
    Benchmark,
    load_benchmark,
    load_gisette_like,
    load_synthetic,
    train_test,
    unit_rows_with_bias,
)
from adaptive_dp.datasets.census_income import load_census_income
from adaptive_dp.datasets.credit_default import load_credit_default
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.digits import load_mnist14
from adaptive_dp.datasets.medicine import load_iwpc, load_kidney
from adaptive_dp.datasets.optional import load_kddcup99, load_twitter_buzz
from adaptive_dp.datasets.regression import load_bike, load_concrete, load_wine_red
from adaptive_dp.datasets.simulated import simulate_buzz, simulate_margin, simulate_unit_rows

__all__ = [
    "Benchmark",
    "Dataset",
    "load_adult",
    "load_benchmark",
    "load_bike",
    "load_census_income",
    "load_concrete",
    "load_credit_default",
    "load_gisette_like",
    "load_iwpc",
    "load_kddcup99",
    "load_kidney",
    "load_mnist14",
    "load_synthetic",
    "load_twitter_buzz",
    "load_wine_red",
    "simulate_buzz",
    "simulate_margin",
    "simulate_unit_rows",
    "train_test",
    "unit_rows_with_bias",
]
