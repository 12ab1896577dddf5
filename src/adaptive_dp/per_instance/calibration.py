"""The privacy of objective perturbation: Kifer's calibration, corrected, and the sharper curves.

Source: redberg2023, Theorem 2.2.5 (erratum 1) for the calibration; the curves are section S1 of the errata with
the proof in the referee's report (one-dimensional reduction). Neighbours add or remove one record.

Two numbers describe a generalised linear loss on a domain: mu = sup |f'| ||x|| / sigma, the size of one
gradient beside the noise, and kappa = sup f'' ||x||^2 / lam, the size of one Hessian beside the ridge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import log_ndtr

from adaptive_dp.accounting import EPS, gaussian_delta, gaussian_epsilon, smallest_feasible, step_until_safe
from adaptive_dp.losses import Loss, SmoothLoss
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, PrivacyCurve
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

ROOT_TWO = math.sqrt(2.0)


class Calibration(NamedTuple):
    """Noise scale and ridge of objective perturbation."""

    sigma: float
    lam: float


def kifer_calibration(*, epsilon: float, delta: float, slope: float, curvature: float) -> Calibration:
    """Noise and ridge of redberg2023, Theorem 2.2.5 (Kifer et al. 2012), corrected.

    sigma = slope sqrt(8 log(2/delta) + 4 epsilon) / epsilon and lam = 2 curvature / epsilon. The print gives
    the *variance* for sigma (erratum 1): with small gradients that is far too little noise. Only for
    generalised linear losses, or others whose Hessians have rank one: for full-rank Hessians the claim is false.

    Parameters
    ----------
    epsilon, delta : float
        Wanted guarantee, add/remove.
    slope : float
        sup |f'| ||x||_2 over the domain: ``loss.lipschitz(domain, math.inf)``.
    curvature : float
        sup f'' ||x||_2^2: ``loss.smoothness(domain)``.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    size, bend = check_ordinary("slope", slope), check_ordinary("curvature", curvature)
    return Calibration(size * math.sqrt(8 * math.log(2 / tail) + 4 * level) / level, 2 * bend / level)


def sharp_sigma(*, epsilon: float, delta: float, slope: float, curvature: float, lam: float) -> float:
    """Smallest sigma whose :class:`LinearPerturbationCurve` is within (epsilon, delta), for any ``lam``.

    The root is on the safe side: delta of the answer is at most ``delta``.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    size = check_ordinary("slope", slope)
    kappa = check_ordinary("curvature", curvature) / check_ordinary("lam", lam)

    def excess(sigma: float) -> float:
        return log_excess(LinearPerturbationCurve(size / sigma, kappa).delta(level), tail)

    low, high = 1e-12 * size / level, 1e12 * size / level
    if excess(high) > 0:
        raise ValueError(
            f"no noise reaches epsilon {level!r}: with lam {lam!r} the determinant alone may cost "
            f"log(1 + curvature / lam) = {math.log1p(kappa):.6g}; take a larger lam"
        )
    return smallest_feasible(excess, low, high)


def log_excess(delta: float, allowed: float) -> float:
    """Return log(delta / allowed), minus infinity at 0: what a calibration brings down to 0.

    Positive exactly where ``delta`` is above ``allowed``, also where the two logarithms round to one number.
    """
    if delta <= 0:
        return -math.inf
    difference = math.log(delta) - math.log(allowed)
    return max(difference, EPS) if delta > allowed else min(difference, 0.0)


def half_normal_delta(epsilon: float, mu: float) -> float:
    """E (1 - exp(epsilon - mu^2 / 2 - mu |N|))_+ for a standard normal N, any real epsilon.

    Twice the Gaussian profile from mu^2 / 2 on, and 1 - 2 e^epsilon Phi(-mu) below (erratum 21).
    """
    if epsilon >= 0.5 * mu * mu:
        return min(1.0, 2 * gaussian_delta(epsilon, mu))
    if mu < 1:  # a small difference: its parts apart
        return total_variation(mu) - math.expm1(epsilon) * math.erfc(mu / ROOT_TWO)
    # Together in the exponent: exp(epsilon) alone overflows where mu is large.
    return -math.expm1(math.log(2) + epsilon + float(log_ndtr(-mu)))


def half_normal_epsilon(delta: float, mu: float) -> float:
    """Real epsilon at which :func:`half_normal_delta` is ``delta`` in (0, 1), up to roundings; it may be negative."""
    if delta > half_normal_delta(0.5 * mu * mu, mu):
        return math.log1p(-delta) - math.log(2) - float(log_ndtr(-mu))
    return gaussian_epsilon(0.5 * delta, mu)


def total_variation(mu: float) -> float:
    """2 Phi(mu) - 1: total variation between N(0, 1) and N(2 mu, 1), and the most that objective perturbation has."""
    return math.erf(mu / ROOT_TWO)


@dataclass(frozen=True, slots=True)
class LinearPerturbationCurve:
    """delta as a function of epsilon for objective perturbation of a generalised linear loss, any lam > 0.

    delta(epsilon) = max(A, B). A, where the record is absent from the data at hand, is 2 G(epsilon, mu) with the
    Gaussian profile G (1 - 2 e^epsilon Phi(-mu) below mu^2 / 2): no curvature enters. B, where it is present, is
    G(epsilon - log(1 + kappa), mu) from log(1 + kappa) on. At epsilon = 0, the total variation, it is at most
    2 Phi(mu) - 1 and at most 1 - (e^(-mu^2 / 2) / 2 + Phi(-mu)) / (1 + kappa); from the smaller of the two a chord in
    e^epsilon, in which profiles are convex, leads to G(0, mu).
    """

    mu: float
    kappa: float

    def __post_init__(self) -> None:
        check_positive("mu", self.mu)
        check_positive("kappa", self.kappa)

    def delta(self, epsilon: float) -> float:
        """Bound on the hockey-stick divergence at ``epsilon`` >= 0, both directions."""
        return max(self.absent(epsilon), self.present(epsilon))

    def absent(self, epsilon: float) -> float:
        """Bound A at ``epsilon`` >= 0: from the data without the record to the data with it."""
        return half_normal_delta(_check_epsilon(epsilon), self.mu)

    def present(self, epsilon: float) -> float:
        """Bound B at ``epsilon`` >= 0: from the data with the record to the data without it."""
        level = _check_epsilon(epsilon)
        rest = level - math.log1p(self.kappa)
        if rest >= 0:
            return gaussian_delta(rest, self.mu)
        start, end = self._chord()
        return start - (start - end) * min(1.0, math.expm1(level) / self.kappa)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 (on the safe side) with ``self.delta(epsilon) <= delta``."""
        tail = check_probability("delta", delta)
        start, end = self._chord()
        if tail <= end:
            present = math.log1p(self.kappa) + gaussian_epsilon(tail, self.mu)
        else:
            present = math.log1p(self.kappa * max(start - tail, 0.0) / (start - end)) if tail < start else 0.0
        found = max(present, half_normal_epsilon(tail, self.mu), 0.0)
        return step_until_safe(lambda epsilon: self.delta(epsilon) <= tail, found)

    def _chord(self) -> tuple[float, float]:
        """B at epsilon = 0 and at log(1 + kappa)."""
        end = total_variation(0.5 * self.mu)
        log_share = np.logaddexp(-math.log(2) - 0.5 * self.mu**2, log_ndtr(-self.mu))
        one_sided = -math.expm1(float(log_share) - math.log1p(self.kappa))
        return max(min(total_variation(self.mu), one_sided), end), end


