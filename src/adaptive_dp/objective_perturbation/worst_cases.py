"""Two pairs of neighbours in closed form, Huber's and the Gaussian's, and densities of privacy losses.

Without other data, x = 1, a Huber loss of width mu sigma and J = f + lam theta^2 / 2 the shift of the one-dimensional
reduction is s(t) = clip(-kappa t, -mu, mu) (redberg2023, errata, S1). On the data without the record t ~ N(0, 1), on
those with it t' = t - s(t) is. The loss log p_without / p_with is

    mu |t| + mu^2 / 2              for |t| >= mu / kappa (there |t'| = |t| + mu),
    c t^2 - log(1 + kappa)         inside, c = kappa + kappa^2 / 2 (there t' = (1 + kappa) t).

A linear loss is the Gaussian mechanism, s = mu. The bounds are the laws that the proofs compare with: the half-normal
one of Theorem 4.3.1 with its determinant (erratum 21), and one for each direction from the reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import ndtr

from adaptive_dp.per_instance.calibration import half_normal_delta
from adaptive_dp.validation import FloatArray, as_finite_array, check_ordinary, check_real

Distribution = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, slots=True)
class HuberPair:
    """The Huber loss with no other data: laws of t with and without the record.

    Parameters
    ----------
    mu, kappa : float
        Width of the loss over sigma and curvature over lam; between 1e-100 and 1e100.
    """

    mu: float
    kappa: float

    def __post_init__(self) -> None:
        check_ordinary("mu", self.mu)
        check_ordinary("kappa", self.kappa)

    def shift(self, t: ArrayLike) -> FloatArray:
        """s(t), shape of ``t``."""
        return np.asarray(np.clip(-self.kappa * as_finite_array("t", t), -self.mu, self.mu))

    def log_ratio(self, t: ArrayLike) -> FloatArray:
        """Log p_without / p_with at the outcome that noise t leads to on the data without the record."""
        size = np.abs(as_finite_array("t", t))
        inner = self._bend * size**2 - math.log1p(self.kappa)
        return np.asarray(np.where(size < self.knee, inner, self.mu * size + self.mu**2 / 2))

    @property
    def knee(self) -> float:
        """|t| at which the slope of the loss reaches its bound: mu / kappa."""
        return self.mu / self.kappa

    @property
    def _bend(self) -> float:
        return self.kappa + self.kappa**2 / 2

    def absent(self, epsilon: float) -> float:
        """Hockey-stick divergence of the law without the record from that with it, at any real ``epsilon``."""
        level = check_real("epsilon", epsilon)
        inner = self._root(level + math.log1p(self.kappa))
        outer = max(self.knee, (level - self.mu**2 / 2) / self.mu)
        spread = 1 + self.kappa
        middle = _two_tails(inner, self.knee) - _scaled(level, spread * inner, spread * self.knee)
        tails = _two_tails(outer, math.inf) - _scaled(level, outer + self.mu, math.inf)
        return max(0.0, middle if inner < self.knee else 0.0) + max(0.0, tails)

    def present(self, epsilon: float) -> float:
        """The other direction."""
        level = check_real("epsilon", epsilon)
        # -loss > epsilon where |t| is small: inside below a root, and outside as far as -epsilon reaches.
        inner = min(self.knee, self._root(math.log1p(self.kappa) - level))
        outer = max(self.knee, -(level + self.mu**2 / 2) / self.mu)
        spread = 1 + self.kappa
        middle = _two_tails(0.0, spread * inner) - _scaled(level, 0.0, inner)
        tails = _two_tails(self.knee + self.mu, outer + self.mu) - _scaled(level, self.knee, outer)
        return max(0.0, middle) + max(0.0, tails)

    def _root(self, value: float) -> float:
        return math.sqrt(max(value, 0.0) / self._bend)

    def distribution(self, *, present: bool) -> Distribution:
        """Distribution function of the privacy loss, log of the law at hand over the other one."""
        log_spread, spread = math.log1p(self.kappa), 1 + self.kappa

        def of_loss(levels: FloatArray) -> FloatArray:
            """P(log p_without / p_with <= level): both pieces grow with |t|."""
            inner = np.minimum(np.sqrt(np.maximum(levels + log_spread, 0.0) / self._bend), self.knee)
            outer = np.maximum((levels - self.mu**2 / 2) / self.mu, self.knee)
            if present:
                inner, knee, outer = inner * spread, self.knee * spread, outer + self.mu
            else:
                knee = self.knee
            return _symmetric(inner) + _symmetric(outer) - _symmetric(np.full(levels.shape, knee))

        if not present:
            return of_loss
        return lambda levels: 1 - of_loss(-levels)


def _symmetric(size: FloatArray) -> FloatArray:
    return np.asarray(2 * ndtr(size) - 1)


def _two_tails(low: float, high: float) -> float:
    """P(low <= |N| <= high), without cancellation; 0 where high <= low."""
    return 2 * float(ndtr(-low) - ndtr(-high)) if high > low else 0.0


def _scaled(level: float, low: float, high: float) -> float:
    probability = _two_tails(low, high)
    return math.exp(level + math.log(probability)) if probability > 0 else 0.0


class Attainment(NamedTuple):
    """Whether the Huber loss attains bound A, its exact profile there, and the bound."""

    attains: bool
    exact: float
    bound: float


def huber_attains(mu: float, kappa: float, epsilon: float) -> Attainment:
    """Compare the Huber loss with the bound of direction A, twice the Gaussian profile (errata, S1).

    Equality holds iff epsilon / mu - mu / 2 >= mu / kappa: the set where the loss exceeds epsilon then lies where the
    slope of the loss is at its bound.

    Parameters
    ----------
    mu, kappa : float
        Positive.
    epsilon : float
        At least mu^2 / 2, from where on the bound is twice the Gaussian profile.
    """
    pair, level = HuberPair(mu, kappa), check_real("epsilon", epsilon)
    if level < pair.mu**2 / 2:
        raise ValueError(f"epsilon must be at least mu^2 / 2 = {pair.mu**2 / 2:.6g}, got {level!r}")
    attains = level / pair.mu - pair.mu / 2 >= pair.knee
    return Attainment(attains, pair.absent(level), half_normal_delta(level, pair.mu))


# ---------------------------------------------------------------- densities of privacy losses


class LossLaw(NamedTuple):
    """A law of the privacy loss: distribution function of its continuous part and one atom."""

    name: str
    direction: str
    distribution: Distribution
    atom_at: float = math.nan
    atom: float = 0.0


def loss_laws(mu: float, kappa: float) -> list[LossLaw]:
    """The laws that :func:`privacy_loss_density` tabulates."""
    pair = HuberPair(mu, kappa)
    start = mu**2 / 2

    def normal(levels: FloatArray) -> FloatArray:
        return np.asarray(ndtr((levels - start) / mu))

    def half_normal(offset: float) -> Distribution:
        return lambda levels: _symmetric(np.maximum(levels - start - offset, 0.0) / mu)

    def positive_part(levels: FloatArray) -> FloatArray:
        # log(1 + kappa) plus the positive part of the Gaussian loss, as in the proof; its atom stands apart.
        above = np.maximum(levels - math.log1p(kappa), 0.0)
        return np.asarray(ndtr((above - start) / mu) - ndtr(-0.5 * mu))

    laws = [LossLaw("linear loss (Gaussian)", direction, normal) for direction in ("absent", "present")] + [
        LossLaw("Huber loss", "absent", pair.distribution(present=False)),
        LossLaw("Huber loss", "present", pair.distribution(present=True)),
        LossLaw("bound A: reduced", "absent", half_normal(0.0)),
        LossLaw("bound B: reduced", "present", positive_part, math.log1p(kappa), float(ndtr(-0.5 * mu))),
    ]
    if kappa < 1:
        thesis = half_normal(-math.log1p(-kappa))
        laws += [LossLaw("Theorem 4.3.1", direction, thesis) for direction in ("absent", "present")]
    return laws


def privacy_loss_density(mu: float, kappa: float, points: ArrayLike) -> pd.DataFrame:
    """Densities of privacy losses: of two pairs, and of the laws that the bounds compare with.

    The density at a point is the probability of the cell around it over its width, from exact distribution functions:
    finite also at the end of the Huber loss's law, where the density itself is not. Cells end half-way between points.

    Parameters
    ----------
    mu, kappa : float
        sup |f'| ||x|| / sigma and sup f'' ||x||^2 / lam; positive.
    points : array_like, shape (m,)
        Values of the loss, strictly increasing, at least two.

    Returns
    -------
    pandas.DataFrame
        ``law``, ``direction`` ("absent": the record is not in the data at hand), ``loss``, ``density``, and ``atom``:
        0, except for one more row for each atom with its place and mass, whose density is NaN. Theorem 4.3.1 occurs
        for kappa < 1 only. Probability beyond the points is not shown.
    """
    check_ordinary("mu", mu)
    grid = as_finite_array("points", points, ndim=1)
    if grid.size < 2 or (np.diff(grid) <= 0).any():
        raise ValueError(f"points must be strictly increasing, at least two, got {points!r}")
    middle = 0.5 * (grid[:-1] + grid[1:])
    edges = np.concatenate([[2 * grid[0] - middle[0]], middle, [2 * grid[-1] - middle[-1]]])
    frames = []
    for law in loss_laws(mu, kappa):
        density = np.diff(law.distribution(edges)) / np.diff(edges)
        frame = pd.DataFrame({"loss": grid, "density": density, "atom": 0.0})
        if law.atom > 0:
            frame.loc[grid.size] = [law.atom_at, math.nan, law.atom]
        frame.insert(0, "direction", law.direction)
        frame.insert(0, "law", law.name)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)
