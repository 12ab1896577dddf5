"""What redberg2023 prints wrong in chapter 2 about noisy matrices: the norm of the noise, and the adaptive rule.

Nothing here may be used to report anything: each ``printed_...`` function is *false as printed*. The right versions
are in :mod:`adaptive_dp.goe` and :mod:`adaptive_dp.per_instance.report`.

Errata 7 (tau and Lemma A.4.3) and 8 (Algorithm 9, Theorem A.3.3).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd

from adaptive_dp import goe
from adaptive_dp.datasets.simulated import simulate_unit_rows
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.noise import gaussian
from adaptive_dp.noise import goe as goe_noise
from adaptive_dp.per_instance.bounds import normal_quantile
from adaptive_dp.per_instance.flaws_bounds import coverage_table
from adaptive_dp.per_instance.noisy_objective import NoisyHessian
from adaptive_dp.per_instance.objective import LinearRecords, Objective
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_positive,
    check_probability,
)

PRINTED_TAU = 12.0
"""tau of appendix A.4.1 for d = 50, rho = 8.465e-6: **false**, a quantile in another normalisation (erratum 7)."""
PRINTED_TAU_RHO = 8.465e-6


# --- erratum 7: tau -----------------------------------------------------------------------------------


def printed_lemma_leading_term(dimension: int) -> float:
    """2 sqrt(2 d), the leading term of Lemma A.4.3: sqrt 2 above the true 2 sqrt(d) (erratum 7)."""
    return 2 * math.sqrt(2 * check_count("dimension", dimension))


def tau_coverage(trials: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """What tau = 12 covers in Algorithm 11's normalisation, d = 50 and rho = 8.465e-6 (appendix A.4.1).

    Returns
    -------
    DataFrame
        ``tau``; ``largest``, exact P(lambda_1 <= tau), which bounds P(|A| <= tau) from above; ``coverage``, ``low``,
        ``high`` of |A| <= tau, simulated; ``promised``. Rows: the printed tau and the right one.
    """
    check_generator(rng)
    runs, d = check_count("trials", trials), 50
    norms = np.array([_norm(goe_noise(1.0, d, rng)) for _ in range(runs)])
    taus = {"printed": PRINTED_TAU, "right": goe.operator_norm_bound(PRINTED_TAU_RHO, d)}
    frame = coverage_table({name: norms <= tau for name, tau in taus.items()}, 1 - PRINTED_TAU_RHO)
    frame.insert(1, "tau", list(taus.values()))
    frame.insert(2, "largest", [goe.cdf(tau, d) for tau in taus.values()])
    return frame


def _norm(matrix: FloatArray) -> float:
    return float(np.abs(np.linalg.eigvalsh(matrix)).max())


def leverage_coverage(
    trials: int, *, rng: np.random.Generator, rows: int = 20, dimension: int = 50, rho: float = 1e-3
) -> pd.DataFrame:
    """Chance that x'H^-1 x <= 3/2 x'Hhat^-1 x for every x, at the smallest ridge 2 sigma_3 tau (Proposition A.5.1).

    With fewer rows than columns the smallest eigenvalue of H is lam. ``wrong`` is tau in Chiani's normalisation,
    a factor sqrt 2 below. The event is Hhat > 0 and 3/2 H >= Hhat, so no x needs to be tried.

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low``, ``high``, ``promised``.
    """
    check_generator(rng)
    runs, n, d = (
        check_count("trials", trials),
        check_count("rows", rows),
        check_count("dimension", dimension),
    )
    sigma, right = 0.2, goe.operator_norm_bound(check_probability("rho", rho), d)
    covered = defaultdict(list)
    for _ in range(runs):
        people, noise = simulate_unit_rows(n, d, rng), goe_noise(sigma, d, rng)
        for name, tau in {"wrong normalisation": right / math.sqrt(2), "right": right}.items():
            hessian = Objective(people, LogisticLoss(), 2 * sigma * tau).at(np.zeros(d)).hessian
            # Hhat = H + noise, so that 3/2 H - Hhat = H/2 - noise.
            spectra = np.linalg.eigvalsh([hessian + noise, 0.5 * hessian - noise])
            covered[name].append(spectra.min() > 0)
    return coverage_table(covered, 1 - rho)


def norm_bounds(dimensions: Sequence[int] = (2, 10, 21, 50, 100), *, rho: float = 1e-6) -> pd.DataFrame:
    """Bounds of the norm of GOE noise (sigma = 1): exact, explicit, and the printed leading terms.

    Returns
    -------
    DataFrame
        ``dimension``, ``exact``, ``explicit`` 2 sqrt(d) + 2 sqrt(log(2/rho)), ``leading`` 2 sqrt(d), and
        ``printed_leading`` 2 sqrt(2 d).
    """
    return pd.DataFrame(
        [
            {
                "dimension": d,
                "exact": goe.operator_norm_bound(check_probability("rho", rho), d),
                "explicit": goe.explicit_bound(rho, d),
                "leading": 2 * math.sqrt(d),
                "printed_leading": printed_lemma_leading_term(d),
            }
            for d in dimensions
        ]
    )


# --- erratum 8: Algorithm 9 and Theorem A.3.3 ---------------------------------------------------------


def printed_adaptive_leverage(
    features: FloatArray, matrix: FloatArray, *, estimate: float, floor: float, noise_bound: float
) -> FloatArray:
    """Leverage bound of Algorithm 9, shape (m,), **false as printed** (erratum 8).

    The numerator has the noisy ``estimate`` of the smallest eigenvalue where the proof has its lower bound ``floor``:
    an estimate below the floor makes the factor too small.

    Parameters
    ----------
    features : ndarray, shape (m, d)
    matrix : ndarray, shape (d, d)
        Hhat.
    estimate, floor : float
        lambda_hat, and max(lam, lambda_hat - sigma_4 q).
    noise_bound : float
        tau sigma_3.
    """
    shift, times = (0.0, 1) if floor >= 2 * noise_bound else (noise_bound, 2)
    shifted = matrix + shift * np.eye(matrix.shape[0])
    squares = np.einsum("ij,ij->i", features, np.linalg.solve(shifted, features.T).T)
    found = (estimate + times * noise_bound) / floor * squares
    return np.asarray(np.minimum(found, (features**2).sum(axis=1) / floor))


def adaptive_instance() -> pd.DataFrame:
    """Algorithm 9 inside its high-probability event: H = lam = 10, lambda_hat = 5, tau sigma_3 = 1, Hhat = 11.

    Returns
    -------
    DataFrame
        ``leverage`` x'H^-1 x, and the bounds ``printed`` and ``library``. One row.
    """
    one, floor, noise_bound = np.ones((1, 1)), 10.0, 1.0
    printed = printed_adaptive_leverage(one, 11 * one, estimate=5.0, floor=floor, noise_bound=noise_bound)
    library = NoisyHessian(11 * one, 0.5, noise_bound, floor, "standard")
    right = library.relative_upper(LinearRecords(one, np.ones(1), np.ones(1)))
    return pd.DataFrame(
        [{"leverage": 1 / floor, "printed": float(printed[0]), "library": float(right[0, 0])}]
    )


def adaptive_failures(
    trials: int, *, rng: np.random.Generator, dimension: int = 8, rho: float = 0.05
) -> pd.DataFrame:
    """How often Algorithm 9's leverage bound fails for some of 20 random people, *given* that its event holds.

    Up to 60 random rows, lam from 1 to 50, sigma_3 = 1, sigma_4 = 3. Given the event the right bounds never fail.

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low``, ``high`` for the printed rule, the library's "standard" and its "family";
        ``promised`` is 1. Runs outside the event are left out.
    """
    check_generator(rng)
    runs, d, tail = (
        check_count("trials", trials),
        check_count("dimension", dimension),
        check_probability("rho", rho),
    )
    noise_bound, sigma_eigenvalue = goe.operator_norm_bound(tail, d), 3.0
    reach = sigma_eigenvalue * normal_quantile(tail)
    covered = defaultdict(list)
    for _ in range(runs):
        lam, n = 10 ** rng.uniform(0, 1.7), int(rng.integers(0, 61))
        rows = rng.standard_normal((n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        hessian = lam * np.eye(d) + rows.T @ rows
        noise = goe_noise(1.0, d, rng)
        smallest = float(np.linalg.eigvalsh(hessian)[0])
        estimate = smallest + float(gaussian(sigma_eigenvalue, 1, rng)[0])
        if abs(estimate - smallest) > reach or _norm(noise) > noise_bound:
            continue
        floor, matrix = max(lam, estimate - reach), hessian + noise
        people = rng.standard_normal((20, d))
        truth = np.einsum("ij,ij->i", people, np.linalg.solve(hessian, people.T).T)
        printed = printed_adaptive_leverage(
            people, matrix, estimate=estimate, floor=floor, noise_bound=noise_bound
        )
        covered["printed"].append((truth <= printed * (1 + 1e-9)).all())
        records = LinearRecords(people, np.ones(20), np.ones(20))
        for rule in ("standard", "family"):
            bound = NoisyHessian(matrix, 1.0, noise_bound, floor, rule).relative_upper(records)[:, 0]
            covered[rule].append((truth <= bound * (1 + 1e-9)).all())
    return coverage_table(covered, 1.0)


def adaptive_algebra(x: float = 0.5, y: float = 0.5) -> pd.DataFrame:
    """An identity in the proof of Theorem A.3.3: (1 + x) / (1 - y) is not 1 + x + y / (1 - y) (erratum 8).

    x = 2 tau sigma_3 / lambda_hat and y = beta / lambda_min. The slip halves a constant of the theorem: C is at most
    8 tau sigma_3 + 2 beta, not 4 tau sigma_3 + 2 beta.

    Returns
    -------
    DataFrame
        ``true``, ``printed``, ``right`` 1 + (x + y) / (1 - y). One row.
    """
    first, second = check_positive("x", x), check_probability("y", y)
    return pd.DataFrame(
        [
            {
                "true": (1 + first) / (1 - second),
                "printed": 1 + first + second / (1 - second),
                "right": 1 + (first + second) / (1 - second),
            }
        ]
    )
