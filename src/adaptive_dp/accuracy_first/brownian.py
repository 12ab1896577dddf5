"""Brownian noise reduction: the answer to the open problem of ligett2017, Section 5.

Source: Whitehouse, Ramdas, Rogers and Wu 2022. Add a Brownian motion to the statistic, run *backwards*: the
value at variance v is ``f(D) + B(v)``, and smaller variances refine it. What has been revealed down to variance
v is a function of the value at v and of coins that do not know the data, so the privacy loss of everything
revealed is that of one Gaussian, log N(f, v) / N(f', v) = Delta^2 s / 2 + Delta W(s) with s = 1/v, where W is
again a Brownian motion (time inversion). A curve that W stays below *for all s at once*, except with
probability delta, bounds the loss at whatever variance the search stops: no union bound over levels, which
is what had made an (epsilon, delta) version look hopeless.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_ndtr

from adaptive_dp.accuracy_first.calibration import (
    MOMENT_SENSITIVITY_L2,
    check_calibration,
    minimiser_radius,
    minimiser_sensitivity,
)
from adaptive_dp.accuracy_first.levels import ListedLevels
from adaptive_dp.accuracy_first.mechanisms import (
    Hypothesis,
    NoisyStatistic,
    covariance_statistic,
    output_statistic,
    search_path,
)
from adaptive_dp.accuracy_first.moments import MomentCoding
from adaptive_dp.accuracy_first.problems import Problem, RidgeProblem, check_task_of, prepare
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.privacy import Release
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)

SOURCE = "Whitehouse, Ramdas, Rogers and Wu 2022"


@dataclass(frozen=True)
class BrownianBoundary:
    """A bound on the loss of Brownian noise reduction, valid at all variances at once, for each fixed pair.

    One-sided normal mixture: mixing exp(t W - t^2 s/2) over t = |N|, N normal of variance 1/rho, gives the
    nonnegative martingale 2 sqrt(rho/(s + rho)) exp(x^2/2) Phi(x), x = W/sqrt(s + rho), which starts at 1; by
    Ville's inequality it stays below 1/delta for all s with probability at least 1 - delta.

    Parameters
    ----------
    sensitivity : float
        l2 sensitivity Delta of the statistic.
    delta : float
        Probability that the bound fails somewhere along the path.
    tuned_epsilon : float
        The loss at which the mixture is tightest (chooses rho); public.
    """

    sensitivity: float
    delta: float
    tuned_epsilon: float = 1.0

    def __post_init__(self) -> None:
        check_positive("sensitivity", self.sensitivity)
        check_probability("delta", self.delta)
        check_positive("tuned_epsilon", self.tuned_epsilon)
        if not sys.float_info.min < self.rho < sys.float_info.max:
            raise ValueError(
                f"tuned_epsilon and sensitivity must be of ordinary size, got {self.tuned_epsilon!r} and "
                f"{self.sensitivity!r}: the mixture parameter would not be a float"
            )

    @property
    def rho(self) -> float:
        """Mixture parameter: the usual choice s / (2 log(1/delta) + log(1 + 2 log(1/delta))) at the tuned point."""
        odds = 2 * math.log(1 / self.delta)
        # s at which a fixed-variance Gaussian has loss about tuned_epsilon: Delta^2 s/2 + Delta sqrt(s odds)
        root = (math.sqrt(odds + 2 * self.tuned_epsilon) - math.sqrt(odds)) / self.sensitivity
        return root**2 / (odds + math.log1p(odds))

    def envelope(self, precision: ArrayLike) -> FloatArray:
        """Curve that W stays below: the x >= 0 with x^2/2 + log Phi(x) = log(1/(2 delta)) + log(1 + s/rho)/2."""
        s = as_finite_array("precision", precision)
        if (s < 0).any():
            raise ValueError(f"precision must be nonnegative, got {s.min()!r}")
        goal = math.log(1 / (2 * self.delta)) + 0.5 * np.log1p(s / self.rho)
        # Phi(x) is between 1/2 and 1, so the root lies in [sqrt(2 goal), sqrt(2 (goal + log 2))].
        low, high = np.sqrt(2 * np.maximum(goal, 0)), np.sqrt(2 * np.maximum(goal + math.log(2), 0))
        for _ in range(60):
            middle = (low + high) / 2
            short = middle**2 / 2 + log_ndtr(middle) < goal
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return np.asarray(high * np.sqrt(s + self.rho), dtype=np.float64)

    def loss(self, variance: ArrayLike) -> FloatArray:
        """Bound on the privacy loss of everything revealed down to ``variance`` (per coordinate)."""
        spread = as_finite_array("variance", variance)
        if (spread <= 0).any():
            raise ValueError(f"variance must be positive, got {spread.min()!r}")
        s = 1 / spread
        return np.asarray(self.sensitivity**2 * s / 2 + self.sensitivity * self.envelope(s), dtype=np.float64)

    @property
    def floor(self) -> float:
        """What even infinite noise costs under this boundary: Delta times the envelope at s = 0."""
        return float(self.sensitivity * self.envelope(0.0))

    def variance(self, epsilon: float) -> float:
        """The variance at which the loss bound is ``epsilon``; on the safe side of the root.

        Raises
        ------
        ValueError
            ``epsilon`` is not above :attr:`floor`.
        """
        goal = check_positive("epsilon", epsilon)
        if goal <= self.floor:
            raise ValueError(f"epsilon must exceed {self.floor:.6g}, the boundary's floor, got {goal!r}")
        log_s = 0.0
        while float(self.loss(math.exp(-log_s))) < goal:
            log_s += 1.0
        while float(self.loss(math.exp(-log_s))) >= goal:
            log_s -= 1.0
        root = brentq(lambda z: float(self.loss(math.exp(-z))) - goal, log_s, log_s + 1.0, xtol=1e-13)
        return math.exp(-float(root)) * (1 + 1e-11)


def brownian_walk(value: ArrayLike, variances: ArrayLike, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield ``value + B(v)`` for falling variances v of one Brownian motion; lazily, a new array each.

    From v to u < v the motion is pinned at B(0) = 0, so B(u) given B(v) is normal with mean (u/v) B(v) and
    variance u (v - u)/v (Brownian bridge). A step costs O(k); nothing is drawn that is not asked for.
    """
    start = as_finite_array("value", value)
    falling = as_finite_array("variances", variances, ndim=1)
    if falling.size == 0 or falling[-1] <= 0 or (np.diff(falling) >= 0).any():
        raise ValueError(f"variances must be positive and strictly falling, got {falling!r}")
    check_generator(rng)

    def steps() -> Iterator[FloatArray]:
        motion = np.sqrt(falling[0]) * rng.standard_normal(start.shape)
        yield start + motion
        for v, u in zip(falling[:-1].tolist(), falling[1:].tolist(), strict=True):
            motion = (u / v) * motion + math.sqrt(u * (v - u) / v) * rng.standard_normal(start.shape)
            yield start + motion

    return steps()


