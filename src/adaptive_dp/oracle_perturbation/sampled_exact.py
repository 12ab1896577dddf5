"""OPSamp on a line, exactly: the joint law of the answers, of their average, and the privacy of what is released.

With d = 1 and W a grid, the minimiser of L(w) - (sigma - c) w is a vertex of the lower convex hull of the points (w,
L(w)), and rises with sigma. The values of sigma where it changes are slopes of the hull; between them the
exponential law is an elementary function. So the joint law of the answers on two data sets is known, with E |w -
w'|, without sampling. The sum of m answers is a sum of independent integers (in grid steps), whose law is binomial
or a power of a Fourier transform. What is released, the average plus Laplace noise, has a density that is a sum of
two exponentials between neighbouring lattice points: the hockey-stick divergence of two data sets is a sum of
elementary integrals.

Nothing here is used by the mechanism: these are facts about pairs of data sets, against which claims are measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq
from scipy.signal import lfilter
from scipy.stats import binom

from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_ordinary,
    check_probability,
    check_real,
)

IntArray = NDArray[np.int64]
# Lattice points of the law of a sum.
LARGEST_LATTICE = 20_000_000


def _hull(points: FloatArray, values: FloatArray) -> tuple[IntArray, FloatArray]:
    """Vertices of the lower convex hull (from the left) and the slopes between them."""
    kept: list[int] = []
    for k in range(points.size):
        while len(kept) > 1:
            i, j = kept[-2], kept[-1]
            rise = (values[j] - values[i]) * (points[k] - points[j])
            if rise < (values[k] - values[j]) * (points[j] - points[i]):
                break
            kept.pop()
        kept.append(k)
    vertices = np.array(kept, dtype=np.int64)
    return vertices, np.diff(values[vertices]) / np.diff(points[vertices])


@dataclass(frozen=True, slots=True, eq=False)
class LinePair:
    """The joint law of one answer on two data sets: probabilities of pairs of grid positions.

    Parameters
    ----------
    points : array_like, shape (N,)
        Equally spaced, increasing: W.
    first, second : array_like, shape (N,)
        L on the two data sets.
    eta : float
        Rate of the noise.
    centred : bool
        Whether the tilt is sigma - 1 / eta.

    Attributes
    ----------
    positions : ndarray of int, shape (k, 2)
        Positions of the two answers on each of k intervals of sigma.
    probabilities : ndarray, shape (k,)
    """

    points: FloatArray
    first: FloatArray
    second: FloatArray
    eta: float
    centred: bool = True
    positions: IntArray = None  # type: ignore[assignment]
    probabilities: FloatArray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        points = as_finite_array("points", self.points, ndim=1)
        if (
            points.size < 2
            or not np.allclose(np.diff(points), points[1] - points[0])
            or points[1] <= points[0]
        ):
            raise ValueError("points must be at least two, increasing and equally spaced")
        rate = check_ordinary("eta", self.eta)
        hulls = []
        for name in ("first", "second"):
            values = as_finite_array(name, getattr(self, name), ndim=1)
            if values.shape != points.shape:
                raise ValueError(f"{name} must have {points.size} entries, got {values.size}")
            object.__setattr__(self, name, values)
            hulls.append(_hull(points, values))
        shift = 1 / rate if self.centred else 0.0
        edges = np.unique(np.concatenate([slopes for _, slopes in hulls])) + shift
        edges = np.concatenate([[0.0], edges[edges > 0]])
        # An inner tilt of each interval: at the ends rounding could decide.
        inner = np.append((edges[:-1] + edges[1:]) / 2, edges[-1] + 1 / rate) - shift
        positions = [vertices[np.searchsorted(slopes, inner)] for vertices, slopes in hulls]
        object.__setattr__(self, "points", points)
        object.__setattr__(self, "eta", rate)
        object.__setattr__(self, "positions", np.column_stack(positions))
        object.__setattr__(self, "probabilities", -np.diff(np.append(np.exp(-rate * edges), 0.0)))

    @property
    def spacing(self) -> float:
        """Grid step."""
        return float(self.points[1] - self.points[0])

    @property
    def distances(self) -> IntArray:
        """|w - w'| in grid steps, for each pair of positions."""
        return np.abs(np.diff(self.positions, axis=1)[:, 0])

    @property
    def mean_distance(self) -> float:
        """E |w - w'|: what the stability lemma bounds."""
        return float(self.probabilities @ self.distances) * self.spacing

    def marginal(self, which: int) -> FloatArray:
        """Law of the answer on data set 0 or 1 over the positions, shape (N,)."""
        law = np.bincount(self.positions[:, which], self.probabilities, minlength=self.points.size)
        return np.asarray(law, dtype=np.float64)

    def distance_failure(self, calls: int, sensitivity: float) -> float:
        """P((1/m) sum_k |w_k - w'_k| > sensitivity), exactly: what the theorem's delta stands for."""
        law = sum_law(np.bincount(self.distances, self.probabilities), calls)
        last = math.floor(check_ordinary("sensitivity", sensitivity) * calls / self.spacing * (1 + 1e-12))
        return float(law[last + 1 :].sum())

    def profile(self, calls: int, scale: float) -> ReleasedProfile:
        """Privacy of the average of ``calls`` answers plus Laplace noise, for this pair of data sets."""
        laws = [sum_law(self.marginal(side), calls) for side in (0, 1)]
        return ReleasedProfile(laws[0], laws[1], self.spacing / check_count("calls", calls), scale)


