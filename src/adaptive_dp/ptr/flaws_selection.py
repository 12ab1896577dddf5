"""What redberg2023 prints wrong about private selection and private voting: the formulas, and what goes wrong.

Nothing here is a mechanism, and no ``printed_...`` function may be used to calibrate one: each is *false as printed*.
All tables are exact computations. Errata 13 (Theorem B.2.3, Algorithm 5) and 17 (Theorem B.3.2, Example B.3.1).
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from adaptive_dp.ptr.selection_bounds import GeometricRounds, selection_law
from adaptive_dp.validation import check_count, check_probability

# --- erratum 13: private selection --------------------------------------------------------------------


def printed_probability_missed(proposals: int, tau: float) -> float:
    """Probability that the best proposal is never drawn, **false as printed**: 1 - E[K] / k (proof of Theorem B.2.3).

    The first-order step f(1 - 1/k) = f(1) - f'(1) / k needs E[K] much smaller than k, and the theorem is used with
    E[K] = 10 k: the value is -9. Right: 1 - ``GeometricRounds.probability_tried``.
    """
    return 1 - GeometricRounds(tau).mean / check_count("proposals", proposals)


def first_order_step(
    proposals: Sequence[int] = (10, 30), factors: Sequence[float] = (1.0, 0.1, 0.05)
) -> pd.DataFrame:
    """Printed and right probability that the best proposal is never drawn, at tau = factor / k.

    Returns
    -------
    DataFrame
        ``proposals``, ``factor``, ``tau``, ``rounds`` (expected), ``printed_missed``, ``missed``, ``tried``,
        ``quantile`` (the theorem's own statement, which is correct).
    """
    rows = []
    for k in proposals:
        for factor in factors:
            rounds = GeometricRounds(factor / check_count("proposals", k))
            tried = rounds.probability_tried(k)
            rows.append(
                {
                    "proposals": k,
                    "factor": factor,
                    "tau": rounds.tau,
                    "rounds": rounds.mean,
                    "printed_missed": printed_probability_missed(k, rounds.tau),
                    "missed": 1 - tried,
                    "tried": tried,
                    "quantile": rounds.expected_quantile(),
                }
            )
    return pd.DataFrame(rows)


def refusal_scores(refusing: float = 0.3, *, tau: float = 0.1 / 30) -> pd.DataFrame:
    """Probability that the selection publishes a refusal, by the score that a refusal is given.

    Algorithm 5 does not say q(refusal). The score of an answer is minus its validation error here, so that a score
    of zero for "nothing" is the best of all.

    Parameters
    ----------
    refusing : float
        Probability that one round refuses, in (0, 1); the rest is spread evenly over five errors.
    tau : float
        In (0, 1].

    Returns
    -------
    DataFrame
        ``refusal_score`` ("worst", "middle", "zero"), ``published_refusal``.
    """
    chance = check_probability("refusing", refusing)
    law = [chance] + [(1 - chance) / 5] * 5
    rounds = GeometricRounds(tau)
    rows = []
    for name, score in (("worst", float("-inf")), ("middle", -3.0), ("zero", 0.0)):
        published = selection_law(law, [score, -1.0, -2.0, -3.0, -4.0, -5.0], rounds)[0]
        rows.append({"refusal_score": name, "published_refusal": float(published)})
    return pd.DataFrame(rows)
