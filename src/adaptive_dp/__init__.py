"""Data-adaptive differential privacy: the library under the executable book."""

__version__ = "0.1.0"
