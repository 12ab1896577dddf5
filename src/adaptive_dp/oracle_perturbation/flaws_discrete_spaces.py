"""Finite spaces for the counterexample of ``flaws_discrete_tail``, with an exact oracle: the limit on real spaces.

The theorem lets W grow. Here are the spaces themselves, in few dimensions, where they have up to millions of members:
the regular polygon, for which the probabilities are exact integrals, and the sphere cut into tiles with a lattice in
each. The pattern of losses has three values, so that the perturbed minimum over W is found exactly from the nearest
pole, winner and rival, three searches in k-d trees.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.special import gammaincc, gammainccinv, ndtr, owens_t

from adaptive_dp.oracle_perturbation.flaws_discrete_tail import limit_probabilities
from adaptive_dp.oracle_perturbation.problems import TableProblem
from adaptive_dp.oracle_perturbation.spaces import PointSet
from adaptive_dp.validation import FloatArray, check_count, check_ordinary, check_positive, check_real

POLE, WINNER, RIVAL = 0, 1, 2
# Members keep this many halves of the spacing from the boundary of their tile: two tiles never come closer than it.
MARGIN = 1.04
# Members this many spacings from the boundary are poles: a winner without all its neighbours would win too much.
RIM = 1.6


@dataclass(frozen=True, slots=True, eq=False)
class PatternedSpace:
    """Members on the unit sphere, each a pole, a winner or a rival.

    Parameters
    ----------
    members : ndarray, shape (N, d)
        Unit vectors: D = 1.
    kinds : ndarray of int, shape (N,)
        0 pole, 1 winner, 2 rival; at least one pole and one winner.
    """

    members: FloatArray
    kinds: NDArray[np.int64]
    separation: float = field(init=False, default=0.0)
    """tau: the smallest distance between two members."""
    _trees: dict[int, cKDTree] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        whole = cKDTree(self.members)
        object.__setattr__(self, "separation", float(np.asarray(whole.query(self.members, k=[2])[0]).min()))
        for kind in (POLE, WINNER, RIVAL):
            if (self.kinds == kind).any():
                self._trees[kind] = cKDTree(self.members[self.kinds == kind])

    @property
    def dimension(self) -> int:
        """Dimension d of the sphere's space."""
        return int(self.members.shape[1])

    @property
    def shift(self) -> float:
        """4 G D^2 / tau with D = 1 and G = 1 / tau: losses lie in [0, 1]."""
        return 4 / self.separation**2

    def costs(self, floor: float, *, first: bool) -> dict[int, float]:
        """Sum of the losses of each kind of member on D or D', up to a constant."""
        return {POLE: 0.0, WINNER: floor + (0 if first else 2), RIVAL: floor}

    def problems(self, floor: int) -> tuple[TableProblem, TableProblem]:
        """D and D' as tables: the replaced record first, then floor + 1 records that make up the base loss."""
        winner, pole = self.kinds == WINNER, self.kinds == POLE
        base = np.where(winner, 1.0, np.where(pole, 0.0, floor / (floor + 1)))
        others = np.tile(base, (floor + 1, 1))
        space = PointSet(self.members, bound=1.0)
        first, second = (
            TableProblem(np.vstack([row.astype(np.float64), others]), space) for row in (~winner, winner)
        )
        return first, second

    def winners(self, noise: FloatArray, floor: float, *, first: bool) -> NDArray[np.bool_]:
        """Whether the perturbed minimiser is a winner, exactly, for each row of ``noise`` (T, d).

        -<eta, w> is |eta| |v - w|^2 / 2 - |eta| with v = eta / |eta|: of each kind only the nearest member counts.
        """
        length = np.linalg.norm(noise, axis=1)
        direction = noise / length[:, np.newaxis]
        cost = self.costs(floor, first=first)
        best = {
            kind: cost[kind] + 0.5 * length * tree.query(direction)[0] ** 2
            for kind, tree in self._trees.items()
        }
        won = best[WINNER] < best[POLE]
        return np.asarray(won & (best[WINNER] < best[RIVAL]) if RIVAL in best else won)


