"""The exact output law of OPDisc on small spaces in one and two dimensions: privacy checked without drawing.

The noise vectors that lead to w form a convex polyhedron, its *cell*: <eta, pi(w) - pi(v)> >= L(w) - L(v) for every v.
With d = 1 the noise is in the plane. A ray from the origin meets the cell in an interval, on which the radial law
has a closed form; the angle is left to a quadrature between break points.

With d = 2 it is in space, and the divergence theorem takes one dimension off. The field
V = -(1 - F(r)) eta / (4 pi r^3), with F the distribution function of r = ||eta||, has the noise density as its
divergence, but for the origin. So the probability of a cell is the share of the directions at the origin that lie in
it (1 for the only minimiser on the data, 0 for a point that is worse) plus the flux through its faces. The face
between w and v lies in a plane at the distance |b| / |a| from the origin, with a = pi(w) - pi(v) and b = L(w) - L(v),
and its flux is

    b / (4 pi |a|) times the integral over the face of (1 - F(r)) / r^3,

a planar integral of the first kind again, with a radial part in closed form. What cells share, faces, enters both
with opposite signs, so that the law sums to one up to rounding whatever the quadrature does; comparisons with a
quadrature on the sphere and with draws are in the tests. Everything is exact to about 1e-13, absolutely.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfc

from adaptive_dp.oracle_perturbation.opdisc import LiftedNoise
from adaptive_dp.oracle_perturbation.problems import TableProblem, ThresholdProblem
from adaptive_dp.oracle_perturbation.spaces import FiniteSpace, IntegerBall, is_space, lift
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_real

LARGEST_SPACE = 40
# Gauss-Legendre nodes on intervals that shrink by halves towards both ends of a panel: next to a break point the
# integrand may change over a width as small as a loss over the scale of the noise.
LEVELS, NODES_EACH = 24, 10
Tail = Callable[[FloatArray], FloatArray]


def output_law(
    problem: ThresholdProblem | TableProblem | FiniteSpace,
    noise: LiftedNoise,
    *,
    total: ArrayLike | None = None,
) -> FloatArray:
    """Probability of each member under OPDisc with an exact oracle.

    Parameters
    ----------
    problem : ThresholdProblem, TableProblem or FiniteSpace
        At most 40 members in one or two dimensions.
    noise : LiftedNoise
        As ``opdisc.plan`` returns it.
    total : array_like, shape (N,), or None
        Sums of losses L(w), in the order of ``points()``; for a space only.

    Returns
    -------
    ndarray, shape (N,)
        In the order of ``points()``.

    Raises
    ------
    TypeError, ValueError
        Another kind of problem, a space that is too large or has too many dimensions, noise of another dimension.
    """
    space, losses = _space_and_total(problem, total)
    _check_noise(space, noise)
    points = _lifted(space)
    margins = losses / noise.scale  # in units of the scale of the noise
    if space.dimension == 1:
        law = np.array([_planar_cell(points, margins, w, noise) for w in range(len(points))])
    else:
        law = _spatial_law(points, margins, noise)
    return 2 * law if noise.folded else law


def member_probability(space: FiniteSpace, noise: LiftedNoise, *, total: ArrayLike, place: int) -> float:
    """Probability of the member in one place alone; otherwise as :func:`output_law`, and that many times faster."""
    space, losses = _space_and_total(space, total)
    _check_noise(space, noise)
    points, margins = _lifted(space), losses / noise.scale
    index = check_count("place", place, minimum=0)
    if index >= space.size:
        raise ValueError(f"place must be below {space.size}, got {index}")
    cell = _planar_cell if space.dimension == 1 else _spatial_cell
    return (2 if noise.folded else 1) * cell(points, margins, index, noise)


def hockey_stick(first: ArrayLike, second: ArrayLike, epsilon: float) -> float:
    """Sum of (P(w) - e^epsilon Q(w))_+: the smallest delta for which this pair is (epsilon, delta)-close, one way."""
    p, q = as_finite_array("first", first, ndim=1), as_finite_array("second", second, ndim=1)
    if p.shape != q.shape:
        raise ValueError(f"first and second must have one shape, got {p.shape} and {q.shape}")
    return float(np.maximum(p - math.exp(check_real("epsilon", epsilon)) * q, 0.0).sum())


def largest_log_ratio(first: ArrayLike, second: ArrayLike, *, floor: float = 1e-9) -> float:
    """Largest |log(P(w) / Q(w))| over the members of which neither probability is below ``floor``.

    Below it the last digits of the quadrature would count.
    """
    p, q = as_finite_array("first", first, ndim=1), as_finite_array("second", second, ndim=1)
    if p.shape != q.shape:
        raise ValueError(f"first and second must have one shape, got {p.shape} and {q.shape}")
    seen = np.minimum(p, q) >= floor
    return float(np.abs(np.log(p[seen] / q[seen])).max()) if seen.any() else 0.0


# --- one dimension ------------------------------------------------------------------------------------


def _planar_cell(points: FloatArray, margins: FloatArray, w: int, noise: LiftedNoise) -> float:
    """Mass of the cell of w, or of its half above the axis."""
    others = np.arange(len(points)) != w
    # <eta, pi(v) - pi(w)> <= L(v) - L(w)
    normals, offsets = points[others] - points[w], margins[others] - margins[w]
    if noise.folded:
        normals, offsets = np.vstack([normals, [0.0, -1.0]]), np.append(offsets, 0.0)
    return _planar_integral(normals, offsets, _plane_tail(noise.kind)) / (2 * math.pi)


def _plane_tail(kind: str) -> Tail:
    """P(||eta|| > r) in the plane, scale 1."""
    if kind == "norm":
        return lambda r: (1 + r) * np.exp(-r)
    return lambda r: np.exp(-0.5 * r * r)


# --- two dimensions -----------------------------------------------------------------------------------


def _spatial_law(points: FloatArray, margins: FloatArray, noise: LiftedNoise) -> FloatArray:
    law = np.array([_share_at_the_origin(points, margins, w, noise.folded) for w in range(len(points))])
    for w, v in itertools.combinations(range(len(points)), 2):
        flux = _face_flux(points, margins, w, v, noise)
        law[w] += flux
        law[v] -= flux
    return law


def _spatial_cell(points: FloatArray, margins: FloatArray, w: int, noise: LiftedNoise) -> float:
    """Mass of the cell of w, or of its upper half."""
    faces = sum(_face_flux(points, margins, w, v, noise) for v in range(len(points)) if v != w)
    return faces + _share_at_the_origin(points, margins, w, noise.folded)


def _face_flux(points: FloatArray, margins: FloatArray, w: int, v: int, noise: LiftedNoise) -> float:
    """Flux of the field out of the cell of w through the face that it shares with the cell of v."""
    normal, offset = points[w] - points[v], float(margins[w] - margins[v])
    if offset == 0:
        return 0.0
    size = float(np.linalg.norm(normal))
    foot = normal * (offset / size**2)
    plane = np.linalg.svd(normal[np.newaxis] / size)[2][1:]
    others = np.array([x for x in range(len(points)) if x not in (w, v)], dtype=int)
    # <eta, pi(x) - pi(w)> <= L(x) - L(w), seen from the foot of the perpendicular.
    normals, offsets = points[others] - points[w], margins[others] - margins[w]
    if noise.folded:
        normals, offsets = np.vstack([normals, [0.0, 0.0, -1.0]]), np.append(offsets, 0.0)
    height = abs(offset) / size
    tail = _face_tail(noise.kind)
    value = _planar_integral(normals @ plane.T, offsets - normals @ foot, lambda r: tail(np.hypot(height, r)))
    return math.copysign(height, offset) * value / (4 * math.pi)


def _face_tail(kind: str) -> Tail:
    """Integral from r of (1 - F(t)) / t^2 dt in space, scale 1: the radial part of the flux through a face."""
    if kind == "norm":  # 1 - F = e^-t (1 + t + t^2 / 2)
        return lambda r: np.exp(-r) * (1 / r + 0.5)
    return lambda r: np.asarray(erfc(r / math.sqrt(2)) / r)


def _share_at_the_origin(points: FloatArray, margins: FloatArray, w: int, folded: bool) -> float:
    """Share of the sphere of directions in which the cell of w, or its upper half, leaves the origin."""
    best = np.flatnonzero(margins == margins.min())
    if w not in best:
        return 0.0
    normals = points[w] - points[best[best != w]]
    if folded:
        normals = np.vstack([normals, [0.0, 0.0, 1.0]])
    return _cone_share(points[w], normals) if len(normals) else 1.0


def _cone_share(axis: FloatArray, normals: FloatArray) -> float:
    """Share of the sphere in the cone <u, normal> >= 0, whose closure holds the unit vector ``axis``.

    In polar coordinates around the axis the cone reaches from 0 to the smallest of the angles
    pi / 2 + atan2(q, p), with p = <axis, normal> >= 0 and q = <e(phi), normal>.
    """
    frame = np.linalg.svd(axis[np.newaxis])[2][1:]
    heights, flat = normals @ axis, normals @ frame.T
    heights = np.maximum(heights, 0.0)
    i, j = np.triu_indices(len(flat), 1)
    ties = flat[i] * heights[j, np.newaxis] - flat[j] * heights[i, np.newaxis]
    edges = _panels(np.concatenate([_across(flat), _across(ties)]))
    nodes, weights = _graded(edges)
    q = flat @ np.stack([np.cos(nodes), np.sin(nodes)])
    # cos(pi / 2 + atan2(q, p)) = -sin(atan2(q, p)); the smallest angle has the largest cosine.
    size = np.hypot(q, heights[:, np.newaxis])
    cosine = np.max(np.divide(-q, size, out=np.zeros_like(q), where=size > 0), axis=0)
    return float(weights @ (1 - cosine)) / (4 * math.pi)


# --- integrals in the plane ---------------------------------------------------------------------------


def _planar_integral(normals: FloatArray, offsets: FloatArray, tail: Tail) -> float:
    """Integral over the angle of tail(low) - tail(high), for {y : <y, normal> <= offset for all}.

    ``low`` and ``high`` are the ends of the part of a ray from the origin that lies in the polygon; ``tail`` falls from
    0 on and vanishes at infinity.
    """
    if not len(normals):
        return 2 * math.pi * float(tail(np.zeros(1))[0])
    i, j = np.triu_indices(len(normals), 1)
    cross = normals[i, 0] * normals[j, 1] - normals[i, 1] * normals[j, 0]
    i, j, cross = i[cross != 0], j[cross != 0], cross[cross != 0]
    x = (offsets[i] * normals[j, 1] - offsets[j] * normals[i, 1]) / cross
    y = (offsets[j] * normals[i, 0] - offsets[i] * normals[j, 0]) / cross
    joints = np.concatenate([_across(normals), np.arctan2(y, x)])
    edges = _panels(joints)
    edges = _joined(normals, offsets, edges)
    if not len(edges):
        return 0.0
    nodes, weights = _graded(edges)
    low, high, _ = _interval(normals, offsets, nodes)
    some = high > low
    part = tail(np.minimum(low[some], 1e100)) - np.where(
        np.isinf(high[some]), 0.0, tail(np.minimum(high[some], 1e100))
    )
    return float(weights[some] @ part)


def _interval(
    normals: FloatArray, offsets: FloatArray, angles: FloatArray
) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
    """Ends of the ray's part in the polygon for each angle, and which constraints make them (shape (2, angles))."""
    speeds = normals @ np.stack([np.cos(angles), np.sin(angles)])
    column = np.broadcast_to(offsets[:, np.newaxis], speeds.shape)
    at = np.divide(column, speeds, out=np.full_like(speeds, -np.inf), where=speeds != 0)
    upper = np.where((speeds > 0) | ((speeds == 0) & (column < 0)), at, np.inf)
    lower = np.where(speeds < 0, at, 0.0)
    low, high = np.maximum(lower.max(axis=0), 0.0), upper.min(axis=0)
    return low, high, np.stack([lower.argmax(axis=0), upper.argmin(axis=0)])


