"""The guarantee of objective perturbation and its privacy report together.

Source: errata of redberg2023, section S1 (one-dimensional reduction) and item 6 (Gaussian mechanisms compose exactly).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from adaptive_dp.accounting import gaussian_delta
from adaptive_dp.validation import FloatArray, check_positive, check_probability, check_real


@dataclass(frozen=True, slots=True)
class PipelineCurve:
    """The privacy curve of theta and its report together, for a generalised linear loss.

    Given theta, the additional releases are Gaussian with a mu of at most ``mu_report`` whatever theta is, so the
    total is at most E G(epsilon - L, mu_report), with G the Gaussian profile and L the loss of theta. In the
    one-dimensional reduction (errata, S1) L is at most mu^2 / 2 + mu |N| where the record is absent from the data
    at hand, and log(1 + kappa) + mu^2 / 2 + mu max(N, 0) where it is present; the curve is the larger expectation.

    Parameters
    ----------
    mu, kappa : float
        Of :class:`~adaptive_dp.per_instance.calibration.LinearPerturbationCurve`, positive.
    mu_report : float
        Of the additional releases together, positive.
    """

    mu: float
    kappa: float
    mu_report: float

    def __post_init__(self) -> None:
        for name in ("mu", "kappa", "mu_report"):
            check_positive(name, getattr(self, name))

    def delta(self, epsilon: float) -> float:
        """Bound on the hockey-stick divergence at ``epsilon`` >= 0, both directions."""
        level = check_real("epsilon", epsilon)
        if level < 0:
            raise ValueError(f"epsilon must be nonnegative, got {level!r}")
        nodes, weights, beyond = _half_normal(128 if self.mu > 10 * self.mu_report else 32)
        absent = gaussian_delta(level - self.mu**2 / 2 - self.mu * nodes, self.mu_report) @ weights
        rest = level - math.log1p(self.kappa) - self.mu**2 / 2
        positive = gaussian_delta(rest - self.mu * nodes, self.mu_report) @ weights
        present = 0.5 * (positive + float(gaussian_delta(rest, self.mu_report)))
        return min(1.0, max(float(absent), float(present)) + beyond)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon (on the safe side) with ``self.delta(epsilon) <= delta``."""
        tail = check_probability("delta", delta)
        if self.delta(0.0) <= tail:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > tail:
            low, high = high, 2 * high
        for _ in range(45):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.delta(middle) <= tail else (middle, high)
        return high


@lru_cache(maxsize=4)
def _half_normal(panels: int) -> tuple[FloatArray, FloatArray, float]:
    """Nodes and weights of the law of |N| on [0, 12], and the probability beyond."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 6.0 / panels
    x = (half * (2 * np.arange(panels)[:, np.newaxis] + 1 + nodes)).ravel()
    density = math.sqrt(2 / math.pi) * np.exp(-0.5 * x * x)
    return x, density * np.tile(half * weights, panels), 2 * float(ndtr(-12.0))


@lru_cache(maxsize=256)
def pipeline_epsilon(mu: float, kappa: float, mu_report: float, delta: float) -> float:
    """Epsilon of a :class:`PipelineCurve` at ``delta``, remembered: many runs share one calibration."""
    return PipelineCurve(mu, kappa, mu_report).epsilon(delta)
