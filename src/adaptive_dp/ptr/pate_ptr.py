"""PATE with generalized propose-test-release: labels that may be published under a data-dependent analysis.

Teachers that agree lose much less privacy than the worst case says, but how much they lose is private. redberg2023,
Algorithm 6, therefore releases noisy labels only after a private test has found the loss small:

1. f = the Rényi loss of all labels at one order (:func:`~adaptive_dp.ptr.gnmax.gnmax_renyi`), SS its smooth
   sensitivity (:func:`~adaptive_dp.ptr.smooth_sensitivity.smooth_sensitivity`) at smoothness beta.
2. mu = log SS + beta N(0, sigma_2^2) + shift, private because log SS moves by at most beta.
3. upper = f + SS N(0, sigma_s^2) + sigma_s multiplier e^mu, above f but for probability delta / 2.
4. If upper, converted to epsilon at delta / 2, is at most ``epsilon_test``: the labels; otherwise a refusal.

*What 2 and 3 cost.* Both depend on the votes through u = log(SS' / SS), |u| <= beta, and a shift of at most
min(SS, SS'). With a the order and v = 1 - a + a e^(2u), the Rényi divergence of the pair is at most

    a u^2 / (2 beta^2 sigma_2^2) + a min(1, e^(2u)) / (2 sigma_s^2 v) + (log(v) / 2 - a u) / (1 - a).

The last term has derivative a (e^(2u) - 1) / v in u, and the second falls in u: the worst case is u = -beta, exactly.
Lemma 3.6.5 uses (a + 1) / sigma_s^2 for the last two terms, which is not a consequence of the theorem that it quotes
and is false in general, though true wherever Algorithm 6 uses it (erratum 16c, :func:`thesis_test`,
:mod:`adaptive_dp.ptr.flaws_pate`). Here the exact divergence is the guarantee.

*What it adds up to.* (epsilon_test + epsilon_hat, delta / 2 + max(delta / 2, delta / 2)) (erratum 16d, with
Theorem 3.5.7 as in erratum 12): if f is too large, labels are released with probability at most delta / 2; if not,
they are (epsilon_test, delta / 2)-private. Neighbours differ in the data of one teacher.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri

from adaptive_dp.noise import gaussian
from adaptive_dp.privacy import Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.gnmax import (
    check_orders,
    check_votes,
    conversion_cost,
    data_independent_renyi,
    gnmax_renyi,
    renyi_epsilon,
)
from adaptive_dp.ptr.smooth_sensitivity import smooth_sensitivity
from adaptive_dp.validation import (
    FloatArray,
    check_choice,
    check_generator,
    check_ordinary,
    check_probability,
    check_real,
)

IntArray = NDArray[np.int64]

MARGINS = ("exact", "quantile", "printed")
CALIBRATIONS = ("exact", "thesis")
SOURCE = "redberg2023, Algorithm 6 and Theorem 3.6.6; errata 12 and 16"
# Gauss-Legendre on all of the normal law that doubles can see.
NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(400)
REACH = 14.0
# The quadrature leaves out a mass of about 1e-44.
SMALLEST_DELTA = 1e-30


# --- the test -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LossTest:
    """Public numbers of the private upper bound of a data-dependent loss.

    Parameters
    ----------
    order : float
        Rényi order of the loss that is tested, above 1.
    beta : float
        Smoothness of the sensitivity, positive.
    sigma_s : float
        Noise on the loss, in smooth sensitivities.
    sigma_2 : float
        Noise on the logarithm of the smooth sensitivity, in units of ``beta``.
    delta : float
        Of the whole algorithm: half for the test, half for a bound that fails or for the labels.
    margin : {"exact", "quantile", "printed"}
        How the bound is kept above the loss. ``"quantile"``: q Phi^-1(1 - delta / 4) on both, by the union bound;
        ``"printed"``: sqrt(2 log(4 / delta)) for the quantile; ``"exact"``: nothing on mu, and the multiplier at which
        the bound fails with probability delta / 2 exactly, which does not depend on the votes.
    """

    order: float
    beta: float
    sigma_s: float
    sigma_2: float
    delta: float
    margin: str = "exact"

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", float(check_orders(check_real("order", self.order))[0]))
        for name in ("beta", "sigma_s", "sigma_2"):
            object.__setattr__(self, name, check_ordinary(name, getattr(self, name)))
        object.__setattr__(self, "delta", check_probability("delta", self.delta))
        if self.delta < SMALLEST_DELTA:
            raise ValueError(f"delta must be at least {SMALLEST_DELTA}, got {self.delta!r}")
        check_choice("margin", self.margin, MARGINS)

    @property
    def epsilon(self) -> float:
        """What the test itself costs, at delta / 2: exact Rényi divergence, best order."""
        orders = _usable_orders(self.beta)
        losses = pair_renyi(orders, beta=self.beta, sigma_s=self.sigma_s, sigma_2=self.sigma_2)
        return renyi_epsilon(losses, orders, delta=self.delta / 2)[0]

    @property
    def shift(self) -> float:
        """What is added to log SS on top of its noise."""
        return 0.0 if self.margin == "exact" else self._quantile() * self.beta * self.sigma_2

    @property
    def multiplier(self) -> float:
        """What e^mu sigma_s is multiplied by."""
        if self.margin != "exact":
            return self._quantile()
        spread, target = self.beta * self.sigma_2, math.log(self.delta / 2)

        def excess(size: float) -> float:
            return math.log(failure_probability(size, shift=0.0, spread=spread)) - target

        high = max(-float(ndtri(self.delta / 2)), 1e-3)
        while excess(high) > 0:
            high *= 1.25
        # At 0 the bound fails half of the time.
        return float(brentq(excess, 0.0, high, xtol=1e-10)) + 2e-10

    def _quantile(self) -> float:
        tail = self.delta / 4
        return math.sqrt(-2 * math.log(tail)) if self.margin == "printed" else -float(ndtri(tail))

    @property
    def failure(self) -> float:
        """Probability that the bound lies below the loss, exactly; at most delta / 2."""
        return failure_probability(self.multiplier, shift=self.shift, spread=self.beta * self.sigma_2)

    def epsilon_of(self, loss: float) -> float:
        """Epsilon of labels whose Rényi loss at ``order`` is ``loss``, at delta / 2."""
        cost = float(conversion_cost(self.order, delta=self.delta / 2)[0])
        return max(loss + cost, 0.0)

    def threshold(self, epsilon: float) -> float:
        """Largest Rényi loss whose :meth:`epsilon_of` is at most ``epsilon``; negative if there is none."""
        return epsilon - float(conversion_cost(self.order, delta=self.delta / 2)[0])

    def upper_bounds(
        self, loss: float, smooth: float, *, rng: np.random.Generator, count: int = 1
    ) -> FloatArray:
        """Independent draws of the private upper bound of ``loss``, shape (count,); each costs :attr:`epsilon`.

        A smooth sensitivity of 0 says that the loss is a public constant: it is returned.
        """
        check_generator(rng)
        first, second = gaussian(1.0, count, rng), gaussian(1.0, count, rng)
        if smooth == 0:
            return np.full(count, loss)
        inflated = smooth * np.exp(self.beta * self.sigma_2 * first + self.shift)
        return loss + self.sigma_s * (smooth * second + self.multiplier * inflated)

    def passing_probability(
        self, loss: float, smooth: float, *, epsilon: float, cap: float = math.inf
    ) -> float:
        """Exact probability that the upper bound of ``loss``, cut at ``cap``, passes the test at ``epsilon``."""
        limit = self.threshold(epsilon)
        if cap <= limit:
            return 1.0
        if smooth == 0:
            return float(loss <= limit)
        z = REACH * NODES
        weights = REACH * NODE_WEIGHTS * np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
        inflation = self.multiplier * np.exp(self.beta * self.sigma_2 * z + self.shift)
        return float(weights @ ndtr((limit - loss) / (smooth * self.sigma_s) - inflation))


def pair_renyi(orders: ArrayLike, *, beta: float, sigma_s: float, sigma_2: float) -> FloatArray:
    """Exact worst Rényi divergence of the pair (mu, upper bound), shape (orders,).

    The worst neighbour has a smooth sensitivity smaller by e^-beta. Infinite for orders from 1 / (1 - e^(-2 beta)) on.

    Parameters
    ----------
    orders : array_like, shape (orders,)
        Above 1.
    beta, sigma_s, sigma_2 : float
        As for :class:`LossTest`.
    """
    a = check_orders(orders)
    return a / (2 * check_ordinary("sigma_2", sigma_2) ** 2) + gnss_renyi(a, beta=beta, sigma_s=sigma_s)


def gnss_renyi(orders: ArrayLike, *, beta: float, sigma_s: float) -> FloatArray:
    """Exact worst Rényi divergence of f + SS N(0, sigma_s^2), shape (orders,), with SS a beta-smooth sensitivity.

    For any f with |f - f'| <= min(SS, SS') and |log(SS / SS')| <= beta, both attained; see the module's derivation.
    papernot2018, Theorem 23, bounds it from above, by about a factor of two.
    """
    a, rate, scale = check_orders(orders), check_ordinary("beta", beta), check_ordinary("sigma_s", sigma_s)
    # v = 1 - a + a e^(-2 beta), without cancellation.
    v = 1 + a * math.expm1(-2 * rate)
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = a * math.exp(-2 * rate) / (2 * scale * scale * v)
        scales = -(0.5 * np.log(v) + a * rate) / (a - 1)
    return np.where(v > 0, shift + scales, np.inf)


def _usable_orders(beta: float) -> FloatArray:
    """Orders above 1 at which :func:`gnss_renyi` is finite: up to 1 / (1 - e^(-2 beta)), and at most 10^6."""
    largest = min(-1 / math.expm1(-2 * beta), 1e6)
    return 1 + (largest - 1) * np.concatenate([np.geomspace(1e-5, 0.05, 100), np.linspace(0.051, 0.999, 400)])


def failure_probability(multiplier: float, *, shift: float, spread: float) -> float:
    """Probability of N(0, 1) + multiplier exp(spread N(0, 1) + shift) < 0: that an upper bound fails.

    Parameters
    ----------
    multiplier, shift : float
        As in :class:`LossTest`.
    spread : float
        beta sigma_2, positive.
    """
    z = REACH * NODES
    size = check_real("multiplier", multiplier) * np.exp(
        check_ordinary("spread", spread) * z + check_real("shift", shift)
    )
    logs = log_ndtr(-size) - 0.5 * z * z - 0.5 * math.log(2 * math.pi)
    return float(np.exp(logs) @ (REACH * NODE_WEIGHTS))


# --- calibration --------------------------------------------------------------------------------------


def thesis_test(*, epsilon_hat: float, delta: float, margin: str = "quantile") -> LossTest:
    """Algorithm 6's own numbers, in which only quantiles replace their bound.

    order = 2 log(2 / delta) / epsilon_hat + 1, sigma_s = sigma_2 = sqrt((3 order + 2) / epsilon_hat) and
    beta = 0.2 / order.

    The test costs at most ``epsilon_hat`` for any two arguments. Here v >= 0.6, so that the first term of
    :func:`gnss_renyi` is at most order / (1.2 sigma_s^2), and the second at most 0.0554 / (order - 1); together they
    are at most (order + 1) / sigma_s^2 if 2 log(2 / delta) >= 0.0554 (3 order + 2) / (1 + order / 6), and the right
    side is below 1. So Lemma 3.6.5 holds wherever Algorithm 6 uses it, and (3 order + 2) / (2 sigma_s^2) is half the
    budget; the conversion at delta / 2 is the other half.

    Raises
    ------
    TypeError, ValueError
        A bad argument.
    """
    budget, level = check_ordinary("epsilon_hat", epsilon_hat), check_probability("delta", delta)
    order = 2 * math.log(2 / level) / budget + 1
    sigma = math.sqrt((3 * order + 2) / budget)
    test = LossTest(order, 0.2 / order, sigma, sigma, level, margin)
    if test.epsilon > budget:
        raise ValueError(
            f"epsilon_hat {budget!r} is exceeded by the exact cost of the test: {test.epsilon!r}"
        )
    return test


def fixed_noise_test(*, sigma: float, delta: float, margin: str = "quantile") -> LossTest:
    """The numbers of Figure 3.2: Algorithm 6 with the budget at which sigma_s = sigma_2 = ``sigma`` (there 15)."""
    scale, level = check_ordinary("sigma", sigma), check_probability("delta", delta)
    # sigma^2 = (3 order + 2) / e with order = 2 log(2 / delta) / e + 1: a quadratic equation in e.
    root = math.sqrt(25 + 24 * scale * scale * math.log(2 / level))
    return thesis_test(epsilon_hat=(5 + root) / (2 * scale * scale), delta=level, margin=margin)


def exact_test(
    *, epsilon_hat: float, delta: float, order: float | None = None, beta: float | None = None
) -> LossTest:
    """The least noise at which the test costs ``epsilon_hat`` exactly, with the exact margin.

    Parameters
    ----------
    epsilon_hat, delta : float
        Budget of the test at delta / 2, and delta of the whole algorithm.
    order, beta : float, optional
        By default those of Algorithm 6. They must not be chosen by looking at the votes.

    Returns
    -------
    LossTest
        With sigma_s = sigma_2; sharper than :func:`thesis_test` in noise (by Theorem 3.6.6's slack) and in margin.

    Raises
    ------
    ValueError
        No noise is enough: ``beta`` alone costs more than ``epsilon_hat``; or a bad argument.
    """
    budget, level = check_ordinary("epsilon_hat", epsilon_hat), check_probability("delta", delta)
    a = 2 * math.log(2 / level) / budget + 1 if order is None else float(check_orders(order)[0])
    rate = 0.2 / a if beta is None else check_ordinary("beta", beta)

    def excess(log_sigma: float) -> float:
        sigma = math.exp(log_sigma)
        return LossTest(a, rate, sigma, sigma, level).epsilon - budget

    if excess(math.log(1e6)) > 0:
        raise ValueError(f"beta must be smaller: at {rate!r} no noise makes the test cost {budget!r}")
    low = math.log(1e-3)
    log_sigma = brentq(excess, low, math.log(1e6), xtol=1e-12) if excess(low) > 0 else low
    while excess(log_sigma) > 0:
        log_sigma += 1e-11
    sigma = math.exp(log_sigma)
    return LossTest(a, rate, sigma, sigma, level)


# --- the mechanism ------------------------------------------------------------------------------------


def pate_ptr(
    votes: ArrayLike,
    *,
    sigma: float,
    epsilon_test: float,
    epsilon_hat: float,
    delta: float,
    rng: np.random.Generator,
    teachers: int | None = None,
    calibration: str = "exact",
    order: float | None = None,
    beta: float | None = None,
) -> Release[IntArray]:
    """Noisy labels by the votes of teachers, released if a private test finds their loss small (Algorithm 6).

    Parameters
    ----------
    votes : array_like, shape (queries, classes)
        Whole nonnegative numbers; rows sum to the number of teachers. The queries must be public: chosen without
        looking at the teachers.
    sigma : float
        Noise on each count (sigma_1 of the thesis).
    epsilon_test : float
        Budget of the labels, epsilon' of the thesis.
    epsilon_hat : float
        Budget of the test.
    delta : float
        Of everything together.
    rng : numpy.random.Generator
        The only source of chance.
    teachers : int, optional
        By default what the rows sum to; a public number.
    calibration : {"exact", "thesis"}
        :func:`exact_test`, or :func:`thesis_test` as published (with quantiles).
    order, beta : float, optional
        Of the exact calibration; chosen without looking at the votes.

    Returns
    -------
    Release
        Value: one class a query, shape (queries,), dtype int64; or ``Refused``, whose reason quotes the private upper
        bound. The guarantee is the same for both: ex-ante, (epsilon_test + cost of the test, delta), where neighbours
        exchange the data of one teacher. The trace holds ``loss``, ``smooth_sensitivity``, ``upper``, ``test``,
        ``labels``.

    Raises
    ------
    TypeError, ValueError
        A bad argument, before any noise is drawn.
    """
    counts = check_votes(votes, teachers=teachers)
    scale, level = check_ordinary("sigma", sigma), check_probability("delta", delta)
    budget = check_ordinary("epsilon_test", epsilon_test)
    check_generator(rng)
    if check_choice("calibration", calibration, CALIBRATIONS) == "exact":
        test = exact_test(epsilon_hat=epsilon_hat, delta=level, order=order, beta=beta)
    elif order is None and beta is None:
        test = thesis_test(epsilon_hat=epsilon_hat, delta=level)
    else:
        raise ValueError(f"order and beta are set by calibration='thesis', got {order!r} and {beta!r}")
    loss, smooth, cap = loss_and_sensitivity(counts, sigma=scale, order=test.order, beta=test.beta)
    upper = min(float(test.upper_bounds(loss, smooth, rng=rng)[0]), cap)
    labels = noisy_labels(counts, sigma=scale, rng=rng)
    found, cost = test.epsilon_of(upper), test.epsilon
    value: IntArray | Refused = labels
    if upper > test.threshold(budget):
        value = Refused(f"the private upper bound {found:.4g} of epsilon is above {budget:.4g}")
    guarantee = Guarantee(
        "ex-ante",
        budget + cost,
        Neighbours.REPLACE_ONE,
        delta=level,
        parts={"test": cost, "labels": budget},
        source=SOURCE,
    )
    trace = Trace(loss=loss, smooth_sensitivity=smooth, upper=upper, test=test, labels=labels)
    return Release(value, guarantee, trace=trace)


def loss_and_sensitivity(
    votes: ArrayLike, *, sigma: float, order: float, beta: float
) -> tuple[float, float, float]:
    """Summed Rényi loss of all labels, its smooth sensitivity (both **private**), and its public maximum.

    The maximum, queries times order / sigma^2, cuts the private upper bound: that is post-processing, and no bound
    above it is ever needed.
    """
    counts = check_votes(votes)
    loss = float(gnmax_renyi(counts, sigma=sigma, orders=order).sum())
    smooth = smooth_sensitivity(counts, sigma=sigma, order=order, beta=beta)
    return loss, smooth, len(counts) * float(data_independent_renyi(order, sigma=sigma)[0])


def noisy_labels(votes: ArrayLike, *, sigma: float, rng: np.random.Generator) -> IntArray:
    """argmax_j n_j + N(0, sigma^2) for each query, shape (queries,): GNMax."""
    counts, scale = check_votes(votes), check_ordinary("sigma", sigma)
    return np.asarray(
        (counts + gaussian(scale, counts.shape, check_generator(rng))).argmax(axis=1), dtype=np.int64
    )
