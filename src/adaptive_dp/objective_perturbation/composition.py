"""Objective perturbation composed: with itself, and with Gaussian output noise.

Dominating pairs compose: the product of pairs dominates the adaptive composition (redberg2023, Theorem C.4.1 and Lemma
C.4.7), so the privacy losses are added. This module adds them through dp-accounting's discretised
privacy-loss distributions; the pairs are in :mod:`~adaptive_dp.objective_perturbation.dominating`. For comparison the
Rényi divergences are added, and converted. Tables and figures are in
:mod:`~adaptive_dp.objective_perturbation.composition_figures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from scipy.optimize import brentq

from adaptive_dp.accounting import (
    GaussianCurve,
    RenyiDerivedCurve,
    compose_gaussian,
    gaussian_sigma,
    step_until_safe,
)
from adaptive_dp.objective_perturbation.dominating import (
    certified_pld,
    half_normal_pld,
    largest_gaussian_loss,
    reduced_pld,
)
from adaptive_dp.objective_perturbation.profiles import HalfNormalCurve, ReducedCurve, determinant_cost
from adaptive_dp.per_instance.calibration import Calibration
from adaptive_dp.validation import (
    check_choice,
    check_count,
    check_ordinary,
    check_positive,
    check_probability,
    check_real,
)

PAIRS = ("reduced", "half-normal", "certified")
# Grid points in one standard deviation of the smallest loss; the discretisation error is of the second order.
RESOLUTION = 100
# ... but no fewer than this many in one of the whole sum, and no more points than this altogether.
COARSEST, LARGEST_SUM = 1000, 200_000
# The same for the first, rough root of a calibration, and for its refinement; it is checked at the full resolution.
COARSE, MIDDLE = 20, 50
# Convolutions by the fast Fourier transform leave errors of this size for every round: added to every delta.
ROUNDING = 1e-14
# e^loss must be a float; beyond, the Rényi divergences alone answer.
LARGEST_LOSS = 650.0
# A calibration for more than this is one for this: a guarantee for a smaller epsilon.
LARGEST_CALIBRATED = 150.0


@dataclass(frozen=True, slots=True)
class Perturbation:
    """Some rounds of objective perturbation of a generalised linear loss, each allowed to depend on what came before.

    Parameters
    ----------
    mu : float
        sup |f'| ||x|| / sigma, positive.
    kappa : float
        sup f'' ||x||^2 / lam, positive; below 1 for the half-normal pair.
    rounds : int
        At least 1.
    pair : {"reduced", "half-normal", "certified"}
        One pair for each direction (errata S1); the pair of redberg2023, Lemma C.4.6, for both; or certified suprema
        over all losses and data, some percent above the worst case, which take half a minute once.
    """

    mu: float
    kappa: float
    rounds: int = 1
    pair: str = "reduced"

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", check_positive("mu", self.mu))
        object.__setattr__(self, "kappa", check_positive("kappa", self.kappa))
        object.__setattr__(self, "rounds", check_count("rounds", self.rounds))
        check_choice("pair", self.pair, PAIRS)
        if self.pair == "half-normal":
            determinant_cost(self.kappa)

    @property
    def largest_loss(self) -> float:
        """Loss that one round exceeds with probability 1e-18 at most."""
        shift = determinant_cost(self.kappa) if self.pair == "half-normal" else math.log1p(self.kappa)
        return shift + largest_gaussian_loss(self.mu)

    def pld(self, interval: float) -> Any:
        """Discretised privacy-loss distribution of one round."""
        build = {"reduced": reduced_pld, "half-normal": half_normal_pld, "certified": certified_pld}[
            self.pair
        ]
        return build(self.mu, self.kappa, interval=interval)

    def renyi(self, order: float) -> tuple[float, float]:
        """Rényi bounds of one round in direction A (record absent from the data at hand) and B (present)."""
        if self.pair == "half-normal":
            both = HalfNormalCurve(self.mu, self.kappa).renyi(order)
            return both, both
        curve = ReducedCurve(self.mu, self.kappa)
        return curve.renyi_absent(order), curve.renyi_present(order)


Parts = tuple[Perturbation | GaussianCurve, ...]


@dataclass(frozen=True, slots=True)
class ComposedCurve:
    """Privacy profile of an adaptive composition: a :class:`~adaptive_dp.privacy.PrivacyCurve`, rounded up.

    Parameters
    ----------
    parts : sequence of Perturbation or GaussianCurve
        At least one. All parameters were fixed before the first run.
    resolution : float
        Points of the grid of losses in one standard deviation of the smallest part.
    """

    parts: Parts
    resolution: float = RESOLUTION

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        if not parts:
            raise ValueError("parts must not be empty")
        for part in parts:
            if not isinstance(part, Perturbation | GaussianCurve):
                raise TypeError(
                    f"parts must be Perturbation or GaussianCurve, got {type(part).__name__}: {part!r}"
                )
        object.__setattr__(self, "parts", parts)
        object.__setattr__(self, "resolution", check_positive("resolution", self.resolution))

    @property
    def slack(self) -> float:
        """What is added to every delta for the rounding of the convolutions."""
        return ROUNDING * sum(part.rounds if isinstance(part, Perturbation) else 1 for part in self.parts)

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at any real ``epsilon``: the better one of losses and Rényi divergences."""
        e = check_real("epsilon", epsilon)
        bound = RenyiDerivedCurve(self.renyi).delta(e)
        if _total_loss(self.parts) <= LARGEST_LOSS:
            summed = _sum_of_losses(self.parts, self.resolution).get_delta_for_epsilon(e)
            bound = min(bound, float(summed) + self.slack)
        return bound

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon >= 0 at ``delta`` in [0, 1]."""
        level = check_real("delta", delta)
        found = RenyiDerivedCurve(self.renyi).epsilon(level)
        if level > self.slack and _total_loss(self.parts) <= LARGEST_LOSS:
            summed = _sum_of_losses(self.parts, self.resolution).get_epsilon_for_delta(level - self.slack)
            found = min(found, float(summed))
        return found if math.isinf(found) else step_until_safe(lambda e: self.delta(e) <= level, found)

    def renyi(self, order: float) -> float:
        """Rényi divergence of ``order`` >= 1: the sums of the parts, the larger of both directions."""
        absent = present = 0.0
        for part in self.parts:
            if isinstance(part, Perturbation):
                first, second = part.renyi(order)
                absent, present = absent + part.rounds * first, present + part.rounds * second
            else:
                both = part.renyi(order)
                absent, present = absent + both, present + both
        return max(absent, present)

    def renyi_curve(self) -> RenyiDerivedCurve:
        """The profile by Rényi divergences alone, for comparison."""
        return RenyiDerivedCurve(self.renyi)


def _split(parts: Parts) -> tuple[list[Perturbation], GaussianCurve]:
    """The rounds of objective perturbation, and all Gaussians in one, exactly."""
    rounds = [part for part in parts if isinstance(part, Perturbation)]
    return rounds, compose_gaussian(*(part for part in parts if isinstance(part, GaussianCurve)))


def _total_loss(parts: Parts) -> float:
    """Sum of the largest losses of all rounds."""
    rounds, gaussian = _split(parts)
    return largest_gaussian_loss(gaussian.mu) + sum(part.rounds * part.largest_loss for part in rounds)


@lru_cache(maxsize=64)
def _sum_of_losses(parts: Parts, resolution: float) -> Any:
    """Discretised sum of the privacy losses."""
    from dp_accounting.pld import privacy_loss_distribution as library  # type: ignore[import-untyped]

    total = _total_loss(parts)
    if total == 0:
        return library.identity()
    rounds, gaussian = _split(parts)
    sizes = [(part.mu, part.rounds) for part in rounds] + [(gaussian.mu, 1)] * (gaussian.mu > 0)
    whole = math.sqrt(sum(count * mu * mu for mu, count in sizes))
    finest = max(min(mu for mu, _ in sizes), whole * RESOLUTION / COARSEST) / resolution
    interval = max(finest, 2 * total / LARGEST_SUM)
    found = None
    for part in rounds:
        one = part.pld(interval)
        if part.rounds > 1:
            one = one.self_compose(part.rounds)
        found = one if found is None else found.compose(one)
    if gaussian.mu > 0:
        noise = library.from_gaussian_mechanism(1 / gaussian.mu, value_discretization_interval=interval)
        found = noise if found is None else found.compose(noise)
    return found


@dataclass(frozen=True, slots=True)
class ApproximateMinimaCurve:
    """Privacy profile of approximate minima perturbation (redberg2023, Algorithm 7), by composition.

    Given the exact minimiser, which both data sets reach with the noise that fits them, the solver's distance to it is
    at most tau / lam on either: releasing that distance with Gaussian noise sigma_out has sensitivity 2 tau / lam. The
    sum of both is what is released.

    Parameters
    ----------
    mu, kappa : float
        As for :class:`Perturbation`.
    mu_out : float
        2 tau / (lam sigma_out), nonnegative.
    resolution : float
        See :class:`ComposedCurve`.
    """

    mu: float
    kappa: float
    mu_out: float
    resolution: float = RESOLUTION

    def __post_init__(self) -> None:
        self.composed()

    def composed(self) -> ComposedCurve:
        """The composition of the objective's noise and the output's."""
        return ComposedCurve((Perturbation(self.mu, self.kappa), GaussianCurve(self.mu_out)), self.resolution)

    def delta(self, epsilon: float) -> float:
        """Upper bound of the smallest delta at any real ``epsilon``."""
        return self.composed().delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Upper bound of the smallest epsilon >= 0 at ``delta`` in [0, 1]."""
        return self.composed().epsilon(delta)

    def renyi(self, order: float) -> float:
        """Rényi divergence of ``order`` >= 1, the larger of both directions (Theorem 4.4.1 with S1's formulas)."""
        return self.composed().renyi(order)


