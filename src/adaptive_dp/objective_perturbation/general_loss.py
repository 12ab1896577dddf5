"""Objective perturbation of any convex, Lipschitz, smooth loss: a Rényi bound with the root of the dimension.

Source: redberg2023, appendix C.5, with errata 1 and 27. Neighbours add or remove one record z; lam stands beside a sum
of losses; g = grad l(theta; z), A its Hessian, ||g|| <= mu sigma and 0 <= A <= kappa lam I. J is the objective without
z, H its Hessian; H >= lam I. In units of sigma the noise is b = -grad J(theta) without z and b' = b - g with it.

For a generalised linear loss g and A live on the line of x: the noise across that line is the same with and without z,
and everything happens in one dimension. Otherwise the *whole* vector changes, by a g that is a function of b (Kifer et
al. 2012 took it for independent), and A has up to d eigenvalues. Theorem C.5.1 pays for both in the crudest way:
d log(1 + kappa) for the determinant and mu ||b|| for the product b'g. But the two nearly cancel, as E[-b'g] is exactly
E tr(A H^-1) (Stein), and that is the logarithm of the determinant up to second order in kappa.

**Theorem** (of this book). Let a = order - 1 > 0. The Rényi divergences D of objective perturbation satisfy

    without z from with z:  D <= order mu^2 / 2 + d psi(kappa) / a,   psi(m) = -a log(1 + m) - log(1 - a m),
    with z from without z:  D <= order mu^2 / 2 + d chi(kappa) / a,   chi(m) = order log(1 + m) - log(1 + order m),

the first for a kappa < 1, the second always; psi and chi are order a m^2 / 2 to second order. For every 0 < q < 1 the
last term may be replaced by

    ( q t^2 mu^2 / 2 + (1 - q) log E exp(q t mu R / (1 - q)) ) / a,        R ~ chi_d,

with t = (e^(psi(kappa)/q) - 1)(1 - a kappa) / kappa, or t = (e^(chi(kappa)/q) - 1)(1 + order kappa) / kappa: to second
order, D <= order (mu^2 + min(d kappa^2, kappa mu sqrt(d))) / 2.

*Proof.* The densities of theta are p = phi(grad J) det H without z and p' = phi(grad J + g) det(H + A) with it. As
order ||u||^2 - a ||u + g||^2 = ||u - a g||^2 - order a ||g||^2,

    p^order p'^(-a) = r e^(order a ||g||^2 / 2) det(H)^order det(H + A)^(-a) det(H - a A)^(-1),

where r = phi(grad J - a g) det(H - a A) is the density of theta if z counts -a times: J - a l is strongly convex as
a kappa < 1, so that r integrates to 1. With the eigenvalues m_j in [0, kappa] of H^-1 A the determinants are
exp(sum psi(m_j)), and psi increases. The other direction takes the density r with z counted ``order`` times, for which
nothing is asked of kappa. For the second form let v be the noise under r and M = A (H - a A)^-1, with eigenvalues
n_j = m_j / (1 - a m_j); counting z by t more, E_r exp(X) = 1 for X = log det(I + t M) + t v'g - t^2 ||g||^2 / 2. By the
choice of t, psi(m_j) <= q log(1 + t n_j): the ratio (e^(psi/q) - 1) / n grows with m. Hence sum psi(m_j) <=
q (X + t mu ||v|| + t^2 mu^2 / 2), and Hölder's inequality with exponents 1/q and 1/(1-q) finishes it. Losses whose
gradient is only Lipschitz (Huber) are covered: theta -> b is Lipschitz both ways, and the change of variables holds
almost everywhere.

With d = 1 it holds for generalised linear losses in any dimension, by the one-dimensional reduction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import poch

from adaptive_dp.accounting import RenyiDerivedCurve
from adaptive_dp.per_instance.calibration import SmoothPerturbationCurve, log_chi_mgf
from adaptive_dp.validation import check_count, check_positive, check_real

# Values of q among which the best is taken: any is valid.
SHARES = np.concatenate([np.geomspace(1e-3, 0.5, 60), 1 - np.geomspace(0.5, 1e-4, 61)[1:]])
SERIES_TERMS = 16


def check_renyi_order(order: object) -> float:
    """Return a Rényi order of at least 1."""
    number = check_real("order", order)
    if number < 1:
        raise ValueError(f"order must be at least 1, got {number!r}")
    return number


def eigenvalue_price(order: float, kappa: float, *, present: bool) -> float:
    """Return chi(kappa) (with the record first) or psi(kappa), without cancellation.

    ``order`` at least 1 and ``kappa`` positive are not checked; psi is infinite where a kappa >= 1.
    """
    a = order - 1
    if not present and a * kappa >= 1:
        return math.inf
    if order * kappa < 0.05:
        # Plain Python: a dozen terms, and this sits inside searches over orders.
        total = 0.0
        for k in range(2, SERIES_TERMS):
            if present:  # (-1)^k (order^k - order) kappa^k / k
                total += (-kappa) ** k * order * math.expm1((k - 1) * math.log1p(a)) / k
            else:  # (a^k + (-1)^k a) kappa^k / k
                total += ((a * kappa) ** k + a * (-kappa) ** k) / k
        return total
    if present:
        # order log(1 + kappa) - log(1 + order kappa), without the cancellation near order 1.
        return a * math.log1p(kappa) - math.log1p(a * kappa / (1 + kappa))
    return -a * math.log1p(kappa) - math.log1p(-a * kappa)


@dataclass(frozen=True, slots=True)
class GeneralLossCurve:
    """Privacy of objective perturbation of a convex Lipschitz smooth loss in d dimensions: this module's theorem.

    Never above :class:`~adaptive_dp.per_instance.calibration.SmoothPerturbationCurve` (Theorem C.5.1, corrected), and
    near what the worst losses cost: the square root of the dimension enters, times kappa.

    Parameters
    ----------
    mu : float
        sup ||grad l|| / sigma, positive.
    kappa : float
        sup of the largest eigenvalue of the Hessian of l, over lam; positive.
    dimension : int
        d; 1 for a generalised linear loss in any dimension.
    """

    mu: float
    kappa: float
    dimension: int

    def __post_init__(self) -> None:
        check_positive("mu", self.mu)
        check_positive("kappa", self.kappa)
        check_count("dimension", self.dimension)

    def renyi(self, order: float) -> float:
        """Bound on the Rényi divergence of ``order`` >= 1 (1 is the limit), the larger direction."""
        return max(self.renyi_towards(order, present=False), self.renyi_towards(order, present=True))

    def renyi_towards(self, order: float, *, present: bool) -> float:
        """The same for one direction: whether the first of the two distributions is the one with the record."""
        alpha = check_renyi_order(order)
        if alpha == 1:
            return self._divergence_of_order_one(present)
        a, gaussian = alpha - 1, 0.5 * alpha * self.mu**2
        price = eigenvalue_price(alpha, self.kappa, present=present)
        best = gaussian + min(self.dimension * price, self._trace_price(alpha, price, present=present)) / a
        if present:
            return best
        # Without the record its determinant only helps: loss <= mu^2 / 2 + mu R.
        return min(best, 0.5 * self.mu**2 + log_chi_mgf(a * self.mu, self.dimension) / a)

    def _divergence_of_order_one(self, present: bool) -> float:
        # The trace of the eigenvalues, A H^-1 or A (H + A)^-1, is at most mu R in expectation.
        k, trace = self.kappa, self.mu * self._mean_length
        if present:
            price, largest = math.log1p(k) - k / (1 + k), k / (1 + k)
        else:
            price, largest = k - math.log1p(k), k
        return 0.5 * self.mu**2 + min(self.dimension, trace / largest) * price

    def _trace_price(self, order: float, price: float, *, present: bool) -> float:
        """Second form of the theorem at the best q, times a."""
        if price == math.inf:
            return math.inf
        a, k = order - 1, self.kappa
        eigenvalue = k / (1 + order * k) if present else k / (1 - a * k)
        with np.errstate(over="ignore"):
            slopes = np.expm1(price / SHARES) / eigenvalue * self.mu
            # log E e^(sR) <= s E R + s^2 / 2, as R is a 1-Lipschitz function of the noise: enough to choose q.
            rough = SHARES * slopes * (self._mean_length + slopes / (2 * (1 - SHARES)))
        at = int(np.argmin(rough))
        q, slope = float(SHARES[at]), float(slopes[at])
        if not math.isfinite(rough[at]) or rough[at] > 1e12:
            return float(rough[at])
        return 0.5 * q * slope**2 + (1 - q) * log_chi_mgf(q * slope / (1 - q), self.dimension)

    @property
    def _mean_length(self) -> float:
        """E R for R ~ chi_d."""
        return math.sqrt(2) * float(poch(self.dimension / 2, 0.5))

    def delta(self, epsilon: float) -> float:
        """Bound on the hockey-stick divergence at ``epsilon`` >= 0, both directions."""
        older = SmoothPerturbationCurve(self.mu, self.kappa, self.dimension).delta(epsilon)
        return min(older, RenyiDerivedCurve(self.renyi).delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon, on the safe side, with ``self.delta(epsilon) <= delta``."""
        older = SmoothPerturbationCurve(self.mu, self.kappa, self.dimension).epsilon(delta)
        return min(older, RenyiDerivedCurve(self.renyi).epsilon(delta))
