"""OPDisc against noise on separators: section 3.1 of neel2019 with sound noise, in bounds and in what is measured.

The paper compares two rates and concludes that OPDisc is better by a factor of d sqrt(tau). Both rates are for noise
that is not private in many dimensions (errata 0 and 13). Here the same question is asked of mechanisms that are pure
epsilon-DP, three times: of the bounds, of the exact quantile of the excess in the worst data (by simulation of the
noise alone), and of one learning problem that is small enough for the exponential mechanism to be computed exactly.

All excesses are in errors, on the scale of the sum of the losses, and all noise is without the gap (a = 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from adaptive_dp.experiments import profile_settings
from adaptive_dp.noise import norm_exponential
from adaptive_dp.oracle_perturbation.discrete_utility import norm_alpha, printed_alpha, tail_alpha
from adaptive_dp.oracle_perturbation.excess_bounds import (
    laplace_crude_excess,
    laplace_separator_excess,
    printed_rspm_excess,
    value_excess,
)
from adaptive_dp.oracle_perturbation.exponential import LossLevels, member_losses
from adaptive_dp.oracle_perturbation.problems import ThresholdProblem
from adaptive_dp.oracle_perturbation.rspm import separator_noise
from adaptive_dp.oracle_perturbation.spaces import IntArray, IntegerBall
from adaptive_dp.oracle_perturbation.value_noise import value_noise
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_ordinary,
    check_probability,
)

MECHANISMS = ("opdisc", "rspm", "rspm box", "values")
# Entries of one block of the perturbations of all members: it should fit the processor's cache.
BLOCK_ENTRIES = 300_000


def comparison_settings(profile: str) -> dict[str, Any]:
    """Sizes of the section's live parts at a profile."""
    cases = ((2, 2), (2, 10), (10, 2), (10, 5), (10, 10), (30, 2), (30, 10))
    levels = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
    quick = {
        "cases": cases[:4],
        "draws": 400,
        "dimension": 6,
        "records": 500,
        "runs": 100,
        "epsilons": levels,
    }
    book = {"cases": cases, "draws": 2_000, "dimension": 8, "records": 2_000, "runs": 400, "epsilons": levels}
    paper = {
        "draws": 5_000,
        "dimension": 10,
        "records": 4_000,
        "runs": 1_000,
        "epsilons": (0.005, 0.01, *levels),
    }
    return profile_settings(profile, quick=quick, book=book, paper={**paper, "cases": (*cases, (100, 10))})


def grid_in_ball(dimension: int, steps: int) -> IntegerBall:
    """Section 3.1's space, the grid of step tau = 1 / ``steps`` in the unit ball, in units of tau."""
    return IntegerBall(dimension, steps, check_count("steps", steps) ** 2)


def tilt_shift(space: IntegerBall) -> float:
    """OPDisc's shift 4 (D / tau)^2 for losses in [0, 1] and an exact oracle, tau = 1."""
    return 4.0 * space.squared_radius


# --- perturbations as tables ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gains:
    """What the noise takes off the objective, N(w) = sum_j per_value[j, w_j + B] + per_squared_norm[|w|^2], many draws.

    Parameters
    ----------
    space : IntegerBall
        W.
    per_value : ndarray, shape (R, d, 2 B + 1)
    per_squared_norm : ndarray, shape (R, K + 1)
    """

    space: IntegerBall
    per_value: FloatArray
    per_squared_norm: FloatArray

    def at(self, points: IntArray) -> FloatArray:
        """N at one member (d,) for every draw, shape (R,), or at members (N, d), shape (R, N)."""
        w = np.asarray(points)
        places = w + self.space.box
        total = sum(self.per_value[:, j, places[..., j]] for j in range(self.space.dimension))
        return np.asarray(total + self.per_squared_norm[:, np.sum(w * w, axis=-1)])

    def largest(self) -> FloatArray:
        """Largest N over W for every draw, shape (R,): a dynamic programme over the squared norm, for any d."""
        box, limit = self.space.box, self.space.squared_radius
        best = np.full((len(self.per_value), limit + 1), -np.inf)
        best[:, 0] = 0.0
        for j in range(self.space.dimension):
            column = self.per_value[:, j]
            new = best + column[:, [box]]
            for v in range(1, box + 1):
                either = np.maximum(column[:, [box + v]], column[:, [box - v]])
                np.maximum(new[:, v * v :], best[:, : limit + 1 - v * v] + either, out=new[:, v * v :])
            best = new
        return np.asarray((best + self.per_squared_norm).max(axis=1))


