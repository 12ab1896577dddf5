"""What redberg2023 prints wrong in chapter 2 about bounds and reports: printed formulas, and what they cover.

Nothing here may be used to report anything: each ``printed_...`` function is *false as printed*. The right versions
are in :mod:`adaptive_dp.per_instance.bounds` and :mod:`~adaptive_dp.per_instance.report`. Where a coverage depends on
a few numbers only it is computed, otherwise it is simulated and comes with a Clopper-Pearson interval.

Errata 3 (Theorem 2.3.3), 4 (Theorem 2.3.4), 5 (Algorithm 2, Theorem 2.3.5 (3), Proposition A.3.5), 7 (tau and Lemma
A.4.3) and 8 (Algorithm 9, Theorem A.3.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import erf, ndtr
from scipy.stats import chi

from adaptive_dp import goe
from adaptive_dp.datasets.simulated import simulate_unit_rows
from adaptive_dp.experiments.statistics import proportion_interval
from adaptive_dp.losses import LogisticLoss, Loss
from adaptive_dp.noise import gaussian
from adaptive_dp.noise import goe as goe_noise
from adaptive_dp.per_instance.bounds import (
    Scope,
    determinant_bound,
    inner_product_width,
    largest_normal_quantile,
    normal_quantile,
)
from adaptive_dp.per_instance.ex_post import LossTerms, losses_of_members
from adaptive_dp.per_instance.objective import GeneralRecords, LinearRecords, Objective
from adaptive_dp.per_instance.report import NoisyHessian, PrivacyReport, data_dependent_report
from adaptive_dp.validation import (
    FloatArray,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)

PRINTED_TAU = 12.0
"""tau of appendix A.4.1 for d = 50, rho = 8.465e-6: **false**, a quantile in another normalisation (erratum 7)."""
PRINTED_TAU_RHO = 8.465e-6


def _coverage(name: str, hits: int, runs: int, promised: float) -> dict[str, str | float]:
    low, high = proportion_interval(hits, runs)
    return {"version": name, "coverage": hits / runs, "low": low, "high": high, "promised": promised}


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


def random_determinants(trials: int, *, rng: np.random.Generator, dimension: int = 3) -> pd.DataFrame:
    """The same on random Hessians, added and removed, lam from 0.03 to 10, and an inequality inside the proof.

    The proof says mu_j <= -lambda_j / lam for mu_1 = -lambda_1 u_1'H^-1 u_1; H >= lam I gives the reverse.

    Returns
    -------
    DataFrame
        ``undefined``: share of instances in which the printed bound has no value; ``largest_printed`` and
        ``largest_right``: largest quotient of the determinant term and each bound (at most 1: valid);
        ``reversed``: share in which the proof's inequality is false. One row.
    """
    check_generator(rng)
    d, runs = check_count("dimension", dimension), check_count("trials", trials)
    undefined, printed, right, wrong = [], [], [], []
    per_lam = max(1, runs // 20)
    for lam in 10.0 ** rng.uniform(-1.5, 1.0, 20):
        rank = int(rng.integers(0, d + 1))
        data = rng.standard_normal((per_lam, d, rank)) if rank else np.zeros((per_lam, d, 1))
        own = rng.standard_normal((per_lam, d, int(rng.integers(1, d + 1)))) * rng.uniform(
            0.1, 1.0, (per_lam, 1, 1)
        )
        rest, hessian = data @ data.mT + lam * np.eye(d), own @ own.mT
        term = np.linalg.slogdet(rest + hessian)[1] - np.linalg.slogdet(rest)[1]
        eigenvalues, vectors = np.linalg.eigh(hessian)
        top = vectors[..., -1:]
        leverage = eigenvalues[:, -1] * (top.mT @ np.linalg.solve(rest, top))[:, 0, 0]
        bound = printed_determinant_bound(np.maximum(eigenvalues, 0.0), float(lam))
        undefined.append(np.isnan(bound))
        printed.append((term / bound)[~np.isnan(bound)])
        right.append(term / determinant_bound(_records_with(hessian), lam=float(lam)))
        wrong.append(leverage < eigenvalues[:, -1] / lam * (1 - 1e-9))
    return pd.DataFrame(
        [
            {
                "undefined": float(np.concatenate(undefined).mean()),
                "largest_printed": float(np.concatenate(printed).max(initial=0.0)),
                "largest_right": float(np.concatenate(right).max()),
                "reversed": float(np.concatenate(wrong).mean()),
            }
        ]
    )


def _records_with(hessians: FloatArray) -> GeneralRecords:
    return GeneralRecords(np.zeros(hessians.shape[:2]), hessians)


# --- erratum 4: Theorem 2.3.4 -------------------------------------------------------------------------


def printed_inner_bound(slopes: FloatArray, norms: FloatArray, *, sigma: float, rho: float) -> FloatArray:
    """F' sigma |x| sqrt(2 log(2 / rho)) of Theorem 2.3.4 for linear losses, **false as printed** (erratum 4).

    f' stands without its absolute value: where it is negative (logistic loss, y = +1) the "bound" is negative.
    """
    return np.asarray(
        slopes * norms * check_ordinary("sigma", sigma) * math.sqrt(2 * math.log(2 / _rho(rho))),
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
        ``version``, ``coverage``, ``low``, ``high``, ``promised``.
    """
    check_generator(rng)
    runs, d, tail = check_count("trials", trials), check_count("dimension", dimension), _rho(rho)
    people = simulate_unit_rows(check_count("rows", rows), d, rng)
    objective, loss, sigma = Objective(people, LogisticLoss(), 1.0), LogisticLoss(), 2.0
    x_fixed, late = people.features[0], "after the release, x along theta: "
    widths = {
        scope: inner_product_width(tail, scope=scope, dimension=d) for scope in (Scope.ONE, Scope.EVERYONE)
    }
    hits = dict.fromkeys(
        [
            "fixed person, y = +1: printed, f' without | |",
            "fixed person, y = +1: sqrt(2 log(2/rho))",
            "fixed person, y = +1: exact quantile",
            late + "the same quantile",
            late + "uniform bound",
        ],
        0,
    )
    names = list(hits)
    for _ in range(runs):
        noise = gaussian(sigma, d, rng)
        theta = objective.minimise(noise).theta
        pair = np.stack([x_fixed, theta / np.linalg.norm(theta)])
        slopes = loss.derivative(pair @ theta, np.ones(2))
        records = LinearRecords(pair, slopes, np.ones(2))
        product = np.abs(records.inner_products(-noise))
        printed = printed_inner_bound(slopes, np.ones(2), sigma=sigma, rho=tail)
        one, everyone = (sigma * widths[scope].of(records) for scope in widths)
        for name, covered in zip(
            names,
            (
                product[0] <= printed[0],
                product[0] <= abs(printed[0]),
                product[0] <= one[0],
                product[1] <= one[1],
                product[1] <= everyone[1],
            ),
            strict=True,
        ):
            hits[name] += int(covered)
    return pd.DataFrame([_coverage(name, count, runs, 1 - tail) for name, count in hits.items()])


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
    tail = _rho(rho)
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


