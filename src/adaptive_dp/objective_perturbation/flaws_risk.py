"""What redberg2023 prints wrong about risk, optimisation and general losses in chapter 4, and what that costs.

Nothing here may be used to calibrate or to stop anything: each ``printed_...`` function is *false as printed*, or
wastes what its docstring says. The right versions are in ``general_loss``, ``non_glm``, ``optimisers`` and
``excess_risk`` of this package.

Errata 27 (Theorem C.5.1), 28 (Theorem C.8.1, sections C.8.1 and C.8.2) and 29 (section C.7).
"""

from __future__ import annotations

import math

from adaptive_dp.per_instance.calibration import log_chi_mgf
from adaptive_dp.validation import check_count, check_ordinary, check_real

# --- erratum 27: Theorem C.5.1 ------------------------------------------------------------------------------


def printed_smooth_renyi(
    order: float, *, slope: float, curvature: float, sigma: float, lam: float, dimension: int
) -> float:
    """Theorem C.5.1, **false as printed** where slope > 1: L / (2 sigma^2) should be L^2 / (2 sigma^2).

    The determinant -d log(1 - beta / lam) is valid for lam > beta, and infinite (as returned) below; right and smaller
    is d log(1 + beta / lam), for every lam. Right: ``SmoothPerturbationCurve.renyi``, and far below it
    :class:`~adaptive_dp.objective_perturbation.general_loss.GeneralLossCurve`.

    Parameters
    ----------
    order : float
        Above 1.
    slope, curvature, sigma, lam : float
        L, beta, sigma, lambda; positive.
    dimension : int
        d.
    """
    power = check_real("order", order) - 1
    if power <= 0:
        raise ValueError(f"order must be above 1, got {order!r}")
    size, noise = check_ordinary("slope", slope), check_ordinary("sigma", sigma)
    kappa = check_ordinary("curvature", curvature) / check_ordinary("lam", lam)
    d = check_count("dimension", dimension)
    if kappa >= 1:
        return math.inf
    return -d * math.log1p(-kappa) + size / (2 * noise**2) + log_chi_mgf(power * size / noise, d) / power
