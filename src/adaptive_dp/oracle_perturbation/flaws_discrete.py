"""Where the proof of privacy of OPDisc and RSPM breaks: parity losses, and exact probabilities for them (erratum 0).

neel2019, Lemma 5, fixes a member w and shows that the Gaussian density changes by at most e^epsilon outside a set C of
probability delta when the noise moves along pi(w). C depends on w. The proof of Theorem 2 removes one C and sums over
all w; what must be removed is the event <eta, pi(w)> > Lambda for the w *that is chosen*, and the chosen w maximises
<eta, pi(.)> up to the loss. A maximum over many directions is of the order sigma sqrt(d), not sigma.

The simplest pair of neighbours that shows it. All losses are 0 but one; on D that one is 1 where w is odd, on D' where
it is even. Then P_D'(odd) = 1 - P_D(odd), and P_D(odd) is a product over independent parts of the noise for

- the cube {-1, 1}^d, odd meaning an odd number of -1: tau = 2, D = sqrt(d), G = 1/2;
- products of k regular polygons on the sphere of R^(2k), odd meaning an odd sum of the k indices;
- RSPM over {0, 1}^m with the separators e_j(w) = w_j.

With more other records one can ask for more: all odd words have a loss lower by beta, so that an even word is chosen
only where every coordinate of the noise is large. This moves rare noise into view (:func:`orthant_delta`). Spaces that
are dense in the sphere, where rare noise is used best, are the subject of
:mod:`~adaptive_dp.oracle_perturbation.flaws_discrete_tail`.

Nothing here is a mechanism.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtr, owens_t

from adaptive_dp.oracle_perturbation.problems import TableProblem
from adaptive_dp.oracle_perturbation.separator_gaussian import (
    SeparatorCurve,
    odd_probabilities,
    printed_separator_sigma,
    times_exp,
)
from adaptive_dp.oracle_perturbation.spaces import PointSet
from adaptive_dp.validation import (
    FloatArray,
    as_finite_array,
    check_choice,
    check_count,
    check_ordinary,
    check_probability,
    check_real,
)

BoolArray = NDArray[np.bool_]
Law = Callable[[int, float], float]
LEVELS = (0.01, 0.03, 0.1, 0.3, 1.0)
SHAPES = ("cube", "rings")
SIDES = 64
LARGEST_SEARCH = 5_000
MARGINS = np.linspace(0.0, 6.0, 601)


def settings(profile: str) -> dict[str, Any]:
    """Sizes of the section's computations for the profiles quick, book and paper."""
    quick, paper = profile == "quick", profile == "paper"
    return {
        "dimensions": (8, 16, 23, 50, 100, 200, 400, 1000),
        "curve": tuple(2 * round(d) for d in np.geomspace(4, 500, 20 if quick else 50)),
        "points": (50, 200, 1000),
        "runs": 500 if quick else (100_000 if paper else 3_000),
        "epsilons": tuple(np.geomspace(0.01, 8.0, 7 if quick else (61 if paper else 25))),
        "spacings": (0.02,) if quick else ((0.02, 0.01, 0.005, 0.0025) if paper else (0.02, 0.01)),
        "answers": 20_000 if quick else (1_000_000 if paper else 40_000),
        "samples": 20_000_000 if paper else 400_000,
    }


def printed_ratio(*, epsilon: float, delta: float) -> float:
    """Algorithm 1's sigma over the shift 4 G D^2 / tau: 7 sqrt(ln(1 / delta)) / (4 epsilon), whatever the space."""
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return 1.75 * math.sqrt(-math.log(tail)) / level


# --- exact probabilities ------------------------------------------------------------------------------


def log_all_large(coordinates: int, least: float) -> float:
    """Logarithm of P(|N_j| > least for all j), N standard normal in as many ``coordinates``; ``least`` >= 0."""
    return coordinates * (math.log(2.0) + float(log_ndtr(-least)))