def tiled_sphere(dimension: int, *, tiles: int, spacing: float) -> PatternedSpace:
    """The sphere of R^d cut into 2 d tiles^(d-1) pieces, with the pattern on a lattice in each.

    The pieces are the cones over the cells of grids on the faces of a cube. In each the lattice lies in the tangent
    space at its centre and is projected to the sphere; points at the boundary of their piece are left out, those near
    it are poles.

    Parameters
    ----------
    dimension : int
        d >= 3.
    tiles : int
        Cells along each axis of a face.
    spacing : float
        t, the spacing of the lattice; the separation is a little below it.
    """
    d = check_count("dimension", dimension, minimum=3)
    cells, t = check_count("tiles", tiles), check_ordinary("spacing", spacing)
    # Equal angles make the tiles of similar size.
    edges = np.tan(np.linspace(-math.pi / 4, math.pi / 4, cells + 1))
    points, kinds = [], []
    for axis, sign in product(range(d), (-1.0, 1.0)):
        for cell in product(range(cells), repeat=d - 1):
            low, high = edges[list(cell)], edges[[c + 1 for c in cell]]
            tile, kind = _tile(axis, sign, low, high, t)
            points.append(tile)
            kinds.append(kind)
    return PatternedSpace(np.concatenate(points), np.concatenate(kinds))


def _tile(
    axis: int, sign: float, low: FloatArray, high: FloatArray, t: float
) -> tuple[FloatArray, NDArray[np.int64]]:
    """Members in the cone over one cell of one face, and their kinds."""
    d = len(low) + 1
    corners = np.array(list(product(*zip(low, high, strict=True))))
    centre = _on_face(0.5 * (low + high)[np.newaxis, :], axis, sign)[0]
    centre /= np.linalg.norm(centre)
    basis = np.linalg.svd(centre[np.newaxis, :])[2][1:]  # rows: the orthogonal complement
    rim = _on_face(corners, axis, sign)
    flat = (rim @ basis.T) / (rim @ centre)[:, np.newaxis]
    reach = math.ceil(float(np.abs(flat).max()) / t)
    z = np.stack(np.meshgrid(*[np.arange(-reach, reach + 1)] * (d - 1), indexing="ij"), axis=-1).reshape(
        -1, d - 1
    )
    v = centre + t * z @ basis
    v /= np.linalg.norm(v, axis=1)[:, np.newaxis]
    height, across = v[:, axis] * sign, np.delete(v, axis, axis=1)
    # Distances to the walls of the cone, positive inside.
    walls = [
        side * (across[:, j] - edge * height) / math.sqrt(1 + edge**2)
        for j in range(d - 1)
        for edge, side in ((low[j], 1.0), (high[j], -1.0))
    ]
    depth = np.where(height > 0, np.min(walls, axis=0), -1.0)
    inside = depth >= 0.5 * MARGIN * t
    z, v, depth = z[inside], v[inside], depth[inside]
    even = z[:, 1:].sum(axis=1) % 2 == 0
    pole = (z[:, 0] % 2 == 1) | (depth < RIM * t)
    return v, np.where(pole, POLE, np.where(even, WINNER, RIVAL))


def _on_face(flat: FloatArray, axis: int, sign: float) -> FloatArray:
    return np.insert(flat, axis, sign, axis=1)


def winner_probabilities(
    space: PatternedSpace, *, ratio: float, floor: float, runs: int, rng: np.random.Generator
) -> tuple[float, float, float]:
    """P_D(S), P_D'(S) and the standard error of the larger one, by importance sampling with the exact oracle.

    Parameters
    ----------
    space : PatternedSpace
    ratio : float
        sigma over ``space.shift``.
    floor : float
        b >= 0.
    runs : int
        Noise vectors, shared by the two data sets: |eta| / sigma is drawn from its law above half the least value at
        which a winner can be chosen at all in the limit, the direction uniformly.
    """
    d, s, count = space.dimension, check_ordinary("ratio", ratio), check_count("runs", runs, minimum=2)
    least = 0.5 * check_real("floor", floor) / (2 * s)
    tail = float(gammaincc(0.5 * d, 0.5 * least**2))
    radius = np.sqrt(2 * gammainccinv(0.5 * d, tail * rng.random(count)))
    direction = rng.normal(size=(count, d))
    direction *= (s * space.shift * radius / np.linalg.norm(direction, axis=1))[:, np.newaxis]
    first, second = (space.winners(direction, floor, first=which).mean() for which in (True, False))
    error = tail * math.sqrt(max(first * (1 - first), 1 / count) / count)
    return tail * float(first), tail * float(second), error


