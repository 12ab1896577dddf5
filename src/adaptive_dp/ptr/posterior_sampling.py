"""One posterior sample of linear regression, and exactly what it costs each neighbour.

The mechanism (redberg2023, Example 3.5.5, for squared loss) publishes one draw

    theta ~ N(theta*, (gamma H)^-1),    H = X'X + lam I,    theta* = H^-1 X'Y,

the Gibbs posterior of exp(-gamma / 2 (|Y - X theta|^2 + lam |theta|^2)). Two data sets Z and Z + z that differ by the
record z = (x, y) give two Gaussians that differ along one direction only. With the leverage h = x'H^-1 x and the
residual r = y - x'theta*, both taken *without* z, that direction shows

    N(0, 1) without z   against   N(m, 1 / (1 + h)) with z,    m = sqrt(gamma h) r / (1 + h),

so that every hockey-stick divergence is a difference of normal probabilities at the two roots of a quadratic: no
bound, no integral (erratum 14, sharper result S4). Seen from the data set with z, m = sqrt(gamma h) r_with.

A data set enters through two numbers: its smallest eigenvalue and the norm of theta*. Neighbours add or remove one
record. What generalized PTR needs is *one-sided*: the output of the data at hand against that of a neighbour
(erratum 12); ``two_sided`` asks for both directions, as Definition 3.5.1 does.

Wang, "Revisiting differentially private linear regression", UAI 2018, has the bound that Theorem 3.6.1 quotes; the
bound as printed is false, see :mod:`adaptive_dp.ptr.flaws_regression`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr, ndtr, ndtri

from adaptive_dp.privacy import Domain
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

SAMPLED = ("without", "with")
# Points in h over which a supremum is searched before it is refined, and how far below the largest h they start. At
# smaller h both the mean and the change of scale are so small that the divergence is far below the largest.
# Close to it they are dense: there the residual of the family "rows" falls like a square root.
GRID = np.concatenate([np.logspace(-8, -0.2, 160), 1 - np.logspace(-0.5, -8, 80), [1.0]])
# A certificate of a supremum: how close its two bounds come, halvings at most, intervals open at a time at most.
RELATIVE = 1e-6
ROUNDS = 60
INTERVALS = 200_000


def posterior_delta(
    epsilon: ArrayLike, leverage: ArrayLike, mean: ArrayLike, *, sampled: str
) -> FloatArray | float:
    """Smallest delta of one posterior sample for one pair of neighbours, elementwise and exact.

    Parameters
    ----------
    epsilon : array_like
        Nonnegative.
    leverage : array_like
        h = x'H^-1 x for the set without the record, positive.
    mean : array_like
        m = sqrt(gamma h) r / (1 + h); only its size matters.
    sampled : {"without", "with"}
        Which of the two data sets is the one at hand: the first argument of the divergence.

    Returns
    -------
    float or ndarray
        In [0, 1], in the broadcast shape. Nondecreasing in ``|mean|``; in h only where that is small.

    Notes
    -----
    redberg2023, erratum 14. About 0.3 microseconds a pair.
    """
    check_choice("sampled", sampled, SAMPLED)
    e, h, m = np.broadcast_arrays(
        as_finite_array("epsilon", epsilon),
        as_finite_array("leverage", leverage),
        as_finite_array("mean", mean),
    )
    if e.size and e.min() < 0:
        raise ValueError(f"epsilon must be nonnegative, got {float(e.min())!r}")
    if h.size and h.min() <= 0:
        raise ValueError(f"leverage must be positive, got {float(h.min())!r}")
    delta = _delta(e, h, np.abs(m), sampled)
    return delta if delta.ndim else float(delta)


def _delta(e: FloatArray, h: FloatArray, m: FloatArray, sampled: str) -> FloatArray:
    """Do the work of :func:`posterior_delta` without checks; ``m`` nonnegative."""
    with np.errstate(over="ignore", under="ignore"):
        return _delta_without(e, h, m) if sampled == "without" else _delta_with(e, h, m)


def _delta_without(e: FloatArray, h: FloatArray, m: FloatArray) -> FloatArray:
    # log p / q > epsilon outside the roots of h/2 x^2 - a x + (1 + h) m^2 / 2 - log(1 + h) / 2 - epsilon.
    a, log_h, root_h = (1 + h) * m, np.log1p(h), np.sqrt(1 + h)
    root = np.sqrt(a * m + h * (log_h + 2 * e))  # a^2 / (1 + h) = a m
    high = (a + root) / h
    low = (a * m - log_h - 2 * e) / (a + root)  # (a - root) / h without the subtraction
    own = ndtr(low) + ndtr(-high)
    other = np.exp(e + log_ndtr((low - m) * root_h)) + np.exp(e + log_ndtr((m - high) * root_h))
    return np.asarray(np.clip(own - other, 0.0, 1.0))


def _delta_with(e: FloatArray, h: FloatArray, m: FloatArray) -> FloatArray:
    # Here log p / q > epsilon between the roots, if there are any.
    a, log_h, root_h = (1 + h) * m, np.log1p(h), np.sqrt(1 + h)
    square = a * m + h * (log_h - 2 * e)
    some = square > 0
    root = np.sqrt(np.where(some, square, 1.0))
    high = (a + root) / h
    low = np.where(a + root > 0, (a * m - log_h + 2 * e) / np.where(a + root > 0, a + root, 1.0), 0.0)
    own = ndtr((m - low) * root_h) - ndtr((m - high) * root_h)
    # In logarithms: each tail alone may be beyond the floats when multiplied by e^epsilon, their difference is not.
    upper, step = log_ndtr(-low), log_ndtr(-high) - log_ndtr(-low)
    other = np.exp(e + upper + np.log(-np.expm1(np.where(step < 0, step, -np.inf))))
    return np.where(some, np.clip(own - other, 0.0, 1.0), 0.0)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What the loss of a posterior sample depends on, and the public bounds beside it.

    Parameters
    ----------
    lam : float
        Ridge, positive.
    smallest_eigenvalue : float
        Of X'X, or a lower bound of it; nonnegative.
    residual_bound : float
        |Y| + |X| |theta*|, or an upper bound of it; positive.
    feature_bound : float
        |X|, largest l2 norm of a row.
    """

    lam: float
    smallest_eigenvalue: float
    residual_bound: float
    feature_bound: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", check_ordinary("lam", self.lam))
        object.__setattr__(self, "residual_bound", check_ordinary("residual_bound", self.residual_bound))
        object.__setattr__(self, "feature_bound", check_ordinary("feature_bound", self.feature_bound))
        if check_real("smallest_eigenvalue", self.smallest_eigenvalue) < 0:
            raise ValueError(f"smallest_eigenvalue must be nonnegative, got {self.smallest_eigenvalue!r}")

    @property
    def curvature(self) -> float:
        """lam* = lam + smallest eigenvalue."""
        return self.lam + self.smallest_eigenvalue

    @property
    def leverage_added(self) -> float:
        """Largest leverage of a record that may be added: |X|^2 / lam*."""
        return self.feature_bound**2 / self.curvature

    @property
    def leverage_removed(self) -> float:
        """Largest leverage, in the set without it, of a record that is removed: |X|^2 / max(lam, lam* - |X|^2)."""
        square = self.feature_bound**2
        return square / max(self.lam, self.curvature - square)