def cube_odd(dimension: int, ratio: float) -> float:
    """P_D(odd) on the cube {-1, 1}^d with Gaussian noise of ``ratio`` shifts; P_D'(odd) is the rest.

    The minimiser is sign(eta) unless that is odd, costs a loss, and turning the entry with the smallest |eta_j| costs
    2 |eta_j| / sqrt(d) < 1: P_D(odd) = P(min_j |eta_j| > sqrt(d) / 2) / 2. Here the shift is d.

    Parameters
    ----------
    dimension : int
        d.
    ratio : float
        sigma over the shift, positive.
    """
    d, size = check_count("dimension", dimension), check_ordinary("ratio", ratio)
    return 0.5 * math.exp(log_all_large(d, 0.5 / (size * math.sqrt(d))))


def rings_odd(dimension: int, ratio: float, *, sides: int = SIDES) -> float:
    """P_D(odd) on a product of d / 2 regular polygons with ``sides`` corners; P_D'(odd) is the rest.

    With k = d / 2 polygons of radius D / sqrt(k) the nearest members differ in one index and D / tau =
    sqrt(k) / (2 sin(h)), h = pi / sides. In each plane the noise has a length rho and an angle that lies h - phi from
    the nearest corner, phi uniform in [0, h]; the next corner costs 2 rho sin(h) sin(phi) / sqrt(k). The sum of the
    indices is odd or even with the same probability, and the choice is kept if all k steps cost more than a loss.

    Parameters
    ----------
    dimension : int
        d, even.
    ratio : float
        sigma over the shift.
    sides : int
        Corners of each polygon, even and at least 4.
    """
    rings, size = _rings(dimension, sides), check_ordinary("ratio", ratio)
    # sigma = ratio k / sin^2 h, so that rho / sigma must exceed a / sin(phi): exp(-a^2 / (2 sin^2 phi)) is integrated
    # over [0, h], and cot(phi) in place of phi makes that Owen's T.
    h = math.pi / sides
    a = math.sin(h) / (2 * size * math.sqrt(rings))
    kept = 2 * math.pi / h * (0.5 * float(ndtr(-a)) - float(owens_t(a, 1 / math.tan(h))))
    return 0.5 * kept**rings


def cube_odd_norm(dimension: int, epsilon: float) -> float:
    """P_D(odd) on the cube with norm noise, density proportional to exp(-epsilon |eta| / shift) on R^(d + 1).

    exp(-|x|) is a mixture of Gaussian densities (the Laplace transform of Lévy's law): in k dimensions
    x = sqrt(2 Y) N with Y ~ Gamma((k + 1) / 2, 1) and N standard normal. Given Y the d coordinates that matter are
    independent, which leaves one integral.

    Parameters
    ----------
    dimension : int
        d.
    epsilon : float
        Of the pure guarantee.
    """
    d, level = check_count("dimension", dimension), check_ordinary("epsilon", epsilon)
    return 0.5 * _gamma_mean(
        0.5 * d + 1, lambda y: np.exp(d * (math.log(2.0) + log_ndtr(-0.5 * level / np.sqrt(2 * d * y))))
    )


def _gamma_mean(shape: float, function: Callable[[FloatArray], FloatArray]) -> float:
    """Mean of a smooth function with values in [0, 1] of a Gamma(shape, 1) variable, to about 1e-13."""
    low, high = stats.gamma.ppf(1e-16, shape), stats.gamma.isf(1e-16, shape)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    x = 0.5 * (math.log(high) + math.log(low)) + 0.5 * (math.log(high) - math.log(low)) * nodes
    y = np.exp(x)
    density = np.exp(stats.gamma.logpdf(y, shape) + x) * weights
    return float((density * function(y)).sum() / density.sum())


def separators_odd_laplace(separators: int, epsilon: float) -> float:
    """P_D(odd) over {0, 1}^m with Laplace noise of scale 2 m / epsilon on the separators: exp(-epsilon / 2) / 2.

    The ratio (1 - P) / P = 2 e^(epsilon / 2) - 1 does not depend on m, and is below e^epsilon by
    (e^(epsilon / 2) - 1)^2.
    """
    m, level = check_count("separators", separators), check_ordinary("epsilon", epsilon)
    scale = 2 * m / level
    return 0.5 * math.exp(-m / scale)


