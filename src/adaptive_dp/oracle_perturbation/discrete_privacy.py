"""How much noise OPDisc needs: the shift, the printed scale, and the scales that are proved.

Neighbours replace one record, losses are summed. Everything rests on one number, the shift

    Delta_a = 4 G D^2 / tau + 4 a D^2 / tau^2

(neel2019, Lemma 3, where a = 0; the constants 2 G D^2 / tau in its text are those of adding or removing a record,
erratum 1). If an oracle with additive gap below a answers w on D at the noise eta, it answers w on every neighbour at
the noise eta + Delta_a pi(w). The vector by which the noise moves has length Delta_a for every w, but its *direction*
depends on w, and with it the set of noise vectors at which a Gaussian density changes too much. The proof of Theorem 2
removes one such set for all w (erratum 0), so that Algorithm 1's scale is proved for few dimensions only:

- density proportional to exp(-epsilon ||eta|| / Delta_a): the ratio is at most e^epsilon everywhere, no set is removed;
- Gaussian noise: :class:`ProvedGaussianCurve`;
- Algorithm 1's scale: read its delta off that curve.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from scipy.special import gammaincc, gammainccinv

from adaptive_dp.accounting import EPS, gaussian_delta, gaussian_epsilon, smallest_feasible, step_until_safe
from adaptive_dp.oracle_perturbation.problems import TableProblem, ThresholdProblem
from adaptive_dp.oracle_perturbation.spaces import FiniteSpace, PointSet, is_space, lift
from adaptive_dp.per_instance.calibration import half_normal_delta, half_normal_epsilon, log_excess
from adaptive_dp.validation import check_count, check_ordinary, check_positive, check_probability, check_real

GAP = 1e-6
"""Additive gap a that the guarantees of this page allow an oracle, fixed before the data are seen."""

# The quadrature below is right to about 1e-12; a bound is rounded up by more.
ROUND_UP = 1 + 1e-10
LEAST = sys.float_info.min
"""Smallest normal float, 2.2e-308: no curve of Gaussian noise returns less at a finite epsilon, as it is never pure."""

# The farthest that D / tau may go: beyond, the last coordinate of the lift and differences of neighbours are rounding.
LARGEST_RATIO = 1e6
# Up to here the tail of the chi law is computed to 1e-10; its rounding grows with the root.
LARGEST_COORDINATES = 10**9
# Search of the largest proved dimension.
LARGEST_SEARCH = 5_000
PANELS = 48
NODES, WEIGHTS = np.polynomial.legendre.leggauss(14)


def shift(problem_or_space: Any, *, lipschitz: float | None = None, gap: float = GAP) -> float:
    """Length by which the noise must move so that the answer stays: 4 G D^2 / tau + 4 a D^2 / tau^2.

    neel2019, Lemma 3 (with the constant of its proof), and a gap. *Proof.* Let F be the perturbed objective on D at the
    noise eta, F' that on the neighbour D' at eta + s pi(w), and F(w) < min F + a. For v at distance r >= tau from w,
    F'(v) - F'(w) is at least F(v) - F(w), which is above -a, less 2 G r for the two losses that were exchanged, plus
    s <pi(w), pi(w) - pi(v)> = s |pi(w) - pi(v)|^2 / 2 >= s r^2 / (2 D^2). With s = Delta_a the last is
    2 G r^2 / tau + 2 a r^2 / tau^2 >= 2 G r + 2 a. So F'(v) > F'(w) + a for every v other than w: whoever answers
    with a gap below a on D' answers w.

    Parameters
    ----------
    problem_or_space : ThresholdProblem, TableProblem or FiniteSpace
        A problem brings its own G.
    lipschitz : float or None
        G, for a space only; None for losses in [0, 1], where G = 1 / tau.
    gap : float
        a >= 0; 0 for an oracle that is exact in exact arithmetic.

    Raises
    ------
    TypeError, ValueError
        Something else than a problem or a space, ``lipschitz`` beside a problem, numbers out of range, or a space with
        D / tau above 1e6, whose lift would be lost to rounding.
    """
    space, constant = _space_and_lipschitz(problem_or_space, lipschitz)
    allowed = _check_gap(gap)
    ratio = space.radius / space.separation
    if not ratio <= LARGEST_RATIO:
        raise ValueError(
            f"problem_or_space must have D / tau of at most {LARGEST_RATIO:g}, got {ratio:.3g}: members that are so "
            "near one another cannot be told apart on the lifted sphere; thin out the space"
        )
    return 4 * ratio * (constant * space.radius + allowed * ratio)


def printed_sigma(
    problem_or_space: Any, *, epsilon: float, delta: float, lipschitz: float | None = None
) -> float:
    """Scale of Algorithm 1, 7 G D^2 sqrt(ln(1 / delta)) / (tau epsilon): too small in all but few dimensions.

    What is proved for it is the curve ``ProvedGaussianCurve(shift / sigma, d + 1)``; the printed delta is refuted, for
    some W, from about d = ln(1 / delta) at epsilon = 1 (``flaws_discrete_tail``).
    """
    space, constant = _space_and_lipschitz(problem_or_space, lipschitz)
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return 7 * constant * space.radius**2 / space.separation * math.sqrt(-math.log(tail)) / level


def released_code_sigma(
    problem_or_space: Any, *, epsilon: float, delta: float, lipschitz: float | None = None
) -> float:
    """Half of :func:`printed_sigma`: what the authors' program draws, and what appendix B of neel2019 derives.

    It belongs to neighbours that add or remove a record and is refuted for those that replace one, with two members
    already (erratum 1).
    """
    return 0.5 * printed_sigma(problem_or_space, epsilon=epsilon, delta=delta, lipschitz=lipschitz)


# --- the proved curve ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProvedGaussianCurve:
    """Bound of the privacy profile of a perturbation by N(0, sigma^2 I) whose shift has a direction that depends on w.

    For OPDisc mu = Delta_a / sigma and there are d + 1 coordinates; for a separator perturbation the shift has length
    2 sqrt(m) in m coordinates. With R ~ chi with that many degrees,

        delta(epsilon) <= min{ E (1 - exp(epsilon - mu R - mu^2 / 2))_+ ,  |W| delta_Gauss(epsilon; mu) }.

    *Proof.* Let E(w) be the noise vectors that lead to w on D, u(w) a vector of length at most Delta, and
    E(w) + u(w) a subset of those that lead to w on D'. With p the density,
    P_D(w) - e^epsilon P_D'(w) <= int over E(w) of (p(eta) - e^epsilon p(eta + u(w)))_+, and
    p(eta + u) / p(eta) = exp(-(2 <eta, u> + |u|^2) / (2 sigma^2)) is at least exp(-mu |eta| / sigma - mu^2 / 2). The
    sets E(w) are disjoint, so the sum over w in any S is at most E (1 - exp(epsilon - mu |eta| / sigma - mu^2 / 2))_+.
    For the second bound enlarge each E(w) to the whole space, where <eta, u> / sigma is normal, and sum |W| terms.

    Where the last coordinate is folded (|eta_(d+1)| is used), each w keeps its part of the half space, the first bound
    is unchanged, and <eta, u> in the second one lies between a normal and a half-normal variable (it is a |N| + b N'
    with a, b >= 0 and a^2 + b^2 = 1, which increases stochastically with a): the profile of the half-normal law is
    used, twice the Gaussian one from mu^2 / 2 on.

    Parameters
    ----------
    mu : float
        Length of the shift over sigma, positive.
    coordinates : int
        Number of noise coordinates: d + 1 for OPDisc.
    members : int or None
        |W|; None leaves the second bound out.
    folded : bool
        Whether one coordinate is used without its sign.
    """

    mu: float
    coordinates: int
    members: int | None = None
    folded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_ordinary("mu", self.mu))
        object.__setattr__(self, "coordinates", _check_coordinates(self.coordinates))
        if self.members is not None:
            object.__setattr__(self, "members", check_count("members", self.members))
        if not isinstance(self.folded, bool):
            raise TypeError(f"folded must be True or False, got {self.folded!r}")

    def delta(self, epsilon: float) -> float:
        """Bound of the smallest delta at any real ``epsilon``, rounded up and at least ``LEAST``: never 0."""
        level = check_real("epsilon", epsilon)
        return min(chi_delta(level, self.mu, self.coordinates), self._union_delta(level), 1.0)

    def epsilon(self, delta: float) -> float:
        """Smallest epsilon >= 0 with ``self.delta(epsilon) <= delta`` in [0, 1], on the safe side; infinite at 0."""
        tail = check_real("delta", delta)
        if not 0 <= tail <= 1:
            raise ValueError(f"delta must lie in [0, 1], got {tail!r}")
        if tail == 0:
            return math.inf
        if self.delta(0.0) <= tail:
            return 0.0
        high = min(self._chi_start(tail), self._union_start(tail))
        high = step_until_safe(lambda level: self.delta(level) <= tail, high)
        if not math.isfinite(high):
            return high
        return smallest_feasible(
            lambda level: log_excess(self.delta(level), tail), 1e-9 * high, high, rtol=1e-12
        )

    def _union_delta(self, epsilon: float) -> float:
        if self.members is None:
            return 1.0
        one = half_normal_delta(epsilon, self.mu) if self.folded else gaussian_delta(epsilon, self.mu)
        # Where one term is below the floats, as many as there are members may not be.
        parts = math.log(self.members), math.log(max(one, LEAST))
        rounding = 8 * EPS * (parts[0] - parts[1])
        return math.exp(min(sum(parts) + rounding + math.log(ROUND_UP), 0.0))

    def _chi_start(self, delta: float) -> float:
        """An epsilon at which the first bound is below P(R > r) = delta."""
        largest = math.sqrt(2 * float(gammainccinv(0.5 * self.coordinates, delta)))
        return max(self.mu * (largest + 0.5 * self.mu), 0.0)

    def _union_start(self, delta: float) -> float:
        if self.members is None or math.log(delta) - math.log(self.members) < -700:
            return math.inf
        share = math.exp(math.log(delta) - math.log(self.members))
        one = half_normal_epsilon(share, self.mu) if self.folded else gaussian_epsilon(share, self.mu)
        return max(one, 1e-9 * self.mu)


def chi_delta(epsilon: float, mu: float, coordinates: int) -> float:
    """E (1 - exp(epsilon - mu R - mu^2 / 2))_+ for R ~ chi with ``coordinates`` degrees, rounded up.

    Integrated by parts: (1 - e^rest)_+ plus the integral from r0 of mu exp(rest - mu r) P(R > r), with
    rest = epsilon - mu^2 / 2 and r0 = max(0, rest / mu). All terms are positive, so that values far below the
    rounding of 1 keep their digits. Below the smallest floats the answer is ``LEAST``, which is above the exact one.

    Parameters
    ----------
    epsilon : float
        Any real number.
    mu : float
        Positive.
    coordinates : int
        Degrees of freedom, between 1 and 1e9.
    """
    size, degrees = check_positive("mu", mu), _check_coordinates(coordinates)
    allowed, half_square = check_real("epsilon", epsilon), 0.5 * size * size
    rest = (
        allowed - half_square - 2 * EPS * (abs(allowed) + half_square)
    )  # rounded down: the bound falls with it
    start = max(0.0, rest / size)
    middle = math.sqrt(degrees)
    if start > middle + 40:  # P(R > start) is below exp(-800)
        return LEAST
    # Up to sqrt(degrees) - 10 the tail is 1 but for 3e-20 (the mean of R is at least sqrt(degrees) - 1/2, and R is a
    # function of normal variables with Lipschitz constant 1): 1 is put for it, and only the fall is left to panels,
    # which would miss it on a long way.
    fall = max(start, middle - 10)
    before = math.exp(min(rest, 0.0)) * -math.expm1(-size * (fall - start))
    # Beyond sqrt(degrees) the tail of R falls at least like that of a normal variable, and at r its hazard rate is at
    # least r - sqrt(degrees): what is cut off is below 1e-18 of the whole.
    stop = min(start + 45 / size, max(start, middle) + 10)
    if start > middle:
        stop = min(stop, start + 60 / (size + start - middle))
    stop = max(stop, fall)
    edges = np.linspace(fall, stop, PANELS + 1)
    half = 0.5 * np.diff(edges)[:, np.newaxis]
    r = edges[:-1, np.newaxis] + half * (1 + NODES)
    tail = gammaincc(0.5 * degrees, 0.5 * r * r)
    part = float((half * WEIGHTS * size * np.exp(min(rest, 0.0) - size * (r - start)) * tail).sum())
    floor = -math.expm1(rest) if rest < 0 else 0.0
    # The hazard rate of R at r is about 2 (r - sqrt(degrees)) at most, and r itself is rounded.
    rounding = 16 * EPS * stop * (max(stop - middle, 0.0) + 1)
    return min(1.0, (floor + before + part) * (ROUND_UP + rounding) + LEAST)


def smallest_sigma(
    problem_or_space: Any,
    *,
    epsilon: float,
    delta: float,
    lipschitz: float | None = None,
    gap: float = GAP,
    fold: bool = True,
) -> float:
    """Smallest scale of Gaussian noise for which OPDisc is proved to be (epsilon, delta)-private, on the safe side.

    Never above the closed form of :func:`closed_sigma`.

    Parameters
    ----------
    problem_or_space, lipschitz, gap
        As in :func:`shift`.
    epsilon : float
        Positive.
    delta : float
        In (0, 1).
    fold : bool
        Whether the last coordinate is folded.
    """
    space, _ = _space_and_lipschitz(problem_or_space, lipschitz)
    length = shift(problem_or_space, lipschitz=lipschitz, gap=gap)
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    ratio = smallest_ratio(
        epsilon=level, delta=tail, coordinates=space.dimension + 1, members=space.size, folded=fold
    )
    return ratio * length


def smallest_ratio(
    *, epsilon: float, delta: float, coordinates: int, members: int | None = None, folded: bool = False
) -> float:
    """Smallest sigma over the length of the shift whose :class:`ProvedGaussianCurve` is within (epsilon, delta).

    Larger than the root by 1e-12 of it, so that the rounding of mu = length / sigma cannot lead to the other side.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)

    def excess(ratio: float) -> float:
        return log_excess(ProvedGaussianCurve(1 / ratio, coordinates, members, folded).delta(level), tail)

    high = closed_ratio(epsilon=level, delta=tail, coordinates=coordinates) * (1 + 1e-12)
    return min(smallest_feasible(excess, 1e-6 * high, high, rtol=1e-13) * (1 + 1e-12), high)