@dataclass(frozen=True, slots=True)
class Side:
    """One family of neighbour pairs: all leverages up to a largest one, with residuals as large as they can be.

    Parameters
    ----------
    sampled : {"without", "with"}
        Which data set is the one at hand.
    largest_leverage : float
    residual : float
        Largest residual, positive.
    residual_of : {"without", "with", "rows"}
        Fit that it belongs to. ``"rows"``: ``residual`` is |Y|, and the fit has any data of at most ``rows`` records
        behind it, so that the residual at leverage h is at most |Y| (1 + sqrt(rows h (1 - h / largest_leverage))).
    rows : int
        Only for ``"rows"``.
    """

    sampled: str
    largest_leverage: float
    residual: float
    residual_of: str
    rows: int = 0

    def means(self, gamma: float | FloatArray, leverage: FloatArray) -> FloatArray:
        """Largest |m| at each leverage."""
        return np.sqrt(gamma) * self.mean_at_one(leverage)

    def mean_at_one(self, leverage: FloatArray) -> FloatArray:
        """The same at gamma = 1."""
        root = np.sqrt(leverage) * self.residual
        if self.residual_of == "with":
            return root
        if self.residual_of == "rows":
            share = np.maximum(1 - leverage / self.largest_leverage, 0.0)
            root = root * (1 + np.sqrt(self.rows * leverage * share))
        return np.asarray(root / (1 + leverage))

    def delta(self, epsilon: float, gamma: float) -> float:
        """Largest exact delta over the family; the largest point of a grid in h is refined."""
        points = self.largest_leverage * GRID
        e = np.asarray(epsilon)

        def at(h: FloatArray) -> FloatArray:
            return _delta(e, h, self.means(gamma, h), self.sampled)

        values = at(points)
        return _refined_maximum(lambda h: float(at(np.asarray(h))), points, values)

    def means_above(self, gamma: float, low: FloatArray, high: FloatArray) -> FloatArray:
        """Mean at leverage ``high`` whose pair dominates all pairs of the family with leverages from low to high.

        *Proof.* Multiply by a and add Gaussian noise of variance 1 - a^2: N(0, 1) stays, and N(m, 1 / (1 + h)) becomes
        the pair of leverage h' with mean a m, where a^2 = h' (1 + h) / (h (1 + h')). By data processing (h, m)
        dominates (h', m') as soon as m >= m' / a, in both directions, and the profile grows with |m| (Anderson's
        inequality). A mean sqrt(gamma h') r / (1 + h') asks for sqrt(gamma h) r / sqrt((1 + h')(1 + h)); a residual of
        the fit *with* the record for sqrt(gamma h) r at most, the family's own mean: its largest leverage is worst.
        """
        root = np.sqrt(gamma * high) * self.residual
        if self.residual_of == "with":
            return np.asarray(root)
        if self.residual_of == "rows":
            peak = np.clip(0.5 * self.largest_leverage, low, high)
            share = np.maximum(1 - peak / self.largest_leverage, 0.0)
            root = root * (1 + np.sqrt(self.rows * peak * share))
        return np.asarray(root / np.sqrt((1 + low) * (1 + high)))

    def enclosure(self, epsilon: float, gamma: float) -> tuple[float, float]:
        """Certified bounds of the largest delta over the family: one attained, one above all of it.

        Intervals of leverages are halved until :meth:`means_above` closes the gap to ``RELATIVE``. Apart from the
        rounding of a single divergence, about 1e-16, nothing is taken on trust. A few milliseconds.
        """
        attained = self.delta(epsilon, gamma)
        target = max(attained * (1 + RELATIVE), attained + 1e-15)

        def bound(low: FloatArray, high: FloatArray) -> FloatArray:
            return _delta(np.asarray(epsilon), high, self.means_above(gamma, low, high), self.sampled)

        edges = np.concatenate([[0.0], self.largest_leverage * GRID])
        return attained, max(attained, bound_over_intervals(bound, edges, settled=target))