def sum_law(law: ArrayLike, calls: int) -> FloatArray:
    """Law of the sum of ``calls`` independent draws from a law on 0, 1, ..., N - 1.

    With one or two possible values it is a (binomial) law that is known to relative accuracy; otherwise it comes from a
    Fourier transform, whose error, summed over the lattice, is about 1e-14 times ``calls``.

    Raises
    ------
    ValueError
        The answer would have more than twenty million entries.
    """
    single, m = as_finite_array("law", law, ndim=1), check_count("calls", calls)
    size = m * (single.size - 1) + 1
    if size > LARGEST_LATTICE:
        raise ValueError(f"calls must give at most {LARGEST_LATTICE} lattice points, got {size}")
    values = np.flatnonzero(single)
    if 0 < values.size <= 2:
        first, last = int(values[0]), int(values[-1])
        known = np.zeros(size)
        if first == last:
            known[m * first] = single[first] ** m
        else:
            counts = np.arange(m + 1)
            chance = single[last] / (single[first] + single[last])
            known[m * first + counts * (last - first)] = binom.pmf(counts, m, chance)
        return known
    # A power of two and more points than needed: nothing wraps around.
    length = 1 << (size - 1).bit_length()
    total = np.fft.irfft(np.fft.rfft(single, length) ** m, length)[:size]
    return np.asarray(np.maximum(total, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedProfile:
    """Hockey-stick divergence of two laws on a lattice, each convolved with Laplace noise of one scale.

    Parameters
    ----------
    first, second : ndarray, shape (K,)
        Probabilities at lattice points 0, step, 2 step ...
    step : float
        Distance of lattice points.
    scale : float
        Of the Laplace noise.
    """

    first: FloatArray
    second: FloatArray
    step: float
    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", check_ordinary("step", self.step))
        object.__setattr__(self, "scale", check_ordinary("scale", self.scale))

    def delta(self, epsilon: float) -> float:
        """Smallest delta for which both directions of the pair are (epsilon, delta)-close; exact up to about 1e-12."""
        level = check_real("epsilon", epsilon)
        return max(self._stick(self.first, self.second, level), self._stick(self.second, self.first, level))

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with this delta."""
        goal = check_probability("delta", delta)
        if self.delta(0.0) <= goal:
            return 0.0
        high = 1.0
        while self.delta(high) > goal:
            high *= 2
            if high > 700:
                return math.inf
        return float(brentq(lambda e: self.delta(e) - goal, 0.0, high, xtol=1e-10))

    def density(self, at: ArrayLike, which: int) -> FloatArray:
        """Density of what is released on data set 0 or 1, at the distances ``at`` from lattice point 0."""
        law = (self.first, self.second)[which]
        where = np.flatnonzero(law > 0)
        x = as_finite_array("at", at)
        far = np.abs(x[..., np.newaxis] - self.step * where) / self.scale
        return np.asarray(np.exp(-far) @ law[where] / (2 * self.scale))

    def _stick(self, p: FloatArray, q: FloatArray, epsilon: float) -> float:
        """Integral of (f - e^epsilon g)_+, f and g the two densities."""
        ratio, b = math.exp(-self.step / self.scale), self.scale
        # Between points j and j + 1 both densities are a e^{-u / b} + c e^{-(step - u) / b}, u the distance from j.
        signed = (p - math.exp(epsilon) * q) / (2 * b)
        left = lfilter([1.0], [1.0, -ratio], signed)
        right = lfilter([1.0], [1.0, -ratio], signed[::-1])[::-1]
        tails = b * (max(float(right[0]), 0.0) + max(float(left[-1]), 0.0))
        return tails + float(self._cells(left[:-1], right[1:]).sum())

    def _cells(self, a: FloatArray, c: FloatArray) -> FloatArray:
        """Integrals over u in [0, step] of (a e^{-u / b} + c e^{-(step - u) / b})_+, elementwise."""
        h, b = self.step, self.scale
        whole = -b * math.expm1(-h / b)
        both = np.where((a >= 0) & (c >= 0), whole * (a + c), 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            root = np.clip((h - b * np.log(-c / a)) / 2, 0.0, h)
        mixed = a * c < 0
        root = np.where(mixed, root, 0.0)
        # a > 0 > c: positive before the root; a < 0 < c: after it.
        before = -b * a * np.expm1(-root / b) + b * c * (np.exp((root - h) / b) - math.exp(-h / b))
        after = b * a * (np.exp(-root / b) - math.exp(-h / b)) - b * c * np.expm1((root - h) / b)
        return np.where(mixed, np.maximum(np.where(a > 0, before, after), 0.0), both)
