"""What is printed wrong about propose-test-release itself: false formulas, and tables that show the failure.

Nothing here may be used to calibrate anything: each ``printed_...`` function is *false as printed* (or looser than it
need be, where it says so). Errata 11 (thresholds, reversed display), 12 (the deltas of Theorem 3.5.3 and
Theorem B.2.4) and 20 (Theorem B.2.5) of redberg2023. Every number is exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from adaptive_dp.ptr.classic import false_pass_probability, ptr_threshold
from adaptive_dp.ptr.framework import check_delta, check_nonnegative, ptr_delta
from adaptive_dp.ptr.renyi import bernoulli_renyi, check_order, renyi_ptr_epsilon
from adaptive_dp.ptr.uniform_bound import uniform_delta
from adaptive_dp.validation import FloatArray, check_ordinary, check_positive, check_probability

# --- erratum 11: thresholds -------------------------------------------------------------------------------


def reversed_false_pass_probability(epsilon: float, delta: float) -> float:
    """Chance that the display in section 3.5, with its inequality reversed, passes a data set at distance 0.

    It passes where D + Lap(1 / epsilon) is *at most* log(1 / delta) / epsilon: 1 - delta / 2. False as printed.
    """
    return 1 - false_pass_probability(ptr_threshold(epsilon, delta, calibration="printed"), epsilon=epsilon)


def threshold_table(epsilon: float, delta: float) -> pd.DataFrame:
    """What several thresholds in circulation let through: a data set at distance 0, noise Laplace(1 / epsilon).

    The right one, the printed one, one from a public textbook (log(2 / delta) / (2 epsilon), whose failure probability
    sqrt(delta / 8) exceeds delta by four orders of magnitude at delta = 1e-9), and the usual slips.

    Returns
    -------
    DataFrame
        ``rule``; ``threshold``, the distance that passes with probability 1/2 (for the reversed rule: that fails);
        ``failure``, the exact probability that a data set which must not pass does; ``ratio`` = failure / delta;
        ``holds``, whether the failure probability is at most delta.
    """
    e, d = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    thresholds = {
        "log(1 / (2 delta)) / epsilon (sharp)": ptr_threshold(e, d),
        "log(1 / delta) / epsilon (printed)": ptr_threshold(e, d, calibration="printed"),
        "log(2 / delta) / (2 epsilon)": math.log(2 / d) / (2 * e),
        "log10(1 / delta) / epsilon": math.log10(1 / d) / e,
        "log(1 / delta), epsilon forgotten": math.log(1 / d),
        "log(delta) / epsilon, sign lost": math.log(d) / e,
        "1 / (delta epsilon), logarithm forgotten": 1 / (d * e),
    }
    rows = [(rule, t, false_pass_probability(t, epsilon=e)) for rule, t in thresholds.items()]
    printed = thresholds["log(1 / delta) / epsilon (printed)"]
    rows.append(
        ("inequality reversed (display of section 3.5)", printed, reversed_false_pass_probability(e, d))
    )
    table = pd.DataFrame(rows, columns=["rule", "threshold", "failure"])
    table["ratio"] = table["failure"] / d
    table["holds"] = table["failure"] <= d
    return table


# --- erratum 12: the delta of Algorithm 4 and of Algorithm 12 ---------------------------------------------


def hockey_stick(first: FloatArray, second: FloatArray, epsilon: float) -> float:
    """Sup_S P(S) - e^epsilon Q(S) of two laws on the same finitely many outcomes, shape (outcomes,)."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def worst_pair(epsilon: float, delta: float) -> tuple[FloatArray, FloatArray]:
    """The two laws on four outcomes to which every (epsilon, delta)-private pair is a post-processing.

    Randomized response with probability 1 - delta, otherwise the secret itself (Kairouz, Oh and Viswanath 2015).
    """
    high = (1 - delta) / (1 + math.exp(-epsilon))
    low = 1 - delta - high
    return np.array([delta, high, low, 0.0]), np.array([0.0, low, high, delta])


def pass_pairs(epsilon_hat: float, delta_hat: float, *, at_most: float = 1.0) -> FloatArray:
    """Extreme points of the pairs of pass probabilities that an (epsilon_hat, delta_hat)-private test can have.

    Parameters
    ----------
    at_most : float
        Limit of the first one: delta' for a data set over budget.

    Returns
    -------
    ndarray, shape (points, 2)
    """
    factor = math.exp(check_nonnegative("epsilon_hat", epsilon_hat))
    slack = check_delta("delta_hat", delta_hat)
    # Rows (u, v, w): u tau + v tau' <= w.
    planes = np.array(
        [
            [1.0, -factor, slack],
            [-factor, 1.0, slack],
            [-1.0, factor, slack + factor - 1],
            [factor, -1.0, slack + factor - 1],
            [1.0, 0.0, at_most],
            [-1.0, 0.0, 0.0],
            [0.0, 1.0, 1.0],
            [0.0, -1.0, 0.0],
        ]
    )
    points = []
    for pair in itertools.combinations(planes, 2):
        matrix, right = np.array(pair)[:, :2], np.array(pair)[:, 2]
        if abs(np.linalg.det(matrix)) < 1e-12:
            continue
        point = np.linalg.solve(matrix, right)
        if (planes[:, :2] @ point <= planes[:, 2] + 1e-12).all():
            points.append(np.clip(point, 0.0, 1.0))
    return np.unique(np.array(points), axis=0)


