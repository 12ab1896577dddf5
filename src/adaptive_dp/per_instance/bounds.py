"""Bounds of the two data-dependent terms that need no look at the data.

Source: redberg2023, Theorems 2.3.3 and 2.3.4; errata 3 and 4.

The determinant term of anybody, added or removed, is at most sum_j log(1 + lambda_j / lam), for every lam > 0
and always. The inner product <grad J, g> is -<b, g>: bounded with probability 1 - rho over the noise, in a
different way according to *when* the person was chosen (:class:`Scope`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats
from scipy.special import ndtri

from adaptive_dp.per_instance.objective import Records
from adaptive_dp.validation import FloatArray, check_choice, check_count, check_ordinary, check_probability


class Scope(StrEnum):
    """For whom a bound holds at once with the promised probability."""

    ONE = "one person fixed before the release"
    MANY = "a number of people fixed before the release"
    EVERYONE = "everybody at once, also records chosen after the release"


def check_scope(scope: Scope | str) -> Scope:
    """Return ``scope`` as a :class:`Scope`; its text is accepted as well."""
    return Scope(check_choice("scope", scope, tuple(Scope)))


def determinant_bound(records: Records, *, lam: float) -> FloatArray:
    """Return sum_j log(1 + lambda_j / lam), shape (m,), with the eigenvalues of each record's Hessian.

    Bounds |log det(I + s H^-1 A)| for s = +1 and s = -1, with certainty, and is attained when D has no other
    record. The print, -sum_j log(1 - lambda_j / lam), needs lam above the largest eigenvalue and is larger.
    """
    return np.asarray(np.log1p(records.eigenvalues / check_ordinary("lam", lam)).sum(axis=1))


def normal_quantile(rho: float) -> float:
    """Q with P(|N(0, 1)| > q) = rho; exact where the print has sqrt(2 log(2 / rho))."""
    return -float(ndtri(0.5 * check_probability("rho", rho)))


@dataclass(frozen=True, slots=True)
class Width:
    """How far <e, g> may be from 0 for e ~ N(0, I), with probability 1 - rho, as a function of g.

    ``l2`` multiplies ||g||_2 and ``l1`` multiplies ||g||_1; the smaller product is the bound.
    """

    l2: float
    l1: float = math.inf

    def of(self, records: Records) -> FloatArray:
        """The bound for each record's gradient, shape (m,)."""
        bound = self.l2 * records.gradient_norms
        return bound if math.isinf(self.l1) else np.minimum(bound, self.l1 * records.gradient_l1_norms)


def inner_product_width(
    rho: float, *, scope: Scope, dimension: int, people: int = 1, fixed_direction: bool = True
) -> Width:
    """Bound of |<e, g>| with probability 1 - rho over e ~ N(0, I_d).

    Parameters
    ----------
    rho : float
        Failure probability, in (0, 1).
    scope : Scope
        ``ONE``: the half-normal quantile times ||g||_2, dimension-free; ``MANY``: the same at rho / people;
        ``EVERYONE``: the smaller of a chi quantile times ||g||_2 and a quantile of the largest of d normals
        times ||g||_1, whatever g is and however it was found. ``ONE`` and ``MANY`` never exceed the chi quantile.
    dimension : int
        d.
    people : int
        How many people were fixed beforehand, for ``MANY``.
    fixed_direction : bool
        Whether the *direction* of g does not depend on e. False sends everybody to the bounds of ``EVERYONE``:
        gradients of a general loss turn with theta^P, and so with the noise that is to be bounded. For a
        generalised linear loss g = f' x keeps the direction of x, and that is enough.
    """
    tail = check_probability("rho", rho)
    columns = check_count("dimension", dimension)
    chi = float(stats.chi.isf(tail, columns))
    chosen = check_scope(scope)
    if chosen is Scope.EVERYONE or not fixed_direction:
        # Both norms of e are bounded at once: by the Gaussian correlation inequality (Royen 2014) two symmetric
        # convex events that fail with probability 1 - sqrt(1 - rho) each fail together with at most rho.
        each = -math.expm1(0.5 * math.log1p(-tail))
        return Width(l2=float(stats.chi.isf(each, columns)), l1=largest_normal_quantile(each, columns))
    share = tail / check_count("people", people) if chosen is Scope.MANY else tail
    return Width(l2=min(normal_quantile(share), chi))


def largest_normal_quantile(rho: float, dimension: int) -> float:
    """Q with P(max_j |N_j| > q) = rho for ``dimension`` independent normals."""
    tail, columns = check_probability("rho", rho), check_count("dimension", dimension)
    # 1 - (1 - rho)^(1/d), without cancellation.
    return normal_quantile(-math.expm1(math.log1p(-tail) / columns))