def norms_coverage(dimension: int, *, l2: float, largest: float, cells: int = 1 << 13) -> tuple[float, float]:
    """P(|e|_2 <= l2 and |e|_inf <= largest) for e ~ N(0, I_d), enclosed by rounding squares up and down on a grid."""
    d, points = check_count("dimension", dimension), check_count("cells", cells)
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
    tails = np.array([_rho(r) for r in rhos])
    frame = pd.DataFrame({"rho": tails, "exact": [normal_quantile(float(r)) for r in tails]})
    frame["printed"] = np.sqrt(2 * np.log(2 / tails))
    frame["ratio"] = frame["printed"] / frame["exact"]
    frame["shorter"] = np.sqrt(-2 * np.log(tails))
    return frame


def simultaneous_coverage(
    trials: int,
    *,
    rng: np.random.Generator,
    people: int = 1000,
    dimension: int = 50,
    rho: float = 0.05,
) -> pd.DataFrame:
    """Chance that the bound of the inner product holds for *all* n people at once (Proposition A.3.5).

    Algorithm 2 uses the quantile of one person, but the proposition promises n of them; a quantile at rho / n is
    needed. For a generalised linear loss f' cancels: what counts is |e'x| / |x| with e ~ N(0, I), one draw a run.

    Returns
    -------
    DataFrame
        ``version``, ``coverage``, ``low``, ``high``, ``promised``, for ``Scope.ONE`` (as run) and ``Scope.MANY``.
    """
    check_generator(rng)
    runs, n, d = (
        check_count("trials", trials),
        check_count("people", people),
        check_count("dimension", dimension),
    )
    tail, features = _rho(rho), simulate_unit_rows(n, d, rng).features
    largest = np.abs(gaussian(1.0, (runs, d), rng) @ features.T).max(axis=1)
    rows = []
    for name, scope, count in (
        ("Algorithm 2 as run: one person", Scope.ONE, 1),
        ("everybody in the data", Scope.MANY, n),
    ):
        width = inner_product_width(tail, scope=scope, dimension=d, people=count).l2
        rows.append(_coverage(name, int((largest <= width).sum()), runs, 1 - tail))
    return pd.DataFrame(rows)


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
    tail, sigma = _rho(rho), 1.0
    versions = {"for one person": (Scope.ONE, 1), "for all members": (Scope.MANY, n)}
    hits = dict.fromkeys(versions, 0)
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
            hits[name] += int((truth <= frame["bound"].to_numpy()).all())
    return pd.DataFrame([_coverage(name, count, runs, 1 - 3 * tail) for name, count in hits.items()])