def bound_over_intervals(
    bound: Callable[[FloatArray, FloatArray], FloatArray], edges: FloatArray, *, settled: float
) -> float:
    """Upper bound of a function of the leverage between the first and the last of increasing ``edges``.

    ``bound(low, high)`` bounds it on intervals. Those whose bound exceeds ``settled`` are halved, ``ROUNDS`` times at
    most and while no more than ``INTERVALS`` of them are open; what stays open counts with the bound that it has.
    """
    low, high, above = edges[:-1], edges[1:], 0.0
    for _ in range(ROUNDS):
        bounds = bound(low, high)
        unsettled = bounds > settled
        above = max(above, float(bounds[~unsettled].max(initial=0.0)))
        low, high, bounds = low[unsettled], high[unsettled], bounds[unsettled]
        if not 0 < low.size <= INTERVALS:
            break
        middle = 0.5 * (low + high)
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    return max(above, float(bounds.max(initial=0.0)))


def _refined_maximum(function: Callable[[float], float], points: FloatArray, values: FloatArray) -> float:
    """Maximum over the range of ``points``, from the grid ``values`` and a search around their largest."""
    top = int(np.argmax(values))
    best = float(values[top])
    if best <= 0:
        return best
    low, high = math.log(points[max(top - 1, 0)]), math.log(points[min(top + 1, points.size - 1)])
    found = minimize_scalar(
        lambda log_h: -function(math.exp(log_h)),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return max(best, -float(found.fun))


@dataclass(frozen=True, slots=True)
class PosteriorCurve:
    """Exact privacy profile of one posterior sample, over all neighbours that some public bounds allow.

    A :class:`~adaptive_dp.privacy.PrivacyCurve`. Made by :func:`data_dependent_curve` (what Definition 3.5.1 calls
    the data-dependent loss: private, not a guarantee) and :func:`data_independent_curve`.
    """

    gamma: float
    sides: tuple[Side, ...]

    def delta(self, epsilon: float) -> float:
        """Smallest delta for ``epsilon`` >= 0: the largest over the sides; about 1 ms a side."""
        e = check_real("epsilon", epsilon)
        if e < 0:
            raise ValueError(f"epsilon must be nonnegative, got {e!r}")
        return max(side.delta(e, self.gamma) for side in self.sides)

    def enclosure(self, epsilon: float) -> tuple[float, float]:
        """Certified lower and upper bound of :meth:`delta`, see :meth:`Side.enclosure`; a few ms a side."""
        e = check_real("epsilon", epsilon)
        if e < 0:
            raise ValueError(f"epsilon must be nonnegative, got {e!r}")
        both = [side.enclosure(e, self.gamma) for side in self.sides]
        return max(low for low, _ in both), max(high for _, high in both)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 for ``delta`` in (0, 1), rounded up by 1e-9 of itself."""
        level = check_probability("delta", delta)
        if self.delta(0.0) <= level:
            return 0.0
        high = 1.0
        while self.delta(high) > level:
            high *= 2
        return float(brentq(lambda e: self.delta(e) - level, 0.0, high, xtol=1e-12, rtol=1e-12)) * (1 + 1e-9)


def data_dependent_sides(statistics: Statistics, *, two_sided: bool = False) -> tuple[Side, ...]:
    """The families of neighbours of a data set with these statistics: one added, one removed.

    One-sided by default: the data at hand is sampled. ``two_sided`` adds the two in which the neighbour is.
    """
    added, removed, r = statistics.leverage_added, statistics.leverage_removed, statistics.residual_bound
    own = (Side("without", added, r, "without"), Side("with", removed, r, "with"))
    reverse = (Side("with", added, r, "without"), Side("without", removed, r, "with"))
    return own + reverse if two_sided else own


def data_dependent_curve(statistics: Statistics, *, gamma: float, two_sided: bool = False) -> PosteriorCurve:
    """Exact data-dependent profile of one posterior sample (errata 12 and 14, S4), every add/remove neighbour.

    |r| is at most |Y| + |X| |theta*| and the leverage at most that of ``statistics``; the profile is the largest over
    all of these. For additions it is attained where theta* lies along the smallest eigenvector.
    """
    return PosteriorCurve(
        check_ordinary("gamma", gamma), data_dependent_sides(statistics, two_sided=two_sided)
    )


def data_independent_sides(domain: Domain, *, lam: float, largest_rows: int) -> tuple[Side, ...]:
    """All neighbour pairs of data sets of at most ``largest_rows`` records, in both directions.

    |theta*| cannot be bounded without a bound on n. Over all data without the record the residual at leverage h is at
    most |Y| (1 + sqrt(n h (1 - lam h / |X|^2))), since x'theta* is at most |Y| sqrt(n) |X H^-1 x| and
    |X H^-1 x|^2 = h - lam |H^-1 x|^2 <= h - lam h^2 / |X|^2.
    """
    x, y = check_bounds(domain)
    h = x * x / check_ordinary("lam", lam)
    # The larger of the two has at most largest_rows records, the set without the record one less.
    n = check_count("largest_rows", largest_rows) - 1
    return Side("without", h, y, "rows", n), Side("with", h, y, "rows", n)


def data_independent_curve(domain: Domain, *, lam: float, gamma: float, largest_rows: int) -> PosteriorCurve:
    """Privacy profile of one posterior sample with fixed lam and gamma: an ordinary, ex-ante guarantee.

    Neighbours add or remove one record, both sets having at most ``largest_rows``, a public bound.
    """
    sides = data_independent_sides(domain, lam=lam, largest_rows=largest_rows)
    return PosteriorCurve(check_ordinary("gamma", gamma), sides)


def check_bounds(domain: Domain) -> tuple[float, float]:
    """|X| and |Y| of a domain, which must bound rows in l2 and have real (or sign) labels."""
    if not isinstance(domain, Domain):
        raise TypeError(f"domain must be a Domain, got {type(domain).__name__}")
    if domain.norm == "linf":
        raise ValueError("domain must bound rows in the l2 (or l1) norm, got 'linf'")
    if domain.labels == "class":
        raise ValueError("domain must have real labels, got classes")
    return domain.feature_bound, domain.label_bound  # |x|_2 <= |x|_1


# --- closed forms -------------------------------------------------------------------------------------


def epsilon_added(statistics: Statistics, *, gamma: float, delta: float, two_sided: bool = False) -> float:
    """Closed-form epsilon for every record that may be added (erratum 14 (i), with the normal quantile q).

    sqrt(gamma h) R q + gamma R^2 h / (2 (1 + h)) + h q^2 / 2 with h = |X|^2 / lam*, R the residual bound and
    q = Phi^-1(1 - delta / 2), which sqrt(2 log(2 / delta)) bounds. ``two_sided``: the larger of this and the bound
    for the neighbour's sample, log(1 + h) / 2 + gamma R^2 v / 2 + sqrt(gamma) R q' w, with q' at 1 - delta and v, w
    the largest h / (1 + h)^2 and sqrt(h) / (1 + h)^(3/2) up to h.
    """
    g, level = check_ordinary("gamma", gamma), check_probability("delta", delta)
    h, r = statistics.leverage_added, statistics.residual_bound
    q = -float(ndtri(level / 2))
    own = math.sqrt(g * h) * r * q + g * r * r * h / (2 * (1 + h)) + h * q * q / 2
    if not two_sided:
        return float(own)
    v, w, single = min(h, 1.0), min(h, 0.5), max(-float(ndtri(level)), 0.0)
    slope = math.sqrt(g * w) * r * single / (1 + w) ** 1.5
    other = 0.5 * math.log1p(h) + g * r * r * v / (2 * (1 + v) ** 2) + slope
    return float(max(own, other))


def epsilon_removed(statistics: Statistics, *, gamma: float, delta: float, two_sided: bool = False) -> float:
    """Closed-form epsilon for every record that may be removed (erratum 14 (ii), with the normal quantile q).

    sqrt(gamma / lam*) |X| R q + gamma R^2 k / 2 + log(1 + k) / 2 with k = |X|^2 / max(lam, lam* - |X|^2) and
    q = Phi^-1(1 - delta). ``two_sided``: the larger of this and the bound for the neighbour's sample,
    sqrt(gamma k) (1 + k) R q' + gamma R^2 k (1 + k) / 2 + k q'^2 / 2 with q' at 1 - delta / 2.
    """
    g, level = check_ordinary("gamma", gamma), check_probability("delta", delta)
    k, r = statistics.leverage_removed, statistics.residual_bound
    q = max(-float(ndtri(level)), 0.0)
    own = math.sqrt(g * statistics.leverage_added) * r * q + g * r * r * k / 2 + 0.5 * math.log1p(k)
    if not two_sided:
        return float(own)
    double = -float(ndtri(level / 2))
    other = math.sqrt(g * k) * (1 + k) * r * double + g * r * r * k * (1 + k) / 2 + k * double * double / 2
    return float(max(own, other))


def closed_form_gamma(statistics: Statistics, *, epsilon: float, delta: float) -> float:
    """Largest gamma that the one-sided closed forms allow; 0 where they allow none."""
    e, level = check_positive("epsilon", epsilon), check_probability("delta", delta)
    h, k, r = statistics.leverage_added, statistics.leverage_removed, statistics.residual_bound
    double, single = -float(ndtri(level / 2)), max(-float(ndtri(level)), 0.0)
    roots = (
        _positive_root(h / (1 + h), math.sqrt(h) * double, e - h * double * double / 2),
        _positive_root(k, math.sqrt(h) * single, e - 0.5 * math.log1p(k)),
    )
    return (min(roots) / r) ** 2


def _positive_root(square: float, linear: float, constant: float) -> float:
    """Largest t >= 0 with square t^2 / 2 + linear t <= constant; 0 where there is none."""
    if constant <= 0:
        return 0.0
    return 2 * constant / (linear + math.sqrt(linear * linear + 2 * square * constant)) * (1 - 1e-12)
