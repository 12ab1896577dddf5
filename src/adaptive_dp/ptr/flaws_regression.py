"""What redberg2023 prints wrong about private linear regression, and what it would cost to believe it.

Nothing here may be used to calibrate anything: each ``printed_...`` function is *false as printed*. The right versions
are in :mod:`adaptive_dp.ptr.posterior_sampling` and :mod:`adaptive_dp.ptr.ops_ptr`. Deltas are exact.

Errata 14 (Theorem 3.6.1) and 15 (Algorithms 14 and 15, Theorem B.4.1, Lemma B.4.2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from adaptive_dp.accounting import gaussian_delta, gaussian_sigma
from adaptive_dp.ptr.posterior_sampling import (
    Statistics,
    data_dependent_curve,
    epsilon_added,
    epsilon_removed,
    posterior_delta,
)
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_positive,
    check_probability,
)

# (lam*, |theta*|, gamma) of erratum 14, |X| = |Y| = 1.
SETTINGS = (
    (1e4, 0.5, 1e4),
    (1e3, 0.5, 450.0),
    (1e3, 0.5, 10.0),
    (100.0, 0.5, 50.0),
    (20.0, 0.5, 5.0),
    (1e4, 0.5, 100.0),
)


# --- erratum 14: Theorem 3.6.1 ------------------------------------------------------------------------


def printed_epsilon(statistics: Statistics, *, gamma: float, delta: float) -> float:
    """Data-dependent epsilon of Theorem 3.6.1, **false as printed** (erratum 14).

    A factor sqrt(2) is missing in the first term and another in the last, and records that are removed are not
    covered. The last term is read with the parentheses that it lacks, (1 + log(2/delta)) |X|^2 / (2 lam*). Right:
    :func:`~adaptive_dp.ptr.posterior_sampling.epsilon_added` and ``epsilon_removed``.
    """
    g, tail = check_positive("gamma", gamma), math.log(2 / check_probability("delta", delta))
    square, curvature = statistics.feature_bound**2, statistics.curvature
    lipschitz = statistics.feature_bound * statistics.residual_bound
    first = math.sqrt(g * lipschitz**2 * tail / curvature)
    second = g * lipschitz**2 / (2 * (curvature + square))
    return first + second + (1 + tail) * square / (2 * curvature)


def additions_at_printed_epsilon(
    settings: Sequence[tuple[float, float, float]] = SETTINGS, delta: float = 1e-6
) -> pd.DataFrame:
    """The worst record that may be *added*, at the printed epsilon.

    Parameters
    ----------
    settings : sequence of (lam*, |theta*|, gamma)
        With |X| = |Y| = 1.
    delta : float
        What is claimed.

    Returns
    -------
    DataFrame
        ``curvature``, ``norm``, ``gamma``, ``printed`` epsilon, ``exact_delta`` there, ``claimed_delta``,
        ``corrected`` (the closed form), ``exact`` epsilon at the claimed delta.
    """
    rows = []
    for curvature, norm, gamma in settings:
        # A removed record does not matter here: with lam = lam* no eigenvalue is needed.
        statistics = Statistics(curvature, 0.0, 1.0 + norm)
        side = data_dependent_curve(statistics, gamma=gamma)
        only_added = type(side)(side.gamma, side.sides[:1])
        printed = printed_epsilon(statistics, gamma=gamma, delta=delta)
        rows.append(
            {
                "curvature": curvature,
                "norm": norm,
                "gamma": gamma,
                "printed": printed,
                "exact_delta": only_added.delta(printed),
                "claimed_delta": delta,
                "corrected": epsilon_added(statistics, gamma=gamma, delta=delta),
                "exact": only_added.epsilon(delta),
            }
        )
    return pd.DataFrame(rows)


def additions_on_data(
    gammas: Sequence[float] = (20.0, 400.0, 2_000.0), *, delta: float = 1e-6, rng: np.random.Generator
) -> pd.DataFrame:
    """2,000 simulated records in the plane, lam = 1, and the worst record added to them, at the printed epsilon.

    Parameters
    ----------
    gammas : sequence of float
    delta : float
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        ``gamma``, ``printed`` epsilon, ``exact_delta``: largest over records on the unit circle with labels -1 and 1.
    """
    check_generator(rng)
    x = rng.standard_normal((2_000, 2))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.clip(x @ np.array([0.4, -0.3]) + 0.1 * rng.standard_normal(2_000), -1, 1)
    gram = x.T @ x
    theta = np.linalg.solve(gram + np.eye(2), x.T @ y)
    statistics = Statistics(1.0, float(np.linalg.eigvalsh(gram)[0]), 1 + float(np.linalg.norm(theta)))
    angles = np.linspace(0, 2 * np.pi, 721)
    new = np.column_stack([np.cos(angles), np.sin(angles)])
    h = np.einsum("ij,ji->i", new, np.linalg.solve(gram + np.eye(2), new.T))
    residual = 1 + np.abs(new @ theta)
    rows = []
    for gamma in gammas:
        printed = printed_epsilon(statistics, gamma=gamma, delta=delta)
        exact = posterior_delta(printed, h, np.sqrt(gamma * h) * residual / (1 + h), sampled="without")
        rows.append({"gamma": gamma, "printed": printed, "exact_delta": float(np.max(exact))})
    return pd.DataFrame(rows)


def removals_at_printed_epsilon(
    trials: int, *, delta: float = 1e-6, rng: np.random.Generator
) -> pd.DataFrame:
    """Small random data sets in one dimension and one record *removed*, one-sided, at the printed epsilon.

    Parameters
    ----------
    trials : int
        Data sets of 1 to 3 records, lam from 0.001 to 1, gamma from 0.1 to 100.
    delta : float
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        One row, for the worst of them: ``lam``, ``gamma``, ``rows``, ``printed`` epsilon, ``exact_delta`` there,
        ``corrected`` (closed form for removals), ``corrected_delta`` (exact, at that epsilon), ``violated`` (share
        of the data sets).
    """
    check_generator(rng)
    worst: dict[str, float] = {"exact_delta": -1.0}
    violated = 0
    for _ in range(check_count("trials", trials)):
        lam, gamma, n = 10 ** rng.uniform(-3, 0), 10 ** rng.uniform(-1, 2), int(rng.integers(1, 4))
        x, y = rng.uniform(-1, 1, n), rng.choice([-1.0, 1.0], n)
        total, cross = float(x @ x), float(x @ y)
        statistics = Statistics(lam, total, 1 + abs(cross / (total + lam)))
        rest = total - x[0] ** 2 + lam
        h = float(x[0] ** 2 / rest)
        residual = float(y[0] - x[0] * (cross - x[0] * y[0]) / rest)
        mean = math.sqrt(gamma * h) * residual / (1 + h)
        printed = printed_epsilon(statistics, gamma=gamma, delta=delta)
        exact = float(posterior_delta(printed, h, mean, sampled="with"))
        violated += exact > delta
        if exact > worst["exact_delta"]:
            corrected = epsilon_removed(statistics, gamma=gamma, delta=delta)
            worst = {
                "lam": lam,
                "gamma": gamma,
                "rows": n,
                "printed": printed,
                "exact_delta": exact,
                "corrected": corrected,
                "corrected_delta": float(posterior_delta(corrected, h, mean, sampled="with")),
            }
    return pd.DataFrame([{**worst, "violated": violated / trials}])


def two_sided_removal() -> pd.DataFrame:
    """One record (1, 1) in one dimension against the empty set, both directions, at the printed epsilon.

    Definition 3.5.1 asks for both; what Theorem 3.5.3 needs is the first (erratum 12).

    Returns
    -------
    DataFrame
        ``lam``, ``gamma``, ``printed`` epsilon, ``own_delta`` (the record's set is sampled), ``other_delta`` (the
        empty set is), for two settings.
    """
    rows = []
    for lam, gamma in ((0.01, 1.0), (0.05, 30.0)):
        statistics = Statistics(lam, 1.0, 1 + 1 / (1 + lam))
        h = 1 / lam
        mean = math.sqrt(gamma * h) / (1 + h)
        printed = printed_epsilon(statistics, gamma=gamma, delta=1e-6)
        rows.append(
            {
                "lam": lam,
                "gamma": gamma,
                "printed": printed,
                "own_delta": posterior_delta(printed, h, mean, sampled="with"),
                "other_delta": posterior_delta(printed, h, mean, sampled="without"),
            }
        )
    return pd.DataFrame(rows)


# --- erratum 15: Algorithms 14 and 15 -----------------------------------------------------------------


def printed_noise(epsilon: float, delta: float) -> float:
    """Multiplier sqrt(log(6 / delta)) / (epsilon / 4) of Algorithm 15, **false as printed** (erratum 15).

    Claimed to be (epsilon / 4, delta / 3)-private at sensitivity 1. Right:
    :func:`adaptive_dp.accounting.gaussian_sigma`.
    """
    return math.sqrt(math.log(6 / check_probability("delta", delta))) / (
        check_positive("epsilon", epsilon) / 4
    )


def released_noise(
    epsilons: Sequence[float] = (0.25, 0.5, 1.0, 4.0, 8.0), delta: float = 1e-6
) -> pd.DataFrame:
    """Noise of lambda_min in Algorithm 15 against its claim.

    Returns
    -------
    DataFrame
        ``epsilon`` (of the whole), ``printed`` multiplier, ``exact_delta`` at epsilon / 4, ``claimed_delta``
        (delta / 3), ``right`` multiplier.
    """
    rows = []
    for epsilon in epsilons:
        printed = printed_noise(epsilon, delta)
        rows.append(
            {
                "epsilon": epsilon,
                "printed": printed,
                "exact_delta": gaussian_delta(epsilon / 4, 1 / printed),
                "claimed_delta": delta / 3,
                "right": gaussian_sigma(epsilon / 4, delta / 3, 1.0),
            }
        )
    return pd.DataFrame(rows)


def residual_release(epsilon: float = 1.0, delta: float = 1e-6) -> pd.DataFrame:
    """The release of Delta in Algorithm 15: sqrt(6 / delta) stands where sqrt(log(6 / delta)) is meant.

    Returns
    -------
    DataFrame
        ``version`` (as printed, as meant), ``multiplier`` of the noise, ``shift``, ``coverage``: chance that Delta^P
        is an upper bound, ``claimed``. One row a version.
    """
    log_tail = math.log(6 / check_probability("delta", delta))
    share = check_positive("epsilon", epsilon) / 4
    shift = math.sqrt(2 * log_tail * math.log(2 / delta)) / share
    rows = []
    for version, root in (("as printed", math.sqrt(6 / delta)), ("as meant", math.sqrt(log_tail))):
        multiplier = root / share
        rows.append(
            {
                "version": version,
                "multiplier": multiplier,
                "shift": shift,
                "coverage": float(ndtr(shift / multiplier)),
                "claimed": 1 - delta / 2,
            }
        )
    return pd.DataFrame(rows)


def bound_directions(epsilon: float = 1.0, delta: float = 1e-6) -> pd.DataFrame:
    """Which of the released bounds is on the safe side, with the directions of Algorithm 14 and with the right ones.

    Algorithm 14 asks for lambda^P >= lambda_min and Delta^P <= Delta. The data-dependent epsilon falls with the first
    and grows with the second, so that it is then an upper bound only by chance.

    Returns
    -------
    DataFrame
        ``directions``, ``eigenvalue_safe``, ``residual_safe``: chances that each bound is on the safe side;
        ``noise`` multiplier. Noise by the analytic Gaussian mechanism at (epsilon / 4, delta / 3).
    """
    sigma = gaussian_sigma(check_positive("epsilon", epsilon) / 4, check_probability("delta", delta) / 3, 1.0)
    rows = [
        {"directions": name, "eigenvalue_safe": safe, "residual_safe": safe, "noise": sigma}
        for name, safe in (("as printed", delta / 2), ("right", 1 - delta / 2))
    ]
    return pd.DataFrame(rows)


def total_deltas(delta: float = 1e-6) -> pd.DataFrame:
    """What Algorithm 15's delta adds up to: three mechanisms and two bounds that may fail.

    Returns
    -------
    DataFrame
        ``part``, ``delta``; the last rows are the ``sum`` and what is ``printed``.
    """
    level = check_probability("delta", delta)
    parts = {
        "release of lambda_min": level / 3,
        "release of Delta": level / 3,
        "posterior sample": level / 3,
        "lambda^P too large": level / 2,
        "Delta^P too small": level / 2,
    }
    table = {**parts, "sum": sum(parts.values()), "printed": level}
    return pd.DataFrame({"part": list(table), "delta": list(table.values())})


def residual_sensitivity(trials: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """Lemma B.4.2 on random pairs: |change of log(|Y| + |X| |theta*|)| over log(1 + |X|^2 / eigenvalue).

    Parameters
    ----------
    trials : int
        Random data sets of 1 to 4 records in 1 to 3 dimensions, lam from 0.001 to 3.
    rng : numpy.random.Generator

    Returns
    -------
    DataFrame
        ``eigenvalue`` used: lam* of the set without the record (right), of the set with it (the lemma as a local
        sensitivity, false for removals), max(lam, lam* - |X|^2) of the set with it (repaired); ``largest_ratio``
        (at most 1: valid).
    """
    check_generator(rng)
    smaller, larger, repaired = 0.0, 0.0, 0.0
    for _ in range(check_count("trials", trials)):
        lam, n, d = 10 ** rng.uniform(-3, 0.5), int(rng.integers(1, 5)), int(rng.integers(1, 4))
        x = _short_rows(rng.standard_normal((n, d))) * 10 ** rng.uniform(-1, 0, (n, 1))
        y = rng.choice([-1.0, 1.0], n)
        new = _short_rows(rng.standard_normal((1, d)))[0] * rng.uniform(0.1, 1.0)
        label = rng.uniform(-1, 1)
        without = x.T @ x + lam * np.eye(d)
        moment = x.T @ y
        change = abs(
            math.log1p(float(np.linalg.norm(np.linalg.solve(without, moment))))
            - math.log1p(
                float(np.linalg.norm(np.linalg.solve(without + np.outer(new, new), moment + new * label)))
            )
        )
        low = float(np.linalg.eigvalsh(without)[0])
        high = float(np.linalg.eigvalsh(without + np.outer(new, new))[0])
        smaller = max(smaller, change / math.log1p(1 / low))
        larger = max(larger, change / math.log1p(1 / high))
        repaired = max(repaired, change / math.log1p(1 / max(lam, high - 1)))
    names = ["without the record", "with the record", "max(lam, lam* - |X|^2) with the record"]
    return pd.DataFrame({"eigenvalue": names, "largest_ratio": [smaller, larger, repaired]})


def _short_rows(matrix: FloatArray) -> FloatArray:
    return np.asarray(matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1.0))


# --- the same constants in AdaSSP ---------------------------------------------------------------------


def ada_ssp_constants(
    epsilons: Sequence[float] = (0.1, 1.0, 4.0, 10.0, 40.0), delta: float = 1e-6
) -> pd.DataFrame:
    """Noise sqrt(log(6 / delta)) / (epsilon / 3) of AdaSSP (wang2018): false one by one, private taken together.

    Returns
    -------
    DataFrame
        ``epsilon``, ``one_delta``: exact delta of one release at epsilon / 3, ``one_claimed`` (delta / 3),
        ``joint_delta``: of all three at epsilon, ``claimed_delta``, ``noise_ratio``: printed noise over the noise that
        the exact joint calibration needs.
    """
    rows = []
    for epsilon in epsilons:
        scale = math.sqrt(math.log(6 / delta)) / (check_positive("epsilon", epsilon) / 3)
        rows.append(
            {
                "epsilon": epsilon,
                "one_delta": gaussian_delta(epsilon / 3, 1 / scale),
                "one_claimed": delta / 3,
                "joint_delta": gaussian_delta(epsilon, math.sqrt(3) / scale),
                "claimed_delta": delta,
                "noise_ratio": scale / gaussian_sigma(epsilon, delta, math.sqrt(3)),
            }
        )
    return pd.DataFrame(rows)


def failure_quantiles(delta: float = 1e-6) -> pd.DataFrame:
    """Shift of a released bound that may fail with probability delta / 2: sqrt(2 log(2 / delta)) and the exact one.

    Returns
    -------
    DataFrame
        ``shift`` name, ``value``, ``failure`` probability.
    """
    level = check_probability("delta", delta)
    printed, exact = math.sqrt(2 * math.log(2 / level)), -float(ndtri(level / 2))
    return pd.DataFrame(
        {
            "shift": ["sqrt(2 log(2/delta))", "normal quantile"],
            "value": [printed, exact],
            "failure": [float(ndtr(-printed)), float(ndtr(-exact))],
        }
    )
