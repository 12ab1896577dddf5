"""Gaussian noise on separators: what is proved, what Algorithm 3 prints, and where that is false.

The argument of neel2019 (Algorithm 3 and Theorem 2) moves each weight by plus or minus k = 2 (1 + a), so that the noise
moves by k sqrt(m) in a direction that depends on w, and removes one bad set for all w (erratum 0). Three bounds hold
instead, and :class:`SeparatorCurve` takes the smallest. One of them is new here: as every coordinate moves by the same
amount, the separators can be charged one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_ndtr

from adaptive_dp.accounting import smallest_feasible
from adaptive_dp.objective_perturbation.composition import ComposedCurve, Perturbation
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP, LEAST, ProvedGaussianCurve, closed_ratio
from adaptive_dp.per_instance.calibration import log_excess
from adaptive_dp.validation import check_count, check_ordinary, check_probability, check_real

# The half-normal pair of objective perturbation with a determinant that costs nothing: -log(1 - kappa) is added to each
# of the m losses, below every digit that matters, and on the safe side.
NO_CURVATURE = 1e-15


def separator_step(gap: float = GAP) -> float:
    """By how much the weight of a separator moves, k = 2 (1 + a), where oracles have an additive gap below a.

    Neighbours replace one record with losses in [0, 1]; see :mod:`~adaptive_dp.oracle_perturbation.rspm` for the proof.
    """
    allowed = check_real("gap", gap)
    if not 0 <= allowed <= 1e100:
        raise ValueError(f"gap must lie between 0 and 1e100, got {allowed!r}")
    return 2.0 * (1.0 + allowed)


@dataclass(frozen=True, slots=True)
class SeparatorCurve:
    """Bound of the privacy profile of RSPM with Gaussian noise: the smallest of three.

    With mu = k / sigma, Z standard normal in R^m and ||.||_1 the sum of the absolute values,

        delta(epsilon) <= E (1 - exp(epsilon - mu ||Z||_1 - m mu^2 / 2))_+ .

    *Proof.* As for :class:`~adaptive_dp.oracle_perturbation.discrete_privacy.ProvedGaussianCurve`, with the shift
    u(w) = k (1 - 2 e(w)), whose entries are +-k: p(eta + u) / p(eta) = exp(-(2 <eta, u> + |u|^2) / (2 sigma^2)) and
    <eta, u> <= k ||eta||_1. The bound is the profile of m independent losses mu^2 / 2 + mu |Z_j|: the composition
    of m half-normal pairs of the previous page, which is computed there. It is at most the bound with
    sqrt(m) ||Z||_2 in place of ||Z||_1, and far below it for large m: E ||Z||_1 = sqrt(2 / pi) m. The other two bounds,
    that one and |W| times the Gaussian profile, are those of ``ProvedGaussianCurve``.

    Parameters
    ----------
    mu : float
        k / sigma, positive.
    separators : int
        m.
    members : int or None
        |W|; None leaves the bound that grows with it out.
    """

    mu: float
    separators: int
    members: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_ordinary("mu", self.mu))
        object.__setattr__(self, "separators", check_count("separators", self.separators))
        if self.members is not None:
            object.__setattr__(self, "members", check_count("members", self.members))

    @property
    def euclidean(self) -> ProvedGaussianCurve:
        """The two bounds that know the length k sqrt(m) of the shift only."""
        return ProvedGaussianCurve(math.sqrt(self.separators) * self.mu, self.separators, self.members)

    @property
    def one_by_one(self) -> ComposedCurve:
        """The bound that adds m half-normal losses."""
        return ComposedCurve((Perturbation(self.mu, NO_CURVATURE, self.separators, "half-normal"),))

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at any real ``epsilon``; at least ``LEAST``, as Gaussian noise is never pure."""
        return max(min(self.euclidean.delta(epsilon), self.one_by_one.delta(epsilon)), LEAST)

    def epsilon(self, delta: float) -> float:
        """Bound of the smallest epsilon >= 0 at ``delta`` in [0, 1]."""
        return min(self.euclidean.epsilon(delta), self.one_by_one.epsilon(delta))


def printed_separator_sigma(separators: int, *, epsilon: float, delta: float) -> float:
    """Scale of neel2019, Algorithm 3: 7 sqrt(m ln(1 / delta)) / epsilon.

    Twice what the paper's own Lemma 5 asks for at a shift of 2 sqrt(m): that slack makes it true for the m of the
    experiments (erratum 10). Read its delta off ``SeparatorCurve(k / sigma, m)``.
    """
    m = check_count("separators", separators)
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return 7 * math.sqrt(m * -math.log(tail)) / level