def odd_law(shape: str) -> Law:
    """The function (d, ratio) -> P_D(odd) of a ``shape``: ``"cube"`` or ``"rings"``."""
    laws: dict[str, Law] = {"cube": cube_odd, "rings": rings_odd}
    return laws[check_choice("shape", shape, SHAPES)]


# --- asking for more ----------------------------------------------------------------------------------


def orthant_delta(
    coordinates: int, step: float, epsilon: float, *, margin: float | None = None
) -> tuple[float, float]:
    """P_D(even) - e^epsilon P_D'(even) where odd words have a base loss that is lower by beta >= 1, exactly.

    Turning coordinate j costs t |N_j|, with t = 2 sigma / sqrt(d) on the cube and t = sigma for separators. On D an
    even word costs beta - 1 more than its odd neighbours and on D' beta + 1, so that it is chosen if all t |N_j|
    exceed this: P_D(even) = P(min_j |N_j| > c) / 2 with c = (beta - 1) / t and P_D'(even) the same at c + 2 / t.

    Parameters
    ----------
    coordinates : int
        d or m.
    step : float
        2 / t: sqrt(d) / sigma on the cube, which is 1 / (ratio sqrt(d)), and 2 / sigma for separators.
    epsilon : float
        Any real number.
    margin : float or None
        c >= 0; None takes the best one. Every value gives a valid lower bound of delta.

    Returns
    -------
    (float, float)
        The difference, which may be negative, and c.
    """
    k, move, level = (
        check_count("coordinates", coordinates),
        check_ordinary("step", step),
        check_real("epsilon", epsilon),
    )

    def difference(c: Any) -> Any:
        here, there = (k * (math.log(2.0) + log_ndtr(-at)) for at in (c, c + move))
        # Clipped to a float: the difference is negative there in any case.
        return 0.5 * np.exp(here) - 0.5 * np.exp(np.minimum(level + there, 700.0))

    if margin is not None:
        least = check_real("margin", margin)
        if least < 0:
            raise ValueError(f"margin must be nonnegative, got {margin!r}")
        return float(difference(least)), least
    # The difference is negative up to one point and rises from there to one maximum: the grid finds its neighbourhood.
    at = int(np.argmax(difference(MARGINS)))
    low, high = float(MARGINS[max(at - 1, 0)]), float(MARGINS[min(at + 1, len(MARGINS) - 1)])
    found = minimize_scalar(lambda c: -float(difference(c)), bounds=(low, high), method="bounded")
    best = max((float(MARGINS[at]), float(found.x)), key=lambda c: float(difference(c)))
    return float(difference(best)), best


def parity_delta(shape: str, dimension: int, *, ratio: float, epsilon: float) -> float:
    """P_D'(odd) - e^epsilon P_D(odd) with Gaussian noise of ``ratio`` shifts, which delta must not be below.

    Minus infinity where e^epsilon P_D(odd) is beyond the floats.
    """
    odd = odd_law(shape)(dimension, ratio)
    return 1.0 - odd - times_exp(odd, epsilon)


# --- tables -------------------------------------------------------------------------------------------


def parity_table(
    shape: str, dimensions: Sequence[int], *, epsilons: Sequence[float], delta: float
) -> pd.DataFrame:
    """Algorithm 1 as printed against the parity losses.

    Returns
    -------
    DataFrame
        ``d``, ``epsilon``, ``P_D`` and ``P_D'`` of the odd event, ``allowed`` (e^epsilon P_D + delta, at most 1),
        ``difference`` (P_D' - e^epsilon P_D) and ``refuted``: whether that exceeds ``delta``.
    """
    law, rows = odd_law(shape), []
    for level, d in product(epsilons, dimensions):
        odd = law(d, printed_ratio(epsilon=level, delta=delta))
        scaled = times_exp(odd, level)
        difference = 1 - odd - scaled
        rows.append(
            {
                "d": d,
                "epsilon": level,
                "P_D": odd,
                "P_D'": 1 - odd,
                "allowed": min(scaled + delta, 1.0),
                "difference": difference,
                "refuted": difference > delta,
            }
        )
    return pd.DataFrame(rows)


