"""Data sets with declared domains."""

from adaptive_dp.datasets.dataset import Dataset

__all__ = ["Dataset"]
