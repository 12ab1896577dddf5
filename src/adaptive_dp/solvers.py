"""Exact optima: a quadratic in a ball, ridge regression, smooth convex objectives, logistic regression.

The mechanisms of this library perturb exact minimisers, and their proofs compare *exact* minimisers of
neighbouring data sets. An optimiser that stops early, or that returns a stationary point instead of a
minimiser, is outside those proofs; each solver here therefore comes with a certificate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.blas import dnrm2, dtrsv
from scipy.linalg.lapack import dpotrf, dpotrs

from adaptive_dp.losses import LogisticLoss, weighted_gram
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_count,
    check_positive,
    check_real,
)

EPS = float(np.finfo(np.float64).eps)
# X'X from some BLAS kernels is symmetric up to rounding only.
SYMMETRY_SLACK = 1e-12
# Accepted error of the norm on the sphere, relative to the radius. The objective is then right to
# twice this, since its slope along the radius is at most the multiplier times the radius.
NORM_TOLERANCE = 1e-12
# A Cholesky factor of a matrix of size 1 with a smaller pivot than this (squared: 1e-12) solves to
# fewer than about four digits: leave the answer to the eigendecomposition.
SMALLEST_PIVOT = 1e-6
HOPELESS_PIVOT = 1e-30  # further iterations might overflow
# An eigendecomposition costs about 20 Cholesky factorisations at p = 77.
LARGEST_NUMBER_OF_FACTORISATIONS = 12
LARGEST_NUMBER_OF_NEWTON_STEPS = 100


@dataclass(frozen=True, slots=True)
class BallMinimum:
    """A global minimiser of a quadratic in a ball.

    Parameters
    ----------
    theta : ndarray, shape (p,)
        The minimiser; ||theta||_2 <= radius up to rounding.
    multiplier : float
        mu >= 0 with (A + mu I) theta = b and A + mu I positive semidefinite; 0 in the interior.
    value : float
        theta' A theta / 2 - b' theta.
    on_boundary : bool
        Whether ||theta||_2 is the radius (to 1e-12).
    hard_case : bool
        Whether b has no component (to rounding) along the eigenvectors of the smallest eigenvalue
        while the minimiser needs one. There are then at least two minimisers, and this is one of them.
    method : str
        ``"cholesky"`` (interior), ``"newton"`` (secular equation), ``"eigen"`` (eigendecomposition),
        ``"zero"`` (A = 0, and b = 0 or too small for b / R to be a float).
    factorisations : int
        Number of Cholesky factorisations that led to the answer; 0 for ``"eigen"``.
    """

    theta: FloatArray
    multiplier: float
    value: float
    on_boundary: bool
    hard_case: bool
    method: str
    factorisations: int


@dataclass(frozen=True, slots=True)
class BallCertificate:
    """How far (theta, mu) is from satisfying the conditions of global optimality; all 0 if exact.

    theta minimises theta' A theta / 2 - b' theta over ||theta||_2 <= R **if and only if** some mu >= 0 has
    (A + mu I) theta = b, mu (R - ||theta||_2) = 0, A + mu I positive semidefinite (Gay 1981; Sorensen
    1982; Conn, Gould and Toint, *Trust-Region Methods*, 2000, Corollary 7.2.2).

    Residuals are free of units: with the scale s = max(max|A_ij|, max|b_i| / R), they are divided by s R
    (stationarity, complementarity), s (eigenvalue, multiplier) or R (feasibility).
    """

    stationarity: float
    """||(A + mu I) theta - b||_2 / (s R)"""
    complementarity: float
    """mu |R - ||theta||_2| / (s R)"""
    feasibility: float
    """max(0, ||theta||_2 - R) / R"""
    smallest_eigenvalue: float
    """Smallest eigenvalue of A + mu I, over s; nonnegative up to rounding at a global minimiser."""
    multiplier: float
    """mu / s; nonnegative at a global minimiser."""

    def holds(self, tolerance: float = 1e-10) -> bool:
        """Whether every condition holds up to ``tolerance``."""
        return (
            max(self.stationarity, self.complementarity, self.feasibility) <= tolerance
            and min(self.smallest_eigenvalue, self.multiplier) >= -tolerance
        )


def ball_certificate(
    matrix: ArrayLike, vector: ArrayLike, radius: float, theta: ArrayLike, multiplier: float
) -> BallCertificate:
    """Check the necessary and sufficient conditions of global optimality in the ball.

    Arguments are those of :func:`minimise_quadratic_in_ball` and what it returned. Costs one
    eigenvalue computation, O(p^3).
    """
    A, b, R = _check_quadratic(matrix, vector, radius)
    point = as_finite_array("theta", theta, ndim=1)
    if point.shape != b.shape:
        raise ValueError(f"theta must have shape {b.shape}, got {point.shape}")
    mu = check_real("multiplier", multiplier)
    scale = _scale(A, b, R) or 1.0
    A, b, point, mu = A / scale, b / scale / R, point / R, mu / scale
    norm = float(np.linalg.norm(point))
    return BallCertificate(
        stationarity=float(np.linalg.norm(A @ point + mu * point - b)),
        complementarity=abs(mu * (1.0 - norm)),
        feasibility=max(0.0, norm - 1.0),
        smallest_eigenvalue=float(np.linalg.eigvalsh(A)[0] + mu),
        multiplier=mu,
    )


def minimise_quadratic_in_ball(
    matrix: ArrayLike, vector: ArrayLike, radius: float, *, multiplier: float | None = None
) -> BallMinimum:
    """Exact argmin of theta' A theta / 2 - b' theta over ||theta||_2 <= ``radius``; A may be indefinite.

    Noise of covariance perturbation makes A indefinite (erratum AF-5c); the solution of the normal
    equations is then a saddle point or a maximum, and the minimiser lies on the sphere. scipy has no public
    function for this problem: the trust-region routines inside ``scipy.optimize.minimize`` are private and
    solve it approximately. Hence these lines.

    The minimum is (A + mu I)^+ b for the smallest mu >= 0 that makes A + mu I positive semidefinite and the
    norm at most the radius. One Cholesky factorisation settles the interior case. Otherwise Newton's
    method, with Halley's correction, solves 1/||theta(mu)|| = 1/R (Moré and Sorensen 1983). The left side is
    concave and increasing in mu, so that every Newton step ends left of the root. What this cannot settle
    accurately, near and in the hard case, goes to :func:`minimise_quadratic_in_ball_eigen`.

    Parameters
    ----------
    matrix : array_like, shape (p, p)
        A, symmetric (up to 1e-12 of its largest entry).
    vector : array_like, shape (p,)
        b.
    radius : float
        R, positive.
    multiplier : float, optional
        A guess of mu, for instance that of a neighbouring problem; nonnegative. It changes the time, not
        the answer.

    Returns
    -------
    BallMinimum
        Time O(p^3), memory two p x p arrays.

    Raises
    ------
    ValueError
        A not square or not symmetric, shapes that do not fit, entries that are not finite, a radius that is
        not positive, or one so small that b / R overflows.
    """
    A, b, R = _check_quadratic(matrix, vector, radius)
    start = None if multiplier is None else check_real("multiplier", multiplier)
    if start is not None and start < 0:
        raise ValueError(f"multiplier must be nonnegative, got {start!r}")
    scale = _scale(A, b, R)
    if scale == 0:
        return _next_to_nothing(b, R)
    A /= scale
    b /= scale
    b /= R
    found = _newton_in_unit_ball(A, b, None if start is None else start / scale)
    return _unscale(A, b, R, scale, _eigen_in_unit_ball(A, b) if found is None else found)


def minimise_quadratic_in_ball_eigen(matrix: ArrayLike, vector: ArrayLike, radius: float) -> BallMinimum:
    """Solve the problem of :func:`minimise_quadratic_in_ball` by eigendecomposition.

    Slower (about 20 Cholesky factorisations), but it reads like the mathematics and settles every
    case. The hard case is *explicit*: b has no component along the bottom eigenspace, and the minimiser
    is completed by an eigenvector of the smallest eigenvalue until it reaches the sphere.
    """
    A, b, R = _check_quadratic(matrix, vector, radius)
    scale = _scale(A, b, R)
    if scale == 0:
        return _next_to_nothing(b, R)
    A, b = A / scale, b / scale / R
    return _unscale(A, b, R, scale, _eigen_in_unit_ball(A, b))


@dataclass(frozen=True, slots=True)
class _UnitMinimum:
    """A minimiser in units where the radius and the largest entry of A and b are 1."""

    theta: FloatArray
    multiplier: float
    hard_case: bool
    method: str
    factorisations: int = 0


def _eigen_in_unit_ball(A: FloatArray, b: FloatArray) -> _UnitMinimum:
    eigenvalues, eigenvectors = np.linalg.eigh(A)
    c = eigenvectors.T @ b
    norm_c = float(dnrm2(c))
    smallest, largest = float(eigenvalues[0]), float(eigenvalues[-1])
    rounding = b.size * EPS * max(abs(smallest), abs(largest))
    # ||c / w|| >= ||c|| / max w: if that exceeds 1 there is no need to form quotients that may overflow.
    if smallest > rounding and norm_c <= largest and float(np.linalg.norm(c / eigenvalues)) <= 1:
        return _UnitMinimum(eigenvectors @ (c / eigenvalues), 0.0, hard_case=False, method="eigen")

    # mu = shift - smallest; working with the shift keeps its digits however close to 0 it is.
    gaps = eigenvalues - smallest
    bottom = gaps <= rounding
    gaps[bottom] = 0.0  # equal up to rounding: one eigenspace
    along_bottom = float(dnrm2(c[bottom]))  # numpy's norm is 0 below 1e-154
    orthogonal = along_bottom <= b.size * EPS * norm_c
    if orthogonal and smallest <= rounding:
        if norm_c <= gaps[-1]:
            theta = np.where(bottom, 0.0, c / np.where(bottom, 1.0, gaps))
            missing = 1.0 - float(theta @ theta)
            if missing >= 0 and smallest >= -rounding:  # A is singular, its null space costs nothing
                return _UnitMinimum(eigenvectors @ theta, 0.0, hard_case=False, method="eigen")
            if missing >= 0:
                # Either sign along the bottom is optimal up to rounding; take that of b if it has one.
                sign = np.where(bottom, c, 0.0) / along_bottom if along_bottom > 0 else np.eye(1, b.size)[0]
                theta = theta + math.sqrt(missing) * sign
                return _UnitMinimum(eigenvectors @ theta, -smallest, hard_case=True, method="eigen")
        along_bottom = 0.0
        c = np.where(bottom, 0.0, c)
        gaps = np.where(bottom, 1.0, gaps)  # any positive number: these coordinates stay 0

    # Left of the root: the norm is at least along_bottom / shift and at least ||c|| / (max gap + shift).
    shift = max(smallest if smallest > rounding else 0.0, along_bottom, norm_c - float(gaps.max()))
    theta, shift = _solve_secular_equation(c, gaps, shift)
    return _UnitMinimum(eigenvectors @ theta, max(0.0, shift - smallest), hard_case=False, method="eigen")


def _solve_secular_equation(c: FloatArray, gaps: FloatArray, shift: float) -> tuple[FloatArray, float]:
    """Root of ||c / (gaps + shift)|| = 1, from the left: 1 / norm is concave, so Newton climbs to it."""
    theta = c / (gaps + shift)
    for _ in range(100):
        norm = float(np.linalg.norm(theta))
        direction = theta / norm
        # In units of the smallest denominator, whose inverse may overflow when b hardly matters.
        unit = float((gaps + shift).min())
        step = (norm - 1.0) * unit / float(direction @ (direction * (unit / (gaps + shift))))
        if step <= 2 * EPS * shift:
            break
        shift += step
        theta = c / (gaps + shift)
    return theta / float(np.linalg.norm(theta)), shift


def _newton_in_unit_ball(A: FloatArray, b: FloatArray, start: float | None) -> _UnitMinimum | None:
    """Moré-Sorensen iteration; None where the eigendecomposition should decide."""
    work = np.empty_like(A, order="F")
    source = A.T  # A is symmetric: the transpose has the memory order of LAPACK for free
    diagonal = work.T.reshape(-1)[:: b.size + 1]
    low, high, guess = 0.0, math.inf, 0.0
    mu = start or 0.0
    if start is None and float(A.diagonal().min()) <= 0:  # not positive definite, no need to try
        low, high, guess = _bracket(A, b)
        mu = guess
    for count in range(1, LARGEST_NUMBER_OF_FACTORISATIONS + 1):
        work[...] = source
        diagonal += mu
        _, failed_at = dpotrf(work, lower=1, clean=0, overwrite_a=1)  # in place
        if not failed_at:
            theta, _ = dpotrs(work, b, lower=1)
            norm = float(dnrm2(theta))
            if float(diagonal.min()) < HOPELESS_PIVOT or norm == 0.0:
                return None
            if (mu == 0.0 and norm <= 1.0) or abs(norm - 1.0) <= NORM_TOLERANCE:
                if float(diagonal.min()) < SMALLEST_PIVOT:
                    return None
                if mu == 0.0:
                    return _UnitMinimum(theta, 0.0, hard_case=False, method="cholesky", factorisations=count)
                return _UnitMinimum(theta / norm, mu, hard_case=False, method="newton", factorisations=count)
        if high == math.inf:  # the interior case never needs the bracket
            low, high, guess = _bracket(A, b)
        if failed_at:
            low = max(low, mu, EPS)
            mu = guess if low < guess < high else _between(low, high)
            continue
        if norm < 1.0:
            high = min(high, mu)
        newton, halley = _steps(work, theta / norm, norm)
        low = max(low, mu + newton)  # the root is never left of where Newton's step ends
        if low <= mu + halley <= high:
            mu += halley
        else:
            mu = 0.0 if low == 0.0 else _between(low, high)
    return None


def _steps(factor: FloatArray, direction: FloatArray, norm: float) -> tuple[float, float]:
    """Newton's and Halley's steps for 1 / ||theta(mu)|| = 1, from a Cholesky factor of A + mu I.

    Halley's converges cubically for one triangular solve more. Far left of the root it may point
    anywhere; there it is replaced by Newton's.
    """
    half = dtrsv(factor, direction, lower=1)
    full = dtrsv(factor, half, lower=1, trans=1)
    slope = float(half @ half)
    newton = (norm - 1.0) / slope
    bend = 1.5 * (norm - 1.0) * (float(full @ full) / slope / slope - 1.0)
    return newton, newton / (1.0 - bend) if bend < 0.75 else newton


def _between(low: float, high: float) -> float:
    """Split a bracket whose ends may differ by orders of magnitude; nearer to the lower end."""
    return max(math.sqrt(low * high), low + 0.01 * (high - low))


def _bracket(A: FloatArray, b: FloatArray) -> tuple[float, float, float]:
    """Bounds of the multiplier in the unit ball, and a guess, from two moments of the spectrum.

    With mean m and standard deviation s of the eigenvalues, the smallest is at least m - s sqrt(p - 1)
    (Wolkowicz and Styan 1980) and at most the smallest diagonal entry; the multiplier is at most ||b||
    more than its negative. The guess is the multiplier if the spectrum were a semicircle (that of a
    symmetric noise matrix) and b spread evenly over the eigenvectors: the norm condition
    ||b||^2 (z / sqrt(z^2 - 4 s^2) - 1) / (2 s^2) = 1 with z = m + mu has a closed solution.
    """
    p, norm_b = b.size, float(dnrm2(b))
    diagonal = A.diagonal()
    mean = float(diagonal.mean())
    spread = math.sqrt(max(float(np.vdot(A, A)) / p - mean * mean, 0.0))
    low = max(0.0, -float(diagonal.min()))
    high = (max(0.0, spread * math.sqrt(p - 1) - mean) + norm_b) * (1 + 1e-10) + 1e-14
    if spread * 1e-8 >= norm_b:
        edge = 2.0 * spread
    else:
        k = 1.0 + 2.0 * (spread / norm_b) ** 2
        edge = norm_b * k * math.sqrt(2.0 / (k + 1.0))
    return low, high, min(max(edge - mean, low), high)


def _check_quadratic(
    matrix: ArrayLike, vector: ArrayLike, radius: float
) -> tuple[FloatArray, FloatArray, float]:
    A = _as_symmetric("matrix", matrix)
    return A, _as_vector("vector", vector, A.shape[0]), check_positive("radius", radius)


def _as_symmetric(name: str, value: ArrayLike) -> FloatArray:
    """Return ``value`` as a new, exactly symmetric array in C order."""
    A = as_finite_array(name, value, ndim=2)
    if A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise ValueError(f"{name} must be square and not empty, got shape {A.shape}")
    if not np.array_equal(A, A.T):
        difference = float(np.abs(A - A.T).max())
        if difference > SYMMETRY_SLACK * float(np.abs(A).max()):
            raise ValueError(
                f"{name} must be symmetric, got a difference of {difference:.6g} between A and its "
                "transpose; pass (A + A.T) / 2, which is the same quadratic form"
            )
        A = 0.5 * (A + A.T)
    return np.ascontiguousarray(A if A.flags.c_contiguous else A.T)


def _as_vector(name: str, value: ArrayLike, size: int) -> FloatArray:
    b = as_finite_array(name, value, ndim=1)
    if b.shape[0] != size:
        raise ValueError(f"{name} must have {size} entries, got {b.shape[0]}")
    return b


def _scale(A: FloatArray, b: FloatArray, R: float) -> float:
    """Return max(max |A_ij|, max |b_i| / R): divided by it, and by R, every entry is at most 1."""
    scale = max(float(A.max()), -float(A.min()), float(b.max()) / R, -float(b.min()) / R)
    if not math.isfinite(scale):
        raise ValueError(f"radius must not be so small that vector / radius overflows, got {R!r}")
    return scale


def _unscale(A: FloatArray, b: FloatArray, R: float, scale: float, unit: _UnitMinimum) -> BallMinimum:
    theta = unit.theta
    value = 0.5 * float(theta @ (A @ theta)) - float(b @ theta)
    return BallMinimum(
        theta=R * theta,
        multiplier=scale * unit.multiplier,
        value=value * R * scale * R,
        on_boundary=unit.multiplier > 0 or float(dnrm2(theta)) >= 1 - NORM_TOLERANCE,
        hard_case=unit.hard_case,
        method=unit.method,
        factorisations=unit.factorisations,
    )


def _next_to_nothing(b: FloatArray, R: float) -> BallMinimum:
    """The minimum where A = 0 and b / R is 0 in floats: the best point of the sphere, if there is a slope at all."""
    slope = float(dnrm2(b))
    theta = R * (b / slope) if slope > 0 else np.zeros(b.size)
    return BallMinimum(
        theta, 0.0, -R * slope, on_boundary=slope > 0, hard_case=False, method="zero", factorisations=0
    )


def project_to_ball(theta: ArrayLike, radius: float) -> FloatArray:
    """Nearest point of the ball ||theta||_2 <= ``radius``, for each vector of a stack.

    Parameters
    ----------
    theta : array_like, shape (..., p)
        Vectors along the last axis.
    radius : float
        Positive.

    Returns
    -------
    ndarray, shape (..., p)
        Vectors inside are returned unchanged, those outside are scaled to the sphere (up to rounding).

    Raises
    ------
    ValueError
        A scalar, entries that are not finite, a radius that is not positive.
    """
    points = as_finite_array("theta", theta)
    if points.ndim == 0:
        raise ValueError("theta must have at least one dimension, got a scalar")
    bound = check_positive("radius", radius)
    # Squares overflow beyond 1e154 and vanish below 1e-154: norms are taken of the vector over its
    # largest entry.
    largest = np.max(np.abs(points), axis=-1, keepdims=True, initial=0.0)
    unit = np.divide(points, largest, out=np.zeros_like(points), where=largest > 0)
    norms = np.linalg.norm(unit, axis=-1, keepdims=True)
    outside = largest > bound / np.maximum(norms, 1.0)
    return np.where(outside, unit * (bound / np.maximum(norms, 1.0)), points)


def ridge_regression(gram: ArrayLike, moment: ArrayLike, rows: int, lam: float) -> FloatArray:
    """Minimiser of (theta' G theta - 2 m' theta) / (2 n) + lam / 2 ||theta||_2^2.

    With G = X'X and m = X'y this is the minimiser of the mean of half the squared errors plus the ridge.

    Parameters
    ----------
    gram : array_like, shape (d, d)
        G, symmetric.
    moment : array_like, shape (d,)
        m.
    rows : int
        n, the number of records.
    lam : float
        Positive, beside the *mean* loss.

    Returns
    -------
    ndarray, shape (d,)
        From one Cholesky factorisation of G / n + lam I, O(d^3).

    Raises
    ------
    ValueError
        G not symmetric, shapes that do not fit, or G / n + lam I not positive definite: the minimum does
        not exist then, and :func:`minimise_quadratic_in_ball` solves the problem in a ball.
    """
    G = _as_symmetric("gram", gram)
    m = _as_vector("moment", moment, G.shape[0])
    n = check_count("rows", rows)
    G /= n
    G[np.diag_indices_from(G)] += check_positive("lam", lam)
    try:
        factor = cho_factor(G, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        raise ValueError(
            f"gram / rows + lam I must be positive definite, got lam {lam!r} and a gram with a smaller "
            "eigenvalue than -lam * rows; there is no minimum: use minimise_quadratic_in_ball"
        ) from None
    return np.asarray(cho_solve(factor, m / n, check_finite=False))


@dataclass(frozen=True, slots=True)
class NewtonFit:
    """The minimiser of a smooth convex function, and what came with it.

    Parameters
    ----------
    theta : ndarray, shape (d,)
        The minimiser.
    gradient_norm : float
        l2 norm of the gradient at ``theta``: the distance to the exact minimiser is at most this over the modulus of
        strong convexity.
    iterations : int
        Newton steps.
    value : float
        The function at ``theta``.
    hessian : ndarray, shape (d, d)
        Its Hessian at ``theta``.
    """

    theta: FloatArray
    gradient_norm: float
    iterations: int
    value: float
    hessian: FloatArray


def minimise_newton(
    value: Callable[[FloatArray], float],
    derivatives: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    start: ArrayLike,
    *,
    tolerance: float = 1e-10,
) -> NewtonFit:
    """Minimise a smooth, strongly convex function over all of R^d by Newton's method with a line search.

    A step is halved until the function falls enough (Armijo's rule). The last steps gain less than the rounding of
    the function, a sum of thousands of losses; there, the slope along the step decides, which is still accurate
    (the approximate Wolfe condition of Hager and Zhang, SIAM Journal on Optimization 16, 2005, section 2).

    Parameters
    ----------
    value : callable, ndarray (d,) -> float
        The function.
    derivatives : callable, ndarray (d,) -> (ndarray (d,), ndarray (d, d))
        Its gradient and its Hessian, positive definite.
    start : array_like, shape (d,)
        Where to begin; d at least 1.
    tolerance : float
        Largest l2 norm of the gradient at the answer, positive, in the units of the function: of a sum of n losses
        it asks for n times as much as of their mean.

    Returns
    -------
    NewtonFit

    Raises
    ------
    TypeError, ValueError
        ``start`` or ``tolerance`` is not as said; the functions return something not finite or of another shape.
    RuntimeError
        The tolerance was not reached: it lies below what double precision can do for this function, or the Hessian
        is not positive definite in it.
    """
    theta, goal = as_finite_array("start", start, ndim=1), check_positive("tolerance", tolerance)
    if theta.size == 0:
        raise ValueError(f"start must have at least one entry, got shape {theta.shape}")
    current = check_real("value(start)", float(value(theta)))
    gradient, hessian = _derivatives_at(derivatives, theta)
    for iteration in range(LARGEST_NUMBER_OF_NEWTON_STEPS):
        norm = float(np.linalg.norm(gradient))
        if norm <= goal:
            return NewtonFit(theta, norm, iteration, current, hessian)
        try:
            factor = cho_factor(hessian, check_finite=False)
        except LinAlgError:
            raise RuntimeError(
                f"Newton's method met a Hessian that is not positive definite in double precision at gradient norm "
                f"{norm:.3g}, above the tolerance {goal:.3g}; more regularisation or other units would help"
            ) from None
        step = -np.asarray(cho_solve(factor, gradient, check_finite=False))
        found = _search_line(value, derivatives, theta, step, current, float(gradient @ step))
        if found is None:
            break
        theta, current, gradient, hessian = found
    raise RuntimeError(
        f"Newton's method stopped at gradient norm {np.linalg.norm(gradient):.3g} after {iteration + 1} steps, "
        f"above the tolerance {goal:.3g}; scale the problem or ask for less"
    )


def _search_line(
    value: Callable[[FloatArray], float],
    derivatives: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    theta: FloatArray,
    step: FloatArray,
    current: float,
    slope: float,
) -> tuple[FloatArray, float, FloatArray, FloatArray] | None:
    """Halve ``step`` until it is accepted: the next point, its value, gradient and Hessian. None: no step is."""
    # The slack lets the last steps pass, whose gain is below the rounding of the value.
    slack, length = 16 * EPS * (1.0 + abs(current)), 1.0
    while length > EPS:
        trial = theta + length * step
        new = float(value(trial))
        if new <= current + 1e-4 * length * slope + slack:
            return trial, new, *_derivatives_at(derivatives, trial)
        # A value that is the difference of large terms may be rounded by more than the slack. Close by, ask the slope.
        if new <= current + 1e-6 * (1.0 + abs(current)):
            gradient, hessian = _derivatives_at(derivatives, trial)
            if abs(float(gradient @ step)) <= -0.9 * slope:
                return trial, new, gradient, hessian
        length *= 0.5
    return None


def _derivatives_at(
    derivatives: Callable[[FloatArray], tuple[FloatArray, FloatArray]], theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    gradient, hessian = derivatives(theta)
    if np.shape(gradient) != (theta.size,) or np.shape(hessian) != (theta.size, theta.size):
        raise ValueError(
            f"derivatives must return shapes ({theta.size},) and ({theta.size}, {theta.size}), "
            f"got {np.shape(gradient)} and {np.shape(hessian)}"
        )
    if not (np.isfinite(gradient).all() and np.isfinite(hessian).all()):
        raise ValueError(f"derivatives must be finite, got others at theta {theta!r}")
    return gradient, hessian


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """The minimiser of the ridge-regularised mean logistic loss, and what came with it.

    Parameters
    ----------
    theta : ndarray, shape (d,)
        The minimiser.
    gradient_norm : float
        l2 norm of the gradient at ``theta``: the distance to the exact minimiser is at most this over lam.
    iterations : int
        Newton steps.
    risk : float
        Mean logistic loss plus lam / 2 ||theta||^2.
    hessian : ndarray, shape (d, d)
        Hessian of the risk at ``theta``, exactly symmetric.
    """

    theta: FloatArray
    gradient_norm: float
    iterations: int
    risk: float
    hessian: FloatArray


def logistic_regression(
    features: ArrayLike,
    labels: ArrayLike,
    lam: float,
    *,
    tolerance: float = 1e-10,
    weights: ArrayLike | None = None,
) -> LogisticFit:
    """Minimise mean log(1 + exp(-y <theta, x>)) + lam / 2 ||theta||_2^2 over all theta, by Newton's method.

    No intercept: a feature that is 1 on every row serves, and is then penalised and counted in the
    feature norm like the others, as the privacy proofs require.

    Parameters
    ----------
    features : array_like, shape (n, d)
        Rows; d > n is fine.
    labels : array_like, shape (n,)
        -1 or +1; a single class is fine, since the ridge keeps the minimiser finite.
    lam : float
        Positive, beside the *mean* loss: scikit-learn's C is 1 / (n lam).
    tolerance : float
        Largest l2 norm of the gradient at the answer, positive.
    weights : array_like, shape (n,), optional
        How often each row counts: whole numbers >= 0, not all 0. The mean divides by their sum, so that
        collapsed duplicates give the answer of the expanded data.

    Returns
    -------
    LogisticFit
        Each Newton step costs O(n d^2); memory O(n + d^2) beside a checked copy of the features.

    Raises
    ------
    ValueError
        Labels other than -1 and +1, shapes that do not fit, entries that are not finite, weights that are
        negative, fractional or all 0, lam or tolerance not positive.
    RuntimeError
        The tolerance was not reached: it lies below what double precision can do for these data.
    """
    X, y, counts = _check_logistic(features, labels, weights)
    ridge, goal = check_positive("lam", lam), check_positive("tolerance", tolerance)
    loss, total = LogisticLoss(), float(counts.sum())

    def value(theta: FloatArray) -> float:
        return float(counts @ loss.value(X @ theta, y)) / total + 0.5 * ridge * float(theta @ theta)

    def derivatives(theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        prediction = X @ theta
        gradient = (counts * loss.derivative(prediction, y)) @ X / total + ridge * theta
        hessian = weighted_gram(X, counts * loss.second_derivative(prediction, y)) / total
        hessian[np.diag_indices_from(hessian)] += ridge
        return gradient, hessian

    fit = minimise_newton(value, derivatives, np.zeros(X.shape[1]), tolerance=goal)
    return LogisticFit(fit.theta, fit.gradient_norm, fit.iterations, fit.value, fit.hessian)


def _check_logistic(
    features: ArrayLike, labels: ArrayLike, weights: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    X = as_finite_array("features", features, ndim=2)
    if X.shape[0] == 0 or X.shape[1] == 0:
        raise ValueError(f"features must have at least one row and one column, got shape {X.shape}")
    y = _as_vector("labels", labels, X.shape[0])
    bad = np.abs(y) != 1
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"labels must be -1 or +1, got {y[at]!r} at index {at}")
    if weights is None:
        return X, y, np.ones(X.shape[0])
    counts = _as_vector("weights", weights, X.shape[0])
    bad = (counts < 0) | (counts != np.floor(counts))
    if bad.any():
        at = int(np.argmax(bad))
        raise ValueError(f"weights must be whole numbers >= 0, got {counts[at]!r} at index {at}")
    if not counts.any():
        raise ValueError("weights must not all be 0")
    return X, y, counts