def smallest_refuted_dimension(shape: str, *, delta: float, epsilons: Sequence[float] = LEVELS) -> int:
    """Smallest d at which the parity losses refute Algorithm 1's scale at some of ``epsilons``; even for rings."""
    step = 2 if check_choice("shape", shape, SHAPES) == "rings" else 1

    def refuted(d: int) -> bool:
        return any(
            parity_delta(shape, d, ratio=printed_ratio(epsilon=level, delta=delta), epsilon=level) > delta
            for level in epsilons
        )

    return _first(refuted, step)


def largest_proved_cube(*, epsilon: float, delta: float) -> int:
    """Largest d at which Algorithm 1's scale is proved on the cube {-1, 1}^d.

    There <eta, pi(w)> is at most ||eta||_1 / sqrt(d), and the bound that charges separators one by one applies: the
    shift d pi(w) has the entries +-sqrt(d): mu = sqrt(d) / sigma = 1 / (ratio sqrt(d)) for each coordinate.
    """
    ratio = printed_ratio(epsilon=epsilon, delta=delta)
    largest = 0
    while SeparatorCurve(1 / (ratio * math.sqrt(largest + 1)), largest + 1).delta(epsilon) <= delta:
        largest += 1
    return largest


def smallest_margin_dimension(*, epsilon: float, delta: float) -> int:
    """Smallest d at which the cube with the best base loss beta >= 1 refutes Algorithm 1's scale."""
    ratio = printed_ratio(epsilon=epsilon, delta=delta)
    return _first(lambda d: orthant_delta(d, 1 / (ratio * math.sqrt(d)), epsilon)[0] > delta, 1)


def smallest_margin_count(*, epsilon: float, delta: float) -> int:
    """Smallest m at which {0, 1}^m with the best base loss beta >= 1 refutes Algorithm 3's scale."""

    def refuted(m: int) -> bool:
        sigma = printed_separator_sigma(m, epsilon=epsilon, delta=delta)
        return orthant_delta(m, 2 / sigma, epsilon)[0] > delta

    return _first(refuted, 1)


def _first(refuted: Callable[[int], bool], step: int) -> int:
    """First multiple of ``step`` that is refuted. In more dimensions Theorem 2 stays false, as W fits in there."""
    for size in range(step, LARGEST_SEARCH, step):
        if refuted(size):
            return size
    raise ValueError(f"delta is not refuted below {LARGEST_SEARCH}")


def separator_table(counts: Sequence[int], *, epsilons: Sequence[float], delta: float) -> pd.DataFrame:
    """RSPM with the printed scale against the parity losses; columns as :func:`parity_table`, ``m`` for ``d``."""
    rows = []
    for level, m in product(epsilons, counts):
        on_d, on_other = odd_probabilities(m, printed_separator_sigma(m, epsilon=level, delta=delta))
        difference = on_other - times_exp(on_d, level)
        row = {"m": m, "epsilon": level, "P_D": on_d, "P_D'": on_other, "difference": difference}
        rows.append(row | {"refuted": difference > delta})
    return pd.DataFrame(rows)


def sound_table(dimensions: Sequence[int], *, epsilon: float) -> pd.DataFrame:
    """The same losses under the pure mechanisms: P_D'(odd) / P_D(odd) for norm noise and for Laplace separators.

    Returns
    -------
    DataFrame
        ``d``, ``norm``, ``laplace`` and ``promise`` (e^epsilon); infinite beyond the floats.
    """
    rows = []
    for d in dimensions:
        norm, laplace = cube_odd_norm(d, epsilon), separators_odd_laplace(d, epsilon)
        rows.append(
            {
                "d": d,
                "norm": (1 - norm) / norm if norm > 0 else math.inf,
                "laplace": (1 - laplace) / laplace if laplace > 0 else math.inf,
                "promise": times_exp(1.0, epsilon),
            }
        )
    return pd.DataFrame(rows)


# --- the same by enumeration and by simulation ---------------------------------------------------------