def smallest_separator_sigma(
    separators: int, *, epsilon: float, delta: float, members: int | None = None, gap: float = GAP
) -> float:
    """Smallest scale for which RSPM with Gaussian noise is proved to be (epsilon, delta)-private, on the safe side.

    Parameters
    ----------
    separators : int
        m.
    epsilon, delta : float
        Positive; delta in (0, 1).
    members : int or None
        |W|, if it is to be used.
    gap : float
        Additive gap a of the oracle.

    Returns
    -------
    float
        To about seven digits.
    """
    m, step = check_count("separators", separators), separator_step(gap)
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)

    def excess(sigma: float) -> float:
        return log_excess(SeparatorCurve(step / sigma, m, members).delta(level), tail)

    high = step * math.sqrt(m) * closed_ratio(epsilon=level, delta=tail, coordinates=m) * (1 + 1e-12)
    return smallest_feasible(excess, 1e-3 * high, high, rtol=1e-7)


def largest_proved_count(*, epsilon: float, delta: float, bound: str = "separators") -> int:
    """Largest m at which Algorithm 3's scale is proved, without a gap and for every W; 0 if there is none.

    Parameters
    ----------
    epsilon, delta : float
        The claim of Algorithm 3.
    bound : {"separators", "length"}
        The bound that charges the separators one by one, or the one that knows the length of the shift only.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)

    def proved(m: int) -> bool:
        mu = separator_step(0.0) / printed_separator_sigma(m, epsilon=level, delta=tail)
        curve = SeparatorCurve(mu, m)
        return (curve.one_by_one if bound == "separators" else curve.euclidean).delta(level) <= tail

    if bound not in ("separators", "length"):
        raise ValueError(f"bound must be 'separators' or 'length', got {bound!r}")
    low, high = 0, 1
    while proved(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if proved(middle) else (low, middle)
    return low


# --- a counterexample with an exact law ---------------------------------------------------------------


def odd_probabilities(separators: int, sigma: float) -> tuple[float, float]:
    """P(an odd number of ones) on D and on D', for W = {0, 1}^m, e_j(w) = w_j and parity losses, exactly.

    All losses are 0 but one: on D it is 1 where w has an odd number of ones, on D' where it has an even number. The
    minimiser has w_j = 1 where eta_j < 0, except that the entry with the smallest |eta_j| is turned if the number of
    ones is the wrong one and that |eta_j| is below 1. So P_D(odd) = P(min_j |eta_j| > 1) / 2 = 1 - P_D'(odd).

    Parameters
    ----------
    separators : int
        m.
    sigma : float
        Scale of the Gaussian noise.
    """
    m, scale = check_count("separators", separators), check_ordinary("sigma", sigma)
    odd = 0.5 * math.exp(m * (math.log(2.0) + float(log_ndtr(-1.0 / scale))))
    return odd, 1.0 - odd


def odd_delta(separators: int, sigma: float, epsilon: float) -> float:
    """P_D'(odd) - e^epsilon P_D(odd), at least 0, of :func:`odd_probabilities`: what delta must exceed."""
    on_d, on_other = odd_probabilities(separators, sigma)
    return max(on_other - times_exp(on_d, epsilon), 0.0)


def times_exp(probability: float, epsilon: float) -> float:
    """``probability`` times e^epsilon for any real ``epsilon``; infinite where that is beyond the floats."""
    level = check_real("epsilon", epsilon)
    if probability == 0 or level < 700:
        return probability * math.exp(min(level, 700.0))
    power = level + math.log(probability)
    return math.exp(power) if power < 709 else math.inf


def smallest_refuted_count(
    *, delta: float, epsilons: tuple[float, ...] = tuple(np.geomspace(0.01, 1.0, 41))
) -> int:
    """Smallest m for which the parity losses refute Algorithm 3's scale at some of ``epsilons``.

    Parameters
    ----------
    delta : float
        The claim of Algorithm 3.
    epsilons : tuple of float
        Levels that are tried, the noise being that of the level.
    """
    tail = check_probability("delta", delta)

    def refuted(m: int) -> bool:
        return any(
            odd_delta(m, printed_separator_sigma(m, epsilon=level, delta=tail), level) > tail
            for level in epsilons
        )

    high = 1
    while not refuted(high):
        high *= 2
        if high > 10**7:
            raise ValueError(f"delta = {tail!r} is not refuted by parity losses")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high
