"""Four analyses of objective perturbation side by side, as privacy curves of two numbers.

Sources: redberg2023, Theorems 4.2.8 (Kifer et al.), 4.3.1 (erratum 21) and 4.3.2 (erratum 22), and section S1 of the
errata (the reduction to one dimension, with the proof in the referee's report). Neighbours add or remove one record,
the ridge lam stands beside a sum of losses, and the loss is a generalised linear one, f(x'theta; y).

Two numbers say it all: mu = sup |f'| ||x|| / sigma, the size of one gradient beside the noise, and
kappa = sup f'' ||x||^2 / lam, the size of one Hessian beside the ridge.

==========================  ===========================  ======================  ===================
curve                       loss is bounded by           needs                   epsilon
==========================  ===========================  ======================  ===================
:class:`KiferCurve`         two tail bounds              kappa <= epsilon / 2    nonnegative
:class:`HockeyStickCurve`   c + mu^2 / 2 + mu abs(N)     kappa < 1               any real number
:class:`HalfNormalCurve`    the same, Rényi              kappa < 1               any real number
:class:`ReducedCurve`       each direction by itself     nothing                 any real number
==========================  ===========================  ======================  ===================

with c = -log(1 - kappa) and N standard normal. No analysis can be below the Gaussian mechanism,
``GaussianCurve(mu)``: with the linear loss f(u) = u objective perturbation *is* that mechanism (Lemma 4.3.4, which is
about one loss and one pair of neighbours, not about all, erratum 24).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from adaptive_dp.accounting import (
    RenyiDerivedCurve,
    gaussian_epsilon,
    smallest_feasible,
    step_until_safe,
)
from adaptive_dp.objective_perturbation.general_loss import check_renyi_order, eigenvalue_price
from adaptive_dp.objective_perturbation.sharper import sharper_absent_delta
from adaptive_dp.per_instance.calibration import (
    LinearPerturbationCurve,
    half_normal_delta,
    half_normal_epsilon,
    log_chi_mgf,
    log_excess,
)
from adaptive_dp.validation import check_positive, check_probability, check_real


def determinant_cost(kappa: float) -> float:
    """-log(1 - kappa), what Theorems 4.3.1 and 4.3.2 pay for the Jacobian.

    Raises
    ------
    ValueError
        ``kappa`` not in (0, 1): the theorems ask for lam above the smoothness.
    """
    share = check_positive("kappa", kappa)
    if share >= 1:
        raise ValueError(
            f"kappa must be below 1 for Theorems 4.3.1 and 4.3.2 (lam above the smoothness), got {share!r}; "
            "ReducedCurve has no such condition"
        )
    return -math.log1p(-share)


def half_normal_renyi(order: float, mu: float) -> float:
    """mu^2 / 2 + log E exp((order - 1) mu |N|) / (order - 1), order >= 1, without overflow.

    The closed form is order mu^2 / 2 + log(2 Phi((order - 1) mu)) / (order - 1); the limit at 1, the mean of the loss,
    is mu^2 / 2 + mu sqrt(2 / pi). The print puts the value of order 2 there (erratum 22).
    """
    power = check_renyi_order(order) - 1
    if power == 0:
        return 0.5 * mu * mu + mu * math.sqrt(2 / math.pi)
    return 0.5 * mu * mu + log_chi_mgf(power * mu, 1) / power


@dataclass(frozen=True, slots=True)
class KiferCurve:
    """The calibration of Kifer, Smith and Thakurta (2012), read as a curve: redberg2023, Theorem 4.2.8.

    delta(epsilon) = 2 exp(-(epsilon^2 / mu^2 - 4 epsilon) / 8) where kappa <= epsilon / 2, and 1 below. For
    generalised linear losses only: without that condition the claim is false (erratum 27).

    Parameters
    ----------
    mu, kappa : float
        Positive.
    """

    mu: float
    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_positive("mu", self.mu))
        object.__setattr__(self, "kappa", check_positive("kappa", self.kappa))

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at ``epsilon`` >= 0."""
        level = check_real("epsilon", epsilon)
        if level < 0:
            raise ValueError(f"epsilon must be nonnegative, got {level!r}")
        if self.kappa > 0.5 * level:
            return 1.0
        ratio = level / self.mu
        return math.exp(min(math.log(2) - 0.125 * (ratio * ratio - 4 * level), 0.0))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon with ``self.delta(epsilon) <= delta`` in (0, 1), rounded up."""
        tail = check_probability("delta", delta)
        root = 2 * self.mu * (self.mu + math.sqrt(self.mu * self.mu + 2 * math.log(2 / tail)))
        return step_until_safe(lambda e: self.delta(e) <= tail, max(root, 2 * self.kappa))


@dataclass(frozen=True, slots=True)
class HockeyStickCurve:
    """The profile of redberg2023, Theorem 4.3.1, with the right sign (erratum 21).

    E (1 - exp(epsilon + log(1 - kappa) - mu^2 / 2 - mu |N|))_+: the hockey-stick divergence of a bound of the loss.

    Parameters
    ----------
    mu, kappa : float
        Positive, ``kappa`` below 1.
    """

    mu: float
    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_positive("mu", self.mu))
        determinant_cost(self.kappa)
        object.__setattr__(self, "kappa", float(self.kappa))

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at any real ``epsilon``."""
        return half_normal_delta(check_real("epsilon", epsilon) - determinant_cost(self.kappa), self.mu)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with ``self.delta(epsilon) <= delta`` in (0, 1), rounded up."""
        tail = check_probability("delta", delta)
        start = max(half_normal_epsilon(tail, self.mu) + determinant_cost(self.kappa), 0.0)
        return step_until_safe(lambda e: self.delta(e) <= tail, start)


@dataclass(frozen=True, slots=True)
class HalfNormalCurve:
    """The Rényi divergences of redberg2023, Theorem 4.3.2 (erratum 22), and the profile that follows from them.

    Parameters
    ----------
    mu, kappa : float
        Positive, ``kappa`` below 1.
    """

    mu: float
    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_positive("mu", self.mu))
        determinant_cost(self.kappa)
        object.__setattr__(self, "kappa", float(self.kappa))

    def renyi(self, order: float) -> float:
        """-log(1 - kappa) + order mu^2 / 2 + log(2 Phi((order - 1) mu)) / (order - 1), order >= 1."""
        return determinant_cost(self.kappa) + half_normal_renyi(order, self.mu)

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at any real ``epsilon``, from the best order."""
        return RenyiDerivedCurve(self.renyi).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with ``self.delta(epsilon) <= delta`` in (0, 1), rounded up."""
        return RenyiDerivedCurve(self.renyi).epsilon(check_probability("delta", delta))


@dataclass(frozen=True, slots=True)
class ReducedCurve:
    """The reduction to one dimension (section S1 of the errata): each direction has its own bound, any kappa.

    The closed bounds are those of :class:`~adaptive_dp.per_instance.calibration.LinearPerturbationCurve`. For a
    negative epsilon each direction follows from the other: delta(epsilon) = 1 - e^epsilon + e^epsilon delta'(-epsilon).

    Parameters
    ----------
    mu, kappa : float
        Positive.
    sharper : bool
        Where the record is absent, take the certified supremum of
        :mod:`~adaptive_dp.objective_perturbation.sharper`: close to the Gaussian mechanism for small kappa, where the
        closed form has twice its delta. Where it is present, also what follows from the Rényi bounds, which is less
        for kappa above about 0.2. Milliseconds instead of microseconds.
    """

    mu: float
    kappa: float
    sharper: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_positive("mu", self.mu))
        object.__setattr__(self, "kappa", check_positive("kappa", self.kappa))
        if not isinstance(self.sharper, bool):
            raise TypeError(f"sharper must be True or False, got {self.sharper!r}")

    @property
    def closed(self) -> LinearPerturbationCurve:
        """The closed bounds alone."""
        return LinearPerturbationCurve(self.mu, self.kappa)

    def absent(self, epsilon: float) -> float:
        """Bound from the data without the record to the data with it, any real ``epsilon``."""
        level = check_real("epsilon", epsilon)
        bound = half_normal_delta(level, self.mu)
        if self.sharper:
            bound = min(bound, sharper_absent_delta(level, self.mu, self.kappa))
        return bound if level >= 0 else min(bound, _reverse(level, self.closed.present(-level)))

    def present(self, epsilon: float) -> float:
        """Bound from the data with the record to the data without it, any real ``epsilon``."""
        level = check_real("epsilon", epsilon)
        if level < 0:
            return _reverse(level, self.absent(-level))
        bound = self.closed.present(level)
        return min(bound, RenyiDerivedCurve(self.renyi_present).delta(level)) if self.sharper else bound

    def delta(self, epsilon: float) -> float:
        """The larger of the two directions, any real ``epsilon``."""
        return max(self.absent(epsilon), self.present(epsilon))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with ``self.delta(epsilon) <= delta`` in (0, 1), on the safe side."""
        high = self.closed.epsilon(delta)
        if not self.sharper or high == 0 or not math.isfinite(high):
            return high
        if self.delta(0.0) <= delta:
            return 0.0
        # Not below the Gaussian mechanism.
        low = min(max(gaussian_epsilon(delta, self.mu) * (1 - 1e-9), 1e-12 * high), high)
        return smallest_feasible(lambda e: log_excess(self.delta(e), delta), low, high)

    def renyi_absent(self, order: float) -> float:
        """Rényi bound from the data without the record to the data with it, order a >= 1.

        The smaller of a mu^2 / 2 + log(2 Phi((a - 1) mu)) / (a - 1) and, where (a - 1) kappa < 1, of
        a mu^2 / 2 - log(1 + kappa) - log(1 - (a - 1) kappa) / (a - 1), the theorem of
        :mod:`~adaptive_dp.objective_perturbation.general_loss` on a line, which is below the second form of A3.
        """
        alpha = check_renyi_order(order)
        return min(half_normal_renyi(alpha, self.mu), self._tilted(alpha, present=False))

    def renyi_present(self, order: float) -> float:
        """Rényi bound from the data with the record to the data without it, order a >= 1.

        a mu^2 / 2 + (a log(1 + kappa) - log(1 + a kappa)) / (a - 1) by the same theorem: below A3's
        log(1 + kappa) + a mu^2 / 2.
        """
        return self._tilted(check_renyi_order(order), present=True)

    def _tilted(self, order: float, *, present: bool) -> float:
        gaussian, kappa = 0.5 * order * self.mu * self.mu, self.kappa
        if order > 1:
            return gaussian + eigenvalue_price(order, kappa, present=present) / (order - 1)
        return gaussian + (math.log1p(kappa) - kappa / (1 + kappa) if present else kappa - math.log1p(kappa))

    def renyi(self, order: float) -> float:
        """The larger of the two directions, order >= 1; order 1 is the limit."""
        return max(self.renyi_absent(order), self.renyi_present(order))


