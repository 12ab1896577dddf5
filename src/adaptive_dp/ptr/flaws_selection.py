"""What redberg2023 prints wrong about private selection and private voting: the formulas, and what goes wrong.

Nothing here is a mechanism, and no ``printed_...`` function may be used to calibrate one: each is *false as printed*.
All tables are exact computations. Errata 13 (Theorem B.2.3, Algorithm 5) and 17 (Theorem B.3.2, Example B.3.1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from adaptive_dp.noise import laplace_tail
from adaptive_dp.ptr.classic import ptr_threshold
from adaptive_dp.ptr.selection_bounds import GeometricRounds, selection_law
from adaptive_dp.ptr.voting import (
    approximate_loss,
    class_zero_probability,
    largest_delta,
    largest_losses,
    pure_loss,
    report_noisy_max_law,
)
from adaptive_dp.validation import as_finite_array, check_count, check_ordinary, check_probability, check_real

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


# --- erratum 17: private voting -----------------------------------------------------------------------


def printed_class_zero_probability(gap: float, *, epsilon: float) -> float:
    """Probability that class 0 wins, **false as printed** for gaps below 0: (2 + epsilon t) / (4 e^{epsilon t}).

    Right: :func:`~adaptive_dp.ptr.voting.class_zero_probability`.
    """
    s = check_ordinary("epsilon", epsilon) * check_real("gap", gap)
    return (2 + s) / 4 * math.exp(-s)


def printed_loss(gap: float, *, epsilon: float) -> float:
    """Loss at delta = 0, **false as printed**: epsilon log(1 - epsilon / (2 + epsilon (t + 1))), which is negative.

    Right: epsilon *plus* that logarithm, :func:`~adaptive_dp.ptr.voting.pure_loss`.
    """
    e, t = check_ordinary("epsilon", epsilon), check_real("gap", gap)
    return e * math.log1p(-e / (2 + e * (t + 1)))


def sign_of_the_gap(
    cases: Sequence[tuple[int, float]] = ((3, 0.5), (0, 1.0), (-2, 0.7), (-10, 1.0)),
) -> pd.DataFrame:
    """Printed and right probability that class 0 wins.

    Parameters
    ----------
    cases : sequence of (gap, epsilon)

    Returns
    -------
    DataFrame
        ``gap``, ``epsilon``, ``printed``, ``right``.
    """
    rows = []
    for gap, epsilon in cases:
        rows.append(
            {
                "gap": gap,
                "epsilon": epsilon,
                "printed": printed_class_zero_probability(gap, epsilon=epsilon),
                "right": float(class_zero_probability(gap, epsilon=epsilon)),
            }
        )
    return pd.DataFrame(rows)


def printed_losses(
    gaps: Sequence[int] = (0, 1, 2, 5, 10, 15, 20, 50), *, epsilon: float = 1.0, delta: float = 1e-6
) -> pd.DataFrame:
    """The printed loss beside the right ones.

    The absolute value of the printed one falls with the gap, as the text says of Figure B.1 (a). The right one does
    so only at delta > 0.

    Returns
    -------
    DataFrame
        ``gap``, ``printed``, ``printed_absolute``, ``pure`` (delta = 0), ``approximate`` (at delta), ``laplace``.
    """
    t = as_finite_array("gaps", np.asarray(gaps), ndim=1)
    printed = np.array([printed_loss(gap, epsilon=epsilon) for gap in t])
    return pd.DataFrame(
        {
            "gap": t.astype(int),
            "printed": printed,
            "printed_absolute": np.abs(printed),
            "pure": pure_loss(t, epsilon=epsilon),
            "approximate": approximate_loss(t, epsilon=epsilon, delta=delta),
            "laplace": float(epsilon),
        }
    )


def lower_bound_in_the_loss(
    *,
    noise_epsilon: float = 1.0,
    budget: float = 0.6,
    test_epsilon: float = 0.1,
    delta: float = 1e-6,
    gaps: int = 400,
) -> pd.DataFrame:
    """Exact delta of propose-test-release for votes, by the loss that its test evaluates at the lower bound t^P.

    The lower bound is the printed one, t + Lap(1 / test_epsilon) - log(1 / delta) / test_epsilon, rounded up to the
    next whole number, at least 0.

    Parameters
    ----------
    noise_epsilon, budget, test_epsilon : float
        As in :func:`~adaptive_dp.ptr.voting.generalized_ptr_vote`.
    delta : float
        Of the loss and of the lower bound.
    gaps : int
        All pairs of neighbouring gaps from -``gaps`` to ``gaps`` are tried.

    Returns
    -------
    DataFrame
        ``loss`` ("printed", "pure at the bound", "approximate at the bound", "largest above the bound": the repaired
        one), ``epsilon`` (promised), ``delta_promised``, ``delta_exact`` (at that epsilon), ``worst_gap``, ``passing``
        (probability at the worst gap), ``violated``.
    """
    t = np.arange(-check_count("gaps", gaps, minimum=2), gaps + 1, dtype=np.float64)
    table = largest_losses(noise_epsilon, delta, False)
    at = np.arange(table.size, dtype=np.float64)
    rules = {
        "printed": np.array([printed_loss(gap, epsilon=noise_epsilon) for gap in at]),
        "pure at the bound": pure_loss(at, epsilon=noise_epsilon),
        "approximate at the bound": approximate_loss(at, epsilon=noise_epsilon, delta=delta),
        "largest above the bound": table,
    }
    mean = np.abs(t) - ptr_threshold(test_epsilon, delta, calibration="printed")
    above = laplace_tail(at[:-1, np.newaxis] - mean, 1 / test_epsilon)  # P(t^P > j)
    ends = np.vstack([np.ones_like(t), above, np.zeros_like(t)])
    vote = report_noisy_max_law(t, epsilon=noise_epsilon)
    rows = []
    for name, losses in rules.items():
        passing = (losses <= budget) @ -np.diff(ends, axis=0)
        law = vote * passing[:, np.newaxis]
        law[:, 2] = 1 - passing
        deltas = largest_delta(law, budget + test_epsilon)
        worst = int(np.argmax(deltas))
        rows.append(
            {
                "loss": name,
                "epsilon": budget + test_epsilon,
                "delta_promised": delta,
                "delta_exact": float(deltas[worst]),
                "worst_gap": int(t[worst]),
                "passing": float(passing[worst]),
                "violated": bool(deltas[worst] > delta),
            }
        )
    return pd.DataFrame(rows)
