"""The sharper bound of objective perturbation where the record is absent: a certified supremum of closed forms.

Source: section S1 of the errata, with the proof in the referee's report. From the data without the record to the data
with it the loss is at most mu^2 / 2 + |t| min(mu, kappa |t| - s_0 sgn t), where t is standard normal and s_0, the
derivative at t = 0, is an unknown number in [-mu, mu]. So, for every real epsilon,

    delta <= sup_{s_0} I(s_0),    I(s) = F(s) + F(-s),
    F(s) = int_0^inf phi(r) (1 - exp(epsilon - mu^2 / 2 - r min(mu, kappa r - s)))_+ dr.

The exponent is linear or quadratic in r, hence F is a handful of Gaussian distribution functions. F falls in s, hence
F(a) + F(-b) bounds I on all of [a, b]: cells are halved until that is as good as the best value that was seen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from adaptive_dp.accounting import EPS
from adaptive_dp.validation import FloatArray, check_positive, check_real

# Relative gap between the certified supremum and the best value seen, and a limit on the halvings.
TOLERANCE = 1e-5
HALVINGS = 60
FIRST_CELLS = 16


class Cells(NamedTuple):
    """Intervals [a, b] of s_0 with F at a and b and at -a and -b, each of shape (k,)."""

    a: FloatArray
    b: FloatArray
    f_a: FloatArray
    f_b: FloatArray
    g_a: FloatArray
    g_b: FloatArray


def sharper_absent_delta(epsilon: float, mu: float, kappa: float, *, tolerance: float = TOLERANCE) -> float:
    """Upper bound of the hockey-stick divergence from the data without the record to the data with it.

    Parameters
    ----------
    epsilon : float
        Any real number.
    mu, kappa : float
        Positive; see :class:`~adaptive_dp.objective_perturbation.profiles.ReducedCurve`.
    tolerance : float
        Relative distance from the supremum, at most (roundings apart). The answer is never below it.
    """
    e, m, k = check_real("epsilon", epsilon), check_positive("mu", mu), check_positive("kappa", kappa)
    gap = check_positive("tolerance", tolerance)
    points = np.linspace(0.0, m, FIRST_CELLS + 1)
    f, g = half_line(points, e, m, k), half_line(-points, e, m, k)
    cells = Cells(points[:-1], points[1:], f[:-1], f[1:], g[:-1], g[1:])
    best, bound = float((f + g).max()), 0.0
    for _ in range(HALVINGS):
        over = cells.f_a + cells.g_b
        keep = over > best * (1 + gap)
        bound = max(bound, float(over[~keep].max(initial=0.0)))
        if not keep.any():
            break
        kept = Cells(*(part[keep] for part in cells))
        middle = 0.5 * (kept.a + kept.b)
        f, g = half_line(middle, e, m, k), half_line(-middle, e, m, k)
        best = max(best, float((f + g).max()))
        cells = Cells(
            np.concatenate([kept.a, middle]),
            np.concatenate([middle, kept.b]),
            np.concatenate([kept.f_a, f]),
            np.concatenate([f, kept.f_b]),
            np.concatenate([kept.g_a, g]),
            np.concatenate([g, kept.g_b]),
        )
    else:  # whatever is left counts with its bound
        bound = max(bound, float((cells.f_a + cells.g_b).max(initial=0.0)))
    return min(bound, 1.0)


def half_line(s: FloatArray, epsilon: float, mu: float, kappa: float) -> FloatArray:
    """F at each ``s`` in [-mu, mu], shape (k,), rounded up.

    Up to r* = (mu + s) / kappa the exponent is quadratic, beyond it is linear. The integrand lives where the loss is
    above epsilon: on the quadratic piece outside the two roots, on the linear one from (epsilon - mu^2 / 2) / mu on.
    """
    rest = epsilon - 0.5 * mu * mu
    joint = (mu + s) / kappa
    start = np.maximum(joint, rest / mu)
    total = _difference(log_ndtr(-start), epsilon + log_ndtr(-start - mu), abs(epsilon))
    low, high = _roots(s, rest, kappa)
    total += _quadratic_piece(np.minimum(high, joint), joint, s, rest, kappa)
    return total + _quadratic_piece(np.zeros_like(s), np.minimum(low, joint), s, rest, kappa)


def _roots(s: FloatArray, rest: float, kappa: float) -> tuple[FloatArray, FloatArray]:
    """Roots of kappa r^2 - s r - rest, at least 0; both 0 where there are none."""
    discriminant = s * s + 4 * kappa * rest
    root = np.sqrt(np.maximum(discriminant, 0.0))
    # The one without cancellation, and the other from their product.
    sum_of_like_signs = s + np.where(s >= 0, root, -root)
    one = sum_of_like_signs / (2 * kappa)
    safe = np.where(sum_of_like_signs != 0, sum_of_like_signs, 1.0)
    other = np.where(sum_of_like_signs != 0, -2 * rest / safe, 0.0)
    some = discriminant >= 0
    low, high = np.minimum(one, other), np.maximum(one, other)
    return np.where(some, np.maximum(low, 0.0), 0.0), np.where(some, np.maximum(high, 0.0), 0.0)


def _quadratic_piece(a: FloatArray, b: FloatArray, s: FloatArray, rest: float, kappa: float) -> FloatArray:
    """int_a^b phi(r) (1 - exp(rest - kappa r^2 + s r)) dr, rounded up; 0 where b <= a."""
    upper = np.maximum(a, b)
    steep = 1 + 2 * kappa
    root = math.sqrt(steep)
    shift = s / root
    # phi(r) e^(s r - kappa r^2) is a normal density again, of variance 1 / steep around s / steep.
    log_scale = rest + 0.5 * shift * shift - 0.5 * math.log(steep)
    mass = _log_interval(a, upper)
    moved = log_scale + _log_interval(root * a - shift, root * upper - shift)
    return np.where(b > a, _difference(mass, moved, abs(rest) + 0.5 * shift * shift), 0.0)


def _difference(first: FloatArray, second: FloatArray, size: float | FloatArray) -> FloatArray:
    """exp(first) - exp(second), not below 0, plus what their roundings can be; ``size``: of a term inside them."""
    plus, minus = np.exp(first), np.exp(second)
    # Beyond 1e3 the exponential is 0, and so must be the slack.
    slack = plus * (2 + np.minimum(-first, 1e3)) + minus * (2 + np.minimum(np.abs(second), 1e3) + size)
    return np.asarray(np.maximum(plus - minus, 0.0) + 8 * EPS * slack)


def _log_interval(a: FloatArray, b: FloatArray) -> FloatArray:
    """log(Phi(b) - Phi(a)) for a <= b, from the tail that is the shorter; -inf where they agree."""
    swap = a > 0
    low, high = log_ndtr(np.where(swap, -b, a)), log_ndtr(np.where(swap, -a, b))
    with np.errstate(divide="ignore"):
        return np.asarray(high + np.log(-np.expm1(np.minimum(low - high, 0.0))))
