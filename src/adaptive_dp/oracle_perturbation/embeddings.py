"""One theorem for OPDisc and RSPM: perturbation along an embedding of W, with noise shaped after a convex body.

Put each member at a point phi(w), and let m(w, v) = <phi(w), phi(w) - phi(v)> be positive for all w != v: every phi(w)
is then a corner of their hull. The mechanism publishes a minimiser of L(Z, w) - <eta, phi(w)>, by an oracle whose
certified gap is below a.

*Theorem.* Let the losses lie in [0, 1] (or any family with |l(w) - l(v)| <= 1), c >= 2 (1 + a) / m(w, v) for all pairs,
and let K be a convex body with the origin inside that contains all phi(w). If eta has a density proportional to
exp(-(epsilon / c) |eta|_K), where |x|_K = min{t >= 0 : x in t K} is the gauge of K, then the mechanism is
epsilon-differentially private under replacement of one record.

*Proof.* Let w be the answer on Z, so that every v has an objective more than -a above that of w. Replace a record, and
eta by eta + c phi(w). The difference between v and w changes by at least -2 + c m(w, v) >= 2 a, so it exceeds a: on Z'
no other member is within the gap, and the answer is w. Hence {eta : Z gives w} + c phi(w) is a part of
{eta : Z' gives w}. A gauge is subadditive, |eta + c phi(w)|_K <= |eta|_K + c, so the density falls by a factor of
exp(epsilon) at most. Integrate over the cell of w, and sum over w.

The noise is r u with u uniform in K and r ~ Gamma(k + 1, c / epsilon), k the dimension (the law of the K-norm mechanism
of Hardt and Talwar 2010). Known mechanisms are special cases, and the body need not be a ball:

==============  =========================  =======================================  ===================
name            phi                        K                                        m
==============  =========================  =======================================  ===================
norm noise      the lift pi(w)             unit ball                                tau^2 / (2 D^2)
Laplace RSPM    1 - 2 e(w), separators     m times the cross-polytope               2
box             1 - 2 e(w), separators     [-1, 1]^m                                2
simplex         a regular simplex a        product of the simplices                 1 + 1 / (values - 1)
                coordinate
==============  =========================  =======================================  ===================

This module has the last two for integer balls; they need the same tables from an oracle as RSPM does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike

from adaptive_dp.oracle_perturbation.problems import GridCosts
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_generator, check_ordinary


@runtime_checkable
class Embedding(Protocol):
    """Points phi(w), a body around them, and noise shaped after it."""

    @property
    def space(self) -> IntegerBall:
        """The space W."""
        ...

    @property
    def dimension(self) -> int:
        """Dimension k of the body."""
        ...

    @property
    def margin(self) -> float:
        """Smallest m(w, v) = <phi(w), phi(w) - phi(v)> over w != v."""
        ...

    def points(self, members: ArrayLike) -> FloatArray:
        """Points phi(w) of the members (N, d), one flattened table over coordinates and slots a row."""
        ...

    def gauge(self, noise: ArrayLike) -> FloatArray:
        """Gauge |x|_K of noise tables (..., d, slots), shape (...)."""
        ...

    def uniform(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent uniform points of K as tables, shape (draws, d, slots)."""
        ...

    def costs(self, noise: ArrayLike) -> GridCosts:
        """Return the perturbation -<noise, phi(w)> as tables for an oracle; ``noise`` has shape (d, slots)."""
        ...


def shift(embedding: Embedding, gap: float) -> float:
    """Return c = 2 (1 + a) / m, the distance along phi(w) by which noise is moved; ``gap`` is a > 0."""
    return 2.0 * (1.0 + check_ordinary("gap", gap)) / embedding.margin


def gauge_noise(
    embedding: Embedding, *, epsilon: float, gap: float, rng: np.random.Generator, draws: int | None = None
) -> FloatArray:
    """Noise with density proportional to exp(-(epsilon / c) |x|_K), as tables.

    Parameters
    ----------
    embedding : Embedding
        phi and K.
    epsilon : float
        Privacy level, positive.
    gap : float
        a, the largest certified additive gap that an answer may have; positive.
    rng : numpy.random.Generator
        The only source of chance.
    draws : int or None
        Number of independent draws; None gives one without a leading axis.

    Returns
    -------
    ndarray, shape (d, slots) or (draws, d, slots)
    """
    scale = shift(embedding, gap) / check_ordinary("epsilon", epsilon)
    check_generator(rng)
    count = 1 if draws is None else check_count("draws", draws)
    radius = rng.gamma(embedding.dimension + 1, scale, size=(count, 1, 1))
    noise = radius * embedding.uniform(count, rng)
    return np.asarray(noise[0] if draws is None else noise)


