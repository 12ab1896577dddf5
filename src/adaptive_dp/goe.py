"""The exact law of the largest eigenvalue of Gaussian symmetric noise (Gaussian orthogonal ensemble, GOE).

The matrix is the noise of redberg2023, Algorithm 11, with scale 1: A = (Z + Z') / sqrt(2), where the d x d entries
of Z are independent standard normal. Off the diagonal A has variance 1, on it variance 2, and its largest eigenvalue
lambda_1 lies near 2 sqrt(d). Chiani (2014), "Distribution of the largest eigenvalue for real Wishart and Gaussian
random matrices", halves both variances: what is t here is t / sqrt(2) there. The thesis quotes 12 for d = 50 and
rho = 8.465e-6, which is Chiani's number; Algorithm 11 needs 12 sqrt(2) = 16.97 (erratum 7).

**From eigenvalues to one determinant.** With x = lambda / sqrt(2) the eigenvalues have a joint density
proportional to prod_{i<j} |x_i - x_j| exp(-sum_i x_i^2 / 2). Let h_0, h_1, ... be the Hermite functions:
orthonormal on the line, h_j a polynomial of degree j times exp(-v^2 / 2). On ordered eigenvalues the density is, up
to a constant, det[h_i(x_j)], i, j < d. De Bruijn's formula turns the integral of such a determinant over
x_1 < ... < x_d <= x into a Pfaffian, so

    P(lambda_1 <= t)^2 = det M(x) / det M(inf),   x = t / sqrt(2),
    M_ij(x) = integral over u < v <= x of h_i(u) h_j(v) - h_j(u) h_i(v);

for odd d the matrix gets one more row and column, which hold the integrals of h_i up to x.

**Nothing has to be inverted.** h_i' = sqrt(i / 2) h_{i-1} - sqrt((i+1) / 2) h_{i+1}; call the matrix of these
coefficients, i and j < d, D. Put a derivative h_i' in the place of h_i in M(inf): the inner integral is done, and
twice the integral of h_i h_j is left. So row i of D M(inf) is row i of 2 I as long as h_{i+1} is among the functions,
that is for all rows but the last; and as the inverse of M(inf) is antisymmetric, its last row follows from its last
column. Hence M(inf)^{-1} = D / 2 for even d. For odd d the border adds -1 / c_{d-1} at (d-1, d) and 1 / c_{d-1} at
(d, d-1), with c_j the integral of h_j over the line. Put R = M(inf) - M(x), the part of the integral
that lies beyond x. Then P^2 = det(I - K) with K = M(inf)^{-1} R, and the same integration by parts leaves

    K = G + h (c - T)' / 2 + sqrt(d / 8) e_{d-1} r_d',
    G_ij = integral from x of h_i h_j,   T_j = integral from x of h_j,   h = (h_0(x), ..., h_{d-1}(x)),
    (r_k)_j = R_kj = c_k T_j - T_k c_j + T_k T_j - 2 (integral from x of (integral from v of h_k) h_j(v) dv),

here for even d; :func:`_kernel` adds the border. G alone would give the *unitary* ensemble: real symmetric matrices
differ from Hermitian ones by this matrix of rank two. Every entry is an integral over (x, inf): far to the right
K is small and accurate *relative to its size*, so that the tail is not a difference of two numbers near 1.

**Evaluation.** h_j and T_j come from their three-term recursions, the integrals from Gauss-Legendre panels.
log det(I - K) is taken by LU, or from the traces of powers of K where K is small. Far out, where products of two
tails are below rounding, trace(K) / 2 = kappa_d T_{d-1}(x) is all that is left of the tail probability, with
kappa_d = sqrt(d / 8) c_d for even d and 1 / c_{d-1} for odd d. The integral of the one-point density from x, which
bounds the tail from above, has the same leading term. It is evaluated in logarithms: tails of 1e-300 and less are no
trouble.

**Which side the errors are on.** The absolute error of :func:`cdf` stays below 1e-12 and the relative error of
:func:`survival` below 1e-10; both have either sign. Compared with :func:`cdf_mpmath` they were 1e-14 and 1e-13 at
most for d up to 300, where tails went down to 1e-48; beyond d = 300 the ratio of Pfaffians itself, by quadrature, was
compared. :func:`quantile` is the nearest root and may err to either side too. :func:`upper_quantile`, and with it
:func:`operator_norm_bound`, aims ``SLACK`` (relative) below the tail that was asked for, so that all errors together
cannot make it too small. The union over both ends of the spectrum makes the operator norm bound a little larger than
the exact quantile of the norm.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, special

from adaptive_dp.validation import FloatArray, as_finite_array, check_count, check_probability, check_real

MAX_DIMENSION = 500
"""Largest d of the exact law: not far beyond, exp(-v^2 / 2) underflows where the eigenvalues are."""

LEAST_PROBABILITY = 1e-10
"""Least argument of :func:`quantile`: the error of :func:`cdf` is absolute, and below this it would show."""

SLACK = 1e-9
"""Relative margin of :func:`upper_quantile` below the tail that was asked for."""

NEGLIGIBLE = -45.0  # log of a tail integral whose square no longer matters beside it: 3e-20
SERIES = 2e-3  # tail probability below which log det(I - K) is summed as a series
NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
# A panel holds at most this many radians of a product h_i h_j on either side: 16 nodes then err below 1e-19.
PHASE = 6.0


# ---------------------------------------------------------------- the law


@overload
def cdf(t: float, dimension: int) -> float: ...
@overload
def cdf(t: ArrayLike, dimension: int) -> float | FloatArray: ...
def cdf(t: ArrayLike, dimension: int) -> float | FloatArray:
    """P(lambda_1 <= t) for the d x d matrix A = (Z + Z') / sqrt(2).

    Parameters
    ----------
    t : float or array_like
        Any finite real numbers.
    dimension : int
        d, 1 to ``MAX_DIMENSION``.

    Returns
    -------
    float, or ndarray of the shape of ``t``
        In [0, 1], absolute error below 1e-12 of either sign. Increasing up to that error; values below 1e-12,
        in the left tail, may have no correct digit.

    Raises
    ------
    TypeError, ValueError
        ``t`` not real and finite, ``dimension`` not an integer or out of range.

    Notes
    -----
    redberg2023, Lemma A.4.4 and erratum 7; see the head of this module for the formula.
    """
    order = _check_dimension(dimension)
    return _elementwise(lambda value: math.exp(_log_cdf(value / math.sqrt(2), order)), t)


@overload
def survival(t: float, dimension: int) -> float: ...
@overload
def survival(t: ArrayLike, dimension: int) -> float | FloatArray: ...
def survival(t: ArrayLike, dimension: int) -> float | FloatArray:
    """P(lambda_1 > t), accurate in the right tail relative to its size.

    Arguments, shapes and errors are those of :func:`cdf`. The relative error is below 1e-10, of either sign;
    below the least float the answer is 0.
    """
    order = _check_dimension(dimension)
    return _elementwise(lambda value: math.exp(_log_survival(value / math.sqrt(2), order)), t)


def quantile(probability: float, dimension: int) -> float:
    """The t with P(lambda_1 <= t) = ``probability``: the nearest root, which may err to either side.

    Parameters
    ----------
    probability : float
        In (0, 1), at least ``LEAST_PROBABILITY``. For a tail below 1e-16 call :func:`upper_quantile`: one minus
        such a tail is 1 in floating point.
    dimension : int
        d, 1 to ``MAX_DIMENSION``.

    Raises
    ------
    TypeError, ValueError
        ``probability`` or ``dimension`` out of range.
    """
    level = check_probability("probability", probability)
    order = _check_dimension(dimension)
    if level < LEAST_PROBABILITY:
        raise ValueError(f"probability must be at least {LEAST_PROBABILITY:g}, got {level!r}")
    if level > 0.5:  # 1 - level is exact here
        return _upper_root(math.log1p(-level), order)
    target = math.log(level)

    def excess(t: float) -> float:
        return max(_log_cdf(t / math.sqrt(2), order), -100.0) - target  # not -inf, which no root finder likes

    return _root(excess, _guess(math.log1p(-level), order), order)


def upper_quantile(tail: float, dimension: int) -> float:
    """A t with P(lambda_1 > t) <= ``tail``: never too small.

    The search aims at tail (1 - ``SLACK``), a margin wider than the rounding errors of :func:`survival`; for tails
    up to 0.9 the answer is too large by less than 1e-8.

    Parameters
    ----------
    tail : float
        In (0, 1); as small as a float can be.
    dimension : int
        d, 1 to ``MAX_DIMENSION``.

    Raises
    ------
    TypeError, ValueError
        ``tail`` or ``dimension`` out of range.
    """
    level = check_probability("tail", tail)
    order = _check_dimension(dimension)
    return _upper_root(math.log(level) - SLACK, order)


def operator_norm_bound(rho: float, dimension: int) -> float:
    """A bound tau with P(||A|| <= tau) >= 1 - ``rho`` (redberg2023, Lemma A.4.4).

    lambda_1 and -lambda_d have the same law, and each exceeds tau with probability rho / 2 at most.

    Parameters
    ----------
    rho : float
        Failure probability in (0, 1).
    dimension : int
        d, at least 1. Beyond ``MAX_DIMENSION`` the answer is :func:`explicit_bound`: valid, but larger.

    Raises
    ------
    TypeError, ValueError
        ``rho`` not in (0, 1), ``dimension`` not a positive integer.
    OverflowError
        ``dimension`` larger than any float.
    """
    return _norm_bound(check_probability("rho", rho), check_count("dimension", dimension))


@lru_cache(maxsize=256)
def _norm_bound(rho: float, dimension: int) -> float:
    """:func:`operator_norm_bound` of checked arguments: every report asks for the same few values again."""
    if dimension > MAX_DIMENSION:
        return explicit_bound(rho, dimension)
    # In logarithms, as half of the least float is 0.
    return _upper_root(math.log(rho) - math.log(2) - SLACK, dimension)


def explicit_bound(rho: float, dimension: int) -> float:
    """2 sqrt(d) + 2 sqrt(log(2 / rho)): a bound on ||A|| that holds with probability 1 - ``rho``, for any d.

    E lambda_1 <= 2 sqrt(d) by comparison of Gaussian processes, and lambda_1 is sqrt(2)-Lipschitz in Z, so it
    exceeds its mean by s with probability exp(-s^2 / 4) at most; both ends of the spectrum together (erratum 7).

    Parameters
    ----------
    rho : float
        Failure probability in (0, 1).
    dimension : int
        d, at least 1.

    Raises
    ------
    TypeError, ValueError
        ``rho`` not in (0, 1), ``dimension`` not a positive integer.
    OverflowError
        ``dimension`` larger than any float.
    """
    failure = check_probability("rho", rho)
    order = check_count("dimension", dimension)
    return 2 * math.sqrt(order) + 2 * math.sqrt(math.log(2) - math.log(failure))


# ---------------------------------------------------------------- constants of a dimension


@dataclass(frozen=True, eq=False)
class _Constants:
    """What depends on the dimension alone.

    totals : integrals c_0, ..., c_d of the Hermite functions over the line, shape (d + 1,)
    leading : log of kappa_d, the limit of P(lambda_1 > t) / T_{d-1}(x) far out
    top : point x beyond which the tail is kappa_d T_{d-1}(x) to all digits
    """

    dimension: int
    totals: FloatArray
    leading: float
    top: float


@lru_cache(maxsize=64)
def _constants(dimension: int) -> _Constants:
    totals = np.zeros(dimension + 1)
    totals[0] = math.pi**-0.25 * math.sqrt(2 * math.pi)
    for j in range(2, dimension + 1, 2):
        totals[j] = math.sqrt((j - 1) / j) * totals[j - 2]
    totals.setflags(write=False)
    if dimension % 2:
        leading = -math.log(totals[dimension - 1])
    else:
        leading = math.log(math.sqrt(dimension / 8) * totals[dimension])
    top = math.sqrt(2 * dimension + 1)
    while _log_hermite_tail(top, dimension) > NEGLIGIBLE:
        top += 0.25
    return _Constants(dimension, totals, leading, top)


def _check_dimension(dimension: object) -> int:
    order = check_count("dimension", dimension)
    if order > MAX_DIMENSION:
        raise ValueError(
            f"dimension must be at most {MAX_DIMENSION} for the exact law, got {order}; "
            "explicit_bound and operator_norm_bound accept any dimension"
        )
    return order


# ---------------------------------------------------------------- Hermite functions and their tails


def _hermite(count: int, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """h_j and T_j = integral of h_j from each point to infinity, j < ``count``; two arrays (count, points)."""
    values, tails = np.empty((2, count, points.size))
    values[0] = math.pi**-0.25 * np.exp(-(points**2) / 2)
    tails[0] = math.pi**-0.25 * math.sqrt(math.pi / 2) * special.erfc(points / math.sqrt(2))
    for j in range(1, count):
        before, step = math.sqrt((j - 1) / j), math.sqrt(2 / j)
        previous = max(j - 2, 0)  # multiplied by 0 when j = 1
        values[j] = step * points * values[j - 1] - before * values[previous]
        tails[j] = step * values[j - 1] + before * tails[previous]
    return values, tails


def _log_hermite_tail(point: float, degree: int) -> float:
    """Logarithm of the integral of h_degree from ``point``, right of all its zeros, to infinity."""
    if point > 1e100:
        return -math.inf
    scale = -point * point / 2 - math.log(math.pi) / 4
    value, value_before = 1.0, 0.0
    tail, tail_before = math.sqrt(math.pi / 2) * float(special.erfcx(point / math.sqrt(2))), 0.0
    for j in range(1, degree + 1):
        before, step = math.sqrt((j - 1) / j), math.sqrt(2 / j)
        tail, tail_before = step * value + before * tail_before, tail
        value, value_before = step * point * value - before * value_before, value
        if value > 1e100:
            scale += math.log(value)
            tail, tail_before, value_before = tail / value, tail_before / value, value_before / value
            value = 1.0
    return scale + math.log(tail)


# ---------------------------------------------------------------- the determinant


def _panels(start: float, stop: float, dimension: int) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on [start, stop], panels short enough for products of h_0 ... h_d."""
    width = min(1.0, PHASE / math.sqrt(2 * dimension + 1))
    edges = np.linspace(start, stop, max(1, math.ceil((stop - start) / width)) + 1)
    half = np.diff(edges)[:, None] / 2
    return ((edges[:-1, None] + half) + half * NODES).ravel(), (half * WEIGHTS).ravel()


def _kernel(x: float, constants: _Constants) -> FloatArray:
    """K with P(lambda_1 <= sqrt(2) x)^2 = det(I - K), shape (d, d), or (d + 1, d + 1) for odd d."""
    d, totals = constants.dimension, constants.totals
    nodes, weights = _panels(x, constants.top, d)
    # The last column is x itself.
    values, tails = _hermite(d + 1, np.append(nodes, x))
    at, beyond = values[:d, -1], tails[:, -1]
    inside = values[:d, :-1]
    weighted = inside * weights

    def remainder(k: int) -> FloatArray:
        """Row k of R = M(inf) - M(x), shape (d,)."""
        shared = (totals[k] + beyond[k]) * beyond[:d] - beyond[k] * totals[:d]
        return np.asarray(shared - 2 * (weighted @ tails[k, :-1]))

    size = d + d % 2
    kernel = np.zeros((size, size))
    kernel[:d, :d] = inside @ weighted.T + np.outer(at, totals[:d] - beyond[:d]) / 2
    kernel[d - 1, :d] += math.sqrt(d / 8) * remainder(d)
    if d % 2:
        kernel[d - 1, :d] += beyond[:d] / totals[d - 1]
        kernel[:d, d] = -at / 2
        kernel[d - 1, d] += math.sqrt(d / 8) * beyond[d]
        kernel[d, :d] = remainder(d - 1) / totals[d - 1]
        kernel[d, d] = beyond[d - 1] / totals[d - 1]
    return kernel


def _log_cdf(x: float, dimension: int) -> float:
    """Log P(lambda_1 <= sqrt(2) x), at most 0."""
    constants = _constants(dimension)
    if x >= constants.top:
        return math.log1p(-math.exp(_log_survival(x, dimension)))
    if x <= -constants.top:
        return -math.inf
    kernel = _kernel(x, constants)
    if abs(float(np.trace(kernel))) / 2 < SERIES:
        return min(0.0, -_trace_series(kernel) / 2)
    sign, logarithm = np.linalg.slogdet(np.eye(len(kernel)) - kernel)
    return min(0.0, float(logarithm) / 2) if sign > 0 else -math.inf


def _log_survival(x: float, dimension: int) -> float:
    """Log P(lambda_1 > sqrt(2) x), at most 0; finite as far out as logarithms of floats go."""
    constants = _constants(dimension)
    if x >= constants.top:
        return constants.leading + _log_hermite_tail(x, dimension - 1)
    below = _log_cdf(x, dimension)
    return math.log(-math.expm1(below)) if below < 0 else -math.inf


def _trace_series(kernel: FloatArray) -> float:
    """-log det(I - K) = sum_n trace(K^n) / n to sixth order; the next term is below 1e-16 of the first."""
    square = kernel @ kernel
    cube = square @ kernel
    powers = (
        np.trace(kernel),
        np.trace(square),
        np.trace(cube),
        np.sum(square * square.T),
        np.sum(square * cube.T),
        np.sum(cube * cube.T),
    )
    return float(sum(power / n for n, power in enumerate(powers, start=1)))


# ---------------------------------------------------------------- roots


def _upper_root(log_tail: float, dimension: int) -> float:
    """The t with log P(lambda_1 > t) = ``log_tail``; on the side where the tail is not larger."""

    def excess(t: float) -> float:
        return log_tail - _log_survival(t / math.sqrt(2), dimension)

    found = _root(excess, _guess(log_tail, dimension), dimension)
    nudge = math.ulp(found)
    while excess(found) < 0:
        found += nudge
        nudge *= 2
    return found


def _root(rise: Callable[[float], float], guess: float, dimension: int) -> float:
    """Root of an increasing function; the bracket grows from ``guess`` until it holds the root."""
    # A good guess is much closer than the spread d^(-1/6) of lambda_1.
    step = 0.02 * dimension ** (-1 / 6)
    if rise(guess) < 0:
        low, high = guess, guess + step
        while rise(high) < 0:
            step *= 4
            low, high = high, high + step
    else:
        low, high = guess - step, guess
        while rise(low) > 0:
            step *= 4
            low, high = low - step, low
    return float(optimize.brentq(rise, low, high, xtol=1e-13, rtol=1e-14))


def _guess(log_tail: float, dimension: int) -> float:
    """About the t with log P(lambda_1 > t) = ``log_tail``; only a start, the root does not depend on it."""
    if log_tail > math.log(0.02):
        # Tracy-Widom law of order one, as the shifted gamma law of Chiani (2014), Section 5.
        shifted = float(special.gammainccinv(46.446, math.exp(log_tail))) * 0.186054 - 9.84801
        return 2 * math.sqrt(dimension - 0.5) + float(dimension ** (-1 / 6)) * shifted
    # The far tail, from the last zero of h_{d-1} to the concentration bound P(lambda_1 > high) <= exp(log_tail).
    leading = _constants(dimension).leading
    low = math.sqrt(4 * dimension)
    high = low + 2 * math.sqrt(-log_tail)

    def excess(t: float) -> float:
        return log_tail - leading - _log_hermite_tail(t / math.sqrt(2), dimension - 1)

    return float(optimize.brentq(excess, low, high, xtol=1e-6)) if excess(low) < 0 < excess(high) else high


# ---------------------------------------------------------------- an independent computation


def cdf_mpmath(t: float, dimension: int, digits: int = 30) -> Any:
    """P(lambda_1 <= t) to ``digits`` significant digits, by another way and with mpmath; slow.

    The same Pfaffian in the basis v^j exp(-v^2 / 2), whose integrals are incomplete gamma functions with a recursion
    in j (the form of Chiani 2014, Theorem 2), divided by Mehta's integral instead of the Pfaffian at infinity. That
    matrix is badly conditioned: the working precision grows until two results agree.

    Parameters
    ----------
    t : float
        Finite; used exactly as the float it is.
    dimension : int
        d, at least 1. A tenth of a second for d = 20, half a minute for d = 200.
    digits : int
        Significant digits of the answer, at least 1; for a tail of 1e-k ask for more than k.

    Returns
    -------
    mpmath.mpf

    Raises
    ------
    TypeError, ValueError
        ``t`` not a finite number, ``dimension`` or ``digits`` not a positive integer.
    ImportError
        mpmath is not installed; nothing else in this module needs it.
    """
    point = check_real("t", t)
    order = check_count("dimension", dimension)
    wanted = check_count("digits", digits)
    import mpmath  # type: ignore[import-untyped]

    precision = wanted + 20 + order
    before = None
    while True:
        with mpmath.workdps(precision):
            value = _monomial_pfaffian(mpmath, point, order)
            agree = before is not None and abs(value - before) <= abs(value) * mpmath.mpf(10) ** (-wanted - 2)
        if agree:
            with mpmath.workdps(wanted):
                return +value  # rounded to what is known
        before, precision = value, precision + precision // 2


def _monomial_pfaffian(mp: Any, t: float, d: int) -> Any:
    """P(lambda_1 <= t) at the working precision of mpmath; no digit is right if that is too low."""
    x = mp.mpf(t) / mp.sqrt(2)
    weight = mp.exp(-x * x / 2)
    # single_j and double_j: integrals up to x of v^j exp(-v^2 / 2) and v^j exp(-v^2).
    single = [mp.sqrt(mp.pi / 2) * mp.erfc(-x / mp.sqrt(2)), -weight]
    double = [mp.sqrt(mp.pi) / 2 * mp.erfc(-x), -weight * weight / 2]
    for j in range(2, 2 * d):
        single.append((j - 1) * single[j - 2] - x ** (j - 1) * weight)
        double.append((mp.mpf(j - 1) * double[j - 2] - x ** (j - 1) * weight**2) / 2)
    # nested_ij: integral up to x of single_i(v) v^j exp(-v^2 / 2); by parts in j, and nested_i0 from nested_0i.
    nested: list[list[Any]] = []
    for i in range(d):
        first = single[0] * single[i] - nested[0][i] if i else single[0] ** 2 / 2
        row = [first, double[i] - single[i] * weight]
        for j in range(2, d):
            row.append((j - 1) * row[j - 2] - single[i] * x ** (j - 1) * weight + double[i + j - 1])
        nested.append(row)
    size = d + d % 2
    matrix = [[mp.mpf(0)] * size for _ in range(size)]
    for i in range(d):
        for j in range(d):
            matrix[i][j] = nested[i][j] - nested[j][i]
    if d % 2:
        for i in range(d):
            matrix[i][d], matrix[d][i] = single[i], -single[i]
    # Mehta: integral of the density over ordered eigenvalues.
    total = mp.mpf(1)
    for j in range(1, d + 1):
        total *= mp.sqrt(2 * mp.pi) * mp.gamma(1 + mp.mpf(j) / 2) / mp.gamma(mp.mpf(3) / 2) / j
    return _pfaffian(mp, matrix) / total


def _pfaffian(mp: Any, matrix: list[list[Any]]) -> Any:
    """Pfaffian by elimination of two rows at a time, in place.

    No pivoting is needed: each leading minor of even size is itself an integral of a positive density, hence positive.
    """
    result = mp.mpf(1)
    for k in range(0, len(matrix), 2):
        pivot = matrix[k][k + 1]
        result *= pivot
        first, second = matrix[k], matrix[k + 1]
        for i in range(k + 2, len(matrix)):
            left, right = first[i] / pivot, second[i] / pivot
            row = matrix[i]
            for j in range(i + 1, len(matrix)):
                row[j] += right * first[j] - left * second[j]
    return result


def _elementwise(function: Callable[[float], float], t: ArrayLike) -> float | FloatArray:
    """Apply a function of one real number to a number, or to each entry of an array."""
    if np.ndim(t) == 0:
        return function(check_real("t", t))
    values = as_finite_array("t", t)
    return np.array([function(float(value)) for value in values.flat]).reshape(values.shape)