def lifted_gains(space: IntegerBall, eta: FloatArray) -> Gains:
    """<eta, pi(w)> as tables, for noise of shape (R, d + 1)."""
    limit = space.squared_radius
    last = np.sqrt(1 - np.arange(limit + 1) / limit)
    unit = np.arange(-space.box, space.box + 1) / space.radius
    return Gains(space, eta[:, :-1, np.newaxis] * unit, eta[:, -1:] * last)


def draw_gains(
    mechanism: str, space: IntegerBall, *, epsilon: float, draws: int, rng: np.random.Generator
) -> Gains:
    """Noise of a pure mechanism at ``epsilon``, as tables.

    Parameters
    ----------
    mechanism : {"opdisc", "rspm", "rspm box", "values"}
        OPDisc with norm noise, its last coordinate folded; RSPM with Laplace or with box noise on the 2 d B
        thresholds; joint noise on the values.
    space : IntegerBall
        W.
    epsilon : float
        Positive.
    draws : int
        R.
    rng : numpy.random.Generator
    """
    check_choice("mechanism", mechanism, MECHANISMS)
    d, box, limit = space.dimension, space.box, space.squared_radius
    nothing = np.zeros((draws, limit + 1))
    if mechanism == "opdisc":
        eta = norm_exponential(
            tilt_shift(space) / check_ordinary("epsilon", epsilon), d + 1, rng, draws=draws
        )
        eta[:, -1] = np.abs(eta[:, -1])
        return lifted_gains(space, eta)
    if mechanism == "values":
        return Gains(space, value_noise(space, epsilon=epsilon, gap=0.0).draw(rng, draws=draws), nothing)
    kind = "laplace" if mechanism == "rspm" else "box"
    law = separator_noise(kind, 2 * d * box, epsilon=epsilon, gap=0.0)
    eta = law.draw(rng, draws=draws).reshape(draws, d, 2 * box)
    above, below = np.cumsum(eta[..., :box], axis=-1), np.cumsum(eta[..., box:], axis=-1)
    middle = np.zeros((draws, d, 1))
    return Gains(space, -np.concatenate([below[..., ::-1], middle, above], axis=-1), nothing)


# --- the worst data ----------------------------------------------------------------------------------


