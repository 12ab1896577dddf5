"""What neel2019 prints wrong about OPSamp, executed: each number here is exact, and refutes or confirms a printed one.

Nothing in this module may be used to calibrate anything. The right versions are in ``stability``, ``concentration``,
``opsamp`` and ``sampled_utility``. Errata 5 (Lemmas 9 and 10), 7 (Lemma 8 and eta), 8 (the Laplace step) and 9
(Theorem 7).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict

import pandas as pd
from scipy.special import exp1

from adaptive_dp.oracle_perturbation.concentration import hoeffding_calls, printed_calls, segment_failure
from adaptive_dp.oracle_perturbation.opsamp import PrintedPlan, printed_plan
from adaptive_dp.oracle_perturbation.sampled_utility import (
    laplace_l1_quantile,
    printed_l1_radius,
    radius_failure,
)
from adaptive_dp.oracle_perturbation.stability import (
    attained_gap,
    check_gap,
    flip_gap,
    printed_stability_bound,
    stability_bound,
)
from adaptive_dp.validation import check_count, check_ordinary, check_probability


class Line(TypedDict):
    """What the lemma depends on in one dimension."""

    eta: float
    diameter: float
    lipschitz: float


class Given(Line):
    """What the lemma depends on."""

    dimension: int


def units_frame(
    diameters: Sequence[float] = (2.0, 1.0, 0.1, 0.008, 0.001), *, eta: float = 0.01, lipschitz: float = 1.0
) -> pd.DataFrame:
    """Lemma 8 in one dimension over the diameter D of W = {0, D}: the printed bound has the unit of w squared.

    Returns
    -------
    DataFrame
        ``diameter``, ``exact`` (:func:`~.stability.flip_gap`), ``printed``, ``bound`` (corrected; here equal to the
        truth) and ``holds``: whether the printed bound is one.
    """
    rows = []
    for diameter in diameters:
        given = Given(eta=eta, dimension=1, diameter=diameter, lipschitz=lipschitz)
        exact = flip_gap(**_line(given))
        printed = printed_stability_bound(**given)
        bound = stability_bound(**given)
        rows.append(
            {
                "diameter": diameter,
                "exact": exact,
                "printed": printed,
                "bound": bound,
                "holds": printed >= exact,
            }
        )
    return pd.DataFrame(rows)


def dimension_frame(dimensions: Sequence[int] = (1, 2, 5, 10, 20, 50), *, eta: float = 1e-4) -> pd.DataFrame:
    """Bounds of E |w - w'|_1 and an attained value over d, each in units of 2 G eta D; D = 1 and G = 1/2.

    Returns
    -------
    DataFrame
        ``dimension``, ``attained`` (:func:`~.stability.attained_gap`), ``bound`` and ``printed``.
    """
    rows = []
    for d in dimensions:
        given = Given(eta=eta, dimension=d, diameter=1.0, lipschitz=0.5)
        rows.append(
            {
                "dimension": d,
                "attained": attained_gap(**given) / eta,
                "bound": stability_bound(**given) / eta,
                "printed": printed_stability_bound(**given) / eta,
            }
        )
    return pd.DataFrame(rows)


def slack_gap(*, eta: float, diameter: float, records: int, alpha: float) -> float:
    """E |w - w'| exactly for d = 1, W = [0, D], L = L' = 0 and an oracle that is alpha-optimal for the mean objective.

    On the first data set it answers D, the optimum; on the second D - n alpha / sigma (or 0), which its certificate
    allows. The mean of min(D, A / sigma), A = n alpha, is D (1 - e^{-eta A / D}) + A eta E_1(eta A / D).
    """
    size, total = check_ordinary("diameter", diameter), check_count("records", records) * check_gap(alpha)
    reach = check_ordinary("eta", eta) * total / size
    return size * -math.expm1(-reach) + total * eta * float(exp1(reach))


def scale_reading(*, eta: float, as_rate: bool) -> float:
    """E |w - w'|_1 exactly, d = 2, W = [-1, 1]^2, one loss (2 + w_1 + w_2) / 4 replaced by (2 - w_1 - w_2) / 4.

    The other losses are constant. w_j is 1 if sigma_j > 1/4 and -1 otherwise, w'_j is always 1, so that the distance is
    4 P(sigma_j <= 1/4): with **scale** eta, as Section 2 defines Exp, sigma is about eta and the distance is all of W.
    """
    rate = check_ordinary("eta", eta) if as_rate else 1 / check_ordinary("eta", eta)
    return 4 * -math.expm1(-rate / 4)


def printed_flip_epsilon(
    printed: PrintedPlan, *, diameter: float, lipschitz: float, epsilon: float, delta: float
) -> float:
    """Lower bound of the real epsilon at this delta of Algorithm 2 as printed, eta read as a rate; d = 1, W = {0, D}.

    The pair of :func:`~.stability.flip_gap`: on the second data set all answers are D; on the first each is D with
    probability p = e^{-2 G eta}. The event that the released number is above D has probability 1/2 on the second and
    E e^{-(D - average) / b} / 2 on the first, with D - average = D B / m, B binomial with chance 1 - p.
    """
    size, b = check_ordinary("diameter", diameter), printed.sensitivity / check_ordinary("epsilon", epsilon)
    missing = -math.expm1(-2 * check_ordinary("lipschitz", lipschitz) * printed.eta)
    log_moment = printed.calls * math.log1p(missing * math.expm1(-size / (printed.calls * b)))
    return math.log(1 - 2 * check_probability("delta", delta)) - log_moment


def lemma9_frame(
    dimensions: Sequence[int] = (2, 3, 5, 10, 20, 50), *, delta: float = 1e-8, gamma: float = 0.05
) -> pd.DataFrame:
    """Probability that the average of m answers is further from its mean than Lemma 9 says, exactly.

    Returns
    -------
    DataFrame
        ``dimension``, ``calls`` (as printed), ``allowed`` (delta / 2), ``printed`` (probability beyond 2 D gamma) and
        ``corrected`` (beyond d D gamma, with the corrected m).
    """
    rows = []
    for d in dimensions:
        m = printed_calls(gamma, d, delta)
        right = hoeffding_calls(gamma, d, delta / 2)
        rows.append(
            {
                "dimension": d,
                "calls": m,
                "allowed": delta / 2,
                "printed": segment_failure(calls=m, dimension=d, radius=2 * gamma),
                "corrected": segment_failure(calls=right, dimension=d, radius=d * gamma),
            }
        )
    return pd.DataFrame(rows)


def radius_frame(dimensions: Sequence[int] = (1, 2, 3, 5, 10, 20), *, beta: float = 0.05) -> pd.DataFrame:
    """P(|mu|_1 > r) for the printed radius r = (1 + ln(2 / beta)) lambda / epsilon, where beta / 2 is allowed.

    Returns
    -------
    DataFrame
        ``dimension``, ``printed`` (r in units of lambda / epsilon), ``quantile`` (the right one), ``probability``.
    """
    radius = printed_l1_radius(beta)
    return pd.DataFrame(
        [
            {
                "dimension": d,
                "printed": radius,
                "quantile": laplace_l1_quantile(d, beta / 2),
                "probability": radius_failure(d, radius),
            }
            for d in dimensions
        ]
    )


def printed_suffices(*, dimension: int, gamma: float, diameter: float) -> bool:
    """Sufficient condition that Algorithm 2's lambda is at least the proved one, for every eta and an exact oracle.

    With x = eta G d^2, m as printed and q = ln(1 / delta) / m <= 2 gamma^2, Bernstein's bound is at most
    D [8 x + 2 gamma sqrt(8 d x) + 2 d gamma^2 / 3], and lambda is 4 D gamma + 250 x D^2. For D >= 1 the difference
    is at least D [242 x - 2 gamma sqrt(8 d x) + 4 gamma - 2 d gamma^2 / 3], which is nonnegative for all x if d
    gamma (8 / 242 + 2 / 3) <= 4, that is d gamma <= 5.716. Then Theorem 11 holds though Lemma 9 does not.
    """
    reach = check_count("dimension", dimension) * check_ordinary("gamma", gamma)
    return check_ordinary("diameter", diameter) >= 1 and reach * (8 / 242 + 2 / 3) <= 4


def flaws_frame(*, records: int = 10_000, small: float = 0.001) -> pd.DataFrame:
    """The flaws that break privacy or a proof: what is claimed, what is exact, and what the correction gives.

    ``small`` is the diameter of W in the first two rows.

    Returns
    -------
    DataFrame
        ``erratum``, ``flaw``, ``quantity``, ``claimed``, ``exact``, ``corrected``.
    """
    n, size = check_count("records", records), check_ordinary("small", small)
    unit = Given(eta=0.01, dimension=1, diameter=size, lipschitz=1.0)
    loose = Given(eta=1e-4, dimension=1, diameter=1.0, lipschitz=1.0)
    claim, real = _whole_algorithm(n, size)
    square = _printed(n, dimension=2, diameter=2.0, lipschitz=0.25)
    ninth, radius = lemma9_frame((10,)).iloc[0], radius_frame((10,)).iloc[0]
    moved, slack = "E|w - w'|", slack_gap(eta=1e-4, diameter=1.0, records=10_000, alpha=0.1)
    far, near = (scale_reading(eta=square.eta, as_rate=rate) for rate in (False, True))
    printed, loosely = printed_stability_bound(**unit), printed_stability_bound(alpha=0.1, **loose)
    beyond = radius_failure(10, radius["quantile"])
    rows = [
        ("7", "D squared", moved, printed, flip_gap(**_line(unit)), stability_bound(**unit)),
        ("7", "D squared, algorithm", "epsilon", claim, real, claim),
        ("7", "alpha, not n alpha", moved, loosely, slack, stability_bound(gap=1000.0, **loose)),
        ("7", "eta as a scale", "l1 sensitivity", square.sensitivity, far, near),
        ("5", "Lemma 9 at d = 10", "P(failure)", ninth["allowed"], ninth["printed"], ninth["corrected"]),
        ("8", "one Laplace number", "epsilon", claim, math.inf, claim),
        ("9", "|mu|_1 at d = 10", "P(failure)", 0.025, radius["probability"], beyond),
    ]
    return pd.DataFrame(rows, columns=["erratum", "flaw", "quantity", "claimed", "exact", "corrected"])


def _line(given: Given) -> Line:
    return Line(eta=given["eta"], diameter=given["diameter"], lipschitz=given["lipschitz"])


def _printed(records: int, *, dimension: int, diameter: float, lipschitz: float) -> PrintedPlan:
    """Algorithm 2 at epsilon 1, delta 1 / n^2, for the box of this diameter."""
    return printed_plan(
        epsilon=1.0,
        delta=float(records) ** -2,
        records=records,
        dimension=dimension,
        diameter=diameter,
        euclidean_diameter=math.sqrt(dimension) * diameter,
        lipschitz=lipschitz,
    )


def _whole_algorithm(records: int, diameter: float) -> tuple[float, float]:
    """Claimed and real epsilon of Algorithm 2 as printed, on a line."""
    found = _printed(records, dimension=1, diameter=diameter, lipschitz=1.0)
    delta = float(records) ** -2
    return 1.0, printed_flip_epsilon(found, diameter=diameter, lipschitz=1.0, epsilon=1.0, delta=delta)
