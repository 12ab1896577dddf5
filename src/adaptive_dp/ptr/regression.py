"""What OPS-PTR is compared with: output perturbation, OPS-Balanced, AdaOPS, AdaSSP, and ridge without privacy.

Source: redberg2023, Section 3.6.1, and Wang, "Revisiting differentially private linear regression", UAI 2018
(wang2018) with its code. Neighbours add or remove one record. Every calibration here is exact where the paper bounds:
the analytic Gaussian mechanism, the exact profile of a posterior sample, the exact sensitivity of ridge regression.

Output perturbation and OPS with fixed lam and gamma have no guarantee over data sets of every size: the ridge solution
moves by more the more records pull on it. They take ``largest_rows``, a public bound on n; neighbours are pairs of sets
that both obey it. AdaOPS, AdaSSP and OPS-PTR need no such bound.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma
from adaptive_dp.datasets.dataset import Dataset
from adaptive_dp.noise import gaussian, goe
from adaptive_dp.privacy import Domain, Guarantee, Neighbours, Refused, Release, Trace
from adaptive_dp.ptr.ops_ptr import (
    LARGEST_LOG_RESIDUAL,
    OpsPlan,
    PosteriorSample,
    log_residual_sensitivity,
    lower_eigenvalue,
    plan_ops_ptr,
    upper_log_residual,
)
from adaptive_dp.ptr.posterior_calibration import check_budget, largest_gamma, rough_gamma
from adaptive_dp.ptr.posterior_sampling import (
    check_bounds,
    data_independent_curve,
    data_independent_sides,
)
from adaptive_dp.ptr.spectrum import Spectrum, posterior_draws
from adaptive_dp.validation import (
    FloatArray,
    check_choice,
    check_count,
    check_generator,
    check_ordinary,
    check_positive,
    check_probability,
)

SSP_CALIBRATIONS = ("exact", "wang2018")
# Wang's rho: utility bounds hold with probability 1 - 0.05. No part in privacy.
RHO = 0.05
# Where lambda is searched for, and at how many points where the objective has no closed form.
LOG_LAMS = (math.log(1e-2), math.log(1e8))


def nonprivate_ridge(people: Dataset | Spectrum, *, lam: float) -> Release[FloatArray]:
    """(X'X + lam I)^-1 X'Y; its guarantee says honestly that nothing is promised."""
    spectrum = Spectrum.of(people)
    theta = spectrum.ridge(check_ordinary("lam", lam))
    promise = Guarantee(
        "ex-ante", math.inf, Neighbours.ADD_REMOVE, domain=spectrum.domain, source="not private"
    )
    return Release(theta, promise)


# --- output perturbation ------------------------------------------------------------------------------


def ridge_sensitivity(domain: Domain, *, lam: float, largest_rows: int) -> float:
    """Exact l2 sensitivity of ridge regression, adding or removing one record.

    Parameters
    ----------
    domain : Domain
    lam : float
        Ridge beside the sum of squares, positive.
    largest_rows : int
        Both sets have at most so many records, at least 1.

    Returns
    -------
    float
        The supremum over data sets, attained in two or more dimensions up to the bound on single rows (n >= lam).

    Notes
    -----
    A record moves theta* by H^-1 x r / (1 + h), H without it. Let u = x'H^-1 x = h and v = |H^-1 x|^2. Over all labels
    |r| is at most |Y| (1 + sqrt(n (u - lam v))), since |X H^-1 x|^2 = u - lam v. What remains is the maximum of
    |Y| sqrt(v) / (1 + u) (1 + sqrt(n (u - lam v))) over u <= |X|^2 / lam and u^2 / |X|^2 <= v <= u / lam: with
    v = (u / lam) sin^2 a, a maximum over two bounded numbers. About 10 ms.
    """
    x, y = check_bounds(domain)
    ridge = check_ordinary("lam", lam)
    return _ridge_sensitivity(x, y, ridge, check_count("largest_rows", largest_rows))


@functools.lru_cache(maxsize=1024)
def _ridge_sensitivity(x: float, y: float, lam: float, rows: int) -> float:
    top, root = x * x / lam, math.sqrt(rows - 1)  # the smaller set has one record less

    def along(u: float) -> float:
        """Maximum over the angle, at the leverage u; the stationary point solves a quadratic in the cosine."""
        smallest = math.asin(min(math.sqrt(u / top), 1.0))
        # d/da [sin a + c sin a cos a] = cos a + c (2 cos^2 a - 1) = 0
        c = root * math.sqrt(u)
        cosine = (math.sqrt(1 + 8 * c * c) - 1) / (4 * c) if c > 0 else 0.0
        best = max(math.acos(min(max(cosine, 0.0), 1.0)), smallest)
        return y * math.sqrt(u / lam) / (1 + u) * (math.sin(best) + c * math.sin(best) * math.cos(best))

    points = top * np.logspace(-6, 0, 601)
    values = np.array([along(u) for u in points])
    at = int(values.argmax())
    low, high = points[max(at - 1, 0)], points[min(at + 1, points.size - 1)]
    found = minimize_scalar(
        lambda u: -along(u), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
    )
    return max(float(values[at]), -float(found.fun)) * (1 + 1e-9)


def output_perturbation(
    people: Dataset | Spectrum,
    *,
    epsilon: float,
    delta: float,
    largest_rows: int,
    lam: float | None = None,
    norm_guess: float = 1.0,
    rng: np.random.Generator,
) -> Release[FloatArray]:
    """Ridge regression plus Gaussian noise (OutPert).

    redberg2023 says "an appropriate lambda". Here: the one that minimises n |X|^2 sigma^2 + lam norm_guess^2, a bound
    of the excess of the sum of squares over that of any theta of norm ``norm_guess``.

    Parameters
    ----------
    people : Dataset or Spectrum
    epsilon, delta : float
    largest_rows : int
        Public bound on the number of records.
    lam : float, optional
    norm_guess : float
        Public guess of |theta|; steers lam only.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        theta, shape (d,).
    """
    spectrum = Spectrum.of(people)
    check_generator(rng)
    rows = _check_rows(spectrum, largest_rows)
    sigma = gaussian_sigma(check_positive("epsilon", epsilon), check_probability("delta", delta), 1.0)
    ridge = (
        _output_lam(spectrum.domain, sigma, rows, check_ordinary("norm_guess", norm_guess))
        if lam is None
        else check_ordinary("lam", lam)
    )
    scale = sigma * ridge_sensitivity(spectrum.domain, lam=ridge, largest_rows=rows)
    promise = Guarantee(
        "ex-ante",
        float(epsilon),
        Neighbours.ADD_REMOVE,
        float(delta),
        spectrum.domain,
        source="balle2018; at most largest_rows records",
        curve=GaussianCurve(1 / sigma),
    )
    solution = spectrum.ridge(ridge)
    theta = solution + gaussian(scale, spectrum.columns, rng)
    return Release(theta, promise, trace=Trace(lam=ridge, sigma=scale, solution=solution))


@functools.lru_cache(maxsize=1024)
def _output_lam(domain: Domain, sigma: float, rows: int, norm_guess: float) -> float:
    x, _ = check_bounds(domain)

    def cost(log_lam: float) -> float:
        lam = math.exp(log_lam)
        noise = sigma * ridge_sensitivity(domain, lam=lam, largest_rows=rows)
        return math.log(rows * x * x * noise * noise + lam * norm_guess**2)

    found = minimize_scalar(cost, bounds=LOG_LAMS, method="bounded", options={"xatol": 1e-2})
    return math.exp(float(found.x))


# --- posterior samples --------------------------------------------------------------------------------


def ops_balanced(
    people: Dataset | Spectrum,
    *,
    epsilon: float,
    delta: float,
    largest_rows: int,
    lam: float | None = None,
    norm_guess: float = 1.0,
    rng: np.random.Generator,
) -> Release[FloatArray]:
    """One posterior sample with lam and gamma fixed in advance (OPS-Balanced of wang2018).

    Deviates from wang2018 in the calibration, which there is the bound that Theorem 3.6.1 quotes, for additions only
    and without a factor sqrt(2): gamma is the largest that the exact profile over all neighbours allows, and lam
    minimises (d / 2 + sqrt(d log(1/rho)) + log(1/rho)) / gamma(lam) + lam norm_guess^2 / 2 with that gamma.

    Parameters
    ----------
    people : Dataset or Spectrum
    epsilon, delta : float
    largest_rows : int
        Public bound on the number of records.
    lam : float, optional
    norm_guess : float
        Public guess of |theta|; steers lam only.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        theta, shape (d,). The first call for a budget takes about 0.1 s to find lam.

    Raises
    ------
    ValueError
        No gamma meets the budget at this ``lam``.
    """
    spectrum = Spectrum.of(people)
    check_generator(rng)
    rows = _check_rows(spectrum, largest_rows)
    budget = check_budget(epsilon, delta)
    guess = check_ordinary("norm_guess", norm_guess)
    ridge, gamma = _balanced(spectrum.domain, *budget, rows, spectrum.columns, guess, lam)
    if gamma <= 0:
        raise ValueError(f"lam is too small for the budget: no gamma meets it, got {lam!r}")
    curve = data_independent_curve(spectrum.domain, lam=ridge, gamma=gamma, largest_rows=rows)
    promise = Guarantee(
        "ex-ante",
        budget[0],
        Neighbours.ADD_REMOVE,
        budget[1],
        spectrum.domain,
        source="redberg2023, Example 3.5.5; erratum 14; at most largest_rows records",
        curve=curve,
    )
    normals = gaussian(1.0, (1, spectrum.columns), rng)
    theta = posterior_draws(spectrum, np.array([ridge]), np.array([gamma]), normals)[0]
    return Release(theta, promise, trace=Trace(lam=ridge, gamma=gamma))


@functools.lru_cache(maxsize=1024)
def _balanced(
    domain: Domain, epsilon: float, delta: float, rows: int, columns: int, guess: float, lam: float | None
) -> tuple[float, float]:
    def allowed(ridge: float) -> float:
        sides = data_independent_sides(domain, lam=ridge, largest_rows=rows)
        return largest_gamma(sides, epsilon=epsilon, delta=delta)

    def cost(log_lam: float) -> float:
        sides = data_independent_sides(domain, lam=math.exp(log_lam), largest_rows=rows)
        gamma = rough_gamma(sides, epsilon=epsilon, delta=delta)
        return math.log(spread(columns) / max(gamma, 1e-200) + math.exp(log_lam) * guess**2 / 2)

    if lam is None:
        found = minimize_scalar(cost, bounds=LOG_LAMS, method="bounded", options={"xatol": 2e-2})
        ridge = math.exp(float(found.x))
    else:
        ridge = check_ordinary("lam", lam)
    return ridge, allowed(ridge)


def spread(columns: int) -> float:
    """Return d / 2 + sqrt(d log(1/rho)) + log(1/rho): gamma times a bound of the excess risk of a posterior sample."""
    tail = math.log(1 / RHO)
    return columns / 2 + math.sqrt(columns * tail) + tail


def ada_ops(
    people: Dataset | Spectrum,
    *,
    epsilon: float,
    delta: float,
    plan: OpsPlan | None = None,
    norm_guess: float = 1.0,
    rng: np.random.Generator,
) -> Release[PosteriorSample]:
    """Posterior sample whose lam is chosen from the released eigenvalue (AdaOPS of wang2018), then as OPS-PTR.

    Releases lambda^P, takes the lam that minimises a bound of the excess risk at lambda^P, then releases the bound on
    residuals at this lam and samples. lam is a function of a release, so that the guarantee is that of OPS-PTR.

    Deviates from wang2018 where that is not private (noise without sqrt(2), a local sensitivity that fails for
    removals, the bound of Theorem 3.6.1) and where it is loose: gamma, also inside the bound that lam minimises, comes
    from the exact profile; the deltas are split so that they add up to ``delta``, not twice that; no public n is used.

    Parameters
    ----------
    people : Dataset or Spectrum
    epsilon, delta : float
        Of the whole.
    plan : OpsPlan, optional
        Another split of the same budget; ``epsilon`` and ``delta`` must be those of its guarantee.
    norm_guess : float
        Public guess of |theta|; steers lam only.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        A :class:`~adaptive_dp.ptr.ops_ptr.PosteriorSample`, or ``Refused``.
    """
    spectrum = Spectrum.of(people)
    check_generator(rng)
    guess = check_ordinary("norm_guess", norm_guess)
    if plan is None:
        plan = plan_ops_ptr(spectrum.domain, epsilon=epsilon, delta=delta)
    elif (plan.guarantee.epsilon, plan.guarantee.delta) != (epsilon, delta):
        raise ValueError(f"plan must promise epsilon and delta, got {plan.guarantee!r}")
    low = lower_eigenvalue(spectrum, 1, plan, rng)
    lam, scaled = _adaptive_lam(spectrum.domain, float(low[0]), plan, spectrum.columns, guess)
    trace = Trace(statistics=spectrum.statistics(lam), plan=plan)
    high = float(upper_log_residual(spectrum, np.array([lam]), low, plan, rng)[0])
    if scaled <= 0 or high > LARGEST_LOG_RESIDUAL:
        return Release(
            Refused(f"no gamma meets the budget of the sample at lam = {lam:g}"), plan.guarantee, trace=trace
        )
    gamma = scaled * math.exp(-2 * high)
    normals = gaussian(1.0, (1, spectrum.columns), rng)
    theta = posterior_draws(spectrum, np.array([lam]), np.array([gamma]), normals)[0]
    sample = PosteriorSample(theta, lam, gamma, float(low[0]), math.exp(high))
    return Release(sample, plan.guarantee, trace=trace)


def _adaptive_lam(
    domain: Domain, low: float, plan: OpsPlan, columns: int, guess: float
) -> tuple[float, float]:
    """Return lam and the scaled precision there: the best of a grid, as the objective is infinite below some lam."""
    x, y = check_bounds(domain)
    lams = np.exp(np.linspace(*LOG_LAMS, 300))
    lows = np.full(lams.shape, low)
    scaled = plan.scaled_precision(lams, lows, x)
    raised = log_residual_sensitivity(lams, lows, x) / plan.mu_residual * -float(ndtri(plan.failure_residual))
    residual = (y + x * guess) * np.exp(np.minimum(raised, LARGEST_LOG_RESIDUAL))
    with np.errstate(divide="ignore"):
        cost = spread(columns) * np.square(residual) / scaled + lams * guess**2 / 2
    best = int(np.argmin(cost))
    return float(lams[best]), float(scaled[best])


# --- sufficient statistics ----------------------------------------------------------------------------


def ada_ssp(
    people: Dataset | Spectrum,
    *,
    epsilon: float,
    delta: float,
    calibration: str = "exact",
    ridge: float = 1.0,
    rng: np.random.Generator,
) -> Release[FloatArray]:
    """Ridge regression from noisy sufficient statistics with an adaptive ridge (AdaSSP, wang2018, Algorithm 2).

    lambda_min(X'X), X'X and X'Y are released by Gaussian mechanisms; the first sets the ridge that makes the noisy X'X
    well conditioned.

    Parameters
    ----------
    people : Dataset or Spectrum
    epsilon, delta : float
    calibration : {"exact", "wang2018"}
        ``"exact"``: the three releases are one Gaussian mechanism, whose mu is exact for the budget and is shared
        equally. ``"wang2018"``: noise sqrt(log(6 / delta)) / (epsilon / 3) for each. As three separate
        (epsilon / 3, delta / 3) mechanisms, the paper's proof, that is too little (a factor sqrt(2) is missing);
        taken together they are private all the same, which is checked before any noise.
    ridge : float
        Public constant added to X'X, nonnegative; 1 in the authors' code, 0 in the paper.
    rng : numpy.random.Generator

    Returns
    -------
    Release
        theta, shape (d,); nothing in it depends on the data but through the releases.

    Notes
    -----
    The noise on X'X is a Gaussian orthogonal ensemble with variance s^2 on the diagonal and s^2 / 2 beside it, as in
    the authors' code: |X|^2 / s is then its exact mu.
    """
    spectrum = Spectrum.of(people)
    check_generator(rng)
    scale, promise = _ssp_budget(spectrum.domain, epsilon, delta, calibration)
    base = 0.0 if ridge == 0 else check_ordinary("ridge", ridge)
    x, y = check_bounds(spectrum.domain)
    d = spectrum.columns
    eigenvalue = scale * x * x * float(gaussian(1.0, 1, rng)[0])
    square = goe(scale * x * x / math.sqrt(2), d, rng)
    moment = gaussian(scale * x * y, d, rng)
    theta, lam = ssp_solution(
        spectrum, eigenvalue, square, moment, scale=scale, tail=math.log(6 / float(delta)), ridge=base
    )
    return Release(theta, promise, trace=Trace(lam=lam, scale=scale))


def ssp_solution(
    spectrum: Spectrum,
    eigenvalue_noise: float,
    square_noise: FloatArray,
    moment_noise: FloatArray,
    *,
    scale: float,
    tail: float,
    ridge: float = 1.0,
) -> tuple[FloatArray, float]:
    """Return theta of AdaSSP and the ridge it picks, for given noise: everything after the draws.

    Parameters
    ----------
    spectrum : Spectrum
    eigenvalue_noise, square_noise, moment_noise : float, (d, d), (d,)
    scale : float
        s in units of the sensitivity.
    tail : float
        log(6 / delta): the eigenvalue is lowered by scale |X|^2 sqrt(tail), for utility only.
    ridge : float

    Returns
    -------
    theta, lam
    """
    x, _ = check_bounds(spectrum.domain)
    d = spectrum.columns
    limit = scale * x * x * math.sqrt(d * math.log(2 * d * d / RHO))
    found = spectrum.smallest_eigenvalue + ridge + eigenvalue_noise - scale * x * x * math.sqrt(tail)
    lam = max(0.0, limit - max(found, 0.0))
    matrix = spectrum.gram + square_noise + (ridge + lam) * np.eye(d)
    return np.asarray(np.linalg.solve(matrix, spectrum.moment + moment_noise)), lam


def _ssp_budget(domain: Domain, epsilon: float, delta: float, calibration: str) -> tuple[float, Guarantee]:
    check_bounds(domain)
    e, level = check_positive("epsilon", epsilon), check_probability("delta", delta)
    if check_choice("calibration", calibration, SSP_CALIBRATIONS) == "exact":
        scale = gaussian_sigma(e, level, math.sqrt(3))
    else:
        scale = math.sqrt(math.log(6 / level)) / (e / 3)
    curve = GaussianCurve(math.sqrt(3) / scale)
    if curve.delta(e) > level:
        raise ValueError(f"epsilon is too large for the constants of wang2018, got {e!r} at delta {level!r}")
    promise = Guarantee(
        "ex-ante", e, Neighbours.ADD_REMOVE, level, domain, source="wang2018, Algorithm 2", curve=curve
    )
    return scale, promise


def _check_rows(spectrum: Spectrum, largest_rows: int) -> int:
    rows = check_count("largest_rows", largest_rows)
    if spectrum.rows > rows:
        raise ValueError(f"largest_rows must be a bound on the number of records {spectrum.rows}, got {rows}")
    return rows