# --- erratum 5: Algorithm 2 and Theorem 2.3.5 (3) -----------------------------------------------------


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
    q = normal_quantile(_rho(rho))
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
    q = normal_quantile(_rho(rho))
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
    q = normal_quantile(_rho(rho))
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
    tau = goe.operator_norm_bound(_rho(rho), 1)
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


REPORT_FACTOR = math.log(2) / math.log(7 / 6)
"""4.4966: the supremum of :func:`report_factors`, at a = 1/6."""


def printed_utility_bound(
    loss: FloatArray, gradient_norms: FloatArray, *, sigma_gradient: float, rho: float
) -> FloatArray:
    """12 epsilon_1 + |f'x| / sigma_2 sqrt(2 log(2 / rho)) of Theorem 2.3.5 (3), **false as printed** (erratum 5).

    The second term has the wrong units, and epsilon_1 is the absolute value of a sum, which may vanish when its terms,
    which the report bounds one by one, do not.
    """
    factor = math.sqrt(2 * math.log(2 / _rho(rho))) / check_ordinary("sigma_gradient", sigma_gradient)
    return np.asarray(12 * loss + factor * gradient_norms)


def right_utility_bound(
    terms: LossTerms, gradient_norms: FloatArray, *, sigma: float, sigma_gradient: float, rho: float
) -> FloatArray:
    """4.4966 (|T_1| + T_2 + |T_3|) + min(2 sigma_2, sigma) |f'x| q / sigma^2: bounds reports that add three terms."""
    total = np.abs(terms.determinant) + terms.gradient + np.abs(terms.inner)
    reach = min(2 * check_ordinary("sigma_gradient", sigma_gradient), check_ordinary("sigma", sigma))
    return np.asarray(REPORT_FACTOR * total + reach * normal_quantile(_rho(rho)) * gradient_norms / sigma**2)


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
    lam, noise, tail = 10.0, 1.0, _rho(rho)
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
    runs, tail, lam, sigma = check_count("trials", trials), _rho(rho), 10.0, 1.0
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
    promised = 1 - 3 * tail
    return pd.DataFrame(
        [
            _coverage("loss <= report", int((terms.loss <= report).sum()), runs, promised),
            _coverage("report <= printed bound", int((report <= printed).sum()), runs, promised),
            _coverage("report <= right bound", int((report <= right).sum()), runs, promised),
        ]
    )


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
    runs, tail, loss = check_count("trials", trials), _rho(rho), LogisticLoss()
    sigma, sigma_gradient, sigma_hessian, d = 1.0, 0.2, 0.2, 10
    lam = 2 * sigma_hessian * goe.operator_norm_bound(tail, d) * (1 + 1e-12)
    names = ["printed Algorithm 2", "library, interval", "library, sum", "sum <= right utility bound"]
    hits = dict.fromkeys(names, 0)
    for _ in range(runs):
        objective = Objective(simulate_unit_rows(60, d, rng), loss, lam)
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
        entry = report.to_frame(x, y).iloc[0]
        bounds = [float(entry["bound"]), float(entry[["determinant", "gradient", "inner"]].sum())]
        limit = right_utility_bound(own, sizes, sigma=sigma, sigma_gradient=sigma_gradient, rho=tail)
        truth = float(own.loss[0])
        covered = [
            truth <= printed_report(report, x, y)[0],
            truth <= bounds[0],
            truth <= bounds[1],
            bounds[1] <= limit[0],
        ]
        for name, yes in zip(names, covered, strict=True):
            hits[name] += int(yes)
    promised = 1 - 3 * tail
    return pd.DataFrame([_coverage(name, count, runs, promised) for name, count in hits.items()])


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
    norms = np.array([float(np.abs(np.linalg.eigvalsh(goe_noise(1.0, d, rng))).max()) for _ in range(runs)])
    rows = []
    for name, tau in (
        ("printed", PRINTED_TAU),
        ("right", goe.operator_norm_bound(PRINTED_TAU_RHO, d)),
    ):
        row = _coverage(name, int((norms <= tau).sum()), runs, 1 - PRINTED_TAU_RHO)
        rows.append({"version": row["version"], "tau": tau, "largest": goe.cdf(tau, d), **row})
    return pd.DataFrame(rows)


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
    runs, d, sigma = check_count("trials", trials), check_count("dimension", dimension), 0.2
    right = goe.operator_norm_bound(_rho(rho), d)
    taus = {"wrong normalisation": right / math.sqrt(2), "right": right}
    hits = dict.fromkeys(taus, 0)
    for _ in range(runs):
        people = simulate_unit_rows(check_count("rows", rows), d, rng)
        noise = goe_noise(sigma, d, rng)
        for name, tau in taus.items():
            hessian = Objective(people, LogisticLoss(), 2 * sigma * tau).at(np.zeros(d)).hessian
            smallest = min(
                float(np.linalg.eigvalsh(0.5 * hessian - noise)[0]),
                float(np.linalg.eigvalsh(hessian + noise)[0]),
            )
            hits[name] += int(smallest > 0)
    return pd.DataFrame([_coverage(name, count, runs, 1 - rho) for name, count in hits.items()])


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
                "exact": goe.operator_norm_bound(_rho(rho), d),
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
    runs, d, tail = check_count("trials", trials), check_count("dimension", dimension), _rho(rho)
    noise_bound, sigma_eigenvalue = goe.operator_norm_bound(tail, d), 3.0
    hits, inside = dict.fromkeys(["printed", "standard", "family"], 0), 0
    for _ in range(runs):
        lam, n = 10 ** rng.uniform(0, 1.7), int(rng.integers(0, 61))
        rows = rng.standard_normal((n, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        hessian = lam * np.eye(d) + rows.T @ rows
        noise = goe_noise(1.0, d, rng)
        smallest = float(np.linalg.eigvalsh(hessian)[0])
        estimate = smallest + float(gaussian(sigma_eigenvalue, 1, rng)[0])
        error = abs(estimate - smallest)
        reach = sigma_eigenvalue * normal_quantile(tail)
        if error > reach or np.abs(np.linalg.eigvalsh(noise)).max() > noise_bound:
            continue
        inside += 1
        floor, matrix = max(lam, estimate - reach), hessian + noise
        people = rng.standard_normal((20, d))
        truth = np.einsum("ij,ij->i", people, np.linalg.solve(hessian, people.T).T)
        records = LinearRecords(people, np.ones(20), np.ones(20))
        bounds = {
            "printed": printed_adaptive_leverage(
                people, matrix, estimate=estimate, floor=floor, noise_bound=noise_bound
            ),
            "standard": NoisyHessian(matrix, 1.0, noise_bound, floor, "standard").relative_upper(records)[
                :, 0
            ],
            "family": NoisyHessian(matrix, 1.0, noise_bound, floor, "family").relative_upper(records)[:, 0],
        }
        for name, bound in bounds.items():
            hits[name] += int((truth <= bound * (1 + 1e-9)).all())
    return pd.DataFrame([_coverage(name, count, inside, 1.0) for name, count in hits.items()])


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


def _rho(rho: float) -> float:
    return check_probability("rho", rho)