def reference_members(space: IntegerBall) -> IntArray:
    """Three possible minimisers: the origin, the longest multiple of e_1, and a member with many equal entries."""
    d, box, limit = space.dimension, space.box, space.squared_radius
    pole, corner = np.zeros(d, dtype=np.int64), np.zeros(d, dtype=np.int64)
    pole[0] = box
    corner[: min(d, limit)] = min(box, max(1, math.isqrt(limit // d)))
    return np.stack([np.zeros(d, dtype=np.int64), pole, corner])


def worst_excess(
    mechanism: str,
    space: IntegerBall,
    *,
    epsilon: float,
    beta: float,
    draws: int,
    rng: np.random.Generator,
) -> float:
    """(1 - beta)-quantile of max_v N(v) - N(w*), the largest over :func:`reference_members`, by simulation.

    For each w* this is the smallest excess that can be promised with probability 1 - beta for all data with bounded
    losses whose minimiser is w*; see :mod:`~adaptive_dp.oracle_perturbation.excess_bounds`.

    Returns
    -------
    float
        In errors.
    """
    level = 1 - check_probability("beta", beta)
    gains = draw_gains(mechanism, space, epsilon=epsilon, draws=draws, rng=rng)
    largest = gains.largest()
    return max(float(np.quantile(largest - gains.at(w), level)) for w in reference_members(space))


def measured_table(
    spaces: Sequence[IntegerBall],
    *,
    epsilon: float = 1.0,
    beta: float = 0.05,
    draws: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Worst-case excess of each mechanism over several spaces.

    Returns
    -------
    DataFrame
        ``d``, ``box``, ``squared_radius``, and one column for each of ``MECHANISMS``, in errors.
    """
    rows = []
    for space in spaces:
        row: dict[str, float] = {
            "d": space.dimension,
            "box": space.box,
            "squared_radius": space.squared_radius,
        }
        for mechanism in MECHANISMS:
            row[mechanism] = worst_excess(mechanism, space, epsilon=epsilon, beta=beta, draws=draws, rng=rng)
        rows.append(row)
    return pd.DataFrame(rows)


def spaces_table(*, draws: int, rng: np.random.Generator) -> pd.DataFrame:
    """Worst-case excess on the spaces of the experiments: three of signs, and OPDisc's ball of integers in d = 23.

    Returns
    -------
    DataFrame
        ``space`` in words and one column for each of ``MECHANISMS``, in errors at epsilon = 1, beta = 1/20.
    """
    spaces = {f"signs, d = {d}": IntegerBall.signs(d) for d in (8, 23, 100)}
    spaces["integer ball, d = 23"] = IntegerBall.halfspaces(23)
    found = measured_table(list(spaces.values()), draws=draws, rng=rng)
    found.insert(0, "space", list(spaces))
    return found[["space", *MECHANISMS]]


def bound_table(
    cases: Sequence[tuple[int, int]], *, epsilon: float = 1.0, delta: float = 1e-8, beta: float = 0.05
) -> pd.DataFrame:
    """Section 3.1 in bounds: excess of RSPM over that of OPDisc on the grid of step tau in the unit ball.

    Parameters
    ----------
    cases : sequence of (d, steps)
        Dimension and 1 / tau.
    epsilon, delta, beta : float
        The ratios do not depend on epsilon, and the sound ones not on delta.

    Returns
    -------
    DataFrame
        ``d``, ``steps``, ``rate`` = d sqrt(tau), ``printed`` (Theorems 6 and 1 with constants, noise of Algorithms 3
        and 1), ``crude`` (2 ||eta||_1 against 2 ||eta||, pure noise), ``sharp`` (the quantiles of
        :func:`~adaptive_dp.oracle_perturbation.excess_bounds.laplace_separator_excess` and
        :func:`~adaptive_dp.oracle_perturbation.discrete_utility.tail_alpha`) and ``values`` (independent noise on
        values over OPDisc).
    """
    rows = []
    for d, steps in cases:
        space, m = grid_in_ball(d, steps), 2 * d * steps
        scale, tilt = 2 * m / epsilon, tilt_shift(space) / epsilon
        sigma = (
            1.75 * tilt * math.sqrt(-math.log(delta))
        )  # Algorithm 1: 7 (D / tau)^2 sqrt(ln(1 / delta)) / epsilon
        opdisc: dict[str, Any] = {"dimension": d, "records": 1, "beta": beta}
        best = tail_alpha(noise="norm", scale=tilt, **opdisc)
        printed = printed_rspm_excess(m, epsilon=epsilon, delta=delta, beta=beta)
        rows.append(
            {
                "d": d,
                "steps": steps,
                "rate": d / math.sqrt(steps),
                "printed": printed / printed_alpha(sigma=sigma, **opdisc),
                "crude": laplace_crude_excess(m, scale, beta) / norm_alpha(scale=tilt, **opdisc),
                "sharp": laplace_separator_excess(m, scale, beta) / best,
                "values": value_excess(d, 2 * steps + 1, 2 * d / epsilon, beta) / best,
            }
        )
    return pd.DataFrame(rows)


def section_table(
    cases: Sequence[tuple[int, int]], *, draws: int, rng: np.random.Generator, beta: float = 0.05
) -> pd.DataFrame:
    """RSPM over OPDisc on the grid of section 3.1: the printed rate, the bounds, and what is measured.

    Returns
    -------
    DataFrame
        ``d``, ``steps``, ``rate``, ``crude``, ``sharp`` as in :func:`bound_table`, and ``measured``: the ratio of the
        quantiles of :func:`measured_table` with Laplace noise.
    """
    bounds = bound_table(cases, beta=beta)[["d", "steps", "rate", "crude", "sharp"]]
    found = measured_table([grid_in_ball(d, steps) for d, steps in cases], draws=draws, rng=rng, beta=beta)
    return bounds.assign(measured=found["rspm"] / found["opdisc"])


# --- one learning problem ----------------------------------------------------------------------------


def signs_problem(
    records: int, dimension: int, rng: np.random.Generator, *, flipped: float = 0.1, largest: int = 10
) -> ThresholdProblem:
    """A halfspace of {-1, 0, 1}^d with noisy labels, over :meth:`IntegerBall.signs`.

    Features are uniform integers in [-largest, largest], the true weights uniform on {-1, 1}^d, labels their signs (+1
    at a tie) of which a share ``flipped`` is turned.
    """
    d, n = check_count("dimension", dimension), check_count("records", records)
    bound = check_count("largest", largest)
    x = rng.integers(-bound, bound + 1, (n, d))
    weights = rng.choice([-1, 1], d)
    labels = np.where(x @ weights >= 0, 1, -1) * np.where(rng.random(n) < flipped, -1, 1)
    return ThresholdProblem(x.astype(np.int16), labels.astype(np.int8), IntegerBall.signs(d))


def perturbed_losses(losses: FloatArray, points: IntArray, gains: Gains) -> FloatArray:
    """L at the minimiser of L - N for every draw, shape (R,): what a mechanism's answer loses, by listing W.

    Parameters
    ----------
    losses : ndarray, shape (N,)
    points : ndarray, shape (N, d)
        All members.
    gains : Gains
        Noise of R draws.
    """
    values = as_finite_array("losses", losses, ndim=1)
    draws, d, count = gains.per_value.shape
    # One indicator for each value of each coordinate and for each squared norm: N(w) is a product of matrices.
    squares = np.sum(points * points, axis=1)[:, np.newaxis] == np.arange(gains.space.squared_radius + 1)
    entries = points[:, :, np.newaxis] + gains.space.box == np.arange(count)
    columns = np.column_stack([entries.reshape(len(points), -1), squares]).astype(np.float64).T
    table = np.column_stack([gains.per_value.reshape(draws, d * count), gains.per_squared_norm])
    block = max(1, BLOCK_ENTRIES // len(values))
    parts = (values - table[at : at + block] @ columns for at in range(0, draws, block))
    return np.concatenate([values[np.argmin(part, axis=1)] for part in parts])


def accuracy_table(
    problem: ThresholdProblem, epsilons: Sequence[float], *, draws: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Mean training accuracy against epsilon: two mechanisms that list W, exactly, and four that need an oracle.

    Parameters
    ----------
    problem : ThresholdProblem
        Over a space that can be listed.
    epsilons : sequence of float
    draws : int
        Of the noise, for each mechanism and epsilon.
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        ``epsilon``, ``mechanism``, ``mean`` accuracy, ``low`` and ``high``: two standard errors about it (the mean
        itself where it is exact). Mechanisms: those of ``MECHANISMS``, ``"exponential"``, ``"permute-and-flip"`` and
        ``"no noise"``.
    """
    losses, points = member_losses(problem), problem.space.points()
    levels, n = LossLevels.of(losses), problem.records
    rows: list[dict[str, float | str]] = []
    for epsilon in epsilons:
        exact = {
            "no noise": float(losses.min()),
            "permute-and-flip": levels.mean(levels.permute_and_flip(epsilon)),
            "exponential": levels.mean(levels.exponential(epsilon)),
        }
        for name, loss in exact.items():
            mean = 1 - loss / n
            rows.append({"epsilon": epsilon, "mechanism": name, "mean": mean, "low": mean, "high": mean})
        for name in MECHANISMS:
            gains = draw_gains(name, problem.space, epsilon=epsilon, draws=draws, rng=rng)
            accuracy = 1 - perturbed_losses(losses, points, gains) / n
            mean, error = float(accuracy.mean()), 2 * float(accuracy.std(ddof=1)) / math.sqrt(draws)
            rows.append(
                {
                    "epsilon": epsilon,
                    "mechanism": name,
                    "mean": mean,
                    "low": mean - error,
                    "high": mean + error,
                }
            )
    return pd.DataFrame(rows)


def epsilon_for(table: pd.DataFrame, mechanism: str, accuracy: float) -> float:
    """Epsilon at which a mechanism of :func:`accuracy_table` reaches ``accuracy``, between the levels that were run.

    Interpolated in the logarithm of epsilon. Nan where the accuracy is not reached, or is exceeded at the first level.
    """
    part = table[table["mechanism"] == mechanism].sort_values("epsilon")
    # Means of few runs need not increase: take the first level from which on the accuracy is reached.
    means, levels = part["mean"].to_numpy(), np.log(part["epsilon"].to_numpy())
    above = np.flatnonzero(means >= accuracy)
    if not above.size or above[0] == 0:
        return math.nan
    place = int(above[0])
    return math.exp(float(np.interp(accuracy, means[place - 1 : place + 1], levels[place - 1 : place + 1])))
