r"""What OPSamp costs in accuracy: Theorem 7 of neel2019, repaired.

W is a box with sides of length at most D, or any set in such a box; the losses are convex and G-Lipschitz in l1 on
the box, with values in [0, 1]. The answers w_1 ... w_m have additive gap at most a on the scale of the sum, for
noise sigma of rate eta, or for the centred noise sigma - 1 / eta; the point that is released is the average plus mu,
mu of d independent Laplace entries of scale lambda / epsilon, clipped to the box coordinate by coordinate. With w*
the minimiser of the mean loss F over W,

    F(released) - F(w*) <= G |mu|_1 + (1/m) sum_k [F(w_k) - F(w*)].

(Clipping moves no coordinate further from the average than mu did, the losses are Lipschitz *on the box*, and F of
an average is at most the average of F. Without the clipping, as printed, the point leaves W, where nothing is
assumed.)

*The Laplace noise.* |mu|_1 has the law Gamma(d, lambda / epsilon), with mean d lambda / epsilon. (As printed: below
(1 + ln(2 / beta)) lambda / epsilon, with no d; from d = 2 on that is exceeded too often.)

*The tilts.* The oracle's certificate is n [F(w_k) - F(w*)] <= <tilt, w_k - w*> + a, where the tilt is sigma or
sigma - 1 / eta. Let top_i and low_i be the sides of the box. As w* does not depend on the noise, the mean of the
largest <tilt, w - w*> over the box is sum_i E[tilt_i^+ (top_i - w*_i) + tilt_i^- (w*_i - low_i)]. One-sided noise:
at most d D / eta. Centred noise: both mean parts are 1 / (e eta), so that it is **d D / (e eta)**, wherever w* is.
If W has l2 diameter D_2, it lies in a ball of radius R, R <= D_2 sqrt(d / (2 d + 2)) (Jung 1901), and centred noise
also gives R E|tilt|_2 <= R sqrt(d) / eta: smaller than the box's bound where W is round.

*The average.* F(w_k) - F(w*) lies in [0, min(1, G d D)], with conditional mean at most y = tilt term / n + a / n:
Bernstein's bound of :mod:`~adaptive_dp.oracle_perturbation.concentration` for the average of these numbers, at failure
beta / 2, as for |mu|_1.

In the mean, with lambda = (13/6) 8 eta G d^2 D and a = 0, the two sides are B eta + E / eta, B = (52/3) G^2 d^3 D /
epsilon and E the tilt term times eta / n; the best eta = sqrt(E / B) leaves **2 sqrt(B E)** (printed: sqrt(B E)).
With E = D_2 sqrt(d / 2) / n that is proportional to d^{7/4} G sqrt(D D_2 / (epsilon n)), where the paper has
d^{5/4}.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import stats

from adaptive_dp.oracle_perturbation.concentration import bernstein_average
from adaptive_dp.oracle_perturbation.stability import check_gap
from adaptive_dp.validation import check_count, check_ordinary, check_positive, check_probability


@dataclass(frozen=True, slots=True)
class ExcessBound:
    """A bound of the excess mean loss of OPSamp and its parts, each in units of the loss.

    Attributes
    ----------
    laplace : float
        G times the quantile of |mu|_1.
    tilt : float
        What the noise in the objective costs in the mean.
    gap : float
        What the oracle's gap costs, a / n.
    sampling : float
        What the average of m calls may lie above its mean.
    """

    laplace: float
    tilt: float
    gap: float
    sampling: float

    @property
    def total(self) -> float:
        """The bound; at 1 or above it says nothing."""
        return self.laplace + self.tilt + self.gap + self.sampling


def laplace_l1_quantile(dimension: int, failure: float) -> float:
    """Quantile of |mu|_1 in units of the scale, exceeded with probability ``failure``: Gamma(d, 1), exactly."""
    d = check_count("dimension", dimension)
    return float(stats.gamma.isf(check_probability("failure", failure), d))


def closed_l1_quantile(dimension: int, failure: float) -> float:
    """Return d + sqrt(2 d t) + t with t = ln(1 / failure): a bound of the quantile (the law is sub-gamma)."""
    d, t = check_count("dimension", dimension), -math.log(check_probability("failure", failure))
    return d + math.sqrt(2 * d * t) + t


def printed_l1_radius(beta: float) -> float:
    """1 + ln(2 / beta), the radius in Theorem 7's proof in units of the scale, **false from d = 2 on** (beta = .05)."""
    return 1 + math.log(2 / check_probability("beta", beta))


def radius_failure(dimension: int, radius: float) -> float:
    """P(|mu|_1 > radius), ``radius`` in units of the scale, exactly."""
    d = check_count("dimension", dimension)
    return float(stats.gamma.sf(check_positive("radius", radius), d))


def tilt_term(
    *, dimension: int, diameter: float, euclidean_diameter: float | None = None, centred: bool = True
) -> float:
    """Bound eta E max_w <tilt, w - w*> (part 2 of the theorem).

    Parameters
    ----------
    dimension : int
        d.
    diameter : float
        D, the l_infinity diameter.
    euclidean_diameter : float, optional
        D_2; None takes the box's, sqrt(d) D.
    centred : bool
        Whether 1 / eta is subtracted from the noise.
    """
    d, side = check_count("dimension", dimension), check_ordinary("diameter", diameter)
    box = d * side * (math.exp(-1) if centred else 1.0)
    if euclidean_diameter is None:
        return box
    across = check_ordinary("euclidean_diameter", euclidean_diameter)
    if across > math.sqrt(d) * side * (1 + 1e-9) or across < side * (1 - 1e-9):
        raise ValueError(
            f"euclidean_diameter must lie between D = {side:.6g} and sqrt(d) D = {math.sqrt(d) * side:.6g}, "
            f"got {across:.6g}"
        )
    if not centred:
        # |sigma|_2 <= sqrt(2 d) / eta in the mean; the diameter, since one-sided noise does not average to nothing.
        return min(box, across * math.sqrt(2 * d))
    return min(box, across * math.sqrt(d / (2 * d + 2)) * math.sqrt(d))