@dataclass(frozen=True, slots=True)
class SmoothPerturbationCurve:
    """The same for a general smooth loss in d dimensions: the whole noise vector and d eigenvalues enter.

    The loss of either direction is at most d log(1 + kappa) + mu^2 / 2 + mu R with R ~ chi_d. Kifer's
    calibration is *not* valid here (erratum 1): this is, and it is much dearer.
    """

    mu: float
    kappa: float
    dimension: int

    def __post_init__(self) -> None:
        check_positive("mu", self.mu)
        check_positive("kappa", self.kappa)
        check_count("dimension", self.dimension)

    def delta(self, epsilon: float) -> float:
        """E (1 - exp(epsilon - d log(1 + kappa) - mu^2 / 2 - mu R))_+, by quadrature."""
        level = _check_epsilon(epsilon)
        rest = level - self.dimension * math.log1p(self.kappa) - self.mu**2 / 2
        law = stats.chi(self.dimension)
        start = max(0.0, rest / self.mu)
        # Beyond, the tail of R or the exponential is below the floats; for a large mu all happens near the start.
        stop = min(max(start, float(law.isf(1e-300))) + 1.0, start + 750.0 / self.mu)
        # By parts, so that nothing cancels: the integrand's slope mu e^(rest - mu r) against the tail of R.
        edges = np.linspace(start, stop, 129)
        half = 0.5 * np.diff(edges)[:, np.newaxis]
        nodes, weights = np.polynomial.legendre.leggauss(16)
        r = edges[:-1, np.newaxis] + half * (1 + nodes)
        part = float((half * weights * self.mu * np.exp(rest - self.mu * r) * law.sf(r)).sum())
        floor = -math.expm1(rest) if rest < 0 else 0.0
        return min(1.0, floor + part)

    def renyi(self, order: float) -> float:
        """Bound on the Rényi divergence of ``order`` >= 1, both directions; order 1 is the limit.

        redberg2023, Theorem C.5.1, corrected (erratum 27): d log(1 + kappa) + mu^2 / 2 + log E e^(a mu R) / a with
        a = order - 1 and R ~ chi_d.
        """
        alpha = check_real("order", order)
        if alpha < 1:
            raise ValueError(f"order must be at least 1, got {alpha!r}")
        fixed = self.dimension * math.log1p(self.kappa) + self.mu**2 / 2
        power = alpha - 1
        if power == 0:
            return fixed + self.mu * float(stats.chi(self.dimension).mean())
        return fixed + log_chi_mgf(power * self.mu, self.dimension) / power

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon (on the safe side) with ``self.delta(epsilon) <= delta``."""
        start = self.dimension * math.log1p(self.kappa) + self.mu**2 / 2 + 1
        return _smallest_epsilon(self, check_probability("delta", delta), start)


def log_chi_mgf(t: float, dimension: int) -> float:
    """Return log E e^(t R), R ~ chi_d, for t >= 0: accurate for d from 1 to 1e4 and beyond, and for tiny t.

    The integrand r^(d-1) e^(t r - r^2/2) has its mode at r0 e^s with r0 = sqrt(d - 1), s = asinh(t / (2 r0)), and
    falls from there at least as fast as a standard normal density. The ratio of the two modes, t against 0, is
    exp((d - 1) s + t r / 2): so written, nothing of size d log d cancels.

    Parameters
    ----------
    t : float
        Nonnegative.
    dimension : int
        d, at least 1.
    """
    rate, d = check_real("t", t), check_count("dimension", dimension)
    if rate < 0:
        raise ValueError(f"t must be nonnegative, got {rate!r}")
    if d == 1:
        return 0.5 * rate * rate + math.log1p(math.erf(rate / math.sqrt(2)))
    rest = math.sqrt(d - 1)
    shift = math.asinh(rate / (2 * rest))
    r, weights = _mode_nodes(rest, d)
    mass = float(weights.sum())
    if rate * (rest + 1) < 0.5:  # near 0: the first digits of E e^(t R) are those of 1
        return math.log1p(float(weights @ np.expm1(rate * r)) / mass)
    mode = rest * math.exp(shift)
    _, moved = _mode_nodes(mode, d)
    return (d - 1) * shift + 0.5 * rate * mode + math.log(float(moved.sum()) / mass)


def _mode_nodes(mode: float, dimension: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of exp((d - 1)(log(r / mode) - r / mode + 1) - (r - mode)^2 / 2), whose mode is ``mode``.

    That is r^(d-1) e^(t r - r^2/2) over its largest value, with t = mode - (d - 1) / mode.
    """
    edges = np.linspace(max(0.0, mode - 13), mode + 13, 53)
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    nodes, weights = np.polynomial.legendre.leggauss(16)
    r = edges[:-1, np.newaxis] + half * (1 + nodes)
    x = (r - mode) / mode
    logs = (dimension - 1) * (np.log1p(x) - x) - 0.5 * (r - mode) ** 2
    return r.ravel(), np.asarray((half * weights * np.exp(logs)).ravel())