@runtime_checkable
class HasRenyi(Protocol):
    """Anything with Rényi divergences at every order from 1 on."""

    def renyi(self, order: float) -> float:
        """Largest Rényi divergence of ``order`` over both directions of all pairs of neighbours."""
        ...


@dataclass(frozen=True, slots=True)
class WithOutputNoise:
    """A Rényi bound, composed with a Gaussian mechanism on the same record (Theorem 4.4.1), as a privacy curve.

    Algorithm 7 adds Gaussian noise to an approximate minimiser: the two divergences add up at each order. With
    ``mu_out = 0`` it is the profile that follows from the Rényi bound alone.

    Parameters
    ----------
    curve : HasRenyi
        :class:`HalfNormalCurve` or :class:`ReducedCurve`, for instance.
    mu_out : float
        Sensitivity over noise of the output, 2 tau / (lam sigma_out); nonnegative.
    """

    curve: HasRenyi
    mu_out: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.curve, type) or not isinstance(self.curve, HasRenyi):
            raise TypeError(f"curve must have a method renyi, got {type(self.curve).__name__}")
        if check_real("mu_out", self.mu_out) < 0:
            raise ValueError(f"mu_out must be nonnegative, got {self.mu_out!r}")

    def renyi(self, order: float) -> float:
        """Sum of the two divergences, order >= 1."""
        return self.curve.renyi(order) + 0.5 * check_renyi_order(order) * self.mu_out * self.mu_out

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at any real ``epsilon``, from the best order."""
        return RenyiDerivedCurve(self.renyi).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with ``self.delta(epsilon) <= delta`` in (0, 1), rounded up."""
        return RenyiDerivedCurve(self.renyi).epsilon(check_probability("delta", delta))


def log_series(share: float) -> float:
    """-log(1 - x) / x for x in [0, 1): 1 at 0."""
    return -math.log1p(-share) / share if share > 0 else 1.0


def _reverse(epsilon: float, other: float) -> float:
    """The profile at ``epsilon`` < 0 from the other direction's at -epsilon."""
    return min(1.0, -math.expm1(epsilon) + math.exp(epsilon) * other)
