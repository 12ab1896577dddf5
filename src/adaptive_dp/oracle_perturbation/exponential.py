"""The exponential mechanism, and permute-and-flip, over a space that can be listed: exact laws to compare with.

The introduction of neel2019 compares with the exponential mechanism, which needs the loss of every member of W. Where
W is small enough, its law is a formula, and so is the expected loss: no sampling is needed to say how good it is.
Permute-and-flip (McKenna and Sheldon, "Permute-and-flip: a new mechanism for differentially private selection", NeurIPS
2020) has the same guarantee, the same needs, and never a larger expected loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from adaptive_dp.oracle_perturbation.problems import Problem, TableProblem, ThresholdProblem
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)

# Records times members of one block of losses.
BLOCK_ENTRIES = 6_000_000
# Panels of the integral of permute-and-flip, in the logarithm of the variable, and nodes in each.
PANELS = 80
SMALLEST = 1e-12
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)


def member_losses(problem: Problem) -> FloatArray:
    """L(D, w) for every member of W, in the order of ``space.points()``, shape (|W|,). Not private.

    Raises
    ------
    TypeError
        Not a problem of this package.
    ValueError
        Losses that are not bounded by 1, or more than four million members.
    """
    if isinstance(problem, TableProblem):
        if problem.lipschitz is not None:
            raise ValueError(
                "problem must have losses in [0, 1] (lipschitz None): the sensitivity rests on that"
            )
        return problem.total
    if not isinstance(problem, ThresholdProblem):
        raise TypeError(f"problem must be a ThresholdProblem or a TableProblem, got {type(problem).__name__}")
    points = problem.space.points()
    block = max(1, BLOCK_ENTRIES // problem.records)
    parts = [problem.errors(points[at : at + block]) for at in range(0, len(points), block)]
    return np.concatenate(parts).astype(np.float64)


def exponential_log_law(losses: FloatArray, epsilon: float) -> FloatArray:
    """Logarithms of the probabilities of the exponential mechanism, proportional to exp(-epsilon L / 2)."""
    scores = -0.5 * check_ordinary("epsilon", epsilon) * as_finite_array("losses", losses, ndim=1)
    return np.asarray(scores - logsumexp(scores))


@dataclass(frozen=True, slots=True)
class LossLevels:
    """How many members of W have each value of the loss.

    Parameters
    ----------
    values : ndarray, shape (K,)
        Different losses, increasing.
    counts : ndarray, shape (K,)
        Members with that loss.
    """

    values: FloatArray
    counts: FloatArray

    @classmethod
    def of(cls, losses: FloatArray) -> LossLevels:
        """Collect the losses of all members."""
        values, counts = np.unique(as_finite_array("losses", losses, ndim=1), return_counts=True)
        return cls(values, counts.astype(np.float64))

    def exponential(self, epsilon: float) -> FloatArray:
        """Probability that the exponential mechanism answers with a member of each level, shape (K,)."""
        scores = np.log(self.counts) - 0.5 * check_ordinary("epsilon", epsilon) * self.values
        return np.asarray(np.exp(scores - logsumexp(scores)))

    def permute_and_flip(self, epsilon: float) -> FloatArray:
        """The same for permute-and-flip, shape (K,).

        With q = exp(-epsilon (L - min L) / 2) it is n_i q_i times the integral over t in [0, 1] of
        prod_j (1 - q_j t)^n_j / (1 - q_i t). The product falls off over a length of 1 / sum n q, so that the integral
        is taken over panels that are even in log t; below 1e-12 / sum n q the integrand is 1.
        """
        q = np.exp(-0.5 * check_ordinary("epsilon", epsilon) * (self.values - self.values[0]))
        low = SMALLEST / float(self.counts @ q)
        edges = np.geomspace(low, 1.0, PANELS + 1)
        half = 0.5 * np.diff(edges)[:, np.newaxis]
        t = (edges[:-1, np.newaxis] + half * (1 + NODES)).ravel()
        weights = (half * WEIGHTS).ravel()
        rest = -np.log1p(-np.multiply.outer(q, t))  # (K, nodes), positive
        product = -(self.counts @ rest)
        integrals = np.exp(product + rest) @ weights + low
        return np.asarray(self.counts * q * integrals)

    def mean(self, law: FloatArray) -> float:
        """Expected loss under the probabilities ``law`` (K,)."""
        return float(law @ self.values)


def exponential_mechanism(
    problem: Problem, *, epsilon: float, rng: np.random.Generator
) -> Release[NDArray[Any]]:
    """Publish a member of W with probability proportional to exp(-epsilon L(D, w) / 2), by listing W.

    Pure epsilon-DP for replace-one neighbours: L moves by at most 1 at every w, hence the logarithm of each weight, and
    of their sum, by at most epsilon / 2 (McSherry and Talwar 2007).

    Parameters
    ----------
    problem : ThresholdProblem or TableProblem
        Losses in [0, 1], at most four million members.
    epsilon : float
        Positive.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        Value: the member, shape (d,). Trace: ``losses`` (|W|,), ``log_law`` (|W|,).

    Raises
    ------
    TypeError, ValueError
        Bad arguments, or a space too large to list.
    """
    level = check_ordinary("epsilon", epsilon)
    check_generator(rng)
    losses = member_losses(problem)
    log_law = exponential_log_law(losses, level)
    # The place of the largest of Gumbel-noised log weights has this law, down to members of any small probability.
    place = int(np.argmax(log_law + rng.gumbel(size=log_law.shape)))
    guarantee = Guarantee(
        "ex-ante", level, Neighbours.REPLACE_ONE, source="exponential mechanism (McSherry and Talwar 2007)"
    )
    point = problem.space.points()[place].copy()
    return Release(point, guarantee, trace=Trace(losses=losses, log_law=log_law))


def expected_losses(problem: Problem, epsilons: FloatArray | list[float]) -> dict[str, FloatArray]:
    """Exact expected loss of both mechanisms at each of ``epsilons``: ``exponential``, ``permute_and_flip``, ``best``.

    ``best`` is the minimum of the losses, the same at every level. Not private.
    """
    levels = LossLevels.of(member_losses(problem))
    wanted = as_finite_array("epsilons", epsilons, ndim=1)
    return {
        "exponential": np.array([levels.mean(levels.exponential(float(e))) for e in wanted]),
        "permute_and_flip": np.array([levels.mean(levels.permute_and_flip(float(e))) for e in wanted]),
        "best": np.full(wanted.shape, levels.values[0]),
    }


def exponential_excess_bound(size: int, *, epsilon: float, beta: float) -> float:
    """2 ln(|W| / beta) / epsilon: the exponential mechanism's excess is above it with probability beta at most.

    ``size`` is |W|, at least 1, and beta lies in (0, 1); TypeError or ValueError otherwise.
    """
    members, tail = check_count("size", size), check_probability("beta", beta)
    return 2 * (math.log(members) - math.log(tail)) / check_ordinary("epsilon", epsilon)
