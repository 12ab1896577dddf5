"""Figure B.1 of redberg2023 with the repaired loss: what the vote gap is worth, and the price of privacy by error.

All columns are exact except those named ``sampled``. What the figure claims, and what comes out (erratum 17):

* its left part cannot be the loss of Theorem B.3.2, which *increases* with the gap towards that of the Laplace
  mechanism; only a delta > 0 lets it fall;
* its right part cannot have b = 1 / epsilon in (0, 0.5] as printed, where the noisy vote errs with a probability
  below 1e-84 at a gap of 100. Errors around 1e-5, which the text discusses, belong to epsilon in (0, 0.5];
* the thesis counts no error when generalized propose-test-release refuses. :func:`privacy_against_error` follows it.
  Even so the gain over the Laplace mechanism begins near an error of 1e-16, not 1e-5, and there are errors at which
  classic propose-test-release is the cheaper one;
* :func:`budget_against_error` counts refusals as fair coins for everybody. A test then never pays: at every error it
  is cheaper to run the noisy vote without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats
from scipy.optimize import brentq

from adaptive_dp.noise import laplace, laplace_tail
from adaptive_dp.ptr.classic import ptr_threshold
from adaptive_dp.ptr.voting import (
    approximate_loss,
    largest_losses,
    loss_above,
    minority_probability,
    pure_loss,
)
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_generator,
    check_ordinary,
    check_probability,
)


def loss_against_gap(
    gaps: Sequence[int] = tuple(range(0, 31)), *, epsilon: float = 1.0, delta: float = 1e-6
) -> pd.DataFrame:
    """Privacy loss of report-noisy-max by the gap |t| (Figure B.1 (a)).

    Parameters
    ----------
    gaps : sequence of int
        Nonnegative.
    epsilon : float
        Of the noise. The thesis has 10, where the minority is below every reasonable delta from the second gap on.
    delta : float
        In (0, 1).

    Returns
    -------
    DataFrame
        ``gap``, ``minority`` (probability that the smaller side wins), ``laplace`` (epsilon: no data-dependent
        analysis), ``pure`` (delta = 0), ``approximate`` (at delta, both directions), ``one_sided`` (at delta, the
        data set at hand against its neighbours), ``largest_above`` and ``one_sided_above`` (suprema over all larger
        gaps: what a lower bound of the gap proves).
    """
    t = as_finite_array("gaps", np.asarray(gaps), ndim=1)
    if (t < 0).any() or (t != np.floor(t)).any():
        raise ValueError(f"gaps must be nonnegative whole numbers, got {t.tolist()!r}")
    return pd.DataFrame(
        {
            "gap": t.astype(int),
            "minority": minority_probability(t, epsilon=epsilon),
            "laplace": float(epsilon),
            "pure": pure_loss(t, epsilon=epsilon),
            "approximate": approximate_loss(t, epsilon=epsilon, delta=delta),
            "one_sided": approximate_loss(t, epsilon=epsilon, delta=delta, one_sided=True),
            "largest_above": loss_above(t, epsilon=epsilon, delta=delta, one_sided=False),
            "one_sided_above": loss_above(t, epsilon=epsilon, delta=delta, one_sided=True),
        }
    )


def privacy_against_error(
    epsilons: Sequence[float] = tuple(np.linspace(0.02, 0.8, 40)),
    *,
    gap: int = 100,
    delta: float = 1e-6,
    trials: int = 0,
    rng: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Privacy of the three mechanisms where they err equally often, as in Figure B.1 (b).

    For each noise 1 / epsilon: the Laplace mechanism; generalized propose-test-release with the same noise, a test
    with half of epsilon, and the loss eps^P that its lower bound proves, refusals not counted; classic
    propose-test-release with the test that makes it err equally often, a refusal being a fair coin.

    Parameters
    ----------
    epsilons : sequence of float
        Of the noise.
    gap : int
        |t|, at least 2.
    delta : float
        Of each mechanism but the Laplace mechanism (delta = test_delta = ``delta``: the maximum of both counts).
    trials : int
        Draws of the lower bound for the columns ``sampled...``; 0 leaves them out. The thesis takes 100,000.
    rng : numpy.random.Generator, optional
        Needed if ``trials`` is positive.

    Returns
    -------
    DataFrame
        ``scale`` (b = 1 / epsilon), ``epsilon``, ``error``, ``log10_error`` (of the noisy vote), ``laplace``,
        ``laplace_delta`` (report-noisy-max without any test, but at delta), ``test_epsilon``, ``generalized``
        (test_epsilon + E eps^P), ``generalized_low`` and ``generalized_high`` (5 % and 95 % quantiles), ``proved``
        (probability that the total is below that of the Laplace mechanism), ``classic``; with ``trials`` also
        ``sampled``, ``sampled_low``, ``sampled_high`` (mean of the total with a 99 % interval).

    Notes
    -----
    About 2 ms a row without trials.
    """
    t, d = check_count("gap", gap, minimum=2), check_probability("delta", delta)
    draws = check_count("trials", trials, minimum=0)
    if draws:
        check_generator(rng)
    rows = []
    for given in epsilons:
        e = check_ordinary("epsilons", given)
        test = e / 2
        log_error = float(math.log(2 + e * t) - e * t - math.log(4))
        chances, losses = _law_of_proved_loss(t, noise_epsilon=e, test_epsilon=test, delta=d)
        # The proved loss falls with the lower bound, so that quantiles change sides.
        reached = np.cumsum(chances[::-1])[::-1]  # P(eps^P <= losses[j])
        row = {
            "scale": 1 / e,
            "epsilon": e,
            "error": math.exp(log_error),
            "log10_error": log_error / math.log(10),
            "laplace": e,
            "laplace_delta": float(losses[0]),
            "test_epsilon": test,
            "generalized": test + float(chances @ losses),
            "generalized_low": test + float(losses[reached >= 0.05].min()),
            "generalized_high": test + float(losses[reached >= 0.95].min()),
            "proved": float(chances[losses < e - test].sum()),
            "classic": _classic_epsilon(log_error, gap=t, delta=d),
        }
        if draws and rng is not None:
            lower = t + laplace(1 / test, draws, rng) - ptr_threshold(test, d)
            total = test + loss_above(lower, epsilon=e, delta=d)
            half = (
                float(stats.norm.isf(0.005) * total.std(ddof=1) / math.sqrt(draws)) if draws > 1 else math.nan
            )
            mean = float(total.mean())
            row |= {"sampled": mean, "sampled_low": mean - half, "sampled_high": mean + half}
        rows.append(row)
    return pd.DataFrame(rows)


