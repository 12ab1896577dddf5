"""What the winner among several runs of DP-SGD costs, and how much noise each run needs.

Papernot and Steinke, "Hyperparameter tuning with Rényi differential privacy", ICLR 2022, Theorem 6: with a Poisson
number K of candidates of mean m, each with Rényi divergence R(a) and profile delta(e), the winner has

    R(a) + m delta(log(1 + 1 / (a - 1))) + log(m) / (a - 1).

The second term reads one run's profile at a small epsilon, where the conversion from Rényi divergences is loose: taking
it from the privacy loss distribution (accountant ``"numerical"``) saves a fifth of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pandas as pd
from scipy.special import gammaincinv

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.objective_perturbation.sampled_gaussian import (
    ACCOUNTANTS,
    COARSE_ORDERS,
    SampledGaussianCurve,
    check_sampling,
    noise_multiplier,
    sampled_gaussian_curve,
    smallest_sigma,
)
from adaptive_dp.ptr.selection_renyi import ORDERS, PoissonRounds, RenyiSelectionCurve
from adaptive_dp.validation import (
    check_choice,
    check_count,
    check_ordinary,
    check_positive,
    check_probability,
)

MEAN = 15.4066
EPSILONS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def poisson_mean(grid: int = 10, probability: float = 0.9) -> float:
    """Mean of the Poisson law of K with P(K > grid) = ``probability``: 15.4066 for the thesis's 10 and 0.9."""
    return float(gammaincinv(check_count("grid", grid, 0) + 1, check_probability("probability", probability)))


@dataclass(frozen=True)
class CandidateCurve:
    """Privacy of one candidate: the run (and a score on its records), or a score on other private records.

    Parameters
    ----------
    training : SampledGaussianCurve
        For a person among the training records.
    validation_mu : float
        1 / sigma of the score, for a person among private validation records; 0 if there are none.
    """

    training: SampledGaussianCurve
    validation_mu: float = 0.0

    @cached_property
    def _known(self) -> dict[float, float]:
        """Profile at the levels where the theorem reads it: one pass for all of them."""
        levels = [math.log1p(1 / (order - 1)) for order in self.training.orders]
        return dict(zip(levels, self.training.deltas(levels).tolist(), strict=True))

    def renyi(self, order: float) -> float:
        """Rényi divergence of ``order``, the larger of the two people's."""
        return max(self.training.renyi(order), 0.5 * order * self.validation_mu**2)

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at ``epsilon``, the larger of the two people's."""
        known = self._known.get(epsilon)
        found = self.training.delta(epsilon) if known is None else known
        if self.validation_mu == 0:  # asked for hundreds of times in a calibration
            return found
        return max(found, GaussianCurve(self.validation_mu).delta(epsilon))

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon at ``delta``, the larger of the two people's."""
        return max(self.training.epsilon(delta), GaussianCurve(self.validation_mu).epsilon(delta))


def honest_curve(
    *,
    sigma: float,
    sampling: float,
    steps: int,
    mean: float = MEAN,
    accountant: str = "renyi",
    score_sigma: float | None = None,
    disjoint: bool = False,
    orders: tuple[float, ...] = ORDERS,
) -> RenyiSelectionCurve:
    """Privacy profile of the winner among Poisson(``mean``) candidates.

    Parameters
    ----------
    sigma : float
        Noise multiplier of each run.
    sampling, steps
        As in :class:`~adaptive_dp.objective_perturbation.dp_sgd.Schedule`.
    mean : float
        Expected number of candidates, at least 1.
    accountant : {"renyi", "numerical"}
        Of one run's profile, which enters beside its Rényi divergences.
    score_sigma : float or None
        Noise of a score on private records; None for public scores.
    disjoint : bool
        Whether those private records are other people than the training records.
    orders : sequence of float
        Rényi orders.
    """
    mu = 0.0 if score_sigma is None else 1 / check_ordinary("score_sigma", score_sigma)
    run = sampled_gaussian_curve(
        sampling=sampling,
        sigma=sigma,
        steps=steps,
        accountant=accountant,
        extra_mu=0.0 if disjoint else mu,
        orders=orders,
    )
    return RenyiSelectionCurve(CandidateCurve(run, mu if disjoint else 0.0), PoissonRounds(mean), orders)


