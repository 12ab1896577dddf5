"""What redberg2023 prints wrong in chapter 2 about bounds: printed formulas, and what they cover.

Nothing here may be used to report anything: each ``printed_...`` function is *false as printed*. The right versions
are in :mod:`adaptive_dp.per_instance.bounds`. Where a coverage depends on a few numbers only it is computed, otherwise
it is simulated and comes with a Clopper-Pearson interval.

Errata 3 (Theorem 2.3.3), 4 (Theorem 2.3.4) and 5 (Proposition A.3.5, as far as it is about one bound).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import erf
from scipy.stats import chi

from adaptive_dp.datasets.simulated import simulate_unit_rows
from adaptive_dp.experiments.statistics import proportion_interval
from adaptive_dp.losses import LogisticLoss
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance.bounds import (
    Scope,
    determinant_bound,
    inner_product_width,
    largest_normal_quantile,
    normal_quantile,
)
from adaptive_dp.per_instance.objective import GeneralRecords, LinearRecords, Objective
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)


def coverage_table(covered: Mapping[str, ArrayLike], promised: float) -> pd.DataFrame:
    """How often each version of a bound held.

    Parameters
    ----------
    covered : mapping of str to array_like, shape (runs,)
        Truth values, one a run.
    promised : float

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low`` and ``high`` (95% Clopper-Pearson interval), ``promised``.
    """
    rows = []
    for version, values in covered.items():
        hits = np.asarray(values, dtype=bool)
        low, high = proportion_interval(int(hits.sum()), hits.size)
        rows.append(
            {"version": version, "coverage": hits.mean(), "low": low, "high": high, "promised": promised}
        )
    return pd.DataFrame(rows)


# --- erratum 3: Theorem 2.3.3 -------------------------------------------------------------------------


def printed_determinant_bound(eigenvalues: FloatArray, lam: float) -> FloatArray:
    """-sum_j log(1 - lambda_j / lam) over the last axis, as Theorem 2.3.3 prints; nan where undefined (erratum 3).

    Valid where it is defined, which asks for lam above the largest eigenvalue, but needlessly large: right and sharp,
    for every lam, is :func:`adaptive_dp.per_instance.determinant_bound`.
    """
    shares = np.asarray(eigenvalues, dtype=np.float64) / check_ordinary("lam", lam)
    defined = np.asarray((shares < 1).all(axis=-1))
    safe = np.where(defined[..., np.newaxis], shares, 0.0)
    return np.asarray(np.where(defined, -np.log1p(-safe).sum(axis=-1), np.nan))


def determinant_bounds(ratios: Sequence[float] = (0.05, 0.25, 0.5, 0.9, 0.99, 2.0)) -> pd.DataFrame:
    """Both bounds of the determinant term, by f''|x|^2 / lam.

    Returns
    -------
    DataFrame
        ``ratio``, ``printed`` (nan where undefined), ``right``: attained by the first record of a data set.
    """
    ratio = np.array([check_positive("ratios", r) for r in ratios])
    return pd.DataFrame(
        {
            "ratio": ratio,
            "printed": printed_determinant_bound(ratio[:, np.newaxis], 1.0),
            "right": determinant_bound(_records_with(ratio[:, np.newaxis, np.newaxis]), lam=1.0),
        }
    )


def random_determinants(trials: int, *, rng: np.random.Generator) -> pd.DataFrame:
    """The same on random Hessians in three dimensions, lam from 0.03 to 10, and an inequality inside the proof.

    The proof says mu_j <= -lambda_j / lam for mu_1 = -lambda_1 u_1'H^-1 u_1; H >= lam I gives the reverse.

    Returns
    -------
    DataFrame
        ``undefined``: share of instances in which the printed bound has no value; ``largest_printed`` and
        ``largest_right``: largest quotient of the determinant term and each bound (at most 1: valid);
        ``reversed``: share in which the proof's inequality is false. One row.
    """
    check_generator(rng)
    d, per_lam = 3, max(1, check_count("trials", trials) // 20)
    found = defaultdict(list)
    for lam in 10.0 ** rng.uniform(-1.5, 1.0, 20):
        rank = int(rng.integers(0, d + 1))
        data = rng.standard_normal((per_lam, d, rank))
        own = rng.standard_normal((per_lam, d, int(rng.integers(1, d + 1))))
        own *= rng.uniform(0.1, 1.0, (per_lam, 1, 1))
        rest, hessian = data @ data.mT + lam * np.eye(d), own @ own.mT
        term = np.linalg.slogdet(rest + hessian)[1] - np.linalg.slogdet(rest)[1]
        eigenvalues, vectors = np.linalg.eigh(hessian)
        top = vectors[..., -1:]
        leverage = eigenvalues[:, -1] * (top.mT @ np.linalg.solve(rest, top))[:, 0, 0]
        bound = printed_determinant_bound(np.maximum(eigenvalues, 0.0), float(lam))
        found["printed"].append(term / bound)
        found["right"].append(term / determinant_bound(_records_with(hessian), lam=float(lam)))
        found["reversed"].append(leverage < eigenvalues[:, -1] / lam * (1 - 1e-9))
    printed = np.concatenate(found["printed"])
    return pd.DataFrame(
        {
            "undefined": [np.isnan(printed).mean()],
            "largest_printed": [np.nanmax(printed)],
            "largest_right": [np.max(found["right"])],
            "reversed": [np.mean(found["reversed"])],
        }
    )


def _records_with(hessians: FloatArray) -> GeneralRecords:
    return GeneralRecords(np.zeros(hessians.shape[:2]), hessians)


# --- erratum 4: Theorem 2.3.4 -------------------------------------------------------------------------


def printed_inner_bound(slopes: FloatArray, norms: FloatArray, *, sigma: float, rho: float) -> FloatArray:
    """F' sigma |x| sqrt(2 log(2 / rho)) of Theorem 2.3.4 for linear losses, **false as printed** (erratum 4).

    f' stands without its absolute value: where it is negative (logistic loss, y = +1) the "bound" is negative.
    """
    return np.asarray(
        slopes
        * norms
        * check_ordinary("sigma", sigma)
        * math.sqrt(2 * math.log(2 / check_probability("rho", rho))),
        dtype=np.float64,
    )


def inner_coverage(
    trials: int, *, rng: np.random.Generator, dimension: int = 20, rows: int = 30, rho: float = 0.05
) -> pd.DataFrame:
    """Coverage of bounds of |<grad J, grad l(theta; z)>| for logistic regression after objective perturbation.

    For a person with y = +1 who was fixed beforehand, and for one who comes afterwards with x = theta / |theta|.

    Returns
    -------
    DataFrame
        As :func:`coverage_table`.
    """
    check_generator(rng)
    runs, d, tail = (
        check_count("trials", trials),
        check_count("dimension", dimension),
        check_probability("rho", rho),
    )
    people = simulate_unit_rows(check_count("rows", rows), d, rng)
    objective, loss, sigma = Objective(people, LogisticLoss(), 1.0), LogisticLoss(), 2.0
    one = inner_product_width(tail, scope=Scope.ONE, dimension=d)
    everyone = inner_product_width(tail, scope=Scope.EVERYONE, dimension=d)
    fixed, late = "fixed person, y = +1: ", "after the release, x along theta: "
    covered = defaultdict(list)
    for _ in range(runs):
        noise = gaussian(sigma, d, rng)
        theta = objective.minimise(noise).theta
        pair = np.stack([people.features[0], theta / np.linalg.norm(theta)])
        slopes = loss.derivative(pair @ theta, np.ones(2))
        records = LinearRecords(pair, slopes, np.ones(2))
        product = np.abs(records.inner_products(-noise))
        printed = printed_inner_bound(slopes, np.ones(2), sigma=sigma, rho=tail)
        covered[fixed + "printed, f' without | |"].append(product[0] <= printed[0])
        covered[fixed + "sqrt(2 log(2/rho))"].append(product[0] <= abs(printed[0]))
        covered[fixed + "exact quantile"].append(product[0] <= sigma * one.of(records)[0])
        covered[late + "the same quantile"].append(product[1] <= sigma * one.of(records)[1])
        covered[late + "uniform bound"].append(product[1] <= sigma * everyone.of(records)[1])
    return coverage_table(covered, 1 - tail)


def late_coverage(dimensions: Sequence[int] = (1, 2, 5, 20, 100), *, rho: float = 0.05) -> pd.DataFrame:
    """Exact worst coverage when records are chosen after the release, by dimension.

    Whoever knows the noise e (it is -grad J / sigma) can choose g along e, or along its largest coordinate: a bound
    a |g|_2 fails if |e|_2 > a, a bound b |g|_1 if |e|_inf > b, and the smaller of both if either happens. Taking the
    smaller of the two bounds *each at level rho* is therefore not enough; at 1 - sqrt(1 - rho) each it is, by the
    Gaussian correlation inequality, and the library does that.

    Returns
    -------
    DataFrame
        ``dimension``; ``fixed`` coverage of the half-normal quantile; ``min_low`` and ``min_high``, of min(chi, l1) at
        rho each; ``library_low`` and ``library_high``, of :func:`inner_product_width`; ``promised``.
    """
    tail = check_probability("rho", rho)
    rows = []
    for d in dimensions:
        width = inner_product_width(tail, scope=Scope.EVERYONE, dimension=d)
        naive = norms_coverage(d, l2=float(chi.isf(tail, d)), largest=largest_normal_quantile(tail, d))
        ours = norms_coverage(d, l2=width.l2, largest=width.l1)
        rows.append(
            {
                "dimension": d,
                "fixed": float(chi.cdf(normal_quantile(tail), d)),
                "min_low": naive[0],
                "min_high": naive[1],
                "library_low": ours[0],
                "library_high": ours[1],
                "promised": 1 - tail,
            }
        )
    return pd.DataFrame(rows)


def norms_coverage(dimension: int, *, l2: float, largest: float) -> tuple[float, float]:
    """P(|e|_2 <= l2 and |e|_inf <= largest) for e ~ N(0, I_d), enclosed by rounding squares up and down on a grid."""
    d, points = check_count("dimension", dimension), 1 << 13
    bound, top = check_positive("l2", l2), check_positive("largest", largest)
    if d == 1:
        exact = float(erf(min(bound, top) / math.sqrt(2)))
        return exact, exact
    # Squares beyond l2^2 count as failures anyway; a sum of d of them never wraps round.
    edge = min(bound, top)
    step = edge**2 / points
    mass = np.diff(erf(np.sqrt(np.arange(points + 1) * step / 2)))
    size = next_fast_len(d * points + 1, real=True)
    law = np.maximum(irfft(rfft(mass, size) ** d, size), 0.0)
    total = np.cumsum(law)
    limit = math.floor(bound**2 / step * (1 + 1e-12))
    found = [float(total[min(k, size - 1)]) if k >= 0 else 0.0 for k in (limit - d, limit)]
    return found[0], min(1.0, found[1])


def tail_factors(rhos: Sequence[float] = (1e-2, 1e-6, 1e-10)) -> pd.DataFrame:
    """The quantile of |N(0, 1)| and the formula that the thesis puts in its place.

    Returns
    -------
    DataFrame
        ``rho``, ``exact``, ``printed`` sqrt(2 log(2 / rho)), ``ratio``; and ``shorter``, sqrt(2 log(1 / rho)), which
        already suffices for two sides, as P(|N| > t) <= exp(-t^2 / 2).
    """
    tails = np.array([check_probability("rho", r) for r in rhos])
    frame = pd.DataFrame({"rho": tails, "exact": [normal_quantile(float(r)) for r in tails]})
    frame["printed"] = np.sqrt(2 * np.log(2 / tails))
    frame["ratio"] = frame["printed"] / frame["exact"]
    frame["shorter"] = np.sqrt(-2 * np.log(tails))
    return frame


def simultaneous_coverage(
    trials: int, *, rng: np.random.Generator, people: int = 1000, dimension: int = 50, rho: float = 0.05
) -> pd.DataFrame:
    """Chance that the bound of the inner product holds for *all* n people at once (Proposition A.3.5).

    Algorithm 2 uses the quantile of one person, but the proposition promises n of them; a quantile at rho / n is
    needed. For a generalised linear loss f' cancels: what counts is |e'x| / |x| with e ~ N(0, I), one draw a run.

    Returns
    -------
    DataFrame
        As :func:`coverage_table`, for ``Scope.ONE`` (as run) and ``Scope.MANY``.
    """
    check_generator(rng)
    runs, n, d = (
        check_count("trials", trials),
        check_count("people", people),
        check_count("dimension", dimension),
    )
    tail, features = check_probability("rho", rho), simulate_unit_rows(n, d, rng).features
    largest = np.abs(gaussian(1.0, (runs, d), rng) @ features.T).max(axis=1)
    one = inner_product_width(tail, scope=Scope.ONE, dimension=d).l2
    many = inner_product_width(tail, scope=Scope.MANY, dimension=d, people=n).l2
    return coverage_table(
        {"Algorithm 2 as run: one person": largest <= one, "everybody in the data": largest <= many}, 1 - tail
    )