def budget_against_error(
    errors: Sequence[float] = tuple(10.0 ** -np.arange(1, 21)),
    *,
    gap: int = 100,
    delta: float = 1e-6,
    noises: int = 120,
) -> pd.DataFrame:
    """Smallest total epsilon of each mechanism with a given error at one gap, refusals counted as fair coins.

    The parameters of generalized propose-test-release (noise, test, budget) are chosen best for that gap, over a
    grid of noises; classic propose-test-release is the limit of no noise.

    Parameters
    ----------
    errors : sequence of float
        In (0, 1/4).
    gap : int
        |t|, at least 2.
    delta : float
        As in :func:`privacy_against_error`.
    noises : int
        Size of the grid.

    Returns
    -------
    DataFrame
        ``error``, ``laplace`` (delta = 0), ``laplace_delta`` (report-noisy-max at delta, no test), ``generalized``
        with ``noise_epsilon``, ``test_epsilon``, ``budget``, and ``classic``.

    Notes
    -----
    About 20 ms a row, after 50 ms for the tables.
    """
    t, d = check_count("gap", gap, minimum=2), check_probability("delta", delta)
    grid = np.geomspace(1.0 / t, 20.0, check_count("noises", noises))
    rows = []
    for given in errors:
        goal = check_probability("errors", given)
        if goal >= 0.25:
            raise ValueError(f"errors must be below 1/4, got {goal!r}")
        noise = brentq(lambda e, g=goal: math.log(2 + e * t) - e * t - math.log(4 * g), 1e-9 / t, 800 / t)
        # Without a test the noise that the Laplace mechanism needs is enough.
        best = (float(largest_losses(noise, d)[0]), noise, 0.0, float(largest_losses(noise, d)[0]))
        without_test = best[0]
        for e in grid:
            best = min(best, _best_test(goal, gap=t, delta=d, noise_epsilon=float(e)))
        total, noise_epsilon, test_epsilon, budget = best
        rows.append(
            {
                "error": goal,
                "laplace": noise,
                "laplace_delta": without_test,
                "generalized": total,
                "noise_epsilon": noise_epsilon,
                "test_epsilon": test_epsilon,
                "budget": budget,
                "classic": _classic_epsilon(math.log(goal), gap=t, delta=d),
            }
        )
    return pd.DataFrame(rows)


def _best_test(
    error: float, *, gap: int, delta: float, noise_epsilon: float
) -> tuple[float, float, float, float]:
    """Return the smallest total with this noise, the noise, and its test and budget; infinite if none has the error.

    A test of "|t| >= j" refuses with probability r = exp(log(1 / (2 delta)) - test (gap - j + 1)) / 2, and then errs
    with probability 1/2 instead of p: r = (error - p) / (1/2 - p).
    """
    p = float(minority_probability(gap, epsilon=noise_epsilon))
    table = largest_losses(noise_epsilon, delta)
    last = min(table.size - 1, gap)
    if p >= error or last < 1:
        return math.inf, noise_epsilon, math.nan, math.nan
    refusing = (error - p) / (0.5 - p)
    needed = math.log(1 / (2 * delta)) - math.log(2 * refusing)
    enough = np.arange(1, last + 1)
    tests = max(needed, 0.0) / (gap - enough + 1)
    totals = tests + table[enough]
    at = int(np.argmin(totals))
    return float(totals[at]), noise_epsilon, float(tests[at]), float(table[enough[at]])


def _law_of_proved_loss(
    gap: int, *, noise_epsilon: float, test_epsilon: float, delta: float
) -> tuple[FloatArray, FloatArray]:
    """Return the probabilities of ceil(t^P) = 0 (or less), 1, 2, ... and the losses that they prove."""
    losses = largest_losses(noise_epsilon, delta)
    mean = gap - ptr_threshold(test_epsilon, delta)
    above = laplace_tail(np.arange(losses.size - 1) - mean, 1 / test_epsilon)  # P(t^P > j)
    chances = -np.diff(np.concatenate([[1.0], above, [0.0]]))
    return chances, losses


def _classic_epsilon(log_error: float, *, gap: int, delta: float) -> float:
    """Epsilon with which classic propose-test-release errs with this probability, a refusal being a fair coin.

    It refuses with probability r = 2 error: r = exp(-x) / 2 for x = epsilon (gap - 1) - log(1 / (2 delta)) >= 0, and
    1 - exp(x) / 2 below.
    """
    level = math.log(1 / (2 * delta))
    if log_error <= -math.log(4):
        x = -log_error - math.log(4)
    else:
        passing = 1 - 2 * math.exp(log_error)
        x = math.log(2 * passing) if passing > 0 else -math.inf
    return max((level + x) / (gap - 1), 0.0)