def honest_noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampling: float,
    steps: int,
    mean: float = MEAN,
    accountant: str = "renyi",
    score_sigma: float | None = None,
    disjoint: bool = False,
) -> float:
    """Smallest noise multiplier of each run with which the *winner* is (epsilon, delta)-private, add/remove.

    Parameters are those of :func:`honest_curve`. The answer is rounded up (relatively by 1e-12, for ``"numerical"`` by
    1e-6). A fifth of a second; ``"numerical"`` some six.

    Raises
    ------
    TypeError, ValueError
        A parameter out of range; no noise is enough (the score's, or the mean's share alone exceeds epsilon).
    """
    e, d = check_positive("epsilon", epsilon), check_probability("delta", delta)
    q, t, m = check_sampling(sampling), check_count("steps", steps), check_positive("mean", mean)
    check_choice("accountant", accountant, ACCOUNTANTS)
    noise = None if score_sigma is None else check_ordinary("score_sigma", score_sigma)
    if not isinstance(disjoint, bool):
        raise TypeError(f"disjoint must be True or False, got {disjoint!r}")
    return _honest_noise_multiplier(e, d, q, t, m, accountant, noise, disjoint)


@lru_cache(maxsize=256)
def _honest_noise_multiplier(
    e: float,
    d: float,
    q: float,
    t: int,
    mean: float,
    accountant: str,
    score_sigma: float | None,
    disjoint: bool,
) -> float:
    """Calibrate with checked arguments."""

    def excess(sigma: float, kind: str = "renyi", orders: tuple[float, ...] = ORDERS) -> float:
        curve = honest_curve(
            sigma=sigma,
            sampling=q,
            steps=t,
            mean=mean,
            accountant=kind,
            score_sigma=score_sigma,
            disjoint=disjoint,
            orders=orders,
        )
        return curve.epsilon(d) - e

    what = f"the best of Poisson({mean:g}) runs epsilon {e!r} and delta {d!r}"
    near = smallest_sigma(lambda sigma: excess(sigma, orders=COARSE_ORDERS), tolerance=1e-3, what=what)
    first = smallest_sigma(excess, start=near, width=1.002, what=what)
    if accountant == "renyi":
        return first
    return smallest_sigma(lambda sigma: excess(sigma, "numerical"), start=first, tolerance=1e-6, what=what)


def noise_table(
    epsilons: Sequence[float] = EPSILONS,
    *,
    delta: float = 1e-5,
    sampling: float,
    steps: int,
    mean: float = MEAN,
    accountant: str = "renyi",
    analysis: str | None = "reduced-renyi",
) -> pd.DataFrame:
    """What honesty costs in noise, and Algorithm 7 beside it.

    Returns
    -------
    DataFrame
        ``epsilon``; noise multipliers ``single`` (one run), ``honest`` and their quotient ``price``; ``public_code``,
        what the public code of the thesis ran instead of ``honest``: sqrt 2 times it, as its calibration multiplies by
        the clipping threshold and the training does so again. With an ``analysis``, ``sigma`` and ``lam`` of
        Algorithm 7 at slope sqrt 2, curvature 1/2, tau = 0.01, sigma_out = 0.15.
    """
    rows = []
    for level in epsilons:
        single = noise_multiplier(
            epsilon=level, delta=delta, sampling=sampling, steps=steps, accountant=accountant
        )
        honest = honest_noise_multiplier(
            epsilon=level, delta=delta, sampling=sampling, steps=steps, mean=mean, accountant=accountant
        )
        row = {
            "epsilon": float(level),
            "single": single,
            "honest": honest,
            "price": honest / single,
            "public_code": math.sqrt(2.0) * honest,
        }
        if analysis is not None:
            from adaptive_dp.objective_perturbation.calibration import calibrate_approximate

            found = calibrate_approximate(
                epsilon=level,
                delta=delta,
                slope=math.sqrt(2.0),
                curvature=0.5,
                sigma_out=0.15,
                tau=0.01,
                analysis=analysis,
            )
            row |= {"sigma": found.sigma, "lam": found.lam}
        rows.append(row)
    return pd.DataFrame(rows)
