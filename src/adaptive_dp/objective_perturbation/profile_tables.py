"""Tables that put the analyses of objective perturbation side by side: Figure 4.1, noise scales, who wins where.

Sources: redberg2023, Figure 4.1 (sigma = 5, beta = 1, lambda = 20 and sigma = 10, beta = 1, lambda = 5, L = 1); the
table A4 of the referee's report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from adaptive_dp.accounting import GaussianCurve, gaussian_sigma, smallest_feasible
from adaptive_dp.objective_perturbation.calibration import analysis_curve, smallest_sigma
from adaptive_dp.objective_perturbation.linearised import LinearisedCurve
from adaptive_dp.objective_perturbation.profiles import HalfNormalCurve, ReducedCurve
from adaptive_dp.per_instance.calibration import log_excess
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.validation import as_finite_array, check_ordinary, check_positive, check_probability

LOWER = "Gaussian (lower bound)"
# Name in a figure -> name of the analysis.
FIGURE_ANALYSES = {
    "Kifer et al.": "kifer",
    "Rényi, thesis": "half-normal",
    "hockey stick, thesis": "hockey-stick",
    "this book, closed": "reduced",
    "this book, sharper": "sharper",
}
# sigma, beta and lam of the two panels of Figure 4.1; L is 1.
FIGURE_PANELS = ((5.0, 1.0, 20.0), (10.0, 1.0, 5.0))
# Analyses in the map of winners; all but the last are in the thesis.
WINNERS = ("kifer", "half-normal", "linearised", "hockey-stick", "reduced")


def four_bounds(
    sigma: float, beta: float, lam: float, epsilons: ArrayLike, *, slope: float = 1.0, sharper: bool = True
) -> pd.DataFrame:
    """One panel of Figure 4.1, with the two curves of the reduction and the Gaussian lower bound.

    Parameters
    ----------
    sigma, beta, lam : float
        Noise scale, smoothness (sup f'' ||x||^2) and ridge.
    epsilons : array_like, shape (k,)
        Nonnegative.
    slope : float
        L, sup |f'| ||x||.
    sharper : bool
        With the certified bound, which takes milliseconds a point.

    Returns
    -------
    DataFrame
        ``analysis``, ``epsilon``, ``delta``, long form, in the order of :data:`FIGURE_ANALYSES`, the lower bound last.
        delta is 1 where a theorem says nothing.
    """
    mu = check_ordinary("slope", slope) / check_ordinary("sigma", sigma)
    kappa = check_ordinary("beta", beta) / check_ordinary("lam", lam)
    levels = as_finite_array("epsilons", epsilons, ndim=1)
    if levels.size and levels.min() < 0:
        raise ValueError(f"epsilons must be nonnegative, got {float(levels.min())!r}")
    curves: dict[str, PrivacyCurve | None] = {
        name: _curve_or_none(analysis, mu, kappa)
        for name, analysis in FIGURE_ANALYSES.items()
        if sharper or analysis != "sharper"
    }
    curves[LOWER] = GaussianCurve(mu)
    return pd.DataFrame(
        {
            "analysis": name,
            "epsilon": float(epsilon),
            "delta": 1.0 if curve is None else curve.delta(float(epsilon)),
        }
        for name, curve in curves.items()
        for epsilon in levels
    )


def noise_scales(
    kappas: Sequence[float] = (0.25, 0.01, 0.1, 0.5), *, epsilon: float = 1.0, delta: float = 1e-6
) -> pd.DataFrame:
    """Smallest noise for gradients of norm 1 at several ridges: table A4 of the referee's report.

    Returns
    -------
    DataFrame
        ``kappa``; ``gaussian`` (nothing can be below); ``absent`` and ``present``, what each direction of the closed
        bounds needs, and ``reduced``, the larger; ``absent_sharper`` and ``sharper``, the same with the certified
        bound; ``hockey_stick``, ``half_normal`` (infinite from kappa = 1 on) and ``kifer`` (the theorem's sigma;
        infinite where kappa is above epsilon / 2).
    """
    level, tail = check_ordinary("epsilon", epsilon), check_probability("delta", delta)
    rows = []
    for value in kappas:
        kappa = check_ordinary("kappas", value)

        def needed(profile: Callable[[ReducedCurve, float], float], sharper: bool, k: float = kappa) -> float:
            return _one_direction(level, tail, lambda mu: profile(ReducedCurve(mu, k, sharper), level))

        absent, absent_sharper = needed(ReducedCurve.absent, False), needed(ReducedCurve.absent, True)
        present = needed(ReducedCurve.present, False)
        rows.append(
            {
                "kappa": kappa,
                "gaussian": gaussian_sigma(level, tail, 1.0),
                "absent": absent,
                "present": present,
                "reduced": max(absent, present),
                "absent_sharper": absent_sharper,
                "sharper": max(absent_sharper, present),
                **{
                    analysis.replace("-", "_"): _sigma_or_inf(analysis, level, tail, kappa)
                    for analysis in ("hockey-stick", "half-normal", "kifer")
                },
            }
        )
    return pd.DataFrame(rows)


def winners(mus: ArrayLike, kappas: ArrayLike, *, delta: float = 1e-6) -> pd.DataFrame:
    """The epsilon of each analysis at one delta, over a grid of mu and kappa, and which is the smallest.

    Returns
    -------
    DataFrame
        One row a pair: ``mu``, ``kappa``; ``gaussian`` (lower bound); one column for each of :data:`WINNERS` (infinite
        where its theorem does not apply); ``published``: the best analysis of the thesis; ``best``: of all; ``gap``:
        smallest epsilon less the Gaussian one.
    """
    tail = check_probability("delta", delta)
    rows = []
    for mu in as_finite_array("mus", mus, ndim=1):
        for kappa in as_finite_array("kappas", kappas, ndim=1):
            size, share = check_positive("mus", float(mu)), check_positive("kappas", float(kappa))
            found = {}
            for analysis in WINNERS:
                curve = _curve_or_none(analysis, size, share)
                found[analysis] = math.inf if curve is None else curve.epsilon(tail)
            published = {name: epsilon for name, epsilon in found.items() if name != "reduced"}
            floor = GaussianCurve(size).epsilon(tail)
            rows.append(
                {
                    "mu": size,
                    "kappa": share,
                    "gaussian": floor,
                    **found,
                    "published": min(published, key=published.__getitem__),
                    "best": min(found, key=found.__getitem__),
                    "gap": min(found.values()) - floor,
                }
            )
    return pd.DataFrame(rows)


def renyi_bounds(
    sigma: float, beta: float, lam: float, orders: ArrayLike, *, slope: float = 1.0
) -> pd.DataFrame:
    """Rényi bounds beside each other over a range of orders.

    Parameters
    ----------
    sigma, beta, lam, slope : float
        As in :func:`four_bounds`; lam above beta.
    orders : array_like, shape (k,)
        At least 1.

    Returns
    -------
    DataFrame
        ``order``, ``gaussian`` (lower bound), ``half_normal`` (Theorem 4.3.2), ``linearised``, ``absent`` and
        ``present`` (each direction of the reduction) and ``reduced``.
    """
    mu = check_ordinary("slope", slope) / check_ordinary("sigma", sigma)
    kappa = check_ordinary("beta", beta) / check_ordinary("lam", lam)
    reduced, half_normal, linearised = (
        ReducedCurve(mu, kappa),
        HalfNormalCurve(mu, kappa),
        LinearisedCurve(mu, kappa),
    )
    return pd.DataFrame(
        {
            "order": order,
            "gaussian": GaussianCurve(mu).renyi(order),
            "half_normal": half_normal.renyi(order),
            "linearised": linearised.renyi(order),
            "absent": reduced.renyi_absent(order),
            "present": reduced.renyi_present(order),
            "reduced": reduced.renyi(order),
        }
        for order in map(float, as_finite_array("orders", orders, ndim=1))
    )


def _curve_or_none(analysis: str, mu: float, kappa: float) -> PrivacyCurve | None:
    """The curve, or None where its theorem asks for a smaller kappa."""
    if kappa >= 1 and analysis in ("hockey-stick", "half-normal"):
        return None
    return analysis_curve(analysis, mu=mu, kappa=kappa)


def _sigma_or_inf(analysis: str, epsilon: float, delta: float, kappa: float) -> float:
    try:
        return smallest_sigma(
            epsilon=epsilon, delta=delta, slope=1.0, curvature=kappa, lam=1.0, analysis=analysis
        )
    except ValueError:  # no noise is enough at this ridge
        return math.inf


def _one_direction(epsilon: float, delta: float, profile: Callable[[float], float]) -> float:
    """Smallest sigma for gradients of norm 1 at which ``profile(1 / sigma)`` is at most ``delta``; may be infinite."""
    low = gaussian_sigma(epsilon, delta, 1.0) * (1 - 1e-9)
    factor = float(np.ldexp(1.0, 40))
    if profile(1 / (low * factor)) > delta:
        return math.inf
    return smallest_feasible(lambda sigma: log_excess(profile(1 / sigma), delta), low, low * factor)
