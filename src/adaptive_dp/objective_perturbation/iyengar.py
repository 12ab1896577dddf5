"""The calibration of Iyengar et al. 2019 for approximate minima perturbation, and what our analysis says of it.

Their objective is a *mean*: (1/n) sum_i l_i + lam / (2 n) ||theta||^2 + b'theta, with b of scale s; times n it is the
objective of this chapter with sigma = n s, the same lam, and tau = n gamma. Neighbours *replace* one record.

The printed proof has a gap. It treats b as independent of the released theta, so that "the Gaussian mechanism"
would bound the density ratio (redberg2023, section C.6.1): but the distribution of the gradient that the record
contributes depends on theta, hence on b. For generalised linear losses the one-dimensional reduction (errata S1)
closes the gap, with room to spare for these scales: see :func:`iyengar_table`. For other losses nothing here does.
Their output noise is for a sensitivity of n gamma / lam, half of what two approximate minimisers can differ by;
the table counts the whole of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from adaptive_dp.objective_perturbation.calibration import OutputNoise, analysis_curve
from adaptive_dp.per_instance.calibration import Calibration
from adaptive_dp.privacy import PrivacyCurve
from adaptive_dp.validation import check_count, check_ordinary, check_probability

MOST_ROWS = 10**15
SMALLEST_TAIL = 1e-300


class IyengarNoise(NamedTuple):
    """Scales for the objective that is a mean of n losses."""

    objective: float
    """Standard deviation of a coordinate of b."""
    output: float
    """Standard deviation of a coordinate of the output noise."""
    lam: float
    """Ridge: lam / (2 n) beside the mean, lam / 2 beside the sum."""
    gamma: float
    """Largest gradient norm of the mean at the answer."""
    rows: int
    """n, public."""

    @property
    def calibration(self) -> Calibration:
        """Sigma and lam for the objective that is a sum."""
        return Calibration(self.rows * self.objective, self.lam)

    @property
    def tau(self) -> float:
        """Largest gradient norm of the sum at the answer."""
        return self.rows * self.gamma


def iyengar_noise(
    *,
    rows: int,
    epsilon: float,
    delta: float,
    slope: float = 1.0,
    curvature: float | None = None,
    objective_share: float = 0.9,
    output_share: float = 0.01,
    gamma: float | None = None,
) -> IyengarNoise:
    """Scales of Iyengar et al. 2019, Algorithm 1, with the shares of their benchmark.

    With e_out = output_share epsilon, e_obj = epsilon - e_out, e_noise = objective_share e_obj, and delta split in
    the same proportion:

        lam = 2 curvature / (e_obj - e_noise),
        objective = 2 slope / n (1 + sqrt(2 log(1 / delta_obj))) / e_noise,
        output = n gamma / lam (1 + sqrt(2 log(1 / delta_out))) / e_out.

    Parameters
    ----------
    rows : int
        n, public under replacement of one record.
    epsilon, delta : float
        What is claimed.
    slope : float
        Largest gradient norm L of one loss.
    curvature : float, optional
        Largest eigenvalue of one Hessian; their benchmark takes L^2, the default.
    objective_share, output_share : float
        In (0, 1).
    gamma : float, optional
        Default 1 / n^2.

    Raises
    ------
    ValueError
        A parameter out of range, or e_obj - e_noise is 1 or more, which their theorem excludes; scales outside
        1e-100 ... 1e100.
    """
    n, level = check_count("rows", rows), check_ordinary("epsilon", epsilon)
    tail, size = check_probability("delta", delta), check_ordinary("slope", slope)
    bend = size**2 if curvature is None else check_ordinary("curvature", curvature)
    share = check_probability("output_share", output_share)
    out, objective = share * level, (1 - share) * level
    noise = check_probability("objective_share", objective_share) * objective
    if objective - noise >= 1:
        raise ValueError(
            f"objective_share must leave less than 1 of epsilon to the ridge, got {objective - noise:.6g}"
        )
    if n > MOST_ROWS:
        raise ValueError(f"rows must be at most {MOST_ROWS:g}, got {n}")
    if share * tail < SMALLEST_TAIL or (1 - share) * tail < SMALLEST_TAIL:
        raise ValueError(f"delta must leave {SMALLEST_TAIL:g} to either share, got {tail!r}")
    goal = 1 / n**2 if gamma is None else check_ordinary("gamma", gamma)
    check_ordinary("output_share * epsilon", out)
    check_ordinary("objective_share * (1 - output_share) * epsilon", noise)
    lam = check_ordinary("lam, 2 curvature over what is left of epsilon,", 2 * bend / (objective - noise))
    scales = {
        "objective": 2 * size / n * _factor((1 - share) * tail) / noise,
        "output": n * goal / lam * _factor(share * tail) / out,
    }
    for name, scale in scales.items():
        if not 1e-100 <= scale <= 1e100:
            raise ValueError(
                f"rows, epsilon, delta, slope, curvature and gamma must give an ordinary {name} noise, got {scale!r}"
            )
    return IyengarNoise(
        **scales,
        lam=lam,
        gamma=goal,
        rows=n,
    )


def _factor(delta: float) -> float:
    return 1 + math.sqrt(2 * math.log(1 / delta))


def replacement_delta(curve: PrivacyCurve, epsilon: float) -> float:
    """Bound of delta for replacing a record, as one removed and one added: (1 + e^(epsilon/2)) delta(epsilon/2)."""
    half = 0.5 * check_ordinary("epsilon", epsilon)
    return min(1.0, (1 + math.exp(half)) * curve.delta(half))


def iyengar_table(
    epsilons: Sequence[float] = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0),
    *,
    rows: int = 2000,
    delta: float | None = None,
) -> pd.DataFrame:
    """Whether the scales keep their promise for generalised linear losses, under our analysis.

    Gradients up to 1 and Hessians up to 1, as their benchmark assumes; the numerical composition of errata S1.

    Parameters
    ----------
    epsilons : sequence of float
        Claimed.
    rows : int
        n.
    delta : float, optional
        Claimed; default 1 / n^2.

    Returns
    -------
    DataFrame
        ``epsilon``, ``delta`` (claimed, replace-one), ``sigma``, ``lam``, ``tau``, ``output`` (for the sum),
        ``replacement_delta``: our bound at the claimed epsilon, ``holds``; ``epsilon_add_remove``: our epsilon for one
        record added or removed, at the claimed delta.
    """
    records = []
    for epsilon in epsilons:
        claimed = 1 / check_count("rows", rows) ** 2 if delta is None else delta
        noise = iyengar_noise(rows=rows, epsilon=epsilon, delta=claimed)
        sigma, lam = noise.calibration
        out = OutputNoise(noise.output, noise.tau).mu(lam)
        curve = analysis_curve("numerical", mu=1 / sigma, kappa=1 / lam, mu_out=out)
        bound = replacement_delta(curve, epsilon)
        records.append(
            (
                epsilon,
                claimed,
                sigma,
                lam,
                noise.tau,
                noise.output,
                bound,
                bound <= claimed,
                curve.epsilon(claimed),
            )
        )
    names = ["epsilon", "delta", "sigma", "lam", "tau", "output", "replacement_delta", "holds",
             "epsilon_add_remove"]  # fmt: skip
    return pd.DataFrame(records, columns=names)