def calibrate_numerically(
    *,
    epsilon: float,
    delta: float,
    slope: float,
    curvature: float,
    sigma_out: float,
    tau: float,
    factor: float = 1.3,
) -> Calibration:
    """Noise and smallest ridge of approximate minima perturbation within (epsilon, delta), by adding up losses.

    sigma is ``factor`` times that of the Gaussian mechanism of sensitivity ``slope``; lam is the smallest ridge, to
    five digits, and on the safe side.

    Parameters
    ----------
    epsilon, delta : float
        Wanted guarantee, add/remove; any epsilon > 0, delta in [1e-11, 1).
    slope, curvature : float
        sup |f'| ||x|| and sup f'' ||x||^2 over the domain.
    sigma_out : float
        Standard deviation of the output noise.
    tau : float
        Norm of the gradient at which the solver stops, nonnegative.
    factor : float
        Above 1.

    Raises
    ------
    TypeError, ValueError
        An argument out of range, or no ridge that helps.
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    size, bend = check_ordinary("slope", slope), check_ordinary("curvature", curvature)
    noise, stop = check_ordinary("sigma_out", sigma_out), check_real("tau", tau)
    if tail < 1e-11:
        raise ValueError(f"delta must be at least 1e-11 for numerical composition, got {tail!r}")
    if stop < 0:
        raise ValueError(f"tau must be nonnegative, got {stop!r}")
    if check_real("factor", factor) <= 1:
        raise ValueError(f"factor must be above 1, got {factor!r}")
    level = min(level, LARGEST_CALIBRATED)
    sigma = factor * gaussian_sigma(level, tail, size)

    def excess(lam: float, resolution: float) -> float:
        parts = Perturbation(size / sigma, bend / lam), GaussianCurve(2 * stop / (lam * noise))
        if _total_loss(parts) > LARGEST_LOSS:
            return math.inf
        spent = _sum_of_losses(parts, resolution).get_delta_for_epsilon(level) + 2 * ROUNDING
        return math.log(float(spent) / tail)

    def coarse(lam: float) -> float:
        return min(excess(lam, COARSE), 1e3)

    # The ridge where the determinant alone costs epsilon, or where the output noise is as small as the objective's.
    scale = max(bend / level, 2 * stop * sigma / (noise * size))
    low, high, ratio = scale, scale, 2.0
    while coarse(high) > 0:
        low, high, ratio = high, high * ratio, ratio * ratio
        if high > 1e12 * scale:
            raise ValueError(f"factor {factor!r} leaves no room for a ridge at epsilon {level!r}")
    while low == high or coarse(low) <= 0:
        low, high, ratio = low / ratio, low, ratio * ratio
        if low < 1e-12 * scale:
            return Calibration(sigma, high)  # with so much noise almost any ridge does
    rough = math.exp(
        brentq(lambda u: coarse(math.exp(u)), math.log(low), math.log(high), rtol=1e-4, xtol=1e-4)
    )
    lam, step = _refined(lambda ridge: excess(ridge, MIDDLE), rough), 1e-5
    while excess(lam, RESOLUTION) > 0:
        lam, step = lam * (1 + step), 4 * step
    return Calibration(sigma, lam)


def _refined(excess: Callable[[float], float], rough: float) -> float:
    """Smallest lam with ``excess(lam) <= 0`` near ``rough``, to five digits, on the safe side."""
    width = 1e-3
    low, high = rough * (1 - width), rough
    while excess(high) > 0:
        low, high, width = high, rough * (1 + width), 2 * width
    while excess(low) <= 0 and width < 1:
        width *= 2
        low, high = rough * (1 - width), low
    root = float(brentq(excess, low, high, rtol=1e-6)) if excess(low) > 0 else high
    return high if excess(root * (1 + 1e-6)) > 0 else min(root * (1 + 1e-6), high)
