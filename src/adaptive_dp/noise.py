"""Laplace, Gaussian and norm-exponential noise, and the exact laws to compare it with.

*Teaching code.* The samplers are numpy's: they return doubles, and the set of doubles that
``value + noise`` can reach depends on ``value``. An attacker who sees all digits of one release can
often tell two neighbouring data sets apart with certainty, whatever epsilon the real-valued theorem
promises (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
Releases that matter should take their noise from a hardened library: OpenDP, Google's differential-privacy
library, or Tumult Core, which sample on a grid with exact arithmetic.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_generator, check_ordinary

Shape = SupportsIndex | Sequence[SupportsIndex]


def check_scale(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as an array of positive finite scales, of any shape.

    Zero is refused: no noise is no privacy, and it is usually an overflow or a missing factor upstream.
    """
    scales = as_finite_array(name, value)
    if scales.size and scales.min() <= 0:
        where = tuple(int(i) for i in np.unravel_index(int(np.argmin(scales)), scales.shape))
        raise ValueError(
            f"{name} must be positive, got {scales[where]!r}" + (f" at index {where}" if where else "")
        )
    return scales


def laplace(scale: ArrayLike, shape: Shape, rng: np.random.Generator) -> FloatArray:
    """Independent Laplace draws: density exp(-|x| / b) / (2 b), variance 2 b^2.

    Parameters
    ----------
    scale : float or array_like
        b, positive and finite; an array must broadcast to ``shape`` and gives each entry its own scale.
    shape : int or sequence of int
        Shape of the answer.
    rng : numpy.random.Generator
        The only source of chance.

    Returns
    -------
    ndarray, shape ``shape``

    Raises
    ------
    TypeError
        ``rng`` is not a generator, or ``scale`` is not numeric.
    ValueError
        A scale is not positive and finite, or does not broadcast to ``shape``.
    """
    scales, size = _door(scale, shape, rng)
    return np.asarray(rng.laplace(0.0, scales, size))


def gaussian(scale: ArrayLike, shape: Shape, rng: np.random.Generator) -> FloatArray:
    """Independent centred Gaussian draws with standard deviation ``scale``.

    Arguments, shapes and errors are those of :func:`laplace`.
    """
    scales, size = _door(scale, shape, rng)
    return np.asarray(rng.normal(0.0, scales, size))


def goe(sigma: float, dimension: int, rng: np.random.Generator) -> FloatArray:
    """One draw from the Gaussian orthogonal ensemble: sigma (Z + Z') / sqrt(2), Z with standard normal entries.

    The entries on and above the diagonal are independent, with variance sigma^2 off the diagonal and 2 sigma^2 on
    it. Seen from an orthonormal basis of the symmetric matrices (Frobenius inner product), the noise is sqrt(2) sigma
    times a standard normal vector: a symmetric matrix of Frobenius sensitivity D is released with the privacy of a
    Gaussian mechanism of sensitivity D and scale sqrt(2) sigma.

    Parameters
    ----------
    sigma : float
        Standard deviation off the diagonal, between 1e-100 and 1e100.
    dimension : int
        d, at least 1.
    rng : numpy.random.Generator
        The only source of chance; d^2 normal draws are taken.

    Returns
    -------
    ndarray, shape (d, d)
        Exactly symmetric.

    Raises
    ------
    TypeError
        ``rng`` is not a generator, ``sigma`` not a number, ``dimension`` not an integer.
    ValueError
        ``sigma`` is not positive and finite, or ``dimension`` is below 1.
    """
    check_generator(rng)
    scale, d = check_ordinary("sigma", sigma), check_count("dimension", dimension)
    draws = rng.normal(size=(d, d))
    return np.asarray((draws + draws.T) * (scale / math.sqrt(2.0)))


def norm_exponential(
    scale: float, dimension: int, rng: np.random.Generator, *, draws: int | None = None
) -> FloatArray:
    """Vectors with density proportional to exp(-||x||_2 / scale): the noise that pays for any shift by its length.

    The direction is uniform on the sphere and the length an independent Gamma(dimension, scale) variable, as the
    sphere of radius r has area proportional to r^(dimension - 1). Moving the density by a vector v changes it by no
    more than the factor exp(||v||_2 / scale), everywhere: a vector of l2 sensitivity D is released with
    epsilon = D / scale and without a delta (Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk
    minimization", JMLR 2011).

    Parameters
    ----------
    scale : float
        Between 1e-100 and 1e100. The mean length is ``dimension`` times the scale.
    dimension : int
        At least 1; in one dimension this is the Laplace law.
    rng : numpy.random.Generator
        The only source of chance.
    draws : int or None
        Number of independent vectors, at least 1; None gives a single one without the leading axis.

    Returns
    -------
    ndarray, shape (dimension,) or (draws, dimension)

    Raises
    ------
    TypeError
        ``rng`` is not a generator, ``scale`` not a number, ``dimension`` or ``draws`` not an integer.
    ValueError
        ``scale`` is not positive and finite, ``dimension`` or ``draws`` is below 1.
    """
    check_generator(rng)
    size, d = check_ordinary("scale", scale), check_count("dimension", dimension)
    count = 1 if draws is None else check_count("draws", draws)
    directions = rng.normal(size=(count, d))
    lengths = rng.gamma(d, size, size=(count, 1))
    vectors = directions * (lengths / np.linalg.norm(directions, axis=1, keepdims=True))
    return np.asarray(vectors[0] if draws is None else vectors)


