"""The whole privacy profile of OPS-PTR, and plans that spend a budget by it.

Basic composition charges the two releases and the posterior sample epsilon^ + epsilon. Their losses add as random
variables, and a sum of two independent ones is seldom as large as both at their worst. With L ~ N(mu^2 / 2, mu^2) the
loss of the releases taken together, and D(u) the largest profile of a sample whose gamma met its budget,

    delta(t) <= delta'_1 + delta'_2 + E D(t - L)                                     (for any t >= 0).

*Proof.* Outside the failures (see :mod:`adaptive_dp.ptr.ops_ptr`), condition on the releases s: the hockey-stick
divergence of the pair (s, theta) at t is the mean over s of that of theta at t - loss(s), at most D(t - loss(s)). D is
convex in e^u, hence the profile of some pair of laws, so that the releases may be replaced by the Gaussian pair that
dominates them. For u < 0, D(u) <= 1 - e^u (1 - D(0)), the chord of a convex function.

Private selection uses a run's profile at two places (erratum 13); this curve gives it more than one pair would.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.privacy import Domain, PrivacyCurve
from adaptive_dp.ptr.ops_ptr import OpsPlan, ops_guarantee
from adaptive_dp.ptr.posterior_calibration import check_budget, posterior_calibration
from adaptive_dp.ptr.posterior_sampling import bound_over_intervals, check_bounds, posterior_delta
from adaptive_dp.ptr.selection_bounds import SelectionCurve, check_tau
from adaptive_dp.validation import FloatArray, check_ordinary, check_probability, check_real

# Upper sums over the loss of the releases, in standard deviations; beyond 10 lies a probability of 1e-23.
CELLS = np.linspace(-10.0, 10.0, 2001)
MASS = np.diff(np.where(CELLS <= 0, ndtr(CELLS), 0.0)) + np.diff(np.where(CELLS > 0, -ndtr(-CELLS), 0.0))
MASS[CELLS[:-1] == 0] = ndtr(CELLS[1001]) - 0.5
BEYOND = float(ndtr(-10.0))
# Points of D in units of the sample's epsilon; places in h of its supremum, and what is added for those in between.
LEVELS = np.linspace(0.0, 2.5, 251)
PLACES = np.concatenate([np.logspace(-5, -0.5, 30), 1 - np.logspace(-0.2, -6, 40), [1.0]])
# With both, SampleProfile.certified proves the profile to be an upper bound, at every level that was tried.
SLACK_OF_GRID = 1e-3
FLOOR = 1e-30
# Where a certificate begins: the least leverage as a share of the largest.
SMALLEST = 1e-40


@dataclass(frozen=True, slots=True)
class SampleProfile:
    """D(u): the largest profile of a posterior sample with gamma calibrated to (epsilon, delta), at every level.

    A supremum over the leverages that are not refused, the mean at each being the largest that the budget allows.

    Parameters
    ----------
    epsilon, delta : float
        Budget that gamma is calibrated to.
    share : float
        Largest leverage of an added record that is not refused, as a share of the largest that the budget admits. At
        the last leverages before that the loss has a long tail, for a gamma that is of no use.
    """

    epsilon: float
    delta: float
    share: float = 1.0
    cap: float = field(init=False, compare=False)
    points: FloatArray = field(init=False, compare=False, repr=False)
    values: FloatArray = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        calibration = posterior_calibration(self.epsilon, self.delta)
        levels = LEVELS * self.epsilon
        values = np.zeros(levels.size)
        object.__setattr__(self, "cap", self.share * calibration.largest_leverage("without"))
        for sampled in ("without", "with"):
            h, mean = calibration.extreme_means(sampled, self.largest(sampled) * PLACES)
            found = posterior_delta(levels[:, np.newaxis], h, mean, sampled=sampled)
            values = np.maximum(values, np.asarray(found).max(axis=1))
        object.__setattr__(self, "points", np.exp(levels))
        object.__setattr__(self, "values", np.minimum(values * (1 + SLACK_OF_GRID) + FLOOR, 1.0))

    def largest(self, sampled: str) -> float:
        """Largest leverage, in the set without the record, that is not refused."""
        # A removed record has at most the leverage h / (1 - h), if h is the largest of an added one.
        limit = self.cap
        top = limit if sampled == "without" else (limit / (1 - limit) if limit < 1 else math.inf)
        return min(top, posterior_calibration(self.epsilon, self.delta).largest_leverage(sampled))

    def certified(self, level: float) -> float:
        """Certified upper bound of the supremum at a level: what ``at`` is compared with in the tests.

        Intervals of leverages, each dominated by a pair at its upper end
        (:meth:`adaptive_dp.ptr.posterior_sampling.Side.means_above`), halved until ``at`` is above all of them. At
        leverages up to H = ``SMALLEST`` of the largest a pair differs from a Gaussian one by less than e^u H. Well
        below 0.1 s, unless the level is next to epsilon, where every leverage comes close to the supremum.
        """
        if check_real("level", level) < 0:
            raise ValueError(f"level must be nonnegative, got {level!r}")
        return max(self._certified(level, sampled) for sampled in ("without", "with"))

    def _certified(self, level: float, sampled: str) -> float:
        top, claimed = self.largest(sampled), float(self.at(np.array([level]))[0])
        edges = top * np.unique(np.concatenate([np.logspace(math.log10(SMALLEST), -3, 600), PLACES]))
        calibration = posterior_calibration(self.epsilon, self.delta)

        def bound(low: FloatArray, high: FloatArray) -> FloatArray:
            # The largest mean at the lower end, moved to the upper one: gamma falls as the largest leverage grows.
            means = calibration.extreme_means(sampled, low)[1] * np.sqrt(high / low)
            if sampled == "without":
                means *= np.sqrt((1 + low) / (1 + high))
            return np.asarray(posterior_delta(level, high, means, sampled=sampled))

        near = self._near_gaussian(level, SMALLEST * top)
        return max(near, bound_over_intervals(bound, edges, settled=claimed))

    def _near_gaussian(self, level: float, leverage: float) -> float:
        mean = 1 / gaussian_sigma(self.epsilon, self.delta + math.exp(self.epsilon) * leverage, 1.0)
        return GaussianCurve(mean).delta(level) + math.exp(level) * leverage

    def at(self, level: FloatArray) -> FloatArray:
        """D at any real levels, from above: chords in e^u."""
        x = np.exp(np.minimum(level, 700.0))
        chord = 1 - x * (1 - self.values[0])
        return np.where(level < 0, chord, np.interp(x, self.points, self.values))


@functools.lru_cache(maxsize=64)
def sample_profile(epsilon: float, delta: float, share: float = 1.0) -> SampleProfile:
    """Return the :class:`SampleProfile` of a budget, made once: about 60 ms."""
    if not 0 < check_real("share", share) <= 1:
        raise ValueError(f"share must lie in (0, 1], got {share!r}")
    return SampleProfile(*check_budget(epsilon, delta), float(share))


@dataclass(frozen=True, slots=True)
class OpsCurve:
    """Proved privacy profile of one run of OPS-PTR; a :class:`~adaptive_dp.privacy.PrivacyCurve`.

    Parameters
    ----------
    mu : float
        Of the two releases together.
    failure : float
        delta'_1 + delta'_2.
    epsilon_sample, delta_sample : float
        Budget that gamma is calibrated to.
    share : float
        See :class:`SampleProfile`.
    """

    mu: float
    failure: float
    epsilon_sample: float
    delta_sample: float
    share: float = 1.0

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at ``epsilon`` >= 0; about 0.1 ms."""
        e = check_real("epsilon", epsilon)
        if e < 0:
            raise ValueError(f"epsilon must be nonnegative, got {e!r}")
        profile = sample_profile(self.epsilon_sample, self.delta_sample, self.share)
        # D falls with its argument: the right end of each cell of the loss is the worst.
        worst = profile.at(e - self.mu * (0.5 * self.mu + CELLS[1:]))
        return min(self.failure + float(MASS @ worst) + 2 * BEYOND, 1.0)

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta`` in [0, 1]; infinite below what failures alone cost."""
        level = check_real("delta", delta)
        if not 0 <= level <= 1:
            raise ValueError(f"delta must lie in [0, 1], got {level!r}")
        high = 2.5 * self.epsilon_sample + self.mu * (0.5 * self.mu + 10.0)
        if self.delta(high) > level:
            return math.inf
        if self.delta(0.0) <= level:
            return 0.0
        root = float(brentq(lambda e: self.delta(e) - level, 0.0, high, xtol=1e-12))
        return root + 1e-9 * (1 + root)


def plan_by_curve(
    domain: Domain,
    *,
    epsilon: float,
    delta: float,
    tau: float | None = None,
    test_share: float = 0.3,
    eigenvalue_share: float = 0.5,
    failure: float = 0.5,
    leverage_share: float = 0.3,
) -> OpsPlan:
    """Plan of OPS-PTR that spends a budget by the curve, for one run or for a private selection among many.

    Parameters
    ----------
    domain : Domain
    epsilon, delta : float
        Total: of one run, or of the whole selection.
    tau : float, optional
        Chance that a round of :func:`adaptive_dp.ptr.selection.private_selection` is the last. None: a single run.
    test_share : float
        Share of the squared mu that goes to the two releases (the sample's mu is that of a Gaussian mechanism with its
        budget).
    eigenvalue_share : float
        Share of that which goes to the eigenvalue.
    failure : float
        Share of a run's delta for the two bounds failing.
    leverage_share : float
        Proposals are refused whose largest leverage exceeds this share of what the budget admits.

    Returns
    -------
    OpsPlan
        Its guarantee is of one run and carries the :class:`OpsCurve`. About 0.4 s; kept.
    """
    check_bounds(domain)
    budget = (check_ordinary("epsilon", epsilon), check_probability("delta", delta))
    shares = tuple(
        check_probability(name, share)
        for name, share in (
            ("test_share", test_share),
            ("eigenvalue_share", eigenvalue_share),
            ("failure", failure),
            ("leverage_share", leverage_share),
        )
    )
    return _plan(domain, *budget, None if tau is None else check_tau(tau), *shares)


@functools.lru_cache(maxsize=64)
def _plan(
    domain: Domain,
    epsilon: float,
    delta: float,
    tau: float | None,
    test_share: float,
    eigenvalue_share: float,
    failure: float,
    leverage_share: float,
) -> OpsPlan:
    one_delta = delta if tau is None else delta * tau * (1 - 1e-9)
    sample_delta = 0.1 * (1 - failure) * one_delta

    def curve_at(sample: float) -> OpsCurve:
        own = 1 / gaussian_sigma(sample, sample_delta, 1.0)
        mu = own * math.sqrt(test_share / (1 - test_share))
        return OpsCurve(mu, failure * one_delta, sample, sample_delta, leverage_share)

    def spent(sample: float) -> float:
        curve: PrivacyCurve = curve_at(sample)
        if tau is not None:
            curve = SelectionCurve(curve, tau)
        return curve.epsilon(delta)

    # What is spent grows almost linearly with the sample's budget: three steps come within a percent.
    low = epsilon / 4
    for _ in range(3):
        low *= epsilon / spent(low)
    while spent(low) > epsilon:
        low *= 0.998
    curve = curve_at(low)
    guarantee = ops_guarantee(domain, curve.epsilon(one_delta), one_delta, curve=curve)
    first = curve.mu * math.sqrt(eigenvalue_share)
    second = curve.mu * math.sqrt(1 - eigenvalue_share)
    fails = curve.failure / 2
    cap = sample_profile(low, sample_delta, leverage_share).cap
    return OpsPlan(first, second, fails, fails, low, sample_delta, "exact", guarantee, cap)