def exact_ptr_delta(
    epsilon: float, delta: float, epsilon_hat: float, delta_hat: float, delta_prime: float
) -> tuple[float, float]:
    """Exact supremum of the delta of Algorithm 4 at epsilon + epsilon_hat, over all tests and mechanisms.

    The divergence is jointly convex in the two laws, and they are affine in the pass probabilities: the supremum is
    at an extreme point of those, with the worst mechanism there.

    Returns
    -------
    tuple of float
        For data sets over budget (any mechanism at all) and within budget.
    """
    total = check_nonnegative("epsilon", epsilon) + epsilon_hat
    apart = (np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    cases = ((apart, check_delta("delta_prime", delta_prime)), (worst_pair(epsilon, delta), 1.0))
    suprema = []
    for (p, q), at_most in cases:
        suprema.append(
            max(
                hockey_stick(np.append(tau * p, 1 - tau), np.append(other * q, 1 - other), total)
                for tau, other in pass_pairs(epsilon_hat, delta_hat, at_most=at_most)
            )
        )
    return suprema[0], suprema[1]


def composition_table(
    epsilons: Sequence[float] = (0.01, 0.1, 1.0),
    deltas: Sequence[float] = (1e-3, 1e-2),
    epsilon_hats: Sequence[float] = (0.01, 0.1, 1.0),
    delta_hats: Sequence[float] = (0.0, 1e-3),
    delta_primes: Sequence[float] = (1e-3, 1e-2),
) -> pd.DataFrame:
    """Theorem 3.5.3 against the exact supremum, on a grid of all the parameters.

    Returns
    -------
    DataFrame
        ``epsilon``, ``delta``, ``epsilon_hat``, ``delta_hat``, ``delta_prime``; ``over`` and ``within``: exact
        suprema for data sets over and within budget; ``claimed`` = delta_hat + max(delta, delta'), attained wherever
        delta_hat is 0; ``printed`` = the sum of the three, valid and loose.
    """
    rows = []
    for e, d, hat, delta_hat, prime in itertools.product(
        epsilons, deltas, epsilon_hats, delta_hats, delta_primes
    ):
        over, within = exact_ptr_delta(e, d, hat, delta_hat, prime)
        rows.append(
            (e, d, hat, delta_hat, prime, over, within, ptr_delta(d, delta_hat, prime), d + delta_hat + prime)
        )
    names = [
        "epsilon",
        "delta",
        "epsilon_hat",
        "delta_hat",
        "delta_prime",
        "over",
        "within",
        "claimed",
        "printed",
    ]
    return pd.DataFrame(rows, columns=names)


def uniform_bound_table(
    delta: float = 1e-2,
    delta_primes: Sequence[float] = (1e-3, 1e-2, 0.1),
    delta_hats: Sequence[float] = (0.0, 1e-3),
) -> pd.DataFrame:
    """Why Algorithm 12 needs (almost) the sum: one mechanism whose bound and whose release both fail on one data set.

    The published bound names the data set with probability delta_hat, is too small with probability delta', and M_phi
    then names it too; otherwise M_phi is randomized response that names it with probability delta.

    Returns
    -------
    DataFrame
        ``delta``, ``delta_hat``, ``delta_prime``; ``exact`` at epsilon = 1 and epsilon_hat = 0.5; ``maximum`` =
        delta_hat + max(delta, delta'), which is exceeded; ``claimed`` = delta_hat + delta' + (1 - delta') delta,
        attained where delta_hat is 0; ``printed`` = the sum.
    """
    epsilon, hat = 1.0, 0.5
    p, q = worst_pair(epsilon, check_delta("delta", delta))
    rows = []
    for prime, delta_hat in itertools.product(delta_primes, delta_hats):
        rest = 1 - delta_hat - prime
        # outcomes: the bound names X or X', M names X or X' after a bad bound, and after a good one
        first = np.concatenate([[delta_hat, 0.0, prime, 0.0], rest * p])
        second = np.concatenate([[0.0, delta_hat, 0.0, prime], rest * q])
        exact = hockey_stick(first, second, epsilon + hat)
        rows.append(
            (
                delta,
                delta_hat,
                prime,
                exact,
                ptr_delta(delta, delta_hat, prime),
                uniform_delta(delta, delta_hat, prime),
                delta + delta_hat + prime,
            )
        )
    names = ["delta", "delta_hat", "delta_prime", "exact", "maximum", "claimed", "printed"]
    return pd.DataFrame(rows, columns=names)


# --- erratum 20: Theorem B.2.5 ----------------------------------------------------------------------------


def printed_renyi_epsilon(
    order: float, *, budget: float, worst: float, epsilon_hat: float, false_pass: float
) -> float:
    """Theorem B.2.5 as printed, with weights delta' and 1 - delta'. False: use ``renyi.renyi_ptr_epsilon``."""
    a = check_order(order)
    first = math.log(check_probability("false_pass", false_pass)) + (a - 1) * worst
    second = math.log1p(-false_pass) + (a - 1) * budget
    return epsilon_hat + float(np.logaddexp(first, second)) / (a - 1)


def finite_renyi(order: float, first: FloatArray, second: FloatArray) -> float:
    """Rényi divergence of two laws with positive probabilities on the same finitely many outcomes."""
    a = check_order(order)
    return math.log(float((first**a * second ** (1 - a)).sum())) / (a - 1)


def response_with_renyi(order: float, divergence: float) -> FloatArray:
    """Randomized response (s, 1 - s), s > 1/2, whose Rényi divergence from (1 - s, s) is the given one."""
    a, goal = check_order(order), check_positive("divergence", divergence)

    def excess(odds: float) -> float:
        s = 1 / (1 + math.exp(-odds))
        return finite_renyi(a, np.array([s, 1 - s]), np.array([1 - s, s])) - goal

    s = 1 / (1 + math.exp(-float(brentq(excess, 1e-9, 2 * goal + 10))))
    return np.array([s, 1 - s])


def renyi_table(
    order: float = 4.0,
    *,
    budget: float = 0.01,
    worst: float = 3.0,
    false_pass: float = 1e-3,
    neighbour_passes: Sequence[float] = (1e-3, 8e-4, 5e-4, 1e-4, 1e-5),
) -> pd.DataFrame:
    """Counterexamples to Theorem B.2.5: exact Rényi divergence of one finite mechanism, printed and right bound.

    The data set is over budget and passes with probability ``false_pass``, its neighbour with ``neighbour_pass``;
    M_phi is randomized response whose Rényi epsilon on all data sets is ``worst``. The test is private with
    ``epsilon_hat``, the larger of the two divergences of its outcome.

    Returns
    -------
    DataFrame
        ``neighbour_pass``, ``epsilon_hat``, ``exact``, ``printed``, ``right``; ``holds``: whether the printed bound
        is at least the exact value.
    """
    p = response_with_renyi(order, worst)
    tau, rows = check_probability("false_pass", false_pass), []
    for other in neighbour_passes:
        hat = max(bernoulli_renyi(order, tau, other), bernoulli_renyi(order, other, tau))
        exact = finite_renyi(order, np.append(tau * p, 1 - tau), np.append(other * p[::-1], 1 - other))
        bounds = {"budget": budget, "worst": worst, "epsilon_hat": hat, "false_pass": tau}
        printed, right = printed_renyi_epsilon(order, **bounds), renyi_ptr_epsilon(order, **bounds)
        rows.append((other, hat, exact, printed, right, exact <= printed))
    return pd.DataFrame(rows, columns=["neighbour_pass", "epsilon_hat", "exact", "printed", "right", "holds"])


def refusal_table(
    order: float = 4.0,
    *,
    false_pass: float = 1e-3,
    neighbour_passes: Sequence[float] = (1e-3, 1.1e-3, 1.25e-3, 1.5e-3, 3e-3),
) -> pd.DataFrame:
    """Why "delta'-approximately (order, epsilon_hat + budget)" needs a budget of about delta' / (order - 1).

    The mechanism tells X from X' whenever it runs, so that outside an event of probability delta' on either side the
    data set over budget is refused and at most (1 - tau') / (1 - delta') of its neighbour's law is a refusal.

    Returns
    -------
    DataFrame
        ``neighbour_pass``, ``epsilon_hat``; ``needed``: divergence of what is left; ``excess`` = needed - epsilon_hat,
        which a budget has to cover; ``allowance`` = log(1 / (1 - delta')) / (order - 1), which covers it.
    """
    a, tau, rows = check_order(order), check_probability("false_pass", false_pass), []
    for other in neighbour_passes:
        hat = max(bernoulli_renyi(a, tau, other), bernoulli_renyi(a, other, tau))
        needed = max(0.0, math.log1p(-tau) - math.log1p(-other))
        rows.append((other, hat, needed, needed - hat, -math.log1p(-tau) / (a - 1)))
    return pd.DataFrame(rows, columns=["neighbour_pass", "epsilon_hat", "needed", "excess", "allowance"])
