"""NoiseReduction: correlated Laplace releases along an increasing list of privacy levels.

Source: ligett2017, Algorithm 1 and Theorem 2.7 (Koufogiannis, Han and Pappas 2017), with the coins
drawn *per coordinate* (erratum AF-4: one shared coin keeps every marginal and breaks privacy).

The algorithm as printed flips a coin for each coordinate and each of T levels. Between two levels s < t
all coins say "keep" with probability (epsilon_s / epsilon_t)**2, whatever lies between them, since the
product telescopes. So the next level at which a coordinate moves can be drawn directly from one uniform
number, and the cost depends on the number of moves, about 2 log(epsilon_T / epsilon_1) a coordinate, and
not on T.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from adaptive_dp.accuracy_first.levels import IndexArray, PrivacyLevels, as_levels
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Release
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_increasing_epsilons,
    check_positive,
)

SOURCE = "ligett2017, Algorithm 1 and Theorem 2.7; erratum AF-4"


@dataclass(frozen=True, eq=False)
class NoisePath:
    """All T noisy values of one array, stored as the coarsest one and the moves that refine it.

    The object holds the *least* private value too, so it is private itself: publish
    ``path.release(level)``, never the path.

    Attributes
    ----------
    coarse : ndarray, shape (k,)
        Flattened value at level 0, the most private one.
    level, coordinate, value : ndarray, shape (m,)
        Move ``i`` sets ``coordinate[i]`` to ``value[i]`` from ``level[i]`` on; sorted by level.
    shape : tuple of int
        Shape of the array that was released.
    """

    coarse: FloatArray
    level: IndexArray
    coordinate: IndexArray
    value: FloatArray
    shape: tuple[int, ...]
    epsilons: PrivacyLevels
    sensitivity: float

    def __post_init__(self) -> None:
        for array in (self.coarse, self.level, self.coordinate, self.value):
            array.setflags(write=False)

    @property
    def levels(self) -> int:
        """Number T of levels."""
        return len(self.epsilons)

    @property
    def moves(self) -> int:
        """How often a coordinate changes along the whole path."""
        return int(self.level.size)

    def at(self, level: int) -> FloatArray:
        """Value at one level (0 is the most private), a new array of the released shape."""
        last = np.searchsorted(self.level, self._index(level), side="right")
        current = self.coarse.copy()
        # Moves are sorted by level and numpy keeps the last of repeated assignments.
        current[self.coordinate[:last]] = self.value[:last]
        return current.reshape(self.shape)

    def walk(self) -> Iterator[FloatArray]:
        """Yield the value at each level, most private first, as a read-only view of *one* buffer.

        Copy what has to be kept. Each step costs the number of moves at that level.
        """
        current = self.coarse.copy()
        view = current.reshape(self.shape)
        view.setflags(write=False)
        starts = np.searchsorted(self.level, np.arange(1, self.levels + 1), side="left")
        yield view
        for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if end > begin:
                current[self.coordinate[begin:end]] = self.value[begin:end]
            yield view

    def release(
        self, level: int, *, neighbours: Neighbours = Neighbours.REPLACE_ONE, domain: Domain | None = None
    ) -> Release[FloatArray]:
        """Publish the value at one level; every more private value is then free (post-processing)."""
        index = self._index(level)
        guarantee = Guarantee(
            kind="ex-ante",
            epsilon=self.epsilons[index],
            neighbours=neighbours,
            domain=domain,
            parts={"generate": self.epsilons[index]},
            source=SOURCE,
        )
        return Release(self.at(index), guarantee, index=index)

    def _index(self, level: int) -> int:
        index = check_count("level", level, minimum=0)
        if index >= self.levels:
            raise ValueError(f"level must be below {self.levels}, got {index}")
        return index

    def __repr__(self) -> str:
        return f"<private noise path of shape {self.shape} over {self.levels} levels; publish release(level)>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise path is private and cannot be pickled; send path.release(level) instead")


def noise_reduction(
    value: ArrayLike,
    *,
    sensitivity: float,
    epsilons: PrivacyLevels | ArrayLike,
    rng: np.random.Generator,
) -> NoisePath:
    """Draw correlated Laplace releases of ``value``; any prefix costs only its last epsilon.

    Level t has exactly the law ``value + Laplace(sensitivity / epsilon_t)`` in each coordinate,
    independently over coordinates, and levels 0 ... t-1 are a randomised function of level t.

    Parameters
    ----------
    value : array_like of any shape
        What is to be released; finite.
    sensitivity : float
        l1 sensitivity of ``value`` under the neighbouring relation that the caller declares.
    epsilons : PrivacyLevels or array_like, shape (T,)
        Strictly increasing, at least two.
    rng : numpy.random.Generator

    Returns
    -------
    NoisePath
        Private; ``path.release(level)`` is epsilon_level-differentially private.

    Notes
    -----
    Time and memory O(k (1 + log(epsilon_T / epsilon_1))) for k coordinates, whatever T is; for a listed
    (not geometric) list a factor log T in time.
    """
    array = as_finite_array("value", value)
    delta = check_positive("sensitivity", sensitivity)
    levels = as_levels(epsilons)
    if delta / sys.float_info.max >= levels[0]:
        raise ValueError(
            f"epsilons must not be so small that the noise overflows, got {levels[0]!r} at index 0"
        )
    check_generator(rng)
    finest = len(levels) - 1
    current = array.ravel() + rng.laplace(scale=delta / levels[finest], size=array.size)
    moves = _draw_moves(current, levels, delta, rng)
    level, coordinate, before = (np.concatenate(part) for part in zip(*moves, strict=True))
    order = np.argsort(level)  # ties are moves of different coordinates: their order does not matter
    return NoisePath(
        coarse=current,
        level=level[order],
        coordinate=coordinate[order],
        value=before[order],
        shape=array.shape,
        epsilons=levels,
        sensitivity=delta,
    )


def _draw_moves(
    current: FloatArray, levels: PrivacyLevels, sensitivity: float, rng: np.random.Generator
) -> list[tuple[IndexArray, IndexArray, FloatArray]]:
    """Walk from the finest level to the coarsest, changing ``current`` in place; one round a move.

    Each round gives (level from which the old value holds, coordinate, old value) of the coordinates
    that move once more.
    """
    coordinate = np.arange(current.size, dtype=np.int64)
    standing_at = np.full(current.size, len(levels) - 1, dtype=np.int64)
    moves = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))]
    while coordinate.size:
        # P(no move at levels s ... t-1 | standing at t) = (epsilon_s / epsilon_t)^2, so the next move is
        # at the largest s with epsilon_s < epsilon_t sqrt(uniform).
        bound = levels.at(standing_at) * np.sqrt(rng.random(coordinate.size))
        target = levels.below(bound)
        moving = target >= 0
        coordinate, target = coordinate[moving], target[moving]
        moves.append((target + 1, coordinate, current[coordinate]))
        current[coordinate] += rng.laplace(size=coordinate.size) * (sensitivity / levels.at(target))
        standing_at = target
    return moves


def noise_reduction_marginal(epsilon: float, *, sensitivity: float, value: float = 0.0) -> Any:
    """The exact law of one coordinate at level ``epsilon``: Laplace(sensitivity / epsilon) around ``value``.

    Source: ligett2017, Theorem 2.7. Returns a frozen scipy distribution.
    """
    scale = check_positive("sensitivity", sensitivity) / check_positive("epsilon", epsilon)
    return stats.laplace(loc=value, scale=scale)


def step_characteristic_function(
    frequency: ArrayLike, *, coarse_epsilon: float, fine_epsilon: float, sensitivity: float
) -> FloatArray:
    """Characteristic function of what one step of NoiseReduction adds on the way to the coarser level.

    k + (1 - k) / (1 + b^2 s^2) with k = (epsilon_coarse / epsilon_fine)^2 and b = sensitivity /
    epsilon_coarse. Times the Laplace characteristic function of the finer level this is the Laplace
    characteristic function of the coarser one: the proof of Theorem 2.7 in one line.
    """
    s = as_finite_array("frequency", frequency)
    check_positive("sensitivity", sensitivity)
    check_increasing_epsilons([coarse_epsilon, fine_epsilon], name="coarse_epsilon, fine_epsilon")
    keep = (coarse_epsilon / fine_epsilon) ** 2
    scale = sensitivity / coarse_epsilon
    return np.asarray(keep + (1 - keep) / (1 + (scale * s) ** 2), dtype=np.float64)