def _joined(normals: FloatArray, offsets: FloatArray, edges: FloatArray) -> FloatArray:
    """Panels (k, 2) on which the ray meets the polygon, neighbours with the same ends joined to one."""
    low, high, which = _interval(normals, offsets, edges.mean(axis=1))
    which = np.where(np.isinf(high), [[0], [-1]], 0) + which * np.stack([low > 0, np.isfinite(high)])
    kept: list[list[float]] = []
    last: tuple[Any, ...] = ()
    for (left, right), hit, ends in zip(edges.tolist(), high > low, which.T.tolist(), strict=True):
        if not hit:
            last = ()
        elif last == tuple(ends):
            kept[-1][1] = right
        else:
            kept.append([left, right])
            last = tuple(ends)
    return np.array(kept).reshape(-1, 2)


def _across(vectors: FloatArray) -> FloatArray:
    """The two directions orthogonal to each vector (m, 2) of the plane, as angles; none for zero vectors."""
    some = vectors[vectors.any(axis=1)]
    angles = np.arctan2(some[:, 1], some[:, 0])
    return np.concatenate([angles - 0.5 * math.pi, angles + 0.5 * math.pi])


def _panels(joints: FloatArray) -> FloatArray:
    """Cut the circle at the joints: panels (k, 2)."""
    places = np.unique(np.mod(joints, 2 * math.pi))
    if not len(places):
        places = np.zeros(1)
    return np.stack([places, np.append(places[1:], places[0] + 2 * math.pi)], axis=1)


