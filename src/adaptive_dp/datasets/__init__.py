"""Data sets with declared domains."""

from adaptive_dp.datasets.census_income import load_census_income
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.datasets.regression import load_bike, load_concrete, load_wine_red
from adaptive_dp.datasets.simulated import simulate_buzz

__all__ = [
    "Dataset",
    "load_bike",
    "load_census_income",
    "load_concrete",
    "load_wine_red",
    "simulate_buzz",
]
