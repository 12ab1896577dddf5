"""Data of the figures of redberg2023, appendix C: Rényi curves (C.1, C.3) and compositions (C.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from adaptive_dp.accounting import GaussianCurve
from adaptive_dp.objective_perturbation.composition import ComposedCurve, Perturbation
from adaptive_dp.objective_perturbation.profiles import HalfNormalCurve, ReducedCurve, half_normal_renyi
from adaptive_dp.objective_perturbation.sampled_gaussian import sampled_gaussian_renyi
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.validation import as_finite_array, check_count, check_ordinary

# The two panels of redberg2023, Figure C.3: sigma, sampling probability, noise multiplier of the sampled Gaussian.
FIGURE_C3 = ((100.0, 0.1, 10.0), (40.0, 0.5, 20.0))


def renyi_curves(
    *, sigma: float, beta: float, lam: float, orders: Sequence[float], lipschitz: float = 1.0
) -> pd.DataFrame:
    """Rényi curves of redberg2023, Figure C.1, for one noise scale and one ridge.

    The thesis names the curve without the leading term after a mechanism that adds |N(0, sigma^2)|. It is that
    mechanism's divergence in one direction; in the other it is infinite, as the supports differ.

    Parameters
    ----------
    sigma, lam : float
        Noise scale and ridge, lam above ``beta``.
    beta, lipschitz : float
        sup f'' ||x||^2 and sup |f'| ||x||.
    orders : sequence of float
        At least 1.

    Returns
    -------
    DataFrame
        ``sigma``, ``lam``, ``order``, ``objective_perturbation`` (Theorem 4.3.2, closed form), ``half_normal`` (without
        its leading term), ``normal`` (Gaussian mechanism), ``absent``, ``present`` (errata S1, both directions) and
        ``reduced`` (the larger of the two).
    """
    noise, ridge = check_ordinary("sigma", sigma), check_ordinary("lam", lam)
    mu = check_ordinary("lipschitz", lipschitz) / noise
    kappa = check_ordinary("beta", beta) / ridge
    theorem, reduced, gaussian = HalfNormalCurve(mu, kappa), ReducedCurve(mu, kappa), GaussianCurve(mu)
    return pd.DataFrame(
        [
            {
                "sigma": noise,
                "lam": ridge,
                "order": float(order),
                "objective_perturbation": theorem.renyi(order),
                "half_normal": half_normal_renyi(order, mu),
                "normal": gaussian.renyi(order),
                "absent": reduced.renyi_absent(order),
                "present": reduced.renyi_present(order),
                "reduced": reduced.renyi(order),
            }
            for order in orders
        ]
    )


def composition_table(
    *,
    rounds: Sequence[int] = (1, 4, 16),
    epsilons: Sequence[float] = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0),
    sigma: float = 8.0,
    beta: float = 1.0,
    lam: float = 10.0,
    lipschitz: float = 1.0,
    certified: bool = False,
) -> pd.DataFrame:
    """Data of redberg2023, Figure C.2: delta of ``rounds`` compositions by each bound.

    Returns
    -------
    DataFrame
        ``rounds``, ``epsilon``, ``renyi`` (Theorem 4.3.2 composed and converted), ``numerical`` (losses of Lemma C.4.7
        added up), ``reduced_renyi`` and ``reduced`` (the same two for errata S1), ``gaussian`` (the Gaussian mechanism
        composed, exactly: a lower bound by Lemma 4.3.4); with ``certified`` also a column of that name: certified
        suprema over all losses and data, composed.

    Notes
    -----
    A tenth of a second a number of rounds; with ``certified`` half a minute each, once.
    """
    mu = check_ordinary("lipschitz", lipschitz) / check_ordinary("sigma", sigma)
    kappa = check_ordinary("beta", beta) / check_ordinary("lam", lam)
    rows = []
    for count in rounds:
        printed = ComposedCurve((Perturbation(mu, kappa, count, "half-normal"),))
        reduced = ComposedCurve((Perturbation(mu, kappa, count),))
        curves: dict[str, PrivacyCurve] = {
            "renyi": printed.renyi_curve(),
            "numerical": printed,
            "reduced_renyi": reduced.renyi_curve(),
            "reduced": reduced,
            "gaussian": GaussianCurve(math.sqrt(count) * mu),
        }
        if certified:
            curves["certified"] = ComposedCurve((Perturbation(mu, kappa, count, "certified"),))
        for epsilon in epsilons:
            row: dict[str, float] = {"rounds": count, "epsilon": float(epsilon)}
            rows.append(row | {name: curve.delta(epsilon) for name, curve in curves.items()})
    return pd.DataFrame(rows)


def renyi_crossing(
    *,
    sigma: float,
    sampling: float,
    multiplier: float,
    kappa: float,
    steps: int = 1,
    orders: Sequence[float] = tuple(np.geomspace(1.1, 1e4, 60)),
) -> pd.DataFrame:
    """Rényi curves of redberg2023, Figure C.3: objective perturbation, Gaussian mechanism and DP-SGD.

    In both panels sampling / multiplier = 1 / sigma: *one* step of the sampled Gaussian mechanism starts, at small
    orders, on the curve of the Gaussian mechanism with ``sigma``, and ends near that with ``multiplier``, unsampled.
    So one step is what is drawn by default; with T steps the curves start together when
    sampling sqrt(T) / multiplier = 1 / sigma. The thesis does not say which kappa = beta / lambda it drew.

    Parameters
    ----------
    sigma : float
        Noise of objective perturbation and of the Gaussian mechanism, for gradients of norm 1.
    sampling, multiplier : float
        Of DP-SGD: sampling probability in (0, 1] and noise over clipping norm.
    kappa : float
        sup f'' ||x||^2 / lam, in (0, 1).
    steps : int
        Of DP-SGD.
    orders : sequence of float
        Above 1.

    Returns
    -------
    DataFrame
        ``order``, ``objective_perturbation`` (Theorem 4.3.2), ``reduced`` (errata S1), ``gaussian``, ``dp_sgd``.
    """
    mu, count = 1 / check_ordinary("sigma", sigma), check_count("steps", steps)
    theorem, reduced = HalfNormalCurve(mu, kappa), ReducedCurve(mu, kappa)
    order = as_finite_array("orders", np.asarray(orders, dtype=np.float64), ndim=1)
    sampled = count * sampled_gaussian_renyi(order, sampling=sampling, sigma=multiplier)
    return pd.DataFrame(
        {
            "order": order,
            "objective_perturbation": [theorem.renyi(a) for a in order],
            "reduced": [reduced.renyi(a) for a in order],
            "gaussian": 0.5 * order * mu * mu,
            "dp_sgd": sampled,
        }
    )


def crossing_table(
    cases: Sequence[tuple[float, float, float]] = FIGURE_C3,
    *,
    kappas: Sequence[float] = (1e-4, 1e-2, 0.1),
    steps: int = 1,
) -> pd.DataFrame:
    """Order from which DP-SGD costs more than objective perturbation, for the panels of Figure C.3.

    Parameters
    ----------
    cases : sequence of (sigma, sampling, multiplier)
    kappas : sequence of float
        See :func:`renyi_crossing`.
    steps : int
        Of DP-SGD.

    Returns
    -------
    DataFrame
        ``sigma``, ``sampling``, ``multiplier``, ``kappa``, ``bound`` (``"objective_perturbation"``: Theorem 4.3.2;
        ``"reduced"``), ``order`` of the crossing (nan: there is none up to order 1e6) and the ``divergence`` there.
    """
    rows = []
    for sigma, sampling, multiplier in cases:
        for kappa in kappas:
            for bound in ("objective_perturbation", "reduced"):
                order, divergence = _crossing(
                    bound,
                    {"sigma": sigma, "sampling": sampling, "multiplier": multiplier, "kappa": kappa},
                    steps,
                )
                rows.append(
                    {
                        "sigma": sigma,
                        "sampling": sampling,
                        "multiplier": multiplier,
                        "kappa": kappa,
                        "bound": bound,
                        "order": order,
                        "divergence": divergence,
                    }
                )
    return pd.DataFrame(rows)


def _crossing(bound: str, case: dict[str, float], steps: int) -> tuple[float, float]:
    """First order where DP-SGD's divergence exceeds the bound, and the divergence there."""

    def frame(orders: Sequence[float]) -> pd.DataFrame:
        return renyi_crossing(**case, steps=steps, orders=orders)

    def excess(log_order: float) -> float:
        row = frame([math.exp(log_order)]).iloc[0]
        return float(math.log(row["dp_sgd"] / row[bound]))

    grid = np.geomspace(1.01, 1e6, 120)
    table = frame(tuple(grid))
    above = np.flatnonzero((table["dp_sgd"] > table[bound]).to_numpy())
    if not above.size or above[0] == 0:
        return (math.nan, math.nan) if not above.size else (1.0, math.nan)
    place = int(above[0])
    order = math.exp(float(brentq(excess, math.log(grid[place - 1]), math.log(grid[place]), xtol=1e-10)))
    return order, float(frame([order])[bound].iloc[0])