def sphere_table(
    spacings: Sequence[float],
    *,
    runs: int,
    rng: np.random.Generator,
    ratio: float = 1.0,
    floor: float = 3.0,
    tiles: int = 8,
) -> pd.DataFrame:
    """P_D(S) and P_D'(S) on tiled spheres of R^3, with their limit in the last row.

    Two errors have opposite signs: the rims of the tiles take space from the winners, and the curvature of a tile makes
    most distances larger than tau, so that the noise is a little larger than the lattice asks for.

    Returns
    -------
    DataFrame
        ``spacing`` (0 for the limit), ``members``, ``D / tau``, ``P_D``, ``P_D'`` and the standard ``error`` of P_D.
    """
    rows = []
    for spacing in spacings:
        space = tiled_sphere(3, tiles=tiles, spacing=spacing)
        first, second, error = winner_probabilities(space, ratio=ratio, floor=floor, runs=runs, rng=rng)
        row = {"spacing": spacing, "members": float(len(space.members)), "D / tau": 1 / space.separation}
        rows.append(row | {"P_D": first, "P_D'": second, "error": error})
    first, second = limit_probabilities(3, ratio=ratio, floor=floor)
    limit = {
        "spacing": 0.0,
        "members": math.inf,
        "D / tau": math.inf,
        "P_D": first,
        "P_D'": second,
        "error": 0.0,
    }
    return pd.DataFrame([*rows, limit])


# --- two dimensions: exact ----------------------------------------------------------------------------


def polygon(sides: int) -> PatternedSpace:
    """Regular polygon with an even number of corners: winners and poles in turn."""
    corners = check_count("sides", sides, minimum=4)
    if corners % 2:
        raise ValueError(f"sides must be even, got {corners}")
    angle = 2 * math.pi * np.arange(corners) / corners
    return PatternedSpace(
        np.column_stack([np.cos(angle), np.sin(angle)]), np.where(np.arange(corners) % 2 == 0, WINNER, POLE)
    )


def polygon_winner(sides: int, *, ratio: float, lead: float) -> float:
    """P(the answer is a winner) on the polygon where poles are cheaper by ``lead`` > 0, exactly.

    With h half the angle of a side the noise lies phi in [0, h] from the middle of the side, on the winner's side with
    probability 1/2, and the pole costs 2 rho sin(h) sin(phi) more: that must exceed the lead, where sigma is
    s / sin^2(h). The integral is the one of ``rings_odd``.

    Parameters
    ----------
    sides : int
        Even.
    ratio : float
        s.
    lead : float
        b on D, b + 2 on D'.
    """
    corners, s = check_count("sides", sides, minimum=4), check_ordinary("ratio", ratio)
    h = math.pi / corners
    a = check_positive("lead", lead) * math.sin(h) / (2 * s)
    return math.pi / h * (0.5 * float(ndtr(-a)) - float(owens_t(a, 1 / math.tan(h))))


def polygon_limit(*, ratio: float, lead: float) -> float:
    """Limit of :func:`polygon_winner` for many corners: E (1 - r0 / R)_+ / 2 with r0 = lead / (2 s), R ~ chi_2.

    In two dimensions there are no rivals: half the points are winners, and the share is the one of the theorem with
    (1/2) in place of (1/4).
    """
    r0 = check_positive("lead", lead) / (2 * check_ordinary("ratio", ratio))
    # E(1 ; R > r0) = exp(-r0^2 / 2) and E(1 / R ; R > r0) is an integral of exp(-r^2 / 2).
    return 0.5 * (math.exp(-0.5 * r0**2) - r0 * math.sqrt(2 * math.pi) * float(ndtr(-r0)))
