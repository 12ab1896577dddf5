r"""From the mean distance of two answers to a bound for averages of m: Lemmas 9 and 10 of neel2019, repaired.

**As printed** Lemma 9 says that the average of m = ln(2 d / delta) / (2 gamma^2) answers is within 2 D gamma of its
mean in l1, except with probability delta / 2. Each coordinate is within D gamma of its mean; there are d of them, so
that the sum is d D gamma. The lemma is false from d = 3 on (:func:`segment_failure`, an exact binomial probability
inside OPSamp).

**By Hoeffding's inequality, corrected.** One coordinate is more than D gamma from its mean with probability at most
2 exp(-2 m gamma^2), so that with m >= ln(4 d / delta) / (2 gamma^2) all of them are within it except with probability
delta / 2, and |average - mean|_1 <= d D gamma. With delta / 2 for either data set, the two averages are within
2 d D gamma + s, where s bounds the distance of the means.

**By Bernstein's inequality, better.** The mechanism draws the same noise vectors on both data sets: one may look at the
numbers X_k = |w_k - w'_k|_1 directly. They lie in [0, M], M = d D, and E[X_k | sigma^1 ... sigma^{k-1}] <= s by the
stability lemma. With L = ln(1 / delta), except with probability delta,

    |average - average'|_1 <= (1/m) sum_k X_k <= lambda = s + sqrt(2 M s L / m) + M L / (3 m).

*Proof.* e^x <= 1 + x + x^2 / (2 (1 - x / 3)) for 0 <= x < 3, as q! >= 2 3^{q-2} for q >= 2. With X_k^2 <= M X_k and
0 <= t < 3 / M, ln E[e^{t X_k} | past] <= t s + t^2 M s / (2 (1 - t M / 3)). Multiply over k (the answers may depend
on earlier noise, so that nothing but this conditional bound is used) and apply Markov's inequality: ln P(sum X_k >=
m s + u) <= m M s t^2 / (2 (1 - t M / 3)) - t u. The choice t = r / (1 + r M / 3) with r = sqrt(2 L / (m M s)) makes
the right side -L at u = sqrt(2 m M s L) + M L / 3. Divide by m.

m = 2 M L / s makes lambda = (1 + 1 + 1/6) s = 13 s / 6: the price of delta is one constant.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from adaptive_dp.validation import check_count, check_ordinary, check_positive, check_probability


def printed_calls(gamma: float, dimension: int, delta: float) -> int:
    """Return m of Algorithm 2 and Lemma 9 as printed, ln(2 d / delta) / (2 gamma^2), rounded up."""
    return _hoeffding_count(
        gamma, 2 * check_count("dimension", dimension) / check_probability("delta", delta)
    )


def hoeffding_calls(gamma: float, dimension: int, failure: float) -> int:
    """Return m for which |average - mean|_1 <= d D gamma, except with probability ``failure``.

    It is ln(2 d / failure) / (2 gamma^2), rounded up. For one data set of a pair, ``failure`` is delta / 2.
    """
    failed = check_probability("failure", failure)
    return _hoeffding_count(gamma, 2 * check_count("dimension", dimension) / failed)


def _hoeffding_count(gamma: float, odds: float) -> int:
    return _whole("gamma", math.log(odds) / (2 * check_ordinary("gamma", gamma) ** 2))


def _whole(name: str, calls: float) -> int:
    """The number of calls, rounded up; refused where it would never end."""
    if not calls <= 1e15:
        raise ValueError(f"{name} asks for {calls:.3g} calls of the oracle")
    return max(1, math.ceil(calls))


def hoeffding_sensitivity(*, stability: float, gamma: float, dimension: int, diameter: float) -> float:
    """Return lambda = s + 2 d D gamma, with m from :func:`hoeffding_calls` at delta / 2 (Lemma 10, corrected)."""
    spread = 2 * check_count("dimension", dimension) * check_ordinary("diameter", diameter)
    return check_positive("stability", stability) + spread * check_ordinary("gamma", gamma)


def bernstein_average(*, mean: float, largest: float, calls: int, failure: float) -> float:
    """Bound the average of m numbers in [0, M] whose conditional means are at most ``mean``.

    Parameters
    ----------
    mean : float
        s, positive.
    largest : float
        M.
    calls : int
        m.
    failure : float in (0, 1)
        Probability that the average is larger than the answer.

    Returns
    -------
    float
        s + sqrt(2 M s L / m) + M L / (3 m), L = ln(1 / failure), and at most M. Proof in the module's docstring.
    """
    s, top = check_positive("mean", mean), check_ordinary("largest", largest)
    unit = top * -math.log(check_probability("failure", failure)) / check_count("calls", calls)
    return min(top, s + math.sqrt(2 * unit * s) + unit / 3)


def bernstein_calls(*, mean: float, largest: float, failure: float, oversampling: float = 2.0) -> int:
    """Return m = r M L / s, rounded up: the bound is then (1 + sqrt(2 / r) + 1 / (3 r)) s at most (r = 2: 13 s / 6)."""
    s, top = check_ordinary("mean", mean), check_ordinary("largest", largest)
    odds = -math.log(check_probability("failure", failure))
    return _whole("oversampling", check_ordinary("oversampling", oversampling) * top * odds / s)


def average_failure(*, mean: float, largest: float, calls: int, bound: float) -> float:
    """P(average > bound) exactly, for m independent numbers that are M with probability s / M and 0 otherwise.

    The extreme law for the exponential moments of a number in [0, M] with mean s (Hoeffding 1963).
    """
    s, top = check_positive("mean", mean), check_ordinary("largest", largest)
    if s > top:
        raise ValueError(f"mean must be at most largest = {top:.6g}, got {s:.6g}")
    m = check_count("calls", calls)
    # A bound that is a whole number of M / m must not be pushed below it by rounding.
    most = math.floor(m * check_positive("bound", bound) / top * (1 + 1e-12))
    return float(stats.binom.sf(most, m, s / top))


def segment_failure(*, calls: int, dimension: int, radius: float) -> float:
    """P(|average - mean|_1 > radius D) exactly, for answers 0 or (D, ..., D) with probability 1/2 each.

    OPSamp gives such answers for W = {t (1, ..., 1): 0 <= t <= D} and the loss L(w) = c sum_j w_j, where c is the
    median of sum_j sigma_j / d. Then |average - mean|_1 = d D |B / m - 1/2| with B binomial.

    Parameters
    ----------
    calls : int
        m.
    dimension : int
        d.
    radius : float
        In units of D: 2 gamma in Lemma 9 as printed, d gamma where it is right.
    """
    m, d = check_count("calls", calls), check_count("dimension", dimension)
    reach = m * check_ordinary("radius", radius) / d
    return float(min(1.0, 2 * stats.binom.cdf(math.ceil(m / 2 - reach) - 1, m, 0.5)))


def simulated_segment_failure(
    *, calls: int, dimension: int, radius: float, eta: float, runs: int, rng: np.random.Generator
) -> float:
    """Share of ``runs`` in which the same average is further from its mean than the radius: with the oracle itself.

    Sums of d exponentials decide the answers; nothing is assumed about their law but the median that sets the loss.
    """
    m, d = check_count("calls", calls), check_count("dimension", dimension)
    cut = float(stats.gamma(d).median()) / check_ordinary("eta", eta)
    far = 0
    for _ in range(check_count("runs", runs)):
        sums = rng.exponential(1 / eta, (m, d)).sum(axis=1)
        far += d * abs(float(np.mean(sums > cut)) - 0.5) > radius
    return far / runs
