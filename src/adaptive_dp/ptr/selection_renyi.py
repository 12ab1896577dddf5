"""Private selection with other laws of the number of rounds: the Rényi bounds of Papernot and Steinke.

Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR 2022 (arXiv 2110.03620): Theorem 2
(truncated negative binomial number of rounds, of which the geometric law is the case of shape 1) and Theorem 6
(Poisson). Beside them a table that compares them with the profile of :mod:`~adaptive_dp.ptr.selection_bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from adaptive_dp.accounting import GaussianCurve, epsilon_of_orders, gaussian_sigma, log_delta_of_orders
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.ptr.selection import BOUNDS, gaussian_run_sigma
from adaptive_dp.ptr.selection_bounds import GeometricRounds, check_unit
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_positive,
    check_probability,
    check_real,
)

ORDERS: tuple[float, ...] = tuple(float(a) for a in 1 + np.geomspace(1e-2, 1e4, 241))


@dataclass(frozen=True, slots=True)
class PoissonRounds:
    """K ~ Poisson(mean). K = 0 happens: the answer is then a constant that does not depend on the data.

    Parameters
    ----------
    mean : float
        At least 1: the theorem's log(mean) / (order - 1) would be negative below.
    """

    mean: float

    def __post_init__(self) -> None:
        mean = check_positive("mean", self.mean)
        if mean < 1:
            raise ValueError(f"mean must be at least 1, got {mean!r}")
        object.__setattr__(self, "mean", mean)

    def generating(self, x: ArrayLike) -> FloatArray:
        """E x^K = e^{mean (x - 1)}, elementwise."""
        return np.asarray(np.exp(self.mean * (as_finite_array("x", x) - 1)))

    def draw(self, rng: np.random.Generator) -> int:
        """One number of rounds, possibly 0."""
        return int(check_generator(rng).poisson(self.mean))


@dataclass(frozen=True, slots=True)
class NegativeBinomialRounds:
    """Truncated negative binomial number of rounds, K = 1, 2, ... (Papernot and Steinke, Definition 1).

    P(K = k) = (1 - gamma)^k prod_{l < k} (l + shape) / (l + 1) / (gamma^-shape - 1); shape 1 is geometric with
    tau = gamma, shape 0 the logarithmic law.

    Parameters
    ----------
    shape : float
        eta, above -1.
    gamma : float
        In (0, 1).
    """

    shape: float
    gamma: float

    def __post_init__(self) -> None:
        shape = check_real("shape", self.shape)
        if shape <= -1:
            raise ValueError(f"shape must be above -1, got {shape!r}")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "gamma", check_probability("gamma", self.gamma))

    @property
    def mean(self) -> float:
        """Expected number of rounds, shape (1 - gamma) / (gamma (1 - gamma^shape))."""
        ratio = (1 - self.gamma) / self.gamma
        power = self.shape * math.log(self.gamma)
        if power == 0:
            return ratio / -math.log(self.gamma)
        return self.shape * ratio / -math.expm1(power)

    def generating(self, x: ArrayLike) -> FloatArray:
        """E x^K for x in [0, 1], elementwise."""
        log_rest = np.log1p(-(1 - self.gamma) * as_finite_array("x", x))
        if self.shape == 0:
            return np.asarray(log_rest / math.log(self.gamma))
        return np.asarray(np.expm1(-self.shape * log_rest) / math.expm1(-self.shape * math.log(self.gamma)))

    def draw(self, rng: np.random.Generator) -> int:
        """One number of rounds, by walking along the law: as many steps as rounds."""
        left = float(check_generator(rng).random())
        go = 1 - self.gamma
        scale = -math.log(self.gamma)
        # P(K = 1) = shape go / (gamma^-shape - 1)
        chance = go / scale if self.shape == 0 else self.shape * go / math.expm1(self.shape * scale)
        k = 1
        while left >= chance and chance > 0:
            left -= chance
            chance *= go * (k + self.shape) / (k + 1)
            k += 1
        return k


@runtime_checkable
class RenyiCurve(PrivacyCurve, Protocol):
    """A privacy profile with its Rényi divergences, such as :class:`~adaptive_dp.accounting.GaussianCurve`."""

    def renyi(self, order: float) -> float:
        """Largest Rényi divergence of ``order`` over both directions of all pairs of neighbours."""
        ...


def negative_binomial_renyi(
    renyi: Callable[[float], float],
    *,
    rounds: NegativeBinomialRounds | GeometricRounds,
    orders: Sequence[float] = ORDERS,
) -> FloatArray:
    """Rényi divergences of the selected outcome at each order (Papernot and Steinke, Theorem 2).

    renyi(a) + (1 + shape) min_b [(1 - 1/b) renyi(b) + log(1/gamma) / b] + log(E K) / (a - 1), b among the orders,
    and the smallest of it over all larger orders, as Rényi divergences increase with the order.

    Parameters
    ----------
    renyi : callable
        Rényi divergence of one round.
    rounds : NegativeBinomialRounds or GeometricRounds
        Without a cut-off.
    orders : sequence of float
        Above 1.

    Returns
    -------
    ndarray, shape (orders,)
    """
    a = _check_orders(orders)
    if isinstance(rounds, GeometricRounds):
        if rounds.cutoff is not None:
            raise ValueError(f"cutoff is not covered by the theorem, got {rounds.cutoff!r}")
        shape, gamma = 1.0, rounds.tau
    else:
        shape, gamma = rounds.shape, rounds.gamma
    one = np.array([float(renyi(order)) for order in a])
    extra = (1 + shape) * float(np.min((1 - 1 / a) * one - math.log(gamma) / a))
    return _increasing(a, one + extra + math.log(rounds.mean) / (a - 1))


def poisson_renyi(
    renyi: Callable[[float], float],
    delta: Callable[[float], float],
    *,
    rounds: PoissonRounds,
    orders: Sequence[float] = ORDERS,
) -> FloatArray:
    """Rényi divergences of the selected outcome at each order (Papernot and Steinke, Theorem 6).

    renyi(a) + mean delta(e) + log(mean) / (a - 1), where e^e = 1 + 1 / (a - 1).

    Parameters
    ----------
    renyi, delta : callable
        Rényi divergence and privacy profile of one round.
    rounds : PoissonRounds
    orders : sequence of float
        Above 1.

    Returns
    -------
    ndarray, shape (orders,)
    """
    a = _check_orders(orders)
    one = np.array([float(renyi(order)) for order in a])
    failing = np.array([float(delta(math.log1p(1 / (order - 1)))) for order in a])
    return _increasing(a, one + rounds.mean * failing + math.log(rounds.mean) / (a - 1))


@dataclass(frozen=True, slots=True)
class RenyiSelectionCurve:
    """Privacy profile of private selection from the Rényi bounds of Papernot and Steinke.

    Conversion to pairs by :func:`~adaptive_dp.accounting.log_delta_of_orders`, the smallest over the orders.

    Parameters
    ----------
    curve : RenyiCurve
        One round.
    rounds : GeometricRounds, NegativeBinomialRounds or PoissonRounds
        Law of the number of rounds.
    orders : sequence of float
        Above 1.
    """

    curve: RenyiCurve
    rounds: GeometricRounds | NegativeBinomialRounds | PoissonRounds
    orders: tuple[float, ...] = ORDERS
    divergences: FloatArray = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.curve, RenyiCurve):
            raise TypeError(
                f"curve must have methods renyi, delta and epsilon, got {type(self.curve).__name__}"
            )
        if isinstance(self.rounds, PoissonRounds):
            found = poisson_renyi(self.curve.renyi, self.curve.delta, rounds=self.rounds, orders=self.orders)
        else:
            found = negative_binomial_renyi(self.curve.renyi, rounds=self.rounds, orders=self.orders)
        object.__setattr__(self, "orders", tuple(float(order) for order in self.orders))
        object.__setattr__(self, "divergences", found)

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at ``epsilon`` >= 0."""
        logs = log_delta_of_orders(self.orders, self.divergences, check_real("epsilon", epsilon))
        return math.exp(min(float(logs.min()), 0.0)) * (1 + 1e-12) if logs.min() < 0 else 1.0

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta`` in [0, 1]; infinite at 0."""
        d = check_unit("delta", delta)
        if d == 0:
            return math.inf
        found = epsilon_of_orders(self.orders, self.divergences, d)
        return max(float(found.min()) * (1 + 1e-12) + 1e-12, 0.0)


def gaussian_renyi_sigma(
    *, epsilon: float, delta: float, rounds: GeometricRounds | NegativeBinomialRounds | PoissonRounds
) -> float:
    """Noise of one Gaussian round of sensitivity 1 for a total of (epsilon, delta), from the Rényi bounds.

    Raises
    ------
    ValueError
        A parameter out of range.
    """
    e, d = check_positive("epsilon", epsilon), check_probability("delta", delta)

    def excess(log_mu: float) -> float:
        return RenyiSelectionCurve(GaussianCurve(math.exp(log_mu)), rounds).epsilon(d) - e

    high = -math.log(gaussian_sigma(e, d, 1.0)) + 0.1
    low = high - 1
    while excess(low) > 0:
        low -= 1
        if low < -30:
            raise ValueError(f"epsilon is too small for the orders of the bound, got {e!r}")
    log_mu = brentq(excess, low, high, xtol=1e-10)
    while excess(log_mu) > 0:
        log_mu -= 1e-10
    return math.exp(-log_mu)


def calibration_table(
    cases: Sequence[tuple[int, float]] = ((30, 0.1), (30, 0.05), (10, 0.1)),
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
) -> pd.DataFrame:
    """Noise of one Gaussian round (sensitivity 1) under each bound, for a total of (epsilon, delta).

    Parameters
    ----------
    cases : sequence of (k, factor)
        k proposals and tau = factor / k.
    epsilon, delta : float
        Total.

    Returns
    -------
    DataFrame
        ``proposals``, ``tau``, ``rounds`` (expected), ``tried`` (probability that one given proposal is drawn),
        ``quantile`` (expected, Theorem B.2.3), ``liu_talwar``, ``pair``, ``profile``, ``renyi`` (Theorem 2 of Papernot
        and Steinke, same law of rounds), ``poisson_mean`` and ``poisson`` (their Theorem 6, the mean being such that
        a given proposal is drawn with the same probability).

    Notes
    -----
    One to two seconds a case.
    """
    rows = []
    for k, factor in cases:
        count = check_count("proposals", k)
        rounds = GeometricRounds(factor / count)
        tried = rounds.probability_tried(count)
        mean = -count * math.log1p(-tried)
        sigmas = [gaussian_run_sigma(epsilon=epsilon, delta=delta, tau=rounds.tau, bound=b) for b in BOUNDS]
        rows.append(
            {
                "proposals": count,
                "tau": rounds.tau,
                "rounds": rounds.mean,
                "tried": tried,
                "quantile": rounds.expected_quantile(),
                "liu_talwar": sigmas[2],
                "pair": sigmas[1],
                "profile": sigmas[0],
                "renyi": gaussian_renyi_sigma(epsilon=epsilon, delta=delta, rounds=rounds),
                "poisson_mean": mean,
                "poisson": gaussian_renyi_sigma(epsilon=epsilon, delta=delta, rounds=PoissonRounds(mean)),
            }
        )
    return pd.DataFrame(rows)


def _check_orders(orders: Sequence[float]) -> FloatArray:
    a = as_finite_array("orders", np.asarray(orders), ndim=1)
    if not a.size or a.min() <= 1:
        raise ValueError(f"orders must be above 1, got {a.min() if a.size else 'none'!r}")
    return a


def _increasing(orders: FloatArray, divergences: FloatArray) -> FloatArray:
    """Each order with the smallest bound of any order that is at least as large."""
    place = np.argsort(orders)
    result = np.empty_like(divergences)
    result[place] = np.minimum.accumulate(divergences[place][::-1])[::-1]
    return result