def excess_bound(
    *,
    sensitivity: float,
    epsilon: float,
    eta: float,
    calls: int,
    records: int,
    dimension: int,
    diameter: float,
    lipschitz: float,
    beta: float,
    gap: float = 0.0,
    euclidean_diameter: float | None = None,
    centred: bool = True,
) -> ExcessBound:
    """Excess of the mean loss that OPSamp stays below except with probability ``beta``, for convex losses in [0, 1].

    Parameters
    ----------
    sensitivity : float
        lambda; the Laplace noise has scale lambda / epsilon.
    epsilon, eta : float
        Privacy level; rate of the noise.
    calls, records, dimension : int
        m, n, d.
    diameter, lipschitz : float
        D and G.
    beta : float in (0, 1)
        Half of it goes to either side.
    gap : float
        a, on the scale of the sum.
    euclidean_diameter, centred
        As in :func:`tilt_term`.

    Notes
    -----
    Source: neel2019, Theorem 7; erratum. Proof in the module's docstring.
    """
    level = check_probability("beta", beta) / 2
    n, slope = check_count("records", records), check_ordinary("lipschitz", lipschitz)
    d, side = check_count("dimension", dimension), check_ordinary("diameter", diameter)
    scale = check_positive("sensitivity", sensitivity) / check_ordinary("epsilon", epsilon)
    term = tilt_term(dimension=d, diameter=side, euclidean_diameter=euclidean_diameter, centred=centred)
    tilt, given = term / (check_ordinary("eta", eta) * n), check_gap(gap) / n
    top = min(1.0, slope * d * side)
    # A mean beyond the range says nothing, and Bernstein's bound is then of no use either.
    above = bernstein_average(mean=tilt + given, largest=top, calls=calls, failure=level) - (tilt + given)
    return ExcessBound(
        laplace=slope * scale * laplace_l1_quantile(d, level), tilt=tilt, gap=given, sampling=max(above, 0.0)
    )


def expected_excess(
    *,
    sensitivity: float,
    epsilon: float,
    eta: float,
    records: int,
    dimension: int,
    diameter: float,
    lipschitz: float,
    gap: float = 0.0,
    euclidean_diameter: float | None = None,
    centred: bool = True,
) -> float:
    """Bound of the mean excess: G d lambda / epsilon + tilt term / (eta n) + a / n; arguments: :func:`excess_bound`."""
    d, n = check_count("dimension", dimension), check_count("records", records)
    scale = check_positive("sensitivity", sensitivity) / check_ordinary("epsilon", epsilon)
    term = tilt_term(dimension=d, diameter=diameter, euclidean_diameter=euclidean_diameter, centred=centred)
    tilt = term / (check_ordinary("eta", eta) * n)
    return check_ordinary("lipschitz", lipschitz) * d * scale + tilt + check_gap(gap) / n


def closed_rate(
    *,
    epsilon: float,
    records: int,
    dimension: int,
    diameter: float,
    lipschitz: float,
    euclidean_diameter: float | None = None,
) -> tuple[float, float]:
    """2 sqrt(B E) and the eta that attains it: the mean excess in closed form, for an exact oracle and centred noise.

    B = (52/3) G^2 d^3 D / epsilon, E = tilt term / n. With E = D_2 sqrt(d / 2) / n this is
    c d^{7/4} G sqrt(D D_2 / (epsilon n)), c = 2 sqrt(52 / 3) / 2^{1/4} = 7.002...
    """
    d, side = check_count("dimension", dimension), check_ordinary("diameter", diameter)
    slope, n = check_ordinary("lipschitz", lipschitz), check_count("records", records)
    rise = 52 / 3 * slope**2 * d**3 * side / check_ordinary("epsilon", epsilon)
    fall = tilt_term(dimension=d, diameter=side, euclidean_diameter=euclidean_diameter) / n
    return 2 * math.sqrt(rise * fall), math.sqrt(fall / rise)


def printed_rate(
    *,
    epsilon: float,
    records: int,
    dimension: int,
    diameter: float,
    lipschitz: float,
    euclidean_diameter: float,
    beta: float,
) -> float:
    """d^{5/4} G D sqrt(D_2 log(1 / beta) / (epsilon n)), the rate of Theorem 7 **as printed**, without its constant.

    No constant makes it a bound that the proof supports: |mu|_1 has lost a factor d and lemma 9 another one.
    """
    d, n = check_count("dimension", dimension), check_count("records", records)
    inside = check_ordinary("euclidean_diameter", euclidean_diameter) * -math.log(
        check_probability("beta", beta)
    )
    size = check_ordinary("lipschitz", lipschitz) * check_ordinary("diameter", diameter)
    return float(d**1.25 * size * math.sqrt(inside / (check_ordinary("epsilon", epsilon) * n)))