def perturbation_guarantee(
    loss: Loss | SmoothLoss, domain: Domain, *, dimension: int, lam: float, sigma: float, delta: float
) -> Guarantee:
    """The ex-ante guarantee of objective perturbation with these parameters, add/remove, theta in R^d.

    Infinite where the gradients of the loss are unbounded on the domain (squared loss).
    """
    linear = isinstance(loss, Loss)
    slope = (
        loss.lipschitz(domain, math.inf, dimension=dimension)
        if isinstance(loss, Loss)
        else loss.lipschitz(domain)
    )
    bend = loss.smoothness(domain, dimension=dimension) if isinstance(loss, Loss) else loss.smoothness(domain)
    source = "redberg2023, Algorithm 1; errata, one-dimensional reduction" if linear else "redberg2023, C.5.1"
    curve: PrivacyCurve | None = None
    if math.isfinite(slope) and math.isfinite(bend):
        mu, kappa = slope / sigma, bend / lam
        curve = (
            LinearPerturbationCurve(mu, kappa) if linear else SmoothPerturbationCurve(mu, kappa, dimension)
        )
    return Guarantee(
        kind="ex-ante",
        epsilon=math.inf if curve is None else curve.epsilon(delta),
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        domain=domain,
        source=source,
        curve=curve,
    )


def _check_epsilon(epsilon: float) -> float:
    level = check_real("epsilon", epsilon)
    if level < 0:
        raise ValueError(f"epsilon must be nonnegative, got {level!r}")
    return level


def _smallest_epsilon(curve: PrivacyCurve, delta: float, start: float) -> float:
    """Bisection that ends on the side where the curve is at most ``delta``."""
    if curve.delta(0.0) <= delta:
        return 0.0
    low, high = 0.0, start
    while curve.delta(high) > delta:
        low, high = high, 2 * high
        if high > 1e12:
            return math.inf
    for _ in range(100):
        middle = 0.5 * (low + high)
        if not low < middle < high or high - low <= 1e-13 * high:
            break
        low, high = (low, middle) if curve.delta(middle) <= delta else (middle, high)
    return high
