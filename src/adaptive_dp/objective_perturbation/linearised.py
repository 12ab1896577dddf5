"""The linearised Rényi bound of objective perturbation, corrected: it drops the half-normal law for a small kappa.

Source: redberg2023, section C.3.1, with erratum 23. The loss is c + mu^2 / 2 plus b'x f'(x'theta^P) / sigma^2, where
theta^P depends on the noise b. Replace x'theta^P by a number that does not, and Hölder's inequality separates a normal
term from a remainder.

The print centres at the minimiser without noise and bounds |x'theta^P - x'theta*| by a normal variable; that bound,
(C.3.9), is false. The centre that works is u_0 = E x'theta^P: the map from b / sigma to x'theta^P is Lipschitz with
constant sigma ||x|| / lam, so x'theta^P - u_0 is sub-Gaussian with that scale, whatever its law, and
E exp(t w^2) <= (1 - 2 t)^(-1/2) holds for a sub-Gaussian w of scale 1 as for a normal one. With 1/p + 1/q = 1 and
a = order - 1,

    c + mu^2 / 2 + p a mu^2 / 2 - log(1 - 2 q a kappa) / (2 q a),    finite where 2 q a kappa < 1.

:class:`~adaptive_dp.objective_perturbation.profiles.ReducedCurve` is better at every order: it needs no Hölder and pays
c in one direction only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
from scipy.optimize import brentq

from adaptive_dp.accounting import RenyiDerivedCurve
from adaptive_dp.objective_perturbation.general_loss import check_renyi_order
from adaptive_dp.objective_perturbation.profiles import (
    ReducedCurve,
    determinant_cost,
    half_normal_renyi,
    log_series,
)
from adaptive_dp.validation import check_choice, check_positive, check_probability, check_real

DETERMINANTS = ("sharp", "thesis")

# (mu, kappa, order) of the comparison in erratum 23.
CASES = (
    (0.2, 0.001, 2.0),
    (0.2, 0.001, 10.0),
    (0.2, 0.01, 2.0),
    (0.2, 0.05, 2.0),
    (0.2, 0.001, 100.0),
    (0.05, 0.01, 2.0),
    (0.5, 0.001, 4.0),
    (2.0, 0.01, 3.0),
)

# The smallest exponent above 1; any exponent is valid.
NEXT_TO_ONE = math.nextafter(1.0, 2.0)


def linearised_excess(order: float, mu: float, kappa: float, q: float) -> float:
    """Return p a mu^2 / 2 - log(1 - 2 q a kappa) / (2 q a) for a Hölder exponent q > 1, infinite where undefined."""
    power, exponent = check_renyi_order(order) - 1, check_real("q", q)
    if exponent <= 1:
        raise ValueError(f"q must be above 1, got {exponent!r}")
    share = 2 * exponent * power * kappa
    if share >= 1:
        return math.inf
    return 0.5 * exponent / (exponent - 1) * power * mu * mu + kappa * log_series(share)


def best_exponent(order: float, mu: float, kappa: float) -> float:
    """The Hölder exponent q that makes :func:`linearised_excess` smallest; infinite at order 1, nan where none works.

    Both terms are convex in q on (1, 1 / (2 a kappa)). Where the derivative vanishes, 2 kappa (q - 1) sqrt(h(x)) is mu,
    with h the derivative of -log(1 - x) / x at x = 2 q a kappa; the left side grows with q, and h is at least 1/2.
    """
    power = check_renyi_order(order) - 1
    limit = 1 / (2 * power * kappa) if 2 * power * kappa > 0 else math.inf
    if limit <= 1:
        return math.nan
    if not math.isfinite(limit):
        return math.inf

    def slope(rest: float) -> float:
        share = (1 + rest) / limit
        return 2 * kappa * rest * math.sqrt(_log_series_slope(share)) - mu if share < 1 else math.inf

    high = min(limit - 1, mu / (math.sqrt(2) * kappa))
    while slope(high) == math.inf:  # a step back from the pole
        high *= 1 - 1e-9
    if slope(high) <= 0:
        return max(1 + high, NEXT_TO_ONE)
    return max(1 + float(brentq(slope, 0.0, high, xtol=1e-300, rtol=1e-10)), NEXT_TO_ONE)


def _log_series_slope(share: float) -> float:
    """Derivative of -log(1 - x) / x, at x in [0, 1)."""
    if share < 1e-3:
        return 0.5 + share * (2 / 3 + share * (3 / 4 + share * 4 / 5))
    return (share / (1 - share) + math.log1p(-share)) / (share * share)


@dataclass(frozen=True, slots=True)
class LinearisedCurve:
    """The corrected bound with the best Hölder exponent at each order, and the profile that follows from it.

    Parameters
    ----------
    mu, kappa : float
        Positive; see :mod:`~adaptive_dp.objective_perturbation.profiles`.
    determinant : {"sharp", "thesis"}
        c = log(1 + kappa), valid for every kappa (erratum 3), or -log(1 - kappa), for kappa below 1.
    """

    mu: float
    kappa: float
    determinant: str = "sharp"

    def __post_init__(self) -> None:
        check_positive("mu", self.mu)
        check_positive("kappa", self.kappa)
        if check_choice("determinant", self.determinant, DETERMINANTS) == "thesis":
            determinant_cost(self.kappa)

    @property
    def cost(self) -> float:
        """c, what the Jacobian may cost."""
        return math.log1p(self.kappa) if self.determinant == "sharp" else determinant_cost(self.kappa)

    def renyi(self, order: float) -> float:
        """Bound of the Rényi divergence of ``order`` >= 1; infinite from 2 (order - 1) kappa = 1 on."""
        fixed = self.cost + 0.5 * self.mu * self.mu
        q = best_exponent(order, self.mu, self.kappa)
        if math.isnan(q):
            return math.inf
        # Order 1 is the limit, with q growing more slowly than 1 / a.
        return fixed + (self.kappa if math.isinf(q) else linearised_excess(order, self.mu, self.kappa, q))

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at any real ``epsilon``, from the best order."""
        return RenyiDerivedCurve(self.renyi).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with ``self.delta(epsilon) <= delta`` in (0, 1), rounded up."""
        return RenyiDerivedCurve(self.renyi).epsilon(check_probability("delta", delta))


def linearised_comparison(cases: Sequence[tuple[float, float, float]] = CASES) -> pd.DataFrame:
    """Four Rényi bounds beside the Gaussian mechanism, as erratum 23 compares them.

    Returns
    -------
    DataFrame
        ``mu``, ``kappa``, ``order``; ``gaussian`` (no bound can be below it), ``reduced``
        (:meth:`ReducedCurve.renyi`), ``linearised`` (corrected, best ``q``), ``half_normal`` (Theorem 4.3.2, with
        log(1 + kappa) for its determinant term, so that only the rest differs), ``q``, and ``better``: whether the
        linearised bound is below the half-normal one.
    """
    rows = []
    for mu, kappa, order in cases:
        linearised = LinearisedCurve(mu, kappa).renyi(order)
        half_normal = math.log1p(kappa) + half_normal_renyi(order, mu)
        rows.append(
            {
                "mu": mu,
                "kappa": kappa,
                "order": order,
                "gaussian": 0.5 * order * mu * mu,
                "reduced": ReducedCurve(mu, kappa).renyi(order),
                "linearised": linearised,
                "half_normal": half_normal,
                "q": best_exponent(order, mu, kappa),
                "better": linearised < half_normal,
            }
        )
    return pd.DataFrame(rows)