def gaussian_statistic(problem: Problem, mechanism: str) -> NoisyStatistic:
    """The statistic of a mechanism with its l2 sensitivity; the ball is the sharp one."""
    check_task_of(problem, mechanism)
    radius = minimiser_radius(problem.task, lam=problem.lam)
    if mechanism == "output" or not isinstance(problem, RidgeProblem):
        sensitivity = minimiser_sensitivity(
            problem.task, rows=problem.rows, columns=problem.columns, lam=problem.lam, norm="l2"
        )
        return output_statistic(problem, sensitivity=sensitivity, radius=radius)
    coding = MomentCoding(problem.columns, "gaussian")
    return covariance_statistic(problem, coding=coding, sensitivity=MOMENT_SENSITIVITY_L2, radius=radius)


@lru_cache(maxsize=64)
def brownian_levels(
    boundary: BrownianBoundary, *, largest: float, count: int = 1000
) -> tuple[ListedLevels, FloatArray]:
    """Geometric grid of variances, from where the bound nears its floor to where it is ``largest``.

    Returns the increasing loss bounds and the falling variances, shape (count,) each.
    """
    levels = check_count("count", count, minimum=2)
    if check_positive("largest", largest) <= boundary.floor:
        raise ValueError(
            f"largest must exceed {boundary.floor:.6g}, the boundary's floor, got {largest!r}; lower tuned_epsilon"
        )
    finest = boundary.variance(largest)
    coarsest = max(100 / boundary.rho, 4 * finest)
    variances = coarsest * np.exp(np.linspace(0, math.log(finest / coarsest), levels))
    variances.setflags(write=False)  # the result is shared by all runs with the same public parameters
    return ListedLevels(boundary.loss(variances)), variances


def brownian_nr(
    data: Dataset | Problem,
    *,
    mechanism: str,
    lam: float | None = None,
    alpha: float,
    failure: float,
    delta: float,
    largest: float = 16.0,
    count: int = 1000,
    tuned_epsilon: float = 0.1,
    calibration: str = "sharp",
    rng: np.random.Generator,
) -> Hypothesis:
    """Accuracy-first search with Brownian instead of Laplace noise: (epsilon, delta) ex-post.

    Parameters
    ----------
    data : Dataset or prepared problem
    mechanism : {"covariance", "output"}
    lam, alpha, failure, rng
        As in :func:`adaptive_dp.accuracy_first.cov_nr`.
    delta : float
        The loss exceeds the stated epsilon with at most this probability.
    largest : float
        Loss of generating the last hypothesis of the grid.
    count : int
        Number of variances.
    tuned_epsilon : float
        Where the boundary is tightest; a public choice.
    calibration : {"sharp", "printed"}
        Of the *test* (its noise is Laplace, its loss pure). The generator uses the sharp ball in both cases.

    Returns
    -------
    Release
        Ex-post guarantee epsilon_0 + psi(variance); replace-one neighbours. For each pair of neighbours that is
        fixed before the run, the loss of the whole transcript (every noisy statistic that was tested, and when the
        search stopped) exceeds it with probability at most delta. The hypothesis is computed from the transcript.
    """
    check_calibration(calibration)
    target, gamma = check_ordinary("alpha", alpha), check_probability("failure", failure)
    check_probability("delta", delta)
    check_generator(rng)
    problem = prepare(data, lam=lam)
    statistic = gaussian_statistic(problem, mechanism)
    boundary = BrownianBoundary(statistic.sensitivity, delta, tuned_epsilon)
    levels, variances = brownian_levels(boundary, largest=largest, count=count)
    walk = brownian_walk(statistic.value, variances, rng)
    pure = search_path(
        walk,
        statistic,
        problem,
        levels,
        alpha=target,
        failure=gamma,
        calibration=calibration,
        rng=rng,
    )
    return _with_delta(pure, delta)


def _with_delta(release: Hypothesis, delta: float) -> Hypothesis:
    guarantee = replace(release.guarantee, delta=delta, source=f"{SOURCE}; ligett2017, Lemma 2.8")
    return Release(release.value, guarantee, index=release.index, trace=release.trace)