def _template() -> tuple[FloatArray, FloatArray]:
    """Nodes and weights on [0, 1], graded towards both ends."""
    near = 0.5 ** np.arange(LEVELS, 0, -1)
    edges = np.concatenate([[0.0], near, (1 - near[-2::-1]), [1.0]])
    nodes, weights = np.polynomial.legendre.leggauss(NODES_EACH)
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    return (edges[:-1, np.newaxis] + half * (1 + nodes)).ravel(), (half * weights).ravel()


TEMPLATE_NODES, TEMPLATE_WEIGHTS = _template()


def _graded(panels: FloatArray) -> tuple[FloatArray, FloatArray]:
    width = panels[:, 1] - panels[:, 0]
    nodes = panels[:, :1] + width[:, np.newaxis] * TEMPLATE_NODES
    return nodes.ravel(), (width[:, np.newaxis] * TEMPLATE_WEIGHTS).ravel()


def _check_noise(space: FiniteSpace, noise: LiftedNoise) -> None:
    if not isinstance(noise, LiftedNoise):
        raise TypeError(f"noise must be a LiftedNoise, got {type(noise).__name__}")
    if space.dimension > 2 or space.size > LARGEST_SPACE:
        raise ValueError(
            f"space must have at most 2 dimensions and {LARGEST_SPACE} members, got {space.dimension} and {space.size}"
        )
    if noise.coordinates != space.dimension + 1:
        raise ValueError(f"noise must have {space.dimension + 1} coordinates, got {noise.coordinates}")


