"""Release by simplex noise: pure privacy over an integer ball at about a third of the cost of OPDisc or RSPM.

Not in neel2019. The theorem and its proof stand in :mod:`~adaptive_dp.oracle_perturbation.embeddings`. With one
coordinate the noise is that of independent exponential variables, and the mechanism is permute-and-flip (McKenna and
Sheldon 2020): a Gamma(s, b) variable times flat Dirichlet weights is s independent exponential variables.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from adaptive_dp.oracle_perturbation.certificates import (
    NEVER,
    certify,
    check_noise_size,
    check_oracle,
    consult,
)
from adaptive_dp.oracle_perturbation.discrete_privacy import GAP
from adaptive_dp.oracle_perturbation.embeddings import SimplexEmbedding, gauge_noise, shift
from adaptive_dp.oracle_perturbation.problems import Oracle, ThresholdProblem, enumerate_members
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.privacy import Guarantee, Neighbours, Release, Trace
from adaptive_dp.validation import check_count, check_generator, check_ordinary


def simplex_perturbation(
    problem: ThresholdProblem,
    *,
    epsilon: float,
    oracle: Oracle = enumerate_members,
    gap: float = GAP,
    rng: np.random.Generator,
) -> Release[NDArray[Any]]:
    """Publish a minimiser of the number of errors less noise on the values, shaped after simplices: pure epsilon-DP.

    Parameters
    ----------
    problem : ThresholdProblem
        Over any integer ball.
    epsilon : float
        Positive; neighbours replace one record, whatever its features.
    oracle : Oracle
        Certifies its gap.
    gap : float
        a > 0: largest additive gap that is accepted, part of the guarantee and fixed beforehand.
    rng : numpy.random.Generator
        The only source of chance.

    Returns
    -------
    Release
        Value: the member, shape (d,). Trace: ``noise`` (d, 2 B + 1) and ``solution``.

    Raises
    ------
    TypeError, ValueError
        Bad arguments, or an epsilon so small that noise would drown the counts in rounding, before any is drawn; an
        oracle that is broken. Nothing is released.
    Uncertified
        The proved gap is not below ``gap``. Nothing is released; that it happened depends on the data, is not covered
        by the guarantee and must not be shown.
    """
    if not isinstance(problem, ThresholdProblem):
        raise TypeError(f"problem must be a ThresholdProblem, got {type(problem).__name__}")
    check_oracle(problem, oracle)
    level, allowed = check_ordinary("epsilon", epsilon), check_ordinary("gap", gap)
    check_generator(rng)
    embedding = SimplexEmbedding(problem.space)
    # No entry of a table is beyond the radius, as corners are unit vectors.
    longest = float(stats.gamma.isf(NEVER, embedding.dimension + 1)) * shift(embedding, allowed) / level
    check_noise_size(problem, longest, problem.space.dimension * longest, depth=1, gap=allowed)
    noise = gauge_noise(embedding, epsilon=level, gap=allowed, rng=rng)
    costs = embedding.costs(noise)
    solution = consult(problem, costs, oracle)
    value = certify(problem, costs, solution, gap=allowed, length=float(np.abs(noise).max(axis=1).sum()))
    guarantee = Guarantee(
        kind="ex-ante",
        epsilon=level,
        neighbours=Neighbours.REPLACE_ONE,
        source=f"perturbation along an embedding, simplex noise, oracle gap below {allowed:g}",
    )
    return Release(value, guarantee, trace=Trace(noise=noise, solution=solution))


def moved_answers(
    space: IntegerBall,
    *,
    trials: int,
    rng: np.random.Generator,
    parts: tuple[float, ...] = (0.8, 0.9, 1.0),
    epsilon: float = 20.0,
) -> pd.DataFrame:
    """How often an answer survives the worst exchange of a record, when noise is moved by a part of c.

    Each trial draws losses and noise, takes the answer w, and exchanges a record that preferred w for one that minds
    it: the difference to every other member falls by two. The noise moves by ``part`` times c along the corner of w.

    Columns ``part``, ``survived`` (a share), ``trials``. At part 1 the theorem says that every answer survives.
    """
    embedding, members = SimplexEmbedding(space), space.points()
    count, column = check_count("trials", trials), np.arange(space.dimension)
    survived = dict.fromkeys(parts, 0)
    for _ in range(count):
        losses = rng.integers(0, 4, len(members)).astype(float)
        noise = gauge_noise(embedding, epsilon=epsilon, gap=GAP, rng=rng)
        answer = int(np.argmin(losses - noise[column, members + space.box].sum(axis=1)))
        after = losses.copy()
        after[answer] += 2.0
        corner = embedding.points(members[answer]).reshape(space.dimension, -1)
        for part in parts:
            moved = noise + part * shift(embedding, GAP) * corner
            survived[part] += int(np.argmin(after - moved[column, members + space.box].sum(axis=1))) == answer
    return pd.DataFrame([{"part": p, "survived": k / count, "trials": count} for p, k in survived.items()])