def parity_problems(dimension: int, *, margin: int = 0) -> tuple[TableProblem, TableProblem]:
    """Two neighbouring data sets over the cube, listed.

    Parameters
    ----------
    dimension : int
        d, at most 12.
    margin : int
        beta: that many records have the loss 1 on even words and 0 on odd ones. One more record has a constant loss.

    Returns
    -------
    (TableProblem, TableProblem)
        D, on which the record that is replaced has the loss 1 on odd words, and D', where it has it on even ones.
    """
    d, records = check_count("dimension", dimension), check_count("margin", margin, minimum=0)
    if d > 12:
        raise ValueError(f"dimension must be at most 12 to list the cube, got {d}")
    words = np.array(list(product((-1.0, 1.0), repeat=d)))
    odd = (words.prod(axis=1) < 0).astype(np.float64)
    others = np.vstack([np.zeros((1, len(odd))), np.tile(1 - odd, (records, 1))])
    space = PointSet(words)
    first, second = (TableProblem(np.vstack([row, others]), space) for row in (odd, 1 - odd))
    return first, second


def cube_answers(noise: ArrayLike, *, first: bool) -> BoolArray:
    """Whether the exact minimiser on the cube is odd, for each row of noise; the parity losses without a margin.

    Parameters
    ----------
    noise : array_like, shape (T, d) or more columns
        Only the first d columns matter; give these.
    first : bool
        D (odd words cost a loss), or D'.

    Returns
    -------
    ndarray of bool, shape (T,)
    """
    eta = as_finite_array("noise", noise, ndim=2)
    odd = np.count_nonzero(eta < 0, axis=1) % 2 == 1
    turns = 2 * np.abs(eta).min(axis=1) / math.sqrt(eta.shape[1]) < 1
    return np.asarray(odd ^ (turns & (odd == first)))


def rings_answers(noise: ArrayLike, *, first: bool, sides: int = SIDES) -> BoolArray:
    """As :func:`cube_answers` for polygons of radius D / sqrt(k); ``noise`` has shape (T, 2 k), plane after plane."""
    eta = as_finite_array("noise", noise, ndim=2)
    rings = _rings(eta.shape[1], sides)
    planes = eta.reshape(len(eta), rings, 2)
    angle = np.arctan2(planes[..., 1], planes[..., 0]) * sides / (2 * math.pi)
    corner = np.rint(angle)
    away = 2 * math.pi / sides * (angle - corner)
    other = 2 * math.pi / sides * (1 - np.abs(angle - corner))
    cost = np.hypot(planes[..., 0], planes[..., 1]) * (np.cos(away) - np.cos(other)) / math.sqrt(rings)
    odd = corner.sum(axis=1) % 2 == 1
    return np.asarray(odd ^ ((cost.min(axis=1) < 1) & (odd == first)))


def simulated_table(
    shape: str,
    dimensions: Sequence[int],
    *,
    epsilon: float,
    delta: float,
    runs: int,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Algorithm 1 run on the parity losses: shares of odd answers on D and on D', each from ``runs`` noise vectors.

    Returns
    -------
    DataFrame
        ``d``, ``P_D``, ``P_D'``.
    """
    answers = {"cube": cube_answers, "rings": rings_answers}[check_choice("shape", shape, SHAPES)]
    ratio, count, rows = printed_ratio(epsilon=epsilon, delta=delta), check_count("runs", runs), []
    for d in dimensions:
        # The shift is d on the cube, k / sin^2(pi / sides) for k polygons.
        unit = float(d) if shape == "cube" else 0.5 * d / math.sin(math.pi / SIDES) ** 2
        shares = {}
        for name, first in (("P_D", True), ("P_D'", False)):
            odd = 0
            for start in range(0, count, 1000):
                noise = rng.normal(0.0, ratio * unit, (min(1000, count - start), d))
                odd += int(answers(noise, first=first).sum())
            shares[name] = odd / count
        rows.append({"d": d} | shares)
    return pd.DataFrame(rows)


def _rings(dimension: int, sides: int) -> int:
    d, corners = check_count("dimension", dimension, minimum=2), check_count("sides", sides, minimum=4)
    if d % 2 or corners % 2:
        raise ValueError(f"dimension and sides must be even, got {d} and {corners}")
    return d // 2