def _lifted(space: FiniteSpace) -> FloatArray:
    """pi(w) for every member; from integers where there are any, as D^2 - |w|^2 is otherwise only right to 1e-16."""
    if not isinstance(space, IntegerBall):
        return lift(space.points(), space.radius)
    points = space.points()
    rest = np.sqrt(space.squared_radius - np.square(points).sum(axis=1, keepdims=True))
    return np.asarray(np.hstack([points, rest]) / space.radius)


def _space_and_total(
    problem: ThresholdProblem | TableProblem | FiniteSpace, total: ArrayLike | None
) -> tuple[FiniteSpace, FloatArray]:
    if isinstance(problem, ThresholdProblem | TableProblem):
        if total is not None:
            raise ValueError("total comes with the problem; give it with a space only")
        if isinstance(problem, TableProblem):
            return problem.space, problem.total
        return problem.space, problem.errors(problem.space.points()).astype(np.float64)
    if not is_space(problem):
        raise TypeError(f"problem must be a problem or a finite space, got {type(problem).__name__}")
    if total is None:
        raise ValueError("total must be given with a space")
    losses = as_finite_array("total", total, ndim=1)
    if losses.shape[0] != problem.size:
        raise ValueError(f"total must have one entry a member, {problem.size}, got {losses.shape[0]}")
    return problem, losses
