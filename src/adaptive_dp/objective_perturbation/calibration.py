"""Noise and ridge of objective perturbation for a wanted (epsilon, delta), under each analysis, on the safe side.

Sources: redberg2023, Theorem 4.2.8 and section 4.5 (sigma at most ``factor`` times that of the Gaussian mechanism, then
the smallest ridge), Theorem 4.4.1 for Algorithm 7; the curves of :mod:`~adaptive_dp.objective_perturbation.profiles`.

The analyses are ``"kifer"``, ``"hockey-stick"`` and ``"half-normal"``, the theorems 4.2.8, 4.3.1 and 4.3.2;
``"linearised"``, section C.3.1, corrected; ``"reduced"``, ``"sharper"`` and ``"reduced-renyi"``, the reduction to one
dimension by its closed profile, with the certified bound where the record is absent, and through its Rényi divergences;
and ``"numerical"``, the profile of the dominating pair of that reduction, composed with the output noise numerically.

With output noise (Algorithm 7) only those that compose are allowed: ``"half-normal"``, ``"linearised"``,
``"reduced-renyi"`` and ``"numerical"``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from adaptive_dp.accounting import gaussian_sigma, smallest_feasible
from adaptive_dp.objective_perturbation.linearised import LinearisedCurve
from adaptive_dp.objective_perturbation.profiles import (
    HalfNormalCurve,
    HockeyStickCurve,
    KiferCurve,
    ReducedCurve,
    WithOutputNoise,
)
from adaptive_dp.per_instance.calibration import Calibration as Calibration
from adaptive_dp.per_instance.calibration import log_excess
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.validation import check_choice, check_ordinary, check_positive, check_probability, check_real

__all__ = [
    "ANALYSES",
    "COMPOSING",
    "OutputNoise",
    "analysis_curve",
    "calibrate",
    "calibrate_approximate",
    "smallest_lam",
    "smallest_sigma",
]

COMPOSING = ("half-normal", "linearised", "reduced-renyi", "numerical")
ANALYSES = (
    "kifer",
    "hockey-stick",
    "half-normal",
    "linearised",
    "reduced",
    "sharper",
    "reduced-renyi",
    "numerical",
)
# The two theorems of the thesis ask for a ridge above the smoothness.
NEED_KAPPA_BELOW_ONE = ("hockey-stick", "half-normal")
# kappa is searched between these, sigma up to so many times that of the Gaussian mechanism.
SMALLEST_KAPPA, LARGEST_KAPPA = 1e-12, 1e12
LARGEST_FACTOR = 1e12
# Relative precision above the root; a numerical composition takes a tenth of a second or more.
PRECISION, NUMERICAL_PRECISION = 1e-15, 1e-6


@dataclass(frozen=True, slots=True)
class OutputNoise:
    """The Gaussian noise that Algorithm 7 adds to an approximate minimiser.

    Parameters
    ----------
    sigma_out : float
        Its scale.
    tau : float
        Largest norm of the gradient where the solver stops; two approximate minimisers differ by 2 tau / lam at most.
    """

    sigma_out: float
    tau: float

    def __post_init__(self) -> None:
        check_ordinary("sigma_out", self.sigma_out)
        check_ordinary("tau", self.tau)

    def mu(self, lam: float) -> float:
        """Sensitivity over noise, 2 tau / (lam sigma_out)."""
        return 2 * self.tau / (lam * self.sigma_out)


def analysis_curve(analysis: str, *, mu: float, kappa: float, mu_out: float = 0.0) -> PrivacyCurve:
    """The privacy curve of one analysis.

    Parameters
    ----------
    analysis : str
        See the module.
    mu, kappa : float
        Positive.
    mu_out : float
        Of the output noise; 0 for exact minimisers.

    Raises
    ------
    ValueError
        Unknown analysis, ``kappa`` out of the range of its theorem, or output noise where it has no rule for that.
    """
    name = check_choice("analysis", analysis, ANALYSES)
    if check_real("mu_out", mu_out) < 0:
        raise ValueError(f"mu_out must be nonnegative, got {mu_out!r}")
    if mu_out > 0 and name not in COMPOSING:
        raise ValueError(
            f"analysis must be one of {', '.join(map(repr, COMPOSING))} with output noise, got {name!r}"
        )
    if name == "numerical":
        # Imported here: the composition brings dp-accounting's distributions, which nothing else needs.
        from adaptive_dp.objective_perturbation.composition import ApproximateMinimaCurve

        return ApproximateMinimaCurve(mu, kappa, mu_out)
    if mu_out > 0:
        composing: dict[str, Callable[[float, float], HalfNormalCurve | LinearisedCurve | ReducedCurve]] = {
            "half-normal": HalfNormalCurve,
            "linearised": LinearisedCurve,
            "reduced-renyi": ReducedCurve,
        }
        return WithOutputNoise(composing[name](mu, kappa), mu_out)
    plain: dict[str, Callable[[float, float], PrivacyCurve]] = {
        "kifer": KiferCurve,
        "hockey-stick": HockeyStickCurve,
        "half-normal": HalfNormalCurve,
        "linearised": LinearisedCurve,
        "reduced": ReducedCurve,
        "sharper": lambda m, k: ReducedCurve(m, k, sharper=True),
        "reduced-renyi": lambda m, k: WithOutputNoise(ReducedCurve(m, k)),
    }
    return plain[name](mu, kappa)


def smallest_sigma(
    *,
    epsilon: float,
    delta: float,
    slope: float,
    curvature: float,
    lam: float,
    analysis: str = "reduced",
    output: OutputNoise | None = None,
) -> float:
    """Smallest noise scale that an analysis certifies as (epsilon, delta)-private for a given ridge.

    Parameters
    ----------
    epsilon, delta : float
        Wanted guarantee, add/remove: positive, and in [1e-200, 1).
    slope : float
        sup |f'| ||x||_2 over the domain: ``loss.lipschitz(domain, math.inf)``.
    curvature : float
        sup f'' ||x||_2^2: ``loss.smoothness(domain)``. Where rows have norm up to sqrt 2, logistic loss has 1/2.
    lam : float
        Ridge, beside a sum of losses.
    analysis : str
        See the module.
    output : OutputNoise or None
        For Algorithm 7.

    Returns
    -------
    float
        The curve at the answer is at most ``delta``; about 1e-12 above the exact root.

    Raises
    ------
    ValueError
        A parameter out of range; or no noise is enough at this ridge, and the message says why.
    """
    task = _Task(epsilon, delta, slope, curvature, analysis, output)
    ridge = check_ordinary("lam", lam)
    start = task.gaussian * (1 - 1e-9)
    high = LARGEST_FACTOR * task.gaussian
    if task.excess(high, ridge) > 0:
        raise ValueError(
            f"no noise is enough for epsilon {task.epsilon!r} and delta {task.delta!r} with lam {ridge!r} under the "
            f"{analysis!r} analysis: {task.condition(ridge)}; take a larger lam"
        )
    low = start
    while low < high and task.excess(min(2 * low, high), ridge) > 0:
        low *= 2
    return smallest_feasible(
        lambda sigma: task.excess(sigma, ridge), low, min(2 * low, high), rtol=task.precision
    )


def smallest_lam(
    *,
    epsilon: float,
    delta: float,
    slope: float,
    curvature: float,
    sigma: float,
    analysis: str = "reduced",
    output: OutputNoise | None = None,
) -> float:
    """Smallest ridge that an analysis certifies as (epsilon, delta)-private for a given noise scale.

    Parameters
    ----------
    epsilon, delta, slope, curvature, analysis, output
        As in :func:`smallest_sigma`.
    sigma : float
        Noise scale.

    Returns
    -------
    float
        The curve at the answer is at most ``delta``. At least 1e-12 ``curvature``: with very much noise any ridge does.

    Raises
    ------
    ValueError
        A parameter out of range; sigma below that of the Gaussian mechanism, which no ridge can make up for
        (Lemma 4.3.4); or below what this analysis needs however large the ridge.
    """
    task = _Task(epsilon, delta, slope, curvature, analysis, output)
    noise = check_ordinary("sigma", sigma)
    if noise < task.gaussian * (1 - 1e-9):
        raise ValueError(
            f"sigma must be at least {task.gaussian:.6g}, that of the Gaussian mechanism at this epsilon and delta, "
            f"got {noise!r}: no ridge can make up for less"
        )
    low, high = task.ridges()
    if task.excess(noise, high) > 0:
        needed = smallest_sigma(
            epsilon=epsilon,
            delta=delta,
            slope=slope,
            curvature=curvature,
            lam=high,
            analysis=analysis,
            output=output,
        )
        raise ValueError(
            f"sigma must be at least {needed:.6g} under the {analysis!r} analysis, however large the ridge, "
            f"got {noise!r}"
        )
    if (
        analysis == "numerical"
    ):  # narrower, by two analyses that take microseconds: below one, mostly above the other
        low = max(low, task.like("reduced", None).cheap_lam(noise, low, high))
        guess = min(max(task.like("reduced-renyi", output).cheap_lam(noise, low, high), low), high)
        while guess < high and task.excess(noise, guess) > 0:
            low, guess = guess, min(2 * guess, high)
        high = guess
    return smallest_feasible(lambda lam: task.excess(noise, lam), low, high, rtol=task.precision)


def calibrate(
    *,
    epsilon: float,
    delta: float,
    slope: float,
    curvature: float,
    analysis: str = "reduced",
    factor: float = 1.3,
) -> Calibration:
    """Noise and ridge by the rule of redberg2023, section 4.5: sigma = factor sigma_Gaussian, then the smallest ridge.

    Parameters
    ----------
    epsilon, delta, slope, curvature, analysis
        As in :func:`smallest_sigma`; any epsilon, also those at which a ridge of 2 curvature / epsilon would be below
        the smoothness.
    factor : float
        At least 1.

    Returns
    -------
    Calibration
        ``sigma``, ``lam``.

    Raises
    ------
    ValueError
        A parameter out of range, or a factor too small for the analysis (:func:`smallest_lam`).
    """
    sigma = _scaled_gaussian(epsilon, delta, slope, factor)
    lam = smallest_lam(
        epsilon=epsilon, delta=delta, slope=slope, curvature=curvature, sigma=sigma, analysis=analysis
    )
    return Calibration(sigma, lam)


def calibrate_approximate(
    *,
    epsilon: float,
    delta: float,
    slope: float,
    curvature: float,
    sigma_out: float,
    tau: float,
    analysis: str = "reduced-renyi",
    factor: float = 1.3,
) -> Calibration:
    """The same for Algorithm 7, whose approximate minimiser gets Gaussian noise of scale ``sigma_out`` (Theorem 4.4.1).

    Parameters
    ----------
    epsilon, delta, slope, curvature, factor
        As in :func:`calibrate`.
    sigma_out, tau : float
        See :class:`OutputNoise`.
    analysis : {"half-normal", "linearised", "reduced-renyi", "numerical"}

    Notes
    -----
    The published code raises the ridge in steps of 5% until the smallest sigma is at most ``factor`` sigma_Gaussian,
    then returns that sigma with the ridge of one step *further*
    (:func:`~adaptive_dp.objective_perturbation.flaws_profiles.published_search`); here sigma is exactly ``factor``
    sigma_Gaussian and the ridge the root, up to 10% smaller. It starts at 2 curvature / epsilon and fails from
    epsilon = 2 on, where that is no longer above the smoothness.
    """
    output = OutputNoise(sigma_out, tau)
    sigma = _scaled_gaussian(epsilon, delta, slope, factor)
    lam = smallest_lam(
        epsilon=epsilon,
        delta=delta,
        slope=slope,
        curvature=curvature,
        sigma=sigma,
        analysis=analysis,
        output=output,
    )
    return Calibration(sigma, lam)


class _Task:
    """What a calibration holds fixed, checked at the door."""

    def __init__(
        self,
        epsilon: float,
        delta: float,
        slope: float,
        curvature: float,
        analysis: str,
        output: OutputNoise | None,
    ) -> None:
        self.epsilon, self.delta = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
        self.slope, self.curvature = check_ordinary("slope", slope), check_ordinary("curvature", curvature)
        self.analysis = check_choice("analysis", analysis, ANALYSES if output is None else COMPOSING)
        if not (output is None or isinstance(output, OutputNoise)):
            raise TypeError(f"output must be an OutputNoise or None, got {type(output).__name__}")
        self.output = output
        self.gaussian = gaussian_sigma(self.epsilon, self.delta, self.slope)

    @property
    def precision(self) -> float:
        """Relative precision that a search may ask for."""
        return NUMERICAL_PRECISION if self.analysis == "numerical" else PRECISION

    def like(self, analysis: str, output: OutputNoise | None) -> _Task:
        """The same under another analysis."""
        return _Task(self.epsilon, self.delta, self.slope, self.curvature, analysis, output)

    def cheap_lam(self, sigma: float, low: float, high: float) -> float:
        """The smallest ridge in [low, high], or ``high`` if there is none."""
        if self.excess(sigma, high) > 0:
            return high
        return smallest_feasible(lambda lam: self.excess(sigma, lam), low, high, rtol=NUMERICAL_PRECISION)

    def excess(self, sigma: float, lam: float) -> float:
        """Log of the curve's delta over the allowed one; infinite where the theorem says nothing."""
        kappa = self.curvature / lam
        if kappa >= 1 and self.analysis in NEED_KAPPA_BELOW_ONE:
            return math.inf
        mu_out = 0.0 if self.output is None else self.output.mu(lam)
        curve = analysis_curve(self.analysis, mu=self.slope / sigma, kappa=kappa, mu_out=mu_out)
        return log_excess(curve.delta(self.epsilon), self.delta)

    def ridges(self) -> tuple[float, float]:
        """The two ends of the search: a ridge that is too small or as small as it may be, and a huge one."""
        high = self.curvature / SMALLEST_KAPPA
        if self.output is not None:  # the output noise must be negligible too
            high = max(high, self.output.mu(1.0) / SMALLEST_KAPPA)
        if self.analysis == "kifer":
            # The theorem's own condition is a jump, not a root.
            return 2 * self.curvature / self.epsilon, high
        low = self.curvature if self.analysis in NEED_KAPPA_BELOW_ONE else self.curvature / LARGEST_KAPPA
        return low, high

    def condition(self, lam: float) -> str:
        """What a ridge costs by itself."""
        kappa = self.curvature / lam
        if self.analysis == "kifer":
            least = 2 * self.curvature / self.epsilon
            return f"Theorem 4.2.8 asks for lam of at least 2 curvature / epsilon = {least:.6g}"
        if kappa >= 1 and self.analysis in NEED_KAPPA_BELOW_ONE:
            return f"Theorems 4.3.1 and 4.3.2 ask for lam above the curvature, {self.curvature:.6g}"
        cost, form = math.log1p(kappa), "log(1 + curvature / lam)"
        if self.analysis in NEED_KAPPA_BELOW_ONE:
            cost, form = -math.log1p(-kappa), "-log(1 - curvature / lam)"
        rest = "" if self.output is None else f", and the output noise has mu = {self.output.mu(lam):.6g}"
        return f"the determinant alone may cost {form} = {cost:.6g}{rest}"


def _scaled_gaussian(epsilon: float, delta: float, slope: float, factor: float) -> float:
    scale = check_positive("factor", factor)
    if scale < 1:
        raise ValueError(
            f"factor must be at least 1, got {scale!r}: less noise than the Gaussian mechanism's"
        )
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    return scale * gaussian_sigma(level, tail, check_ordinary("slope", slope))
