"""What is wrong with RSPM as printed: programs that minimise something else, and too few draws. None is private.

neel2019, Algorithm 3 and Figure 3 (erratum 11). The pairs below replace one record; in each of them an answer has a
probability on D that is computed exactly, and cannot occur on D', so that no epsilon helps and delta is at least that
probability.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import ndtr

from adaptive_dp.noise import laplace_tail
from adaptive_dp.oracle_perturbation.separator_gaussian import printed_separator_sigma
from adaptive_dp.oracle_perturbation.separators import sign_losses
from adaptive_dp.oracle_perturbation.spaces import IntegerBall
from adaptive_dp.validation import FloatArray, check_count, check_generator, check_ordinary

# The answer of the pair for Figure 3.
ANSWER = (0, 1)


# --- Figure 3: linear noise in place of separators -----------------------------------------------------


def figure_three_data(records: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Features of D and D', shape (n, 2), all labels +1: n - 1 records (0, 1) and one (-2, 1), or n records (0, 1)."""
    n = check_count("records", records, minimum=2)
    other = np.tile([0, 1], (n, 1))
    features = other.copy()
    features[-1] = (-2, 1)
    return features, other


def figure_three_law(records: int, sigma: float) -> tuple[float, float]:
    """P(answer (0, 1)) of the program of Figure 3 on D and on D', exactly.

    The program minimises errors - <eta, w> over {-1, 0, 1}^d with eta ~ N(0, sigma^2 I_d), d numbers where RSPM has
    m = 2 d separators; a tie is an error. On D' the first weight is in no constraint: the program sets it to the sign
    of eta_1, and never to 0. On D the answer is (0, 1) if and only if 0 < eta_1 < 1, so that neither (1, 1), with one
    error more, nor (-1, 1) is better, and 2 eta_2 > -min(n - 1 + eta_1, n - eta_1), against (-1, -1) and (1, -1).

    Parameters
    ----------
    records : int
        n >= 2; for large n the probability is P(0 < N(0, sigma^2) < 1).
    sigma : float
        Scale of the noise.
    """
    n, scale = check_count("records", records, minimum=2), check_ordinary("sigma", sigma)

    def integrand(x: float) -> float:
        density = math.exp(-0.5 * (x / scale) ** 2) / (scale * math.sqrt(2 * math.pi))
        return density * float(ndtr(min(n - 1 + x, n - x) / (2 * scale)))

    return float(sum(quad(integrand, low, low + 0.5, epsabs=1e-15)[0] for low in (0.0, 0.5))), 0.0


def figure_three_answers(
    features: NDArray[np.int64], sigma: float, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """What the program of Figure 3 answers, by listing all members: shape (draws, 2)."""
    check_generator(rng)
    points = IntegerBall.signs(2).points()
    errors = sign_losses(points, features, np.ones(len(features))).sum(axis=0, dtype=np.int64)
    eta = rng.normal(0.0, check_ordinary("sigma", sigma), (check_count("draws", draws), 2))
    return np.asarray(points[np.argmin(errors - eta @ points.T, axis=1)])


# --- Negative weights -----------------------------------------------------------------------------------


def one_sided_law(scale: float) -> tuple[float, float]:
    """P(answer 1) on D and on D' if errors of separators are bounded on one side only, exactly.

    W = {0, 1}, one separator e(w) = w with a Laplace weight. The usual program writes an error as a binary variable
    that *must* be 1 where the record is misclassified and *may* be 1 elsewhere. With a negative weight it is 1
    everywhere, for free, so that the noise is max(eta, 0) in truth. D has one loss 1 - w and D' one loss w: on D the
    answer is 1 where eta < 1, on D' never.

    Parameters
    ----------
    scale : float
        Of the Laplace law.
    """
    return 1.0 - float(laplace_tail(1.0, scale)), 0.0


def one_sided_answers(losses: tuple[int, int], weights: FloatArray) -> NDArray[np.int64]:
    """Answers of that program, by listing its feasible pairs (w, e) with e >= w: one for each of ``weights``."""
    pairs = np.array([(0, 0), (0, 1), (1, 1)])
    objective = np.array(losses)[pairs[:, 0]] + np.multiply.outer(weights, pairs[:, 1])
    return np.asarray(pairs[np.argmin(objective, axis=1), 0])


def flipped_label_table() -> pd.DataFrame:
    """Why a negative weight is not a positive one on the other label: columns ``w``, ``plus``, ``minus``, ``sum``.

    Losses of the record x = 1 with either label at w = -1, 0, 1, where a tie is an error for both. Their sum is 1 but
    for the tie, so that turning the label adds |eta| to the objective there and not elsewhere.
    """
    points = np.array([[-1.0], [0.0], [1.0]])
    losses = sign_losses(points, [[1.0], [1.0]], [1.0, -1.0])
    return pd.DataFrame(
        {"w": [-1, 0, 1], "plus": losses[0], "minus": losses[1], "sum": losses.sum(axis=0, dtype=np.int64)}
    )


# --- Too few draws ---------------------------------------------------------------------------------------


def too_few_draws_law(sigma: float) -> tuple[float, float]:
    """P(w_2 = -1) on D and on D' for Algorithm 3 with d + 1 draws in place of m = 2 d, d = 2, exactly.

    The separator 1[w_2 = -1] gets no noise, so that w_2 = -1 and w_2 = 0 differ by the data alone. D has the one loss
    1[w_2 != -1], D' the loss 1[w_2 != 0]: on D' the value 0 always beats -1, on D the value -1 wins where the weight of
    1[w_2 = +1] is above -1.
    """
    return float(ndtr(1.0 / check_ordinary("sigma", sigma))), 0.0


def flaw_table(*, records: int, epsilon: float, delta: float) -> pd.DataFrame:
    """All pairs at the noise of Algorithm 3: columns ``reading``, ``m``, ``sigma``, ``on_d``, ``on_other``.

    Figure 3 is shown with the scale for m = d = 2 and for m = 2 d = 4; the others at their m. The one-sided program is
    shown with Laplace noise that would be private, of scale 2 m / epsilon.
    """
    rows = []
    for m in (2, 4):
        sigma = printed_separator_sigma(m, epsilon=epsilon, delta=delta)
        rows.append((f"Figure 3, m = {m}", m, sigma, *figure_three_law(records, sigma)))
    sigma = printed_separator_sigma(4, epsilon=epsilon, delta=delta)
    rows.append(("d + 1 draws", 4, sigma, *too_few_draws_law(sigma)))
    scale = 2 / check_ordinary("epsilon", epsilon)
    rows.append(("one-sided errors", 1, scale, *one_sided_law(scale)))
    return pd.DataFrame(rows, columns=["reading", "m", "scale", "on_d", "on_other"])