def closed_ratio(*, epsilon: float, delta: float, coordinates: int) -> float:
    """(A + sqrt(A^2 + 2 epsilon)) / (2 epsilon) with A = sqrt(coordinates) + sqrt(2 ln(1 / delta)).

    The chi variable is above A with probability at most delta (Laurent and Massart 2000, or concentration of a
    Lipschitz function), and mu A + mu^2 / 2 = epsilon at mu = 1 / ratio.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    largest = math.sqrt(check_count("coordinates", coordinates)) + math.sqrt(-2 * math.log(tail))
    return (largest + math.sqrt(largest**2 + 2 * level)) / (2 * level)


def closed_sigma(
    problem_or_space: Any,
    *,
    epsilon: float,
    delta: float,
    lipschitz: float | None = None,
    gap: float = GAP,
) -> float:
    """A proved scale in closed form, Delta_a times :func:`closed_ratio`: an extra sqrt(d) beside Algorithm 1's."""
    space, _ = _space_and_lipschitz(problem_or_space, lipschitz)
    ratio = closed_ratio(epsilon=epsilon, delta=delta, coordinates=space.dimension + 1)
    return ratio * shift(problem_or_space, lipschitz=lipschitz, gap=gap)


def largest_proved_dimension(
    *, epsilon: float, delta: float, members: Callable[[int], int] | None = None
) -> int:
    """Largest d at which Algorithm 1's scale is proved, 0 if there is none.

    Parameters
    ----------
    epsilon, delta : float
        The claim of Algorithm 1; sigma over shift is 7 sqrt(ln(1 / delta)) / (4 epsilon), whatever the space.
    members : callable or None
        d -> |W|, for spaces of a known size: a small one is covered longer by the second bound of the curve.

    Raises
    ------
    ValueError
        The scale is proved at all of the first 5,000 dimensions: ``members`` hardly grows.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    mu = level / (1.75 * math.sqrt(-math.log(tail)))

    def proved(dimension: int) -> bool:
        size = None if members is None else members(dimension)
        return ProvedGaussianCurve(mu, dimension + 1, size).delta(level) <= tail

    dimension = 0
    while proved(dimension + 1):
        dimension += 1
        if dimension >= LARGEST_SEARCH:
            raise ValueError(
                f"members must grow with d: the scale is proved at each d up to {LARGEST_SEARCH}, where the search ends"
            )
    return dimension


# --- how loose the shift is ---------------------------------------------------------------------------


def exact_shift(space: PointSet, *, lipschitz: float | None = None, gap: float = 0.0) -> float:
    """Smallest length that Lemma 3's argument allows for this very space: the maximum over its pairs.

    A pair at distance r needs s |pi(w) - pi(v)|^2 / 2 >= c + 2 a, where c is the most by which replacing a record
    changes the difference of their losses: 2 G r, or 2 for losses in [0, 1] (``lipschitz`` None).

    Parameters
    ----------
    space : PointSet
        Members and D.
    lipschitz : float or None
        G of unbounded losses; None for losses in [0, 1].
    gap : float
        a >= 0.

    Returns
    -------
    float
        At most :func:`shift`.
    """
    if not isinstance(space, PointSet):
        raise TypeError(f"space must be a PointSet, got {type(space).__name__}")
    allowed = _check_gap(gap)
    change: Any = 2.0
    if lipschitz is not None:
        change = 2 * check_ordinary("lipschitz", lipschitz) * pdist(space.members)
    squares = np.square(pdist(lift(space.members, space.radius)))
    return float(np.max(2 * (change + 2 * allowed) / squares))


def centred(space: PointSet) -> PointSet:
    """The space moved to the centre of the box around it if that makes the largest norm smaller, with that norm as D.

    W is public, and so is the move: the noise falls with the square of D / tau. In one dimension the box is the
    smallest ball around W; in several a smaller ball may exist.
    """
    if not isinstance(space, PointSet):
        raise TypeError(f"space must be a PointSet, got {type(space).__name__}")
    moved = PointSet(space.members - 0.5 * (space.members.min(axis=0) + space.members.max(axis=0)))
    return moved if moved.radius < space.radius else PointSet(space.members)


# --- checks -------------------------------------------------------------------------------------------


def _space_and_lipschitz(problem_or_space: Any, lipschitz: float | None) -> tuple[FiniteSpace, float]:
    """Return W and G; G is 1 / tau where losses lie in [0, 1]."""
    if isinstance(problem_or_space, ThresholdProblem | TableProblem):
        if lipschitz is not None:
            raise ValueError("lipschitz comes with the problem; give it with a space only")
        space: FiniteSpace = problem_or_space.space
        own = problem_or_space.lipschitz if isinstance(problem_or_space, TableProblem) else None
        return space, 1 / space.separation if own is None else float(own)
    if not is_space(problem_or_space):
        raise TypeError(
            "problem_or_space must be a ThresholdProblem, a TableProblem or a finite space, got "
            f"{type(problem_or_space).__name__}"
        )
    if lipschitz is None:
        return problem_or_space, 1 / problem_or_space.separation
    return problem_or_space, check_ordinary("lipschitz", lipschitz)


def _check_coordinates(coordinates: int) -> int:
    degrees = check_count("coordinates", coordinates)
    if degrees > LARGEST_COORDINATES:
        raise ValueError(f"coordinates must be at most {LARGEST_COORDINATES}, got {degrees}")
    return degrees


def _check_gap(gap: float) -> float:
    allowed = check_real("gap", gap)
    if not 0 <= allowed <= 1e100:
        raise ValueError(f"gap must lie between 0 and 1e100, got {allowed!r}")
    return allowed
