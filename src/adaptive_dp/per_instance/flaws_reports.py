"""What redberg2023 prints wrong in chapter 2 about reports: the printed Algorithm 2, and what it covers.

Nothing here may be used to report anything: each ``printed_...`` function is *false as printed*. The right versions
are in :mod:`adaptive_dp.per_instance.report`. Where a coverage depends on a few numbers only it is computed, otherwise
it is simulated and comes with a Clopper-Pearson interval.

Erratum 5 (Algorithm 2, Theorem 2.3.5 (3), Proposition A.3.5).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import ndtr

from adaptive_dp import goe
from adaptive_dp.datasets.simulated import simulate_unit_rows
from adaptive_dp.losses import LogisticLoss, Loss
from adaptive_dp.noise import gaussian
from adaptive_dp.per_instance.bounds import Scope, normal_quantile
from adaptive_dp.per_instance.ex_post import LossTerms, losses_of_members
from adaptive_dp.per_instance.flaws_bounds import coverage_table
from adaptive_dp.per_instance.objective import Objective
from adaptive_dp.per_instance.report import PrivacyReport, data_dependent_report
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)

# --- the bound from the noisy gradient ----------------------------------------------------------------


def printed_gradient_bound(
    products: FloatArray,
    gradient_norms: FloatArray,
    *,
    sigma_gradient: float,
    rho: float,
    sigma: float | None = None,
) -> FloatArray:
    """|g| of Algorithms 2 and 9, **false as printed**: it is no bound of |<grad J, f'x>| (erratum 5).

    A signed upper bound p + sigma_2 |f'x| q of a signed number is taken, its smaller with sigma |f'x| q if ``sigma``
    is given (Algorithm 2), and then its absolute value. (The print also multiplies the product by f' x a second time;
    read literally the units are wrong, so ``products`` are f' x'J^P here, the only sensible reading.)

    Parameters
    ----------
    products : ndarray, shape (m,)
        <noisy gradient of J, f'x>.
    gradient_norms : ndarray, shape (m,)
        |f'| |x|.
    """
    q = normal_quantile(check_probability("rho", rho))
    bound = np.asarray(products + check_ordinary("sigma_gradient", sigma_gradient) * gradient_norms * q)
    if sigma is not None:
        bound = np.minimum(bound, check_ordinary("sigma", sigma) * gradient_norms * q)
    return np.abs(bound)


def right_gradient_bound(
    products: FloatArray,
    gradient_norms: FloatArray,
    *,
    sigma_gradient: float,
    rho: float,
    sigma: float | None = None,
) -> FloatArray:
    """|p| + sigma_2 |f'x| q, and the smaller with sigma |f'x| q if ``sigma`` is given: what was meant."""
    q = normal_quantile(check_probability("rho", rho))
    bound = np.abs(products) + check_ordinary("sigma_gradient", sigma_gradient) * gradient_norms * q
    return np.asarray(
        bound if sigma is None else np.minimum(bound, check_ordinary("sigma", sigma) * gradient_norms * q)
    )


def gradient_coverage(ratios: Sequence[float] = (0.01, 0.2, 1.0, 5.0), *, rho: float = 0.05) -> pd.DataFrame:
    """Exact coverage of the gradient bounds for one fixed person, by sigma_2 / sigma alone.

    In units of sigma_2 |f'x| the truth is n ~ N(0, 1/r^2) and what is published n + e, e ~ N(0, 1): whatever the data,
    the coverage is a one-dimensional integral of normal probabilities. With much more accurate releases (r -> 0) the
    printed bound covers half of the time.

    Returns
    -------
    DataFrame
        ``ratio``; ``printed``, ``printed_min`` (with Algorithm 2's minimum), ``right``, ``right_min``; promised are
        1 - rho without and 1 - 2 rho with the minimum.
    """
    q = normal_quantile(check_probability("rho", rho))
    nodes, weights = np.polynomial.legendre.leggauss(60)
    rows = []
    for ratio in ratios:
        r = check_ordinary("ratios", ratio)
        cap = q / r
        # Panels end where the integrand bends: at the cap, and where e's thresholds meet it.
        ends = np.unique(np.clip([0, q / 2, q, 2 * q, 6, cap / 2, cap - q, cap, cap + q, 9 / r], 0, 9 / r))
        half = np.diff(ends)[:, np.newaxis] / 2
        n = (ends[:-1, np.newaxis] + half * (1 + nodes)).ravel()
        mass = (half * weights).ravel() * 2 * r / math.sqrt(2 * math.pi) * np.exp(-((n * r) ** 2) / 2)
        # Averages over the sign of n, |n| given.
        found = {
            name: min(1.0, float(mass @ (rule(n, q, limit) + rule(-n, q, limit)) / 2))
            for name, rule, limit in (
                ("printed", _printed_covers, math.inf),
                ("printed_min", _printed_covers, cap),
                ("right", _right_covers, math.inf),
                ("right_min", _right_covers, cap),
            )
        }
        rows.append({"ratio": r, **found})
    return pd.DataFrame(rows)


def _printed_covers(n: FloatArray, q: float, cap: float) -> FloatArray:
    """P over e that |min(n + e + q, cap)| >= |n|."""
    low, high, capped = np.minimum(-q, -2 * n - q), np.maximum(-q, -2 * n - q), cap - q - n
    inside = ndtr(np.minimum(capped, low)) + np.maximum(ndtr(capped) - ndtr(high), 0.0)
    return np.asarray(inside + np.where(np.abs(n) <= cap, ndtr(-capped), 0.0))


def _right_covers(n: FloatArray, q: float, cap: float) -> FloatArray:
    """P over e that min(|n + e| + q, cap) >= |n|."""
    size = np.abs(n)
    missed = np.where(size > q, ndtr(-q) - ndtr(q - 2 * size), 0.0)
    return np.asarray(np.where(size <= cap, 1 - missed, 0.0))


# --- the determinant term -----------------------------------------------------------------------------


def undefined_report(
    ratios: Sequence[float] = (0.1, 0.5, 0.6, 2 / 3, 1.0), *, rho: float = 0.05
) -> pd.DataFrame:
    """Exact chance that Algorithm 2 takes the logarithm of a number that is not positive (erratum 5).

    d = 1, a record far from all others (H = lam), lam = 2 sigma_3 tau as required: a = f'' 3/2 |x|^2 / (lam + noise)
    reaches 1 although lam > f''|x|^2. The proof speaks of a "pointwise minimum" that Algorithm 2 does not have. Kifer's
    lam at epsilon = 1 is ``ratio`` 1/2.

    Returns
    -------
    DataFrame
        ``ratio`` f''|x|^2 / lam; ``undefined``, the chance; ``right``, the largest value of the library's term.
    """
    ratio = np.array([check_positive("ratios", r) for r in ratios])
    tau = goe.operator_norm_bound(check_probability("rho", rho), 1)
    # The noise has variance 2 sigma_3^2 in one dimension; a nonpositive Hhat gives a negative "leverage".
    low, high = (np.asarray(edge * 2 * tau / math.sqrt(2)) for edge in (-1.0, 1.5 * ratio - 1.0))
    return pd.DataFrame({"ratio": ratio, "undefined": ndtr(high) - ndtr(low), "right": np.log1p(ratio)})


def report_factors() -> pd.DataFrame:
    """Exact largest quotient of Algorithm 2's determinant term and the truth; Theorem 2.3.5 (3) says 12.

    Suprema over 0 < a <= ahat <= min(3 a, 1/2), which is what the proof knows. Both quotients grow with ahat, and with
    a as long as ahat = 3 a; beyond a = 1/6 they fall.

    Returns
    -------
    DataFrame
        ``record`` (added or removed), ``factor``, ``printed``.
    """
    a = np.append(np.linspace(1e-4, 0.5, 5000), 1 / 6)
    reported = -np.log1p(-np.minimum(3 * a, 0.5))
    return pd.DataFrame(
        {
            "record": ["added", "removed"],
            "factor": [float((reported / np.log1p(a)).max()), float((reported / -np.log1p(-a)).max())],
            "printed": 12.0,
        }
    )


# --- the upper bound of the report, Theorem 2.3.5 (3) -------------------------------------------------


REPORT_FACTOR = math.log(2) / math.log(7 / 6)
"""4.4966: the supremum of :func:`report_factors`, at a = 1/6."""


def printed_utility_bound(
    loss: FloatArray, gradient_norms: FloatArray, *, sigma_gradient: float, rho: float
) -> FloatArray:
    """12 epsilon_1 + |f'x| / sigma_2 sqrt(2 log(2 / rho)) of Theorem 2.3.5 (3), **false as printed** (erratum 5).

    The second term has the wrong units, and epsilon_1 is the absolute value of a sum, which may vanish when its terms,
    which the report bounds one by one, do not.
    """
    factor = math.sqrt(2 * math.log(2 / check_probability("rho", rho))) / check_ordinary(
        "sigma_gradient", sigma_gradient
    )
    return np.asarray(12 * loss + factor * gradient_norms)


def right_utility_bound(
    terms: LossTerms, gradient_norms: FloatArray, *, sigma: float, sigma_gradient: float, rho: float
) -> FloatArray:
    """4.4966 (|T_1| + T_2 + |T_3|) + min(2 sigma_2, sigma) |f'x| q / sigma^2: bounds reports that add three terms."""
    total = np.abs(terms.determinant) + terms.gradient + np.abs(terms.inner)
    reach = min(2 * check_ordinary("sigma_gradient", sigma_gradient), check_ordinary("sigma", sigma))
    return np.asarray(
        REPORT_FACTOR * total
        + reach * normal_quantile(check_probability("rho", rho)) * gradient_norms / sigma**2
    )


def vanishing_loss(
    sigma_gradients: Sequence[float] = (0.01, 1.0, 100.0), *, rho: float = 0.01
) -> pd.DataFrame:
    """A person whose exact loss is 0 while any valid report of Algorithm 2 is above 0.2 (Theorem 2.3.5 (3)).

    Squared loss, d = 1, nobody else in the data, lam = 10, sigma = 1, noise b = 1, record (1, y) added with the y that
    makes the three terms cancel. The report is at least |log(1 - 1/lam)| + T_2 + |T_3|: each part bounds its term.

    Returns
    -------
    DataFrame
        ``sigma_gradient``; ``loss``; ``report``, the least possible; ``printed``, the theorem's upper bound; ``proof``,
        the one in its proof (min(sigma, sigma_2), with the missing 1 / sigma^2); ``right``.
    """
    lam, noise, tail = 10.0, 1.0, check_probability("rho", rho)
    # -log(1 + 1/lam) + f'^2/2 - f' b = 0 with f' < 0
    slope = noise - math.sqrt(noise**2 + 2 * math.log1p(1 / lam))
    terms = LossTerms(np.array([-math.log1p(1 / lam)]), np.array([slope**2 / 2]), np.array([-slope * noise]))
    size = np.array([abs(slope)])
    least = float(-math.log1p(-1 / lam) + terms.gradient[0] + abs(terms.inner[0]))
    rows = []
    for scale in sigma_gradients:
        printed = printed_utility_bound(terms.loss, size, sigma_gradient=scale, rho=tail)
        proof = 12 * terms.loss + min(1.0, scale) * size * math.sqrt(2 * math.log(2 / tail))
        right = right_utility_bound(terms, size, sigma=1.0, sigma_gradient=scale, rho=tail)
        rows.append(
            {
                "sigma_gradient": scale,
                "loss": float(terms.loss[0]),
                "report": least,
                "printed": float(printed[0]),
                "proof": float(proof[0]),
                "right": float(right[0]),
            }
        )
    return pd.DataFrame(rows)


def utility_failure(
    trials: int, *, rng: np.random.Generator, sigma_gradient: float = 100.0, rho: float = 0.01
) -> pd.DataFrame:
    """How often a *fixed* person's report exceeds the upper bound of Theorem 2.3.5 (3), promised at 1 - 3 rho.

    One point of cancellation has probability zero; this is the claim itself. Squared loss, d = 1, nobody else in the
    data, lam = 10, sigma = 1, record (1, 1) added, sigma_3 at the largest that is allowed. The report is the
    *corrected* one (right gradient bound, capped determinant): it is valid and yet above the printed bound.

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low``, ``high``, ``promised`` of the report's validity and of both upper bounds.
    """
    check_generator(rng)
    runs, tail, lam, sigma = check_count("trials", trials), check_probability("rho", rho), 10.0, 1.0
    noise = gaussian(sigma, runs, rng)
    slope = -noise / lam - 1.0
    terms = LossTerms(
        np.full(runs, -math.log1p(1 / lam)), slope**2 / (2 * sigma**2), -slope * noise / sigma**2
    )
    hessian = lam + math.sqrt(2) * lam / (2 * goe.operator_norm_bound(tail, 1)) * gaussian(1.0, runs, rng)
    leverage = np.where(hessian > 0, 1.5 / np.where(hessian > 0, hessian, 1.0), math.inf)
    determinant = np.minimum(-np.log1p(-np.minimum(leverage, 1 - 1e-12)), math.log1p(1 / lam))
    products = slope * (-noise + gaussian(sigma_gradient, runs, rng))
    inner = right_gradient_bound(
        products, np.abs(slope), sigma_gradient=sigma_gradient, rho=tail, sigma=sigma
    )
    report = determinant + terms.gradient + inner / sigma**2
    printed = printed_utility_bound(terms.loss, np.abs(slope), sigma_gradient=sigma_gradient, rho=tail)
    right = right_utility_bound(terms, np.abs(slope), sigma=sigma, sigma_gradient=sigma_gradient, rho=tail)
    return coverage_table(
        {
            "loss <= report": terms.loss <= report,
            "report <= printed bound": report <= printed,
            "report <= right bound": report <= right,
        },
        1 - 3 * tail,
    )


# --- the report as a whole ----------------------------------------------------------------------------


def report_coverage(trials: int, *, rng: np.random.Generator, rho: float = 0.05) -> pd.DataFrame:
    """Coverage of the whole report for one person, end to end: printed Algorithm 2 and the library's.

    Logistic regression on 60 rows, d = 10; person 0 is a member, fixed beforehand. The printed report gets the same
    releases: 3/2 x'Hhat^-1 x without a cap (an undefined logarithm counts as infinite, which covers) and the signed
    gradient bound. lam = 2 sigma_3 tau, as it requires.

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low``, ``high``, ``promised``; the last row is the right utility bound.
    """
    check_generator(rng)
    runs, tail = check_count("trials", trials), check_probability("rho", rho)
    sigma, sigma_gradient, sigma_hessian, d = 1.0, 0.2, 0.2, 10
    lam = 2 * sigma_hessian * goe.operator_norm_bound(tail, d) * (1 + 1e-12)
    covered = defaultdict(list)
    for _ in range(runs):
        objective = Objective(simulate_unit_rows(60, d, rng), LogisticLoss(), lam)
        x, y = objective.people.features[:1], objective.people.labels[:1]
        point = objective.at(objective.minimise(gaussian(sigma, d, rng)).theta)
        report = data_dependent_report(
            objective,
            point.theta,
            sigma=sigma,
            sigma_gradient=sigma_gradient,
            sigma_hessian=sigma_hessian,
            rho=tail,
            delta=1e-6,
            rng=rng,
            rule="three-halves",
        )
        terms = losses_of_members(point, sigma=sigma)
        own = LossTerms(terms.determinant[:1], terms.gradient[:1], terms.inner[:1])
        sizes = point.records(x, y).gradient_norms
        entry, truth = report.to_frame(x, y).iloc[0], float(own.loss[0])
        total = float(entry[["determinant", "gradient", "inner"]].sum())
        limit = right_utility_bound(own, sizes, sigma=sigma, sigma_gradient=sigma_gradient, rho=tail)
        covered["printed Algorithm 2"].append(truth <= printed_report(report, x, y)[0])
        covered["library, interval"].append(truth <= float(entry["bound"]))
        covered["library, sum"].append(truth <= total)
        covered["sum <= right utility bound"].append(total <= limit[0])
    return coverage_table(covered, 1 - 3 * tail)


def printed_report(report: PrivacyReport, features: FloatArray, labels: FloatArray) -> FloatArray:
    """Algorithm 2's bound from the releases inside ``report``, shape (m,), **false as printed** (erratum 5)."""
    if report.gradient is None or report.hessian is None or not isinstance(report.loss, Loss):
        raise ValueError("report must be a data-dependent one of a generalised linear loss")
    slopes = report.loss.derivative(features @ report.theta, labels)
    curvatures = report.loss.second_derivative(features @ report.theta, labels)
    sizes = np.abs(slopes) * np.linalg.norm(features, axis=1)
    leverage = 1.5 * np.einsum("ij,ij->i", features, np.linalg.solve(report.hessian.matrix, features.T).T)
    share = curvatures * leverage
    determinant = np.where(share < 1, np.abs(np.log1p(-np.where(share < 1, share, 0.0))), math.inf)
    inner = printed_gradient_bound(
        slopes * (features @ report.gradient.vector),
        sizes,
        sigma_gradient=report.gradient.sigma,
        rho=report.rho,
        sigma=report.sigma,
    )
    return np.asarray(determinant + (sizes**2 / 2 + inner) / report.sigma**2)


def uniform_report_coverage(
    trials: int,
    *,
    rng: np.random.Generator,
    people: int = 200,
    dimension: int = 10,
    rho: float = 0.05,
) -> pd.DataFrame:
    """Chance that the *whole* report holds for all members at once (Proposition A.3.5).

    The data-dependent report of logistic regression, for one person and for all of them, from equal noise. The sum of
    three terms has slack that the inner product alone has not; still the report for one person is not one for all.

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low``, ``high``, ``promised`` (1 - 3 rho).
    """
    check_generator(rng)
    runs, n, d = (
        check_count("trials", trials),
        check_count("people", people),
        check_count("dimension", dimension),
    )
    tail, sigma = check_probability("rho", rho), 1.0
    versions = {"for one person": (Scope.ONE, 1), "for all members": (Scope.MANY, n)}
    covered = defaultdict(list)
    for _ in range(runs):
        objective = Objective(simulate_unit_rows(n, d, rng), LogisticLoss(), 5.0)
        point = objective.at(objective.minimise(gaussian(sigma, d, rng)).theta)
        truth, seed = losses_of_members(point, sigma=sigma).loss, rng.integers(2**63)
        for name, (scope, count) in versions.items():
            report = data_dependent_report(
                objective,
                point.theta,
                sigma=sigma,
                sigma_gradient=0.2,
                sigma_hessian=0.2,
                rho=tail,
                delta=1e-6,
                rng=np.random.default_rng(seed),
                scope=scope,
                people=count,
            )
            frame = report.to_frame(objective.people.features, objective.people.labels, member=True)
            covered[name].append((truth <= frame["bound"].to_numpy()).all())
    return coverage_table(covered, 1 - 3 * tail)
