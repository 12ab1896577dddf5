"""Ex-post privacy on the smallest example: a search with no ex-ante epsilon at all.

Source: ligett2017, Definitions 2.2 and 2.3 and the discussion before them.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from adaptive_dp.privacy import Guarantee, Neighbours, Release
from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_generator, check_positive


def ask_until_yes(bit: int, *, epsilon: float, rng: np.random.Generator) -> Release[int]:
    """Ask one person's bit by randomised response until the answer is yes; publish the number of questions.

    Each answer is epsilon-differentially private. The number k of questions has no finite ex-ante epsilon,
    since k is unbounded, but each outcome k has a finite ex-post loss, |k - 2| epsilon: far below the
    k epsilon of composition, because a yes takes back what a no gave away.

    Parameters
    ----------
    bit : {0, 1}
        The private bit; neighbours differ in it (replace-one).
    epsilon : float
        Privacy of a single answer.
    """
    if check_count("bit", bit, minimum=0) > 1:
        raise ValueError(f"bit must be 0 or 1, got {bit!r}")
    check_generator(rng)
    if check_positive("epsilon", epsilon) > 30:
        raise ValueError(f"epsilon must be at most 30, or the number of questions overflows, got {epsilon!r}")
    yes = expit(epsilon * (1 if bit else -1))
    questions = int(rng.geometric(yes))
    loss = float(ask_until_yes_loss(questions, epsilon=epsilon))
    guarantee = Guarantee("ex-post", loss, Neighbours.REPLACE_ONE, source="ligett2017, Definition 2.3")
    return Release(questions, guarantee)


def ask_until_yes_loss(questions: ArrayLike, *, epsilon: float) -> FloatArray:
    """Exact ex-post privacy loss of stopping after ``questions`` questions: |k - 2| epsilon.

    log of P_1(k) / P_0(k) = (k - 1) log((1 - p_1)/(1 - p_0)) + log(p_1/p_0) = (2 - k) epsilon with p_1 = 1 - p_0 =
    1/(1 + e^-epsilon).
    """
    k = _check_questions(questions)
    return np.abs(k - 2) * check_positive("epsilon", epsilon)


def ask_until_yes_probability(questions: ArrayLike, bit: int, *, epsilon: float) -> FloatArray:
    """Exact probability of stopping after ``questions`` questions, for either bit."""
    k = _check_questions(questions)
    if check_count("bit", bit, minimum=0) > 1:
        raise ValueError(f"bit must be 0 or 1, got {bit!r}")
    yes = expit(check_positive("epsilon", epsilon) * (1 if bit else -1))
    return np.asarray(yes * (1 - yes) ** (k - 1), dtype=np.float64)


def _check_questions(questions: ArrayLike) -> FloatArray:
    k = as_finite_array("questions", questions)
    if (k < 1).any() or (k != np.floor(k)).any():
        raise ValueError(f"questions must be whole numbers of at least 1, got {questions!r}")
    return k


def worst_case_growth(factor: float) -> float:
    """Total generation loss over the loss that would have sufficed, worst case, for growth ``factor`` = 1/r.

    1/(r (1 - r)), smallest at factor 2 where it is 4 (ligett2017, Claim B.1). It ignores what each test costs:
    see :func:`worst_case_search_loss`.
    """
    growth = check_positive("factor", factor)
    if growth <= 1:
        raise ValueError(f"factor must exceed 1, got {factor!r}")
    return growth**2 / (growth - 1)


def worst_case_search_loss(
    factor: float, *, needed: float, first: float, last: float, failure: float, sensitivity_over_alpha: float
) -> float:
    """Worst-case loss of DoublingMethod with another growth factor, tests included (erratum AF-8).

    ``needed`` is the epsilon at which the search would be satisfied; the grid runs from ``first`` to ``last``.
    """
    growth = worst_case_growth(factor)
    steps = math.ceil(math.log(needed / first) / math.log(factor)) + 1
    levels = math.ceil(math.log(last / first) / math.log(factor)) + 1
    return needed * growth + steps * 2 * sensitivity_over_alpha * math.log(levels / failure)


def best_growth_factor(
    *, needed: float, first: float, last: float, failure: float, sensitivity_over_alpha: float
) -> float:
    """The growth factor that minimises :func:`worst_case_search_loss`, on a fine grid from 1.2 to 400."""
    factors = np.geomspace(1.2, 400.0, 2_000)
    losses = [
        worst_case_search_loss(
            float(factor),
            needed=needed,
            first=first,
            last=last,
            failure=failure,
            sensitivity_over_alpha=sensitivity_over_alpha,
        )
        for factor in factors
    ]
    return float(factors[int(np.argmin(losses))])