@dataclass(frozen=True, slots=True)
class SimplexEmbedding:
    """Each coordinate of w at a corner of a regular simplex with unit corners, one corner a value.

    Two corners have inner product -1 / (s - 1), s = 2 B + 1 values, so m(w, v) is the number of coordinates in which w
    and v differ times 1 + 1 / (s - 1). The body is the product of the d simplices, of dimension d (s - 1). A point of a
    simplex is held by its inner products with the corners, (s b - 1) / (s - 1) for barycentric weights b: a table
    (d, s) with rows that sum to zero, which is exactly what an oracle needs.

    Parameters
    ----------
    space : IntegerBall
        W; its ball only removes members and costs nothing.
    """

    space: IntegerBall

    @property
    def values(self) -> int:
        """Number s of values of a coordinate."""
        return 2 * self.space.box + 1

    @property
    def dimension(self) -> int:
        """Dimension d (s - 1) of the body."""
        return self.space.dimension * (self.values - 1)

    @property
    def margin(self) -> float:
        """Smallest m(w, v)."""
        return 1.0 + 1.0 / (self.values - 1)

    def points(self, members: ArrayLike) -> FloatArray:
        """Inner products of phi(w) with all corners: 1 at the own one, -1 / (s - 1) at the others."""
        w = _members(self.space, members)
        own = (w[..., np.newaxis] + self.space.box) == np.arange(self.values)
        table = np.where(own, 1.0, -1.0 / (self.values - 1))
        return np.asarray(table.reshape(*w.shape[:-1], -1))

    def gauge(self, noise: ArrayLike) -> FloatArray:
        """Largest gauge of a coordinate: the facets are <x, corner> >= -1 / (s - 1)."""
        table = as_finite_array("noise", noise)
        return np.asarray((self.values - 1) * np.max(-table, axis=(-2, -1)))

    def uniform(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Flat Dirichlet weights are uniform in a simplex."""
        size = (draws, self.space.dimension)
        weights = rng.dirichlet(np.ones(self.values), size=size)
        return np.asarray((self.values * weights - 1.0) / (self.values - 1))

    def costs(self, noise: ArrayLike) -> GridCosts:
        """Costs -<noise, phi(w)>: the entry of the own value in each row of the table."""
        table = _table(noise, (self.space.dimension, self.values))
        return GridCosts(-table, np.zeros(self.space.squared_radius + 1))


@dataclass(frozen=True, slots=True)
class BoxEmbedding:
    """RSPM's separators 1[w_j = value] for all values but 0, at phi = 1 - 2 e(w) in a box.

    Moving eta by 2 (1 + a) in every coordinate has length 2 (1 + a) in the largest-entry norm, whatever the number m of
    separators; in the sum norm of Laplace noise it has length 2 (1 + a) m.

    Parameters
    ----------
    space : IntegerBall
        W.
    """

    space: IntegerBall

    @property
    def dimension(self) -> int:
        """Number m = 2 B d of separators."""
        return 2 * self.space.box * self.space.dimension

    @property
    def margin(self) -> float:
        """Smallest m(w, v): twice the number of separators that tell w and v apart, at least one."""
        return 2.0

    @property
    def _nonzero(self) -> FloatArray:
        return np.asarray(self.space.values[self.space.values != 0])

    def points(self, members: ArrayLike) -> FloatArray:
        """Vectors 1 - 2 e(w)."""
        w = _members(self.space, members)
        hit = w[..., np.newaxis] == self._nonzero
        return np.asarray((1.0 - 2.0 * hit).reshape(*w.shape[:-1], -1))

    def gauge(self, noise: ArrayLike) -> FloatArray:
        """Largest absolute entry."""
        return np.asarray(np.max(np.abs(as_finite_array("noise", noise)), axis=(-2, -1)))

    def uniform(self, draws: int, rng: np.random.Generator) -> FloatArray:
        """Independent uniform entries in [-1, 1]."""
        return rng.uniform(-1.0, 1.0, size=(draws, self.space.dimension, 2 * self.space.box))

    def costs(self, noise: ArrayLike) -> GridCosts:
        """Costs -<noise, 1 - 2 e(w)>, up to a constant: twice the entry of the own separator, nothing at 0."""
        table = _table(noise, (self.space.dimension, 2 * self.space.box))
        box = self.space.box
        per_value = np.zeros((self.space.dimension, 2 * box + 1))
        per_value[:, self.space.values != 0] = 2.0 * table
        return GridCosts(per_value, np.zeros(self.space.squared_radius + 1))


def _members(space: IntegerBall, members: ArrayLike) -> IntArray:
    """Whole numbers within the box of the space, shape (..., d)."""
    w = as_finite_array("members", members)
    if w.ndim == 0 or w.shape[-1] != space.dimension:
        raise ValueError(f"members must have {space.dimension} coordinates, got shape {w.shape}")
    if not np.array_equal(w, np.rint(w)) or np.abs(w).max(initial=0) > space.box:
        raise ValueError(f"members must be whole numbers up to {space.box} in absolute value")
    return w.astype(np.int64)


def _table(noise: ArrayLike, shape: tuple[int, int]) -> FloatArray:
    """One table of noise of the shape that the embedding needs."""
    table = as_finite_array("noise", noise, ndim=2)
    if table.shape != shape:
        raise ValueError(f"noise must have shape {shape}, got {table.shape}")
    return table


def simplex_width(values: int, dimension: int) -> float:
    """E max_w <eta, phi(w)> of the simplex noise at epsilon = 1 and a = 0, over all vectors of ``values`` values.

    The mean excess of the answer's loss is at most this number over epsilon: the answer w satisfies
    L(w) - L(w*) <= <eta, phi(w)> - <eta, phi(w*)>, and E eta = 0. With s values it is
    2 d (d (s - 1) + 1) (H_s - 1) / s: the radius has mean (k + 1) c, and the largest of s flat Dirichlet weights has
    mean H_s / s, with the harmonic number H_s. A ball only makes it smaller.

    Parameters
    ----------
    values : int
        s >= 2.
    dimension : int
        d >= 1.

    Returns
    -------
    float
        In units of one loss.
    """
    s, d = check_count("values", values, minimum=2), check_count("dimension", dimension)
    harmonic = math.fsum(1.0 / k for k in range(1, s + 1))
    return 2.0 * d * (d * (s - 1) + 1) * (harmonic - 1.0) / s