def norm_exponential_tail(radius: ArrayLike, scale: float, dimension: int) -> FloatArray:
    """P(||x||_2 > radius) for :func:`norm_exponential`, elementwise; accurate far out."""
    law = _radial_law(scale, dimension)
    return np.asarray(law.sf(as_finite_array("radius", radius)))


def norm_exponential_radius(tail: ArrayLike, scale: float, dimension: int) -> FloatArray:
    """Return r with P(||x||_2 > r) = ``tail`` in (0, 1) for :func:`norm_exponential`, elementwise.

    Raises
    ------
    ValueError
        A tail outside the open interval (0, 1).
    """
    levels = as_finite_array("tail", tail)
    if levels.size and not (levels.min() > 0 and levels.max() < 1):
        worst = levels.min() if levels.min() <= 0 else levels.max()
        raise ValueError(f"tail must lie strictly between 0 and 1, got {worst!r}")
    return np.asarray(_radial_law(scale, dimension).isf(levels))


def laplace_characteristic_function(s: ArrayLike, scale: ArrayLike) -> FloatArray:
    """E exp(i s X) = 1 / (1 + b^2 s^2) for X ~ Lap(b), elementwise; real, as the law is symmetric."""
    with np.errstate(over="ignore"):  # b s beyond 1e154: the square is inf and the answer 0, as it should be
        return np.asarray(1.0 / (1.0 + np.square(np.multiply(s, check_scale("scale", scale)))))


def laplace_log_density(x: ArrayLike, scale: ArrayLike) -> FloatArray:
    """Return -|x| / b - log(2 b), elementwise.

    Written out: the logarithm of the density of scipy.stats is -inf beyond 745 b, and privacy losses
    are differences of exactly such values.
    """
    scales = check_scale("scale", scale)
    return np.asarray(-np.abs(np.asarray(x, dtype=np.float64)) / scales - np.log(scales) - np.log(2.0))


def laplace_tail(x: ArrayLike, scale: ArrayLike) -> FloatArray:
    """P(X > x) for X ~ Lap(b), elementwise; accurate in both tails."""
    return np.asarray(stats.laplace.sf(np.asarray(x, dtype=np.float64), scale=check_scale("scale", scale)))


def laplace_quantile(probability: ArrayLike, scale: ArrayLike) -> FloatArray:
    """Return x with P(X <= x) = ``probability`` in (0, 1) for X ~ Lap(b), elementwise.

    Raises
    ------
    ValueError
        A probability outside the open interval (0, 1).
    """
    levels = as_finite_array("probability", probability)
    if levels.size and not (levels.min() > 0 and levels.max() < 1):
        worst = levels.min() if levels.min() <= 0 else levels.max()
        raise ValueError(f"probability must lie strictly between 0 and 1, got {worst!r}")
    return np.asarray(stats.laplace.ppf(levels, scale=check_scale("scale", scale)))


def _radial_law(scale: float, dimension: int) -> Any:
    return stats.gamma(check_count("dimension", dimension), scale=check_ordinary("scale", scale))


def _door(scale: ArrayLike, shape: Shape, rng: np.random.Generator) -> tuple[FloatArray, tuple[int, ...]]:
    check_generator(rng)
    scales = check_scale("scale", scale)
    sides = shape if isinstance(shape, Iterable) else (shape,)
    try:
        size = tuple(operator.index(side) for side in sides)
    except TypeError:
        raise TypeError(f"shape must be an integer or a sequence of integers, got {shape!r}") from None
    if any(side < 0 for side in size):
        raise ValueError(f"shape must be nonnegative, got {shape!r}")
    try:
        fits = np.broadcast_shapes(scales.shape, size) == size
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"scale must broadcast to shape {size}, got shape {scales.shape}")
    return scales, size
