"""Private bounds of one number: a release with noise, shifted by the exact quantile, and the test made of it.

Source: redberg2023, section 3.5.3 and Theorem 3.5.7. Whatever the outputs of a mechanism look like, its
data-dependent loss is one number, so that a bound of it can be published; the same holds for the statistics that the
loss is made of, such as a smallest eigenvalue, which is bounded from below.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr, ndtri

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.noise import gaussian, laplace
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.classic import false_pass_probability, ptr_threshold
from adaptive_dp.validation import (
    check_choice,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

SOURCE = "redberg2023, Theorem 3.5.7; erratum 12"


@functools.lru_cache(maxsize=256)
def _unit_sigma(epsilon: float, delta: float) -> float:
    """Scale of the analytic Gaussian mechanism for sensitivity 1: a root that takes milliseconds."""
    return gaussian_sigma(epsilon, delta, 1.0) * (1 + 4 * float(np.finfo(np.float64).eps))


SIDES = ("upper", "lower")


@dataclass(frozen=True, slots=True)
class BoundNoise:
    """Noise for a number of known global sensitivity, and how far to shift it to make a bound.

    Laplace noise where ``delta_hat`` is 0, otherwise the analytic Gaussian mechanism.

    Parameters
    ----------
    sensitivity : float
        Global sensitivity of the number.
    epsilon_hat : float
        Privacy of its release, positive.
    delta_prime : float
        Probability that the bound is on the wrong side; the shift is the exact quantile, so that it is attained.
    delta_hat : float
        0 for Laplace noise, otherwise in (0, 1).

    Attributes
    ----------
    scale : float
        Scale b of the Laplace noise, or standard deviation of the Gaussian noise.
    """

    sensitivity: float
    epsilon_hat: float
    delta_prime: float
    delta_hat: float = 0.0
    scale: float = field(init=False)

    def __post_init__(self) -> None:
        check_ordinary("sensitivity", self.sensitivity)
        check_ordinary("epsilon_hat", self.epsilon_hat)
        check_probability("delta_prime", self.delta_prime)
        if self.delta_hat != 0:
            check_probability("delta_hat", self.delta_hat)
            scale = self.sensitivity * _unit_sigma(self.epsilon_hat, self.delta_hat)
        else:
            scale = self.sensitivity / self.epsilon_hat
        object.__setattr__(self, "scale", scale)

    @property
    def shift(self) -> float:
        """Upper ``delta_prime`` quantile of the noise, rounded to the safe side; negative for large delta_prime."""
        if self.delta_hat == 0:
            return self.sensitivity * ptr_threshold(self.epsilon_hat, self.delta_prime)
        level = -float(ndtri(self.delta_prime)) * self.scale
        return level + 8 * float(np.finfo(np.float64).eps) * abs(level)

    def tail(self, x: float) -> float:
        """Exact probability that the noise exceeds ``x``."""
        if self.delta_hat == 0:
            return false_pass_probability(x / self.sensitivity, epsilon=self.epsilon_hat)
        return float(ndtr(-x / self.scale))

    def draw(self, rng: np.random.Generator) -> float:
        """Return one draw of the noise."""
        draw = laplace if self.delta_hat == 0 else gaussian
        return float(draw(self.scale, 1, rng)[0])

    def guarantee(self) -> Guarantee:
        """(epsilon_hat, delta_hat), with the whole curve of Gaussian noise."""
        return _guarantee(self)


@functools.lru_cache(maxsize=256)
def _guarantee(noise: BoundNoise) -> Guarantee:
    curve = None if noise.delta_hat == 0 else GaussianCurve(noise.sensitivity / noise.scale)
    return Guarantee(
        "ex-ante", noise.epsilon_hat, Neighbours.ADD_REMOVE, delta=noise.delta_hat, source=SOURCE, curve=curve
    )


def private_bound(
    value: float,
    *,
    sensitivity: float,
    epsilon_hat: float,
    delta_prime: float,
    rng: np.random.Generator,
    delta_hat: float = 0.0,
    side: str = "upper",
) -> Release[float]:
    """Publish a number that is at least ``value`` (``side="lower"``: at most) except with probability ``delta_prime``.

    Parameters
    ----------
    value : float
        The private statistic.
    sensitivity, epsilon_hat, delta_prime, delta_hat
        See :class:`BoundNoise`.
    rng : numpy.random.Generator
    side : {"upper", "lower"}

    Returns
    -------
    Release
        Value plus noise plus (minus) the exact quantile; (epsilon_hat, delta_hat)-private.
    """
    statistic = check_real("value", value)
    noise = BoundNoise(sensitivity, epsilon_hat, delta_prime, delta_hat)
    sign = 1.0 if check_choice("side", side, SIDES) == "upper" else -1.0
    guarantee, draw = noise.guarantee(), noise.draw(check_generator(rng))
    return Release(statistic + draw + sign * noise.shift, guarantee, trace=Trace(value=statistic, noise=draw))


def upper_bound_test(
    value: float,
    sensitivity: float,
    epsilon_hat: float,
    delta_prime: float,
    threshold: float,
    rng: np.random.Generator,
    *,
    delta_hat: float = 0.0,
) -> Release[bool]:
    """Test "``value`` <= ``threshold``" by a private upper bound: pass where the bound is at most the threshold.

    A value above the threshold passes with probability at most ``delta_prime``, which is approached at the threshold.
    The outcome alone is published; the bound stays in the trace. Parameters as in :func:`private_bound`.
    """
    level = check_real("threshold", threshold)
    bound = private_bound(
        value,
        sensitivity=sensitivity,
        epsilon_hat=epsilon_hat,
        delta_prime=delta_prime,
        delta_hat=delta_hat,
        rng=rng,
    )
    # The bound is a number: private_bound never refuses.
    passed = not isinstance(bound.value, Refused) and bound.value <= level
    return Release(passed, bound.guarantee, trace=Trace(bound=bound.value, threshold=level, value=value))


def pass_probability(
    value: float,
    sensitivity: float,
    epsilon_hat: float,
    delta_prime: float,
    threshold: float,
    *,
    delta_hat: float = 0.0,
) -> float:
    """Exact probability that :func:`upper_bound_test` passes."""
    noise = BoundNoise(sensitivity, epsilon_hat, delta_prime, delta_hat)
    # P(value + noise + shift <= threshold), by the symmetry of the noise
    return noise.tail(check_real("value", value) + noise.shift - check_real("threshold", threshold))
