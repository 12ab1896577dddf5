"""What redberg2023 prints wrong in chapter 3 about PATE, on instances that show it.

Nothing here may be used to account for a release: each ``printed_...`` function is *false as printed*. The right
versions are in :mod:`adaptive_dp.ptr.gnmax` and :mod:`adaptive_dp.ptr.pate_ptr`.

Erratum 16: (a) Theorem 3.6.4, (c) Lemma 3.6.5, (d) Theorem 3.6.6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.ptr.gnmax import (
    check_orders,
    check_votes,
    data_independent_renyi,
    exact_renyi,
    gnmax_renyi,
)
from adaptive_dp.ptr.pate_ptr import (
    LossTest,
    failure_probability,
    gnss_renyi,
    pair_renyi,
    thesis_test,
)
from adaptive_dp.validation import FloatArray, check_count, check_generator, check_ordinary, check_probability

VOTES_CASES: tuple[tuple[tuple[int, ...], float, float], ...] = (
    ((100, 60, 5), 5.0, 2.0),
    ((100, 60, 5), 5.0, 10.0),
    ((100, 60, 5), 5.0, 20.0),
    ((100, 60, 5), 5.0, 50.0),
    ((100, 60, 5), 8.0, 10.0),
    ((100, 60, 5), 20.0, 2.0),
    ((100, 60, 5), 20.0, 20.0),
    ((60, 50, 45), 20.0, 5.0),
)
NOISE_CASES = (
    (2.0, 15.0),
    (5.0, 15.0),
    (22.0, 15.0),
    (25.4, 8.85),
    (25.4, 60.0),
    (50.0, 15.0),
    (100.0, 100.0),
)
ROUNDING = 1e-9


# --- (a) the loss of one answer -----------------------------------------------------------------------


def printed_gnmax_renyi(orders: ArrayLike, *, sigma: float) -> FloatArray:
    """exp(-2 a / sigma^2) / a for all orders a (Theorem 3.6.4), **false as printed**; shape (orders,).

    It falls with the order, which no Rényi divergence does. The source states it at one order, a quarter of the gap
    between the two strongest classes.
    """
    a = check_orders(orders)
    return np.asarray(np.exp(-2 * a / check_ordinary("sigma", sigma) ** 2) / a)


def gnmax_table(cases: Sequence[tuple[Sequence[int], float, float]] = VOTES_CASES) -> pd.DataFrame:
    """Exact loss of one answer against the printed and the right bounds, for given (votes, sigma, order).

    Returns
    -------
    pandas.DataFrame
        Columns ``votes`` (text), ``sigma``, ``order``, ``exact``, ``reverse`` (from the worst neighbour to these
        votes), ``printed``, ``theorem_six``, ``data_independent``, ``printed_holds``, ``theorem_six_holds``.
    """
    rows = []
    for votes, sigma, order in cases:
        exact = float(exact_renyi(votes, sigma=sigma, orders=order)[0])
        printed = float(printed_gnmax_renyi(order, sigma=sigma)[0])
        bound = float(gnmax_renyi(votes, sigma=sigma, orders=order)[0, 0])
        row = {
            "votes": ", ".join(f"{n:g}" for n in check_votes(votes)[0]),
            "sigma": float(sigma),
            "order": float(order),
            "exact": exact,
            "reverse": float(exact_renyi(votes, sigma=sigma, orders=order, direction="reverse")[0]),
            "printed": printed,
            "theorem_six": bound,
            "data_independent": float(data_independent_renyi(order, sigma=sigma)[0]),
            "printed_holds": printed >= exact * (1 - ROUNDING),
            "theorem_six_holds": bound >= exact * (1 - ROUNDING) - 1e-15,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def random_gnmax_table(rng: np.random.Generator, *, count: int = 400) -> pd.DataFrame:
    """:func:`gnmax_table` for random votes of 100 teachers in three classes: sigma in [3, 40], order 2, 4, ..., 32.

    A row takes about 4 milliseconds.
    """
    check_generator(rng)
    cases: list[tuple[list[int], float, float]] = []
    for _ in range(check_count("count", count)):
        sigma = float(rng.uniform(3, 40))
        votes = [int(n) for n in rng.multinomial(100, rng.dirichlet([3, 1, 0.5]))]
        cases.append((votes, sigma, float(rng.choice([2, 4, 8, 16, 32]))))
    return gnmax_table(cases)


# --- (c) the cost of publishing the loss --------------------------------------------------------------


def printed_gnss_renyi(orders: ArrayLike, *, sigma_s: float) -> FloatArray:
    """(a + 1) / sigma_s^2 for f + SS N(0, sigma_s^2) (Lemma 3.6.5), **false as printed**; shape (orders,).

    It holds under a condition that is not stated; :func:`largest_sigma_s` computes it.
    """
    return (check_orders(orders) + 1) / check_ordinary("sigma_s", sigma_s) ** 2


def quoted_gnss_renyi(orders: ArrayLike, *, beta: float, sigma_s: float) -> FloatArray:
    """papernot2018, Theorem 23, from which Lemma 3.6.5 is said to follow: right, and about twice the exact value.

    a e^(2 beta) / sigma_s^2 + (beta a - log(1 - 2 a beta) / 2) / (a - 1) for a < 1 / (2 beta), infinite otherwise.
    """
    a, scale = check_orders(orders), check_ordinary("sigma_s", sigma_s)
    rate = beta if beta == 0 else check_ordinary("beta", beta)
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = (rate * a - 0.5 * np.log1p(-2 * a * rate)) / (a - 1)
    return np.where(2 * a * rate < 1, a * math.exp(2 * rate) / (scale * scale) + scales, np.inf)


def largest_sigma_s(order: float, *, beta: float) -> float:
    """Largest sigma_s at which the printed (a + 1) / sigma_s^2 covers the exact divergence: the missing condition.

    The exact divergence is p / sigma_s^2 + r with p and r from :func:`~adaptive_dp.ptr.pate_ptr.gnss_renyi`, so that
    the print holds if and only if sigma_s^2 <= (a + 1 - p) / r. 0 where it never holds.
    """
    far = 1e50
    rest = float(gnss_renyi(order, beta=beta, sigma_s=far)[0])
    part = float(gnss_renyi(order, beta=beta, sigma_s=1.0)[0]) - rest
    return math.sqrt(max(order + 1 - part, 0.0) / rest) if math.isfinite(rest) else 0.0


def gnss_table(cases: Sequence[tuple[float, float]] = NOISE_CASES) -> pd.DataFrame:
    """Exact cost of f + SS N(0, sigma_s^2) against the printed and the quoted one, at beta = 0.2 / order.

    Returns
    -------
    pandas.DataFrame
        Columns ``order``, ``sigma_s``, ``beta``, ``exact``, ``printed``, ``quoted``, ``largest_sigma_s``,
        ``printed_holds``.
    """
    rows = []
    for order, sigma_s in cases:
        beta = 0.2 / order
        exact = float(gnss_renyi(order, beta=beta, sigma_s=sigma_s)[0])
        printed = float(printed_gnss_renyi(order, sigma_s=sigma_s)[0])
        row = {"order": order, "sigma_s": sigma_s, "beta": beta, "exact": exact, "printed": printed}
        row["quoted"] = float(quoted_gnss_renyi(order, beta=beta, sigma_s=sigma_s)[0])
        row["largest_sigma_s"] = largest_sigma_s(order, beta=beta)
        rows.append({**row, "printed_holds": printed >= exact})
    return pd.DataFrame(rows)


def calibration_table(budgets: Sequence[float], *, delta: float = 1e-5) -> pd.DataFrame:
    """What Algorithm 6's own calibration costs exactly, for several budgets of the test.

    Returns
    -------
    pandas.DataFrame
        Columns ``epsilon_hat``, ``order``, ``sigma_s``, ``largest_sigma_s``, ``pair`` (exact divergence of the pair
        at the order), ``claimed`` (epsilon_hat / 2), ``epsilon`` (exact, at the best order), ``printed_holds``.
    """
    rows = []
    for budget in budgets:
        test = thesis_test(epsilon_hat=budget, delta=delta)
        limit = largest_sigma_s(test.order, beta=test.beta)
        noise = {"beta": test.beta, "sigma_s": test.sigma_s, "sigma_2": test.sigma_2}
        rows.append(
            {
                "epsilon_hat": float(budget),
                "order": test.order,
                "sigma_s": test.sigma_s,
                "largest_sigma_s": limit,
                "pair": float(pair_renyi(test.order, **noise)[0]),
                "claimed": budget / 2,
                "epsilon": test.epsilon,
                "printed_holds": test.sigma_s <= limit,
            }
        )
    return pd.DataFrame(rows)


# --- the published bound, and what it adds up to ------------------------------------------------------


def coverage_table(test: LossTest) -> pd.DataFrame:
    """Exact probability that a published loss lies below the true one, for several ways to publish it.

    Returns
    -------
    pandas.DataFrame
        Columns ``version``, ``multiplier``, ``shift``, ``failure``, ``allowed`` (delta / 2), ``holds``. Versions:
        ``"loss + noise"`` (papernot2018: an estimate, not a bound),
        ``"printed"``, ``"quantile"``, ``"exact"``.
    """
    spread = test.beta * test.sigma_2
    sizes = {"loss + noise": (0.0, 0.0)}
    for margin in ("printed", "quantile", "exact"):
        version = LossTest(test.order, test.beta, test.sigma_s, test.sigma_2, test.delta, margin)
        sizes[margin] = (version.multiplier, version.shift)
    rows = []
    for name, (multiplier, shift) in sizes.items():
        failure = failure_probability(multiplier, shift=shift, spread=spread)
        rows.append(
            {
                "version": name,
                "multiplier": multiplier,
                "shift": shift,
                "failure": failure,
                "allowed": test.delta / 2,
                "holds": failure <= test.delta / 2 * (1 + ROUNDING),
            }
        )
    return pd.DataFrame(rows)


def delta_table(delta: float) -> pd.DataFrame:
    """Theorem 3.6.6's delta added up in two ways: only with the maximum is it the delta that was asked for.

    Returns
    -------
    pandas.DataFrame
        Columns ``rule``, ``test``, ``bound``, ``labels``, ``total``, ``holds``.
    """
    half = check_probability("delta", delta) / 2
    parts = {"test": half, "bound": half, "labels": half}
    totals = {"sum (Theorem 3.5.7 as printed)": 3 * half, "maximum (erratum 12)": half + max(half, half)}
    return pd.DataFrame(
        [{"rule": rule, **parts, "total": total, "holds": total <= delta} for rule, total in totals.items()]
    )
